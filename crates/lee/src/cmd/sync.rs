//! `lee sync`: everything that had returned is durable.

use super::Invocation;
use crate::fail::Fail;
use crate::locate::CellDir;
use crate::output;
use leeward_volume::admin;

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.session("sync", |cell, session| {
        let reply = session.ask(&admin::SyncAll)?;
        if session.is_after_a_crash() { Err(crashed(cell)) } else { Ok(reply) }
    })?;
    output::reply(invocation.format, &reply, || "everything written until now is durable".into())
}

/// Nobody who asks for durability is to hear "done" from a process that never saw what was written.
fn crashed(cell: &CellDir) -> Fail {
    Fail::new(format!(
        "{cell} is not served, and the process that served it did not end in order: what was written after the last \
         sync may be lost; look what is there with `lee up {cell}`, and write the rest again"
    ))
}
