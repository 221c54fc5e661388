//! The label of a store: a small object that says which store of which pool of which cell this is.
//! A wrong, swapped or foreign store is recognized by it before anything is read from it or written
//! to it. The label is the object [`LABEL`]: a name that no segment has, as 0 is no segment. Pools
//! leave it out of their listings. It is one block of 4096 bytes, numbers little-endian:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | `lee-labl` |
//! | 8 | 2 | format: 1 |
//! | 10 | 2 | slot |
//! | 12 | 4 | pool |
//! | 16 | 16 | cell |
//! | 32 | 16 | store |
//! | 48 | 12 | zero |
//! | 60 | 4 | CRC-32C of bytes 0 to 60 |
//! | 64 | | zeros |

use crate::{AlignedBuf, Error, ObjectId, Store};
use leeward_env::disk::real::ALIGN;
use leeward_env::{Ctx, hex};

/// Name of the label.
pub const LABEL: ObjectId = ObjectId { segment: 0, generation: u32::MAX };
/// The newest format that this program reads and writes.
pub const LABEL_FORMAT: u16 = 1;
const MAGIC: &[u8; 8] = b"lee-labl";
const LABEL_BYTES: usize = 64;

/// What a label says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Id of the cell: 128 bits in hex, as in the file `cell`.
    pub cell: String,
    /// Number of the pool.
    pub pool: u32,
    /// Position in the group.
    pub slot: u16,
    /// Id of the store: 128 random bits in hex.
    pub store: String,
}

/// Why a store is not the one that is wanted, or cannot be made so.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// There is no label and nothing else: an empty disk, or one that is not mounted.
    #[error("the store is empty: is the right disk mounted there?")]
    Empty,
    /// There is no label, but there are objects.
    #[error("the store has no label, but {objects} objects: it is not an empty one, nor one of a pool")]
    Unlabelled {
        /// Number of objects in it.
        objects: usize,
    },
    /// It belongs to another cell.
    #[error("the store belongs to another cell: {cell}, as slot {slot} of its pool {pool}")]
    OtherCell {
        /// Identifier of the other cell.
        cell: String,
        /// Number of the pool in that cell.
        pool: u32,
        /// Position in that pool.
        slot: u16,
    },
    /// It belongs to another pool of this cell.
    #[error("the store belongs to pool {found} of this cell, not to pool {wanted}")]
    OtherPool {
        /// The pool of its label.
        found: u32,
        /// The pool that it was opened for.
        wanted: u32,
    },
    /// It is another one of the same pool.
    #[error(
        "stores are swapped: this is the one of slot {found}, not of slot {wanted}; correct their addresses"
    )]
    Swapped {
        /// The position of its label.
        found: u16,
        /// The position that it was opened for.
        wanted: u16,
    },
    /// It was the store of this slot once, or is to be one, but is not the one that is wanted.
    #[error(
        "this is store {found} of slot {slot}, not {wanted}: it was replaced, or its replacement is not complete"
    )]
    OtherStore {
        /// The position of both.
        slot: u16,
        /// The id of its label.
        found: String,
        /// The id that is wanted.
        wanted: String,
    },
    /// The label does not hold.
    #[error("the label of the store is damaged")]
    Damaged,
    /// The label is of a newer program.
    #[error("the label of the store has format {0}, newer than this program understands ({LABEL_FORMAT})")]
    Newer(u16),
    /// An id is not 32 hex digits.
    #[error("`{0}` is no id: 32 hex digits are wanted")]
    Id(String),
    /// It has too little space.
    #[error("the store is too small: it has {have} bytes, at least {need} are needed")]
    TooSmall {
        /// Size of the store, in bytes.
        have: u64,
        /// Least size, in bytes.
        need: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Label {
    /// The block that is stored.
    ///
    /// # Errors
    /// When an id is none.
    pub fn encode(&self) -> Result<AlignedBuf, LabelError> {
        let mut block = AlignedBuf::zeroed(ALIGN);
        block[..8].copy_from_slice(MAGIC);
        block[8..10].copy_from_slice(&LABEL_FORMAT.to_le_bytes());
        block[10..12].copy_from_slice(&self.slot.to_le_bytes());
        block[12..16].copy_from_slice(&self.pool.to_le_bytes());
        block[16..32].copy_from_slice(&bytes_of(&self.cell)?);
        block[32..48].copy_from_slice(&bytes_of(&self.store)?);
        let sum = crc_fast::crc32_iscsi(&block[..60]);
        block[60..64].copy_from_slice(&sum.to_le_bytes());
        Ok(block)
    }

    /// Reads the first 64 bytes of a block.
    ///
    /// # Errors
    /// `Damaged`, `Newer`.
    pub fn decode(block: &[u8; LABEL_BYTES]) -> Result<Label, LabelError> {
        let format = u16::from_le_bytes([block[8], block[9]]);
        if block[..8] != MAGIC[..] {
            return Err(LabelError::Damaged);
        }
        if format > LABEL_FORMAT {
            return Err(LabelError::Newer(format));
        }
        let sum = u32::from_le_bytes([block[60], block[61], block[62], block[63]]);
        if crc_fast::crc32_iscsi(&block[..60]) != sum || format != LABEL_FORMAT {
            return Err(LabelError::Damaged);
        }
        Ok(Label {
            cell: hex::encode(&block[16..32]),
            pool: u32::from_le_bytes([block[12], block[13], block[14], block[15]]),
            slot: u16::from_le_bytes([block[10], block[11]]),
            store: hex::encode(&block[32..48]),
        })
    }
}

fn bytes_of(hex: &str) -> Result<[u8; 16], LabelError> {
    let digits = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u128::from_str_radix(hex, 16).ok().filter(|_| digits);
    number.map(u128::to_be_bytes).ok_or_else(|| LabelError::Id(hex.to_string()))
}

/// The label of a store; `None` when there is none.
///
/// # Errors
/// `Damaged`, `Newer`, the store's.
pub fn read(ctx: &Ctx, store: &dyn Store) -> Result<Option<Label>, LabelError> {
    let mut block = AlignedBuf::zeroed(ALIGN);
    match store.get(ctx, LABEL, 0, &mut block) {
        Err(Error::NotFound(_)) => return Ok(None),
        Err(Error::Short(_)) => return Err(LabelError::Damaged),
        other => other?,
    }
    let start = block.first_chunk().ok_or(LabelError::Damaged)?;
    Label::decode(start).map(Some)
}

/// Makes a store the one that the label says. It must be empty, or have this very label.
///
/// # Errors
/// As of [`check`] when it has another label; `Unlabelled`, `TooSmall` (fewer than `least_bytes` in
/// total), `Id`, the store's. Nothing was written then.
pub fn write(ctx: &Ctx, store: &dyn Store, label: &Label, least_bytes: u64) -> Result<(), LabelError> {
    let block = label.encode()?;
    check_size(store, least_bytes)?;
    match check(ctx, store, label) {
        Err(LabelError::Empty) => Ok(store.put(ctx, LABEL, &block)?),
        other => other,
    }
}

/// Whether a store is the one that is wanted.
///
/// # Errors
/// Which says what it is instead.
pub fn check(ctx: &Ctx, store: &dyn Store, wanted: &Label) -> Result<(), LabelError> {
    let Some(found) = read(ctx, store)? else {
        return Err(match store.list(ctx)?.len() {
            0 => LabelError::Empty,
            objects => LabelError::Unlabelled { objects },
        });
    };
    if found.cell != wanted.cell.to_ascii_lowercase() {
        Err(LabelError::OtherCell { cell: found.cell, pool: found.pool, slot: found.slot })
    } else if found.pool != wanted.pool {
        Err(LabelError::OtherPool { found: found.pool, wanted: wanted.pool })
    } else if found.slot != wanted.slot {
        Err(LabelError::Swapped { found: found.slot, wanted: wanted.slot })
    } else if found.store != wanted.store.to_ascii_lowercase() {
        Err(LabelError::OtherStore { slot: found.slot, found: found.store, wanted: wanted.store.clone() })
    } else {
        Ok(())
    }
}

/// Whether a store has so many bytes in total.
///
/// # Errors
/// `TooSmall`, the store's.
pub fn check_size(store: &dyn Store, least_bytes: u64) -> Result<(), LabelError> {
    let have = store.space()?.total_bytes;
    if have < least_bytes { Err(LabelError::TooSmall { have, need: least_bytes }) } else { Ok(()) }
}

/// Takes the label off a store that is no part of a pool any more.
///
/// # Errors
/// The store's.
pub fn remove(ctx: &Ctx, store: &dyn Store) -> Result<(), LabelError> {
    Ok(store.delete(ctx, LABEL)?)
}
