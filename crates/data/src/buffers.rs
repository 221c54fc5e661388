//! Recycled memory for whole segments: touching 16 MiB of fresh memory costs more than filling it.
//!
//! A few spare buffers are kept; the rest goes back to the system.

use leeward_pool::AlignedBuf;
use parking_lot::Mutex;

/// Spare full-size buffers that are kept while data is being written: enough for the dirty memory
/// of one busy flow and the objects that its puts lay out.
const SPARE_MAX: usize = 6;
/// Room after the data of a segment, for the index of an object in the same buffer.
const ROOM_BYTES: usize = 512 << 10;
/// The size of a new segment's buffer; a flow that writes little needs no more.
pub(crate) const SMALL_BYTES: usize = 256 << 10;

pub(crate) struct Buffers {
    full_bytes: usize,
    spare: Mutex<Vec<AlignedBuf>>,
}

impl Buffers {
    pub(crate) fn new(segment_bytes: usize) -> Buffers {
        let full_bytes = (segment_bytes + ROOM_BYTES).next_multiple_of(crate::format::BLOCK_BYTES);
        Buffers { full_bytes, spare: Mutex::new(Vec::new()) }
    }

    /// A buffer of at least `bytes`, with any content; its length is its whole capacity.
    pub(crate) fn take(&self, bytes: usize) -> AlignedBuf {
        if bytes <= SMALL_BYTES || bytes > self.full_bytes {
            return AlignedBuf::zeroed(bytes);
        }
        let spare = self.spare.lock().pop();
        let mut buf = spare.unwrap_or_else(|| AlignedBuf::zeroed(self.full_bytes));
        buf.set_len(buf.capacity());
        buf
    }

    /// Frees the spare buffers.
    pub(crate) fn clear(&self) {
        self.spare.lock().clear();
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buf: AlignedBuf) {
        let mut spare = self.spare.lock();
        if buf.capacity() == self.full_bytes && spare.len() < SPARE_MAX {
            spare.push(buf);
        }
    }
}
