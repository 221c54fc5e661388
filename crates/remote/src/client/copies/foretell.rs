//! What comes of a change that this client alone may make: told before the server has heard of it,
//! and part of the copies at once.
//!
//! Exactly what the server will answer, by the rules of `volume/ops`. Where it is not certain,
//! nothing is told and the server is asked: an exclusive lease says that nobody else has changed
//! the inode, and that none of the rules apply which a copy does not show (ACLs, flags, recycle
//! bins, quotas near their limits).

use super::{Asked, Copies, Copy, Listed, Of, State, What, XATTRS_KEPT};
use leeward_env::limits::{
    BEHIND_MOVED_BYTES_MAX, FILE_BYTES_MAX, NAME_BYTES_MAX, SYMLINK_BYTES_MAX, WRITE_BYTES_MAX,
};
use leeward_env::{Ctx, Nanos};
use leeward_fs::{
    Attr, Error, InodeFlags, Kind, Make, NodeId, Op, Precondition, RenameMode, Reply, SetAttr, SetTime, Time,
};

/// setuid and setgid, of which rules depend on who asks.
const SET_IDS: u32 = 0o6000;

/// A change that was told.
pub(in crate::client) struct Foretold {
    pub(in crate::client) reply: Reply,
    /// The inodes that it changes, with the one that it makes.
    pub(in crate::client) nodes: Vec<NodeId>,
    /// For its answer.
    pub(in crate::client) asked: Asked,
}

/// A file or directory in a directory, under a name.
#[derive(Clone, Copy)]
struct Named {
    node: NodeId,
    attr: Attr,
}

impl Copies {
    /// What comes of a change now, if this client alone decides; the copies have it then. `made`:
    /// the number of an inode that it makes.
    pub(in crate::client) fn foretell(
        &self,
        ctx: &Ctx,
        op: &Op<'_>,
        at: u64,
        made: Option<NodeId>,
    ) -> Option<Foretold> {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        if !state.count(now) {
            return None;
        }
        let time = Time { secs: (at / 1_000_000_000) as i64, nanos: (at % 1_000_000_000) as u32 };
        let telling = Telling { ctx, now, at: time, made };
        let (reply, nodes) = state.foretell(&telling, op)?;
        for node in &nodes {
            state.alone.insert(*node, now);
            state.known.entry(*node).and_modify(|known| known.told_at = time);
        }
        state.make_room();
        let mut asked = Asked::new(self, state.events, Vec::new(), What::Nothing);
        (asked.references, asked.is_foretold) = (ctx.refs && op.gives_references(), true);
        Some(Foretold { reply, nodes, asked })
    }

    /// Something that was told did not come true. What the front end may have kept of these inodes
    /// is to be dropped.
    pub(in crate::client) fn not_true(&self, nodes: &[NodeId]) {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        let marks: Vec<usize> = nodes.iter().map(|node| Of::Inode(*node).mark()).collect();
        state.touch(&marks);
        nodes.iter().for_each(|node| state.drop_all(*node, now));
        nodes.iter().for_each(|node| _ = state.alone.remove(node));
    }

    /// Exclusive leases that were not used for so long: the client shares them from now on.
    pub(in crate::client) fn take_idle(&self, idle: Nanos, most: usize) -> Vec<NodeId> {
        let now = self.0.env.now();
        let state = &mut *self.0.state.lock();
        let is_idle = |at: Nanos| now.saturating_sub(at) > idle;
        let nodes = state.alone.iter().filter(|(_, at)| is_idle(**at)).map(|(node, _)| *node);
        let nodes: Vec<NodeId> = nodes.take(most).collect();
        // what an answer under way grants is granted before the server hears of this
        let marks: Vec<usize> = nodes.iter().map(|node| Of::Inode(*node).mark()).collect();
        state.touch(&marks);
        nodes.iter().for_each(|node| _ = state.alone.remove(node));
        nodes
    }

    /// Whether attributes may be older than what this client has told of the inode, also where
    /// others have changed it since: an answer may come from before both.
    pub(in crate::client) fn may_be_old(&self, attr: &Attr) -> bool {
        self.0.state.lock().may_be_old(attr)
    }

    /// Whether this client alone decides on all of these.
    pub(in crate::client) fn are_alone(&self, nodes: &[NodeId]) -> bool {
        let state = self.0.state.lock();
        nodes.iter().all(|node| state.is_alone(*node))
    }

    /// Whether this client alone decides on a file that it has changed, and not for the first time
    /// without knowing what it is.
    pub(in crate::client) fn lack_own_attr(&self, node: NodeId) -> bool {
        let state = &mut *self.0.state.lock();
        let is_lacking = state.is_alone(node) && state.own_file(node).is_none();
        let known = state.known.get_mut(&node).filter(|_| is_lacking);
        known.is_some_and(|known| std::mem::replace(&mut known.lacked_attr, true))
    }

    /// The inode behind a name, as far as it is known.
    pub(in crate::client) fn behind_name(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let state = self.0.state.lock();
        state.copy(dir)?.names.get(name).copied().flatten().map(|(node, _)| node)
    }
}

/// Who asks, when, and the inode that comes of it.
struct Telling<'a> {
    ctx: &'a Ctx,
    now: Nanos,
    at: Time,
    made: Option<NodeId>,
}

/// Whether its flags let it be changed.
fn is_plain(attr: &Attr) -> bool {
    !attr.flags.has(InodeFlags::IMMUTABLE.or(InodeFlags::APPEND_ONLY))
}

impl State {
    fn foretell(&mut self, telling: &Telling<'_>, op: &Op<'_>) -> Option<(Reply, Vec<NodeId>)> {
        match *op {
            Op::Make { dir, name, make, mode, umask } => {
                self.foretell_make(telling, (dir, name), make, mode & !(umask & 0o777))
            }
            Op::Write { node, offset, data } => self.foretell_write(telling, node, offset, data.len()),
            Op::SetAttr { node, set } => self.foretell_set(telling, node, &set),
            Op::Unlink { dir, name, over: Precondition::Any } => self.foretell_unlink(telling, dir, name),
            Op::RmDir { dir, name } => self.foretell_rmdir(telling, dir, name),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode } if mode != RenameMode::Exchange => {
                self.foretell_rename(telling, (from_dir, from_name), (to_dir, to_name), mode)
            }
            _ => None,
        }
    }

    /// Whether this client alone knows an inode, and has asked for no change of it that is not
    /// answered.
    fn is_alone(&self, node: NodeId) -> bool {
        let is_changed = |of: Of<'_>| self.marks[of.mark()].changes > 0;
        self.alone.contains_key(&node)
            && ![Of::Inode(node), Of::Attr(node), Of::Content(node)].into_iter().any(is_changed)
    }

    /// The attributes of an inode that this client alone knows, and that lets itself be changed.
    fn own(&self, node: NodeId) -> Option<Attr> {
        self.attr(node).filter(|attr| self.is_alone(node) && is_plain(attr))
    }

    /// The same of a file, of which it may be unknown how much is allocated.
    fn own_file(&self, node: NodeId) -> Option<Attr> {
        let but_blocks = || self.copy(node)?.but_blocks.filter(|_| !self.removing.any_unknown());
        let attr = self.attr(node).or_else(but_blocks)?;
        (attr.kind == Kind::File && self.is_alone(node) && is_plain(&attr)).then_some(attr)
    }

    fn own_dir(&self, dir: NodeId) -> Option<Attr> {
        self.own(dir).filter(|attr| attr.kind == Kind::Dir && attr.nlink > 0)
    }

    /// Whether there is certainly no such name, and one can be made.
    fn has_room_for(&self, dir: NodeId, name: &[u8]) -> bool {
        let can_be_one = !matches!(name, b"" | b"." | b"..")
            && name.len() <= NAME_BYTES_MAX
            && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        let is_changed = self.marks[Of::Name(dir, name).mark()].changes > 0;
        let is_absent = |copy: &Copy| match copy.names.get(name) {
            Some(found) => found.is_none(),
            None => copy.has_none(name),
        };
        can_be_one && !is_changed && self.copy(dir).is_some_and(is_absent)
    }

    /// What is under a name, if this client alone knows it.
    fn own_named(&self, dir: NodeId, name: &[u8]) -> Option<Named> {
        if self.marks[Of::Name(dir, name).mark()].changes > 0 {
            return None;
        }
        let (node, _) = self.copy(dir)?.names.get(name).copied().flatten()?;
        let attr = self.own(node).filter(|_| node.volume() == dir.volume())?;
        Some(Named { node, attr })
    }

    /// Names of a directory change, and its attributes: entries, and links of directories.
    fn change_dir(&mut self, dir: NodeId, at: Time, (entries, links): (i64, i32)) {
        if let Some(attr) = self.copy_of(dir).and_then(|copy| copy.attr.as_mut()) {
            (attr.mtime, attr.ctime) = (at, at);
            attr.size = attr.size.saturating_add_signed(entries);
            attr.nlink = attr.nlink.saturating_add_signed(links);
        }
        self.touch(&[Of::Attr(dir).mark()]);
    }

    fn change_name(&mut self, dir: NodeId, name: &[u8], found: Option<(NodeId, Kind)>) {
        if let Some(copy) = self.copy_of(dir) {
            copy.changed.remove(name);
            let is_new = copy.names.insert(name.into(), found).is_none();
            self.names += usize::from(is_new);
        }
        self.touch(&[Of::Name(dir, name).mark()]);
    }

    fn change_attr(&mut self, node: NodeId, attr: Option<Attr>) {
        if let Some(copy) = self.copy_of(node) {
            (copy.attr, copy.but_blocks) = (attr, None);
        }
        self.touch(&[Of::Attr(node).mark()]);
    }

    fn foretell_make(
        &mut self,
        telling: &Telling<'_>,
        (dir, name): (NodeId, &[u8]),
        make: Make<'_>,
        mode: u32,
    ) -> Option<(Reply, Vec<NodeId>)> {
        let (parent, node) = (self.own_dir(dir)?, telling.made?);
        if !self.has_room_for(dir, name) {
            return None;
        }
        let (kind, size, mode) = match make {
            Make::File => (Kind::File, 0, mode),
            Make::Dir => (Kind::Dir, 0, mode | parent.mode & 0o2000),
            Make::Symlink(to) if !to.is_empty() && to.len() <= SYMLINK_BYTES_MAX => {
                (Kind::Symlink, to.len() as u64, 0o777)
            }
            _ => return None,
        };
        let is_dir = kind == Kind::Dir;
        let has_gid = parent.mode & 0o2000 != 0;
        let at = telling.at;
        let attr = Attr {
            node,
            kind,
            mode: mode & 0o7777,
            uid: telling.ctx.uid,
            gid: if has_gid { parent.gid } else { telling.ctx.gid },
            nlink: if is_dir { 2 } else { 1 },
            rdev: 0,
            size,
            blocks: 0,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            flags: parent.flags.and(InodeFlags::NO_DUMP),
        };
        let hidden = self.copy(dir).and_then(|copy| copy.snapshot_dir.clone());
        let known = self.known.entry(node).or_default();
        known.front += u64::from(telling.ctx.refs);
        let copy = self.copy_of(node)?;
        copy.attr = Some(attr);
        copy.allocated = Some(0);
        copy.xattrs = (0..XATTRS_KEPT.len()).map(|which| (which, Err(Error::NoData))).collect();
        if is_dir && hidden.is_some() {
            (copy.listed, copy.snapshot_dir) = (Listed::All, hidden);
        }
        self.touch(&[Of::Inode(node).mark(), Of::Attr(node).mark()]);
        self.change_name(dir, name, Some((node, kind)));
        self.change_dir(dir, at, (1, i32::from(is_dir)));
        Some((Reply::Attr(attr), vec![dir, node]))
    }

    fn foretell_write(
        &mut self,
        telling: &Telling<'_>,
        node: NodeId,
        offset: u64,
        len: usize,
    ) -> Option<(Reply, Vec<NodeId>)> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= FILE_BYTES_MAX)?;
        if len == 0 || len > WRITE_BYTES_MAX || !self.is_alone(node) {
            return None;
        }
        let before = self.own_file(node)?;
        if before.mode & SET_IDS != 0 && telling.ctx.uid != 0 {
            return None;
        }
        let size = before.size.max(end);
        // where all is allocated up to the end it stays so; what is written behind it is new
        let allocated = self.copy(node)?.allocated.and_then(|allocated| match allocated {
            _ if offset >= before.size => Some(allocated + len as u64),
            _ if allocated == before.size => Some(size),
            _ => None,
        });
        let blocks = allocated.map_or(before.blocks, |allocated| allocated.div_ceil(512));
        let attr = Attr { size, blocks, mtime: telling.at, ctime: telling.at, ..before };
        self.content.void(node, telling.now);
        self.touch(&[Of::Content(node).mark()]);
        self.change_attr(node, allocated.map(|_| attr));
        if let Some(copy) = self.copy_of(node) {
            copy.allocated = allocated;
            copy.but_blocks = Some(attr).filter(|_| allocated.is_none());
        }
        Some((Reply::Written(len as u64), vec![node]))
    }

    fn foretell_set(
        &mut self,
        telling: &Telling<'_>,
        node: NodeId,
        set: &SetAttr,
    ) -> Option<(Reply, Vec<NodeId>)> {
        let before = self.own(node)?;
        let has_ids = set.uid.is_some() || set.gid.is_some();
        if set.size.is_some() || set.flags.is_some() || has_ids && before.mode & SET_IDS != 0 {
            return None;
        }
        let value = |time| match time {
            SetTime::Now => telling.at,
            SetTime::To(time) => time,
        };
        let attr = Attr {
            mode: set.mode.map_or(before.mode, |mode| mode & 0o7777),
            uid: set.uid.unwrap_or(before.uid),
            gid: set.gid.unwrap_or(before.gid),
            atime: set.atime.map_or(before.atime, value),
            mtime: set.mtime.map_or(before.mtime, value),
            ctime: telling.at,
            ..before
        };
        self.change_attr(node, Some(attr));
        Some((Reply::Attr(attr), vec![node]))
    }

    fn foretell_unlink(
        &mut self,
        telling: &Telling<'_>,
        dir: NodeId,
        name: &[u8],
    ) -> Option<(Reply, Vec<NodeId>)> {
        self.own_dir(dir)?;
        let Named { node, attr } = self.own_named(dir, name)?;
        if attr.kind == Kind::Dir || attr.nlink != 1 {
            return None;
        }
        self.change_attr(node, Some(Attr { nlink: 0, ctime: telling.at, ..attr }));
        self.change_name(dir, name, None);
        self.change_dir(dir, telling.at, (-1, 0));
        Some((Reply::Removed { node, nlink: 0 }, vec![dir, node]))
    }

    fn foretell_rmdir(
        &mut self,
        telling: &Telling<'_>,
        dir: NodeId,
        name: &[u8],
    ) -> Option<(Reply, Vec<NodeId>)> {
        self.own_dir(dir)?;
        let Named { node, attr } = self.own_named(dir, name)?;
        if attr.kind != Kind::Dir || attr.size != 0 || attr.nlink != 2 {
            return None;
        }
        self.change_attr(node, Some(Attr { nlink: 0, ctime: telling.at, ..attr }));
        self.change_name(dir, name, None);
        self.change_dir(dir, telling.at, (-1, -1));
        Some((Reply::Removed { node, nlink: 0 }, vec![dir, node]))
    }

    fn foretell_rename(
        &mut self,
        telling: &Telling<'_>,
        (from, from_name): (NodeId, &[u8]),
        (to, to_name): (NodeId, &[u8]),
        mode: RenameMode,
    ) -> Option<(Reply, Vec<NodeId>)> {
        self.own_dir(from)?;
        self.own_dir(to)?;
        let source = self.own_named(from, from_name)?;
        let is_dir = source.attr.kind == Kind::Dir;
        // who looks for the directories above one finds them at the server
        let is_small = source.attr.blocks * 512 <= BEHIND_MOVED_BYTES_MAX;
        let may_move = from == to || !is_dir && is_small;
        if from.volume() != to.volume() || !may_move || !is_dir && source.attr.nlink != 1 {
            return None;
        }
        let replaced = match self.has_room_for(to, to_name) {
            true => None,
            false if mode == RenameMode::NoReplace || is_dir => return None,
            false => Some(self.own_named(to, to_name)?),
        };
        if let Some(Named { node, attr }) = replaced {
            if attr.kind == Kind::Dir || attr.nlink != 1 || node == source.node {
                return None;
            }
            self.change_attr(node, Some(Attr { nlink: 0, ctime: telling.at, ..attr }));
            self.change_dir(to, telling.at, (-1, 0));
        }
        self.change_name(from, from_name, None);
        self.change_dir(from, telling.at, (-1, -i32::from(is_dir)));
        self.change_name(to, to_name, Some((source.node, source.attr.kind)));
        self.change_dir(to, telling.at, (1, i32::from(is_dir)));
        self.change_attr(source.node, Some(Attr { ctime: telling.at, ..source.attr }));
        let mut nodes = vec![from, source.node];
        nodes.extend((to != from).then_some(to));
        nodes.extend(replaced.map(|named| named.node));
        Some((Reply::Done, nodes))
    }
}
