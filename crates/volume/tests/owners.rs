//! What users and groups own, and limits on it: exact after each operation, across crashes, and in
//! cells of before format 15.

use crate::rig::{Rig, engine, noise};
use leeward_env::Ctx;
use leeward_fs::flows::UserOrGroup::{self, Group, User};
use leeward_fs::{Allocate, Error, Fs, Make, NodeId, Op, Precondition, RenameMode, Reply, SetAttr};
use leeward_meta::{Batch, Kv};
use leeward_volume::admin::{self, OwnerInfo, OwnerLimit, OwnerUsage, PropertyChanges};
use leeward_volume::format::keys::{self, Table};

const ALICE: u32 = 1000;
const BOB: u32 = 1001;
const LAB: u32 = 2000;
const CHEMISTRY: u32 = 2001;

impl Rig {
    /// With the directory `/d` that all may write to.
    fn with_dir() -> Rig {
        let rig = Rig::new();
        let dir = rig.dir("/d");
        rig.call(Op::SetAttr { node: dir, set: SetAttr { mode: Some(0o777), ..SetAttr::default() } })
            .expect("set");
        rig
    }

    fn call_as(&self, uid: u32, op: Op<'_>) -> Result<Reply, Error> {
        self.cell.call(&Ctx::user(uid, LAB), op)
    }

    fn make_as(&self, uid: u32, path: &str) -> Result<NodeId, Error> {
        let (dir, name) = Self::split(path);
        let dir = self.at(dir)?;
        let op = Op::Make { dir, name: name.as_bytes(), make: Make::File, mode: 0o644, umask: 0 };
        self.call_as(uid, op)?.attr().map(|attr| attr.node)
    }

    fn write_as(&self, uid: u32, node: NodeId, offset: u64, len: usize) -> Result<(), Error> {
        self.call_as(uid, Op::Write { node, offset, data: &noise(len, offset + 1) }).map(drop)
    }

    fn chown(&self, node: NodeId, uid: Option<u32>, gid: Option<u32>) -> Result<(), Error> {
        self.call(Op::SetAttr { node, set: SetAttr { uid, gid, ..SetAttr::default() } }).map(drop)
    }

    fn usage_by_owner(&self, volume: Option<&str>) -> Vec<OwnerInfo> {
        let request = OwnerUsage { volume: volume.map(Into::into), who: Vec::new(), limited: false };
        self.admin(&request).owners
    }

    /// Bytes and inodes in the root volume.
    fn used_by(&self, who: UserOrGroup) -> (u64, u64) {
        let all = self.usage_by_owner(Some("root"));
        all.iter().find(|info| info.who == who).map_or((0, 0), |info| (info.used_bytes, info.used_files))
    }

    fn limit(&self, volume: Option<&str>, who: UserOrGroup, bytes: u64, files: u64) -> OwnerInfo {
        let volume = volume.map(Into::into);
        self.admin(&OwnerLimit { volume, who, bytes: Some(bytes), files: Some(files) })
    }

    fn records(&self, table: Table) -> usize {
        let (from, to) = keys::table_range(table);
        engine(&self.env, &self.disk).scan(&from, &to, 1000, false).expect("a scan").len()
    }
}

#[test]
fn each_operation_counts_for_owner_and_group_at_once() {
    let rig = Rig::with_dir();
    let file = rig.make_as(ALICE, "/d/a").expect("made");
    assert_eq!((rig.used_by(User(ALICE)), rig.used_by(Group(LAB))), ((0, 1), (0, 1)));
    rig.write_as(ALICE, file, 0, 10_000).expect("written");
    assert_eq!(rig.used_by(User(ALICE)), (10_000, 1), "pending content counts");
    rig.write_as(ALICE, file, 5_000, 10_000).expect("written");
    assert_eq!(rig.used_by(User(ALICE)), (15_000, 1));
    rig.chown(file, Some(BOB), None).expect("given away, with what is pending");
    assert_eq!(
        (rig.used_by(User(ALICE)), rig.used_by(User(BOB)), rig.used_by(Group(LAB))),
        ((0, 0), (15_000, 1), (15_000, 1))
    );
    rig.idle();
    assert_eq!(rig.used_by(User(BOB)), (15_000, 1), "applied content counts once");
    rig.chown(file, None, Some(CHEMISTRY)).expect("given away");
    assert_eq!((rig.used_by(Group(LAB)), rig.used_by(Group(CHEMISTRY))), ((0, 0), (15_000, 1)));
    rig.call(Op::SetAttr {
        node: file,
        set: SetAttr { size: Some(4_096), uid: Some(ALICE), ..SetAttr::default() },
    })
    .expect("cut and given away in one");
    assert_eq!((rig.used_by(User(ALICE)), rig.used_by(User(BOB))), ((4_096, 1), (0, 0)));
    let reserve =
        Op::Allocate { node: file, offset: 4_096, len: 4_096, mode: Allocate::Reserve { keep_size: true } };
    rig.call(reserve).expect("reserved");
    rig.call(Op::Link { node: file, dir: rig.at("/d").expect("there"), name: b"b" }).expect("linked");
    rig.unlink("/d/a");
    assert_eq!(rig.used_by(User(ALICE)), (8_192, 1), "a second name is no second file");
    rig.rename("/d/b", "/b").expect("renamed");
    rig.unlink("/b");
    assert_eq!(rig.used_by(User(ALICE)), (0, 0));
    rig.clean();
}

#[test]
fn a_file_without_a_name_counts_when_it_gets_one() {
    let rig = Rig::with_dir();
    let dir = rig.at("/d").expect("there");
    rig.limit(Some("root"), User(ALICE), 8_192, 0);
    let unnamed = |bytes| Op::MakeUnnamed { dir, mode: 0o644, umask: 0, bytes };
    assert_eq!(rig.call_as(ALICE, unnamed(8_193)).map(drop), Err(Error::Quota), "said before it is sent");
    let node = rig.call_as(ALICE, unnamed(0)).expect("made").attr().expect("a file").node;
    rig.write_as(ALICE, node, 0, 10_000).expect("written");
    assert_eq!(rig.used_by(User(ALICE)), (0, 0));
    let place = Op::Place { node, dir, name: b"f", over: Precondition::Any };
    assert_eq!(rig.call_as(ALICE, place).map(drop), Err(Error::Quota));
    rig.limit(Some("root"), User(ALICE), 10_000, 0);
    rig.call_as(ALICE, place).expect("placed");
    assert_eq!(rig.used_by(User(ALICE)), (10_000, 1));
}

#[test]
fn limits_are_exact_and_hold_for_what_is_given_too() {
    let mut rig = Rig::with_dir();
    let file = rig.make_as(ALICE, "/d/a").expect("made");
    rig.limit(Some("root"), User(ALICE), 10_000, 2);
    rig.write_as(ALICE, file, 0, 10_000).expect("fits");
    assert_eq!(rig.write_as(ALICE, file, 10_000, 1), Err(Error::Quota));
    rig.write_as(ALICE, file, 0, 10_000).expect("what does not grow fits");
    rig.make_as(ALICE, "/d/b").expect("fits");
    assert_eq!(rig.make_as(ALICE, "/d/c"), Err(Error::Quota));
    rig.make_as(BOB, "/d/c").expect("another user");
    let third = rig.at("/d/c").expect("there");
    assert_eq!(rig.chown(third, Some(ALICE), None), Err(Error::Quota));
    rig.limit(None, Group(LAB), 0, 3);
    assert_eq!(rig.make_as(BOB, "/d/d"), Err(Error::Quota), "the group is full in the cell");
    rig.limit(None, Group(LAB), 0, 0);
    rig.make_as(BOB, "/d/d").expect("no limit any more");
    rig.call(Op::SyncAll).expect("durable");
    rig.start();
    assert_eq!(rig.make_as(ALICE, "/d/e"), Err(Error::Quota), "limits last");
    rig.unlink("/d/b");
    rig.make_as(ALICE, "/d/e").expect("fits again");
    assert_eq!(rig.write_as(ALICE, file, 10_000, 1), Err(Error::Quota));
    rig.clean();
}

#[test]
fn a_limit_in_the_cell_is_over_all_volumes() {
    let rig = Rig::with_dir();
    let create = admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: ALICE, gid: LAB, pool: None };
    rig.admin(&create);
    rig.limit(None, User(ALICE), 0, 3);
    rig.make_as(ALICE, "/v/a").expect("fits");
    rig.make_as(ALICE, "/d/a").expect("fits");
    rig.make_as(ALICE, "/d/b").expect("fits");
    assert_eq!(rig.make_as(ALICE, "/v/b"), Err(Error::Quota));
    rig.limit(Some("v"), User(ALICE), 0, 9);
    assert_eq!(rig.make_as(ALICE, "/v/b"), Err(Error::Quota), "both limits hold");
    rig.admin(&admin::VolumeRemove { name: "v".into() });
    rig.make_as(ALICE, "/d/c").expect("what the volume had counts no more");
    let all: Vec<_> = rig.usage_by_owner(None).into_iter().filter(|info| info.who == User(ALICE)).collect();
    let of = |info: &OwnerInfo| (info.volume.clone(), info.used_files, info.files);
    assert_eq!(all.iter().map(of).collect::<Vec<_>>(), [(None, 3, 3), (Some("root".into()), 3, 0)]);
}

#[test]
fn a_removed_volume_leaves_nothing_behind() {
    let mut rig = Rig::with_dir();
    let create = admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: ALICE, gid: LAB, pool: None };
    rig.admin(&create);
    rig.limit(Some("v"), User(ALICE), 0, 9);
    rig.make_as(ALICE, "/v/a").expect("made");
    rig.call(Op::SyncAll).expect("durable");
    let before = (rig.records(Table::Owned), rig.records(Table::OwnerLimit));
    rig.admin(&admin::VolumeRemove { name: "v".into() });
    rig.clean();
    rig.start();
    assert_eq!((rig.records(Table::Owned), rig.records(Table::OwnerLimit)), (before.0 - 2, 0));
}

#[test]
fn what_is_in_the_bin_counts_until_its_owner_needs_the_room() {
    let rig = Rig::with_dir();
    let set = PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() };
    rig.admin(&admin::VolumeSet { name: "root".into(), set });
    rig.limit(Some("root"), User(ALICE), 10_000, 0);
    for (uid, path) in [(BOB, "/d/of-bob"), (ALICE, "/d/first"), (ALICE, "/d/second")] {
        let node = rig.make_as(uid, path).expect("made");
        rig.write_as(uid, node, 0, 4_096).expect("fits");
        rig.unlink(path);
    }
    assert_eq!(rig.used_by(User(ALICE)), (8_192, 2));
    let node = rig.make_as(ALICE, "/d/third").expect("made");
    rig.write_as(ALICE, node, 0, 4_096).expect("the oldest of hers goes");
    let left: Vec<_> = rig.admin(&admin::BinList { path: None, newest: None }).entries;
    let names: Vec<_> = left.iter().map(|entry| entry.path.clone()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(
        names.iter().any(|path| path.contains("of-bob")) && names.iter().any(|path| path.contains("second"))
    );
    assert_eq!(rig.write_as(ALICE, node, 4_096, 10_000), Err(Error::Quota), "there is not enough");
    rig.clean();
}

#[test]
fn a_snapshot_and_a_restore_count_for_the_owners() {
    let rig = Rig::with_dir();
    let node = rig.make_as(ALICE, "/d/a").expect("made");
    rig.write_as(ALICE, node, 0, 300_000).expect("written");
    rig.limit(Some("root"), User(ALICE), 300_000, 1);
    rig.admin(&admin::SnapCreate { path: "/d".into(), name: "s".into() });
    rig.unlink("/d/a");
    assert_eq!(rig.used_by(User(ALICE)), (0, 0), "what only snapshots hold does not count");
    let restore = admin::SnapRestore {
        path: "/d".into(),
        name: "s".into(),
        what: String::new(),
        to: None,
        in_place: true,
    };
    rig.admin(&restore);
    assert_eq!(rig.used_by(User(ALICE)), (300_000, 1));
    rig.admin(&admin::SnapRestore {
        path: "/d".into(),
        name: "s".into(),
        what: String::new(),
        to: Some("/e".into()),
        in_place: false,
    });
    rig.clean();
    assert_eq!(rig.used_by(User(ALICE)), (600_000, 2), "what the operator restores is not refused");
}

#[test]
fn an_older_cell_is_counted_while_it_is_used() {
    let mut rig = Rig::with_dir();
    for n in 0..600u64 {
        let uid = if n % 3 == 0 { BOB } else { ALICE };
        let node = rig.make_as(uid, &format!("/d/{n}")).expect("made");
        rig.write_as(uid, node, 0, 100).expect("written");
    }
    rig.idle();
    let before = rig.usage_by_owner(None);
    rig.cell.close().expect("a clean close");
    let kv = engine(&rig.env, &rig.disk);
    let (from, to) = keys::table_range(Table::Owned);
    let owned = kv.scan(&from, &to, 1000, false).expect("a scan").into_iter().map(|(key, _)| (key, None));
    let writes = owned.chain([(keys::owners_counted(), None)]).collect();
    kv.commit(&Batch { writes, inline_data: Vec::new() }).expect("as an older program left it");
    drop(kv);
    rig.start();
    let counting =
        |rig: &Rig| rig.admin(&OwnerUsage { volume: None, who: Vec::new(), limited: false }).counting;
    assert_eq!(counting(&rig), ["root"]);
    let mut steps = 0;
    while !counting(&rig).is_empty() {
        rig.cell.step().expect("a step");
        assert_eq!(rig.findings(), [], "after {steps} steps");
        // of what is counted already, and of what is not
        for n in [steps, 599 - steps] {
            let node = rig.at(&format!("/d/{n}")).expect("there");
            rig.chown(node, Some(ALICE + BOB), None).expect("given away");
            rig.chown(node, Some(if n % 3 == 0 { BOB } else { ALICE }), None).expect("given back");
        }
        let (new, old) = (format!("/d/new-{steps}"), format!("/d/{}", 300 + steps));
        let node = rig.make_as(ALICE, &new).expect("made");
        rig.write_as(ALICE, node, 0, 100).expect("written");
        let gone = rig.at(&old).expect("there");
        rig.rename(&new, &old).expect("renamed");
        rig.call(Op::Forget { node: gone, count: 1 }).expect("forgotten");
        if steps % 2 == 1 {
            rig.call(Op::SyncAll).expect("durable");
            rig.start();
        }
        steps += 1;
        assert!(steps < 100);
    }
    assert!(steps > 2, "{steps} steps");
    rig.clean();
    let sum = |all: &[OwnerInfo]| {
        [User(ALICE), User(BOB), Group(LAB)].map(|who| {
            let found = all.iter().find(|info| info.volume.is_none() && info.who == who);
            found.map_or((0, 0), |info| (info.used_bytes, info.used_files))
        })
    };
    let (before, after) = (sum(&before), sum(&rig.usage_by_owner(None)));
    assert_eq!(before[2], after[2], "the group has as many files as before");
    assert_eq!(after[0].1 + after[1].1, after[2].1);
    rig.start();
    assert_eq!(sum(&rig.usage_by_owner(None)), after, "what was counted lasts");
    assert_eq!(rig.records(Table::Uncounted), 0);
}

#[test]
fn an_exchange_and_a_replacement_count_what_is_left() {
    let rig = Rig::with_dir();
    let a = rig.make_as(ALICE, "/d/a").expect("made");
    let b = rig.make_as(BOB, "/d/b").expect("made");
    rig.write_as(ALICE, a, 0, 5_000).expect("written");
    rig.write_as(BOB, b, 0, 7_000).expect("written");
    let dir = rig.at("/d").expect("there");
    let op = |mode| Op::Rename { from_dir: dir, from_name: b"a", to_dir: dir, to_name: b"b", mode };
    rig.call(op(RenameMode::Exchange)).expect("exchanged");
    assert_eq!((rig.used_by(User(ALICE)), rig.used_by(User(BOB))), ((5_000, 1), (7_000, 1)));
    rig.call(op(RenameMode::Replace)).expect("replaced");
    assert_eq!((rig.used_by(User(ALICE)), rig.used_by(User(BOB))), ((0, 0), (7_000, 1)));
    rig.clean();
}
