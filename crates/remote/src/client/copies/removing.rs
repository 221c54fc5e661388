//! Changes of this client under way that remove, replace or move what is behind names.
//!
//! No recall comes for what a client changes itself: it must know which inodes those are. It knows
//! what is behind its names, but only as long as nothing touches them: a recall of the directory,
//! or another change of this client, may put another inode there before the change is made. From
//! then on it is **unknown** which inodes the change is about, until its answer says so, and
//! attributes that copies have are not told.

/// See the module's head.
#[derive(Default)]
pub(super) struct Removing {
    all: Vec<Change>,
    unknown: usize,
    last: u64,
}

struct Change {
    number: u64,
    /// Marks of its names and of their directories.
    marks: Vec<usize>,
    is_unknown: bool,
}

impl Removing {
    /// A change begins. `is_unknown`: it is not known now what is behind its names. Its number.
    pub(super) fn begin(&mut self, marks: Vec<usize>, is_unknown: bool) -> u64 {
        self.last += 1;
        self.unknown += usize::from(is_unknown);
        self.all.push(Change { number: self.last, marks, is_unknown });
        self.last
    }

    /// It is over. Whether it was unknown which inodes it is about.
    pub(super) fn end(&mut self, number: u64) -> bool {
        let Some(at) = self.all.iter().position(|change| change.number == number) else { return false };
        let was_unknown = self.all.swap_remove(at).is_unknown;
        self.unknown -= usize::from(was_unknown);
        was_unknown
    }

    /// Something else touches these marks.
    pub(super) fn touched(&mut self, marks: &[usize]) {
        self.doubt(|change| change.marks.iter().any(|mark| marks.contains(mark)));
    }

    /// Nothing is known any more of what is behind any name.
    pub(super) fn all_touched(&mut self) {
        self.doubt(|_| true);
    }

    /// Whether it is unknown of some change which inodes it is about.
    pub(super) fn any_unknown(&self) -> bool {
        self.unknown > 0
    }

    fn doubt(&mut self, which: impl Fn(&Change) -> bool) {
        for change in self.all.iter_mut().filter(|change| !change.is_unknown) {
            if which(change) {
                change.is_unknown = true;
                self.unknown += 1;
            }
        }
    }
}
