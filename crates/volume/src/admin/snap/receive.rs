//! Receives a snapshot from a stream; and makes a copy a volume of its own, and a volume a copy.

use super::send::{Pipe, failure};
use crate::admin::volume::VolumeInfo;
use crate::admin::{Caller, Concerns, Failure, Request};
use crate::shard::Shard;
use crate::state::receiving::Ending;
use crate::stream::{Broken, Sender, Streamed};
use leeward_env::wait_readable;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::time::Duration;

/// Receives a snapshot from a stream into a copy, with progress. The copy shows it when it is whole
/// and proven.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapReceive {
    /// The copy.
    pub volume: String,
    /// Where from.
    pub pipe: Pipe,
    /// Whether a stream ends that the copy receives already: its sender may be dead, and nobody has
    /// heard of that.
    #[serde(default)]
    pub instead: bool,
    /// Who sends it.
    #[serde(default)]
    pub sender: Sender,
}

impl Request for SnapReceive {
    type Reply = Streamed;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Streamed, Failure> {
        let volume = shard.volume_named(&self.volume)?;
        let failed = |broken| failure(broken, &format!("volume {}", self.volume));
        let pipe = self.pipe.open(false).map_err(|e| failed(Broken::Pipe(e)))?;
        if self.instead {
            shard.end_streams(Some(volume), Ending::Instead, || false);
        }
        let pipe = Watched { pipe, shard, volume };
        let from = (&self.sender, &mut BufReader::new(pipe) as &mut dyn Read);
        shard.receive_stream(volume, from, caller.progress).map_err(failed)
    }
}

/// So often it is looked whether the stream is to end while nothing comes.
const LOOK: Duration = Duration::from_millis(200);

/// A pipe that may be silent for ever: then the cell must still be able to end, and the copy to be
/// promoted.
struct Watched<'a> {
    pipe: File,
    shard: &'a Shard,
    volume: u32,
}

impl Read for Watched<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.shard.stream_ending(self.volume) != Ending::No {
                return Err(io::Error::other("the copy is promoted or the cell ends"));
            }
            if wait_readable(&self.pipe, LOOK)? {
                return self.pipe.read(into);
            }
        }
    }
}

/// Makes a copy a volume like others, as the snapshot that it shows, with progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumePromote {
    /// The copy.
    pub name: String,
    /// The volume that it is a copy of has become a copy itself, which shows this snapshot: refused
    /// where this copy shows another. `None`: nothing is known of that volume.
    #[serde(default)]
    pub handed_over: Option<String>,
}

impl Request for VolumePromote {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let volume = shard.volume_named(&self.name)?;
        let promoted = shard.promote(volume, self.handed_over.as_deref(), caller.progress);
        promoted.map_err(|e| failure(e, &format!("volume {}", self.name)))?;
        shard.settle()?;
        shard.volume_info(volume)
    }
}

/// Makes a volume a copy, which shows a snapshot of all that it is now, and can receive streams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeDemote {
    /// The volume.
    pub name: String,
    /// The name of the snapshot.
    pub snapshot: String,
}

impl Request for VolumeDemote {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let volume = shard.volume_named(&self.name)?;
        let demoted = shard.demote(volume, self.snapshot.as_bytes());
        demoted.map_err(|e| failure(e, &format!("volume {}, snapshot {}", self.name, self.snapshot)))?;
        shard.settle()?;
        shard.volume_info(volume)
    }
}
