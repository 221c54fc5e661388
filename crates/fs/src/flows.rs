//! Weights and ceilings that operators set for users and groups, and what follows for one user at
//! the gate.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The weight of a user without settings.
pub const WEIGHT_USUAL: u32 = 100;
/// The largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserOrGroup {
    /// A user, by uid.
    User(u32),
    /// A group, by gid.
    Group(u32),
}

/// Settings of a user or a group; `None`: not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowRecord {
    /// Weight relative to other users, 1 to [`WEIGHT_MAX`].
    pub weight: Option<u32>,
    /// Most operations in a second; 0: no ceiling, also if a group has one.
    pub ops_per_sec: Option<u64>,
    /// Most bytes read and written in a second; 0: no ceiling, also if a group has one.
    pub bytes_per_sec: Option<u64>,
}

impl FlowRecord {
    /// These settings; where one is not set, that of `other`.
    pub fn or(self, other: FlowRecord) -> FlowRecord {
        FlowRecord {
            weight: self.weight.or(other.weight),
            ops_per_sec: self.ops_per_sec.or(other.ops_per_sec),
            bytes_per_sec: self.bytes_per_sec.or(other.bytes_per_sec),
        }
    }
}

/// The settings in force for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveLimits {
    /// Weight relative to other users.
    pub weight: u32,
    /// Most operations in a second; 0: no ceiling.
    pub ops_per_sec: u64,
    /// Most bytes read and written in a second; 0: no ceiling.
    pub bytes_per_sec: u64,
}

/// Settings of all users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowSettings {
    by_who: BTreeMap<UserOrGroup, FlowRecord>,
}

impl FlowSettings {
    /// The settings of exactly this user or group.
    pub fn get(&self, who: UserOrGroup) -> FlowRecord {
        self.by_who.get(&who).copied().unwrap_or_default()
    }

    /// Sets or replaces a record; an empty record removes it.
    pub fn set(&mut self, who: UserOrGroup, record: FlowRecord) {
        if record == FlowRecord::default() {
            self.by_who.remove(&who);
        } else {
            self.by_who.insert(who, record);
        }
    }

    /// All records, users first.
    pub fn iter(&self) -> impl Iterator<Item = (UserOrGroup, FlowRecord)> + '_ {
        self.by_who.iter().map(|(who, record)| (*who, *record))
    }

    /// Whether there are no settings.
    pub fn is_empty(&self) -> bool {
        self.by_who.is_empty()
    }

    /// Whether any group has settings.
    pub fn has_groups(&self) -> bool {
        self.by_who.keys().next_back().is_some_and(|who| matches!(who, UserOrGroup::Group(_)))
    }

    /// The settings in force for a user in these groups. Settings of the user take precedence over
    /// those of groups. Of several groups the largest weight and the lowest ceiling count.
    pub fn in_force(&self, uid: u32, gids: &[u32]) -> EffectiveLimits {
        let own = self.get(UserOrGroup::User(uid));
        let groups = || gids.iter().map(|gid| self.get(UserOrGroup::Group(*gid)));
        let weight = own.weight.or_else(|| groups().filter_map(|g| g.weight).max());
        let lowest = |of: fn(&FlowRecord) -> Option<u64>| {
            of(&own).or_else(|| groups().filter_map(|g| of(&g)).filter(|rate| *rate > 0).min()).unwrap_or(0)
        };
        EffectiveLimits {
            weight: weight.unwrap_or(WEIGHT_USUAL),
            ops_per_sec: lowest(|r| r.ops_per_sec),
            bytes_per_sec: lowest(|r| r.bytes_per_sec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(weight: u32, ops: u64) -> FlowRecord {
        FlowRecord { weight: Some(weight), ops_per_sec: Some(ops), bytes_per_sec: None }
    }

    #[test]
    fn the_user_counts_before_groups() {
        let mut all = FlowSettings::default();
        assert!(all.is_empty() && !all.has_groups());
        assert_eq!(all.in_force(1, &[5]), EffectiveLimits { weight: 100, ops_per_sec: 0, bytes_per_sec: 0 });
        all.set(UserOrGroup::User(2), said(7, 0));
        assert!(!all.has_groups());
        for (gid, record) in [(5, said(300, 50)), (6, said(20, 10)), (7, said(1, 0))] {
            all.set(UserOrGroup::Group(gid), record);
        }
        assert!(all.has_groups());
        let of = |uid, gids: &[u32]| (all.in_force(uid, gids).weight, all.in_force(uid, gids).ops_per_sec);
        assert_eq!(of(1, &[5, 6, 7]), (300, 10), "the largest weight, the lowest ceiling");
        assert_eq!(of(1, &[7]), (1, 0));
        assert_eq!(of(2, &[5, 6]), (7, 0), "no ceiling was said about the user");
        let mut less = all.clone();
        less.set(UserOrGroup::User(2), FlowRecord { weight: Some(7), ..FlowRecord::default() });
        assert_eq!(less.in_force(2, &[6]).ops_per_sec, 10);
        less.set(UserOrGroup::User(2), FlowRecord::default());
        assert_eq!(less.iter().count(), 3);
    }
}
