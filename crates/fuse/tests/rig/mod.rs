//! What the door's tests share: the in-memory file system mounted on a fresh directory, and file
//! systems that misbehave.
#![allow(dead_code, clippy::disallowed_methods)]

#[path = "../../examples/memfs/fs.rs"]
pub mod memfs;

use leeward_env::{Ctx, Env, Nanos, Wait};
use leeward_fs::{Engine, Error, Fs, NodeId, Op, Reply, Result, SetAttr, Turns, Watcher};
use leeward_fuse::{IoUring, Mount, Options, mount};
use leeward_vfs::locks::LockService;
use leeward_vfs::{Attempt, Backend, Gate, GateOptions};
use memfs::MemFs;
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds; false when it does not in good time.
pub fn eventually(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

const URING_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// What mounts turn on for the whole machine is as it was when the last of these is dropped.
pub struct Parameter(());

/// How many there are, and what was found.
static PARAMETER: Mutex<(usize, String)> = Mutex::new((0, String::new()));

impl Parameter {
    pub fn kept() -> Parameter {
        let mut all = PARAMETER.lock();
        if all.0 == 0 {
            all.1 = std::fs::read_to_string(URING_PARAMETER).unwrap_or_default();
        }
        all.0 += 1;
        Parameter(())
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        let mut all = PARAMETER.lock();
        all.0 -= 1;
        if all.0 == 0 && !all.1.is_empty() {
            let _ = std::fs::write(URING_PARAMETER, all.1.trim());
        }
    }
}

/// Whether the kernel has FUSE over io_uring, and lets this process use io_uring.
pub fn has_io_uring() -> bool {
    let mut parameters = [0u64; 16];
    // SAFETY: room for the kernel's structure of 120 bytes, all zeros.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, parameters.as_mut_ptr()) };
    if fd >= 0 {
        // SAFETY: a descriptor of our own.
        unsafe { libc::close(fd as i32) };
    }
    fd >= 0 && Path::new(URING_PARAMETER).exists()
}

/// A mounted file system; unmounted when dropped.
pub struct Rig {
    pub mem: Arc<MemFs>,
    pub mount: Mount,
    _dir: tempfile::TempDir,
    _parameter: Parameter,
}

/// A gate that answers for a cell on another machine.
#[derive(Clone)]
pub struct Remote(pub Gate);

impl Backend for Remote {
    fn run(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        self.0.run(ctx, op, answer);
    }

    fn run_in_part(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        self.0.run_in_part(ctx, op, answer);
    }

    fn run_all<R: Send + 'static>(
        &self,
        ctx: Ctx,
        like: (Op<'static>, u64),
        request: R,
        attempt: impl Fn(&Ctx, R) -> Attempt<R> + Send + 'static,
    ) {
        self.0.run_all(ctx, like, request, attempt);
    }

    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        self.0.call(ctx, op)
    }

    fn forget(&self, ctx: Ctx, node: NodeId, count: u64) {
        self.0.forget(ctx, node, count);
    }

    fn forget_all(&self, ctx: Ctx, all: &[(NodeId, u64)]) {
        self.0.forget_all(ctx, all);
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        Backend::watch(&self.0, watcher);
    }

    fn keep_names(&self) -> Duration {
        Duration::ZERO
    }

    fn keep_attr(&self, _: NodeId) -> Duration {
        Duration::ZERO
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn locks(&self) -> Option<Arc<dyn LockService>> {
        Backend::locks(&self.0)
    }

    fn reading_threads(&self) -> usize {
        self.0.reading_threads()
    }

    fn with_turns_asked_for(&self) -> Remote {
        Remote(self.0.with_turns_asked_for())
    }

    fn with_turns_elsewhere(&self) -> Remote {
        Remote(self.0.with_turns_elsewhere())
    }

    fn has_turns(&self) -> bool {
        self.0.has_turns()
    }

    fn take_turn(&self) -> bool {
        self.0.take_turn()
    }
}

/// Notes who changes what: users of writes and of changed modes.
pub struct Noting(pub Arc<MemFs>, pub Mutex<Vec<(&'static str, u32, u32)>>);

impl Fs for Noting {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        match op {
            Op::Write { .. } => self.1.lock().push(("write", ctx.uid, ctx.gid)),
            Op::SetAttr { set, .. } if set.mode.is_some() => self.1.lock().push(("mode", ctx.uid, ctx.gid)),
            _ => (),
        }
        self.0.call(ctx, op)
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.0.watch(watcher);
    }

    fn is_invalidating(&self) -> bool {
        self.0.is_invalidating()
    }

    fn wait_invalidated(&self) {
        self.0.wait_invalidated();
    }
}

impl Rig {
    /// `None`, with a note, where this machine or user cannot mount.
    pub fn new(wrap: impl FnOnce(Arc<MemFs>) -> Arc<dyn Engine>) -> Option<Rig> {
        Rig::over(IoUring::Auto, wrap)
    }

    /// The same with requests by a channel of the caller's choice.
    pub fn over(io_uring: IoUring, wrap: impl FnOnce(Arc<MemFs>) -> Arc<dyn Engine>) -> Option<Rig> {
        Rig::with(io_uring, wrap, |gate| gate)
    }

    /// The same with another backend before the gate.
    pub fn with<B: Backend>(
        io_uring: IoUring,
        wrap: impl FnOnce(Arc<MemFs>) -> Arc<dyn Engine>,
        before: impl FnOnce(Gate) -> B,
    ) -> Option<Rig> {
        let env = Env::real();
        let parameter = Parameter::kept();
        let dir = tempfile::tempdir().expect("a directory");
        let mem = Arc::new(MemFs::new(&env));
        let gate = before(Gate::new(wrap(mem.clone()), &env, GateOptions::usual()));
        let options = Options { io_uring, ..Options::new(Path::new("test")) };
        match mount(gate, &env, dir.path(), options) {
            Ok(mount) => Some(Rig { mem, mount, _dir: dir, _parameter: parameter }),
            Err(e) => {
                assert!(std::env::var_os("LEEWARD_NEEDS_FUSE").is_none(), "{e}");
                eprintln!("skipped: {e}");
                None
            }
        }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.mount.at().join(name)
    }
}

/// Looks up a file, and gives it all rights before that is answered: the answer is older than what
/// is announced before it.
pub struct Overtaken(pub Arc<MemFs>);

impl Fs for Overtaken {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let reply = self.0.call(ctx, op);
        if let (Op::Lookup { .. }, Ok(Reply::Attr(attr))) = (op, &reply)
            && let Some(watcher) = self.0.watcher()
        {
            let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
            self.0.call(ctx, Op::SetAttr { node: attr.node, set })?;
            watcher.inode_changed(attr.node);
            watcher.wait_applied();
        }
        reply
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.0.watch(watcher);
    }

    fn is_invalidating(&self) -> bool {
        self.0.is_invalidating()
    }

    fn wait_invalidated(&self) {
        self.0.wait_invalidated();
    }
}

/// So many files to be made exist, each for a moment.
pub struct Fleeting(pub Arc<MemFs>, pub AtomicUsize);

impl Fs for Fleeting {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let is_left = |left: usize| left.checked_sub(1);
        match op {
            Op::Make { .. } if self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left).is_ok() => {
                Err(Error::Exists)
            }
            op => self.0.call(ctx, op),
        }
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.0.watch(watcher);
    }

    fn is_invalidating(&self) -> bool {
        self.0.is_invalidating()
    }

    fn wait_invalidated(&self) {
        self.0.wait_invalidated();
    }
}

/// Answers `WouldBlock` to everything that may not wait.
pub struct Reluctant(pub Arc<MemFs>);

impl Fs for Reluctant {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        match ctx.wait {
            Wait::Never => Err(Error::WouldBlock),
            Wait::Allowed => self.0.call(ctx, op),
        }
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.0.watch(watcher);
    }

    fn is_invalidating(&self) -> bool {
        self.0.is_invalidating()
    }

    fn wait_invalidated(&self) {
        self.0.wait_invalidated();
    }
}

/// Panics when asked to make or remove what is called `panic`; on the pool when called
/// `panic-later`.
pub struct Fragile(pub Arc<MemFs>);

impl Fs for Fragile {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        match (op, ctx.wait) {
            (Op::Make { name: b"panic", .. } | Op::List { .. }, _) => panic!("as asked"),
            (Op::Make { name: b"panic-later", .. }, Wait::Never) => Err(Error::WouldBlock),
            (Op::Make { name: b"panic-later", .. }, Wait::Allowed) => panic!("later, as asked"),
            (op, _) => self.0.call(ctx, op),
        }
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.0.watch(watcher);
    }

    fn is_invalidating(&self) -> bool {
        self.0.is_invalidating()
    }

    fn wait_invalidated(&self) {
        self.0.wait_invalidated();
    }
}

/// File systems without work in the background.
macro_rules! engines {
    ($($name:ty),*) => {$(
        impl Engine for $name {
            fn users_ask(&self, _: Nanos) {}

            fn users_share(&self, _: Nanos) {}

            fn give_turns(&self, _: Arc<dyn Turns>) {}
        }
    )*};
}

engines!(Reluctant, Fragile, Gated, Noting, Overtaken, Fleeting);

/// Waits for everything; and user 1000's fsync waits until it is let go.
pub struct Gated {
    pub mem: Reluctant,
    pub gate: Arc<Latch>,
}

/// Where those who fsync wait, and how many do.
#[derive(Default)]
pub struct Latch {
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Latch {
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock();
        while !*open {
            self.opened.wait(&mut open);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fs for Gated {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        if matches!(op, Op::Fsync { .. }) && ctx.uid == 1000 {
            self.gate.pass();
        }
        self.mem.call(ctx, op)
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.mem.watch(watcher);
    }

    fn is_invalidating(&self) -> bool {
        self.mem.is_invalidating()
    }

    fn wait_invalidated(&self) {
        self.mem.wait_invalidated();
    }
}
