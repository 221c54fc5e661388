//! Changes that programs were told of and that the server has not answered: in which line they are,
//! what they change, and who waits for them.
//!
//! The lines are those of the server, one for each user (`server/in_order.rs`). Whoever holds this
//! lock while it tells of a change and sends it keeps their order.

use crate::message::NUMBERS_AT_ONCE;
use leeward_env::Nanos;
use leeward_env::limits::{BEHIND_BYTES_MAX, BEHIND_CHANGES_MAX};
use leeward_fs::NodeId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// How long it may take until all that a user was told is answered, as far as one can tell.
const DRAIN_TIME: Nanos = 500_000_000;
/// Changes that may always be under way, however slow the server is.
const CHANGES_MIN: u64 = 4;
/// What changes of one user may have of all that may be under way: others are to be told, too.
const LINE_CHANGES_MAX: u64 = BEHIND_CHANGES_MAX as u64 / 4 * 3;
const LINE_BYTES_MAX: u64 = BEHIND_BYTES_MAX / 4 * 3;

/// By how much the server's clock is behind what it was when it was set back.
const CLOCK_STEP: Nanos = 2_000_000_000;

/// What is done when changes are answered.
type Then = Box<dyn FnOnce() + Send>;

/// The last change of a line that somebody waits for.
pub(super) type Until = Vec<(u32, u64)>;

/// See the module's head.
#[derive(Default)]
pub(super) struct Behind {
    lines: FxHashMap<u32, Line>,
    /// The inodes that changes are about, and the last one in each line.
    touching: FxHashMap<NodeId, Vec<(u32, u64)>>,
    /// The number of the last change.
    last: u64,
    /// Changes under way, and bytes that they bring; those that room is promised to among them.
    changes: usize,
    bytes: u64,
    waiting: Vec<(Until, Then)>,
    numbers: FxHashMap<u32, Numbers>,
    clock: ServerClock,
}

/// A user's changes.
#[derive(Default)]
struct Line {
    /// Those under way, with when they were told.
    unanswered: BTreeMap<u64, Nanos>,
    /// What waits for room, with the bytes that it needs; and how many have it and go on.
    waiting: VecDeque<(u64, Then)>,
    promised: u64,
    /// Bytes of those under way and of those that go on.
    bytes: u64,
    /// How long the server takes for one, while it is busy with them.
    pace: Nanos,
    /// When one was answered last.
    answered_at: Nanos,
}

/// Inode numbers of a volume that the server has reserved.
#[derive(Default)]
struct Numbers {
    free: Range<u64>,
    next: Option<Range<u64>>,
    /// More are asked for.
    asked: bool,
}

/// What is known of the server's clock.
#[derive(Default)]
struct ServerClock {
    /// Its time when it was heard of, nanoseconds since 1970, and when that was here.
    wall: u64,
    heard: Nanos,
    /// The last time that was given or heard.
    last: u64,
}

/// A change under way.
pub(super) struct Ticket {
    user: u32,
    number: u64,
    bytes: u64,
    pub(super) nodes: Vec<NodeId>,
}

impl Ticket {
    /// Its place among all calls that run in order.
    pub(super) fn order(&self) -> u64 {
        self.number * 2
    }
}

impl Line {
    fn has_room(&self, bytes: u64) -> bool {
        let most = DRAIN_TIME.checked_div(self.pace).unwrap_or(u64::MAX).clamp(CHANGES_MIN, LINE_CHANGES_MAX);
        self.unanswered.len() as u64 + self.promised < most && self.bytes + bytes <= LINE_BYTES_MAX
    }
}

impl Behind {
    /// Whether a user may be told of one more change that brings so many bytes. `promised`: it has
    /// waited for room, which is kept for it until now.
    pub(super) fn may_begin(&mut self, user: u32, bytes: usize, promised: bool) -> bool {
        let bytes = bytes as u64;
        if promised {
            self.take_promise(user, bytes);
        }
        let has_turn = |line: &Line| line.has_room(bytes) && (promised || line.waiting.is_empty());
        self.clock.wall > 0 && self.has_room(bytes) && self.lines.get(&user).is_none_or(has_turn)
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.changes < BEHIND_CHANGES_MAX && self.bytes + bytes <= BEHIND_BYTES_MAX
    }

    /// Whether changes of a user are under way.
    pub(super) fn is_busy(&self, user: u32) -> bool {
        self.lines.get(&user).is_some_and(|line| !line.unanswered.is_empty())
    }

    /// Does something when its turn comes among what waits for room of its user, and so many bytes
    /// are promised to it; or when no change of the user is under way. What is to be done now.
    pub(super) fn when_there_is_room(&mut self, user: u32, bytes: usize, then: Then) -> Vec<Then> {
        self.lines.entry(user).or_default().waiting.push_back((bytes as u64, then));
        if self.is_busy(user) { Vec::new() } else { self.take_admitted(user) }
    }

    /// Those of a user that wait for room and may go on now, in their order.
    fn take_admitted(&mut self, user: u32) -> Vec<Then> {
        let mut admitted = Vec::new();
        while self.admits_first(user)
            && let Some(line) = self.lines.get_mut(&user)
            && let Some((bytes, then)) = line.waiting.pop_front()
        {
            line.promised += 1;
            line.bytes += bytes;
            self.changes += 1;
            self.bytes += bytes;
            admitted.push(then);
        }
        admitted
    }

    /// Whether the first that waits for room of a user may go on.
    fn admits_first(&self, user: u32) -> bool {
        let line = self.lines.get(&user);
        let first = line.and_then(|line| Some((line, line.waiting.front()?)));
        let has_room = |line: &Line, bytes| line.has_room(bytes) && self.has_room(bytes);
        first.is_some_and(|(line, (bytes, _))| !self.is_busy(user) || has_room(line, *bytes))
    }

    fn take_promise(&mut self, user: u32, bytes: u64) {
        if let Some(line) = self.lines.get_mut(&user) {
            line.promised -= 1;
            line.bytes -= bytes;
            self.changes -= 1;
            self.bytes -= bytes;
        }
    }

    /// The place of a call that follows all changes so far.
    pub(super) fn end_order(&self) -> u64 {
        self.last * 2 + 1
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// A user is told of a change.
    pub(super) fn begin(&mut self, user: u32, nodes: Vec<NodeId>, bytes: usize, now: Nanos) -> Ticket {
        self.last += 1;
        let number = self.last;
        let line = self.lines.entry(user).or_default();
        line.unanswered.insert(number, now);
        line.bytes += bytes as u64;
        for node in &nodes {
            let lines = self.touching.entry(*node).or_default();
            lines.retain(|(of, _)| *of != user);
            lines.push((user, number));
        }
        self.changes += 1;
        self.bytes += bytes as u64;
        Ticket { user, number, bytes: bytes as u64, nodes }
    }

    /// A change is answered. What waited for it.
    pub(super) fn end(&mut self, ticket: &Ticket, now: Nanos) -> Vec<Then> {
        let Ticket { user, number, bytes, nodes } = ticket;
        if let Some(line) = self.lines.get_mut(user)
            && let Some(told) = line.unanswered.remove(number)
        {
            let took = now.saturating_sub(told.max(line.answered_at));
            line.pace = (line.pace * 7 + took) / 8;
            line.answered_at = now;
            line.bytes -= bytes;
            self.changes -= 1;
            self.bytes -= bytes;
        }
        for node in nodes {
            if let Some(lines) = self.touching.get_mut(node) {
                lines.retain(|last| *last != (*user, *number));
                if lines.is_empty() {
                    self.touching.remove(node);
                }
            }
        }
        let mut ready = self.take_ready();
        ready.extend(self.take_admitted(*user));
        ready
    }

    fn take_ready(&mut self) -> Vec<Then> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (ready, waiting): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(until, _)| self.are_answered(until));
        self.waiting = waiting;
        ready.into_iter().map(|(_, then)| then).collect()
    }

    fn are_answered(&self, until: &Until) -> bool {
        until.iter().all(|(user, number)| {
            let first = self.lines.get(user).and_then(|line| line.unanswered.first_key_value());
            first.is_none_or(|(first, _)| first > number)
        })
    }

    /// Whether changes of an inode are under way.
    pub(super) fn touches(&self, node: NodeId) -> bool {
        self.touching.contains_key(&node)
    }

    /// Whether changes of these inodes are under way, and if so whether all are this user's.
    pub(super) fn whose(&self, user: u32, nodes: &[NodeId]) -> Whose {
        let mut lines = nodes.iter().filter_map(|node| self.touching.get(node)).flatten().peekable();
        if lines.peek().is_none() {
            return Whose::Nobodys;
        }
        if lines.all(|(of, _)| *of == user) { Whose::Own } else { Whose::Others }
    }

    /// The ends of all lines with changes of these inodes: what a user made in one of them may have
    /// been changed since.
    pub(super) fn ends(&self, nodes: &[NodeId]) -> Until {
        let mut users: Vec<u32> = nodes
            .iter()
            .filter_map(|node| self.touching.get(node))
            .flatten()
            .map(|(user, _)| *user)
            .collect();
        users.sort_unstable();
        users.dedup();
        users.into_iter().filter_map(|user| Some((user, self.end_of(user)?))).collect()
    }

    /// The ends of all lines.
    pub(super) fn all_ends(&self) -> Until {
        self.lines.keys().filter_map(|user| Some((*user, self.end_of(*user)?))).collect()
    }

    fn end_of(&self, user: u32) -> Option<u64> {
        self.lines.get(&user)?.unanswered.last_key_value().map(|(number, _)| *number)
    }

    /// Does something when these are answered. Returned if that is so now.
    pub(super) fn when_answered(&mut self, until: Until, then: Then) -> Option<Then> {
        if self.are_answered(&until) {
            return Some(then);
        }
        self.waiting.push((until, then));
        None
    }

    /// A number for a new inode of a volume; and whether more are to be asked for.
    pub(super) fn take_number(&mut self, volume: u32) -> (Option<NodeId>, bool) {
        let numbers = self.numbers.entry(volume).or_default();
        if numbers.free.is_empty() {
            numbers.free = numbers.next.take().unwrap_or_default();
        }
        let taken = numbers.free.next().map(|number| NodeId::new(volume, number));
        let is_short = numbers.next.is_none() && !numbers.asked;
        numbers.asked |= is_short;
        (taken, is_short)
    }

    /// It was not used.
    pub(super) fn put_number_back(&mut self, node: NodeId) {
        if let Some(numbers) = self.numbers.get_mut(&node.volume())
            && numbers.free.start == node.inode() + 1
        {
            numbers.free.start = node.inode();
        }
    }

    /// Numbers were reserved, from this one on, or not.
    pub(super) fn add_numbers(&mut self, volume: u32, first: Option<u64>) {
        let numbers = self.numbers.entry(volume).or_default();
        // who gets none asks the next process of the server only
        numbers.asked = first.is_none();
        if let Some(first) = first {
            let first = NodeId(first).inode();
            numbers.next = Some(first..first + NUMBERS_AT_ONCE);
        }
    }

    /// Another process of the server has reserved nothing.
    pub(super) fn forget_numbers(&mut self) {
        self.numbers.clear();
    }

    /// The server has said its time. What was heard so is not ahead of it: the message took some
    /// time.
    pub(super) fn heard_time(&mut self, wall: u64, now: Nanos) {
        (self.clock.wall, self.clock.heard) = (wall, now);
        if self.clock.last > wall + CLOCK_STEP {
            // it was set back
            self.clock.last = wall;
        }
    }

    /// The server has made a change then.
    pub(super) fn heard_change(&mut self, at: u64) {
        self.clock.last = self.clock.last.max(at);
    }

    /// The time of a change that is told now, another one each time; as near to that of the server
    /// as is known; not before any that the server has made for this client.
    pub(super) fn time(&mut self, now: Nanos) -> u64 {
        let clock = &mut self.clock;
        clock.last = (clock.last + 1).max(clock.wall + now.saturating_sub(clock.heard));
        clock.last
    }
}

/// Whose changes are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// None are.
    Nobodys,
    /// Those of the user who asks.
    Own,
    /// Those of others, too.
    Others,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SMALL: usize = 128 << 10;
    const LARGE: usize = 1 << 20;

    struct Room {
        behind: Behind,
        told: VecDeque<Ticket>,
    }

    impl Room {
        /// Told as far as one user may be.
        fn full_of(user: u32) -> Room {
            let mut room = Room { behind: Behind::default(), told: VecDeque::new() };
            room.behind.heard_time(1, 0);
            while room.behind.may_begin(user, SMALL, false) {
                room.tell(user, SMALL);
            }
            room
        }

        fn tell(&mut self, user: u32, bytes: usize) {
            self.told.push_back(self.behind.begin(user, Vec::new(), bytes, 0));
        }

        /// The oldest is answered; how many go on that have waited.
        fn answer(&mut self) -> usize {
            let ticket = self.told.pop_front().expect("some are told");
            let ready = self.behind.end(&ticket, 0);
            let went_on = ready.len();
            ready.into_iter().for_each(|then| then());
            went_on
        }
    }

    #[test]
    fn who_waits_for_much_room_is_not_overtaken() {
        let mut room = Room::full_of(7);
        let all = room.told.len();
        assert_eq!(all as u64, LINE_BYTES_MAX / SMALL as u64);
        assert!(room.behind.may_begin(8, LARGE, false), "another user is told");
        let went_on = Arc::new(AtomicUsize::new(0));
        for bytes in [LARGE, SMALL] {
            let went_on = went_on.clone();
            let then = Box::new(move || _ = went_on.fetch_add(1, Ordering::Relaxed));
            assert!(room.behind.when_there_is_room(7, bytes, then).is_empty());
        }
        for _ in 1..LARGE / SMALL {
            assert_eq!(room.answer(), 0);
            assert!(!room.behind.may_begin(7, SMALL, false), "it is not its turn");
        }
        assert_eq!(room.answer(), 1);
        assert!(!room.behind.may_begin(7, SMALL, false));
        assert!(room.behind.may_begin(7, LARGE, true), "the room is kept for it");
        room.tell(7, LARGE);
        assert_eq!(room.answer(), 1);
        assert!(room.behind.may_begin(7, SMALL, true));
        room.tell(7, SMALL);
        while !room.told.is_empty() {
            assert_eq!(room.answer(), 0);
        }
        assert!(room.behind.is_empty());
        assert_eq!(
            (room.behind.bytes, room.behind.lines[&7].bytes, room.behind.lines[&7].promised),
            (0, 0, 0)
        );
        assert_eq!(went_on.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn nobody_waits_for_room_when_nothing_of_the_user_is_under_way() {
        let mut room = Room::full_of(7);
        for _ in 0..3 {
            assert!(
                room.behind.when_there_is_room(7, 2 * BEHIND_BYTES_MAX as usize, Box::new(|| ())).is_empty()
            );
        }
        while room.told.len() > 1 {
            assert_eq!(room.answer(), 0);
        }
        assert_eq!(room.answer(), 3);
        assert_eq!(room.behind.when_there_is_room(7, 1, Box::new(|| ())).len(), 1);
    }
}
