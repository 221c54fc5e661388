//! What a target remembers of the passes before, in an extended attribute of its root.
//!
//! A file whose length and time are those of its source is looked at more closely unless it is
//! *known* to be right: its source has not changed since a pass that brought or compared everything
//! began, and what the target has of it is durable. So a file that was changed and got its old time
//! back is found, and so is one that the target lost half of in a crash.

use crate::sys::{Dir, Stat};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::io;

/// The attribute.
pub(super) const NAME: &CStr = c"user.lee-import";
/// So much may the clocks of this machine and of the source differ, in nanoseconds.
const CLOCKS_DIFFER: i64 = 120_000_000_000;

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The source, as a path.
    pub source: String,
    /// The inode of its root: another one is another tree, such as an empty mount point.
    pub root: u64,
    /// Everything in the target was right at some moment after this one, by the clock of this
    /// machine, in nanoseconds since 1970.
    pub since: Option<i64>,
    /// What changed in the target before this moment, by its own clock, is durable.
    pub synced: i64,
    /// When this was written: makes each version differ from the one before.
    pub at: i64,
}

impl State {
    /// What the target remembers; `None` if nothing, or nothing that can be read.
    ///
    /// # Errors
    /// Those of the system calls.
    pub(super) fn read(target: &Dir) -> io::Result<Option<State>> {
        let value = target.as_inode()?.attribute(NAME)?;
        Ok(value.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    /// Has the target remember it.
    ///
    /// # Errors
    /// Those of the system calls.
    pub(super) fn write(&self, target: &Dir) -> io::Result<()> {
        let value = serde_json::to_vec(self).map_err(io::Error::other)?;
        target.as_inode()?.set_attribute(NAME, &value)
    }

    /// Whether it is about this source.
    pub(super) fn is_of(&self, source: &str, root: u64) -> bool {
        (&self.source[..], self.root) == (source, root)
    }

    /// Whether what looks the same is the same.
    pub(super) fn is_known(&self, source: &Stat, target: &Stat) -> bool {
        let unchanged =
            self.since.is_some_and(|since| source.ctime.as_nanos() < i128::from(since - CLOCKS_DIFFER));
        unchanged && target.ctime.as_nanos() < i128::from(self.synced)
    }
}
