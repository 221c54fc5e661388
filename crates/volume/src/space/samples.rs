//! Keeps what volumes, users, groups, pools and projects use: once a day, in bounded steps in the
//! background, a chunk of up to 256 of them a step. Where a day's sampling is, is stored with each
//! chunk.
//!
//! A day begins at 0:00 UTC. A cell that is not served then is sampled when it is, and a day on
//! which it is not has no samples. When the clock is set, the days that it shows are sampled:
//! samples of days that are yet to come stay, and say so much and no more.

use crate::format::keys;
use crate::format::samples::{
    Amounts, Chunk, SampleRecord, Sampled, SampledName, SampledNames, Samples, first_of_month,
    first_of_next_month,
};
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::quota::QuotaOf;
use crate::state::{Effect, State};
use crate::tx::{Tx, TxResult};
use leeward_env::Work;
use leeward_env::dates::DAY_SECS;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Error, NodeId, Result};
use leeward_meta::Value;
use std::collections::BTreeMap;

/// So many days each day is kept, and later the first of each month.
pub const DAILY_DAYS: u32 = 800;
/// So many days the first of each month is kept.
pub const MONTHLY_DAYS: u32 = 3660;
/// More records than a chunk has before the days of which each is kept.
const TRIM_RECORDS: usize = 4096;
const NANOS_PER_DAY: u64 = 1_000_000_000 * DAY_SECS as u64;
/// More records than a month has.
const MONTH_RECORDS: usize = 32;

/// What a chunk is now. Who has a name and no sample is there, but nobody knows now what it uses.
pub(crate) struct Now {
    samples: Samples,
    /// Names and owners of volumes, pools and projects.
    names: BTreeMap<u8, (String, u32)>,
}

impl Now {
    /// What they use, where nobody knows that as it was.
    pub(crate) fn over(&self, was: Option<&Samples>) -> Samples {
        let unknown = self.names.keys().filter(|at| !self.samples.contains_key(at));
        let as_before = unknown.filter_map(|at| Some((*at, *was?.get(at)?)));
        self.samples.iter().map(|(at, amounts)| (*at, *amounts)).chain(as_before).collect()
    }
}

impl Shard {
    /// The day of the clock, counted from 1970-01-01.
    pub(crate) fn today(&self) -> u32 {
        u32::try_from(self.now().secs.div_euclid(DAY_SECS)).unwrap_or(0)
    }

    /// One step of sampling; `true` when there was something to do.
    pub(crate) fn samples_step(&self) -> Result<bool> {
        let today = self.today();
        let Some(from) = self.lock().sampling.on(today) else { return Ok(false) };
        let ctx = self.work_ctx(Work::Census, None);
        let Some(chunk) = self.next_chunk(from)? else {
            self.transact(&ctx, |tx| {
                tx.sampled(today, None);
                Ok(())
            })?;
            return Ok(true);
        };
        let now = self.sample_now(chunk);
        self.transact(&ctx, |tx| tx.sample(chunk, today, &now))?;
        Ok(true)
    }

    /// The first chunk from this one on that has something, or has had.
    pub(crate) fn next_chunk(&self, from: u64) -> Result<Option<Chunk>> {
        let (start, end) = keys::all_samples(from);
        let stored = self.scan(&start, &end, 1)?.0;
        let stored = stored.first().and_then(|(key, _)| Chunk::of_id(keys::table_id(key)));
        let st = self.lock();
        let of_kind = |of: Sampled| {
            let first = Chunk::of_id(from).filter(|chunk| chunk.of == of).map_or(0, |chunk| chunk.member(0));
            let next = st.next_sampled(of, first)?;
            Some(Chunk::with(of, next)).filter(|chunk| chunk.id() >= from)
        };
        Ok(Sampled::ALL.into_iter().filter_map(of_kind).chain(stored).min())
    }

    /// What the members of a chunk are now.
    pub(crate) fn sample_now(&self, chunk: Chunk) -> Now {
        let members = self.lock().sampled_members(chunk);
        let (mut samples, mut names) = (Samples::new(), BTreeMap::new());
        for at in members {
            match self.amounts_of(chunk.of, chunk.member(at)) {
                Ok(Some(amounts)) => drop(samples.insert(at, amounts)),
                Ok(None) => {}
                // one that cannot be read takes no day from the others
                Err(e) => tracing::warn!("usage of {:?} {}: {e}", chunk.of, chunk.member(at)),
            }
            names.extend(self.lock().sampled_name(chunk.of, chunk.member(at)).map(|name| (at, name)));
        }
        Now { samples, names }
    }

    /// What one of them uses; `None`: it is gone, or nobody knows now.
    fn amounts_of(&self, of: Sampled, id: u64) -> Result<Option<Amounts>> {
        let owned = |st: &State, who| {
            let used = st.owners.used(None, who);
            Amounts { bytes: whole(used.bytes), inodes: whole(used.inodes()), more: 0 }
        };
        Ok(Some(match of {
            Sampled::Volume => {
                let usage = match self.usage(NodeId::new(id as u32, 1)) {
                    // it was removed meanwhile
                    Err(Error::NotFound | Error::Stale) => return Ok(None),
                    other => other?,
                };
                let st = self.lock();
                let is_kept = st.volumes.get(&(id as u32)).is_some_and(|v| v.properties.audit_days > 0);
                let more = if is_kept { st.events.head(id as u32).changed_at / NANOS_PER_DAY } else { 0 };
                Amounts { bytes: usage.bytes, inodes: usage.files + usage.dirs, more }
            }
            Sampled::User => owned(&self.lock(), UserOrGroup::User(id as u32)),
            Sampled::Group => owned(&self.lock(), UserOrGroup::Group(id as u32)),
            Sampled::Project => {
                let (st, of) = (self.lock(), QuotaOf::Project(id as u32));
                let Some(project) = st.projects.get(id as u32) else { return Ok(None) };
                let used = st.quotas.used(of);
                let bytes = whole(used.bytes + st.held_in_quota(of));
                Amounts { bytes, inodes: whole(used.inodes()), more: project.parent.into() }
            }
            Sampled::Pool => {
                self.look_at_space(id as _);
                let pool = self.pools.get(id as _).filter(|pool| pool.why_away().is_none());
                match pool.map(|pool| pool.space()) {
                    Some((total, available)) if total > 0 => {
                        Amounts { bytes: total.saturating_sub(available), inodes: 0, more: total }
                    }
                    _ => return Ok(None),
                }
            }
        }))
    }
}

fn whole(n: i64) -> u64 {
    n.max(0) as u64
}

impl State {
    /// The first one from this number on.
    fn next_sampled(&self, of: Sampled, from: u64) -> Option<u64> {
        let id = u32::try_from(from).ok()?;
        match of {
            Sampled::Volume => {
                self.volumes.range(id..).find(|(_, v)| !v.removing).map(|(id, _)| u64::from(*id))
            }
            // of a part one would think that it is all
            Sampled::User | Sampled::Group if !self.owners.is_counted(None) => None,
            Sampled::User => self.owners.next_in_cell(UserOrGroup::User(id)),
            Sampled::Group => self.owners.next_in_cell(UserOrGroup::Group(id)),
            Sampled::Project => self.projects.next_from(id).map(u64::from),
            Sampled::Pool if from == 0 => Some(0),
            Sampled::Pool => self.pools.keys().map(|id| u64::from(*id)).find(|id| *id >= from),
        }
    }

    fn sampled_members(&self, chunk: Chunk) -> Vec<u8> {
        let (mut members, end) = (Vec::new(), chunk.member(u8::MAX));
        let mut from = chunk.member(0);
        while let Some(id) = self.next_sampled(chunk.of, from).filter(|id| *id <= end) {
            members.push(id as u8);
            from = id + 1;
        }
        members
    }

    /// The name and the owner of a volume, a pool or a project.
    fn sampled_name(&self, of: Sampled, id: u64) -> Option<(String, u32)> {
        match of {
            Sampled::Volume => {
                let volume = self.volumes.get(&(id as u32)).filter(|v| !v.removing);
                volume.map(|v| (v.name.clone(), v.uid))
            }
            Sampled::Pool => Some((self.pool_name(id as _), 0)),
            Sampled::Project => self.projects.get(id as u32).map(|project| (project.name.clone(), 0)),
            Sampled::User | Sampled::Group => None,
        }
    }
}

impl Tx<'_> {
    /// All chunks before `next` are sampled on this day; `None`: all.
    fn sampled(&mut self, today: u32, next: Option<u64>) {
        let sampling = self.st.sampling.go_on(today, next);
        self.put(keys::sampling(), sampling.stored().encode());
        self.then(Effect::Sampled(sampling));
    }

    fn sample(&mut self, chunk: Chunk, today: u32, now: &Now) -> TxResult<()> {
        let id = chunk.id();
        let of_month = keys::samples(id, first_of_month(today));
        let end = keys::samples(id, first_of_next_month(today));
        let month = states(&self.scan(&of_month, &end, MONTH_RECORDS, false)?);
        let before = month.iter().rev().find(|state| state.day < today);
        let was = before.and_then(|state| state.samples.as_ref());
        let record = SampleRecord::between(was, &now.over(was));
        let stands = month.iter().any(|state| state.day == today);
        let ends_all = before.is_none() && self.ended_with_some(id, &of_month)?;
        if !record.entries.is_empty() || stands || ends_all {
            self.put(keys::samples(id, today), record.encode());
            // of a day that the clock showed before: it is to say what it said
            let later = month.iter().find(|state| state.day > today && !state.is_whole);
            if let Some((day, samples)) = later.and_then(|state| Some((state.day, state.samples.as_ref()?))) {
                self.put(keys::samples(id, day), SampleRecord::between(None, samples).encode());
            }
        }
        self.keep_names(id, today, now)?;
        if before.is_none() && self.st.sampling.is_steady(today) {
            self.trim_samples(id, today)?;
        }
        self.sampled(today, Some(id + 1));
        Ok(())
    }

    /// Whether the last record before this key has something.
    fn ended_with_some(&mut self, chunk: u64, before: &keys::Key) -> TxResult<bool> {
        let last = self.scan(&keys::samples(chunk, 0), before, 1, true)?;
        let last = last.first().map(|(_, record)| SampleRecord::decode(record));
        Ok(last.is_some_and(|last| last.is_ok_and(|last| !last.is_whole || !last.entries.is_empty())))
    }

    fn keep_names(&mut self, chunk: u64, today: u32, now: &Now) -> TxResult<()> {
        let key = keys::sampled_names(chunk);
        // names that cannot be read are those of now
        let was = self.get(&key)?.and_then(|names| SampledNames::decode(&names).ok()).unwrap_or_default();
        let mut names = was.clone();
        names.0.retain(|_, name| name.gone.is_none_or(|gone| gone.saturating_add(MONTHLY_DAYS) > today));
        for (at, name) in &mut names.0 {
            if !now.names.contains_key(at) {
                name.gone.get_or_insert(today);
            }
        }
        for (at, (name, uid)) in &now.names {
            let name = SampledName { name: name.as_str().into(), uid: *uid, gone: None };
            names.0.insert(*at, name);
        }
        if names.0.is_empty() && !was.0.is_empty() {
            self.remove(key);
        } else if names != was {
            self.put(key, names.encode());
        }
        Ok(())
    }

    /// Removes what is kept no longer.
    fn trim_samples(&mut self, chunk: u64, today: u32) -> TxResult<()> {
        // whole months: what differs is nothing without what it differs from
        let until = first_of_month(today.saturating_sub(DAILY_DAYS));
        let (from, to) = (keys::samples(chunk, 0), keys::samples(chunk, until));
        for (key, record) in self.scan(&from, &to, TRIM_RECORDS, false)? {
            let day = keys::parse_sampled_day(&key).unwrap_or(0);
            let is_first = SampleRecord::decode(&record).is_ok_and(|record| record.is_whole);
            if !is_first || day.saturating_add(MONTHLY_DAYS) < today {
                self.remove(key);
            }
        }
        Ok(())
    }
}

/// What a chunk was after a record.
struct StateOn {
    day: u32,
    is_whole: bool,
    /// `None`: what it differs from cannot be read.
    samples: Option<Samples>,
}

fn states(records: &[(keys::Key, Value)]) -> Vec<StateOn> {
    let mut samples = None::<Samples>;
    let after = |(key, record): &(keys::Key, Value)| {
        let day = keys::parse_sampled_day(key)?;
        let record = SampleRecord::decode(record);
        let is_whole = record.as_ref().is_ok_and(|record| record.is_whole);
        samples = match record {
            Ok(record) if is_whole || samples.is_some() => {
                let mut is = samples.take().unwrap_or_default();
                record.apply(&mut is);
                Some(is)
            }
            _ => None,
        };
        Some(StateOn { day, is_whole, samples: samples.clone() })
    };
    records.iter().filter_map(after).collect()
}
