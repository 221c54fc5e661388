//! The store of a pool that has only one (`single`), for calls that must not wait for ever.
//!
//! A user who reads or puts calls the store on the thread that does so: there are threads for that,
//! and nothing is copied. All else goes through the store's own threads and waits until the store
//! counts as hanging: background work holds locks that operators need, and has other pools to look
//! after. While a call of the store hangs no further one is made for such work.
//!
//! The time that a call waits for its turn at the store's gate counts: so it may be long.

use super::answers::next_answer;
use super::lane::Takes;
use super::pool_store::{PoolStore, Stored};
use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::disk::Space;
use leeward_env::{Ctx, Flow, Nanos, Work};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};

/// How often it is looked whether the store hangs.
const LOOK: Nanos = 1_000_000_000;
/// The longest time to wait for a listing, of which nobody can say whether it hangs.
const LISTING_MAX: Nanos = 3_600_000_000_000;

pub(super) struct Patient(pub(super) Arc<PoolStore>);

impl Deref for Patient {
    type Target = PoolStore;

    fn deref(&self) -> &PoolStore {
        &self.0
    }
}

/// Whether a call is of a user, or of a stream of snapshots, which has threads, too.
fn has_threads(ctx: &Ctx) -> bool {
    match ctx.flow.work() {
        None => ctx.flow != Flow::SYSTEM,
        Some(work) => work == Work::Transfer,
    }
}

fn copied(body: &AlignedBuf) -> AlignedBuf {
    let mut copy = AlignedBuf::zeroed(body.len());
    copy[..body.len()].copy_from_slice(body);
    copy.set_len(body.len());
    copy
}

impl Patient {
    /// As [`PoolStore::read_all`].
    pub(super) fn read_all(&self, ctx: &Ctx, id: ObjectId) -> Result<Option<Stored>> {
        Stored::read(self.url(), id, self.len(ctx, id), |buf| self.get(ctx, id, 0, buf))
    }

    /// Makes a call that brings the store an object.
    fn bring(
        &self,
        ctx: &Ctx,
        body: &AlignedBuf,
        put: impl FnOnce(&dyn Store, &Ctx, &AlignedBuf) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        if has_threads(ctx) {
            let _noted = self.note_call(Takes::Whole);
            return self.call(|store| put(store, ctx, body));
        }
        let (asker, body) = (*ctx, copied(body));
        self.through(ctx, Takes::Whole, move |to| to.call(|store| put(store, &asker, &body)))
    }

    /// Makes a call on one of the store's threads, and waits for it as long as for any answer.
    fn through<T: Send + 'static>(
        &self,
        ctx: &Ctx,
        takes: Takes,
        call: impl FnOnce(&PoolStore) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.hangs() {
            return Err(self.no_answer());
        }
        let (sender, answers) = channel();
        let store = self.0.clone();
        let job = move || {
            let _ = sender.send(call(&store)); // or nobody waits any more
        };
        let silent = |why: &str| Error::Away(format!("{}: {why}", self.url()));
        if self.hand_over(ctx, takes, job).is_err() {
            return Err(silent("too much waits for it already"));
        }
        let begun = self.env().now();
        loop {
            let now = self.env().now();
            match next_answer(self.env(), &answers, now + LOOK) {
                Ok(answer) => return answer,
                // slow is not silent: what was given up would go on all the same
                Err(RecvTimeoutError::Timeout)
                    if !self.env().is_sim() && !self.hangs() && now < begun + LISTING_MAX => {}
                Err(_) => return Err(silent("it does not answer")),
            }
        }
    }
}

impl Store for Patient {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.bring(ctx, body, move |store, ctx, body| store.put(ctx, id, body))
    }

    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.bring(ctx, body, move |store, ctx, body| store.replace(ctx, id, body))
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        if has_threads(ctx) {
            let _noted = self.note_call(Takes::Short);
            return self.read(|store| store.get(ctx, id, offset, buf));
        }
        let (asker, len) = (*ctx, buf.len());
        // each part of it waits for its turn behind users
        let read = self.through(ctx, Takes::Whole, move |from| {
            let mut read = AlignedBuf::zeroed(len);
            from.read(|store| store.get(&asker, id, offset, &mut read[..len])).map(|()| read)
        })?;
        buf.copy_from_slice(&read[..len]);
        Ok(())
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        if has_threads(ctx) {
            let _noted = self.note_call(Takes::Short);
            return self.read(|store| store.len(ctx, id));
        }
        let asker = *ctx;
        self.through(ctx, Takes::Short, move |from| from.read(|store| store.len(&asker, id)))
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        let asker = *ctx;
        self.through(ctx, Takes::Whole, move |of| of.call(|store| store.settle(&asker, id)))
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        let asker = *ctx;
        self.through(ctx, Takes::Short, move |from| from.call(|store| store.delete(&asker, id)))
    }

    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let asker = *ctx;
        self.through(ctx, Takes::Long, move |of| of.call(|store| store.list(&asker)))
    }

    fn is_stuck(&self) -> bool {
        self.hangs()
    }

    fn space(&self) -> Result<Space> {
        self.0.ask_for_space();
        self.known_space()
    }
}
