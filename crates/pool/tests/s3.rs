//! A store in a bucket: the suite, and what a put does where an answer was lost or another process
//! was faster.

use leeward_bucket::Bucket;
use leeward_bucket::server::{Fault, KEY, Server};
use leeward_env::Ctx;
use leeward_pool::contract::{self, body, holds, id};
use leeward_pool::{Error, S3Store, Store};
use std::cell::Cell;
use std::sync::Arc;

const PAGE: usize = 4096;

fn store(server: &Server, prefix: &str) -> Arc<dyn Store> {
    Arc::new(S3Store::new(Bucket::with_keys(&server.place(prefix), KEY, "secret").expect("a bucket"), "data"))
}

#[test]
fn bucket() {
    let server = Server::start("b");
    let count = Cell::new(0);
    contract::run(&|| {
        count.set(count.get() + 1);
        store(&server, &format!("cell/{}", count.get()))
    });
}

#[test]
fn a_put_whose_answer_was_lost() {
    let server = Server::start("b");
    let store = store(&server, "cell");
    for (n, fault) in
        [Fault::FailsAfter, Fault::BreaksAfter, Fault::FailsBefore, Fault::Busy].into_iter().enumerate()
    {
        let (name, whole) = (id(n as u64, 0), body(n as u64, PAGE));
        server.fail("PUT", "data/", fault, 1);
        if let Err(e) = store.put(&Ctx::system(), name, &whole) {
            assert!(e.is_passing(), "{e}");
            store.put(&Ctx::system(), name, &whole).expect("the second put");
        }
        assert!(holds(&*store, name, &whole), "{fault:?}");
    }
}

#[test]
fn nothing_is_ever_replaced() {
    let server = Server::start("b");
    let store = store(&server, "cell");
    let first = body(1, 2 * PAGE);
    store.put(&Ctx::system(), id(1, 1), &first).expect("a put");
    let late = store.put(&Ctx::system(), id(1, 1), &body(2, PAGE));
    assert!(matches!(late, Err(Error::Exists(of)) if of == id(1, 1)), "{late:?}");
    assert!(holds(&*store, id(1, 1), &first));
}

#[test]
fn what_passes_is_told_from_what_does_not() {
    let server = Server::start("b");
    let there = store(&server, "cell");
    server.fail("GET", "data/", Fault::Busy, 100);
    let busy = there.get(&Ctx::system(), id(1, 0), 0, &mut [0; 16]);
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    server.heal();
    server.set_down(true);
    let away = there.len(&Ctx::system(), id(1, 0));
    assert!(matches!(away, Err(Error::Away(_))), "{away:?}");
    let mut place = server.place("cell");
    server.set_down(false);
    place.url.bucket = "none".into();
    let nowhere = S3Store::new(Bucket::with_keys(&place, KEY, "secret").expect("a bucket"), "data");
    let refused = nowhere.get(&Ctx::system(), id(1, 0), 0, &mut [0; 16]);
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
}
