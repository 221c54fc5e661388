//! The buffers of one ring: for each entry the headers and the payload of one request, and then of
//! its reply.
//!
//! One mapping for all. Nothing of it takes memory before a request is copied there; large pages
//! are off, as one byte would take two megabytes.
//!
//! Who may touch an entry: the kernel while the entry waits there, the ring's thread from the
//! completion on, then whoever holds its [`Entry`](super::Entry), until the answer is handed to the
//! ring's thread.

use super::super::abi::{InHeader, OutHeader, RING_HEADER_BYTES, RingEntry, page_bytes};
use std::io;
use std::ptr::NonNull;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Headers of an entry: the request's or reply's header, the structure of fixed size, the ring's
/// own.
pub(super) const HEADERS_BYTES: usize = 2 * RING_HEADER_BYTES + size_of::<RingEntry>();
/// From one entry's headers to the next one's: whole cache lines.
const HEADERS_STRIDE: usize = HEADERS_BYTES.next_multiple_of(64);

/// See the module's head.
pub(super) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    /// Where the payloads begin.
    payloads: usize,
    payload_bytes: usize,
}

// SAFETY: plain memory; the module's head says who may touch which part of it when.
unsafe impl Send for Memory {}
// SAFETY: the same.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(entries: usize, payload_bytes: usize) -> io::Result<Memory> {
        let payloads = (entries * HEADERS_STRIDE).next_multiple_of(page_bytes());
        let bytes = payloads + entries * payload_bytes;
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: our own mapping; a refusal costs memory only.
        unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory { base, bytes, payloads, payload_bytes })
    }

    /// What the kernel is told when an entry is registered: its headers and its payload.
    pub(super) fn parts(&self, entry: usize) -> [libc::iovec; 2] {
        let part = |at: usize, len| libc::iovec { iov_base: self.at(at).cast(), iov_len: len };
        [
            part(entry * HEADERS_STRIDE, HEADERS_BYTES),
            part(self.payloads + entry * self.payload_bytes, self.payload_bytes),
        ]
    }

    /// The request in an entry: header, structure, payload, and what the kernel calls it.
    ///
    /// # Safety
    /// The entry is with this process, and nobody writes to it while what is returned lives.
    pub(super) unsafe fn request(&self, entry: usize) -> (InHeader, &[u8], &[u8], u64) {
        // SAFETY: as the caller says.
        let headers = unsafe { std::slice::from_raw_parts(self.at(entry * HEADERS_STRIDE), HEADERS_BYTES) };
        let head = InHeader::read_from_prefix(headers).map_or(InHeader::new_zeroed(), |(head, _)| head);
        let fixed = &headers[RING_HEADER_BYTES..2 * RING_HEADER_BYTES];
        let ring = RingEntry::read_from_prefix(&headers[2 * RING_HEADER_BYTES..]);
        let ring = ring.map_or(RingEntry::new_zeroed(), |(ring, _)| ring);
        let len = (ring.payload_len as usize).min(self.payload_bytes);
        let at = self.at(self.payloads + entry * self.payload_bytes);
        // SAFETY: as the caller says, and `len` is within the payload.
        let payload = unsafe { std::slice::from_raw_parts(at, len) };
        (head, fixed, payload, ring.commit_id)
    }

    /// Writes the reply to the request `unique` where the kernel will look for it. One that is too
    /// long becomes an error.
    ///
    /// # Safety
    /// The entry is with this process, and nobody else touches it.
    pub(super) unsafe fn write_reply(&self, entry: usize, (unique, error): (u64, i32), payload: &[u8]) {
        let (error, payload) = match payload.len() <= self.payload_bytes {
            true => (error, payload),
            false => (-libc::EIO, &[][..]),
        };
        let len = (size_of::<OutHeader>() + payload.len()) as u32;
        let ring = RingEntry { payload_len: payload.len() as u32, ..RingEntry::default() };
        // SAFETY: as the caller says; all three are within the entry.
        unsafe {
            self.put(entry * HEADERS_STRIDE, OutHeader { len, error, unique }.as_bytes());
            self.put(entry * HEADERS_STRIDE + 2 * RING_HEADER_BYTES, ring.as_bytes());
            self.put(self.payloads + entry * self.payload_bytes, payload);
        }
    }

    unsafe fn put(&self, at: usize, bytes: &[u8]) {
        // SAFETY: as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(at), bytes.len()) };
    }

    /// Gives the memory of an entry's payload back to the system; its content is lost.
    ///
    /// # Safety
    /// Nobody reads the entry's payload any more, or before it is written again.
    pub(super) unsafe fn give_back(&self, entry: usize) {
        let at = self.at(self.payloads + entry * self.payload_bytes);
        // SAFETY: whole pages of our own mapping, which nobody needs.
        unsafe { libc::madvise(at.cast(), self.payload_bytes, libc::MADV_DONTNEED) };
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: every caller stays within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody holds any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
