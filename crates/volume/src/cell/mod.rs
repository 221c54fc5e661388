//! A cell: one installation on one directory or in one bucket, with its threads.
//!
//! `DIR/cell` identifies it; `DIR/meta` holds the metadata engine, `DIR/data` the segments.
//! [`crate::remote`] has the same for a bucket.

pub(crate) mod engines;
pub(crate) mod identity;
pub(crate) mod kept_identity;
pub(crate) mod turns;

use crate::Config;
use crate::admin::figures::Figures;
use crate::admin::{AnyReply, AnyRequest, Caller, Concerns, Failure, Progress, Request};
pub use crate::cell::engines::first_batch_of_shard;
use crate::cell::engines::{META, open_engine, place_of};
use crate::cell::identity::Identity;
pub(crate) use crate::cell::identity::failure;
use crate::cell::kept_identity::KeptIdentity;
use crate::clock::STORE_SECS;
use crate::format::attached::AttachedRecord;
use crate::format::backups::BackupsRecord;
use crate::format::buckets::{BucketRecord, Buckets};
use crate::format::each;
use crate::format::events::LogHead;
use crate::format::inode::{
    Body, Counters, Inode, Openings, Pair, PoolRecord, Properties, SegmentRecord, SnapshotRecord, Stats,
    VolumeRecord,
};
use crate::format::keys::{self, Table};
use crate::format::mirrors::MirrorsRecord;
use crate::format::samples::Sampling;
use crate::format::schedule::ScheduleRecord;
use crate::format::scrub::Reached;
use crate::format::scrub::ScrubRecord;
use crate::format::stored::Stored;
use crate::format::versions::{FORMAT, FORMAT_KEPT};
use crate::pools::stores::{self, Stores};
use crate::pools::{Opener, Pools};
use crate::shard::Shard;
use crate::state::State;
use crate::state::quota::{Quota, QuotaOf};
use crate::state::receiving::Ending;
use crate::state::segments::Segments;
use crate::state::snapshots::Tally;
use crate::state::uploads::Uploads;
use crate::state::which::WhichShard;
use leeward_data::{Catalog, DataLog, PoolId, SegmentInfo};
use leeward_env::disk::held::{HeldDir, sync_names};
use leeward_env::disk::real::RealDisk;
use leeward_env::{Activity, Ctx, Env, FileLock, Flow, Nanos, Wait, panic_text};
use leeward_fs::accounts::Accounts;
use leeward_fs::flows::{FlowRecord, FlowSettings};
use leeward_fs::leases::Leases;
use leeward_fs::sessions::{SessionRecord, Sessions};
use leeward_fs::shards::Shards;
use leeward_fs::{Engine, Error, Fs, InodeFlags, Kind, NodeId, Op, Reply, Result, Time, Turns, Watcher};
use leeward_meta::{Batch, InlineData, Kv, Moment};
use leeward_pool::{CountedStore, DirStore, GatedStore, Store};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The id of a cell without a directory, as in tests.
const NO_ID: &str = "00000000000000000000000000000000";
/// Names that may be in a directory before it becomes a cell.
const OTHERS: [&str; 5] = ["leeward.toml", "lock", "control.sock", "log", "mnt"];
/// Directories that only a cell has.
const PARTS: [&str; 2] = ["meta", "data"];
/// Tries for the lock of a cell that another process may be probing, and the time between them.
const LOCK_TRIES: u32 = 25;
const LOCK_STEP: Duration = Duration::from_millis(10);

/// How often a store that is away is tried when the cell is closed.
const AWAY_STEP: Duration = Duration::from_secs(1);
/// Longest sleep of the publishing thread; it is woken when there is something to publish.
const PUBLISH_LOOK: Duration = Duration::from_secs(60);
/// Segments whose inline data is in memory at a time when a cell is opened: at most 16 MiB each.
const RESTORED_AT_ONCE: usize = 4;
/// Turns of the maintenance thread without a commit (a commit thread wakes it several times a
/// second) that count as idle.
const IDLE_TURNS: u64 = 20;

/// A running cell. Only one process has a cell in a directory open at a time: `meta` is locked.
pub struct Cell {
    /// The first shard, which has the tables of the cell.
    pub(crate) shard: Arc<Shard>,
    /// The others, in order.
    others: Vec<Arc<Shard>>,
    /// Changes up to this number were said to be durable.
    pub(crate) durable: AtomicU64,
    /// The background threads are to end.
    closing: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held as long as this process owns the cache on disk.
    pub(crate) cache_lock: Arc<Mutex<Option<FileLock>>>,
    /// Held as long as this process owns a cell in a directory.
    dir_lock: Mutex<Option<FileLock>>,
}

/// How a cell is opened.
pub(crate) struct Start<'a> {
    /// 32 hex digits, which the labels of stores have.
    pub id: &'a str,
    /// In which records are written.
    pub format: u32,
    /// Opens the stores of pools.
    pub opener: Arc<dyn Opener>,
    /// Of each pool.
    pub put_threads: usize,
}

impl Cell {
    /// Makes a new cell in an existing, empty directory (files of the caller's, such as
    /// `leeward.toml` and `lock`, do not count). Its root belongs to the calling user. Nothing that
    /// exists is removed.
    pub fn create(env: &Env, dir: &Path, config: &Config) -> std::result::Result<(), Failure> {
        Self::create_in_dir(env, &hold(dir)?, config)
    }

    /// Makes a new cell in a directory that is held.
    pub fn create_in_dir(env: &Env, dir: &HeldDir, config: &Config) -> std::result::Result<(), Failure> {
        let at = |e: std::io::Error| Failure {
            message: format!("cannot make a cell in {}: {e}", dir.name().display()),
            errno: e.raw_os_error().unwrap_or(0),
        };
        let begun = Self::check_new(dir)?;
        // this file, written before the rest, says that the rest is ours
        match begun {
            true => identity::begin_again(dir)?,
            false => identity::begin(dir, &Identity::new(env))?,
        }
        for part in PARTS {
            match std::fs::DirBuilder::new().mode(0o700).create(dir.path().join(part)) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(at(e)),
                _ => {}
            }
        }
        let named = |e: leeward_meta::Error| failure(format!("{}: {e}", dir.name().display()));
        let _lock = lock(env, dir)?;
        let kv = open_engine(env, dir, META, config, FORMAT).map_err(named)?;
        if kv.get(&keys::cell()).map_err(named)?.is_none() {
            kv.commit(&first_batch_of_caller(env))
                .map_err(|e| failure(format!("cannot write to {}: {e}", dir.name().display())))?;
        }
        drop(kv);
        // the identity comes last: a directory with it is a whole cell
        identity::finish(dir)?;
        sync_names(dir.path()).map_err(at)
    }

    /// Whether a cell may be made in this directory: it is empty, except for files of the caller's,
    /// or an earlier creation was interrupted there: then the result is `true`.
    fn check_new(dir: &HeldDir) -> std::result::Result<bool, Failure> {
        let name = dir.name().display();
        if Self::exists(dir.path()) {
            return Err(failure(format!("{name} already holds a cell")));
        }
        let at = |e: std::io::Error| Failure {
            message: format!("cannot make a cell in {name}: {e}"),
            errno: e.raw_os_error().unwrap_or(0),
        };
        let begun = identity::is_begun(dir);
        for entry in std::fs::read_dir(dir.path()).map_err(at)? {
            let other = entry.map_err(at)?.file_name();
            let is_part = PARTS.iter().any(|part| other == *part);
            let ours = OTHERS.iter().any(|o| other == *o)
                || begun && (other == identity::NEW || is_part)
                || other == identity::NEW && is_blank_file(&dir.path().join(&other));
            if is_part && !begun {
                return Err(failure(parts_without_identity(&name.to_string(), &other.to_string_lossy())));
            }
            if !ours {
                let other = other.display();
                return Err(failure(format!(
                    "{name} is not a cell and not empty ({other} is in it): name an empty or a new directory"
                )));
            }
        }
        // nothing was ever stored in a cell whose creation was interrupted
        let stored = std::fs::read_dir(dir.path().join("data")).is_ok_and(|mut found| found.next().is_some());
        if stored {
            return Err(failure(parts_without_identity(&name.to_string(), "data")));
        }
        Ok(begun)
    }

    /// Whether the directory holds a cell.
    pub fn exists(dir: &Path) -> bool {
        dir.join(identity::NAME).is_file()
    }

    /// Refuses a directory that neither is a cell nor can become one. Changes nothing.
    pub fn check_place(dir: &Path) -> std::result::Result<(), Failure> {
        if Self::exists(dir) { Ok(()) } else { Self::check_new(&hold(dir)?).map(drop) }
    }

    /// Opens a cell and starts its threads.
    pub fn open(env: &Env, dir: &Path, config: &Config) -> std::result::Result<Arc<Cell>, Failure> {
        Self::open_in_dir(env, &hold(dir)?, config)
    }

    /// Opens a cell in a directory that is held: whatever happens to its path, the cell stays in
    /// it.
    pub fn open_in_dir(env: &Env, dir: &HeldDir, config: &Config) -> std::result::Result<Arc<Cell>, Failure> {
        identity::check(dir)?;
        let at = |e: Error| Failure {
            message: format!("cannot open the cell in {}: {e}", dir.name().display()),
            errno: e.errno(),
        };
        let lock = lock(env, dir)?;
        // again: whoever had the cell may have raised its format
        let identity = identity::check(dir)?;
        let config = &config.of_shards(identity.shards);
        let mut kvs: Vec<Box<dyn Kv>> = Vec::new();
        for shard in 0..identity.shards {
            let place = place_of(shard);
            let kv = open_engine(env, dir, &place, config, identity.format).map_err(|e| at(e.into()))?;
            kvs.push(Box::new(kv));
        }
        // nothing is written before that older programs would not understand
        let id = identity.id.clone();
        let held = dir.again().map_err(|e| at(leeward_meta::Error::from(e).into()))?;
        let mut kept = KeptIdentity::Dir(held, identity);
        let format = kept.raise(FORMAT_KEPT)?;
        let disk = RealDisk::open(dir.path()).map_err(|e| at(leeward_meta::Error::from(e).into()))?;
        let store: Arc<dyn Store> = Arc::new(DirStore::new(Arc::new(disk), "data"));
        let put_threads = stores::put_threads(false);
        let start = Start { id: &id, format, opener: Arc::new(Stores), put_threads };
        let cell = Self::start_threads(env, kvs, store, config, start).map_err(at)?;
        *cell.shard.identity.lock() = kept;
        *cell.dir_lock.lock() = Some(lock);
        cell.use_disk_cache(&id, false);
        Ok(cell)
    }

    /// A cell on any engine and store; in a simulated environment no threads run, and
    /// [`Cell::step`] does their work.
    pub fn start(env: &Env, kv: Box<dyn Kv>, store: Arc<dyn Store>, config: &Config) -> Result<Arc<Cell>> {
        Self::start_with(env, kv, store, config, (NO_ID, Arc::new(Stores)))
    }

    /// A cell with this id (32 hex digits, which the labels of stores have) and another way to open
    /// the stores of pools.
    pub fn start_with(
        env: &Env,
        kv: Box<dyn Kv>,
        store: Arc<dyn Store>,
        config: &Config,
        (id, opener): (&str, Arc<dyn Opener>),
    ) -> Result<Arc<Cell>> {
        let start = Start { id, format: FORMAT, opener, put_threads: stores::put_threads(false) };
        Self::start_threads(env, vec![kv], store, config, start)
    }

    /// A cell of a shard on each of these engines, in order.
    pub fn start_shards(
        env: &Env,
        kvs: Vec<Box<dyn Kv>>,
        store: Arc<dyn Store>,
        config: &Config,
    ) -> Result<Arc<Cell>> {
        let put_threads = stores::put_threads(false);
        let start = Start { id: NO_ID, format: FORMAT, opener: Arc::new(Stores), put_threads };
        let config = &config.of_shards(kvs.len());
        Self::start_threads(env, kvs, store, config, start)
    }

    /// A cell that is opened in this way, with its threads.
    pub(crate) fn start_threads(
        env: &Env,
        kvs: Vec<Box<dyn Kv>>,
        store: Arc<dyn Store>,
        config: &Config,
        Start { id, format, opener, put_threads }: Start<'_>,
    ) -> Result<Arc<Cell>> {
        let begun = env.now();
        let parts = load_all(env, kvs, format)?;
        let loaded = env.now();
        let options = leeward_data::Options {
            compression: match config.compression {
                crate::config::Compression::Lz4 => leeward_data::Compression::Lz4,
                crate::config::Compression::None => leeward_data::Compression::None,
            },
            dirty_bytes: (config.dirty_mib as usize) << 20,
            cache_bytes: (config.cache_mib as usize) << 20,
            put_threads: if env.is_sim() { 0 } else { put_threads },
            ..leeward_data::Options::default()
        };
        let gate = GatedStore::new(env, store.clone(), store.slice_bytes(), Arc::default(), config.fair);
        let gate = Arc::new(gate.at_most(config.store_transfers as usize));
        let store: Arc<dyn Store> = gate.clone();
        let (leases, naming) = (Leases::new(env), Arc::<Mutex<()>>::default());
        let make = |(kv, mut state): (Box<dyn Kv>, State)| {
            state.snapshots.begin_views(env.wall(), state.which.views());
            let store = Arc::new(CountedStore::new(env, store.clone()));
            let log = DataLog::new(env.clone(), store.clone(), options);
            let pools = Pools::new(env, id, store, opener.clone(), (gate.activity().clone(), config));
            let common = (pools, gate.clone(), leases.clone(), naming.clone());
            let shard = Shard::new(env.clone(), config.clone(), kv, log, common, state);
            let catalog: Weak<dyn Catalog> = Arc::downgrade(&(shard.clone() as Arc<dyn Catalog>));
            shard.log.attach(catalog);
            shard
        };
        let shards: Vec<Arc<Shard>> = parts.into_iter().map(make).collect();
        shards.iter().for_each(|shard| shard.knows_of(&shards));
        shards.iter().try_for_each(|shard| shard.recover().map_err(|e| naming_damage(&*shard.kv, e)))?;
        shards.iter().for_each(|shard| shard.drop_names_of_gone());
        shards.iter().for_each(|shard| shard.complete_names());
        let millis = |from: u64, to: u64| (to - from) / 1_000_000;
        let (read, recovered) = (millis(begun, loaded), millis(loaded, env.now()));
        tracing::info!(
            "opened in {} ms: tables read in {read}, the rest recovered in {recovered}",
            read + recovered
        );
        let mut shards = shards.into_iter();
        let cell = Arc::new(Cell {
            shard: shards.next().ok_or_else(|| Error::Io("a cell without a shard".into()))?,
            others: shards.collect(),
            durable: AtomicU64::new(0),
            closing: Arc::default(),
            threads: Mutex::default(),
            cache_lock: Arc::default(),
            dir_lock: Mutex::default(),
        });
        if !env.is_sim() {
            cell.shards().for_each(|shard| cell.spawn_all(shard));
        }
        Ok(cell)
    }

    /// All shards, in order.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Arc<Shard>> {
        std::iter::once(&self.shard).chain(&self.others)
    }

    /// The shard that has an inode.
    pub(crate) fn shard_of(&self, node: NodeId) -> &Arc<Shard> {
        self.shards().find(|shard| shard.which.has(node)).unwrap_or(&self.shard)
    }

    /// The shard that has the volume of this name; the first, if there is none.
    pub(crate) fn shard_of_named(&self, volume: &str) -> &Arc<Shard> {
        self.shards().find(|shard| shard.lock().volume_named(volume).is_some()).unwrap_or(&self.shard)
    }

    /// The shard that has a volume.
    fn shard_of_volume(&self, volume: u32) -> &Arc<Shard> {
        self.shard_of(NodeId::new(volume, 1))
    }

    fn spawn_all(&self, shard: &Arc<Shard>) {
        let turns: [(&str, Turn); 6] = [
            ("commit", Shard::commit_turn),
            ("publish", Shard::publish_turn),
            ("upkeep", Shard::upkeep_turn),
            ("maintain", Shard::maintain_turn),
            ("pools", Shard::pool_repair_turn),
            ("scrub", Shard::scrub_turn),
        ];
        for (name, turn) in turns {
            let thread = self.start_thread(shard, name, turn);
            self.threads.lock().push(thread);
        }
        // a listing may take minutes: closing does not wait for it
        drop(self.start_thread(shard, "search", Shard::search_turn));
    }

    fn start_thread(&self, shard: &Arc<Shard>, name: &str, turn: Turn) -> JoinHandle<()> {
        let (shard, closing) = (shard.clone(), self.closing.clone());
        let who = name.to_string();
        let run = move || {
            while !closing.load(Ordering::Acquire) {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| turn(&shard))) {
                    shard.break_down(&format!("the thread {who} panicked: {}", panic_text(&*panic)));
                    return;
                }
            }
        };
        self.shard.env.spawn(name, run)
    }

    /// In simulations: what the threads would do next. `true` when there was something to do.
    pub fn step(&self) -> Result<bool> {
        let mut did = false;
        for shard in self.shards() {
            for step in STEPS {
                did |= step(shard)?;
            }
        }
        Ok(did)
    }

    /// In simulations: one part of [`Cell::step`], as threads do them in any order.
    pub fn step_one(&self, choice: u64) -> Result<bool> {
        self.chosen(&STEPS, choice)
    }

    /// In simulations: what other threads may do at any moment, while this one waits for a store:
    /// commit, fold statistics, move records to the tables, and (as an fsync does) commit content
    /// that need not wait.
    pub fn step_other_threads(&self, choice: u64) -> Result<bool> {
        const BESIDE: [Step; 4] =
            [Shard::fold_step, Shard::commit_step, Shard::engine_step, Shard::inline_step];
        self.chosen(&BESIDE, choice)
    }

    fn chosen(&self, steps: &[Step], choice: u64) -> Result<bool> {
        let all = steps.len() as u64;
        let shards = 1 + self.others.len() as u64;
        let shard = self.shards().nth((choice / all % shards) as usize).unwrap_or(&self.shard);
        steps[(choice % all) as usize](shard)
    }

    /// The format in which records are written.
    pub fn format(&self) -> u32 {
        self.shard.lock().format
    }

    /// Where front ends report requests of users.
    pub fn activity(&self) -> &Arc<Activity> {
        self.shard.gate.activity()
    }

    /// Runs a request of an operator, in the name of the system.
    pub fn admin<R: Request>(
        &self,
        request: &R,
        progress: &mut dyn FnMut(Progress),
    ) -> std::result::Result<R::Reply, Failure> {
        self.admin_as(&Ctx::system(), request, progress)
    }

    /// Runs a request in the name of a user. Requests about snapshots and recycle bins check what
    /// the user may.
    pub fn admin_as<R: Request>(
        &self,
        ctx: &Ctx,
        request: &R,
        progress: &mut dyn FnMut(Progress),
    ) -> std::result::Result<R::Reply, Failure> {
        self.note_request(ctx, &request.clone().into());
        let reply = self.run(request, &mut Caller { ctx, progress });
        self.shards().for_each(|shard| shard.wait_applied());
        reply
    }

    /// [`Cell::admin_as`] for a request that came over the control socket.
    pub fn admin_any(
        &self,
        ctx: &Ctx,
        request: &AnyRequest,
        progress: &mut dyn FnMut(Progress),
    ) -> std::result::Result<AnyReply, Failure> {
        self.note_request(ctx, request);
        let reply = request.run(self, &mut Caller { ctx, progress });
        // the caller finds the change in the mounted tree
        self.shards().for_each(|shard| shard.wait_applied());
        reply
    }

    /// Notes who asks. It is durable before what another shard changes is.
    fn note_request(&self, ctx: &Ctx, request: &AnyRequest) {
        self.shard.note_request(ctx, request);
        if !self.others.is_empty()
            && request.is_noted()
            && let Err(e) = self.shard.commit_now(&Ctx::system())
        {
            tracing::warn!("who asked for {} is not noted yet: {e}", request.name());
        }
    }

    /// Runs a request where it belongs.
    pub(crate) fn run<R: Request>(
        &self,
        request: &R,
        caller: &mut Caller<'_>,
    ) -> std::result::Result<R::Reply, Failure> {
        if self.others.is_empty() {
            return request.run(&self.shard, caller);
        }
        match request.concerns() {
            Concerns::Cell => request.run(&self.shard, caller),
            Concerns::Path(path) => {
                let node = self.shard.resolve_near(path);
                request.run(self.shard_of(node), caller)
            }
            Concerns::Volume(name) => request.run(self.shard_of_named(name), caller),
            Concerns::All => {
                let mut all = request.run(&self.shard, caller)?;
                for shard in &self.others {
                    R::add(&mut all, request.run(shard, caller)?);
                }
                Ok(all)
            }
        }
    }

    /// Counts of the cell since it was opened, and its current state.
    pub fn figures(&self) -> Figures {
        let mut figures = self.shard.figures();
        self.others.iter().for_each(|shard| figures.add(shard.figures()));
        figures
    }

    /// Names of those of these volumes that there are.
    pub fn volume_names(&self, of: impl IntoIterator<Item = u32>) -> BTreeMap<u32, String> {
        let of: Vec<u32> = of.into_iter().collect();
        self.shards().flat_map(|shard| shard.volume_names(of.iter().copied())).collect()
    }

    /// The owner of a volume that is not being removed.
    pub fn volume_owner(&self, volume: u32) -> Option<u32> {
        let shard = self.shard_of_volume(volume);
        shard.lock().volumes.get(&volume).filter(|v| !v.removing).map(|v| v.uid)
    }

    /// Whether there are projects.
    pub fn has_projects(&self) -> bool {
        self.shard.lock().projects.count() > 0
    }

    /// Whether the caller looks after the project of a volume.
    pub fn looks_after(&self, ctx: &Ctx, volume: u32) -> bool {
        self.shard.looks_after(ctx, volume)
    }

    /// Numbers of the volumes in projects that the caller looks after.
    pub fn volumes_looked_after(&self, ctx: &Ctx) -> Vec<u32> {
        self.shard.lock().projects.volumes_of(ctx).collect()
    }

    /// Numbers of the projects that the caller looks after.
    pub fn projects_looked_after(&self, ctx: &Ctx) -> Vec<u32> {
        let st = self.shard.lock();
        st.projects.iter().map(|(id, _)| id).filter(|id| st.projects.is_owner(ctx, Some(*id))).collect()
    }

    /// The name of the project of a volume.
    pub fn project_of(&self, volume: u32) -> Option<String> {
        self.shard.project_name_of(volume)
    }

    /// What is at a path, outside of snapshots; `Err`: the last on the way that is there.
    pub fn nearest(&self, path: &str) -> std::result::Result<NodeId, NodeId> {
        self.shard.nearest(path)
    }

    /// The number of a volume.
    pub fn volume_named(&self, name: &str) -> Option<u32> {
        self.shards().find_map(|shard| shard.lock().volume_named(name))
    }

    /// Numbers of the volumes of a user, without those that are being removed.
    pub fn volumes_of(&self, uid: u32) -> Vec<u32> {
        let of_shard = |shard: &Arc<Shard>| {
            let st = shard.lock();
            let his = st.volumes.iter().filter(|(_, v)| v.uid == uid && !v.removing);
            his.map(|(id, _)| *id).collect::<Vec<u32>>()
        };
        self.shards().flat_map(of_shard).collect()
    }

    /// The volume whose event log tells of a path, which need not be there any more.
    pub fn volume_of_events(&self, path: &str) -> Option<u32> {
        let shard = self.shard_of(self.shard.resolve_near(path));
        shard.place_of_events(path).ok().map(|place| place.volume)
    }

    /// Settings for users and groups at the gate.
    pub fn flow_settings(&self) -> FlowSettings {
        self.shard.flow_settings()
    }

    /// The current buckets of the S3 door.
    pub fn buckets(&self) -> Arc<Buckets> {
        self.shard.buckets()
    }

    /// The current users, keys and hosts.
    pub fn accounts(&self) -> Arc<Accounts> {
        self.shard.accounts()
    }

    /// Uploads in parts.
    pub fn uploads(&self) -> Arc<Uploads> {
        self.shard.lock().uploads.clone()
    }

    /// Makes sure that there is a key to sign tokens with; durable when this returns.
    /// [`Cell::accounts`] has it then.
    ///
    /// # Errors
    /// When it cannot be made durable.
    pub fn prepare_tokens(&self) -> std::result::Result<(), Failure> {
        self.shard.prepare_tokens()
    }

    /// Makes sure that the cell has a key pair of its own; durable when this returns.
    /// [`Cell::accounts`] has it then.
    ///
    /// # Errors
    /// When it cannot be made durable.
    pub fn prepare_identity(&self) -> std::result::Result<(), Failure> {
        self.shard.prepare_identity()
    }

    /// Makes `key`, an Ed25519 public key, that of the host whose invitation has this secret, and
    /// uses the invitation up. Returns the name of the host. Durable when this returns;
    /// [`Cell::accounts`] has it then. The host's former key is not valid any more.
    ///
    /// # Errors
    /// `EACCES`, with one text, when no invitation has this secret: it was never made, was used,
    /// has expired, or its host was removed. `EEXIST` when another host has the key. When it cannot
    /// be made durable: then the invitation may be used up or not.
    pub fn enrol_host(&self, secret: &[u8; 16], key: [u8; 32]) -> std::result::Result<String, Failure> {
        self.shard.enrol_host(secret, key)
    }

    /// Bytes in memory that are not stored yet, by flow.
    pub fn dirty_bytes(&self) -> Vec<(Flow, u64)> {
        let mut sums: BTreeMap<Flow, u64> = BTreeMap::new();
        for (flow, bytes) in self.shards().flat_map(|shard| shard.log.dirty_by_flow()) {
            *sums.entry(flow).or_default() += bytes;
        }
        sums.into_iter().collect()
    }

    /// One path of an inode in the cell; `None` when it has none.
    pub fn path_of(&self, node: NodeId) -> Option<String> {
        self.shard_of(node).path_of(node)
    }

    /// Why the cell can no longer be used, if another process has taken it over.
    pub fn lost(&self) -> Option<String> {
        self.shards().find_map(|shard| shard.kv.lost())
    }

    /// Waits for a store that is away: nothing in memory is dropped because of it.
    fn close_log(&self, shard: &Shard) -> leeward_data::Result<()> {
        loop {
            match shard.log.close() {
                Err(leeward_data::Error::Store(e)) if e.is_passing() && self.lost().is_none() => {
                    tracing::warn!("{e}; closing waits for it");
                    shard.env.sleep(AWAY_STEP);
                }
                other => return other,
            }
        }
    }

    /// Makes everything durable and ends the threads: all that operations have answered. Later
    /// calls fail. Idempotent. A cell that was lost is only left.
    pub fn close(&self) -> std::result::Result<(), Failure> {
        if !self.shard.calls.close() {
            return Ok(());
        }
        self.shards().for_each(|shard| shard.end_streams(None, Ending::AtOnce, || self.lost().is_some()));
        // what they may wait for still works
        self.shard.calls.wait(&self.shard.env, || self.lost().is_some());
        *self.shard.identity.lock() = KeptIdentity::Closed;
        self.end_threads();
        if let Some(why) = self.lost() {
            return Err(failure(format!("{why}; what was not fsynced in the last second may be lost")));
        }
        let stored = self.shards().map(|shard| self.store_all(shard)).fold(Ok(()), Result::and);
        let left = if stored.is_ok() { self.leave_sessions() } else { Ok(()) };
        let committed = self.shards().map(|shard| shard.commit_if_dirty()).fold(left, Result::and);
        let failed = |what: &str, e: Error| Failure {
            message: format!(
                "{what} could not be stored: {e}; what was not fsynced in the last second may be lost"
            ),
            errno: e.errno(),
        };
        if let Some(why) = self.shards().find_map(|shard| shard.broken()) {
            self.dir_lock.lock().take();
            return Err(failure(format!("{why}; what was not fsynced before may be lost")));
        }
        let closed = self.shards().map(|shard| shard.kv.close()).fold(Ok(()), std::result::Result::and);
        self.dir_lock.lock().take();
        stored.map_err(|e| failed("file data", e))?;
        committed.map_err(|e| failed("metadata", e))?;
        if let Err(e) = closed {
            tracing::warn!("the metadata journal is left to the next opening: {e}");
        }
        Ok(())
    }

    fn end_threads(&self) {
        self.closing.store(true, Ordering::Release);
        for shard in self.shards() {
            shard.committer.wake();
            shard.committer.unpublished.wake();
            shard.upkeep.wake();
            shard.maintenance.wake();
            shard.pool_repair.wake();
            shard.scrubbing.end();
            shard.search.wake();
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread ended by a panic");
            }
        }
    }

    /// All data of a shard that is closing is stored, and in its records.
    fn store_all(&self, shard: &Shard) -> Result<()> {
        shard.watch_clock(0);
        self.close_log(shard)?;
        shard.apply_stored()
    }

    /// Everything is durable, so the next process need not wait for clients, which come back for
    /// the inodes that their programs have open; if it did not wait for them after a crash before.
    fn leave_sessions(&self) -> Result<()> {
        if self.shard.lock().sessions.are_awaited() {
            return Ok(());
        }
        let here = self.sessions().into_iter().filter(|session| !session.away);
        here.map(|session| SessionRecord { away: true, ..session })
            .try_for_each(|session| self.store_session(&session))
    }

    /// Problems that an operator must look at.
    pub fn troubles(&self) -> Vec<Trouble> {
        let of_shard = |shard: &Arc<Shard>| {
            let broken = shard.broken().map(Trouble::Broken);
            broken.into_iter().chain(shard.log.failing().map(Trouble::Failing))
        };
        self.shards().flat_map(of_shard).collect()
    }
}

/// A problem that an operator must look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing can be changed any more; why.
    Broken(String),
    /// Written data does not reach the disk; why.
    Failing(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Broken(why) => write!(
                f,
                "nothing can be changed any more: {why}: repair what is below, then lee down and lee up"
            ),
            Trouble::Failing(why) => write!(f, "what was written cannot be stored now: {why}"),
        }
    }
}

impl Cell {
    /// What clients on other machines keep copies of.
    pub fn leases(&self) -> &Leases {
        &self.shard.leases
    }
}

impl Cell {
    /// Answers an operation by several shards.
    fn answer(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let ask = |shard: usize, op: Op<'_>| match shard {
            0 => self.shard.call(ctx, &op),
            other => self.others[other - 1].call(ctx, &op),
        };
        Shards { count: 1 + self.others.len(), refs: ctx.refs, ask: &ask }.answer(op)
    }

    /// Copies from a file of one shard to one of another: in writes, none of which is the call of
    /// a machine. What one could not ask for again after a crash is durable before it is answered.
    fn copy_over(&self, ctx: &Ctx, op: Op<'_>, to: NodeId) -> Result<Reply> {
        Shard::may_wait(ctx)?;
        let ctx = &Ctx { call: None, ..*ctx };
        let reply = self.answer(ctx, op)?;
        if ctx.client > 0 {
            self.shard_of(to).make_lasting(ctx, &op)?;
        }
        Ok(reply)
    }
}

impl Fs for Cell {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let _at_work = self.shard.calls.begin()?;
        if self.others.is_empty() {
            return self.shard.call(ctx, &op);
        }
        match op {
            Op::CopyRange { from, to, .. } if from.shard() != to.shard() => self.copy_over(ctx, op, to),
            op => self.answer(ctx, op),
        }
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.shards().for_each(|shard| shard.add_watcher(watcher.clone()));
    }

    fn is_invalidating(&self) -> bool {
        self.shards().any(|shard| shard.is_invalidating())
    }

    fn wait_invalidated(&self) {
        self.shards().for_each(|shard| shard.wait_invalidated());
    }
}

impl Engine for Cell {
    fn users_ask(&self, now: Nanos) {
        self.activity().asked(now);
    }

    fn users_share(&self, until: Nanos) {
        self.activity().share(until);
    }

    fn give_turns(&self, turns: Arc<dyn Turns>) {
        self.shards().for_each(|shard| *shard.turns.lock() = Some(turns.clone()));
    }
}

/// Holds the directory that has this path now.
fn hold(dir: &Path) -> std::result::Result<HeldDir, Failure> {
    HeldDir::open(dir).map_err(|e| Failure {
        message: format!("{}: {e}", dir.display()),
        errno: e.raw_os_error().unwrap_or(0),
    })
}

/// Locks a cell. The lock is on a directory that only the owner can open, so nobody else can take
/// it, and that cannot be removed without the cell, so no second process gets in.
fn lock(env: &Env, dir: &HeldDir) -> std::result::Result<FileLock, Failure> {
    let failed = |e: std::io::Error| Failure {
        message: format!("{}: meta cannot be locked: {e}", dir.name().display()),
        errno: e.raw_os_error().unwrap_or(0),
    };
    for _ in 0..LOCK_TRIES {
        let meta = || File::open(dir.path().join("meta")).map_err(failed);
        match FileLock::try_take(meta()?) {
            Ok(lock) => return Ok(lock),
            Err(TryLockError::WouldBlock) => env.sleep(LOCK_STEP),
            // some network file systems lock no directories; there only the file `lock` counts
            Err(TryLockError::Error(e)) if cannot_lock(&e) => return Ok(FileLock::of(meta()?)),
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
    }
    Err(Failure {
        message: format!("{} is in use by another process", dir.name().display()),
        errno: libc::EBUSY,
    })
}

fn cannot_lock(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EBADF | libc::ENOLCK | libc::EOPNOTSUPP | libc::EINVAL))
}

/// Whether a file is what a power cut leaves of one that was just being written.
fn is_blank_file(path: &Path) -> bool {
    let small = std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.len() < 4096);
    small && std::fs::read(path).is_ok_and(|text| text.iter().all(|b| *b == 0))
}

/// The error for a place that has a part of a cell, but not its identity.
pub(crate) fn parts_without_identity(place: &str, part: &str) -> String {
    format!(
        "{place} has {part} of a cell, but not the file `cell`, which says that it is one: is it a backup that is not wholly restored? \
         restore `cell`, too, or name an empty or a new directory. Nothing was changed"
    )
}

/// The first records of a cell whose root belongs to the calling user.
pub(crate) fn first_batch_of_caller(env: &Env) -> Batch {
    // SAFETY: these calls cannot fail and touch no memory.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    first_batch(env, uid, gid)
}

/// The first records of a cell: its counters, the root volume, its root directory.
pub fn first_batch(env: &Env, uid: u32, gid: u32) -> Batch {
    let ns = env.wall();
    let now = Time { secs: (ns / 1_000_000_000) as i64, nanos: (ns % 1_000_000_000) as u32 };
    let root = VolumeRecord {
        name: "root".into(),
        uid,
        next_inode: 2,
        epoch: 1,
        created_secs: now.secs,
        attached_dir: NodeId(0),
        attached_name: Box::default(),
        removing: false,
        properties: Properties::default(),
    };
    let dir = root_dir(now, uid, gid);
    Batch {
        writes: vec![
            (keys::cell(), Some(Pair(1, 1).encode())),
            (keys::volume(0), Some(root.encode(FORMAT))),
            (keys::inode(NodeId::ROOT), Some(dir.encode())),
            (keys::owners_counted(), Some(Pair(1, 0).encode())),
        ],
        inline_data: Vec::new(),
    }
}

/// The root directory of a new volume.
pub(crate) fn root_dir(now: Time, uid: u32, gid: u32) -> Inode {
    Inode {
        kind: Kind::Dir,
        mode: 0o755,
        nlink: 2,
        uid,
        gid,
        rdev: 0,
        size: 0,
        allocated: 0,
        times: [now; 4],
        parent: 0,
        name: None,
        linked: false,
        binned: false,
        xattrs: 0,
        pool: 0,
        flags: InodeFlags::default(),
        content_lsn: 0,
        birth: 1,
        body: Body::Dir { entries: 0 },
    }
}

/// The error; for damage, with the damaged file, if it can be found. It may take long.
pub(crate) fn naming_damage(kv: &dyn Kv, e: Error) -> Error {
    match e {
        Error::Corrupt(what) => Error::Corrupt(kv.damaged_file().unwrap_or(what)),
        other => other,
    }
}

/// `format`: in which records are to be written; `opening`: a random number.
fn load_state(kv: &dyn Kv, format: u32, opening: u64, which: WhichShard) -> Result<State> {
    let counters =
        kv.get(&keys::cell())?.ok_or_else(|| Error::Corrupt("the cell's counters are missing".into()))?;
    let Counters { next_volume, reserved } = Counters::decode(&counters)?;
    let moment = kv.moment();
    let mut st = State {
        which,
        format,
        running_id: 1,
        segments: Segments::new(reserved, which),
        next_volume,
        ..State::default()
    };
    each(&*moment, keys::table_range(Table::Pool), |key, v| {
        st.pools.insert(keys::table_id(key) as u32, PoolRecord::decode(v)?);
        Ok(())
    })?;
    let openings = kv.get(&keys::openings())?.map(|v| Openings::decode(&v)).transpose()?;
    st.segments.begin(openings.unwrap_or_default(), opening);
    st.moves.recheck();
    each(&*moment, keys::table_range(Table::Volume), |key, v| {
        st.volumes.insert(keys::table_id(key) as u32, VolumeRecord::decode(v)?);
        Ok(())
    })?;
    each(&*moment, keys::table_range(Table::Snapshot), |key, v| {
        let id = keys::table_id(key);
        st.snapshots.load((id >> 32) as u32, id as u32, SnapshotRecord::decode(v)?);
        Ok(())
    })?;
    each(&*moment, keys::table_range(Table::Tally), |key, v| {
        let (volume, pair) = keys::parse_tally(key).ok_or_else(|| Error::Corrupt("a tally's key".into()))?;
        let Pair(records, bytes) = Pair::decode(v)?;
        let tally = Tally { records: records as i64, bytes: bytes as i64 };
        st.snapshots.load_tally(volume, pair, tally);
        Ok(())
    })?;
    if let Some(value) = kv.get(&keys::clock())? {
        st.clock_stored = Some(Pair::decode(&value)?.0 as i64);
    }
    each(&*moment, keys::table_range(Table::Schedule), |key, v| {
        st.schedules.set(NodeId(keys::table_id(key)), ScheduleRecord::decode(v)?);
        Ok(())
    })?;
    each(&*moment, keys::table_range(Table::Backups), |key, v| {
        st.backups.insert(keys::table_id(key) as u32, BackupsRecord::decode(v)?);
        Ok(())
    })?;
    each(&*moment, keys::table_range(Table::Attached), |key, v| {
        st.attached.insert(keys::table_id(key) as u32, AttachedRecord::decode(v)?);
        Ok(())
    })?;
    load_mirrors(&mut st, &*moment)?;
    each(&*moment, keys::table_range(Table::Scrub), |key, v| {
        st.scrubs.set(keys::table_id(key) as u32, Some(ScrubRecord::decode(v)?));
        Ok(())
    })?;
    each(&*moment, keys::table_range(Table::ScrubPlace), |key, v| {
        st.scrubs.set_reached(keys::table_id(key) as u32, Some(Reached::decode(v)?));
        Ok(())
    })?;
    // those of a volume that is being removed are freed with it
    st.volumes.removing().for_each(|id| st.snapshots.drop_volume(id));
    each(&*moment, keys::table_range(Table::Segment), |key, v| {
        st.segments.load(keys::table_id(key), SegmentRecord::decode(v)?);
        Ok(())
    })?;
    each(&*moment, keys::table_range(Table::Quota), |key, v| {
        let dir = NodeId(keys::table_id(key));
        let used = kv.get(&keys::stats(dir))?.map(|v| Stats::decode(&v)).transpose()?;
        st.quotas.set(QuotaOf::Dir(dir), Quota { limit: Pair::decode(v)?, used: used.unwrap_or_default() });
        Ok(())
    })?;
    each(&*moment, keys::table_range(Table::Flow), |key, v| {
        let who = keys::parse_flow(key).ok_or_else(|| Error::Corrupt("a flow's key".into()))?;
        st.flows.set(who, FlowRecord::decode(v)?);
        Ok(())
    })?;
    let mut buckets = Buckets::default();
    each(&*moment, keys::table_range(Table::Bucket), |key, v| {
        let name = keys::parse_named(key).ok_or_else(|| Error::Corrupt("a bucket's key".into()))?;
        buckets.insert(name.into(), Arc::new(BucketRecord::decode(v)?));
        Ok(())
    })?;
    st.buckets = Arc::new(buckets);
    st.load_accounts(&*moment)?;
    st.load_uploads(&*moment)?;
    st.load_sessions(kv, &*moment)?;
    each(&*moment, keys::table_range(Table::Unfolded), |key, v| {
        st.unfolded.load(NodeId(keys::table_id(key)), Stats::decode(v)?);
        Ok(())
    })?;
    st.load_projects(kv, &*moment)?;
    load_owners(&mut st, kv, &*moment)?;
    load_logs(&mut st, &*moment)?;
    drop(moment);
    st.count_unfolded(kv)?;
    Ok(st)
}

/// The shards of a cell, in order, each with its engine.
fn load_all(env: &Env, kvs: Vec<Box<dyn Kv>>, format: u32) -> Result<Vec<(Box<dyn Kv>, State)>> {
    let count = kvs.len();
    let loaded = kvs.into_iter().enumerate().map(|(index, kv)| {
        let which = WhichShard { index, count };
        let state = load_state(&*kv, format, env.random(), which).map_err(|e| naming_damage(&*kv, e))?;
        Ok((kv, state))
    });
    let mut parts: Vec<(Box<dyn Kv>, State)> = loaded.collect::<Result<_>>()?;
    let attached = parts.iter().flat_map(|(_, state)| state.attached.keys());
    if let Some(shard) = attached.map(|id| NodeId::new(*id, 1).shard()).find(|shard| *shard >= count) {
        return Err(Error::Corrupt(format!(
            "`cell` says that there are {count} shards, and a name leads to shard {shard}: restore `cell`"
        )));
    }
    agree(parts.iter_mut().map(|(_, state)| state).collect());
    Ok(parts)
}

/// The shards of a cell agree on what is common to them: the sessions, of which the first one
/// knows, and the numbers of changes, which go up over all of them.
fn agree(mut states: Vec<&mut State>) {
    let process = states.iter().map(|st| st.sessions.process()).max().unwrap_or_default();
    let Some(first) = states.first() else { return };
    let sessions: Vec<SessionRecord> = first.sessions.all().cloned().collect();
    let lsn = Arc::default();
    states.iter_mut().for_each(|state| state.begin_sessions(process, Arc::clone(&lsn), &sessions));
}

/// What is kept of mirrors.
fn load_mirrors(st: &mut State, moment: &dyn Moment) -> Result<()> {
    each(moment, keys::table_range(Table::Mirrors), |key, v| {
        let volume = keys::table_id(key) as u32;
        // an older program that removes a volume leaves that of it
        if st.volumes.get(&volume).is_some_and(|v| !v.removing) {
            st.mirrors.insert(volume, MirrorsRecord::decode(v)?);
        }
        Ok(())
    })
}

/// What is kept of event logs.
fn load_logs(st: &mut State, moment: &dyn Moment) -> Result<()> {
    each(moment, keys::table_range(Table::LogHead), |key, v| {
        let volume = keys::table_id(key) as u32;
        // that of a volume that is being removed is freed with it
        if volume == keys::CELL_LOG || st.volumes.get(&volume).is_some_and(|v| !v.removing) {
            st.events.load(volume, LogHead::decode(v)?);
        }
        Ok(())
    })
}

/// What users and groups own. It is counted from now on, if it never was.
fn load_owners(st: &mut State, kv: &dyn Kv, moment: &dyn Moment) -> Result<()> {
    let unreadable = || Error::Corrupt("a key of what users own".into());
    each(moment, keys::table_range(Table::Owned), |key, v| {
        let (volume, who) = keys::parse_owned(key).ok_or_else(unreadable)?;
        let volume = volume.ok_or_else(unreadable)?;
        // that of a volume that is being removed is freed with it
        if st.volumes.get(&volume).is_some_and(|v| !v.removing) {
            st.owners.load(volume, who, Stats::decode(v)?);
        }
        Ok(())
    })?;
    each(moment, keys::table_range(Table::OwnerLimit), |key, v| {
        let (volume, who) = keys::parse_owned(key).ok_or_else(unreadable)?;
        st.owners.set_limit(volume, who, Pair::decode(v)?);
        Ok(())
    })?;
    if let Some(sampling) = kv.get(&keys::sampling())? {
        st.sampling = Sampling::load(Pair::decode(&sampling)?);
    }
    each(moment, keys::table_range(Table::Uncounted), |key, v| {
        st.owners.load_uncounted(keys::table_id(key) as u32, Pair::decode(v)?.0);
        Ok(())
    })?;
    if kv.get(&keys::owners_counted())?.is_none() {
        let live = st.volumes.iter().filter(|(_, v)| !v.removing).map(|(id, _)| *id);
        st.owners.begin(live);
    }
    Ok(())
}

/// A turn of a background thread.
type Turn = fn(&Shard);

/// A part of the background work; `true` when there was something to do.
type Step = fn(&Shard) -> Result<bool>;

/// All parts, in the order of [`Cell::step`].
const STEPS: [Step; 21] = [
    |shard| {
        shard.log.seal_older(Duration::ZERO);
        Ok(false)
    },
    |shard| Ok(shard.put_all()),
    |shard| {
        shard.watch_clock(STORE_SECS);
        shard.schedule_step()
    },
    Shard::fold_step,
    Shard::commit_step,
    Shard::engine_step,
    |shard| {
        shard.take_reserve();
        Ok(false)
    },
    |shard| shard.open_away().map(|()| false),
    Shard::delete_garbage,
    Shard::bin_step,
    Shard::upload_step,
    Shard::reclaim_step,
    Shard::census_step,
    Shard::events_step,
    Shard::samples_step,
    Shard::trim_step,
    Shard::clean_step,
    |shard| Ok(shard.search_step()),
    |shard| Ok(shard.pool_repair_step()),
    |shard| Ok(shard.scrub_if_due()),
    Shard::move_step,
];

impl Shard {
    /// Puts all sealed segments, until that makes no progress: a failed put is tried again at the
    /// next step.
    fn put_all(&self) -> bool {
        let mut did = false;
        loop {
            let before = self.log.dirty_bytes();
            let stepped = self.log.step();
            did |= stepped;
            if !stepped || self.log.dirty_bytes() >= before {
                return did;
            }
        }
    }

    fn fold_step(&self) -> Result<bool> {
        self.fold().map(|()| false)
    }

    fn commit_step(&self) -> Result<bool> {
        self.commit_if_dirty().map(|()| false)
    }

    /// Commits the content of some files that may be inline data in the journal.
    fn inline_step(&self) -> Result<bool> {
        let some: Vec<NodeId> = self.lock().files.keys().copied().take(4).collect();
        let ctx = Ctx { wait: Wait::Never, ..Ctx::system() };
        for node in some {
            match self.stage(&ctx, node) {
                Ok(()) | Err(Error::WouldBlock | Error::Stale) => {}
                Err(e) => return Err(e),
            }
        }
        self.commit_step()
    }

    /// After opening: inline data becomes segments, orphans are found, leftovers of the last run
    /// are noted as garbage.
    fn recover(&self) -> Result<()> {
        self.open_pools();
        let riding: BTreeSet<u64> = self.kv.inline_segments().into_iter().collect();
        let unsealed: BTreeMap<u64, SegmentRecord> = {
            let st = self.lock();
            st.segments.iter().filter(|(_, r)| !r.sealed).map(|(segment, r)| (segment, *r)).collect()
        };
        let (with_inline_data, without): (Vec<_>, Vec<_>) =
            unsealed.iter().partition(|(segment, _)| riding.contains(segment));
        for (segment, record) in without {
            self.recover_without_inline_data(*segment, record);
        }
        for some in with_inline_data.chunks(RESTORED_AT_ONCE) {
            self.recover_with_inline_data(some)?;
        }
        for segment in riding.iter().filter(|segment| !unsealed.contains_key(segment)) {
            self.kv.release_inline(*segment);
        }
        self.find_orphans()?;
        self.find_bins()?;
        self.commit_if_dirty()?;
        self.search_later(self.pools.all().into_iter().map(|(pool, _)| pool));
        Ok(())
    }

    /// The journal has no inline data of the segment: its object was put without being recorded, or
    /// nothing refers to it any more.
    fn recover_without_inline_data(&self, segment: u64, record: &SegmentRecord) {
        if record.live_bytes == 0 {
            self.lock().segments.touch(segment); // the next commit removes the record
        } else if !self.is_away(record.pool) {
            self.adopt(&Ctx::system(), record.pool, segment);
        } // else it is taken when the pool is there
    }

    /// Makes objects of the inline data in the journal, for segments whose objects are not there as
    /// a whole.
    fn recover_with_inline_data(&self, segments: &[(&u64, &SegmentRecord)]) -> Result<()> {
        let mut inline_data: BTreeMap<u64, Vec<InlineData>> = BTreeMap::new();
        for inline in self.kv.inline_data(&segments.iter().map(|(segment, _)| **segment).collect())? {
            inline_data.entry(inline.segment).or_default().push(inline);
        }
        for (segment, record) in segments {
            let pieces = in_order(inline_data.remove(segment).unwrap_or_default());
            let info = self.restore_segment(record.pool, **segment, &pieces)?;
            if info.data_bytes < record.live_bytes {
                tracing::error!(
                    "of segment {segment} {} bytes are left of {}: a file of the journal is missing or damaged; lee fsck names the files",
                    info.data_bytes,
                    record.live_bytes
                );
            }
            self.lock().is_stored_now(info);
        }
        Ok(())
    }

    /// Makes the object of a segment from these pieces: in pool 0 where its own pool does not take
    /// it. It is moved from there when that pool does. So the journal waits for no pool. An
    /// existing object is not overwritten.
    fn restore_segment(
        &self,
        pool: PoolId,
        segment: u64,
        pieces: &[(u32, leeward_data::Owner, Arc<[u8]>)],
    ) -> Result<SegmentInfo> {
        let ctx = Ctx::system();
        match self.log.restore(&ctx, pool, segment, pieces) {
            Err(leeward_data::Error::Store(e)) if pool != 0 => {
                tracing::warn!(
                    "segment {segment} goes to pool 0 for now, as pool {pool} does not take it: {e}"
                );
                Ok(self.log.restore(&ctx, 0, segment, pieces)?)
            }
            other => Ok(other?),
        }
    }

    /// One turn of the commit thread.
    fn commit_turn(&self) {
        let half = Duration::from_millis(u64::from(self.config.commit_interval_ms) / 2);
        self.committer.wait(half);
        self.log.seal_older(half);
        if self.broken().is_some() {
            return self.env.sleep(half);
        }
        did("folding statistics", self.fold().map(|()| true));
        if let Err(e) = self.commit_if_dirty() {
            tracing::warn!("commit: {e}");
            self.env.sleep(half);
        }
        self.upkeep.wake();
        self.maintenance.wake();
    }

    /// One turn of the thread that publishes what is durable.
    fn publish_turn(&self) {
        self.committer.unpublished.wait(PUBLISH_LOOK);
        self.publish_all();
    }

    /// One turn of the maintenance thread.
    fn maintain_turn(&self) {
        // in parallel with the upkeep thread: a flush need not wait for a long compaction
        let mut busy = did("metadata upkeep", self.engine_step());
        // writers wait for the space, if they have not given up
        let _hurry = (self.space(0).1 == 0).then(|| self.gate.activity().hurry());
        let alone = self.housekeeping.lock();
        busy |= did("deleting objects", self.delete_garbage());
        busy |= did("recycle bin", self.bin_step());
        busy |= did("uploads", self.upload_step());
        busy |= did("freeing", self.reclaim_step());
        busy |= did("counting for owners", self.census_step());
        busy |= did("event logs", self.events_step());
        busy |= did("usage samples", self.samples_step());
        busy |= did("scheduled snapshots", self.schedule_step());
        busy |= did("trim", self.trim_step());
        busy |= did("cleaning", self.clean_turn());
        busy |= did("moving", self.move_turn());
        drop(alone);
        self.watch_clock(STORE_SECS);
        self.take_reserve();
        if !busy {
            let before = self.counters.commits.load(Ordering::Relaxed);
            self.maintenance.wait(Duration::from_secs(1));
            self.rest_when_idle(before);
        }
    }

    /// After some seconds without a commit the engine may free space and memory.
    fn rest_when_idle(&self, commits_before: u64) {
        let quiet = &self.counters.quiet_turns;
        if self.counters.commits.load(Ordering::Relaxed) != commits_before {
            quiet.store(0, Ordering::Relaxed);
        } else if quiet.fetch_add(1, Ordering::Relaxed) + 1 == IDLE_TURNS {
            self.kv.idle();
            self.upkeep.wake();
        }
    }

    /// One turn of the engine's own thread.
    fn upkeep_turn(&self) {
        if !did("metadata upkeep", self.engine_step()) {
            self.upkeep.wait(Duration::from_secs(1));
        }
    }
}

/// Whether there was something to do; an error is logged, and a reason to pause.
fn did(what: &str, done: Result<bool>) -> bool {
    done.unwrap_or_else(|e| {
        tracing::warn!("{what}: {e}");
        false
    })
}

/// Inline data as pieces: a later one for the same place wins.
fn in_order(inline_data: Vec<InlineData>) -> Vec<(u32, leeward_data::Owner, Arc<[u8]>)> {
    let mut pieces: BTreeMap<u32, (leeward_data::Owner, Arc<[u8]>)> = BTreeMap::new();
    for r in inline_data {
        let (volume, inode, offset) = r.owner;
        let longer = pieces.get(&r.offset).is_none_or(|(_, b)| b.len() <= r.bytes.len());
        if longer {
            pieces.insert(r.offset, (leeward_data::Owner { volume, inode, offset }, r.bytes));
        }
    }
    pieces.into_iter().map(|(offset, (owner, bytes))| (offset, owner, bytes)).collect()
}
