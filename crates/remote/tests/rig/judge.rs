//! Judges a history: whether there is an order of all operations, each between when it was asked
//! and when it was answered, in which one file system would have given these answers
//! (linearizability, by the search of Wing and Gong with the states that were seen).

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// An inode, by its number at the server.
pub type Node = u64;

/// A directory of the test and a name in it.
pub type Place = (usize, usize);

/// What was asked.
#[derive(Clone, Debug)]
pub enum Asked {
    Make(Place),
    Lookup(Place),
    Unlink(Place),
    Rename { from: Place, to: Place, replace: bool },
    Link { node: Node, at: Place },
    Write { node: Node, content: u64 },
    Read(Node),
    Chmod { node: Node, mode: u32 },
    Look(Node),
    List(usize),
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Done,
    NotFound,
    Exists,
    Attr(Node, Shown),
    /// Attributes that another event has.
    Inode(Node),
    /// Links that are left.
    Removed(Node, u32),
    Content(u64),
    Names(BTreeMap<usize, Node>),
    /// Nothing is known of what came of it.
    Unknown,
    /// What is never to be answered.
    Wrong(String),
}

/// What attributes show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub is_empty: bool,
    pub mode: u32,
    pub links: u32,
}

/// One operation, with when it was asked and answered.
#[derive(Clone, Debug)]
pub struct Event {
    #[allow(dead_code)] // for people who read a failure
    pub who: usize,
    pub asked_at: u64,
    pub answered_at: u64,
    pub asked: Asked,
    pub said: Said,
}

impl Event {
    /// Whether it has changed something, or may have.
    fn changes(&self) -> bool {
        self.is_change() && !matches!(self.said, Said::NotFound | Said::Exists)
    }

    fn is_change(&self) -> bool {
        !matches!(self.asked, Asked::Lookup(_) | Asked::Read(_) | Asked::Look(_) | Asked::List(_))
    }

    /// The inode that it has made.
    pub fn made(&self) -> Option<Node> {
        match (&self.asked, &self.said) {
            (Asked::Make(_), Said::Attr(node, _)) => Some(*node),
            _ => None,
        }
    }
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    names: BTreeMap<Place, Node>,
    files: BTreeMap<Node, File>,
}

/// Content 0: none was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct File {
    content: u64,
    mode: u32,
    links: u32,
}

/// Mode of a file that was made.
pub const MODE: u32 = 0o644;

impl State {
    fn shown(&self, node: Node) -> Option<Said> {
        let File { content, mode, links } = *self.files.get(&node)?;
        Some(Said::Attr(node, Shown { is_empty: content == 0, mode, links }))
    }

    fn unlink(&mut self, place: Place) -> Option<(Node, u32)> {
        let node = self.names.remove(&place)?;
        let file = self.files.get_mut(&node)?;
        file.links -= 1;
        Some((node, file.links))
    }

    /// Does an operation and says what is answered. A new inode gets the number that was told.
    fn run(&mut self, asked: &Asked, said: &Said) -> Option<Said> {
        Some(match *asked {
            Asked::Make(place) => match (self.names.contains_key(&place), said) {
                (true, _) => Said::Exists,
                (false, Said::Attr(node, _) | Said::Inode(node)) if !self.files.contains_key(node) => {
                    self.names.insert(place, *node);
                    self.files.insert(*node, File { content: 0, mode: MODE, links: 1 });
                    self.shown(*node)?
                }
                _ => return None,
            },
            Asked::Lookup(place) => match self.names.get(&place) {
                Some(node) => self.shown(*node)?,
                None => Said::NotFound,
            },
            Asked::Unlink(place) => match self.unlink(place) {
                Some((node, links)) => Said::Removed(node, links),
                None => Said::NotFound,
            },
            Asked::Rename { from, to, replace } => self.rename(from, to, replace)?,
            Asked::Link { node, at } => {
                let file = self.files.get_mut(&node)?;
                match (file.links, self.names.contains_key(&at)) {
                    (_, true) => Said::Exists,
                    (0, _) => Said::NotFound,
                    _ => {
                        file.links += 1;
                        self.names.insert(at, node);
                        self.shown(node)?
                    }
                }
            }
            Asked::Write { node, content } => {
                self.files.get_mut(&node)?.content = content;
                Said::Done
            }
            Asked::Read(node) => Said::Content(self.files.get(&node)?.content),
            Asked::Chmod { node, mode } => {
                self.files.get_mut(&node)?.mode = mode;
                self.shown(node)?
            }
            Asked::Look(node) => self.shown(node)?,
            Asked::List(dir) => {
                let of_dir = self.names.iter().filter(|((of, _), _)| *of == dir);
                Said::Names(of_dir.map(|((_, name), node)| (*name, *node)).collect())
            }
        })
    }

    fn rename(&mut self, from: Place, to: Place, replace: bool) -> Option<Said> {
        let Some(node) = self.names.get(&from).copied() else { return Some(Said::NotFound) };
        match self.names.get(&to).copied() {
            Some(_) if !replace => return Some(Said::Exists),
            // two names of one inode stay as they are
            Some(other) if other == node => return Some(Said::Done),
            Some(_) => drop(self.unlink(to)?),
            None => (),
        }
        self.names.remove(&from);
        self.names.insert(to, node);
        Some(Said::Done)
    }

    /// The states after an operation, if it can have been next.
    fn after(&self, event: &Event) -> Vec<State> {
        let mut next = self.clone();
        let answer = next.run(&event.asked, &event.said);
        match &event.said {
            // it was done, or was not
            Said::Unknown => answer.map_or_else(|| vec![self.clone()], |_| vec![next, self.clone()]),
            Said::Inode(node) if matches!(&answer, Some(Said::Attr(of, _)) if of == node) => vec![next],
            said if answer.as_ref() == Some(said) => vec![next],
            _ => Vec::new(),
        }
    }
}

/// Changes that a server may have answered that came after the one that made them: it tells what
/// the file is like then. The attributes are judged as if they had been asked for at the same time.
pub fn with_attributes_apart(events: &[Event]) -> Vec<Event> {
    let apart = |event: &Event| match (&event.asked, &event.said) {
        (Asked::Make(_) | Asked::Link { .. } | Asked::Chmod { .. }, Said::Attr(node, _)) => {
            let change = Event { said: Said::Inode(*node), ..event.clone() };
            vec![change, Event { asked: Asked::Look(*node), ..event.clone() }]
        }
        _ => vec![event.clone()],
    };
    events.iter().flat_map(apart).collect()
}

/// Leaves out what a server may have shown before it crashed of changes that it had not answered
/// yet: these are undone, and made again later. That is what was only seen between the first of
/// them and the crash, and whatever speaks of inodes that nobody was told to have made: they are
/// made again as others.
pub fn without_unanswered(events: Vec<Event>, crashed_at: Option<u64>, made: &BTreeSet<Node>) -> Vec<Event> {
    let crashed_at = crashed_at.unwrap_or_default();
    let is_cut_off = |event: &&Event| event.asked_at <= crashed_at && event.answered_at > crashed_at;
    // also one that was refused when it was made again: it may have been done and seen before
    let cut_off = events.iter().filter(is_cut_off).filter(|event| event.is_change());
    let first = cut_off.map(|event| event.asked_at).min().unwrap_or(u64::MAX);
    let may_be_undone =
        |event: &Event| !event.changes() && event.answered_at >= first && event.answered_at <= crashed_at;
    let is_made = |node: &Node| made.contains(node);
    let speaks_of_made = |event: &Event| {
        let asked = match &event.asked {
            Asked::Link { node, .. } | Asked::Write { node, .. } | Asked::Chmod { node, .. } => is_made(node),
            Asked::Read(node) | Asked::Look(node) => is_made(node),
            _ => true,
        };
        asked
            && match &event.said {
                Said::Attr(node, _) | Said::Inode(node) | Said::Removed(node, _) => is_made(node),
                Said::Names(names) => names.values().all(is_made),
                _ => true,
            }
    };
    events.into_iter().filter(|event| speaks_of_made(event) && !may_be_undone(event)).collect()
}

/// The states in which the file system may be after these events, at most 128, if it was in one of
/// these before. None: no order explains the answers.
pub fn judge(before: &BTreeSet<State>, events: &[Event]) -> BTreeSet<State> {
    assert!(events.len() <= 128, "too many events");
    let all: u128 = if events.len() == 128 { u128::MAX } else { (1 << events.len()) - 1 };
    let mut seen: HashSet<(u128, State)> = HashSet::new();
    let mut open: Vec<(u128, State)> = before.iter().map(|state| (0, state.clone())).collect();
    let mut after = BTreeSet::new();
    while let Some((done, state)) = open.pop() {
        if done == all {
            after.insert(state);
            continue;
        }
        let left = || events.iter().enumerate().filter(move |(at, _)| done & (1 << at) == 0);
        let first_answer = left().map(|(_, event)| event.answered_at).min().unwrap_or(u64::MAX);
        for (at, event) in left().filter(|(_, event)| event.asked_at <= first_answer) {
            for next in state.after(event) {
                let next = (done | 1 << at, next);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    after
}
