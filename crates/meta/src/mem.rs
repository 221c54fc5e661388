//! The engine in memory: a map, checkpointed as one file of a [`Disk`], below the same journal.
//!
//! All its changes of durable state go through `Disk`, so a simulation can crash it at every write.
//! The checkpoint is replaced by rename: at any moment there is one whole checkpoint, or none yet.
//!
//! `<dir>/tables`: magic "LwT1", u32 crc32c of all that follows, u64 sequence number, u64 number of
//! entries, then each entry: u16 length of the key, u32 length of the value, key, value. Little
//! endian.
//!
//! Lock order: `map`, alone.

use crate::engine::{Engine, EngineOptions, open_in_reserve};
use crate::journal::JournalOptions;
use crate::tables::{Pressure, TableStats, Tables};
use crate::{Batch, Error, Moment, Result, Value};
use leeward_env::Env;
use leeward_env::disk::{Caching, Disk};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: [u8; 4] = *b"LwT1";
const HEADER_BYTES: usize = 24;
const CRC_FROM: usize = 8;
const SLICE_BYTES: usize = 256 << 10;

/// The engine in memory.
pub type MemKv = Engine<MemTables>;

impl MemKv {
    /// Opens the engine on this disk, with a small journal.
    ///
    /// # Errors
    /// Corrupt, Io, Full.
    pub fn open(env: Env, disk: Arc<dyn Disk>) -> Result<MemKv> {
        let journal = JournalOptions { file_bytes: 256 << 10, ..JournalOptions::default() };
        let options = EngineOptions { journal, memtable_bytes: 256 << 10, journal_bytes: 512 << 10 };
        MemKv::open_with(env, disk, options)
    }

    /// Opens the engine on this disk. Errors as of [`MemKv::open`].
    pub fn open_with(env: Env, disk: Arc<dyn Disk>, options: EngineOptions) -> Result<MemKv> {
        let dir = &options.journal.dir;
        open_in_reserve(&*disk, dir, || {
            let tables = MemTables::open(disk.clone(), dir)?;
            Engine::start(env.clone(), disk.clone(), options.clone(), tables)
        })
    }
}

type Pairs = BTreeMap<Arc<[u8]>, Value>;

/// A map with a checkpoint.
pub struct MemTables {
    disk: Arc<dyn Disk>,
    dir: String,
    map: RwLock<Map>,
    seq_next: AtomicU64,
    durable: AtomicU64,
    disk_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

#[derive(Default)]
struct Map {
    pairs: Pairs,
    seq: u64,
    /// Bytes inserted since the last seal.
    active_bytes: u64,
    /// Sequence number of the last insert before the last seal.
    sealed: u64,
}

impl MemTables {
    fn open(disk: Arc<dyn Disk>, dir: &str) -> Result<MemTables> {
        let tables = MemTables {
            disk,
            dir: dir.to_string(),
            map: RwLock::default(),
            seq_next: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            disk_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        };
        if let Some(bytes) = tables.read()? {
            let (seq, pairs) = decode(&bytes).ok_or_else(|| Error::Corrupt("checkpoint".into()))?;
            *tables.map.write() = Map { pairs, seq, active_bytes: 0, sealed: seq };
            tables.durable.store(seq, Ordering::Release);
            tables.disk_bytes.store(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(tables)
    }

    fn path(&self) -> String {
        format!("{}/tables", self.dir)
    }

    fn read(&self) -> Result<Option<Vec<u8>>> {
        let file = match self.disk.open(&self.path(), Caching::Buffered) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        self.disk.sync_dir(&self.dir)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_at(0, &mut bytes)?;
        Ok(Some(bytes))
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let new = format!("{}.new", self.path());
        let file = self.disk.create(&new, Caching::Buffered)?;
        for (i, slice) in bytes.chunks(SLICE_BYTES).enumerate() {
            file.write_at((i * SLICE_BYTES) as u64, slice)?;
        }
        file.sync()?;
        self.disk.rename(&new, &self.path())?;
        Ok(self.disk.sync_dir(&self.dir)?)
    }
}

impl Tables for MemTables {
    fn seq_next(&self) -> u64 {
        self.seq_next.fetch_add(1, Ordering::AcqRel)
    }

    fn seq_passed(&self, seq: u64) {
        self.seq_next.fetch_max(seq + 1, Ordering::AcqRel);
    }

    fn insert(&self, seq: u64, batch: &Batch) {
        let mut map = self.map.write();
        for (key, value) in &batch.writes {
            map.active_bytes += (key.len() + value.as_ref().map_or(0, |v| v.len())) as u64;
            match value {
                Some(value) => map.pairs.insert(key.clone(), value.clone()),
                None => map.pairs.remove(key),
            };
        }
        map.seq = seq;
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.map.read().pairs.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Result<crate::Pairs> {
        Ok(scan(&self.map.read().pairs, from, to, limit, reverse))
    }

    fn moment(&self) -> Box<dyn Moment + '_> {
        Box::new(MemMoment(self.map.read().pairs.clone()))
    }

    fn seal(&self) {
        let mut map = self.map.write();
        (map.sealed, map.active_bytes) = (map.seq, 0);
    }

    fn flush(&self) -> Result<bool> {
        let (seq, pairs) = {
            let map = self.map.read();
            if map.sealed <= self.seq_durable() {
                return Ok(false);
            }
            (map.seq, map.pairs.clone())
        };
        let bytes = encode(seq, &pairs);
        self.write(&bytes)?;
        self.durable.store(seq, Ordering::Release);
        self.disk_bytes.store(bytes.len() as u64, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(true)
    }

    fn compact(&self) -> Result<bool> {
        Ok(false)
    }

    fn seq_durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    fn seq_held(&self) -> Option<u64> {
        Some(self.seq_durable())
    }

    fn pressure(&self) -> Pressure {
        let map = self.map.read();
        let sealed = usize::from(map.sealed > self.seq_durable());
        Pressure { active_bytes: map.active_bytes, sealed, runs: 1 }
    }

    fn stats(&self) -> TableStats {
        TableStats {
            disk_bytes: self.disk_bytes.load(Ordering::Relaxed),
            memory_bytes: self.map.read().active_bytes,
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        }
    }
}

fn encode(seq: u64, pairs: &Pairs) -> Vec<u8> {
    let mut out =
        Vec::with_capacity(HEADER_BYTES + pairs.iter().map(|(k, v)| 6 + k.len() + v.len()).sum::<usize>());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&(pairs.len() as u64).to_le_bytes());
    for (key, value) in pairs {
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    let crc = crc_fast::crc32_iscsi(&out[CRC_FROM..]);
    out[4..CRC_FROM].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The sequence number and the pairs; `None` if [`encode`] did not make these bytes.
fn decode(bytes: &[u8]) -> Option<(u64, Pairs)> {
    let (header, mut rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let crc = u32::from_le_bytes(header[4..8].try_into().ok()?);
    if header[..4] != MAGIC || crc_fast::crc32_iscsi(&bytes[CRC_FROM..]) != crc {
        return None;
    }
    let seq = u64::from_le_bytes(header[8..16].try_into().ok()?);
    let count = u64::from_le_bytes(header[16..24].try_into().ok()?);
    let mut pairs = Pairs::new();
    for _ in 0..count {
        let (lens, after) = rest.split_at_checked(6)?;
        let key_len = usize::from(u16::from_le_bytes(lens[..2].try_into().ok()?));
        let value_len = u32::from_le_bytes(lens[2..].try_into().ok()?) as usize;
        let (key, after) = after.split_at_checked(key_len)?;
        let (value, after) = after.split_at_checked(value_len)?;
        pairs.insert(key.into(), value.into());
        rest = after;
    }
    Some((seq, pairs))
}

/// A copy of the map.
struct MemMoment(Pairs);

impl Moment for MemMoment {
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<crate::Pairs> {
        Ok(if from < to { scan(&self.0, from, to, limit, false) } else { crate::Pairs::new() })
    }
}

fn scan(pairs: &Pairs, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> crate::Pairs {
    let range = pairs.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
    let pair = |(k, v): (&Arc<[u8]>, &Value)| (k.clone(), v.clone());
    if reverse { range.rev().take(limit).map(pair).collect() } else { range.take(limit).map(pair).collect() }
}
