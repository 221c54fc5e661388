//! The access log: a line of JSON for each request, in a file of bounded size. No secrets: no
//! signatures, no tokens, and nothing after the `?` of a URL.

use leeward_env::{Env, Nanos};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that wait to be written; lines above that are dropped, and counted.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// How long lines are gathered: to wake the writer for each line costs as much as a small request.
const GATHER: Duration = Duration::from_millis(50);
/// A file that has grown to this size becomes `NAME.1`, replacing the one before.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The log of requests. Cheap to clone.
#[derive(Clone)]
pub struct AccessLog(Arc<Open>);

/// When it is dropped, waiting lines are written, and the log ends.
struct Open(Arc<Inbox>);

#[derive(Default)]
struct Inbox {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    dropped: u64,
    ended: bool,
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
    /// The path without the part after `?`.
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    pub(crate) error: Option<&'a str>,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Whether the client got all of the answer.
    pub(crate) complete: bool,
    pub(crate) milliseconds: f64,
}

impl AccessLog {
    /// Writes to this file, from a thread of its own.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(env: &Env, path: &Path) -> io::Result<AccessLog> {
        let inbox = Arc::<Inbox>::default();
        let writer = Writer { path: path.to_owned(), file: append(path)?, inbox: inbox.clone() };
        env.spawn("access-log", move || writer.serve());
        Ok(AccessLog(Arc::new(Open(inbox))))
    }

    pub(crate) fn note(&self, line: &Line<'_>) {
        let Ok(text) = serde_json::to_vec(line) else { return };
        let inbox = &self.0.0;
        let mut lines = inbox.lines.lock();
        if lines.text.len() + text.len() >= WAITING_BYTES_MAX {
            lines.dropped += 1;
            return;
        }
        let is_first = lines.text.is_empty();
        lines.text.extend_from_slice(&text);
        lines.text.push(b'\n');
        drop(lines);
        if is_first {
            inbox.changed.notify_one();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lines.lock().ended = true;
        self.0.changed.notify_one();
    }
}

/// Milliseconds of nanoseconds.
pub(crate) fn milliseconds(nanos: Nanos) -> f64 {
    (nanos / 1000) as f64 / 1e3
}

struct Writer {
    path: PathBuf,
    file: File,
    inbox: Arc<Inbox>,
}

impl Writer {
    fn serve(mut self) {
        let mut text = Vec::new();
        loop {
            let (dropped, ended) = self.gather(&mut text);
            if let Err(e) = self.write(&text, dropped) {
                tracing::warn!("{}: {e}", self.path.display());
            }
            if ended {
                return;
            }
        }
    }

    /// Takes the waiting lines; returns the number of dropped lines, and whether the log has ended.
    fn gather(&self, text: &mut Vec<u8>) -> (u64, bool) {
        text.clear();
        let Inbox { lines, changed } = &*self.inbox;
        let mut lines = lines.lock();
        changed.wait_while(&mut lines, |lines| lines.text.is_empty() && !lines.ended);
        changed.wait_while_for(&mut lines, |lines| !lines.ended, GATHER);
        std::mem::swap(&mut lines.text, text);
        (std::mem::take(&mut lines.dropped), lines.ended)
    }

    fn write(&mut self, text: &[u8], dropped: u64) -> io::Result<()> {
        if self.file.metadata()?.len() > FILE_BYTES_MAX {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
            self.file = append(&self.path)?;
        }
        if dropped > 0 {
            writeln!(self.file, "{{\"dropped_lines\":{dropped}}}")?;
        }
        self.file.write_all(text)
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_in_the_file_when_the_log_has_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("access.log");
        let log = AccessLog::open(&Env::real(), &path).expect("opened");
        let inbox = Arc::downgrade(&log.0.0);
        let line = |status| Line {
            time: 1.5,
            door: "s3",
            client: String::new(),
            user: Some("ann"),
            bucket: None,
            operation: None,
            method: "GET",
            path: "/a\nb",
            status,
            error: None,
            received_bytes: 0,
            sent_bytes: 0,
            complete: true,
            milliseconds: 0.0,
        };
        for status in 0..1000 {
            log.clone().note(&line(status));
        }
        drop(log);
        while inbox.strong_count() > 0 {
            std::thread::yield_now();
        }
        let text = std::fs::read_to_string(&path).expect("written");
        let status =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["status"].as_u64();
        assert!(text.lines().map(status).eq((0..1000).map(Some)));
    }
}
