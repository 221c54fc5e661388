//! The server's side.

use super::{Change, Kind, Message, Op, OpState, Record, Reply, Rule, Saw, Sessions, State, Status};

/// What becomes of a replay now.
enum Replay {
    Already,
    Runs,
    Waits,
    Fails,
}

impl Sessions {
    /// The inode under a name.
    pub(crate) fn inode_at(&self, state: &State, name: u8) -> Option<u8> {
        let last = self.last_change(state, name)?;
        (self.op(last.client, last.op).kind == Kind::Create).then_some(last.inode)
    }

    /// Whether a name is there in the directory under this name.
    fn has_children(&self, state: &State, directory: u8) -> bool {
        let inside = |change: &Change| {
            let op = self.op(change.client, change.op);
            op.under == Some(directory) && self.inode_at(state, op.name).is_some()
        };
        state.changes().any(inside)
    }

    fn last_change<'a>(&self, state: &'a State, name: u8) -> Option<&'a Change> {
        state.changes().rfind(|change| self.op(change.client, change.op).name == name)
    }

    fn version_of(&self, state: &State, name: u8) -> u8 {
        self.last_change(state, name).map_or(0, |change| change.lsn)
    }

    /// The last request that a slot knows. In a mutant it forgets what was not entered in the
    /// transaction, or what the client has confirmed.
    fn last_in_slot(&self, state: &State, client: usize, slot: u8) -> Option<usize> {
        let remembered = if self.keeps(Rule::OutcomeInTransaction) { 0 } else { state.inherited };
        let confirmed = |op: usize| !matches!(state.clients[client].ops[op], OpState::Sent { .. });
        state.history[remembered..]
            .iter()
            .filter_map(|record| match *record {
                Record::Made(Change { client: whose, op, .. }) | Record::Lost { client: whose, op } => {
                    (whose == client && self.op(client, op).slot == slot).then_some(op)
                }
                _ => None,
            })
            .filter(|op| self.keeps(Rule::NumberOutlivesOutcome) || !confirmed(*op))
            .max()
    }

    pub(crate) fn may_serve(&self, state: &State, client: usize, message: &Message) -> bool {
        let refused = state.is_closed(client) && self.keeps(Rule::GivenUpIsFinal);
        match message {
            Message::Hello | Message::ReplayDone => true,
            _ if refused => true,
            Message::Replay(change) => !matches!(self.judge(state, client, change), Replay::Waits),
            Message::Request { op, .. } => {
                let ready = state.sessions[client] == Status::Ready && self.serves_new(state);
                ready && !self.is_just_back(state, client) && !self.waits_for_commit(state, client, *op)
            }
        }
    }

    fn is_just_back(&self, state: &State, client: usize) -> bool {
        self.keeps(Rule::BackDurably) && state.history[state.durable..].contains(&Record::Back(client))
    }

    /// Nothing is there of a silent session that the server has not read.
    pub(crate) fn may_note_away(&self, state: &State, client: usize) -> bool {
        let silent =
            !state.clients[client].connected && state.up[client].is_empty() && state.old[client].is_empty();
        let known = !state.is_closed(client) && !State::is_away(&state.history, client);
        state.recovered.is_some() && state.aways < self.aways && silent && known
    }

    fn serves_new(&self, state: &State) -> bool {
        state.recovered.is_some() || !self.keeps(Rule::ReplayBeforeNew)
    }

    /// Whether a change builds on another session's that is not durable.
    fn waits_for_commit(&self, state: &State, client: usize, op: usize) -> bool {
        let op = self.op(client, op);
        let names = [Some(op.name), op.under];
        let empties = op.kind == Kind::Remove && self.keeps(Rule::EmptinessIsShared);
        let builds_on = |change: &Change| {
            let other = self.op(change.client, change.op);
            let in_it = empties && other.under == Some(op.name);
            change.client != client && (in_it || names.contains(&Some(other.name)))
        };
        self.commit_before_sharing
            && state.history[state.durable..]
                .iter()
                .any(|record| matches!(record, Record::Made(change) if builds_on(change)))
    }

    pub(crate) fn serve(&self, state: &mut State, client: usize, message: Message, answers: bool) {
        let reply = match message {
            Message::Hello => self.greet(state, client),
            _ if state.is_closed(client) && self.keeps(Rule::GivenUpIsFinal) => None,
            Message::Replay(change) => self.replay(state, client, change),
            Message::ReplayDone => {
                state.sessions[client] = Status::Ready;
                self.end_recovery(state);
                None
            }
            Message::Request { op, parent } => self.request(state, client, op, parent),
        };
        if answers && state.clients[client].connected {
            state.down[client].extend(reply);
        }
    }

    fn greet(&self, state: &mut State, client: usize) -> Option<Reply> {
        if self.keeps(Rule::DropOldConnection) {
            state.old[client].clear();
        }
        if state.is_closed(client) {
            return Some(Reply::Expelled);
        }
        if State::is_away(&state.history, client) {
            state.history.push(Record::Back(client));
        }
        if state.sessions[client] == Status::Absent || self.keeps(Rule::WatermarkAfterReplayOfConnection) {
            state.sessions[client] = Status::Replaying;
        }
        None
    }

    fn replay(&self, state: &mut State, client: usize, change: Change) -> Option<Reply> {
        match self.judge(state, client, &change) {
            Replay::Already => state.is_lost(client, change.op).then_some(Reply::Lost(change.op)),
            Replay::Waits => None,
            Replay::Fails => {
                state.history.push(Record::Lost { client, op: change.op });
                Some(Reply::Lost(change.op))
            }
            Replay::Runs => {
                let mut again = change;
                if !self.keeps(Rule::RecordedOutcome) {
                    state.last_number += 1;
                    again.inode = state.last_number;
                }
                state.history.push(Record::Made(again));
                None
            }
        }
    }

    fn judge(&self, state: &State, client: usize, change: &Change) -> Replay {
        let op = self.op(client, change.op);
        if self.last_in_slot(state, client, op.slot).is_some_and(|last| change.op <= last) {
            return Replay::Already;
        }
        let Some(missing) = self.missing_version(state, op, change.saw) else { return Replay::Runs };
        if !self.keeps(Rule::VersionCheck) {
            return Replay::Runs;
        }
        if self.keeps(Rule::WaitForVersion) && self.may_still_come(state, client, missing) {
            return Replay::Waits;
        }
        Replay::Fails
    }

    /// The version that a replay needs and that is not there.
    fn missing_version(&self, state: &State, op: Op, saw: Saw) -> Option<u8> {
        if self.version_of(state, op.name) != saw.name_version {
            return Some(saw.name_version);
        }
        let parent = op.under.map_or(Some(0), |name| self.inode_at(state, name));
        (parent != Some(saw.parent)).then_some(saw.parent)
    }

    /// Whether a session that still replays may bring a version: if it has announced nothing, or
    /// nothing younger.
    fn may_still_come(&self, state: &State, client: usize, version: u8) -> bool {
        (0..state.sessions.len()).any(|other| {
            let finished = state.sessions[other] == Status::Ready || state.is_closed(other);
            let next = match state.up[other].first() {
                Some(Message::Replay(change)) if state.sessions[other] == Status::Replaying => change.lsn,
                _ => 0,
            };
            other != client && !finished && (next <= version || !self.keeps(Rule::WaitForOlderOnly))
        })
    }

    fn request(&self, state: &mut State, client: usize, op: usize, parent: u8) -> Option<Reply> {
        let script = self.op(client, op);
        match self.last_in_slot(state, client, script.slot) {
            Some(last) if last > op => return None,
            Some(last) if last == op => {
                return Some(
                    state.change_of(client, op).map_or(Reply::Lost(op), |change| Reply::Done(*change)),
                );
            }
            _ => {}
        }
        let exists = self.inode_at(state, script.name).is_some();
        let parent_is_there = script.under.is_none_or(|name| self.inode_at(state, name) == Some(parent));
        let is_in_use = script.kind == Kind::Remove && self.has_children(state, script.name);
        if exists == (script.kind == Kind::Create) || !parent_is_there || is_in_use {
            return Some(Reply::Refused(op));
        }
        state.last_number += 1;
        let (lsn, inode) = (state.last_number, state.last_number);
        let saw = Saw { name_version: self.version_of(state, script.name), parent };
        let change = Change { client, op, lsn, inode, saw };
        state.history.push(Record::Made(change));
        Some(Reply::Done(change))
    }

    pub(crate) fn may_tell_durable(&self, state: &State, client: usize) -> bool {
        let watermark = self.watermark(state);
        let its = &state.clients[client];
        let waits = its.ops.iter().any(|op| matches!(op, OpState::Told(change) if change.lsn <= watermark));
        let said = state.down[client].iter().any(|reply| matches!(reply, Reply::Durable(_)));
        let greeted = its.connected && !state.up[client].contains(&Message::Hello);
        greeted && state.sessions[client] == Status::Ready && waits && !said
    }

    /// All changes up to here are durable; 0: the server cannot say.
    pub(crate) fn watermark(&self, state: &State) -> u8 {
        let all_replayed_is_durable = state.recovered.is_some_and(|length| length <= state.durable);
        if self.keeps(Rule::WatermarkAfterReplay) && !all_replayed_is_durable {
            return 0;
        }
        let durable = &state.history[..state.durable];
        let lsn = |record: &Record| if let Record::Made(change) = record { change.lsn } else { 0 };
        durable.iter().map(lsn).max().unwrap_or(0)
    }

    /// A session is given up in recovery only: of a dead client, of one that is late, or of
    /// one that was told so by the process before, whose record of that the crash undid.
    pub(crate) fn may_give_up(&self, state: &State, client: usize) -> bool {
        let waited_for = state.recovered.is_none() && state.sessions[client] != Status::Ready;
        let its = &state.clients[client];
        let silent = !its.alive || its.expelled || state.late < self.late;
        self.keeps(Rule::GiveUp) && waited_for && silent && !state.is_closed(client)
    }

    pub(crate) fn give_up(&self, state: &mut State, client: usize) {
        state.late += u8::from(state.clients[client].alive && !state.clients[client].expelled);
        state.history.push(Record::Closed(client));
        if state.sessions[client] == Status::Replaying && state.clients[client].connected {
            state.down[client].push(Reply::Expelled);
        }
        self.end_recovery(state);
    }

    /// Recovery ends when no session is waited for.
    pub(crate) fn end_recovery(&self, state: &mut State) {
        let given_up = |client: usize| match self.keeps(Rule::GivenUpDurably) {
            true => state.is_closed_durably(client),
            false => state.is_closed(client),
        };
        let away = |client: usize| {
            state.sessions[client] == Status::Absent
                && State::is_away(&state.history[..state.durable], client)
        };
        let over = (0..state.sessions.len())
            .all(|client| state.sessions[client] == Status::Ready || given_up(client) || away(client));
        if over && state.recovered.is_none() {
            state.recovered = Some(state.history.len());
        }
    }

    pub(crate) fn commit(&self, state: &mut State) {
        state.durable = state.history.len();
        self.end_recovery(state);
    }

    pub(crate) fn crash(&self, state: &mut State) {
        state.crashes += 1;
        state.history.truncate(state.durable);
        state.inherited = state.history.len();
        state.recovered = None;
        if !self.keeps(Rule::FreshNumbers) {
            state.last_number = state.changes().map(|change| change.lsn).max().unwrap_or(0);
        }
        for client in 0..state.sessions.len() {
            state.sessions[client] = Status::Absent;
            state.clients[client].connected = false;
            state.up[client].clear();
            state.old[client].clear();
            state.down[client].clear();
        }
        self.end_recovery(state);
    }
}
