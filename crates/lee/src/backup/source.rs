//! A snapshot of a volume as what is backed up.

use leeward_fs::{Attr, Kind, Time};
use leeward_restic::archive::{Changes, Entry, Meta, Source};
use leeward_restic::tree::{Moment, NodeKind};
use leeward_restic::{Error, ErrorKind, Result};
use leeward_volume::{SnapshotEntry, SnapshotReader};

/// A snapshot, and what has changed since the one of the backup before.
pub struct SnapshotSource {
    now: SnapshotReader,
    before: Option<(SnapshotReader, Changes)>,
}

impl SnapshotSource {
    /// `before`: the snapshot that the backup before shows, if it is still there.
    pub fn new(now: SnapshotReader, before: Option<SnapshotReader>) -> Result<SnapshotSource> {
        let before = match before {
            Some(before) => {
                let changes = now.changes_since(&before).map_err(|e| unreadable(&e))?;
                Some((before, Changes { inodes: changes.inodes, dirs: changes.dirs }))
            }
            None => None,
        };
        Ok(SnapshotSource { now, before })
    }
}

fn unreadable(e: &leeward_fs::Error) -> Error {
    let text = match e {
        leeward_fs::Error::Stale => "the snapshot that is backed up was removed: run it again".to_string(),
        e => format!("the snapshot cannot be read: {e}: run lee fsck"),
    };
    Error::new(ErrorKind::Source, text)
}

fn moment(time: Time) -> Moment {
    Moment::storable(time.secs, time.nanos)
}

fn kind(kind: Kind) -> NodeKind {
    match kind {
        Kind::File => NodeKind::File,
        Kind::Dir => NodeKind::Dir,
        Kind::Symlink => NodeKind::Symlink,
        Kind::Fifo => NodeKind::Fifo,
        Kind::CharDev => NodeKind::CharDev,
        Kind::BlockDev => NodeKind::Dev,
        Kind::Socket => NodeKind::Socket,
    }
}

impl Source for SnapshotSource {
    fn page(&self, dir: u64, after: Option<&[u8]>) -> Result<Vec<Entry>> {
        let page = self.now.page(dir, after).map_err(|e| unreadable(&e))?;
        let entry = |e: SnapshotEntry| Entry { name: e.name, inode: e.inode, is_dir: e.kind == Kind::Dir };
        Ok(page.into_iter().map(entry).collect())
    }

    fn meta(&self, inode: u64) -> Result<Meta> {
        let found = self.now.inode(inode).map_err(|e| unreadable(&e))?;
        let found = found.ok_or_else(|| {
            Error::new(ErrorKind::Source, format!("the snapshot has no inode {inode}: run lee fsck"))
        })?;
        let Attr { mode, uid, gid, size, nlink, rdev, mtime, atime, ctime, .. } = found.attr;
        Ok(Meta {
            kind: kind(found.attr.kind),
            mode,
            uid,
            gid,
            size,
            links: nlink.into(),
            device: rdev.into(),
            times: [mtime, atime, ctime].map(moment),
            target: found.target,
            attributes: found.xattrs,
        })
    }

    fn read(&self, inode: u64, offset: u64, len: usize) -> Result<Vec<u8>> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.now.read(inode, offset, len).map_err(|e| unreadable(&e))
    }

    fn next_data(&self, inode: u64, offset: u64) -> Result<Option<u64>> {
        self.now.next_data(inode, offset).map_err(|e| unreadable(&e))
    }

    fn changes(&self) -> Option<&Changes> {
        self.before.as_ref().map(|(_, changes)| changes)
    }

    fn was_in(&self, inode: u64) -> Result<Option<u64>> {
        let Some((before, _)) = &self.before else { return Ok(None) };
        before.parent(inode).map_err(|e| unreadable(&e))
    }
}
