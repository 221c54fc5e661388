//! `lee doctor`: what of this machine to change.

use super::Invocation;
use crate::doctor::{self, Finding, Grade};
use crate::fail::{Fail, text};
use crate::locate;
use crate::output;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Look whether this machine, and the place of a cell, are as they should be
///
/// FUSE and io_uring, limits, memory, the clock; and of the directory its file system, how it is
/// mounted, what is free, and whether its disk answers flushes sooner than it can store. Says what
/// to change. Nothing is changed. Exits with 1 when something is bad.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory of a cell, which need not be there yet [default: --cell, LEE_CELL, else the
    /// current directory]
    dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// The directory cannot be looked at.
pub fn run(invocation: &Invocation, args: Args) -> Result<ExitCode, Fail> {
    let dir = match (args.dir, locate::told(invocation.cell.as_deref())) {
        (Some(dir), _) => dir,
        (None, Some((dir, _))) => dir.into(),
        (None, None) => PathBuf::from("."),
    };
    if locate::is_bucket(dir.as_os_str()) {
        return Err(Fail::usage(
            "a bucket is looked at by the cell itself: see lee status. Name a directory",
        ));
    }
    let all = look(invocation, &dir)?;
    output::show(invocation.format, &json!({ "findings": all }), || lines(&all))?;
    let is_bad = all.iter().any(|finding| finding.grade == Grade::Bad);
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn look(invocation: &Invocation, dir: &Path) -> Result<Vec<Finding>, Fail> {
    doctor::look(&invocation.env, dir).map_err(|e| Fail::new(format!("{}: {}", dir.display(), text(&e))))
}

fn lines(all: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let grade = match finding.grade {
            Grade::Good => "good",
            Grade::Look => "look",
            Grade::Bad => "BAD",
        };
        let mut line = format!("{grade:<6}{:<13}{}", finding.what, output::printable(&finding.found));
        if let Some(todo) = &finding.todo {
            line.push_str(&format!("\n{:19}to do: {todo}", ""));
        }
        line
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}
