//! What volumes, users, groups, pools and projects used in a time, from the samples of its days.

use super::{Day, end_of};
use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, Progress, Reply, Request};
use crate::format::each;
use crate::format::keys;
use crate::format::samples::{
    Amounts, Chunk, SampleRecord, SampledName, SampledNames, Samples, first_of_month,
};
use crate::format::stored::Stored;
use crate::shard::Shard;
use leeward_fs::NodeId;
use leeward_meta::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use crate::format::samples::Sampled;

/// So many months a cell may not have been served, and its last state is that of later days.
const MONTHS_BACK: u32 = 24;
/// Days of all rows together that one answer has at most.
const DAYS_MAX: usize = 1 << 20;

/// Tells what volumes, users, groups, pools or projects used in a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UsageReport {
    /// Of what.
    pub of: Sampled,
    /// From the beginning of this day on.
    pub from: Day,
    /// Up to the beginning of this day; `None`: until now.
    pub to: Option<Day>,
    /// Only of those with these numbers; empty: of all.
    pub only: Vec<u64>,
    /// Also each day of each.
    pub daily: bool,
}

/// What is used at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Allocated bytes; of a pool, bytes that are taken of its disks or buckets.
    pub bytes: u64,
    /// Inodes; of a pool 0.
    pub files: u64,
}

/// What is used at the beginning of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedOnDay {
    /// The day.
    pub day: Day,
    /// What is used.
    #[serde(flatten)]
    pub used: Used,
}

/// What one volume, user, group, pool or project used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageOf {
    /// Number of the volume, pool or project, id of the user or group.
    pub id: u64,
    /// Of a volume, a pool or a project: its name, or the last that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of a volume: its owner, or the last that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// At the beginning of the time.
    pub begin: Used,
    /// At its end.
    pub end: Used,
    /// The mean of its days, bytes.
    pub average_bytes: u64,
    /// The most on any of its days, bytes. Of a user or a group in several shards, and without the
    /// days, it may be less: the sum of the most in each.
    pub peak_bytes: u64,
    /// Of a volume: the day on which names, content or attributes last changed, if its event log
    /// knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Day>,
    /// The day on which it was found to be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<Day>,
    /// Of a volume or a project its limit now, of a pool its size at the end: bytes; 0: none.
    pub limit_bytes: u64,
    /// Each day, from the first of which it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<UsedOnDay>,
}

impl UsageOf {
    /// By how many bytes it grew.
    pub fn growth(&self) -> i64 {
        self.end.bytes as i64 - self.begin.bytes as i64
    }
}

/// What was used in a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReported {
    /// Of what.
    pub of: Sampled,
    /// The first day: the one that was asked for, or the first that is kept if that is later.
    pub from: Day,
    /// The day whose beginning is the end; the day after today: until now.
    pub to: Day,
    /// The first day of which anything is kept; `None`: nothing is.
    pub kept_from: Option<Day>,
    /// By number; without those that used nothing in that time.
    pub rows: Vec<UsageOf>,
    /// The sum of all, each day; of projects, of those that are in no other.
    pub days: Vec<UsedOnDay>,
}

impl UsageReported {
    /// Adds what another shard has: of the same user, group or pool it is one sum.
    fn add(&mut self, mut other: UsageReported) {
        // before a shard was there it had nothing
        if other.from > self.from {
            other.rows.iter_mut().for_each(|row| row.begin = Used::default());
        } else if self.from > other.from {
            self.rows.iter_mut().for_each(|row| row.begin = Used::default());
        }
        let days = |of: &UsageReported| u64::from(of.to.0.saturating_sub(of.from.0));
        let (own_days, other_days) = (days(self), days(&other));
        for row in other.rows {
            match self.rows.binary_search_by_key(&row.id, |own| own.id) {
                Ok(at) => self.rows[at].add(row, own_days, other_days),
                Err(at) => self.rows.insert(at, row),
            }
        }
        add_days(&mut self.days, other.days);
        self.from = self.from.min(other.from);
        self.kept_from = [self.kept_from, other.kept_from].into_iter().flatten().min();
    }
}

impl UsageOf {
    fn add(&mut self, other: UsageOf, own_days: u64, other_days: u64) {
        let sum = |a: Used, b: Used| Used { bytes: a.bytes + b.bytes, files: a.files + b.files };
        self.begin = sum(self.begin, other.begin);
        self.end = sum(self.end, other.end);
        let byte_days = self.average_bytes * own_days + other.average_bytes * other_days;
        self.average_bytes = byte_days / own_days.max(other_days).max(1);
        self.peak_bytes += other.peak_bytes;
        add_days(&mut self.days, other.days);
        if let Some(most) = self.days.iter().map(|day| day.used.bytes).max() {
            self.peak_bytes = most;
        }
    }
}

fn add_days(all: &mut Vec<UsedOnDay>, others: Vec<UsedOnDay>) {
    for other in others {
        match all.binary_search_by_key(&other.day, |own| own.day) {
            Ok(at) => {
                all[at].used.bytes += other.used.bytes;
                all[at].used.files += other.used.files;
            }
            Err(at) => all.insert(at, other),
        }
    }
}

impl Reply for UsageReported {
    const KIND: &'static str = "usage-report";
}

impl Request for UsageReport {
    type Reply = UsageReported;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut UsageReported, other: UsageReported) {
        all.add(other);
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<UsageReported, Failure> {
        let to = end_of(shard, self.from, self.to)?;
        // what is durable, in one state
        let moment = shard.with_commits_paused(|| shard.kv.moment());
        let told = |e| about("usage samples")(e);
        let kept_from = first_kept(&*moment, self.of).map_err(told)?;
        // nobody knows what was before
        let from = kept_from.map_or(self.from, |first| first.min(to.minus(1)).max(self.from));
        let mut sums = Sums::new(from, to);
        let (mut rows, mut days, mut next) = (Vec::new(), 0, Chunk::with(self.of, 0).id());
        while let Some(chunk) = shard.next_chunk(next).map_err(told)?.filter(|chunk| chunk.of == self.of) {
            (caller.progress)(Progress { phase: "usage samples".into(), done: chunk.number, total: 0 });
            next = chunk.id() + 1;
            let is_asked = |id: &u64| Chunk::with(self.of, *id) == chunk;
            if !self.only.is_empty() && !self.only.iter().any(is_asked) {
                continue;
            }
            let runs = self.runs_of(shard, &*moment, chunk, (from, to)).map_err(told)?;
            let names = names_of(&*moment, chunk).map_err(told)?;
            for (at, run) in runs {
                let id = chunk.member(at);
                if !self.only.is_empty() && !self.only.contains(&id) {
                    continue;
                }
                let mut row = run.row((self.of, id), &mut sums, self.daily.then(Vec::new));
                shard.name_sampled(self, names.0.get(&at), run.last(to), &mut row);
                days += row.days.len();
                if days > DAYS_MAX {
                    let why = format!("more than {DAYS_MAX} days of all: name some, or a shorter time");
                    return Err(Failure::new(libc::E2BIG, why));
                }
                if row.begin != Used::default() || row.end != Used::default() || row.peak_bytes > 0 {
                    rows.push(row);
                }
            }
        }
        Ok(UsageReported { of: self.of, from, to, kept_from, rows, days: sums.days() })
    }
}

impl UsageReport {
    /// What became of the members of a chunk.
    fn runs_of(
        &self,
        shard: &Shard,
        moment: &dyn Moment,
        chunk: Chunk,
        (from, to): (Day, Day),
    ) -> leeward_fs::Result<BTreeMap<u8, Run>> {
        let begin = last_whole(moment, chunk, from)?;
        let mut runs = Runs::default();
        let days = (keys::samples(chunk.id(), begin), keys::samples(chunk.id(), to.0.saturating_add(1)));
        each(moment, days, |key, record| {
            if let Some(day) = keys::parse_sampled_day(key) {
                runs.add(Day(day), &SampleRecord::decode(record)?);
            }
            Ok(())
        })?;
        if self.to.is_none() {
            let now = shard.sample_now(chunk).over(Some(&runs.state));
            runs.add(to, &SampleRecord::between(None, &now));
        }
        Ok(runs.runs)
    }
}

/// The first day of which something of this kind is kept.
fn first_kept(moment: &dyn Moment, of: Sampled) -> leeward_fs::Result<Option<Day>> {
    let (mut next, mut first) = (Chunk::with(of, 0).id(), None);
    loop {
        let (start, end) = keys::all_samples(next);
        let found = moment.scan(&start, &end, 1)?;
        let Some((key, _)) = found.first() else { return Ok(first) };
        let Some(chunk) = Chunk::of_id(keys::table_id(key)).filter(|chunk| chunk.of == of) else {
            return Ok(first);
        };
        first = [first, keys::parse_sampled_day(key).map(Day)].into_iter().flatten().min();
        next = chunk.id() + 1;
    }
}

/// The first day of a month in which the state on a day can be found: the first record of a month
/// is whole.
fn last_whole(moment: &dyn Moment, chunk: Chunk, on: Day) -> leeward_fs::Result<u32> {
    let mut first = first_of_month(on.0);
    for _ in 0..MONTHS_BACK {
        let (start, end) =
            (keys::samples(chunk.id(), first), keys::samples(chunk.id(), on.0.saturating_add(1)));
        if first == 0 || !moment.scan(&start, &end, 1)?.is_empty() {
            break;
        }
        first = first_of_month(first - 1);
    }
    Ok(first)
}

fn names_of(moment: &dyn Moment, chunk: Chunk) -> leeward_fs::Result<SampledNames> {
    let key = keys::sampled_names(chunk.id());
    let found = moment.scan(&key, &keys::after(&key), 1)?;
    Ok(found.first().map(|(_, names)| SampledNames::decode(names)).transpose()?.unwrap_or_default())
}

impl Shard {
    /// Adds what samples do not have.
    fn name_sampled(
        &self,
        request: &UsageReport,
        name: Option<&SampledName>,
        last: Amounts,
        row: &mut UsageOf,
    ) {
        let is_past = |day: &Day| request.to.is_none_or(|to| *day <= to);
        row.name = name.map(|name| name.name.to_string());
        row.uid = name.filter(|_| request.of == Sampled::Volume).map(|name| name.uid);
        row.gone = name.and_then(|name| name.gone).map(Day).filter(is_past);
        let st = self.lock();
        let id = row.id as u32;
        match request.of {
            Sampled::Volume => {
                match st.volumes.get(&id).filter(|volume| !volume.removing) {
                    Some(volume) => {
                        (row.name, row.uid, row.gone) = (Some(volume.name.clone()), Some(volume.uid), None);
                    }
                    // removed since the last sample
                    None if row.gone.is_none() && request.to.is_none() => row.gone = Some(Day(self.today())),
                    None => {}
                }
                row.changed = (last.more > 0).then_some(Day(last.more as u32));
                row.limit_bytes = st.quotas.get(NodeId::new(id, 1)).map_or(0, |quota| quota.limit.0);
            }
            Sampled::Pool => {
                row.limit_bytes = last.more;
                if row.id == 0 || st.pools.contains_key(&(row.id as _)) {
                    (row.name, row.gone) = (Some(st.pool_name(row.id as _)), None);
                }
            }
            Sampled::Project => match st.projects.get(id) {
                Some(project) => {
                    (row.name, row.gone) = (Some(project.name.clone()), None);
                    row.limit_bytes = project.limit.0;
                }
                None if row.gone.is_none() && request.to.is_none() => row.gone = Some(Day(self.today())),
                None => {}
            },
            Sampled::User | Sampled::Group => {}
        }
    }
}

/// What became of one member: what it used, and from which day on.
#[derive(Default)]
struct Run(Vec<(Day, Amounts)>);

/// What became of the members of a chunk.
#[derive(Default)]
struct Runs {
    state: Samples,
    runs: BTreeMap<u8, Run>,
}

impl Runs {
    fn add(&mut self, day: Day, record: &SampleRecord) {
        let mut is = self.state.clone();
        record.apply(&mut is);
        let gone = self.state.keys().filter(|at| !is.contains_key(at)).map(|at| (*at, Amounts::default()));
        let other = is.iter().filter(|(at, n)| self.state.get(at) != Some(n)).map(|(at, n)| (*at, *n));
        for (at, amounts) in gone.chain(other) {
            self.runs.entry(at).or_default().0.push((day, amounts));
        }
        self.state = is;
    }
}

impl Run {
    /// What is used at the beginning of a day.
    fn last(&self, day: Day) -> Amounts {
        let step = self.0.iter().rev().find(|(since, _)| *since <= day);
        step.map(|(_, amounts)| *amounts).unwrap_or_default()
    }

    fn row(&self, (of, id): (Sampled, u64), sums: &mut Sums, mut days: Option<Vec<UsedOnDay>>) -> UsageOf {
        let (from, to) = (sums.from, sums.to);
        let (mut total, mut peak) = (0u128, 0);
        for (n, (day, amounts)) in self.0.iter().enumerate() {
            let until = self.0.get(n + 1).map_or(to.plus(1), |(day, _)| *day);
            let (begin, end) = ((*day).max(from), until.min(to.plus(1)));
            if begin >= end {
                continue;
            }
            // what is in another project is in the sum with that
            if of != Sampled::Project || amounts.more == 0 {
                sums.add(begin, end, *amounts);
            }
            if let Some(days) = &mut days {
                days.extend((begin.0..end.0).map(|day| UsedOnDay { day: Day(day), used: used(amounts) }));
            }
            total += u128::from(amounts.bytes) * u128::from(end.min(to).0.saturating_sub(begin.0));
            peak = peak.max(amounts.bytes);
        }
        UsageOf {
            id,
            name: None,
            uid: None,
            begin: used(&self.last(from)),
            end: used(&self.last(to)),
            average_bytes: (total / u128::from(to.0 - from.0)) as u64,
            peak_bytes: peak,
            changed: None,
            gone: None,
            limit_bytes: 0,
            days: days.unwrap_or_default(),
        }
    }
}

fn used(amounts: &Amounts) -> Used {
    Used { bytes: amounts.bytes, files: amounts.inodes }
}

/// The sums of all days of a time, by what changes from day to day.
struct Sums {
    from: Day,
    to: Day,
    changes: Vec<(i128, i128)>,
}

impl Sums {
    fn new(from: Day, to: Day) -> Sums {
        Sums { from, to, changes: vec![(0, 0); (to.0 - from.0) as usize + 2] }
    }

    fn add(&mut self, begin: Day, end: Day, amounts: Amounts) {
        let (bytes, inodes) = (i128::from(amounts.bytes), i128::from(amounts.inodes));
        for (day, sign) in [(begin, 1), (end, -1)] {
            let change = &mut self.changes[(day.0 - self.from.0) as usize];
            *change = (change.0 + sign * bytes, change.1 + sign * inodes);
        }
    }

    fn days(&self) -> Vec<UsedOnDay> {
        let mut sum = (0, 0);
        let on = |(n, change): (u32, &(i128, i128))| {
            sum = (sum.0 + change.0, sum.1 + change.1);
            let whole = |n: i128| u64::try_from(n.max(0)).unwrap_or(u64::MAX);
            UsedOnDay { day: self.from.plus(n), used: Used { bytes: whole(sum.0), files: whole(sum.1) } }
        };
        (0..=self.to.0 - self.from.0).zip(&self.changes).map(on).collect()
    }
}
