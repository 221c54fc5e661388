//! Writing a file: content goes to a file without a name, which gets its name at the end, in place of what had it.
//!
//! Who reads finds the old file whole or the new one whole. What a client, the door or the machine leaves behind when it dies has no name; it
//! is freed when the last reference goes, or when the cell is opened again.

use crate::file::{File, Held};
use crate::files::{Tree, regular, set_user_xattr};
use crate::limits;
use crate::path::Path;
use crate::shares::Share;
use crate::steps::Steps;
use crate::who::{W, X};
use bytes::{Bytes, BytesMut};
use leeward_volume::op::{Attr, Kind, Over, SetAttr, SetTime, Time};
use leeward_volume::{Error, NodeId, Op, Reply, Result};
use std::ops::Range;
use std::sync::Arc;

/// Mode of a new file, less what is masked.
const FILE_MODE: u32 = 0o666;
/// Most bytes that one copying operation moves: it is one turn at the gate.
const COPY_BYTES: u64 = 1 << 30;

/// A file that is being written. Dropped, it is gone.
pub struct Upload {
    tree: Tree,
    path: Path,
    held: Held,
    /// Bytes in the file.
    size: u64,
    /// Bytes that will be in it, where that is known.
    expected: Option<u64>,
    buffer: Buffer,
}

/// What came in and is not written yet, and the memory that it may take.
#[derive(Default)]
struct Buffer {
    bytes: BytesMut,
    share: Option<Share>,
}

impl Buffer {
    /// Bytes that it has room for.
    fn room(&self) -> usize {
        self.share.as_ref().map_or(0, Share::units).saturating_sub(self.bytes.len())
    }
}

/// How an upload ends.
#[derive(Clone, Debug)]
pub struct Finish {
    /// What it may replace.
    pub over: Over,
    /// Extended attributes to set on it, beginning with `user.`.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its time of modification, where it is not that of the last write.
    pub modified: Option<Time>,
    /// Whether missing directories above are made.
    pub parents: bool,
}

impl Default for Finish {
    fn default() -> Finish {
        Finish { over: Over::Any, xattrs: Vec::new(), modified: None, parents: false }
    }
}

/// A file that is written, durable, and has no name: to be copied from. Dropped, it is gone; so it is when the process ends.
#[derive(Clone)]
pub struct Part {
    file: File,
}

impl Part {
    /// Bytes in it.
    pub fn size(&self) -> u64 {
        self.file.attr.size
    }

    /// To read it, or copy from it.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Something that writes, entered as this kind of operation.
const PLACE: Op<'static> = Op::Place { node: NodeId::ROOT, dir: NodeId::ROOT, name: b"", over: Over::Any };

impl Upload {
    pub(crate) async fn begin(tree: &Tree, path: &Path, bytes: Option<u64>) -> Result<Upload> {
        let (files, ctx, wanted) = (tree.files().clone(), *tree.ctx(), path.clone());
        let make = move |steps: &Steps<'_>, base: &Path| {
            let dir = dir_for(steps, base, &wanted)?;
            let attr = steps.make_unnamed(dir, FILE_MODE, bytes.unwrap_or(0))?;
            steps.about(attr.node);
            Ok(Held::new(&files, ctx, attr.node))
        };
        let held = tree.run((PLACE, 0), make).await?;
        let buffer = Buffer::default();
        Ok(Upload { tree: tree.clone(), path: path.clone(), held, size: 0, expected: bytes, buffer })
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size + self.buffer.bytes.len() as u64
    }

    /// Adds content at the end. Waits while more is on its way to the store than the user's share. It is gathered to pieces where this user has a
    /// part of the memory for that, else written as it comes.
    ///
    /// # Errors
    /// As `write` gives them.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if self.buffer.share.is_none() {
                self.buffer.share = self.share();
            }
            let at_once = if self.buffer.share.is_some() { self.buffer.room() } else { limits::WRITE_BYTES };
            let (part, more) = rest.split_at(at_once.min(rest.len()));
            rest = more;
            if self.buffer.share.is_none() {
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

    /// Memory for the next piece, if there is any for this user.
    fn share(&self) -> Option<Share> {
        let (incoming, uid) = (self.tree.files().incoming(), self.tree.ctx().flow.uid);
        let most = if incoming.is_tight(uid) { limits::WRITE_BYTES_TIGHT } else { limits::WRITE_BYTES };
        let expected = self.expected.map_or(most as u64, |bytes| bytes.saturating_sub(self.size));
        // never nothing: more may come than was said
        incoming.try_take(uid, (expected as usize).clamp(1, most))
    }

    async fn flush(&mut self) -> Result<()> {
        let Buffer { bytes, share } = std::mem::take(&mut self.buffer);
        self.put(&bytes).await?;
        drop(share);
        Ok(())
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let op = Op::Write { node: self.held.node, offset: self.size, data: bytes };
        match self.tree.files().one(*self.tree.ctx(), op).await? {
            Reply::Written(count) if count == bytes.len() as u64 => self.size += count,
            other => return Err(Error::Io(format!("Write answered {other:?}"))),
        }
        Ok(())
    }

    /// Adds a range of another file at the end: of the same volume by sharing its data.
    ///
    /// # Errors
    /// As `copy_file_range` gives them; [`Error::Io`] when the source is shorter now.
    pub async fn copy(&mut self, from: &File, range: Range<u64>) -> Result<()> {
        self.flush().await?;
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(COPY_BYTES);
            let op = Op::CopyRange {
                from: from.held.node,
                from_offset: at,
                to: self.held.node,
                to_offset: self.size,
                len,
            };
            match self.tree.files().one(*self.tree.ctx(), op).await? {
                Reply::Written(0) => {
                    return Err(Error::Io("the source was shortened while it was copied".into()));
                }
                Reply::Written(count) => (at, self.size) = (at + count, self.size + count),
                other => return Err(Error::Io(format!("CopyRange answered {other:?}"))),
            }
        }
        Ok(())
    }

    /// Gives it its name. When this returns, content, attributes and name are durable, and seen everywhere.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::Changed`] where [`Finish::over`] says so; [`Error::Quota`]; as `rename` gives them.
    pub async fn finish(mut self, finish: Finish) -> Result<Attr> {
        let Buffer { bytes, share } = std::mem::take(&mut self.buffer);
        let Upload { tree, path, held, size, .. } = self;
        let tail = bytes.freeze();
        let mut state = Finishing { path, finish, tail, _share: share, offset: size, done: Done::default() };
        let go_on = move |steps: &Steps<'_>, base: &Path| {
            // whoever waits for this may go away, the file may not
            let held = &held;
            state.go_on(steps, base, held.node)
        };
        tree.run((PLACE, 0), go_on).await
    }

    /// Keeps it without a name: durable, but not for longer than the process lives.
    ///
    /// # Errors
    /// As `fsync` gives them.
    pub async fn into_part(mut self) -> Result<Part> {
        self.flush().await?;
        let node = self.held.node;
        let sync = move |steps: &Steps<'_>, _: &Path| {
            steps.about(node);
            steps.fsync(node)?;
            steps.attr_of(Op::GetAttr { node })
        };
        let attr = self.tree.run((Op::Fsync { node: NodeId::ROOT }, 0), sync).await?;
        Ok(Part { file: File { attr, xattrs: Vec::new(), whole: None, held: Arc::new(self.held) } })
    }
}

/// An upload that gets its name, step by step.
struct Finishing {
    path: Path,
    finish: Finish,
    tail: Bytes,
    /// Of the tail.
    _share: Option<Share>,
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
    /// From where it had to wait.
    fn go_on(&mut self, steps: &Steps<'_>, base: &Path, node: NodeId) -> Result<Attr> {
        steps.about(node);
        if !self.done.written && !self.tail.is_empty() {
            steps.call(Op::Write { node, offset: self.offset, data: &self.tail })?;
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

    fn place(&self, steps: &Steps<'_>, base: &Path, node: NodeId) -> Result<Attr> {
        loop {
            let walked = match self.finish.parents {
                true => steps.walk_making(base, &self.path)?,
                false => steps.walk(base, &self.path, false)?,
            };
            steps.about(node);
            let dir = walked.dir();
            steps.permit(dir, W | X)?;
            if let Some(old) = &walked.attr {
                crate::who::permit_removal(steps.ctx, dir, old)?;
            }
            let op = Op::Place { node, dir: dir.node, name: &walked.name, over: self.finish.over };
            match steps.attr_of(op) {
                // the directory was removed just now, as its last file was
                Err(Error::NotFound) if self.finish.parents => {}
                other => return other,
            }
        }
    }
}

/// The directory that a new file at `path` will be in or below: the lowest that is there. The user may make something in it.
fn dir_for(steps: &Steps<'_>, base: &Path, path: &Path) -> Result<NodeId> {
    let (mut path, mut is_last) = (path.clone(), true);
    loop {
        let Some((above, _)) = path.split() else { return Err(Error::IsDir) };
        match steps.walk(base, &above, true).and_then(|walked| walked.found().copied()) {
            Ok(dir) if dir.kind == Kind::Dir => {
                steps.permit(&dir, W | X)?;
                if is_last && let Ok(Some(there)) = steps.walk(base, &path, false).map(|w| w.attr) {
                    not_a_directory(&there)?;
                }
                return Ok(dir.node);
            }
            Ok(_) => return Err(Error::NotDir),
            Err(Error::NotFound) if !above.is_root() => (path, is_last) = (above, false),
            Err(e) => return Err(e),
        }
    }
}

fn not_a_directory(attr: &Attr) -> Result<()> {
    match regular(attr) {
        Err(Error::IsDir) => Err(Error::IsDir),
        _ => Ok(()),
    }
}
