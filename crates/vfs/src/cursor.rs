//! Where a directory stream is: the map from the small numbers that a caller resumes with (cookies) to names.
//!
//! Entries are listed in name order and each listing starts after a name, so an entry that exists throughout is handed
//! out exactly once whatever happens around it. What has to be remembered is which name a cookie stands for:
//!
//! * every cookie of the last few replies: callers resume after any entry of the latest one (their buffer was smaller);
//! * of older replies the last cookie and those that somebody resumed from;
//! * for any other old cookie (`seekdir` far back) the reply it was in: found again by counting from where that reply
//!   began, which is exact as long as nothing changed in between.
//!
//! Invariants: a cookie is given once and never means another name; memory grows with the number of replies, not of
//! entries. Callers serialise access to one cursor.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The cookie of `.`; 0 is the start.
const DOT: u64 = 1;
/// The cookie of the first entry; the one before it is that of `..`.
const FIRST: u64 = 3;
/// Replies are remembered whole up to this many names.
const NAMES_WHOLE_MAX: u64 = 4096;

/// Position of one directory stream.
#[derive(Debug)]
pub struct Cursor {
    /// The cookie that the next entry gets.
    next: u64,
    /// Names that are remembered, by cookie.
    marks: BTreeMap<u64, Mark>,
    /// Replies by their first cookie: the name that each started after.
    replies: BTreeMap<u64, Box<[u8]>>,
    /// Cookies of the replies that are still remembered whole, oldest first, the current one last.
    whole: VecDeque<Range<u64>>,
}

#[derive(Debug)]
struct Mark {
    name: Box<[u8]>,
    /// Somebody resumed here: may come back.
    pinned: bool,
}

/// Where to go on listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Cookies of `.` and `..` that are still to be handed out (1 is `.`, 2 is `..`).
    pub dots: Range<u64>,
    /// List the names after this one (empty: from the start).
    pub after: Box<[u8]>,
    /// And pass over so many of them.
    pub skip: u64,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { next: FIRST, marks: BTreeMap::new(), replies: BTreeMap::new(), whole: VecDeque::new() }
    }
}

impl Cursor {
    /// Begins a reply that goes on after `cookie` (0: from the start, which forgets everything).
    pub fn begin(&mut self, cookie: u64) -> Place {
        if cookie == 0 {
            *self = Cursor { next: self.next, ..Cursor::default() };
        }
        let place = self.place(cookie);
        self.thin();
        if place.skip == 0 {
            self.start(place.after.clone());
        }
        place
    }

    /// Says where the counting asked for by [`Place::skip`] ended: the reply starts after this name.
    pub fn skipped_to(&mut self, name: &[u8]) {
        self.start(name.into());
    }

    /// Records an entry that was handed out; returns its cookie.
    pub fn mark(&mut self, name: &[u8]) -> u64 {
        let cookie = self.next;
        self.next += 1;
        self.marks.insert(cookie, Mark { name: name.into(), pinned: false });
        if let Some(current) = self.whole.back_mut() {
            current.end = self.next;
        }
        cookie
    }

    /// Takes back the last entry: it did not fit.
    pub fn unmark(&mut self) {
        self.next -= 1;
        self.marks.remove(&self.next);
        if let Some(current) = self.whole.back_mut() {
            current.end = self.next;
        }
    }

    /// Names and replies that are remembered.
    pub fn remembered(&self) -> usize {
        self.marks.len() + self.replies.len()
    }

    fn start(&mut self, after: Box<[u8]>) {
        if self.whole.back().is_some_and(Range::is_empty) {
            self.whole.pop_back();
        }
        self.replies.insert(self.next, after);
        self.whole.push_back(self.next..self.next);
    }

    fn place(&mut self, cookie: u64) -> Place {
        if cookie < FIRST {
            return Place { dots: (cookie + DOT)..FIRST, after: Box::default(), skip: 0 };
        }
        let dots = FIRST..FIRST;
        if let Some(mark) = self.marks.get_mut(&cookie) {
            mark.pinned = true;
            return Place { dots, after: mark.name.clone(), skip: 0 };
        }
        match self.replies.range(..=cookie).next_back() {
            Some((first, after)) => Place { dots, after: after.clone(), skip: cookie - first + 1 },
            None => Place { dots, after: Box::default(), skip: cookie - FIRST + 1 },
        }
    }

    /// Forgets the inner names of replies beyond the budget, oldest first, but never of the last two.
    fn thin(&mut self) {
        let mut names: u64 = self.whole.iter().map(|r| r.end - r.start).sum();
        while names > NAMES_WHOLE_MAX && self.whole.len() > 2 {
            let Some(old) = self.whole.pop_front() else { return };
            names -= old.end - old.start;
            for cookie in old.start..old.end.saturating_sub(1) {
                if self.marks.get(&cookie).is_some_and(|m| !m.pinned) {
                    self.marks.remove(&cookie);
                }
            }
        }
    }
}
