//! Extended attributes, stored and computed.
//!
//! Computed ones, readable on any directory and not listed: `leeward.rbytes`, `leeward.rfiles`,
//! `leeward.rdirs` (recursive statistics, exact at the moment of reading), `leeward.left` (bytes
//! that still fit by the quotas on it and above it, where there are any), `leeward.volume` (the
//! volume's name, on anything), `leeward.public` (`1` on anything in a volume that anybody may read
//! through doors) and `leeward.pool` (the pool for new data, on anything). Root may set and remove
//! the last one on directories: files and directories made in them from then on inherit it.

use super::acl;
use super::flags::{may_change_inode, may_remove_xattr};
use crate::format::inode::{Inode, Stats, time, xattr_value};
use crate::format::keys;
use crate::state::Effect;
use crate::tx::{Tx, TxResult};
use leeward_env::limits::{XATTR_NAME_BYTES_MAX, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Error, Kind, NodeId, Reply, Result, XattrMode};

const COMPUTED: &[u8] = b"leeward.";
const POOL: &[u8] = b"leeward.pool";

fn check(name: &[u8], kind: Kind) -> Result<()> {
    if name.len() > XATTR_NAME_BYTES_MAX || name.is_empty() {
        return Err(Error::Range);
    }
    let known = [&b"user."[..], b"trusted.", b"security."]
        .iter()
        .any(|p| name.starts_with(p) && name.len() > p.len());
    if !known && name != acl::ACCESS && name != acl::DEFAULT {
        return Err(Error::NotSupported);
    }
    if name.starts_with(b"user.") && !matches!(kind, Kind::File | Kind::Dir) {
        return Err(Error::NotPermitted);
    }
    if kind == Kind::Symlink && name.starts_with(b"system.") {
        return Err(Error::NotSupported);
    }
    Ok(())
}

impl Tx<'_> {
    /// [`Op::GetXattr`](leeward_fs::Op::GetXattr).
    pub(crate) fn get_xattr(&mut self, node: NodeId, name: &[u8]) -> TxResult<Reply> {
        let inode = self.inode(node)?;
        if name.starts_with(COMPUTED) {
            return Ok(Reply::Data(self.computed(node, &inode, &name[COMPUTED.len()..])?));
        }
        match check(name, inode.kind) {
            // there can be none here
            Err(Error::NotPermitted) => return Err(Error::NoData.into()),
            checked => checked?,
        }
        if inode.xattrs == 0 {
            return Err(Error::NoData.into());
        }
        let value = self.xattr(node, name)?.ok_or(Error::NoData)?;
        Ok(Reply::Data(value.to_vec()))
    }

    fn computed(&mut self, node: NodeId, inode: &Inode, what: &[u8]) -> TxResult<Vec<u8>> {
        if what == b"volume" {
            let volume = self.st.live_node(node).volume();
            let volume = self.st.volumes.get(&volume).ok_or(Error::Stale)?;
            return Ok(volume.name.clone().into_bytes());
        }
        if what == b"public" {
            let volume = self.st.live_node(node).volume();
            let public = self.st.volumes.get(&volume).is_some_and(|v| v.properties.public);
            return if public { Ok(b"1".to_vec()) } else { Err(Error::NoData.into()) };
        }
        if what == b"pool" {
            let pool = self.st.pool_for(self.st.live_node(node).volume(), inode.pool);
            return Ok(self.st.pool_name(pool).into_bytes());
        }
        // statistics have no versions
        if !inode.is_dir() || node.is_view() {
            return Err(Error::NoData.into());
        }
        if what == b"left" {
            let left = self.left_by_quotas(node)?.ok_or(Error::NoData)?;
            return Ok(left.to_string().into_bytes());
        }
        let stats = self.exact_stats(node)?;
        let value = match what {
            b"rbytes" => stats.bytes,
            b"rfiles" => stats.files,
            b"rdirs" => stats.dirs,
            _ => return Err(Error::NoData.into()),
        };
        Ok(value.to_string().into_bytes())
    }

    /// Bytes that still fit below a directory by the quotas on it and above it.
    fn left_by_quotas(&mut self, dir: NodeId) -> TxResult<Option<u64>> {
        let owners = [UserOrGroup::User(self.ctx.uid), UserOrGroup::Group(self.ctx.gid)];
        let of_owners = owners.into_iter().filter_map(|who| self.st.owners.left(dir.volume(), who));
        let mut least = of_owners.min();
        for at in self.quotas_above(dir)? {
            let Some(quota) = self.st.quotas.of(at).filter(|quota| quota.limit.0 > 0) else { continue };
            let used = (quota.used.bytes + self.st.held_in_quota(at)).max(0) as u64;
            let left = quota.limit.0.saturating_sub(used);
            least = Some(least.map_or(left, |least| least.min(left)));
        }
        Ok(least)
    }

    /// Recursive statistics of a directory at this moment, pending content included.
    pub(crate) fn exact_stats(&mut self, dir: NodeId) -> TxResult<Stats> {
        self.fold(dir.volume())?;
        let mut stats = self.stats(dir)?;
        stats.bytes += self.pending_below(dir)?;
        Ok(stats)
    }

    /// Sets the pool for new data below a directory; `None`: that of the volume.
    fn set_dir_pool(&mut self, dir: NodeId, name: Option<&[u8]>) -> TxResult<Reply> {
        if self.ctx.uid != 0 {
            return Err(Error::NotPermitted.into());
        }
        let mut inode = self.inode(dir)?;
        if !inode.is_dir() {
            return Err(Error::NotDir.into());
        }
        may_change_inode(&inode)?;
        inode.pool = match name {
            Some(name) => self.st.dir_pool_named(name).ok_or(Error::Invalid)?,
            None => 0,
        };
        inode.times[time::C] = self.now;
        self.put_inode(dir, &inode)?;
        if inode.pool != 0 {
            self.then(Effect::DirPool(dir.volume(), inode.pool));
        }
        Ok(Reply::Done)
    }

    /// [`Op::ListXattr`](leeward_fs::Op::ListXattr).
    pub(crate) fn list_xattr(&self, node: NodeId) -> TxResult<Reply> {
        let inode = self.inode(node)?;
        if inode.xattrs == 0 {
            return Ok(Reply::Names(Vec::new()));
        }
        let names = self.xattr_records(node, &inode)?;
        // attributes that only root may read are listed only for root
        let seen = |name: &&[u8]| self.ctx.uid == 0 || !name.starts_with(b"trusted.");
        let parsed = names.iter().filter_map(|(k, _)| keys::parse(k)).map(|p| p.rest);
        Ok(Reply::Names(parsed.filter(seen).map(Box::from).collect()))
    }

    fn xattr_records(&self, node: NodeId, inode: &Inode) -> TxResult<Vec<(keys::Key, leeward_meta::Value)>> {
        let (from, to) = keys::xattr_range(node);
        self.scan(&from, &to, inode.xattrs as usize + 1, false)
    }

    /// [`Op::SetXattr`](leeward_fs::Op::SetXattr).
    pub(crate) fn set_xattr(
        &mut self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> TxResult<Reply> {
        if name == POOL {
            return self.set_dir_pool(node, Some(value));
        }
        let mut inode = self.inode(node)?;
        may_change_inode(&inode)?;
        check(name, inode.kind)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::AttrTooBig.into());
        }
        let old = if inode.xattrs == 0 { None } else { self.xattr(node, name)? };
        match (mode, old.is_some()) {
            (XattrMode::Create, true) => return Err(Error::Exists.into()),
            (XattrMode::Replace, false) => return Err(Error::NoData.into()),
            _ => {}
        }
        let stored = match name.starts_with(b"system.") {
            true => self.stored_acl(&mut inode, name, value)?,
            false => Some(value.to_vec()),
        };
        let is_longer = old.as_ref().is_none_or(|old| value.len() > old.len());
        if inode.xattrs > 0 && is_longer {
            let records = self.xattr_records(node, &inode)?;
            let others = records.iter().filter_map(|(k, v)| {
                let parsed = keys::parse(k)?;
                Some((parsed.rest, xattr_value(parsed.tag, v)))
            });
            let total: usize = others.filter(|(n, _)| *n != name).map(|(n, v)| n.len() + v.len()).sum();
            if total + name.len() + value.len() > XATTR_TOTAL_BYTES_MAX {
                return Err(Error::NoSpace.into());
            }
        }
        inode.times[time::C] = self.now;
        match (&stored, old.is_some()) {
            (Some(_), false) => inode.xattrs += 1,
            (None, true) => inode.xattrs -= 1,
            _ => {}
        }
        match stored {
            Some(value) => self.put_xattr(node, name, &value)?,
            None if old.is_some() => self.remove_xattr_record(node, name)?,
            None => {}
        }
        self.put_inode(node, &inode)?;
        self.comes_to(node, 0);
        Ok(Reply::Done)
    }

    /// [`Op::RemoveXattr`](leeward_fs::Op::RemoveXattr).
    pub(crate) fn remove_xattr(&mut self, node: NodeId, name: &[u8]) -> TxResult<Reply> {
        if name == POOL {
            return self.set_dir_pool(node, None);
        }
        let mut inode = self.inode(node)?;
        may_remove_xattr(&inode, name)?;
        check(name, inode.kind)?;
        if inode.xattrs == 0 || self.xattr(node, name)?.is_none() {
            // removing a missing ACL succeeds, as on the kernel's local file systems
            let is_acl = name == acl::ACCESS || name == acl::DEFAULT;
            return if is_acl { Ok(Reply::Done) } else { Err(Error::NoData.into()) };
        }
        inode.xattrs -= 1;
        inode.times[time::C] = self.now;
        self.remove_xattr_record(node, name)?;
        self.put_inode(node, &inode)?;
        self.comes_to(node, 0);
        Ok(Reply::Done)
    }
}
