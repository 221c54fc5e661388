//! Storms: heavy load by one user with many threads, of one kind at a time.
//!
//! A storm is a process of its own ([`serve`]), so that it can act as another user and can be ended
//! even if one of its calls hangs. The caller gives an [`Order`] and holds a [`Storm`]. The child
//! prepares what it needs and writes `ready`. It begins when it reads a line, and ends when its
//! standard input ends. That also happens when the caller dies. Then it reports what it did, and
//! removes what it made.
//!
//! The order limits space and files: beyond the limit a storm removes or overwrites what it made.

use crate::probe::noise;
use crate::scratch;
use crate::stop::Stop;
use crate::sys::{self, Identity};
use crate::text;
use leeward_env::Env;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Bytes of one big write or read.
const BLOCK: usize = 1 << 20;
/// Bytes of a small file. A file counts for that much where space is shared out.
const SMALL: usize = 4096;
/// Files in a directory that is listed or removed as a whole.
const DIR_FILES: u64 = 1000;
/// Nested directories of a deep tree, and files in each.
const DEPTH: u32 = 100;
/// Snapshots at a time.
const SNAPSHOTS: u64 = 4;
/// Time that a storm may prepare.
const PREPARE_MAX: Duration = Duration::from_secs(120);
/// Time that a storm may clean up before its process is killed.
const CLEAN_MAX: Duration = Duration::from_secs(120);

/// Kinds of storms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Makes empty files.
    Create,
    /// Writes files of 4 KiB.
    Small,
    /// Writes blocks of 1 MiB to big files.
    Write,
    /// Reads random blocks of 1 MiB of big files.
    Read,
    /// Asks for attributes.
    Stat,
    /// Removes trees.
    Rm,
    /// Makes and removes trees of 100 levels.
    Deep,
    /// Takes and removes snapshots, where there is a `.snap`.
    Snap,
}

impl Kind {
    /// All kinds, in the order in which they run.
    pub const ALL: [Kind; 8] =
        [Kind::Create, Kind::Small, Kind::Write, Kind::Read, Kind::Stat, Kind::Rm, Kind::Deep, Kind::Snap];

    /// Its name in output and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Create => "create",
            Kind::Small => "small",
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Stat => "stat",
            Kind::Rm => "rm",
            Kind::Deep => "deep",
            Kind::Snap => "snap",
        }
    }

    /// What it does, for the reader of a report.
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::Create => "creates empty files",
            Kind::Small => "writes files of 4 KiB",
            Kind::Write => "writes blocks of 1 MiB",
            Kind::Read => "reads blocks of 1 MiB",
            Kind::Stat => "asks for attributes of files",
            Kind::Rm => "rm -rf of trees",
            Kind::Deep => "makes and removes trees of 100 levels",
            Kind::Snap => "takes and removes snapshots",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The order to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Kind of the storm.
    pub kind: Kind,
    /// An empty directory that belongs to the storm's user.
    pub dir: PathBuf,
    /// Number of threads.
    pub threads: u64,
    /// Most bytes that all threads together may have stored.
    pub space_bytes: u64,
    /// Most files that all threads together may have.
    pub files: u64,
    /// User of the storm, if not the user of this process.
    pub identity: Option<Identity>,
}

/// Results of a storm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Did {
    /// Number of operations: files made, blocks written, and the like.
    pub ops: u64,
    /// Time that the storm lasted, in seconds.
    pub seconds: f64,
    /// Number of operations that failed.
    pub errors: u64,
    /// The errno of the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

/// A line that the child writes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    /// It is prepared.
    Ready,
    /// This storm is not possible here, with the reason.
    Cannot(String),
    /// The storm is over.
    Did(Did),
    /// The child has removed what it made.
    Clean,
}

/// A storm in the process of its caller. Dropping it ends the storm.
pub struct Storm {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<Line>,
}

impl Storm {
    /// Takes over a child that runs [`serve`], with standard input and output piped, and waits
    /// until it is prepared.
    ///
    /// # Errors
    /// The reason why this storm is not possible here.
    pub fn prepare(env: &Env, mut child: Child, stop: &Stop) -> Result<Storm, String> {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tell, said) = channel();
        env.spawn("lab-storm", move || {
            let lines = stdout.map(|out| BufReader::new(out).lines()).into_iter().flatten();
            for line in lines.map_while(Result::ok) {
                let Ok(line) = serde_json::from_str(&line) else { return };
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let storm = Storm { child, stdin, said };
        match storm.next_line(env, PREPARE_MAX, Some(stop)) {
            Some(Line::Ready) => Ok(storm),
            Some(Line::Cannot(why)) => Err(why),
            _ if stop.asked() => Err("stopped".into()),
            _ => Err(format!("it ended, or was not prepared within {} s", PREPARE_MAX.as_secs())),
        }
    }

    /// Lets the storm begin.
    pub fn begin(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            // A child that has died is noticed when the storm is ended.
            let _ = stdin.write_all(b"go\n").and_then(|()| stdin.flush());
        }
    }

    /// Ends the storm and waits until the child has cleaned up. Returns the results.
    pub fn end(mut self, env: &Env) -> Did {
        drop(self.stdin.take());
        let mut did = Did { errors: 1, first_error: Some("no answer".into()), ..Did::default() };
        while let Some(line) = self.next_line(env, CLEAN_MAX, None) {
            match line {
                Line::Did(told) => did = told,
                Line::Clean => break,
                _ => {}
            }
        }
        did
    }

    fn next_line(&self, env: &Env, patience: Duration, stop: Option<&Stop>) -> Option<Line> {
        let end = env.now() + patience.as_nanos() as u64;
        while env.now() < end && !stop.is_some_and(Stop::asked) {
            match self.said.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let env = Env::real();
        while let Some(line) = self.next_line(&env, CLEAN_MAX, None) {
            if matches!(line, Line::Clean) {
                break;
            }
        }
        // A child that has exited is only reaped; `kill` then has no effect that matters.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child: does what the order says until standard input ends.
///
/// # Errors
/// The caller cannot be reached any more.
pub fn serve(
    env: &Env,
    order: &Order,
    input: impl Read + Send + 'static,
    mut output: impl Write,
) -> io::Result<()> {
    let mut say = |line: &Line| {
        serde_json::to_writer(&mut output, line)?;
        output.write_all(b"\n").and_then(|()| output.flush())
    };
    if let Some(identity) = order.identity
        && let Err(e) = identity.take_on_this_thread()
    {
        let cause = text::cause(&e);
        return say(&Line::Cannot(format!("cannot act as user {}: {cause}; only root can", identity.uid)));
    }
    let stop = Stop::default();
    let begin = watch(env, input, &stop);
    let crew = match Crew::prepare(env, order, &stop) {
        Ok(crew) => crew,
        Err(why) => {
            clean(env, order);
            return say(&Line::Cannot(why));
        }
    };
    say(&Line::Ready)?;
    let did = if begin.recv().is_ok() { crew.storm() } else { Did::default() };
    let told = say(&Line::Did(did));
    clean(env, order);
    told.and_then(|()| say(&Line::Clean))
}

/// Reads standard input: a line means to begin, its end to stop.
fn watch(env: &Env, input: impl Read + Send + 'static, stop: &Stop) -> Receiver<()> {
    let (tell, begin) = channel();
    let stop = stop.clone();
    env.spawn("lab-order", move || {
        for _ in BufReader::new(input).lines().map_while(Result::ok) {
            // Only the first line is waited for.
            let _ = tell.send(());
        }
        stop.ask();
    });
    begin
}

/// Removes what the threads made. Each thread removes its own.
fn clean(env: &Env, order: &Order) {
    let remove = |thread| {
        let dir = thread_dir(&order.dir, thread);
        env.spawn("lab-clean", move || scratch::remove_tree(&dir))
    };
    let all: Vec<_> = (0..order.threads).map(remove).collect();
    for thread in all {
        // The caller, who made the directory, removes what is left here, or reports it.
        let _ = thread.join();
    }
}

fn thread_dir(dir: &Path, thread: u64) -> PathBuf {
    dir.join(format!("t{thread}"))
}

/// The work of prepared threads.
struct Crew {
    env: Env,
    stop: Stop,
    hands: Vec<Hand>,
}

impl Crew {
    fn prepare(env: &Env, order: &Order, stop: &Stop) -> Result<Crew, String> {
        let one = |thread| {
            let mut hand = Hand::new(order, thread);
            let stop = stop.clone();
            env.spawn("lab-prepare", move || hand.prepare(&stop).map(|()| hand))
        };
        let all: Vec<_> = (0..order.threads).map(one).collect();
        let joined = all.into_iter().map(|thread| match thread.join() {
            Ok(Ok(hand)) => Ok(hand),
            Ok(Err(e)) if e.raw_os_error().is_some() => {
                Err(format!("{} ({})", text::cause(&e), text::errno(&e)))
            }
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err("a thread panicked".into()),
        });
        // All threads are joined before any failure is reported: cleaning up must not race with
        // them.
        let joined: Vec<_> = joined.collect();
        let hands = joined.into_iter().collect::<Result<Vec<_>, String>>()?;
        Ok(Crew { env: env.clone(), stop: stop.clone(), hands })
    }

    fn storm(self) -> Did {
        let began = self.env.now();
        let stop = self.stop;
        let one = |mut hand: Hand| {
            let (env, stop) = (self.env.clone(), stop.clone());
            self.env.spawn("lab-storm", move || {
                let mut did = Did::default();
                // At least one step: on a busy machine a short storm is over before this thread
                // runs.
                let mut first = true;
                while std::mem::take(&mut first) || !stop.asked() {
                    match hand.step(&stop) {
                        Ok(ops) => did.ops += ops,
                        Err(e) => {
                            did.errors += 1;
                            did.first_error.get_or_insert_with(|| text::errno(&e));
                            // On a full or broken file system a thread must not fail in a loop at
                            // full speed.
                            stop.sleep(&env, Duration::from_millis(1));
                        }
                    }
                }
                did
            })
        };
        let all: Vec<_> = self.hands.into_iter().map(one).collect();
        let mut sum = Did::default();
        for did in all.into_iter().filter_map(|thread| thread.join().ok()) {
            sum.ops += did.ops;
            sum.errors += did.errors;
            sum.first_error = sum.first_error.or(did.first_error);
        }
        sum.seconds = (self.env.now() - began) as f64 / 1e9;
        sum
    }
}

/// One thread of a storm.
struct Hand {
    kind: Kind,
    dir: PathBuf,
    /// Most files that it may have at a time.
    files: u64,
    /// Most blocks that it may have stored at a time.
    blocks: u64,
    /// Number of steps done.
    step: u64,
    /// Trees that wait to be removed.
    trees: u64,
    big: Option<File>,
    content: Vec<u8>,
}

impl Hand {
    fn new(order: &Order, thread: u64) -> Hand {
        let threads = order.threads.max(1);
        let by_space = order.space_bytes / SMALL as u64 / 2;
        let content = match order.kind {
            Kind::Write | Kind::Read => noise(BLOCK, thread),
            Kind::Small => noise(SMALL, thread),
            _ => Vec::new(),
        };
        Hand {
            kind: order.kind,
            dir: thread_dir(&order.dir, thread),
            files: (order.files.min(by_space) / threads).max(1),
            blocks: (order.space_bytes / BLOCK as u64 / threads).clamp(1, 256),
            step: 0,
            trees: 0,
            big: None,
            content,
        }
    }

    fn prepare(&mut self, stop: &Stop) -> io::Result<()> {
        fs::create_dir(&self.dir)?;
        match self.kind {
            Kind::Write => self.big = Some(File::create(self.dir.join("big"))?),
            Kind::Read => self.prepare_big(stop)?,
            Kind::Stat => self.make_files(&self.dir, self.files.min(DIR_FILES), stop)?,
            Kind::Rm => {
                while self.trees < self.files.min(20 * DIR_FILES).div_ceil(DIR_FILES) && !stop.asked() {
                    self.make_tree(stop)?;
                }
            }
            Kind::Snap => {
                fs::metadata(self.dir.join(".snap"))
                    .map_err(|_| io::Error::other("there is no .snap here"))?;
                self.snap(0)?;
                fs::remove_dir(self.snap_dir(0))?;
            }
            Kind::Create | Kind::Small | Kind::Deep => {}
        }
        Ok(())
    }

    fn prepare_big(&mut self, stop: &Stop) -> io::Result<()> {
        let path = self.dir.join("big");
        let mut file = File::create(&path)?;
        self.blocks = self.blocks.min(64);
        for _ in 0..self.blocks {
            if stop.asked() {
                break;
            }
            file.write_all(&self.content)?;
        }
        file.sync_all()?;
        self.big = Some(File::open(&path)?);
        Ok(())
    }

    fn make_files(&self, dir: &Path, count: u64, stop: &Stop) -> io::Result<()> {
        (0..count)
            .take_while(|_| !stop.asked())
            .try_for_each(|i| File::create(dir.join(format!("f{i}"))).map(|_| ()))
    }

    fn make_tree(&mut self, stop: &Stop) -> io::Result<()> {
        let tree = self.dir.join(format!("tree{}", self.trees));
        fs::create_dir(&tree)?;
        self.trees += 1;
        for i in 0..10 {
            let dir = tree.join(format!("d{i}"));
            fs::create_dir(&dir)?;
            self.make_files(&dir, (self.files / 10).clamp(1, DIR_FILES / 10), stop)?;
        }
        Ok(())
    }

    /// Does one operation or a few. Returns how many.
    fn step(&mut self, stop: &Stop) -> io::Result<u64> {
        let step = self.step;
        self.step += 1;
        match self.kind {
            Kind::Create | Kind::Small => self.create(step),
            Kind::Write => self.write(step),
            Kind::Read => self.read(step),
            Kind::Stat => {
                let file = scatter(step) % self.files.min(DIR_FILES);
                sys::stat_fresh(&self.dir.join(format!("f{file}"))).map(|_| 1)
            }
            Kind::Rm => self.remove(stop),
            Kind::Deep => self.deep(step, stop),
            Kind::Snap => self.snap(step),
        }
    }

    /// Beyond the limit, a new file replaces the oldest.
    fn create(&self, step: u64) -> io::Result<u64> {
        if let Some(old) = step.checked_sub(self.files) {
            fs::remove_file(self.dir.join(format!("f{old}")))?;
        }
        File::create(self.dir.join(format!("f{step}")))?.write_all(&self.content)?;
        Ok(1)
    }

    fn write(&mut self, step: u64) -> io::Result<u64> {
        let Some(big) = &mut self.big else { return Ok(0) };
        if step.is_multiple_of(self.blocks) {
            big.set_len(0)?;
            big.rewind()?;
        }
        big.write_all(&self.content)?;
        Ok(1)
    }

    fn read(&mut self, step: u64) -> io::Result<u64> {
        let Some(big) = &self.big else { return Ok(0) };
        if step.is_multiple_of(self.blocks) {
            sys::forget_data(big);
        }
        big.read_exact_at(&mut self.content, scatter(step) % self.blocks * BLOCK as u64)?;
        Ok(1)
    }

    /// Removed files count as operations. If no tree is left, it makes one to remove.
    fn remove(&mut self, stop: &Stop) -> io::Result<u64> {
        if self.trees == 0 {
            self.make_tree(stop)?;
        }
        self.trees -= 1;
        scratch::remove_tree(&self.dir.join(format!("tree{}", self.trees)))?;
        Ok((self.files / 10).clamp(1, DIR_FILES / 10) * 10)
    }

    fn deep(&self, step: u64, stop: &Stop) -> io::Result<u64> {
        let root = self.dir.join(format!("deep{step}"));
        let mut dir = root.clone();
        let mut made = 0;
        for _ in 0..DEPTH.min(self.files as u32) {
            fs::create_dir(&dir)?;
            File::create(dir.join("f"))?;
            made += 2;
            dir.push("d");
            if stop.asked() {
                break;
            }
        }
        scratch::remove_tree(&root)?;
        Ok(made)
    }

    /// Takes a snapshot of a directory that changes, and removes an older one.
    fn snap(&self, step: u64) -> io::Result<u64> {
        if let Some(old) = step.checked_sub(SNAPSHOTS) {
            let gone = fs::remove_dir(self.snap_dir(old));
            gone.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
        }
        fs::write(self.dir.join("changes"), step.to_le_bytes())?;
        fs::create_dir(self.snap_dir(step))?;
        Ok(1)
    }

    fn snap_dir(&self, step: u64) -> PathBuf {
        self.dir.join(format!(".snap/lab{step}"))
    }
}

/// A number that looks random, but is the same in each run.
fn scatter(step: u64) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    fn order(kind: Kind, dir: &Path) -> Order {
        Order { kind, dir: dir.into(), threads: 2, space_bytes: 8 << 20, files: 400, identity: None }
    }

    /// The child's output, which its caller reads while it is written.
    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);
    impl Said {
        fn text(&self) -> String {
            String::from_utf8_lossy(&self.0.lock()).into_owned()
        }
    }
    impl Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The caller: waits until the child is ready, lets it begin, and ends it a little later.
    struct Short(Said, bool);
    impl Read for Short {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let env = Env::real();
            while !self.0.text().contains('\n') {
                env.sleep(Duration::from_millis(5));
            }
            if !std::mem::replace(&mut self.1, true) {
                buffer[..3].copy_from_slice(b"go\n");
                return Ok(3);
            }
            env.sleep(Duration::from_secs(1));
            Ok(0)
        }
    }

    fn served(kind: Kind, dir: &Path) -> String {
        let said = Said::default();
        serve(&Env::real(), &order(kind, dir), Short(said.clone(), false), said.clone()).expect("served");
        said.text()
    }

    #[test]
    fn each_storm_works_and_cleans_up() {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Snap) {
            let dir = tempfile::tempdir().expect("a directory");
            let said = served(kind, dir.path());
            let lines: Vec<Line> = said.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
            let [Line::Ready, Line::Did(did), Line::Clean] = lines.as_slice() else {
                panic!("{kind:?}: {said}")
            };
            assert!(did.ops > 0 && did.errors == 0, "{kind:?}: {did:?}");
            assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0, "{kind:?}");
        }
    }

    #[test]
    fn files_are_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut hand = Hand::new(&order(Kind::Create, dir.path()), 0);
        hand.prepare(&Stop::default()).expect("prepared");
        for _ in 0..1000 {
            hand.step(&Stop::default()).expect("step");
        }
        assert_eq!(fs::read_dir(&hand.dir).expect("list").count(), 200);
    }

    #[test]
    fn where_there_are_no_snapshots_it_says_so() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(served(Kind::Snap, dir.path()).contains("there is no .snap here"));
    }

    #[test]
    fn kinds_have_names() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
        }
        assert_eq!(Kind::named("hail"), None);
    }
}
