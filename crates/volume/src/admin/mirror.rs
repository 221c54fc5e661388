//! Requests about mirrors: where copies of volumes are kept up to date. The process that serves the
//! cell does that.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Done, Failure, Reply, Request};
pub use crate::format::inode::Compared;
use crate::format::inode::{MIRRORS_MAX, MirrorRecord, VolumeRecord};
use crate::format::mirrors::{MirrorsRecord, ProvenRecord};
use crate::format::schedule::Keep;
use crate::shard::Shard;
use crate::stream::OF_MIRRORS;
use leeward_env::hex;
use serde::{Deserialize, Serialize};

/// Shortest interval.
const EVERY_SECS_MIN: u32 = 10;
const TEXT_BYTES_MAX: usize = 1024;
/// Beyond twice its interval a copy may be so much older before it is late.
pub(super) const LATE_SECS: i64 = 60;

/// A copy of a volume in another cell that is kept up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorInfo {
    /// The volume.
    pub volume: String,
    /// The other cell: servers with ports and commas between them, or a place on this machine.
    pub to: String,
    /// The public key of the other cell, in hexadecimal; `None`: it is on this machine.
    pub key: Option<String>,
    /// Name of the copy there.
    pub copy: String,
    /// Seconds from one snapshot to the next.
    pub every_secs: u32,
    /// Most bytes in a second; 0: no limit.
    pub bytes_per_sec: u64,
    /// Which of its snapshots the copy keeps, such as `24h7d`.
    pub keep: String,
    /// When it was made, seconds since 1970.
    #[serde(default)]
    pub since_secs: i64,
    /// Whether the volume is a copy itself at the moment: nothing is sent then.
    #[serde(default)]
    pub is_copy: bool,
    /// What came of the last comparison in full.
    #[serde(default)]
    pub compared: Option<Compared>,
    /// The newest snapshot that the copy has shown and proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_proven: Option<Proven>,
    /// What the copy lacks.
    #[serde(default, skip_serializing_if = "Backlog::is_empty")]
    pub lacks: Backlog,
}

/// What a copy lacks that is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    /// Snapshots that the mirror has taken and not sent to their end.
    pub snapshots: u64,
    /// Records and pieces of data that have changed since what the copy has proven; of a copy that
    /// has proven nothing all files and directories.
    pub changes: u64,
}

impl Backlog {
    /// Whether the copy lacks nothing.
    pub fn is_empty(&self) -> bool {
        *self == Backlog::default()
    }
}

impl MirrorInfo {
    /// The names of the snapshots that this mirror takes begin with this: each has its own.
    pub fn snapshot_prefix(&self) -> String {
        let bytes = self.to.bytes().chain([0]).chain(self.copy.bytes());
        let hash = bytes.fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
        format!("{OF_MIRRORS}{hash:08x}-")
    }
}

/// Whether a copy is too old that is to be made anew at this interval: older than twice that and a
/// minute.
pub fn is_late(every_secs: u32, age_secs: i64) -> bool {
    age_secs > 2 * i64::from(every_secs) + LATE_SECS
}

/// A snapshot that a copy has shown and proven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proven {
    /// Its name.
    pub snapshot: String,
    /// When it was taken, seconds since 1970.
    pub time_secs: i64,
}

impl Reply for MirrorInfo {
    const KIND: &'static str = "mirror";
}

/// Makes a mirror, or changes the one of the same volume to the same copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorSet {
    /// What it is to be.
    pub mirror: MirrorInfo,
}

impl Request for MirrorSet {
    type Reply = MirrorInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.mirror.volume)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<MirrorInfo, Failure> {
        let id = shard.volume_named(&self.mirror.volume)?;
        let record = record_of(&self.mirror, shard.now().secs)?;
        let (to, copy, mut is_new) = (record.to.clone(), record.copy.clone(), false);
        shard.change_properties(id, |p| {
            match p.mirrors.iter().position(|m| is_same(m, &record.to, &record.copy)) {
                Some(at) => {
                    let (since_secs, compared) = (p.mirrors[at].since_secs, p.mirrors[at].compared.take());
                    is_new = p.mirrors[at].key != record.key;
                    p.mirrors[at] = MirrorRecord { since_secs, compared, ..record };
                }
                None if p.mirrors.len() >= MIRRORS_MAX => {
                    return Err(format!("a volume has at most {MIRRORS_MAX} mirrors: remove one"));
                }
                None => {
                    is_new = true;
                    p.mirrors.push(record);
                }
            }
            Ok(())
        })?;
        if is_new {
            // another cell at the same address has proven nothing
            shard.forget_proven(id, (&to, &copy))?;
        }
        shard.settle()?;
        let found = shard
            .mirrors()
            .into_iter()
            .find(|m| m.volume == self.mirror.volume && m.to == self.mirror.to && m.copy == self.mirror.copy);
        found.ok_or_else(|| missing(&self.mirror.volume))
    }
}

fn is_same(record: &MirrorRecord, to: &str, copy: &str) -> bool {
    record.to == to && record.copy == copy
}

fn missing(volume: &str) -> Failure {
    Failure::new(libc::ENOENT, format!("volume {volume} has no such mirror: see lee mirror status"))
}

fn record_of(mirror: &MirrorInfo, now: i64) -> Result<MirrorRecord, Failure> {
    let wrong = |why: String| Failure::new(libc::EINVAL, why);
    let keep: Keep = mirror.keep.parse().map_err(wrong)?;
    if mirror.every_secs < EVERY_SECS_MIN {
        return Err(wrong(format!("an interval is {EVERY_SECS_MIN} s at least")));
    }
    if mirror.to.is_empty() || mirror.to.len() > TEXT_BYTES_MAX || mirror.copy.len() > TEXT_BYTES_MAX {
        return Err(wrong(format!("name another cell and a copy, in 1 to {TEXT_BYTES_MAX} bytes")));
    }
    let key = mirror.key.as_ref().map(|key| {
        let bytes = hex::decode(key).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| wrong(format!("{key:?} is no key")))
    });
    Ok(MirrorRecord {
        to: mirror.to.clone(),
        key: key.transpose()?,
        copy: mirror.copy.clone(),
        every_secs: mirror.every_secs,
        bytes_per_sec: mirror.bytes_per_sec,
        keep: keep.to_string(),
        since_secs: now,
        compared: None,
    })
}

/// Notes what came of comparing a volume with a copy in full.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorNote {
    /// The volume.
    pub volume: String,
    /// The other cell.
    pub to: String,
    /// Name of the copy there.
    pub copy: String,
    /// `None`: what was compared is not there any more.
    pub compared: Option<Compared>,
}

impl Request for MirrorNote {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        let id = shard.volume_named(&self.volume)?;
        let mut compared = self.compared.clone();
        if let Some(compared) = &mut compared {
            let end = compared.differs.floor_char_boundary(TEXT_BYTES_MAX);
            compared.differs.truncate(end);
        }
        let mut any = false;
        shard.change_properties(id, |p| {
            for mirror in p.mirrors.iter_mut().filter(|m| is_same(m, &self.to, &self.copy)) {
                mirror.compared.clone_from(&compared);
                any = true;
            }
            Ok(())
        })?;
        shard.settle()?;
        if any { Ok(Done {}) } else { Err(missing(&self.volume)) }
    }
}

/// Notes which snapshot a copy has shown and proven.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorProven {
    /// The volume.
    pub volume: String,
    /// The other cell.
    pub to: String,
    /// Name of the copy there.
    pub copy: String,
    /// `None`: it shows none that was taken here.
    pub proven: Option<Proven>,
}

impl Request for MirrorProven {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        let id = shard.volume_named(&self.volume)?;
        let proven = self.proven.as_ref().map(|proven| ProvenRecord {
            to: self.to.clone(),
            copy: self.copy.clone(),
            snapshot: proven.snapshot.clone(),
            time_secs: proven.time_secs,
        });
        let change = |volume: &VolumeRecord, record: &mut MirrorsRecord| {
            if !volume.properties.mirrors.iter().any(|m| is_same(m, &self.to, &self.copy)) {
                return Err(missing(&self.volume));
            }
            record.proven.retain(|known| !known.is_of(&self.to, &self.copy));
            record.proven.extend(proven.clone());
            Ok(())
        };
        if shard.keep_of_mirrors_if(id, change).map_err(about("what the copy has proven"))?? {
            shard.settle()?;
        }
        Ok(Done {})
    }
}

/// Removes a mirror. The copy stays, and so do snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorUnset {
    /// The volume.
    pub volume: String,
    /// The other cell.
    pub to: String,
    /// Name of the copy there.
    pub copy: String,
}

impl Request for MirrorUnset {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        let id = shard.volume_named(&self.volume)?;
        let mut any = false;
        shard.change_properties(id, |p| {
            let before = p.mirrors.len();
            p.mirrors.retain(|m| !is_same(m, &self.to, &self.copy));
            any = p.mirrors.len() < before;
            Ok(())
        })?;
        shard.forget_proven(id, (&self.to, &self.copy))?;
        shard.settle()?;
        if any { Ok(Done {}) } else { Err(missing(&self.volume)) }
    }
}

/// Lists all mirrors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorList;

/// All mirrors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorInfos {
    /// By volume.
    pub mirrors: Vec<MirrorInfo>,
}

impl Reply for MirrorInfos {
    const KIND: &'static str = "mirrors";
}

impl Request for MirrorList {
    type Reply = MirrorInfos;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut MirrorInfos, mut other: MirrorInfos) {
        all.mirrors.append(&mut other.mirrors);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<MirrorInfos, Failure> {
        let mut mirrors = shard.mirrors();
        for mirror in mirrors.iter_mut().filter(|mirror| !mirror.is_copy) {
            // it may be removed meanwhile
            let Ok(id) = shard.volume_named(&mirror.volume) else { continue };
            mirror.lacks = shard.backlog(id, mirror);
        }
        Ok(MirrorInfos { mirrors })
    }
}

impl Shard {
    /// A copy has proven nothing, as far as is known.
    fn forget_proven(&self, volume: u32, (to, copy): (&str, &str)) -> Result<(), Failure> {
        let forget = |record: &mut MirrorsRecord| record.proven.retain(|known| !known.is_of(to, copy));
        self.keep_of_mirrors(volume, forget).map(drop).map_err(about("what the copy has proven"))
    }

    /// What the copy of a mirror lacks.
    fn backlog(&self, volume: u32, mirror: &MirrorInfo) -> Backlog {
        let prefix = mirror.snapshot_prefix();
        let proven = mirror.last_proven.as_ref();
        let proven = proven.and_then(|p| self.root_snapshot(volume, p.snapshot.as_bytes()));
        let proven = proven.map(|(epoch, _)| epoch);
        let changes = match proven {
            Some(epoch) => self.lock().snapshots.changed_since(volume, epoch),
            None => self.lock().owners.inodes_in(volume),
        };
        let since = proven.unwrap_or(0);
        let st = self.lock();
        let of_root = st.snapshots.of_dir(volume, 1).into_iter().flatten();
        let left = of_root.filter(|(name, epoch)| name.starts_with(prefix.as_bytes()) && **epoch > since);
        Backlog { snapshots: left.count() as u64, changes }
    }

    fn mirrors(&self) -> Vec<MirrorInfo> {
        let st = self.lock();
        let volumes = st.volumes.iter().filter(|(_, v)| !v.removing);
        let of = volumes.flat_map(|(id, v)| {
            let kept = st.mirrors.get(id);
            v.properties.mirrors.iter().map(move |mirror| (v, mirror, kept))
        });
        let info = of.map(|(v, mirror, kept)| MirrorInfo {
            volume: v.name.clone(),
            to: mirror.to.clone(),
            key: mirror.key.map(|key| hex::encode(&key)),
            copy: mirror.copy.clone(),
            every_secs: mirror.every_secs,
            bytes_per_sec: mirror.bytes_per_sec,
            keep: mirror.keep.clone(),
            since_secs: mirror.since_secs,
            is_copy: v.properties.copy.is_some(),
            compared: mirror.compared.clone(),
            last_proven: kept
                .and_then(|kept| kept.proven_by(&mirror.to, &mirror.copy))
                .map(|proven| Proven { snapshot: proven.snapshot.clone(), time_secs: proven.time_secs }),
            lacks: Backlog::default(),
        });
        info.collect()
    }
}
