//! What went through doors on a day, by door and address family.

use crate::format::accounts::{Reader, VERSION};
use crate::format::stored::Stored;
use leeward_fs::Result;
use leeward_meta::Value;

/// Requests of a day, and the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferRecord {
    /// Requests that have ended.
    pub requests: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
}

impl TransferRecord {
    /// Both together.
    pub fn plus(self, by: TransferRecord) -> TransferRecord {
        TransferRecord {
            requests: self.requests.saturating_add(by.requests),
            received: self.received.saturating_add(by.received),
            sent: self.sent.saturating_add(by.sent),
        }
    }
}

impl Stored for TransferRecord {
    /// The encoding: version, 0, requests u64, bytes received u64, bytes sent u64.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, 0];
        [self.requests, self.received, self.sent]
            .iter()
            .for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<TransferRecord> {
        let mut from = Reader { bytes, what: "transfers of a day" };
        from.versioned()?;
        let record = TransferRecord { requests: from.u64()?, received: from.u64()?, sent: from.u64()? };
        from.end()?;
        Ok(record)
    }
}
