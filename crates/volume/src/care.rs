//! Looking after pools in the background: what is away is tried again, pieces that are missing are rebuilt, and, when an
//! operator asks for it, everything is read and verified.
//!
//! One thread for all pools, so that neither cleaning nor the engine waits for a slow store. It takes at most half of the time
//! while users need the stores.

use crate::admin::{Progress, ScrubInfo};
use crate::error::{Error, Result};
use crate::pools::Pool;
use crate::shard::Shard;
use leeward_data::PoolId;
use leeward_env::{Class, Ctx, Nanos};
use leeward_pool::Layout;
use std::time::Duration;

/// Users that have left the store alone for so long do not need it now.
const QUIET: Duration = Duration::from_millis(500);
/// When nothing was left to repair, and when repairing failed: how long until the next look.
const LOOK_EVERY_NS: Nanos = 5_000_000_000;

fn background() -> Ctx {
    Ctx { class: Class::Background, ..Ctx::system() }
}

impl Shard {
    /// One turn of the thread.
    pub(crate) fn care_turn(&self) {
        if let Err(e) = self.open_away() {
            tracing::warn!("opening pools: {e}");
        }
        let (busy, took) = self.timed(|| self.care_step());
        if !busy {
            self.care.wait(Duration::from_secs(1));
        } else if self.log.quiet_for() < QUIET {
            self.care.wait(Duration::from_nanos(took));
        }
    }

    /// One step of repair in each pool; `true` when there is more to do.
    pub(crate) fn care_step(&self) -> bool {
        let now = self.env.now();
        let mut more = false;
        for (_, pool) in self.pools.all() {
            more |= pool.is_time_to_repair(now) && self.repair_step(&pool, now);
        }
        more
    }

    fn repair_step(&self, pool: &Pool, now: Nanos) -> bool {
        let Some(layout) = pool.layout() else { return false };
        let more = match layout.repair_step(&background()) {
            Ok(step) => step.more,
            Err(e) => {
                tracing::warn!("repairing pool {}: {e}", layout.spec().name);
                false
            }
        };
        if !more {
            pool.repair_after(now + LOOK_EVERY_NS);
        }
        more
    }

    /// Reads and verifies everything in a pool, and puts in order what can be.
    pub(crate) fn scrub(&self, id: PoolId, progress: &mut dyn FnMut(Progress)) -> Result<ScrubInfo> {
        let Some(pool) = self.pools.get(id) else { return Err(Error::Io(format!("pool {id} is gone"))) };
        pool.store().map_err(Error::Io)?;
        let mut info = ScrubInfo { pool: self.pool_name(id), ..ScrubInfo::default() };
        match pool.layout().filter(|l| l.spec().layout != Layout::Single) {
            Some(layout) => {
                let failed = |e: leeward_pool::Error| Error::from(leeward_data::Error::from(e));
                loop {
                    let step = layout.scrub_step(&background()).map_err(failed)?;
                    info.bytes += step.read_bytes;
                    info.bad_pieces += step.pieces;
                    let h = layout.health().scrub;
                    let (done, total) = (h.objects_done, h.objects_done + h.objects_waiting);
                    progress(Progress { phase: format!("scrubbing {}", info.pool), done, total });
                    if !step.more {
                        break;
                    }
                }
                loop {
                    let step = layout.repair_step(&background()).map_err(failed)?;
                    info.repaired_pieces += step.pieces;
                    let left = layout.health().degraded_objects;
                    let phase = format!("repairing {}", info.pool);
                    progress(Progress {
                        phase,
                        done: info.repaired_pieces,
                        total: info.repaired_pieces + left,
                    });
                    if !step.more {
                        break;
                    }
                }
                let health = layout.health();
                info.degraded_objects = health.degraded_objects;
                info.lost_objects = health.lost_objects;
            }
            None => self.verify_pool(id, &mut info, progress),
        }
        Ok(info)
    }

    /// Without a second copy, the checksums of the data log say what is lost.
    fn verify_pool(&self, id: PoolId, info: &mut ScrubInfo, progress: &mut dyn FnMut(Progress)) {
        let all: Vec<u64> = {
            let st = self.lock();
            let here = st.segments.iter().filter(|(_, r)| r.sealed && r.pool == id && r.object_bytes > 0);
            here.map(|(segment, _)| segment).collect()
        };
        for (done, segment) in all.iter().enumerate() {
            let (done, total) = (done as u64, all.len() as u64);
            progress(Progress { phase: format!("scrubbing {}", info.pool), done, total });
            let object =
                || self.lock().segments.get(*segment).filter(|r| r.pool == id).map(|r| r.object(*segment));
            let Some(before) = object() else { continue };
            match self.log.verify(&background(), before) {
                Ok(found) => {
                    info.bytes += found.bytes;
                    info.lost_objects += u64::from(!found.damaged.is_empty());
                }
                // it may have been rewritten or removed meanwhile
                Err(_) => info.lost_objects += u64::from(object() == Some(before)),
            }
        }
    }
}
