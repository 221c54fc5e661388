//! Leases: which clients on other machines may keep copies of which inodes.
//!
//! A client with a lease on an inode may keep its attributes, its content and its extended
//! attributes, and of a directory the names, absent ones too. The engine grants leases where it
//! reads for a client, and looks for conflicts where it changes something, both under its own lock.
//! So a client that holds a lease has what is there.
//!
//! A lease may be **exclusive**: then nobody else has one on the inode, and its client makes
//! changes by itself and sends them later (`docs/decisions/0036`). Whoever else reads the inode
//! recalls it, too.
//!
//! A change **recalls** the leases of other clients first. It runs when they have given them back,
//! or cannot use them any more: clients say each second that they are there, use leases for 5 s
//! after they said so, and lose them 6 s after it was heard, where somebody waits. While a change
//! waits, nothing is granted on its inodes. The rules are those of `docs/decisions/0030` (L1 to L4,
//! T1 to T9), where a checked model has them; 0032 says how this follows them.
//!
//! One lock, held for a few instructions; the engine's may be held by whoever takes it. What waits
//! for a recall holds no lock.

use crate::NodeId;
use leeward_env::waits::Holder;
use leeward_env::{Env, Machine, Nanos};
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long a client may use its leases after it sent what was answered.
pub const USED_FOR: Nanos = 5_000_000_000;
/// How long nothing was heard of a client whose leases are taken.
pub const TAKEN_AFTER: Nanos = 6_000_000_000;
/// How long a client may take to answer a recall. After that it is not answered either, until its
/// leases are taken.
pub const ANSWER_TIME: Nanos = 3_000_000_000;
/// Why a change is refused that its client has told its program.
pub const NOT_ALONE: &str = "the server has taken the lease under which it was made";
/// How long it may take where the server has not done yet what the client waits for.
const BUSY_TIME: Nanos = 60_000_000_000;
/// Leases at most: of all clients, and of one. Whoever reads more is answered without.
const LEASES_MAX: usize = 4 << 20;
const LEASES_OF_CLIENT_MAX: usize = 1 << 20;
/// How long a client gets no leases after it has kept what it was asked for, though it was there.
const NONE_FOR: Nanos = 60_000_000_000;
/// Inodes of one recall.
const RECALL_INODES_MAX: usize = 4096;
/// How long nobody has an exclusive lease on an inode that another one wanted to read or change.
/// Inodes that this is noted of at most.
const CONTENDED_FOR: Nanos = 10_000_000_000;
const CONTENDED_MAX: usize = 65_536;
/// How often a change that waits looks at the clock.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// Number of a client: of its session. No client has 0.
pub type ClientId = u64;

/// Tells clients to give leases back.
pub trait Recaller: Send + Sync {
    /// Asks for leases on these inodes; answered by [`Leases::recalled`] with the number. Called
    /// without locks; does not wait.
    fn recall(&self, client: ClientId, number: u64, nodes: &[NodeId]);

    /// A client that has exclusive leases is silent, and loses them when this returns: it must be
    /// durable that it is away, with all that it was told, and nothing may come from it any more
    /// that it sent before. For how long nothing was heard of it; `None`: it was there, and kept
    /// what it was asked for. Called without locks; may wait.
    fn expel(&self, client: ClientId, silent: Option<Nanos>);
}

/// What a client gets leases on with the answer to an operation.
#[derive(Default)]
pub struct Granted {
    /// The inodes.
    pub nodes: Vec<NodeId>,
    /// Those with exclusive leases.
    pub exclusive: Vec<NodeId>,
    /// Where the answer tells all names of a directory: the name of its directory of snapshots,
    /// which may not be among them.
    pub snapshot_dir: Option<Box<[u8]>>,
    /// The inodes that it has changed.
    pub changed: Vec<NodeId>,
}

thread_local! {
    /// What operations on this thread have granted.
    static GRANTED: RefCell<Granted> = RefCell::default();
}

/// What the client of the operation that this thread has just run gets leases on. To be called
/// before the operation as well, for those of others.
pub fn take_granted() -> Granted {
    GRANTED.take()
}

/// The operation of a client has changed these inodes.
pub fn note_changed(nodes: &[NodeId]) {
    GRANTED.with_borrow_mut(|granted| granted.changed.extend_from_slice(nodes));
}

/// The answer tells all names of a directory, see [`Granted::snapshot_dir`].
pub fn tells_all_names(snapshot_dir: &[u8]) {
    GRANTED.with_borrow_mut(|granted| granted.snapshot_dir = Some(snapshot_dir.into()));
}

/// What a client is told when it says that it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keepalive {
    /// It may use its leases.
    Renewed,
    /// It has lost all leases, and this term has begun.
    Taken(u32),
    /// Nothing: it does not give back what it was asked for.
    Silence,
}

/// The leases of all clients. Cheap to clone.
#[derive(Clone)]
pub struct Leases(Arc<Shared>);

struct Shared {
    env: Env,
    /// Whether there can be conflicts. If not, nothing else is looked at.
    used: AtomicBool,
    /// Exclusive leases.
    exclusive: AtomicUsize,
    /// None are granted any more.
    ends_exclusive: AtomicBool,
    table: Mutex<Table>,
    /// Something was given back or taken.
    given_back: Condvar,
    recaller: Mutex<Option<Arc<dyn Recaller>>>,
    recalls: AtomicU64,
    taken: AtomicU64,
}

#[derive(Default)]
struct Table {
    holders: FxHashMap<NodeId, Holders>,
    /// Inodes that waiting changes are about, with how many, and volumes.
    barred: FxHashMap<NodeId, u32>,
    barred_volumes: FxHashMap<u32, u32>,
    clients: FxHashMap<ClientId, Client>,
    /// Leases of all clients.
    count: usize,
    /// Those that are exclusive, and clients that have some.
    exclusive: usize,
    owners: usize,
    /// Until when nobody gets an exclusive lease on these.
    contended: FxHashMap<NodeId, Nanos>,
}

/// Who has a lease on an inode.
enum Holders {
    One(ClientId),
    Many(Vec<ClientId>),
    /// It is exclusive.
    Only(ClientId),
}

impl Holders {
    fn all(&self) -> &[ClientId] {
        match self {
            Holders::One(client) | Holders::Only(client) => std::slice::from_ref(client),
            Holders::Many(clients) => clients,
        }
    }

    fn add(&mut self, client: ClientId) {
        match self {
            Holders::One(first) | Holders::Only(first) => *self = Holders::Many(vec![*first, client]),
            Holders::Many(clients) => clients.push(client),
        }
    }

    /// Takes one away; whether none is left.
    fn remove(&mut self, client: ClientId) -> bool {
        match self {
            Holders::One(first) | Holders::Only(first) => *first == client,
            Holders::Many(clients) => {
                clients.retain(|c| *c != client);
                clients.is_empty()
            }
        }
    }
}

#[derive(Default)]
struct Client {
    /// The machine that it is on, where that is known.
    machine: Option<Machine>,
    /// When it said last that it is there, and was answered.
    renewed: Nanos,
    /// How often its leases were taken.
    term: u32,
    ended: bool,
    leases: FxHashSet<NodeId>,
    /// How many of them are exclusive.
    exclusive: usize,
    /// See [`Recaller::expel`], which goes on.
    is_expelled: bool,
    /// Recalls that it has not answered, by number, and what they ask for.
    recalls: BTreeMap<u64, Recall>,
    asked_for: FxHashSet<NodeId>,
    /// It has said that it is there while it kept what it was asked for.
    was_heard: bool,
    /// Until then it gets no leases: it has kept some that it was asked for.
    none_until: Nanos,
}

struct Recall {
    at: Nanos,
    nodes: Vec<NodeId>,
}

impl Client {
    /// Whether nothing was heard of it for so long that its leases may be taken.
    fn is_silent(&self, now: Nanos) -> bool {
        now.saturating_sub(self.renewed) >= TAKEN_AFTER
    }

    /// Whether it has not answered a recall in time.
    fn is_stuck(&self, now: Nanos) -> bool {
        self.is_stuck_for(ANSWER_TIME, now)
    }

    fn is_stuck_for(&self, time: Nanos, now: Nanos) -> bool {
        self.recalls.values().next().is_some_and(|oldest| now.saturating_sub(oldest.at) > time)
    }
}

impl Table {
    fn drop_lease(&mut self, client: ClientId, node: NodeId) {
        let had = self.clients.get_mut(&client).is_some_and(|c| c.leases.remove(&node));
        if had {
            self.count -= 1;
            self.share(client, node);
            self.drop_holder(client, node);
        }
    }

    /// An exclusive lease of a client becomes a common one.
    fn share(&mut self, client: ClientId, node: NodeId) {
        if let Some(holders) = self.holders.get_mut(&node)
            && matches!(holders, Holders::Only(only) if *only == client)
        {
            *holders = Holders::One(client);
            self.count_exclusive(client, -1);
        }
    }

    /// A client has so many more exclusive leases.
    fn count_exclusive(&mut self, client: ClientId, by: isize) {
        let Some(c) = self.clients.get_mut(&client) else { return };
        let had = c.exclusive > 0;
        c.exclusive = c.exclusive.saturating_add_signed(by);
        self.exclusive = self.exclusive.saturating_add_signed(by);
        self.owners =
            self.owners + usize::from(!had && c.exclusive > 0) - usize::from(had && c.exclusive == 0);
    }

    /// The other client that has an exclusive lease on an inode.
    fn only_other(&self, client: ClientId, node: NodeId) -> bool {
        matches!(self.holders.get(&node), Some(Holders::Only(only)) if *only != client)
    }

    /// Whether a client may have an exclusive lease on an inode now.
    fn may_have_alone(&self, client: ClientId, node: NodeId, now: Nanos) -> bool {
        let is_alone = match self.holders.get(&node) {
            None => false,
            Some(Holders::One(one)) => *one == client,
            Some(Holders::Only(only)) => *only == client,
            Some(Holders::Many(_)) => false,
        };
        is_alone && self.contended.get(&node).is_none_or(|until| *until <= now)
    }

    /// Somebody else wants to see an inode on which there is an exclusive lease.
    fn note_contended(&mut self, client: ClientId, node: NodeId, now: Nanos) {
        if self.only_other(client, node) {
            if self.contended.len() >= CONTENDED_MAX {
                self.contended.clear();
            }
            self.contended.insert(node, now + CONTENDED_FOR);
        }
    }

    fn drop_holder(&mut self, client: ClientId, node: NodeId) {
        if let Entry::Occupied(mut holders) = self.holders.entry(node)
            && holders.get_mut().remove(client)
        {
            holders.remove();
        }
    }

    /// Takes all leases of a client.
    fn drop_all(&mut self, client: ClientId) {
        let Some(c) = self.clients.get_mut(&client) else { return };
        c.recalls.clear();
        c.asked_for.clear();
        let leases = std::mem::take(&mut c.leases);
        let exclusive = c.exclusive as isize;
        self.count -= leases.len();
        self.count_exclusive(client, -exclusive);
        leases.into_iter().for_each(|node| self.drop_holder(client, node));
    }

    /// A client, for those who wait for it.
    fn holder(&self, client: ClientId, were_taken: bool) -> Option<Holder> {
        let machine = self.clients.get(&client)?.machine?;
        Some(Holder { machine, were_taken })
    }

    /// The inodes among these on which each other client has a lease: there may be a million, of a
    /// thousand clients.
    fn held_by_others(&self, client: ClientId, nodes: &[NodeId]) -> BTreeMap<ClientId, Vec<NodeId>> {
        let mut held: BTreeMap<ClientId, Vec<NodeId>> = BTreeMap::new();
        for node in nodes {
            let holders = self.holders.get(node).map_or(&[][..], Holders::all);
            for holder in holders.iter().filter(|holder| **holder != client) {
                held.entry(*holder).or_default().push(*node);
            }
        }
        held
    }

    /// Another client with a lease on this inode.
    fn other(&self, client: ClientId, node: NodeId) -> Option<ClientId> {
        let holders = self.holders.get(&node).map_or(&[][..], Holders::all);
        holders.iter().copied().filter(|holder| *holder != client).min()
    }

    fn others(&self, client: ClientId, nodes: &[NodeId]) -> BTreeSet<ClientId> {
        let held = nodes.iter().filter_map(|node| self.holders.get(node));
        held.flat_map(Holders::all).copied().filter(|holder| *holder != client).collect()
    }
}

impl Shared {
    /// Under the lock: how many exclusive leases there are.
    fn note(&self, table: &Table) {
        self.exclusive.store(table.exclusive, Ordering::Release);
    }

    /// Before exclusive leases of a silent client are taken.
    fn expel(&self, client: ClientId, silent: Option<Nanos>) {
        let recaller = self.recaller.lock().clone();
        recaller.iter().for_each(|recaller| recaller.expel(client, silent));
    }
}

impl Leases {
    /// No leases.
    pub fn new(env: &Env) -> Leases {
        Leases(Arc::new(Shared {
            env: env.clone(),
            used: AtomicBool::new(false),
            exclusive: AtomicUsize::new(0),
            ends_exclusive: AtomicBool::new(false),
            table: Mutex::default(),
            given_back: Condvar::new(),
            recaller: Mutex::default(),
            recalls: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        }))
    }

    /// From now on clients are told of recalls by this.
    pub fn serve(&self, recaller: Arc<dyn Recaller>) {
        *self.0.recaller.lock() = Some(recaller);
    }

    /// A client begins, on this machine.
    pub fn join(&self, client: ClientId, machine: Option<Machine>) {
        let renewed = self.0.env.awake();
        self.0.table.lock().clients.insert(client, Client { machine, renewed, ..Client::default() });
        self.0.used.store(true, Ordering::Release);
    }

    /// A client is sent away, and may not hear of it: its leases end when it cannot use them any
    /// more.
    pub fn end(&self, client: ClientId) {
        if let Some(c) = self.0.table.lock().clients.get_mut(&client) {
            c.ended = true;
        }
    }

    /// Forgets clients that have ended and cannot use their leases any more.
    pub fn forget_ended(&self) {
        let now = self.0.env.awake();
        let is_over = |c: &Client| c.ended && c.is_silent(now);
        let clients = self.0.table.lock();
        let over: Vec<_> = clients.clients.iter().filter(|(_, c)| is_over(c)).map(|(id, _)| *id).collect();
        drop(clients);
        over.into_iter().for_each(|client| self.leave(client));
    }

    /// A client ends, and uses its leases no more.
    pub fn leave(&self, client: ClientId) {
        let mut table = self.0.table.lock();
        table.drop_all(client);
        table.clients.remove(&client);
        self.0.note(&table);
        drop(table);
        self.0.given_back.notify_all();
    }

    /// A client says that it is there, and the term that it knows. `is_busy`: the server has not
    /// done yet what the client must have done before it gives leases back.
    pub fn keepalive(&self, client: ClientId, term: u32, is_busy: bool) -> Keepalive {
        let now = self.0.env.awake();
        let mut table = self.0.table.lock();
        let Some(c) = table.clients.get_mut(&client) else { return Keepalive::Silence };
        let is_stuck = c.is_stuck(now) && (!is_busy || c.is_stuck_for(BUSY_TIME, now));
        if c.ended || c.is_expelled || is_stuck {
            // one that is being expelled has only come back
            c.was_heard |= !c.is_expelled;
            return Keepalive::Silence;
        }
        if c.term != term {
            return Keepalive::Taken(c.term);
        }
        (c.renewed, c.was_heard) = (now, false);
        Keepalive::Renewed
    }

    /// The connection of a client is lost: it may not have heard what it was asked for.
    pub fn lost(&self, client: ClientId) {
        if let Some(c) = self.0.table.lock().clients.get_mut(&client) {
            c.was_heard = false;
        }
    }

    /// Whether anybody has leases, so that changes may conflict.
    pub fn are_used(&self) -> bool {
        self.0.used.load(Ordering::Acquire)
    }

    /// Gives a client leases on what it reads now, where no change waits. Called under the lock
    /// under which it reads; [`take_granted`] says on which it has them. A client that was silent
    /// gets some when it has said that it is there: they would be taken at once.
    pub fn grant(&self, client: ClientId, nodes: &[NodeId]) {
        let now = self.0.env.awake();
        let mut table = self.0.table.lock();
        let table = &mut *table;
        let Some(c) = table.clients.get_mut(&client) else { return };
        if c.ended || c.is_silent(now) || c.none_until > now {
            return;
        }
        let mut granted = Vec::with_capacity(nodes.len());
        for node in nodes {
            // who is asked for a lease would take an answer from before for a new one
            let is_waited_for = table.barred.contains_key(node)
                || c.asked_for.contains(node)
                || table.barred_volumes.contains_key(&node.volume());
            if node.is_view() || is_waited_for {
                continue;
            }
            if !c.leases.contains(node) {
                if table.count >= LEASES_MAX || c.leases.len() >= LEASES_OF_CLIENT_MAX {
                    continue;
                }
                // whoever reads has recalled it before
                if matches!(table.holders.get(node), Some(Holders::Only(_))) {
                    continue;
                }
                c.leases.insert(*node);
                table.count += 1;
                table.holders.entry(*node).and_modify(|h| h.add(client)).or_insert(Holders::One(client));
            }
            granted.push(*node);
        }
        GRANTED.with_borrow_mut(|all| all.nodes.extend(granted));
    }

    /// Gives a client exclusive leases on what it has just changed, where nobody else has any and
    /// nobody waits. Called under the lock under which it changes; [`take_granted`] says on which
    /// it has them.
    pub fn grant_alone(&self, client: ClientId, nodes: &[NodeId]) {
        let now = self.0.env.awake();
        let mut table = self.0.table.lock();
        let table = &mut *table;
        let Some(c) = table.clients.get(&client) else { return };
        let are_many = table.count > LEASES_MAX / 2 || c.leases.len() > LEASES_OF_CLIENT_MAX / 2;
        let may_have_some = !c.ended && !c.is_silent(now) && c.none_until <= now && !are_many;
        if !may_have_some || self.0.ends_exclusive.load(Ordering::Acquire) {
            return;
        }
        let mut granted = Vec::new();
        for node in nodes {
            let is_waited_for = table.barred.contains_key(node)
                || table.clients[&client].asked_for.contains(node)
                || table.barred_volumes.contains_key(&node.volume());
            if node.is_view() || is_waited_for || !table.may_have_alone(client, *node, now) {
                continue;
            }
            if let Some(holders @ Holders::One(_)) = table.holders.get_mut(node) {
                *holders = Holders::Only(client);
                table.count_exclusive(client, 1);
            }
            granted.push(*node);
        }
        self.0.note(table);
        GRANTED.with_borrow_mut(|all| all.exclusive.extend(granted));
    }

    /// A client has an exclusive lease on an inode that it has just made, whose number nobody else
    /// knows.
    pub fn own(&self, client: ClientId, node: NodeId) {
        let mut table = self.0.table.lock();
        let table = &mut *table;
        let Some(c) = table.clients.get_mut(&client) else { return };
        if c.leases.insert(node) {
            table.count += 1;
            table.count_exclusive(client, 1);
            table.holders.insert(node, Holders::Only(client));
        }
        self.0.note(table);
    }

    /// Whether a client has exclusive leases on all of these inodes.
    pub fn are_owned(&self, client: ClientId, nodes: &[NodeId]) -> bool {
        let table = self.0.table.lock();
        nodes
            .iter()
            .all(|node| matches!(table.holders.get(node), Some(Holders::Only(only)) if *only == client))
    }

    /// Whether there are exclusive leases.
    pub fn are_exclusive(&self) -> bool {
        self.0.exclusive.load(Ordering::Acquire) > 0
    }

    /// Whether a client has exclusive leases: it may have told its programs what it has not sent.
    pub fn has_exclusive(&self, client: ClientId) -> bool {
        self.0.table.lock().clients.get(&client).is_some_and(|c| c.exclusive > 0)
    }

    /// Clients that have exclusive leases.
    pub fn owners(&self) -> usize {
        self.0.table.lock().owners
    }

    /// Those of these inodes on which another client has an exclusive lease.
    pub fn owned_by_others(&self, client: ClientId, nodes: &[NodeId]) -> Vec<NodeId> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let table = self.0.table.lock();
        let mut owned: Vec<NodeId> =
            nodes.iter().copied().filter(|node| table.only_other(client, *node)).collect();
        owned.sort_unstable();
        owned.dedup();
        owned
    }

    /// A client needs exclusive leases on these inodes no more, and has sent all that it changed.
    pub fn share(&self, client: ClientId, nodes: &[NodeId]) {
        let mut table = self.0.table.lock();
        nodes.iter().for_each(|node| table.share(client, *node));
        self.0.note(&table);
    }

    /// Asks all clients for their exclusive leases, of a volume or of all, as [`Leases::recall`]
    /// does.
    pub fn recall_exclusive(&self, volume: Option<u32>) -> Recalling {
        let is_in = |node: &NodeId| volume.is_none_or(|volume| node.volume() == volume);
        let is_it =
            |(node, holders): &(&NodeId, &Holders)| matches!(holders, Holders::Only(_)) && is_in(node);
        self.ask(0, None, |table| table.holders.iter().filter(is_it).map(|(node, _)| *node).collect())
    }

    /// Asks one client for its exclusive leases, in the same way.
    pub fn recall_exclusive_of(&self, client: ClientId) -> Recalling {
        let is_it =
            |(_, holders): &(&NodeId, &Holders)| matches!(holders, Holders::Only(only) if *only == client);
        self.ask(0, None, |table| table.holders.iter().filter(is_it).map(|(node, _)| *node).collect())
    }

    /// Whether another client has an exclusive lease on one of these.
    pub fn conflict_exclusive(&self, client: ClientId, nodes: &[NodeId]) -> bool {
        let table = self.0.table.lock();
        nodes.iter().any(|node| table.only_other(client, *node))
    }

    /// Grants no exclusive leases any more, and takes back those that there are: clients send what
    /// they have told their programs. For an end in order.
    pub fn end_exclusive(&self) {
        self.0.ends_exclusive.store(true, Ordering::Release);
        // a client may own what it makes meanwhile
        while self.are_exclusive() {
            self.recall_exclusive(None).wait();
        }
    }

    /// A client does not know these inodes any more.
    pub fn release(&self, client: ClientId, nodes: impl Iterator<Item = NodeId>) {
        let mut table = self.0.table.lock();
        nodes.for_each(|node| table.drop_lease(client, node));
        self.0.note(&table);
        drop(table);
        self.0.given_back.notify_all();
    }

    /// A client has given back what the recall of this number asked for.
    pub fn recalled(&self, client: ClientId, number: u64) {
        let mut table = self.0.table.lock();
        let recall = table.clients.get_mut(&client).and_then(|c| {
            let recall = c.recalls.remove(&number)?;
            recall.nodes.iter().for_each(|node| _ = c.asked_for.remove(node));
            Some(recall)
        });
        recall.into_iter().flat_map(|recall| recall.nodes).for_each(|node| table.drop_lease(client, node));
        self.0.note(&table);
        drop(table);
        self.0.given_back.notify_all();
    }

    /// Recalls that a client has not answered: it is connected again, and may not have heard of
    /// them.
    pub fn unanswered(&self, client: ClientId) -> Vec<(u64, Vec<NodeId>)> {
        let table = self.0.table.lock();
        let recalls = table.clients.get(&client).into_iter().flat_map(|c| &c.recalls);
        recalls.map(|(number, recall)| (*number, recall.nodes.clone())).collect()
    }

    /// Whether other clients have leases on these inodes, or may have.
    pub fn conflict(&self, client: ClientId, nodes: &[NodeId]) -> bool {
        if nodes.is_empty() {
            return false;
        }
        let table = self.0.table.lock();
        let held = nodes.iter().filter_map(|node| table.holders.get(node));
        held.flat_map(Holders::all).any(|holder| *holder != client)
    }

    /// Asks all other clients for their leases on these inodes. Nothing is granted on them as long
    /// as the result lives.
    pub fn recall(&self, client: ClientId, nodes: &[NodeId]) -> Recalling {
        let now = self.0.env.awake();
        let mut table = self.0.table.lock();
        nodes.iter().for_each(|node| table.note_contended(client, *node, now));
        drop(table);
        self.ask(client, None, |_| nodes.into())
    }

    /// Asks all clients for all leases in a volume, in the same way.
    pub fn recall_volume(&self, volume: u32) -> Recalling {
        let is_in = |node: &&NodeId| node.volume() == volume;
        self.ask(0, Some(volume), |table| table.holders.keys().filter(is_in).copied().collect())
    }

    fn ask(
        &self,
        client: ClientId,
        volume: Option<u32>,
        which: impl FnOnce(&Table) -> Box<[NodeId]>,
    ) -> Recalling {
        let now = self.0.env.awake();
        let mut table = self.0.table.lock();
        let nodes = which(&table);
        nodes.iter().for_each(|node| *table.barred.entry(*node).or_default() += 1);
        volume.iter().for_each(|volume| *table.barred_volumes.entry(*volume).or_default() += 1);
        let mut asked = Vec::new();
        for (holder, held) in table.held_by_others(client, &nodes) {
            let Some(c) = table.clients.get_mut(&holder) else { continue };
            let wanted: Vec<NodeId> = held.into_iter().filter(|node| !c.asked_for.contains(node)).collect();
            for some in wanted.chunks(RECALL_INODES_MAX) {
                let number = self.0.recalls.fetch_add(1, Ordering::Relaxed) + 1;
                asked.push((holder, number, some.to_vec()));
                c.asked_for.extend(some);
                c.recalls.insert(number, Recall { at: now, nodes: some.to_vec() });
            }
        }
        drop(table);
        let recaller = self.0.recaller.lock().clone();
        if let Some(recaller) = recaller.filter(|_| !asked.is_empty()) {
            asked.iter().for_each(|(holder, number, nodes)| recaller.recall(*holder, *number, nodes));
        }
        Recalling { shared: self.0.clone(), client, nodes, volume }
    }

    /// Leases of a client.
    pub fn count(&self, client: ClientId) -> usize {
        self.0.table.lock().clients.get(&client).map_or(0, |c| c.leases.len())
    }

    /// Leases that there are, recalls so far, and how often leases were taken so far.
    pub fn figures(&self) -> (usize, u64, u64) {
        let count = self.0.table.lock().count;
        (count, self.0.recalls.load(Ordering::Relaxed), self.0.taken.load(Ordering::Relaxed))
    }
}

/// Leases on these inodes are asked for, and not granted.
pub struct Recalling {
    shared: Arc<Shared>,
    client: ClientId,
    nodes: Box<[NodeId]>,
    volume: Option<u32>,
}

impl Recalling {
    /// Whether there was no lease to ask for.
    pub fn is_of_none(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Waits until no other client uses leases on these inodes: at most as long as a client that
    /// says nothing may use them, and [`ANSWER_TIME`] longer for one that does not give them back.
    /// Who was the last to have some.
    pub fn wait(&self) -> Option<Holder> {
        let mut table = self.shared.table.lock();
        let (mut last, mut given_back, mut look_at) = (None, 0, 0);
        loop {
            let now = self.shared.env.awake();
            // nothing is granted on these: what was given back stays so
            let mut left = self.nodes[given_back..].iter();
            let first = left.find_map(|node| table.other(self.client, *node));
            given_back = self.nodes.len() - left.len() - usize::from(first.is_some());
            let Some(first) = first else { return last };
            last = table.holder(first, false).or(last);
            let mut taken = false;
            // all of them only now and then: there may be a million, and each client that gives
            // some back wakes whoever waits
            let others = match now >= look_at {
                true => table.others(self.client, &self.nodes[given_back..]),
                false => BTreeSet::new(),
            };
            look_at = if now >= look_at { now + WAIT_STEP.as_nanos() as u64 } else { look_at };
            for other in others {
                let Some(c) = table.clients.get_mut(&other).filter(|c| c.is_silent(now)) else { continue };
                if c.is_expelled {
                    // somebody else is at it
                    continue;
                }
                taken = true;
                if c.exclusive > 0 {
                    c.is_expelled = true;
                    let silent = (!c.was_heard).then(|| now.saturating_sub(c.renewed));
                    drop(table);
                    self.shared.expel(other, silent);
                    table = self.shared.table.lock();
                }
                let now = self.shared.env.awake();
                last = table.holder(other, true).or(last);
                if let Some(c) = table.clients.get_mut(&other) {
                    c.is_expelled = false;
                    c.term = c.term.wrapping_add(1);
                    c.none_until = if c.is_stuck(now) && c.was_heard { now + NONE_FOR } else { 0 };
                }
                table.drop_all(other);
                self.shared.note(&table);
                self.shared.taken.fetch_add(1, Ordering::Relaxed);
            }
            if taken {
                self.shared.given_back.notify_all();
            } else {
                let waited = self.shared.given_back.wait_for(&mut table, WAIT_STEP);
                look_at = if waited.timed_out() { 0 } else { look_at };
            }
        }
    }
}

impl Drop for Recalling {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        self.nodes.iter().for_each(|node| unbar(&mut table.barred, *node));
        self.volume.iter().for_each(|volume| unbar(&mut table.barred_volumes, *volume));
    }
}

/// One change less waits for this.
fn unbar<K: Eq + Hash>(barred: &mut FxHashMap<K, u32>, key: K) {
    if let Entry::Occupied(mut changes) = barred.entry(key) {
        *changes.get_mut() -= 1;
        if *changes.get() == 0 {
            changes.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(10);
    const B: NodeId = NodeId(11);

    #[derive(Default)]
    struct Asked(Mutex<Vec<(ClientId, u64, Vec<NodeId>)>>);

    impl Recaller for Asked {
        fn recall(&self, client: ClientId, number: u64, nodes: &[NodeId]) {
            self.0.lock().push((client, number, nodes.to_vec()));
        }

        fn expel(&self, client: ClientId, _: Option<Nanos>) {
            self.0.lock().push((client, 0, Vec::new()));
        }
    }

    fn leases() -> (Env, Leases, Arc<Asked>) {
        let env = Env::sim(1);
        let (leases, asked) = (Leases::new(&env), Arc::new(Asked::default()));
        leases.serve(asked.clone());
        [1, 2, 3].into_iter().for_each(|client| leases.join(client, Some(machine(client))));
        (env, leases, asked)
    }

    fn machine(client: ClientId) -> Machine {
        Machine::named(&format!("node{client}"))
    }

    fn granted(leases: &Leases, client: ClientId, nodes: &[NodeId]) -> Vec<NodeId> {
        take_granted();
        leases.grant(client, nodes);
        take_granted().nodes
    }

    #[test]
    fn a_change_asks_all_others_once_and_nothing_is_granted_meanwhile() {
        let (_, leases, asked) = leases();
        for client in 1..4 {
            assert_eq!(granted(&leases, client, &[A, B]), [A, B]);
        }
        assert!(leases.conflict(1, &[A]) && leases.conflict(0, &[A]) && !leases.conflict(1, &[NodeId(9)]));
        let first = leases.recall(1, &[A]);
        let second = leases.recall(1, &[A]);
        let all = std::mem::take(&mut *asked.0.lock());
        assert_eq!(all, [(2, 1, vec![A]), (3, 2, vec![A])], "each is asked once");
        assert_eq!(granted(&leases, 1, &[A, B]), [B]);
        drop(first);
        drop(second);
        // who is asked has an answer on its way that it must not believe
        assert_eq!((granted(&leases, 2, &[A]), granted(&leases, 1, &[A])), (vec![], vec![A]));
        assert_eq!(leases.unanswered(2), [(1, vec![A])]);
        leases.recalled(2, 7);
        assert!(leases.conflict(1, &[A]), "an answer to another recall");
        leases.recalled(2, 1);
        leases.recalled(3, 2);
        assert!(!leases.conflict(1, &[A]));
        leases.recall(1, &[A]).wait();
        assert_eq!(granted(&leases, 2, &[A]), [A]);
        leases.release(2, [A, B].into_iter());
        leases.leave(3);
        assert_eq!((leases.count(1), leases.count(2), leases.figures().0), (2, 0, 2));
    }

    #[test]
    fn leases_of_the_silent_are_taken_where_somebody_waits() {
        let (env, leases, _) = leases();
        granted(&leases, 2, &[A]);
        env.advance(Duration::from_nanos(TAKEN_AFTER * 2));
        assert!(leases.conflict(1, &[A]), "nobody waits");
        let holder = leases.recall(1, &[A]).wait();
        assert_eq!(holder, Some(Holder { machine: machine(2), were_taken: true }));
        assert!(!leases.conflict(1, &[A]));
        assert_eq!((leases.figures(), leases.count(2)), ((0, 1, 1), 0));
        assert_eq!(
            (leases.keepalive(2, 0, false), leases.keepalive(2, 0, false)),
            (Keepalive::Taken(1), Keepalive::Taken(1))
        );
        assert_eq!(leases.keepalive(2, 1, false), Keepalive::Renewed);
    }

    /// Else it would lose them at once, and could never come back.
    #[test]
    fn who_was_silent_gets_leases_when_it_has_said_that_it_is_there() {
        let (env, leases, _) = leases();
        let granted_alone = || {
            take_granted();
            leases.grant_alone(2, &[A]);
            take_granted().exclusive
        };
        granted(&leases, 2, &[A]);
        env.advance(Duration::from_nanos(TAKEN_AFTER));
        assert_eq!((granted(&leases, 2, &[B]), granted_alone()), (vec![], vec![]), "not taken yet");
        leases.recall(1, &[A]).wait();
        assert_eq!(leases.keepalive(2, 0, false), Keepalive::Taken(1));
        assert!(granted(&leases, 2, &[A]).is_empty(), "it does not know that yet");
        leases.recall(1, &[A]).wait();
        assert_eq!(leases.figures().2, 1, "nothing more is taken from it");
        assert_eq!(leases.keepalive(2, 1, false), Keepalive::Renewed);
        assert_eq!((granted(&leases, 2, &[A]), granted_alone()), (vec![A], vec![A]));
    }

    /// What it was asked for, and that it is not answered, may not have reached it.
    #[test]
    fn who_has_lost_its_connection_is_silent() {
        for is_lost in [false, true] {
            let (env, leases, _) = leases();
            granted(&leases, 2, &[A]);
            let recalling = leases.recall(1, &[A]);
            env.advance(Duration::from_nanos(ANSWER_TIME + 1));
            assert_eq!(leases.keepalive(2, 0, false), Keepalive::Silence);
            if is_lost {
                leases.lost(2);
            }
            env.advance(Duration::from_nanos(TAKEN_AFTER));
            recalling.wait();
            drop(recalling);
            let _ = (leases.keepalive(2, 0, false), leases.keepalive(2, 1, false));
            assert_eq!(granted(&leases, 2, &[A]).len(), usize::from(is_lost), "was it there: {}", !is_lost);
        }
    }

    #[test]
    fn who_answers_no_recall_is_not_answered() {
        let (env, leases, _) = leases();
        granted(&leases, 2, &[A]);
        let recalling = leases.recall(1, &[A]);
        env.advance(Duration::from_nanos(ANSWER_TIME));
        assert_eq!(leases.keepalive(2, 0, false), Keepalive::Renewed);
        env.advance(Duration::from_nanos(1));
        assert_eq!(leases.keepalive(2, 0, false), Keepalive::Silence);
        env.advance(Duration::from_nanos(TAKEN_AFTER));
        recalling.wait();
        assert_eq!(leases.keepalive(2, 0, false), Keepalive::Taken(1));
    }

    #[test]
    fn who_gives_leases_back_last_is_named_to_those_who_wait() {
        let (env, leases, _) = leases();
        assert_eq!(leases.recall(1, &[A]).wait(), None, "nobody has any");
        [2, 3].into_iter().for_each(|client| _ = granted(&leases, client, &[A]));
        env.advance(Duration::from_nanos(TAKEN_AFTER));
        // one of the two says that it is there, and so is waited for alone
        leases.keepalive(3, 0, false);
        let recalling = leases.recall(1, &[A]);
        let (giving, number) = (leases.clone(), leases.unanswered(3)[0].0);
        let thread = Env::real().spawn("giving", move || {
            Env::real().sleep(Duration::from_millis(50));
            giving.recalled(3, number);
        });
        assert_eq!(recalling.wait(), Some(Holder { machine: machine(3), were_taken: false }));
        thread.join().expect("given back");
        assert_eq!(leases.count(2), 0, "the other's were taken");
    }

    #[test]
    fn who_has_exclusive_leases_is_known() {
        let (_, leases, _) = leases();
        granted(&leases, 2, &[A]);
        assert!(!leases.has_exclusive(2));
        leases.grant_alone(2, &[A]);
        assert!(leases.has_exclusive(2) && !leases.has_exclusive(3));
    }

    #[test]
    fn what_a_client_makes_under_way_is_its_own_though_its_volume_is_recalled() {
        let (_, leases, _) = leases();
        granted(&leases, 1, &[A]);
        leases.grant_alone(1, &[A]);
        let first = leases.recall_volume(A.volume());
        // it has told that before it gives A back
        leases.own(1, B);
        leases.recalled(1, 1);
        first.wait();
        let second = leases.recall_volume(A.volume());
        assert!(!first.is_of_none() && !second.is_of_none());
        drop(first);
        assert_eq!(granted(&leases, 2, &[A]), [], "the volume is recalled as before");
        leases.recalled(1, 2);
        second.wait();
        assert!(leases.recall_volume(A.volume()).is_of_none());
    }

    #[test]
    fn who_is_sent_away_is_waited_for_all_the_same() {
        let (env, leases, _) = leases();
        granted(&leases, 2, &[A]);
        leases.end(2);
        assert_eq!((granted(&leases, 2, &[B]), leases.keepalive(2, 0, false)), (vec![], Keepalive::Silence));
        env.advance(Duration::from_secs(5));
        leases.forget_ended();
        assert!(leases.conflict(1, &[A]));
        env.advance(Duration::from_secs(1));
        leases.forget_ended();
        assert!(!leases.conflict(1, &[A]));
    }

    #[test]
    #[ignore = "prints a figure"]
    fn a_million_leases() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
            statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
        };
        let (_, leases, _) = leases();
        (4..1004).for_each(|client| leases.join(client, None));
        let before = resident();
        for n in 0..1000 {
            let nodes: Vec<NodeId> = (0..1000).map(|i| NodeId(1000 * n + i)).collect();
            granted(&leases, 4 + n, &nodes);
        }
        println!("{} bytes for a lease", (resident() - before) / 1_000_000);
        (4..1004).for_each(|client| _ = granted(&leases, client, &[A]));
        let (clock, begun) = (Env::real(), Env::real().now());
        let recalling = leases.recall(1, &[A]);
        println!("{} us to recall what a thousand keep", (clock.now() - begun) / 1000);
        drop(recalling);
    }
}
