//! A server that stands by tells clients which one has the cell.

use super::{ACCEPT_PAUSE, TERM_STEP};
use crate::keys::Keys;
use crate::message::{HELLO_BYTES_MAX, Refusal, ServerList, ToClient, ToServer, frame, message};
use leeward_env::{Env, Nanos};
use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a client may take for a step, and for all.
const STEP_TIME: Duration = Duration::from_secs(2);
const CLIENT_TIME: Nanos = 5_000_000_000;
/// Clients that are answered at the same time; others wait to be accepted.
const CLIENTS_MAX: usize = 64;

/// Which servers there are, asked for each client.
type Servers = Arc<dyn Fn() -> ServerList + Send + Sync>;

/// Answers clients until it is dropped; then the addresses are free.
pub struct Elsewhere {
    addresses: Vec<SocketAddr>,
    ended: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Elsewhere {
    /// Answers at these listeners, with the keys of the cell.
    ///
    /// # Errors
    /// What the system says: of threads, of sockets, of TLS.
    pub fn start(
        env: &Env,
        keys: &Keys,
        listeners: Vec<TcpListener>,
        servers: impl Fn() -> ServerList + Send + Sync + 'static,
    ) -> io::Result<Elsewhere> {
        let (servers, tls): (Servers, _) = (Arc::new(servers), keys.server().map_err(io::Error::other)?);
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        let elsewhere = Elsewhere { addresses, ended: Arc::default(), threads: Mutex::default() };
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let (env_of, tls, servers) = (env.clone(), tls.clone(), servers.clone());
            let ended = elsewhere.ended.clone();
            let accept = move || accept(&env_of, &listener, (&tls, &servers), &ended);
            elsewhere.threads.lock().push(env.try_spawn("stand-by", accept)?);
        }
        Ok(elsewhere)
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

fn accept(
    env: &Env,
    listener: &TcpListener,
    (tls, servers): (&Arc<rustls::ServerConfig>, &Servers),
    ended: &AtomicBool,
) {
    let at_work = Arc::new(AtomicUsize::new(0));
    let mut clients = Clients(Vec::new());
    while !ended.load(Ordering::Acquire) {
        clients.end_slow(env.now());
        if at_work.load(Ordering::Acquire) >= CLIENTS_MAX {
            env.sleep(ACCEPT_PAUSE);
            continue;
        }
        let Ok((socket, peer)) = listener.accept() else {
            env.sleep(TERM_STEP);
            continue;
        };
        clients.0.extend(socket.try_clone().map(|socket| (env.now(), socket)));
        at_work.fetch_add(1, Ordering::AcqRel);
        let (tls, servers, working) = (tls.clone(), servers.clone(), at_work.clone());
        let answer = move || {
            if let Err(e) = answer(socket, tls, &servers()) {
                tracing::debug!("{peer} was not told where the cell is: {e}");
            }
            working.fetch_sub(1, Ordering::AcqRel);
        };
        if env.try_spawn("stand-by-tell", answer).is_err() {
            at_work.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Clients that are being told, or were, and since when.
struct Clients(Vec<(Nanos, TcpStream)>);

impl Clients {
    /// Ends those that have had their time.
    fn end_slow(&mut self, now: Nanos) {
        let slow = self.0.partition_point(|(since, _)| now.saturating_sub(*since) > CLIENT_TIME);
        self.0.drain(..slow).for_each(|(_, socket)| _ = socket.shutdown(Shutdown::Both));
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(_, socket)| _ = socket.shutdown(Shutdown::Both));
    }
}

/// Tells one client, when it has said what it speaks.
fn answer(socket: TcpStream, tls: Arc<rustls::ServerConfig>, servers: &ServerList) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(STEP_TIME))?;
    socket.set_write_timeout(Some(STEP_TIME))?;
    let connection = rustls::ServerConnection::new(tls).map_err(io::Error::other)?;
    let mut stream = rustls::StreamOwned::new(connection, socket);
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > HELLO_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    let Ok(ToServer::Hello(hello)) = message::<ToServer<'_>>(&bytes) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut said = Vec::new();
    if hello.common_version().is_some() {
        said.extend(frame(&ToClient::Servers(servers.clone())));
    }
    let text = match servers.addresses.first() {
        Some(address) => format!("this server stands by; the cell is served at {address}"),
        None => "this server stands by, and nobody has the cell at the moment".to_owned(),
    };
    said.extend(frame(&ToClient::Refused(Refusal::Busy, text)));
    stream.write_all(&said)?;
    stream.conn.send_close_notify();
    stream.flush()
}
