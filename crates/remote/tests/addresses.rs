//! Servers with several addresses: a client takes the first that answers, and goes on by another.

use crate::rig::proxy::{Proxy, WHOLE};
use crate::rig::{Rig, client_of, lookup, make, read, write};
use leeward_fs::NodeId;
use leeward_remote::{Client, Grant};
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

const ROOT: NodeId = NodeId::ROOT;
const SEED: u8 = 90;

/// Writes, and finds it again.
fn goes_on(client: &Client, name: &[u8]) {
    let node = make(client, ROOT, name).expect("made").node;
    assert_eq!(write(client, node, name), Ok(name.len() as u64));
    assert_eq!(read(client, node), Ok(name.to_vec()));
}

fn connect(rig: &Rig, servers: &[SocketAddr]) -> Client {
    rig.know(SEED, "host", Grant::default());
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    client_of(&rig.env, &servers.join(","), ([SEED; 32], None), None).expect("connected")
}

#[test]
fn a_session_is_held_over_ipv6() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skipped: there is no IPv6 loopback here");
        return;
    }
    let rig = Rig::at_address(Ipv6Addr::LOCALHOST.into(), |cell| cell.clone());
    assert!(rig.at.is_ipv6());
    let client = connect(&rig, &[rig.at]);
    goes_on(&client, b"one");
    let sessions = rig.server().sessions();
    assert!(sessions.len() == 1 && sessions[0].address.is_some_and(|at| at.is_ipv6()), "{sessions:?}");
    let [over_ipv4, over_ipv6] = rig.server().transfers();
    assert!(over_ipv4.requests == 0 && over_ipv6.requests > 0 && over_ipv6.received_bytes >= 3);
    client.close();
    rig.settles(0, 0);
}

/// Nobody listens at the first, or somebody does who says nothing.
#[test]
fn an_address_that_is_dead_is_passed_over() {
    let rig = Rig::new();
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    for dead in [nobody, silent.local_addr().expect("its address")] {
        let begun = rig.env.now();
        let client = connect(&rig, &[dead, rig.at]);
        let took = Duration::from_nanos(rig.env.now() - begun);
        assert!(took < Duration::from_secs(5), "{took:?}");
        goes_on(&client, dead.port().to_string().as_bytes());
        client.close();
    }
}

/// One name with two addresses, the first of which the server does not have.
#[test]
fn all_addresses_of_a_name_are_tried() {
    let rig = Rig::new();
    rig.know(SEED, "host", Grant::default());
    let server = format!("localhost:{}", rig.at.port());
    let client = client_of(&rig.env, &server, ([SEED; 32], None), None).expect("connected");
    goes_on(&client, b"one");
}

/// The network to one address breaks for good: the session goes on by the other, with what was told
/// and not sent.
#[test]
fn a_session_goes_on_by_another_address() {
    let rig = Rig::new();
    let way = || Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    let (first, second) = (way(), way());
    let client = connect(&rig, &[first.at, second.at]);
    goes_on(&client, b"before");
    let session = rig.server().sessions()[0].number;
    assert_eq!((first.connections(), second.connections()), (1, 0));
    first.hold(true);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| goes_on(&client, b"during"));
        rig.env.sleep(Duration::from_millis(200));
        drop(first);
        waits.join().expect("done");
    });
    goes_on(&client, b"after");
    let sessions = rig.server().sessions();
    assert_eq!((sessions.len(), sessions[0].number), (1, session), "it is the same");
    assert!(second.connections() > 0);
    let other = rig.host("other", Grant::default());
    for name in [&b"before"[..], b"during", b"after"] {
        let node = lookup(&other, ROOT, name).expect("found").node;
        assert_eq!(read(&other, node), Ok(name.to_vec()));
    }
}
