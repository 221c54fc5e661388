//! What went through doors, day by day, by door and address family. The processes with doors note
//! it once a minute, and when they end.

use super::{Day, end_of};
use crate::admin::failure::about;
use crate::admin::{Caller, Done, Failure, Reply, Request};
use crate::format::keys::{self, Table};
use crate::format::stored::Stored;
use crate::format::transfers::TransferRecord;
use crate::shard::Shard;
use crate::space::samples::MONTHLY_DAYS;
use leeward_env::Ctx;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Records of days that are kept no longer, and that one note removes.
const TRIM_RECORDS: usize = 1024;

/// A door that counts what goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferDoor {
    /// S3.
    S3,
    /// HTTP and WebDAV.
    Http,
    /// Mounts of other machines.
    Mount,
}

impl TransferDoor {
    const ALL: [TransferDoor; 3] = [TransferDoor::S3, TransferDoor::Http, TransferDoor::Mount];

    /// Its number in keys.
    fn number(self) -> u8 {
        self as u8 + 1
    }

    /// For a person.
    pub fn name(self) -> &'static str {
        match self {
            TransferDoor::S3 => "s3",
            TransferDoor::Http => "http",
            TransferDoor::Mount => "mount",
        }
    }
}

/// What went through a door in one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transferred {
    /// The door.
    pub door: TransferDoor,
    /// Whether over IPv6; else IPv4.
    pub ipv6: bool,
    /// Requests that have ended.
    pub requests: u64,
    /// Bytes of bodies from clients; of mounts what was written.
    pub received_bytes: u64,
    /// Bytes of bodies to clients; of mounts what was read.
    pub sent_bytes: u64,
}

/// Adds to what went through doors today.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransferNote {
    /// What is new.
    pub transfers: Vec<Transferred>,
}

impl Request for TransferNote {
    type Reply = Done;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        let today = shard.today();
        let noted = shard.transact(&Ctx::system(), |tx| {
            for of in &self.transfers {
                let key = keys::transfers(today, of.door.number(), of.ipv6);
                let before = tx.get(&key)?.map(|record| TransferRecord::decode(&record)).transpose()?;
                let by = TransferRecord {
                    requests: of.requests,
                    received: of.received_bytes,
                    sent: of.sent_bytes,
                };
                tx.put(key, before.unwrap_or_default().plus(by).encode());
            }
            // a clock that has just jumped says nothing of what is old
            if tx.st.sampling.is_steady(today) {
                let until = keys::transfers(today.saturating_sub(MONTHLY_DAYS), 0, false);
                for (key, _) in tx.scan(&keys::transfers(0, 0, false), &until, TRIM_RECORDS, false)? {
                    tx.remove(key);
                }
            }
            Ok(())
        });
        noted.map_err(about("what went through doors"))?;
        Ok(Done {})
    }
}

/// Tells what went through doors in a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransferReport {
    /// From the beginning of this day on.
    pub from: Day,
    /// Up to the beginning of this day; `None`: until now.
    pub to: Option<Day>,
}

/// What went through a door on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferredOnDay {
    /// The day.
    pub day: Day,
    /// What.
    #[serde(flatten)]
    pub transferred: Transferred,
}

/// What went through doors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransfersReported {
    /// The first day.
    pub from: Day,
    /// The day at whose beginning it ends; the day after today: until now.
    pub to: Day,
    /// The first day of which anything is kept; `None`: nothing is.
    pub kept_from: Option<Day>,
    /// In all that time, by door and family.
    pub rows: Vec<Transferred>,
    /// Day by day; a day without requests is missing.
    pub days: Vec<TransferredOnDay>,
}

impl Reply for TransfersReported {
    const KIND: &'static str = "transfers-report";
}

impl Request for TransferReport {
    type Reply = TransfersReported;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<TransfersReported, Failure> {
        let to = end_of(shard, self.from, self.to)?;
        let told = |e| about("what went through doors")(e);
        let all = keys::table_range(Table::Transfers);
        let first = shard.scan(&all.0, &all.1, 1).map_err(told)?.0;
        let kept_from = first.first().map(|(key, _)| Day(keys::table_id(key) as u32));
        let mut next = Some(keys::transfers(self.from.0, 0, false));
        let (end, mut days, mut sums) = (keys::transfers(to.0, 0, false), Vec::new(), BTreeMap::new());
        while let Some(from) = next {
            let (page, rest) = shard.scan(&from, &end, TRIM_RECORDS).map_err(told)?;
            for (key, record) in page {
                let Some(of) = transferred(&key, &record) else { continue };
                let sum: &mut Transferred = sums.entry((of.door, of.ipv6)).or_insert(Transferred {
                    requests: 0,
                    received_bytes: 0,
                    sent_bytes: 0,
                    ..of
                });
                sum.requests += of.requests;
                sum.received_bytes += of.received_bytes;
                sum.sent_bytes += of.sent_bytes;
                days.push(TransferredOnDay { day: Day(keys::table_id(&key) as u32), transferred: of });
            }
            next = rest;
        }
        Ok(TransfersReported { from: self.from, to, kept_from, rows: sums.into_values().collect(), days })
    }
}

/// A record, as far as this version knows its door.
fn transferred(key: &[u8], record: &[u8]) -> Option<Transferred> {
    let (door, ipv6) = keys::parse_transfers(key)?;
    let door = TransferDoor::ALL.into_iter().find(|known| known.number() == door)?;
    let TransferRecord { requests, received, sent } = TransferRecord::decode(record).ok()?;
    Some(Transferred { door, ipv6, requests, received_bytes: received, sent_bytes: sent })
}
