//! Metrics for Prometheus: `lee up --metrics ADDRESS`.
//!
//! [`table`] is the one list of metrics: name, kind, labels, help and the source of the value. The
//! text for a scraper (`text`) and `docs/METRICS.md` are both made from it. [`http`] serves it, and
//! knows nothing of metrics. [`busiest`] limits the series: the busiest volumes and users have
//! their own, the others count together.
//!
//! Nothing is collected between scrapes: the layers count for themselves, and a scrape reads the
//! counts.

mod busiest;
#[cfg(test)]
mod files;
pub mod http;
mod process;
mod table;
mod text;

use crate::backup::{BackupStatus, Backups};
use crate::control::ServerState;
use crate::machines::Machines;
use crate::mirror::{MirrorStatus, Mirrors};
use crate::servers::Member;
use busiest::Busiest;
use leeward_door::listen::Figures as DoorFigures;
use leeward_env::histogram::{BUCKETS, Histogram};
use leeward_env::waits::Cause;
use leeward_env::{Door, Env};
use leeward_fs::VIEW_FIRST;
use leeward_remote::HostFigures;
use leeward_vfs::Gate;
use leeward_vfs::ledger::{OTHER_USERS, OpReport, Totals, UserWaits, VolumeReport};
use leeward_volume::admin::CopyStatus;
use leeward_volume::{Cell, Figures};
use parking_lot::Mutex;
use process::Usage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
pub use text::CONTENT_TYPE;

/// The label of keys without a series of their own.
const OTHER: &str = "other";
/// The label of reads in snapshots, of all volumes.
const SNAPSHOTS: &str = "snapshots";
/// Counts of a volume: buckets, then nanoseconds, errors, bytes read, bytes written.
const OF_VOLUME: usize = BUCKETS + 4;
/// Counts of a user: nanoseconds waited by cause, then those that others waited behind the user.
const OF_USER: usize = Cause::ALL.len() + 1;
/// Counts of a host: requests, bytes read, bytes written, nanoseconds, nanoseconds that others
/// waited for it, changes lost.
const OF_HOST: usize = 6;

/// The source of metrics.
pub struct Source {
    cell: Arc<Cell>,
    gate: Gate,
    env: Env,
    /// When the process began to serve, seconds since 1970.
    since: i64,
    busy: Mutex<Busy>,
    doors: Vec<Arc<DoorFigures>>,
    /// Other machines, if it listens for them.
    machines: Option<Arc<Machines>>,
    /// This process among several servers of the cell.
    member: Option<Arc<Member>>,
    /// Copies in other cells.
    mirrors: Weak<Mirrors>,
    /// Cold stores.
    backups: Weak<Backups>,
}

/// The text that a scraper reads of a process that has doors and no cell: figures of doors and of
/// the process.
pub fn of_doors(doors: &[Arc<DoorFigures>], since: i64) -> String {
    let of_process = ["leeward_build_info", "leeward_start_time_seconds"];
    let is_wanted = |name: &str| {
        let of_door = name.starts_with("leeward_door_") && !name.starts_with("leeward_door_upload");
        of_door || name.starts_with("leeward_process_") || of_process.contains(&name)
    };
    let scrape = Scrape { doors: doors.to_vec(), process: Usage::now(), since, ..Scrape::default() };
    text::exposition(&scrape, is_wanted)
}

#[derive(Default)]
struct Busy {
    volumes: BTreeMap<Door, Busiest<u32, OF_VOLUME>>,
    users: Busiest<u32, OF_USER>,
    hosts: Busiest<u32, OF_HOST>,
}

/// All values of one scrape.
#[derive(Default)]
pub struct Scrape {
    figures: Figures,
    latency: Vec<OpReport>,
    waiting_for_turn: u64,
    waiting_for_ceiling: u64,
    waiting_for_thread: u64,
    volumes: Vec<(Door, String, OfVolume)>,
    users: Vec<(String, [u64; OF_USER])>,
    hosts: Vec<OfHost>,
    /// Of a cell that several servers may share.
    server: Option<ServerState>,
    mirrors: Vec<MirrorStatus>,
    copies: Vec<CopyStatus>,
    backups: Vec<BackupStatus>,
    /// Leases, recalls so far, and how often all leases of a machine were taken so far.
    leases: (usize, u64, u64),
    doors: Vec<Arc<DoorFigures>>,
    process: Usage,
    since: i64,
    took_nanos: u64,
}

/// What other machines have asked for.
struct OfHost {
    name: String,
    /// Connected now.
    sessions: u64,
    requests: u64,
    read_bytes: u64,
    written_bytes: u64,
    nanos: u64,
    waited_for_nanos: u64,
    lost: u64,
}

/// Counts of operations in a volume.
struct OfVolume {
    latency: Histogram,
    errors: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Source {
    /// Metrics of a cell and the gate before it, and of what this process sees of other servers.
    pub fn new(cell: &Arc<Cell>, gate: &Gate, env: &Env, since: i64, member: Option<Arc<Member>>) -> Source {
        let (cell, gate, env) = (cell.clone(), gate.clone(), env.clone());
        Source {
            cell,
            gate,
            env,
            since,
            busy: Mutex::default(),
            doors: Vec::new(),
            machines: None,
            member,
            mirrors: Weak::new(),
            backups: Weak::new(),
        }
    }

    /// Adds the figures of these doors.
    pub fn set_doors(&mut self, doors: Vec<Arc<DoorFigures>>) {
        self.doors = doors;
    }

    /// Adds the figures of these machines.
    pub fn set_machines(&mut self, machines: Option<Arc<Machines>>) {
        self.machines = machines;
    }

    /// Adds the figures of these backups.
    pub fn set_backups(&mut self, backups: &Arc<Backups>) {
        self.backups = Arc::downgrade(backups);
    }

    /// Adds the figures of these mirrors.
    pub fn set_mirrors(&mut self, mirrors: &Arc<Mirrors>) {
        self.mirrors = Arc::downgrade(mirrors);
    }

    /// The text that a scraper reads.
    pub fn text(&self) -> String {
        text::exposition(&self.scrape(), |_| true)
    }

    fn scrape(&self) -> Scrape {
        let begun = self.env.now();
        // one scrape at a time: the busiest keys depend on the scrape before
        let mut busy = self.busy.lock();
        let totals = self.gate.totals();
        let Totals { latency, volumes, waits, waiting_for_turn, waiting_for_ceiling, .. } = totals;
        let (waiting_for_thread, waited_for) = (totals.waiting_for_thread, totals.for_machine_nanos);
        let names = self.cell.volume_names(volumes.iter().map(|v| v.volume));
        let name = |id: &u32| volume_label(&names, *id);
        let doors: BTreeSet<Door> = volumes.iter().map(|v| v.door).chain([Door::Mount]).collect();
        let mut shown = Vec::new();
        for door in doors {
            let counts = volumes.iter().filter(|v| v.door == door).map(|v| (v.volume, of_volume(v)));
            let busiest = busy.volumes.entry(door).or_default().update(counts, name);
            shown.extend(busiest.into_iter().map(|(name, counts)| (door, name, OfVolume::from(counts))));
        }
        let user = |uid: &u32| (*uid != OTHER_USERS).then(|| uid.to_string());
        let users = busy.users.update(waits.iter().map(|w| (w.uid, of_user(w))), user);
        Scrape {
            figures: self.cell.figures(),
            latency,
            waiting_for_turn,
            waiting_for_ceiling,
            waiting_for_thread,
            volumes: shown,
            users,
            hosts: self
                .machines
                .as_ref()
                .map_or_else(Vec::new, |machines| hosts(&machines.figures(), &waited_for, &mut busy.hosts)),
            server: self.member.as_ref().map(|member| member.shown()),
            backups: self.backups.upgrade().and_then(|all| all.status().ok()).unwrap_or_default(),
            mirrors: self.mirrors.upgrade().and_then(|all| all.status().ok()).unwrap_or_default(),
            copies: self.mirrors.upgrade().map(|all| all.copies()).unwrap_or_default(),
            leases: self.cell.leases().figures(),
            doors: self.doors.clone(),
            process: Usage::now(),
            since: self.since,
            took_nanos: self.env.now().saturating_sub(begun),
        }
    }
}

/// The busiest machines, and the others together.
fn hosts(
    all: &[HostFigures],
    waited_for: &BTreeMap<String, u64>,
    busiest: &mut Busiest<u32, OF_HOST>,
) -> Vec<OfHost> {
    let counts = all.iter().map(|f| {
        let waited_for = waited_for.get(&f.host).copied().unwrap_or(0);
        (f.number, [f.requests, f.read_bytes, f.written_bytes, f.nanos, waited_for, f.lost])
    });
    let named: BTreeMap<u32, &HostFigures> = all.iter().map(|f| (f.number, f)).collect();
    let label = |number: &u32| named.get(number).map(|f| host_label(&f.host));
    let shown = busiest.update(counts, label);
    let names: BTreeSet<String> = shown.iter().map(|(name, _)| name.clone()).collect();
    let mut sessions: BTreeMap<String, u64> = BTreeMap::new();
    for f in all {
        let name = Some(host_label(&f.host)).filter(|name| names.contains(name));
        *sessions.entry(name.unwrap_or_else(|| OTHER.into())).or_default() += f.sessions;
    }
    let of = |(name, counts): (String, [u64; OF_HOST])| {
        let [requests, read_bytes, written_bytes, nanos, waited_for_nanos, lost] = counts;
        let sessions = sessions.get(&name).copied().unwrap_or(0);
        OfHost { name, sessions, requests, read_bytes, written_bytes, nanos, waited_for_nanos, lost }
    };
    shown.into_iter().map(of).collect()
}

/// Names of hosts have no slash, which keeps them apart from labels of ours.
fn host_label(name: &str) -> String {
    if name == OTHER { format!("/{name}") } else { name.into() }
}

/// The name of a volume; `None` when it does not exist any more. Names of volumes have no slash,
/// which keeps them apart from labels of ours.
fn volume_label(names: &BTreeMap<u32, String>, id: u32) -> Option<String> {
    if id >= VIEW_FIRST {
        return Some(SNAPSHOTS.into());
    }
    let name = names.get(&id)?;
    Some(if name == OTHER || name == SNAPSHOTS { format!("/{name}") } else { name.clone() })
}

fn of_volume(v: &VolumeReport) -> [u64; OF_VOLUME] {
    let mut counts = [0; OF_VOLUME];
    counts[..BUCKETS].copy_from_slice(&v.latency.counts);
    counts[BUCKETS..].copy_from_slice(&[v.latency.nanos, v.errors, v.read_bytes, v.written_bytes]);
    counts
}

impl From<[u64; OF_VOLUME]> for OfVolume {
    fn from(counts: [u64; OF_VOLUME]) -> OfVolume {
        let mut latency = Histogram { nanos: counts[BUCKETS], ..Histogram::default() };
        latency.counts.copy_from_slice(&counts[..BUCKETS]);
        let [_, errors, read_bytes, written_bytes] = counts[BUCKETS..] else {
            unreachable!("four after the buckets")
        };
        OfVolume { latency, errors, read_bytes, written_bytes }
    }
}

fn of_user(w: &UserWaits) -> [u64; OF_USER] {
    let mut counts = [0; OF_USER];
    counts[..Cause::ALL.len()].copy_from_slice(&w.waited_nanos);
    counts[Cause::ALL.len()] = w.behind_nanos;
    counts
}
