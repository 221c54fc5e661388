//! Leases as the code has them: no grant has a number, and none has a release of its own.
//!
//! **Modelled.** One inode as a value, some clients that keep copies of it. `latest` is the value
//! that the last change made; a copy that a client may use must always be that. Messages are under
//! way in no order. What the server does with a read and when its answer leaves are two steps, as
//! they are on several threads. In place of numbers, a client keeps nothing of reads that are under
//! way when a recall comes; in place of releases, a lease ends with the client's last reference.
//!
//! **Left out.** Time, and lost sessions: module `clocks`. Write-behind: module `recalls`. That
//! nothing is granted while a change waits: without it changes wait longer, and are no less right.

mod state;

pub use state::{Change, Client, Read, State};
use stateright::{Model, Property};

/// A copy that a client may use is what the last change made.
pub const CURRENT: &str = "each copy is current";

/// A rule of the protocol that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A change runs when no other client has a lease.
    RecallFirst,
    /// A client keeps nothing of reads that are under way when a recall comes.
    RecallVoids,
    /// A client that is asked for its lease is granted none.
    NoneWhileAsked,
    /// What an answer grants is decided when the read runs, not when the answer leaves.
    GrantWhenRun,
    /// A client drops its copy before it sends a change, and keeps nothing of reads that were under
    /// way at the same time.
    OwnChangeVoids,
    /// The same for the last reference that it returns.
    ForgetVoids,
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Copies {
    /// How many clients there are.
    pub clients: usize,
    /// Reads of each.
    pub reads: u8,
    /// Changes of each.
    pub changes: u8,
    /// How often each returns its last reference.
    pub forgets: u8,
    /// The rules that this mutant leaves out.
    pub without: &'static [Rule],
}

/// A step. The first number is the client's, the second that of one of its reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client asks for the value.
    Ask(usize),
    /// The server runs a read.
    Run(usize, usize),
    /// Its answer leaves.
    Leave(usize, usize),
    /// The answer comes.
    Learn(usize, usize),
    /// A client sends a change.
    Send(usize),
    /// The server asks a client for its lease, for another's change.
    AskBack(usize),
    /// The recall comes, and is answered.
    Void(usize),
    /// The answer to the recall comes.
    GivenBack(usize),
    /// The server makes a client's change.
    Make(usize),
    /// A client hears that its change was made.
    Made(usize),
    /// A client returns its last reference.
    Forget(usize),
    /// The server takes it.
    Forgotten(usize),
    /// The client hears of that.
    ForgetDone(usize),
}

impl Copies {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    /// What the server may do, and what may arrive.
    fn progress(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, client) in state.clients.iter().enumerate() {
            for (number, read) in client.reads.iter().enumerate() {
                actions.push(match read {
                    Read::Asked { .. } => Action::Run(n, number),
                    Read::Run { .. } => Action::Leave(n, number),
                    Read::Left { .. } => Action::Learn(n, number),
                });
            }
            let others_change = || state.others(n).any(|other| other.change == Some(Change::Sent));
            if client.held && !client.asked && others_change() {
                actions.push(Action::AskBack(n));
            }
            if client.recall {
                actions.push(Action::Void(n));
            }
            if client.given_back {
                actions.push(Action::GivenBack(n));
            }
            let is_free = !self.keeps(Rule::RecallFirst) || state.others(n).all(|other| !other.held);
            match client.change {
                Some(Change::Sent) if is_free => actions.push(Action::Make(n)),
                Some(Change::Made) => actions.push(Action::Made(n)),
                _ => (),
            }
            match client.forget {
                Some(Change::Sent) => actions.push(Action::Forgotten(n)),
                Some(Change::Made) => actions.push(Action::ForgetDone(n)),
                None => (),
            }
        }
    }

    fn programs(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, client) in state.clients.iter().enumerate() {
            if client.copy.is_none() && client.asked_for < self.reads {
                actions.push(Action::Ask(n));
            }
            if client.change.is_none() && client.changed < self.changes {
                actions.push(Action::Send(n));
            }
            if client.forget.is_none() && client.forgot < self.forgets {
                actions.push(Action::Forget(n));
            }
        }
    }
}

impl Model for Copies {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { latest: 0, clients: vec![Client::default(); self.clients] }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.progress(state, actions);
        self.programs(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.take(self, action);
        state.clients.iter_mut().for_each(|client| client.reads.sort_unstable());
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Copies>> {
        vec![
            Property::always(CURRENT, |_, state: &State| {
                state.clients.iter().all(|client| client.copy.is_none_or(|copy| copy == state.latest))
            }),
            Property::sometimes("an answer with a lease comes void", |_, state: &State| {
                let is_void = |read: &Read| matches!(read, Read::Left { void: true, granted: true, .. });
                state.clients.iter().any(|client| client.reads.iter().any(is_void))
            }),
            Property::sometimes("two keep copies", |_, state: &State| {
                state.clients.iter().filter(|client| client.copy.is_some()).count() > 1
            }),
        ]
    }
}
