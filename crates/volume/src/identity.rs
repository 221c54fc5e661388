//! What says that a directory, or a prefix of a bucket, is a cell: a page of JSON named `cell`, written last.

use crate::admin::Failure;
use crate::cell::failure;
use leeward_env::Env;
use leeward_env::disk::Disk;
use leeward_env::disk::real::RealDisk;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Format of a cell. A newer one is refused.
pub const FORMAT: u32 = 7;
/// Its name.
pub(crate) const NAME: &str = "cell";

/// What a cell is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    leeward: String,
    format: u32,
    /// 32 hex digits; the labels of stores have them.
    pub id: String,
    created_secs: i64,
}

impl Identity {
    /// Of a new cell.
    pub fn new(env: &Env) -> Identity {
        Identity {
            leeward: "cell".into(),
            format: FORMAT,
            id: format!("{:016x}{:016x}", env.random(), env.random()),
            created_secs: (env.wall() / 1_000_000_000) as i64,
        }
    }

    /// As it is stored.
    pub fn to_text(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self).map_err(|e| failure(e.to_string()))? + "\n")
    }

    /// Reads it; `at` is what it was read from, `cell` what it is about. Refuses a newer format.
    pub fn parse(text: &[u8], at: &str, cell: &str) -> Result<Identity, Failure> {
        let identity: Identity = serde_json::from_slice(text)
            .map_err(|e| failure(format!("{at} is damaged ({e}): restore it from a backup")))?;
        if identity.format > FORMAT {
            return Err(failure(format!(
                "the cell in {cell} has format {}, this lee knows up to {FORMAT}: use a newer lee",
                identity.format
            )));
        }
        Ok(identity)
    }

    /// The same cell in our format, where it has an older one: what is written from now on is not for older programs.
    pub fn upgraded(self) -> Option<Identity> {
        (self.format < FORMAT).then_some(Identity { format: FORMAT, ..self })
    }
}

/// Refuses a directory that is no cell of ours, or one of a newer program; an older cell gets our format.
pub(crate) fn check(dir: &Path) -> Result<Identity, Failure> {
    let path = dir.join(NAME);
    let text = std::fs::read(&path).map_err(|e| Failure {
        message: format!("{} cannot be read: {e}: is {} a cell?", path.display(), dir.display()),
        errno: e.raw_os_error().unwrap_or(0),
    })?;
    let identity = Identity::parse(&text, &path.display().to_string(), &dir.display().to_string())?;
    if let Some(upgraded) = identity.clone().upgraded() {
        write(dir, &upgraded)?;
    }
    Ok(identity)
}

/// Writes the file that makes a directory a cell, whole or not at all.
pub(crate) fn write(dir: &Path, identity: &Identity) -> Result<(), Failure> {
    let at = |e: std::io::Error| Failure {
        message: format!("cannot write {}: {e}", dir.join(NAME).display()),
        errno: e.raw_os_error().unwrap_or(0),
    };
    let text = identity.to_text()?;
    let disk = RealDisk::new(dir);
    let file = disk.create("cell.new", leeward_env::disk::Caching::Buffered).map_err(at)?;
    file.write_at(0, text.as_bytes()).and_then(|()| file.sync()).map_err(at)?;
    disk.rename("cell.new", NAME).and_then(|()| disk.sync_dir("")).map_err(at)
}
