//! The file that makes a directory, or a prefix of a bucket, a cell: a page of JSON named `cell`,
//! written last. While the cell is being made the file is `cell.new`, written first. A directory
//! with neither of them has nothing of ours.

use crate::admin::failure::Failure;
use crate::format::versions::FORMAT;
use leeward_env::Env;
use leeward_env::disk::Disk;
use leeward_env::disk::held::HeldDir;
use leeward_env::disk::real::RealDisk;
use leeward_fs::SHARDS_MAX;
use serde::{Deserialize, Serialize};

/// Name of the file that has the identity.
pub(crate) const NAME: &str = "cell";
/// Name of that file while the cell is being made, or gets another format.
pub(crate) const NEW: &str = "cell.new";

pub(crate) fn failure(message: String) -> Failure {
    Failure { message, errno: 0 }
}

/// The identity of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    leeward: String,
    /// The format, see [`FORMAT`].
    pub format: u32,
    /// 32 hex digits, also in the labels of stores.
    pub id: String,
    created_secs: i64,
    /// How many shards it has.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub shards: usize,
}

fn one() -> usize {
    1
}

fn is_one(shards: &usize) -> bool {
    *shards == 1
}

impl Identity {
    /// The identity of a new cell.
    pub fn new(env: &Env) -> Identity {
        Identity {
            leeward: "cell".into(),
            format: FORMAT,
            id: format!("{:016x}{:016x}", env.random(), env.random()),
            created_secs: (env.wall() / 1_000_000_000) as i64,
            shards: 1,
        }
    }

    /// The stored form.
    pub fn to_text(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self).map_err(|e| failure(e.to_string()))? + "\n")
    }

    /// Parses the stored form; `at` is where it was read from, `cell` the cell's name for messages.
    /// Refuses a newer format.
    pub fn parse(text: &[u8], at: &str, cell: &str) -> Result<Identity, Failure> {
        let identity: Identity = serde_json::from_slice(text)
            .map_err(|e| failure(format!("{at} is damaged ({e}): restore it from a backup")))?;
        if !(1..=SHARDS_MAX).contains(&identity.shards) {
            return Err(failure(format!(
                "{at} is damaged ({} shards): restore it from a backup",
                identity.shards
            )));
        }
        if identity.format > FORMAT {
            return Err(failure(format!(
                "the cell in {cell} has format {}, this lee knows up to {FORMAT}: use a newer lee",
                identity.format
            )));
        }
        Ok(identity)
    }

    /// The same cell with so many shards.
    pub fn of_shards(&self, shards: usize) -> Identity {
        Identity { shards, ..self.clone() }
    }

    /// The same cell in this format, if it has an older one: programs that do not know that cannot
    /// read what is written from now on.
    pub fn raised(&self, format: u32) -> Option<Identity> {
        (self.format < format).then(|| Identity { format, ..self.clone() })
    }
}

/// Refuses a directory that is no cell of ours, or one of a newer program.
pub(crate) fn check(dir: &HeldDir) -> Result<Identity, Failure> {
    let (path, name) = (dir.name().join(NAME), dir.name().display());
    let text = std::fs::read(dir.path().join(NAME)).map_err(|e| Failure {
        message: format!("{} cannot be read: {e}: is {name} a cell?", path.display()),
        errno: e.raw_os_error().unwrap_or(0),
    })?;
    Identity::parse(&text, &path.display().to_string(), &name.to_string())
}

/// Gives an older cell this format. Durably: a process that was killed may have renamed the file,
/// and not synced the name.
pub(crate) fn raise(dir: &HeldDir, identity: &Identity, format: u32) -> Result<(), Failure> {
    let Some(raised) = identity.raised(format) else {
        let synced = RealDisk::open(dir.path()).and_then(|disk| disk.sync_dir(""));
        return synced.map_err(|e| unwritten(dir, NAME, &e));
    };
    replace(dir, &raised)
}

/// Gives a cell, durably, another identity.
pub(crate) fn replace(dir: &HeldDir, identity: &Identity) -> Result<(), Failure> {
    begin(dir, identity)?;
    finish(dir)
}

/// Whether the creation of a cell was begun here and not finished.
pub(crate) fn is_begun(dir: &HeldDir) -> bool {
    let text = std::fs::read(dir.path().join(NEW));
    text.is_ok_and(|text| serde_json::from_slice::<Identity>(&text).is_ok())
}

/// Records, durably, that the directory will be a cell.
pub(crate) fn begin(dir: &HeldDir, identity: &Identity) -> Result<(), Failure> {
    let text = identity.to_text()?;
    let write = || {
        let disk = RealDisk::open(dir.path())?;
        let file = disk.create(NEW, leeward_env::disk::Caching::Buffered)?;
        file.write_at(0, text.as_bytes()).and_then(|()| file.sync())?;
        disk.sync_dir("")
    };
    write().map_err(|e| unwritten(dir, NEW, &e))
}

/// Makes durable what another process has recorded, which may have been killed before it synced it.
pub(crate) fn begin_again(dir: &HeldDir) -> Result<(), Failure> {
    let sync = || {
        let disk = RealDisk::open(dir.path())?;
        disk.open(NEW, leeward_env::disk::Caching::Buffered)?.sync()?;
        disk.sync_dir("")
    };
    sync().map_err(|e| unwritten(dir, NEW, &e))
}

/// Completes the creation; all names in the directory are durable.
pub(crate) fn finish(dir: &HeldDir) -> Result<(), Failure> {
    let rename = || {
        let disk = RealDisk::open(dir.path())?;
        disk.sync_dir("")?;
        disk.rename(NEW, NAME).and_then(|()| disk.sync_dir(""))
    };
    rename().map_err(|e| unwritten(dir, NAME, &e))
}

fn unwritten(dir: &HeldDir, name: &str, e: &std::io::Error) -> Failure {
    Failure {
        message: format!("cannot write {}: {e}", dir.name().join(name).display()),
        errno: e.raw_os_error().unwrap_or(0),
    }
}
