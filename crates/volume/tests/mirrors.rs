//! What a cell keeps of mirrors: what copies have proven.

use crate::rig::Rig;
use leeward_volume::admin::{self, MirrorInfo, MirrorProven, MirrorSet, MirrorUnset, Proven};

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
