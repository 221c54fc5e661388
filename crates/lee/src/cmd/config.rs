//! `lee config`: the settings in effect.

use super::Invocation;
use crate::fail::Fail;
use crate::{output, settings};
use serde_json::json;

/// Show the settings in effect
///
/// They come from DIR/leeward.toml, and from built-in defaults where that says nothing. A running
/// cell takes up changes when it is started again.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print all settings as the file would say them
    Show,
}

/// Runs it.
///
/// # Errors
/// What is wrong in the file.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let Action::Show = args.action;
    let cell = invocation.cell()?;
    let config = settings::load(&cell)?;
    let toml = settings::to_toml(&config)?;
    let (file, there) = (cell.settings(), settings::are_there(&cell)?);
    output::show(invocation.format, &json!({"file": file, "settings": config}), || {
        let from = if there { "with defaults where it says nothing" } else { "which is not there: defaults" };
        format!("# {}, {from}\n{toml}", file.display())
    })
}
