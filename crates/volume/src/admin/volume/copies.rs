//! Lists the copies of volumes of other cells that are here, and those that were promoted: how old
//! each is, and where it came from. That is known also when the other cell is gone. A copy whose
//! mirror was removed is *detached*: it stays as it is, and is never late.

use super::{CopyInfo, VolumeInfo};
use crate::admin::failure::about;
use crate::admin::mirror::{LATE_SECS, is_late};
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::format::inode::VolumeRecord;
use crate::format::mirrors::MirrorsRecord;
use crate::shard::Shard;
use serde::{Deserialize, Serialize};

/// Where a copy came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The other cell, as this one knows it; empty: not known.
    pub cell: String,
    /// Name of the volume there; empty: not known.
    pub volume: String,
    /// Seconds from one snapshot to the next; 0: not known.
    pub every_secs: u32,
    /// How it became a volume like others; `None`: it is a copy.
    pub promoted: Option<Promotion>,
    /// When the mirror that kept the copy up to date was removed, seconds since 1970; `None`: it
    /// was not.
    #[serde(default)]
    pub detached_secs: Option<i64>,
}

/// How a copy became a volume like others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promotion {
    /// The snapshot that it showed; empty: it had received nothing.
    pub snapshot: String,
    /// When that was taken, seconds since 1970.
    pub time_secs: i64,
    /// When it was promoted, seconds since 1970.
    pub at_secs: i64,
    /// Whether the other volume has become a copy (`lee mirror switch`); else users may write to
    /// both.
    pub handed_over: bool,
}

/// A copy of a volume of another cell, or what was one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyStatus {
    /// The volume here.
    pub volume: String,
    /// Where it came from.
    pub origin: Origin,
    /// The snapshot that the copy shows, which is whole and proven; `None`: none yet, or it was
    /// promoted.
    pub snapshot: Option<String>,
    /// How old that is, seconds; of a copy that has received nothing: since it was made.
    pub age_secs: Option<i64>,
    /// Whether that is more than twice the interval and a minute; or it is dated in the future, by
    /// a clock that was ahead: then it is not known. Never of a copy whose mirror was removed.
    pub late: bool,
}

impl CopyStatus {
    /// What is said of a volume; `None`: it is no copy, and was none.
    pub fn of(info: &VolumeInfo, now_secs: i64) -> Option<CopyStatus> {
        let (name, made) = (info.name.clone(), info.created_secs);
        CopyStatus::from_parts((name, made), info.copy.as_ref(), info.origin.clone(), now_secs)
    }

    /// Of a volume with this name that was made then.
    fn from_parts(
        (volume, made_secs): (String, i64),
        copy: Option<&CopyInfo>,
        origin: Option<Origin>,
        now_secs: i64,
    ) -> Option<CopyStatus> {
        let origin = origin.unwrap_or_default();
        if copy.is_none() && origin.promoted.is_none() {
            return None;
        }
        let snapshot = copy.and_then(|copy| copy.snapshot.clone());
        let since = copy.map(|copy| if snapshot.is_some() { copy.time_secs } else { made_secs });
        let age_secs = since.map(|since| now_secs.saturating_sub(since).max(0));
        let is_ahead = since.is_some_and(|since| since > now_secs.saturating_add(LATE_SECS));
        let is_old = age_secs.is_some_and(|age| is_late(origin.every_secs, age));
        let is_awaited = origin.every_secs > 0 && origin.detached_secs.is_none();
        let late = is_awaited && (is_ahead || is_old);
        Some(CopyStatus { volume, origin, snapshot, age_secs, late })
    }
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyInfos {
    /// By the number of the volume.
    pub copies: Vec<CopyStatus>,
}

impl Reply for CopyInfos {
    const KIND: &'static str = "copies";
}

/// Lists copies, and volumes that were some.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyList;

impl Request for CopyList {
    type Reply = CopyInfos;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut CopyInfos, mut other: CopyInfos) {
        all.copies.append(&mut other.copies);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<CopyInfos, Failure> {
        let meant: Vec<(u32, VolumeRecord)> = {
            let st = shard.lock();
            let was_one = |id: u32| st.mirrors.get(&id).is_some_and(|kept| kept.origin.is_some());
            let volumes = st.volumes.iter().filter(|(_, v)| !v.removing);
            let meant = volumes.filter(|(id, v)| v.properties.copy.is_some() || was_one(**id));
            meant.map(|(id, v)| (*id, v.clone())).collect()
        };
        let now = shard.now().secs;
        let status = |(id, v): (u32, VolumeRecord)| {
            let copy = v.properties.copy.as_ref().map(|copy| shard.copy_info(id, copy));
            let origin = shard.origin(id, copy.is_some());
            CopyStatus::from_parts((v.name, v.created_secs), copy.as_ref(), origin, now)
        };
        Ok(CopyInfos { copies: meant.into_iter().filter_map(status).collect() })
    }
}

/// Notes that nothing more comes for a copy: the mirror that kept it up to date was removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyDetach {
    /// The copy.
    pub name: String,
    /// The cell whose mirror it was, as this one knows it; `None`: whichever it was.
    pub from: Option<String>,
}

impl Request for CopyDetach {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let volume = shard.volume_named(&self.name)?;
        let now = shard.now().secs;
        let change = |volume: &VolumeRecord, kept: &mut MirrorsRecord| {
            if volume.properties.copy.is_none() {
                let message = format!("volume {} is a volume of its own, and no copy", self.name);
                return Err(Failure::new(libc::EEXIST, message));
            }
            let origin = kept.origin.get_or_insert_default();
            if self.from.as_ref().is_some_and(|from| !origin.cell.is_empty() && *from != origin.cell) {
                let message = format!("the copy {} comes from {} now", self.name, origin.cell);
                return Err(Failure::new(libc::EBUSY, message));
            }
            origin.detached_secs.get_or_insert(now);
            Ok(())
        };
        if shard.keep_of_mirrors_if(volume, change).map_err(about(&self.name))?? {
            shard.settle()?;
        }
        shard.volume_info(volume)
    }
}

impl Shard {
    /// Where a copy came from; `None`: it is not known, or the volume was none.
    pub(super) fn origin(&self, volume: u32, is_copy: bool) -> Option<Origin> {
        let origin = self.lock().mirrors.get(&volume)?.origin.clone()?;
        let promoted = origin.promoted.filter(|_| !is_copy);
        Some(Origin {
            cell: origin.cell,
            volume: origin.volume,
            every_secs: origin.every_secs,
            promoted: promoted.map(|promoted| Promotion {
                snapshot: promoted.snapshot,
                time_secs: promoted.time_secs,
                at_secs: promoted.at_secs,
                handed_over: promoted.handed_over,
            }),
            detached_secs: origin.detached_secs,
        })
    }
}
