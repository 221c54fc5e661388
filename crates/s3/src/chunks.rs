//! Makes bodies in chunks of `aws-chunked` fit for the library that reads them: it holds a chunk in
//! memory until the whole chunk has arrived, whatever its size.
//!
//! Chunks without signatures are cut into pieces as they arrive, so that none is held; honest
//! clients send a whole part as one. A signed chunk cannot be cut. It may have up to 16 MiB. A
//! chunk larger than those of all usual clients waits for memory, which users share and which is
//! returned when the chunk was read.

use crate::access::Asker;
use crate::pace::Holding;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{Stream, StreamExt, TryStreamExt, try_unfold};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Frame;
use hyper::header::HeaderMap;
use leeward_door::limits::TURN_SECS_MAX;
use leeward_door::listen::{Body, BodyError};
use leeward_door::{FairPermit, FairSemaphore};
use std::collections::VecDeque;
use std::time::Duration;

/// Memory for signed chunks larger than [`SIGNED_BYTES_EASY`], of all requests.
pub(crate) const SIGNED_BYTES_IN_ALL: usize = 64 << 20;
/// Largest signed chunk.
const SIGNED_BYTES_MAX: usize = 16 << 20;
/// A signed chunk up to this size need not wait: clients' chunks have 64 or 128 KiB.
const SIGNED_BYTES_EASY: usize = 128 << 10;
/// Longest line before a chunk.
const LINE_BYTES_MAX: usize = 1024;

/// Memory for a chunk that cannot be cut.
#[derive(Clone)]
pub(crate) struct Room {
    /// Bytes, which users share.
    pub(crate) semaphore: FairSemaphore,
    /// The sender, once it is known.
    pub(crate) asker: Asker,
    /// Set while a chunk holds memory.
    pub(crate) holding: Holding,
}

/// The body of a request with these headers, in chunks that can be held, if it is chunked.
pub(crate) fn bounded(headers: &HeaderMap, body: Body, room: &Room) -> Body {
    let kind = headers.get("x-amz-content-sha256").map_or(&b""[..], |kind| kind.as_bytes());
    if !kind.starts_with(b"STREAMING-") {
        return body;
    }
    let is_signed = kind != b"STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    let pieces = BodyStream::new(body).try_filter_map(|frame| std::future::ready(Ok(frame.into_data().ok())));
    StreamBody::new(cut(pieces, is_signed, room.clone()).map_ok(Frame::data)).boxed_unsync()
}

fn cut<S>(pieces: S, is_signed: bool, room: Room) -> impl Stream<Item = Result<Bytes, BodyError>> + Send
where
    S: Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
{
    let cutter = Cutter {
        pieces: pieces.boxed(),
        rest: Bytes::new(),
        out: VecDeque::new(),
        at: At::Line,
        is_signed,
        room,
        held: None,
    };
    try_unfold(cutter, |mut cutter| async move { Ok(cutter.next().await?.map(|piece| (piece, cutter))) })
}

struct Cutter {
    pieces: futures_util::stream::BoxStream<'static, Result<Bytes, BodyError>>,
    /// Bytes that have arrived and were not parsed.
    rest: Bytes,
    /// Bytes to be read.
    out: VecDeque<Bytes>,
    at: At,
    is_signed: bool,
    room: Room,
    /// Memory for the current chunk.
    held: Option<FairPermit>,
}

/// The position in the body.
#[derive(Clone, Copy)]
enum At {
    Line,
    /// In a chunk's content, this many bytes before its end.
    Content(usize),
    /// In the line end after it, this many bytes before its end.
    End(usize),
    /// After the last chunk.
    Trailer,
}

const LINE_END: &[u8] = b"\r\n";

impl Cutter {
    async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            if let Some(piece) = self.out.pop_front() {
                return Ok(Some(piece));
            }
            // when more is wanted, the chunk before was read
            if matches!(self.at, At::Line | At::Trailer) {
                self.held = None;
                self.room.holding.end();
            }
            if self.rest.is_empty() {
                match self.pieces.next().await {
                    Some(more) => self.rest = more?,
                    // the reader of this knows whether it may end here
                    None => return Ok(None),
                }
            }
            match self.at {
                At::Line => self.line().await?,
                At::Content(left) => self.content(left),
                At::End(left) => self.end(left)?,
                At::Trailer => self.out.push_back(std::mem::take(&mut self.rest)),
            }
        }
    }

    async fn line(&mut self) -> Result<(), BodyError> {
        let mut line = BytesMut::new();
        loop {
            let end = self.rest.iter().position(|b| *b == b'\n').map(|at| at + 1);
            line.extend_from_slice(&self.rest.split_to(end.unwrap_or(self.rest.len())));
            if line.len() > LINE_BYTES_MAX {
                return Err("the line before a chunk is too long".into());
            }
            match (end, line.is_empty()) {
                (Some(_), _) => break,
                (None, _) => match self.pieces.next().await {
                    Some(more) => self.rest = more?,
                    None => {
                        self.out.push_back(line.freeze());
                        return Ok(());
                    }
                },
            }
        }
        let bytes = size_of(&line).ok_or("a chunk does not begin with its size")?;
        if self.is_signed && bytes > SIGNED_BYTES_MAX {
            return Err("a signed chunk has at most 16 MiB".into());
        }
        if self.is_signed && bytes > SIGNED_BYTES_EASY {
            let time = Duration::from_secs(TURN_SECS_MAX);
            let share = self.room.semaphore.take_within(self.room.asker.uid(), bytes, time).await;
            self.held = Some(share.ok_or("this user's large signed chunks take as much memory as they may")?);
            self.room.holding.begin();
        }
        if self.is_signed || bytes == 0 {
            self.out.push_back(line.freeze());
        }
        self.at = if bytes == 0 { At::Trailer } else { At::Content(bytes) };
        Ok(())
    }

    fn content(&mut self, left: usize) {
        let piece = self.rest.split_to(left.min(self.rest.len()));
        let left = left - piece.len();
        self.at = if left == 0 { At::End(LINE_END.len()) } else { At::Content(left) };
        if self.is_signed {
            self.out.push_back(piece);
        } else {
            let line = format!("{:x}\r\n", piece.len());
            self.out.extend([line.into(), piece, Bytes::from_static(LINE_END)]);
        }
    }

    fn end(&mut self, left: usize) -> Result<(), BodyError> {
        let piece = self.rest.split_to(left.min(self.rest.len()));
        let from = LINE_END.len() - left;
        if piece != LINE_END[from..from + piece.len()] {
            return Err("a chunk is longer than it says".into());
        }
        let left = left - piece.len();
        self.at = if left == 0 { At::Line } else { At::End(left) };
        if self.is_signed {
            self.out.push_back(piece);
        }
        Ok(())
    }
}

/// The size at the start of the line before a chunk.
fn size_of(line: &[u8]) -> Option<usize> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let ends = matches!(line.get(digits), Some(b';' | b'\r'));
    let text = std::str::from_utf8(&line[..digits]).ok()?;
    // the library reads eight digits of it later
    usize::from_str_radix(text, 16).ok().filter(|_| ends && digits <= 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::stream::iter;

    fn room(bytes: usize) -> Room {
        Room { semaphore: FairSemaphore::new(bytes), asker: Asker::default(), holding: Holding::default() }
    }

    fn cut_up(text: &[u8], by: usize, is_signed: bool) -> Result<Vec<Bytes>, String> {
        let pieces: Vec<Result<Bytes, BodyError>> =
            text.chunks(by).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let all = cut(iter(pieces), is_signed, room(SIGNED_BYTES_IN_ALL)).try_collect::<Vec<_>>();
        all.now_or_never().expect("it need not wait").map_err(|e| e.to_string())
    }

    #[test]
    fn chunks_are_cut_into_what_came() {
        let text = b"5\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32:AA==\r\n\r\n";
        for by in 1..text.len() + 1 {
            let out = cut_up(text, by, false).expect("well made").concat();
            let (mut at, mut content) = (0, Vec::new());
            loop {
                let line = out[at..].iter().position(|b| *b == b'\n').map(|n| at + n + 1).expect("a line");
                let bytes = size_of(&out[at..line]).expect("a size");
                at = line;
                if bytes == 0 {
                    break;
                }
                assert!(bytes <= by, "none is larger than what has come");
                content.extend_from_slice(&out[at..at + bytes]);
                assert_eq!(&out[at + bytes..at + bytes + 2], LINE_END);
                at += bytes + 2;
            }
            assert_eq!(content, b"hello world");
            assert_eq!(&out[at..], b"x-amz-checksum-crc32:AA==\r\n\r\n");
        }
    }

    #[test]
    fn signed_chunks_come_as_they_are_and_have_a_bound() {
        let text = b"5;chunk-signature=0\r\nhello\r\n0;chunk-signature=1\r\n\r\n";
        for by in 1..text.len() + 1 {
            assert_eq!(cut_up(text, by, true).expect("well made").concat(), text);
        }
        for wrong in
            [&b"1000001;chunk-signature=0\r\nx"[..], b"000000010\r\nx", b"\r\n", b"g\r\n", b"1\r\nab\r\n"]
        {
            cut_up(wrong, 100, true).expect_err("refused");
        }
    }

    #[test]
    fn a_large_signed_chunk_waits_for_memory_and_gives_it_back() {
        let bytes = SIGNED_BYTES_EASY + 1;
        let room = room(bytes);
        let chunk = [format!("{bytes:x};\r\n").as_bytes(), &vec![0; bytes], LINE_END].concat();
        let text = [&chunk[..], &chunk, b"0;\r\n"].concat();
        let pieces: Vec<Result<Bytes, BodyError>> = vec![Ok(text.into())];
        let all = cut(iter(pieces), true, room.clone());
        let pieces = all.map(|_| room.semaphore.taken()).collect::<Vec<_>>();
        let taken = pieces.now_or_never().expect("the second has the memory of the first");
        assert!(taken.contains(&bytes) && room.semaphore.taken() == 0, "{taken:?}");
    }

    #[tokio::test]
    async fn one_users_slow_chunks_leave_memory_to_another() {
        let room = room(SIGNED_BYTES_IN_ALL);
        let slow = |uid: u32| {
            let asker = Asker::default();
            asker.is(uid);
            let text = [format!("{SIGNED_BYTES_MAX:x};\r\n").as_bytes(), b"some of it"].concat();
            let first = iter([Ok::<_, BodyError>(Bytes::from(text))]);
            let pieces = first.chain(futures_util::stream::pending());
            Box::pin(cut(pieces, true, Room { asker, ..room.clone() }))
        };
        let mut mine: Vec<_> = (0..4).map(|_| slow(1)).collect();
        for chunks in &mut mine {
            // it reads the line and what has arrived, and waits
            while chunks.next().now_or_never().is_some() {}
        }
        let mut other = slow(2);
        assert!(other.next().now_or_never().is_some(), "there is room for it");
        drop((mine, other));
        assert_eq!(room.semaphore.taken(), 0);
    }
}
