//! The history of a probe: a file of JSON lines that is only appended to, a [`Round`] each, and
//! never larger than two times [`FILE_BYTES_MAX`]: a full file becomes `FILE.1`, replacing the one
//! before.
//!
//! A thread of its own writes it, because the file may be on a file system that hangs. Several
//! probes may share a file: each line is one write, and each probe checks whether another one has
//! renamed the full file.

use crate::Refused;
use crate::probe::Round;
use crate::text;
use leeward_env::Env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes after which a file is renamed: some 80,000 rounds.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Rounds that wait to be written; more are lost.
const WAITING_MAX: usize = 4096;
/// How long closing waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// A history that is written to.
pub struct History {
    env: Env,
    send: SyncSender<Round>,
    thread: JoinHandle<io::Result<()>>,
}

impl History {
    /// Opens a file, and makes it and the directories above if they are missing.
    ///
    /// # Errors
    /// A sentence with the next step.
    pub fn open(env: &Env, path: &Path) -> Result<History, Refused> {
        let file = open(path).map_err(|e| {
            let cause = text::cause(&e);
            Refused(format!(
                "{}: cannot keep the history here: {cause}; name another file with --history",
                path.display()
            ))
        })?;
        let (send, rounds) = sync_channel(WAITING_MAX);
        let path = path.to_path_buf();
        let thread = env.spawn("lab-history", move || write(&path, file, &rounds, FILE_BYTES_MAX));
        Ok(History { env: env.clone(), send, thread })
    }

    /// Keeps a round, if the file can be written to fast enough.
    pub fn keep(&self, round: &Round) {
        let _ = self.send.try_send(round.clone());
    }

    /// Ends it.
    ///
    /// # Errors
    /// Why the last lines were not written.
    pub fn close(self) -> io::Result<()> {
        drop(self.send);
        let end = self.env.now() + LAST_LINES.as_nanos() as u64;
        while !self.thread.is_finished() {
            if self.env.now() > end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.env.sleep(Duration::from_millis(5));
        }
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    }
}

/// The default file of the history: below `$XDG_STATE_HOME`, else below the home directory.
pub fn default_path() -> Option<PathBuf> {
    let dir = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = dir("XDG_STATE_HOME").or_else(|| dir("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("leeward/probe.jsonl"))
}

/// Rounds in a file and the one before it, oldest first; other lines are left out, and counted.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> io::Result<(Vec<Round>, u64)> {
    let (mut rounds, mut bad) = (Vec::new(), 0);
    let older = File::open(aside(path)).ok();
    for file in older.into_iter().chain([File::open(path)?]) {
        for line in BufReader::new(file).split(b'\n') {
            match serde_json::from_slice(&line?) {
                Ok(round) => rounds.push(round),
                Err(_) => bad += 1,
            }
        }
    }
    Ok((rounds, bad))
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

fn write(path: &Path, mut file: File, rounds: &Receiver<Round>, max: u64) -> io::Result<()> {
    let mut done = Ok(());
    for round in rounds {
        let mut line = serde_json::to_vec(&round)?;
        line.push(b'\n');
        // A full disk may have room again later; the last error is told at the end.
        done = rotate(path, &mut file, max).and_then(|()| file.write_all(&line));
    }
    done
}

fn rotate(path: &Path, file: &mut File, max: u64) -> io::Result<()> {
    let ours = file.metadata()?;
    if ours.len() < max {
        return Ok(());
    }
    let same = fs::metadata(path).is_ok_and(|there| there.ino() == ours.ino() && there.dev() == ours.dev());
    if same && ours.is_file() {
        fs::rename(path, aside(path))?;
    }
    *file = open(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Op;

    fn round(at_ms: u64) -> Round {
        let (errors, stuck) = ([(Op::Read, "EIO".to_string())].into(), None);
        Round { at_ms, began: 0, path: "/x".into(), us: [(Op::Write, 1.5)].into(), errors, stuck }
    }

    #[test]
    fn rounds_come_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("deep/er/probe.jsonl");
        for at in 0..2 {
            let history = History::open(&Env::real(), &path).expect("opened");
            history.keep(&round(at));
            history.close().expect("closed");
        }
        fs::write(aside(&path), "no JSON\n").expect("write");
        let (rounds, bad) = read(&path).expect("read");
        assert_eq!((rounds, bad), (vec![round(0), round(1)], 1));
        assert!(read(&dir.path().join("none")).is_err());
    }

    #[test]
    fn it_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("h");
        let (send, rounds) = sync_channel(1000);
        (0..1000).for_each(|at| send.send(round(at)).expect("room"));
        drop(send);
        write(&path, open(&path).expect("opened"), &rounds, 2000).expect("written");
        let size = |path: &Path| fs::metadata(path).expect("there").len();
        assert!(size(&path) < 2100 && size(&aside(&path)) < 2100);
        let (kept, bad) = read(&path).expect("read");
        assert!(bad == 0 && kept.len() > 20 && kept.last() == Some(&round(999)));
        assert!(kept.windows(2).all(|pair| pair[0].at_ms + 1 == pair[1].at_ms), "in order");
    }
}
