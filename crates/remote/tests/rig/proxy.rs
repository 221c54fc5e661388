//! A network between a client and a server that cuts connections, delays and loses what a test
//! says.

use leeward_env::Env;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What becomes of the bytes of a connection in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// How many pass.
    pub bytes: usize,
    /// Whether the connection ends then, or the rest is lost.
    pub cut: bool,
    /// How long each piece takes.
    pub delay: Duration,
}

/// All bytes pass at once.
pub const WHOLE: Fate = Fate { bytes: usize::MAX, cut: true, delay: Duration::ZERO };

/// Fates of a connection, to the server and from it, by its number.
pub type Plan = dyn Fn(usize) -> (Fate, Fate) + Send + Sync;

/// See the module's head.
pub struct Proxy {
    pub at: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    server: Mutex<SocketAddr>,
    plan: Box<Plan>,
    ended: AtomicBool,
    /// Nothing passes for now.
    held: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    /// Bytes that passed, to the server and from it.
    passed: [AtomicUsize; 2],
}

impl Proxy {
    pub fn start(
        env: &Env,
        server: SocketAddr,
        plan: impl Fn(usize) -> (Fate, Fate) + Send + Sync + 'static,
    ) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            env: env.clone(),
            server: Mutex::new(server),
            plan: Box::new(plan),
            ended: AtomicBool::new(false),
            held: AtomicBool::new(false),
            sockets: Mutex::default(),
            connections: AtomicUsize::new(0),
            passed: Default::default(),
        });
        let of = shared.clone();
        env.try_spawn("proxy", move || of.accept(&listener)).expect("a thread");
        Proxy { at, shared }
    }

    /// Ends all connections that there are.
    pub fn cut(&self) {
        for socket in self.shared.sockets.lock().expect("the sockets").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// New connections go there.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock().expect("the address") = server;
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Holds all bytes back, or lets them pass.
    pub fn hold(&self, held: bool) {
        self.shared.held.store(held, Ordering::SeqCst);
    }

    /// Bytes that passed, to the server and from it.
    pub fn passed(&self) -> [usize; 2] {
        [0, 1].map(|way| self.shared.passed[way].load(Ordering::SeqCst))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for socket in self.shared.sockets.lock().expect("the sockets").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let _ = TcpStream::connect(self.at);
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            // one that is cut comes again, and to where it is led by then
            let mut sockets = self.sockets.lock().expect("the sockets");
            let server = *self.server.lock().expect("the address");
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
            let (up, down) = (self.plan)(self.connections.fetch_add(1, Ordering::SeqCst));
            for socket in [&client, &server] {
                socket.set_nodelay(true).expect("no delay");
                sockets.push(socket.try_clone().expect("a copy"));
            }
            drop(sockets);
            let copy = |socket: &TcpStream| socket.try_clone().expect("a copy");
            self.carry(0, (copy(&client), copy(&server)), up);
            self.carry(1, (server, client), down);
        }
    }

    fn carry(self: &Arc<Self>, way: usize, (mut from, mut to): (TcpStream, TcpStream), fate: Fate) {
        let shared = self.clone();
        let carry = move || {
            let (mut left, mut piece) = (fate.bytes, vec![0; 64 << 10]);
            while let Ok(len @ 1..) = from.read(&mut piece) {
                shared.env.sleep(fate.delay);
                while shared.held.load(Ordering::SeqCst) && !shared.ended.load(Ordering::SeqCst) {
                    shared.env.sleep(Duration::from_millis(1));
                }
                let passing = len.min(left);
                left -= passing;
                shared.passed[way].fetch_add(passing, Ordering::SeqCst);
                if to.write_all(&piece[..passing]).is_err() || (left == 0 && fate.cut) {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        };
        self.env.try_spawn("proxy-carry", carry).expect("a thread");
    }
}
