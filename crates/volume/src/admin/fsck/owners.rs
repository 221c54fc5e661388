//! What users and groups own, by the records of inodes: as the table of it says, and as memory
//! does.

use super::Census;
use crate::format::each;
use crate::format::inode::{Pair, Stats};
use crate::format::keys::{self, Key, Table};
use crate::format::owned::Owned;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Error, NodeId, Result};
use leeward_meta::Moment;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// What users and groups own, by volume.
pub(super) type OwnedBy = BTreeMap<(u32, UserOrGroup), Stats>;

/// What is said and found of owners.
#[derive(Default)]
pub(super) struct OwnersSeen {
    stored: OwnedBy,
    found: OwnedBy,
    /// From which inode on volumes are still to be counted.
    uncounted: FxHashMap<u32, u64>,
    /// Whether nothing is counted yet.
    is_new: bool,
    /// What memory counts as used, when nothing else was in memory only.
    pub(super) used: Option<OwnedBy>,
}

impl OwnersSeen {
    /// Reads what is stored of these volumes.
    pub(super) fn stored(&mut self, moment: &dyn Moment, volumes: &[u32]) -> Result<()> {
        let marker = keys::owners_counted();
        self.is_new = moment.scan(&marker, &keys::after(&marker), 1)?.is_empty();
        each(moment, keys::table_range(Table::Uncounted), |key, v| {
            self.uncounted.insert(keys::table_id(key) as u32, Pair::decode(v)?.0);
            Ok(())
        })?;
        let volumes: FxHashSet<u32> = volumes.iter().copied().collect();
        each(moment, keys::table_range(Table::Owned), |key: &Key, v| {
            let Some((Some(volume), who)) = keys::parse_owned(key) else {
                return Err(Error::Corrupt("a key of what users own".into()));
            };
            if volumes.contains(&volume) {
                self.stored.insert((volume, who), Stats::decode(v)?);
            }
            Ok(())
        })
    }

    /// An inode was found.
    pub(super) fn inode(&mut self, node: NodeId, record: &[u8]) {
        let is_counted = self.uncounted.get(&node.volume()).is_none_or(|from| node.inode() < *from);
        let Some(owned) = Owned::of_record(record).filter(|_| is_counted && !self.is_new) else { return };
        for who in owned.owners() {
            let sum = self.found.entry((node.volume(), who)).or_default();
            *sum = sum.plus(owned.usage);
        }
    }
}

impl Census {
    /// Compares what is said of owners with what was found.
    pub(super) fn check_owners(&mut self) {
        let OwnersSeen { stored, found, used, .. } = std::mem::take(&mut self.owners);
        self.compare_owned("recorded", &stored, &found);
        if let Some(used) = used {
            self.compare_owned("counted", &used, &found);
        }
    }

    fn compare_owned(&mut self, how: &str, said: &OwnedBy, found: &OwnedBy) {
        let of = |all: &OwnedBy, key| all.get(key).copied().unwrap_or_default();
        for key in said.keys().chain(found.keys().filter(|key| !said.contains_key(key))) {
            let (said, found) = (of(said, key), of(found, key));
            if said != found {
                let (volume, who) = key;
                let detail = format!("{who:?} in volume {volume}: {how} {said:?}, found {found:?}");
                self.say("owners", None, detail);
            }
        }
    }
}
