//! Checks of hosts: each has a key of its own, and the cell has a key pair that they know it by.

use super::Census;
use crate::format::each;
use crate::format::keys::{self, Table};
use crate::format::stored::Stored;
use leeward_fs::Result;
use leeward_fs::accounts::{HostRecord, Identity};
use leeward_meta::Moment;
use std::collections::BTreeMap;

impl Census {
    pub(super) fn hosts(&mut self, moment: &dyn Moment) -> Result<()> {
        let mut names = BTreeMap::new();
        let (mut hosts, mut key_pairs) = (0u64, 0u64);
        each(moment, keys::table_range(Table::Host), |key, value| {
            hosts += 1;
            let name = keys::parse_named(key).unwrap_or_default().to_string();
            let found = HostRecord::decode(value).map(|host| host.key);
            match found.map(|key| key.and_then(|key| names.insert(key, name.clone()))) {
                Ok(None) => {}
                Ok(Some(other)) => self.say("host", None, format!("hosts {other} and {name} have one key")),
                Err(e) => self.say("damaged-record", None, format!("host {name}: {e}")),
            }
            Ok(())
        })?;
        each(moment, keys::table_range(Table::Identity), |_, value| {
            key_pairs += 1;
            if let Err(e) = Identity::decode(value) {
                self.say("damaged-record", None, e.to_string());
            }
            Ok(())
        })?;
        if hosts > 0 && key_pairs == 0 {
            self.say("host", None, format!("{hosts} hosts, and no key pair that they know the cell by"));
        }
        Ok(())
    }
}
