//! Lists what happened at or below a path, or what operators asked of the cell.
//!
//! Only what is durable is listed: each event is in the commit that made its change durable.

use super::places::Paths;
use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, PathText, Reply, Request};
use crate::format::events::{Block, Event, LogHead, Named, Rights, What};
use crate::format::keys::{self, CELL_LOG};
use crate::shard::Shard;
use leeward_fs::{Error, Kind, NodeId, Result as FsResult};
use serde::{Deserialize, Serialize};

/// Blocks that one request reads at most.
const BLOCKS_MAX: usize = 64;
/// Blocks that are read at a time.
const BLOCKS_READ: usize = 8;
/// A page ends with the event whose paths make it so long, bytes, or so many events.
const PAGE_BYTES: usize = 8 << 20;
const PAGE_EVENTS_MAX: usize = 10_000;
const NANOS: u64 = 1_000_000_000;

/// Lists what happened, a page at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventList {
    /// A directory or a file, which need not be there any more: what happened at it or below it;
    /// `None`: what operators asked of the cell.
    pub path: Option<String>,
    /// Where an earlier page ended; `None`: at the first event that is kept, or with `newest_first`
    /// at the last; `end`: only what happens from now on.
    pub cursor: Option<String>,
    /// The newest event first.
    #[serde(default)]
    pub newest_first: bool,
    /// Make durable first what has happened until now, so that it is listed.
    #[serde(default)]
    pub until_now: bool,
    /// Which of them.
    #[serde(default)]
    pub filter: EventFilter,
    /// Most events in the page. It has fewer where these would be too large an answer.
    pub limit: usize,
}

/// Which events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFilter {
    /// Only what these users did; empty: all.
    #[serde(default)]
    pub uids: Vec<u32>,
    /// Only what was done on this machine.
    #[serde(default)]
    pub machine: Option<String>,
    /// Only these kinds; empty: all.
    #[serde(default)]
    pub kinds: Vec<EventKind>,
    /// Not before this second since 1970.
    #[serde(default)]
    pub since_secs: Option<i64>,
    /// Not after this second.
    #[serde(default)]
    pub until_secs: Option<i64>,
    /// Only where a path (or a request) contains this text.
    #[serde(default)]
    pub contains: Option<String>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// It has a name now, its first.
    Created,
    /// It has one name more.
    Linked,
    /// It has one name less.
    Removed,
    /// It has another name, or is in another directory.
    Renamed,
    /// It and another have each other's name.
    Exchanged,
    /// Its content changed.
    Written,
    /// Its mode, owner or group changed.
    Rights,
    /// Its times or flags were set.
    Attributes,
    /// An extended attribute, also an ACL, was set or removed.
    Xattr,
    /// A snapshot of it was taken.
    SnapshotTaken,
    /// A snapshot of it was removed.
    SnapshotRemoved,
    /// A snapshot of it was renamed.
    SnapshotRenamed,
    /// A snapshot of it was locked, or its lock removed.
    SnapshotLocked,
    /// An operator asked for something.
    Asked,
}

/// Mode, owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightsInfo {
    /// Mode, 07777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInfo {
    /// Its number in the log of its volume: one more than that of the event before.
    pub number: u64,
    /// A cursor behind it: with it one goes on after this event.
    pub cursor: String,
    /// When: seconds since 1970.
    pub secs: i64,
    /// And nanoseconds.
    pub nanos: u32,
    /// What happened.
    pub what: EventKind,
    /// The path in the cell as it was then, after the event; `None`: there is none, or a directory
    /// above is not known any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathText>,
    /// Of a renamed file or snapshot, and of one that was exchanged: its path or name before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathText>,
    /// Its last name, also where there is no path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PathText>,
    /// `file`, `dir`, `symlink`, `fifo`, `char-dev`, `block-dev` or `socket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its inode number, as stat shows it; 0: none.
    pub inode: u64,
    /// Of two that have exchanged names: the inode number of what is at `from` now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_inode: Option<u64>,
    /// User id of who did it.
    pub uid: u32,
    /// The way in which it came: `mount`, `s3`, `http` or `remote`.
    pub door: String,
    /// The machine, where it is not the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The work of the file system itself that did it, such as `restore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// Before a change of rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<RightsInfo>,
    /// After a change of rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<RightsInfo>,
    /// The extended attribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xattr: Option<PathText>,
    /// Whether the extended attribute was removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<PathText>,
    /// Nobody may remove the snapshot before this second since 1970; 0: it is not locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until_secs: Option<i64>,
    /// What an operator asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<serde_json::Value>,
}

/// A page of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPage {
    /// In order.
    pub events: Vec<EventInfo>,
    /// With this the next page follows.
    pub cursor: String,
    /// Whether the next page can be asked for at once: the log was not read to its end.
    pub more: bool,
    /// So many events, which come after the cursor of the request, are not kept any more.
    pub lost: u64,
}

impl Reply for EventPage {
    const KIND: &'static str = "events";
}

/// What is looked at: `VOLUME.INODE.NUMBER` as a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) volume: u32,
    /// The directory or file; 0: there is none of this path.
    inode: u64,
    /// The next event; with the newest first, the one after the next.
    number: u64,
}

impl Position {
    fn text(self) -> String {
        format!("{}.{}.{}", self.volume, self.inode, self.number)
    }

    fn parse(text: &str) -> Option<Position> {
        let mut parts = text.split('.');
        let (volume, inode, number) = (parts.next()?, parts.next()?, parts.next()?);
        let is_all = parts.next().is_none();
        let position = Position {
            volume: volume.parse().ok()?,
            inode: inode.parse().ok()?,
            number: number.parse().ok()?,
        };
        is_all.then_some(position)
    }
}

impl Request for EventList {
    type Reply = EventPage;

    fn concerns(&self) -> Concerns<'_> {
        self.path.as_deref().map_or(Concerns::Cell, Concerns::Path)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<EventPage, Failure> {
        if self.until_now {
            shard.settle()?;
            shard.publish_all();
        }
        let start = self.position(shard)?;
        let head = shard.lock().events.head(start.volume);
        let number = match self.newest_first {
            true => start.number.min(head.next),
            false => start.number.max(head.first),
        };
        let at = Position { number, ..start };
        let mut page = Page::new(self, shard, at);
        let read = match self.newest_first {
            true => page.read_back(head.first),
            false => page.read_on(),
        };
        let more = read.map_err(about("the event log"))?;
        let lost = if self.newest_first { 0 } else { number - start.number + page.lost };
        Ok(EventPage { events: page.events, cursor: page.at.text(), more, lost })
    }
}

impl EventList {
    /// The volume whose log it goes on to read, if it has a cursor that says.
    pub fn volume_of_cursor(&self) -> Option<u32> {
        self.cursor.as_deref().and_then(Position::parse).map(|at| at.volume)
    }

    fn position(&self, shard: &Shard) -> Result<Position, Failure> {
        let of_cursor = self.cursor.as_deref().filter(|cursor| *cursor != "end").map(|cursor| {
            let damaged = || Failure::new(libc::EINVAL, format!("{cursor:?} is no cursor of an event log"));
            Position::parse(cursor).ok_or_else(damaged)
        });
        let found = match (of_cursor.transpose()?, &self.path) {
            (Some(at), _) => {
                let is_there = at.volume == CELL_LOG || shard.lock().volumes.contains_key(&at.volume);
                if !is_there {
                    return Err(Failure::new(libc::ESTALE, "the volume of this cursor was removed"));
                }
                return Ok(at);
            }
            (None, None) => Position { volume: CELL_LOG, inode: 0, number: 0 },
            (None, Some(path)) => shard.place_of_events(path)?,
        };
        let is_at_end = self.newest_first || self.cursor.is_some();
        // what is being written may not become durable, and its numbers are given again
        let head =
            shard.kv.get(&keys::log_head(found.volume)).map_err(|e| about("the event log")(e.into()))?;
        let head = head.map(|head| LogHead::decode(&head)).transpose().map_err(about("the event log"))?;
        let next = head.unwrap_or_default().next;
        Ok(Position { number: if is_at_end { next } else { 0 }, ..found })
    }
}

impl Shard {
    /// The volume of a path, and what is there. Where nothing is there any more, the volume that it
    /// would be in.
    pub(crate) fn place_of_events(&self, path: &str) -> Result<Position, Failure> {
        let mut above = path;
        loop {
            match self.resolve(above) {
                Ok(node) => {
                    let node = self.lock().live_node(node);
                    let inode = if above == path { node.inode() } else { 0 };
                    return Ok(Position { volume: node.volume(), inode, number: 0 });
                }
                Err(Error::NotFound | Error::NotDir) => {
                    above = above.trim_end_matches('/').rsplit_once('/').map_or("/", |(above, _)| above);
                }
                Err(e) => return Err(about(path)(e)),
            }
        }
    }
}

/// A page that is being read.
struct Page<'a> {
    request: &'a EventList,
    shard: &'a Shard,
    at: Position,
    paths: Paths<'a>,
    /// The path that was asked for, without a slash at the end.
    under: Option<Vec<u8>>,
    events: Vec<EventInfo>,
    /// Of their paths.
    bytes: usize,
    /// Events that were removed while the page was read.
    lost: u64,
}

impl<'a> Page<'a> {
    fn new(request: &'a EventList, shard: &'a Shard, at: Position) -> Page<'a> {
        let under = request.path.as_ref().map(|path| path.trim_end_matches('/').as_bytes().to_vec());
        let paths = Paths::new(shard, at.volume);
        Page { request, shard, at, paths, under, events: Vec::new(), bytes: 0, lost: 0 }
    }

    fn is_full(&self) -> bool {
        self.events.len() >= self.request.limit.min(PAGE_EVENTS_MAX) || self.bytes >= PAGE_BYTES
    }

    /// From `at` on; whether there may be more.
    fn read_on(&mut self) -> FsResult<bool> {
        // the block that has the event may begin before it
        let (start, end) = keys::events_range(self.at.volume, 0);
        let upto = keys::events(self.at.volume, self.at.number.saturating_add(1));
        let holds = self.shard.kv.scan(&start, &upto, 1, true)?;
        let mut start = holds.first().map_or(start, |(key, _)| key.clone());
        for _ in 0..BLOCKS_MAX / BLOCKS_READ {
            let page = self.shard.kv.scan(&start, &end, BLOCKS_READ, false)?;
            for (key, record) in &page {
                let first = keys::parse_event(key).unwrap_or_default();
                let block = Block::decode(self.at.volume, record)?;
                self.lost += first.saturating_sub(self.at.number);
                let from = self.at.number.max(first);
                for (number, event) in (first..).zip(&block.events).filter(|(n, _)| *n >= from) {
                    if self.is_full() {
                        return Ok(true);
                    }
                    self.at.number = number + 1;
                    self.add(number, event)?;
                }
                start = keys::after(key);
            }
            if page.len() < BLOCKS_READ {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// From before `at` back; whether there may be more.
    fn read_back(&mut self, oldest: u64) -> FsResult<bool> {
        for _ in 0..BLOCKS_MAX / BLOCKS_READ {
            let (start, _) = keys::events_range(self.at.volume, oldest);
            let end = keys::events(self.at.volume, self.at.number);
            let page = self.shard.kv.scan(&start, &end, BLOCKS_READ, true)?;
            for (key, record) in &page {
                let first = keys::parse_event(key).unwrap_or_default();
                let block = Block::decode(self.at.volume, record)?;
                let numbered: Vec<(u64, &Event)> = (first..).zip(&block.events).collect();
                let upto = self.at.number;
                for (number, event) in numbered.into_iter().rev().filter(|(n, _)| *n < upto) {
                    if self.is_full() {
                        return Ok(true);
                    }
                    self.at.number = number;
                    self.add(number, event)?;
                }
            }
            if page.len() < BLOCKS_READ {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds an event, if it is asked for.
    fn add(&mut self, number: u64, event: &Event) -> FsResult<()> {
        let filter = &self.request.filter;
        let secs = (event.at / NANOS) as i64;
        let is_asked = (filter.uids.is_empty() || filter.uids.contains(&event.by.uid))
            && (filter.kinds.is_empty() || filter.kinds.contains(&kind_of(&event.what)))
            && filter.since_secs.is_none_or(|since| secs >= since)
            && filter.until_secs.is_none_or(|until| secs <= until)
            && (filter.machine.is_none() || filter.machine.as_deref() == event.by.machine.map(|m| m.name()));
        if !is_asked {
            return Ok(());
        }
        let mut info = self.info(number, event);
        let mut is_below = self.request.path.is_none();
        if let Some((at, from)) = names_of(&event.what) {
            let is_snapshot = info.snapshot.is_some();
            for (named, is_old) in [(Some(at), false), (from.filter(|_| !is_snapshot), true)] {
                let Some(named) = named else { continue };
                let of_snapshot = Named { dir: named.dir, name: Box::default() };
                let found = match is_snapshot {
                    true => self.paths.find_dir(of_snapshot.dir, number)?,
                    false => self.paths.find(named, number)?,
                };
                is_below |= self.is_below(event, &found.above, found.path.as_deref());
                let path = found.path.map(PathText::new);
                if is_old { info.from = path } else { info.path = path }
            }
        }
        let text = filter.contains.as_deref();
        if is_below && text.is_none_or(|text| contains(&info, text)) {
            let paths = [&info.path, &info.from].into_iter().flatten();
            self.bytes += paths.map(|path| path.as_bytes().len()).sum::<usize>();
            self.events.push(info);
        }
        Ok(())
    }

    fn is_below(&self, event: &Event, above: &[u64], path: Option<&[u8]>) -> bool {
        let asked = self.at.inode;
        let by_inode =
            asked != 0 && (above.contains(&asked) || event.node == NodeId::new(self.at.volume, asked));
        let by_path = self.under.as_deref().zip(path).is_some_and(|(under, path)| {
            path.strip_prefix(under).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        });
        by_inode || by_path
    }

    fn info(&self, number: u64, event: &Event) -> EventInfo {
        let text = |bytes: &[u8]| PathText::new(bytes.to_vec());
        let rights = |r: &Rights| RightsInfo { mode: r.mode, uid: r.uid, gid: r.gid };
        let behind = if self.request.newest_first { number } else { number + 1 };
        let mut info = EventInfo {
            number,
            cursor: Position { number: behind, ..self.at }.text(),
            secs: (event.at / NANOS) as i64,
            nanos: (event.at % NANOS) as u32,
            what: kind_of(&event.what),
            path: None,
            from: None,
            name: None,
            kind: Some(type_name(event.kind).into()),
            inode: event.node.0,
            other_inode: None,
            uid: event.by.uid,
            door: event.by.door.name().into(),
            machine: event.by.machine.map(|machine| machine.name().into()),
            work: event.by.work.map(|work| work.name().into()),
            was: None,
            is: None,
            xattr: None,
            removed: false,
            snapshot: None,
            locked_until_secs: None,
            request: None,
        };
        match &event.what {
            What::Rights { was, is, .. } => (info.was, info.is) = (Some(rights(was)), Some(rights(is))),
            What::Xattr { xattr, removed, .. } => (info.xattr, info.removed) = (Some(text(xattr)), *removed),
            What::SnapshotTaken { at } | What::SnapshotRemoved { at } => info.snapshot = Some(text(&at.name)),
            What::SnapshotRenamed { from, to } => {
                (info.snapshot, info.from) = (Some(text(&to.name)), Some(text(&from.name)));
            }
            What::SnapshotLocked { at, until_secs } => {
                (info.snapshot, info.locked_until_secs) = (Some(text(&at.name)), Some(*until_secs));
            }
            What::Asked(request) => {
                (info.request, info.kind) = (serde_json::from_slice(request).ok(), None);
            }
            What::Exchanged { to, other, .. } => {
                (info.name, info.other_inode) = (Some(text(&to.name)), Some(other.0));
            }
            What::Created { at }
            | What::Linked { at }
            | What::Removed { at }
            | What::Renamed { to: at, .. }
            | What::Written { at }
            | What::Attributes { at } => info.name = Some(text(&at.name)),
        }
        info
    }
}

/// The name that something has, and the one that it had.
fn names_of(what: &What) -> Option<(&Named, Option<&Named>)> {
    match what {
        What::Created { at }
        | What::Linked { at }
        | What::Removed { at }
        | What::Written { at }
        | What::Rights { at, .. }
        | What::Attributes { at }
        | What::Xattr { at, .. }
        | What::SnapshotTaken { at }
        | What::SnapshotRemoved { at }
        | What::SnapshotLocked { at, .. } => Some((at, None)),
        What::Renamed { from, to }
        | What::Exchanged { from, to, .. }
        | What::SnapshotRenamed { from, to } => Some((to, Some(from))),
        What::Asked(_) => None,
    }
}

fn kind_of(what: &What) -> EventKind {
    match what {
        What::Created { .. } => EventKind::Created,
        What::Linked { .. } => EventKind::Linked,
        What::Removed { .. } => EventKind::Removed,
        What::Renamed { .. } => EventKind::Renamed,
        What::Exchanged { .. } => EventKind::Exchanged,
        What::Written { .. } => EventKind::Written,
        What::Rights { .. } => EventKind::Rights,
        What::Attributes { .. } => EventKind::Attributes,
        What::Xattr { .. } => EventKind::Xattr,
        What::SnapshotTaken { .. } => EventKind::SnapshotTaken,
        What::SnapshotRemoved { .. } => EventKind::SnapshotRemoved,
        What::SnapshotRenamed { .. } => EventKind::SnapshotRenamed,
        What::SnapshotLocked { .. } => EventKind::SnapshotLocked,
        What::Asked(_) => EventKind::Asked,
    }
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "dir",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::CharDev => "char-dev",
        Kind::BlockDev => "block-dev",
        Kind::Socket => "socket",
    }
}

fn contains(info: &EventInfo, text: &str) -> bool {
    let texts = [&info.path, &info.from, &info.name, &info.snapshot, &info.xattr];
    let is_in = |bytes: &[u8]| bytes.windows(text.len().max(1)).any(|part| part == text.as_bytes());
    text.is_empty()
        || texts.into_iter().flatten().any(|path| is_in(path.as_bytes()))
        || info.request.as_ref().is_some_and(|request| is_in(request.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_were_written() {
        let at = Position { volume: 3, inode: 17, number: 12_345_678_901 };
        assert_eq!(Position::parse(&at.text()), Some(at));
        for text in ["", "1.2", "1.2.3.4", "a.1.2", "-1.0.0", "1.2.99999999999999999999"] {
            assert_eq!(Position::parse(text), None, "{text}");
        }
    }
}
