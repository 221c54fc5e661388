//! A real cell on a simulated disk, one call of which fails: every call of the disk and of the
//! store, in every way that it documents, at any moment, also while the cell is opened.
//!
//! `MODEL_SEEDS=FROM..TO` chooses the seeds, a failing call each.

use crate::whole::{Failing, SimCell, owner, seeds, steps};
use leeward_env::Env;
use leeward_env::disk::sim::Fault;
use leeward_model::Profile;
use leeward_model::faults::{Ending, FaultOptions, Outcome, fail_once};
use leeward_pool::StoreFault;
use std::collections::BTreeMap;

/// What a store can do to a call, but for that after which it is not what it said it was: no copy
/// is left of what it forgets.
fn faults_of_stores() -> Vec<StoreFault> {
    let lies = [StoreFault::PutLies, StoreFault::PutForgets];
    StoreFault::ALL.iter().copied().filter(|fault| !lies.contains(fault)).collect()
}

/// Some call, by chance; `far`: up to how many calls away.
fn some_call(env: &Env, far: u64) -> Failing {
    let after = env.random() % far;
    match env.random() % 6 {
        0 => Failing::Mutation(after, Fault::Eio),
        1 => Failing::Mutation(after, Fault::Enospc),
        2 => Failing::Read(after),
        _ => {
            let all = faults_of_stores();
            Failing::Store(all[env.random() as usize % all.len()])
        }
    }
}

fn options(seed: u64, profile: Profile) -> FaultOptions<Failing> {
    let env = Env::sim(seed);
    let ending = [Ending::Kill, Ending::PowerCut, Ending::Close][env.random() as usize % 3];
    let opening = env.random().is_multiple_of(3).then(|| some_call(&env, 60));
    let (after, syncs) = (env.random() as usize % steps(80), env.random().is_multiple_of(2));
    // soon after: what comes later may mend it
    let steps = after + 1 + env.random() as usize % [4, 40][env.random() as usize % 2];
    FaultOptions { seed, steps, profile, fault: some_call(&env, 12), after, syncs, ending, opening }
}

/// Fails a call for each seed. What came of it is told, and each kind of outcome must have come.
fn fail_by_seeds(all: std::ops::Range<u64>, profile: Profile, make: impl Fn(u64) -> SimCell) {
    let mut outcomes: BTreeMap<Outcome, u32> = BTreeMap::new();
    let count = all.end - all.start;
    for seed in all {
        *outcomes.entry(fail_once(|| make(seed), &options(seed, profile))).or_default() += 1;
    }
    println!("{outcomes:?}");
    assert!(outcomes.len() == 3 || count < 100, "this proves nothing: {outcomes:?}");
}

#[test]
fn a_call_that_fails_once_loses_nothing_that_was_promised() {
    fail_by_seeds(seeds(0..400), Profile::crash(), SimCell::new);
}

#[test]
fn nor_with_snapshots() {
    let profile = Profile::crash().with_snapshots(20, 3);
    fail_by_seeds(seeds(1000..1300), profile, |seed| SimCell::owned_by(seed, owner(seed)));
}

#[test]
fn nor_between_two_pools() {
    let profile = Profile::crash().with_snapshots(8, 2).with_moves(12);
    fail_by_seeds(seeds(2000..2300), profile, SimCell::with_pools);
}
