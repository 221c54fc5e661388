//! One engine for all kinds of tables: the journal in front, [`Tables`] below.
//!
//! A commit is appended to the journal (`writer`: sequence number, append, flush of the device) and
//! is durable. Then it is inserted into the tables (`inserting`), and readers see it. Later commits
//! may be appended meanwhile. Maintenance takes both locks only for moments (to seal, to settle),
//! so flushes and compactions run in parallel with commits. When maintenance falls behind, commits
//! are slowed, and then do the work themselves. So memory and the number of runs are limited
//! whoever calls, or does not call, [`Kv::maintain`].
//!
//! Nothing is sealed while a commit is appended and not inserted. A flush since may have made a new
//! version of the tables, which readers see only with numbers after its own, and a seal gives the
//! new active part to the last version alone. A commit inserted there under an earlier number would
//! be visible to nobody. [`Kv::wants_room`] tells the appending thread to insert first.
//!
//! Lock order: `writer`, `inserting`, then the locks of journal and tables; `reserve` alone.

use crate::journal::{Journal, JournalOptions, Tail};
use crate::tables::{Pressure, Tables};
use crate::{Appended, Batch, Error, InlineData, Kv, Moment, Result, Stats, Value};
use leeward_env::Env;
use leeward_env::disk::{Caching, Disk};
use leeward_env::limits::COMMIT_RECORDS_MAX;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Sealed parts beyond which a commit flushes by itself.
const SEALED_MAX: usize = 2;
/// Sealed parts beyond which commits are slowed.
const SEALED_SLOW: usize = 1;
/// Runs from which on commits are slowed.
const RUNS_SLOW: usize = 12;
/// Runs beyond which a commit compacts by itself. (The manifest of the tables can name 255.)
const RUNS_MAX: usize = 48;
/// Runs beyond which a commit compacts by itself when a table is damaged, so that nothing can be
/// compacted.
const RUNS_DAMAGED_MAX: usize = 200;
/// A journal longer than this many times [`EngineOptions::journal_bytes`] is unusual.
const JOURNAL_USUAL: u64 = 4;
/// Largest space reserve.
const RESERVE_BYTES_MAX: u64 = 8 << 20;
/// The reserve is at most this part of the disk.
const RESERVE_FRACTION: u64 = 32;

/// Settings of every engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The journal.
    pub journal: JournalOptions,
    /// The active part of the tables is sealed at this size.
    pub memtable_bytes: u64,
    /// ... or when this much was appended to the journal since the last seal: it limits what
    /// opening replays.
    pub journal_bytes: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            journal: JournalOptions::default(),
            memtable_bytes: 16 << 20,
            journal_bytes: 64 << 20,
        }
    }
}

/// Journal and tables as one [`Kv`].
pub struct Engine<T> {
    env: Env,
    disk: Arc<dyn Disk>,
    options: EngineOptions,
    tables: T,
    journal: Journal,
    writer: Mutex<Tail>,
    /// Held by a thread that changes which part of the tables is active, or its content.
    inserting: Mutex<()>,
    /// Number of commits that are durable and not inserted yet.
    appended: AtomicUsize,
    /// The tables have changed, and could not settle because a commit was not inserted yet.
    unsettled: AtomicBool,
    /// Bytes appended to the journal when the tables were last sealed.
    sealed_at: AtomicU64,
    broken: OnceLock<String>,
    reserve: Mutex<()>,
    /// Time by which commits were slowed, nanoseconds.
    slowed: AtomicU64,
}

impl<T: Tables> Engine<T> {
    /// Opens the journal and brings the tables up to date.
    pub(crate) fn start(
        env: Env,
        disk: Arc<dyn Disk>,
        options: EngineOptions,
        tables: T,
    ) -> Result<Engine<T>> {
        let durable = tables.seq_durable();
        tables.seq_passed(durable);
        let mut replay = |seq, batch: Batch| {
            tables.seq_passed(seq);
            if seq > durable && !batch.writes.is_empty() {
                make_room(&tables, options.memtable_bytes, || tables.settle())?;
                tables.insert(seq, &batch);
            }
            Ok(())
        };
        let held = tables.seq_held();
        let journal_options = options.journal.clone();
        let (journal, tail) = Journal::open(env.clone(), disk.clone(), journal_options, held, &mut replay)?;
        tracing::debug!(durable, last = tail.last_seq(), "metadata journal replayed");
        Ok(Engine {
            env,
            disk,
            options,
            tables,
            journal,
            writer: Mutex::new(tail),
            inserting: Mutex::default(),
            appended: AtomicUsize::new(0),
            unsettled: AtomicBool::new(false),
            sealed_at: AtomicU64::new(0),
            broken: OnceLock::new(),
            reserve: Mutex::new(()),
            slowed: AtomicU64::new(0),
        })
    }

    /// The tables, for tests and reports.
    pub fn tables(&self) -> &T {
        &self.tables
    }

    /// Makes the next flush take all that was committed so far. False: not now, as a commit is not
    /// inserted yet.
    pub fn seal(&self) -> bool {
        let _between = self.between_commits();
        let all_inserted = self.is_all_inserted();
        if all_inserted {
            self.sealed_at.store(self.journal.appended_bytes(), Ordering::Relaxed);
            self.tables.seal();
        }
        all_inserted
    }

    /// Call with the writer lock held, or the answer may change at any time.
    fn is_all_inserted(&self) -> bool {
        self.appended.load(Ordering::Relaxed) == 0
    }

    /// Takes both locks: nothing is appended or inserted while they are held.
    fn between_commits(&self) -> (MutexGuard<'_, Tail>, MutexGuard<'_, ()>) {
        (self.writer.lock(), self.inserting.lock())
    }

    fn check_alive(&self) -> Result<()> {
        self.broken.get().map_or(Ok(()), |why| Err(Error::Broken(why.clone())))
    }

    /// Passes a result on. An error other than Full breaks the engine.
    fn or_break<R>(&self, result: Result<R>) -> Result<R> {
        if let Err(e) = &result
            && !matches!(e, Error::Full)
        {
            let _ = self.broken.set(e.to_string()); // the first one stays
        }
        result
    }

    fn write(&self, tail: &mut Tail, batch: &Batch) -> Result<Appended> {
        self.make_room()?;
        let seq = self.tables.seq_next();
        self.journal.append(tail, seq, batch)?;
        self.appended.fetch_add(1, Ordering::Relaxed);
        Ok(Appended(seq))
    }

    /// Keeps memory, runs and the journal to replay within limits, if all is inserted. Call with
    /// the writer lock held.
    fn make_room(&self) -> Result<()> {
        if !self.wants_room() || !self.is_all_inserted() {
            return Ok(());
        }
        let _inserted = self.inserting.lock();
        let is_long = self.is_journal_long();
        if is_long {
            self.sealed_at.store(self.journal.appended_bytes(), Ordering::Relaxed);
        }
        make_room(&self.tables, if is_long { 1 } else { self.options.memtable_bytes }, || self.settle())
    }

    /// Whether much was appended since the tables were last sealed.
    fn is_journal_long(&self) -> bool {
        let written = self.journal.appended_bytes();
        // another thread may have sealed since, and noted more
        written.saturating_sub(self.sealed_at.load(Ordering::Relaxed)) >= self.options.journal_bytes
    }

    /// Call with both locks held.
    fn settle(&self) {
        // a commit that is not inserted must not become visible in part
        let settles = self.is_all_inserted();
        if settles {
            self.tables.settle();
        }
        self.unsettled.store(!settles, Ordering::Relaxed);
    }

    /// Lets maintenance catch up a little before more records come in. Many short waits are better
    /// than a long one, and a small commit waits little.
    fn slow_down(&self, records: usize) {
        let Pressure { runs, sealed, .. } = self.tables.pressure();
        let steps = runs.saturating_sub(RUNS_SLOW) + sealed.saturating_sub(SEALED_SLOW);
        if steps > 0 {
            let step =
                Duration::from_millis(1).mul_f64((records as f64 / COMMIT_RECORDS_MAX as f64).min(1.0));
            let pause = step * steps as u32;
            self.slowed.fetch_add(pause.as_nanos() as u64, Ordering::Relaxed);
            self.env.sleep(pause);
        }
    }

    fn work(&self) -> Result<bool> {
        let any = self.tables.pressure().active_bytes > 0;
        let mut worked = self.is_journal_long() && self.seal() && any;
        let tables = match self.tables.flush() {
            Ok(false) => self.tables.compact(),
            other => other,
        };
        if matches!(tables, Ok(true)) {
            worked = true;
            self.unsettled.store(true, Ordering::Relaxed);
        }
        if self.unsettled.load(Ordering::Relaxed) {
            let _between = self.between_commits();
            self.settle();
        }
        // neither a full disk nor a damaged table keeps the journal from freeing space
        worked |= self.journal.retire(self.tables.seq_durable())?;
        worked |= self.carry()?;
        worked |= self.journal.prepare()?;
        tables?;
        Ok(worked)
    }

    /// Appends inline data again that keeps a long journal from being dropped.
    fn carry(&self) -> Result<bool> {
        let pinned = self.journal.pinned(self.tables.seq_durable(), self.options.journal_bytes);
        let Some(number) = pinned else { return Ok(false) };
        let inline_data = self.journal.pinned_inline_data(number)?;
        let mut tail = self.writer.lock();
        let seq = self.tables.seq_next();
        self.journal.carry(&mut tail, seq, number, inline_data)?;
        Ok(true)
    }

    /// Moves all that was committed to the tables, and drops the parts of the journal that are no
    /// longer needed.
    fn finish(&self) -> Result<()> {
        loop {
            self.seal();
            let flushed = self.tables.flush()?;
            let _between = self.between_commits();
            self.settle();
            let Pressure { active_bytes, sealed, .. } = self.tables.pressure();
            if active_bytes == 0 && sealed == 0 || !flushed {
                break;
            }
        }
        self.journal.finish(&mut self.writer.lock(), self.tables.seq_durable())
    }
}

/// Opens an engine whose journal is in `dir`. Where that finds no space it frees the reserve, once:
/// opening writes, and users cannot remove anything before.
pub(crate) fn open_in_reserve<E>(disk: &dyn Disk, dir: &str, open: impl Fn() -> Result<E>) -> Result<E> {
    match open() {
        Err(Error::Full) => {
            tracing::warn!("the disk is full: opening the metadata with the space held back for removal");
            set_reserve(disk, dir, false)?;
            open()
        }
        opened => opened,
    }
}

/// Takes or frees the space reserve.
fn set_reserve(disk: &dyn Disk, dir: &str, hold: bool) -> Result<()> {
    let path = format!("{dir}/reserve");
    let file = match disk.open(&path, Caching::Buffered) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !hold => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => disk.create(&path, Caching::Buffered)?,
        other => other?,
    };
    if hold {
        let wanted = RESERVE_BYTES_MAX.min(disk.space()?.total_bytes / RESERVE_FRACTION);
        file.allocate(wanted)?;
    } else {
        file.truncate(0)?;
    }
    file.sync()?;
    Ok(disk.sync_dir(dir)?)
}

/// Keeps memory and runs within limits. Nothing is appended or inserted meanwhile.
fn make_room<T: Tables>(tables: &T, memtable_bytes: u64, settle: impl Fn()) -> Result<()> {
    let pressure = tables.pressure();
    if pressure.runs > RUNS_MAX {
        match tables.compact() {
            // a damaged table does not stop commits before reads get slow
            Err(Error::Corrupt(_)) if pressure.runs <= RUNS_DAMAGED_MAX => {}
            other => {
                other?;
                settle();
            }
        }
    }
    if pressure.active_bytes >= memtable_bytes {
        if pressure.sealed >= SEALED_MAX {
            tables.flush()?;
            settle();
        }
        tables.seal();
    }
    Ok(())
}

impl<T: Tables> Kv for Engine<T> {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.tables.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Result<Vec<(Arc<[u8]>, Value)>> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        self.tables.scan(from, to, limit, reverse)
    }

    fn moment(&self) -> Box<dyn Moment + '_> {
        self.tables.moment()
    }

    fn append(&self, batch: &Batch) -> Result<Appended> {
        self.check_alive()?;
        for (key, _) in &batch.writes {
            assert!(!key.is_empty() && key.len() <= usize::from(u16::MAX), "a key of {} bytes", key.len());
        }
        if batch.writes.is_empty() && batch.inline_data.is_empty() {
            return Ok(Appended::NOTHING);
        }
        self.slow_down(batch.writes.len());
        let mut tail = self.writer.lock();
        self.or_break(self.write(&mut tail, batch))
    }

    fn insert(&self, appended: Appended, batch: &Batch) {
        if appended == Appended::NOTHING {
            return;
        }
        let _inserting = self.inserting.lock();
        self.tables.insert(appended.0, batch);
        self.appended.fetch_sub(1, Ordering::Relaxed);
    }

    fn wants_room(&self) -> bool {
        let Pressure { active_bytes, runs, .. } = self.tables.pressure();
        runs > RUNS_MAX
            || active_bytes >= self.options.memtable_bytes
            || active_bytes > 0 && self.is_journal_long()
    }

    fn inline_segments(&self) -> Vec<u64> {
        self.journal.inline_segments()
    }

    fn inline_data(&self, of: &BTreeSet<u64>) -> Result<Vec<InlineData>> {
        self.journal.inline_data(of)
    }

    fn release_inline(&self, segment: u64) {
        self.journal.release(segment);
    }

    fn maintain(&self) -> Result<bool> {
        self.check_alive()?;
        match self.work() {
            // other reads and commits go on: damage in one table must not stop the cell
            Err(Error::Corrupt(what)) => Err(Error::Corrupt(what)),
            other => self.or_break(other),
        }
    }

    fn close(&self) -> Result<()> {
        self.check_alive()?;
        self.or_break(self.finish())?;
        // an operation in progress must not report durability any more: the directory may belong to
        // another process now
        let _ = self.broken.set("the cell is closed".into());
        Ok(())
    }

    fn idle(&self) {
        if self.check_alive().is_err() {
            return;
        }
        let closed_off = self.journal.close_off(&mut self.writer.lock(), || self.tables.seq_next());
        if let Err(e) = self.or_break(closed_off) {
            tracing::warn!("the metadata journal: {e}");
        }
        if self.journal.disk_bytes() > 2 * self.options.journal.file_bytes {
            self.seal();
        }
    }

    fn reserve(&self, hold: bool) -> Result<()> {
        let _one = self.reserve.lock();
        set_reserve(&*self.disk, &self.options.journal.dir, hold)
    }

    fn damaged_file(&self) -> Option<String> {
        self.tables.damaged_file()
    }

    fn stats(&self) -> Stats {
        let tables = self.tables.stats();
        let Pressure { runs, sealed, .. } = self.tables.pressure();
        Stats {
            runs: runs as u64,
            sealed: sealed as u64,
            slowed_nanos: self.slowed.load(Ordering::Relaxed),
            table_bytes: tables.disk_bytes,
            journal_bytes: self.journal.disk_bytes(),
            journal_bytes_usual: JOURNAL_USUAL * self.options.journal_bytes,
            memtable_bytes: tables.memory_bytes,
            written_bytes: tables.written_bytes + self.journal.written_bytes(),
        }
    }
}
