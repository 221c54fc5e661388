//! The thread of one ring: hands requests to the handler and answers to the kernel.

use super::super::abi::{RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand};
use super::super::device::Device;
use super::super::reply::Reply;
use super::super::request::{Call, Request};
use super::super::{Handler, handle};
use super::layout::RingLayout;
use super::memory::Memory;
use super::yielding::Yielding;
use super::{Entry, MESSAGE, OWN, Shared};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use leeward_env::Env;
use leeward_vfs::processors::bind_to;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerocopy::IntoBytes;

/// After so long without a request the payloads' memory is given back.
const IDLE: Duration = Duration::from_secs(5);
/// A thread whose system call failed waits so long before it goes on.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Entries of a ring for requests that wait for locks of programs, which others must not wait
/// behind. They take no memory until the kernel is told of them, which is when so many wait.
pub(crate) const LOCK_ENTRIES: usize = 512;
/// `IORING_ENTER_GETEVENTS`: requests that have come are copied in the same call.
const GET_EVENTS: u32 = 1;

/// One ring with its entries, before and while it serves.
pub(crate) struct Service {
    env: Env,
    ring: IoUring<Entry128, cqueue::Entry>,
    shared: Arc<Shared>,
    device: Arc<Device>,
    cpu: usize,
    entries: Vec<Slot>,
    /// What the kernel is told of each entry: it may read that at any submission.
    parts: Vec<[libc::iovec; 2]>,
    /// Entries whose answer is to be handed over.
    answered: Vec<u32>,
    /// How many entries the kernel did not take.
    refused: usize,
    /// Of how many entries it was told.
    registered: usize,
    /// How many of them are for requests that do not wait for locks.
    usual: usize,
    /// How many wait for locks.
    waiting: usize,
    yielding: Yielding,
}

// SAFETY: the addresses are of its own memory.
unsafe impl Send for Service {}

/// Where an entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It waits in the kernel for a request.
    Kernel,
    /// A request is in it, not answered.
    Here,
    /// The kernel did not take it.
    Refused,
    /// The kernel was not told of it.
    Spare,
}

/// One entry.
#[derive(Clone, Copy)]
struct Slot {
    /// Number of the kernel's queue.
    queue: u16,
    /// What the kernel calls the request in it; 0: there was none yet.
    commit_id: u64,
    /// Whether its payload has memory.
    used: bool,
    /// Whether the request in it may wait for a lock.
    is_lock: bool,
    place: Place,
}

impl Service {
    /// Makes a ring and its buffers; the kernel knows nothing of them yet.
    ///
    /// # Errors
    /// What the kernel says: io_uring may be off, or memory short.
    pub(crate) fn new(
        env: &Env,
        device: &Arc<Device>,
        (layout, payload_bytes): (&RingLayout, usize),
        (spare, yielding): (usize, Yielding),
    ) -> io::Result<Service> {
        let usual = layout.queue_of_entry.len();
        let count = usual + spare;
        let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
        builder.setup_submit_all();
        // the thread that serves it will be the one that enables it
        builder.setup_r_disabled().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        // a completion and a message for each entry, and some room
        builder.setup_cqsize((4 * count).next_power_of_two() as u32);
        let ring = builder.build(count.next_power_of_two() as u32)?;
        // SAFETY: the ring lives as long as this borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }.try_clone_to_owned()?;
        let memory = Memory::new(count, payload_bytes)?;
        let parts = (0..count).map(|entry| memory.parts(entry)).collect();
        let shared = Arc::new(Shared::new(memory, fd));
        let own = u16::try_from(layout.cpu).map_err(io::Error::other)?;
        let queues = layout.queue_of_entry.iter().copied().chain(std::iter::repeat_n(own, spare));
        let slot = |queue| Slot { queue, commit_id: 0, used: false, is_lock: false, place: Place::Spare };
        Ok(Service {
            env: env.clone(),
            ring,
            shared,
            device: device.clone(),
            cpu: layout.cpu,
            entries: queues.map(slot).collect(),
            parts,
            answered: Vec::new(),
            refused: 0,
            registered: 0,
            usual,
            waiting: 0,
            yielding,
        })
    }

    /// To tell it of the end.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Serves until the file system is unmounted. Begins when the kernel has been told that there
    /// are rings.
    pub(crate) fn serve(mut self, handler: &impl Handler) {
        bind_to(self.cpu);
        self.yielding.enter();
        OWN.set((Arc::as_ptr(&self.shared) as usize, Vec::new()));
        if let Err(e) = self.ring.submitter().register_enable_rings() {
            return tracing::error!("a ring of the mount cannot begin: {e}");
        }
        (0..self.usual).for_each(|_| self.register_next());
        let mut is_idle = true;
        while !self.is_over() {
            self.hand_over();
            match self.wait(is_idle) {
                Ok(()) => is_idle = false,
                Err(e) if e.raw_os_error() == Some(libc::ETIME) => {
                    self.give_memory_back();
                    is_idle = true;
                }
                Err(e) => {
                    tracing::error!("a ring of the mount: {e}");
                    self.env.sleep(AFTER_FAILURE);
                }
            }
            self.take_all(handler);
            take_turns(handler, || {
                self.hand_over();
                self.submit();
                self.take_all(handler)
            });
        }
    }

    /// Whether no request can come any more. Answers that are still to come go nowhere.
    fn is_over(&self) -> bool {
        let none_waits = || self.entries.iter().all(|slot| slot.place != Place::Kernel);
        self.shared.ended.load(Ordering::Acquire) && none_waits() || self.refused == self.registered
    }

    /// Hands answers over and waits for a completion: for ever when there is nothing to give back.
    fn wait(&mut self, is_idle: bool) -> io::Result<()> {
        self.wake_programs();
        if self.has_completions() {
            return Ok(());
        }
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

    /// Hands commands to the kernel and leaves the processor to those whom they wake, where that is
    /// worth it.
    fn wake_programs(&mut self) {
        let commands = self.ring.submission().len();
        if commands > 0 && self.yielding.begin() {
            let submitter = self.ring.submitter();
            // What the kernel cannot take stays in the ring, and is taken at the next call.
            // SAFETY: no signal mask is given.
            let _ = unsafe { submitter.enter::<libc::sigset_t>(commands as u32, 0, GET_EVENTS, None) };
            self.yielding.end();
        }
    }

    /// Handles the requests that have come; whether there were any. The answer to one does not wait
    /// for the next.
    fn take_all(&mut self, handler: &impl Handler) -> bool {
        let mut any = false;
        while let Some(completion) = self.next_completion() {
            any = true;
            self.complete(&completion, handler);
            self.hand_over();
            if self.has_completions() {
                self.submit();
            }
        }
        any
    }

    /// Hands commands to the kernel, which copies requests that have come meanwhile.
    fn submit(&mut self) {
        // what it could not take stays in the ring, and is taken at the next call
        let _ = self.ring.submit();
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    fn complete(&mut self, completion: &cqueue::Entry, handler: &impl Handler) {
        if completion.user_data() & MESSAGE != 0 {
            return; // what it is about is found when answers are handed over
        }
        let index = completion.user_data() as u32;
        let slot = &mut self.entries[index as usize];
        match -completion.result() {
            0 => {
                slot.place = Place::Here;
                self.take(index, handler);
            }
            libc::EINTR | libc::EAGAIN => self.again(index as usize),
            errno => {
                slot.place = Place::Refused;
                self.refused += 1;
                self.note_refusal(errno);
            }
        }
    }

    fn note_refusal(&mut self, errno: i32) {
        // these say that the file system is unmounted, or its connection was ended
        if matches!(errno, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED) {
            self.shared.ended.store(true, Ordering::Release);
        } else {
            let e = io::Error::from_raw_os_error(errno);
            tracing::error!("the kernel did not take an entry of a ring: {e}");
        }
    }

    /// A request is in an entry.
    fn take(&mut self, index: u32, handler: &impl Handler) {
        let shared = self.shared.clone();
        // SAFETY: the kernel has given the entry to us, and nobody answers before the handler.
        let (head, fixed, payload, commit_id) = unsafe { shared.memory.request(index as usize) };
        self.yielding.note_client(head.pid);
        let slot = &mut self.entries[index as usize];
        (slot.commit_id, slot.used) = (commit_id, true);
        let reply = Reply::to_ring(Entry { shared: shared.clone(), index, unique: head.unique });
        match Request::from_parts(head, fixed, payload) {
            Ok(Request { call: Call::SetLock { args, .. }, .. })
                if args.lock.kind != libc::F_UNLCK as u32 && !self.may_wait(index) =>
            {
                reply.error(libc::ENOLCK);
            }
            Ok(request) => handle(handler, request, reply),
            Err(_) => {
                tracing::error!("a request of the kernel cannot be read: number {}", head.opcode);
                reply.error(libc::EIO);
            }
        }
    }

    /// A request may wait for a lock for as long as anybody has that: another entry takes the place
    /// of its own. False: too many wait.
    fn may_wait(&mut self, index: u32) -> bool {
        let spare = self.entries.len() - self.usual;
        if self.waiting >= spare + self.usual / 2 {
            return false;
        }
        self.waiting += 1;
        self.entries[index as usize].is_lock = true;
        if self.registered < self.entries.len().min(self.usual + self.waiting) {
            self.register_next();
        }
        true
    }

    /// Puts a command for each answer in the ring.
    fn hand_over(&mut self) {
        let mut answered = std::mem::take(&mut self.answered);
        OWN.with_borrow_mut(|(_, own)| answered.append(own));
        answered.append(&mut self.shared.answered.lock());
        for index in answered.drain(..) {
            let slot = &mut self.entries[index as usize];
            self.waiting -= usize::from(std::mem::take(&mut slot.is_lock));
            let Slot { queue, commit_id, .. } = *slot;
            self.command(index as usize, RING_COMMIT_AND_FETCH, (queue, commit_id));
        }
        self.answered = answered;
    }

    /// Tells the kernel of one more entry.
    fn register_next(&mut self) {
        self.registered += 1;
        self.register(self.registered - 1);
    }

    fn register(&mut self, index: usize) {
        self.command(index, RING_REGISTER, (self.entries[index].queue, 0));
    }

    /// The kernel did not take the last command at all.
    fn again(&mut self, index: usize) {
        match self.entries[index].commit_id {
            0 => self.register(index),
            _ => self.answered.push(index as u32),
        }
    }

    fn command(&mut self, index: usize, number: u32, (queue, commit_id): (u16, u64)) {
        let mut area = [0; 80];
        let command = RingCommand { flags: 0, commit_id, queue, padding: [0; 6] };
        area[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        let device = types::Fd(self.device.as_fd().as_raw_fd());
        let parts = self.parts[index].as_ptr() as u64;
        let entry = opcode::UringCmd80::new(device, number)
            .cmd(area)
            .addr((number == RING_REGISTER).then_some(parts))
            .build()
            .user_data(index as u64);
        let entry = if number == RING_REGISTER { with_len(entry, 2) } else { entry };
        self.entries[index].place = Place::Kernel;
        // SAFETY: what the command points to lives as long as the ring.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // Full: there are as many places as entries, so the kernel has not taken earlier ones.
            if self.ring.submit().is_err() {
                self.env.sleep(AFTER_FAILURE);
            }
        }
    }

    /// Nothing has come for a while.
    fn give_memory_back(&mut self) {
        let waits = |slot: &Slot| slot.used && slot.place == Place::Kernel;
        for (index, slot) in self.entries.iter_mut().enumerate().filter(|(_, slot)| waits(slot)) {
            slot.used = false;
            // SAFETY: the entry waits in the kernel, which copies to it only when this thread is in
            // `io_uring_enter`, from where it came with nothing.
            unsafe { self.shared.memory.give_back(index) };
        }
    }
}

/// Runs what is queued. `exchange` lets answers out and handles the requests that have come;
/// whether there were any. Ends only when no turn was to be had after the last of them: one that
/// was queued meanwhile, or behind one that was run here, may be nobody else's to run.
fn take_turns(handler: &impl Handler, mut exchange: impl FnMut() -> bool) {
    while handler.has_turns() {
        exchange();
        // after a panic there may be more
        let turn = catch_unwind(AssertUnwindSafe(|| handler.take_turn()));
        if turn.is_ok_and(|was_taken| !was_taken) && !exchange() {
            return;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    /// Requests that are queued, and slots that nobody holds.
    struct Queue {
        queued: AtomicUsize,
        free: AtomicUsize,
    }

    impl Queue {
        fn behind_others() -> Queue {
            Queue { queued: AtomicUsize::new(1), free: AtomicUsize::new(0) }
        }
    }

    impl Handler for Queue {
        fn handle(&self, _: Request<'_>, _: Reply) {}

        fn has_turns(&self) -> bool {
            self.queued.load(Relaxed) > 0
        }

        fn take_turn(&self) -> bool {
            let runs = self.free.load(Relaxed) > 0 && self.has_turns();
            self.queued.fetch_sub(usize::from(runs), Relaxed);
            runs
        }
    }

    /// A request that finds no slot is queued a moment later. If all others have ended in between
    /// and looked for what is next, nobody looks again.
    #[test]
    fn what_is_queued_while_others_end_is_run_here() {
        let queue = Queue::behind_others();
        let mut exchanges = 0;
        take_turns(&queue, || {
            exchanges += 1;
            let comes = exchanges == 2;
            if comes {
                queue.queued.store(3, Relaxed);
                queue.free.store(1, Relaxed);
            }
            comes
        });
        assert_eq!(queue.queued.load(Relaxed), 0);
    }

    #[test]
    fn behind_others_it_waits() {
        let queue = Queue::behind_others();
        take_turns(&queue, || false);
        assert_eq!(queue.queued.load(Relaxed), 1, "those who hold the slots look when they end");
    }
}
