//! `lee mirror`: copies of volumes in other cells, kept up to date.

use super::{Invocation, volume};
use crate::control::ShownToken;
use crate::control::client::{Client, Unreached};
use crate::enrol;
use crate::fail::Fail;
use crate::mirror::{MirrorCall, MirrorState, MirrorStatus, Which, late_copy};
use crate::output::{self, Side, Table, printable};
use crate::progress::Bar;
use crate::{locate, mounts, size, when};
use leeward_volume::admin::{self, CopyStatus, MirrorInfo};
use serde_json::json;
use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::time::Duration;

/// Keep copies of volumes in other cells up to date: for when this one is lost
///
/// The process that serves the cell takes a snapshot, sends what differs from the last one, and
/// again after --every. The copy shows a whole snapshot, whose digest both sides have computed, or
/// the one before. It can be read at any time, and becomes a volume like others with
/// `lee mirror promote`, in the other cell.
///
/// The other cell lets this one in as a host: `lee host add NAME --mirror` there prints a token,
/// which is needed once. Only root and the user who serves the cell may use this command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  lee mirror add home --to standby.example.org --token TOKEN
  lee mirror add atlas --to standby.example.org --every 15m --keep 24h7d4w --limit 100M
  lee mirror add home --to /srv/second-cell
  lee mirror status
  lee mirror verify home
  lee mirror switch home            programs write there from now on, and the volume here is the copy
  lee mirror promote home           in the other cell, when this one is lost
  lee mirror detach home            there, when the mirror here is removed and could not tell it
";

/// The variable that hides a token.
const TOKEN: &str = "LEE_MIRROR_TOKEN";

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Keep a copy of a volume up to date; again: change how
    Add(AddArgs),
    /// Show how old each copy is, there and here, what is being sent, and what went wrong
    #[command(visible_alias = "list")]
    Status {
        /// The volume [default: all]
        volume: Option<String>,
    },
    /// Bring the copies of a volume up to date now, and wait for that
    Run(OneArgs),
    /// Compare the copies of a volume with it in full: all names, attributes and content
    Verify(OneArgs),
    /// Change the roles in order: the copy in the other cell becomes the volume, and the volume
    /// here the copy
    ///
    /// Nothing is lost. Nobody can write to either for a moment; then programs write to the volume
    /// in the other cell. Files that are open here must be opened again, there. If it is cut short,
    /// run it again.
    Switch {
        #[command(flatten)]
        one: OneArgs,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Keep a copy up to date no more; the copy stays
    ///
    /// The other cell is told, and does not wait for anything newer from then on. If it cannot be
    /// reached, run `lee mirror detach` there.
    Remove(OneArgs),
    /// Wait for nothing newer for a copy in this cell: its mirror was removed, or its cell is gone
    ///
    /// The copy stays what it is, and can be promoted. It is not late any more, so no alarm comes.
    /// When a mirror fills it again, that is taken back.
    Detach {
        /// The copy
        name: String,
    },
    /// Make a copy in this cell a volume that can be changed, as the snapshot that it shows
    Promote {
        /// The copy
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// The volume: its name, or the path of its root
    volume: String,
    /// The other cell: its servers (HOST[:PORT], with commas between them), or the directory or URL
    /// of one that is served on this machine
    #[arg(long, value_name = "CELL")]
    to: String,
    /// The name of the copy there [default: that of the volume]
    #[arg(long, value_name = "NAME")]
    copy: Option<String>,
    /// How long after a snapshot the next one is taken, such as 30s, 5m or 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = when::parse_duration)]
    every: Duration,
    /// Which of its snapshots the copy keeps: the newest of so many hours, days, weeks, months and
    /// years
    #[arg(long, value_name = "COUNTS", default_value = "24h7d")]
    keep: String,
    /// Most bytes in a second, such as 50M, or `none` [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    limit: Option<size::Limit>,
    /// The token that `lee host add NAME --mirror` has printed in the other cell; needed the first
    /// time only
    ///
    /// Other users of this machine may see it here. The environment variable LEE_MIRROR_TOKEN hides
    /// it.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The volume
    volume: String,
    /// The other cell, where there are several
    #[arg(long, value_name = "CELL")]
    to: Option<String>,
}

impl OneArgs {
    fn which(self) -> Result<Which, Fail> {
        let to = self.to.map(|to| cell_named(&to)).transpose()?;
        Ok(Which { volume: Some(self.volume), to })
    }
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that it is not served.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Add(args) => add(invocation, args),
        Action::Status { volume } => show_status(invocation, volume.as_ref()),
        Action::Run(args) => {
            let all = ask(invocation, MirrorCall::Run { which: args.which()? })?;
            show(invocation, &all, || lines(&all, |m| format!("{} is up to date: {}", copy_of(m), sent(m))))
        }
        Action::Switch { one, yes } => {
            if !yes && io::stdin().is_terminal() {
                let volume = printable(&one.volume);
                let question = format!(
                    "From now on nobody can change {volume} here, and programs write to it in the other cell. Change the roles? \
                     (yes or no)"
                );
                need_yes(&question, &format!("{volume} stays what it is"))?;
            }
            let all = ask(invocation, MirrorCall::Switch { which: one.which()? })?;
            show(invocation, &all, || lines(&all, switched))
        }
        Action::Verify(args) => {
            let all = ask(invocation, MirrorCall::Verify { which: args.which()? })?;
            show(invocation, &all, || {
                lines(&all, |m| format!("{} is the same as snapshot {}", copy_of(m), proven(m)))
            })
        }
        Action::Remove(args) => {
            let all = ask(invocation, MirrorCall::Remove { which: args.which()? })?;
            show(invocation, &all, || lines(&all, removed))
        }
        Action::Detach { name } => {
            let copy = invocation.ask("mirror detach", &admin::CopyDetach { name, from: None })?;
            output::reply(invocation.format, &copy, || {
                format!("nothing newer is waited for in the copy {}; it stays", printable(&copy.name))
            })
        }
        Action::Promote { name, yes } => {
            if !yes && io::stdin().is_terminal() {
                confirm(invocation, &name)?;
            }
            volume::promote(invocation, name)
        }
    }
}

/// Asks whether a copy is to be promoted, and says how old it is.
fn confirm(invocation: &Invocation, name: &str) -> Result<(), Fail> {
    let info = invocation.ask("mirror promote", &admin::VolumeShow { name: name.into() })?;
    let Some(copy) = info.copy else { return Ok(()) };
    let now = (invocation.env.wall() / 1_000_000_000) as i64;
    let state = match &copy.snapshot {
        Some(_) => format!("shows what was there {}", when::ago(now - copy.time_secs)),
        None => "has received nothing yet".into(),
    };
    let question = format!(
        "{} {state}. From now on it can be changed, and takes no more from where it came from; what was changed there \
         since is not in it. If that cell is still served, users may write to both. Promote it? (yes or no)",
        printable(name)
    );
    need_yes(&question, &format!("{name} stays a copy"))
}

/// Asks, and fails with the other text unless the answer is yes.
fn need_yes(question: &str, otherwise: &str) -> Result<(), Fail> {
    output::note(question);
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match (read, answer.trim()) {
        (Ok(_), "yes" | "y") => Ok(()),
        _ => Err(Fail::new(otherwise)),
    }
}

fn add(invocation: &Invocation, args: AddArgs) -> Result<(), Fail> {
    let volume = volume_named(invocation, &args.volume)?;
    let every_secs = u32::try_from(args.every.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    let mirror = MirrorInfo {
        to: cell_named(&args.to)?,
        copy: args.copy.unwrap_or_else(|| volume.clone()),
        every_secs,
        bytes_per_sec: args.limit.map_or(0, |limit| limit.0),
        keep: args.keep,
        volume,
        ..MirrorInfo::default()
    };
    let token = args.token.or_else(|| std::env::var(TOKEN).ok()).map(ShownToken);
    let (name, to) = (mirror.copy.clone(), mirror.to.clone());
    let all = ask(invocation, MirrorCall::Add { mirror, token })?;
    let all: Vec<MirrorStatus> =
        all.into_iter().filter(|m| m.mirror.copy == name && m.mirror.to == to).collect();
    show(invocation, &all, || {
        lines(&all, |m| {
            format!(
                "{} is kept up to date, every {}: see lee mirror status {}",
                copy_of(m),
                when::interval(m.mirror.every_secs),
                printable(&m.mirror.volume)
            )
        })
    })
}

/// A volume by its name, or by the path of its root.
fn volume_named(invocation: &Invocation, text: &str) -> Result<String, Fail> {
    if !text.contains('/') {
        return Ok(text.into());
    }
    invocation.session("mirror add", |cell, session| {
        let at = mounts::path_in_cell(cell.path(), Path::new(text))?;
        let all = session.ask(&admin::VolumeList)?.volumes;
        let found = all.into_iter().find(|volume| volume.at == at);
        found.map(|volume| volume.name).ok_or_else(|| {
            Fail::new(format!(
                "{text} is not the root of a volume: volumes are copied as a whole, see lee volume list, and make one with \
                 lee volume create"
            ))
        })
    })
}

/// Another cell as it is stored: servers with their ports, or a place on this machine.
fn cell_named(text: &str) -> Result<String, Fail> {
    if locate::is_bucket(text.as_ref()) {
        return Ok(text.into());
    }
    if text.contains('/') || Path::new(text).is_dir() {
        let path = std::path::absolute(text).map_err(|e| Fail::new(format!("{text}: {e}")))?;
        return path.into_os_string().into_string().map_err(|_| Fail::new(format!("{text}: is not UTF-8")));
    }
    enrol::parse_servers(text).map_err(|e| Fail::new(format!("--to {text}: {e}")))
}

fn ask(invocation: &Invocation, call: MirrorCall) -> Result<Vec<MirrorStatus>, Fail> {
    let cell = invocation.cell()?;
    let client = Client::connect(&cell).map_err(|e| match e {
        Unreached::Failed(fail) => fail,
        Unreached::Silent => Fail::new(format!(
            "{cell} is not served, and nothing is sent then: start it with `lee up {cell}`, or `lee serve {cell}`"
        )),
    })?;
    let bar = Bar::new(invocation.format);
    let answer = client.mirror(call, &mut |at| bar.show(&at));
    bar.clear();
    answer
}

/// Shows mirrors, and copies that are here: of one volume, or all.
fn show_status(invocation: &Invocation, volume: Option<&String>) -> Result<(), Fail> {
    let is_meant = |name: &String| volume.is_none_or(|volume| volume == name);
    let mut all = ask(invocation, MirrorCall::Status { which: Which::default() })?;
    all.retain(|m| is_meant(&m.mirror.volume));
    let now = (invocation.env.wall() / 1_000_000_000) as i64;
    let volumes = invocation.ask("mirror status", &admin::VolumeList)?.volumes;
    let meant = volumes.iter().filter(|volume| is_meant(&volume.name));
    let copies: Vec<CopyStatus> = meant.filter_map(|volume| CopyStatus::of(volume, now)).collect();
    if let Some(volume) = volume.filter(|_| all.is_empty() && copies.is_empty()) {
        let volume = printable(volume);
        return Err(Fail::new(format!(
            "volume {volume} has no mirror, and is no copy: see lee mirror status"
        )));
    }
    output::show(invocation.format, &json!({ "copies": copies, "mirrors": all }), || {
        let mut text = String::new();
        if !all.is_empty() || copies.is_empty() {
            text.push_str(&status(&all));
        }
        if !copies.is_empty() {
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}{}", copies_here(&copies, now)));
        }
        text
    })
}

fn show(invocation: &Invocation, all: &[MirrorStatus], text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::show(invocation.format, &json!({ "mirrors": all }), text)
}

fn lines(all: &[MirrorStatus], line: impl Fn(&MirrorStatus) -> String) -> String {
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn copy_of(m: &MirrorStatus) -> String {
    format!("the copy {} in {}", printable(&m.mirror.copy), printable(&m.mirror.to))
}

fn proven(m: &MirrorStatus) -> String {
    m.proven.as_ref().map_or_else(|| "none".into(), |name| printable(name))
}

fn sent(m: &MirrorStatus) -> String {
    format!(
        "snapshot {} is proven there; sent {} in {} ms",
        proven(m),
        size::bytes(m.sent_bytes),
        size::count(m.took_ms)
    )
}

fn removed(m: &MirrorStatus) -> String {
    let (to, volume) = (printable(&m.mirror.to), printable(&m.mirror.volume));
    let note = m.not_detached.as_ref().map_or_else(String::new, |why| {
        let (why, copy) = (printable(why), printable(&m.mirror.copy));
        format!(
            "\nNOTE {to} was not told ({why}), and will say that the copy is late: run lee mirror detach {copy} there"
        )
    });
    format!(
        "{} is not kept up to date any more; it stays. Snapshots {} of volume {volume} may be removed{note}",
        copy_of(m),
        proven(m)
    )
}

fn switched(m: &MirrorStatus) -> String {
    let pause =
        m.pause_ms.map_or_else(String::new, |ms| format!("; nobody could write for {} ms", size::count(ms)));
    format!(
        "{} is the volume now, and volume {} here the copy, of snapshot {}{pause}\nto keep it up to date, run in the other cell, if \
         it has no mirror to this one: lee mirror add {} --copy {1} --to THIS-CELL",
        copy_of(m),
        printable(&m.mirror.volume),
        proven(m),
        printable(&m.mirror.copy)
    )
}

fn status(all: &[MirrorStatus]) -> String {
    if all.is_empty() {
        return "no copies are kept up to date in other cells: see lee mirror --help".into();
    }
    let columns = [
        ("VOLUME", Side::Left),
        ("TO", Side::Left),
        ("COPY", Side::Left),
        ("EVERY", Side::Right),
        ("STATE", Side::Left),
        ("PROVEN", Side::Right),
        ("BACKLOG", Side::Right),
        ("SENT", Side::Right),
        ("RATE", Side::Right),
        ("AT WORK", Side::Left),
    ];
    let mut text = Table::new(&columns).rows(all, row).to_string();
    for m in all.iter().filter(|m| m.is_bad()) {
        let why = m.error.clone().unwrap_or_else(|| "the copy is older than it should be".into());
        let (volume, to) = (printable(&m.mirror.volume), printable(&m.mirror.to));
        text.push_str(&format!("ALARM the mirror of {volume} to {to}: {}\n", printable(&why)));
    }
    for m in all {
        let Some(kept) = &m.set_aside else { continue };
        text.push_str(&format!(
            "NOTE {} was a volume of its own: what never came here is there in snapshot {}; remove that when nobody needs it\n",
            copy_of(m),
            printable(kept)
        ));
    }
    text
}

fn row(m: &MirrorStatus) -> [String; 10] {
    [
        printable(&m.mirror.volume),
        printable(&m.mirror.to),
        printable(&m.mirror.copy),
        when::interval(m.mirror.every_secs),
        state(m).into(),
        m.age_secs.map_or_else(|| "nothing yet".into(), when::ago),
        m.backlog_in_words(),
        size::bytes(m.sent_bytes),
        format!("{}/s", size::bytes(m.rate)),
        at_work(m),
    ]
}

/// Copies of volumes of other cells that are here, and what was one.
fn copies_here(copies: &[CopyStatus], now: i64) -> String {
    let columns = [
        ("COPY HERE", Side::Left),
        ("OF", Side::Left),
        ("FROM", Side::Left),
        ("EVERY", Side::Right),
        ("STATE", Side::Left),
        ("PROVEN", Side::Right),
    ];
    let known = |text: &String| if text.is_empty() { "-".into() } else { printable(text) };
    let row = |copy: &CopyStatus| {
        let every = copy.origin.every_secs;
        let age = match &copy.origin.promoted {
            Some(promoted) => when::ago(now - promoted.time_secs),
            None if copy.snapshot.is_none() => "nothing yet".into(),
            None => copy.age_secs.map_or_else(|| "-".into(), when::ago),
        };
        [
            printable(&copy.volume),
            known(&copy.origin.volume),
            known(&copy.origin.cell),
            if every == 0 { "-".into() } else { when::interval(every) },
            match &copy.origin.promoted {
                Some(_) => "promoted".into(),
                None if copy.late => "late".into(),
                None if copy.origin.detached_secs.is_some() => "detached".into(),
                None => "copy".into(),
            },
            age,
        ]
    };
    let mut text = Table::new(&columns).rows(copies, row).to_string();
    for copy in copies.iter().filter(|copy| copy.late) {
        text.push_str(&format!("ALARM {}\n", printable(&late_copy(copy))));
    }
    for copy in copies {
        if let Some(promoted) = &copy.origin.promoted {
            text.push_str(&format!("NOTE {}\n", volume::promoted(&copy.volume, &copy.origin, promoted)));
        } else if let Some(secs) = copy.origin.detached_secs {
            text.push_str(&format!(
                "NOTE nothing newer comes for the copy {}: its mirror was removed {}\n",
                printable(&copy.volume),
                when::utc(secs)
            ));
        }
    }
    text
}

fn state(m: &MirrorStatus) -> &'static str {
    match m.state {
        MirrorState::New => "not begun",
        MirrorState::Good if m.late => "late",
        MirrorState::Good => "good",
        MirrorState::Running if m.error.is_some() => "trying again",
        MirrorState::Running => "sending",
        MirrorState::Failing => "failing",
        MirrorState::Promoted => "the copy is promoted",
        MirrorState::Copy => "is a copy itself",
    }
}

fn at_work(m: &MirrorStatus) -> String {
    let Some(at) = &m.progress else { return "-".into() };
    let left = m.left_secs.map_or_else(String::new, |secs| format!(", {} s left", size::count(secs)));
    let total = if at.total > 0 { format!(" of {}", size::count(at.total)) } else { String::new() };
    format!("{} {}{total}{left}", printable(&at.phase), size::count(at.done))
}
