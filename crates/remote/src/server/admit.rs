//! What a host may do, and whether what it sends makes sense.

use crate::message::{Call, Caller, FRAME_BYTES_MAX};
use leeward_env::{Ctx, Door, Flow, Groups, Machine, Wait, limits};
use leeward_fs::{DIRECTORIES_FIRST, Error, Make, NodeId, Op, Reply, Result, SetAttr, SetTime};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The user and group that root of a host is, where it is not to be root.
pub(super) const NOBODY: u32 = 65_534;
/// Most entries of one listing: with the longest names they fit into a frame.
const ENTRIES_MAX: usize = 2048;
/// Bytes of an entry with the longest name and attributes.
const ENTRY_BYTES: usize = 512;
/// Bits of a mode that can be set.
const MODE_BITS: u32 = 0o7777;
const NANOS_OF_SECOND: u32 = 1_000_000_000;

/// What a host may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Changes nothing.
    pub read_only: bool,
    /// Its root counts as nobody.
    pub root_squash: bool,
    /// First and last of the user ids that it speaks for; none: all.
    pub uids: Vec<(u32, u32)>,
    /// It is not believed who its users are: each proves it by a token (`server/logins.rs`).
    pub by_tokens: bool,
    /// May run doors: it is told what they need to know of users.
    pub gateway: bool,
    /// Sends snapshots to copies of volumes, and does nothing else.
    pub mirror: bool,
    /// Numbers of the volumes that it may use; none: all.
    pub volumes: Vec<u32>,
    /// Directories of other volumes that lead to those, and the names in them by which they do: it
    /// may look these up, and list the directories.
    pub ways: BTreeMap<NodeId, BTreeSet<Box<[u8]>>>,
}

impl Grant {
    /// Whether the server checks what users may do, as the host is not believed in everything.
    pub fn is_restricted(&self) -> bool {
        self.root_squash || !self.uids.is_empty() || self.by_tokens
    }

    /// Whether a user of the cell may be one of its users.
    pub(super) fn speaks_for(&self, uid: u32) -> bool {
        self.uids.is_empty() || self.uids.iter().any(|(first, last)| (*first..=*last).contains(&uid))
    }

    /// Whether the host may use what is in the volume of this inode.
    pub fn has(&self, node: NodeId) -> bool {
        self.volumes.is_empty() || self.volumes.contains(&node.volume())
    }

    /// Whether a name in this directory leads to a volume that the host may use.
    pub fn leads_on(&self, dir: NodeId, name: &[u8]) -> bool {
        self.ways.get(&dir).is_some_and(|names| names.contains(name))
    }

    /// Whether copies are to be left out of the answer to an operation on a directory that is not
    /// in a snapshot.
    pub(super) fn hides_copies(&self, op: &Op<'_>) -> bool {
        let finds = matches!(op, Op::Lookup { .. } | Op::List { .. });
        finds && !self.volumes.is_empty() && op.node().is_some_and(|node| !node.is_view())
    }

    /// Whether an operation only finds the way to a volume.
    fn is_on_way(&self, op: &Op<'_>, node: NodeId) -> bool {
        let Some(names) = self.ways.get(&node) else { return false };
        match op {
            // nothing else: names of snapshots lead to all that the volume has
            Op::Lookup { name, .. } => *name == b".." || names.contains(*name),
            Op::List { attrs, .. } => !attrs,
            Op::GetAttr { .. } | Op::StatFs { .. } | Op::GetXattr { .. } | Op::ListXattr { .. } => true,
            _ => false,
        }
    }
}

/// What a host with volumes of its own gets of an answer. Copies of volumes are shown by numbers
/// that do not say of which volume they are, so it gets none of them.
pub(super) fn without_copies(result: Result<Reply>) -> Result<Reply> {
    let is_copy = |node: NodeId| node.is_view() && node.volume() < DIRECTORIES_FIRST;
    match result {
        Ok(Reply::Attr(attr)) if is_copy(attr.node) => Err(Error::Access),
        Ok(Reply::Entries(mut entries)) => {
            entries.retain(|entry| !is_copy(entry.node));
            Ok(Reply::Entries(entries))
        }
        other => other,
    }
}

/// Whether a host may ask for an operation. `knows`: whether the client has a reference to an
/// inode.
///
/// # Errors
/// Those that the operation is answered with.
pub(super) fn admit(grant: &Grant, op: &Op<'_>, knows: &dyn Fn(NodeId) -> bool) -> Result<()> {
    check_values(op)?;
    if grant.mirror {
        return Err(Error::NotPermitted);
    }
    if grant.read_only
        && op.effect() != leeward_fs::Effect::Reads
        && op.effect() != leeward_fs::Effect::Settles
    {
        return Err(Error::ReadOnly);
    }
    for node in nodes(op).into_iter().flatten() {
        // numbers of snapshots are those of this server's process: who has one of another is told
        // so
        if node.is_view() && !knows(node) {
            return Err(Error::Stale);
        }
        if !node.is_view() && !grant.has(node) && !grant.is_on_way(op, node) {
            return Err(Error::Access);
        }
    }
    if !grant.volumes.is_empty() && matches!(op, Op::ListUploads { .. } | Op::StatUploads { .. }) {
        return Err(Error::Access); // these are about all volumes
    }
    Ok(())
}

fn is_squashed(grant: &Grant, caller: &Caller) -> bool {
    grant.root_squash && caller.uid == 0
}

/// The user of the cell that a user of a host is.
///
/// # Errors
/// The host does not speak for this user, or has named too many different lists of groups.
pub(super) fn user(grant: &Grant, (machine, caller): (Machine, &Caller)) -> Result<Ctx> {
    let squashed = is_squashed(grant, caller);
    if !squashed && !grant.speaks_for(caller.uid) {
        return Err(Error::NotPermitted);
    }
    let uid = if squashed { NOBODY } else { caller.uid };
    let (gid, gids) = groups(grant, caller, squashed);
    context((machine, caller), (uid, gid), &gids)
}

/// The context of a call of a machine by this user of the cell.
///
/// # Errors
/// The machine has named too many different lists of groups.
pub(super) fn context(
    (machine, caller): (Machine, &Caller),
    (uid, gid): (u32, u32),
    gids: &[u32],
) -> Result<Ctx> {
    let gids = Groups::of_stranger(Some(machine), uid, gids);
    let gids = gids.ok_or_else(|| Error::Io("this machine has named too many lists of groups".into()))?;
    Ok(Ctx {
        uid,
        gid,
        gids,
        door: Door::Remote,
        client: 0,
        machine: None,
        call: None,
        again: None,
        foretold: None,
        delegate: None,
        pid: 0,
        flow: Flow { uid, job: 0 },
        class: caller.class,
        wait: Wait::Never,
        refs: caller.refs,
    })
}

/// The groups of a caller. Where root is nobody, nobody is in root's group.
fn groups<'a>(grant: &Grant, caller: &'a Caller, squashed: bool) -> (u32, Cow<'a, [u32]>) {
    if !grant.root_squash {
        return (caller.gid, Cow::Borrowed(&caller.gids));
    }
    let is_refused = |gid: u32| squashed || gid == 0;
    let gid = if is_refused(caller.gid) { NOBODY } else { caller.gid };
    (gid, caller.gids.iter().copied().filter(|gid| !is_refused(*gid)).collect())
}

/// Bytes that the answer to a call may have.
pub(super) fn answer_bytes(call: &Call<'_>) -> usize {
    match call {
        Call::Op(_, op) | Call::InOrder(_, _, op) => match op {
            Op::Read { len, .. } => *len as usize,
            Op::List { limit, .. } | Op::ListParts { limit, .. } | Op::ListUploads { limit, .. } => {
                limit.saturating_mul(ENTRY_BYTES)
            }
            Op::GetXattr { .. } | Op::ListXattr { .. } => limits::XATTR_VALUE_BYTES_MAX,
            _ => 0,
        },
        Call::Access(_) => FRAME_BYTES_MAX,
        _ => 0,
    }
    .min(FRAME_BYTES_MAX)
}

/// Whether a host that names an inode to which it has a reference may have one.
pub(super) fn may_refer(grant: &Grant, node: NodeId) -> bool {
    !node.is_view() && (grant.has(node) || grant.ways.contains_key(&node))
}

/// The inodes that an operation is about.
pub(super) fn nodes(op: &Op<'_>) -> [Option<NodeId>; 3] {
    match *op {
        Op::Link { node, dir, .. } | Op::Place { node, dir, .. } => [Some(node), Some(dir), None],
        Op::Rename { from_dir, to_dir, .. } => [Some(from_dir), Some(to_dir), None],
        Op::CopyRange { from, to, .. } => [Some(from), Some(to), None],
        Op::KeepPart { node, upload, .. } => [Some(node), Some(upload), None],
        Op::CompleteUpload { upload, node, dir, .. } => [Some(upload), Some(node), Some(dir)],
        ref op => [op.node(), None, None],
    }
}

/// The same in a list.
pub(super) fn nodes_of(op: &Op<'_>) -> Vec<NodeId> {
    nodes(op).into_iter().flatten().collect()
}

/// What the kernel guarantees of every request, and a client may not.
fn check_values(op: &Op<'_>) -> Result<()> {
    match *op {
        Op::Lookup { name: b"..", .. } => Ok(()),
        Op::Make { name, make, mode, umask, .. } => {
            check_name(name)?;
            check_modes(mode, umask)?;
            check(!matches!(make, Make::Symlink(to) if to.is_empty() || to.contains(&0)))
        }
        Op::MakeUnnamed { mode, umask, .. } => check_modes(mode, umask),
        Op::SetAttr { set, .. } => check_set(&set),
        Op::GetXattr { name, .. } | Op::SetXattr { name, .. } | Op::RemoveXattr { name, .. } => {
            check(!name.is_empty() && !name.contains(&0))
        }
        Op::Lookup { name, .. }
        | Op::Link { name, .. }
        | Op::Unlink { name, .. }
        | Op::RmDir { name, .. }
        | Op::Place { name, .. }
        | Op::CompleteUpload { name, .. } => check_name(name),
        Op::Rename { from_name, to_name, .. } => check_name(from_name).and(check_name(to_name)),
        Op::Read { offset, len, .. } => {
            check(len as usize <= limits::WRITE_BYTES_MAX && i64::try_from(offset).is_ok())
        }
        Op::Write { offset, data, .. } => {
            check(data.len() <= limits::WRITE_BYTES_MAX && i64::try_from(offset).is_ok())
        }
        Op::Append { data, .. } => check(data.len() <= limits::WRITE_BYTES_MAX),
        Op::List { limit, .. } | Op::ListParts { limit, .. } | Op::ListUploads { limit, .. } => {
            check(limit <= ENTRIES_MAX)
        }
        Op::Allocate { offset, len, .. } => {
            let end = offset.checked_add(len).and_then(|end| i64::try_from(end).ok());
            check(len > 0 && end.is_some())
        }
        Op::CopyRange { from_offset, to_offset, len, .. } => {
            let fits = |offset: u64| offset.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok());
            check(fits(from_offset) && fits(to_offset))
        }
        Op::SeekTo { offset, .. } => check(i64::try_from(offset).is_ok()),
        // references are returned in calls of their own, which count them
        Op::Forget { .. } => Err(Error::Invalid),
        _ => Ok(()),
    }
}

fn check_modes(mode: u32, umask: u32) -> Result<()> {
    check((mode | umask) & !MODE_BITS == 0)
}

fn check_set(set: &SetAttr) -> Result<()> {
    let is_time = |time: &SetTime| matches!(time, SetTime::To(time) if time.nanos >= NANOS_OF_SECOND);
    let ids = [set.uid, set.gid];
    check_modes(set.mode.unwrap_or_default(), 0)?;
    check(set.size.is_none_or(|size| i64::try_from(size).is_ok()))?;
    check(!ids.contains(&Some(u32::MAX)))?;
    check(![set.atime, set.mtime].iter().flatten().any(is_time))
}

fn check(holds: bool) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Invalid) }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > limits::NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    check(!matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, b'/' | 0)))
}
