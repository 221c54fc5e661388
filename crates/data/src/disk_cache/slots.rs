//! The files of the cache on disk: slots, and an index of their content.
//!
//! `leeward.index` begins with a block that names the cell. Then follow 32 bytes for each slot:
//! pool u32, segment u64, generation u32, part u32, length u32, their checksum u32, zeros, all
//! little-endian. Nothing is ever synced.

use super::Part;
use crate::Object;
use crate::format::{BLOCK_BYTES, crc};
use leeward_env::disk::{Caching, Disk, DiskFile};
use leeward_pool::AlignedBuf;
use std::io;

/// Blocks in a part of a body.
pub(crate) const PART_BLOCKS: usize = 16;
/// Bytes in a slot.
pub(super) const PART_BYTES: usize = PART_BLOCKS * BLOCK_BYTES;
const MAGIC: &[u8; 8] = b"lee-cach";
const BLOCKS: &str = "leeward.blocks";
const INDEX: &str = "leeward.index";
const ENTRY_BYTES: usize = 32;
/// The index is read in chunks of this size.
const LOAD_BYTES: usize = 1 << 20;

/// The slot and length of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartPosition {
    pub(super) slot: u32,
    pub(super) len: u32,
}

pub(super) struct Files {
    blocks: Box<dyn DiskFile>,
    index: Box<dyn DiskFile>,
}

impl Files {
    /// Opens or makes the files, with their content if they are of this cell.
    pub(super) fn open(
        disk: &dyn Disk,
        cell: &str,
        slots: u32,
    ) -> io::Result<(Files, Vec<(Part, PartPosition)>)> {
        let blocks = open(disk, BLOCKS, Caching::Direct)?;
        let index = open(disk, INDEX, Caching::Buffered)?;
        let bytes = u64::from(slots) * PART_BYTES as u64;
        if blocks.len()? > bytes {
            blocks.truncate(bytes)?;
        }
        let (wanted, mut head) = (header(cell), [0; BLOCK_BYTES]);
        let there = index.read_at(0, &mut head)?;
        let mut found = Vec::new();
        if there == head.len() && head == wanted {
            found = load(&*index, slots)?;
        } else {
            index.truncate(0)?;
            index.write_at(0, &wanted)?;
        }
        Ok((Files { blocks, index }, found))
    }

    /// Reads these slots, one after the other.
    pub(super) fn read(&self, places: &[PartPosition]) -> io::Result<AlignedBuf> {
        let mut bytes = AlignedBuf::zeroed(places.iter().map(|p| p.len as usize).sum());
        let mut rest = &mut bytes[..];
        for place in places {
            let (here, more) = rest.split_at_mut(place.len as usize);
            if self.blocks.read_at(at(place.slot), here)? < here.len() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its file was cut off"));
            }
            rest = more;
        }
        Ok(bytes)
    }

    /// Fills a slot.
    pub(super) fn write(&self, part: Part, slot: u32, bytes: &[u8]) -> io::Result<()> {
        self.blocks.write_at(at(slot), bytes)?;
        let entry = encode(part, bytes.len() as u32);
        self.index.write_at(BLOCK_BYTES as u64 + u64::from(slot) * ENTRY_BYTES as u64, &entry)
    }
}

fn at(slot: u32) -> u64 {
    u64::from(slot) * PART_BYTES as u64
}

fn open(disk: &dyn Disk, name: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
    match disk.open(name, caching) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => disk.create(name, caching),
        other => other,
    }
}

fn header(cell: &str) -> [u8; BLOCK_BYTES] {
    let mut head = [0; BLOCK_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8] = 1; // format
    let cell = &cell.as_bytes()[..cell.len().min(64)];
    head[16..16 + cell.len()].copy_from_slice(cell);
    head
}

fn encode(part: Part, len: u32) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..4].copy_from_slice(&part.object.pool.to_le_bytes());
    entry[4..12].copy_from_slice(&part.object.segment.to_le_bytes());
    entry[12..16].copy_from_slice(&part.object.generation.to_le_bytes());
    entry[16..20].copy_from_slice(&part.number.to_le_bytes());
    entry[20..24].copy_from_slice(&len.to_le_bytes());
    let sum = crc(&entry[..24]);
    entry[24..28].copy_from_slice(&sum.to_le_bytes());
    entry
}

fn decode(entry: &[u8]) -> Option<(Part, u32)> {
    let u32_at = |at: usize| entry[at..].first_chunk().map(|b| u32::from_le_bytes(*b));
    let segment = u64::from_le_bytes(*entry[4..].first_chunk()?);
    let object = Object { pool: u32_at(0)?, segment, generation: u32_at(12)? };
    let (number, len) = (u32_at(16)?, u32_at(20)?);
    let fits = (1..=PART_BYTES as u32).contains(&len) && (len as usize).is_multiple_of(BLOCK_BYTES);
    (fits && crc(&entry[..24]) == u32_at(24)?).then_some((Part { object, number }, len))
}

fn load(index: &dyn DiskFile, slots: u32) -> io::Result<Vec<(Part, PartPosition)>> {
    let (mut found, mut buf, mut slot) = (Vec::new(), vec![0; LOAD_BYTES], 0u32);
    while slot < slots {
        let at = BLOCK_BYTES as u64 + u64::from(slot) * ENTRY_BYTES as u64;
        let count = index.read_at(at, &mut buf)?;
        for entry in buf[..count].chunks_exact(ENTRY_BYTES).take((slots - slot) as usize) {
            found.extend(decode(entry).map(|(part, len)| (part, PartPosition { slot, len })));
            slot += 1;
        }
        if count < buf.len() {
            break;
        }
    }
    Ok(found)
}
