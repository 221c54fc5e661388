//! The keys of this machine for cells that other machines serve: its own, and those of the servers
//! that it has mounted from. Kept in `/var/lib/leeward` (root), else `$XDG_STATE_HOME/leeward` or
//! `~/.local/state/leeward`; `LEE_HOST_DIR` names another directory.

use crate::fail::{Fail, text};
use crate::system;
use leeward_env::Env;
use leeward_env::disk::held::sync_names;
use leeward_env::hex;
use leeward_remote::{Keys, PublicKey};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The variable that names another directory.
const VARIABLE: &str = "LEE_HOST_DIR";
/// The seed of this machine's key pair, in hexadecimal.
const OWN: &str = "host.key";
/// The directory with public keys of servers.
const SERVERS: &str = "servers";

/// The directory with sessions of mounts, by where they are, and how much of the path is in the
/// name.
const SESSIONS: &str = "sessions";
const PATH_BYTES_MAX: usize = 100;

/// See the module's head.
pub struct HostKeys {
    dir: PathBuf,
}

impl HostKeys {
    /// The directory of this user; makes it where it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open() -> Result<HostKeys, Fail> {
        let keys = HostKeys { dir: directory()? };
        let servers = keys.dir.join(SERVERS);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&servers);
        made.map_err(|e| keys.failed(&servers, &e))?;
        Ok(keys)
    }

    /// This machine's key pair; makes it where it is missing.
    ///
    /// # Errors
    /// When it cannot be read or made.
    pub fn own(&self, env: &Env) -> Result<Keys, Fail> {
        let path = self.dir.join(OWN);
        let seed = match read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.write(&path, &env.secret(), Existing::Stays)?;
                read(&path) // another process may have been faster
            }
            read => read,
        };
        let seed = seed.map_err(|e| self.failed(&path, &e))?;
        Keys::from_seed(&seed).map_err(|e| Fail::new(format!("{}: {e}", path.display())))
    }

    /// The key of a server that this machine has mounted from.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn server(&self, name: &str) -> Result<Option<PublicKey>, Fail> {
        let path = self.dir.join(SERVERS).join(name);
        match read(&path) {
            Ok(key) => Ok(Some(key)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed(&path, &e)),
        }
    }

    /// Remembers the key of a server.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remember(&self, name: &str, key: &PublicKey) -> Result<(), Fail> {
        self.write(&self.dir.join(SERVERS).join(name), key, Existing::IsReplaced)
    }

    /// The session of the last process that has mounted at a place.
    pub fn session(&self, at: &Path) -> Option<[u8; 32]> {
        read(&self.session_file(at)).ok()
    }

    /// Remembers the session of a process that mounts at a place.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_session(&self, at: &Path, session: &[u8; 32]) -> Result<(), Fail> {
        let path = self.session_file(at);
        let dir = path.parent().unwrap_or(&self.dir);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|e| self.failed(dir, &e))?;
        self.write(&path, session, Existing::IsReplaced)
    }

    /// A file for each place: of a long path the end is as good as the whole, as it proves nothing.
    fn session_file(&self, at: &Path) -> PathBuf {
        let bytes = at.as_os_str().as_bytes();
        let end = &bytes[bytes.len().saturating_sub(PATH_BYTES_MAX)..];
        self.dir.join(SESSIONS).join(hex::encode(end))
    }

    fn failed(&self, path: &Path, e: &io::Error) -> Fail {
        let path = path.display();
        Fail::new(format!("{path}: {}: name another directory for keys with {VARIABLE}", text(e)))
    }

    /// Writes a file that only its owner can read; whole or not at all.
    fn write(&self, path: &Path, key: &[u8; 32], existing: Existing) -> Result<(), Fail> {
        let new = path.with_file_name(format!(".new-{}", std::process::id()));
        let written = write_new(&new, key).and_then(|()| match existing {
            Existing::IsReplaced => std::fs::rename(&new, path),
            Existing::Stays => match std::fs::hard_link(&new, path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
                _ => Ok(()),
            },
        });
        // renamed, or not needed any more
        let _ = std::fs::remove_file(&new);
        let synced = written.and_then(|()| path.parent().map_or(Ok(()), sync_names));
        synced.map_err(|e| self.failed(path, &e))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Stays,
    IsReplaced,
}

fn directory() -> Result<PathBuf, Fail> {
    let named = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let dir = match (named(VARIABLE), system::uid(), named("XDG_STATE_HOME"), named("HOME")) {
        (Some(dir), ..) => dir,
        (None, 0, ..) => PathBuf::from("/var/lib/leeward"),
        (None, _, Some(dir), _) => dir.join("leeward"),
        (None, _, None, Some(home)) => home.join(".local/state/leeward"),
        (None, _, None, None) => {
            return Err(Fail::new(format!("there is no HOME: name a directory for keys with {VARIABLE}")));
        }
    };
    std::path::absolute(&dir).map_err(|e| Fail::new(format!("{}: {}", dir.display(), text(&e))))
}

fn read(path: &Path) -> io::Result<[u8; 32]> {
    let mut content = String::new();
    File::open(path)?.take(100).read_to_string(&mut content)?;
    let key = hex::decode(content.trim()).and_then(|key| key.try_into().ok());
    key.ok_or_else(|| io::Error::other("is damaged: it is not a key in hexadecimal"))
}

fn write_new(path: &Path, key: &[u8; 32]) -> io::Result<()> {
    // what a killed process left
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{}\n", hex::encode(key)).as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_machine_makes_its_key_once_and_remembers_servers() {
        let dir = tempfile::tempdir().expect("a directory");
        let keys = HostKeys { dir: dir.path().to_path_buf() };
        std::fs::create_dir(dir.path().join(SERVERS)).expect("made");
        let env = Env::real();
        let own = keys.own(&env).expect("made").public();
        assert_eq!(keys.own(&env).expect("read").public(), own);
        let file = dir.path().join(OWN);
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(keys.server("a:1").expect("read"), None);
        for key in [[1; 32], [2; 32]] {
            keys.remember("a:1", &key).expect("written");
            assert_eq!(keys.server("a:1").expect("read"), Some(key));
        }
        std::fs::write(&file, "short").expect("written");
        assert!(keys.own(&env).expect_err("damaged").to_string().contains("is damaged"));
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2);
    }
}
