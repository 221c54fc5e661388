//! Files and directories that know what was synced and what was only written.
//!
//! [`Tree::cut`] is the power cut. Every 4 KiB block, every size and every name that changed since
//! the last sync of its file or directory survives or does not, each for itself and out of order,
//! as the seed says; of several unsynced versions any may be the one that survives. A rename within
//! a directory survives whole or not at all, as every journaling file system has it, unless
//! [`Tree::half_renames`] is set: then the file may have both names, never none. Owner, mode and
//! time are durable at once; hard links to directories do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

pub const BLOCK: usize = 4096;
pub const ROOT: u64 = 1;
/// Unsynced versions of one block that are kept; the oldest of more are forgotten.
const VERSIONS_MAX: usize = 4;

type Block = Arc<[u8]>;

/// Numbers from a seed: splitmix64.
pub struct Seeded(pub u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn percent(&mut self, p: u64) -> bool {
        self.next() % 100 < p
    }
}

/// What a cut did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// Unsynced blocks, and how many of them did not survive.
    pub blocks: (u64, u64),
    /// Unsynced changes of names, likewise.
    pub names: (u64, u64),
    /// Files whose size went back.
    pub sizes: u64,
}

#[derive(Default)]
pub struct File {
    blocks: BTreeMap<u64, Block>,
    size: u64,
    kept_blocks: BTreeMap<u64, Block>,
    kept_size: u64,
    /// Of each block that was written since the last sync, its versions; `None` is zeros.
    written: BTreeMap<u64, Vec<Option<Block>>>,
    /// Each size since the last sync.
    sizes: Vec<u64>,
}

struct Change {
    /// Changes with the same number survive together.
    group: u64,
    name: OsString,
    target: Option<u64>,
}

#[derive(Default)]
pub struct Dir {
    pub names: BTreeMap<OsString, u64>,
    kept: BTreeMap<OsString, u64>,
    changes: Vec<Change>,
}

pub enum Body {
    File(File),
    Dir(Dir),
    Link(PathBuf),
    /// A socket or pipe, by its type in `st_mode`.
    Special(u32),
}

pub struct Node {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub changed: std::time::SystemTime,
    pub body: Body,
}

pub struct Tree {
    pub nodes: BTreeMap<u64, Node>,
    next: u64,
    groups: u64,
    /// Of renames since the last cut: the change that takes the old name away, and the one that
    /// makes the new name.
    halves: BTreeMap<u64, u64>,
    /// A new name survives without the old one being gone; never is the file without both.
    pub half_renames: bool,
    /// Syncs do nothing: a disk that lies. A trial that passes on it proves nothing.
    pub lies: bool,
}

impl File {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn allocated(&self) -> u64 {
        (self.blocks.len() * BLOCK) as u64
    }

    fn put(&mut self, index: u64, block: Option<Block>) {
        let versions = self.written.entry(index).or_default();
        if versions.len() == VERSIONS_MAX {
            versions.remove(0);
        }
        versions.push(block.clone());
        match block {
            Some(block) => self.blocks.insert(index, block),
            None => self.blocks.remove(&index),
        };
    }

    fn change(&mut self, index: u64, at: usize, data: &[u8]) {
        let mut block = match self.blocks.get(&index) {
            Some(block) => block.to_vec(),
            None => vec![0; BLOCK],
        };
        block[at..at + data.len()].copy_from_slice(data);
        self.put(index, Some(block.into()));
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        each_block(offset, data.len() as u64, |index, at, done, n| {
            self.change(index, at, &data[done..done + n])
        });
        self.resize_at_least(offset + data.len() as u64);
    }

    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let len = len.min(self.size.saturating_sub(offset));
        let mut out = vec![0; len as usize];
        each_block(offset, len, |index, at, done, n| {
            if let Some(block) = self.blocks.get(&index) {
                out[done..done + n].copy_from_slice(&block[at..at + n]);
            }
        });
        out
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        each_block(offset, len.min(self.size.saturating_sub(offset)), |index, at, _, n| {
            if n == BLOCK {
                self.put(index, None);
            } else if self.blocks.contains_key(&index) {
                self.change(index, at, &[0; BLOCK][..n]);
            }
        });
    }

    pub fn resize_at_least(&mut self, size: u64) {
        if size > self.size {
            self.resize(size);
        }
    }

    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            let cut = std::mem::replace(&mut self.size, u64::MAX);
            self.zero(size, cut.next_multiple_of(BLOCK as u64) - size);
        }
        self.size = size;
        self.sizes.push(size);
    }

    fn sync(&mut self) {
        for index in std::mem::take(&mut self.written).into_keys() {
            match self.blocks.get(&index) {
                Some(block) => self.kept_blocks.insert(index, block.clone()),
                None => self.kept_blocks.remove(&index),
            };
        }
        self.kept_size = self.size;
        self.sizes.clear();
    }

    fn cut(&mut self, seeded: &mut Seeded, survive: u64, lost: &mut Lost) {
        for (index, mut versions) in std::mem::take(&mut self.written) {
            lost.blocks.0 += 1;
            if !seeded.percent(survive) {
                lost.blocks.1 += 1;
                continue;
            }
            // mostly the last version
            let which = if seeded.percent(75) { versions.len() - 1 } else { seeded.below(versions.len()) };
            match versions.swap_remove(which) {
                Some(block) => self.kept_blocks.insert(index, block),
                None => self.kept_blocks.remove(&index),
            };
        }
        if !self.sizes.is_empty() && seeded.percent(survive) {
            let which =
                if seeded.percent(75) { self.sizes.len() - 1 } else { seeded.below(self.sizes.len()) };
            self.kept_size = self.sizes[which];
        }
        lost.sizes += u64::from(self.kept_size < self.size);
        self.sizes.clear();
        self.blocks = self.kept_blocks.clone();
        // nothing beyond the end: it would show when the file grows
        self.size = u64::MAX;
        let end = self.blocks.keys().next_back().map_or(0, |last| (last + 1) * BLOCK as u64);
        self.zero(self.kept_size, end.saturating_sub(self.kept_size));
        self.size = self.kept_size;
        self.written.clear();
        self.kept_blocks = self.blocks.clone();
    }
}

/// The pieces of a range: block, place in it, bytes done before, bytes.
fn each_block(offset: u64, len: u64, mut f: impl FnMut(u64, usize, usize, usize)) {
    let mut done = 0;
    while done < len {
        let at = ((offset + done) % BLOCK as u64) as usize;
        let n = (len - done).min((BLOCK - at) as u64) as usize;
        f((offset + done) / BLOCK as u64, at, done as usize, n);
        done += n as u64;
    }
}

impl Dir {
    fn set(&mut self, group: u64, name: &OsStr, target: Option<u64>) {
        match target {
            Some(ino) => self.names.insert(name.to_owned(), ino),
            None => self.names.remove(name),
        };
        self.changes.push(Change { group, name: name.to_owned(), target });
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            match self.names.get(&change.name) {
                Some(ino) => self.kept.insert(change.name, *ino),
                None => self.kept.remove(&change.name),
            };
        }
    }

    fn cut(&mut self, survives: &BTreeMap<u64, bool>, lost: &mut Lost) {
        for change in std::mem::take(&mut self.changes) {
            lost.names.0 += 1;
            if !survives[&change.group] {
                lost.names.1 += 1;
                continue;
            }
            match change.target {
                Some(ino) => self.kept.insert(change.name, ino),
                None => self.kept.remove(&change.name),
            };
        }
        self.names = self.kept.clone();
    }
}

impl Tree {
    pub fn new(root: Node) -> Tree {
        Tree {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            groups: 0,
            half_renames: false,
            halves: BTreeMap::new(),
            lies: false,
        }
    }

    pub fn file(&mut self, ino: u64) -> Option<&mut File> {
        match self.nodes.get_mut(&ino) {
            Some(Node { body: Body::File(file), .. }) => Some(file),
            _ => None,
        }
    }

    pub fn dir(&mut self, ino: u64) -> Option<&mut Dir> {
        match self.nodes.get_mut(&ino) {
            Some(Node { body: Body::Dir(dir), .. }) => Some(dir),
            _ => None,
        }
    }

    pub fn add(&mut self, parent: u64, name: &OsStr, node: Node) -> u64 {
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        let group = self.group();
        self.set(group, parent, name, Some(ino));
        ino
    }

    /// One more name for a node, or one less.
    pub fn set_name(&mut self, parent: u64, name: &OsStr, target: Option<u64>) {
        let group = self.group();
        if let Some(old) = self.dir(parent).and_then(|dir| dir.names.get(name).copied()) {
            self.count(old, -1);
        }
        if let Some(ino) = target {
            self.count(ino, 1);
        }
        self.set(group, parent, name, target);
    }

    pub fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr), ino: u64) {
        if let Some(old) = self.dir(to.0).and_then(|dir| dir.names.get(to.1).copied()) {
            self.count(old, -1);
        }
        let group = self.group();
        self.set(group, to.0, to.1, Some(ino));
        let removal = if self.half_renames { self.group() } else { group };
        self.halves.insert(removal, group);
        self.set(removal, from.0, from.1, None);
    }

    fn set(&mut self, group: u64, parent: u64, name: &OsStr, target: Option<u64>) {
        if let Some(dir) = self.dir(parent) {
            dir.set(group, name, target);
        }
    }

    fn group(&mut self) -> u64 {
        self.groups += 1;
        self.groups
    }

    fn count(&mut self, ino: u64, by: i32) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.links = node.links.saturating_add_signed(by);
        }
    }

    pub fn sync(&mut self, ino: u64) {
        if self.lies {
            return;
        }
        match self.nodes.get_mut(&ino).map(|node| &mut node.body) {
            Some(Body::File(file)) => file.sync(),
            Some(Body::Dir(dir)) => dir.sync(),
            _ => {}
        }
    }

    /// Cuts the power. How much of what was not synced survives is itself up to the seed, from
    /// nothing to nearly all.
    pub fn cut(&mut self, seed: u64) -> Lost {
        let mut seeded = Seeded(seed);
        let (mut lost, survive) = (Lost::default(), [0, 10, 50, 90][seeded.below(4)]);
        let groups: BTreeSet<u64> = (self.nodes.values())
            .filter_map(|node| if let Body::Dir(dir) = &node.body { Some(dir) } else { None })
            .flat_map(|dir| dir.changes.iter().map(|change| change.group))
            .collect();
        let mut survives: BTreeMap<u64, bool> =
            groups.into_iter().map(|group| (group, seeded.percent(survive))).collect();
        for (removal, new) in std::mem::take(&mut self.halves) {
            // a new name that is in no list any more was synced
            if survives.get(&new) == Some(&false) {
                survives.insert(removal, false);
            }
        }
        for node in self.nodes.values_mut() {
            match &mut node.body {
                Body::File(file) => file.cut(&mut seeded, survive, &mut lost),
                Body::Dir(dir) => dir.cut(&survives, &mut lost),
                _ => {}
            }
        }
        self.forget_what_has_no_name();
        lost
    }

    fn forget_what_has_no_name(&mut self) {
        let mut links = BTreeMap::from([(ROOT, 1u32)]);
        let mut waiting = vec![ROOT];
        while let Some(ino) = waiting.pop() {
            let Some(dir) = self.dir(ino) else { continue };
            for target in dir.names.values() {
                let count = links.entry(*target).or_default();
                *count += 1;
                if *count == 1 {
                    waiting.push(*target);
                }
            }
        }
        self.nodes.retain(|ino, node| {
            node.links = links.get(ino).copied().unwrap_or(0);
            node.links > 0
        });
    }

    /// Bytes that files take.
    pub fn used(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| if let Body::File(file) = &node.body { file.allocated() } else { 0 })
            .sum()
    }
}
