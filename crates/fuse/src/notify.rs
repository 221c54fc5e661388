//! Tells the kernel to drop what it caches of a name or an inode that changed without its doing.
//!
//! The kernel takes the inode's lock to do so, and whoever holds that lock may be waiting for an
//! answer of ours: hence a thread of its own, which alone may wait there. Whoever announces a
//! change does not wait: it may hold what the kernel's lock waits for. Those who answer other
//! machines do, for a second.

use crate::kernel::Device;
use leeward_env::Env;
use leeward_fs::{NodeId, Watcher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// How long somebody waits for the kernel to have been told.
const HEARD_WAIT: Duration = Duration::from_secs(1);

enum Change {
    Entry(NodeId, Box<[u8]>),
    Inode(NodeId),
    /// Somebody waits until the kernel has been told of all before.
    Mark(SyncSender<()>),
}

/// What the file system announces changes to.
pub(crate) struct Announcer {
    queue: Sender<Change>,
    kernel: Arc<Device>,
}

impl Announcer {
    /// Starts the thread; it ends when the announcer is gone or the kernel's end is.
    pub(crate) fn start(env: &Env, kernel: Arc<Device>) -> Announcer {
        let (sender, receiver) = channel();
        let told = kernel.clone();
        env.spawn("fuse-notify", move || serve(&receiver, &told));
        Announcer { queue: sender, kernel }
    }

    fn announce(&self, change: Change) {
        // After an unmount nobody listens, and nothing is cached either.
        let _ = self.queue.send(change);
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

fn serve(changes: &Receiver<Change>, kernel: &Device) {
    for change in changes {
        let done = match &change {
            Change::Entry(dir, name) => kernel.forget_name(dir.0, name),
            Change::Inode(node) => kernel.forget_inode(node.0),
            Change::Mark(told) => {
                // Who waited for long has gone.
                let _ = told.send(());
                continue;
            }
        };
        match done.map_err(|e| e.raw_os_error()) {
            Err(Some(libc::ENODEV | libc::ENOTCONN)) => return,
            Err(e) => tracing::debug!("the kernel did not take an invalidation: errno {e:?}"),
            Ok(()) => (),
        }
    }
}
