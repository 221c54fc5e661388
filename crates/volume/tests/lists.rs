//! Lists of volumes and of what is about them, asked for while volumes come and go; and listings of
//! directories while names are removed.

use crate::rig::paths::long_name;
use crate::rig::watched::{Watch, WatchedKv};
use crate::rig::{Rig, engine};
use leeward_env::{Ctx, Groups};
use leeward_fs::flows::UserOrGroup::{self, Group, User};
use leeward_fs::{Entry, Fs, Make, NodeId, Op, Precondition, SetAttr};
use leeward_pool::DirStore;
use leeward_volume::admin::{
    self, AnyRequest, ChangeKind, EventFilter, OwnerInfo, OwnerUsage, PropertyChanges,
};
use leeward_volume::format::keys::{self, tag};
use leeward_volume::{Cell, Config};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

const VOLUMES: u32 = 150;
/// How often each list is asked for at least.
const ROUNDS: usize = 15;
const LISTS: [&str; 10] = [
    r#"{"request":"volume-list"}"#,
    r#"{"request":"schedule-list"}"#,
    r#"{"request":"quota-list"}"#,
    r#"{"request":"snap-list","path":null,"volume":null}"#,
    r#"{"request":"snap-usage-list","volume":null}"#,
    r#"{"request":"bin-list","path":null}"#,
    r#"{"request":"project-list"}"#,
    r#"{"request":"mirror-list"}"#,
    r#"{"request":"backup-list"}"#,
    r#"{"request":"df-show"}"#,
];

/// Makes a volume with what lists show, and removes it.
fn comes_and_goes(rig: &Rig, n: u32) {
    let (name, at) = (format!("v{n}"), format!("/v{n}"));
    let create = admin::VolumeCreate { name: name.clone(), at: at.clone(), uid: 0, gid: 0, pool: None };
    rig.admin(&create);
    rig.admin(&admin::QuotaSet { path: at.clone(), bytes: Some(1 << 20), files: None });
    rig.admin(&admin::ScheduleSet { path: at.clone(), interval_secs: 3600, keep: "24h".into() });
    rig.admin(&admin::SnapCreate { path: at, name: "s".into() });
    rig.admin(&admin::VolumeRemove { name });
    rig.rest();
}

#[test]
fn what_is_removed_meanwhile_is_left_out_of_lists() {
    let rig = Rig::new();
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        let lister = threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for json in LISTS {
                    let request: AnyRequest = serde_json::from_str(json).expect(json);
                    if let Err(failure) = rig.cell.admin_any(&Ctx::user(0, 0), &request, &mut |_| {}) {
                        panic!("{json}: {failure:?}");
                    }
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        // as many as it takes until they have met often
        let goes_on = |n: &u32| *n < VOLUMES || rounds.load(Ordering::Relaxed) < ROUNDS;
        (0..).take_while(goes_on).take_while(|_| !lister.is_finished()).for_each(|n| comes_and_goes(&rig, n));
        is_over.store(true, Ordering::Relaxed);
        lister.join().expect("no list fails");
    });
    rig.clean();
}

/// More owners than are looked at without a pause. Who is no operator is told of few of them.
#[test]
fn lists_of_owners_are_whole_and_strangers_get_their_own_part() {
    const OWNERS: u32 = 2_100;
    let rig = Rig::new();
    let own = |path: &str, n: u32| {
        let node = rig.make(path, Make::File).expect("made");
        let set = SetAttr { uid: Some(10_000 + n), gid: Some(20_000 + n), ..SetAttr::default() };
        rig.call(Op::SetAttr { node, set }).expect("given away");
    };
    rig.dir("/d");
    (0..OWNERS).for_each(|n| own(&format!("/d/{n}"), n));
    let create =
        admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 10_005, gid: 20_005, pool: None };
    rig.admin(&create);
    own("/v/f", 9);
    own("/v/g", 5);
    let request =
        |volume: Option<&str>| OwnerUsage { volume: volume.map(Into::into), who: Vec::new(), limited: false };
    let whose = |owners: Vec<OwnerInfo>, volume: Option<&str>| -> Vec<UserOrGroup> {
        let of = owners.into_iter().filter(|owner| owner.volume.as_deref() == volume);
        of.filter(|owner| owner.who > User(0) && owner.who != Group(0)).map(|owner| owner.who).collect()
    };
    let users = (0..OWNERS).map(|n| User(10_000 + n));
    let all: Vec<UserOrGroup> = users.chain((0..OWNERS).map(|n| Group(20_000 + n))).collect();
    for volume in [None, Some("root")] {
        assert!(whose(rig.admin(&request(None)).owners, volume) == all, "{volume:?} in the list of all");
    }
    assert!(whose(rig.admin(&request(Some("root"))).owners, Some("root")) == all);
    let of_v = [User(10_005), User(10_009), Group(20_005), Group(20_009)];
    assert_eq!(whose(rig.admin(&request(Some("v"))).owners, Some("v")), of_v);
    assert_eq!(whose(rig.admin(&request(Some("v"))).owners, Some("root")), []);

    let stranger = Ctx {
        gids: Groups::of(&[20_007, 20_009]),
        delegate: Some(Groups::default()),
        ..Ctx::user(10_005, 20_006)
    };
    let told = rig.ask_as(&stranger, &request(None)).expect("told").owners;
    let told: BTreeSet<_> = told.into_iter().map(|owner| (owner.volume, owner.who)).collect();
    let of_all = [User(10_005), Group(20_006), Group(20_007), Group(20_009)];
    let in_each = [None, Some("root".to_string())].into_iter();
    let expected = in_each.flat_map(|volume| of_all.map(|who| (volume.clone(), who)));
    let in_v = [User(10_005), Group(20_009)].map(|who| (Some("v".to_string()), who));
    assert_eq!(told, expected.chain(in_v).collect());
    rig.clean();
}

/// Removes names when the first of these inodes is read: after names were listed, and before their
/// attributes are known.
#[derive(Default)]
struct Remover {
    cell: Mutex<Weak<Cell>>,
    doomed: Mutex<Vec<(NodeId, String)>>,
}

impl Watch for Arc<Remover> {
    fn get(&self, key: &[u8]) -> leeward_meta::Result<()> {
        let read = keys::parse(key).filter(|parsed| parsed.tag == tag::INODE);
        let mut doomed = self.doomed.lock().expect("not poisoned");
        if !read.is_some_and(|read| doomed.iter().any(|(node, _)| *node == read.node)) {
            return Ok(());
        }
        let now = std::mem::take(&mut *doomed);
        drop(doomed);
        let cell = self.cell.lock().expect("not poisoned").upgrade().expect("it is open");
        for (_, name) in now {
            let op = Op::Unlink { dir: NodeId::ROOT, name: name.as_bytes(), over: Precondition::Any };
            cell.call(&Ctx::system(), op).expect("removed");
        }
        Ok(())
    }
}

#[test]
fn a_page_of_a_listing_is_whole_when_names_are_removed_meanwhile() {
    const PAGE: usize = 10;
    let mut rig = Rig::new();
    let names: Vec<String> = (0..25).map(|n| format!("n{n:02}")).collect();
    let nodes: Vec<NodeId> = names.iter().map(|name| rig.make(name, Make::File).expect("made")).collect();
    rig.idle();
    let list = |rig: &Rig, after: &str| -> Vec<String> {
        let op = Op::List { dir: NodeId::ROOT, after: after.as_bytes(), limit: PAGE, attrs: true };
        let entries = rig.call(op).and_then(|reply| reply.entries()).expect("listed");
        let name = |entry: &Entry| String::from_utf8_lossy(&entry.name).into_owned();
        assert!(entries.iter().all(|entry| entry.attr.is_some()));
        entries.iter().map(name).collect()
    };
    // some of a page, all of it, and all that is left
    for (doomed, after, expected) in
        [(0..9, "", &names[9..19]), (9..19, "", &names[19..25]), (19..25, "n18", &names[25..])]
    {
        rig.cell.close().expect("a clean close");
        let remover = Arc::new(Remover::default());
        let kv = WatchedKv { inner: engine(&rig.env, &rig.disk), watch: remover.clone() };
        let store = Arc::new(DirStore::new(Arc::new(rig.disk.clone()), "data"));
        rig.cell = Cell::start(&rig.env, Box::new(kv), store, &Config::default()).expect("opens");
        *remover.cell.lock().expect("not poisoned") = Arc::downgrade(&rig.cell);
        *remover.doomed.lock().expect("not poisoned") =
            doomed.map(|n| (nodes[n], names[n].clone())).collect();
        assert_eq!(list(&rig, after), expected);
        assert!(remover.doomed.lock().expect("not poisoned").is_empty(), "nothing was removed");
    }
    rig.clean();
}

impl Rig {
    fn snapshot_of(&self, dir: NodeId, name: &str) {
        let snapshots = self.call(Op::Lookup { dir, name: b".snap" }).and_then(|reply| reply.attr());
        self.level_in(snapshots.expect("found").node, name);
    }
}

#[test]
fn snapshots_of_deep_directories_are_listed_with_cut_paths() {
    let rig = Rig::new();
    let levels = 3000;
    let chain = rig.chain(NodeId::ROOT, levels);
    chain.iter().for_each(|dir| rig.snapshot_of(*dir, "s"));
    rig.snapshot_of(NodeId::ROOT, "root");
    let list = rig.admin(&admin::SnapList { path: None, volume: None }).snapshots;
    assert_eq!(list.len(), levels + 1);
    let bytes: usize = list.iter().map(|snap| snap.path.len()).sum();
    assert!(bytes < levels * 4500, "{bytes} bytes");
    assert_eq!((&*list[0].path, &*list[0].name), ("/", "root"));
    assert!(list.iter().any(|snap| snap.path.ends_with(&format!("/…/{}", long_name(levels - 1)))));
    // one directory with so many that they are no answer any more
    (0..8000).for_each(|n| rig.snapshot_of(chain[15], &format!("more{n}")));
    let stranger = Ctx { delegate: Some(Groups::default()), ..Ctx::user(10_005, 20_006) };
    for volume in [None, Some("root".to_string())] {
        let refused = rig.ask_as(&stranger, &admin::SnapList { path: None, volume }).expect_err("refused");
        assert_eq!(refused.errno, libc::E2BIG);
    }
    assert_eq!(rig.admin(&admin::SnapList { path: Some("/".into()), volume: None }).snapshots.len(), 1);
}

#[test]
fn differences_of_deep_trees_are_told_with_cut_paths() {
    let rig = Rig::new();
    let top = rig.dir("d");
    rig.snapshot_of(top, "before");
    let levels = 600;
    let chain = rig.chain(top, levels);
    let diff = admin::SnapDiff { path: "/d".into(), from: "before".into(), to: None };
    let changes = rig.admin(&diff).changes;
    let added: Vec<&[u8]> = changes
        .iter()
        .filter(|change| change.kind == ChangeKind::Added)
        .map(|change| change.path.as_bytes())
        .collect();
    assert_eq!(added.len(), levels);
    let bytes: usize = added.iter().map(|path| path.len()).sum();
    assert!(bytes < levels * 4500, "{bytes} bytes");
    let last = format!("/…/{}", long_name(levels - 1));
    assert!(added.iter().any(|path| path.ends_with(last.as_bytes())));
    assert!(added.contains(&long_name(0).as_bytes()));
    // more than an answer has room for
    for n in 0..16_000 {
        rig.level_in(chain[15], &format!("b{}", &long_name(n)[1..]));
    }
    assert_eq!(rig.ask(&diff).expect_err("refused").errno, libc::E2BIG);
}

#[test]
fn a_page_of_events_ends_where_its_paths_are_long() {
    let rig = Rig::new();
    let set = PropertyChanges { audit_days: Some(7), ..PropertyChanges::default() };
    rig.admin(&admin::VolumeSet { name: "root".into(), set });
    let levels = 500;
    rig.chain(NodeId::ROOT, levels);
    rig.admin(&admin::SyncAll);
    for newest_first in [false, true] {
        let (mut cursor, mut pages, mut events) = (None, 0, 0);
        loop {
            let (path, filter) = (Some("/".into()), EventFilter::default());
            let until_now = false;
            let limit = usize::MAX;
            let request = admin::EventList { path, cursor, newest_first, until_now, filter, limit };
            let page = rig.admin(&request);
            let bytes: usize =
                page.events.iter().flat_map(|event| &event.path).map(|path| path.as_bytes().len()).sum();
            assert!(bytes < 9 << 20, "{bytes} bytes");
            (pages, events) = (pages + 1, events + page.events.len());
            if !page.more {
                break;
            }
            cursor = Some(page.cursor);
        }
        assert!(events >= levels && pages > 2, "{events} events in {pages} pages");
    }
}
