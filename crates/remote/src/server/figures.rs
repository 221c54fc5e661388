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

/// Counts of one host.
pub(super) struct Counts {
    env: Env,
    number: u32,
    pub(super) machine: Machine,
    requests: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    nanos: AtomicU64,
    pub(super) lost: AtomicU64,
}

/// Counts of all hosts that were connected once.
#[derive(Default)]
pub(super) struct Figures(Mutex<BTreeMap<String, Arc<Counts>>>);

impl Figures {
    /// Those of a host.
    pub(super) fn of(&self, env: &Env, host: &str) -> Arc<Counts> {
        let mut all = self.0.lock();
        if let Some(counts) = all.get(host) {
            return counts.clone();
        }
        let counts = Arc::new(Counts::new(env, all.len() as u32, host));
        all.insert(host.to_owned(), counts.clone());
        counts
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
        self.0.lock().iter().map(of).collect()
    }
}

impl Counts {
    pub(super) fn new(env: &Env, number: u32, host: &str) -> Counts {
        Counts {
            env: env.clone(),
            number,
            machine: Machine::named(host),
            requests: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// An operation comes; its answer is counted by what this returns.
    pub(super) fn begin(self: &Arc<Self>, op: &Op<'_>) -> Counted {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let written = match op {
            Op::Write { data, .. } | Op::Append { data, .. } => data.len() as u64,
            _ => 0,
        };
        let is_read = matches!(op, Op::Read { .. });
        Counted { counts: self.clone(), begun: self.env.now(), is_read, written }
    }
}

/// An operation whose answer is to be counted.
pub(super) struct Counted {
    counts: Arc<Counts>,
    begun: Nanos,
    is_read: bool,
    written: u64,
}

impl Counted {
    pub(super) fn end(self, result: &Result<Reply>) {
        let counts = &self.counts;
        counts.nanos.fetch_add(counts.env.now().saturating_sub(self.begun), Ordering::Relaxed);
        match result {
            Ok(Reply::Data(data)) if self.is_read => {
                counts.read_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
            Ok(_) => _ = counts.written_bytes.fetch_add(self.written, Ordering::Relaxed),
            Err(_) => (),
        }
    }
}
