//! Calls of clients to a server: what they do, what hosts may, and what becomes of them when
//! connections break and servers end.

use crate::rig::{INVITATION, Rig, lookup, make, read, user, write};
use leeward_fs::{Error, NodeId, Op, Precondition, Reply};
use leeward_remote::{Grant, Unreachable};
use leeward_vfs::Backend;

const ROOT: NodeId = NodeId::ROOT;

#[test]
fn what_one_host_does_another_sees() {
    let rig = Rig::new();
    let (a, b) = (rig.host("a", Grant::default()), rig.host("b", Grant::default()));
    let file = make(&a, ROOT, b"file").expect("made");
    assert_eq!(make(&b, ROOT, b"file"), Err(Error::Exists));
    let big: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
    assert_eq!(write(&a, file.node, &big), Ok(1 << 20));
    assert_eq!(read(&b, lookup(&b, ROOT, b"file").expect("found").node), Ok(big));
    assert_eq!(a.call(&user(0), Op::Fsync { node: file.node }), Ok(Reply::Done));
    let listed = b.call(&user(0), Op::List { dir: ROOT, after: b"", limit: 10, attrs: true });
    assert_eq!(listed.and_then(Reply::entries).map(|entries| entries.len()), Ok(1));
    assert_eq!(a.host(), "a");
}

#[test]
fn an_unlinked_file_stays_as_long_as_any_host_refers_to_it() {
    let rig = Rig::new();
    let (a, b) = (rig.host("a", Grant::default()), rig.host("b", Grant::default()));
    let node = make(&a, ROOT, b"file").expect("made").node;
    write(&a, node, b"data").expect("written");
    lookup(&b, ROOT, b"file").expect("found");
    let unlink = Op::Unlink { dir: ROOT, name: b"file", over: Precondition::Any };
    a.call(&user(0), unlink).expect("removed");
    // more than it has, which must not count for the other
    a.forget(user(0), node, 1000);
    assert_eq!(read(&b, node), Ok(b"data".to_vec()));
    b.close();
    for _ in 0..500 {
        if read(&a, node).is_err() {
            return;
        }
        rig.env.sleep(std::time::Duration::from_millis(10));
    }
    panic!("the file of a host that has gone stays");
}

#[test]
fn a_host_may_do_what_its_entry_says() {
    let rig = Rig::new();
    let all = rig.host("all", Grant::default());
    let node = make(&all, ROOT, b"file").expect("made").node;
    let reads = rig.host("reads", Grant { read_only: true, ..Grant::default() });
    assert_eq!(make(&reads, ROOT, b"other"), Err(Error::ReadOnly));
    assert!(lookup(&reads, ROOT, b"file").is_ok());
    let few = rig.host("x few", Grant { uids: vec![(1000, 1999)], ..Grant::default() });
    assert_eq!(few.call(&user(0), Op::GetAttr { node }), Err(Error::NotPermitted));
    assert!(few.call(&user(1500), Op::Lookup { dir: ROOT, name: b"file" }).is_ok());
    assert!(few.call(&user(1500), Op::GetAttr { node }).is_ok());
    let volumes = rig.host("volumes", Grant { volumes: vec![77], ..Grant::default() });
    assert_eq!(volumes.call(&user(0), Op::GetAttr { node }), Err(Error::Access));
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        assert_eq!(make(&all, ROOT, name), Err(Error::Invalid), "{name:?}");
    }
    assert_eq!(make(&all, ROOT, &[b'x'; 256]), Err(Error::NameTooLong));
}

#[test]
fn only_invited_hosts_are_let_in_and_removed_ones_are_out() {
    let rig = Rig::new();
    let refused = |seed, invitation| match rig.connect(rig.at, seed, invitation) {
        Err(Unreachable::Refused(why)) => why,
        other => panic!("{:?}", other.map(|_| "let in")),
    };
    assert!(refused([1; 32], None).contains("lee host add"));
    assert!(refused([1; 32], Some(INVITATION)).contains("no such invitation"));
    let host = rig.host("a", Grant::default());
    let node = make(&host, ROOT, b"file").expect("made").node;
    rig.table.hosts.lock().expect("the hosts").clear();
    rig.server.as_ref().expect("the server").hosts_changed();
    for _ in 0..500 {
        if rig.server.as_ref().expect("the server").sessions().is_empty() && host.away().is_some() {
            assert!(host.away().expect("away").1.contains("removed"), "{:?}", host.away());
            host.close();
            assert!(read(&host, node).is_err());
            return;
        }
        rig.env.sleep(std::time::Duration::from_millis(10));
    }
    panic!("the host is still in");
}

#[test]
fn a_server_that_ends_is_waited_for() {
    let mut rig = Rig::new();
    let host = rig.host("a", Grant::default());
    let node = make(&host, ROOT, b"file").expect("made").node;
    write(&host, node, b"one").expect("written");
    rig.restart(true);
    assert_eq!(read(&host, node), Ok(b"one".to_vec()));
    assert_eq!(host.call(&user(0), Op::Fsync { node }), Ok(Reply::Done));
    write(&host, node, b"two").expect("written");
    rig.restart(false);
    assert!(host.call(&user(0), Op::Fsync { node }).is_err(), "changes before the crash may be lost");
    assert_eq!(host.call(&user(0), Op::Fsync { node }), Ok(Reply::Done));
    assert!(make(&host, ROOT, b"more").is_ok());
}
