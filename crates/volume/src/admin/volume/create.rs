//! Makes a volume and attaches it in the tree.

use super::{VolumeInfo, check_volume_name, is_copy, is_taken};
use crate::admin::bucket::publish_volume;
use crate::admin::failure::about;
use crate::admin::project::{begins_with_project, in_none_of_his, in_volume_of, volumes_left};
use crate::admin::{Caller, Concerns, Failure, Request};
use crate::cell::root_dir;
use crate::format::inode::{CopyState, Properties, Stats, VolumeRecord};
use crate::format::keys;
use crate::shard::Shard;
use crate::state::{Effect, State};
use crate::tx::{Tx, TxResult};
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_fs::{Error, NodeId, VOLUMES_OF_SHARD};
use serde::{Deserialize, Serialize};

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

/// Makes a volume in this shard. Otherwise it comes in that of its project, or of the volume that
/// it is attached in, or else in the one with the fewest volumes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeCreateIn {
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeCreate,
    /// Number of the shard.
    pub shard: usize,
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

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(above(&self.volume.at))
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let id = self.volume.make(shard, caller.ctx, None, Some(CopyState::default()))?;
        shard.home_of_volume(id, |home| {
            home.prepare_copy(id).map_err(about(&self.volume.name))?;
            home.volume_info(id)
        })
    }
}

impl Request for VolumeCreate {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(above(&self.at))
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let id = self.make(shard, caller.ctx, None, None)?;
        shard.home_of_volume(id, |home| home.volume_info(id))
    }
}

impl Request for VolumeCreateIn {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(above(&self.volume.at))
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let id = self.volume.make(shard, caller.ctx, Some(self.shard), None)?;
        shard.home_of_volume(id, |home| home.volume_info(id))
    }
}

impl VolumeCreate {
    /// Makes it, and returns its number.
    fn make(
        &self,
        shard: &Shard,
        asker: &Ctx,
        home: Option<usize>,
        copy: Option<CopyState>,
    ) -> Result<u32, Failure> {
        let (name, at) = (&self.name, &self.at);
        shard.may_make_at(asker, at)?;
        if asker.delegate.is_some() && self.pool.is_some() {
            return Err(Failure::new(libc::EPERM, "an operator chooses the pool of a project"));
        }
        let pool = self.pool.as_ref().map(|pool| shard.data_pool_named(pool)).transpose()?;
        check_volume_name(name)?;
        let (parent, leaf) = parent_and_leaf(at);
        let dir = shard.resolve(parent).map_err(about(format_args!("cannot attach at {at}: {parent}")))?;
        let dir = shard.lock().live_node(dir);
        if shard.is_copy(dir.volume()) {
            return Err(is_copy(shard, dir.volume()));
        }
        let _alone = shard.naming().lock();
        if shard.named_in_cell(name).is_some() {
            return Err(is_taken(name));
        }
        let project = shard.transact(&Ctx::system(), |tx| tx.project_over(dir));
        let project = project.map_err(about(format_args!("cannot attach at {at}")))?;
        let home = shard.shard_for_new(home, dir, project.is_some())?;
        let will_have_neighbours = shard.has_neighbours();
        let new = New { volume: self, asker, dir, leaf, pool, copy, will_have_neighbours };
        let id = if home == shard.which.index { new.make(shard)? } else { new.make_beside(shard, home)? };
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
}

/// The directory that a path is in, and the last name.
fn parent_and_leaf(path: &str) -> (&str, &str) {
    match path.trim_end_matches('/').rsplit_once('/') {
        None => ("/", path),
        Some(("", leaf)) => ("/", leaf),
        Some(parts) => parts,
    }
}

/// The directory that a path is in.
fn above(path: &str) -> &str {
    parent_and_leaf(path).0
}

/// A volume that is being made.
struct New<'a> {
    volume: &'a VolumeCreate,
    asker: &'a Ctx,
    dir: NodeId,
    leaf: &'a str,
    pool: Option<PoolId>,
    copy: Option<CopyState>,
    /// Whether the cell will have several shards.
    will_have_neighbours: bool,
}

impl New<'_> {
    fn failed(&self) -> impl FnOnce(Error) -> Failure {
        about(format!("cannot attach at {}", self.volume.at))
    }

    /// Makes it in the shard of its directory.
    fn make(&self, shard: &Shard) -> Result<u32, Failure> {
        if self.copy.is_some() {
            shard.check_every_operation();
        }
        let made = shard.transact(&Ctx::system(), |tx| {
            let project = tx.project_over(self.dir)?;
            if let Err(refused) = self.volume.fits(tx.st, self.asker, self.dir, project) {
                return Ok(Err(refused));
            }
            let of_project = project.and_then(|id| tx.st.projects.get(id)).map(|record| record.pool);
            let made = self.put(tx, of_project)?;
            if let Ok(id) = made {
                tx.attach(id, self.dir, self.leaf.as_bytes())?;
                tx.put_project_of(id, project, Stats::default());
                if tx.st.which.index == 0 {
                    self.publish(tx);
                }
            }
            Ok(made)
        });
        let id = made.map_err(self.failed())??;
        shard.settle()?;
        shard.change_buckets_beside(|tx| self.publish(tx)).map_err(self.failed())?;
        Ok(id)
    }

    /// Makes it in another shard than that of its directory: durably, before it gets its name.
    fn make_beside(&self, shard: &Shard, home: usize) -> Result<u32, Failure> {
        if self.asker.delegate.is_some() {
            return Err(in_none_of_his(&self.volume.at));
        }
        let made = shard.ask(home, |home| {
            if self.copy.is_some() {
                home.check_every_operation();
            }
            let made = home.transact(&Ctx::system(), |tx| self.put(tx, None))?;
            home.commit_now(&Ctx::system())?;
            Ok(made)
        });
        let id = made.map_err(self.failed())??;
        let attached = shard.transact(&Ctx::system(), |tx| {
            tx.attach(id, self.dir, self.leaf.as_bytes())?;
            self.publish(tx);
            Ok(())
        });
        let attached = attached.and_then(|()| shard.commit_now(&Ctx::system()));
        // a name that may not be durable yet becomes so with the next commit
        if let Err(e) = attached
            && !shard.lock().attached.contains_key(&id)
        {
            let undone = shard.ask(home, |home| {
                home.check_every_operation();
                home.transact(&Ctx::system(), |tx| {
                    tx.then(Effect::Detach(id));
                    Ok(())
                })
            });
            undone.map_err(self.failed())?;
            return Err(self.failed()(e));
        }
        Ok(id)
    }

    /// Writes its record and its root directory.
    fn put(&self, tx: &mut Tx<'_>, pool_of_project: Option<PoolId>) -> TxResult<Result<u32, Failure>> {
        let id = tx.st.next_volume;
        let beyond = self.will_have_neighbours && tx.st.which.count == 1 && id >= VOLUMES_OF_SHARD;
        if beyond || !tx.st.which.volumes().contains(&id) {
            return Ok(Err(Failure::new(libc::ENOSPC, "no more volume numbers")));
        }
        let VolumeCreate { name, uid, gid, .. } = self.volume;
        if tx.st.volume_named(name).is_some() {
            return Ok(Err(is_taken(name)));
        }
        let pool = self.pool.or(pool_of_project).unwrap_or(0);
        let record = VolumeRecord {
            name: name.clone(),
            uid: *uid,
            next_inode: 2,
            epoch: 1,
            created_secs: tx.now.secs,
            attached_dir: self.dir,
            attached_name: self.leaf.as_bytes().into(),
            removing: false,
            properties: Properties { pool, copy: self.copy.clone(), ..Properties::default() },
        };
        tx.put_new(keys::inode(NodeId::new(id, 1)), root_dir(tx.now, *uid, *gid).encode());
        // not before it succeeds: machines may have to drop copies of the directory first
        tx.then(Effect::NewVolume(id, Box::new(record)));
        Ok(Ok(id))
    }

    /// Makes it a bucket, which the first shard has.
    fn publish(&self, tx: &mut Tx<'_>) {
        let parent = above(&self.volume.at).trim_end_matches('/');
        publish_volume(tx, &self.volume.name, &format!("{parent}/{}", self.leaf));
    }
}
