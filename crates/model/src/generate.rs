//! Random steps: same seed and same model states, same steps.
//!
//! The namespace is small, so that operations meet: few names, shallow directories, hard links.
//! Most steps aim at existing files (the generator looks at the model), some at missing ones.
//! Content comes in overlapping writes from one byte to 300 KiB within a few MiB, seldom far out.

use crate::model::{Model, ROOT};
use crate::node::{Ino, Name};
use crate::step::SNAP_DIR;
use crate::step::{Act, Fill, New, Path, Step, Where};
use leeward_env::limits;
use leeward_fs::{Allocate, InodeFlags, Kind, Precondition, RenameMode, Seek, Time, XattrMode};

/// A small generator of random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Any seed is good.
    pub fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d | 1);
        rng.draw();
        rng.draw();
        rng
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 7
    }

    /// A number below `n` (0 when `n` is 0).
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.draw() % n }
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u64) as usize)
    }
}

/// The abilities of the system under test.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Besides root, user 1000 acts.
    pub users: bool,
    /// Steps may hold unlinked inodes.
    pub slots: bool,
    /// Steps may make files without a name, and give them one in place of another.
    pub unnamed: bool,
    /// Steps may close and open the file system again.
    pub reopen: bool,
    /// Fsync, SyncAll and the passing of time come often: what crash tests want.
    pub sync_often: bool,
    /// Largest file in bytes.
    pub file_bytes_max: u64,
    /// Largest value of an extended attribute in bytes; steps go one byte beyond it where it is the
    /// file system's own limit.
    pub xattr_bytes_max: u32,
    /// About how many inodes there are.
    pub inodes: usize,
    /// Of a hundred steps so many are about snapshots: taking, removing, renaming, reading. 0:
    /// none.
    pub snapshots: u64,
    /// Most snapshots at a time.
    pub snapshots_max: usize,
    /// Of a hundred steps so many move the data to another of two pools. 0: none.
    pub moves: u64,
    /// Of a hundred steps so many set flags of inodes. 0: none.
    pub flags: u64,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            users: true,
            slots: true,
            unnamed: true,
            reopen: true,
            sync_often: false,
            file_bytes_max: limits::FILE_BYTES_MAX,
            xattr_bytes_max: limits::XATTR_VALUE_BYTES_MAX as u32,
            inodes: 50,
            snapshots: 0,
            snapshots_max: 8,
            moves: 0,
            flags: 0,
        }
    }
}

impl Profile {
    /// For crash tests: small trees, frequent syncs, no closing.
    pub fn crash() -> Profile {
        Profile { reopen: false, sync_often: true, inodes: 16, ..Profile::default() }
    }
}

impl Profile {
    /// The same with two pools: `share` of a hundred steps move the data.
    pub fn with_moves(self, share: u64) -> Profile {
        Profile { moves: share, ..self }
    }

    /// The same with flags: `share` of a hundred steps set some.
    pub fn with_flags(self, share: u64) -> Profile {
        Profile { flags: share, ..self }
    }

    /// The same with snapshots: `share` of a hundred steps are about them.
    pub fn with_snapshots(self, share: u64, most: usize) -> Profile {
        Profile { snapshots: share, snapshots_max: most, ..self }
    }
}

const SLOTS: u64 = 4;

#[derive(Clone, Copy)]
enum Family {
    Make,
    Link,
    Unlink,
    RmDir,
    Rename,
    Write,
    Read,
    Truncate,
    Attr,
    SetId,
    Allocate,
    Seek,
    Copy,
    List,
    ReadLink,
    Xattr,
    Stat,
    Fsync,
    SyncAll,
    Hold,
    Release,
    Advance,
    Reopen,
    Save,
}

/// Relative frequencies.
const WEIGHTS: &[(u64, Family)] = &[
    (14, Family::Make),
    (4, Family::Link),
    (6, Family::Unlink),
    (3, Family::RmDir),
    (10, Family::Rename),
    (22, Family::Write),
    (10, Family::Read),
    (6, Family::Truncate),
    (5, Family::Attr),
    (1, Family::SetId),
    (6, Family::Allocate),
    (3, Family::Seek),
    (4, Family::Copy),
    (4, Family::List),
    (1, Family::ReadLink),
    (8, Family::Xattr),
    (3, Family::Stat),
    (2, Family::Fsync),
    (1, Family::SyncAll),
    (2, Family::Hold),
    (1, Family::Release),
    (2, Family::Advance),
    (1, Family::Reopen),
    (2, Family::Save),
];

/// The source of steps.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    profile: Profile,
    /// Steps that must follow the last one, next at the end.
    queue: Vec<Step>,
}

/// The existing files, for aiming.
struct View<'m> {
    model: &'m Model,
    paths: Vec<(Path, Ino)>,
}

impl<'m> View<'m> {
    fn of(model: &'m Model) -> View<'m> {
        View::below(model, Path::default(), ROOT)
    }

    fn below(model: &'m Model, path: Path, ino: Ino) -> View<'m> {
        let mut paths = vec![(path, ino)];
        let mut next = 0;
        while let Some((path, ino)) = paths.get(next).cloned() {
            next += 1;
            let children = model.children(ino).into_iter().flatten();
            paths.extend(children.map(|(name, child)| (path.join(&name), child)));
        }
        View { model, paths }
    }

    /// The directories of snapshots of all directories, or of those that have snapshots of their
    /// own.
    fn snap_dirs(&self, used: bool) -> Vec<(Path, Ino)> {
        let dir = |ino: Ino| self.model.node(ino).is_ok_and(|n| n.is_dir());
        let all = self.paths.iter().filter(|(_, ino)| dir(*ino) && (!used || self.model.has_snapshots(*ino)));
        all.map(|(path, ino)| (path.join(SNAP_DIR), *ino)).collect()
    }

    /// Own and inherited snapshots, by all their paths.
    fn snapshots(&self) -> Vec<(Path, Ino)> {
        let shown = |(path, dir): (Path, Ino)| {
            let entries = self.model.snap_entries(dir).into_iter();
            entries.map(move |(name, root)| (path.join(&name), root)).collect::<Vec<_>>()
        };
        self.snap_dirs(false).into_iter().flat_map(shown).collect()
    }

    fn of_kind(&self, wanted: impl Fn(Kind) -> bool) -> Vec<&Path> {
        let kind = |ino| self.model.node(ino).map(|n| n.kind());
        self.paths.iter().filter(|(_, ino)| kind(*ino).is_ok_and(&wanted)).map(|(path, _)| path).collect()
    }

    fn size(&self, path: &Path) -> u64 {
        let found = self.paths.iter().find(|(p, _)| p == path);
        let file = found.and_then(|(_, ino)| self.model.node(*ino).ok()).and_then(|n| n.file().ok());
        file.map_or(0, |content| content.size())
    }
}

impl Generator {
    /// Starts from a seed.
    pub fn new(seed: u64, profile: Profile) -> Generator {
        Generator { rng: Rng::new(seed), profile, queue: Vec::new() }
    }

    /// The next step, given what the steps so far have led to.
    pub fn step(&mut self, model: &Model) -> Step {
        if let Some(step) = self.queue.pop() {
            return step;
        }
        let view = View::of(model);
        if self.profile.snapshots > 0 && self.rng.chance(self.profile.snapshots) {
            let uid = [0, 0, 0, 0, 0, 0, 1000, 1001][self.rng.below(8) as usize];
            return Step { uid: if self.profile.users { uid } else { 0 }, act: self.snapshot(&view) };
        }
        if self.profile.snapshots > 0 && self.rng.chance(2) {
            let dir = self.existing(&view, |k| k == Kind::Dir);
            return Step::root(Act::Quota { dir, on: self.rng.chance(60) });
        }
        if self.profile.moves > 0 && self.rng.chance(self.profile.moves) {
            return Step::root(Act::MoveData { pool: self.rng.below(2) as u8 });
        }
        if self.profile.flags > 0 && self.rng.chance(self.profile.flags) {
            let uid = if self.profile.users && self.rng.chance(15) { 1000 } else { 0 };
            return Step { uid, act: self.flags(&view) };
        }
        let family = self.family(view.paths.len());
        let uid = if self.profile.users && self.rng.chance(30) { 1000 } else { 0 };
        Step { uid, act: self.act(family, &view) }
    }

    fn family(&mut self, inodes: usize) -> Family {
        let crowded = inodes > self.profile.inodes;
        let weight = |weight: u64, family: Family| match family {
            Family::Make | Family::Link if crowded => weight / 3,
            Family::Unlink | Family::RmDir if crowded => weight * 4,
            Family::Fsync | Family::SyncAll | Family::Advance | Family::Save if self.profile.sync_often => {
                weight * 4
            }
            Family::Hold | Family::Release if !self.profile.slots => 0,
            Family::Reopen if !self.profile.reopen => 0,
            _ => weight,
        };
        let total = WEIGHTS.iter().map(|&(w, f)| weight(w, f)).sum();
        let mut at = self.rng.below(total);
        for &(w, family) in WEIGHTS {
            let w = weight(w, family);
            if at < w {
                return family;
            }
            at -= w;
        }
        Family::Stat
    }

    fn act(&mut self, family: Family, view: &View<'_>) -> Act {
        match family {
            Family::Make => self.make(view),
            Family::Link => Act::Link { from: self.inode(view, |k| k != Kind::Dir), to: self.fresh(view) },
            Family::Unlink => Act::Unlink(self.existing(view, |k| k != Kind::Dir)),
            Family::RmDir => Act::RmDir(self.existing(view, |k| k == Kind::Dir)),
            Family::Rename => self.rename(view),
            Family::Write => self.write(view),
            Family::Read => self.read(view),
            Family::Truncate => self.truncate(view),
            Family::Attr => self.attr(view),
            Family::SetId => self.set_id(view),
            Family::Allocate => self.allocate(view),
            Family::Seek => self.seek(view),
            Family::Copy => self.copy(view),
            Family::List => self.list(view),
            Family::ReadLink => Act::ReadLink(self.inode(view, |k| k == Kind::Symlink)),
            Family::Xattr => self.xattr(view),
            Family::Stat if self.rng.chance(10) => Act::StatFs,
            Family::Stat => Act::Stat(self.inode(view, |_| true)),
            Family::Fsync => Act::Fsync(self.inode(view, |_| true)),
            Family::SyncAll => Act::SyncAll,
            Family::Hold if self.profile.unnamed && self.rng.chance(40) => self.unnamed(view),
            Family::Hold => {
                let path = self.existing(view, |k| k != Kind::Dir);
                if self.rng.chance(60) {
                    self.queue.push(Step::root(Act::Unlink(path.clone())));
                }
                Act::Hold { slot: self.rng.below(SLOTS) as u8, path }
            }
            Family::Release if self.profile.unnamed && self.rng.chance(40) => self.place(view),
            Family::Release => Act::Release(self.rng.below(SLOTS) as u8),
            Family::Advance => Act::Advance { ms: 1 << self.rng.below(11) },
            Family::Reopen => Act::Reopen,
            Family::Save => self.save(view),
        }
    }

    fn name(&mut self) -> Name {
        match self.rng.below(40) {
            0 => vec![b'n'; limits::NAME_BYTES_MAX].into(),
            1 => Name::from(&b"\xff caf\xc3\xa9"[..]),
            n => Name::from(&b"abcdefgh"[(n % 8) as usize..][..1]),
        }
    }

    /// Some name in some directory, existing or not.
    fn fresh(&mut self, view: &View<'_>) -> Path {
        let dirs = view.of_kind(|k| k == Kind::Dir);
        let shallow: Vec<&Path> = dirs.into_iter().filter(|p| p.0.len() < 5).collect();
        let dir = match self.rng.below(50) {
            0 => self.existing(view, |_| true),
            1 => Path(vec![self.name(), self.name()]),
            _ => self.rng.pick(&shallow).copied().cloned().unwrap_or_default(),
        };
        if self.rng.chance(1) {
            return dir.join(&[b'N'; limits::NAME_BYTES_MAX + 1]);
        }
        dir.join(&self.name())
    }

    /// An existing inode of a wanted kind, mostly.
    fn existing(&mut self, view: &View<'_>, wanted: impl Fn(Kind) -> bool) -> Path {
        let found = match self.rng.below(20) {
            0 => view.of_kind(|_| true),
            1 => Vec::new(),
            _ => view.of_kind(wanted),
        };
        let found: Vec<&Path> = found.into_iter().filter(|p| !p.0.is_empty()).collect();
        match self.rng.pick(&found) {
            Some(path) => (*path).clone(),
            None => Path(vec![self.name()]),
        }
    }

    fn inode(&mut self, view: &View<'_>, wanted: impl Fn(Kind) -> bool) -> Where {
        if self.profile.slots && self.rng.chance(8) {
            return Where::Slot(self.rng.below(SLOTS) as u8);
        }
        Where::Path(self.existing(view, wanted))
    }

    fn file(&mut self, view: &View<'_>) -> Where {
        self.inode(view, |k| k == Kind::File)
    }

    /// A file or a directory, always: the kernel lets no chmod and no user attribute through to
    /// other kinds.
    fn file_or_dir(&mut self, view: &View<'_>) -> Where {
        let right = view.of_kind(|k| matches!(k, Kind::File | Kind::Dir));
        let path = self.rng.pick(&right).copied().cloned().unwrap_or_default();
        Where::Path(if self.rng.chance(3) { Path(vec![Name::from(&b"nothing"[..])]) } else { path })
    }

    fn make(&mut self, view: &View<'_>) -> Act {
        let path = self.fresh(view);
        let kind = self.rng.below(20);
        let new = match kind {
            0 => New::Fifo,
            1 => New::Socket,
            2 => New::CharDev(0x103),
            3 => New::Symlink(vec![b'x'; 1 + self.rng.below(200) as usize].into()),
            4 => New::Symlink(Name::from(&b"../a"[..])),
            5..=9 => New::Dir,
            _ => New::File,
        };
        let symlink = matches!(new, New::Symlink(_));
        let mode = if symlink { 0o777 } else { [0o755, 0o644, 0o777, 0o600][self.rng.below(4) as usize] };
        let umask = if symlink { 0 } else { [0, 0o022, 0o077][self.rng.below(3) as usize] };
        Act::Make { path, new, mode, umask }
    }

    /// A file without a name, which is written, and gets a name at once, later, or never.
    fn unnamed(&mut self, view: &View<'_>) -> Act {
        let slot = self.rng.below(SLOTS) as u8;
        if self.rng.chance(50) {
            let Act::Place { to, over, .. } = self.place(view) else { return Act::StatFs };
            self.queue.push(Step::root(Act::Place { file: Where::Slot(slot), to, over }));
        }
        if let Act::Write { offset, fill, .. } = self.write(view)
            && self.rng.chance(80)
        {
            self.queue.push(Step::root(Act::Write { file: Where::Slot(slot), offset, fill }));
        }
        let dir = self.existing(view, |k| k == Kind::Dir);
        Act::MakeUnnamed { slot, dir, mode: 0o666, umask: 0o022 }
    }

    fn place(&mut self, view: &View<'_>) -> Act {
        let to = if self.rng.chance(40) { self.existing(view, |_| true) } else { self.fresh(view) };
        let over = if self.rng.chance(30) { Precondition::Nothing } else { Precondition::Any };
        Act::Place { file: Where::Slot(self.rng.below(SLOTS) as u8), to, over }
    }

    fn rename(&mut self, view: &View<'_>) -> Act {
        let mode = match self.rng.below(10) {
            0 => RenameMode::NoReplace,
            1 | 2 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let from = self.existing(view, |_| true);
        let to = match self.rng.below(10) {
            // into itself, onto an ancestor: must be refused
            0 => from.join(&self.name()),
            1 if from.0.len() > 1 => Path(from.0[..from.0.len() - 1].to_vec()),
            2..=5 => self.existing(view, |_| true),
            _ => self.fresh(view),
        };
        Act::Rename { from, to, mode }
    }

    /// The way editors save: a new file, written, fsynced or not, renamed over the old one.
    fn save(&mut self, view: &View<'_>) -> Act {
        let to = self.existing(view, |k| k == Kind::File);
        let from = Path(vec![Name::from(&b"tmp"[..])]);
        let file = Where::Path(from.clone());
        let rename = Act::Rename { from: from.clone(), to, mode: RenameMode::Replace };
        self.queue.push(Step::root(rename));
        if self.rng.chance(40) {
            self.queue.push(Step::root(Act::Fsync(file.clone())));
        }
        let fill = self.fill();
        self.queue.push(Step::root(Act::Write { file, offset: 0, fill }));
        Act::Make { path: from, new: New::File, mode: 0o644, umask: 0 }
    }

    fn len(&mut self) -> u32 {
        (match self.rng.below(10) {
            0..=2 => 1 + self.rng.below(64),
            3..=5 => 1 + self.rng.below(5000),
            6 => 4096 * (1 + self.rng.below(16)),
            7 | 8 => 1 + self.rng.below(128 << 10),
            _ => 1 + self.rng.below(300 << 10),
        }) as u32
    }

    fn fill(&mut self) -> Fill {
        Fill { pattern: 1 + self.rng.below(1 << 20) as u32, len: self.len() }
    }

    /// An offset such that `len` bytes still fit.
    fn offset(&mut self, size: u64, len: u64) -> u64 {
        let most = self.profile.file_bytes_max.saturating_sub(len);
        let offset = match self.rng.below(40) {
            0..=9 => 0,
            10..=19 => self.rng.below(size.min(4 << 20) + 1),
            20..=23 => size,
            24..=29 => 4096 * self.rng.below(300),
            30..=38 => self.rng.below(3 << 20),
            _ if self.rng.chance(20) => most,
            _ => self.rng.below(most),
        };
        offset.min(most)
    }

    /// Whether steps may go beyond the largest file: only where the limit is ours.
    fn own_file_limit(&self) -> bool {
        self.profile.file_bytes_max == limits::FILE_BYTES_MAX
    }

    fn size_of(&mut self, view: &View<'_>, place: &Where) -> u64 {
        match place {
            Where::Path(path) => view.size(path),
            Where::Slot(_) => 10_000,
        }
    }

    fn write(&mut self, view: &View<'_>) -> Act {
        let file = self.file(view);
        let fill = self.fill();
        if self.rng.chance(10) {
            return Act::Append { file, fill };
        }
        let size = self.size_of(view, &file);
        let offset = match self.rng.below(200) {
            0 if self.own_file_limit() => limits::FILE_BYTES_MAX,
            _ => self.offset(size, u64::from(fill.len)),
        };
        Act::Write { file, offset, fill }
    }

    fn read(&mut self, view: &View<'_>) -> Act {
        let file = self.file(view);
        let size = self.size_of(view, &file);
        let len = if self.rng.chance(10) { 1 << 20 } else { self.len() };
        Act::Read { offset: self.offset(size, u64::from(len)), len, file }
    }

    fn truncate(&mut self, view: &View<'_>) -> Act {
        let file = self.file(view);
        let size = self.size_of(view, &file);
        let size = match self.rng.below(100) {
            0 if self.own_file_limit() => limits::FILE_BYTES_MAX + 1,
            1..=5 => size,
            _ => self.offset(size, 0),
        };
        Act::Truncate { file, size }
    }

    fn attr(&mut self, view: &View<'_>) -> Act {
        let file = self.file_or_dir(view);
        let ids = if self.profile.users { [0, 1000, 1001] } else { [0; 3] };
        match self.rng.below(3) {
            0 => Act::Chmod { file, mode: [0o755, 0o600, 0o1777, 0o777][self.rng.below(4) as usize] },
            1 => {
                let mut id = || ids[self.rng.below(3) as usize];
                Act::Chown { uid: id(), gid: id(), file }
            }
            _ => {
                let secs = self.rng.below(1 << 32) as i64 - 1000;
                let time = Time { secs, nanos: self.rng.below(1_000_000_000) as u32 };
                Act::Utimes { file, to: self.rng.chance(70).then_some(time) }
            }
        }
    }

    /// Flags of a file or directory. Two of three steps take all flags from an inode that has some:
    /// otherwise little could change before long.
    fn flags(&mut self, view: &View<'_>) -> Act {
        let flags_of = |ino| view.model.node(ino).map_or(InodeFlags::default(), |n| n.flags);
        let flagged: Vec<&Path> =
            view.paths.iter().filter(|(_, ino)| !flags_of(*ino).is_empty()).map(|(path, _)| path).collect();
        if self.rng.chance(66)
            && let Some(path) = self.rng.pick(&flagged)
        {
            return Act::Flags { file: Where::Path((*path).clone()), flags: InodeFlags::default() };
        }
        let file = if self.rng.chance(5) { self.inode(view, |_| true) } else { self.file_or_dir(view) };
        let bits = [0x10, 0x20, 0x40, 0x10, 0x20, 0x60, 0x30, 0x04][self.rng.below(8) as usize];
        Act::Flags { file, flags: InodeFlags::from_bits(bits) }
    }

    /// Setgid directories; setuid and setgid files, which a user's write or truncate takes the bits
    /// from.
    fn set_id(&mut self, view: &View<'_>) -> Act {
        if self.rng.chance(40) || !self.profile.users {
            let dirs = view.of_kind(|k| k == Kind::Dir);
            let dir = self.rng.pick(&dirs).copied().cloned().unwrap_or_default();
            return Act::Chmod { file: Where::Path(dir), mode: 0o2775 };
        }
        let files = view.of_kind(|k| k == Kind::File);
        let Some(file) = self.rng.pick(&files).map(|path| Where::Path((*path).clone())) else {
            return Act::Stat(Where::Path(Path::default()));
        };
        let mode = [0o6755, 0o4755, 0o2745, 0o2755][self.rng.below(4) as usize];
        let change = match self.rng.below(2) {
            0 => Act::Write { file: file.clone(), offset: 0, fill: self.fill() },
            _ => Act::Truncate { file: file.clone(), size: self.rng.below(100_000) },
        };
        let uid = if self.rng.chance(70) { 1000 } else { 0 };
        self.queue.push(Step::root(Act::Chmod { file: file.clone(), mode: 0o644 }));
        self.queue.push(Step { uid, act: change });
        Act::Chmod { file, mode }
    }

    fn allocate(&mut self, view: &View<'_>) -> Act {
        let file = self.file(view);
        let size = self.size_of(view, &file);
        let keep_size = self.rng.chance(50);
        let mode = match self.rng.below(4) {
            0 => Allocate::Reserve { keep_size },
            1 => Allocate::ZeroRange { keep_size },
            _ => Allocate::PunchHole,
        };
        let len = match self.rng.below(20) {
            0 => 0,
            1..=4 => self.rng.below(3 << 20) + 1,
            _ => u64::from(self.len()),
        };
        Act::Allocate { offset: self.offset(size, len), file, len, mode }
    }

    fn seek(&mut self, view: &View<'_>) -> Act {
        let file = self.file(view);
        let size = self.size_of(view, &file);
        let what = if self.rng.chance(50) { Seek::Data } else { Seek::Hole };
        Act::Seek { offset: self.offset(size, 0), file, what }
    }

    fn copy(&mut self, view: &View<'_>) -> Act {
        let from = self.file(view);
        let to = if self.rng.chance(20) { from.clone() } else { self.file(view) };
        let len = if self.rng.chance(20) { 1 << 20 } else { u64::from(self.len()) };
        let (from_size, to_size) = (self.size_of(view, &from), self.size_of(view, &to));
        let aligned = self.rng.chance(40);
        let mut offset = |size| {
            let at = self.offset(size, len);
            if aligned { at / 4096 * 4096 } else { at }
        };
        Act::Copy { from_offset: offset(from_size), to_offset: offset(to_size), from, to, len }
    }

    fn list(&mut self, view: &View<'_>) -> Act {
        let dir = match self.rng.chance(30) {
            true => Path::default(),
            false => self.existing(view, |k| k == Kind::Dir),
        };
        let after = if self.rng.chance(50) { Name::default() } else { self.name() };
        Act::List { dir: Where::Path(dir), after, limit: 1 + self.rng.below(6) as u32 }
    }

    fn xattr(&mut self, view: &View<'_>) -> Act {
        let file = self.file_or_dir(view);
        let mut name = b"user.".to_vec();
        name.push(b"abcd"[self.rng.below(4) as usize]);
        let name = Name::from(name);
        match self.rng.below(8) {
            0 => Act::ListXattr(file),
            1 | 2 => Act::GetXattr { file, name },
            3 => Act::RemoveXattr { file, name },
            _ => {
                let mode = match self.rng.below(5) {
                    0 => XattrMode::Create,
                    1 => XattrMode::Replace,
                    _ => XattrMode::Set,
                };
                Act::SetXattr { file, name, fill: self.xattr_fill(), mode }
            }
        }
    }

    fn xattr_fill(&mut self) -> Fill {
        let most = self.profile.xattr_bytes_max;
        let own_limit = most == limits::XATTR_VALUE_BYTES_MAX as u32;
        let len = match self.rng.below(20) {
            0 => 0,
            1 => most,
            2 if own_limit => most + 1,
            3..=6 => self.rng.below(5000) as u32,
            _ => 1 + self.rng.below(100) as u32,
        };
        Fill { pattern: 1 + self.rng.below(1000) as u32, len: len.min(most + 1) }
    }
}

/// Snapshots.
impl Generator {
    fn snapshot(&mut self, view: &View<'_>) -> Act {
        let shown = view.snapshots();
        let full = view.model.snapshots().count() >= self.profile.snapshots_max;
        match self.rng.below(100) {
            0..=29 if !full => {
                let dirs = view.snap_dirs(false);
                let dir = self.rng.pick(&dirs).map(|(path, _)| path.clone()).unwrap_or_default();
                self.take(view, dir)
            }
            0..=44 => Act::RmDir(self.one_of(&shown)),
            45..=54 => self.rename_snapshot(view, &shown),
            55..=61 => self.odd_with_snapshots(view, &shown),
            62..=67 => self.restore(view, &shown),
            _ => self.in_snapshot(view, &shown),
        }
    }

    fn snapshot_name(&mut self) -> Name {
        match self.rng.below(30) {
            0 => vec![b'S'; limits::SNAPSHOT_NAME_BYTES_MAX + self.rng.below(2) as usize].into(),
            1 => Name::from(&b"_no"[..]),
            2 => Name::from(&b"a_b"[..]),
            n => Name::from(&b"s1s2s3s4"[(n % 4) as usize * 2..][..2]),
        }
    }

    /// Takes a snapshot: often of something just written, and followed by something that commits or
    /// changes it again.
    fn take(&mut self, view: &View<'_>, snap_dir: Path) -> Act {
        let new = if self.rng.chance(3) { New::File } else { New::Dir };
        let path = snap_dir.join(&self.snapshot_name());
        let take = Act::Make { path, new, mode: 0o755, umask: 0o022 };
        let dir = snap_dir.split().map(|(dir, _)| dir).unwrap_or_default();
        let below: Vec<_> =
            view.paths.iter().filter(|(path, _)| path.0.starts_with(&dir.0)).cloned().collect();
        let inside = View { model: view.model, paths: below };
        if self.rng.chance(50) || inside.of_kind(|k| k == Kind::File).is_empty() {
            return take;
        }
        let after = match self.rng.below(6) {
            0 => Act::Fsync(Where::Path(snap_dir)),
            1 | 2 => Act::Fsync(self.inode(view, |_| true)),
            3 => self.write(&inside),
            4 => self.truncate(&inside),
            _ => Act::Advance { ms: 1 },
        };
        self.queue.push(Step::root(after));
        self.queue.push(Step::root(take));
        self.write(&inside)
    }

    /// A snapshot, preferably one of its directory's own; or a missing name.
    fn one_of(&mut self, shown: &[(Path, Ino)]) -> Path {
        let own = |p: &&(Path, Ino)| p.0.0.last().is_some_and(|name| !name.starts_with(b"_"));
        let own: Vec<_> = shown.iter().filter(own).cloned().collect();
        let found = if self.rng.chance(85) { &own[..] } else { shown };
        match self.rng.pick(found) {
            Some((path, _)) if self.rng.chance(95) => path.clone(),
            _ => Path(vec![SNAP_DIR.into(), self.snapshot_name()]),
        }
    }

    fn rename_snapshot(&mut self, view: &View<'_>, shown: &[(Path, Ino)]) -> Act {
        let from = self.one_of(shown);
        let snap_dir = from.split().map(|(dir, _)| dir).unwrap_or_default();
        let mode = match self.rng.below(10) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let to = match self.rng.below(20) {
            0 => self.fresh(view),
            1 => self.one_of(shown),
            _ => snap_dir.join(&self.snapshot_name()),
        };
        match self.rng.chance(3) {
            true => Act::Rename { from: self.existing(view, |_| true), to, mode },
            false => Act::Rename { from, to, mode },
        }
    }

    /// Refused operations, and the directories of snapshots themselves.
    fn odd_with_snapshots(&mut self, view: &View<'_>, shown: &[(Path, Ino)]) -> Act {
        let dirs = view.snap_dirs(self.rng.chance(50));
        let snap_dir =
            self.rng.pick(&dirs).map_or_else(|| Path(vec![SNAP_DIR.into()]), |(path, _)| path.clone());
        let place = Where::Path(snap_dir.clone());
        match self.rng.below(14) {
            0 => Act::Make { path: snap_dir, new: New::Dir, mode: 0o755, umask: 0 },
            1 => Act::Make { path: snap_dir.join(SNAP_DIR), new: New::Dir, mode: 0o755, umask: 0 },
            2 => Act::RmDir(snap_dir),
            3 => Act::Unlink(snap_dir),
            4 => Act::Rename { from: snap_dir, to: self.fresh(view), mode: RenameMode::Replace },
            5 => Act::Rename { from: self.existing(view, |_| true), to: snap_dir, mode: RenameMode::Replace },
            6 => Act::Link { from: self.inode(view, |k| k == Kind::File), to: snap_dir },
            7 => Act::Link { from: self.inode(view, |k| k == Kind::File), to: snap_dir.join(b"l") },
            8 => Act::Unlink(self.one_of(shown)),
            9 => Act::Chmod { file: place, mode: 0o700 },
            10 => Act::ListXattr(place),
            11 => Act::Stat(place),
            12 => Act::Fsync(place),
            _ => Act::List { dir: place, after: Name::default(), limit: 1 + self.rng.below(10) as u32 },
        }
    }

    /// Copies from a snapshot to a live file.
    fn restore(&mut self, view: &View<'_>, shown: &[(Path, Ino)]) -> Act {
        let Some((path, root)) = self.rng.pick(shown).cloned() else { return self.copy(view) };
        let old = View::below(view.model, path, root);
        let (from, to) = (self.file(&old), self.file(view));
        let (from_size, to_size) = (self.size_of(&old, &from), self.size_of(view, &to));
        let len = if self.rng.chance(50) { 1 << 20 } else { u64::from(self.len()) };
        Act::Copy {
            from_offset: self.offset(from_size, len),
            to_offset: self.offset(to_size, len),
            from,
            to,
            len,
        }
    }

    /// Any act, in a snapshot: half of them only look.
    fn in_snapshot(&mut self, view: &View<'_>, shown: &[(Path, Ino)]) -> Act {
        let Some((path, root)) = self.rng.pick(shown).cloned() else { return Act::StatFs };
        let old = View::below(view.model, path, root);
        let looks = [
            Family::Read,
            Family::List,
            Family::ReadLink,
            Family::Stat,
            Family::Seek,
            Family::Hold,
            Family::Fsync,
        ];
        let family = match self.rng.chance(50) {
            true => looks[self.rng.below(looks.len() as u64) as usize],
            false => self.family(0),
        };
        self.act(family, &old)
    }
}
