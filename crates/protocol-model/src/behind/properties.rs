//! What must hold in each state.

use super::{Behind, Lease, Stage, State};
use stateright::Property;

/// A copy that a client may use is what programs know.
pub const CURRENT: &str = "each copy is current";
/// A read is no older than what programs knew when it began.
pub const FRESH: &str = "no read is stale";
/// A client that predicts has W at the server.
pub const ALONE: &str = "who predicts is alone";
/// No change is made twice.
pub const ONCE: &str = "no change is made twice";
/// What a client was told is there.
pub const KEPT: &str = "what was told is kept";
/// No change comes over a newer one of another client.
pub const ORDERED: &str = "no change comes over a newer one";
/// A predicted change does what was predicted.
pub const FORETOLD: &str = "what was predicted happens";
/// Nothing is lost of a client that was not silent.
pub const UNHARMED: &str = "a client that is not silent loses nothing";
/// An fsync that was answered without error has made durable what was predicted before it.
pub const SYNCED: &str = "an fsync keeps its promise";
/// While nothing more goes wrong, something can be done, until all is done.
pub const UNSTUCK: &str = "nobody waits for ever";

pub(super) fn all() -> Vec<Property<Behind>> {
    vec![
        Property::always(CURRENT, copies_are_current),
        Property::always(FRESH, |_, state: &State| !state.stale),
        Property::always(ALONE, who_predicts_is_alone),
        Property::always(ONCE, made_once),
        Property::always(KEPT, told_is_kept),
        Property::always(ORDERED, |_, state: &State| !state.overwrote),
        Property::always(FORETOLD, |_, state: &State| !state.surprised),
        Property::always(UNHARMED, |_, state: &State| !state.harmed),
        Property::always(SYNCED, |_, state: &State| !state.lied),
        Property::always(UNSTUCK, somebody_can_go_on),
        Property::sometimes("a change is predicted, and told later", |_, state: &State| {
            state.stages.iter().flatten().any(|stage| matches!(stage, Stage::BehindRan { lsn: Some(_), .. }))
        }),
    ]
}

fn copies_are_current(model: &Behind, state: &State) -> bool {
    state.clients.iter().enumerate().all(|(n, client)| {
        let mut copies = client.copies.iter().zip(&state.latest);
        !model.is_in_time(state, n) || copies.all(|(copy, latest)| copy.is_none_or(|copy| copy == *latest))
    })
}

/// The inode that a predicted change makes is known to the server later.
fn who_predicts_is_alone(model: &Behind, state: &State) -> bool {
    state.clients.iter().enumerate().all(|(n, client)| {
        let is_alone = |inode: usize| {
            let is_old = state.value(inode) > 0;
            client.alone >> inode & 1 == 0 || !is_old || state.leases[n][inode] == Lease::W
        };
        !model.is_in_time(state, n) || state.recovering || (0..state.latest.len()).all(is_alone)
    })
}

fn made_once(_: &Behind, state: &State) -> bool {
    let made: Vec<_> = state.made().map(|made| made.call).collect();
    made.iter().enumerate().all(|(n, call)| !made[..n].contains(call))
}

fn told_is_kept(model: &Behind, state: &State) -> bool {
    let is_kept = |client: usize| {
        model.calls(client).all(|call| match state.stage(call) {
            Stage::Told { numbers, .. } => state.made_by(call).is_some_and(|made| made.numbers == numbers),
            _ => true,
        })
    };
    state.recovering || (0..model.clients).all(|client| state.session(client).closed || is_kept(client))
}

fn somebody_can_go_on(model: &Behind, state: &State) -> bool {
    let mut actions = Vec::new();
    model.progress(state, &mut actions);
    !actions.is_empty() || is_finished(model, state)
}

/// Nobody waits but programs of clients that are silent.
pub fn is_finished(model: &Behind, state: &State) -> bool {
    let is_over = |stage| matches!(stage, Stage::Told { .. } | Stage::Read | Stage::Refused | Stage::Lost);
    let is_finished = |client: usize| model.calls(client).all(|call| is_over(state.stage(call)));
    (0..model.clients).all(|client| state.clients[client].silent || is_finished(client))
}
