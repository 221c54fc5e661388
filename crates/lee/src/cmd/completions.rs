//! `lee completions`: what a shell needs to complete our commands.

use super::{Invocation, only_text};
use crate::fail::Fail;
use crate::{args, output};
use clap_complete::Shell;

/// Print the completions for a shell
///
/// For bash: lee completions bash > ~/.local/share/bash-completion/completions/lee
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which shell
    shell: Shell,
}

/// Runs it.
///
/// # Errors
/// When standard output cannot be written to.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    only_text(invocation, "completions")?;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "lee", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
