//! Rights of users of restricted hosts, which the server checks itself.
//!
//! The kernel of a host checks what its users may do. A host that may speak for some users only, or
//! whose root is nobody, may lie about that. So for such a host the server makes the checks of
//! Linux with each operation: those that a kernel makes for a mount with `default_permissions`.
//! Three things differ, as no file is open at the server:
//!
//! * An inode must be known to the session: the client holds a reference to it, which it got by
//!   looking up a name in a directory that its user may search. So numbers of inodes cannot be
//!   guessed. What one user of a session has found counts for all users that the host speaks for.
//! * The owner of a file may always read and write it, as with NFS: a file that was open when its
//!   mode was changed stays usable.
//! * Who may execute a regular file may read it.
//!
//! The checks and the operation have one turn at the gate, and are repeated together. They are no
//! transaction: a change by somebody else may come between them, as after a check of the kernel of
//! any other host.

use super::admit;
use super::session::Session;
use leeward_env::{Ctx, Wait};
use leeward_fs::rights::{self, R, W, X};
use leeward_fs::{
    Attr, Error, Kind, Make, NodeId, Op, Precondition, RenameMode, Reply, Result, SetAttr, SetTime,
};
use leeward_vfs::{Attempt, Gate, Outcome, OwnedOp};
use std::sync::Arc;

/// setuid and setgid.
const SET_IDS: u32 = 0o6000;
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_X: u32 = 0o010;

/// Runs an operation of a restricted host, if its user may do it.
pub(super) fn run(
    gate: &Gate,
    session: &Arc<Session>,
    ctx: Ctx,
    op: Op<'_>,
    answer: impl FnOnce(Result<Reply>) + Send + 'static,
) {
    let (of, session) = (gate.clone(), session.clone());
    let bytes = op.moved_bytes();
    let op = OwnedOp::from(op);
    gate.run_all(ctx, (op.shape(), bytes), (op, answer), move |ctx, (op, answer)| {
        let result = attempt(&of, &session, ctx, op.as_op());
        if ctx.wait == Wait::Never && result == Err(Error::WouldBlock) {
            return Attempt::Wait((op, answer));
        }
        let outcome = Outcome::of(&op.shape(), &result);
        answer(result);
        Attempt::Done(outcome)
    });
}

/// Finds out whether the user may open a file, for reading or for writing.
pub(super) fn may_open(
    gate: &Gate,
    session: &Arc<Session>,
    ctx: Ctx,
    node: NodeId,
    then: impl FnOnce(Result<()>) + Send + 'static,
) {
    let (of, session) = (gate.clone(), session.clone());
    let op = OwnedOp::from(Op::GetAttr { node });
    gate.run_all(ctx, (op.shape(), 0), (op, then), move |ctx, (op, then)| {
        let checks = Checks { gate: &of, ctx: Ctx { refs: false, ..*ctx } };
        let result = if session.knows(node) { checks.read_or_write(node) } else { Err(Error::Stale) };
        if ctx.wait == Wait::Never && result == Err(Error::WouldBlock) {
            return Attempt::Wait((op, then));
        }
        let outcome = Outcome::of(&op.shape(), &result.clone().map(|()| Reply::Done));
        then(result);
        Attempt::Done(outcome)
    });
}

fn attempt(gate: &Gate, session: &Session, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
    if ctx.wait == Wait::Never && op.usually_waits() {
        return Err(Error::WouldBlock);
    }
    if admit::nodes(&op).into_iter().flatten().any(|node| !session.knows(node)) {
        return Err(Error::Stale);
    }
    let checks = Checks { gate, ctx: Ctx { refs: false, ..*ctx } };
    gate.call(ctx, checks.permitted(op)?)
}

/// The checks for one operation.
struct Checks<'a> {
    gate: &'a Gate,
    /// The user; without references.
    ctx: Ctx,
}

impl Checks<'_> {
    /// The operation in the form in which the user may do it.
    fn permitted<'o>(&self, op: Op<'o>) -> Result<Op<'o>> {
        match op {
            Op::Lookup { dir, .. } => drop(self.may(dir, X)?),
            Op::List { .. } => return self.list(op),
            // who knows an inode may see what these tell; which names a user may see the cell
            // checks
            Op::GetAttr { .. } | Op::ReadLink { .. } | Op::StatFs { .. } | Op::ListXattr { .. } => (),
            Op::Fsync { .. } | Op::SyncAll => (),
            Op::SetAttr { node, set } => return Ok(Op::SetAttr { node, set: self.set_attr(node, set)? }),
            Op::Make { .. } | Op::MakeUnnamed { .. } => return self.make(op),
            Op::Link { node, dir, .. } => self.link(node, dir)?,
            Op::Place { node, dir, name, over } => self.place(node, (dir, name), over)?,
            Op::Unlink { dir, name, .. } | Op::RmDir { dir, name } => self.remove(dir, name)?,
            Op::Rename { from_dir, from_name, to_dir, to_name, mode } => {
                self.rename((from_dir, from_name), (to_dir, to_name), mode)?;
            }
            Op::Read { node, .. } | Op::SeekTo { node, .. } | Op::ContentVersions { node, .. } => {
                self.read(node)?;
            }
            Op::Write { node, .. } | Op::Append { node, .. } | Op::Allocate { node, .. } => {
                self.write(node)?
            }
            Op::CopyRange { from, to, .. } => self.read(from).and_then(|()| self.write(to))?,
            Op::GetXattr { node, name } => self.get_xattr(node, name)?,
            // what a kernel asks for before somebody writes to the file
            Op::RemoveXattr { node, name: rights::CAPABILITY } => self.write(node)?,
            Op::SetXattr { node, name, .. } | Op::RemoveXattr { node, name } => self.set_xattr(node, name)?,
            // of doors, which are on the server
            Op::BeginUpload { .. }
            | Op::KeepPart { .. }
            | Op::CompleteUpload { .. }
            | Op::EndUpload { .. }
            | Op::GetUpload { .. }
            | Op::ListParts { .. }
            | Op::ListUploads { .. }
            | Op::StatUploads { .. } => return Err(Error::NotSupported),
            // comes in calls of its own
            Op::Forget { .. } => return Err(Error::Invalid),
        }
        Ok(op)
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        self.gate.call(&self.ctx, Op::GetAttr { node })?.attr()
    }

    /// What has this name in a directory.
    fn find(&self, dir: NodeId, name: &[u8]) -> Result<Option<Attr>> {
        match self.gate.call(&self.ctx, Op::Lookup { dir, name }) {
            Ok(reply) => reply.attr().map(Some),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn access_acl(&self, node: NodeId) -> Result<Option<Vec<u8>>> {
        match self.gate.call(&self.ctx, Op::GetXattr { node, name: rights::ACL }) {
            Ok(reply) => reply.data().map(Some),
            Err(Error::NoData) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn permit(&self, attr: &Attr, want: u32) -> Result<()> {
        let acl = if rights::asks_acl(&self.ctx, attr) { self.access_acl(attr.node)? } else { None };
        rights::permit(&self.ctx, attr, acl.as_deref(), want)
    }

    /// The attributes of an inode with which the user may do `want`.
    fn may(&self, node: NodeId, want: u32) -> Result<Attr> {
        let attr = self.attr(node)?;
        self.permit(&attr, want)?;
        Ok(attr)
    }

    fn is_owner(&self, attr: &Attr) -> bool {
        [0, attr.uid].contains(&self.ctx.uid)
    }

    fn owns(&self, attr: &Attr) -> Result<()> {
        if self.is_owner(attr) { Ok(()) } else { Err(Error::NotPermitted) }
    }

    fn is_root(&self) -> bool {
        self.ctx.uid == 0
    }

    fn is_in(&self, gid: u32) -> bool {
        self.is_root() || rights::is_in(&self.ctx, gid)
    }

    /// Who may read a directory but not search it sees names and no attributes: with them the
    /// client would get references.
    fn list<'o>(&self, op: Op<'o>) -> Result<Op<'o>> {
        let Op::List { dir, after, limit, attrs } = op else { return Ok(op) };
        let of = self.may(dir, R)?;
        let attrs = attrs && granted(self.permit(&of, X))?;
        Ok(Op::List { dir, after, limit, attrs })
    }

    fn read(&self, node: NodeId) -> Result<()> {
        let attr = self.attr(node)?;
        if self.is_owner(&attr) || attr.kind == Kind::File && granted(self.permit(&attr, X))? {
            return Ok(());
        }
        self.permit(&attr, R)
    }

    fn read_or_write(&self, node: NodeId) -> Result<()> {
        match self.read(node) {
            Err(Error::Access) => self.write(node),
            result => result,
        }
    }

    fn write(&self, node: NodeId) -> Result<()> {
        self.write_to(&self.attr(node)?)
    }

    fn write_to(&self, attr: &Attr) -> Result<()> {
        if self.is_owner(attr) { Ok(()) } else { self.permit(attr, W) }
    }

    fn make<'o>(&self, op: Op<'o>) -> Result<Op<'o>> {
        match op {
            Op::Make { dir, name, make, mode, umask } => {
                let of = self.may(dir, W | X)?;
                let is_device = match make {
                    // what overlay file systems put for a removed name
                    Make::CharDev(0) => false,
                    Make::CharDev(_) | Make::BlockDev(_) => true,
                    Make::File | Make::Dir | Make::Symlink(_) | Make::Fifo | Make::Socket => false,
                };
                if is_device && !self.is_root() {
                    return Err(Error::NotPermitted);
                }
                let mode = if make == Make::Dir { mode } else { self.new_mode(&of, mode) };
                Ok(Op::Make { dir, name, make, mode, umask })
            }
            Op::MakeUnnamed { dir, mode, umask, bytes } => {
                let mode = self.new_mode(&self.may(dir, W | X)?, mode);
                Ok(Op::MakeUnnamed { dir, mode, umask, bytes })
            }
            op => Ok(op),
        }
    }

    /// The mode of a new file: a program that would run with the group of the directory is made by
    /// who is in that group.
    fn new_mode(&self, dir: &Attr, mode: u32) -> u32 {
        let runs_as_group = mode & (SET_GID | GROUP_X) == SET_GID | GROUP_X;
        if runs_as_group && dir.mode & SET_GID != 0 && !self.is_in(dir.gid) { mode & !SET_GID } else { mode }
    }

    /// As with `protected_hardlinks`: who is not the owner must be able to read and write the file.
    fn link(&self, node: NodeId, dir: NodeId) -> Result<()> {
        let attr = self.attr(node)?;
        let runs_as_other = attr.mode & SET_UID != 0 || attr.mode & (SET_GID | GROUP_X) == SET_GID | GROUP_X;
        let is_plain = attr.kind == Kind::File && !runs_as_other;
        let may_link = self.is_owner(&attr) || is_plain && granted(self.permit(&attr, R | W))?;
        if !may_link {
            return Err(Error::NotPermitted);
        }
        self.may(dir, W | X).map(drop)
    }

    fn place(&self, node: NodeId, (dir, name): (NodeId, &[u8]), over: Precondition) -> Result<()> {
        self.link(node, dir)?;
        match over {
            Precondition::Nothing => Ok(()),
            Precondition::Any | Precondition::This(..) => match self.find(dir, name)? {
                Some(old) => rights::permit_removal(&self.ctx, &self.attr(dir)?, &old),
                None => Ok(()),
            },
        }
    }

    fn remove(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        let of = self.may(dir, X)?;
        let entry = self.find(dir, name)?.ok_or(Error::NotFound)?;
        self.leave(&of, &entry)
    }

    /// Whether a name of `entry` may go from a directory.
    fn leave(&self, dir: &Attr, entry: &Attr) -> Result<()> {
        self.permit(dir, W | X)?;
        rights::permit_removal(&self.ctx, dir, entry)
    }

    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode: RenameMode) -> Result<()> {
        let (from_dir, to_dir) = (self.may(from.0, X)?, self.may(to.0, X)?);
        let source = self.find(from.0, from.1)?.ok_or(Error::NotFound)?;
        let target = self.find(to.0, to.1)?;
        if mode == RenameMode::NoReplace && target.is_some() {
            return Err(Error::Exists);
        }
        self.leave(&from_dir, &source)?;
        match &target {
            Some(target) => self.leave(&to_dir, target)?,
            None => self.permit(&to_dir, W | X)?,
        }
        if from.0 == to.0 {
            return Ok(());
        }
        self.reparent(&source)?;
        match target.filter(|_| mode == RenameMode::Exchange) {
            Some(target) => self.reparent(&target),
            None => Ok(()),
        }
    }

    /// Whether the directory above may become another one: a directory's `..` changes then.
    fn reparent(&self, entry: &Attr) -> Result<()> {
        if entry.kind == Kind::Dir { self.permit(entry, W) } else { Ok(()) }
    }

    /// What is set of the wanted values. Who may change flags the cell checks.
    fn set_attr(&self, node: NodeId, set: SetAttr) -> Result<SetAttr> {
        let attr = self.attr(node)?;
        self.set_owner(&attr, &set)?;
        if let Some(mode) = set.mode
            && !only_takes_set_ids(&attr, &set, mode)
        {
            self.owns(&attr)?;
        }
        if [set.atime, set.mtime].iter().any(|time| matches!(time, Some(SetTime::To(_)))) {
            self.owns(&attr)?;
        }
        let is_touch = [set.atime, set.mtime].contains(&Some(SetTime::Now));
        if is_touch || set.size.is_some() || set.mode.is_some() {
            self.write_to(&attr)?;
        }
        let gid = set.gid.unwrap_or(attr.gid);
        Ok(SetAttr { mode: set.mode.map(|mode| if self.is_in(gid) { mode } else { mode & !SET_GID }), ..set })
    }

    /// Only root gives files away. An owner may choose among the groups that the owner is in.
    fn set_owner(&self, attr: &Attr, set: &SetAttr) -> Result<()> {
        let keeps_uid = set.uid.is_none_or(|uid| self.ctx.uid == attr.uid && uid == attr.uid);
        let may_have = |gid| self.ctx.uid == attr.uid && (gid == attr.gid || self.is_in(gid));
        if self.is_root() || keeps_uid && set.gid.is_none_or(may_have) {
            return Ok(());
        }
        Err(Error::NotPermitted)
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Result<()> {
        match Space::of(name) {
            Space::Acl | Space::Security => Ok(()),
            Space::Trusted if self.is_root() => Ok(()),
            Space::Trusted => Err(Error::NoData),
            Space::User | Space::Other => self.may(node, R).map(drop),
        }
    }

    fn set_xattr(&self, node: NodeId, name: &[u8]) -> Result<()> {
        match Space::of(name) {
            Space::Trusted | Space::Security if self.is_root() => Ok(()),
            Space::Trusted | Space::Security => Err(Error::NotPermitted),
            Space::Acl => self.owns(&self.attr(node)?),
            Space::User => {
                let attr = self.attr(node)?;
                rights::permit_user_xattr(&self.ctx, &attr)?;
                self.permit(&attr, W)
            }
            // the cell's own: it checks the rest
            Space::Other => self.may(node, W).map(drop),
        }
    }
}

/// Whether a right is there; an error when that cannot be found out.
fn granted(permitted: Result<()>) -> Result<bool> {
    match permitted {
        Ok(()) => Ok(true),
        Err(Error::Access) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether a change of attributes only takes setuid and setgid away: what a kernel asks for before
/// somebody writes to the file.
fn only_takes_set_ids(attr: &Attr, set: &SetAttr, mode: u32) -> bool {
    let is_only = *set == SetAttr { mode: Some(mode), ..SetAttr::default() };
    is_only && mode & !attr.mode == 0 && (mode ^ attr.mode) & !SET_IDS == 0
}

/// What an extended attribute is for, which says who may use it.
enum Space {
    User,
    Trusted,
    Security,
    /// ACLs; there is nothing else of the system's.
    Acl,
    Other,
}

impl Space {
    fn of(name: &[u8]) -> Space {
        let spaces = [
            (&b"user."[..], Space::User),
            (b"trusted.", Space::Trusted),
            (b"security.", Space::Security),
            (b"system.", Space::Acl),
        ];
        let found = spaces.into_iter().find(|(prefix, _)| name.starts_with(prefix));
        found.map_or(Space::Other, |(_, space)| space)
    }
}
