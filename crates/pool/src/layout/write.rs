//! Puts and deletes over a group of stores.
//!
//! A put is acknowledged when every store has stored its piece or failed, and there are enough
//! pieces to read the object. So with `m` stores dead it needs all others. Redundancy is given up
//! for availability, and the missing pieces are noted for repair. A store that has neither stored
//! its piece nor failed is left behind when two things hold: one piece more than needed is durable,
//! so that one more loss loses nothing, and the store has had several times as long as the others
//! took.
//!
//! A store that keeps existing objects ([`crate::Store::put`]) refuses a piece of another put. Then
//! the whole put is refused: pieces of two puts make no object, and the stored pieces of this put
//! are taken back. A caller that wants another put's object replaced says so (`replace`), and each
//! piece is swapped. A failed put that is repeated with the same bytes has the same stamp, hence
//! the same pieces, which such a store accepts; also when the pool was assembled anew in between. A
//! put that fails for lack of space may not be
//! repeated with the same bytes, as some data may not be needed any more then. So it leaves nothing
//! behind.
//!
//! A delete is done when no more stores have failed to do it than may be lost. Those stores are
//! told later, and until then the object counts as deleted. For another process their pieces are
//! leftovers, even if they are enough to read.

use super::answers::Fault;
use super::answers::TurnTime;
use super::answers::{PATIENCE, next_answer};
use super::group::Core;
use super::known::Info;
use super::lane::Takes;
use super::notes::LatePut;
use super::piece::{Cut, cut_up};
use crate::{AlignedBuf, Error, ObjectId, Result};
use leeward_env::{Ctx, Nanos};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

/// When enough stores have answered, the others get at least this much time.
const STRAGGLE: Nanos = 500_000_000;
/// And this many times as long as those took.
const STRAGGLE_TIMES: u64 = 4;
/// Failed puts that are remembered: more than there are segments in memory.
const FAILED_MAX: usize = 1024;

/// The puts of a pool that failed: the checksum of the content that was put, and the stamp. The
/// pool that is assembled anew from the same stores needs it ([`super::assemble_anew`]).
#[derive(Clone, Default)]
pub struct FailedPuts(pub(super) Arc<Mutex<BTreeMap<ObjectId, (u64, u64)>>>);

fn checksum(body: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, body)
}

/// A put in progress.
struct Writing<'a> {
    core: &'a Arc<Core>,
    ctx: &'a Ctx,
    id: ObjectId,
    stamp: u64,
    cut: Cut,
    begun: Nanos,
    stored: u64,
    waiting: u64,
    failed: Vec<(usize, Error)>,
    /// Pieces whose stores rest: these are asked if the put does not succeed without them.
    held: Vec<(usize, AlignedBuf)>,
    /// When enough pieces were durable to leave the other stores behind, and how long that took.
    enough: Option<Nanos>,
    /// Whether pieces of other puts are replaced.
    replaces: bool,
    sender: Sender<(usize, Result<()>, TurnTime)>,
    answers: Receiver<(usize, Result<()>, TurnTime)>,
}

impl Writing<'_> {
    /// Hands a piece to its store. One with a call that was given up gets no more: each would keep
    /// its memory. (One may be slow for a while: pieces wait for each other at its gate.)
    fn ask(&mut self, piece: usize, body: AlignedBuf) {
        let home = &self.core.slot(self.id, piece).home;
        if home.is_given_up_on() {
            self.core.give_buffer(body);
            return self.take(piece, Err(home.no_answer()));
        }
        self.waiting |= 1 << piece;
        let (core, ctx, id, stamp) = (self.core.clone(), *self.ctx, self.id, self.stamp);
        let (sender, replaces) = (self.sender.clone(), self.replaces);
        let asked = core.env.now();
        let job = move || {
            let put = || match replaces {
                false => core.put_piece(&ctx, id, piece, &body),
                true => core.replace_piece(&ctx, id, piece, &body),
            };
            let (result, for_turn) = TurnTime::of(&core.env, asked, put);
            core.give_buffer(body);
            let stored = result.is_ok();
            if sender.send((piece, result, for_turn)).is_err() {
                core.came_late(&ctx, id, stamp, piece, stored);
            }
        };
        if home.hand_over(self.ctx, Takes::Short, job).is_err() {
            self.take(piece, Err(Error::Io(std::io::Error::other("too much waits for it already"))));
        }
    }

    fn take(&mut self, piece: usize, result: Result<()>) {
        self.waiting &= !(1 << piece);
        match result {
            Ok(()) => self.stored |= 1 << piece,
            Err(e) => self.failed.push((piece, e)),
        }
        let safe = (self.cut.needed() + 1).min(self.cut.stored().count());
        if self.enough.is_none() && self.count() >= safe {
            self.enough = Some(self.core.env.now());
        }
    }

    fn count(&self) -> usize {
        self.stored.count_ones() as usize
    }

    /// When stores that have not answered are left behind.
    fn leave_at(&self) -> Nanos {
        match self.enough {
            Some(at) => at + STRAGGLE.max(STRAGGLE_TIMES * at.saturating_sub(self.begun)),
            None => self.begun + PATIENCE,
        }
    }

    /// Runs until all stores have answered, or are left behind.
    fn run(&mut self, pieces: Vec<(usize, AlignedBuf)>) {
        for (piece, body) in pieces {
            let home = &self.core.slot(self.id, piece).home;
            if home.may_ask() {
                self.ask(piece, body);
            } else {
                self.held.push((piece, body));
            }
        }
        self.collect();
        if self.count() < self.cut.needed() {
            for (piece, body) in std::mem::take(&mut self.held) {
                self.ask(piece, body);
            }
            self.collect();
        }
    }

    fn collect(&mut self) {
        let (asked, mut last) = (self.core.env.now(), TurnTime::default());
        while self.waiting != 0
            && let Ok((piece, result, for_turn)) = next_answer(&self.core.env, &self.answers, self.leave_at())
        {
            last = for_turn;
            self.take(piece, result);
        }
        last.note(self.core.env.now().saturating_sub(asked));
    }

    /// Returns whether the object can be read, and notes the missing pieces.
    fn finish(mut self) -> Result<()> {
        if self.count() < self.cut.needed() || self.is_refused() {
            return Err(self.error());
        }
        let held = self.held.iter().map(|(piece, _)| *piece);
        let missing = self.failed.iter().map(|(piece, _)| *piece).chain(held).fold(0, |all, n| all | 1 << n);
        let info = Info { object_bytes: self.cut.object_bytes, stamp: self.stamp };
        self.core.notes.lock().put(self.id, self.stamp, missing, self.waiting);
        self.core.known.changed(self.id, Some(info));
        while let Ok((piece, result, _)) = self.answers.try_recv() {
            self.core.notes.lock().arrived(self.id, self.stamp, piece, result.is_ok());
        }
        self.held.drain(..).for_each(|(_, body)| self.core.give_buffer(body));
        Ok(())
    }

    /// Whether a store has a piece of another put, and keeps it.
    fn is_refused(&self) -> bool {
        self.failed.iter().any(|(_, e)| matches!(e, Error::Exists(_)))
    }

    /// Whether lack of space is the only reason why stores did not take their pieces.
    fn is_only_full(&self) -> bool {
        self.failed.iter().all(|(_, e)| matches!(e, Error::Full))
    }

    fn error(&self) -> Error {
        if self.is_refused() {
            return Error::Exists(self.id);
        }
        let full = |(_, e): &(usize, Error)| matches!(e, Error::Full);
        if self.failed.iter().any(full) {
            return Error::Full;
        }
        let told =
            |(piece, e): &(usize, Error)| format!("{}: {e}", self.core.slot(self.id, *piece).home.url());
        let mut why: Vec<String> = self.failed.iter().map(told).collect();
        let silent = self.cut.stored().filter(|piece| self.waiting >> piece & 1 == 1);
        why.extend(silent.map(|p| format!("{}: it does not answer", self.core.slot(self.id, p).home.url())));
        let (have, need) = (self.count(), self.cut.needed());
        let text = format!("{have} of the stores took their piece, {need} are needed; {}", why.join("; "));
        let back_soon = self.failed.iter().filter(|(_, e)| e.is_passing()).count();
        if have + back_soon >= need { Error::Away(text) } else { Error::Io(std::io::Error::other(text)) }
    }
}

impl Core {
    /// Puts an object. `replaces`: also in place of another of this name, on stores that keep
    /// existing objects.
    pub(super) fn put(
        self: &Arc<Self>,
        ctx: &Ctx,
        id: ObjectId,
        body: &AlignedBuf,
        replaces: bool,
    ) -> Result<()> {
        let stamp = self.stamp_for(id, body);
        self.put_at.store(self.env.now(), Ordering::Relaxed);
        let pieces = cut_up(&self.code, self.name(id, 0), stamp, body, &|bytes| self.take_buffer(bytes));
        let (sender, answers) = channel();
        let mut writing = Writing {
            core: self,
            ctx,
            id,
            stamp,
            cut: self.cut(body.len() as u64),
            begun: self.env.now(),
            stored: 0,
            waiting: 0,
            failed: Vec::new(),
            held: Vec::new(),
            enough: None,
            replaces,
            sender,
            answers,
        };
        writing.run(pieces);
        let (stored, only_full) = (writing.stored, writing.is_only_full());
        let put = writing.finish();
        let (refused, full) = (matches!(put, Err(Error::Exists(_))), matches!(put, Err(Error::Full)));
        self.note_put(id, body, stamp, put.is_ok() || refused || full && only_full);
        if refused || full {
            // they might pass for the object, or be in the way of the put when there is room again
            self.delete_pieces(ctx, id, stored);
        }
        put
    }

    /// The stamp of a put: that of the failed attempt before, if that had the same content.
    fn stamp_for(&self, id: ObjectId, body: &AlignedBuf) -> u64 {
        let failed = self.failed.0.lock().get(&id).copied();
        match failed {
            Some((sum, stamp)) if sum == checksum(body) => stamp,
            _ => self.next_stamp(),
        }
    }

    fn note_put(&self, id: ObjectId, body: &AlignedBuf, stamp: u64, done: bool) {
        let sum = if done { 0 } else { checksum(body) };
        let mut failed = self.failed.0.lock();
        if done {
            failed.remove(&id);
            return;
        }
        failed.insert(id, (sum, stamp));
        if failed.len() > FAILED_MAX {
            failed.pop_first();
        }
    }

    fn put_piece(&self, ctx: &Ctx, id: ObjectId, piece: usize, body: &AlignedBuf) -> Result<()> {
        let home = &self.slot(id, piece).home;
        home.call(|store| store.put(ctx, id, body))?;
        home.has_room();
        Ok(())
    }

    /// Puts a piece in place of one that is bad, or of another put.
    pub(super) fn replace_piece(
        &self,
        ctx: &Ctx,
        id: ObjectId,
        piece: usize,
        body: &AlignedBuf,
    ) -> Result<()> {
        let home = &self.slot(id, piece).home;
        home.call(|store| store.replace(ctx, id, body))?;
        home.has_room();
        Ok(())
    }

    /// The put of a piece ended for which nobody waited.
    fn came_late(&self, ctx: &Ctx, id: ObjectId, stamp: u64, piece: usize, stored: bool) {
        let late = self.notes.lock().arrived(id, stamp, piece, stored);
        let wanted = self.known.object(id).is_some() || self.failed.0.lock().contains_key(&id);
        if late == LatePut::Unwanted && stored && !wanted {
            // deleted meanwhile; if it was put again instead, or will be, the piece is that put's
            let _ = self.slot(id, piece).home.call(|store| store.delete(ctx, id)); // else it is a leftover
        }
    }

    pub(super) fn delete(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.known.changed(id, None);
        self.failed.0.lock().remove(&id);
        let failed = self.delete_pieces(ctx, id, u64::MAX);
        let left = failed.len();
        if left > self.parity() {
            self.known.changed(id, None);
            let error = failed.into_iter().next().map(|(_, e)| e);
            return Err(error.unwrap_or(Error::NotFound(id)));
        }
        let pieces = failed.iter().fold(0, |all, (piece, _)| all | 1 << piece);
        self.notes.lock().deleted(id, pieces);
        self.known.changed(id, None);
        Ok(())
    }

    /// Deletes pieces wherever they may be. Returns those that may be left.
    pub(super) fn delete_pieces(
        self: &Arc<Self>,
        ctx: &Ctx,
        id: ObjectId,
        pieces: u64,
    ) -> Vec<(usize, Error)> {
        let wanted = (0..self.slots.len()).filter(|piece| pieces >> piece & 1 == 1);
        let (at, pool_stores): (Vec<usize>, Vec<_>) = wanted
            .flat_map(|piece| {
                self.slot(id, piece).pool_stores().map(move |pool_store| (piece, pool_store.clone()))
            })
            .filter(|(_, pool_store)| !pool_store.is_given_up())
            .unzip();
        let ctx = *ctx;
        let answers = self.ask_all(&ctx, &pool_stores, Takes::Short, move |store| store.delete(&ctx, id));
        let mut failed: Vec<(usize, Error)> =
            at.into_iter().zip(answers).filter_map(|(piece, a)| Some((piece, a.err()?))).collect();
        failed.dedup_by_key(|(piece, _)| *piece);
        failed
    }
}

impl Fault {
    /// Whether the store says that the piece is missing or bad, as opposed to giving no answer.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Fault::Missing | Fault::Bad(_))
    }
}
