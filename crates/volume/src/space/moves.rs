//! Moves data between pools: a segment that is not in a pool of its volume is rewritten into one,
//! as a later generation.
//!
//! The only state of a move is the volume's record: the pool its data belongs in, and the pools
//! that its directories name. A segment anywhere else is *misplaced*. So a move continues after a
//! crash, is cancelled by naming another pool, and data that had to go elsewhere while a pool was
//! away returns. Addresses are logical: no extent changes, and neither does a snapshot. The old
//! object is deleted when the commit that names the new one is durable.
//!
//! Segments of cells before format 4 have no volume in their records, and may hold data of several
//! volumes. When a volume has to leave pool 0 their indexes are read once, and each counts as that
//! of the volume with most of it.

use crate::format::inode::SegmentRecord;
use crate::shard::Shard;
use crate::space::clean::{self, Cleaned};
use leeward_data::{Object, PoolId};
use leeward_env::{Class, Ctx, Nanos, Work};
use leeward_fs::{Error, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(5);

impl Shard {
    /// One step of moving, but not soon after one that failed; `true` when there may be more to do
    /// at once.
    pub(crate) fn move_turn(&self) -> Result<bool> {
        if self.env.now() < self.lock().moves.retry_at {
            return Ok(false);
        }
        self.move_step().inspect_err(|_| {
            self.lock().moves.retry_at = self.env.now().saturating_add(RETRY.as_nanos() as Nanos);
        })
    }

    /// The context of moving: an operator waits for it, or the volume's owner wants the data
    /// elsewhere. So it rests less than other background work.
    fn mover(&self, volume: Option<u32>) -> Ctx {
        Ctx { class: Class::Batch, ..self.work_ctx(Work::Moving, volume) }
    }

    /// One step: finds the volume of a segment, or moves one. `true` when there was something to
    /// do.
    pub(crate) fn move_step(&self) -> Result<bool> {
        let (unknown, misplaced) = {
            let mut st = self.lock();
            st.list_moves();
            let unknown = st.moves.unknown.pop();
            (unknown, if unknown.is_none() { st.moves.list.pop() } else { None })
        };
        match (unknown, misplaced) {
            (Some(segment), _) => self.find_owner(segment).map(|()| true),
            (None, Some(segment)) => self.move_home(segment).map(|()| true),
            (None, None) => {
                self.lock().moves.come_back_to_left_out(self.env.now() + RETRY.as_nanos() as Nanos);
                Ok(false)
            }
        }
    }

    /// Finds and notes the volume of a segment.
    fn find_owner(&self, segment: u64) -> Result<()> {
        let Some(record) = self.lock().segments.get(segment).copied() else { return Ok(()) };
        if record.volume.is_some() || !record.sealed || record.object_bytes == 0 {
            return Ok(());
        }
        if self.pools.hangs(record.pool) {
            self.lock().moves.left_out = true;
            return Ok(());
        }
        let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
        for chunk in self.log.index(&self.mover(None), record.object(segment))? {
            *bytes.entry(chunk.owner.volume).or_default() += u64::from(chunk.len);
        }
        let Some((volume, _)) = bytes.into_iter().max_by_key(|(_, bytes)| *bytes) else { return Ok(()) };
        let mut st = self.lock();
        st.segments.set_volume(segment, volume);
        if st.segments.get(segment).is_some_and(|r| st.home_of(r).is_some()) {
            st.moves.add(segment);
        }
        Ok(())
    }

    /// Rewrites a misplaced segment where it belongs.
    fn move_home(&self, segment: u64) -> Result<()> {
        let (record, home, in_use) = {
            let st = self.lock();
            let Some(record) = st.segments.get(segment).copied().filter(|r| r.sealed) else { return Ok(()) };
            let Some(home) = st.home_of(&record) else { return Ok(()) };
            (record, home, st.by_segment.contains_key(&segment))
        };
        if self.is_away(home) || self.is_away(record.pool) {
            // everything is checked again when a pool comes back
            return Ok(());
        }
        if self.pools.hangs(home) || self.pools.hangs(record.pool) {
            self.lock().moves.left_out = true;
            return Ok(());
        }
        let object = record.object(segment);
        // a move is the cheapest time to clean
        if !in_use && clean::is_worth(&record) && matches!(self.clean(object, home), Ok(Cleaned::Rewritten)) {
            return Ok(());
        }
        match self.copy_to(object, &record, home) {
            Err(e @ Error::Corrupt(_)) => {
                tracing::error!("segment {segment} stays in pool {}: {e}", record.pool);
                self.lock().moves.stuck.insert(segment);
                Ok(())
            }
            Err(e) => {
                self.lock().moves.add(segment);
                Err(e)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Rewrites a segment with all of its data.
    fn copy_to(&self, object: Object, record: &SegmentRecord, pool: PoolId) -> Result<()> {
        let info = match record.object_bytes {
            0 => leeward_data::SegmentInfo {
                object: Object { pool, ..object },
                object_bytes: 0,
                data_bytes: record.data_bytes,
            },
            _ => {
                let all = std::slice::from_ref(&(0..u32::MAX));
                let generation = self.next_generation(object.segment)?;
                self.log.rewrite(&self.mover(record.volume), object, all, (pool, generation))?
            }
        };
        self.replace_object(object, info);
        Ok(())
    }
}
