//! Writes a file: content goes to a file without a name, which gets its name at the end, replacing
//! the file that had it.
//!
//! Readers find the old file whole or the new one whole. If the client, the door or the machine
//! dies, the file left behind has no name. It is freed when the last reference goes, or when the
//! cell is opened again.

use crate::digest::{Digest, Running};
use crate::file::{File, InodeRef, counted};
use crate::files::{Tree, set_user_xattr};
use crate::like;
use crate::limits;
use crate::path::Path;
use crate::semaphore::FairPermit;
use crate::steps::{Base, Steps, Walked};
use bytes::{Bytes, BytesMut};
use leeward_fs::rights::{self, R, W, X};
use leeward_fs::{Attr, Error, Kind, NodeId, Op, Precondition, Reply, Result, SetAttr, SetTime, Time};
use std::ops::Range;

/// Mode of a new file, before the mask.
const FILE_MODE: u32 = 0o666;
/// How often other files may get the name first, before the caller gets an error.
const PLACE_TRIES: usize = 1000;
/// Most bytes that one copying operation moves: it is one turn at the gate.
const COPY_BYTES: u64 = 1 << 30;

/// A file that is being written. Dropped, it is gone. `D`: a digest of its content.
pub struct Upload<D = ()> {
    pub(crate) tree: Tree,
    path: Path,
    pub(crate) held: InodeRef,
    /// Bytes in the file.
    size: u64,
    /// Size that it will have, where that is known.
    expected: Option<u64>,
    buffer: Buffer,
    /// The digest of all but the buffer.
    digest: Running<D>,
    taken: Taken,
}

/// Attributes that it copies from other files.
#[derive(Clone, Default)]
struct Taken {
    /// Permissions are copied from this file; else from the replaced file, if that has the same
    /// owner.
    like: Option<(File, bool)>,
    /// These attributes are copied from the replaced file.
    notes: &'static [&'static [u8]],
}

/// Content that arrived and is not written yet, and the memory that it may take.
#[derive(Default)]
struct Buffer {
    bytes: BytesMut,
    share: Option<FairPermit>,
}

impl Buffer {
    fn new(share: Option<FairPermit>) -> Buffer {
        Buffer { bytes: BytesMut::with_capacity(share.as_ref().map_or(0, FairPermit::units)), share }
    }

    /// Bytes that fit in it.
    fn room(&self) -> usize {
        self.share.as_ref().map_or(0, FairPermit::units).saturating_sub(self.bytes.len())
    }

    /// Its content, counted until it is dropped.
    fn into_piece(self) -> Bytes {
        match self.share {
            Some(share) => counted(self.bytes.freeze(), share),
            None => Bytes::new(),
        }
    }
}

/// How an upload ends.
#[derive(Clone, Debug)]
pub struct Finish {
    /// The inode that it may replace.
    pub over: Precondition,
    /// Extended attributes to set on it, beginning with `user.`.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its time of modification, where it is not that of the last write.
    pub modified: Option<Time>,
    /// Whether missing directories above are made.
    pub parents: bool,
    /// The upload in parts that it completes, and the result to keep for a while.
    pub completes: Option<(NodeId, Vec<u8>)>,
}

impl Default for Finish {
    fn default() -> Finish {
        Finish {
            over: Precondition::Any,
            xattrs: Vec::new(),
            modified: None,
            parents: false,
            completes: None,
        }
    }
}

/// Requests that write are accounted for as this kind of operation.
pub(crate) const PLACE: Op<'static> =
    Op::Place { node: NodeId::ROOT, dir: NodeId::ROOT, name: b"", over: Precondition::Any };

impl Upload {
    pub(crate) async fn begin(tree: &Tree, path: &Path, bytes: Option<u64>) -> Result<Upload> {
        let (files, ctx, wanted) = (tree.files().clone(), *tree.ctx(), path.clone());
        let make = move |steps: &Steps<'_>, base: &Base| {
            let dir = dir_for(steps, base, &wanted)?;
            let attr = steps.make_unnamed(dir, FILE_MODE, bytes.unwrap_or(0))?;
            steps.about(attr.node);
            Ok(InodeRef::new(&files, ctx, attr.node))
        };
        let held = tree.run((PLACE, 0), make).await?;
        Ok(Upload {
            tree: tree.clone(),
            path: path.clone(),
            held,
            size: 0,
            expected: bytes,
            buffer: Buffer::default(),
            digest: Running::new(()),
            taken: Taken::default(),
        })
    }

    /// The upload with a digest of everything written from now on.
    pub fn with_digest<D: Digest>(self, digest: D) -> Upload<D> {
        self.with(Running::new(digest)).1
    }
}

impl<D: Digest> Upload<D> {
    /// Replaces the digest: returns the old one, and the upload with the new one.
    fn with<E>(self, digest: Running<E>) -> (Running<D>, Upload<E>) {
        let Upload { tree, path, held, size, expected, buffer, digest: had, taken } = self;
        (had, Upload { tree, path, held, size, expected, buffer, digest, taken })
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size + self.buffer.bytes.len() as u64
    }

    /// Adds content at the end. Waits while the user has more than the user's share waiting to be
    /// written. Content is gathered to pieces where this user has a part of the memory for that,
    /// else written as it comes.
    ///
    /// # Errors
    /// As for `write`.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if self.buffer.share.is_none() {
                self.buffer = Buffer::new(self.share());
            }
            let is_gathered = self.buffer.share.is_some();
            let at_once = if is_gathered { self.buffer.room() } else { limits::WRITE_BYTES };
            let (part, more) = rest.split_at(at_once.min(rest.len()));
            rest = more;
            if !is_gathered {
                self.digest.add_here(part).await?;
                self.put(part).await?;
                continue;
            }
            self.buffer.bytes.extend_from_slice(part);
            if self.buffer.room() == 0 {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// The digest of everything written, and the upload without it.
    ///
    /// # Errors
    /// As [`Upload::write`].
    pub async fn digested(self) -> Result<(D, Upload)> {
        self.digest.add_here(&self.buffer.bytes).await?;
        let (running, upload) = self.with(Running::new(()));
        Ok((running.end().await?, upload))
    }

    /// Memory for the next piece, if there is any for this user.
    fn share(&self) -> Option<FairPermit> {
        let (incoming, uid) = (self.tree.files().incoming(), self.tree.ctx().flow.uid);
        let most = if incoming.is_tight(uid) { limits::WRITE_BYTES_TIGHT } else { limits::WRITE_BYTES };
        let expected = self.expected.map_or(most as u64, |bytes| bytes.saturating_sub(self.size));
        // never zero: more may come than was announced
        incoming.try_take(uid, (expected as usize).clamp(1, most))
    }

    pub(crate) async fn flush(&mut self) -> Result<()> {
        let piece = std::mem::take(&mut self.buffer).into_piece();
        self.digest.add(self.tree.files().hash_threads(), piece.clone()).await?;
        self.put(&piece).await
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.held.check()?;
        let op = Op::Write { node: self.held.node, offset: self.size, data: bytes };
        match self.held.judge(self.tree.files().one(*self.tree.ctx(), op).await)? {
            Reply::Written(count) if count == bytes.len() as u64 => self.size += count,
            other => return Err(Error::Io(format!("Write answered {other:?}"))),
        }
        Ok(())
    }

    /// Copies the permissions of this file, as far as its group is the same, and not those of the
    /// replaced file. `keeps_group`: also the group, where the user is in it.
    pub fn like(&mut self, file: &File, keeps_group: bool) {
        self.taken.like = Some((file.clone(), keeps_group));
    }

    /// Copies these attributes, which begin with `user.`, from the replaced file.
    pub fn keep(&mut self, names: &'static [&'static [u8]]) {
        self.taken.notes = names;
    }

    /// Adds a range of another file at the end: of the same volume by sharing its data. A caller
    /// that copies facts about the content calls [`File::is_same`] afterwards.
    ///
    /// # Errors
    /// As for `copy_file_range`; [`Error::Io`] when the source is shorter now.
    pub async fn copy(&mut self, from: &File, range: Range<u64>) -> Result<()> {
        self.copy_from(from.held.node, range).await
    }

    pub(crate) async fn copy_from(&mut self, from: NodeId, range: Range<u64>) -> Result<()> {
        self.flush().await?;
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(COPY_BYTES);
            self.held.check()?;
            let op = Op::CopyRange { from, from_offset: at, to: self.held.node, to_offset: self.size, len };
            let copied = self.tree.files().one(*self.tree.ctx(), op).await;
            let count = self.held.judge(copied)?.written()?;
            if count == 0 {
                return Err(Error::Io("the source was shortened while it was copied".into()));
            }
            (at, self.size) = (at + count, self.size + count);
        }
        Ok(())
    }

    /// Gives the file its name. When this returns, content, attributes and name are durable, and
    /// seen everywhere.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::Changed`] where [`Finish::over`] says so; [`Error::Quota`];
    /// as for `rename`.
    pub async fn finish(mut self, finish: Finish) -> Result<Attr> {
        let tail = std::mem::take(&mut self.buffer).into_piece();
        let Upload { tree, path, held, size, taken, .. } = self;
        let mut state = Finishing { path, finish, taken, tail, offset: size, done: Done::default() };
        let go_on = move |steps: &Steps<'_>, base: &Base| {
            // the caller may go away, the file may not
            let held = &held;
            held.check()?;
            held.judge(state.go_on(steps, base, held.node))
        };
        tree.run((PLACE, 0), go_on).await
    }
}

/// An upload that gets its name, step by step.
struct Finishing {
    path: Path,
    finish: Finish,
    taken: Taken,
    tail: Bytes,
    offset: u64,
    done: Done,
}

#[derive(Default)]
struct Done {
    written: bool,
    attributes: bool,
    placed: Option<Attr>,
}

impl Finishing {
    /// Continues where it had to wait.
    fn go_on(&mut self, steps: &Steps<'_>, base: &Base, node: NodeId) -> Result<Attr> {
        steps.about(node);
        if !self.done.written && !self.tail.is_empty() {
            match steps.call(Op::Write { node, offset: self.offset, data: &self.tail })? {
                Reply::Written(count) if count == self.tail.len() as u64 => {}
                other => return Err(Error::Io(format!("Write answered {other:?}"))),
            }
        }
        self.done.written = true;
        if !self.done.attributes {
            self.finish.xattrs.iter().try_for_each(|(n, v)| set_user_xattr(steps, node, n, Some(v)))?;
            if let Some(time) = self.finish.modified {
                let set = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
                steps.call(Op::SetAttr { node, set })?;
            }
            self.done.attributes = true;
        }
        let attr = match self.done.placed {
            Some(attr) => attr,
            None => self.place(steps, base, node)?,
        };
        self.done.placed = Some(attr);
        steps.fsync(node)?;
        Ok(attr)
    }

    fn place(&self, steps: &Steps<'_>, base: &Base, node: NodeId) -> Result<Attr> {
        let mut tries = 0..PLACE_TRIES;
        loop {
            let walked = match self.finish.parents {
                true => steps.walk_making(base, &self.path)?,
                false => steps.walk(base, &self.path, false)?,
            };
            steps.about(node);
            let dir = walked.dir();
            steps.permit(dir, W | X)?;
            if let Some(old) = &walked.attr {
                rights::permit_removal(steps.ctx, dir, old)?;
            }
            self.take_over(steps, &walked, node)?;
            // the file whose attributes it copied must be the one that it replaces
            let over = match (self.finish.over, &walked.attr) {
                (Precondition::Any, Some(old)) => Precondition::This(old.node, old.ctime),
                (Precondition::Any, None) => Precondition::Nothing,
                (over, _) => over,
            };
            match steps.attr_of(self.placing(node, dir.node, &walked.name, over)) {
                // the directory was removed just now, as its last file was
                Err(Error::NotFound) if self.finish.parents && tries.next().is_some() => {}
                // another file was faster
                Err(Error::Changed | Error::Exists)
                    if self.finish.over == Precondition::Any && tries.next().is_some() => {}
                other => return other,
            }
        }
    }

    fn placing<'a>(&'a self, node: NodeId, dir: NodeId, name: &'a [u8], over: Precondition) -> Op<'a> {
        match &self.finish.completes {
            None => Op::Place { node, dir, name, over },
            Some((upload, note)) => Op::CompleteUpload { upload: *upload, node, dir, name, over, note },
        }
    }

    fn take_over(&self, steps: &Steps<'_>, walked: &Walked, node: NodeId) -> Result<()> {
        let old = walked.attr.as_ref().filter(|old| old.kind == Kind::File);
        let like = match (&self.taken.like, old) {
            (Some((file, keeps_group)), _) => Some((&file.attr, *keeps_group)),
            (None, Some(old)) if old.uid == steps.ctx.uid => Some((old, true)),
            _ => None,
        };
        if let Some((from, keeps_group)) = like {
            let new = steps.attr_of(Op::GetAttr { node })?;
            like::same_rights(steps, from, &new, keeps_group)?;
        }
        let Some(old) = old.filter(|old| steps.permit(old, R).is_ok()) else { return Ok(()) };
        for name in self.taken.notes {
            if let Some(value) = steps.xattr(old.node, name)? {
                steps.set_xattr(node, name, &value)?;
            }
        }
        Ok(())
    }
}

/// The directory that a new file at `path` will be in or below: the lowest existing one. The user
/// may make something in it.
pub(crate) fn dir_for(steps: &Steps<'_>, base: &Base, path: &Path) -> Result<NodeId> {
    if path.is_root() {
        return Err(Error::IsDir);
    }
    let walked = steps.walk_far(base, path)?;
    steps.permit(walked.dir(), W | X)?;
    match &walked.attr {
        Some(there) if there.kind == Kind::Dir => Err(Error::IsDir),
        _ => Ok(walked.dir().node),
    }
}
