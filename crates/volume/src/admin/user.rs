//! Requests about users of the doors.

use crate::admin::accounts::user_named;
use crate::admin::{Caller, Failure, Refresh, Reply, Request};
use crate::format::accounts::{GROUPS_MAX, USERS_MAX};
use crate::shard::Shard;
use leeward_fs::accounts::{AccountChange, Accounts, Numbers, UserRecord, wrong_name};
use serde::{Deserialize, Serialize};

/// A user that the cell has a record of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// Name.
    pub name: String,
    /// User id; `None`: the machine's user database has it, and the groups.
    pub uid: Option<u32>,
    /// Groups, the primary one first.
    pub gids: Vec<u32>,
    /// Whether all doors are closed to the user.
    pub disabled: bool,
    /// Number of S3 keys.
    pub keys: u64,
    /// Seconds since 1970.
    pub created_secs: i64,
}

impl Reply for UserInfo {
    const KIND: &'static str = "user";
}

/// Makes a record of a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserCreate {
    /// Name, see [`wrong_name`].
    pub name: String,
    /// User id, not 0; `None`: the machine's user database has it, and the groups.
    pub uid: Option<u32>,
    /// Groups, the primary one first; none: one with the number of the user.
    pub gids: Vec<u32>,
}

impl Request for UserCreate {
    type Reply = UserInfo;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<UserInfo, Failure> {
        let name = &self.name;
        if let Some(wrong) = wrong_name(name) {
            let message = format!("{name:?} {wrong}: give the user another name");
            return Err(Failure::new(libc::EINVAL, message));
        }
        let numbers = self.uid.map(|uid| numbers(uid, &self.gids)).transpose()?;
        shard.change_accounts(|accounts, now| {
            if accounts.user(name).is_some() {
                let message = format!("there is a user {name} already: see lee user show {name}");
                return Err(Failure::new(libc::EEXIST, message));
            }
            if accounts.users().len() >= USERS_MAX {
                let message = format!("there are {USERS_MAX} users, which is the most: use one of them");
                return Err(Failure::new(libc::ENOSPC, message));
            }
            let numbers = numbers.clone();
            let record = UserRecord { numbers, disabled: false, generation: 0, created_secs: now };
            Ok(vec![AccountChange::User(name.clone(), record)])
        })?;
        user_info(shard, name)
    }
}

/// Changes a user, from the next request of the user on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserSet {
    /// Name.
    pub name: String,
    /// Whether all doors are closed to the user; `None`: as it was.
    #[serde(default)]
    pub disabled: Option<bool>,
    /// Groups; `None`: as they were.
    #[serde(default)]
    pub gids: Option<Vec<u32>>,
}

impl Request for UserSet {
    type Reply = UserInfo;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<UserInfo, Failure> {
        let name = &self.name;
        shard.change_accounts(|accounts, _| {
            let mut record = user_named(accounts, name)?.clone();
            record.disabled = self.disabled.unwrap_or(record.disabled);
            if let Some(gids) = &self.gids {
                let known = record.numbers.as_mut().ok_or_else(|| {
                    let message = format!(
                        "the groups of {name} are those of this machine's user database: change them there"
                    );
                    Failure::new(libc::EINVAL, message)
                })?;
                *known = numbers(known.uid, gids)?;
            }
            Ok(vec![AccountChange::User(name.clone(), record)])
        })?;
        user_info(shard, name)
    }
}

/// Lists the users that the cell has a record of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserList;

/// All users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfos {
    /// By name.
    pub users: Vec<UserInfo>,
}

impl Reply for UserInfos {
    const KIND: &'static str = "users";
}

impl Request for UserList {
    type Reply = UserInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<UserInfos, Failure> {
        let accounts = shard.accounts();
        let users = accounts.users().map(|(name, record)| info(&accounts, name, record)).collect();
        Ok(UserInfos { users })
    }
}

/// Shows one user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserShow {
    /// Name.
    pub name: String,
}

impl Request for UserShow {
    type Reply = UserInfo;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<UserInfo, Failure> {
        user_info(shard, &self.name)
    }
}

fn user_info(shard: &Shard, name: &str) -> Result<UserInfo, Failure> {
    let accounts = shard.accounts();
    Ok(info(&accounts, name, user_named(&accounts, name)?))
}

fn info(accounts: &Accounts, name: &str, record: &UserRecord) -> UserInfo {
    UserInfo {
        name: name.into(),
        uid: record.numbers.as_ref().map(|numbers| numbers.uid),
        gids: record.numbers.as_ref().map_or(Vec::new(), |numbers| numbers.gids.clone()),
        disabled: record.disabled,
        keys: accounts.keys().filter(|(_, key)| key.user == name).count() as u64,
        created_secs: record.created_secs,
    }
}

fn numbers(uid: u32, gids: &[u32]) -> Result<Numbers, Failure> {
    if uid == 0 || uid == u32::MAX {
        let message = format!("nobody acts as user {uid} through a door: name another user id");
        return Err(Failure::new(libc::EINVAL, message));
    }
    if gids.len() > GROUPS_MAX || gids.contains(&u32::MAX) {
        let message = format!("a user has at most {GROUPS_MAX} groups, none of them {}", u32::MAX);
        return Err(Failure::new(libc::EINVAL, message));
    }
    let gids = if gids.is_empty() { vec![uid] } else { gids.to_vec() };
    Ok(Numbers { uid, gids })
}
