//! The gate before a file system that stands still when it is told to.
#![allow(missing_docs, clippy::disallowed_methods)]

use leeward_env::waits::{self, Cause};
use leeward_env::{Class, Ctx, Door, Env, Flow, Foretold, Nanos, Wait, Work};
use leeward_fs::flows::{FlowRecord, FlowSettings, UserOrGroup};
use leeward_fs::{Engine, Error, Fs, NodeId, Op, Reply, Result, Turns, Watcher};
use leeward_vfs::ledger::ROWS_MAX;
use leeward_vfs::{Gate, GateOptions, People, Subordinates};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Answers at once, except: reads of node 2 stand still until released, node 3 would wait, node 4
/// panics, node 5 would wait for a store that hangs until it is mended.
#[derive(Default)]
struct Standing {
    released: Mutex<bool>,
    mended: Mutex<bool>,
    hanging: Mutex<usize>,
    changed: Condvar,
    changed_store: Condvar,
    order: Mutex<Vec<u32>>,
    forgotten: Mutex<Vec<(NodeId, u64)>>,
    turns: Mutex<Option<Arc<dyn Turns>>>,
}

const STANDS: NodeId = NodeId(2);
const WAITS: NodeId = NodeId(3);
const PANICS: NodeId = NodeId(4);
const HANGS: NodeId = NodeId(5);

impl Standing {
    fn release(&self) {
        *self.released.lock() = true;
        self.changed.notify_all();
    }

    fn mend(&self) {
        *self.mended.lock() = true;
        self.changed_store.notify_all();
    }

    fn hang(&self) {
        *self.hanging.lock() += 1;
        let mut mended = self.mended.lock();
        while !*mended {
            self.changed_store.wait(&mut mended);
        }
        *self.hanging.lock() -= 1;
    }
}

impl Fs for Standing {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        self.order.lock().push(ctx.uid);
        if let Op::Forget { node, count } = op {
            if node == WAITS && ctx.wait == Wait::Never {
                return Err(Error::WouldBlock);
            }
            self.forgotten.lock().push((node, count));
        }
        match op.node() {
            Some(STANDS) => {
                let mut released = self.released.lock();
                while !*released {
                    self.changed.wait(&mut released);
                }
            }
            Some(WAITS | HANGS) if ctx.wait == Wait::Never => return Err(Error::WouldBlock),
            Some(HANGS) => self.hang(),
            Some(WAITS) => waits::note(Cause::Commit, Some(Flow { uid: 77, job: 0 }), 5_000_000),
            Some(PANICS) => panic!("as told"),
            _ => (),
        }
        match op {
            Op::Read { len, .. } => Ok(Reply::Data(vec![0; len as usize])),
            Op::Write { data, .. } => Ok(Reply::Written(data.len() as u64)),
            _ => Ok(Reply::Done),
        }
    }

    fn watch(&self, _: Arc<dyn Watcher>) {}

    fn is_invalidating(&self) -> bool {
        false
    }

    fn wait_invalidated(&self) {}
}

impl Engine for Standing {
    fn users_ask(&self, _: Nanos) {}

    fn users_share(&self, _: Nanos) {}

    fn give_turns(&self, turns: Arc<dyn Turns>) {
        *self.turns.lock() = Some(turns);
    }
}

/// A step of background work on a thread of its own; `uid` is noted as that of operations is.
fn work(fs: &Arc<Standing>, uid: u32) -> Receiver<()> {
    let (done, over) = channel();
    let turns = fs.turns.lock().clone().expect("given");
    let fs = fs.clone();
    thread::spawn(move || {
        let flow = Flow { uid, job: 0 }.of_work(Work::Trim);
        let ctx = Ctx { flow, class: Class::Background, ..Ctx::system() };
        turns.in_turn(&ctx, 3, &mut || fs.order.lock().push(uid));
        let _ = done.send(());
    });
    over
}

fn gate(threads: usize, fair: bool) -> (Arc<Standing>, Gate) {
    let fs = Arc::new(Standing::default());
    let gate = Gate::new(fs.clone(), &Env::real(), GateOptions { threads, fair, jobs: false });
    (fs, gate)
}

/// The same, with two users who were there just now.
fn shared_gate(threads: usize, fair: bool) -> (Arc<Standing>, Gate) {
    let (fs, gate) = gate(threads, fair);
    for uid in [90, 91] {
        gate.run(user(uid), read(NodeId(9)), |_| ());
    }
    fs.order.lock().clear();
    (fs, gate)
}

fn user(uid: u32) -> Ctx {
    Ctx::user(uid, uid)
}

fn read(node: NodeId) -> Op<'static> {
    Op::Read { node, offset: 0, len: 10 }
}

/// Runs a read on a thread of its own, as a front end's reading thread would, and tells when it was
/// answered.
fn asked(gate: &Gate, uid: u32, node: NodeId) -> Receiver<Result<Reply>> {
    let (done, answer) = channel();
    let gate = gate.clone();
    thread::spawn(move || {
        gate.run(user(uid), read(node), move |result| {
            let _ = done.send(result);
        })
    });
    answer
}

fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("waited too long: {what}");
}

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn an_open_gate_is_passed_on_the_callers_thread() {
    let (_, gate) = gate(2, true);
    let (done, answer) = channel();
    gate.run(user(1), read(NodeId(9)), move |r| {
        let _ = done.send((r.is_ok(), thread::current().id()));
    });
    assert_eq!(answer.try_recv(), Ok((true, thread::current().id())), "answered before run returned");
}

#[test]
fn a_request_that_finds_no_slot_does_not_hold_its_thread_and_a_quiet_user_comes_first() {
    let (fs, gate) = shared_gate(2, true);
    let first = asked(&gate, 1, STANDS);
    until("it is inside", || fs.order.lock().len() == 1);
    // on this thread: each returns at once
    let (done, answers) = channel();
    for n in 0..10 {
        let done = done.clone();
        gate.run(user(1), read(NodeId(100 + n)), move |_| {
            let _ = done.send(());
        });
    }
    gate.run(user(2), read(NodeId(9)), move |_| {
        let _ = done.send(());
    });
    assert!(answers.try_recv().is_err(), "nothing ran");
    assert_eq!(gate.report().waiting_for_turn, 11);
    fs.release();
    assert!(first.recv_timeout(PATIENCE).expect("an answer").is_ok());
    for _ in 0..11 {
        answers.recv_timeout(PATIENCE).expect("all are answered");
    }
    assert_eq!(fs.order.lock()[..2], [1, 2], "the other user did not wait for the first one's other ten");
    until("all is entered", || gate.report().flows.iter().map(|f| f.usage.operations).sum::<u64>() == 14);
    let report = gate.report();
    assert_eq!(report.waiting_for_turn, 0);
    let quiet = report.flows.iter().find(|f| f.uid == 2).expect("an account");
    assert!(quiet.usage.waited_nanos["turn"] > 0);
    assert_eq!(quiet.usage.behind_nanos.keys().collect::<Vec<_>>(), [&1], "it waited behind the first");
}

#[test]
fn a_user_who_is_alone_has_all_threads() {
    let (fs, gate) = gate(2, true);
    let first = asked(&gate, 1, STANDS);
    until("it is inside", || fs.order.lock().len() == 1);
    gate.forget(user(0), NodeId(9), 1); // by the kernel, in nobody's name
    assert!(
        asked(&gate, 1, NodeId(9)).recv_timeout(PATIENCE).expect("an answer").is_ok(),
        "the second thread's"
    );
    fs.release();
    assert!(first.recv_timeout(PATIENCE).expect("an answer").is_ok());
}

#[test]
fn each_reference_is_returned_once_also_those_that_wait() {
    let (fs, gate) = gate(2, true);
    let all: Vec<(NodeId, u64)> =
        (0..100).map(|n| (if n % 30 == 7 { WAITS } else { NodeId(n) }, n)).collect();
    gate.forget_all(user(0), &all);
    until("all are returned", || fs.forgotten.lock().len() >= all.len());
    let mut forgotten = fs.forgotten.lock().clone();
    forgotten.sort_by_key(|(_, count)| *count);
    assert_eq!(forgotten, all);
    gate.forget_all(user(0), &[]);
    assert!(asked(&gate, 1, NodeId(9)).recv_timeout(PATIENCE).expect("an answer").is_ok());
}

#[test]
fn a_gate_that_is_not_fair_lets_all_in() {
    let (fs, gate) = shared_gate(2, false);
    let first = asked(&gate, 1, STANDS);
    until("it is inside", || fs.order.lock().len() == 1);
    assert!(asked(&gate, 2, NodeId(9)).recv_timeout(PATIENCE).expect("an answer").is_ok());
    fs.release();
    assert!(first.recv_timeout(PATIENCE).expect("an answer").is_ok());
}

#[test]
fn what_would_wait_is_repeated_where_it_may_and_its_waits_are_told() {
    let (_, gate) = gate(2, true);
    let answer = asked(&gate, 5, WAITS).recv_timeout(PATIENCE).expect("an answer");
    assert!(matches!(answer, Ok(Reply::Data(data)) if data.len() == 10));
    until("it is entered", || !gate.report().flows.is_empty());
    let report = gate.report();
    let usage = &report.flows[0].usage;
    assert_eq!((usage.operations, usage.read_bytes, usage.errors), (1, 10, 0));
    assert_eq!(usage.waited_nanos["commit"], 5_000_000);
    assert_eq!(usage.behind_nanos[&77], 5_000_000);
    let totals = gate.totals();
    // behind the system it may have waited for a thread: the gate looks up users at first
    let of_users = totals.waits.iter().filter(|w| w.uid != Flow::SYSTEM.uid);
    let waits = of_users.map(|w| (w.uid, w.waited_nanos[Cause::Commit as usize], w.behind_nanos));
    assert_eq!(waits.collect::<Vec<_>>(), [(5, 5_000_000, 0), (77, 0, 5_000_000)]);
    assert_eq!(totals.latency.len(), 1);
    assert_eq!((totals.latency[0].operation, totals.latency[0].latency.count()), ("read", 1));
}

#[test]
fn a_panic_is_an_error_and_frees_its_slot() {
    let (_, gate) = gate(2, true);
    for _ in 0..3 {
        let answer = asked(&gate, 1, PANICS).recv_timeout(PATIENCE).expect("an answer");
        assert!(matches!(answer, Err(Error::Io(why)) if why.contains("as told")));
    }
    assert!(asked(&gate, 1, NodeId(9)).recv_timeout(PATIENCE).expect("an answer").is_ok());
    until("errors are counted", || gate.report().flows.iter().any(|f| f.usage.errors == 3));
}

/// Whoever answers may have a bug, too: in a turn at once, in one that was queued, in several
/// operations of a request, and in the background.
#[test]
fn an_answer_that_panics_frees_its_slot() {
    let (fs, gate) = shared_gate(2, true);
    for _ in 0..3 {
        gate.run(user(1), read(NodeId(9)), |_| panic!("as told"));
        gate.run_all(user(1), (read(NodeId(9)), 0), (), |_, ()| panic!("as told"));
        let turns = fs.turns.lock().clone().expect("given");
        let step = thread::spawn(move || turns.in_turn(&Ctx::system(), 3, &mut || panic!("as told")));
        assert!(step.join().is_err(), "whoever does the step is told");
    }
    let before = fs.order.lock().len();
    let held = asked(&gate, 1, STANDS);
    // else the next one would run it here
    until("it is inside", || fs.order.lock().len() > before);
    gate.run(user(2), read(NodeId(9)), |_| panic!("as told"));
    fs.release();
    held.recv_timeout(PATIENCE).expect("an answer").expect("read");
    assert!(asked(&gate, 3, NodeId(9)).recv_timeout(PATIENCE).expect("a slot is free").is_ok());
}

/// Requests of a user may wait until a machine has sent what it has told its programs; that may be
/// more of the same user, and may have to wait itself.
#[test]
fn what_was_told_before_waits_for_no_thread_of_those_who_wait_for_it() {
    let (fs, gate) = shared_gate(2, true);
    let (done, hung) = channel();
    for _ in 0..100 {
        let done = done.clone();
        gate.run(user(1), Op::Fsync { node: HANGS }, move |_| _ = done.send(()));
    }
    let of_one = leeward_env::limits::BLOCKING_THREADS_MAX * 3 / 4;
    until("the user has all threads that one may have", || *fs.hanging.lock() == of_one);
    let told = Ctx { foretold: Some(Foretold::default()), door: Door::Remote, ..user(1) };
    let (answered, answer) = channel();
    gate.run(told, read(WAITS), move |result| _ = answered.send(result));
    answer.recv_timeout(PATIENCE).expect("an answer while the others wait").expect("read");
    fs.mend();
    (0..100).for_each(|_| hung.recv_timeout(PATIENCE).expect("answered in the end"));
}

#[test]
fn totals_keep_what_forgotten_flows_did() {
    let (_, gate) = gate(2, true);
    let users = ROWS_MAX as u32 + 100;
    for uid in 0..users {
        gate.run(user(uid), read(NodeId::new(3, 9)), |_| ());
    }
    assert_eq!(gate.report().flows.len(), ROWS_MAX);
    let totals = gate.totals();
    let told: Vec<_> = totals.volumes.iter().map(|v| (v.volume, v.latency.count(), v.read_bytes)).collect();
    assert_eq!(told, [(3, u64::from(users), 10 * u64::from(users))]);
}

#[test]
fn bytes_and_flows_are_counted_by_volume() {
    let (_, gate) = gate(2, true);
    for volume in [0, 3] {
        let op = Op::Write { node: NodeId::new(volume, 9), offset: 0, data: b"12345" };
        gate.run(user(8), op, |_| ());
        gate.run(Ctx { class: Class::Batch, ..user(8) }, read(NodeId::new(volume, 9)), |_| ());
    }
    let report = gate.report();
    let told: Vec<_> = report
        .flows
        .iter()
        .map(|f| (f.uid, f.volume, f.usage.operations, f.usage.written_bytes, f.usage.read_bytes))
        .collect();
    assert_eq!(told, [(8, 0, 2, 5, 10), (8, 3, 2, 5, 10)]);
    let totals = gate.totals();
    assert_eq!(
        totals.volumes.iter().map(|v| (v.volume, v.latency.count())).collect::<Vec<_>>(),
        [(0, 2), (3, 2)]
    );
    assert_eq!(totals.latency.iter().map(|l| l.class).collect::<Vec<_>>(), ["batch", "interactive"]);
}

/// Thousands of requests of many users from several threads: every one is answered once, and
/// nothing is left behind.
#[test]
fn nothing_is_lost_between_the_slots() {
    let (fs, gate) = gate(2, true);
    let (done, answers) = channel();
    thread::scope(|s| {
        for t in 0..3u32 {
            let (gate, done) = (gate.clone(), done.clone());
            s.spawn(move || {
                for n in 0..3000u32 {
                    let done = done.clone();
                    let node = if n % 50 == 0 { WAITS } else { NodeId(9) };
                    gate.run(user(t * 10 + n % 10), read(node), move |_| {
                        let _ = done.send(());
                    });
                }
            });
        }
    });
    drop(done);
    for n in 0..9000 {
        assert!(answers.recv_timeout(PATIENCE).is_ok(), "only {n} of 9000 were answered");
    }
    assert!(answers.recv_timeout(Duration::from_millis(50)).is_err(), "an answer too many");
    until("all is entered", || gate.report().flows.iter().map(|f| f.usage.operations).sum::<u64>() == 9000);
    assert_eq!(fs.order.lock().len(), 9000 + 9000 / 50, "what would wait was tried twice");
    let report = gate.report();
    assert_eq!((report.waiting_for_turn, report.waiting_for_thread), (0, 0));
}

fn settings(who: UserOrGroup, record: FlowRecord) -> FlowSettings {
    let mut settings = FlowSettings::default();
    settings.set(who, record);
    settings
}

#[test]
fn a_ceiling_holds_back_one_user_and_nobody_else() {
    let (_, gate) = gate(2, true);
    let two = FlowRecord { ops_per_sec: Some(2), ..FlowRecord::default() };
    gate.set_flows(settings(UserOrGroup::User(1), two));
    let env = Env::real();
    let begun = env.now();
    let (done, held) = channel();
    for n in 0..5 {
        let done = done.clone();
        gate.run(user(1), read(if n == 4 { WAITS } else { NodeId(9) }), move |_| _ = done.send(()));
    }
    for _ in 0..50 {
        assert!(asked(&gate, 2, NodeId(9)).recv_timeout(PATIENCE).expect("an answer").is_ok());
    }
    (0..5).for_each(|_| held.recv_timeout(PATIENCE).expect("an answer"));
    let took = env.now() - begun;
    assert!(took >= 1_490_000_000, "two at once, three more in a second and a half, not in {took} ns");
    until("all is entered", || gate.report().flows.iter().map(|f| f.usage.operations).sum::<u64>() == 55);
    let report = gate.report();
    let waited = |uid| {
        report.flows.iter().find(|f| f.uid == uid).expect("a row").usage.waited_nanos.get("ceiling").copied()
    };
    assert!(waited(1) > Some(0), "{report:?}");
    assert_eq!(waited(2), None);
}

#[test]
fn another_ceiling_counts_for_what_waits_already() {
    let (_, gate) = gate(2, true);
    let low = FlowRecord { bytes_per_sec: Some(1), ..FlowRecord::default() };
    gate.set_flows(settings(UserOrGroup::User(1), low));
    let large = Op::Read { node: NodeId(9), offset: 0, len: 1_000_000 };
    let (done, answers) = channel();
    for _ in 0..3 {
        let done = done.clone();
        gate.run(user(1), large, move |_| _ = done.send(()));
    }
    let sent = done.clone();
    gate.run(user(1), Op::Fsync { node: NodeId(9) }, move |_| _ = sent.send(()));
    answers.recv_timeout(PATIENCE).expect("the first may, and the next ones pay for it, for days");
    until("the others wait", || gate.report().waiting_for_ceiling == 3);
    gate.set_flows(FlowSettings::default());
    for _ in 0..3 {
        answers.recv_timeout(PATIENCE).expect("an answer");
    }
}

#[test]
fn an_open_gate_has_no_ceilings() {
    let (_, gate) = gate(2, false);
    gate.set_flows(settings(
        UserOrGroup::User(1),
        FlowRecord { bytes_per_sec: Some(1), ..FlowRecord::default() },
    ));
    for _ in 0..3 {
        assert!(asked(&gate, 1, NodeId(9)).recv_timeout(PATIENCE).expect("an answer").is_ok());
    }
}

/// Users have the group with ten times their number; processes below 1000 are in a job by their
/// hundreds.
#[derive(Default)]
struct Known {
    asked: Mutex<Vec<u32>>,
}

impl People for Known {
    fn groups_of(&self, uid: u32) -> Vec<u32> {
        vec![10 * uid]
    }

    fn job_of(&self, pid: u32) -> Option<String> {
        self.asked.lock().push(pid);
        (pid < 1000).then(|| format!("job {}", pid / 100))
    }
}

fn known_gate() -> (Arc<Known>, Gate) {
    let known = Arc::new(Known::default());
    let options = GateOptions { threads: 2, fair: true, jobs: true };
    (known.clone(), Gate::with_people(Arc::new(Standing::default()), &Env::real(), options, known))
}

#[test]
fn what_is_said_about_groups_counts_for_members() {
    let (_, gate) = known_gate();
    gate.set_flows(settings(
        UserOrGroup::Group(50),
        FlowRecord { weight: Some(300), ..FlowRecord::default() },
    ));
    until("the groups are found", || gate.share_of(5).weight == 300);
    assert_eq!(gate.share_of(6).weight, 100);
    gate.set_flows(FlowSettings::default());
    assert_eq!(gate.share_of(5).weight, 100);
}

#[test]
fn jobs_are_found_in_the_background_and_told_by_name() {
    let (known, gate) = known_gate();
    let of = |pid| Ctx { pid, ..user(1) };
    let jobs = || {
        let flows = gate.report().flows;
        flows.into_iter().filter(|f| f.volume == 3).map(|f| (f.job, f.usage.operations)).collect::<Vec<_>>()
    };
    for pid in [100, 101, 200, 5000, 0] {
        gate.run(of(pid), read(NodeId(9)), |_| ());
    }
    until("they are found", || known.asked.lock().len() >= 4);
    let told = || {
        [100, 101, 200, 5000, 0].iter().for_each(|pid| gate.run(of(*pid), read(NodeId::new(3, 9)), |_| ()));
        jobs().iter().any(|(job, _)| job.as_deref() == Some("job 2"))
    };
    until("the last of them counts", told);
    for _ in 0..1000 {
        gate.run(of(101), read(NodeId::new(3, 9)), |_| ());
    }
    let of_job = |name| jobs().iter().find(|(job, _)| job.as_deref() == name).map_or(0, |(_, count)| *count);
    assert!(of_job(Some("job 1")) > 1000, "{:?}", jobs());
    assert!(of_job(None) >= 2, "{:?}", jobs());
    let asked = known.asked.lock().iter().filter(|pid| **pid == 101).count();
    assert!(asked <= 20, "asked {asked} times about one process");
}

#[test]
fn a_step_of_background_work_runs_beside_the_slots_while_one_is_free() {
    let (fs, gate) = gate(2, true);
    let first = asked(&gate, 1, STANDS);
    until("it is inside", || fs.order.lock().len() == 1);
    work(&fs, 50).recv_timeout(PATIENCE).expect("it has run");
    let report = gate.report();
    let row = report.flows.iter().find(|f| f.uid == 50).expect("it is entered");
    assert_eq!(row.job.as_deref(), Some("trim"));
    assert_eq!((row.volume, row.usage.operations), (3, 1));
    fs.release();
    assert!(first.recv_timeout(PATIENCE).expect("an answer").is_ok());
}

#[test]
fn a_step_of_background_work_waits_when_no_slot_is_free_and_users_go_first() {
    let (fs, gate) = shared_gate(2, true);
    let first = asked(&gate, 1, STANDS);
    until("it is inside", || fs.order.lock().len() == 1);
    let (done, answers) = channel();
    for uid in [2, 3] {
        let done = done.clone();
        gate.run(user(uid), read(NodeId(9)), move |_| {
            let _ = done.send(());
        });
    }
    let over = work(&fs, 50);
    until("all wait", || gate.report().waiting_for_turn == 3);
    assert!(over.try_recv().is_err());
    fs.release();
    assert!(first.recv_timeout(PATIENCE).expect("an answer").is_ok());
    over.recv_timeout(PATIENCE).expect("it has run");
    (0..2).for_each(|_| answers.recv_timeout(PATIENCE).expect("answered"));
    assert_eq!(*fs.order.lock(), [1, 2, 3, 50]);
    until("it is entered", || {
        gate.report().flows.iter().any(|f| f.uid == 50 && f.usage.behind_nanos.contains_key(&1))
    });
    assert!(asked(&gate, 1, NodeId(9)).recv_timeout(PATIENCE).expect("the slot is free again").is_ok());
}

/// One hung store holds up who waits for it, and nobody else: all threads that may wait do so
/// there, and still no slot is lost and others' requests go on, by the mount and by doors.
#[test]
fn a_store_that_hangs_holds_no_slot() {
    let (fs, gate) = shared_gate(2, true);
    let (done, hung) = channel();
    for n in 0..400 {
        let done = done.clone();
        gate.run(user(1 + n % 2), Op::Fsync { node: HANGS }, move |_| _ = done.send(()));
    }
    until("all threads hang", || *fs.hanging.lock() >= leeward_env::limits::BLOCKING_THREADS_MAX);
    // a door's operation has the only slot, and another one waits for it
    let by_door = |uid| Ctx { door: Door::S3, ..user(uid) };
    let (done, answers) = channel();
    let (first, standing) = (done.clone(), gate.clone());
    let reader = thread::spawn(move || {
        standing.run(by_door(5), read(STANDS), move |_| _ = first.send(5));
    });
    until("it is inside", || fs.order.lock().contains(&5));
    let run = |ctx: Ctx, node| {
        let (done, uid) = (done.clone(), ctx.uid);
        gate.run(ctx, read(node), move |_| _ = done.send(uid));
    };
    run(by_door(6), NodeId(9));
    let work = work(&fs, 50);
    until("both wait", || gate.report().waiting_for_turn == 2);
    fs.release();
    reader.join().expect("the door's thread goes on");
    let mut told = [(); 2].map(|()| answers.recv_timeout(PATIENCE).expect("an answer while others hang"));
    told.sort_unstable();
    assert_eq!(told, [5, 6]);
    work.recv_timeout(PATIENCE).expect("background work goes on, too");
    // what must wait, but not for that store, has a thread
    for (ctx, node) in [(user(7), NodeId(9)), (by_door(8), NodeId(9)), (user(9), WAITS), (by_door(10), WAITS)]
    {
        run(ctx, node);
        assert_eq!(answers.recv_timeout(PATIENCE), Ok(ctx.uid));
    }
    assert!(hung.try_recv().is_err(), "the others hang all the time");
    fs.mend();
    (0..400).for_each(|_| hung.recv_timeout(PATIENCE).expect("answered in the end"));
}

#[test]
fn bytes_that_wait_are_bounded_and_shared_between_users() {
    const WRITES: usize = 3000;
    let (fs, gate) = gate(2, true);
    let data = vec![7; 64 << 10];
    let (done, answers) = channel();
    let write = |uid, node| {
        let done = done.clone();
        gate.run_in_part(user(uid), Op::Write { node, offset: 0, data: &data }, move |result| {
            let Ok(Reply::Written(count)) = result else { panic!("{result:?}") };
            let _ = done.send((uid, count as usize));
        });
    };
    (0..WRITES).for_each(|_| write(1, HANGS));
    write(2, HANGS);
    write(1, NodeId(9));
    assert_eq!(answers.recv_timeout(PATIENCE), Ok((1, data.len())), "what need not wait is whole");
    let (done, whole) = channel();
    gate.run(user(1), Op::Write { node: HANGS, offset: 0, data: &data }, move |r| _ = done.send(r));
    fs.mend();
    let mut written = [0; 3];
    for _ in 0..=WRITES {
        let (uid, count) = answers.recv_timeout(PATIENCE).expect("an answer");
        assert!(count > 0, "a program takes nothing for an error");
        written[uid as usize] += count;
    }
    assert!(written[1] <= (64 << 20) + WRITES * (16 << 10), "{} bytes waited", written[1]);
    assert!(written[1] >= 64 << 20, "only {} bytes waited", written[1]);
    assert_eq!(written[2], data.len(), "another user's first write is whole");
    let whole = whole.recv_timeout(PATIENCE).expect("an answer");
    assert!(matches!(whole, Ok(Reply::Written(n)) if n as usize == data.len()), "not to be cut: {whole:?}");
    until("all is accounted for", || gate.report().waiting_for_thread == 0);
}

/// Users from 100,000 on belong to user 5, as those of a rootless container.
struct Container;

impl People for Container {
    fn groups_of(&self, _: u32) -> Vec<u32> {
        Vec::new()
    }

    fn job_of(&self, _: u32) -> Option<String> {
        None
    }

    fn subordinates(&self) -> Option<Vec<Subordinates>> {
        Some(vec![Subordinates { first: 100_000, count: 65_536, owner: 5 }])
    }
}

#[test]
fn users_of_a_container_share_what_its_owner_gets() {
    let fs = Arc::new(Standing::default());
    let options = GateOptions { threads: 2, fair: true, jobs: false };
    let gate = Gate::with_people(fs.clone(), &Env::real(), options, Arc::new(Container));
    gate.set_flows(settings(UserOrGroup::User(5), FlowRecord { weight: Some(300), ..FlowRecord::default() }));
    gate.run(user(0), read(NodeId(9)), |_| ());
    until("the ranges are known", || gate.share_of(100_000).weight == 300);
    for uid in 100_000..100_100 {
        gate.run(user(uid), read(NodeId::new(3, 9)), |_| ());
    }
    gate.run(user(5), read(NodeId::new(3, 9)), |_| ());
    let of_volume = gate.report().flows.into_iter().filter(|f| f.volume == 3);
    assert_eq!(of_volume.map(|f| (f.uid, f.usage.operations)).collect::<Vec<_>>(), [(5, 101)]);

    // a hundred of its users wait in one line: a quiet user's request is the second, not the last
    let first = asked(&gate, 90, STANDS);
    until("it is inside", || fs.order.lock().contains(&90));
    fs.order.lock().clear();
    let (done, answers) = channel();
    for uid in (100_000..100_100).chain([6]) {
        let done = done.clone();
        gate.run(user(uid), read(NodeId(9)), move |_| _ = done.send(()));
    }
    fs.release();
    assert!(first.recv_timeout(PATIENCE).expect("an answer").is_ok());
    (0..101).for_each(|_| answers.recv_timeout(PATIENCE).expect("all are answered"));
    let order = fs.order.lock();
    assert!(order.iter().position(|uid| *uid == 6) <= Some(2), "{order:?}");
}
