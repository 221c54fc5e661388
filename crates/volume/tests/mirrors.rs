//! What a cell knows of mirrors: what copies have proven, and what they lack.

use crate::rig::Rig;
use leeward_volume::admin::{self, Backlog, MirrorInfo, MirrorProven, MirrorSet, MirrorUnset, Proven};

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
