//! Requests about S3 keys of users.

use crate::admin::accounts::may_open_doors;
use crate::admin::{Caller, Failure, Refresh, Reply, Request};
use crate::format::accounts::{KEYS_MAX, KEYS_PER_USER_MAX, LABEL_BYTES_MAX};
use crate::shard::Shard;
use leeward_fs::accounts::{AccountChange, Accounts, KeyRecord, Secret};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Start of access key ids, so that somebody who finds one knows what it is.
const KEY_PREFIX: &str = "LEEW";
/// Letters of an access key id after that, and of a secret, 5 bits each. None needs quoting
/// anywhere, nor do programs take what begins with one for an option.
const KEY_LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// An S3 key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyInfo {
    /// Name of its user.
    pub user: String,
    /// Its name in S3 requests.
    pub access_key_id: String,
    /// What the user calls it.
    pub label: String,
    /// Seconds since 1970.
    pub created_secs: i64,
    /// The host on which it was made; `None`: a machine that served the cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// S3 keys, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyInfos {
    /// By user and id.
    pub keys: Vec<KeyInfo>,
}

impl Reply for KeyInfos {
    const KIND: &'static str = "keys";
}

/// Makes an S3 key. Its reply is the only one that has the secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyCreate {
    /// A user that the cell has a record of.
    pub user: String,
    /// What the user calls the key; may be empty.
    pub label: String,
    /// The host on which it is made, which the server says; `None`: the machine that serves the
    /// cell.
    #[serde(default)]
    pub host: Option<String>,
}

/// A new S3 key, with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKey {
    /// The key.
    #[serde(flatten)]
    pub key: KeyInfo,
    /// Signs requests.
    pub secret_access_key: String,
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Reply for NewKey {
    const KIND: &'static str = "key-created";
}

impl Request for KeyCreate {
    type Reply = NewKey;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<NewKey, Failure> {
        let KeyCreate { user, label, host } = self;
        if label.len() > LABEL_BYTES_MAX || label.contains(char::is_control) {
            let message = format!("a label has at most {LABEL_BYTES_MAX} bytes and no control characters");
            return Err(Failure::new(libc::EINVAL, message));
        }
        let (id, secret) = draw(shard);
        shard.change_accounts(|accounts, now| {
            may_open_doors(accounts, user, host.as_deref())?;
            let of_user = accounts.keys().filter(|(_, key)| key.user == *user).count();
            let all = accounts.keys().len();
            if of_user >= KEYS_PER_USER_MAX || all >= KEYS_MAX {
                let message =
                    format!("{user} has {of_user} keys of {all} in all: revoke those that are not used");
                return Err(Failure::new(libc::ENOSPC, message));
            }
            if accounts.key(&id).is_some() {
                return Err(Failure::new(libc::EAGAIN, "the same key was drawn twice: try again"));
            }
            let (user, label, host) = (user.clone(), label.clone(), host.clone());
            let record =
                KeyRecord { user, secret: Secret::new(secret.as_str()), label, host, created_secs: now };
            Ok(vec![AccountChange::Key(id.clone(), Some(record))])
        })?;
        let accounts = shard.accounts();
        let record =
            accounts.key(&id).ok_or_else(|| Failure::new(libc::ENOENT, "the key was revoked at once"))?;
        Ok(NewKey { key: info(&id, record), secret_access_key: secret })
    }
}

/// A random access key id, and its secret.
fn draw(shard: &Shard) -> (String, String) {
    let letter = |b: &u8| char::from(KEY_LETTERS[usize::from(b & 31)]);
    let (id, secret) = (shard.env.secret::<16>(), shard.env.secret::<40>());
    (KEY_PREFIX.chars().chain(id.iter().map(letter)).collect(), secret.iter().map(letter).collect())
}

/// Lists S3 keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyList {
    /// Of this user; `None`: of all.
    pub user: Option<String>,
}

impl Request for KeyList {
    type Reply = KeyInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<KeyInfos, Failure> {
        let accounts = shard.accounts();
        let wanted = accounts.keys().filter(|(_, key)| self.user.as_ref().is_none_or(|of| key.user == *of));
        let mut keys: Vec<KeyInfo> = wanted.map(|(id, record)| info(id, record)).collect();
        keys.sort_by(|a, b| (&a.user, &a.access_key_id).cmp(&(&b.user, &b.access_key_id)));
        Ok(KeyInfos { keys })
    }
}

/// Revokes S3 keys: they open no door from now on. The reply has those that there were.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyRevoke {
    /// Name of their user.
    pub user: String,
    /// Which key; `None`: all of the user.
    pub access_key_id: Option<String>,
}

impl Request for KeyRevoke {
    type Reply = KeyInfos;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<KeyInfos, Failure> {
        let KeyRevoke { user, access_key_id } = self;
        let mut keys = Vec::new();
        shard.change_accounts(|accounts, _| {
            let is_meant = |id: &str| access_key_id.as_ref().is_none_or(|wanted| wanted == id);
            let wanted = accounts.keys().filter(|(id, key)| key.user == *user && is_meant(id));
            keys = wanted.map(|(id, record)| info(id, record)).collect();
            if let (Some(id), true) = (access_key_id, keys.is_empty()) {
                let message = format!("{user} has no key {id}: see lee key list {user}");
                return Err(Failure::new(libc::ENOENT, message));
            }
            Ok(keys.iter().map(|key| AccountChange::Key(key.access_key_id.clone(), None)).collect())
        })?;
        Ok(KeyInfos { keys })
    }
}

/// The keys that users made on this host.
pub(super) fn keys_made_on(accounts: &Accounts, host: &str) -> Vec<KeyInfo> {
    let made_there = accounts.keys().filter(|(_, key)| key.host.as_deref() == Some(host));
    made_there.map(|(id, record)| info(id, record)).collect()
}

fn info(id: &str, record: &KeyRecord) -> KeyInfo {
    let KeyRecord { user, label, host, created_secs, .. } = record.clone();
    KeyInfo { user, access_key_id: id.into(), label, created_secs, host }
}
