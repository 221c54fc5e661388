//! Users, keys and hosts in memory: how they are read when a cell is opened.

use crate::format::each;
use crate::format::groups::{GidRanges, GroupLimit};
use crate::format::keys::{self, Key, Table};
use crate::format::stored::Stored;
use crate::state::State;
use leeward_fs::accounts::{
    AccountChange, Accounts, HostRecord, Identity, KeyRecord, SigningRecord, UserRecord,
};
use leeward_fs::groups::{GroupChange, GroupRecord};
use leeward_fs::{Error, Result};
use leeward_meta::Moment;
use std::sync::Arc;

impl State {
    /// At opening.
    pub(crate) fn load_accounts(&mut self, moment: &dyn Moment) -> Result<()> {
        let mut accounts = Accounts::default();
        let mut load = |table, change: fn(&Key, &[u8]) -> Result<AccountChange>| {
            each(moment, keys::table_range(table), |key, value| {
                accounts.apply(change(key, value)?);
                Ok(())
            })
        };
        load(Table::User, |key, v| Ok(AccountChange::User(named(key)?, UserRecord::decode(v)?)))?;
        load(Table::S3Key, |key, v| Ok(AccountChange::Key(named(key)?, Some(KeyRecord::decode(v)?))))?;
        load(Table::SigningKey, |key, v| {
            let number = keys::table_id(key) as u32;
            Ok(AccountChange::Signing(number, Some(SigningRecord::decode(v)?)))
        })?;
        load(Table::Host, |key, v| Ok(AccountChange::Host(named(key)?, Some(HostRecord::decode(v)?))))?;
        load(Table::Identity, |_, v| Ok(AccountChange::Identity(Identity::decode(v)?)))?;
        load_groups(&mut accounts, moment)?;
        self.accounts = Arc::new(accounts);
        Ok(())
    }
}

fn load_groups(accounts: &mut Accounts, moment: &dyn Moment) -> Result<()> {
    let mut load = |table, change: fn(&Key, &[u8]) -> Result<GroupChange>| {
        each(moment, keys::table_range(table), |key, value| {
            accounts.apply(AccountChange::Group(change(key, value)?));
            Ok(())
        })
    };
    load(Table::Group, |key, v| {
        let gid = keys::table_id(key) as u32;
        Ok(GroupChange::Group(gid, Some(GroupRecord::decode(v)?)))
    })?;
    // of groups that are there
    load(Table::Member, |key, _| {
        let damaged = || Error::Corrupt("the key of a member of a group".into());
        let (gid, member) = keys::parse_member(key).ok_or_else(damaged)?;
        Ok(GroupChange::Member(gid, member, true))
    })?;
    load(Table::GroupLimit, |key, v| Ok(GroupChange::Limit(named(key)?, Some(GroupLimit::decode(v)?.0))))?;
    let key = keys::group_ranges();
    if let Some((_, value)) = moment.scan(&key, &keys::after(&key), 1)?.pop() {
        accounts.apply(AccountChange::Group(GroupChange::Ranges(GidRanges::decode(&value)?.0)));
    }
    Ok(())
}

fn named(key: &[u8]) -> Result<String> {
    let name = keys::parse_named(key).map(String::from);
    name.ok_or_else(|| Error::Corrupt("the key of a user or a host".into()))
}
