//! Groups that users own. A group is called `PREFIX:NAME`, has a number that files can have as
//! their group, an owner (a user or a group) and members (users and groups). The prefix is the user
//! who made it, and whose allowance it counts against.
//!
//! Who is in a group that is a member of another one is in that one, too. There are no cycles.
//!
//! The tables are cheap to copy: a change copies one of many parts of a table, not the table.

use crate::accounts::wrong_name;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

/// Groups with one prefix, where operators have not said otherwise.
pub const GROUPS_OF_PREFIX: u32 = 20;
/// Direct members of all groups of a prefix together, for each group that it may have.
pub const MEMBERS_FOR_GROUP: u64 = 1000;
/// Most groups of a user. Of one who is in more, those with the lowest numbers count.
pub const GROUPS_OF_USER_MAX: usize = 4096;
/// Longest last part of a name, bytes.
const LAST_BYTES_MAX: usize = 32;
/// Users whose groups are kept in memory.
const KNOWN_MAX: usize = 10_000;

/// What is wrong with the name of a group; `None`: nothing.
pub fn wrong_group_name(name: &str) -> Option<&'static str> {
    let Some((prefix, last)) = name.split_once(':') else {
        return Some("has no colon: groups are called USER:NAME");
    };
    let is_odd = |b: u8| !b.is_ascii_alphanumeric() && !matches!(b, b'-' | b'_' | b'.');
    match last.as_bytes() {
        [] => Some("has nothing behind the colon"),
        [b'-' | b'.', ..] => Some("begins with - or . behind the colon"),
        last if last.len() > LAST_BYTES_MAX => Some("has more than 32 bytes behind the colon"),
        last if last.iter().copied().any(is_odd) => {
            Some("has other than letters, digits, `-`, `_` and `.` behind the colon")
        }
        _ => wrong_name(prefix),
    }
}

/// The user in whose name a group was made.
pub fn prefix(name: &str) -> &str {
    name.split_once(':').map_or(name, |(prefix, _)| prefix)
}

/// The name of a group at programs of Linux, where a colon separates fields: the last part has no
/// plus sign, so the name can be read back.
pub fn system_name(name: &str) -> String {
    name.replacen(':', "+", 1)
}

/// The reverse of [`system_name`]; any other text as it is.
pub fn cell_name(text: &str) -> String {
    match text.rsplit_once('+') {
        Some((prefix, last)) if !text.contains(':') => format!("{prefix}:{last}"),
        _ => text.to_owned(),
    }
}

/// A member, or an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// A user, by name.
    User(Box<str>),
    /// A group, by number.
    Group(u32),
}

/// A group, without its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// Name: see [`wrong_group_name`].
    pub name: Box<str>,
    /// Who may change it, besides operators.
    pub owner: Member,
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
}

/// Numbers for groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GidRange {
    /// The lowest.
    pub first: u32,
    /// The highest, itself included. Not lower than `first`.
    pub last: u32,
    /// The next one to give; `last + 1`: none is left. Numbers are not given twice.
    pub next: u32,
}

/// The numbers of cells in which no operator has said which: between those of containers and those
/// that are negative to some programs.
pub const USUAL_RANGE: GidRange = GidRange { first: 1_880_000_000, last: 1_889_999_999, next: 1_880_000_000 };

/// One change of [`GroupTable`].
#[derive(Clone, Debug)]
pub enum GroupChange {
    /// Sets the record of a group; `None`: removes it, which has no members any more.
    Group(u32, Option<GroupRecord>),
    /// Whether a group has a member.
    Member(u32, Member, bool),
    /// Most groups of a prefix; `None`: the usual.
    Limit(String, Option<u32>),
    /// The ranges of numbers, none overlapping. The last one is in use.
    Ranges(Vec<GidRange>),
}

/// Groups with a prefix, and their direct members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Groups.
    pub groups: u32,
    /// Direct members of all of them.
    pub members: u64,
}

/// A group, and how many direct members it has.
#[derive(Clone, PartialEq)]
struct Entry {
    record: GroupRecord,
    members: u64,
}

/// Groups of users, by name.
type Known = FxHashMap<Box<str>, Arc<[u32]>>;

/// All groups of a cell.
#[derive(Clone, Default)]
pub struct GroupTable {
    groups: Parts<u32, Entry>,
    numbers: Parts<Box<str>, u32>,
    members: Parts<(u32, Member), ()>,
    /// The groups that have it as a member, sorted.
    above: Parts<Member, Arc<[u32]>>,
    counts: Parts<Box<str>, Count>,
    limits: Arc<BTreeMap<String, u32>>,
    ranges: Arc<[GidRange]>,
    memberships: u64,
    /// What [`GroupTable::of_user`] has found.
    known: Arc<Mutex<Known>>,
}

impl GroupTable {
    /// A group, by number.
    pub fn get(&self, gid: u32) -> Option<&GroupRecord> {
        self.groups.get(&gid).map(|entry| &entry.record)
    }

    /// How many direct members a group has.
    pub fn size(&self, gid: u32) -> u64 {
        self.groups.get(&gid).map_or(0, |entry| entry.members)
    }

    /// The number of a group, by name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// All groups, in any order.
    pub fn all(&self) -> impl Iterator<Item = (u32, &GroupRecord)> {
        self.groups.iter().map(|(gid, entry)| (*gid, &entry.record))
    }

    /// Direct members of a group: users first, by name.
    pub fn members(&self, gid: u32) -> BTreeSet<&Member> {
        let users = (gid, Member::User("".into()))..(gid, Member::Group(0));
        let groups = (gid, Member::Group(0))..=(gid, Member::Group(u32::MAX));
        self.members
            .ranges(users)
            .chain(self.members.ranges(groups))
            .map(|((_, member), ())| member)
            .collect()
    }

    /// Whether a group has a direct member.
    pub fn has(&self, gid: u32, member: &Member) -> bool {
        self.above.get(member).is_some_and(|above| above.binary_search(&gid).is_ok())
    }

    /// Memberships of all groups together.
    pub fn memberships(&self) -> u64 {
        self.memberships
    }

    /// Groups with a prefix.
    pub fn count(&self, prefix: &str) -> Count {
        self.counts.get(prefix).copied().unwrap_or_default()
    }

    /// Most groups of a prefix.
    pub fn limit(&self, prefix: &str) -> u32 {
        self.limits.get(prefix).copied().unwrap_or(GROUPS_OF_PREFIX)
    }

    /// Ranges of numbers; the last one is in use.
    pub fn ranges(&self) -> &[GidRange] {
        match &*self.ranges {
            [] => &[USUAL_RANGE],
            ranges => ranges,
        }
    }

    /// Whether a number is, or was, that of a group of the cell. A machine may know such a number
    /// from the cell, and still have it when the cell does not say so any more.
    pub fn is_number(&self, gid: u32) -> bool {
        self.ranges.iter().any(|range| (range.first..range.next).contains(&gid))
    }

    /// The groups in which a member is, directly and through other groups.
    pub fn above(&self, member: &Member) -> BTreeSet<u32> {
        let direct = |of: &Member| self.above.get(of).cloned().unwrap_or_default();
        let mut found = BTreeSet::new();
        let mut next: Vec<u32> = direct(member).to_vec();
        while let Some(gid) = next.pop() {
            if found.insert(gid) {
                next.extend(direct(&Member::Group(gid)).iter());
            }
        }
        found
    }

    /// The groups of a user, sorted; at most [`GROUPS_OF_USER_MAX`].
    pub fn of_user(&self, name: &str) -> Arc<[u32]> {
        if self.memberships == 0 {
            return Arc::default();
        }
        if let Some(known) = self.known.lock().get(name) {
            return known.clone();
        }
        let found = self.above(&Member::User(name.into()));
        let found: Arc<[u32]> = found.into_iter().take(GROUPS_OF_USER_MAX).collect();
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(name.into(), found.clone());
        found
    }

    /// Whether a user owns a group, or is in the group that owns it.
    pub fn is_owner(&self, user: &str, gid: u32) -> bool {
        match self.get(gid).map(|group| &group.owner) {
            Some(Member::User(owner)) => **owner == *user,
            Some(Member::Group(owner)) => self.of_user(user).binary_search(owner).is_ok(),
            None => false,
        }
    }

    /// Says that a group belongs to somebody else.
    pub fn belongs_to_another(&self, gid: u32) -> String {
        let name = |gid| self.get(gid).map_or_else(String::new, |group: &GroupRecord| (*group.name).into());
        let owner = match self.get(gid).map(|group| &group.owner) {
            Some(Member::User(owner)) => (**owner).into(),
            Some(Member::Group(owner)) => name(*owner),
            None => String::new(),
        };
        format!("{} belongs to {owner}: ask there", name(gid))
    }

    /// The users in a group, directly and through other groups, by name; at most `max`.
    pub fn users_in(&self, gid: u32, max: usize) -> BTreeSet<&str> {
        let (mut seen, mut next, mut users) = (BTreeSet::from([gid]), vec![gid], BTreeSet::new());
        while let Some(gid) = next.pop() {
            for member in self.members(gid) {
                match member {
                    Member::User(name) if users.len() < max => _ = users.insert(&**name),
                    Member::User(_) => return users,
                    Member::Group(inner) if seen.insert(*inner) => next.push(*inner),
                    Member::Group(_) => (),
                }
            }
        }
        users
    }

    /// Makes a change.
    pub fn apply(&mut self, change: GroupChange) {
        self.known = Arc::default();
        match change {
            GroupChange::Group(gid, Some(record)) => {
                if self.get(gid).is_none() {
                    self.numbers.insert(record.name.clone(), gid);
                    self.counts.entry(prefix(&record.name).into()).groups += 1;
                }
                let members = self.size(gid);
                self.groups.insert(gid, Entry { record, members });
            }
            GroupChange::Group(gid, None) => {
                let Some(Entry { record, .. }) = self.groups.remove(&gid) else { return };
                self.numbers.remove(&record.name);
                self.counts.entry(prefix(&record.name).into()).groups -= 1;
            }
            GroupChange::Member(gid, member, true) => self.add(gid, member),
            GroupChange::Member(gid, member, false) => self.drop(gid, member),
            GroupChange::Limit(prefix, Some(limit)) => {
                Arc::make_mut(&mut self.limits).insert(prefix, limit);
            }
            GroupChange::Limit(prefix, None) => {
                Arc::make_mut(&mut self.limits).remove(&prefix);
            }
            GroupChange::Ranges(ranges) => self.ranges = ranges.into(),
        }
    }

    fn add(&mut self, gid: u32, member: Member) {
        if self.get(gid).is_some() && self.members.insert((gid, member.clone()), ()).is_none() {
            self.resize(gid, 1);
            let above = self.above.entry(member);
            let all: BTreeSet<u32> = above.iter().copied().chain([gid]).collect();
            *above = all.into_iter().collect();
        }
    }

    fn drop(&mut self, gid: u32, member: Member) {
        if self.members.remove(&(gid, member.clone())).is_some() {
            self.resize(gid, -1);
            let above = self.above.entry(member.clone());
            *above = above.iter().copied().filter(|other| *other != gid).collect();
            if above.is_empty() {
                self.above.remove(&member);
            }
        }
    }

    /// A group has got, or lost, a member.
    fn resize(&mut self, gid: u32, by: i64) {
        let resized = |n: u64| n.saturating_add_signed(by);
        let Some(entry) = self.groups.get_mut(&gid) else { return };
        entry.members = resized(entry.members);
        let count = self.counts.entry(prefix(&entry.record.name).into());
        count.members = resized(count.members);
        self.memberships = resized(self.memberships);
    }

    /// The limits of prefixes that operators have set.
    pub fn limits(&self) -> impl Iterator<Item = (&str, u32)> {
        self.limits.iter().map(|(prefix, limit)| (prefix.as_str(), *limit))
    }
}

impl PartialEq for GroupTable {
    fn eq(&self, other: &GroupTable) -> bool {
        self.groups == other.groups
            && self.members == other.members
            && self.limits == other.limits
            && self.ranges() == other.ranges()
    }
}

impl Eq for GroupTable {}

impl fmt::Debug for GroupTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupTable").field("memberships", &self.memberships).finish_non_exhaustive()
    }
}

/// Parts of a table.
const PARTS: usize = 512;
/// The same in all processes, so that tables are.
type Hasher = BuildHasherDefault<DefaultHasher>;

/// A map in parts by hash of the key. A copy shares all parts, and a change copies one.
struct Parts<K, V>(Arc<[Arc<BTreeMap<K, V>>]>);

impl<K: Ord + Clone + Hash, V: Clone> Parts<K, V> {
    fn place<Q: Hash + ?Sized>(key: &Q) -> usize {
        Hasher::default().hash_one(key) as usize % PARTS
    }

    fn get<Q: Ord + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(Self::place(key))?.get(key)
    }

    fn part<Q: Hash + ?Sized>(&mut self, key: &Q) -> &mut BTreeMap<K, V> {
        if self.0.is_empty() {
            self.0 = vec![Arc::default(); PARTS].into();
        }
        Arc::make_mut(&mut Arc::make_mut(&mut self.0)[Self::place(key)])
    }

    fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.part(&key).insert(key, value)
    }

    fn remove<Q: Ord + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.part(key).remove(key)
    }

    fn entry(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.part(&key).entry(key).or_default()
    }

    fn get_mut<Q: Ord + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.part(key).get_mut(key)
    }

    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().flat_map(|part| part.iter())
    }

    /// The entries of a range, in any order.
    fn ranges(&self, range: impl std::ops::RangeBounds<K> + Clone) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().flat_map(move |part| part.range(range.clone()))
    }
}

impl<K, V> Default for Parts<K, V> {
    fn default() -> Parts<K, V> {
        Parts(Arc::new([]))
    }
}

impl<K, V> Clone for Parts<K, V> {
    fn clone(&self) -> Parts<K, V> {
        Parts(self.0.clone())
    }
}

impl<K: Ord + Clone + Hash, V: Clone + PartialEq> PartialEq for Parts<K, V> {
    fn eq(&self, other: &Parts<K, V>) -> bool {
        self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Member {
        Member::User(name.into())
    }

    /// Groups 1 to `count`, called `a:g1` and so on, owned by a.
    fn table(count: u32) -> GroupTable {
        let mut table = GroupTable::default();
        for gid in 1..=count {
            let record = GroupRecord { name: format!("a:g{gid}").into(), owner: user("a"), created_secs: 1 };
            table.apply(GroupChange::Group(gid, Some(record)));
        }
        table
    }

    fn put(table: &mut GroupTable, gid: u32, member: Member, is_in: bool) {
        table.apply(GroupChange::Member(gid, member, is_in));
    }

    #[test]
    fn members_of_members_are_in() {
        let mut table = table(3);
        put(&mut table, 1, user("bob"), true);
        put(&mut table, 2, Member::Group(1), true);
        put(&mut table, 3, Member::Group(2), true);
        put(&mut table, 3, user("eve"), true);
        let before = table.clone();
        assert_eq!((&*table.of_user("bob"), &*table.of_user("eve")), (&[1, 2, 3][..], &[3][..]));
        assert_eq!(table.of_user("ann").len(), 0);
        assert_eq!(table.users_in(3, 9), BTreeSet::from(["bob", "eve"]));
        assert_eq!(table.users_in(3, 1).len(), 1);
        assert_eq!(table.above(&Member::Group(1)), BTreeSet::from([2, 3]));
        put(&mut table, 2, Member::Group(1), false);
        assert_eq!((&*table.of_user("bob"), table.memberships()), (&[1][..], 3));
        assert_eq!(&*before.of_user("bob"), &[1, 2, 3], "a copy stays as it was");
        assert_eq!(table.count("a"), Count { groups: 3, members: 3 });
        put(&mut table, 2, Member::Group(1), true);
        assert!(table == before);
    }

    #[test]
    fn what_is_removed_leaves_nothing() {
        let mut table = table(1);
        put(&mut table, 1, user("bob"), true);
        put(&mut table, 1, user("bob"), true);
        put(&mut table, 9, user("bob"), true);
        assert_eq!(
            (table.memberships(), table.members(1).len()),
            (1, 1),
            "once, and not in what is not there"
        );
        put(&mut table, 1, user("bob"), false);
        table.apply(GroupChange::Group(1, None));
        assert!(table == GroupTable::default());
        assert_eq!((table.count("a"), table.number("a:g1")), (Count::default(), None));
    }

    #[test]
    fn owners_may_be_groups() {
        let mut table = table(2);
        put(&mut table, 2, user("bob"), true);
        assert!(table.is_owner("a", 1) && !table.is_owner("bob", 1));
        let record = GroupRecord { owner: Member::Group(2), ..table.get(1).expect("there").clone() };
        table.apply(GroupChange::Group(1, Some(record)));
        assert!(!table.is_owner("a", 1) && table.is_owner("bob", 1) && !table.is_owner("eve", 1));
        assert_eq!(table.count("a").groups, 2, "as many as before");
    }

    #[test]
    fn a_user_of_very_many_groups_has_the_oldest() {
        let mut table = table(GROUPS_OF_USER_MAX as u32 + 10);
        for gid in 1..=GROUPS_OF_USER_MAX as u32 + 10 {
            put(&mut table, gid, user("bob"), true);
        }
        let of = table.of_user("bob");
        assert_eq!((of.len(), of.first(), of.last()), (GROUPS_OF_USER_MAX, Some(&1), Some(&4096)));
    }

    #[test]
    fn names_have_a_user_and_letters() {
        for good in ["alice:lab", "a.b:x_1", "cms:higgs-2012.v2", "a+b:c"] {
            assert_eq!(wrong_group_name(good), None, "{good}");
            assert_eq!(cell_name(&system_name(good)), good);
            assert_eq!(cell_name(good), good);
        }
        let long = format!("a:{}", "x".repeat(33));
        for bad in ["lab", ":lab", "a:", "a:b:c", "a:-x", "a:.", "a:b c", "a:b+c", "a:\u{e9}", "7:x", &long] {
            assert!(wrong_group_name(bad).is_some(), "{bad}");
        }
        assert_eq!(prefix("alice:lab"), "alice");
    }
}
