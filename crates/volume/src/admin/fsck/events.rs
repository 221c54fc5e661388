//! Checks of event logs: each block goes with the one before and the last with the head, and where
//! directories were is known for exactly the events that moved or removed one.

use super::Census;
use crate::format::each;
use crate::format::events::{Chain, LogHead, Named};
use crate::format::keys::{self, CELL_LOG, Key, Table};
use leeward_fs::{Error, Result};
use leeward_meta::Moment;
use std::collections::{BTreeMap, BTreeSet};

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
            let mut moved = BTreeMap::new();
            let mut chain = Chain::new(volume, heads.remove(&volume).unwrap_or_default());
            let followed = each(moment, keys::events_range(volume, 0), |key, record| {
                let (first, _) = chain.reached();
                let block = chain.block(key, record).map_err(Error::Corrupt)?;
                let numbered = (first..).zip(&block.events);
                moved.extend(numbered.flat_map(|(n, event)| {
                    event.moved(volume).map(move |(dir, at)| (keys::was_at(dir, n), at.clone()))
                }));
                Ok(())
            });
            let whole = match followed {
                Err(Error::Corrupt(what)) => Err(what),
                other => other.map(|()| chain.end())?,
            };
            if let Err(what) = whole {
                self.say("events", None, format!("the event log of volume {volume}: {what}"));
            } else if volume != CELL_LOG {
                self.places(moment, volume, moved)?;
            }
        }
        Ok(())
    }

    fn places(&mut self, moment: &dyn Moment, volume: u32, mut moved: BTreeMap<Key, Named>) -> Result<()> {
        let [_, _, was_at] = keys::log_ranges(volume);
        each(moment, was_at, |key, value| {
            let said = moved.remove(key);
            if said.is_none() || said != Named::decode(value).ok() {
                let detail = format!("where a directory of volume {volume} was is not what its event says");
                self.say("events", None, detail);
            }
            Ok(())
        })?;
        if !moved.is_empty() {
            let detail = format!("where {} directories of volume {volume} were is not known", moved.len());
            self.say("events", None, detail);
        }
        Ok(())
    }
}
