//! The control socket `DIR/control.sock`: how commands reach the process that serves a cell.
//!
//! A connection carries one [`Call`] as a JSON line. Back come any number of [`Line::Progress`] and
//! [`Line::Stage`] lines, and one last [`Line::Done`] or [`Line::Failed`]. Lines have a largest
//! length. Root and the user who serves the cell may ask everything: the server checks the user at
//! the other end. Where all users of the machine have the mount, they may ask what users of other
//! machines may; elsewhere the socket has mode 0600.
//!
//! [`server`] accepts connections, has a thread for each, and asks a [`Service`](server::Service).
//! [`client`] is the commands' end. [`relay`] is the end of a process that mounts the cell from
//! another machine: it hands calls on to the server, in the name of the user who asks.

pub mod client;
pub mod relay;
pub mod server;
pub mod users;

use crate::backup::BackupCall;
use crate::locate::CellDir;
use crate::mirror::MirrorCall;
use crate::size;
use leeward_env::disk::held::HeldDir;
use leeward_remote::{HostFigures, Loss, UnflushedFigures};
use leeward_vfs::ledger::Report;
use leeward_volume::admin::{AnyRequest, Failure, Progress, TokenMake};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Longest call. The longest request has two paths.
const CALL_BYTES_MAX: u64 = 64 << 10;
/// Longest line of an answer: a list of 100,000 volumes is some 40 MB.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// What `sun_path` holds, without the terminator.
const SOCKET_PATH_BYTES_MAX: usize = 107;
const SOCKET: &str = "control.sock";

/// What a command asks of the serving process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum Call {
    /// A request to the cell. The answer is the request's reply.
    Admin {
        /// Which.
        request: AnyRequest,
    },
    /// How the process does. The answer is [`Running`].
    Status,
    /// What users did and waited for. The answer is [`Flows`].
    Flows,
    /// Which machines are connected. The answer is a list of [`MachineSession`].
    Sessions,
    /// End the session of a machine. The answer says whether there was one of this number.
    EndSession {
        /// Its number.
        number: u64,
    },
    /// End. The process tells its stages; an answer says that everything is durable.
    Down,
    /// How a mount from another machine does. The answer is [`MountState`].
    Mount,
    /// The user who asks shows a token to the server of a mount from another machine. The answer is
    /// [`LoggedIn`].
    Login {
        /// The token.
        token: ShownToken,
    },
    /// The user who asks is logged out. The answer is [`LoggedIn`], if the user was logged in.
    Logout,
    /// A gateway asks for the storage resource report, of these paths or of all. The answer is its
    /// text.
    DoorReport {
        /// Which.
        paths: Option<Vec<String>>,
    },
    /// About mirrors. The answer is a list of [`MirrorStatus`](crate::mirror::MirrorStatus).
    Mirror {
        /// What.
        about: MirrorCall,
    },
    /// About backups. The answer is a list of [`BackupStatus`](crate::backup::BackupStatus).
    Backup {
        /// What.
        about: BackupCall,
    },
    /// A gateway asks for a user of the server's machine. The answer is user id and groups, if
    /// there is one.
    FindUser {
        /// Name.
        name: String,
    },
    /// A link that logs the user who asks in to the console. The answer is [`ConsoleLink`].
    ConsoleLink,
    /// A token for a user. The answer is [`NewToken`].
    MakeToken {
        /// Whose, and what it is good for.
        wanted: TokenMake,
    },
    /// A gateway asks for the groups of the cell in which a user is. The answer is their numbers.
    FindGroups {
        /// Name of the user.
        name: String,
    },
}

/// A token, which is not printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShownToken(pub String);

impl fmt::Debug for ShownToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownToken(..)")
    }
}

/// A user of the cell, as whom a user of this machine has logged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedIn {
    /// Name.
    pub name: String,
    /// User id in the cell.
    pub uid: u32,
    /// Groups in the cell, the primary one first.
    pub gids: Vec<u32>,
    /// Until when, seconds since 1970; `None`: until the token is revoked.
    pub until_secs: Option<i64>,
}

/// A mount from another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountState {
    /// The server.
    pub server: String,
    /// The name of this machine there.
    pub host: String,
    /// The process of the mount.
    pub pid: u32,
    /// Since when the server has not answered, seconds, and why; `None`: it does.
    pub away: Option<(u64, String)>,
    /// What this machine may have lost, and the server does not know of, the latest first.
    #[serde(default)]
    pub losses: Vec<Loss>,
    /// Whether users of this machine must log in.
    #[serde(default)]
    pub wants_logins: bool,
    /// Who has logged in, by user id of this machine.
    #[serde(default)]
    pub users: BTreeMap<u32, LoggedIn>,
}

/// A line that the serving process sends back. `T` is the [`Answer`] to the call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", content = "body", rename_all = "kebab-case")]
pub enum Line<T> {
    /// How far a long request is.
    Progress(Progress),
    /// What an ending process is doing now.
    Stage(String),
    /// The answer; the last line.
    Done(T),
    /// Why there is none; the last line.
    Failed(Failure),
}

/// What the last of these lines says: the answer, or why there is none. `None`: it is neither.
pub fn last_answer<T: DeserializeOwned>(lines: &[u8]) -> Option<Result<T, Failure>> {
    let last = lines.split(|b| *b == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    match serde_json::from_slice::<Line<Answer<T>>>(last).ok()? {
        Line::Done(answer) => Some(Ok(answer.value)),
        Line::Failed(failure) => Some(Err(failure)),
        Line::Progress(_) | Line::Stage(_) => None,
    }
}

/// The answer to a [`Call`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer<T> {
    /// Its kind, for people who read the lines: `admin`, `running`, `flows` or `durable`.
    #[serde(skip_deserializing)]
    pub answer: &'static str,
    /// The answer.
    pub value: T,
}

/// What users did and waited for since the process began to serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// The figures of the gate.
    pub report: Report,
    /// Paths of the inodes in the report, as far as they have one.
    pub paths: BTreeMap<u64, String>,
    /// Names of volumes by number.
    pub volumes: BTreeMap<u32, String>,
    /// Bytes in memory that are not stored yet, by user.
    pub dirty_bytes: Vec<(u32, u64)>,
    /// What other machines have asked for.
    #[serde(default)]
    pub machines: Vec<HostFigures>,
    /// What other machines have told their programs and is lost, the latest first.
    #[serde(default)]
    pub losses: Vec<Loss>,
}

/// A machine that has mounted the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSession {
    /// Number of the session.
    pub session: u64,
    /// Name of the host.
    pub host: String,
    /// The machine's address and port; `None`: it is not connected now.
    pub address: Option<String>,
    /// For how long there has been the session, seconds.
    pub age_secs: u64,
    /// For how long nothing was heard, milliseconds.
    pub silent_ms: u64,
    /// Inodes to which the machine has references.
    pub inodes: u64,
    /// Inodes that the machine may keep copies of.
    #[serde(default)]
    pub leases: u64,
    /// Requests at work.
    pub requests: u64,
    /// Ranges of files that its programs have locked.
    #[serde(default)]
    pub locks: u64,
    /// What its programs take for done and a crash of the server could take; `None`: that is not
    /// counted for this machine.
    #[serde(default)]
    pub unflushed: Option<UnflushedFigures>,
    /// Users of the cell who have logged in there, where the machine is not believed.
    #[serde(default)]
    pub users: Vec<String>,
}

impl MachineSession {
    /// How much its programs take for done that is not durable: changes, and bytes.
    pub fn unflushed_in_short(&self) -> String {
        match self.unflushed {
            None => "-".into(),
            Some(UnflushedFigures { changes: 0, .. }) => "0".into(),
            Some(all) => format!("{} ({})", size::count(all.changes), size::bytes(all.bytes)),
        }
    }
}

/// What `lee status` shows of a serving process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Process id.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Seconds since 1970.
    pub since: i64,
    /// Where the cell is mounted; `None`: nowhere, other machines mount it.
    pub mount: Option<PathBuf>,
    /// How the kernel's requests come: by io_uring, or from `/dev/fuse` and why.
    #[serde(default)]
    pub channel: String,
    /// URLs of its metrics.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// Its doors, by name and URL.
    #[serde(default)]
    pub doors: Vec<(String, String)>,
    /// Addresses where other machines reach the cell.
    #[serde(default)]
    pub listen: Vec<String>,
    /// Machines that are connected.
    #[serde(default)]
    pub sessions: u64,
    /// Connections of each door.
    #[serde(default)]
    pub door_connections: Vec<DoorConnections>,
    /// Version of the running program.
    pub version: String,
    /// Number of volumes.
    pub volumes: u64,
    /// Bytes in memory, not yet in a store.
    pub dirty_bytes: u64,
    /// Snapshots of all volumes.
    pub snapshots: u64,
    /// Schedules of snapshots that are late.
    pub late_schedules: u64,
    /// Pools whose last complete scrub is late.
    #[serde(default)]
    pub late_scrubs: u64,
    /// Problems that an operator must look at, in words.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
    /// Bytes of the metadata journal, and the most that is usual; 0: there is none.
    #[serde(default)]
    pub journal_bytes: (u64, u64),
    /// The format of the cell; 0: not known.
    #[serde(default)]
    pub format: u32,
    /// The newest format that the program knows.
    #[serde(default)]
    pub newest_format: u32,
    /// While a snapshot is locked: seconds by which the clock was set forward since the process
    /// began to serve; below zero: back.
    pub clock_ahead_secs: i64,
    /// Whether a service manager started it, such as systemd, which starts it again.
    #[serde(default)]
    pub service: bool,
    /// Of a cell that several servers share.
    #[serde(default)]
    pub server: Option<ServerState>,
}

/// A link to the console that logs in once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleLink {
    /// The link, at each address of the HTTP door.
    pub urls: Vec<String>,
    /// As whom.
    pub user: String,
    /// For how long it can be used, seconds.
    pub valid_secs: u64,
}

impl fmt::Debug for ConsoleLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConsoleLink(for {})", self.user)
    }
}

/// A token that was just made; nothing keeps it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    /// The token.
    pub token: String,
    /// As whom its holder acts.
    pub user: String,
    /// Where it is good, with all below.
    pub path: String,
    /// What for, as macaroons name it.
    pub activities: Vec<String>,
    /// Until when, seconds since 1970.
    pub until_secs: i64,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewToken(of {})", self.user)
    }
}

/// A problem that an operator must look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// In words.
    pub what: String,
    /// The page of docs/runbooks that says what to do.
    pub runbook: String,
}

/// A server of a cell that several share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    /// Its id.
    pub id: String,
    /// Whether it has the cell; else it stands by.
    pub has_cell: bool,
    /// Id of the server that has the cell.
    pub owner: Option<String>,
    /// The machine of that one, if it is alive.
    pub owner_host: Option<String>,
    /// The number of its turn.
    pub turn: u64,
    /// Servers that are alive, with this one.
    pub servers: u64,
    /// Those of them that would take the cell: not this one, and not to be drained.
    #[serde(default)]
    pub standing_by: u64,
    /// Whether an operator wants it to serve nothing.
    pub draining: bool,
    /// Whether it has heard of the store lately enough to answer.
    pub in_time: bool,
    /// Why it does not see the others.
    pub trouble: Option<String>,
}

/// Connections of a door, and its unfinished uploads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorConnections {
    /// Which door.
    pub door: String,
    /// Open now.
    pub open: u64,
    /// Refused so far because there were too many.
    pub refused: u64,
    /// Whether there are as many as the limit of open files allows.
    pub full: bool,
    /// Unfinished uploads in parts.
    #[serde(default)]
    pub uploads: u64,
    /// Bytes in their parts.
    #[serde(default)]
    pub upload_bytes: u64,
}

/// A path of the socket that is short enough for a socket address; valid while this lives.
pub struct SocketPath {
    path: PathBuf,
    /// Keeps the path valid.
    _dir: Option<Arc<HeldDir>>,
}

impl SocketPath {
    /// The socket of a cell.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn of(cell: &CellDir) -> io::Result<SocketPath> {
        if let Some(remote) = cell.remote() {
            return SocketPath::at(remote.socket.clone());
        }
        if let Some(dir) = cell.held() {
            return Ok(SocketPath { path: dir.path().join(SOCKET), _dir: Some(dir.clone()) });
        }
        SocketPath::at(cell.path().join(SOCKET))
    }

    /// The socket at this path.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn at(path: PathBuf) -> io::Result<SocketPath> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if path.as_os_str().as_bytes().len() <= SOCKET_PATH_BYTES_MAX {
            return Ok(SocketPath { path, _dir: None });
        }
        let dir = Arc::new(HeldDir::open(above)?);
        Ok(SocketPath { path: dir.path().join(name), _dir: Some(dir) })
    }

    /// The path.
    pub fn as_path(&self) -> &std::path::Path {
        &self.path
    }
}

/// Whether a crashed process left the socket of a cell behind. Only a caller who holds the lock of
/// the cell may ask: then nobody serves it.
pub fn is_left_behind(cell: &CellDir) -> bool {
    SocketPath::of(cell).is_ok_and(|socket| socket.as_path().symlink_metadata().is_ok())
}

/// Writes one line.
fn write_line<T: Serialize>(to: &mut impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads one line of at most `bytes_max`; `None` at the end of the stream.
fn read_line<T: for<'a> Deserialize<'a>>(from: &mut impl BufRead, bytes_max: u64) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(bytes_max).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        Some(_) if line.len() as u64 == bytes_max => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {bytes_max} bytes")))
        }
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The call makes no sense here.
pub fn not_understood(e: &io::Error) -> Failure {
    let (version, why) = (env!("CARGO_PKG_VERSION"), e.to_string());
    // without the names of all others
    let why = why.split(", expected one of").next().unwrap_or_default();
    let message = format!(
        "the running process (lee {version}) does not understand the request: {why}: use the same version"
    );
    Failure { message, errno: libc::EINVAL }
}
