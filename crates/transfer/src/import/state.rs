//! What a target remembers of the passes before, in an extended attribute of its root.
//!
//! A file whose length and time are those of its source is looked at more closely unless it is
//! *known* to be right: its source has not changed since a pass that brought or compared everything
//! began, and what the target has of it is durable. So a file that was changed and got its old time
//! back is found, and so is one that the target lost half of in a crash.

use crate::sys::{self, Dir, Stat};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::io;

/// The attribute: one that only root may write, where root imports. What others may write says
/// nothing to root.
const OF_ROOT: &CStr = c"trusted.lee-import";
const OF_OTHERS: &CStr = c"user.lee-import";
/// So much may the clocks of this machine and of the source differ, in nanoseconds.
const CLOCKS_DIFFER: i64 = 120_000_000_000;

fn name() -> &'static CStr {
    if sys::is_root() { OF_ROOT } else { OF_OTHERS }
}

/// Whether an attribute is ours.
pub(super) fn is_name(name: &[u8]) -> bool {
    name == OF_ROOT.to_bytes() || name == OF_OTHERS.to_bytes()
}

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The source, as a path.
    pub source: String,
    /// The inode of its root: another one is another tree, such as an empty mount point.
    pub root: u64,
    /// When that was made, if it is known: many file systems give their roots the same number.
    pub birth: Option<i64>,
    /// What the passes bring: the options that leave something out.
    pub scope: String,
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
        let value = target.as_inode()?.attribute(name())?;
        Ok(value.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    /// Has the target remember it.
    ///
    /// # Errors
    /// Those of the system calls.
    pub(super) fn write(&self, target: &Dir) -> io::Result<()> {
        let value = serde_json::to_vec(self).map_err(io::Error::other)?;
        target.as_inode()?.set_attribute(name(), &value)
    }

    /// Whether it is about this source.
    pub(super) fn is_of(&self, source: &str, root: u64, birth: Option<i64>) -> bool {
        let other_birth = self.birth.zip(birth).is_some_and(|(then, now)| then != now);
        (&self.source[..], self.root) == (source, root) && !other_birth
    }

    /// What still holds for a pass that begins now and brings this: no moment that is yet to come,
    /// and nothing of passes that left other names out.
    pub(super) fn still(self, scope: String, now: i64) -> State {
        let since = self.since.filter(|since| *since <= now && self.scope == scope);
        let is_future = self.synced > now.saturating_add(CLOCKS_DIFFER);
        let synced = if is_future { i64::MIN } else { self.synced };
        State { since, synced, scope, ..self }
    }

    /// Whether what looks the same is the same.
    pub(super) fn is_known(&self, source: &Stat, target: &Stat) -> bool {
        let unchanged = self
            .since
            .is_some_and(|since| source.ctime.as_nanos() < i128::from(since.saturating_sub(CLOCKS_DIFFER)));
        unchanged && target.ctime.as_nanos() < i128::from(self.synced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{FileId, Kind, Time};

    fn changed_at(secs: i64) -> Stat {
        let time = Time { secs, nanos: 0 };
        let id = FileId { dev: 1, ino: 1 };
        let (mode, nlink, uid, gid, rdev, size, blocks) = (0o644, 1, 0, 0, 0, 0, 0);
        Stat {
            id,
            kind: Kind::File,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    #[test]
    fn known_is_what_was_quiet_and_is_durable() {
        let state = State {
            source: "/s".into(),
            root: 2,
            birth: Some(5),
            scope: "all".into(),
            since: Some(1_000_000_000_000),
            synced: 2_000_000_000_000,
            at: 0,
        };
        assert!(state.is_known(&changed_at(879), &changed_at(1999)));
        assert!(!state.is_known(&changed_at(881), &changed_at(1999)), "the source may have changed since");
        assert!(!state.is_known(&changed_at(879), &changed_at(2000)), "the target may have lost it");
        let unfinished = State { since: None, ..state.clone() };
        assert!(!unfinished.is_known(&changed_at(0), &changed_at(0)));
        let earliest = State { since: Some(i64::MIN), ..state.clone() };
        assert!(!earliest.is_known(&changed_at(0), &changed_at(0)));
        let is_of = |source, root, birth| state.is_of(source, root, birth);
        assert!(is_of("/s", 2, Some(5)) && is_of("/s", 2, None));
        assert!(!is_of("/s", 3, Some(5)) && !is_of("/t", 2, Some(5)) && !is_of("/s", 2, Some(6)));
        let known = |scope: &str, now| {
            let State { since, synced, .. } = state.clone().still(scope.into(), now);
            (since, synced)
        };
        assert_eq!(known("all", 3_000_000_000_000), (Some(1_000_000_000_000), 2_000_000_000_000));
        assert_eq!(known("other", 3_000_000_000_000), (None, 2_000_000_000_000), "it left out others");
        assert_eq!(known("all", 1_500_000_000_000), (Some(1_000_000_000_000), i64::MIN), "not durable yet");
        assert_eq!(known("all", 999_999_999_999), (None, i64::MIN), "nothing was right yet");
    }
}
