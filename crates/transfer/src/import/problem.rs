//! What goes wrong with one name, and what that means for the pass.

use super::pass::Pass;
use crate::sys::Dir;
use crate::{Error, Trouble, cause, printable};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a name is not brought.
#[derive(Debug)]
pub(super) enum Problem {
    /// The source refused something.
    Source(io::Error),
    /// The target refused something.
    Target(io::Error),
    /// The target did not take an extended attribute.
    Attribute(CString, io::Error),
    /// The pass ends.
    Over,
    /// The source does not have it any more.
    Vanished,
    /// It changed while it was looked at.
    Changed,
    /// The target has a directory there.
    DirectoryThere,
    /// The target has a directory there with excluded names.
    ExcludedThere,
    /// The source has an empty directory there, the target has not.
    EmptySource,
    /// The target has no inode that this could be a further name of.
    NoFirstName,
}

/// Says on which side an error is.
pub(super) trait OnSide<T> {
    fn source(self) -> Result<T, Problem>;
    fn target(self) -> Result<T, Problem>;
}

impl<T> OnSide<T> for io::Result<T> {
    fn source(self) -> Result<T, Problem> {
        self.map_err(Problem::Source)
    }

    fn target(self) -> Result<T, Problem> {
        self.map_err(Problem::Target)
    }
}

/// Whether a file system that answers so answers nothing else.
fn is_gone(errno: Option<i32>) -> bool {
    matches!(
        errno,
        Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ESHUTDOWN | libc::ENODEV | libc::EHOSTDOWN)
    )
}

/// What a source meant that says that a name is not there: looks at the name again.
pub(super) fn looked_again(dir: &Dir, name: &CStr, problem: Problem) -> Problem {
    match &problem {
        Problem::Source(e) if e.raw_os_error() == Some(libc::ENOENT) => match dir.look(name) {
            Ok(None) => Problem::Vanished,
            Ok(Some(_)) => Problem::Changed,
            Err(e) => Problem::Source(e),
        },
        _ => problem,
    }
}

impl Pass {
    /// Counts a problem, or ends the pass.
    pub(super) fn note(&self, path: &[u8], problem: Problem) {
        let shown = Path::new(std::ffi::OsStr::from_bytes(if path.is_empty() { b"." } else { path }));
        match problem {
            Problem::Source(e) if is_gone(e.raw_os_error()) => {
                self.fail(Error::at(shown, "the source does not answer any more", &e));
            }
            Problem::Source(e) => match e.raw_os_error() {
                Some(libc::ESTALE) if self.is_root_stale(path) => {
                    self.fail(Error::at(shown, "the source is not what it was: mount it anew", &e));
                }
                // a directory was exchanged for something else, or went away with what is in it
                Some(libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ELOOP) => self.overlooked(path),
                _ => self.trouble(path, format!("cannot be read: {}", cause(&e))),
            },
            Problem::Target(e) => self.note_target(path, shown, &e),
            Problem::Attribute(name, e) => {
                let name = printable(&name.to_string_lossy());
                self.trouble(path, format!("the target does not take its attribute {name}: {}", cause(&e)));
            }
            Problem::Over => {}
            Problem::Vanished => self.report.lock().summary.vanished += 1,
            Problem::Changed => self.overlooked(path),
            Problem::DirectoryThere => {
                self.trouble(path, "the target has a directory there, which only --delete replaces".into());
            }
            Problem::ExcludedThere => {
                self.trouble(path, "the target has a directory there with names that are excluded".into());
            }
            Problem::EmptySource => self.trouble(
                path,
                "the source has nothing there, and the target has: is a file system mounted there? Else remove \
                 what is in the target by hand"
                    .into(),
            ),
            Problem::NoFirstName => self.trouble(path, "none of its other names could be brought".into()),
        }
    }

    fn note_target(&self, path: &[u8], shown: &Path, e: &io::Error) {
        let what = match e.raw_os_error() {
            Some(libc::ENOSPC) => "the target is full: make room, and import again, which goes on from here",
            Some(libc::EDQUOT) => {
                "a quota of the target is used up: raise it, and import again, which goes on from here"
            }
            Some(libc::EROFS) => "the target takes no changes",
            errno if is_gone(errno) => "the target does not answer any more",
            _ => return self.trouble(path, format!("cannot be written: {}", cause(e))),
        };
        self.fail(Error::at(shown, what, e));
    }

    fn is_root_stale(&self, path: &[u8]) -> bool {
        let root = self.source_root.stat();
        path.is_empty() || root.is_err_and(|e| e.raw_os_error() == Some(libc::ESTALE))
    }

    /// Ends the pass.
    pub(super) fn fail(&self, error: Error) {
        self.fatal.lock().get_or_insert(error);
        self.queue.end();
    }

    fn overlooked(&self, path: &[u8]) {
        self.report.lock().overlooked = true;
        self.unsettled(path);
    }

    pub(super) fn unsettled(&self, path: &[u8]) {
        let mut report = self.report.lock();
        report.summary.unsettled += 1;
        if report.summary.unsettled_paths.len() < super::LISTED_MAX {
            report.summary.unsettled_paths.push(String::from_utf8_lossy(path).into_owned());
        }
    }

    fn trouble(&self, path: &[u8], cause: String) {
        let mut report = self.report.lock();
        report.summary.failed += 1;
        report.overlooked = true;
        if report.summary.troubles.len() < super::LISTED_MAX {
            let path = String::from_utf8_lossy(path).into_owned();
            report.summary.troubles.push(Trouble { path, cause });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn only_what_is_away_has_vanished() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("there"), "x").expect("a file");
        let dir = Dir::open(place.path()).expect("a directory");
        let again =
            |name, errno| looked_again(&dir, name, Problem::Source(io::Error::from_raw_os_error(errno)));
        assert!(matches!(again(c"away", libc::ENOENT), Problem::Vanished));
        assert!(matches!(again(c"there", libc::ENOENT), Problem::Changed));
        assert!(matches!(again(c"away", libc::ESTALE), Problem::Source(_)));
    }
}
