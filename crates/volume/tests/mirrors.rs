//! What a cell knows of mirrors: what copies have proven, and what they lack.

use crate::rig::{Rig, engine, noise};
use leeward_env::{Ctx, Env};
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Error, Fs, Make, Op, SetAttr};
use leeward_meta::Kv;
use leeward_volume::Stored;
use leeward_volume::admin::{
    self, Backlog, LimitOf, MirrorInfo, MirrorProven, MirrorSet, MirrorUnset, Proven,
};
use leeward_volume::format::keys;
use leeward_volume::format::mirrors::MirrorsRecord;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

const OTHER: &str = "standby.example.org:7433";

fn mirror(copy: &str) -> MirrorInfo {
    MirrorInfo {
        volume: "v".into(),
        to: OTHER.into(),
        copy: copy.into(),
        every_secs: 60,
        keep: "24h".into(),
        ..MirrorInfo::default()
    }
}

/// A cell with a volume `v`, which has mirrors to these copies.
fn rig(copies: &[&str]) -> Rig {
    let rig = Rig::new();
    rig.admin(&admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 0, gid: 0, pool: None });
    copies.iter().for_each(|copy| drop(rig.admin(&MirrorSet { mirror: mirror(copy) })));
    rig
}

fn note(copy: &str, proven: Option<Proven>) -> MirrorProven {
    MirrorProven { volume: "v".into(), to: OTHER.into(), copy: copy.into(), proven }
}

fn proven(rig: &Rig) -> Vec<(String, Option<Proven>)> {
    let all = rig.admin(&admin::MirrorList).mirrors;
    all.into_iter().map(|mirror| (mirror.copy, mirror.last_proven)).collect()
}

#[test]
fn what_a_copy_has_proven_is_kept_as_long_as_the_mirror_is() {
    let mut rig = rig(&["one", "two"]);
    let newest = |n: i64| Some(Proven { snapshot: format!("mirror-{n}"), time_secs: n });
    rig.admin(&note("one", newest(7)));
    rig.admin(&note("two", newest(8)));
    rig.admin(&note("one", newest(9)));
    let all = [("one".to_owned(), newest(9)), ("two".to_owned(), newest(8))];
    assert_eq!(proven(&rig), all);
    rig.reopen();
    assert_eq!(proven(&rig), all);
    rig.admin(&MirrorSet { mirror: MirrorInfo { every_secs: 90, ..mirror("one") } });
    assert_eq!(proven(&rig), all, "what a mirror is to do says nothing of what it has done");

    rig.admin(&note("one", None));
    rig.admin(&MirrorUnset { volume: "v".into(), to: OTHER.into(), copy: "two".into() });
    assert_eq!(rig.ask(&note("two", newest(9))).expect_err("there is no such mirror").errno, libc::ENOENT);
    rig.admin(&MirrorSet { mirror: mirror("two") });
    rig.reopen();
    assert_eq!(proven(&rig), [("one".to_owned(), None), ("two".to_owned(), None)]);
    assert_eq!(rig.findings(), []);
}

#[test]
fn nothing_is_kept_of_a_mirror_that_is_removed_at_that_moment() {
    const ROUNDS: i64 = 5000;
    let rig = rig(&[]);
    let (now, is_over) = (AtomicI64::new(0), AtomicBool::new(false));
    let copy = |n: i64| format!("c{n}");
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let n = now.load(Ordering::Relaxed);
                let noted =
                    rig.ask(&note(&copy(n), Some(Proven { snapshot: "mirror-1".into(), time_secs: n })));
                if let Err(refused) = noted {
                    assert_eq!(refused.errno, libc::ENOENT, "it is not there yet, or not any more");
                }
            }
        });
        for n in 0..ROUNDS {
            now.store(n, Ordering::Relaxed);
            rig.admin(&MirrorSet { mirror: mirror(&copy(n)) });
            rig.admin(&MirrorUnset { volume: "v".into(), to: OTHER.into(), copy: copy(n) });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let volume = rig.cell.volume_named("v").expect("there is v");
    rig.cell.close().expect("a clean close");
    let kept = engine(&rig.env, &rig.disk).get(&keys::mirrors(volume)).expect("read").expect("a record");
    assert_eq!(MirrorsRecord::decode(&kept), Ok(MirrorsRecord::default()));
}

#[test]
fn what_a_copy_lacks_is_counted() {
    let rig = rig(&["one"]);
    let lacks = || rig.admin(&admin::MirrorList).mirrors.remove(0).lacks;
    let take = |name: &str| {
        let name = format!("{}{name}", mirror("one").snapshot_prefix());
        rig.admin(&admin::SnapCreate { path: "/v".into(), name })
    };
    rig.dir("v/d");
    (0..10).for_each(|n| _ = rig.file(&format!("v/d/{n}"), b"some"));
    assert_eq!(lacks(), Backlog { snapshots: 0, changes: 11 }, "nothing is proven: all there is");
    let first = take("1");
    assert_eq!(lacks(), Backlog { snapshots: 1, changes: 11 });
    rig.admin(&note("one", Some(Proven { snapshot: first.name, time_secs: first.time_secs })));
    assert_eq!(lacks(), Backlog::default());

    (0..4).for_each(|n| rig.unlink(&format!("v/d/{n}")));
    rig.idle();
    let changed = lacks();
    assert!(changed.snapshots == 0 && (8..30).contains(&changed.changes), "{changed:?}");
    rig.admin(&admin::SnapCreate { path: "/v".into(), name: "of-a-user".into() });
    assert_eq!(lacks(), changed, "what a user takes does not travel");
    let second = take("2");
    assert_eq!(lacks(), Backlog { snapshots: 1, ..changed });
    rig.admin(&note("one", Some(Proven { snapshot: second.name, time_secs: second.time_secs })));
    assert_eq!(lacks(), Backlog::default());
}

/// A cell with an empty copy `c`.
fn with_copy() -> Rig {
    let rig = Rig::new();
    let volume = admin::VolumeCreate { name: "c".into(), at: "/c".into(), uid: 0, gid: 0, pool: None };
    rig.admin(&admin::CopyCreate { volume });
    rig
}

/// Sends a snapshot of `v` to the copy, every minute as it says.
fn bring(from: &Rig, name: &str, to: &Rig) {
    bring_every(from, name, to, 60);
}

fn bring_every(from: &Rig, name: &str, to: &Rig, every_secs: u32) {
    from.admin(&admin::SnapCreate { path: "/v".into(), name: name.into() });
    let shown = to.admin(&admin::VolumeShow { name: "c".into() }).copy.and_then(|copy| copy.snapshot);
    let file = tempfile::tempfile().expect("a file");
    let pipe = admin::Pipe::of(&file);
    let send = admin::SnapSend { volume: "v".into(), name: name.into(), from: shown, part: None, pipe };
    from.admin(&send);
    let sender = admin::Sender { cell: "site-a".into(), every_secs };
    let pipe = admin::Pipe::of(&file);
    to.admin(&admin::SnapReceive { volume: "c".into(), pipe, instead: false, sender });
}

#[test]
fn a_copy_says_how_old_it_is_and_where_it_came_from_also_when_it_is_none_any_more() {
    let (from, mut to) = (rig(&[]), with_copy());
    let status = |rig: &Rig| rig.admin(&admin::CopyList).copies.remove(0);
    let advance = |secs| [&from, &to].into_iter().for_each(|rig| rig.env.advance(Duration::from_secs(secs)));
    advance(1000);
    let empty = status(&to);
    assert_eq!((empty.snapshot, empty.late, empty.origin), (None, false, admin::Origin::default()));
    assert!(empty.age_secs >= Some(1000));

    from.file("v/f", b"some");
    bring(&from, "one", &to);
    let taken = from.now_secs();
    advance(170);
    let origin = admin::Origin {
        cell: "site-a".into(),
        volume: "v".into(),
        every_secs: 60,
        promoted: None,
        detached_secs: None,
    };
    to.reopen();
    let young = status(&to);
    assert_eq!((young.snapshot.as_deref(), young.late, &young.origin), (Some("one"), false, &origin));
    to.env.advance(Duration::from_secs(30));
    let old = status(&to);
    assert!(old.late && old.age_secs >= Some(190), "{old:?}");

    let promoted = to.now_secs();
    to.admin(&admin::VolumePromote { name: "c".into(), handed_over: None });
    to.reopen();
    let status = status(&to);
    assert_eq!((status.snapshot, status.age_secs, status.late), (None, None, false));
    let how = status.origin.promoted.clone().expect("it was promoted");
    assert_eq!((how.snapshot.as_str(), how.handed_over), ("one", false));
    assert!((how.time_secs - taken).abs() <= 1 && (how.at_secs - promoted).abs() <= 1, "{how:?}");
    let shown = to.admin(&admin::VolumeShow { name: "c".into() });
    assert_eq!(shown.origin, Some(status.origin));
    to.admin(&admin::VolumeRemove { name: "c".into() });
    assert_eq!(to.admin(&admin::CopyList).copies, []);
    to.reopen();
    to.clean();
}

#[test]
fn a_copy_whose_mirror_was_removed_is_not_waited_for_until_one_fills_it_again() {
    let (from, mut to) = (rig(&[]), with_copy());
    let status = |rig: &Rig| rig.admin(&admin::CopyList).copies.remove(0);
    let detach = |rig: &Rig, from: Option<&str>| {
        rig.ask(&admin::CopyDetach { name: "c".into(), from: from.map(Into::into) })
    };
    from.file("v/f", b"some");
    bring(&from, "one", &to);
    to.env.advance(Duration::from_secs(300));
    assert!(status(&to).late);
    let another = detach(&to, Some("site-b")).expect_err("it comes from another cell");
    assert_eq!((another.errno, status(&to).late), (libc::EBUSY, true), "{}", another.message);

    let detached = to.now_secs();
    assert!(detach(&to, Some("site-a")).is_ok());
    to.env.advance(Duration::from_secs(300));
    assert!(detach(&to, None).is_ok(), "by an operator, and again");
    to.reopen();
    let left = status(&to);
    assert_eq!((left.late, left.snapshot.as_deref()), (false, Some("one")));
    assert_eq!((left.origin.detached_secs, left.origin.every_secs), (Some(detached), 60));
    assert_eq!(to.make("c/g", Make::File).err(), Some(Error::ReadOnly));

    // by hand: nobody says that more comes
    bring_every(&from, "two", &to, 0);
    assert_eq!(status(&to).origin.detached_secs, Some(detached));
    bring(&from, "three", &to);
    to.env.advance(Duration::from_secs(300));
    let again = status(&to);
    assert_eq!((again.late, again.origin.detached_secs), (true, None));

    assert!(detach(&to, None).is_ok());
    to.admin(&admin::VolumePromote { name: "c".into(), handed_over: None });
    assert_eq!(status(&to).origin.detached_secs, None, "it is no copy any more");
    assert_eq!(detach(&to, None).expect_err("a volume of its own").errno, libc::EEXIST);
    to.clean();
}

#[test]
fn a_switch_that_is_taken_back_says_nothing_of_a_promotion() {
    let rig = rig(&[]);
    rig.admin(&admin::VolumeDemote { name: "v".into(), snapshot: "mirror-last".into() });
    let promote = |handed_over: Option<&str>| {
        let handed_over = handed_over.map(Into::into);
        rig.admin(&admin::VolumePromote { name: "v".into(), handed_over });
        rig.admin(&admin::CopyList).copies
    };
    assert_eq!(promote(Some("mirror-last")), []);
    rig.admin(&admin::VolumeDemote { name: "v".into(), snapshot: "mirror-again".into() });
    let how = promote(None).remove(0).origin.promoted.expect("by hand: there may be two");
    assert_eq!((how.snapshot.as_str(), how.handed_over), ("mirror-again", false));
}

/// Gives the copy all limits of `v`, in two parts.
fn bring_limits(from: &Rig, to: &Rig) {
    let all = from.admin(&admin::LimitList { volume: "v".into() }).limits;
    let (first, rest) = all.split_at(all.len() / 2);
    let between = rest.first().map(|limit| limit.of);
    let give = |from, to: Option<LimitOf>, limits: &[admin::Limit]| admin::CopyLimits {
        name: "c".into(),
        from,
        to,
        limits: limits.to_vec(),
    };
    to.admin(&give(LimitOf::Dir(0), between, first));
    between.into_iter().for_each(|between| _ = to.admin(&give(between, None, rest)));
}

#[test]
fn quotas_travel_and_bind_once_the_copy_is_promoted() {
    let (from, mut to) = (rig(&[]), with_copy());
    let quota = |rig: &Rig, path: &str, bytes, files| {
        rig.admin(&admin::QuotaSet { path: path.into(), bytes: Some(bytes), files: Some(files) });
    };
    let owner =
        |who, bytes| admin::OwnerLimit { volume: Some("v".into()), who, bytes: Some(bytes), files: None };
    ["v/few", "v/small", "v/gone"].into_iter().for_each(|dir| _ = from.dir(dir));
    from.file("v/few/1", b"");
    from.file("v/small/1", &noise(60_000, 1));
    quota(&from, "/v", 1 << 20, 0);
    quota(&from, "/v/few", 0, 2);
    quota(&from, "/v/small", 40_000, 0); // less than there is
    quota(&from, "/v/gone", 0, 1);
    from.admin(&owner(UserOrGroup::User(7), 8192));
    from.admin(&owner(UserOrGroup::Group(9), 8192));
    bring(&from, "one", &to);
    from.dir("v/late");
    quota(&from, "/v/late", 0, 1);
    bring_limits(&from, &to);
    let of_copy = || to.admin(&admin::LimitList { volume: "c".into() }).limits;
    let there = |rig: &Rig| rig.admin(&admin::LimitList { volume: "v".into() }).limits;
    assert_eq!(of_copy().len() + 1, there(&from).len(), "one is on a directory that has not come");

    // more than they allow comes nevertheless, and what goes takes its quota along
    from.file("v/few/2", b"");
    quota(&from, "/v/few", 0, 1);
    bring_limits(&from, &to);
    quota(&from, "/v/small", 80_000, 0);
    from.file("v/small/2", &noise(100, 2));
    quota(&from, "/v/small", 40_000, 0);
    quota(&from, "/v", 100_000, 0);
    from.rmdir("v/gone").expect("removed");
    bring(&from, "two", &to);
    bring_limits(&from, &to);
    assert_eq!(of_copy(), there(&from));
    to.admin(&admin::VolumePromote { name: "c".into(), handed_over: None });
    to.reopen();
    let refused = |path: &str, len: usize| {
        let node = to.make(path, Make::File);
        node.and_then(|node| to.write(node, 0, &noise(len, 3))).err()
    };
    assert_eq!(refused("c/few/3", 0), Some(Error::Quota), "most inodes");
    assert_eq!(refused("c/small/3", 9000), Some(Error::Quota), "most bytes");
    assert_eq!((refused("c/late/1", 1), refused("c/late/2", 1)), (None, Some(Error::Quota)));
    assert_eq!(refused("c/all", 50_000), Some(Error::Quota), "of the volume");
    for (uid, gid) in [(7, 0), (0, 9)] {
        let node = to.make(&format!("c/of-{uid}"), Make::File).expect("made");
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        to.call(Op::SetAttr { node, set }).expect("given away");
        let write = Op::Write { node, offset: 0, data: &noise(9000, 4) };
        assert_eq!(to.cell.call(&Ctx::user(0, 0), write).err(), Some(Error::Quota), "{uid} {gid}");
    }
    let again =
        to.ask(&admin::CopyLimits { name: "c".into(), from: LimitOf::Dir(0), to: None, limits: vec![] });
    assert_eq!(again.expect_err("it is no copy any more").errno, libc::EEXIST);
    to.clean();
}

/// Each limit may lack a record. What is done again then must not be all the limits there are.
#[test]
fn the_time_that_limits_take_does_not_grow_with_all_others() {
    const DIRS: u64 = 500;
    let (from, mut to, clock) = (rig(&[]), with_copy(), Env::real());
    (0..DIRS).for_each(|n| _ = from.dir(&format!("v/{n}")));
    bring(&from, "one", &to);
    let dirs: Vec<u64> = (0..DIRS).map(|n| from.at(&format!("v/{n}")).expect("there").inode()).collect();
    let give = |to: &Rig, range: (LimitOf, Option<LimitOf>), limits: Vec<admin::Limit>| {
        to.admin(&admin::CopyLimits { name: "c".into(), from: range.0, to: range.1, limits });
    };
    let users = |count| (0..count).map(|id| admin::Limit { of: LimitOf::User(id), bytes: 4096, files: 0 });
    give(&to, (LimitOf::User(0), None), users(30_000).collect());
    to.reopen();
    let begun = clock.now();
    let all = to.admin(&admin::LimitList { volume: "c".into() }).limits;
    let listed = clock.now() - begun;
    assert_eq!(all, users(30_000).collect::<Vec<_>>());
    let begun = clock.now();
    let quotas = dirs.iter().map(|dir| admin::Limit { of: LimitOf::Dir(*dir), bytes: 4096, files: 0 });
    give(&to, (LimitOf::Dir(0), Some(LimitOf::User(0))), quotas.collect());
    let given = clock.now() - begun;
    assert_eq!(to.admin(&admin::LimitList { volume: "c".into() }).limits.len(), 30_500);
    assert!(given < 100 * listed, "{given} ns beside {listed} ns for all that are there");

    // a part without limits takes away what there is in it
    give(&to, (LimitOf::User(10), Some(LimitOf::User(29_990))), vec![]);
    let nowhere = LimitOf::Dir(u64::MAX);
    for bytes in [0, 1] {
        give(&to, (nowhere, Some(LimitOf::User(0))), vec![admin::Limit { of: nowhere, bytes, files: 0 }]);
    }
    assert_eq!(to.admin(&admin::LimitList { volume: "c".into() }).limits.len(), 520);
    to.clean();
}
