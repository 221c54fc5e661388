//! What the store, the servers and the clients hold, and what is under way between them.

/// A set of writes: one bit each.
pub type Writes = u8;

/// A shard in the map object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The server that owns it.
    pub owner: usize,
    /// The version of the map with which this ownership began.
    pub epoch: u8,
}

/// The map object, `cell/map`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Map {
    /// How often it was swapped.
    pub version: u8,
    /// The shards.
    pub shards: Vec<Entry>,
}

/// The record of a server in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// The server is marked as dead, for ever.
    pub marked: bool,
    /// Time since the last renewal, as a peer sees it that looks all the time.
    pub quiet: u8,
}

/// The log of a shard's KV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Log {
    /// The writes in it.
    pub writes: Writes,
    /// The epoch of the opening that placed the last fence.
    pub opener: u8,
    /// The epoch of the last commit.
    pub epoch: u8,
    /// The server that made the last commit.
    pub writer: usize,
    /// For the properties: the highest epoch that has answered anything.
    pub served: u8,
}

/// Whether a server's process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Run {
    /// It does.
    Runs,
    /// It is stopped, and may go on.
    Frozen,
    /// It ended. A process that starts in its place is another server.
    Ended,
}

/// How far a server is with a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// It does nothing with it.
    #[default]
    Idle,
    /// It read in the map that the shard is its own.
    Opening,
    /// It has placed its fence and read the log.
    Opened,
    /// Its first commit is in the log; it waits for sessions.
    Recovering,
    /// It serves.
    Ready,
    /// It takes no new writes, before a move.
    Draining,
    /// In a mutant: it has sent the swap of a move and keeps what it has in memory.
    Handing,
}

/// A shard as a server has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard {
    /// How far the server is.
    pub stage: Stage,
    /// The epoch of this opening, and also of the last one when idle.
    pub epoch: u8,
    /// The writes that it has in memory or in the log.
    pub has: Writes,
    /// Those of them that it knows to be in the log.
    pub saved: Writes,
    /// The sessions that came back to this opening, one bit each.
    pub came: u8,
    /// The sessions that have a lease as far as it knows.
    pub granted: u8,
    /// Time since it read that it is the owner and the time of its predecessors is over.
    pub waited: u8,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Server {
    /// Whether its process runs.
    pub run: Run,
    /// Time since it sent its last renewal that was answered, by its clock.
    pub age: u8,
    /// A renewal that is not answered: time since it was sent.
    pub renewal: Option<u8>,
    /// Its shards.
    pub shards: Vec<Shard>,
}

/// What a put is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// Marks a server as dead.
    Mark {
        /// The server.
        target: usize,
    },
    /// Gives a shard to a server.
    Own {
        /// The shard.
        shard: usize,
        /// The new owner.
        owner: usize,
        /// The map as the sender read it.
        before: Entry,
        /// Its version.
        version: u8,
    },
    /// Appends a commit to a shard's log.
    Commit {
        /// The shard.
        shard: usize,
        /// The sender's epoch.
        epoch: u8,
        /// The writes in it.
        writes: Writes,
    },
}

/// Where a put is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PutAt {
    /// On its way, and its condition holds so far.
    Up,
    /// On its way, and its condition does not hold any more.
    Void,
    /// It took effect, and the sender has not heard.
    Done,
    /// It did not.
    Refused,
}

/// A put on its way to the store, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Put {
    /// The server that sent it.
    pub from: usize,
    /// What it is to do.
    pub what: What,
    /// Where it is.
    pub at: PutAt,
    /// The sender does not wait for it any more.
    pub given_up: bool,
}

/// A client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// How many operations of its script were answered.
    pub done: usize,
    /// The next one was asked: the writes that were acknowledged before.
    pub asked: Option<Writes>,
    /// The epoch of the owner to which its session is connected.
    pub epoch: u8,
    /// A copy under a lease.
    pub copy: Option<Writes>,
    /// Time since it sent its last keepalive that was answered.
    pub age: u8,
    /// It hears nothing and is not heard; its programs run.
    pub silent: bool,
    /// Its session was closed, durably.
    pub closed: bool,
}

/// An answer on its way to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answer {
    /// The client.
    pub client: usize,
    /// Which of its operations.
    pub op: usize,
    /// The epoch of the server that answered.
    pub epoch: u8,
    /// What was read; `None`: a write was made.
    pub value: Option<Writes>,
    /// The client may keep it as a copy.
    pub granted: bool,
}

/// How often what may go wrong, or is asked for, has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Counts {
    /// Servers stopped.
    pub freezes: u8,
    /// Servers killed.
    pub crashes: u8,
    /// Living servers marked as dead.
    pub suspicions: u8,
    /// Planned moves.
    pub moves: u8,
    /// Puts that were lost, or given up by their sender while on their way.
    pub lost_puts: u8,
    /// Clients gone silent.
    pub silences: u8,
}

/// What must not be, noted when it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wrong {
    /// A read returned less than was acknowledged before it was asked.
    pub stale: bool,
    /// An owner answered from memory after a later one had begun to.
    pub two_answer: bool,
    /// A write entered a log twice.
    pub twice: bool,
    /// Two servers committed in one epoch, or an older epoch after a newer one.
    pub two_commit: bool,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The map object.
    pub map: Map,
    /// The records of the servers.
    pub records: Vec<Record>,
    /// The logs of the shards.
    pub logs: Vec<Log>,
    /// What is on its way to the store.
    pub puts: Vec<Put>,
    /// The servers.
    pub servers: Vec<Server>,
    /// The clients.
    pub clients: Vec<Client>,
    /// What is on its way to sessions.
    pub answers: Vec<Answer>,
    /// Ticks since the slow server's clock missed one.
    pub since_missed: u8,
    /// What happened so far.
    pub counts: Counts,
    /// What must not be.
    pub wrong: Wrong,
}

impl State {
    pub(crate) fn runs(&self, server: usize) -> bool {
        self.servers[server].run == Run::Runs
    }

    /// Whether a server waits for the answer to a swap. It sends one at a time.
    pub(crate) fn is_swapping(&self, server: usize) -> bool {
        let is_swap = |put: &&Put| !matches!(put.what, What::Commit { .. });
        self.puts.iter().filter(is_swap).any(|put| put.from == server && !put.given_up)
    }

    /// The commit of a shard that a server waits for.
    pub(crate) fn commit_of(&self, server: usize, shard: usize) -> Option<usize> {
        let is_its = |put: &Put| matches!(put.what, What::Commit { shard: its, .. } if its == shard);
        self.puts.iter().position(|put| put.from == server && !put.given_up && is_its(put))
    }

    /// A server forgets a shard, except which epoch it had.
    pub(crate) fn close_shard(&mut self, server: usize, shard: usize) {
        let its = &mut self.servers[server].shards[shard];
        *its = Shard { epoch: its.epoch, ..Shard::default() };
        if let Some(commit) = self.commit_of(server, shard) {
            self.puts[commit].given_up = true;
        }
        self.forget_answered();
    }

    /// A server's process ends. What it sent is still on its way.
    pub(crate) fn end_server(&mut self, server: usize) {
        let its = &mut self.servers[server];
        *its = Server {
            run: Run::Ended,
            age: 0,
            renewal: None,
            shards: vec![Shard::default(); its.shards.len()],
        };
        self.puts.iter_mut().filter(|put| put.from == server).for_each(|put| put.given_up = true);
        self.forget_answered();
    }

    fn forget_answered(&mut self) {
        self.puts.retain(|put| !put.given_up || matches!(put.at, PutAt::Up | PutAt::Void));
    }

    pub(crate) fn give_up(&mut self, put: usize) {
        self.puts[put].given_up = true;
        self.counts.lost_puts += 1;
    }
}
