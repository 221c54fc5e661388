//! Checks of usage samples, and of what went through doors: each is one that some version wrote.

use super::Census;
use crate::format::each;
use crate::format::keys::{self, Table};
use crate::format::samples::{Chunk, SampleRecord, SampledNames};
use crate::format::stored::Stored;
use crate::format::transfers::TransferRecord;
use leeward_fs::Result;
use leeward_meta::Moment;

impl Census {
    pub(super) fn samples(&mut self, moment: &dyn Moment) -> Result<()> {
        each(moment, keys::table_range(Table::Samples), |key, record| {
            let id = keys::table_id(key);
            let read = match keys::parse_sampled_day(key) {
                Some(_) => SampleRecord::decode(record).map(drop),
                None => SampledNames::decode(record).map(drop),
            };
            if let Err(e) = read {
                self.say("damaged-record", None, e.to_string());
            }
            if Chunk::of_id(id).is_none() {
                self.say("damaged-record", None, format!("usage samples of a kind that is none: {id:x}"));
            }
            Ok(())
        })?;
        each(moment, keys::table_range(Table::Transfers), |_, record| {
            if let Err(e) = TransferRecord::decode(record) {
                self.say("damaged-record", None, e.to_string());
            }
            Ok(())
        })
    }
}
