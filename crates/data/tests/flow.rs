//! Sealing, budgets, failing stores, threads, simulation.
#![allow(clippy::disallowed_methods, clippy::single_range_in_vec_init)]

use crate::support::*;
use leeward_data::{Addr, Error, Options};
use leeward_env::{Ctx, Wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn threaded() -> Options {
    Options { put_threads: 2, ..options() }
}

fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An append that gets no segment leaves nothing of the writer's share taken.
#[test]
fn appends_that_fail_cost_no_memory() {
    let rig = Rig::new(options());
    rig.catalog.broken.store(true, Ordering::Relaxed);
    for n in 0..100 {
        assert!(rig.log.append(&ctx(1), 0, owner(1, 0), &[1; 100_000]).is_err(), "append {n}");
    }
    assert_eq!(rig.log.dirty_bytes(), 0);
    rig.catalog.broken.store(false, Ordering::Relaxed);
    rig.log.write(&ctx(1).with_wait(Wait::Never), owner(1, 0), &[1; 100_000]).unwrap();
    assert_eq!(rig.log.dirty_bytes(), 100_000);
}

#[test]
fn memory_then_store() {
    let rig = Rig::new(options());
    let bytes = Random(1).noise(10_000);
    let addr = rig.log.write(&ctx(1), owner(1, 0), &bytes).unwrap();
    let never = ctx(1).with_wait(Wait::Never);
    let mut buf = vec![0; 10_000];
    assert!(rig.log.peek(addr, &mut buf) && buf == bytes);
    assert!(!rig.log.peek(addr, &mut vec![0; 10_001]));
    assert!(!rig.log.is_durable(addr.segment));
    rig.log.read(&never, addr, &mut buf).unwrap();
    assert!(matches!(rig.log.wait_durable(&never, addr.segment), Err(Error::WouldBlock)));
    rig.log.wait_durable(&ctx(1), addr.segment).unwrap();
    assert!(rig.log.is_durable(addr.segment) && !rig.log.peek(addr, &mut buf));
    assert_eq!(rig.log.dirty_bytes(), 0);
    // not cached: would have to ask the store; cached after one read
    assert!(matches!(rig.log.read(&never, addr, &mut buf), Err(Error::WouldBlock)));
    rig.log.read(&ctx(1), addr, &mut buf).unwrap();
    assert!(buf == bytes);
    let gets = rig.store.gets.load(Ordering::Relaxed);
    rig.log.read(&never, addr, &mut buf).unwrap();
    assert_eq!(rig.store.gets.load(Ordering::Relaxed), gets);
    rig.log.wait_durable(&ctx(1), 12345).unwrap();
}

#[test]
fn dead_segments_need_no_object() {
    let rig = Rig::new(options());
    let addr = rig.log.write(&ctx(1), owner(1, 0), &[7; 5000]).unwrap();
    rig.log.dead(addr, 5000);
    rig.log.wait_durable(&ctx(1), addr.segment).unwrap();
    assert!(rig.store.objects.lock().unwrap().is_empty());
    let info = rig.catalog.sealed.lock().unwrap()[&addr.segment];
    assert_eq!((info.object_bytes, info.data_bytes), (0, 0));
    assert!(matches!(rig.log.read(&ctx(1), addr, &mut [0; 10]), Err(Error::Absent { .. })));
}

#[test]
fn flows_have_their_own_segments_and_age() {
    let rig = Rig::new(options());
    let a = rig.log.write(&ctx(1), owner(1, 0), &[1; 100]).unwrap();
    rig.env.advance(Duration::from_secs(2));
    let b = rig.log.write(&ctx(2), owner(2, 0), &[2; 100]).unwrap();
    assert_ne!(a.segment, b.segment);
    rig.log.seal_older(Duration::from_secs(1));
    assert!(rig.log.step() && !rig.log.step());
    assert!(rig.log.is_durable(a.segment) && !rig.log.is_durable(b.segment));
    let c = rig.log.write(&ctx(1), owner(1, 100), &[3; 100]).unwrap();
    assert_ne!(c.segment, a.segment);
    rig.log.seal(c.segment);
    rig.log.seal(c.segment);
    assert!(rig.log.step() && !rig.log.step());
}

#[test]
fn failures_are_told_and_data_kept() {
    let rig = Rig::new(options());
    let bytes = Random(2).text(300_000);
    let addr = rig.log.write(&ctx(1), owner(1, 0), &bytes).unwrap();
    rig.store.set(Puts::Full);
    let full = rig.log.wait_durable(&ctx(1), addr.segment);
    assert!(matches!(full, Err(Error::Store(leeward_pool::Error::Full))));
    rig.store.set(Puts::Fail);
    match rig.log.wait_durable(&ctx(1), addr.segment) {
        Err(Error::Store(leeward_pool::Error::Io(e))) => assert_eq!(e.raw_os_error(), Some(5)),
        other => panic!("{other:?}"),
    }
    assert!(rig.log.close().is_err());
    let mut buf = vec![0; bytes.len()];
    assert!(rig.log.peek(addr, &mut buf) && buf == bytes);
    rig.log.dead(Addr { offset: 100_000, ..addr }, 100_000);
    rig.store.set(Puts::Work);
    rig.log.close().unwrap();
    // pieces of it may be in the store: it was put as it was
    assert_eq!(rig.catalog.sealed.lock().unwrap()[&addr.segment].data_bytes, 300_000);
    let mut buf = vec![0; 100_000];
    rig.log.read(&ctx(1), addr, &mut buf).unwrap();
    assert!(buf == bytes[..100_000]);
}

#[test]
fn what_dies_while_the_disk_is_full_is_not_put() {
    let rig = Rig::new(options());
    let bytes = Random(2).text(300_000);
    let addr = rig.log.write(&ctx(1), owner(1, 0), &bytes).unwrap();
    rig.store.set(Puts::Full);
    assert!(rig.log.wait_durable(&ctx(1), addr.segment).is_err());
    rig.log.dead(Addr { offset: 100_000, ..addr }, 100_000);
    rig.store.set(Puts::Work);
    rig.log.close().unwrap();
    assert_eq!(rig.catalog.sealed.lock().unwrap()[&addr.segment].data_bytes, 200_000);
    let mut buf = vec![0; 100_000];
    rig.log.read(&ctx(1), addr, &mut buf).unwrap();
    assert!(buf == bytes[..100_000]);
}

#[test]
fn threads_retry_by_themselves_and_close_reports() {
    let rig = Rig::new(threaded());
    rig.store.set(Puts::Fail);
    let addr = rig.log.write(&ctx(1), owner(1, 0), &[9; 100_000]).unwrap();
    assert!(rig.log.wait_durable(&ctx(1), addr.segment).is_err());
    rig.store.set(Puts::Work);
    soon("the retry", || rig.log.is_durable(addr.segment));
    rig.store.set(Puts::Fail);
    let addr = rig.log.write(&ctx(1), owner(1, 0), &[8; 100_000]).unwrap();
    assert!(rig.log.close().is_err());
    rig.store.set(Puts::Work);
    // A put that had failed by then may be told yet.
    soon("the put", || rig.log.wait_durable(&ctx(1), addr.segment).is_ok());
    rig.log.close().unwrap();
}

/// A flow over its share waits while another goes on, and goes on itself when a put ends.
#[test]
fn greedy_flow_waits_alone() {
    let rig = Rig::new(Options { dirty_bytes: 6 << 20, ..threaded() });
    rig.store.set(Puts::Hang);
    let (log, greedy_done) = (rig.log.clone(), Arc::new(AtomicBool::new(false)));
    let done = greedy_done.clone();
    let greedy = std::thread::spawn(move || {
        for n in 0..32u64 {
            log.write(&ctx(1), owner(1, n << 18), &vec![n as u8; 1 << 18]).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    // not quite: what is noted of each append counts, too
    soon("the greedy flow fills its share", || rig.log.dirty_bytes() >= 11 << 18);
    std::thread::sleep(Duration::from_millis(50));
    assert!(rig.log.dirty_bytes() <= 3 << 20, "{}", rig.log.dirty_bytes());
    let never = ctx(1).with_wait(Wait::Never);
    assert!(matches!(rig.log.write(&never, owner(1, 0), &[0; 1 << 18]), Err(Error::WouldBlock)));
    for n in 0..16u64 {
        let calm = ctx(2).with_wait(Wait::Never);
        rig.log.write(&calm, owner(2, n << 12), &[n as u8; 4096]).unwrap();
    }
    assert!(!greedy_done.load(Ordering::Relaxed));
    rig.store.set(Puts::Work);
    greedy.join().unwrap();
    rig.log.close().unwrap();
    assert_eq!(rig.log.dirty_bytes(), 0);
}

/// Single bytes here and there hold far more memory than their bytes.
#[test]
fn small_appends_count_what_they_hold() {
    let rig = Rig::new(Options { dirty_bytes: 1 << 20, ..options() });
    let never = ctx(1).with_wait(Wait::Never);
    let taken = (0..100_000u64).take_while(|n| rig.log.write(&never, owner(1, n * 2), &[1]).is_ok()).count();
    assert!((1000..8000).contains(&taken), "{taken} bytes taken");
    assert_eq!(rig.log.dirty_bytes(), taken as u64);
    rig.log.close().unwrap();
    assert_eq!(rig.log.dirty_bytes(), 0);
}

/// A budget smaller than a segment: the waiting writer seals its own.
#[test]
fn small_budgets_make_progress() {
    for put_threads in [0, 1] {
        let rig = Rig::new(Options { dirty_bytes: 100_000, put_threads, ..options() });
        for n in 0..50u64 {
            rig.log.write(&ctx(1), owner(1, n * 40_000), &vec![n as u8; 40_000]).unwrap();
            assert!(rig.log.dirty_bytes() <= 100_000);
        }
        rig.log.close().unwrap();
    }
}

/// Who fills the store learns it from append, instead of hanging.
#[test]
fn full_store_fails_waiting_writers() {
    for put_threads in [0, 2] {
        let rig = Rig::new(Options { dirty_bytes: 1 << 20, put_threads, ..options() });
        rig.store.set(Puts::Full);
        let result = (0..100u64)
            .try_for_each(|n| rig.log.write(&ctx(1), owner(1, n * 40_000), &[0; 40_000]).map(drop));
        assert!(matches!(result, Err(Error::Store(leeward_pool::Error::Full))), "{result:?}");
    }
}

/// What somebody waits for goes first, flows take turns, a flow's own order is kept.
#[test]
fn order_of_puts() {
    let rig = Rig::new(Options { segment_bytes: 1000, ..options() });
    let put = |uid| {
        let addr = rig.log.write(&ctx(uid), owner(1, 0), &[uid as u8; 600]).unwrap();
        rig.log.seal(addr.segment);
        addr.segment
    };
    let numbers = [put(1), put(1), put(1), put(2)];
    rig.log.wait_durable(&ctx(1), numbers[2]).unwrap();
    while rig.log.step() {}
    let order: Vec<u64> = rig.store.order.lock().unwrap().iter().map(|o| o.0).collect();
    assert_eq!(order, [numbers[2], numbers[0], numbers[1], numbers[3]]);
}

#[test]
fn simulation_repeats_itself() {
    let run = || {
        let rig = Rig::new(options());
        let mut random = Random(4711);
        // a writer who is at his share while the store fails is told so
        let mut refused = Vec::new();
        for n in 0..300u64 {
            let uid = 1 + random.below(5) as u32;
            let len = 1 + random.below(100_000) as usize;
            let bytes = random.text(len);
            let written = rig.log.write(&ctx(uid), owner(n, 0), &bytes).ok();
            if written.is_none() {
                refused.push(n);
            }
            match (random.below(10), written) {
                (0, Some(addr)) => rig.log.seal(addr.segment),
                (1, _) => drop(rig.log.step()),
                (2, Some(addr)) => rig.log.dead(addr, bytes.len() as u32 / 2 + 1),
                (3, _) => rig.store.set(Puts::Fail),
                (4 | 5, _) => rig.store.set(Puts::Work),
                _ => rig.env.advance(Duration::from_millis(3)),
            }
        }
        rig.store.set(Puts::Work);
        rig.log.close().unwrap();
        let objects = rig.store.objects.lock().unwrap().clone();
        let order = rig.store.order.lock().unwrap().clone();
        (objects, order, refused)
    };
    let (first, second) = (run(), run());
    assert!(first == second);
    assert!(first.1.len() > 10);
    assert!(first.2.len() < 30, "refused: {:?}", first.2);
}

/// Appenders, sealers, readers and cleaners at once; every read gives what was written.
#[test]
fn threads_together() {
    let rig = Arc::new(Rig::new(Options { segment_bytes: 256 << 10, dirty_bytes: 4 << 20, ..threaded() }));
    let stop = Arc::new(AtomicBool::new(false));
    let cleaner = {
        let (rig, stop) = (rig.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut cleaned = 0;
            while !stop.load(Ordering::Relaxed) {
                let sealed: Vec<_> = rig.catalog.sealed.lock().unwrap().values().cloned().collect();
                for info in sealed.into_iter().filter(|i| i.object.generation < 3 && i.object_bytes > 0) {
                    let id = rig.id(info.object.segment);
                    let next = rig.log.rewrite(&ctx(0), id, &[0..u32::MAX], (0, id.generation + 1)).unwrap();
                    rig.catalog.sealed.lock().unwrap().insert(info.object.segment, next);
                    rig.log.delete(&ctx(0), id).unwrap();
                    cleaned += 1;
                }
                std::thread::yield_now();
            }
            cleaned
        })
    };
    let writers: Vec<_> = (0..4u32)
        .map(|uid| {
            let rig = rig.clone();
            std::thread::spawn(move || {
                let mut random = Random(u64::from(uid) + 1);
                let mut written: Vec<(Addr, Vec<u8>)> = Vec::new();
                for n in 0..400u64 {
                    let len = 1 + random.below(if n % 50 == 0 { 200_000 } else { 20_000 }) as usize;
                    let bytes = if n % 3 == 0 { random.noise(len) } else { random.text(len) };
                    // two threads share each flow
                    let addr = rig.log.write(&ctx(uid / 2), owner(n, 0), &bytes).unwrap();
                    written.push((addr, bytes));
                    if n % 40 == 0 {
                        rig.log.wait_durable(&ctx(uid / 2), addr.segment).unwrap();
                    }
                    let (addr, bytes) = &written[random.below(written.len() as u64) as usize];
                    let mut buf = vec![0; bytes.len()];
                    rig.log.read(&ctx(uid), *addr, &mut buf).unwrap();
                    assert!(&buf == bytes, "{addr:?}");
                }
                written
            })
        })
        .collect();
    let written: Vec<_> = writers.into_iter().flat_map(|w| w.join().unwrap()).collect();
    rig.log.close().unwrap();
    for (addr, bytes) in &written {
        let mut buf = vec![0; bytes.len()];
        rig.log.read(&ctx(0), *addr, &mut buf).unwrap();
        assert!(&buf == bytes);
    }
    stop.store(true, Ordering::Relaxed);
    assert!(cleaner.join().unwrap() > 0);
}

/// Many readers of the same cold file cost the store what one costs.
#[test]
fn readers_share_what_they_fetch() {
    let rig = Rig::new(options());
    let bytes = Random(41).text(50_000);
    let addr = rig.log.write(&ctx(1), owner(1, 0), &bytes).unwrap();
    rig.log.close().unwrap();
    let cold = rig.reopened(options());
    std::thread::scope(|s| {
        for n in 0..16u32 {
            let (cold, bytes) = (&cold, &bytes);
            s.spawn(move || {
                let mut buf = vec![0; 1000];
                cold.log.read(&ctx(n), Addr { offset: n * 1000, ..addr }, &mut buf).unwrap();
                assert!(buf == bytes[n as usize * 1000..][..1000]);
            });
        }
    });
    assert_eq!(rig.store.gets.load(Ordering::Relaxed), 2, "one for the index, one for the unit");
}

/// A segment is not put before its owner has taken note of every append, though it is sealed and
/// waited for.
#[test]
fn held_segments_wait() {
    let rig = Rig::new(options());
    let addr = rig.log.append(&ctx(1), 0, owner(1, 0), &[1; 100]).unwrap();
    rig.log.write(&ctx(1), owner(1, 100), &[2; 100]).unwrap();
    rig.log.seal(addr.segment);
    assert!(!rig.log.step());
    rig.log.unhold(addr.segment);
    assert!(rig.log.step() && rig.log.is_durable(addr.segment));

    let rig = Rig::new(threaded());
    let addr = rig.log.append(&ctx(1), 0, owner(1, 0), &[1; 100]).unwrap();
    rig.log.seal(addr.segment);
    std::thread::sleep(Duration::from_millis(20));
    assert!(!rig.log.is_durable(addr.segment));
    rig.log.unhold(addr.segment);
    rig.log.wait_durable(&ctx(1), addr.segment).unwrap();
}

/// At open an object that nobody noted is taken for what it is.
#[test]
fn adopt() {
    let rig = Rig::new(options());
    let addr = rig.log.write(&ctx(1), owner(1, 0), &Random(8).noise(9000)).unwrap();
    rig.log.close().unwrap();
    let told = rig.catalog.sealed.lock().unwrap()[&addr.segment];
    assert_eq!(rig.log.adopt(&ctx(0), 0, addr.segment).unwrap(), told);
    let absent = rig.log.adopt(&ctx(0), 0, 999);
    assert!(matches!(absent, Err(Error::Store(leeward_pool::Error::NotFound(_)))));
}

/// An object laid out in the segment's own buffer has its index where a dead tail was: that tail is
/// not to be peeked, nor laid out again after a failed put.
#[test]
fn a_dead_tail_is_not_shown() {
    let rig = Rig::new(options());
    let bytes = Random(3).noise(400_000);
    let addr = rig.log.write(&ctx(1), owner(1, 0), &bytes).unwrap();
    let tail = Addr { offset: 100_000, ..addr };
    rig.log.dead(tail, 300_000);
    rig.store.set(Puts::Fail);
    assert!(rig.log.wait_durable(&ctx(1), addr.segment).is_err());
    let mut buf = vec![9; 250_000];
    assert!(!rig.log.peek(tail, &mut buf) && buf == vec![9; 250_000]);
    let mut buf = vec![0; 100_000];
    assert!(rig.log.peek(addr, &mut buf) && buf == bytes[..100_000]);
    rig.store.set(Puts::Work);
    rig.log.wait_durable(&ctx(1), addr.segment).unwrap();
    rig.log.read(&ctx(1), addr, &mut buf).unwrap();
    assert!(buf == bytes[..100_000]);
}

/// Who uses the store is what cleaning gives way to: users that write or read from it, not the
/// system itself.
#[test]
fn quiet_since_users_needed_the_store() {
    let rig = Rig::new(options());
    let second = Duration::from_secs(1);
    assert_eq!(rig.log.quiet_for(), Duration::ZERO, "an opened cell is about to be used");
    rig.env.advance(second);
    assert_eq!(rig.log.quiet_for(), second);
    let addr = rig.log.write(&ctx(1), owner(1, 0), &[1; 100]).unwrap();
    assert_eq!(rig.log.quiet_for(), Duration::ZERO);
    rig.log.wait_durable(&ctx(1), addr.segment).unwrap();
    rig.env.advance(second);
    rig.log.read(&Ctx::system(), addr, &mut [0; 100]).unwrap();
    assert_eq!(rig.log.quiet_for(), second);
    rig.log.read(&ctx(1), addr, &mut [0; 100]).unwrap();
    assert_eq!(rig.log.quiet_for(), Duration::ZERO);
}
