//! `lee export`: a snapshot as one archive, with a manifest of checksums.

mod files;
mod source;

use super::Invocation;
use super::import::show_progress;
use crate::fail::{Fail, text};
use crate::output::{self, Format, printable};
use crate::progress::Bar;
use crate::{size, system};
use files::{Archive, Manifest};
use leeward_transfer::export::{self, Options, Summary};
use leeward_transfer::output::Output;
use leeward_transfer::sys::Dir;
use leeward_transfer::{Counters, Error};
use serde::Serialize;
use source::Source;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The name of the manifest in an archive.
const INSIDE: &str = "MANIFEST.sha256";
/// So much of what is not right is told in text.
const TOLD_MAX: usize = 20;

/// Write a snapshot as a tar archive, with a manifest of checksums
///
/// The archive is in the pax format, which GNU tar, bsdtar and Python unpack, with hard links,
/// holes, times, extended attributes and ACLs: `tar --acls --xattrs --xattrs-include='*' -xpf FILE`
/// restores all of them. `sha256sum -c MANIFEST` in the restored tree proves its files. Volumes
/// attached below are not in it: export each.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A snapshot, DIR/.snap/NAME, or a directory in one; or a directory of the mount, of which a
    /// snapshot is taken for as long as this runs
    path: PathBuf,

    /// Write the archive to this file, which is replaced whole; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    to: PathBuf,

    /// Write the manifest to this file [default: the archive's name and .sha256sums; of an archive
    /// on standard output, its last entry MANIFEST.sha256]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,

    /// Put the manifest into the archive, as its last entry MANIFEST.sha256
    #[arg(long, conflicts_with = "manifest")]
    manifest_inside: bool,

    /// Go on after files that cannot be read, list them, and fail in the end
    #[arg(long)]
    keep_going: bool,

    /// Leave names of users and groups out: only numbers
    #[arg(long)]
    numeric_owner: bool,
}

/// What is shown.
#[derive(Serialize)]
struct Shown<'a> {
    reply: &'static str,
    path: &'a Path,
    archive: &'a Path,
    manifest: Option<&'a Path>,
    seconds: f64,
    volumes_left_out: &'a [String],
    #[serde(flatten)]
    summary: &'a Summary,
}

/// Runs it.
///
/// # Errors
/// When anything cannot be read or written, or on a signal. Neither the snapshot nor half a file is
/// left then.
pub fn run(invocation: &Invocation, args: &Args) -> Result<ExitCode, Fail> {
    let to_output = args.to == Path::new("-");
    refuse_output(invocation, to_output)?;
    let stop = system::stop_on_signals()?;
    let began = invocation.env.now();
    // before the snapshot, so that none is taken when there is no place for the archive
    let mut files = open(args)?;
    let source = Source::freeze(invocation, &args.path)?;
    let written = {
        let (bar, counters) = (Bar::new(invocation.format), Counters::default());
        let stopped = || {
            show_progress(&bar, &counters);
            stop.asked()
        };
        let written = write(invocation, args, &source, &mut files, (&counters, &stopped));
        bar.clear();
        written
    };
    let volumes = source.volumes_below(invocation);
    let released = source.release();
    let summary = written.map_err(|fail| match &released {
        Err(stays) => Fail::new(format!("{fail}; {stays}")).with_code(fail.code()),
        Ok(()) => fail,
    })?;
    let (archive, manifest) = files;
    let manifest = files::keep(archive, manifest)?;
    released?;
    let shown = Shown {
        reply: "exported",
        path: &args.path,
        archive: &args.to,
        manifest: manifest.as_deref(),
        seconds: (invocation.env.now() - began) as f64 / 1e9,
        volumes_left_out: &volumes,
        summary: &summary,
    };
    tell(invocation, &shown, to_output)?;
    Ok(if summary.unreadable > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// An archive is nothing for a terminal, and not for one stream with a reply.
fn refuse_output(invocation: &Invocation, to_output: bool) -> Result<(), Fail> {
    if to_output && io::stdout().is_terminal() {
        return Err(Fail::usage("an archive is not for a terminal: name a file with --to, or use a pipe"));
    }
    if to_output && invocation.format == Format::Json {
        return Err(Fail::usage("the archive and --json cannot both have standard output: use --to FILE"));
    }
    Ok(())
}

fn is_inside(args: &Args, archive: &Archive) -> bool {
    args.manifest_inside || (args.manifest.is_none() && !archive.is_replaced())
}

/// Where archive and manifest go.
fn open(args: &Args) -> Result<(Archive, Manifest), Fail> {
    let archive = Archive::new(&args.to)?;
    let manifest = match is_inside(args, &archive) {
        true => Manifest::without_name()?,
        false => Manifest::new(args.manifest.as_deref(), &args.to)?,
    };
    Ok((archive, manifest))
}

/// Writes archive and manifest. They have their names only when they are kept.
fn write(
    invocation: &Invocation,
    args: &Args,
    source: &Source,
    (archive, manifest): &mut (Archive, Manifest),
    (counters, stopped): (&Counters, &dyn Fn() -> bool),
) -> Result<Summary, Fail> {
    let root = Dir::open(source.path())
        .map_err(|e| Fail::new(format!("{}: cannot be opened: {}", args.path.display(), text(&e))))?;
    let inside = is_inside(args, archive);
    if inside && matches!(root.look(&c_name(INSIDE)), Ok(Some(_))) {
        return Err(Fail::new(format!(
            "the tree has a {INSIDE} of its own at its root: put the manifest elsewhere with --manifest FILE"
        )));
    }
    let named = !args.numeric_owner;
    let options = Options {
        keep_going: args.keep_going,
        manifest_inside: inside.then_some(INSIDE),
        user: &|uid| named.then(|| system::known_user_name(uid)).flatten(),
        group: &|gid| named.then(|| system::known_group_name(gid)).flatten(),
        counters,
    };
    let name = if archive.is_output() { "standard output".into() } else { args.to.display().to_string() };
    let output = Output::start(&invocation.env, archive.sink()?, name, stopped);
    match export::run(&root, output, manifest.file(), &options) {
        Ok(summary) => Ok(summary),
        Err(Error::Stopped) => Err(Fail::new("stopped before the end: no archive was written")),
        Err(Error::Failed(cause)) if args.keep_going => Err(Fail::new(cause)),
        Err(Error::Failed(cause)) => {
            Err(Fail::new(format!("{cause} (--keep-going writes what can be read)")))
        }
    }
}

fn c_name(name: &str) -> std::ffi::CString {
    std::ffi::CString::new(name).unwrap_or_default()
}

fn tell(invocation: &Invocation, shown: &Shown<'_>, to_output: bool) -> Result<(), Fail> {
    let summary = shown.summary;
    for trouble in summary.troubles.iter().take(TOLD_MAX) {
        output::note(&format!("lee: {}: cannot be read: {}", printable(&trouble.path), trouble.cause));
    }
    if !shown.volumes_left_out.is_empty() {
        let volumes: Vec<String> = shown.volumes_left_out.iter().map(|v| printable(v)).collect();
        output::note(&format!(
            "lee: volumes attached below are not in the archive, export each: {}",
            volumes.join(", ")
        ));
    }
    if to_output {
        output::note(report(shown).trim_end());
        return Ok(());
    }
    output::show(invocation.format, shown, || report(shown))
}

/// What was written, for a person: only what there is.
fn report(shown: &Shown<'_>) -> String {
    let summary = shown.summary;
    let mut text = format!(
        "wrote {} and {} with {} to an archive of {} in {:.1} s\n",
        size::counted(summary.files, "file", "files"),
        size::counted(summary.directories, "directory", "directories"),
        size::bytes(summary.content_bytes),
        size::bytes(summary.archive_bytes),
        shown.seconds
    );
    let lines = [
        (summary.sockets_left_out, "sockets left out, which archives cannot have"),
        (summary.mounts_left_out, "other file systems left out"),
        (summary.unreadable, "names that could not be read"),
    ];
    for (count, what) in lines.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{:>12}  {what}\n", size::count(count)));
    }
    text
}
