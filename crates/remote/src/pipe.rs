//! One encrypted connection that carries frames, at either end.
//!
//! Any thread sends; one thread receives. Nothing here waits: what the socket does not take stays
//! in memory until it is writable, and [`Pipe::is_clogged`] says when there is too much of that.
//! Then no more requests of the other end are taken until it has read.
//!
//! Frames are put in the **outbox**, which takes no time. They are encrypted and given to the
//! socket by whoever has the connection then: the thread that has put them there, if nobody has it;
//! else the one that has, when it lets go. Large frames may be left to another thread altogether
//! ([`Pipe::send_large`]).

use crate::keys::{PublicKey, shown};
use leeward_env::Nanos;
use mio::Waker;
use mio::net::TcpStream;
use parking_lot::{Mutex, MutexGuard};
use rustls::Connection;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

/// Bytes that wait for the other end to read, above which no more of its requests are taken.
const CLOGGED_BYTES: usize = 8 << 20;
/// Bytes that are gathered before they are sent.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Frames that are at least so long are left to the thread that carries large ones.
const LARGE_BYTES: usize = 64 << 10;
/// What TLS adds to a record, and the longest content of one.
const RECORD_BYTES: usize = 22;
const RECORD_CONTENT_BYTES_MAX: usize = 16 << 10;
/// An inbox that grew larger than this gives its memory back when it is empty.
const INBOX_BYTES_KEPT: usize = 64 << 10;

/// See the module's head.
pub(crate) struct Pipe {
    socket: TcpStream,
    peer: SocketAddr,
    /// Taken alone, or under `state`.
    outbox: Mutex<Outbox>,
    state: Mutex<State>,
    /// Wakes the thread that carries large frames.
    carrier: Option<Waker>,
}

struct State {
    tls: Connection,
    /// Encrypted bytes that the socket has not taken yet.
    unsent: usize,
    /// The other end takes nothing any more. It may have said something before.
    deaf: bool,
    /// Why nothing can be sent.
    why: Option<ErrorKind>,
    /// Nothing comes or goes any more.
    broken: bool,
}

/// Frames that are to be sent, in their order.
#[derive(Default)]
struct Outbox {
    frames: VecDeque<Frames>,
    /// Bytes on the network.
    bytes: usize,
    /// They are not to wait for more.
    due: bool,
    /// They wait whatever is said.
    corked: bool,
    /// See [`Pipe::gathered_at`].
    gathered_at: Option<Nanos>,
    /// Some are large, and so left to the carrier.
    has_large: bool,
    /// The carrier was woken since it took frames last.
    is_called: bool,
}

enum Frames {
    /// Some, one after the other.
    Small(Vec<u8>),
    Large(Arc<Vec<u8>>),
}

impl Outbox {
    fn push(&mut self, frame: &[u8]) {
        self.bytes += encrypted_len(frame.len());
        match self.frames.back_mut() {
            Some(Frames::Small(frames)) => frames.extend_from_slice(frame),
            _ => self.frames.push_back(Frames::Small(frame.to_vec())),
        }
    }

    fn push_large(&mut self, frame: Arc<Vec<u8>>) {
        self.bytes += encrypted_len(frame.len());
        self.frames.push_back(Frames::Large(frame));
        self.has_large = true;
    }

    fn is_due(&self) -> bool {
        self.due && !self.corked
    }

    /// All that there are.
    fn take(&mut self) -> VecDeque<Frames> {
        let corked = self.corked;
        std::mem::replace(self, Outbox { corked, ..Outbox::default() }).frames
    }
}

/// What [`Pipe::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes, and perhaps more.
    Some,
    /// Nothing for now.
    Nothing,
}

impl Pipe {
    pub(crate) fn new(socket: TcpStream, peer: SocketAddr, mut tls: Connection) -> Pipe {
        tls.set_buffer_limit(None);
        Pipe {
            socket,
            peer,
            outbox: Mutex::default(),
            state: Mutex::new(State { tls, unsent: 0, deaf: false, why: None, broken: false }),
            carrier: None,
        }
    }

    /// The same; whoever `carrier` wakes calls [`Pipe::carry`].
    pub(crate) fn with_carrier(self, carrier: Waker) -> Pipe {
        Pipe { carrier: Some(carrier), ..self }
    }

    /// What happens under the lock. Whoever had something to send meanwhile has left it.
    fn with_state<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let result = f(&mut self.state.lock());
        self.carry();
        result
    }

    /// Whether the other end has not yet shown who it is.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.with_state(|state| state.tls.is_handshaking())
    }

    /// The address of the other end.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The key that the other end has shown, once the handshake is over.
    pub(crate) fn peer_key(&self) -> Option<PublicKey> {
        self.with_state(
            |state| {
                if state.tls.is_handshaking() { None } else { shown(state.tls.peer_certificates()) }
            },
        )
    }

    /// Sends a frame. One that cannot be sent is dropped: whoever receives will see the end.
    pub(crate) fn send(&self, frame: &[u8]) {
        let mut outbox = self.outbox.lock();
        outbox.push(frame);
        outbox.due = true;
        self.send_off(outbox);
    }

    /// The same; if it is large, the thread that carries those encrypts it.
    pub(crate) fn send_large(&self, frame: &Arc<Vec<u8>>) {
        if self.carrier.is_none() || frame.len() < LARGE_BYTES {
            return self.send(frame);
        }
        let mut outbox = self.outbox.lock();
        outbox.push_large(frame.clone());
        outbox.due = true;
        self.send_off(outbox);
    }

    /// Sees to it that what is due is sent: here, or by the carrier where some of it is large.
    fn send_off(&self, mut outbox: MutexGuard<'_, Outbox>) {
        let Some(carrier) = self.carrier.as_ref().filter(|_| outbox.has_large) else {
            drop(outbox);
            return self.carry();
        };
        let is_called = std::mem::replace(&mut outbox.is_called, true);
        drop(outbox);
        if !is_called && carrier.wake().is_err() {
            self.carry();
        }
    }

    /// Sends a frame with the next one that is sent, or at the next [`Pipe::flush`]; at once if
    /// much has gathered, or it is large.
    pub(crate) fn gather(&self, frame: &Arc<Vec<u8>>, now: Nanos) {
        if frame.len() >= LARGE_BYTES {
            return self.send_large(frame);
        }
        let mut outbox = self.outbox.lock();
        outbox.push(frame);
        outbox.due |= outbox.bytes > GATHERED_BYTES_MAX;
        outbox.gathered_at.get_or_insert(now);
        self.send_off(outbox);
    }

    /// Since when something has gathered.
    pub(crate) fn gathered_at(&self) -> Option<Nanos> {
        self.outbox.lock().gathered_at
    }

    /// Sends what [`Pipe::gather`] has gathered.
    pub(crate) fn flush(&self) {
        let mut outbox = self.outbox.lock();
        outbox.due = true;
        self.send_off(outbox);
    }

    /// Gathers what is sent from now on.
    pub(crate) fn cork(&self) {
        self.outbox.lock().corked = true;
    }

    /// Sends what was gathered.
    pub(crate) fn uncork(&self) {
        self.outbox.lock().corked = false;
        self.flush();
    }

    /// Whether the other end does not read what it is sent. One that has hung up is not waited for.
    pub(crate) fn is_clogged(&self) -> bool {
        let waiting = self.outbox.lock().bytes;
        self.with_state(|state| state.unsent + waiting > CLOGGED_BYTES && !state.broken && !state.deaf)
    }

    /// Encrypts what is to be sent and gives it to the socket, unless another thread is about it:
    /// that one does this, too, after it.
    pub(crate) fn carry(&self) {
        while self.outbox.lock().is_due() {
            let Some(mut state) = self.state.try_lock() else { return };
            let frames = self.outbox.lock().take();
            state.encrypt(frames);
            self.push(&mut state);
        }
    }

    /// Gives the socket what it takes.
    fn push(&self, state: &mut State) {
        while state.tls.wants_write() && !state.broken && !state.deaf {
            match state.tls.write_tls(&mut &self.socket) {
                Ok(0) => state.deaf = true,
                Ok(taken) => state.unsent = state.unsent.saturating_sub(taken),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) => (state.deaf, state.why) = (true, Some(e.kind())),
            }
        }
        if !state.tls.wants_write() {
            state.unsent = 0;
        }
    }

    /// Appends what has come to `inbox`.
    ///
    /// # Errors
    /// The connection is over: by the other end, by the network, or because what came is no TLS.
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> io::Result<Received> {
        self.with_state(|state| self.receive_with(state, inbox))
    }

    fn receive_with(&self, state: &mut State, inbox: &mut Inbox) -> io::Result<Received> {
        let ended = |state: &mut State, e: io::Error| {
            self.push(state); // the alert that says why
            state.broken = true;
            // of a connection that came to nothing the first failure tells why
            Err(state.why.map_or(e, io::Error::from))
        };
        if state.broken {
            return Err(state.why.unwrap_or(ErrorKind::ConnectionAborted).into());
        }
        match state.tls.read_tls(&mut &self.socket) {
            Ok(0) => return ended(state, ErrorKind::UnexpectedEof.into()),
            Ok(_) => (),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
            // nobody says a second time that there are bytes
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(Received::Some),
            Err(e) => return ended(state, e),
        }
        match state.tls.process_new_packets() {
            Ok(found) => {
                let begin = inbox.bytes.len();
                inbox.bytes.resize(begin + found.plaintext_bytes_to_read(), 0);
                let read = state.tls.reader().read_exact(&mut inbox.bytes[begin..]);
                if let Err(e) = read {
                    return ended(state, e);
                }
            }
            Err(e) => return ended(state, io::Error::new(ErrorKind::InvalidData, e)),
        }
        self.push(state);
        Ok(Received::Some)
    }

    /// Small frames go at once.
    pub(crate) fn nodelay(&self) -> io::Result<()> {
        self.socket.set_nodelay(true)
    }

    /// Whether bytes wait for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        self.with_state(|state| state.tls.wants_write())
    }

    /// The socket takes bytes again; whether it took some.
    pub(crate) fn writable(&self) -> bool {
        self.with_state(|state| {
            let before = state.unsent;
            self.push(state);
            state.unsent < before
        })
    }

    /// Says that nothing more is sent. A socket that is closed with bytes that nobody has read
    /// takes back what the other end has not read: so the other end is to close first.
    pub(crate) fn end(&self) {
        self.with_state(|state| self.say_goodbye(state));
        // it may be gone already
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn say_goodbye(&self, state: &mut State) {
        let frames = self.outbox.lock().take();
        state.encrypt(frames);
        state.tls.send_close_notify();
        self.push(state);
    }

    /// Whether nothing comes any more.
    pub(crate) fn is_over(&self) -> bool {
        self.with_state(|state| state.broken)
    }

    /// Ends it, for whoever receives too.
    pub(crate) fn close(&self) {
        self.with_state(|state| {
            self.say_goodbye(state);
            state.broken = true;
        });
        // it may be gone already
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// The socket, to be told when bytes come.
    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }
}

impl State {
    /// Encrypts frames, which are lost where nothing can be sent any more.
    fn encrypt(&mut self, frames: VecDeque<Frames>) {
        for frames in frames {
            if self.broken || self.deaf {
                return;
            }
            let bytes: &[u8] = match &frames {
                Frames::Small(bytes) => bytes,
                Frames::Large(bytes) => bytes,
            };
            self.unsent += encrypted_len(bytes.len());
            self.deaf |= self.tls.writer().write_all(bytes).is_err();
        }
    }
}

/// Bytes on the network for so many bytes of content.
fn encrypted_len(len: usize) -> usize {
    len + RECORD_BYTES * len.div_ceil(RECORD_CONTENT_BYTES_MAX)
}

/// Bytes that have come and were not looked at yet.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    begin: usize,
}

/// A frame that is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Inbox {
    /// The next whole frame, without its length.
    pub(crate) fn next(&mut self, bytes_max: usize) -> Result<Option<&[u8]>, TooLong> {
        let left = &self.bytes[self.begin..];
        let Some((head, rest)) = left.split_first_chunk::<4>() else {
            self.tidy();
            return Ok(None);
        };
        let len = u32::from_le_bytes(*head) as usize;
        if len > bytes_max {
            return Err(TooLong);
        }
        if rest.len() < len {
            self.tidy();
            // it does not grow step by step, and is not copied each time
            self.bytes.reserve((4 + len).saturating_sub(self.bytes.len()));
            return Ok(None);
        }
        let begin = self.begin + 4;
        self.begin = begin + len;
        Ok(Some(&self.bytes[begin..begin + len]))
    }

    /// Moves what is left to the beginning.
    fn tidy(&mut self) {
        self.bytes.drain(..self.begin);
        self.begin = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > INBOX_BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        let sent: Vec<u8> = [&b"\x03\0\0\0abc"[..], b"\0\0\0\0", b"\x01\0\0\0z"].concat();
        for step in 1..=sent.len() {
            let (mut inbox, mut got) = (Inbox::default(), Vec::new());
            for piece in sent.chunks(step) {
                inbox.bytes.extend_from_slice(piece);
                while let Some(frame) = inbox.next(3).expect("short frames") {
                    got.push(frame.to_vec());
                }
            }
            assert_eq!(got, [b"abc".to_vec(), vec![], b"z".to_vec()], "cut every {step} bytes");
        }
        let mut inbox = Inbox { bytes: sent, begin: 0 };
        assert_eq!(inbox.next(2), Err(TooLong));
    }
}
