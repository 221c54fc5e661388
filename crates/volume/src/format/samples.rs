//! Records of usage samples: what each volume, user, group, pool and project used at the beginning
//! of a day. A record has the samples of up to 256 neighbours of one kind. docs/FORMAT.md describes
//! them.
//!
//! The first record of a month is whole. Those after it have what differs from the day before, and
//! a day on which nothing differs has none.

use crate::format::inode::{Pair, Reader, damaged};
use crate::format::numbers::{put_bytes, put_number, take_bytes, take_number};
use crate::format::stored::Stored;
use leeward_env::dates;
use leeward_fs::Result;
use leeward_meta::Value;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampled {
    /// Volumes, by number.
    Volume,
    /// Users, by what they own in all volumes.
    User,
    /// Groups, by what they own in all volumes.
    Group,
    /// Pools, by number.
    Pool,
    /// Projects, by number, each with those in it.
    Project,
}

impl Sampled {
    /// All, in the order of their numbers in keys.
    pub const ALL: [Sampled; 5] =
        [Sampled::Volume, Sampled::User, Sampled::Group, Sampled::Pool, Sampled::Project];
}

/// Up to 256 neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chunk {
    /// What they are.
    pub of: Sampled,
    /// Their numbers, without the lowest eight bits.
    pub number: u64,
}

const KIND_SHIFT: u32 = 56;
const MEMBER_BITS: u32 = 8;

impl Chunk {
    /// The chunk that has this number.
    pub fn with(of: Sampled, id: u64) -> Chunk {
        Chunk { of, number: id >> MEMBER_BITS }
    }

    /// In keys.
    pub fn id(self) -> u64 {
        (self.of as u64) << KIND_SHIFT | self.number
    }

    /// From a key.
    pub fn of_id(id: u64) -> Option<Chunk> {
        let of = *Sampled::ALL.get(usize::try_from(id >> KIND_SHIFT).ok()?)?;
        Some(Chunk { of, number: id & ((1 << KIND_SHIFT) - 1) })
    }

    /// The number of a volume, user, group, pool or project.
    pub fn member(self, at: u8) -> u64 {
        self.number << MEMBER_BITS | u64::from(at)
    }
}

/// What is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Allocated bytes; of a pool, bytes that are taken.
    pub bytes: u64,
    /// Inodes, directories among them; of a pool 0.
    pub inodes: u64,
    /// Of a volume the day of its last change, by its event log (0: it has none); of a pool its
    /// size in bytes; of a project the number of the one that it is in, or 0; else 0.
    pub more: u64,
}

/// Samples of a chunk.
pub type Samples = BTreeMap<u8, Amounts>;

/// What a record says of a chunk at the beginning of a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// Whether it has all that there is; else what differs from the day before.
    pub is_whole: bool,
    /// `None`: it is gone.
    pub entries: BTreeMap<u8, Option<Amounts>>,
}

const VERSION: u8 = 1;
const WHOLE: u8 = 1;

impl SampleRecord {
    /// The record that leads from one state to another; from `None`, a whole one.
    pub fn between(was: Option<&Samples>, is: &Samples) -> SampleRecord {
        let Some(was) = was else {
            return SampleRecord {
                is_whole: true,
                entries: is.iter().map(|(at, n)| (*at, Some(*n))).collect(),
            };
        };
        let gone = was.keys().filter(|at| !is.contains_key(at)).map(|at| (*at, None));
        let other = is.iter().filter(|(at, n)| was.get(at) != Some(n)).map(|(at, n)| (*at, Some(*n)));
        SampleRecord { is_whole: false, entries: gone.chain(other).collect() }
    }

    /// The state after it.
    pub fn apply(&self, state: &mut Samples) {
        if self.is_whole {
            state.clear();
        }
        for (at, amounts) in &self.entries {
            match amounts {
                Some(amounts) => drop(state.insert(*at, *amounts)),
                None => drop(state.remove(at)),
            }
        }
    }
}

impl Stored for SampleRecord {
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, if self.is_whole { WHOLE } else { 0 }];
        for (at, amounts) in &self.entries {
            out.push(*at);
            let Some(Amounts { bytes, inodes, more }) = amounts else {
                out.push(0);
                continue;
            };
            put_number(bytes.saturating_add(1), &mut out);
            put_number(*inodes, &mut out);
            put_number(*more, &mut out);
        }
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<SampleRecord> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version, flags] = r.take()?;
            let mut record = SampleRecord { is_whole: flags == WHOLE, ..SampleRecord::default() };
            let mut least = 0;
            while !r.0.is_empty() {
                let [at] = r.take()?;
                let amounts = match take_number(&mut r)? {
                    0 if record.is_whole => return None,
                    0 => None,
                    n => Some(Amounts {
                        bytes: n - 1,
                        inodes: take_number(&mut r)?,
                        more: take_number(&mut r)?,
                    }),
                };
                record.entries.insert(at, amounts);
                // in order, each once
                (u16::from(at) >= least).then_some(())?;
                least = u16::from(at) + 1;
            }
            (version == VERSION && flags <= WHOLE).then_some(record)
        })();
        parsed.ok_or_else(|| damaged("usage sample", bytes))
    }
}

/// What a volume or a pool is called in reports, also when it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledName {
    /// Its last name.
    pub name: Box<str>,
    /// Its last owner; of a pool 0.
    pub uid: u32,
    /// The day on which it was found to be gone.
    pub gone: Option<u32>,
}

/// The names of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledNames(pub BTreeMap<u8, SampledName>);

impl Stored for SampledNames {
    fn encode(&self) -> Value {
        let mut out = vec![VERSION];
        for (at, SampledName { name, uid, gone }) in &self.0 {
            out.push(*at);
            put_number((*uid).into(), &mut out);
            put_number(gone.map_or(0, |day| u64::from(day) + 1), &mut out);
            put_bytes(name.as_bytes(), &mut out);
        }
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<SampledNames> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version] = r.take()?;
            let mut names = BTreeMap::new();
            while !r.0.is_empty() {
                let [at] = r.take()?;
                let uid = u32::try_from(take_number(&mut r)?).ok()?;
                let gone = match take_number(&mut r)? {
                    0 => None,
                    n => Some(u32::try_from(n - 1).ok()?),
                };
                let name = std::str::from_utf8(&take_bytes(&mut r)?).ok()?.into();
                names.insert(at, SampledName { name, uid, gone });
            }
            (version == VERSION).then_some(SampledNames(names))
        })();
        parsed.ok_or_else(|| damaged("names of usage samples", bytes))
    }
}

/// So many days without samples are no jump of the clock.
const GAP_DAYS: u32 = 7;
/// After a jump the clock is believed again when it has gone on for so many days.
const STEADY_DAYS: u32 = 7;

/// Where the sampling is. Chunks are by [`Chunk::id`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// The day that is being sampled, or was last, and the first from which on no more than a few
    /// were left out; `None`: there was none yet.
    days: Option<(u32, u32)>,
    /// The chunk from which on it is still to be done.
    next: Option<u64>,
}

impl Sampling {
    /// All chunks before `next` are sampled on this day; `None`: all.
    pub fn go_on(self, day: u32, next: Option<u64>) -> Sampling {
        let since = self.days.filter(|(last, _)| (*last..=last.saturating_add(GAP_DAYS)).contains(&day));
        Sampling { days: Some((day, since.map_or(day, |(_, since)| since))), next }
    }

    /// From what is stored.
    pub fn load(Pair(days, next): Pair) -> Sampling {
        let days = (days != u64::MAX).then_some((days as u32, (days >> 32) as u32));
        Sampling { days, next: (next != u64::MAX).then_some(next) }
    }

    /// From which chunk on this day is still to be sampled.
    pub fn on(self, today: u32) -> Option<u64> {
        if self.days.is_some_and(|(day, _)| day == today) { self.next } else { Some(0) }
    }

    /// Whether the clock can be believed when it says that something is old: it has not jumped
    /// lately.
    pub fn is_steady(self, today: u32) -> bool {
        let is_near = |day: u32| (day..=day.saturating_add(GAP_DAYS)).contains(&today);
        self.days.is_some_and(|(day, since)| is_near(day) && today >= since.saturating_add(STEADY_DAYS))
    }

    /// What is stored.
    pub fn stored(self) -> Pair {
        let days = self.days.map_or(u64::MAX, |(day, since)| u64::from(since) << 32 | u64::from(day));
        Pair(days, self.next.unwrap_or(u64::MAX))
    }
}

/// The first day of a day's month; days are counted from 1970-01-01.
pub fn first_of_month(day: u32) -> u32 {
    let (_, _, of_month) = dates::civil(day.into());
    day.saturating_sub(of_month as u32 - 1)
}

/// The first day of the month after a day's.
pub fn first_of_next_month(day: u32) -> u32 {
    first_of_month(first_of_month(day).saturating_add(31))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_is_believed_after_a_week() {
        let mut sampling = Sampling::default();
        assert!(!sampling.is_steady(100));
        for day in 100..107 {
            sampling = Sampling::load(sampling.go_on(day, None).stored());
        }
        assert!(!sampling.is_steady(106) && sampling.is_steady(107) && sampling.is_steady(113));
        assert!(!sampling.is_steady(114) && !sampling.is_steady(99), "a jump that is not sampled yet");
        assert!(sampling.go_on(113, None).is_steady(113), "a cell was down for some days");
        for jump in [99, 114, 9000] {
            let jumped = sampling.go_on(jump, None);
            assert!(!jumped.is_steady(jump) && !jumped.is_steady(jump + 6) && jumped.is_steady(jump + 7));
        }
        assert_eq!(Sampling::load(Sampling::default().stored()), Sampling::default());
    }

    fn samples(of: &[(u8, u64)]) -> Samples {
        of.iter().map(|(at, bytes)| (*at, Amounts { bytes: *bytes, inodes: 1, more: 300 })).collect()
    }

    #[test]
    fn records_lead_from_day_to_day() {
        let days = [
            samples(&[(0, 5), (7, 1 << 40)]),
            samples(&[(0, 6), (7, 1 << 40)]),
            samples(&[(255, 0)]),
            Samples::new(),
        ];
        let (mut was, mut state) = (None, Samples::new());
        for is in &days {
            let record = SampleRecord::between(was, is);
            let read = SampleRecord::decode(&record.encode()).expect("a record");
            assert_eq!(read, record);
            read.apply(&mut state);
            assert_eq!(state, *is);
            was = Some(is);
        }
        assert_eq!(SampleRecord::between(Some(&days[0]), &days[1]).entries.len(), 1, "only what differs");
        let whole = SampleRecord::between(None, &days[2]);
        whole.apply(&mut state);
        assert_eq!(state, days[2], "a whole record needs none before");
    }

    #[test]
    fn what_no_version_wrote_is_refused() {
        for bytes in
            [&[][..], &[2, 0], &[1, 2], &[1, 1, 3, 0], &[1, 0, 3], &[1, 0, 3, 0, 3, 0], &[1, 0, 3, 1, 1]]
        {
            SampleRecord::decode(bytes).expect_err("damaged");
        }
        for bytes in [&[][..], &[1, 0, 0], &[1, 0, 0, 0, 1, 0xff]] {
            SampledNames::decode(bytes).expect_err("damaged");
        }
    }

    #[test]
    fn names_stay_when_what_they_name_is_gone() {
        let name = |name: &str, gone| SampledName { name: name.into(), uid: 1000, gone };
        let names = SampledNames([(0, name("a", None)), (9, name("b", Some(20_000)))].into());
        assert_eq!(SampledNames::decode(&names.encode()).expect("names"), names);
    }

    #[test]
    fn months_begin_with_their_first_day() {
        let day = |y, m, d| dates::day_of(y, m, d).expect("a day") as u32;
        assert_eq!(first_of_month(day(2026, 11, 27)), day(2026, 11, 1));
        assert_eq!(first_of_month(day(2024, 3, 1)), day(2024, 3, 1));
        assert_eq!(first_of_month(0), 0);
        assert_eq!(first_of_next_month(day(2026, 1, 31)), day(2026, 2, 1));
        assert_eq!(first_of_next_month(day(2026, 12, 1)), day(2027, 1, 1));
    }

    #[test]
    fn chunks_are_ordered_by_kind_and_number() {
        let chunk = Chunk::with(Sampled::User, u64::from(u32::MAX));
        assert_eq!(Chunk::of_id(chunk.id()), Some(chunk));
        assert_eq!(chunk.member(255), u64::from(u32::MAX));
        assert!(chunk.id() < Chunk::with(Sampled::Group, 0).id());
        assert_eq!(Chunk::of_id(9 << 56), None);
    }
}
