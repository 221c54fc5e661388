//! What must hold in each state.

use super::{Change, Client, OpState, Record, Sessions, State};
use stateright::Property;

/// No change is in the history twice.
pub const ONCE: &str = "no change is applied twice";
/// What a client was told is in the history with the result that it was told, or it is told EIO.
/// What it was told is refused is not there.
pub const KEPT: &str = "what was told is kept";
/// What was reported durable is durable.
pub const DURABLE: &str = "what was reported durable stays";
/// No change is below a directory that is not there.
pub const GROUNDED: &str = "nothing is built on what is gone";
/// The changes of a name are in the order in which clients were told of them.
pub const ORDERED: &str = "the changes of a name keep their order";
/// A replay fails only if what it built on is gone.
pub const DESERVED: &str = "a replay fails only for want of what it built on";
/// No client that lives and comes back in time is told EIO.
pub const UNHARMED: &str = "a living client loses nothing";
/// While nothing more goes wrong, something can be done, until all is done.
pub const UNSTUCK: &str = "nobody waits for ever";

pub(super) fn all() -> Vec<Property<Sessions>> {
    vec![
        Property::always(ONCE, applied_once),
        Property::always(KEPT, told_is_kept),
        Property::always(DURABLE, durable_stays),
        Property::always(GROUNDED, parents_are_there),
        Property::always(ORDERED, changes_keep_their_order),
        Property::always(DESERVED, failed_replays_miss_something),
        Property::always(UNHARMED, living_clients_lose_nothing),
        Property::always(UNSTUCK, somebody_can_go_on),
        Property::sometimes("a replay runs", a_replay_ran),
        Property::sometimes("all becomes durable after a crash", all_durable_after_a_crash),
    ]
}

fn applied_once(_: &Sessions, state: &State) -> bool {
    state.changes().enumerate().all(|(n, change)| {
        !state.changes().take(n).any(|other| (other.client, other.op) == (change.client, change.op))
    })
}

fn told_is_kept(_: &Sessions, state: &State) -> bool {
    let kept = |client: usize, op: &OpState| match op {
        OpState::Told(told) => {
            let made = state.change_of(client, told.op);
            made.is_some_and(|made| made.inode == told.inode) || state.is_lost(client, told.op)
        }
        _ => true,
    };
    let refusals_hold = |client: usize, its: &Client| {
        let refused = its.ops.iter().enumerate().filter(|(_, op)| **op == OpState::Refused);
        refused.map(|(op, _)| op).all(|op| state.change_of(client, op).is_none())
    };
    state.recovered.is_none()
        || state.clients.iter().enumerate().all(|(client, its)| {
            let all_kept = state.is_closed(client) || its.ops.iter().all(|op| kept(client, op));
            all_kept && refusals_hold(client, its)
        })
}

fn durable_stays(_: &Sessions, state: &State) -> bool {
    let durable = &state.history[..state.durable];
    let stays = |op: &OpState| {
        match op {
        OpState::Durable(told) => durable.iter().any(|record| {
            matches!(record, Record::Made(made) if (made.client, made.op, made.inode) == (told.client, told.op, told.inode))
        }),
        _ => true,
    }
    };
    state.clients.iter().flat_map(|client| &client.ops).all(stays)
}

/// Neither now nor when the change was made.
fn parents_are_there(model: &Sessions, state: &State) -> bool {
    state.changes().enumerate().all(|(n, change)| {
        let parent = change.saw.parent;
        parent == 0
            || (state.changes().take(n).any(|made| made.inode == parent)
                && parent_of_live_is_there(model, state, change))
    })
}

fn parent_of_live_is_there(model: &Sessions, state: &State, change: &Change) -> bool {
    let op = model.op(change.client, change.op);
    let is_live = model.inode_at(state, op.name) == Some(change.inode);
    !is_live || op.under.is_none_or(|directory| model.inode_at(state, directory) == Some(change.saw.parent))
}

fn changes_keep_their_order(model: &Sessions, state: &State) -> bool {
    let name = |change: &Change| model.op(change.client, change.op).name;
    state.changes().enumerate().all(|(n, change)| {
        state.changes().take(n).all(|before| name(before) != name(change) || before.lsn < change.lsn)
    })
}

fn failed_replays_miss_something(_: &Sessions, state: &State) -> bool {
    let there = |number: u8| number == 0 || state.changes().any(|made| made.lsn == number);
    state.clients.iter().enumerate().all(|(client, its)| {
        its.ops.iter().all(|op| match op {
            OpState::Told(told) if state.is_lost(client, told.op) => {
                !there(told.saw.name_version) || !there(told.saw.parent)
            }
            _ => true,
        })
    })
}

/// With the rule to commit before sharing always; without it only where nobody dies or is late.
fn living_clients_lose_nothing(model: &Sessions, state: &State) -> bool {
    let promised = model.commit_before_sharing || model.deaths + model.late == 0;
    !promised
        || !state
            .history
            .iter()
            .any(|record| matches!(record, Record::Lost { client, .. } if !state.is_closed(*client)))
}

fn somebody_can_go_on(model: &Sessions, state: &State) -> bool {
    let mut actions = Vec::new();
    model.progress(state, &mut actions);
    !actions.is_empty() || is_finished(model, state)
}

/// A change whose directory is not there is never sent.
fn is_finished(model: &Sessions, state: &State) -> bool {
    state.clients.iter().enumerate().filter(|(_, its)| its.alive).all(|(client, its)| {
        its.ops.iter().enumerate().all(|(op, its)| match its {
            OpState::Durable(_) | OpState::Refused | OpState::Lost => true,
            OpState::Todo => {
                let directory = model.op(client, op).under;
                directory.is_some_and(|name| model.inode_at(state, name).is_none())
            }
            OpState::Sent { .. } | OpState::Told(_) => false,
        })
    })
}

fn a_replay_ran(_: &Sessions, state: &State) -> bool {
    state.crashes > 0 && state.changes().skip(state.inherited).count() > 0 && state.recovered.is_none()
}

fn all_durable_after_a_crash(model: &Sessions, state: &State) -> bool {
    let all = |op: &OpState| matches!(op, OpState::Durable(_) | OpState::Refused);
    model.crashes == 0 || (state.crashes > 0 && state.clients.iter().flat_map(|client| &client.ops).all(all))
}
