//! A client that says whatever a test wants.

use super::{Rig, server_keys};
use leeward_env::Class;
use leeward_fs::codec::Wire;
use leeward_fs::{Op, Reply, Result};
use leeward_remote::Keys;
use leeward_remote::message::{
    Call, Caller, Hello, Refusal, SessionId, Slot, ToClient, ToServer, VERSION, frame, message,
};
use leeward_remote::testing;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take.
const TIME: Duration = Duration::from_secs(8);

/// A connection over TLS; nothing was said yet.
pub struct Raw {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

/// What came instead of an answer: the server has hung up.
#[derive(Debug)]
pub struct HungUp;

pub const HELLO: Hello = Hello { oldest: VERSION, newest: VERSION, invitation: None, session: None };

pub fn keys(seed: u8) -> Keys {
    Keys::from_seed(&[seed; 32]).expect("keys")
}

/// TLS of the host with this seed.
pub fn tls(seed: u8) -> ClientConfig {
    let config = testing::tls(&keys(seed), server_keys().public()).expect("settings");
    Arc::unwrap_or_clone(config)
}

/// A caller with the rights of root.
pub fn root() -> Caller {
    Caller { uid: 0, gid: 0, gids: vec![], class: Class::Interactive, refs: true }
}

pub fn slot(place: u16, number: u32) -> Slot {
    Slot { place, number }
}

impl Raw {
    pub fn connect(rig: &Rig, config: ClientConfig) -> Raw {
        Raw::over(TcpStream::connect(rig.at).expect("connected"), config)
    }

    pub fn over(socket: TcpStream, config: ClientConfig) -> Raw {
        socket.set_read_timeout(Some(TIME)).expect("a time");
        socket.set_write_timeout(Some(TIME)).expect("a time");
        socket.set_nodelay(true).expect("no delay");
        let name = ServerName::try_from("server").expect("a name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a connection");
        Raw { stream: StreamOwned::new(tls, socket) }
    }

    /// Connects as a host that the rig knows, and says hello.
    pub fn welcomed(rig: &Rig, seed: u8, session: Option<SessionId>) -> (Raw, SessionId) {
        let mut raw = Raw::connect(rig, tls(seed));
        raw.say(&ToServer::Hello(Hello { session, ..HELLO }));
        match raw.hear() {
            Ok(ToClient::Welcome { session, .. }) => {
                assert!(matches!(raw.hear(), Ok(ToClient::Ready)));
                (raw, session)
            }
            other => panic!("not let in: {other:?}"),
        }
    }

    pub fn say<'a>(&mut self, message: &ToServer<'a>) {
        self.send(&frame(message));
    }

    /// Sends bytes inside TLS. If the server has hung up, that is heard next.
    pub fn send(&mut self, bytes: &[u8]) {
        self.is_taken(bytes);
    }

    /// Sends bytes inside TLS; whether the server takes them.
    pub fn is_taken(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// The next message, but not of what is durable.
    pub fn hear(&mut self) -> std::result::Result<ToClient, HungUp> {
        loop {
            let bytes = self.hear_frame()?;
            match message(&bytes).expect("a message") {
                ToClient::Durable(_) => (),
                other => return Ok(other),
            }
        }
    }

    fn hear_frame(&mut self) -> std::result::Result<Vec<u8>, HungUp> {
        let mut len = [0; 4];
        self.read(&mut len)?;
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::result::Result<(), HungUp> {
        match self.stream.read_exact(bytes) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => panic!("the server says nothing"),
            Err(_) => Err(HungUp),
        }
    }

    /// Calls, and waits for the answer to that call.
    pub fn call(&mut self, slot: Slot, caller: Caller, op: Op<'_>) -> Result<Reply> {
        self.say(&ToServer::Call(slot, Call::Op(caller, op)));
        match self.hear() {
            Ok(ToClient::Answer(at, result, ..)) if at == slot => result,
            other => panic!("{other:?} for {op:?}"),
        }
    }

    /// Expects to be told why it is not let in, or to be hung up on.
    pub fn is_refused(&mut self, why: Refusal) {
        match self.hear() {
            Ok(ToClient::Refused(said, text)) => assert_eq!(said, why, "{text}"),
            other => panic!("{other:?}"),
        }
        assert!(self.hear().is_err(), "the server goes on");
    }

    /// Hangs up in the middle of what was sent.
    pub fn cut(self) {
        let _ = self.stream.sock.shutdown(Shutdown::Both);
    }

    pub fn socket(&self) -> &TcpStream {
        &self.stream.sock
    }

    /// The frame of a message that has any bytes.
    pub fn framed(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
    }

    /// The bytes of a message, without the length.
    pub fn bytes<'a>(message: &impl Wire<'a>) -> Vec<u8> {
        frame(message).split_off(4)
    }
}
