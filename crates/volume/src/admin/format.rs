//! The format of the cell, which an operator raises (docs/decisions/0048).

use crate::admin::failure::about;
use crate::admin::{Caller, Failure, Reply, Request};
use crate::format::inode::VolumeRecord;
use crate::format::versions::FORMAT;
use crate::shard::Shard;
use crate::state::State;
use leeward_env::Ctx;
use serde::{Deserialize, Serialize};

/// Number of the volume that each cell has.
const ROOT: u32 = 0;

/// Raises the format of the cell to the newest one that this program knows. From then on programs
/// that do not know it refuse the cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FormatRaise {}

/// The format of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatRaised {
    /// Before.
    pub before: u32,
    /// Now.
    pub format: u32,
}

impl Reply for FormatRaised {
    const KIND: &'static str = "format";
}

impl State {
    /// Writes records in this format from now on, and those anew of which an older one has a part
    /// only.
    fn write_in_format(&mut self, format: u32) {
        self.format = format;
        let compared = |v: &VolumeRecord| v.properties.mirrors.iter().any(|m| m.compared.is_some());
        let again = self.volumes.iter().filter(|(_, v)| compared(v)).map(|(id, _)| *id);
        self.volumes_dirty.extend(again);
    }
}

impl Request for FormatRaise {
    type Reply = FormatRaised;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<FormatRaised, Failure> {
        let mut identity = shard.identity.lock();
        let before = shard.lock().format;
        if before < FORMAT {
            // durably, before anything is written that older programs would take for damage
            identity.raise(FORMAT).map_err(|e| Failure {
                message: format!(
                    "{}: the format may be raised all the same: run lee upgrade again",
                    e.message
                ),
                ..e
            })?;
            // this commit says that the cell was not another's before the format was noted: whoever
            // opens it later finds that
            shard.lock().volumes_dirty.insert(ROOT);
            shard.settle()?;
            for each in 0..shard.which.count {
                let raised = shard.ask(each, |shard| {
                    shard.lock().write_in_format(FORMAT);
                    shard.commit_now(&Ctx::system())
                });
                raised.map_err(about("the format"))?;
            }
        }
        Ok(FormatRaised { before, format: FORMAT })
    }
}
