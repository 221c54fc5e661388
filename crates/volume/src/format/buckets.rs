//! Buckets: names under which directories are published at the S3 door. A new volume gets one of
//! its name.
//!
//! A bucket is a record and nothing else: making or removing one changes no file. It names a path,
//! not an inode: whatever is at the path counts, and the files' modes and ACLs say who may do what
//! there.

use leeward_fs::{Error, Result};
use leeward_meta::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest path of a bucket, bytes.
pub const PATH_BYTES_MAX: usize = 4095;
/// Longest rules for browsers, bytes.
pub const CORS_BYTES_MAX: usize = 64 << 10;
/// Most buckets of a cell.
pub const BUCKETS_MAX: usize = 100_000;

const VERSION: u8 = 1;
const FLAG_PUBLIC: u8 = 1;

/// The directory that is published under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRecord {
    /// The directory, from the cell's root, with `/` at the beginning.
    pub path: String,
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
    /// Whether anybody may read, as user `nobody`.
    pub public: bool,
    /// Rules for browsers as JSON; empty: none.
    pub cors: String,
}

/// Buckets by name.
pub type Buckets = BTreeMap<String, Arc<BucketRecord>>;

impl BucketRecord {
    /// The encoding: version, flags, created i64, length of the path u16, path, rules.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION, u8::from(self.public) * FLAG_PUBLIC];
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        out.extend_from_slice(&(self.path.len() as u16).to_be_bytes());
        out.extend_from_slice(self.path.as_bytes());
        out.extend_from_slice(self.cors.as_bytes());
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<BucketRecord> {
        let parsed = || {
            let (head, rest) = bytes.split_first_chunk::<12>()?;
            let created_secs = i64::from_be_bytes(head[2..10].try_into().ok()?);
            let path_bytes = usize::from(u16::from_be_bytes([head[10], head[11]]));
            let (path, cors) = (rest.get(..path_bytes)?, rest.get(path_bytes..)?);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
            let public = head[1] & FLAG_PUBLIC != 0;
            let record = BucketRecord { path: text(path)?, created_secs, public, cors: text(cors)? };
            (head[0] == VERSION).then_some(record)
        };
        parsed()
            .ok_or_else(|| Error::Corrupt(format!("bucket record of {} bytes cannot be read", bytes.len())))
    }
}
