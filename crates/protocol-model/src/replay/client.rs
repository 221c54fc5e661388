//! A client's side.

use super::{Change, Client, Message, OpState, Replays, Reply, Rule, State};

impl Client {
    pub(crate) fn may_connect(&self) -> bool {
        self.alive && !self.connected && !self.expelled
    }

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

impl Replays {
    /// A request waits for the one before it in its slot, and for the look-up of what it names.
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
            && self.look_up(state, client, op).is_some()
    }

    /// The inode number that a request carries: of the directory of a name, or of the file.
    fn look_up(&self, state: &State, client: usize, op: usize) -> Option<u8> {
        let op = self.op(client, op);
        let name = if op.kind.is_name() { op.under } else { Some(op.name) };
        match name {
            None => Some(0),
            Some(name) if state.recovered.is_some() => self.inode_at(&state.history, name),
            Some(_) => None,
        }
    }

    pub(crate) fn send(&self, state: &mut State, client: usize, op: usize) {
        let target = self.look_up(state, client, op).unwrap_or(0);
        state.clients[client].ops[op] = OpState::Sent { target };
        state.up[client].push(Message::Request { op, target });
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
        let mut messages = vec![Message::Hello];
        messages.extend(told.into_iter().map(Message::Replay));
        messages.push(Message::ReplayDone);
        messages.extend(ops.iter().enumerate().filter_map(|(op, its)| match *its {
            OpState::Sent { target } => Some(Message::Request { op, target }),
            _ => None,
        }));
        state.up[client] = messages;
        state.clients[client].connected = true;
    }
}

impl State {
    pub(crate) fn receive(&mut self, client: usize, n: usize) {
        let reply = self.down[client].remove(n);
        let its = &mut self.clients[client];
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
                self.up[client].clear();
            }
        }
    }
}
