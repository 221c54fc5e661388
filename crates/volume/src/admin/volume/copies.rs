//! Lists the copies of volumes of other cells that are here, and those that were promoted: how old
//! each is, and where it came from. That is known also when the other cell is gone.

use super::VolumeInfo;
use crate::admin::{Caller, Failure, Reply, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};

/// Beyond twice its interval a copy may be so much older before it is late.
const LATE_SECS: i64 = 60;

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
    /// a clock that was ahead: then it is not known.
    pub late: bool,
}

impl CopyStatus {
    /// What is said of a volume; `None`: it is no copy, and was none.
    pub fn of(info: &VolumeInfo, now_secs: i64) -> Option<CopyStatus> {
        let origin = info.origin.clone().unwrap_or_default();
        if info.copy.is_none() && origin.promoted.is_none() {
            return None;
        }
        let snapshot = info.copy.as_ref().and_then(|copy| copy.snapshot.clone());
        let taken = info.copy.as_ref().map(|copy| copy.time_secs).filter(|_| snapshot.is_some());
        let since = info.copy.as_ref().map(|_| taken.unwrap_or(info.created_secs));
        let age_secs = since.map(|since| now_secs.saturating_sub(since).max(0));
        let is_ahead = since.is_some_and(|since| since > now_secs.saturating_add(LATE_SECS));
        let most = 2 * i64::from(origin.every_secs) + LATE_SECS;
        let late = origin.every_secs > 0 && (is_ahead || age_secs.is_some_and(|age| age > most));
        Some(CopyStatus { volume: info.name.clone(), origin, snapshot, age_secs, late })
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

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<CopyInfos, Failure> {
        let meant: Vec<u32> = {
            let st = shard.lock();
            let was_one = |id: &u32| st.mirrors.get(id).is_some_and(|kept| kept.origin.is_some());
            let volumes = st.volumes.iter().filter(|(_, v)| !v.removing);
            volumes.map(|(id, _)| *id).filter(|id| st.is_copy(*id) || was_one(id)).collect()
        };
        let now = shard.now().secs;
        // one may be removed meanwhile
        let infos = meant.into_iter().filter_map(|id| shard.volume_info(id).ok());
        let copies = infos.filter_map(|info| CopyStatus::of(&info, now)).collect();
        Ok(CopyInfos { copies })
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
        })
    }
}
