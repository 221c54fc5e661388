//! Strangers who know the protocol, and hosts that lie: what the server answers them, and that it
//! goes on serving others and keeps nothing of them.

use crate::rig;
use crate::rig::raw::{HELLO, Raw, keys, root, slot, tls};
use crate::rig::{Rig, lookup, make, read, user, write};
use leeward_env::Told;
use leeward_env::limits::WRITE_BYTES_MAX;
use leeward_fs::sessions::Sessions;
use leeward_fs::{
    Allocate, Error, Make, NodeId, Op, Precondition, RenameMode, Reply, SetAttr, SetTime, Time,
};
use leeward_remote::message::{
    Call, Caller, FRAME_BYTES_MAX, HELLO_BYTES_MAX, Hello, OLDEST, Refusal, SLOTS_MAX, SessionId, Standing,
    ToClient, ToServer, VERSION,
};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

const ROOT: NodeId = NodeId::ROOT;
/// The seed of the host that behaves badly.
const BAD: u8 = 1;

/// A server, a client that behaves well, and a host that may do anything and will.
fn rig() -> (Rig, Client) {
    let rig = Rig::new();
    let good = rig.host("good", Grant::default());
    rig.know(BAD, "bad", Grant::default());
    (rig, good)
}

/// The server serves the good client, and has forgotten the others.
fn goes_on(rig: &Rig, good: &Client) {
    let node = make(good, ROOT, b"still there").expect("made").node;
    assert_eq!(write(good, node, b"data"), Ok(4));
    assert_eq!(read(good, node), Ok(b"data".to_vec()));
    let unlink = Op::Unlink { dir: ROOT, name: b"still there", over: Precondition::Any };
    good.call(&user(0), unlink).expect("removed");
    assert!(good.away().is_none(), "{:?}", good.away());
    rig.settles(1, usize::MAX);
}

#[test]
fn who_speaks_no_tls_is_hung_up_on() {
    let (rig, good) = rig();
    let garbage: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0; 4096],
        &[0xff; 100_000],
        b"\x16\x03\x01\xff\xff",
        b"\x80\x2e",
    ];
    for (number, bytes) in garbage.into_iter().enumerate() {
        let mut socket = TcpStream::connect(rig.at).expect("connected");
        socket.set_read_timeout(Some(Duration::from_secs(8))).expect("a time");
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = socket.read_to_end(&mut said);
        assert!(said.len() < 100, "{number}: it says {said:?}");
    }
    goes_on(&rig, &good);
}

/// Shows what a test says, and signs with a key.
#[derive(Debug)]
struct Shows {
    shown: Option<Arc<CertifiedKey>>,
    raw: bool,
}

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.shown.clone()
    }

    fn only_raw_public_keys(&self) -> bool {
        self.raw
    }

    fn has_certs(&self) -> bool {
        self.shown.is_some()
    }
}

fn showing(shown: Option<Vec<u8>>, raw: bool) -> ClientConfig {
    let mut config = tls(BAD);
    let own = config.client_auth_cert_resolver.resolve(&[], &[SignatureScheme::ED25519]).expect("a key");
    let shown =
        shown.map(|der| Arc::new(CertifiedKey::new(vec![CertificateDer::from(der)], own.key.clone())));
    config.client_auth_cert_resolver = Arc::new(Shows { shown, raw });
    config
}

#[test]
fn only_raw_keys_that_are_proved_are_let_in() {
    let (rig, good) = rig();
    let own = |config: &ClientConfig| {
        let key = config.client_auth_cert_resolver.resolve(&[], &[SignatureScheme::ED25519]).expect("a key");
        key.cert[0].to_vec()
    };
    let (own, another) = (own(&tls(BAD)), own(&tls(2)));
    rig.know(2, "another", Grant::default());
    let longer = [&own[..], &[0]].concat();
    let mut other_protocol = tls(BAD);
    other_protocol.alpn_protocols = vec![b"h2".to_vec()];
    let bad = [
        showing(None, true),
        showing(None, false),
        showing(Some(own.clone()), false),
        showing(Some(vec![0x30; 300]), false),
        showing(Some(another), true),
        showing(Some(longer), true),
        showing(Some(vec![]), true),
        other_protocol,
    ];
    for (number, config) in bad.into_iter().enumerate() {
        let mut raw = Raw::connect(&rig, config);
        raw.say(&ToServer::Hello(HELLO));
        let heard = raw.hear();
        assert!(heard.is_err(), "{number}: {heard:?}");
    }
    let mut raw = Raw::connect(&rig, showing(Some(own), true));
    raw.say(&ToServer::Hello(HELLO));
    assert!(matches!(raw.hear(), Ok(ToClient::Welcome { .. })), "the key that is its own");
    raw.say(&ToServer::Bye);
    goes_on(&rig, &good);
}

#[test]
fn versions_must_have_one_in_common() {
    let (rig, good) = rig();
    for (oldest, newest) in
        [(0, 0), (0, OLDEST - 1), (VERSION + 1, 99), (99, VERSION), (VERSION, 0), (u16::MAX, u16::MAX)]
    {
        let mut raw = Raw::connect(&rig, tls(BAD));
        raw.say(&ToServer::Hello(Hello { oldest, newest, ..HELLO }));
        raw.is_refused(Refusal::Version);
    }
    let mut raw = Raw::connect(&rig, tls(BAD));
    raw.say(&ToServer::Hello(Hello { oldest: 0, newest: u16::MAX, ..HELLO }));
    assert!(matches!(raw.hear(), Ok(ToClient::Welcome { version: VERSION, .. })));
    raw.say(&ToServer::Bye);
    let mut raw = Raw::connect(&rig, tls(BAD));
    raw.say(&ToServer::Hello(Hello { oldest: 0, newest: OLDEST, ..HELLO }));
    assert!(matches!(raw.hear(), Ok(ToClient::Welcome { version: OLDEST, .. })));
    raw.say(&ToServer::Bye);
    goes_on(&rig, &good);
    rig.settles(1, 1);
}

#[test]
fn messages_out_of_order_end_the_connection() {
    let (rig, good) = rig();
    let call = || ToServer::Call(slot(0, 1), Call::Op(root(), Op::GetAttr { node: ROOT }));
    for first in [call(), ToServer::Ping { number: 1, term: 0 }, ToServer::Bye] {
        let mut raw = Raw::connect(&rig, tls(BAD));
        raw.say(&first);
        raw.is_refused(Refusal::Malformed);
    }
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    raw.say(&ToServer::Hello(HELLO));
    raw.is_refused(Refusal::Malformed);
    rig.settles(1, 2);
    let left = rig.server().sessions().into_iter().find(|session| session.host == "bad");
    assert_eq!(left.and_then(|session| session.address), None, "the session has lost its connection");
    let mut raw = Raw::connect(&rig, tls(7));
    raw.say(&ToServer::Hello(HELLO));
    raw.is_refused(Refusal::UnknownHost);
    goes_on(&rig, &good);
}

#[test]
fn frames_have_a_length_that_is_possible() {
    let (rig, good) = rig();
    let length = |len: u32| [&len.to_le_bytes()[..], &[4; 64]].concat();
    for len in [0, HELLO_BYTES_MAX as u32 + 1, FRAME_BYTES_MAX as u32, u32::MAX] {
        let mut raw = Raw::connect(&rig, tls(BAD));
        raw.send(&length(len));
        raw.is_refused(Refusal::Malformed);
    }
    for len in [0, FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
        let (mut raw, session) = Raw::welcomed(&rig, BAD, None);
        raw.send(&length(len));
        raw.is_refused(Refusal::Malformed);
        let (mut raw, _) = Raw::welcomed(&rig, BAD, Some(session));
        raw.say(&ToServer::Bye);
    }
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    let ping = Raw::bytes(&ToServer::Ping { number: 1, term: 0 });
    raw.send(&Raw::framed(&[&ping[..], &[0]].concat()));
    raw.is_refused(Refusal::Malformed);
    goes_on(&rig, &good);
}

#[test]
fn half_a_message_is_none() {
    let (rig, good) = rig();
    let op = Op::Make { dir: ROOT, name: b"half", make: Make::File, mode: 0o644, umask: 0 };
    let (raw, session) = Raw::welcomed(&rig, BAD, None);
    raw.cut();
    let whole = leeward_remote::message::frame(&ToServer::Call(slot(0, 1), Call::Op(root(), op)));
    for cut in 0..whole.len() {
        let (mut raw, again) = Raw::welcomed(&rig, BAD, Some(session));
        assert_eq!(again, session, "the session goes on");
        raw.send(&whole[..cut]);
        raw.cut();
    }
    assert_eq!(lookup(&good, ROOT, b"half"), Err(Error::NotFound));
    let (mut raw, _) = Raw::welcomed(&rig, BAD, Some(session));
    assert!(raw.call(slot(0, 1), root(), op).is_ok());
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
    goes_on(&rig, &good);
}

#[test]
fn who_does_not_say_who_it_is_does_not_keep_others_out() {
    let (rig, good) = rig();
    let begun = rig.env.now();
    let silent: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(rig.at).ok()).collect();
    goes_on_among(&rig, &good);
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    raw.say(&ToServer::Bye);
    let mut slow = TcpStream::connect(rig.at).expect("connected");
    slow.set_nodelay(true).expect("no delay");
    // the beginning of a handshake, a byte at a time
    let mut bytes = [&[0x16u8, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat().into_iter();
    while rig.server().connections() > 1 {
        let _ = slow.write(&[bytes.next().expect("no end of it")]);
        let took = Duration::from_nanos(rig.env.now() - begun);
        assert!(took < Duration::from_secs(14), "{} are left", rig.server().connections());
        rig.env.sleep(Duration::from_millis(300));
    }
    drop(silent);
    goes_on(&rig, &good);
}

/// The good client is served while there are others.
fn goes_on_among(rig: &Rig, good: &Client) {
    for _ in 0..20 {
        assert_eq!(lookup(good, ROOT, b"nothing"), Err(Error::NotFound));
    }
    assert!(good.away().is_none() && rig.server().sessions().len() == 1);
}

#[test]
fn a_call_is_done_once_and_its_slot_counts() {
    let (rig, good) = rig();
    let (mut raw, session) = Raw::welcomed(&rig, BAD, None);
    let op = Op::Make { dir: ROOT, name: b"once", make: Make::File, mode: 0o644, umask: 0 };
    let first = raw.call(slot(3, 1), root(), op);
    assert!(first.is_ok());
    assert_eq!(raw.call(slot(3, 1), root(), op), first, "the answer again, and done once");
    assert_eq!(raw.call(slot(3, 2), root(), op), Err(Error::Exists));
    let (mut raw, again) = Raw::welcomed(&rig, BAD, Some(session));
    assert_eq!(again, session);
    assert_eq!(raw.call(slot(3, 2), root(), op), Err(Error::Exists), "over another connection, too");
    let node = first.and_then(Reply::attr).expect("attributes").node;
    assert_eq!(rig.server().sessions().iter().find(|s| s.host == "bad").map(|s| s.inodes), Some(1));
    for (place, number) in
        [(3, 1), (3, 4), (3, 0), (4, 0), (4, 2), (4, u32::MAX), (SLOTS_MAX, 1), (u16::MAX, 1)]
    {
        let (mut raw, _) = Raw::welcomed(&rig, BAD, Some(session));
        raw.say(&ToServer::Call(slot(place, number), Call::Op(root(), Op::GetAttr { node })));
        raw.is_refused(Refusal::Malformed);
    }
    let (mut raw, _) = Raw::welcomed(&rig, BAD, Some(session));
    assert!(raw.call(slot(SLOTS_MAX - 1, 1), root(), Op::GetAttr { node }).is_ok());
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
    goes_on(&rig, &good);
}

#[test]
fn a_list_that_is_asked_for_again_gives_its_references_once() {
    let (rig, good) = rig();
    make(&good, ROOT, b"a").expect("made");
    make(&good, ROOT, b"b").expect("made");
    let (mut raw, session) = Raw::welcomed(&rig, BAD, None);
    let op = Op::List { dir: ROOT, after: b"", limit: 100, attrs: true };
    let listed = raw.call(slot(0, 1), root(), op).and_then(Reply::entries).expect("listed");
    for _ in 0..4 {
        (raw, _) = Raw::welcomed(&rig, BAD, Some(session));
        assert_eq!(raw.call(slot(0, 1), root(), op), Ok(Reply::Entries(listed.clone())));
    }
    let held = || rig.server().sessions().iter().find(|s| s.host == "bad").map(|s| s.inodes);
    let told =
        listed.iter().filter(|entry| entry.attr.is_some()).map(|entry| (entry.node, 1)).collect::<Vec<_>>();
    assert_eq!(held(), Some(told.len() as u64));
    raw.say(&ToServer::Call(slot(1, 1), Call::Forget(told)));
    assert!(matches!(raw.hear(), Ok(ToClient::Answer(_, Ok(Reply::Done), ..))));
    assert_eq!(held(), Some(0));
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
    goes_on(&rig, &good);
}

/// A call is at work while its client connects again, and is answered there. The client may have
/// said it once more before it heard that, and goes on with the next call in the slot.
#[test]
fn a_call_that_this_connection_has_answered_is_not_run_again() {
    let (rig, good) = rig();
    rig.know(2, "alone", Grant::default());
    let (mut alone, _) = Raw::welcomed(&rig, 2, None);
    let op = Op::Make { dir: ROOT, name: b"dir", make: Make::Dir, mode: 0o755, umask: 0 };
    let dir = alone.call(slot(0, 1), root(), op).and_then(Reply::attr).expect("made").node;
    let is_alone = (1..10).any(|number| {
        let op = Op::Make { dir, name: &[b'0' + number as u8], make: Make::File, mode: 0o644, umask: 0 };
        alone.say(&ToServer::Call(slot(1, number), Call::Op(root(), op)));
        match alone.hear() {
            Ok(ToClient::Answer(_, Ok(_), leased, _)) => leased.alone().contains(&dir),
            other => panic!("{other:?}"),
        }
    });
    assert!(is_alone, "an exclusive lease");
    let ask = |number| ToServer::Call(slot(0, number), Call::Op(root(), Op::GetAttr { node: dir }));
    let answers = |raw: &mut Raw, number| match raw.hear() {
        Ok(ToClient::Answer(at, Ok(_), ..)) => assert_eq!(at, slot(0, number)),
        other => panic!("{other:?}"),
    };
    let (mut before, session) = Raw::welcomed(&rig, BAD, None);
    before.say(&ask(1));
    let recall = alone.hear();
    let Ok(ToClient::Recall { number, .. }) = recall else { panic!("{recall:?}") };
    let (mut raw, _) = Raw::welcomed(&rig, BAD, Some(session));
    alone.say(&ToServer::Recalled(number));
    answers(&mut raw, 1);
    raw.say(&ask(1));
    raw.say(&ask(2));
    answers(&mut raw, 2);
    [alone, raw].iter_mut().for_each(|raw| raw.say(&ToServer::Bye));
    rig.settles(1, 1);
    goes_on(&rig, &good);
}

#[test]
fn a_host_that_is_removed_is_out_whatever_it_does() {
    let (rig, good) = rig();
    for round in 0..40 {
        rig.know(BAD, "bad", Grant::default());
        let mut raw = Raw::connect(&rig, tls(BAD));
        raw.say(&ToServer::Hello(HELLO));
        if round % 2 == 0 {
            drop(raw.hear());
            let op = Op::Lookup { dir: ROOT, name: b".." };
            raw.say(&ToServer::Call(slot(0, 1), Call::Op(root(), op)));
        }
        rig.table.hosts.lock().expect("the hosts").remove(&keys(BAD).public());
        rig.server().hosts_changed();
        while raw.hear().is_ok() {}
        rig.settles(1, 1);
    }
    goes_on(&rig, &good);
}

#[test]
fn a_session_is_its_hosts_own() {
    let (rig, good) = rig();
    rig.know(2, "thief", Grant::default());
    let (mut raw, session) = Raw::welcomed(&rig, BAD, None);
    let made = raw.call(slot(0, 1), root(), Op::Lookup { dir: ROOT, name: b".." });
    assert!(made.is_ok());
    let wrong = SessionId { secret: [0; 16], ..session };
    for (seed, id) in [(2, session), (BAD, wrong), (BAD, SessionId { number: 0, ..session })] {
        let (mut other, got) = Raw::welcomed(&rig, seed, Some(id));
        assert!(got != session && got != id, "{id:?}");
        other.say(&ToServer::Bye);
    }
    assert!(raw.call(slot(0, 2), root(), Op::GetAttr { node: ROOT }).is_ok(), "its own goes on");
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
    goes_on(&rig, &good);
}

#[test]
fn inodes_that_a_host_was_not_given_are_refused() {
    let (rig, good) = rig();
    let file = make(&good, ROOT, b"file").expect("made").node;
    rig.know(3, "few", Grant { volumes: vec![77], ..Grant::default() });
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    let mut number = 0;
    let mut ask = |raw: &mut Raw, op: Op<'_>| {
        number += 1;
        raw.call(slot(0, number), root(), op)
    };
    for node in [0, 99, u64::MAX >> 25, 77 << 40].map(NodeId) {
        let answer = ask(&mut raw, Op::GetAttr { node });
        assert!(
            matches!(answer, Err(Error::Stale | Error::NotFound | Error::Access)),
            "{node:?}: {answer:?}"
        );
    }
    for node in [1 << 63, 1 << 63 | 1, (3 << 62) + 5, u64::MAX].map(NodeId) {
        for op in [Op::GetAttr { node }, Op::List { dir: node, after: b"", limit: 1, attrs: false }] {
            assert_eq!(ask(&mut raw, op), Err(Error::Stale), "a snapshot that it was not told of");
        }
        let op = Op::Rename {
            from_dir: ROOT,
            from_name: b"file",
            to_dir: node,
            to_name: b"x",
            mode: RenameMode::Replace,
        };
        assert_eq!(ask(&mut raw, op), Err(Error::Stale));
    }
    let (mut few, _) = Raw::welcomed(&rig, 3, None);
    let mine = NodeId(77 << 40 | 1);
    let (name, note, over) = (&b"n"[..], &b""[..], Precondition::Any);
    let mode = RenameMode::Replace;
    let foreign = [
        Op::GetAttr { node: file },
        Op::Lookup { dir: ROOT, name },
        Op::Link { node: file, dir: mine, name },
        Op::Link { node: mine, dir: ROOT, name },
        Op::Rename { from_dir: ROOT, from_name: name, to_dir: mine, to_name: name, mode },
        Op::Rename { from_dir: mine, from_name: name, to_dir: ROOT, to_name: name, mode },
        Op::CopyRange { from: file, from_offset: 0, to: mine, to_offset: 0, len: 1 },
        Op::CopyRange { from: mine, from_offset: 0, to: file, to_offset: 0, len: 1 },
        Op::Place { node: mine, dir: ROOT, name, over },
        Op::KeepPart { node: mine, upload: file, number: 1, note },
        Op::CompleteUpload { upload: file, node: mine, dir: mine, name, over, note },
        Op::GetUpload { upload: file },
        Op::ListUploads { prefix: b"", after: b"", after_upload: NodeId(0), limit: 10 },
        Op::StatUploads { bucket: None },
    ];
    for (number, op) in (1..).zip(foreign) {
        assert_eq!(few.call(slot(0, number), root(), op), Err(Error::Access), "{op:?}");
    }
    raw.say(&ToServer::Bye);
    few.say(&ToServer::Bye);
    rig.settles(1, 1);
    goes_on(&rig, &good);
}

#[test]
fn values_that_no_kernel_sends_are_refused() {
    let (rig, good) = rig();
    let node = make(&good, ROOT, b"file").expect("made").node;
    let set = SetAttr::default();
    let far = i64::MAX as u64;
    let time = Some(SetTime::To(Time { secs: 0, nanos: 1_000_000_000 }));
    let too_long = vec![b'x'; 256];
    let too_much = vec![0; WRITE_BYTES_MAX + 1];
    let bad = [
        Op::Lookup { dir: ROOT, name: b"a/b" },
        Op::Lookup { dir: ROOT, name: b"a\0" },
        Op::Lookup { dir: ROOT, name: b"" },
        Op::Make { dir: ROOT, name: b"..", make: Make::Dir, mode: 0, umask: 0 },
        Op::Make { dir: ROOT, name: b"x", make: Make::Symlink(b""), mode: 0, umask: 0 },
        Op::Make { dir: ROOT, name: b"x", make: Make::Symlink(b"a\0b"), mode: 0, umask: 0 },
        Op::Make { dir: ROOT, name: b"x", make: Make::File, mode: 0o100_644, umask: 0 },
        Op::MakeUnnamed { dir: ROOT, mode: u32::MAX, umask: 0, bytes: 0 },
        Op::Rename {
            from_dir: ROOT,
            from_name: b".",
            to_dir: ROOT,
            to_name: b"x",
            mode: RenameMode::Replace,
        },
        Op::Rename {
            from_dir: ROOT,
            from_name: b"file",
            to_dir: ROOT,
            to_name: b"x/y",
            mode: RenameMode::Replace,
        },
        Op::Unlink { dir: ROOT, name: &too_long, over: Precondition::Any },
        Op::Read { node, offset: 0, len: WRITE_BYTES_MAX as u32 + 1 },
        Op::Read { node, offset: far + 1, len: 1 },
        Op::Write { node, offset: far - 1, data: b"abc" },
        Op::Write { node, offset: u64::MAX, data: b"abc" },
        Op::Write { node, offset: 0, data: &too_much },
        Op::List { dir: ROOT, after: b"", limit: u32::MAX as usize, attrs: true },
        Op::ListParts { upload: node, after: 0, limit: 1 << 20 },
        Op::Allocate { node, offset: far, len: 1, mode: Allocate::PunchHole },
        Op::Allocate { node, offset: u64::MAX, len: u64::MAX, mode: Allocate::PunchHole },
        Op::CopyRange { from: node, from_offset: u64::MAX, to: node, to_offset: 0, len: 2 },
        Op::SetAttr { node, set: SetAttr { atime: time, ..set } },
        Op::SetAttr { node, set: SetAttr { mtime: time, ..set } },
        Op::SetAttr { node, set: SetAttr { size: Some(far + 1), ..set } },
        Op::SetAttr { node, set: SetAttr { uid: Some(u32::MAX), ..set } },
        Op::SetAttr { node, set: SetAttr { gid: Some(u32::MAX), ..set } },
        Op::SetXattr { node, name: b"user.\0", value: b"", mode: leeward_fs::XattrMode::Set },
        Op::GetXattr { node, name: b"" },
        Op::Forget { node: ROOT, count: 1 },
    ];
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    for (number, op) in (1..).zip(bad) {
        let answer = raw.call(slot(0, number), root(), op);
        let refused = matches!(
            answer,
            Err(Error::Invalid | Error::NameTooLong | Error::TooBig | Error::NotSupported | Error::Range)
        );
        let shown = format!("{op:?}");
        assert!(refused, "{}: {answer:?}", &shown[..shown.len().min(200)]);
    }
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
    goes_on(&rig, &good);
}

#[test]
fn a_host_speaks_for_its_users_only() {
    let (rig, good) = rig();
    let node = make(&good, ROOT, b"file").expect("made").node;
    rig.know(3, "few", Grant { uids: vec![(1000, 1001)], root_squash: true, ..Grant::default() });
    let (mut few, _) = Raw::welcomed(&rig, 3, None);
    let caller = |uid| Caller { uid, ..root() };
    for (number, uid) in (1..).zip([999, 1002, u32::MAX]) {
        let asked = few.call(slot(0, number), caller(uid), Op::GetAttr { node: ROOT });
        assert_eq!(asked, Err(Error::NotPermitted));
    }
    let asked = few.call(slot(0, 4), caller(1001), Op::GetAttr { node });
    assert_eq!(asked, Err(Error::Stale), "it was not given the number");
    // root is nobody, who need not be among the users
    assert!(few.call(slot(1, 1), caller(0), Op::GetAttr { node: ROOT }).is_ok());
    let groups = Caller { gids: vec![0; 2000], ..caller(1000) };
    few.say(&ToServer::Call(slot(1, 2), Call::Op(groups, Op::GetAttr { node })));
    few.is_refused(Refusal::Malformed);
    goes_on(&rig, &good);
}

/// Each of its users is in a group of its own. What that fills is the share of the host.
#[test]
fn a_host_that_names_groups_without_end_keeps_its_own_users_out_only() {
    const USERS: u32 = 51_000;
    const FIRST: u32 = 3_000_000;
    let (rig, good) = rig();
    let grant = Grant { uids: vec![(FIRST, FIRST + USERS)], ..Grant::default() };
    rig.know(3, "crowd", grant);
    let (mut crowd, _) = Raw::welcomed(&rig, 3, None);
    let caller = |uid: u32, gid: u32| Caller { uid, gid: uid, gids: vec![gid], ..root() };
    let (mut refused, mut served) = (0, 0);
    for first in (0..USERS).step_by(100) {
        for place in 0..100 {
            let uid = FIRST + first + u32::from(place);
            let call = Call::Op(caller(uid, uid), Op::GetAttr { node: ROOT });
            crowd.say(&ToServer::Call(slot(place, 1 + first / 100), call));
        }
        for _ in 0..100 {
            match crowd.hear() {
                Ok(ToClient::Answer(_, Ok(_), ..)) => served += 1,
                Ok(ToClient::Answer(_, Err(Error::Io(_)), ..)) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((served, refused), (50_000, 1_000));
    let known = crowd.call(slot(200, 1), caller(FIRST, FIRST), Op::GetAttr { node: ROOT });
    assert!(known.is_ok(), "who was there before: {known:?}");
    // users of another host, also those of the same number, have never been seen in these groups
    rig.know(4, "quiet", Grant { uids: vec![(FIRST, FIRST + USERS)], ..Grant::default() });
    let (mut quiet, _) = Raw::welcomed(&rig, 4, None);
    for (number, uid) in (1..).zip([FIRST, FIRST + USERS - 1, FIRST + USERS]) {
        let asked = quiet.call(slot(0, number), caller(uid, 77), Op::GetAttr { node: ROOT });
        assert!(asked.is_ok(), "user {uid} of another host: {asked:?}");
    }
    crowd.say(&ToServer::Bye);
    quiet.say(&ToServer::Bye);
    goes_on(&rig, &good);
}

#[test]
fn references_that_a_host_does_not_have_are_nobodys() {
    let (rig, good) = rig();
    let node = make(&good, ROOT, b"file").expect("made").node;
    let unlink = Op::Unlink { dir: ROOT, name: b"file", over: Precondition::Any };
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    let forget = |raw: &mut Raw, number: u32, all: Vec<(NodeId, u64)>| {
        raw.say(&ToServer::Call(slot(1, number), Call::Forget(all)));
        assert!(matches!(raw.hear(), Ok(ToClient::Answer(_, Ok(Reply::Done), ..))));
    };
    forget(&mut raw, 1, vec![(node, u64::MAX), (node, 1), (ROOT, u64::MAX), (NodeId(u64::MAX), 1)]);
    assert!(raw.call(slot(0, 1), root(), Op::Lookup { dir: ROOT, name: b"file" }).is_ok());
    assert!(raw.call(slot(0, 2), root(), Op::Lookup { dir: ROOT, name: b"file" }).is_ok());
    forget(&mut raw, 2, vec![(node, u64::MAX), (node, u64::MAX), (node, 0)]);
    forget(&mut raw, 2, vec![(node, u64::MAX)]);
    std::thread::scope(|threads| {
        let removed = threads.spawn(|| good.call(&user(0), unlink));
        // it was told of the name: a host that is silent for so long as it may be waited for is
        // hung up on
        match raw.hear() {
            Ok(ToClient::Recall { number, .. }) => raw.say(&ToServer::Recalled(number)),
            other => panic!("{other:?}"),
        }
        removed.join().expect("no panic").expect("removed");
    });
    assert!(good.call(&user(0), Op::GetAttr { node }).is_ok(), "the good client still refers to it");
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
    good.forget(user(0), node, 1);
    for _ in 0..500 {
        if good.call(&user(0), Op::GetAttr { node }).is_err() {
            return goes_on(&rig, &good);
        }
        rig.env.sleep(Duration::from_millis(10));
    }
    panic!("the file of nobody stays");
}

#[test]
fn who_sends_without_end_does_not_stop_others() {
    let (rig, good) = rig();
    // as many as there are threads that read, and more
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let floods: Vec<_> = (0..6).map(|_| flood(&rig, done.clone())).collect();
    rig.env.sleep(Duration::from_millis(300));
    let begun = rig.env.now();
    for _ in 0..20 {
        assert_eq!(lookup(&good, ROOT, b"nothing"), Err(Error::NotFound));
    }
    let took = Duration::from_nanos(rig.env.now() - begun);
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().expect("no panic"));
    assert!(took < Duration::from_secs(4), "{took:?}");
    goes_on(&rig, &good);
}

/// Sends pings as fast as it can, and reads what comes.
fn flood(rig: &Rig, done: Arc<std::sync::atomic::AtomicBool>) -> std::thread::JoinHandle<()> {
    let (mut raw, _) = Raw::welcomed(rig, BAD, None);
    let pings = leeward_remote::message::frame(&ToServer::Ping { number: 7, term: 0 }).repeat(100);
    #[allow(clippy::disallowed_methods)] // a machine of its own
    std::thread::spawn(move || {
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            raw.send(&pings);
            (0..100).for_each(|_| drop(raw.hear()));
        }
        raw.say(&ToServer::Bye);
    })
}

#[test]
fn keys_of_strangers_are_different() {
    assert_ne!(keys(BAD).public(), keys(2).public());
}

/// A host that may only read says that it has changed something before the server crashed.
#[test]
fn a_host_that_may_only_read_changes_nothing_after_a_crash_either() {
    let (mut rig, good) = rig();
    rig.know(90, "reader", Grant { read_only: true, ..Grant::default() });
    let file = make(&good, ROOT, b"file").expect("made").node;
    good.close();
    let (raw, session) = Raw::welcomed(&rig, 90, None);
    raw.cut();
    Sessions::commit(&*rig.cell).expect("committed");
    let (at, env) = (rig.at, rig.env.clone());
    let lie = move || {
        let connect = || std::iter::repeat_with(|| env.sleep(Duration::from_millis(20)));
        let socket = connect().find_map(|()| TcpStream::connect(at).ok()).expect("a server");
        let mut raw = Raw::over(socket, tls(90));
        raw.say(&ToServer::Hello(Hello { session: Some(session), ..HELLO }));
        let welcome = raw.hear();
        assert!(matches!(welcome, Ok(ToClient::Welcome { standing: Standing::Known, .. })), "{welcome:?}");
        // of the process before, and later than all that it has done
        let told = Told { lsn: (1 << 40) + (1 << 30), ..Told::default() };
        raw.say(&ToServer::Again(root(), told, Op::Write { node: file, offset: 0, data: b"lie" }));
        raw.say(&ToServer::CaughtUp);
        match raw.hear() {
            Ok(ToClient::Again { lsn, result }) => {
                assert_eq!((lsn, result), (told.lsn, Err(Error::ReadOnly)))
            }
            other => panic!("{other:?}"),
        }
    };
    let mut lying = None;
    rig.crash(|| lying = Some(std::thread::Builder::new().spawn(lie).expect("a thread")));
    lying.expect("it was begun").join().expect("it is refused");
    let good = rig.connect(rig.at, rig::seed("good"), None).expect("connected");
    assert_eq!(read(&good, file), Ok(Vec::new()));
    good.close();
}
