//! What a client makes of servers that are started anew, whatever they say of its session: nothing that it
//! was told is lost without a word.
#![allow(missing_docs)]

mod rig;

use leeward_env::{Env, Told};
use leeward_fs::{Error, NodeId, Op, Reply};
use leeward_remote::message::{Standing, ToClient};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;
use rig::fake::{Fake, Peer};
use rig::{Rig, make, read, user, write};
use std::time::Duration;

const FILE: NodeId = NodeId(9);
const TOLD: Told = Told { lsn: 5, at: 1, node: 0, number: 0 };

/// A client that has written a file, with a server that goes on as `then` says. What an fsync of the file
/// comes to afterwards.
fn fsync_after(then: impl FnOnce(&Fake) -> Peer + Send + 'static) -> leeward_fs::Result<Reply> {
    let (env, fake) = (Env::real(), Fake::new());
    let at = fake.at();
    let serve = move || {
        let mut peer = fake.welcome(Standing::New, 1);
        peer.begin();
        let slot = peer.operation();
        peer.answer(slot, Ok(Reply::Written(4)), Some(TOLD));
        drop(peer);
        let mut peer = then(&fake);
        let slot = peer.operation();
        peer.answer(slot, Ok(Reply::Done), None);
        peer
    };
    let served = std::thread::Builder::new().spawn(serve).expect("a thread");
    let client: Client = rig::client(&env, at, [3; 32], None).expect("connected");
    assert_eq!(write(&client, FILE, b"data"), Ok(4));
    let synced = client.call(&user(0), Op::Fsync { node: FILE });
    assert_eq!(client.lost_files().len(), usize::from(synced.is_err()), "lee why says why an fsync fails");
    client.close();
    drop(served.join().expect("all was as expected"));
    synced
}

/// A process of the server that knows the session is left before the client has caught up, and knows it no
/// more when the client comes back.
#[test]
fn a_session_that_is_closed_before_it_has_caught_up_tells_of_what_is_lost() {
    let synced = fsync_after(|fake| {
        let mut peer = fake.welcome(Standing::Known, 2);
        peer.asks_again(&[TOLD.lsn]);
        drop(peer);
        let mut peer = fake.welcome(Standing::New, 2);
        peer.say(&ToClient::Ready);
        peer
    });
    assert!(matches!(synced, Err(Error::Io(_))), "{synced:?}");
}

/// It ends in order meanwhile, which says nothing of what the process before has lost.
#[test]
fn a_server_that_ends_while_clients_catch_up_does_not_say_that_all_is_durable() {
    let synced = fsync_after(|fake| {
        let mut peer = fake.welcome(Standing::Known, 2);
        peer.asks_again(&[TOLD.lsn]);
        peer.say(&ToClient::Closing { durable: true });
        drop(peer);
        let mut peer = fake.welcome(Standing::New, 3);
        peer.say(&ToClient::Ready);
        peer
    });
    assert!(matches!(synced, Err(Error::Io(_))), "{synced:?}");
}

/// The first welcome of a process was lost, so the session goes on there as far as the server knows.
#[test]
fn a_client_that_did_not_hear_that_the_server_is_another_asks_again() {
    let synced = fsync_after(|fake| {
        let mut peer = fake.welcome(Standing::Resumed, 2);
        peer.asks_again(&[TOLD.lsn]);
        peer.say(&ToClient::Ready);
        peer
    });
    assert_eq!(synced, Ok(Reply::Done));
}

/// An operator has ended the session, and then the server crashes.
#[test]
fn what_an_ended_session_was_told_is_asked_for_again_by_the_next_one() {
    let synced = fsync_after(|fake| {
        let mut peer = fake.welcome(Standing::New, 1);
        peer.say(&ToClient::Ready);
        drop(peer);
        let mut peer = fake.welcome(Standing::Known, 2);
        peer.asks_again(&[TOLD.lsn]);
        peer.say(&ToClient::Ready);
        peer
    });
    assert_eq!(synced, Ok(Reply::Done));
}

/// Calls that must not be done twice, and that no server remembers.
#[test]
fn what_a_server_that_ends_in_order_has_not_done_the_next_one_does() {
    let mut rig = Rig::new();
    let client = rig.host("host", Grant::default());
    let [from, to] = [b"from", b"into"].map(|name| make(&client, NodeId::ROOT, name).expect("made").node);
    write(&client, from, b"content").expect("written");
    rig.server().stop();
    let copying = client.clone();
    let copy = move || {
        let op = Op::CopyRange { from, from_offset: 0, to, to_offset: 0, len: 7 };
        copying.call(&user(0), op)
    };
    let copy = std::thread::Builder::new().spawn(copy).expect("a thread");
    rig.env.sleep(Duration::from_millis(200));
    rig.restart(true);
    let copied = copy.join().expect("no panic");
    assert!(copied.is_ok(), "{copied:?}");
    assert_eq!(read(&client, to), Ok(b"content".to_vec()));
    client.close();
}
