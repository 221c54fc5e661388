//! The directory of snapshots that every directory has: takes, lists, finds, renames and removes
//! snapshots by operations of the file system.
//!
//! Its node is that of its directory in the view [`View::Directory`]. Its entries are the snapshots
//! taken of that directory, and, as `_NAME_INODE`, those of directories above that contained it
//! then.

use super::check_name;
use crate::clock::Moment;
use crate::format::inode::{Inode, Properties, SnapshotRecord, Stats};
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::quota::QuotaOf;
use crate::state::snapshots::{View, is_among};
use crate::tx::{Fail, Tx, TxResult};
use leeward_env::Ctx;
use leeward_env::limits::SNAPSHOT_NAME_BYTES_MAX;
use leeward_fs::{
    Attr, Entry, Error, INHERITED, InodeFlags, Kind, Make, NodeId, Op, RenameMode, Reply, Result,
};

/// A snapshot as a directory of snapshots shows it.
struct Shown {
    epoch: u32,
    inherited: bool,
}

/// A snapshot that may show in a directory of snapshots: its name there, its epoch, and its
/// directory if that is another.
type Candidate = (Box<[u8]>, u32, Option<NodeId>);

impl Tx<'_> {
    pub(crate) fn properties(&self, volume: u32) -> TxResult<&Properties> {
        Ok(&self.st.volumes.get(&volume).ok_or(Error::Stale)?.properties)
    }

    /// Whether the name in this directory, a live one or one that a copy shows, is that of its
    /// directory of snapshots.
    pub(crate) fn is_snapshot_dir(&self, dir: NodeId, name: &[u8]) -> bool {
        if self.is_transfer() {
            return false; // what comes from another cell may have a name that is hidden here
        }
        let shown = self.st.snapshots.view(dir.volume());
        let volume = self.st.volumes.get(&shown.map_or(dir.volume(), View::volume));
        let Some(properties) = volume.map(|v| &v.properties) else { return false };
        let is_shown = match (shown, &properties.copy) {
            (None, _) => true,
            (Some(View::Shown { epoch, .. }), Some(copy)) => copy.shown == epoch,
            _ => false,
        };
        is_shown && *properties.snapshot_dir == *name
    }

    /// The directory of snapshots of a directory.
    pub(crate) fn snapshot_dir(&mut self, dir: NodeId) -> NodeId {
        let dir = self.st.live_node(dir);
        let view = View::Directory { volume: dir.volume() };
        NodeId::new(self.st.snapshots.number(view), dir.inode())
    }

    fn snapshot_root(&mut self, dir: NodeId, epoch: u32) -> NodeId {
        let view = View::Snapshot { volume: dir.volume(), epoch };
        NodeId::new(self.st.snapshots.number(view), dir.inode())
    }

    /// Attributes of the directory of snapshots of `dir`. Rights in it are checked here, not by its
    /// mode.
    pub(crate) fn snapshot_dir_attr(&self, node: NodeId, dir: NodeId) -> TxResult<Attr> {
        let attr = self.live_dir(dir)?.attr(node);
        Ok(Attr { mode: 0o777, nlink: 2, size: 0, blocks: 0, flags: InodeFlags::default(), ..attr })
    }

    /// Adds the directory of snapshots of `dir` to its entries. `entries`: those after `after`, all
    /// of them if they are fewer than `limit`.
    pub(crate) fn list_snapshot_dir(
        &mut self,
        dir: NodeId,
        after: &[u8],
        limit: usize,
        attrs: bool,
        entries: &mut Vec<Entry>,
    ) -> TxResult<()> {
        let name = self.properties(dir.volume())?.snapshot_dir.clone();
        let beyond = entries.len() == limit && entries.last().is_none_or(|e| e.name < name);
        if *name <= *after || beyond || self.inode(dir)?.nlink == 0 {
            return Ok(());
        }
        let node = self.snapshot_dir(dir);
        let attr = attrs.then(|| self.snapshot_dir_attr(node, dir)).transpose()?;
        if attrs {
            self.show(node);
        }
        let entry = Entry { name, node, kind: Kind::Dir, attr };
        match entries.binary_search_by(|e| e.name.cmp(&entry.name)) {
            // a name from before the volume's directory of snapshots got this name
            Ok(at) => entries[at] = entry,
            Err(at) => entries.insert(at, entry),
        }
        entries.truncate(limit);
        Ok(())
    }

    /// Answers a lookup of the directory of snapshots `node`; `dir`: the directory it is in, or a
    /// view of it.
    pub(crate) fn look_up_snapshot_dir(&mut self, node: NodeId, dir: NodeId) -> TxResult<Reply> {
        let attr = self.snapshot_dir_attr(node, self.st.live_node(dir))?;
        self.show(node);
        Ok(Reply::Attr(attr))
    }

    /// The directory above a directory of a view.
    pub(crate) fn parent_in_view(&mut self, dir: NodeId, inode: &Inode, view: View) -> NodeId {
        let live = NodeId::new(view.volume(), dir.inode());
        if let View::Shown { volume, .. } = view {
            let attached = self.st.volumes.get(&volume).map(|v| v.attached_dir);
            let above = attached.filter(|_| inode.parent == 0);
            return above.unwrap_or_else(|| NodeId::new(dir.volume(), inode.parent));
        }
        let View::Snapshot { volume, epoch } = view else { return live };
        let taken_of = self.st.snapshots.get(volume, epoch).map(|s| s.dir);
        if taken_of == Some(dir.inode()) || inode.parent == 0 {
            self.snapshot_dir(live)
        } else {
            NodeId::new(dir.volume(), inode.parent)
        }
    }

    /// The snapshots taken of `dir` and of the directories above it: name here, epoch, and the
    /// directory if it is another.
    fn candidates(&self, dir: NodeId) -> TxResult<Vec<Candidate>> {
        let (mut all, mut at) = (Vec::new(), dir);
        self.live_dir(dir)?;
        while self.st.snapshots.count(dir.volume()) > 0 && at.inode() != 0 {
            for (name, epoch) in self.st.snapshots.of_dir(at.volume(), at.inode()).into_iter().flatten() {
                all.push(match at == dir {
                    true => (name.clone(), *epoch, None),
                    false => (inherited_name(name, at), *epoch, Some(at)),
                });
            }
            at = NodeId::new(at.volume(), self.inode(at)?.parent);
        }
        all.sort();
        Ok(all)
    }

    /// Whether `dir` was below `above` in that snapshot.
    fn was_below(&mut self, dir: NodeId, above: NodeId, epoch: u32) -> TxResult<bool> {
        let (then, above) = (self.snapshot_root(dir, epoch), self.snapshot_root(above, epoch));
        match self.is_below(then, above) {
            Err(Fail::Error(Error::Stale)) => Ok(false),
            other => other,
        }
    }

    /// The snapshot of this name in the directory of snapshots of `dir`.
    fn shown(&mut self, dir: NodeId, name: &[u8]) -> TxResult<Shown> {
        if name.first() != Some(&INHERITED) {
            let own = self
                .st
                .snapshots
                .of_dir(dir.volume(), dir.inode())
                .and_then(|names| names.get(name))
                .copied();
            let epoch = own.ok_or(Error::NotFound)?;
            return Ok(Shown { epoch, inherited: false });
        }
        let (taken_as, above) = parse_inherited(name).ok_or(Error::NotFound)?;
        if above.volume() != dir.volume() || above == dir || !self.is_below(dir, above)? {
            return Err(Error::NotFound.into());
        }
        let of_above = self.st.snapshots.of_dir(above.volume(), above.inode());
        let epoch = of_above.and_then(|names| names.get(taken_as)).copied().ok_or(Error::NotFound)?;
        match self.was_below(dir, above, epoch)? {
            true => Ok(Shown { epoch, inherited: true }),
            false => Err(Error::NotFound.into()),
        }
    }

    /// The epoch of a snapshot by its name in the directory of snapshots of `dir`.
    pub(crate) fn epoch_of(&mut self, dir: NodeId, name: &[u8]) -> TxResult<u32> {
        Ok(self.shown(dir, name)?.epoch)
    }

    /// The inode at a path below `dir` in a snapshot.
    pub(crate) fn in_snapshot(&mut self, dir: NodeId, epoch: u32, path: &[u8]) -> TxResult<NodeId> {
        let mut at = self.snapshot_root(dir, epoch);
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = self.dentry(at, name)?.ok_or(Error::NotFound)?.node;
        }
        self.inode(at).map_err(gone)?;
        Ok(at)
    }

    fn look_up_snapshot(&mut self, node: NodeId, dir: NodeId, name: &[u8]) -> TxResult<Reply> {
        self.live_dir(dir)?;
        let attr = match name {
            b"." => self.snapshot_dir_attr(node, dir)?,
            b".." => {
                let inode = self.inode(dir)?;
                self.attr(dir, &inode)
            }
            name => {
                let epoch = self.shown(dir, name)?.epoch;
                let root = self.snapshot_root(dir, epoch);
                let inode = self.inode(root).map_err(gone)?;
                self.attr(root, &inode)
            }
        };
        self.show(attr.node);
        Ok(Reply::Attr(attr))
    }

    /// Checks that the caller may take, change and remove snapshots of a volume.
    pub(crate) fn may_snapshot(&self, volume: u32, gids: &[u32]) -> TxResult<()> {
        let v = self.st.volumes.get(&volume).ok_or(Error::Stale)?;
        let uid = self.ctx.uid;
        let projects = &self.st.projects;
        let is_owner = |id| projects.get(id).is_some_and(|record| gids.contains(&record.owner));
        match uid == 0
            || projects.is_owner(self.ctx, projects.of_volume(volume))
            || uid == v.uid
            || is_among(&v.properties.snapshot_rights, uid, gids)
            || projects.chain(projects.of_volume(volume)).any(is_owner)
        {
            true => Ok(()),
            false => Err(Error::NotPermitted.into()),
        }
    }

    /// A project that is full and counts what snapshots hold gets no more of them: what they hold
    /// grows by overwriting, which no quota refuses.
    fn check_room_for_snapshots(&self, volume: u32) -> TxResult<()> {
        for of in self.st.project_quotas(volume) {
            let QuotaOf::Project(id) = of else { continue };
            let counts = self.st.projects.get(id).is_some_and(|record| record.counts_snapshots);
            let by = Stats { bytes: 1, ..Stats::default() };
            if counts && self.st.quotas.check(of, by, self.st.held_in_quota(of)).is_err() {
                return Err(Error::Quota.into());
            }
        }
        Ok(())
    }

    /// Takes a snapshot of `dir`. Returns its epoch.
    pub(crate) fn take_snapshot(&mut self, dir: NodeId, name: &[u8], gids: &[u32]) -> TxResult<u32> {
        let volume = dir.volume();
        self.live_dir(dir)?;
        self.need_changeable(volume)?;
        self.may_snapshot(volume, gids)?;
        self.check_snapshot_name(dir, name)?;
        self.check_room_for_snapshots(volume)?;
        let max = self.properties(volume)?.snapshots_max as usize;
        if self.st.snapshots.count(volume) >= max {
            return Err(Error::TooManyLinks.into());
        }
        let record = SnapshotRecord {
            dir: dir.inode(),
            name: name.into(),
            uid: self.ctx.uid,
            time: self.now,
            locked_until_secs: 0,
        };
        self.then(Effect::Snapshot { volume, record });
        self.epoch(volume)
    }

    /// Refuses a name that a new snapshot of a directory cannot have.
    pub(crate) fn check_snapshot_name(&self, dir: NodeId, name: &[u8]) -> TxResult<()> {
        check_name(name)?;
        if name.len() > SNAPSHOT_NAME_BYTES_MAX {
            return Err(Error::NameTooLong.into());
        }
        if name[0] == INHERITED || self.is_snapshot_dir(dir, name) {
            return Err(Error::Invalid.into());
        }
        match self
            .st
            .snapshots
            .of_dir(dir.volume(), dir.inode())
            .is_some_and(|names| names.contains_key(name))
        {
            true => Err(Error::Exists.into()),
            false => Ok(()),
        }
    }

    fn own_snapshot(&mut self, dir: NodeId, name: &[u8], gids: &[u32]) -> TxResult<(u32, SnapshotRecord)> {
        self.live_dir(dir)?;
        let shown = self.shown(dir, name)?;
        self.may_snapshot(dir.volume(), gids)?;
        if shown.inherited {
            return Err(Error::NotPermitted.into());
        }
        let record = self.st.snapshots.get(dir.volume(), shown.epoch).cloned();
        Ok((shown.epoch, record.ok_or(Error::NotFound)?))
    }

    /// Removes the snapshot of this name. Returns the node of its root.
    pub(crate) fn remove_snapshot(
        &mut self,
        dir: NodeId,
        name: &[u8],
        gids: &[u32],
        now_secs: i64,
    ) -> TxResult<NodeId> {
        let (epoch, record) = self.own_snapshot(dir, name, gids)?;
        if record.locked_until_secs > now_secs {
            return Err(Error::NotPermitted.into());
        }
        if self.properties(dir.volume())?.copy.as_ref().is_some_and(|copy| copy.shown <= epoch) {
            return Err(Error::Busy.into());
        }
        let root = self.snapshot_root(dir, epoch);
        self.then(Effect::RemoveSnapshot { volume: dir.volume(), epoch });
        Ok(root)
    }

    /// Renames a snapshot.
    pub(crate) fn rename_snapshot(
        &mut self,
        dir: NodeId,
        from: &[u8],
        to: &[u8],
        gids: &[u32],
    ) -> TxResult<()> {
        if self.properties(dir.volume())?.copy.is_some() {
            return Err(Error::ReadOnly.into()); // streams go on from snapshots by their names
        }
        let (epoch, record) = self.own_snapshot(dir, from, gids)?;
        self.check_snapshot_name(dir, to)?;
        let record = SnapshotRecord { name: to.into(), ..record };
        self.then(Effect::ChangeSnapshot { volume: dir.volume(), epoch, record });
        Ok(())
    }

    /// Locks a snapshot until a second since 1970; 0 removes the lock if it has run out.
    pub(crate) fn lock_snapshot(
        &mut self,
        dir: NodeId,
        name: &[u8],
        gids: &[u32],
        until_secs: i64,
        now_secs: i64,
    ) -> TxResult<()> {
        let (epoch, record) = self.own_snapshot(dir, name, gids)?;
        if record.locked_until_secs > now_secs.max(until_secs) {
            return Err(Error::NotPermitted.into());
        }
        let record = SnapshotRecord { locked_until_secs: until_secs, ..record };
        self.then(Effect::ChangeSnapshot { volume: dir.volume(), epoch, record });
        Ok(())
    }
}

/// The name that a snapshot of `above` has further down.
fn inherited_name(name: &[u8], above: NodeId) -> Box<[u8]> {
    let number = format!("_{}", above.0);
    [&[INHERITED], name, number.as_bytes()].concat().into()
}

/// Parses [`inherited_name`], in exactly that form.
fn parse_inherited(name: &[u8]) -> Option<(&[u8], NodeId)> {
    let end = name.iter().rposition(|b| *b == INHERITED).filter(|at| *at > 0)?;
    let above = NodeId(std::str::from_utf8(&name[end + 1..]).ok()?.parse().ok()?);
    (*inherited_name(&name[1..end], above) == *name).then_some((&name[1..end], above))
}

/// Turns "stale" into "not found": an inode that is not in a snapshot does not exist there.
fn gone(e: Fail) -> Fail {
    match e {
        Fail::Error(Error::Stale) => Error::NotFound.into(),
        other => other,
    }
}

impl Shard {
    /// The time for locks of snapshots, in seconds since 1970.
    pub(crate) fn lock_clock(&self) -> i64 {
        self.clock_moment().now
    }

    /// [`Shard::lock_clock`], and how far the wall clock is from it.
    pub(crate) fn clock_moment(&self) -> Moment {
        let locked_until = self.lock().snapshots.locked_until();
        self.clock.look(&self.env, locked_until)
    }

    /// While a snapshot is locked, the time is stored at least this often, also when nothing else
    /// is.
    pub(crate) fn watch_clock(&self, every_secs: i64) {
        let now = self.lock_clock();
        let mut st = self.lock();
        let stored = st.clock_stored.is_some_and(|at| at <= now && now < at + every_secs);
        if st.snapshots.locked_until() > now && !stored {
            st.clock_due = true;
        }
    }

    /// Takes a snapshot of a live directory, not on a front end's request. Returns its epoch.
    pub(crate) fn take(&self, ctx: &Ctx, dir: NodeId, name: &[u8]) -> Result<u32> {
        self.admit(ctx, &Op::Make { dir, name, make: Make::Dir, mode: 0, umask: 0 })?;
        let gids = ctx.groups();
        let _recalling = self.recall_exclusive(ctx, Some(dir.volume()))?;
        let epoch = self.transact(ctx, |tx| tx.take_snapshot(dir, name, &gids))?;
        self.invalidate_snapshot(dir, name);
        Ok(epoch)
    }

    /// Removes a snapshot of a live directory, not on a front end's request.
    pub(crate) fn remove(&self, ctx: &Ctx, dir: NodeId, name: &[u8]) -> Result<()> {
        self.admit(ctx, &Op::RmDir { dir, name })?;
        let (gids, clock) = (ctx.groups(), self.lock_clock());
        self.transact(ctx, |tx| tx.remove_snapshot(dir, name, &gids, clock))?;
        self.invalidate_snapshot(dir, name);
        self.maintenance.wake();
        Ok(())
    }

    /// Tells front ends that a name in the directory of snapshots of `dir` changed.
    pub(crate) fn invalidate_snapshot(&self, dir: NodeId, name: &[u8]) {
        let view = self.lock().snapshots.number(View::Directory { volume: dir.volume() });
        let node = NodeId::new(view, dir.inode());
        self.invalidate_entry(node, name);
        self.invalidate_inode(node);
    }

    /// Operations on snapshots and their directories; `None`: an ordinary one.
    pub(crate) fn call_on_view(&self, ctx: &Ctx, op: &Op<'_>) -> Option<Result<Reply>> {
        let node = op.node()?;
        if let Op::Rename { from_dir, .. } = op
            && from_dir.volume() != node.volume()
        {
            let views = from_dir.is_view() || node.is_view();
            return views.then_some(Err(Error::CrossVolume));
        }
        if !node.is_view() || matches!(op, Op::Forget { .. }) {
            return None;
        }
        let view = self.lock().snapshots.view(node.volume());
        match view {
            None => Some(Err(Error::Stale)),
            Some(View::Snapshot { .. } | View::Shown { .. }) => match op {
                Op::Fsync { .. } => Some(self.sync_all(ctx)),
                op if op.changes() => Some(Err(Error::ReadOnly)),
                _ => None,
            },
            Some(View::Directory { volume }) => {
                Some(self.call_on_snapshot_dir(ctx, op, node, NodeId::new(volume, node.inode())))
            }
        }
    }

    /// `node`: the directory of snapshots; `dir`: the directory it is in.
    fn call_on_snapshot_dir(&self, ctx: &Ctx, op: &Op<'_>, node: NodeId, dir: NodeId) -> Result<Reply> {
        self.admit(ctx, op)?;
        match *op {
            Op::Lookup { name, .. } => {
                check_name(name).or_else(|e| if e == Error::Exists { Ok(()) } else { Err(e) })?;
                self.transact(ctx, |tx| tx.look_up_snapshot(node, dir, name))
            }
            Op::GetAttr { .. } => self.transact(ctx, |tx| Ok(Reply::Attr(tx.snapshot_dir_attr(node, dir)?))),
            Op::List { after, limit, attrs, .. } => self.list_snapshots(ctx, dir, after, limit, attrs),
            Op::Make { name, make: Make::Dir, .. } => {
                let gids = ctx.groups();
                let _recalling = self.recall_exclusive(ctx, Some(dir.volume()))?;
                self.transact(ctx, |tx| {
                    let epoch = tx.take_snapshot(dir, name, &gids)?;
                    let root = tx.snapshot_root(dir, epoch);
                    let inode = tx.inode(dir)?;
                    tx.show(root);
                    Ok(Reply::Attr(tx.attr(root, &inode)))
                })
            }
            Op::RmDir { name, .. } => {
                let (gids, now) = (ctx.groups(), self.lock_clock());
                let root = self.transact(ctx, |tx| tx.remove_snapshot(dir, name, &gids, now))?;
                self.maintenance.wake();
                Ok(Reply::Removed { node: root, nlink: 0 })
            }
            Op::Rename { mode: RenameMode::Exchange, .. } => Err(Error::Invalid),
            // both ends are in this view; another inode is another directory's
            Op::Rename { from_dir, to_dir, .. } if from_dir != to_dir => Err(Error::CrossVolume),
            Op::Rename { from_name, to_name, .. } => {
                let gids = ctx.groups();
                self.transact(ctx, |tx| tx.rename_snapshot(dir, from_name, to_name, &gids))?;
                Ok(Reply::Done)
            }
            Op::Fsync { .. } => self.sync_all(ctx),
            Op::StatFs { .. } => Ok(self.stat_fs(dir)),
            Op::ListXattr { .. } => Ok(Reply::Names(Vec::new())),
            Op::GetXattr { .. } => Err(Error::NoData),
            Op::Unlink { .. } => Err(Error::IsDir),
            Op::ReadLink { .. } => Err(Error::Invalid),
            Op::Read { .. } | Op::SeekTo { .. } | Op::ContentVersions { .. } => Err(Error::IsDir),
            Op::GetUpload { .. } | Op::ListParts { .. } => Err(Error::Stale),
            Op::SetAttr { .. }
            | Op::Make { .. }
            | Op::MakeUnnamed { .. }
            | Op::Place { .. }
            | Op::BeginUpload { .. }
            | Op::KeepPart { .. }
            | Op::CompleteUpload { .. }
            | Op::EndUpload { .. }
            | Op::ListUploads { .. }
            | Op::StatUploads { .. }
            | Op::Link { .. }
            | Op::Write { .. }
            | Op::Append { .. }
            | Op::SyncAll
            | Op::Allocate { .. }
            | Op::CopyRange { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Forget { .. } => Err(Error::ReadOnly),
        }
    }

    fn list_snapshots(
        &self,
        ctx: &Ctx,
        dir: NodeId,
        after: &[u8],
        limit: usize,
        attrs: bool,
    ) -> Result<Reply> {
        let names = |after: &[u8], limit| self.snapshots_in(ctx, dir, after, limit);
        self.listed(ctx, after, limit, attrs, names)
    }

    /// Up to `limit` entries of the directory of snapshots of `dir`, without attributes.
    pub(crate) fn snapshots_in(
        &self,
        ctx: &Ctx,
        dir: NodeId,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let candidates = self.transact(ctx, |tx| tx.candidates(dir))?;
        let mut entries = Vec::new();
        for (name, epoch, above) in candidates.into_iter().filter(|(name, ..)| **name > *after) {
            if entries.len() == limit {
                break;
            }
            // one at a time: a snapshot may be removed meanwhile, and records of each have to be
            // loaded
            let node = self.transact(ctx, |tx| match above {
                Some(above) if !tx.was_below(dir, above, epoch)? => Ok(None),
                _ if tx.st.snapshots.get(dir.volume(), epoch).is_none() => Ok(None),
                _ => Ok(Some(tx.snapshot_root(dir, epoch))),
            })?;
            entries.extend(node.map(|node| Entry { name, node, kind: Kind::Dir, attr: None }));
        }
        Ok(entries)
    }
}
