//! Who may use a cell from outside: users that the cell knows, their S3 keys, the keys that the
//! cell signs tokens with, the hosts that may mount the cell over the network, and the groups that
//! users own.
//!
//! The tables fit in memory. The cell hands all of them to the authority at the doors as one value,
//! and a new value after each change.

use crate::groups::{GroupChange, GroupTable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Longest name of a user or a host, bytes.
pub const USER_NAME_BYTES_MAX: usize = 64;

/// User id and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// User id, neither 0 nor `u32::MAX`.
    pub uid: u32,
    /// Groups, the primary one first; at least one, at most 256.
    pub gids: Vec<u32>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// User id and groups. `None`: those that the user database of the machine has for this name.
    pub numbers: Option<Numbers>,
    /// Whether all doors are closed to the user.
    pub disabled: bool,
    /// Only the cell's tokens of this generation are valid.
    pub generation: u32,
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
}

/// A text that must not be shown: neither `Debug` nor `Display` print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<Box<str>>) -> Secret {
        Secret(text.into())
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// An S3 key. Signatures are computed with the secret, so the cell must store it in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Name of its user.
    pub user: String,
    /// The secret access key.
    pub secret: Secret,
    /// The user's name for it.
    pub label: String,
    /// The host on which it was made; `None`: a machine that served the cell, or nobody noted it.
    pub host: Option<String>,
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
}

/// A key that the cell signs tokens with.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningRecord {
    /// The key.
    pub secret: [u8; 32],
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
}

impl fmt::Debug for SigningRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningRecord").field("created_secs", &self.created_secs).finish_non_exhaustive()
    }
}

/// User ids from one number to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UidRange {
    /// The lowest user id.
    pub first: u32,
    /// The highest user id, itself included. Not lower than `first`.
    pub last: u32,
}

impl fmt::Display for UidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UidRange { first, last } if first == last => write!(f, "{first}"),
            UidRange { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// Whom the cell believes who a request of a host is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// The host: it names the user of each request. For machines of the site.
    #[default]
    Host,
    /// Nobody but the user, who shows a token. For a machine that a user administers.
    User,
}

/// The right to enrol as a host, once.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// SHA-256 of the secret that the host must show. The secret itself is stored nowhere.
    pub secret_hash: [u8; 32],
    /// The first second, since 1970, in which it is not valid any more.
    pub expires_secs: i64,
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation").field("expires_secs", &self.expires_secs).finish_non_exhaustive()
    }
}

/// A machine that may mount the cell over the network, and what it may do there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// The Ed25519 public key with which it enrolled. `None`: it has not enrolled yet. No two hosts
    /// have the same key.
    pub key: Option<[u8; 32]>,
    /// What it can enrol with, also again; `None`: nothing.
    pub invitation: Option<Invitation>,
    /// Numbers of the volumes that it may use, sorted; empty: all. Numbers of volumes that were
    /// removed may be among them.
    pub volumes: Vec<u32>,
    /// Whether it may change nothing.
    pub read_only: bool,
    /// The user ids that it may act as, sorted, apart from each other; empty: all.
    pub uids: Vec<UidRange>,
    /// Whether its root acts as nobody.
    pub root_squash: bool,
    /// Whom the cell believes who a request is from.
    pub trust: Trust,
    /// Whether it may run doors of the cell: it is told the secrets of all users. Only hosts that
    /// are believed in everything may.
    pub gateway: bool,
    /// Whether it sends snapshots to copies of volumes, and does nothing else.
    pub mirror: bool,
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
    /// When it enrolled last, seconds since 1970. `None` exactly where `key` is.
    pub enrolled_secs: Option<i64>,
}

impl HostRecord {
    /// Whether the host may use the volume with this number.
    pub fn may_use_volume(&self, volume: u32) -> bool {
        self.volumes.is_empty() || self.volumes.contains(&volume)
    }

    /// Whether the host may act as this user. Root may still be squashed.
    pub fn may_act_as(&self, uid: u32) -> bool {
        self.uids.is_empty() || self.uids.iter().any(|range| (range.first..=range.last).contains(&uid))
    }

    /// Whether the host is believed in everything, and bounded in nothing. Only there users get
    /// what opens the doors: that is good for all of the cell.
    pub fn is_unbounded(&self) -> bool {
        let is_bounded = !self.volumes.is_empty() || !self.uids.is_empty() || self.read_only || self.mirror;
        self.trust == Trust::Host && !is_bounded
    }
}

/// The key pair by which hosts know the cell. Made when the first host is added, and kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The Ed25519 seed, which is the private key: a secret.
    pub seed: [u8; 32],
    /// The Ed25519 public key that belongs to the seed.
    pub public: [u8; 32],
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("public", &self.public).finish_non_exhaustive()
    }
}

/// One change of [`Accounts`].
#[derive(Clone, Debug)]
pub enum AccountChange {
    /// Sets the record of a user.
    User(String, UserRecord),
    /// Sets the record of the key with this id; `None`: removes it.
    Key(String, Option<KeyRecord>),
    /// Sets the record of the signing key with this number; `None`: removes it.
    Signing(u32, Option<SigningRecord>),
    /// Sets the record of the host with this name; `None`: removes it.
    Host(String, Option<HostRecord>),
    /// Sets the cell's own key pair.
    Identity(Identity),
    /// Changes groups that users own.
    Group(GroupChange),
}

/// All users, keys, hosts and groups that the cell knows. A copy shares what is not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    users: Arc<BTreeMap<String, UserRecord>>,
    keys: Arc<BTreeMap<String, KeyRecord>>,
    signing: Arc<BTreeMap<u32, SigningRecord>>,
    hosts: Arc<BTreeMap<String, HostRecord>>,
    /// Names of hosts by the key that they enrolled with.
    host_keys: Arc<BTreeMap<[u8; 32], String>>,
    identity: Option<Identity>,
    groups: GroupTable,
}

impl Accounts {
    /// A user.
    pub fn user(&self, name: &str) -> Option<&UserRecord> {
        self.users.get(name)
    }

    /// All users, by name.
    pub fn users(&self) -> impl ExactSizeIterator<Item = (&str, &UserRecord)> {
        self.users.iter().map(|(name, user)| (name.as_str(), user))
    }

    /// The generation that a user's tokens of the cell must have: 0 for a user without a record.
    pub fn generation(&self, name: &str) -> u32 {
        self.user(name).map_or(0, |user| user.generation)
    }

    /// An S3 key by its access key id.
    pub fn key(&self, id: &str) -> Option<&KeyRecord> {
        self.keys.get(id)
    }

    /// All S3 keys, by id.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = (&str, &KeyRecord)> {
        self.keys.iter().map(|(id, key)| (id.as_str(), key))
    }

    /// A key that tokens are signed with.
    pub fn signing_key(&self, number: u32) -> Option<&SigningRecord> {
        self.signing.get(&number)
    }

    /// The key that new tokens are signed with.
    pub fn newest_signing_key(&self) -> Option<(u32, &SigningRecord)> {
        self.signing.last_key_value().map(|(number, key)| (*number, key))
    }

    /// Numbers of all keys that sign, or did sign, tokens.
    pub fn signing_keys(&self) -> impl Iterator<Item = u32> {
        self.signing.keys().copied()
    }

    /// A host, by name.
    pub fn host(&self, name: &str) -> Option<&HostRecord> {
        self.hosts.get(name)
    }

    /// All hosts, by name.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = (&str, &HostRecord)> {
        self.hosts.iter().map(|(name, host)| (name.as_str(), host))
    }

    /// The host that enrolled with this public key, and its name.
    pub fn host_of_key(&self, key: &[u8; 32]) -> Option<(&str, &HostRecord)> {
        let (name, host) = self.hosts.get_key_value(self.host_keys.get(key)?)?;
        Some((name, host))
    }

    /// The cell's own key pair; `None`: no host was ever added.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Groups that users own.
    pub fn groups(&self) -> &GroupTable {
        &self.groups
    }

    /// The name of the user with this number, as far as the cell has a record that says the number.
    pub fn user_of(&self, uid: u32) -> Option<&str> {
        let has = |user: &UserRecord| user.numbers.as_ref().is_some_and(|numbers| numbers.uid == uid);
        self.users().find(|(_, user)| has(user)).map(|(name, _)| name)
    }

    /// Whether users and keys are those of `other`, which is a copy or was copied: only groups or
    /// hosts may be others.
    pub fn has_users_of(&self, other: &Accounts) -> bool {
        Arc::ptr_eq(&self.users, &other.users)
            && Arc::ptr_eq(&self.keys, &other.keys)
            && Arc::ptr_eq(&self.signing, &other.signing)
    }

    /// Makes a change.
    pub fn apply(&mut self, change: AccountChange) {
        match change {
            AccountChange::User(name, record) => set(&mut self.users, name, Some(record)),
            AccountChange::Key(id, record) => set(&mut self.keys, id, record),
            AccountChange::Signing(number, record) => set(&mut self.signing, number, record),
            AccountChange::Host(name, record) => self.set_host(name, record),
            AccountChange::Identity(identity) => self.identity = Some(identity),
            AccountChange::Group(change) => self.groups.apply(change),
        }
    }

    fn set_host(&mut self, name: String, record: Option<HostRecord>) {
        if let Some(old_key) = self.host(&name).and_then(|host| host.key) {
            set(&mut self.host_keys, old_key, None);
        }
        if let Some(key) = record.as_ref().and_then(|record| record.key) {
            set(&mut self.host_keys, key, Some(name.clone()));
        }
        set(&mut self.hosts, name, record);
    }
}

fn set<K: Ord + Clone, V: Clone>(table: &mut Arc<BTreeMap<K, V>>, key: K, value: Option<V>) {
    let table = Arc::make_mut(table);
    match value {
        Some(value) => _ = table.insert(key, value),
        None => _ = table.remove(&key),
    }
}

/// What is wrong with the name of a user or a host; `None`: nothing. Names go into tokens, messages
/// and logs. Names of the DNS are fine.
pub fn wrong_name(name: &str) -> Option<&'static str> {
    let odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, ':' | '/' | ',' | '"' | '\\');
    match name {
        "" => Some("is empty"),
        _ if name.len() > USER_NAME_BYTES_MAX => Some("has more than 64 bytes"),
        _ if name.starts_with(['-', '@']) => Some("begins with - or @"),
        _ if name.contains(odd) => Some("has a blank, a colon, a comma, a quote or a slash in it"),
        _ if name.bytes().all(|b| b.is_ascii_digit()) => Some("is a number"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(key: Option<[u8; 32]>) -> HostRecord {
        HostRecord {
            key,
            invitation: Some(Invitation { secret_hash: [0xcd; 32], expires_secs: 7 }),
            volumes: Vec::new(),
            read_only: false,
            uids: Vec::new(),
            root_squash: false,
            trust: Trust::Host,
            gateway: false,
            mirror: false,
            created_secs: 1,
            enrolled_secs: key.map(|_| 2),
        }
    }

    #[test]
    fn a_host_is_found_by_the_key_that_it_has_now() {
        let mut accounts = Accounts::default();
        accounts.apply(AccountChange::Host("a".into(), Some(host(None))));
        assert!(accounts.host("a").is_some() && accounts.host_of_key(&[0; 32]).is_none());
        for key in [[1; 32], [2; 32]] {
            accounts.apply(AccountChange::Host("a".into(), Some(host(Some(key)))));
            assert_eq!(accounts.host_of_key(&key).map(|(name, _)| name), Some("a"));
        }
        assert_eq!(accounts.host_of_key(&[1; 32]), None, "the key before");
        accounts.apply(AccountChange::Host("a".into(), None));
        assert_eq!((accounts.host_of_key(&[2; 32]), accounts.hosts().len()), (None, 0));
    }

    #[test]
    fn a_host_may_what_its_record_lists_or_all() {
        let all = host(None);
        assert!(all.may_use_volume(7) && all.may_act_as(0));
        let uids = vec![UidRange { first: 1000, last: 1999 }, UidRange { first: 2500, last: 2500 }];
        let some = HostRecord { volumes: vec![3, 7], uids, ..all };
        assert!(some.may_use_volume(7) && !some.may_use_volume(0) && !some.may_use_volume(4));
        for (uid, may) in [(0, false), (999, false), (1000, true), (1999, true), (2000, false), (2500, true)]
        {
            assert_eq!(some.may_act_as(uid), may, "{uid}");
        }
        assert_eq!(some.uids.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1000-1999", "2500"]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?} {:?}", host(None), Identity { seed: [0xab; 32], public: [1; 32] });
        assert!(!shown.contains("171") && !shown.contains("205"), "{shown}");
    }

    #[test]
    fn names_of_hosts_may_have_dots() {
        for good in ["node01", "node01.example.org", "10.0.0.1", &"x".repeat(64)] {
            assert_eq!(wrong_name(good), None, "{good}");
        }
        for bad in ["", "-x", "@x", "a b", "a:b", "a/b", "a,b", "17", &"x".repeat(65)] {
            assert!(wrong_name(bad).is_some(), "{bad}");
        }
    }
}
