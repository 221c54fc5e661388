//! What the fair queue promises, for any arrivals; and simulations of a server with some slots
//! behind it, from a seed.

use leeward_env::{Class, Flow};
use leeward_gate::{FairQueue, Line, Share, Turn};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn line(uid: u32) -> Line {
    Line { flow: Flow { uid, job: 0 }, class: Class::Interactive }
}

fn job_line(uid: u32, job: u32) -> Line {
    Line { flow: Flow { uid, job }, class: Class::Interactive }
}

/// A client of the simulated server: so many requests at a time, each of such a cost, one after the
/// other until the end.
#[derive(Clone, Debug)]
struct Client {
    line: Line,
    share: Share,
    /// Bytes of each request.
    bytes: u64,
    /// Requests that it has out at a time.
    depth: usize,
    costs: Vec<u64>,
    /// Pause after an answer before the next request.
    think: u64,
}

impl Client {
    fn new(uid: u32, depth: usize, cost: u64) -> Client {
        Client { line: line(uid), share: Share::USUAL, bytes: 0, depth, costs: vec![cost], think: 0 }
    }
}

/// What a client got, and how long it waited for a turn.
#[derive(Clone, Debug, Default)]
struct Got {
    served: u64,
    turns: u64,
    longest_wait: u64,
    /// When turns began.
    begun: Vec<u64>,
}

/// Events by time, then by number.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Event {
    Ends(usize),
    Asks(usize),
    /// A ceiling lets somebody go on.
    Wakes,
}

/// Runs the clients against a server with so many slots until `end`.
fn simulate(clients: &[Client], slots: usize, end: u64) -> Vec<Got> {
    let mut queue: FairQueue<(usize, u64)> = FairQueue::default();
    let mut got = vec![Got::default(); clients.len()];
    let mut events: BTreeMap<(u64, u64), Event> = BTreeMap::new();
    let mut number = 0;
    let mut at = |events: &mut BTreeMap<(u64, u64), Event>, time: u64, event| {
        events.insert((time, number), event);
        number += 1;
    };
    for (c, client) in clients.iter().enumerate() {
        (0..client.depth).for_each(|_| at(&mut events, 0, Event::Asks(c)));
    }
    let mut turns: BTreeMap<usize, (Turn, usize, u64)> = BTreeMap::new();
    let mut begun = 0usize;
    while let Some(((now, _), event)) = events.pop_first() {
        if now >= end {
            break;
        }
        match event {
            Event::Asks(c) => queue.push(clients[c].line, clients[c].share, (c, now)),
            Event::Wakes => (),
            Event::Ends(turn) => {
                let (turn, c, cost) = turns.remove(&turn).expect("it runs");
                queue.done(turn, cost);
                at(&mut events, now + clients[c].think, Event::Asks(c));
            }
        }
        let next_is_now = events.first_key_value().is_some_and(|((t, _), _)| *t == now);
        queue.advance(now);
        while !next_is_now && queue.running() < slots {
            let Some((turn, (c, asked))) = queue.pop() else {
                for (line, _) in queue.backlog().collect::<Vec<_>>() {
                    let share = clients.iter().find(|c| c.line == line).expect("a client").share;
                    assert!(queue.is_held(line, share), "work of {line:?} waits and none is given");
                }
                if let Some(until) = queue.held_until() {
                    assert!(until > now, "who may go on does");
                    at(&mut events, until, Event::Wakes);
                }
                break;
            };
            queue.spend(turn.line, clients[c].bytes);
            got[c].begun.push(now);
            let cost = clients[c].costs[got[c].turns as usize % clients[c].costs.len()];
            got[c].turns += 1;
            got[c].served += cost;
            got[c].longest_wait = got[c].longest_wait.max(now - asked);
            turns.insert(begun, (turn, c, cost));
            at(&mut events, now + cost, Event::Ends(begun));
            begun += 1;
        }
    }
    let lines: usize = clients.len();
    assert!(queue.lines() <= lines, "{} lines of {lines} clients", queue.lines());
    got
}

fn share(got: &[Got], n: usize) -> f64 {
    got[n].served as f64 / got.iter().map(|g| g.served).sum::<u64>() as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Between lines that always have work waiting, what they got differs by at most what one turn
    /// of each costs, times the turns that run at once, whatever the costs and weights.
    #[test]
    fn backlogged_lines_share_by_weight(
        clients in proptest::collection::vec((1usize..20, 1u32..1000, proptest::collection::vec(1_000u64..10_000_000, 1..5)), 2..8),
        slots in 1usize..4,
    ) {
        let clients: Vec<Client> = clients.into_iter().enumerate().map(|(n, (depth, weight, costs))| Client {
            // more than the slots, so that something of each always waits
            share: weight.into(), depth: depth + slots, costs, ..Client::new(n as u32, 1, 1)
        }).collect();
        let got = simulate(&clients, slots, 10_000_000_000);
        for (a, g) in clients.iter().zip(&got) {
            for (b, h) in clients.iter().zip(&got) {
                let part = |c: &Client, g: &Got| g.served as f64 / f64::from(c.share.weight);
                // a turn is charged with what turns cost before it: the most expensive one may be a
                // surprise
                let turn = |c: &Client| *c.costs.iter().max().expect("one") as f64 / f64::from(c.share.weight);
                let most = (slots as f64 + 1.0) * (turn(a) + turn(b));
                prop_assert!(part(a, g) - part(b, h) <= most, "{a:?} got {g:?}, {b:?} got {h:?}: more than {most} apart");
            }
        }
    }

    /// Everything that comes in goes out, in the order of its line, and nothing is remembered
    /// afterwards.
    #[test]
    fn nothing_is_lost(pushes in proptest::collection::vec((0u32..50, 1u32..500, 1u64..1_000_000, any::<bool>()), 0..300)) {
        let mut queue = FairQueue::default();
        let (mut expected, mut got) = (BTreeMap::<u32, Vec<usize>>::new(), BTreeMap::<u32, Vec<usize>>::new());
        let mut serve = |queue: &mut FairQueue<usize>, cost| {
            let Some((turn, item)) = queue.pop() else { return false };
            got.entry(turn.line.flow.uid).or_default().push(item);
            queue.done(turn, cost);
            true
        };
        for (n, (uid, weight, cost, now)) in pushes.iter().enumerate() {
            queue.push(line(*uid), *weight, n);
            expected.entry(*uid).or_default().push(n);
            if *now {
                prop_assert!(serve(&mut queue, *cost), "something waits");
            }
        }
        while serve(&mut queue, 5) {}
        prop_assert_eq!(expected, got);
        prop_assert_eq!((queue.len(), queue.running(), queue.lines()), (0, 0, 0));
    }
}

proptest! {
    // each runs a server for simulated seconds
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However many jobs a user has, users share by weight, and the jobs of each share equally what
    /// he gets.
    #[test]
    fn users_share_first_and_then_their_jobs(
        users in proptest::collection::vec((1usize..12, 1u32..1000, 1_000u64..1_000_000), 2..5),
        slots in 1usize..3,
    ) {
        let mut clients = Vec::new();
        for (uid, (jobs, weight, cost)) in users.iter().enumerate() {
            clients.extend((0..*jobs).map(|job| Client {
                line: job_line(uid as u32, job as u32), share: (*weight).into(), depth: 1 + slots, ..Client::new(0, 1, *cost)
            }));
        }
        let got = simulate(&clients, slots, 5_000_000_000);
        let of = |uid: usize| clients.iter().zip(&got).filter(move |(c, _)| c.line.flow.uid == uid as u32).map(|(_, g)| g.served);
        let turns = (slots + 1) as f64;
        for (a, (_, weight_a, cost_a)) in users.iter().enumerate() {
            let (least, most) = (of(a).min().expect("a job"), of(a).max().expect("a job"));
            prop_assert!((most - least) as f64 <= turns * 2.0 * *cost_a as f64, "jobs of {a}: {least} to {most}");
            for (b, (_, weight_b, cost_b)) in users.iter().enumerate() {
                let part = |uid: usize, weight: u32| of(uid).sum::<u64>() as f64 / f64::from(weight);
                let bound = turns * (*cost_a as f64 / f64::from(*weight_a) + *cost_b as f64 / f64::from(*weight_b));
                prop_assert!(part(a, *weight_a) - part(b, *weight_b) <= bound, "{a} and {b} of {users:?}: {got:?}");
            }
        }
    }

    /// In no window does a user begin more than his ceiling allows in it, one second's worth and,
    /// of bytes, one operation more. Who is below his ceiling is served whenever there is a slot
    /// (`simulate` checks that).
    #[test]
    fn ceilings_hold_in_every_window(
        users in proptest::collection::vec((1usize..6, 0u64..2_000, 0u64..50_000_000, 0u64..1_000_000, 0u64..2_000_000_000), 1..5),
        slots in 1usize..3,
    ) {
        let clients: Vec<Client> = users.into_iter().enumerate().map(|(n, (depth, ops, of_bytes, bytes, think))| Client {
            share: Share { ops_per_sec: ops, bytes_per_sec: of_bytes, ..Share::USUAL }, bytes, think,
            ..Client::new(n as u32, depth, 300_000)
        }).collect();
        let got = simulate(&clients, slots, 6_000_000_000);
        for (c, g) in clients.iter().zip(&got) {
            for (first, from) in g.begun.iter().enumerate().step_by(1 + g.begun.len() / 300) {
                for (last, to) in g.begun.iter().enumerate().skip(first) {
                    let (count, secs) = ((last - first + 1) as u64, (to - from) as f64 / 1e9);
                    let allowed = |rate: u64| rate as f64 * (secs + 1.0) + 1e-6;
                    prop_assert!(c.share.ops_per_sec == 0 || count as f64 <= allowed(c.share.ops_per_sec), "{c:?}: {count} in {secs} s");
                    let bytes = ((count - 1) * c.bytes) as f64;
                    prop_assert!(c.share.bytes_per_sec == 0 || bytes <= allowed(c.share.bytes_per_sec), "{c:?}: {bytes} in {secs} s");
                }
            }
        }
    }
}

/// Ten thousand requests of 10 us at a time against one of 50 ms: each its half, and the small ones
/// wait for one big one at most.
#[test]
fn a_flow_of_tiny_requests_and_one_of_huge_ones() {
    let clients = [Client::new(1, 10_000, 10_000), Client::new(2, 2, 50_000_000)];
    let got = simulate(&clients, 1, 20_000_000_000);
    assert!((0.49..0.51).contains(&share(&got, 0)), "{got:?}");
}

#[test]
fn one_request_at_a_time_against_a_hundred() {
    // a little think time: it is never backlogged, and still gets nearly what it could get alone
    // beside another
    let clients = [Client { think: 1_000, ..Client::new(1, 1, 20_000) }, Client::new(2, 100, 20_000)];
    let got = simulate(&clients, 1, 10_000_000_000);
    assert!(share(&got, 0) > 0.45, "{got:?}");
    // its wait is at most the turn that runs when it comes
    assert!(got[0].longest_wait <= 40_000, "{got:?}");
}

#[test]
fn ten_thousand_flows_and_one_storm() {
    let mut clients: Vec<Client> =
        (0..10_000).map(|uid| Client { think: 500_000_000, ..Client::new(uid, 1, 20_000) }).collect();
    clients.push(Client::new(77_777, 1_000, 20_000));
    let got = simulate(&clients, 2, 5_000_000_000);
    // they come all at once at first; after that each waits for little
    let worst = got[..10_000].iter().map(|g| g.longest_wait).max().expect("many");
    assert!(worst <= 10_000 * 20_000, "{worst} ns");
    assert!(got[..10_000].iter().all(|g| g.turns >= 8), "somebody starved");
    assert!(share(&got, 10_000) > 0.3, "the storm gets what is left: {}", share(&got, 10_000));
}

#[test]
fn classes_are_weights_not_priorities() {
    let of = |uid, class| Client { line: Line { class, ..line(uid) }, ..Client::new(uid, 8, 30_000) };
    let clients = [of(1, Class::Interactive), of(2, Class::Batch), of(3, Class::Background)];
    let got = simulate(&clients, 2, 10_000_000_000);
    let parts: Vec<f64> = (0..3).map(|n| share(&got, n) * 21.0).collect();
    for (part, weight) in parts.iter().zip([16.0, 4.0, 1.0]) {
        assert!((part / weight - 1.0f64).abs() < 0.05, "{parts:?}");
    }
}

/// Who was quiet is served first, but has saved nothing up.
#[test]
fn a_quiet_line_comes_first_once() {
    let mut queue = FairQueue::default();
    for n in 0..20 {
        queue.push(line(1), Line::USUAL, n);
    }
    for _ in 0..10 {
        let (turn, _) = queue.pop().expect("work");
        queue.done(turn, 1_000_000);
    }
    (100..110).for_each(|n| queue.push(line(2), Line::USUAL, n));
    let order: Vec<u32> = std::iter::from_fn(|| {
        let (turn, _) = queue.pop()?;
        let uid = turn.line.flow.uid;
        queue.done(turn, 1_000_000);
        Some(uid)
    })
    .take(6)
    .collect();
    assert_eq!(order[0], 2, "{order:?}");
    assert_eq!(order.iter().filter(|uid| **uid == 2).count(), 3, "{order:?}");
}

/// Turns that pass an open gate are charged as well.
#[test]
fn who_passed_the_open_gate_has_used_something() {
    let mut queue = FairQueue::default();
    let hold = queue.pass(line(9), Line::USUAL);
    for _ in 0..5 {
        let turn = queue.pass(line(1), Line::USUAL);
        queue.done(turn, 1_000_000);
    }
    queue.push(line(1), Line::USUAL, 1);
    queue.push(line(2), Line::USUAL, 2);
    assert_eq!(queue.pop().map(|(turn, _)| turn.line.flow.uid), Some(2));
    queue.done(hold, 1);
}

#[test]
fn the_longest_line_can_be_held_back() {
    let mut queue = FairQueue::default();
    (0..4).for_each(|n| queue.push(line(1), Line::USUAL, n));
    queue.push(line(2), Line::USUAL, 9);
    let mut order = Vec::new();
    let mut turns = Vec::new();
    while let Some((turn, item)) = queue.pop_if(|_, running| running < 2) {
        order.push(item);
        turns.push(turn);
    }
    assert_eq!(order, [0, 9, 1], "two of the first line run, two wait");
    assert_eq!(queue.running_of(line(1)), 2);
    queue.done(turns.remove(0), 10);
    assert!(queue.pop_if(|_, running| running < 2).is_some());
}

#[test]
fn weights_are_parts() {
    let clients = [Client::new(1, 4, 50_000), Client { share: 300.into(), ..Client::new(2, 4, 50_000) }];
    let got = simulate(&clients, 1, 10_000_000_000);
    assert!((0.749..0.751).contains(&share(&got, 1)), "{}", share(&got, 1));
}

#[test]
fn ten_jobs_are_one_user() {
    let mut clients: Vec<Client> =
        (0..10).map(|job| Client { line: job_line(1, job), ..Client::new(1, 3, 50_000) }).collect();
    clients.push(Client::new(2, 3, 50_000));
    let got = simulate(&clients, 1, 10_000_000_000);
    assert!((0.499..0.501).contains(&share(&got, 10)), "{}", share(&got, 10));
    assert!((0..10).all(|n| (0.0499..0.0501).contains(&share(&got, n))), "{got:?}");
}

/// A new job is quiet and so comes first, but only among the jobs of its user.
#[test]
fn a_new_job_for_each_request_gains_nothing() {
    let mut queue = FairQueue::default();
    let mut got = [0i32; 2];
    queue.push(job_line(1, 0), Line::USUAL, 0);
    queue.push(line(2), Line::USUAL, 1);
    for job in 1..1000 {
        let (turn, who) = queue.pop().expect("both wait");
        got[who] += 1;
        let again = if who == 0 { job_line(1, job) } else { line(2) };
        queue.push(again, Line::USUAL, who);
        queue.done(turn, 50_000);
        assert!(queue.lines() <= 70, "{} lines are remembered", queue.lines());
    }
    assert!((got[0] - got[1]).abs() <= 2, "{got:?}");
}

/// A user with a sparse job beside a busy one: the sparse one waits for one turn at most.
#[test]
fn a_quiet_job_comes_first_in_its_user() {
    let clients = [
        Client { line: job_line(1, 1), think: 1_000, ..Client::new(1, 1, 20_000) },
        Client { line: job_line(1, 2), ..Client::new(1, 100, 20_000) },
    ];
    let got = simulate(&clients, 1, 1_000_000_000);
    assert!(got[0].longest_wait <= 40_000 && share(&got, 0) > 0.45, "{got:?}");
}

/// What somebody had while nobody else wanted it is not held against him.
#[test]
fn an_hour_at_the_open_gate_is_forgotten() {
    let mut queue: FairQueue<u32> = FairQueue::default();
    let mut hold = queue.pass(line(1), Line::USUAL);
    for _ in 0..3600 {
        // always another one runs: there is no idle moment
        let next = queue.pass(line(1), Line::USUAL);
        queue.done(std::mem::replace(&mut hold, next), 1_000_000_000);
    }
    for n in 0..20 {
        queue.push(line(1), Line::USUAL, n);
        queue.push(line(2), Line::USUAL, n);
    }
    let order = |queue: &mut FairQueue<u32>| {
        let (turn, _) = queue.pop().expect("work");
        let uid = turn.line.flow.uid;
        queue.done(turn, 1_000_000_000);
        uid
    };
    let got: Vec<u32> = (0..10).map(|_| order(&mut queue)).collect();
    assert!((4..=6).contains(&got.iter().filter(|uid| **uid == 1).count()), "{got:?}");
    queue.done(hold, 1);
}

#[test]
fn who_is_held_back_delays_nobody_and_saves_nothing_up() {
    let one_op = Share { ops_per_sec: 1, ..Share::USUAL };
    let mut queue = FairQueue::default();
    for n in 0..4 {
        queue.push(line(1), one_op, n);
        queue.push(line(2), Line::USUAL, 10 + n);
    }
    let pop = |queue: &mut FairQueue<u32>| {
        let (turn, item) = queue.pop()?;
        queue.spend(turn.line, 0);
        queue.done(turn, 1_000_000);
        Some(item)
    };
    let order: Vec<u32> = std::iter::from_fn(|| pop(&mut queue)).collect();
    assert_eq!(order, [0, 10, 11, 12, 13]);
    assert_eq!((queue.len(), queue.has_ready(), queue.held_until()), (3, false, Some(1_000_000_000)));
    (20..24).for_each(|n| queue.push(line(2), Line::USUAL, n));
    queue.advance(1_000_000_000);
    let order: Vec<u32> = std::iter::from_fn(|| pop(&mut queue)).collect();
    assert_eq!(order.len(), 5, "one of the first, four of the second: {order:?}");
    // another ceiling counts at once
    queue.set_shares(|_| Share::USUAL);
    assert_eq!(std::iter::from_fn(|| pop(&mut queue)).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((queue.len(), queue.lines(), queue.held_until()), (0, 0, None));
}
