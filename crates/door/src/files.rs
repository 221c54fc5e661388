//! Files by path, as a user: what a door's request does with the cell.
//!
//! Each method is one request at the gate, or one for each step of a long one. It runs at once where it need not wait, else on one of the gate's
//! threads that may; the future is answered from there. A future that is dropped leaves nothing half done: what it has begun goes on to
//! its end, and what has no name yet is freed.

use crate::file::{File, Held};
use crate::limits::{self, LIST_STEP};
use crate::path::Path;
use crate::steps::{MADE_FOR_PATH, Steps, Walked};
use crate::upload::Upload;
use crate::who::{self, R, W, Who, X};
use bytes::Bytes;
use leeward_env::{Ctx, Door, Env};
use leeward_vfs::{Attempt, Gate};
use leeward_volume::op::{Attr, Entry, Kind, Over, RenameMode, SetAttr, SetTime, StatFs, Time};
use leeward_volume::{Error, NodeId, Op, Reply, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, oneshot};

/// The files of a cell, for doors. Cheap to clone.
#[derive(Clone)]
pub struct Files(Arc<Shared>);

struct Shared {
    gate: Gate,
    env: Env,
    /// Bytes that may still be read for clients.
    content: Arc<Semaphore>,
    /// Bytes that came in and are not written yet.
    incoming: Arc<AtomicUsize>,
}

/// A directory of the cell and what is below it, as one user and by one door. Cheap to clone.
#[derive(Clone)]
pub struct Tree {
    files: Files,
    ctx: Ctx,
    base: Arc<Path>,
}

/// What is at a path.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its attributes.
    pub attr: Attr,
    /// Values of the extended attributes that were asked for, in that order.
    pub xattrs: Vec<Option<Vec<u8>>>,
}

impl Files {
    /// Those behind a gate.
    pub fn new(gate: &Gate, env: &Env) -> Files {
        Files(Arc::new(Shared {
            gate: gate.clone(),
            env: env.clone(),
            content: Arc::new(Semaphore::new(limits::CONTENT_BYTES_MAX)),
            incoming: Arc::default(),
        }))
    }

    /// What is below the directory at `base`, a path from the cell's root, as this user. Nothing is looked at yet: each request goes
    /// all the way from the root, as in the mount. Symbolic links are not followed out of it.
    pub fn tree(&self, who: &Who, door: Door, base: &Path) -> Tree {
        Tree { files: self.clone(), ctx: who.ctx(door), base: Arc::new(base.clone()) }
    }

    /// The clock.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    pub(crate) fn content(&self) -> &Arc<Semaphore> {
        &self.0.content
    }

    pub(crate) fn incoming(&self) -> &Arc<AtomicUsize> {
        &self.0.incoming
    }

    /// Whether much content is on its way: then pieces should be small.
    pub(crate) fn is_tight(&self) -> bool {
        let read =
            limits::CONTENT_BYTES_MAX - self.0.content.available_permits().min(limits::CONTENT_BYTES_MAX);
        read + self.0.incoming.load(Ordering::Relaxed) > limits::CONTENT_BYTES_EASY
    }

    /// Runs `f` in its turn at the gate, entered as an operation like `like` that moves so many bytes. It is run from the beginning again when a
    /// step would have to wait.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        ctx: Ctx,
        like: (Op<'static>, u64),
        f: impl FnMut(&Steps<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let gate = self.0.gate.clone();
        self.0.gate.run_all(ctx, like, (f, answer), move |ctx, (mut f, answer)| {
            let steps = Steps::new(&gate, ctx);
            match f(&steps) {
                Err(Error::WouldBlock) => Attempt::Wait((f, answer)),
                result => {
                    let outcome = steps.outcome(result.is_err());
                    // who has gone away needs no answer
                    let _ = answer.send(result);
                    Attempt::Done(outcome)
                }
            }
        });
        answered.await.unwrap_or_else(|_| Err(Error::Io("a request was not answered: see the log".into())))
    }

    /// One operation in its turn.
    pub(crate) async fn one(&self, ctx: Ctx, op: Op<'_>) -> Result<Reply> {
        let (answer, answered) = oneshot::channel();
        self.0.gate.run(ctx, op, move |result| {
            let _ = answer.send(result);
        });
        answered.await.unwrap_or_else(|_| Err(Error::Io("a request was not answered: see the log".into())))
    }
}

/// Something that only reads, entered as this kind of operation.
pub(crate) const LOOK: (Op<'static>, u64) = (Op::Lookup { dir: NodeId::ROOT, name: b"" }, 0);
const LIST: (Op<'static>, u64) = (Op::List { dir: NodeId::ROOT, after: b"", limit: 0, attrs: true }, 0);
const SET: (Op<'static>, u64) = (Op::SetAttr { node: NodeId::ROOT, set: NOTHING }, 0);
const UNLINK: (Op<'static>, u64) = (Op::Unlink { dir: NodeId::ROOT, name: b"" }, 0);
const MKDIR: (Op<'static>, u64) =
    (Op::Make { dir: NodeId::ROOT, name: b"", make: leeward_volume::op::Make::Dir, mode: 0, umask: 0 }, 0);
const RENAME: (Op<'static>, u64) = (
    Op::Rename {
        from_dir: NodeId::ROOT,
        from_name: b"",
        to_dir: NodeId::ROOT,
        to_name: b"",
        mode: RenameMode::Replace,
    },
    0,
);
const NOTHING: SetAttr = SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None };

impl Tree {
    /// The files of all trees.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The context of its requests.
    pub fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    /// Where it is in the cell.
    pub fn base(&self) -> &Path {
        &self.base
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        like: (Op<'static>, u64),
        mut f: impl FnMut(&Steps<'_>, &Path) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let base = self.base.clone();
        self.files.run(self.ctx, like, move |steps| f(steps, &base)).await
    }

    /// What is at a path, with these extended attributes. Follows symbolic links that stay in the tree.
    ///
    /// # Errors
    /// As `stat` and `getxattr` give them; of what may not be read attributes beginning with `user.` are left out.
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

    /// Opens a file for reading: it stays what it is, whatever becomes of its name. A small one is read with this.
    ///
    /// # Errors
    /// As `open` gives them; [`Error::IsDir`] and [`Error::NotSupported`] for what is no regular file.
    pub async fn open(&self, path: &Path, xattrs: &'static [&'static [u8]]) -> Result<File> {
        let (path, files, ctx) = (path.clone(), self.files.clone(), self.ctx);
        let like = (Op::Read { node: NodeId::ROOT, offset: 0, len: 0 }, 0);
        self.run(like, move |steps, base| {
            let walked = steps.walk(base, &path, true)?;
            regular(walked.found()?)?;
            let attr = steps.hold(walked.dir().node, &walked.name)?;
            let held = Held::new(&files, ctx, attr.node);
            regular(&attr)?;
            steps.permit(&attr, R)?;
            let whole =
                if attr.size <= limits::READ_WHOLE_BYTES { Some(read_whole(steps, &attr)?) } else { None };
            Ok(File { attr, xattrs: xattrs_of(steps, &attr, xattrs)?, whole, held: Arc::new(held) })
        })
        .await
    }

    /// Entries of a directory after a name, in the order of their bytes, with attributes; and whether these are the last.
    ///
    /// # Errors
    /// As `readdir` gives them.
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

    /// A new file that will be at `path`, in place of what is there; nothing is seen of it before [`Upload::finish`]. `bytes`: how large it will be,
    /// where that is known: a quota without room for it refuses now. Directories above may be missing, they are made at the end.
    ///
    /// # Errors
    /// As `open` with `O_CREAT` gives them; [`Error::IsDir`] where a directory is.
    pub async fn create(&self, path: &Path, bytes: Option<u64>) -> Result<Upload> {
        Upload::begin(self, path, bytes).await
    }

    /// Makes a directory, durably. With `parents` also those above that are missing, and it is no error that it is there.
    ///
    /// # Errors
    /// As `mkdir` gives them.
    pub async fn make_dir(&self, path: &Path, parents: bool) -> Result<Attr> {
        let path = path.clone();
        let mut made: Option<Attr> = None;
        self.run(MKDIR, move |steps, base| {
            if made.is_none() {
                let walked =
                    if parents { steps.walk_making(base, &path)? } else { steps.walk(base, &path, true)? };
                if walked.attr.is_some() && !parents {
                    return Err(Error::Exists);
                }
                let attr = steps.make_dir(&walked, None)?;
                if attr.kind != Kind::Dir {
                    return Err(Error::Exists);
                }
                made = Some(attr);
            }
            let attr = made.expect("just made");
            steps.fsync(attr.node)?;
            Ok(attr)
        })
        .await
    }

    /// Removes a file (or link, or anything but a directory), durably. `prune`: also the directories above that it leaves empty, if a door
    /// made them for a path.
    ///
    /// # Errors
    /// As `unlink` gives them.
    pub async fn remove(&self, path: &Path, prune: bool) -> Result<()> {
        self.remove_if(path, Over::Any, prune).await
    }

    /// The same, of what is as `over` says only.
    ///
    /// # Errors
    /// As `unlink` gives them; [`Error::Changed`].
    pub async fn remove_if(&self, path: &Path, over: Over, prune: bool) -> Result<()> {
        let path = path.clone();
        let (mut removed, mut pruned) = (false, false);
        self.run(UNLINK, move |steps, base| {
            if !removed {
                let walked = steps.walk(base, &path, false)?;
                let (dir, entry) = (walked.dir(), walked.found()?);
                permit_removal(steps, dir, entry)?;
                if matches!(over, Over::This(node, ctime) if (entry.node, entry.ctime) != (node, ctime)) {
                    return Err(Error::Changed);
                }
                let op = Op::Unlink { dir: dir.node, name: &walked.name };
                steps.call(op)?;
                removed = true;
            }
            if prune && !pruned {
                prune_above(steps, base, &path)?;
                pruned = true;
            }
            steps.fsync(NodeId::ROOT)
        })
        .await
    }

    /// Removes an empty directory, durably.
    ///
    /// # Errors
    /// As `rmdir` gives them.
    pub async fn remove_dir(&self, path: &Path) -> Result<()> {
        let path = path.clone();
        let mut removed = false;
        self.run(UNLINK, move |steps, base| {
            if !removed {
                let walked = steps.walk(base, &path, false)?;
                let (dir, entry) = (walked.dir(), walked.found()?);
                permit_removal(steps, dir, entry)?;
                steps.call(Op::RmDir { dir: dir.node, name: &walked.name })?;
                removed = true;
            }
            steps.fsync(NodeId::ROOT)
        })
        .await
    }

    /// Gives something another name in the same tree, durably.
    ///
    /// # Errors
    /// As `renameat2` gives them; [`Error::CrossVolume`] to another volume: copy, then remove.
    pub async fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        let mut renamed = false;
        self.run(RENAME, move |steps, base| {
            if !renamed {
                let (a, b) = (steps.walk(base, &from, false)?, steps.walk(base, &to, false)?);
                let entry = a.found()?;
                permit_removal(steps, a.dir(), entry)?;
                match &b.attr {
                    Some(target) => permit_removal(steps, b.dir(), target)?,
                    None => steps.permit(b.dir(), W | X)?,
                }
                if entry.kind == Kind::Dir && a.dir().node != b.dir().node {
                    // its `..` changes
                    steps.permit(entry, W)?;
                }
                steps.call(Op::Rename {
                    from_dir: a.dir().node,
                    from_name: &a.name,
                    to_dir: b.dir().node,
                    to_name: &b.name,
                    mode,
                })?;
                renamed = true;
            }
            steps.fsync(NodeId::ROOT)
        })
        .await
    }

    /// Sets extended attributes (`None` removes one) of a file or directory, durably.
    ///
    /// # Errors
    /// As `setxattr` gives them. Only those beginning with `user.` can be set.
    pub async fn set_xattrs(&self, path: &Path, values: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<()> {
        let path = path.clone();
        let mut done = false;
        self.run(SET, move |steps, base| {
            let attr = *steps.walk(base, &path, true)?.found()?;
            if !done {
                steps.permit(&attr, W)?;
                who::permit_user_xattr(steps.ctx, &attr)?;
                for (name, value) in &values {
                    set_user_xattr(steps, attr.node, name, value.as_deref())?;
                }
                done = true;
            }
            steps.fsync(attr.node)
        })
        .await
    }

    /// Sets the time of modification, durably.
    ///
    /// # Errors
    /// As `utimensat` gives them.
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

    /// Bytes below a directory (or of a file), and the figures of its volume.
    ///
    /// # Errors
    /// As `stat` gives them.
    pub async fn space(&self, path: &Path) -> Result<(u64, StatFs)> {
        let path = path.clone();
        self.run(LOOK, move |steps, base| {
            let attr = *steps.walk(base, &path, true)?.found()?;
            let below = steps.xattr(attr.node, b"leeward.rbytes").ok().flatten();
            let bytes =
                below.and_then(|b| String::from_utf8(b).ok()?.parse().ok()).unwrap_or(attr.blocks * 512);
            match steps.call(Op::StatFs { node: attr.node })? {
                Reply::StatFs(figures) => Ok((bytes, figures)),
                other => Err(Error::Io(format!("StatFs answered {other:?}"))),
            }
        })
        .await
    }

    /// Whether the user may read, write or enter what is there: bits as of `access`.
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
    if !name.starts_with(b"user.") {
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
    match steps.call(Op::Read { node: attr.node, offset: 0, len: attr.size as u32 })? {
        Reply::Data(data) => Ok(data.into()),
        other => Err(Error::Io(format!("Read answered {other:?}"))),
    }
}

fn permit_removal(steps: &Steps<'_>, dir: &Attr, entry: &Attr) -> Result<()> {
    steps.permit(dir, W | X)?;
    who::permit_removal(steps.ctx, dir, entry)
}

/// Removes directories above a path that are empty now and were made for paths, as far up as they are. What cannot be removed stays.
fn prune_above(steps: &Steps<'_>, base: &Path, path: &Path) -> Result<()> {
    let mut path = path.clone();
    while let Some((above, _)) = path.split() {
        path = above;
        if path.is_root() {
            return Ok(());
        }
        let Ok(Walked { dirs, name, attr: Some(dir) }) = steps.walk(base, &path, false) else {
            return Ok(());
        };
        let marked =
            dir.kind == Kind::Dir && dir.size == 0 && steps.xattr(dir.node, MADE_FOR_PATH)?.is_some();
        let Some(parent) = dirs.last().filter(|_| marked) else { return Ok(()) };
        if permit_removal(steps, parent, &dir).is_err() {
            return Ok(());
        }
        match steps.call(Op::RmDir { dir: parent.node, name: &name }) {
            Ok(_) => {}
            Err(Error::WouldBlock) => return Err(Error::WouldBlock),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}
