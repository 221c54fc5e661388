//! How users, their S3 keys and the keys that tokens are signed with are stored, and how many there
//! may be.

use crate::format::stored::Stored;
use leeward_fs::accounts::{KeyRecord, Numbers, Secret, SigningRecord, UserRecord};
use leeward_fs::{Error, Result};
use leeward_meta::Value;

/// Most users.
pub const USERS_MAX: usize = 20_000;
/// Most S3 keys.
pub const KEYS_MAX: usize = 50_000;
/// Most S3 keys of one user.
pub const KEYS_PER_USER_MAX: usize = 100;
/// Most groups of a user.
pub const GROUPS_MAX: usize = 256;
/// Longest label of a key, bytes.
pub const LABEL_BYTES_MAX: usize = 128;

const VERSION: u8 = 1;
const HAS_NUMBERS: u8 = 1;
const DISABLED: u8 = 2;

impl Stored for UserRecord {
    /// The encoding: version, flags (1: has numbers, 2: disabled), generation u32, created i64;
    /// with numbers: user id u32, number of groups u16, groups u32 each.
    fn encode(&self) -> Value {
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

    fn decode(bytes: &[u8]) -> Result<UserRecord> {
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

impl Stored for KeyRecord {
    /// The encoding: version, 0, created i64, user (length u8, bytes), secret (length u8, bytes),
    /// label to the end.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, 0];
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        for text in [self.user.as_str(), self.secret.reveal()] {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(self.label.as_bytes());
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<KeyRecord> {
        let mut from = Reader { bytes, what: "key" };
        from.versioned()?;
        let created_secs = from.i64()?;
        let user = from.short()?;
        let secret = Secret::new(from.short()?);
        let label = from.text(from.bytes.len())?;
        Ok(KeyRecord { user, secret, label, created_secs })
    }
}

impl Stored for SigningRecord {
    /// The encoding: version, 0, created i64, 32 bytes of key.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, 0];
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        out.extend_from_slice(&self.secret);
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<SigningRecord> {
        let mut from = Reader { bytes, what: "signing key" };
        from.versioned()?;
        let created_secs = from.i64()?;
        let secret = from.array()?;
        from.end()?;
        Ok(SigningRecord { secret, created_secs })
    }
}

/// Reads an encoding field by field.
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
