//! Writes an archive from a thread of its own, so that reading goes on meanwhile, and so that a
//! reader of a pipe that takes nothing hinders nobody who wants to stop.

use crate::{Error, cause, printable};
use leeward_env::Env;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are handed on together.
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks that may wait.
const BLOCKS_MAX: usize = 8;
/// Time after which a waiter sees that it has to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Takes the bytes of an archive in order.
pub struct Output<'a> {
    shared: Arc<Shared>,
    block: Vec<u8>,
    written: u64,
    name: String,
    stopped: &'a dyn Fn() -> bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    /// No block will come after those that wait.
    complete: bool,
    /// What the thread ended with.
    ended: Option<io::Result<()>>,
}

impl<'a> Output<'a> {
    /// Writes to `sink`, called `name` in messages, until `stopped`.
    pub fn start(
        env: &Env,
        sink: Box<dyn Write + Send>,
        name: String,
        stopped: &'a dyn Fn() -> bool,
    ) -> Output<'a> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        drop(env.spawn("lee-archive", move || theirs.write_all_to(sink)));
        Output { shared, block: Vec::with_capacity(BLOCK_BYTES), written: 0, name, stopped }
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ends long work that writes nothing.
    ///
    /// # Errors
    /// On a stop.
    pub fn check_stop(&self) -> Result<(), Error> {
        if (self.stopped)() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// When an earlier block could not be written, or on a stop.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        self.written += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.hand_on()?;
            }
        }
        Ok(())
    }

    fn hand_on(&mut self) -> Result<(), Error> {
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK_BYTES));
        self.wait(|state| state.waiting.len() < BLOCKS_MAX)?.waiting.push_back(block);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Waits until something holds, or the thread has failed, or a stop.
    fn wait(&self, holds: impl Fn(&State) -> bool) -> Result<parking_lot::MutexGuard<'_, State>, Error> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(Err(e)) = &state.ended {
                return Err(Error::Failed(format!("{}: cannot write: {}", printable(&self.name), cause(e))));
            }
            if (self.stopped)() {
                return Err(Error::Stopped);
            }
            if holds(&state) {
                return Ok(state);
            }
            self.shared.changed.wait_for(&mut state, LOOK);
        }
    }

    /// Writes what is left and waits until all is written.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub fn finish(mut self) -> Result<u64, Error> {
        self.hand_on()?;
        self.shared.state.lock().complete = true;
        self.shared.changed.notify_all();
        drop(self.wait(|state| state.ended.is_some())?);
        Ok(self.written)
    }
}

impl Drop for Output<'_> {
    /// The thread ends, if it can.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.waiting.clear();
        state.complete = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn write_all_to(&self, mut sink: Box<dyn Write + Send>) {
        let work = || {
            while let Some(block) = self.next_block() {
                sink.write_all(&block)?;
            }
            sink.flush()
        };
        // a sink that panics must not have the reader wait for it
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let text = leeward_env::panic_text(&*panic);
            Err(io::Error::other(format!("a thread ended by a panic, a defect of lee: {text}")))
        });
        self.state.lock().ended = Some(result);
        self.changed.notify_all();
    }

    fn next_block(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        loop {
            if let Some(block) = state.waiting.pop_front() {
                self.changed.notify_all();
                return Some(block);
            }
            if state.complete {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_come_in_order_and_whole() {
        let got = Arc::new(Mutex::new(Vec::new()));
        let mut output = Output::start(&Env::real(), Box::new(Sink(got.clone())), "sink".into(), &|| false);
        let bytes: Vec<u8> = (0..3_500_000u32).map(|i| (i * 7 / 3) as u8).collect();
        for part in bytes.chunks(999) {
            output.write(part).expect("the sink takes all");
        }
        assert_eq!(output.finish(), Ok(3_500_000));
        assert!(*got.lock() == bytes);
    }

    #[test]
    fn a_reader_that_hangs_hinders_no_stop() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let stop = AtomicBool::new(false);
        let stopped = || stop.load(Ordering::Relaxed);
        let mut output = Output::start(&Env::real(), Box::new(writer), "pipe".into(), &stopped);
        let block = vec![0; BLOCK_BYTES];
        for _ in 0..BLOCKS_MAX {
            output.write(&block).expect("there is room");
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(output.write(&vec![0; 3 * BLOCK_BYTES]), Err(Error::Stopped));
        drop(output);
        drop(reader);
    }

    struct Panics;

    impl Write for Panics {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            panic!("a defect in a test")
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_sink_that_panics_is_an_error() {
        let mut output = Output::start(&Env::real(), Box::new(Panics), "sink".into(), &|| false);
        output.write(b"text").expect("it is only kept");
        let failed = output.finish().expect_err("it panics");
        assert!(failed.to_string().contains("a defect in a test"), "{failed}");
    }

    #[test]
    fn a_reader_that_goes_away_is_an_error() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut output = Output::start(&Env::real(), Box::new(writer), "pipe".into(), &|| false);
        output.write(b"text").expect("it is only kept");
        let failed = output.finish().expect_err("nobody reads");
        assert!(failed.to_string().contains("pipe: cannot write: broken pipe"), "{failed}");
    }
}
