//! Leases of clients on other machines, and the transactions that must heed them.
//!
//! Under the shard's lock a transaction is held against the leases before it takes effect
//! (`docs/decisions/0032` and `0036`): what others have leases on is recalled, what they alone know
//! is recalled before it is seen, and what a client has told its program must be its own.

use crate::agreed::{Agreed, First};
use crate::shard::{Shard, time_of};
use crate::tx::Tx;
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_env::limits::BEHIND_BYTES_MAX;
use leeward_env::waits;
use leeward_fs::leases::{self, NOT_ALONE, Recalling};
use leeward_fs::{Error, NodeId, Result, Time};

/// Clients may change things by themselves while a pool has room for so many times what they can
/// have told and not sent.
const ROOM_FOR_CLIENTS: u64 = 4;

/// How often the leases in a volume are taken back, while clients have new ones each time.
const RECALLS_MAX: usize = 64;

impl Shard {
    /// Holds a transaction against the leases, and grants those that come with it. Under the lock.
    pub(crate) fn agree(&self, ctx: &Ctx, tx: &Tx<'_>, is_ok: bool) -> Agreed {
        let changed = if is_ok { tx.visibly_changed() } else { Vec::new() };
        // first: what is in a line waits for no other client
        if is_ok && !self.may_be_foretold(ctx, tx, &changed) {
            return Agreed::after(First::Refuse);
        }
        let hidden = if tx.is_quiet() { Vec::new() } else { tx.take_seen() };
        let hidden = self.leases.owned_by_others(ctx.client, &hidden);
        if !hidden.is_empty() {
            return Agreed::after(First::Look(hidden));
        }
        let mut told_later = Vec::new();
        if self.leases.conflict(ctx.client, &changed) {
            if ctx.flow.work().is_none() || self.leases.conflict_exclusive(ctx.client, &changed) {
                return Agreed::after(First::Recall(changed));
            }
            // nobody waits for background work, and it holds what others wait for: they hear of it
            // later
            told_later.clone_from(&changed);
        }
        if is_ok && ctx.client > 0 && ctx.again.is_none() && tx.builds_on_others() {
            return Agreed::after(First::Commit);
        }
        if !tx.leased().is_empty() {
            self.leases.grant(ctx.client, tx.leased());
        }
        if is_ok {
            self.leave_alone(ctx, tx, &changed);
            if ctx.client > 0 {
                leases::note_changed(&changed);
            }
        }
        Agreed { first: None, told_later }
    }

    /// Recalls after a transaction what nobody waits for.
    pub(crate) fn tell_later(&self, ctx: &Ctx, nodes: &[NodeId], is_tight: bool) {
        if !nodes.is_empty() {
            drop(self.leases.recall(ctx.client, nodes));
        }
        if is_tight {
            drop(self.leases.recall_exclusive(None));
        }
    }

    /// Does what must be done before a transaction takes effect. Not under the lock. What it
    /// returns keeps leases from being granted until the transaction has taken effect.
    pub(crate) fn do_first(&self, ctx: &Ctx, first: First) -> Result<Option<Recalling>> {
        match first {
            First::Recall(nodes) => self.recall(ctx, &nodes).map(Some),
            First::Look(nodes) => self.recall(ctx, &nodes).map(|_| None),
            First::Commit => self.commit_first(ctx).map(|()| None),
            First::Refuse => Err(Error::Io(NOT_ALONE.into())),
        }
    }

    /// Takes leases of other clients back, and waits for it.
    pub(crate) fn recall(&self, ctx: &Ctx, nodes: &[NodeId]) -> Result<Recalling> {
        let recalling = self.leases.recall(ctx.client, nodes);
        Self::may_wait(ctx)?;
        let (holder, waited) = self.timed(|| recalling.wait());
        waits::note_leases(holder, waited);
        Ok(recalling)
    }

    /// Makes all changes so far durable, before something builds on them.
    fn commit_first(&self, ctx: &Ctx) -> Result<()> {
        Self::may_wait(ctx)?;
        self.commit_now(ctx)?;
        self.publish_all();
        Ok(())
    }

    /// For a change that will hold something others wait for: no other client has leases on this
    /// inode then, and gets none as long as the result lives.
    pub(crate) fn recall_first(&self, ctx: &Ctx, node: NodeId) -> Result<Option<Recalling>> {
        // what was told is its client's alone, or refused
        if !self.leases.are_used() || ctx.foretold.is_some() {
            return Ok(None);
        }
        match self.leases.conflict(ctx.client, &[node]) {
            true => self.recall(ctx, &[node]).map(Some),
            false => Ok(Some(self.leases.recall(ctx.client, &[node]))),
        }
    }

    /// Takes all leases in a volume back, and waits for it: what any client has told its programs
    /// is here then. None are granted as long as the result lives.
    pub(crate) fn recall_volume(&self, volume: u32) -> Recalling {
        let mut recalling = self.leases.recall_volume(volume);
        // again: what was made under way is its client's alone, though none are granted. A client
        // that goes on to make directories in what it has just made does not mean well
        for _ in 0..RECALLS_MAX {
            if recalling.is_of_none() {
                break;
            }
            recalling.wait();
            recalling = self.leases.recall_volume(volume);
        }
        recalling
    }

    /// [`Shard::recall_exclusive`] in each of these.
    pub(crate) fn recall_exclusive_in(&self, ctx: &Ctx, volumes: Vec<Option<u32>>) -> Result<Vec<Recalling>> {
        volumes.into_iter().filter_map(|volume| self.recall_exclusive(ctx, volume).transpose()).collect()
    }

    /// Takes all exclusive leases in a volume (or in all) back, and waits for it: what any client
    /// has told its programs is here then.
    pub(crate) fn recall_exclusive(&self, ctx: &Ctx, volume: Option<u32>) -> Result<Option<Recalling>> {
        if !self.leases.are_exclusive() {
            return Ok(None);
        }
        let mut recalling = self.leases.recall_exclusive(volume);
        Self::may_wait(ctx)?;
        let (holder, waited) = self.timed(|| {
            // once more: what was made under way is its client's alone, too
            let first = recalling.wait();
            recalling = self.leases.recall_exclusive(volume);
            recalling.wait().or(first)
        });
        waits::note_leases(holder, waited);
        Ok(Some(recalling))
    }

    /// The time of a change, that which its client has told, but not one to come; and that of the
    /// clock here.
    pub(crate) fn times_for(&self, ctx: &Ctx) -> (Time, Time) {
        let clock = self.now();
        let now = match (ctx.again, ctx.foretold) {
            (Some(told), _) => time_of(told.at),
            (None, Some(foretold)) => time_of(foretold.at).min(clock),
            (None, None) => clock,
        };
        (now, clock)
    }

    /// Whether a change may take effect whose result its client has told before: only where nobody
    /// else can have seen or changed what it changes. Other changes may always.
    fn may_be_foretold(&self, ctx: &Ctx, tx: &Tx<'_>, changed: &[NodeId]) -> bool {
        if ctx.foretold.is_none_or(|foretold| foretold.after_crash) {
            return true;
        }
        let others: Vec<NodeId> = changed.iter().copied().filter(|node| Some(*node) != tx.made()).collect();
        let is_alone = self.leases.are_owned(ctx.client, &others);
        if let Some(made) = tx.made().filter(|_| is_alone) {
            self.leases.own(ctx.client, made);
        }
        is_alone
    }

    /// The client that has changed something gets exclusive leases on it, where it may have them.
    fn leave_alone(&self, ctx: &Ctx, tx: &Tx<'_>, changed: &[NodeId]) {
        if ctx.client == 0 || ctx.again.is_some() || ctx.foretold.is_some() || changed.is_empty() {
            return;
        }
        let is_known_here = |node: NodeId| node == NodeId::ROOT && self.has_watchers();
        let may = |node: &NodeId| !is_known_here(*node) && tx.may_be_left_alone(*node).unwrap_or(false);
        let alone: Vec<NodeId> = changed.iter().copied().filter(may).collect();
        if alone.iter().all(|node| self.has_room_for_clients(tx.pool_of(*node))) {
            self.leases.grant_alone(ctx.client, &alone);
        }
    }

    /// Whether a pool has room for all that clients have told and not sent, and more.
    fn has_room_for_clients(&self, pool: PoolId) -> bool {
        let owners = self.leases.owners() as u64 + 1;
        self.space(pool).1 > ROOM_FOR_CLIENTS * BEHIND_BYTES_MAX * owners
    }

    /// Where space runs short clients may change nothing by themselves any more.
    pub(crate) fn watch_room_for_clients(&self, pool: PoolId) {
        if self.leases.are_exclusive() && !self.has_room_for_clients(pool) {
            drop(self.leases.recall_exclusive(None));
        }
    }
}
