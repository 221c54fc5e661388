//! Content of files that was read before programs asked for it, and the decision what to read so.
//!
//! A **stream** is a program that reads a file from one place on. Each file has a few, so several
//! programs can read it at a time. After two reads in a row the client reads ahead of a stream,
//! with as many calls under way as the stream's **window** takes. The window doubles whenever the
//! stream has to wait for what is under way, as long as calls do not take much longer for it. It
//! ends at random access. Of a small file the first read fetches all.
//!
//! Content counts under the same conditions as all that [`Copies`](super::copies::Copies) keeps,
//! and is under its lock: this module only holds the bytes. What was read once is dropped, as the
//! kernel has its pages; what nobody reads is dropped after some seconds.

use super::disk::Block;
use super::slots::Answer;
use leeward_env::limits::VERSION_BLOCK_BYTES;
use leeward_env::{Ctx, Nanos};
use leeward_fs::NodeId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one call.
const CALL_BYTES_MAX: u64 = 1 << 20;
const CALL_BYTES_MIN: u64 = 128 << 10;
/// Where calls begin and end, but for the end of the file.
const BLOCK_BYTES: u64 = 64 << 10;
/// Files up to this size are read as a whole.
pub(super) const SMALL_BYTES_MAX: u64 = 256 << 10;
/// Windows of streams: the first, and the largest. The streams of a file share the largest.
const WINDOW_FIRST: u64 = 256 << 10;
const WINDOW_MAX: u64 = 16 << 20;
/// A window is no smaller, however many streams there are.
const WINDOW_SHARED_MIN: u64 = 512 << 10;
/// Bytes that are kept or under way, at most, and those of them that are under way.
pub(super) const BYTES_MAX: u64 = 48 << 20;
const PENDING_BYTES_MAX: u64 = 32 << 20;
/// Streams of a file.
const STREAMS_MAX: usize = 8;
/// Files of which anything is kept; about half of them have versions only.
const FILES_MAX: usize = 4096;
/// Reads that the kernel sends at a time come in any order, so far from each other.
const SLACK_BYTES: u64 = 512 << 10;
/// See [`Stream::score`].
const SCORE_OF_NEXT: u32 = 2;
const SCORE_MAX: u32 = 8;
/// What was not read for this time makes room for others.
const YIELDS_AFTER: Nanos = 1_000_000_000;
/// What was not read for this time is dropped, and the stream is over.
const IDLE: Nanos = 5_000_000_000;
/// Calls that take longer than four times the quickest one and this wait for each other.
const CROWDED: Nanos = 5_000_000;
/// Versions of blocks, of all files.
const VERSIONS_MAX: usize = 65_536;
/// Memory is given back to the system when this much was in use.
const GIVE_BACK_BYTES: u64 = 4 << 20;

/// A read that a front end has asked for.
pub(super) struct Reading {
    pub(super) ctx: Ctx,
    pub(super) node: NodeId,
    pub(super) range: Range<u64>,
    pub(super) answer: Answer,
}

/// What becomes of a read.
pub(super) enum Found {
    /// It is answered with these bytes.
    Bytes(Reading, Pieces),
    /// It is answered when a call that is under way is.
    Waits,
    /// The server is asked.
    Nothing(Reading),
}

/// A call that reads ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Names it among those of the file.
    pub(super) number: u64,
    pub(super) node: NodeId,
    pub(super) range: Range<u64>,
}

/// Parts of what is kept, which follow each other.
pub(super) struct Pieces(Vec<(Arc<Vec<u8>>, Range<usize>)>);

impl Pieces {
    /// The bytes. Not to be called under a lock.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.0.iter().map(|(_, part)| part.len()).sum());
        self.0.iter().for_each(|(piece, part)| all.extend_from_slice(&piece[part.clone()]));
        all
    }
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Content {
    files: FxHashMap<NodeId, File>,
    /// Pieces in the order in which they came.
    ages: BTreeMap<u64, (NodeId, u64)>,
    /// Counts calls and pieces.
    count: u64,
    /// Bytes of pieces, and of calls under way.
    bytes: u64,
    pending_bytes: u64,
    /// Streams with windows, about.
    active: u64,
    /// How long the quickest call took of late, and whether the last one took much longer.
    quickest: Option<Nanos>,
    crowded: bool,
    /// Most bytes since memory was given back.
    most: u64,
    used: Nanos,
    /// Bytes that were read from pieces.
    hit_bytes: u64,
    /// Versions of all files.
    versions: usize,
}

#[derive(Default)]
struct File {
    /// By their first byte. They do not overlap.
    pieces: BTreeMap<u64, Piece>,
    pending: Vec<Pending>,
    streams: Vec<Stream>,
    /// What was kept was taken back lately.
    spoilt: Option<Nanos>,
    /// Versions of blocks.
    versions: BTreeMap<u64, u64>,
}

struct Piece {
    bytes: Arc<Vec<u8>>,
    age: u64,
    came: Nanos,
    /// Bytes that were read.
    served: u64,
}

struct Pending {
    number: u64,
    range: Range<u64>,
    sent: Nanos,
    /// The answer will not be kept.
    void: bool,
    waiting: Vec<Reading>,
}

struct Stream {
    /// Where the next read is to begin.
    next: u64,
    /// Grows with each read that begins there, falls with each one that goes back.
    score: u32,
    /// How far to read ahead; 0: not at all.
    window: u64,
    /// How far calls have been sent.
    asked_to: u64,
    used: Nanos,
}

impl File {
    /// How far from `at` on there are pieces, and how far with calls under way.
    fn covered(&self, range: &Range<u64>) -> (bool, Option<usize>) {
        let (mut at, mut waits_for) = (range.start, None);
        while at < range.end {
            let piece = self.pieces.range(..=at).next_back();
            let kept = piece.map(|(from, piece)| from + piece.bytes.len() as u64).filter(|end| *end > at);
            if let Some(end) = kept {
                at = end;
                continue;
            }
            let pending = self.pending.iter().position(|p| !p.void && p.range.contains(&at));
            let Some(found) = pending else { return (false, None) };
            waits_for = waits_for.or(Some(found));
            at = self.pending[found].range.end;
        }
        (true, waits_for)
    }

    fn is_idle(&self) -> bool {
        self.pieces.is_empty()
            && self.pending.is_empty()
            && self.streams.is_empty()
            && self.spoilt.is_none()
            && self.versions.is_empty()
    }

    /// The stream that a read belongs to.
    fn stream(&mut self, range: &Range<u64>, now: Nanos) -> usize {
        let near = |s: &Stream| range.start.abs_diff(s.next) <= SLACK_BYTES;
        let exact = self.streams.iter().position(|s| s.next == range.start);
        let found = exact.or_else(|| self.streams.iter().position(near)).unwrap_or_else(|| {
            if self.streams.len() >= STREAMS_MAX
                && let Some(oldest) = (0..self.streams.len()).min_by_key(|n| self.streams[*n].used)
            {
                self.streams.swap_remove(oldest);
            }
            self.streams.push(Stream { next: u64::MAX, score: 0, window: 0, asked_to: 0, used: now });
            self.streams.len() - 1
        });
        self.streams[found].sees(range, now);
        found
    }
}

impl Stream {
    fn sees(&mut self, range: &Range<u64>, now: Nanos) {
        self.used = now;
        if self.next == range.start {
            self.score = (self.score + SCORE_OF_NEXT).min(SCORE_MAX);
        } else if self.next != u64::MAX && range.end <= self.next {
            self.score = self.score.saturating_sub(1);
        }
        self.next = if self.next == u64::MAX { range.end } else { self.next.max(range.end) };
        if self.score < SCORE_OF_NEXT {
            self.window = 0;
        }
    }

    /// Sets the window after a read; whether it is a new one.
    fn widen(&mut self, read_bytes: u64, may_grow: bool, most: u64) -> bool {
        if self.score < SCORE_OF_NEXT {
            return false;
        }
        let is_new = self.window == 0;
        if is_new {
            self.window = WINDOW_FIRST.max(2 * read_bytes);
            self.asked_to = self.next - self.next % BLOCK_BYTES;
        } else if may_grow {
            self.window *= 2;
        }
        self.window = self.window.min(most);
        is_new
    }
}

impl Content {
    /// A read; and the calls that are to be sent now, after it. `size`: of the file, which may be
    /// read ahead.
    pub(super) fn read(&mut self, reading: Reading, size: Option<u64>, now: Nanos) -> (Found, Vec<Ahead>) {
        self.used = now;
        let is_new = !self.files.contains_key(&reading.node);
        if is_new && (size.is_none() || self.files.len() >= FILES_MAX) {
            return (Found::Nothing(reading), Vec::new());
        }
        let (node, mut range) = (reading.node, reading.range.clone());
        range.end = size.map_or(range.end, |size| range.end.min(size)).max(range.start);
        let Some(size) = size.filter(|_| !range.is_empty()) else {
            return (self.find(reading, &range, now), Vec::new());
        };
        if size <= SMALL_BYTES_MAX {
            let call = self.read_whole(node, &range, size, now);
            return (self.find(reading, &range, now), call.into_iter().collect());
        }
        let file = self.files.entry(node).or_default();
        let stream = file.stream(&range, now);
        let (is_covered, waits_for) = file.covered(&range);
        let found = self.find(reading, &range, now);
        // what is not there yet, or not at all, was to be asked for earlier
        let is_late = !is_covered || waits_for.is_some();
        let calls = self.read_ahead((node, stream), &range, (size, is_late), now);
        (found, calls)
    }

    /// A read that has waited for a call, which came to something or not.
    pub(super) fn read_again(
        &mut self,
        reading: Reading,
        size: Option<u64>,
        came: bool,
        now: Nanos,
    ) -> Found {
        let mut range = reading.range.clone();
        range.end = size.map_or(range.end, |size| range.end.min(size)).max(range.start);
        let waits = self.files.get(&reading.node).is_some_and(|file| file.covered(&range).1.is_some());
        if waits && !came { Found::Nothing(reading) } else { self.find(reading, &range, now) }
    }

    fn find(&mut self, reading: Reading, range: &Range<u64>, now: Nanos) -> Found {
        let Some(file) = self.files.get_mut(&reading.node).filter(|_| !range.is_empty()) else {
            return Found::Nothing(reading);
        };
        match file.covered(range) {
            (false, _) => Found::Nothing(reading),
            (true, Some(call)) => {
                file.pending[call].waiting.push(reading);
                Found::Waits
            }
            (true, None) => {
                let pieces = self.take(reading.node, range, now);
                Found::Bytes(reading, pieces)
            }
        }
    }

    /// The pieces of a range. Those that have been read to the end are dropped.
    fn take(&mut self, node: NodeId, range: &Range<u64>, now: Nanos) -> Pieces {
        let (mut found, mut spent, mut at) = (Vec::new(), Vec::new(), range.start);
        let Some(file) = self.files.get_mut(&node) else { return Pieces(found) };
        while at < range.end
            && let Some((from, piece)) = file.pieces.range_mut(..=at).next_back()
        {
            let end = (from + piece.bytes.len() as u64).min(range.end);
            if end <= at {
                break;
            }
            found.push((piece.bytes.clone(), (at - from) as usize..(end - from) as usize));
            piece.served += end - at;
            piece.came = now;
            if piece.served >= piece.bytes.len() as u64 {
                spent.push(*from);
            }
            self.hit_bytes += end - at;
            at = end;
        }
        spent.into_iter().for_each(|from| self.drop_piece(node, from));
        Pieces(found)
    }

    /// All of a small file, if a read does not get all of it anyway.
    fn read_whole(&mut self, node: NodeId, range: &Range<u64>, size: u64, now: Nanos) -> Option<Ahead> {
        let is_known = |file: &File| file.spoilt.is_some() || file.covered(range).0;
        let is_all = range.start == 0 && range.end >= size;
        let has_it = is_all || self.files.get(&node).is_some_and(is_known);
        if has_it { None } else { self.call(node, 0..size, now) }
    }

    fn read_ahead(
        &mut self,
        (node, stream): (NodeId, usize),
        range: &Range<u64>,
        (size, is_late): (u64, bool),
        now: Nanos,
    ) -> Vec<Ahead> {
        let Some(file) = self.files.get_mut(&node) else { return Vec::new() };
        let in_file = file.streams.iter().filter(|s| s.window > 0).count().max(1) as u64;
        let share = (BYTES_MAX / self.active.max(1)).max(WINDOW_SHARED_MIN);
        let most = (WINDOW_MAX / in_file).min(share);
        let of = &mut file.streams[stream];
        let is_new = of.widen(range.end - range.start, is_late && !self.crowded, most);
        self.active += u64::from(is_new);
        if of.window == 0 {
            return Vec::new();
        }
        let target = (of.next + of.window).min(size);
        let step = (of.window / 4).clamp(CALL_BYTES_MIN, CALL_BYTES_MAX) / BLOCK_BYTES * BLOCK_BYTES;
        let mut at = of.asked_to.max(of.next - of.next % BLOCK_BYTES);
        let mut calls = Vec::new();
        while at < target && (target - at >= step || target == size) {
            let part = at..(at + step).min(size);
            let is_there = self.files.get(&node).is_some_and(|file| file.covered(&part).0);
            if !is_there {
                let Some(call) = self.call(node, part.clone(), now) else { break };
                calls.push(call);
            }
            at = part.end;
        }
        if let Some(file) = self.files.get_mut(&node) {
            file.streams[stream].asked_to = at;
        }
        calls
    }

    /// A call for a range, if there is room.
    fn call(&mut self, node: NodeId, range: Range<u64>, now: Nanos) -> Option<Ahead> {
        let bytes = range.end - range.start;
        if self.pending_bytes + bytes > PENDING_BYTES_MAX || !self.has_room(bytes, now) {
            return None;
        }
        self.pending_bytes += bytes;
        self.count += 1;
        let number = self.count;
        let waiting = Vec::new();
        let pending = Pending { number, range: range.clone(), sent: now, void: false, waiting };
        self.files.entry(node).or_default().pending.push(pending);
        Some(Ahead { number, node, range })
    }

    /// Makes room for so many bytes, of what nobody has read for a while.
    fn has_room(&mut self, bytes: u64, now: Nanos) -> bool {
        while self.bytes + self.pending_bytes + bytes > BYTES_MAX {
            let Some((_, (node, from))) = self.ages.first_key_value() else { return false };
            let (node, from) = (*node, *from);
            let piece = self.files.get(&node).and_then(|file| file.pieces.get(&from));
            if piece.is_some_and(|piece| now.saturating_sub(piece.came) < YIELDS_AFTER) {
                return false;
            }
            self.drop_piece(node, from);
        }
        true
    }

    /// An answer to a call that can be kept.
    pub(super) fn came(&mut self, node: NodeId, from: u64, bytes: Arc<Vec<u8>>, now: Nanos) {
        let Some(file) = self.files.get_mut(&node).filter(|_| !bytes.is_empty()) else { return };
        let range = from..from + bytes.len() as u64;
        let before = file.pieces.range(..range.end).next_back();
        if before.is_some_and(|(at, piece)| at + piece.bytes.len() as u64 > from) {
            return;
        }
        self.count += 1;
        self.bytes += bytes.len() as u64;
        self.most = self.most.max(self.bytes);
        self.ages.insert(self.count, (node, from));
        let piece = Piece { bytes, age: self.count, came: now, served: 0 };
        file.pieces.insert(from, piece);
    }

    /// A call is answered, and what it brought is kept if it can be. The reads that wait for it.
    pub(super) fn ended(&mut self, call: &Ahead, now: Nanos) -> Vec<Reading> {
        let Some(file) = self.files.get_mut(&call.node) else { return Vec::new() };
        let Some(at) = file.pending.iter().position(|p| p.number == call.number) else { return Vec::new() };
        let pending = file.pending.swap_remove(at);
        self.pending_bytes -= pending.range.end - pending.range.start;
        let took = now.saturating_sub(pending.sent);
        let quickest = self.quickest.map_or(took, |quickest| quickest.min(took));
        self.quickest = Some(quickest);
        self.crowded = took > 4 * quickest + CROWDED;
        pending.waiting
    }

    /// Nothing of the file counts any more.
    pub(super) fn void(&mut self, node: NodeId, now: Nanos) {
        let Some(file) = self.files.get_mut(&node) else { return };
        file.pending.iter_mut().for_each(|pending| pending.void = true);
        file.streams.clear();
        file.spoilt = Some(now);
        self.versions -= std::mem::take(&mut file.versions).len();
        let pieces: Vec<u64> = file.pieces.keys().copied().collect();
        pieces.into_iter().for_each(|from| self.drop_piece(node, from));
    }

    /// Nothing counts any more.
    pub(super) fn void_all(&mut self, now: Nanos) {
        let all: Vec<NodeId> = self.files.keys().copied().collect();
        all.into_iter().for_each(|node| self.void(node, now));
    }

    /// Versions of blocks from this one on.
    pub(super) fn learn_versions(&mut self, node: NodeId, first: u64, versions: &[u8]) {
        if self.versions >= VERSIONS_MAX {
            self.files.values_mut().for_each(|file| file.versions.clear());
            self.versions = 0;
        }
        let file = self.files.entry(node).or_default();
        let before = file.versions.len();
        let (versions, _) = versions.as_chunks::<8>();
        file.versions.extend((first..).zip(versions.iter().map(|bytes| u64::from_le_bytes(*bytes))));
        self.versions += file.versions.len() - before;
    }

    /// The versions of the blocks of a range that ends at the end of a file of this size, or before
    /// it; `Err`: the first that is not known.
    pub(super) fn versions(&self, node: NodeId, range: &Range<u64>, size: u64) -> Result<Vec<Block>, u64> {
        let known = self.files.get(&node).map(|file| &file.versions);
        let last = range.end.min(size).div_ceil(VERSION_BLOCK_BYTES);
        let block = |number: u64| {
            let version = known.and_then(|versions| versions.get(&number)).copied().ok_or(number)?;
            let bytes = (size - number * VERSION_BLOCK_BYTES).min(VERSION_BLOCK_BYTES) as usize;
            Ok(Block { number, version, bytes })
        };
        (range.start / VERSION_BLOCK_BYTES..last).map(block).collect()
    }

    fn drop_piece(&mut self, node: NodeId, from: u64) {
        let piece = self.files.get_mut(&node).and_then(|file| file.pieces.remove(&from));
        if let Some(piece) = piece {
            self.bytes -= piece.bytes.len() as u64;
            self.ages.remove(&piece.age);
        }
    }

    /// To be called each second. Whether so much memory is free now that it is worth giving it
    /// back.
    pub(super) fn tidy(&mut self, now: Nanos) -> bool {
        let is_old = |then: Nanos| now.saturating_sub(then) > IDLE;
        let pieces = self.files.iter().flat_map(|(node, file)| file.pieces.iter().map(|p| (*node, p)));
        let old = pieces.filter(|(_, (_, piece))| is_old(piece.came));
        let old: Vec<_> = old.map(|(node, (from, _))| (node, *from)).collect();
        old.into_iter().for_each(|(node, from)| self.drop_piece(node, from));
        for file in self.files.values_mut() {
            file.streams.retain(|stream| !is_old(stream.used));
            file.spoilt = file.spoilt.filter(|then| !is_old(*then));
        }
        if self.files.len() > FILES_MAX / 2 {
            self.files.values_mut().for_each(|file| file.versions.clear());
            self.versions = 0;
        }
        self.files.retain(|_, file| !file.is_idle());
        let streams = self.files.values().flat_map(|file| &file.streams);
        self.active = streams.filter(|stream| stream.window > 0).count() as u64;
        self.quickest = self.quickest.map(|quickest| quickest + quickest / 16);
        let is_over = self.bytes + self.pending_bytes == 0 && is_old(self.used);
        is_over && std::mem::take(&mut self.most) > GIVE_BACK_BYTES
    }

    /// Bytes that are kept or under way, and bytes that were read from what was kept.
    pub(super) fn figures(&self) -> (u64, u64) {
        (self.bytes + self.pending_bytes, self.hit_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const NODE: NodeId = NodeId(7);
    const MIB: u64 = 1 << 20;

    fn reading(range: Range<u64>) -> Reading {
        Reading { ctx: Ctx::user(0, 0), node: NODE, range, answer: Box::new(drop) }
    }

    fn answer(content: &mut Content, calls: Vec<Ahead>, now: Nanos) -> usize {
        let mut waiting = 0;
        for call in calls {
            let bytes = vec![1; (call.range.end - call.range.start) as usize];
            content.came(NODE, call.range.start, Arc::new(bytes), now);
            waiting += content.ended(&call, now).len();
        }
        waiting
    }

    #[test]
    fn a_stream_is_read_ahead_by_a_window_that_grows_while_it_waits() {
        let mut content = Content::default();
        let size = Some(200 * MIB);
        let (found, calls) = content.read(reading(0..128 << 10), size, 0);
        assert!(matches!(found, Found::Nothing(_)) && calls.is_empty(), "one read is no stream");
        let mut calls = content.read(reading(128 << 10..256 << 10), size, 0).1;
        assert!(!calls.is_empty());
        let (mut at, mut widest, mut waited) = (256 << 10, 0, 0);
        while at < 64 * MIB {
            // what was asked for comes when a read waits for it
            let (found, more) = content.read(reading(at..at + (128 << 10)), size, 0);
            calls.extend(more);
            widest =
                widest.max(calls.iter().map(|call| call.range.end).max().unwrap_or(0).saturating_sub(at));
            if let Found::Waits = found {
                waited += 1;
                assert_eq!(answer(&mut content, std::mem::take(&mut calls), 0), 1);
            }
            at += 128 << 10;
        }
        assert!(widest > WINDOW_MAX / 2 && widest <= WINDOW_MAX + MIB, "{widest}");
        assert!((3..40).contains(&waited), "it waited {waited} times");
        assert!(content.figures().0 <= BYTES_MAX);
    }

    #[test]
    fn a_stream_that_never_waits_keeps_a_small_window() {
        let mut content = Content::default();
        let (mut at, mut most) = (0, 0);
        while at < 64 * MIB {
            let (_, calls) = content.read(reading(at..at + (128 << 10)), Some(200 * MIB), 0);
            answer(&mut content, calls, 0);
            most = most.max(content.figures().0);
            at += 128 << 10;
        }
        assert!(most <= 2 * MIB, "{most} bytes were kept");
    }

    #[test]
    fn what_is_void_is_not_found_and_those_who_wait_are_told() {
        let mut content = Content::default();
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let answer = Box::new(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        let waits = Reading { answer, ..reading(0..4096) };
        let (found, calls) = content.read(waits, Some(100_000), 0);
        assert!(matches!(found, Found::Waits));
        assert_eq!(calls.len(), 1, "all of a small file");
        content.void(NODE, 0);
        // others do not wait for it any more, and nothing is read ahead for now
        let (found, more) = content.read(reading(4096..8192), Some(100_000), 0);
        assert!(matches!(found, Found::Nothing(_)) && more.is_empty());
        let waiting = content.ended(&calls[0], 0);
        assert_eq!(waiting.len(), 1);
        for reading in waiting {
            match content.read_again(reading, Some(100_000), true, 0) {
                Found::Nothing(reading) => (reading.answer)(Ok(leeward_fs::Reply::Done)),
                _ => panic!("it is not there"),
            }
        }
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert!(!content.tidy(2 * IDLE) && content.files.is_empty() && content.figures().0 == 0);
    }

    #[test]
    fn versions_are_of_whole_blocks_and_go_with_the_content() {
        let mut content = Content::default();
        let size = 2 * VERSION_BLOCK_BYTES + 5;
        assert_eq!(content.versions(NODE, &(0..size), size), Err(0));
        let versions: Vec<u8> = [11u64, 12, 13].iter().flat_map(|v| v.to_le_bytes()).collect();
        content.learn_versions(NODE, 0, &versions);
        let blocks = content.versions(NODE, &(70_000..size), size).expect("known");
        let block = |number, version, bytes| Block { number, version, bytes };
        assert_eq!(blocks, [block(1, 12, 65_536), block(2, 13, 5)]);
        content.void(NODE, 0);
        assert_eq!(content.versions(NODE, &(70_000..size), size), Err(1));
    }
}
