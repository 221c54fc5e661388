//! Reading ranges of objects from a group of stores.
//!
//! A range is cut where pieces end. Each part is read from the one store that has it, and its
//! blocks are verified before use. When the store fails, lies, or takes longer than 95 of 100 of
//! its reads did, the same blocks of enough other pieces are read as well, and the part is computed
//! from those. The first result wins. Resting stores, and pieces that are noted as missing, are
//! asked last: before an object counts as unreadable every store was asked. While users make
//! requests, background work asks one store after the other.
//!
//! Stores are called on their own threads, except for the last call. That one runs on the caller's
//! thread if the store is as quick as a solid state disk and no other caller does so in this pool:
//! a hand-over takes as long as such a read. If the store hangs at just that time, it holds up this
//! one read for as long as it hangs.

use super::answers::{Answer, Blocks, Fault, Inbox, PATIENCE, TurnTime};
use super::group::Core;
use super::known::Info;
use super::lane::Takes;
use super::piece::{BLOCK, Cut, Head};
use super::pool_store::{HEDGE_MAX, HEDGE_MIN};
use crate::{AlignedBuf, Error, ObjectId, Result};
use leeward_env::{Ctx, Nanos};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A store of unknown speed gets this time before others are asked, too.
const HEDGE: Nanos = 100_000_000;
/// The additional time that a store gets for each block: most reads are short.
const HEDGE_PER_BLOCK: Nanos = 40_000;
/// A range is long when it is more than this part (one in `LONG_PART`) of its object.
const LONG_PART: u64 = 4;
/// How often a read starts again because the object was put again meanwhile.
const ATTEMPTS: usize = 4;

/// Blocks of one piece that are wanted.
pub(super) struct Part {
    /// The piece; with copies any piece will do.
    piece: usize,
    blocks: Range<usize>,
    /// Pieces that must not be used.
    without: u64,
}

impl Part {
    pub(super) fn new(piece: usize, blocks: Range<usize>) -> Part {
        Part { piece, blocks, without: 0 }
    }

    /// The part, without the use of these pieces.
    pub(super) fn without(self, pieces: u64) -> Part {
        Part { without: pieces, ..self }
    }

    /// The blocks of the range that another piece has: the last data piece is shorter.
    fn range_in(&self, cut: &Cut, piece: usize) -> Range<usize> {
        let end = cut.blocks(piece);
        self.blocks.start.min(end)..self.blocks.end.min(end)
    }

    /// Data pieces that have no data in this range: they are zeros.
    fn zeros(&self, cut: &Cut) -> impl Iterator<Item = usize> {
        (0..cut.data).filter(|piece| self.range_in(cut, *piece).is_empty())
    }
}

/// One call of a store. Several parts may use it.
struct Request {
    piece: usize,
    blocks: Range<usize>,
    state: RequestState,
}

enum RequestState {
    /// The call counts as late from then on.
    Waiting(Nanos),
    /// Late: others are asked as well.
    Late,
    Here(AlignedBuf),
    Failed,
}

impl Request {
    /// Whether the call reads all that a part needs of its piece.
    fn covers(&self, part: &Part, cut: &Cut) -> bool {
        let wanted = part.range_in(cut, self.piece);
        self.blocks.start <= wanted.start && wanted.end <= self.blocks.end
    }
}

/// What a call is to read.
struct BlockRequest {
    request: usize,
    piece: usize,
    blocks: Range<usize>,
}

/// A read in progress.
pub(super) struct Reading<'a> {
    core: &'a Arc<Core>,
    ctx: &'a Ctx,
    id: ObjectId,
    info: Info,
    cut: Cut,
    parts: Vec<Part>,
    requests: Vec<Request>,
    faults: BTreeMap<usize, Fault>,
    /// Pieces that are noted as missing: asked last.
    noted: u64,
    /// The last call, which has not been made yet.
    held: Option<BlockRequest>,
    inbox: Arc<Inbox>,
    /// Stores are asked one after the other.
    in_turn: bool,
    /// All stores were asked for the object's versions: a piece of a later put belongs to a put
    /// that failed.
    surveyed: bool,
    /// The object was put again: what is known of it is outdated.
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
        let noted = core.notes.lock().missing_of(id);
        Reading {
            core,
            ctx,
            id,
            info,
            cut: core.cut(info.object_bytes),
            parts,
            requests: Vec::new(),
            faults: BTreeMap::new(),
            noted,
            held: None,
            inbox: Arc::default(),
            in_turn: core.in_turn(ctx),
            surveyed: false,
            outdated: false,
        }
    }

    /// Takes a whole piece that was read before.
    pub(super) fn give(&mut self, piece: usize, blocks: AlignedBuf) {
        let state = RequestState::Here(blocks);
        self.requests.push(Request { piece, blocks: 0..self.cut.blocks(piece), state });
    }

    /// Runs until all parts can be made, or one cannot. False when one cannot.
    pub(super) fn run(&mut self) -> bool {
        let give_up = self.core.env.now() + PATIENCE;
        loop {
            for n in 0..self.parts.len() {
                self.ask_more(n);
            }
            if self.call_held() {
                continue;
            }
            if self.parts.iter().all(|part| self.lacks(part) == 0) {
                return true;
            }
            let holds_back = self.holds_back();
            let hopeless = |part: &Part| self.lacks(part) > 0 && !self.waits(part) && !holds_back;
            if self.outdated || self.parts.iter().any(hopeless) || self.core.env.now() >= give_up {
                return false;
            }
            let late_at = |request: &Request| match request.state {
                RequestState::Waiting(late_at) => Some(late_at),
                _ => None,
            };
            let until = self.requests.iter().filter_map(late_at).min().unwrap_or(give_up).min(give_up);
            for Answer { request, blocks, .. } in self.inbox.take(&self.core.env, self.wanted(), until) {
                self.take(request, blocks);
            }
            self.mark_late();
        }
    }

    /// How many answers to wait for: all that are needed, or the first one when a call is late.
    fn wanted(&self) -> usize {
        let lacking: Vec<&Part> = self.parts.iter().filter(|part| self.lacks(part) > 0).collect();
        let is_late = |r: &Request| matches!(r.state, RequestState::Late);
        let is_needed = |r: &&Request| {
            matches!(r.state, RequestState::Waiting(_))
                && lacking.iter().any(|part| r.covers(part, &self.cut))
        };
        if self.requests.iter().any(is_late) { 1 } else { self.requests.iter().filter(is_needed).count() }
    }

    fn take(&mut self, request: usize, blocks: Blocks) {
        let request = &mut self.requests[request];
        match blocks {
            Ok(blocks) => request.state = RequestState::Here(blocks),
            Err(fault) => {
                request.state = RequestState::Failed;
                self.outdated |= matches!(fault, Fault::Newer) && !self.surveyed;
                self.faults.insert(request.piece, fault);
            }
        }
    }

    fn mark_late(&mut self) {
        let now = self.core.env.now();
        for request in &mut self.requests {
            if matches!(request.state, RequestState::Waiting(late_at) if late_at <= now) {
                request.state = RequestState::Late;
                self.core.slot(self.id, request.piece).home.is_late();
            }
        }
    }

    /// The call that reads what a part needs of a piece. There may be several: the best.
    fn request(&self, part: &Part, piece: usize) -> Option<&Request> {
        let covers = |r: &&Request| r.piece == piece && r.covers(part, &self.cut);
        let worth = |r: &&Request| match r.state {
            RequestState::Here(_) => 3,
            RequestState::Waiting(_) => 2,
            RequestState::Late => 1,
            RequestState::Failed => 0,
        };
        self.requests.iter().filter(covers).max_by_key(worth)
    }

    /// The calls for a part, one for each piece that was asked for.
    fn calls(&self, part: &Part) -> impl Iterator<Item = &Request> {
        let stored = self.cut.stored().filter(|piece| !part.range_in(&self.cut, *piece).is_empty());
        stored.filter_map(|piece| self.request(part, piece))
    }

    /// How many more pieces a part needs.
    fn lacks(&self, part: &Part) -> usize {
        let is_here = |r: &Request| matches!(r.state, RequestState::Here(_));
        if self.request(part, part.piece).is_some_and(is_here) {
            return 0;
        }
        let here = self.calls(part).filter(|r| is_here(r)).count();
        self.cut.data.saturating_sub(here + part.zeros(&self.cut).count())
    }

    /// Whether an answer may still come.
    fn waits(&self, part: &Part) -> bool {
        self.calls(part).any(|r| matches!(r.state, RequestState::Waiting(_) | RequestState::Late))
    }

    /// Whether the next call is made only when the one before has answered, or is late.
    fn holds_back(&self) -> bool {
        self.in_turn && self.requests.iter().any(|r| matches!(r.state, RequestState::Waiting(_)))
    }

    /// Makes the calls that are needed and not under way: first for the piece itself, then for
    /// others.
    fn ask_more(&mut self, n: usize) {
        let part = &self.parts[n];
        if self.lacks(part) == 0 || self.holds_back() {
            return;
        }
        let own = part.piece;
        match self.request(part, own) {
            None if part.without >> own & 1 == 0 && self.is_good(own) => return self.ask(n, own),
            Some(Request { state: RequestState::Waiting(_), .. }) => return,
            _ => {}
        }
        loop {
            let part = &self.parts[n];
            let hopes = self.calls(part).filter(|r| matches!(r.state, RequestState::Waiting(_))).count();
            if self.lacks(part) <= hopes || self.holds_back() {
                return;
            }
            let Some(piece) = self.candidate(part) else { return };
            self.ask(n, piece);
        }
    }

    fn is_good(&self, piece: usize) -> bool {
        self.noted >> piece & 1 == 0 && self.core.slot(self.id, piece).may_ask()
    }

    /// A piece that was not asked for. One that is noted as missing, or is on a resting store, only
    /// when there is no other.
    fn candidate(&self, part: &Part) -> Option<usize> {
        let left = || {
            self.cut.stored().filter(|piece| {
                part.without >> piece & 1 == 0
                    && !part.range_in(&self.cut, *piece).is_empty()
                    && self.request(part, *piece).is_none()
                    && self.core.slot(self.id, *piece).is_open()
            })
        };
        left().find(|piece| self.is_good(*piece)).or_else(|| left().next())
    }

    fn ask(&mut self, n: usize, piece: usize) {
        let blocks = self.parts[n].range_in(&self.cut, piece);
        let patience =
            self.core.slot(self.id, piece).home.read_p95().unwrap_or(HEDGE).clamp(HEDGE_MIN, HEDGE_MAX);
        let late_at = self.core.env.now() + patience + blocks.len() as Nanos * HEDGE_PER_BLOCK;
        let request = self.requests.len();
        self.requests.push(Request { piece, blocks: blocks.clone(), state: RequestState::Waiting(late_at) });
        if let Some(before) = self.held.replace(BlockRequest { request, piece, blocks }) {
            self.hand_over(before);
        }
    }

    fn hand_over(&mut self, BlockRequest { request, piece, blocks }: BlockRequest) {
        let (core, ctx, id, info) = (self.core.clone(), *self.ctx, self.id, self.info);
        let (inbox, asked) = (self.inbox.clone(), core.env.now());
        let job = move || {
            let read = || core.read_blocks(&ctx, id, &info, piece, blocks);
            let (blocks, for_turn) = TurnTime::of(&core.env, asked, read);
            inbox.send(Answer { request, blocks, for_turn }); // perhaps nobody waits any more
        };
        let home = &self.core.slot(self.id, piece).home;
        if home.hand_over(self.ctx, Takes::Short, job).is_err() {
            self.take(request, Err(Fault::Away("too much waits for it already".into())));
        }
    }

    /// Makes the last call, on this thread if that is wise. True when it has ended.
    fn call_held(&mut self) -> bool {
        let Some(asked) = self.held.take() else { return false };
        let (core, request) = (self.core, asked.request);
        if let Some(_here) = core.call_here(self.ctx, core.slot(self.id, asked.piece)) {
            let blocks = core.read_blocks(self.ctx, self.id, &self.info, asked.piece, asked.blocks);
            self.take(request, blocks);
        } else {
            self.hand_over(asked);
        }
        !matches!(self.requests[request].state, RequestState::Waiting(_))
    }

    /// The blocks of a piece that a part needs, if they were read.
    fn here(&self, part: &Part, piece: usize) -> Option<&[u8]> {
        let wanted = part.range_in(&self.cut, piece);
        match self.request(part, piece)? {
            Request { blocks, state: RequestState::Here(buf), .. } => {
                let from = (wanted.start - blocks.start) * BLOCK;
                Some(&buf[from..from + wanted.len() * BLOCK])
            }
            _ => None,
        }
    }

    /// Passes on the blocks of a part that can be made.
    fn make(&self, part: &Part, out: &mut dyn FnMut(&[u8])) {
        if let Some(blocks) = self.here(part, part.piece) {
            return out(blocks);
        }
        let zeros = part.zeros(&self.cut).map(|piece| (piece, &[][..]));
        let others = self.cut.stored().filter(|piece| !part.range_in(&self.cut, *piece).is_empty());
        let others = others.filter_map(|piece| Some((piece, self.here(part, piece)?)));
        let (pieces, blocks): (Vec<usize>, Vec<&[u8]>) = zeros.chain(others).take(self.cut.data).unzip();
        let len = part.blocks.len() * BLOCK;
        let mut made = self.core.take_buffer(len);
        self.core.code.rebuild(&pieces, &[part.piece]).apply(&blocks, &mut [&mut made[..len]]);
        out(&made[..len]);
        self.core.give_buffer(made);
    }

    /// Fills `buf` with what was read, from this offset in the object on, and notes the faults.
    /// Returns how many bytes had to be computed.
    fn deliver(self, offset: u64, buf: &mut [u8]) -> u64 {
        self.note_faults();
        let ranges = self.core.ranges(&self.cut, offset..offset + buf.len() as u64);
        let (mut rest, mut computed) = (buf, 0);
        for ((_, bytes), part) in ranges.zip(&self.parts) {
            let (out, more) = std::mem::take(&mut rest).split_at_mut(bytes.len());
            rest = more;
            let from = bytes.start - part.blocks.start * BLOCK;
            let len = out.len();
            self.make(part, &mut |blocks| out.copy_from_slice(&blocks[from..from + len]));
            // any copy is read as it is
            computed +=
                if self.cut.data > 1 && self.here(part, part.piece).is_none() { len as u64 } else { 0 };
        }
        let core = self.core;
        self.into_parts().0.into_values().for_each(|blocks| core.give_buffer(blocks));
        computed
    }

    /// Notes the faults of pieces of an object that exists.
    pub(super) fn note_faults(&self) {
        let wrong = self.faults.iter().filter(|(_, fault)| fault.is_loss() || matches!(fault, Fault::Newer));
        let pieces = wrong.fold(0, |all, (piece, _)| all | 1 << piece);
        self.core.notes.lock().missing(self.id, pieces);
    }

    /// The pieces that were read, and the faults of the others.
    pub(super) fn into_parts(self) -> (BTreeMap<usize, AlignedBuf>, BTreeMap<usize, Fault>) {
        let had = self.requests.into_iter().filter_map(|request| match request.state {
            RequestState::Here(blocks) => Some((request.piece, blocks)),
            _ => None,
        });
        (had.collect(), self.faults)
    }

    fn error(&mut self) -> Error {
        let Some(n) = self.parts.iter().position(|part| self.lacks(part) > 0) else {
            return Error::NotFound(self.id);
        };
        for request in &self.requests {
            if matches!(request.state, RequestState::Waiting(_) | RequestState::Late) {
                self.faults.insert(request.piece, Fault::Away("it does not answer".into()));
            }
        }
        for piece in self.cut.stored().filter(|piece| !self.core.slot(self.id, *piece).is_open()) {
            self.faults.insert(piece, Fault::Away("it is not open".into()));
        }
        let have = self.cut.data - self.lacks(&self.parts[n]);
        self.core.unreadable(self.id, have, self.cut.data, &self.faults)
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
            let now = self.env.now();
            if let Some(whole) = self.rebuilt.whole(now, id, &info) {
                buf.copy_from_slice(&whole[offset as usize..end as usize]);
                return Ok(());
            }
            let mut reading = Reading::new(self, ctx, id, info, self.parts(id, &info, offset..end));
            reading.surveyed = attempts > 0;
            if reading.run() {
                let computed = reading.deliver(offset, buf);
                // a long range reads all that it is computed from anyway
                let short = buf.len() as u64 * LONG_PART < info.object_bytes;
                if computed > 0 && short && self.rebuilt.computed(now, id, &info, offset..end, computed) {
                    self.read_whole(ctx, id, &info);
                }
                return Ok(());
            }
            attempts += 1;
            self.known.forget(id);
            // the fault may be in what was known of the object
            let newer = reading.faults.values().any(|fault| matches!(fault, Fault::Newer));
            let again = newer || attempts == 1;
            if !again || attempts >= ATTEMPTS {
                return Err(reading.error());
            }
        }
    }

    /// Reads a whole object for callers that read on in it, when much of it has to be computed.
    fn read_whole(self: &Arc<Self>, ctx: &Ctx, id: ObjectId, info: &Info) {
        let bytes = info.object_bytes as usize;
        let mut whole = self.rebuilt.spare(info.object_bytes).unwrap_or_else(|| AlignedBuf::zeroed(bytes));
        let mut reading = Reading::new(self, ctx, id, *info, self.parts(id, info, 0..info.object_bytes));
        if reading.run() {
            reading.deliver(0, &mut whole);
            self.rebuilt.keep(id, info, whole);
        }
    }

    /// The pieces that a range is in, and the bytes within their blocks.
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

    /// The first copy whose store works.
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
