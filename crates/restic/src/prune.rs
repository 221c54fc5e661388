//! Removes from a repository what no snapshot refers to.
//!
//! All trees of all snapshots are read, and what they refer to is marked. Packs of which nothing is
//! needed go; of those that waste much, or are small and many, what is needed is stored again. In
//! this order: new packs and an index that names all packs which stay; then the indexes before go;
//! then packs. So whatever ends it leaves a repository that is whole, and some packs that nothing
//! names, which go the next time. Each of these is durable before the next.

use crate::files::UNFINISHED;
use crate::index::IndexFile;
use crate::lock::Lock;
use crate::pack::{self, Blob, BlobKind, PACK_BYTES};
use crate::repository::Repository;
use crate::saver::Saver;
use crate::{Error, ErrorKind, Id, Result, Watch};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A pack that wastes a larger part is stored again: one in so many.
const WASTE: u64 = 4;
/// A pack that is smaller than this part is small; more small ones than these become fewer.
const SMALL: u64 = 4;
const SMALL_MAX: usize = 20;
/// Blobs that an index names.
const INDEX_BLOBS: usize = 40_000;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Packs that were removed.
    pub packs: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Of these, bytes that were stored again.
    pub again_bytes: u64,
}

/// What becomes of a pack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    IsStoredAgain,
}

/// Removes what no snapshot refers to. The lock excludes all others.
///
/// # Errors
/// Damaged; the place's; Stopped.
pub fn prune(repository: &Arc<Repository>, lock: &Lock, watch: &dyn Watch) -> Result<Pruned> {
    for dir in ["index", "keys", "snapshots"] {
        remove_unfinished(repository, dir)?;
    }
    // no power cut may bring a snapshot back whose packs are gone
    repository.files.settle_removals("snapshots")?;
    if let Some(e) = repository.load_index_of_what_is_there()?.damaged.into_iter().next() {
        return Err(e);
    }
    mark(repository, watch)?;
    let mut fates = fates(repository)?;
    let mut pruned = Pruned::default();
    // where there is little room it is for what follows
    remove_packs(repository, &mut pruned, lock, watch)?;
    if fates.values().any(|fate| *fate != Fate::Stays) {
        let before = repository.index_files.lock().clone();
        pruned.again_bytes = match store_again(repository, &fates, lock, watch) {
            Err(e) if e.kind == ErrorKind::Full => {
                // what goes makes room, and what wastes some stays until there is
                fates.values_mut().filter(|f| **f == Fate::IsStoredAgain).for_each(|f| *f = Fate::Stays);
                0
            }
            stored => stored?,
        };
        lock.need()?;
        write_index(repository, &before, &fates)?;
        watch.go_on().and_then(|()| lock.need())?;
        before.iter().try_for_each(|id| repository.files.remove(&format!("index/{id}")))?;
        repository.files.settle_removals("index")?;
    }
    repository.load_index()?;
    watch.go_on().and_then(|()| lock.need())?;
    remove_packs(repository, &mut pruned, lock, watch)?;
    Ok(pruned)
}

/// Marks what snapshots refer to.
fn mark(repository: &Repository, watch: &dyn Watch) -> Result<()> {
    let mut waiting: Vec<Id> =
        repository.snapshots()?.into_iter().map(|(_, snapshot)| snapshot.tree).collect();
    let mut done = 0;
    while let Some(tree) = waiting.pop() {
        watch.go_on()?;
        if !mark_blob(repository, BlobKind::Tree, &tree)? {
            continue;
        }
        done += 1;
        watch.report("directories that are needed", done, 0);
        repository.tree(&tree, &mut |node| {
            for chunk in node.content.iter().flatten() {
                mark_blob(repository, BlobKind::Data, chunk)?;
            }
            waiting.extend(node.subtree);
            Ok(())
        })?;
    }
    Ok(())
}

/// False: it was marked already.
fn mark_blob(repository: &Repository, kind: BlobKind, id: &Id) -> Result<bool> {
    repository.index.lock().mark(kind, id).ok_or_else(|| {
        let text = format!(
            "the repository {} lacks blob {id}, and nothing is removed from it: run lee backup check",
            repository.place()
        );
        Error::damaged(text)
    })
}

fn fates(repository: &Repository) -> Result<FxHashMap<Id, Fate>> {
    let mut fates = FxHashMap::default();
    let mut small: [Vec<Id>; 2] = Default::default();
    let files = repository.index_files.lock().clone();
    for file in files {
        repository.read_index(&file, |pack, blobs| {
            let index = repository.index.lock();
            let sum = |wanted: bool| {
                let of = blobs.iter().filter(|b| index.is_needed_in(&pack, b) == wanted);
                of.map(|b| u64::from(b.len)).sum::<u64>()
            };
            let (needed, wasted) = (sum(true), sum(false));
            let fate = match needed {
                0 => Fate::Goes,
                _ if wasted > (needed + wasted) / WASTE => Fate::IsStoredAgain,
                _ => Fate::Stays,
            };
            // it may be in several indexes
            if fates.insert(pack, fate).is_none()
                && fate == Fate::Stays
                && needed + wasted < PACK_BYTES as u64 / SMALL
                && let Some(first) = blobs.first()
            {
                small[first.kind as usize].push(pack);
            }
        })?;
    }
    for small in small.into_iter().filter(|small| small.len() > SMALL_MAX) {
        fates.extend(small.into_iter().map(|pack| (pack, Fate::IsStoredAgain)));
    }
    Ok(fates)
}

/// Stores what is needed of packs that go. Returns the bytes.
fn store_again(
    repository: &Arc<Repository>,
    fates: &FxHashMap<Id, Fate>,
    lock: &Lock,
    watch: &dyn Watch,
) -> Result<u64> {
    let mut saver = Saver::new(repository)?.under(lock);
    let mut done = BTreeSet::new();
    let total = fates.values().filter(|fate| **fate == Fate::IsStoredAgain).count() as u64;
    let files = repository.index_files.lock().clone();
    for file in files {
        let mut packs = Vec::new();
        repository.read_index(&file, |pack, blobs| {
            if fates.get(&pack) == Some(&Fate::IsStoredAgain) && done.insert(pack) {
                packs.push((pack, blobs));
            }
        })?;
        for (pack, blobs) in packs {
            watch.go_on()?;
            watch.report("packs", done.len() as u64, total);
            store_pack_again(repository, &mut saver, &pack, &blobs)?;
        }
    }
    saver.finish()
}

fn store_pack_again(repository: &Repository, saver: &mut Saver, pack: &Id, blobs: &[Blob]) -> Result<()> {
    let bytes = repository.files.get(&pack.pack_name())?;
    let bytes =
        bytes.ok_or_else(|| Error::damaged(format!("pack {pack} is missing: run lee backup check")))?;
    for blob in blobs {
        if !repository.index.lock().is_needed_in(pack, blob) {
            continue;
        }
        let from = blob.offset as usize;
        let sealed = bytes.get(from..from + blob.len as usize).unwrap_or_default();
        pack::open_blob(&repository.key, blob, sealed.to_vec())?;
        saver.put_sealed(blob.kind, blob.id, sealed, blob.plain_len)?;
    }
    Ok(())
}

/// Names all packs that stay, and were in these indexes.
fn write_index(repository: &Repository, before: &[Id], fates: &FxHashMap<Id, Fate>) -> Result<()> {
    let (mut next, mut count, mut named) = (IndexFile::default(), 0, BTreeSet::new());
    for file in before {
        let mut full = Vec::new();
        repository.read_index(file, |pack, blobs| {
            if fates.get(&pack) == Some(&Fate::Stays) && named.insert(pack) {
                next.add(pack, &blobs);
                count += blobs.len();
            }
            if count >= INDEX_BLOBS {
                count = 0;
                full.push(std::mem::take(&mut next));
            }
        })?;
        full.iter().try_for_each(|index| repository.put_json("index", index).map(drop))?;
    }
    if count > 0 { repository.put_json("index", &next).map(drop) } else { Ok(()) }
}

/// Removes what processes were writing that have ended: nobody writes there under this lock.
fn remove_unfinished(repository: &Repository, dir: &str) -> Result<()> {
    let all = repository.files.list(dir)?.into_iter();
    let mut unfinished = all.filter(|(name, _)| name.ends_with(UNFINISHED));
    unfinished.try_for_each(|(name, _)| repository.files.remove(&format!("{dir}/{name}")))
}

/// Removes packs that no index names.
fn remove_packs(repository: &Repository, pruned: &mut Pruned, lock: &Lock, watch: &dyn Watch) -> Result<()> {
    let named: BTreeSet<Id> = repository.index.lock().packs().iter().copied().collect();
    for (name, len) in repository.files.list("data")? {
        let Some(id) = Id::parse(&name) else {
            // what a process was writing that has ended
            if let Some((dir, true)) = name.get(..2).map(|dir| (dir, name.ends_with(UNFINISHED))) {
                repository.files.remove(&format!("data/{dir}/{name}"))?;
            }
            continue;
        };
        if named.contains(&id) {
            continue;
        }
        watch.go_on().and_then(|()| lock.need())?;
        repository.files.remove(&id.pack_name())?;
        pruned.packs += 1;
        pruned.bytes += len;
        watch.report("packs removed", pruned.packs, 0);
    }
    Ok(())
}
