//! What operators do about snapshots, on a cell with a simulated clock and disk.

use crate::rig::Rig;
use leeward_env::Ctx;
use leeward_env::dates;
use leeward_fs::{Entry, Error, Fs, Make, NodeId, Op, RenameMode, Reply, Watcher};
use leeward_volume::admin::{
    self, AnyRequest, PropertyChanges, QuotaInfo, Request, ScheduleInfo, SnapInfo, SnapInfos, VolumeInfo,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DAY: i64 = 86_400;

impl Rig {
    fn pass(&self, secs: i64) {
        self.env.advance(Duration::from_secs(secs as u64));
        self.rest();
    }

    #[track_caller]
    fn snap(&self, request: &impl Request<Reply = SnapInfo>) -> SnapInfo {
        self.ask(request).expect("a snapshot")
    }

    #[track_caller]
    fn refused(&self, request: &impl Request, words: &[&str]) {
        let failure = self.ask(request).expect_err("refused");
        for word in words {
            assert!(failure.message.contains(word), "`{word}` is not in {failure:?}");
        }
    }

    fn op(&self, op: Op<'_>) -> Result<Reply, Error> {
        self.cell.call(&Ctx::user(0, 0), op)
    }

    fn look_up_in(&self, dir: NodeId, name: &str) -> Result<NodeId, Error> {
        match self.op(Op::Lookup { dir, name: name.as_bytes() })? {
            Reply::Attr(attr) => Ok(attr.node),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn dir_in(&self, dir: NodeId, name: &str) -> NodeId {
        let make = Op::Make { dir, name: name.as_bytes(), make: Make::Dir, mode: 0o755, umask: 0 };
        match self.op(make) {
            Ok(Reply::Attr(attr)) => attr.node,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn file_in(&self, dir: NodeId, name: &str, bytes: usize) -> NodeId {
        let make = Op::Make { dir, name: name.as_bytes(), make: Make::File, mode: 0o644, umask: 0 };
        let Ok(Reply::Attr(attr)) = self.op(make) else { panic!("{name} cannot be made") };
        self.fill(attr.node, bytes).expect("a write");
        attr.node
    }

    fn fill(&self, node: NodeId, bytes: usize) -> Result<Reply, Error> {
        self.op(Op::Write { node, offset: 0, data: &vec![1; bytes] })
    }

    #[track_caller]
    fn names(&self, dir: NodeId, after: &str, limit: usize) -> Vec<String> {
        let list = Op::List { dir, after: after.as_bytes(), limit, attrs: true };
        let Ok(Reply::Entries(entries)) = self.op(list) else { panic!("no list") };
        let name = |e: Entry| {
            assert!(e.attr.is_some());
            String::from_utf8_lossy(&e.name).into_owned()
        };
        entries.into_iter().map(name).collect()
    }

    #[track_caller]
    fn volume_after(&self, request: &impl Request<Reply = VolumeInfo>) -> VolumeInfo {
        self.ask(request).expect("a volume")
    }

    fn new_volume(&self, name: &str, at: &str, uid: u32) -> NodeId {
        let create = admin::VolumeCreate { name: name.into(), at: at.into(), uid, gid: uid, pool: None };
        NodeId::new(self.volume_after(&create).id, 1)
    }

    #[track_caller]
    fn schedules(&self) -> Vec<ScheduleInfo> {
        self.ask(&admin::ScheduleList).expect("answered").schedules
    }

    #[track_caller]
    fn quota(&self, path: &str) -> QuotaInfo {
        self.ask(&admin::QuotaShow { path: path.into() }).expect("answered")
    }

    /// Names of snapshots of a directory.
    fn snaps(&self, dir: NodeId) -> Vec<String> {
        self.names(self.look_up_in(dir, ".snap").expect(".snap"), "", 1000)
    }
}

fn create(path: &str, name: &str) -> admin::SnapCreate {
    admin::SnapCreate { path: path.into(), name: name.into() }
}

fn remove(path: &str, name: &str) -> admin::SnapRemove {
    admin::SnapRemove { path: path.into(), name: name.into() }
}

fn lock(path: &str, name: &str, until_secs: i64) -> admin::SnapLock {
    admin::SnapLock { path: path.into(), name: name.into(), until_secs }
}

fn set(name: &str, set: PropertyChanges) -> admin::VolumeSet {
    admin::VolumeSet { name: name.into(), set }
}

#[derive(Default)]
struct Heard(Mutex<Vec<(NodeId, String)>>);

impl Watcher for Heard {
    fn entry_changed(&self, dir: NodeId, name: &[u8]) {
        self.0.lock().expect("no panic").push((dir, String::from_utf8_lossy(name).into_owned()));
    }

    fn inode_changed(&self, _: NodeId) {}
    fn attributes_changed(&self, _: NodeId) {}

    fn wait_applied(&self) {}
}

#[test]
fn snapshots_by_request() {
    let mut rig = Rig::new();
    let heard = Arc::new(Heard::default());
    rig.cell.watch(heard.clone());
    let dir = rig.dir_in(NodeId::ROOT, "dir");
    let below = rig.dir_in(dir, "below");
    let file = rig.file_in(dir, "file", 5000);
    let snap_dir = rig.look_up_in(dir, ".snap").expect(".snap");
    let one = rig.snap(&create("/dir", "one"));
    assert_eq!((one.volume.as_str(), one.path.as_str(), one.name.as_str()), ("root", "/dir", "one"));
    assert_eq!(one.locked_until_secs, 0);
    assert!(heard.0.lock().expect("no panic").contains(&(snap_dir, "one".into())));
    rig.reopen();
    let snap_dir = rig.look_up_in(dir, ".snap").expect(".snap");
    let root = rig.look_up_in(snap_dir, "one").expect("durable");
    let kept = rig.look_up_in(root, "file").expect("with its names");
    let Ok(Reply::Data(data)) = rig.op(Op::Read { node: kept, offset: 0, len: 9000 }) else { panic!() };
    assert_eq!(data.len(), 5000, "with its content");

    rig.refused(&create("/dir", "one"), &["/dir has a snapshot one already"]);
    rig.refused(&create("/dir", "_x"), &["cannot be the name", "not beginning with _"]);
    rig.refused(&create("/dir/file", "x"), &["not a directory"]);
    rig.refused(&create("/none", "x"), &["/none", "no such file"]);
    rig.refused(&remove("/dir", "two"), &["/dir has no snapshot two", "lee snap list"]);
    let inherited = format!("_one_{}", dir.0);
    rig.refused(&remove("/dir/below", &inherited), &["of a directory above"]);
    let rename = |to: &str| admin::SnapRename { path: "/dir".into(), name: "one".into(), to: to.into() };
    rig.refused(&rename("a/b"), &["\"a/b\" cannot be the name"]);
    rig.fill(file, 6000).expect("a write");
    assert_eq!(rig.snap(&rename("first")).name, "first");
    rig.snap(&create("/dir/below", "own"));

    let list = |path: Option<&str>, volume: Option<&str>| admin::SnapList {
        path: path.map(Into::into),
        volume: volume.map(Into::into),
    };
    let names = |request: &admin::SnapList| {
        let SnapInfos { snapshots, usage } = rig.ask(request).expect("listed");
        let names: Vec<_> = snapshots.iter().map(|s| format!("{} {}", s.path, s.name)).collect();
        (names, usage)
    };
    let both = vec!["/dir first".to_string(), "/dir/below own".to_string()];
    rig.pass(1);
    let (all, usage) = names(&list(None, None));
    assert_eq!((&all, usage.len()), (&both, 1));
    assert_eq!((usage[0].snapshots, usage[0].held_bytes), (2, 5000));
    assert_eq!(names(&list(Some("/dir/below"), None)).0, both, "what is seen there");
    assert_eq!(names(&list(Some("/dir"), None)).0, both[..1]);
    assert_eq!(names(&list(Some("/"), None)).0, [] as [&str; 0]);
    assert_eq!(names(&list(None, Some("root"))).0, both);
    rig.refused(&list(None, Some("none")), &["no volume none"]);

    assert_eq!(rig.ask(&remove("/dir", "first")), Ok(admin::Done {}));
    let usage = rig.ask(&admin::SnapUsageList { volume: None }).expect("answered").usage;
    assert_eq!((usage[0].held_bytes, usage[0].waiting_bytes), (0, 5000));
    rig.pass(1);
    let usage = rig.ask(&admin::SnapUsageList { volume: None }).expect("answered").usage;
    assert_eq!((usage[0].snapshots, usage[0].waiting_bytes), (1, 0));
    assert_eq!(rig.snaps(below), ["own"]);
    assert_eq!(rig.findings(), []);
}

#[test]
fn who_may() {
    let rig = Rig::new();
    rig.new_volume("alice", "/alice", 1000);
    let by = |uid: u32, gid: u32, request: AnyRequest| {
        rig.cell.admin_any(&Ctx::user(uid, gid), &request, &mut |_| ())
    };
    let taken = rig.ask_as(&Ctx::user(1000, 1000), &create("/alice", "mine")).expect("the owner may");
    assert_eq!(taken.uid, 1000);
    let refused = by(2000, 2000, create("/alice", "theirs").into()).expect_err("refused");
    assert!(refused.message.contains("owner of volume alice"), "{refused:?}");
    assert_eq!(refused.errno, libc::EPERM);
    let allow = |users: &[u32], groups: &[u32], allow: bool| {
        let (users, groups) = (users.to_vec(), groups.to_vec());
        rig.volume_after(&admin::VolumeAllow { name: "alice".into(), users, groups, allow })
    };
    let shown = allow(&[2000, 2001], &[50], true);
    assert_eq!((shown.snapshot_users, shown.snapshot_groups), (vec![2000, 2001], vec![50]));
    for (uid, gid) in [(2000, 1), (2001, 1), (3000, 50)] {
        by(uid, gid, create("/alice", &format!("of-{uid}")).into()).expect("allowed");
    }
    let shown = allow(&[2000], &[50], false);
    assert_eq!((shown.snapshot_users, shown.snapshot_groups), (vec![2001], vec![]));
    for request in [
        create("/alice", "no").into(),
        remove("/alice", "mine").into(),
        lock("/alice", "mine", rig.now_secs() + DAY).into(),
        admin::SnapRename { path: "/alice".into(), name: "mine".into(), to: "x".into() }.into(),
        admin::ScheduleSet { path: "/alice".into(), interval_secs: 60, keep: "1h".into() }.into(),
    ] {
        let failure = by(2000, 50, AnyRequest::clone(&request)).expect_err("refused");
        assert_eq!(failure.errno, libc::EPERM, "{request:?}");
    }
    by(2001, 1, remove("/alice", "of-3000").into()).expect("allowed");
}

#[test]
fn locks_hold_against_everybody() {
    let mut rig = Rig::new();
    let home = rig.new_volume("home", "/home", 0);
    rig.file_in(home, "file", 100);
    rig.snap(&create("/home", "kept"));
    let until = rig.now_secs() + 30 * DAY;
    assert_eq!(rig.snap(&lock("/home", "kept", until)).locked_until_secs, until);
    rig.refused(&lock("/home", "kept", rig.now_secs() - 1), &["has passed"]);
    let locked = |rig: &Rig| {
        let date = dates::minute(until);
        rig.refused(&remove("/home", "kept"), &["locked until", &date]);
        rig.refused(
            &admin::SnapUnlock { path: "/home".into(), name: "kept".into() },
            &["locked until", &date],
        );
        rig.refused(&lock("/home", "kept", until - 60), &["locked until", "shorten"]);
        rig.refused(&admin::VolumeRemove { name: "home".into() }, &["volume home", "kept of /home", &date]);
        let snap_dir = rig.look_up_in(home, ".snap").expect(".snap");
        assert_eq!(rig.op(Op::RmDir { dir: snap_dir, name: b"kept" }), Err(Error::NotPermitted));
        let to_name = b"renamed";
        let rename = Op::Rename {
            from_dir: snap_dir,
            from_name: b"kept",
            to_dir: snap_dir,
            to_name,
            mode: RenameMode::Replace,
        };
        assert_eq!(rig.op(rename), Ok(Reply::Done), "a lock does not keep the name");
        let back = admin::SnapRename { path: "/home".into(), name: "renamed".into(), to: "kept".into() };
        rig.snap(&back);
    };
    locked(&rig);
    rig.reopen();
    locked(&rig);
    let ahead = |rig: &Rig| rig.ask(&admin::StatsShow).expect("answered").clock_ahead_secs;
    assert_eq!(ahead(&rig), 0);
    // the wall clock is set forward: it does not count, and is told
    rig.env.set_wall_by(40 * DAY);
    rig.pass(1);
    locked(&rig);
    assert_eq!(ahead(&rig), 40 * DAY);
    rig.env.set_wall_by(-40 * DAY);
    assert_eq!(ahead(&rig), 0);
    // and back: the lock ends no earlier
    rig.env.set_wall_by(-5 * DAY);
    rig.pass(31 * DAY);
    locked(&rig);
    assert_eq!(ahead(&rig), -5 * DAY);
    rig.env.set_wall_by(5 * DAY);
    let unlock = admin::SnapUnlock { path: "/home".into(), name: "kept".into() };
    assert_eq!(rig.snap(&unlock).locked_until_secs, 0);
    // while nothing is locked the clock is followed wherever it is set
    rig.env.set_wall_by(100 * DAY);
    assert_eq!(ahead(&rig), 0);
    rig.env.set_wall_by(-100 * DAY);
    let short = rig.now_secs() + DAY;
    rig.snap(&lock("/home", "kept", short));
    // a lock may be prolonged
    rig.snap(&lock("/home", "kept", short + DAY));
    rig.pass(DAY + 60);
    rig.refused(&remove("/home", "kept"), &["locked until"]);
    rig.pass(DAY);
    assert_eq!(rig.ask(&remove("/home", "kept")), Ok(admin::Done {}));
    assert_eq!(rig.ask(&admin::VolumeRemove { name: "home".into() }), Ok(admin::Done {}));
    rig.pass(10);
    assert_eq!(rig.findings(), []);
}

#[test]
fn time_goes_on_while_the_cell_is_closed() {
    let mut rig = Rig::new();
    rig.snap(&create("/", "kept"));
    rig.snap(&lock("/", "kept", rig.now_secs() + 3 * DAY));
    rig.pass(DAY);
    rig.cell.close().expect("close");
    rig.env.advance(Duration::from_secs(DAY as u64));
    rig.start();
    rig.refused(&remove("/", "kept"), &["locked until"]);
    rig.cell.close().expect("close");
    rig.env.advance(Duration::from_secs(DAY as u64 + 1));
    rig.start();
    assert_eq!(rig.ask(&remove("/", "kept")), Ok(admin::Done {}));
}

#[test]
fn the_directory_of_snapshots_can_be_listed_and_renamed() {
    let rig = Rig::new();
    let heard = Arc::new(Heard::default());
    rig.cell.watch(heard.clone());
    for name in [".a", ".t", "b"] {
        rig.dir_in(NodeId::ROOT, name);
    }
    let visible = PropertyChanges { snapshot_dir_visible: Some(true), ..PropertyChanges::default() };
    assert!(rig.volume_after(&set("root", visible)).snapshot_dir_visible);
    let all = [".a", ".snap", ".t", "b"];
    assert_eq!(rig.names(NodeId::ROOT, "", 100), all);
    // whatever the size of a page, each name comes once and in order
    for limit in 1..6 {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = rig.names(NodeId::ROOT, &after, limit);
            assert!(page.len() <= limit);
            let at_end = page.len() < limit;
            after = page.last().cloned().unwrap_or(after);
            seen.extend(page);
            if at_end {
                break;
            }
        }
        assert_eq!(seen, all, "pages of {limit}");
    }
    let empty = rig.look_up_in(NodeId::ROOT, "b").expect("b");
    assert_eq!(rig.names(empty, "", 1), [".snap"]);
    rig.snap(&create("/", "s"));
    assert_eq!(rig.names(rig.look_up_in(NodeId::ROOT, ".snap").expect(".snap"), "", 10), ["s"]);
    let seen = rig.look_up_in(rig.look_up_in(NodeId::ROOT, ".snap").expect(".snap"), "s").expect("s");
    assert_eq!(rig.names(seen, "", 10), [".a", ".t", "b"], "not within a snapshot");
    assert_eq!(
        rig.op(Op::RmDir { dir: NodeId::ROOT, name: b"b" }),
        Ok(Reply::Removed { node: empty, nlink: 0 })
    );

    let named =
        |name: &str| PropertyChanges { snapshot_dir: Some(name.into()), ..PropertyChanges::default() };
    for bad in ["", "a/b", ".."] {
        rig.refused(&set("root", named(bad)), &["cannot be the name"]);
    }
    rig.refused(&set("root", named(".t")), &[".t", "would be hidden"]);
    assert_eq!(rig.volume_after(&set("root", named("zz"))).snapshot_dir, "zz");
    assert_eq!(rig.names(NodeId::ROOT, "", 100), [".a", ".t", "zz"]);
    assert_eq!(rig.look_up_in(NodeId::ROOT, ".snap"), Err(Error::NotFound));
    rig.look_up_in(NodeId::ROOT, "zz").expect("by its new name");
    let heard = heard.0.lock().expect("no panic");
    for name in [".snap", "zz"] {
        assert!(heard.contains(&(NodeId::ROOT, name.into())), "{heard:?}");
    }
}

#[test]
fn at_most_so_many() {
    let rig = Rig::new();
    let few = PropertyChanges { snapshots_max: Some(2), ..PropertyChanges::default() };
    assert_eq!(rig.volume_after(&set("root", few)).snapshots_max, 2);
    rig.snap(&create("/", "a"));
    rig.snap(&create("/", "b"));
    rig.refused(&create("/", "c"), &["volume root", "snapshots-max"]);
    assert_eq!(rig.volume_after(&admin::VolumeShow { name: "root".into() }).snapshots, 2);
}

#[test]
fn a_quota_can_count_snapshots() {
    let mut rig = Rig::new();
    let home = rig.new_volume("home", "/home", 0);
    let limit = admin::QuotaSet { path: "/home".into(), bytes: Some(100_000), files: None };
    rig.ask(&limit).expect("a quota");
    let file = rig.file_in(home, "file", 60_000);
    rig.snap(&create("/home", "s"));
    rig.fill(file, 60_000).expect("what does not grow fits");
    rig.ask(&admin::SyncAll).expect("a sync");
    assert_eq!(rig.quota("/home").used_bytes, 60_000);
    let counts =
        |yes: bool| PropertyChanges { quota_counts_snapshots: Some(yes), ..PropertyChanges::default() };
    rig.volume_after(&set("home", counts(true)));
    rig.reopen();
    assert_eq!(rig.quota("/home").used_bytes, 120_000);
    let Ok(Reply::StatFs(space)) = rig.op(Op::StatFs { node: home }) else { panic!() };
    assert_eq!((space.total_bytes, space.free_bytes), (100_000, 0));
    assert_eq!(rig.op(Op::Write { node: file, offset: 60_000, data: b"x" }), Err(Error::Quota));
    rig.ask(&remove("/home", "s")).expect("removed");
    assert_eq!(rig.quota("/home").used_bytes, 60_000, "at once");
    rig.op(Op::Write { node: file, offset: 60_000, data: b"x" }).expect("it fits");
    rig.volume_after(&set("home", counts(false)));
    rig.pass(1);
    assert_eq!(rig.findings(), []);
}

/// Goes on by minutes, as the maintenance thread would notice.
fn run(rig: &Rig, minutes: i64) {
    (0..minutes).for_each(|_| rig.pass(60));
}

fn to_the_hour(rig: &Rig) {
    rig.pass(3600 - rig.now_secs().rem_euclid(3600));
}

fn every(path: &str, interval_secs: u32, keep: &str) -> admin::ScheduleSet {
    admin::ScheduleSet { path: path.into(), interval_secs, keep: keep.into() }
}

#[test]
fn schedules_take_and_remove() {
    let mut rig = Rig::new();
    let dir = rig.dir_in(NodeId::ROOT, "dir");
    rig.refused(&every("/dir", 90, "1h"), &["minutes"]);
    rig.refused(&every("/dir", 3600, "1x"), &["1x", "24h7d4w12m"]);
    to_the_hour(&rig);
    rig.pass(1800);
    let made = rig.ask(&every("/dir", 3600, "3h2d")).expect("answered");
    assert_eq!((made.next_secs, made.late), (rig.now_secs() + 1800, false));
    assert_eq!(rig.snaps(dir), [] as [&str; 0], "none before the first multiple");
    run(&rig, 31);
    let first = dates::minute(made.next_secs);
    assert_eq!(rig.snaps(dir).join(" "), first);
    // a user's own, and one that is locked
    rig.snap(&create("/dir", "mine"));
    rig.snap(&lock("/dir", &first, rig.now_secs() + 100 * DAY));
    run(&rig, 60 * 72);
    let newest = rig.now_secs() - rig.now_secs().rem_euclid(3600);
    let mut expected: Vec<String> = (0..3).map(|h| dates::minute(newest - h * 3600)).collect();
    // the newest of the day before, unless it is among the last hours
    let yesterday = newest - newest.rem_euclid(DAY) - 3600;
    expected.push(dates::minute(yesterday));
    expected.push(first.clone());
    expected.push("mine".into());
    expected.sort();
    expected.dedup();
    assert_eq!(rig.snaps(dir), expected);
    let shown = &rig.schedules()[0];
    assert_eq!((shown.newest_secs, shown.late, shown.path.as_str()), (Some(newest), false, "/dir"));

    // what was missed is made up once
    rig.cell.close().expect("close");
    rig.env.advance(Duration::from_secs(10 * 3600));
    rig.start();
    let stats = |rig: &Rig| rig.ask(&admin::StatsShow).expect("answered").late_schedules;
    assert!(rig.schedules()[0].late && stats(&rig) == 1, "before anything runs");
    rig.pass(1);
    assert_eq!(rig.schedules()[0].newest_secs, Some(newest + 10 * 3600));
    assert!(!rig.schedules()[0].late && stats(&rig) == 0);
    let between = (1..10).map(|h| dates::minute(newest + h * 3600));
    assert!(between.into_iter().all(|name| !rig.snaps(dir).contains(&name)));

    assert_eq!(rig.ask(&admin::ScheduleRemove { path: "/dir".into() }), Ok(admin::Done {}));
    rig.refused(&admin::ScheduleRemove { path: "/dir".into() }, &["no schedule"]);
    let left = rig.snaps(dir);
    run(&rig, 120);
    assert_eq!(rig.snaps(dir), left, "its snapshots stay");
    rig.reopen();
    assert_eq!(rig.schedules(), []);
    assert_eq!(rig.findings(), []);
}

#[test]
fn volumes_below_have_the_schedule_too() {
    let rig = Rig::new();
    rig.dir_in(NodeId::ROOT, "homes");
    let one = rig.new_volume("one", "/homes/one", 1);
    let own = rig.new_volume("own", "/homes/own", 2);
    let inner = rig.new_volume("inner", "/homes/one/inner", 1);
    let beside = rig.new_volume("beside", "/beside", 1);
    to_the_hour(&rig);
    rig.ask(&every("/homes", 3600, "2h")).expect("a schedule");
    rig.ask(&every("/homes/own", 2 * 3600, "1h")).expect("a schedule of its own");
    run(&rig, 4 * 60 + 1);
    let taken: Vec<usize> = [one, own, inner, beside].iter().map(|v| rig.snaps(*v).len()).collect();
    assert_eq!(taken, [2, 1, 2, 0]);
    // as many as may be are no hindrance
    rig.volume_after(&set("one", PropertyChanges { snapshots_max: Some(2), ..PropertyChanges::default() }));
    run(&rig, 60);
    assert_eq!(rig.snaps(one).len(), 2);
    let all = rig.schedules();
    assert!(!all[0].late);
    let below: Vec<&str> = all[0].volumes.iter().map(|v| v.volume.as_str()).collect();
    assert_eq!((all[0].path.as_str(), below), ("/homes", vec!["one", "inner"]));
    // one cannot be taken: told, and late in time
    let none = PropertyChanges { snapshots_max: Some(1), ..PropertyChanges::default() };
    rig.volume_after(&set("inner", none));
    run(&rig, 4 * 60);
    let sick = &rig.schedules()[0];
    assert!(sick.late && sick.error.as_ref().is_some_and(|e| e.contains("/homes/one/inner")), "{sick:?}");
    assert!(sick.volumes.iter().any(|v| v.volume == "inner" && v.late));
    assert_eq!(rig.ask(&admin::VolumeRemove { name: "inner".into() }), Ok(admin::Done {}));
    assert_eq!(rig.ask(&admin::VolumeRemove { name: "own".into() }), Ok(admin::Done {}));
    run(&rig, 120);
    let all = rig.schedules();
    assert_eq!((all.len(), all[0].late, all[0].error.clone()), (1, false, None));
    assert_eq!(rig.findings(), []);
}

#[test]
fn a_schedule_goes_with_its_directory() {
    let mut rig = Rig::new();
    rig.dir_in(NodeId::ROOT, "dir");
    rig.ask(&every("/dir", 60, "1h")).expect("a schedule");
    rig.op(Op::RmDir { dir: NodeId::ROOT, name: b"dir" }).expect("no snapshots yet");
    assert_eq!(rig.schedules(), []);
    rig.reopen();
    assert_eq!(rig.schedules(), []);
}
