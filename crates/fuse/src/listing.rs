//! readdir and readdirplus: fills the kernel's reply from [`Op::List`], with a [`Cursor`] per open directory.
//!
//! Entries are fetched as many as the reply will probably hold (the kernel does not tell fuser's users how large it is, so
//! each handle learns it) and never kept for the next request: they would be stale, and readdirplus would put
//! them into the kernel's caches. Every entry with attributes carries a reference; those that did not fit are given back.
//!
//! Lock order: a handle's state, then whatever the file system takes. The kernel serialises requests on one handle.

use crate::convert::{errno, file_attr, file_type, ino};
use crate::door::{GENERATION, name_ttl};
use fuser::{FileAttr, FileType, ReplyDirectory, ReplyDirectoryPlus};
use leeward_env::Ctx;
use leeward_fs::{Attr, Entry, Error, Kind, NodeId, Op, Reply, Result, Time};
use leeward_vfs::{Attempt, Cursor, Gate, ListingPosition, Outcome};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reply size that is assumed at first: what glibc asks for.
const REPLY_BYTES_USUAL: usize = 32 << 10;
/// Entries in one fetch.
const FETCH_MAX: u64 = 1024;

/// Open directories.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<FxHashMap<u64, Arc<Mutex<Stream>>>>,
    next: AtomicU64,
}

/// One open directory.
pub(crate) struct Stream {
    cursor: Cursor,
    /// What a reply is believed to hold.
    reply_bytes: usize,
    /// What an entry took on average in the last reply.
    entry_bytes: usize,
}

impl Handles {
    pub(crate) fn open(&self) -> u64 {
        let stream = Stream { cursor: Cursor::default(), reply_bytes: REPLY_BYTES_USUAL, entry_bytes: 0 };
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, Arc::new(Mutex::new(stream)));
        handle
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<Mutex<Stream>>> {
        self.open.lock().get(&handle).cloned()
    }

    pub(crate) fn close(&self, handle: u64) {
        self.open.lock().remove(&handle);
    }
}

/// A reply that takes entries until it is full.
pub(crate) trait Filler: Send + 'static {
    /// Whether entries carry attributes and, with them, references.
    const ATTRS: bool;
    /// Bytes of an entry apart from its name.
    const ENTRY_BYTES: usize;
    /// Adds an entry of `dir`; true when it did not fit.
    #[must_use]
    fn add(&mut self, dir: NodeId, entry: &Entry, cookie: u64) -> bool;
    fn ok(self);
    fn error(self, e: &Error);

    /// Bytes of an entry, as the kernel counts them.
    fn bytes(name: &[u8]) -> usize {
        (Self::ENTRY_BYTES + name.len()).next_multiple_of(8)
    }
}

impl Filler for ReplyDirectory {
    const ATTRS: bool = false;
    const ENTRY_BYTES: usize = 24;

    fn add(&mut self, _dir: NodeId, entry: &Entry, cookie: u64) -> bool {
        ReplyDirectory::add(
            self,
            ino(entry.node),
            cookie,
            file_type(entry.kind),
            OsStr::from_bytes(&entry.name),
        )
    }

    fn ok(self) {
        ReplyDirectory::ok(self);
    }

    fn error(self, e: &Error) {
        ReplyDirectory::error(self, errno(e));
    }
}

impl Filler for ReplyDirectoryPlus {
    const ATTRS: bool = true;
    const ENTRY_BYTES: usize = 152;

    fn add(&mut self, dir: NodeId, entry: &Entry, cookie: u64) -> bool {
        let attr = entry.attr.as_ref().map_or_else(|| dot_attr(entry), file_attr);
        let name = OsStr::from_bytes(&entry.name);
        let ttl = name_ttl(dir, &entry.name);
        ReplyDirectoryPlus::add(self, ino(entry.node), cookie, name, &ttl, &attr, GENERATION)
    }

    fn ok(self) {
        ReplyDirectoryPlus::ok(self);
    }

    fn error(self, e: &Error) {
        ReplyDirectoryPlus::error(self, errno(e));
    }
}

/// Of `.` and `..` the kernel takes the number and the type only.
fn dot_attr(entry: &Entry) -> FileAttr {
    let none = Time::default();
    let attr = Attr {
        node: entry.node,
        kind: entry.kind,
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: 2,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: none,
        mtime: none,
        ctime: none,
        btime: none,
    };
    FileAttr { kind: FileType::Directory, ..file_attr(&attr) }
}

/// One request of the kernel.
pub(crate) struct Listing {
    pub(crate) gate: Gate,
    pub(crate) ctx: Ctx,
    pub(crate) dir: NodeId,
    /// Go on after this entry.
    pub(crate) cookie: u64,
    pub(crate) stream: Arc<Mutex<Stream>>,
}

impl Listing {
    /// Answers when it is its turn.
    pub(crate) fn answer<F: Filler>(self, reply: F) {
        let (gate, ctx, dir) = (self.gate.clone(), self.ctx, self.dir);
        let like = Op::List { dir, after: b"", limit: 0, attrs: F::ATTRS };
        gate.run_all(ctx, (like, 0), (self, reply), |ctx, (listing, mut reply)| {
            match listing.fill(ctx, &mut reply) {
                Err(Error::WouldBlock) => Attempt::Wait((listing, reply)),
                result => {
                    let outcome = Outcome { failed: result.is_err(), ..Outcome::default() };
                    finish(reply, result);
                    Attempt::Done(outcome)
                }
            }
        });
    }

    /// An error after some entries is left for the next request to find.
    fn fill<F: Filler>(&self, ctx: &Ctx, reply: &mut F) -> Result<()> {
        let stream = &mut *self.stream.lock();
        let place = stream.cursor.begin(self.cookie);
        let mut fill = Fill { listing: self, ctx, reply, stream, used: 0, count: 0 };
        match fill.all(place) {
            Err(e) if fill.count == 0 => Err(e),
            _ => Ok(()),
        }
    }
}

fn finish<F: Filler>(reply: F, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(&e),
    }
}

/// A reply being filled.
struct Fill<'a, F> {
    listing: &'a Listing,
    ctx: &'a Ctx,
    reply: &'a mut F,
    stream: &'a mut Stream,
    used: usize,
    count: usize,
}

impl<F: Filler> Fill<'_, F> {
    fn all(&mut self, place: ListingPosition) -> Result<()> {
        for cookie in place.dots.clone() {
            if self.dot(cookie)? {
                return Ok(());
            }
        }
        let mut after = self.pass_over(&place)?;
        loop {
            let limit = self.fetch_limit();
            let entries = self.list(&after, limit, F::ATTRS)?;
            let at_end = entries.len() < limit;
            if let Some(last) = entries.last() {
                after = last.name.clone();
            }
            if self.add_all(entries) || at_end || self.is_nearly_full() {
                return Ok(());
            }
        }
    }

    /// Adds `.` or `..`; true when it did not fit.
    fn dot(&mut self, cookie: u64) -> Result<bool> {
        let dir = self.listing.dir;
        let (name, node) = if cookie == 1 { (&b"."[..], dir) } else { (&b".."[..], self.parent()?) };
        let entry = Entry { name: name.into(), node, kind: Kind::Dir, attr: None };
        let is_full = self.reply.add(dir, &entry, cookie);
        if !is_full {
            self.used += F::bytes(name);
            self.count += 1;
        }
        Ok(is_full)
    }

    /// The kernel takes no reference for `..`, so none is asked for.
    fn parent(&self) -> Result<NodeId> {
        let ctx = Ctx { refs: false, ..*self.ctx };
        let dir = self.listing.dir;
        match self.listing.gate.call(&ctx, Op::Lookup { dir, name: b".." }) {
            Ok(Reply::Attr(a)) => Ok(a.node),
            Err(Error::WouldBlock) => Err(Error::WouldBlock),
            _ => Ok(dir),
        }
    }

    /// Goes on to where a forgotten cookie was, by counting.
    fn pass_over(&mut self, place: &ListingPosition) -> Result<Box<[u8]>> {
        let (mut after, mut left) = (place.after.clone(), place.skip);
        if left == 0 {
            return Ok(after);
        }
        while left > 0 {
            let entries = self.list(&after, left.min(FETCH_MAX) as usize, false)?;
            let Some(last) = entries.last() else { break };
            left -= entries.len() as u64;
            after = last.name.clone();
        }
        self.stream.cursor.skipped_to(&after);
        Ok(after)
    }

    fn list(&self, after: &[u8], limit: usize, attrs: bool) -> Result<Vec<Entry>> {
        let dir = self.listing.dir;
        self.listing.gate.call(self.ctx, Op::List { dir, after, limit, attrs })?.entries()
    }

    /// Entries that will probably fit.
    fn fetch_limit(&self) -> usize {
        let left = self.stream.reply_bytes.saturating_sub(self.used);
        let each = self.stream.entry_bytes.max(F::bytes(b"name"));
        (left / each).clamp(1, FETCH_MAX as usize)
    }

    fn is_nearly_full(&self) -> bool {
        self.used + self.stream.entry_bytes > self.stream.reply_bytes
    }

    /// Adds entries; when full, gives the rest back and returns true.
    fn add_all(&mut self, entries: Vec<Entry>) -> bool {
        let mut entries = entries.into_iter();
        while let Some(entry) = entries.next() {
            let cookie = self.stream.cursor.mark(&entry.name);
            if self.reply.add(self.listing.dir, &entry, cookie) {
                self.stream.cursor.unmark();
                self.stream.reply_bytes = self.used.max(F::bytes(b""));
                self.give_back(&entry);
                entries.for_each(|e| self.give_back(&e));
                return true;
            }
            self.used += F::bytes(&entry.name);
            self.count += 1;
        }
        self.stream.entry_bytes = self.used.div_ceil(self.count.max(1));
        // More fitted than was believed: believe in more, so that a reply is not cut short for ever.
        if self.used > self.stream.reply_bytes {
            self.stream.reply_bytes = self.used;
        }
        false
    }

    fn give_back(&self, entry: &Entry) {
        if let Some(attr) = &entry.attr {
            self.listing.gate.forget(self.listing.ctx, attr.node, 1);
        }
    }
}
