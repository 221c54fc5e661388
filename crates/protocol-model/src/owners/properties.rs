//! What must hold in each state.

use super::{Owners, PutAt, Run, Stage, State};
use stateright::Property;

/// A read returns all that was acknowledged before it was asked.
pub const CURRENT: &str = "no read is old";
/// So does a copy that a client may use.
pub const COPIES: &str = "what a client may use is current";
/// What was acknowledged is in the log, or its client has it and brings it; the owner has it.
pub const KEPT: &str = "what was acknowledged is kept";
/// No write enters a log twice.
pub const ONCE: &str = "no write is made twice";
/// The epochs of commits never go down, and one server commits in each.
pub const ONE_COMMITS: &str = "one server commits in an epoch";
/// An owner answers nothing from memory after a later one has begun to.
pub const ONE_ANSWERS: &str = "one server answers";
/// While a server may answer nobody answers in its place: what configurations without clocks take
/// for granted.
pub const LIMITS: &str = "nobody takes over while a server may answer";
/// Faults and moves are few, so the map is swapped few times. The most in any run that the tests
/// visit.
pub const FEW_SWAPS: &str = "servers do not swap the map for ever";
const SWAPS_MAX: u8 = 10;

pub(super) fn all() -> Vec<Property<Owners>> {
    vec![
        Property::always(CURRENT, |_, state: &State| !state.wrong.stale),
        Property::always(COPIES, copies_are_current),
        Property::always(KEPT, acknowledged_is_kept),
        Property::always(ONCE, |_, state: &State| !state.wrong.twice),
        Property::always(ONE_COMMITS, |_, state: &State| !state.wrong.two_commit),
        Property::always(ONE_ANSWERS, |_, state: &State| !state.wrong.two_answer),
        Property::always(LIMITS, limits_are_kept),
        Property::always(FEW_SWAPS, |_, state: &State| state.map.version <= SWAPS_MAX),
        Property::sometimes("another server answers all that is left", |model: &Owners, state: &State| {
            state.map.version > 1 && is_finished(model, state)
        }),
    ]
}

fn limits_are_kept(model: &Owners, state: &State) -> bool {
    let may_answer = |n: usize, shard: usize| {
        let its = state.servers[n].shards[shard];
        let serves = matches!(its.stage, Stage::Ready | Stage::Draining);
        serves && state.runs(n) && model.is_in_time(state, n)
    };
    let is_alone = |shard: usize| (0..model.servers).filter(|n| may_answer(*n, shard)).count() <= 1;
    (0..model.shards).all(is_alone)
}

fn copies_are_current(model: &Owners, state: &State) -> bool {
    let is_current =
        |client: usize, copy: u8| model.acknowledged(state, model.clients[client].shard) & !copy == 0;
    state.clients.iter().enumerate().all(|(client, its)| its.copy.is_none_or(|copy| is_current(client, copy)))
}

/// A session that is closed because it did not come back loses what it was told, but not by a move.
fn acknowledged_is_kept(model: &Owners, state: &State) -> bool {
    let has_failed = state.records.iter().any(|record| record.marked);
    let is_safe = |client: usize| {
        let script = &model.clients[client];
        let brings = script.session && (!state.clients[client].closed || has_failed);
        brings || model.acknowledged_to(state, client) & !state.logs[script.shard].writes == 0
    };
    let serves_all = |shard: usize| {
        let log = &state.logs[shard];
        let mut served = state.servers.iter().map(|server| server.shards[shard]).filter(|its| {
            matches!(its.stage, Stage::Ready | Stage::Draining)
                && its.epoch == log.served
                && its.epoch == log.opener
        });
        served.all(|its| model.acknowledged(state, shard) & !its.has == 0)
    };
    (0..model.clients.len()).all(is_safe) && (0..model.shards).all(serves_all)
}

/// Whether nothing is left to do, and one living server serves each shard.
pub fn is_finished(model: &Owners, state: &State) -> bool {
    let is_served = |shard: usize| {
        let entry = state.map.shards[shard];
        state.logs[shard].opener == entry.epoch
            && state.servers.iter().enumerate().all(|(n, server)| {
                let its = server.shards[shard];
                match n == entry.owner {
                    true => server.run == Run::Runs && its.stage == Stage::Ready && its.epoch == entry.epoch,
                    false => its.stage == Stage::Idle,
                }
            })
    };
    let is_over = |client: usize| {
        let its = &state.clients[client];
        !its.silent && (its.closed || its.done == model.clients[client].ops.len())
    };
    let is_under_way = |at: PutAt| matches!(at, PutAt::Up | PutAt::Void);
    (0..model.shards).all(is_served)
        && (0..model.clients.len()).all(is_over)
        && !state.puts.iter().any(|put| is_under_way(put.at))
}
