//! Repairs a group of stores, one object a step.
//!
//! The first step lists all stores. That finds what earlier runs left undone, and what is on stores
//! that are to be emptied. Then, in turn: remaining pieces of deleted objects are deleted, objects
//! that lack pieces are rebuilt, and pieces are moved off stores that are draining. An object is
//! rebuilt from as many pieces as are needed, each read once. A piece that is only suspected to be
//! bad is read, too, and left alone if it is good.
//!
//! A step that finds its object put or deleted meanwhile takes back what it did: what it wrote may
//! be an outdated version.

use super::answers::{Fault, PATIENCE};
use super::group::{Core, Slot};
use super::health::Step;
use super::lane::Takes;
use super::piece::{BLOCK, blocks_of, head_bytes, rebuild};
use super::pool_store::{PoolStore, Stored};
use super::read::{Part, Reading};
use super::repairs::Repairs;
use super::survey::Survey;
use crate::label::LABEL;
use crate::{AlignedBuf, Error, ObjectId, Result};
use leeward_env::{Ctx, Nanos};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// After this time a store is listed again that is to be emptied and could not be listed.
const LIST_AGAIN: Nanos = 300_000_000_000;

/// What a listing of all stores found.
pub(super) struct Found {
    /// Stored length of each piece that is there, by object and piece.
    pub(super) pieces: BTreeMap<ObjectId, BTreeMap<usize, u64>>,
    /// Slots that answered.
    answered: u64,
    moves: VecDeque<(usize, ObjectId)>,
}

/// The answer that a store without answer is taken to give.
fn silent<T>() -> Result<T> {
    Err(Error::Io(std::io::Error::other("it does not answer")))
}

impl Core {
    /// Lists all stores.
    pub(super) fn list_pieces(self: &Arc<Self>, ctx: &Ctx) -> Result<Found> {
        let (at, pool_stores): (Vec<_>, Vec<_>) = self
            .slots
            .iter()
            .enumerate()
            .flat_map(|(n, slot)| {
                slot.pool_stores()
                    .map(move |pool_store| ((n, Arc::ptr_eq(pool_store, &slot.home)), pool_store.clone()))
            })
            .unzip();
        let asked = *ctx;
        let answers = self.ask_all(ctx, &pool_stores, Takes::Long, move |store| store.list(&asked));
        let mut found = Found { pieces: BTreeMap::new(), answered: 0, moves: VecDeque::new() };
        let mut error = None;
        let mut silent = 0u64;
        for ((slot, is_home), answer) in at.into_iter().zip(answers) {
            match answer {
                Ok(objects) => {
                    found.answered |= 1 << slot;
                    for (id, bytes) in objects.into_iter().filter(|(id, _)| *id != LABEL) {
                        let piece = self.piece_in(id, slot);
                        found.pieces.entry(id).or_default().entry(piece).or_insert(bytes);
                        if !is_home {
                            found.moves.push_back((slot, id));
                        }
                    }
                }
                Err(e) => {
                    silent |= 1 << slot;
                    error = Some(e);
                }
            }
        }
        match error {
            Some(e) if found.answered == 0 => Err(e),
            _ => {
                found.answered &= !silent;
                Ok(found)
            }
        }
    }

    /// Length of an object, from the lengths of its pieces where these determine it.
    pub(super) fn length_by_list(
        self: &Arc<Self>,
        ctx: &Ctx,
        id: ObjectId,
        pieces: &BTreeMap<usize, u64>,
    ) -> u64 {
        let data = self.data();
        let blocks: Option<usize> = (0..data).map(|piece| blocks_of(*pieces.get(&piece)?)).sum();
        match (blocks, self.known.object(id)) {
            (_, Some(info)) => info.object_bytes,
            (Some(blocks), _) => (blocks * BLOCK) as u64,
            (None, None) => match self.info(ctx, id) {
                Ok(info) => info.object_bytes,
                Err(_) => pieces.values().sum(),
            },
        }
    }

    /// Notes the missing pieces and the pieces to be moved that a listing shows.
    fn search(self: &Arc<Self>, ctx: &Ctx, repairs: &mut Repairs) -> Result<()> {
        let found = self.list_pieces(ctx)?;
        let all: u64 = (0..self.slots.len()).fold(0, |all, n| all | 1 << n);
        for (id, pieces) in &found.pieces {
            let there = pieces.keys().fold(0, |all, piece| all | 1 << piece);
            if there == all {
                continue;
            }
            let object_bytes = self.length_by_list(ctx, *id, pieces);
            let missing = self.cut(object_bytes).stored().filter(|piece| {
                let slot = self.slot_number(*id, *piece);
                let gone = !self.slots[slot].is_open() || found.answered >> slot & 1 == 1;
                there >> piece & 1 == 0 && gone
            });
            let missing = missing.fold(0, |all, piece| all | 1 << piece);
            self.notes.lock().missing(*id, missing);
        }
        let silent = |(n, slot): (usize, &Slot)| slot.old.is_some() && found.answered >> n & 1 == 0;
        let is_empty = found.moves.is_empty() && !self.slots.iter().enumerate().any(silent);
        let wait = if found.moves.is_empty() { LIST_AGAIN } else { 0 };
        repairs.moves_listed_at = (!is_empty).then(|| self.env.now() + wait);
        repairs.moves = found.moves;
        repairs.searched = true;
        let mut figures = self.figures.lock();
        figures.searched = true;
        figures.moves_waiting = repairs.moves.len() as u64;
        Ok(())
    }

    pub(super) fn repair_step(self: &Arc<Self>, ctx: &Ctx) -> Result<Step> {
        let mut repairs = self.steps.lock();
        if !repairs.searched {
            self.search(ctx, &mut repairs)?;
            return Ok(Step { more: true, ..Step::default() });
        }
        if let Some(step) = self.sweep(ctx, &mut repairs) {
            return Ok(step);
        }
        let (now, open) = (self.env.now(), self.slots_to_ask(|slot| slot.home.can_ask()));
        let next = repairs.missing.next(now, |after, passes| {
            self.notes.lock().next_missing(after, |id, pieces| passes(id) && self.is_in(open, id, pieces))
        });
        if let Some((id, _)) = next {
            let step = self.counted(self.repair_object(ctx, id));
            if self.notes.lock().missing_of(id) != 0 {
                repairs.missing.tried.insert(id, now);
            }
            return Ok(step);
        }
        if let Some((slot, id)) = repairs.moves.pop_front() {
            let mut step = self.counted(self.move_piece(ctx, slot, id));
            if step.pieces == 0 {
                repairs.moves.push_back((slot, id));
                step.more = false;
            }
            self.figures.lock().moves_waiting = repairs.moves.len() as u64;
            return Ok(step);
        }
        if repairs.moves_listed_at.is_some_and(|at| at <= now) {
            // what a store said to be missing may be there
            self.search(ctx, &mut repairs)?;
            return Ok(Step { more: !repairs.moves.is_empty(), ..Step::default() });
        }
        self.give_back_spare();
        Ok(Step::default())
    }

    /// Slots as bits.
    fn slots_to_ask(&self, can_ask: impl Fn(&Slot) -> bool) -> u64 {
        self.slots.iter().enumerate().filter(|(_, slot)| can_ask(slot)).fold(0, |all, (n, _)| all | 1 << n)
    }

    /// Whether one of these pieces is in one of these slots.
    fn is_in(&self, slots: u64, id: ObjectId, pieces: u64) -> bool {
        (0..self.slots.len()).any(|p| pieces >> p & 1 == 1 && slots >> self.slot_number(id, p) & 1 == 1)
    }

    fn counted(&self, step: Step) -> Step {
        let mut figures = self.figures.lock();
        figures.repair.objects_done += u64::from(step.pieces > 0);
        figures.repair.read_bytes += step.read_bytes;
        figures.repair.written_bytes += step.written_bytes;
        step
    }

    /// Deletes what is left of one deleted object.
    fn sweep(self: &Arc<Self>, ctx: &Ctx, repairs: &mut Repairs) -> Option<Step> {
        let (now, open) = (
            self.env.now(),
            self.slots_to_ask(|slot| slot.pool_stores().any(|pool_store| pool_store.can_ask())),
        );
        let (id, pieces) = repairs.leftovers.next(now, |after, passes| {
            self.notes.lock().next_leftover(after, |id, pieces| passes(id) && self.is_in(open, id, pieces))
        })?;
        let failed = self.delete_pieces(ctx, id, pieces).iter().fold(0, |all, (piece, _)| all | 1 << piece);
        self.notes.lock().swept(id, pieces & !failed);
        if failed != 0 {
            repairs.leftovers.tried.insert(id, now);
        }
        Some(Step { more: true, ..Step::default() })
    }

    /// Rebuilds what one object lacks.
    fn repair_object(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) -> Step {
        self.notes.lock().begin_repair(id);
        let mut step = Step { more: true, ..Step::default() };
        let done = self.rebuild_object(ctx, id, &mut step);
        let mut notes = self.notes.lock();
        if !notes.end_repair() {
            drop(notes);
            self.undo(ctx, id);
            return step;
        }
        match done {
            Ok(repaired) => {
                notes.found(id);
                notes.repaired(id, repaired);
            }
            Err(Error::NotFound(_)) => notes.drop_object(id),
            Err(e) => {
                tracing::warn!(segment = id.segment, generation = id.generation, "repair: {e}");
                notes.lose(id);
            }
        }
        step
    }

    /// Takes a repair back: the object was deleted or put meanwhile.
    fn undo(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) {
        match self.survey_info(ctx, id) {
            Ok(_) => {
                // put again: old pieces are recognized by their stamp
                let survey = self.survey(ctx, id);
                let wrong = self.wrong_pieces(id, &survey);
                self.notes.lock().missing(id, wrong);
            }
            Err(_) => drop(self.delete_pieces(ctx, id, u64::MAX)),
        }
    }

    /// Pieces that are missing, bad or of another put.
    pub(super) fn wrong_pieces(&self, id: ObjectId, survey: &Survey) -> u64 {
        let Ok(info) = self.choose(id, survey) else { return 0 };
        let wrong = |piece: &usize| match (survey.heads.get(piece), survey.faults.get(piece)) {
            (Some(head), _) => head.stamp != info.stamp,
            (None, fault) => fault.is_some_and(Fault::is_loss),
        };
        self.cut(info.object_bytes).stored().filter(wrong).fold(0, |all, piece| all | 1 << piece)
    }

    /// Returns the pieces that are in order now.
    fn rebuild_object(self: &Arc<Self>, ctx: &Ctx, id: ObjectId, step: &mut Step) -> Result<u64> {
        let survey = self.survey(ctx, id);
        let info = self.choose(id, &survey)?;
        let cut = self.cut(info.object_bytes);
        let noted = self.notes.lock().missing_of(id);
        let mut want = self.wrong_pieces(id, &survey);
        let mut good = noted & !cut.stored().fold(0, |all, piece| all | 1 << piece);
        let bytes = |piece: usize| (cut.blocks(piece) * BLOCK) as u64;
        let mut had: Vec<(usize, AlignedBuf)> = Vec::new();
        let suspects = noted & !want;
        for piece in cut.stored().filter(|piece| suspects >> piece & 1 == 1) {
            let (core, ctx, blocks) = (self.clone(), *ctx, 0..cut.blocks(piece));
            let read = move || core.read_blocks(&ctx, id, &info, piece, blocks);
            let answer = self.through(&ctx, &self.slot(id, piece).home, PATIENCE, read);
            match answer.unwrap_or_else(|| Err(Fault::Away(String::new()))) {
                Ok(blocks) => {
                    step.read_bytes += bytes(piece);
                    good |= 1 << piece;
                    had.push((piece, blocks));
                }
                Err(fault) if fault.is_loss() => want |= 1 << piece,
                Err(_) => {} // its store is away: it may be good
            }
        }
        let can = |piece: &usize| want >> piece & 1 == 1 && self.slot(id, *piece).home.can_ask();
        let target: Vec<usize> = cut.stored().filter(can).collect();
        let Some(first) = target.first() else { return Ok(good) };
        let part = Part::new(*first, 0..cut.full_blocks()).without(want);
        let mut reading = Reading::new(self, ctx, id, info, vec![part]);
        let given: Vec<usize> = had.iter().map(|(piece, _)| *piece).collect();
        had.into_iter().for_each(|(piece, blocks)| reading.give(piece, blocks));
        let done = reading.run();
        reading.note_faults();
        let (got, faults) = reading.into_parts();
        step.read_bytes += got.keys().filter(|piece| !given.contains(piece)).map(|p| bytes(*p)).sum::<u64>();
        if !done {
            return Err(self.unreadable(id, got.len(), cut.needed(), &faults));
        }
        let empty = (0..cut.data).filter(|piece| cut.blocks(*piece) == 0).map(|piece| (piece, &[][..]));
        let mut have: Vec<(usize, &[u8])> = empty.collect();
        have.extend(got.iter().map(|(piece, blocks)| (*piece, &blocks[..cut.blocks(*piece) * BLOCK])));
        have.truncate(cut.data);
        let head =
            super::piece::Head { object_bytes: info.object_bytes, stamp: info.stamp, crcs: Box::default() };
        for (piece, body) in rebuild(&self.code, self.name(id, 0), &head, &have, &target) {
            let (core, ctx, bytes) = (self.clone(), *ctx, body.len() as u64);
            let put = move || core.replace_piece(&ctx, id, piece, &body);
            match self.through(&ctx, &self.slot(id, piece).home, PATIENCE, put).unwrap_or_else(silent) {
                Ok(()) => {
                    good |= 1 << piece;
                    step.pieces += 1;
                    step.written_bytes += bytes;
                }
                Err(e) => tracing::warn!("repair: {}: {e}", self.slot(id, piece).home.url()),
            }
        }
        Ok(good)
    }

    /// Moves one piece off a store that is being emptied. A step without pieces: it could not be
    /// done now.
    fn move_piece(self: &Arc<Self>, ctx: &Ctx, slot: usize, id: ObjectId) -> Step {
        let mut step = Step { more: true, ..Step::default() };
        self.notes.lock().begin_repair(id);
        let (core, asked) = (self.clone(), *ctx);
        let moved =
            self.through(ctx, &self.slots[slot].home, PATIENCE, move || core.take_over(&asked, slot, id));
        let alone = self.notes.lock().end_repair();
        match moved.unwrap_or_else(silent) {
            Ok(bytes) => (step.read_bytes, step.written_bytes, step.pieces) = (bytes, bytes, 1),
            Err(e) => tracing::warn!("moving to {}: {e}", self.slots[slot].home.url()),
        }
        if !alone {
            self.undo(ctx, id);
        }
        step
    }

    /// Moves one piece, unless the right one is there already. The piece on the old store is
    /// deleted only after a piece that is as good was read on the new one.
    fn take_over(&self, ctx: &Ctx, slot: usize, id: ObjectId) -> Result<u64> {
        let Slot { home, old: Some(old) } = &self.slots[slot] else { return Ok(0) };
        let Some(body) = old.read_all(ctx, id)? else { return Ok(0) }; // deleted meanwhile
        let there = home.read_all(ctx, id)?;
        let piece = self.piece_in(id, slot);
        let stamp = |stored: &Stored| self.stamp_of(id, piece, stored);
        let mut bytes = 0;
        match (there.as_ref().and_then(stamp), stamp(&body)) {
            // it was put or repaired since
            (Some(here), Some(there)) if here >= there => {}
            (Some(_), None) => {}
            (Some(_), Some(_)) => return Err(doubt(home, id, "it has an earlier version of the piece")),
            (None, Some(_)) => {
                self.replace_piece(ctx, id, piece, body.buffer())?;
                if home.read_all(ctx, id)?.as_deref() != Some(&*body) {
                    return Err(doubt(home, id, "the piece is not what was put"));
                }
                bytes = body.len() as u64;
            }
            (None, None) => {
                // repair puts another piece in its place: then this one goes
                let _ = self.bad(&self.slots[slot], String::new()); // counted
                self.notes.lock().missing(id, 1 << piece);
                return Err(doubt(old, id, "the piece is damaged"));
            }
        }
        if bytes == 0 {
            // the piece here may be of a process that was killed before it synced it
            home.call(|store| store.settle(ctx, id))?;
        }
        old.call(|store| store.delete(ctx, id))?;
        Ok(bytes)
    }

    /// The stamp of a piece that is whole.
    fn stamp_of(&self, id: ObjectId, piece: usize, stored: &[u8]) -> Option<u64> {
        let length = super::piece::Head::length(stored).ok().filter(|length| *length <= stored.len())?;
        let mut head = stored[..length].to_vec();
        let head = super::piece::Head::decode(&self.name(id, piece), &mut head).ok()?;
        let end = length + head.crcs.len() * BLOCK;
        let whole = length == head_bytes(head.crcs.len()) && end == stored.len();
        (whole && head.holds(0, &stored[length..])).then_some(head.stamp)
    }
}

fn doubt(pool_store: &PoolStore, id: ObjectId, what: &str) -> Error {
    Error::Io(std::io::Error::other(format!("{}: {id:?}: {what}", pool_store.url())))
}
