//! Checks of event logs: each block goes with the one before and the last with the head, and where
//! directories were is known for exactly the events that moved or removed one.

use super::Census;
use crate::format::each;
use crate::format::events::{Chain, LogHead};
use crate::format::keys::{self, CELL_LOG, Table};
use leeward_fs::{Error, Result};
use leeward_meta::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

impl Census {
    pub(super) fn events(&mut self, moment: &dyn Moment, volumes: &[u32]) -> Result<()> {
        let is_there: BTreeSet<u32> = volumes.iter().copied().chain([CELL_LOG]).collect();
        let mut heads = BTreeMap::new();
        each(moment, keys::table_range(Table::LogHead), |key, value| {
            match LogHead::decode(value) {
                Ok(head) => drop(heads.insert(keys::table_id(key) as u32, head)),
                Err(e) => self.say("damaged-record", None, e.to_string()),
            }
            Ok(())
        })?;
        for volume in is_there {
            let mut moved = Places::default();
            let mut chain = Chain::new(volume, heads.remove(&volume).unwrap_or_default());
            let followed = each(moment, keys::events_range(volume, 0), |key, record| {
                let (first, _) = chain.reached();
                let block = chain.block(key, record).map_err(Error::Corrupt)?;
                for (n, event) in (first..).zip(&block.events) {
                    for (dir, at) in event.moved(volume) {
                        moved.add(&keys::was_at(dir, n), &at.encode());
                    }
                }
                Ok(())
            });
            let whole = match followed {
                Err(Error::Corrupt(what)) => Err(what),
                other => other.map(|()| chain.end())?,
            };
            if let Err(what) = whole {
                self.say("events", None, format!("the event log of volume {volume}: {what}"));
            } else if volume != CELL_LOG {
                self.places(moment, volume, &moved)?;
            }
        }
        Ok(())
    }

    fn places(&mut self, moment: &dyn Moment, volume: u32, moved: &Places) -> Result<()> {
        let [_, _, was_at] = keys::log_ranges(volume);
        let mut stored = Places::default();
        each(moment, was_at, |key, value| {
            stored.add(key, value);
            Ok(())
        })?;
        if stored != *moved {
            let detail = format!(
                "where {} directories of volume {volume} were is stored, and its events moved {}, or others",
                stored.count, moved.count
            );
            self.say("events", None, detail);
        }
        Ok(())
    }
}

/// Records in any order: how many, and the sum of their hashes. A log may have more than fit in
/// memory.
#[derive(Default, PartialEq, Eq)]
struct Places {
    count: u64,
    sum: u64,
}

impl Places {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut hash = DefaultHasher::new();
        (key, value).hash(&mut hash);
        self.count += 1;
        self.sum = self.sum.wrapping_add(hash.finish());
    }
}
