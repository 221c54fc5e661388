//! Records in memory: the running transaction, those being committed, and a cache of clean ones.
//!
//! Operations are pure functions over [`Tx`], run under the shard's lock, never doing I/O. A record
//! that is not in memory ends the attempt with [`Fail::Miss`]; the caller loads it without the lock
//! and runs the operation again. A `Tx` buffers its writes, so an attempt that fails leaves no
//! trace.
//!
//! Reads look in: this operation's writes, running, committing, cache. Invariants: a key in
//! `running` or `committing` may be stale in the cache and is never read from there. `publish_seq`
//! moves when a commit's records become clean; a loaded record enters the cache only if it has not
//! moved since before the load and no overlay holds the key.

use crate::before::{Before, ViewScan};
use crate::format::events::{Event, Named};
use crate::format::extents::Extents;
use crate::format::inode::{Dentry, Inode, Stats};
use crate::format::keys::{self, EpochPair, Key};
use crate::format::owned::Owned;
use crate::format::stored::Stored;
use crate::state::overlay::Slot;
use crate::state::owners::Over;
use crate::state::quota::QuotaOf;
use crate::state::snapshots::Tally;
use crate::state::{Effect, RecordCache, State};
use leeward_data::Addr;
use leeward_env::{Ctx, Told, Work};
use leeward_fs::flows::UserOrGroup;
use leeward_fs::sessions::{self, Outcome};
use leeward_fs::{Error, NodeId, Time};
use leeward_meta::{InlineData, Kv, Value};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Why an attempt ended.
#[derive(Debug)]
pub enum Fail {
    /// This record must be loaded first.
    Miss(Key),
    /// These must.
    MissAll(Vec<Key>),
    /// Content of this inode from an earlier epoch must enter its records first.
    Stage(NodeId),
    /// This much more does not fit this quota.
    Quota {
        /// Which.
        of: QuotaOf,
        /// What the operation adds to it.
        by: Stats,
    },
    /// This much more does not fit the limits of a user or a group.
    Owner(Over),
    /// Clients on other machines must send what they have told their programs first: little is left
    /// of this quota; `None`: of what an owner may have.
    Clients(Option<QuotaOf>),
    /// Changes of statistics of this volume must be folded first: they are many.
    Fold(u32),
    /// The directories above this one must be found first: they are many.
    Climb(NodeId),
    /// What there is in a snapshot must be found first.
    Scan(ViewScan),
    /// The part of the recycle bin below this directory must be purged first.
    Bin(NodeId),
    /// The operation's answer.
    Error(Error),
}

impl From<Error> for Fail {
    fn from(e: Error) -> Fail {
        Fail::Error(e)
    }
}

/// Result of a step of an attempt.
pub type TxResult<T> = Result<T, Fail>;

/// How an operation changes what a user or a group owns in a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedChange {
    pub(crate) volume: u32,
    pub(crate) who: UserOrGroup,
    /// By the records.
    pub(crate) recorded: Stats,
    /// With pending content.
    pub(crate) used: Stats,
}

/// Records written by one operation: usually few; searched by a map when they are many. A key
/// occurs once.
#[derive(Default)]
struct Writes {
    list: Vec<(Key, Option<Value>, bool)>,
    index: FxHashMap<Key, usize>,
}

/// Up to this many writes are searched one by one.
const WRITES_SEARCHED: usize = 16;

impl Writes {
    fn position(&self, key: &Key) -> Option<usize> {
        let head = self.list.iter().take(WRITES_SEARCHED).position(|(k, _, _)| k == key);
        head.or_else(|| self.index.get(key).copied())
    }

    fn get(&self, key: &Key) -> Option<&Option<Value>> {
        self.position(key).map(|n| &self.list[n].1)
    }

    fn put(&mut self, key: Key, value: Option<Value>, new: bool) {
        match self.position(&key) {
            Some(n) => self.list[n].1 = value,
            None => {
                if self.list.len() >= WRITES_SEARCHED {
                    self.index.insert(key.clone(), self.list.len());
                }
                self.list.push((key, value, new));
            }
        }
    }
}

/// One attempt of one operation.
pub struct Tx<'a> {
    /// The shard's state. Changed directly only when nothing can fail any more.
    pub st: &'a mut State,
    cache: &'a RecordCache,
    kv: &'a dyn Kv,
    /// The caller's context.
    pub ctx: &'a Ctx,
    /// What was found out for it.
    pub(crate) before: &'a Before,
    /// The time of this operation.
    pub now: Time,
    writes: Writes,
    /// Windows of files that are being changed, decoded; see `ops/content.rs`.
    pub(crate) edits: FxHashMap<(NodeId, u32), Extents>,
    pub(crate) deltas: Vec<(NodeId, Stats)>,
    /// The volume whose statistics were folded in this operation.
    pub(crate) folded: Option<u32>,
    references: Vec<(u64, i64)>,
    pub(crate) charges: Vec<(QuotaOf, Stats)>,
    pub(crate) owned: Vec<OwnedChange>,
    /// What is told of it, see `ops/events.rs`.
    pub(crate) events: Vec<(u32, Event)>,
    /// Files whose content it changes, see `ops/events.rs`.
    pub(crate) written_to: Vec<(NodeId, Named)>,
    shown: Vec<NodeId>,
    /// What a client on another machine may keep from now on, see [`Tx::lease`].
    leased: Vec<NodeId>,
    /// The inodes that it has looked at, if that is noted.
    seen: Option<RefCell<Vec<NodeId>>>,
    /// The inode that it makes with a number that was reserved for the client.
    made: Option<NodeId>,
    /// How many clients have exclusive leases.
    owners: usize,
    /// A quota is near its limit, and clients are to tell their programs nothing more before it is
    /// here.
    pub(crate) is_tight: bool,
    /// Whether nobody can see what changes.
    quiet: bool,
    /// Its number, once it was asked for; 0 before.
    lsn: Cell<u64>,
    /// What comes of it that its client must be told again, see [`Tx::comes_to`].
    comes_to: Option<(NodeId, u64)>,
    /// It is a step of an operation, and not the last.
    goes_on: bool,
    /// Records that other clients must not have changed since the last commit.
    builds_on: Vec<Key>,
    effects: Vec<Effect>,
    inline_data: Vec<InlineData>,
    /// The epoch of the changes, if it is not the volume's, see [`Tx::set_as_of`].
    as_of: Option<u32>,
    /// The additions of this operation to deadlists.
    tallies: Vec<(u32, EpochPair, Tally)>,
    died: Vec<(EpochPair, Key)>,
    /// Changed records of an earlier epoch: views may have seen them.
    changed_before: Vec<Key>,
    /// The last stamp that this operation gave to an entry of the recycle bin.
    pub(crate) last_stamp: u64,
    /// Volumes in which this attempt has allocated inodes, and the first of them. Each attempt
    /// allocates new ones: if a record of such an inode had to be loaded, it would be missing again
    /// in the next attempt, for ever.
    pub(crate) fresh: Vec<(u32, u64)>,
    /// Unsealed data that nobody needs any more.
    pub dead: Vec<(Addr, u32)>,
}

impl<'a> Tx<'a> {
    /// A new attempt.
    pub(crate) fn new(
        st: &'a mut State,
        cache: &'a RecordCache,
        kv: &'a dyn Kv,
        (ctx, now): (&'a Ctx, Time),
        before: &'a Before,
    ) -> Tx<'a> {
        let lsn = Cell::new(ctx.again.map_or(0, |told| told.lsn));
        Tx {
            st,
            cache,
            kv,
            ctx,
            before,
            now,
            lsn,
            comes_to: None,
            goes_on: false,
            builds_on: Vec::new(),
            writes: Writes::default(),
            edits: FxHashMap::default(),
            deltas: Vec::new(),
            folded: None,
            references: Vec::new(),
            charges: Vec::new(),
            owned: Vec::new(),
            events: Vec::new(),
            written_to: Vec::new(),
            shown: Vec::new(),
            leased: Vec::new(),
            seen: None,
            made: None,
            owners: 0,
            is_tight: false,
            quiet: false,
            effects: Vec::new(),
            inline_data: Vec::new(),
            as_of: None,
            tallies: Vec::new(),
            died: Vec::new(),
            changed_before: Vec::new(),
            last_stamp: 0,
            fresh: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// Whether it applies what comes from another cell.
    pub(crate) fn is_transfer(&self) -> bool {
        self.ctx.flow.work() == Some(Work::Transfer)
    }

    /// The record of `key`.
    pub fn get(&self, key: &Key) -> TxResult<Option<Value>> {
        if let Some(value) = self.writes.get(key) {
            return Ok(value.clone());
        }
        self.note_seen(key);
        if let Some(view) = keys::view_of(key) {
            // what it referred to may be gone with the snapshot
            self.st.snapshot_of(view)?;
            return self.cache.get(key).ok_or_else(|| Fail::Miss(key.clone()));
        }
        if let Some(value) = self.st.overlay(key) {
            return Ok(value);
        }
        if self.is_fresh(key) {
            return Ok(None);
        }
        self.cache.get(key).ok_or_else(|| Fail::Miss(key.clone()))
    }

    /// There is no such record: it would be of an inode that this attempt has made. So it need not
    /// be looked for when it is first asked for.
    pub(crate) fn is_without(&self, key: Key) {
        self.cache.insert(key, None);
    }

    /// Whether the record would be of an inode that this attempt has allocated: such records exist
    /// only in its writes.
    fn is_fresh(&self, key: &Key) -> bool {
        let volume = keys::volume_of(key);
        if self.made.is_some_and(|made| volume == made.volume() && keys::table_id(key) == made.inode()) {
            return true;
        }
        let first = self.fresh.iter().find(|(v, _)| *v == volume);
        first.is_some_and(|(_, first)| keys::table_id(key) >= *first)
    }

    /// So many clients may have changed something that is not here yet.
    pub(crate) fn lets_clients_be(&mut self, owners: usize) {
        self.owners = owners;
    }

    /// How many clients may have.
    pub(crate) fn owners(&self) -> usize {
        self.owners
    }

    /// From now on it is noted which inodes it looks at.
    pub(crate) fn note_what_is_seen(&mut self) {
        self.seen = Some(RefCell::default());
    }

    fn note_seen(&self, key: &Key) {
        if let Some(seen) = &self.seen
            && let Some(node) = keys::seen_inode(key)
        {
            let mut seen = seen.borrow_mut();
            if seen.last() != Some(&node) {
                seen.push(node);
            }
        }
    }

    /// Looks at records without that: at what only the file system itself wants to know.
    pub(crate) fn unseen<T>(&self, f: impl FnOnce(&Self) -> T) -> T {
        let before = self.seen.as_ref().map(|seen| seen.borrow().len());
        let value = f(self);
        if let (Some(seen), Some(before)) = (&self.seen, before) {
            seen.borrow_mut().truncate(before);
        }
        value
    }

    /// It looks at nothing for its caller.
    pub(crate) fn sees_nothing(&mut self) {
        self.seen = None;
    }

    /// Takes the inodes that it has looked at.
    pub(crate) fn take_seen(&self) -> Vec<NodeId> {
        self.seen.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// It makes an inode with this number, which was reserved for the client.
    pub(crate) fn makes(&mut self, node: NodeId) {
        self.made = Some(node);
    }

    /// The inode that it makes with such a number.
    pub(crate) fn made(&self) -> Option<NodeId> {
        self.made
    }

    /// Writes a record without versions.
    pub fn put(&mut self, key: Key, value: Value) {
        self.writes.put(key, Some(value), false);
    }

    /// Writes a record of a key that never existed before.
    pub fn put_new(&mut self, key: Key, value: Value) {
        self.writes.put(key, Some(value), true);
    }

    /// Removes a record, or a version of one.
    pub fn remove(&mut self, key: Key) {
        self.writes.put(key, None, false);
    }

    /// The inode; [`Error::Stale`] when there is none, [`Error::Elsewhere`] for one of another
    /// shard.
    pub fn inode(&self, node: NodeId) -> TxResult<Inode> {
        if !self.st.which.has(node) {
            return Err(Error::Elsewhere(node).into());
        }
        match self.get(&keys::inode(node))? {
            Some(v) => Ok(Inode::decode(&v)?),
            None => Err(Error::Stale.into()),
        }
    }

    /// Writes the inode.
    pub fn put_inode(&mut self, node: NodeId, inode: &Inode) -> TxResult<()> {
        let birth = self.epoch(node.volume())?;
        self.settle_content(node, birth)?;
        let key = keys::inode(node);
        self.count_owner(node, &key, Owned::of(inode))?;
        self.keep_inode(&key, birth, inode.birth)?;
        self.put(key, inode.encode_born(birth));
        Ok(())
    }

    /// Writes the record of an inode that has none.
    pub(crate) fn put_new_inode(&mut self, node: NodeId, inode: &Inode) {
        self.count_owned(node, None, Owned::of(inode));
        self.put_new(keys::inode(node), inode.encode());
    }

    /// Removes the inode record.
    pub(crate) fn remove_inode(&mut self, node: NodeId) -> TxResult<()> {
        self.settle_content(node, self.epoch(node.volume())?)?;
        let key = keys::inode(node);
        self.count_owner(node, &key, None)?;
        self.remove_versioned(key)
    }

    /// The inode that a name leads to.
    pub fn dentry(&self, dir: NodeId, name: &[u8]) -> TxResult<Option<Dentry>> {
        match self.get(&keys::dentry(dir, name))? {
            Some(v) => {
                let seen = self.seen_from(dir, Dentry::decode(&v)?);
                Ok(seen.map(|entry| Dentry { node: self.st.shown(dir, entry.node), ..entry }))
            }
            None => Ok(None),
        }
    }

    /// The epoch of the changes, if it is not the volume's.
    pub(crate) fn as_of(&self) -> Option<u32> {
        self.as_of
    }

    /// Sets the epoch of the following changes, if it is an earlier one: content of that epoch
    /// enters the records, or an inode that lost its name then is freed.
    pub(crate) fn set_as_of(&mut self, volume: u32, epoch: u32) {
        let now = self.st.volumes.get(&volume).map_or(0, |v| v.epoch);
        self.as_of = (epoch < now).then_some(epoch);
    }

    /// Whether this operation has written the record already.
    pub(crate) fn has_written(&self, key: &Key) -> bool {
        self.writes.get(key).is_some()
    }

    /// A version of the record is in the history since this operation: it goes on the deadlist.
    pub(crate) fn dies(&mut self, key: Key, pair: EpochPair) {
        self.died.push((pair, key));
    }

    /// Counts entries of a deadlist.
    pub(crate) fn tally(&mut self, volume: u32, pair: EpochPair, by: Tally) {
        self.tallies.push((volume, pair, by));
    }

    /// A record changes as of an earlier epoch: views of that epoch or later ones must load it
    /// again.
    pub(crate) fn note_before(&mut self, key: &Key) {
        if self.as_of.is_some() {
            self.changed_before.push(key.clone());
        }
    }

    /// Adds to the recursive statistics of `dir` and all above it.
    pub fn add_stats(&mut self, dir: NodeId, by: Stats) {
        if !by.is_zero() {
            self.deltas.push((dir, by));
        }
    }

    /// Adds to the referenced bytes of a segment.
    pub fn add_reference(&mut self, segment: u64, bytes: i64) {
        self.references.push((segment, bytes));
    }

    /// The front end gets `node` with the reply, and counts a reference to it, if it counts any.
    pub fn show(&mut self, node: NodeId) {
        if self.ctx.refs {
            self.shown.push(node);
        }
    }

    /// The caller is told all of `node`, and may keep it if it is a client on another machine.
    pub(crate) fn lease(&mut self, node: NodeId) {
        if self.ctx.client > 0 {
            self.leased.push(node);
        }
    }

    /// What a client on another machine gets leases on.
    pub(crate) fn leased(&self) -> &[NodeId] {
        &self.leased
    }

    /// Whatever this changes in records, attributes and content stay what they are.
    pub(crate) fn quietly(&mut self) {
        self.quiet = true;
    }

    /// Whether [`Tx::quietly`] was said.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The number of this operation among all changes.
    pub(crate) fn lsn(&self) -> u64 {
        if self.lsn.get() == 0 {
            self.lsn.set(self.st.next_lsn());
        }
        self.lsn.get()
    }

    /// The operation was done before: of what it changes only content may be missing.
    pub(crate) fn restores_content(&self) -> bool {
        self.ctx.again.is_some_and(|told| told.lsn <= self.st.sessions.committed())
    }

    /// The operation must not be done twice: what comes of it is stored with it, if it is a call of
    /// a client. `node`: the inode that was made or removed. `number`: see [`Told::number`].
    pub(crate) fn comes_to(&mut self, node: NodeId, number: u64) {
        self.comes_to = Some((node, number));
    }

    /// The operation has more steps.
    pub(crate) fn goes_on(&mut self) {
        self.goes_on = true;
    }

    /// For a client the operation builds on this record: what others changed in it is durable
    /// first.
    pub(crate) fn builds_on(&mut self, key: Key) {
        self.builds_on.push(key);
    }

    /// Whether the operation builds on what another client has changed and what is not durable: a
    /// crash could take that, and with it this. Content and attributes are not meant.
    pub(crate) fn builds_on_others(&self) -> bool {
        let is_others = |key: &Key, is_needed: &dyn Fn(&Slot) -> bool| {
            let slots = self.st.overlays().filter_map(|overlay| overlay.get(key));
            slots.into_iter().any(|slot| slot.by != self.ctx.client && is_needed(slot))
        };
        self.builds_on.iter().any(|key| is_others(key, &|_| true))
            || self.writes.list.iter().filter(|(_, _, is_new)| !is_new).any(|(key, value, _)| {
                match keys::parse(key).map(|parsed| parsed.tag) {
                    Some(keys::tag::DENTRY) => is_others(key, &|_| true),
                    Some(keys::tag::INODE) => is_others(key, &|slot| value.is_none() || slot.is_fresh()),
                    _ => false,
                }
            })
    }

    /// The inodes that change for those who have copies of them.
    pub(crate) fn visibly_changed(&self) -> Vec<NodeId> {
        if self.quiet { Vec::new() } else { self.changed_inodes() }
    }

    /// Adds data that must be in the journal with these changes.
    pub(crate) fn inline(&mut self, inline_data: Vec<InlineData>) {
        self.inline_data.extend(inline_data);
    }

    /// Adds an effect on the state for when the operation succeeds.
    pub(crate) fn then(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The effects so far.
    pub(crate) fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// The records that it writes so far, and whether they are of keys that never existed before.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (&Key, &Option<Value>, bool)> {
        self.writes.list.iter().map(|(key, value, is_new)| (key, value, *is_new))
    }

    /// What is in the record before this operation.
    pub(crate) fn before(&self, key: &Key) -> TxResult<Option<Value>> {
        let known = self.st.overlay(key).or_else(|| self.cache.get(key));
        known.ok_or_else(|| Fail::Miss(key.clone()))
    }

    /// What this operation has charged to a quota so far.
    pub(crate) fn charged(&self, of: QuotaOf) -> Stats {
        self.charges.iter().filter(|(to, _)| *to == of).fold(Stats::default(), |sum, (_, by)| sum.plus(*by))
    }

    /// Up to `limit` records in a range, overlays included. Reads the engine under the lock: for
    /// short ranges only.
    pub fn scan(&self, from: &Key, to: &Key, limit: usize, reverse: bool) -> TxResult<Vec<(Key, Value)>> {
        if let Some(view) = keys::view_of(from) {
            return self.scan_view(view, from, to, limit, reverse);
        }
        self.note_seen(from);
        let page = self.kv.scan(from, to, limit + self.hidden(from, to), reverse).map_err(Error::from)?;
        let mut merged: BTreeMap<Key, Option<Value>> = page.into_iter().map(|(k, v)| (k, Some(v))).collect();
        for overlay in self.st.overlays() {
            overlay.scan(from, to, |k, s| {
                merged.insert(k.clone(), s.value.clone());
                true
            });
        }
        merged.extend(
            self.writes
                .list
                .iter()
                .filter(|(k, _, _)| k >= from && k < to)
                .map(|(k, v, _)| (k.clone(), v.clone())),
        );
        let live = merged.into_iter().filter_map(|(k, v)| Some((k, v?)));
        Ok(if reverse { live.rev().take(limit).collect() } else { live.take(limit).collect() })
    }

    /// How many records of the engine removals may hide that are not committed yet.
    fn hidden(&self, from: &Key, to: &Key) -> usize {
        let mut hidden = 0;
        for overlay in self.st.overlays() {
            overlay.scan(from, to, |_, s| {
                hidden += usize::from(s.value.is_none());
                true
            });
        }
        hidden + self.writes.list.iter().filter(|(_, v, _)| v.is_none()).count()
    }

    /// The inodes whose records it changes.
    pub(crate) fn changed_inodes(&self) -> Vec<NodeId> {
        self.writes.list.iter().filter_map(|(key, _, _)| keys::parse_inode(key)).collect()
    }

    /// All is written: what is added must keep the limits of its owners, and events tell of it.
    /// `clock`: the time of this machine.
    pub(crate) fn conclude(&mut self, clock: Time) -> TxResult<()> {
        self.check_owners()?;
        self.find_events(clock)
    }

    /// The attempt succeeded: its changes enter the running transaction. Returns data that died
    /// unsealed.
    pub fn finish(self) -> Vec<(Addr, u32)> {
        let changes = !self.writes.list.is_empty() || !self.effects.is_empty();
        let lsn = if changes { self.lsn() } else { 0 };
        let Tx {
            st,
            events,
            cache,
            ctx,
            writes,
            edits,
            deltas,
            folded,
            references,
            charges,
            owned,
            shown,
            effects,
            inline_data,
            tallies,
            died,
            changed_before,
            as_of,
            mut dead,
            now,
            quiet,
            comes_to,
            goes_on,
            made,
            ..
        } = self;
        debug_assert!(edits.is_empty(), "an operation ended with windows not written back");
        if changes && ctx.again.is_none() {
            st.has_used_lsn(lsn);
        }
        if changes && !quiet && (ctx.client > 0 || ctx.again.is_some()) {
            st.tell(ctx, (lsn, now), comes_to.map(|comes_to| (comes_to, goes_on)), cache);
        }
        if !writes.list.is_empty() {
            *st.running.by_flow.entry(ctx.flow).or_default() += writes.list.len();
        }
        for (key, value, new) in writes.list {
            st.enter_by(key, value, new, (ctx.client, cache));
        }
        if let Some(volume) = folded {
            st.unfolded.clear(volume);
        }
        deltas.into_iter().for_each(|(dir, by)| st.unfolded.add(dir, by));
        charges.into_iter().for_each(|(of, by)| st.quotas.add(of, by));
        events.into_iter().for_each(|(volume, event)| st.events.add(volume, &event));
        owned.into_iter().for_each(|by| st.owners.add(by.volume, by.who, by.recorded, by.used));
        st.running.inline_data.extend(inline_data);
        st.running.died.extend(died);
        for (volume, pair, by) in tallies {
            st.snapshots.add(volume, pair, by);
            st.count_held(volume);
        }
        for effect in effects {
            st.take_effect(effect, &mut dead);
        }
        if let Some(made) = made {
            st.sessions.use_number(ctx.client, made);
        }
        shown.into_iter().for_each(|node| st.refer(ctx, node));
        for (segment, bytes) in references {
            st.segments.add_live(segment, bytes);
        }
        st.forget_in_views(as_of, &changed_before, cache);
        dead
    }
}

impl State {
    /// Views of this epoch or later ones load these records of one inode again.
    fn forget_in_views(&mut self, as_of: Option<u32>, changed: &[Key], cache: &RecordCache) {
        if let (Some(epoch), Some(first)) = (as_of, changed.first().and_then(|key| keys::parse(key))) {
            self.views_changed += 1;
            for view in self.snapshots.views_from(first.node.volume(), epoch) {
                changed.iter().for_each(|key| cache.forget(&keys::with_volume(key, view)));
            }
        }
    }

    /// Notes what a client is told of its change. `comes_to`: see [`Tx::comes_to`], and whether
    /// more steps follow.
    fn tell(
        &mut self,
        ctx: &Ctx,
        (lsn, now): (u64, Time),
        comes_to: Option<((NodeId, u64), bool)>,
        cache: &RecordCache,
    ) {
        let (node, number) = comes_to.map_or((NodeId(0), 0), |(comes_to, _)| comes_to);
        let told = Told { lsn, at: nanos(now), node: node.0, number };
        self.sessions.told(lsn);
        if let (Some(call), Some((_, false))) = (ctx.call, comes_to)
            && self.sessions.has(ctx.client)
        {
            let outcome = Outcome { call: call.number, told };
            self.enter(keys::outcome(ctx.client, call.slot), Some(outcome.encode()), false, cache);
        }
        sessions::tell(told);
    }
}

/// Nanoseconds since 1970; of a time before, 0.
pub(crate) fn nanos(time: Time) -> u64 {
    u64::try_from(time.secs).unwrap_or(0) * 1_000_000_000 + u64::from(time.nanos)
}
