//! `lee status`: what serves a cell. Exit code 0 when something does, 3 when not.

use super::Invocation;
use crate::control::client::{Client, Unreached};
use crate::control::{Running, ServerState};
use crate::fail::Fail;
use crate::keeper::{Kept, Record};
use crate::locate::{CellDir, RemoteMount};
use crate::lock::{self, Holder};
use crate::summary::alarms::alarms;
use crate::{mounts, output, size, when};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const NOT_RUNNING: u8 = 3;
/// What becomes of open files when the server is restarted or killed: in its own mount, and in one
/// that reaches it as other machines do.
const ENDS_FILES: &str = "open files must be opened again (lee serve and lee mount keep them open)";
const KEEPS_FILES: &str = "open files stay open when the server is restarted";

/// Show what serves a cell
///
/// Exit code 0 when something does, 3 when nothing runs. Of a mount from another machine it shows
/// the server, and whether that answers.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the cell, or where it is mounted
    dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// When it cannot be found out.
pub fn run(invocation: &Invocation, args: &Args) -> Result<ExitCode, Fail> {
    let cell = invocation.cell_or(args.dir.as_deref())?;
    if let Some(mount) = cell.remote() {
        return show_mount(invocation, &cell, mount);
    }
    let kept = Kept::find(&invocation.env, &cell).map(|kept| kept.record);
    match Client::connect(&cell) {
        Ok(client) => show_running(invocation, &cell, (&client.status()?, kept.as_ref())),
        Err(Unreached::Failed(fail)) => Err(fail),
        Err(Unreached::Silent) => match lock::holder(&invocation.env, &cell)? {
            held if is_restarting(kept.as_ref(), held.is_some()) => {
                show_restarting(invocation, &cell, &kept.unwrap_or_default())
            }
            Some(holder) => show_held(invocation, &cell, holder.as_ref()),
            None => match mounts::alive_of(&invocation.env, cell.path()) {
                Some(at) => show_moved(invocation, &cell, &at),
                None => show_nothing(invocation, &cell),
            },
        },
    }
}

/// A mount from another machine.
fn show_mount(invocation: &Invocation, cell: &CellDir, mount: &RemoteMount) -> Result<ExitCode, Fail> {
    let (at, server) = (mount.at.display(), cell.path().display());
    let state = match Client::connect(cell) {
        Ok(client) => client.mount()?,
        Err(Unreached::Failed(fail)) => return Err(fail),
        Err(Unreached::Silent) => {
            let value = json!({"server": cell.path(), "mount": mount.at, "running": false, "state": "dead"});
            output::show(invocation.format, &value, || {
                format!("{at} is mounted from {server}, and its process does not listen")
            })?;
            return Ok(ExitCode::from(NOT_RUNNING));
        }
    };
    let running = match (&state.away, Client::connect(cell)) {
        (None, Ok(client)) => Some(client.status()?),
        _ => None,
    };
    let value = json!({
        "server": state.server,
        "host": state.host,
        "mount": mount.at,
        "running": true,
        "state": if running.is_some() { "mounted" } else { "away" },
        "pid": state.pid,
        "away_secs": state.away.as_ref().map(|(seconds, _)| seconds),
        "away": state.away.as_ref().map(|(_, why)| why),
        "served_by": running.as_ref().map(|running| &running.host),
        "since": running.as_ref().map(|running| running.since),
        "version": running.as_ref().map(|running| &running.version),
        "volumes": running.as_ref().map(|running| running.volumes),
    });
    output::show(invocation.format, &value, || {
        let mut lines = vec![
            ("mounted at", at.to_string()),
            ("from", state.server.clone()),
            ("as host", state.host.clone()),
            ("process", state.pid.to_string()),
            ("restarts", KEEPS_FILES.to_string()),
        ];
        match (&running, &state.away) {
            (Some(running), _) => {
                let since = when::utc(running.since);
                lines
                    .push(("served by", format!("{}, lee {}, since {since}", running.host, running.version)));
            }
            (None, Some((seconds, why))) => {
                let long = when::ago(*seconds as i64);
                lines.push(("ALARM", format!("the server has not answered for {long} ({why})")));
            }
            (None, None) => (),
        }
        lines.into_iter().map(|(name, value)| format!("{name:<11} {value}\n")).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn show_running(
    invocation: &Invocation,
    cell: &CellDir,
    (running, kept): (&Running, Option<&Record>),
) -> Result<ExitCode, Fail> {
    let mut value = json!({
        "cell": cell.name(),
        "running": true,
        "state": "serving",
        "pid": running.pid,
        "host": running.host,
        "since": running.since,
        "mount": running.mount,
        "listen": running.listen,
        "sessions": running.sessions,
        "channel": running.channel,
        "metrics": running.metrics,
        "doors": running.doors.iter().map(|(door, url)| json!({"door": door, "url": url})).collect::<Vec<_>>(),
        "door_connections": running.door_connections,
        "version": running.version,
        "volumes": running.volumes,
        "dirty_bytes": running.dirty_bytes,
        "snapshots": running.snapshots,
        "late_schedules": running.late_schedules,
        "late_scrubs": running.late_scrubs,
        "journal_bytes": running.journal_bytes.0,
        "journal_usual_bytes": running.journal_bytes.1,
        "format": running.format,
        "newest_format": running.newest_format,
        "clock_ahead_secs": running.clock_ahead_secs,
        "troubles": running.troubles.iter().map(|trouble| &trouble.what).collect::<Vec<_>>(),
        "service": running.service,
        "server": running.server,
    });
    if running.server.as_ref().is_some_and(|server| !server.has_cell) {
        value["state"] = json!("standing-by");
    }
    add_keeper(&mut value, kept);
    let age = (invocation.env.wall() / 1_000_000_000) as i64 - running.since;
    output::show(invocation.format, &value, || {
        let mut lines = vec![
            ("cell", cell.to_string()),
            ("mounted at", mounted_at(running)),
            ("process", format!("{} on {}", running.pid, running.host)),
            ("since", format!("{} ({})", when::utc(running.since), when::ago(age))),
            ("version", running.version.clone()),
            ("kept by", keeper_line(running, kept)),
            ("volumes", size::count(running.volumes)),
            ("snapshots", size::count(running.snapshots)),
            ("in memory", format!("{} not yet written", size::bytes(running.dirty_bytes))),
        ];
        if let Some(server) = &running.server {
            lines.insert(1, ("server", server_line(server)));
            if !server.has_cell {
                // of a cell that another process has open nothing is known here
                lines.retain(|(name, _)| !["volumes", "snapshots", "in memory", "mounted at"].contains(name));
            }
        }
        if running.format < running.newest_format {
            lines.push((
                "format",
                format!("{}; lee upgrade raises it to {}", running.format, running.newest_format),
            ));
        }
        if running.mount.is_some() {
            lines.insert(2, ("requests by", running.channel.clone()));
            lines.insert(3, ("restarts", ENDS_FILES.to_string()));
        }
        lines.extend(running.listen.iter().map(|at| ("listens at", at.clone())));
        if !running.listen.is_empty() {
            lines.push(("machines", format!("{} (lee session list)", size::count(running.sessions))));
        }
        lines.extend(running.metrics.iter().map(|url| ("metrics", url.clone())));
        lines.extend(
            running.doors.iter().map(|(door, url)| (if door == "s3" { "S3" } else { "HTTP" }, url.clone())),
        );
        lines.extend(running.door_connections.iter().map(|c| {
            let refused =
                if c.refused > 0 { format!(", {} refused", size::count(c.refused)) } else { String::new() };
            ("connections", format!("{} at {}{refused}", size::count(c.open), c.door))
        }));
        lines.extend(running.door_connections.iter().filter(|c| c.uploads > 0).map(|c| {
            let uploads = size::counted(c.uploads, "upload in parts", "uploads in parts");
            ("on the way", format!("{uploads} at {}, {}", c.door, size::bytes(c.upload_bytes)))
        }));
        lines.extend(alarms(running).into_iter().map(|alarm| ("ALARM", output::printable(&alarm.text))));
        lines.into_iter().map(|(name, value)| format!("{name:<11} {value}\n")).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn mounted_at(running: &Running) -> String {
    let at = running.mount.as_ref();
    at.map_or_else(|| "nowhere on this machine".into(), |at| at.display().to_string())
}

/// A server among those that share a cell.
fn server_line(server: &ServerState) -> String {
    let owner = server.owner_host.as_deref().map_or_else(
        || "nobody has the cell at the moment".to_owned(),
        |host| format!("the cell is served on {}", output::printable(host)),
    );
    let what = if server.has_cell { "has the cell".to_owned() } else { format!("stands by; {owner}") };
    let drained = if server.draining { ", to be drained" } else { "" };
    let others = size::counted(server.servers, "server is", "servers are");
    format!("{}: {what}{drained} (turn {}; {others} alive: lee server list)", server.id, server.turn)
}

/// Adds what the keeper says to the JSON of a cell.
fn add_keeper(value: &mut serde_json::Value, kept: Option<&Record>) {
    value["kept_by"] = json!(kept.map(|record| record.pid));
    value["restarts"] = json!(kept.map_or(0, |record| record.restarts));
    value["last_restart"] = json!(kept.and_then(|record| record.last_restart.as_ref()));
    value["waiting"] = json!(kept.and_then(|record| record.waiting.as_ref()));
}

fn keeper_line(running: &Running, kept: Option<&Record>) -> String {
    let Some(record) = kept else {
        return match running.service {
            true => "the service manager that started it".into(),
            false => "nothing: after a crash it stays down until lee up".into(),
        };
    };
    let often = match record.restarts {
        0 => return format!("process {}", record.pid),
        1 => "once".to_string(),
        n => format!("{} times", size::count(n)),
    };
    let last = record.last_restart.as_ref().map_or_else(String::new, |restart| {
        format!(", last {} after {} ms: {}", when::utc(restart.at), restart.pause_ms, restart.cause)
    });
    format!("process {}, which started it again {often}{last}", record.pid)
}

/// Whether a keeper is about to start the server. While a process has the cell, it may also end.
fn is_restarting(kept: Option<&Record>, is_held: bool) -> bool {
    kept.is_some_and(|record| !is_held || record.waiting.is_some())
}

/// The server crashed, and its keeper starts it again.
fn show_restarting(invocation: &Invocation, cell: &CellDir, record: &Record) -> Result<ExitCode, Fail> {
    let mut value = json!({"cell": cell.name(), "running": false, "state": "restarting"});
    add_keeper(&mut value, Some(record));
    output::show(invocation.format, &value, || {
        let keeper = format!("{cell} is down: its keeper (process {}) starts it again", record.pid);
        let Some(waiting) = &record.waiting else { return keeper };
        let tries = match waiting.failed {
            0 => String::new(),
            n => format!("; tried in vain so far: {}", size::count(n)),
        };
        format!("{keeper}, next try {}{tries}; the reason: {}", when::utc(waiting.next), waiting.cause)
    })?;
    Ok(ExitCode::from(NOT_RUNNING))
}

/// Somebody has the cell open and does not listen here.
fn show_held(invocation: &Invocation, cell: &CellDir, holder: Option<&Holder>) -> Result<ExitCode, Fail> {
    let state = match holder {
        Some(h) if h.command != "up" => "in-use",
        Some(h) if !h.is_here() => "elsewhere",
        _ => "starting-or-ending",
    };
    let value = json!({
        "cell": cell.name(),
        "running": true,
        "state": state,
        "pid": holder.map(|h| h.pid),
        "host": holder.map(|h| &h.host),
        "since": holder.map(|h| h.since),
    });
    output::show(invocation.format, &value, || {
        let who = holder.map_or_else(|| "another process".into(), Holder::to_string);
        let more = if state == "starting-or-ending" { ", which is just starting or ending" } else { "" };
        format!("{cell} is in use by {who}{more}")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The directory of the cell has another path now, or none.
fn show_moved(invocation: &Invocation, cell: &CellDir, at: &Path) -> Result<ExitCode, Fail> {
    let value = json!({"cell": cell.name(), "running": true, "state": "moved", "mount": at});
    output::show(invocation.format, &value, || mounts::moved(&cell.to_string(), at))?;
    Ok(ExitCode::SUCCESS)
}

fn show_nothing(invocation: &Invocation, cell: &CellDir) -> Result<ExitCode, Fail> {
    let value = json!({"cell": cell.name(), "running": false, "state": "down"});
    output::show(invocation.format, &value, || format!("{cell} is down: start it with `lee up {cell}`"))?;
    Ok(ExitCode::from(NOT_RUNNING))
}
