//! A cell. Users act from a restricted host, as its kernel would: they look up each name on the
//! way.

use super::{Do, Kind, NOBODY, READ_ACL, THINGS, User, World, XATTRS, value};
use crate::rig::Rig;
use leeward_env::{Ctx, Groups};
use leeward_fs::{
    Attr, Error, Make, NodeId, Op, Precondition, RenameMode, Reply, Result, SetAttr, SetTime, Time, XattrMode,
};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;

pub struct Served {
    /// A host that is believed in everything.
    pub all: Client,
    /// A host that speaks for some users, root among them.
    pub some: Client,
    /// A host whose root is nobody.
    pub squash: Client,
    _rig: Rig, // serves as long as it is there
}

/// Of those of kernels.
const UMASK: u32 = 0o022;

impl Served {
    pub fn new() -> Served {
        let rig = Rig::new();
        let all = rig.host("all", Grant::default());
        let some = rig.host("some", Grant { uids: vec![(0, 1999)], ..Grant::default() });
        let squash =
            rig.host("squash", Grant { root_squash: true, uids: vec![(1000, 1999)], ..Grant::default() });
        Served { all, some, squash, _rig: rig }
    }

    /// Whom a user asks, and as whom: nobody is root of a host whose root is nobody.
    pub fn of(&self, user: User) -> (&Client, Ctx) {
        match user.uid {
            NOBODY => (&self.squash, context(User { uid: 0, groups: user.groups })),
            _ => (&self.some, context(user)),
        }
    }
}

pub fn context(user: User) -> Ctx {
    Ctx { refs: true, gids: Groups::of(user.groups), ..Ctx::user(user.uid, user.uid) }
}

/// A user on a host.
pub struct Seat<'a> {
    pub client: &'a Client,
    pub ctx: Ctx,
}

impl Seat<'_> {
    pub fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.client.call(&self.ctx, op)
    }

    pub fn look_up(&self, dir: NodeId, name: &[u8]) -> Result<Attr> {
        self.call(Op::Lookup { dir, name })?.attr()
    }

    /// The inode at a path.
    pub fn at(&self, path: &str) -> Result<NodeId> {
        path.split('/').try_fold(NodeId::ROOT, |dir, name| Ok(self.look_up(dir, name.as_bytes())?.node))
    }

    /// The directory of a path, and the last name.
    pub fn split<'p>(&self, path: &'p str) -> Result<(NodeId, &'p [u8])> {
        let (dir, name) = path.rsplit_once('/').expect("a path with a directory");
        Ok((self.at(dir)?, name.as_bytes()))
    }

    pub fn set(&self, node: NodeId, set: SetAttr) -> Result<Attr> {
        self.call(Op::SetAttr { node, set })?.attr()
    }

    fn set_xattr(&self, node: NodeId, name: &str) -> Result<Reply> {
        let (value, mode) = (value(name), XattrMode::Set);
        self.call(Op::SetXattr { node, name: name.as_bytes(), value: &value, mode })
    }

    fn make(&self, path: &str, make: Make<'_>, mode: u32) -> Result<Reply> {
        let (dir, name) = self.split(path)?;
        self.call(Op::Make { dir, name, make, mode, umask: UMASK })
    }

    fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<Reply> {
        let ((from_dir, from_name), (to_dir, to_name)) = (self.split(from)?, self.split(to)?);
        self.call(Op::Rename { from_dir, from_name, to_dir, to_name, mode })
    }

    fn act(&self, row: &str, what: Do) -> Result<Reply> {
        let full = |path: &str| format!("{row}/{path}");
        let at = |path: &str| self.at(&full(path));
        let set = |path, set| self.set(at(path)?, set).map(Reply::Attr);
        let none = SetAttr::default();
        match what {
            Do::Stat(path) => self.call(Op::GetAttr { node: at(path)? }),
            Do::Read(path) => self.call(Op::Read { node: at(path)?, offset: 0, len: 10 }),
            Do::Write(path) => self.call(Op::Write { node: at(path)?, offset: 0, data: b"data" }),
            Do::Truncate(path) => set(path, SetAttr { size: Some(7), ..none }),
            Do::List(path) => self.call(Op::List { dir: at(path)?, after: b"", limit: 10, attrs: true }),
            Do::ReadLink(path) => self.call(Op::ReadLink { node: at(path)? }),
            Do::Make(path, mode) => self.make(&full(path), Make::File, mode),
            Do::MakeDir(path) => self.make(&full(path), Make::Dir, 0o777),
            Do::Symlink(path) => self.make(&full(path), Make::Symlink(b"target"), 0o777),
            Do::Device(path, number) => self.make(&full(path), Make::CharDev(number as u32), 0o644),
            Do::Unlink(path) => {
                let path = full(path);
                let (dir, name) = self.split(&path)?;
                self.call(Op::Unlink { dir, name, over: Precondition::Any })
            }
            Do::RemoveDir(path) => {
                let path = full(path);
                let (dir, name) = self.split(&path)?;
                self.call(Op::RmDir { dir, name })
            }
            Do::Rename(from, to) => self.rename(&full(from), &full(to), RenameMode::Replace),
            Do::Exchange(from, to) => self.rename(&full(from), &full(to), RenameMode::Exchange),
            Do::Link(path, to) => {
                let (node, to) = (at(path)?, full(to));
                let (dir, name) = self.split(&to)?;
                self.call(Op::Link { node, dir, name })
            }
            Do::Chmod(path, mode) => set(path, SetAttr { mode: Some(mode), ..none }),
            Do::Chown(path, uid) => set(path, SetAttr { uid: Some(uid), ..none }),
            Do::Chgrp(path, gid) => set(path, SetAttr { gid: Some(gid), ..none }),
            Do::TouchNow(path) => {
                let now = Some(SetTime::Now);
                set(path, SetAttr { atime: now, mtime: now, ..none })
            }
            Do::SetTimes(path) => {
                let then = Some(SetTime::To(Time { secs: 7, nanos: 7 }));
                set(path, SetAttr { atime: then, mtime: then, ..none })
            }
            Do::GetXattr(path, name) => self.call(Op::GetXattr { node: at(path)?, name: name.as_bytes() }),
            Do::SetXattr(path, name) => self.set_xattr(at(path)?, name),
            Do::RemoveXattr(path, name) => {
                self.call(Op::RemoveXattr { node: at(path)?, name: name.as_bytes() })
            }
            Do::ListXattr(path) => self.call(Op::ListXattr { node: at(path)? }),
        }
    }
}

impl World for Served {
    fn prepare(&self, row: &str) {
        let root = Seat { client: &self.all, ctx: context(User { uid: 0, groups: &[] }) };
        let make =
            Op::Make { dir: NodeId::ROOT, name: row.as_bytes(), make: Make::Dir, mode: 0o755, umask: 0 };
        root.call(make).expect("a directory");
        for thing in &THINGS {
            let make = match thing.kind {
                Kind::Dir => Make::Dir,
                Kind::File => Make::File,
                Kind::Link => Make::Symlink(b"target"),
            };
            let made = root.make(&format!("{row}/{}", thing.path), make, 0o777);
            let node = made.and_then(Reply::attr).expect("made").node;
            let none = SetAttr::default();
            root.set(node, SetAttr { uid: Some(thing.uid), gid: Some(thing.gid), ..none })
                .expect("given away");
            root.set(node, SetAttr { mode: Some(thing.mode), ..none }).expect("its mode");
            if thing.has_acl {
                root.set_xattr(node, READ_ACL).expect("an ACL");
            }
            if ["file", "rw"].contains(&thing.path) {
                XATTRS.iter().for_each(|name| drop(root.set_xattr(node, name).expect("an attribute")));
            }
        }
    }

    fn act(&self, row: &str, user: User, what: Do) -> i32 {
        let (client, ctx) = self.of(user);
        Seat { client, ctx }.act(row, what).as_ref().map_or_else(Error::errno, |_| 0)
    }

    fn mode(&self, row: &str, path: &str) -> u32 {
        let root = Seat { client: &self.all, ctx: context(User { uid: 0, groups: &[] }) };
        let node = root.at(&format!("{row}/{path}")).expect("there");
        root.call(Op::GetAttr { node }).and_then(Reply::attr).expect("attributes").mode
    }
}
