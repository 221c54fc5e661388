//! A network with a delay: takes connections and passes what it gets on, each way after some time,
//! without limiting how much passes. `delay LISTEN SERVER MILLISECONDS-EACH-WAY`

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are on their way in one direction, at most.
const ON_THE_WAY_MAX: usize = 256 << 20;

#[derive(Default)]
struct Wire {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    is_over: bool,
}

/// Passes on what comes at `listener`, until the process ends.
pub fn serve(listener: TcpListener, server: SocketAddr, each_way: Duration) {
    for client in listener.incoming() {
        let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
        for socket in [&client, &server] {
            let _ = socket.set_nodelay(true);
        }
        let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else { continue };
        carry(client, server, each_way);
        carry(server_too, client_too, each_way);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let wire = Arc::new((Mutex::new(Wire::default()), Condvar::new()));
    let (taker, lock_failed) = (wire.clone(), "no thread panics with the lock");
    thread::spawn(move || {
        let (wire, changed) = &*taker;
        let mut buffer = vec![0; 256 << 10];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            let mut wire = wire.lock().expect(lock_failed);
            while wire.bytes > ON_THE_WAY_MAX && !wire.is_over {
                wire = changed.wait(wire).expect(lock_failed);
            }
            wire.bytes += len;
            wire.pieces.push_back((Instant::now() + delay, buffer[..len].to_vec()));
            changed.notify_all();
        }
        wire.lock().expect(lock_failed).is_over = true;
        changed.notify_all();
    });
    thread::spawn(move || {
        let (wire, changed) = &*wire;
        loop {
            let mut state = wire.lock().expect(lock_failed);
            while state.pieces.is_empty() && !state.is_over {
                state = changed.wait(state).expect(lock_failed);
            }
            let Some((due, bytes)) = state.pieces.pop_front() else { break };
            state.bytes -= bytes.len();
            drop(state);
            changed.notify_all();
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        wire.lock().expect(lock_failed).is_over = true;
        changed.notify_all();
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[allow(dead_code)] // tests have their own
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, listen, server, millis] = &args[..] else {
        eprintln!("usage: delay LISTEN SERVER MILLISECONDS-EACH-WAY");
        std::process::exit(2);
    };
    let listener = TcpListener::bind(listen).expect("a port that is free");
    let millis: f64 = millis.parse().expect("milliseconds");
    serve(listener, server.parse().expect("an address"), Duration::from_secs_f64(millis / 1000.0));
}
