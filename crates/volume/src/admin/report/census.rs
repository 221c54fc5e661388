//! What files there are below a directory: by type, size, age, ending and owner.
//!
//! Of a whole volume the records of its inodes are read in their order, without looking at
//! directories; of a part of it the directories are walked. Both read one state, in turns of
//! background work.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, Progress, Reply, Request};
use crate::format::inode::{Dentry, Inode, time};
use crate::format::keys::{self, tag};
use crate::shard::Shard;
use leeward_env::{Ctx, Work};
use leeward_fs::{Kind, NodeId, Result};
use leeward_meta::Moment;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sizes in bytes up to which files are counted together.
pub const SIZES: [u64; 9] = [0, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 4 << 30, 64 << 30, u64::MAX];
/// Days since the last change of content up to which files are counted together.
pub const AGES: [u32; 7] = [1, 7, 30, 90, 365, 3 * 365, u32::MAX];
/// Endings are told apart up to this number of them: those that come first.
const ENDINGS_MAX: usize = 10_000;
/// An ending has at most so many letters and digits.
const ENDING_LEN_MAX: usize = 12;
/// So many inodes are read between two reports of progress.
const PROGRESS_EVERY: u64 = 10_000;

/// Tells what files there are below a directory, with progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileCensus {
    /// The directory, or the root of a volume. Volumes below it are left out.
    pub path: String,
}

/// A number of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Inodes; one with several names once.
    pub files: u64,
    /// Their sizes, bytes.
    pub bytes: u64,
    /// What is allocated of that, bytes.
    pub allocated: u64,
}

/// Regular files up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedUpTo {
    /// The bound: bytes or days; `None`: above all others.
    pub up_to: Option<u64>,
    /// The files.
    #[serde(flatten)]
    pub counted: Counted,
}

/// Regular files whose names end so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedEnding {
    /// In small letters, without its dot; empty: none; `None`: all that are not told apart.
    pub ending: Option<String>,
    /// The files.
    #[serde(flatten)]
    pub counted: Counted,
}

/// Regular files of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedOwner {
    /// The user.
    pub uid: u32,
    /// The files.
    #[serde(flatten)]
    pub counted: Counted,
}

/// What files there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesCounted {
    /// Regular files.
    pub files: Counted,
    /// Directories, without the one that was asked for.
    pub dirs: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Pipes, sockets and devices.
    pub special: u64,
    /// Volumes below, which are left out.
    pub volumes: u64,
    /// Regular files with several names.
    pub linked: u64,
    /// By size, the smallest first.
    pub by_size: Vec<CountedUpTo>,
    /// By days since their content changed, the newest first.
    pub by_age: Vec<CountedUpTo>,
    /// By the ending of their name (of several names, one), most bytes first.
    pub by_ending: Vec<CountedEnding>,
    /// By owner, most bytes first.
    pub by_owner: Vec<CountedOwner>,
}

impl Reply for FilesCounted {
    const KIND: &'static str = "files-counted";
}

impl Request for FileCensus {
    type Reply = FilesCounted;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> std::result::Result<FilesCounted, Failure> {
        let told = |e| about(&self.path)(e);
        let dir = shard.node_at(&self.path)?;
        if !shard.transact(&Ctx::system(), |tx| tx.inode(dir)).map_err(told)?.is_dir() {
            return Err(Failure::new(
                libc::ENOTDIR,
                format!("{}: this is no directory: name one", self.path),
            ));
        }
        drop(shard.recall_exclusive(&Ctx::system(), Some(dir.volume())).map_err(told)?);
        let usage = shard.usage(dir).map_err(told)?;
        // what records do not have yet has no size in them
        shard.sync_all(&Ctx::system()).map_err(told)?;
        let moment = shard.with_commits_paused(|| shard.kv.moment());
        let mut progress = |done| {
            let total = usage.files + usage.dirs;
            (caller.progress)(Progress { phase: "files".into(), done, total });
        };
        let mut count = Count::new(shard.now().secs, &mut progress);
        let counted = match dir.inode() == NodeId::ROOT.inode() {
            true => shard.count_volume(&*moment, dir.volume(), &mut count),
            false => shard.count_below(&*moment, dir, &mut count),
        };
        counted.map_err(told)?;
        Ok(count.end())
    }
}

impl Shard {
    /// Counts all inodes of a volume that have a name, in the order of their numbers.
    fn count_volume(&self, moment: &dyn Moment, volume: u32, count: &mut Count<'_>) -> Result<()> {
        self.each_in_turn(Work::Census, moment, keys::volume_range(volume), |key, record| {
            match keys::parse_inode(key) {
                Some(node) if node.inode() != NodeId::ROOT.inode() => count.inode(&Inode::decode(record)?),
                Some(_) => {}
                None => count.volume_in(volume, key, record)?,
            }
            Ok(())
        })
    }

    /// Counts what is below a directory, directory by directory.
    fn count_below(&self, moment: &dyn Moment, dir: NodeId, count: &mut Count<'_>) -> Result<()> {
        let (mut dirs, mut linked) = (vec![dir], FxHashSet::default());
        while let Some(dir) = dirs.pop() {
            self.each_in_turn(Work::Census, moment, keys::tag_range(dir, tag::DENTRY), |key, record| {
                let Dentry { node, .. } = Dentry::decode(record)?;
                if node.volume() != dir.volume() {
                    return count.volume_in(dir.volume(), key, record);
                }
                let at = keys::inode(node);
                let found = moment.scan(&at, &keys::after(&at), 1)?;
                let Some((_, record)) = found.first() else { return Ok(()) };
                let inode = Inode::decode(record)?;
                if inode.kind == Kind::Dir {
                    dirs.push(node);
                } else if inode.nlink > 1 && !linked.insert(node) {
                    return Ok(());
                }
                count.inode(&inode);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// What is counted so far.
struct Count<'a> {
    now_secs: i64,
    seen: u64,
    progress: &'a mut dyn FnMut(u64),
    found: FilesCounted,
    by_size: [Counted; SIZES.len()],
    by_age: [Counted; AGES.len()],
    by_ending: BTreeMap<Box<str>, Counted>,
    other_endings: Counted,
    by_owner: BTreeMap<u32, Counted>,
}

impl Count<'_> {
    fn new(now_secs: i64, progress: &mut dyn FnMut(u64)) -> Count<'_> {
        Count {
            now_secs,
            seen: 0,
            progress,
            found: FilesCounted::default(),
            by_size: Default::default(),
            by_age: Default::default(),
            by_ending: BTreeMap::new(),
            other_endings: Counted::default(),
            by_owner: BTreeMap::new(),
        }
    }

    /// A record that is no inode: it may be the name of another volume.
    fn volume_in(&mut self, volume: u32, key: &[u8], record: &[u8]) -> Result<()> {
        let is_name = keys::parse(key).is_some_and(|parsed| parsed.tag == tag::DENTRY);
        if is_name && Dentry::decode(record)?.node.volume() != volume {
            self.found.volumes += 1;
        }
        Ok(())
    }

    fn inode(&mut self, inode: &Inode) {
        self.seen += 1;
        if self.seen.is_multiple_of(PROGRESS_EVERY) {
            (self.progress)(self.seen);
        }
        // what has no name is in the recycle bin, or open, or about to be freed
        if inode.nlink == 0 || inode.binned {
            return;
        }
        match inode.kind {
            Kind::File => self.file(inode),
            Kind::Dir => self.found.dirs += 1,
            Kind::Symlink => self.found.symlinks += 1,
            _ => self.found.special += 1,
        }
    }

    fn file(&mut self, inode: &Inode) {
        let one = Counted { files: 1, bytes: inode.size, allocated: inode.allocated };
        let days = self.now_secs.saturating_sub(inode.times[time::M].secs).div_euclid(86_400);
        let size = SIZES.iter().position(|most| inode.size <= *most).unwrap_or(SIZES.len() - 1);
        let age = AGES.iter().position(|most| days < i64::from(*most)).unwrap_or(AGES.len() - 1);
        self.found.linked += u64::from(inode.nlink > 1);
        self.found.files.add(one);
        self.by_size[size].add(one);
        self.by_age[age].add(one);
        self.by_owner.entry(inode.uid).or_default().add(one);
        let ending = inode.name.as_deref().and_then(ending_of).unwrap_or_default();
        if let Some(counted) = self.by_ending.get_mut(&*ending) {
            counted.add(one);
        } else if self.by_ending.len() < ENDINGS_MAX {
            self.by_ending.insert(ending, one);
        } else {
            self.other_endings.add(one);
        }
    }

    fn end(self) -> FilesCounted {
        let up_to = |(bound, counted): (u64, Counted)| {
            let up_to = (bound != u64::MAX).then_some(bound);
            CountedUpTo { up_to, counted }
        };
        let ages = AGES.map(|days| if days == u32::MAX { u64::MAX } else { days.into() });
        let other = (self.other_endings != Counted::default())
            .then_some(CountedEnding { ending: None, counted: self.other_endings });
        let endings = self.by_ending.into_iter();
        let mut by_ending: Vec<CountedEnding> = endings
            .map(|(ending, counted)| CountedEnding { ending: Some(ending.into()), counted })
            .chain(other)
            .collect();
        by_ending.sort_by_key(|ending| std::cmp::Reverse((ending.counted.bytes, ending.counted.files)));
        let owners = self.by_owner.into_iter();
        let mut by_owner: Vec<CountedOwner> =
            owners.map(|(uid, counted)| CountedOwner { uid, counted }).collect();
        by_owner.sort_by_key(|owner| std::cmp::Reverse((owner.counted.bytes, owner.counted.files)));
        FilesCounted {
            by_size: SIZES.into_iter().zip(self.by_size).map(up_to).collect(),
            by_age: ages.into_iter().zip(self.by_age).map(up_to).collect(),
            by_ending,
            by_owner,
            ..self.found
        }
    }
}

impl Counted {
    fn add(&mut self, other: Counted) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.allocated += other.allocated;
    }
}

/// What is behind the last dot of a name, in small letters, if it can be an ending.
fn ending_of(name: &[u8]) -> Option<Box<str>> {
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0)?;
    let ending = name.get(dot + 1..)?;
    let is_one = (1..=ENDING_LEN_MAX).contains(&ending.len()) && ending.iter().all(u8::is_ascii_alphanumeric);
    is_one.then(|| String::from_utf8_lossy(ending).to_ascii_lowercase().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_what_people_take_for_them() {
        let ending = |name: &str| ending_of(name.as_bytes()).map(String::from);
        assert_eq!(ending("run.ROOT").as_deref(), Some("root"));
        assert_eq!(ending("a.tar.gz").as_deref(), Some("gz"));
        for name in ["Makefile", ".bashrc", "a.", "a.b c", "a.thirteenchars", "f.\u{e9}"] {
            assert_eq!(ending(name), None, "{name}");
        }
    }
}
