//! `lee audit`: who changed what, when and from which machine; what operators asked; and whether
//! all of that is as it was written.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, printable};
use crate::{mounts, names, size, system, when};
use clap::ValueEnum;
use leeward_volume::admin::{
    EventFilter, EventInfo, EventKind, EventList, EventVerify, LogMark, LogVerified, LogsVerified, PathText,
    RightsInfo,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Events in a page.
const PAGE: usize = 1000;

/// Show who changed what, when, and from which machine
///
/// With a path: what happened at it or below it, in its volume, the newest last. The path need not
/// be there any more. Without: what operators asked of the cell. Volumes keep what changed for the
/// days of their property audit-days (lee volume set VOLUME audit-days=90), the cell as long as the
/// volume root. Together they take at most a 64th of the disk: the largest is cut first.
///
/// Each block of events contains the SHA-256 of the one before. --verify looks whether all of them
/// go together. Who can write to the disk could write all of them anew: keep what --verify --json
/// prints on another machine, and give it to --against later.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file or directory, there or not: its path in the cell or below the mount
    path: Option<PathBuf>,
    /// Only what these users did, by name or number
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    user: Vec<String>,
    /// Only what was done on this machine
    #[arg(long, value_name = "HOST")]
    machine: Option<String>,
    /// Only these kinds of changes
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    what: Vec<Kind>,
    /// Only where a path, a name or a request contains this
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Only what happened from then on, in UTC: 2026-11-21 or 2026-11-21T12:00Z
    #[arg(long, value_name = "TIME", value_parser = when::parse_from)]
    since: Option<i64>,
    /// Only what happened up to then
    #[arg(long, value_name = "TIME", value_parser = when::parse_at)]
    until: Option<i64>,
    /// Only so many, the newest; 0: all
    #[arg(long, short = 'n', default_value_t = 100, value_name = "COUNT")]
    limit: usize,
    /// Look whether all events are there as they were written
    #[arg(long, conflicts_with_all = ["path", "user", "machine", "what", "contains", "since", "until"])]
    verify: bool,
    /// With --verify: also that they are those of this file, which `lee audit --verify --json`
    /// wrote
    #[arg(long, value_name = "FILE", requires = "verify")]
    against: Option<PathBuf>,
}

/// Kinds of changes on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Files and directories that were made
    Created,
    /// Names that were added
    Linked,
    /// Names that were removed
    Removed,
    /// Names that were changed
    Renamed,
    /// Files whose content changed
    Written,
    /// Modes, owners and groups
    Rights,
    /// Times and flags
    Attributes,
    /// Extended attributes and ACLs
    Xattr,
    /// Snapshots
    Snapshots,
    /// Requests of operators
    Asked,
}

impl Kind {
    fn kinds(self) -> &'static [EventKind] {
        match self {
            Kind::Created => &[EventKind::Created],
            Kind::Linked => &[EventKind::Linked],
            Kind::Removed => &[EventKind::Removed],
            Kind::Renamed => &[EventKind::Renamed, EventKind::Exchanged],
            Kind::Written => &[EventKind::Written],
            Kind::Rights => &[EventKind::Rights],
            Kind::Attributes => &[EventKind::Attributes],
            Kind::Xattr => &[EventKind::Xattr],
            Kind::Snapshots => &[
                EventKind::SnapshotTaken,
                EventKind::SnapshotRemoved,
                EventKind::SnapshotRenamed,
                EventKind::SnapshotLocked,
            ],
            Kind::Asked => &[EventKind::Asked],
        }
    }
}

/// Runs it.
///
/// # Errors
/// What the cell says; with `--verify` also that something is wrong.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    if args.verify {
        return verify(invocation, args.against.as_deref());
    }
    let uids = args.user.iter().map(|user| system::owner(user).map(|owner| owner.uid));
    let filter = EventFilter {
        uids: uids.collect::<Result<Vec<u32>, Fail>>()?,
        machine: args.machine.clone(),
        kinds: args.what.iter().flat_map(|kind| kind.kinds()).copied().collect(),
        since_secs: args.since,
        until_secs: args.until,
        contains: args.contains.clone(),
    };
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let mut events = invocation.session("audit", |cell, session| {
        let path = args.path.as_deref().map(|path| mounts::path_in_cell(cell.path(), path)).transpose()?;
        let (mut events, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = session.ask(&EventList {
                path: path.clone(),
                until_now: cursor.is_none(),
                cursor,
                newest_first: true,
                filter: filter.clone(),
                limit: PAGE.min(limit - events.len()),
            })?;
            events.extend(page.events);
            cursor = Some(page.cursor);
            if !page.more || events.len() >= limit {
                return Ok(events);
            }
        }
    })?;
    events.reverse();
    let json = json!({"reply": "events", "events": events});
    output::show(invocation.format, &json, || match events.is_empty() {
        true => "nothing of that kind is kept".into(),
        false => events.iter().map(|event| line(event) + "\n").collect(),
    })
}

fn line(event: &EventInfo) -> String {
    let machine = event.machine.as_ref().map(|machine| format!("@{machine}")).unwrap_or_default();
    let work = event.work.as_ref().map(|work| format!(" ({work})")).unwrap_or_default();
    let who = format!("{}{machine}{work}", names::user_name(event.uid));
    printable(&format!("{}  {who}  {}", when::utc(event.secs), said(event)))
}

fn said(event: &EventInfo) -> String {
    let text = |path: &Option<PathText>| {
        path.as_ref().map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned())
    };
    let path = text(&event.path).or_else(|| {
        let name = text(&event.name).unwrap_or_default();
        Some(format!("inode {} ({name}), below a directory that is not known any more", event.inode))
    });
    let path = path.unwrap_or_default();
    let (from, snapshot) = (text(&event.from).unwrap_or_default(), text(&event.snapshot).unwrap_or_default());
    match event.what {
        EventKind::Created => format!("created {path}"),
        EventKind::Linked => format!("linked {path}"),
        EventKind::Removed => format!("removed {path}"),
        EventKind::Renamed => format!("renamed {from} to {path}"),
        EventKind::Exchanged => format!("exchanged {from} and {path}"),
        EventKind::Written => format!("wrote to {path}"),
        EventKind::Attributes => format!("set times or flags of {path}"),
        EventKind::Rights => {
            let rights = |rights: &Option<RightsInfo>| rights.as_ref().map(rights_text).unwrap_or_default();
            format!("changed rights of {path} from {} to {}", rights(&event.was), rights(&event.is))
        }
        EventKind::Xattr => {
            let name = text(&event.xattr).unwrap_or_default();
            format!("{} attribute {name} of {path}", if event.removed { "removed" } else { "set" })
        }
        EventKind::SnapshotTaken => format!("took snapshot {snapshot} of {path}"),
        EventKind::SnapshotRemoved => format!("removed snapshot {snapshot} of {path}"),
        EventKind::SnapshotRenamed => format!("renamed snapshot {from} of {path} to {snapshot}"),
        EventKind::SnapshotLocked => match event.locked_until_secs {
            Some(until) if until > 0 => {
                format!("locked snapshot {snapshot} of {path} until {}", when::utc(until))
            }
            _ => format!("unlocked snapshot {snapshot} of {path}"),
        },
        EventKind::Asked => {
            format!("asked for {}", event.request.as_ref().map(request_text).unwrap_or_default())
        }
    }
}

fn rights_text(rights: &RightsInfo) -> String {
    let (user, group) = (names::user_name(rights.uid), names::group_name(rights.gid));
    format!("{:04o} {user}:{group}", rights.mode)
}

/// `volume-set name="a" set={…}`, without what has no value.
fn request_text(request: &Value) -> String {
    let Value::Object(fields) = request else { return request.to_string() };
    let name = fields.get("request").and_then(Value::as_str).unwrap_or_default();
    let said = fields.iter().filter(|(key, value)| *key != "request" && !value.is_null());
    let said: String = said.map(|(key, value)| format!(" {key}={}", without_nulls(value))).collect();
    format!("{name}{said}")
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let there = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}

/// What `--verify --json` wrote, as far as it is needed again.
#[derive(Deserialize)]
struct Before {
    logs: Vec<BeforeLog>,
}

#[derive(Deserialize)]
struct BeforeLog {
    mark: LogMark,
}

fn verify(invocation: &Invocation, against: Option<&Path>) -> Result<(), Fail> {
    let against = against.map(marks_in).transpose()?.unwrap_or_default();
    let reply = invocation.ask_with_bar("audit", &EventVerify { against })?;
    output::reply(invocation.format, &reply, || verified_text(&reply))?;
    match reply.logs.iter().filter(|log| log.wrong.is_some()).count() {
        0 => Ok(()),
        n => Err(Fail::new(format!(
            "{} not what was written: keep the disk as it is, and compare with a mirror or a backup",
            size::counted(n as u64, "event log is", "event logs are")
        ))),
    }
}

fn marks_in(file: &Path) -> Result<Vec<LogMark>, Fail> {
    let told = |why: String| Fail::new(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| told(e.to_string()))?;
    let before: Before = serde_json::from_str(&text)
        .map_err(|e| told(format!("this is not what `lee audit --verify --json` prints: {e}")))?;
    Ok(before.logs.into_iter().map(|log| log.mark).collect())
}

fn verified_text(reply: &LogsVerified) -> String {
    let name = |mark: &LogMark| mark.volume.clone().unwrap_or_else(|| "the cell's own".into());
    let of_log = |log: &LogVerified| {
        let events = size::counted(log.mark.next.saturating_sub(log.first), "event", "events");
        let kept = format!("{}: {events}, {}", name(&log.mark), size::bytes(log.bytes));
        let what = match (&log.wrong, log.too_old) {
            (Some(wrong), _) => format!("WRONG: {wrong}"),
            (None, Some(_)) => "whole; what it was compared with is older than what is kept".into(),
            (None, None) => "whole".into(),
        };
        printable(&format!("{kept}: {what}")) + "\n"
    };
    let missing =
        reply.missing.iter().map(|mark| format!("{}: there is no such volume any more\n", name(mark)));
    reply.logs.iter().map(of_log).chain(missing).collect()
}
