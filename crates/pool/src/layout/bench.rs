//! The processor's part of a layout alone, for the measurement in `examples/layout_bench.rs`.

use super::code::Code;
use super::piece::{BLOCK, Cut, Head, Name, crc, cut_up, head_bytes, rebuild};
use super::spec::Layout;
use crate::{AlignedBuf, ObjectId};
use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 20;

/// The cost of cutting up an object and of rebuilding lost pieces, as lines to print.
#[allow(clippy::disallowed_methods)] // a measurement
pub fn processor(layout: Layout, body: &AlignedBuf) -> Vec<String> {
    if layout.parity() == 0 {
        return Vec::new();
    }
    let best = |work: &mut dyn FnMut()| {
        let time = |_| {
            let start = Instant::now();
            work();
            start.elapsed()
        };
        (0..ROUNDS).map(time).min().unwrap_or_default()
    };
    let per_mb = |took: Duration| took.as_secs_f64() * 1e3 / (body.len() as f64 / 1e6);
    let mut work = Processor::new(layout, body);
    let checksums = best(&mut || work.checksums());
    let parity = best(&mut || work.parity());
    let all = best(&mut || work.cut_up());
    let lost = best(&mut || work.rebuild());
    let line = |what: &str, took| format!("{layout}: {what} {:.3} ms per MB of data", per_mb(took));
    vec![
        line("checksums alone", checksums),
        line("parity alone", parity),
        line("cutting up (copy, checksums, parity, heads)", all),
        line("rebuilding all that may be lost, from memory", lost),
    ]
}

struct Processor<'a> {
    code: Code,
    name: Name,
    cut: Cut,
    body: &'a AlignedBuf,
    spare: RefCell<Vec<AlignedBuf>>,
    sums: Vec<AlignedBuf>,
    pieces: Vec<(usize, AlignedBuf)>,
}

impl<'a> Processor<'a> {
    /// For an object that has data in each piece.
    fn new(layout: Layout, body: &'a AlignedBuf) -> Processor<'a> {
        let (data, parity) = (layout.data(), layout.parity());
        let code = Code::new(data, parity);
        let id = ObjectId { segment: 1, generation: 0 };
        let name = Name { pool: 1, id, data: data as u8, parity: parity as u8, piece: 0 };
        let cut = Cut { data, parity, object_bytes: body.len() as u64 };
        let sums = (0..parity).map(|_| AlignedBuf::zeroed(cut.full_blocks() * BLOCK)).collect();
        let pieces = cut_up(&code, name, 1, body, &AlignedBuf::zeroed);
        Processor { code, name, cut, body, spare: RefCell::default(), sums, pieces }
    }

    fn checksums(&self) {
        black_box(self.body.chunks(BLOCK).fold(0, |all, block| all ^ crc(block)));
    }

    fn parity(&mut self) {
        let sources: Vec<&[u8]> = self.body.chunks(self.cut.full_blocks() * BLOCK).collect();
        let mut sums: Vec<&mut [u8]> = self.sums.iter_mut().map(|sum| &mut sum[..]).collect();
        self.code.parity().apply(&sources, &mut sums);
    }

    fn cut_up(&mut self) {
        let take = |bytes: usize| {
            let mut spare = self.spare.borrow_mut();
            let fits = spare.iter().position(|buf| buf.capacity() >= bytes);
            let mut buf = fits.map_or_else(|| AlignedBuf::zeroed(bytes), |n| spare.swap_remove(n));
            buf.set_len(bytes);
            buf
        };
        let pieces = cut_up(&self.code, self.name, 1, self.body, &take);
        self.spare.borrow_mut().extend(pieces.into_iter().map(|(_, buf)| buf));
    }

    /// The first pieces of the rest.
    fn rebuild(&self) {
        let at = |piece: usize| head_bytes(self.cut.blocks(piece));
        let (lost, left) = self.pieces.split_at(self.cut.parity.min(self.cut.data));
        let have: Vec<(usize, &[u8])> =
            left.iter().map(|(piece, stored)| (*piece, &stored[at(*piece)..])).take(self.cut.data).collect();
        let want: Vec<usize> = lost.iter().map(|(piece, _)| *piece).collect();
        let head = Head { object_bytes: self.cut.object_bytes, stamp: 1, crcs: Box::default() };
        black_box(rebuild(&self.code, self.name, &head, &have[..self.cut.data], &want));
    }
}
