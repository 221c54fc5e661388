//! What server, daemon and kernel hold, and what is under way between them.

/// What a lease allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// To use a copy.
    R,
    /// To change it, too.
    W,
}

/// A value in a kernel, or on its way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// The value.
    pub value: u8,
    /// How long the kernel may use it.
    pub left: u8,
}

/// Where a keepalive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeepaliveAt {
    /// On its way to the server.
    Up,
    /// Answered: the session goes on.
    Renewed,
    /// Answered: the leases were taken.
    Taken,
}

/// A keepalive or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keepalive {
    /// Time since it was sent, by the client's clock.
    pub age: u8,
    /// The client's term when it was sent, or the server's that the answer tells.
    pub term: u8,
    /// Where it is.
    pub at: KeepaliveAt,
}

/// Where a flush is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushAt {
    /// On its way to the server.
    Up,
    /// Answered: the server has it.
    Taken,
    /// Answered: somebody else changed the file.
    Refused,
}

/// A flush or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flush {
    /// What was written.
    pub value: u8,
    /// The version of the file when the client got W.
    pub version: u8,
    /// Where it is.
    pub at: FlushAt,
}

/// How far a recall is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recall {
    /// On its way to the client.
    Down,
    /// The client flushes first.
    Flushing,
    /// The answer is on its way.
    Up,
}

/// The state of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The value that the server has.
    pub value: u8,
    /// How often others changed it.
    pub version: u8,
    /// The value of the last write that counts.
    pub latest: u8,
    /// The last number of a write.
    pub last_write: u8,
    /// The lease as the server knows it.
    pub granted: Option<Right>,
    /// Time since the server received the last keepalive that it answered.
    pub silence: u8,
    /// A recall was not answered in time: no keepalive is answered.
    pub suspended: bool,
    /// The term of the session: one more each time that its leases are taken.
    pub term: u8,
    /// The term that the client knows.
    pub known_term: u8,
    /// The term that the client was told: what a server goes by that does not listen.
    pub told_term: u8,
    /// How long somebody has waited.
    pub wait: Option<u8>,
    /// A keepalive was answered since.
    pub renewed_in_wait: bool,
    /// The recall.
    pub recall: Option<Recall>,
    /// The server took a flush over somebody's change.
    pub overwrote: bool,
    /// The lease as the daemon knows it.
    pub lease: Option<Right>,
    /// The daemon's copy.
    pub copy: u8,
    /// The version of the file when the daemon got its lease.
    pub copy_version: u8,
    /// The copy has to be flushed.
    pub dirty: bool,
    /// A program was told that its write is lost.
    pub told: bool,
    /// Time since the daemon sent the last keepalive that was answered.
    pub age: u8,
    /// The daemon is stopped.
    pub frozen: bool,
    /// What the daemon is about to hand to the kernel.
    pub prepared: Option<Copy>,
    /// What the kernel has.
    pub kernel: Option<Copy>,
    /// Keepalives and their answers, in no order.
    pub keepalives: Vec<Keepalive>,
    /// The flush.
    pub flush: Option<Flush>,
    /// Ticks since the machine missed one.
    pub since_missed: u8,
    /// Writes of others so far.
    pub foreign_writes: u8,
    /// Writes of the client so far.
    pub own_writes: u8,
    /// Freezes so far.
    pub freezes: u8,
    /// New servers so far.
    pub restarts: u8,
    /// The server is new and waits for what the client has.
    pub recovering: bool,
}

impl State {
    pub(crate) fn next_write(&mut self) -> u8 {
        self.last_write += 1;
        self.last_write
    }
}
