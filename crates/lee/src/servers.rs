//! This process as one of several servers of a cell in a bucket (docs/decisions/0038): its record,
//! its term, what it sees of the others, and its turns.
//!
//! Two threads work for it: `server-renew` renews the record, `server-look` looks at the map and
//! the others. Neither waits for the cell. What they find is posted to the process as [`News`]. A
//! process that may not answer any more ends at once, whatever it does ([`Member::quit`]): what it
//! has not made durable its clients do again at the next server.
//!
//! Locks, in this order: `renewing`, `watching`, `seen`.

use crate::control::ServerState;
use crate::fail::{BEGIN_ANEW, Fail};
use crate::locate::CellDir;
use crate::place;
use crate::system;
use leeward_bucket::{Bucket, Location};
use leeward_env::{Env, Term, hex};
use leeward_remote::{Keys, ServerList};
use leeward_servers::{
    Map, Record, Renewing, Standing, State, Turn, Watching, overview, predecessors_ended, times,
};
use leeward_vfs::Gate;
use leeward_volume::admin::Failure;
use leeward_volume::{Cell, FORMAT};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The object with the key of the cell, by which servers that stand by show who they are.
const KEY: &str = "servers/key";
/// Each so many renewals a server that is to be drained is told so again.
const DRAIN_RENEWALS: u64 = 4;
/// How often a server that waits for the end of another's term looks at the clock.
const TERM_STEP: Duration = Duration::from_millis(10);
/// How long the end waits for a renewal that is under way.
const END_TIME: Duration = Duration::from_secs(2);

/// What a server hears of the others.
#[derive(Debug)]
pub enum News {
    /// It is this server's turn.
    Turn(Turn),
    /// An operator wants another server to have the cell.
    Drain,
}

/// This process among the servers of a cell.
pub struct Member {
    env: Env,
    id: String,
    term: Term,
    place: Location,
    /// For calls that nobody may wait for long.
    bucket: Arc<Bucket>,
    /// Tells a person.
    say: Box<dyn Fn(&str) + Send + Sync>,
    renewing: Mutex<Renewing<Bucket>>,
    watching: Mutex<Watching<Bucket>>,
    seen: Mutex<Seen>,
    ended: AtomicBool,
    quitting: AtomicBool,
    /// The format of the cell as far as it is known; 0: this server has not had it.
    format: AtomicU32,
}

/// What was seen last.
#[derive(Default)]
struct Seen {
    map: Map,
    /// The records of servers that are alive and not silent.
    alive: Vec<Record>,
    draining: bool,
    /// Why nothing new is seen.
    trouble: Option<String>,
}

/// A turn of this process.
pub struct Own {
    pub member: Arc<Member>,
    pub turn: Turn,
}

impl Own {
    /// This process among the servers.
    pub fn member(&self) -> Arc<Member> {
        self.member.clone()
    }

    /// From now on answers are given within the term only, and the first one when the server before
    /// gives none any more.
    pub fn begin(&self, env: &Env, gate: &Gate) {
        gate.answer_within(self.member.term.clone());
        while env.now() < self.turn.not_before && !self.member.term.is_over() {
            env.sleep(TERM_STEP);
        }
    }
}

impl Member {
    /// Joins the servers of a cell, whose lock on this machine the caller has. `addresses`: where
    /// clients reach this one.
    ///
    /// # Errors
    /// The store does not answer, or cannot be used by several servers.
    pub fn join(
        env: &Env,
        cell: &CellDir,
        addresses: Vec<String>,
        post: impl Fn(News) + Clone + Send + Sync + 'static,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Arc<Member>, Fail> {
        let place = cell.place().ok_or_else(|| Fail::new("a cell in a directory has one server"))?.clone();
        let bucket = Bucket::impatient(&place).map_err(|e| Fail::new(e.to_string()))?;
        // before others count on it
        Cell::format_in(&bucket)?;
        if bucket.look("servers/map").map_err(|e| Fail::new(e.to_string()))?.is_none() {
            // once, before anything rests on it
            Cell::check_for_servers(env, &place::bucket(&place)?)?;
        }
        let (store, id, term) = (Arc::new(bucket), hex::encode(&env.secret::<8>()), Term::not_begun());
        let watching = Watching::new(env, &store, &id);
        let failed = |why: String| Fail::new(format!("{cell}: this server cannot join the others: {why}"));
        watching.prepare().map_err(failed)?;
        let lock = lock_of(cell);
        predecessors_ended(&*store, &lock).map_err(failed)?;
        let now = (env.wall() / 1_000_000_000) as i64;
        let record = Record {
            id: id.clone(),
            host: system::host(),
            pid: std::process::id(),
            lock,
            addresses,
            version: env!("CARGO_PKG_VERSION").into(),
            newest_format: FORMAT,
            since_secs: now,
            renewed_secs: now,
            ..Record::default()
        };
        let renewing = Renewing::begin(env, &store, record, &term).map_err(failed)?;
        env.count_within(&term);
        let member = Arc::new(Member {
            env: env.clone(),
            id,
            term,
            place,
            bucket: store,
            say: Box::new(say),
            renewing: Mutex::new(renewing),
            watching: Mutex::new(watching),
            seen: Mutex::default(),
            ended: AtomicBool::new(false),
            quitting: AtomicBool::new(false),
            format: AtomicU32::new(0),
        });
        let (renews, looks, tell) = (member.clone(), member.clone(), post.clone());
        env.spawn("server-renew", move || {
            let _lasts = Lasts(&renews);
            renews.renew(&tell);
        });
        env.spawn("server-look", move || {
            let _lasts = Lasts(&looks);
            looks.look(&post);
        });
        Ok(member)
    }

    /// Until when this process may answer.
    pub fn term(&self) -> &Term {
        &self.term
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn renew(&self, post: &impl Fn(News)) {
        let mut renewals = 0;
        while !self.has_ended() {
            let mut renewing = self.renewing.lock();
            if self.has_ended() {
                return;
            }
            let standing = renewing.renew();
            let draining = renewing.record().draining;
            match standing {
                Standing::Renewed => {
                    drop(renewing);
                    let before = std::mem::replace(&mut self.seen.lock().draining, draining);
                    if draining && (!before || renewals % DRAIN_RENEWALS == 0) {
                        post(News::Drain);
                    }
                    renewals += 1;
                }
                Standing::Late(why) => {
                    drop(renewing);
                    tracing::warn!("this server's record is not renewed: {why}");
                }
                Standing::Over(why) => {
                    drop(renewing);
                    self.quit(&why)
                }
            }
            self.env.sleep(times::RENEW);
        }
    }

    fn look(&self, post: &impl Fn(News)) {
        while !self.has_ended() {
            let mut watching = self.watching.lock();
            let draining = self.seen.lock().draining;
            let turn = watching.step(&self.term, draining);
            let trouble = turn.as_ref().err().cloned();
            let mut seen = self.seen.lock();
            if seen.trouble != trouble
                && let Some(why) = &trouble
            {
                tracing::warn!("the other servers are not seen: {why}");
            }
            seen.trouble = trouble;
            seen.map = watching.map().cloned().unwrap_or_default();
            seen.alive = watching.living().cloned().collect();
            let owns = seen.map.owner.as_ref() == Some(&self.id);
            drop(seen);
            if owns {
                watching.tidy();
            }
            drop(watching);
            if let Ok(Some(turn)) = turn {
                post(News::Turn(turn));
            }
            self.env.sleep(times::LOOK);
        }
    }

    /// Notes the format of the cell that this server has.
    pub fn note_format(&self, format: u32) {
        self.format.store(format, Ordering::Release);
    }

    /// Whether another server could take the cell at once.
    pub fn has_successor(&self) -> bool {
        self.watching.lock().has_successor(self.format.load(Ordering::Acquire))
    }

    /// Whether an operator wants it to serve nothing.
    pub fn is_draining(&self) -> bool {
        self.seen.lock().draining
    }

    /// Another server that has the cell, and was seen to live.
    pub fn other_owner(&self) -> Option<Record> {
        let seen = self.seen.lock();
        let owner = seen.map.owner.as_ref().filter(|owner| **owner != self.id)?;
        seen.alive.iter().find(|record| record.id == *owner).cloned()
    }

    /// Leaves the cell, which is closed, to the others. False: whose it is is not known, so this
    /// process has to end.
    pub fn leave(&self) -> bool {
        self.watching.lock().leave()
    }

    /// Says that this process serves nothing any more. Idempotent.
    pub fn end(&self) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        self.term.end();
        let ended = self.renewing.try_lock_for(END_TIME).map(|mut renewing| renewing.end());
        if let Err(why) = ended.unwrap_or_else(|| Err("the store does not answer".into())) {
            tracing::warn!("the other servers do not know that this one ends: {why}");
        }
    }

    /// Ends the process, which may not answer any more: nothing that it has in memory counts.
    /// Without a word to clients, which ask the next server for what was not answered.
    pub fn quit(&self, why: &str) -> ! {
        self.term.end();
        while self.quitting.swap(true, Ordering::AcqRel) {
            // another thread does it
            self.env.sleep(END_TIME);
        }
        (self.say)(&format!("{why}: this process ends"));
        self.end();
        std::process::exit(BEGIN_ANEW.into())
    }

    /// The servers that clients are told of by this one, which has the cell with this turn; `None`:
    /// which stands by.
    pub fn list(&self, turn: Option<u64>) -> ServerList {
        let seen = self.seen.lock();
        let first = match turn {
            Some(_) => Some(&self.id),
            None => seen.map.owner.as_ref(),
        };
        let mut alive: Vec<&Record> = seen.alive.iter().collect();
        alive.sort_by_key(|record| (first != Some(&record.id), record.draining, record.id.clone()));
        let addresses = alive.iter().flat_map(|record| record.addresses.iter().cloned()).collect();
        ServerList { turn: turn.unwrap_or(seen.map.epoch), addresses }
    }

    /// Refuses what would be answered from memory while another server may have the cell.
    ///
    /// # Errors
    /// `EAGAIN`.
    pub fn refuse_out_of_term(&self) -> Result<(), Failure> {
        if self.term.holds(self.env.now()) {
            return Ok(());
        }
        let trouble = self.seen.lock().trouble.clone().map_or_else(String::new, |why| format!(" ({why})"));
        let message = format!(
            "this server is not in touch with the store{trouble}, and may have lost the cell: try again"
        );
        Err(Failure { message, errno: libc::EAGAIN })
    }

    /// Refuses a format of the cell that a server does not know, which could not take the cell
    /// then.
    ///
    /// # Errors
    /// `EBUSY`: which server, and what to do; or the store's.
    pub fn refuse_unknown_format(&self, format: u32) -> Result<(), Failure> {
        let failed = |why| Failure { message: why, errno: libc::EIO };
        let all = overview(&*self.bucket).map_err(failed)?;
        // of this server it is known, whatever an older program has left out in giving it an order
        let is_older =
            |record: &&Record| record.id != self.id && record.state == State::Alive && !record.knows(format);
        let Some(older) = all.servers.iter().find(is_older) else { return Ok(()) };
        let knows = match older.newest_format {
            0 => "does not say which formats it knows".to_owned(),
            newest => format!("knows formats up to {newest} only"),
        };
        let message = format!(
            "the server {} on {} runs lee {}, which {knows}, not {format}: start the newer lee there, or, if it is \
             gone, forget it with lee server remove",
            older.id, older.host, older.version
        );
        Err(Failure { message, errno: libc::EBUSY })
    }

    /// For `lee status`.
    pub fn shown(&self) -> ServerState {
        let seen = self.seen.lock();
        let owner = seen.map.owner.as_ref();
        let host =
            |id: &String| seen.alive.iter().find(|record| record.id == *id).map(|record| record.host.clone());
        let format = self.format.load(Ordering::Acquire);
        let would_take = |record: &&Record| record.id != self.id && !record.draining && record.knows(format);
        ServerState {
            id: self.id.clone(),
            has_cell: owner == Some(&self.id),
            owner: owner.cloned(),
            owner_host: owner.and_then(host),
            turn: seen.map.epoch,
            servers: seen.alive.len() as u64,
            standing_by: seen.alive.iter().filter(would_take).count() as u64,
            draining: seen.draining,
            in_time: self.term.holds(self.env.now()),
            trouble: seen.trouble.clone(),
        }
    }

    /// The keys of the cell, if a server has left them for those that stand by.
    ///
    /// # Errors
    /// The store's, or that they are damaged.
    pub fn keys(&self) -> Result<Option<Keys>, Fail> {
        let Some(text) = self.bucket.look(KEY).map_err(|e| Fail::new(e.to_string()))? else {
            return Ok(None);
        };
        let damaged = || {
            Fail::new(format!(
                "{}/{KEY} is damaged: remove it, and the next server makes it anew",
                self.place
            ))
        };
        let seed = std::str::from_utf8(&text).ok().and_then(|text| hex::decode(text.trim()));
        let seed: [u8; 32] = seed.and_then(|seed| seed.try_into().ok()).ok_or_else(damaged)?;
        Keys::from_seed(&seed).map(Some).map_err(|_| damaged())
    }

    /// Leaves the key of the cell for servers that stand by. It is in the bucket already, among the
    /// cell's records.
    ///
    /// # Errors
    /// The store's.
    pub fn leave_key(&self, seed: &[u8; 32]) -> Result<(), Fail> {
        let (bucket, text) = (place::bucket(&self.place)?, hex::encode(seed));
        let failed = |e: leeward_bucket::Error| Fail::new(e.to_string());
        if bucket.get(KEY).map_err(failed)?.is_some_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        bucket.replace(KEY, text.into()).map_err(failed)
    }
}

/// The lock of the cell on this machine, which this process holds: no other machine has one of this
/// name, nor this machine after it was started anew. Empty: it is not known.
fn lock_of(cell: &CellDir) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let file = std::fs::metadata(cell.lock()).ok();
    boot.zip(file)
        .map_or_else(String::new, |(boot, file)| format!("{}-{}-{}", boot.trim(), file.dev(), file.ino()))
}

/// A thread without which a server is half dead: the process ends when it panics.
struct Lasts<'a>(&'a Member);

impl Drop for Lasts<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.quit("one of its threads has failed");
        }
    }
}

/// Where clients reach a server that listens at these addresses: on all addresses of a machine, by
/// its name.
pub fn reached_at(addresses: &[SocketAddr], advertised: &[String]) -> Vec<String> {
    if !advertised.is_empty() {
        return advertised.to_vec();
    }
    let mut all = Vec::new();
    for address in addresses {
        let text = match address.ip().is_unspecified() {
            true => format!("{}:{}", system::host(), address.port()),
            false => address.to_string(),
        };
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}
