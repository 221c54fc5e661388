//! Locks of programs on files, for all machines that have mounted a cell: one table at the server,
//! for all sessions and its own mount.
//!
//! A request that must wait takes no thread: it is a closure that is called when the lock is there.
//! Those who wait are looked at in the order in which they came, and each that nothing is in the
//! way of any more gets its lock. As on a local file system, a request that nothing is in the way
//! of does not wait for earlier ones: an owner that has part of what others wait for may take more.
//!
//! **Grace.** A table that begins may follow one of a server that has ended, whose clients still
//! have locks. For [`GRACE`] from when clients can be heard it only takes what they tell of those,
//! and everything else waits. Later a lock that is told of is taken if nobody has had a lock on the
//! file since.
//!
//! Closures are called with no lock held.

mod ranges;
mod service;
mod state;
#[cfg(test)]
mod tests;

pub use ranges::LockedRanges;
pub use service::{LockService, OwnMount};

use leeward_env::{Env, Nanos};
use leeward_fs::locks::{FileLock, LockOwner, LockRange, LockRequest, OwnedLock};
use leeward_fs::{Error, NodeId, Result};
use parking_lot::Mutex;
use state::{Answers, State};

/// How long a new table takes only what clients tell of their locks.
pub const GRACE: Nanos = 6_000_000_000;
/// The session of the server's own mount.
pub const OWN_MOUNT: u64 = 0;
/// Locked ranges of a session, and requests of it that wait, at most.
pub const LOCKS_MAX: usize = 65_536;
/// Requests of a session that wait, at most.
pub const WAITING_MAX: usize = 16_384;
/// Of these as many are of one user, so that nobody takes all that a machine may have.
pub const LOCKS_OF_USER_MAX: usize = LOCKS_MAX / 4;
/// The same of those that wait.
pub const WAITING_OF_USER_MAX: usize = WAITING_MAX / 4;

/// Takes the answer to a request that has waited.
pub type LockAnswer = Box<dyn FnOnce(Result<()>) + Send>;

/// The locks of a cell. See the module's head.
pub struct LockTable {
    env: Env,
    grace: bool,
    state: Mutex<State>,
}

impl LockTable {
    /// A table without locks. `grace`: clients of a server before may have some.
    pub fn new(env: &Env, grace: bool) -> LockTable {
        let until = grace.then(|| env.awake() + GRACE);
        LockTable { env: env.clone(), grace, state: Mutex::new(State::new(env.random(), until)) }
    }

    /// Clients can tell of their locks only from now on: the grace begins now.
    pub fn begin_grace(&self) {
        if self.grace {
            self.state.lock().begin_grace(self.env.awake() + GRACE);
        }
    }

    /// From now on the session may have locks.
    pub fn begin_session(&self, session: u64) {
        self.state.lock().begin_session(session);
    }

    /// The session has no locks any more, and none of its requests waits.
    pub fn end_session(&self, session: u64) {
        self.change(|state, answers| state.end_session(session, answers));
    }

    /// Takes or converts a lock. `None`: it waits, and `later` is called; else that comes back.
    /// `who`: the session, and the user in it of whose share it is. `ticket`: the session's number
    /// for it; with that of a request that waits it takes the place of that one.
    pub fn set(
        &self,
        who: (u64, u32),
        request: &LockRequest,
        ticket: u64,
        later: LockAnswer,
    ) -> Option<(LockAnswer, Result<()>)> {
        self.change(|state, answers| state.set(who, request, (ticket, later), answers))
    }

    /// A request with this ticket will come, when its rights were checked: until then it can be
    /// cancelled.
    ///
    /// # Errors
    /// [`Error::TooManyLocks`], [`Error::Stale`].
    pub fn announce(&self, session: u64, ticket: u64) -> Result<()> {
        self.state.lock().announce(session, ticket)
    }

    /// The request that was announced does not come.
    pub fn forget_announced(&self, session: u64, ticket: u64) {
        self.state.lock().forget_announced(session, ticket);
    }

    /// Gives up what the owner has in a range.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::TooManyLocks`] when it would cut one range in two and the
    /// session or the user has too many.
    pub fn unlock(&self, session: u64, node: NodeId, owner: LockOwner, range: LockRange) -> Result<()> {
        self.change(|state, answers| state.unlock(session, node, owner, range, answers))
    }

    /// Gives up all that the owner has of a file.
    pub fn release(&self, session: u64, node: NodeId, owner: LockOwner) {
        self.change(|state, answers| state.release(session, node, owner, answers));
    }

    /// A lock that is in the way of this one.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn test(&self, session: u64, request: &LockRequest) -> Result<Option<FileLock>> {
        self.state.lock().test(session, request)
    }

    /// The request waits no longer: it is answered [`Error::Interrupted`]. False: none waits.
    pub fn cancel(&self, session: u64, ticket: u64) -> bool {
        self.change(|state, answers| state.cancel(session, ticket, answers))
    }

    /// Takes a lock that a client had at a server before; false: somebody else may have had it
    /// since.
    pub fn tell(&self, session: u64, told: &OwnedLock) -> bool {
        self.change(|state, answers| state.tell(session, told, answers))
    }

    /// Ends the grace when it is over. To be called now and then.
    pub fn tick(&self) {
        let now = self.env.awake();
        self.change(|state, answers| state.tick(now, answers));
    }

    /// Whether others want locks of a session: somebody in a session of which `is_there` is true
    /// waits for one, or has tried to get it since [`LockTable::forget_tried`].
    pub fn are_wanted(&self, session: u64, is_there: &dyn Fn(u64) -> bool) -> bool {
        self.state.lock().are_wanted(session, is_there)
    }

    /// Takes these locks from the session, and gives them to those who wait. What was taken, and of
    /// which users as far as that is known.
    pub fn take_wanted(&self, session: u64, is_there: &dyn Fn(u64) -> bool) -> Vec<(OwnedLock, Option<u32>)> {
        self.change(|state, answers| state.take_wanted(session, is_there, answers))
    }

    /// Who has tried to get a lock and did not wait does not want it any more.
    pub fn forget_tried(&self) {
        self.state.lock().forget_tried();
    }

    /// How many ranges a session has locked.
    pub fn count(&self, session: u64) -> u64 {
        self.state.lock().count(session)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State, &mut Answers) -> R) -> R {
        let mut answers = Answers::default();
        let result = change(&mut self.state.lock(), &mut answers);
        answers.into_iter().for_each(|(answer, result)| answer(result));
        result
    }
}

fn no_session() -> Error {
    Error::Io("the session has ended".into())
}
