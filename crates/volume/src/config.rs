//! What can be set in a cell's `leeward.toml`. Every key has a default that is right for most.

use serde::{Deserialize, Serialize};

/// Compression of file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// LZ4 where it pays.
    #[default]
    Lz4,
    /// None.
    None,
}

/// How the jobs of a user are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jobs {
    /// Not at all.
    #[default]
    None,
    /// By the cgroup of the process that asks: a job of a batch system, a container, a session.
    Cgroup,
}

/// The settings of a cell. Units are in the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// How file data is compressed.
    pub compression: Compression,
    /// Memory for data on its way to the store. 16 to 65536.
    pub dirty_mib: u32,
    /// Memory for cached file data. 1 to 65536.
    pub cache_mib: u32,
    /// Memory for cached metadata. 8 to 65536.
    pub metadata_cache_mib: u32,
    /// Longest time between a write and its commit without fsync. 10 to 60000.
    pub commit_interval_ms: u32,
    /// Whether the gate shares the cell fairly between users. Without it requests are served as they come.
    pub fair: bool,
    /// A directory on a disk of this machine for a cache of file data of pools on object stores. Empty: none.
    pub disk_cache: String,
    /// Its size. 16 to 16777216.
    pub disk_cache_mib: u32,
    /// How the jobs of a user are told apart: they share equally what he gets, and `lee top` shows them.
    pub jobs: Jobs,
    /// Where Prometheus finds metrics: ports of this machine only, or addresses with a port. None: nowhere.
    pub metrics: Vec<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            compression: Compression::Lz4,
            dirty_mib: 96,
            cache_mib: 64,
            metadata_cache_mib: 96,
            commit_interval_ms: 500,
            fair: true,
            disk_cache: String::new(),
            disk_cache_mib: 10_240,
            jobs: Jobs::None,
            metrics: Vec::new(),
        }
    }
}

impl Config {
    /// Checks ranges; the error names the key, the value and the range.
    pub fn check(&self) -> Result<(), String> {
        let ranges = [
            ("dirty-mib", self.dirty_mib, 16, 65536),
            ("cache-mib", self.cache_mib, 1, 65536),
            ("metadata-cache-mib", self.metadata_cache_mib, 8, 65536),
            ("disk-cache-mib", self.disk_cache_mib, 16, 16_777_216),
            ("commit-interval-ms", self.commit_interval_ms, 10, 60000),
        ];
        for (key, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(format!("{key} = {value} is out of range: {low} to {high}"));
            }
        }
        Ok(())
    }
}
