//! How users, their S3 keys, the keys that tokens are signed with, hosts and the cell's own key
//! pair are stored, and how many there may be.

use crate::format::stored::Stored;
use leeward_fs::accounts::{
    HostRecord, Identity, Invitation, KeyRecord, Numbers, Secret, SigningRecord, Trust, UidRange, UserRecord,
};
use leeward_fs::{Error, Result};
use leeward_meta::Value;
use ring::signature::Ed25519KeyPair;

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
/// Most hosts.
pub const HOSTS_MAX: usize = 20_000;
/// Most volumes that a host is allowed by name.
pub const HOST_VOLUMES_MAX: usize = 1_000;
/// Most ranges of user ids of a host.
pub const HOST_UID_RANGES_MAX: usize = 256;

/// Version of all these records.
pub(super) const VERSION: u8 = 1;
/// Flags of users.
const HAS_NUMBERS: u8 = 1;
const DISABLED: u8 = 2;
/// Flags of keys.
const MADE_ON_A_HOST: u8 = 1;
/// Flags of hosts.
const ENROLLED: u8 = 1;
const INVITED: u8 = 2;
const READ_ONLY: u8 = 4;
const ROOT_SQUASH: u8 = 8;
const TRUSTS_USERS: u8 = 16;
const GATEWAY: u8 = 32;
const MIRROR: u8 = 64;

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
    /// The encoding: version, flags (1: was made on a host), created i64, user (length u8, bytes),
    /// secret (length u8, bytes), with flag 1 the host (length u8, bytes), label to the end.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, u8::from(self.host.is_some()) * MADE_ON_A_HOST];
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        for text in [self.user.as_str(), self.secret.reveal()].into_iter().chain(self.host.as_deref()) {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(self.label.as_bytes());
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<KeyRecord> {
        let mut from = Reader { bytes, what: "key" };
        let flags = from.versioned()?;
        let created_secs = from.i64()?;
        let user = from.short()?;
        let secret = Secret::new(from.short()?);
        let host = (flags & MADE_ON_A_HOST != 0).then(|| from.short()).transpose()?;
        let label = from.text(from.bytes.len())?;
        Ok(KeyRecord { user, secret, label, host, created_secs })
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

impl Stored for HostRecord {
    /// The encoding: version, flags (1: has enrolled, 2: is invited, 4: read only, 8: root is
    /// squashed, 16: users are trusted and not the host, 32: is a gateway, 64: sends to copies),
    /// created i64; with flag 1: key (32 bytes), enrolled i64; with flag 2: SHA-256 of the secret
    /// (32 bytes), expires i64; number of volumes u16, volumes u32 each; number of ranges of user
    /// ids u16, first and last u32 each.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, host_flags(self)];
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        if let Some(key) = &self.key {
            out.extend_from_slice(key);
            out.extend_from_slice(&self.enrolled_secs.unwrap_or_default().to_be_bytes());
        }
        if let Some(invitation) = &self.invitation {
            out.extend_from_slice(&invitation.secret_hash);
            out.extend_from_slice(&invitation.expires_secs.to_be_bytes());
        }
        out.extend_from_slice(&(self.volumes.len() as u16).to_be_bytes());
        self.volumes.iter().for_each(|volume| out.extend_from_slice(&volume.to_be_bytes()));
        out.extend_from_slice(&(self.uids.len() as u16).to_be_bytes());
        for range in &self.uids {
            out.extend_from_slice(&range.first.to_be_bytes());
            out.extend_from_slice(&range.last.to_be_bytes());
        }
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<HostRecord> {
        let mut from = Reader { bytes, what: "host" };
        let flags = from.versioned()?;
        let is = |flag| flags & flag != 0;
        let created_secs = from.i64()?;
        let enrolled = is(ENROLLED).then(|| from.timed()).transpose()?;
        let invitation = is(INVITED).then(|| from.timed()).transpose()?;
        let volumes = (0..from.u16()?).map(|_| from.u32()).collect::<Result<_>>()?;
        let uids = (0..from.u16()?).map(|_| from.uid_range()).collect::<Result<_>>()?;
        from.end()?;
        Ok(HostRecord {
            key: enrolled.map(|(key, _)| key),
            invitation: invitation
                .map(|(secret_hash, expires_secs)| Invitation { secret_hash, expires_secs }),
            volumes,
            read_only: is(READ_ONLY),
            uids,
            root_squash: is(ROOT_SQUASH),
            trust: if is(TRUSTS_USERS) { Trust::User } else { Trust::Host },
            gateway: is(GATEWAY),
            mirror: is(MIRROR),
            created_secs,
            enrolled_secs: enrolled.map(|(_, secs)| secs),
        })
    }
}

fn host_flags(host: &HostRecord) -> u8 {
    let flags = [
        (host.key.is_some(), ENROLLED),
        (host.invitation.is_some(), INVITED),
        (host.read_only, READ_ONLY),
        (host.root_squash, ROOT_SQUASH),
        (host.trust == Trust::User, TRUSTS_USERS),
        (host.gateway, GATEWAY),
        (host.mirror, MIRROR),
    ];
    flags.into_iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum()
}

impl Stored for Identity {
    /// The encoding: version, 0, seed (32 bytes), public key (32 bytes).
    fn encode(&self) -> Value {
        [&[VERSION, 0], &self.seed[..], &self.public].concat().into()
    }

    fn decode(bytes: &[u8]) -> Result<Identity> {
        let mut from = Reader { bytes, what: "key pair" };
        from.versioned()?;
        let (seed, public) = (from.array()?, from.array()?);
        from.end()?;
        // hosts know the cell by its public key: with another one it would be another cell
        match Ed25519KeyPair::from_seed_and_public_key(&seed, &public) {
            Ok(_) => Ok(Identity { seed, public }),
            Err(_) => from.damaged(),
        }
    }
}

/// Reads an encoding field by field.
pub(super) struct Reader<'a> {
    /// What is left.
    pub bytes: &'a [u8],
    /// What it is, for messages.
    pub what: &'static str,
}

impl Reader<'_> {
    pub fn damaged<T>(&self) -> Result<T> {
        Err(Error::Corrupt(format!("the record of a {} cannot be read", self.what)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((first, rest)) = self.bytes.split_first_chunk::<N>() else { return self.damaged() };
        self.bytes = rest;
        Ok(*first)
    }

    /// The byte after the version.
    pub fn versioned(&mut self) -> Result<u8> {
        match self.array()? {
            [VERSION, flags] => Ok(flags),
            _ => self.damaged(),
        }
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A key or a hash, then a time.
    fn timed(&mut self) -> Result<([u8; 32], i64)> {
        Ok((self.array()?, self.i64()?))
    }

    fn uid_range(&mut self) -> Result<UidRange> {
        Ok(UidRange { first: self.u32()?, last: self.u32()? })
    }

    pub fn text(&mut self, len: usize) -> Result<String> {
        let Some((text, rest)) = self.bytes.split_at_checked(len) else { return self.damaged() };
        self.bytes = rest;
        String::from_utf8(text.to_vec()).or_else(|_| self.damaged())
    }

    /// Length u8, then as much text.
    pub fn short(&mut self) -> Result<String> {
        let [len] = self.array()?;
        self.text(len.into())
    }

    pub fn end(&self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { self.damaged() }
    }
}
