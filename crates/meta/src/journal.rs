//! The write-ahead journal: one append and one flush of the device make a commit durable.
//!
//! A file `<dir>/journal-<n>` has a head (see [`head`]) and then records (see [`record`]) at
//! multiples of 4096 bytes, so that no write touches a block of an acknowledged record. A file gets
//! its full size and is overwritten before it is used. A finished file becomes `spare-<n>` and is
//! used again under the next number. So an append changes neither size nor allocation, which makes
//! its flush as cheap as the device allows.
//!
//! Invariants:
//! * A file gets its head before its name: a `journal-<n>` without a whole head is damaged, or of
//!   version 1.
//! * Files are dropped from the oldest on, each drop durable before the next, so the remaining
//!   files have no holes.
//! * Each record names the one before it, and the last one before it that wrote to the tables. If
//!   no file has that one, the tables must: else the oldest files are lost.
//! * A file without records names the file that had records when it was made. That file is dropped
//!   only after a newer one has records: if it is missing, the newest file is lost.
//! * What follows the last good record is a torn tail only if no later record of the journal is
//!   good; otherwise the journal is damaged.
//! * Opening writes the last record again and syncs it: the next power cut must not take back what
//!   this process builds upon. All earlier records were synced before the next was written. The
//!   last one perhaps was not, and a sync may have failed, after which the system takes the page
//!   for clean though it never reached the medium.
//! * A record that was refused for want of space is erased before another file is begun, so that a
//!   later record never follows it. Where erasing has no space either, it stays until the next
//!   append overwrites it: a crash before that brings it back.
//! * Opening never appends to a file that has records; a torn tail stays where it is.
//!
//! Inline data of a segment that is slow to be stored pins its file, and so all later files. When
//! that makes the journal long, the data is *carried*: appended again, after which the old file may
//! go.
//!
//! Used by [`crate::engine`] only. Lock order: the engine's writer lock (which guards [`Tail`]),
//! `next`, `ledger`.

pub(crate) mod head;
pub(crate) mod record;

use crate::{Batch, Error, InlineData, Result};
use head::{FileKey, Head};
use leeward_env::Env;
use leeward_env::disk::real::{ALIGN, AlignedBuf};
use leeward_env::disk::{Caching, Disk, DiskFile};
use parking_lot::Mutex;
use record::{Found, Header, Mark};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer larger than this is not kept for the next append.
const BUFFER_KEPT_BYTES: usize = 1 << 20;
/// Bytes written at a time when a new file is filled.
const FILL_BYTES: usize = 256 << 10;
/// Bytes before a file's records.
const HEAD_BYTES: u64 = ALIGN as u64;

/// Settings of a journal.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Directory in the disk.
    pub dir: String,
    /// Size of a file.
    pub file_bytes: u64,
    /// Most finished files that are kept for reuse.
    pub spares_max: usize,
    /// How files are written.
    pub caching: Caching,
    /// Whether the journal may be one of version 1, which has files without a head and without
    /// records.
    pub may_be_old: bool,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            dir: "meta".into(),
            file_bytes: 4 << 20,
            spares_max: 1,
            caching: Caching::Direct,
            may_be_old: false,
        }
    }
}

/// The journal except for its end.
pub(crate) struct Journal {
    env: Env,
    disk: Arc<dyn Disk>,
    options: JournalOptions,
    /// The file after the current one, when it is ready.
    next: Mutex<Option<NextFile>>,
    ledger: Mutex<FileLedger>,
    appended_bytes: AtomicU64,
    filled_bytes: AtomicU64,
}

/// Where the next record goes.
pub(crate) struct Tail {
    file: Option<Box<dyn DiskFile>>,
    end: u64,
    capacity: u64,
    key: FileKey,
    last_seq: u64,
    /// The last record that wrote to the tables; 0: not known.
    written: u64,
    /// Whether the last record has no content, so that damage to it loses nothing.
    is_closed_off: bool,
    /// Whether a record that was refused may be at the end.
    has_refused: bool,
    buffer: AlignedBuf,
}

struct NextFile {
    file: Box<dyn DiskFile>,
    capacity: u64,
    key: FileKey,
}

/// What each file is still needed for.
struct FileLedger {
    /// Finished files, oldest first.
    finished: VecDeque<LedgerEntry>,
    current: LedgerEntry,
    /// Whether the current entry has a file.
    started: bool,
    /// Files without records, by the number in their name.
    spares: Vec<u64>,
}

#[derive(Default)]
struct LedgerEntry {
    number: u64,
    /// Bytes of the file.
    capacity: u64,
    /// Bytes of its records.
    bytes: u64,
    /// The last record that wrote to the tables (0: none).
    last_write: u64,
    /// Segments with inline data in this file that was not released, with its bytes in this file.
    inline_data: BTreeMap<u64, u64>,
}

impl LedgerEntry {
    fn note(&mut self, seq: u64, batch: &Batch, bytes: u64) {
        self.bytes += bytes;
        if !batch.writes.is_empty() {
            self.last_write = seq;
        }
        for inline in &batch.inline_data {
            *self.inline_data.entry(inline.segment).or_default() += record::inline_bytes(inline) as u64;
        }
    }

    fn has_unwritten(&self, durable: u64) -> bool {
        self.last_write > durable
    }

    fn inline_bytes(&self) -> u64 {
        self.inline_data.values().sum()
    }
}

impl FileLedger {
    fn pages_mut(&mut self) -> impl Iterator<Item = &mut LedgerEntry> {
        self.finished.iter_mut().chain([&mut self.current])
    }

    /// Whether the oldest file may go. The last file with records stays until the current one has
    /// some: its head says so.
    fn may_drop_oldest(&self, durable: u64) -> bool {
        let is_last = self.finished.len() == 1 && self.started && self.current.bytes == 0;
        let is_needed = |page: &LedgerEntry| page.has_unwritten(durable) || !page.inline_data.is_empty();
        self.finished.front().is_some_and(|page| !is_last && !is_needed(page))
    }
}

impl Journal {
    /// Opens or starts a journal. `each` gets the batches in it, in order, with their sequence
    /// numbers. `held`: up to which number the tables have everything, where they know for certain.
    ///
    /// # Errors
    /// Corrupt: a file or a part of one is missing or damaged; Io; those of `each`.
    pub fn open(
        env: Env,
        disk: Arc<dyn Disk>,
        options: JournalOptions,
        held: Option<u64>,
        each: &mut dyn FnMut(u64, Batch) -> Result<()>,
    ) -> Result<(Journal, Tail)> {
        let names = Names::list(&*disk, &options.dir)?;
        let written = held.unwrap_or(0);
        let mut replay =
            Replay { options: &options, held, last: None, written, pages: VecDeque::new(), each };
        let mut unused = Vec::new();
        for &number in &names.journal {
            let file = disk.open(&path(&options, number), options.caching)?;
            if let Some(after) = replay.file(&*file, number)? {
                unused.push((number, after));
            }
        }
        names.check_newest(&options, &unused)?;
        let (last_seq, written) = (replay.last_seq(), replay.written);
        if let Some(last) = &replay.last {
            last.write_again(&*disk.open(&path(&options, last.number), options.caching)?)?;
        }
        let finished = replay.pages;
        // a number is never used again while a file with records of it may exist, whatever its name
        // is now
        let number = names.journal.iter().chain(&names.spares).max().copied().unwrap_or(0);
        let current = LedgerEntry { number, ..LedgerEntry::default() };
        let ledger = Mutex::new(FileLedger { finished, current, started: false, spares: names.spares });
        let (appended_bytes, filled_bytes) = Default::default();
        let journal =
            Journal { env, disk, options, next: Mutex::new(None), ledger, appended_bytes, filled_bytes };
        journal.set_aside(unused.into_iter().map(|(number, _)| number))?;
        Ok((journal, Tail::new(last_seq, written)))
    }

    /// Makes files without records spares. Their names, and those of all others, are made durable.
    fn set_aside(&self, unused: impl Iterator<Item = u64>) -> Result<()> {
        let mut ledger = self.ledger.lock();
        for number in unused {
            self.disk.rename(&path(&self.options, number), &spare_path(&self.options, number))?;
            ledger.spares.push(number);
        }
        ledger.spares.sort_unstable();
        ledger.spares.dedup();
        if !ledger.finished.is_empty() || !ledger.spares.is_empty() {
            self.disk.sync_dir(&self.options.dir)?;
        }
        Ok(())
    }

    /// Appends a batch; it is durable on return.
    ///
    /// # Errors
    /// Full: the journal is as before, but that a crash before the next append may show the batch.
    /// After any other error its state is unknown: nothing may be appended again.
    pub fn append(&self, tail: &mut Tail, seq: u64, batch: &Batch) -> Result<()> {
        let len = record::encoded_len(batch);
        let padded = len.next_multiple_of(ALIGN);
        if tail.end + padded as u64 > tail.capacity {
            tail.wipe()?;
            self.switch(tail, padded as u64)?;
        }
        tail.encode(seq, batch, len);
        tail.write(padded)?;
        tail.end += padded as u64;
        tail.note(seq, batch);
        self.ledger.lock().current.note(seq, batch, padded as u64);
        self.appended_bytes.fetch_add(padded as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Moves on to the next file, which has room for `needed` bytes.
    fn switch(&self, tail: &mut Tail, needed: u64) -> Result<()> {
        let mut next = self.next.lock();
        if next.as_ref().is_none_or(|n| n.capacity < HEAD_BYTES + needed) {
            *next = None;
            *next = Some(self.make_next(needed, Fill::Leave)?);
        }
        let Some(NextFile { file, capacity, key }) = next.take() else {
            return Err(Error::Broken("no journal file".into()));
        };
        let mut ledger = self.ledger.lock();
        let number = ledger.current.number + 1;
        let old = std::mem::replace(
            &mut ledger.current,
            LedgerEntry { number, capacity, ..LedgerEntry::default() },
        );
        if tail.file.is_some() {
            ledger.finished.push_back(old);
        }
        ledger.started = true;
        (tail.file, tail.key, tail.end, tail.capacity) = (Some(file), key, HEAD_BYTES, capacity);
        Ok(())
    }

    /// Prepares the next file, so that no commit has to; `false` when it is ready.
    pub fn prepare(&self) -> Result<bool> {
        let mut next = self.next.lock();
        if next.is_some() {
            return Ok(false);
        }
        *next = Some(self.make_next(0, Fill::Zeros)?);
        Ok(true)
    }

    /// The file after the current one, with space, a head and a durable name. `next` is locked: its
    /// number stays.
    fn make_next(&self, needed: u64, fill: Fill) -> Result<NextFile> {
        let (number, after, spare) = {
            let ledger = self.ledger.lock();
            let after = if ledger.current.bytes > 0 { ledger.current.number } else { 0 };
            (ledger.current.number + 1, after, ledger.spares.last().copied())
        };
        // until it has its head it is a spare
        let unnamed = spare_path(&self.options, spare.unwrap_or(number));
        let made = match spare {
            Some(_) => self
                .disk
                .open(&unnamed, self.options.caching)
                .map_err(Error::from)
                .and_then(|file| self.grow(file, HEAD_BYTES + needed, Fill::Leave)),
            None => self
                .disk
                .create(&unnamed, self.options.caching)
                .map_err(Error::from)
                .and_then(|file| self.grow(file, HEAD_BYTES + needed, fill)),
        };
        if spare.is_none() && matches!(made, Err(Error::Full)) {
            let _ = self.disk.remove(&unnamed); // what stays is a spare at the next opening
        }
        let (file, capacity) = made?;
        let head = Head::new(&self.env, number, after);
        head.write(&*file)?;
        self.disk.rename(&unnamed, &path(&self.options, number))?;
        if spare.is_some() {
            self.ledger.lock().spares.pop();
        }
        self.disk.sync_dir(&self.options.dir)?;
        Ok(NextFile { file, capacity, key: head.key })
    }

    /// The file with its full size, or when the disk does not give that, as much as is needed now.
    fn grow(&self, file: Box<dyn DiskFile>, needed: u64, fill: Fill) -> Result<(Box<dyn DiskFile>, u64)> {
        let least = needed.max(HEAD_BYTES + ALIGN as u64);
        let wanted = self.options.file_bytes.max(least);
        let old = file.len()?;
        if old >= wanted {
            return Ok((file, old / ALIGN as u64 * ALIGN as u64));
        }
        let capacity = match file.allocate(wanted).map_err(Error::from) {
            Ok(()) => wanted,
            Err(Error::Full) if old >= least => old / ALIGN as u64 * ALIGN as u64,
            Err(Error::Full) => {
                file.allocate(least)?;
                least
            }
            Err(e) => return Err(e),
        };
        if matches!(fill, Fill::Zeros) {
            self.fill(&*file, capacity)?;
        }
        file.sync()?;
        Ok((file, capacity))
    }

    /// Writes the file once, so that a commit finds its blocks initialised.
    fn fill(&self, file: &dyn DiskFile, capacity: u64) -> Result<()> {
        let zeros = AlignedBuf::zeroed(FILL_BYTES.min(capacity as usize));
        for at in (0..capacity).step_by(zeros.len()) {
            let len = zeros.len().min((capacity - at) as usize);
            file.write_at(at, &zeros[..len])?;
        }
        self.filled_bytes.fetch_add(capacity, Ordering::Relaxed);
        Ok(())
    }

    /// The inline data of this segment is no longer needed. Inline data of it that is appended
    /// later is not affected.
    pub fn release(&self, segment: u64) {
        self.ledger.lock().pages_mut().for_each(|page| {
            page.inline_data.remove(&segment);
        });
    }

    /// Segments with inline data that was not released.
    pub fn inline_segments(&self) -> Vec<u64> {
        let mut ledger = self.ledger.lock();
        let all: BTreeSet<u64> =
            ledger.pages_mut().flat_map(|page| page.inline_data.keys().copied()).collect();
        all.into_iter().collect()
    }

    /// The inline data of these segments in finished files.
    pub fn inline_data(&self, of: &BTreeSet<u64>) -> Result<Vec<InlineData>> {
        let _files = self.next.lock(); // none is dropped or used again meanwhile
        let is_in = |page: &&LedgerEntry| page.inline_data.keys().any(|segment| of.contains(segment));
        let numbers: Vec<u64> =
            self.ledger.lock().finished.iter().filter(is_in).map(|page| page.number).collect();
        let mut inline_data = Vec::new();
        for number in numbers {
            self.inline_data_in(number, of, &mut inline_data)?;
        }
        Ok(inline_data)
    }

    fn inline_data_in(
        &self,
        number: u64,
        of: &BTreeSet<u64>,
        inline_data: &mut Vec<InlineData>,
    ) -> Result<()> {
        let path = path(&self.options, number);
        let bytes = read(&*self.disk.open(&path, self.options.caching)?)?;
        let (mark, mut at) = marked(&bytes, number).ok_or_else(|| damaged(&path, "its head"))?;
        while let Some(found) = record::find(&bytes[at..], mark) {
            let batch = record::decode(found.payload).ok_or_else(|| damaged(&path, "a record"))?;
            inline_data.extend(batch.inline_data.into_iter().filter(|inline| of.contains(&inline.segment)));
            at = (at + found.len.next_multiple_of(ALIGN)).min(bytes.len());
        }
        Ok(())
    }

    /// The number of the oldest file, if only inline data keeps it, and most of so long a journal
    /// is not needed.
    pub fn pinned(&self, durable: u64, long_bytes: u64) -> Option<u64> {
        let ledger = self.ledger.lock();
        let (all, needed) = ledger
            .finished
            .iter()
            .map(|page| (page.bytes, page.inline_bytes()))
            .fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        let oldest = ledger.finished.front()?;
        let is_pinned = !oldest.has_unwritten(durable) && !oldest.inline_data.is_empty();
        (is_pinned && all >= long_bytes && 2 * needed <= all).then_some(oldest.number)
    }

    /// The inline data in a finished file, for [`Journal::carry`].
    pub fn pinned_inline_data(&self, number: u64) -> Result<Vec<InlineData>> {
        let _files = self.next.lock();
        let of: BTreeSet<u64> = match self.ledger.lock().finished.front() {
            Some(page) if page.number == number => page.inline_data.keys().copied().collect(),
            _ => return Ok(Vec::new()),
        };
        let mut inline_data = Vec::new();
        self.inline_data_in(number, &of, &mut inline_data)?;
        Ok(inline_data)
    }

    /// Appends again the inline data of the oldest file that is still needed. After that the file
    /// does not need it.
    ///
    /// # Errors
    /// As of [`Journal::append`].
    pub fn carry(
        &self,
        tail: &mut Tail,
        seq: u64,
        number: u64,
        mut inline_data: Vec<InlineData>,
    ) -> Result<()> {
        let needed = |ledger: &FileLedger| {
            let page = ledger.finished.front().filter(|page| page.number == number);
            page.map(|page| page.inline_data.keys().copied().collect::<BTreeSet<u64>>()).unwrap_or_default()
        };
        let segments = needed(&self.ledger.lock());
        inline_data.retain(|inline| segments.contains(&inline.segment));
        if inline_data.is_empty() && segments.is_empty() {
            return Ok(());
        }
        self.check_whole(number, &inline_data)?;
        self.append(tail, seq, &Batch { writes: Vec::new(), inline_data })?;
        let mut ledger = self.ledger.lock();
        // data that was released since the look above must not come back with the record just
        // appended
        let still = needed(&ledger);
        for page in ledger.pages_mut() {
            page.inline_data.retain(|segment, _| !segments.contains(segment) || still.contains(segment));
        }
        if let Some(page) = ledger.finished.front_mut().filter(|page| page.number == number) {
            page.inline_data.clear();
        }
        Ok(())
    }

    /// Reading a file ends where a record is damaged: data after that must not count as carried.
    fn check_whole(&self, number: u64, inline_data: &[InlineData]) -> Result<()> {
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for inline in inline_data {
            *found.entry(inline.segment).or_default() += record::inline_bytes(inline) as u64;
        }
        let ledger = self.ledger.lock();
        let Some(page) = ledger.finished.front().filter(|page| page.number == number) else { return Ok(()) };
        let is_short = |(segment, bytes): (&u64, &u64)| found.get(segment).is_none_or(|found| found < bytes);
        match page.inline_data.iter().any(is_short) {
            true => Err(damaged(&path(&self.options, number), "a record")),
            false => Ok(()),
        }
    }

    /// Appends a record without content after the last one, unless there is one. So damage to the
    /// last commit shows: a good record follows it.
    pub fn close_off(&self, tail: &mut Tail, seq: impl FnOnce() -> u64) -> Result<()> {
        if tail.file.is_none() || tail.is_closed_off || tail.end + ALIGN as u64 > tail.capacity {
            return Ok(());
        }
        self.append(tail, seq(), &Batch::default())
    }

    /// Ends the journal: the needed parts stay, the rest goes.
    pub fn finish(&self, tail: &mut Tail, durable: u64) -> Result<()> {
        tail.wipe()?;
        let next = self.next.lock().take();
        {
            let mut ledger = self.ledger.lock();
            let unused = next.map(|_| ledger.current.number + 1);
            drop(ledger);
            self.set_aside(unused.into_iter())?;
            ledger = self.ledger.lock();
            if tail.file.take().is_some() {
                let number = ledger.current.number;
                let old =
                    std::mem::replace(&mut ledger.current, LedgerEntry { number, ..LedgerEntry::default() });
                ledger.finished.push_back(old);
                ledger.started = false;
                tail.capacity = 0;
            }
        }
        while self.retire(durable)? {}
        Ok(())
    }

    /// Drops the oldest file if nothing in it is needed. The tables are durable up to `durable`.
    pub fn retire(&self, durable: u64) -> Result<bool> {
        let _files = self.next.lock(); // spares change under this lock only; commits go on
        let (number, keep) = {
            let ledger = self.ledger.lock();
            match ledger.finished.front() {
                Some(page) if ledger.may_drop_oldest(durable) => {
                    let is_usual = page.capacity <= self.options.file_bytes;
                    (page.number, is_usual && ledger.spares.len() < self.options.spares_max)
                }
                _ => return Ok(false),
            }
        };
        let path = path(&self.options, number);
        if keep {
            self.disk.rename(&path, &spare_path(&self.options, number))?;
        } else {
            self.disk.remove(&path)?;
        }
        let mut ledger = self.ledger.lock();
        ledger.finished.pop_front();
        ledger.spares.extend(keep.then_some(number));
        drop(ledger);
        self.disk.sync_dir(&self.options.dir)?;
        Ok(true)
    }

    /// Approximate bytes of all files on disk.
    pub fn disk_bytes(&self) -> u64 {
        let next = self.next.lock().as_ref().map_or(0, |next| next.capacity);
        let mut ledger = self.ledger.lock();
        let spares = ledger.spares.len() as u64 * self.options.file_bytes;
        next + spares + ledger.pages_mut().map(|page| page.capacity).sum::<u64>()
    }

    /// Bytes of records appended since opening.
    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    /// Bytes written since opening.
    pub fn written_bytes(&self) -> u64 {
        self.appended_bytes() + self.filled_bytes.load(Ordering::Relaxed)
    }
}

/// Whether a new file's blocks are written before it is used.
#[derive(Clone, Copy)]
enum Fill {
    Zeros,
    /// No: a thread waits, or the blocks were written before.
    Leave,
}

impl Tail {
    fn new(last_seq: u64, written: u64) -> Tail {
        Tail {
            file: None,
            end: 0,
            capacity: 0,
            key: FileKey::default(),
            last_seq,
            written,
            is_closed_off: false,
            has_refused: false,
            buffer: AlignedBuf::zeroed(ALIGN),
        }
    }

    /// The last record's sequence number.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    fn encode(&mut self, seq: u64, batch: &Batch, len: usize) {
        let padded = len.next_multiple_of(ALIGN);
        if self.buffer.len() < padded {
            self.buffer = AlignedBuf::zeroed(padded.next_power_of_two());
        }
        let header = Header { seq, previous: self.last_seq, written: self.written };
        record::encode(&mut self.buffer, &self.key, header, batch);
        self.buffer[len..padded].fill(0);
    }

    /// The buffer was written as the record `seq`.
    fn note(&mut self, seq: u64, batch: &Batch) {
        self.last_seq = seq;
        if !batch.writes.is_empty() {
            self.written = seq;
        }
        self.is_closed_off = batch.writes.is_empty() && batch.inline_data.is_empty();
        self.shrink();
    }

    /// Writes and syncs the buffer; takes the write back when there was no space.
    fn write(&mut self, padded: usize) -> Result<()> {
        let Some(file) = &self.file else { return Err(Error::Broken("no journal file".into())) };
        let written = file.write_at(self.end, &self.buffer[..padded]).and_then(|()| file.sync());
        let written = written.map_err(Error::from);
        self.has_refused = matches!(written, Err(Error::Full));
        if self.has_refused {
            self.wipe()?;
        }
        written
    }

    /// Erases the header of a record that was refused, durably, so that the next opening does not
    /// find the record. On file systems that copy on write this needs space, too.
    fn wipe(&mut self) -> Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.has_refused) {
            file.write_at(self.end, &AlignedBuf::zeroed(ALIGN)).and_then(|()| file.sync())?;
            self.has_refused = false;
        }
        Ok(())
    }

    fn shrink(&mut self) {
        if self.buffer.len() > BUFFER_KEPT_BYTES {
            self.buffer = AlignedBuf::zeroed(ALIGN);
        }
    }
}

/// The mark of a file's records, and where they begin; `None`: its head is damaged, or it has
/// neither a head nor records of version 1.
fn marked(bytes: &[u8], number: u64) -> Option<(Mark, usize)> {
    let old = Mark::Number(number);
    match Head::read(bytes) {
        Some(head) => (head.number == number).then_some((Mark::Key(head.key), ALIGN)),
        None => record::find(bytes, old).map(|_| (old, 0)),
    }
}

fn damaged(path: &str, what: &str) -> Error {
    Error::Corrupt(format!("{path} is damaged ({what}): restore the metadata from a backup"))
}

/// Reads files in order and checks that their records follow each other.
struct Replay<'a> {
    options: &'a JournalOptions,
    held: Option<u64>,
    last: Option<RecordPosition>,
    written: u64,
    pages: VecDeque<LedgerEntry>,
    each: &'a mut dyn FnMut(u64, Batch) -> Result<()>,
}

impl Replay<'_> {
    /// Replays one file. If it has no records, returns the number of the file that had some when it
    /// was made (0: none had).
    fn file(&mut self, file: &dyn DiskFile, number: u64) -> Result<Option<u64>> {
        let path = path(self.options, number);
        let bytes = read(file)?;
        let Some((mark, begin)) = marked(&bytes, number) else {
            return match Head::read(&bytes) {
                Some(head) => Err(damaged(&path, &format!("it was journal-{}", head.number))),
                None if self.options.may_be_old => Ok(Some(0)),
                None => Err(damaged(&path, "its head")),
            };
        };
        let mut page = LedgerEntry { number, capacity: bytes.len() as u64, ..LedgerEntry::default() };
        let mut at = begin;
        while let Some(found) = record::find(&bytes[at..], mark) {
            self.check(&path, &found)?;
            let (seq, header) = (found.header.seq, found.header);
            let batch = record::decode(found.payload).ok_or_else(|| damaged(&path, "a record"))?;
            let padded = found.len.next_multiple_of(ALIGN);
            page.note(seq, &batch, padded as u64);
            self.written = if batch.writes.is_empty() { self.written.max(header.written) } else { seq };
            self.last = Some(RecordPosition { number, seq, at: at as u64, len: padded });
            (self.each)(seq, batch)?;
            at = (at + padded).min(bytes.len());
        }
        self.check_tail(&path, &bytes[at..], mark)?;
        let is_used = page.bytes > 0;
        if is_used {
            self.pages.push_back(page);
        }
        Ok((!is_used).then(|| Head::read(&bytes).map_or(0, |head| head.after)))
    }

    fn last_seq(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.seq)
    }

    /// Checks that records follow each other. The first one may follow any that was dropped: the
    /// tables have those writes.
    fn check(&self, path: &str, found: &Found<'_>) -> Result<()> {
        let Header { seq, previous, written } = found.header;
        let missing = match (&self.last, self.held) {
            (None, Some(held)) if written > held => {
                format!("the tables have what was committed up to {held}, not up to {written}")
            }
            (Some(last), _) if previous != last.seq || seq <= last.seq => {
                format!("record {seq} follows {previous}, found was {}", last.seq)
            }
            _ => return Ok(()),
        };
        Err(Error::Corrupt(format!(
            "records are missing before those in {path} ({missing}): restore the metadata from a backup"
        )))
    }

    /// Checks that a torn record is the last one: no good one may come after it.
    fn check_tail(&self, path: &str, tail: &[u8], mark: Mark) -> Result<()> {
        let last = self.last_seq();
        let later = (0..tail.len())
            .step_by(ALIGN)
            .skip(1)
            .filter_map(|at| record::find(&tail[at..], mark))
            .find(|found| found.header.seq > last);
        match later {
            None => Ok(()),
            Some(found) => Err(damaged(path, &format!("between records {last} and {}", found.header.seq))),
        }
    }
}

/// The position of a record.
struct RecordPosition {
    /// Number of the file.
    number: u64,
    seq: u64,
    at: u64,
    len: usize,
}

impl RecordPosition {
    fn write_again(&self, file: &dyn DiskFile) -> Result<()> {
        let mut bytes = AlignedBuf::zeroed(self.len);
        file.read_at(self.at, &mut bytes[..self.len])?;
        file.write_at(self.at, &bytes[..self.len])?;
        Ok(file.sync()?)
    }
}

/// A whole file.
fn read(file: &dyn DiskFile) -> Result<AlignedBuf> {
    let len = file.len()? as usize;
    let mut bytes = AlignedBuf::zeroed(len);
    for at in (0..len).step_by(1 << 20) {
        let end = (at + (1 << 20)).min(bytes.len());
        file.read_at(at as u64, &mut bytes[at..end])?;
    }
    Ok(bytes)
}

struct Names {
    journal: Vec<u64>,
    spares: Vec<u64>,
}

impl Names {
    fn list(disk: &dyn Disk, dir: &str) -> Result<Names> {
        let (mut journal, mut spares) = (Vec::new(), Vec::new());
        for (name, _) in disk.list(dir)? {
            let number = |prefix| name.strip_prefix(prefix).and_then(|n| n.parse::<u64>().ok());
            journal.extend(number("journal-"));
            spares.extend(number("spare-"));
        }
        journal.sort_unstable();
        Ok(Names { journal, spares })
    }

    /// Checks that the file exists that had records when a file without records was made.
    fn check_newest(&self, options: &JournalOptions, unused: &[(u64, u64)]) -> Result<()> {
        let is_there = |after: &u64| *after == 0 || self.journal.contains(after);
        match unused.iter().find(|(_, after)| !is_there(after)) {
            None => Ok(()),
            Some((number, after)) => Err(Error::Corrupt(format!(
                "{} is missing ({} was made after it): restore the metadata from a backup",
                path(options, *after),
                path(options, *number)
            ))),
        }
    }
}

fn path(options: &JournalOptions, number: u64) -> String {
    format!("{}/journal-{number}", options.dir)
}

fn spare_path(options: &JournalOptions, number: u64) -> String {
    format!("{}/spare-{number}", options.dir)
}
