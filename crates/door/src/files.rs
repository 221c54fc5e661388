//! Files by path, as a user: the operations of a door's request on the cell.
//!
//! Each method is one request at the gate, or one for each step of a long one. It runs at once
//! where it need not wait, else on one of the gate's threads that may; the future is answered from
//! there. A future that is dropped leaves nothing half done: what it has begun goes on to its end,
//! and a file that has no name yet is freed.

use crate::digest::HashThreads;
use crate::file::{File, InodeRef, counted};
use crate::limits::{self, LIST_STEP, TURN_SECS_MAX};
use crate::path::Path;
use crate::semaphore::{FairPermit, FairSemaphore};
use crate::steps::{Base, Steps};
use crate::upload::Upload;
use crate::who::Principal;
use bytes::Bytes;
use leeward_env::{Ctx, Door, Env, Wait};
use leeward_fs::rights::{self, R, W, X};
use leeward_fs::{Attr, Entry, Error, Kind, NodeId, Op, Reply, Result, SetAttr, SetTime, StatFs, Time};
use leeward_vfs::DoorBackend;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The files of a cell, for doors. Cheap to clone.
#[derive(Clone)]
pub struct Files(Arc<Shared>);

struct Shared {
    backend: Arc<dyn DoorBackend>,
    env: Env,
    /// Bytes that were read for clients and that clients have not taken yet.
    content: FairSemaphore,
    /// Bytes that arrived and are not written yet.
    incoming: FairSemaphore,
    /// Files that are being read for their checksums.
    hashing: FairSemaphore,
    hash_threads: HashThreads,
    /// Locks by inode, for changes of an attribute that depend on its old value.
    changing: [tokio::sync::Mutex<()>; 64],
}

/// A directory of the cell and what is below it, as one user and by one door. Cheap to clone.
#[derive(Clone)]
pub struct Tree {
    files: Files,
    ctx: Ctx,
    pub(crate) base: Arc<Base>,
}

/// A name in a directory that was looked up.
#[derive(Clone)]
pub struct PathEntry {
    /// The tree of that directory, wherever it is by now. Its first names are not followed: where a
    /// symbolic link replaces one, nothing is found there.
    pub tree: Tree,
    /// The name as a path of that tree; the tree's root, where the path began there.
    pub name: Path,
    /// Attributes of the inode with that name, if there is one.
    pub attr: Option<Attr>,
    /// The directories that it is in, from the top.
    pub above: Vec<NodeId>,
}

/// What was found at a path.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its attributes.
    pub attr: Attr,
    /// Values of the requested extended attributes, in that order.
    pub xattrs: Vec<Option<Vec<u8>>>,
}

impl Files {
    /// The files behind a gate, or of a cell that another machine serves.
    pub fn new(backend: &(impl DoorBackend + Clone), env: &Env) -> Files {
        Files(Arc::new(Shared {
            backend: Arc::new(backend.clone()),
            env: env.clone(),
            content: FairSemaphore::new(limits::CONTENT_BYTES_MAX),
            incoming: FairSemaphore::new(limits::INCOMING_BYTES_MAX),
            hashing: FairSemaphore::new(limits::HASHING_MAX),
            hash_threads: HashThreads::new(env),
            changing: [const { tokio::sync::Mutex::const_new(()) }; 64],
        }))
    }

    /// The tree of the directory at `base`, a path from the cell's root, as this user. Nothing is
    /// looked up yet: each request goes all the way from the root, as in the mount. Symbolic links
    /// that lead out of the tree are not followed.
    pub fn tree(&self, who: &Principal, door: Door, base: &Path) -> Tree {
        Tree { files: self.clone(), ctx: who.ctx(door), base: Arc::new(Base::of(base)) }
    }

    /// A tree for a client that may reach only one name of the directory, which is the first of
    /// every path. It may be anything, or be missing, and is not followed where it is a symbolic
    /// link; nor do links below it lead out of it. All names of `base` but the first `there` may be
    /// missing; they are made where directories above a file are.
    pub fn tree_of_name(&self, who: &Principal, door: Door, base: &Path, there: usize) -> Tree {
        Tree { files: self.clone(), ctx: who.ctx(door), base: Arc::new(Base::pinned(base, there)) }
    }

    /// The clock.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    pub(crate) fn backend(&self) -> &dyn DoorBackend {
        &*self.0.backend
    }

    /// Permits to read a file for its checksum, which takes a processor: one unit for each file.
    pub fn hashing(&self) -> &FairSemaphore {
        &self.0.hashing
    }

    /// Threads that hash incoming content.
    pub(crate) fn hash_threads(&self) -> &HashThreads {
        &self.0.hash_threads
    }

    /// Memory for content that is read for clients, bytes.
    pub(crate) fn content(&self) -> &FairSemaphore {
        &self.0.content
    }

    /// Memory for incoming content, which users share, bytes.
    pub fn incoming(&self) -> &FairSemaphore {
        &self.0.incoming
    }

    /// Memory for content that is read for this user, when it is this user's turn.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: not within `secs` seconds.
    pub(crate) async fn room(&self, ctx: &Ctx, bytes: usize, secs: u64) -> Result<FairPermit> {
        let share = self.0.content.take_within(ctx.flow.uid, bytes, Duration::from_secs(secs)).await;
        share.ok_or(Error::WouldBlock)
    }

    /// Bytes that wait for this user's client to take them, counted as such until they are dropped.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: the user's clients are too slow to take what waits for them already.
    pub async fn counted(&self, ctx: &Ctx, bytes: Vec<u8>) -> Result<Bytes> {
        let share = self.room(ctx, bytes.len(), TURN_SECS_MAX).await?;
        Ok(counted(bytes.into(), share))
    }

    /// Runs `f` in its turn at the gate, accounted for as an operation like `like` that moves
    /// `bytes`. It is run from the beginning again when a step would have to wait.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        ctx: Ctx,
        like: (Op<'static>, u64),
        mut f: impl FnMut(&Steps<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let (backend, mut answer) = (self.0.backend.clone(), Some(answer));
        let steps = move |ctx: &Ctx| {
            let steps = Steps::new(&*backend, ctx);
            let result = f(&steps);
            if result.as_ref().is_err_and(|e| *e == Error::WouldBlock) && ctx.wait == Wait::Never {
                return None;
            }
            let outcome = steps.outcome(result.is_err());
            // a client that has gone away needs no answer
            let _ = answer.take().map(|answer| answer.send(result));
            Some(outcome)
        };
        self.0.backend.run_all(ctx, like, Box::new(steps));
        received(answered).await
    }

    /// Runs one operation in its turn.
    pub(crate) async fn one(&self, ctx: Ctx, op: Op<'_>) -> Result<Reply> {
        let (answer, answered) = oneshot::channel();
        self.0.backend.run(ctx, op, Box::new(move |result| _ = answer.send(result)));
        received(answered).await
    }

    /// Runs one operation out of turn.
    pub(crate) async fn ask(&self, ctx: Ctx, op: Op<'_>) -> Result<Reply> {
        let (answer, answered) = oneshot::channel();
        self.0.backend.ask(ctx, op, Box::new(move |result| _ = answer.send(result)));
        received(answered).await
    }
}

async fn received<T>(answered: oneshot::Receiver<Result<T>>) -> Result<T> {
    answered.await.unwrap_or_else(|_| Err(Error::Io("a request was not answered: see the log".into())))
}

/// Marks a directory whose mode was changed by [`Tree::open_to_all`].
const OPENED: &[u8] = b"user.leeward.opened";

/// Requests that only read are accounted for as this kind of operation.
pub(crate) const LOOK: (Op<'static>, u64) = (Op::Lookup { dir: NodeId::ROOT, name: b"" }, 0);
const LIST: (Op<'static>, u64) = (Op::List { dir: NodeId::ROOT, after: b"", limit: 0, attrs: true }, 0);
pub(crate) const SET: (Op<'static>, u64) = (Op::SetAttr { node: NodeId::ROOT, set: NOTHING }, 0);
const NOTHING: SetAttr =
    SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, flags: None };

impl Tree {
    /// The files of all trees.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The context of its requests.
    pub fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    /// The path of the tree in the cell; for trees that were reached otherwise, the root.
    pub fn base(&self) -> &Path {
        self.base.way()
    }

    /// The tree of the inode with this number, wherever it is: for a client that has reached it
    /// with the rights of this user. The inode is the root of the tree, whatever its kind; first
    /// names in it are not followed.
    pub fn within(&self, node: NodeId) -> Tree {
        Tree { base: Arc::new(Base::at(node)), ..self.clone() }
    }

    /// Looks up the directory that a path's last name is in. What is done there is done in that
    /// directory, whatever happens to the names above it. With `follow` the last name, too, is
    /// followed where it is a symbolic link.
    ///
    /// # Errors
    /// As for `stat` of the directory.
    pub async fn spot(&self, path: &Path, follow: bool) -> Result<PathEntry> {
        let (path, tree) = (path.clone(), self.clone());
        self.run(LOOK, move |steps, base| {
            let walked = steps.walk(base, &path, follow)?;
            let name = Path::parse(&walked.name).expect("a name is a path");
            let above = walked.dirs.iter().map(|dir| dir.node).collect();
            Ok(PathEntry { tree: tree.within(walked.dir().node), name, attr: walked.attr, above })
        })
        .await
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        like: (Op<'static>, u64),
        mut f: impl FnMut(&Steps<'_>, &Base) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let base = self.base.clone();
        self.files.run(self.ctx, like, move |steps| f(steps, &base)).await
    }

    /// Attributes of what is at a path, with these extended attributes. Follows symbolic links that
    /// stay in the tree.
    ///
    /// # Errors
    /// As for `stat` and `getxattr`. Attributes beginning with `user.` are left out where the user
    /// may not read.
    pub async fn stat(&self, path: &Path, xattrs: &'static [&'static [u8]]) -> Result<Found> {
        let path = path.clone();
        self.run(LOOK, move |steps, base| {
            let attr = *steps.walk(base, &path, true)?.found()?;
            let xattrs = if steps.permit(&attr, R).is_ok() {
                xattrs_of(steps, &attr, xattrs)?
            } else {
                vec![None; xattrs.len()]
            };
            Ok(Found { attr, xattrs })
        })
        .await
    }

    /// Opens a file for reading. It stays the same file, whatever happens to its name. The content
    /// of a small file is read with this.
    ///
    /// # Errors
    /// As for `open`; [`Error::WouldBlock`] when this user's clients are too slow to take what was
    /// read for them; [`Error::IsDir`] and [`Error::NotSupported`] for anything but a regular file.
    pub async fn open(&self, path: &Path, xattrs: &'static [&'static [u8]]) -> Result<File> {
        let (path, files, ctx) = (path.clone(), self.files.clone(), self.ctx);
        let room = files.room(&ctx, limits::READ_WHOLE_BYTES as usize, limits::TURN_SECS_MAX).await?;
        let like = (Op::Read { node: NodeId::ROOT, offset: 0, len: 0 }, 0);
        let opened = self.run(like, move |steps, base| {
            let walked = steps.walk(base, &path, true)?;
            regular(walked.found()?)?;
            let attr = steps.hold(walked.dir().node, &walked.name)?;
            let held = InodeRef::new(&files, ctx, attr.node);
            regular(&attr)?;
            steps.permit(&attr, R)?;
            let whole =
                if attr.size <= limits::READ_WHOLE_BYTES { Some(read_whole(steps, &attr)?) } else { None };
            Ok(File { attr, xattrs: xattrs_of(steps, &attr, xattrs)?, whole, held: Arc::new(held) })
        });
        Ok(opened.await?.counted(room))
    }

    /// Entries of a directory after a name, in the order of their bytes, with attributes; and
    /// whether these are the last.
    ///
    /// # Errors
    /// As for `readdir`.
    pub async fn list(&self, path: &Path, after: &[u8], limit: usize) -> Result<(Vec<Entry>, bool)> {
        let (path, after, limit) = (path.clone(), after.to_vec(), limit.clamp(1, LIST_STEP));
        self.run(LIST, move |steps, base| {
            let walked = steps.walk(base, &path, true)?;
            let dir = walked.found()?;
            if dir.kind != Kind::Dir {
                return Err(Error::NotDir);
            }
            steps.list(dir, &after, limit, true)
        })
        .await
    }

    /// A new file that will be at `path`, replacing what is there; nobody sees it before
    /// [`Upload::finish`]. `bytes`: its size, where that is known: a quota without room for it
    /// refuses now. Missing directories above are made at the end.
    ///
    /// # Errors
    /// As for `open` with `O_CREAT`; [`Error::IsDir`] where a directory is.
    pub async fn create(&self, path: &Path, bytes: Option<u64>) -> Result<Upload> {
        Upload::begin(self, path, bytes).await
    }

    /// Sets extended attributes (`None` removes one) of a file or directory, durably.
    ///
    /// # Errors
    /// As for `setxattr`. Only those beginning with `user.` can be set, and by root those with
    /// `trusted.`.
    pub async fn set_xattrs(&self, path: &Path, values: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<()> {
        let path = path.clone();
        let mut done = false;
        self.run(SET, move |steps, base| {
            let attr = *steps.walk(base, &path, true)?.found()?;
            if !done {
                steps.permit(&attr, W)?;
                rights::permit_user_xattr(steps.ctx, &attr)?;
                for (name, value) in &values {
                    set_user_xattr(steps, attr.node, name, value.as_deref())?;
                }
                done = true;
            }
            steps.fsync(attr.node)
        })
        .await
    }

    /// Changes an extended attribute of a file or directory depending on its old value, durably. Of
    /// several such changes by doors at the same time each sees the result of the one before. The
    /// attribute need not be readable.
    ///
    /// # Errors
    /// As for `setxattr`; those of `change`. Only attributes beginning with `user.` can be set.
    pub async fn change_xattr(
        &self,
        path: &Path,
        name: &'static [u8],
        mut change: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>> + Send + 'static,
    ) -> Result<()> {
        let node = self.stat(path, &[]).await?.attr.node;
        let changing = &self.files.0.changing;
        let _alone = changing[node.inode() as usize % changing.len()].lock().await;
        let mut done = false;
        self.within(node)
            .run(SET, move |steps, base| {
                let attr = *steps.walk(base, &Path::default(), false)?.found()?;
                if !done {
                    steps.permit(&attr, W)?;
                    rights::permit_user_xattr(steps.ctx, &attr)?;
                    let value = change(steps.xattr(node, name)?.as_deref())?;
                    set_user_xattr(steps, node, name, value.as_deref())?;
                    done = true;
                }
                steps.fsync(node)
            })
            .await
    }

    /// Sets the time of modification, durably.
    ///
    /// # Errors
    /// As for `utimensat`.
    pub async fn set_modified(&self, path: &Path, time: Time) -> Result<()> {
        let path = path.clone();
        self.run(SET, move |steps, base| {
            let attr = *steps.walk(base, &path, true)?.found()?;
            if steps.ctx.uid != 0 && steps.ctx.uid != attr.uid {
                return Err(Error::NotPermitted);
            }
            let set = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
            steps.call(Op::SetAttr { node: attr.node, set })?;
            steps.fsync(attr.node)
        })
        .await
    }

    /// Lets everybody list and enter a directory that this user owns, durably. With `open` false,
    /// takes that back where this function gave it.
    ///
    /// # Errors
    /// As for `chmod`.
    pub async fn open_to_all(&self, path: &Path, open: bool) -> Result<()> {
        let path = path.clone();
        let mut done = false;
        self.run(SET, move |steps, base| {
            let attr = *steps.walk(base, &path, true)?.found()?;
            if !done {
                if steps.ctx.uid != attr.uid {
                    return Err(Error::NotPermitted);
                }
                let opened = steps.xattr(attr.node, OPENED)?.is_some();
                let mode = match open {
                    true => attr.mode | R | X,
                    false if opened => attr.mode & !(R | X),
                    false => attr.mode,
                };
                if mode != attr.mode {
                    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                    steps.call(Op::SetAttr { node: attr.node, set })?;
                    set_user_xattr(steps, attr.node, OPENED, open.then_some(b"1"))?;
                }
                done = true;
            }
            steps.fsync(attr.node)
        })
        .await
    }

    /// Bytes below a directory (or of a file), and the figures of its volume.
    ///
    /// # Errors
    /// As for `stat`.
    pub async fn space(&self, path: &Path) -> Result<(u64, StatFs)> {
        let path = path.clone();
        self.run(LOOK, move |steps, base| {
            let attr = *steps.walk(base, &path, true)?.found()?;
            let below = steps.xattr(attr.node, b"leeward.rbytes").ok().flatten();
            let bytes =
                below.and_then(|b| String::from_utf8(b).ok()?.parse().ok()).unwrap_or(attr.blocks * 512);
            Ok((bytes, steps.call(Op::StatFs { node: attr.node })?.stat_fs()?))
        })
        .await
    }

    /// Whether the user may read, write or enter what is there: [`R`], [`W`] and [`X`].
    ///
    /// # Errors
    /// [`Error::Access`], or why it cannot be reached.
    pub async fn access(&self, path: &Path, want: u32) -> Result<Attr> {
        let path = path.clone();
        self.run(LOOK, move |steps, base| {
            let attr = *steps.walk(base, &path, true)?.found()?;
            steps.permit(&attr, want & (R | W | X))?;
            Ok(attr)
        })
        .await
    }
}

/// Sets or removes an attribute that users may name.
pub(crate) fn set_user_xattr(
    steps: &Steps<'_>,
    node: NodeId,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    let may = name.starts_with(b"user.") || steps.ctx.uid == 0 && name.starts_with(b"trusted.");
    if !may {
        return Err(Error::NotSupported);
    }
    match value {
        Some(value) => steps.set_xattr(node, name, value),
        None => match steps.call(Op::RemoveXattr { node, name }) {
            Ok(_) | Err(Error::NoData) => Ok(()),
            Err(e) => Err(e),
        },
    }
}

pub(crate) fn regular(attr: &Attr) -> Result<()> {
    match attr.kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(Error::IsDir),
        _ => Err(Error::NotSupported),
    }
}

fn xattrs_of(steps: &Steps<'_>, attr: &Attr, names: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
    names.iter().map(|name| steps.xattr(attr.node, name)).collect()
}

fn read_whole(steps: &Steps<'_>, attr: &Attr) -> Result<Bytes> {
    if attr.size == 0 {
        return Ok(Bytes::new());
    }
    let read = steps.call(Op::Read { node: attr.node, offset: 0, len: attr.size as u32 })?;
    Ok(read.data()?.into())
}
