//! The request context: who asks, in which class, and how patiently.

/// What fairness is between: a user, subdivided by a job tag where one is known (0: none).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// User id.
    pub uid: u32,
    /// Job tag, 0 when unknown.
    pub job: u32,
}

impl Flow {
    /// The system's own work: commits, cleaning, reclaim.
    pub const SYSTEM: Flow = Flow { uid: u32::MAX, job: 0 };
}

/// What is done in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Work {
    /// Freeing what only removed snapshots saw.
    Trim,
    /// Rewriting segments without what is dead in them, and deleting them.
    Cleaning,
    /// Freeing removed volumes, and large files and trees.
    Removal,
    /// Purging recycle bins.
    Purge,
    /// Bringing something back from a snapshot.
    Restore,
    /// fsck.
    Check,
    /// Moving data from pool to pool.
    Moving,
    /// Rebuilding and moving pieces of objects, flushing and evicting.
    Repair,
    /// Reading and verifying all.
    Scrub,
}

impl Work {
    const ALL: [Work; 9] = [
        Work::Trim,
        Work::Cleaning,
        Work::Removal,
        Work::Purge,
        Work::Restore,
        Work::Check,
        Work::Moving,
        Work::Repair,
        Work::Scrub,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Work::Trim => "trim",
            Work::Cleaning => "cleaning",
            Work::Removal => "removal",
            Work::Purge => "purge",
            Work::Restore => "restore",
            Work::Check => "fsck",
            Work::Moving => "moving",
            Work::Repair => "repair",
            Work::Scrub => "scrub",
        }
    }

    /// The job tag of this work: those at the end are nobody else's.
    fn job(self) -> u32 {
        u32::MAX - self as u32
    }
}

impl Flow {
    /// This work on behalf of a user.
    pub fn of_work(self, work: Work) -> Flow {
        Flow { job: work.job(), ..self }
    }

    /// As one number.
    pub fn pack(self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.job)
    }

    /// From [`Flow::pack`].
    pub fn unpack(packed: u64) -> Flow {
        Flow { uid: (packed >> 32) as u32, job: packed as u32 }
    }

    /// Which work of the system this is, if it is any.
    pub fn work(self) -> Option<Work> {
        Work::ALL.into_iter().find(|work| work.job() == self.job)
    }
}

/// Scheduling class of a request; a weight, not an absolute priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Somebody waits at a prompt.
    Interactive,
    /// Bulk work of a user.
    Batch,
    /// The system's own work that nobody waits for.
    Background,
}

impl Class {
    /// What it weighs against others.
    pub fn weight(self) -> u32 {
        match self {
            Class::Interactive => 16,
            Class::Batch => 4,
            Class::Background => 1,
        }
    }
}

/// Whether a call may block the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return `WouldBlock`, with no effect, where the call would wait for a store, a commit or a budget.
    Never,
    /// Wait as long as it takes.
    Allowed,
}

/// Immutable request context.
#[derive(Clone, Copy, Debug)]
pub struct Ctx {
    /// Acting user id.
    pub uid: u32,
    /// Acting primary group id.
    pub gid: u32,
    /// Process id of the caller where there is one, else 0.
    pub pid: u32,
    /// The flow that pays for the request.
    pub flow: Flow,
    /// Scheduling class.
    pub class: Class,
    /// Whether this thread may be blocked.
    pub wait: Wait,
    /// Whether the front end counts references to the inodes it is told of (and gives them back with Forget), as
    /// a kernel does. An inode that lost its last name is kept while references are out.
    pub refs: bool,
}

impl Ctx {
    /// A user's request that may wait.
    pub fn user(uid: u32, gid: u32) -> Ctx {
        Ctx {
            uid,
            gid,
            pid: 0,
            flow: Flow { uid, job: 0 },
            class: Class::Interactive,
            wait: Wait::Allowed,
            refs: false,
        }
    }

    /// The groups of who asks: the primary one and, where the process is known, those it has besides.
    pub fn groups(&self) -> Vec<u32> {
        let mut gids = vec![self.gid];
        if self.pid > 0
            && let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            && let Some(listed) = status.lines().find_map(|line| line.strip_prefix("Groups:"))
        {
            gids.extend(listed.split_whitespace().filter_map(|gid| gid.parse::<u32>().ok()));
        }
        gids
    }

    /// The system's own background work.
    pub fn system() -> Ctx {
        Ctx {
            uid: 0,
            gid: 0,
            pid: 0,
            flow: Flow::SYSTEM,
            class: Class::Background,
            wait: Wait::Allowed,
            refs: false,
        }
    }

    /// The same request with another patience.
    pub fn with_wait(self, wait: Wait) -> Ctx {
        Ctx { wait, ..self }
    }
}
