//! What requests about users, keys, tokens, hosts and groups share. The control socket decides who
//! may ask: root and the user who serves the cell.

use crate::admin::Failure;
use crate::admin::failure::about;
use crate::format::groups::{GidRanges, GroupLimit, MEMBERSHIP};
use crate::format::keys;
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::Effect;
use crate::tx::Tx;
use leeward_env::Ctx;
use leeward_fs::accounts::{AccountChange, Accounts, HostRecord, UserRecord};
use leeward_fs::groups::GroupChange;
use std::sync::Arc;

impl Shard {
    /// Users, keys, signing keys and hosts, as of now.
    pub(crate) fn accounts(&self) -> Arc<Accounts> {
        self.lock().accounts.clone()
    }

    /// Makes the changes that `change` names for the accounts as they are and the time in seconds
    /// since 1970. They are durable when this returns.
    pub(super) fn change_accounts(
        &self,
        mut change: impl FnMut(&Accounts, i64) -> Result<Vec<AccountChange>, Failure>,
    ) -> Result<(), Failure> {
        let made = self.transact(&Ctx::system(), |tx| {
            let changes = match change(&tx.st.accounts, tx.now.secs) {
                Ok(changes) => changes,
                Err(failure) => return Ok(Err(failure)),
            };
            changes.into_iter().for_each(|change| put(tx, change));
            Ok(Ok(()))
        });
        made.map_err(about("cannot be changed"))??;
        self.settle()
    }
}

fn put(tx: &mut Tx<'_>, change: AccountChange) {
    match &change {
        AccountChange::User(name, record) => tx.put(keys::user(name), record.encode()),
        AccountChange::Key(id, Some(record)) => tx.put(keys::s3_key(id), record.encode()),
        AccountChange::Key(id, None) => tx.remove(keys::s3_key(id)),
        AccountChange::Signing(number, Some(record)) => tx.put(keys::signing_key(*number), record.encode()),
        AccountChange::Signing(number, None) => tx.remove(keys::signing_key(*number)),
        AccountChange::Host(name, Some(record)) => tx.put(keys::host(name), record.encode()),
        AccountChange::Host(name, None) => tx.remove(keys::host(name)),
        AccountChange::Identity(identity) => tx.put(keys::identity(), identity.encode()),
        AccountChange::Group(change) => put_group(tx, change),
    }
    tx.then(Effect::Account(change));
}

fn put_group(tx: &mut Tx<'_>, change: &GroupChange) {
    match change {
        GroupChange::Group(gid, Some(record)) => tx.put(keys::group(*gid), record.encode()),
        GroupChange::Group(gid, None) => tx.remove(keys::group(*gid)),
        GroupChange::Member(gid, member, true) => tx.put(keys::member(*gid, member), MEMBERSHIP[..].into()),
        GroupChange::Member(gid, member, false) => tx.remove(keys::member(*gid, member)),
        GroupChange::Limit(prefix, Some(limit)) => {
            tx.put(keys::group_limit(prefix), GroupLimit(*limit).encode());
        }
        GroupChange::Limit(prefix, None) => tx.remove(keys::group_limit(prefix)),
        GroupChange::Ranges(ranges) => tx.put(keys::group_ranges(), GidRanges(ranges.clone()).encode()),
    }
}

/// Whether a user may have something that opens doors. `host`: the one on which it is made.
pub(super) fn may_open_doors(accounts: &Accounts, user: &str, host: Option<&str>) -> Result<(), Failure> {
    if user_named(accounts, user)?.disabled {
        let message = format!("user {user} is disabled: lee user enable {user}");
        return Err(Failure::new(libc::EACCES, message));
    }
    // it may have been removed, or bounded, since it was looked at who asks
    let is_let = |host: &&str| accounts.host(host).is_some_and(HostRecord::is_unbounded);
    match host.filter(|host| !is_let(host)) {
        None => Ok(()),
        Some(host) => {
            let message =
                format!("host {host} may not use all of the cell: make it where the cell is served");
            Err(Failure::new(libc::EPERM, message))
        }
    }
}

/// The record of a user.
pub(super) fn user_named<'a>(accounts: &'a Accounts, name: &str) -> Result<&'a UserRecord, Failure> {
    accounts.user(name).ok_or_else(|| {
        Failure::new(libc::ENOENT, format!("the cell has no record of a user {name}: see lee user list"))
    })
}
