//! `lee restart`: the server of a cell in the background ends in order, and this program serves the
//! cell in its place.

use super::Invocation;
use crate::control::Running;
use crate::control::client::Client;
use crate::fail::{Fail, text};
use crate::keeper::Kept;
use crate::locate::CellDir;
use crate::output;
use leeward_env::{Env, Nanos};
use leeward_volume::FORMAT;
use serde_json::json;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

/// A server opens its cell within this time, also after much was written.
const BACK_WAIT: Nanos = 120_000_000_000;
const BACK_STEP: Duration = Duration::from_millis(5);
/// A keeper takes a request within this time.
const TAKEN_WAIT: Nanos = 10_000_000_000;
/// Without a keeper for so long, nobody starts a server.
const GONE_WAIT: Nanos = 3_000_000_000;

/// Serve a cell with this version of lee
///
/// For an upgrade, and for settings that count from the next start: the server ends in order, as by
/// lee down, and the program that runs this command serves the cell in its place, with the options
/// of the lee up before. The cell must be served by lee up --background. The path is away for a
/// moment, which this command tells, and open files end. Exit code 1 when something could not be
/// stored, or the server does not start.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the cell, or where it is mounted
    dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// When nothing serves the cell, or the server does not end or not start.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let cell = invocation.cell_or(args.dir.as_deref())?.here()?;
    let env = &invocation.env;
    let kept = kept(env, &cell)?;
    if kept.lacks_server(env, &cell) {
        return serve_a_crashed_cell(invocation, &cell, &kept);
    }
    // it may have crashed just now
    let before = wait_for(env, &cell, None)?;
    let away_since = Cell::new(env.now());
    if before.format > FORMAT {
        return Err(Fail::new(format!(
            "{cell} has format {}, this lee knows up to {FORMAT}: use a newer lee",
            before.format
        )));
    }
    let client = Client::connect(&cell).map_err(|_| not_served(&cell))?;
    ask(&cell, &kept)?;
    let ended = client.down(&mut |stage| {
        if stage.starts_with("unmounting") {
            away_since.set(env.now());
        }
    });
    if ended.is_err() && is_served_by(&cell, before.pid) {
        let _ = kept.signal(libc::SIGUSR2); // its end is none for the keeper to repair
        return ended.map(drop);
    }
    let running = wait_for(env, &cell, Some(before.pid))?;
    let pause_ms = (env.now() - away_since.get()) / 1_000_000;
    if !ended? {
        return Err(Fail::new(format!(
            "{cell} is served again, but the server before ended without saying that everything is durable: see {}",
            cell.log().display()
        )));
    }
    check_program(&cell, &running)?;
    show(invocation, &cell, (&before, &running), pause_ms)
}

/// The server has crashed, and its keeper waits or tries in vain: it goes on as this program.
fn serve_a_crashed_cell(invocation: &Invocation, cell: &CellDir, kept: &Kept) -> Result<(), Fail> {
    let (env, begun) = (&invocation.env, invocation.env.now());
    ask(cell, kept)?;
    let is_as_before = || Kept::find(env, cell).is_some_and(|now| now.record.waiting == kept.record.waiting);
    while is_as_before() && env.now() - begun < TAKEN_WAIT {
        env.sleep(BACK_STEP);
    }
    let running = wait_for(env, cell, None)?;
    check_program(cell, &running)?;
    show(invocation, cell, (&running, &running), (env.now() - begun) / 1_000_000)
}

/// Has the keeper go on as this program when its server ends.
fn ask(cell: &CellDir, kept: &Kept) -> Result<(), Fail> {
    kept.signal(libc::SIGUSR1).map_err(|e| Fail::new(format!("{cell}: its keeper: {}", text(&e))))
}

/// Whether the server runs this program, as far as that can be known.
fn check_program(cell: &CellDir, running: &Running) -> Result<(), Fail> {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    match (of(&running.pid.to_string()), of("self")) {
        (Some(theirs), Some(ours)) if theirs != ours => Err(Fail::new(format!(
            "{cell} is served again, but by {}: its keeper could not start this program, see {}",
            theirs.display(),
            cell.log().display()
        ))),
        _ => Ok(()),
    }
}

fn show(
    invocation: &Invocation,
    cell: &CellDir,
    (before, now): (&Running, &Running),
    pause_ms: u64,
) -> Result<(), Fail> {
    let value = json!({
        "cell": cell.name(),
        "mount": now.mount,
        "pid": now.pid,
        "version": now.version,
        "version_before": before.version,
        "pause_ms": pause_ms,
    });
    output::show(invocation.format, &value, || {
        let (version, pid) = (&now.version, now.pid);
        let at = now.mount.as_ref().map_or_else(|| "it".into(), |at| at.display().to_string());
        format!("{cell} is served by lee {version}, process {pid}; {at} was away for {pause_ms} ms at most")
    })
}

fn kept(env: &Env, cell: &CellDir) -> Result<Kept, Fail> {
    Kept::find(env, cell).ok_or_else(|| {
        Fail::new(format!(
            "{cell} has no keeper that could start it again: use `lee down` and `lee up --background`; for a service, systemctl restart"
        ))
    })
}

fn not_served(cell: &CellDir) -> Fail {
    Fail::new(format!("{cell}: no server answers: see `lee status {cell}`"))
}

fn is_served_by(cell: &CellDir, pid: u32) -> bool {
    Client::connect(cell).is_ok_and(|client| client.status().is_ok_and(|running| running.pid == pid))
}

/// Waits for a server, another one than `before`.
fn wait_for(env: &Env, cell: &CellDir, before: Option<u32>) -> Result<Running, Fail> {
    let end = env.now() + BACK_WAIT;
    let mut kept_at = env.now();
    while env.now() < end && env.now() - kept_at < GONE_WAIT {
        if let Some(running) = Client::connect(cell).ok().and_then(|client| client.status().ok())
            && Some(running.pid) != before
        {
            return Ok(running);
        }
        let Some(kept) = Kept::find(env, cell) else {
            env.sleep(BACK_STEP);
            continue;
        };
        kept_at = env.now();
        if let Some(waiting) = kept.record.waiting.filter(|waiting| waiting.failed > 0) {
            let cause = waiting.cause;
            return Err(Fail::new(format!(
                "{cell}: its server does not start, its keeper goes on trying: {cause}"
            )));
        }
        env.sleep(BACK_STEP);
    }
    Err(not_served(cell))
}
