//! The write-ahead journal: one append and one flush of the device make a commit durable.
//!
//! Files `<dir>/journal-<n>` hold records (see [`record`]) at multiples of 4096 bytes, so that no write touches a
//! block of an acknowledged record. A file has its full size and is written over before it is used, and a
//! finished one comes back as `spare-<n>` and then under the next number: an append changes neither size nor
//! allocation, which makes its flush as cheap as the device allows.
//!
//! Invariants:
//! * Files are dropped from the oldest on, each drop durable before the next, so what is left has no holes.
//! * Each record names the one before it. What follows the last good record is a torn tail only if no later record
//!   of the journal is good; otherwise the journal is damaged.
//! * Opening writes the last record again and syncs it: the next power cut must not take back what this process
//!   builds upon. All others were synced before the next was written; this one perhaps not, and a sync may have
//!   failed, after which the system takes the page for clean though it never reached the medium.
//! * Opening never appends to a file that has records; a torn tail stays where it is.
//!
//! Used by [`crate::engine`] only. Lock order: the engine's writer lock (which guards [`Tail`]), `next`, `books`.

pub(crate) mod record;

use crate::{Batch, Error, Result};
use leeward_env::disk::real::{ALIGN, AlignedBuf};
use leeward_env::disk::{Caching, Disk, DiskFile};
use parking_lot::Mutex;
use record::Header;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer larger than this is not kept for the next append.
const BUFFER_KEPT_BYTES: usize = 1 << 20;
/// Bytes written at a time when a new file is filled.
const FILL_BYTES: usize = 256 << 10;

/// Settings of a journal.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Directory in the disk.
    pub dir: String,
    /// Size of a file.
    pub file_bytes: u64,
    /// Finished files kept for use again.
    pub spares_max: usize,
    /// How files are written.
    pub caching: Caching,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions { dir: "meta".into(), file_bytes: 4 << 20, spares_max: 1, caching: Caching::Direct }
    }
}

/// The journal apart from its end.
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    options: JournalOptions,
    /// The file after the current one, when it is ready.
    next: Mutex<Option<NextFile>>,
    books: Mutex<Books>,
    appended_bytes: AtomicU64,
    filled_bytes: AtomicU64,
}

/// Where the next record goes.
pub(crate) struct Tail {
    file: Option<Box<dyn DiskFile>>,
    number: u64,
    end: u64,
    capacity: u64,
    last_seq: u64,
    buffer: AlignedBuf,
}

struct NextFile {
    file: Box<dyn DiskFile>,
    capacity: u64,
}

/// What each file is still needed for.
struct Books {
    /// Finished files, oldest first.
    finished: VecDeque<Page>,
    current: Page,
    /// Files without records, by the number in their name.
    spares: Vec<u64>,
}

#[derive(Default)]
struct Page {
    number: u64,
    bytes: u64,
    /// The last record that wrote to the tables (0: none).
    last_write: u64,
    /// Segments whose rides are here and were not released.
    segments: BTreeSet<u64>,
}

impl Page {
    fn note(&mut self, seq: u64, batch: &Batch, bytes: u64) {
        self.bytes += bytes;
        if !batch.writes.is_empty() {
            self.last_write = seq;
        }
        self.segments.extend(batch.rides.iter().map(|r| r.segment));
    }

    fn is_needed(&self, durable: u64) -> bool {
        self.last_write > durable || !self.segments.is_empty()
    }
}

impl Journal {
    /// Opens or starts a journal; `each` gets the batches in it, in order, with their sequence numbers.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: JournalOptions,
        each: &mut dyn FnMut(u64, Batch) -> Result<()>,
    ) -> Result<(Journal, Tail)> {
        let names = Names::list(&*disk, &options.dir)?;
        let mut replay = Replay { last: None, pages: VecDeque::new(), each };
        let mut unused = Vec::new();
        for &number in &names.journal {
            let path = path(&options, number);
            let used = replay.file(&*disk.open(&path, options.caching)?, number)?;
            if !used {
                unused.push(number);
            }
        }
        let last_seq = replay.last_seq();
        if let Some(last) = &replay.last {
            last.write_again(&*disk.open(&path(&options, last.header.file), options.caching)?)?;
        }
        let finished = replay.pages;
        // a number is never used again while a file with records of it may exist, whatever its name is now
        let number = names.journal.iter().chain(&names.spares).max().copied().unwrap_or(0);
        let current = Page { number, ..Page::default() };
        let books = Mutex::new(Books { finished, current, spares: names.spares });
        let (appended_bytes, filled_bytes) = Default::default();
        let journal = Journal { disk, options, next: Mutex::new(None), books, appended_bytes, filled_bytes };
        journal.set_aside(unused)?;
        Ok((journal, Tail::new(last_seq)))
    }

    /// Makes files without records spares. Their names are made durable, and those of all others.
    fn set_aside(&self, unused: Vec<u64>) -> Result<()> {
        let mut books = self.books.lock();
        for number in unused {
            self.disk.rename(&path(&self.options, number), &spare_path(&self.options, number))?;
            books.spares.push(number);
        }
        books.spares.sort_unstable();
        books.spares.dedup();
        if !books.finished.is_empty() || !books.spares.is_empty() {
            self.disk.sync_dir(&self.options.dir)?;
        }
        Ok(())
    }

    /// Appends a batch; it is durable on return.
    ///
    /// # Errors
    /// Full: the journal is as before. After any other error its state is unknown: nothing may be appended again.
    pub fn append(&self, tail: &mut Tail, seq: u64, batch: &Batch) -> Result<()> {
        let len = record::encoded_len(batch);
        let padded = len.next_multiple_of(ALIGN);
        if tail.end + padded as u64 > tail.capacity {
            self.switch(tail, padded as u64)?;
        }
        let header = Header { file: tail.number, seq, previous: tail.last_seq };
        tail.encode(header, batch, len);
        tail.write(padded)?;
        tail.end += padded as u64;
        tail.last_seq = seq;
        tail.shrink();
        self.books.lock().current.note(seq, batch, padded as u64);
        self.appended_bytes.fetch_add(padded as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Goes on to the next file, which has room for `needed` bytes.
    fn switch(&self, tail: &mut Tail, needed: u64) -> Result<()> {
        let mut next = self.next.lock();
        if next.as_ref().is_none_or(|n| n.capacity < needed) {
            *next = None;
            *next = Some(self.make_next(needed, Fill::Leave)?);
        }
        let Some(NextFile { file, capacity }) = next.take() else {
            return Err(Error::Broken("no journal file".into()));
        };
        let mut books = self.books.lock();
        let number = books.current.number + 1;
        let old = std::mem::replace(&mut books.current, Page { number, ..Page::default() });
        if tail.file.is_some() {
            books.finished.push_back(old);
        }
        (tail.file, tail.number, tail.end, tail.capacity) = (Some(file), number, 0, capacity);
        Ok(())
    }

    /// Readies the next file, so that no commit has to; `false` when it is ready.
    pub fn prepare(&self) -> Result<bool> {
        let mut next = self.next.lock();
        if next.is_some() {
            return Ok(false);
        }
        *next = Some(self.make_next(0, Fill::Zeros)?);
        Ok(true)
    }

    /// A durable name and space for the file after the current one. `next` is locked: its number stays.
    fn make_next(&self, needed: u64, fill: Fill) -> Result<NextFile> {
        let number = self.books.lock().current.number + 1;
        let path = path(&self.options, number);
        let made = self.take_or_create(&path, needed, fill);
        if matches!(made, Err(Error::Full)) {
            let _ = self.disk.remove(&path); // what stays is made again, or found unused at the next opening
        }
        made
    }

    fn take_or_create(&self, path: &str, needed: u64, fill: Fill) -> Result<NextFile> {
        let spare = self.books.lock().spares.last().copied();
        let made = match spare {
            Some(number) => {
                self.disk.rename(&spare_path(&self.options, number), path)?;
                self.books.lock().spares.pop();
                self.grow(self.disk.open(path, self.options.caching)?, needed, Fill::Leave)?
            }
            None => self.grow(self.disk.create(path, self.options.caching)?, needed, fill)?,
        };
        self.disk.sync_dir(&self.options.dir)?;
        Ok(made)
    }

    /// The file with its full size, or when the disk does not give that, as much as is needed now.
    fn grow(&self, file: Box<dyn DiskFile>, needed: u64, fill: Fill) -> Result<NextFile> {
        let least = needed.max(ALIGN as u64);
        let wanted = self.options.file_bytes.max(least);
        let old = file.len()?;
        if old >= wanted {
            return Ok(NextFile { file, capacity: old / ALIGN as u64 * ALIGN as u64 });
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
        Ok(NextFile { file, capacity })
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

    /// The rides of this segment are no longer needed.
    pub fn release(&self, segment: u64) {
        let mut books = self.books.lock();
        books.current.segments.remove(&segment);
        books.finished.iter_mut().for_each(|page| {
            page.segments.remove(&segment);
        });
    }

    /// Drops the oldest file if nothing in it is needed, the tables being durable up to `durable`.
    pub fn retire(&self, durable: u64) -> Result<bool> {
        let _files = self.next.lock(); // spares change under this lock only; commits go on
        let (number, keep) = {
            let books = self.books.lock();
            match books.finished.front() {
                Some(page) if !page.is_needed(durable) => {
                    (page.number, books.spares.len() < self.options.spares_max)
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
        let mut books = self.books.lock();
        books.finished.pop_front();
        books.spares.extend(keep.then_some(number));
        drop(books);
        self.disk.sync_dir(&self.options.dir)?;
        Ok(true)
    }

    /// Bytes of all files on disk, about.
    pub fn disk_bytes(&self) -> u64 {
        let next = u64::from(self.next.lock().is_some());
        let books = self.books.lock();
        let files = books.finished.len() as u64 + books.spares.len() as u64 + next;
        (files + u64::from(books.current.bytes > 0)) * self.options.file_bytes
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
    /// Somebody waits, or it was written before.
    Leave,
}

impl Tail {
    fn new(last_seq: u64) -> Tail {
        Tail { file: None, number: 0, end: 0, capacity: 0, last_seq, buffer: AlignedBuf::zeroed(ALIGN) }
    }

    /// The last record's sequence number.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    fn encode(&mut self, header: Header, batch: &Batch, len: usize) {
        let padded = len.next_multiple_of(ALIGN);
        if self.buffer.len() < padded {
            self.buffer = AlignedBuf::zeroed(padded.next_power_of_two());
        }
        record::encode(&mut self.buffer, header, batch);
        self.buffer[len..padded].fill(0);
    }

    /// Writes and syncs the buffer; takes it back when there was no space.
    fn write(&self, padded: usize) -> Result<()> {
        let Some(file) = &self.file else { return Err(Error::Broken("no journal file".into())) };
        let written = file.write_at(self.end, &self.buffer[..padded]).and_then(|()| file.sync());
        match written.map_err(Error::from) {
            Err(Error::Full) => self.wipe(&**file),
            other => other,
        }
    }

    /// Makes sure that a record which was refused is not found by the next opening: its header goes, durably.
    fn wipe(&self, file: &dyn DiskFile) -> Result<()> {
        let zeros = AlignedBuf::zeroed(ALIGN);
        file.write_at(self.end, &zeros).and_then(|()| file.sync()).map_err(Error::Io)?;
        Err(Error::Full)
    }

    fn shrink(&mut self) {
        if self.buffer.len() > BUFFER_KEPT_BYTES {
            self.buffer = AlignedBuf::zeroed(ALIGN);
        }
    }
}

/// Reads files in order and checks that their records follow each other.
struct Replay<'a> {
    last: Option<Place>,
    pages: VecDeque<Page>,
    each: &'a mut dyn FnMut(u64, Batch) -> Result<()>,
}

impl Replay<'_> {
    /// Replays one file; `false` when it has no records.
    fn file(&mut self, file: &dyn DiskFile, number: u64) -> Result<bool> {
        let bytes = read(file)?;
        let mut page = Page { number, ..Page::default() };
        let mut at = 0;
        while let Some(found) = record::find(&bytes[at..], number) {
            self.check(found.header)?;
            let (seq, batch) = (found.header.seq, record::decode(found.payload)?);
            let padded = found.len().next_multiple_of(ALIGN);
            page.note(seq, &batch, padded as u64);
            self.last = Some(Place { header: found.header, at: at as u64, len: padded });
            (self.each)(seq, batch)?;
            at = (at + padded).min(bytes.len());
        }
        self.check_tail(&bytes[at..], number)?;
        let used = page.bytes > 0;
        if used {
            self.pages.push_back(page);
        }
        Ok(used)
    }

    fn last_seq(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.header.seq)
    }

    /// Records follow each other; the first one may follow any that was dropped.
    fn check(&self, header: Header) -> Result<()> {
        let last = self.last_seq();
        if self.last.is_none() || (header.previous == last && header.seq > last) {
            return Ok(());
        }
        let Header { file, seq, previous } = header;
        Err(Error::Corrupt(format!("journal file {file}: record {seq} follows {last}, not {previous}")))
    }

    /// A torn record is the last one: no good one may come after it.
    fn check_tail(&self, tail: &[u8], number: u64) -> Result<()> {
        let last = self.last_seq();
        let later = (0..tail.len())
            .step_by(ALIGN)
            .skip(1)
            .filter_map(|at| record::find(&tail[at..], number))
            .find(|found| found.header.seq > last);
        match later {
            None => Ok(()),
            Some(found) => Err(Error::Corrupt(format!(
                "journal file {number}: damage between records {last} and {}",
                found.header.seq
            ))),
        }
    }
}

/// Where a record is.
struct Place {
    header: Header,
    at: u64,
    len: usize,
}

impl Place {
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
}

fn path(options: &JournalOptions, number: u64) -> String {
    format!("{}/journal-{number}", options.dir)
}

fn spare_path(options: &JournalOptions, number: u64) -> String {
    format!("{}/spare-{number}", options.dir)
}
