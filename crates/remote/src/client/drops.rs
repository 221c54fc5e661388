//! What the front end has kept and must drop.
//!
//! Dropping pages may have to wait for reads that are under way, and so for answers: it happens on
//! threads of its own. After leases were lost other answers wait for it: the kernel believes no
//! attributes that were asked for before, and would go on with pages of which it has not seen that
//! they are old.

use super::Shared;
use crate::message::{Leased, Slot};
use crate::on_drop::{OnDrop, guarded};
use crate::pipe::Pipe;
use leeward_env::{Nanos, Told};
use leeward_fs::{NodeId, Reply, Result};
use std::sync::Arc;
use std::time::Duration;

/// How long these answers are waited for when a server ends in order: longer than a front end takes
/// to drop pages. And how often it is looked.
const DEFER_TIME: Nanos = 3_000_000_000;
const DEFER_STEP: Duration = Duration::from_millis(5);

/// What the server answers.
pub(super) type TheAnswer = (Result<Reply>, Leased, Option<Told>);

/// Answers that wait until pages are dropped.
#[derive(Default)]
pub(super) struct Deferred {
    /// Threads that drop some.
    dropping: usize,
    answers: Vec<(Arc<Pipe>, Slot, TheAnswer)>,
    /// Some that have waited are being given.
    giving: bool,
}

impl Deferred {
    fn are_given(&self) -> bool {
        self.answers.is_empty() && !self.giving
    }
}

impl Shared {
    /// After leases were lost: the front end drops what it has kept of these inodes, and hears
    /// nothing but content before.
    pub(super) fn drop_lost(self: &Arc<Self>, nodes: &[NodeId]) {
        self.drop_attributes(nodes);
        if nodes.is_empty() || self.watcher.lock().is_none() {
            return;
        }
        self.deferred.lock().dropping += 1;
        let shared = self.clone();
        self.when_dropped(nodes.to_vec(), move || shared.give_deferred());
    }

    /// Keeps an answer back, if it must wait; else it is returned.
    pub(super) fn defer(&self, (pipe, slot): (&Arc<Pipe>, Slot), answer: TheAnswer) -> Option<TheAnswer> {
        let mut deferred = self.deferred.lock();
        // reads and writes are what dropping pages waits for
        if deferred.dropping == 0 || matches!(answer.0, Ok(Reply::Data(_) | Reply::Written(_))) {
            return Some(answer);
        }
        deferred.answers.push((pipe.clone(), slot, answer));
        None
    }

    fn give_deferred(self: &Arc<Self>) {
        loop {
            let mut deferred = self.deferred.lock();
            // those that come meanwhile come after these
            if deferred.dropping > 1 || deferred.answers.is_empty() {
                deferred.dropping -= 1;
                return;
            }
            let answers = std::mem::take(&mut deferred.answers);
            deferred.giving = true;
            drop(deferred);
            for (pipe, slot, answer) in answers {
                guarded(|| self.answered(&pipe, slot, answer));
            }
            self.deferred.lock().giving = false;
        }
    }

    /// Waits until none waits any more, for a time; whether all are given.
    pub(super) fn wait_deferred(&self) -> bool {
        let until = self.env.now() + DEFER_TIME;
        loop {
            let are_given = self.deferred.lock().are_given();
            if are_given || self.env.now() > until {
                return are_given;
            }
            self.env.sleep(DEFER_STEP);
        }
    }

    /// The connection is lost: calls are sent again, and answered again. Those that are being given
    /// do not count any more either.
    pub(super) fn forget_deferred(&self) {
        self.deferred.lock().answers.clear();
    }

    /// The front end drops what it may have kept of these inodes.
    pub(super) fn drop_kept(&self, nodes: &[NodeId]) {
        self.drop_attributes(nodes);
        self.drop_pages(nodes.to_vec());
    }

    /// The front end drops attributes, at once.
    pub(super) fn drop_attributes(&self, nodes: &[NodeId]) {
        let watcher = self.watcher.lock().clone();
        if let Some(watcher) = watcher {
            nodes.iter().for_each(|node| watcher.attributes_changed(*node));
        }
    }

    pub(super) fn drop_pages(&self, nodes: Vec<NodeId>) {
        self.when_dropped(nodes, || ());
    }

    /// The front end drops pages of these inodes; then goes on with `then`, on another thread if it
    /// has to wait: for reads that are under way, and so for this thread. After a second it goes on
    /// anyway: the kernel asks for attributes before it uses the pages.
    pub(super) fn when_dropped(&self, nodes: Vec<NodeId>, then: impl FnOnce() + Send + 'static) {
        let watcher = self.watcher.lock().clone();
        let then = OnDrop::new(then);
        if let Some(watcher) = watcher.filter(|_| !nodes.is_empty()) {
            // where the system refuses a thread it goes on at once
            self.droppers.run(move || {
                let _then = then;
                nodes.iter().for_each(|node| watcher.inode_changed(*node));
                watcher.wait_applied();
            });
        }
    }
}
