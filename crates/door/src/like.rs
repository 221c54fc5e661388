//! What a copy of a file or directory, or its replacement, takes over from it: rights, and
//! attributes.
//!
//! Nobody may do more with the new one than with the old. The owner may be another, so the group
//! may be another, too. Then the group keeps only the rights that everybody has, and the ACL, which
//! says more about the group, is not copied.

use crate::file::File;
use crate::files::LOOK;
use crate::steps::Steps;
use leeward_env::Ctx;
use leeward_fs::rights;
use leeward_fs::{Attr, Error, Kind, NodeId, Op, Result, SetAttr, XattrMode};

const LIST: (Op<'static>, u64) = (Op::ListXattr { node: NodeId::ROOT }, 0);

/// Copies the permissions and the access ACL; the group, too, where that is wanted and the user is
/// in it. Setuid and setgid bits are not copied.
pub(crate) fn same_rights(steps: &Steps<'_>, from: &Attr, to: &Attr, keeps_group: bool) -> Result<()> {
    let takes_group = from.gid != to.gid && keeps_group && rights::is_in(steps.ctx, from.gid);
    let same_group = from.gid == to.gid || takes_group;
    let acl = steps.xattr(from.node, rights::ACL)?;
    let bits = match (same_group, &acl) {
        (true, _) => 0o777,
        (false, None) => 0o707 | from.mode << 3 & 0o070,
        // it may give a user less than everybody has
        (false, Some(_)) => 0o700,
    };
    let acl = acl.filter(|_| same_group);
    let changes_acl = acl.is_some() || steps.xattr(to.node, rights::ACL)?.is_some();
    if changes_acl {
        same_acl(steps, to.node, rights::ACL, acl.as_deref())?;
    }
    let sticky = if from.kind == Kind::Dir { 0o1000 } else { 0 };
    let mode = from.mode & (bits | sticky) | to.mode & 0o2000;
    let mode = (changes_acl || mode != to.mode).then_some(mode);
    let gid = takes_group.then_some(from.gid);
    if mode.is_some() || gid.is_some() {
        steps.call(Op::SetAttr { node: to.node, set: SetAttr { mode, gid, ..SetAttr::default() } })?;
    }
    Ok(())
}

/// The default ACL of a directory.
pub(crate) fn same_default(steps: &Steps<'_>, from: &Attr, to: &Attr) -> Result<()> {
    let acl = steps.xattr(from.node, rights::DEFAULT_ACL)?;
    same_acl(steps, to.node, rights::DEFAULT_ACL, acl.as_deref())
}

fn same_acl(steps: &Steps<'_>, node: NodeId, name: &[u8], acl: Option<&[u8]>) -> Result<()> {
    match acl {
        Some(acl) => steps.set_xattr(node, name, acl),
        None => match steps.call(Op::RemoveXattr { node, name }) {
            Ok(_) | Err(Error::NoData) => Ok(()),
            Err(e) => Err(e),
        },
    }
}

/// All attributes with names that users may give.
pub(crate) fn notes_of(steps: &Steps<'_>, node: NodeId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = steps.call(Op::ListXattr { node })?.names()?;
    let mut notes = Vec::new();
    for name in names.iter().filter(|name| name.starts_with(b"user.")) {
        if let Some(value) = steps.xattr(node, name)? {
            notes.push((name.to_vec(), value));
        }
    }
    Ok(notes)
}

/// Copies all attributes with names that users may give, in addition to existing ones; none where
/// the user may not read.
pub(crate) fn same_notes(steps: &Steps<'_>, from: &Attr, to: &Attr) -> Result<()> {
    if steps.permit(from, rights::R).is_err() {
        return Ok(());
    }
    let notes = notes_of(steps, from.node)?;
    notes.iter().try_for_each(|(name, value)| steps.set_xattr(to.node, name, value))
}

impl File {
    /// All attributes of the file with names that users may give.
    ///
    /// # Errors
    /// As for `getxattr`.
    pub async fn notes(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (files, ctx, node) = (self.held.files(), self.held.ctx(), self.held.node);
        files.run(ctx, LIST, move |steps| notes_of(steps, node)).await
    }

    /// Keeps something that the server has found out about the content, whoever asked, if the file
    /// is unchanged since it was opened.
    ///
    /// # Errors
    /// As for `setxattr`.
    pub async fn keep(&self, name: &'static [u8], value: Vec<u8>) -> Result<()> {
        let (files, attr) = (self.held.files(), self.attr);
        let server = Ctx { uid: 0, gid: 0, ..self.held.ctx() };
        let set = Op::SetXattr { node: NodeId::ROOT, name: b"", value: b"", mode: XattrMode::Set };
        let keep = move |steps: &Steps<'_>| match is_same(steps, &attr)? {
            true => steps.set_xattr(attr.node, name, &value),
            false => Ok(()),
        };
        files.run(server, (set, 0), keep).await
    }

    /// Whether the file is unchanged since it was opened.
    ///
    /// # Errors
    /// As for `fstat`.
    pub async fn is_same(&self) -> Result<bool> {
        let (files, ctx, attr) = (self.held.files(), self.held.ctx(), self.attr);
        files.run(ctx, LOOK, move |steps| is_same(steps, &attr)).await
    }
}

fn is_same(steps: &Steps<'_>, opened: &Attr) -> Result<bool> {
    let now = steps.attr_of(Op::GetAttr { node: opened.node })?;
    let of = |attr: &Attr| (attr.size, attr.mtime, attr.ctime);
    Ok(of(&now) == of(opened))
}
