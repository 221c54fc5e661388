//! `lee sync`: everything that had returned is durable.

use super::Asked;
use crate::fail::Fail;
use crate::output;
use leeward_volume::admin::Request;

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(asked: &Asked) -> Result<(), Fail> {
    let reply = asked.ask("sync", &Request::Sync)?;
    output::show(asked.format, &reply, || "everything written until now is durable".into())
}
