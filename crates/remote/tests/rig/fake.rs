//! A server that says whatever a test wants.

use super::server_keys;
use leeward_env::Told;
use leeward_fs::locks::LockCall;
use leeward_fs::{Error, Reply, Result};
use leeward_remote::message::{
    Call, Leased, SessionId, Slot, Standing, ToClient, ToServer, VERSION, frame, message,
};
use leeward_remote::testing;
use rustls::{ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How often a client, which says each second that it is there, may say nothing else.
const PINGS_MAX: usize = 10;
/// How long it may be silent.
const TIME: Duration = Duration::from_secs(20);

/// See the module's head.
pub struct Fake(TcpListener);

/// A connection of a client that was welcomed.
pub struct Peer(StreamOwned<ServerConnection, TcpStream>);

/// What it knows all clients by.
pub const SESSION: SessionId = SessionId { number: 77, secret: [7; 16] };

impl Fake {
    pub fn new() -> Fake {
        Fake(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    pub fn at(&self) -> SocketAddr {
        self.0.local_addr().expect("its address")
    }

    /// The next client, which is told this.
    pub fn welcome(&self, standing: Standing, instance: u64) -> Peer {
        self.welcome_and(standing, instance, &[])
    }

    /// The same, and with it something more.
    pub fn welcome_and(&self, standing: Standing, instance: u64, more: &[ToClient]) -> Peer {
        let (socket, _) = self.0.accept().expect("a client");
        socket.set_read_timeout(Some(TIME)).expect("a time");
        socket.set_nodelay(true).expect("no delay");
        let tls = testing::server_tls(&server_keys()).expect("settings");
        let tls = ServerConnection::new(tls).expect("a connection");
        let mut peer = Peer(StreamOwned::new(tls, socket));
        let hello = peer.frame();
        assert!(matches!(message(&hello), Ok(ToServer::Hello(_))));
        let host = "host".into();
        let (version, session, wants_groups, by_tokens) = (VERSION, SESSION, false, false);
        let welcome =
            ToClient::Welcome { version, session, standing, instance, host, wants_groups, by_tokens };
        peer.send(&[&welcome].into_iter().chain(more).flat_map(frame).collect::<Vec<_>>());
        peer
    }

    /// Hangs up on the next client.
    pub fn hang_up(&self) {
        drop(self.0.accept().expect("a client"));
    }
}

impl Peer {
    pub fn say(&mut self, said: &ToClient) {
        self.send(&frame(said));
    }

    /// Sends bytes together.
    fn send(&mut self, bytes: &[u8]) {
        let sent = self.0.write_all(bytes).and_then(|()| self.0.flush());
        sent.expect("the client is there");
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).expect("the client says something");
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        self.0.read_exact(&mut bytes).expect("a whole message");
        bytes
    }

    /// The next message that asks for something, as it came.
    pub fn hear(&mut self) -> Vec<u8> {
        for _ in 0..PINGS_MAX {
            let bytes = self.frame();
            match message(&bytes).expect("a message") {
                ToServer::Ping { number, .. } => self.say(&ToClient::Pong { number, taken: None, wall: 0 }),
                ToServer::HeedsLocks => (),
                _ => return bytes,
            }
        }
        panic!("the client asks for nothing");
    }

    /// Returns when the client has said so often that it is there, and expects that it asks for
    /// nothing before.
    pub fn pings(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            match message(&self.frame()).expect("a message") {
                ToServer::Ping { number, .. } => {
                    self.say(&ToClient::Pong { number, taken: None, wall: 0 });
                    left -= 1;
                }
                ToServer::HeedsLocks => (),
                other => panic!("it asks for something: {other:?}"),
            }
        }
    }

    /// The slot of the next operation, before which nothing is answered.
    pub fn operation_of_silent(&mut self) -> Slot {
        loop {
            let bytes = self.frame();
            match message(&bytes).expect("a message") {
                ToServer::Call(slot, Call::Op(..)) => return slot,
                ToServer::Ping { .. } | ToServer::HeedsLocks => (),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The slot of the next operation; all other calls are done.
    pub fn operation(&mut self) -> Slot {
        loop {
            let bytes = self.hear();
            match message(&bytes).expect("a message") {
                ToServer::Call(slot, Call::Op(..)) => return slot,
                ToServer::Call(slot, _) => self.answer(slot, Ok(Reply::Done), None),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next call, which is about locks.
    pub fn about_locks(&mut self) -> (Slot, LockCall) {
        let bytes = self.hear();
        match message(&bytes).expect("a message") {
            ToServer::Call(slot, Call::Lock(_, call)) => (slot, call),
            other => panic!("{other:?}"),
        }
    }

    pub fn answer(&mut self, slot: Slot, result: Result<Reply>, told: Option<Told>) {
        self.say(&ToClient::Answer(slot, result, Leased::Nothing, told));
    }

    /// Takes calls, and answers what a client asks when it begins.
    pub fn begin(&mut self) {
        self.say(&ToClient::Ready);
        for _ in 0..2 {
            let slot = self.operation();
            self.answer(slot, Err(Error::Stale), None);
        }
    }

    /// Returns when the client has taken all that was said, and expects that it asks for nothing
    /// before.
    pub fn has_heard(&mut self) {
        self.say(&ToClient::Recall { number: 1, nodes: Vec::new() });
        let bytes = self.hear();
        assert_eq!(message(&bytes), Ok(ToServer::Recalled(1)));
    }

    /// Expects that the client asks for these changes again, and for no others.
    pub fn asks_again(&mut self, lsns: &[u64]) {
        let mut asked = Vec::new();
        loop {
            let bytes = self.hear();
            match message(&bytes).expect("a message") {
                ToServer::Again(_, told, _) => asked.push(told.lsn),
                ToServer::CaughtUp => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(asked, lsns);
    }
}
