//! The stored form of scrubbing: how often, the result of the last one, and the position of a
//! running one.

use crate::admin::{ScrubInfo, ScrubPass};
use leeward_data::PoolId;
use leeward_fs::{Error, Result};
use leeward_meta::Value;
use leeward_pool::ObjectId;

/// In place of a pool's number: the setting for pools without one of their own, also for those made
/// later.
pub const ALL: PoolId = PoolId::MAX;

const VERSION: u8 = 1;

const RECORD_BYTES: usize = 70;

const HAS_EVERY: u8 = 1;

const HAS_LAST: u8 = 2;

/// How often a pool is to be scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    /// Seconds, a multiple of 60; 0: never.
    pub secs: u32,
    /// When that was set, seconds since 1970.
    pub since_secs: i64,
}

/// The stored state of scrubbing a pool; of [`ALL`] only how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// How often, if it was set.
    pub every: Option<Every>,
    /// The last whole scrub.
    pub last: Option<ScrubPass>,
}

impl ScrubRecord {
    /// The encoding: version, flags (1: `every` is set, 2: there was a whole scrub), interval u32,
    /// since i64; begun and ended i64, bytes, bad pieces, objects repaired, degraded, lost u64.
    /// Missing parts are zeros.
    pub fn encode(&self) -> Value {
        let flag = |there: bool, flag: u8| if there { flag } else { 0 };
        let every = self.every.unwrap_or(Every { secs: 0, since_secs: 0 });
        let last = self.last.clone().unwrap_or_default();
        let mut out =
            vec![VERSION, flag(self.every.is_some(), HAS_EVERY) | flag(self.last.is_some(), HAS_LAST)];
        out.extend_from_slice(&every.secs.to_be_bytes());
        [every.since_secs, last.begun_secs, last.ended_secs]
            .iter()
            .for_each(|secs| out.extend_from_slice(&secs.to_be_bytes()));
        let ScrubInfo { bytes, bad_pieces, repaired_objects, degraded_objects, lost_objects, .. } =
            last.found;
        [bytes, bad_pieces, repaired_objects, degraded_objects, lost_objects]
            .iter()
            .for_each(|count| out.extend_from_slice(&count.to_be_bytes()));
        out.into()
    }

    /// Reads the encoding. The name of the pool is not in it.
    pub fn decode(bytes: &[u8]) -> Result<ScrubRecord> {
        let damaged = || Error::Corrupt(format!("scrub record of {} bytes cannot be read", bytes.len()));
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().map_err(|_| damaged())?;
        if bytes[0] != VERSION {
            return Err(damaged());
        }
        let number = |n: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[6 + 8 * n..14 + 8 * n]);
            u64::from_be_bytes(number)
        };
        let every = Every {
            secs: u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]),
            since_secs: number(0) as i64,
        };
        let found = ScrubInfo {
            pool: String::new(),
            bytes: number(3),
            bad_pieces: number(4),
            repaired_objects: number(5),
            degraded_objects: number(6),
            lost_objects: number(7),
        };
        let last = ScrubPass { begun_secs: number(1) as i64, ended_secs: number(2) as i64, found };
        let has = |flag: u8| bytes[1] & flag != 0;
        Ok(ScrubRecord { every: has(HAS_EVERY).then_some(every), last: has(HAS_LAST).then_some(last) })
    }
}

const PLACE_VERSION: u8 = 1;

const PLACE_BYTES: usize = 49;

/// The position of an unfinished scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Time when it began, seconds since 1970.
    pub begun_secs: i64,
    /// The pool whose pieces were being read, of a tier one of the two; `u32::MAX`: segments.
    pub stage: PoolId,
    /// The object up to which all were read and good.
    pub after: ObjectId,
    /// Bytes read by then.
    pub bytes: u64,
    /// Bad pieces found by then.
    pub bad_pieces: u64,
    /// Objects repaired by then.
    pub repaired_objects: u64,
}

impl Reached {
    /// The encoding: version, stage u32, generation u32; segment u64, begun i64, bytes, bad pieces,
    /// objects repaired u64.
    pub fn encode(&self) -> Value {
        let mut out = vec![PLACE_VERSION];
        out.extend_from_slice(&self.stage.to_be_bytes());
        out.extend_from_slice(&self.after.generation.to_be_bytes());
        [self.after.segment, self.begun_secs as u64, self.bytes, self.bad_pieces, self.repaired_objects]
            .iter()
            .for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<Reached> {
        let damaged =
            || Error::Corrupt(format!("the place of a scrub, {} bytes, cannot be read", bytes.len()));
        let bytes: &[u8; PLACE_BYTES] = bytes.try_into().map_err(|_| damaged())?;
        if bytes[0] != PLACE_VERSION {
            return Err(damaged());
        }
        let short = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |n: usize| u64::from(short(9 + 8 * n)) << 32 | u64::from(short(13 + 8 * n));
        Ok(Reached {
            begun_secs: long(1) as i64,
            stage: short(1),
            after: ObjectId { segment: long(0), generation: short(5) },
            bytes: long(2),
            bad_pieces: long(3),
            repaired_objects: long(4),
        })
    }
}
