//! Requests about volumes, a file for each, and what they share.

mod allow;
mod attach;
mod copies;
mod create;
mod list;
mod move_data;
mod remove;
mod rename;
mod set;

pub use allow::VolumeAllow;
pub use copies::{CopyDetach, CopyInfos, CopyList, CopyStatus, Origin, Promotion};
pub use create::{CopyCreate, VolumeCreate, VolumeCreateIn};
pub use list::{VolumeInfos, VolumeList, VolumeShow};
pub use move_data::VolumeMoveData;
pub use remove::VolumeRemove;
pub use rename::VolumeRename;
pub use set::{PropertyChanges, VolumeSet};

use crate::admin::failure::about;
use crate::admin::{Failure, Reply};
use crate::format::inode::{CopyState, Pair, Properties};
use crate::shard::Shard;
use crate::stream::{EMPTY, StreamPart};
use leeward_env::hex;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Error, NodeId, Usage};
use serde::{Deserialize, Serialize};

/// Longest name of a volume.
const VOLUME_NAME_BYTES_MAX: usize = 128;

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Number, never reused.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Where it is attached in the cell.
    pub at: String,
    /// Owner.
    pub uid: u32,
    /// Most bytes; 0: no limit.
    pub quota_bytes: u64,
    /// Most inodes; 0: no limit.
    pub quota_files: u64,
    /// What it holds.
    pub usage: Usage,
    /// The shard that it is in.
    #[serde(default)]
    pub shard: usize,
    /// Seconds since 1970.
    pub created_secs: i64,
    /// Whether the background is freeing it.
    pub removing: bool,
    /// Number of its snapshots.
    pub snapshots: u64,
    /// Most snapshots.
    pub snapshots_max: u32,
    /// Name of the directory of snapshots in each directory.
    pub snapshot_dir: String,
    /// Whether listings show that directory.
    pub snapshot_dir_visible: bool,
    /// Whether the quota of the volume counts what only snapshots hold.
    pub quota_counts_snapshots: bool,
    /// How many days its recycle bin keeps removed files; 0: it has none.
    pub bin_days: u16,
    /// How many days it is kept what changed (`lee audit`, `lee watch`); 0: nothing is.
    pub audit_days: u16,
    /// Whether doors let anybody read what its modes let others read.
    #[serde(default)]
    pub public: bool,
    /// Of a copy: the snapshot that it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyInfo>,
    /// Of a copy, and of a volume that was one: where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Users who may take and remove snapshots besides root and the owner.
    pub snapshot_users: Vec<u32>,
    /// Groups that may.
    pub snapshot_groups: Vec<u32>,
    /// The project that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The pool of its data.
    #[serde(default)]
    pub pool: String,
    /// Bytes of its objects that are still in other pools.
    #[serde(default)]
    pub misplaced_bytes: u64,
    /// Segments that cannot be moved because they are damaged.
    #[serde(default)]
    pub stuck_segments: u64,
}

/// What a copy shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyInfo {
    /// Name of the snapshot; `None`: it has received nothing yet.
    pub snapshot: Option<String>,
    /// When that was taken, seconds since 1970.
    pub time_secs: i64,
    /// Whether a part of a newer one has come.
    pub receiving: bool,
    /// Whether it was taken here, of a volume that became a copy: a stream may go on from an older
    /// one.
    #[serde(default)]
    pub made_here: bool,
    /// What has come of a newer one, to go on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<StreamPart>,
}

impl Reply for VolumeInfo {
    const KIND: &'static str = "volume";
}

impl Shard {
    /// The number of a volume.
    pub(in crate::admin) fn volume_named(&self, name: &str) -> Result<u32, Failure> {
        self.lock().volume_named(name).ok_or_else(|| no_volume(name))
    }

    /// The name of a volume, or its number when it is gone.
    pub(super) fn volume_name(&self, volume: u32) -> String {
        self.lock().volumes.get(&volume).map_or_else(|| volume.to_string(), |v| v.name.clone())
    }

    /// What is said of a volume that is a copy.
    fn copy_info(&self, id: u32, copy: &CopyState) -> CopyInfo {
        let shown = self.lock().snapshots.get(id, copy.shown).cloned();
        let shown = shown.filter(|s| *s.name != *EMPTY);
        CopyInfo {
            snapshot: shown.as_ref().map(|s| String::from_utf8_lossy(&s.name).into_owned()),
            time_secs: shown.map_or(0, |s| s.time.secs),
            receiving: !copy.coming().is_empty(),
            made_here: copy.is_made_here(),
            part: Some(copy.come().bytes)
                .filter(|bytes| *bytes > 0)
                .map(|bytes| StreamPart { stream: hex::encode(copy.coming()), bytes }),
        }
    }

    pub(in crate::admin) fn volume_info(&self, id: u32) -> Result<VolumeInfo, Failure> {
        let root = NodeId::new(id, 1);
        let v = self.lock().volumes.get(&id).cloned();
        let v = v.ok_or_else(|| Failure::new(libc::ENOENT, format!("volume {id} is gone")))?;
        let usage = if v.removing { Usage::default() } else { self.usage(root).map_err(about(&v.name))? };
        let (quota, snapshots, misplaced) = {
            let st = self.lock();
            let quota = st.quotas.get(root).map_or(Pair::default(), |q| q.limit);
            (quota, st.snapshots.count(id) as u64, st.misplaced(id))
        };
        let p = v.properties;
        let (mut snapshot_users, mut snapshot_groups) = (Vec::new(), Vec::new());
        for who in p.snapshot_rights {
            match who {
                UserOrGroup::User(uid) => snapshot_users.push(uid),
                UserOrGroup::Group(gid) => snapshot_groups.push(gid),
            }
        }
        let copy = p.copy.map(|copy| self.copy_info(id, &copy));
        Ok(VolumeInfo {
            shard: self.which.index,
            origin: self.origin(id, copy.is_some()),
            copy,
            project: self.project_name_of(id),
            pool: self.pool_name(p.pool),
            misplaced_bytes: misplaced.bytes,
            stuck_segments: misplaced.stuck,
            snapshots,
            snapshots_max: p.snapshots_max,
            snapshot_dir: String::from_utf8_lossy(&p.snapshot_dir).into_owned(),
            snapshot_dir_visible: p.snapshot_dir_visible,
            quota_counts_snapshots: p.quota_counts_snapshots,
            bin_days: p.bin_days,
            audit_days: p.audit_days,
            public: p.public,
            snapshot_users,
            snapshot_groups,
            id,
            at: self.path_of(root).unwrap_or_default(),
            name: v.name,
            uid: v.uid,
            quota_bytes: quota.0,
            quota_files: quota.1,
            usage,
            created_secs: v.created_secs,
            removing: v.removing,
        })
    }

    pub(in crate::admin) fn change_properties(
        &self,
        id: u32,
        change: impl FnOnce(&mut Properties) -> Result<(), String>,
    ) -> Result<(), Failure> {
        let st = &mut *self.lock();
        let v = st.volumes.get_mut(&id).ok_or(Error::Stale).map_err(about("the volume"))?;
        let mut properties = v.properties.clone();
        change(&mut properties).map_err(|why| Failure::new(libc::EINVAL, why))?;
        v.properties = properties;
        st.volumes_dirty.insert(id);
        Ok(())
    }
}

/// Why something is refused in a copy.
pub(super) fn is_copy(shard: &Shard, volume: u32) -> Failure {
    let name = shard.volume_name(volume);
    let message =
        format!("volume {name} is a copy, which nobody changes: lee volume promote {name} ends that");
    Failure::new(libc::EROFS, message)
}

fn check_volume_name(name: &str) -> Result<(), Failure> {
    if name.is_empty() || name.len() > VOLUME_NAME_BYTES_MAX || name.contains(['/', '\0', '\n']) {
        let rule = format!("1 to {VOLUME_NAME_BYTES_MAX} bytes, no slash");
        return Err(Failure::new(libc::EINVAL, format!("{name:?} is no name for a volume: {rule}")));
    }
    Ok(())
}

/// Why something is refused about a volume that is not there.
pub(super) fn no_volume(name: &str) -> Failure {
    Failure::new(libc::ENOENT, format!("there is no volume {name}: see lee volume list"))
}

fn is_taken(name: &str) -> Failure {
    Failure::new(libc::EEXIST, format!("there is a volume {name} already: choose another name"))
}
