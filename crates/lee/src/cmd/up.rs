//! `lee up`: make a cell where there is none, serve it, mount it.

use super::Invocation;
use super::service::{Service, absolute};
use crate::background::{self, ParentPipe};
use crate::control::Running;
use crate::control::client::{Client, Unreached};
use crate::fail::Fail;
use crate::keeper::{Kept, Restart};
use crate::locate::{self, CellDir};
use crate::mount_options::{self, MountWord};
use crate::output::{self, Format};
use crate::serve::{self, KeptBy, ServeOptions, Started, Startup};
use crate::{logging, mounts, notify, when};
use leeward_env::{Env, Nanos};
use std::ffi::OsString;
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
    #[command(flatten)]
    service: Service,

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
}

impl Args {
    /// The command line of the process in the background.
    fn command_line(&self, dir: &Path) -> Vec<OsString> {
        let mut line = vec!["up".into(), absolute(dir).into_os_string()];
        self.mount.iter().for_each(|at| line.extend(["--mount".into(), absolute(at).into_os_string()]));
        self.options.iter().for_each(|word| line.extend(["--options".into(), word.to_string().into()]));
        line.extend(self.service.command_line());
        line
    }

    fn options(self, dir: PathBuf, kept: Option<KeptBy>) -> ServeOptions {
        let service = self.service.options(dir, kept);
        ServeOptions { is_mounted: true, mount: self.mount, mount_options: self.options, ..service }
    }
}

/// Runs it.
///
/// # Errors
/// Why the cell could not be served, or not be ended cleanly.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    let dir = invocation.directory(args.service.dir.clone())?;
    if let Some(mut parent) = ParentPipe::if_child()? {
        let options = args.options(dir, background::kept_by());
        return serve::serve(&invocation.env, &options, &mut parent).inspect_err(|fail| parent.failed(fail));
    }
    if !args.service.background {
        meet_keeper(&invocation.env, &dir)?;
        logging::start();
        let options = args.options(dir, None);
        return serve::serve(&invocation.env, &options, &mut Terminal { format: invocation.format });
    }
    match start(&invocation.env, &dir, &args)? {
        Up::Again(running, restart) => announce_again(invocation.format, &dir, *running, &restart),
        Up::Now(started) => {
            announce(invocation.format, &started, &format!("ends it: lee down {}", started.cell.display()))
        }
    }
}

/// Serves the cell in a directory and mounts it, in the background.
///
/// # Errors
/// Why the cell could not be served.
pub fn in_background(env: &Env, args: Args) -> Result<(), Fail> {
    let dir = args.service.dir.clone().ok_or_else(|| Fail::usage("name the directory of a cell"))?;
    start(env, &dir, &args).map(drop)
}

/// A server in the background.
enum Up {
    /// It was started.
    Now(Started),
    /// A keeper had brought it back before this command could start one.
    Again(Box<Running>, Restart),
}

fn start(env: &Env, dir: &Path, args: &Args) -> Result<Up, Fail> {
    let met = meet_keeper(env, dir)?;
    if let Some((running, restart)) =
        met.filter(|(running, _)| is_same_mount(args.mount.as_deref(), running, dir))
    {
        return Ok(Up::Again(Box::new(running), restart));
    }
    locate::make_state_absolute();
    background::start(dir, &args.command_line(dir), args.service.role()).map(Up::Now)
}

/// Looks for a keeper of the cell. One whose server does not serve is asked to stand aside: this
/// process serves the cell then. A server that was brought back is returned, with the last time.
///
/// # Errors
/// When the keeper does not end.
pub(super) fn meet_keeper(env: &Env, dir: &Path) -> Result<Option<(Running, Restart)>, Fail> {
    let Ok(cell) = locate::called(dir.as_os_str(), "") else { return Ok(None) };
    let end = env.now() + SERVING_WAIT;
    while env.now() < end {
        let Some(kept) = Kept::find(env, &cell) else { return Ok(None) };
        match Client::connect(&cell).map(Client::status) {
            // the keeper has yet to note that it has started it
            Ok(Ok(running)) if kept.record.server != Some(running.pid) => env.sleep(SERVING_STEP),
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
        Some(at) => mounts::without_links(at).is_ok_and(|at| Some(at) == running.mount),
        None => {
            locate::called(dir.as_os_str(), "").is_ok_and(|cell| Some(cell.mount_point()) == running.mount)
        }
    }
}

/// Somebody watches.
pub(super) struct Terminal {
    pub(super) format: Format,
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

fn announce_again(format: Format, dir: &Path, running: Running, restart: &Restart) -> Result<(), Fail> {
    let cell = locate::called(dir.as_os_str(), "")?;
    let Running { mount, listen, metrics, doors, pid, .. } = running;
    let (cell, stale) = (cell.name(), Vec::new());
    let started = Started {
        cell,
        mount,
        listen,
        metrics,
        doors,
        pid,
        created: false,
        stale,
        took_over: None,
        served_by: None,
    };
    output::show(format, &started, || {
        let (when, cause) = (when::utc(restart.at), &restart.cause);
        let cell = started.cell.display();
        format!("{cell} is served already (brought back {when}: {cause}){}", where_mounted(&started))
    })
}

/// Ends the line that names the cell.
fn where_mounted(started: &Started) -> String {
    let at = started.mount.as_ref();
    at.map_or_else(String::new, |at| format!("; it is mounted at {}", at.display()))
}

pub(super) fn announce(format: Format, started: &Started, end: &str) -> Result<(), Fail> {
    output::show(format, started, || {
        let mut text = String::new();
        for at in &started.stale {
            text.push_str(&format!("took away the dead mount {} that a killed process left\n", at.display()));
        }
        if let Some(holder) = &started.took_over {
            text.push_str(&format!("took the cell over from {holder}\n"));
        }
        let cell = started.cell.display();
        if let Some(host) = &started.served_by {
            text.push_str(&format!("stands by for {cell}, which {host} serves\n"));
            started
                .listen
                .iter()
                .for_each(|address| text.push_str(&format!("clients are told so at {address}\n")));
            text.push_str(&format!("what to try next:\n  lee server list --cell {cell}\n{end}\n"));
            return text;
        }
        let made = if started.created { "made the cell" } else { "opened the cell" };
        text.push_str(&format!("{made} {cell}{}\n", where_mounted(started)));
        for address in &started.listen {
            text.push_str(&format!("other machines reach it at {address}\n"));
        }
        for url in &started.metrics {
            text.push_str(&format!("metrics are at {url}\n"));
        }
        for (door, url) in &started.doors {
            text.push_str(&format!("the {door} door is at {url}\n"));
        }
        text.push_str("what to try next:\n");
        if let Some(at) = &started.mount {
            text.push_str(&format!("  cd {}\n", at.display()));
        }
        text.push_str(&format!("  lee volume create home --cell {cell}\n"));
        if !started.listen.is_empty() {
            text.push_str(&format!("  lee host add NAME --cell {cell}\n"));
        }
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
            --http 8080 --listen *:7433 --tls-certificate /c --tls-key /k --cache /cache --cache-size 50G --background --json";
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
        assert_eq!(again.service.dir.as_deref(), Some(Path::new("/cell")));
        let mut args = args;
        args.service.dir.clone_from(&again.service.dir);
        assert_eq!(format!("{args:?}"), format!("{again:?}"));
        assert_eq!(
            parsed(&again.command_line(Path::new("s3://b/p"))).service.dir.as_deref(),
            Some(Path::new("s3://b/p"))
        );
        assert!(absolute(Path::new("x")).is_absolute());
    }
}
