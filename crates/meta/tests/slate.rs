//! The engine on an object store: the suite, faults of the store, and two that open the same place.

use leeward_bucket::Bucket;
use leeward_bucket::server::{Fault, KEY, Server};
use leeward_env::Env;
use leeward_meta::contract::{self, Model, Random, all_inline_data, puts};
use leeward_meta::slate::{SlateKv, SlateOptions};
use leeward_meta::{Batch, Error, Kv};
use std::cell::Cell;
use std::time::Duration;

fn bucket(server: &Server) -> Bucket {
    Bucket::with_keys(&server.place("cell"), KEY, "secret").expect("a bucket")
}

fn open(server: &Server, path: &str) -> SlateKv {
    let options = SlateOptions { memtable_bytes: 256 << 10, commits_max: 20, ..SlateOptions::default() };
    SlateKv::open(&Env::real(), bucket(server).objects(), path, "s3://b/cell", &options).expect("open")
}

#[test]
fn suite() {
    let server = Server::start("b");
    let count = Cell::new(0);
    contract::run(&|| {
        count.set(count.get() + 1);
        Box::new(open(&server, &format!("meta{}", count.get())))
    });
}

#[test]
fn reopened() {
    let server = Server::start("b");
    contract::reopened(&|| Box::new(open(&server, "meta")));
}

#[test]
fn a_second_one_fences_the_first() {
    let server = Server::start("b");
    let first = open(&server, "meta");
    first.commit(&puts(&[(b"a", b"1")])).expect("commit");
    assert_eq!(first.lost(), None);
    let second = open(&server, "meta");
    assert_eq!(second.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    let late = first.commit(&puts(&[(b"a", b"late")]));
    assert!(matches!(&late, Err(Error::Broken(why)) if why.contains("taken over")), "{late:?}");
    assert!(first.lost().is_some_and(|why| why.contains("taken over")));
    assert!(matches!(first.commit(&puts(&[(b"b", b"late")])), Err(Error::Broken(_))));
    second.commit(&puts(&[(b"c", b"2")])).expect("commit");
    drop(first);
    drop(second);
    let third = open(&server, "meta");
    assert_eq!(third.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(third.get(b"b").expect("get"), None);
    assert_eq!(third.get(b"c").expect("get").as_deref(), Some(&b"2"[..]));
}

#[test]
fn an_idle_one_hears_that_it_is_fenced() {
    let server = Server::start("b");
    let first = open(&server, "meta");
    first.commit(&puts(&[(b"a", b"1")])).expect("commit");
    let second = open(&server, "meta");
    for _ in 0..600 {
        if first.lost().is_some() {
            return drop(second);
        }
        Env::real().sleep(Duration::from_millis(50));
    }
    panic!("not told within half a minute");
}

/// Commits meet every fault, before and after the effect; what was acknowledged is there, and
/// nothing twice.
#[test]
fn commits_outlive_the_faults_of_a_store() {
    let server = Server::start("b");
    let faults = [Fault::Busy, Fault::FailsBefore, Fault::FailsAfter, Fault::BreaksAfter];
    let (mut random, mut model) = (Random::new(5), Model::default());
    let kv = open(&server, "meta");
    for round in 0..60usize {
        if round % 3 == 0 {
            server.fail("PUT", "/wal/", faults[round / 3 % faults.len()], 1 + round % 2);
        }
        let batch = random.batch();
        kv.commit(&batch).expect("commit");
        model.apply(&batch);
    }
    model.check(&kv, &mut random);
    server.heal();
    drop(kv);
    model.check(&open(&server, "meta"), &mut random);
}

/// A commit waits for a store that is away.
#[test]
fn commits_wait_for_a_store_that_is_away() {
    let server = Server::start("b");
    let kv = open(&server, "meta");
    kv.commit(&puts(&[(b"a", b"1")])).expect("commit");
    server.set_down(true);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| kv.commit(&puts(&[(b"a", b"2")])));
        Env::real().sleep(Duration::from_secs(3));
        assert!(!waiting.is_finished(), "a commit ended without a store");
        assert_eq!(kv.get(b"zz").expect("what is in memory is read"), None);
        server.set_down(false);
        waiting.join().expect("no panic").expect("commit");
    });
    assert_eq!(kv.get(b"a").expect("get").as_deref(), Some(&b"2"[..]));
}

#[test]
fn released_inline_data_is_removed_by_the_next_commit() {
    let server = Server::start("b");
    let mut random = Random::new(1);
    let kv = open(&server, "meta");
    let inline_data = [random.inline(7), random.inline(8), random.inline(7)];
    kv.commit(&Batch { writes: Vec::new(), inline_data: inline_data.to_vec() }).expect("commit");
    kv.release_inline(7);
    drop(kv);
    let kv = open(&server, "meta");
    assert_eq!(all_inline_data(&kv), inline_data, "nothing was committed since");
    kv.release_inline(7);
    kv.commit(&puts(&[(b"a", b"1")])).expect("commit");
    drop(kv);
    assert_eq!(all_inline_data(&open(&server, "meta")), inline_data[1..2]);
}
