//! Leases without clocks: grants, recalls and releases that overtake each other.
//!
//! **Modelled.** One inode as a register, some clients that read and write it. A client with R
//! reads its copy; a client with W also writes it, and flushes later. Messages are under way in no
//! order at all, which is worse than several connections and several threads at both ends. Each
//! grant has a number of the session. `latest` is what the last write made: a write under W at
//! once, any other when the server runs it. So a copy that a client may use must always be
//! `latest`: then each read returns what was the value at one moment while it ran (linearizable).
//!
//! A kernel locks the pages of a read until it has the answer, so a recall that drops pages waits
//! for the client's own reads. Pages of a client's own write are locked, too: the client drops the
//! others before it sends the write, and a recall finds nothing to drop.
//!
//! **Left out.** Time, freezes and lost sessions: module `clocks`. Lost messages: who gets no
//! answer sends again on the next connection, so a loss is a delay. What one lease covers:
//! attributes, content and names are all one value here.

mod client;
pub mod properties;
mod server;
mod state;

pub use state::{FromClient, Lease, Peer, Pending, Right, State, ToClient, Want};
use stateright::{Model, Property};

/// A rule of the protocol that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A conflict runs only when all recalls for it are answered.
    RecallBeforeConflict,
    /// A recall says up to which number grants are void, also those that arrive later.
    RecallVoidsGrantsUnderWay,
    /// While a request waits for recalls, nothing is granted on its inode.
    NothingNewMeanwhile,
    /// A read that needs no recall itself does not wait behind a request that does.
    ReadsDoNotQueue,
    /// A client answers a recall of W only when its flush was answered.
    FlushBeforeAnswer,
    /// A release names the grant that it gives back, and does not touch a newer one.
    ReleaseNamesItsGrant,
    /// A client drops its own copy before it sends a write, and keeps none until the answer.
    OwnCopyGoesFirst,
    /// A read of a session that has W leaves it W.
    GrantNeverWeakens,
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Recalls {
    /// How many clients there are.
    pub clients: usize,
    /// Reads of each that go to the server.
    pub reads: u8,
    /// Writes of each.
    pub writes: u8,
    /// How often each gives a lease back of its own accord.
    pub releases: u8,
    /// The rules that this mutant leaves out.
    pub without: &'static [Rule],
}

/// A step. The first number is the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client asks for the value.
    Read(usize),
    /// A client without W sends a write.
    SendWrite(usize),
    /// A client with W writes its copy.
    WriteCopy(usize),
    /// A client with W flushes its copy.
    Flush(usize),
    /// A client gives R back.
    Release(usize),
    /// The server takes one of the messages that are under way to it.
    Serve(usize, usize),
    /// The client takes one of the messages that are under way to it.
    Receive(usize, usize),
}

impl Recalls {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    /// The steps that end what was begun: no new reads, writes and releases.
    pub(crate) fn progress(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, peer) in state.peers.iter().enumerate() {
            let servable = |n: &usize| self.may_serve(state, client, peer.up[*n]);
            actions.extend((0..peer.up.len()).filter(servable).map(|n| Action::Serve(client, n)));
            actions.extend((0..peer.down.len()).map(|n| Action::Receive(client, n)));
        }
    }

    fn programs(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, peer) in state.peers.iter().enumerate() {
            if peer.lease.is_none() && peer.read.is_none() && peer.reads < self.reads {
                actions.push(Action::Read(client));
            }
            if peer.writes < self.writes && peer.write.is_none() && peer.recall.is_none() {
                let has_w = peer.lease.is_some_and(|lease| lease.right == Right::W);
                actions.push(if has_w { Action::WriteCopy(client) } else { Action::SendWrite(client) });
            }
            if peer.dirty && peer.flushing.is_none() {
                actions.push(Action::Flush(client));
            }
            if peer.lease.is_some_and(|lease| lease.right == Right::R) && peer.releases < self.releases {
                actions.push(Action::Release(client));
            }
        }
    }
}

impl Model for Recalls {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.clients)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.progress(state, actions);
        self.programs(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Read(client) => state.peers[client].send_read(),
            Action::SendWrite(client) => self.send_write(&mut state, client),
            Action::WriteCopy(client) => state.write_copy(client),
            Action::Flush(client) => state.peers[client].flush(),
            Action::Release(client) => state.peers[client].release(),
            Action::Serve(client, n) => {
                let message = state.peers[client].up.remove(n);
                self.serve(&mut state, client, message);
            }
            Action::Receive(client, n) => {
                let message = state.peers[client].down.remove(n);
                self.receive(&mut state.peers[client], message);
            }
        }
        for peer in &mut state.peers {
            peer.up.sort_unstable();
            peer.down.sort_unstable();
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
