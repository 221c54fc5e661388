//! Owners, permissions, times, ACLs and extended attributes.

use super::pass::Pass;
use super::problem::{OnSide, Problem};
use super::state;
use crate::acl;
use crate::sys::{Inode, Kind, Stat};
use std::ffi::CString;
use std::io;

/// Attributes that file systems invent and that say nothing elsewhere.
const INVENTED: [&[u8]; 8] =
    [b"ceph.", b"afs.", b"leeward.", b"lustre.", b"btrfs.", b"glusterfs.", b"cifs.", b"beegfs."];
/// Attributes that belong to the machine, not to the file.
const OF_THE_MACHINE: [&[u8]; 3] = [b"security.selinux", b"security.ima", b"security.evm"];

/// Whether an attribute is brought.
fn is_brought(name: &[u8]) -> bool {
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let of_users = spaces.iter().any(|space| name.starts_with(space)) && !OF_THE_MACHINE.contains(&name);
    (of_users || name == acl::ACCESS || name == acl::DEFAULT) && !state::is_name(name)
}

/// Whether it is worth a word that an attribute is not brought.
fn is_missed(name: &[u8]) -> bool {
    let silent = INVENTED.iter().any(|space| name.starts_with(space)) || OF_THE_MACHINE.contains(&name);
    !is_brought(name) && !silent && !state::is_name(name)
}

/// Whether owner, permissions and time are the same.
pub(super) fn looks_same(source: &Stat, target: &Stat) -> bool {
    let mode = source.kind == Kind::Symlink || source.mode == target.mode;
    mode && (source.uid, source.gid, source.mtime) == (target.uid, target.gid, target.mtime)
}

/// What became of extended attributes and ACLs.
struct Extended {
    changed: bool,
    /// The first that the target refused.
    refused: Option<Problem>,
    /// What the owning group may do by an ACL that was not set.
    group: Option<u32>,
}

impl Pass {
    /// Makes all attributes of the target those of the source. Times come last: the other calls do
    /// not change them, but content does. What the target refused keeps another time, so that each
    /// pass looks at it and tells it again.
    pub(super) fn attributes(&self, from: &Inode, stat: &Stat, to: &Inode) -> Result<(), Problem> {
        let there = to.stat().target()?;
        let given = (there.uid, there.gid) != (stat.uid, stat.gid) && self.give(to, stat)?;
        let Extended { changed, refused, group } = self.extended(from, to)?;
        let same_mode = there.mode == stat.mode && !given && !changed;
        if stat.kind != Kind::Symlink && !same_mode {
            self.set_mode(to, stat, group)?;
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        if there.mtime != stat.mtime {
            to.set_times(stat.atime, stat.mtime).target()?;
        }
        Ok(())
    }

    /// Sets the owner, where that is allowed. Returns whether it did.
    fn give(&self, to: &Inode, stat: &Stat) -> Result<bool, Problem> {
        match to.give(stat.uid, stat.gid) {
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                self.report.lock().summary.owners_left_out += 1;
                Ok(false)
            }
            given => given.target().map(|()| true),
        }
    }

    /// Sets the permissions. A file that could not get its owner gets no setuid and setgid: they
    /// would make its program run as somebody else than in the source. Without its ACL the group
    /// gets only what the ACL gave it: the bits of the mode were the mask, so what anybody in the
    /// ACL had.
    fn set_mode(&self, to: &Inode, stat: &Stat, group: Option<u32>) -> Result<(), Problem> {
        let there = to.stat().target()?;
        let owned = (there.uid, there.gid) == (stat.uid, stat.gid);
        let mode = if owned || stat.kind == Kind::Directory { stat.mode } else { stat.mode & 0o1777 };
        let narrowed = group.map_or(mode, |rights| mode & (!0o070 | rights << 3));
        if narrowed != mode {
            self.report.lock().summary.groups_narrowed += 1;
        }
        to.set_mode(narrowed).target()
    }

    /// Extended attributes and ACLs.
    fn extended(&self, from: &Inode, to: &Inode) -> Result<Extended, Problem> {
        let (ours, theirs) = (from.attribute_names().source()?, to.attribute_names().target()?);
        for name in ours.iter().filter(|name| is_missed(name.to_bytes())) {
            self.count_left_out(name);
        }
        let (mut results, mut group) = (Vec::new(), None);
        for name in ours.iter().filter(|name| is_brought(name.to_bytes())) {
            let Some(value) = from.attribute(name).source()? else { continue };
            let is_there = theirs.binary_search(name).is_ok();
            if !is_there || to.attribute(name).target()?.as_ref() != Some(&value) {
                let result = to.set_attribute(name, &value);
                if result.is_err() && name.to_bytes() == acl::ACCESS {
                    group = Some(acl::group_rights(&value));
                }
                results.push((name, result));
            }
        }
        let is_old = |name: &&CString| is_brought(name.to_bytes()) && ours.binary_search(name).is_err();
        results.extend(theirs.iter().filter(is_old).map(|name| (name, to.remove_attribute(name))));
        let changed = !results.is_empty();
        let refused: Vec<Problem> =
            results.into_iter().filter_map(|(name, result)| self.taken(name, result).err()).collect();
        Ok(Extended { changed, refused: refused.into_iter().next(), group })
    }

    /// What the target does not know, or allows root alone, is left out.
    fn taken(&self, name: &CString, result: io::Result<()>) -> Result<(), Problem> {
        match result {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTSUP | libc::EPERM | libc::EACCES)) => {
                self.count_left_out(name);
                Ok(())
            }
            result => result.map_err(|e| Problem::Attribute(name.clone(), e)),
        }
    }

    fn count_left_out(&self, name: &CString) {
        let mut report = self.report.lock();
        let counts = &mut report.summary.attributes_left_out;
        let name = name.to_string_lossy().into_owned();
        if counts.len() < super::LISTED_MAX || counts.contains_key(&name) {
            *counts.entry(name).or_default() += 1;
        }
    }
}
