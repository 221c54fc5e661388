//! Checks of sessions: what came of calls is of sessions that there are, and no change has a number
//! that was not given out yet.

use super::Census;
use crate::format::each;
use crate::format::inode::{Inode, Pair};
use crate::format::keys::{self, Table};
use crate::format::stored::Stored;
use crate::state::sessions::COUNTER_BITS;
use leeward_fs::sessions::{Outcome, SessionRecord};
use leeward_fs::{NodeId, Result};
use leeward_meta::Moment;
use std::collections::BTreeSet;

impl Census {
    pub(super) fn sessions(&mut self, moment: &dyn Moment) -> Result<()> {
        let mut sessions = BTreeSet::new();
        each(moment, keys::table_range(Table::Session), |key, value| {
            let number = keys::table_id(key);
            sessions.insert(number);
            match SessionRecord::decode(value) {
                Ok(record) if record.number == number => {}
                Ok(_) => self.say("session", None, format!("session {number} has the record of another")),
                Err(e) => self.say("damaged-record", None, format!("session {number}: {e}")),
            }
            Ok(())
        })?;
        each(moment, keys::table_range(Table::Outcome), |key, value| {
            let number = keys::table_id(key);
            if keys::parse_outcome(key).is_none() || Outcome::decode(value).is_err() {
                self.say("damaged-record", None, format!("what came of a call of session {number}"));
            }
            if !sessions.contains(&number) {
                self.say("session", None, format!("a call of session {number}, which there is not"));
            }
            Ok(())
        })?;
        each(moment, keys::told_range(), |_, value| {
            let Pair(told, process) = Pair::decode(value)?;
            self.process = process;
            if told >> COUNTER_BITS > process {
                self.say("lsn", None, format!("a change has the number {told:#x}, in process {process}"));
            }
            Ok(())
        })
    }

    /// The number of the last change of an inode's content.
    pub(super) fn content_lsn(&mut self, node: NodeId, inode: &Inode) {
        if inode.content_lsn >> COUNTER_BITS > self.process {
            let process = self.process;
            let detail = format!("its content has the number {:#x}, in process {process}", inode.content_lsn);
            self.say("lsn", Some(node), detail);
        }
    }
}
