//! What `lsm-tree` leaves to its caller about its own files.
//!
//! * Before opening: names must be durable (recovery removes files that the current manifest does not name, so the
//!   manifest it reads must not be taken back by a power cut), and the manifest is compared with its checksum.
//! * After a flush or compaction that failed for want of space: its unfinished tables are removed.

use crate::{Error, Result};
use lsm_tree::checksum::ChecksummedWriter;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Pointer to the manifest: u64 version, u128 checksum, u8 kind of checksum. Little endian.
const CURRENT: &str = "current";
const TABLES: &str = "tables";

/// Makes the directory, and the names in it durable.
pub(super) fn settle(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    for dir in [Some(dir), Some(&*dir.join(TABLES)), dir.parent()].into_iter().flatten() {
        match File::open(if dir.as_os_str().is_empty() { Path::new(".") } else { dir }) {
            Ok(dir) => dir.sync_all()?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Compares the manifest with its checksum.
pub(super) fn check_manifest(dir: &Path) -> Result<()> {
    let current = match fs::read(dir.join(CURRENT)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return check_new(dir),
        other => other?,
    };
    let damaged = |what: &str| Error::Corrupt(format!("manifest of the tables: {what}"));
    let pointer: &[u8; 25] = current.as_slice().try_into().map_err(|_| damaged("pointer"))?;
    let version = u64::from_le_bytes(pointer[..8].try_into().unwrap_or_default());
    let expected = u128::from_le_bytes(pointer[8..24].try_into().unwrap_or_default());
    let manifest = match fs::read(dir.join(format!("v{version}"))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(damaged("missing")),
        other => other?,
    };
    let mut hasher = ChecksummedWriter::new(io::sink());
    hasher.write_all(&manifest)?;
    if hasher.checksum().into_u128() != expected || pointer[24] != 0 {
        return Err(damaged("checksum"));
    }
    Ok(())
}

/// Tables without a manifest are not a new tree: it would remove them.
fn check_new(dir: &Path) -> Result<()> {
    match fs::read_dir(dir.join(TABLES)) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(Error::Corrupt("tables without a manifest".into())),
            None => Ok(()),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Removes tables that no version names.
pub(super) fn remove_tables(dir: &Path, ids: impl Iterator<Item = u64>) {
    for id in ids {
        let path = dir.join(TABLES).join(id.to_string());
        if let Err(e) = fs::remove_file(&path)
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(?path, error = %e, "an unfinished table stays until the next opening");
        }
    }
}
