//! Sessions of clients, and what came of their changes, as they are stored (docs/FORMAT.md).

use crate::format::stored::Stored;
use leeward_env::Told;
use leeward_fs::sessions::{Outcome, SessionRecord};
use leeward_fs::{Error, Result};
use leeward_meta::Value;

const VERSION: u8 = 1;
const AWAY: u8 = 1;
const EXPELLED: u8 = 2;

impl Stored for SessionRecord {
    /// The encoding: version, flags (1: away, 2: expelled), number u64, secret (16 bytes), key (32
    /// bytes).
    fn encode(&self) -> Value {
        let flags = (u8::from(self.away) * AWAY) | (u8::from(self.expelled) * EXPELLED);
        let mut out = vec![VERSION, flags];
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.secret);
        out.extend_from_slice(&self.key);
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<SessionRecord> {
        let parsed = (|| {
            let ([version, flags], rest) = bytes.split_first_chunk()?;
            let (number, rest) = rest.split_first_chunk()?;
            let (secret, rest) = rest.split_first_chunk()?;
            let key = rest.try_into().ok()?;
            let number = u64::from_be_bytes(*number);
            let (away, expelled) = (flags & AWAY != 0, flags & EXPELLED != 0);
            let record = SessionRecord { number, secret: *secret, key, away, expelled };
            (*version == VERSION && *flags <= AWAY | EXPELLED).then_some(record)
        })();
        parsed.ok_or_else(|| Error::Corrupt("a session".into()))
    }
}

impl Stored for Outcome {
    /// The encoding: version, call u32, LSN u64, time u64, inode u64, number u64.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.call.to_be_bytes());
        let Told { lsn, at, node, number } = self.told;
        [lsn, at, node, number].iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<Outcome> {
        let parsed = (|| {
            let ([version], rest) = bytes.split_first_chunk()?;
            let (call, rest) = rest.split_first_chunk()?;
            let (numbers, rest) = rest.as_chunks::<8>();
            let [lsn, at, node, number] = numbers else { return None };
            let [lsn, at, node, number] = [lsn, at, node, number].map(|n| u64::from_be_bytes(*n));
            let outcome = Outcome { call: u32::from_be_bytes(*call), told: Told { lsn, at, node, number } };
            (*version == VERSION && rest.is_empty()).then_some(outcome)
        })();
        parsed.ok_or_else(|| Error::Corrupt("what came of a call".into()))
    }
}
