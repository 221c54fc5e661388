//! What a server sees of the others, and of whose the cell is.

use crate::record::{Damaged, MAP, Map, Record, State, decode, encode, is_record, record_name};
use crate::store::{Failed, Store};
use crate::times::{GONE, KEPT, LOOK_AT_ALL, LOOKED, OVER, SILENT, UNWANTED};
use leeward_env::{Env, Nanos, Term};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rounds of one step: to mark, to take, to see it.
const ROUNDS: usize = 4;
/// The map is not there, although there are servers.
const NO_MAP: &str = "the object servers/map is missing, though there are servers of this cell: end them all, remove \
    what is below servers/, and start them again";

/// A turn of this server at the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number, higher than that of any turn before.
    pub number: u64,
    /// Nobody is answered before this time of [`Env::now`]: a server before may answer until then.
    pub not_before: Nanos,
    /// The server before has not left the cell in order.
    pub after_crash: bool,
}

/// A server that was seen.
struct Seen<T> {
    record: Record,
    /// Its version; `None`: the record is gone.
    tag: Option<T>,
    /// When it was seen to have changed, by the answer that said so.
    changed: Nanos,
    /// It was seen to change: somebody renews it, or did.
    was_renewed: bool,
}

/// Watches the map and the other servers.
pub struct Watching<S: Store> {
    env: Env,
    store: Arc<S>,
    id: String,
    map: Option<(Map, S::Tag)>,
    /// Since when the cell is seen to be there for whoever takes it.
    free_since: Option<Nanos>,
    servers: BTreeMap<String, Seen<S::Tag>>,
    /// When the last look that was answered began.
    looked: Nanos,
    /// When it had ended.
    ended: Nanos,
    looks: u64,
    /// The last turn that was told.
    told: u64,
    /// At the last look this server was not in time.
    was_late: bool,
}

impl<S: Store> Watching<S> {
    /// For the server with this id.
    pub fn new(env: &Env, store: &Arc<S>, id: &str) -> Watching<S> {
        Watching {
            env: env.clone(),
            store: store.clone(),
            id: id.to_owned(),
            map: None,
            free_since: None,
            servers: BTreeMap::new(),
            looked: 0,
            ended: 0,
            looks: 0,
            told: 0,
            was_late: false,
        }
    }

    /// The map as it was seen last.
    pub fn map(&self) -> Option<&Map> {
        self.map.as_ref().map(|(map, _)| map)
    }

    /// The servers that were seen to renew their records lately; of this one's own it is known.
    pub fn living(&self) -> impl Iterator<Item = &Record> {
        let lives = |seen: &&Seen<S::Tag>| {
            let is_renewed = seen.was_renewed || seen.record.id == self.id;
            let is_heard = self.looked.saturating_sub(seen.changed) < SILENT;
            seen.tag.is_some() && seen.record.state == State::Alive && is_renewed && is_heard
        };
        self.servers.values().filter(lives).map(|seen| &seen.record)
    }

    /// Whether another server would take the cell, which has this format, now.
    pub fn has_successor(&self, format: u32) -> bool {
        self.living().any(|record| record.id != self.id && !record.draining && record.knows(format))
    }

    /// Makes the map, where this is the first server that the cell ever has. Before the server's
    /// own record is made: so where there is a record, there was a map.
    ///
    /// # Errors
    /// For a person: the store does not answer, or the map was removed.
    pub fn prepare(&self) -> Result<(), String> {
        let text = |e: Failed| e.to_string();
        if self.store.get(MAP).map_err(text)?.is_some() {
            return Ok(());
        }
        if self.store.names().map_err(text)?.iter().any(|name| is_record(name)) {
            return if self.store.get(MAP).map_err(text)?.is_some() { Ok(()) } else { Err(NO_MAP.into()) };
        }
        // later than all versions that a map before may have had
        let version = self.wall_secs().max(1);
        self.store.create(MAP, encode(&Map { version, ..Map::default() })).or_else(unless_away)
    }

    /// Looks at all, and does what is to be done: marks an owner that is silent, takes what is
    /// nobody's. A turn of this server is told once.
    ///
    /// # Errors
    /// For a person: the store does not answer, or an object is damaged.
    pub fn step(&mut self, term: &Term, draining: bool) -> Result<Option<Turn>, String> {
        for _ in 0..ROUNDS {
            self.look().map_err(|e| e.to_string())?;
            let (map, tag) = self.map.clone().ok_or(NO_MAP)?;
            if map.owner.as_deref() == Some(&self.id) {
                self.free_since = None;
                return Ok(self.turn(&map));
            }
            let owner = map.owner.as_deref();
            let state = owner.map_or(State::Ended, |owner| self.state_of(owner));
            self.free_since = (state != State::Alive).then(|| self.free_since.unwrap_or(self.looked));
            let is_unwanted =
                self.free_since.is_some_and(|since| self.looked.saturating_sub(since) > UNWANTED);
            // who is not in time marks nobody and takes nothing (O4)
            if !term.holds(self.env.now()) {
                self.was_late = true;
                return Ok(None);
            }
            if std::mem::take(&mut self.was_late) {
                // a store that took none of this server's puts may have taken none of the others'
                self.give_time();
                return Ok(None);
            }
            match (state, owner) {
                (State::Alive, Some(owner)) if self.is_silent(owner) => self.mark(owner)?,
                (State::Alive, _) => return Ok(None),
                _ if draining && !is_unwanted => return Ok(None),
                (State::Dead, owner) => self.take(&map, &tag, owner)?,
                (State::Ended, _) => self.take(&map, &tag, None)?,
            }
        }
        Ok(None)
    }

    /// Leaves the cell, which this server owns and answers nothing of any more, to the others (O24
    /// to O26). True: it is another's, or nobody's. False: it is not known to be, and may still
    /// become so: this server has to end.
    pub fn leave(&mut self) -> bool {
        self.free_since = None;
        for _ in 0..3 {
            match self.map.clone() {
                Some((map, tag)) if map.owner.as_deref() == Some(&self.id) => {
                    // heard or not: what the map says counts (O3)
                    let _ = self.store.swap(MAP, encode(&map.left()), &tag);
                }
                Some(_) => return true,
                None => (),
            }
            if self.look().is_err() {
                return false;
            }
        }
        self.map().is_some_and(|map| map.owner.as_deref() != Some(&self.id))
    }

    /// Removes records of servers that are over for long. For the owner.
    pub fn tidy(&mut self) {
        let after = self.map().map(|map| map.after.clone()).unwrap_or_default();
        let owner = self.map().and_then(|map| map.owner.clone());
        // also one that was killed while it stood by: nobody marks that
        let is_old = |seen: &Seen<S::Tag>| self.looked.saturating_sub(seen.changed) > KEPT;
        let old: Vec<String> =
            self.servers.iter().filter(|(_, seen)| is_old(seen)).map(|(id, _)| id.clone()).collect();
        for id in old.iter().filter(|id| !after.contains(id) && owner.as_ref() != Some(id)) {
            if self.store.delete(&record_name(id)).is_ok() {
                self.servers.remove(id);
            }
        }
    }

    fn look(&mut self) -> Result<(), LookFailed> {
        let asked = self.env.now();
        let found = self.store.get(MAP)?;
        let map = found.map(|(body, tag)| decode::<Map>(MAP, &body).map(|map| (map, tag))).transpose()?;
        let owner = map.as_ref().and_then(|(map, _)| map.owner.clone());
        let after = map.as_ref().map(|(map, _)| map.after.clone()).unwrap_or_default();
        self.map = map;
        self.look_at_servers(owner, after)?;
        if asked.saturating_sub(self.ended) > LOOKED {
            // the store was away, or this process: others may not have been able to renew
            self.give_time();
        }
        (self.looked, self.ended) = (asked, self.env.now());
        self.looks += 1;
        Ok(())
    }

    /// Those that were not gone for long before, and the owner, count as seen just now.
    fn give_time(&mut self) {
        let (now, looked) = (self.env.now(), self.looked);
        let owner = self.map().and_then(|map| map.owner.clone());
        for (id, seen) in &mut self.servers {
            let is_fresh = looked.saturating_sub(seen.changed) < GONE || owner.as_ref() == Some(id);
            if is_fresh && seen.record.state == State::Alive {
                seen.changed = now;
            }
        }
    }

    fn look_at_servers(&mut self, owner: Option<String>, after: Vec<String>) -> Result<(), LookFailed> {
        let known: Vec<String> = owner.into_iter().chain(after).collect();
        // dead ones do not change
        let mut due: Vec<String> = known.first().cloned().into_iter().collect();
        due.extend(known.iter().filter(|id| !self.servers.contains_key(*id)).cloned());
        if self.looks.is_multiple_of(LOOK_AT_ALL) {
            let names = self.store.names()?;
            let ids = names.iter().filter(|name| is_record(name)).filter_map(|name| name.split_once('-'));
            let ids: Vec<String> = ids.map(|(_, id)| id.to_owned()).collect();
            let gone: Vec<String> = self.servers.keys().filter(|id| !ids.contains(id)).cloned().collect();
            for id in gone {
                match known.contains(&id) {
                    true => due.push(id),
                    false => _ = self.servers.remove(&id),
                }
            }
            let is_over =
                |id: &String| self.servers.get(id).is_some_and(|seen| seen.record.state != State::Alive);
            due.extend(ids.into_iter().filter(|id| !is_over(id)));
        }
        due.sort();
        due.dedup();
        due.iter().try_for_each(|id| self.look_at(id))
    }

    fn look_at(&mut self, id: &str) -> Result<(), LookFailed> {
        let name = record_name(id);
        let found = self.store.get(&name)?;
        let now = self.env.now();
        let read = found.and_then(|(body, tag)| match decode::<Record>(&name, &body) {
            Ok(record) => Some((record, tag)),
            Err(damaged) => {
                // its server finds the same, and ends
                tracing::warn!("{damaged}");
                None
            }
        });
        match (read, self.servers.get_mut(id)) {
            // a mark is no sign of life: when the last renewal was seen counts
            (Some((record, tag)), Some(seen))
                if seen.tag.is_some() && seen.record.renewals == record.renewals =>
            {
                (seen.record, seen.tag) = (record, Some(tag));
            }
            (Some((record, tag)), before) => {
                let was_renewed = before.is_some();
                self.servers
                    .insert(id.to_owned(), Seen { record, tag: Some(tag), changed: now, was_renewed });
            }
            // gone since it is seen to be
            (None, Some(seen)) if seen.tag.is_some() => (seen.tag, seen.changed) = (None, now),
            (None, Some(_)) => (),
            (None, None) => {
                self.servers.insert(
                    id.to_owned(),
                    Seen { record: unknown(id), tag: None, changed: now, was_renewed: false },
                );
            }
        }
        Ok(())
    }

    /// How a server is that owns the cell. One whose record is gone answers nothing when it has
    /// been gone for long enough: it cannot renew it.
    fn state_of(&self, id: &str) -> State {
        match self.servers.get(id) {
            Some(seen) if seen.tag.is_some() => seen.record.state,
            Some(_) => State::Dead,
            None => State::Alive,
        }
    }

    fn is_silent(&self, id: &str) -> bool {
        self.servers.get(id).is_some_and(|seen| self.looked.saturating_sub(seen.changed) >= SILENT)
    }

    fn mark(&mut self, id: &str) -> Result<(), String> {
        let Some(Seen { record, tag: Some(tag), .. }) = self.servers.get(id) else { return Ok(()) };
        tracing::warn!(
            "the server {id} on {} has not been heard of for {} ms",
            record.host,
            SILENT / 1_000_000
        );
        let dead = Record { state: State::Dead, orders: record.orders + 1, ..record.clone() };
        self.store.swap(&record_name(id), encode(&dead), tag).map(drop).or_else(unless_away)
    }

    fn take(&mut self, map: &Map, tag: &S::Tag, from_dead: Option<&str>) -> Result<(), String> {
        // whose term is over for long need not be waited for by those who come later
        let now = self.env.now();
        let may_answer = |id: &String| self.servers.get(id).is_none_or(|seen| now < seen.changed + OVER);
        let after = map.after.iter().filter(|id| may_answer(id)).cloned().collect();
        let taken = Map { after, ..map.clone() }.taken_by(&self.id, from_dead, self.wall_secs());
        self.store.swap(MAP, encode(&taken), tag).map(drop).or_else(unless_away)
    }

    fn wall_secs(&self) -> u64 {
        self.env.wall() / 1_000_000_000
    }

    /// The turn that the map gives this server.
    fn turn(&mut self, map: &Map) -> Option<Turn> {
        if map.epoch <= self.told {
            return None;
        }
        self.told = map.epoch;
        let over = |id: &String| self.servers.get(id).map(|seen| seen.changed + OVER);
        let not_before = map.after.iter().filter_map(over).max().unwrap_or_default();
        Some(Turn { number: map.epoch, not_before, after_crash: map.after_crash })
    }
}

/// Of a server that was never seen.
fn unknown(id: &str) -> Record {
    Record { id: id.to_owned(), state: State::Dead, ..Record::default() }
}

/// Why a look came to nothing.
enum LookFailed {
    Store(Failed),
    Damaged(Damaged),
}

impl From<Failed> for LookFailed {
    fn from(e: Failed) -> LookFailed {
        LookFailed::Store(e)
    }
}

impl From<Damaged> for LookFailed {
    fn from(e: Damaged) -> LookFailed {
        LookFailed::Damaged(e)
    }
}

impl std::fmt::Display for LookFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LookFailed::Store(e) => e.fmt(f),
            LookFailed::Damaged(e) => e.fmt(f),
        }
    }
}

/// Somebody was faster: the next look shows who.
fn unless_away(failed: Failed) -> Result<(), String> {
    match failed {
        Failed::Conflict => Ok(()),
        away @ Failed::Away(_) => Err(away.to_string()),
    }
}
