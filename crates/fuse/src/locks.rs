//! Locks of programs on a mount whose file system other machines have mounted, too: the kernel asks
//! for each, and this asks the backend's [`LockService`].
//!
//! What Linux sends, and what follows from it:
//!
//! * A lock of `fcntl` is owned by a process (its table of open files), one of `flock` and one of
//!   `F_OFD_SETLK` by an open file. The kernel gives each owner a number. It does not say that a
//!   lock is of `F_OFD_SETLK`.
//! * FLUSH comes with each `close` and names the process: all that it has locked of the file is
//!   given up.
//! * RELEASE comes after the last `close` of an open file, and names the owner for `flock` only. So
//!   each open file has a handle, and who has locked by it is remembered: owners that are left then
//!   are the open file itself.
//! * INTERRUPT comes once for a request, at the first signal.

use crate::kernel::abi;
use crate::kernel::{Pending, Reply};
use leeward_env::Ctx;
use leeward_fs::locks::{FileLock, LockKind, LockMode, LockOwner, LockRange, LockRequest};
use leeward_fs::{Error, NodeId, Result};
use leeward_vfs::locks::LockService;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What an owner has of one file.
type Key = (NodeId, LockOwner);

/// See the module's head.
pub(crate) struct FileLocks {
    service: Arc<dyn LockService>,
    state: Arc<Mutex<State>>,
    /// Whether an open file has lost a lock.
    any_lost: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    last_handle: u64,
    /// What the door keeps of each open file.
    open: FxHashMap<u64, u64>,
    /// By which open files an owner has locked.
    handles: FxHashMap<Key, BTreeSet<u64>>,
    /// The same by open file.
    owners: FxHashMap<u64, BTreeSet<Key>>,
    /// Open files that have lost a lock.
    lost: FxHashSet<u64>,
    /// Requests that are not answered, by number.
    waiting: FxHashMap<u64, Waiting>,
}

/// A request that can be interrupted.
#[derive(Clone, Copy, Default)]
struct Waiting {
    /// The backend knows of it.
    asked: bool,
    interrupted: bool,
}

/// A request for a lock.
pub(crate) struct Request<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) node: NodeId,
    pub(crate) unique: u64,
    pub(crate) args: abi::LkIn,
    pub(crate) wait: bool,
    /// Knows whether its interrupt has come before it.
    pub(crate) pending: &'a Pending,
}

impl FileLocks {
    pub(crate) fn new(service: Arc<dyn LockService>) -> FileLocks {
        let (state, any_lost) = (Arc::new(Mutex::new(State::default())), Arc::new(AtomicBool::new(false)));
        let (of, any) = (Arc::downgrade(&state), any_lost.clone());
        service.on_lost(Arc::new(move |node, owner| {
            let Some(state) = of.upgrade() else { return };
            let mut state = state.lock();
            let handles = state.handles.get(&(node, owner)).cloned().unwrap_or_default();
            any.fetch_or(!handles.is_empty(), Ordering::Release);
            state.lost.extend(handles);
        }));
        FileLocks { service, state, any_lost }
    }

    /// A handle for a file that is opened; `note` is kept with it.
    pub(crate) fn open(&self, note: u64) -> u64 {
        let mut state = self.state.lock();
        state.last_handle += 1;
        let handle = state.last_handle;
        state.open.insert(handle, note);
        handle
    }

    /// What was kept with a handle.
    pub(crate) fn note_of(&self, handle: u64) -> Option<u64> {
        self.state.lock().open.get(&handle).copied()
    }

    /// Whether the open file has lost a lock. What is done by it then is refused.
    pub(crate) fn is_lost(&self, handle: u64) -> bool {
        self.any_lost.load(Ordering::Acquire) && self.state.lock().lost.contains(&handle)
    }

    /// Takes, converts or gives up a lock.
    pub(crate) fn set(self: &Arc<Self>, request: &Request<'_>, to: Reply) {
        let &Request { ctx, node, unique, args, wait, pending } = request;
        let owner = owner_of(&args);
        let Some(mode) = mode_of(args.lock.kind) else {
            let answer = Box::new(move |result| answer(to, result));
            return self.service.unlock(ctx, node, owner, range_of(&args), answer);
        };
        if self.is_lost(args.handle) {
            return to.error(libc::EIO);
        }
        let mut state = self.state.lock();
        state.note(args.handle, (node, owner));
        state.waiting.insert(unique, Waiting::default());
        drop(state);
        // one that comes from now on finds it
        if pending.has_signal(unique) {
            self.interrupt(unique);
        }
        let (of, ctx_then) = (self.clone(), *ctx);
        let answer = Box::new(move |result: Result<()>| {
            let mut state = of.state.lock();
            state.waiting.remove(&unique);
            // another thread of the process may have closed the file since, which forgets the owner
            let is_open = result.is_ok() && state.note(args.handle, (node, owner));
            drop(state);
            let give_up = || of.service.unlock(&ctx_then, node, owner, range_of(&args), Box::new(drop));
            match result {
                // where whoever asked is dead nobody would give it up
                Ok(()) if is_open => to.done_or_else(give_up),
                Ok(()) => {
                    give_up();
                    to.error(libc::EBADF);
                }
                Err(e) => to.error(e.errno()),
            }
        });
        let lock = FileLock { range: range_of(&args), mode, pid: args.lock.pid };
        self.service.set(ctx, LockRequest { node, owner, lock, wait }, unique, answer);
        let is_interrupted = self.state.lock().waiting.get_mut(&unique).is_some_and(|waiting| {
            waiting.asked = true;
            waiting.interrupted
        });
        if is_interrupted {
            self.service.cancel(unique);
        }
    }

    /// Looks for a lock that is in the way.
    pub(crate) fn test(&self, ctx: &Ctx, node: NodeId, args: &abi::LkIn, to: Reply) {
        let Some(mode) = mode_of(args.lock.kind) else { return to.error(libc::EINVAL) };
        let lock = FileLock { range: range_of(args), mode, pid: args.lock.pid };
        let request = LockRequest { node, owner: owner_of(args), lock, wait: false };
        let asked = args.lock;
        let answer = move |found: Result<Option<FileLock>>| match found {
            Ok(found) => {
                let free = abi::FileLock { kind: libc::F_UNLCK as u32, ..asked };
                to.value(&abi::LkOut { lock: found.map_or(free, |lock| told(&lock)) });
            }
            Err(e) => to.error(e.errno()),
        };
        self.service.test(ctx, request, Box::new(answer));
    }

    /// The request has a signal; false: it is none of these.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let mut state = self.state.lock();
        let Some(waiting) = state.waiting.get_mut(&unique) else { return false };
        waiting.interrupted = true;
        let asked = waiting.asked;
        drop(state);
        if asked {
            self.service.cancel(unique);
        }
        true
    }

    /// A process has closed a descriptor: what it has locked of the file by `fcntl` is given up.
    pub(crate) fn flush(&self, node: NodeId, args: &abi::FlushIn, to: Reply) {
        let owner = LockOwner { kind: LockKind::Posix, number: args.lock_owner };
        let result = if self.is_lost(args.handle) { Err(lost()) } else { Ok(()) };
        if !self.state.lock().forget((node, owner)) {
            return answer(to, result);
        }
        self.service.release(node, owner, Box::new(move |released| answer(to, result.and(released))));
    }

    /// An open file is gone.
    pub(crate) fn release(&self, handle: u64) {
        let mut state = self.state.lock();
        state.open.remove(&handle);
        if state.lost.remove(&handle) && state.lost.is_empty() {
            self.any_lost.store(false, Ordering::Release);
        }
        let owners = state.owners.remove(&handle).unwrap_or_default();
        let mut gone = Vec::new();
        for key in owners {
            let Some(handles) = state.handles.get_mut(&key) else { continue };
            handles.remove(&handle);
            if handles.is_empty() {
                state.handles.remove(&key);
                gone.push(key);
            }
        }
        drop(state);
        gone.into_iter().for_each(|(node, owner)| self.service.release(node, owner, Box::new(drop)));
    }
}

impl State {
    /// The owner may have something of the file by this open one; false: it is open no more.
    fn note(&mut self, handle: u64, key: Key) -> bool {
        let is_open = self.open.contains_key(&handle);
        if is_open {
            self.handles.entry(key).or_default().insert(handle);
            self.owners.entry(handle).or_default().insert(key);
        }
        is_open
    }

    /// The owner has nothing of the file any more; whether it may have had something.
    fn forget(&mut self, key: Key) -> bool {
        let Some(handles) = self.handles.remove(&key) else { return false };
        for handle in handles {
            let Some(owners) = self.owners.get_mut(&handle) else { continue };
            owners.remove(&key);
            if owners.is_empty() {
                self.owners.remove(&handle);
            }
        }
        true
    }
}

/// How files are opened: what the kernel is told, and what is kept of each.
pub(crate) struct Opening {
    pub(crate) flags: u32,
    pub(crate) note: u64,
    pub(crate) locks: Option<Arc<FileLocks>>,
}

impl Opening {
    /// One is open. The kernel keeps its content where it may keep the attributes for some time.
    pub(crate) fn open(&self, keep: Duration) -> abi::OpenOut {
        let is_direct = keep.is_zero() || self.flags & abi::OPEN_DIRECT_IO != 0;
        let how = if is_direct { abi::OPEN_DIRECT_IO } else { abi::OPEN_KEEP_CACHE };
        let handle = self.locks.as_ref().map_or(self.note, |locks| locks.open(self.note));
        abi::OpenOut { handle, flags: self.flags | how, ..abi::OpenOut::default() }
    }

    /// The kernel does not take it.
    pub(crate) fn undo(&self, open: &abi::OpenOut) {
        self.locks.iter().for_each(|locks| locks.release(open.handle));
    }
}

/// Passes an interrupt on to whoever waits.
pub(crate) fn interrupt(locks: Option<&FileLocks>, pending: &Arc<Pending>, unique: u64, is_remote: bool) {
    let is_lock = locks.is_some_and(|locks| locks.interrupt(unique));
    // a server that is away cannot be asked: who is killed does not wait for it
    if !is_lock || is_remote {
        pending.interrupt(unique);
    }
    // it may have been noted since, after it was looked whether this has come
    if !is_lock {
        locks.map(|locks| locks.interrupt(unique));
    }
}

fn answer(to: Reply, result: Result<()>) {
    match result {
        Ok(()) => to.done(),
        Err(e) => to.error(e.errno()),
    }
}

fn lost() -> Error {
    Error::Io("a lock was lost".into())
}

fn owner_of(args: &abi::LkIn) -> LockOwner {
    let is_flock = args.flags & abi::LK_FLOCK != 0;
    LockOwner { kind: if is_flock { LockKind::Flock } else { LockKind::Posix }, number: args.owner }
}

fn range_of(args: &abi::LkIn) -> LockRange {
    LockRange { first: args.lock.start, last: args.lock.end }
}

/// `None`: the lock is given up.
fn mode_of(kind: u32) -> Option<LockMode> {
    match kind as i32 {
        libc::F_RDLCK => Some(LockMode::Shared),
        libc::F_WRLCK => Some(LockMode::Exclusive),
        _ => None,
    }
}

fn told(lock: &FileLock) -> abi::FileLock {
    let kind = match lock.mode {
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    };
    abi::FileLock { start: lock.range.first, end: lock.range.last, kind: kind as u32, pid: lock.pid }
}
