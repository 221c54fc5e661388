//! Looks whether a repository is whole: all packs are there, and all that snapshots refer to. With
//! `read_data` every byte is read and compared with its checksum.

use crate::pack::{self, Blob, BlobKind};
use crate::repository::Repository;
use crate::tree::NodeKind;
use crate::{Error, Id, Result, Watch};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many problems are told.
const TOLD_MAX: usize = 50;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Snapshots.
    pub snapshots: u64,
    /// Directories.
    pub trees: u64,
    /// Packs.
    pub packs: u64,
    /// Bytes that were read of packs.
    pub bytes_read: u64,
    /// Packs that no index names: left by what ended early, and removed by pruning.
    pub unnamed_packs: u64,
    /// How many problems there are.
    pub problem_count: u64,
    /// The first of them, in words.
    pub problems: Vec<String>,
}

impl Checked {
    fn problem(&mut self, text: String) {
        self.problem_count += 1;
        if self.problems.len() < TOLD_MAX {
            self.problems.push(text);
        }
    }
}

/// Checks a repository.
///
/// # Errors
/// The place's, Stopped; problems of the repository are told, not failed at.
pub fn check(repository: &Arc<Repository>, read_data: bool, watch: &dyn Watch) -> Result<Checked> {
    let mut found = Checked::default();
    repository.load_index_of(|_, _| true)?.into_iter().for_each(|e| found.problem(e.text));
    let there = packs(repository, &mut found)?;
    trees(repository, watch, &mut found)?;
    if read_data {
        let total = there.len() as u64;
        for (done, (pack, len)) in there.iter().enumerate() {
            watch.go_on()?;
            watch.report("packs", done as u64, total);
            match read_pack(repository, pack) {
                Err(e) if e.kind == crate::ErrorKind::Damaged => found.problem(e.text),
                Err(e) => return Err(e),
                Ok(()) => found.bytes_read += len,
            }
        }
    }
    Ok(found)
}

/// Compares indexes with what is stored; the packs that are named and there.
fn packs(repository: &Repository, found: &mut Checked) -> Result<BTreeMap<Id, u64>> {
    let listed = repository.files.list("data")?;
    let mut stored: BTreeMap<Id, u64> =
        listed.into_iter().filter_map(|(name, len)| Some((Id::parse(&name)?, len))).collect();
    let mut there = BTreeMap::new();
    let index = repository.index.lock();
    for pack in index.packs() {
        found.packs += 1;
        match stored.remove(pack) {
            None => found.problem(format!("pack {pack} is missing")),
            Some(len) if len < index.end_of(pack) => {
                found.problem(format!("pack {pack} has {len} bytes, and should have more"));
            }
            Some(len) => drop(there.insert(*pack, len)),
        }
    }
    found.unnamed_packs = stored.len() as u64;
    Ok(there)
}

/// Reads all trees, each once.
fn trees(repository: &Repository, watch: &dyn Watch, found: &mut Checked) -> Result<()> {
    let mut waiting = Vec::new();
    let (snapshots, damaged) = repository.readable_snapshots()?;
    damaged.into_iter().for_each(|e| found.problem(e.text));
    for (id, snapshot) in snapshots {
        found.snapshots += 1;
        waiting.push((snapshot.tree, format!("snapshot {}", id.short())));
    }
    while let Some((tree, of)) = waiting.pop() {
        watch.go_on()?;
        match repository.index.lock().mark(BlobKind::Tree, &tree) {
            Some(true) => found.trees += 1,
            Some(false) => continue,
            None => {
                found.problem(format!("{of}: its tree {tree} is missing"));
                continue;
            }
        }
        watch.report("directories", found.trees, 0);
        let mut problems = Vec::new();
        let read = repository.tree(&tree, &mut |node| {
            let name = node.name().unwrap_or_default();
            let path = format!("{of}/{}", leeward_transfer::printable(&String::from_utf8_lossy(&name)));
            match (node.kind, node.subtree, node.content) {
                (NodeKind::Dir, Some(subtree), _) => waiting.push((subtree, path)),
                (NodeKind::Dir, None, _) => problems.push(format!("{path}: has no tree")),
                (NodeKind::File, _, content) => {
                    let index = repository.index.lock();
                    let content = content.unwrap_or_default();
                    let sizes = content.iter().map(|id| index.size(BlobKind::Data, id)).sum::<Option<u64>>();
                    match sizes {
                        None => problems.push(format!("{path}: content is missing")),
                        Some(size) if size != node.size => {
                            problems.push(format!("{path}: has {size} bytes of {}", node.size));
                        }
                        Some(_) => (),
                    }
                }
                _ => (),
            }
            Ok(())
        });
        problems.into_iter().for_each(|problem| found.problem(problem));
        match read {
            Err(e) if e.kind == crate::ErrorKind::Damaged => found.problem(format!("{of}: {}", e.text)),
            read => read?,
        }
    }
    Ok(())
}

/// Reads a pack and compares all of it with checksums.
fn read_pack(repository: &Repository, id: &Id) -> Result<()> {
    let damaged = |why: &str| Error::damaged(format!("pack {id} {why}"));
    let bytes = repository.files.get(&id.pack_name())?.ok_or_else(|| damaged("is missing"))?;
    if Id::of(&bytes) != *id {
        return Err(damaged("is damaged: it has another checksum"));
    }
    let header = || {
        let (rest, len) = bytes.split_last_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        Some(rest[rest.len().checked_sub(len)?..].to_vec())
    };
    let header = header().ok_or_else(|| damaged("has no header"))?;
    let blobs: Vec<Blob> = pack::parse_header(&repository.key, header, id)?;
    for blob in blobs {
        let from = blob.offset as usize;
        let sealed = bytes.get(from..from + blob.len as usize).ok_or_else(|| damaged("ends early"))?;
        pack::open_blob(&repository.key, &blob, sealed.to_vec())?;
    }
    Ok(())
}
