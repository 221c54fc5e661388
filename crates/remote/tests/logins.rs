//! Hosts that are not believed who their users are: nobody may do anything there without a token,
//! and with one just what its user may.
#![allow(clippy::disallowed_methods)]

use crate::rig;
use crate::rig::raw::{Raw, root, slot};
use crate::rig::{Rig, lookup, user};
use leeward_fs::rights::{R, W, X};
use leeward_fs::{Error, Make, NodeId, Op, Precondition, Reply, Result, SetAttr};
use leeward_remote::message::{Call, Caller, ToClient, ToServer, Token};
use leeward_remote::{CellUser, Client, Grant, User};
use leeward_vfs::Backend;
use std::time::{Duration, Instant};

const ROOT: NodeId = NodeId::ROOT;
const ALICE: u32 = 70_001;
const BOB: u32 = 70_002;

fn by_tokens() -> Grant {
    Grant { by_tokens: true, ..Grant::default() }
}

/// A cell in whose root everybody may write, with tokens of alice and bob.
fn rig() -> Rig {
    let rig = Rig::new();
    let set = SetAttr { mode: Some(0o1777), ..SetAttr::default() };
    rig.gate.call(&user(0), Op::SetAttr { node: ROOT, set }).expect("set");
    for (name, uid) in [("alice", ALICE), ("slow alice", ALICE), ("held alice", ALICE), ("bob", BOB)] {
        know(&rig, name, uid, None);
    }
    rig
}

fn know(rig: &Rig, token: &str, uid: u32, until_secs: Option<i64>) {
    let name = token.rsplit(' ').next().unwrap_or(token).to_owned();
    let user = CellUser { name, uid, gid: uid, gids: vec![100], until_secs };
    rig.table.tokens.lock().expect("the tokens").insert(token.into(), user);
}

fn make(client: &Client, uid: u32, name: &[u8], mode: u32) -> Result<leeward_fs::Attr> {
    let op = Op::Make { dir: ROOT, name, make: Make::File, mode, umask: 0 };
    client.call(&user(uid), op)?.attr()
}

fn read(client: &Client, uid: u32, node: NodeId) -> Result<Reply> {
    client.call(&user(uid), Op::Read { node, offset: 0, len: 10 })
}

/// Waits until something holds that takes effect soon.
fn soon(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn without_a_login_nobody_does_anything() {
    let rig = rig();
    let laptop = rig.host("laptop", by_tokens());
    assert!(laptop.wants_logins());
    for uid in [0, 1000, ALICE] {
        let call = |op| laptop.call(&user(uid), op);
        assert!(call(Op::GetAttr { node: ROOT }).is_ok() && call(Op::StatFs { node: ROOT }).is_ok());
        assert_eq!(call(Op::Lookup { dir: ROOT, name: b"x" }), Err(Error::Access));
        assert_eq!(call(Op::List { dir: ROOT, after: b"", limit: 10, attrs: true }), Err(Error::Access));
        assert_eq!(call(Op::GetXattr { node: ROOT, name: b"user.x" }), Err(Error::Access));
        assert_eq!(make(&laptop, uid, b"x", 0o644).map(drop), Err(Error::Access));
        let text = command(&laptop, uid);
        assert!(text.is_err(), "{text:?}");
    }
}

fn command(client: &Client, uid: u32) -> std::result::Result<String, leeward_remote::CommandLost> {
    let mut text = Vec::new();
    let who = User { uid, gid: 0, gids: vec![0] };
    client.command(&who, b"who", &mut |piece| {
        text.extend_from_slice(piece);
        true
    })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn who_logs_in_is_the_user_of_the_token_and_no_other() {
    let rig = rig();
    let laptop = rig.host("laptop", by_tokens());
    let alice = laptop.log_in(1000, "alice").expect("logged in");
    assert_eq!((&alice.name[..], alice.uid), ("alice", ALICE));
    let file = make(&laptop, 1000, b"of alice", 0o600).expect("made");
    assert_eq!((file.uid, file.gid), (ALICE, ALICE), "not what the machine says");
    assert_eq!(command(&laptop, 1000), Ok(format!("laptop {ALICE} [100]")), "nor are its groups");
    // root of the machine, and the number that alice has in the cell, are nobody
    for uid in [0, ALICE] {
        assert_eq!(lookup_as(&laptop, uid, b"of alice"), Err(Error::Access));
    }
    laptop.log_in(0, "bob").expect("logged in");
    lookup_as(&laptop, 0, b"of alice").expect("found");
    assert_eq!(read(&laptop, 0, file.node), Err(Error::Access));
    let unlink = Op::Unlink { dir: ROOT, name: b"of alice", over: Precondition::Any };
    assert_eq!(laptop.call(&user(0), unlink), Err(Error::NotPermitted), "sticky");
    assert!(laptop.call(&user(1000), unlink).is_ok());
    let names: Vec<_> = rig.server().sessions().into_iter().flat_map(|session| session.users).collect();
    assert_eq!(names, ["alice", "bob"]);
}

fn lookup_as(client: &Client, uid: u32, name: &[u8]) -> Result<NodeId> {
    Ok(client.call(&user(uid), Op::Lookup { dir: ROOT, name })?.attr()?.node)
}

#[test]
fn logins_end() {
    let rig = rig();
    let laptop = rig.host("laptop", by_tokens());
    let is_out = |uid| soon(|| lookup_as(&laptop, uid, b"none") == Err(Error::Access));
    laptop.log_in(1000, "alice").expect("logged in");
    assert_eq!(lookup_as(&laptop, 1000, b"none"), Err(Error::NotFound));
    assert_eq!(laptop.log_out(1000).expect("logged out").map(|user| user.uid), Some(ALICE));
    assert_eq!(lookup_as(&laptop, 1000, b"none"), Err(Error::Access));
    assert_eq!(laptop.log_out(1000), Ok(None));
    // revoked: heard of when accounts change
    laptop.log_in(1000, "alice").expect("logged in");
    laptop.log_in(1001, "bob").expect("logged in");
    rig.table.tokens.lock().expect("the tokens").remove("alice");
    rig.server().hosts_changed();
    assert_eq!(lookup_as(&laptop, 1000, b"none"), Err(Error::Access));
    assert_eq!(lookup_as(&laptop, 1001, b"none"), Err(Error::NotFound), "bob stays");
    // other numbers
    know(&rig, "bob", ALICE, None);
    rig.server().hosts_changed();
    assert_eq!(make(&laptop, 1001, b"new", 0o600).expect("made").uid, ALICE);
    // its time is over
    let now = (rig.env.wall() / 1_000_000_000) as i64;
    know(&rig, "short", BOB, Some(now + 10));
    laptop.log_in(1002, "short").expect("logged in");
    assert_eq!(lookup_as(&laptop, 1002, b"none"), Err(Error::NotFound));
    assert!(is_out(1002));
}

#[test]
fn a_session_that_begins_anew_is_shown_the_tokens_first() {
    let mut rig = rig();
    let laptop = rig.host("laptop", by_tokens());
    laptop.log_in(1000, "slow alice").expect("logged in");
    laptop.log_in(1001, "bob").expect("logged in");
    let file = make(&laptop, 1000, b"file", 0o600).expect("made").node;
    for in_order in [true, false] {
        rig.restart(in_order);
        // asked for while the token is looked at
        assert_eq!(lookup_as(&laptop, 1000, b"file"), Ok(file));
        assert_eq!(lookup_as(&laptop, 1001, b"none"), Err(Error::NotFound));
    }
    rig.table.tokens.lock().expect("the tokens").remove("bob");
    rig.restart(true);
    assert_eq!(lookup_as(&laptop, 1001, b"none"), Err(Error::Access));
    assert!(soon(|| laptop.logged_in().len() == 1), "{:?}", laptop.logged_in());
}

#[test]
fn what_is_behind_a_login_finds_it_done() {
    let rig = rig();
    rig.know(1, "laptop", by_tokens());
    let (mut raw, _) = Raw::welcomed(&rig, 1, None);
    let say = |raw: &mut Raw, number| {
        let login = Call::Login { uid: 1000, token: Some(Token(b"held alice")) };
        let look_up = Call::Op(Caller { uid: 1000, ..root() }, Op::Lookup { dir: ROOT, name: b"none" });
        raw.say(&ToServer::Call(slot(0, number), login));
        raw.say(&ToServer::Call(slot(1, number), look_up));
    };
    rig.table.latch.shut();
    say(&mut raw, 1);
    rig.table.latch.is_reached();
    rig.table.latch.open();
    for _ in 0..2 {
        match raw.hear() {
            Ok(ToClient::Answer(at, result, ..)) if at == slot(1, 1) => {
                assert_eq!(result, Err(Error::NotFound))
            }
            Ok(ToClient::Answer(at, result, ..)) => assert!(at == slot(0, 1) && result.is_ok()),
            other => panic!("{other:?}"),
        }
    }
    // who is in already does not wait for a token that is shown again
    rig.table.latch.shut();
    say(&mut raw, 2);
    assert!(matches!(raw.hear(), Ok(ToClient::Answer(at, Err(Error::NotFound), ..)) if at == slot(1, 2)));
    rig.table.latch.open();
    assert!(matches!(raw.hear(), Ok(ToClient::Answer(at, Ok(_), ..)) if at == slot(0, 2)));
}

#[test]
fn tokens_cannot_be_tried_out() {
    let rig = rig();
    let laptop = rig.host("laptop", by_tokens());
    assert_eq!(laptop.log_in(1000, "a try").expect_err("refused"), "no such token");
    // so many within a second, which may take longer here
    let is_too_much = |why: String| why.starts_with("too many tokens");
    assert!(soon(|| {
        let mut tries = (0..9).map(|n| laptop.log_in(1000, &format!("try {n}")).expect_err("refused"));
        tries.any(is_too_much) && laptop.log_in(1000, "alice").is_err_and(is_too_much)
    }));
    assert!(laptop.log_in(1001, "bob").is_ok(), "nobody locks others out");
    assert!(soon(|| laptop.log_in(1000, "alice").is_ok()));
    let long = "x".repeat(20 << 10);
    assert_eq!(laptop.log_in(1000, &long).expect_err("refused"), "this is no token");
    // a host with bounds on users, and one that is believed
    let few = rig.host("few", Grant { uids: vec![(BOB, BOB)], ..by_tokens() });
    assert!(few.log_in(1000, "bob").is_ok() && few.log_in(1000, "alice").is_err());
    let believed = rig.host("node", Grant::default());
    assert!(believed.log_in(1000, "alice").expect_err("no need").contains("nobody needs to log in"));
}

#[test]
fn what_the_kernel_would_check_at_opening_is_checked() {
    let rig = rig();
    let laptop = rig.host("laptop", by_tokens());
    assert!(laptop.checks_rights());
    laptop.log_in(1000, "alice").expect("logged in");
    laptop.log_in(1001, "bob").expect("logged in");
    let file = make(&laptop, 1000, b"file", 0o640).expect("made").node;
    lookup_as(&laptop, 1001, b"file").expect("found");
    let may = |uid, want| {
        let (send, receive) = std::sync::mpsc::channel();
        laptop.permit(user(uid), file, want, move |result| send.send(result).expect("heard"));
        receive.recv().expect("an answer")
    };
    assert_eq!((may(1000, R | W), may(1000, X)), (Ok(()), Err(Error::Access)));
    assert_eq!(
        (may(1001, R), may(0, R), may(5, 0)),
        (Err(Error::Access), Err(Error::Access), Err(Error::Access))
    );
    // an ACL that lets bob read
    let acl: &[u8] =
        b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x72\x11\x01\0\x04\0\0\0\xff\xff\xff\xff\
        \x10\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
    let mode = leeward_fs::XattrMode::Set;
    let set = Op::SetXattr { node: file, name: leeward_fs::rights::ACL, value: acl, mode };
    laptop.call(&user(1000), set).expect("set");
    assert_eq!((may(1001, R), may(1001, W)), (Ok(()), Err(Error::Access)));
}

#[test]
fn a_host_that_is_believed_from_now_on_mounts_anew() {
    let mut rig = rig();
    rig.know(7, "laptop", by_tokens());
    let laptop = rig::client(&rig.env, rig.at, [7; 32], None).expect("connected");
    assert!(laptop.checks_rights(), "the kernel checks nothing");
    laptop.log_in(1000, "alice").expect("logged in");
    rig.know(7, "laptop", Grant::default());
    rig.server().hosts_changed();
    let refused = soon(|| {
        matches!(laptop.call(&user(1000), Op::Lookup { dir: ROOT, name: b"none" }),
            Err(Error::Io(why)) if why.contains("mount anew"))
    });
    assert!(refused, "else each of its users could do everything");
    rig.restart(true);
    assert!(lookup(&laptop, ROOT, b"none").is_err_and(|e| matches!(e, Error::Io(_))));
}

/// A user database that hangs holds up the user whom it is asked about, and nobody else.
#[test]
fn who_is_judged_holds_up_nobody_else() {
    let mut rig = rig();
    let table = rig.table.clone();
    let laptop = rig.host("laptop", by_tokens());
    let node = rig.host("node", Grant::default());
    laptop.log_in(1001, "bob").expect("logged in");
    rig::make(&node, ROOT, b"file").expect("made");
    let file = rig::lookup(&node, ROOT, b"file").expect("found").node;
    rig::write(&node, file, b"told").expect("written");
    std::thread::scope(|scope| {
        table.latch.shut();
        let held = scope.spawn(|| laptop.log_in(1000, "held alice"));
        table.latch.is_reached();
        assert_eq!(lookup_as(&laptop, 1001, b"none"), Err(Error::NotFound));
        assert!(table.latch.holds(), "bob has waited for alice");
        table.latch.open();
        assert!(held.join().expect("no panic").is_ok());
        // an end in order stays one, and who was just logging in is told to come again
        table.latch.shut();
        let held = scope.spawn(|| laptop.log_in(1000, "held alice"));
        table.latch.is_reached();
        rig.restart(true);
        assert!(table.latch.holds(), "the server has waited for alice");
        table.latch.open();
        let said = held.join().expect("no panic");
        assert!(said.is_ok() || said.is_err_and(|why| why.contains("ends") || why.contains("no answer")));
    });
    assert_eq!(node.call(&user(0), Op::Fsync { node: file }), Ok(Reply::Done), "nothing is lost");
    assert_eq!(lookup_as(&laptop, 1000, b"none"), Err(Error::NotFound), "alice is still in");
}

/// Two tokens that one user shows at the same time are judged each by itself.
#[test]
fn each_token_has_an_answer_of_its_own() {
    let rig = rig();
    let laptop = rig.host("laptop", by_tokens());
    std::thread::scope(|scope| {
        rig.table.latch.shut();
        let held = scope.spawn(|| laptop.log_in(1000, "held alice"));
        rig.table.latch.is_reached();
        assert_eq!(laptop.log_in(1000, "nonsense"), Err("no such token".into()));
        assert_eq!(laptop.log_in(1000, "bob").expect("logged in").uid, BOB);
        // the later answer counts, at both ends
        rig.table.latch.open();
        assert_eq!(held.join().expect("no panic").expect("logged in").uid, ALICE);
    });
    assert_eq!(laptop.logged_in()[&1000].uid, ALICE);
    assert_eq!(make(&laptop, 1000, b"file", 0o600).expect("made").uid, ALICE);
}

/// That nothing can be said of a token is no refusal.
#[test]
fn logins_outlast_who_is_to_be_asked() {
    let mut rig = rig();
    let laptop = rig.host("laptop", by_tokens());
    laptop.log_in(1000, "alice").expect("logged in");
    let silent = |silent: bool| rig.table.is_silent.store(silent, std::sync::atomic::Ordering::SeqCst);
    silent(true);
    rig.server().hosts_changed();
    assert_eq!(lookup_as(&laptop, 1000, b"none"), Err(Error::NotFound), "who is in stays in");
    assert_eq!(laptop.log_in(1001, "bob"), Err("ask again".into()));
    let table = rig.table.clone();
    rig.restart(true);
    assert_eq!(lookup_as(&laptop, 1000, b"none"), Err(Error::Access), "it cannot be known now");
    assert_eq!(laptop.logged_in().len(), 1, "but it is not forgotten");
    table.is_silent.store(false, std::sync::atomic::Ordering::SeqCst);
    assert!(soon(|| lookup_as(&laptop, 1000, b"none") == Err(Error::NotFound)));
}

/// Locks are of those who may open the file; a client may say that it had one before.
#[test]
fn nobody_has_had_a_lock_without_a_login() {
    use leeward_fs::locks::{
        FileLock, LAST_BYTE, LockCall, LockKind, LockMode, LockOwner, LockRange, LockReply, OwnedLock,
    };
    let rig = rig();
    rig.know(1, "laptop", by_tokens());
    let (mut raw, _) = Raw::welcomed(&rig, 1, None);
    let range = LockRange { first: 0, last: LAST_BYTE };
    let lock = FileLock { range, mode: LockMode::Exclusive, pid: 1 };
    let told = OwnedLock { node: ROOT, owner: LockOwner { kind: LockKind::Flock, number: 1 }, lock };
    raw.say(&ToServer::Call(slot(0, 1), Call::Lock(root(), LockCall::Tell(vec![told]))));
    match raw.hear() {
        Ok(ToClient::Answer(_, Ok(Reply::Lock(LockReply::Lost(lost))), ..)) => assert_eq!(lost, [0]),
        other => panic!("{other:?}"),
    }
}
