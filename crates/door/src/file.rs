//! An open file: reads it in pieces, as fast as the client takes them.

use crate::files::Files;
use crate::limits;
use crate::semaphore::FairPermit;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use leeward_env::Ctx;
use leeward_fs::{Attr, Error, NodeId, Op, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Pieces that are read ahead of the one that the client takes.
const AHEAD: usize = 2;

/// A file that was opened for reading. Cheap to clone; closed when the last clone is dropped.
#[derive(Clone)]
pub struct File {
    /// Its attributes when it was opened.
    pub attr: Attr,
    /// Values of the requested extended attributes.
    pub xattrs: Vec<Option<Vec<u8>>>,
    /// The whole content, if the file is small.
    pub(crate) whole: Option<Bytes>,
    pub(crate) held: Arc<InodeRef>,
}

/// A reference to an inode, returned when dropped.
pub(crate) struct InodeRef {
    files: Files,
    ctx: Ctx,
    pub(crate) node: NodeId,
    /// The session that the reference belongs to.
    session: u64,
}

impl InodeRef {
    /// Takes over a reference that was counted with this context.
    pub(crate) fn new(files: &Files, ctx: Ctx, node: NodeId) -> InodeRef {
        let session = files.backend().session();
        InodeRef { files: files.clone(), ctx: Ctx { refs: true, ..ctx }, node, session }
    }

    /// Whether the inode may be used still.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the session has ended that the reference belongs to.
    pub(crate) fn check(&self) -> Result<()> {
        if self.counts() { Ok(()) } else { Err(Error::Unavailable) }
    }

    /// What to say of an operation on the inode that went like this. When the session has ended
    /// that the reference belongs to, the inode may have gone with it.
    pub(crate) fn judge<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::Stale | Error::NotFound | Error::Io(_)) if !self.counts() => Err(Error::Unavailable),
            result => result,
        }
    }

    /// Whether the session that the reference belongs to goes on.
    fn counts(&self) -> bool {
        self.session == self.files.backend().session()
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// The context it was opened with, for operations that take no reference.
    pub(crate) fn ctx(&self) -> Ctx {
        Ctx { refs: false, ..self.ctx }
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        self.files.backend().forget(self.ctx, self.node, 1);
    }
}

/// Bytes that count against the memory that users share.
struct Counted {
    bytes: Bytes,
    _share: FairPermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// These bytes, counted until they are dropped.
pub(crate) fn counted(bytes: Bytes, mut share: FairPermit) -> Bytes {
    share.shrink(bytes.len());
    if bytes.is_empty() { bytes } else { Bytes::from_owner(Counted { bytes, _share: share }) }
}

impl File {
    /// The file, with its content counted by this permit.
    pub(crate) fn counted(mut self, share: FairPermit) -> File {
        self.whole = self.whole.map(|whole| counted(whole, share));
        self
    }

    /// Reads a range, at most [`limits::READ_BYTES`]; short at the end of the file. It waits while
    /// this user's clients are slow to take what was read for them. The result counts as memory
    /// until it is dropped.
    ///
    /// # Errors
    /// As for `pread`; [`Error::WouldBlock`] when it has waited for [`limits::TURN_SECS_MAX`].
    pub async fn read_at(&self, offset: u64, len: u64) -> Result<Bytes> {
        self.read_within(offset, len, limits::TURN_SECS_MAX).await
    }

    async fn read_within(&self, offset: u64, len: u64, secs: u64) -> Result<Bytes> {
        let len = len.min(limits::READ_BYTES).min(self.attr.size.saturating_sub(offset)) as u32;
        if len == 0 {
            return Ok(Bytes::new());
        }
        if let Some(whole) = &self.whole {
            let (from, to) = (offset as usize, offset as usize + len as usize);
            return Ok(whole.slice(from.min(whole.len())..to.min(whole.len())));
        }
        let InodeRef { files, ctx, node, .. } = &*self.held;
        let share = files.room(ctx, len as usize, secs).await?;
        self.held.check()?;
        let read = files.one(*ctx, Op::Read { node: *node, offset, len }).await;
        let bytes = self.held.judge(read)?.data()?;
        Ok(counted(bytes.into(), share))
    }

    /// [`File::stream`] with its first piece read. A client that cannot have that soon gets an
    /// error before its answer begins.
    ///
    /// # Errors
    /// As those of the stream; [`Error::WouldBlock`] when there was no memory for it within
    /// [`limits::TURN_SECS_MAX`].
    pub async fn begin(
        self,
        range: Range<u64>,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + 'static> {
        let mut pieces = Box::pin(self.stream(range));
        let soon = Duration::from_secs(limits::TURN_SECS_MAX);
        let first = tokio::time::timeout(soon, pieces.next()).await.map_err(|_| Error::WouldBlock)?;
        Ok(stream::iter(first.transpose()?.map(Ok)).chain(pieces))
    }

    /// A range in pieces, which end where the range or the file ends. Read-ahead is bounded. A
    /// piece that is shorter than expected (the file was shortened meanwhile) is an error like any
    /// other: the client was promised more.
    pub fn stream(self, range: Range<u64>) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        let end = range.end.min(self.attr.size);
        let file = self.clone();
        let pieces = stream::unfold(range.start, move |at| {
            let InodeRef { files, ctx, .. } = &*file.held;
            let is_tight = files.content().is_tight(ctx.flow.uid);
            let piece = if is_tight { limits::READ_BYTES_TIGHT } else { limits::READ_BYTES };
            let next = (at + piece).min(end);
            std::future::ready((at < end).then_some((at..next, next)))
        });
        pieces
            .map(move |part| {
                let file = self.clone();
                async move {
                    let len = part.end - part.start;
                    let bytes = file.read_within(part.start, len, limits::CONTENT_SECS_MAX).await?;
                    if bytes.len() as u64 != len {
                        return Err(Error::Io("the file was shortened while it was read".into()));
                    }
                    Ok(bytes)
                }
            })
            .buffered(AHEAD)
    }
}
