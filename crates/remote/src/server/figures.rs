//! What each host has asked for, for metrics and `lee top`.

use leeward_env::{Env, Machine, Nanos};
use leeward_fs::{Op, Reply, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a host has asked for since the server began to serve, also in the answers to commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFigures {
    /// A number that no other host has, in this process; not in answers.
    #[serde(skip)]
    pub number: u32,
    /// The host.
    pub host: String,
    /// Its sessions that are connected now.
    pub sessions: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time from the arrival of requests to their answers, nanoseconds.
    pub nanos: u64,
    /// Changes that its programs were told of and that are lost.
    #[serde(default)]
    pub lost: u64,
}

/// What went between the server and machines over an address family. Gateways are not in it: their
/// doors count what goes through them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Requests that were answered.
    pub requests: u64,
    /// Content that machines wrote, bytes.
    pub received_bytes: u64,
    /// Content that they read, bytes.
    pub sent_bytes: u64,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// All threads count here: each family in a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Traffic {
    requests: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

impl Traffic {
    fn get(&self) -> Transfers {
        Transfers {
            requests: self.requests.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Counts of one host.
pub(super) struct Counts {
    env: Env,
    number: u32,
    /// Of all hosts, by [`Family`].
    traffic: Arc<[Traffic; 2]>,
    pub(super) machine: Machine,
    requests: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    nanos: AtomicU64,
    pub(super) lost: AtomicU64,
}

/// Counts of all hosts that were connected once.
#[derive(Default)]
pub(super) struct Figures {
    hosts: Mutex<BTreeMap<String, Arc<Counts>>>,
    traffic: Arc<[Traffic; 2]>,
}

impl Figures {
    /// Those of a host.
    pub(super) fn of(&self, env: &Env, host: &str) -> Arc<Counts> {
        let mut all = self.hosts.lock();
        if let Some(counts) = all.get(host) {
            return counts.clone();
        }
        let traffic = self.traffic.clone();
        let counts = Arc::new(Counts { traffic, ..Counts::new(env, all.len() as u32, host) });
        all.insert(host.to_owned(), counts.clone());
        counts
    }

    /// What went over IPv4, and over IPv6.
    pub(super) fn transfers(&self) -> [Transfers; 2] {
        [Family::V4, Family::V6].map(|family| self.traffic[family as usize].get())
    }

    /// All; `sessions` says how many of a host are connected.
    pub(super) fn all(&self, sessions: &BTreeMap<String, u64>) -> Vec<HostFigures> {
        let of = |(host, counts): (&String, &Arc<Counts>)| HostFigures {
            number: counts.number,
            host: host.clone(),
            sessions: sessions.get(host).copied().unwrap_or(0),
            requests: counts.requests.load(Ordering::Relaxed),
            read_bytes: counts.read_bytes.load(Ordering::Relaxed),
            written_bytes: counts.written_bytes.load(Ordering::Relaxed),
            nanos: counts.nanos.load(Ordering::Relaxed),
            lost: counts.lost.load(Ordering::Relaxed),
        };
        self.hosts.lock().iter().map(of).collect()
    }
}

impl Counts {
    pub(super) fn new(env: &Env, number: u32, host: &str) -> Counts {
        Counts {
            env: env.clone(),
            number,
            traffic: Arc::default(),
            machine: Machine::named(host),
            requests: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// An operation comes, over this family; its answer is counted by what this returns. `None`: of
    /// a gateway.
    pub(super) fn begin(self: &Arc<Self>, over: Option<Family>, op: &Op<'_>) -> Counted {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let written = match op {
            Op::Write { data, .. } | Op::Append { data, .. } => data.len() as u64,
            _ => 0,
        };
        let is_read = matches!(op, Op::Read { .. });
        Counted { counts: self.clone(), over, begun: self.env.now(), is_read, written }
    }
}

/// An operation whose answer is to be counted.
pub(super) struct Counted {
    counts: Arc<Counts>,
    over: Option<Family>,
    begun: Nanos,
    is_read: bool,
    written: u64,
}

impl Counted {
    pub(super) fn end(self, result: &Result<Reply>) {
        let counts = &self.counts;
        counts.nanos.fetch_add(counts.env.now().saturating_sub(self.begun), Ordering::Relaxed);
        let (read, written) = match result {
            Ok(Reply::Data(data)) if self.is_read => (data.len() as u64, 0),
            Ok(_) => (0, self.written),
            Err(_) => (0, 0),
        };
        let traffic = self.over.map(|over| &counts.traffic[over as usize]);
        let add = |bytes: u64, of_host: &AtomicU64, of_all: Option<&AtomicU64>| {
            if bytes > 0 {
                of_host.fetch_add(bytes, Ordering::Relaxed);
                of_all.inspect(|all| _ = all.fetch_add(bytes, Ordering::Relaxed));
            }
        };
        add(read, &counts.read_bytes, traffic.map(|traffic| &traffic.sent_bytes));
        add(written, &counts.written_bytes, traffic.map(|traffic| &traffic.received_bytes));
        traffic.inspect(|traffic| _ = traffic.requests.fetch_add(1, Ordering::Relaxed));
    }
}
