//! What idle connections take. In a process of its own: others would be counted, too.
#![allow(missing_docs)]
#![cfg(target_env = "gnu")]

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use leeward_door::limits::{GIVE_BACK_SECS, REST_SECS};
use leeward_door::listen::{Answer, Body, Bound, Client, Site, parse};
use leeward_env::{Door, Env};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Half of what the process may have open by default, less some: each connection has two ends here.
const CONNECTIONS: usize = 450;
/// Of each: without TLS, and with what this end of it takes.
const BYTES_MAX: usize = 8 << 10;
/// hyper's buffers alone.
const USED_BYTES_LEAST: usize = 16 << 10;

struct Hello;

impl Site for Hello {
    fn door(&self) -> Door {
        Door::Http
    }

    fn answer(self: Arc<Self>, _: Request<Body>, _: Client) -> Answer {
        let body = Full::new(Bytes::from_static(b"hello")).map_err(|never| match never {}).boxed_unsync();
        async move { Response::new(body) }.boxed()
    }
}

/// Resident memory of this process.
fn resident() -> usize {
    let all = std::fs::read_to_string("/proc/self/statm").expect("read");
    let pages: usize = all.split(' ').nth(1).expect("a number").parse().expect("a number");
    // SAFETY: takes and returns a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("asked");
    let (mut answer, mut bytes) = (Vec::new(), [0; 1024]);
    while !answer.ends_with(b"hello") {
        let n = stream.read(&mut bytes).expect("answered");
        assert!(n > 0, "the door has hung up");
        answer.extend_from_slice(&bytes[..n]);
    }
}

#[test]
fn an_idle_connection_takes_little_and_is_answered_again() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads");
    let bound = Bound::take(&parse("127.0.0.1:0").expect("an address"), None).expect("a port");
    let at = bound.urls()[0].trim_start_matches("http://").to_owned();
    let env = Env::real();
    let _serving = bound.serve(&env, runtime.handle(), Arc::new(Hello), None).expect("served");
    let before = resident();
    let each = || resident().saturating_sub(before) / CONNECTIONS;
    let connect = |_| TcpStream::connect(&at).expect("connected");
    let mut clients: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    clients.iter_mut().for_each(ask);
    let used = each();
    // when that is, is the machine's business
    let mut idle = each();
    for _ in 0..20 {
        env.sleep(Duration::from_secs(REST_SECS + 2 * GIVE_BACK_SECS + 1));
        idle = each();
        if idle <= BYTES_MAX {
            break;
        }
    }
    assert!(used >= USED_BYTES_LEAST, "{used} bytes each: this measures nothing");
    assert!(idle <= BYTES_MAX, "{used} bytes each at first, {idle} when idle");
    clients.iter_mut().for_each(ask);
}
