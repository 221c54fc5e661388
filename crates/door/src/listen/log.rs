//! The access log: a line of JSON for each request, in a file that is bounded. No secrets: neither signatures nor tokens nor what is behind `?`.

use leeward_env::{Env, Nanos};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Lines that wait to be written; above they are dropped, and counted.
const QUEUE_MAX: usize = 8192;
/// A file that has grown to this size becomes `NAME.1`, in place of the one before.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Where requests are noted. Cheap to clone.
#[derive(Clone)]
pub struct AccessLog {
    lines: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// One request.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    /// Seconds since 1970, to the millisecond.
    pub(crate) time: f64,
    pub(crate) door: &'static str,
    pub(crate) client: String,
    pub(crate) user: Option<&'a str>,
    pub(crate) bucket: Option<&'a str>,
    pub(crate) operation: Option<&'static str>,
    pub(crate) method: &'a str,
    /// Without what is behind `?`.
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    pub(crate) error: Option<&'a str>,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Whether the client had all of the answer.
    pub(crate) complete: bool,
    pub(crate) milliseconds: f64,
}

impl AccessLog {
    /// Writes to this file, from a thread of its own.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(env: &Env, path: &Path) -> io::Result<AccessLog> {
        let (lines, inbox) = sync_channel(QUEUE_MAX);
        let dropped = Arc::<AtomicU64>::default();
        let file = append(path)?;
        let writer = Writer { path: path.to_owned(), file, dropped: dropped.clone() };
        env.spawn("access-log", move || writer.serve(&inbox));
        Ok(AccessLog { lines, dropped })
    }

    pub(crate) fn note(&self, line: &Line<'_>) {
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if self.lines.try_send(text).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Milliseconds of nanoseconds.
pub(crate) fn milliseconds(nanos: Nanos) -> f64 {
    (nanos / 1000) as f64 / 1e3
}

struct Writer {
    path: PathBuf,
    file: File,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    fn serve(mut self, inbox: &Receiver<Vec<u8>>) {
        while let Ok(mut text) = inbox.recv() {
            while text.len() < 64 << 10
                && let Ok(more) = inbox.try_recv()
            {
                text.extend(more);
            }
            if let Err(e) = self.write(&text) {
                tracing::warn!("{}: {e}", self.path.display());
            }
        }
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.file.metadata()?.len() > FILE_BYTES_MAX {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
            self.file = append(&self.path)?;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            writeln!(self.file, "{{\"dropped_lines\":{dropped}}}")?;
        }
        self.file.write_all(text)
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}
