//! The first block of a journal file: which file it is, and the key that its records carry.
//!
//! A file gets a new head, with a new random key, before it gets its name. So bytes that a user
//! stored, and records of the file's earlier life, are never taken for records: they cannot contain
//! the key.
//!
//! ```text
//!  0  u32  magic "LwJH"
//!  4  u32  crc32c of bytes 8 to 4095
//!  8  u64  number of the file
//! 16  16 bytes: the key
//! 32  u64  number of the file that records went to when this one was made; 0: none did
//! 40       zeros to the end of the block
//! ```

use leeward_env::Env;
use leeward_env::disk::DiskFile;
use leeward_env::disk::real::{ALIGN, AlignedBuf};
use std::io;

const MAGIC: [u8; 4] = *b"LwJH";
const CRC_FROM: usize = 8;

/// Random bytes that only records of one file carry.
pub(super) type FileKey = [u8; 16];

/// The head of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub number: u64,
    pub key: FileKey,
    /// The file before it, if that had records already: then it existed as long as this one had
    /// none.
    pub after: u64,
}

impl Head {
    /// A head for a new file.
    pub fn new(env: &Env, number: u64, after: u64) -> Head {
        let mut key: FileKey = env.secret();
        // a machine that is restored from an image may draw the same bytes again: the number is
        // never the same
        key.iter_mut().zip(number.to_le_bytes()).for_each(|(byte, mixed)| *byte ^= mixed);
        Head { number, key, after }
    }

    /// Writes the head and makes the file durable.
    pub fn write(&self, file: &dyn DiskFile) -> io::Result<()> {
        let mut block = AlignedBuf::zeroed(ALIGN);
        block[..4].copy_from_slice(&MAGIC);
        block[8..16].copy_from_slice(&self.number.to_le_bytes());
        block[16..32].copy_from_slice(&self.key);
        block[32..40].copy_from_slice(&self.after.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&block[CRC_FROM..ALIGN]);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
        file.write_at(0, &block[..ALIGN])?;
        file.sync()
    }

    /// The head at the start of a file's bytes, if it is whole.
    pub fn read(bytes: &[u8]) -> Option<Head> {
        let block = bytes.get(..ALIGN)?;
        let long = |at: usize| Some(u64::from_le_bytes(block[at..at + 8].try_into().ok()?));
        let crc = crc_fast::crc32_iscsi(&block[CRC_FROM..]);
        if block[..4] != MAGIC || block[4..8] != crc.to_le_bytes() {
            return None;
        }
        Some(Head { number: long(8)?, key: block[16..32].try_into().ok()?, after: long(32)? })
    }
}
