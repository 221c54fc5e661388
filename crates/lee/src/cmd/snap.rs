//! `lee snap`: snapshots of directories. What they are is seen in the tree, below `.snap`; here is
//! what commands do with them.

use super::{Invocation, snap_stream};
use crate::fail::Fail;
use crate::locate::CellDir;
use crate::output::{self, Format, Side, Table, printable};
use crate::progress::Bar;
use crate::session::Session;
use crate::when::{self, Until};
use crate::{mounts, names, size};
use leeward_env::dates;
use leeward_volume::admin::{
    self, Change, ChangeKind, Request, Restored, ScheduleInfo, SnapInfo, SnapInfos, SnapUsage,
};
use serde_json::json;
use std::path::{Component, Path, PathBuf};

/// Take, list, keep and remove snapshots
///
/// A snapshot keeps a directory with everything below as it is now. Taking it takes no time and no
/// space. It is visible, read-only, as `.snap/NAME` in that directory. Users can do the same
/// without this command: mkdir, rmdir and mv in `.snap`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Take a snapshot of a directory; it is durable, with its content, when this returns
    Create {
        /// The directory: its path in the cell or below the mount
        path: PathBuf,
        /// The snapshot's name
        name: String,
    },
    /// List snapshots, and what they hold
    List {
        /// Only snapshots of this directory, or of one above it
        path: Option<PathBuf>,
        /// Only snapshots of this volume
        #[arg(long, value_name = "VOLUME", conflicts_with = "path")]
        volume: Option<String>,
    },
    /// Remove a snapshot: gone at once, its space comes back in the background
    Remove {
        /// The directory of the snapshot
        path: PathBuf,
        /// The snapshot's name
        name: String,
    },
    /// Give a snapshot another name
    Rename {
        /// The directory of the snapshot
        path: PathBuf,
        /// The snapshot's name
        name: String,
        /// The new name
        to: String,
    },
    /// Lock a snapshot: nobody can remove it before a date, root included, and nobody can shorten
    /// the lock
    Lock {
        /// The directory of the snapshot
        path: PathBuf,
        /// The snapshot's name
        name: String,
        /// Until when, in UTC: 2027-01-01, 2027-01-01T12:00Z, or from now on: +30d (h, d, w)
        #[arg(long, value_name = "DATE", value_parser = when::parse_until)]
        until: Until,
    },
    /// Take an expired lock away
    Unlock {
        /// The directory of the snapshot
        path: PathBuf,
        /// The snapshot's name
        name: String,
    },
    /// List differences between two snapshots of a directory, or between one and now
    ///
    /// Each line has a letter and a path: `+` added, `-` removed, `M` changed, `R` renamed. The
    /// time depends on what changed and on the directories of changed files, not on the whole tree.
    Diff {
        /// The directory
        path: PathBuf,
        /// The older snapshot
        from: String,
        /// The newer one [default: now]
        to: Option<String>,
        /// End names with a zero byte and print them unchanged; both names of a rename
        #[arg(short = '0')]
        zero: bool,
    },
    /// Bring a file or a tree back from a snapshot, without copying its data
    Restore {
        /// The directory of the snapshot
        path: PathBuf,
        /// The snapshot's name
        name: String,
        /// What to restore: a path below the directory, or `.` for all of it
        what: PathBuf,
        /// A new path for it, in the cell or below its mount [default: where it was]
        #[arg(long, value_name = "PATH", conflicts_with = "in_place")]
        to: Option<PathBuf>,
        /// Replace what exists there now
        #[arg(long)]
        in_place: bool,
    },
    /// Write a snapshot of a volume to standard output, for `lee snap receive` in another cell
    ///
    /// With --from only what has changed since an older snapshot is written, in time proportional
    /// to that. All of a volume travels: hard links, renames as renames, holes, owners, times,
    /// attributes, ACLs and inode numbers. Volumes attached below are not part of it.
    Send {
        /// The volume
        volume: String,
        /// The snapshot of its root directory
        name: String,
        /// An older snapshot, which the receiver has
        #[arg(long, value_name = "SNAPSHOT")]
        from: Option<String>,
    },
    /// Read a snapshot from standard input into a copy, made by `lee volume create --copy`
    ///
    /// The copy shows the snapshot when all of it has come and its digest is that of the sender;
    /// until then, and when the stream ends early, it shows what it did before.
    Receive {
        /// The copy
        volume: String,
    },
    /// Compute the digest of a snapshot: the same in all cells where it shows the same
    ///
    /// All names, attributes and content are read. With --from, only what differs from an older
    /// snapshot is, and the digest is what `lee snap send --from` tells.
    Digest {
        /// The volume
        volume: String,
        /// The snapshot of its root directory
        name: String,
        /// An older snapshot
        #[arg(long, value_name = "SNAPSHOT")]
        from: Option<String>,
    },
    /// Show what the snapshots of each volume hold together
    Usage {
        /// Only of this volume
        volume: Option<String>,
    },
    /// Take snapshots by the clock, and remove the old ones of them
    Schedule(ScheduleArgs),
}

/// Take snapshots by the clock, and remove the old ones of them
///
/// At multiples of the interval in UTC, the cell takes a snapshot of the directory with everything
/// below, and of the volumes attached below that have no schedule of their own. Its name is the
/// time, such as 2026-11-21T13:00Z. Only snapshots with such names are removed again, and never
/// locked ones.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct ScheduleArgs {
    #[command(subcommand)]
    action: Option<ScheduleAction>,
    /// The directory: its path in the cell or below the mount
    #[arg(required = true)]
    path: Option<PathBuf>,
    /// How often: 15m, 1h, 1d, 1w
    #[arg(required = true, value_parser = when::parse_interval)]
    interval: Option<u32>,
    /// Keep the newest of each of so many hours, days, weeks, months and years (h, d, w, m, y)
    #[arg(long, value_name = "COUNTS", default_value = "24h7d4w12m")]
    keep: String,
}

#[derive(Debug, clap::Subcommand)]
enum ScheduleAction {
    /// List all schedules, and whether any is late
    List,
    /// Remove the schedule of a directory; its snapshots stay
    Remove {
        /// The directory
        path: PathBuf,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { path, name } => {
            let (_, snap) =
                ask_about(invocation, "snap create", &path, |path| admin::SnapCreate { path, name })?;
            show(invocation, &snap, || {
                format!("took snapshot {} of {}", printable(&snap.name), printable(&snap.path))
            })
        }
        Action::List { path, volume } => list(invocation, path.as_deref(), volume),
        Action::Remove { path, name } => {
            let request = |path| admin::SnapRemove { path, name: name.clone() };
            let (at, _) = ask_about(invocation, "snap remove", &path, request)?;
            output::show(invocation.format, &json!({"reply": "done", "path": at, "name": name}), || {
                let (name, at) = (printable(&name), printable(&at));
                format!("removed snapshot {name} of {at}; its space comes back in the background")
            })
        }
        Action::Rename { path, name, to } => {
            let old = name.clone();
            let (_, snap) =
                ask_about(invocation, "snap rename", &path, |path| admin::SnapRename { path, name, to })?;
            show(invocation, &snap, || {
                let path = printable(&snap.path);
                format!("snapshot {} of {path} is now {}", printable(&old), printable(&snap.name))
            })
        }
        Action::Lock { path, name, until } => {
            let until_secs = until.at((invocation.env.wall() / 1_000_000_000) as i64);
            let request = |path| admin::SnapLock { path, name, until_secs };
            let (_, snap) = ask_about(invocation, "snap lock", &path, request)?;
            show(invocation, &snap, || {
                let until = when::utc(snap.locked_until_secs);
                format!(
                    "nobody can remove snapshot {} of {} before {until}",
                    printable(&snap.name),
                    printable(&snap.path)
                )
            })
        }
        Action::Unlock { path, name } => {
            let (_, snap) =
                ask_about(invocation, "snap unlock", &path, |path| admin::SnapUnlock { path, name })?;
            show(invocation, &snap, || {
                format!("snapshot {} of {} is not locked", printable(&snap.name), printable(&snap.path))
            })
        }
        Action::Diff { path, from, to, zero } => diff(invocation, &path, from, to, zero),
        Action::Restore { path, name, what, to, in_place } => {
            restore(invocation, &path, name, &what, to.as_deref(), in_place)
        }
        Action::Send { volume, name, from } => snap_stream::send(invocation, volume, name, from),
        Action::Receive { volume } => snap_stream::receive(invocation, volume),
        Action::Digest { volume, name, from } => snap_stream::digest(invocation, volume, name, from),
        Action::Usage { volume } => usage(invocation, volume),
        Action::Schedule(args) => schedule(invocation, args),
    }
}

/// Asks about a directory; returns its path in the cell, and the reply.
fn ask_about<R: Request>(
    invocation: &Invocation,
    command: &'static str,
    path: &Path,
    request: impl FnOnce(String) -> R,
) -> Result<(String, R::Reply), Fail> {
    invocation.session(command, |cell: &CellDir, session: &mut Session| {
        let path = mounts::path_in_cell(cell.path(), path)?;
        let reply = session.ask(&request(path.clone()))?;
        Ok((path, reply))
    })
}

fn show(invocation: &Invocation, snap: &SnapInfo, text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::reply(invocation.format, snap, text)
}

fn list(invocation: &Invocation, path: Option<&Path>, volume: Option<String>) -> Result<(), Fail> {
    let reply = invocation.session("snap list", |cell, session| {
        let path = path.map(|p| mounts::path_in_cell(cell.path(), p)).transpose()?;
        session.ask(&admin::SnapList { path, volume })
    })?;
    let SnapInfos { snapshots, usage } = &reply;
    let now = (invocation.env.wall() / 1_000_000_000) as i64;
    output::reply(invocation.format, &reply, || {
        let holding: Vec<&SnapUsage> = usage.iter().filter(|u| holds_any(u)).collect();
        let together: String = holding.iter().map(|u| together(u)).collect();
        match (snapshots.is_empty(), holding.is_empty()) {
            (true, true) => "no snapshots".into(),
            (true, false) => format!("no snapshots\n{together}"),
            (false, _) => format!("{}\n{together}", table(snapshots, now)),
        }
    })
}

fn holds_any(u: &SnapUsage) -> bool {
    u.snapshots > 0 || u.held_records > 0 || u.waiting_records > 0
}

fn together(u: &SnapUsage) -> String {
    format!(
        "volume {}: {} {} {}; {} wait for trim\n",
        u.volume,
        size::counted(u.snapshots, "snapshot", "snapshots"),
        if u.snapshots == 1 { "holds" } else { "together hold" },
        size::bytes(u.held_bytes),
        size::bytes(u.waiting_bytes)
    )
}

fn table(snapshots: &[SnapInfo], now: i64) -> Table {
    Table::new(&[
        ("AGE", Side::Right),
        ("NAME", Side::Left),
        ("DIRECTORY", Side::Left),
        ("BY", Side::Left),
        ("ALONE", Side::Right),
        ("LOCKED UNTIL", Side::Left),
    ])
    .rows(snapshots, |snap| {
        let lock = snap.locked_until_secs;
        [
            when::ago(now - snap.time_secs),
            snap.name.clone(),
            snap.path.clone(),
            names::user_name(snap.uid),
            size::bytes(snap.alone_bytes),
            if lock == 0 { "-".into() } else { dates::minute(lock) },
        ]
    })
}

fn diff(
    invocation: &Invocation,
    path: &Path,
    from: String,
    to: Option<String>,
    zero: bool,
) -> Result<(), Fail> {
    if zero && invocation.format == Format::Json {
        return Err(Fail::usage("-0 and --json are two forms: leave one out"));
    }
    let bar = Bar::new(invocation.format);
    let reply = invocation.session("snap diff", |cell, session| {
        let path = mounts::path_in_cell(cell.path(), path)?;
        session.ask_with_progress(&admin::SnapDiff { path, from, to }, &mut |p| bar.show(&p))
    });
    bar.clear();
    let reply = reply?;
    let changes = &reply.changes;
    if zero {
        let all: Vec<u8> = changes.iter().flat_map(|c| line(c, |path| path.to_vec(), b"\0", b"\0")).collect();
        return output::print_bytes(&all);
    }
    output::reply(invocation.format, &reply, || {
        let readable = |path: &[u8]| printable(&String::from_utf8_lossy(path)).into_bytes();
        let all: Vec<u8> = changes.iter().flat_map(|c| line(c, readable, b" -> ", b"\n")).collect();
        String::from_utf8_lossy(&all).into_owned()
    })
}

/// One difference; `between` the two names of a rename.
fn line(change: &Change, shown: impl Fn(&[u8]) -> Vec<u8>, between: &[u8], end: &[u8]) -> Vec<u8> {
    let letter: &[u8] = match change.kind {
        ChangeKind::Added => b"+ ",
        ChangeKind::Removed => b"- ",
        ChangeKind::Changed => b"M ",
        ChangeKind::Renamed => b"R ",
    };
    let from = change.from_path.as_ref().map(|from| [&shown(from.as_bytes())[..], between].concat());
    // the directory itself
    let path = if change.path.as_bytes().is_empty() { b"." } else { change.path.as_bytes() };
    [letter, &from.unwrap_or_default(), &shown(path), end].concat()
}

fn restore(
    invocation: &Invocation,
    path: &Path,
    name: String,
    what: &Path,
    to: Option<&Path>,
    in_place: bool,
) -> Result<(), Fail> {
    let what = below(what)?;
    let bar = Bar::new(invocation.format);
    let answer = invocation.session("snap restore", |cell, session| {
        let path = mounts::path_in_cell(cell.path(), path)?;
        let to = to.map(|to| mounts::path_in_cell(cell.path(), to)).transpose()?;
        let there = to.clone().unwrap_or_else(|| format!("{}/{what}", path.trim_end_matches('/')));
        let request = admin::SnapRestore { path, name, what, to, in_place };
        session.ask_with_progress(&request, &mut |p| bar.show(&p)).map(|reply| (there, reply))
    });
    bar.clear();
    let (there, reply) = answer?;
    let Restored(usage) = &reply;
    output::reply(invocation.format, &reply, || {
        format!(
            "restored {} and {} with {} to {}",
            size::counted(usage.files, "file", "files"),
            size::counted(usage.dirs, "directory", "directories"),
            size::bytes(usage.bytes),
            printable(&there)
        )
    })
}

/// A path below a directory, without `.` and `..`.
fn below(path: &Path) -> Result<String, Fail> {
    let mut names = Vec::new();
    for part in path.components() {
        match (part, part.as_os_str().to_str()) {
            (Component::CurDir, _) => {}
            (Component::Normal(_), Some(name)) => names.push(name),
            _ => {
                return Err(Fail::usage(format!(
                    "{}: name what to restore by its path from the directory on, in UTF-8, without `..`",
                    path.display()
                )));
            }
        }
    }
    Ok(names.join("/"))
}

fn usage(invocation: &Invocation, volume: Option<String>) -> Result<(), Fail> {
    let reply = invocation.ask("snap usage", &admin::SnapUsageList { volume })?;
    output::reply(invocation.format, &reply, || {
        Table::new(&[
            ("VOLUME", Side::Left),
            ("SNAPSHOTS", Side::Right),
            ("HELD", Side::Right),
            ("RECORDS", Side::Right),
            ("WAITING", Side::Right),
            ("RECORDS", Side::Right),
        ])
        .rows(&reply.usage, |u| {
            [
                u.volume.clone(),
                size::count(u.snapshots),
                size::bytes(u.held_bytes),
                size::count(u.held_records),
                size::bytes(u.waiting_bytes),
                size::count(u.waiting_records),
            ]
        })
        .to_string()
    })
}

fn schedule(invocation: &Invocation, args: ScheduleArgs) -> Result<(), Fail> {
    match (args.action, args.path, args.interval) {
        (Some(ScheduleAction::List), ..) => schedule_list(invocation),
        (Some(ScheduleAction::Remove { path }), ..) => {
            let request = |path| admin::ScheduleRemove { path };
            let (at, _) = ask_about(invocation, "snap schedule remove", &path, request)?;
            output::show(invocation.format, &json!({"reply": "done", "path": at}), || {
                format!("removed the schedule of {}; its snapshots stay", printable(&at))
            })
        }
        (None, Some(path), Some(interval_secs)) => {
            let request = |path| admin::ScheduleSet { path, interval_secs, keep: args.keep };
            let (_, s) = ask_about(invocation, "snap schedule", &path, request)?;
            output::reply(invocation.format, &s, || {
                format!(
                    "takes a snapshot of {} every {}, keeps {}; the next one at {}",
                    printable(&s.path),
                    when::interval(s.interval_secs),
                    s.keep,
                    dates::minute(s.next_secs)
                )
            })
        }
        _ => Err(Fail::usage("name the directory and how often, such as: lee snap schedule /home 1h")),
    }
}

fn schedule_list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("snap schedule list", &admin::ScheduleList)?;
    let schedules = &reply.schedules;
    output::reply(invocation.format, &reply, || match schedules.is_empty() {
        true => "no schedules".into(),
        false => schedule_table(schedules).to_string() + &troubles(schedules),
    })
}

fn schedule_table(schedules: &[ScheduleInfo]) -> Table {
    Table::new(&[
        ("DIRECTORY", Side::Left),
        ("EVERY", Side::Right),
        ("KEEP", Side::Left),
        ("NEWEST", Side::Left),
        ("NEXT", Side::Left),
        ("VOLUMES BELOW", Side::Right),
        ("STATE", Side::Left),
    ])
    .rows(schedules, |s| {
        [
            s.path.clone(),
            when::interval(s.interval_secs),
            s.keep.clone(),
            s.newest_secs.map_or_else(|| "-".into(), dates::minute),
            dates::minute(s.next_secs),
            size::count(s.volumes.len() as u64),
            if s.late { "LATE" } else { "good" }.into(),
        ]
    })
}

fn troubles(schedules: &[ScheduleInfo]) -> String {
    let mut text = String::new();
    for s in schedules {
        let late: Vec<&str> = s.volumes.iter().filter(|v| v.late).map(|v| v.volume.as_str()).collect();
        if !late.is_empty() {
            text.push_str(&format!("{}: late for volumes {}\n", printable(&s.path), late.join(", ")));
        }
        if let Some(error) = &s.error {
            text.push_str(&format!("{}: the last run failed: {}\n", printable(&s.path), printable(error)));
        }
    }
    text
}
