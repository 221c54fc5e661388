//! What operators order, and what becomes of records: one after the other, on a store that works.

use leeward_env::{Env, Nanos, Term};
use leeward_servers::{
    Failed, MAP, Record, Renewing, Store, Watching, order, overview, predecessors_ended, times,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Objects with their versions, and the last version.
type All = (BTreeMap<String, (Vec<u8>, u64)>, u64);

#[derive(Default)]
struct Objects(Mutex<All>);

impl Objects {
    fn put(&self, name: &str, body: Vec<u8>, tag: Option<u64>) -> Result<u64, Failed> {
        let (all, next) = &mut *self.0.lock();
        if all.get(name).map(|(_, tag)| *tag) != tag {
            return Err(Failed::Conflict);
        }
        *next += 1;
        all.insert(name.to_owned(), (body, *next));
        Ok(*next)
    }
}

impl Store for Objects {
    type Tag = u64;

    fn get(&self, name: &str) -> Result<Option<(Vec<u8>, u64)>, Failed> {
        Ok(self.0.lock().0.get(name).cloned())
    }

    fn create(&self, name: &str, body: Vec<u8>) -> Result<(), Failed> {
        self.put(name, body, None).map(drop)
    }

    fn swap(&self, name: &str, body: Vec<u8>, tag: &u64) -> Result<u64, Failed> {
        self.put(name, body, Some(*tag))
    }

    fn delete(&self, name: &str) -> Result<(), Failed> {
        self.0.lock().0.remove(name);
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, Failed> {
        Ok(self.0.lock().0.keys().cloned().collect())
    }
}

struct Server {
    term: Term,
    renewing: Renewing<Objects>,
    watching: Watching<Objects>,
    turns: Vec<u64>,
}

struct Cell {
    env: Env,
    store: Arc<Objects>,
}

impl Cell {
    fn new() -> Cell {
        Cell { env: Env::sim(7), store: Arc::default() }
    }

    fn join(&self, id: &str) -> Server {
        let (term, watching) = (Term::not_begun(), Watching::new(&self.env, &self.store, id));
        watching.prepare().expect("a map");
        let record = Record { id: id.into(), lock: format!("lock of {id}"), ..Record::default() };
        let renewing = Renewing::begin(&self.env, &self.store, record, &term).expect("a record");
        Server { term, renewing, watching, turns: Vec::new() }
    }

    /// Time passes for servers that live.
    fn pass(&self, time: Nanos, servers: &mut [&mut Server]) {
        let end = self.env.now() + time;
        while self.env.now() < end {
            for server in &mut *servers {
                server.renewing.renew();
                let draining = server.renewing.record().draining;
                let turn = server.watching.step(&server.term, draining).expect("the store answers");
                server.turns.extend(turn.map(|turn| turn.number));
            }
            self.env.advance(Duration::from_millis(250));
        }
    }

    fn owner(&self) -> Option<String> {
        overview(&*self.store).expect("read").map.owner
    }
}

#[test]
fn a_drained_server_takes_nothing_while_others_may() {
    let cell = Cell::new();
    let (mut a, mut b) = (cell.join("a"), cell.join("b"));
    cell.pass(20_000_000_000, &mut [&mut a, &mut b]);
    assert_eq!(cell.owner().as_deref(), Some("a"));
    order(&*cell.store, "a", |record| record.draining = true).expect("ordered").expect("it is there");
    cell.pass(500_000_000, &mut [&mut a, &mut b]);
    assert!(!a.watching.has_successor(19), "its program does not say that it knows that");
    assert!(a.watching.has_successor(18) && a.watching.leave());
    // it looks first, and takes nothing
    cell.pass(1, &mut [&mut a]);
    assert_eq!(cell.owner(), None);
    cell.pass(1_000_000_000, &mut [&mut a, &mut b]);
    assert_eq!((cell.owner().as_deref(), a.turns.len(), b.turns.len()), (Some("b"), 1, 1));
    // b leaves in order and is gone: then it does, after a while
    assert!(b.watching.leave());
    b.renewing.end().expect("said");
    cell.pass(times::UNWANTED - 1_000_000_000, &mut [&mut a]);
    assert_eq!(cell.owner(), None);
    cell.pass(2_000_000_000, &mut [&mut a]);
    assert_eq!((cell.owner().as_deref(), a.turns.len()), (Some("a"), 2));
}

#[test]
fn whoever_has_the_lock_says_that_the_process_before_has_ended() {
    let cell = Cell::new();
    let (mut a, mut b) = (cell.join("a"), cell.join("b"));
    cell.pass(1_000_000_000, &mut [&mut a, &mut b]);
    predecessors_ended(&*cell.store, "lock of another").expect("read");
    predecessors_ended(&*cell.store, "").expect("read");
    cell.pass(250_000_000, &mut [&mut a, &mut b]);
    assert_eq!(cell.owner().as_deref(), Some("a"));
    predecessors_ended(&*cell.store, "lock of a").expect("said");
    cell.pass(1, &mut [&mut b]);
    assert_eq!(cell.owner().as_deref(), Some("b"), "at once, and without a wait");
    assert!(overview(&*cell.store).expect("read").map.after.is_empty());
    // it was no such process: it ends
    a.renewing.renew();
    assert!(a.term.is_over());
    // the next one finds its record, which is of no use to anybody
    predecessors_ended(&*cell.store, "lock of a").expect("said");
    let ids = |cell: &Cell| -> Vec<String> {
        overview(&*cell.store).expect("read").servers.into_iter().map(|record| record.id).collect()
    };
    assert_eq!(ids(&cell), ["b"]);
    cell.pass(1_000_000_000, &mut [&mut b]);
    // of one that the map names it stays
    predecessors_ended(&*cell.store, "lock of b").expect("said");
    predecessors_ended(&*cell.store, "lock of b").expect("said");
    assert_eq!((cell.owner().as_deref(), ids(&cell)), (Some("b"), vec!["b".to_owned()]));
}

#[test]
fn records_of_servers_that_are_gone_do_not_stay_for_ever() {
    let cell = Cell::new();
    let mut a = cell.join("a");
    let mut gone: Vec<Server> = (0..5).map(|n| cell.join(&format!("gone{n}"))).collect();
    cell.pass(2_000_000_000, &mut [&mut a]);
    gone.clear(); // killed while they stood by
    for _ in 0..20 {
        cell.pass(times::KEPT / 10, &mut [&mut a]);
        a.watching.tidy();
    }
    let mut names = cell.store.names().expect("names");
    names.sort();
    assert_eq!(names, [MAP, "server-a"]);
}
