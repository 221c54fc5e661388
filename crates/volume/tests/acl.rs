//! Rights in words: what they are as POSIX ACLs, for files, directories and what is made later, and
//! whose files a change of a tree reaches.

use crate::rig::Rig;
use leeward_env::Ctx;
use leeward_fs::flows::UserOrGroup::{self, Group, User};
use leeward_fs::rights::{self, R, W, X};
use leeward_fs::{Error, InodeFlags, Kind, Make, NodeId, Op, SetAttr};
use leeward_volume::admin::{
    self, AclChangedInfo, AclGrant, AclInfo, AclSet, AclShow, Failure, Right, VolumeCreate,
};

const ALICE: u32 = 1000;
const BOB: u32 = 1001;
const LAB: u32 = 2000;

impl Rig {
    /// A file or a directory of alice's.
    fn alices(&self, path: &str, kind: Kind, mode: u32) -> NodeId {
        let (dir, name) = Self::split(path);
        let make = if kind == Kind::Dir { Make::Dir } else { Make::File };
        let op = Op::Make {
            dir: self.at(dir).expect("a directory"),
            name: name.as_bytes(),
            make,
            mode,
            umask: 0o022,
        };
        let node = self.call(op).and_then(|reply| reply.attr()).expect("made").node;
        let set = SetAttr { uid: Some(ALICE), gid: Some(ALICE), ..SetAttr::default() };
        self.call(Op::SetAttr { node, set }).expect("given away");
        node
    }

    fn set_as(
        &self,
        uid: u32,
        path: &str,
        who: UserOrGroup,
        rights: &[Right],
    ) -> Result<AclChangedInfo, Failure> {
        let grants = vec![AclGrant { who, rights: rights.iter().copied().collect() }];
        self.ask_as(&Ctx::user(uid, uid), &AclSet { path: path.into(), grants, recursive: true })
    }

    fn acl_at(&self, path: &str) -> AclInfo {
        self.admin(&AclShow { path: path.into() })
    }

    /// What a user in a group may do with what is at a path, by the rules of Linux.
    fn may(&self, uid: u32, gid: u32, path: &str) -> String {
        let node = self.at(path).expect("there");
        let attr = self.call(Op::GetAttr { node }).and_then(|reply| reply.attr()).expect("attributes");
        let acl = match self.call(Op::GetXattr { node, name: rights::ACL }) {
            Ok(reply) => Some(reply.data().expect("an ACL")),
            Err(Error::NoData) => None,
            Err(e) => panic!("{e}"),
        };
        let may = |want| rights::permit(&Ctx::user(uid, gid), &attr, acl.as_deref(), want).is_ok();
        [(R, 'r'), (W, 'w'), (X, 'x')]
            .map(|(want, letter)| if may(want) { letter } else { '-' })
            .iter()
            .collect()
    }
}

fn changed(changed: u64, same: u64, refused: u64) -> AclChangedInfo {
    AclChangedInfo { changed, same, refused, closed: 0 }
}

#[test]
fn a_tree_gets_rights_and_what_is_made_later_too() {
    let rig = Rig::new();
    for (path, kind, mode) in [
        ("/d", Kind::Dir, 0o700),
        ("/d/in", Kind::Dir, 0o700),
        ("/d/in/file", Kind::File, 0o600),
        ("/d/program", Kind::File, 0o700),
    ] {
        rig.alices(path, kind, mode);
    }
    let group = Group(LAB);
    assert_eq!(rig.set_as(ALICE, "/d", group, &[Right::Read]), Ok(changed(4, 0, 0)));
    let bob = |path: &str| rig.may(BOB, LAB, path);
    assert_eq!(
        (bob("/d"), bob("/d/in"), bob("/d/in/file"), bob("/d/program")),
        ("r-x".into(), "r-x".into(), "r--".into(), "r-x".into())
    );
    assert_eq!(rig.may(BOB, BOB, "/d/in/file"), "---", "who is not in the group");
    rig.alices("/d/in/later", Kind::File, 0o666);
    assert_eq!(bob("/d/in/later"), "r--", "made later");
    let again = || rig.set_as(ALICE, "/d", group, &[Right::Read]);
    // what came later may have execute, which its mode has hidden
    assert_eq!((again(), again()), (Ok(changed(1, 4, 0)), Ok(changed(0, 5, 0))));
    rig.set_as(ALICE, "/d", group, &[Right::Write]).expect("done");
    assert_eq!((bob("/d/in"), bob("/d/in/later")), ("rwx".into(), "rw-".into()));
    let info = rig.acl_at("/d/in");
    let lab = info.entries.iter().find(|entry| entry.who == Some(group)).expect("named");
    assert_eq!(lab.rights.iter().copied().collect::<Vec<_>>(), [Right::List, Right::Read, Right::Write]);
    rig.set_as(ALICE, "/d", group, &[]).expect("done");
    assert_eq!(
        (bob("/d"), bob("/d/in/file"), rig.acl_at("/d").entries.len()),
        ("---".into(), "---".into(), 3)
    );
    rig.alices("/d/in/last", Kind::File, 0o600);
    assert_eq!(bob("/d/in/last"), "---");
    assert_eq!(rig.findings(), []);
}

#[test]
fn who_may_list_reads_nothing() {
    let rig = Rig::new();
    rig.alices("/d", Kind::Dir, 0o700);
    rig.alices("/d/file", Kind::File, 0o600);
    rig.set_as(ALICE, "/d", User(BOB), &[Right::List]).expect("done");
    rig.alices("/d/later", Kind::File, 0o644);
    assert_eq!((rig.may(BOB, BOB, "/d"), rig.may(BOB, BOB, "/d/file")), ("r-x".into(), "---".into()));
    let info = rig.acl_at("/d");
    let bob = info.entries.iter().find(|entry| entry.who == Some(User(BOB))).expect("named");
    assert_eq!(
        (bob.rights.iter().copied().collect::<Vec<_>>(), &*bob.permissions),
        (vec![Right::List], "r-x")
    );
    assert_eq!(rig.may(BOB, BOB, "/d/later"), "r--", "what its mode gives to all");
}

#[test]
fn only_owners_change_rights() {
    let rig = Rig::new();
    rig.alices("/d", Kind::Dir, 0o755);
    rig.alices("/d/file", Kind::File, 0o600);
    let theirs = rig.alices("/d/theirs", Kind::Dir, 0o700);
    rig.alices("/d/theirs/file", Kind::File, 0o600);
    let set = SetAttr { uid: Some(BOB), gid: Some(BOB), ..SetAttr::default() };
    rig.call(Op::SetAttr { node: theirs, set }).expect("given away");
    let write = [Right::Write];
    // bob's directory, and that it cannot be looked into
    let with_closed = |changed, refused| AclChangedInfo { changed, same: 0, refused, closed: 1 };
    assert_eq!(rig.set_as(ALICE, "/d", Group(LAB), &write), Ok(with_closed(2, 1)));
    assert_eq!(rig.may(7, LAB, "/d/theirs/file"), "---");
    let refused = rig.set_as(BOB, "/d/file", Group(LAB), &write).expect_err("alice's");
    assert_eq!(refused.errno, libc::EPERM);
    assert_eq!(rig.set_as(0, "/d", Group(LAB), &write), Ok(changed(2, 2, 0)), "root");
    let file = rig.at("/d/file").expect("there");
    let set = SetAttr { flags: Some(InodeFlags::IMMUTABLE), ..SetAttr::default() };
    rig.call(Op::SetAttr { node: file, set }).expect("protected");
    assert_eq!(rig.set_as(ALICE, "/d", Group(LAB), &[]), Ok(with_closed(1, 2)), "one is protected");
    let missing = rig.set_as(ALICE, "/d/none", Group(LAB), &write).expect_err("nothing there");
    assert_eq!(missing.errno, libc::ENOENT);
    let nobody = AclSet { path: "/d".into(), grants: Vec::new(), recursive: false };
    assert_eq!(rig.ask(&nobody).expect_err("nobody").errno, libc::EINVAL);
}

#[test]
fn large_directories_links_and_other_volumes() {
    let mut rig = Rig::new();
    rig.alices("/d", Kind::Dir, 0o755);
    let first = rig.alices("/d/f0", Kind::File, 0o600);
    (1..600).for_each(|n| _ = rig.alices(&format!("/d/f{n}"), Kind::File, 0o600));
    let dir = rig.at("/d").expect("there");
    rig.call(Op::Link { node: first, dir, name: b"z" }).expect("linked");
    let make = Make::Symlink(b"f0");
    rig.call(Op::Make { dir, name: b"s", make, mode: 0o777, umask: 0 }).expect("made");
    rig.admin(&VolumeCreate { name: "v".into(), at: "/d/v".into(), uid: ALICE, gid: ALICE, pool: None });
    rig.alices("/d/v/file", Kind::File, 0o600);
    let done = rig.set_as(ALICE, "/d", Group(LAB), &[Right::Read]).expect("done");
    // the second name of f0; the symbolic link is root's
    assert_eq!(done, changed(601, 2, 0));
    assert_eq!((rig.may(BOB, LAB, "/d/f599"), rig.may(BOB, LAB, "/d/v/file")), ("r--".into(), "---".into()));
    rig.idle();
    rig.power_cut(3);
    assert_eq!(rig.may(BOB, LAB, "/d/f599"), "r--");
    assert_eq!(rig.findings(), []);
    rig.admin(&admin::SyncAll);
}

#[test]
fn what_is_removed_meanwhile_is_passed_over() {
    let rig = Rig::new();
    for path in ["/d", "/d/a", "/d/b", "/d/c"] {
        rig.alices(path, Kind::Dir, 0o755);
    }
    let grants = vec![AclGrant { who: Group(LAB), rights: [Right::Read].into() }];
    let request = AclSet { path: "/d".into(), grants, recursive: true };
    let mut pages = 0;
    let done = rig.cell.admin_as(&Ctx::user(ALICE, ALICE), &request, &mut |_| {
        pages += 1;
        if pages == 1 {
            for name in [b"a", b"b", b"c"] {
                let dir = rig.at("/d").expect("there");
                rig.call(Op::RmDir { dir, name }).expect("removed");
            }
        }
    });
    assert_eq!(done, Ok(changed(4, 0, 0)));
    assert_eq!(rig.findings(), []);
}
