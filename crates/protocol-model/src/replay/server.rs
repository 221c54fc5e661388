//! The server's side.

use super::{Change, Kind, Message, OpState, Record, Replays, Reply, Rule, State, Status};

/// What a replay still has to do.
enum Judgement {
    /// All of it is there.
    Already,
    /// Its record and, of content, that.
    Runs,
    /// Its content; its record is committed.
    Content,
    /// What it changes is not there.
    Fails,
}

impl Replays {
    /// The inode under a name.
    pub(crate) fn inode_at(&self, history: &[Record], name: u8) -> Option<u8> {
        if name == super::OLD {
            return Some(0);
        }
        let is_its = |change: &&Change| self.op_of(change).name == name && self.op_of(change).kind.is_name();
        let last = State::changes(history).rfind(is_its)?;
        (self.op_of(last).kind == Kind::Create).then_some(last.inode)
    }

    /// Whether an inode is there, by these records.
    pub(crate) fn is_there(&self, history: &[Record], inode: u8) -> bool {
        let made = |change: &Change| self.op_of(change).kind == Kind::Create && change.inode == inode;
        let mut births = State::changes(history).filter(|change| made(change));
        inode == 0 || births.any(|birth| self.inode_at(history, self.op_of(birth).name) == Some(inode))
    }

    fn has_children(&self, state: &State, directory: u8) -> bool {
        let inside = |change: &Change| {
            let op = self.op_of(change);
            op.under == Some(directory) && self.inode_at(&state.history, op.name).is_some()
        };
        State::changes(&state.history).any(inside)
    }

    /// How long a file is.
    fn length(&self, state: &State, inode: u8) -> u8 {
        let its = state.content().filter(|change| change.inode == inode);
        its.fold(0, |length, change| match self.op_of(change).kind {
            Kind::Truncate => 0,
            _ => length.max(change.offset + 1),
        })
    }

    /// The outcome in a slot. In a mutant only this process knows it.
    fn last_in_slot<'a>(&self, state: &'a State, client: usize, slot: u8) -> Option<&'a Change> {
        let remembered = if self.keeps(Rule::OutcomeInTransaction) { 0 } else { state.inherited };
        let its = state.history.iter().enumerate().skip(remembered).rev();
        its.filter(|(n, record)| *n >= state.inherited || self.has_outcome(record)).find_map(|(_, record)| {
            match record {
                Record::Made(change) | Record::Outcome(change) => {
                    (change.client == client && self.op_of(change).slot == slot).then_some(change)
                }
                _ => None,
            }
        })
    }

    /// Whether the outcome of a change is stored.
    fn has_outcome(&self, record: &Record) -> bool {
        let overwrites = |change: &Change| matches!(self.op_of(change).kind, Kind::Write(_) | Kind::Truncate);
        self.keeps(Rule::ContentHasOutcome) || !matches!(record, Record::Made(change) if overwrites(change))
    }

    pub(crate) fn may_serve(&self, state: &State, client: usize, message: &Message) -> bool {
        match message {
            Message::Hello | Message::ReplayDone => true,
            _ if state.is_closed(client) && self.keeps(Rule::ClosedIsFinal) => true,
            Message::Replay(change) => {
                let merged = self.keeps(Rule::MergedReplay) && state.recovered.is_none();
                !merged
                    || (0..state.sessions.len()).all(|other| {
                        other == client
                            || self.is_settled(state, other)
                            || next_is_after(state, other, change)
                    })
            }
            Message::Request { op, .. } => {
                let serves_new = state.recovered.is_some() || !self.keeps(Rule::ReplayBeforeNew);
                let is_just_back = self.keeps(Rule::BackDurably)
                    && state.history[state.durable..].contains(&Record::Back(client));
                serves_new
                    && state.sessions[client] == Status::Ready
                    && !is_just_back
                    && !self.waits_for_commit(state, client, *op)
            }
        }
    }

    /// Whether recovery has nothing to wait for from a session.
    fn is_settled(&self, state: &State, client: usize) -> bool {
        let is_away = state.sessions[client] == Status::Absent
            && State::is_away(&state.history[..state.durable], client);
        state.sessions[client] == Status::Ready || state.is_closed(client) || is_away
    }

    /// Whether a change builds on another session's that is not committed.
    fn waits_for_commit(&self, state: &State, client: usize, n: usize) -> bool {
        let op = self.op(client, n);
        let builds_on = |change: &Change| {
            let other = self.op_of(change);
            let is_named = [Some(op.name), op.under].contains(&Some(other.name));
            let is_emptied = op.kind == Kind::Remove && other.under == Some(op.name);
            other.kind.is_name() && (is_named || is_emptied)
        };
        let rule = match op.kind.is_name() {
            true => Rule::CommitBeforeSharing,
            false => Rule::BirthsBeforeContent,
        };
        self.keeps(rule)
            && State::changes(&state.history[state.durable..])
                .any(|change| change.client != client && builds_on(change))
    }

    pub(crate) fn serve(&self, state: &mut State, client: usize) {
        let reply = match state.up[client].remove(0) {
            Message::Hello => self.greet(state, client),
            _ if state.is_closed(client) && self.keeps(Rule::ClosedIsFinal) => None,
            Message::Replay(change) => self.replay(state, change),
            Message::ReplayDone => {
                state.sessions[client] = Status::Ready;
                self.end_recovery(state);
                None
            }
            Message::Request { op, target } => Some(self.request(state, client, op, target)),
        };
        if state.clients[client].connected {
            state.down[client].extend(reply);
        }
    }

    fn greet(&self, state: &mut State, client: usize) -> Option<Reply> {
        if state.is_closed(client) {
            return Some(Reply::Expelled);
        }
        if State::is_away(&state.history, client) {
            state.history.push(Record::Back(client));
        }
        if state.sessions[client] == Status::Absent {
            state.sessions[client] = Status::Replaying;
        }
        if self.keeps(Rule::UnansweredInPlace) {
            self.replay_unanswered(state, client);
        }
        None
    }

    /// Puts what was not answered, but has an outcome, among the replays of its session.
    fn replay_unanswered(&self, state: &mut State, client: usize) {
        let found: Vec<Change> = state.up[client]
            .iter()
            .filter_map(|message| match message {
                Message::Request { op, .. } => {
                    let last = self.last_in_slot(state, client, self.op(client, *op).slot)?;
                    (last.op == *op).then_some(*last)
                }
                _ => None,
            })
            .collect();
        for change in found {
            let is_later = |message: &Message| match message {
                Message::Replay(other) => other.lsn > change.lsn,
                _ => true,
            };
            let place = state.up[client].iter().position(is_later).unwrap_or(0);
            state.up[client].insert(place, Message::Replay(change));
        }
    }

    fn replay(&self, state: &mut State, change: Change) -> Option<Reply> {
        let is_content = self.op_of(&change).kind.is_content();
        match self.judge(state, &change) {
            Judgement::Already => None,
            Judgement::Fails => {
                state.history.push(Record::Lost { client: change.client, op: change.op });
                Some(Reply::Lost(change.op))
            }
            Judgement::Runs => {
                state.history.push(Record::Made(change));
                if is_content {
                    self.change_content(state, change);
                }
                None
            }
            Judgement::Content => {
                if !self.keeps(Rule::NewerOutcomeStays) {
                    state.history.push(Record::Outcome(change));
                }
                if !self.keeps(Rule::NewerAttributesStay) {
                    state.history.push(Record::Attributes(change));
                }
                self.change_content(state, change);
                None
            }
        }
    }

    fn change_content(&self, state: &mut State, mut change: Change) {
        if !self.keeps(Rule::AppendAtOffset) && self.op_of(&change).kind == Kind::Append {
            change.offset = self.length(state, change.inode);
        }
        state.pending.push(change);
    }

    fn judge(&self, state: &State, change: &Change) -> Judgement {
        let op = self.op_of(change);
        let is_same = |other: &Change| other.is(change);
        let ran = State::changes(&state.history[state.inherited..]).any(is_same)
            || state.pending.iter().any(is_same);
        if ran && self.keeps(Rule::ReplayOnce) {
            return Judgement::Already;
        }
        let has_record = self.keeps(Rule::RecordsByCommitted) && change.lsn <= state.committed();
        if op.kind.is_content() {
            return self.judge_content(state, change, has_record);
        }
        if has_record {
            return Judgement::Already;
        }
        match self.runs(state, change.client, change.op, self.target(change)) {
            true => Judgement::Runs,
            false => Judgement::Fails,
        }
    }

    fn judge_content(&self, state: &State, change: &Change, has_record: bool) -> Judgement {
        let last = match self.keeps(Rule::ContentNotByCommitted) {
            true => state.content_lsn(change.inode),
            false => state.committed(),
        };
        let is_in = self.keeps(Rule::ContentByFile) && change.lsn <= last;
        match self.is_there(&state.history, change.inode) {
            _ if is_in => Judgement::Already,
            true if has_record => Judgement::Content,
            true => Judgement::Runs,
            false if has_record && self.keeps(Rule::GoneIsDone) => Judgement::Already,
            false => Judgement::Fails,
        }
    }

    fn target(&self, change: &Change) -> u8 {
        if self.op_of(change).kind.is_name() { change.parent } else { change.inode }
    }

    /// Whether what a change needs is there.
    fn runs(&self, state: &State, client: usize, op: usize, target: u8) -> bool {
        let op = self.op(client, op);
        let target_is_there = self.is_there(&state.history, target);
        let name_is_there = self.inode_at(&state.history, op.name).is_some();
        target_is_there
            && match op.kind {
                Kind::Create => !name_is_there,
                Kind::Remove => name_is_there && !self.has_children(state, op.name),
                _ => true,
            }
    }

    fn request(&self, state: &mut State, client: usize, op: usize, target: u8) -> Reply {
        let script = self.op(client, op);
        if let Some(last) = self.last_in_slot(state, client, script.slot).copied()
            && last.op == op
        {
            // with the rule, recovery has replayed it
            let is_missing = script.kind.is_content()
                && last.lsn > state.content_lsn(last.inode)
                && !state.pending.iter().any(|pending| pending.is(&last))
                && self.is_there(&state.history, last.inode);
            if is_missing {
                state.pending.push(last);
            }
            return Reply::Done(last);
        }
        if !self.runs(state, client, op, target) {
            return Reply::Refused(op);
        }
        state.last_number += 1;
        let lsn = state.last_number;
        let (inode, parent) = if script.kind.is_name() { (lsn, target) } else { (target, 0) };
        let offset = match script.kind {
            Kind::Write(offset) => offset,
            Kind::Append => self.length(state, inode),
            _ => 0,
        };
        let change = Change { client, op, lsn, inode, parent, offset };
        state.history.push(Record::Made(change));
        if script.kind.is_content() {
            state.pending.push(change);
        }
        Reply::Done(change)
    }

    pub(crate) fn may_tell_durable(&self, state: &State, client: usize) -> bool {
        let watermark = self.watermark(state);
        let its = &state.clients[client];
        let waits = its.ops.iter().any(|op| matches!(op, OpState::Told(change) if change.lsn <= watermark));
        let said = state.down[client].iter().any(|reply| matches!(reply, Reply::Durable(_)));
        let greeted = its.connected && !state.up[client].contains(&Message::Hello);
        let has_replayed = state.sessions[client] == Status::Ready || !self.keeps(Rule::DurableAfterRecovery);
        greeted && has_replayed && waits && !said
    }

    /// All changes up to here are durable; 0: the server cannot say.
    pub(crate) fn watermark(&self, state: &State) -> u8 {
        let all_replayed_is_durable = state.recovered.is_some_and(|length| length <= state.durable);
        if self.keeps(Rule::DurableAfterRecovery) && !all_replayed_is_durable {
            return 0;
        }
        let first_pending = state.pending.iter().map(|change| change.lsn).min();
        match first_pending {
            Some(lsn) if self.keeps(Rule::DurableCoversContent) => state.committed().min(lsn - 1),
            _ => state.committed(),
        }
    }

    /// Nothing is there of a silent session that the server has not read.
    pub(crate) fn may_note_away(&self, state: &State, client: usize) -> bool {
        let silent = !state.clients[client].connected && state.up[client].is_empty();
        let known = !state.is_closed(client) && !State::is_away(&state.history, client);
        let last = State::changes(&state.history).filter(|change| change.client == client);
        let is_durable = last.map(|change| change.lsn).max().unwrap_or(0) <= self.watermark(state);
        state.recovered.is_some()
            && state.aways < self.aways
            && silent
            && known
            && (is_durable || !self.keeps(Rule::AwayWhenDurable))
    }

    /// A session is closed in recovery only: of a dead client, of one that is late, or of one that
    /// was told so by the process before, whose record of that the crash undid.
    pub(crate) fn may_close(&self, state: &State, client: usize) -> bool {
        let waited_for = state.recovered.is_none() && state.sessions[client] != Status::Ready;
        let its = &state.clients[client];
        let silent = !its.alive || its.expelled || state.late < self.late;
        self.keeps(Rule::Close) && waited_for && silent && !state.is_closed(client)
    }

    pub(crate) fn close(&self, state: &mut State, client: usize) {
        state.late += u8::from(state.clients[client].alive && !state.clients[client].expelled);
        match self.keeps(Rule::ClosedBeforeReplays) {
            true => state.history.push(Record::Closed(client)),
            false => state.closing[client] = true,
        }
        if state.sessions[client] == Status::Replaying && state.clients[client].connected {
            state.down[client].push(Reply::Expelled);
        }
        self.end_recovery(state);
    }

    /// Recovery ends when no session is waited for.
    fn end_recovery(&self, state: &mut State) {
        let durable = &state.history[..state.durable];
        let is_over = (0..state.sessions.len()).all(|client| {
            let closed = durable.contains(&Record::Closed(client)) || !self.keeps(Rule::ClosedDurably);
            self.is_settled(state, client) && (!state.is_closed(client) || closed)
        });
        if is_over && state.recovered.is_none() {
            state.recovered = Some(state.history.len());
        }
    }

    /// Content that did not wait for a closed session enters when that is durable.
    pub(crate) fn may_enter(&self, state: &State) -> bool {
        let is_closed_in_memory =
            |record: &Record| matches!(record, Record::Closed(_)) && self.keeps(Rule::ClosedBeforeContent);
        !state.history[state.durable..].iter().any(is_closed_in_memory)
    }

    /// The content of a file that is gone goes with it.
    pub(crate) fn commit(&self, state: &mut State) {
        state.durable = state.history.len();
        let mut pending = std::mem::take(&mut state.pending);
        pending.retain(|change| self.is_there(&state.history, change.inode));
        state.pending = pending;
        self.end_recovery(state);
    }

    pub(crate) fn crash(&self, state: &mut State) {
        state.crashes += 1;
        state.history.truncate(state.durable);
        state.pending.clear();
        state.inherited = state.history.len();
        state.recovered = None;
        if !self.keeps(Rule::FreshNumbers) {
            state.last_number = state.committed();
        }
        for client in 0..state.sessions.len() {
            state.sessions[client] = Status::Absent;
            state.closing[client] = false;
            state.clients[client].connected = false;
            state.up[client].clear();
            state.down[client].clear();
        }
        self.end_recovery(state);
    }
}

/// Whether the next replay of a session has a higher number.
fn next_is_after(state: &State, other: usize, change: &Change) -> bool {
    let is_greeted = state.sessions[other] == Status::Replaying;
    is_greeted && matches!(state.up[other].first(), Some(Message::Replay(next)) if next.lsn > change.lsn)
}
