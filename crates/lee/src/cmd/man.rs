//! `lee man`: the manual pages, from the same descriptions as the help.

use super::{Invocation, only_text};
use crate::fail::{Fail, text};
use crate::{args, output};
use std::path::PathBuf;

/// Print the manual page, or write all of them to a directory
///
/// For everybody: lee man /usr/local/share/man/man1
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write lee.1 and a page for each command to this directory, which exists
    dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// When they cannot be written.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    only_text(invocation, "man")?;
    let failed = |at: &str, e: std::io::Error| {
        Fail::new(format!(
            "{at}: cannot write the manual: {}: name a directory that is there and may be written to",
            text(&e)
        ))
    };
    match &args.dir {
        Some(dir) => {
            clap_mangen::generate_to(args::plain_command(), dir)
                .map_err(|e| failed(&dir.display().to_string(), e))?;
            output::print(&format!("wrote lee.1 and a page for each command to {}", dir.display()))
        }
        None => {
            let mut page = Vec::new();
            let man = clap_mangen::Man::new(args::plain_command());
            man.render(&mut page).map_err(|e| failed("standard output", e))?;
            output::print(&String::from_utf8_lossy(&page))
        }
    }
}
