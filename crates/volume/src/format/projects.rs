//! How projects are stored, and how many there may be.

use crate::format::accounts::{Reader, VERSION};
use crate::format::inode::Pair;
use crate::format::stored::Stored;
use leeward_data::PoolId;
use leeward_fs::{NodeId, Result};
use leeward_meta::Value;

/// Projects of a cell.
pub const PROJECTS_MAX: usize = 100_000;
/// Projects in one another.
pub const DEPTH_MAX: usize = 8;

const COUNTS_SNAPSHOTS: u8 = 1;

/// A part of the cell that a group looks after: a budget, and a place for volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRecord {
    /// Name, unique in the cell.
    pub name: String,
    /// The group that looks after it, by number.
    pub owner: u32,
    /// The directory below which its volumes are attached.
    pub place: NodeId,
    /// The project that it is in; 0: none.
    pub parent: u32,
    /// Most bytes and inodes of all its volumes; 0: no limit.
    pub limit: Pair,
    /// Most volumes; 0: no limit.
    pub volumes_max: u32,
    /// The pool for new volumes.
    pub pool: PoolId,
    /// Whether its bytes count what only snapshots hold.
    pub counts_snapshots: bool,
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
}

impl Stored for ProjectRecord {
    /// The encoding: version, flags (1: counts snapshots), owner u32, place u64, parent u32, bytes
    /// u64, inodes u64, volumes u32, pool u32, created i64, name to the end.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, u8::from(self.counts_snapshots) * COUNTS_SNAPSHOTS];
        out.extend_from_slice(&self.owner.to_be_bytes());
        out.extend_from_slice(&self.place.0.to_be_bytes());
        out.extend_from_slice(&self.parent.to_be_bytes());
        out.extend_from_slice(&self.limit.0.to_be_bytes());
        out.extend_from_slice(&self.limit.1.to_be_bytes());
        out.extend_from_slice(&self.volumes_max.to_be_bytes());
        out.extend_from_slice(&self.pool.to_be_bytes());
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        out.extend_from_slice(self.name.as_bytes());
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<ProjectRecord> {
        let mut from = Reader { bytes, what: "project" };
        let flags = from.versioned()?;
        let (owner, place, parent) = (from.u32()?, NodeId(from.u64()?), from.u32()?);
        let limit = Pair(from.u64()?, from.u64()?);
        let (volumes_max, pool, created_secs) = (from.u32()?, from.u32()?, from.i64()?);
        let name = from.text(from.bytes.len())?;
        let counts_snapshots = flags & COUNTS_SNAPSHOTS != 0;
        Ok(ProjectRecord {
            name,
            owner,
            place,
            parent,
            limit,
            volumes_max,
            pool,
            counts_snapshots,
            created_secs,
        })
    }
}

/// The project that a volume is in; or the number of the next project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectNumber(pub u32);

impl Stored for ProjectNumber {
    /// The encoding: version, 0, number u32.
    fn encode(&self) -> Value {
        [&[VERSION, 0], &self.0.to_be_bytes()[..]].concat().into()
    }

    fn decode(bytes: &[u8]) -> Result<ProjectNumber> {
        let mut from = Reader { bytes, what: "number of a project" };
        from.versioned()?;
        let number = from.u32()?;
        from.end()?;
        Ok(ProjectNumber(number))
    }
}
