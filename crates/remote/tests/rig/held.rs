//! What a cell keeps of sessions, where a test can hold up that one is noted as there, and that
//! what was noted is durable.

use super::latch::Latch;
use leeward_env::{Ctx, Told};
use leeward_fs::sessions::{Outcome, SessionRecord, Sessions};
use leeward_fs::{NodeId, Op, Reply, Result};
use leeward_volume::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's head.
pub struct Held {
    pub cell: Arc<Cell>,
    /// It has been noted, and that is not heard of yet.
    pub latch: Latch,
    /// All is to be durable.
    pub syncs: Latch,
    /// Nothing is known to be durable.
    pub hides_durable: AtomicBool,
}

impl Held {
    pub fn of(cell: &Arc<Cell>) -> Arc<Held> {
        let (latch, syncs) = Default::default();
        Arc::new(Held { cell: cell.clone(), latch, syncs, hides_durable: AtomicBool::new(false) })
    }
}

impl Sessions for Held {
    fn sessions(&self) -> Vec<SessionRecord> {
        Sessions::sessions(&*self.cell)
    }

    fn store_session(&self, record: &SessionRecord) -> Result<()> {
        let stored = self.cell.store_session(record);
        if !record.away {
            self.latch.pass();
        }
        stored
    }

    fn end_session(&self, number: u64) -> Result<()> {
        Sessions::end_session(&*self.cell, number)
    }

    fn outcomes(&self, number: u64) -> Result<Vec<(u16, Outcome)>> {
        self.cell.outcomes(number)
    }

    fn do_again(&self, ctx: &Ctx, op: &Op<'_>, told: Told) -> Result<Option<Reply>> {
        self.cell.do_again(ctx, op, told)
    }

    fn answer_again(&self, ctx: &Ctx, op: &Op<'_>, told: Told) -> Result<Reply> {
        self.cell.answer_again(ctx, op, told)
    }

    fn durable_up_to(&self) -> u64 {
        if self.hides_durable.load(Ordering::SeqCst) { 0 } else { self.cell.durable_up_to() }
    }

    fn keep_all_inodes(&self, keep: bool) {
        self.cell.keep_all_inodes(keep);
    }

    fn refer(&self, nodes: &[NodeId]) {
        self.cell.refer(nodes);
    }

    fn go_on(&self) -> Result<()> {
        self.cell.go_on()
    }

    fn reserve_numbers(&self, number: u64, volume: u32, count: u64) -> Result<NodeId> {
        Sessions::reserve_numbers(&*self.cell, number, volume, count)
    }

    fn sync(&self) -> Result<()> {
        self.syncs.pass();
        Sessions::sync(&*self.cell)
    }

    fn commit(&self) -> Result<()> {
        Sessions::commit(&*self.cell)
    }
}
