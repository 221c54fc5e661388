//! Groups that users own: who may change them, that they last, and that nobody is in a group that
//! is in itself.

use crate::rig::{Rig, engine};
use leeward_fs::groups::{GidRange, GroupRecord, Member};
use leeward_meta::{Batch, Kv};
use leeward_volume::Stored;
use leeward_volume::admin::{
    Failure, GroupAdd, GroupCreate, GroupDrop, GroupFind, GroupKey, GroupLimit, GroupList, GroupRange,
    GroupRemove, GroupSet, GroupShow,
};
use leeward_volume::format::keys;

const FIRST: u32 = 1_880_000_000;

impl Rig {
    fn create(&self, by: Option<&str>, name: &str) -> Result<u32, Failure> {
        let request = GroupCreate { name: name.into(), owner: None, gid: None, by: by.map(Into::into) };
        self.ask(&request).map(|group| group.gid)
    }

    fn add(&self, by: Option<&str>, name: &str, members: &[&str]) -> Result<(), Failure> {
        let members = members.iter().map(ToString::to_string).collect();
        self.ask(&GroupAdd { name: name.into(), members, by: by.map(Into::into) }).map(drop)
    }

    fn drop_from(&self, by: Option<&str>, name: &str, member: &str) -> Result<(), Failure> {
        let request = GroupDrop { name: name.into(), members: vec![member.into()], by: by.map(Into::into) };
        self.ask(&request).map(drop)
    }

    fn set_owner(&self, by: Option<&str>, name: &str, owner: &str) -> Result<(), Failure> {
        let request = GroupSet { name: name.into(), owner: owner.into(), by: by.map(Into::into) };
        self.ask(&request).map(drop)
    }

    fn groups_of(&self, user: &str) -> Vec<u32> {
        self.cell.accounts().groups().of_user(user).to_vec()
    }

    fn names_of(&self, user: &str) -> Vec<String> {
        let of = Some(user.to_owned());
        self.admin(&GroupList { of }).groups.into_iter().map(|group| group.name).collect()
    }
}

fn is_refused<T: std::fmt::Debug>(asked: Result<T, Failure>, errno: i32, text: &str) {
    let failure = asked.expect_err("refused");
    assert!(failure.errno == errno && failure.message.contains(text), "{failure:?}");
}

#[test]
fn users_change_what_they_own() {
    let rig = Rig::new();
    assert_eq!(rig.create(Some("alice"), "alice:lab"), Ok(FIRST));
    is_refused(rig.create(Some("alice"), "alice:lab"), libc::EEXIST, "already");
    is_refused(rig.create(Some("alice"), "bob:lab"), libc::EPERM, "alice:NAME");
    is_refused(rig.create(Some("alice"), "alice:a:b"), libc::EINVAL, "colon");
    rig.add(Some("alice"), "alice:lab", &["bob", "eve"]).expect("hers");
    is_refused(rig.add(Some("bob"), "alice:lab", &["bob"]), libc::EPERM, "belongs to alice");
    is_refused(rig.drop_from(Some("bob"), "alice:lab", "eve"), libc::EPERM, "belongs to alice");
    rig.drop_from(Some("bob"), "alice+lab", "bob").expect("everybody may leave");
    is_refused(rig.drop_from(Some("bob"), "alice:lab", "bob"), libc::ENOENT, "no member");
    is_refused(rig.set_owner(Some("bob"), "alice:lab", "bob"), libc::EPERM, "belongs to alice");
    let remove = |by: &str| rig.ask(&GroupRemove { name: "alice:lab".into(), by: Some(by.into()) });
    is_refused(remove("eve"), libc::EPERM, "belongs to alice");
    // a group keeps somebody who may change it
    is_refused(rig.set_owner(Some("alice"), "alice:lab", "alice:lab"), libc::EINVAL, "you are not in");
    rig.create(Some("alice"), "alice:none").expect("made");
    is_refused(rig.set_owner(Some("alice"), "alice:lab", "alice:none"), libc::EINVAL, "nobody is in");
    // who is in the group that owns it, may
    rig.set_owner(None, "alice:lab", "alice:lab").expect("an operator's");
    rig.add(Some("eve"), "alice:lab", &["bob"]).expect("theirs");
    assert_eq!(
        (rig.names_of("bob"), rig.names_of("alice")),
        (vec!["alice:lab".into()], vec!["alice:none".into()])
    );
    assert_eq!(remove("bob").expect("theirs").members, 2);
    is_refused(rig.add(None, "alice:lab", &["bob"]), libc::ENOENT, "no group");
    assert_eq!(rig.create(Some("alice"), "alice:lab"), Ok(FIRST + 2), "no number comes again");
    assert_eq!(rig.findings(), []);
}

#[test]
fn groups_of_groups_last_and_have_no_cycles() {
    let mut rig = Rig::new();
    for name in ["a:x", "a:y", "a:z"] {
        rig.create(None, name).expect("made");
    }
    rig.add(None, "a:x", &["bob"]).expect("in");
    rig.add(None, "a:y", &["a:x", "eve"]).expect("in");
    rig.add(None, "a:z", &["a:y"]).expect("in");
    for (outer, inner) in [("a:x", "a:x"), ("a:x", "a:y"), ("a:x", "a:z"), ("a:y", "a+z")] {
        is_refused(rig.add(None, outer, &["ann", inner]), libc::ELOOP, "cannot be a member");
    }
    assert_eq!((rig.groups_of("bob"), rig.groups_of("ann")), (vec![FIRST, FIRST + 1, FIRST + 2], vec![]));
    let shown = rig.admin(&GroupShow { name: "a:y".into() });
    assert_eq!((shown.member_names, shown.is_in), (vec!["eve".into(), "a:x".into()], vec!["a:z".into()]));
    let before = rig.cell.accounts();
    rig.power_cut(7);
    assert_eq!(rig.cell.accounts(), before);
    assert_eq!(rig.findings(), []);
    rig.set_owner(None, "a:x", "a:y").expect("set");
    let remove = |name: &str| rig.ask(&GroupRemove { name: name.into(), by: None });
    is_refused(remove("a:y"), libc::EBUSY, "owns the group a:x");
    rig.set_owner(None, "a:x", "a").expect("set");
    remove("a:y").expect("removed");
    assert_eq!(rig.groups_of("bob"), [FIRST]);
    assert_eq!(rig.admin(&GroupShow { name: "a:z".into() }).group.members, 0);
    rig.reopen();
    assert_eq!(rig.groups_of("bob"), [FIRST]);
    assert_eq!(rig.findings(), []);
}

#[test]
fn a_user_has_so_many_and_no_more() {
    let rig = Rig::new();
    rig.admin(&GroupLimit { user: "a".into(), groups: Some(2) });
    (0..2).for_each(|n| _ = rig.create(Some("a"), &format!("a:{n}")).expect("made"));
    is_refused(rig.create(Some("a"), "a:2"), libc::EDQUOT, "may be 2");
    rig.create(None, "a:2").expect("by an operator");
    rig.create(Some("b"), "b:2").expect("of another");
    let names: Vec<String> = (0..400).map(|n| format!("u{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (0..2).for_each(|n| rig.add(Some("a"), &format!("a:{n}"), &names).expect("fits"));
    rig.set_owner(None, "a:2", "b").expect("set");
    rig.add(Some("b"), "a:2", &names[..200]).expect("fits");
    rig.admin(&GroupLimit { user: "a".into(), groups: Some(1) });
    is_refused(rig.add(Some("b"), "a:2", &["more"]), libc::EDQUOT, "have 1000 members");
    rig.add(Some("b"), "a:2", &names[..200]).expect("nothing new");
    rig.add(None, "a:2", &["more"]).expect("by an operator");
    is_refused(rig.add(None, "a:2", &[]), libc::EINVAL, "members at a time");
    let shown = rig.admin(&GroupLimit { user: "a".into(), groups: None });
    assert_eq!((shown.groups, shown.groups_max, shown.members), (3, 1, 1001));
}

#[test]
fn numbers_come_from_ranges() {
    let mut rig = Rig::new();
    let range = |numbers| rig.ask(&GroupRange { numbers: Some(numbers) });
    for wrong in [(0, 10), (5000, 4999), (5000, u32::MAX)] {
        is_refused(range(wrong), libc::EINVAL, "name numbers");
    }
    range((5000, 5001)).expect("set");
    assert_eq!((rig.create(None, "a:1"), rig.create(None, "a:2")), (Ok(5000), Ok(5001)));
    is_refused(rig.create(None, "a:3"), libc::ENOSPC, "no number is left");
    is_refused(range((4000, 5000)), libc::EINVAL, "not given again");
    range((6000, 6999)).expect("set");
    range((7000, 7999)).expect("set");
    assert_eq!(rig.create(None, "a:3"), Ok(7000), "the range without groups is gone");
    let ranges = range((7001, 9999)).expect("set").ranges;
    let expected = [(5000, 5001, 5002), (7000, 7000, 7001), (7001, 9999, 7001)];
    assert_eq!(ranges, expected.map(|(first, last, next)| GidRange { first, last, next }));
    rig.reopen();
    assert_eq!(rig.create(None, "a:4"), Ok(7001));
    assert_eq!(rig.findings(), []);
}

#[test]
fn machines_ask_for_their_user_database() {
    let rig = Rig::new();
    rig.create(None, "a:x").expect("made");
    rig.create(None, "a:y").expect("made");
    rig.add(None, "a:x", &["bob", "eve"]).expect("in");
    rig.add(None, "a:y", &["a:x"]).expect("in");
    let find = |key| {
        let found = rig.admin(&GroupFind { key }).groups;
        found
            .into_iter()
            .map(|group| (group.name, group.gid - FIRST, group.users.join(" ")))
            .collect::<Vec<_>>()
    };
    let y = ("a+y".to_string(), 1, "bob eve".to_string());
    assert_eq!(find(GroupKey::Gid(FIRST + 1)), std::slice::from_ref(&y));
    assert_eq!(find(GroupKey::SystemName("a+y".into())), [y]);
    let of_bob = find(GroupKey::User("bob".into()));
    assert_eq!(of_bob, [("a+x".to_string(), 0, String::new()), ("a+y".to_string(), 1, String::new())]);
    assert!(find(GroupKey::Gid(7)).is_empty() && find(GroupKey::User("ann".into())).is_empty());
}

/// What requests never make.
#[test]
fn fsck_finds_what_does_not_fit() {
    let mut rig = Rig::new();
    for name in ["a:x", "a:y"] {
        rig.create(None, name).expect("made");
    }
    rig.add(None, "a:x", &["a:y"]).expect("in");
    rig.cell.close().expect("closed");
    let record = |name: &str, owner| GroupRecord { name: name.into(), owner, created_secs: 1 }.encode();
    let membership = |gid, member| (keys::member(gid, &member), Some([1, 0][..].into()));
    let writes = vec![
        membership(FIRST + 1, Member::Group(FIRST)),
        membership(77, Member::User("bob".into())),
        membership(FIRST, Member::Group(78)),
        (keys::group(FIRST + 9), Some(record("a:x", Member::User("a".into())))),
        (keys::group(FIRST + 1), Some(record("a:y", Member::Group(79)))),
    ];
    let kv = engine(&rig.env, &rig.disk);
    kv.commit(&Batch { writes, inline_data: Vec::new() }).expect("written");
    drop(kv);
    rig.start();
    let found: Vec<String> = rig.findings().into_iter().map(|f| format!("{} {}", f.kind, f.detail)).collect();
    let expected = [
        format!("group a membership in {FIRST} of what is not there"),
        "group a membership in 77 of what is not there".to_string(),
        format!("group group {FIRST} is a member of itself, through others"),
        format!("group group {} belongs to group 79, which is not there", FIRST + 1),
        format!("group group {} has a number that was not given", FIRST + 9),
        format!("group groups {FIRST} and {} are called a:x", FIRST + 9),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_change_of_a_large_group_is_quick() {
    let rig = Rig::new();
    rig.create(None, "a:x").expect("made");
    for part in 0..20 {
        let names: Vec<String> = (0..500).map(|n| format!("user{part:02}{n:03}")).collect();
        rig.add(None, "a:x", &names.iter().map(String::as_str).collect::<Vec<_>>()).expect("in");
    }
    assert_eq!(rig.admin(&GroupShow { name: "a:x".into() }).group.members, 10_000);
    assert_eq!(rig.groups_of("user19499"), [FIRST]);
    assert_eq!(rig.admin(&GroupFind { key: GroupKey::Gid(FIRST) }).groups[0].users.len(), 1000);
}

#[test]
fn a_group_has_the_number_that_it_has_in_another_cell() {
    let rig = Rig::new();
    let create = |name: &str, gid: u32, by: Option<&str>| {
        let by = by.map(Into::into);
        rig.ask(&GroupCreate { name: name.into(), owner: None, gid: Some(gid), by }).map(|group| group.gid)
    };
    is_refused(create("alice:lab", FIRST + 9, Some("alice")), libc::EPERM, "operators");
    assert_eq!(create("alice:lab", FIRST + 9, None), Ok(FIRST + 9));
    is_refused(create("alice:other", FIRST + 9, None), libc::EEXIST, "alice:lab");
    // what lies between may have been given there
    assert_eq!(rig.create(None, "bob:lab"), Ok(FIRST + 10));
    assert_eq!(create("alice:other", FIRST + 3, None), Ok(FIRST + 3));
    is_refused(create("eve:lab", 1000, None), libc::EINVAL, "lee group range");
    is_refused(create("eve:lab", FIRST - 1, None), libc::EINVAL, "lee group range");
    // a range for those of this cell: the one before grows with the other cell's
    rig.admin(&GroupRange { numbers: Some((FIRST + 1000, FIRST + 2000)) });
    assert_eq!(rig.create(None, "bob:two"), Ok(FIRST + 1000));
    assert_eq!(create("carol:lab", FIRST + 20, None), Ok(FIRST + 20));
    assert_eq!(create("carol:two", FIRST + 999, None), Ok(FIRST + 999));
    is_refused(create("eve:lab", FIRST + 2001, None), libc::EINVAL, "lee group range");
    assert_eq!(rig.create(None, "bob:three"), Ok(FIRST + 1001));
    let ranges = rig.admin(&GroupRange { numbers: None }).ranges;
    let range = |first, last, next| GidRange { first, last, next };
    assert_eq!(
        ranges,
        [range(FIRST, FIRST + 999, FIRST + 1000), range(FIRST + 1000, FIRST + 2000, FIRST + 1002)]
    );
    rig.clean();
}
