//! What `lsm-tree` leaves to its caller about its own files.
//!
//! * Before opening: names must be durable (recovery removes files that the current manifest does not name, so the
//!   manifest it reads must not be taken back by a power cut), and the manifest is compared with its checksum.
//! * When it does not open: which file is to blame. When it does: that each table is in the file of its number.
//! * After a flush or compaction that failed for want of space: its unfinished tables are removed.

use crate::{Error, Result};
use lsm_tree::checksum::ChecksummedWriter;
use std::fs::{self, File};
use std::io::{self, Read, Write};
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
    let pointer: &[u8; 25] = (current.as_slice().try_into())
        .map_err(|_| damaged(format!("`{CURRENT}` has {} bytes in place of 25", current.len())))?;
    let version = u64::from_le_bytes(pointer[..8].try_into().unwrap_or_default());
    let expected = u128::from_le_bytes(pointer[8..24].try_into().unwrap_or_default());
    let manifest = match fs::read(dir.join(format!("v{version}"))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(damaged(format!("`{CURRENT}` names the manifest `v{version}`, which is missing")));
        }
        other => other?,
    };
    let mut hasher = ChecksummedWriter::new(io::sink());
    hasher.write_all(&manifest)?;
    if hasher.checksum().into_u128() != expected || pointer[24] != 0 {
        return Err(damaged(format!("the manifest `v{version}` and its checksum in `{CURRENT}` differ")));
    }
    Ok(())
}

fn damaged(what: String) -> Error {
    Error::Corrupt(format!("files of the tables: {what}"))
}

/// Tables without a manifest are not a new tree: it would remove them.
fn check_new(dir: &Path) -> Result<()> {
    match fs::read_dir(dir.join(TABLES)) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(damaged(format!("`{CURRENT}`, which names the manifest, is missing"))),
            None => Ok(()),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// After an opening that failed: the first table of the manifest that is not whole, as far as its end tells.
pub(super) fn damaged_table(dir: &Path) -> Option<Error> {
    let current = fs::read(dir.join(CURRENT)).ok()?;
    let version = u64::from_le_bytes(current.get(..8)?.try_into().ok()?);
    for id in tables_of(&dir.join(format!("v{version}"))).ok()? {
        let path = dir.join(TABLES).join(id.to_string());
        let what = match fs::metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => "missing",
            Err(_) => continue,
            Ok(meta) if meta.len() == 0 => "empty",
            Ok(_) if sfa::Reader::new(&path).is_err() => "damaged at its end, or cut off",
            Ok(_) => continue,
        };
        return Some(damaged(format!("the table `{TABLES}/{id}` is {what}")));
    }
    None
}

/// Numbers of the tables that a manifest names: levels u8, of each runs u8, of each tables u32, of each number u64,
/// kind of checksum u8, checksum u128, sequence number u64.
fn tables_of(manifest: &Path) -> io::Result<Vec<u64>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let archive = sfa::Reader::new(manifest).map_err(|_| invalid())?;
    let mut reader = archive.toc().section(b"tables").ok_or_else(invalid)?.buf_reader(manifest)?;
    let (mut byte, mut count, mut entry) = ([0; 1], [0; 4], [0; 33]);
    let mut ids = Vec::new();
    reader.read_exact(&mut byte)?;
    for _ in 0..byte[0] {
        reader.read_exact(&mut byte)?;
        for _ in 0..byte[0] {
            reader.read_exact(&mut count)?;
            for _ in 0..u32::from_le_bytes(count) {
                reader.read_exact(&mut entry)?;
                ids.extend(entry.first_chunk().map(|id| u64::from_le_bytes(*id)));
            }
        }
    }
    Ok(ids)
}

/// The tree finds a table by the number in it and removes it by the name of its file: both must be one.
pub(super) fn check_name(path: &Path, id: u64) -> Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name == id.to_string() { Ok(()) } else { Err(damaged(format!("`{TABLES}/{name}` is table {id}"))) }
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
