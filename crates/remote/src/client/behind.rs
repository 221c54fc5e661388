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
use std::collections::BTreeMap;
use std::ops::Range;

/// How long it may take until all that a user was told is answered, as far as one can tell.
const DRAIN_TIME: Nanos = 500_000_000;
/// Changes that may always be under way, however slow the server is.
const CHANGES_MIN: u64 = 4;

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
    /// Changes under way, and bytes that they bring.
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
    fn may_begin(&self) -> bool {
        let most = DRAIN_TIME.checked_div(self.pace).unwrap_or(u64::MAX).max(CHANGES_MIN);
        (self.unanswered.len() as u64) < most
    }
}

impl Behind {
    /// Whether a user may be told of one more change that brings so many bytes.
    pub(super) fn may_begin(&self, user: u32, bytes: usize) -> bool {
        self.clock.wall > 0
            && self.changes < BEHIND_CHANGES_MAX
            && self.bytes + bytes as u64 <= BEHIND_BYTES_MAX
            && self.lines.get(&user).is_none_or(Line::may_begin)
    }

    /// The change of a user that must be answered before there is room for one more, if it is only
    /// room that is missing, and the user's own changes have it.
    pub(super) fn room_after(&self, user: u32, bytes: usize) -> Option<Until> {
        if self.clock.wall == 0 || self.may_begin(user, bytes) {
            return None;
        }
        let (first, _) = self.lines.get(&user)?.unanswered.first_key_value()?;
        Some(vec![(user, *first)])
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
        self.lines.entry(user).or_default().unanswered.insert(number, now);
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
        self.take_ready()
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
