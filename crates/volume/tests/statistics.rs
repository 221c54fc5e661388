//! Recursive statistics and quotas across a crash, when what an fsync committed is not folded up
//! the tree yet.

use crate::rig;
use crate::rig::Rig;
use leeward_env::Ctx;
use leeward_fs::{Error, Fs, Make, NodeId, Op, Precondition, RenameMode, Reply, XattrMode};
use leeward_meta::Kv;
use leeward_volume::admin;
use leeward_volume::format::keys;

const DEPTH: u64 = 40;

impl Rig {
    fn make_in(&self, dir: NodeId, name: &str, make: Make<'_>) -> Result<NodeId, Error> {
        let op = Op::Make { dir, name: name.as_bytes(), make, mode: 0o755, umask: 0 };
        match self.cell.call(&Ctx::user(0, 0), op)? {
            Reply::Attr(attr) => Ok(attr.node),
            other => panic!("{other:?}"),
        }
    }

    /// `leeward.rfiles` and `leeward.rbytes`.
    fn below(&self, node: NodeId) -> (u64, u64) {
        let get = |name: &str| match self.call(Op::GetXattr { node, name: name.as_bytes() }) {
            Ok(Reply::Data(text)) => String::from_utf8_lossy(&text).parse::<u64>().expect("a number"),
            other => panic!("{other:?}"),
        };
        (get("leeward.rfiles"), get("leeward.rbytes"))
    }

    fn unfolded(&self) -> usize {
        let (from, to) = keys::table_range(keys::Table::Unfolded);
        rig::engine(&self.env, &self.disk).scan(&from, &to, 1000, false).expect("a scan").len()
    }
}

/// A chain of directories, the topmost with a quota of some files; a file at the end, fsynced.
fn deep() -> (Rig, Vec<NodeId>, NodeId) {
    let rig = Rig::new();
    let mut chain = vec![rig.make_in(NodeId::ROOT, "top", Make::Dir).expect("made")];
    for _ in 0..DEPTH {
        let last = *chain.last().expect("one");
        chain.push(rig.make_in(last, "d", Make::Dir).expect("made"));
    }
    rig.admin(&admin::QuotaSet { path: "/top".into(), bytes: None, files: Some(DEPTH + 3) });
    rig.idle();
    let last = *chain.last().expect("one");
    let file = rig.make_in(last, "file", Make::File).expect("made");
    rig.call(Op::Write { node: file, offset: 0, data: &rig::noise(4096, 1) }).expect("written");
    rig.call(Op::Fsync { node: file }).expect("durable");
    (rig, chain, file)
}

#[test]
fn an_fsync_leaves_folding_for_later_and_nothing_is_lost_by_a_crash() {
    let (mut rig, chain, _) = deep();
    assert_eq!(rig.unfolded(), 1, "one change, at the directory of the file, however deep that is");
    rig.start();
    assert_eq!(rig.findings(), [], "what is not folded is counted");
    assert_eq!(rig.below(chain[0]), (1, 4096));
    let last = *chain.last().expect("one");
    rig.make_in(last, "second", Make::File).expect("fits");
    rig.make_in(last, "third", Make::File).expect("fits");
    assert_eq!(rig.make_in(last, "fourth", Make::File), Err(Error::Quota), "the quota knew of the first");
    rig.clean();
    assert_eq!(rig.below(chain[0]), (3, 4096));
    assert_eq!(rig.unfolded(), 0);
}

#[test]
fn a_directory_that_goes_leaves_no_change_behind() {
    let (mut rig, chain, file) = deep();
    let last = *chain.last().expect("one");
    rig.call(Op::Unlink { dir: last, name: b"file", over: Precondition::Any }).expect("removed");
    rig.call(Op::RmDir { dir: chain[chain.len() - 2], name: b"d" }).expect("removed");
    rig.call(Op::Forget { node: file, count: 1 }).expect("forgotten");
    rig.call(Op::SyncAll).expect("durable");
    rig.start();
    assert_eq!(rig.findings(), []);
    assert_eq!(rig.below(chain[0]), (0, 0));
    rig.clean();
    assert_eq!(rig.unfolded(), 0);
}

#[test]
fn a_volume_that_goes_takes_its_changes_along() {
    let mut rig = Rig::new();
    let create = admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 0, gid: 0, pool: None };
    let volume = rig.admin(&create);
    let root = NodeId::new(volume.id, 1);
    rig.idle();
    rig.make_in(root, "a", Make::Dir).expect("made");
    rig.call(Op::SyncAll).expect("durable");
    assert_eq!(rig.unfolded(), 1);
    rig.admin(&admin::VolumeRemove { name: "v".into() });
    rig.call(Op::SyncAll).expect("durable");
    rig.start();
    rig.clean();
    assert_eq!(rig.unfolded(), 0);
}

/// Wide and deep, in several commits: the sums are those of a full count (fsck).
#[test]
fn many_changes_fold_to_the_same_sums() {
    let mut rig = Rig::new();
    let mut dirs = vec![NodeId::ROOT];
    for n in 0..300usize {
        let parent = dirs[n * 7 % dirs.len()];
        dirs.push(rig.make_in(parent, &format!("d{n}"), Make::Dir).expect("made"));
        let file = rig.make_in(parent, &format!("f{n}"), Make::File).expect("made");
        if n % 10 == 0 {
            rig.call(Op::Fsync { node: file }).expect("durable");
        }
        if n % 70 == 0 {
            rig.start();
            assert_eq!(rig.findings(), [], "after {n}");
        }
        let value = Op::SetXattr { node: parent, name: b"user.n", value: b"1", mode: XattrMode::Set };
        rig.call(value).expect("set");
    }
    rig.clean();
    assert_eq!(rig.unfolded(), 0);
}

/// More changes than one hold of the lock folds, for an operation that needs the exact figures.
#[test]
fn exact_figures_beside_many_changes() {
    let rig = Rig::new();
    let from = rig.make_in(NodeId::ROOT, "from", Make::Dir).expect("made");
    let to = rig.make_in(NodeId::ROOT, "to", Make::Dir).expect("made");
    rig.admin(&admin::QuotaSet { path: "/to".into(), bytes: None, files: Some(801) });
    let moved = rig.make_in(from, "moved", Make::Dir).expect("made");
    for n in 0..400 {
        let dir = rig.make_in(moved, &format!("d{n}"), Make::Dir).expect("made");
        rig.make_in(dir, "file", Make::File).expect("made");
    }
    let rename = |from_dir, to_dir| {
        let name = b"moved";
        rig.call(Op::Rename { from_dir, from_name: name, to_dir, to_name: name, mode: RenameMode::Replace })
    };
    rename(from, to).expect("800 and the directory itself fit");
    assert_eq!((rig.below(from).0, rig.below(to).0), (0, 400));
    rename(to, from).expect("moved back");
    for n in 0..400 {
        rig.make_in(rig.make_in(moved, &format!("e{n}"), Make::Dir).expect("made"), "file", Make::File)
            .expect("made");
    }
    assert_eq!(rename(from, to), Err(Error::Quota), "1,600 and the directory do not");
    assert_eq!((rig.below(from).0, rig.below(to).0), (800, 0));
    rig.clean();
    assert_eq!(rig.findings(), []);
}
