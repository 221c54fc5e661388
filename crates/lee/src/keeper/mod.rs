//! The keeper: a small process beside the server of `lee up --background`. The server is its child.
//! When the server crashes (a signal, a panic, the OOM killer), the keeper starts it again with the
//! same command line, and the server takes the dead mount away and mounts anew.
//!
//! A server that ends in order stays down, and its keeper ends: `lee down`, SIGTERM, SIGINT,
//! SIGHUP, an unmount, a take-over by another machine, data that could not be stored. SIGTERM to
//! the keeper ends the server in order first. When the keeper is killed, the server goes on.
//!
//! `lee mount --background` has a keeper, too: it mounts again when the process of the mount
//! crashes.
//!
//! [`run`] is the process: one thread that waits. [`record`] is the file by which commands find it,
//! [`backoff`] the pauses of a crash loop, [`signals`] what it waits for.

mod backoff;
mod record;
mod run;
mod signals;

pub use record::{Kept, Record, Restart};

use crate::background::{self, KEEPER};
use crate::output;
use std::process::ExitCode;

/// Runs the keeper, if that is what this process was started for.
pub fn if_keeper() -> Option<ExitCode> {
    let named = std::env::var_os(KEEPER)?;
    let ended = match named.to_str().and_then(|text| serde_json::from_str(text).ok()) {
        Some(passed) => run::go_on(&passed),
        None => background::inherited(KEEPER, &named).and_then(run::start),
    };
    Some(ended.unwrap_or_else(|fail| {
        output::note(&format!("lee: {fail}"));
        fail.exit_code()
    }))
}
