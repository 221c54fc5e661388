//! Locks that programs take on files (`flock`, `fcntl`), as callers and the server of a cell name
//! them.

use crate::codec::{Input, Malformed, Taken, Wire};
use crate::{Error, NodeId, Result};

/// The last byte that a lock can cover: the largest offset of a file.
pub const LAST_BYTE: u64 = i64::MAX as u64;

/// The two kinds of locks. They do not exclude each other, as on a local file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// Of `flock`: on the whole file, owned by an open file.
    Flock,
    /// Of `fcntl`: on ranges of bytes, owned by a process, or by an open file (`F_OFD_SETLK`).
    Posix,
}

/// What a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockMode {
    /// Exclusive locks of others.
    Shared,
    /// All locks of others.
    Exclusive,
}

/// Who owns a lock, within one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwner {
    /// The kind of the lock.
    pub kind: LockKind,
    /// A number that the kernel of the client gives to each process and to each open file.
    pub number: u64,
}

/// Bytes of a file, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockRange {
    /// The first.
    pub first: u64,
    /// The last; [`LAST_BYTE`]: to the end, wherever that is.
    pub last: u64,
}

impl LockRange {
    /// The whole file.
    pub const ALL: LockRange = LockRange { first: 0, last: LAST_BYTE };

    /// The range that a lock of this kind covers when this one is asked for.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one that ends before it begins, or beyond the largest file.
    pub fn of_kind(self, kind: LockKind) -> Result<LockRange> {
        match kind {
            LockKind::Flock => Ok(LockRange::ALL),
            LockKind::Posix if self.first <= self.last && self.last <= LAST_BYTE => Ok(self),
            LockKind::Posix => Err(Error::Invalid),
        }
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// What it covers.
    pub range: LockRange,
    /// What it excludes.
    pub mode: LockMode,
    /// The process that took it, by its number on its machine; 0: one on another machine.
    pub pid: u32,
}

/// A lock that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The file.
    pub node: NodeId,
    /// For whom.
    pub owner: LockOwner,
    /// The lock.
    pub lock: FileLock,
    /// Whether to wait for it.
    pub wait: bool,
}

/// A lock, where it is, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedLock {
    /// The file.
    pub node: NodeId,
    /// The owner.
    pub owner: LockOwner,
    /// The lock.
    pub lock: FileLock,
}

/// What a client asks of the server's table of locks. All of it can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockCall {
    /// Takes or converts a lock. → [`Reply::Done`](crate::Reply::Done), or [`LockReply::Waits`]:
    /// the server says later how it went. Asked for again with the same ticket, it keeps its place
    /// in line.
    Set {
        /// The lock.
        request: LockRequest,
        /// The client's number for this request.
        ticket: u64,
    },
    /// Gives up what the owner has in a range. → `Done`.
    Unlock {
        /// The file.
        node: NodeId,
        /// The owner.
        owner: LockOwner,
        /// The range.
        range: LockRange,
    },
    /// Looks for a lock that would be in the way. → [`LockReply::Free`] or [`LockReply::Held`].
    Test(LockRequest),
    /// Waits no longer. → `Done`, or [`LockReply::NotWaiting`].
    Cancel {
        /// That of the request.
        ticket: u64,
    },
    /// Gives up all that the owner has of a file. → `Done`.
    Release {
        /// The file.
        node: NodeId,
        /// The owner.
        owner: LockOwner,
    },
    /// Says what the client had locked at a server that has ended. → [`LockReply::Lost`].
    Tell(Vec<OwnedLock>),
}

/// Answers that only calls about locks have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockReply {
    /// The lock is not free; the request is in line.
    Waits,
    /// No request with this ticket is in line.
    NotWaiting,
    /// Nothing is in the way.
    Free,
    /// This lock is in the way.
    Held(FileLock),
    /// Positions of the locks that the client does not have any more.
    Lost(Vec<u32>),
}

crate::wire_kinds! {
    LockKind { 0 => Flock, 1 => Posix }
    LockMode { 0 => Shared, 1 => Exclusive }
}

crate::wire_structures! {
    LockOwner { kind, number }
    LockRange { first, last }
    FileLock { range, mode, pid }
    LockRequest { node, owner, lock, wait }
    OwnedLock { node, owner, lock }
}

impl Wire<'_> for LockCall {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            LockCall::Set { request, ticket } => {
                out.push(0);
                request.put(out);
                ticket.put(out);
            }
            LockCall::Unlock { node, owner, range } => {
                out.push(1);
                node.put(out);
                owner.put(out);
                range.put(out);
            }
            LockCall::Test(request) => {
                out.push(2);
                request.put(out);
            }
            LockCall::Cancel { ticket } => {
                out.push(3);
                ticket.put(out);
            }
            LockCall::Release { node, owner } => {
                out.push(4);
                node.put(out);
                owner.put(out);
            }
            LockCall::Tell(locks) => {
                out.push(5);
                locks.put(out);
            }
        }
    }

    fn take(from: &mut Input<'_>) -> Taken<LockCall> {
        match u8::take(from)? {
            0 => Ok(LockCall::Set { request: Wire::take(from)?, ticket: Wire::take(from)? }),
            1 => {
                let (node, owner) = (Wire::take(from)?, Wire::take(from)?);
                Ok(LockCall::Unlock { node, owner, range: Wire::take(from)? })
            }
            2 => Wire::take(from).map(LockCall::Test),
            3 => Ok(LockCall::Cancel { ticket: Wire::take(from)? }),
            4 => Ok(LockCall::Release { node: Wire::take(from)?, owner: Wire::take(from)? }),
            5 => Wire::take(from).map(LockCall::Tell),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl Wire<'_> for LockReply {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            LockReply::Waits => out.push(0),
            LockReply::NotWaiting => out.push(1),
            LockReply::Free => out.push(2),
            LockReply::Held(lock) => {
                out.push(3);
                lock.put(out);
            }
            LockReply::Lost(positions) => {
                out.push(4);
                positions.put(out);
            }
        }
    }

    fn take(from: &mut Input<'_>) -> Taken<LockReply> {
        match u8::take(from)? {
            0 => Ok(LockReply::Waits),
            1 => Ok(LockReply::NotWaiting),
            2 => Ok(LockReply::Free),
            3 => Wire::take(from).map(LockReply::Held),
            4 => Wire::take(from).map(LockReply::Lost),
            _ => Err(Malformed::Unknown),
        }
    }
}
