//! How groups that users own are stored, and how many there may be.

use crate::format::accounts::{Reader, VERSION};
use crate::format::stored::Stored;
use leeward_fs::Result;
use leeward_fs::groups::{GidRange, GroupRecord, Member};
use leeward_meta::Value;

/// Memberships of all groups of a cell together.
pub const MEMBERSHIPS_MAX: u64 = 2_000_000;
/// Ranges of numbers of groups, old ones among them.
pub const RANGES_MAX: usize = 16;
/// The value of a membership: all that it says is in the key.
pub const MEMBERSHIP: [u8; 2] = [VERSION, 0];

const OWNED_BY_GROUP: u8 = 1;

impl Stored for GroupRecord {
    /// The encoding: version, owner (0: a user, 1: a group), created i64, the owner (a user: length
    /// u8, bytes; a group: u32), name to the end.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, u8::from(matches!(self.owner, Member::Group(_))) * OWNED_BY_GROUP];
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        match &self.owner {
            Member::User(name) => {
                out.push(name.len() as u8);
                out.extend_from_slice(name.as_bytes());
            }
            Member::Group(gid) => out.extend_from_slice(&gid.to_be_bytes()),
        }
        out.extend_from_slice(self.name.as_bytes());
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<GroupRecord> {
        let mut from = Reader { bytes, what: "group" };
        let kind = from.versioned()?;
        let created_secs = from.i64()?;
        let owner = match kind {
            0 => Member::User(from.short()?.into()),
            OWNED_BY_GROUP => Member::Group(from.u32()?),
            _ => return from.damaged(),
        };
        let name = from.text(from.bytes.len())?.into();
        Ok(GroupRecord { name, owner, created_secs })
    }
}

/// Most groups of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimit(pub u32);

impl Stored for GroupLimit {
    /// The encoding: version, 0, groups u32.
    fn encode(&self) -> Value {
        [&[VERSION, 0], &self.0.to_be_bytes()[..]].concat().into()
    }

    fn decode(bytes: &[u8]) -> Result<GroupLimit> {
        let mut from = Reader { bytes, what: "limit of groups" };
        from.versioned()?;
        let limit = from.u32()?;
        from.end()?;
        Ok(GroupLimit(limit))
    }
}

/// The numbers that groups get: ranges, of which the last one is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidRanges(pub Vec<GidRange>);

impl Stored for GidRanges {
    /// The encoding: version, 0, then for each range first, last and next, each u32.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, 0];
        for GidRange { first, last, next } in &self.0 {
            [first, last, next].iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
        }
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<GidRanges> {
        let mut from = Reader { bytes, what: "range of groups" };
        from.versioned()?;
        let mut ranges = Vec::new();
        while !from.bytes.is_empty() {
            ranges.push(GidRange { first: from.u32()?, last: from.u32()?, next: from.u32()? });
        }
        let fits =
            |r: &GidRange| r.first <= r.next && r.first <= r.last && r.next - r.first <= r.last - r.first + 1;
        if ranges.iter().all(fits) { Ok(GidRanges(ranges)) } else { from.damaged() }
    }
}
