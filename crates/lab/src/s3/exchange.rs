//! One request on a connection, and its answer.
//!
//! Answers are read while a body is still being sent: a server that does not want it says so early.

use super::answer::{Head, Reader};
use super::content::{Body, Content};
use super::stream::Stream;
use super::{Class, Failure, Op};
use std::io::IoSlice;
use std::task::{Context, Poll};
use tokio::io::ReadBuf;

/// Bytes that are kept of an error answer.
const COMPLAINT_MAX: usize = 4096;
/// Bytes that are kept of a list that is read.
const LIST_MAX: usize = 16 << 20;
/// Bytes that are kept of one of which only the end counts.
const TAIL: usize = 64;
/// What a whole list ends with.
const LIST_END: &[u8] = b"</ListBucketResult>";

/// A request to make.
#[derive(Clone, Debug)]
pub struct Job {
    /// What.
    pub op: Op,
    /// Of which object; its number.
    pub object: u64,
    /// The signed head.
    pub head: Vec<u8>,
    /// What is sent with it, or should come.
    pub body: Option<Body>,
    /// Whether the whole list is wanted, not only its end.
    pub keep: bool,
}

impl Job {
    /// Bytes sent after the head.
    fn sends(&self) -> Option<Body> {
        self.body.filter(|_| self.op == Op::Put)
    }

    /// Bytes of the object that a success has moved.
    pub fn bytes(&self) -> u64 {
        self.body.filter(|_| self.op != Op::Head).map_or(0, |body| body.size)
    }
}

/// A request in progress.
pub struct Exchange<'a> {
    job: &'a Job,
    content: &'a Content,
    sent: u64,
    flushed: bool,
    /// Why no more can be sent; an answer may have arrived all the same.
    broken: Option<Failure>,
    reader: Reader,
    got: u64,
    right: bool,
    kept: Vec<u8>,
}

/// An answer that is whole and right.
#[derive(Debug)]
pub struct Answer {
    /// Whether the connection may be used again.
    pub keep: bool,
    /// The list, of a job that wants it.
    pub list: Vec<u8>,
}

/// A failure, and whether the connection may be used again.
pub type Failed = (Failure, bool);

impl<'a> Exchange<'a> {
    /// Of a job; nothing is sent yet.
    pub fn new(job: &'a Job, content: &'a Content) -> Exchange<'a> {
        Exchange {
            job,
            content,
            sent: 0,
            flushed: false,
            broken: None,
            reader: Reader::default(),
            got: 0,
            right: true,
            kept: Vec::new(),
        }
    }

    /// Sends and reads as far as it goes; `scratch` is for what is read.
    pub fn poll(
        &mut self,
        stream: &mut Stream,
        scratch: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<Answer, Failed>> {
        if self.broken.is_none()
            && let Err(e) = self.send(stream, context)
        {
            self.broken = Some(Failure::of(&e));
        }
        loop {
            let mut buffer = ReadBuf::new(scratch);
            match stream.poll_read(context, &mut buffer) {
                Poll::Pending => {
                    return self
                        .broken
                        .take()
                        .map_or(Poll::Pending, |broken| Poll::Ready(Err((broken, false))));
                }
                Poll::Ready(Err(e)) => {
                    let failure = self.broken.take().unwrap_or_else(|| Failure::of(&e));
                    return Poll::Ready(Err((failure, false)));
                }
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(self.closed()),
                Poll::Ready(Ok(())) => match self.take(buffer.filled()) {
                    Ok(None) => {}
                    Ok(Some(head)) => return Poll::Ready(self.done(head)),
                    Err(failure) => return Poll::Ready(Err((failure, false))),
                },
            }
        }
    }

    /// Until nothing more fits.
    fn send(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> std::io::Result<()> {
        let head = self.job.head.len() as u64;
        let body = self.job.sends();
        let all = head + body.map_or(0, |body| body.size);
        while self.sent < all {
            let of_head = self.job.head.get(self.sent as usize..).unwrap_or_default();
            let of_body =
                body.map_or(&[][..], |body| self.content.piece(body, self.sent.saturating_sub(head)));
            match stream.poll_write(context, &[IoSlice::new(of_head), IoSlice::new(of_body)]) {
                Poll::Pending => return Ok(()),
                Poll::Ready(written) => self.sent += written? as u64,
            }
        }
        if !self.flushed
            && let Poll::Ready(flushed) = stream.poll_flush(context)
        {
            flushed?;
            self.flushed = true;
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<Option<Head>, Failure> {
        let (job, content) = (self.job, self.content);
        let (got, right, kept) = (&mut self.got, &mut self.right, &mut self.kept);
        let mut body = |head: Head, bytes: &[u8]| {
            match (job.op, job.body) {
                _ if head.status >= 300 => keep(kept, bytes, COMPLAINT_MAX),
                (Op::Get, Some(body)) => *right &= content.is(body, *got, bytes),
                (Op::List, _) if job.keep => keep(kept, bytes, LIST_MAX),
                (Op::List, _) => {
                    kept.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
                    kept.drain(..kept.len().saturating_sub(TAIL));
                }
                _ => {}
            }
            *got += bytes.len() as u64;
        };
        self.reader.take(bytes, job.op == Op::Head, &mut body)
    }

    fn closed(&mut self) -> Result<Answer, Failed> {
        if let Some(head) = self.reader.end() {
            return self.done(head);
        }
        let when = if self.reader.is_silent() { "before an answer" } else { "within an answer" };
        let failure =
            self.broken.take().unwrap_or_else(|| Failure::new(Class::Closed, format!("closed {when}")));
        Err((failure, false))
    }

    fn done(&mut self, head: Head) -> Result<Answer, Failed> {
        let sent = self.sent >= self.job.head.len() as u64 + self.job.sends().map_or(0, |body| body.size);
        let keep = head.keep && sent && self.broken.is_none();
        let kept = std::mem::take(&mut self.kept);
        if !(200..300).contains(&head.status) {
            let text = error_text(&String::from_utf8_lossy(&kept));
            return Err((Failure { class: Class::Status(head.status), text, wait: head.wait }, keep));
        }
        let fail = |class, text: &str| Err((Failure::new(class, text), false));
        if !sent {
            return fail(Class::BadAnswer, "success before the body was sent");
        }
        match (self.job.op, self.job.body) {
            (Op::Get, Some(body)) if !self.right => {
                fail(Class::WrongBytes, &format!("not what was put, of {} bytes", body.size))
            }
            (Op::Get, Some(body)) if self.got != body.size => {
                fail(Class::WrongBytes, &format!("{} bytes of {}", self.got, body.size))
            }
            (Op::List, _) if !kept.trim_ascii_end().ends_with(LIST_END) => {
                fail(Class::BadAnswer, "a list without its end")
            }
            _ => Ok(Answer { keep, list: kept }),
        }
    }
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8], most: usize) {
    let room = most.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
}

/// `Code: Message` of an error answer.
fn error_text(xml: &str) -> String {
    let part = |name: &str| {
        let (_, rest) = xml.split_once(&format!("<{name}>"))?;
        rest.split_once('<')
            .map(|(text, _)| text.chars().filter(|c| !c.is_control()).take(200).collect::<String>())
    };
    match (part("Code"), part("Message")) {
        (Some(code), Some(message)) if code != message => format!("{code}: {message}"),
        (Some(code), _) => code,
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_read() {
        let xml = "<?xml?><Error><Code>SlowDown</Code><Message>Please\n wait</Message></Error>";
        assert_eq!(error_text(xml), "SlowDown: Please wait");
        assert_eq!(error_text("<html>busy</html>"), "");
    }
}
