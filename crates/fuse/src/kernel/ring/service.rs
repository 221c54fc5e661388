//! The thread of one ring: hands requests to the handler and answers to the kernel.

use super::super::abi::{RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand};
use super::super::device::Device;
use super::super::reply::Reply;
use super::super::request::Request;
use super::super::{Handler, handle};
use super::layout::RingLayout;
use super::memory::Memory;
use super::{Entry, MESSAGE, OWN, Shared};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// After so long without a request the payloads' memory is given back.
const IDLE: Duration = Duration::from_secs(5);

/// One ring with its entries, before and while it serves.
pub(crate) struct Service {
    ring: IoUring<Entry128, cqueue::Entry>,
    shared: Arc<Shared>,
    device: Arc<Device>,
    cpu: usize,
    entries: Vec<Slot>,
    /// Entries whose answer is to be handed over.
    answered: Vec<u32>,
    /// Entries that wait in the kernel.
    in_kernel: usize,
    /// Whether the kernel has ended the connection.
    ended: bool,
}

/// One entry.
#[derive(Clone, Copy)]
struct Slot {
    /// Number of the kernel's queue.
    queue: u16,
    /// What the kernel calls the request in it.
    commit_id: u64,
    /// Whether its payload has memory.
    used: bool,
    /// Whether it waits in the kernel.
    in_kernel: bool,
}

impl Service {
    /// Makes a ring and its buffers; the kernel knows nothing of them yet.
    ///
    /// # Errors
    /// What the kernel says: io_uring may be off, or memory short.
    pub(crate) fn new(
        device: &Arc<Device>,
        layout: &RingLayout,
        payload_bytes: usize,
    ) -> io::Result<Service> {
        let count = layout.queue_of_entry.len();
        let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
        builder.setup_submit_all();
        // a completion and a message for each entry, and some room
        builder.setup_cqsize((4 * count).next_power_of_two() as u32);
        let ring = builder.build(count.next_power_of_two() as u32)?;
        // SAFETY: the ring lives as long as this borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }.try_clone_to_owned()?;
        let shared = Arc::new(Shared { memory: Memory::new(count, payload_bytes)?, ring: fd });
        let slot = |queue: &u16| Slot { queue: *queue, commit_id: 0, used: false, in_kernel: false };
        let entries = layout.queue_of_entry.iter().map(slot).collect();
        let (device, cpu) = (device.clone(), layout.cpu);
        Ok(Service { ring, shared, device, cpu, entries, answered: Vec::new(), in_kernel: 0, ended: false })
    }

    /// Serves until the file system is unmounted. Begins when the kernel has been told that there are rings.
    pub(crate) fn serve(mut self, handler: &impl Handler) {
        bind_to(self.cpu);
        OWN.set((Arc::as_ptr(&self.shared) as usize, Vec::new()));
        for index in 0..self.shared.memory.entries() {
            self.register(index);
        }
        let mut is_idle = true;
        while !(self.ended && self.in_kernel == 0) {
            self.hand_over();
            match self.wait(is_idle) {
                Ok(()) => is_idle = false,
                Err(e) if e.raw_os_error() == Some(libc::ETIME) => {
                    self.give_memory_back();
                    is_idle = true;
                }
                Err(e) => return tracing::error!("a ring of the mount ends: {e}"),
            }
            while let Some(completion) = self.next_completion() {
                self.complete(&completion, handler);
                self.hand_over();
                if self.has_completions() {
                    let _ = self.ring.submit();
                }
            }
            while !self.has_completions() && handler.take_turn() {
                self.hand_over();
                let _ = self.ring.submit();
            }
        }
    }

    /// Submits what there is and waits for a completion: for ever when there is nothing to give back.
    fn wait(&mut self, is_idle: bool) -> io::Result<()> {
        let timeout = types::Timespec::from(IDLE);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        let done = match is_idle {
            true => self.ring.submit_and_wait(1),
            false => self.ring.submitter().submit_with_args(1, &arguments),
        };
        match done {
            Ok(_) => Ok(()),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    fn complete(&mut self, completion: &cqueue::Entry, handler: &impl Handler) {
        let index = completion.user_data() as u32;
        if completion.user_data() & MESSAGE != 0 {
            return self.answered.push(index);
        }
        self.in_kernel -= 1;
        self.entries[index as usize].in_kernel = false;
        match -completion.result() {
            0 => self.take(index, handler),
            libc::EINTR | libc::EAGAIN => self.again(index as usize),
            // the file system is unmounted, or its connection was ended
            libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED => self.ended = true,
            errno => {
                let e = io::Error::from_raw_os_error(errno);
                tracing::error!("the kernel did not take an entry of a ring: {e}");
                self.ended |= self.in_kernel == 0;
            }
        }
    }

    /// A request is in an entry.
    fn take(&mut self, index: u32, handler: &impl Handler) {
        let shared = self.shared.clone();
        // SAFETY: the kernel has given the entry to us, and nobody answers before the handler.
        let (head, fixed, payload, commit_id) = unsafe { shared.memory.request(index as usize) };
        let slot = &mut self.entries[index as usize];
        (slot.commit_id, slot.used) = (commit_id, true);
        let reply = Reply::to_ring(Entry { shared: shared.clone(), index, unique: head.unique });
        match Request::from_parts(head, fixed, payload) {
            Ok(request) => handle(handler, request, reply),
            Err(_) => {
                tracing::error!("a request of the kernel cannot be read: number {}", head.opcode);
                reply.error(libc::EIO);
            }
        }
    }

    /// Puts a command for each answer in the ring.
    fn hand_over(&mut self) {
        let mut answered = std::mem::take(&mut self.answered);
        OWN.with_borrow_mut(|(_, own)| answered.append(own));
        for index in answered.drain(..) {
            let Slot { queue, commit_id, .. } = self.entries[index as usize];
            self.command(index as usize, RING_COMMIT_AND_FETCH, (queue, commit_id), None);
        }
        self.answered = answered;
    }

    fn register(&mut self, index: usize) {
        let parts = self.shared.memory.parts(index);
        self.command(index, RING_REGISTER, (self.entries[index].queue, 0), Some(&parts));
        // the kernel reads `parts` now
        let _ = self.ring.submit();
    }

    /// The kernel did not take the last command at all.
    fn again(&mut self, index: usize) {
        match self.entries[index].commit_id {
            0 => self.register(index),
            _ => self.answered.push(index as u32),
        }
    }

    fn command(
        &mut self,
        index: usize,
        number: u32,
        (queue, commit_id): (u16, u64),
        parts: Option<&[libc::iovec; 2]>,
    ) {
        let mut area = [0; 80];
        let command = RingCommand { flags: 0, commit_id, queue, padding: [0; 6] };
        area[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        let device = types::Fd(self.device.as_fd().as_raw_fd());
        let entry = opcode::UringCmd80::new(device, number)
            .cmd(area)
            .addr(parts.map(|parts| parts.as_ptr() as u64))
            .build()
            .user_data(index as u64);
        let entry = if parts.is_some() { with_len(entry, 2) } else { entry };
        // SAFETY: buffers of the entry live as long as the ring; the caller submits before `parts` ends.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // full: there are no more commands than entries, so this empties it
            let _ = self.ring.submit();
        }
        self.in_kernel += 1;
        self.entries[index].in_kernel = true;
    }

    /// Nothing has come for a while.
    fn give_memory_back(&mut self) {
        for (index, slot) in self.entries.iter_mut().enumerate().filter(|(_, s)| s.used && s.in_kernel) {
            slot.used = false;
            // SAFETY: the entry waits in the kernel, which copies to it in this thread only.
            unsafe { self.shared.memory.give_back(index) };
        }
    }
}

/// The number of buffers of a command, for which the library has no method.
fn with_len(entry: Entry128, len: u32) -> Entry128 {
    const LEN_AT: usize = 24;
    // SAFETY: both are 128 bytes of plain data, laid out as the kernel wants them.
    unsafe {
        let mut bytes = std::mem::transmute::<Entry128, [u8; 128]>(entry);
        bytes[LEN_AT..LEN_AT + 4].copy_from_slice(&len.to_ne_bytes());
        std::mem::transmute::<[u8; 128], Entry128>(bytes)
    }
}

/// Keeps this thread on a processor, where that is allowed.
fn bind_to(cpu: usize) {
    // SAFETY: a set for which all zeros are valid, and a number that is checked by the macro's function.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}
