//! What must hold in each state.

use super::{Change, OpState, Record, Replays, State};
use stateright::Property;

/// No change is made twice, and no content enters twice.
pub const ONCE: &str = "no change is made twice";
/// After recovery all that a client was told is there, as it was told; what was refused is not.
pub const KEPT: &str = "what was told is kept";
/// What was reported durable is durable, whoever dies.
pub const DURABLE: &str = "what was reported durable stays";
/// The changes of a name, of a file's content and of its attributes are in the order of their
/// numbers.
pub const ORDERED: &str = "changes keep their order";
/// No client that comes back in time is told EIO.
pub const UNHARMED: &str = "a living client loses nothing";
/// While nothing more goes wrong, something can be done, until all is done.
pub const UNSTUCK: &str = "nobody waits for ever";

pub(super) fn all() -> Vec<Property<Replays>> {
    vec![
        Property::always(ONCE, made_once),
        Property::always(KEPT, told_is_kept),
        Property::always(DURABLE, durable_stays),
        Property::always(ORDERED, changes_keep_their_order),
        Property::always(UNHARMED, living_clients_lose_nothing),
        Property::always(UNSTUCK, somebody_can_go_on),
        Property::sometimes("a replay runs", a_replay_ran),
        Property::sometimes("all becomes durable after a crash", all_durable_after_a_crash),
    ]
}

fn is_each_once<'a>(changes: impl Iterator<Item = &'a Change>) -> bool {
    let changes: Vec<&Change> = changes.collect();
    changes.iter().enumerate().all(|(n, change)| !changes[..n].iter().any(|other| other.is(change)))
}

fn made_once(_: &Replays, state: &State) -> bool {
    is_each_once(State::changes(&state.history)) && is_each_once(state.content())
}

/// Whether a change is among these records and, of content, in this content or in a file that is
/// gone.
fn is_in<'a>(
    model: &Replays,
    records: &[Record],
    mut content: impl Iterator<Item = &'a Change>,
    told: &Change,
) -> bool {
    let is_made = State::changes(records).any(|made| made == told);
    let needs_content = model.op_of(told).kind.is_content() && model.is_there(records, told.inode);
    is_made && (!needs_content || content.any(|made| made == told))
}

fn told_is_kept(model: &Replays, state: &State) -> bool {
    let is_kept = |client: usize, op: usize, its: &OpState| match its {
        OpState::Told(told) => {
            let is_lost = state.history.contains(&Record::Lost { client, op });
            is_lost || state.is_closed(client) || is_in(model, &state.history, state.content(), told)
        }
        OpState::Refused => {
            !State::changes(&state.history).any(|made| (made.client, made.op) == (client, op))
        }
        _ => true,
    };
    state.recovered.is_none()
        || state
            .clients
            .iter()
            .enumerate()
            .all(|(client, its)| its.ops.iter().enumerate().all(|(op, its)| is_kept(client, op, its)))
}

fn durable_stays(model: &Replays, state: &State) -> bool {
    let durable = &state.history[..state.durable];
    state.clients.iter().flat_map(|client| &client.ops).all(|op| match op {
        OpState::Durable(told) => is_in(model, durable, state.entered.iter(), told),
        _ => true,
    })
}

fn changes_keep_their_order(model: &Replays, state: &State) -> bool {
    let names = State::changes(&state.history).filter(|change| model.op_of(change).kind.is_name());
    let names = names.map(|change| (model.op_of(change).name, change.lsn));
    let attributes = state.history.iter().filter_map(|record| match record {
        Record::Made(change) if !model.op_of(change).kind.is_name() => Some((change.inode, change.lsn)),
        Record::Attributes(change) => Some((change.inode, change.lsn)),
        _ => None,
    });
    let content = state.content().map(|change| (change.inode, change.lsn));
    is_ordered(names) && is_ordered(attributes) && is_ordered(content)
}

/// Whether the numbers of each object do not go down.
fn is_ordered(changes: impl Iterator<Item = (u8, u8)>) -> bool {
    let changes: Vec<(u8, u8)> = changes.collect();
    changes.iter().enumerate().all(|(n, (object, lsn))| {
        changes[..n].iter().all(|(before, earlier)| before != object || earlier <= lsn)
    })
}

fn living_clients_lose_nothing(_: &Replays, state: &State) -> bool {
    let is_harm =
        |record: &Record| matches!(record, Record::Lost { client, .. } if !state.is_closed(*client));
    !state.history.iter().any(is_harm)
}

fn somebody_can_go_on(model: &Replays, state: &State) -> bool {
    let mut actions = Vec::new();
    model.progress(state, &mut actions);
    !actions.is_empty() || is_finished(model, state)
}

/// A change whose file or directory is not there is never sent.
fn is_finished(model: &Replays, state: &State) -> bool {
    state.clients.iter().enumerate().filter(|(_, its)| its.alive).all(|(client, its)| {
        its.ops.iter().enumerate().all(|(op, its)| match its {
            OpState::Durable(_) | OpState::Refused | OpState::Lost => true,
            OpState::Todo => {
                let op = model.op(client, op);
                let needed = if op.kind.is_name() { op.under } else { Some(op.name) };
                needed.is_some_and(|name| model.inode_at(&state.history, name).is_none())
            }
            OpState::Sent { .. } | OpState::Told(_) => false,
        })
    })
}

fn a_replay_ran(_: &Replays, state: &State) -> bool {
    state.recovered.is_none() && state.history.len() > state.inherited
}

fn all_durable_after_a_crash(_: &Replays, state: &State) -> bool {
    let is_over = |op: &OpState| matches!(op, OpState::Durable(_) | OpState::Refused);
    state.crashes > 0 && state.clients.iter().flat_map(|client| &client.ops).all(is_over)
}
