//! The thread `serve-lasting`: what the server stores of sessions so that they survive it, and what
//! it tells clients of what is durable.
//!
//! A session is durable before its client is let in, so that a server after a crash waits for it.
//! One whose client is silent for so long that its leases can be taken is noted as away, when all
//! that it was told is durable: it is not waited for then. That it is back is durable before it is
//! answered.

use super::connection::{Connection, Letting};
use super::session::Session;
use super::{Shared, admit};
use crate::message::{ToClient, frame};
use leeward_fs::leases::TAKEN_AFTER;
use leeward_fs::sessions::SessionRecord;
use leeward_fs::{NodeId, Result};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it is looked whether more is durable, while clients wait to hear that.
const STEP: Duration = Duration::from_millis(20);
/// And when nobody does.
const IDLE_STEP: Duration = Duration::from_millis(500);

/// Locks of one message that says which were taken.
const LOCKS_OF_FRAME: usize = 4096;

/// What the thread is to do.
pub(super) enum Job {
    /// A client is to be let in.
    LetIn(Arc<Connection>, Letting),
    /// A session is over.
    Forget(u64),
    /// The client of a session knows that its leases were taken, so many times.
    Knows(Arc<Session>, usize),
}

/// Does jobs until the server is gone.
pub(super) fn run(shared: &Weak<Shared>, jobs: &Receiver<Job>) {
    let mut step = IDLE_STEP;
    loop {
        let first = match jobs.recv_timeout(step) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(shared) = shared.upgrade() else { return };
        shared.do_jobs(first.into_iter().chain(jobs.try_iter()).collect());
        step = if shared.tell_what_is_durable() { STEP } else { IDLE_STEP };
    }
}

impl Shared {
    fn do_jobs(self: &Arc<Self>, jobs: Vec<Job>) {
        let mut letting = Vec::new();
        for job in jobs {
            match job {
                Job::LetIn(connection, of) => {
                    letting.extend(self.prepare(&connection, of).map(|found| (connection, found)));
                }
                Job::Knows(session, times) => {
                    let knows = || {
                        if session.times_expelled() == times {
                            session.set_expelled(false);
                        }
                        session.is_away()
                    };
                    if let Err(e) = self.store_session(&session, knows) {
                        tracing::warn!("a session cannot be stored: {e}");
                    }
                }
                Job::Forget(number) => {
                    if let Err(e) = self.store.end_session(number) {
                        tracing::warn!("what is stored of a session cannot be removed: {e}");
                    }
                }
            }
        }
        if letting.is_empty() {
            return;
        }
        // one for all
        let durable = self.store.commit();
        for (connection, (session, standing, times)) in letting {
            match &durable {
                // it may be noted as away again
                Ok(()) if !session.comes_back(times) => {
                    connection.refuse(crate::message::Refusal::Busy, "the session was away: try again");
                }
                Ok(()) => connection.welcome(self, &session, standing),
                Err(e) => connection.refuse(
                    crate::message::Refusal::Busy,
                    &format!("the session cannot be stored ({e}): try again"),
                ),
            }
        }
    }

    /// Finds or makes the session of a client, and stores it. How often it was expelled before
    /// that.
    fn prepare(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        of: Letting,
    ) -> Option<(Arc<Session>, crate::message::Standing, usize)> {
        let found = self.session(of).and_then(|(session, standing)| {
            let mut times = 0;
            let is_back = || {
                times = session.times_expelled();
                false
            };
            self.store_session(&session, is_back)
                .map_err(|e| (crate::message::Refusal::Busy, e.to_string()))?;
            Ok((session, standing, times))
        });
        found.map_err(|(why, text)| connection.refuse(why, &text)).ok()
    }

    /// Stores a session. `is_away`: whether it is to be noted as away; what that does happens
    /// before anything else is stored of it.
    pub(super) fn store_session(&self, session: &Session, is_away: impl FnOnce() -> bool) -> Result<()> {
        let _storing = session.storing.lock();
        let away = is_away();
        if !session.is_lasting() {
            return Ok(());
        }
        let number = session.id.number;
        let (secret, key, expelled) = (session.id.secret, session.key, session.is_expelled());
        let record = SessionRecord { number, secret, key, away, expelled };
        self.store.store_session(&record)
    }

    /// Whether clients wait to hear of more.
    fn tell_what_is_durable(&self) -> bool {
        if !self.recovery.is_over() {
            return false;
        }
        let sessions = self.all_sessions();
        let waiting: Vec<_> = sessions.iter().filter(|session| session.waits_to_hear()).collect();
        if !waiting.is_empty() {
            let durable = self.store.durable_up_to();
            waiting.iter().for_each(|session| session.tell_durable(durable));
        }
        self.note_away(&sessions);
        waiting.iter().any(|session| session.waits_to_hear())
    }

    /// Notes clients that were silent for long.
    fn note_away(&self, sessions: &[Arc<Session>]) {
        let now = self.env.awake();
        for session in sessions.iter().filter(|session| session.is_lasting() && !session.is_away()) {
            let is_silent = now.saturating_sub(session.heard()) > TAKEN_AFTER;
            if is_silent
                && session.goes_away()
                && let Err(e) = self.store_session(session, || true)
            {
                tracing::warn!("a session cannot be stored: {e}");
            }
        }
    }

    /// A client names inodes to which it has references since a process before.
    pub(super) fn refer(&self, session: &Arc<Session>, (nodes, last): (&[NodeId], bool)) -> Result<()> {
        let host = session.host();
        if host.grant.is_restricted() || !self.recovery.is_referring(session.id.number) {
            return Err(leeward_fs::Error::NotPermitted);
        }
        let nodes: Vec<NodeId> =
            nodes.iter().copied().filter(|node| admit::may_refer(&host.grant, *node)).collect();
        match session.note_all(&nodes) {
            true => self.store.refer(&nodes),
            false => tracing::warn!(
                "{}: it has more inodes than are counted after a crash: files that it has open may go when they \
                 are removed",
                host.name
            ),
        }
        if last && self.recovery.has_referred(session.id.number) {
            self.store.keep_all_inodes(false);
        }
        Ok(())
    }
}

impl Connection {
    /// Lets a client in, whose session is durable.
    pub(super) fn welcome(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        session: &Arc<Session>,
        standing: crate::message::Standing,
    ) {
        let host = session.host();
        let welcome = ToClient::Welcome {
            version: self.line.version(),
            session: session.id,
            standing,
            instance: shared.instance,
            host: host.name.clone(),
            wants_groups: host.grant.is_restricted(),
            by_tokens: host.grant.by_tokens,
        };
        let servers = shared.servers.lock().clone();
        let mut frames = servers.map_or_else(Vec::new, |list| frame(&ToClient::Servers(list)));
        frames.extend(frame(&welcome));
        for some in session.lost_locks().chunks(LOCKS_OF_FRAME) {
            frames.extend(frame(&ToClient::LocksTaken(some.to_vec())));
        }
        let is_ready = shared.recovery.is_over();
        if is_ready {
            frames.extend(frame(&ToClient::Ready));
        }
        if !self.let_in(session, &frames, shared.env.awake()) {
            if session.is_unused() {
                shared.forget_session(session);
            }
            return self.refuse(crate::message::Refusal::Busy, "the session has just ended: try again");
        }
        if !is_ready && shared.recovery.is_over() {
            self.line.pipe.send(&frame(&ToClient::Ready));
        }
        shared.strangers.lock().remove(&self.token);
        // it may have been removed since it was asked for
        shared.host_may_have_changed(session);
        for (number, nodes) in shared.leases.unanswered(session.id.number) {
            self.line.pipe.send(&frame(&ToClient::Recall { number, nodes }));
        }
    }
}
