//! What of a machine, and of the place of a cell, is not as Leeward wants it: `lee doctor`.
//!
//! Each check looks, changes nothing that lasts, and has one finding. What it grades is apart from
//! how it looks, so that it can be tested on any machine.

mod calls;
mod disk;
mod machine;

use leeward_env::Env;
use serde::Serialize;
use std::io;
use std::path::Path;

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in a word.
    pub what: &'static str,
    /// How it is.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What to change.
    pub todo: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// As it should be.
    Good,
    /// It works, not as well as it could.
    Look,
    /// A cell does not work, or may lose what it has acknowledged.
    Bad,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { what, grade: Grade::Good, found: found.into(), todo: None }
    }

    fn look(what: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Finding {
        Finding { what, grade: Grade::Look, found: found.into(), todo: Some(todo.into()) }
    }

    fn bad(what: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Finding {
        Finding { what, grade: Grade::Bad, found: found.into(), todo: Some(todo.into()) }
    }
}

/// Looks at the machine, and at the directory that a cell is, or is to be in.
///
/// # Errors
/// The directory cannot be looked at, or written to.
pub fn look(env: &Env, dir: &Path) -> io::Result<Vec<Finding>> {
    let mut all = machine::look();
    all.extend(disk::look(env, dir)?);
    Ok(all)
}
