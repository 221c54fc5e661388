//! Calls that are not answered, in their slots.

use super::copies::Asked;
use crate::message::{Call, Leased, SLOTS_MAX, Slot, ToServer, frame, unanswered_frame};
use leeward_env::{Nanos, Told};
use leeward_fs::locks::LockCall;
use leeward_fs::sessions::Again;
use leeward_fs::{Effect, Error, NodeId, Op, Reply, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// Takes the answer to a call.
pub(super) type Answer = Box<dyn FnOnce(Result<Reply>) + Send>;

/// Bytes that reads at work may have. Answers to what the server waits for do not queue behind
/// more, and a server that holds back who asks for too much need not.
const READ_BYTES_MAX: usize = 64 << 20;

/// Where the slot is in the frame of a call: after the length and the kind.
const SLOT_AT: usize = 5;
const SLOT_BYTES: usize = 6;

/// For a call that has no slot yet.
const NO_SLOT: Slot = Slot { place: 0, number: 0 };

/// A call that is not answered.
pub(super) struct Outstanding {
    /// As it is sent. Shared with the connection, which may not have sent it yet.
    frame: Arc<Vec<u8>>,
    /// Bytes that its answer may have, if it reads.
    read_bytes: usize,
    /// Whether it does no harm to do it twice, whatever others do in between.
    repeatable: bool,
    /// Whether it is the same when it is done twice, if others do nothing in between.
    rewrites: bool,
    /// Whether its answer has references.
    gives_references: bool,
    /// Whether it returns references, which are those of a session.
    returns_references: bool,
    /// Whether a server that knows the session knows whether it was done.
    remembered: bool,
    /// Whether it changes content: it may have been done, and the content be lost.
    changes_content: bool,
    /// Whether it brings content, which is kept until it is durable.
    brings_data: bool,
    /// What it is about.
    of: Vec<NodeId>,
    /// Its place among calls that run in order, if it is one of those; and whether its change was
    /// told before.
    order: u64,
    /// Its place among all that were asked for.
    turn: u64,
    about_locks: bool,
    is_foretold: bool,
    /// The server has taken the lease under which it was told: it must not run under another.
    is_doubtful: bool,
    /// Whether it was sent under the number that it has, so that it may have been done.
    sent: bool,
    asked: Nanos,
    /// What of the answer can be kept.
    keeps: Option<Asked>,
    /// `None`: whoever asked has had an answer.
    answer: Option<Answer>,
}

impl Outstanding {
    pub(super) fn new(call: Call<'_>, asked: Nanos, keeps: Option<Asked>, answer: Answer) -> Outstanding {
        let (repeatable, gives_references, returns_references) = match &call {
            Call::Op(caller, op) => (is_repeatable(op), caller.refs && op.gives_references(), false),
            // one that was told is for its session only
            Call::InOrder(caller, behind, op) => {
                (behind.is_none() && is_repeatable(op), caller.refs && op.gives_references(), false)
            }
            Call::Numbers { .. } | Call::Died(_) => (true, false, false),
            Call::Forget(_) | Call::Lock(..) => (true, false, returns_references(&call)),
            Call::Access(_) => (true, false, false),
            // the tokens of users are shown to a new session by themselves
            Call::Command(..) | Call::Login { .. } => (false, false, false),
            Call::Refer { .. } => (true, false, true),
        };
        let rewrites = match &call {
            Call::Op(_, op) | Call::InOrder(_, None, op) => rewrites(op),
            _ => false,
        };
        let read_bytes = match &call {
            Call::Op(_, Op::Read { len, .. }) | Call::InOrder(_, _, Op::Read { len, .. }) => *len as usize,
            _ => 0,
        };
        let again = match &call {
            Call::Op(_, op) | Call::InOrder(_, _, op) => op.again(),
            _ => Again::Nothing,
        };
        let (remembered, changes_content) =
            (matches!(again, Again::Change | Again::Content), again == Again::Content);
        let of = match &call {
            Call::Op(_, op) | Call::InOrder(_, _, op) => op.node().into_iter().collect(),
            _ => Vec::new(),
        };
        let is_foretold = matches!(&call, Call::InOrder(_, Some(_), _));
        let about_locks = matches!(&call, Call::Lock(..));
        let brings_data = matches!(&call, Call::Op(_, Op::Write { .. } | Op::Append { .. }));
        let frame = Arc::new(frame(&ToServer::Call(NO_SLOT, call)));
        let (sent, answer) = (false, Some(answer));
        Outstanding {
            frame,
            read_bytes,
            repeatable,
            rewrites,
            gives_references,
            returns_references,
            remembered,
            changes_content,
            brings_data,
            of,
            order: 0,
            turn: 0,
            about_locks,
            is_foretold,
            is_doubtful: false,
            sent,
            asked,
            keeps,
            answer,
        }
    }

    /// The message, and the inodes that it was about.
    pub(super) fn take_change(&mut self, told: Told) -> (Arc<Vec<u8>>, Vec<NodeId>) {
        let mut of = std::mem::take(&mut self.of);
        of.extend((told.node > 0).then_some(NodeId(told.node)));
        (std::mem::take(&mut self.frame), of)
    }

    /// Gives it a place among calls that run in order.
    pub(super) fn in_order(self, order: u64) -> Outstanding {
        Outstanding { order, ..self }
    }

    /// Bytes of its message.
    pub(super) fn byte_count(&self) -> usize {
        self.frame.len() - size_of::<u32>()
    }

    /// Takes the answer away, as whoever asked has another one. What is left in the slot does
    /// nothing, unless the server has begun it already.
    fn give_up(&mut self) -> Option<Answer> {
        let mut nothing = frame(&ToServer::Call(NO_SLOT, Call::Forget(Vec::new())));
        let slot = SLOT_AT..SLOT_AT + SLOT_BYTES;
        nothing[slot.clone()].copy_from_slice(&self.frame[slot]);
        self.frame = Arc::new(nothing);
        self.returns_references = true;
        self.answer.take()
    }

    /// The references of an answer that nobody takes.
    pub(super) fn unclaimed(&self, result: &Result<Reply>) -> Vec<(NodeId, u64)> {
        match result {
            Ok(reply) if self.answer.is_none() && self.gives_references => {
                reply.references().map(|node| (node, 1)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether whoever asked has had another answer.
    pub(super) fn is_given_up(&self) -> bool {
        self.answer.is_none()
    }

    /// Whether a server that knows nothing of it may be asked again. One that has crashed may have
    /// lost it: what it would write is as good as before. While one goes on without the session,
    /// others may have changed the same.
    pub(super) fn may_repeat(&self, after_crash: bool) -> bool {
        !self.sent || self.repeatable || after_crash && self.rewrites
    }

    /// Fails, whatever the server may have done.
    pub(super) fn fail(self, why: Error) {
        self.answer(Err(why), &Leased::Nothing, |_| ());
    }

    /// Answers. `drop_attributes`: of inodes of which the front end may have kept old ones, before
    /// it is answered. An inode of which it must not keep the pages that it gets.
    pub(super) fn answer(
        self,
        mut result: Result<Reply>,
        leased: &Leased,
        drop_attributes: impl FnOnce(&[NodeId]),
    ) -> Option<NodeId> {
        let answer = self.answer?;
        let not_kept = self.keeps.map(|keeps| keeps.answered(&mut result, leased)).unwrap_or_default();
        drop_attributes(&not_kept.attrs);
        answer(result);
        not_kept.pages
    }

    fn put_slot(&mut self, slot: Slot) {
        let at = &mut Arc::make_mut(&mut self.frame)[SLOT_AT..];
        at[..2].copy_from_slice(&slot.place.to_le_bytes());
        at[2..6].copy_from_slice(&slot.number.to_le_bytes());
    }
}

/// Which changes wait until others are durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Holds {
    #[default]
    Nothing,
    /// Those that bring content.
    Content,
    /// All that would be kept.
    All,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Slots {
    places: Vec<Place>,
    /// Free places. The last one is used next, so that few are used.
    free: Vec<u16>,
    /// Calls that found none, and reads that have to wait for others.
    waiting: VecDeque<Outstanding>,
    /// Changes that wait until others are durable.
    held: VecDeque<Outstanding>,
    holds: Holds,
    /// Bytes that the answers to reads in slots may have.
    read_bytes: usize,
    /// Calls that were asked for.
    turns: u64,
}

#[derive(Default)]
struct Place {
    /// The number of the last call in it.
    number: u32,
    call: Option<Outstanding>,
}

impl Slots {
    /// Puts a call into a free slot; `None`: there is none, or too much is read already, and it
    /// waits.
    pub(super) fn enter(&mut self, mut call: Outstanding) -> Option<u16> {
        if call.turn == 0 {
            self.turns += 1;
            call.turn = self.turns;
        }
        if self.is_held(&call) {
            self.held.push_back(call);
            return None;
        }
        if call.read_bytes > 0 && self.read_bytes > 0 && self.read_bytes + call.read_bytes > READ_BYTES_MAX {
            self.waiting.push_back(call);
            return None;
        }
        let grown = u16::try_from(self.places.len()).ok().filter(|n| *n < SLOTS_MAX);
        let Some(place) = self.free.pop().or(grown) else {
            self.waiting.push_back(call);
            return None;
        };
        if usize::from(place) == self.places.len() {
            self.places.push(Place::default());
        }
        let at = &mut self.places[usize::from(place)];
        at.number = at.number.wrapping_add(1).max(1);
        call.put_slot(Slot { place, number: at.number });
        self.read_bytes += call.read_bytes;
        at.call = Some(call);
        Some(place)
    }

    fn is_held(&self, call: &Outstanding) -> bool {
        match self.holds {
            Holds::Nothing => false,
            Holds::Content => call.brings_data,
            Holds::All => call.remembered,
        }
    }

    /// The slot of a call that has waited for one.
    fn next_waiting(&mut self) -> Option<u16> {
        loop {
            let call = self.waiting.pop_front()?;
            // who is held needs no slot, and others may need it
            let is_held = self.is_held(&call);
            let place = self.enter(call);
            if !is_held {
                return place;
            }
        }
    }

    /// The frame of the call in a slot, which is sent now.
    pub(super) fn sending(&mut self, place: u16) -> Arc<Vec<u8>> {
        match &mut self.places[usize::from(place)].call {
            Some(call) => {
                call.sent = true;
                call.frame.clone()
            }
            None => Arc::default(),
        }
    }

    /// Takes the call that is answered, and the slot of one that waited for it.
    pub(super) fn answered(&mut self, slot: Slot) -> Option<(Outstanding, Option<u16>)> {
        let at = self.places.get_mut(usize::from(slot.place)).filter(|at| at.number == slot.number)?;
        let call = at.call.take()?;
        self.read_bytes -= call.read_bytes;
        self.free.push(slot.place);
        let next = self.next_waiting();
        Some((call, next))
    }

    /// Which changes wait from now on. The slots of those that need not any more.
    pub(super) fn hold_changes(&mut self, holds: Holds) -> Vec<u16> {
        if std::mem::replace(&mut self.holds, holds) == holds || self.held.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.held).into_iter().filter_map(|call| self.enter(call)).collect()
    }

    /// For a server that knows the session from a process before: calls keep their numbers. But of
    /// locks it knows nothing: calls about these come after `first`, which tell it what there was.
    /// `in_order`: what was not answered was not done. Returns calls that may have been done and
    /// must not be done twice, and those that return references, which the server does not have.
    pub(super) fn come_back(
        &mut self,
        in_order: bool,
        first: Vec<Outstanding>,
    ) -> (Vec<Outstanding>, Vec<Outstanding>) {
        let mut lost = Vec::new();
        let (of_locks, waiting): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|call| call.about_locks);
        self.waiting = waiting;
        let (mut returned, mut of_locks): (Vec<_>, Vec<_>) =
            of_locks.into_iter().partition(|call| call.returns_references);
        for (place, at) in (0u16..).zip(&mut self.places) {
            let Some(call) = &at.call else { continue };
            let to = match call.returns_references {
                true => &mut returned,
                false if call.about_locks => &mut of_locks,
                false if !in_order && !call.may_repeat(true) && !call.remembered => &mut lost,
                false => continue,
            };
            let Some(call) = at.call.take() else { continue };
            if !call.sent {
                // no server has heard of it: this one may have answered the call before, and wants
                // the next number. Zero is as good as the highest: 1 follows both
                at.number -= 1;
            }
            self.read_bytes -= call.read_bytes;
            to.push(call);
            self.free.push(place);
        }
        self.enter_again(first, of_locks);
        (lost, returned)
    }

    /// Puts calls into slots: `first`, and then the others in the order in which they were asked
    /// for.
    fn enter_again(&mut self, first: Vec<Outstanding>, mut again: Vec<Outstanding>) {
        again.sort_by_key(|call| call.turn);
        for call in first.into_iter().chain(again) {
            self.enter(Outstanding { sent: false, turn: 0, ..call });
        }
    }

    /// Frames of calls that change content and may have been done.
    pub(super) fn changing_content(&self) -> impl Iterator<Item = Vec<u8>> {
        let calls = self.places.iter().filter_map(|at| at.call.as_ref());
        calls
            .filter(|call| call.changes_content && call.sent && !call.is_given_up())
            .map(|call| unanswered_frame(&call.frame))
    }

    /// Places with calls, to be sent again; those that run in order in theirs, all others in the
    /// order in which they were asked for: a lock that is asked for after another was given up must
    /// not be given up with it.
    pub(super) fn unanswered(&self) -> Vec<u16> {
        let order = |at: &Place| at.call.as_ref().map(|call| (call.order, call.turn));
        let mut places: Vec<_> =
            (0u16..).zip(&self.places).filter_map(|(place, at)| Some((order(at)?, place))).collect();
        places.sort_unstable();
        places.into_iter().map(|(_, place)| place).collect()
    }

    /// Places with changes that were told and not answered, in their order: a process after a crash
    /// runs them before anything else.
    pub(super) fn foretold(&self) -> Vec<u16> {
        let is_sure = |call: &Outstanding| call.is_foretold && !call.is_doubtful && !call.is_given_up();
        let mut places = self.unanswered();
        places.retain(|place| self.places[usize::from(*place)].call.as_ref().is_some_and(is_sure));
        places
    }

    /// The server has taken all leases.
    pub(super) fn doubt(&mut self) {
        let calls = self.places.iter_mut().filter_map(|at| at.call.as_mut());
        calls.for_each(|call| call.is_doubtful |= call.is_foretold);
    }

    /// Whether a call gets a slot at once, and changes need not wait.
    pub(super) fn are_free(&self) -> bool {
        self.holds == Holds::Nothing && (!self.free.is_empty() || self.places.len() < usize::from(SLOTS_MAX))
    }

    /// For a session that knows nothing of calls before: numbers begin again. `in_order`: what was
    /// not answered was not done. Returns calls that may have been done and must not be done twice,
    /// and those that return references of the session before. `first` come before all others.
    pub(super) fn restart(
        &mut self,
        (in_order, after_crash): (bool, bool),
        first: Vec<Outstanding>,
    ) -> (Vec<Outstanding>, Vec<Outstanding>) {
        let (returned, calls): (Vec<_>, Vec<_>) =
            self.take_all().into_iter().partition(|call| call.returns_references);
        let (again, lost): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| in_order || call.may_repeat(after_crash));
        self.enter_again(first, again);
        (lost, returned)
    }

    /// Takes the answers of calls that have waited since before `then` for a server that is away,
    /// which it is since `away`. The calls are given up: what the server has not begun is not done
    /// any more. References are returned all the same.
    pub(super) fn expired(&mut self, (then, away): (Nanos, Nanos)) -> Vec<Answer> {
        let is_over = |call: &Outstanding| call.asked.max(away) <= then && !call.returns_references;
        let (mut over, waiting): (VecDeque<_>, _) =
            std::mem::take(&mut self.waiting).into_iter().partition(is_over);
        self.waiting = waiting;
        let (held_over, held): (VecDeque<_>, _) =
            std::mem::take(&mut self.held).into_iter().partition(is_over);
        self.held = held;
        over.extend(held_over);
        let calls = self.places.iter_mut().filter_map(|at| at.call.as_mut()).filter(|call| is_over(call));
        let answers = calls.filter_map(Outstanding::give_up);
        answers.chain(over.into_iter().filter_map(|call| call.answer)).collect()
    }

    /// Takes all calls.
    pub(super) fn take_all(&mut self) -> Vec<Outstanding> {
        let calls = std::mem::take(&mut self.places).into_iter().filter_map(|at| at.call);
        let waiting = std::mem::take(&mut self.waiting).into_iter().chain(std::mem::take(&mut self.held));
        let calls = calls.chain(waiting).collect();
        self.holds = Holds::Nothing;
        self.free.clear();
        self.read_bytes = 0;
        calls
    }
}

/// Whether it returns what a session has, references or locks: it is done however late, and not for
/// another session.
pub(super) fn returns_references(call: &Call<'_>) -> bool {
    matches!(call, Call::Forget(_) | Call::Lock(_, LockCall::Release { .. }))
}

/// Whether it does no harm to do it twice, with others in between: what it would write may be older
/// then than what they have written since the first time.
fn is_repeatable(op: &Op<'_>) -> bool {
    matches!(op.effect(), Effect::Reads | Effect::Settles)
}

/// Whether it is the same when it is done twice, if others do nothing in between.
fn rewrites(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Write { .. }
            | Op::SetAttr { .. }
            | Op::SetXattr { mode: leeward_fs::XattrMode::Set, .. }
            | Op::Allocate { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Caller, message};
    use leeward_env::Class;
    use leeward_fs::Op;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn call(repeatable: bool, answers: &Arc<AtomicUsize>) -> Outstanding {
        let caller = Caller { uid: 0, gid: 0, gids: vec![], class: Class::Batch, refs: false };
        let over = leeward_fs::Precondition::Any;
        let once = Op::Unlink { dir: NodeId::ROOT, name: b"x", over };
        let op = if repeatable { Op::SyncAll } else { once };
        let answers = answers.clone();
        let answer = Box::new(move |_| _ = answers.fetch_add(1, Ordering::Relaxed));
        Outstanding::new(Call::Op(caller, op), 0, None, answer)
    }

    fn slot_of(frame: &[u8]) -> Slot {
        match message::<ToServer<'_>>(&frame[4..]) {
            Ok(ToServer::Call(slot, _)) => slot,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_of_a_slot_follow_each_other_and_late_answers_are_nobodys() {
        let (mut slots, answers) = (Slots::default(), Arc::default());
        for number in 1..4 {
            assert_eq!(slots.enter(call(true, &answers)), Some(0));
            let slot = Slot { place: 0, number };
            assert_eq!(slot_of(&slots.sending(0)), slot);
            assert!(slots.answered(Slot { place: 0, number: number - 1 }).is_none());
            assert!(slots.answered(Slot { place: 7, number }).is_none());
            let (done, next) = slots.answered(slot).expect("the call");
            done.answer(Ok(Reply::Done), &Leased::Nothing, |_| ());
            assert!(next.is_none() && slots.answered(slot).is_none(), "an answer that comes twice");
        }
        assert_eq!(answers.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn calls_without_a_slot_get_the_next_that_is_free() {
        let (mut slots, answers) = (Slots::default(), Arc::default());
        for place in 0..SLOTS_MAX {
            assert_eq!(slots.enter(call(true, &answers)), Some(place));
        }
        assert_eq!(slots.enter(call(true, &answers)), None);
        let (_, next) = slots.answered(Slot { place: 5, number: 1 }).expect("a call");
        assert_eq!(next, Some(5));
        assert_eq!(slot_of(&slots.sending(5)), Slot { place: 5, number: 2 });
    }

    #[test]
    fn reads_wait_for_others_and_hold_up_nothing_else() {
        let (mut slots, answers) = (Slots::default(), Arc::default());
        let read = |answers: &Arc<AtomicUsize>| {
            let caller = Caller { uid: 0, gid: 0, gids: vec![], class: Class::Batch, refs: false };
            let op = Op::Read { node: NodeId::ROOT, offset: 0, len: READ_BYTES_MAX as u32 / 2 };
            let answers = answers.clone();
            let answer = Box::new(move |_| _ = answers.fetch_add(1, Ordering::Relaxed));
            Outstanding::new(Call::Op(caller, op), 0, None, answer)
        };
        assert_eq!((slots.enter(read(&answers)), slots.enter(read(&answers))), (Some(0), Some(1)));
        assert_eq!((slots.enter(read(&answers)), slots.enter(call(true, &answers))), (None, Some(2)));
        let (_, next) = slots.answered(Slot { place: 2, number: 1 }).expect("a call");
        assert_eq!(next, None, "the read waits on");
        let (_, next) = slots.answered(Slot { place: 0, number: 1 }).expect("a call");
        assert_eq!(next, Some(0));
        assert_eq!(slots.take_all().len(), 2);
        assert_eq!(slots.enter(read(&answers)), Some(0));
    }

    #[test]
    fn changes_that_are_held_leave_slots_to_others() {
        let (mut slots, answers) = (Slots::default(), Arc::default());
        let change = |data: &[u8]| {
            let caller = Caller { uid: 0, gid: 0, gids: vec![], class: Class::Batch, refs: false };
            let (node, offset) = (NodeId::ROOT, 0);
            let op = if data.is_empty() {
                Op::RmDir { dir: node, name: b"x" }
            } else {
                Op::Write { node, offset, data }
            };
            Outstanding::new(Call::Op(caller, op), 0, None, Box::new(drop))
        };
        for _ in 0..SLOTS_MAX {
            slots.enter(change(b"data")).expect("a slot");
        }
        let waiting = [change(b"data"), change(b"data"), change(b""), call(true, &answers)];
        waiting.into_iter().for_each(|call| assert_eq!(slots.enter(call), None));
        assert!(slots.hold_changes(Holds::All).is_empty());
        let (_, next) = slots.answered(Slot { place: 5, number: 1 }).expect("a call");
        assert_eq!(next, Some(5), "the one that changes nothing");
        let (_, next) = slots.answered(Slot { place: 6, number: 1 }).expect("a call");
        assert_eq!((next, slots.enter(change(b""))), (None, None));
        assert_eq!(slots.hold_changes(Holds::Content), [6], "a name");
        let (_, next) = slots.answered(Slot { place: 7, number: 1 }).expect("a call");
        assert_eq!(next, Some(7), "the other one");
        slots.answered(Slot { place: 8, number: 1 }).expect("a call");
        assert_eq!(slots.hold_changes(Holds::Nothing), [8], "content; the rest waits for slots");
        assert_eq!(slots.take_all().len(), usize::from(SLOTS_MAX) + 1);
    }

    fn about_locks(call: LockCall) -> Outstanding {
        let caller = Caller { uid: 0, gid: 0, gids: vec![], class: Class::Batch, refs: false };
        Outstanding::new(Call::Lock(caller, call), 0, None, Box::new(drop))
    }

    /// Tickets of calls that cancel, in the order in which they are sent again.
    fn tickets(slots: &mut Slots) -> Vec<u64> {
        let mut tickets = Vec::new();
        for place in slots.unanswered() {
            if let Ok(ToServer::Call(_, Call::Lock(_, LockCall::Cancel { ticket }))) =
                message::<ToServer<'_>>(&slots.sending(place)[4..])
            {
                tickets.push(ticket);
            }
        }
        tickets
    }

    #[test]
    fn calls_are_sent_again_in_the_order_in_which_they_were_asked_for() {
        let (mut slots, answers) = (Slots::default(), Arc::default());
        for _ in 0..3 {
            slots.enter(call(true, &answers)).expect("a slot");
        }
        for (place, ticket) in [(1, 1), (0, 2), (2, 3)] {
            slots.answered(Slot { place, number: 1 }).expect("a call");
            assert_eq!(slots.enter(about_locks(LockCall::Cancel { ticket })), Some(place));
        }
        assert_eq!(tickets(&mut slots), [1, 2, 3]);
        slots.restart((false, false), vec![about_locks(LockCall::Cancel { ticket: 9 })]);
        assert_eq!(tickets(&mut slots), [9, 1, 2, 3]);
    }

    #[test]
    fn a_server_is_told_what_is_locked_before_it_hears_what_is_unlocked() {
        let (mut slots, answers) = (Slots::default(), Arc::default());
        for ticket in 1..3 {
            slots.enter(about_locks(LockCall::Cancel { ticket })).expect("a slot");
        }
        while slots.enter(call(true, &answers)).is_some() {}
        assert_eq!(slots.enter(about_locks(LockCall::Cancel { ticket: 3 })), None);
        let (lost, returned) = slots.come_back(false, vec![about_locks(LockCall::Cancel { ticket: 9 })]);
        assert_eq!((lost.len(), returned.len(), tickets(&mut slots)), (0, 0, vec![9, 1]));
        assert_eq!(slots.take_all().len(), usize::from(SLOTS_MAX) + 3);
    }

    #[test]
    fn a_new_session_gets_only_what_may_be_done_twice() {
        let (mut slots, answers) = (Slots::default(), Arc::default());
        for (repeatable, sent) in [(true, true), (false, true), (false, false), (true, false)] {
            let place = slots.enter(call(repeatable, &answers)).expect("a slot");
            if sent {
                slots.sending(place);
            }
        }
        let forget = Outstanding::new(Call::Forget(vec![]), 0, None, Box::new(drop));
        slots.enter(forget).expect("a slot");
        let (lost, returned) = slots.restart((false, false), Vec::new());
        assert_eq!((lost.len(), returned.len(), slots.unanswered()), (1, 1, vec![0, 1, 2]));
        lost.into_iter().for_each(|call| call.fail(Error::Stale));
        assert_eq!(slot_of(&slots.sending(2)), Slot { place: 2, number: 1 });
        assert!(slots.expired((0, 1)).is_empty(), "the server went away only now");
        assert_eq!(slots.expired((0, 0)).len(), 3);
        let left = slots.sending(2);
        let nothing = ToServer::Call(Slot { place: 2, number: 1 }, Call::Forget(Vec::new()));
        assert_eq!(message::<ToServer<'_>>(&left[4..]), Ok(nothing), "what is given up is not done later");
        assert!(slots.expired((0, 0)).is_empty() && slots.take_all().len() == 3);
    }

    fn forget() -> Outstanding {
        Outstanding::new(Call::Forget(vec![]), 0, None, Box::new(drop))
    }

    #[test]
    fn what_was_never_sent_takes_no_number_of_its_slot() {
        let (mut slots, answers) = (Slots::default(), Arc::default());
        let at = |number| Slot { place: 0, number };
        slots.enter(call(true, &answers)).expect("a slot");
        assert_eq!(slot_of(&slots.sending(0)), at(1));
        slots.answered(at(1)).expect("the call");
        for (is_sent, next) in [(false, 2), (true, 4)] {
            assert_eq!(slots.enter(forget()), Some(0));
            if is_sent {
                slots.sending(0);
            }
            let (lost, returned) = slots.come_back(false, vec![]);
            assert_eq!((lost.len(), returned.len()), (0, 1));
            assert_eq!(slots.enter(call(true, &answers)), Some(0));
            assert_eq!(slot_of(&slots.sending(0)), at(next), "was it sent: {is_sent}");
            slots.answered(at(next)).expect("the call");
        }
    }

    /// A session that knows a told change and has not run it. The server is asked for it before it
    /// takes calls.
    fn with_told_change() -> Slots {
        let mut slots = Slots::default();
        let caller = Caller { uid: 0, gid: 0, gids: vec![], class: Class::Batch, refs: false };
        let op = Op::RmDir { dir: NodeId::ROOT, name: b"x" };
        let told = Call::InOrder(caller, Some(crate::message::Behind { at: 1, node: 0 }), op);
        slots.enter(Outstanding::new(told, 0, None, Box::new(drop))).expect("a slot");
        slots.sending(0);
        slots.restart((true, true), vec![]);
        assert_eq!(slots.foretold(), [0]);
        slots.sending(0);
        slots
    }

    #[test]
    fn a_told_change_that_a_server_was_asked_for_may_have_been_done() {
        let (lost, returned) = with_told_change().restart((false, false), vec![]);
        assert_eq!((lost.len(), returned.len()), (1, 0));

        let mut slots = with_told_change();
        assert_eq!(slots.expired((0, 0)).len(), 1, "it is given up");
        slots.come_back(false, vec![]);
        assert_eq!(slots.enter(forget()), Some(0));
        let next = Slot { place: 0, number: 2 };
        assert_eq!(slot_of(&slots.sending(0)), next, "it does not get the answer of the one before");
    }
}
