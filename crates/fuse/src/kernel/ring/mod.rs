//! FUSE over io_uring (Linux 6.14): requests are served on the processor where they were made.
//!
//! The kernel has a queue for each possible processor. Each processor that is online has a thread
//! here with a ring and entries: buffers that wait in the kernel for a request. A completion says
//! that one is in an entry; the answer is written to the same entry, and one command hands it over
//! and waits for the next request. Threads are bound to their processors.
//!
//! Only the ring's own thread gives commands to it: the kernel copies the next request in the
//! context of the thread that gave the command, and any other may be waiting for a disk. A thread
//! that answers elsewhere leaves the number of the entry and sends the ring a message. With
//! DEFER_TASKRUN the kernel copies only while the thread is in `io_uring_enter`: in between nothing
//! changes in an entry that waits there.
//!
//! FORGET, interrupts and what this process tells the kernel stay with `/dev/fuse`.
//!
//! Source: `fs/fuse/dev_uring.c` and `Documentation/filesystems/fuse/fuse-io-uring.rst` of Linux
//! 6.18.

mod layout;
mod memory;
mod service;
mod yielding;

pub(crate) use layout::Layout;
pub(crate) use service::{LOCK_ENTRIES, Service};
pub(crate) use yielding::{Watch, Yielding};

use io_uring::{IoUring, opcode, types};
use memory::Memory;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells a message from the completion of a command, in a completion's `user_data`.
const MESSAGE: u64 = 1 << 32;

/// What outlives the ring's thread: held by every request that is not answered.
pub(crate) struct Shared {
    memory: Memory,
    /// Entries that were answered on other threads.
    answered: Mutex<Vec<u32>>,
    /// The file system is unmounted.
    ended: AtomicBool,
    /// A descriptor of our own: the number cannot become another file's while an answer is on its
    /// way.
    ring: OwnedFd,
}

impl Shared {
    fn new(memory: Memory, ring: OwnedFd) -> Shared {
        Shared { memory, answered: Mutex::default(), ended: AtomicBool::new(false), ring }
    }

    /// Has the ring's thread look at what there is. Where the kernel has no memory for a message
    /// now, the thread finds it when the next one comes, or when it looks by itself.
    fn wake(&self) {
        if let Err(e) = send(&self.ring, MESSAGE)
            && !self.ended.load(Ordering::Acquire)
        {
            tracing::warn!(
                "a ring of the mount cannot be told of an answer, which may wait for a while: {e}"
            );
        }
    }

    /// Tells the ring's thread that no request will come.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake();
    }
}

thread_local! {
    /// The ring that this thread serves, by address, and entries whose answers it has not handed
    /// over.
    static OWN: RefCell<(usize, Vec<u32>)> = const { RefCell::new((0, Vec::new())) };
}

/// A request in a ring that is not answered.
pub(crate) struct Entry {
    shared: Arc<Shared>,
    index: u32,
    unique: u64,
}

impl Entry {
    /// Writes the answer and hands it over.
    pub(crate) fn answer(self, error: i32, payload: &[u8]) {
        // SAFETY: the entry is ours until it is handed over, which is next.
        unsafe { self.shared.memory.write_reply(self.index as usize, (self.unique, error), payload) };
        let ring = Arc::as_ptr(&self.shared) as usize;
        let own = OWN.with_borrow_mut(|(own, answered)| {
            let is_own = *own == ring;
            if is_own {
                answered.push(self.index);
            }
            is_own
        });
        if !own {
            self.shared.answered.lock().push(self.index);
            self.shared.wake();
        }
    }
}

/// Whether the kernel has what rings need besides FUSE over io_uring: messages from any thread.
///
/// # Errors
/// What the kernel says.
pub(crate) fn check() -> io::Result<()> {
    let ring: IoUring = IoUring::new(2)?;
    // SAFETY: the ring lives as long as this borrow.
    send(&unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }.try_clone_to_owned()?, MESSAGE)
}

/// Posts a completion to a ring from any thread.
fn send(ring: &OwnedFd, user_data: u64) -> io::Result<()> {
    const REGISTER_SEND_MSG_RING: libc::c_uint = 31;
    let command = opcode::MsgRingData::new(types::Fd(ring.as_raw_fd()), 0, user_data, None).build();
    // SAFETY: a valid command; the number of the ring is -1 as the call needs none.
    let done = unsafe {
        libc::syscall(libc::SYS_io_uring_register, -1, REGISTER_SEND_MSG_RING, &raw const command, 1)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
