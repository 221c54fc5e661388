//! The bytes of every message, pinned. Peers of two versions talk to each other, so what is here
//! never changes: a new kind gets a new line, and the test says so when it has none.

use leeward_env::{Class, Told};
use leeward_fs::codec::{Malformed, Wire};
use leeward_fs::locks::{
    FileLock, LockCall, LockKind, LockMode, LockOwner, LockRange, LockReply, LockRequest, OwnedLock,
};
use leeward_fs::uploads::{Part, PartRecord, UploadRecord, UploadTotals};
use leeward_fs::{
    Allocate, Attr, Entry, Error, InodeFlags, Kind, Make, NodeId, Op, Precondition, RenameMode, Reply, Seek,
    SetAttr, SetTime, StatFs, Time, XattrMode,
};
use leeward_remote::message::{
    AccessCall, Behind, Call, Caller, CellUser, Command, Hello, Leased, LoginAnswer, Refusal, ServerList,
    SessionId, Slot, Standing, ToClient, ToServer, Token, frame, message,
};
use std::fmt::Debug;

const A: NodeId = NodeId(0x0102_0304_0506_0708);
const B: NodeId = NodeId(0x11);
const C: NodeId = NodeId(0x22);
const SLOT: Slot = Slot { place: 0x0102, number: 0x0304_0506 };
const TIME: Time = Time { secs: -2, nanos: 999_999_999 };
const ATTR: Attr = Attr {
    node: A,
    kind: Kind::File,
    mode: 0o644,
    uid: 1000,
    gid: 100,
    nlink: 1,
    rdev: 0,
    size: 4096,
    blocks: 8,
    atime: Time { secs: 1, nanos: 2 },
    mtime: Time { secs: 3, nanos: 4 },
    ctime: Time { secs: 5, nanos: 6 },
    btime: Time { secs: 7, nanos: 8 },
    flags: InodeFlags::NO_DUMP,
};
/// The bytes of [`ATTR`].
const ATTR_HEX: &str = "0807060504030201 01 a4010000 e8030000 64000000 01000000 00000000 \
    0010000000000000 0800000000000000 0100000000000000 02000000 0300000000000000 04000000 \
    0500000000000000 06000000 0700000000000000 08000000 40000000";

/// A value has these bytes, they are read as the value, and nothing else is.
fn pin<'a, M: Wire<'a> + PartialEq + Debug>(value: &M, hex: &str) {
    let frame: &'static [u8] = frame(value).leak();
    let (head, bytes) = frame.split_at(4);
    assert_eq!(head, (bytes.len() as u32).to_le_bytes(), "the length before {value:?}");
    assert_eq!(hex_of(bytes), hex.replace(' ', ""), "{value:?}");
    assert_eq!(message::<M>(bytes).as_ref(), Ok(value));
    for cut in 0..bytes.len() {
        assert!(message::<M>(&bytes[..cut]).is_err(), "{value:?}, cut after {cut} bytes");
    }
    let longer: &'static [u8] = [bytes, &[0]].concat().leak();
    assert_eq!(message::<M>(longer), Err(Malformed::Long), "{value:?}");
}

/// The same for several values of a type.
fn pin_all<'a, M: Wire<'a> + PartialEq + Debug>(all: &[(M, &str)]) {
    all.iter().for_each(|(value, hex)| pin(value, hex));
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Each kind but these has no meaning.
fn only_kinds<M: Wire<'static> + PartialEq + Debug>(known: impl IntoIterator<Item = u8>) {
    let known: Vec<u8> = known.into_iter().collect();
    for kind in (0..=u8::MAX).filter(|kind| !known.contains(kind)) {
        let bytes: &'static [u8] = [&[kind][..], &[0; 200]].concat().leak();
        assert_eq!(message::<M>(bytes), Err(Malformed::Unknown), "kind {kind}");
    }
}

fn caller() -> Caller {
    Caller { uid: 1000, gid: 100, gids: vec![7, 8], class: Class::Batch, refs: true }
}

/// The bytes of [`TOLD`].
const TOLD_HEX: &str = "0100000000000000 0200000000000000 0300000000000000 0400000000000000";
const TOLD: Told = Told { lsn: 1, at: 2, node: 3, number: 4 };

/// The bytes of [`caller`].
const CALLER_HEX: &str = "e8030000 64000000 02000000 07000000 08000000 01 01";

#[test]
fn messages_of_a_client_have_these_bytes() {
    let secret = *b"0123456789abcdef";
    let session = SessionId { number: 9, secret };
    let new = Hello { oldest: 1, newest: 2, invitation: None, session: None };
    let old = Hello { invitation: Some(secret), session: Some(session), ..new.clone() };
    let op = Call::Op(caller(), Op::GetAttr { node: A });
    let command = |command| ToServer::Call(SLOT, Call::Command(caller(), command));
    let secret = "30313233343536373839616263646566";
    let all = [
        (ToServer::Hello(new), "01 0100 0200 00 00".into()),
        (ToServer::Hello(old), format!("01 0100 0200 01 {secret} 01 0900000000000000 {secret}")),
        (ToServer::Call(SLOT, op), format!("02 0201 06050403 {CALLER_HEX} 01 0807060504030201")),
        (ToServer::Call(SLOT, Call::Forget(vec![])), "03 0201 06050403 00000000".into()),
        (
            ToServer::Call(SLOT, Call::Forget(vec![(B, 2)])),
            "03 0201 06050403 01000000 1100000000000000 0200000000000000".into(),
        ),
        (command(Command::Begin(b"{}")), format!("08 0201 06050403 {CALLER_HEX} 01 02000000 7b7d")),
        (command(Command::More(3)), format!("08 0201 06050403 {CALLER_HEX} 02 0300000000000000")),
        (command(Command::End(4)), format!("08 0201 06050403 {CALLER_HEX} 03 0400000000000000")),
        (
            command(Command::Give { number: 5, at: 6, bytes: b"ab" }),
            format!("08 0201 06050403 {CALLER_HEX} 04 0500000000000000 0600000000000000 02000000 6162"),
        ),
        (
            ToServer::Call(SLOT, Call::Access(AccessCall::Since(3))),
            "14 0201 06050403 01 0300000000000000".into(),
        ),
        (
            ToServer::Call(SLOT, Call::Access(AccessCall::More { version: 3, offset: 4 })),
            "14 0201 06050403 02 0300000000000000 0400000000000000".into(),
        ),
        (ToServer::Ping { number: 0x0102, term: 3 }, "04 0201000000000000 03000000".into()),
        (ToServer::Bye, "05".into()),
        (ToServer::Recalled(0x0102), "06 0201000000000000".into()),
        (
            ToServer::Call(SLOT, Call::Lock(caller(), LockCall::Cancel { ticket: 9 })),
            format!("07 0201 06050403 {CALLER_HEX} 03 0900000000000000"),
        ),
        (
            ToServer::Call(SLOT, Call::Refer { nodes: vec![B], last: true }),
            "09 0201 06050403 01000000 1100000000000000 01".into(),
        ),
        (
            ToServer::Again(caller(), TOLD, Op::GetAttr { node: A }),
            format!("0a {TOLD_HEX} {CALLER_HEX} 01 0807060504030201"),
        ),
        (
            ToServer::Call(SLOT, Call::InOrder(caller(), None, Op::GetAttr { node: A })),
            format!("15 0201 06050403 00 {CALLER_HEX} 01 0807060504030201"),
        ),
        (
            ToServer::Call(
                SLOT,
                Call::InOrder(caller(), Some(Behind { at: 9, node: 3 }), Op::GetAttr { node: A }),
            ),
            format!("15 0201 06050403 01 0900000000000000 0300000000000000 {CALLER_HEX} 01 0807060504030201"),
        ),
        (ToServer::Call(SLOT, Call::Numbers { volume: 2 }), "16 0201 06050403 02000000".into()),
        (
            ToServer::Call(SLOT, Call::Login { uid: 5, token: Some(Token(b"ab")) }),
            "18 0201 06050403 05000000 01 02000000 6162".into(),
        ),
        (ToServer::Call(SLOT, Call::Login { uid: 5, token: None }), "18 0201 06050403 05000000 00".into()),
        (ToServer::Call(SLOT, Call::Died(session)), format!("17 0201 06050403 0900000000000000 {secret}")),
        (ToServer::Share(vec![B]), "0d 01000000 1100000000000000".into()),
        (ToServer::CaughtUp, "0b".into()),
        (ToServer::HeedsLocks, "0e".into()),
        (
            ToServer::Unanswered(SLOT, caller(), Op::GetAttr { node: A }),
            format!("0c 0201 06050403 {CALLER_HEX} 01 0807060504030201"),
        ),
    ];
    for (message, hex) in &all {
        let kind = match message {
            ToServer::Hello(_) => 1,
            ToServer::Call(_, Call::Op(..)) => 2,
            ToServer::Call(_, Call::Forget(_)) => 3,
            ToServer::Ping { .. } => 4,
            ToServer::Bye => 5,
            ToServer::Recalled(_) => 6,
            ToServer::Call(_, Call::Lock(..)) => 7,
            ToServer::Call(_, Call::Command(..)) => 8,
            ToServer::Call(_, Call::Refer { .. }) => 9,
            ToServer::Again(..) => 10,
            ToServer::CaughtUp => 11,
            ToServer::Unanswered(..) => 12,
            ToServer::Share(_) => 13,
            ToServer::HeedsLocks => 14,
            ToServer::Call(_, Call::Access(..)) => 20,
            ToServer::Call(_, Call::InOrder(..)) => 21,
            ToServer::Call(_, Call::Numbers { .. }) => 22,
            ToServer::Call(_, Call::Died(_)) => 23,
            ToServer::Call(_, Call::Login { .. }) => 24, // a new kind comes here, above, and below
        };
        assert!(hex.starts_with(&format!("{kind:02x}")));
        pin(message, hex);
    }
    only_kinds::<ToServer<'_>>((1..15).chain(20..25));
    for (class, hex) in [(Class::Interactive, "00"), (Class::Batch, "01"), (Class::Background, "02")] {
        let caller = Caller { uid: 1, gid: 2, gids: vec![], class, refs: false };
        pin(&caller, &format!("01000000 02000000 00000000 {hex} 00"));
    }
}

#[test]
fn messages_of_a_server_have_these_bytes() {
    let welcome = ToClient::Welcome {
        version: 1,
        session: SessionId { number: 9, secret: [0xab; 16] },
        standing: Standing::Known,
        instance: 0x0304,
        host: "node7".into(),
        wants_groups: false,
        by_tokens: true,
    };
    let welcome_hex =
        format!("01 0100 0900000000000000 {} 03 0403000000000000 05000000 6e6f646537 00 01", "ab".repeat(16));
    let taken = OwnedLock { node: B, owner: OWNER, lock: LOCK };
    let all_but = Leased::AllBut {
        others: vec![B],
        snapshot_dir: Some((*b".snap").into()),
        alone: vec![A],
        changed: vec![B],
    };
    let all = [
        (welcome, &welcome_hex[..]),
        (ToClient::Refused(Refusal::UnknownHost, "no".into()), "02 02 02000000 6e6f"),
        (ToClient::Answer(SLOT, Ok(Reply::Done), Leased::Nothing, None), "03 0201 06050403 00 00 00"),
        (
            ToClient::Answer(SLOT, Ok(Reply::Done), all_but, Some(TOLD)),
            &format!(
                "03 0201 06050403 01 01000000 1100000000000000 01 05000000 2e736e6170 01000000 0807060504030201 01000000 1100000000000000 01 {TOLD_HEX} 00"
            )[..],
        ),
        (ToClient::Answer(SLOT, Err(Error::NotFound), Leased::Nothing, None), "04 0201 06050403 00 00 02"),
        (ToClient::Pong { number: 0x0102, taken: None, wall: 7 }, "05 0201000000000000 00 0700000000000000"),
        (
            ToClient::Pong { number: 0x0102, taken: Some(3), wall: 7 },
            "05 0201000000000000 01 03000000 0700000000000000",
        ),
        (ToClient::Closing { durable: true }, "06 01"),
        (ToClient::Recall { number: 2, nodes: vec![B] }, "07 0200000000000000 01000000 1100000000000000"),
        (ToClient::Granted { ticket: 9, result: Ok(()) }, "08 0900000000000000 00"),
        (ToClient::Granted { ticket: 9, result: Err(Error::NotFound) }, "08 0900000000000000 01 02"),
        (ToClient::Ready, "09"),
        (ToClient::Again { lsn: 9, result: Ok(()) }, "0a 0900000000000000 00"),
        (ToClient::Again { lsn: 9, result: Err(Error::NotFound) }, "0a 0900000000000000 01 02"),
        (ToClient::Durable(9), "0b 0900000000000000"),
        (
            ToClient::Servers(ServerList { turn: 9, addresses: vec!["a:1".into()] }),
            "0c 0900000000000000 01000000 03000000 613a31",
        ),
        (
            ToClient::LocksTaken(vec![taken]),
            &format!("0d 01000000 1100000000000000 {OWNER_HEX} {LOCK_HEX}")[..],
        ),
    ];
    for (message, hex) in &all {
        let kind = match message {
            ToClient::Welcome { .. } => 1,
            ToClient::Refused(..) => 2,
            ToClient::Answer(_, Ok(_), ..) => 3,
            ToClient::Answer(_, Err(_), ..) => 4,
            ToClient::Pong { .. } => 5,
            ToClient::Closing { .. } => 6,
            ToClient::Recall { .. } => 7,
            ToClient::Granted { .. } => 8,
            ToClient::Ready => 9,
            ToClient::Again { .. } => 10,
            ToClient::Durable(_) => 11,
            ToClient::Servers(_) => 12,
            ToClient::LocksTaken(_) => 13, // a new kind comes here, above, and below
        };
        assert!(hex.starts_with(&format!("{kind:02x}")));
        pin(message, hex);
    }
    only_kinds::<ToClient>(1..14);
    pin_all(&[
        (Refusal::Version, "01"),
        (Refusal::UnknownHost, "02"),
        (Refusal::Busy, "03"),
        (Refusal::Malformed, "04"),
        (Refusal::Ended, "05"),
    ]);
    only_kinds::<Refusal>(1..6);
    pin_all(&[(Standing::New, "01"), (Standing::Resumed, "02"), (Standing::Known, "03")]);
    only_kinds::<Standing>(1..4);
}

const OWNER: LockOwner = LockOwner { kind: LockKind::Posix, number: 5 };
const OWNER_HEX: &str = "01 0500000000000000";
const LOCK: FileLock = FileLock { range: LockRange { first: 6, last: 7 }, mode: LockMode::Exclusive, pid: 8 };
const LOCK_HEX: &str = "0600000000000000 0700000000000000 01 08000000";

#[test]
fn calls_about_locks_have_these_bytes() {
    let request = LockRequest { node: B, owner: OWNER, lock: LOCK, wait: true };
    let request_hex = format!("1100000000000000 {OWNER_HEX} {LOCK_HEX} 01");
    let told = OwnedLock { node: B, owner: OWNER, lock: LOCK };
    let at = format!("1100000000000000 {OWNER_HEX}");
    let all = [
        (LockCall::Set { request, ticket: 9 }, format!("{request_hex} 0900000000000000")),
        (
            LockCall::Unlock { node: B, owner: OWNER, range: LOCK.range },
            format!("{at} 0600000000000000 0700000000000000"),
        ),
        (LockCall::Test(request), request_hex),
        (LockCall::Cancel { ticket: 9 }, "0900000000000000".into()),
        (LockCall::Release { node: B, owner: OWNER }, at.clone()),
        (LockCall::Tell(vec![told]), format!("01000000 {at} {LOCK_HEX}")),
    ];
    for (number, (call, hex)) in (0u8..).zip(&all) {
        let expected = match call {
            LockCall::Set { .. } => 0,
            LockCall::Unlock { .. } => 1,
            LockCall::Test(_) => 2,
            LockCall::Cancel { .. } => 3,
            LockCall::Release { .. } => 4,
            LockCall::Tell(_) => 5, // a new one comes here, and in the list above
        };
        assert_eq!(number, expected, "{call:?}");
        pin(call, &format!("{number:02x} {hex}"));
    }
    only_kinds::<LockCall>(0..6);
    pin_all(&[(LockKind::Flock, "00"), (LockKind::Posix, "01")]);
    only_kinds::<LockKind>(0..2);
    pin_all(&[(LockMode::Shared, "00"), (LockMode::Exclusive, "01")]);
    only_kinds::<LockMode>(0..2);
    pin_all(&[
        (LockReply::Waits, "00"),
        (LockReply::NotWaiting, "01"),
        (LockReply::Free, "02"),
        (LockReply::Lost(vec![3]), "04 01000000 03000000"),
    ]);
    pin(&LockReply::Held(LOCK), &format!("03 {LOCK_HEX}"));
    only_kinds::<LockReply>(0..5);
}

/// One operation of each kind, in the order of their numbers.
fn operations() -> Vec<(Op<'static>, &'static str)> {
    let (over, set) = (Precondition::Any, SetAttr { size: Some(3), ..SetAttr::default() });
    vec![
        (Op::Lookup { dir: A, name: b"n" }, "0807060504030201 01000000 6e"),
        (Op::GetAttr { node: B }, "1100000000000000"),
        (Op::SetAttr { node: B, set }, "1100000000000000 00 00 00 01 0300000000000000 00 00 00"),
        (Op::ReadLink { node: B }, "1100000000000000"),
        (
            Op::Make { dir: B, name: b"n", make: Make::Dir, mode: 0o755, umask: 0o22 },
            "1100000000000000 01000000 6e 01 ed010000 12000000",
        ),
        (Op::Link { node: A, dir: B, name: b"n" }, "0807060504030201 1100000000000000 01000000 6e"),
        (Op::Unlink { dir: B, name: b"n", over }, "1100000000000000 01000000 6e 00"),
        (Op::RmDir { dir: B, name: b"n" }, "1100000000000000 01000000 6e"),
        (
            Op::Rename {
                from_dir: B,
                from_name: b"m",
                to_dir: C,
                to_name: b"no",
                mode: RenameMode::NoReplace,
            },
            "1100000000000000 01000000 6d 2200000000000000 02000000 6e6f 01",
        ),
        (Op::Read { node: B, offset: 5, len: 6 }, "1100000000000000 0500000000000000 06000000"),
        (Op::Write { node: B, offset: 5, data: b"abc" }, "1100000000000000 0500000000000000 03000000 616263"),
        (Op::Fsync { node: B }, "1100000000000000"),
        (Op::SyncAll, ""),
        (
            Op::Allocate { node: B, offset: 5, len: 6, mode: Allocate::PunchHole },
            "1100000000000000 0500000000000000 0600000000000000 02",
        ),
        (Op::SeekTo { node: B, offset: 5, what: Seek::Hole }, "1100000000000000 0500000000000000 01"),
        (
            Op::CopyRange { from: B, from_offset: 5, to: C, to_offset: 6, len: 7 },
            "1100000000000000 0500000000000000 2200000000000000 0600000000000000 0700000000000000",
        ),
        (Op::List { dir: B, after: b"a", limit: 9, attrs: true }, "1100000000000000 01000000 61 09000000 01"),
        (Op::GetXattr { node: B, name: b"user.x" }, "1100000000000000 06000000 757365722e78"),
        (Op::ListXattr { node: B }, "1100000000000000"),
        (
            Op::SetXattr { node: B, name: b"n", value: b"v", mode: XattrMode::Replace },
            "1100000000000000 01000000 6e 01000000 76 02",
        ),
        (Op::RemoveXattr { node: B, name: b"n" }, "1100000000000000 01000000 6e"),
        (Op::StatFs { node: B }, "1100000000000000"),
        (Op::Forget { node: B, count: 3 }, "1100000000000000 0300000000000000"),
        (
            Op::MakeUnnamed { dir: B, mode: 0o600, umask: 0, bytes: 7 },
            "1100000000000000 80010000 00000000 0700000000000000",
        ),
        (
            Op::Place { node: A, dir: B, name: b"n", over: Precondition::Nothing },
            "0807060504030201 1100000000000000 01000000 6e 01",
        ),
        (Op::BeginUpload { dir: B, key: b"k", note: b"" }, "1100000000000000 01000000 6b 00000000"),
        (
            Op::KeepPart { node: A, upload: B, number: 3, note: b"n" },
            "0807060504030201 1100000000000000 03000000 01000000 6e",
        ),
        (
            Op::CompleteUpload { upload: A, node: B, dir: C, name: b"n", over, note: b"t" },
            "0807060504030201 1100000000000000 2200000000000000 01000000 6e 00 01000000 74",
        ),
        (Op::EndUpload { upload: B }, "1100000000000000"),
        (Op::GetUpload { upload: B }, "1100000000000000"),
        (Op::ListParts { upload: B, after: 3, limit: 4 }, "1100000000000000 03000000 04000000"),
        (
            Op::ListUploads { prefix: b"p", after: b"a", after_upload: B, limit: 4 },
            "01000000 70 01000000 61 1100000000000000 04000000",
        ),
        (Op::StatUploads { bucket: Some(b"b") }, "01 01000000 62"),
        (Op::Append { node: B, data: b"abc" }, "1100000000000000 03000000 616263"),
        (Op::ContentVersions { node: B, block: 3 }, "1100000000000000 0300000000000000"),
    ]
}

#[test]
fn operations_have_these_numbers_and_fields() {
    const NUMBERS: &[&str] = &[
        "lookup",
        "getattr",
        "setattr",
        "readlink",
        "make",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "read",
        "write",
        "fsync",
        "syncfs",
        "allocate",
        "seek",
        "copy",
        "list",
        "getxattr",
        "listxattr",
        "setxattr",
        "removexattr",
        "statfs",
        "forget",
        "makeunnamed",
        "place",
        "beginupload",
        "keeppart",
        "completeupload",
        "endupload",
        "getupload",
        "listparts",
        "listuploads",
        "statuploads",
        "append",
        "contentversions",
    ];
    assert_eq!(NUMBERS, Op::NAMES, "numbers never change: a new operation comes last");
    let all = operations();
    assert_eq!(all.len(), Op::NAMES.len(), "a new operation has a line above, too");
    for (number, (op, hex)) in all.iter().enumerate() {
        assert_eq!(op.number(), number, "{op:?}");
        pin(op, &format!("{number:02x} {hex}"));
    }
    only_kinds::<Op<'static>>(0..all.len() as u8);
    pin(&Op::StatUploads { bucket: None }, "20 00");
}

#[test]
fn what_operations_are_made_of_has_these_bytes() {
    pin_all(&[
        (Make::File, "00"),
        (Make::Dir, "01"),
        (Make::Fifo, "02"),
        (Make::Socket, "03"),
        (Make::Symlink(b"to"), "04 02000000 746f"),
        (Make::CharDev(0x0103), "05 03010000"),
        (Make::BlockDev(0x0801), "06 01080000"),
    ]);
    only_kinds::<Make<'static>>(0..7);
    pin_all(&[(RenameMode::Replace, "00"), (RenameMode::NoReplace, "01"), (RenameMode::Exchange, "02")]);
    only_kinds::<RenameMode>(0..3);
    pin_all(&[(XattrMode::Set, "00"), (XattrMode::Create, "01"), (XattrMode::Replace, "02")]);
    only_kinds::<XattrMode>(0..3);
    pin_all(&[(Seek::Data, "00"), (Seek::Hole, "01")]);
    only_kinds::<Seek>(0..2);
    pin_all(&[
        (Allocate::Reserve { keep_size: false }, "00"),
        (Allocate::Reserve { keep_size: true }, "01"),
        (Allocate::PunchHole, "02"),
        (Allocate::ZeroRange { keep_size: false }, "03"),
        (Allocate::ZeroRange { keep_size: true }, "04"),
    ]);
    only_kinds::<Allocate>(0..5);
    pin_all(&[
        (Precondition::Any, "00"),
        (Precondition::Nothing, "01"),
        (Precondition::This(B, TIME), "02 1100000000000000 feffffffffffffff ffc99a3b"),
    ]);
    only_kinds::<Precondition>(0..3);
    pin_all(&[(SetTime::Now, "00"), (SetTime::To(TIME), "01 feffffffffffffff ffc99a3b")]);
    only_kinds::<SetTime>(0..2);
    let set = SetAttr {
        mode: Some(0o7777),
        uid: Some(1),
        gid: Some(2),
        size: Some(3),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::To(TIME)),
        flags: Some(InodeFlags::IMMUTABLE),
    };
    pin(
        &set,
        "01 ff0f0000 01 01000000 01 02000000 01 0300000000000000 01 00 01 01 feffffffffffffff ffc99a3b \
         01 10000000",
    );
}

#[test]
fn replies_have_these_numbers_and_fields() {
    let (key, note) = ("b/k".into(), b"n"[..].into());
    let upload = UploadRecord { uid: 5, at: TIME, complete: true, key, note };
    let upload_hex = "05000000 feffffffffffffff ffc99a3b 01 03000000 622f6b 01000000 6e";
    let note = b"n"[..].into();
    let part = Part { node: A, record: PartRecord { upload: B, number: 3, at: TIME, size: 4, note } };
    let part_hex =
        "0807060504030201 1100000000000000 03000000 feffffffffffffff ffc99a3b 0400000000000000 01000000 6e";
    let bare = Entry { name: (*b"d").into(), node: B, kind: Kind::Dir, attr: None };
    let full = Entry { name: (*b"f").into(), node: A, kind: Kind::File, attr: Some(ATTR) };
    let figures = StatFs { total_bytes: 1, free_bytes: 2, total_files: 3, free_files: 4 };
    let all = [
        (Reply::Done, String::new()),
        (Reply::Removed { node: B, nlink: 2 }, "1100000000000000 02000000".into()),
        (Reply::Attr(ATTR), ATTR_HEX.into()),
        (Reply::Data(b"abc".to_vec()), "03000000 616263".into()),
        (Reply::Written(9), "0900000000000000".into()),
        (Reply::Offset(9), "0900000000000000".into()),
        (
            Reply::Entries(vec![bare, full]),
            format!(
                "02000000 01000000 64 1100000000000000 02 00 01000000 66 0807060504030201 01 01 {ATTR_HEX}"
            ),
        ),
        (Reply::Names(vec![(*b"a").into(), (*b"bc").into()]), "02000000 01000000 61 02000000 6263".into()),
        (Reply::Begun(B), "1100000000000000".into()),
        (Reply::Upload(upload.clone()), upload_hex.into()),
        (Reply::Uploads(vec![(B, upload)]), format!("01000000 1100000000000000 {upload_hex}")),
        (Reply::Parts(vec![part]), format!("01000000 {part_hex}")),
        (
            Reply::UploadTotals(UploadTotals { uploads: 2, bytes: 3 }),
            "0200000000000000 0300000000000000".into(),
        ),
        (
            Reply::StatFs(figures),
            "0100000000000000 0200000000000000 0300000000000000 0400000000000000".into(),
        ),
        (Reply::Lock(LockReply::Waits), "00".into()),
    ];
    for (number, (reply, hex)) in all.iter().enumerate() {
        assert_eq!(number_of(reply), number as u8, "{reply:?}");
        pin(reply, &format!("{number:02x} {hex}"));
    }
    only_kinds::<Reply>(0..all.len() as u8);
}

fn number_of(reply: &Reply) -> u8 {
    match reply {
        Reply::Done => 0,
        Reply::Removed { .. } => 1,
        Reply::Attr(_) => 2,
        Reply::Data(_) => 3,
        Reply::Written(_) => 4,
        Reply::Offset(_) => 5,
        Reply::Entries(_) => 6,
        Reply::Names(_) => 7,
        Reply::Begun(_) => 8,
        Reply::Upload(_) => 9,
        Reply::Uploads(_) => 10,
        Reply::Parts(_) => 11,
        Reply::UploadTotals(_) => 12,
        Reply::StatFs(_) => 13,
        Reply::Lock(_) => 14, // a new one comes here, and in the list above
    }
}

#[test]
fn kinds_of_inodes_have_these_numbers() {
    pin_all(&[
        (Kind::File, "01"),
        (Kind::Dir, "02"),
        (Kind::Symlink, "03"),
        (Kind::Fifo, "04"),
        (Kind::CharDev, "05"),
        (Kind::BlockDev, "06"),
        (Kind::Socket, "07"),
    ]);
    only_kinds::<Kind>(1..8);
}

#[test]
fn errors_have_these_numbers() {
    const NUMBERS: &[&str] = &[
        "NotFound",
        "Exists",
        "NotDir",
        "IsDir",
        "NotEmpty",
        "Access",
        "NotPermitted",
        "Invalid",
        "NameTooLong",
        "TooBig",
        "Quota",
        "NoSpace",
        "CrossVolume",
        "TooManyLinks",
        "TooManyUploads",
        "NoData",
        "Range",
        "AttrTooBig",
        "Busy",
        "NotSupported",
        "NoSuchPosition",
        "ReadOnly",
        "Stale",
        "Changed",
        "WouldBlock",
        "Locked",
        "Deadlock",
        "TooManyLocks",
        "Interrupted",
        "Unavailable",
    ];
    let known: Vec<&str> = Error::TABLE.iter().map(|(name, _)| *name).collect();
    assert_eq!(NUMBERS, known, "numbers never change: a new error comes last");
    pin_all(&[(Error::Corrupt("x".into()), "00 01000000 78"), (Error::Io("yz".into()), "01 02000000 797a")]);
    for (number, name) in (2u8..).zip(NUMBERS) {
        let bytes: &'static [u8] = vec![number].leak();
        let error = message::<Error>(bytes).expect("an error");
        assert_eq!(format!("{error:?}"), *name);
        pin(&error, &format!("{number:02x}"));
    }
    pin(&Error::Elsewhere(NodeId(0x0102)), "ff 0201000000000000");
    only_kinds::<Error>((0..2 + NUMBERS.len() as u8).chain([0xff]));
}

#[test]
fn text_and_flags_are_what_they_must_be() {
    let refused = |text: &[u8]| {
        let bytes = [&[2, 1][..], &(text.len() as u32).to_le_bytes(), text].concat();
        message::<ToClient>(bytes.leak())
    };
    assert!(refused("né".as_bytes()).is_ok());
    assert_eq!(refused(b"n\xff"), Err(Malformed::Unknown));
    assert_eq!(message::<ToClient>(&[6, 2]), Err(Malformed::Unknown), "neither true nor false");
}

#[test]
fn answers_to_logins_have_these_bytes() {
    let user = CellUser { name: "al".into(), uid: 7, gid: 8, gids: vec![9], until_secs: Some(0x0102) };
    pin(&LoginAnswer::In(user), "01 02000000 616c 07000000 08000000 01000000 09000000 01 0201000000000000");
    pin(&LoginAnswer::Refused("no".into()), "02 02000000 6e6f");
    pin(&LoginAnswer::Out, "03");
    pin(&LoginAnswer::Later("no".into()), "04 02000000 6e6f");
    only_kinds::<LoginAnswer>(1..5);
    let shown = format!("{:?}", Call::Login { uid: 5, token: Some(Token(b"secret")) });
    assert!(!shown.contains("secret"), "{shown}");
}
