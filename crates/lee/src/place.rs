//! What differs between a cell in a directory and one in a bucket: opening it, making it, and
//! finding out who serves it.
//!
//! In a bucket no lock keeps two processes apart: a process that opens the cell takes it over, and
//! the engine fences the other one (docs/decisions/0016). So that no command does that by accident,
//! `lee up` leaves a note in the bucket, the object `served`, and removes it when it ends. Only the
//! politeness of commands depends on it.

use crate::fail::Fail;
use crate::locate::CellDir;
use crate::lock::Holder;
use crate::system::Process;
use leeward_bucket::{Bucket, Location};
use leeward_env::Env;
use leeward_servers::{Record, State, overview, times};
use leeward_volume::admin::Failure;
use leeward_volume::remote::SERVED;
use leeward_volume::{Cell, Config};
use std::sync::Arc;
use std::time::Duration;

/// The bucket of a location.
///
/// # Errors
/// When the environment makes no sense.
pub fn bucket(place: &Location) -> Result<Bucket, Fail> {
    Bucket::new(place).map_err(|e| Fail::new(e.to_string()))
}

/// Opens the cell. `turn`: of several servers that share it, the number of this one's turn.
///
/// # Errors
/// The cell's.
pub fn open(env: &Env, cell: &CellDir, config: &Config, turn: Option<u64>) -> Result<Arc<Cell>, Fail> {
    Ok(match cell.place() {
        Some(place) => Cell::open_in(env, &bucket(place)?, config, turn)?,
        None => match cell.held() {
            Some(dir) => Cell::open_in_dir(env, dir, config)?,
            None => Cell::open(env, cell.path(), config)?,
        },
    })
}

/// Makes the cell if there is none; returns whether it did.
///
/// # Errors
/// The cell's.
pub fn create_if_missing(env: &Env, cell: &CellDir, config: &Config) -> Result<bool, Fail> {
    match cell.place() {
        None if Cell::exists(cell.within()) => Ok(false),
        None => Ok(match cell.held() {
            Some(dir) => Cell::create_in_dir(env, dir, config).map(|()| true)?,
            None => Cell::create(env, cell.path(), config).map(|()| true)?,
        }),
        Some(place) => {
            let bucket = bucket(place)?;
            if Cell::exists_in(&bucket)? {
                return Ok(false);
            }
            Ok(Cell::create_in(env, &bucket, config).map(|()| true)?)
        }
    }
}

/// For a server that is started again: refuses to go on without the cell.
///
/// # Errors
/// The cell is gone, or its bucket does not answer.
pub fn refuse_if_missing(cell: &CellDir) -> Result<(), Fail> {
    let exists = match cell.place() {
        None => Cell::exists(cell.within()),
        Some(place) => Cell::exists_in(&bucket(place)?)?,
    };
    if exists { Ok(()) } else { Err(Fail::new(format!("{cell}: the cell is not there any more"))) }
}

/// The process that serves the cell, or did and was killed, from the note in its bucket. For a cell
/// in a directory the lock has it.
///
/// # Errors
/// The store's.
pub fn noted(cell: &CellDir) -> Result<Option<Holder>, Fail> {
    let Some(place) = cell.place() else { return Ok(None) };
    let note = bucket(place)?.look(SERVED).map_err(|e| Fail::new(e.to_string()))?;
    Ok(note.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// Writes the note.
///
/// # Errors
/// The store's.
pub fn note(cell: &CellDir, holder: &Holder) -> Result<(), Fail> {
    let Some(place) = cell.place() else { return Ok(()) };
    let text = serde_json::to_vec(holder).map_err(|e| Fail::new(e.to_string()))?;
    bucket(place)?.replace(SERVED, text.into()).map_err(|e| Fail::new(e.to_string()))
}

/// Removes the note, if it is this one.
pub fn forget(cell: &CellDir, holder: &Holder) {
    let forgotten = noted(cell).and_then(|noted| match (noted.as_ref() == Some(holder), cell.place()) {
        (true, Some(place)) => bucket(place)?.delete(SERVED).map_err(|e| Fail::new(e.to_string())),
        _ => Ok(()),
    });
    if let Err(fail) = forgotten {
        tracing::warn!("{fail}");
    }
}

/// For who would open the cell for itself: refuses while servers share it. A server that was killed
/// is seen to be dead after some seconds.
///
/// # Errors
/// The text says which server there is.
pub fn refuse_if_shared(env: &Env, cell: &CellDir) -> Result<(), Fail> {
    let Some(place) = cell.place() else { return Ok(()) };
    let bucket = bucket(place)?;
    let alive = || -> Result<Vec<Record>, Fail> {
        let all = overview(&bucket).map_err(Fail::new)?;
        Ok(all.servers.into_iter().filter(|record| record.state == State::Alive).collect())
    };
    let before = alive()?;
    if before.is_empty() {
        return Ok(());
    }
    // whoever is alive renews its record meanwhile; who is not answers nothing after that
    env.sleep(Duration::from_nanos(times::OVER));
    let is_alive =
        |now: &Record| before.iter().all(|record| record.id != now.id || record.renewals < now.renewals);
    match alive()?.into_iter().find(is_alive) {
        None => Ok(()),
        Some(server) => Err(Fail::new(format!(
            "{cell} is shared by servers, one of them on {}: see `lee server list`, and end them all first, or use lee mount",
            server.host
        ))),
    }
}

/// For a command that would open the cell by itself: refuses while another machine serves it. Our
/// lock is taken, so on this machine only a process with another state directory can.
///
/// # Errors
/// The text says who serves it.
pub fn refuse_if_served(env: &Env, cell: &CellDir) -> Result<(), Failure> {
    let told = |fail: Fail| Failure { message: fail.to_string(), errno: 0 };
    refuse_if_shared(env, cell).map_err(|fail| Failure { errno: libc::EBUSY, ..told(fail) })?;
    let Some(holder) = noted(cell).map_err(told)? else { return Ok(()) };
    if holder.is_here() && Process::open(holder.pid).is_none() {
        return Ok(());
    }
    let message = format!(
        "{cell} is served by {holder}: run the command there; if that is gone for good, `lee up {cell}` takes the cell over"
    );
    Err(Failure { message, errno: libc::EBUSY })
}
