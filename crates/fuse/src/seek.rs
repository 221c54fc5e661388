//! Searches for data and holes. What programs have stored through a mapping the file system does
//! not know before the kernel has written it back, and the kernel does not do that by itself: so a
//! hole is believed only when the pages in it have been asked for.

use crate::kernel::{Reply as Answer, abi};
use crate::notify::Announcer;
use leeward_env::{Ctx, Wait};
use leeward_fs::{Error, NodeId, Op, Reply, Result, Seek};
use leeward_vfs::{Attempt, Backend, Outcome};
use std::ops::Range;
use std::sync::Arc;

/// How often the pages in a hole are asked for, while the answer changes.
const ROUNDS_MAX: usize = 8;

/// One request of the kernel.
pub(crate) struct Search<B> {
    pub(crate) gate: B,
    pub(crate) ctx: Ctx,
    pub(crate) node: NodeId,
    pub(crate) offset: u64,
    pub(crate) what: Seek,
    /// Tells the kernel to write pages.
    pub(crate) announcer: Option<Arc<Announcer>>,
}

impl<B: Backend> Search<B> {
    /// Answers when it is its turn.
    pub(crate) fn answer(self, to: Answer) {
        let (gate, ctx) = (self.gate.clone(), self.ctx);
        let like = Op::SeekTo { node: self.node, offset: self.offset, what: self.what };
        gate.run_all(ctx, (like, 0), (self, to), |ctx, (search, to)| match search.run(ctx) {
            Err(Error::WouldBlock) => Attempt::Wait((search, to)),
            result => {
                let outcome = Outcome { failed: result.is_err(), ..Outcome::default() };
                match result {
                    Ok(offset) => to.value(&abi::LseekOut { offset }),
                    Err(e) => to.error(e.errno()),
                }
                Attempt::Done(outcome)
            }
        });
    }

    fn run(&self, ctx: &Ctx) -> Result<u64> {
        let mut found = self.find(ctx, self.offset, self.what);
        let Some(announcer) = &self.announcer else { return found };
        let size = self.gate.call(ctx, Op::GetAttr { node: self.node })?.attr()?.size;
        for _ in 0..ROUNDS_MAX {
            let Some(hole) = self.hole(ctx, &found, size)? else { return found };
            if ctx.wait == Wait::Never {
                return Err(Error::WouldBlock);
            }
            if !announcer.get_pages(self.node, hole) {
                return Ok(self.without_holes(size));
            }
            let again = self.find(ctx, self.offset, self.what);
            if again == found {
                return found;
            }
            found = again;
        }
        Ok(self.without_holes(size))
    }

    /// The answer where nobody knows whether something is in the holes: all is data.
    fn without_holes(&self, size: u64) -> u64 {
        if self.what == Seek::Data { self.offset } else { size }
    }

    fn find(&self, ctx: &Ctx, offset: u64, what: Seek) -> Result<u64> {
        match self.gate.call(ctx, Op::SeekTo { node: self.node, offset, what })? {
            Reply::Offset(offset) => Ok(offset),
            other => Err(Error::Io(format!("a reply of the wrong kind: {other:?}"))),
        }
    }

    /// The hole that was passed over, or found, within the file.
    fn hole(&self, ctx: &Ctx, found: &Result<u64>, size: u64) -> Result<Option<Range<u64>>> {
        Ok(self.any_hole(ctx, found)?.filter(|hole| hole.start < size))
    }

    fn any_hole(&self, ctx: &Ctx, found: &Result<u64>) -> Result<Option<Range<u64>>> {
        let data_from = |offset| match self.find(ctx, offset, Seek::Data) {
            Err(Error::NoSuchPosition) => Ok(u64::MAX),
            found => found,
        };
        match (self.what, found) {
            (Seek::Data, Ok(data)) => Ok(Some(self.offset..*data).filter(|hole| !hole.is_empty())),
            (Seek::Data, Err(Error::NoSuchPosition)) => Ok(Some(self.offset..u64::MAX)),
            (Seek::Hole, Ok(hole)) => Ok(Some(*hole..data_from(*hole)?)),
            (_, Err(_)) => Ok(None),
        }
    }
}
