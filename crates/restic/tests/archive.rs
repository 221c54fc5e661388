//! Random trees, changed at random and stored again and again: what is taken over is what a whole
//! walk stores, what is restored is what was stored, and a power cut at any moment leaves a
//! repository that is whole.

use leeward_env::Env;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_env::disk::{Caching, Disk};
use leeward_restic::archive::{Changes, Entry, Meta, ROOT, Source, Summary, store};
use leeward_restic::check::check;
use leeward_restic::compare::{Compared, Limit, compare};
use leeward_restic::files::{Directory, Files};
use leeward_restic::lock::{Holder, Lock};
use leeward_restic::prune::prune;
use leeward_restic::repository::{Lost, Repository};
use leeward_restic::restore::restore;
use leeward_restic::saver::Saver;
use leeward_restic::snapshot::Snapshot;
use leeward_restic::tree::{Moment, NodeKind, TreeWriter};
use leeward_restic::{Error, ErrorKind, Id, Result, Unwatched};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

const PASSWORD: &str = "open sesame";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inode {
    kind: NodeKind,
    content: Vec<u8>,
    mode: u32,
    time: i64,
    links: u64,
    parent: u64,
    names: BTreeMap<Vec<u8>, u64>,
}

/// A tree in memory.
#[derive(Clone)]
struct Tree {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    clock: i64,
    state: u64,
}

impl Tree {
    fn new(seed: u64) -> Tree {
        let mut tree = Tree { inodes: BTreeMap::new(), next: ROOT, clock: 1_000_000_000, state: seed };
        tree.make(NodeKind::Dir, 0);
        tree
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below.max(1)
    }

    fn make(&mut self, kind: NodeKind, parent: u64) -> u64 {
        let inode = self.next;
        self.next += 1;
        self.clock += 1;
        let made = Inode {
            kind,
            content: Vec::new(),
            mode: 0o640,
            time: self.clock,
            links: 1,
            parent,
            names: BTreeMap::new(),
        };
        self.inodes.insert(inode, made);
        inode
    }

    fn at(&mut self, inode: u64) -> &mut Inode {
        self.clock += 1;
        let clock = self.clock;
        let found = self.inodes.get_mut(&inode).expect("it is there");
        found.time = clock;
        found
    }

    fn any(&mut self, wanted: impl Fn(&Inode) -> bool) -> Option<u64> {
        let all: Vec<u64> = self.inodes.iter().filter(|(_, i)| wanted(i)).map(|(n, _)| *n).collect();
        let at = self.random(all.len() as u64) as usize;
        all.get(at).copied()
    }

    fn any_dir(&mut self) -> u64 {
        self.any(|i| i.kind == NodeKind::Dir).expect("the root")
    }

    fn any_name(&mut self) -> Option<(u64, Vec<u8>, u64)> {
        let dir = self.any(|i| !i.names.is_empty())?;
        let names: Vec<(Vec<u8>, u64)> = self.inodes[&dir].names.clone().into_iter().collect();
        let at = self.random(names.len() as u64) as usize;
        names.get(at).map(|(name, inode)| (dir, name.clone(), *inode))
    }

    fn new_name(&mut self) -> Vec<u8> {
        let n = self.random(1 << 20);
        if n.is_multiple_of(7) { format!("\u{e4}{n}\n").into_bytes() } else { format!("{n:x}").into_bytes() }
    }

    fn add_name(&mut self, dir: u64, inode: u64) {
        let name = self.new_name();
        if self.inodes[&dir].names.contains_key(&name) {
            return;
        }
        self.at(dir).names.insert(name, inode);
    }

    fn is_below(&self, dir: u64, top: u64) -> bool {
        std::iter::successors(Some(dir), |at| self.inodes.get(at).map(|i| i.parent))
            .take(1000)
            .any(|at| at == top)
    }

    fn remove(&mut self, dir: u64, name: &[u8], inode: u64) {
        self.at(dir).names.remove(name);
        for (name, below) in self.inodes[&inode].names.clone() {
            self.remove(inode, &name, below);
        }
        let left = self.at(inode);
        left.links -= 1;
        if left.links == 0 {
            self.inodes.remove(&inode);
        } else if self.inodes[&inode].parent == dir {
            let other = self.inodes.iter().find(|(_, i)| i.names.values().any(|n| *n == inode));
            let other = *other.expect("it has a name").0;
            self.at(inode).parent = other;
        }
    }

    fn write(&mut self, inode: u64) {
        let len = if self.random(10) == 0 { self.random(3 << 20) } else { self.random(3000) };
        let seed = self.random(1 << 30);
        let zeros = self.random(4) == 0;
        let content =
            (0..len).map(|n| if zeros { 0 } else { (seed.wrapping_mul(n + 77) >> 9) as u8 }).collect();
        self.at(inode).content = content;
    }

    fn step(&mut self) {
        match self.random(10) {
            0..3 => {
                let dir = self.any_dir();
                let file = self.make(NodeKind::File, dir);
                self.write(file);
                let before = self.inodes[&dir].names.len();
                self.add_name(dir, file);
                if self.inodes[&dir].names.len() == before {
                    self.inodes.remove(&file);
                }
            }
            3 => {
                let dir = self.any_dir();
                let made = self.make(NodeKind::Dir, dir);
                let before = self.inodes[&dir].names.len();
                self.add_name(dir, made);
                if self.inodes[&dir].names.len() == before {
                    self.inodes.remove(&made);
                }
            }
            4 => {
                if let Some(file) = self.any(|i| i.kind == NodeKind::File) {
                    self.write(file);
                }
            }
            5 => {
                if let Some(inode) = self.any(|i| i.parent != 0) {
                    let mode = 0o600 + self.random(0o100) as u32;
                    self.at(inode).mode = mode;
                }
            }
            6 | 7 => self.rename(),
            8 => {
                let dir = self.any_dir();
                if let Some(file) = self.any(|i| i.kind == NodeKind::File) {
                    let before = self.inodes[&dir].names.len();
                    self.add_name(dir, file);
                    self.at(file).links += (self.inodes[&dir].names.len() - before) as u64;
                }
            }
            _ => {
                if let Some((dir, name, inode)) = self.any_name() {
                    self.remove(dir, &name, inode);
                }
            }
        }
    }

    fn rename(&mut self) {
        let (Some((dir, name, inode)), to) = (self.any_name(), self.any_dir()) else { return };
        let new = self.new_name();
        if self.inodes[&to].names.contains_key(&new) || self.is_below(to, inode) {
            return;
        }
        self.at(dir).names.remove(&name);
        self.at(to).names.insert(new, inode);
        let moved = self.at(inode);
        if moved.parent == dir {
            moved.parent = to;
        }
    }

    /// As a cell tells it.
    fn changes_since(&self, old: &Tree) -> Changes {
        let mut changes = Changes::default();
        for (inode, is) in &self.inodes {
            let was = old.inodes.get(inode);
            if was == Some(is) {
                continue;
            }
            changes.inodes.insert(*inode, was.is_none_or(|was| was.content != is.content));
            if was.map(|was| &was.names) != Some(&is.names) {
                changes.dirs.insert(*inode);
            }
            let of = self.inodes.iter().filter(|(_, dir)| dir.names.values().any(|n| n == inode));
            changes.dirs.extend(of.map(|(dir, _)| *dir));
        }
        changes.dirs.retain(|dir| self.inodes[dir].kind == NodeKind::Dir);
        for dir in changes.dirs.clone() {
            let above = std::iter::successors(Some(dir), |at| self.inodes.get(at).map(|i| i.parent));
            changes.dirs.extend(above.take_while(|at| *at != 0));
        }
        changes
    }
}

struct Shown<'a> {
    now: &'a Tree,
    before: Option<(&'a Tree, Changes)>,
}

impl Source for Shown<'_> {
    fn page(&self, dir: u64, after: Option<&[u8]>) -> Result<Vec<Entry>> {
        let names = self.now.inodes[&dir].names.iter();
        let next = names.filter(|(name, _)| after.is_none_or(|after| &name[..] > after)).take(3);
        let entry = |(name, inode): (&Vec<u8>, &u64)| Entry {
            name: name[..].into(),
            inode: *inode,
            is_dir: self.now.inodes[inode].kind == NodeKind::Dir,
        };
        Ok(next.map(entry).collect())
    }

    fn meta(&self, inode: u64) -> Result<Meta> {
        let found = &self.now.inodes[&inode];
        let time = Moment { secs: found.time, nanos: 7 };
        Ok(Meta {
            kind: found.kind,
            mode: found.mode,
            uid: 0,
            gid: 0,
            size: found.content.len() as u64,
            links: found.links,
            device: 0,
            times: [time, time, time],
            target: Box::default(),
            attributes: Vec::new(),
        })
    }

    fn read(&self, inode: u64, offset: u64, len: usize) -> Result<Vec<u8>> {
        let content = &self.now.inodes[&inode].content[offset as usize..];
        Ok(content[..content.len().min(len).min(100_000)].to_vec())
    }

    fn next_data(&self, inode: u64, offset: u64) -> Result<Option<u64>> {
        let content = &self.now.inodes[&inode].content;
        Ok(content[offset as usize..].iter().position(|b| *b != 0).map(|at| at as u64 + offset))
    }

    fn changes(&self) -> Option<&Changes> {
        self.before.as_ref().map(|(_, changes)| changes)
    }

    fn was_in(&self, inode: u64) -> Result<Option<u64>> {
        let (before, _) = self.before.as_ref().expect("there are changes");
        Ok(before.inodes.get(&inode).map(|i| i.parent).filter(|parent| *parent != 0))
    }
}

fn on(disk: &SimDisk) -> Arc<dyn Files> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Arc::new(Directory::new(disk, "/vault"))
}

fn opened(files: &Arc<dyn Files>) -> Result<Arc<Repository>> {
    let repository = Repository::open(&Env::real(), files, PASSWORD)?;
    repository.load_index()?;
    Ok(Arc::new(repository))
}

fn stored(repository: &Arc<Repository>, shown: &Shown<'_>, older: Option<&Id>) -> Result<(Id, Summary)> {
    let mut saver = Saver::new(repository)?;
    let done = store((shown, b"home", 1), older, &mut saver, repository, &Unwatched)?;
    saver.finish()?;
    Ok(done)
}

fn snapshot(tree: Id, secs: i64) -> Snapshot {
    Snapshot {
        time: Moment { secs, nanos: 0 },
        parent: None,
        tree,
        paths: vec!["/home".into()],
        hostname: "here".into(),
        username: "test".into(),
        tags: vec!["lee-volume=1".into()],
        original: None,
        program_version: String::new(),
    }
}

fn is_whole(repository: &Arc<Repository>, read_data: bool) {
    let found = check(repository, read_data, &Unwatched).expect("checked");
    assert_eq!(found.problems, Vec::<String>::new());
}

fn pruned(repository: &Arc<Repository>) -> Result<u64> {
    let holder = Holder { hostname: "here".into(), username: "test".into() };
    let lock = Lock::take(repository, &holder, true)?;
    Ok(prune(repository, &lock, &Unwatched)?.packs)
}

fn create(files: &Arc<dyn Files>) -> Result<()> {
    Repository::create_with_cost(&Env::real(), files, (PASSWORD, 4), "here")
}

#[test]
fn what_is_taken_over_is_what_a_walk_stores() {
    let files = on(&SimDisk::new(1));
    create(&files).expect("made");
    for seed in 0..6 {
        let repository = opened(&files).expect("opened");
        let mut tree = Tree::new(seed);
        (0..150).for_each(|_| tree.step());
        let mut older = stored(&repository, &Shown { now: &tree, before: None }, None).expect("stored").0;
        for round in 0..15 {
            let before = tree.clone();
            let steps = tree.random(12);
            (0..steps).for_each(|_| tree.step());
            let changes = tree.changes_since(&before);
            let bound = changes.dirs.len() as u64 + tree.inodes.len() as u64
                - before.inodes.len().min(tree.inodes.len()) as u64;
            let shown = Shown { now: &tree, before: Some((&before, changes)) };
            let (taken, done) = stored(&repository, &shown, Some(&older)).expect("stored");
            let (walked, _) = stored(&repository, &Shown { now: &tree, before: None }, None).expect("stored");
            assert_eq!(taken, walked, "seed {seed}, round {round}");
            assert!(done.dirs <= bound + steps, "wrote {} directories for {bound}", done.dirs);
            // without the older snapshot of the cell files are taken over that look as before
            let shown = Shown { now: &tree, before: None };
            let (again, done) = stored(&repository, &shown, Some(&taken)).expect("stored");
            assert_eq!((again, done.files_read), (taken, 0));
            older = taken;
        }
        repository.add_snapshot(&snapshot(older, seed as i64)).expect("added");
        is_whole(&repository, false);
    }
    let repository = opened(&files).expect("opened");
    assert!(pruned(&repository).expect("pruned") > 0, "what no snapshot refers to goes");
    is_whole(&opened(&files).expect("opened"), true);
}

#[test]
fn what_is_restored_is_what_was_stored() {
    let files = on(&SimDisk::new(2));
    create(&files).expect("made");
    let repository = opened(&files).expect("opened");
    let mut tree = Tree::new(77);
    (0..400).for_each(|_| tree.step());
    let (id, _) = stored(&repository, &Shown { now: &tree, before: None }, None).expect("stored");
    let temp = tempfile::tempdir().expect("a directory");
    let to = temp.path().join("to");
    std::fs::create_dir(&to).expect("made");
    let done = restore(&repository, (&id, None), &to, &Unwatched).expect("restored");
    let is_root = leeward_transfer::sys::is_root();
    assert!(done.trouble_count == 0 || !is_root, "{:?}", done.troubles);
    let mut waiting = vec![(ROOT, to.join("home"))];
    let (mut numbers, mut seen) = (BTreeMap::new(), 0);
    while let Some((inode, path)) = waiting.pop() {
        let (is, stat) = (&tree.inodes[&inode], std::fs::symlink_metadata(&path).expect("there"));
        seen += 1;
        assert_eq!(
            (stat.mode() & 0o7777, stat.mtime(), stat.mtime_nsec()),
            (is.mode, is.time, 7),
            "{path:?}"
        );
        if is.kind == NodeKind::File {
            assert!(std::fs::read(&path).expect("read") == is.content, "{path:?}");
            assert_eq!(stat.nlink(), is.links);
            assert_eq!(*numbers.entry(inode).or_insert(stat.ino()), stat.ino());
        }
        for (name, below) in &is.names {
            let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&name[..]);
            waiting.push((*below, path.join(name)));
        }
    }
    assert_eq!(seen, done.dirs + done.files - 1);
    let again = restore(&repository, (&id, None), &to, &Unwatched);
    assert!(again.is_err_and(|e| e.text.contains("not empty")));
}

/// What happens in the cell's life: a backup, and at the end pruning.
fn day(files: &Arc<dyn Files>, tree: &Tree, number: i64) -> Result<()> {
    let repository = opened(files)?;
    let older = repository.snapshots()?.pop().map(|(_, s)| s.tree);
    let (id, _) = stored(&repository, &Shown { now: tree, before: None }, older.as_ref())?;
    repository.add_snapshot(&snapshot(id, number))?;
    let all = repository.snapshots()?;
    all.iter().rev().skip(1).try_for_each(|(id, _)| repository.remove_snapshot(id))?;
    pruned(&repository).map(drop)
}

#[test]
fn a_power_cut_at_any_moment_leaves_it_whole() {
    let disk = SimDisk::new(3);
    let files = on(&disk);
    create(&files).expect("made");
    let mut tree = Tree::new(5);
    (0..80).for_each(|_| tree.step());
    day(&files, &tree, 1).expect("the first day");
    (0..60).for_each(|_| tree.step());
    let (from, base) = (disk.mutations(), disk.kill());
    day(&files, &tree, 2).expect("the second day");
    let mutations = disk.mutations() - from;
    assert!(mutations > 20, "{mutations}");
    // most of the time locks wait to see whether another one comes
    std::thread::scope(|threads| {
        for first in 0..8 {
            let (base, tree) = (&base, &tree);
            threads.spawn(move || (first..mutations).step_by(8).for_each(|n| cut_at(n, base, tree)));
        }
    });
}

/// The second day ends at this change, and the third one comes.
fn cut_at(n: u64, base: &SimDisk, tree: &Tree) {
    // each by one of the ways
    let disk = base.kill();
    let fault = [Fault::CrashBefore, Fault::CrashAfter, Fault::Enospc][n as usize % 3];
    disk.fail_at(disk.mutations() + n, fault);
    let ended = day(&on(&disk), tree, 2);
    let disk = match fault {
        Fault::Enospc => {
            if let Err(Error { kind, text }) = &ended {
                assert!(*kind == ErrorKind::Full && text.contains("make room"), "{text}");
            }
            disk.heal();
            disk
        }
        _ => disk.power_cut(n),
    };
    let files = on(&disk);
    is_whole(&opened(&files).unwrap_or_else(|e| panic!("after {n}: {e}")), false);
    day(&files, tree, 3).unwrap_or_else(|e| panic!("after {n}: {e}"));
    let repository = opened(&files).expect("opened");
    is_whole(&repository, true);
    assert_eq!(repository.snapshots().expect("listed").len(), 1);
}

#[test]
fn wrong_passwords_and_places_are_told_apart() {
    let disk = SimDisk::new(4);
    let files = on(&disk);
    let none = Repository::open(&Env::real(), &files, PASSWORD).map(drop).expect_err("nothing is there");
    assert_eq!(none.kind, ErrorKind::NoRepository);
    create(&files).expect("made");
    assert!(create(&files).is_err_and(|e| e.text.contains("already")));
    let wrong = Repository::open(&Env::real(), &files, "another").map(drop).expect_err("wrong");
    assert_eq!(wrong.kind, ErrorKind::Password);
    let config = files.get("config").expect("read").expect("there").len() as u64;
    disk.flip_bit("config", config / 2).expect("flipped");
    let damaged = Repository::open(&Env::real(), &files, PASSWORD).map(drop).expect_err("damaged");
    assert_eq!(damaged.kind, ErrorKind::Damaged);
}

#[test]
fn making_one_that_was_cut_short_begins_again() {
    let whole = SimDisk::new(31);
    create(&on(&whole)).expect("made");
    let mutations = whole.mutations();
    // most of them make and remove a file in one of many directories
    for n in (0..mutations).filter(|n| n % 16 == 0 || n + 24 > mutations) {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let disk = SimDisk::new(31);
            disk.fail_at(n, fault);
            create(&on(&disk)).expect_err("a crash");
            for disk in [disk.power_cut(n), disk.kill()] {
                let files = on(&disk);
                if !Repository::exists(&files).expect("asked") {
                    create(&files).unwrap_or_else(|e| panic!("{fault:?} at {n}: {e}"));
                }
                opened(&files).unwrap_or_else(|e| panic!("{fault:?} at {n}: {e}"));
                assert_eq!(files.list("keys").expect("listed").len(), 1, "{fault:?} at {n}");
            }
        }
    }
}

#[test]
fn one_that_has_lost_its_config_is_not_made_anew() {
    let files = on(&SimDisk::new(33));
    create(&files).expect("made");
    day(&files, &Tree::new(1), 1).expect("a day");
    files.remove("config").expect("removed");
    assert!(create(&files).is_err_and(|e| e.text.contains("no config")));
}

#[test]
fn what_was_not_written_to_its_end_goes_when_it_is_pruned() {
    let disk = SimDisk::new(34);
    let files = on(&disk);
    create(&files).expect("made");
    day(&files, &Tree::new(1), 1).expect("a day");
    let key = files.list("keys").expect("listed").remove(0).0;
    let bytes = files.get(&format!("keys/{key}")).expect("read").expect("there");
    for dir in ["index", "keys", "snapshots"] {
        let unfinished = format!("{dir}/{key}-tmp-lee");
        let file = disk.create(&unfinished, Caching::Buffered).expect("made");
        file.write_at(0, &bytes).expect("written");
    }
    pruned(&opened(&files).expect("opened")).expect("pruned");
    for dir in ["index", "keys", "snapshots"] {
        let all = files.list(dir).expect("listed");
        assert!(all.iter().all(|(name, _)| Id::parse(name).is_some()), "{dir}: {all:?}");
    }
}

#[test]
fn damage_is_found() {
    let disk = SimDisk::new(6);
    let files = on(&disk);
    create(&files).expect("made");
    let mut tree = Tree::new(9);
    (0..80).for_each(|_| tree.step());
    day(&files, &tree, 1).expect("a day");
    let (name, len) =
        files.list("data").expect("listed").into_iter().max_by_key(|(_, len)| *len).expect("a pack");
    disk.flip_bit(&format!("data/{}/{name}", &name[..2]), len / 3).expect("flipped");
    let repository = opened(&files).expect("opened");
    is_whole(&repository, false);
    let found = check(&repository, true, &Unwatched).expect("checked");
    assert_eq!(found.problem_count, 1);
    files.remove(&format!("data/{}/{name}", &name[..2])).expect("removed");
    let found = check(&opened(&files).expect("opened"), false, &Unwatched).expect("checked");
    assert!(found.problems[0].contains("is missing"), "{:?}", found.problems);
}

#[test]
fn what_a_repository_has_lost_is_stored_again() {
    let disk = SimDisk::new(16);
    let files = on(&disk);
    create(&files).expect("made");
    let mut tree = Tree::new(19);
    (0..80).for_each(|_| tree.step());
    let shown = Shown { now: &tree, before: None };
    for round in 0..2 {
        let (older, _) = stored(&opened(&files).expect("opened"), &shown, None).expect("stored");
        // trees, then content: one is gone, the other one cut short
        let (name, len) =
            files.list("data").expect("listed").into_iter().max_by_key(|(_, len)| *len).expect("a pack");
        let pack = format!("data/{}/{name}", &name[..2]);
        match round {
            0 => files.remove(&pack).expect("removed"),
            _ => {
                let start = files.get_range(&pack, 0, len / 2).expect("read");
                files.put(&pack, start).expect("put");
            }
        }
        let repository = Arc::new(Repository::open(&Env::real(), &files, PASSWORD).expect("opened"));
        assert_eq!(repository.load_index_of_what_is_there(), Ok(Lost { packs: 1, damaged: Vec::new() }));
        let (again, done) = stored(&repository, &shown, None).expect("stored");
        assert!(again == older && done.files_read > 0);
        let id = repository.add_snapshot(&snapshot(again, round)).expect("added");
        let found = compared(&repository, &again, &tree, u64::MAX, u64::MAX);
        assert_eq!((found.difference_count, found.is_whole), (0, true), "{found:?}");
        // the index names the lost one still, until it is pruned
        assert!(pruned(&opened(&files).expect("opened")).is_ok());
        is_whole(&opened(&files).expect("opened"), true);
        repository.remove_snapshot(&id).expect("removed");
    }
}

#[test]
fn a_lock_that_was_lost_does_not_come_back() {
    let files = on(&SimDisk::new(18));
    create(&files).expect("made");
    let env = Env::sim(1);
    let repository = Arc::new(Repository::open(&env, &files, PASSWORD).expect("opened"));
    let holder = Holder { hostname: "here".into(), username: "one".into() };
    let lock = Lock::take(&repository, &holder, false).expect("taken");
    let tree = Tree::new(1);
    let store_under = |lock: &Lock| {
        let mut saver = Saver::new(&repository).expect("a saver").under(lock);
        store((&Shown { now: &tree, before: None }, b"home", 1), None, &mut saver, &repository, &Unwatched)
            .and_then(|_| saver.finish())
    };
    env.set_wall_by(26 * 60);
    let refused = store_under(&lock).expect_err("others may be at work");
    assert!(refused.text.contains("run it again"), "{refused}");
    env.set_wall_by(0);
    assert!(lock.need().is_err(), "a clock that goes back makes no difference");
    assert_eq!(files.list("index").expect("listed"), Vec::new(), "what is named may be removed by others");
    drop(lock);
    let again = Lock::take(&repository, &holder, true).expect("taken");
    repository.load_index().expect("loaded");
    assert!(store_under(&again).is_ok_and(|bytes| bytes > 0));
}

fn compared(repository: &Arc<Repository>, id: &Id, tree: &Tree, names: u64, bytes: u64) -> Compared {
    compare(repository, id, &Shown { now: tree, before: None }, Limit { names, bytes }, &Unwatched)
        .expect("compared")
}

#[test]
fn what_differs_from_the_tree_is_told() {
    let disk = SimDisk::new(6);
    let files = on(&disk);
    create(&files).expect("made");
    let repository = opened(&files).expect("opened");
    let mut tree = Tree::new(99);
    (0..400).for_each(|_| tree.step());
    let (id, _) = stored(&repository, &Shown { now: &tree, before: None }, None).expect("stored");
    let all = compared(&repository, &id, &tree, u64::MAX, u64::MAX);
    let of_files = |i: &&Inode| i.kind == NodeKind::File;
    let names = 1 + tree.inodes.values().map(|i| i.names.len() as u64).sum::<u64>();
    let bytes = tree.inodes.values().filter(of_files).map(|i| i.content.len() as u64 * i.links).sum::<u64>();
    assert_eq!((all.names, all.bytes, all.is_whole, &all.differences[..]), (names, bytes, true, &[][..]));

    let few = compared(&repository, &id, &tree, names / 3, u64::MAX);
    assert!(!few.is_whole && few.difference_count == 0 && few.files <= names / 3, "{few:?}");
    let little = compared(&repository, &id, &tree, u64::MAX, bytes / 3);
    assert!(!little.is_whole && little.difference_count == 0 && little.bytes < bytes, "{little:?}");

    // each kind of difference, in a copy of the tree
    let file =
        tree.any(|i| i.kind == NodeKind::File && i.links == 1 && i.content.len() > 10).expect("a file");
    let differs = |change: &dyn Fn(&mut Tree), how: &str| {
        let mut other = tree.clone();
        change(&mut other);
        let found = compared(&repository, &id, &other, u64::MAX, u64::MAX);
        assert!(found.differences.iter().any(|text| text.contains(how)), "{how}: {:?}", found.differences);
    };
    differs(&|t| t.inodes.get_mut(&file).expect("it").content[5] ^= 1, "its content differs after byte 0");
    differs(&|t| t.inodes.get_mut(&file).expect("it").mode ^= 1, "its mode differs");
    differs(&|t| t.inodes.get_mut(&file).expect("it").time += 1, "its times differ");
    differs(&|t| t.inodes.get_mut(&file).expect("it").links += 1, "its number of names differs");
    differs(&|t| t.inodes.get_mut(&file).expect("it").content.push(0), "its size differs");
    let dir = tree.inodes[&file].parent;
    differs(
        &|t| t.inodes.get_mut(&dir).expect("it").names.retain(|_, n| *n != file),
        "is in the backup only",
    );
    differs(
        &|t| assert_eq!(t.at(dir).names.insert(b"new".to_vec(), file), None),
        "/new: is not in the backup",
    );

    // a pack that is damaged
    for (name, _) in files.list("data").expect("listed") {
        disk.flip_bit(&format!("data/{}/{name}", &name[..2]), 40).expect("it is there");
    }
    let found = compared(&opened(&files).expect("opened"), &id, &tree, u64::MAX, u64::MAX);
    assert!(found.difference_count > 0);
}

/// A repository with a file of 12 MiB, some of it holes, in it. All is a function of the seed.
fn large_file() -> (Arc<Repository>, Tree, u64, Id) {
    let (env, files) = (Env::sim(1), on(&SimDisk::new(30)));
    Repository::create_with_cost(&env, &files, (PASSWORD, 4), "here").expect("made");
    let repository = Arc::new(Repository::open(&env, &files, PASSWORD).expect("opened"));
    let mut tree = Tree::new(3);
    let file = tree.make(NodeKind::File, ROOT);
    let mut content: Vec<u8> = (0..12 << 20).map(|_| tree.random(256) as u8).collect();
    content[4 << 20..6 << 20].fill(0);
    tree.at(file).content = content;
    tree.at(ROOT).names.insert(b"large".to_vec(), file);
    let (id, _) = stored(&repository, &Shown { now: &tree, before: None }, None).expect("stored");
    (repository, tree, file, id)
}

/// Of such a file half is compared.
const HALF: u64 = 24 << 20;

#[test]
fn each_part_of_a_large_file_is_compared_some_time() {
    let (repository, tree, file, id) = large_file();
    let good = compared(&repository, &id, &tree, u64::MAX, HALF);
    assert_eq!((good.difference_count, good.is_whole), (0, false));
    assert!(good.bytes >= 6 << 20 && good.bytes < 12 << 20, "{} bytes", good.bytes);
    for at in [0, (12 << 20) - 1] {
        let mut other = tree.clone();
        other.inodes.get_mut(&file).expect("it").content[at] ^= 1;
        let tests = (0..20).map(|_| compared(&repository, &id, &other, u64::MAX, HALF));
        let found = tests.filter(|found| found.difference_count > 0).count();
        assert!(found > 0, "nobody reads byte {at}");
    }
}

#[test]
fn a_chunk_that_is_not_in_the_list_of_a_large_file_is_missed() {
    let (repository, tree, _, id) = large_file();
    let nodes = |tree: &Id| {
        let mut nodes = Vec::new();
        let read = repository.tree(tree, &mut |node| {
            nodes.push(node);
            Ok(())
        });
        read.map(|()| nodes).expect("read")
    };
    let mut saver = Saver::new(&repository).expect("a saver");
    let mut root = nodes(&id).remove(0);
    let (mut top, mut below) = (TreeWriter::default(), TreeWriter::default());
    for mut node in nodes(&root.subtree.expect("a directory")) {
        node.content.as_mut().and_then(Vec::pop).expect("a chunk");
        below.add(&node).expect("added");
    }
    root.subtree = Some(saver.tree(below).expect("stored"));
    top.add(&root).expect("added");
    let id = saver.tree(top).expect("stored");
    saver.finish().expect("stored");
    let found = compared(&repository, &id, &tree, u64::MAX, HALF);
    assert_eq!(found.difference_count, 1);
    assert!(found.differences[0].starts_with("/large: gives "), "{:?}", found.differences);
}

#[test]
fn a_thread_that_panics_fails_the_run() {
    let inner = on(&SimDisk::new(32));
    create(&inner).expect("made");
    let files: Arc<dyn Files> = Arc::new(Hindered(inner, Fails::Packs));
    let repository = opened(&files).expect("opened");
    let failed = stored(&repository, &Shown { now: &Tree::new(1), before: None }, None);
    assert!(failed.is_err_and(|e| e.text.contains("a defect in a test")));
}

#[test]
fn locks_exclude_those_who_remove() {
    let files = on(&SimDisk::new(8));
    create(&files).expect("made");
    let repository = opened(&files).expect("opened");
    let holder = |name: &str| Holder { hostname: "here".into(), username: name.into() };
    let one = Lock::take(&repository, &holder("one"), false).expect("the first");
    let two = Lock::take(&repository, &holder("two"), false).expect("those who add are several");
    let refused = Lock::take(&repository, &holder("three"), true).map(drop).expect_err("others are there");
    assert_eq!(refused.kind, ErrorKind::Locked);
    assert!(refused.text.contains("restic -r /vault unlock"), "{refused}");
    drop((one, two));
    let alone = Lock::take(&repository, &holder("three"), true).expect("nobody is there");
    assert!(Lock::take(&repository, &holder("one"), false).is_err());
    drop(alone);
    assert_eq!(files.list("locks").expect("listed"), Vec::new());
    // of a process of this name before, with the same number
    std::mem::forget(Lock::take(&repository, &holder("one"), true).expect("taken"));
    let again = Lock::take(&repository, &holder("one"), true);
    assert!(again.is_ok());
}

/// What a place does not do.
#[derive(Clone, Copy, PartialEq)]
enum Fails {
    /// Nothing can be removed.
    Removals,
    /// Storing a pack panics.
    Packs,
}

/// A place that does not do something.
struct Hindered(Arc<dyn Files>, Fails);

impl Files for Hindered {
    fn place(&self) -> String {
        self.0.place()
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.0.get(name)
    }

    fn get_range(&self, name: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.0.get_range(name, offset, len)
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        assert!(self.1 != Fails::Packs || !name.starts_with("data/"), "a defect in a test");
        self.0.put(name, bytes)
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.1 {
            Fails::Removals => Err(Error::new(ErrorKind::Place, format!("{name}: access denied"))),
            Fails::Packs => self.0.remove(name),
        }
    }

    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        self.0.list(dir)
    }

    fn settle_removals(&self, dir: &str) -> Result<()> {
        self.0.settle_removals(dir)
    }
}

#[test]
fn backups_are_made_where_nothing_can_be_removed() {
    let inner = on(&SimDisk::new(21));
    let files: Arc<dyn Files> = Arc::new(Hindered(inner.clone(), Fails::Removals));
    create(&files).expect("made");
    let env = Env::sim(1);
    let holder = Holder { hostname: "here".into(), username: "one".into() };
    let mut tree = Tree::new(1);
    for round in 1..=3 {
        let repository = Arc::new(Repository::open(&env, &files, PASSWORD).expect("opened"));
        let lock = Lock::take(&repository, &holder, false).expect("locks of before count no more");
        repository.load_index().expect("loaded");
        let mut saver = Saver::new(&repository).expect("a saver").under(&lock);
        let of = (&Shown { now: &tree, before: None } as &dyn Source, &b"home"[..], 1);
        store(of, None, &mut saver, &repository, &Unwatched).and_then(|_| saver.finish()).expect("stored");
        drop(lock);
        assert_eq!(inner.list("locks").expect("listed").len(), round, "each stays");
        tree.clock += 1;
    }
}
