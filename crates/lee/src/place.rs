//! What is done differently for a cell in a directory and for one in a bucket: open, make, and see who serves it.
//!
//! In a bucket no lock keeps two processes apart: whoever opens the cell takes it over, and the engine fences the other one
//! (docs/decisions/0016). So that no command does that by accident, `lee up` leaves a note in the bucket, the object `served`,
//! and takes it away when it ends; nothing but the manners of commands depends on it.

use crate::fail::Fail;
use crate::locate::CellDir;
use crate::lock::Holder;
use crate::system::Process;
use leeward_bucket::{Bucket, Place};
use leeward_env::Env;
use leeward_volume::admin::Failure;
use leeward_volume::remote::SERVED;
use leeward_volume::{Cell, Config};
use std::sync::Arc;

/// The bucket of a place.
///
/// # Errors
/// When the environment makes no sense.
pub fn bucket(place: &Place) -> Result<Bucket, Fail> {
    Bucket::new(place).map_err(|e| Fail::new(e.to_string()))
}

/// Opens the cell.
///
/// # Errors
/// The cell's.
pub fn open(env: &Env, cell: &CellDir, config: &Config) -> Result<Arc<Cell>, Fail> {
    Ok(match cell.place() {
        Some(place) => Cell::open_in(env, &bucket(place)?, config)?,
        None => match cell.held() {
            Some(dir) => Cell::open_in_dir(env, dir, config)?,
            None => Cell::open(env, cell.path(), config)?,
        },
    })
}

/// Makes the cell where there is none; says whether it did.
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

/// Who serves the cell, or did and was killed, as the note in its bucket says; of a cell in a directory the lock knows.
///
/// # Errors
/// The store's.
pub fn noted(cell: &CellDir) -> Result<Option<Holder>, Fail> {
    let Some(place) = cell.place() else { return Ok(None) };
    let note = bucket(place)?.look(SERVED).map_err(|e| Fail::new(e.to_string()))?;
    Ok(note.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// Leaves the note.
///
/// # Errors
/// The store's.
pub fn note(cell: &CellDir, holder: &Holder) -> Result<(), Fail> {
    let Some(place) = cell.place() else { return Ok(()) };
    let text = serde_json::to_vec(holder).map_err(|e| Fail::new(e.to_string()))?;
    bucket(place)?.replace(SERVED, text.into()).map_err(|e| Fail::new(e.to_string()))
}

/// Takes the note away, if it is this one.
pub fn forget(cell: &CellDir, holder: &Holder) {
    let forgotten = noted(cell).and_then(|noted| match (noted.as_ref() == Some(holder), cell.place()) {
        (true, Some(place)) => bucket(place)?.delete(SERVED).map_err(|e| Fail::new(e.to_string())),
        _ => Ok(()),
    });
    if let Err(fail) = forgotten {
        tracing::warn!("{fail}");
    }
}

/// For a command that would open the cell by itself: not while another machine serves it. Our lock is taken: on this machine only a
/// process with another state directory can.
///
/// # Errors
/// Says who serves it.
pub fn refuse_if_served(cell: &CellDir) -> Result<(), Failure> {
    let told = |fail: Fail| Failure { message: fail.to_string(), errno: 0 };
    let Some(holder) = noted(cell).map_err(told)? else { return Ok(()) };
    if holder.is_here() && Process::open(holder.pid).is_none() {
        return Ok(());
    }
    let message = format!(
        "{cell} is served by {holder}: run the command there; if that is gone for good, `lee up {cell}` takes the cell over"
    );
    Err(Failure { message, errno: libc::EBUSY })
}
