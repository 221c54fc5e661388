//! Makes a volume and attaches it in the tree.

use super::{VolumeInfo, check_volume_name, is_copy, is_taken};
use crate::admin::bucket::publish_volume;
use crate::admin::failure::about;
use crate::admin::project::{begins_with_project, in_none_of_his, in_volume_of, volumes_left};
use crate::admin::{Caller, Failure, Request};
use crate::cell::root_dir;
use crate::format::inode::{CopyState, Properties, Stats, VolumeRecord};
use crate::format::keys;
use crate::ops::check_name;
use crate::ops::flags::may_add_name;
use crate::shard::Shard;
use crate::state::{Effect, State};
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::{Error, Kind, NodeId};
use serde::{Deserialize, Serialize};

/// A volume's number has 24 bits of an inode's number. The upper half of them are views.
const VOLUMES_MAX: u32 = leeward_fs::VIEW_FIRST;

/// Makes a volume and attaches it in the tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeCreate {
    /// Unique name.
    pub name: String,
    /// Path of its root. The directory above must exist, the path itself must not.
    pub at: String,
    /// Owner of the volume and of its root directory.
    pub uid: u32,
    /// Group of its root directory.
    pub gid: u32,
    /// The pool of its data; `None`: that of the project below whose place it is attached, else
    /// `default`.
    #[serde(default)]
    pub pool: Option<String>,
}

/// Makes a volume that is a copy of one of another cell: it shows what
/// [`SnapReceive`](crate::admin::SnapReceive) brings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyCreate {
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeCreate,
}

impl Request for CopyCreate {
    type Reply = VolumeInfo;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        shard.check_every_operation();
        let id = self.volume.make(shard, caller.ctx, Some(CopyState::default()))?;
        shard.prepare_copy(id).map_err(about(&self.volume.name))?;
        shard.volume_info(id)
    }
}

impl Request for VolumeCreate {
    type Reply = VolumeInfo;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        shard.volume_info(self.make(shard, caller.ctx, None)?)
    }
}

impl VolumeCreate {
    /// Makes it, and returns its number.
    fn make(&self, shard: &Shard, asker: &Ctx, copy: Option<CopyState>) -> Result<u32, Failure> {
        let (name, at) = (&self.name, &self.at);
        shard.may_make_at(asker, at)?;
        if asker.delegate.is_some() && self.pool.is_some() {
            return Err(Failure::new(libc::EPERM, "an operator chooses the pool of a project"));
        }
        let pool = self.pool.as_ref().map(|pool| shard.data_pool_named(pool)).transpose()?;
        check_volume_name(name)?;
        let (parent, leaf) = at.trim_end_matches('/').rsplit_once('/').unwrap_or(("", at));
        let parent = if parent.is_empty() { "/" } else { parent };
        let dir = shard.resolve(parent).map_err(about(format_args!("cannot attach at {at}: {parent}")))?;
        let dir = shard.lock().live_node(dir);
        if shard.is_copy(dir.volume()) {
            return Err(is_copy(shard, dir.volume()));
        }
        let made = shard.transact(&Ctx::system(), |tx| {
            let id = tx.st.next_volume;
            if id >= VOLUMES_MAX {
                return Ok(Err(Failure::new(libc::ENOSPC, "no more volume numbers")));
            }
            let project = tx.project_over(dir)?;
            if let Err(refused) = self.fits(tx.st, asker, dir, project) {
                return Ok(Err(refused));
            }
            if tx.st.volume_named(name).is_some() {
                return Ok(Err(is_taken(name)));
            }
            let pool_of_project = project.and_then(|id| tx.st.projects.get(id)).map(|record| record.pool);
            let pool = pool.or(pool_of_project).unwrap_or(0);
            self.attach(tx, id, dir, leaf)?;
            let record = VolumeRecord {
                name: name.clone(),
                uid: self.uid,
                next_inode: 2,
                epoch: 1,
                created_secs: tx.now.secs,
                attached_dir: dir,
                attached_name: leaf.as_bytes().into(),
                removing: false,
                properties: Properties { pool, copy: copy.clone(), ..Properties::default() },
            };
            // not before it succeeds: machines may have to drop copies of the directory first
            tx.then(Effect::NewVolume(id, Box::new(record)));
            tx.put_project_of(id, project, Stats::default());
            publish_volume(tx, name, &format!("{}/{leaf}", parent.trim_end_matches('/')));
            Ok(Ok(id))
        });
        let id = made.map_err(about(format_args!("cannot attach at {at}")))??;
        shard.settle()?;
        shard.invalidate_entry(dir, leaf.as_bytes());
        shard.invalidate_inode(dir);
        Ok(id)
    }

    fn fits(&self, st: &State, asker: &Ctx, dir: NodeId, project: Option<u32>) -> Result<(), Failure> {
        if asker.delegate.is_some() {
            if !st.projects.is_owner(asker, project) {
                return Err(in_none_of_his(&self.at));
            }
            in_volume_of(st, asker, dir, project, &self.at)?;
            begins_with_project(st, project, &self.name)?;
        }
        project.map_or(Ok(()), |project| volumes_left(st, project, None))
    }

    /// Makes the root directory of the volume and its name in `dir`.
    fn attach(&self, tx: &mut Tx<'_>, id: u32, dir: NodeId, leaf: &str) -> TxResult<()> {
        let mut parent = tx.live_dir(dir)?;
        tx.need_changeable(dir.volume())?;
        check_name(leaf.as_bytes())?;
        if tx.is_snapshot_dir(dir, leaf.as_bytes()) || tx.dentry(dir, leaf.as_bytes())?.is_some() {
            return Err(Error::Exists.into());
        }
        may_add_name(&parent)?;
        let root = NodeId::new(id, 1);
        parent.touch(tx.now);
        parent.add_entries(1);
        parent.nlink += 1;
        tx.put_inode(dir, &parent)?;
        tx.put_dentry(dir, leaf.as_bytes(), root, Kind::Dir)?;
        let inode = root_dir(tx.now, self.uid, self.gid);
        tx.put_new(keys::inode(root), inode.encode());
        Ok(())
    }
}
