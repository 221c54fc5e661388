//! The event logs of volumes: who changed what, in order, with the paths of that time, for exactly
//! the changes that are durable.

use crate::rig::{Rig, engine, noise};
use leeward_env::{Ctx, Machine};
use leeward_fs::{Error, Fs, Make, NodeId, Op, Precondition, RenameMode, SetAttr, XattrMode};
use leeward_meta::{Batch, Kv};
use leeward_volume::admin::{
    self, EventFilter, EventInfo, EventKind, EventList, EventPage, EventVerify, LogMark, PathText,
    PropertyChanges,
};
use leeward_volume::format::events::{Block, LogHead, OpenBlock, digest_of};
use leeward_volume::format::keys;
use std::collections::BTreeMap;

const ALICE: u32 = 1000;

fn text(path: Option<&PathText>) -> String {
    path.map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned()).unwrap_or_default()
}

/// `what path`, or `what from path`.
fn line(event: &EventInfo) -> String {
    let what = serde_json::to_value(event.what).expect("JSON");
    let (from, path) = (text(event.from.as_ref()), text(event.path.as_ref()));
    [what.as_str().expect("a word"), &from, &path]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn lines(events: &[EventInfo]) -> Vec<String> {
    events.iter().map(line).collect()
}

impl Rig {
    fn page(&self, path: &str, cursor: Option<&str>) -> EventPage {
        self.admin(&EventList {
            path: Some(path.into()),
            cursor: cursor.map(Into::into),
            newest_first: false,
            until_now: false,
            filter: EventFilter::default(),
            limit: 1000,
        })
    }

    /// What is durable, all of it.
    fn events(&self, path: &str) -> Vec<EventInfo> {
        self.admin(&admin::SyncAll);
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.page(path, cursor.as_deref());
            all.extend(page.events);
            if !page.more {
                return all;
            }
            cursor = Some(page.cursor);
        }
    }

    fn told(&self, path: &str) -> Vec<String> {
        lines(&self.events(path))
    }

    fn audit_days(&self, days: u16) {
        let set = PropertyChanges { audit_days: Some(days), ..PropertyChanges::default() };
        self.admin(&admin::VolumeSet { name: "root".into(), set });
    }

    fn set(&self, node: NodeId, set: SetAttr) {
        self.call(Op::SetAttr { node, set }).expect("set");
    }
}

#[test]
fn each_operation_is_told_once() {
    let rig = Rig::new();
    let dir = rig.dir("/d");
    let file = rig.file("/d/f", b"x");
    rig.call(Op::Link { node: file, dir, name: b"g" }).expect("linked");
    rig.set(file, SetAttr { mode: Some(0o600), ..SetAttr::default() });
    rig.set(file, SetAttr { size: Some(100), ..SetAttr::default() });
    rig.call(Op::SetXattr { node: file, name: b"user.x", value: b"1", mode: XattrMode::Set }).expect("set");
    rig.call(Op::RemoveXattr { node: file, name: b"user.x" }).expect("removed");
    rig.rename("/d/g", "/d/h").expect("renamed");
    rig.unlink("/d/h");
    rig.unlink("/d/f");
    rig.rmdir("/d").expect("removed");
    let told = rig.told("/");
    // the file's own name is the one that it got first; that it was written to is told once in a
    // commit
    assert_eq!(
        told,
        [
            "created /d",
            "created /d/f",
            "written /d/f",
            "linked /d/g",
            "rights /d/f",
            "xattr /d/f",
            "xattr /d/f",
            "renamed /d/g /d/h",
            "removed /d/h",
            "removed /d/f",
            "removed /d",
        ]
    );
    let numbers: Vec<u64> = rig.events("/").iter().map(|event| event.number).collect();
    assert_eq!(numbers, (0..11).collect::<Vec<u64>>());
    rig.clean();
}

#[test]
fn reads_tell_nothing() {
    let rig = Rig::new();
    let file = rig.file("/f", &noise(300_000, 1));
    let before = rig.told("/").len();
    rig.read("/f").expect("read");
    rig.list("/");
    rig.call(Op::GetAttr { node: file }).expect("attributes");
    rig.call(Op::Fsync { node: file }).expect("durable");
    assert!(matches!(
        rig.call(Op::Unlink { dir: NodeId::ROOT, name: b"g", over: Precondition::Any }),
        Err(Error::NotFound)
    ));
    // what the cell does for itself is not told either
    rig.rest();
    assert_eq!(rig.told("/").len(), before);
    rig.clean();
}

#[test]
fn who_did_it_is_told() {
    let rig = Rig::new();
    let dir = rig.dir("/d");
    rig.set(dir, SetAttr { mode: Some(0o777), ..SetAttr::default() });
    let ctx = Ctx { machine: Some(Machine::named("node7")), ..Ctx::user(ALICE, ALICE) };
    let make = Op::Make { dir, name: b"f", make: Make::File, mode: 0o644, umask: 0 };
    let node = rig.cell.call(&ctx, make).expect("made").attr().expect("attributes").node;
    rig.cell.call(&ctx, Op::Write { node, offset: 0, data: b"x" }).expect("written");
    // content enters the records when it is durable, in the name of nobody
    rig.admin(&admin::SyncAll);
    rig.cell
        .call(&ctx, Op::SetAttr { node, set: SetAttr { mode: Some(0o640), ..SetAttr::default() } })
        .expect("set");
    let events = rig.events("/d/f");
    assert_eq!(lines(&events), ["created /d/f", "written /d/f", "rights /d/f"]);
    for event in &events {
        assert_eq!((event.uid, event.machine.as_deref()), (ALICE, Some("node7")), "{event:?}");
    }
    let (was, is) = (events[2].was.expect("rights"), events[2].is.expect("rights"));
    assert_eq!((was.mode, is.mode, is.uid), (0o644, 0o640, ALICE));
    rig.clean();
}

/// Paths are those of the time: of directories that were moved and removed since, too.
#[test]
fn paths_are_those_of_the_time() {
    let rig = Rig::new();
    rig.dir("/a");
    rig.dir("/a/b");
    rig.file("/a/b/one", b"1");
    rig.rename("/a", "/z").expect("renamed");
    rig.file("/z/b/two", b"2");
    rig.rename("/z/b", "/c").expect("renamed");
    rig.unlink("/c/one");
    rig.unlink("/c/two");
    rig.rmdir("/c").expect("removed");
    rig.rmdir("/z").expect("removed");
    rig.dir("/a");
    let told = rig.told("/");
    let expected = [
        "created /a",
        "created /a/b",
        "created /a/b/one",
        "written /a/b/one",
        "renamed /a /z",
        "created /z/b/two",
        "written /z/b/two",
        "renamed /z/b /c",
        "removed /c/one",
        "removed /c/two",
        "removed /c",
        "removed /z",
        "created /a",
    ];
    assert_eq!(told, expected);
    // by a path that nothing has any more, and by one that something else has now
    assert_eq!(rig.told("/z/b"), ["created /z/b/two", "written /z/b/two", "renamed /z/b /c"]);
    assert_eq!(rig.told("/a/b/one"), ["created /a/b/one", "written /a/b/one"]);
    let back = rig.admin(&EventList {
        path: Some("/".into()),
        cursor: None,
        newest_first: true,
        until_now: false,
        filter: EventFilter::default(),
        limit: 1000,
    });
    assert_eq!(lines(&back.events).into_iter().rev().collect::<Vec<_>>(), expected);
    rig.clean();
}

#[test]
fn replacing_and_exchanging_are_told_as_what_they_are() {
    let rig = Rig::new();
    let (one, _) = (rig.file("/one", b"1"), rig.file("/two", b"2"));
    rig.dir("/d");
    rig.admin(&admin::SyncAll);
    let cursor = rig.page("/", Some("end")).cursor;
    rig.rename("/one", "/two").expect("renamed");
    let (from_dir, to_dir) = (NodeId::ROOT, NodeId::ROOT);
    let op = Op::Rename { from_dir, from_name: b"two", to_dir, to_name: b"d", mode: RenameMode::Exchange };
    rig.call(op).expect("exchanged");
    let op = Op::MakeUnnamed { dir: NodeId::ROOT, mode: 0o644, umask: 0, bytes: 1 };
    let node = rig.call(op).expect("made").attr().expect("attributes").node;
    rig.write(node, 0, b"x").expect("written");
    rig.call(Op::Place { node, dir: NodeId::ROOT, name: b"d", over: Precondition::Any }).expect("placed");
    rig.admin(&admin::SyncAll);
    let told = rig.page("/", Some(&cursor)).events;
    let said = lines(&told);
    assert_eq!(said[..2], ["removed /two", "renamed /one /two"]);
    assert!(["exchanged /d /two", "exchanged /two /d"].contains(&said[2].as_str()), "{}", said[2]);
    assert_eq!(said[3..], ["removed /d", "created /d"]);
    assert_eq!(told[3].inode, one.0);
    rig.clean();
}

/// Snapshots in the log of their volume, requests in that of the cell.
#[test]
fn snapshots_and_requests_are_told() {
    let rig = Rig::new();
    rig.dir("/d");
    rig.admin(&admin::SnapCreate { path: "/d".into(), name: "s".into() });
    rig.admin(&admin::SnapRename { path: "/d".into(), name: "s".into(), to: "t".into() });
    rig.admin(&admin::SnapRemove { path: "/d".into(), name: "t".into() });
    let events = rig.events("/d");
    let snapshots: Vec<String> =
        events.iter().skip(1).map(|e| format!("{} {}", line(e), text(e.snapshot.as_ref()))).collect();
    assert_eq!(snapshots, ["snapshot-taken /d s", "snapshot-renamed s /d t", "snapshot-removed /d t"]);

    let create = admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 0, gid: 0, pool: None };
    rig.ask_as(&Ctx::user(7, 7), &create).expect("created");
    rig.ask_as(&Ctx::user(7, 7), &create).expect_err("there is one");
    rig.admin(&admin::VolumeList);
    let list = EventList {
        path: None,
        cursor: None,
        newest_first: false,
        until_now: false,
        filter: EventFilter::default(),
        limit: 1000,
    };
    let asked = rig.admin(&list).events;
    assert_eq!(asked.len(), 1, "{asked:?}");
    let request = asked[0].request.as_ref().expect("a request");
    assert_eq!((request["request"].as_str(), request["name"].as_str()), (Some("volume-create"), Some("v")));
    assert_eq!((asked[0].uid, asked[0].what), (7, EventKind::Asked));
    // what is in it has the path of where it is attached
    rig.file("/v/f", b"x");
    assert_eq!(rig.told("/v"), ["created /v/f", "written /v/f"]);
    rig.clean();
}

/// A watcher that goes on from a cursor misses nothing and hears nothing twice, whatever crashes.
#[test]
fn a_cursor_survives_crashes() {
    let mut rig = Rig::new();
    rig.dir("/d");
    rig.admin(&admin::SyncAll);
    let mut cursor = rig.page("/d", None).cursor;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..40u64 {
        for n in 0..25 {
            rig.file(&format!("/d/{round}-{n}"), b"x");
        }
        if round % 3 == 0 {
            rig.admin(&admin::SyncAll);
        }
        if round % 5 == 4 {
            rig.disk = rig.disk.kill();
            rig.start();
        }
        let page = rig.page("/d", Some(&cursor));
        page.events
            .iter()
            .filter(|e| e.what == EventKind::Created)
            .for_each(|e| *seen.entry(line(e)).or_default() += 1);
        cursor = page.cursor;
    }
    rig.admin(&admin::SyncAll);
    let page = rig.page("/d", Some(&cursor));
    page.events
        .iter()
        .filter(|e| e.what == EventKind::Created)
        .for_each(|e| *seen.entry(line(e)).or_default() += 1);
    let there: Vec<String> =
        rig.list("/d").into_iter().map(|(name, _)| format!("created /d/{name}")).collect();
    assert!(!there.is_empty() && there.len() < 1000, "nothing was lost");
    let mut sorted = there.clone();
    sorted.sort();
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), sorted);
    assert!(seen.values().all(|count| *count == 1));
    rig.clean();
}

#[test]
fn old_events_are_removed_and_said_to_be_lost() {
    let rig = Rig::new();
    rig.audit_days(2);
    rig.dir("/a");
    rig.dir("/a/b");
    rig.rmdir("/a/b").expect("removed");
    rig.rename("/a", "/c").expect("renamed");
    rig.admin(&admin::SyncAll);
    let cursor = rig.page("/", None).events[0].cursor.clone();
    // a clock that jumps is not believed at once
    for days in [100, -100] {
        rig.env.set_wall_by(days * 86_400);
        rig.rest();
    }
    assert_eq!(rig.page("/", Some(&cursor)).lost, 0);
    for _ in 0..8 {
        rig.env.set_wall_by(86_400);
        rig.rest();
    }
    rig.dir("/later");
    rig.admin(&admin::SyncAll);
    rig.rest();
    let page = rig.page("/", Some(&cursor));
    assert_eq!((lines(&page.events), page.lost), (vec!["created /later".to_string()], 3));
    assert_eq!(rig.page("/", None).lost, 4);
    rig.clean();

    // none from now on, and none of before
    rig.audit_days(0);
    rig.rest();
    rig.dir("/unseen");
    assert_eq!(rig.told("/"), Vec::<String>::new());
    rig.clean();
}

#[test]
fn marks_tell_whether_a_log_was_changed() {
    let rig = Rig::new();
    rig.dir("/a");
    let before = rig.admin(&EventVerify { against: Vec::new() });
    rig.dir("/b");
    rig.admin(&admin::SyncAll);
    let marks: Vec<LogMark> = before.logs.iter().map(|log| log.mark.clone()).collect();
    let found = rig.admin(&EventVerify { against: marks.clone() });
    assert!(found.logs.iter().all(|log| log.wrong.is_none()), "{found:?}");
    let mut other = marks;
    for mark in &mut other {
        mark.digest = "0".repeat(64);
    }
    let found = rig.admin(&EventVerify { against: other.clone() });
    let root = found.logs.iter().find(|log| log.mark.volume.as_deref() == Some("root")).expect("the log");
    assert!(root.wrong.as_ref().is_some_and(|why| why.contains("when the mark was made")), "{root:?}");
    // a log that was emptied
    rig.audit_days(0);
    rig.rest();
    let emptied =
        rig.admin(&EventVerify { against: found.logs.iter().map(|log| log.mark.clone()).collect() });
    assert!(emptied.logs.iter().all(|log| log.wrong.is_none()), "{emptied:?}");
    let digest = "1".repeat(64);
    let forged =
        found.logs.iter().map(|log| LogMark { digest: digest.clone(), ..log.mark.clone() }).collect();
    let emptied = rig.admin(&EventVerify { against: forged });
    assert!(emptied.logs[0].wrong.is_some(), "{emptied:?}");
    other[0].volume = Some("gone".into());
    assert_eq!(rig.admin(&EventVerify { against: other.clone() }).missing, [other[0].clone()]);
}

/// A block that is changed, or left out, does not go with the next one.
#[test]
fn changed_logs_are_found() {
    for change in 0..3 {
        let mut rig = Rig::new();
        for n in 0..5 {
            rig.dir(&format!("/{n}"));
            rig.admin(&admin::SyncAll);
        }
        rig.cell.close().expect("closed");
        let kv = engine(&rig.env, &rig.disk);
        let (from, to) = keys::events_range(0, 0);
        let blocks = kv.scan(&from, &to, 100, false).expect("read");
        let (key, record) = &blocks[2];
        let mut changed = record.to_vec();
        *changed.last_mut().expect("a byte") ^= 1;
        let write = match change {
            0 => (key.clone(), Some(changed.into())),
            1 => (key.clone(), None),
            _ => (blocks[4].0.clone(), None),
        };
        kv.commit(&Batch { writes: vec![write], inline_data: Vec::new() }).expect("changed");
        drop(kv);
        rig.start();
        let found = rig.findings();
        assert!(found.iter().any(|f| f.kind == "events"), "{change}: {found:?}");
        let logs = rig.admin(&EventVerify { against: Vec::new() }).logs;
        assert!(logs.iter().any(|log| log.wrong.is_some()), "{change}: {logs:?}");
    }
}

/// Blocks that were written anew and go together do not go with a mark, also where no block ends at
/// it.
#[test]
fn a_log_that_was_written_anew_is_found_by_its_mark() {
    let mut rig = Rig::new();
    for n in 0..4 {
        rig.dir(&format!("/{n}"));
        rig.admin(&admin::SyncAll);
    }
    let told = rig.admin(&EventVerify { against: Vec::new() }).logs;
    let of_root = |log: &&admin::LogVerified| log.mark.volume.as_deref() == Some("root");
    let end = told.iter().find(of_root).expect("the log").mark.clone();
    rig.cell.close().expect("closed");
    let kv = engine(&rig.env, &rig.disk);
    let (from, to) = keys::events_range(0, 0);
    let blocks = kv.scan(&from, &to, 100, false).expect("read");
    let all: Vec<_> =
        blocks.iter().flat_map(|(_, block)| Block::decode(0, block).expect("a block").events).collect();
    let mut whole = OpenBlock::default();
    for event in all.iter().chain(&all[..1]) {
        whole.add(event, 0);
    }
    let (key, record) = (keys::events(0, 0), whole.encode(&[0; 32]));
    let head = LogHead {
        first: 0,
        next: u64::from(whole.count()),
        bytes: record.len() as u64,
        changed_at: 0,
        digest: digest_of(&key, &record),
    };
    let gone = blocks.iter().skip(1).map(|(key, _)| (key.clone(), None));
    let put = [(key, Some(record)), (keys::log_head(0), Some(head.encode()))];
    let writes = gone.chain(put).collect();
    kv.commit(&Batch { writes, inline_data: Vec::new() }).expect("changed");
    drop(kv);
    rig.start();
    let verify =
        |against| rig.admin(&EventVerify { against }).logs.iter().find(of_root).expect("it").wrong.clone();
    assert_eq!(verify(Vec::new()), None, "its blocks go together");
    assert!(verify(vec![end]).is_some_and(|why| why.contains("when the mark was made")));
}

#[test]
fn what_is_asked_for_is_told_only() {
    let rig = Rig::new();
    rig.dir("/d");
    rig.file("/d/f", b"x");
    rig.unlink("/d/f");
    rig.admin(&admin::SyncAll);
    let ask = |filter: EventFilter, newest_first| {
        let (path, cursor) = (Some("/".to_string()), None);
        lines(
            &rig.admin(&EventList { path, cursor, newest_first, until_now: false, filter, limit: 2 }).events,
        )
    };
    let kinds = vec![EventKind::Removed];
    assert_eq!(ask(EventFilter { kinds, ..EventFilter::default() }, false), ["removed /d/f"]);
    assert_eq!(ask(EventFilter { uids: vec![9], ..EventFilter::default() }, false), Vec::<String>::new());
    let contains = Some("/f".to_string());
    assert_eq!(
        ask(EventFilter { contains, ..EventFilter::default() }, true),
        ["removed /d/f", "written /d/f"]
    );
    let since_secs = Some(rig.now_secs() + 1);
    assert_eq!(ask(EventFilter { since_secs, ..EventFilter::default() }, false), Vec::<String>::new());
    let bad = EventList {
        path: None,
        cursor: Some("nonsense".into()),
        newest_first: false,
        until_now: false,
        filter: EventFilter::default(),
        limit: 1,
    };
    assert_eq!(rig.ask(&bad).expect_err("refused").errno, libc::EINVAL);
}
