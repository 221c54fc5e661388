//! Crashes, want of space and failing calls at every mutation of the disk, below the engine in
//! memory: it has the journal and the rules of the one on a directory.

use leeward_env::Env;
use leeward_env::disk::Disk;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_meta::contract::{Model, Random, all_inline_data, is_within};
use leeward_meta::mem::MemKv;
use leeward_meta::{Batch, EngineOptions, Error, InlineData, Kv, Result};
use std::sync::Arc;

const STEPS: u64 = 60;

fn open(disk: &SimDisk) -> Result<MemKv> {
    let mut options =
        EngineOptions { memtable_bytes: 6 << 10, journal_bytes: 24 << 10, ..Default::default() };
    options.journal.file_bytes = 16 << 10;
    options.journal.spares_max = 2;
    MemKv::open_with(Env::sim(1), Arc::new(disk.clone()), options)
}

/// What one run acknowledged, and what it was doing when it ended.
#[derive(Clone, Default)]
struct Story {
    acknowledged: Model,
    /// With the commit that was under way.
    perhaps: Option<Model>,
    /// Acknowledged and not released.
    inline_data: Vec<InlineData>,
    /// What the last commit would have made, which was refused for want of space and not tried
    /// again.
    refused: Option<Model>,
}

/// What to do when a call says Full.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WhenFull {
    Retry,
    Stop,
}

/// A number of commits, releases and maintenance; ends at the first error.
fn run(kv: &MemKv, story: &mut Story, random: &mut Random, when_full: WhenFull) -> Result<()> {
    for step in 0..STEPS {
        let mut batch = random.batch();
        if random.below(3) == 0 {
            batch.inline_data.push(random.inline(step / 8));
        }
        commit(kv, story, &batch, when_full)?;
        if random.below(8) == 0 {
            let segment = step / 8;
            kv.release_inline(segment);
            story.inline_data.retain(|r| r.segment != segment);
        }
        if random.below(3) == 0 {
            again_if_full(when_full, || kv.maintain().map(|_| ()))?;
        }
    }
    Ok(())
}

fn commit(kv: &MemKv, story: &mut Story, batch: &Batch, when_full: WhenFull) -> Result<()> {
    let mut after = story.acknowledged.clone();
    after.apply(batch);
    story.perhaps = Some(after.clone());
    let done = again_if_full(when_full, || kv.commit(batch));
    if matches!(done, Err(Error::Full)) {
        story.refused = story.perhaps.take();
    }
    done?;
    story.acknowledged = after;
    story.perhaps = None;
    story.inline_data.extend(batch.inline_data.iter().cloned());
    Ok(())
}

fn again_if_full(when_full: WhenFull, mut f: impl FnMut() -> Result<()>) -> Result<()> {
    let mut done = f();
    for _ in 0..2 {
        if matches!(done, Err(Error::Full)) && when_full == WhenFull::Retry {
            done = f();
        }
    }
    done
}

/// One process's life on a disk.
fn live(disk: &SimDisk, story: &mut Story, seed: u64, when_full: WhenFull) -> Result<()> {
    let mut kv = open(disk);
    while matches!(kv, Err(Error::Full)) && when_full == WhenFull::Retry {
        kv = open(disk); // each fault comes once
    }
    let kv = kv?;
    run(&kv, story, &mut Random::new(seed), when_full)
}

/// Mutations of a run without faults.
fn count(seed: u64) -> u64 {
    let disk = SimDisk::new(seed);
    live(&disk, &mut Story::default(), seed, WhenFull::Stop).expect("no faults");
    disk.mutations()
}

/// Opens what a crash left and compares; goes on with it as the new truth.
fn check(disk: &SimDisk, story: &Story, what: &str) -> (MemKv, Story) {
    let kv = open(disk).unwrap_or_else(|e| panic!("{what}: {e}\n{:#?}", disk.recent()));
    let found = Model::of(&kv);
    let is_later = story.perhaps.as_ref() == Some(&found);
    assert!(found == story.acknowledged || is_later, "{what}: not a state that was");
    let inline_data = all_inline_data(&kv);
    assert!(is_within(&story.inline_data, &inline_data), "{what}: rides are missing");
    (kv, Story { acknowledged: found, inline_data: story.inline_data.clone(), ..Story::default() })
}

/// After a crash comes another process, and another crash.
fn check_twice(disk: &SimDisk, story: &Story, seed: u64, what: &str) {
    for (next, how) in [(disk.power_cut(seed), "power cut"), (disk.kill(), "kill")] {
        next.set_capacity(1 << 30);
        let what = format!("{what}, {how}");
        let (kv, mut story) = check(&next, story, &what);
        let mut random = Random::new(seed);
        commit(&kv, &mut story, &random.batch(), WhenFull::Stop).expect("commit after a crash");
        if random.below(2) == 0 {
            kv.maintain().expect("maintain after a crash");
        }
        commit(&kv, &mut story, &random.batch(), WhenFull::Stop).expect("commit after a crash");
        drop(kv);
        check(&next.power_cut(seed), &story, &format!("{what}, then a power cut"));
        check(&next.kill(), &story, &format!("{what}, then a kill"));
    }
}

#[test]
fn crash_at_every_mutation() {
    for seed in 1..4 {
        for n in 0..count(seed) {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                let disk = SimDisk::new(seed);
                disk.fail_at(n, fault);
                let mut story = Story::default();
                live(&disk, &mut story, seed, WhenFull::Stop).expect_err("a crash");
                check_twice(&disk, &story, n, &format!("seed {seed}, {fault:?} at {n}"));
            }
        }
    }
}

#[test]
fn failing_call_at_every_mutation() {
    for seed in 4..6 {
        for n in 0..count(seed) {
            let disk = SimDisk::new(seed);
            disk.fail_at(n, Fault::Eio);
            let mut story = Story::default();
            // a failing removal of a file that is not needed, say, may go unnoticed
            let _ = live(&disk, &mut story, seed, WhenFull::Stop);
            check_twice(&disk, &story, n, &format!("seed {seed}, EIO at {n}"));
        }
    }
}

#[test]
fn after_a_failing_call_the_engine_is_broken() {
    let disk = SimDisk::new(1);
    let kv = open(&disk).expect("open");
    let mut random = Random::new(1);
    kv.commit(&random.batch()).expect("commit");
    let before = Model::of(&kv);
    disk.fail_at(disk.mutations() + 1, Fault::Eio);
    assert!(matches!(kv.commit(&random.batch()), Err(Error::Io(_))), "the sync fails");
    assert!(matches!(kv.commit(&random.batch()), Err(Error::Broken(_))));
    assert!(matches!(kv.maintain(), Err(Error::Broken(_))));
    assert_eq!(Model::of(&kv), before, "reads go on");
}

#[test]
fn no_space_at_every_mutation() {
    for seed in 6..9 {
        for n in 0..count(seed) {
            let disk = SimDisk::new(seed);
            disk.fail_at(n, Fault::Enospc);
            let mut story = Story::default();
            let what = format!("seed {seed}, ENOSPC at {n}");
            live(&disk, &mut story, seed, WhenFull::Retry).unwrap_or_else(|e| panic!("{what}: {e}"));
            check_twice(&disk, &story, n, &what);
        }
    }
}

/// What was refused is not there after a crash.
#[test]
fn refused_for_want_of_space_and_then_crashed() {
    let mut refused = 0;
    for seed in 9..11 {
        for n in 0..count(seed) {
            let disk = SimDisk::new(seed);
            disk.fail_at(n, Fault::Enospc);
            let mut story = Story::default();
            let _ = live(&disk, &mut story, seed, WhenFull::Stop);
            refused += u64::from(story.refused.is_some());
            check_twice(&disk, &story, n, &format!("seed {seed}, refused at {n}"));
        }
    }
    assert!(refused > 50, "only {refused} commits were refused");
}

/// On a file system that copies on write there is no space for erasing what was refused, either.
/// The batch may be there after a crash, whole, and nothing is broken.
#[test]
fn no_space_at_two_mutations_in_a_row() {
    for seed in 12..14 {
        for n in 0..count(seed) {
            for when_full in [WhenFull::Retry, WhenFull::Stop] {
                let disk = SimDisk::new(seed);
                disk.copy_on_write();
                disk.fail_at(n, Fault::Enospc);
                disk.fail_at(n + 1, Fault::Enospc);
                let mut story = Story::default();
                let what = format!("seed {seed}, {when_full:?}, ENOSPC at {n}");
                let ended = live(&disk, &mut story, seed, when_full);
                assert!(matches!(ended, Ok(()) | Err(Error::Full)), "{what}: {ended:?}");
                assert!(ended.is_ok() || when_full == WhenFull::Stop, "{what}");
                story.perhaps = story.refused.take();
                check_twice(&disk, &story, n, &what);
            }
        }
    }
}

/// Where overwriting needs space the last record cannot be written again without it.
#[test]
fn a_full_disk_that_copies_on_write_is_opened_with_the_reserve() {
    let disk = SimDisk::new(1);
    disk.copy_on_write();
    disk.set_capacity(16 << 20);
    let kv = open(&disk).expect("open");
    kv.reserve(true).expect("reserve");
    let (mut story, mut random) = (Story::default(), Random::new(1));
    commit(&kv, &mut story, &random.batch(), WhenFull::Stop).expect("space");
    disk.set_capacity(disk.space().expect("space").total_bytes - free_bytes(&disk));
    assert!(matches!(commit(&kv, &mut story, &random.batch(), WhenFull::Retry), Err(Error::Full)));
    assert!(matches!(kv.maintain(), Err(Error::Full) | Ok(_)), "not broken");
    drop(kv);
    story.perhaps = story.refused.take();
    let disk = disk.kill();
    let (kv, mut story) = check(&disk, &story, "full");
    assert!(free_bytes(&disk) > 0, "the reserve is free");
    commit(&kv, &mut story, &random.batch(), WhenFull::Stop).expect("in the reserve");
    drop(kv);
    check(&disk.power_cut(1), &story, "in the reserve");
}

fn free_bytes(disk: &SimDisk) -> u64 {
    disk.space().expect("space").available_bytes
}

#[test]
fn a_full_disk_that_gets_space_again() {
    let disk = SimDisk::new(1);
    let kv = open(&disk).expect("open");
    let (mut story, mut random) = (Story::default(), Random::new(1));
    run(&kv, &mut story, &mut random, WhenFull::Stop).expect("space");
    disk.set_capacity(0);
    let mut last = Ok(());
    for _ in 0..200 {
        last = run(&kv, &mut story, &mut random, WhenFull::Retry);
        if last.is_err() {
            break;
        }
    }
    assert!(matches!(last, Err(Error::Full)), "{last:?}");
    assert!(matches!(kv.maintain(), Err(Error::Full) | Ok(_)));
    story.acknowledged.check(&kv, &mut random);
    check_twice(&disk, &Story { perhaps: None, ..story.clone() }, 5, "full");
    disk.set_capacity(1 << 30);
    run(&kv, &mut story, &mut random, WhenFull::Stop).expect("space again");
    story.acknowledged.check(&kv, &mut random);
}

#[test]
fn journal_space_comes_back() {
    let disk = SimDisk::new(1);
    let kv = open(&disk).expect("open");
    let (mut story, mut random) = (Story::default(), Random::new(1));
    let mut most = 0;
    for _ in 0..40 {
        run(&kv, &mut story, &mut random, WhenFull::Stop).expect("run");
        (0..STEPS).for_each(|segment| kv.release_inline(segment));
        story.inline_data.clear();
        leeward_meta::contract::settle(&kv);
        most = most.max(kv.stats().journal_bytes);
    }
    assert!(most <= 12 * (16 << 10), "{most} bytes of journal");
}
