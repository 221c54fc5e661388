//! The request context: who asks, in which class, and whether the call may wait.

use crate::Machine;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

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

/// Kinds of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Work {
    /// Freeing what only removed snapshots referred to.
    Trim,
    /// Rewriting segments without their dead data, and deleting them.
    Cleaning,
    /// Freeing removed volumes, and large files and trees.
    Removal,
    /// Purging recycle bins.
    Purge,
    /// Restoring from a snapshot.
    Restore,
    /// fsck.
    Check,
    /// Moving data from pool to pool.
    Moving,
    /// Rebuilding and moving pieces of objects, flushing and evicting.
    Repair,
    /// Reading and verifying all objects.
    Scrub,
    /// Sending and receiving snapshots.
    Transfer,
    /// Counting what users and groups own.
    Census,
    /// Changing the rights of a tree.
    Rights,
}

impl Work {
    const ALL: [Work; 12] = [
        Work::Trim,
        Work::Cleaning,
        Work::Removal,
        Work::Purge,
        Work::Restore,
        Work::Check,
        Work::Moving,
        Work::Repair,
        Work::Scrub,
        Work::Transfer,
        Work::Census,
        Work::Rights,
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
            Work::Transfer => "transfer",
            Work::Census => "census",
            Work::Rights => "rights",
        }
    }

    /// The work of this number, in the order of the list.
    pub fn of_number(number: u32) -> Option<Work> {
        Work::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The job tag of this work: the highest numbers, which no other job has.
    fn job(self) -> u32 {
        u32::MAX - self as u32
    }
}

impl Flow {
    /// This work on behalf of a user.
    pub fn of_work(self, work: Work) -> Flow {
        Flow { job: work.job(), ..self }
    }

    /// Packs a flow into one number.
    pub fn pack(self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.job)
    }

    /// The reverse of [`Flow::pack`].
    pub fn unpack(packed: u64) -> Flow {
        Flow { uid: (packed >> 32) as u32, job: packed as u32 }
    }

    /// The kind of the system's work, if it is any.
    pub fn work(self) -> Option<Work> {
        Work::ALL.into_iter().find(|work| work.job() == self.job)
    }
}

/// Scheduling class of a request; a weight, not an absolute priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A person waits for the answer.
    Interactive,
    /// Bulk work of a user.
    Batch,
    /// The system's own work that nobody waits for.
    Background,
}

impl Class {
    /// Weight against other classes.
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
    /// Return `WouldBlock`, with no effect, where the call would wait for a store, a commit or a
    /// budget.
    Never,
    /// Wait as long as it takes.
    Allowed,
}

/// The way in which a request came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Door {
    /// The kernel's mount, or this process itself. A front end that caches learns of its changes by
    /// itself, or is told.
    #[default]
    Mount,
    /// S3.
    S3,
    /// HTTP and WebDAV.
    Http,
    /// The kernel of another machine.
    Remote,
}

impl Door {
    /// The name in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Door::Mount => "mount",
            Door::S3 => "s3",
            Door::Http => "http",
            Door::Remote => "remote",
        }
    }

    /// Whether a kernel asks, which has made the checks that Linux makes for every file system.
    pub fn is_kernel(self) -> bool {
        matches!(self, Door::Mount | Door::Remote)
    }
}

/// The groups of a user besides the primary one: a list that many requests share, so that a context
/// can be copied.
///
/// A list stays for the life of the process: one for each user of the cell, whose groups may
/// change in it, and one for each list that a machine has named.
#[derive(Clone, Copy, Default)]
pub struct Groups(Option<&'static List>);

/// Sorted. Those of a user change.
type List = RwLock<Arc<[u32]>>;

/// Lists that do not change.
static NAMED: Mutex<BTreeMap<Arc<[u32]>, &'static List>> = Mutex::new(BTreeMap::new());
/// Lists that machines have named, by user.
static STRANGERS: Mutex<Strangers> = Mutex::new(Strangers { of: BTreeMap::new(), lists: BTreeMap::new() });
/// Lists of users, by name.
static OF_USERS: Mutex<BTreeMap<Box<str>, &'static List>> = Mutex::new(BTreeMap::new());
/// Lists of a user that machines have named: of one who is in others at each login, the oldest is
/// changed in place.
const LISTS_OF_USER_MAX: usize = 16;
/// Lists that one machine has named first, above which none of its users gets one who has none.
/// Users of other machines do.
const LISTS_OF_MACHINE_MAX: usize = 50_000;

struct Strangers {
    of: BTreeMap<u32, Ring>,
    /// How many each machine has named first; `None`: this one.
    lists: BTreeMap<Option<Machine>, usize>,
}

#[derive(Default)]
struct Ring {
    lists: Vec<&'static List>,
    oldest: usize,
}

impl Groups {
    /// These groups, in any order.
    pub fn of(gids: &[u32]) -> Groups {
        let sorted = sorted(gids);
        if sorted.is_empty() {
            return Groups::default();
        }
        let mut named = NAMED.lock();
        Groups(Some(named.entry(sorted.clone()).or_insert_with(|| new_list(sorted))))
    }

    /// These groups of a user, as a machine says (`None`: this one) that may want to fill the
    /// memory; `None`: it has named too many lists already. Requests at work of a user whose groups
    /// are others all the time go on with newer ones.
    pub fn of_stranger(machine: Option<Machine>, uid: u32, gids: &[u32]) -> Option<Groups> {
        let sorted = sorted(gids);
        if sorted.is_empty() {
            return Some(Groups::default());
        }
        let all = &mut *STRANGERS.lock();
        let known = all.of.get(&uid).map_or(&[][..], |ring| &ring.lists[..]);
        if let Some(list) = known.iter().copied().find(|list| *list.read() == sorted) {
            return Some(Groups(Some(list)));
        }
        let named = all.lists.entry(machine).or_default();
        if *named < LISTS_OF_MACHINE_MAX && known.len() < LISTS_OF_USER_MAX {
            let list = new_list(sorted);
            all.of.entry(uid).or_default().lists.push(list);
            *named += 1;
            return Some(Groups(Some(list)));
        }
        let ring = all.of.get_mut(&uid)?;
        let list = ring.lists.get(ring.oldest).copied()?;
        ring.oldest = (ring.oldest + 1) % ring.lists.len();
        *list.write() = sorted;
        Some(Groups(Some(list)))
    }

    /// The groups of a user of the cell, as they are known now. What was said of the same user
    /// before follows: members of groups may change them at will, and each list is kept.
    pub fn of_user(name: &str, gids: &[u32]) -> Groups {
        let mut users = OF_USERS.lock();
        if let Some(list) = users.get(name) {
            if **list.read() != *gids {
                *list.write() = sorted(gids);
            }
            return Groups(Some(list));
        }
        let list = new_list(sorted(gids));
        users.insert(name.into(), list);
        Groups(Some(list))
    }

    /// The groups, sorted, as they are now.
    pub fn all(self) -> Arc<[u32]> {
        self.0.map_or_else(Arc::default, |list| list.read().clone())
    }

    /// Whether the group is one of them.
    pub fn contains(self, gid: u32) -> bool {
        self.0.is_some_and(|list| list.read().binary_search(&gid).is_ok())
    }
}

fn new_list(sorted: Arc<[u32]>) -> &'static List {
    Box::leak(Box::new(RwLock::new(sorted)))
}

fn sorted(gids: &[u32]) -> Arc<[u32]> {
    if gids.is_sorted_by(|a, b| a < b) {
        return gids.into();
    }
    gids.iter().copied().collect::<BTreeSet<u32>>().into_iter().collect()
}

impl PartialEq for Groups {
    fn eq(&self, other: &Groups) -> bool {
        self.all() == other.all()
    }
}

impl Eq for Groups {}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all().fmt(f)
    }
}

/// A change as its client was told of it, so that it can be done again after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The change's number. Numbers go up in the order in which changes take effect, also from one
    /// process to the next.
    pub lsn: u64,
    /// When it was made, nanoseconds since 1970.
    pub at: u64,
    /// The inode that it made or removed, where it did.
    pub node: u64,
    /// Where it appended, bytes; how many links it left.
    pub number: u64,
}

/// A change that a client has answered to its program before it sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// When it was made, nanoseconds since 1970.
    pub at: u64,
    /// The inode that it makes, where it does.
    pub node: u64,
    /// It comes to a process that has followed a crash, before all others' requests: nobody can
    /// have leases.
    pub after_crash: bool,
}

/// A call of a client, by which it is known when it comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallNumber {
    /// The slot, of those of its session.
    pub slot: u16,
    /// Which call in the slot.
    pub number: u32,
}

/// Immutable request context.
#[derive(Clone, Copy, Debug)]
pub struct Ctx {
    /// Acting user id.
    pub uid: u32,
    /// Acting primary group id.
    pub gid: u32,
    /// The other groups, where the front end knows them. The kernel does not pass them on: see
    /// [`Ctx::groups`].
    pub gids: Groups,
    /// The way in which it came.
    pub door: Door,
    /// The session of the client on another machine that asks, and may keep what it is told; 0:
    /// none.
    pub client: u64,
    /// The machine that asks, where it is another one.
    pub machine: Option<Machine>,
    /// The number of the call of that client: what comes of it is stored with the change.
    pub call: Option<CallNumber>,
    /// The change was made before, and is done again after a crash: with the same number, inode and
    /// time, whatever quotas say.
    pub again: Option<Told>,
    /// The client has told its program already what comes of it.
    pub foretold: Option<Foretold>,
    /// An admin request is asked by somebody who is no operator, and looks after the projects of
    /// these groups: those that the cell knows him to be in, whatever `gids` says.
    pub delegate: Option<Groups>,
    /// Process id of the caller where there is one, else 0.
    pub pid: u32,
    /// The flow that pays for the request.
    pub flow: Flow,
    /// Scheduling class.
    pub class: Class,
    /// Whether this thread may be blocked.
    pub wait: Wait,
    /// Whether the front end counts references to the inodes that it gets (and returns them with
    /// Forget), as a kernel does. An inode that lost its last name is kept while there are
    /// references.
    pub refs: bool,
}

impl Ctx {
    /// A user's request that may wait.
    pub fn user(uid: u32, gid: u32) -> Ctx {
        Ctx {
            uid,
            gid,
            gids: Groups::default(),
            door: Door::Mount,
            client: 0,
            machine: None,
            call: None,
            again: None,
            foretold: None,
            delegate: None,
            pid: 0,
            flow: Flow { uid, job: 0 },
            class: Class::Interactive,
            wait: Wait::Allowed,
            refs: false,
        }
    }

    /// All groups of the caller, the primary one included, as the front end or the process says.
    pub fn groups(&self) -> Vec<u32> {
        let mut gids = vec![self.gid];
        gids.extend(self.gids.all().iter());
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
            gids: Groups::default(),
            door: Door::Mount,
            client: 0,
            machine: None,
            call: None,
            again: None,
            foretold: None,
            delegate: None,
            pid: 0,
            flow: Flow::SYSTEM,
            class: Class::Background,
            wait: Wait::Allowed,
            refs: false,
        }
    }

    /// Whether somebody asks who sees the answer: not the file system for itself.
    pub fn is_for_somebody(&self) -> bool {
        self.flow != Flow::SYSTEM && self.flow.work().is_none() && self.again.is_none()
    }

    /// The same request with another setting of `wait`.
    pub fn with_wait(self, wait: Wait) -> Ctx {
        Ctx { wait, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_user_are_those_of_now() {
        let before = Groups::of_user("ctx-ann", &[3, 5]);
        assert!(before.contains(5) && !before.contains(4));
        let now = Groups::of_user("ctx-ann", &[5, 4, 5]);
        assert!(now == before && before.contains(4) && !before.contains(3), "also of requests at work");
        assert_eq!(*before.all(), [4, 5]);
        assert!(Groups::of_user("ctx-bob", &[3]).contains(3) && !now.contains(3));
    }

    #[test]
    fn a_stranger_fills_the_memory_of_nobody() {
        let of = |uid: u32, gids: &[u32]| Groups::of_stranger(None, uid, gids);
        let named = |n: u32| of(7001, &[77, 1_000_000 + n]).expect("a list");
        let first = named(0);
        assert!((0..16).all(|n| named(n).contains(1_000_000 + n)) && first.contains(1_000_000));
        assert!(named(16).contains(1_000_016), "never refused");
        assert!(first.contains(1_000_016) && first.contains(77), "the oldest goes on as the newest");
        let other = of(7002, &[1_000_000]).expect("a list");
        (17..50).for_each(|n| _ = named(n));
        assert!(other.contains(1_000_000), "of another user");
        assert_eq!(of(7001, &[]), Some(Groups::default()));
    }

    #[test]
    fn a_machine_takes_its_share_of_lists_and_no_more() {
        let (bad, good) = (Machine::named("ctx-bad"), Machine::named("ctx-good"));
        let first = 2_000_000;
        let end = first + LISTS_OF_MACHINE_MAX as u32;
        assert!((first..end).all(|uid| Groups::of_stranger(Some(bad), uid, &[uid]).is_some()));
        for uid in end..end + 1_000 {
            assert_eq!(Groups::of_stranger(Some(bad), uid, &[uid]), None);
            assert!(!STRANGERS.lock().of.contains_key(&uid), "nothing is kept of who is refused");
        }
        assert!(Groups::of_stranger(Some(bad), first, &[first]).is_some(), "known, and known still");
        assert!(Groups::of_stranger(Some(bad), first, &[7]).is_some_and(|groups| groups.contains(7)));
        let other = Groups::of_stranger(Some(good), end, &[end]).expect("another machine's");
        assert!(other.contains(end));
        assert_eq!(Groups::of_stranger(Some(bad), end, &[end]), Some(other), "a list that there is");
    }
}
