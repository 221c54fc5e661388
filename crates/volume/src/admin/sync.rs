//! Makes everything durable.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Done, Failure, Request};
use crate::shard::Shard;
use leeward_env::Ctx;
use serde::{Deserialize, Serialize};

/// Makes durable what all operations that returned before have changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncAll;

impl Request for SyncAll {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        drop(shard.recall_exclusive(&Ctx::system(), None).map_err(about("sync"))?);
        shard.sync_all(&Ctx::system()).map_err(about("sync"))?;
        Ok(Done {})
    }
}
