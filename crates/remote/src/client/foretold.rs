//! Changes that a program is told of before the server has made them, and calls that must not
//! overtake them.
//!
//! A change that this client alone may make (`copies/foretell.rs`) is told at once, and sent in the
//! line of its user. Another call that touches what such changes are about follows them: a read or
//! fsync of the same user in the same line; anything else waits here until they are answered. For
//! while the server waits for leases on behalf of a change, others may wait for what is behind it
//! in the line.

use super::behind::{Behind, Ticket, Until, Whose};
use super::copies::{Asked, Copies};
use super::slots::{Answer, Outstanding};
use super::{Client, Phase, Shared, files};
use crate::message::{Behind as Told, Call, Caller, ToServer, frame};
use leeward_env::{Ctx, Nanos};
use leeward_fs::codec::{Input, Wire};
use leeward_fs::{Attr, Effect, Entry, Error, NodeId, Op, Reply, Result};
use std::sync::Arc;
use std::time::Duration;

/// How long exclusive leases are kept that are not used, and how many are given up in one message.
const IDLE_TIME: Nanos = 30_000_000_000;
const SHARE_MAX: usize = 4096;
/// How long a mount that ends waits for the server to answer what it was told.
const END_TIME: Duration = Duration::from_secs(5);

/// What comes of an operation that is to be told before the server has made it.
pub(super) enum Foretelling {
    /// It is told and sent.
    Told(Reply),
    /// It could be, were there room.
    NoRoom,
    /// The server is to be asked.
    No,
}

/// Bytes that a change brings; `None`: it is never told before the server has made it.
fn bytes_of(op: &Op<'_>) -> Option<usize> {
    match op {
        Op::Write { data, .. } => Some(data.len()),
        Op::SetAttr { set, .. } if set.size.is_none() && set.flags.is_none() => Some(0),
        Op::Make { .. } | Op::Unlink { .. } | Op::RmDir { .. } | Op::Rename { .. } => Some(0),
        _ => None,
    }
}

/// Does something with an operation later, when what it borrows may be gone.
fn later(
    op: Op<'_>,
    answer: Answer,
    then: impl FnOnce(Op<'_>, Answer) + Send + 'static,
) -> Box<dyn FnOnce() + Send> {
    let mut bytes = Vec::new();
    op.put(&mut bytes);
    Box::new(move || match Op::take(&mut Input::new(&bytes)) {
        Ok(op) => then(op, answer),
        Err(_) => answer(Err(Error::Invalid)),
    })
}

impl Client {
    /// Runs a change when there is room to tell it. Sent as others are it would wait for all that
    /// is under way, and what is known of its inode would be gone for those after it.
    pub(super) fn wait_for_room(&self, (ctx, op): (Ctx, Op<'_>), answer: Answer) {
        let client = self.clone();
        let then = later(op, answer, move |op, answer| match client.foretell(&ctx, &op, true) {
            Foretelling::Told(reply) => answer(Ok(reply)),
            Foretelling::NoRoom => client.wait_for_room((ctx, op), answer),
            Foretelling::No => super::Backend::run(&client, ctx, op, answer),
        });
        let now = self.0.behind.lock().when_there_is_room(ctx.uid, bytes_of(&op).unwrap_or(0), then);
        if now.is_empty() {
            // somebody waits: nothing gathers any longer
            self.0.flush();
        }
        now.into_iter().for_each(|then| then());
    }

    /// Gives the answer to a change of a file. Where this client alone decides on the file by now,
    /// and changes it not for the first time, it asks for the attributes before: what comes next is
    /// told without asking, where it is a write. A program that writes on would be faster than
    /// attributes that are asked for beside it, and its write void them.
    pub(super) fn answer_prepared(
        &self,
        ctx: &Ctx,
        (node, is_write): (NodeId, bool),
        result: Result<Reply>,
        answer: impl FnOnce(Result<Reply>) + Send + 'static,
    ) {
        if result.is_ok() && self.0.copies.lack_own_attr(node) && is_write {
            self.ask_op(ctx, Op::GetAttr { node }, Box::new(move |_| answer(result)));
        } else {
            answer(result);
        }
    }

    /// Tells what comes of a change, and sends it, if this client alone decides. `promised`: it has
    /// waited for room.
    pub(super) fn foretell(&self, ctx: &Ctx, op: &Op<'_>, promised: bool) -> Foretelling {
        let Some(bytes) = bytes_of(op) else { return Foretelling::No };
        let mut behind = self.0.behind.lock();
        let (has_room, nodes) = (behind.may_begin(ctx.uid, bytes, promised), self.involved(op));
        // the lines of two users do not wait for each other
        if behind.whose(ctx.uid, &nodes) == Whose::Others {
            return Foretelling::No;
        }
        if !has_room {
            let waits = behind.is_busy(ctx.uid) && self.0.copies.are_alone(&nodes);
            return if waits { Foretelling::NoRoom } else { Foretelling::No };
        }
        let told = self.tell(ctx, (op, bytes), &mut behind);
        drop(behind);
        let Some(reply) = told else { return Foretelling::No };
        if let Some(node) = files::changed(op) {
            self.0.files.lock().changed(node);
        }
        Foretelling::Told(reply)
    }

    fn tell(&self, ctx: &Ctx, (op, bytes): (&Op<'_>, usize), behind: &mut Behind) -> Option<Reply> {
        let caller = self.caller(ctx, op);
        let mut state = self.0.state.lock();
        let Phase::Up(pipe) = &state.phase else { return None };
        if !state.slots.are_free() {
            return None;
        }
        let pipe = pipe.clone();
        let now = self.0.env.now();
        let made = match *op {
            Op::Make { dir, .. } => {
                let (made, is_short) = behind.take_number(dir.volume());
                if is_short {
                    self.ask_for_numbers(&mut state, dir.volume());
                }
                Some(made?)
            }
            _ => None,
        };
        let at = behind.time(now);
        let Some(told) = self.0.copies.foretell(ctx, op, at, made) else {
            made.into_iter().for_each(|made| behind.put_number_back(made));
            return None;
        };
        let is_first = behind.is_empty();
        let ticket = behind.begin(ctx.uid, told.nodes, bytes, now);
        let order = ticket.order();
        let client = self.clone();
        let answer: Answer = Box::new(move |result| client.0.answered_behind(&ticket, result.map(drop)));
        let node = made.map_or(0, |made| made.0);
        let call = Call::InOrder(caller, Some(Told { at, node }), *op);
        let call = Outstanding::new(call, now, Some(told.asked), answer).in_order(order);
        if let Some(place) = state.slots.enter(call) {
            let frame = state.slots.sending(place);
            // while one is under way the next ones gather for a moment: the thread `remote` sends
            // them
            if is_first { pipe.send_large(&frame) } else { pipe.gather(&frame, now) }
        }
        Some(told.reply)
    }

    fn ask_for_numbers(&self, state: &mut super::State, volume: u32) {
        let client = self.clone();
        let answer: Answer = Box::new(move |result| {
            let first = result.ok().and_then(|reply| match reply {
                Reply::Offset(first) => Some(first),
                _ => None,
            });
            client.0.behind.lock().add_numbers(volume, first);
        });
        let call = Outstanding::new(Call::Numbers { volume }, self.0.env.now(), None, answer);
        let place = state.slots.enter(call);
        state.send(place);
    }

    /// Sends an operation that is not told before; after what it must not overtake.
    pub(super) fn ask_op(&self, ctx: &Ctx, op: Op<'_>, answer: Answer) {
        self.ask_read(ctx, op, answer, |copies| copies.asked(ctx, &op));
    }

    /// The same. `asked`: what is noted of it when it is sent.
    pub(super) fn ask_read(
        &self,
        ctx: &Ctx,
        op: Op<'_>,
        answer: Answer,
        asked: impl FnOnce(&Copies) -> Asked,
    ) {
        let caller = self.caller(ctx, &op);
        let nodes = self.involved(&op);
        let behind = self.0.behind.lock();
        let whose = match op {
            Op::SyncAll if !behind.is_empty() => Whose::Others,
            _ => behind.whose(ctx.uid, &nodes),
        };
        // from now on nothing is told of what it changes
        let asked = asked(&self.0.copies);
        match (whose, op.effect()) {
            (Whose::Nobodys, _) => {
                drop(behind);
                self.ask(Call::Op(caller, op), Some(asked), answer);
            }
            (Whose::Own, Effect::Reads | Effect::Settles) => {
                // what it must not overtake is on its way
                let order = behind.end_order();
                drop(behind);
                self.ask_in_order(Call::InOrder(caller, None, op), order, Some(asked), answer);
            }
            _ => {
                let until = if op == Op::SyncAll { behind.all_ends() } else { behind.ends(&nodes) };
                drop(behind);
                self.ask_after(until, (caller, op), asked, answer);
            }
        }
    }

    /// Sends an operation when these changes are answered.
    fn ask_after(&self, until: Until, (caller, op): (Caller, Op<'_>), asked: Asked, answer: Answer) {
        let client = self.clone();
        let ask = move |op: Op<'_>, answer: Answer| client.ask(Call::Op(caller, op), Some(asked), answer);
        self.0.when_answered(until, later(op, answer, ask));
    }

    /// The inodes that an operation is about, with those behind its names as far as they are known.
    fn involved(&self, op: &Op<'_>) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = op.node().into_iter().collect();
        let mut names = |dir: NodeId, name: &[u8]| {
            nodes.push(dir);
            nodes.extend(self.0.copies.behind_name(dir, name));
        };
        match *op {
            Op::Lookup { dir, name }
            | Op::Make { dir, name, .. }
            | Op::Unlink { dir, name, .. }
            | Op::RmDir { dir, name } => names(dir, name),
            Op::Rename { from_dir, from_name, to_dir, to_name, .. } => {
                names(from_dir, from_name);
                names(to_dir, to_name);
            }
            Op::Link { node, dir, name } | Op::Place { node, dir, name, .. } => {
                names(dir, name);
                nodes.push(node);
            }
            Op::CopyRange { from, to, .. } => nodes.extend([from, to]),
            _ => (),
        }
        nodes
    }

    /// Returns references, of inodes with changes under way when those are answered. The inodes
    /// that are left to be returned now.
    pub(super) fn forget_answered(&self, ctx: Ctx, all: &[(NodeId, u64)]) -> Vec<(NodeId, u64)> {
        let mut behind = self.0.behind.lock();
        if behind.is_empty() {
            return all.to_vec();
        }
        let (later, mut now): (Vec<_>, Vec<_>) = all.iter().partition(|(node, _)| behind.touches(*node));
        for (node, count) in later {
            let (client, until) = (self.clone(), behind.ends(&[node]));
            let then = move || super::Backend::forget_all(&client, ctx, &[(node, count)]);
            if behind.when_answered(until, Box::new(then)).is_some() {
                now.push((node, count));
            }
        }
        now
    }

    /// Whether attributes in an answer may be older than what programs were told.
    fn may_be_old(&self, attr: &Attr) -> bool {
        self.0.behind.lock().touches(attr.node) || self.0.copies.may_be_old(attr)
    }

    /// Looks up a name at the server. Behind one that is not known here may be an inode of which
    /// programs were told what the server has not done yet: then once more, after that. `before`:
    /// the inode that was found before, and what it was told then is done.
    pub(super) fn look_up(
        &self,
        ctx: Ctx,
        (dir, name): (NodeId, &[u8]),
        before: Option<NodeId>,
        answer: Answer,
    ) {
        let (client, kept): (_, Box<[u8]>) = (self.clone(), name.into());
        let found = move |result: Result<Reply>| match result {
            Ok(Reply::Attr(attr)) if before != Some(attr.node) && client.may_be_old(&attr) => {
                client.look_up_again(ctx, (dir, kept), attr.node, answer);
            }
            other => answer(other),
        };
        self.ask_op(&ctx, Op::Lookup { dir, name }, Box::new(found));
    }

    fn look_up_again(&self, ctx: Ctx, (dir, name): (NodeId, Box<[u8]>), before: NodeId, answer: Answer) {
        let until = self.0.behind.lock().ends(&[dir, before]);
        let client = self.clone();
        self.0.when_answered(until, move || {
            let other = client.clone();
            let found: Answer = Box::new(move |result| {
                if ctx.refs {
                    // that of the answer before
                    super::Backend::forget(&other, ctx, before, 1);
                }
                answer(result);
            });
            match client.0.copies.answer(&ctx, &Op::Lookup { dir, name: &name }) {
                Some(known) => found(known),
                None => client.look_up(ctx, (dir, &name), Some(before), found),
            }
        });
    }

    /// Attributes of these entries, from this one on, that may be older than what programs were
    /// told are asked for again, in order.
    pub(super) fn newest_entries(&self, ctx: Ctx, mut entries: Vec<Entry>, from: usize, answer: Answer) {
        let is_old = |entry: &Entry| entry.attr.is_some_and(|attr| self.may_be_old(&attr));
        let Some(at) = entries[from..].iter().position(is_old).map(|at| from + at) else {
            return answer(Ok(Reply::Entries(entries)));
        };
        let (client, node) = (self.clone(), entries[at].node);
        let patch = move |result: Result<Reply>| match result {
            Ok(Reply::Attr(attr)) => {
                entries[at].attr = Some(attr);
                client.newest_entries(ctx, entries, at + 1, answer);
            }
            Ok(_) => answer(Err(Error::Io("a reply of the wrong kind".into()))),
            Err(e) => answer(Err(e)),
        };
        super::Backend::run(self, ctx, Op::GetAttr { node }, patch);
    }

    /// Waits until the server has answered what programs were told, or is away.
    pub(super) fn settle(&self) {
        let until = self.0.env.now() + END_TIME.as_nanos() as u64;
        self.0.flush();
        while !self.0.behind.lock().is_empty() && self.away().is_none() && self.0.env.now() < until {
            self.0.env.sleep(Duration::from_millis(5));
        }
    }
}

impl Shared {
    /// Does something when these changes are answered.
    pub(super) fn when_answered(&self, until: Until, then: impl FnOnce() + Send + 'static) {
        let now = self.behind.lock().when_answered(until, Box::new(then));
        match now {
            Some(then) => then(),
            // somebody waits: nothing gathers any longer
            None => self.flush(),
        }
    }

    fn flush(&self) {
        let pipe = match &self.state.lock().phase {
            Phase::Up(pipe) => pipe.clone(),
            _ => return,
        };
        pipe.flush();
    }

    /// A change that was told is answered.
    fn answered_behind(&self, ticket: &Ticket, result: Result<()>) {
        if let Err(e) = &result {
            tracing::error!(
                "{}: a change was lost that a program was told of ({e}); the next fsync of its file fails",
                self.server
            );
            self.copies.not_true(&ticket.nodes);
            self.files.lock().lose(ticket.nodes.clone());
            self.drop_kept(&ticket.nodes);
        }
        let ready = self.behind.lock().end(ticket, self.env.now());
        ready.into_iter().for_each(|then| then());
    }

    /// Shares exclusive leases that nobody has used for a while. To be called each second.
    pub(super) fn share_idle(self: &Arc<Self>, pipe: &crate::pipe::Pipe) {
        let behind = self.behind.lock();
        // what is under way needs its lease
        if behind.is_empty() {
            let idle = self.copies.take_idle(IDLE_TIME, SHARE_MAX);
            if !idle.is_empty() {
                pipe.send(&frame(&ToServer::Share(idle)));
            }
        }
    }
}
