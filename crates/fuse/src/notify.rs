//! Tells the kernel to drop what it caches of a name or an inode that changed without its doing.
//!
//! The kernel takes the inode's lock to do so, and whoever holds that lock may be waiting for an
//! answer of ours: hence a thread of its own, which alone may wait there. Whoever announces a
//! change does not wait: it may hold what the kernel's lock waits for. Those who answer other
//! machines do, for a second.
//!
//! An inode that the kernel does not know it may be about to learn of, by an answer from before the
//! change, and would keep what that says. So it is told again a few times.

use crate::kernel::Device;
use leeward_env::{Env, Nanos};
use leeward_fs::{NodeId, Watcher};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// How long somebody waits for the kernel to have been told.
const HEARD_WAIT: Duration = Duration::from_secs(1);
/// When the kernel is told again of an inode that it did not know, each time from the last.
const AGAIN: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(10), Duration::from_millis(100), Duration::from_secs(1)];

enum Change {
    Entry(NodeId, Box<[u8]>),
    Inode(NodeId),
    /// Somebody waits until the kernel has been told of all before.
    Mark(SyncSender<()>),
}

/// Requests for pages at a time. Each has a thread: the kernel writes them one by one.
const PAGES_MAX: usize = 4;

/// What the file system announces changes to.
pub(crate) struct Announcer {
    env: Env,
    queue: Sender<Change>,
    kernel: Arc<Device>,
    /// Requests for pages that the kernel has not answered.
    pages: Arc<AtomicUsize>,
}

impl Announcer {
    /// Starts the thread; it ends when the announcer is gone or the kernel's end is.
    pub(crate) fn start(env: &Env, kernel: Arc<Device>) -> Announcer {
        let (sender, receiver) = channel();
        let telling = Telling { env: env.clone(), kernel: kernel.clone(), again: BTreeSet::new() };
        env.spawn("fuse-notify", move || telling.serve(&receiver));
        Announcer { env: env.clone(), queue: sender, kernel, pages: Arc::default() }
    }

    /// The kernel writes what programs have stored in these pages through mappings, and drops them.
    /// False: that was not done within a second.
    pub(crate) fn get_pages(&self, node: NodeId, range: Range<u64>) -> bool {
        let (kernel, at_work) = (self.kernel.clone(), Getting::of(&self.pages));
        if self.pages.load(Ordering::Relaxed) > PAGES_MAX {
            return false;
        }
        let (told, heard) = sync_channel(1);
        let get = move || {
            // one that it does not know has no pages there
            let _ = kernel.forget_pages(node.0, &range);
            drop(at_work);
            let _ = told.send(()); // or nobody waits any more
        };
        self.env.try_spawn("fuse-pages", get).is_ok() && heard.recv_timeout(HEARD_WAIT).is_ok()
    }

    fn announce(&self, change: Change) {
        // After an unmount nobody listens, and nothing is cached either.
        let _ = self.queue.send(change);
    }
}

/// A request for pages, until the kernel has answered it.
struct Getting(Arc<AtomicUsize>);

impl Getting {
    fn of(all: &Arc<AtomicUsize>) -> Getting {
        all.fetch_add(1, Ordering::Relaxed);
        Getting(all.clone())
    }
}

impl Drop for Getting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watcher for Announcer {
    fn entry_changed(&self, dir: NodeId, name: &[u8]) {
        self.announce(Change::Entry(dir, name.into()));
    }

    fn inode_changed(&self, node: NodeId) {
        self.announce(Change::Inode(node));
    }

    fn attributes_changed(&self, node: NodeId) {
        // one that it does not know it has not kept either
        let _ = self.kernel.forget_attributes(node.0);
    }

    fn wait_applied(&self) {
        let (told, heard) = sync_channel(1);
        self.announce(Change::Mark(told));
        let _ = heard.recv_timeout(HEARD_WAIT);
    }
}

/// What the thread has.
struct Telling {
    env: Env,
    kernel: Arc<Device>,
    /// Inodes that the kernel did not know: when it is told again, how often it was, and of which.
    again: BTreeSet<(Nanos, usize, NodeId)>,
}

impl Telling {
    fn serve(mut self, changes: &Receiver<Change>) {
        loop {
            let done = match self.next(changes) {
                Ok(Change::Entry(dir, name)) => self.kernel.forget_name(dir.0, &name),
                Ok(Change::Inode(node)) => self.forget_inode(node, 0),
                Ok(Change::Mark(told)) => {
                    // Who waited for long has gone.
                    let _ = told.send(());
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => match self.again.pop_first() {
                    Some((_, times, node)) => self.forget_inode(node, times),
                    None => continue,
                },
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match done.map_err(|e| e.raw_os_error()) {
                Err(Some(libc::ENODEV | libc::ENOTCONN)) => return,
                Err(e) => tracing::debug!("the kernel did not take an invalidation: errno {e:?}"),
                Ok(()) => (),
            }
        }
    }

    /// The next change; a timeout when the kernel is to be told of an inode again.
    fn next(&self, changes: &Receiver<Change>) -> Result<Change, RecvTimeoutError> {
        let Some((due, ..)) = self.again.first() else {
            return changes.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        match due.checked_sub(self.env.now()).filter(|left| *left > 0) {
            Some(left) => changes.recv_timeout(Duration::from_nanos(left)),
            None => Err(RecvTimeoutError::Timeout),
        }
    }

    fn forget_inode(&mut self, node: NodeId, times: usize) -> io::Result<()> {
        let done = self.kernel.forget_inode(node.0);
        let is_unknown = done.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT));
        if let Some(after) = AGAIN.get(times).filter(|_| is_unknown) {
            self.again.insert((self.env.now() + after.as_nanos() as Nanos, times + 1, node));
        }
        done
    }
}
