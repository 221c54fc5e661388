//! Reading ranges of objects from a group of stores.
//!
//! A range is cut where pieces end. Each part is asked of the one store that has it; blocks are verified before they
//! are believed. When the store fails, lies, or takes longer than 95 of 100 of its reads did, the same blocks of
//! enough other pieces are asked for as well, and the part is computed of those; what comes first wins. Stores that
//! rest, and pieces that are noted as missing, are asked last: before an object is said to be unreadable everybody
//! was asked.

use super::group::{Core, Fault};
use super::known::Info;
use super::piece::{BLOCK, Cut, Head};
use crate::{AlignedBuf, Error, ObjectId, Result};
use leeward_env::{Ctx, Env, Nanos};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The longest that anything waits for stores that do not answer.
pub(super) const PATIENCE: Nanos = 60_000_000_000;
/// A store that nothing is known of is given so long before others are asked, too.
const HEDGE: Nanos = 100_000_000;
/// No store is given less than this, nor more than that.
const HEDGE_MIN: Nanos = 2_000_000;
const HEDGE_MAX: Nanos = 1_000_000_000;
/// What more a store is given for each block asked for: most reads are short.
const HEDGE_PER_BLOCK: Nanos = 40_000;
/// How often a read begins anew because the object was put again meanwhile.
const ATTEMPTS: usize = 4;

/// Waits for an answer until some time; for ever is not long here.
pub(super) fn next_answer<T>(
    env: &Env,
    answers: &Receiver<T>,
    until: Nanos,
) -> std::result::Result<T, RecvTimeoutError> {
    if env.is_sim() {
        return answers.try_recv().map_err(|_| RecvTimeoutError::Timeout); // all was done when it was handed over
    }
    answers.recv_timeout(Duration::from_nanos(until.saturating_sub(env.now())))
}

/// Verified blocks of a piece.
type Blocks = std::result::Result<AlignedBuf, Fault>;

/// Blocks of one piece that are wanted, and what was had so far to make them of.
pub(super) struct Part {
    /// The piece that is wanted; for copies any is as good.
    piece: usize,
    blocks: Range<usize>,
    got: BTreeMap<usize, AlignedBuf>,
    faults: BTreeMap<usize, Fault>,
    asked: u64,
    /// Pieces that were asked for and not answered, and until when they are not late.
    waiting: BTreeMap<usize, Nanos>,
    late: u64,
}

impl Part {
    pub(super) fn new(piece: usize, blocks: Range<usize>) -> Part {
        let (got, faults, waiting) = Default::default();
        Part { piece, blocks, got, faults, asked: 0, waiting, late: 0 }
    }

    /// A part of which the piece itself is not to be had.
    pub(super) fn without(mut self, pieces: u64) -> Part {
        self.asked |= pieces;
        self
    }

    /// Takes the blocks of a piece that were had already.
    pub(super) fn give(&mut self, piece: usize, blocks: AlignedBuf) {
        self.asked |= 1 << piece;
        self.got.insert(piece, blocks);
    }

    /// The same range of another piece.
    pub(super) fn wanting(self, piece: usize) -> Part {
        Part { piece, ..self }
    }

    /// Pieces that were had.
    pub(super) fn given(&self) -> u64 {
        self.got.keys().fold(0, |all, piece| all | 1 << piece)
    }

    /// What was had, and what went wrong.
    pub(super) fn into_parts(self) -> (BTreeMap<usize, AlignedBuf>, BTreeMap<usize, Fault>) {
        (self.got, self.faults)
    }

    /// Blocks of the range that another piece has: the last data piece is shorter.
    fn range_in(&self, cut: &Cut, piece: usize) -> Range<usize> {
        let end = cut.blocks(piece);
        self.blocks.start.min(end)..self.blocks.end.min(end)
    }

    /// Data pieces that have nothing in this range: zeros, which everybody has.
    fn zeros(&self, cut: &Cut) -> usize {
        (0..cut.data).filter(|piece| self.range_in(cut, *piece).is_empty()).count()
    }

    fn lacks(&self, cut: &Cut) -> usize {
        if self.got.contains_key(&self.piece) {
            return 0;
        }
        cut.data.saturating_sub(self.got.len() + self.zeros(cut))
    }

    /// Answers that may still come in time.
    fn hopes(&self) -> usize {
        self.waiting.keys().filter(|piece| self.late >> *piece & 1 == 0).count()
    }
}

/// A read in progress.
pub(super) struct Reading<'a> {
    core: &'a Arc<Core>,
    ctx: &'a Ctx,
    id: ObjectId,
    info: Info,
    cut: Cut,
    parts: Vec<Part>,
    /// Pieces that are noted as missing: asked last.
    noted: u64,
    sender: Sender<(usize, usize, Blocks)>,
    answers: Receiver<(usize, usize, Blocks)>,
    /// The object was put again: what is known of it is old.
    outdated: bool,
}

impl<'a> Reading<'a> {
    pub(super) fn new(
        core: &'a Arc<Core>,
        ctx: &'a Ctx,
        id: ObjectId,
        info: Info,
        parts: Vec<Part>,
    ) -> Reading<'a> {
        let (sender, answers) = channel();
        let noted = core.notes.lock().missing_of(id);
        let cut = core.cut(info.object_bytes);
        Reading { core, ctx, id, info, cut, parts, noted, sender, answers, outdated: false }
    }

    /// Until all parts can be made, or one cannot. False when it cannot.
    pub(super) fn run(&mut self) -> bool {
        let give_up = self.core.env.now() + PATIENCE;
        loop {
            for n in 0..self.parts.len() {
                self.ask_more(n);
            }
            if self.parts.iter().all(|part| part.lacks(&self.cut) == 0) {
                return true;
            }
            let hopeless = |part: &Part| part.lacks(&self.cut) > 0 && part.waiting.is_empty();
            if self.outdated || self.parts.iter().any(hopeless) || self.core.env.now() >= give_up {
                return false;
            }
            let late = |part: &Part| {
                part.waiting.iter().filter(|(p, _)| part.late >> *p & 1 == 0).map(|(_, at)| *at).min()
            };
            let until = self.parts.iter().filter_map(late).min().unwrap_or(give_up).min(give_up);
            match next_answer(&self.core.env, &self.answers, until) {
                Ok((part, piece, blocks)) => self.take(part, piece, blocks),
                Err(_) => self.mark_late(),
            }
        }
    }

    fn take(&mut self, n: usize, piece: usize, blocks: Blocks) {
        let part = &mut self.parts[n];
        part.waiting.remove(&piece);
        match blocks {
            Ok(blocks) => drop(part.got.insert(piece, blocks)),
            Err(fault) => {
                self.outdated |= matches!(fault, Fault::Newer);
                part.faults.insert(piece, fault);
            }
        }
    }

    fn mark_late(&mut self) {
        let now = self.core.env.now();
        for part in &mut self.parts {
            for (piece, _) in part.waiting.iter().filter(|(_, at)| **at <= now) {
                if part.late >> piece & 1 == 0 {
                    part.late |= 1 << piece;
                    let home = &self.core.slot(self.id, *piece).home;
                    home.hedged.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    }

    /// Asks for what is needed that is not on its way: first the piece itself, then others.
    fn ask_more(&mut self, n: usize) {
        let part = &self.parts[n];
        if part.lacks(&self.cut) == 0 {
            return;
        }
        let own = part.piece;
        if part.asked >> own & 1 == 0 && self.is_good(own) {
            return self.ask(n, own);
        }
        if part.waiting.contains_key(&own) && part.late >> own & 1 == 0 {
            return;
        }
        while self.parts[n].lacks(&self.cut) > self.parts[n].hopes() {
            match self.candidate(n) {
                Some(piece) => self.ask(n, piece),
                None => return,
            }
        }
    }

    fn is_good(&self, piece: usize) -> bool {
        self.noted >> piece & 1 == 0 && self.core.slot(self.id, piece).may_ask()
    }

    /// A piece that was not asked for; one that is noted or on a resting store only when there is no other.
    fn candidate(&self, n: usize) -> Option<usize> {
        let part = &self.parts[n];
        let left = || {
            self.cut.stored().filter(|piece| {
                part.asked >> *piece & 1 == 0
                    && !part.range_in(&self.cut, *piece).is_empty()
                    && self.core.slot(self.id, *piece).is_open()
            })
        };
        left().find(|piece| self.is_good(*piece)).or_else(|| left().next())
    }

    fn ask(&mut self, n: usize, piece: usize) {
        let part = &mut self.parts[n];
        let range = part.range_in(&self.cut, piece);
        let seat = self.core.slot(self.id, piece).home.clone();
        let patience = seat.read_p95().unwrap_or(HEDGE).clamp(HEDGE_MIN, HEDGE_MAX);
        let late_at = self.core.env.now() + patience + range.len() as Nanos * HEDGE_PER_BLOCK;
        part.asked |= 1 << piece;
        part.waiting.insert(piece, late_at);
        let (core, ctx, id, info) = (self.core.clone(), *self.ctx, self.id, self.info);
        let sender = self.sender.clone();
        let job = move || {
            let _ = sender.send((n, piece, core.read_blocks(&ctx, id, &info, piece, range))); // or nobody waits
        };
        if seat.hand_over(job).is_err() {
            self.take(n, piece, Err(Fault::Away("too much waits for it already".into())));
        }
    }

    /// The blocks of a part that can be made.
    fn make(&self, part: &Part, out: &mut dyn FnMut(&[u8])) {
        if let Some(blocks) = part.got.get(&part.piece) {
            return out(&blocks[..part.blocks.len() * BLOCK]);
        }
        let empty = AlignedBuf::zeroed(0);
        let zeros = (0..self.cut.data).filter(|piece| part.range_in(&self.cut, *piece).is_empty());
        let mut have: Vec<(usize, &[u8])> = zeros.map(|piece| (piece, &empty[..0])).collect();
        have.extend(
            part.got
                .iter()
                .map(|(piece, blocks)| (*piece, &blocks[..part.range_in(&self.cut, *piece).len() * BLOCK])),
        );
        have.truncate(self.cut.data);
        let (pieces, blocks): (Vec<usize>, Vec<&[u8]>) = have.into_iter().unzip();
        let len = part.blocks.len() * BLOCK;
        let mut made = AlignedBuf::zeroed(len);
        self.core.code.rebuild(&pieces, &[part.piece]).apply(&blocks, &mut [&mut made[..len]]);
        out(&made[..len]);
    }

    /// Notes what was found wrong with pieces of an object that is there.
    pub(super) fn note_faults(&self) {
        let wrong = |fault: &Fault| matches!(fault, Fault::Missing | Fault::Bad(_));
        let all = self.parts.iter().flat_map(|part| &part.faults);
        let pieces = all.filter(|(_, fault)| wrong(fault)).fold(0, |all, (piece, _)| all | 1 << piece);
        self.core.notes.lock().missing(self.id, pieces);
    }

    pub(super) fn into_parts(self) -> Vec<Part> {
        self.parts
    }

    fn error(&mut self) -> Error {
        let cut = self.cut;
        let lacking = self.parts.iter_mut().find(|part| part.lacks(&cut) > 0);
        let Some(part) = lacking else { return Error::NotFound(self.id) };
        for piece in std::mem::take(&mut part.waiting).into_keys() {
            part.faults.insert(piece, Fault::Away("it does not answer".into()));
        }
        for piece in cut.stored().filter(|piece| !self.core.slot(self.id, *piece).is_open()) {
            part.faults.insert(piece, Fault::Away("it is not open".into()));
        }
        let have = part.got.len() + part.zeros(&cut);
        self.core.unreadable(self.id, have, cut.data, &part.faults)
    }
}

impl Core {
    pub(super) fn get(self: &Arc<Self>, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut attempts = 0;
        loop {
            let info = if attempts == 0 { self.info(ctx, id)? } else { self.survey_info(ctx, id)? };
            let end = offset.checked_add(buf.len() as u64).ok_or(Error::Short(id))?;
            if end > info.object_bytes {
                return Err(Error::Short(id));
            }
            let mut reading = Reading::new(self, ctx, id, info, self.parts(id, &info, offset..end));
            let done = reading.run();
            if done {
                reading.note_faults();
                let ranges = self.ranges(&reading.cut, offset..end);
                let mut rest = &mut *buf;
                for ((_, bytes), part) in ranges.zip(&reading.parts) {
                    let (out, more) = std::mem::take(&mut rest).split_at_mut(bytes.len());
                    rest = more;
                    let from = bytes.start - part.blocks.start * BLOCK;
                    let len = out.len();
                    reading.make(part, &mut |blocks| out.copy_from_slice(&blocks[from..from + len]));
                }
                for blocks in reading.into_parts().into_iter().flat_map(|part| part.got.into_values()) {
                    self.give_buffer(blocks);
                }
                return Ok(());
            }
            attempts += 1;
            self.known.forget(id);
            // what was known of the object may be what is wrong
            let again = reading.outdated || attempts == 1;
            if !again || attempts >= ATTEMPTS {
                return Err(reading.error());
            }
        }
    }

    /// Where a range is: pieces, and bytes among their blocks.
    fn ranges(&self, cut: &Cut, range: Range<u64>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (cut, mut at) = (*cut, range.start);
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let (piece, from) = cut.place(at);
            let to = (from as u64 + range.end - at).min((cut.full_blocks() * BLOCK) as u64) as usize;
            at += (to - from) as u64;
            Some((piece, from..to))
        })
    }

    fn parts(&self, id: ObjectId, info: &Info, range: Range<u64>) -> Vec<Part> {
        let cut = self.cut(info.object_bytes);
        let part = |(piece, bytes): (usize, Range<usize>)| {
            let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
            let piece = if cut.data == 1 { self.best_copy(id) } else { piece };
            Part::new(piece, blocks)
        };
        self.ranges(&cut, range).map(part).collect()
    }

    /// The first copy whose store does its work.
    fn best_copy(&self, id: ObjectId) -> usize {
        let noted = self.notes.lock().missing_of(id);
        let good = |piece: &usize| noted >> piece & 1 == 0 && !self.slot(id, *piece).home.is_failing();
        (0..self.slots.len()).find(good).unwrap_or(0)
    }

    /// Reads and verifies blocks of a piece.
    pub(super) fn read_blocks(
        &self,
        ctx: &Ctx,
        id: ObjectId,
        info: &Info,
        piece: usize,
        blocks: Range<usize>,
    ) -> Blocks {
        let slot = self.slot(id, piece);
        let head = match self.known.piece(id, piece, info.stamp) {
            Some(head) => head,
            None => {
                let head: Arc<Head> = self.read_head(ctx, id, piece)?.into();
                self.known.learn_piece(id, piece, &head);
                head
            }
        };
        if head.stamp != info.stamp {
            let newer = head.stamp > info.stamp;
            return Err(if newer { Fault::Newer } else { self.bad(slot, "it is of an earlier put".into()) });
        }
        let at = (super::piece::head_bytes(head.crcs.len()) + blocks.start * BLOCK) as u64;
        let len = blocks.len() * BLOCK;
        let mut buf = self.take_buffer(len);
        slot.find(|store| store.get(ctx, id, at, &mut buf[..len])).map_err(|e| self.fault(slot, e))?;
        if !head.holds(blocks.start, &buf[..len]) {
            return Err(self.bad(slot, "a checksum does not hold".into()));
        }
        Ok(buf)
    }
}
