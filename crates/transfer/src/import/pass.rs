//! What all threads of a pass share, and what each has for itself.

use super::content::READ_BYTES;
use super::links::Links;
use super::problem::{Problem, looked_again};
use super::queue::Queue;
use super::state::State;
use super::{Options, Summary};
use crate::sys::{Dir, FileId, Stat};
use crate::{Counters, Error};
use parking_lot::Mutex;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// One pass.
pub(super) struct Pass {
    pub options: Options,
    pub counters: Arc<Counters>,
    pub queue: Queue<Work>,
    pub links: Mutex<Links>,
    pub report: Mutex<Report>,
    /// Why the pass cannot go on.
    pub fatal: Mutex<Option<Error>>,
    /// What the target remembers of passes before.
    pub state: State,
    /// The file system of the source.
    pub device: u64,
    /// The root of the source, to see whether it is still there.
    pub source_root: Dir,
    /// The root of the target: not to be copied into itself.
    pub target_root: FileId,
    pub stopped: AtomicBool,
}

#[derive(Default)]
pub(super) struct Report {
    pub summary: Summary,
    /// Whether a name was not looked at to its end, so that nothing new is known of it.
    pub overlooked: bool,
}

/// What a thread has for itself.
pub(super) struct Worker {
    pub buffer: Vec<u8>,
    pub second: Vec<u8>,
}

impl Worker {
    pub(super) fn new() -> Worker {
        Worker { buffer: vec![0; READ_BYTES], second: vec![0; READ_BYTES] }
    }
}

/// A directory whose names are being brought.
pub(super) struct Node {
    pub source: Dir,
    /// Missing only in a dry run, where the target has no such directory.
    pub target: Option<Dir>,
    /// The source, before its names were read.
    pub stat: Stat,
    /// From the root on, with `/` at the end; empty for the root.
    pub path: Vec<u8>,
    /// Whether this pass has made it, so nothing is in it.
    pub is_new: bool,
    /// Parts of its names that are not done.
    pub parts: AtomicUsize,
}

/// Work for any thread.
pub(super) enum Work {
    /// A directory of both sides and all that is below, and whether the target's was just made.
    Directory(Arc<Node>, CString, bool),
    /// Some names of a directory.
    Names(Arc<Node>, Vec<CString>),
}

impl Pass {
    /// Does one piece of work.
    pub(super) fn step(self: &Arc<Pass>, worker: &mut Worker, work: Work) {
        if self.is_over() {
            return;
        }
        match work {
            Work::Directory(above, name, is_new) => {
                let path = [&above.path[..], name.to_bytes()].concat();
                if let Err(problem) = self.enter(&above, &name, &path, is_new) {
                    self.note(&path, looked_again(&above.source, &name, problem));
                }
            }
            Work::Names(node, names) => {
                for name in names {
                    if self.is_over() {
                        return;
                    }
                    let path = [&node.path[..], name.to_bytes()].concat();
                    self.counters.add_name();
                    if let Err(problem) = self.entry(worker, &node, &name, &path) {
                        self.note(&path, looked_again(&node.source, &name, problem));
                    }
                }
                self.part_done(&node);
            }
        }
    }

    /// One part of the names of a directory is done.
    pub(super) fn part_done(&self, node: &Node) {
        if node.parts.fetch_sub(1, Ordering::AcqRel) == 1
            && let Err(problem) = self.leave(node)
        {
            self.note(&node.path, problem);
        }
    }

    /// Whether nothing more is to be done.
    pub(super) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.fatal.lock().is_some()
    }

    pub(super) fn check_over(&self) -> Result<(), Problem> {
        if self.is_over() { Err(Problem::Over) } else { Ok(()) }
    }
}
