//! A client's side.

use super::{Change, Message, Op, OpState, Reply, Rule, Sessions, State};

impl State {
    pub(crate) fn may_connect(&self, client: usize) -> bool {
        let its = &self.clients[client];
        its.alive && !its.connected && !its.expelled
    }
}

impl Sessions {
    /// A request waits for the one before it in its slot, and for the look-up of its directory.
    pub(crate) fn may_send(&self, state: &State, client: usize, op: usize) -> bool {
        let its = &state.clients[client];
        let slot = self.op(client, op).slot;
        let slot_is_free = (0..op).all(|before| {
            self.op(client, before).slot != slot
                || !matches!(its.ops[before], OpState::Todo | OpState::Sent { .. })
        });
        its.alive
            && its.connected
            && its.ops[op] == OpState::Todo
            && slot_is_free
            && self.find_parent(state, self.op(client, op)).is_some()
    }

    /// The inode number of an operation's directory, when the server can be asked for it and it is
    /// there.
    fn find_parent(&self, state: &State, op: Op) -> Option<u8> {
        match op.under {
            None => Some(0),
            Some(name) if state.recovered.is_some() => self.inode_at(state, name),
            Some(_) => None,
        }
    }

    pub(crate) fn send(&self, state: &mut State, client: usize, op: usize) {
        let parent = self.find_parent(state, self.op(client, op)).unwrap_or(0);
        state.clients[client].ops[op] = OpState::Sent { parent };
        state.up[client].push(Message::Request { op, parent });
    }

    pub(crate) fn connect(&self, state: &mut State, client: usize) {
        let ops = &state.clients[client].ops;
        let mut told: Vec<Change> = ops
            .iter()
            .filter_map(|op| match op {
                OpState::Told(change) if self.keeps(Rule::Replay) => Some(*change),
                _ => None,
            })
            .collect();
        told.sort_by_key(|change| change.lsn);
        if !self.keeps(Rule::ReplayInOrder) {
            told.reverse();
        }
        let mut messages = vec![Message::Hello];
        messages.extend(told.into_iter().map(Message::Replay));
        messages.push(Message::ReplayDone);
        messages.extend(ops.iter().enumerate().filter_map(|(op, its)| match *its {
            OpState::Sent { parent } => Some(Message::Request { op, parent }),
            _ => None,
        }));
        state.up[client] = messages;
        state.clients[client].connected = true;
    }

    pub(crate) fn receive(&self, state: &mut State, client: usize) {
        let reply = state.down[client].remove(0);
        let its = &mut state.clients[client];
        match reply {
            Reply::Done(change) if matches!(its.ops[change.op], OpState::Sent { .. }) => {
                its.ops[change.op] = OpState::Told(change);
            }
            Reply::Done(_) => {}
            Reply::Refused(op) => its.ops[op] = OpState::Refused,
            Reply::Lost(op) => its.ops[op] = OpState::Lost,
            Reply::Durable(watermark) => its.note_durable(watermark),
            Reply::Expelled => {
                its.give_all_up();
                state.up[client].clear();
            }
        }
    }
}

impl super::Client {
    fn note_durable(&mut self, watermark: u8) {
        for op in &mut self.ops {
            if let OpState::Told(change) = *op
                && change.lsn <= watermark
            {
                *op = OpState::Durable(change);
            }
        }
    }

    /// Programs are told EIO for all that is not known to be durable.
    fn give_all_up(&mut self) {
        self.expelled = true;
        self.connected = false;
        for op in &mut self.ops {
            if matches!(op, OpState::Told(_) | OpState::Sent { .. } | OpState::Todo) {
                *op = OpState::Lost;
            }
        }
    }
}
