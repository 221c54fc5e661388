//! An answer of HTTP/1.1, parsed as it arrives: nothing is kept except a head that arrives in
//! pieces.

use super::{Class, Failure};
use std::time::Duration;

/// Bytes of a head at most.
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Digits of the size of a chunk at most.
const CHUNK_DIGITS_MAX: u32 = 15;

/// What the head of an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// 200 and the like.
    pub status: u16,
    /// Whether the connection may be used again.
    pub keep: bool,
    /// How long the client should wait before the next request.
    pub wait: Option<Duration>,
}

/// The remaining part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Bytes(u64),
    Chunk(Chunk),
    /// All until the connection is closed.
    ToEnd,
}

/// The position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// In the line with its size; so many digits were read.
    Size {
        value: u64,
        digits: u32,
        over: bool,
    },
    Data(u64),
    /// In the end of line after data.
    DataEnd,
    /// In the lines after the last chunk, with so many characters in this one.
    Trailer(u64),
}

const SIZE: Chunk = Chunk::Size { value: 0, digits: 0, over: false };

/// Reads one answer.
#[derive(Debug, Default)]
pub struct Reader {
    begun: Vec<u8>,
    head: Option<(Head, Left)>,
}

impl Reader {
    /// What the head said, once it was there.
    pub fn head(&self) -> Option<Head> {
        self.head.map(|(head, _)| head)
    }

    /// Whether nothing came at all.
    pub fn is_silent(&self) -> bool {
        self.head.is_none() && self.begun.is_empty()
    }

    /// Takes received bytes, and passes on those of the body. Returns the head when the answer is
    /// complete.
    ///
    /// `bodiless`: an answer to HEAD.
    ///
    /// # Errors
    /// The bytes are no answer, or more than one.
    pub fn take(
        &mut self,
        bytes: &[u8],
        bodiless: bool,
        body: &mut impl FnMut(Head, &[u8]),
    ) -> Result<Option<Head>, Failure> {
        let mut rest = bytes;
        while self.head.is_none() {
            if !self.begun.is_empty() {
                self.begun.extend_from_slice(rest);
                let begun = std::mem::take(&mut self.begun);
                // Only once: what is not whole is kept again, below.
                return self.take(&begun, bodiless, body);
            }
            match parse(rest, bodiless)? {
                Some((len, Some(head))) => {
                    rest = &rest[len..];
                    self.head = Some(head);
                }
                // Only says that there is more to come.
                Some((len, None)) => rest = &rest[len..],
                None if rest.len() > HEAD_MAX => return Err(bad("its head does not end")),
                None => {
                    self.begun = rest.to_vec();
                    return Ok(None);
                }
            }
        }
        let Some((head, left)) = &mut self.head else { return Ok(None) };
        let used = left.take(rest, &mut |piece| body(*head, piece))?;
        match left {
            Left::Bytes(0) if used < rest.len() => Err(bad("more than one answer came")),
            Left::Bytes(0) => Ok(Some(*head)),
            _ => Ok(None),
        }
    }

    /// The connection was closed: gives the head when that is how the answer ends.
    pub fn end(&self) -> Option<Head> {
        self.head.filter(|(_, left)| *left == Left::ToEnd).map(|(head, _)| head)
    }
}

impl Left {
    /// How many of the bytes belong to the body and what frames it; the rest comes after it.
    fn take(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<usize, Failure> {
        match self {
            Left::Bytes(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                if len > 0 {
                    body(&bytes[..len]);
                }
                *left -= len as u64;
                Ok(len)
            }
            Left::ToEnd => {
                body(bytes);
                Ok(bytes.len())
            }
            Left::Chunk(chunk) => {
                let mut at = 0;
                while at < bytes.len() {
                    if let Chunk::Data(left) = chunk {
                        let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                        body(&bytes[at..at + len]);
                        *left -= len as u64;
                        at += len;
                        if *left == 0 {
                            *chunk = Chunk::DataEnd;
                        }
                        continue;
                    }
                    at += 1;
                    match chunk.step(bytes[at - 1])? {
                        Some(next) => *chunk = next,
                        None => {
                            *self = Left::Bytes(0);
                            return Ok(at);
                        }
                    }
                }
                Ok(at)
            }
        }
    }
}

impl Chunk {
    /// Takes a byte that is not data; `None` at the end of the body.
    fn step(self, byte: u8) -> Result<Option<Chunk>, Failure> {
        let wrong = || bad("its chunks make no sense");
        Ok(Some(match (self, byte) {
            (Chunk::Size { digits: 0, .. }, b'\n') => return Err(wrong()),
            (Chunk::Size { value: 0, .. }, b'\n') => Chunk::Trailer(0),
            (Chunk::Size { value, .. }, b'\n') => Chunk::Data(value),
            (Chunk::Size { value, digits, over: false }, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                if digits == CHUNK_DIGITS_MAX {
                    return Err(wrong());
                }
                Chunk::Size { value: value << 4 | u64::from(digit), digits: digits + 1, over: false }
            }
            (Chunk::Size { value, digits, .. }, b'\r' | b';' | b' ' | b'\t') => {
                Chunk::Size { value, digits, over: true }
            }
            // an extension, which nobody needs
            (Chunk::Size { value, digits, over: true }, _) => Chunk::Size { value, digits, over: true },
            (Chunk::Size { .. }, _) => return Err(wrong()),
            (Chunk::DataEnd, b'\r') => Chunk::DataEnd,
            (Chunk::DataEnd, b'\n') => SIZE,
            (Chunk::DataEnd, _) => return Err(wrong()),
            (Chunk::Trailer(0), b'\n') => return Ok(None),
            (Chunk::Trailer(_), b'\n') => Chunk::Trailer(0),
            (Chunk::Trailer(n), b'\r') => Chunk::Trailer(n),
            (Chunk::Trailer(n), _) => Chunk::Trailer(n + 1),
            (Chunk::Data(_), _) => return Err(wrong()),
        }))
    }
}

fn bad(what: &str) -> Failure {
    Failure::new(Class::BadAnswer, what)
}

/// A head with its length, without one when only `100 Continue` came; `None` where it is not whole.
#[allow(clippy::type_complexity)]
fn parse(bytes: &[u8], bodiless: bool) -> Result<Option<(usize, Option<(Head, Left)>)>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(|e| bad(&format!("not HTTP/1.1: {e}")))?;
    let httparse::Status::Complete(len) = parsed else { return Ok(None) };
    let (status, version) = (response.code.unwrap_or(0), response.version.unwrap_or(0));
    if (100..200).contains(&status) {
        return Ok(Some((len, None)));
    }
    let header = |name: &str| {
        let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok()).map(str::trim)
    };
    let named = |name: &str, word: &str| {
        header(name).is_some_and(|value| value.split(',').any(|w| w.trim().eq_ignore_ascii_case(word)))
    };
    let mut keep =
        if version == 0 { named("connection", "keep-alive") } else { !named("connection", "close") };
    let left = match header("content-length") {
        _ if bodiless || status == 204 || status == 304 => Left::Bytes(0),
        _ if named("transfer-encoding", "chunked") => Left::Chunk(SIZE),
        Some(length) => Left::Bytes(length.parse().map_err(|_| bad("its Content-Length is no number"))?),
        None => {
            keep = false;
            Left::ToEnd
        }
    };
    let wait = header("retry-after").and_then(|secs| secs.parse().ok()).map(Duration::from_secs);
    Ok(Some((len, Some((Head { status, keep, wait }, left)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds an answer in pieces of `size`; what the head said and the body.
    fn read(answer: &str, size: usize, bodiless: bool) -> Result<(Option<Head>, String), Failure> {
        let (mut reader, mut body, mut done) = (Reader::default(), Vec::new(), None);
        for piece in answer.as_bytes().chunks(size) {
            if done.is_some() {
                return Err(bad("more than one answer came"));
            }
            done = reader.take(piece, bodiless, &mut |_, bytes| body.extend_from_slice(bytes))?;
        }
        Ok((done.or_else(|| reader.end()), String::from_utf8(body).expect("text")))
    }

    fn in_any_pieces(answer: &str, bodiless: bool) -> (Option<Head>, String) {
        let whole = read(answer, 10_000, bodiless).expect("an answer");
        for size in 1..20 {
            assert_eq!(read(answer, size, bodiless).as_ref(), Ok(&whole), "{size}: {answer}");
        }
        whole
    }

    #[test]
    fn answers_come_in_any_pieces() {
        let ok = Head { status: 200, keep: true, wait: None };
        let (head, body) = in_any_pieces("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false);
        assert_eq!((head, body.as_str()), (Some(ok), "hello"));
        let (head, body) = in_any_pieces(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             4;ext=1\r\nwiki\r\nA\r\n0123456789\r\n0\r\nDate: x\r\n\r\n",
            false,
        );
        assert_eq!((head, body.as_str()), (Some(ok), "wiki0123456789"));
        let (head, body) = in_any_pieces("HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n", true);
        assert_eq!((head, body.as_str()), (Some(ok), ""));
        let (head, _) = in_any_pieces("HTTP/1.1 204 No Content\r\n\r\n", false);
        assert_eq!(head.map(|head| head.status), Some(204));
        let (head, _) = in_any_pieces("HTTP/1.1 503 X\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n", false);
        assert_eq!(head.and_then(|head| head.wait), Some(Duration::from_secs(2)));
    }

    #[test]
    fn connections_end_where_the_server_says_so() {
        let (head, body) = in_any_pieces("HTTP/1.0 200 OK\r\n\r\nall of it", false);
        assert_eq!((head.map(|head| head.keep), body.as_str()), (Some(false), "all of it"));
        let close = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(in_any_pieces(close, false).0.map(|head| head.keep), Some(false));
        assert_eq!(in_any_pieces("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", false).0, None);
        assert_eq!(in_any_pieces("HTTP/1.1 200 OK\r\nContent-", false).0, None);
    }

    #[test]
    fn what_is_no_answer_is_bad() {
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_MAX));
        for answer in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n",
            &endless,
        ] {
            for size in [1, 7, 100_000] {
                let found = read(answer, size, false).map_err(|e| e.class);
                assert_eq!(found.err(), Some(Class::BadAnswer), "{size}: {answer:.60}");
            }
        }
    }
}
