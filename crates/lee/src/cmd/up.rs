//! `lee up`: make a cell where there is none, serve it, mount it.

use super::Invocation;
use crate::background::{self, ParentPipe, Role};
use crate::control::Running;
use crate::control::client::{Client, Unreached};
use crate::doors::Wanted;
use crate::fail::Fail;
use crate::keeper::{Kept, Restart};
use crate::locate::{self, CellDir};
use crate::metrics::http;
use crate::mount_options::{self, MountWord};
use crate::output::{self, Format};
use crate::serve::{self, KeptBy, ServeOptions, Started, Startup};
use crate::{logging, mounts, notify, size, when};
use leeward_door::listen;
use leeward_env::{Env, Nanos};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server that does not answer may take to be gone, nanoseconds.
const SERVING_WAIT: Nanos = 1_000_000_000;
const SERVING_STEP: Duration = Duration::from_millis(50);

/// Serve a cell and mount it; make it where there is none
///
/// It stays in the foreground until Ctrl-C, SIGTERM, `lee down` or an unmount, and then makes
/// everything durable. Ordinary users can run it, too, where fusermount3 is installed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The cell: a directory (of a cell, an empty one, or one to be made), or s3://BUCKET/PREFIX
    ///
    /// For a bucket, AWS_ENDPOINT_URL names the object store. Region and keys come from the usual
    /// AWS variables and profiles. A cell in a bucket that another machine serves is taken over.
    #[arg(value_name = "CELL")]
    dir: Option<PathBuf>,

    /// Where to mount it: an empty directory [default: DIR/mnt, or for a bucket one below /run,
    /// which is made]
    #[arg(long, value_name = "PATH")]
    mount: Option<PathBuf>,

    /// Mount options, as for mount(8), with commas between them: ro, nosuid, nodev, noexec,
    /// subdir=PATH, allow_other, io_uring, no_io_uring
    ///
    /// subdir=PATH shows only that directory of the cell (root only); allow_other lets all users of
    /// the machine use the mount, which is so anyway where it can be, and fails where it cannot.
    /// They hold for the mount, not for the doors. Requests come by io_uring where the kernel has
    /// it, which root turns on for the machine; no_io_uring takes them from /dev/fuse, and with
    /// io_uring lee up fails where that cannot be had.
    #[arg(short = 'o', long = "options", value_name = "OPTIONS", value_delimiter = ',', value_parser = mount_options::parse)]
    options: Vec<MountWord>,

    /// Answer Prometheus there: a port of this machine only (9547), or 127.0.0.1:9547, or
    /// [::1]:9547; may be given several times [else: `metrics` in the settings]
    ///
    /// The page has names of volumes and numbers of users, and is open to all who reach the
    /// address.
    #[arg(long, value_name = "ADDRESS", value_parser = http::parse)]
    metrics: Vec<SocketAddr>,

    /// Answer S3 there: a port of this machine only (9000), an address with a port, or *:PORT; may
    /// be given several times [else: `s3` in the settings]
    ///
    /// What is published: lee bucket; who gets in: lee key. Without a certificate only on addresses
    /// of this machine.
    #[arg(long, value_name = "ADDRESS", value_parser = door_address)]
    s3: Vec<String>,

    /// Answer HTTP and WebDAV there: written as for --s3; may be given several times [else: `http`
    /// in the settings]
    #[arg(long, value_name = "ADDRESS", value_parser = door_address)]
    http: Vec<String>,

    /// The certificate that doors show, in PEM format, with those that sign it; read again when it
    /// changes [else: `tls-certificate` in the settings]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// Its key, in PEM format [else: `tls-key` in the settings]
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Keep what is read from object stores in this directory of a local disk; it may be deleted at
    /// any time [else: `disk-cache` in the settings]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,

    /// Its size, such as 50G [else: `disk-cache-mib` in the settings, 10 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_space)]
    cache_size: Option<u64>,

    /// Return as soon as it is mounted; the log is DIR/log, `lee status` of a cell in a bucket
    /// tells where
    ///
    /// A small process, the keeper, stays beside the server. When the server crashes, the keeper
    /// starts it again at once, and the mount is back. `lee down` ends both.
    #[arg(long)]
    background: bool,

    /// With --background: without a keeper; a server that crashed stays away, with a dead mount
    #[arg(long, requires = "background")]
    no_keeper: bool,
}

impl Args {
    /// The command line of the process in the background. Its paths are absolute, because that
    /// process has another current directory.
    fn command_line(&self, dir: &Path) -> Vec<OsString> {
        let path = |file: &PathBuf| absolute(file).into_os_string();
        let mut line = vec!["up".into(), absolute(dir).into_os_string()];
        let mut add = |name: &str, value: OsString| line.extend([name.into(), value]);
        self.mount.iter().for_each(|at| add("--mount", path(at)));
        self.options.iter().for_each(|word| add("--options", word.to_string().into()));
        self.metrics.iter().for_each(|address| add("--metrics", address.to_string().into()));
        self.s3.iter().for_each(|address| add("--s3", address.into()));
        self.http.iter().for_each(|address| add("--http", address.into()));
        self.tls_certificate.iter().for_each(|file| add("--tls-certificate", path(file)));
        self.tls_key.iter().for_each(|file| add("--tls-key", path(file)));
        self.cache.iter().for_each(|dir| add("--cache", path(dir)));
        self.cache_size.iter().for_each(|bytes| add("--cache-size", bytes.to_string().into()));
        line.push("--background".into());
        line
    }

    fn role(&self) -> Role {
        if self.no_keeper { Role::Server } else { Role::Keeper }
    }
}

/// The path, absolute; a URL as it is.
fn absolute(path: &Path) -> PathBuf {
    let is_url = path.to_string_lossy().contains("://");
    std::path::absolute(path).ok().filter(|_| !is_url).unwrap_or_else(|| path.to_path_buf())
}

/// Runs it.
///
/// # Errors
/// Why the cell could not be served, or not be ended cleanly.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    let dir = invocation.directory(args.dir.clone())?;
    if let Some(mut parent) = ParentPipe::if_child()? {
        let options = serve_options(dir, args, background::kept_by());
        return serve::serve(&invocation.env, &options, &mut parent).inspect_err(|fail| parent.failed(fail));
    }
    let met = meet_keeper(&invocation.env, &dir)?;
    if !args.background {
        logging::start();
        let options = serve_options(dir, args, None);
        return serve::serve(&invocation.env, &options, &mut Terminal { format: invocation.format });
    }
    if let Some((running, restart)) =
        met.filter(|(running, _)| is_same_mount(args.mount.as_deref(), running, &dir))
    {
        return announce_again(invocation.format, &dir, running, &restart);
    }
    locate::make_state_absolute();
    let started = background::start(&dir, &args.command_line(&dir), args.role())?;
    announce(invocation.format, &started, &format!("ends it: lee down {}", started.cell.display()))
}

fn serve_options(dir: PathBuf, args: Args, kept: Option<KeptBy>) -> ServeOptions {
    // the server has another directory later on
    let absolute = |file: Option<PathBuf>| file.map(|file| absolute(&file));
    let (certificate, key) = (absolute(args.tls_certificate), absolute(args.tls_key));
    ServeOptions {
        dir,
        mount: args.mount,
        mount_options: args.options,
        metrics: args.metrics,
        doors: Wanted { s3: args.s3, http: args.http, certificate, key, clients: None },
        cache: args.cache,
        cache_bytes: args.cache_size,
        kept,
    }
}

/// Looks for a keeper of the cell. One whose server does not serve is asked to stand aside: this
/// process serves the cell then. A server that was brought back is returned, with the last time.
///
/// # Errors
/// When the keeper does not end.
fn meet_keeper(env: &Env, dir: &Path) -> Result<Option<(Running, Restart)>, Fail> {
    let Ok(cell) = locate::called(dir.as_os_str(), "") else { return Ok(None) };
    let end = env.now() + SERVING_WAIT;
    while env.now() < end {
        let Some(kept) = Kept::find(env, &cell) else { return Ok(None) };
        match Client::connect(&cell).map(Client::status) {
            Ok(Ok(running)) => return Ok(brought_back(env, &cell, running)),
            Err(Unreached::Failed(_)) => return Ok(None),
            Err(Unreached::Silent) if kept.lacks_server(env, &cell) => return kept.end(&cell).map(|()| None),
            // it may have been killed just now
            Ok(Err(_)) | Err(Unreached::Silent) => env.sleep(SERVING_STEP),
        }
    }
    Ok(None)
}

/// A server that a keeper has started again, and the last time; `None` if it was not, or is ending.
fn brought_back(env: &Env, cell: &CellDir, running: Running) -> Option<(Running, Restart)> {
    let is_mounted = mounts::all().iter().any(|mount| mount.cell == cell.path());
    let last = Kept::find(env, cell).and_then(|kept| kept.record.last_restart);
    last.filter(|_| is_mounted).map(|restart| (running, restart))
}

fn is_same_mount(wanted: Option<&Path>, running: &Running, dir: &Path) -> bool {
    match wanted {
        Some(at) => mounts::without_links(at).is_ok_and(|at| at == running.mount),
        None => locate::called(dir.as_os_str(), "").is_ok_and(|cell| cell.mount_point() == running.mount),
    }
}

/// An address of a door, as it was written.
fn door_address(text: &str) -> Result<String, String> {
    listen::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

/// Somebody watches.
struct Terminal {
    format: Format,
}

impl Startup for Terminal {
    fn locked(&mut self, _cell: &CellDir) -> Result<(), Fail> {
        Ok(())
    }

    fn started(&mut self, started: &Started) -> Result<(), Fail> {
        notify::ready();
        // Output that cannot be written is no reason to end what is mounted and works.
        let told = announce(self.format, started, "Ctrl-C ends it; so does lee down");
        told.or_else(|fail| {
            output::note(&format!("lee: {fail}"));
            Ok(())
        })
    }
}

/// A keeper has brought the server back before this command could start one.
fn announce_again(format: Format, dir: &Path, running: Running, restart: &Restart) -> Result<(), Fail> {
    let cell = locate::called(dir.as_os_str(), "")?;
    let Running { mount, metrics, doors, pid, .. } = running;
    let cell = cell.name();
    let started =
        Started { cell, mount, metrics, doors, pid, created: false, stale: Vec::new(), took_over: None };
    output::show(format, &started, || {
        let (cell, at) = (started.cell.display(), started.mount.display());
        let (when, cause) = (when::utc(restart.at), &restart.cause);
        format!("{cell} is served already (brought back {when}: {cause}); it is mounted at {at}")
    })
}

fn announce(format: Format, started: &Started, end: &str) -> Result<(), Fail> {
    output::show(format, started, || {
        let mut text = String::new();
        for at in &started.stale {
            text.push_str(&format!("took away the dead mount {} that a killed process left\n", at.display()));
        }
        if let Some(holder) = &started.took_over {
            text.push_str(&format!("took the cell over from {holder}\n"));
        }
        let (cell, at) = (started.cell.display(), started.mount.display());
        let made = if started.created { "made the cell" } else { "opened the cell" };
        text.push_str(&format!("{made} {cell}; it is mounted at {at}\n"));
        for url in &started.metrics {
            text.push_str(&format!("metrics are at {url}\n"));
        }
        for (door, url) in &started.doors {
            text.push_str(&format!("the {door} door is at {url}\n"));
        }
        text.push_str("what to try next:\n");
        text.push_str(&format!("  cd {at}\n"));
        text.push_str(&format!("  lee volume create home --cell {cell}\n"));
        text.push_str(&format!("  lee df --cell {cell}\n"));
        text.push_str(&format!("{end}\n"));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use crate::cmd::Command;
    use clap::Parser;

    fn parsed(line: &[OsString]) -> Args {
        let cli = Cli::try_parse_from([OsString::from("lee")].iter().chain(line)).expect("a command line");
        match cli.command {
            Command::Up(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_process_in_the_background_gets_the_same_options() {
        let line = "up cell --mount /m -o ro,subdir=/a --metrics 9547 --metrics [::1]:1 --s3 9000 --s3 *:9001 \
            --http 8080 --tls-certificate /c --tls-key /k --cache /cache --cache-size 50G --background --json";
        let up = crate::args::command().find_subcommand("up").cloned().expect("it is there");
        for name in up.get_arguments().filter_map(|argument| argument.get_long()) {
            let is_passed_on = !["no-keeper", "help"].contains(&name);
            let is_tried = line.contains(&format!("--{name} ")) || name == "options";
            assert!(
                is_tried || !is_passed_on,
                "--{name}: put it into the line above, and into `command_line`"
            );
        }
        let line: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let args = parsed(&line);
        let again = parsed(&args.command_line(Path::new("/cell")));
        assert_eq!(again.dir.as_deref(), Some(Path::new("/cell")));
        let mut args = args;
        args.dir.clone_from(&again.dir);
        assert_eq!(format!("{args:?}"), format!("{again:?}"));
        assert_eq!(
            parsed(&again.command_line(Path::new("s3://b/p"))).dir.as_deref(),
            Some(Path::new("s3://b/p"))
        );
        assert!(absolute(Path::new("x")).is_absolute());
    }
}
