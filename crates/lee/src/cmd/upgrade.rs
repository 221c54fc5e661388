//! `lee upgrade`: the format of a cell, once nobody goes back to the release before.

use super::Invocation;
use crate::fail::Fail;
use crate::output;
use crate::session;
use leeward_volume::admin::FormatRaise;
use serde_json::json;
use std::path::PathBuf;

/// Raise the format of a cell to the newest one
///
/// A newer lee serves a cell in the format that it has, so that you can go back to the release
/// before. When all of its servers run the newer lee, and you will not go back, this has them write
/// what only the newer one understands. From then on the release before refuses the cell. Nothing
/// is written anew, and users notice nothing. `lee status` says when there is something to raise.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the cell, its URL, or where it is mounted
    dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// A server of the cell runs a lee that does not know the format; or it cannot be written.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let cell = invocation.cell_or(args.dir.as_deref())?;
    let raised = session::with(&invocation.env, &cell, "upgrade", |session| session.ask(&FormatRaise {}))?;
    let (before, format) = (raised.before, raised.format);
    let value = json!({"cell": cell.name(), "before": before, "format": format, "raised": before < format});
    output::show(invocation.format, &value, || match before < format {
        true => {
            format!("{cell} has format {format} now, before {before}: an older lee cannot serve it any more")
        }
        false => format!("{cell} has format {format} already, the newest that its lee knows"),
    })
}
