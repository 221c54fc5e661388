//! Operations of a session that run in the order in which they came, one line for each user.
//!
//! A change there is one that its client has told its program already: it holds exclusive leases on
//! all that it changes, so it waits for no other client, and the line always moves on. A change
//! holds up the line until it ends, any other operation until it has begun: so what is slow holds
//! up nothing.

use super::losses::WAS_SILENT;
use super::session::{Answer, Like, Session};
use super::{Shared, admit};
use crate::message::{Behind, Caller, Slot};
use crate::on_drop::OnDrop;
use leeward_env::{CallNumber, Ctx, Foretold, Wait};
use leeward_fs::codec::{Input, Wire};
use leeward_fs::{Effect, Error, Op, Reply, Result};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// The lines of a session, by user. Those that are empty are not kept.
#[derive(Default)]
pub(super) struct Lines(Mutex<FxHashMap<u32, Line>>);

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    front: Front,
}

/// How far the change in front is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Front {
    /// It is being started.
    #[default]
    Starting,
    /// It goes on on another thread.
    Running,
    Ended,
}

impl Lines {
    /// Whether operations are in line or at work.
    pub(super) fn are_busy(&self) -> bool {
        !self.0.lock().is_empty()
    }
}

/// An operation in a line.
struct Waiting {
    slot: Slot,
    caller: Caller,
    behind: Option<Behind>,
    /// As in messages.
    op: Vec<u8>,
    answer: Answer,
}

/// An operation that comes.
pub(super) struct Coming<'a> {
    pub(super) slot: Slot,
    pub(super) caller: Caller,
    pub(super) behind: Option<Behind>,
    pub(super) op: Op<'a>,
}

impl Coming<'_> {
    /// A change must be one that its client may tell before, and the reverse.
    fn check(&self) -> Result<()> {
        let makes_nothing = self.behind.is_none_or(|behind| behind.node == 0);
        let is_fit = match self.op {
            Op::Make { .. } => self.behind.is_some(),
            Op::Write { .. }
            | Op::SetAttr { .. }
            | Op::Unlink { .. }
            | Op::RmDir { .. }
            | Op::Rename { .. } => self.behind.is_some() && makes_nothing,
            ref op => !holds_up(op) && self.behind.is_none(),
        };
        if is_fit { Ok(()) } else { Err(Error::Invalid) }
    }
}

/// Whether the operations behind it wait until it ends.
fn holds_up(op: &Op<'_>) -> bool {
    matches!(op.effect(), Effect::Changes | Effect::Grows)
}

/// An operation comes: it runs now, or waits in line.
pub(super) fn hear(shared: &Arc<Shared>, session: &Arc<Session>, coming: Coming<'_>, answer: Answer) {
    let user = coming.caller.uid;
    let answer = match coming.behind {
        Some(behind) if session.is_lasting() => answer.of_told(behind, &coming.op),
        _ => answer,
    };
    let mut lines = session.lines.0.lock();
    if let Some(line) = lines.get_mut(&user) {
        let mut op = Vec::new();
        coming.op.put(&mut op);
        let Coming { slot, caller, behind, .. } = coming;
        return line.waiting.push_back(Waiting { slot, caller, behind, op, answer });
    }
    lines.insert(user, Line::default());
    drop(lines);
    start(shared, session, coming, answer);
    go_on(shared, session, user);
}

/// Starts the operations of a line, until one goes on by itself or none is left.
fn go_on(shared: &Arc<Shared>, session: &Arc<Session>, user: u32) {
    loop {
        let mut lines = session.lines.0.lock();
        let Some(line) = lines.get_mut(&user) else { return };
        if line.front == Front::Starting {
            line.front = Front::Running;
            return;
        }
        line.front = Front::Starting;
        let Some(next) = line.waiting.pop_front() else {
            lines.remove(&user);
            return;
        };
        drop(lines);
        let Waiting { slot, caller, behind, op, answer } = next;
        match Op::take(&mut Input::new(&op)) {
            Ok(op) => start(shared, session, Coming { slot, caller, behind, op }, answer),
            Err(_) => {
                answer.give(None, Err(Error::Invalid));
                ended(shared, session, user);
            }
        }
    }
}

/// Starts an operation. The line goes on when a change ends.
fn start(shared: &Arc<Shared>, session: &Arc<Session>, coming: Coming<'_>, answer: Answer) {
    let user = coming.caller.uid;
    let is_change = holds_up(&coming.op);
    let (of, by) = (shared.clone(), session.clone());
    run(shared, session, coming, answer, false, move || {
        if is_change {
            ended(&of, &by, user);
        }
    });
    if !is_change {
        ended(shared, session, user);
    }
}

/// What is in front has ended, or holds up the line no more.
fn ended(shared: &Arc<Shared>, session: &Arc<Session>, user: u32) {
    let mut lines = session.lines.0.lock();
    let Some(line) = lines.get_mut(&user) else { return };
    let before = std::mem::replace(&mut line.front, Front::Ended);
    drop(lines);
    if before == Front::Running {
        go_on(shared, session, user);
    }
}

/// Runs an operation, and then `then`.
fn run(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    coming: Coming<'_>,
    answer: Answer,
    after_crash: bool,
    then: impl FnOnce() + Send + 'static,
) {
    let then = OnDrop::new(then);
    if coming.behind.is_none() && session.is_away() {
        return answer.undo();
    }
    // what its client has told its program, and is lost if it is refused
    let told = coming.behind.filter(|_| session.is_lasting());
    let told = told.map(|_| (coming.caller.uid, admit::nodes_of(&coming.op)));
    let (of, by) = (shared.clone(), session.clone());
    let give = move |like, result: Result<Reply>| {
        if let (Err(e), Some((uid, nodes))) = (&result, &told)
            && !answer.is_undone_by(e)
        {
            of.lost(&by, *uid, nodes, e);
        }
        answer.give(like, result);
    };
    let ctx = match admitted(session, &coming) {
        Ok(ctx) => ctx,
        Err(e) => return give(None, Err(e)),
    };
    let call = CallNumber { slot: coming.slot.place, number: coming.slot.number };
    let foretold = coming.behind.map(|Behind { at, node }| Foretold { at, node, after_crash });
    let wait = if after_crash { Wait::Allowed } else { ctx.wait };
    let ctx = Ctx { call: Some(call), foretold, wait, ..ctx };
    let like = Like::of(&ctx, &coming.op);
    let counted = session.counted(&coming.op);
    shared.gate.run(ctx, coming.op, move |result: Result<Reply>| {
        counted.end(&result);
        // dropped after the answer is given
        let _then = then;
        give(Some(like), result);
    });
}

/// The context of an operation that may run in a line.
fn admitted(session: &Session, coming: &Coming<'_>) -> Result<Ctx> {
    if session.is_away() {
        return Err(Error::Io(WAS_SILENT.into()));
    }
    coming.check()?;
    let (ctx, is_restricted) = session.admit(&coming.caller, &coming.op)?;
    // hosts with bounds and gateways have no leases
    if is_restricted || ctx.client == 0 { Err(Error::NotPermitted) } else { Ok(ctx) }
}

/// Runs a change that was not answered by the process before, and waits for it.
pub(super) fn run_after_crash(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    coming: Coming<'_>,
    answer: Answer,
) {
    let (send, receive) = sync_channel(1);
    run(shared, session, coming, answer, true, move || _ = send.send(()));
    let _ = receive.recv();
}
