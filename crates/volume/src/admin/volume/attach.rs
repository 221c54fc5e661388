//! Names of volumes in the tree, also of those of other shards. A name in a directory of the first
//! shard may lead to the root of a volume of any; what is attached inside a volume is in its shard.
//!
//! The volume is there before its name, and its name goes first: a crash in between leaves a volume
//! that says where it belongs, and opening the cell gives it its name ([`Shard::complete_names`]).

use crate::admin::Failure;
use crate::admin::failure::about;
use crate::format::attached::AttachedRecord;
use crate::format::inode::VolumeRecord;
use crate::format::keys;
use crate::format::stored::Stored;
use crate::ops::check_name;
use crate::ops::flags::may_add_name;
use crate::shard::Shard;
use crate::state::Effect;
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::{Error, Kind, NodeId, Result};
use std::collections::BTreeMap;

impl Tx<'_> {
    /// Gives the root of a volume its name.
    pub(super) fn attach(&mut self, volume: u32, dir: NodeId, name: &[u8]) -> TxResult<()> {
        let mut parent = self.live_dir(dir)?;
        self.need_changeable(dir.volume())?;
        check_name(name)?;
        if self.is_snapshot_dir(dir, name) || self.dentry(dir, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        may_add_name(&parent)?;
        parent.touch(self.now);
        parent.add_entries(1);
        parent.nlink += 1;
        self.put_inode(dir, &parent)?;
        self.put_dentry(dir, name, NodeId::new(volume, 1), Kind::Dir)?;
        if !self.st.which.has_volume(volume) {
            let record = AttachedRecord { dir, name: name.into() };
            self.put(keys::attached(volume), record.encode());
            self.then(Effect::Attached(volume, Some(record)));
        }
        Ok(())
    }

    /// Takes the name of a volume away.
    pub(super) fn detach(&mut self, volume: u32, dir: NodeId, name: &[u8]) -> TxResult<()> {
        let mut parent = self.inode(dir)?;
        parent.touch(self.now);
        parent.add_entries(-1);
        parent.nlink -= 1;
        self.put_inode(dir, &parent)?;
        self.remove_dentry(dir, name)?;
        if !self.st.which.has_volume(volume) {
            self.remove(keys::attached(volume));
            self.then(Effect::Attached(volume, None));
        }
        Ok(())
    }
}

impl Shard {
    /// The shard in which a new volume comes that is attached in `dir`, which is here. `asked`:
    /// the one that an operator wants.
    ///
    /// # Errors
    /// There is no such shard; what is attached in `dir` is in another one.
    pub(super) fn shard_for_new(
        &self,
        asked: Option<usize>,
        dir: NodeId,
        is_in_project: bool,
    ) -> std::result::Result<usize, Failure> {
        let (own, count) = (self.which.index, self.which.count);
        let refused = |why: String| Err(Failure::new(libc::EINVAL, why));
        match asked {
            Some(asked) if asked >= count => {
                refused(format!("there is no shard {asked}: the cell has shards 0 to {}", count - 1))
            }
            Some(asked) if asked != own && own != 0 => {
                let volume = self.volume_name(dir.volume());
                refused(format!("what is attached in volume {volume} is in its shard, {own}"))
            }
            Some(asked) if asked != own && is_in_project => {
                refused(format!("the volumes of a project are in its shard, {own}"))
            }
            Some(asked) => Ok(asked),
            None if own != 0 || is_in_project => Ok(own),
            None => Ok((0..count).min_by_key(|shard| self.volumes_in(*shard)).unwrap_or(own)),
        }
    }

    /// How many volumes a shard has.
    fn volumes_in(&self, shard: usize) -> usize {
        let count = |shard: &Shard| Ok(shard.broken().is_none().then(|| shard.lock().volumes.named_count()));
        self.ask(shard, count).ok().flatten().unwrap_or(usize::MAX)
    }

    /// The volume of this name in any shard.
    pub(in crate::admin) fn named_in_cell(&self, name: &str) -> Option<u32> {
        let named = |shard: &Shard| Ok(shard.lock().volume_named(name));
        (0..self.which.count).find_map(|shard| self.ask(shard, named).ok()?)
    }

    /// Names of those of these volumes that there are in any shard.
    pub(in crate::admin) fn names_in_cell(&self, of: &[u32]) -> BTreeMap<u32, String> {
        let names = |shard: &Shard| Ok(shard.volume_names(of.iter().copied()));
        (0..self.which.count).filter_map(|shard| self.ask(shard, names).ok()).flatten().collect()
    }

    /// Names here that lead to volumes of other shards which are gone, go.
    pub(crate) fn drop_names_of_gone(&self) {
        let attached: Vec<_> = self.lock().attached.iter().map(|(id, at)| (*id, at.clone())).collect();
        for (id, AttachedRecord { dir, name }) in attached {
            let is_there = |shard: &Shard| Ok(shard.lock().volumes.get(&id).is_some_and(|v| !v.removing));
            if self.beside(NodeId::new(id, 1), is_there) == Ok(false)
                && let Err(e) = self.transact(&Ctx::system(), |tx| tx.detach(id, dir, &name))
            {
                tracing::error!(
                    "the name {} of a volume that is gone stays: {e}",
                    String::from_utf8_lossy(&name)
                );
            }
        }
    }

    /// Volumes of this shard that have their names in another one.
    pub(in crate::admin) fn volumes_named_beside(&self) -> Vec<(u32, VolumeRecord)> {
        let st = self.lock();
        let is_beside = |v: &VolumeRecord| !v.removing && !self.which.has(v.attached_dir);
        st.volumes.iter().filter(|(_, v)| is_beside(v)).map(|(id, v)| (*id, v.clone())).collect()
    }

    /// Volumes of this shard whose names in another one a crash has left out get them.
    pub(crate) fn complete_names(&self) {
        for (id, v) in &self.volumes_named_beside() {
            let attached = self.beside(v.attached_dir, |shard| {
                if shard.lock().attached.contains_key(id) {
                    return Ok(());
                }
                shard.transact(&Ctx::system(), |tx| tx.attach(*id, v.attached_dir, &v.attached_name))
            });
            if let Err(e) = attached {
                tracing::error!(
                    "volume {} cannot get its name in the tree: {e}; lee volume remove {} removes it",
                    v.name,
                    v.name
                );
            }
        }
    }

    /// Takes the name of a volume in another shard away, durably.
    pub(super) fn detach_beside(&self, id: u32, v: &VolumeRecord) -> std::result::Result<(), Failure> {
        let (dir, name) = (v.attached_dir, &v.attached_name);
        let detached = self.beside(dir, |shard| {
            if !shard.lock().attached.contains_key(&id) {
                return Ok(());
            }
            shard.transact(&Ctx::system(), |tx| tx.detach(id, dir, name))?;
            shard.commit_now(&Ctx::system())
        });
        detached.map_err(about(&v.name))
    }

    /// Changes buckets, durably: the first shard has them, and there the transaction of the caller
    /// changes them.
    pub(super) fn change_buckets_beside(&self, change: impl Fn(&mut Tx<'_>)) -> Result<()> {
        if self.which.index == 0 {
            return Ok(());
        }
        self.ask(0, |first| {
            first.transact(&Ctx::system(), |tx| {
                change(tx);
                Ok(())
            })?;
            first.commit_now(&Ctx::system())
        })
    }

    /// Asks the shard that has a volume.
    pub(super) fn home_of_volume<T>(
        &self,
        volume: u32,
        ask: impl FnOnce(&Shard) -> std::result::Result<T, Failure>,
    ) -> std::result::Result<T, Failure> {
        let home = self.beside(NodeId::new(volume, 1), |home| Ok(ask(home)));
        home.map_err(about(format_args!("volume {volume}")))?
    }

    /// The name of a volume, of any shard, that is attached in this one.
    pub(crate) fn attached_in(&self, volume: u32) -> Option<String> {
        let st = self.lock();
        let here = st.volumes.values().find(|v| v.attached_dir.volume() == volume && !v.removing);
        if let Some(v) = here {
            return Some(v.name.clone());
        }
        let other = st.attached.iter().find(|(_, at)| at.dir.volume() == volume).map(|(id, _)| *id)?;
        drop(st);
        let name = self.beside(NodeId::new(other, 1), |shard| Ok(shard.volume_name(other)));
        Some(name.unwrap_or_else(|_| other.to_string()))
    }
}
