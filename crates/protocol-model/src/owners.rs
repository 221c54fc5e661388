//! Who owns a shard, among several servers that share one object store: take-over, moves, and
//! servers that come back after they were replaced.
//!
//! **Modelled.** The map object, swapped by compare-and-swap. A record of each server, which the
//! server renews and peers mark as dead. The log of each shard's KV with its writer fence. Puts
//! take effect late, also when their sender has given up or died, or never; a sender that hears
//! nothing looks at the object. Servers freeze and go on, crash, have slow clocks, are suspected
//! although they live, take over at the same time, and move shards. Clients with a session keep
//! what they were told and bring it to the next owner; users of doors have none and ask any server.
//! A server is one process: what starts in its place is another server.
//!
//! With [`Times`] clocks tick, and servers answer by their clocks. Without, a server answers until
//! it is marked, which is what the limits of time provide; this leaves room for more servers, and
//! each run ends.
//!
//! **Assumed.** A session's requests run once by number and outcome, and replays run in their
//! order: [`replay`](crate::replay). Within one owner recalls and grants do not overtake each
//! other: [`copies`](crate::copies). A new owner takes it that each session that came has R on
//! everything: [`clocks`](crate::clocks). The KV waits for the outcome of a commit however long
//! that takes.
//!
//! **Left out.** The order of writes: a value is the set of writes in it, so a read that misses one
//! is old. Exclusive leases, whose changes follow `replay`. Data objects (decisions 16 and 24).

mod client;
mod ownership;
pub mod properties;
mod serving;
mod state;
mod store;

pub use state::{
    Answer, Client, Counts, Entry, Log, Map, Put, PutAt, Record, Run, Server, Shard, Stage, State, What,
    Writes, Wrong,
};
use stateright::{Model, Property};

/// A rule of the protocol that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The map is swapped only if it is what the sender read.
    SwapIfMatch,
    /// No version of the map has the bytes of an earlier one.
    VersionsDiffer,
    /// A server opens what the map names as its own, whatever it heard of its swap.
    MapIsTruth,
    /// A server is marked as dead only if its record is what the peer watched.
    MarkIfMatch,
    /// A server renews its record only if that is what it last wrote.
    RenewIfMatch,
    /// A server whose time is over marks nobody and swaps nothing.
    SwapInTime,
    /// A shard is taken from another server only when that is marked.
    MarkBeforeTake,
    /// A server's time begins when it sends a renewal, not when the answer comes.
    TimeBeginsAtSending,
    /// A server looks at its clock for each answer.
    LookAtEachAnswer,
    /// Clocks differ by less than the difference of the two limits allows.
    ClocksDifferLittle,
    /// A server whose time is over answers no read.
    ReadInTime,
    /// It does not answer a write that is not durable.
    TellInTime,
    /// It answers no keepalive.
    KeepaliveInTime,
    /// A keepalive counts for the leases of the owner that answers it.
    KeepaliveOfOwner,
    /// The commits of a shard's earlier openings fail once it is opened.
    Fence,
    /// What the log has is read after the fence is placed.
    ReadAfterFence,
    /// A server that finds a later epoch in the log gives up.
    LaterEpochWins,
    /// An owner's epoch is in the log before it answers anything.
    EpochBeforeAnswers,
    /// An epoch is opened once: a server that must open again swaps the map first.
    EpochOpenedOnce,
    /// A server that was fenced and is still the owner opens again.
    OpenAgain,
    /// A new owner waits for all sessions, which bring what they were told.
    WaitForSessions,
    /// It waits for them from when it read that it is the owner, not from when its process began.
    WaitFromTakeOver,
    /// That wait begins when the time of the owner before is over.
    WaitAfterPredecessor,
    /// A client takes nothing from an earlier owner once it has gone to a later one.
    OldOwnerIgnored,
    /// All is durable before a shard is moved.
    CommitBeforeMove,
    /// The owner answers nothing from when it sends the swap of a move.
    SilentFromSwap,
    /// An owner that heard nothing of that swap does not go on without a swap of its own.
    TakeBackBySwap,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads the value.
    Read,
    /// Makes the write with this number, from 0 to 7.
    Write(u8),
}

/// A client and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The shard.
    pub shard: usize,
    /// It has a session. Else it is a user of the servers' doors: its writes are answered when they
    /// are durable.
    pub session: bool,
    /// What it does.
    pub ops: &'static [Op],
}

/// The limits of time, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A server answers for so long after it sent the last renewal that was answered.
    pub owner: u8,
    /// Peers mark it as dead when they saw no renewal for so long,
    pub mark: u8,
    /// and a new owner answers when there was none for so long. One of the two is above `owner`.
    pub answer: u8,
    /// A client uses its leases for so long after it sent the last keepalive that was answered. 0:
    /// there are no leases.
    pub client: u8,
    /// A new owner waits so long for sessions.
    pub sessions: u8,
}

/// A configuration. Server 0 owns all shards at the start.
#[derive(Clone, Debug)]
pub struct Owners {
    /// How many servers there are.
    pub servers: usize,
    /// How many of them, the first ones, may freeze, crash or be suspected.
    pub faulty: usize,
    /// How many shards there are.
    pub shards: usize,
    /// The clients.
    pub clients: Vec<Script>,
    /// Clocks, if they tick.
    pub times: Option<Times>,
    /// How often what may happen.
    pub limits: Counts,
    /// The rules that this mutant leaves out.
    pub without: &'static [Rule],
}

/// A step. The numbers are those of a server, then of a shard or a client, if nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes; the clock of server 0 may miss it.
    Tick {
        /// It does.
        missed: bool,
    },
    /// A server stops.
    Freeze(usize),
    /// It goes on.
    Thaw(usize),
    /// It ends.
    Crash(usize),
    /// A put, by its place, takes effect or is refused.
    Land(usize),
    /// A put is lost, and its sender hears nothing.
    Lose(usize),
    /// The sender of a put hears nothing, and goes on.
    GiveUp(usize),
    /// A server renews its record.
    Renew(usize),
    /// It hears that it did.
    Renewed(usize),
    /// It finds itself marked as dead.
    FindMarked(usize),
    /// It marks another as dead: the second number.
    Mark(usize, usize),
    /// The keeper of a server whose process has ended marks it as dead.
    KeeperMarks(usize),
    /// It means to take a shard over.
    Take(usize, usize),
    /// It is the owner of a shard that it must open again.
    SwapAgain(usize, usize),
    /// It is the owner of a shard, and begins to open it.
    Open(usize, usize),
    /// It places its fence.
    Fence(usize, usize),
    /// It sends a commit.
    Commit(usize, usize),
    /// It hears of its commit.
    Committed(usize, usize),
    /// It finds that somebody else has opened its shard.
    FindFenced(usize, usize),
    /// It has waited for sessions.
    EndRecovery(usize, usize),
    /// It takes no more writes, to move a shard.
    Drain(usize, usize),
    /// It sends the swap that moves a shard to the server with the third number.
    HandOver(usize, usize, usize),
    /// In a mutant: it goes on after that.
    Resume(usize, usize),
    /// It makes a client's write.
    Make(usize, usize),
    /// It answers a client.
    Answer(usize, usize),
    /// It recalls a client's lease.
    Recall(usize, usize),
    /// It answers a client's keepalive.
    Keepalive(usize, usize),
    /// A client, the second number, comes to it with what it was told.
    Come(usize, usize),
    /// A client, the only number, asks.
    Ask(usize),
    /// A client gets an answer, by its place.
    Receive(usize),
    /// A client goes silent.
    Silence(usize),
    /// It is heard again.
    Speak(usize),
}

impl Owners {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    /// What goes wrong.
    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        for server in (0..self.faulty).filter(|server| state.servers[*server].run != Run::Ended) {
            if state.runs(server) && state.counts.freezes < self.limits.freezes {
                actions.push(Action::Freeze(server));
            }
            if state.counts.crashes < self.limits.crashes {
                actions.push(Action::Crash(server));
            }
        }
        if state.counts.lost_puts < self.limits.lost_puts {
            let is_swap = |put: &Put| !put.given_up && !matches!(put.what, What::Commit { .. });
            for put in (0..state.puts.len()).filter(|put| is_swap(&state.puts[*put])) {
                actions.extend([Action::Lose(put), Action::GiveUp(put)]);
            }
        }
        for client in 0..self.clients.len() {
            if state.counts.silences < self.limits.silences && !state.clients[client].silent {
                actions.push(Action::Silence(client));
            }
        }
    }

    /// What goes on when nothing more goes wrong.
    fn progress(&self, state: &State, actions: &mut Vec<Action>) {
        self.store_actions(state, actions);
        for server in 0..self.servers {
            match state.servers[server].run {
                Run::Runs => {
                    self.ownership_actions(state, server, actions);
                    self.serving_actions(state, server, actions);
                }
                Run::Frozen => actions.push(Action::Thaw(server)),
                Run::Ended if !state.records[server].marked => actions.push(Action::KeeperMarks(server)),
                Run::Ended => {}
            }
        }
        self.client_actions(state, actions);
    }

    fn environment_step(&self, state: &mut State, action: Action) {
        match action {
            Action::Freeze(server) => {
                state.servers[server].run = Run::Frozen;
                state.counts.freezes += 1;
            }
            Action::Thaw(server) => state.servers[server].run = Run::Runs,
            Action::Crash(server) => {
                state.end_server(server);
                state.counts.crashes += 1;
            }
            Action::Lose(put) => {
                state.puts.remove(put);
                state.counts.lost_puts += 1;
            }
            Action::GiveUp(put) => state.give_up(put),
            Action::Silence(client) => {
                state.clients[client].silent = true;
                state.counts.silences += 1;
            }
            Action::Speak(client) => state.clients[client].silent = false,
            store => self.store_step(state, store),
        }
    }
}

impl Model for Owners {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.progress(state, actions);
        self.faults(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Mark(..)
            | Action::Take(..)
            | Action::SwapAgain(..)
            | Action::Open(..)
            | Action::Fence(..)
            | Action::EndRecovery(..)
            | Action::Drain(..)
            | Action::HandOver(..)
            | Action::Resume(..) => self.ownership_step(&mut state, action),
            Action::Commit(..)
            | Action::Committed(..)
            | Action::FindFenced(..)
            | Action::Make(..)
            | Action::Answer(..)
            | Action::Recall(..)
            | Action::Keepalive(..) => self.serving_step(&mut state, action),
            Action::Come(server, client) => self.come(&mut state, server, client),
            Action::Ask(client) => self.ask(&mut state, client),
            Action::Receive(answer) => self.receive(&mut state, answer),
            other => self.environment_step(&mut state, other),
        }
        state.puts.sort_unstable();
        state.answers.sort_unstable();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
