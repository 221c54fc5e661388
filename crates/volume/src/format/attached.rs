//! How it is stored that the root of a volume of another shard has a name here.

use crate::format::accounts::{Reader, VERSION};
use crate::format::stored::Stored;
use leeward_fs::{NodeId, Result};
use leeward_meta::Value;

/// Where a volume of another shard is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedRecord {
    /// The directory.
    pub dir: NodeId,
    /// The name there.
    pub name: Box<[u8]>,
}

impl Stored for AttachedRecord {
    /// The encoding: version, 0, directory u64, name to the end.
    fn encode(&self) -> Value {
        [&[VERSION, 0], &self.dir.0.to_be_bytes()[..], &self.name].concat().into()
    }

    fn decode(bytes: &[u8]) -> Result<AttachedRecord> {
        let mut from = Reader { bytes, what: "attached volume" };
        from.versioned()?;
        Ok(AttachedRecord { dir: NodeId(from.u64()?), name: from.bytes.into() })
    }
}
