//! Keeps what volumes, users, groups and pools use: once a day, in bounded steps in the background, a chunk
//! of up to 256 of them a step. Where a day's sampling is, is stored with each chunk.
//!
//! A day begins at 0:00 UTC. A cell that is not served then is sampled when it is, and a day on which it is
//! not has no samples. When the clock is set, the days that it shows are sampled: samples of days that are
//! yet to come stay, and say so much and no more.

use crate::format::keys;
use crate::format::samples::{
    Amounts, Chunk, SampleRecord, Sampled, SampledName, SampledNames, Samples, Sampling, first_of_month,
};
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::{Effect, State};
use crate::tx::{Tx, TxResult};
use leeward_env::Work;
use leeward_env::dates::DAY_SECS;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Error, NodeId, Result};
use std::collections::BTreeMap;

/// So many days each day is kept, and later the first of each month.
pub const DAILY_DAYS: u32 = 800;
/// So many days the first of each month is kept.
pub const MONTHLY_DAYS: u32 = 3660;
/// Records that one step removes at most.
const TRIM_RECORDS: usize = 128;
const NANOS_PER_DAY: u64 = 1_000_000_000 * DAY_SECS as u64;
/// More records than a month has.
const MONTH_RECORDS: usize = 32;

/// What a chunk is now.
struct Now {
    samples: Samples,
    /// Names and owners of volumes and pools.
    names: BTreeMap<u8, (String, u32)>,
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
        let now = self.sample_now(chunk)?;
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

    /// What the members of a chunk use now.
    pub(crate) fn amounts_now(&self, chunk: Chunk) -> Result<Samples> {
        self.sample_now(chunk).map(|now| now.samples)
    }

    fn sample_now(&self, chunk: Chunk) -> Result<Now> {
        let members = self.lock().sampled_members(chunk);
        let (mut samples, mut names) = (Samples::new(), BTreeMap::new());
        for at in members {
            let Some(amounts) = self.amounts_of(chunk.of, chunk.member(at))? else { continue };
            samples.insert(at, amounts);
            names.extend(self.lock().sampled_name(chunk.of, chunk.member(at)).map(|name| (at, name)));
        }
        Ok(Now { samples, names })
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
                let more = self.lock().events.head(id as u32).changed_at / NANOS_PER_DAY;
                Amounts { bytes: usage.bytes, inodes: usage.files + usage.dirs, more }
            }
            Sampled::User => owned(&self.lock(), UserOrGroup::User(id as u32)),
            Sampled::Group => owned(&self.lock(), UserOrGroup::Group(id as u32)),
            Sampled::Pool => {
                self.look_at_space(id as _);
                match self.pools.get(id as _).map(|pool| pool.space()) {
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
            Sampled::User => self.owners.next_in_cell(UserOrGroup::User(id)),
            Sampled::Group => self.owners.next_in_cell(UserOrGroup::Group(id)),
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

    /// The name and the owner of a volume or a pool.
    fn sampled_name(&self, of: Sampled, id: u64) -> Option<(String, u32)> {
        match of {
            Sampled::Volume => self.volumes.get(&(id as u32)).map(|v| (v.name.clone(), v.uid)),
            Sampled::Pool => Some((self.pool_name(id as _), 0)),
            Sampled::User | Sampled::Group => None,
        }
    }
}

impl Tx<'_> {
    /// All chunks before `next` are sampled; `None`: all.
    fn sampled(&mut self, today: u32, next: Option<u64>) {
        let sampling = Sampling::at(today, next);
        self.put(keys::sampling(), sampling.stored().encode());
        self.then(Effect::Sampled(sampling));
    }

    fn sample(&mut self, chunk: Chunk, today: u32, now: &Now) -> TxResult<()> {
        let id = chunk.id();
        let (month, day) = (keys::samples(id, first_of_month(today)), keys::samples(id, today));
        let (mut was, records) = (Samples::new(), self.scan(&month, &day, MONTH_RECORDS, false)?);
        for (_, record) in &records {
            SampleRecord::decode(record)?.apply(&mut was);
        }
        let is_first = records.is_empty();
        let record = SampleRecord::between((!is_first).then_some(&was), &now.samples);
        if !record.entries.is_empty() || is_first && self.ended_with_some(id, &month)? {
            self.put(day, record.encode());
        }
        self.keep_names(id, today, now)?;
        if is_first {
            self.trim_samples(id, today)?;
        }
        self.sampled(today, Some(id + 1));
        Ok(())
    }

    /// Whether the last record before this key has something.
    fn ended_with_some(&mut self, chunk: u64, before: &keys::Key) -> TxResult<bool> {
        let last = self.scan(&keys::samples(chunk, 0), before, 1, true)?;
        Ok(match last.first() {
            None => false,
            Some((_, record)) => {
                let record = SampleRecord::decode(record)?;
                !record.is_whole || !record.entries.is_empty()
            }
        })
    }

    fn keep_names(&mut self, chunk: u64, today: u32, now: &Now) -> TxResult<()> {
        let key = keys::sampled_names(chunk);
        let was = self.get(&key)?.map(|names| SampledNames::decode(&names)).transpose()?.unwrap_or_default();
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
        let (from, to) = (keys::samples(chunk, 0), keys::samples(chunk, today.saturating_sub(DAILY_DAYS)));
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
