//! Reads all pieces of a group of stores, one object a step, and notes those that are missing or
//! bad.

use super::answers::Fault;
use super::group::Core;
use super::health::{Progress, Step};
use super::piece::BLOCK;
use crate::{ObjectId, Result};
use leeward_env::Ctx;
use std::sync::Arc;

impl Core {
    pub(super) fn scrub_step(self: &Arc<Self>, ctx: &Ctx) -> Result<Step> {
        let mut steps = self.steps.lock();
        if steps.scrub.is_none() {
            let found = self.list_pieces(ctx)?;
            let after = steps.scrub_after;
            let is_next = |id: &ObjectId| after.is_none_or(|after| *id > after);
            let mut all: Vec<ObjectId> = found.pieces.into_keys().filter(is_next).collect();
            all.reverse();
            let objects_waiting = all.len() as u64;
            self.figures.lock().scrub = Progress { objects_waiting, ..Progress::default() };
            steps.scrub = Some(all);
        }
        let Some(id) = steps.scrub.as_mut().and_then(Vec::pop) else {
            steps.try_all_again();
            self.notes.lock().only_lost(steps.scrub_after, &steps.unreadable);
            steps.begin_scrub(None);
            return Ok(Step::default());
        };
        let deleted = self.notes.lock().is_deleted(id);
        let step = if deleted { Some(Step::default()) } else { self.scrub_object(ctx, id) };
        if step.is_none() {
            steps.unreadable.insert(id);
        }
        if self.notes.lock().first_wrong().is_none_or(|wrong| wrong > id) {
            steps.scrubbed = Some(id);
        }
        let step = Step { more: true, ..step.unwrap_or_default() };
        let scrub = &mut self.figures.lock().scrub;
        scrub.objects_done += 1;
        scrub.objects_waiting -= 1;
        scrub.read_bytes += step.read_bytes;
        Ok(step)
    }

    /// Objects of which a listing has too few pieces, and whose heads all agree.
    pub(super) fn lacking(
        self: &Arc<Self>,
        ctx: &Ctx,
        expected: &[(ObjectId, u64)],
    ) -> Result<Vec<(ObjectId, u64)>> {
        let found = self.list_pieces(ctx)?;
        let lacks = |(id, bytes): &(ObjectId, u64)| {
            let there = found.pieces.get(id).map_or(0, |pieces| pieces.len());
            there < self.cut(*bytes).needed() && self.choose(*id, &self.survey(ctx, *id)).is_err()
        };
        Ok(expected.iter().copied().filter(lacks).collect())
    }

    /// Reads all pieces of an object. `None` when it cannot be read.
    fn scrub_object(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) -> Option<Step> {
        let mut step = Step::default();
        let survey = self.survey(ctx, id);
        let info = match self.choose(id, &survey) {
            Ok(info) => info,
            Err(crate::Error::NotFound(_)) => return Some(step), // deleted meanwhile, or never complete
            Err(e) => {
                tracing::warn!(segment = id.segment, generation = id.generation, "scrub: {e}");
                self.notes.lock().lose(id);
                return None;
            }
        };
        let cut = self.cut(info.object_bytes);
        let mut wrong = self.wrong_pieces(id, &survey);
        let good = cut.stored().filter(|piece| wrong >> piece & 1 == 0 && survey.heads.contains_key(piece));
        let (good, asked) = (good.collect::<Vec<_>>(), *ctx);
        let read = move |core: &Core, piece| core.read_blocks(&asked, id, &info, piece, 0..cut.blocks(piece));
        // a busy store's pieces are read in the next pass
        self.ask_for_pieces(ctx, id, good, read, |piece, blocks| {
            match blocks {
                Ok(blocks) => {
                    step.read_bytes += (cut.blocks(piece) * BLOCK) as u64;
                    self.give_buffer(blocks);
                }
                Err(Fault::Missing | Fault::Bad(_)) => wrong |= 1 << piece,
                Err(Fault::Newer | Fault::Away(_)) => {}
            }
            false
        });
        step.pieces = u64::from(wrong.count_ones());
        let mut notes = self.notes.lock();
        notes.missing(id, wrong);
        notes.found(id);
        Some(step)
    }
}
