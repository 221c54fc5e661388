//! fsck: checks every invariant of the stored form against all records and all objects.
//!
//! It reads the records as they are committed at one moment, while operations go on. Then it reads
//! and verifies every object. It changes nothing.

mod attached;
mod events;
mod groups;
mod history;
mod hosts;
mod judged;
mod owners;
mod projects;
mod request;
mod samples;
mod sessions;
mod strays;
mod uploads;

pub use request::{Finding, Fsck, FsckReport};

use crate::admin::Progress;
use crate::cell::naming_damage;
use crate::format::each;
use crate::format::extents::{Extents, Source};
use crate::format::inode::{
    BinRecord, Body, Counters, Dentry, Inode, Reserved, SegmentRecord, Stats, VolumeRecord,
};
use crate::format::keys::{self, Key, Table, tag};
use crate::shard::Shard;
use crate::state::quota::QuotaOf;
use crate::state::segments::count;
use crate::state::which::WhichShard;
use history::{History, data_of};
use judged::Judged;
use leeward_data::{Object, PoolId};
use leeward_env::{Ctx, Work};
use leeward_fs::{Error, InodeFlags, Kind, NodeId, Result};
use leeward_meta::Moment;
use leeward_pool::Store;
use owners::OwnersSeen;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use uploads::Kept;

/// Most findings that are listed; the rest is only counted.
const FINDINGS_MAX: usize = 10_000;
/// Records that one step reads.
const STEP_RECORDS: usize = 512;

/// What the records of an inode say, and what records of others say about it.
#[derive(Default)]
struct Seen {
    kind: Option<Kind>,
    nlink: u32,
    parent: u64,
    size: u64,
    allocated: u64,
    entries: u64,
    xattrs: u32,
    linked: bool,
    /// Whether it is in the recycle bin: by its own record, and by the table of the bin.
    binned: bool,
    in_bin: u32,
    /// Counted from the extents, dentries, attributes and names that were found.
    found_allocated: u64,
    found_entries: u64,
    found_xattrs: u32,
    found_names: u32,
    found_subdirs: u32,
    name_in: u64,
    /// The directories of its names, as a sum of [`mark_of`] each: those that were found, and those
    /// that the records of its links count.
    names_in: u64,
    links_in: u64,
    stats: Stats,
    /// Not folded yet: at it, and later with all below it.
    unfolded: Stats,
    sum: Stats,
}

/// A number of a directory that sums of few others do not meet by chance.
fn mark_of(dir: u64) -> u64 {
    let mixed = (dir ^ dir >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
}

/// What is collected while records are read.
#[derive(Default)]
struct Census {
    which: WhichShard,
    /// Names that lead to roots in other shards, and where they are.
    names_beside: FxHashMap<NodeId, NodeId>,
    inodes: FxHashMap<NodeId, Seen>,
    references: FxHashMap<u64, u64>,
    /// Pools with data that cannot be read.
    away: BTreeSet<PoolId>,
    orphans: FxHashSet<NodeId>,
    kept: Kept,
    segments: FxHashMap<u64, SegmentRecord>,
    /// Number of the process that has the cell.
    process: u64,
    reserved: Reserved,
    /// What the quotas in memory count as used, when nothing else was in memory only.
    quotas: Vec<(QuotaOf, Stats)>,
    projects: projects::ProjectsFound,
    owners: OwnersSeen,
    report: FsckReport,
    bad: Vec<(String, Option<NodeId>, String)>,
}

impl Census {
    fn say(&mut self, kind: &str, node: Option<NodeId>, detail: String) {
        if self.bad.len() < FINDINGS_MAX {
            self.bad.push((kind.into(), node, detail));
        }
    }

    fn extents(&mut self, node: NodeId, list: &Extents) {
        for e in list.iter() {
            if let Source::Data(addr) = e.source {
                *self.references.entry(addr.segment).or_default() += u64::from(e.len);
            }
        }
        self.inodes.entry(node).or_default().found_allocated += list.allocated();
    }

    fn flags(&mut self, node: NodeId, flags: InodeFlags) {
        let unknown = flags.without(InodeFlags::KNOWN);
        if !unknown.is_empty() {
            self.say("flags", Some(node), format!("unknown flags {:#x}", unknown.bits()));
        }
    }

    fn record(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let Some(parsed) = keys::parse(key) else {
            self.say("key", None, format!("a key of {} bytes cannot be read", key.len()));
            return Ok(());
        };
        let node = parsed.node;
        match parsed.tag {
            tag::INODE => {
                let inode = Inode::decode(value)?;
                self.report.inodes += 1;
                self.owners.inode(node, value);
                self.content_lsn(node, &inode);
                let seen = self.inodes.entry(node).or_default();
                seen.kind = Some(inode.kind);
                seen.nlink = inode.nlink;
                seen.parent = inode.parent;
                seen.size = inode.size;
                seen.allocated = inode.allocated;
                seen.entries = inode.entries();
                seen.xattrs = inode.xattrs;
                seen.linked = inode.linked;
                seen.binned = inode.binned;
                if let Body::File { inline, .. } = &inode.body {
                    self.extents(node, inline);
                }
                self.flags(node, inode.flags);
            }
            tag::STATS => self.inodes.entry(node).or_default().stats = Stats::decode(value)?,
            tag::DENTRY => self.dentry(node, Dentry::decode(value)?),
            tag::EXTENTS => {
                let list = Extents::decode(value)
                    .ok_or_else(|| Error::Corrupt(format!("extents of {node:?} cannot be read")))?;
                self.extents(node, &list);
            }
            tag::XATTR | tag::XATTR_PLAIN => self.inodes.entry(node).or_default().found_xattrs += 1,
            tag::LINK => {
                let count = <[u8; 4]>::try_from(value).map(u32::from_be_bytes);
                let dir = <[u8; 8]>::try_from(parsed.rest).map(u64::from_be_bytes);
                let (Ok(count @ 1..), Ok(dir)) = (count, dir) else {
                    self.say("links", Some(node), "a record of links cannot be read".into());
                    return Ok(());
                };
                let sum = &mut self.inodes.entry(node).or_default().links_in;
                *sum = sum.wrapping_add(mark_of(dir).wrapping_mul(count.into()));
            }
            other => self.say("key", Some(node), format!("a record with unknown tag {other:#x}")),
        }
        Ok(())
    }

    fn is_dir(&self, node: NodeId) -> bool {
        self.inodes.get(&node).is_some_and(|s| s.kind == Some(Kind::Dir))
    }

    fn dentry(&mut self, dir: NodeId, entry: Dentry) {
        self.report.dentries += 1;
        let parent = self.inodes.entry(dir).or_default();
        parent.found_entries += 1;
        parent.found_subdirs += u32::from(entry.kind == Kind::Dir);
        if !self.which.has(entry.node) {
            self.names_beside.insert(entry.node, dir);
            return;
        }
        let seen = self.inodes.entry(entry.node).or_default();
        seen.found_names += 1;
        seen.name_in = dir.inode();
        seen.names_in = seen.names_in.wrapping_add(mark_of(dir.inode()));
    }

    /// Checks each inode by itself.
    fn check_inodes(&mut self) {
        let mut bad = Vec::new();
        for (&node, s) in &self.inodes {
            let mut say = |kind: &str, detail: String| bad.push((kind.to_string(), Some(node), detail));
            let Some(kind) = s.kind else {
                say("missing-inode", format!("{} names and other records, but no inode", s.found_names));
                continue;
            };
            let root = node.inode() == 1;
            let names = if root { s.found_names.max(1) } else { s.found_names };
            let orphan = self.orphans.contains(&node);
            let links = match (kind, orphan) {
                (_, true) => 0,
                _ if s.binned => 0,
                (Kind::Dir, false) => 2 + s.found_subdirs,
                _ => names,
            };
            if s.nlink != links {
                say("nlink", format!("{} links recorded, {links} found", s.nlink));
            }
            if names == 0 && !orphan && !s.binned {
                say("orphan", "no name, and neither on the list of orphans nor in the recycle bin".into());
            }
            if kind == Kind::Dir && names > 1 {
                say("names", format!("a directory with {names} names"));
            }
            if s.in_bin != u32::from(s.binned) || s.binned && names > 0 {
                say("bin", format!("marked: {}, entries in the bin: {}, names: {names}", s.binned, s.in_bin));
            }
            if s.binned && !self.is_dir(NodeId::new(node.volume(), s.parent)) {
                say("bin", format!("was in directory {}, which is not there", s.parent));
            }
            if !root && !orphan && !s.binned && !s.linked && s.parent != s.name_in {
                say("parent", format!("recorded in directory {}, found in {}", s.parent, s.name_in));
            }
            if s.links_in != if s.linked { s.names_in } else { 0 } {
                say("links", "the records of its links are not of the directories of its names".into());
            }
            // an unreachable inode is freed in steps, its own record last: less of it may be left
            // than its record says
            let agree = |recorded: u64, found: u64| found == recorded || orphan && found < recorded;
            if !agree(s.allocated, s.found_allocated) {
                say("allocated", format!("{} bytes recorded, {} in extents", s.allocated, s.found_allocated));
            }
            if s.entries != s.found_entries {
                say("entries", format!("{} names recorded, {} found", s.entries, s.found_entries));
            }
            if !agree(s.xattrs.into(), s.found_xattrs.into()) {
                say("xattrs", format!("{} attributes recorded, {} found", s.xattrs, s.found_xattrs));
            }
        }
        bad.into_iter().for_each(|(kind, node, detail)| self.say(&kind, node, detail));
    }

    /// Sums up the tree and compares with the recorded statistics.
    fn check_stats(&mut self) {
        let mut waiting: FxHashMap<NodeId, u32> = FxHashMap::default();
        let is_counted = |s: &Seen| (s.nlink > 0 || s.binned) && s.kind.is_some() && s.parent != 0;
        for (node, s) in self.inodes.iter().filter(|(_, s)| s.kind == Some(Kind::Dir) && is_counted(s)) {
            *waiting.entry(NodeId::new(node.volume(), s.parent)).or_default() += 1;
        }
        let files: Vec<(NodeId, u64)> = self
            .inodes
            .iter()
            .filter(|(_, s)| s.kind != Some(Kind::Dir) && is_counted(s))
            .map(|(n, s)| (NodeId::new(n.volume(), s.parent), s.allocated))
            .collect();
        for (dir, bytes) in files {
            let sum = &mut self.inodes.entry(dir).or_default().sum;
            *sum = sum.plus(Stats { bytes: bytes as i64, files: 1, dirs: 0 });
        }
        let dirs = self.inodes.iter().filter(|(_, s)| s.kind == Some(Kind::Dir));
        let mut ready: Vec<NodeId> = dirs.map(|(n, _)| *n).filter(|n| !waiting.contains_key(n)).collect();
        while let Some(dir) = ready.pop() {
            let (sum, stats, unfolded, parent, counted) = match self.inodes.get(&dir) {
                Some(s) => (s.sum, s.stats, s.unfolded, NodeId::new(dir.volume(), s.parent), is_counted(s)),
                None => continue,
            };
            if sum != stats.plus(unfolded) {
                let detail = format!("recorded {stats:?} and {unfolded:?} to be folded, found {sum:?}");
                self.say("statistics", Some(dir), detail);
            }
            if !counted {
                continue;
            }
            let up = self.inodes.entry(parent).or_default();
            up.sum = up.sum.plus(sum).plus(Stats { dirs: 1, ..Stats::default() });
            up.unfolded = up.unfolded.plus(unfolded);
            if let Some(left) = waiting.get_mut(&parent) {
                *left -= 1;
                if *left == 0 {
                    waiting.remove(&parent);
                    ready.push(parent);
                }
            }
        }
        let loops: Vec<NodeId> = waiting.keys().copied().collect();
        for dir in loops {
            self.say(
                "loop",
                Some(dir),
                "a directory that is below itself, or below one that is missing".into(),
            );
        }
    }

    /// What is in tables of the cell, and of inodes or segments.
    fn tables(&mut self, moment: &dyn Moment) -> Result<()> {
        each(moment, keys::table_range(Table::Orphan), |k, v| {
            let node = NodeId(keys::table_id(k));
            self.orphans.insert(node);
            self.orphan(node, v);
            Ok(())
        })?;
        each(moment, keys::table_range(Table::Upload), |k, v| {
            self.upload(NodeId(keys::table_id(k)), v);
            Ok(())
        })?;
        each(moment, keys::table_range(Table::Unfolded), |k, v| {
            let dir = NodeId(keys::table_id(k));
            self.inodes.entry(dir).or_default().unfolded = Stats::decode(v)?;
            Ok(())
        })?;
        let counters = moment.scan(&keys::cell(), &keys::after(&keys::cell()), 1)?.pop();
        self.reserved = counters.map(|(_, v)| Counters::decode(&v)).transpose()?.unwrap_or_default().reserved;
        each(moment, keys::table_range(Table::Segment), |k, v| {
            self.segments.insert(keys::table_id(k), SegmentRecord::decode(v)?);
            Ok(())
        })
    }

    /// Compares quotas with the statistics of their directories.
    fn check_quotas(&mut self) {
        let in_projects = self.used_in_projects();
        for (of, used) in std::mem::take(&mut self.quotas) {
            let dir = match of {
                QuotaOf::Dir(dir) => Some(dir),
                QuotaOf::Volume(volume) => Some(NodeId::new(volume, 1)),
                QuotaOf::Project(_) => None,
            };
            let found = match of {
                QuotaOf::Project(id) => Some(in_projects.get(&id).copied().unwrap_or_default()),
                _ => dir
                    .and_then(|dir| self.inodes.get(&dir))
                    .filter(|s| s.kind == Some(Kind::Dir))
                    .map(|s| s.sum),
            };
            match found {
                None => self.say("quota", dir, "a quota on something that is no directory".into()),
                Some(sum) if sum != used => {
                    self.say("quota", dir, format!("{of:?} counts {used:?} as used, found {sum:?}"));
                }
                Some(_) => {}
            }
        }
    }

    /// Compares references with the segment table.
    fn check_segments(&mut self) {
        let mut bad = Vec::new();
        for (segment, bytes) in &self.references {
            match self.segments.get(segment) {
                None => bad.push(format!("segment {segment} is referenced but not in the table")),
                Some(r) if r.live_bytes != *bytes => {
                    bad.push(format!(
                        "segment {segment}: {} live bytes recorded, {bytes} referenced",
                        r.live_bytes
                    ));
                }
                Some(_) => {}
            }
        }
        for (segment, r) in &self.segments {
            if r.live_bytes > 0 && !self.references.contains_key(segment) {
                bad.push(format!("segment {segment}: {} live bytes recorded, none referenced", r.live_bytes));
            }
        }
        bad.into_iter().for_each(|detail| self.say("live-bytes", None, detail));
        self.check_names();
    }

    /// Names of objects in use must be reserved, or they would be used again.
    fn check_names(&mut self) {
        let Reserved { segments, generations } = self.reserved;
        let is_reserved =
            |(segment, r): &(&u64, &SegmentRecord)| count(**segment) < segments && r.generation < generations;
        let mut bad: Vec<(u64, u32)> = self
            .segments
            .iter()
            .filter(|of| !is_reserved(of))
            .map(|(segment, r)| (*segment, r.generation))
            .collect();
        bad.sort_unstable();
        for (segment, generation) in bad {
            let detail = format!(
                "segment {segment} has generation {generation}; reserved are numbers below {segments}, \
                 generations below {generations}"
            );
            self.say("not-reserved", None, detail);
        }
    }
}

/// Damaged ranges of segments. All of a segment is damaged when its object is missing or the index
/// is unreadable.
type Damage = FxHashMap<u64, Vec<Range<u32>>>;

impl Shard {
    /// Checks everything.
    pub(crate) fn fsck(&self, progress: &mut dyn FnMut(Progress)) -> Result<FsckReport> {
        let synced = self.sync_all(&Ctx::system());
        let named = |e| naming_damage(&*self.kv, e);
        let Judged { moment, quotas, used, held_wrongly, known } = self.judged().map_err(named)?;
        let mut census = self.census(&*moment, progress).map_err(named)?;
        drop(moment);
        census.quotas = quotas;
        census.owners.used = used;
        if let Err(e) = synced {
            census.say("not-stored", None, format!("data in memory cannot be stored now: {e}"));
        }
        census.check_inodes();
        census.check_stats();
        census.check_quotas();
        census.check_places();
        for (project, counted, found) in held_wrongly {
            let detail =
                format!("project {project} counts {counted} bytes that snapshots hold, found {found}");
            census.say("quota", None, detail);
        }
        census.check_owners();
        census.check_uploads(&known);
        census.check_segments();
        let damage = self.verify_segments(&mut census, progress)?;
        self.check_objects(&mut census);
        self.damaged_files(&damage, &mut census)?;
        let mut report = std::mem::take(&mut census.report);
        let path = |node: Option<NodeId>| node.map(|n| self.describe(n));
        report.findings = census
            .bad
            .into_iter()
            .map(|(kind, node, detail)| Finding { kind, path: path(node), detail })
            .collect();
        report.findings.sort_by(|a, b| (&a.path, &a.kind, &a.detail).cmp(&(&b.path, &b.kind, &b.detail)));
        report.findings.dedup();
        for f in &report.findings {
            tracing::warn!("fsck: {} {}: {}", f.kind, f.path.as_deref().unwrap_or("-"), f.detail);
        }
        Ok(report)
    }

    fn census(&self, moment: &dyn Moment, progress: &mut dyn FnMut(Progress)) -> Result<Census> {
        let mut c = Census { which: self.which, ..Census::default() };
        let (mut volumes, mut removing) = (Vec::new(), Vec::new());
        each(moment, keys::table_range(Table::Volume), |key, value| {
            let list = if VolumeRecord::decode(value)?.removing { &mut removing } else { &mut volumes };
            list.push(keys::table_id(key) as u32);
            Ok(())
        })?;
        c.tables(moment)?;
        c.sessions(moment)?;
        c.owners.stored(moment, &volumes)?;
        c.events(moment, &volumes)?;
        c.samples(moment)?;
        for (done, volume) in volumes.iter().enumerate() {
            let mut history = History::default();
            self.each_in_turn(Work::Check, moment, keys::volume_range(*volume), |k, v| {
                if c.report.inodes.is_multiple_of(10_000) {
                    let (done, total) = (done as u64, volumes.len() as u64);
                    progress(Progress {
                        phase: format!("records ({} inodes)", c.report.inodes),
                        done,
                        total,
                    });
                }
                if let Err(e) = c.record(k, v).and_then(|()| history.live(k, v)) {
                    c.say("damaged-record", keys::parse(k).map(|p| p.node), e.to_string());
                }
                Ok(())
            })?;
            each(moment, keys::bin_range(*volume, 0), |key, value| {
                match (keys::parse_binned(key), BinRecord::decode(value)) {
                    (Some((_, node)), Ok(_)) => c.inodes.entry(node).or_default().in_bin += 1,
                    _ => c.say("damaged-record", None, "an entry of the recycle bin cannot be read".into()),
                }
                Ok(())
            })?;
            self.census_history(moment, *volume, &mut history, |addr, len| {
                *c.references.entry(addr.segment).or_default() += u64::from(len);
            })?;
            self.check_history(moment, *volume, &mut history)?;
            history.bad.into_iter().for_each(|(kind, node, detail)| c.say(kind, node, detail));
            c.report.volumes += 1;
        }
        self.count_removed_volumes(moment, &removing, &mut c)?;
        c.kept.leave_out(&removing);
        c.hosts(moment)?;
        c.groups(moment)?;
        c.projects(moment, &volumes)?;
        self.census_attached(&mut c, moment)?;
        self.look_for_strays(moment, &volumes.iter().chain(&removing).copied().collect(), &mut c)?;
        Ok(c)
    }

    /// Calls [`each`] in steps that wait for their turns.
    pub(in crate::admin) fn each_in_turn(
        &self,
        work: Work,
        moment: &dyn Moment,
        (mut from, to): (Key, Key),
        mut f: impl FnMut(&Key, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let ctx = self.work_ctx(work, None);
        loop {
            let most = self.step_size(STEP_RECORDS);
            let page = self.in_turn(&ctx, 0, || {
                let page = moment.scan(&from, &to, most)?;
                page.iter().try_for_each(|(key, value)| f(key, value))?;
                Ok::<_, Error>(page)
            })?;
            match page.last() {
                Some((last, _)) if page.len() == most => from = keys::after(last),
                _ => return Ok(()),
            }
        }
    }

    /// Volumes that are being removed still reference data.
    fn count_removed_volumes(&self, moment: &dyn Moment, removing: &[u32], c: &mut Census) -> Result<()> {
        for &volume in removing {
            let mut apart = Census { which: self.which, ..Census::default() };
            self.each_in_turn(Work::Check, moment, keys::volume_range(volume), |k, v| apart.record(k, v))?;
            self.census_history(moment, volume, &mut History::default(), |addr, len| {
                *apart.references.entry(addr.segment).or_default() += u64::from(len);
            })?;
            for (segment, bytes) in apart.references {
                *c.references.entry(segment).or_default() += bytes;
            }
        }
        Ok(())
    }

    fn verify_segments(&self, c: &mut Census, progress: &mut dyn FnMut(Progress)) -> Result<Damage> {
        let ctx = self.work_ctx(Work::Check, None);
        let (mut damage, mut silent) = (Damage::default(), BTreeMap::new());
        let mut all: Vec<u64> = c.segments.keys().copied().collect();
        all.sort_unstable();
        for (done, segment) in all.iter().enumerate() {
            progress(Progress { phase: "segments".into(), done: done as u64, total: all.len() as u64 });
            // meanwhile cleaning may have rewritten or removed it, or kept nothing of it: then it
            // has no object
            let (record, is_open) = {
                let st = self.lock();
                (st.segments.get(*segment).copied(), st.segments.is_open(*segment))
            };
            if record.is_some_and(|r| !r.sealed && r.live_bytes > 0 && !is_open && !self.is_away(r.pool)) {
                let detail = format!("segment {segment} has no object, and nothing of it is in the journal");
                c.say("missing-object", None, detail);
                damage.entry(*segment).or_default().push(0..u32::MAX);
                continue;
            }
            let Some(record) = record.filter(|r| r.sealed && (r.object_bytes > 0 || r.live_bytes > 0)) else {
                continue;
            };
            c.report.segments += 1;
            if self.is_away(record.pool) {
                c.away.insert(record.pool);
                damage.entry(*segment).or_default().push(0..u32::MAX);
                continue;
            }
            match self.log.verify(&ctx, record.object(*segment)) {
                Ok(v) => {
                    c.report.bytes += v.bytes;
                    let ranges: Vec<_> = v.damaged.iter().map(|d| d.offset..d.offset + d.len).collect();
                    if !ranges.is_empty() {
                        damage.insert(*segment, ranges);
                    }
                }
                Err(leeward_data::Error::Store(e)) if e.is_passing() => {
                    silent.entry(record.pool).or_insert_with(|| e.to_string());
                    damage.entry(*segment).or_default().push(0..u32::MAX);
                }
                Err(e) => {
                    let now = self.lock().segments.get(*segment).copied();
                    if now.is_some_and(|r| r.object(*segment) == record.object(*segment)) {
                        c.say("damaged-object", None, format!("segment {segment}: {e}"));
                        damage.entry(*segment).or_default().push(0..u32::MAX);
                    }
                }
            }
        }
        for (pool, why) in silent {
            let detail = format!(
                "pool {} does not answer, with the data below: {why}; run it again when it does",
                self.pool_name(pool)
            );
            c.say("pool-away", None, detail);
        }
        for pool in std::mem::take(&mut c.away) {
            let why = self.pools.get(pool).and_then(|p| p.why_away()).unwrap_or_default();
            let detail = format!("pool {} is away, with the data below: {why}", self.pool_name(pool));
            c.say("pool-away", None, detail);
        }
        Ok(damage)
    }

    /// Objects in each pool that no record names and that nobody is about to delete.
    fn check_objects(&self, c: &mut Census) {
        while self.search_step() {} // finds what a crash left
        let _alone = self.housekeeping.lock(); // nothing is being rewritten or deleted
        match self.stray_backrefs() {
            Ok(strays) => strays.into_iter().for_each(|segment| {
                let detail = format!("back references of segment {segment}, which is not there");
                c.say("stray-backref", None, detail);
            }),
            Err(e) => c.say("unreadable", None, format!("back references: {e}")),
        }
        for (pool, found) in self.pools.all() {
            let Ok(store) = found.store() else { continue };
            let next = self.lock().segments.next();
            let objects = match store.list(&Ctx::system()) {
                Ok(objects) => objects,
                Err(e) => {
                    c.say("pool-unlisted", None, format!("pool {}: {e}", self.pool_name(pool)));
                    continue;
                }
            };
            let unknown: Vec<Object> = self.with_commits_paused(|| {
                let mut garbage: FxHashSet<Object> = self.committer.garbage_so_far().into_iter().collect();
                let st = self.lock();
                garbage.extend(&st.replaced);
                let objects = objects.iter().map(|(id, _)| Object {
                    pool,
                    segment: id.segment,
                    generation: id.generation,
                });
                objects.filter(|o| st.segments.is_unknown(*o, next) && !garbage.contains(o)).collect()
            });
            for o in unknown {
                let name = self.pool_name(pool);
                if self.is_last_copy(&Ctx::system(), o) {
                    let detail = format!(
                        "object {:016x}.{} in pool {name} is all that is left of segment {}, which its record has elsewhere",
                        o.segment, o.generation, o.segment
                    );
                    c.say("misplaced-object", None, detail);
                    continue;
                }
                let detail = format!(
                    "object {:016x}.{} in pool {name} belongs to no segment",
                    o.segment, o.generation
                );
                c.say("unknown-object", None, detail);
            }
        }
    }

    /// Every file whose extents touch damaged data.
    fn damaged_files(&self, damage: &Damage, c: &mut Census) -> Result<()> {
        if damage.is_empty() {
            return Ok(());
        }
        let (held, volumes) = (self.kv.moment(), self.lock().volumes.keys().copied().collect::<Vec<u32>>());
        let moment = &*held;
        for volume in volumes {
            let mut look = |key: &Key, value: &[u8], whose: &str| {
                let Some(parsed) = keys::parse(key) else { return };
                for (addr, len) in data_of(parsed.tag, value).unwrap_or_default() {
                    let hit = |r: &Range<u32>| r.start < addr.offset + len && addr.offset < r.end;
                    if damage.get(&addr.segment).is_some_and(|ranges| ranges.iter().any(hit)) {
                        let detail = format!("data{whose} in segment {}", addr.segment);
                        c.say("damaged-data", Some(parsed.node), detail);
                    }
                }
            };
            each(moment, keys::volume_range(volume), |key, value| {
                look(key, value, "");
                Ok(())
            })?;
            each(moment, keys::history_range(volume), |key, value| {
                if let Some((record, _)) = keys::parse_version(key) {
                    look(&record, value, " of snapshots");
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
