//! Writes what leads from one tree to another as records. Two cells in which both trees are the
//! same write the same bytes, however their records and data came about: so the digest of the bytes
//! proves a copy.
//!
//! Content is compared where it may differ: in blocks of 4 KiB that are at other places. What is
//! written goes in runs of at most 256 KiB, which end at multiples of that.

use super::changes::{Changes, Reached};
use super::record::{Attributes, Record};
use crate::cell::turns::Paced;
use crate::format::extents::{Extents, Source, WINDOW};
use crate::format::inode::{Body, Dentry, Inode, xattr_value};
use crate::format::keys::{self, Key, tag};
use crate::ops::PAGE;
use crate::snapshots::tree::Tree;
use leeward_env::Ctx;
use leeward_fs::codec::Wire;
use leeward_fs::{Error, Kind, Reply, Result};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Content is compared in blocks of so many bytes.
const BLOCK: u32 = 4096;
/// Inodes that are read in a turn.
const STEP: usize = 256;
/// Bytes of content that are read at once.
const RUN: u32 = 256 << 10;
/// Bytes of records that are handed on at once, or a little more.
const PORTION: usize = 256 << 10;

/// Takes records, a portion of them at a time.
pub(crate) type Sink<'s> = dyn FnMut(Vec<u8>) -> Result<()> + 's;

/// Extended attributes of an inode by their names.
type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// An inode as it is, and as it was if it was there, with the extended attributes before and now.
struct Compared {
    inode: u64,
    was: Option<Inode>,
    is: Inode,
    xattrs: (Xattrs, Xattrs),
}

/// What is at a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Hole,
    Unwritten,
    Data,
}

/// Writes a stream.
pub(crate) struct Sending<'a, 's> {
    /// The work, in the name of a volume.
    pub(crate) paced: Paced<'a>,
    pub(crate) old: Reached<'a>,
    pub(crate) new: Reached<'a>,
    /// Takes portions. Never within a turn: it may wait for somebody.
    pub(crate) sink: &'s mut Sink<'s>,
    /// What is not handed on yet.
    pub(crate) portions: Vec<Vec<u8>>,
    /// Hears of each inode.
    pub(crate) progress: &'s mut dyn FnMut(u64, u64),
}

impl Sending<'_, '_> {
    /// Writes all records.
    pub(crate) fn run(&mut self, changes: &Changes) -> Result<()> {
        for gone in &changes.gone {
            let (dir, name) = (gone.name.0, &gone.name.1);
            self.put(&Record::Gone { dir, name, inode: gone.inode, stays: gone.stays });
            self.hand_on(PORTION)?;
        }
        self.send_made(changes)?;
        for ((dir, name), inode) in &changes.named {
            self.put(&Record::Named { dir: *dir, name, inode: *inode });
            self.hand_on(PORTION)?;
        }
        for dir in &changes.listed {
            self.send_names(*dir)?;
        }
        let total = (changes.made.len() + changes.touched.len()) as u64;
        let mut done = 0;
        let mut inodes = changes.made.union(&changes.touched).copied();
        loop {
            let some: Vec<u64> = inodes.by_ref().take(self.paced.size(STEP)).collect();
            if some.is_empty() {
                return self.hand_on(0);
            }
            let paced = self.paced;
            let read = || some.iter().map(|inode| self.compared(*inode, changes)).collect::<Result<Vec<_>>>();
            for compared in paced.step(read)? {
                (self.progress)(done, total);
                self.send_inode(compared, changes)?;
                self.hand_on(PORTION)?;
                done += 1;
            }
        }
    }

    fn send_made(&mut self, changes: &Changes) -> Result<()> {
        let mut inodes = changes.made.iter().copied();
        loop {
            let some: Vec<u64> = inodes.by_ref().take(self.paced.size(STEP)).collect();
            if some.is_empty() {
                return Ok(());
            }
            let read = || some.iter().map(|inode| self.new_inode(*inode)).collect::<Result<Vec<_>>>();
            for (inode, record) in some.iter().zip(self.paced.step(read)?) {
                let target: &[u8] = if let Body::Symlink(target) = &record.body { target } else { b"" };
                self.put(&Record::Made { inode: *inode, kind: record.kind, device: record.rdev, target });
                self.hand_on(PORTION)?;
            }
        }
    }

    fn put(&mut self, record: &Record<'_>) {
        match self.portions.last_mut() {
            Some(portion) if portion.len() < PORTION => record.put(portion),
            _ => {
                let mut portion = Vec::with_capacity(PORTION + RUN as usize);
                record.put(&mut portion);
                self.portions.push(portion);
            }
        }
    }

    /// Hands on what is there, if it is that many bytes.
    fn hand_on(&mut self, least: usize) -> Result<()> {
        if self.portions.iter().map(Vec::len).sum::<usize>() < least {
            return Ok(());
        }
        std::mem::take(&mut self.portions).into_iter().try_for_each(|portion| (self.sink)(portion))
    }

    fn new_tree(&self) -> Tree<'_> {
        self.new.tree.expect("something is sent")
    }

    fn new_inode(&self, inode: u64) -> Result<Inode> {
        self.new_tree().inode(inode)?.ok_or(Error::Stale)
    }

    fn send_names(&mut self, dir: u64) -> Result<()> {
        let mut next = None;
        loop {
            let mut page = Vec::new();
            let tree = self.new_tree();
            let each = |name: Box<[u8]>, entry: Dentry| page.push((name, entry.node.inode()));
            next = self.paced.step(|| tree.page(dir, next, each))?;
            for (name, inode) in page {
                self.put(&Record::Named { dir, name: &name, inode });
            }
            self.hand_on(PORTION)?;
            if next.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads what an inode is, and was.
    fn compared(&mut self, inode: u64, changes: &Changes) -> Result<Compared> {
        let is = self.new_inode(inode)?;
        let was = if changes.made.contains(&inode) { None } else { self.old.inode(inode)? };
        let old = match (self.old.tree, &was) {
            (Some(tree), Some(was)) => xattrs(tree, inode, was)?,
            _ => Xattrs::new(),
        };
        let new = xattrs(self.new_tree(), inode, &is)?;
        Ok(Compared { inode, was, is, xattrs: (old, new) })
    }

    fn send_inode(&mut self, compared: Compared, changes: &Changes) -> Result<()> {
        let Compared { inode, was, is, xattrs: (old, new) } = compared;
        let attributes = attributes(&is);
        let xattrs = self.send_xattrs(inode, &old, &new);
        let content = is.kind == Kind::File && self.send_content(inode, was.as_ref(), &is)?;
        let before = xattrs || content || changes.lost.contains(&inode);
        if before || was.is_none_or(|was| self::attributes(&was) != attributes) {
            self.put(&Record::Attr { inode, attributes });
        }
        Ok(())
    }

    /// Sends extended attributes that differ; whether any did.
    fn send_xattrs(&mut self, inode: u64, old: &Xattrs, new: &Xattrs) -> bool {
        let mut any = false;
        for name in old.keys().filter(|name| !new.contains_key(*name)) {
            self.put(&Record::Xattr { inode, name, value: None });
            any = true;
        }
        for (name, value) in new.iter().filter(|(name, value)| old.get(*name) != Some(*value)) {
            self.put(&Record::Xattr { inode, name, value: Some(value) });
            any = true;
        }
        any
    }

    fn send_content(&mut self, inode: u64, was: Option<&Inode>, is: &Inode) -> Result<bool> {
        let mut old = was.zip(self.old.tree).map(|(was, tree)| Windows::of(tree, inode, was));
        let new_tree = self.new.tree.ok_or(Error::Stale)?;
        let mut new = Windows::of(new_tree, inode, is);
        let cut = was.map_or(u64::MAX, |was| if is.size < was.size { is.size } else { u64::MAX });
        let mut any = cut < u64::MAX;
        if any {
            self.put(&Record::Cut { inode, size: cut });
        }
        while new.may_have_more() || old.as_ref().is_some_and(Windows::may_have_more) {
            let paced = self.paced;
            any |= paced.step(|| -> Result<bool> {
                let next_old = old.as_mut().map_or(Ok(None), Windows::next_number)?;
                let Some(window) = [next_old, new.next_number()?].into_iter().flatten().min() else {
                    return Ok(false);
                };
                let mut before = old.as_mut().map_or(Ok(Extents::default()), |old| old.take(window))?;
                clip(&mut before, cut.saturating_sub(u64::from(window) * WINDOW));
                let after = new.take(window)?;
                self.send_window(inode, window, &before, &after)
            })?;
            self.hand_on(PORTION)?;
        }
        Ok(any)
    }

    fn send_window(&mut self, inode: u64, window: u32, old: &Extents, new: &Extents) -> Result<bool> {
        let mut any = false;
        for start in (0..WINDOW as u32).step_by(RUN as usize) {
            let blocks = differing_blocks(old, new, start..start + RUN);
            if !blocks.is_empty() {
                any |= self.send_run(inode, window, (old, new), &blocks)?;
            }
        }
        Ok(any)
    }

    /// Sends those of these blocks, all of one run, whose content differs.
    fn send_run(
        &mut self,
        inode: u64,
        window: u32,
        (old, new): (&Extents, &Extents),
        blocks: &[Range<u32>],
    ) -> Result<bool> {
        let all = blocks[0].start..blocks[blocks.len() - 1].end;
        let base = u64::from(window) * WINDOW;
        let compares = blocks.iter().any(|block| held(old, block) == held(new, block));
        let before = content(self.old.tree.filter(|_| compares), inode, base, old, &all)?;
        let after = content(self.new.tree, inode, base, new, &all)?;
        let mut any = false;
        let mut differing: Option<Range<u32>> = None;
        for block in blocks {
            let part = (block.start - all.start) as usize..(block.end - all.start) as usize;
            let same = held(old, block) == held(new, block) && before[part.clone()] == after[part];
            match (&mut differing, same) {
                (Some(run), false) if run.end == block.start => run.end = block.end,
                (_, false) => {
                    if let Some(run) = differing.replace(block.clone()) {
                        self.send_pieces(inode, base, new, run, (&all, &after));
                    }
                    any = true;
                }
                (_, true) => (),
            }
        }
        if let Some(run) = differing {
            self.send_pieces(inode, base, new, run, (&all, &after));
        }
        Ok(any)
    }

    fn send_pieces(
        &mut self,
        inode: u64,
        base: u64,
        list: &Extents,
        run: Range<u32>,
        (all, bytes): (&Range<u32>, &[u8]),
    ) {
        for (part, held) in held(list, &run) {
            let (offset, len) = (base + u64::from(part.start), u64::from(part.end - part.start));
            let of_part = (part.start - all.start) as usize..(part.end - all.start) as usize;
            self.put(&match held {
                Held::Hole => Record::Hole { inode, offset, len },
                Held::Unwritten => Record::Unwritten { inode, offset, len },
                Held::Data => Record::Data { inode, offset, bytes: &bytes[of_part] },
            });
        }
    }
}

/// What a stream says of an inode.
pub(crate) fn attributes(inode: &Inode) -> Attributes {
    let Inode { mode, uid, gid, times, flags, .. } = *inode;
    let size = if inode.kind == Kind::File { inode.size } else { 0 };
    Attributes { mode, uid, gid, size, times, flags }
}

fn xattrs(tree: Tree<'_>, inode: u64, record: &Inode) -> Result<Xattrs> {
    let mut all = Xattrs::new();
    if record.xattrs == 0 {
        return Ok(all);
    }
    let (mut from, to) = keys::xattr_range(tree.node(inode));
    loop {
        let (page, next) = tree.shard.scan(&from, &to, PAGE)?;
        for (key, value) in &page {
            if let Some(parsed) = keys::parse(key) {
                all.insert(parsed.rest.into(), xattr_value(parsed.tag, value).into());
            }
        }
        match next {
            Some(next) => from = next,
            None => return Ok(all),
        }
    }
}

/// The windows of a file that hold anything, in order, read page by page.
struct Windows<'a> {
    tree: Tree<'a>,
    read: VecDeque<(u32, Extents)>,
    /// Where to read on; `None`: all is read.
    next: Option<Key>,
    end: Key,
}

impl<'a> Windows<'a> {
    fn of(tree: Tree<'a>, inode: u64, record: &Inode) -> Windows<'a> {
        let (from, end) = keys::tag_range(tree.node(inode), tag::EXTENTS);
        let (mut read, mut next) = (VecDeque::new(), None);
        if let Body::File { inline, spilled, windows } = &record.body {
            if !*spilled && !inline.is_empty() {
                read.push_back((0, inline.clone()));
            }
            next = (*spilled || *windows).then_some(from);
        }
        Windows { tree, read, next, end }
    }

    /// Whether there may be another window.
    fn may_have_more(&self) -> bool {
        !self.read.is_empty() || self.next.is_some()
    }

    /// The number of the next window.
    fn next_number(&mut self) -> Result<Option<u32>> {
        while self.read.is_empty()
            && let Some(from) = self.next.take()
        {
            let (page, next) = self.tree.shard.scan(&from, &self.end, PAGE)?;
            for (key, value) in page {
                let number = keys::parse(&key).and_then(|p| p.rest.try_into().ok()).map(u32::from_be_bytes);
                let list = Extents::decode(&value);
                self.read.push_back(number.zip(list).ok_or_else(|| Error::Corrupt("extents".into()))?);
            }
            self.next = next;
        }
        Ok(self.read.front().map(|(number, _)| *number))
    }

    /// The extents of the next window, if that is its number.
    fn take(&mut self, window: u32) -> Result<Extents> {
        match self.next_number()? {
            Some(number) if number == window => Ok(self.read.pop_front().expect("looked at").1),
            _ => Ok(Extents::default()),
        }
    }
}

/// The blocks of a part of a window whose content is at other places in two lists: what an address
/// leads to never changes.
fn differing_blocks(old: &Extents, new: &Extents, part: Range<u32>) -> Vec<Range<u32>> {
    let sources = |list: &Extents, block: &Range<u32>| -> Vec<(u32, u32, Source)> {
        list.within(block.clone()).map(|e| (e.offset, e.len, e.source)).collect()
    };
    if old.within(part.clone()).next().is_none() && new.within(part.clone()).next().is_none() {
        return Vec::new();
    }
    let blocks = part.step_by(BLOCK as usize).map(|start| start..start + BLOCK);
    blocks.filter(|block| sources(old, block) != sources(new, block)).collect()
}

/// Leaves nothing of a window beyond an offset in it.
fn clip(list: &mut Extents, end: u64) {
    if end < WINDOW {
        list.replace(end as u32..WINDOW as u32, None, 1, |_| {});
    }
}

/// What is at each part of a range, neighbours of one kind as one.
fn held(list: &Extents, range: &Range<u32>) -> Vec<(Range<u32>, Held)> {
    let mut all: Vec<(Range<u32>, Held)> = Vec::new();
    let mut add = |part: Range<u32>, held: Held| match all.last_mut() {
        _ if part.is_empty() => (),
        Some((last, kind)) if *kind == held => last.end = part.end,
        _ => all.push((part, held)),
    };
    let mut at = range.start;
    for e in list.within(range.clone()) {
        add(at..e.offset, Held::Hole);
        at = e.offset + e.len;
        let held = if matches!(e.source, Source::Data(_)) { Held::Data } else { Held::Unwritten };
        add(e.offset..at, held);
    }
    add(at..range.end, Held::Hole);
    all
}

/// The bytes of a part of a window: zeros where there is no data, and where no bytes need to be
/// read.
fn content(
    tree: Option<Tree<'_>>,
    inode: u64,
    base: u64,
    list: &Extents,
    part: &Range<u32>,
) -> Result<Vec<u8>> {
    let len = (part.end - part.start) as usize;
    let Some(tree) = tree else { return Ok(vec![0; len]) };
    let parts = held(list, part);
    // most parts are all data: those are not copied once more
    if let [(range, Held::Data)] = &parts[..] {
        let mut bytes = read_data(tree, inode, base, range)?;
        bytes.resize(len, 0);
        return Ok(bytes);
    }
    let mut bytes = vec![0; len];
    for (range, _) in parts.iter().filter(|(_, held)| *held == Held::Data) {
        let data = read_data(tree, inode, base, range)?;
        let at = (range.start - part.start) as usize;
        bytes[at..at + data.len()].copy_from_slice(&data);
    }
    Ok(bytes)
}

/// Fewer bytes than the range has: beyond the end of the file.
fn read_data(tree: Tree<'_>, inode: u64, base: u64, range: &Range<u32>) -> Result<Vec<u8>> {
    let (offset, len) = (base + u64::from(range.start), range.end - range.start);
    match tree.shard.read(&Ctx::system(), tree.node(inode), offset, len)? {
        Reply::Data(data) => Ok(data),
        _ => Err(Error::Invalid),
    }
}
