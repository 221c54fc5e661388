//! Leases: which clients on other machines may keep copies of which inodes.
//!
//! A client with a lease on an inode may keep its attributes, its content and its extended
//! attributes, and of a directory the names, absent ones too. The engine grants leases where it reads
//! for a client, and looks for conflicts where it changes something, both under its own lock. So a
//! client that holds a lease has what is there.
//!
//! A change **recalls** the leases of other clients first. It runs when they have given them back, or
//! cannot use them any more: clients say each second that they are there, use leases for 5 s after
//! they said so, and lose them 6 s after it was heard, where somebody waits. While a change waits,
//! nothing is granted on its inodes. The rules are those of `docs/decisions/0030` (L1 to L4, T1 to
//! T12), where a checked model has them.
//!
//! One lock, held for a few instructions; the engine's may be held by whoever takes it. What waits
//! for a recall holds no lock.

use crate::NodeId;
use leeward_env::{Env, Nanos};
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a client may use its leases after it sent what was answered.
pub const USED_FOR: Nanos = 5_000_000_000;
/// How long nothing was heard of a client whose leases are taken.
pub const TAKEN_AFTER: Nanos = 6_000_000_000;
/// How long a client may take to answer a recall. After that it is not answered either, until its
/// leases are taken.
pub const ANSWER_TIME: Nanos = 3_000_000_000;
/// Leases at most: of all clients, and of one. Whoever reads more is answered without.
const LEASES_MAX: usize = 4 << 20;
const LEASES_OF_CLIENT_MAX: usize = 1 << 20;
/// How often a change that waits looks at the clock.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// Number of a client: of its session. No client has 0.
pub type ClientId = u64;

/// Tells clients to give leases back.
pub trait Recaller: Send + Sync {
    /// Asks for leases on these inodes; answered by [`Leases::recalled`] with the number. Called
    /// without locks; does not wait.
    fn recall(&self, client: ClientId, number: u64, nodes: &[NodeId]);
}

/// What a client gets leases on with the answer to an operation.
#[derive(Default)]
pub struct Granted {
    /// The inodes.
    pub nodes: Vec<NodeId>,
    /// Where the answer tells all names of a directory: the name of its directory of snapshots, which
    /// may not be among them.
    pub snapshot_dir: Option<Box<[u8]>>,
}

thread_local! {
    /// What operations on this thread have granted.
    static GRANTED: RefCell<Granted> = RefCell::default();
}

/// What the client of the operation that this thread has just run gets leases on. To be called before
/// the operation as well, for those of others.
pub fn take_granted() -> Granted {
    GRANTED.take()
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
    /// Inodes that waiting changes are about, with how many.
    barred: FxHashMap<NodeId, u32>,
    clients: FxHashMap<ClientId, Client>,
    /// Leases of all clients.
    count: usize,
    recovery: Option<Recovery>,
}

/// Clients that may use leases which a server before this one has granted.
struct Recovery {
    awaited: BTreeSet<ClientId>,
    until: Nanos,
}

/// Who has a lease on an inode.
enum Holders {
    One(ClientId),
    Many(Vec<ClientId>),
}

impl Holders {
    fn all(&self) -> &[ClientId] {
        match self {
            Holders::One(client) => std::slice::from_ref(client),
            Holders::Many(clients) => clients,
        }
    }

    fn add(&mut self, client: ClientId) {
        match self {
            Holders::One(first) => *self = Holders::Many(vec![*first, client]),
            Holders::Many(clients) => clients.push(client),
        }
    }

    /// Takes one away; whether none is left.
    fn remove(&mut self, client: ClientId) -> bool {
        match self {
            Holders::One(first) => *first == client,
            Holders::Many(clients) => {
                clients.retain(|c| *c != client);
                clients.is_empty()
            }
        }
    }
}

struct Client {
    /// When it said last that it is there, and was answered.
    renewed: Nanos,
    /// How often its leases were taken.
    term: u32,
    ended: bool,
    leases: FxHashSet<NodeId>,
    /// Recalls that it has not answered, by number.
    recalls: BTreeMap<u64, Recall>,
}

struct Recall {
    at: Nanos,
    nodes: Vec<NodeId>,
}

impl Client {
    fn is_asked_for(&self, node: NodeId) -> bool {
        self.recalls.values().any(|recall| recall.nodes.contains(&node))
    }

    /// Whether it has not answered a recall in time.
    fn is_stuck(&self, now: Nanos) -> bool {
        self.recalls.values().next().is_some_and(|oldest| now.saturating_sub(oldest.at) > ANSWER_TIME)
    }
}

impl Table {
    fn drop_lease(&mut self, client: ClientId, node: NodeId) {
        let had = self.clients.get_mut(&client).is_some_and(|c| c.leases.remove(&node));
        if had {
            self.count -= 1;
            self.drop_holder(client, node);
        }
    }

    fn drop_holder(&mut self, client: ClientId, node: NodeId) {
        if let std::collections::hash_map::Entry::Occupied(mut holders) = self.holders.entry(node)
            && holders.get_mut().remove(client)
        {
            holders.remove();
        }
    }

    /// Takes all leases of a client.
    fn drop_all(&mut self, client: ClientId) {
        let Some(c) = self.clients.get_mut(&client) else { return };
        c.recalls.clear();
        let leases = std::mem::take(&mut c.leases);
        self.count -= leases.len();
        leases.into_iter().for_each(|node| self.drop_holder(client, node));
    }

    fn others(&self, client: ClientId, nodes: &[NodeId]) -> BTreeSet<ClientId> {
        let held = nodes.iter().filter_map(|node| self.holders.get(node));
        held.flat_map(Holders::all).copied().filter(|holder| *holder != client).collect()
    }

    /// Whether clients of the server before may use leases that this one does not know of.
    fn is_recovering(&mut self, now: Nanos) -> bool {
        if self.recovery.as_ref().is_some_and(|r| r.awaited.is_empty() || now >= r.until) {
            self.recovery = None;
        }
        self.recovery.is_some()
    }
}

impl Leases {
    /// No leases.
    pub fn new(env: &Env) -> Leases {
        Leases(Arc::new(Shared {
            env: env.clone(),
            used: AtomicBool::new(false),
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

    /// For [`TAKEN_AFTER`] from now on no change runs until these clients have come: they may use what a
    /// server before this one has granted.
    pub fn await_clients(&self, awaited: BTreeSet<ClientId>) {
        if !awaited.is_empty() {
            let until = self.0.env.now() + TAKEN_AFTER;
            self.0.table.lock().recovery = Some(Recovery { awaited, until });
            self.0.used.store(true, Ordering::Release);
        }
    }

    /// A client of a server before this one has come, and uses nothing that it has from there.
    pub fn came(&self, client: ClientId) {
        if let Some(recovery) = &mut self.0.table.lock().recovery {
            recovery.awaited.remove(&client);
        }
        self.0.given_back.notify_all();
    }

    /// A client begins. Its term.
    pub fn join(&self, client: ClientId) -> u32 {
        let renewed = self.0.env.now();
        let new = || Client {
            renewed,
            term: 0,
            ended: false,
            leases: FxHashSet::default(),
            recalls: BTreeMap::new(),
        };
        let term = self.0.table.lock().clients.entry(client).or_insert_with(new).term;
        self.0.used.store(true, Ordering::Release);
        term
    }

    /// A client is sent away, and may not hear of it: its leases end when it cannot use them any more.
    pub fn end(&self, client: ClientId) {
        if let Some(c) = self.0.table.lock().clients.get_mut(&client) {
            c.ended = true;
        }
    }

    /// Forgets clients that have ended and cannot use their leases any more.
    pub fn forget_ended(&self) {
        let now = self.0.env.now();
        let is_over = |c: &Client| c.ended && now.saturating_sub(c.renewed) >= TAKEN_AFTER;
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
        drop(table);
        self.0.given_back.notify_all();
    }

    /// A client says that it is there, and the term that it knows.
    pub fn keepalive(&self, client: ClientId, term: u32) -> Keepalive {
        let now = self.0.env.now();
        let mut table = self.0.table.lock();
        let Some(c) = table.clients.get_mut(&client) else { return Keepalive::Silence };
        if c.ended || c.is_stuck(now) {
            return Keepalive::Silence;
        }
        if c.term != term {
            return Keepalive::Taken(c.term);
        }
        c.renewed = now;
        Keepalive::Renewed
    }

    /// Whether anybody has leases, so that changes may conflict.
    pub fn are_used(&self) -> bool {
        self.0.used.load(Ordering::Acquire)
    }

    /// Gives a client leases on what it reads now, where no change waits. Called under the lock under
    /// which it reads; [`take_granted`] says on which it has them.
    pub fn grant(&self, client: ClientId, nodes: &[NodeId]) {
        let mut table = self.0.table.lock();
        let table = &mut *table;
        let Some(c) = table.clients.get_mut(&client) else { return };
        let mut granted = Vec::with_capacity(nodes.len());
        for node in nodes {
            // who is asked for a lease would take an answer from before for a new one
            let is_waited_for = table.barred.contains_key(node) || c.is_asked_for(*node);
            if c.ended || node.is_view() || is_waited_for {
                continue;
            }
            if !c.leases.contains(node) {
                if table.count >= LEASES_MAX || c.leases.len() >= LEASES_OF_CLIENT_MAX {
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

    /// A client does not know these inodes any more.
    pub fn release(&self, client: ClientId, nodes: impl Iterator<Item = NodeId>) {
        let mut table = self.0.table.lock();
        nodes.for_each(|node| table.drop_lease(client, node));
        drop(table);
        self.0.given_back.notify_all();
    }

    /// A client has given back what the recall of this number asked for.
    pub fn recalled(&self, client: ClientId, number: u64) {
        let mut table = self.0.table.lock();
        let recall = table.clients.get_mut(&client).and_then(|c| c.recalls.remove(&number));
        recall.into_iter().flat_map(|recall| recall.nodes).for_each(|node| table.drop_lease(client, node));
        drop(table);
        self.0.given_back.notify_all();
    }

    /// Recalls that a client has not answered: it is connected again, and may not have heard of them.
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
        let mut table = self.0.table.lock();
        if table.recovery.is_some() && table.is_recovering(self.0.env.now()) {
            return true;
        }
        let held = nodes.iter().filter_map(|node| table.holders.get(node));
        held.flat_map(Holders::all).any(|holder| *holder != client)
    }

    /// Asks all other clients for their leases on these inodes. Nothing is granted on them as long as
    /// the result lives.
    pub fn recall(&self, client: ClientId, nodes: &[NodeId]) -> Recalling {
        let now = self.0.env.now();
        let mut table = self.0.table.lock();
        nodes.iter().for_each(|node| *table.barred.entry(*node).or_default() += 1);
        let mut asked = Vec::new();
        for holder in table.others(client, nodes) {
            let Some(c) = table.clients.get_mut(&holder) else { continue };
            let is_new = |node: &&NodeId| c.leases.contains(node) && !c.is_asked_for(**node);
            let nodes: Vec<NodeId> = nodes.iter().filter(is_new).copied().collect();
            if !nodes.is_empty() {
                let number = self.0.recalls.fetch_add(1, Ordering::Relaxed) + 1;
                asked.push((holder, number, nodes.clone()));
                c.recalls.insert(number, Recall { at: now, nodes });
            }
        }
        drop(table);
        let recaller = self.0.recaller.lock().clone();
        if let Some(recaller) = recaller.filter(|_| !asked.is_empty()) {
            asked.iter().for_each(|(holder, number, nodes)| recaller.recall(*holder, *number, nodes));
        }
        Recalling { shared: self.0.clone(), client, nodes: nodes.into() }
    }

    /// Asks all clients for all leases in a volume, as [`Leases::recall`] does.
    pub fn recall_volume(&self, volume: u32) -> Recalling {
        let table = self.0.table.lock();
        let nodes: Vec<_> = table.holders.keys().filter(|node| node.volume() == volume).copied().collect();
        drop(table);
        self.recall(0, &nodes)
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
}

impl Recalling {
    /// Waits until no other client uses leases on these inodes: at most as long as a client that says
    /// nothing may use them, and [`ANSWER_TIME`] longer for one that does not give them back.
    pub fn wait(&self) {
        let mut table = self.shared.table.lock();
        loop {
            let now = self.shared.env.now();
            let others = table.others(self.client, &self.nodes);
            if others.is_empty() && !table.is_recovering(now) {
                return;
            }
            let mut taken = false;
            for other in others {
                let is_over = |c: &Client| now.saturating_sub(c.renewed) >= TAKEN_AFTER;
                if table.clients.get(&other).is_some_and(is_over) {
                    taken = true;
                    table.drop_all(other);
                    if let Some(c) = table.clients.get_mut(&other) {
                        c.term = c.term.wrapping_add(1);
                    }
                    self.shared.taken.fetch_add(1, Ordering::Relaxed);
                }
            }
            if taken {
                self.shared.given_back.notify_all();
            } else {
                self.shared.given_back.wait_for(&mut table, WAIT_STEP);
            }
        }
    }
}

impl Drop for Recalling {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        for node in &self.nodes {
            if let std::collections::hash_map::Entry::Occupied(mut changes) = table.barred.entry(*node) {
                *changes.get_mut() -= 1;
                if *changes.get() == 0 {
                    changes.remove();
                }
            }
        }
    }
}
