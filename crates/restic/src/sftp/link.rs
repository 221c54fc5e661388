//! A connection to an sftp server: version 3 of the protocol (draft-ietf-secsh-filexfer-02), with
//! OpenSSH's extensions where the server has them.
//!
//! Requests of one file go without waiting for each answer, [`WINDOW`] at a time. Every wait ends:
//! a server that says nothing for [`SILENCE`] is given up.

use leeward_env::{Env, Nanos};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

/// Bytes of a read or a write: what every server takes.
const PIECE: usize = 32 << 10;
/// Reads or writes of a file that are under way at a time.
const WINDOW: usize = 64;
/// Longest answer. Servers send pieces, and lists of some hundred names.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// A server that has not answered for so long is given up. Each answer is short.
const SILENCE: Duration = Duration::from_secs(120);
/// Names in a directory, which are all in memory. A repository of a petabyte has fewer.
const NAMES_MAX: usize = 4 << 20;
/// What is told of the text of an error.
const TEXT_BYTES_MAX: usize = 200;
/// What is kept of what `ssh` says, and how long its end is waited for: another process that it has
/// started may stay, and keep the pipe open.
const SAID_BYTES_MAX: u64 = 4 << 10;
const SAID_WAIT: Duration = Duration::from_secs(1);

/// Types of messages.
mod kind {
    pub(super) const INIT: u8 = 1;
    pub(super) const VERSION: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const READ: u8 = 5;
    pub(super) const WRITE: u8 = 6;
    pub(super) const OPENDIR: u8 = 11;
    pub(super) const READDIR: u8 = 12;
    pub(super) const REMOVE: u8 = 13;
    pub(super) const MKDIR: u8 = 14;
    pub(super) const STAT: u8 = 17;
    pub(super) const RENAME: u8 = 18;
    pub(super) const STATUS: u8 = 101;
    pub(super) const HANDLE: u8 = 102;
    pub(super) const DATA: u8 = 103;
    pub(super) const NAME: u8 = 104;
    pub(super) const ATTRS: u8 = 105;
    pub(super) const EXTENDED: u8 = 200;
    pub(super) const EXTENDED_REPLY: u8 = 201;
}

/// Codes of a status.
mod status {
    pub(super) const OK: u32 = 0;
    pub(super) const EOF: u32 = 1;
    pub(super) const NO_SUCH_FILE: u32 = 2;
    pub(super) const PERMISSION_DENIED: u32 = 3;
}

const FOR_READING: u32 = 0x01;
/// Write, create, truncate.
const FOR_WRITING: u32 = 0x02 | 0x08 | 0x10;
const SYNC: &str = "fsync@openssh.com";
const REPLACE: &str = "posix-rename@openssh.com";
const SPACE: &str = "statvfs@openssh.com";

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) bytes: u64,
    pub(super) is_dir: bool,
}

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Refusal {
    /// There is no such file or directory.
    Missing,
    /// The server's answer, in words.
    Refused(String),
    /// The connection is of no use any more: what `ssh` said, or what came of it.
    Broken(String),
}

type Done<T> = Result<T, Refusal>;

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Refusal {
        Refusal::Broken(match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer for {} s", SILENCE.as_secs())
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                "the connection was closed".into()
            }
            _ => e.to_string(),
        })
    }
}

/// A connection. Dropping it ends its process.
pub(super) struct Link {
    child: Child,
    stream: UnixStream,
    /// What it says to people.
    said: UnixStream,
    next: u32,
    clock: Env,
    /// Names of extensions that the server has.
    extensions: BTreeMap<String, String>,
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Link {
    /// Connects by a program that passes on what it reads and writes.
    pub(super) fn start(mut command: Command) -> Done<Link> {
        let name = command.get_program().to_string_lossy().into_owned();
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(SILENCE))?;
        ours.set_write_timeout(Some(SILENCE))?;
        let (said, says) = UnixStream::pair()?;
        said.set_read_timeout(Some(SAID_WAIT))?;
        let output = OwnedFd::from(theirs.try_clone()?);
        command.stdin(OwnedFd::from(theirs)).stdout(output).stderr(OwnedFd::from(says));
        let child = command.spawn().map_err(|e| {
            let next =
                if e.kind() == io::ErrorKind::NotFound { ": install the package openssh-client" } else { "" };
            Refusal::Broken(format!("{name} cannot be run: {e}{next}"))
        })?;
        // its copies of the other end must not keep the connection open
        drop(command);
        let mut link =
            Link { child, stream: ours, said, next: 0, clock: Env::real(), extensions: BTreeMap::new() };
        link.greet().map_err(|e| link.with_cause(e))?;
        Ok(link)
    }

    fn greet(&mut self) -> Done<()> {
        self.stream.write_all(&[0, 0, 0, 5, kind::INIT, 0, 0, 0, 3])?;
        let (kind, body) = self.receive()?;
        let mut body = Reader(&body);
        if kind != kind::VERSION || body.number()? != 3 {
            return Err(Refusal::Broken("what answers is no sftp server of version 3".into()));
        }
        while !body.0.is_empty() {
            let (name, value) = (body.text()?, body.text()?);
            self.extensions.insert(name, value);
        }
        Ok(())
    }

    /// Why the connection ended, as far as the program at this end has said so.
    pub(super) fn with_cause(&mut self, e: Refusal) -> Refusal {
        let Refusal::Broken(what) = e else { return e };
        let _ = self.child.kill();
        let mut said = Vec::new();
        let _ = (&self.said).take(SAID_BYTES_MAX).read_to_end(&mut said); // as far as it comes
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
        let short = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned();
        Refusal::Broken(last.map_or(what, short))
    }

    /// Whether what is written can be made durable there.
    pub(super) fn can_sync(&self) -> bool {
        self.extensions.contains_key(SYNC)
    }

    fn receive(&mut self) -> Done<(u8, Vec<u8>)> {
        let until = self.clock.now() + SILENCE.as_nanos() as Nanos;
        let mut head = [0; 5];
        self.read_until(until, &mut head)?;
        let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len == 0 || len > ANSWER_BYTES_MAX {
            return Err(Refusal::Broken("what answers is no sftp server".into()));
        }
        let mut body = vec![0; len - 1];
        self.read_until(until, &mut body)?;
        Ok((head[4], body))
    }

    /// Reads all of it before that time.
    fn read_until(&mut self, until: Nanos, mut into: &mut [u8]) -> Done<()> {
        while !into.is_empty() {
            match self.stream.read(into) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(read) => into = &mut into[read..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
                Err(e) => return Err(e.into()),
            }
            if self.clock.now() > until {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
        Ok(())
    }

    /// Sends a request; returns its number.
    fn send(&mut self, kind: u8, arguments: &[Argument<'_>]) -> Done<u32> {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let mut message = vec![0, 0, 0, 0, kind];
        message.extend(id.to_be_bytes());
        arguments.iter().for_each(|argument| argument.write(&mut message));
        let len = (message.len() - 4) as u32;
        message[..4].copy_from_slice(&len.to_be_bytes());
        self.stream.write_all(&message)?;
        Ok(id)
    }

    /// The next answer: to which request, of which kind, and the rest.
    fn answer(&mut self) -> Done<(u32, u8, Vec<u8>)> {
        let (kind, mut body) = self.receive()?;
        let id = Reader(&body).number()?;
        body.drain(..4);
        Ok((id, kind, body))
    }

    /// The answer to a request when no other is under way.
    fn ask(&mut self, kind: u8, arguments: &[Argument<'_>]) -> Done<(u8, Vec<u8>)> {
        let id = self.send(kind, arguments)?;
        let (answered, kind, body) = self.answer()?;
        if answered != id { Err(unexpected()) } else { Ok((kind, body)) }
    }

    /// A request that is answered by a status.
    fn tell(&mut self, kind: u8, arguments: &[Argument<'_>]) -> Done<()> {
        match self.ask(kind, arguments)? {
            (kind::STATUS, body) => done(&body),
            _ => Err(unexpected()),
        }
    }

    fn handle(&mut self, kind: u8, arguments: &[Argument<'_>]) -> Done<Vec<u8>> {
        match self.ask(kind, arguments)? {
            (kind::HANDLE, body) => Ok(Reader(&body).bytes()?.to_vec()),
            (kind::STATUS, body) => Err(done(&body).err().unwrap_or_else(unexpected)),
            _ => Err(unexpected()),
        }
    }

    /// Closes what was opened, also after an error; the first error counts.
    fn close<T>(&mut self, handle: &[u8], result: Done<T>) -> Done<T> {
        if matches!(result, Err(Refusal::Broken(_))) {
            return result;
        }
        let closed = self.tell(kind::CLOSE, &[Argument::Bytes(handle)]);
        result.and_then(|value| closed.map(|()| value))
    }

    pub(super) fn stat(&mut self, path: &str) -> Done<Attributes> {
        match self.ask(kind::STAT, &[Argument::Bytes(path.as_bytes())])? {
            (kind::ATTRS, body) => Reader(&body).attributes(),
            (kind::STATUS, body) => Err(done(&body).err().unwrap_or_else(unexpected)),
            _ => Err(unexpected()),
        }
    }

    /// Bytes of a file from an offset on, as many as there are.
    pub(super) fn read(&mut self, path: &str, offset: u64, len: u64) -> Done<Vec<u8>> {
        let arguments = [Argument::Bytes(path.as_bytes()), Argument::U32(FOR_READING), Argument::U32(0)];
        let handle = self.handle(kind::OPEN, &arguments)?;
        let read = self.read_pieces(&handle, offset, len);
        self.close(&handle, read)
    }

    fn read_pieces(&mut self, handle: &[u8], offset: u64, len: u64) -> Done<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| unexpected())?];
        // what is still to be asked for, the next at the end, and what was asked for
        let mut wanted: Vec<(usize, usize)> =
            (0..bytes.len()).step_by(PIECE).map(|at| (at, PIECE.min(bytes.len() - at))).rev().collect();
        let mut asked = BTreeMap::new();
        let mut end = bytes.len();
        loop {
            while asked.len() < WINDOW {
                let Some((at, len)) = wanted.pop() else { break };
                let arguments =
                    [Argument::Bytes(handle), Argument::U64(offset + at as u64), Argument::U32(len as u32)];
                asked.insert(self.send(kind::READ, &arguments)?, (at, len));
            }
            if asked.is_empty() {
                bytes.truncate(end);
                return Ok(bytes);
            }
            let (id, kind, body) = self.answer()?;
            let (at, len) = asked.remove(&id).ok_or_else(unexpected)?;
            match kind {
                kind::DATA => {
                    let data = Reader(&body).bytes()?;
                    if data.is_empty() || data.len() > len {
                        return Err(unexpected());
                    }
                    bytes[at..at + data.len()].copy_from_slice(data);
                    if data.len() < len {
                        wanted.push((at + data.len(), len - data.len()));
                    }
                }
                kind::STATUS if code(&body)? == status::EOF => end = end.min(at),
                kind::STATUS => return Err(self.after_others(&asked, &body)),
                _ => return Err(unexpected()),
            }
        }
    }

    /// The refusal, when all other answers have come: then the connection can go on.
    fn after_others<T>(&mut self, asked: &BTreeMap<u32, T>, refusal: &[u8]) -> Refusal {
        for _ in 0..asked.len() {
            if let Err(broken) = self.answer() {
                return broken;
            }
        }
        done(refusal).err().unwrap_or_else(unexpected)
    }

    /// Writes a file whole, durably where the server can do that.
    pub(super) fn write(&mut self, path: &str, bytes: &[u8]) -> Done<()> {
        const PERMISSIONS: u32 = 0x04;
        let arguments = [
            Argument::Bytes(path.as_bytes()),
            Argument::U32(FOR_WRITING),
            Argument::U32(PERMISSIONS),
            Argument::U32(0o600),
        ];
        let handle = self.handle(kind::OPEN, &arguments)?;
        let written = self.write_pieces(&handle, bytes).and_then(|()| match self.can_sync() {
            true => self.tell(kind::EXTENDED, &[Argument::Bytes(SYNC.as_bytes()), Argument::Bytes(&handle)]),
            false => Ok(()),
        });
        self.close(&handle, written)
    }

    fn write_pieces(&mut self, handle: &[u8], bytes: &[u8]) -> Done<()> {
        let mut pieces = bytes.chunks(PIECE).enumerate();
        let mut asked = BTreeMap::new();
        loop {
            while asked.len() < WINDOW {
                let Some((n, piece)) = pieces.next() else { break };
                let at = Argument::U64((n * PIECE) as u64);
                let arguments = [Argument::Bytes(handle), at, Argument::Bytes(piece)];
                asked.insert(self.send(kind::WRITE, &arguments)?, ());
            }
            if asked.is_empty() {
                return Ok(());
            }
            let (id, kind, body) = self.answer()?;
            asked.remove(&id).ok_or_else(unexpected)?;
            match kind {
                kind::STATUS if code(&body)? == status::OK => (),
                kind::STATUS => return Err(self.after_others(&asked, &body)),
                _ => return Err(unexpected()),
            }
        }
    }

    /// Gives a file another name, replacing what has it.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Done<()> {
        let names = [Argument::Bytes(from.as_bytes()), Argument::Bytes(to.as_bytes())];
        if self.extensions.contains_key(REPLACE) {
            let [from, to] = names;
            return self.tell(kind::EXTENDED, &[Argument::Bytes(REPLACE.as_bytes()), from, to]);
        }
        // this one replaces nothing
        match self.remove(to) {
            Ok(()) | Err(Refusal::Missing) => self.tell(kind::RENAME, &names),
            other => other,
        }
    }

    pub(super) fn remove(&mut self, path: &str) -> Done<()> {
        self.tell(kind::REMOVE, &[Argument::Bytes(path.as_bytes())])
    }

    pub(super) fn make_dir(&mut self, path: &str) -> Done<()> {
        const PERMISSIONS: u32 = 0x04;
        let arguments = [Argument::Bytes(path.as_bytes()), Argument::U32(PERMISSIONS), Argument::U32(0o700)];
        self.tell(kind::MKDIR, &arguments)
    }

    /// The names in a directory, without `.` and `..`.
    pub(super) fn list(&mut self, path: &str) -> Done<Vec<(String, Attributes)>> {
        let handle = self.handle(kind::OPENDIR, &[Argument::Bytes(path.as_bytes())])?;
        let listed = self.list_all(&handle);
        self.close(&handle, listed)
    }

    fn list_all(&mut self, handle: &[u8]) -> Done<Vec<(String, Attributes)>> {
        let mut all = Vec::new();
        loop {
            match self.ask(kind::READDIR, &[Argument::Bytes(handle)])? {
                (kind::NAME, body) => {
                    let mut body = Reader(&body);
                    let names = body.number()? as usize;
                    if names == 0 || all.len() + names > NAMES_MAX {
                        return Err(unexpected());
                    }
                    for _ in 0..names {
                        let (name, _long, attributes) = (body.text()?, body.bytes()?, body.attributes()?);
                        if name != "." && name != ".." {
                            all.push((name, attributes));
                        }
                    }
                }
                (kind::STATUS, body) if code(&body)? == status::EOF => return Ok(all),
                (kind::STATUS, body) => return Err(done(&body).err().unwrap_or_else(unexpected)),
                _ => return Err(unexpected()),
            }
        }
    }

    /// Whether nothing more can be written below a directory, where the server says so.
    pub(super) fn is_full(&mut self, path: &str) -> bool {
        /// Which of the numbers in the answer says how many blocks are free for this user.
        const AVAILABLE: usize = 4;
        if !self.extensions.contains_key(SPACE) {
            return false;
        }
        let arguments = [Argument::Bytes(SPACE.as_bytes()), Argument::Bytes(path.as_bytes())];
        match self.ask(kind::EXTENDED, &arguments) {
            Ok((kind::EXTENDED_REPLY, body)) => {
                body.chunks_exact(8).nth(AVAILABLE).is_some_and(|blocks| blocks.iter().all(|b| *b == 0))
            }
            _ => false,
        }
    }
}

/// An argument of a request.
#[derive(Clone, Copy)]
enum Argument<'a> {
    U32(u32),
    U64(u64),
    Bytes(&'a [u8]),
}

impl Argument<'_> {
    fn write(self, to: &mut Vec<u8>) {
        match self {
            Argument::U32(n) => to.extend(n.to_be_bytes()),
            Argument::U64(n) => to.extend(n.to_be_bytes()),
            Argument::Bytes(bytes) => {
                to.extend((bytes.len() as u32).to_be_bytes());
                to.extend(bytes);
            }
        }
    }
}

/// Reads an answer.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Done<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(unexpected)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Done<u32> {
        self.take(4)?.try_into().map(u32::from_be_bytes).map_err(|_| unexpected())
    }

    fn long(&mut self) -> Done<u64> {
        self.take(8)?.try_into().map(u64::from_be_bytes).map_err(|_| unexpected())
    }

    fn bytes(&mut self) -> Done<&'a [u8]> {
        let len = self.number()? as usize;
        self.take(len)
    }

    fn text(&mut self) -> Done<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// Size, owner and group, mode, times, others: as far as there are some.
    fn attributes(&mut self) -> Done<Attributes> {
        const DIR: u32 = 0o040_000;
        let flags = self.number()?;
        let mut found = Attributes::default();
        if flags & 0x01 != 0 {
            found.bytes = self.long()?;
        }
        if flags & 0x02 != 0 {
            self.take(8)?;
        }
        if flags & 0x04 != 0 {
            found.is_dir = self.number()? & 0o170_000 == DIR;
        }
        if flags & 0x08 != 0 {
            self.take(8)?;
        }
        if flags & 0x8000_0000 != 0 {
            for _ in 0..self.number()? {
                let _ = (self.bytes()?, self.bytes()?);
            }
        }
        Ok(found)
    }
}

fn unexpected() -> Refusal {
    Refusal::Broken("the sftp server's answer makes no sense".into())
}

fn code(body: &[u8]) -> Done<u32> {
    Reader(body).number()
}

/// What a status says.
fn done(body: &[u8]) -> Done<()> {
    let mut body = Reader(body);
    match body.number()? {
        status::OK => Ok(()),
        status::NO_SUCH_FILE => Err(Refusal::Missing),
        status::PERMISSION_DENIED => Err(Refusal::Refused("permission denied".into())),
        code => Err(Refusal::Refused(match body.text() {
            Ok(text) if !text.is_empty() => {
                format!("the server says: {}", &text[..text.floor_char_boundary(TEXT_BYTES_MAX)])
            }
            _ => format!("the server says: error {code}"),
        })),
    }
}

#[cfg(test)]
impl Link {
    /// Ends the program at this end.
    pub(super) fn break_off(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }
}
