//! Makes inodes: files, directories, symbolic links, devices.

use super::check_name;
use super::flags::{INHERITED, may_add_name};
use crate::format::extents::Extents;
use crate::format::inode::{Body, Inode, Stats};
use crate::format::keys;
use crate::format::plain_orphan;
use crate::state::Effect;
use crate::tx::{Tx, TxResult};
use leeward_env::limits::SYMLINK_BYTES_MAX;
use leeward_fs::leases;
use leeward_fs::rights::CAPABILITY;
use leeward_fs::{Error, Kind, Make, NodeId, Reply, SetAttr};

/// Arguments of [`Op::Make`](leeward_fs::Op::Make).
pub struct NewNode<'a> {
    /// The directory.
    pub dir: NodeId,
    /// The name.
    pub name: &'a [u8],
    /// The kind of inode.
    pub make: Make<'a>,
    /// Mode, 07777.
    pub mode: u32,
    /// Bits to clear.
    pub umask: u32,
}

impl Tx<'_> {
    /// [`Op::Make`](leeward_fs::Op::Make).
    pub(crate) fn make(&mut self, new: &NewNode<'_>) -> TxResult<Reply> {
        let mut parent = self.live_dir(new.dir)?;
        check_name(new.name)?;
        if self.is_snapshot_dir(new.dir, new.name) || self.dentry(new.dir, new.name)?.is_some() {
            return Err(Error::Exists.into());
        }
        may_add_name(&parent)?;
        let (kind, body, rdev) = body_of(new.make)?;
        let by = if kind == Kind::Dir {
            Stats { dirs: 1, ..Stats::default() }
        } else {
            Stats { files: 1, ..Stats::default() }
        };
        self.charge(new.dir, by)?;
        let (node, mut inode) = self.new_inode(new.dir, &parent, (kind, body), (new.mode, new.umask))?;
        inode.rdev = rdev;
        inode.nlink = if kind == Kind::Dir { 2 } else { 1 };
        inode.name = Some(new.name.into());
        parent.touch(self.now);
        parent.add_entries(1);
        parent.nlink += u32::from(kind == Kind::Dir);
        self.put_inode(new.dir, &parent)?;
        self.put_dentry(new.dir, new.name, node, kind)?;
        self.put_new_inode(node, &inode);
        self.add_stats(new.dir, by);
        self.comes_to(node, 0);
        self.show(node);
        Ok(Reply::Attr(inode.attr(node)))
    }

    /// A directory of the user in which those of a group may make something, and what they make is
    /// the group's.
    pub(crate) fn make_dir_of_group(&mut self, dir: NodeId, name: &str, gid: u32) -> TxResult<NodeId> {
        let new = NewNode { dir, name: name.as_bytes(), make: Make::Dir, mode: 0o775, umask: 0 };
        let node = self.make(&new)?.attr()?.node;
        let set = SetAttr { gid: Some(gid), mode: Some(0o2775), ..SetAttr::default() };
        self.set_attr(node, &set)?;
        Ok(node)
    }

    /// [`Op::MakeUnnamed`](leeward_fs::Op::MakeUnnamed).
    pub(crate) fn make_unnamed(&mut self, dir: NodeId, modes: (u32, u32), bytes: u64) -> TxResult<Reply> {
        let parent = self.live_dir(dir)?;
        may_add_name(&parent)?;
        self.check_room(dir, bytes)?;
        let (node, inode) = self.new_inode(dir, &parent, (Kind::File, empty_file()), modes)?;
        self.check_owners_room(node.volume(), &inode, bytes)?;
        self.put_new_inode(node, &inode);
        self.put_new(keys::orphan(node), plain_orphan());
        self.then(Effect::Orphan(node));
        self.comes_to(node, 0);
        self.show(node);
        Ok(Reply::Attr(inode.attr(node)))
    }

    /// A client on another machine that has made a directory knows all names in it.
    pub(crate) fn tell_snapshot_dir(&self, new: &NewNode<'_>) {
        if self.ctx.client > 0
            && new.make == Make::Dir
            && let Some(volume) = self.st.volumes.get(&new.dir.volume())
            && !volume.properties.snapshot_dir_visible
        {
            leases::tells_all_names(&volume.properties.snapshot_dir);
        }
    }

    /// Whether a file of this size fits in the quotas of a directory now.
    pub(crate) fn check_room(&self, dir: NodeId, bytes: u64) -> TxResult<()> {
        let by = Stats { bytes: i64::try_from(bytes).unwrap_or(i64::MAX), files: 1, dirs: 0 };
        self.quotas_above(dir)?.into_iter().try_for_each(|of| self.check_quota(of, by))
    }

    /// An inode without a name that inherits from `dir`; its record is not written, its attributes
    /// are. `modes`: 07777 bits and umask.
    fn new_inode(
        &mut self,
        dir: NodeId,
        parent: &Inode,
        (kind, body): (Kind, Body),
        (mode, umask): (u32, u32),
    ) -> TxResult<(NodeId, Inode)> {
        let acl = self.inherited_acl(dir, parent, kind, mode, umask)?;
        let (node, birth) = self.allocate_inode(dir.volume())?;
        let setgid = parent.mode & 0o2000 != 0;
        let mut inode = Inode {
            kind,
            mode: acl.mode,
            nlink: 0,
            uid: self.ctx.uid,
            gid: if setgid { parent.gid } else { self.ctx.gid },
            rdev: 0,
            size: if let Body::Symlink(t) = &body { t.len() as u64 } else { 0 },
            allocated: 0,
            times: [self.now; 4],
            parent: dir.inode(),
            name: None,
            linked: false,
            binned: false,
            xattrs: 0,
            pool: parent.pool,
            flags: parent.flags.and(INHERITED),
            content_lsn: 0,
            birth,
            body,
        };
        if setgid && kind == Kind::Dir {
            inode.mode |= 0o2000;
        }
        self.put_inherited_acl(node, &mut inode, &acl);
        if inode.xattrs > 0 {
            // each write asks for it
            self.is_without(keys::xattr(node, CAPABILITY));
            self.is_without(keys::xattr_plain(node, CAPABILITY));
        }
        Ok((node, inode))
    }

    /// A number that the client has given, of those that were reserved for it.
    fn allocate_foretold(&mut self, volume: u32, node: NodeId, after_crash: bool) -> TxResult<(NodeId, u32)> {
        if after_crash {
            return self.allocate_again(volume, node);
        }
        let birth = self.st.volumes.get(&volume).ok_or(Error::Stale)?.epoch;
        if node.volume() != volume || !self.st.sessions.has_number(self.ctx.client, node) {
            return Err(Error::Invalid.into());
        }
        self.makes(node);
        Ok((node, birth))
    }

    /// The number that an inode had which a crash has taken.
    fn allocate_again(&mut self, volume: u32, node: NodeId) -> TxResult<(NodeId, u32)> {
        let v = self.st.volumes.get_mut(&volume).ok_or(Error::Stale)?;
        // numbers below were given out durably, or reserved for clients; those above not by the
        // process before
        let end = self.st.sessions.given_out(volume).end.max(v.next_inode);
        if node.volume() != volume || node.inode() < 2 || node.inode() >= end {
            return Err(Error::Invalid.into());
        }
        let birth = v.epoch;
        match self.get(&keys::inode(node))? {
            Some(_) => Err(Error::Exists.into()),
            None => Ok((node, birth)),
        }
    }

    /// An inode number never used before in the volume, and the volume's epoch.
    pub(crate) fn allocate_inode(&mut self, volume: u32) -> TxResult<(NodeId, u32)> {
        if let Some(told) = self.ctx.again {
            return self.allocate_again(volume, NodeId(told.node));
        }
        if let Some(foretold) = self.ctx.foretold {
            return self.allocate_foretold(volume, NodeId(foretold.node), foretold.after_crash);
        }
        if self.st.sessions.has_left_out() {
            self.st.leave_out_numbers();
        }
        let v = self.st.volumes.get_mut(&volume).ok_or(Error::Stale)?;
        let node = NodeId::new(volume, v.next_inode);
        let birth = v.epoch;
        v.next_inode += 1;
        self.st.volumes_dirty.insert(volume);
        if self.fresh.iter().all(|(v, _)| *v != volume) {
            self.fresh.push((volume, node.inode()));
        }
        Ok((node, birth))
    }
}

fn body_of(make: Make<'_>) -> Result<(Kind, Body, u32), Error> {
    Ok(match make {
        Make::File => (Kind::File, empty_file(), 0),
        Make::Dir => (Kind::Dir, Body::Dir { entries: 0 }, 0),
        Make::Symlink(b"") => return Err(Error::NotFound),
        Make::Symlink(target) if target.len() > SYMLINK_BYTES_MAX => return Err(Error::NameTooLong),
        Make::Symlink(target) => (Kind::Symlink, Body::Symlink(target.into()), 0),
        Make::Fifo => (Kind::Fifo, Body::Special, 0),
        Make::Socket => (Kind::Socket, Body::Special, 0),
        Make::CharDev(rdev) => (Kind::CharDev, Body::Special, rdev),
        Make::BlockDev(rdev) => (Kind::BlockDev, Body::Special, rdev),
    })
}

/// The body of a file without content.
fn empty_file() -> Body {
    Body::File { inline: Extents::default(), spilled: false, windows: false }
}
