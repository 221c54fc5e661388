//! Users, their S3 keys, and the keys that tokens are signed with. Who may ask is decided where requests come in: root and the
//! user who serves the cell.

use super::{Answer, no, refuse};
use crate::admin::{Failure, KeyInfo, NewKey, Reply as AdminReply, TokenKey, UserInfo};
use crate::format::accounts::{GROUPS_MAX, KEYS_MAX, KEYS_PER_USER_MAX, LABEL_BYTES_MAX, USERS_MAX};
use crate::format::keys;
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::Effect;
use leeward_env::Ctx;
use leeward_fs::accounts::{
    AccountChange, Accounts, KeyRecord, Numbers, Secret, SigningRecord, UserRecord, wrong_name,
};
use std::sync::Arc;

/// What access key ids begin with, so that somebody who finds one knows what it is.
const KEY_PREFIX: &str = "LEEW";
/// Letters of an access key id after that, 5 bits each.
const KEY_LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// Letters of a secret, 6 bits each; none that needs quoting anywhere.
const SECRET_LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Shard {
    /// Who may come in by a door.
    pub(crate) fn accounts(&self) -> Arc<Accounts> {
        self.lock().accounts.clone()
    }

    /// See [`crate::Cell::prepare_tokens`].
    pub(crate) fn prepare_tokens(&self) -> Result<(), Failure> {
        if self.accounts().newest_signing_key().is_some() {
            return Ok(());
        }
        self.change_accounts(|accounts, now| match accounts.newest_signing_key() {
            Some(_) => Ok(Vec::new()),
            None => Ok(vec![self.new_signing_key(1, now)]),
        })
    }

    fn new_signing_key(&self, number: u32, now: i64) -> AccountChange {
        let record = SigningRecord { secret: self.env.secret(), created_secs: now };
        AccountChange::Signing(number, Some(record))
    }

    pub(super) fn user_create(&self, name: &str, uid: Option<u32>, gids: &[u32]) -> Answer {
        if let Some(wrong) = wrong_name(name) {
            return Err(no(libc::EINVAL, format!("{name:?} {wrong}: give the user another name")));
        }
        let numbers = uid.map(|uid| numbers(uid, gids)).transpose()?;
        self.change_accounts(|accounts, now| {
            if accounts.user(name).is_some() {
                let message = format!("there is a user {name} already: see lee user show {name}");
                return Err(no(libc::EEXIST, message));
            }
            if accounts.users().len() >= USERS_MAX {
                let message = format!("there are {USERS_MAX} users, which is the most: use one of them");
                return Err(no(libc::ENOSPC, message));
            }
            let numbers = numbers.clone();
            let record = UserRecord { numbers, disabled: false, generation: 0, created_secs: now };
            Ok(vec![AccountChange::User(name.into(), record)])
        })?;
        self.user_show(name)
    }

    pub(super) fn user_set(&self, name: &str, disabled: Option<bool>, gids: Option<&[u32]>) -> Answer {
        self.change_accounts(|accounts, _| {
            let mut record = user(accounts, name)?.clone();
            record.disabled = disabled.unwrap_or(record.disabled);
            if let Some(gids) = gids {
                let known = record.numbers.as_mut().ok_or_else(|| {
                    let message = format!(
                        "the groups of {name} are those of this machine's user database: change them there"
                    );
                    no(libc::EINVAL, message)
                })?;
                *known = numbers(known.uid, gids)?;
            }
            Ok(vec![AccountChange::User(name.into(), record)])
        })?;
        self.user_show(name)
    }

    pub(super) fn user_list(&self) -> AdminReply {
        let accounts = self.accounts();
        let users = accounts.users().map(|(name, record)| user_info(&accounts, name, record)).collect();
        AdminReply::Users { users }
    }

    pub(super) fn user_show(&self, name: &str) -> Answer {
        let accounts = self.accounts();
        Ok(AdminReply::User(user_info(&accounts, name, user(&accounts, name)?)))
    }

    pub(super) fn key_create(&self, name: &str, label: &str) -> Answer {
        if label.len() > LABEL_BYTES_MAX || label.contains(char::is_control) {
            let message = format!("a label has at most {LABEL_BYTES_MAX} bytes and no control characters");
            return Err(no(libc::EINVAL, message));
        }
        let bits = u128::from_be_bytes(self.env.secret());
        let letters = (0..16).map(|n| char::from(KEY_LETTERS[(bits >> (5 * n)) as usize & 31]));
        let id: String = KEY_PREFIX.chars().chain(letters).collect();
        let secret: String =
            self.env.secret::<40>().iter().map(|b| char::from(SECRET_LETTERS[usize::from(b & 63)])).collect();
        self.change_accounts(|accounts, now| {
            user(accounts, name)?;
            let of_user = accounts.keys().filter(|(_, key)| key.user == name).count();
            if of_user >= KEYS_PER_USER_MAX || accounts.keys().len() >= KEYS_MAX {
                let message = format!(
                    "{name} has {of_user} keys of {} in all: revoke those that are not used",
                    accounts.keys().len()
                );
                return Err(no(libc::ENOSPC, message));
            }
            if accounts.key(&id).is_some() {
                return Err(no(libc::EAGAIN, "the same key was drawn twice: try again".into()));
            }
            let (user, secret, label) = (name.into(), Secret::new(secret.as_str()), label.into());
            let record = KeyRecord { user, secret, label, created_secs: now };
            Ok(vec![AccountChange::Key(id.clone(), Some(record))])
        })?;
        let accounts = self.accounts();
        let record =
            accounts.key(&id).ok_or_else(|| no(libc::ENOENT, "the key was revoked at once".into()))?;
        Ok(AdminReply::KeyCreated(NewKey { key: key_info(&id, record), secret_access_key: secret }))
    }

    pub(super) fn key_list(&self, of: Option<&str>) -> Answer {
        let accounts = self.accounts();
        let wanted = accounts.keys().filter(|(_, key)| of.is_none_or(|of| key.user == of));
        let mut keys: Vec<KeyInfo> = wanted.map(|(id, record)| key_info(id, record)).collect();
        keys.sort_by(|a, b| (&a.user, &a.access_key_id).cmp(&(&b.user, &b.access_key_id)));
        Ok(AdminReply::Keys { keys })
    }

    pub(super) fn key_revoke(&self, name: &str, id: Option<&str>) -> Answer {
        let mut keys = Vec::new();
        self.change_accounts(|accounts, _| {
            let wanted =
                accounts.keys().filter(|(known, key)| key.user == name && id.is_none_or(|id| id == *known));
            keys = wanted.map(|(id, record)| key_info(id, record)).collect();
            if let (Some(id), true) = (id, keys.is_empty()) {
                let message = format!("{name} has no key {id}: see lee key list {name}");
                return Err(no(libc::ENOENT, message));
            }
            Ok(keys.iter().map(|key| AccountChange::Key(key.access_key_id.clone(), None)).collect())
        })?;
        Ok(AdminReply::Keys { keys })
    }

    pub(super) fn token_key(&self, name: &str) -> Answer {
        if let Some(wrong) = wrong_name(name) {
            return Err(no(libc::EINVAL, format!("{name:?} {wrong}: name another user")));
        }
        self.prepare_tokens()?;
        let accounts = self.accounts();
        if accounts.user(name).is_some_and(|user| user.disabled) {
            let message = format!("user {name} is disabled: lee user enable {name}");
            return Err(no(libc::EACCES, message));
        }
        let (number, key) = accounts
            .newest_signing_key()
            .ok_or_else(|| no(libc::ENOENT, "there is no signing key".into()))?;
        let generation = accounts.generation(name);
        Ok(AdminReply::TokenKey(TokenKey { number, secret: key.secret, generation }))
    }

    pub(super) fn token_revoke(&self, name: Option<&str>) -> Answer {
        self.change_accounts(|accounts, now| {
            let Some(name) = name else {
                // the number of a key never comes again: the newest one is there as long as any was
                let newest = accounts.newest_signing_key().map_or(0, |(number, _)| number);
                let old = accounts.signing_keys().map(|number| AccountChange::Signing(number, None));
                return Ok([self.new_signing_key(newest + 1, now)].into_iter().chain(old).collect());
            };
            let mut record = user(accounts, name)?.clone();
            record.generation += 1;
            Ok(vec![AccountChange::User(name.into(), record)])
        })?;
        Ok(AdminReply::Done)
    }

    /// Makes the changes that `what` wants for the accounts as they are now (and the seconds since 1970); durable when this
    /// returns.
    fn change_accounts(
        &self,
        mut what: impl FnMut(&Accounts, i64) -> Result<Vec<AccountChange>, Failure>,
    ) -> Result<(), Failure> {
        let made = self.transact(&Ctx::system(), |tx| {
            let changes = match what(&tx.st.accounts, tx.now.secs) {
                Ok(changes) => changes,
                Err(failure) => return Ok(Err(failure)),
            };
            for change in changes {
                match &change {
                    AccountChange::User(name, record) => tx.put(keys::user(name), record.encode()),
                    AccountChange::Key(id, Some(record)) => tx.put(keys::s3_key(id), record.encode()),
                    AccountChange::Key(id, None) => tx.remove(keys::s3_key(id)),
                    AccountChange::Signing(number, Some(record)) => {
                        tx.put(keys::signing_key(*number), record.encode());
                    }
                    AccountChange::Signing(number, None) => tx.remove(keys::signing_key(*number)),
                }
                tx.then(Effect::Account(change));
            }
            Ok(Ok(()))
        });
        made.map_err(|e| refuse(&e, "cannot be changed"))??;
        self.settle()
    }
}

fn user<'a>(accounts: &'a Accounts, name: &str) -> Result<&'a UserRecord, Failure> {
    let unknown = || no(libc::ENOENT, format!("the cell has no record of a user {name}: see lee user list"));
    accounts.user(name).ok_or_else(unknown)
}

fn numbers(uid: u32, gids: &[u32]) -> Result<Numbers, Failure> {
    if uid == 0 || uid == u32::MAX {
        let message = format!("nobody acts as user {uid} through a door: name another user id");
        return Err(no(libc::EINVAL, message));
    }
    if gids.len() > GROUPS_MAX || gids.contains(&u32::MAX) {
        return Err(no(
            libc::EINVAL,
            format!("a user has at most {GROUPS_MAX} groups, none of them {}", u32::MAX),
        ));
    }
    let gids = if gids.is_empty() { vec![uid] } else { gids.to_vec() };
    Ok(Numbers { uid, gids })
}

fn user_info(accounts: &Accounts, name: &str, record: &UserRecord) -> UserInfo {
    UserInfo {
        name: name.into(),
        uid: record.numbers.as_ref().map(|numbers| numbers.uid),
        gids: record.numbers.as_ref().map_or(Vec::new(), |numbers| numbers.gids.clone()),
        disabled: record.disabled,
        keys: accounts.keys().filter(|(_, key)| key.user == name).count() as u64,
        created_secs: record.created_secs,
    }
}

fn key_info(id: &str, record: &KeyRecord) -> KeyInfo {
    let (user, label, created_secs) = (record.user.clone(), record.label.clone(), record.created_secs);
    KeyInfo { user, access_key_id: id.into(), label, created_secs }
}
