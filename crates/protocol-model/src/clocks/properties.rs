//! What must hold in each state.

use super::{Clocks, Right, State};
use stateright::Property;

/// A daemon in time has the value of the last write.
pub const DAEMON: &str = "what a daemon may use is current";
/// A kernel within its time-out has the value of the last write, also while its daemon is frozen.
pub const KERNEL: &str = "what a kernel may use is current";
/// A daemon that may write has W at the server, or the server is new and runs nothing.
pub const EXCLUSIVE: &str = "only a client with W writes";
/// No flush goes over what somebody else wrote.
pub const FENCED: &str = "no flush overwrites a newer write";
/// Nobody waits longer than the limit of the recall and that of the server.
pub const BOUNDED: &str = "a wait is bounded";
/// For a client of which nothing is heard, nobody waits longer than the limit of the server.
pub const SILENT: &str = "a wait for a silent client is shorter";

pub(super) fn all() -> Vec<Property<Clocks>> {
    vec![
        Property::always(DAEMON, |model: &Clocks, state: &State| {
            state.frozen || state.lease.is_none() || !model.is_in_time(state) || state.copy == state.latest
        }),
        Property::always(KERNEL, |_, state: &State| {
            state.kernel.is_none_or(|kernel| kernel.value == state.latest)
        }),
        Property::always(EXCLUSIVE, |model: &Clocks, state: &State| {
            let writes = !state.frozen && state.lease == Some(Right::W) && model.is_in_time(state);
            !writes || state.recovering || state.granted == Some(Right::W)
        }),
        Property::always(FENCED, |_, state: &State| !state.overwrote),
        Property::always(BOUNDED, |model: &Clocks, state: &State| {
            state.wait.is_none_or(|wait| wait <= model.longest_wait())
        }),
        Property::always(SILENT, |model: &Clocks, state: &State| {
            state.renewed_in_wait || state.wait.is_none_or(|wait| wait <= model.server_limit)
        }),
        Property::sometimes("a client that lost its lease is told", |_, state: &State| state.told),
        Property::sometimes("a wait takes almost as long as it may", |model: &Clocks, state: &State| {
            state.wait.is_some_and(|wait| wait + 2 == model.longest_wait())
        }),
    ]
}
