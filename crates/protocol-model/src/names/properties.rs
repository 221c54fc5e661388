//! What must hold in each state.

use super::{Names, Stage, State};
use stateright::{Model, Property};

/// Some step is possible until all programs are done.
pub const UNSTUCK: &str = "nobody waits for ever";
/// Names that a kernel knows are as they are at the server.
pub const CURRENT: &str = "no kernel knows old names";
/// No program gets ESTALE.
pub const UNHARMED: &str = "no program gets ESTALE";

pub(super) fn all() -> Vec<Property<Names>> {
    vec![
        Property::always(UNSTUCK, somebody_can_go_on),
        Property::always(CURRENT, names_are_current),
        Property::always(UNHARMED, |_, state: &State| {
            let programs = || state.machines.iter().flat_map(|machine| &machine.programs);
            programs().all(|program| program.stage != Stage::Failed)
        }),
        Property::sometimes("all programs are done", |model: &Names, state: &State| model.is_done(state)),
    ]
}

fn somebody_can_go_on(model: &Names, state: &State) -> bool {
    let mut actions = Vec::new();
    model.actions(state, &mut actions);
    !actions.is_empty() || model.is_done(state)
}

fn names_are_current(_: &Names, state: &State) -> bool {
    state.machines.iter().all(|machine| {
        machine
            .knows
            .iter()
            .zip(state.versions)
            .all(|(known, version)| known.is_none_or(|known| known == version))
    })
}
