//! A repository in a directory of another machine, reached by sftp.
//!
//! `ssh` makes the connection. One is kept, and made anew once when it breaks during a call: each
//! call may be done twice. Files get their names when their content is durable there (servers
//! without `fsync@openssh.com` are said once to have none). The name itself may be lost in a power
//! cut of that machine: then the next run stores the file again.

mod link;
mod place;

pub use place::SftpPlace;

use crate::files::{FILE_BYTES_MAX, Files, UNFINISHED, dir_of, lost};
use crate::{Error, ErrorKind, Result};
use link::{Attributes, Link, Refusal};
use parking_lot::Mutex;
use std::process::Command;

/// The files of a repository behind sftp.
pub struct Sftp {
    /// Makes a connection.
    command: Box<dyn Fn() -> Command + Send + Sync>,
    /// The connection, when there is one.
    link: Mutex<Option<Link>>,
    /// The directory there.
    path: String,
    /// For messages.
    place: String,
}

impl Sftp {
    /// The files at a place. Its directory is made if it may be, but not what is above it.
    ///
    /// # Errors
    /// Where the place does not answer, or there is no such directory.
    pub fn open(place: &str, may_make: bool) -> Result<Sftp> {
        let at = SftpPlace::parse(place)?;
        Sftp::by(place, &at.path.clone(), Box::new(move || at.command()), may_make)
    }

    /// The same over a connection of the caller's.
    fn by(
        place: &str,
        path: &str,
        command: Box<dyn Fn() -> Command + Send + Sync>,
        may_make: bool,
    ) -> Result<Sftp> {
        let sftp = Sftp { command, link: Mutex::default(), path: path.into(), place: place.into() };
        let found = sftp.with("", |link| match link.stat(path) {
            Err(Refusal::Missing) if may_make => link.make_dir(path).and_then(|()| link.stat(path)),
            found => found,
        });
        match found.map_err(|e| sftp.missing(e, may_make))? {
            Attributes { is_dir: true, .. } => Ok(sftp),
            _ => Err(Error::new(ErrorKind::Place, format!("{place} is no directory"))),
        }
    }

    fn missing(&self, e: Failed, may_make: bool) -> Error {
        match e {
            Failed::Missing if may_make => {
                let text = "the directory above it does not exist: make it";
                Error::new(ErrorKind::Place, format!("{}: {text}", self.place))
            }
            Failed::Missing => Error::new(ErrorKind::Place, format!("{} is missing", self.place)),
            Failed::Other(e) => e,
        }
    }

    /// Does something over the connection, in a new one if there is none, or if it broke.
    fn with<T>(
        &self,
        name: &str,
        mut what: impl FnMut(&mut Link) -> Done<T>,
    ) -> std::result::Result<T, Failed> {
        let mut kept = self.link.lock();
        let had_one = kept.is_some();
        let result = match self.once(&mut kept, &mut what) {
            Err(Refusal::Broken(_)) if had_one => self.once(&mut kept, &mut what),
            result => result,
        };
        result.map_err(|refusal| match refusal {
            Refusal::Missing => Failed::Missing,
            Refusal::Refused(why) | Refusal::Broken(why) => {
                let at = if name.is_empty() { self.place.clone() } else { format!("{}/{name}", self.place) };
                Failed::Other(Error::new(ErrorKind::Place, format!("{at}: {why}")))
            }
        })
    }

    fn once<T>(&self, kept: &mut Option<Link>, what: &mut impl FnMut(&mut Link) -> Done<T>) -> Done<T> {
        let link = match kept {
            Some(link) => link,
            None => {
                let link = kept.insert(Link::start((self.command)())?);
                if !link.can_sync() {
                    tracing::warn!(
                        "{}: the server cannot make files durable (no fsync@openssh.com)",
                        self.place
                    );
                }
                link
            }
        };
        let result = what(link);
        if matches!(result, Err(Refusal::Broken(_))) {
            let result = result.map_err(|e| link.with_cause(e));
            *kept = None;
            return result;
        }
        result
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    fn write(&self, link: &mut Link, name: &str, bytes: &[u8]) -> Done<()> {
        let (staged, name) = (self.at(&format!("{name}{UNFINISHED}")), self.at(name));
        let written = link.write(&staged, bytes).and_then(|()| link.rename(&staged, &name));
        if let Err(Refusal::Refused(why)) = written {
            let _ = link.remove(&staged); // the first error is the one to tell
            return Err(Refusal::Refused(why));
        }
        written
    }
}

type Done<T> = std::result::Result<T, Refusal>;

/// Why a call was not done.
enum Failed {
    Missing,
    Other(Error),
}

impl Files for Sftp {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let found = self.with(name, |link| {
            let at = self.at(name);
            let bytes = link.stat(&at)?.bytes;
            if bytes > FILE_BYTES_MAX {
                return Err(Refusal::Refused(format!("{bytes} bytes are too many for such a file")));
            }
            link.read(&at, 0, bytes)
        });
        match found {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Failed::Missing) => Ok(None),
            Err(Failed::Other(e)) => Err(e),
        }
    }

    fn get_range(&self, name: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        match self.with(name, |link| link.read(&self.at(name), offset, len)) {
            Ok(bytes) if bytes.len() as u64 == len => Ok(bytes),
            Ok(_) => Err(lost(&self.place, name, "ends early")),
            Err(Failed::Missing) => Err(lost(&self.place, name, "is missing")),
            Err(Failed::Other(e)) => Err(e),
        }
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let mut is_full = false;
        let done = self.with(name, |link| {
            let written = match self.write(link, name, &bytes) {
                // the first file there
                Err(Refusal::Missing) => {
                    link.make_dir(&self.at(dir_of(name)))?;
                    self.write(link, name, &bytes)
                }
                written => written,
            };
            if let Err(Refusal::Refused(_)) = written {
                is_full = link.is_full(&self.path);
            }
            written
        });
        done.map_err(|failed| match failed {
            Failed::Other(e) if is_full => {
                Error::new(ErrorKind::Full, format!("{}: no space is left there: make room", e.text))
            }
            Failed::Other(e) => e,
            Failed::Missing => Error::new(ErrorKind::Place, format!("{} is missing", self.place)),
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.with(name, |link| link.remove(&self.at(name))) {
            Ok(()) | Err(Failed::Missing) => Ok(()),
            Err(Failed::Other(e)) => Err(e),
        }
    }

    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        let listed = self.with(dir, |link| {
            let (mut files, mut dirs) = (Vec::new(), vec![self.at(dir)]);
            // one directory below another, not deeper
            for below in [true, false] {
                for dir in std::mem::take(&mut dirs) {
                    let listed = match link.list(&dir) {
                        // it has gone since
                        Err(Refusal::Missing) if !below => continue,
                        listed => listed?,
                    };
                    for (name, attributes) in listed {
                        match attributes.is_dir {
                            true if below => dirs.push(format!("{dir}/{name}")),
                            true => (),
                            false => files.push((name, attributes.bytes)),
                        }
                    }
                }
            }
            Ok(files)
        });
        match listed {
            Ok(files) => Ok(files),
            Err(Failed::Missing) => Ok(Vec::new()),
            Err(Failed::Other(e)) => Err(e),
        }
    }

    fn settle_removals(&self, _: &str) -> Result<()> {
        Ok(()) // sftp has no way to ask for it
    }

    fn prepare(&self) -> Result<()> {
        let of_data = (0..=255).map(|n| format!("data/{n:02x}"));
        let others = ["data", "index", "keys", "locks", "snapshots"].map(String::from);
        for dir in others.into_iter().chain(of_data) {
            let made = self.with(&dir, |link| match link.make_dir(&self.at(&dir)) {
                // it may be there already, as after a call that was done twice
                Err(Refusal::Refused(why)) => match link.stat(&self.at(&dir)) {
                    Ok(Attributes { is_dir: true, .. }) => Ok(()),
                    _ => Err(Refusal::Refused(why)),
                },
                made => made,
            });
            made.map_err(|e| self.missing(e, true))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
