//! What clients have told their programs and the server has not made: whose it was, and why.
//!
//! A client that is silent for too long loses its leases, and with them what it had told and not
//! sent (`docs/decisions/0036`). Its programs hear EIO at the next fsync. Here is the reason, for
//! `lee why`. In memory only, and bounded: the entry that nothing was added to for longest is
//! dropped.

use super::Shared;
use super::session::Session;
use leeward_env::{Env, Nanos};
use leeward_fs::leases::NOT_ALONE;
use leeward_fs::locks::OwnedLock;
use leeward_fs::{Error, NodeId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;

/// Why a change is refused of a client that is away.
pub(super) const WAS_SILENT: &str = "the client was silent for too long";
/// Entries that are kept, and inodes that are named in one.
const LOSSES_MAX: usize = 256;
const NODES_MAX: usize = 4;
/// How long one is kept after the last change that was added to it, seconds.
const KEPT_SECS: i64 = 7 * 86_400;

/// Changes that are lost for one reason, also in the answers to commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The host whose programs were told of them.
    pub host: String,
    /// The user; `None`: it is not known whose they were.
    pub uid: Option<u32>,
    /// How many; 0: it is not known whether there were any.
    pub changes: u64,
    /// It is not changes that are lost but so many locks, which others wanted.
    #[serde(default)]
    pub locks: u64,
    /// When the first was lost, seconds since 1970.
    pub first_secs: i64,
    /// When the last was.
    pub last_secs: i64,
    /// Why, as the end of a sentence.
    pub why: String,
    /// Numbers of some of the inodes that they were about.
    pub nodes: Vec<u64>,
}

impl Loss {
    fn is_like(&self, (host, uid, why): (&str, Option<u32>, &str)) -> bool {
        self.host == host && self.uid == uid && self.why == why
    }

    /// It is about these inodes, too.
    fn name(&mut self, nodes: &[NodeId]) {
        let new: Vec<u64> =
            nodes.iter().map(|node| node.0).filter(|node| !self.nodes.contains(node)).collect();
        self.nodes.extend(new);
        self.nodes.truncate(NODES_MAX);
    }
}

/// The losses of all clients.
pub(super) struct Losses {
    env: Env,
    all: Mutex<Vec<Loss>>,
}

impl Losses {
    pub(super) fn new(env: &Env) -> Losses {
        Losses { env: env.clone(), all: Mutex::default() }
    }

    /// A change is lost that a client has told a user.
    pub(super) fn add(&self, host: &str, uid: u32, nodes: &[NodeId], why: &str) {
        let mut all = self.all.lock();
        let loss = find_or_begin(&mut all, (host, Some(uid), why), self.now_secs());
        loss.changes += 1;
        loss.name(nodes);
    }

    /// A lock is lost that a user has; `None`: it is not known whose it is.
    pub(super) fn add_lock(&self, host: &str, uid: Option<u32>, node: NodeId, why: &str) {
        let mut all = self.all.lock();
        let loss = find_or_begin(&mut all, (host, uid, why), self.now_secs());
        loss.locks += 1;
        // what is known of nobody is shown to everybody of that machine
        loss.name(if uid.is_some() { std::slice::from_ref(&node) } else { &[] });
    }

    /// A client is gone that may have told its programs what it has not sent.
    pub(super) fn may_be(&self, host: &str, why: &str) {
        find_or_begin(&mut self.all.lock(), (host, None, why), self.now_secs());
    }

    /// All, the latest first.
    pub(super) fn all(&self) -> Vec<Loss> {
        let now = self.now_secs();
        let mut all = self.all.lock();
        all.retain(|loss| now - loss.last_secs <= KEPT_SECS);
        let mut all = all.clone();
        all.sort_by_key(|loss| std::cmp::Reverse(loss.last_secs));
        all
    }

    fn now_secs(&self) -> i64 {
        (self.env.wall() / 1_000_000_000) as i64
    }
}

fn find_or_begin<'a>(all: &'a mut Vec<Loss>, like: (&str, Option<u32>, &str), now: i64) -> &'a mut Loss {
    let at = match all.iter().position(|loss| loss.is_like(like)) {
        Some(at) => at,
        None => {
            if all.len() >= LOSSES_MAX
                && let Some(oldest) = (0..all.len()).min_by_key(|at| all[*at].last_secs)
            {
                all.swap_remove(oldest);
            }
            let (host, uid, why) = (like.0.to_owned(), like.1, like.2.to_owned());
            let nodes = Vec::new();
            all.push(Loss { host, uid, changes: 0, locks: 0, first_secs: now, last_secs: now, why, nodes });
            all.len() - 1
        }
    };
    all[at].last_secs = now;
    &mut all[at]
}

/// Whether an error can come of leases that were taken: others have changed what a client took for
/// its own.
fn is_of_lost_lease(e: &Error) -> bool {
    match e {
        Error::Io(text) => [NOT_ALONE, WAS_SILENT].contains(&&**text),
        Error::Exists
        | Error::NotFound
        | Error::NotEmpty
        | Error::NotDir
        | Error::IsDir
        | Error::Stale
        | Error::NotPermitted => true,
        _ => false,
    }
}

/// Why a client that was silent for so long has lost its locks.
fn of_silence_and_locks(silent: Nanos) -> String {
    format!("it was silent for {} s, and others wanted the same locks", silent / 1_000_000_000)
}

/// Why a client that was silent for so long has lost its leases; 0: it was not.
fn of_silence(silent: Nanos) -> String {
    if silent == 0 {
        return "it did not give back in time what others wanted".into();
    }
    format!("it was silent for {} s, and others wanted the same files", silent / 1_000_000_000)
}

impl Shared {
    /// A change was refused that a client has told a user.
    pub(super) fn lost(&self, session: &Session, uid: u32, nodes: &[NodeId], e: &Error) {
        let why = match session.silence().filter(|_| is_of_lost_lease(e)) {
            Some(silent) => of_silence(silent),
            None => format!("the server did not make it ({e})"),
        };
        session.counts.lost.fetch_add(1, Ordering::Relaxed);
        self.losses.add(&session.host().name, uid, nodes, &why);
    }

    /// Locks of users of a client were taken, which was silent for so long.
    pub(super) fn lost_locks(&self, session: &Session, silent: Nanos, taken: &[(OwnedLock, Option<u32>)]) {
        let (host, why) = (session.host(), of_silence_and_locks(silent));
        tracing::warn!("{}: {} locks of its programs were taken: {why}", host.name, taken.len());
        taken.iter().for_each(|(lock, uid)| self.losses.add_lock(&host.name, *uid, lock.node, &why));
    }

    /// A session ends that its client has not ended.
    pub(super) fn may_have_lost(&self, session: &Session, why: &str) {
        if session.is_expelled() || self.leases.has_exclusive(session.id.number) {
            self.losses.may_be(&session.host().name, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn losses_for_one_reason_are_one() {
        let env = Env::sim(1);
        let losses = Losses::new(&env);
        for node in [1, 2, 2, 3, 4, 5] {
            losses.add("a", 7, &[NodeId(node)], "it was silent");
            env.advance(Duration::from_secs(2));
        }
        losses.add("a", 8, &[NodeId(1)], "it was silent");
        losses.add("a", 7, &[NodeId(1)], "another reason");
        env.advance(Duration::from_secs(1));
        losses.may_be("b", "it is gone");
        let all = losses.all();
        let shown: Vec<_> = all.iter().map(|loss| (&*loss.host, loss.uid, loss.changes)).collect();
        assert_eq!(shown, [("b", None, 0), ("a", Some(8), 1), ("a", Some(7), 1), ("a", Some(7), 6)]);
        assert_eq!(all[3].last_secs - all[3].first_secs, 10);
        assert_eq!(all[3].nodes, [1, 2, 3, 4]);
    }

    #[test]
    fn they_are_bounded_and_end() {
        let env = Env::sim(1);
        let losses = Losses::new(&env);
        for uid in 0..=LOSSES_MAX as u32 {
            losses.add("a", uid, &[], "so");
            env.advance(Duration::from_secs(1));
        }
        let all = losses.all();
        assert_eq!((all.len(), all.last().and_then(|loss| loss.uid)), (LOSSES_MAX, Some(1)));
        env.advance(Duration::from_secs(KEPT_SECS as u64 + 1));
        assert!(losses.all().is_empty());
    }

    #[test]
    fn what_others_have_changed_is_blamed_on_the_silence_and_a_failing_store_is_not() {
        assert!(is_of_lost_lease(&Error::Exists) && is_of_lost_lease(&Error::Io(NOT_ALONE.into())));
        assert!(!is_of_lost_lease(&Error::NoSpace) && !is_of_lost_lease(&Error::Io("no route".into())));
    }

    #[test]
    fn a_silence_is_told_in_seconds() {
        assert_eq!(of_silence(8_200_000_000), "it was silent for 8 s, and others wanted the same files");
        assert_eq!(of_silence(0), "it did not give back in time what others wanted");
    }
}
