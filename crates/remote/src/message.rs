//! Messages between a server and its clients, and how they are framed.
//!
//! A frame is its length (32 bits, little-endian, without these four bytes) and a message: a kind
//! (one byte) and its fields, in the form of [`leeward_fs::codec`].
//!
//! A connection begins with the client's [`Hello`] and the server's [`ToClient::Welcome`] or
//! [`ToClient::Refused`]. The form of these three never changes, so that any two versions can tell
//! each other that they do not go together. After them the client calls and the server answers, in
//! any order.
//!
//! A **session** lives as long as both ends do, over any number of connections. Its calls are in
//! **slots**: at most one at a time in each. The calls of a slot have consecutive numbers. A client
//! that has lost its connection sends again what was not answered; by the number the server knows
//! whether it has done that already, and sends the answer that it gave then. Using a slot again
//! says that the answer before was received.

use leeward_env::{Class, Nanos, Told};
use leeward_fs::codec::{Input, Malformed, Taken, Wire};
use leeward_fs::locks::{LockCall, OwnedLock};
use leeward_fs::{Error, NodeId, Op, Reply, Result, wire_kinds, wire_structures};

/// The version of the protocol that this code speaks. Peers of the version before are to be
/// understood, too, from the first release on.
pub const VERSION: u16 = 8;
/// The oldest version of a peer that this code understands. One that speaks 7 knows of no locks
/// that are taken from it, and keeps them as long as its session.
pub const OLDEST: u16 = 7;
/// From this version on locks are taken from clients that are silent.
pub const TAKES_LOCKS: u16 = 8;
/// Longest frame, without its length: a write of the largest size and its names.
pub const FRAME_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Longest frame from somebody who is not let in yet.
pub const HELLO_BYTES_MAX: usize = 1024;
/// Most slots of a session.
pub const SLOTS_MAX: u16 = 1024;
/// Inode numbers that are reserved at a time.
pub const NUMBERS_AT_ONCE: u64 = 1024;
/// Most groups that a call can name.
pub const GROUPS_MAX: usize = 1024;

/// The first message of a connection. The first four fields stay where they are in all versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version that the client speaks.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
    /// The secret of the token that the host was invited with, if it has not enrolled.
    pub invitation: Option<[u8; 16]>,
    /// The session that goes on.
    pub session: Option<SessionId>,
}

impl Hello {
    /// The version that both speak: the newest that both know.
    pub fn common_version(&self) -> Option<u16> {
        let newest = self.newest.min(VERSION);
        (newest >= self.oldest.max(OLDEST)).then_some(newest)
    }
}

/// Names a session, and proves that it is one's own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionId {
    /// Number, which no other session of the server has.
    pub number: u64,
    /// What nobody else knows.
    pub secret: [u8; 16],
}

impl SessionId {
    /// As one value, to be kept.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..].copy_from_slice(&self.secret);
        bytes
    }

    /// The reverse of [`SessionId::to_bytes`].
    pub fn from_bytes(bytes: [u8; 32]) -> SessionId {
        let (mut number, mut secret) = ([0; 8], [0; 16]);
        number.copy_from_slice(&bytes[8..16]);
        secret.copy_from_slice(&bytes[16..]);
        SessionId { number: u64::from_be_bytes(number), secret }
    }
}

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionId({})", self.number)
    }
}

/// A place for one call at a time, and the number of the call in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Which of the session's slots.
    pub place: u16,
    /// Counts the calls in it, from 1 on.
    pub number: u32,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Other groups, where the operation may depend on them.
    pub gids: Vec<u32>,
    /// Scheduling class.
    pub class: Class,
    /// Whether the client counts references to the inodes that it is told of.
    pub refs: bool,
}

/// What a client has told its program before it asks for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// When the change was made, nanoseconds since 1970.
    pub at: u64,
    /// The inode that it makes, where it does; else 0.
    pub node: u64,
}

/// What is asked for in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// An operation.
    Op(Caller, Op<'a>),
    /// An operation that runs when those of the same user before it have ended (changes) or begun
    /// (others). A change is one whose result the client has told its program already, under
    /// exclusive leases.
    InOrder(Caller, Option<Behind>, Op<'a>),
    /// Inode numbers of a volume are to be reserved for the client, [`NUMBERS_AT_ONCE`] of them.
    /// The answer is the first, as [`Reply::Offset`].
    Numbers {
        /// The volume.
        volume: u32,
    },
    /// References are returned.
    Forget(Vec<(NodeId, u64)>),
    /// About locks of programs.
    Lock(Caller, LockCall),
    /// A command that a program of the client's machine gives.
    Command(Caller, Command<'a>),
    /// The client has references to these inodes since a process of the server before. `last`: it
    /// has named all.
    Refer {
        /// The inodes.
        nodes: Vec<NodeId>,
        /// Whether no more come.
        last: bool,
    },
    /// A session of this host's before whose process has died: nobody waits for it any more.
    Died(SessionId),
    /// What a gateway has to know of users. From then on the session keeps no copies of files.
    Access(AccessCall),
    /// A user of the client's machine proves who that is. The answer is a [`LoginAnswer`], as data.
    Login {
        /// The user's number on the client's machine.
        uid: u32,
        /// A token of the cell, or of an issuer; none: the login ends.
        token: Option<Token<'a>>,
    },
}

/// A token, which is not printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token<'a>(pub &'a [u8]);

impl std::fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A user of the cell, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellUser {
    /// Name.
    pub name: String,
    /// User id, never 0.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All other groups.
    pub gids: Vec<u32>,
    /// Until when the user is believed, seconds since 1970; `None`: until the token is revoked.
    pub until_secs: Option<i64>,
}

impl CellUser {
    /// Whether the time has passed until when the user is believed. `wall`: the time, nanoseconds
    /// since 1970.
    pub fn is_over(&self, wall: Nanos) -> bool {
        self.until_secs.is_some_and(|until| until <= (wall / 1_000_000_000) as i64)
    }
}

/// What comes of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginAnswer {
    /// The user is this one of the cell from now on.
    In(CellUser),
    /// Why not, for a person.
    Refused(String),
    /// It has ended.
    Out,
    /// It cannot be said now; why, for a person.
    Later(String),
}

/// Asks for all that doors have to know of users and buckets, which may be longer than a message.
///
/// An answer is the version (8 bytes, little-endian), the length of the whole (8), and a piece of
/// it: the first one, where not this version was named. Nothing: the client has the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessCall {
    /// The client has this version; 0: none.
    Since(u64),
    /// The client has this version up to a place.
    More {
        /// The version.
        version: u64,
        /// Bytes that it has.
        offset: u64,
    },
}

/// A command, which is asked for and answered in text. The answer may be longer than a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Runs one. The answer is its number, as eight bytes.
    Begin(&'a [u8]),
    /// Asks for more of the answer, and waits until there is some. Nothing: that was all.
    More(u64),
    /// Nobody wants to hear more of the answer.
    End(u64),
    /// Gives a command a piece of what it reads. Answered when there is room for more.
    Give {
        /// The command.
        number: u64,
        /// How many bytes come before it.
        at: u64,
        /// The piece; nothing: that was all.
        bytes: &'a [u8],
    },
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToServer<'a> {
    /// The first.
    Hello(Hello),
    /// A request.
    Call(Slot, Call<'a>),
    /// Asks for [`ToClient::Pong`] with the same number.
    Ping {
        /// The client's time, which means nothing to the server.
        number: u64,
        /// How often the client knows that its leases were taken.
        term: u32,
    },
    /// The session ends.
    Bye,
    /// What the recall of this number asked for is not used any more.
    Recalled(u64),
    /// Exclusive leases on these inodes are not needed any more: they become common ones.
    Share(Vec<NodeId>),
    /// A change that the client was told of and that a crash of the server may have taken, to be
    /// done again. In the order of their numbers. Answered by [`ToClient::Again`].
    Again(Caller, Told, Op<'a>),
    /// A call that was not answered and that changes content: if it was done, the content may be
    /// lost, and is to be done again among the others. Before those. Not answered.
    Unanswered(Slot, Caller, Op<'a>),
    /// No more of these come.
    CaughtUp,
    /// The client knows which of its locks were taken ([`ToClient::LocksTaken`]): what it sends
    /// from now on heeds that.
    HeedsLocks,
}

/// The servers of a cell that several share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerList {
    /// The number of the turn of the server that has the cell (docs/decisions/0038, "epoch").
    pub turn: u64,
    /// Host and port of all, those of the server that has the cell first.
    pub addresses: Vec<String>,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The two have no version in common.
    Version,
    /// The key is not that of a host, and there is no invitation that counts.
    UnknownHost,
    /// There are too many sessions.
    Busy,
    /// What was sent makes no sense.
    Malformed,
    /// The host was removed, or an operator ended the session.
    Ended,
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToClient {
    /// The client is let in.
    Welcome {
        /// The version that both speak from now on.
        version: u16,
        /// The session.
        session: SessionId,
        /// Whether the server knows it.
        standing: Standing,
        /// The process that serves: another number after each start.
        instance: u64,
        /// The name of the host that the client's key belongs to.
        host: String,
        /// Whether each call is to name all groups of the caller.
        wants_groups: bool,
        /// Whether users of the host prove who they are by tokens: its kernel cannot know what they
        /// may do.
        by_tokens: bool,
    },
    /// The client is not let in, or no longer; why, for a person.
    Refused(Refusal, String),
    /// Which servers share the cell. Before the welcome of one that has it, or the refusal of one
    /// that has it not; and when that changes.
    Servers(ServerList),
    /// The answer to the call in a slot, what of it the client may keep, and what it must keep
    /// until it is durable.
    Answer(Slot, Result<Reply>, Leased, Option<Told>),
    /// The answer to a ping.
    Pong {
        /// Its number.
        number: u64,
        /// The client has lost all leases, and this term has begun.
        taken: Option<u32>,
        /// The time at the server, nanoseconds since 1970.
        wall: u64,
    },
    /// The server ends. If in order, what was answered is durable, and what was not was not done.
    Closing {
        /// Whether it is.
        durable: bool,
    },
    /// The client is to use nothing that it keeps of these inodes any more, and to say so.
    Recall {
        /// Names the recall.
        number: u64,
        /// The inodes.
        nodes: Vec<NodeId>,
    },
    /// Calls are taken from now on. Follows the welcome, after a crash when all clients have caught
    /// up.
    Ready,
    /// Whether a change is there that was to be done again.
    Again {
        /// Its number.
        lsn: u64,
        /// If not, why.
        result: Result<()>,
    },
    /// All changes with numbers up to this one are durable.
    Durable(u64),
    /// How a request for a lock went that was in line.
    Granted {
        /// The client's number for it.
        ticket: u64,
        /// How.
        result: Result<()>,
    },
    /// These locks were taken from the client while it was silent: others wanted them. Between the
    /// welcome and [`ToClient::Ready`], and by each connection again until the client has said
    /// [`ToServer::HeedsLocks`].
    LocksTaken(Vec<OwnedLock>),
}

/// What a server knows of the session that a client names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: another one begins.
    New,
    /// All: it goes on.
    Resumed,
    /// That there is one, from a process before: the client is to ask again for what it was told of
    /// and does not know to be durable.
    Known,
}

/// Of which inodes an answer tells what the client may keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leased {
    /// Of none.
    Nothing,
    /// Of the inode that was asked about, and those that the answer has attributes of.
    AllBut {
        /// But not of these.
        others: Vec<NodeId>,
        /// The answer tells all names of a directory (one that was made has none) but this one, of
        /// its directory of snapshots.
        snapshot_dir: Option<Box<[u8]>>,
        /// On these inodes the client has an exclusive lease.
        alone: Vec<NodeId>,
        /// The operation has changed these inodes, which neither it names nor the answer tells of:
        /// they were behind its names.
        changed: Vec<NodeId>,
    },
}

impl Leased {
    /// Of the inode that was asked about, and all that the answer has attributes of.
    pub fn all() -> Leased {
        Leased::AllBut { others: Vec::new(), snapshot_dir: None, alone: Vec::new(), changed: Vec::new() }
    }

    /// The inodes on which the client has an exclusive lease.
    pub fn alone(&self) -> &[NodeId] {
        match self {
            Leased::AllBut { alone, .. } => alone,
            Leased::Nothing => &[],
        }
    }

    /// The inodes that were changed by their names.
    pub fn changed(&self) -> &[NodeId] {
        match self {
            Leased::AllBut { changed, .. } => changed,
            Leased::Nothing => &[],
        }
    }

    /// Whether the client may keep what the answer says of this inode.
    pub fn has(&self, node: NodeId) -> bool {
        matches!(self, Leased::AllBut { others, .. } if !others.contains(&node))
    }
}

wire_kinds! {
    Refusal { 1 => Version, 2 => UnknownHost, 3 => Busy, 4 => Malformed, 5 => Ended }
}

wire_kinds! {
    Standing { 1 => New, 2 => Resumed, 3 => Known }
}

wire_structures! {
    SessionId { number, secret }
    Slot { place, number }
    Behind { at, node }
    Hello { oldest, newest, invitation, session }
    ServerList { turn, addresses }
    CellUser { name, uid, gid, gids, until_secs }
}

impl Wire<'_> for Caller {
    fn put(&self, out: &mut Vec<u8>) {
        self.uid.put(out);
        self.gid.put(out);
        self.gids.put(out);
        self.class.put(out);
        self.refs.put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<Caller> {
        let (uid, gid, gids) = (Wire::take(from)?, Wire::take(from)?, Vec::<u32>::take(from)?);
        if gids.len() > GROUPS_MAX {
            return Err(Malformed::Unknown);
        }
        Ok(Caller { uid, gid, gids, class: Wire::take(from)?, refs: Wire::take(from)? })
    }
}

impl<'a> Wire<'a> for Command<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Command::Begin(text) => {
                out.push(1);
                text.put(out);
            }
            Command::More(number) => {
                out.push(2);
                number.put(out);
            }
            Command::End(number) => {
                out.push(3);
                number.put(out);
            }
            Command::Give { number, at, bytes } => {
                out.push(4);
                number.put(out);
                at.put(out);
                bytes.put(out);
            }
        }
    }

    fn take(from: &mut Input<'a>) -> Taken<Command<'a>> {
        match u8::take(from)? {
            1 => Wire::take(from).map(Command::Begin),
            2 => Wire::take(from).map(Command::More),
            3 => Wire::take(from).map(Command::End),
            4 => Ok(Command::Give {
                number: Wire::take(from)?,
                at: Wire::take(from)?,
                bytes: Wire::take(from)?,
            }),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl Wire<'_> for AccessCall {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            AccessCall::Since(version) => {
                out.push(1);
                version.put(out);
            }
            AccessCall::More { version, offset } => {
                out.push(2);
                version.put(out);
                offset.put(out);
            }
        }
    }

    fn take(from: &mut Input<'_>) -> Taken<AccessCall> {
        match u8::take(from)? {
            1 => Wire::take(from).map(AccessCall::Since),
            2 => Ok(AccessCall::More { version: Wire::take(from)?, offset: Wire::take(from)? }),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl<'a> Wire<'a> for Token<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(from: &mut Input<'a>) -> Taken<Token<'a>> {
        Wire::take(from).map(Token)
    }
}

impl Wire<'_> for LoginAnswer {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            LoginAnswer::In(user) => {
                out.push(1);
                user.put(out);
            }
            LoginAnswer::Refused(why) => {
                out.push(2);
                why.put(out);
            }
            LoginAnswer::Out => out.push(3),
            LoginAnswer::Later(why) => {
                out.push(4);
                why.put(out);
            }
        }
    }

    fn take(from: &mut Input<'_>) -> Taken<LoginAnswer> {
        match u8::take(from)? {
            1 => Wire::take(from).map(LoginAnswer::In),
            2 => Wire::take(from).map(LoginAnswer::Refused),
            3 => Ok(LoginAnswer::Out),
            4 => Wire::take(from).map(LoginAnswer::Later),
            _ => Err(Malformed::Unknown),
        }
    }
}

fn put_call(slot: Slot, call: &Call<'_>, out: &mut Vec<u8>) {
    match call {
        Call::Op(caller, op) => {
            out.push(2);
            slot.put(out);
            caller.put(out);
            op.put(out);
        }
        Call::Forget(all) => {
            out.push(3);
            slot.put(out);
            all.put(out);
        }
        Call::Lock(caller, call) => {
            out.push(7);
            slot.put(out);
            caller.put(out);
            call.put(out);
        }
        Call::Command(caller, command) => {
            out.push(8);
            slot.put(out);
            caller.put(out);
            command.put(out);
        }
        Call::Refer { nodes, last } => {
            out.push(9);
            slot.put(out);
            nodes.put(out);
            last.put(out);
        }
        Call::Access(call) => {
            out.push(20);
            slot.put(out);
            call.put(out);
        }
        Call::Login { uid, token } => {
            out.push(24);
            slot.put(out);
            uid.put(out);
            token.put(out);
        }
        Call::InOrder(caller, behind, op) => {
            out.push(IN_ORDER);
            slot.put(out);
            behind.put(out);
            caller.put(out);
            op.put(out);
        }
        Call::Died(session) => {
            out.push(23);
            slot.put(out);
            session.put(out);
        }
        Call::Numbers { volume } => {
            out.push(22);
            slot.put(out);
            volume.put(out);
        }
    }
}

impl<'a> Wire<'a> for ToServer<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            ToServer::Hello(hello) => {
                out.push(1);
                hello.put(out);
            }
            ToServer::Call(slot, call) => put_call(*slot, call, out),
            ToServer::Again(caller, told, op) => {
                out.push(10);
                told.put(out);
                caller.put(out);
                op.put(out);
            }
            ToServer::CaughtUp => out.push(11),
            ToServer::Unanswered(slot, caller, op) => {
                out.push(UNANSWERED);
                slot.put(out);
                caller.put(out);
                op.put(out);
            }
            ToServer::Share(nodes) => {
                out.push(13);
                nodes.put(out);
            }
            ToServer::Ping { number, term } => {
                out.push(4);
                number.put(out);
                term.put(out);
            }
            ToServer::HeedsLocks => out.push(14),
            ToServer::Bye => out.push(5),
            ToServer::Recalled(number) => {
                out.push(6);
                number.put(out);
            }
        }
    }

    fn take(from: &mut Input<'a>) -> Taken<ToServer<'a>> {
        match u8::take(from)? {
            1 => Hello::take(from).map(ToServer::Hello),
            2 => {
                let slot = Slot::take(from)?;
                Ok(ToServer::Call(slot, Call::Op(Wire::take(from)?, Wire::take(from)?)))
            }
            3 => Ok(ToServer::Call(Wire::take(from)?, Call::Forget(Wire::take(from)?))),
            4 => Ok(ToServer::Ping { number: Wire::take(from)?, term: Wire::take(from)? }),
            5 => Ok(ToServer::Bye),
            6 => Wire::take(from).map(ToServer::Recalled),
            7 => {
                let slot = Slot::take(from)?;
                Ok(ToServer::Call(slot, Call::Lock(Wire::take(from)?, Wire::take(from)?)))
            }
            8 => {
                let slot = Slot::take(from)?;
                Ok(ToServer::Call(slot, Call::Command(Wire::take(from)?, Wire::take(from)?)))
            }
            9 => {
                let slot = Slot::take(from)?;
                Ok(ToServer::Call(slot, Call::Refer { nodes: Wire::take(from)?, last: Wire::take(from)? }))
            }
            10 => {
                let told = Wire::take(from)?;
                Ok(ToServer::Again(Wire::take(from)?, told, Wire::take(from)?))
            }
            11 => Ok(ToServer::CaughtUp),
            UNANSWERED => {
                let slot = Slot::take(from)?;
                Ok(ToServer::Unanswered(slot, Wire::take(from)?, Wire::take(from)?))
            }
            13 => Wire::take(from).map(ToServer::Share),
            14 => Ok(ToServer::HeedsLocks),
            20 => Ok(ToServer::Call(Wire::take(from)?, Call::Access(Wire::take(from)?))),
            IN_ORDER => {
                let (slot, behind) = (Slot::take(from)?, Wire::take(from)?);
                Ok(ToServer::Call(slot, Call::InOrder(Wire::take(from)?, behind, Wire::take(from)?)))
            }
            23 => Ok(ToServer::Call(Wire::take(from)?, Call::Died(Wire::take(from)?))),
            24 => {
                let slot = Wire::take(from)?;
                Ok(ToServer::Call(slot, Call::Login { uid: Wire::take(from)?, token: Wire::take(from)? }))
            }
            22 => Ok(ToServer::Call(Wire::take(from)?, Call::Numbers { volume: Wire::take(from)? })),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl Wire<'_> for ToClient {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            ToClient::Welcome { version, session, standing, instance, host, wants_groups, by_tokens } => {
                out.push(1);
                version.put(out);
                session.put(out);
                standing.put(out);
                instance.put(out);
                host.put(out);
                wants_groups.put(out);
                by_tokens.put(out);
            }
            ToClient::Refused(why, text) => {
                out.push(2);
                why.put(out);
                text.put(out);
            }
            ToClient::Answer(slot, result, leased, told) => put_answer(*slot, result, (leased, told), out),
            ToClient::Ready => out.push(9),
            ToClient::Again { lsn, result } => {
                out.push(10);
                lsn.put(out);
                result.as_ref().err().cloned().put(out);
            }
            ToClient::Durable(lsn) => {
                out.push(11);
                lsn.put(out);
            }
            ToClient::Servers(list) => {
                out.push(12);
                list.put(out);
            }
            ToClient::LocksTaken(all) => {
                out.push(13);
                all.put(out);
            }
            ToClient::Pong { number, taken, wall } => {
                out.push(5);
                number.put(out);
                taken.put(out);
                wall.put(out);
            }
            ToClient::Closing { durable } => {
                out.push(6);
                durable.put(out);
            }
            ToClient::Recall { number, nodes } => {
                out.push(7);
                number.put(out);
                nodes.put(out);
            }
            ToClient::Granted { ticket, result } => {
                out.push(8);
                ticket.put(out);
                result.as_ref().err().cloned().put(out);
            }
        }
    }

    fn take(from: &mut Input<'_>) -> Taken<ToClient> {
        match u8::take(from)? {
            1 => Ok(ToClient::Welcome {
                version: Wire::take(from)?,
                session: Wire::take(from)?,
                standing: Wire::take(from)?,
                instance: Wire::take(from)?,
                host: Wire::take(from)?,
                wants_groups: Wire::take(from)?,
                by_tokens: Wire::take(from)?,
            }),
            2 => Ok(ToClient::Refused(Wire::take(from)?, Wire::take(from)?)),
            kind @ (3 | 4) => {
                let (slot, leased) = (Wire::take(from)?, Leased::take(from)?);
                let told = Wire::take(from)?;
                let result = if kind == 3 { Ok(Reply::take(from)?) } else { Err(Error::take(from)?) };
                Ok(ToClient::Answer(slot, result, leased, told))
            }
            5 => Ok(ToClient::Pong {
                number: Wire::take(from)?,
                taken: Wire::take(from)?,
                wall: Wire::take(from)?,
            }),
            6 => Ok(ToClient::Closing { durable: Wire::take(from)? }),
            7 => Ok(ToClient::Recall { number: Wire::take(from)?, nodes: Wire::take(from)? }),
            8 => {
                let (ticket, failure): (u64, Option<Error>) = Wire::take(from)?;
                Ok(ToClient::Granted { ticket, result: failure.map_or(Ok(()), Err) })
            }
            9 => Ok(ToClient::Ready),
            10 => {
                let (lsn, failure): (u64, Option<Error>) = Wire::take(from)?;
                Ok(ToClient::Again { lsn, result: failure.map_or(Ok(()), Err) })
            }
            11 => Wire::take(from).map(ToClient::Durable),
            12 => Wire::take(from).map(ToClient::Servers),
            13 => Wire::take(from).map(ToClient::LocksTaken),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl Wire<'_> for Leased {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Leased::Nothing => out.push(0),
            Leased::AllBut { others, snapshot_dir, alone, changed } => {
                out.push(1);
                others.put(out);
                snapshot_dir.put(out);
                alone.put(out);
                changed.put(out);
            }
        }
    }

    fn take(from: &mut Input<'_>) -> Taken<Leased> {
        match u8::take(from)? {
            0 => Ok(Leased::Nothing),
            1 => Ok(Leased::AllBut {
                others: Wire::take(from)?,
                snapshot_dir: Wire::take(from)?,
                alone: Wire::take(from)?,
                changed: Wire::take(from)?,
            }),
            _ => Err(Malformed::Unknown),
        }
    }
}

fn put_answer(
    slot: Slot,
    result: &Result<Reply>,
    (leased, told): (&Leased, &Option<Told>),
    out: &mut Vec<u8>,
) {
    out.push(if result.is_ok() { 3 } else { 4 });
    slot.put(out);
    leased.put(out);
    told.put(out);
    match result {
        Ok(reply) => reply.put(out),
        Err(e) => e.put(out),
    }
}

/// The kind of [`ToServer::Unanswered`], which is the call in another role.
const UNANSWERED: u8 = 12;

/// The kind of [`Call::InOrder`]. What it has in front of caller and operation is [`body_at`].
const IN_ORDER: u8 = 21;

/// Where caller and operation begin in the frame of a call of an operation.
pub fn body_at(call: &[u8]) -> usize {
    let after_slot = 4 + 1 + 6;
    let is_behind = call.get(after_slot) == Some(&1);
    match call.get(4) {
        Some(&IN_ORDER) if is_behind => after_slot + 1 + 16,
        Some(&IN_ORDER) => after_slot + 1,
        _ => after_slot,
    }
}

/// The frame of [`ToServer::Unanswered`] for a call that has this frame.
pub fn unanswered_frame(call: &[u8]) -> Vec<u8> {
    let mut out = call[..4 + 1 + 6].to_vec();
    out[4] = UNANSWERED;
    out.extend_from_slice(&call[body_at(call)..]);
    let len = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out
}

/// The frame of [`ToServer::Again`] for the frame of a call.
pub fn again_frame(told: &Told, call: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.push(10);
    told.put(&mut out);
    out.extend_from_slice(&call[body_at(call)..]);
    let len = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out
}

/// The frame of a message.
pub fn frame<'a>(message: &impl Wire<'a>) -> Vec<u8> {
    let mut out = vec![0; 4];
    message.put(&mut out);
    let len = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out
}

/// The message in a frame, without the length.
///
/// # Errors
/// [`Malformed`].
pub fn message<'a, M: Wire<'a>>(frame: &'a [u8]) -> Taken<M> {
    let mut input = Input::new(frame);
    let message = M::take(&mut input)?;
    input.end()?;
    Ok(message)
}
