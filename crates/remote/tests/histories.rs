//! What several clients, and somebody on the server's machine, are answered at the same time is
//! what one file system would have answered one after the other: over networks that cut and delay,
//! with servers that end and crash. Histories are made from a seed and judged (`rig/judge.rs`).
//!
//! `HISTORIES_SEED` and `HISTORIES` say with which one to begin and how many there are.

use crate::rig;
use crate::rig::judge::{Asked, Event, MODE, Node, Place, Said, Shown, State};
use crate::rig::judge::{judge, with_attributes_apart, without_unanswered};
use crate::rig::proxy::{Fate, Proxy, WHOLE};
use crate::rig::{Dead, Random, Rig, client_at_last, user};
use leeward_env::Env;
use leeward_fs::{Attr, Error, Make, NodeId, Op, Precondition, RenameMode, Reply, Result, SetAttr};
use leeward_remote::{Client, Grant};
use leeward_vfs::{Backend, Gate};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROOT: NodeId = NodeId::ROOT;
const DIRS: usize = 2;
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];
const CLIENTS: usize = 3;
/// Users of each client: each has a line of its own at the server.
const USERS: usize = 2;
/// Operations of each in a round. After a round all have been answered.
const OPS: usize = 6;
const ROUNDS: usize = 4;

fn any_place(random: &mut Random) -> Place {
    (random.below(DIRS), random.below(NAMES.len()))
}

/// Who asks.
#[derive(Clone)]
enum Way {
    Client(Client),
    /// A door on the server's machine.
    Here(Gate),
}

impl Way {
    fn call(&self, uid: u32, op: Op<'_>) -> Result<Reply> {
        match self {
            Way::Client(client) => client.call(&user(uid), op),
            Way::Here(gate) => gate.call(&user(uid), op),
        }
    }
}

/// One who asks, of one history.
struct Actor {
    who: usize,
    way: Way,
    uid: u32,
    dirs: [NodeId; DIRS],
    random: Random,
    /// The inodes that it was told of, which it has references to.
    known: Vec<NodeId>,
}

fn shown(attr: &Attr) -> Said {
    let shown = Shown { is_empty: attr.size == 0, mode: attr.mode & 0o7777, links: attr.nlink };
    Said::Attr(attr.node.0, shown)
}

impl Actor {
    fn choose(&mut self, number: u64) -> Asked {
        let known = self.known.get(self.random.below(self.known.len().max(1))).map(|node| node.0);
        let place = any_place(&mut self.random);
        match (self.random.below(16), known) {
            (0..3, _) => Asked::Make(place),
            (3, _) => Asked::Unlink(place),
            (4..6, _) => Asked::Rename {
                from: place,
                to: any_place(&mut self.random),
                replace: self.random.below(3) > 0,
            },
            (6, _) => Asked::List(place.0),
            (7, Some(node)) => Asked::Link { node, at: place },
            (8..10, Some(node)) => Asked::Write { node, content: number },
            (10..12, Some(node)) => Asked::Read(node),
            (12, Some(node)) => Asked::Chmod { node, mode: MODE + self.random.below(2) as u32 },
            (13, Some(node)) => Asked::Look(node),
            _ => Asked::Lookup(place),
        }
    }

    fn ask(&mut self, asked: &Asked) -> Said {
        let at = |(dir, name): Place| (self.dirs[dir], NAMES[name]);
        let result = match *asked {
            Asked::Make(place) => {
                let (dir, name) = at(place);
                self.call(Op::Make { dir, name, make: Make::File, mode: MODE, umask: 0 })
            }
            Asked::Lookup(place) => {
                let (dir, name) = at(place);
                self.call(Op::Lookup { dir, name })
            }
            Asked::Unlink(place) => {
                let (dir, name) = at(place);
                self.call(Op::Unlink { dir, name, over: Precondition::Any })
            }
            Asked::Rename { from, to, replace } => {
                let ((from_dir, from_name), (to_dir, to_name)) = (at(from), at(to));
                let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
                self.call(Op::Rename { from_dir, from_name, to_dir, to_name, mode })
            }
            Asked::Link { node, at: place } => {
                let (dir, name) = at(place);
                self.call(Op::Link { node: NodeId(node), dir, name })
            }
            Asked::Write { node, content } => {
                self.call(Op::Write { node: NodeId(node), offset: 0, data: &content.to_le_bytes() })
            }
            Asked::Read(node) => self.call(Op::Read { node: NodeId(node), offset: 0, len: 100 }),
            Asked::Chmod { node, mode } => {
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                self.call(Op::SetAttr { node: NodeId(node), set })
            }
            Asked::Look(node) => self.call(Op::GetAttr { node: NodeId(node) }),
            Asked::List(dir) => {
                let attrs = self.random.0.is_multiple_of(2);
                self.call(Op::List { dir: self.dirs[dir], after: b"", limit: 100, attrs })
            }
        };
        let gives_reference = matches!(asked, Asked::Make(_) | Asked::Lookup(_) | Asked::Link { .. });
        self.said(result, gives_reference)
    }

    fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.way.call(self.uid, op)
    }

    fn said(&mut self, result: Result<Reply>, gives_reference: bool) -> Said {
        match result {
            Ok(Reply::Attr(attr)) => {
                if gives_reference {
                    self.known.push(attr.node);
                }
                shown(&attr)
            }
            Ok(Reply::Removed { node, nlink }) => Said::Removed(node.0, nlink),
            Ok(Reply::Data(data)) => match data[..].try_into() {
                Ok(content) => Said::Content(u64::from_le_bytes(content)),
                Err(_) => {
                    assert!(data.is_empty(), "part of a write: {data:?}");
                    Said::Content(0)
                }
            },
            Ok(Reply::Entries(entries)) => {
                let number = |name: &[u8]| NAMES.iter().position(|known| *known == name);
                let named = entries.iter().filter_map(|entry| Some((number(&entry.name)?, entry.node.0)));
                Said::Names(named.collect())
            }
            Ok(Reply::Done | Reply::Written(8)) => Said::Done,
            Err(Error::NotFound) => Said::NotFound,
            Err(Error::Exists) => Said::Exists,
            Err(Error::Io(why)) if why.contains("is not known") => Said::Unknown,
            other => Said::Wrong(format!("{other:?}")),
        }
    }

    /// A round's operations.
    fn round(&mut self, env: &Env, numbers: &AtomicU64) -> Vec<Event> {
        let one = |actor: &mut Actor| {
            let asked = actor.choose(numbers.fetch_add(1, Ordering::Relaxed) + 1);
            let asked_at = env.now();
            let said = actor.ask(&asked);
            // what is not known may still be done later
            let answered_at = if said == Said::Unknown { u64::MAX } else { env.now() };
            Event { who: actor.who, asked_at, answered_at, asked, said }
        };
        (0..OPS).map(|_| one(self)).collect()
    }

    /// Of a context that has references.
    fn forget_all(&self) {
        let Way::Client(client) = &self.way else { return };
        let all: Vec<_> = self.known.iter().map(|node| (*node, 1)).collect();
        client.forget_all(user(self.uid), &all);
    }
}

/// The networks of the clients, and how they get there.
struct Machines {
    proxies: Vec<Proxy>,
    clients: Vec<Client>,
}

impl Machines {
    fn new(
        rig: &Rig,
        plan: impl Fn(usize, usize) -> (Fate, Fate) + Clone + Send + Sync + 'static,
    ) -> Machines {
        let proxy = |client: usize| {
            let plan = plan.clone();
            Proxy::start(&rig.env, rig.at, move |connection| plan(client, connection))
        };
        let proxies: Vec<Proxy> = (0..CLIENTS).map(proxy).collect();
        let clients = proxies.iter().enumerate().map(|(number, proxy)| {
            let seed = 100 + number as u8;
            rig.know(seed, &format!("machine{number}"), Grant::default());
            client_at_last(&rig.env, proxy.at, seed)
        });
        let clients = clients.collect();
        Machines { proxies, clients }
    }

    /// The server dies, and another one starts with what is on its disk then; when that was.
    fn die(&self, rig: &mut Rig) -> (Dead, u64) {
        // nothing is heard of what comes after that
        self.proxies.iter().for_each(|proxy| proxy.hold(true));
        let (env, mut died_at) = (rig.env.clone(), 0);
        let dead = rig.die(|at| {
            died_at = env.now();
            // who comes again finds the other one
            self.proxies.iter().for_each(|proxy| proxy.lead_to(at));
            for proxy in &self.proxies {
                proxy.cut();
                proxy.hold(false);
            }
        });
        (dead, died_at)
    }

    fn close(self) {
        self.clients.iter().for_each(Client::close);
    }
}

/// Makes a history in a directory of its own and judges it. `meanwhile` runs in each round beside,
/// and may end the server; it says when the server has crashed.
fn history(
    (env, gate, clients): (&Env, &Gate, &[Client]),
    seed: u64,
    mut meanwhile: Option<impl FnMut(usize) -> Option<u64>>,
) -> usize {
    let name = format!("history {seed}");
    let make = |dir, name: &[u8]| {
        let op = Op::Make { dir, name, make: Make::Dir, mode: 0o777, umask: 0 };
        clients[0].call(&user(0), op).and_then(Reply::attr).expect("made").node
    };
    let top = make(ROOT, name.as_bytes());
    let dirs = [make(top, b"0"), make(top, b"1")];
    // who names an inode has been told of it
    for client in &clients[1..] {
        for (dir, name) in [(ROOT, name.as_bytes()), (top, b"0"), (top, b"1")] {
            rig::lookup(client, dir, name).expect("made");
        }
    }
    let mut random = Random(seed);
    let mut ways: Vec<(Way, u32)> = clients
        .iter()
        .flat_map(|client| (0..USERS).map(|user| (Way::Client(client.clone()), 1000 + user as u32)))
        .collect();
    if seed.is_multiple_of(3) {
        ways.push((Way::Here(gate.clone()), 1000));
    }
    // in some histories most are quiet, so that those left have things for themselves
    ways.truncate(ways.len() - random.below(ways.len() - 1));
    let mut actors: Vec<Actor> = ways
        .into_iter()
        .enumerate()
        .map(|(who, (way, uid))| {
            let random = Random(seed.wrapping_mul(31) + who as u64);
            Actor { who, way, uid, dirs, random, known: Vec::new() }
        })
        .collect();
    let numbers = AtomicU64::new(0);
    let (mut states, mut count) = (BTreeSet::from([State::default()]), 0);
    let mut made = BTreeSet::new();
    for round in 0..ROUNDS {
        let mut crashed_at = None;
        let mut events: Vec<Event> = std::thread::scope(|scope| {
            let rounds: Vec<_> =
                actors.iter_mut().map(|actor| scope.spawn(|| actor.round(env, &numbers))).collect();
            crashed_at = meanwhile.as_mut().and_then(|meanwhile| meanwhile(round));
            rounds.into_iter().flat_map(|round| round.join().expect("no panic")).collect()
        });
        count += events.len();
        if meanwhile.is_some() {
            made.extend(events.iter().filter_map(Event::made));
            events = without_unanswered(with_attributes_apart(&events), crashed_at, &made);
        }
        let after = judge(&states, &events);
        if after.is_empty() {
            events.sort_by_key(|event| event.asked_at);
            let text: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            panic!("seed {seed}, round {round}: no order explains\n{}\nafter {states:?}", text.join("\n"));
        }
        states = after;
    }
    actors.iter().for_each(Actor::forget_all);
    count
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Histories of the seeds from the usual one on, over these networks.
fn histories(count: u64, plan: impl Fn(usize, usize) -> (Fate, Fate) + Clone + Send + Sync + 'static) {
    let rig = Rig::new();
    let machines = Machines::new(&rig, plan);
    let (first, count) = (number("HISTORIES_SEED", std::process::id().into()), number("HISTORIES", count));
    let mut events = 0;
    for seed in first..first + count {
        events += history((&rig.env, &rig.gate, &machines.clients), seed, None::<fn(usize) -> Option<u64>>);
    }
    let connections: usize = machines.proxies.iter().map(Proxy::connections).sum();
    println!("{count} histories from seed {first}: {events} operations, {connections} connections");
    machines.close();
}

#[test]
fn at_the_same_time_all_see_one_file_system() {
    histories(600, |_, _| (WHOLE, WHOLE));
}

#[test]
fn all_see_one_file_system_over_networks_that_cut_and_delay() {
    histories(360, |client, connection| {
        let mut random = Random((client as u64) << 32 | connection as u64);
        let mut fate = || {
            let bytes = 3000 + random.below(60_000);
            let delay = Duration::from_micros([0, 0, 300, 3000][random.below(4)]);
            Fate { bytes, cut: true, delay }
        };
        if client == 0 { (WHOLE, WHOLE) } else { (fate(), fate()) }
    });
}

#[test]
fn all_see_one_file_system_while_its_server_ends_and_crashes() {
    let mut rig = Rig::new();
    let machines = Machines::new(&rig, |_, _| (WHOLE, WHOLE));
    let (first, count) = (number("HISTORIES_SEED", std::process::id().into()), number("HISTORIES", 40));
    let (mut events, mut dead) = (0, Vec::new());
    for seed in first..first + count {
        let (env, gate) = (rig.env.clone(), rig.gate.clone());
        // nobody else is at the server's machine when it has ended
        let seed = seed * 3 + 1;
        let mut random = Random(seed);
        let ends = |round| {
            env.sleep(Duration::from_micros(random.below(3000) as u64));
            match (seed + round as u64) % 4 {
                0 => rig.restart(true),
                1 => {
                    let (died, at) = machines.die(&mut rig);
                    dead.push(died);
                    return Some(at);
                }
                _ => (),
            }
            None
        };
        events += history((&env, &gate, &machines.clients), seed, Some(ends));
    }
    println!("{count} histories from seed {first}: {events} operations, {} crashes", dead.len());
    machines.close();
    // each waits for clients that it does not hear any more
    std::thread::scope(|scope| dead.into_iter().for_each(|dead| _ = scope.spawn(|| drop(dead))));
}

/// What the judge is to see.
mod judged {
    use super::*;

    fn event(asked_at: u64, answered_at: u64, asked: Asked, said: Said) -> Event {
        Event { who: 0, asked_at, answered_at, asked, said }
    }

    const A: Place = (0, 0);
    const FILE: Node = 7;

    fn attr(links: u32) -> Said {
        Said::Attr(FILE, Shown { is_empty: true, mode: MODE, links })
    }

    fn is_explained(events: &[Event]) -> bool {
        !judge(&BTreeSet::from([State::default()]), events).is_empty()
    }

    #[test]
    fn what_is_at_the_same_time_may_be_in_any_order() {
        let make = event(1, 5, Asked::Make(A), attr(1));
        for said in [attr(1), Said::NotFound] {
            assert!(is_explained(&[make.clone(), event(2, 4, Asked::Lookup(A), said)]));
        }
        let (one, other) = (event(1, 5, Asked::Make(A), attr(1)), event(1, 5, Asked::Make(A), Said::Exists));
        assert!(is_explained(&[one.clone(), other]));
        let other = Said::Attr(8, Shown { is_empty: true, mode: MODE, links: 1 });
        assert!(!is_explained(&[one, event(1, 5, Asked::Make(A), other)]), "both have made it");
    }

    #[test]
    fn old_content_and_what_was_lost_are_seen() {
        let make = event(1, 2, Asked::Make(A), attr(1));
        let write = |at, content| event(at, at + 1, Asked::Write { node: FILE, content }, Said::Done);
        let read = |at, content| event(at, at + 1, Asked::Read(FILE), Said::Content(content));
        assert!(is_explained(&[make.clone(), write(3, 1), write(5, 2), read(7, 2)]));
        assert!(!is_explained(&[make.clone(), write(3, 1), write(5, 2), read(7, 1)]));
        assert!(!is_explained(&[make.clone(), event(3, 4, Asked::Lookup(A), Said::NotFound)]));
        let names = |names: &[(usize, Node)]| Said::Names(BTreeMap::from_iter(names.iter().copied()));
        assert!(!is_explained(&[make.clone(), event(3, 4, Asked::List(0), names(&[]))]));
        assert!(is_explained(&[make, event(3, 4, Asked::List(0), names(&[(0, FILE)]))]));
    }

    #[test]
    fn attributes_of_what_was_answered_again_may_be_newer() {
        let made = Said::Attr(FILE, Shown { is_empty: false, mode: MODE, links: 1 });
        let make = |answered_at| event(1, answered_at, Asked::Make(A), made.clone());
        let write = event(3, 4, Asked::Write { node: FILE, content: 1 }, Said::Done);
        assert!(!is_explained(&[make(9), write.clone()]));
        assert!(is_explained(&with_attributes_apart(&[make(9), write.clone()])));
        assert!(!is_explained(&with_attributes_apart(&[make(2), write])), "but not from later");
    }

    #[test]
    fn what_is_not_known_was_done_or_was_not() {
        let make = event(1, 2, Asked::Make(A), attr(1));
        let unlink = event(3, u64::MAX, Asked::Unlink(A), Said::Unknown);
        for said in [attr(1), Said::NotFound] {
            assert!(is_explained(&[make.clone(), unlink.clone(), event(5, 6, Asked::Lookup(A), said)]));
        }
    }
}
