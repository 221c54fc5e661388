//! Locks of WebDAV clients: on paths, in memory, with an end.
//!
//! They bind only WebDAV clients: the mount and S3 do not know them. A lock goes when its time is
//! over, when its client unlocks, and with the process. A lock is on a path, not on the file that
//! is there.
//!
//! One mutex; every operation walks over the few locks on the way to a path, or below it. The
//! number of locks and their memory are counted as they come and go, by user. Locks whose time is
//! over are removed when there would be too many.

use crate::path::DavPath;
use leeward_env::{Env, Nanos};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most locks at a time.
const LOCKS_MAX: usize = 65_536;
/// Most locks of one user.
const LOCKS_OF_ONE_MAX: usize = 4096;
/// Most memory of all locks, bytes.
const BYTES_MAX: usize = 64 << 20;
/// Most memory of one user's locks, bytes.
const BYTES_OF_ONE_MAX: usize = 4 << 20;
/// How often locks whose time is over are looked for, at most.
const TIDY_EVERY: Nanos = 1_000_000_000;
/// Longest time for which a lock is given.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// `urn:uuid:...`, unguessable.
    pub token: String,
    /// The locked path.
    pub path: DavPath,
    /// Whether everything below it is locked, too.
    pub deep: bool,
    /// Whether others may have one, too.
    pub shared: bool,
    /// The owner.
    pub user: Arc<str>,
    /// The client's description of itself, XML.
    pub owner: Option<String>,
    /// Whether it made an empty file where none was.
    pub is_new: bool,
    /// When it ends, monotonic nanoseconds.
    pub until: Nanos,
}

/// A request for a lock.
#[derive(Clone, Debug)]
pub struct LockRequest {
    /// The path to lock.
    pub path: DavPath,
    /// Whether to lock everything below it, too.
    pub deep: bool,
    /// Whether the lock is shared.
    pub shared: bool,
    /// The user.
    pub user: Arc<str>,
    /// The client's description of itself.
    pub owner: Option<String>,
    /// Whether nothing has this name yet.
    pub is_new: bool,
    /// How long the lock lasts.
    pub time: Duration,
}

/// Why a lock is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// Another lock is there.
    Taken(DavPath),
    /// There are too many.
    Full,
}

/// A change that a request is about to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The content or properties of a resource change.
    Content,
    /// A directory gets a new name.
    NewName,
    /// A name is removed, with everything below.
    Tree,
}

/// All locks.
pub struct Locks {
    env: Env,
    state: Mutex<LockTable>,
}

type ByPath = BTreeMap<DavPath, Vec<Lock>>;

#[derive(Default)]
struct LockTable {
    by_path: ByPath,
    all: LockCount,
    users: FxHashMap<Arc<str>, LockCount>,
    /// When locks whose time is over were last looked for.
    tidied: Option<Nanos>,
}

/// Number and memory of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LockCount {
    locks: usize,
    bytes: usize,
}

impl LockCount {
    fn has_room(self, bytes: usize, locks_max: usize, bytes_max: usize) -> bool {
        self.locks < locks_max && self.bytes + bytes <= bytes_max
    }
}

impl LockTable {
    /// Whether there is room for one more lock of this user, of `bytes`.
    fn has_room(&self, user: &str, bytes: usize) -> bool {
        let of_user = self.users.get(user).copied().unwrap_or_default();
        self.all.has_room(bytes, LOCKS_MAX, BYTES_MAX)
            && of_user.has_room(bytes, LOCKS_OF_ONE_MAX, BYTES_OF_ONE_MAX)
    }

    fn insert(&mut self, lock: Lock) {
        let bytes = lock.bytes();
        for taken in [&mut self.all, self.users.entry(lock.user.clone()).or_default()] {
            taken.locks += 1;
            taken.bytes += bytes;
        }
        self.by_path.entry(lock.path.clone()).or_default().push(lock);
    }

    /// Removes locks on this path.
    fn remove(&mut self, at: &DavPath, which: impl Fn(&Lock) -> bool) {
        let Some(locks) = self.by_path.get_mut(at) else { return };
        for lock in locks.extract_if(.., |lock| which(lock)) {
            let bytes = lock.bytes();
            self.all.locks -= 1;
            self.all.bytes -= bytes;
            if let Some(taken) = self.users.get_mut(&lock.user) {
                taken.locks -= 1;
                taken.bytes -= bytes;
                if taken.locks == 0 {
                    self.users.remove(&lock.user);
                }
            }
        }
        if locks.is_empty() {
            self.by_path.remove(at);
        }
    }

    /// Removes locks whose time is over.
    fn tidy(&mut self, now: Nanos) {
        if self.tidied.is_some_and(|at| now < at + TIDY_EVERY) {
            return;
        }
        self.tidied = Some(now);
        let is_over = |lock: &Lock| lock.until <= now;
        let over = self.by_path.iter().filter(|(_, locks)| locks.iter().any(is_over));
        let over: Vec<DavPath> = over.map(|(at, _)| at.clone()).collect();
        over.iter().for_each(|at| self.remove(at, is_over));
    }
}

impl Lock {
    /// Its approximate memory, bytes: its path is a key, too.
    fn bytes(&self) -> usize {
        let path: usize = self.path.names().iter().map(|name| name.len() + 16).sum();
        2 * path + self.owner.as_ref().map_or(0, String::len) + self.token.len() + size_of::<Lock>()
    }
}

impl Locks {
    /// No locks.
    pub fn new(env: &Env) -> Locks {
        Locks { env: env.clone(), state: Mutex::default() }
    }

    /// Takes a lock.
    ///
    /// # Errors
    /// The lock that is in its way, or that there are too many.
    pub fn take(&self, wish: LockRequest) -> Result<Lock, LockRefusal> {
        let now = self.env.now();
        let state = &mut *self.state.lock();
        let key = wish.path.clone().with_slash(false);
        let blocking_lock = |lock: &&Lock| !(wish.shared && lock.shared);
        if let Some(other) = covering(&state.by_path, &key, now).find(blocking_lock) {
            return Err(LockRefusal::Taken(other.path.clone()));
        }
        if wish.deep
            && let Some(other) = below(&state.by_path, &key, now).find(blocking_lock)
        {
            return Err(LockRefusal::Taken(other.path.clone()));
        }
        let lock = Lock {
            token: format!("urn:uuid:{}", uuid(self.env.random(), self.env.random())),
            path: key,
            deep: wish.deep,
            shared: wish.shared,
            is_new: wish.is_new,
            user: wish.user,
            owner: wish.owner,
            until: until(now, wish.time),
        };
        let bytes = lock.bytes();
        if !state.has_room(&lock.user, bytes) {
            state.tidy(now);
            if !state.has_room(&lock.user, bytes) {
                return Err(LockRefusal::Full);
            }
        }
        state.insert(lock.clone());
        Ok(lock)
    }

    /// Extends the lock with this token that covers a path, if it is this user's.
    pub fn refresh(&self, path: &DavPath, token: &str, user: &str, time: Duration) -> Option<Lock> {
        let now = self.env.now();
        let mut state = self.state.lock();
        let found =
            covering(&state.by_path, path, now).find(|l| l.token == token && *l.user == *user)?.path.clone();
        let lock = state.by_path.get_mut(&found)?.iter_mut().find(|lock| lock.token == token)?;
        lock.until = until(now, time);
        Some(lock.clone())
    }

    /// Removes the lock with this token that covers a path, if it is this user's.
    pub fn give_up(&self, path: &DavPath, token: &str, user: &str) -> bool {
        let now = self.env.now();
        let mut state = self.state.lock();
        let found =
            covering(&state.by_path, path, now).find(|lock| lock.token == token && *lock.user == *user);
        let Some(at) = found.map(|lock| lock.path.clone()) else { return false };
        state.remove(&at, |lock| lock.token == token);
        true
    }

    /// The locks that cover a path.
    pub fn of(&self, path: &DavPath) -> Vec<Lock> {
        let now = self.env.now();
        covering(&self.state.lock().by_path, path, now).cloned().collect()
    }

    /// The lock with this token that covers a path.
    pub fn named(&self, path: &DavPath, token: &str) -> Option<Lock> {
        let now = self.env.now();
        covering(&self.state.lock().by_path, path, now).find(|lock| lock.token == token).cloned()
    }

    /// The path of a lock that forbids a change at `path` by a user who named these tokens; `None`:
    /// no lock does.
    pub fn blocking_lock(
        &self,
        path: &DavPath,
        change: Change,
        user: &str,
        tokens: &[&str],
    ) -> Option<DavPath> {
        let now = self.env.now();
        let state = self.state.lock();
        // of shared locks on the same path, one of this user opens all
        let opens = |lock: &Lock| *lock.user == *user && tokens.contains(&lock.token.as_str());
        let mut closed = covering(&state.by_path, path, now)
            .filter(|lock| !opens(lock) && !shared_with(&state.by_path, lock, &opens));
        if let Some(lock) = closed.next() {
            return Some(lock.path.clone());
        }
        let parent = path.parent().filter(|_| change != Change::Content);
        let of_parent = parent.iter().flat_map(|dir| covering(&state.by_path, dir, now));
        let of_tree = below(&state.by_path, path, now).filter(|_| change == Change::Tree);
        let blocking_lock = |lock: &&Lock| !opens(lock) && !shared_with(&state.by_path, lock, &opens);
        of_parent.chain(of_tree).find(blocking_lock).map(|lock| lock.path.clone())
    }

    /// Removes the locks at a path and below it, as everything there was removed.
    pub fn forget_tree(&self, path: &DavPath) {
        let mut state = self.state.lock();
        let gone: Vec<DavPath> = range(&state.by_path, path).map(|(at, _)| at.clone()).collect();
        gone.iter().for_each(|at| state.remove(at, |_| true));
    }

    /// Seconds that a lock still lasts.
    pub fn seconds_left(&self, lock: &Lock) -> u64 {
        lock.until.saturating_sub(self.env.now()).div_ceil(1_000_000_000)
    }
}

fn until(now: Nanos, time: Duration) -> Nanos {
    now.saturating_add(time.min(LONGEST).as_nanos() as Nanos)
}

/// Locks on a path, and deep ones on paths above it.
fn covering<'s>(state: &'s ByPath, path: &DavPath, now: Nanos) -> impl Iterator<Item = &'s Lock> {
    let path = path.clone().with_slash(false);
    let mut ways = vec![path.clone()];
    let mut at = path.parent();
    while let Some(dir) = at {
        at = dir.parent();
        ways.push(dir.with_slash(false));
    }
    ways.into_iter().enumerate().flat_map(move |(n, way)| {
        let locks = state.get(&way).map(Vec::as_slice).unwrap_or_default();
        locks.iter().filter(move |lock| lock.until > now && (n == 0 || lock.deep))
    })
}

/// Locks at a path and below it.
fn below<'s>(state: &'s ByPath, path: &DavPath, now: Nanos) -> impl Iterator<Item = &'s Lock> {
    range(state, path).flat_map(|(_, locks)| locks).filter(move |lock| lock.until > now)
}

fn range<'s>(state: &'s ByPath, path: &DavPath) -> impl Iterator<Item = (&'s DavPath, &'s Vec<Lock>)> {
    let from = path.clone().with_slash(false);
    let within = from.clone();
    state.range(from..).take_while(move |(at, _)| at.is_within(&within))
}

/// Whether a lock that `opens` accepts shares this lock's path.
fn shared_with(state: &ByPath, lock: &Lock, opens: &impl Fn(&Lock) -> bool) -> bool {
    lock.shared && state.get(&lock.path).is_some_and(|locks| locks.iter().any(|l| l.shared && opens(l)))
}

/// A random UUID (version 4).
fn uuid(high: u64, low: u64) -> String {
    let high = high & !0xf000 | 0x4000;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> DavPath {
        DavPath::parse(text).unwrap()
    }

    fn wish(at: &str, user: &str, deep: bool, shared: bool) -> LockRequest {
        let time = Duration::from_secs(60);
        LockRequest { path: path(at), deep, shared, user: user.into(), owner: None, is_new: false, time }
    }

    #[test]
    fn exclusive_locks_exclude() {
        let locks = Locks::new(&Env::sim(1));
        let a = locks.take(wish("/a/", "me", true, false)).unwrap();
        assert_eq!(locks.take(wish("/a", "you", false, true)), Err(LockRefusal::Taken(path("/a"))));
        assert_eq!(locks.take(wish("/a/b", "you", false, false)), Err(LockRefusal::Taken(path("/a"))));
        assert_eq!(locks.take(wish("/", "you", true, false)), Err(LockRefusal::Taken(path("/a"))));
        let root = locks.take(wish("/", "you", false, false)).unwrap();
        assert!(locks.take(wish("/ab", "you", true, false)).is_ok());
        assert!(!locks.give_up(&path("/a"), &a.token, "you") && !locks.give_up(&path("/x"), &a.token, "me"));
        assert!(locks.give_up(&path("/a/b"), &a.token, "me"), "by any path that it covers");
        assert!(locks.take(wish("/a/b", "you", false, false)).is_ok());
        assert!(root.token.starts_with("urn:uuid:") && root.token.len() == 45 && root.token != a.token);
    }

    #[test]
    fn who_names_the_token_and_is_its_user_may_change() {
        let locks = Locks::new(&Env::sim(1));
        let lock = locks.take(wish("/a/f", "me", false, false)).unwrap();
        let blocking_lock = |at: &str, change, user: &str, tokens: &[&str]| {
            locks.blocking_lock(&path(at), change, user, tokens).map(|at| at.encoded())
        };
        let at_f = Some("/a/f".to_string());
        assert_eq!(blocking_lock("/a/f", Change::Content, "me", &[]), at_f);
        assert_eq!(blocking_lock("/a/f", Change::Content, "you", &[&lock.token]), at_f);
        assert_eq!(blocking_lock("/a/f", Change::Content, "me", &[&lock.token]), None);
        assert_eq!(blocking_lock("/a", Change::Content, "you", &[]), None);
        assert_eq!(blocking_lock("/a", Change::Tree, "you", &[]), at_f, "it would go with the directory");
        assert_eq!(blocking_lock("/a/g", Change::NewName, "you", &[]), None);
        let dir = locks.take(wish("/d/", "me", false, false)).unwrap();
        assert_eq!(blocking_lock("/d/g", Change::NewName, "you", &[]), Some("/d".into()));
        assert_eq!(blocking_lock("/d/g", Change::Content, "you", &[]), None);
        assert_eq!(blocking_lock("/d/g", Change::NewName, "me", &[&dir.token]), None);
    }

    #[test]
    fn shared_locks_share() {
        let locks = Locks::new(&Env::sim(1));
        let mine = locks.take(wish("/f", "me", false, true)).unwrap();
        let yours = locks.take(wish("/f", "you", false, true)).unwrap();
        assert!(locks.take(wish("/f", "they", false, false)).is_err());
        let blocking_lock =
            |user: &str, token: &str| locks.blocking_lock(&path("/f"), Change::Content, user, &[token]);
        assert_eq!(blocking_lock("me", &mine.token), None);
        assert_eq!(blocking_lock("you", &yours.token), None);
        assert_eq!(blocking_lock("they", &yours.token), Some(path("/f")));
    }

    #[test]
    fn locks_end() {
        let env = Env::sim(1);
        let locks = Locks::new(&env);
        let lock = locks.take(wish("/f", "me", false, false)).unwrap();
        env.advance(Duration::from_secs(50));
        assert_eq!(locks.seconds_left(&lock), 10);
        assert!(locks.refresh(&path("/f"), &lock.token, "you", Duration::from_secs(60)).is_none());
        assert!(locks.refresh(&path("/f"), &lock.token, "me", Duration::from_secs(60)).is_some());
        env.advance(Duration::from_secs(50));
        assert!(locks.named(&path("/f"), &lock.token).is_some());
        env.advance(Duration::from_secs(10));
        assert!(locks.named(&path("/f"), &lock.token).is_none() && locks.of(&path("/f")).is_empty());
        assert!(locks.take(wish("/f", "you", false, false)).is_ok());
    }

    #[test]
    fn locks_go_with_what_they_are_on_and_are_bounded() {
        let locks = Locks::new(&Env::sim(1));
        for n in 0..LOCKS_OF_ONE_MAX {
            locks.take(wish(&format!("/d/{n}"), "me", false, false)).unwrap();
        }
        assert_eq!(locks.take(wish("/e", "me", false, false)), Err(LockRefusal::Full));
        assert!(locks.take(wish("/e", "you", false, false)).is_ok());
        locks.forget_tree(&path("/d"));
        assert!(locks.of(&path("/d/1")).is_empty() && !locks.of(&path("/e")).is_empty());
    }

    #[test]
    fn what_locks_take_is_bounded_by_user_and_given_back() {
        let env = Env::sim(1);
        let locks = Locks::new(&env);
        let heavy = |n: usize, user: &str| LockRequest {
            owner: Some("x".repeat(4096)),
            ..wish(&format!("/{user}/{n}"), user, false, false)
        };
        let had = (0..).take_while(|n| locks.take(heavy(*n, "me")).is_ok()).count();
        assert!((BYTES_OF_ONE_MAX / 8192..=BYTES_OF_ONE_MAX / 4096).contains(&had), "{had}");
        assert_eq!(locks.take(wish("/e", "me", false, false)).map(drop), Ok(()), "a small one still fits");
        assert!(locks.take(heavy(0, "you")).is_ok(), "another user has his own");
        // locks whose time is over make room
        env.advance(Duration::from_secs(60));
        assert!(locks.take(heavy(had, "me")).is_ok());
        locks.forget_tree(&path("/"));
        let state = locks.state.lock();
        assert_eq!((state.all, state.users.len(), state.by_path.len()), (LockCount::default(), 0, 0));
    }
}
