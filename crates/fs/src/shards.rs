//! Which shard of a cell answers an operation, and what crosses the border of two.
//!
//! A cell is one shard or several. A shard has volumes, each as a whole, and answers for what is in
//! them. The border between two shards is that between two volumes: a name in a directory of one
//! leads to the root of a volume of the other. A shard that meets such a root answers
//! [`Error::Elsewhere`], or leaves the attributes of an entry out, and the other one is asked.

use crate::uploads::UploadTotals;
use crate::{Entry, Error, NodeId, Op, Reply, Result};
use leeward_env::limits::WRITE_BYTES_MAX;

/// Most bytes of one copy between shards.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// The shards of a cell of several, as whoever answers operations sees them.
#[derive(Clone, Copy)]
pub struct Shards<'a> {
    /// How many there are.
    pub count: usize,
    /// Whether the caller counts references, see [`Op::Forget`].
    pub refs: bool,
    /// Asks one of them, by number.
    pub ask: &'a dyn Fn(usize, Op<'_>) -> Result<Reply>,
}

impl Shards<'_> {
    /// Answers an operation.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn answer(&self, op: Op<'_>) -> Result<Reply> {
        match op {
            Op::Lookup { dir, .. } => match self.of(dir, op) {
                Err(Error::Elsewhere(node)) => self.look_up(node).map_err(|e| match e {
                    Error::Stale => Error::NotFound,
                    e => e,
                }),
                found => found,
            },
            Op::List { dir, after, limit, attrs: true } => self.list(dir, after, limit),
            Op::Forget { node, .. } => self.of(node, op),
            Op::Link { node, dir, .. }
            | Op::Place { node, dir, .. }
            | Op::CompleteUpload { node, dir, .. } => self.of_both(node, dir, op),
            Op::Rename { from_dir, to_dir, .. } => self.of_both(from_dir, to_dir, op),
            Op::CopyRange { from, from_offset, to, to_offset, len } if from.shard() != to.shard() => {
                self.copy((from, from_offset), (to, to_offset), len.min(COPY_BYTES_MAX))
            }
            Op::SyncAll => {
                // of one that fails the others know nothing
                let done = self.all().map(|shard| (self.ask)(shard, op).map(drop)).fold(Ok(()), Result::and);
                done.map(|()| Reply::Done)
            }
            Op::ListUploads { limit, .. } => self.list_uploads(op, limit),
            Op::StatUploads { .. } => self.count_uploads(op),
            _ => match op.node() {
                Some(node) => self.of(node, op),
                None => Err(Error::Invalid),
            },
        }
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.count
    }

    fn of(&self, node: NodeId, op: Op<'_>) -> Result<Reply> {
        match node.shard() {
            shard if shard < self.count => (self.ask)(shard, op),
            _ => Err(Error::Stale),
        }
    }

    fn of_both(&self, one: NodeId, other: NodeId, op: Op<'_>) -> Result<Reply> {
        if one.shard() == other.shard() { self.of(one, op) } else { Err(Error::CrossVolume) }
    }

    fn look_up(&self, node: NodeId) -> Result<Reply> {
        self.of(node, Op::Lookup { dir: node, name: b"." })
    }

    /// Lists entries with the attributes of what other shards have.
    fn list(&self, dir: NodeId, after: &[u8], limit: usize) -> Result<Reply> {
        let (mut all, mut after) = (Vec::new(), Box::from(after));
        loop {
            let wanted = limit - all.len();
            let op = Op::List { dir, after: &after, limit: wanted, attrs: true };
            let page = self.of(dir, op).and_then(Reply::entries).inspect_err(|_| self.take_back(&all))?;
            let last = page.last().filter(|_| page.len() == wanted).map(|entry| entry.name.clone());
            let mut page = page.into_iter();
            if let Err(e) = page.by_ref().try_for_each(|entry| self.add(&mut all, entry)) {
                all.extend(page);
                self.take_back(&all);
                return Err(e);
            }
            match last {
                // some are gone meanwhile, and whoever gets fewer takes this for the end
                Some(last) if all.len() < limit => after = last,
                _ => return Ok(Reply::Entries(all)),
            }
        }
    }

    fn add(&self, all: &mut Vec<Entry>, entry: Entry) -> Result<()> {
        let attr = match entry.attr {
            Some(attr) => attr,
            None => match self.look_up(entry.node) {
                Ok(found) => found.attr()?,
                Err(Error::Stale) => return Ok(()),
                Err(e) => return Err(e),
            },
        };
        // the root of a copy is that of the snapshot which it shows
        all.push(Entry { node: attr.node, attr: Some(attr), ..entry });
        Ok(())
    }

    /// Takes back the references to entries that the caller does not get after all.
    fn take_back(&self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| self.refs && entry.attr.is_some()) {
            // fails where the shard can change nothing any more
            let _ = self.of(entry.node, Op::Forget { node: entry.node, count: 1 });
        }
    }

    /// Copies bytes in writes, as many as go: the caller asks again for more.
    fn copy(
        &self,
        (from, from_offset): (NodeId, u64),
        (to, to_offset): (NodeId, u64),
        len: u64,
    ) -> Result<Reply> {
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(WRITE_BYTES_MAX as u64) as u32;
            let read = Op::Read { node: from, offset: from_offset + done, len: piece };
            let copied = self.of(from, read).and_then(Reply::data).and_then(|data| match data.is_empty() {
                true => Ok(0),
                false => {
                    self.of(to, Op::Write { node: to, offset: to_offset + done, data: &data })?.written()
                }
            });
            match copied {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(Reply::Written(done))
    }

    fn list_uploads(&self, op: Op<'_>, limit: usize) -> Result<Reply> {
        let mut all = Vec::new();
        for shard in self.all() {
            all.append(&mut (self.ask)(shard, op)?.uploads()?);
        }
        all.sort_by(|(id, a), (other, b)| (&a.key, id).cmp(&(&b.key, other)));
        all.truncate(limit);
        Ok(Reply::Uploads(all))
    }

    fn count_uploads(&self, op: Op<'_>) -> Result<Reply> {
        let mut sum = UploadTotals::default();
        for shard in self.all() {
            let UploadTotals { uploads, bytes } = (self.ask)(shard, op)?.upload_totals()?;
            sum = UploadTotals { uploads: sum.uploads + uploads, bytes: sum.bytes + bytes };
        }
        Ok(Reply::UploadTotals(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uploads::UploadRecord;
    use crate::{Attr, Kind, Time, VIEW_FIRST, VIEWS_OF_SHARD, VOLUMES_OF_SHARD};
    use std::cell::RefCell;

    const OTHER: NodeId = NodeId((VOLUMES_OF_SHARD as u64) << 40 | 1);
    const GONE: NodeId = NodeId((VOLUMES_OF_SHARD as u64 + 1) << 40 | 1);

    fn attr(node: NodeId) -> Attr {
        Attr {
            node,
            kind: Kind::Dir,
            mode: 0,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time::default(),
            flags: Default::default(),
        }
    }

    /// Two shards: a directory of the first has three names, two of which lead to the second.
    fn ask(shard: usize, op: Op<'_>) -> Result<Reply> {
        let entry =
            |name: &[u8], node: NodeId| Entry { name: name.into(), node, kind: Kind::Dir, attr: None };
        match (shard, op) {
            (0, Op::Lookup { name: b"b", .. }) => Err(Error::Elsewhere(OTHER)),
            (1, Op::Lookup { dir: OTHER, name: b"." }) => Ok(Reply::Attr(attr(OTHER))),
            (1, Op::Lookup { name: b"..", .. }) => Err(Error::Elsewhere(NodeId::ROOT)),
            (0, Op::Lookup { dir, name: b"." }) => Ok(Reply::Attr(attr(dir))),
            (0, Op::List { after, limit, .. }) => {
                let own = Entry { attr: Some(attr(NodeId(7))), ..entry(b"c", NodeId(7)) };
                let all = [entry(b"a", GONE), entry(b"b", OTHER), own];
                let page = all.into_iter().filter(|e| *e.name > *after).take(limit);
                Ok(Reply::Entries(page.collect()))
            }
            (0, Op::Read { offset, .. }) => Ok(Reply::Data(vec![1; 5_usize.saturating_sub(offset as usize)])),
            (1, Op::Write { data, .. }) => Ok(Reply::Written(data.len().min(3) as u64)),
            (_, Op::ListUploads { .. }) => {
                let record = |key: &str| UploadRecord {
                    uid: 1,
                    at: Time::default(),
                    complete: false,
                    key: key.into(),
                    note: (*b"").into(),
                };
                let keys = if shard == 0 { ["b/a", "b/d"] } else { ["b/b", "b/c"] };
                Ok(Reply::Uploads(keys.map(|key| (NodeId(9), record(key))).into()))
            }
            (_, Op::StatUploads { .. }) => Ok(Reply::UploadTotals(UploadTotals { uploads: 2, bytes: 5 })),
            _ => Err(Error::Stale),
        }
    }

    fn answer(op: Op<'_>) -> Result<Reply> {
        Shards { count: 2, refs: true, ask: &ask }.answer(op)
    }

    #[test]
    fn numbers_say_which_shard_gave_them_out() {
        let shard = |volume: u32| NodeId::new(volume, 1).shard();
        assert_eq!(
            [0, VOLUMES_OF_SHARD - 1, VOLUMES_OF_SHARD, VIEW_FIRST - 1].map(shard),
            [0, 0, 1, SHARDS - 1]
        );
        for kind in [VIEW_FIRST, crate::DIRECTORIES_FIRST] {
            assert_eq!([kind, kind + VIEWS_OF_SHARD - 1, kind + VIEWS_OF_SHARD].map(shard), [0, 0, 1]);
        }
        assert_eq!([crate::DIRECTORIES_FIRST - 1, crate::VIEW_END - 1].map(shard), [SHARDS - 1; 2]);
    }

    const SHARDS: usize = crate::SHARDS_MAX;

    #[test]
    fn a_root_in_another_shard_is_found_from_both_sides() {
        let looked_up =
            |dir, name| answer(Op::Lookup { dir, name }).and_then(Reply::attr).map(|attr| attr.node);
        assert_eq!(looked_up(NodeId::ROOT, b"b"), Ok(OTHER));
        assert_eq!(looked_up(OTHER, b".."), Ok(NodeId::ROOT));
        let beyond = NodeId::new(2 * VOLUMES_OF_SHARD, 1);
        assert_eq!(looked_up(beyond, b"x"), Err(Error::Stale), "there is no such shard");
    }

    #[test]
    fn listings_have_all_attributes_and_end_where_the_directory_does() {
        let listed = |limit| {
            let op = Op::List { dir: NodeId::ROOT, after: b"", limit, attrs: true };
            let entries = answer(op).and_then(Reply::entries).expect("listed");
            entries.into_iter().map(|e| e.attr.expect("attributes").node).collect::<Vec<_>>()
        };
        assert_eq!(listed(9), [OTHER, NodeId(7)]);
        // the first name leads to what is gone
        assert_eq!(listed(1), [OTHER]);
    }

    #[test]
    fn references_are_taken_back_when_a_listing_fails() {
        let forgotten = RefCell::new(Vec::new());
        let broken = |shard: usize, op: Op<'_>| match (shard, op) {
            (1, Op::Lookup { dir: OTHER, .. }) => Err(Error::Io("away".into())),
            (_, Op::Forget { node, .. }) => {
                forgotten.borrow_mut().push(node);
                Ok(Reply::Done)
            }
            (shard, op) => ask(shard, op),
        };
        let op = Op::List { dir: NodeId::ROOT, after: b"", limit: 9, attrs: true };
        let shards = |refs| Shards { count: 2, refs, ask: &broken };
        assert!(shards(false).answer(op).is_err());
        assert!(forgotten.borrow().is_empty());
        assert!(shards(true).answer(op).is_err());
        assert_eq!(*forgotten.borrow(), [NodeId(7)]);
    }

    #[test]
    fn names_do_not_cross_the_border_and_content_does() {
        let link = Op::Link { node: NodeId(7), dir: OTHER, name: b"x" };
        assert_eq!(answer(link), Err(Error::CrossVolume));
        let copy = Op::CopyRange { from: NodeId(7), from_offset: 0, to: OTHER, to_offset: 0, len: 99 };
        assert_eq!(answer(copy), Ok(Reply::Written(5)), "in two writes");
    }

    #[test]
    fn uploads_of_all_shards_are_one_list() {
        let op = Op::ListUploads { prefix: b"", after: b"", after_upload: NodeId(0), limit: 3 };
        let uploads = answer(op).and_then(Reply::uploads).expect("listed");
        let keys: Vec<&str> = uploads.iter().map(|(_, record)| &*record.key).collect();
        assert_eq!(keys, ["b/a", "b/b", "b/c"]);
        let sum = UploadTotals { uploads: 4, bytes: 10 };
        assert_eq!(answer(Op::StatUploads { bucket: None }), Ok(Reply::UploadTotals(sum)));
    }
}
