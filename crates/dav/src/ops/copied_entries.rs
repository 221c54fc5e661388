//! The entries that a MOVE between volumes has copied. The MOVE removes exactly these: others may
//! write to the tree meanwhile.
//!
//! A copied file is remembered by a number of 64 bits. It is a hash of the file's name, its
//! directory and its attributes at the time of the copy, with a secret of this MOVE. So memory is 8
//! bytes for each file, of a bounded amount that users share.

use leeward_door::{FairPermit, FairSemaphore};
use leeward_env::Env;
use leeward_fs::{Attr, Error, Kind, NodeId, Result};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Memory for the copied entries of all MOVEs between volumes, bytes: some seven million files of
/// one user.
pub(crate) const MOVED_BYTES_MAX: usize = 64 << 20;
/// Marks that are kept together.
const MARKS: usize = 16 << 10;
/// Bytes of a mark.
const MARK_BYTES: usize = size_of::<u64>();

/// The copied entries of a MOVE.
pub(crate) struct CopiedEntries {
    secret: (u64, u64),
    room: FairSemaphore,
    uid: u32,
    /// All but the last are sorted.
    marks: Vec<(FairPermit, Vec<u64>)>,
}

impl CopiedEntries {
    /// No entries yet. `room`: bytes, which users share.
    pub(crate) fn new(env: &Env, room: &FairSemaphore, uid: u32) -> CopiedEntries {
        let secret = (env.random(), env.random());
        CopiedEntries { secret, room: room.clone(), uid, marks: Vec::new() }
    }

    /// Adds an entry of this directory that was copied when it had these attributes.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: there is no room for more.
    pub(crate) fn add(&mut self, dir: NodeId, name: &[u8], attr: &Attr) -> Result<()> {
        let mark = self.mark(dir, name, attr, is_linked(attr));
        match self.marks.last_mut() {
            Some((_, last)) if last.len() < MARKS => last.push(mark),
            last => {
                if let Some((_, full)) = last {
                    full.sort_unstable();
                }
                let room = self.room.try_take(self.uid, MARKS * MARK_BYTES).ok_or(Error::WouldBlock)?;
                let mut marks = Vec::with_capacity(MARKS);
                marks.push(mark);
                self.marks.push((room, marks));
            }
        }
        Ok(())
    }

    /// Whether this entry was copied and is unchanged since then.
    pub(crate) fn has(&self, dir: NodeId, name: &[u8], attr: &Attr) -> bool {
        // the removal of the first of two names has changed `ctime` and the number of names
        [false, true].into_iter().any(|linked| {
            let mark = self.mark(dir, name, attr, linked);
            let Some(((_, last), full)) = self.marks.split_last() else { return false };
            last.contains(&mark) || full.iter().any(|(_, marks)| marks.binary_search(&mark).is_ok())
        })
    }

    /// `linked`: for a file with several names; each removal of one changes its `ctime`.
    fn mark(&self, dir: NodeId, name: &[u8], attr: &Attr, linked: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.secret, dir.0, name, attr.node.0, linked).hash(&mut hasher);
        match (attr.kind, linked) {
            // its entries are checked one by one
            (Kind::Dir, _) => {}
            (_, true) => (attr.size, attr.mtime.secs, attr.mtime.nanos).hash(&mut hasher),
            (_, false) => (attr.ctime.secs, attr.ctime.nanos).hash(&mut hasher),
        }
        hasher.finish()
    }
}

fn is_linked(attr: &Attr) -> bool {
    attr.kind != Kind::Dir && attr.nlink > 1
}
