//! readdir and readdirplus: fills the kernel's reply from [`Op::List`], with a [`Cursor`] per open
//! directory.
//!
//! As many entries are fetched as the reply will probably hold and never kept for the next request:
//! they would be stale, and readdirplus would put them into the kernel's caches. Every entry with
//! attributes carries a reference; those that did not fit are given back.
//!
//! Lock order: a handle's state, then whatever the file system takes. The kernel serialises
//! requests on one handle.

use crate::convert::{self, errno, file_type};
use crate::door::Keep;
use crate::kernel::Reply as Answer;
use crate::kernel::abi::{Dirent, EntryOut};
use leeward_env::Ctx;
use leeward_fs::{Entry, Error, Kind, NodeId, Op, Reply, Result};
use leeward_vfs::{Attempt, Backend, Cursor, ListingPosition, Outcome};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

/// Entries in one fetch.
const FETCH_MAX: u64 = 1024;

/// Open directories.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<FxHashMap<u64, Arc<Mutex<Stream>>>>,
    next: AtomicU64,
}

/// One open directory.
#[derive(Default)]
pub(crate) struct Stream {
    cursor: Cursor,
    /// What an entry took on average in the last reply.
    entry_bytes: usize,
}

impl Handles {
    pub(crate) fn open(&self) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, Arc::default());
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
struct Page {
    bytes: Vec<u8>,
    /// Bytes that the kernel takes.
    room: usize,
    /// Whether entries carry attributes and, with them, references.
    plus: bool,
}

impl Page {
    fn new(room: usize, plus: bool) -> Page {
        Page { bytes: Vec::with_capacity(room), room, plus }
    }

    /// Bytes of an entry.
    fn bytes_of(&self, name: &[u8]) -> usize {
        let attrs = if self.plus { size_of::<EntryOut>() } else { 0 };
        (attrs + size_of::<Dirent>() + name.len()).next_multiple_of(8)
    }

    /// Adds an entry of `dir`; false when it does not fit.
    #[must_use]
    fn add(&mut self, backend: &impl Backend, dir: NodeId, entry: &Entry, cookie: u64) -> bool {
        let end = self.bytes.len() + self.bytes_of(&entry.name);
        if end > self.room {
            return false;
        }
        if self.plus {
            // of `.` and `..` the kernel takes no attributes, which an entry without an inode says
            let none = EntryOut::default;
            let keep = |node| Keep::entry(backend, (dir, &entry.name), node);
            let out = entry.attr.as_ref().map_or_else(none, |attr| convert::entry(attr, keep(attr.node)));
            self.bytes.extend_from_slice(out.as_bytes());
        }
        let kind = file_type(entry.kind) >> 12;
        let name_len = entry.name.len() as u32;
        let head = Dirent { ino: entry.node.0, offset: cookie, name_len, kind };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(&entry.name);
        self.bytes.resize(end, 0);
        true
    }
}

/// One request of the kernel.
pub(crate) struct Listing<B> {
    pub(crate) gate: B,
    /// For references that are given back.
    pub(crate) nested: B,
    pub(crate) ctx: Ctx,
    pub(crate) dir: NodeId,
    /// Go on after this entry.
    pub(crate) cookie: u64,
    pub(crate) stream: Arc<Mutex<Stream>>,
    /// Whether with attributes.
    pub(crate) plus: bool,
    /// Bytes that the kernel takes.
    pub(crate) room: usize,
}

impl<B: Backend> Listing<B> {
    /// Answers when it is its turn.
    pub(crate) fn answer(self, to: Answer) {
        let (gate, ctx, dir) = (self.gate.clone(), self.ctx, self.dir);
        let like = Op::List { dir, after: b"", limit: 0, attrs: self.plus };
        let page = Page::new(self.room, self.plus);
        gate.run_all(ctx, (like, 0), (self, page, to), |ctx, (listing, mut page, to)| {
            match listing.fill(ctx, &mut page) {
                Err(Error::WouldBlock) => Attempt::Wait((listing, page, to)),
                result => {
                    let outcome = Outcome { failed: result.is_err(), ..Outcome::default() };
                    match result {
                        Ok(()) => to.data(&page.bytes),
                        Err(e) => to.error(errno(&e)),
                    }
                    Attempt::Done(outcome)
                }
            }
        });
    }

    /// An error after some entries is left for the next request to find.
    fn fill(&self, ctx: &Ctx, page: &mut Page) -> Result<()> {
        let stream = &mut *self.stream.lock();
        let place = stream.cursor.begin(self.cookie);
        let mut fill = Fill { listing: self, ctx, page, stream, count: 0 };
        match fill.all(place) {
            Err(e) if fill.count == 0 => Err(e),
            _ => Ok(()),
        }
    }
}

/// A reply being filled.
struct Fill<'a, B> {
    listing: &'a Listing<B>,
    ctx: &'a Ctx,
    page: &'a mut Page,
    stream: &'a mut Stream,
    count: usize,
}

impl<B: Backend> Fill<'_, B> {
    fn all(&mut self, place: ListingPosition) -> Result<()> {
        for cookie in place.dots.clone() {
            if self.dot(cookie)? {
                return Ok(());
            }
        }
        let mut after = self.pass_over(&place)?;
        loop {
            let limit = self.fetch_limit();
            let entries = self.list(&after, limit, self.page.plus)?;
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
        let fits = self.page.add(&self.listing.gate, dir, &entry, cookie);
        self.count += usize::from(fits);
        Ok(!fits)
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
        let left = self.page.room - self.page.bytes.len();
        let each = self.stream.entry_bytes.max(self.page.bytes_of(b"name"));
        (left / each).clamp(1, FETCH_MAX as usize)
    }

    fn is_nearly_full(&self) -> bool {
        self.page.bytes.len() + self.stream.entry_bytes > self.page.room
    }

    /// Adds entries; when full, gives the rest back and returns true.
    fn add_all(&mut self, entries: Vec<Entry>) -> bool {
        let mut entries = entries.into_iter();
        while let Some(entry) = entries.next() {
            let cookie = self.stream.cursor.mark(&entry.name);
            if !self.page.add(&self.listing.gate, self.listing.dir, &entry, cookie) {
                self.stream.cursor.unmark();
                self.give_back(&entry);
                entries.for_each(|e| self.give_back(&e));
                return true;
            }
            self.count += 1;
        }
        self.stream.entry_bytes = self.page.bytes.len().div_ceil(self.count.max(1));
        false
    }

    fn give_back(&self, entry: &Entry) {
        if let Some(attr) = &entry.attr {
            self.listing.nested.forget(self.listing.ctx, attr.node, 1);
        }
    }
}
