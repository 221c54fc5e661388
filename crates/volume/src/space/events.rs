//! Removes what event logs keep longer than their volumes say, or what would take too much space,
//! in bounded steps in the background. The largest log gives way first: who changes much keeps his
//! own log shorter, and nobody else's.

use crate::format::events::Block;
use crate::format::keys::{self, CELL_LOG, Key};
use crate::shard::Shard;
use crate::state::Effect;
use crate::tx::{Tx, TxResult};
use leeward_env::Work;
use leeward_fs::Result;
use leeward_meta::Value;

/// Blocks that one step looks at.
const STEP_BLOCKS: usize = 16;
const NANOS_PER_DAY: u64 = 86_400_000_000_000;
/// The part of the own pool that all logs together may take, and the bounds of that.
const SHARE: u64 = 64;
const BYTES_MIN: u64 = 8 << 20;
const BYTES_MAX: u64 = 64 << 30;
/// While users cannot write for want of space, the logs may take so much.
const BYTES_FULL: u64 = 1 << 20;

/// The oldest blocks of a log that are to be removed.
struct Old {
    keys: Vec<Key>,
    /// Bytes of the blocks.
    bytes: u64,
    /// The first event that stays.
    first: u64,
}

/// Logs that one step looks at, of which most have nothing old yet.
const LOOKS: usize = 64;
/// No log is looked at again before so much time is over: it keeps its events so much longer.
const AGAIN_NANOS: u64 = 3_600_000_000_000;

/// What a look at a log has come to.
enum Looked {
    /// Some of it was removed.
    Trimmed,
    /// Nothing of it is to be removed.
    Kept,
    /// No log is to be looked at.
    Nothing,
}

impl Shard {
    /// One step of trimming event logs; `true` when there was something to do.
    pub(crate) fn events_step(&self) -> Result<bool> {
        for _ in 0..LOOKS {
            match self.look_at_a_log()? {
                Looked::Trimmed => return Ok(true),
                Looked::Kept => {}
                Looked::Nothing => return Ok(false),
            }
        }
        Ok(true)
    }

    fn look_at_a_log(&self) -> Result<Looked> {
        let (total, available) = self.space(0);
        let most = match available {
            0 => BYTES_FULL,
            _ => (total / SHARE).clamp(BYTES_MIN, BYTES_MAX),
        };
        let (now, today) = (self.env.wall(), self.today());
        let (log, is_over, is_steady) = {
            let mut st = self.lock();
            let is_over = st.events.bytes() > most;
            let log = if is_over { st.events.largest() } else { st.events.due(now) };
            (log, is_over, st.sampling.is_steady(today))
        };
        let Some((volume, first)) = log else { return Ok(Looked::Nothing) };
        let days = {
            let st = self.lock();
            let volume = if volume == CELL_LOG { 0 } else { volume };
            st.volumes.get(&volume).map_or(0, |v| u64::from(v.properties.audit_days))
        };
        if !is_over && !is_steady && days > 0 {
            return Ok(Looked::Nothing); // the clock may be wrong, and what is gone does not come back
        }
        let (from, to) = keys::events_range(volume, first);
        let (page, _) = self.scan(&from, &to, STEP_BLOCKS)?;
        let mut old = Old { keys: Vec::new(), bytes: 0, first };
        let mut next_due = None;
        for (key, record) in &page {
            let block = match Block::decode(volume, record) {
                Ok(block) => block,
                Err(e) => {
                    // fsck says which; the other logs go on
                    tracing::warn!("the event log of volume {volume}: {e}");
                    self.lock().events.look_again(volume, now + NANOS_PER_DAY);
                    return Ok(if is_over { Looked::Nothing } else { Looked::Kept });
                }
            };
            let last = block.events.iter().map(|event| event.at).max().unwrap_or_default();
            let due = last.saturating_add(days * NANOS_PER_DAY);
            if due > now && !is_over {
                next_due = Some(due.saturating_add(if days > 0 { AGAIN_NANOS } else { 0 }));
                break;
            }
            old.add(volume, (key, record), &block);
        }
        if old.keys.is_empty() {
            // nothing is old, or there is nothing: one looks again when that can have changed
            self.lock().events.look_again(volume, next_due.unwrap_or(now + NANOS_PER_DAY));
            return Ok(if is_over { Looked::Nothing } else { Looked::Kept });
        }
        let ctx = self.work_ctx(Work::Trim, None);
        self.transact(&ctx, |tx| tx.trim_log(volume, first, &old))?;
        if let Some(due) = next_due {
            self.lock().events.look_again(volume, due);
        }
        Ok(Looked::Trimmed)
    }
}

impl Old {
    fn add(&mut self, volume: u32, (key, record): (&Key, &Value), block: &Block) {
        self.keys.push(key.clone());
        for (n, event) in (self.first..).zip(&block.events) {
            self.keys.extend(event.moved(volume).map(|(dir, _)| keys::was_at(dir, n)));
        }
        self.bytes += record.len() as u64;
        self.first += block.events.len() as u64;
    }
}

impl Tx<'_> {
    fn trim_log(&mut self, volume: u32, first: u64, old: &Old) -> TxResult<()> {
        if self.st.events.head(volume).first != first {
            return Ok(()); // the volume was removed meanwhile
        }
        old.keys.iter().for_each(|key| self.remove(key.clone()));
        self.then(Effect::LogTrimmed(volume, old.first, old.bytes));
        Ok(())
    }
}
