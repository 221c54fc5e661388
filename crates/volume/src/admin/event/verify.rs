//! Verifies event logs: that nothing was changed in them, left out or put in.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, Progress, Reply, Request};
use crate::format::each;
use crate::format::events::{Chain, LogHead};
use crate::format::keys::{self, CELL_LOG, Table};
use crate::shard::Shard;
use leeward_env::hex;
use leeward_fs::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a log stands, to be kept elsewhere: who changes what was before it cannot make it fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogMark {
    /// Name of the volume; `None`: what operators asked.
    pub volume: Option<String>,
    /// The number of the next event.
    pub next: u64,
    /// SHA-256 of the block before it, in hexadecimal digits.
    pub digest: String,
}

/// Verifies all event logs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventVerify {
    /// Marks of before that must be found again.
    pub against: Vec<LogMark>,
}

/// A log as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogVerified {
    /// Where it stands.
    pub mark: LogMark,
    /// The number of the first event that is kept.
    pub first: u64,
    /// Bytes.
    pub bytes: u64,
    /// What is wrong with it.
    pub wrong: Option<String>,
    /// The mark of before, if it is older than what is kept.
    pub too_old: Option<u64>,
}

/// All logs as they were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsVerified {
    /// By number of volume; that of the cell last.
    pub logs: Vec<LogVerified>,
    /// Marks of before whose volumes are not there any more.
    pub missing: Vec<LogMark>,
}

impl Reply for LogsVerified {
    const KIND: &'static str = "logs-verified";
}

impl Request for EventVerify {
    type Reply = LogsVerified;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut LogsVerified, mut other: LogsVerified) {
        all.logs.append(&mut other.logs);
        all.missing.retain(|mark| other.missing.contains(mark));
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<LogsVerified, Failure> {
        shard.settle()?;
        let moment = shard.with_commits_paused(|| shard.kv.moment());
        let mut heads = BTreeMap::new();
        let read = each(&*moment, keys::table_range(Table::LogHead), |key, value| {
            heads.insert(keys::table_id(key) as u32, LogHead::decode(value)?);
            Ok(())
        });
        read.map_err(about("event logs"))?;
        let names = shard.log_names();
        let mut logs = Vec::new();
        let total = names.len() as u64;
        for (done, (volume, name)) in names.iter().enumerate() {
            (caller.progress)(Progress { phase: "event logs".into(), done: done as u64, total });
            let head = heads.get(volume).copied().unwrap_or_default();
            let before = self.against.iter().find(|mark| mark.volume == *name);
            let mut chain = Chain::new(*volume, head);
            // what was honest ended where a block ends
            let mut is_found = head.first == head.next && before.is_some_and(|mark| is_of(mark, &head));
            let followed = each(&*moment, keys::events_range(*volume, 0), |key, record| {
                let (first, _) = chain.reached();
                let block = chain.block(key, record).map_err(Error::Corrupt)?;
                let (next, digest) = chain.reached();
                for (number, digest) in [(first, Some(block.before)), (next, digest)] {
                    let mark = before.filter(|mark| mark.next == number);
                    is_found |=
                        mark.zip(digest).is_some_and(|(mark, digest)| mark.digest == hex::encode(&digest));
                }
                Ok(())
            });
            let mut wrong = match followed {
                Ok(()) => chain.end().err(),
                Err(Error::Corrupt(what)) => Some(what),
                Err(e) => return Err(about("event logs")(e)),
            };
            if let Some(mark) = before.filter(|mark| mark.next > head.next) {
                wrong.get_or_insert_with(|| {
                    format!("it ends before event {}: {} were there", head.next, mark.next)
                });
            }
            let is_kept = |mark: &&LogMark| (head.first..=head.next).contains(&mark.next);
            if let Some(mark) = before.filter(is_kept).filter(|_| !is_found) {
                wrong.get_or_insert_with(|| differs(mark));
            }
            let mark = LogMark { volume: name.clone(), next: head.next, digest: hex::encode(&head.digest) };
            let too_old = before.map(|mark| mark.next).filter(|next| *next < head.first);
            logs.push(LogVerified { mark, first: head.first, bytes: head.bytes, wrong, too_old });
        }
        let is_missing = |mark: &&LogMark| !names.values().any(|name| *name == mark.volume);
        Ok(LogsVerified { logs, missing: self.against.iter().filter(is_missing).cloned().collect() })
    }
}

fn is_of(mark: &LogMark, head: &LogHead) -> bool {
    mark.next == head.next && mark.digest == hex::encode(&head.digest)
}

fn differs(mark: &LogMark) -> String {
    format!("what was before event {} is not what it was when the mark was made", mark.next)
}

impl Shard {
    /// All logs: names of volumes by number; `None`: the cell's own.
    pub(super) fn log_names(&self) -> BTreeMap<u32, Option<String>> {
        let st = self.lock();
        let live = st.volumes.iter().filter(|(_, v)| !v.removing);
        let of_cell = (self.which.index == 0).then_some((CELL_LOG, None));
        live.map(|(id, v)| (*id, Some(v.name.clone()))).chain(of_cell).collect()
    }
}
