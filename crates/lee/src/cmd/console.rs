//! `lee console`: a link that logs in to the console.

use super::{Invocation, reach};
use crate::fail::Fail;
use crate::{output, size};
use serde_json::json;

/// Print a link that logs you in to the console in a browser
///
/// The console shows what goes on, volumes and projects with their history, snapshots, the recycle
/// bin, reports and keys: to users what is theirs, to root and the user who serves the cell all of
/// it. It is at /console of the HTTP door (`lee up --http`). The link can be used once, within five
/// minutes. Without a link one logs in with an S3 key (`lee key create`).
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// When nothing serves the cell, or there is no console.
pub fn run(invocation: &Invocation, _: &Args) -> Result<(), Fail> {
    let link = reach(&invocation.cell_anywhere()?)?.console_link()?;
    let value = json!({"urls": link.urls, "user": link.user, "valid_secs": link.valid_secs});
    output::show(invocation.format, &value, || {
        let minutes = size::counted(link.valid_secs / 60, "minute", "minutes");
        let urls: String = link.urls.iter().map(|url| format!("{}\n", output::printable(url))).collect();
        format!("{urls}logs in as {}, once, within {minutes}", output::printable(&link.user))
    })
}
