//! Snapshots that mirrors have taken and nobody needs are removed: here, and in the other cell.

use super::names::prefix_of;
use super::other::Other;
use super::{SECOND, Shared};
use crate::control::server::failure;
use leeward_volume::admin::{Failure, MirrorInfo, SET_ASIDE, SnapInfo, SnapList, SnapRemove};
use leeward_volume::format::schedule::{Keep, expired};
use std::collections::BTreeMap;

/// So long the copy keeps what it has shown for those who read in it, seconds.
const READ_SECS_MAX: i64 = 86_400;

impl Shared {
    /// Removes here all but the one that the copy shows, and those that are to be kept no more:
    /// there of this mirror, here of others that have brought them.
    pub(super) fn prune(
        &self,
        other: &Other,
        mirror: &MirrorInfo,
        (at, shown): (&str, &SnapInfo),
    ) -> Result<(), Failure> {
        let now = (self.env.wall() / SECOND) as i64;
        let is_old = |snap: &SnapInfo| snap.epoch < shown.epoch && snap.locked_until_secs <= now;
        for old in self.own(mirror, at)?.into_iter().filter(is_old) {
            self.remove_here(old)?;
        }
        self.prune_there(other, mirror, shown)?;
        self.prune_brought(mirror, at)
    }

    fn prune_there(&self, other: &Other, mirror: &MirrorInfo, shown: &SnapInfo) -> Result<(), Failure> {
        let volume = Some(mirror.copy.clone());
        let there = other.ask(&SnapList { path: None, volume }, &mut |_| ())?.snapshots;
        let set_aside = there.iter().filter(|snap| snap.name.starts_with(SET_ASIDE));
        let set_aside = set_aside.max_by_key(|snap| snap.epoch).map(|snap| snap.name.clone());
        self.note(mirror, |state| state.set_aside = set_aside);
        let prefix = mirror.snapshot_prefix();
        let mut there: Vec<SnapInfo> =
            there.into_iter().filter(|snap| snap.name.starts_with(&prefix)).collect();
        there.sort_by_key(|snap| (snap.time_secs, snap.epoch));
        let times: Vec<i64> = there.iter().map(|snap| snap.time_secs).collect();
        let now = (self.env.wall() / SECOND) as i64;
        let old = expired(&times, now, kept(mirror)?);
        let mut last = None;
        let may_go = |snap: &SnapInfo| {
            let is_read = snap.in_use && snap.time_secs > now - READ_SECS_MAX;
            snap.name != shown.name && snap.locked_until_secs <= now && !is_read
        };
        for snap in there {
            // of several of one second the first
            let again = last.replace(snap.time_secs) == Some(snap.time_secs);
            if (again || old.contains(&snap.time_secs)) && may_go(&snap) {
                ignore_missing(other.ask(&SnapRemove { path: snap.path, name: snap.name }, &mut |_| ()))?;
            }
        }
        Ok(())
    }

    /// The volume was a copy once, and has the history of that: nobody else removes it.
    fn prune_brought(&self, mirror: &MirrorInfo, at: &str) -> Result<(), Failure> {
        let of_volume = self.all()?.into_iter().filter(|other| other.volume == mirror.volume);
        let (mut own, mut reach) = (Vec::new(), kept(mirror)?.reach_secs());
        for other in of_volume {
            reach = reach.max(kept(&other)?.reach_secs());
            own.push(other.snapshot_prefix());
        }
        let now = (self.env.wall() / SECOND) as i64;
        for old in outlived(self.snapshots(at)?, &own, now, reach) {
            self.remove_here(old)?;
        }
        Ok(())
    }

    pub(super) fn remove_here(&self, snap: SnapInfo) -> Result<(), Failure> {
        ignore_missing(self.cell.admin(&SnapRemove { path: snap.path, name: snap.name }, &mut |_| ()))
    }
}

fn kept(mirror: &MirrorInfo) -> Result<Keep, Failure> {
    mirror.keep.parse().map_err(|why: String| failure(libc::EINVAL, &why))
}

/// Of snapshots that mirrors of other cells have taken those that are older than so many seconds.
/// The newest of each stays: a stream from there goes on from it. `all`: oldest first; `own`:
/// prefixes of the mirrors of this cell.
fn outlived(all: Vec<SnapInfo>, own: &[String], now: i64, reach_secs: i64) -> Vec<SnapInfo> {
    let prefix_of = |snap: &SnapInfo| {
        let prefix = prefix_of(&snap.name).filter(|prefix| !own.iter().any(|own| own == prefix));
        prefix.map(str::to_owned)
    };
    let newest: BTreeMap<String, u32> =
        all.iter().filter_map(|snap| Some((prefix_of(snap)?, snap.epoch))).collect();
    let is_old = |snap: &SnapInfo| {
        let is_newest = prefix_of(snap).is_none_or(|prefix| newest.get(&prefix) == Some(&snap.epoch));
        !is_newest && snap.time_secs < now - reach_secs && snap.locked_until_secs <= now
    };
    all.into_iter().filter(is_old).collect()
}

fn ignore_missing<T>(done: Result<T, Failure>) -> Result<(), Failure> {
    match done {
        Err(e) if e.errno != libc::ENOENT => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_cells_have_brought_goes_but_the_newest_of_each() {
        let mut all = Vec::new();
        let mut take = |name: &str, time_secs: i64, locked_until_secs: i64| {
            let (volume, path) = ("v".into(), "/v".into());
            let (epoch, name) =
                (all.len() as u32 + 1, format!("{name}2026-11-27T09:09:24.{:03}Z", all.len()));
            let (uid, alone_bytes, alone_records) = (0, 0, 0);
            all.push(SnapInfo {
                volume,
                path,
                snapshot_dir: String::new(),
                name,
                epoch,
                time_secs,
                time_nanos: 0,
                uid,
                locked_until_secs,
                alone_bytes,
                alone_records,
                in_use: false,
            });
        };
        let (own, other, third) = ("mirror-00000001-", "mirror-00000002-", "mirror-00000003-");
        take(own, 1, 0);
        take(other, 2, 0); // goes
        take(other, 3, 5000); // locked
        take("mirror-", 4, 0); // somebody's own
        take(third, 5, 0); // the newest of its mirror
        take(other, 950, 0); // not old
        take(other, 960, 0);
        take(own, 970, 0);
        let gone = outlived(all, &[own.into()], 1000, 100);
        assert_eq!(gone.iter().map(|snap| snap.epoch).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn what_is_kept_reaches_as_far_as_its_longest_unit() {
        let reach = |keep: &str| keep.parse::<Keep>().expect("good").reach_secs();
        assert_eq!((reach("24h"), reach("24h7d"), reach("2w10d")), (86_400, 7 * 86_400, 14 * 86_400));
    }
}
