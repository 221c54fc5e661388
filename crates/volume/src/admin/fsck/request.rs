//! The request for a check, and its report.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};

/// Checks every invariant and every checksum, with progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fsck;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckReport {
    /// Volumes checked.
    pub volumes: u64,
    /// Inodes checked.
    pub inodes: u64,
    /// Names checked.
    pub dentries: u64,
    /// Segments checked. Each was read in full.
    pub segments: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Broken invariants. Empty: the cell is clean.
    pub findings: Vec<Finding>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The broken invariant, such as `nlink`, `damaged-data`, `orphan`, `live-bytes`.
    pub kind: String,
    /// The path that it concerns, where there is one.
    pub path: Option<String>,
    /// What was found, and what was expected.
    pub detail: String,
}

impl Reply for FsckReport {
    const KIND: &'static str = "fsck";
}

impl Request for Fsck {
    type Reply = FsckReport;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut FsckReport, mut other: FsckReport) {
        all.volumes += other.volumes;
        all.inodes += other.inodes;
        all.dentries += other.dentries;
        all.segments += other.segments;
        all.bytes += other.bytes;
        all.findings.append(&mut other.findings);
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<FsckReport, Failure> {
        shard.fsck(caller.progress).map_err(about("fsck"))
    }
}
