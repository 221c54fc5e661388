//! `lee down`: ask the process that serves a cell to end, and wait until it is gone.

use super::Invocation;
use crate::control::client::{Client, Unreached};
use crate::fail::{Fail, text};
use crate::keeper::Kept;
use crate::locate::{self, CellDir, RemoteMount};
use crate::lock::{self, Holder};
use crate::system::Process;
use crate::{mounts, output};
use leeward_env::Env;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// A process that reported its end has only to exit.
const EXIT_WAIT: Duration = Duration::from_secs(30);
/// How long a server that does not listen may take to be gone, in steps.
const REACH_TRIES: u32 = 20;
const REACH_STEP: Duration = Duration::from_millis(50);
/// A keeper whose server has ended has only to exit.
const KEEPER_WAIT: Duration = Duration::from_secs(2);

/// End the process that serves a cell
///
/// The process unmounts and makes everything durable. This command returns when it is gone, and so
/// is the keeper that would start it again. Exit code 1, with the reason, when something could not
/// be stored.
///
/// A mount from another machine (lee mount) is unmounted, and its process ends. The cell goes on.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the cell, or where it is mounted
    dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// When nothing runs, it does not end, or it has not stored everything.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let cell = invocation.cell_or(args.dir.as_deref())?;
    if let Some(mount) = cell.remote() {
        return end_mount(invocation, &cell, mount);
    }
    let (client, kept) = match reach(&invocation.env, &cell)? {
        (Some(client), kept) => (client, kept),
        (None, Some(kept)) => return end_keeper(invocation, &cell, &kept),
        (None, None) => return Err(not_reached(invocation, &cell)),
    };
    let holder = lock::holder(&invocation.env, &cell)?.flatten();
    // Held before it is asked to end, so that the number cannot come to mean another process.
    let process = holder.as_ref().filter(|h| h.is_here()).and_then(|h| Process::open(h.pid));
    let ended = client.down(&mut |stage| tracing::debug!("{stage}"));
    if process.is_some_and(|p| !p.ended_within(EXIT_WAIT)) {
        return Err(Fail::new(format!(
            "{cell}: the process that serves it was asked to end and is still there: see {}",
            cell.log().display()
        )));
    }
    // It follows its server, unless that crashed on the way: then the keeper starts another.
    if let Some(kept) = kept.filter(|kept| !kept.ended_within(KEEPER_WAIT)) {
        kept.end(&cell)?;
    }
    if !ended? {
        return Err(Fail::new(format!(
            "{cell}: the process that served it ended without saying that everything is durable: see {} (one of an older lee never \
             says so)",
            cell.log().display()
        )));
    }
    let pid = holder.map(|h| h.pid);
    output::show(invocation.format, &json!({"cell": cell.name(), "ended": true, "pid": pid}), || {
        format!("{cell} is down; everything is durable")
    })
}

/// Ends the process of a mount from another machine, its keeper, and the mount.
fn end_mount(invocation: &Invocation, cell: &CellDir, mount: &RemoteMount) -> Result<(), Fail> {
    let at = mount.at.display();
    // The mount point as the keeper knows it, where this is a bind mount of it. Who may not end the
    // process may not see its keeper.
    let state = locate::mount_state(&mount.at).ok();
    let kept = state.as_ref().and_then(|state| Kept::find(&invocation.env, state));
    let pid = match (Client::connect(cell), Client::connect(cell)) {
        (Ok(asked), Ok(ended)) => {
            let pid = asked.mount()?.pid;
            let process = Process::open(pid);
            ended.end_mount()?;
            if process.is_some_and(|p| !p.ended_within(EXIT_WAIT)) {
                return Err(Fail::new(format!(
                    "{at}: its process, {pid}, was asked to end and is still there"
                )));
            }
            Some(pid)
        }
        (Err(Unreached::Failed(fail)), _) | (_, Err(Unreached::Failed(fail))) => return Err(fail),
        _ => None,
    };
    if let (Some(kept), Some(state)) = (kept, &state)
        && !kept.ended_within(if pid.is_some() { KEEPER_WAIT } else { Duration::ZERO })
    {
        kept.end(state)?;
    }
    if mounts::all().iter().any(|m| m.at == mount.at && m.cell == cell.path()) {
        mounts::detach(&mount.at).map_err(|e| Fail::new(format!("{at}: {}", text(&e))))?;
    }
    let value = json!({"mount": mount.at, "server": cell.name(), "ended": true, "pid": pid});
    output::show(invocation.format, &value, || format!("{at} is unmounted"))
}

/// The server; or else the keeper of one that has crashed.
fn reach(env: &Env, cell: &CellDir) -> Result<(Option<Client>, Option<Kept>), Fail> {
    for _ in 0..REACH_TRIES {
        let kept = Kept::find(env, cell);
        match Client::connect(cell) {
            Ok(client) => return Ok((Some(client), kept)),
            Err(Unreached::Failed(fail)) => return Err(fail),
            Err(Unreached::Silent) => (),
        }
        let is_there = match &kept {
            Some(kept) => !kept.lacks_server(env, cell),
            None => lock::holder(env, cell)?.is_some_and(|h| h.is_none_or(|h| h.is_here())),
        };
        if !is_there {
            return Ok((None, kept));
        }
        env.sleep(REACH_STEP); // it may have been killed just now, or be about to listen
    }
    Ok((None, None))
}

/// No server is there to be asked: ends the keeper, and a server that it is just starting.
fn end_keeper(invocation: &Invocation, cell: &CellDir, kept: &Kept) -> Result<(), Fail> {
    kept.end(cell)?;
    let pid = kept.record.pid;
    let value = json!({"cell": cell.name(), "ended": true, "pid": null, "kept_by": pid});
    output::show(invocation.format, &value, || {
        format!(
            "{cell} is down: its server had crashed, and its keeper (process {pid}) does not start it again; what the \
             server had not stored yet is lost"
        )
    })
}

fn not_reached(invocation: &Invocation, cell: &CellDir) -> Fail {
    match lock::holder(&invocation.env, cell) {
        Err(fail) => fail,
        Ok(None) => match mounts::alive_of(&invocation.env, cell.path()) {
            Some(at) => Fail::new(mounts::moved(&cell.to_string(), &at)),
            None => Fail::new(format!(
                "{cell}: nothing to end, no process serves it: start one with `lee up {cell}`"
            )),
        },
        Ok(Some(holder)) => Fail::new(how_to_end(cell, holder.as_ref())),
    }
}

/// The next step when the process cannot be reached.
fn how_to_end(cell: &CellDir, holder: Option<&Holder>) -> String {
    match holder {
        Some(h) if h.command != "up" => format!("{cell} is in use by {h}: it ends by itself"),
        Some(h) if !h.is_here() => format!("{cell} is in use by {h}: run `lee down {cell}` there"),
        Some(h) => format!(
            "{cell} is in use by {h}, which does not listen (is it just starting or ending?): try again, or `kill {}`",
            h.pid
        ),
        None => {
            format!("{cell} is in use by a process that does not listen: find it with `fuser {cell}/lock`")
        }
    }
}
