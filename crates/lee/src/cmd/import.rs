//! `lee import`: brings a tree from any mounted file system, by passes.

use super::Invocation;
use crate::fail::{Fail, text};
use crate::output::{self, printable};
use crate::progress::Bar;
use crate::{locate, mounts, session, size, system};
use leeward_transfer::import::{self, Control, Options, Outcome, Summary};
use leeward_transfer::sys::Dir;
use leeward_transfer::{Counters, Error};
use leeward_volume::admin::{self, Progress};
use serde::Serialize;
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code of a pass under which something changed: one more is needed.
const UNSETTLED: u8 = 3;
/// So much of what is not right is told in text.
const TOLD_MAX: usize = 20;

/// Bring a tree from any mounted file system, repeatedly while it is used
///
/// Each run is one pass: it copies what the target does not have as the source has it, with owners,
/// permissions, ACLs, extended attributes, hard links, holes and times. Users may work in the
/// source meanwhile. Repeat it until little is left; then stop the users, and one last pass with
/// --delete is short. A pass that was ended goes on with the next one. Exit codes: 0 the target is
/// as the source was; 1 failed, or some names could not be brought; 3 some files changed while they
/// were read: run it again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory of any mounted file system; what is in it goes to the target
    source: PathBuf,

    /// A directory that is there, such as the root of a volume; or the name of a volume
    target: PathBuf,

    /// Remove from the target what the source does not have any more
    #[arg(long)]
    delete: bool,

    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,

    /// Compare the content of all files, not only of those that may differ
    #[arg(long)]
    compare: bool,

    /// Leave this name alone on both sides, in every directory, such as lost+found
    #[arg(long, value_name = "NAME")]
    exclude: Vec<std::ffi::OsString>,

    /// Also bring other file systems that are mounted in the source
    #[arg(long)]
    cross_file_systems: bool,

    /// Threads that copy
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

/// What is shown.
#[derive(Serialize)]
struct Shown<'a> {
    reply: &'static str,
    source: &'a Path,
    target: &'a Path,
    dry_run: bool,
    seconds: f64,
    #[serde(flatten)]
    summary: &'a Summary,
    /// Why the pass ended before its end.
    error: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When the pass cannot begin, or not go on to its end.
pub fn run(invocation: &Invocation, args: Args) -> Result<ExitCode, Fail> {
    let stop = system::stop_on_signals()?;
    let source = source(&args.source)?;
    let target = target(invocation, &args.target)?;
    refuse_nested(&source, &target)?;
    if system::uid() != 0 && !args.dry_run {
        output::note("lee: not run by root: what belongs to others will belong to you");
    }
    let open = |path: &Path| {
        Dir::open(path).map_err(|e| Fail::new(format!("{}: cannot be opened: {}", path.display(), text(&e))))
    };
    let (from, to) = (open(&source)?, open(&target)?);
    let bar = Bar::new(invocation.format);
    let began = invocation.env.now();
    let control = Control {
        stopped: &|| stop.asked(),
        sync: &|dir| make_durable(invocation, &target, dir),
        progress: &|counters| show_progress(&bar, counters),
    };
    let options = options(&args)?;
    let ended = import::run(&invocation.env, (from, &source.to_string_lossy()), to, options, &control);
    bar.clear();
    let outcome = ended.map_err(|e| Fail::new(e.to_string()))?;
    let seconds = (invocation.env.now() - began) as f64 / 1e9;
    tell(invocation, (&source, &target), args.dry_run, seconds, outcome)
}

fn options(args: &Args) -> Result<Options, Fail> {
    let name = |name: &std::ffi::OsString| match mounts::is_plain_name(name) {
        true => CString::new(name.clone().into_vec()).map_err(|e| Fail::usage(e.to_string())),
        false => Err(Fail::usage(format!("{}: --exclude takes a name without `/`", name.display()))),
    };
    Ok(Options {
        delete: args.delete,
        dry_run: args.dry_run,
        cross_file_systems: args.cross_file_systems,
        compare: args.compare,
        exclude: args.exclude.iter().map(name).collect::<Result<_, _>>()?,
        threads: args.threads.into(),
    })
}

/// The source as a path without symbolic links.
fn source(path: &Path) -> Result<PathBuf, Fail> {
    let failed = match path.canonicalize() {
        Ok(found) if found.is_dir() => return Ok(found),
        Ok(_) => "it is no directory".into(),
        Err(e) => text(&e),
    };
    let bytes = path.as_os_str().as_bytes();
    let colon = bytes.iter().position(|b| *b == b':');
    if colon.is_some_and(|colon| colon > 0 && !bytes[..colon].contains(&b'/')) && !path.exists() {
        return Err(Fail::usage(elsewhere(&path.display().to_string())));
    }
    Err(Fail::new(format!("{}: cannot be imported from: {failed}", path.display())))
}

/// That a source is not on this machine, and how it comes to be.
fn elsewhere(there: &str) -> String {
    let (host, at) = there.split_once(':').unwrap_or_default();
    let (what, how) = if at.starts_with("//") {
        ("a URL", "with `rclone mount --read-only`, for example".into())
    } else if host.contains('@') || !at.starts_with('/') {
        ("on another machine", format!("`sshfs -o ro {there} /mnt`"))
    } else {
        ("on another machine", format!("NFS: `mount -o ro {there} /mnt`; by ssh: `sshfs -o ro {there} /mnt`"))
    };
    format!(
        "{there}: is {what}, and only what is mounted here can be imported: mount it ({how}), then `lee import /mnt TARGET`"
    )
}

/// The target as a path without symbolic links.
fn target(invocation: &Invocation, path: &Path) -> Result<PathBuf, Fail> {
    let failed = match path.canonicalize() {
        Ok(found) if found.is_dir() => return Ok(found),
        Ok(_) => "it is no directory".into(),
        Err(e) => text(&e),
    };
    if let Some(name) = path.to_str().filter(|_| mounts::is_plain_name(path.as_os_str()))
        && let Some(found) = volume(invocation, name)
    {
        return Ok(found);
    }
    Err(Fail::new(format!(
        "{}: cannot be imported to: {failed}: name a directory, or a volume that `lee volume create` has made",
        path.display()
    )))
}

/// Where a volume with this name is mounted.
fn volume(invocation: &Invocation, name: &str) -> Option<PathBuf> {
    let cell = invocation.cell_anywhere().ok()?;
    let asked = session::with(&invocation.env, &cell, "import", |session| {
        session.ask(&admin::VolumeShow { name: name.into() })
    });
    let at = asked.ok()?.at;
    let below = |mount: mounts::CellMount| mount.at.join(at.trim_start_matches('/'));
    let is_it = |path: &PathBuf| {
        path.is_dir() && mounts::path_in_cell(cell.path(), path).is_ok_and(|found| found == at)
    };
    mounts::all().into_iter().filter(|mount| mount.cell == cell.path()).map(below).find(is_it)
}

/// A tree cannot be brought into itself.
fn refuse_nested(source: &Path, target: &Path) -> Result<(), Fail> {
    if source.starts_with(target) || target.starts_with(source) {
        let (source, target) = (source.display(), target.display());
        return Err(Fail::usage(format!(
            "{source} and {target}: one is within the other, so there would be no end: name two trees"
        )));
    }
    Ok(())
}

/// In a mount of ours the system's own calls do not reach the server: it is asked.
fn make_durable(invocation: &Invocation, target: &Path, dir: &Dir) -> Result<(), String> {
    let Some(mount) = mounts::containing(target) else { return import::sync_by_system(dir) };
    let cell = locate::called(mount.at.as_os_str(), "").map_err(|fail| fail.to_string())?;
    let synced = session::with(&invocation.env, &cell, "import", |session| session.ask(&admin::SyncAll));
    synced.map(drop).map_err(|fail| fail.to_string())
}

/// Shows how far a transfer is.
pub(super) fn show_progress(bar: &Bar, counters: &Counters) {
    let phase = format!("{} read, names", size::bytes(counters.bytes()));
    bar.show(&Progress { phase, done: counters.names(), total: 0 });
}

/// Tells what a pass has done; the exit code says whether one more is needed.
fn tell(
    invocation: &Invocation,
    (source, target): (&Path, &Path),
    dry_run: bool,
    seconds: f64,
    Outcome { summary, error }: Outcome,
) -> Result<ExitCode, Fail> {
    tell_troubles(&summary);
    let shown = Shown {
        reply: "imported",
        source,
        target,
        dry_run,
        seconds,
        summary: &summary,
        error: error.as_ref().map(ToString::to_string),
    };
    output::show(invocation.format, &shown, || report(&summary, dry_run, seconds))?;
    match error {
        Some(Error::Stopped) => Err(Fail::new("stopped before the end: the next pass goes on from here")),
        Some(Error::Failed(cause)) => Err(Fail::new(cause)),
        None if summary.failed > 0 => Ok(ExitCode::FAILURE),
        None if summary.unsettled > 0 => Ok(ExitCode::from(UNSETTLED)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn tell_troubles(summary: &Summary) {
    for trouble in summary.troubles.iter().take(TOLD_MAX) {
        output::note(&format!("lee: {}: {}", printable(&trouble.path), trouble.cause));
    }
    for path in summary.unsettled_paths.iter().take(TOLD_MAX) {
        output::note(&format!("lee: {}: changed while it was read", printable(path)));
    }
    let told = summary.troubles.len().min(TOLD_MAX) + summary.unsettled_paths.len().min(TOLD_MAX);
    let more = (summary.failed + summary.unsettled).saturating_sub(told as u64);
    if more > 0 {
        output::note(&format!("lee: and {} more, of which --json lists a thousand", size::count(more)));
    }
}

/// What a pass has done, for a person: only what there is.
fn report(summary: &Summary, dry_run: bool, seconds: f64) -> String {
    let copied = format!(
        "{}{} with {} of {} in {}; {} unchanged; {seconds:.1} s\n",
        if dry_run { "would copy " } else { "copied " },
        size::counted(summary.files_copied, "file", "files"),
        size::bytes(summary.bytes_copied),
        size::counted(summary.files_copied + summary.unchanged, "name", "names"),
        size::counted(summary.directories, "directory", "directories"),
        size::count(summary.unchanged),
    );
    let lines = [
        (summary.hard_links, "further names of files"),
        (summary.specials_made, "symbolic links, devices, FIFOs and sockets"),
        (summary.files_compared, "files compared by content"),
        (summary.removed, "names removed that the source does not have"),
        (summary.only_in_target, "names only in the target: --delete removes them"),
        (summary.vanished, "names went away while they were read"),
        (summary.mounts_left_out, "other file systems left out: --cross-file-systems brings them"),
        (summary.owners_left_out, "owners not kept, which only root can set"),
        (summary.groups_narrowed, "groups with fewer rights, because the target takes no ACL"),
        (summary.unsettled, "names changed while they were read: import again"),
        (summary.failed, "names could not be brought"),
    ];
    let lines = lines.into_iter().filter(|(count, _)| *count > 0);
    let mut text: String =
        lines.map(|(count, what)| format!("{:>12}  {what}\n", size::count(count))).collect();
    for (name, count) in &summary.attributes_left_out {
        text.push_str(&format!("{:>12}  attributes {} left out\n", size::count(*count), printable(name)));
    }
    copied + &text
}
