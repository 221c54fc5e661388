//! Work on its own files that `lsm-tree` leaves to its caller.
//!
//! * Before opening: names are made durable. Recovery removes files that the current manifest does
//!   not name, so a power cut must not take the manifest back that it reads. The manifest is
//!   compared with its checksum.
//! * When it does not open, or cannot be read: which file is damaged. When it opens: that each
//!   table is in the file of its number.
//! * After a flush or compaction that failed for lack of space: its unfinished tables are removed.

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

/// Refuses tables without a manifest: they are no new tree, which would remove them.
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

/// The first table of the manifest whose content is not what was written, and what is wrong. Reads
/// all tables to their ends.
pub(super) fn damaged_table(dir: &Path) -> Option<String> {
    let current = fs::read(dir.join(CURRENT)).ok()?;
    let version = u64::from_le_bytes(current.get(..8)?.try_into().ok()?);
    for (id, checksum) in tables_of(&dir.join(format!("v{version}"))).ok()? {
        let what = match checksum_of(&dir.join(TABLES).join(id.to_string())) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => "is missing",
            Err(_) => continue,
            Ok((0, _)) => "is empty",
            Ok((_, found)) if found != checksum => "is damaged, or cut off",
            Ok(_) => continue,
        };
        return Some(format!("files of the tables: the table `{TABLES}/{id}` {what}"));
    }
    None
}

/// Length of a file, and its checksum as in a manifest.
fn checksum_of(path: &Path) -> io::Result<(u64, u128)> {
    let mut hasher = ChecksummedWriter::new(io::sink());
    let bytes = io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok((bytes, hasher.checksum().into_u128()))
}

/// Numbers and checksums of the tables that a manifest names. Format: levels u8; for each, runs u8;
/// for each, tables u32; for each, number u64, kind of checksum u8, checksum u128, sequence number
/// u64.
fn tables_of(manifest: &Path) -> io::Result<Vec<(u64, u128)>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let archive = sfa::Reader::new(manifest).map_err(|_| invalid())?;
    let mut reader = archive.toc().section(b"tables").ok_or_else(invalid)?.buf_reader(manifest)?;
    let (mut byte, mut count) = ([0; 1], [0; 4]);
    let mut tables = Vec::new();
    reader.read_exact(&mut byte)?;
    for _ in 0..byte[0] {
        reader.read_exact(&mut byte)?;
        for _ in 0..byte[0] {
            reader.read_exact(&mut count)?;
            for _ in 0..u32::from_le_bytes(count) {
                tables.push(table_of(&mut reader)?);
            }
        }
    }
    Ok(tables)
}

fn table_of(reader: &mut impl Read) -> io::Result<(u64, u128)> {
    let (mut id, mut kind, mut checksum, mut seq) = ([0; 8], [0; 1], [0; 16], [0; 8]);
    reader.read_exact(&mut id)?;
    reader.read_exact(&mut kind)?;
    reader.read_exact(&mut checksum)?;
    reader.read_exact(&mut seq)?;
    Ok((u64::from_le_bytes(id), u128::from_le_bytes(checksum)))
}

/// The tree finds a table by the number in it and removes it by the name of its file: both must
/// agree.
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
