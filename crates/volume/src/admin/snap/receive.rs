//! Receives a snapshot from a stream; and makes a copy a volume of its own.

use super::send::{Pipe, failure};
use crate::admin::volume::VolumeInfo;
use crate::admin::{Caller, Failure, Request};
use crate::shard::Shard;
use crate::stream::{Broken, Streamed};
use serde::{Deserialize, Serialize};
use std::io::BufReader;

/// Receives a snapshot from a stream into a copy, with progress. The copy shows it when it is whole and proven.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapReceive {
    /// The copy.
    pub volume: String,
    /// Where from.
    pub pipe: Pipe,
}

impl Request for SnapReceive {
    type Reply = Streamed;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Streamed, Failure> {
        let volume = shard.volume_named(&self.volume)?;
        let failed = |broken| failure(broken, &format!("volume {}", self.volume));
        let pipe = self.pipe.open(false).map_err(|e| failed(Broken::Pipe(e)))?;
        shard.receive_stream(volume, &mut BufReader::new(pipe), caller.progress).map_err(failed)
    }
}

/// Makes a copy a volume like others, as the snapshot that it shows, with progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumePromote {
    /// The copy.
    pub name: String,
}

impl Request for VolumePromote {
    type Reply = VolumeInfo;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let volume = shard.volume_named(&self.name)?;
        shard.promote(volume, caller.progress).map_err(|e| failure(e, &format!("volume {}", self.name)))?;
        shard.settle()?;
        shard.volume_info(volume)
    }
}
