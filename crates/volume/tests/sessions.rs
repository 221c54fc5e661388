//! Sessions of clients: what survives a crash of the process, and what is refused afterwards.

use crate::rig::{Rig, engine};
use leeward_env::{CallNumber, Ctx, Door, Told};
use leeward_fs::leases::{ClientId, Leases, Recaller};
use leeward_fs::sessions::{Outcome, SessionRecord, Sessions, take_told};
use leeward_fs::{Error, Fs, Make, NodeId, Op, Precondition, Reply, Result, SetAttr, SetTime, Time};
use leeward_meta::{Batch, Kv};
use leeward_volume::Stored;
use leeward_volume::admin;
use leeward_volume::format::inode::{Inode, Pair};
use leeward_volume::format::keys;
use std::sync::Arc;
use std::time::Duration;

/// A client that gives everything back at once.
struct GiveBack(Leases);

impl Recaller for GiveBack {
    fn recall(&self, client: ClientId, number: u64, _: &[NodeId]) {
        self.0.recalled(client, number);
    }

    fn expel(&self, _: u64, _: Option<u64>) {}
}

fn client(number: u64) -> Ctx {
    Ctx { client: number, door: Door::Remote, refs: true, ..Ctx::user(0, 0) }
}

fn called(number: u64, slot: u16, call: u32) -> Ctx {
    Ctx { call: Some(CallNumber { slot, number: call }), ..client(number) }
}

impl Rig {
    /// With two sessions.
    fn served() -> Rig {
        let rig = Rig::new();
        for number in [1, 2] {
            let record =
                SessionRecord { number, secret: [1; 16], key: [2; 32], away: false, expelled: false };
            rig.cell.store_session(&record).expect("stored");
        }
        rig.cell.commit().expect("committed");
        rig.serve();
        rig
    }

    fn serve(&self) {
        let leases = self.cell.leases();
        leases.serve(Arc::new(GiveBack(leases.clone())));
        [1, 2].into_iter().for_each(|number| leases.join(number, None));
    }

    fn power_cut_and_serve(&mut self) {
        self.power_cut(1);
        self.serve();
    }

    fn make_told(&self, ctx: &Ctx, dir: NodeId, name: &[u8], make: Make<'_>) -> (NodeId, Told) {
        let op = Op::Make { dir, name, make, mode: 0o755, umask: 0 };
        let made = self.cell.call(ctx, op).and_then(Reply::attr).expect("made");
        (made.node, take_told().expect("told"))
    }

    fn new_file(&self, ctx: &Ctx, name: &[u8]) -> (NodeId, Told) {
        self.make_told(ctx, NodeId::ROOT, name, Make::File)
    }

    fn tell(&self, ctx: &Ctx, op: Op<'_>) -> Told {
        self.cell.call(ctx, op).expect("done");
        take_told().expect("told")
    }

    fn find(&self, name: &[u8]) -> Result<NodeId> {
        self.call(Op::Lookup { dir: NodeId::ROOT, name })?.attr().map(|attr| attr.node)
    }

    fn content(&self, node: NodeId) -> Vec<u8> {
        self.call(Op::Read { node, offset: 0, len: 100 }).and_then(Reply::data).expect("read")
    }

    fn mtime(&self, node: NodeId) -> Time {
        self.call(Op::GetAttr { node }).and_then(Reply::attr).expect("there").mtime
    }

    fn commits(&self) -> u64 {
        self.cell.figures().commits.count()
    }

    fn durable(&self) -> u64 {
        (0..4).fold(0, |_, _| self.cell.durable_up_to())
    }
}

fn make_op(name: &[u8]) -> Op<'_> {
    Op::Make { dir: NodeId::ROOT, name, make: Make::File, mode: 0o755, umask: 0 }
}

#[test]
fn what_a_client_builds_on_is_durable_first() {
    let mut rig = Rig::served();
    let (one, two) = (client(1), client(2));
    let before = rig.commits();
    rig.new_file(&one, b"a");
    rig.new_file(&two, b"b");
    assert_eq!(rig.commits(), before, "other names in one directory");
    let (dir, _) = rig.make_told(&one, NodeId::ROOT, b"dir", Make::Dir);
    rig.make_told(&one, dir, b"own", Make::File);
    assert_eq!(rig.commits(), before, "what it made itself");
    rig.make_told(&two, dir, b"file", Make::File);
    assert_eq!(rig.commits(), before + 1, "a directory that another has made");
    rig.tell(&two, Op::Unlink { dir, name: b"own", over: Precondition::Any });
    assert_eq!(rig.commits(), before + 1, "a name of another that is durable");
    rig.make_told(&one, dir, b"own", Make::File);
    assert_eq!(rig.commits(), before + 2, "a name that another has removed");
    rig.tell(&one, Op::Unlink { dir, name: b"own", over: Precondition::Any });
    rig.tell(&one, Op::Unlink { dir, name: b"file", over: Precondition::Any });
    rig.tell(&two, Op::RmDir { dir: NodeId::ROOT, name: b"dir" });
    assert_eq!(rig.commits(), before + 3, "a directory that another has emptied");
    let (file, _) = rig.new_file(&one, b"file");
    rig.tell(&two, Op::Write { node: file, offset: 0, data: b"x" });
    assert_eq!(rig.commits(), before + 4, "a file that another has made");
    rig.tell(&one, Op::Write { node: file, offset: 0, data: b"y" });
    rig.tell(&two, Op::SetAttr { node: file, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } });
    assert_eq!(rig.commits(), before + 4, "content and attributes");
    rig.power_cut_and_serve();
    assert!(rig.find(b"file").is_ok());
}

/// The server was away for two hours. What programs have seen of a change holds; only the event
/// log, from which age removes events, does not believe a client that says so.
#[test]
fn changes_of_long_ago_keep_their_time() {
    let mut rig = Rig::served();
    let one = client(1);
    let (node, made) = rig.new_file(&one, b"late");
    rig.power_cut_and_serve();
    rig.env.advance(Duration::from_secs(7200));
    rig.cell.do_again(&one, &make_op(b"late"), made).expect("done");
    let time = rig.mtime(node);
    assert_eq!(time.secs as u64 * 1_000_000_000 + u64::from(time.nanos), made.at);
    rig.cell.go_on().expect("durable");
    let request = admin::EventList {
        path: Some("/late".into()),
        cursor: None,
        newest_first: false,
        until_now: true,
        filter: admin::EventFilter::default(),
        limit: 10,
    };
    let told = rig.admin(&request).events;
    assert_eq!(told.len(), 1);
    assert_eq!(rig.now_secs() - told[0].secs, 3600);
    rig.cell.keep_all_inodes(false);
    rig.clean();
}

#[test]
fn changes_are_done_again_once_with_number_inode_and_time() {
    let mut rig = Rig::served();
    let one = client(1);
    let (durable, made_before) = rig.new_file(&one, b"durable");
    rig.cell.commit().expect("committed");
    let (node, made) = rig.new_file(&one, b"lost");
    let write = Op::Write { node, offset: 0, data: b"content" };
    let written = rig.tell(&one, write);
    rig.power_cut_and_serve();
    assert_eq!(rig.find(b"lost"), Err(Error::NotFound));
    assert_eq!(rig.cell.do_again(&one, &make_op(b"durable"), made_before), Ok(None));
    for time in 0..2 {
        let again = rig.cell.do_again(&one, &make_op(b"lost"), made).expect("done");
        assert_eq!(again.is_some(), time == 0, "it is there");
        let again = rig.cell.do_again(&one, &write, written).expect("done");
        assert_eq!(again.is_some(), time == 0, "it is there");
    }
    assert_eq!((rig.find(b"lost"), rig.find(b"durable")), (Ok(node), Ok(durable)));
    assert_eq!(rig.content(node), b"content");
    let time = rig.mtime(node);
    assert_eq!(time.secs as u64 * 1_000_000_000 + u64::from(time.nanos), written.at);
    rig.cell.go_on().expect("durable");
    let (new, told) = rig.new_file(&one, b"new");
    assert!(new.inode() > node.inode() + 1000 && told.lsn > written.lsn, "numbers that were given out");
    rig.power_cut_and_serve();
    let again = rig.cell.do_again(&one, &make_op(b"new"), told).expect("done");
    assert_eq!(again.and_then(|reply| reply.attr().ok()).map(|attr| attr.node), Some(new));
    rig.cell.keep_all_inodes(false);
    rig.clean();
}

#[test]
fn content_that_is_done_again_changes_nothing_else() {
    let mut rig = Rig::served();
    let one = client(1);
    let (node, _) = rig.new_file(&one, b"f");
    let write = Op::Write { node, offset: 0, data: b"content" };
    let written = rig.tell(&one, write);
    let time = Time { secs: 77, nanos: 0 };
    let set = SetAttr { mtime: Some(SetTime::To(time)), mode: Some(0o4711), ..SetAttr::default() };
    rig.tell(&one, Op::SetAttr { node, set });
    rig.cell.commit().expect("committed");
    rig.power_cut_and_serve();
    assert_eq!(rig.content(node), b"", "the content was not durable, and the rest was");
    let user = Ctx { uid: 1000, ..one };
    assert!(rig.cell.do_again(&user, &write, written).expect("done").is_some());
    let attr = rig.call(Op::GetAttr { node }).and_then(Reply::attr).expect("there");
    assert_eq!((rig.content(node), attr.mtime, attr.mode), (b"content".to_vec(), time, 0o4711));
}

#[test]
fn an_older_change_of_content_does_not_come_over_a_newer_one() {
    let mut rig = Rig::served();
    let (one, two) = (client(1), client(2));
    let (node, _) = rig.new_file(&one, b"f");
    let write = Op::Write { node, offset: 0, data: b"older" };
    let older = rig.tell(&one, write);
    rig.tell(&two, Op::Write { node, offset: 0, data: b"newer" });
    rig.cell.call(&two, Op::Fsync { node }).expect("durable");
    rig.power_cut_and_serve();
    assert_eq!(rig.cell.do_again(&one, &write, older), Ok(None));
    assert_eq!(rig.content(node), b"newer");
}

#[test]
fn forged_numbers_are_refused() {
    let mut rig = Rig::served();
    let one = client(1);
    let (durable, _) = rig.new_file(&one, b"durable");
    rig.cell.commit().expect("committed");
    let (_, made) = rig.new_file(&one, b"lost");
    rig.power_cut_and_serve();
    let refused = |told: Told| {
        let done = rig.cell.do_again(&one, &make_op(b"forged"), told);
        assert_eq!(done, Err(Error::Invalid), "{told:?}");
    };
    for node in [NodeId::ROOT, NodeId::new(0, 1 << 39), NodeId::new(7, made.node)] {
        refused(Told { node: node.0, ..made });
    }
    // one that is there; numbers that were reserved for a client may be durable
    let told = Told { node: durable.0, ..made };
    assert_eq!(rig.cell.do_again(&one, &make_op(b"forged"), told), Err(Error::Exists));
    for lsn in [0, made.lsn + (1 << 40), u64::MAX] {
        refused(Told { lsn, ..made });
    }
    assert_eq!(rig.find(b"forged"), Err(Error::NotFound));
    for op in [Op::GetAttr { node: durable }, Op::SyncAll, Op::EndUpload { upload: durable }] {
        assert_eq!(rig.cell.do_again(&one, &op, made), Err(Error::Invalid));
    }
}

#[test]
fn what_came_of_calls_is_known_after_a_crash() {
    let mut rig = Rig::served();
    let (kept, _) = rig.new_file(&called(1, 0, 7), b"kept");
    let (gone, _) = rig.new_file(&called(1, 1, 1), b"gone");
    let (gone_too, _) = rig.new_file(&client(1), b"cut");
    rig.tell(&called(1, 1, 2), Op::Unlink { dir: NodeId::ROOT, name: b"gone", over: Precondition::Any });
    rig.tell(&called(1, 2, 1), Op::Append { node: kept, data: b"abc" });
    rig.tell(&called(1, 2, 2), Op::Append { node: kept, data: b"de" });
    rig.cell
        .call(&called(1, 3, 1), Op::Unlink { dir: NodeId::ROOT, name: b"no", over: Precondition::Any })
        .expect_err("there is none");
    let set = SetAttr { size: Some(1), ..SetAttr::default() };
    rig.tell(&called(1, 4, 1), Op::SetAttr { node: gone_too, set });
    rig.cell.commit().expect("committed");
    rig.new_file(&called(1, 0, 8), b"lost");
    rig.power_cut_and_serve();
    let known = rig.cell.outcomes(1).expect("read");
    let calls: Vec<_> = known.iter().map(|(slot, outcome)| (*slot, outcome.call)).collect();
    assert_eq!(calls, [(0, 7), (1, 2), (2, 2), (4, 1)]);
    assert_eq!(rig.cell.outcomes(2), Ok(vec![]));
    let told = |slot: usize| known[slot].1.told;
    let again = |op: Op<'_>, told| rig.cell.answer_again(&client(1), &op, told);
    assert_eq!(again(make_op(b"kept"), told(0)).and_then(Reply::attr).expect("made").node, kept);
    let unlink = Op::Unlink { dir: NodeId::ROOT, name: b"gone", over: Precondition::Any };
    assert_eq!(again(unlink, told(1)), Ok(Reply::Removed { node: gone, nlink: 0 }));
    let append = Op::Append { node: kept, data: b"de" };
    assert_eq!(again(append, told(2)), Ok(Reply::Written(2)));
    // the content was not durable: it is done again where it was
    assert_eq!(told(2).number, 3);
    assert!(rig.cell.do_again(&client(1), &append, told(2)).expect("done").is_some());
    assert_eq!(rig.content(kept), b"\0\0\0de");
    rig.cell.end_session(1).expect("ended");
    assert_eq!((rig.cell.outcomes(1), rig.cell.sessions().len()), (Ok(vec![]), 1));
    rig.new_file(&called(1, 0, 9), b"late");
    assert_eq!(rig.cell.outcomes(1), Ok(vec![]), "nothing of a session that has ended is kept");
}

#[test]
fn changes_are_durable_with_their_content() {
    let rig = Rig::served();
    assert_eq!(rig.durable(), 0);
    let (node, made) = rig.new_file(&client(1), b"f");
    let written = rig.tell(&client(1), Op::Write { node, offset: 0, data: b"x" });
    assert!(rig.durable() < made.lsn);
    rig.cell.commit().expect("committed");
    assert!(rig.durable() < made.lsn, "the content is not stored");
    rig.admin(&admin::SyncAll);
    assert_eq!(rig.durable(), written.lsn);
}

#[test]
fn inodes_without_a_name_are_kept_until_clients_have_said_which_they_have() {
    let mut rig = Rig::served();
    let one = client(1);
    let nodes: Vec<NodeId> = [b"a", b"b", b"c"].map(|name| rig.new_file(&one, name).0).to_vec();
    unlink(&rig, b"a");
    unlink(&rig, b"b");
    rig.cell.commit().expect("committed");
    rig.power_cut_and_serve();
    unlink(&rig, b"c");
    rig.rest();
    let is_there = |rig: &Rig, node: NodeId| rig.call(Op::GetAttr { node }).is_ok();
    assert!(nodes.iter().all(|node| is_there(&rig, *node)));
    rig.cell.refer(&[nodes[0], nodes[2]]);
    rig.cell.keep_all_inodes(false);
    rig.rest();
    assert_eq!([0, 1, 2].map(|n| is_there(&rig, nodes[n])), [true, false, true]);
    for node in [nodes[0], nodes[2]] {
        rig.call(Op::Forget { node, count: 1 }).expect("forgotten");
        assert!(!is_there(&rig, node));
    }
    rig.clean();
}

fn unlink(rig: &Rig, name: &[u8]) {
    rig.tell(&client(1), Op::Unlink { dir: NodeId::ROOT, name, over: Precondition::Any });
}

#[test]
fn after_an_orderly_end_sessions_are_away_and_their_unlinked_files_are_there() {
    let mut rig = Rig::served();
    let nodes = [b"a", b"b"].map(|name| rig.new_file(&called(1, 0, 1), name).0);
    unlink(&rig, b"a");
    for _ in 0..2 {
        rig.reopen();
        let sessions = rig.cell.sessions();
        assert!(!sessions.is_empty() && sessions.iter().all(|session| session.away));
        let call = rig.cell.outcomes(1).map(|outcomes| outcomes.iter().map(|(_, o)| o.call).collect());
        assert_eq!(call, Ok(vec![1]), "what was done is not done once more");
    }
    // removed before its client has said that it has it open
    unlink(&rig, b"b");
    rig.rest();
    let is_there = |rig: &Rig, node: NodeId| rig.call(Op::GetAttr { node }).is_ok();
    assert!(nodes.iter().all(|node| is_there(&rig, *node)));
    rig.cell.refer(&nodes[..1]);
    rig.cell.keep_all_inodes(false);
    rig.rest();
    assert_eq!(nodes.map(|node| is_there(&rig, node)), [true, false]);
    rig.call(Op::Forget { node: nodes[0], count: 1 }).expect("forgotten");
    rig.clean();
}

#[test]
fn fsck_finds_calls_of_no_session_and_numbers_of_no_process() {
    let mut rig = Rig::served();
    let (node, _) = rig.new_file(&client(1), b"f");
    rig.clean();
    rig.cell.close().expect("a clean close");
    let kv = engine(&rig.env, &rig.disk);
    let outcome = Outcome { call: 1, told: Told::default() };
    let inode = kv.get(&keys::inode(node)).expect("read").expect("there");
    let inode = Inode { content_lsn: 99 << 40, ..Inode::decode(&inode).expect("an inode") };
    let session = SessionRecord { number: 5, secret: [0; 16], key: [0; 32], away: false, expelled: false };
    let writes = vec![
        (keys::outcome(9, 0), Some(outcome.encode())),
        (keys::inode(node), Some(inode.encode())),
        (keys::session(6), Some(session.encode())),
        (keys::told(), Some(Pair(98 << 40, 3).encode())),
    ];
    kv.commit(&Batch { writes, inline_data: Vec::new() }).expect("changed");
    drop(kv);
    rig.start();
    let mut findings: Vec<_> = rig.findings().into_iter().map(|f| (f.kind, f.detail)).collect();
    findings.sort();
    let expected = [
        ("lsn", "a change has the number 0x620000000000, in process 4"),
        ("lsn", "its content has the number 0x630000000000, in process 4"),
        ("session", "a call of session 9, which there is not"),
        ("session", "session 6 has the record of another"),
    ];
    assert_eq!(findings, expected.map(|(kind, detail)| (kind.to_string(), detail.to_string())));
}
