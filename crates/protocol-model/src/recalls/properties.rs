//! What must hold in each state.

use super::{Recalls, Right, State};
use stateright::Property;

/// A copy that a client may use is what the last write made.
pub const CURRENT: &str = "each usable copy is current";
/// The server answers a read with what the last write made. Only to a client that has W its answer
/// may be older than the client's copy: its read began before it got W, so both are right.
pub const ANSWERS: &str = "the server answers with the current value";
/// W excludes all other leases.
pub const EXCLUSIVE: &str = "a client with W is alone";
/// What was begun can be ended.
pub const UNSTUCK: &str = "nobody waits for ever";

pub(super) fn all() -> Vec<Property<Recalls>> {
    vec![
        Property::always(CURRENT, copies_are_current),
        Property::always(ANSWERS, |_, state: &State| !state.stale_answer),
        Property::always(EXCLUSIVE, w_is_alone),
        Property::always(UNSTUCK, somebody_can_go_on),
        Property::sometimes("a dirty copy is recalled", |model: &Recalls, state: &State| {
            model.writes < 2 || state.peers.iter().any(|peer| peer.dirty && peer.recall.is_some())
        }),
        Property::sometimes("a grant arrives void", |_, state: &State| {
            state.peers.iter().any(|peer| peer.read.is_some_and(|read| read.void_up_to == peer.last_number))
        }),
    ]
}

fn copies_are_current(_: &Recalls, state: &State) -> bool {
    state.peers.iter().all(|peer| peer.lease.is_none() || peer.copy == state.latest)
}

fn w_is_alone(_: &Recalls, state: &State) -> bool {
    let leases = || state.peers.iter().filter_map(|peer| peer.lease);
    leases().all(|lease| lease.right == Right::R) || leases().count() == 1
}

fn somebody_can_go_on(model: &Recalls, state: &State) -> bool {
    let mut actions = Vec::new();
    model.progress(state, &mut actions);
    !actions.is_empty() || state.is_quiet()
}
