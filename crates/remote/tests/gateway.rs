//! Gateways: they alone are told of users, they keep no copies, and their doors learn that the
//! server is away.
#![allow(clippy::disallowed_methods)]

use crate::rig;
use crate::rig::{Rig, make, user};
use leeward_env::Ctx;
use leeward_fs::{Attr, Error, Make, NodeId, Op, Result};
use leeward_remote::{Client, Grant};
use leeward_vfs::{Backend, DoorBackend};

fn gateway() -> Grant {
    Grant { gateway: true, ..Grant::default() }
}

impl Rig {
    fn tell(&self, version: u64, bytes: usize) -> Vec<u8> {
        let told: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8 ^ version as u8).collect();
        *self.table.told.lock().expect("what is told") = (version, told.clone());
        told
    }
}

#[test]
fn only_a_gateway_is_told_of_users() {
    let rig = Rig::new();
    let told = rig.tell(7, 10);
    let plain = rig.host("plain", Grant::default());
    assert_eq!(plain.access(0), Err(Error::NotPermitted));
    let host = rig.host("gateway", gateway());
    assert!(host.access(0) == Ok(Some((7, told))));
    rig.know(rig::seed("gateway")[0], "gateway", Grant::default());
    rig.server().hosts_changed();
    assert_eq!(host.access(7), Err(Error::NotPermitted), "from its next call on");
}

#[test]
fn what_a_gateway_is_told_arrives_whole_and_once() {
    let mut rig = Rig::new();
    rig.tell(1, 0);
    let host = rig.host("gateway", gateway());
    for (version, bytes) in [(1, 0), (2, 1), (3, 512 << 10), (4, (512 << 10) + 1), (5, 3_000_000)] {
        let told = rig.tell(version, bytes);
        assert!(host.access(version + 1) == Ok(Some((version, told))), "{bytes} bytes");
        assert_eq!(host.access(version), Ok(None));
    }
    rig.restart(false);
    assert_eq!(host.access(5), Ok(None), "the version is not that of a process");
    // what changes between two pieces is told from the beginning
    let table = rig.table.clone();
    let changing = std::thread::spawn(move || {
        for version in 6..400u64 {
            *table.told.lock().expect("what is told") = (version, vec![version as u8; 1_200_000]);
            std::thread::yield_now();
        }
    });
    while !changing.is_finished() {
        let (version, told) = host.access(0).expect("told").expect("something");
        assert!(version == 5 || told.len() == 1_200_000 && told.iter().all(|b| *b == version as u8));
    }
    changing.join().expect("no panic");
}

fn look_up(client: &Client, dir: NodeId, name: &[u8]) -> Result<Attr> {
    Backend::call(client, &Ctx::user(0, 0), Op::Lookup { dir, name })?.attr()
}

#[test]
fn a_gateway_has_no_leases_and_names_snapshots_without_references() {
    let rig = Rig::new();
    rig.tell(1, 1);
    let (mount, host) = (rig.host("mount", Grant::default()), rig.host("gateway", gateway()));
    host.access(0).expect("told");
    let leases = |name: &str| {
        let sessions = rig.server().sessions();
        sessions.iter().find(|session| session.host == name).map(|session| session.leases)
    };
    let before = leases("gateway");
    for client in [&host, &mount] {
        make(client, NodeId::ROOT, if std::ptr::eq(client, &mount) { b"m" } else { b"g" }).expect("made");
        for name in [b"m", b"g"] {
            _ = Backend::call(client, &user(0), Op::Lookup { dir: NodeId::ROOT, name });
        }
    }
    assert!(leases("mount") > Some(0) && leases("gateway") <= before, "{before:?}");
    let dir = look_up(&host, NodeId::ROOT, b".snap").expect("there").node;
    let op = Op::Make { dir, name: b"s", make: Make::Dir, mode: 0o755, umask: 0 };
    Backend::call(&host, &Ctx::user(0, 0), op).expect("a snapshot");
    let inside = look_up(&host, dir, b"s").and_then(|snapshot| look_up(&host, snapshot.node, b"g"));
    assert!(inside.is_ok_and(|attr| attr.node.is_view()));
    let dir = look_up(&mount, NodeId::ROOT, b".snap").expect("there").node;
    assert_eq!(look_up(&mount, dir, b"s"), Err(Error::Stale), "a mount holds references");
}

#[test]
fn doors_learn_that_the_server_went_away() {
    let mut rig = Rig::new();
    rig.tell(1, 1);
    let host = rig.host("gateway", gateway());
    let doors = host.for_doors();
    let session = doors.session();
    let file = make(&host, NodeId::ROOT, b"f").expect("made");
    let read = Op::Read { node: file.node, offset: 0, len: 1 };
    assert_eq!(
        DoorBackend::call(&doors, &Ctx::user(0, 0), read).and_then(|reply| reply.data()),
        Ok(Vec::new())
    );
    rig.restart(false);
    // a change that was sent when the server went, or after it, but is not to be done twice
    host.access(0).expect("told");
    assert_ne!(doors.session(), session);
    host.close();
    let after = DoorBackend::call(&doors, &Ctx::user(0, 0), Op::SyncAll);
    assert_eq!(after, Err(Error::Unavailable));
}
