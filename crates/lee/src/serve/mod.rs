//! The process that serves a cell. It takes the lock, opens the cell, mounts it, and starts doors,
//! the server for other machines, control socket and metrics. At its end it undoes these steps in
//! reverse order.
//!
//! One queue has every [`Event`] that ends the process: a signal, `lee down`, an unmount, or
//! another process that takes the cell over. Then the process unmounts (no new operation arrives),
//! stops listening, closes the cell (everything is durable) and frees the lock. When the unmount is
//! refused, the process goes on serving.
//!
//! Of a cell in a bucket that several servers share one serves at a time, see `among`.

mod among;

use crate::background::Start;
use crate::backup::{BackupCall, BackupStatus, Backups};
use crate::console::sessions::{By, CODE_GOOD, Sessions, Who};
use crate::control::server::{Server, Service, UserCommands};
use crate::control::{self, ConsoleLink, DoorConnections, Flows, MachineSession, NewToken, Running, Trouble};
use crate::doors::{self, CellHere, DoorCell, Doors, Inside, Tally, Wanted};
use crate::fail::{Fail, TAKEN_OVER, text};
use crate::group_names::{CellGroups, GroupNames};
use crate::groups::{self, CellPeople};
use crate::host_commands::HostCommands;
use crate::locate::{self, CellDir};
use crate::lock::{self, CellLock, Holder, NotTaken};
use crate::machines::{self, Machines};
use crate::metrics::{self, http::Listeners};
use crate::mirror::{MirrorCall, MirrorStatus, Mirrors};
use crate::mount_options::{self, MountWord};
use crate::people::Machine;
use crate::servers::{Member, Own};
use crate::settings::{CellSettings, Jobs};
use crate::{console, memory, mounts, notify, output, place, settings, system, tokens, when};
use leeward_auth::{Authority, HttpFetch};
use leeward_door::Files;
use leeward_door::listen::{Family, Figures};
use leeward_env::disk::held::sync_names;
use leeward_env::{Ctx, Door, Env, Wait};
use leeward_fs::NodeId;
use leeward_fuse::{Mount, Options, Unmounted};
use leeward_servers::Turn;
use leeward_vfs::{Gate, GateOptions};
use leeward_volume::admin::{AnyReply, AnyRequest, Failure, Progress, Refresh, TokenMake};
use leeward_volume::{Cell, FORMAT, Trouble as CellTrouble};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Steps of the wait until callers of `lee down` have heard how it ended.
const HEARD_STEPS: u32 = 200;
const HEARD_STEP: Duration = Duration::from_millis(10);
/// How often the process checks that no other process has taken the cell over.
const LOST_STEP: Duration = Duration::from_millis(250);
/// A file that an operator may put in the directory before the cell is made.
const SETTINGS: &str = "leeward.toml";
/// Parts of a cell, which [`Cell::check_place`] has checked.
const MAKING: [&str; 3] = ["cell.new", "meta", "data"];
/// The metrics of a process that serves nothing at the moment.
const NO_METRICS: &str = "# no cell is served here at the moment\n";
/// The page at `/` of the metrics port.
const INDEX: &str =
    "<!DOCTYPE html>\n<title>Leeward</title>\n<p>Leeward: <a href=\"/metrics\">metrics</a></p>\n";

/// The options of `lee up`.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The directory of the cell.
    pub dir: PathBuf,
    /// Whether to mount it here, or only to serve others.
    pub is_mounted: bool,
    /// Where clients reach this server, where several share the cell, if that does not follow from
    /// where it listens. `None`: it shares no cell.
    pub advertise: Option<Vec<String>>,
    /// Where to listen for other machines, if neither the command line nor the settings say.
    pub listen_usually: Option<String>,
    /// Where to mount it; `None`: `DIR/mnt`.
    pub mount: Option<PathBuf>,
    /// How to mount it.
    pub mount_options: Vec<MountWord>,
    /// Addresses that answer Prometheus; none: those in the settings.
    pub metrics: Vec<SocketAddr>,
    /// Addresses of doors. The settings have those that are missing here.
    pub doors: Wanted,
    /// Directory of a cache on disk; `None`: as in the settings.
    pub cache: Option<PathBuf>,
    /// Size of that cache; `None`: as in the settings.
    pub cache_bytes: Option<u64>,
    /// The keeper of this process.
    pub kept: Option<KeptBy>,
}

/// The keeper that has started a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBy {
    /// Its process id.
    pub pid: u32,
    /// Where it starts the server again, the cell must be there, and still be its own.
    pub start: Start,
}

impl ServeOptions {
    fn is_again(&self) -> bool {
        self.kept.is_some_and(|kept| kept.start != Start::First)
    }

    /// Whether nobody has been told yet that the server before crashed.
    fn is_after_crash(&self, dir: &CellDir) -> bool {
        self.kept.is_some_and(|kept| kept.start == Start::AfterCrash)
            || self.is_again() && control::is_left_behind(dir)
    }
}

/// A cell that is mounted and served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The directory of the cell.
    pub cell: PathBuf,
    /// Where it is mounted; `None`: nowhere.
    pub mount: Option<PathBuf>,
    /// Addresses where other machines reach it.
    #[serde(default)]
    pub listen: Vec<String>,
    /// URLs of its metrics.
    pub metrics: Vec<String>,
    /// Its doors, by name and URL.
    pub doors: Vec<(String, String)>,
    /// The serving process.
    pub pid: u32,
    /// Whether this call made the cell.
    pub created: bool,
    /// Dead mounts that were removed.
    pub stale: Vec<PathBuf>,
    /// The process that served a cell in a bucket before and did not end in order.
    pub took_over: Option<Holder>,
    /// The machine of another server that has the cell: this one stands by.
    #[serde(default)]
    pub served_by: Option<String>,
}

/// Hears how the start goes: a terminal, or the parent of a process in the background.
pub trait Startup {
    /// The directory holds a cell, and this process has its lock.
    ///
    /// # Errors
    /// The process ends before it opens anything.
    fn locked(&mut self, cell: &CellDir) -> Result<(), Fail>;
    /// The cell is mounted.
    ///
    /// # Errors
    /// The process ends, because the parent is gone.
    fn started(&mut self, started: &Started) -> Result<(), Fail>;
}

/// Serves a cell until an [`Event`] ends it.
///
/// # Errors
/// Why the cell could not be served, or not closed in order.
pub fn serve(env: &Env, options: &ServeOptions, startup: &mut dyn Startup) -> Result<(), Fail> {
    let (events, inbox) = channel();
    let stage = Mutex::new(Stage::Serving);
    let hearing = AtomicUsize::new(0);
    let lifecycle = Arc::new(Lifecycle { env: env.clone(), stage, changed: Condvar::new(), hearing, events });
    listen_to_signals(env, &lifecycle)?;
    let ground = Ground::take(env, options)?;
    if options.advertise.is_some() && ground.dir.place().is_some() {
        return among::serve(env, options, startup, (&ground, &lifecycle, &inbox));
    }
    let bound = ground.bind(options)?;
    let created = ground.make(env, options)?;
    startup.locked(&ground.dir)?;
    place::refuse_if_shared(env, &ground.dir)?;
    let mut up = ServedCell::start(env, options, (&ground, bound), None, &lifecycle)?;
    up.started.created = created;
    if let Err(fail) = startup.started(&up.started) {
        up.end()?;
        return Err(fail);
    }
    up.run(&inbox)
}

/// What a process has before it serves a cell, and until it ends.
struct Ground {
    dir: CellDir,
    lock: CellLock,
    config: CellSettings,
    /// What the page of metrics is made of; `None`: this process serves nothing at the moment.
    source: Arc<Mutex<Option<Arc<metrics::Source>>>>,
    /// URLs of the metrics.
    metrics: Vec<String>,
}

/// Addresses that are bound.
struct Bound {
    doors: doors::Bound,
    machines: machines::Bound,
}

impl Ground {
    fn take(env: &Env, options: &ServeOptions) -> Result<Ground, Fail> {
        system::make_private_files();
        let dir = directory(options)?;
        let lock = take_lock(env, &dir, options)?;
        let config = with_cache(settings::load(&dir)?, options)?;
        let listeners = Listeners::bind(&metrics_addresses(options, &config)?)?;
        let (metrics, source) = (listeners.urls(), Arc::new(Mutex::new(None::<Arc<metrics::Source>>)));
        let shown = source.clone();
        listeners.serve(env, metrics::CONTENT_TYPE, Some(INDEX), move || {
            let source = shown.lock().clone();
            source.map_or_else(|| NO_METRICS.to_owned(), |source| source.text())
        });
        Ok(Ground { dir, lock, config, source, metrics })
    }

    /// What is known of a start in any case.
    fn started(&self) -> Started {
        Started {
            cell: self.dir.name(),
            mount: None,
            listen: Vec::new(),
            metrics: self.metrics.clone(),
            doors: Vec::new(),
            pid: std::process::id(),
            created: false,
            stale: Vec::new(),
            took_over: None,
            served_by: None,
        }
    }

    /// Binds the addresses of doors, and those for other machines.
    fn bind(&self, options: &ServeOptions) -> Result<Bound, Fail> {
        let wanted = self.wanted(options);
        Ok(Bound { doors: doors::bind(&wanted)?, machines: machines::bind(&wanted.listen)? })
    }

    fn wanted(&self, options: &ServeOptions) -> Wanted {
        let mut wanted = options.doors.or(&self.config);
        if wanted.listen.is_empty() {
            wanted.listen.extend(options.listen_usually.clone());
        }
        wanted
    }

    /// Makes the cell where it is missing; returns whether it did. A server that is started again
    /// makes none.
    fn make(&self, env: &Env, options: &ServeOptions) -> Result<bool, Fail> {
        match options.is_again() {
            true => place::refuse_if_missing(&self.dir).map(|()| false),
            false => place::create_if_missing(env, &self.dir, &self.config.engine()),
        }
    }
}

/// What the process is doing, for callers of `lee down`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    Ending(String),
    /// The unmount was refused; the process goes on serving.
    Refused(String),
    /// Everything is done. `Err`: what could not be stored, and why.
    Ended(Result<(), String>),
}

/// What ends the process.
#[derive(Debug)]
enum Event {
    Signal(i32),
    Down,
    Unmounted,
    /// Another process has taken the cell over.
    Lost(String),
    /// Of several servers of the cell it is this one's turn.
    Turn(Turn),
    /// Another server is to have the cell.
    Drain,
}

/// The queue of events, and the stage for those who wait.
struct Lifecycle {
    env: Env,
    stage: Mutex<Stage>,
    changed: Condvar,
    /// Connections that wait to hear how it ended.
    hearing: AtomicUsize,
    events: Sender<Event>,
}

impl Lifecycle {
    fn post(&self, event: Event) {
        // The receiver is gone only when the process ends anyway.
        let _ = self.events.send(event);
    }

    fn set(&self, stage: Stage) {
        *self.stage.lock() = stage;
        self.changed.notify_all();
    }

    /// Writes a line to standard error; with the time when that is no terminal.
    fn say(&self, what: &str) {
        if io::stderr().is_terminal() {
            output::note(&format!("lee: {what}"));
        } else {
            let now = when::utc((self.env.wall() / 1_000_000_000) as i64);
            output::note(&format!("{now} lee: {what}"));
        }
    }

    /// A caller of `lee down` begins to wait for the end, or has heard of it.
    fn hears_of_end(&self, hears: bool) {
        match hears {
            true => self.hearing.fetch_add(1, Ordering::AcqRel),
            false => self.hearing.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// Waits until the stage is another one than `last`; see [`Service::next_stage`].
    fn next_stage(&self, last: &str) -> Result<Option<String>, Failure> {
        let mut stage = self.stage.lock();
        loop {
            match &*stage {
                Stage::Ended(Ok(())) => return Ok(None),
                Stage::Ended(Err(why)) => return Err(Failure { message: why.clone(), errno: libc::EIO }),
                Stage::Ending(what) if what != last => return Ok(Some(what.clone())),
                Stage::Refused(why) => return Err(Failure { message: why.clone(), errno: libc::EBUSY }),
                Stage::Ending(_) | Stage::Serving => self.changed.wait(&mut stage),
            }
        }
    }

    fn ending(&self, what: String) {
        self.say(&what);
        self.set(Stage::Ending(what));
    }

    /// Sets the last stage, and waits a moment until callers of `lee down` have heard it.
    fn ended(&self, how: Result<(), String>) {
        self.set(Stage::Ended(how));
        for _ in 0..HEARD_STEPS {
            if self.hearing.load(Ordering::Acquire) == 0 {
                return;
            }
            self.env.sleep(HEARD_STEP);
        }
    }
}

/// The first signal ends the process. A later one prints what the process waits for.
fn listen_to_signals(env: &Env, lifecycle: &Arc<Lifecycle>) -> Result<(), Fail> {
    let lifecycle = lifecycle.clone();
    system::on_signals(env, move |signal| {
        let stage = lifecycle.stage.lock().clone();
        match stage {
            Stage::Ending(what) => lifecycle.say(&format!("still {what}")),
            Stage::Serving | Stage::Refused(_) => lifecycle.post(Event::Signal(signal)),
            Stage::Ended(_) => (),
        }
    })
}

/// A served cell. Its fields are dropped in this order.
struct ServedCell {
    mount: Option<Arc<Mount>>,
    machines: Option<Arc<Machines>>,
    tally: Option<Arc<Tally>>,
    doors: Option<Doors>,
    mirrors: Arc<Mirrors>,
    backups: Arc<Backups>,
    server: Option<Server>,
    names: Option<GroupNames>,
    cell: Arc<Cell>,
    /// It is closed here: what becomes of it is another process's concern.
    left: Arc<AtomicBool>,
    lifecycle: Arc<Lifecycle>,
    started: Started,
    dir: CellDir,
    holder: Holder,
    source: Arc<Mutex<Option<Arc<metrics::Source>>>>,
}

/// What serves an open cell.
struct Fronts {
    server: Server,
    names: Option<GroupNames>,
    mount: Option<Arc<Mount>>,
    machines: Option<Arc<Machines>>,
    tally: Option<Arc<Tally>>,
    doors: Doors,
    mirrors: Arc<Mirrors>,
    backups: Arc<Backups>,
    stale: Vec<PathBuf>,
}

/// A cell that is open, and what it is opened for.
struct Opened<'a> {
    env: &'a Env,
    options: &'a ServeOptions,
    ground: &'a Ground,
    own: Option<&'a Own>,
    cell: Arc<Cell>,
    gate: Gate,
    lifecycle: &'a Arc<Lifecycle>,
}

impl Fronts {
    /// Their figures join these.
    fn counted_in(&self, mut source: metrics::Source) -> metrics::Source {
        source.set_mirrors(&self.mirrors);
        source.set_backups(&self.backups);
        source.set_doors(self.doors.figures());
        source.set_machines(self.machines.clone());
        source
    }
}

impl ServedCell {
    /// Opens the cell and serves it. `own`: this server's turn, where several share the cell.
    fn start(
        env: &Env,
        options: &ServeOptions,
        (ground, bound): (&Ground, Bound),
        own: Option<&Own>,
        lifecycle: &Arc<Lifecycle>,
    ) -> Result<ServedCell, Fail> {
        let (dir, config, holder) = (&ground.dir, &ground.config, &ground.lock.holder);
        let at = mount_point(dir, options)?;
        let took_over = place::noted(dir)?;
        if own.is_none() {
            refuse_if_taken_over(dir, took_over.as_ref(), options)
                .inspect_err(|_| drop(detach_stale(env, dir, options, at.as_deref())))?;
        }
        let cell = place::open(env, dir, &config.engine(), own.map(|own| own.turn.number))?;
        let jobs = config.jobs == Jobs::Cgroup;
        let gate_options = GateOptions { fair: config.fair, jobs, ..GateOptions::usual() };
        let gate = Gate::with_people(cell.clone(), env, gate_options, Arc::new(CellPeople::new(&cell)));
        gate.set_flows(cell.flow_settings());
        match own {
            Some(own) => {
                own.member.note_format(cell.format());
                own.begin(env, &gate);
                // of one that had the cell for itself
                took_over.iter().for_each(|holder| place::forget(dir, holder));
            }
            None => place::note(dir, holder)?,
        }
        bound.machines.share_locks(&cell, &gate);
        let source = metrics::Source::new(&cell, &gate, env, holder.since, own.map(Own::member));
        let opened = Opened { env, options, ground, own, cell: cell.clone(), gate, lifecycle };
        // an error from here on closes the cell
        let fronts = match opened.serve(bound, at) {
            Ok(fronts) => fronts,
            Err(fail) => {
                cell.close()?;
                return Err(fail);
            }
        };
        *ground.source.lock() = Some(Arc::new(fronts.counted_in(source)));
        let Fronts { server, names, mount, machines, tally, doors, mirrors, backups, stale } = fronts;
        let started = Started {
            mount: mount.as_ref().map(|mount| mount.at().to_path_buf()),
            listen: machines.as_ref().map_or_else(Vec::new, |machines| machines.addresses()),
            doors: doors.urls(),
            stale,
            took_over,
            ..ground.started()
        };
        mount.iter().for_each(|mount| watch_mount(env, mount, lifecycle));
        memory::of_cell(env, Arc::downgrade(cell.activity()));
        let left = watch_cell(env, (&cell, dir), lifecycle, own);
        Ok(ServedCell {
            mount,
            machines,
            tally,
            doors: Some(doors),
            mirrors,
            backups,
            server: Some(server),
            names,
            cell,
            left,
            lifecycle: lifecycle.clone(),
            started,
            dir: dir.clone(),
            holder: holder.clone(),
            source: ground.source.clone(),
        })
    }

    fn run(&mut self, inbox: &Receiver<Event>) -> Result<(), Fail> {
        while let Ok(event) = inbox.recv() {
            let is_lost = matches!(event, Event::Lost(_));
            match event {
                Event::Signal(signal) => tracing::info!("signal {signal}: ending"),
                Event::Down => tracing::info!("lee down: ending"),
                Event::Lost(why) => self.lifecycle.say(&format!("{why}: this process ends")),
                Event::Turn(_) | Event::Drain => continue, // not of a server that is alone
                Event::Unmounted => {
                    let at = self.started.mount.as_deref().unwrap_or(Path::new("")).display();
                    self.lifecycle.say(&format!("{at} was unmounted"))
                }
            }
            match self.unmount() {
                Ok(()) if is_lost => return self.close().map_err(|fail| fail.with_code(TAKEN_OVER)),
                Ok(()) => return self.close(),
                Err(fail) => {
                    self.lifecycle.say(&format!("{fail}; still serving"));
                    self.lifecycle.set(Stage::Refused(fail.to_string()));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fail> {
        self.unmount()?;
        self.close()
    }

    fn unmount(&mut self) -> Result<(), Fail> {
        let Some(mount) = &self.mount else { return Ok(()) };
        let at = mount.at().display();
        if mount.is_alive() {
            self.lifecycle.ending(format!("unmounting {at}"));
        }
        match mount.unmount() {
            Ok(Unmounted::Clean) => Ok(()),
            Ok(Unmounted::Detached) => {
                self.lifecycle.say(&format!("{at} was still in use: its users get errors from now on"));
                Ok(())
            }
            Err(e) => Err(Fail::new(e.to_string())),
        }
    }

    /// Ends the doors and closes the cell, after the unmount.
    fn close(&mut self) -> Result<(), Fail> {
        notify::stopping();
        let dir = self.started.cell.display().to_string();
        self.lifecycle.ending(format!("writing to {dir} what is in memory"));
        let closed = self.shut();
        place::forget(&self.dir, &self.holder);
        if closed.is_ok() {
            self.lifecycle.say(&format!("{dir} is closed; everything is durable"));
        }
        self.lifecycle.ended(match &closed {
            Ok(()) => Ok(()),
            Err(e) => Err(format!("{dir}: {}", e.message)),
        });
        Ok(closed?)
    }

    /// Takes no more requests, and makes everything durable.
    fn shut(&mut self) -> Result<(), Failure> {
        *self.source.lock() = None;
        // the doors answer until these have ended, both in the same time
        let until = self.mirrors.end().max(self.backups.end());
        self.mirrors.await_end(until);
        self.backups.await_end(until);
        self.doors = None;
        (self.server, self.names) = (None, None);
        if let Some(machines) = &self.machines {
            machines.stop();
        }
        if let Some(tally) = self.tally.take() {
            tally.end();
        }
        let closed = self.cell.close();
        self.left.store(closed.is_ok(), Ordering::Release);
        if let Some(machines) = self.machines.take() {
            machines.hang_up(closed.is_ok());
        }
        closed
    }
}

impl Opened<'_> {
    fn serve(&self, bound: Bound, at: Option<PathBuf>) -> Result<Fronts, Fail> {
        let Opened { env, options, ground, cell, gate, .. } = self;
        let (dir, config) = (&ground.dir, &ground.config);
        let authority = authority(env, cell, config)?;
        let sign_on = settings::sign_on(config)?;
        // before anything else runs: clients of a process before do their changes again
        let member = self.own.map(|own| (own.member.clone(), own.turn.number));
        let commands = Arc::new(HostCommands::new(env, cell, &config.srr));
        let machines = bound.machines.serve(env, (cell, gate), (&authority, &commands), (config, member))?;
        let tally = machines.clone().map(|machines| {
            let noted_in: Arc<dyn DoorCell> = Arc::new(CellHere::new(env, cell, &config.srr));
            Tally::begin(env, &noted_in, move || machines.transferred())
        });
        // only now, so that programs do not write below the mount point meanwhile
        let stale = detach_stale(env, dir, options, at.as_deref());
        let mount = at.map(|at| mount_again(env, gate, (dir, options), at, &stale)).transpose()?;
        let sessions = Sessions::new(env);
        let console = config.console.then(|| console::Parts {
            sign_on,
            url: config.console_url.clone(),
            env: (*env).clone(),
            sessions: sessions.clone(),
            cell: Arc::new(console::here::CellHere::new(&commands, gate, cell)),
            files: Files::new(gate, env),
            authority: authority.clone(),
            name: format!("Leeward at {}", system::host()),
        });
        let doors = open_doors(env, bound.doors, (cell, gate), &authority, (config, dir), console);
        let doors = self.or_quit(doors)?;
        let mirrors = Arc::new(Mirrors::start(env, cell, dir.to_string()));
        let backups = Arc::new(Backups::start(env, cell));
        let service = CellService {
            mirrors: mirrors.clone(),
            backups: backups.clone(),
            cell: cell.clone(),
            gate: gate.clone(),
            authority,
            doors: (doors.urls(), doors.figures()),
            refreshing: Mutex::new(()),
            mount: mount.as_ref().map(|mount| (mount.at().to_path_buf(), mount.channel())),
            machines: machines.clone(),
            name: dir.to_string(),
            metrics: ground.metrics.clone(),
            holder: ground.lock.holder.clone(),
            after_a_crash: AtomicBool::new(match self.own {
                Some(own) => own.turn.after_crash,
                None => options.is_after_crash(dir),
            }),
            member: self.own.map(Own::member),
            console: config.console.then(|| (sessions, config.console_url.clone())),
            commands: Arc::downgrade(&commands),
            lifecycle: self.lifecycle.clone(),
        };
        let service = Arc::new(service);
        let weak: Weak<CellService> = Arc::downgrade(&service);
        commands.answer_by(weak);
        let mount_is_for_all = mount.as_ref().is_some_and(|mount| mounts::is_for_all(mount.at()));
        let users = mount_is_for_all.then_some(commands as Arc<dyn UserCommands>);
        let server = self.or_quit(Server::start(env, dir, service, users))?;
        let names = GroupNames::start(env, &dir.path().to_string_lossy(), CellGroups::new(cell));
        Ok(Fronts { server, names, mount, machines, tally, doors, mirrors, backups, stale })
    }

    /// Of several servers one that cannot serve after its clients have come ends as if it was
    /// killed: closing the cell would take from them what they are to go on with at the next one.
    fn or_quit<T>(&self, done: Result<T, Fail>) -> Result<T, Fail> {
        match (done, self.own) {
            (Err(fail), Some(own)) => own.member.quit(&fail.to_string()),
            (done, _) => done,
        }
    }
}

/// The settings, with the cache that the command line names.
fn with_cache(mut config: CellSettings, options: &ServeOptions) -> Result<CellSettings, Fail> {
    if let Some(dir) = &options.cache {
        let path = std::path::absolute(dir).ok().and_then(|path| path.to_str().map(str::to_string));
        config.disk_cache = path.ok_or_else(|| {
            Fail::new(format!("{}: name a directory whose path is UTF-8 for the cache", dir.display()))
        })?;
    }
    if let Some(bytes) = options.cache_bytes {
        config.disk_cache_mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    }
    config.check().map_err(|wrong| Fail::new(format!("--cache-size: {wrong}")))?;
    Ok(config)
}

fn metrics_addresses(options: &ServeOptions, config: &CellSettings) -> Result<Vec<SocketAddr>, Fail> {
    if !options.metrics.is_empty() {
        return Ok(options.metrics.clone());
    }
    config.metrics.iter().map(|text| metrics::http::parse(text).map_err(Fail::new)).collect()
}

/// Takes the lock. A keeper whose cell another server has taken meanwhile does not try again.
fn take_lock(env: &Env, dir: &CellDir, options: &ServeOptions) -> Result<CellLock, Fail> {
    let kept_by = options.kept.map(|kept| kept.pid);
    lock::take_to_serve(env, dir, kept_by).map_err(|e| match e {
        NotTaken::Held(holder) => {
            let is_served = holder.as_ref().is_some_and(|h| h.command == "up");
            let fail = lock::held(dir, holder.as_ref());
            if options.is_again() && is_served { fail.with_code(TAKEN_OVER) } else { fail }
        }
        NotTaken::Failed(fail) => fail,
    })
}

/// Refuses when a server is started again and another machine has taken the cell in the bucket over
/// meanwhile.
fn refuse_if_taken_over(dir: &CellDir, noted: Option<&Holder>, options: &ServeOptions) -> Result<(), Fail> {
    let Some(kept) = options.kept.filter(|_| options.is_again()) else { return Ok(()) };
    match noted {
        Some(holder) if !(holder.is_here() && holder.kept_by == Some(kept.pid)) => {
            Err(Fail::new(format!("{dir} was taken over by {holder}")).with_code(TAKEN_OVER))
        }
        _ => Ok(()),
    }
}

/// The directory of the cell; makes it where it is missing.
fn directory(options: &ServeOptions) -> Result<CellDir, Fail> {
    let dir = &*options.dir;
    if let Some(url) = dir.to_str().filter(|_| locate::is_bucket(dir.as_os_str())) {
        let mut cell = CellDir::in_bucket(url)?;
        cell.prepare()?;
        cell.hold().map_err(|e| Fail::new(format!("{}: {}", cell.path().display(), text(&e))))?;
        return Ok(cell);
    }
    locate::refuse_url(dir.as_os_str())?;
    let wrong = |what: String| Fail::new(format!("{}: {what}", dir.display()));
    if options.is_again() && !Cell::exists(dir) {
        return Err(wrong("the cell is not there any more".into()));
    }
    match std::fs::metadata(dir) {
        Ok(m) if m.is_dir() => (),
        Ok(_) => {
            return Err(wrong(
                "is not a directory: a cell needs a directory of its own, name another".into(),
            ));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => make_directory(dir)?,
        Err(e) => return Err(wrong(format!("{}: name a directory that you may enter", text(&e)))),
    }
    let another = |e: io::Error| wrong(format!("{}: name another directory", text(&e)));
    let mut found = CellDir::resolve(dir).map_err(another)?;
    found.hold().map_err(another)?;
    if let Some(mount) = mounts::all().into_iter().find(|m| m.at == found.path()) {
        let cell = mount.cell.display();
        return Err(wrong(format!("is where the cell {cell} is mounted: name that directory, or another")));
    }
    if found.place().is_none() && !Cell::exists(found.within()) {
        check_empty(&found)?;
    }
    Ok(found)
}

fn make_directory(dir: &Path) -> Result<(), Fail> {
    let why = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => "the directory above it does not exist: make that first".to_string(),
        io::ErrorKind::PermissionDenied => {
            "no permission to make it: name a directory in one that you may write to".to_string()
        }
        _ => format!("cannot be made: {}", text(&e)),
    };
    // Users must reach the mount point through it; its files are private.
    std::fs::create_dir(dir)
        .and_then(|()| std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)))
        .and_then(|()| sync_names(dir))
        .map_err(|e| Fail::new(format!("{}: {}", dir.display(), why(e))))
}

/// A new cell is made only in an empty directory. This is checked before the lock is put there, so
/// that a directory with other files stays as it is. Where there is a lock, an earlier call has
/// checked, and `Cell::create` judges what that call left.
fn check_empty(dir: &CellDir) -> Result<(), Fail> {
    let unreadable =
        |e: io::Error| Fail::new(format!("{dir}: {}: name a directory that you may read", text(&e)));
    let entries = std::fs::read_dir(dir.within()).map_err(unreadable)?;
    Cell::check_place(dir.path())?;
    if dir.lock().exists() {
        return Ok(());
    }
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        if name != SETTINGS && !MAKING.iter().any(|part| name == *part) {
            return Err(Fail::new(format!(
                "{dir}: holds no cell and is not empty (there is {}): name an empty or a new directory",
                output::printable(&name.to_string_lossy())
            )));
        }
    }
    if !system::may_write(dir.path()) {
        return Err(Fail::new(format!(
            "{dir}: no permission to write in it: change its owner (chown), or name another directory"
        )));
    }
    Ok(())
}

/// Removes mounts that killed processes left. One that cannot be removed is reported, and does not
/// hinder another mount point. A server that is started again knows that its own mount is dead.
fn detach_stale(env: &Env, dir: &CellDir, options: &ServeOptions, at: Option<&Path>) -> Vec<PathBuf> {
    let note = |fail: Fail| output::note(&format!("lee: {fail}"));
    let dead = at.and_then(mounts::resolve).filter(|_| options.is_again());
    mounts::detach_all_of(env, dir.path(), dead.as_deref())
        .into_iter()
        .filter_map(|r| r.map_err(note).ok())
        .collect()
}

/// Where to mount, if at all. Makes the default mount point where it is missing.
fn mount_point(dir: &CellDir, options: &ServeOptions) -> Result<Option<PathBuf>, Fail> {
    if !options.is_mounted {
        return Ok(None);
    }
    mount_point_of(dir, options.mount.as_deref(), options.is_again()).map(Some)
}

fn mount_point_of(dir: &CellDir, wanted: Option<&Path>, is_again: bool) -> Result<PathBuf, Fail> {
    let Some(wanted) = wanted else {
        let at = dir.mount_point();
        return match std::fs::create_dir(dir.within().join("mnt")) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(Fail::new(format!(
                "{}: cannot be made to mount there: {}: use --mount",
                at.display(),
                text(&e)
            ))),
            _ => Ok(at),
        };
    };
    if is_again {
        return Ok(wanted.to_path_buf()); // checked before; and a call on a dead mount may hang
    }
    let resolved = mounts::without_links(wanted).unwrap_or_else(|_| wanted.to_path_buf());
    if dir.path().starts_with(&resolved) {
        return Err(Fail::new(format!(
            "{}: mounting there would hide the cell itself: name an empty directory elsewhere",
            wanted.display()
        )));
    }
    Ok(wanted.to_path_buf())
}

/// Mounts. What programs wrote below the mount point while it was dead does not keep the mount
/// away.
fn mount_again(
    env: &Env,
    gate: &Gate,
    (dir, options): (&CellDir, &ServeOptions),
    at: PathBuf,
    stale: &[PathBuf],
) -> Result<Arc<Mount>, Fail> {
    let resolved = mounts::resolve(&at).filter(|at| !options.is_again() && stale.contains(at));
    let may_hide = options.is_again() || resolved.is_some();
    let at = resolved.unwrap_or(at);
    mount(env, gate, Options { may_hide, ..mount_options(dir, options) }, &at)
}

fn mount(env: &Env, gate: &Gate, options: Options, at: &Path) -> Result<Arc<Mount>, Fail> {
    leeward_fuse::mount(gate.clone(), env, at, options).map(Arc::new).map_err(|e| Fail::new(e.to_string()))
}

fn mount_options(dir: &CellDir, options: &ServeOptions) -> Options {
    mount_options::options(dir.path(), &options.mount_options)
}

/// Checks who may use the doors.
fn authority(env: &Env, cell: &Cell, config: &CellSettings) -> Result<Arc<Authority>, Fail> {
    let (people, fetch) = (Arc::new(Machine::default()), Arc::new(HttpFetch::new()));
    let authority = Authority::new(env, &config.issuer, cell.accounts(), people, fetch);
    let authority = authority.map(|authority| authority.with_certificates(&config.tls_users));
    authority.map(Arc::new).map_err(|wrong| Fail::new(format!("{SETTINGS}: {wrong}")))
}

/// Opens the doors, and makes sure that there is a key to sign tokens with: clients of HTTP ask for
/// tokens.
fn open_doors(
    env: &Env,
    bound: doors::Bound,
    (cell, gate): (&Arc<Cell>, &Gate),
    authority: &Arc<Authority>,
    (config, dir): (&CellSettings, &CellDir),
    console: Option<console::Parts>,
) -> Result<Doors, Fail> {
    if bound.has_http() {
        cell.prepare_tokens()?;
        authority.set_accounts(cell.accounts());
    }
    bound.open(Inside {
        env,
        cell: Arc::new(CellHere::new(env, cell, &config.srr)),
        files: Files::new(gate, env),
        authority,
        config,
        log: dir.log(),
        guard: None,
        host: String::new(),
        console,
    })
}

/// Posts an event when somebody unmounts.
fn watch_mount(env: &Env, mount: &Arc<Mount>, lifecycle: &Arc<Lifecycle>) {
    let (mount, lifecycle) = (mount.clone(), lifecycle.clone());
    env.spawn("mount-watch", move || {
        mount.wait();
        lifecycle.post(Event::Unmounted);
    });
}

/// Posts an event when another process has taken the cell over. Once the result is true the cell is
/// another's: somebody may hold it a moment longer than it is open here.
fn watch_cell(
    env: &Env,
    (cell, dir): (&Arc<Cell>, &CellDir),
    lifecycle: &Arc<Lifecycle>,
    own: Option<&Own>,
) -> Arc<AtomicBool> {
    let (is_left, member) = (Arc::new(AtomicBool::new(false)), own.map(Own::member));
    if dir.place().is_none() {
        return is_left; // nobody takes a cell in a directory
    }
    let (cell, lifecycle, clock) = (Arc::downgrade(cell), lifecycle.clone(), env.clone());
    let left = is_left.clone();
    env.spawn("cell-watch", move || {
        while let Some(why) = cell.upgrade().map(|cell| cell.lost()) {
            match why {
                Some(_) if left.load(Ordering::Acquire) => return,
                Some(why) => match &member {
                    Some(member) => member.quit(&why),
                    None => return lifecycle.post(Event::Lost(why)),
                },
                None => clock.sleep(LOST_STEP),
            }
        }
    });
    is_left
}

/// Answers the calls of the control socket.
struct CellService {
    cell: Arc<Cell>,
    gate: Gate,
    /// Checks who may use the doors.
    authority: Arc<Authority>,
    /// Held while the gate reads weights and ceilings again, or the doors users and keys: the last
    /// change counts.
    refreshing: Mutex<()>,
    /// Where it is mounted, and how the kernel's requests come; `None`: nowhere.
    mount: Option<(PathBuf, String)>,
    /// Other machines, if it listens for them.
    machines: Option<Arc<Machines>>,
    /// Name of the cell.
    name: String,
    metrics: Vec<String>,
    /// Names and URLs of the doors, and their counters.
    doors: (Vec<(String, String)>, Vec<Arc<Figures>>),
    holder: Holder,
    /// The server before crashed, and nobody who asked for durability has heard of it.
    after_a_crash: AtomicBool,
    mirrors: Arc<Mirrors>,
    backups: Arc<Backups>,
    /// Of several servers of the cell, this one.
    member: Option<Arc<Member>>,
    /// Who is logged in to the console, and its URL as the settings have it; `None`: there is none.
    console: Option<(Arc<Sessions>, String)>,
    /// Runs the commands of users.
    commands: Weak<HostCommands>,
    lifecycle: Arc<Lifecycle>,
}

/// What `lee sync` is told once after a crash: what it is to make durable may have been lost.
fn crashed() -> Failure {
    let message = "everything written since the server's start is durable; but the server before crashed and was \
        started again: what was written before and not fsynced may be lost";
    Failure { message: message.into(), errno: libc::EIO }
}

/// A URL as browsers elsewhere can use it: with the name of this machine for all of its addresses.
fn reachable(url: &str) -> String {
    let all = ["://0.0.0.0:", "://[::]:"];
    let host = format!("://{}:", system::host());
    all.iter().fold(url.to_owned(), |url, any| url.replace(any, &host))
}

/// The connections of a door, for `lee status`.
fn door_connections(figures: &Figures) -> DoorConnections {
    let unfinished = figures.unfinished();
    DoorConnections {
        door: figures.door().name().into(),
        open: Family::ALL.iter().map(|f| figures.open(*f)).sum(),
        refused: figures.refused(),
        full: figures.is_full(),
        uploads: unfinished.uploads,
        upload_bytes: unfinished.bytes,
    }
}

impl CellService {
    /// Ends the sessions of users, keys and machines that are not let in any more.
    fn end_console_sessions(&self) {
        let (Some((sessions, _)), Some(commands)) = (&self.console, self.commands.upgrade()) else { return };
        let accounts = self.cell.accounts();
        sessions.keep(|who, by| {
            let is_let_in = match by {
                By::Link(Some(host)) => commands.lets_in(host),
                By::Key(id) => accounts.key(id).is_some(),
                By::Link(None) | By::Provider(..) => true,
            };
            let is_disabled = |name: &str| accounts.user(name).is_some_and(|user| user.disabled);
            is_let_in && !matches!(who, Who::User(name) if is_disabled(name))
        });
    }

    /// What an operator must look at.
    fn troubles(&self) -> Vec<Trouble> {
        let trouble = |what: String, runbook: &str| Trouble { what, runbook: runbook.into() };
        let of_cell = self.cell.troubles().into_iter().map(|of_cell| match of_cell {
            CellTrouble::Broken(_) => trouble(of_cell.to_string(), "LeewardBroken"),
            CellTrouble::Failing(_) => trouble(of_cell.to_string(), "LeewardStoreFailing"),
        });
        let mirrors = self.mirrors.troubles().into_iter().map(|what| trouble(what, "LeewardMirrorBad"));
        let copies = self.mirrors.late_copies().into_iter().map(|what| trouble(what, "LeewardCopyLate"));
        let backups = self.backups.troubles().into_iter().map(|what| trouble(what, "LeewardBackupBad"));
        of_cell.chain(mirrors).chain(copies).chain(backups).collect()
    }

    /// Reads again what a request has changed.
    fn refresh(&self, what: Refresh) {
        match what {
            Refresh::Nothing => (),
            Refresh::Flows => {
                let _alone = self.refreshing.lock();
                self.gate.set_flows(self.cell.flow_settings());
            }
            Refresh::Accounts | Refresh::Groups => {
                let _alone = self.refreshing.lock();
                self.authority.set_accounts(self.cell.accounts());
                self.end_console_sessions();
                match &self.machines {
                    Some(machines) if what == Refresh::Groups => machines.groups_changed(),
                    Some(machines) => machines.hosts_changed(),
                    None => (),
                }
            }
        }
    }
}

impl Service for CellService {
    fn admin(
        &self,
        caller: &Ctx,
        request: &AnyRequest,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<AnyReply, Failure> {
        let raises_format = matches!(request, AnyRequest::FormatRaise(_));
        if let Some(member) = &self.member {
            member.refuse_out_of_term()?;
            if raises_format {
                member.refuse_unknown_format(FORMAT)?;
            }
        }
        groups::refuse_unknown(&self.cell.accounts(), request)?;
        let reply = self.cell.admin_any(caller, request, progress);
        if let Some(member) = self.member.as_ref().filter(|_| raises_format) {
            member.note_format(self.cell.format());
        }
        // also of one that failed: what it changed may not be durable, and counts
        self.refresh(request.refresh());
        let reply = reply?;
        if matches!(request, AnyRequest::SyncAll(_)) && self.after_a_crash.swap(false, Ordering::AcqRel) {
            return Err(crashed());
        }
        Ok(reply)
    }

    fn running(&self) -> Result<Running, Failure> {
        let figures = self.cell.figures();
        let (stats, engine) = (figures.stats, figures.engine);
        Ok(Running {
            pid: self.holder.pid,
            host: self.holder.host.clone(),
            since: self.holder.since,
            mount: self.mount.as_ref().map(|(at, _)| at.clone()),
            channel: self.mount.as_ref().map(|(_, channel)| channel.clone()).unwrap_or_default(),
            listen: self.machines.as_ref().map_or_else(Vec::new, |machines| machines.addresses()),
            sessions: self.machines.as_ref().map_or(0, |machines| machines.sessions().len() as u64),
            metrics: self.metrics.clone(),
            doors: self.doors.0.clone(),
            door_connections: self.doors.1.iter().map(|f| door_connections(f)).collect(),
            version: env!("CARGO_PKG_VERSION").into(),
            volumes: figures.volumes,
            dirty_bytes: stats.dirty_bytes,
            snapshots: stats.snapshots,
            late_schedules: stats.late_schedules,
            late_scrubs: stats.late_scrubs,
            journal_bytes: (engine.journal_bytes, engine.journal_bytes_usual),
            format: self.cell.format(),
            newest_format: FORMAT,
            clock_ahead_secs: stats.clock_ahead_secs,
            troubles: self.troubles(),
            service: notify::is_wanted(),
            server: self.member.as_ref().map(|member| member.shown()),
        })
    }

    fn flows(&self) -> Flows {
        let report = self.gate.report();
        let losses = self.machines.as_ref().map_or_else(Vec::new, |machines| machines.losses());
        let of_losses = losses.iter().flat_map(|loss| loss.nodes.iter().copied());
        let nodes: BTreeSet<u64> = report.slow.iter().filter_map(|s| s.node).chain(of_losses).collect();
        let paths = nodes.into_iter().filter_map(|n| Some((n, self.cell.path_of(NodeId(n))?))).collect();
        let volumes = self.cell.volume_names(report.flows.iter().map(|flow| flow.volume));
        let dirty = self.cell.dirty_bytes().into_iter().map(|(flow, bytes)| (flow.uid, bytes)).collect();
        let machines = self.machines.as_ref().map_or_else(Vec::new, |machines| machines.figures());
        Flows { report, paths, volumes, dirty_bytes: dirty, machines, losses }
    }

    fn sessions(&self) -> Vec<MachineSession> {
        self.machines.as_ref().map_or_else(Vec::new, |machines| machines.sessions())
    }

    fn end_session(&self, number: u64) -> bool {
        self.machines.as_ref().is_some_and(|machines| machines.end_session(number))
    }

    fn console_link(&self, who: Who, host: Option<&str>) -> Result<ConsoleLink, Failure> {
        let refuse = |message: &str| Failure { message: message.into(), errno: libc::EOPNOTSUPP };
        let Some((sessions, url)) = &self.console else {
            return Err(refuse(
                "there is no console: remove `console = false` from the settings of the cell",
            ));
        };
        let of_http = self.doors.0.iter().filter(|(door, _)| door == Door::Http.name());
        let urls: Vec<String> = match url.is_empty() {
            true => of_http.map(|(_, url)| reachable(url)).collect(),
            false => vec![url.trim_end_matches('/').to_owned()],
        };
        if urls.is_empty() {
            return Err(refuse(
                "the HTTP door is not open, which has the console: lee up --http, or `http` in the settings",
            ));
        }
        let (user, code) = (who.to_string(), sessions.code(who, host));
        let urls = urls.iter().map(|url| format!("{url}/console/login?code={code}")).collect();
        Ok(ConsoleLink { urls, user, valid_secs: CODE_GOOD / 1_000_000_000 })
    }

    fn make_token(&self, caller: &Ctx, wanted: &TokenMake) -> Result<NewToken, Failure> {
        tokens::make(wanted, |request| {
            // which may wait: the cell checks after that, and it is signed at once
            let known = self.authority.user(&wanted.user, Wait::Allowed);
            known.map_err(|e| tokens::refused(&e))?;
            // the cell checks who may, and keeps who has made which
            self.admin(caller, &wanted.clone().into(), &mut |_| ())?;
            self.authority.token_of(&wanted.user, request, Wait::Allowed).map_err(|e| tokens::refused(&e))
        })
    }

    fn backups(
        &self,
        call: &BackupCall,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<BackupStatus>, Failure> {
        if let Some(member) = &self.member {
            member.refuse_out_of_term()?;
        }
        self.backups.answer(call, progress)
    }

    fn mirrors(
        &self,
        call: &MirrorCall,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<MirrorStatus>, Failure> {
        if let Some(member) = &self.member {
            member.refuse_out_of_term()?;
        }
        self.mirrors.answer(call, progress)
    }

    fn down(&self) {
        self.lifecycle.set(Stage::Ending(format!("ending {}", self.name)));
        self.lifecycle.post(Event::Down);
    }

    fn hears_of_end(&self, hears: bool) {
        self.lifecycle.hears_of_end(hears);
    }

    fn next_stage(&self, last: &str) -> Result<Option<String>, Failure> {
        self.lifecycle.next_stage(last)
    }
}
