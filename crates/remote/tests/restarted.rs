//! What a client makes of servers that are started anew, whatever they say of its session: nothing
//! that it was told is lost without a word.

use crate::rig;
use crate::rig::fake::{Fake, Peer};
use crate::rig::{Rig, make, read, user, write};
use leeward_env::{Env, Told};
use leeward_fs::{Error, NodeId, Op, Reply, Watcher};
use leeward_remote::message::{Call, SLOTS_MAX, Standing, ToClient, ToServer, message};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FILE: NodeId = NodeId(9);
const TOLD: Told = Told { lsn: 5, at: 1, node: 0, number: 0 };

/// A client that has written a file, with a server that goes on as `then` says. What an fsync of
/// the file comes to afterwards.
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

/// A process of the server that knows the session is left before the client has caught up, and
/// knows it no more when the client comes back.
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

/// The first welcome of a process was lost, so the session goes on there as far as the server
/// knows.
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

/// The server knows the session no more. The same one may have done the write, and others have
/// written since: it is not done again, and its program hears that. One after a crash is asked for
/// it again.
#[test]
fn a_write_of_a_session_that_has_ended_is_not_repeated_unless_the_server_has_crashed() {
    for instance in [1, 2] {
        let has_crashed = instance == 2;
        let (env, fake) = (Env::real(), Fake::new());
        let at = fake.at();
        let asking = move || {
            let client = rig::client(&env, at, [3; 32], None).expect("connected");
            let written = write(&client, FILE, b"data");
            assert!(client.call(&user(0), Op::GetAttr { node: FILE }).is_err(), "it answers so");
            client.close();
            written
        };
        let asking = std::thread::Builder::new().spawn(asking).expect("a thread");
        let mut peer = fake.welcome(Standing::New, 1);
        peer.begin();
        let _ = peer.operation();
        drop(peer);
        let mut peer = fake.welcome(Standing::New, instance);
        peer.say(&ToClient::Ready);
        if has_crashed {
            let slot = peer.operation();
            peer.answer(slot, Ok(Reply::Written(4)), None);
        }
        let bytes = peer.hear();
        let Ok(ToServer::Call(slot, Call::Op(_, Op::GetAttr { node: FILE }))) = message(&bytes) else {
            panic!("something else is asked for")
        };
        peer.answer(slot, Err(Error::Stale), None);
        let written = asking.join().expect("no panic");
        match written {
            Ok(4) => assert!(has_crashed),
            Err(Error::Io(why)) => assert!(!has_crashed && why.contains("is not known"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

/// What comes with the welcome is heard, though nothing comes after it.
#[test]
fn a_client_hears_what_comes_together_with_its_welcome() {
    let (env, fake) = (Env::real(), Fake::new());
    let at = fake.at();
    let connecting = move || rig::client(&env, at, [3; 32], None);
    let connecting = std::thread::Builder::new().spawn(connecting).expect("a thread");
    let mut peer = fake.welcome_and(Standing::New, 1, &[ToClient::Ready]);
    let slot = peer.operation_of_silent();
    peer.answer(slot, Err(Error::Stale), None);
    let slot = peer.operation();
    peer.answer(slot, Err(Error::Stale), None);
    connecting.join().expect("no panic").expect("connected").close();
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

/// How long anything may take.
const TIME: Duration = Duration::from_secs(20);

/// A front end that drops pages when the other end of this is gone.
struct Slow(Mutex<Receiver<()>>);

impl Watcher for Slow {
    fn entry_changed(&self, _: NodeId, _: &[u8]) {}
    fn inode_changed(&self, _: NodeId) {}
    fn attributes_changed(&self, _: NodeId) {}
    fn wait_applied(&self) {
        wait_until_gone(&self.0.lock().expect("one waits at a time"));
    }
}

fn wait_until_gone(other: &Receiver<()>) {
    let _ = other.recv_timeout(TIME);
}

fn soon<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(TIME).expect("it comes")
}

/// Asks for attributes of an inode. The answer comes there.
fn ask(client: &Client, node: u64) -> Receiver<leeward_fs::Result<Reply>> {
    let (send, answer) = channel();
    client.run(user(0), Op::GetAttr { node: NodeId(node) }, move |result| drop(send.send(result)));
    answer
}

/// A client that reads, and then hears that its leases were taken: it drops what it has read before
/// it gives answers.
fn begins_to_defer(fake: &Fake) -> Peer {
    let mut peer = fake.welcome(Standing::New, 1);
    peer.begin();
    let read = peer.operation();
    peer.answer(read, Err(Error::Stale), None);
    peer.say(&ToClient::Pong { number: 0, taken: Some(1), wall: 0 });
    peer
}

/// The other end of [`begins_to_defer`].
fn deferring_client(env: &Env, at: SocketAddr, pages: Receiver<()>) -> Client {
    let client = rig::client(env, at, [3; 32], None).expect("connected");
    client.watch(Arc::new(Slow(Mutex::new(pages))));
    let read = client.call(&user(0), Op::Read { node: NodeId::ROOT, offset: 0, len: 1 });
    assert_eq!(read, Err(Error::Stale));
    client
}

/// The other end of a client that waits with two answers until `dropped` is gone, and gives the
/// first one then. The connection ends when `cut` says so; `again` hears when the next one has
/// taken one more call.
fn defers_and_cuts(fake: &Fake, dropped: Sender<()>, cut: &Receiver<()>, again: &Sender<()>) -> Peer {
    let mut peer = begins_to_defer(fake);
    let [first, second] = [peer.operation(), peer.operation()];
    [first, second].into_iter().for_each(|slot| peer.answer(slot, Err(Error::Stale), None));
    peer.has_heard();
    drop(dropped);
    soon(cut);
    drop(peer);
    let mut peer = fake.welcome(Standing::Resumed, 1);
    peer.say(&ToClient::Ready);
    assert_eq!(peer.operation(), second, "it is sent again");
    let third = peer.operation();
    peer.answer(third, Err(Error::Stale), None);
    peer.has_heard();
    again.send(()).expect("somebody waits");
    let others = [peer.operation(), peer.operation()];
    assert!(others.iter().all(|slot| slot.place != second.place), "{second:?} is not answered: {others:?}");
    others.into_iter().for_each(|slot| peer.answer(slot, Err(Error::Stale), None));
    peer.answer(second, Err(Error::NotFound), None);
    peer
}

/// Answers may wait until pages are dropped. The connection is lost between two that have waited:
/// the second call is sent again by the next one, and nothing else is in its slot before that is
/// answered.
#[test]
fn an_answer_that_has_waited_until_its_connection_is_lost_is_not_given() {
    let (env, fake) = (Env::real(), Fake::new());
    let at = fake.at();
    let ((dropped, pages), (cut, is_cut), (again, is_back)) = (channel(), channel(), channel());
    let serve = move || defers_and_cuts(&fake, dropped, &is_cut, &again);
    let served = std::thread::Builder::new().spawn(serve).expect("a thread");
    let client = deferring_client(&env, at, pages);
    let ((begin, begun), (go_on, goes_on)) = (channel(), channel());
    client.run(user(0), Op::GetAttr { node: NodeId(21) }, move |_| {
        begin.send(()).expect("somebody waits");
        wait_until_gone(&goes_on);
    });
    let second = ask(&client, 22);
    soon(&begun);
    cut.send(()).expect("the server is there");
    let third = ask(&client, 23);
    soon(&is_back);
    drop(go_on);
    // it comes after all that have waited
    assert_eq!(soon(&third), Err(Error::Stale));
    let others = [24, 25].map(|node| ask(&client, node));
    assert_eq!(soon(&second), Err(Error::NotFound), "what the connection says that there is");
    others.iter().for_each(|answer| assert_eq!(soon(answer), Err(Error::Stale)));
    client.close();
    drop(served.join().expect("all was as expected"));
}

/// The answer waits until pages are dropped, and the client hears before that what the server has
/// not answered it has not done.
#[test]
fn what_a_server_that_ends_in_order_has_answered_is_not_asked_for_again() {
    let (env, fake) = (Env::real(), Fake::new());
    let (at, (dropped, pages), clock) = (fake.at(), channel(), env.clone());
    let serve = move || {
        let mut peer = begins_to_defer(&fake);
        let removed = peer.operation();
        peer.answer(removed, Ok(Reply::Done), None);
        peer.say(&ToClient::Closing { durable: true });
        clock.sleep(Duration::from_millis(100));
        drop(dropped);
        drop(peer);
        let mut peer = fake.welcome(Standing::New, 2);
        peer.say(&ToClient::Ready);
        let slot = peer.operation();
        peer.answer(slot, Err(Error::NotFound), None);
        peer
    };
    let served = std::thread::Builder::new().spawn(serve).expect("a thread");
    let client = deferring_client(&env, at, pages);
    assert_eq!(client.call(&user(0), Op::RmDir { dir: NodeId::ROOT, name: b"x" }), Ok(Reply::Done));
    assert_eq!(soon(&ask(&client, 21)), Err(Error::NotFound), "the other server hears of this only");
    client.close();
    drop(served.join().expect("all was as expected"));
}

/// An answer frees a slot before the server takes calls.
#[test]
fn a_call_that_has_waited_for_a_slot_waits_until_the_server_takes_calls() {
    let (env, fake) = (Env::real(), Fake::new());
    let at = fake.at();
    let (asked, are_asked) = channel();
    let serve = move || {
        let mut peer = fake.welcome(Standing::New, 1);
        peer.begin();
        let slots: Vec<_> = (0..SLOTS_MAX).map(|_| peer.operation()).collect();
        soon(&are_asked);
        drop(peer);
        let mut peer = fake.welcome(Standing::Resumed, 1);
        peer.answer(slots[5], Err(Error::Stale), None);
        peer.has_heard();
        peer.say(&ToClient::Ready);
        for _ in 0..SLOTS_MAX {
            let slot = peer.operation();
            peer.answer(slot, Err(Error::Stale), None);
        }
        peer
    };
    let served = std::thread::Builder::new().spawn(serve).expect("a thread");
    let client: Client = rig::client(&env, at, [3; 32], None).expect("connected");
    let answers: Vec<_> = (0..=u64::from(SLOTS_MAX)).map(|node| ask(&client, 21 + node)).collect();
    asked.send(()).expect("the server is there");
    answers.iter().for_each(|answer| assert_eq!(soon(answer), Err(Error::Stale)));
    client.close();
    drop(served.join().expect("all was as expected"));
}
