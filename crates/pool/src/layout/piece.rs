//! Pieces: what a store of a redundant pool keeps of an object, to the byte. Numbers are
//! little-endian, a block is 4096 bytes.
//!
//! ```text
//! piece = head, blocks
//! head  = 64 bytes, one checksum for each block, zeros up to the next multiple of 4096
//! ```
//!
//! An object of B blocks is cut into data pieces of P = B / k blocks, rounded up, the last one
//! shorter; so a short range lies in one of them. Data pieces without a block are not stored. Each
//! of the m parity pieces has P blocks, and is computed as if the data were followed by zeros.
//! Copies are pieces with k = 1.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | `lee-piec` |
//! | 8 | 2 | format: 1 |
//! | 10 | 1 | k, data pieces |
//! | 11 | 1 | m, parity pieces |
//! | 12 | 2 | which piece: 0 to k-1 data, from k on parity |
//! | 14 | 2 | 0 |
//! | 16 | 4 | generation |
//! | 20 | 4 | pool |
//! | 24 | 8 | segment |
//! | 32 | 8 | bytes of the object |
//! | 40 | 8 | stamp: the same in all pieces of one put, higher in a later one |
//! | 48 | 4 | blocks of this piece |
//! | 52 | 8 | 0 |
//! | 60 | 4 | CRC-32C of the head with zeros in these four bytes |
//! | 64 | 4 each | CRC-32C of each block |

use super::code::Code;
use crate::{AlignedBuf, ObjectId};
use leeward_env::disk::real::ALIGN;
use std::ops::Range;

/// Unit of checksums and alignment.
pub(crate) const BLOCK: usize = ALIGN;
const MAGIC: &[u8; 8] = b"lee-piec";
const FORMAT: u16 = 1;
const FIXED_BYTES: usize = 64;
/// Bytes of each piece that are worked on at a time, so that they stay in the processor's cache.
const STRIP_BYTES: usize = 16 << 10;
/// No object is longer. Limits the work that a damaged head can cause.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// How an object is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) data: usize,
    pub(crate) parity: usize,
    pub(crate) object_bytes: u64,
}

impl Cut {
    fn object_blocks(&self) -> usize {
        self.object_bytes.div_ceil(BLOCK as u64) as usize
    }

    /// Blocks of a full data piece, and of each parity piece.
    pub(crate) fn full_blocks(&self) -> usize {
        self.object_blocks().div_ceil(self.data)
    }

    /// Blocks of a piece.
    pub(crate) fn blocks(&self, piece: usize) -> usize {
        let full = self.full_blocks();
        if piece < self.data { self.object_blocks().saturating_sub(piece * full).min(full) } else { full }
    }

    /// Pieces that are stored.
    pub(crate) fn stored(&self) -> impl Iterator<Item = usize> + use<> {
        let cut = *self;
        (0..cut.data + cut.parity).filter(move |piece| cut.blocks(*piece) > 0)
    }

    /// Stored pieces that make the object.
    pub(crate) fn needed(&self) -> usize {
        (0..self.data).filter(|piece| self.blocks(*piece) > 0).count()
    }

    /// Where a byte of the object is: data piece, offset among its blocks.
    pub(crate) fn place(&self, offset: u64) -> (usize, usize) {
        let full = (self.full_blocks() * BLOCK) as u64;
        ((offset / full) as usize, (offset % full) as usize)
    }
}

/// Length of the head of a piece.
pub(crate) fn head_bytes(blocks: usize) -> usize {
    (FIXED_BYTES + 4 * blocks).next_multiple_of(BLOCK)
}

/// Blocks of a stored piece of this length, if it can be one.
pub(crate) fn blocks_of(stored_bytes: u64) -> Option<usize> {
    let all = usize::try_from(stored_bytes).ok().filter(|n| n.is_multiple_of(BLOCK))? / BLOCK;
    let blocks = (0..all).rev().find(|blocks| blocks + head_bytes(*blocks) / BLOCK <= all)?;
    (blocks + head_bytes(blocks) / BLOCK == all).then_some(blocks)
}

/// The object and piece that a head belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) pool: u32,
    pub(crate) id: ObjectId,
    pub(crate) data: u8,
    pub(crate) parity: u8,
    pub(crate) piece: u16,
}

/// What the head of a piece says in addition to its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) object_bytes: u64,
    pub(crate) stamp: u64,
    pub(crate) crcs: Box<[u32]>,
}

impl Head {
    /// Writes it to the start of a piece.
    pub(crate) fn encode(&self, name: &Name, out: &mut [u8]) {
        let head = &mut out[..head_bytes(self.crcs.len())];
        head.fill(0);
        head[..8].copy_from_slice(MAGIC);
        head[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        (head[10], head[11]) = (name.data, name.parity);
        head[12..14].copy_from_slice(&name.piece.to_le_bytes());
        head[16..20].copy_from_slice(&name.id.generation.to_le_bytes());
        head[20..24].copy_from_slice(&name.pool.to_le_bytes());
        head[24..32].copy_from_slice(&name.id.segment.to_le_bytes());
        head[32..40].copy_from_slice(&self.object_bytes.to_le_bytes());
        head[40..48].copy_from_slice(&self.stamp.to_le_bytes());
        head[48..52].copy_from_slice(&(self.crcs.len() as u32).to_le_bytes());
        for (out, crc) in head[FIXED_BYTES..].chunks_exact_mut(4).zip(&self.crcs) {
            out.copy_from_slice(&crc.to_le_bytes());
        }
        let sum = crc(head);
        head[60..64].copy_from_slice(&sum.to_le_bytes());
    }

    /// Length of the head that begins with this block, if it is one.
    pub(crate) fn length(first: &[u8]) -> Result<usize, String> {
        if first.len() < BLOCK || first[..8] != MAGIC[..] {
            return Err("it is no piece of an object".into());
        }
        let format = u16::from_le_bytes([first[8], first[9]]);
        if format > FORMAT {
            return Err(format!("it has format {format}, this program understands {FORMAT}"));
        }
        let blocks = u32_at(first, 48) as usize;
        if blocks as u64 > OBJECT_BYTES_MAX / BLOCK as u64 {
            return Err("its head is damaged".into());
        }
        Ok(head_bytes(blocks))
    }

    /// Reads a whole head, and checks that it is the wanted one. Clears the checksum in `head`.
    pub(crate) fn decode(name: &Name, head: &mut [u8]) -> Result<Head, String> {
        let wanted = u32_at(head, 60);
        head[60..64].fill(0);
        if crc(head) != wanted {
            return Err("its head is damaged".into());
        }
        let found = Name {
            pool: u32_at(head, 20),
            id: ObjectId { segment: u64_at(head, 24), generation: u32_at(head, 16) },
            data: head[10],
            parity: head[11],
            piece: u16::from_le_bytes([head[12], head[13]]),
        };
        if found != *name {
            let (id, piece) = (found.id, found.piece);
            let what = format!("{}.{}, pool {}", id.segment, id.generation, found.pool);
            return Err(format!("it is another piece: {piece} of {what}, {}+{}", found.data, found.parity));
        }
        let blocks = u32_at(head, 48) as usize;
        let (object_bytes, stamp) = (u64_at(head, 32), u64_at(head, 40));
        let cut = Cut { data: name.data.into(), parity: name.parity.into(), object_bytes };
        if object_bytes > OBJECT_BYTES_MAX || cut.blocks(name.piece.into()) != blocks {
            return Err("its lengths do not fit".into());
        }
        let crcs =
            head[FIXED_BYTES..FIXED_BYTES + 4 * blocks].chunks_exact(4).map(|b| u32_at(b, 0)).collect();
        Ok(Head { object_bytes, stamp, crcs })
    }

    /// Whether the checksums match these blocks, from block `first` on.
    pub(crate) fn holds(&self, first: usize, blocks: &[u8]) -> bool {
        let sums = self.crcs[first..].iter();
        blocks.len() / BLOCK <= sums.len()
            && blocks.chunks(BLOCK).zip(sums).all(|(block, sum)| crc(block) == *sum)
    }
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

/// A piece under construction: its buffer and the checksums of the complete blocks.
struct Making {
    buf: AlignedBuf,
    head_bytes: usize,
    crcs: Vec<u32>,
}

impl Making {
    fn new(blocks: usize, buffer: &dyn Fn(usize) -> AlignedBuf) -> Making {
        let head_bytes = head_bytes(blocks);
        Making { buf: buffer(head_bytes + blocks * BLOCK), head_bytes, crcs: Vec::with_capacity(blocks) }
    }

    fn part(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.buf[self.head_bytes + range.start..self.head_bytes + range.end]
    }

    fn copy(&mut self, from: &[u8], range: Range<usize>) {
        for (n, block) in from[range.clone()].chunks(BLOCK).enumerate() {
            let at = range.start + n * BLOCK;
            self.part(at..at + block.len()).copy_from_slice(block);
            self.crcs.push(crc(block));
        }
    }

    fn sum_up(&mut self, range: Range<usize>) {
        let crcs: Vec<u32> = self.part(range).chunks(BLOCK).map(crc).collect();
        self.crcs.extend(crcs);
    }

    fn finish(mut self, name: Name, object_bytes: u64, stamp: u64) -> (usize, AlignedBuf) {
        let head = Head { object_bytes, stamp, crcs: self.crcs.into() };
        head.encode(&name, &mut self.buf);
        (name.piece.into(), self.buf)
    }
}

/// All stored pieces of an object, in order. `buffer` gives memory of a length, with any content.
/// The piece number in `name` is ignored.
pub(crate) fn cut_up(
    code: &Code,
    name: Name,
    stamp: u64,
    body: &[u8],
    buffer: &dyn Fn(usize) -> AlignedBuf,
) -> Vec<(usize, AlignedBuf)> {
    let cut = Cut { data: name.data.into(), parity: name.parity.into(), object_bytes: body.len() as u64 };
    let full = cut.full_blocks() * BLOCK;
    let sources: Vec<&[u8]> = body.chunks(full.max(1)).collect();
    let mut data: Vec<Making> = sources.iter().map(|s| Making::new(s.len() / BLOCK, buffer)).collect();
    let mut parity: Vec<Making> = (0..cut.parity).map(|_| Making::new(full / BLOCK, buffer)).collect();
    for from in (0..full).step_by(STRIP_BYTES) {
        let to = full.min(from + STRIP_BYTES);
        let mut strips: Vec<&[u8]> = vec![&[]; cut.data];
        for (n, (source, making)) in sources.iter().zip(&mut data).enumerate() {
            let range = from.min(source.len())..to.min(source.len());
            making.copy(source, range.clone());
            strips[n] = &source[range];
        }
        let mut sums: Vec<&mut [u8]> = parity.iter_mut().map(|making| making.part(from..to)).collect();
        code.parity().apply(&strips, &mut sums);
        parity.iter_mut().for_each(|making| making.sum_up(from..to));
    }
    let at = (0..data.len()).chain(cut.data..cut.data + cut.parity);
    at.zip(data.into_iter().chain(parity))
        .map(|(piece, making)| making.finish(Name { piece: piece as u16, ..name }, cut.object_bytes, stamp))
        .collect()
}

/// Computes the pieces `want` from the blocks of others (data pieces without blocks are given as
/// empty slices).
pub(crate) fn rebuild(
    code: &Code,
    name: Name,
    head: &Head,
    have: &[(usize, &[u8])],
    want: &[usize],
) -> Vec<(usize, AlignedBuf)> {
    let (pieces, blocks): (Vec<usize>, Vec<&[u8]>) = have.iter().copied().unzip();
    let cut = Cut { data: name.data.into(), parity: name.parity.into(), object_bytes: head.object_bytes };
    let full = cut.full_blocks() * BLOCK;
    let rows = code.rebuild(&pieces, want);
    // a short piece is computed in full length: the excess is zeros
    let mut made: Vec<Making> = want.iter().map(|_| Making::new(full / BLOCK, &AlignedBuf::zeroed)).collect();
    for from in (0..full).step_by(STRIP_BYTES) {
        let to = full.min(from + STRIP_BYTES);
        let strips: Vec<&[u8]> = blocks.iter().map(|b| &b[from.min(b.len())..to.min(b.len())]).collect();
        let mut outs: Vec<&mut [u8]> = made.iter_mut().map(|making| making.part(from..to)).collect();
        rows.apply(&strips, &mut outs);
        made.iter_mut().for_each(|making| making.sum_up(from..to));
    }
    want.iter()
        .zip(made)
        .map(|(piece, mut making)| {
            let blocks = cut.blocks(*piece);
            making.crcs.truncate(blocks);
            if head_bytes(blocks) < making.head_bytes {
                let (from, len) = (making.head_bytes, blocks * BLOCK);
                making.buf.copy_within(from..from + len, head_bytes(blocks));
            }
            making.buf.set_len(head_bytes(blocks) + blocks * BLOCK);
            making.finish(Name { piece: *piece as u16, ..name }, head.object_bytes, head.stamp)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::body;
    use proptest::prelude::*;

    fn name(data: u8, parity: u8) -> Name {
        let id = ObjectId { segment: 0x0102_0304_0506_0708, generation: 9 };
        Name { pool: 7, id, data, parity, piece: 0 }
    }

    fn pieces(data: u8, parity: u8, body: &[u8]) -> Vec<(usize, AlignedBuf)> {
        let code = Code::new(data.into(), parity.into());
        cut_up(&code, name(data, parity), 5, body, &AlignedBuf::zeroed)
    }

    fn open(data: u8, parity: u8, piece: usize, stored: &AlignedBuf) -> (Head, usize) {
        let length = Head::length(stored).unwrap();
        let name = Name { piece: piece as u16, ..name(data, parity) };
        (Head::decode(&name, &mut stored[..length].to_vec()).unwrap(), length)
    }

    #[test]
    fn lengths_of_pieces_say_how_many_blocks() {
        for blocks in (0..3000).chain([4096, 70_000]) {
            assert_eq!(blocks_of((head_bytes(blocks) + blocks * BLOCK) as u64), Some(blocks));
        }
        assert_eq!((blocks_of(0), blocks_of(5000)), (None, None));
    }

    /// The bytes of a piece, which never change.
    #[test]
    fn golden() {
        let whole = body(1, 5 * BLOCK);
        let all = pieces(2, 1, &whole);
        assert_eq!(all.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2]);
        let head = &all[1].1[..80];
        let hex: String = head.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert!(all[1].1[72..BLOCK].iter().all(|b| *b == 0));
        assert_eq!(all[1].1[BLOCK..], whole[3 * BLOCK..]);
        assert_eq!(crc(&all[2].1[BLOCK..]), GOLDEN_PARITY);
    }

    const GOLDEN: &str = "6c65652d70696563010002010100000009000000070000000807060504030201\
        00500000000000000500000000000000020000000000000000000000d3ea93bb\
        8eaa83f8d70a6d8f0000000000000000";
    const GOLDEN_PARITY: u32 = 1_403_566_691;

    proptest! {
        #[test]
        fn any_enough_pieces_give_the_object_and_the_rest(
            data in 1u8..16, parity in 1u8..5, blocks in 1usize..80, order: u64,
        ) {
            let whole = body(order, blocks * BLOCK);
            let all = pieces(data, parity, &whole);
            let cut = Cut { data: data.into(), parity: parity.into(), object_bytes: whole.len() as u64 };
            prop_assert_eq!(all.iter().map(|(n, _)| *n).collect::<Vec<_>>(), cut.stored().collect::<Vec<_>>());
            prop_assert_eq!(all.len(), cut.needed() + cut.parity);
            let mut joined = Vec::new();
            for (n, stored) in &all {
                let (head, at) = open(data, parity, *n, stored);
                prop_assert_eq!((head.object_bytes, head.stamp), (whole.len() as u64, 5));
                prop_assert!(head.holds(0, &stored[at..]) && stored.len() == at + cut.blocks(*n) * BLOCK);
                if *n < cut.data {
                    joined.extend_from_slice(&stored[at..]);
                }
            }
            prop_assert_eq!(&joined[..], &whole[..]);

            let mut shuffled: Vec<usize> = (0..all.len()).collect();
            shuffled.sort_by_key(|n| (*n as u64 + 1).wrapping_mul(order | 1).rotate_left(23));
            let (have, want) = shuffled.split_at(cut.needed());
            let blocks_of_piece = |n: &usize| {
                let (piece, stored) = &all[*n];
                (*piece, &stored[head_bytes(cut.blocks(*piece))..])
            };
            let empty = (0..cut.data).filter(|n| cut.blocks(*n) == 0).map(|n| (n, &[][..]));
            let inputs: Vec<(usize, &[u8])> = have.iter().map(blocks_of_piece).chain(empty).collect();
            let want: Vec<usize> = want.iter().map(|n| all[*n].0).collect();
            let code = Code::new(data.into(), parity.into());
            let head = Head { object_bytes: whole.len() as u64, stamp: 5, crcs: Box::default() };
            for (n, rebuilt) in rebuild(&code, name(data, parity), &head, &inputs, &want) {
                let stored = &all.iter().find(|(piece, _)| *piece == n).unwrap().1;
                prop_assert!(rebuilt[..] == stored[..], "piece {}", n);
            }
        }

        #[test]
        fn any_flipped_bit_is_noticed(bit in 0usize..2 * BLOCK * 8) {
            let whole = body(3, 2 * BLOCK);
            let mut stored = pieces(2, 1, &whole).remove(1).1;
            stored[bit / 8] ^= 1 << (bit % 8);
            let at = Head::length(&stored).unwrap_or(BLOCK);
            let good = at <= stored.len() && {
                let name = Name { piece: 1, ..name(2, 1) };
                let head = Head::decode(&name, &mut stored[..at].to_vec());
                head.is_ok_and(|head| head.holds(0, &stored[at..]))
            };
            prop_assert!(!good);
        }
    }
}
