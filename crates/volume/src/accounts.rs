//! Who may come in by a door: users that the cell knows, their S3 keys, and the keys that the cell signs tokens with.
//!
//! Three tables, which are few enough to be in memory. They are handed out whole, as one shared value: doors look things up
//! without the shard's lock, and get another value when something changes.

use crate::error::{Error, Result};
use leeward_meta::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Most users.
pub const USERS_MAX: usize = 20_000;
/// Most S3 keys.
pub const KEYS_MAX: usize = 50_000;
/// Most S3 keys of one user.
pub const KEYS_PER_USER_MAX: usize = 100;
/// Longest name of a user, bytes.
pub const USER_NAME_BYTES_MAX: usize = 64;
/// Most groups of a user.
pub const GROUPS_MAX: usize = 256;
/// Longest label of a key, bytes.
pub const LABEL_BYTES_MAX: usize = 128;

const VERSION: u8 = 1;
const HAS_NUMBERS: u8 = 1;
const DISABLED: u8 = 2;

/// User id and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// User id, neither 0 nor `u32::MAX`.
    pub uid: u32,
    /// Groups, the primary one first; at least one, at most [`GROUPS_MAX`].
    pub gids: Vec<u32>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// `None`: those that the user database of the machine knows under this name.
    pub numbers: Option<Numbers>,
    /// Whether all doors are closed to the user.
    pub disabled: bool,
    /// Only tokens of the cell of this generation are good.
    pub generation: u32,
    /// Seconds since 1970.
    pub created_secs: i64,
}

/// Something that must not be shown: neither `Debug` nor `Display` tell it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Keeps it.
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

/// An S3 key. Signatures are computed with the secret, so the cell has to keep it as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Name of its user.
    pub user: String,
    /// The secret access key.
    pub secret: Secret,
    /// What the user calls it.
    pub label: String,
    /// Seconds since 1970.
    pub created_secs: i64,
}

/// A key that the cell signs tokens with.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningRecord {
    /// The key.
    pub secret: [u8; 32],
    /// Seconds since 1970.
    pub created_secs: i64,
}

impl fmt::Debug for SigningRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningRecord").field("created_secs", &self.created_secs).finish_non_exhaustive()
    }
}

impl UserRecord {
    /// The encoding: version, flags (1: has numbers, 2: disabled), generation u32, created i64; with numbers: user id u32,
    /// number of groups u16, groups u32 each.
    pub fn encode(&self) -> Value {
        let flags = u8::from(self.numbers.is_some()) * HAS_NUMBERS + u8::from(self.disabled) * DISABLED;
        let mut out = vec![VERSION, flags];
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        if let Some(numbers) = &self.numbers {
            out.extend_from_slice(&numbers.uid.to_be_bytes());
            out.extend_from_slice(&(numbers.gids.len() as u16).to_be_bytes());
            numbers.gids.iter().for_each(|gid| out.extend_from_slice(&gid.to_be_bytes()));
        }
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<UserRecord> {
        let mut from = Reader { bytes, what: "user" };
        let flags = from.versioned()?;
        let (generation, created_secs) = (from.u32()?, from.i64()?);
        let numbers = if flags & HAS_NUMBERS == 0 {
            None
        } else {
            let uid = from.u32()?;
            let count = from.u16()?;
            Some(Numbers { uid, gids: (0..count).map(|_| from.u32()).collect::<Result<_>>()? })
        };
        from.end()?;
        Ok(UserRecord { numbers, disabled: flags & DISABLED != 0, generation, created_secs })
    }
}

impl KeyRecord {
    /// The encoding: version, 0, created i64, user (length u8, bytes), secret (length u8, bytes), label to the end.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION, 0];
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        for text in [self.user.as_str(), self.secret.reveal()] {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(self.label.as_bytes());
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<KeyRecord> {
        let mut from = Reader { bytes, what: "key" };
        from.versioned()?;
        let created_secs = from.i64()?;
        let user = from.short()?;
        let secret = Secret::new(from.short()?);
        let label = from.text(from.bytes.len())?;
        Ok(KeyRecord { user, secret, label, created_secs })
    }
}

impl SigningRecord {
    /// The encoding: version, 0, created i64, 32 bytes of key.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION, 0];
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        out.extend_from_slice(&self.secret);
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<SigningRecord> {
        let mut from = Reader { bytes, what: "signing key" };
        from.versioned()?;
        let created_secs = from.i64()?;
        let secret = from.array()?;
        from.end()?;
        Ok(SigningRecord { secret, created_secs })
    }
}

/// Takes an encoding apart.
struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl Reader<'_> {
    fn damaged<T>(&self) -> Result<T> {
        Err(Error::Corrupt(format!("the record of a {} cannot be read", self.what)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((first, rest)) = self.bytes.split_first_chunk::<N>() else { return self.damaged() };
        self.bytes = rest;
        Ok(*first)
    }

    /// The byte after the version.
    fn versioned(&mut self) -> Result<u8> {
        match self.array()? {
            [VERSION, flags] => Ok(flags),
            _ => self.damaged(),
        }
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn text(&mut self, len: usize) -> Result<String> {
        let Some((text, rest)) = self.bytes.split_at_checked(len) else { return self.damaged() };
        self.bytes = rest;
        String::from_utf8(text.to_vec()).or_else(|_| self.damaged())
    }

    /// Length u8, then as much text.
    fn short(&mut self) -> Result<String> {
        let [len] = self.array()?;
        self.text(len.into())
    }

    fn end(&self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { self.damaged() }
    }
}

/// One change of [`Accounts`].
#[derive(Clone, Debug)]
pub enum AccountChange {
    /// The user has this record now.
    User(String, UserRecord),
    /// The key with this id has this record now; `None`: it is gone.
    Key(String, Option<KeyRecord>),
    /// The signing key with this number has this record now; `None`: it is gone.
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

    /// The generation that a user's tokens of the cell must have: 0 for who has no record.
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

    /// The one that new tokens are signed with.
    pub fn newest_signing_key(&self) -> Option<(u32, &SigningRecord)> {
        self.signing.last_key_value().map(|(number, key)| (*number, key))
    }

    /// Numbers of all keys that tokens are, or were, signed with.
    pub fn signing_keys(&self) -> impl Iterator<Item = u32> {
        self.signing.keys().copied()
    }

    /// Enters a change.
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
