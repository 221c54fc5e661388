//! Settings with which a cell is made or opened. Every setting has a default that suits most sites.

use leeward_env::limits::STORE_TRANSFERS_MAX;
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

/// Settings of a cell. Units are in the names. The caller checks the ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Whether transfers of users take turns at stores, and background work rests while users make
    /// requests.
    pub fair: bool,
    /// Most transfers to or from one store (a directory, a bucket) at a time. 1 to 1024. Only with
    /// `fair`.
    pub store_transfers: u32,
    /// A directory on a disk of this machine for a cache of file data of pools on object stores.
    /// Empty: none.
    pub disk_cache: String,
    /// Its size. 16 to 16777216.
    pub disk_cache_mib: u32,
    /// An upload in parts to which nothing is added is kept this long, days. 1 to 3650.
    pub upload_rest_days: u32,
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
            store_transfers: STORE_TRANSFERS_MAX as u32,
            disk_cache: String::new(),
            disk_cache_mib: 10_240,
            upload_rest_days: 7,
        }
    }
}
