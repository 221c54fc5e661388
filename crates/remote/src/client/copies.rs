//! Copies of what the server has told, for as long as leases on the inodes last.
//!
//! They answer requests without the server: attributes, names (absent ones too), lists of names,
//! extended attributes. The server takes a lease back by a recall; then the copy goes, and so does
//! what answers under way say of the inode. All copies count only while the connection is there and
//! for 5 s after the client last said so and was answered.
//!
//! Changes of this client need no recall. What they change is dropped before they are sent, and
//! what other answers say of it is not kept until they are answered. To know that, each inode and
//! each name belongs to one of a few **marks**, which note when it was last touched. Two that share
//! one only keep less. Of changes that remove or move what is behind names see `removing`.
//!
//! The front end counts references to the inodes that it knows, also where a copy answers it. The
//! server hears only of the last one that is returned.
//!
//! One lock, held for a few instructions.

mod foretell;
mod removing;

use super::content::{Ahead, Content, Found, Reading};
use super::disk::{Block, DiskContent};
use super::files;
use super::read::Fetch;
use crate::message::Leased;
use leeward_env::limits::VERSION_BLOCK_BYTES;
use leeward_env::{Ctx, Env, Nanos, limits};
use leeward_fs::leases::USED_FOR;
use leeward_fs::{Attr, Change, Entry, Error, Kind, Make, NodeId, Op, Reply, Result, Time, rights};
use parking_lot::Mutex;
use removing::Removing;
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::time::Duration;

/// Inodes with copies, at most; names in copies, at most. The oldest copies go first.
const COPIES_MAX: usize = 65_536;
const NAMES_MAX: usize = 262_144;
/// Names in a listed directory of which it is not known any more what is behind them, at most.
const CHANGED_MAX: usize = 1024;
/// Extended attributes that are kept: those that the kernel asks for by itself.
const XATTRS_KEPT: [&[u8]; 3] = [rights::ACL, rights::DEFAULT_ACL, rights::CAPABILITY];
const XATTR_BYTES_MAX: usize = 4096;
/// See the module's head.
const MARKS: usize = 4096;

/// Copies of what a server has told. Cheap to clone.
#[derive(Clone)]
pub(super) struct Copies(Arc<Shared>);

struct Shared {
    env: Env,
    state: Mutex<State>,
}

struct State {
    known: FxHashMap<NodeId, Known>,
    /// Inodes with copies, oldest first; some have none any more.
    ages: VecDeque<NodeId>,
    copies: usize,
    names: usize,
    content: Content,
    /// Until when copies count.
    until: Nanos,
    connected: bool,
    /// How often the server has taken all leases.
    term: u32,
    /// Inodes on which this client has exclusive leases, and when it has used them last.
    alone: FxHashMap<NodeId, Nanos>,
    /// Counts whatever touches a mark.
    events: u64,
    marks: Box<[Mark]>,
    removing: Removing,
}

/// An inode that the front end knows.
#[derive(Default)]
struct Known {
    /// References of the front end, and those that the server counts.
    front: u64,
    server: u64,
    /// The front end may have pages of it: it has read, and was told to keep them.
    read: bool,
    kept: bool,
    /// It was changed once before while its attributes were not known.
    lacked_attr: bool,
    /// The time of the last change that was told before the server made it.
    told_at: Time,
    copy: Option<Box<Copy>>,
}

#[derive(Default)]
struct Copy {
    attr: Option<Attr>,
    /// Bytes that are allocated, if the attributes are there and that is known.
    allocated: Option<u64>,
    /// The attributes of a file that this client alone knows and has written to, where it is not
    /// known how much is allocated: nobody is told `blocks`.
    but_blocks: Option<Attr>,
    /// Values, or that there is none.
    xattrs: Vec<(usize, Result<Box<[u8]>>)>,
    names: BTreeMap<Box<[u8]>, Option<(NodeId, Kind)>>,
    /// How far a listing has come that began at the start; all names up to there are known, but
    /// those that this client has changed since.
    listed: Listed,
    changed: BTreeSet<Box<[u8]>>,
    /// The name of its directory of snapshots, which is not listed.
    snapshot_dir: Option<Box<[u8]>>,
}

#[derive(Clone, Default, PartialEq, Eq)]
enum Listed {
    #[default]
    Nothing,
    UpTo(Box<[u8]>),
    All,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// The last event that touched it.
    last: u64,
    /// Changes of this client that are under way.
    changes: u32,
}

/// What marks stand for.
#[derive(Hash)]
enum Of<'a> {
    /// Everything of an inode: recalls touch it.
    Inode(NodeId),
    /// Its attributes.
    Attr(NodeId),
    /// What is in the file.
    Content(NodeId),
    Name(NodeId, &'a [u8]),
}

impl Copy {
    /// Whether there is no such name, as all are known.
    fn has_none(&self, name: &[u8]) -> bool {
        let is_hidden = self.snapshot_dir.as_deref().is_none_or(|hidden| hidden == name);
        let can_be_one = name != b".." && name.len() <= limits::NAME_BYTES_MAX;
        self.listed == Listed::All && can_be_one && !is_hidden && !self.changed.contains(name)
    }
}

impl Of<'_> {
    fn mark(&self) -> usize {
        let mut hasher = FxHasher::default();
        self.hash(&mut hasher);
        // the upper bits are the better ones
        (hasher.finish() >> 40) as usize % MARKS
    }
}

/// A request under way. When it is dropped its changes are over.
pub(super) struct Asked {
    copies: Copies,
    /// The last event before it was sent.
    event: u64,
    /// Marks that it changes.
    changes: Vec<usize>,
    what: What,
    references: bool,
    /// Its answer was told before: the front end has counted its references.
    is_foretold: bool,
    /// Its number among the changes that remove or move what is behind names.
    removes: Option<u64>,
    /// Where content that it reads is kept, besides.
    disk: Option<Arc<DiskContent>>,
}

/// What the front end may have kept and must drop now.
#[derive(Default)]
pub(super) struct NotKept {
    /// It gets pages of this inode of which no recall will be for.
    pub(super) pages: Option<NodeId>,
    /// Attributes of these are old.
    pub(super) attrs: Vec<NodeId>,
}

/// What is known of a range of a file that may be on disk.
pub(super) enum OnDisk {
    /// Its blocks have these versions; and the request, as if it was sent to the server.
    Blocks(Vec<Block>, Asked),
    /// Of these blocks the versions are not known.
    Unknown(Range<u64>),
    /// It is not to be looked for.
    Nothing,
}

/// What of an answer can be kept.
enum What {
    Nothing,
    Attr,
    Name(NodeId, Box<[u8]>),
    /// It makes a directory of this name.
    Dir(NodeId, Box<[u8]>),
    /// The front end has pages then. It reads from this offset on.
    Read(NodeId, u64),
    /// It reads what nobody has asked for, from this offset on.
    Ahead(NodeId, u64),
    /// Versions of content, from this block on.
    Versions(NodeId, u64),
    /// It removes a name.
    Gone(NodeId, Box<[u8]>),
    Xattr(NodeId, usize),
    List {
        dir: NodeId,
        after: Box<[u8]>,
        limit: usize,
    },
}

impl Copies {
    pub(super) fn new(env: &Env) -> Copies {
        let root = Known { front: 1, ..Known::default() };
        let state = State {
            known: FxHashMap::from_iter([(NodeId::ROOT, root)]),
            ages: VecDeque::new(),
            copies: 0,
            names: 0,
            content: Content::default(),
            until: 0,
            connected: false,
            term: 0,
            alone: FxHashMap::default(),
            events: 0,
            marks: vec![Mark::default(); MARKS].into(),
            removing: Removing::default(),
        };
        Copies(Arc::new(Shared { env: env.clone(), state: Mutex::new(state) }))
    }

    /// The answer that the copies have.
    pub(super) fn answer(&self, ctx: &Ctx, op: &Op<'_>) -> Option<Result<Reply>> {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        if !state.count(now) {
            return None;
        }
        match *op {
            Op::GetAttr { node } => state.attr(node).map(|attr| Ok(Reply::Attr(attr))),
            Op::Lookup { dir, name } => state.look_up(ctx, dir, name),
            Op::GetXattr { node, name } => {
                let which = XATTRS_KEPT.iter().position(|kept| *kept == name)?;
                let copy = state.copy(node)?;
                let (_, value) = copy.xattrs.iter().find(|(n, _)| *n == which)?;
                Some(value.clone().map(|value| Reply::Data(value.into())))
            }
            Op::List { dir, after, limit, attrs } => {
                state.list(ctx, dir, after, limit, attrs).map(|entries| Ok(Reply::Entries(entries)))
            }
            _ => None,
        }
    }

    /// A request is sent. Of what it changes there is no copy from now on.
    pub(super) fn asked(&self, ctx: &Ctx, op: &Op<'_>) -> Asked {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        let (mut changes, mut removes) = (Vec::new(), None);
        if op.changes() {
            if let Op::SetXattr { node, .. } | Op::RemoveXattr { node, .. } | Op::Link { node, .. } = *op {
                // rules apply from now on that are not foretold; where none do the answer grants it
                // again
                state.alone.remove(&node);
            }
            let names = removed_names(op);
            let behind = state.behind_names(&names);
            let is_unknown = behind.is_none();
            for change in touched(op).into_iter().chain(behind.unwrap_or_default()) {
                state.forget(&change, now);
                changes.push(change.mark());
            }
            changes = state.begin(changes);
            if !names.is_empty() {
                let of = names.iter().flat_map(|(dir, name)| [Of::Inode(*dir), Of::Name(*dir, name)]);
                removes = Some(state.removing.begin(of.map(|of| of.mark()).collect(), is_unknown));
            }
        }
        if let Op::Read { node, .. } = *op
            && let Some(known) = state.known.get_mut(&node)
        {
            known.read = true;
        }
        let references = ctx.refs && op.gives_references();
        let mut asked = Asked::new(self, state.events, changes, what(op));
        (asked.removes, asked.references) = (removes, references);
        asked
    }

    /// A read, and the calls that read ahead and are to be sent after it.
    pub(super) fn read(&self, reading: Reading) -> (Found, Vec<Ahead>) {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        if !state.count(now) || reading.node.is_view() {
            return (Found::Nothing(reading), Vec::new());
        }
        let size = state.size(reading.node);
        let (found, ahead) = state.content.read(reading, size, now);
        state.note_pages(&found);
        (found, ahead)
    }

    /// The same for a read that has waited for a call, which came to something or not.
    pub(super) fn read_again(&self, reading: Reading, came: bool) -> Found {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        if !state.count(now) {
            return Found::Nothing(reading);
        }
        let size = state.size(reading.node);
        let found = state.content.read_again(reading, size, came, now);
        state.note_pages(&found);
        found
    }

    /// A call that reads ahead is sent.
    pub(super) fn asked_ahead(&self, call: &Ahead) -> Asked {
        let event = self.0.state.lock().events;
        Asked::new(self, event, Vec::new(), What::Ahead(call.node, call.range.start))
    }

    /// Versions of content are asked for, from this block on.
    pub(super) fn asked_versions(&self, node: NodeId, block: u64) -> Asked {
        let event = self.0.state.lock().events;
        Asked::new(self, event, Vec::new(), What::Versions(node, block))
    }

    /// What is known of a range that may be on disk.
    pub(super) fn on_disk(&self, fetch: &Fetch) -> OnDisk {
        let (now, node) = (self.0.env.now(), fetch.node);
        let state = &mut *self.0.state.lock();
        let size = state.size(node).filter(|_| state.count(now) && !node.is_view());
        let Some(size) = size.filter(|size| fetch.range.start < *size) else { return OnDisk::Nothing };
        match state.content.versions(node, &fetch.range, size) {
            Err(first) => OnDisk::Unknown(first..fetch.range.end.min(size).div_ceil(VERSION_BLOCK_BYTES)),
            Ok(blocks) if blocks.iter().any(|block| block.version == 0) => OnDisk::Nothing,
            Ok(blocks) => {
                let from = fetch.range.start;
                let is_ahead = fetch.ahead.is_some();
                if let Some(known) = state.known.get_mut(&node).filter(|_| !is_ahead) {
                    known.read = true;
                }
                let what = if is_ahead { What::Ahead(node, from) } else { What::Read(node, from) };
                OnDisk::Blocks(blocks, Asked::new(self, state.events, Vec::new(), what))
            }
        }
    }

    /// It is answered. The reads that wait for it.
    pub(super) fn ahead_ended(&self, call: &Ahead) -> Vec<Reading> {
        let now = self.0.env.now();
        self.0.state.lock().content.ended(call, now)
    }

    /// Drops content that nobody has read for a while. To be called each second.
    pub(super) fn tidy(&self) {
        let now = self.0.env.now();
        let is_much_free = self.0.state.lock().content.tidy(now);
        if is_much_free {
            leeward_env::give_memory_back();
        }
    }

    /// Bytes of content that are kept or under way, and bytes that were read from what was kept.
    pub(super) fn content_figures(&self) -> (u64, u64) {
        self.0.state.lock().content.figures()
    }

    /// The front end returns references. Those that the server is to have back: leases go with the
    /// last one, so what answers under way say of these inodes is not kept.
    pub(super) fn forget(&self, all: &[(NodeId, u64)]) -> (Vec<(NodeId, u64)>, Asked) {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        let mut gone = Vec::new();
        for (node, count) in all {
            let Some(known) = state.known.get_mut(node) else { continue };
            known.front = known.front.saturating_sub(*count);
            if known.front == 0 && *node != NodeId::ROOT {
                gone.push((*node, known.server));
                state.drop_all(*node, now);
                state.known.remove(node);
                state.alone.remove(node);
            }
        }
        let changes = state.begin(gone.iter().map(|(node, _)| Of::Inode(*node).mark()).collect());
        (gone, Asked::new(self, state.events, changes, What::Nothing))
    }

    /// References that nobody takes go back, and perhaps leases with them.
    pub(super) fn unclaimed(&self, all: &[(NodeId, u64)]) -> Asked {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        all.iter().for_each(|(node, _)| state.drop_all(*node, now));
        all.iter().for_each(|(node, _)| _ = state.alone.remove(node));
        let changes = state.begin(all.iter().map(|(node, _)| Of::Inode(*node).mark()).collect());
        Asked::new(self, state.events, changes, What::Nothing)
    }

    /// How long the front end may keep attributes that it is told now.
    pub(super) fn attr_time(&self, node: NodeId) -> Duration {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        if !state.count(now) || state.attr(node).is_none() {
            return Duration::ZERO;
        }
        state.known.entry(node).and_modify(|known| known.kept = true);
        Duration::from_nanos(state.until - now)
    }

    /// The same for attributes with a name. The kernel takes a recall for what came before the
    /// answer if it knows the inode; of one that it learns of by this answer it would keep what was
    /// recalled.
    pub(super) fn entry_time(&self, node: NodeId) -> Duration {
        let is_new = self.0.state.lock().known.get(&node).is_none_or(|known| known.front <= 1);
        if is_new && node != NodeId::ROOT { Duration::ZERO } else { self.attr_time(node) }
    }

    /// The connection is there again, to a session that goes on or to a new one. All copies are
    /// gone in that case; the inodes are told, as the front end may have kept them.
    pub(super) fn connected(&self, resumed: bool) -> Vec<NodeId> {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        state.connected = true;
        if resumed {
            return Vec::new();
        }
        (state.term, state.until) = (0, 0);
        state.alone.clear();
        state.known.values_mut().for_each(|known| known.server = 0);
        state.clear(now)
    }

    /// The inodes that the front end has references to. The server is told of them, and counts one
    /// to each.
    pub(super) fn refer(&self) -> Vec<NodeId> {
        let state = &mut *self.0.state.lock();
        let known = state.known.iter_mut().filter(|(node, known)| known.front > 0 && **node != NodeId::ROOT);
        known
            .map(|(node, known)| {
                known.server += 1;
                *node
            })
            .collect()
    }

    /// The connection is lost. The inodes that the front end may keep attributes of are told.
    pub(super) fn lost(&self) -> Vec<NodeId> {
        let state = &mut *self.0.state.lock();
        state.connected = false;
        state.kept()
    }

    /// Whether copies count now.
    pub(super) fn count(&self) -> bool {
        let now = self.0.env.now();
        self.0.state.lock().count(now)
    }

    /// How often the server has taken all leases.
    pub(super) fn term(&self) -> u32 {
        self.0.state.lock().term
    }

    /// The server has answered that the client was there at this time.
    pub(super) fn renewed(&self, at: Nanos) {
        let until = &mut self.0.state.lock().until;
        *until = (*until).max(at + USED_FOR);
    }

    /// The server has taken all leases. The inodes that the front end may have kept are told.
    pub(super) fn taken(&self, term: u32) -> Vec<NodeId> {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        state.term = term;
        state.alone.clear();
        state.clear(now)
    }

    /// A recall: nothing of these inodes counts any more. Those of them that the front end may have
    /// pages of.
    pub(super) fn void(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        let marks: Vec<usize> = nodes.iter().map(|node| Of::Inode(*node).mark()).collect();
        state.touch(&marks);
        nodes.iter().for_each(|node| state.drop_all(*node, now));
        nodes.iter().for_each(|node| _ = state.alone.remove(node));
        nodes.iter().copied().filter(|node| state.take_read(*node)).collect()
    }
}

/// The bytes of an answer.
fn data_of(result: &Result<Reply>) -> &[u8] {
    match result {
        Ok(Reply::Data(bytes)) => bytes,
        _ => &[],
    }
}

/// The names of which a change removes, replaces or moves what is behind them.
fn removed_names<'a>(op: &Op<'a>) -> Vec<(NodeId, &'a [u8])> {
    match *op {
        Op::Unlink { dir, name, .. }
        | Op::RmDir { dir, name }
        | Op::Place { dir, name, .. }
        | Op::CompleteUpload { dir, name, .. } => vec![(dir, name)],
        Op::Rename { from_dir, from_name, to_dir, to_name, .. } => {
            vec![(from_dir, from_name), (to_dir, to_name)]
        }
        _ => Vec::new(),
    }
}

/// What a change touches.
fn touched<'a>(op: &Op<'a>) -> Vec<Of<'a>> {
    let mut all = Vec::new();
    let mut both = |dir: NodeId, name: &'a [u8]| all.extend([Of::Attr(dir), Of::Name(dir, name)]);
    match *op {
        Op::Make { dir, name, .. } | Op::Unlink { dir, name, .. } | Op::RmDir { dir, name } => {
            both(dir, name)
        }
        Op::Rename { from_dir, from_name, to_dir, to_name, .. } => {
            both(from_dir, from_name);
            both(to_dir, to_name);
        }
        Op::Link { node, dir, name }
        | Op::Place { node, dir, name, .. }
        | Op::CompleteUpload { node, dir, name, .. } => {
            both(dir, name);
            all.push(Of::Attr(node));
        }
        ref op => op.announce(&mut |change| {
            if let Change::Inode(node) = change {
                all.push(Of::Attr(node));
            }
        }),
    }
    all.extend(files::changed(op).map(Of::Content));
    all
}

fn what(op: &Op<'_>) -> What {
    match *op {
        Op::GetAttr { .. } | Op::SetAttr { .. } => What::Attr,
        Op::Make { dir, name, make: Make::Dir, .. } => What::Dir(dir, name.into()),
        Op::Lookup { dir, name } | Op::Make { dir, name, .. } | Op::Link { dir, name, .. } => {
            // `..` is no name of the directory
            if name == b".." || !dir.announces(name) { What::Attr } else { What::Name(dir, name.into()) }
        }
        Op::Read { node, offset, .. } => What::Read(node, offset),
        Op::Unlink { dir, name, .. } | Op::RmDir { dir, name } => What::Gone(dir, name.into()),
        Op::GetXattr { node, name } => match XATTRS_KEPT.iter().position(|kept| *kept == name) {
            Some(which) => What::Xattr(node, which),
            None => What::Nothing,
        },
        Op::List { dir, after, limit, .. } => What::List { dir, after: after.into(), limit },
        _ => What::Nothing,
    }
}

impl State {
    fn count(&self, now: Nanos) -> bool {
        self.connected && now < self.until
    }

    fn copy(&self, node: NodeId) -> Option<&Copy> {
        self.known.get(&node)?.copy.as_deref()
    }

    fn attr(&self, node: NodeId) -> Option<Attr> {
        self.copy(node)?.attr.filter(|_| !self.removing.any_unknown())
    }

    /// The size of a file.
    fn size(&self, node: NodeId) -> Option<u64> {
        self.attr(node).filter(|attr| attr.kind == Kind::File).map(|attr| attr.size)
    }

    /// The front end has pages of what it gets.
    fn note_pages(&mut self, found: &Found) {
        if let Found::Bytes(reading, _) = found
            && let Some(known) = self.known.get_mut(&reading.node)
        {
            known.read = true;
        }
    }

    fn look_up(&mut self, ctx: &Ctx, dir: NodeId, name: &[u8]) -> Option<Result<Reply>> {
        let copy = self.copy(dir)?;
        match copy.names.get(name) {
            None => copy.has_none(name).then_some(Err(Error::NotFound)),
            Some(None) => Some(Err(Error::NotFound)),
            Some(&Some((node, _))) => {
                let attr = self.attr(node)?;
                self.show(ctx, node);
                Some(Ok(Reply::Attr(attr)))
            }
        }
    }

    fn list(
        &mut self,
        ctx: &Ctx,
        dir: NodeId,
        after: &[u8],
        limit: usize,
        attrs: bool,
    ) -> Option<Vec<Entry>> {
        let is_whole = |copy: &&Copy| copy.listed == Listed::All && copy.changed.is_empty();
        let copy = self.copy(dir).filter(is_whole)?;
        let from = if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after) };
        let mut entries = Vec::new();
        for (name, found) in copy.names.range::<[u8], _>((from, Bound::Unbounded)) {
            let Some((node, kind)) = *found else { continue };
            if entries.len() == limit {
                break;
            }
            let attr = if attrs { Some(self.attr(node)?) } else { None };
            entries.push(Entry { name: name.clone(), node, kind, attr });
        }
        if attrs {
            entries.iter().for_each(|entry| self.show(ctx, entry.node));
        }
        Some(entries)
    }

    /// The front end has one more reference.
    fn show(&mut self, ctx: &Ctx, node: NodeId) {
        if ctx.refs
            && let Some(known) = self.known.get_mut(&node)
        {
            known.front += 1;
        }
    }

    fn touch(&mut self, marks: &[usize]) {
        self.events += 1;
        marks.iter().for_each(|mark| self.marks[*mark].last = self.events);
        self.removing.touched(marks);
    }

    /// Whether nothing has touched these since that event, and nothing changes them.
    fn is_quiet(&self, since: u64, of: &[Of<'_>]) -> bool {
        of.iter().map(|of| self.marks[of.mark()]).all(|mark| mark.last <= since && mark.changes == 0)
    }

    fn forget(&mut self, of: &Of<'_>, now: Nanos) {
        let node = match of {
            Of::Content(node) => return self.content.void(*node, now),
            Of::Inode(node) | Of::Attr(node) | Of::Name(node, _) => node,
        };
        let Some(copy) = self.known.get_mut(node).and_then(|known| known.copy.as_deref_mut()) else { return };
        match of {
            Of::Inode(_) => self.drop_all(*node, now),
            Of::Content(_) => (),
            Of::Attr(_) => {
                (copy.attr, copy.but_blocks) = (None, None);
                copy.xattrs.clear();
            }
            Of::Name(_, name) => {
                self.names -= usize::from(copy.names.remove(*name).is_some());
                if copy.changed.len() == CHANGED_MAX {
                    (copy.listed, copy.snapshot_dir) = (Listed::Nothing, None);
                    copy.changed.clear();
                } else if copy.listed != Listed::Nothing {
                    copy.changed.insert((*name).into());
                }
            }
        }
    }

    /// The inodes behind these names; `None`: of some name it is not known what is behind it.
    fn behind_names(&self, names: &[(NodeId, &[u8])]) -> Option<Vec<Of<'static>>> {
        let mut behind = Vec::new();
        for (dir, name) in names {
            let copy = self.copy(*dir)?;
            match copy.names.get(*name) {
                Some(found) => behind.extend(found.map(|(node, _)| Of::Attr(node))),
                None if copy.has_none(name) => (),
                None => return None,
            }
        }
        Some(behind)
    }

    /// A change that removes or moves what is behind names was not answered, or it is not known
    /// what came of it: of which inodes copies are old.
    fn not_answered(&mut self, removes: Option<u64>) {
        if removes.is_some_and(|number| self.removing.end(number)) {
            self.drop_copies();
        }
    }

    /// Inodes of which the front end may keep attributes.
    fn kept(&self) -> Vec<NodeId> {
        self.known.iter().filter(|(_, known)| known.kept).map(|(node, _)| *node).collect()
    }

    /// Changes of this client begin.
    fn begin(&mut self, marks: Vec<usize>) -> Vec<usize> {
        marks.iter().for_each(|mark| self.marks[*mark].changes += 1);
        self.touch(&marks);
        marks
    }

    /// They are over.
    fn end(&mut self, marks: &[usize]) {
        marks.iter().for_each(|mark| self.marks[*mark].changes -= 1);
        self.touch(marks);
    }

    fn take_read(&mut self, node: NodeId) -> bool {
        self.known.get_mut(&node).is_some_and(|known| std::mem::take(&mut known.read))
    }

    fn drop_copy(&mut self, node: NodeId) {
        if let Some(copy) = self.known.get_mut(&node).and_then(|known| known.copy.take()) {
            self.copies -= 1;
            self.names -= copy.names.len();
        }
    }

    /// Drops all that is kept of an inode.
    fn drop_all(&mut self, node: NodeId, now: Nanos) {
        self.drop_copy(node);
        self.content.void(node, now);
    }

    /// Drops all copies; the inodes that had some, or that the front end may have pages of.
    fn clear(&mut self, now: Nanos) -> Vec<NodeId> {
        self.content.void_all(now);
        self.removing.all_touched();
        let kept = self.known.iter_mut().filter(|(_, known)| known.copy.is_some() || known.read);
        let kept = kept.map(|(node, known)| {
            known.read = false;
            *node
        });
        let kept = kept.collect();
        self.drop_copies();
        kept
    }

    /// Drops all copies but content. The leases stay, and so does what the front end keeps.
    fn drop_copies(&mut self) {
        self.events += 1;
        self.marks.iter_mut().for_each(|mark| mark.last = self.events);
        self.known.values_mut().for_each(|known| known.copy = None);
        self.ages.clear();
        (self.copies, self.names) = (0, 0);
    }

    /// The copy of an inode that the front end knows, a new one if there is none.
    fn copy_of(&mut self, node: NodeId) -> Option<&mut Copy> {
        let known = self.known.get_mut(&node)?;
        if known.copy.is_none() {
            self.copies += 1;
            self.ages.push_back(node);
        }
        Some(known.copy.get_or_insert_default())
    }

    fn make_room(&mut self) {
        while (self.copies > COPIES_MAX || self.names > NAMES_MAX || self.ages.len() > 4 * COPIES_MAX)
            && let Some(oldest) = self.ages.pop_front()
        {
            self.drop_copy(oldest);
        }
    }

    /// The copy of an inode that keeps what an answer says, if the answer lets it and nothing has
    /// touched these since it was asked for.
    fn keeper(&mut self, since: u64, leased: &Leased, node: NodeId, of: &[Of<'_>]) -> Option<&mut Copy> {
        let may_keep = leased.has(node) && self.is_quiet(since, of);
        if may_keep { self.copy_of(node) } else { None }
    }

    /// Keeps content that was read ahead.
    fn learn_content(
        &mut self,
        since: u64,
        leased: &Leased,
        (node, from): (NodeId, u64),
        bytes: Arc<Vec<u8>>,
        now: Nanos,
    ) {
        let is_kept = leased.has(node) && self.is_quiet(since, &[Of::Inode(node), Of::Content(node)]);
        if is_kept && self.known.contains_key(&node) {
            self.content.came(node, from, bytes, now);
        }
    }

    fn learn_versions(&mut self, since: u64, leased: &Leased, (node, first): (NodeId, u64), versions: &[u8]) {
        let is_kept = leased.has(node) && self.is_quiet(since, &[Of::Inode(node), Of::Content(node)]);
        if is_kept && self.known.contains_key(&node) {
            self.content.learn_versions(node, first, versions);
        }
    }

    /// Whole blocks of content that was read from an offset on, if the content and their versions
    /// are what the file has now.
    fn blocks_of(&self, since: u64, leased: &Leased, (node, from): (NodeId, u64), len: usize) -> Vec<Block> {
        let is_quiet = self.is_quiet(since, &[Of::Inode(node), Of::Content(node)]);
        let size = self.size(node).filter(|_| is_quiet && leased.has(node) && !node.is_view());
        let Some(size) = size else { return Vec::new() };
        let end = from + len as u64;
        let begin = from.next_multiple_of(VERSION_BLOCK_BYTES);
        let end = if end >= size { size } else { end - end % VERSION_BLOCK_BYTES };
        if begin >= end || end > from + len as u64 {
            return Vec::new();
        }
        self.content.versions(node, &(begin..end), size).unwrap_or_default()
    }

    /// Whether attributes may be older than what this client has told of the inode.
    fn may_be_old(&self, attr: &Attr) -> bool {
        self.known.get(&attr.node).is_some_and(|known| attr.ctime < known.told_at)
    }

    /// Whether they are: nobody else can have changed it since.
    fn are_old(&self, attr: &Attr) -> bool {
        self.alone.contains_key(&attr.node) && self.may_be_old(attr)
    }

    fn learn_attr(&mut self, since: u64, leased: &Leased, attr: &Attr) {
        if self.are_old(attr) {
            return;
        }
        let of = [Of::Inode(attr.node), Of::Attr(attr.node)];
        if !attr.node.is_view()
            && let Some(copy) = self.keeper(since, leased, attr.node, &of)
        {
            (copy.attr, copy.but_blocks) = (Some(*attr), None);
            // of a file in one piece from its beginning it is known what more a write allocates
            copy.allocated = (attr.size == 0 && attr.blocks == 0).then_some(0);
        }
    }

    /// Keeps exclusive leases that an answer grants.
    fn learn_alone(&mut self, since: u64, leased: &Leased, now: Nanos) {
        for node in leased.alone() {
            if self.known.contains_key(node) && self.is_quiet(since, &[Of::Inode(*node)]) {
                self.alone.insert(*node, now);
            }
        }
    }

    fn learn_xattr(
        &mut self,
        since: u64,
        leased: &Leased,
        (node, which): (NodeId, usize),
        value: Result<Box<[u8]>>,
    ) {
        let of = [Of::Inode(node), Of::Attr(node)];
        if let Some(copy) = self.keeper(since, leased, node, &of) {
            copy.xattrs.retain(|(n, _)| *n != which);
            copy.xattrs.push((which, value));
        }
    }

    fn learn_name(
        &mut self,
        since: u64,
        leased: &Leased,
        (dir, name): (NodeId, &[u8]),
        found: Option<(NodeId, Kind)>,
    ) {
        let of = [Of::Inode(dir), Of::Name(dir, name)];
        if !found.is_some_and(|(node, _)| node.is_view())
            && let Some(copy) = self.keeper(since, leased, dir, &of)
        {
            copy.changed.remove(name);
            let is_new = copy.names.insert(name.into(), found).is_none();
            self.names += usize::from(is_new);
        }
    }

    fn learn_new_dir(&mut self, since: u64, leased: &Leased, dir: NodeId) {
        let of = [Of::Inode(dir), Of::Attr(dir)];
        if let Leased::AllBut { snapshot_dir: Some(hidden), .. } = leased
            && let Some(copy) = self.keeper(since, leased, dir, &of)
        {
            (copy.listed, copy.snapshot_dir) = (Listed::All, Some(hidden.clone()));
        }
    }

    fn learn_list(
        &mut self,
        since: u64,
        leased: &Leased,
        (dir, after, limit): (NodeId, &[u8], usize),
        entries: &[Entry],
    ) {
        let of = [Of::Inode(dir), Of::Attr(dir)];
        if entries.iter().any(|entry| entry.node.is_view()) {
            return;
        }
        let Some(copy) = self.keeper(since, leased, dir, &of) else { return };
        let follows = match &copy.listed {
            Listed::All if copy.changed.is_empty() => return,
            Listed::All => after.is_empty(),
            Listed::UpTo(last) => **last == *after || after.is_empty(),
            Listed::Nothing => after.is_empty(),
        };
        if !follows {
            return;
        }
        let before = copy.names.len();
        if after.is_empty() {
            // names of a listing before may be gone
            copy.changed.clear();
            copy.names.clear();
        }
        for entry in entries {
            copy.names.insert(entry.name.clone(), Some((entry.node, entry.kind)));
        }
        if let Leased::AllBut { snapshot_dir, .. } = leased {
            copy.snapshot_dir.clone_from(snapshot_dir);
        }
        copy.listed = match entries.last() {
            Some(last) if entries.len() >= limit => Listed::UpTo(last.name.clone()),
            _ => Listed::All,
        };
        let after = copy.names.len();
        self.names = self.names + after - before;
    }
}

impl Asked {
    fn new(copies: &Copies, event: u64, changes: Vec<usize>, what: What) -> Asked {
        let copies = copies.clone();
        Asked {
            copies,
            event,
            changes,
            what,
            references: false,
            is_foretold: false,
            removes: None,
            disk: None,
        }
    }

    /// The answer has come, and goes to the front end.
    pub(super) fn answered(mut self, result: &mut Result<Reply>, leased: &Leased) -> NotKept {
        let (copies, disk) = (self.copies.clone(), self.disk.take());
        let from = match self.what {
            What::Read(node, from) | What::Ahead(node, from) => (node, from),
            _ => return self.learned(&mut copies.0.state.lock(), result, leased),
        };
        let bytes = match (&self.what, &mut *result) {
            (What::Ahead(..), Ok(Reply::Data(bytes))) => Some(Arc::new(std::mem::take(bytes))),
            _ => None,
        };
        let since = self.event;
        let mut state = copies.0.state.lock();
        let len = bytes.as_ref().map_or_else(|| data_of(result).len(), |bytes| bytes.len());
        let blocks = match &disk {
            Some(_) => state.blocks_of(since, leased, from, len),
            None => Vec::new(),
        };
        if let Some(bytes) = &bytes {
            state.learn_content(since, leased, from, bytes.clone(), copies.0.env.now());
        }
        let not_kept = self.learned(&mut state, result, leased);
        drop(state);
        let bytes = bytes.as_ref().map_or_else(|| data_of(result), |bytes| &bytes[..]);
        for block in blocks {
            let at = (block.number * VERSION_BLOCK_BYTES - from.1) as usize;
            disk.iter().for_each(|disk| disk.keep(from.0, block, &bytes[at..at + block.bytes]));
        }
        not_kept
    }

    /// Content that it brings is kept on this disk, besides.
    pub(super) fn kept_on(mut self, disk: Option<Arc<DiskContent>>) -> Asked {
        self.disk = disk;
        self
    }

    fn learned(mut self, state: &mut State, result: &Result<Reply>, leased: &Leased) -> NotKept {
        let now = self.copies.0.env.now();
        // its own changes are over, and part of the answer
        self.changes.iter().for_each(|mark| state.marks[*mark].changes -= 1);
        if let (true, Ok(reply)) = (self.references, result) {
            for node in reply.references() {
                let known = state.known.entry(node).or_default();
                known.front += u64::from(!self.is_foretold);
                known.server += 1;
            }
        }
        let since = self.event;
        match (&self.what, result) {
            (&What::Versions(node, first), Ok(Reply::Data(versions))) => {
                state.learn_versions(since, leased, (node, first), versions);
            }
            (What::Attr, Ok(Reply::Attr(attr))) => state.learn_attr(since, leased, attr),
            (What::Name(dir, name) | What::Dir(dir, name), Ok(Reply::Attr(attr))) => {
                state.learn_attr(since, leased, attr);
                if let What::Dir(..) = self.what {
                    state.learn_new_dir(since, leased, attr.node);
                }
                state.learn_name(since, leased, (*dir, name), Some((attr.node, attr.kind)));
            }
            (What::Name(dir, name), Err(Error::NotFound)) if self.changes.is_empty() => {
                state.learn_name(since, leased, (*dir, name), None);
            }
            (What::Gone(dir, name), Ok(Reply::Removed { .. })) => {
                state.learn_name(since, leased, (*dir, name), None);
            }
            (What::Xattr(node, which), Ok(Reply::Data(value))) if value.len() <= XATTR_BYTES_MAX => {
                let value = Ok(value[..].into());
                state.learn_xattr(since, leased, (*node, *which), value);
            }
            (What::Xattr(node, which), Err(Error::NoData)) => {
                state.learn_xattr(since, leased, (*node, *which), Err(Error::NoData));
            }
            (What::List { dir, after, limit }, Ok(Reply::Entries(entries))) => {
                for attr in entries.iter().filter_map(|entry| entry.attr.as_ref()) {
                    state.learn_attr(since, leased, attr);
                }
                state.learn_list(since, leased, (*dir, after, *limit), entries);
            }
            _ => (),
        }
        state.learn_alone(since, leased, now);
        let was_unknown = self.removes.take().is_some_and(|number| state.removing.end(number));
        // what was told before is in the copies, and perhaps more
        let mut changed = if self.is_foretold { Vec::new() } else { leased.changed().to_vec() };
        if was_unknown && matches!(result, Err(Error::Io(_))) {
            state.drop_copies();
            changed = state.kept();
        }
        state.touch(&std::mem::take(&mut self.changes));
        for of in changed.iter().map(|node| Of::Attr(*node)) {
            state.forget(&of, now);
            state.touch(&[of.mark()]);
        }
        state.make_room();
        let keeps = |node: &NodeId| state.known.get(node).is_some_and(|known| known.kept);
        let pages = match self.what {
            What::Read(node, _) if result.is_ok() => {
                let is_kept = leased.has(node) && state.is_quiet(since, &[Of::Inode(node)]);
                Some(node).filter(|node| keeps(node) && !is_kept)
            }
            _ => None,
        };
        NotKept { pages, attrs: changed.into_iter().filter(keeps).collect() }
    }
}

impl Drop for Asked {
    /// Also of one that was never answered.
    fn drop(&mut self) {
        if !self.changes.is_empty() || self.removes.is_some() {
            let mut state = self.copies.0.state.lock();
            state.not_answered(self.removes);
            state.end(&self.changes);
        }
    }
}
