//! The commands' end of the control socket.

use super::server::peer;
use super::{
    Answer, Call, ConsoleLink, Flows, LINE_BYTES_MAX, Line, LoggedIn, MachineSession, MountState, NewToken,
    Running, ShownToken, SocketPath, read_line, write_line,
};
use crate::backup::{BackupCall, BackupStatus};
use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::mirror::{MirrorCall, MirrorStatus};
use leeward_volume::admin::{Failure, Progress, Request, TokenMake};
use serde::de::{DeserializeOwned, IgnoredAny};
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The process answers calls about itself from memory.
const STATUS_WAIT: Duration = Duration::from_secs(10);
/// A call is small. A process that does not read it is stuck.
const SEND_WAIT: Duration = Duration::from_secs(10);

/// Why the serving process was not reached.
#[derive(Debug)]
pub enum Unreached {
    /// Nobody listens: no process serves the cell, or it is just starting or ending.
    Silent,
    /// The socket cannot be used, for example for lack of permission.
    Failed(Fail),
}

/// A connection to the process that serves a cell, for one call.
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
                "{cell}: no permission to reach its process: run as its user, or as root"
            ))),
            _ => Unreached::Failed(Fail::new(format!(
                "{cell}: cannot reach the process that serves it: {}",
                text(&e)
            ))),
        };
        let path = SocketPath::of(cell).map_err(failed)?;
        let stream = UnixStream::connect(path.as_path()).map_err(failed)?;
        if let Some(mount) = cell.remote() {
            // somebody else may have made a socket of that name
            let at_other_end = peer(&stream).map_err(failed)?.uid;
            if ![0, mount.owner].contains(&at_other_end) {
                return Err(Unreached::Silent);
            }
        }
        stream.set_write_timeout(Some(SEND_WAIT)).map_err(failed)?;
        Ok(Client { cell: cell.clone(), stream })
    }

    /// The connection, for who hangs up meanwhile.
    ///
    /// # Errors
    /// The system's.
    pub fn line(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Runs a request; waits as long as it takes.
    ///
    /// # Errors
    /// What the cell says, or that the process went away.
    pub fn admin<R: Request>(
        self,
        request: &R,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<R::Reply, Fail> {
        self.answer(&Call::Admin { request: request.clone().into() }, progress)
    }

    /// Runs a request as [`Client::admin`] does.
    ///
    /// # Errors
    /// What the cell says, as it says it; or `EIO` where the process went away.
    pub fn admin_said<R: Request>(
        self,
        request: &R,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<R::Reply, Failure> {
        let cell = self.cell.clone();
        let lost = |fail: Fail| Failure { errno: libc::EIO, message: fail.to_string() };
        let call = Call::Admin { request: request.clone().into() };
        let answer: Option<Answer<R::Reply>> = self.said(&call, progress, &mut |_| ()).map_err(lost)??;
        answer.map(|answer| answer.value).ok_or_else(|| lost(went_away(&cell)))
    }

    /// Asks about mirrors; waits as long as it takes.
    ///
    /// # Errors
    /// What the process says, or that it went away.
    pub fn mirror(
        self,
        about: MirrorCall,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<MirrorStatus>, Fail> {
        self.answer(&Call::Mirror { about }, progress)
    }

    /// Asks about backups; waits as long as it takes.
    ///
    /// # Errors
    /// What the process says, or that it went away.
    pub fn backup(
        self,
        about: BackupCall,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<BackupStatus>, Fail> {
        self.answer(&Call::Backup { about }, progress)
    }

    /// Asks how the process does; waits for a bounded time.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn status(self) -> Result<Running, Fail> {
        self.answer_soon(&Call::Status)
    }

    /// Asks what users did and waited for; waits for a bounded time.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn flows(self) -> Result<Flows, Fail> {
        self.answer_soon(&Call::Flows)
    }

    /// Asks which machines are connected; waits for a bounded time.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn sessions(self) -> Result<Vec<MachineSession>, Fail> {
        self.answer_soon(&Call::Sessions)
    }

    /// Ends the session of a machine; false: there is none of this number. Waits for a bounded
    /// time.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn end_session(self, number: u64) -> Result<bool, Fail> {
        self.answer_soon(&Call::EndSession { number })
    }

    /// Shows a token to the server of a mount; waits as long as it takes.
    ///
    /// # Errors
    /// Why it is refused, or that there is no answer.
    pub fn log_in(self, token: &str) -> Result<LoggedIn, Fail> {
        self.answer(&Call::Login { token: ShownToken(token.into()) }, &mut |_| ())
    }

    /// Asks for a link that logs in to the console; waits for a bounded time.
    ///
    /// # Errors
    /// Why there is none, or that there is no answer.
    pub fn console_link(self) -> Result<ConsoleLink, Fail> {
        self.answer_soon(&Call::ConsoleLink)
    }

    /// Asks for a token; waits as long as it takes.
    ///
    /// # Errors
    /// What the cell says, or that there is no answer.
    pub fn make_token(self, wanted: &TokenMake) -> Result<NewToken, Fail> {
        self.answer(&Call::MakeToken { wanted: wanted.clone() }, &mut |_| ())
    }

    /// Ends a login; `None`: there was none. Waits as long as it takes.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn log_out(self) -> Result<Option<LoggedIn>, Fail> {
        self.answer(&Call::Logout, &mut |_| ())
    }

    /// Asks the process of a mount from another machine how it does; waits for a bounded time.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn mount(self) -> Result<MountState, Fail> {
        self.answer_soon(&Call::Mount)
    }

    /// Asks the process of a mount from another machine to end.
    ///
    /// # Errors
    /// When it refuses.
    pub fn end_mount(self) -> Result<(), Fail> {
        self.answer_soon(&Call::Down)
    }

    /// Asks the process to end, and hears what it does until it is gone. Returns whether the
    /// process said that everything is durable.
    ///
    /// # Errors
    /// When it refuses, or something could not be stored.
    pub fn down(self, stage: &mut dyn FnMut(String)) -> Result<bool, Fail> {
        // any answer to this call says so
        let durable: Option<IgnoredAny> = self.call(&Call::Down, &mut |_| (), stage)?;
        Ok(durable.is_some())
    }

    fn answer_soon<T: DeserializeOwned>(self, call: &Call) -> Result<T, Fail> {
        self.stream.set_read_timeout(Some(STATUS_WAIT)).map_err(|e| broken(&self.cell, &e))?;
        self.answer(call, &mut |_| ())
    }

    fn answer<T: DeserializeOwned>(self, call: &Call, progress: &mut dyn FnMut(Progress)) -> Result<T, Fail> {
        let cell = self.cell.clone();
        let answer: Option<Answer<T>> = self.call(call, progress, &mut |_| ())?;
        answer.map(|answer| answer.value).ok_or_else(|| went_away(&cell))
    }

    /// Sends a call and reads up to the last line; `None` when the process ended before it.
    fn call<T: DeserializeOwned>(
        self,
        call: &Call,
        progress: &mut dyn FnMut(Progress),
        stage: &mut dyn FnMut(String),
    ) -> Result<Option<T>, Fail> {
        Ok(self.said(call, progress, stage)??)
    }

    fn said<T: DeserializeOwned>(
        mut self,
        call: &Call,
        progress: &mut dyn FnMut(Progress),
        stage: &mut dyn FnMut(String),
    ) -> Result<Result<Option<T>, Failure>, Fail> {
        match write_line(&mut self.stream, call) {
            // The process closed the connection before it read the call; its answer says why.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => (),
            sent => sent.map_err(|e| broken(&self.cell, &e))?,
        }
        let mut lines = BufReader::new(&self.stream);
        loop {
            match read_line(&mut lines, LINE_BYTES_MAX) {
                Ok(Some(Line::Progress(p))) => progress(p),
                Ok(Some(Line::Stage(s))) => stage(s),
                Ok(Some(Line::Done(answer))) => return Ok(Ok(Some(answer))),
                Ok(Some(Line::Failed(failure))) => return Ok(Err(failure)),
                Ok(None) => return Ok(Ok(None)),
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(Ok(None)),
                Err(e) => return Err(broken(&self.cell, &e)),
            }
        }
    }
}

fn broken(cell: &CellDir, e: &io::Error) -> Fail {
    let why = match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".into(),
        io::ErrorKind::InvalidData => {
            format!("its answer is not understood ({e}); it may be another version")
        }
        _ => text(e),
    };
    Fail::new(format!("{cell}: the process that serves it: {why}: see `lee status {cell}` and its log"))
}

fn went_away(cell: &CellDir) -> Fail {
    Fail::new(format!("{cell}: the process that serves it ended before it answered: try again"))
}
