//! Records of volumes that do not exist: nobody can reach them, and nothing would ever free them.

use super::{Census, STEP_RECORDS};
use crate::format::keys::{self, Key};
use crate::shard::Shard;
use crate::state::sweep::volume_ranges;
use leeward_env::Work;
use leeward_fs::Result;
use leeward_meta::Moment;
use rustc_hash::FxHashSet;

impl Shard {
    /// `volumes`: all volumes, including those that are being removed.
    pub(super) fn look_for_strays(
        &self,
        moment: &dyn Moment,
        volumes: &FxHashSet<u32>,
        census: &mut Census,
    ) -> Result<()> {
        let ctx = self.work_ctx(Work::Check, None);
        for table in 0..volume_ranges(0).len() {
            let mut next = Some(0);
            while let Some(from) = next {
                let most = self.step_size(STEP_RECORDS);
                next = self.in_turn(&ctx, 0, || census.strays(moment, table, from, most, volumes))?;
            }
        }
        Ok(())
    }
}

impl Census {
    /// Reads one record of each of the next volumes that have records in this range of
    /// [`volume_ranges`]. Returns where to go on.
    fn strays(
        &mut self,
        moment: &dyn Moment,
        range: usize,
        mut from: u32,
        most: usize,
        volumes: &FxHashSet<u32>,
    ) -> Result<Option<u32>> {
        let end = volume_ranges(leeward_fs::VIEW_FIRST - 1)[range].1.clone();
        for _ in 0..most {
            let start: &Key = &volume_ranges(from)[range].0;
            let Some((key, _)) = moment.scan(start, &end, 1)?.pop() else { return Ok(None) };
            let volume = keys::owner(&key).unwrap_or(from);
            if !volumes.contains(&volume) {
                let detail = format!("records of volume {volume}, which is not there, from {} on", hex(&key));
                self.say("no-volume", None, detail);
            }
            from = volume + 1;
        }
        Ok(Some(from))
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().take(24).map(|byte| format!("{byte:02x}")).collect()
}
