//! A cell whose callers are two clients on other machines, which live on when it crashes: whatever
//! they were told is there afterwards, once.
//!
//! `MODEL_SEEDS`, `MODEL_STEPS`, `MODEL_STRIDE` as in `cell.rs`.

use crate::whole;
use crate::whole::{SimCell, seeds, steps, stride};
use leeward_env::{CallNumber, Ctx, Door, Told};
use leeward_fs::leases::{ClientId, Leases, Recaller};
use leeward_fs::sessions::{SessionRecord, Sessions, take_told};
use leeward_fs::{Fs, NodeId, Op, Reply, Result, Usage};
use leeward_model::Profile;
use leeward_model::content::Allocation;
use leeward_model::crash::{CrashOptions, CrashPoint, CrashTarget, Death, crash_everywhere};
use leeward_model::harness::Target;
use leeward_model::step::Path;
use std::cell::{Cell as Value, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change that a client was told of.
#[derive(Clone)]
struct Change {
    ctx: Ctx,
    op: Vec<u8>,
    told: Told,
}

/// A cell that is used by two clients: root is on one machine, other users on the other.
struct Served {
    cell: SimCell,
    /// Those that are not known to be durable.
    told: RefCell<BTreeMap<u64, Change>>,
    calls: Value<u32>,
    /// What the call in progress is to be called when it is sent again.
    unanswered: RefCell<Option<(Ctx, Vec<u8>)>>,
}

/// Clients that give everything back at once.
struct GiveBack(Leases);

impl Recaller for GiveBack {
    fn recall(&self, client: ClientId, number: u64, _: &[NodeId]) {
        self.0.recalled(client, number);
    }

    fn expel(&self, _: u64, _: Option<u64>) {}
}

fn serve(cell: &SimCell) {
    let leases = cell.cell.leases();
    leases.serve(Arc::new(GiveBack(leases.clone())));
    for client in [1, 2] {
        leases.join(client, None);
    }
}

impl Served {
    fn new(cell: SimCell) -> Served {
        for number in [1, 2] {
            let record =
                SessionRecord { number, secret: [0; 16], key: [0; 32], away: false, expelled: false };
            cell.cell.store_session(&record).expect("stored");
        }
        cell.cell.commit().expect("committed");
        serve(&cell);
        Served { cell, told: RefCell::default(), calls: Value::new(0), unanswered: RefCell::default() }
    }

    /// Forgets what is durable. Not at each call: a client hears of it late, or never.
    fn hear_what_is_durable(&self) {
        if self.cell.env.random().is_multiple_of(4) {
            let durable = self.cell.cell.durable_up_to();
            if self.cell.env.random().is_multiple_of(2) {
                let left = self.told.borrow_mut().split_off(&(durable + 1));
                *self.told.borrow_mut() = left;
            }
        }
    }

    /// Does all again, or dies on the way.
    fn ask_again(&self, most: usize) -> std::result::Result<(), String> {
        for change in self.told.borrow().values().take(most) {
            let op = leeward_fs::codec::Input::new(&change.op);
            let op = take_op(op);
            let again = self.cell.cell.do_again(&change.ctx, &op, change.told);
            again.map_err(|e| format!("{op:?} of {:?} is lost: {e}", change.told))?;
        }
        Ok(())
    }

    /// Sends again what was not answered, if it is known to be done.
    fn send_again(&self) -> std::result::Result<(), String> {
        let Some((ctx, bytes)) = self.unanswered.borrow_mut().take() else { return Ok(()) };
        let outcomes = self.cell.cell.outcomes(ctx.client).map_err(|e| e.to_string())?;
        let call = ctx.call.expect("a number");
        let done = outcomes.iter().find(|(slot, done)| *slot == call.slot && done.call == call.number);
        let Some((_, done)) = done else { return Ok(()) };
        let op = take_op(leeward_fs::codec::Input::new(&bytes));
        let answer = self.cell.cell.answer_again(&ctx, &op, done.told);
        answer.map(drop).map_err(|e| format!("{op:?} was done, and is answered {e}"))
    }

    fn over(&self) {
        self.cell.cell.go_on().expect("durable");
        self.cell.cell.keep_all_inodes(false);
        serve(&self.cell);
    }
}

fn take_op(mut from: leeward_fs::codec::Input<'_>) -> Op<'_> {
    leeward_fs::codec::Wire::take(&mut from).expect("an operation")
}

impl Target for Served {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        let client = if ctx.uid == 0 { 1 } else { 2 };
        let call = Some(CallNumber { slot: (number % 3) as u16, number });
        let ctx = Ctx { client, call, door: Door::Remote, ..*ctx };
        take_told();
        let mut bytes = Vec::new();
        leeward_fs::codec::Wire::put(&op, &mut bytes);
        let result = self.cell.cell.call(&ctx, op);
        let died = self.crashed();
        if let (Ok(_), Some(told)) = (&result, take_told()) {
            let ctx = Ctx { refs: false, call: None, ..ctx };
            self.told.borrow_mut().insert(told.lsn, Change { ctx, op: bytes, told });
        } else if died && self.unanswered.borrow().is_none() {
            *self.unanswered.borrow_mut() = Some((ctx, bytes));
        }
        if !died {
            self.hear_what_is_durable();
        }
        result
    }

    fn usage(&self, path: &Path, node: NodeId) -> Option<Usage> {
        self.cell.usage(path, node)
    }

    fn quota(&self, path: &Path, on: bool) {
        self.cell.quota(path, on);
    }

    fn settle(&self) -> std::result::Result<(), String> {
        self.cell.settle()
    }

    fn check(&self) -> std::result::Result<(), String> {
        self.cell.check()
    }

    fn nothing_of_snapshots(&self) -> std::result::Result<(), String> {
        self.cell.nothing_of_snapshots()
    }

    fn advance(&self, ms: u32) {
        self.cell.advance(ms);
        for client in [1, 2] {
            self.cell.cell.leases().keepalive(client, 0, false);
        }
    }

    fn allocation(&self) -> Allocation {
        self.cell.allocation()
    }

    fn reopen(&mut self) -> std::result::Result<(), String> {
        self.cell.reopen()?;
        self.told.borrow_mut().clear();
        serve(&self.cell);
        Ok(())
    }
}

impl CrashTarget for Served {
    fn mutations(&self) -> u64 {
        self.cell.mutations()
    }

    fn arm(&self, point: &CrashPoint) {
        self.cell.arm(point);
    }

    fn crashed(&self) -> bool {
        self.cell.crashed()
    }

    fn keeps_what_was_told(&self) -> bool {
        true
    }

    fn recover(mut self, point: &CrashPoint) -> std::result::Result<Served, String> {
        self.cell = self.cell.recover(point)?;
        if point.seed.is_multiple_of(2) {
            // again, while clients catch up, and after some of that was committed
            let most = point.seed as usize % (self.told.borrow().len() + 1);
            self.ask_again(most)?;
            if point.seed.is_multiple_of(4) {
                self.cell.cell.commit().map_err(|e| e.to_string())?;
            }
            if point.seed.is_multiple_of(8) {
                self.cell.advance(300);
            }
            let death = Death::Kill;
            self.cell = self.cell.recover(&CrashPoint { death, ..*point })?;
        }
        self.ask_again(usize::MAX)?;
        self.send_again()?;
        self.over();
        Ok(self)
    }
}

#[test]
fn what_clients_were_told_survives_a_crash_anywhere() {
    for seed in seeds(0..6) {
        let options = CrashOptions::new(seed, steps(200), stride(5));
        let survived = crash_everywhere(|| Served::new(SimCell::new(seed)), &options);
        println!("seed {seed}: {survived} crashes survived");
    }
}

#[test]
fn what_clients_were_told_survives_a_crash_among_snapshots() {
    for seed in seeds(100..103) {
        let profile = Profile::crash().with_snapshots(20, 3);
        let options = CrashOptions { profile, ..CrashOptions::new(seed, steps(150), stride(7)) };
        let make = || Served::new(SimCell::owned_by(seed, whole::owner(seed)));
        let survived = crash_everywhere(make, &options);
        println!("seed {seed}: {survived} crashes survived");
    }
}

#[test]
fn what_cannot_be_done_again_is_durable_when_it_is_answered() {
    let served = Served::new(SimCell::new(1));
    let snapshots = |served: &Served| {
        let found = served.call(&Ctx::user(0, 0), Op::Lookup { dir: NodeId::ROOT, name: b".snap" });
        found.and_then(Reply::attr).expect("the directory of snapshots").node
    };
    let make = leeward_fs::Make::File;
    let file = Op::Make { dir: NodeId::ROOT, name: b"f", make, mode: 0o755, umask: 0 };
    let file = served.call(&Ctx::user(0, 0), file).and_then(Reply::attr).expect("made").node;
    served.call(&Ctx::user(0, 0), Op::Write { node: file, offset: 0, data: b"content" }).expect("written");
    assert!(!served.told.borrow().is_empty());
    served.told.borrow_mut().clear();
    let (dir, make) = (snapshots(&served), leeward_fs::Make::Dir);
    served.call(&Ctx::user(0, 0), Op::Make { dir, name: b"s", make, mode: 0o755, umask: 0 }).expect("taken");
    assert!(served.told.borrow().is_empty());
    let point = CrashPoint {
        mutation: 0,
        moment: leeward_model::crash::Moment::Before,
        death: Death::PowerCut,
        seed: 1,
    };
    let served = served.recover(&point).expect("recovered");
    let dir = snapshots(&served);
    served.call(&Ctx::user(0, 0), Op::Lookup { dir, name: b"s" }).expect("it is there");
}
