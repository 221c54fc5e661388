//! Stores blobs: in packs, which threads put, and which an index names then.
//!
//! A snapshot may be written when [`Saver::finish`] has returned: then all is durable. What ends
//! earlier leaves packs that an index names, which the next run finds, and some that none names,
//! which pruning removes.

use crate::index::IndexFile;
use crate::lock::{Held, Lock};
use crate::pack::{BlobKind, Compressed, FullPack, Pack};
use crate::repository::Repository;
use crate::tree::{TreeWriter, WrittenTree};
use crate::{Error, ErrorKind, Id, Result};
use leeward_env::Nanos;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Threads that put packs.
const THREADS: usize = 3;
/// Packs that wait for one.
const WAITING_MAX: usize = 1;
/// An index is written after so many blobs, or this time.
const INDEX_BLOBS: usize = 40_000;
const INDEX_NANOS: Nanos = 120_000_000_000;
const LEVEL: i32 = 3;

/// Stores blobs in a repository.
pub struct Saver {
    repository: Arc<Repository>,
    compressor: zstd::bulk::Compressor<'static>,
    packs: [Pack; 2],
    puts: Arc<Puts>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Bytes of blobs that were new, before they were compressed.
    pub new_bytes: u64,
    indexed_at: Nanos,
    held: Option<Held>,
}

#[derive(Default)]
struct Puts {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<FullPack>,
    at_work: usize,
    has_ended: bool,
    failed: Option<Error>,
    /// Stored, and in no index yet.
    stored: IndexFile,
    stored_blobs: usize,
    sent_bytes: u64,
}

impl Saver {
    /// Stores in this repository, whose index is loaded.
    ///
    /// # Errors
    /// When there is no memory or no thread.
    pub fn new(repository: &Arc<Repository>) -> Result<Saver> {
        let puts = Arc::new(Puts::default());
        let no_thread = |e: std::io::Error| Error::new(ErrorKind::Failed, format!("there is no thread: {e}"));
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(no_thread)?;
        let indexed_at = repository.env.now();
        let mut saver = Saver {
            repository: repository.clone(),
            compressor,
            packs: Default::default(),
            puts,
            threads: Vec::new(),
            new_bytes: 0,
            indexed_at,
            held: None,
        };
        for _ in 0..THREADS {
            let (of, to) = (saver.puts.clone(), repository.clone());
            let put = repository.env.try_spawn("backup-put", move || of.run(&to));
            saver.threads.push(put.map_err(no_thread)?);
        }
        Ok(saver)
    }

    /// Names nothing in an index when this lock is lost: others may have removed what is named.
    pub fn under(mut self, lock: &Lock) -> Saver {
        self.held = Some(lock.held());
        self
    }

    /// Bytes that were stored so far.
    pub fn sent_bytes(&self) -> u64 {
        self.puts.state.lock().sent_bytes
    }

    /// Stores a chunk of a file, if it is not there.
    ///
    /// # Errors
    /// The place's, also about what was stored before.
    pub fn data(&mut self, plain: &[u8]) -> Result<Id> {
        let id = Id::of(plain);
        self.blob(BlobKind::Data, id, plain)?;
        Ok(id)
    }

    /// Stores a directory, if it is not there.
    ///
    /// # Errors
    /// As [`Saver::data`].
    pub fn tree(&mut self, tree: TreeWriter) -> Result<Id> {
        match tree.finish()? {
            WrittenTree::Plain(id, plain) => {
                self.blob(BlobKind::Tree, id, &plain)?;
                Ok(id)
            }
            WrittenTree::Compressed(id, stored) => {
                if self.repository.index.lock().begin(BlobKind::Tree, id) {
                    self.put(BlobKind::Tree, id, &stored)?;
                }
                Ok(id)
            }
        }
    }

    fn blob(&mut self, kind: BlobKind, id: Id, plain: &[u8]) -> Result<()> {
        if !self.repository.index.lock().begin(kind, id) {
            return Ok(());
        }
        self.new_bytes += plain.len() as u64;
        let stored = match self.compressor.compress(plain) {
            Ok(bytes) if bytes.len() < plain.len() => Compressed { bytes, plain_len: plain.len() as u32 },
            _ => Compressed { bytes: plain.to_vec(), plain_len: 0 },
        };
        self.put(kind, id, &stored)
    }

    fn put(&mut self, kind: BlobKind, id: Id, stored: &Compressed) -> Result<()> {
        let sealed = self.repository.key.seal(&self.repository.env, &stored.bytes);
        self.put_sealed(kind, id, &sealed, stored.plain_len)
    }

    /// Stores what is sealed already.
    ///
    /// # Errors
    /// As [`Saver::data`].
    pub(crate) fn put_sealed(&mut self, kind: BlobKind, id: Id, sealed: &[u8], plain_len: u32) -> Result<()> {
        let pack = &mut self.packs[kind as usize];
        pack.add(kind, id, sealed, plain_len);
        if pack.is_full() { self.end_pack(kind) } else { Ok(()) }
    }

    fn end_pack(&mut self, kind: BlobKind) -> Result<()> {
        let pack = std::mem::take(&mut self.packs[kind as usize]);
        let full = pack.finish(&self.repository.env, &self.repository.key);
        let due = self.repository.env.now() - self.indexed_at > INDEX_NANOS;
        let mut state = self.puts.state.lock();
        while state.waiting.len() >= WAITING_MAX && state.failed.is_none() {
            self.puts.changed.wait(&mut state);
        }
        if let Some(e) = &state.failed {
            return Err(e.clone());
        }
        state.waiting.push_back(full);
        let many = state.stored_blobs >= INDEX_BLOBS || due && state.stored_blobs > 0;
        drop(state);
        self.puts.changed.notify_all();
        if many { self.write_index() } else { Ok(()) }
    }

    /// Names in an index what is stored and in none.
    fn write_index(&mut self) -> Result<()> {
        self.held.as_ref().map_or(Ok(()), Held::need)?;
        let mut state = self.puts.state.lock();
        let stored = std::mem::take(&mut state.stored);
        let count = std::mem::take(&mut state.stored_blobs);
        drop(state);
        if count > 0 {
            let id = self.repository.put_json("index", &stored)?;
            self.repository.index_files.lock().push(id);
        }
        self.indexed_at = self.repository.env.now();
        Ok(())
    }

    /// Stores the rest; all is durable then. Returns the bytes that were stored.
    ///
    /// # Errors
    /// As [`Saver::data`].
    pub fn finish(&mut self) -> Result<u64> {
        for kind in [BlobKind::Data, BlobKind::Tree] {
            if !self.packs[kind as usize].is_empty() {
                self.end_pack(kind)?;
            }
        }
        let mut state = self.puts.state.lock();
        while (state.at_work > 0 || !state.waiting.is_empty()) && state.failed.is_none() {
            self.puts.changed.wait(&mut state);
        }
        if let Some(e) = &state.failed {
            return Err(e.clone());
        }
        drop(state);
        self.write_index()?;
        Ok(self.sent_bytes())
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        let mut state = self.puts.state.lock();
        state.has_ended = true;
        state.waiting.clear();
        drop(state);
        self.puts.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // what is stored need not be stored again, also after a failure
        if let Err(e) = self.write_index() {
            tracing::warn!("what was stored before the end is stored again: {e}");
        }
    }
}

impl Puts {
    fn run(&self, to: &Repository) {
        // the others wait for what a thread has taken: they must hear that it does not come
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.put_all(to))) {
            let text = leeward_env::panic_text(&*panic);
            let failed = format!("a thread ended by a panic, a defect of lee: {text}");
            self.state.lock().failed = Some(Error::new(ErrorKind::Failed, failed));
            self.changed.notify_all();
        }
    }

    fn put_all(&self, to: &Repository) {
        let mut state = self.state.lock();
        loop {
            let Some(pack) = state.waiting.pop_front() else {
                if state.has_ended {
                    return;
                }
                self.changed.wait(&mut state);
                continue;
            };
            state.at_work += 1;
            drop(state);
            self.changed.notify_all();
            let len = pack.bytes.len() as u64;
            let put = to.files.put(&pack.id.pack_name(), pack.bytes);
            state = self.state.lock();
            state.at_work -= 1;
            match put {
                Ok(()) => {
                    to.index.lock().add(pack.id, &pack.blobs);
                    state.stored.add(pack.id, &pack.blobs);
                    state.stored_blobs += pack.blobs.len();
                    state.sent_bytes += len;
                }
                Err(e) => state.failed = Some(e),
            }
            self.changed.notify_all();
        }
    }
}
