//! Counts of a door, for metrics and `lee status`. They never decrease; users and buckets beyond a
//! limit count together.

use super::{Site, Unfinished};
use leeward_env::Door;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Pairs of a user and a bucket that are counted separately.
const PAIRS_MAX: usize = 512;
/// Label of all others.
const OTHER: &str = "other";

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4, also through a dual-stack socket.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// The family of an address.
    pub fn of(address: SocketAddr) -> Family {
        match address.ip() {
            IpAddr::V6(ip) if ip.to_ipv4_mapped().is_none() => Family::V6,
            _ => Family::V4,
        }
    }

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        }
    }
}

/// Counts of a user in a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfPair {
    /// User.
    pub user: String,
    /// Bucket; empty where the door has none.
    pub bucket: String,
    /// Requests by the class of their answers' status: 1xx to 5xx.
    pub requests: [u64; 5],
    /// Bytes of bodies from clients.
    pub received_bytes: u64,
    /// Bytes of bodies to clients.
    pub sent_bytes: u64,
}

/// Counts of an address family.
#[derive(Debug, Default)]
struct OfFamily {
    open: AtomicU64,
    accepted: AtomicU64,
    requests: [AtomicU64; 5],
    received: AtomicU64,
    sent: AtomicU64,
}

/// A user and a bucket.
type Pair = (Arc<str>, Arc<str>);

/// The figures of a door.
#[derive(Debug)]
pub struct Figures {
    door: Door,
    site: Weak<dyn Site>,
    families: [OfFamily; 2],
    refused: AtomicU64,
    accept_failed: AtomicU64,
    timed_out: AtomicU64,
    handshakes_failed: AtomicU64,
    /// Whether the last connection was refused because there were too many.
    full: AtomicBool,
    pairs: Mutex<FxHashMap<Pair, OfPair>>,
}

/// Connections to all doors of the process: its descriptors limit them.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// A connection that counts as open, until it is dropped.
pub(crate) struct OpenConnection {
    figures: Arc<Figures>,
    family: Family,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.figures.family(self.family).open.fetch_sub(1, Ordering::Relaxed);
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What to count of a request that has ended.
pub(crate) struct Request {
    pub(crate) family: Family,
    pub(crate) status: u16,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) bucket: Option<Arc<str>>,
}

impl Figures {
    pub(crate) fn new(site: &Arc<dyn Site>) -> Figures {
        Figures {
            door: site.door(),
            site: Arc::downgrade(site),
            families: Default::default(),
            refused: AtomicU64::new(0),
            accept_failed: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
            full: AtomicBool::new(false),
            pairs: Mutex::default(),
        }
    }

    /// The door.
    pub fn door(&self) -> Door {
        self.door
    }

    /// Connections that are open.
    pub fn open(&self, family: Family) -> u64 {
        self.family(family).open.load(Ordering::Relaxed)
    }

    /// Connections so far.
    pub fn accepted(&self, family: Family) -> u64 {
        self.family(family).accepted.load(Ordering::Relaxed)
    }

    /// Requests by the class of their answers' status, 1xx to 5xx.
    pub fn requests(&self, family: Family) -> [u64; 5] {
        std::array::from_fn(|class| self.family(family).requests[class].load(Ordering::Relaxed))
    }

    /// Bytes of bodies from clients and to them.
    pub fn bytes(&self, family: Family) -> (u64, u64) {
        let of = self.family(family);
        (of.received.load(Ordering::Relaxed), of.sent.load(Ordering::Relaxed))
    }

    /// Connections that were refused because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed) + self.accept_failed.load(Ordering::Relaxed)
    }

    /// Connections that were cut because their client took too long.
    pub fn timed_out(&self) -> u64 {
        self.timed_out.load(Ordering::Relaxed)
    }

    /// Handshakes of TLS that failed.
    pub fn handshakes_failed(&self) -> u64 {
        self.handshakes_failed.load(Ordering::Relaxed)
    }

    /// Whether there are as many connections as allowed.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Uploads that clients have begun and not ended.
    pub fn unfinished(&self) -> Unfinished {
        self.site.upgrade().map(|site| site.unfinished()).unwrap_or_default()
    }

    /// Counts by user and bucket.
    pub fn pairs(&self) -> Vec<OfPair> {
        let mut all: Vec<OfPair> = self.pairs.lock().values().cloned().collect();
        all.sort_by(|a, b| (&a.user, &a.bucket).cmp(&(&b.user, &b.bucket)));
        all
    }

    /// Counts one more connection, unless all doors together have `most`.
    pub(crate) fn enter(self: &Arc<Self>, address: SocketAddr, most: u64) -> Option<OpenConnection> {
        let one_more = |open| (open < most).then_some(open + 1);
        let entered = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        self.full.store(entered.is_err(), Ordering::Relaxed);
        if entered.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let family = Family::of(address);
        self.family(family).open.fetch_add(1, Ordering::Relaxed);
        self.family(family).accepted.fetch_add(1, Ordering::Relaxed);
        Some(OpenConnection { figures: self.clone(), family })
    }

    pub(crate) fn accept_failed(&self) {
        self.full.store(true, Ordering::Relaxed);
        self.accept_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn timed_out_one(&self) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn handshake_failed(&self) {
        self.handshakes_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, request: &Request) {
        let class = usize::from(request.status / 100).clamp(1, 5) - 1;
        let of = self.family(request.family);
        of.requests[class].fetch_add(1, Ordering::Relaxed);
        of.received.fetch_add(request.received, Ordering::Relaxed);
        of.sent.fetch_add(request.sent, Ordering::Relaxed);
        let Some(user) = &request.user else { return };
        let mut pairs = self.pairs.lock();
        let mut key = (user.clone(), request.bucket.clone().unwrap_or_default());
        if pairs.len() >= PAIRS_MAX && !pairs.contains_key(&key) {
            key = (OTHER.into(), OTHER.into());
        }
        let new = || OfPair { user: key.0.to_string(), bucket: key.1.to_string(), ..OfPair::default() };
        let pair = pairs.entry(key.clone()).or_insert_with(new);
        pair.requests[class] += 1;
        pair.received_bytes += request.received;
        pair.sent_bytes += request.sent;
    }

    fn family(&self, family: Family) -> &OfFamily {
        &self.families[family as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, Body, Client};
    use super::*;

    struct Nothing(Door);

    impl Site for Nothing {
        fn door(&self) -> Door {
            self.0
        }

        fn answer(self: Arc<Self>, _: hyper::Request<Body>, _: Client) -> Answer {
            unreachable!("nobody asks")
        }
    }

    #[test]
    fn all_doors_together_have_so_many_connections() {
        let doors = [Door::S3, Door::Http].map(|door| {
            let site: Arc<dyn Site> = Arc::new(Nothing(door));
            Arc::new(Figures::new(&site))
        });
        let at: SocketAddr = "[::1]:1".parse().expect("an address");
        let first = doors[0].enter(at, 2).expect("the first");
        let second = doors[1].enter(at, 2).expect("the second");
        assert!(doors[0].enter(at, 2).is_none() && doors[0].is_full() && doors[0].refused() == 1);
        drop(second);
        let third = doors[0].enter(at, 2).expect("one has gone");
        assert_eq!((doors[0].open(Family::V6), doors[1].open(Family::V6), doors[0].is_full()), (2, 0, false));
        drop((first, third));
    }
}
