//! The position of a directory stream: maps the small numbers that a caller resumes with (cookies)
//! to names.
//!
//! Entries are listed in name order and each listing starts after a name. So an entry that exists
//! throughout is returned exactly once whatever happens around it. Cookies count entries: the entry
//! after `c` gets `c + 1`, also when the same part is listed again (`seekdir`). So that needs no
//! more memory, and positions stay valid after a look at the start. Where another name has that
//! cookie already, because the directory has changed, new numbers follow. What has to be remembered
//! is which name a cookie stands for:
//!
//! * every cookie of the last few replies: callers resume after any entry of the latest one (their
//!   buffer was smaller);
//! * of older replies the last cookie, and those that a caller resumed from;
//! * any other old cookie (`seekdir` far back) is found again by counting from the nearest
//!   remembered one below, which is exact as long as nothing changed in between.
//!
//! Invariants: a cookie that is remembered never means another name; memory is limited, whatever
//! the caller does. Callers serialise access to one cursor.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The cookie of `.`; 0 is the start.
const DOT: u64 = 1;
/// The cookie of the first entry; the one before it is that of `..`.
const FIRST: u64 = 3;
/// Replies are remembered whole up to this many names.
const NAMES_WHOLE_MAX: u64 = 4096;
/// Names of older replies that are remembered. Beyond that every second one is dropped: then
/// counting takes longer.
const NAMES_OLD_MAX: usize = 8192;

/// Position of one directory stream.
#[derive(Debug)]
pub struct Cursor {
    /// The cookie that the next entry gets, if no other name has it.
    next: u64,
    /// The lowest cookie that was never given out.
    unused: u64,
    /// Names that are remembered, by cookie.
    marks: BTreeMap<u64, Mark>,
    /// Cookies of the replies that are still remembered whole, oldest first, the current one last.
    whole: VecDeque<Range<u64>>,
    /// What [`Cursor::unmark`] takes back.
    last: Option<Given>,
}

#[derive(Debug)]
struct Mark {
    name: Box<[u8]>,
    /// A caller resumed here, and may come back.
    pinned: bool,
}

/// What changed with the last entry.
#[derive(Debug)]
struct Given {
    next: u64,
    unused: u64,
    /// Marks from this one on are new.
    new_from: Option<u64>,
    cookie: u64,
    new_range: bool,
}

/// Where a listing continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingPosition {
    /// Cookies of `.` and `..` that are still to be returned (1 is `.`, 2 is `..`).
    pub dots: Range<u64>,
    /// List the names after this one (empty: from the start).
    pub after: Box<[u8]>,
    /// Skip this many of them.
    pub skip: u64,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { next: FIRST, unused: FIRST, marks: BTreeMap::new(), whole: VecDeque::new(), last: None }
    }
}

impl Cursor {
    /// Begins a reply that continues after `cookie` (0: from the start).
    pub fn begin(&mut self, cookie: u64) -> ListingPosition {
        let place = self.place(cookie);
        self.thin();
        self.next = match cookie {
            ..FIRST => FIRST,
            _ if cookie < self.unused => cookie + 1,
            // made up by the caller: the position that counting leads to gets a number of its own
            _ => self.unused + 1,
        };
        self.unused = self.unused.max(self.next);
        self.last = None;
        self.open_range();
        place
    }

    /// Tells where the counting of [`ListingPosition::skip`] ended: the reply starts after this
    /// name.
    pub fn skipped_to(&mut self, name: &[u8]) {
        if self.next > FIRST {
            self.marks.insert(self.next - 1, Mark { name: name.into(), pinned: true });
        }
    }

    /// Records an entry that was returned; returns its cookie.
    pub fn mark(&mut self, name: &[u8]) -> u64 {
        let (next, unused) = (self.next, self.unused);
        let known = self.marks.get(&next).map(|mark| *mark.name == *name);
        let (cookie, new_from) = match known {
            Some(true) => (next, None),
            None => (next, Some(next)),
            Some(false) => {
                // the position before it gets a number, too: the one to count from
                let before = self.marks.get(&(next - 1)).map(|mark| mark.name.clone()).unwrap_or_default();
                self.marks.insert(unused, Mark { name: before, pinned: true });
                self.next = unused + 1;
                self.open_range();
                (unused + 1, Some(unused))
            }
        };
        if new_from.is_some() {
            self.marks.insert(cookie, Mark { name: name.into(), pinned: false });
        }
        self.next = cookie + 1;
        self.unused = unused.max(self.next);
        if let Some(current) = self.whole.back_mut() {
            current.end = self.next;
        }
        self.last = Some(Given { next, unused, new_from, cookie, new_range: known == Some(false) });
        cookie
    }

    /// Takes back the last entry: it did not fit. Only once after each [`Cursor::mark`].
    pub fn unmark(&mut self) {
        let Some(last) = self.last.take() else { return };
        if let Some(from) = last.new_from {
            (from..=last.cookie).for_each(|cookie| {
                self.marks.remove(&cookie);
            });
        }
        (self.next, self.unused) = (last.next, last.unused);
        if last.new_range {
            self.whole.pop_back();
        }
        if let Some(current) = self.whole.back_mut() {
            current.end = self.next.max(current.start);
        }
    }

    /// Names that are remembered.
    pub fn remembered(&self) -> usize {
        self.marks.len()
    }

    fn open_range(&mut self) {
        if self.whole.back().is_some_and(Range::is_empty) {
            self.whole.pop_back();
        }
        self.whole.push_back(self.next..self.next);
    }

    fn place(&mut self, cookie: u64) -> ListingPosition {
        if cookie < FIRST {
            return ListingPosition { dots: (cookie + DOT)..FIRST, after: Box::default(), skip: 0 };
        }
        let dots = FIRST..FIRST;
        match self.marks.range_mut(..=cookie).next_back() {
            Some((known, mark)) => {
                mark.pinned |= *known == cookie;
                ListingPosition { dots, after: mark.name.clone(), skip: cookie - known }
            }
            None => ListingPosition { dots, after: Box::default(), skip: cookie - FIRST + 1 },
        }
    }

    /// Drops the inner names of replies beyond the budget, oldest first, but never of the last two.
    /// Of what is left of older ones it drops every second name when there are too many.
    fn thin(&mut self) {
        let mut names: u64 = self.whole.iter().map(|r| r.end - r.start).sum();
        while names > NAMES_WHOLE_MAX && self.whole.len() > 2 {
            let Some(old) = self.whole.pop_front() else { return };
            names -= old.end - old.start;
            for cookie in old.start..old.end.saturating_sub(1) {
                let is_whole = self.whole.iter().any(|r| r.contains(&cookie));
                if !is_whole && self.marks.get(&cookie).is_some_and(|m| !m.pinned) {
                    self.marks.remove(&cookie);
                }
            }
        }
        if self.marks.len() > NAMES_OLD_MAX + NAMES_WHOLE_MAX as usize {
            let whole = &self.whole;
            let mut odd = false;
            self.marks.retain(|cookie, _| {
                odd = !odd;
                odd || whole.iter().any(|r| r.contains(cookie) || r.start == cookie + 1)
            });
        }
    }
}
