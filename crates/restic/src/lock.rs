//! Locks of repositories, as restic has them: files that say who works there. One that is not
//! renewed for half an hour counts no more, nor does one of a process of this machine that is gone.
//!
//! Those who only add may be several; who removes is alone.

use crate::repository::Repository;
use crate::tree::Moment;
use crate::{Error, ErrorKind, Id, Result};
use leeward_env::Env;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A lock is renewed after this time.
const RENEW: Duration = Duration::from_secs(300);
/// One that is older counts no more.
const STALE_SECS: i64 = 30 * 60;
/// Who could not renew it for so long stops: soon others believe that it is gone.
const LOST_SECS: i64 = 25 * 60;
/// What failed is tried again after this time.
const RETRY: Duration = Duration::from_secs(60);
/// So long it is waited before it is looked whether another came at the same time.
const SETTLE: Duration = Duration::from_millis(200);

/// Who works in a repository: a file below `locks`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LockFile {
    time: Moment,
    exclusive: bool,
    hostname: String,
    username: String,
    pid: i64,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
}

impl LockFile {
    fn describe(&self) -> String {
        let how = if self.exclusive { " alone" } else { "" };
        format!("process {} of {} on {}{how}, since {}", self.pid, self.username, self.hostname, self.time)
    }
}

/// Names this machine and the user in locks.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The machine.
    pub hostname: String,
    /// The user, or the cell.
    pub username: String,
}

/// A lock, until it is dropped.
pub struct Lock {
    shared: Held,
    renewing: Option<std::thread::JoinHandle<()>>,
}

/// Whether a lock is held.
#[derive(Clone)]
pub(crate) struct Held(Arc<Shared>);

struct Shared {
    repository: Arc<Repository>,
    holder: Holder,
    exclusive: bool,
    state: Mutex<State>,
    ends: Condvar,
}

struct State {
    id: Id,
    renewed_secs: i64,
    /// Others may have believed that it is gone: it does not come back.
    is_lost: bool,
    has_ended: bool,
}

impl Lock {
    /// Takes a lock: `exclusive` is for who removes.
    ///
    /// # Errors
    /// Locked; the place's.
    pub fn take(repository: &Arc<Repository>, holder: &Holder, exclusive: bool) -> Result<Lock> {
        look(repository, holder, exclusive, None)?;
        let id = put(repository, holder, exclusive)?;
        repository.env.sleep(SETTLE);
        if let Err(e) = look(repository, holder, exclusive, Some(id)) {
            repository.files.remove(&name(&id))?;
            return Err(e);
        }
        let state = State { id, renewed_secs: now(&repository.env), is_lost: false, has_ended: false };
        let shared = Arc::new(Shared {
            repository: repository.clone(),
            holder: holder.clone(),
            exclusive,
            state: Mutex::new(state),
            ends: Condvar::new(),
        });
        let of = shared.clone();
        let renewing = repository.env.try_spawn("backup-lock", move || of.keep());
        let renewing = renewing.map_err(|_| Error::new(ErrorKind::Failed, "there is no thread to spare"))?;
        Ok(Lock { shared: Held(shared), renewing: Some(renewing) })
    }

    /// Goes on, unless others may believe that it is gone.
    ///
    /// # Errors
    /// Place.
    pub fn need(&self) -> Result<()> {
        self.shared.need()
    }

    pub(crate) fn held(&self) -> Held {
        self.shared.clone()
    }
}

impl Held {
    pub(crate) fn need(&self) -> Result<()> {
        let (mut state, repository) = (self.0.state.lock(), &self.0.repository);
        if state.is_still_held(now(&repository.env)) {
            return Ok(());
        }
        let text = format!(
            "the lock of {} could not be renewed for too long, or was removed: run it again",
            repository.place()
        );
        Err(Error::new(ErrorKind::Place, text))
    }
}

impl State {
    fn is_still_held(&mut self, now: i64) -> bool {
        self.is_lost |= now - self.renewed_secs > LOST_SECS;
        !self.is_lost
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let shared = &self.shared.0;
        shared.state.lock().has_ended = true;
        shared.ends.notify_all();
        if let Some(renewing) = self.renewing.take() {
            let _ = renewing.join();
        }
        let id = shared.state.lock().id;
        if let Err(e) = shared.repository.files.remove(&name(&id)) {
            tracing::warn!("a lock stays for half an hour: {e}");
        }
    }
}

impl Shared {
    /// Renews it until it ends, or is lost.
    fn keep(&self) {
        let (mut state, mut wait) = (self.state.lock(), RENEW);
        while !state.has_ended {
            if !self.ends.wait_for(&mut state, wait).timed_out() {
                continue;
            }
            if !state.is_still_held(now(&self.repository.env)) {
                return;
            }
            let old = state.id;
            drop(state);
            let renewed = self.renew(&old);
            state = self.state.lock();
            match renewed {
                // it may have taken long
                Ok(Some(id)) if state.is_still_held(now(&self.repository.env)) => {
                    (state.id, state.renewed_secs) = (id, now(&self.repository.env));
                    wait = RENEW;
                }
                Ok(Some(id)) => state.id = id,
                Ok(None) => state.is_lost = true,
                Err(e) => {
                    tracing::warn!("a lock cannot be renewed: {e}");
                    wait = RETRY;
                }
            }
        }
    }

    /// `None`: somebody has removed it.
    fn renew(&self, old: &Id) -> Result<Option<Id>> {
        if self.repository.files.get(&name(old))?.is_none() {
            return Ok(None);
        }
        let id = put(&self.repository, &self.holder, self.exclusive)?;
        let _ = self.repository.files.remove(&name(old)); // it counts no more soon
        Ok(Some(id))
    }
}

fn now(env: &Env) -> i64 {
    (env.wall() / 1_000_000_000) as i64
}

fn name(id: &Id) -> String {
    format!("locks/{id}")
}

fn put(repository: &Repository, holder: &Holder, exclusive: bool) -> Result<Id> {
    let wall = repository.env.wall();
    let lock = LockFile {
        time: Moment { secs: (wall / 1_000_000_000) as i64, nanos: (wall % 1_000_000_000) as u32 },
        exclusive,
        hostname: holder.hostname.clone(),
        username: holder.username.clone(),
        pid: std::process::id().into(),
        uid: 0,
        gid: 0,
    };
    repository.put_json("locks", &lock)
}

/// Looks who works there; removes locks that count no more.
fn look(repository: &Repository, holder: &Holder, exclusive: bool, own: Option<Id>) -> Result<()> {
    for (name, _) in repository.files.list("locks")? {
        let Some(id) = Id::parse(&name).filter(|id| Some(*id) != own) else { continue };
        let lock: LockFile = match repository.get_json("locks", &id) {
            Ok(Some(lock)) => lock,
            Ok(None) => continue,
            // it was written in part by who is gone; restic unlock removes it
            Err(e) => return Err(Error::new(ErrorKind::Locked, format!("a lock cannot be read: {e}"))),
        };
        if is_stale(&lock, holder, now(&repository.env)) {
            tracing::info!("removes the lock of {}, which is gone", lock.describe());
            if let Err(e) = repository.files.remove(&format!("locks/{id}")) {
                // perhaps nobody may remove anything there, and it counts no more
                tracing::warn!("a lock that counts no more stays: {e}");
            }
        } else if exclusive || lock.exclusive {
            let place = repository.files.place();
            let text = format!(
                "{} works in the repository {place}: wait for it, or if it is gone for sure: restic -r {place} unlock",
                lock.describe()
            );
            return Err(Error::new(ErrorKind::Locked, text));
        }
    }
    Ok(())
}

fn is_stale(lock: &LockFile, holder: &Holder, now: i64) -> bool {
    // one process serves a cell, and has one lock: another one of its name is of a process before,
    // also where numbers of processes come again
    let is_here = lock.hostname == holder.hostname;
    let is_gone = || {
        i32::try_from(lock.pid).is_ok_and(|pid| {
            // SAFETY: signal 0 only asks.
            unsafe { libc::kill(pid, 0) != 0 && *libc::__errno_location() == libc::ESRCH }
        })
    };
    let is_before = lock.username == holder.username && lock.pid == i64::from(std::process::id());
    now - lock.time.secs > STALE_SECS || is_here && (is_before || is_gone())
}
