//! Who may use a door: users that the cell knows, their S3 keys, and the keys that the cell signs
//! tokens with.
//!
//! The three tables fit in memory. The cell hands all of them to the authority at the doors as one
//! value, and a new value after each change.

use std::collections::BTreeMap;
use std::fmt;

/// Longest name of a user, bytes.
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

/// One change of [`Accounts`].
#[derive(Clone, Debug)]
pub enum AccountChange {
    /// Sets the record of a user.
    User(String, UserRecord),
    /// Sets the record of the key with this id; `None`: removes it.
    Key(String, Option<KeyRecord>),
    /// Sets the record of the signing key with this number; `None`: removes it.
    Signing(u32, Option<SigningRecord>),
}

/// All users and keys that the cell knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    users: BTreeMap<String, UserRecord>,
    keys: BTreeMap<String, KeyRecord>,
    signing: BTreeMap<u32, SigningRecord>,
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

    /// Makes a change.
    pub fn apply(&mut self, change: AccountChange) {
        match change {
            AccountChange::User(name, record) => _ = self.users.insert(name, record),
            AccountChange::Key(id, Some(record)) => _ = self.keys.insert(id, record),
            AccountChange::Key(id, None) => _ = self.keys.remove(&id),
            AccountChange::Signing(number, Some(record)) => _ = self.signing.insert(number, record),
            AccountChange::Signing(number, None) => _ = self.signing.remove(&number),
        }
    }
}

/// What is wrong with the name of a user; `None`: nothing. Names go into tokens, messages and logs.
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
