//! Background work asks for its turns: in small steps, in its owner's name, without a lock that
//! users need.

use crate::rig::{Rig, noise};
use leeward_env::{Class, Ctx, Flow, Work};
use leeward_fs::{Engine, Fs, NodeId, Op, Turns, XattrMode};
use leeward_volume::Cell;
use leeward_volume::admin::{self, PropertyChanges};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Notes who asks, and does a user's operation in between, as others may before it is somebody's
/// turn.
struct Noted {
    cell: Weak<Cell>,
    steps: Mutex<BTreeMap<(&'static str, u32), usize>>,
}

impl Turns for Noted {
    fn in_turn(&self, ctx: &Ctx, _: u32, step: &mut dyn FnMut()) {
        let work = ctx.flow.work().expect("it says what it is");
        assert_eq!(ctx.class, Class::Background);
        *self.steps.lock().entry((work.name(), ctx.flow.uid)).or_default() += 1;
        if let Some(cell) = self.cell.upgrade() {
            cell.call(&Ctx::user(7, 7), Op::GetAttr { node: NodeId::ROOT }).expect("no lock is held");
        }
        step();
    }
}

fn rig() -> (Rig, Arc<Noted>) {
    let rig = Rig::new();
    let noted = Arc::new(Noted { cell: Arc::downgrade(&rig.cell), steps: Mutex::default() });
    rig.cell.give_turns(noted.clone());
    (rig, noted)
}

impl Noted {
    /// Steps of this work since the last call, in a user's name.
    fn of(&self, work: Work, uid: u32) -> usize {
        self.steps.lock().remove(&(work.name(), uid)).unwrap_or(0)
    }
}

const OWNER: u32 = 5;
const SYSTEM: u32 = Flow::SYSTEM.uid;

#[test]
fn each_work_asks_in_the_name_of_its_owner() {
    let (rig, noted) = rig();
    rig.admin(&admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: OWNER, gid: 0, pool: None });
    rig.dir("v/d");
    for n in 0..200 {
        rig.file(&format!("v/d/{n}"), &noise(20_000, n));
    }
    rig.dir("v/.snap/a");
    (0..190).for_each(|n| rig.unlink(&format!("v/d/{n}")));
    rig.idle();
    let what = "d".to_owned();
    let (path, name) = ("/v".to_owned(), "a".to_owned());
    rig.admin(&admin::SnapRestore { path, name, what, to: Some("/v/again".into()), in_place: false });
    assert!(noted.of(Work::Restore, OWNER) > 1);

    rig.rmdir("v/.snap/a").expect("removed");
    rig.idle();
    assert!(noted.of(Work::Trim, OWNER) > 1);

    rig.findings();
    assert!(noted.of(Work::Check, SYSTEM) > 1);

    let set = PropertyChanges { bin_days: Some(1), ..PropertyChanges::default() };
    rig.admin(&admin::VolumeSet { name: "v".into(), set });
    (190..200).for_each(|n| rig.unlink(&format!("v/d/{n}")));
    rig.env.advance(Duration::from_secs(2 * 86_400));
    rig.idle();
    assert!(noted.of(Work::Purge, OWNER) >= 10);

    (0..150).for_each(|n| rig.unlink(&format!("v/again/{n}")));
    rig.env.advance(Duration::from_secs(2 * 86_400));
    rig.idle();
    assert!(noted.of(Work::Cleaning, SYSTEM) > 0);

    rig.admin(&admin::VolumeRemove { name: "v".into() });
    rig.clean();
    assert!(noted.of(Work::Removal, OWNER) > 1);
}

#[test]
fn beside_users_steps_are_small_and_who_waits_for_space_is_not_kept_waiting() {
    let (rig, noted) = rig();
    rig.admin(&admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: OWNER, gid: 0, pool: None });
    rig.dir("v/d");
    let write = |what: &[u8]| {
        for n in 0..300 {
            rig.file(&format!("v/d/{n}"), what);
        }
    };
    write(b"x");
    let steps = |prepare: &dyn Fn()| {
        rig.dir("v/.snap/a");
        write(b"y");
        rig.idle();
        rig.rmdir("v/.snap/a").expect("removed");
        noted.of(Work::Trim, OWNER);
        prepare();
        rig.idle();
        noted.of(Work::Trim, OWNER)
    };
    let alone = steps(&|| ());
    let busy = steps(&|| rig.cell.activity().asked(rig.env.now() + 3_600_000_000_000));
    assert!(busy >= 4 * alone, "{alone} steps alone, {busy} beside users");
    let hurry = rig.cell.activity().hurry();
    assert_eq!(steps(&|| ()), 0, "in a hurry nothing waits for turns");
    drop(hurry);
    assert_eq!(rig.findings(), []);
}

#[test]
fn what_is_freed_in_steps_is_no_finding_in_between() {
    let rig = Rig::new();
    let node = rig.file("f", b"");
    for n in 0..300u64 {
        rig.write(node, n << 32, b"in a window of its own").expect("written");
        let name = format!("user.{n}");
        let op = Op::SetXattr { node, name: name.as_bytes(), value: b"v", mode: XattrMode::Set };
        rig.call(op).expect("set");
    }
    rig.idle();
    rig.unlink("f");
    let inodes = || {
        let report = rig.admin(&admin::Fsck);
        (report.findings, report.inodes)
    };
    let mut between = 0;
    loop {
        let (findings, left) = inodes();
        assert_eq!(findings, []);
        if left == 1 {
            break;
        }
        between += 1;
        rig.cell.step().expect("a step");
    }
    assert!(between > 2, "freed in {between} steps");
}

/// Beside users a mirror's sender and its receiver find what changed in small steps, too.
#[test]
fn what_changed_between_snapshots_is_found_in_turns() {
    let (rig, noted) = rig();
    rig.admin(&admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: OWNER, gid: 0, pool: None });
    ["v/d", "v/e"].into_iter().for_each(|dir| _ = rig.dir(dir));
    let fill = |dir: &str| (0..1500).for_each(|n| _ = rig.file(&format!("v/{dir}/{n}"), b""));
    fill("d");
    let take = |name: &str| drop(rig.admin(&admin::SnapCreate { path: "/v".into(), name: name.into() }));
    take("a");
    (0..1500).for_each(|n| rig.unlink(&format!("v/d/{n}")));
    fill("e");
    take("b");
    rig.idle();
    let steps = || {
        noted.of(Work::Transfer, OWNER);
        let from = Some("a".into());
        rig.admin(&admin::SnapDigest { volume: "v".into(), name: "b".into(), from });
        noted.of(Work::Transfer, OWNER)
    };
    let alone = steps();
    rig.cell.activity().asked(rig.env.now() + 3_600_000_000_000);
    let busy = steps();
    // no file has content, so these are names and inodes: 3,000 go and come, 1,500 are made
    assert!(alone >= 10 && busy >= 5 * alone, "{alone} steps alone, {busy} beside users");
}
