//! The commands' end of the control socket.

use super::{Answer, Call, Flows, LINE_BYTES_MAX, Line, Running, SocketPath, read_line, write_line};
use crate::fail::{Fail, text};
use crate::locate::CellDir;
use leeward_volume::admin::{Progress, Reply, Request};
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A question to the process itself is answered from memory.
const STATUS_WAIT: Duration = Duration::from_secs(10);
/// A request is small: a process that does not take it is stuck.
const SEND_WAIT: Duration = Duration::from_secs(10);

/// Why nobody was reached.
#[derive(Debug)]
pub enum Unreached {
    /// Nobody listens: nothing runs, or it is just starting or ending.
    Silent,
    /// Somebody may listen, but not to us.
    Failed(Fail),
}

/// The serving process of a cell; one connection a call.
pub struct Client {
    cell: CellDir,
    stream: UnixStream,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// See [`Unreached`].
    pub fn connect(cell: &CellDir) -> Result<Client, Unreached> {
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Unreached::Silent,
            io::ErrorKind::PermissionDenied => Unreached::Failed(Fail::new(format!(
                "{cell}: no permission to reach the process that serves it: run as its user, or as root"
            ))),
            _ => Unreached::Failed(Fail::new(format!(
                "{cell}: cannot reach the process that serves it: {}",
                text(&e)
            ))),
        };
        let path = SocketPath::of(cell).map_err(failed)?;
        let stream = UnixStream::connect(path.as_path()).map_err(failed)?;
        stream.set_write_timeout(Some(SEND_WAIT)).map_err(failed)?;
        Ok(Client { cell: cell.clone(), stream })
    }

    /// Runs an operator's request; waits as long as it takes.
    ///
    /// # Errors
    /// What the cell says, or that the process went away.
    pub fn admin(self, request: &Request, progress: &mut dyn FnMut(Progress)) -> Result<Reply, Fail> {
        let cell = self.cell.clone();
        match self.call(&Call::Admin { request: request.clone() }, progress, &mut |_| ())? {
            Some(Answer::Admin(reply)) => Ok(reply),
            Some(other) => Err(unexpected(&cell, &format!("{other:?}"))),
            None => Err(went_away(&cell)),
        }
    }

    /// Asks what runs; waits for a bounded time.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn status(self) -> Result<Running, Fail> {
        let cell = self.cell.clone();
        self.stream.set_read_timeout(Some(STATUS_WAIT)).map_err(|e| broken(&cell, &e))?;
        match self.call(&Call::Status, &mut |_| (), &mut |_| ())? {
            Some(Answer::Running(running)) => Ok(*running),
            Some(other) => Err(unexpected(&cell, &format!("{other:?}"))),
            None => Err(went_away(&cell)),
        }
    }

    /// Asks what flows used and waited; waits for a bounded time.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn flows(self) -> Result<Flows, Fail> {
        let cell = self.cell.clone();
        self.stream.set_read_timeout(Some(STATUS_WAIT)).map_err(|e| broken(&cell, &e))?;
        match self.call(&Call::Flows, &mut |_| (), &mut |_| ())? {
            Some(Answer::Flows(flows)) => Ok(flows),
            Some(other) => Err(unexpected(&cell, &format!("{other:?}"))),
            None => Err(went_away(&cell)),
        }
    }

    /// Asks the process to end, and hears what it does until it is gone. Whether it said that everything is durable.
    ///
    /// # Errors
    /// When it refuses, or something could not be stored.
    pub fn down(self, stage: &mut dyn FnMut(String)) -> Result<bool, Fail> {
        let last = self.call(&Call::Down, &mut |_| (), stage)?;
        Ok(matches!(last, Some(Answer::Durable)))
    }

    /// Sends a call and reads up to the last line; `None` when the process ended before it.
    fn call(
        mut self,
        call: &Call,
        progress: &mut dyn FnMut(Progress),
        stage: &mut dyn FnMut(String),
    ) -> Result<Option<Answer>, Fail> {
        match write_line(&mut self.stream, call) {
            // It hung up before it heard us: what it said first tells why.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => (),
            sent => sent.map_err(|e| broken(&self.cell, &e))?,
        }
        let mut lines = BufReader::new(&self.stream);
        loop {
            match read_line(&mut lines, LINE_BYTES_MAX) {
                Ok(Some(Line::Progress(p))) => progress(p),
                Ok(Some(Line::Stage(s))) => stage(s),
                Ok(Some(Line::Done(answer))) => return Ok(Some(answer)),
                Ok(Some(Line::Failed(failure))) => return Err(failure.into()),
                Ok(None) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(e) => return Err(broken(&self.cell, &e)),
            }
        }
    }
}

fn broken(cell: &CellDir, e: &io::Error) -> Fail {
    let why = match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".into(),
        _ => text(e),
    };
    Fail::new(format!("{cell}: the process that serves it: {why}: see `lee status {cell}` and its log"))
}

fn went_away(cell: &CellDir) -> Fail {
    Fail::new(format!("{cell}: the process that serves it ended before it answered: try again"))
}

fn unexpected(cell: &CellDir, what: &str) -> Fail {
    Fail::new(format!(
        "{cell}: the process that serves it answered with {what}: is it another version? see `lee status`"
    ))
}
