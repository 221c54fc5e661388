//! FUSE over io_uring (Linux 6.14): requests are served on the processor where they were made.
//!
//! The kernel has a queue for each possible processor. Each processor that is online has a thread here, bound to it, with a
//! ring and entries: buffers that wait in the kernel for a request. A completion says that one is in an entry; the answer is
//! written to the same entry, and one command hands it over and waits for the next request.
//!
//! Only the ring's own thread gives commands to it: the kernel copies the next request in the context of the thread that
//! gave the command, and any other may be waiting for a disk. Who answers elsewhere sends the ring a message.
//!
//! Reads of FORGET, interrupts and what this process tells the kernel stay with `/dev/fuse`.
//!
//! Source: `fs/fuse/dev_uring.c` and `Documentation/filesystems/fuse/fuse-io-uring.rst` of Linux 6.18.

mod layout;
mod memory;
mod service;

pub(crate) use layout::Layout;
pub(crate) use service::Service;

use io_uring::{opcode, types};
use memory::Memory;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Tells a message from the completion of a command, in a completion's `user_data`.
const MESSAGE: u64 = 1 << 32;

/// What outlives the ring's thread: held by every request that is not answered.
pub(super) struct Shared {
    memory: Memory,
    /// A descriptor of our own: the number cannot become another file's while an answer is on its way.
    ring: OwnedFd,
}

thread_local! {
    /// The ring that this thread serves, by address, and entries whose answers it has not handed over.
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
        if !own && let Err(e) = send(&self.shared.ring, MESSAGE | u64::from(self.index)) {
            tracing::error!("an answer cannot be handed to its ring: {e}");
        }
    }
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
