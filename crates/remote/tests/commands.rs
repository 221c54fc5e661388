//! Commands of users of hosts: answers come whole over connections that break, and hosts that ask
//! for too much, or for what is another's, get nothing.
#![allow(clippy::disallowed_methods)]

use crate::rig::proxy::{Fate, Proxy, WHOLE};
use crate::rig::raw::{self, Raw};
use crate::rig::{Rig, client, seed};
use leeward_env::Ctx;
use leeward_fs::{Error, NodeId, Op, Reply};
use leeward_remote::message::{Call, Command, ToClient, ToServer};
use leeward_remote::{Client, CommandLost, Grant, User};
use leeward_vfs::Backend;
use std::time::Duration;

fn user(uid: u32) -> User {
    User { uid, gid: uid, gids: vec![7] }
}

/// What a command says.
fn ask(client: &Client, uid: u32, text: &str) -> Result<Vec<u8>, CommandLost> {
    let mut heard = Vec::new();
    client.command(&user(uid), text.as_bytes(), &mut |piece| {
        heard.extend_from_slice(piece);
        true
    })?;
    Ok(heard)
}

fn counted(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n % 251) as u8).collect()
}

#[test]
fn answers_come_whole() {
    let rig = Rig::new();
    let host = rig.host("a", Grant::default());
    for bytes in [0, 1, 65_536, 5_000_000] {
        assert!(ask(&host, 0, &bytes.to_string()).expect("an answer") == counted(bytes), "{bytes} bytes");
    }
    assert!(ask(&host, 0, "30000000").expect("an answer").ends_with(b"too long"));
    let mut pieces = 0;
    let stopped = host.command(&user(0), b"5000000", &mut |_| {
        pieces += 1;
        pieces < 3
    });
    assert_eq!((stopped, pieces), (Ok(()), 3));
}

#[test]
fn users_are_whom_the_host_may_speak_for() {
    let rig = Rig::new();
    let squash = Grant { root_squash: true, uids: vec![(0, 9)], ..Grant::default() };
    let host = rig.host("a", squash);
    assert_eq!(ask(&host, 5, "who").expect("an answer"), b"a 5 [7]");
    assert_eq!(ask(&host, 0, "who").expect("an answer"), b"a 65534 []");
    assert_eq!(ask(&host, 10, "who"), Err(CommandLost::NotPermitted));
}

#[test]
fn answers_come_whole_over_connections_that_break() {
    let rig = Rig::new();
    drop(rig.host("a", Grant::default()));
    // each connection gives a little more than the one before
    let proxy = Proxy::start(&rig.env, rig.at, |number| {
        let bytes = 40_000 + 90_000 * number;
        (WHOLE, Fate { bytes, cut: true, delay: Duration::ZERO })
    });
    let host = client(&rig.env, proxy.at, seed("a"), None).expect("connected");
    assert!(ask(&host, 0, "2000000").expect("an answer") == counted(2_000_000));
}

#[test]
fn a_server_that_ends_does_not_wait_for_commands() {
    let mut rig = Rig::new();
    let host = rig.host("a", Grant::default());
    rig.table.latch.shut();
    let waiting = {
        let host = host.clone();
        std::thread::spawn(move || ask(&host, 0, "wait"))
    };
    rig.table.latch.is_reached();
    rig.restart(true);
    assert!(rig.table.latch.holds(), "the server has waited for the command");
    rig.table.latch.open();
    assert_eq!(waiting.join().expect("no panic"), Err(CommandLost::Restarted));
    assert_eq!(ask(&host, 0, "1").expect("an answer"), counted(1));
}

/// What a command says that was given these pieces.
fn echo(client: &Client, pieces: Vec<Vec<u8>>) -> Result<String, CommandLost> {
    let begun = client.begin_command(&user(0), b"echo")?;
    let giving = {
        let begun = begun.clone();
        std::thread::spawn(move || {
            let mut pieces = pieces.into_iter();
            begun.give(&mut || pieces.next())
        })
    };
    let mut heard = Vec::new();
    begun.hear(&mut |piece| {
        heard.extend_from_slice(piece);
        true
    })?;
    let _ = giving.join().expect("no panic");
    Ok(String::from_utf8(heard).expect("text"))
}

fn pieces(count: usize) -> (Vec<Vec<u8>>, String) {
    let all: Vec<Vec<u8>> = (0..count).map(|n| counted(1 + (n * 7919) % 500_000)).collect();
    let bytes: usize = all.iter().map(Vec::len).sum();
    let sum = all.iter().flatten().fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
    (all, format!("{bytes} {sum}"))
}

#[test]
fn commands_read_what_they_are_given() {
    let rig = Rig::new();
    let host = rig.host("a", Grant { mirror: true, ..Grant::default() });
    assert_eq!(echo(&host, Vec::new()), Ok("0 0".into()));
    let (all, told) = pieces(60);
    assert_eq!(echo(&host, all.clone()), Ok(told));
    // one that wants no more ends the giving
    let stopped = [vec![vec![1, 2]], vec![vec![255]], all].concat();
    assert_eq!(echo(&host, stopped), Ok("2 33".into()));
    let looks = host.call(&Ctx::user(0, 0), Op::GetAttr { node: NodeId::ROOT });
    assert_eq!(looks, Err(Error::NotPermitted), "it mounts nothing");
}

#[test]
fn what_is_given_comes_whole_over_connections_that_break() {
    let rig = Rig::new();
    drop(rig.host("a", Grant::default()));
    let proxy = Proxy::start(&rig.env, rig.at, |number| {
        let bytes = 600_000 + 900_000 * number;
        (Fate { bytes, cut: true, delay: Duration::ZERO }, WHOLE)
    });
    let host = client(&rig.env, proxy.at, seed("a"), None).expect("connected");
    let (all, told) = pieces(40);
    assert_eq!(echo(&host, all), Ok(told));
}

#[test]
fn a_command_ends_whose_client_gives_no_more_and_goes() {
    let rig = Rig::new();
    let host = rig.host("a", Grant::default());
    let begun = host.begin_command(&user(0), b"echo").expect("begun");
    begun.end().expect("ended");
    assert_eq!(begun.hear(&mut |_| true), Err(CommandLost::Restarted));
    assert_eq!(begun.give(&mut || Some(vec![1])), Err(CommandLost::Restarted));
}

/// Gives a command in the next call of the first slot.
fn call(raw: &mut Raw, number: &mut u32, command: Command<'_>) -> Result<Reply, Error> {
    *number += 1;
    raw.say(&ToServer::Call(raw::slot(0, *number), Call::Command(raw::root(), command)));
    match raw.hear() {
        Ok(ToClient::Answer(_, result, ..)) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_host_hears_no_answers_of_others_and_cannot_fill_the_server() {
    let rig = Rig::new();
    rig.know(1, "one", Grant::default());
    rig.know(2, "two", Grant::default());
    let ((mut one, _), (mut two, _)) = (Raw::welcomed(&rig, 1, None), Raw::welcomed(&rig, 2, None));
    let (mut of_one, mut of_two) = (0, 0);
    let first = call(&mut one, &mut of_one, Command::Begin(b"1000")).expect("begun");
    let Reply::Data(number) = first else { panic!("{first:?}") };
    let number = u64::from_le_bytes(number.try_into().expect("a number"));
    assert_eq!(call(&mut two, &mut of_two, Command::More(number)), Err(Error::Stale));
    assert_eq!(call(&mut two, &mut of_two, Command::End(number)), Ok(Reply::Done));
    assert_eq!(call(&mut one, &mut of_one, Command::More(number)), Ok(Reply::Data(counted(1000))));
    assert_eq!(call(&mut one, &mut of_one, Command::More(number)), Ok(Reply::Data(Vec::new())));
    assert_eq!(call(&mut one, &mut of_one, Command::More(number)), Err(Error::Stale));
    for _ in 0..8 {
        call(&mut one, &mut of_one, Command::Begin(b"1000")).expect("begun");
    }
    assert_eq!(call(&mut one, &mut of_one, Command::Begin(b"1000")), Err(Error::Busy));
    call(&mut two, &mut of_two, Command::Begin(b"1000")).expect("others may");
    let long = vec![b'x'; 100_000];
    assert_eq!(call(&mut two, &mut of_two, Command::Begin(&long)), Err(Error::Invalid));
}
