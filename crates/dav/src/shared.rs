//! What all requests of the door share.

use crate::locks::Locks;
use crate::third_party_copy::transfers::Transfers;
use leeward_auth::Authority;
use leeward_door::listen::Turns;
use leeward_door::{FairSemaphore, Files};
use leeward_env::Env;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// All methods that the door answers, as in `Allow`.
pub const METHODS: &str =
    "OPTIONS, GET, HEAD, PUT, POST, DELETE, MKCOL, COPY, MOVE, PROPFIND, PROPPATCH, LOCK, UNLOCK";
/// Makes the storage resource report, as JSON: of the whole cell, or of these paths alone. May take
/// a while.
pub type Report = Arc<dyn Fn(Option<Vec<String>>) -> std::result::Result<String, String> + Send + Sync>;

/// Settings of the door.
#[derive(Clone)]
pub struct Settings {
    /// URL of the door, for tokens.
    pub location: String,
    /// The report at `/.well-known/srr`.
    pub report: Report,
    /// Of several machines that open this door of a cell, which one this is; empty: the server.
    /// Each notes its own copies in progress.
    pub host: String,
}

/// The state that all requests share.
pub(crate) struct Shared {
    pub(crate) files: Files,
    pub(crate) authority: Arc<Authority>,
    pub(crate) env: Env,
    pub(crate) locks: Locks,
    pub(crate) transfers: Transfers,
    pub(crate) turns: Turns,
    /// Memory for the copied entries of MOVEs between volumes, which users share: bytes.
    pub(crate) moved: FairSemaphore,
    /// Requests that wait while an issuer's keys are fetched.
    pub(crate) fetching: Semaphore,
    pub(crate) settings: Settings,
    /// The attribute of the cell's root that has the notes of copies in progress.
    pub(crate) notes: &'static [&'static [u8]],
}
