//! Requests about the keys that sign tokens of the doors.

use crate::admin::accounts::{may_open_doors, user_named};
use crate::admin::{Caller, Done, Failure, Refresh, Request};
use crate::shard::Shard;
use leeward_fs::accounts::{AccountChange, SigningRecord};
use serde::{Deserialize, Serialize};

/// Checks that a user may have a token, and notes which; the process that asks signs it. Makes a
/// key where there is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenMake {
    /// Name of the user, who has a record.
    pub user: String,
    /// Where it is good, with all below.
    pub path: String,
    /// What for, as macaroons name it.
    pub activities: Vec<String>,
    /// Until when, seconds since 1970.
    pub until_secs: i64,
    /// The host on which it is made, which the server says; `None`: the machine that serves the
    /// cell.
    #[serde(default)]
    pub host: Option<String>,
}

impl Request for TokenMake {
    type Reply = Done;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        may_open_doors(&shard.accounts(), &self.user, self.host.as_deref())?;
        shard.prepare_tokens().map(|()| Done {})
    }
}

/// Makes tokens void that the cell signed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenRevoke {
    /// Those for this user, who has a record; `None`: all.
    pub user: Option<String>,
}

impl Request for TokenRevoke {
    type Reply = Done;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        shard.change_accounts(|accounts, now| {
            let Some(name) = &self.user else {
                // No number is used twice: the newest key stays as long as there was any.
                let newest = accounts.newest_signing_key().map_or(0, |(number, _)| number);
                let old = accounts.signing_keys().map(|number| AccountChange::Signing(number, None));
                return Ok([new_signing_key(shard, newest + 1, now)].into_iter().chain(old).collect());
            };
            let mut record = user_named(accounts, name)?.clone();
            record.generation += 1;
            Ok(vec![AccountChange::User(name.clone(), record)])
        })?;
        Ok(Done {})
    }
}

impl Shard {
    /// Makes a key that signs tokens where there is none, see [`crate::Cell::prepare_tokens`].
    pub(crate) fn prepare_tokens(&self) -> Result<(), Failure> {
        if self.accounts().newest_signing_key().is_some() {
            return Ok(());
        }
        self.change_accounts(|accounts, now| match accounts.newest_signing_key() {
            Some(_) => Ok(Vec::new()),
            None => Ok(vec![new_signing_key(self, 1, now)]),
        })
    }
}

fn new_signing_key(shard: &Shard, number: u32, now: i64) -> AccountChange {
    let record = SigningRecord { secret: shard.env.secret(), created_secs: now };
    AccountChange::Signing(number, Some(record))
}
