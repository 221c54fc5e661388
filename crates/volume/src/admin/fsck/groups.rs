//! Checks of groups that users own: names and numbers are theirs alone, members are there, and no
//! group is in itself.

use super::Census;
use crate::format::each;
use crate::format::groups::{GidRanges, GroupLimit};
use crate::format::keys::{self, Table};
use crate::format::stored::Stored;
use leeward_fs::Result;
use leeward_fs::groups::{GidRange, GroupRecord, Member, USUAL_RANGE, wrong_group_name};
use leeward_meta::Moment;
use std::collections::{BTreeMap, BTreeSet};

impl Census {
    pub(super) fn groups(&mut self, moment: &dyn Moment) -> Result<()> {
        let ranges = self.group_ranges(moment)?;
        let (mut names, mut owners) = (BTreeMap::new(), Vec::new());
        let mut all = BTreeSet::new();
        each(moment, keys::table_range(Table::Group), |key, value| {
            let gid = keys::table_id(key) as u32;
            all.insert(gid);
            match GroupRecord::decode(value) {
                Ok(record) => {
                    if let Some(wrong) = wrong_group_name(&record.name) {
                        self.say("group", None, format!("group {gid}: its name {wrong}"));
                    }
                    if let Some(other) = names.insert(record.name.clone(), gid) {
                        self.say(
                            "group",
                            None,
                            format!("groups {other} and {gid} are called {}", record.name),
                        );
                    }
                    owners.push((gid, record.owner));
                }
                Err(e) => self.say("damaged-record", None, format!("group {gid}: {e}")),
            }
            if !ranges.iter().any(|range| (range.first..range.next).contains(&gid)) {
                self.say("group", None, format!("group {gid} has a number that was not given"));
            }
            Ok(())
        })?;
        for (gid, owner) in owners {
            if let Member::Group(owner) = owner
                && !all.contains(&owner)
            {
                self.say("group", None, format!("group {gid} belongs to group {owner}, which is not there"));
            }
        }
        self.members(moment, &all)?;
        each(moment, keys::table_range(Table::GroupLimit), |key, value| {
            if let Err(e) = GroupLimit::decode(value) {
                let user = keys::parse_named(key).unwrap_or_default();
                self.say("damaged-record", None, format!("limit of groups of {user}: {e}"));
            }
            Ok(())
        })
    }

    fn group_ranges(&mut self, moment: &dyn Moment) -> Result<Vec<GidRange>> {
        let key = keys::group_ranges();
        let Some((_, value)) = moment.scan(&key, &keys::after(&key), 1)?.pop() else {
            return Ok(vec![USUAL_RANGE]);
        };
        match GidRanges::decode(&value) {
            Ok(ranges) => {
                let sorted: BTreeMap<u32, u32> = ranges.0.iter().map(|r| (r.first, r.last)).collect();
                let are_apart =
                    sorted.iter().zip(sorted.iter().skip(1)).all(|((_, last), (next, _))| last < next);
                if !are_apart || sorted.len() != ranges.0.len() {
                    self.say("group", None, "ranges of numbers of groups overlap".into());
                }
                Ok(ranges.0)
            }
            Err(e) => {
                self.say("damaged-record", None, e.to_string());
                Ok(Vec::new())
            }
        }
    }

    fn members(&mut self, moment: &dyn Moment, all: &BTreeSet<u32>) -> Result<()> {
        let mut inner: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        each(moment, keys::table_range(Table::Member), |key, _| {
            match keys::parse_member(key) {
                None => self.say("damaged-record", None, "the key of a member of a group".into()),
                Some((gid, member)) => {
                    let is_there = match &member {
                        Member::User(_) => true,
                        Member::Group(group) => {
                            inner.entry(gid).or_default().push(*group);
                            all.contains(group)
                        }
                    };
                    if !all.contains(&gid) || !is_there {
                        self.say("group", None, format!("a membership in {gid} of what is not there"));
                    }
                }
            }
            Ok(())
        })?;
        if let Some(gid) = in_itself(&inner) {
            self.say("group", None, format!("group {gid} is a member of itself, through others"));
        }
        Ok(())
    }
}

/// A group that is in itself: what is left when groups without members among the groups are taken
/// away again and again.
fn in_itself(inner: &BTreeMap<u32, Vec<u32>>) -> Option<u32> {
    let mut left: BTreeMap<u32, usize> = inner.iter().map(|(gid, inner)| (*gid, inner.len())).collect();
    let mut outer: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    inner.iter().for_each(|(gid, all)| all.iter().for_each(|i| outer.entry(*i).or_default().push(*gid)));
    let mut free: Vec<u32> = outer.keys().copied().filter(|gid| !left.contains_key(gid)).collect();
    while let Some(gid) = free.pop() {
        for above in outer.remove(&gid).unwrap_or_default() {
            if let Some(count) = left.get_mut(&above) {
                *count -= 1;
                if *count == 0 {
                    left.remove(&above);
                    free.push(above);
                }
            }
        }
    }
    left.pop_first().map(|(gid, _)| gid)
}
