//! One function for each request of the kernel: builds the context and the operation and hands over
//! the reply.
//!
//! Called by the threads of `/dev/fuse` and of the rings. Holds no lock over a call. A reply of the
//! wrong kind (a bug below) is answered EIO.

use crate::convert::{self, errno};
use crate::file_flags::{self, FlagsRequest};
use crate::kernel::abi::{self, fattr, init};
use crate::kernel::{Call, Handler, Limits, Pending, Reply as Answer, Request};
use crate::listing::{Handles, Listing};
use crate::locks::{self, FileLocks, Opening};
use crate::mount::EndOnDrop;
use crate::notify::Announcer;
use crate::seek::Search;
use leeward_env::{Class, Ctx, Env, Flow, Groups, Wait, limits};
use leeward_fs::rights;
use leeward_fs::{Attr, Error, Make, NodeId, Op, Precondition, Reply, Result, SetAttr, SetTime};
use leeward_vfs::{Attempt, Backend, Outcome};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zerocopy::FromBytes;

/// How long the kernel may keep what an answer says.
#[derive(Clone, Copy)]
pub(crate) struct Keep {
    /// A name (also an absent one).
    pub(crate) name: Duration,
    /// Attributes.
    pub(crate) attr: Duration,
}

impl Keep {
    /// For a name in this directory, and attributes of the inode that it leads to.
    pub(crate) fn entry(backend: &impl Backend, (dir, name): (NodeId, &[u8]), node: NodeId) -> Keep {
        Keep { name: Keep::name(backend, dir, name), attr: backend.keep_entry(node) }
    }

    fn name(backend: &impl Backend, dir: NodeId, name: &[u8]) -> Duration {
        if dir.announces(name) { backend.keep_names() } else { Duration::ZERO }
    }
}

/// What an answer with a name needs: how long the kernel may keep it, and how a reference goes back
/// that the kernel does not take.
struct EntryTo<B> {
    name: Duration,
    ctx: Ctx,
    backend: B,
}

impl<B: Backend> EntryTo<B> {
    fn keep(&self, node: NodeId) -> Keep {
        Keep { name: self.name, attr: self.backend.keep_entry(node) }
    }

    fn give_back(&self, node: NodeId) {
        // whoever asked may have given up only where the answer comes from elsewhere
        if self.backend.is_remote() {
            self.backend.forget(self.ctx, node, 1);
        }
    }
}

/// What is between tries to make a file of which the kernel does not know that it exists.
const CREATE_PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4)];

/// The file system as the kernel's protocol sees it.
pub(crate) struct Door<B: Backend> {
    env: Env,
    gate: B,
    /// For what begins where something else is answered.
    nested: B,
    handles: Arc<Handles>,
    pending: Arc<Pending>,
    /// Set when the kernel can be told something.
    announcer: Arc<OnceLock<Arc<Announcer>>>,
    /// `None`: the kernel has them.
    locks: Option<Arc<FileLocks>>,
    /// Whether the kernel checks rights; else what it would check at opening is asked for behind
    /// the gate.
    checked: bool,
    /// Dropped when the kernel has let go: tells whoever waits for the end of the mount.
    _end: Arc<EndOnDrop>,
}

impl<B: Backend> Door<B> {
    /// For the threads that read from the device.
    pub(crate) fn new(env: &Env, gate: B, checked: bool, end: EndOnDrop) -> Door<B> {
        let (handles, announcer, pending) = (Arc::default(), Arc::default(), Arc::new(Pending::new(env)));
        let locks = gate.locks().map(|service| Arc::new(FileLocks::new(service)));
        let (nested, end) = (gate.clone(), Arc::new(end));
        Door { env: env.clone(), nested, gate, handles, pending, announcer, locks, checked, _end: end }
    }

    /// What tells the kernel of changes. Once.
    pub(crate) fn announce_by(&self, announcer: Arc<Announcer>) {
        let _ = self.announcer.set(announcer);
    }

    /// What we ask of the kernel, where it knows it.
    ///
    /// Deliberately absent: ATOMIC_O_TRUNC (there is no OPEN), AUTO_INVAL_DATA (would drop pages at
    /// every foreign change of mtime; ours are the only ones), WRITEBACK_CACHE (adds a SETATTR to
    /// each create), POSIX_LOCKS and FLOCK_LOCKS where one mount is the only way in (the kernel's
    /// own locks are right then), EXPORT_SUPPORT in mounts of other machines (whose server knows
    /// the inodes of a client only that it has given it), ASYNC_DIO (after a direct write that
    /// nobody waits for, the kernel keeps the pages that buffered readers brought in while it was
    /// under way: they stay stale).
    pub(crate) fn limits(&self) -> Limits {
        // where a daemon that is stopped cannot drop pages, the kernel drops them when attributes
        // have run out and the file has changed
        let inval = if self.gate.is_remote() { init::AUTO_INVAL_DATA } else { init::EXPLICIT_INVAL_DATA };
        // handles of files stay good when the kernel has forgotten them: it asks by their numbers
        let handles = if self.gate.is_remote() { 0 } else { init::EXPORT_SUPPORT };
        let locks = if self.has_locks() { init::POSIX_LOCKS | init::FLOCK_LOCKS } else { 0 };
        // with ACLs the kernel would check rights by modes and owners
        let acls = if self.checked { init::POSIX_ACL } else { 0 };
        Limits {
            flags: init::DO_READDIRPLUS
                | init::READDIRPLUS_AUTO
                | handles
                | locks
                | init::PARALLEL_DIROPS
                | acls
                | init::DONT_MASK
                | init::CACHE_SYMLINKS
                | init::HANDLE_KILLPRIV_V2
                | inval
                | init::DIRECT_IO_ALLOW_MMAP,
            write_bytes: limits::WRITE_BYTES_MAX,
            background: 64,
        }
    }

    /// Whether the kernel is to ask for locks.
    pub(crate) fn has_locks(&self) -> bool {
        self.locks.is_some()
    }

    /// The same for the threads of rings, which ask for turns themselves.
    pub(crate) fn for_rings(&self) -> Door<B> {
        Door {
            env: self.env.clone(),
            gate: self.gate.with_turns_asked_for(),
            nested: self.gate.with_turns_elsewhere(),
            handles: self.handles.clone(),
            pending: self.pending.clone(),
            announcer: self.announcer.clone(),
            locks: self.locks.clone(),
            checked: self.checked,
            _end: self._end.clone(),
        }
    }

    /// For an answer with a name, and a reference to what it names.
    fn entry(&self, ctx: Ctx, dir: NodeId, name: &[u8]) -> EntryTo<B> {
        EntryTo { name: Keep::name(&self.gate, dir, name), ctx, backend: self.nested.clone() }
    }

    /// Whether other machines change the files, too.
    fn is_shared(&self) -> bool {
        self.gate.is_remote() || self.has_locks()
    }

    /// How a file is opened. A `close` gives up locks. Through its pages the kernel cuts a write
    /// where a page ends that it does not have, and appends to one file of several machines must
    /// stay whole.
    fn opening(&self, ctx: &Ctx, open_flags: u32) -> Opening {
        let no_flush = if self.has_locks() { 0 } else { abi::OPEN_NO_FLUSH };
        let appends = self.is_shared() && open_flags & libc::O_APPEND as u32 != 0;
        let direct = if appends { abi::OPEN_DIRECT_IO } else { 0 };
        Opening { flags: no_flush | direct, note: opener(ctx), locks: self.locks.clone() }
    }

    fn open(&self, ctx: Ctx, node: NodeId, flags: u32, to: Answer) {
        let opening = self.opening(&ctx, flags);
        if self.checked {
            return to.value(&opening.open(self.gate.keep_attr(node)));
        }
        let gate = self.nested.clone();
        self.gate.permit(ctx, node, wanted(flags), move |permitted| match permitted {
            Ok(()) => {
                let open = opening.open(gate.keep_attr(node));
                to.value_or_else(&open, || opening.undo(&open));
            }
            Err(e) => to.error(e.errno()),
        });
    }

    fn open_dir(&self, ctx: Ctx, node: NodeId, to: Answer) {
        let handles = self.handles.clone();
        let opened = |handles: &Handles| abi::OpenOut { handle: handles.open(), ..abi::OpenOut::default() };
        if self.checked {
            return to.value(&opened(&handles));
        }
        self.gate.permit(ctx, node, rights::R, move |permitted| match permitted {
            Ok(()) => {
                let open = opened(&handles);
                to.value_or_else(&open, || handles.close(open.handle));
            }
            Err(e) => to.error(e.errno()),
        });
    }

    /// User and group of who opened a file.
    fn opener_of(&self, handle: u64) -> u64 {
        self.locks.as_ref().map_or(Some(handle), |locks| locks.note_of(handle)).unwrap_or_default()
    }

    fn is_lost(&self, handle: u64) -> bool {
        self.locks.as_ref().is_some_and(|locks| locks.is_lost(handle))
    }

    fn run(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        self.gate.run(ctx, op, answer);
    }

    fn list(&self, ctx: Ctx, args: &abi::ReadIn, (dir, plus): (NodeId, bool), to: Answer) {
        let Some(stream) = self.handles.get(args.handle) else { return to.error(libc::EINVAL) };
        let room = args.size as usize;
        let (gate, nested) = (self.gate.clone(), self.nested.clone());
        Listing { gate, nested, ctx, dir, cookie: args.offset, stream, plus, room }.answer(to);
    }

    fn set_attr(&self, ctx: Ctx, node: NodeId, args: &abi::SetAttrIn, to: Answer) {
        let set = set_of(args);
        if set == SetAttr::default() {
            return self.take_set_ids(ctx, node, to);
        }
        self.run(ctx, Op::SetAttr { node, set }, answer_attr(to, self.nested.clone()));
    }

    /// A SETATTR of nothing is what the kernel sends before a write that ends setuid or setgid. The
    /// write itself would clear the bits, too, but its answer carries no mode: without this one the
    /// kernel would go on honouring the bits of its cached mode in exec. The writer need not be the
    /// owner, so this is done in root's name. A server on another machine lets a writer take these
    /// bits, and may know no root of this one. (It is also sent when a write has ended
    /// capabilities: then a file that root writes keeps these bits.)
    fn take_set_ids(&self, ctx: Ctx, node: NodeId, to: Answer) {
        let gate = self.nested.clone();
        let by = if self.gate.is_remote() { ctx } else { Ctx { uid: 0, gid: 0, ..ctx } };
        self.run(ctx, Op::GetAttr { node }, move |result| {
            let after = |a: &Attr| rights::without_set_ids(a.mode, || ctx.groups().contains(&a.gid));
            let mode = match &result {
                Ok(Reply::Attr(a)) if ctx.uid != 0 => Some(after(a)).filter(|mode| *mode != a.mode),
                _ => None,
            };
            if mode.is_none() {
                return answer_attr(to, gate)(result);
            }
            let set = SetAttr { mode, ..SetAttr::default() };
            gate.clone().run(by, Op::SetAttr { node, set }, answer_attr(to, gate));
        });
    }

    fn make(
        &self,
        ctx: Ctx,
        (dir, name): (NodeId, &[u8]),
        (make, mode, umask): (Make<'_>, u32, u32),
        to: Answer,
    ) {
        let op = Op::Make { dir, name, make, mode: mode & 0o7777, umask };
        self.run(ctx, op, answer_entry(to, self.entry(ctx, dir, name)));
    }

    /// `linkat` of what O_TMPFILE made gives it its first name; of anything else, one more.
    fn link(&self, ctx: Ctx, node: NodeId, (dir, name): (NodeId, &[u8]), to: Answer) {
        let (gate, of, first) = (self.nested.clone(), node, Box::<[u8]>::from(name));
        let entry = self.entry(ctx, dir, name);
        self.run(ctx, Op::Link { node, dir, name }, move |result| match result {
            Err(Error::NotFound) => place(&gate, of, (dir, first), entry, to),
            result => answer_entry(to, entry)(result),
        });
    }

    fn create(&self, ctx: Ctx, (dir, name): (NodeId, &[u8]), args: &abi::CreateIn, to: Answer) {
        let how = (self.entry(ctx, dir, name), self.opening(&ctx, args.flags));
        let op = make_file((dir, name), (args.mode, args.umask));
        if args.flags as i32 & libc::O_EXCL != 0 {
            return self.run(ctx, op, answer_create(to, how));
        }
        let (gate, env, file) = (self.nested.clone(), self.env.clone(), Box::<[u8]>::from(name));
        let mode = (args.mode, args.umask);
        self.run(ctx, op, move |result| match result {
            Err(Error::Exists) => create_again((gate, env, ctx), (dir, file), mode, how, to),
            result => answer_create(to, how)(result),
        });
    }

    /// The kernel does not know where a file ends that other machines append to.
    fn appends_there(&self, args: &abi::WriteIn) -> bool {
        let appends = args.flags & libc::O_APPEND as u32 != 0;
        appends && args.write_flags & abi::WRITE_CACHE == 0 && self.is_shared()
    }

    /// The kernel asks for durability itself only where it keeps pages. `O_SYNC` has this bit, too.
    fn must_sync(&self, args: &abi::WriteIn) -> bool {
        let is_sync = args.flags & libc::O_DSYNC as u32 != 0;
        let is_direct = self.gate.is_remote() || self.appends_there(args);
        is_sync && args.write_flags & abi::WRITE_CACHE == 0 && is_direct
    }

    fn write_durably(&self, ctx: Ctx, node: NodeId, write: Op<'_>, to: Answer) {
        let gate = self.nested.clone();
        self.run(ctx, write, move |result| match result {
            Ok(written @ Reply::Written(_)) => {
                gate.run(ctx, Op::Fsync { node }, move |synced| {
                    answer_written(to)(synced.map(|_| written));
                });
            }
            other => to.error(failure(other)),
        });
    }

    fn write(&self, ctx: Ctx, node: NodeId, args: &abi::WriteIn, data: &[u8], to: Answer) {
        if self.is_lost(args.handle) {
            return to.error(libc::EIO);
        }
        let op = match self.appends_there(args) {
            true => Op::Append { node, data },
            false => Op::Write { node, offset: args.offset, data },
        };
        if self.must_sync(args) {
            return self.write_durably(ctx, node, op, to);
        }
        if args.write_flags & abi::WRITE_CACHE != 0 {
            let ctx = if self.gate.is_remote() { as_opener(ctx, self.opener_of(args.handle)) } else { ctx };
            // the kernel takes pages for clean then, however few were written
            self.run(ctx, op, answer_written(to));
        } else {
            self.gate.run_in_part(ctx, op, answer_written(to));
        }
    }

    fn get_xattr(&self, ctx: Ctx, node: NodeId, (name, size): (&[u8], u32), to: Answer) {
        self.run(ctx, Op::GetXattr { node, name }, move |result| match result {
            Ok(Reply::Data(value)) => answer_xattr(to, size, &value),
            other => to.error(failure(other)),
        });
    }

    fn list_xattr(&self, ctx: Ctx, node: NodeId, size: u32, to: Answer) {
        self.run(ctx, Op::ListXattr { node }, move |result| match result {
            Ok(Reply::Names(names)) => {
                let list = names.iter().flat_map(|n| n.iter().copied().chain([0])).collect::<Vec<u8>>();
                answer_xattr(to, size, &list);
            }
            other => to.error(failure(other)),
        });
    }

    fn allocate(&self, ctx: Ctx, node: NodeId, args: &abi::FallocateIn, to: Answer) {
        let Some(mode) = convert::allocate(args.mode as i32) else { return to.error(libc::EOPNOTSUPP) };
        let op = Op::Allocate { node, offset: args.offset, len: args.length, mode };
        self.run(ctx, op, answer_empty(to));
    }

    fn seek(&self, ctx: Ctx, node: NodeId, args: &abi::LseekIn, to: Answer) {
        let Some(what) = convert::seek(args.whence as i32) else { return to.error(libc::EINVAL) };
        let offset = args.offset;
        if i64::try_from(offset).is_err() {
            return to.error(libc::ENXIO);
        }
        let (gate, announcer) = (self.gate.clone(), self.announcer.get().cloned());
        Search { gate, ctx, node, offset, what, announcer }.answer(to);
    }

    fn copy(&self, ctx: Ctx, from: NodeId, (args, wide): (&abi::CopyFileRangeIn, bool), to: Answer) {
        let op = Op::CopyRange {
            from,
            from_offset: args.offset_in,
            to: NodeId(args.node_out),
            to_offset: args.offset_out,
            // An older kernel's answer is 32 bits wide; a short copy is repeated by the caller.
            len: args.len.min(1 << 30),
        };
        self.run(ctx, op, move |result| match result {
            // 64 bits that are nothing but the count
            Ok(Reply::Written(offset)) if wide => to.value(&abi::LseekOut { offset }),
            result => answer_written(to)(result),
        });
    }

    fn ioctl(&self, ctx: Ctx, node: NodeId, (args, data): (&abi::IoctlIn, &[u8]), to: Answer) {
        match FlagsRequest::parse(args, data) {
            None => to.error(libc::ENOTTY),
            Some(FlagsRequest::SetUnsupported) => to.error(libc::EOPNOTSUPP),
            Some(FlagsRequest::Get(form)) => {
                self.run(ctx, Op::GetAttr { node }, move |result| match result {
                    Ok(Reply::Attr(attr)) => to.data(&file_flags::answer(attr.flags, form)),
                    other => to.error(failure(other)),
                });
            }
            Some(FlagsRequest::Set(flags)) => {
                let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
                self.run(ctx, Op::SetAttr { node, set }, |result| match result {
                    Ok(Reply::Attr(_)) => to.value(&abi::IoctlOut::default()),
                    other => to.error(failure(other)),
                });
            }
        }
    }

    fn stat_fs(&self, ctx: Ctx, node: NodeId, to: Answer) {
        self.run(ctx, Op::StatFs { node }, |result| match result {
            Ok(Reply::StatFs(s)) => to.value(&convert::stat_fs(&s)),
            other => to.error(failure(other)),
        });
    }

    fn rename(&self, ctx: Ctx, from: (NodeId, &[u8]), into: (NodeId, &[u8]), flags: u32, to: Answer) {
        let Some(mode) = convert::rename_mode(flags) else { return to.error(libc::EINVAL) };
        let ((from_dir, from_name), (to_dir, to_name)) = (from, into);
        self.run(ctx, Op::Rename { from_dir, from_name, to_dir, to_name, mode }, answer_empty(to));
    }

    fn set_xattr(&self, ctx: Ctx, node: NodeId, (name, value): (&[u8], &[u8]), flags: u32, to: Answer) {
        let Some(mode) = convert::xattr_mode(flags as i32) else { return to.error(libc::EINVAL) };
        self.run(ctx, Op::SetXattr { node, name, value, mode }, answer_empty(to));
    }

    fn lock_call(&self, ctx: Ctx, request: &Request<'_>, to: Answer) {
        let (node, unique) = (NodeId(request.head.node), request.head.unique);
        match (&request.call, &self.locks) {
            (Call::Release(args), locks) => {
                locks.iter().for_each(|locks| locks.release(args.handle));
                to.done();
            }
            (Call::Flush(args), Some(locks)) => locks.flush(node, args, to),
            (Call::GetLock(args), Some(locks)) => locks.test(&ctx, node, args, to),
            (&Call::SetLock { args, wait }, Some(locks)) => {
                let pending = &*self.pending;
                locks.set(&locks::Request { ctx: &ctx, node, unique, args, wait, pending }, to);
            }
            _ => to.error(libc::ENOSYS),
        }
    }

    fn forget_all(&self, ctx: Ctx, mut all: &[u8]) {
        let mut forgotten = Vec::new();
        while let Ok((one, rest)) = abi::ForgetOne::read_from_prefix(all) {
            forgotten.push((NodeId(one.node), one.lookups));
            all = rest;
        }
        self.gate.forget_all(ctx, &forgotten);
    }
}

impl<B: Backend> Handler for Door<B> {
    fn handle(&self, request: Request<'_>, to: Answer) {
        let ctx = ctx(&request.head);
        let node = NodeId(request.head.node);
        let may_be_left = may_be_left(&request.call, self.gate.is_remote());
        let to = if may_be_left { to.interruptible(&self.pending, &request.head) } else { to };
        match request.call {
            Call::Lookup { name } => {
                self.run(ctx, Op::Lookup { dir: node, name }, answer_lookup(to, self.entry(ctx, node, name)));
            }
            Call::Forget { lookups } => {
                to.none();
                self.gate.forget(ctx, node, lookups);
            }
            Call::BatchForget { all } => {
                to.none();
                self.forget_all(ctx, all);
            }
            Call::GetAttr => {
                self.run(ctx, Op::GetAttr { node }, answer_attr(to, self.nested.clone()));
            }
            Call::Statx => {
                self.run(ctx, Op::GetAttr { node }, answer_statx(to, self.nested.clone()));
            }
            Call::SetAttr(args) => self.set_attr(ctx, node, &args, to),
            Call::ReadLink => self.run(ctx, Op::ReadLink { node }, answer_data(to)),
            Call::Symlink { name, target } => {
                self.make(ctx, (node, name), (Make::Symlink(target), 0o777, 0), to);
            }
            Call::MkNod { args, name } => match convert::make(args.mode, args.rdev) {
                Some(make) => self.make(ctx, (node, name), (make, args.mode, args.umask), to),
                None => to.error(libc::EINVAL),
            },
            Call::MkDir { args, name } => {
                self.make(ctx, (node, name), (Make::Dir, args.mode, args.umask), to)
            }
            Call::Unlink { name } => {
                self.run(ctx, Op::Unlink { dir: node, name, over: Precondition::Any }, answer_empty(to));
            }
            Call::RmDir { name } => self.run(ctx, Op::RmDir { dir: node, name }, answer_empty(to)),
            Call::Rename { new_dir, flags, name, new_name } => {
                self.rename(ctx, (node, name), (NodeId(new_dir), new_name), flags, to);
            }
            Call::Link { node: of, name } => self.link(ctx, NodeId(of), (node, name), to),
            Call::Create { args, name } => self.create(ctx, (node, name), &args, to),
            Call::TmpFile { args } => {
                let op = Op::MakeUnnamed { dir: node, mode: args.mode & 0o7777, umask: args.umask, bytes: 0 };
                let entry = self.entry(ctx, node, b"");
                let how = (entry, self.opening(&ctx, args.flags));
                self.run(ctx, op, answer_create(to, how));
            }
            Call::Read(abi::ReadIn { handle, .. }) | Call::Fsync { handle } if self.is_lost(handle) => {
                to.error(libc::EIO);
            }
            Call::Read(args) => {
                let op = Op::Read { node, offset: args.offset, len: args.size };
                self.run(ctx, op, answer_data(to));
            }
            Call::Write { args, data } => self.write(ctx, node, &args, data, to),
            Call::StatFs => self.stat_fs(ctx, node, to),
            Call::Fsync { .. } | Call::FsyncDir => self.run(ctx, Op::Fsync { node }, answer_empty(to)),
            Call::SetXattr { flags, name, value } => self.set_xattr(ctx, node, (name, value), flags, to),
            Call::GetXattr { size, name } => self.get_xattr(ctx, node, (name, size), to),
            Call::ListXattr { size } => self.list_xattr(ctx, node, size, to),
            Call::RemoveXattr { name } => self.run(ctx, Op::RemoveXattr { node, name }, answer_empty(to)),
            // never asked again where the content of files is always kept: a file needs no handle
            Call::Open { .. } if !self.gate.is_remote() && !self.has_locks() => to.error(libc::ENOSYS),
            Call::Open { flags } => self.open(ctx, node, flags, to),
            Call::Flush(_) | Call::GetLock(_) | Call::SetLock { .. } | Call::Release(_) => {
                self.lock_call(ctx, &request, to);
            }
            Call::OpenDir => self.open_dir(ctx, node, to),
            // the kernel asks nobody from now on
            Call::Access { .. } if self.checked => to.error(libc::ENOSYS),
            Call::Access { mask } => self.gate.permit(ctx, node, mask, move |permitted| match permitted {
                Ok(()) => to.done(),
                Err(e) => to.error(e.errno()),
            }),
            Call::ReadDir { args, plus } => self.list(ctx, &args, (node, plus), to),
            Call::ReleaseDir { handle } => {
                self.handles.close(handle);
                to.done();
            }
            Call::Fallocate(args) => self.allocate(ctx, node, &args, to),
            Call::Lseek(args) => self.seek(ctx, node, &args, to),
            Call::CopyFileRange { args, wide } => self.copy(ctx, node, (&args, wide), to),
            Call::Destroy => to.done(),
            Call::Ioctl { args, data } => self.ioctl(ctx, node, (&args, data), to),
            // the second INIT of a kernel that speaks another major version, and the like
            Call::Init { .. } => to.error(libc::EIO),
            Call::Interrupt { unique } => {
                to.none();
                locks::interrupt(self.locks.as_deref(), &self.pending, unique, self.gate.is_remote());
            }
            Call::Unknown => to.error(libc::ENOSYS),
        }
    }

    fn has_turns(&self) -> bool {
        self.gate.has_turns()
    }

    fn take_turn(&self) -> bool {
        self.gate.take_turn()
    }
}

/// Whether nothing is wrong when the kernel gets another answer: it keeps nothing of this one, or
/// what it would keep is given back, where requests may wait for another machine.
fn may_be_left(call: &Call<'_>, is_remote: bool) -> bool {
    match call {
        Call::GetAttr
        | Call::Statx
        | Call::ReadLink
        | Call::Read(_)
        | Call::StatFs
        | Call::Fsync { .. }
        | Call::FsyncDir
        | Call::Flush(_)
        | Call::GetLock(_)
        | Call::SetLock { .. }
        | Call::GetXattr { .. }
        | Call::ListXattr { .. }
        | Call::Lseek(_) => true,
        Call::Lookup { .. }
        | Call::SetAttr(_)
        | Call::Symlink { .. }
        | Call::MkNod { .. }
        | Call::MkDir { .. }
        | Call::Unlink { .. }
        | Call::RmDir { .. }
        | Call::Rename { .. }
        | Call::Link { .. }
        | Call::Create { .. }
        | Call::TmpFile { .. }
        | Call::Write { .. }
        | Call::SetXattr { .. }
        | Call::RemoveXattr { .. }
        | Call::ReadDir { .. }
        | Call::Fallocate(_)
        | Call::CopyFileRange { .. }
        | Call::Ioctl { .. }
        | Call::Open { .. }
        | Call::OpenDir
        | Call::Access { .. } => is_remote,
        Call::Forget { .. }
        | Call::BatchForget { .. }
        | Call::Release(_)
        | Call::Init { .. }
        | Call::ReleaseDir { .. }
        | Call::Interrupt { .. }
        | Call::Destroy
        | Call::Unknown => false,
    }
}

/// Gives a file without a name its first one.
fn place<B: Backend>(
    gate: &B,
    node: NodeId,
    (dir, name): (NodeId, Box<[u8]>),
    entry: EntryTo<B>,
    to: Answer,
) {
    let op = Op::Place { node, dir, name: &name, over: Precondition::Nothing };
    gate.run(entry.ctx, op, move |result| match result {
        // it had a name once
        Err(Error::Invalid) => to.error(libc::ENOENT),
        result => answer_entry(to, entry)(result),
    });
}

/// The rights that a file is opened with.
fn wanted(flags: u32) -> u32 {
    match flags as i32 & libc::O_ACCMODE {
        _ if flags & abi::OPEN_EXEC != 0 => rights::X,
        libc::O_RDONLY => rights::R,
        libc::O_WRONLY => rights::W,
        _ => rights::R | rights::W,
    }
}

/// What is kept with an open file: user and group of who opened it.
fn opener(ctx: &Ctx) -> u64 {
    u64::from(ctx.uid) << 32 | u64::from(ctx.gid)
}

/// Pages that were written through a mapping the kernel sends in root's name, with the handle of a
/// file that somebody opened for writing. The server may know no root of this machine.
fn as_opener(ctx: Ctx, handle: u64) -> Ctx {
    let (uid, gid) = ((handle >> 32) as u32, handle as u32);
    Ctx { uid, gid, flow: Flow { uid, ..ctx.flow }, ..ctx }
}

fn ctx(head: &abi::InHeader) -> Ctx {
    Ctx {
        uid: head.uid,
        gid: head.gid,
        gids: Groups::default(),
        door: leeward_env::Door::Mount,
        client: 0,
        machine: None,
        call: None,
        again: None,
        foretold: None,
        delegate: None,
        pid: head.pid,
        flow: Flow { uid: head.uid, job: 0 },
        class: Class::Interactive,
        wait: Wait::Never,
        refs: true,
    }
}

fn set_of(args: &abi::SetAttrIn) -> SetAttr {
    let has = |bit| args.valid & bit != 0;
    let time = |bit, now, secs, nanos| {
        has(bit).then(|| if has(now) { SetTime::Now } else { convert::set_time(secs, nanos) })
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(args.mode & 0o7777),
        uid: has(fattr::UID).then_some(args.uid),
        gid: has(fattr::GID).then_some(args.gid),
        size: has(fattr::SIZE).then_some(args.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, args.atime, args.atime_nanos),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, args.mtime, args.mtime_nanos),
        flags: None,
    }
}

/// The errno of anything that is not the expected reply.
fn failure(result: Result<Reply>) -> i32 {
    match result {
        Err(e) => errno(&e),
        Ok(other) => {
            tracing::error!("a reply of the wrong kind: {other:?}");
            libc::EIO
        }
    }
}

fn answer_entry<B: Backend>(to: Answer, entry: EntryTo<B>) -> impl FnOnce(Result<Reply>) + Send + 'static {
    move |result| match result {
        Ok(Reply::Attr(a)) => {
            to.value_or_else(&convert::entry(&a, entry.keep(a.node)), || entry.give_back(a.node));
        }
        other => to.error(failure(other)),
    }
}

fn answer_attr(to: Answer, backend: impl Backend) -> impl FnOnce(Result<Reply>) + Send + 'static {
    move |result| match result {
        Ok(Reply::Attr(a)) => {
            let (keep, attr) = (backend.keep_attr(a.node), convert::attr(&a));
            let (valid_secs, valid_nanos) = (keep.as_secs(), keep.subsec_nanos());
            to.value(&abi::AttrOut { valid_secs, valid_nanos, attr, ..abi::AttrOut::default() });
        }
        other => to.error(failure(other)),
    }
}

fn answer_statx(to: Answer, backend: impl Backend) -> impl FnOnce(Result<Reply>) + Send + 'static {
    move |result| match result {
        Ok(Reply::Attr(a)) => {
            let (keep, stat) = (backend.keep_attr(a.node), convert::statx(&a));
            let (valid_secs, valid_nanos) = (keep.as_secs(), keep.subsec_nanos());
            to.value(&abi::StatxOut { valid_secs, valid_nanos, stat, ..abi::StatxOut::default() });
        }
        other => to.error(failure(other)),
    }
}

fn answer_empty(to: Answer) -> impl FnOnce(Result<Reply>) + Send + 'static {
    |result| match result {
        Ok(Reply::Done | Reply::Removed { .. }) => to.done(),
        other => to.error(failure(other)),
    }
}

fn answer_data(to: Answer) -> impl FnOnce(Result<Reply>) + Send + 'static {
    |result| match result {
        Ok(Reply::Data(data)) => to.data(&data),
        other => to.error(failure(other)),
    }
}

fn answer_written(to: Answer) -> impl FnOnce(Result<Reply>) + Send + 'static {
    |result| match result {
        Ok(Reply::Written(n)) => to.value(&abi::WriteOut { size: n.min(u32::MAX.into()) as u32, padding: 0 }),
        other => to.error(failure(other)),
    }
}

/// A value of an extended attribute, or its size where the caller's buffer is empty.
fn answer_xattr(to: Answer, room: u32, value: &[u8]) {
    match (room as usize, value.len()) {
        (0, len) => to.value(&abi::WriteOut { size: len as u32, padding: 0 }),
        (room, len) if len > room => to.error(libc::ERANGE),
        _ => to.data(value),
    }
}

/// An absent name is told as an entry without an inode, so that the kernel remembers it.
fn answer_lookup<B: Backend>(to: Answer, entry: EntryTo<B>) -> impl FnOnce(Result<Reply>) + Send + 'static {
    move |result| match result {
        Err(Error::NotFound) => to.value(&convert::absent(entry.name)),
        result => answer_entry(to, entry)(result),
    }
}

fn make_file((dir, name): (NodeId, &[u8]), (mode, umask): (u32, u32)) -> Op<'_> {
    Op::Make { dir, name, make: Make::File, mode: mode & 0o7777, umask }
}

/// The kernel asked to create because it knew the name as absent, and it exists. ESTALE makes the
/// kernel look again and open what is there with the checks that it skips for a file it believes to
/// have created. It does so once, and the program gets the second: so a name that comes and goes is
/// tried again before.
fn create_again<B: Backend>(
    (gate, env, ctx): (B, Env, Ctx),
    (dir, name): (NodeId, Box<[u8]>),
    mode: (u32, u32),
    how: (EntryTo<B>, Opening),
    to: Answer,
) {
    let (of, like) = (gate.clone(), make_file((dir, b""), mode));
    gate.run_all(ctx, (like, 0), (how, to), move |ctx, (how, to)| {
        if ctx.wait == Wait::Never {
            return Attempt::Wait((how, to));
        }
        let mut tries = CREATE_PAUSES.iter().map(|pause| {
            env.sleep(*pause);
            of.call(ctx, make_file((dir, &name), mode))
        });
        let made = tries.find(|made| *made != Err(Error::Exists)).unwrap_or(Err(Error::Stale));
        let outcome = Outcome { failed: made.is_err(), ..Outcome::default() };
        answer_create(to, how)(made);
        Attempt::Done(outcome)
    });
}

fn answer_create<B: Backend>(
    to: Answer,
    (entry, opening): (EntryTo<B>, Opening),
) -> impl FnOnce(Result<Reply>) + Send + 'static {
    move |result| match result {
        Ok(Reply::Attr(a)) => {
            let open = opening.open(entry.backend.keep_attr(a.node));
            let created = abi::CreateOut { entry: convert::entry(&a, entry.keep(a.node)), open };
            to.value_or_else(&created, || {
                opening.undo(&open);
                entry.give_back(a.node);
            });
        }
        other => to.error(failure(other)),
    }
}
