//! A disk in memory that forgets, fails and lies on command.
//!
//! It keeps two states: what a running process sees, and what is durable. The difference is the
//! writes of each file since its last sync, and the changes of names since the last sync of their
//! directory. [`SimDisk::power_cut`] makes a new disk from the durable state and a seeded choice of
//! the rest; [`SimDisk::kill`] makes one with all of it. Every call that changes or syncs anything
//! is a *mutation*, numbered from 0, at which [`SimDisk::fail_at`] can place a fault. Reads have
//! numbers of their own ([`SimDisk::fail_read_at`]). Same calls, same seeds: same bytes.
//!
//! It is harsher than ext4 where the contract of [`super`] allows it. Unsynced writes survive
//! sector by sector in any order. Syncing a directory makes no other directory's names durable. A
//! failed write leaves half of itself. What a failed sync did not write is not retried by the next
//! one (as Linux marks such pages clean). It is kinder in one thing: a removed file's space is free
//! at once, though the file is still open.
//!
//! Lock order: the disk's state, then one file's body.

mod content;

use super::real::check_path;
use super::{Caching, Disk, DiskFile, Space};
use content::{Content, PAGE_BYTES, each_piece};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

/// The unit that a power cut keeps or loses as a whole.
const SECTOR_BYTES: u64 = 512;
/// Operations that [`SimDisk::recent`] remembers.
const RECENT_MAX: usize = 64;
/// Size of a disk without [`SimDisk::set_capacity`].
const CAPACITY_BYTES: u64 = 1 << 40;

/// What happens to one mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power goes off before it has any effect.
    CrashBefore,
    /// It takes effect as far as a running process can see, then the power goes off; the caller
    /// gets the error.
    CrashAfter,
    /// It fails with EIO; a write leaves half of itself, a sync some sectors.
    Eio,
    /// It fails with ENOSPC; a write leaves half of itself, or nothing where writes are copied.
    Enospc,
}

/// The error of every call after a crash.
#[derive(Debug, thiserror::Error)]
#[error("power is off")]
pub struct PowerOff;

/// Whether an error says that the simulated power is off.
pub fn is_power_off(e: &io::Error) -> bool {
    e.get_ref().is_some_and(|inner| inner.is::<PowerOff>())
}

fn power_off_error() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, PowerOff)
}

fn os_error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// The simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<SimState>>);

struct SimState {
    seed: u64,
    rng: Rng,
    power_on: bool,
    mutations: u64,
    faults: BTreeMap<u64, Fault>,
    reads: u64,
    read_faults: BTreeSet<u64>,
    unreadable: Vec<String>,
    recent: VecDeque<String>,
    capacity_pages: u64,
    copies_on_write: bool,
    used_pages: u64,
    inode_next: u64,
    names: Names,
    durable: Names,
    unsynced: Vec<NameChange>,
}

type Names = BTreeMap<Name, Node>;

/// A path, cut so that one directory's names are neighbours.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    dir: String,
    leaf: String,
}

#[derive(Clone)]
enum Node {
    Dir,
    File(Arc<Inode>),
}

struct Inode {
    id: u64,
    body: Mutex<Body>,
}

#[derive(Clone, Default)]
struct Body {
    now: Content,
    durable: Content,
    unsynced: Vec<Change>,
    /// The pages of a file without a name are not counted.
    unlinked: bool,
}

/// One change of a file's content.
#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    Length(u64),
    Reserve(u64),
}

/// One change of names; a rename is one change, so that it is atomic.
#[derive(Clone)]
enum NameChange {
    Link(Name, Node),
    Unlink(Name),
    Rename { from: Name, to: Name, node: Node },
}

impl SimDisk {
    /// An empty disk. The seed decides what failing calls leave behind, and is mixed into that of
    /// power cuts.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(SimState {
            seed,
            rng: Rng(seed),
            power_on: true,
            mutations: 0,
            faults: BTreeMap::new(),
            reads: 0,
            read_faults: BTreeSet::new(),
            unreadable: Vec::new(),
            recent: VecDeque::new(),
            capacity_pages: CAPACITY_BYTES / PAGE_BYTES,
            copies_on_write: false,
            used_pages: 0,
            inode_next: 0,
            names: Names::new(),
            durable: Names::new(),
            unsynced: Vec::new(),
        })))
    }

    /// How many mutations (create, write, truncate, allocate, rename, remove, sync, sync_dir) were
    /// tried so far: the number of the next one.
    pub fn mutations(&self) -> u64 {
        self.0.lock().mutations
    }

    /// Places a fault at mutation number `n` (the first one is 0).
    pub fn fail_at(&self, n: u64, fault: Fault) {
        self.0.lock().faults.insert(n, fault);
    }

    /// How many reads (open, list, list_dirs, read, length, space) were tried so far: the number of
    /// the next one.
    pub fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    /// Makes read number `n` (the first one is 0) fail with EIO.
    pub fn fail_read_at(&self, n: u64) {
        self.0.lock().read_faults.insert(n);
    }

    /// Reads of files opened under a path that starts so fail with EIO, until [`SimDisk::heal`].
    pub fn fail_reads(&self, path_prefix: &str) {
        self.0.lock().unreadable.push(path_prefix.to_string());
    }

    /// Removes faults that did not happen yet, and failing reads.
    pub fn heal(&self) {
        let mut state = self.0.lock();
        state.faults.clear();
        state.read_faults.clear();
        state.unreadable.clear();
    }

    /// Everything fails from here on, as after a crash.
    pub fn power_off(&self) {
        self.0.lock().power_on = false;
    }

    /// The space of the disk, in bytes; rounded down to pages of 4096. It may be less than what is
    /// used.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity_pages = bytes / PAGE_BYTES;
    }

    /// From now on overwriting needs as much free space as writing anew, for as long as it takes. A
    /// write that does not get it leaves nothing.
    pub fn copy_on_write(&self) {
        self.0.lock().copies_on_write = true;
    }

    /// Inverts the lowest bit of the byte at `offset`, on the medium as in memory.
    ///
    /// # Errors
    /// NotFound; InvalidInput where the file has no such byte.
    pub fn flip_bit(&self, path: &str, offset: u64) -> io::Result<()> {
        let inode = self.0.lock().file(&Name::parse(path)?)?;
        let mut body = inode.body.lock();
        body.durable.flip(offset);
        if body.now.flip(offset) { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// The last mutations, oldest first, as `number: call`. To explain a failed test.
    pub fn recent(&self) -> Vec<String> {
        self.0.lock().recent.iter().cloned().collect()
    }

    /// A new disk, without faults, with what a power cut now would leave: everything synced, and a
    /// seeded choice of the rest. Per cut the choice ranges from "all lost" to "all kept".
    pub fn power_cut(&self, seed: u64) -> SimDisk {
        let state = self.0.lock();
        let mut rng = Rng(state.seed ^ Rng(seed).next());
        let mut names = state.durable.clone();
        let odds = rng.odds();
        for change in &state.unsynced {
            if rng.keeps(odds) {
                change.apply(&mut names);
            }
        }
        lose_orphans(&mut names);
        let mut copies = Copies::default();
        for node in names.values_mut() {
            copies.replace(node, |body| body.after_cut(&mut rng));
        }
        let cut = SimDisk::new(rng.next());
        cut.0.lock().start_with(&state, names.clone(), names, Vec::new());
        cut
    }

    /// A new disk, without faults, as the next process finds it when this one died and the machine
    /// did not: everything that was written, synced or not.
    pub fn kill(&self) -> SimDisk {
        let state = self.0.lock();
        let (mut names, mut durable) = (state.names.clone(), state.durable.clone());
        let mut unsynced = state.unsynced.clone();
        let mut copies = Copies::default();
        let nodes = names.values_mut().chain(durable.values_mut());
        for node in nodes.chain(unsynced.iter_mut().filter_map(NameChange::node_mut)) {
            copies.replace(node, Body::clone);
        }
        let next = SimDisk::new(state.seed);
        next.0.lock().start_with(&state, names, durable, unsynced);
        next
    }

    /// Counts a mutation, then carries it out, or its fault; `torn` is what a failing call leaves
    /// behind.
    fn mutate<T>(
        &self,
        call: fmt::Arguments<'_>,
        effect: impl FnOnce(&mut SimState) -> io::Result<T>,
        torn: impl FnOnce(&mut SimState),
    ) -> io::Result<T> {
        let state = &mut *self.0.lock();
        match state.begin(call)? {
            None => effect(state),
            Some(Fault::CrashBefore) => {
                state.power_on = false;
                Err(power_off_error())
            }
            Some(Fault::CrashAfter) => {
                let _ = effect(state); // nobody is there to hear how it went
                state.power_on = false;
                Err(power_off_error())
            }
            Some(Fault::Eio) => {
                torn(state);
                Err(os_error(libc::EIO))
            }
            Some(Fault::Enospc) => {
                torn(state);
                Err(os_error(libc::ENOSPC))
            }
        }
    }

    fn change_names<T>(
        &self,
        call: fmt::Arguments<'_>,
        effect: impl FnOnce(&mut SimState) -> io::Result<T>,
    ) -> io::Result<T> {
        self.mutate(call, effect, |_| ())
    }

    fn handle(&self, path: &str, inode: Arc<Inode>) -> Box<dyn DiskFile> {
        Box::new(SimFile { disk: self.clone(), path: path.to_string(), inode })
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str, _: Caching) -> io::Result<Box<dyn DiskFile>> {
        let name = Name::parse(path)?;
        let inode = self.0.lock().read()?.file(&name)?;
        Ok(self.handle(path, inode))
    }

    fn create(&self, path: &str, _: Caching) -> io::Result<Box<dyn DiskFile>> {
        let name = Name::parse(path)?;
        let inode = self.change_names(format_args!("create {path}"), |state| state.create(name))?;
        Ok(self.handle(path, inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (old, new) = (Name::parse(from)?, Name::parse(to)?);
        self.change_names(format_args!("rename {from} {to}"), |state| state.rename(old, new))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let name = Name::parse(path)?;
        self.change_names(format_args!("remove {path}"), |state| state.remove(name))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        let dir = normal(dir)?;
        let mut state = self.0.lock();
        let files = state.read()?.children(&dir).filter_map(|(leaf, node)| match node {
            Node::File(inode) => Some((leaf.to_string(), inode.body.lock().now.len())),
            Node::Dir => None,
        });
        Ok(files.collect())
    }

    fn list_dirs(&self, dir: &str) -> io::Result<Vec<String>> {
        let dir = normal(dir)?;
        let mut state = self.0.lock();
        let all = state.read()?.children(&dir);
        Ok(all.filter(|(_, node)| matches!(node, Node::Dir)).map(|(leaf, _)| leaf.to_string()).collect())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let path = normal(dir)?;
        self.change_names(format_args!("sync_dir {dir}"), |state| state.sync_dir(&path))
    }

    fn space(&self) -> io::Result<Space> {
        let mut state = self.0.lock();
        let state = state.read()?;
        Ok(Space {
            total_bytes: state.capacity_pages * PAGE_BYTES,
            available_bytes: state.free_pages() * PAGE_BYTES,
            ..Space::default()
        })
    }
}

struct SimFile {
    disk: SimDisk,
    path: String,
    inode: Arc<Inode>,
}

impl SimFile {
    fn mutate(
        &self,
        call: fmt::Arguments<'_>,
        effect: impl FnOnce(&mut SimState, &mut Body) -> io::Result<()>,
        torn: impl FnOnce(&mut SimState, &mut Body),
    ) -> io::Result<()> {
        self.disk.mutate(
            format_args!("{call} {}", self.path),
            |state| effect(state, &mut self.inode.body.lock()),
            |state| torn(state, &mut self.inode.body.lock()),
        )
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.0.lock();
        if state.read()?.unreadable.iter().any(|prefix| self.path.starts_with(prefix.as_str())) {
            return Err(os_error(libc::EIO));
        }
        Ok(self.inode.body.lock().now.read(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let half = buf.len() / 2 / SECTOR_BYTES as usize * SECTOR_BYTES as usize;
        self.mutate(
            format_args!("write {}@{offset}", buf.len()),
            |state, body| state.write(body, offset, buf),
            |state, body| {
                if !state.copies_on_write {
                    let _ = state.write(body, offset, &buf[..half]); // the call fails in any case
                }
            },
        )
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.mutate(
            format_args!("allocate {len}"),
            |state, body| {
                if body.now.holes_below(len) > state.free_pages() && !body.unlinked {
                    return Err(os_error(libc::ENOSPC));
                }
                state.change(body, Change::Reserve(len));
                Ok(())
            },
            |_, _| (),
        )
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.mutate(
            format_args!("truncate {len}"),
            |state, body| {
                state.change(body, Change::Length(len));
                Ok(())
            },
            |_, _| (),
        )
    }

    fn sync(&self) -> io::Result<()> {
        self.mutate(
            format_args!("sync"),
            |_, body| {
                body.sync();
                Ok(())
            },
            |state, body| {
                body.durable = body.after_cut(&mut state.rng).durable;
                body.unsynced.clear();
            },
        )
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.0.lock().read()?;
        Ok(self.inode.body.lock().now.len())
    }
}

impl SimState {
    fn powered(&mut self) -> io::Result<&mut SimState> {
        if self.power_on { Ok(self) } else { Err(power_off_error()) }
    }

    /// Counts a read.
    fn read(&mut self) -> io::Result<&mut SimState> {
        self.powered()?;
        let number = self.reads;
        self.reads += 1;
        if self.read_faults.remove(&number) { Err(os_error(libc::EIO)) } else { Ok(self) }
    }

    fn begin(&mut self, call: fmt::Arguments<'_>) -> io::Result<Option<Fault>> {
        self.powered()?;
        let number = self.mutations;
        self.mutations += 1;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(format!("{number}: {call}"));
        Ok(self.faults.remove(&number))
    }

    /// Copies names of another disk, and its size.
    fn start_with(&mut self, from: &SimState, names: Names, durable: Names, unsynced: Vec<NameChange>) {
        (self.capacity_pages, self.copies_on_write) = (from.capacity_pages, from.copies_on_write);
        self.inode_next = from.inode_next;
        self.used_pages =
            names.values().filter_map(Node::inode).map(|i| i.body.lock().now.page_count()).sum();
        (self.names, self.durable, self.unsynced) = (names, durable, unsynced);
    }

    fn free_pages(&self) -> u64 {
        self.capacity_pages.saturating_sub(self.used_pages)
    }

    fn children(&self, dir: &str) -> impl Iterator<Item = (&str, &Node)> {
        let first = Name { dir: dir.to_string(), leaf: String::new() };
        self.names
            .range(first.clone()..)
            .take_while(move |(name, _)| name.dir == first.dir)
            .map(|(name, node)| (name.leaf.as_str(), node))
    }

    fn file(&self, name: &Name) -> io::Result<Arc<Inode>> {
        match self.names.get(name) {
            Some(Node::File(inode)) => Ok(inode.clone()),
            Some(Node::Dir) => Err(os_error(libc::EISDIR)),
            None => Err(os_error(libc::ENOENT)),
        }
    }

    /// Records a change of names and does it.
    fn rename_to(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }

    fn create(&mut self, name: Name) -> io::Result<Arc<Inode>> {
        match self.file(&name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
            Ok(inode) => {
                self.change(&mut inode.body.lock(), Change::Length(0));
                return Ok(inode);
            }
        }
        for dir in name.ancestors() {
            match self.names.get(&dir) {
                Some(Node::Dir) => {}
                Some(Node::File(_)) => return Err(os_error(libc::ENOTDIR)),
                None => self.rename_to(NameChange::Link(dir, Node::Dir)),
            }
        }
        let inode = Arc::new(Inode { id: self.inode_next, body: Mutex::default() });
        self.inode_next += 1;
        self.rename_to(NameChange::Link(name, Node::File(inode.clone())));
        Ok(inode)
    }

    fn rename(&mut self, from: Name, to: Name) -> io::Result<()> {
        let inode = self.file(&from)?;
        self.check_dir(&to.dir)?;
        match self.file(&to) {
            Ok(old) if old.id == inode.id => return Ok(()),
            Ok(old) => self.unlinked(&old),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        self.rename_to(NameChange::Rename { from, to, node: Node::File(inode) });
        Ok(())
    }

    fn remove(&mut self, name: Name) -> io::Result<()> {
        let inode = self.file(&name)?;
        self.unlinked(&inode);
        self.rename_to(NameChange::Unlink(name));
        Ok(())
    }

    fn unlinked(&mut self, inode: &Inode) {
        let mut body = inode.body.lock();
        body.unlinked = true;
        self.used_pages -= body.now.page_count();
    }

    fn check_dir(&self, dir: &str) -> io::Result<()> {
        if dir.is_empty() {
            return Ok(());
        }
        match self.names.get(&Name::parse(dir)?) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(os_error(libc::ENOTDIR)),
            None => Err(os_error(libc::ENOENT)),
        }
    }

    /// Makes durable: the changes in `dir`, those that led to it, and earlier ones of the same
    /// names. Of a name's changes the first ones are always durable.
    fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        self.check_dir(dir)?;
        let mut wanted: Vec<Name> = Vec::new();
        if !dir.is_empty() {
            let name = Name::parse(dir)?;
            wanted.extend(name.ancestors());
            wanted.push(name);
        }
        let mut now = Vec::new();
        for change in std::mem::take(&mut self.unsynced).into_iter().rev() {
            let touched = change.names();
            if touched.iter().any(|name| name.dir == dir || wanted.contains(name)) {
                wanted.extend(touched.into_iter().cloned());
                now.push(change);
            } else {
                self.unsynced.push(change);
            }
        }
        self.unsynced.reverse();
        now.iter().rev().for_each(|change| change.apply(&mut self.durable));
        Ok(())
    }

    /// Records a change of content and does it.
    fn change(&mut self, body: &mut Body, change: Change) {
        let before = body.now.page_count();
        match &change {
            Change::Write { offset, bytes } => body.now.write(*offset, bytes),
            Change::Length(len) => body.now.set_len(*len),
            Change::Reserve(len) => body.now.reserve(*len),
        }
        body.unsynced.push(change);
        if !body.unlinked {
            self.used_pages = self.used_pages - before + body.now.page_count();
        }
    }

    /// Writes as much as fits; fails when that is not all.
    fn write(&mut self, body: &mut Body, offset: u64, buf: &[u8]) -> io::Result<()> {
        let free = if body.unlinked { u64::MAX } else { self.free_pages() };
        let fits = match self.copies_on_write {
            true if page_count(offset, buf.len()) > free => 0,
            true => buf.len(),
            false => body.now.fitting(offset, buf.len(), free),
        };
        self.change(body, Change::Write { offset, bytes: buf[..fits].into() });
        if fits == buf.len() { Ok(()) } else { Err(os_error(libc::ENOSPC)) }
    }
}

impl Body {
    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Change::Write { offset, bytes } => self.durable.adopt(&self.now, offset, bytes.len()),
                Change::Length(len) => self.durable.set_len(len),
                Change::Reserve(len) => self.durable.reserve(len),
            }
        }
    }

    /// What a power cut leaves of the content: durable, whatever it is.
    fn after_cut(&self, rng: &mut Rng) -> Body {
        let mut left = self.durable.clone();
        let odds = rng.odds();
        for change in &self.unsynced {
            match change {
                Change::Write { offset, bytes } => {
                    each_piece(*offset, bytes.len(), SECTOR_BYTES, |at, range| {
                        if rng.keeps(odds) {
                            left.write(at, &bytes[range]);
                        }
                    });
                }
                Change::Length(len) if rng.keeps(odds) => left.set_len(*len),
                Change::Reserve(len) if rng.keeps(odds) => left.reserve(*len),
                Change::Length(_) | Change::Reserve(_) => {}
            }
        }
        Body { now: left.clone(), durable: left, unsynced: Vec::new(), unlinked: false }
    }
}

impl Name {
    fn parse(path: &str) -> io::Result<Name> {
        let path = normal(path)?;
        match path.rsplit_once('/') {
            Some((dir, leaf)) => Ok(Name { dir: dir.to_string(), leaf: leaf.to_string() }),
            None if path.is_empty() => Err(io::ErrorKind::InvalidInput.into()),
            None => Ok(Name { dir: String::new(), leaf: path }),
        }
    }

    /// The directories above, from the root down.
    fn ancestors(&self) -> Vec<Name> {
        let mut dir = String::new();
        let mut all = Vec::new();
        for leaf in self.dir.split('/').filter(|leaf| !leaf.is_empty()) {
            all.push(Name { dir: dir.clone(), leaf: leaf.to_string() });
            if !dir.is_empty() {
                dir.push('/');
            }
            dir.push_str(leaf);
        }
        all
    }
}

/// Pages that a write touches.
fn page_count(offset: u64, len: usize) -> u64 {
    (offset + len as u64).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES
}

/// The one spelling of a path.
fn normal(path: &str) -> io::Result<String> {
    check_path(path)?;
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    Ok(parts.join("/"))
}

impl Node {
    fn inode(&self) -> Option<&Arc<Inode>> {
        match self {
            Node::Dir => None,
            Node::File(inode) => Some(inode),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Link(name, node) => {
                names.insert(name.clone(), node.clone());
            }
            NameChange::Unlink(name) => {
                names.remove(name);
            }
            NameChange::Rename { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), node.clone());
            }
        }
    }

    fn names(&self) -> Vec<&Name> {
        match self {
            NameChange::Link(name, _) | NameChange::Unlink(name) => vec![name],
            NameChange::Rename { from, to, .. } => vec![from, to],
        }
    }

    fn node_mut(&mut self) -> Option<&mut Node> {
        match self {
            NameChange::Link(_, node) | NameChange::Rename { node, .. } => Some(node),
            NameChange::Unlink(_) => None,
        }
    }
}

/// Drops names in directories that were lost.
fn lose_orphans(names: &mut Names) {
    let known = names.clone();
    names.retain(|name, _| name.ancestors().iter().all(|dir| known.contains_key(dir)));
}

/// Copies of inodes, so that two names of one inode stay names of one.
#[derive(Default)]
struct Copies(BTreeMap<u64, Arc<Inode>>);

impl Copies {
    fn replace(&mut self, node: &mut Node, copy: impl FnOnce(&Body) -> Body) {
        if let Node::File(inode) = node {
            let new = self.0.entry(inode.id).or_insert_with(|| {
                Arc::new(Inode { id: inode.id, body: Mutex::new(copy(&inode.body.lock())) })
            });
            *inode = new.clone();
        }
    }
}

/// splitmix64: small, and good enough to choose what is lost.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A chance in quarters, for [`Rng::keeps`]: also "none" and "all", which fair coins hardly
    /// ever give.
    fn odds(&mut self) -> u64 {
        self.next() % 5
    }

    fn keeps(&mut self, odds: u64) -> bool {
        self.next() % 4 < odds
    }
}
