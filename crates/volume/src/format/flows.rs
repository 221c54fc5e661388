//! How the settings of users and groups at the gate are stored.

use crate::format::stored::Stored;
use leeward_fs::flows::FlowRecord;
use leeward_fs::{Error, Result};
use leeward_meta::Value;

const VERSION: u8 = 1;
const SAYS_WEIGHT: u8 = 1;
const SAYS_OPS: u8 = 2;
const SAYS_BYTES: u8 = 4;

impl Stored for FlowRecord {
    /// The encoding: version, which settings there are u8, weight u32, operations u64, bytes u64; 0
    /// where there is none.
    fn encode(&self) -> Value {
        let says = u8::from(self.weight.is_some()) * SAYS_WEIGHT
            + u8::from(self.ops_per_sec.is_some()) * SAYS_OPS
            + u8::from(self.bytes_per_sec.is_some()) * SAYS_BYTES;
        let mut out = vec![VERSION, says];
        out.extend_from_slice(&self.weight.unwrap_or(0).to_be_bytes());
        out.extend_from_slice(&self.ops_per_sec.unwrap_or(0).to_be_bytes());
        out.extend_from_slice(&self.bytes_per_sec.unwrap_or(0).to_be_bytes());
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<FlowRecord> {
        let damaged = || Error::Corrupt(format!("flow record of {} bytes cannot be read", bytes.len()));
        let bytes: &[u8; 22] = bytes.try_into().map_err(|_| damaged())?;
        if bytes[0] != VERSION {
            return Err(damaged());
        }
        let number =
            |at: usize, len: usize| bytes[at..at + len].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let said = |flag: u8, value: u64| (bytes[1] & flag != 0).then_some(value);
        Ok(FlowRecord {
            weight: said(SAYS_WEIGHT, number(2, 4)).map(|n| n as u32),
            ops_per_sec: said(SAYS_OPS, number(6, 8)),
            bytes_per_sec: said(SAYS_BYTES, number(14, 8)),
        })
    }
}
