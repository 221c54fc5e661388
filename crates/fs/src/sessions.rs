//! Sessions of clients on other machines, as far as they survive the server's process.
//!
//! A client keeps each change that it was told of until the server says that it is durable, and
//! after a crash the changes are done again (`docs/decisions/0033`). The engine gives each change a
//! number under its own lock, stores with it what came of it, and knows which numbers a crash has
//! left.

use crate::{Op, Reply, Result};
use leeward_env::{Ctx, Told};
use std::cell::Cell;

/// A session, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub number: u64,
    /// Proves that the session is one's own.
    pub secret: [u8; 16],
    /// The host's Ed25519 public key.
    pub key: [u8; 32],
    /// It was silent for so long that a server which starts does not wait for it. All that it was
    /// told before is durable.
    pub away: bool,
    /// Exclusive leases or locks of its client were taken, and the client has not said that it
    /// knows: what it has told its programs and not sent must not be done any more, and others may
    /// have its locks.
    pub expelled: bool,
}

/// What came of the last change in a slot of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which call in the slot it was.
    pub call: u32,
    /// What its client was told.
    pub told: Told,
}

/// What an engine keeps of sessions.
pub trait Sessions: Send + Sync {
    /// The sessions that there are, also those of a process before.
    fn sessions(&self) -> Vec<SessionRecord>;

    /// Stores a session, or that it is away or back. Durable with the next commit.
    ///
    /// # Errors
    /// When the cell takes no changes.
    fn store_session(&self, record: &SessionRecord) -> Result<()>;

    /// Forgets a session and what came of its calls. Durable with the next commit.
    ///
    /// # Errors
    /// Errors of reading what is stored of it.
    fn end_session(&self, number: u64) -> Result<()>;

    /// What came of the last changes of a session, by slot.
    ///
    /// # Errors
    /// Errors of reading.
    fn outcomes(&self, number: u64) -> Result<Vec<(u16, Outcome)>>;

    /// Does a change again that a client was told of and that a crash may have taken. One that is
    /// there is left alone. Changes are to be done again in the order of their numbers, of all
    /// clients.
    ///
    /// # Errors
    /// Those of the operation: what it builds on is lost.
    fn do_again(&self, ctx: &Ctx, op: &Op<'_>, told: Told) -> Result<Option<Reply>>;

    /// The answer to a call that was done, and whose client does not know that. Content that it
    /// changed is to be done again before.
    ///
    /// # Errors
    /// Those of the operation.
    fn answer_again(&self, ctx: &Ctx, op: &Op<'_>, told: Told) -> Result<Reply>;

    /// All changes with numbers up to this one are durable, with their content. To be asked again
    /// and again: it looks a step further each time, and waits for nothing.
    fn durable_up_to(&self) -> u64;

    /// Whether inodes without a name are kept although nobody has a reference: clients of a process
    /// before may have. At first they are if there are sessions.
    fn keep_all_inodes(&self, keep: bool);

    /// Counts a reference to each of these inodes.
    fn refer(&self, nodes: &[crate::NodeId]);

    /// Nothing is done again any more. What new changes rely on is durable when this returns: no
    /// inode gets a number that a crash has taken back.
    ///
    /// # Errors
    /// When it cannot be made durable.
    fn go_on(&self) -> Result<()>;

    /// Reserves inode numbers of a volume for a session, for inodes that its client makes before it
    /// says so. Returns the first.
    ///
    /// # Errors
    /// There is no such volume, or the session has too many that it has not used.
    fn reserve_numbers(&self, number: u64, volume: u32, count: u64) -> Result<crate::NodeId>;

    /// Makes all changes so far durable, with their content.
    ///
    /// # Errors
    /// When they cannot be.
    fn sync(&self) -> Result<()>;

    /// Makes all changes so far durable, not their content.
    ///
    /// # Errors
    /// When they cannot be.
    fn commit(&self) -> Result<()>;
}

crate::wire_structures! {
    Told { lsn, at, node, number }
}

thread_local! {
    /// What the last change on this thread came to.
    static TOLD: Cell<Option<Told>> = const { Cell::new(None) };
    /// Whether a front end was told of a change on this thread.
    static ANNOUNCED: Cell<bool> = const { Cell::new(false) };
}

/// What the change that this thread has just made for a client came to. To be called before the
/// operation as well, for those of others.
pub fn take_told() -> Option<Told> {
    TOLD.take()
}

/// A change was made for a client.
pub fn tell(told: Told) {
    TOLD.set(Some(told));
}

/// Whether the change that this thread has just made was announced to a front end: whoever answers
/// it waits until that is dropped there. What others have announced is theirs to wait for. To be
/// called before the operation as well.
pub fn take_announced() -> bool {
    ANNOUNCED.take()
}

/// A front end is told of a change of this thread.
pub fn announce() {
    ANNOUNCED.set(true);
}

/// How a change can be done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It changes nothing.
    Nothing,
    /// By the order in which changes are committed it is known whether it is there.
    Change,
    /// It changes content, which becomes durable later than the rest, file by file.
    Content,
    /// Not at all: it must be durable before it is answered.
    Never,
}

impl Op<'_> {
    /// How it can be done again.
    pub fn again(&self) -> Again {
        match self {
            op if op.effect() == crate::Effect::Reads || op.effect() == crate::Effect::Settles => {
                Again::Nothing
            }
            op if op.is_on_view() => Again::Never,
            Op::SetAttr { set, .. } if set.size.is_some() => Again::Content,
            Op::Write { .. } | Op::Append { .. } | Op::Allocate { .. } => Again::Content,
            Op::CopyRange { .. }
            | Op::BeginUpload { .. }
            | Op::KeepPart { .. }
            | Op::CompleteUpload { .. }
            | Op::EndUpload { .. } => Again::Never,
            _ => Again::Change,
        }
    }
}
