//! What users of restricted hosts may do, compared with what the kernel of this machine lets them
//! do, and lies that a host may tell.

use crate::rig;
use crate::rig::Rig;
use crate::worlds::served::{Seat, context};
use crate::worlds::{Do, GROUP, Kernel, MEMBER, OTHER, OWNER, READ_ACL, SECOND, Served, USERS, User, World};
use leeward_fs::{Attr, Entry, Error, Make, NodeId, Op, Precondition, Reply, Result, SetAttr, XattrMode};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;

const ROOT: NodeId = NodeId::ROOT;

/// What each of [`USERS`] gets: owner, member of the group, other, user named in the ACL, nobody,
/// root. `.` done, `A` EACCES, `P` EPERM, `E` ENOENT, `N` ENODATA.
const TABLE: [(Do, &str); 61] = [
    (Do::Stat("private/in"), ".AAAA."),
    (Do::Stat("nosearch/in"), ".AAAA."),
    (Do::Stat("search/in"), "......"),
    (Do::Read("file"), "..AAA."),
    (Do::Read("acl"), "..A.A."),
    (Do::Read("private/in"), ".AAAA."),
    (Do::Read("search/in"), "......"),
    (Do::Write("file"), ".AAAA."),
    (Do::Write("acl"), ".AA.A."),
    (Do::Write("rw"), "......"),
    (Do::Truncate("file"), ".AAAA."),
    (Do::Truncate("rw"), "......"),
    (Do::List("private"), ".AAAA."),
    (Do::List("nosearch"), "......"),
    (Do::List("search"), ".AAAA."),
    (Do::ReadLink("link"), "......"),
    (Do::ReadLink("private/link"), ".AAAA."),
    (Do::Make("open/new", 0o644), "......"),
    (Do::Make("group/new", 0o644), "..AAA."),
    (Do::Make("nosearch/new", 0o644), ".AAAA."),
    (Do::MakeDir("group/new"), "..AAA."),
    (Do::Symlink("group/new"), "..AAA."),
    (Do::Device("open/device", 1 << 8 | 3), "PPPPP."),
    (Do::Device("group/device", 1 << 8 | 3), "PPAAA."),
    (Do::Device("open/whiteout", 0), "......"),
    (Do::Unlink("sticky/file"), ".PPPP."),
    (Do::Unlink("group/in"), "..AAA."),
    (Do::Unlink("open/missing"), "EEEEEE"),
    (Do::Unlink("nosearch/missing"), "EAAAAE"),
    (Do::RemoveDir("open/dir"), "......"),
    (Do::RemoveDir("sticky/dir"), ".PPPP."),
    (Do::Rename("group/in", "open/new"), "..AAA."),
    (Do::Rename("open/mine", "group/new"), "..AAA."),
    (Do::Rename("open/dir", "group/new"), ".AAAA."),
    (Do::Rename("open/dir", "open/new"), "......"),
    (Do::Rename("open/mine", "sticky/file"), ".PPPP."),
    (Do::Rename("sticky/file", "sticky/new"), ".PPPP."),
    (Do::Exchange("open/dir", "group/in"), ".AAAA."),
    (Do::Exchange("group/in", "open/dir"), ".AAAA."),
    (Do::Exchange("open/mine", "group/in"), "..AAA."),
    (Do::Link("file", "open/new"), ".PPPP."),
    (Do::Link("rw", "open/new"), "......"),
    (Do::Link("rw", "group/new"), "..AAA."),
    (Do::Link("acl", "open/new"), ".PP.P."),
    (Do::Link("suid", "open/new"), ".PPPP."),
    (Do::Chmod("rw", 0o600), ".PPPP."),
    (Do::Chown("rw", OTHER), "PPPPP."),
    (Do::Chown("rw", OWNER), ".PPPP."),
    (Do::Chgrp("rw", SECOND), ".PPPP."),
    (Do::Chgrp("rw", 777), "PPPPP."),
    (Do::TouchNow("file"), ".AAAA."),
    (Do::TouchNow("rw"), "......"),
    (Do::SetTimes("rw"), ".PPPP."),
    (Do::GetXattr("file", "user.x"), "..AAA."),
    (Do::GetXattr("file", "trusted.x"), "NNNNN."),
    (Do::SetXattr("file", "user.x"), ".AAAA."),
    (Do::SetXattr("sticky", "user.x"), "PPPPP."),
    (Do::SetXattr("rw", "trusted.x"), "PPPPP."),
    (Do::SetXattr("rw", READ_ACL), ".PPPP."),
    (Do::RemoveXattr("file", "user.x"), ".AAAA."),
    (Do::ListXattr("file"), "......"),
];

/// What becomes of setuid and setgid: who does what, to what, and the mode after it.
const MODES: [(User, Do, &str, u32); 10] = [
    (USERS[0], Do::Write("suid"), "suid", 0o777),
    (USERS[2], Do::Write("suid"), "suid", 0o777),
    (USERS[2], Do::Truncate("suid"), "suid", 0o777),
    (USERS[5], Do::Write("suid"), "suid", 0o6777),
    (USERS[0], Do::Chmod("file", 0o6750), "file", 0o4750),
    (USERS[5], Do::Chmod("file", 0o6750), "file", 0o6750),
    (USERS[0], Do::Chgrp("suid", SECOND), "suid", 0o777),
    (USERS[0], Do::Make("group/new", 0o2775), "group/new", 0o755),
    (USERS[1], Do::Make("group/new", 0o2775), "group/new", 0o2755),
    (USERS[0], Do::SetXattr("suid", READ_ACL), "suid", 0o4660),
];

fn letter(errno: i32) -> char {
    match errno {
        0 => '.',
        libc::EACCES => 'A',
        libc::EPERM => 'P',
        libc::ENOENT => 'E',
        libc::ENODATA => 'N',
        _ => '?',
    }
}

/// Rows that come out in another way.
fn differences(world: &dyn World) -> Vec<String> {
    let mut all = Vec::new();
    for (number, (what, expected)) in TABLE.iter().enumerate() {
        let got: String = (0..USERS.len())
            .map(|user| {
                let row = format!("row{number}-{user}");
                world.prepare(&row);
                letter(world.act(&row, USERS[user], *what))
            })
            .collect();
        if got != *expected {
            all.push(format!("{what:?}: {expected} expected, {got}"));
        }
    }
    for (number, (user, what, path, expected)) in MODES.iter().enumerate() {
        let row = format!("mode{number}");
        world.prepare(&row);
        let (errno, mode) = (world.act(&row, *user, *what), world.mode(&row, path));
        if (errno, mode) != (0, *expected) {
            all.push(format!("{what:?} by {}: {expected:o} expected, {mode:o} ({errno})", user.uid));
        }
    }
    all
}

#[test]
fn users_of_a_restricted_host_may_do_what_linux_lets_them() {
    assert_eq!(differences(&Served::new()), Vec::<String>::new());
}

#[test]
fn the_table_is_what_this_kernel_does() {
    let Some(kernel) = Kernel::new(&leeward_env::Env::real()) else {
        return eprintln!("not compared: for root, on a file system with ACLs, with protected_hardlinks = 1");
    };
    assert_eq!(differences(&kernel), Vec::<String>::new());
}

/// A user on a host.
fn seat(client: &Client, uid: u32) -> Seat<'_> {
    Seat { client, ctx: context(User { uid, groups: &[] }) }
}

fn some_users() -> Grant {
    Grant { uids: vec![(1000, 1999)], ..Grant::default() }
}

/// Makes something in a directory, with this owner and mode.
fn made(of: &Seat<'_>, dir: NodeId, name: &str, make: Make<'_>, (uid, mode): (u32, u32)) -> Attr {
    let op = Op::Make { dir, name: name.as_bytes(), make, mode, umask: 0 };
    let node = of.call(op).and_then(Reply::attr).expect("made").node;
    let owner = SetAttr { uid: Some(uid), gid: Some(uid), ..SetAttr::default() };
    of.set(node, owner).expect("given away");
    of.set(node, SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("its mode")
}

fn read(of: &Seat<'_>, node: NodeId) -> Result<Vec<u8>> {
    of.call(Op::Read { node, offset: 0, len: 100 })?.data()
}

fn write(of: &Seat<'_>, node: NodeId) -> Result<u64> {
    of.call(Op::Write { node, offset: 0, data: b"data" })?.written()
}

#[test]
fn numbers_that_were_never_found_are_unknown() {
    let rig = Rig::new();
    let (all, few) = (rig.host("all", Grant::default()), rig.host("few users", some_users()));
    let (root, liar) = (seat(&all, 0), seat(&few, OTHER));
    let dir = made(&root, ROOT, "dir", Make::Dir, (0, 0o777)).node;
    let node = made(&root, dir, "file", Make::File, (OTHER, 0o666)).node;
    let (name, over) = (&b"n"[..], Precondition::Any);
    for op in [
        Op::GetAttr { node },
        Op::Read { node, offset: 0, len: 1 },
        Op::Write { node, offset: 0, data: b"x" },
        Op::SetAttr { node, set: SetAttr::default() },
        Op::Link { node, dir: ROOT, name },
        Op::Fsync { node },
        Op::StatFs { node },
        Op::ListXattr { node },
        Op::CopyRange { from: node, from_offset: 0, to: node, to_offset: 0, len: 1 },
        Op::Lookup { dir, name: b"file" },
        Op::List { dir, after: b"", limit: 1, attrs: true },
        Op::Make { dir, name, make: Make::File, mode: 0, umask: 0 },
        Op::Unlink { dir, name, over },
    ] {
        assert_eq!(liar.call(op), Err(Error::Stale), "{op:?}");
    }
    assert_eq!(liar.at("dir/file"), Ok(node));
    assert!(read(&liar, node).is_ok() && write(&liar, node).is_ok(), "it was found by its name");
    few.forget(liar.ctx, node, 1);
    assert_eq!(read(&liar, node), Err(Error::Stale));
}

#[test]
fn what_one_session_of_a_host_knows_another_does_not() {
    let rig = Rig::new();
    let first = rig.host("few users", some_users());
    let again = rig.connect(rig.at, rig::seed("few users"), None).expect("connected");
    let all = rig.host("all", Grant::default());
    let node = made(&seat(&all, 0), ROOT, "file", Make::File, (OTHER, 0o666)).node;
    seat(&first, OTHER).at("file").expect("found");
    assert!(read(&seat(&first, OWNER), node).is_ok(), "of one session it counts for all users");
    assert_eq!(read(&seat(&again, OTHER), node), Err(Error::Stale));
}

#[test]
fn a_private_directory_hides_what_is_below() {
    let rig = Rig::new();
    let (all, few) = (rig.host("all", Grant::default()), rig.host("few users", some_users()));
    let (root, liar) = (seat(&all, 0), seat(&few, OTHER));
    let private = made(&root, ROOT, "private", Make::Dir, (OWNER, 0o700)).node;
    let node = made(&root, private, "in", Make::File, (OTHER, 0o666)).node;
    assert_eq!(liar.at("private"), Ok(private));
    assert_eq!(liar.look_up(private, b"in").err(), Some(Error::Access));
    let list = |attrs| liar.call(Op::List { dir: private, after: b"", limit: 10, attrs });
    assert_eq!((list(true), list(false)), (Err(Error::Access), Err(Error::Access)));
    assert_eq!(liar.look_up(private, b"..").err(), Some(Error::Access));
    assert_eq!(read(&liar, node), Err(Error::Stale));
    for lie in [0, 999, 2000, u32::MAX] {
        assert_eq!(seat(&few, lie).look_up(private, b"in").err(), Some(Error::NotPermitted), "{lie}");
    }
}

#[test]
fn a_directory_that_can_only_be_listed_shows_names() {
    let rig = Rig::new();
    let (all, few) = (rig.host("all", Grant::default()), rig.host("few users", some_users()));
    let (root, liar) = (seat(&all, 0), seat(&few, OTHER));
    let dir = made(&root, ROOT, "dir", Make::Dir, (OWNER, 0o744)).node;
    let node = made(&root, dir, "in", Make::File, (OWNER, 0o666)).node;
    liar.at("dir").expect("found");
    let listed = |of: &Seat<'_>| -> Vec<Entry> {
        of.call(Op::List { dir, after: b"", limit: 10, attrs: true })
            .and_then(Reply::entries)
            .expect("listed")
    };
    let names: Vec<_> = listed(&liar).into_iter().map(|e| (e.name, e.attr)).collect();
    assert_eq!(names, [(b"in"[..].into(), None)]);
    assert_eq!(read(&liar, node), Err(Error::Stale));
    assert!(listed(&seat(&few, OWNER))[0].attr.is_some());
    assert!(read(&liar, node).is_ok(), "another user of the session has found it");
}

#[test]
fn root_of_a_squashed_host_is_nobody() {
    let rig = Rig::new();
    let all = rig.host("all", Grant::default());
    let squash = rig.host("squash", Grant { root_squash: true, ..some_users() });
    let (root, nobody) = (seat(&all, 0), seat(&squash, 0));
    let node = made(&root, ROOT, "roots", Make::File, (0, 0o664)).node;
    let open = made(&root, ROOT, "open", Make::Dir, (0, 0o777)).node;
    nobody.at("roots").expect("found");
    assert!(read(&nobody, node).is_ok());
    assert_eq!(write(&nobody, node), Err(Error::Access));
    let unlink = Op::Unlink { dir: ROOT, name: b"roots", over: Precondition::Any };
    assert_eq!(nobody.call(unlink), Err(Error::Access));
    nobody.at("open").expect("found");
    let make = Op::Make { dir: open, name: b"new", make: Make::File, mode: 0o6755, umask: 0 };
    let new = nobody.call(make).and_then(Reply::attr).expect("made");
    assert_eq!((new.uid, new.gid), (65_534, 65_534));
    let to_root = SetAttr { uid: Some(0), ..SetAttr::default() };
    assert_eq!(nobody.set(new.node, to_root), Err(Error::NotPermitted));
    // nor is anybody in root's group
    for (gid, groups) in [(0, &[][..]), (OTHER, &[0][..])] {
        let mut user = seat(&squash, OTHER);
        (user.ctx.gid, user.ctx.gids) = (gid, leeward_env::Groups::of(groups));
        assert_eq!(write(&user, node), Err(Error::Access), "{gid} {groups:?}");
    }
}

#[test]
fn groups_are_those_that_the_host_names() {
    let served = Served::new();
    served.prepare("d");
    let node = seat(&served.some, MEMBER).at("d/file").expect("found");
    assert_eq!(read(&seat(&served.some, MEMBER), node), Err(Error::Access));
    let member = Seat { client: &served.some, ctx: context(User { uid: MEMBER, groups: &[GROUP] }) };
    assert!(read(&member, node).is_ok());
}

#[test]
fn the_owner_and_who_may_execute_may_read() {
    let rig = Rig::new();
    let (all, few) = (rig.host("all", Grant::default()), rig.host("few users", some_users()));
    let root = seat(&all, 0);
    let none = made(&root, ROOT, "none", Make::File, (OWNER, 0)).node;
    let run = made(&root, ROOT, "run", Make::File, (OWNER, 0o711)).node;
    let dir = made(&root, ROOT, "dir", Make::Dir, (OWNER, 0o711)).node;
    let (owner, other) = (seat(&few, OWNER), seat(&few, OTHER));
    for name in ["none", "run", "dir"] {
        owner.at(name).expect("found");
    }
    assert!(write(&owner, none).is_ok() && read(&owner, none).is_ok());
    assert_eq!((write(&other, none), read(&other, none)), (Err(Error::Access), Err(Error::Access)));
    assert!(read(&other, run).is_ok());
    assert_eq!(write(&other, run), Err(Error::Access));
    assert_eq!(read(&other, dir), Err(Error::Access));
    let copy = Op::CopyRange { from: run, from_offset: 0, to: none, to_offset: 0, len: 1 };
    assert_eq!(other.call(copy), Err(Error::Access));
    assert!(owner.call(copy).is_ok());
}

#[test]
fn who_may_write_may_take_set_ids_away_and_nothing_else() {
    let rig = Rig::new();
    let (all, few) = (rig.host("all", Grant::default()), rig.host("few users", some_users()));
    let node = made(&seat(&all, 0), ROOT, "suid", Make::File, (OWNER, 0o4766)).node;
    let other = seat(&few, OTHER);
    other.at("suid").expect("found");
    for mode in [0o4777, 0o6766, 0o777, 0o666, 0o4666] {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        assert_eq!(other.set(node, set), Err(Error::NotPermitted), "{mode:o}");
    }
    let also_owner = SetAttr { mode: Some(0o766), uid: Some(OTHER), ..SetAttr::default() };
    assert_eq!(other.set(node, also_owner), Err(Error::NotPermitted));
    let set = SetAttr { mode: Some(0o766), ..SetAttr::default() };
    assert_eq!(other.set(node, set).map(|attr| attr.mode), Ok(0o766));
    let reader = made(&seat(&all, 0), ROOT, "reads", Make::File, (OWNER, 0o4744)).node;
    other.at("reads").expect("found");
    let set = SetAttr { mode: Some(0o744), ..SetAttr::default() };
    assert_eq!(other.set(reader, set), Err(Error::Access));
    // of attributes of this kind only capabilities, which go before a write, too
    for node in [node, reader] {
        for name in [&b"security.capability"[..], b"security.x"] {
            let set = Op::SetXattr { node, name, value: b"x", mode: XattrMode::Set };
            assert_eq!(seat(&all, 0).call(set), Ok(Reply::Done));
        }
    }
    let remove = |node, name| other.call(Op::RemoveXattr { node, name });
    assert_eq!(remove(reader, b"security.capability"), Err(Error::Access));
    assert_eq!(remove(node, b"security.capability"), Ok(Reply::Done));
    assert_eq!(remove(node, b"security.x"), Err(Error::NotPermitted));
}

#[test]
fn files_without_names_are_their_makers() {
    let rig = Rig::new();
    let (all, few) = (rig.host("all", Grant::default()), rig.host("few users", some_users()));
    let dir = made(&seat(&all, 0), ROOT, "sticky", Make::Dir, (0, 0o1777)).node;
    made(&seat(&all, 0), dir, "owners", Make::File, (OWNER, 0o666));
    let (owner, other) = (seat(&few, OWNER), seat(&few, OTHER));
    owner.at("sticky").expect("found");
    let make = Op::MakeUnnamed { dir, mode: 0o600, umask: 0, bytes: 0 };
    let node = other.call(make).and_then(Reply::attr).expect("made").node;
    let place = |name, over| Op::Place { node, dir, name, over };
    assert_eq!(owner.call(place(b"new", Precondition::Nothing)), Err(Error::NotPermitted));
    assert_eq!(other.call(place(b"owners", Precondition::Any)), Err(Error::NotPermitted));
    assert!(other.call(place(b"new", Precondition::Nothing)).is_ok());
    let closed = Op::MakeUnnamed { dir: ROOT, mode: 0o600, umask: 0, bytes: 0 };
    assert_eq!(other.call(closed), Err(Error::Access));
}

#[test]
fn snapshots_have_the_rights_of_their_time() {
    let rig = Rig::new();
    let (all, few) = (rig.host("all", Grant::default()), rig.host("few users", some_users()));
    let (root, other) = (seat(&all, 0), seat(&few, OTHER));
    let dir = made(&root, ROOT, "dir", Make::Dir, (OWNER, 0o755)).node;
    let node = made(&root, dir, "file", Make::File, (OWNER, 0o600)).node;
    let was_open = made(&root, dir, "open", Make::File, (OWNER, 0o644)).node;
    let take = |of: &Seat<'_>, name: &[u8]| {
        let dir = of.at("dir/.snap")?;
        of.call(Op::Make { dir, name, make: Make::Dir, mode: 0o777, umask: 0 })
    };
    take(&root, b"s").expect("taken");
    assert_eq!(take(&other, b"t"), Err(Error::NotPermitted));
    for (node, mode) in [(node, 0o666), (was_open, 0o600)] {
        root.set(node, SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("its mode");
    }
    let then = other.at("dir/.snap/s/file").expect("found");
    assert_eq!(read(&other, then), Err(Error::Access));
    let then_open = other.at("dir/.snap/s/open").expect("found");
    assert!(read(&other, then_open).is_ok());
    assert_eq!(write(&seat(&few, OWNER), then_open), Err(Error::ReadOnly));
    let snapshots = other.at("dir/.snap").expect("found");
    assert!(other.call(Op::List { dir: snapshots, after: b"", limit: 10, attrs: true }).is_ok());
    assert_eq!(other.call(Op::RmDir { dir: snapshots, name: b"s" }), Err(Error::NotPermitted));
}

#[test]
fn what_doors_do_no_restricted_host_does() {
    let rig = Rig::new();
    let few = rig.host("few users", some_users());
    let user = seat(&few, OTHER);
    for op in [
        Op::BeginUpload { dir: ROOT, key: b"b/k", note: b"" },
        Op::GetUpload { upload: ROOT },
        Op::ListUploads { prefix: b"", after: b"", after_upload: ROOT, limit: 1 },
        Op::StatUploads { bucket: None },
    ] {
        assert_eq!(user.call(op), Err(Error::NotSupported), "{op:?}");
    }
    assert_eq!(user.call(Op::SyncAll), Ok(Reply::Done));
    assert_eq!(user.call(Op::Fsync { node: ROOT }), Ok(Reply::Done));
    let (name, value) = (&b"security.capability"[..], &b"x"[..]);
    let set = Op::SetXattr { node: ROOT, name, value, mode: XattrMode::Set };
    assert_eq!(user.call(set), Err(Error::NotPermitted));
}

#[test]
fn after_a_restart_of_the_server_names_are_looked_up_again() {
    let mut rig = Rig::new();
    let few = rig.host("few users", some_users());
    let all = rig.host("all", Grant::default());
    let node = made(&seat(&all, 0), ROOT, "file", Make::File, (OTHER, 0o600)).node;
    let user = seat(&few, OTHER);
    user.at("file").expect("found");
    rig.restart(true);
    assert_eq!(read(&user, node), Err(Error::Stale));
    assert_eq!(user.at("file"), Ok(node));
    assert!(read(&user, node).is_ok());
}

#[test]
fn a_host_that_is_believed_is_not_checked() {
    let rig = Rig::new();
    let all = rig.host("all", Grant::default());
    let node = made(&seat(&all, 0), ROOT, "file", Make::File, (OWNER, 0)).node;
    let again = rig.connect(rig.at, rig::seed("all"), None).expect("connected");
    assert!(read(&seat(&again, OTHER), node).is_ok());
}
