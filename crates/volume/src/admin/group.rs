//! Requests about groups that users own. Each has the name of the user who asks; without one an
//! operator does, who may do all of it. Whether a user of that name exists anywhere is for the
//! serving process to know.

use crate::admin::{Caller, Failure, Refresh, Reply, Request};
use crate::format::groups::{MEMBERSHIPS_MAX, RANGES_MAX};
use crate::shard::Shard;
use leeward_fs::accounts::{AccountChange, Accounts, wrong_name};
use leeward_fs::groups::{
    GidRange, GroupChange, GroupRecord, GroupTable, MEMBERS_FOR_GROUP, Member, cell_name, prefix,
    system_name, wrong_group_name,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most members that a request names.
const MEMBERS_AT_ONCE_MAX: usize = 500;
/// Fewer numbers than this are skipped when a group is made with the number of another cell.
const NUMBERS_SKIPPED_MAX: u32 = 1_000_000;
/// Users of a group that its machines are told of.
const USERS_TOLD_MAX: usize = 1000;

/// A group that a user owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Name, `PREFIX:NAME`.
    pub name: String,
    /// Its name for programs of Linux, where a colon separates fields.
    pub system_name: String,
    /// Its number: the group that files can have.
    pub gid: u32,
    /// The user, or the group, whose it is.
    pub owner: String,
    /// Direct members.
    pub members: u64,
    /// Seconds since 1970.
    pub created_secs: i64,
}

impl Reply for GroupInfo {
    const KIND: &'static str = "group";
}

/// Makes a group. It has no members yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupCreate {
    /// Name, see [`wrong_group_name`]. Of a user who asks it begins with that user's.
    pub name: String,
    /// A user, or a group, whose it is; `None`: the user whose name it begins with.
    #[serde(default)]
    pub owner: Option<String>,
    /// Its number, which it has in another cell; for operators. `None`: one that no group had.
    #[serde(default)]
    pub gid: Option<u32>,
    /// The user who asks; `None`: an operator.
    #[serde(default)]
    pub by: Option<String>,
}

impl Request for GroupCreate {
    type Reply = GroupInfo;
    const REFRESH: Refresh = Refresh::Groups;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupInfo, Failure> {
        let name = cell_name(&self.name);
        if let Some(wrong) = wrong_group_name(&name) {
            return Err(Failure::new(libc::EINVAL, format!("{name:?} {wrong}")));
        }
        shard.change_groups(|groups, now| {
            if groups.number(&name).is_some() {
                let message = format!("there is a group {name} already: see lee group show {name}");
                return Err(Failure::new(libc::EEXIST, message));
            }
            if let Some(by) = &self.by {
                may_create(groups, by, &name)?;
            }
            let owner = member_named(groups, self.owner.as_deref().unwrap_or(prefix(&name)))?;
            let (gid, ranges) = match self.gid {
                None => next_number(groups)?,
                Some(_) if self.by.is_some() => {
                    return Err(Failure::new(libc::EPERM, format!("{name}: operators choose numbers")));
                }
                Some(gid) => (gid, with_number(groups, gid)?),
            };
            let record = GroupRecord { name: (*name).into(), owner, created_secs: now };
            Ok(vec![GroupChange::Ranges(ranges), GroupChange::Group(gid, Some(record))])
        })?;
        shard.group_info(&name)
    }
}

/// A user makes groups in no other name, and so many.
fn may_create(groups: &GroupTable, by: &str, name: &str) -> Result<(), Failure> {
    if prefix(name) != by {
        let message = format!("{name}: your groups are called {by}:NAME");
        return Err(Failure::new(libc::EPERM, message));
    }
    let (has, may) = (groups.count(by).groups, groups.limit(by));
    if has >= may {
        let message = format!(
            "there are {has} groups {by}:NAME, and may be {may}: remove some, or ask an operator (lee group limit)"
        );
        return Err(Failure::new(libc::EDQUOT, message));
    }
    Ok(())
}

/// A number that no group had, and the ranges without it.
fn next_number(groups: &GroupTable) -> Result<(u32, Vec<GidRange>), Failure> {
    let mut ranges = groups.ranges().to_vec();
    let left = ranges.last_mut().filter(|range| range.next <= range.last);
    let range = left.ok_or_else(|| {
        Failure::new(libc::ENOSPC, "no number is left for groups: give them others (lee group range)")
    })?;
    let gid = range.next;
    range.next += 1;
    Ok((gid, ranges))
}

/// The ranges when a group gets a number that it has in another cell: of a range that this cell has
/// or had. What lies between counts as given: it may have been, there.
fn with_number(groups: &GroupTable, gid: u32) -> Result<Vec<GidRange>, Failure> {
    if let Some(other) = groups.get(gid) {
        let message = format!("{gid} is the number of the group {}", other.name);
        return Err(Failure::new(libc::EEXIST, message));
    }
    let mut ranges = groups.ranges().to_vec();
    if ranges.iter().any(|range| (range.first..range.next).contains(&gid)) {
        return Ok(ranges);
    }
    let in_use = ranges.len() - 1;
    let before = (0..ranges.len()).filter(|n| ranges[*n].next <= gid).max_by_key(|n| ranges[*n].next);
    let may_grow = |n: &usize| match *n == in_use {
        true => gid <= ranges[*n].last,
        false => {
            gid - ranges[*n].next < NUMBERS_SKIPPED_MAX
                && ranges.iter().all(|r| !(ranges[*n].next..=gid).contains(&r.first))
        }
    };
    let Some(n) = before.filter(may_grow) else {
        let message = format!(
            "{gid} is in none of the ranges of this cell's groups: give it that of the other cell first (lee group range)"
        );
        return Err(Failure::new(libc::EINVAL, message));
    };
    ranges[n].next = gid + 1;
    ranges[n].last = ranges[n].last.max(gid);
    Ok(ranges)
}

/// Gives a group another owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupSet {
    /// Name.
    pub name: String,
    /// A user, or a group.
    pub owner: String,
    /// The user who asks; `None`: an operator.
    #[serde(default)]
    pub by: Option<String>,
}

impl Request for GroupSet {
    type Reply = GroupInfo;
    const REFRESH: Refresh = Refresh::Groups;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupInfo, Failure> {
        shard.change_groups(|groups, _| {
            let (gid, record) = owned(groups, &self.name, self.by.as_deref())?;
            let owner = member_named(groups, &self.owner)?;
            if let (Member::Group(owner), Some(by)) = (&owner, &self.by) {
                self.keeps_an_owner(groups, (gid, *owner), by)?;
            }
            Ok(vec![GroupChange::Group(gid, Some(GroupRecord { owner, ..record.clone() }))])
        })?;
        shard.group_info(&self.name)
    }
}

impl GroupSet {
    /// Nobody but an operator could change a group again that belongs to a group without users; and
    /// who gives a group to itself wants to be one of those who may change it.
    fn keeps_an_owner(&self, groups: &GroupTable, (gid, owner): (u32, u32), by: &str) -> Result<(), Failure> {
        let why = match groups.users_in(owner, 1).is_empty() {
            true => "nobody is in",
            false if gid == owner && !groups.of_user(by).contains(&gid) => "you are not in",
            false => return Ok(()),
        };
        let (owner, name) = (&self.owner, &self.name);
        let message = format!(
            "{why} {owner}, whose members would be those who may change {name}: lee group add {owner} {by} first"
        );
        Err(Failure::new(libc::EINVAL, message))
    }
}

/// Makes users and groups members of a group. Those that are already stay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupAdd {
    /// Name.
    pub name: String,
    /// Users and groups; at most 500.
    pub members: Vec<String>,
    /// The user who asks; `None`: an operator.
    #[serde(default)]
    pub by: Option<String>,
}

impl Request for GroupAdd {
    type Reply = GroupInfo;
    const REFRESH: Refresh = Refresh::Groups;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupInfo, Failure> {
        few(&self.members)?;
        shard.change_groups(|groups, _| {
            let (gid, record) = owned(groups, &self.name, self.by.as_deref())?;
            let mut new = BTreeSet::new();
            for text in &self.members {
                let member = member_named(groups, text)?;
                refuse_cycle(groups, gid, &member)?;
                if !groups.has(gid, &member) {
                    new.insert(member);
                }
            }
            refuse_many(groups, prefix(&record.name), self.by.is_some(), new.len() as u64)?;
            Ok(new.into_iter().map(|member| GroupChange::Member(gid, member, true)).collect())
        })?;
        shard.group_info(&self.name)
    }
}

fn few(members: &[String]) -> Result<(), Failure> {
    match members.len() {
        1..=MEMBERS_AT_ONCE_MAX => Ok(()),
        _ => {
            let message = format!("name 1 to {MEMBERS_AT_ONCE_MAX} members at a time");
            Err(Failure::new(libc::EINVAL, message))
        }
    }
}

fn refuse_cycle(groups: &GroupTable, gid: u32, member: &Member) -> Result<(), Failure> {
    let Member::Group(inner) = member else { return Ok(()) };
    if *inner == gid || groups.above(&Member::Group(gid)).contains(inner) {
        let (name, inner) = (shown(groups, &Member::Group(gid)), shown(groups, member));
        let message = format!("{inner} cannot be a member of {name}: {name} is, or would be, one of its own");
        return Err(Failure::new(libc::ELOOP, message));
    }
    Ok(())
}

fn refuse_many(groups: &GroupTable, prefix: &str, is_limited: bool, more: u64) -> Result<(), Failure> {
    let (has, may) = (groups.count(prefix).members, u64::from(groups.limit(prefix)) * MEMBERS_FOR_GROUP);
    if is_limited && has + more > may {
        let message = format!(
            "the groups {prefix}:NAME have {has} members together, and may have {may}: drop some, make groups \
             members instead of users, or ask an operator (lee group limit)"
        );
        return Err(Failure::new(libc::EDQUOT, message));
    }
    if groups.memberships() + more > MEMBERSHIPS_MAX {
        let message =
            format!("all groups together have {} members, which is about the most", groups.memberships());
        return Err(Failure::new(libc::ENOSPC, message));
    }
    Ok(())
}

/// Users and groups are members of a group no more. Everybody may leave by himself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupDrop {
    /// Name.
    pub name: String,
    /// Users and groups; at most 500.
    pub members: Vec<String>,
    /// The user who asks; `None`: an operator.
    #[serde(default)]
    pub by: Option<String>,
}

impl Request for GroupDrop {
    type Reply = GroupInfo;
    const REFRESH: Refresh = Refresh::Groups;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupInfo, Failure> {
        few(&self.members)?;
        shard.change_groups(|groups, _| {
            let leaves = self.by.as_ref().is_some_and(|by| self.members.iter().all(|name| name == by));
            let (gid, record) = match leaves {
                true => named(groups, &self.name)?,
                false => owned(groups, &self.name, self.by.as_deref())?,
            };
            let mut gone = BTreeSet::new();
            for text in &self.members {
                let member = member_named(groups, text)?;
                if !groups.has(gid, &member) {
                    let message = format!("{text} is no member of {} itself", record.name);
                    return Err(Failure::new(libc::ENOENT, message));
                }
                gone.insert(member);
            }
            Ok(gone.into_iter().map(|member| GroupChange::Member(gid, member, false)).collect())
        })?;
        shard.group_info(&self.name)
    }
}

/// Removes a group. Files keep its number, which no other group gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupRemove {
    /// Name.
    pub name: String,
    /// The user who asks; `None`: an operator.
    #[serde(default)]
    pub by: Option<String>,
}

impl Request for GroupRemove {
    type Reply = GroupInfo;
    const REFRESH: Refresh = Refresh::Groups;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupInfo, Failure> {
        let was = shard.group_info(&self.name)?;
        shard.change_groups(|groups, _| {
            let (gid, record) = owned(groups, &self.name, self.by.as_deref())?;
            let itself = Member::Group(gid);
            if let Some((_, other)) =
                groups.all().find(|(other, group)| group.owner == itself && *other != gid)
            {
                let message = format!(
                    "{} owns the group {}: give that one another owner first (lee group set)",
                    record.name, other.name
                );
                return Err(Failure::new(libc::EBUSY, message));
            }
            let members = groups.members(gid).into_iter();
            let mut changes: Vec<GroupChange> =
                members.map(|member| GroupChange::Member(gid, member.clone(), false)).collect();
            let above = groups.above(&itself).into_iter().filter(|outer| groups.has(*outer, &itself));
            changes.extend(above.map(|outer| GroupChange::Member(outer, itself.clone(), false)));
            changes.push(GroupChange::Group(gid, None));
            Ok(changes)
        })?;
        Ok(was)
    }
}

/// Lists groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupList {
    /// Those that this user owns or is in; `None`: all.
    pub of: Option<String>,
}

/// Groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfos {
    /// By name.
    pub groups: Vec<GroupInfo>,
}

impl Reply for GroupInfos {
    const KIND: &'static str = "groups";
}

impl Request for GroupList {
    type Reply = GroupInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupInfos, Failure> {
        let accounts = shard.accounts();
        let groups = accounts.groups();
        let is_of = |gid: u32, user: &str| {
            groups.is_owner(user, gid) || groups.of_user(user).binary_search(&gid).is_ok()
        };
        let listed = groups.all().filter(|(gid, _)| self.of.as_ref().is_none_or(|user| is_of(*gid, user)));
        let mut listed: Vec<GroupInfo> = listed.map(|(gid, record)| info(groups, gid, record)).collect();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(GroupInfos { groups: listed })
    }
}

/// Shows a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupShow {
    /// Name.
    pub name: String,
}

/// A group with its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDetails {
    /// The group.
    #[serde(flatten)]
    pub group: GroupInfo,
    /// Direct members: users by name, then groups.
    pub member_names: Vec<String>,
    /// Groups in which it is, directly or through others, by number.
    pub is_in: Vec<String>,
}

impl Reply for GroupDetails {
    const KIND: &'static str = "group-details";
}

impl Request for GroupShow {
    type Reply = GroupDetails;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupDetails, Failure> {
        let accounts = shard.accounts();
        let groups = accounts.groups();
        let (gid, record) = named(groups, &self.name)?;
        let names = |of: &Member| shown(groups, of);
        Ok(GroupDetails {
            group: info(groups, gid, record),
            member_names: groups.members(gid).into_iter().map(names).collect(),
            is_in: groups
                .above(&Member::Group(gid))
                .into_iter()
                .map(|outer| names(&Member::Group(outer)))
                .collect(),
        })
    }
}

/// What a machine that mounts the cell asks for its user database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupKey {
    /// The group with this number.
    Gid(u32),
    /// The group of this name, as [`system_name`] makes it.
    SystemName(String),
    /// The groups of this user.
    User(String),
}

/// Finds groups for the user database of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupFind {
    /// Which.
    pub key: GroupKey,
}

/// A group as the user database of a machine has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemGroup {
    /// Name, without a colon.
    pub name: String,
    /// Number.
    pub gid: u32,
    /// Users in it, directly or through other groups; the first 1,000, and none where the groups of
    /// a user were asked for.
    pub users: Vec<String>,
}

/// Groups for the user database of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemGroups {
    /// By number.
    pub groups: Vec<SystemGroup>,
}

impl Reply for SystemGroups {
    const KIND: &'static str = "system-groups";
}

impl Request for GroupFind {
    type Reply = SystemGroups;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<SystemGroups, Failure> {
        Ok(find_groups(shard.accounts().groups(), &self.key))
    }
}

/// The groups that a machine asks for.
pub fn find_groups(groups: &GroupTable, key: &GroupKey) -> SystemGroups {
    let (gids, with_users) = match key {
        GroupKey::Gid(gid) => (vec![*gid], true),
        GroupKey::SystemName(name) => (groups.number(&cell_name(name)).into_iter().collect(), true),
        GroupKey::User(name) => (groups.of_user(name).to_vec(), false),
    };
    let users = |gid| match with_users {
        true => groups.users_in(gid, USERS_TOLD_MAX).into_iter().map(String::from).collect(),
        false => Vec::new(),
    };
    let known = gids.into_iter().filter_map(|gid| Some((gid, groups.get(gid)?)));
    let of = |(gid, record): (u32, &GroupRecord)| SystemGroup {
        name: system_name(&record.name),
        gid,
        users: users(gid),
    };
    SystemGroups { groups: known.map(of).collect() }
}

/// Sets how many groups a user may have, or shows it. Members are limited with it: 1,000 for each
/// of the groups, in all of them together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupLimit {
    /// The user.
    pub user: String,
    /// Most groups; `None`: as it was.
    pub groups: Option<u32>,
}

/// How many groups a user has and may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAllowance {
    /// The user.
    pub user: String,
    /// Groups whose names begin with the user's.
    pub groups: u32,
    /// Most of them.
    pub groups_max: u32,
    /// Direct members of all of them.
    pub members: u64,
    /// Most members that their owners can give them.
    pub members_max: u64,
}

impl Reply for GroupAllowance {
    const KIND: &'static str = "group-allowance";
}

impl Request for GroupLimit {
    type Reply = GroupAllowance;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupAllowance, Failure> {
        let user = &self.user;
        if let Some(wrong) = wrong_name(user) {
            return Err(Failure::new(libc::EINVAL, format!("{user:?} {wrong}")));
        }
        if let Some(limit) = self.groups {
            shard.change_groups(|_, _| Ok(vec![GroupChange::Limit(user.clone(), Some(limit))]))?;
        }
        let accounts = shard.accounts();
        let (count, groups_max) = (accounts.groups().count(user), accounts.groups().limit(user));
        Ok(GroupAllowance {
            user: user.clone(),
            groups: count.groups,
            groups_max,
            members: count.members,
            members_max: u64::from(groups_max) * MEMBERS_FOR_GROUP,
        })
    }
}

/// Gives new groups other numbers, or shows which they get.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupRange {
    /// The lowest and the highest; `None`: as it was.
    pub numbers: Option<(u32, u32)>,
}

/// The numbers of groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRanges {
    /// Ranges; the last one is in use.
    pub ranges: Vec<GidRange>,
}

impl Reply for GroupRanges {
    const KIND: &'static str = "group-ranges";
}

impl Request for GroupRange {
    type Reply = GroupRanges;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<GroupRanges, Failure> {
        if let Some((first, last)) = self.numbers {
            shard
                .change_groups(|groups, _| Ok(vec![GroupChange::Ranges(with_range(groups, first, last)?)]))?;
        }
        Ok(GroupRanges { ranges: shard.accounts().groups().ranges().to_vec() })
    }
}

/// The ranges with one more. Of one from which no number was given nothing is kept.
fn with_range(groups: &GroupTable, first: u32, last: u32) -> Result<Vec<GidRange>, Failure> {
    let wrong = |message: String| Err(Failure::new(libc::EINVAL, message));
    if first < 1000 || last < first || last == u32::MAX {
        return wrong(format!("{first}-{last}: name numbers from 1000 on, the lower one first"));
    }
    let used = groups.ranges().iter().filter(|range| range.next > range.first);
    let mut ranges: Vec<GidRange> = used.copied().collect();
    // of an older one the numbers that were not given are free again
    if let Some(old) = ranges.iter().find(|old| first < old.next && old.first <= last) {
        return wrong(format!(
            "{}-{} were given to groups already, and are not given again",
            old.first,
            old.next - 1
        ));
    }
    if ranges.len() >= RANGES_MAX {
        return wrong(format!("there were {RANGES_MAX} ranges already"));
    }
    ranges.iter_mut().for_each(|old| old.last = old.next - 1);
    ranges.push(GidRange { first, last, next: first });
    Ok(ranges)
}

impl Shard {
    fn change_groups(
        &self,
        mut change: impl FnMut(&GroupTable, i64) -> Result<Vec<GroupChange>, Failure>,
    ) -> Result<(), Failure> {
        self.change_accounts(|accounts: &Accounts, now| {
            let changes = change(accounts.groups(), now)?;
            Ok(changes.into_iter().map(AccountChange::Group).collect())
        })
    }

    fn group_info(&self, name: &str) -> Result<GroupInfo, Failure> {
        let accounts = self.accounts();
        let (gid, record) = named(accounts.groups(), name)?;
        Ok(info(accounts.groups(), gid, record))
    }
}

fn info(groups: &GroupTable, gid: u32, record: &GroupRecord) -> GroupInfo {
    GroupInfo {
        name: (*record.name).into(),
        system_name: system_name(&record.name),
        gid,
        owner: shown(groups, &record.owner),
        members: groups.size(gid),
        created_secs: record.created_secs,
    }
}

/// The group of this name.
fn named<'a>(groups: &'a GroupTable, name: &str) -> Result<(u32, &'a GroupRecord), Failure> {
    let name = cell_name(name);
    let found = groups.number(&name).and_then(|gid| Some((gid, groups.get(gid)?)));
    found.ok_or_else(|| Failure::new(libc::ENOENT, format!("there is no group {name}: see lee group list")))
}

/// The group of this name, if the user who asks may change it.
fn owned<'a>(
    groups: &'a GroupTable,
    name: &str,
    by: Option<&str>,
) -> Result<(u32, &'a GroupRecord), Failure> {
    let (gid, record) = named(groups, name)?;
    if by.is_none_or(|by| groups.is_owner(by, gid)) {
        return Ok((gid, record));
    }
    Err(Failure::new(libc::EPERM, groups.belongs_to_another(gid)))
}

/// The user or the group that a text names.
fn member_named(groups: &GroupTable, text: &str) -> Result<Member, Failure> {
    if groups.number(&cell_name(text)).is_some() || text.contains(':') {
        return named(groups, text).map(|(gid, _)| Member::Group(gid));
    }
    match wrong_name(text) {
        None => Ok(Member::User(text.into())),
        Some(wrong) => Err(Failure::new(libc::EINVAL, format!("{text:?} is no user: it {wrong}"))),
    }
}

fn shown(groups: &GroupTable, member: &Member) -> String {
    match member {
        Member::User(name) => (**name).into(),
        Member::Group(gid) => groups.get(*gid).map_or_else(|| gid.to_string(), |group| (*group.name).into()),
    }
}
