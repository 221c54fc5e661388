//! Finds out which versions of an object there are, and how many pieces of each.
//!
//! Usually the head of one piece tells length and stamp. Where it cannot be read, or another piece
//! contradicts it, all heads are read. The object is then the latest put of which there are enough
//! pieces. A put that was interrupted before it had enough pieces is no object.

use super::answers::Fault;
use super::answers::{PATIENCE, next_answer};
use super::group::Core;
use super::known::Info;
use super::lane::Takes;
use super::piece::Head;
use crate::{Error, ObjectId, Result};
use leeward_env::{Ctx, Nanos};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// When enough answers are there, the others get this much more time.
const GRACE: Nanos = 500_000_000;
/// Where stores are asked one after the other, the next is asked after this time at the latest.
const TURN: Nanos = 50_000_000;

/// What all stores say of an object.
pub(super) struct Survey {
    pub(super) heads: BTreeMap<usize, Arc<Head>>,
    pub(super) faults: BTreeMap<usize, Fault>,
}

impl Core {
    /// Length and stamp of an object.
    pub(super) fn info(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) -> Result<Info> {
        let since = self.known.moment();
        if self.notes.lock().is_deleted(id) {
            return Err(Error::NotFound(id));
        }
        if let Some(info) = self.known.object(id) {
            return Ok(info);
        }
        let noted = self.notes.lock().missing_of(id) & 1 == 1;
        if !noted
            && self.slot(id, 0).may_ask()
            && let Some(head) = self.first_head(ctx, id)
        {
            let info = Info::from(&*head);
            self.known.learn(since, id, info);
            return Ok(info);
        }
        self.survey_info(ctx, id)
    }

    /// The head of the first piece, which every object has, unless reading it takes too long.
    fn first_head(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) -> Option<Arc<Head>> {
        let (core, ctx) = (self.clone(), *ctx);
        let answer = self.through(&ctx, &self.slot(id, 0).home, GRACE, move || core.read_head(&ctx, id, 0));
        let head: Arc<Head> = answer?.ok()?.into();
        self.known.learn_piece(id, 0, &head);
        Some(head)
    }

    /// Length and stamp of an object, from all stores.
    pub(super) fn survey_info(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) -> Result<Info> {
        let since = self.known.moment();
        let survey = self.survey(ctx, id);
        let info = self.choose(id, &survey)?;
        self.known.learn(since, id, info);
        Ok(info)
    }

    /// Reads all heads.
    pub(super) fn survey(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) -> Survey {
        let pieces = 0..self.slots.len();
        let faults = pieces.clone().map(|piece| (piece, Fault::Away("it does not answer".into())));
        let mut survey = Survey { heads: BTreeMap::new(), faults: faults.collect() };
        let asked = *ctx;
        let read = move |core: &Core, piece| core.read_head(&asked, id, piece);
        self.ask_for_pieces(ctx, id, pieces, read, |piece, head| {
            match head {
                Ok(head) => {
                    let head = Arc::new(head);
                    self.known.learn_piece(id, piece, &head);
                    survey.faults.remove(&piece);
                    survey.heads.insert(piece, head);
                }
                Err(fault) => drop(survey.faults.insert(piece, fault)),
            }
            self.choose(id, &survey).is_ok()
        });
        survey
    }

    /// Makes the same call of the stores of these pieces, and passes their answers to `take` as
    /// they come. `take` says when there are enough; then the others get little more time. Stores
    /// that are busy, or do not answer in time, are left out.
    pub(super) fn ask_for_pieces<T: Send + 'static>(
        self: &Arc<Self>,
        ctx: &Ctx,
        id: ObjectId,
        pieces: impl IntoIterator<Item = usize>,
        ask: impl Fn(&Core, usize) -> T + Clone + Send + 'static,
        mut take: impl FnMut(usize, T) -> bool,
    ) {
        let ((sender, answers), in_turn, mut enough) = (channel(), self.in_turn(ctx), false);
        for piece in pieces {
            let (core, ask, sender) = (self.clone(), ask.clone(), sender.clone());
            let job = move || {
                let _ = sender.send((piece, ask(&core, piece))); // or nobody waits
            };
            let given = self.slot(id, piece).home.hand_over(ctx, Takes::Short, job).is_ok();
            if given
                && in_turn
                && let Ok((piece, answer)) = next_answer(&self.env, &answers, self.env.now() + TURN)
            {
                enough |= take(piece, answer);
            }
        }
        drop(sender);
        let mut until = self.env.now() + if enough { GRACE } else { PATIENCE };
        while let Ok((piece, answer)) = next_answer(&self.env, &answers, until) {
            if take(piece, answer) {
                until = until.min(self.env.now() + GRACE);
            }
        }
    }

    /// The latest version of which there are enough pieces.
    pub(super) fn choose(&self, id: ObjectId, survey: &Survey) -> Result<Info> {
        let mut versions: BTreeMap<u64, (Info, usize)> = BTreeMap::new();
        for head in survey.heads.values() {
            let version = versions.entry(head.stamp).or_insert_with(|| (Info::from(&**head), 0));
            version.1 += 1;
        }
        let needed = |info: &Info| self.cut(info.object_bytes).needed();
        let whole = versions.values().rev().find(|(info, pieces)| *pieces >= needed(info));
        if let Some((info, _)) = whole {
            return Ok(*info);
        }
        let best = versions.values().max_by_key(|(info, pieces)| (*pieces, info.stamp));
        let (have, need) = best.map_or((0, self.data()), |(info, pieces)| (*pieces, needed(info)));
        Err(self.unreadable(id, have, need, &survey.faults))
    }
}
