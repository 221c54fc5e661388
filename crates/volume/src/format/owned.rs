//! What an inode counts for, and for whom: for its owner and for its group.

use crate::format::inode::{Inode, Stats};
use leeward_fs::flows::UserOrGroup;

/// Offsets in an encoded inode (docs/FORMAT.md).
const KIND_AT: usize = 1;
/// The kind of a directory.
const KIND_DIR: u8 = 2;
const NLINK_AT: usize = 8;
const UID_AT: usize = 12;
const GID_AT: usize = 16;
const ALLOCATED_AT: usize = 40;
const PARENT_AT: usize = 48;

/// What an inode counts for, and for whom. The same inodes count that count in the statistics of
/// directories: those with a name and those in the recycle bin, without the roots of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// One inode, and its allocated bytes by the records.
    pub usage: Stats,
}

impl Owned {
    /// Of an inode; `None` when it does not count.
    pub fn of(inode: &Inode) -> Option<Owned> {
        let Inode { uid, gid, allocated, .. } = *inode;
        (inode.is_counted() && inode.parent != 0).then(|| Owned::new(uid, gid, allocated, inode.is_dir()))
    }

    /// Of an inode as it is stored: it has what is needed at fixed places.
    pub fn of_record(record: &[u8]) -> Option<Owned> {
        let u32_at = |at: usize| record.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let u64_at = |at: usize| record.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let is_binned = record.get(super::inode::MARKS_AT)? & super::inode::FLAG_BINNED != 0;
        let is_counted = u32_at(NLINK_AT)? > 0 || is_binned;
        let is_dir = *record.get(KIND_AT)? == KIND_DIR;
        (is_counted && u64_at(PARENT_AT)? != 0).then_some(Owned::new(
            u32_at(UID_AT)?,
            u32_at(GID_AT)?,
            u64_at(ALLOCATED_AT)?,
            is_dir,
        ))
    }

    fn new(uid: u32, gid: u32, allocated: u64, is_dir: bool) -> Owned {
        let usage = Stats { bytes: allocated as i64, files: i64::from(!is_dir), dirs: i64::from(is_dir) };
        Owned { uid, gid, usage }
    }

    /// The same with so many allocated bytes.
    pub fn with_bytes(self, allocated: u64) -> Owned {
        Owned { usage: Stats { bytes: allocated as i64, ..self.usage }, ..self }
    }

    /// For whom it counts.
    pub fn owners(&self) -> [UserOrGroup; 2] {
        [UserOrGroup::User(self.uid), UserOrGroup::Group(self.gid)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::root_dir;
    use crate::format::extents::Extents;
    use crate::format::inode::Body;
    use leeward_fs::{Kind, Time};

    #[test]
    fn a_record_says_what_its_inode_says() {
        let dir = Inode { parent: 7, ..root_dir(Time::default(), 3, 4) };
        let body = Body::File { inline: Extents::default(), spilled: false, windows: false };
        let file = Inode { kind: Kind::File, nlink: 1, allocated: 12_288, body, ..dir.clone() };
        let counted = [
            dir.clone(),
            file.clone(),
            Inode { nlink: 0, binned: true, ..file.clone() },
            Inode { name: Some(b"a name".as_slice().into()), pool: 3, ..file.clone() },
        ];
        for inode in &counted {
            assert!(Owned::of(inode).is_some(), "{inode:?}");
            assert_eq!(Owned::of_record(&inode.encode()), Owned::of(inode), "{inode:?}");
        }
        for inode in [Inode { nlink: 0, ..file }, Inode { parent: 0, ..dir }] {
            assert_eq!(Owned::of(&inode), None, "{inode:?}");
            assert_eq!(Owned::of_record(&inode.encode()), None, "{inode:?}");
        }
    }
}
