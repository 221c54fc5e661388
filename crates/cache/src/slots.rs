//! The files of the cache on disk: slots, and an index of their content.
//!
//! `leeward.index` begins with a block that says what is cached. Then follow 32 bytes for each
//! slot: key (20 bytes), length u32, their checksum u32, zeros, all little-endian. Nothing is ever
//! synced.

use crate::{BLOCK_BYTES, Form, Key};
use leeward_env::disk::real::AlignedBuf;
use leeward_env::disk::{Caching, Disk, DiskFile};
use std::io;

const BLOCKS: &str = "leeward.blocks";
const INDEX: &str = "leeward.index";
const ENTRY_BYTES: usize = 32;
/// The index is read in chunks of this size.
const LOAD_BYTES: usize = 1 << 20;

/// The slot and length of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartPosition<K> {
    pub(super) slot: u32,
    pub(super) len: u32,
    /// The key with which it was kept.
    pub(super) part: K,
}

pub(super) struct Files {
    blocks: Box<dyn DiskFile>,
    index: Box<dyn DiskFile>,
    /// Bytes in a slot.
    pub(super) part_bytes: usize,
}

impl Files {
    /// Opens or makes the files, with their content if they are of this cell.
    pub(super) fn open<K: Key>(
        disk: &dyn Disk,
        of: &str,
        form: Form,
        slots: u32,
    ) -> io::Result<(Files, Vec<PartPosition<K>>)> {
        let blocks = open(disk, BLOCKS, Caching::Direct)?;
        let index = open(disk, INDEX, Caching::Buffered)?;
        let bytes = u64::from(slots) * form.part_bytes as u64;
        if blocks.len()? > bytes {
            blocks.truncate(bytes)?;
        }
        let (wanted, mut head) = (header(form.magic, of), [0; BLOCK_BYTES]);
        let there = index.read_at(0, &mut head)?;
        let mut found = Vec::new();
        if there == head.len() && head == wanted {
            found = load(&*index, form, slots)?;
        } else {
            index.truncate(0)?;
            index.write_at(0, &wanted)?;
        }
        Ok((Files { blocks, index, part_bytes: form.part_bytes }, found))
    }

    /// Reads these slots, one after the other.
    pub(super) fn read<K>(&self, places: &[PartPosition<K>]) -> io::Result<AlignedBuf> {
        let mut bytes = AlignedBuf::zeroed(places.iter().map(|p| p.len as usize).sum());
        let mut rest = &mut bytes[..];
        for place in places {
            let (here, more) = rest.split_at_mut(place.len as usize);
            if self.blocks.read_at(self.at(place.slot), here)? < here.len() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its file was cut off"));
            }
            rest = more;
        }
        Ok(bytes)
    }

    /// Fills a slot.
    pub(super) fn write<K: Key>(&self, part: K, slot: u32, bytes: &[u8]) -> io::Result<()> {
        self.blocks.write_at(self.at(slot), bytes)?;
        let entry = encode(&part, bytes.len() as u32);
        self.index.write_at(BLOCK_BYTES as u64 + u64::from(slot) * ENTRY_BYTES as u64, &entry)
    }

    fn at(&self, slot: u32) -> u64 {
        u64::from(slot) * self.part_bytes as u64
    }
}

/// CRC-32C.
fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn open(disk: &dyn Disk, name: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
    match disk.open(name, caching) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => disk.create(name, caching),
        other => other,
    }
}

fn header(magic: [u8; 8], of: &str) -> [u8; BLOCK_BYTES] {
    let mut head = [0; BLOCK_BYTES];
    head[..8].copy_from_slice(&magic);
    head[8] = 1; // format
    let of = &of.as_bytes()[..of.len().min(64)];
    head[16..16 + of.len()].copy_from_slice(of);
    head
}

fn encode(part: &impl Key, len: u32) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..20].copy_from_slice(&part.encode());
    entry[20..24].copy_from_slice(&len.to_le_bytes());
    let sum = crc(&entry[..24]);
    entry[24..28].copy_from_slice(&sum.to_le_bytes());
    entry
}

fn decode<K: Key>(entry: &[u8], part_bytes: usize) -> Option<(K, u32)> {
    let u32_at = |at: usize| entry[at..].first_chunk().map(|b| u32::from_le_bytes(*b));
    let len = u32_at(20)?;
    let fits = (1..=part_bytes as u32).contains(&len) && (len as usize).is_multiple_of(BLOCK_BYTES);
    let key = K::decode(entry.first_chunk()?);
    (fits && crc(&entry[..24]) == u32_at(24)?).then_some((key, len))
}

fn load<K: Key>(index: &dyn DiskFile, form: Form, slots: u32) -> io::Result<Vec<PartPosition<K>>> {
    let (mut found, mut buf, mut slot) = (Vec::new(), vec![0; LOAD_BYTES], 0u32);
    while slot < slots {
        let at = BLOCK_BYTES as u64 + u64::from(slot) * ENTRY_BYTES as u64;
        let count = index.read_at(at, &mut buf)?;
        for entry in buf[..count].chunks_exact(ENTRY_BYTES).take((slots - slot) as usize) {
            let found_here = decode::<K>(entry, form.part_bytes);
            found.extend(found_here.map(|(part, len)| PartPosition { slot, len, part }));
            slot += 1;
        }
        if count < buf.len() {
            break;
        }
    }
    Ok(found)
}
