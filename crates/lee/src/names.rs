//! Names of users and groups for people to read. Lists name as many as a cell has, and a user
//! database may take a millisecond for each, or hang: answers are kept for a minute, in which only
//! so much time is spent on asking. Who must know, such as for rights, asks [`crate::system`].

use crate::system;
use leeward_env::{Env, Flow};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// What the database answered is believed for so long, nanoseconds.
const KEPT_NANOS: u64 = 60_000_000_000;
/// In that time no more is asked after so long, nanoseconds: the rest are shown by number.
const ASKING_NANOS_MAX: u64 = 500_000_000;

static NAMES: LazyLock<Names> = LazyLock::new(|| Names::new(Env::real()));

/// From now on every name is asked for, however long that takes: a program reads what this command
/// prints. Not for a process that serves.
pub fn ask_for_all() {
    NAMES.kept.lock().asks_for_all = true;
}

/// The name of a user; the number of one that is unknown, or whose name would take too long.
pub fn user_name(uid: u32) -> String {
    if uid == Flow::SYSTEM.uid {
        return "(system)".into();
    }
    NAMES.of(Id::User(uid), || system::known_user_name(uid)).unwrap_or_else(|| uid.to_string())
}

/// The name of a group, as [`user_name`].
pub fn group_name(gid: u32) -> String {
    NAMES.of(Id::Group(gid), || system::known_group_name(gid)).unwrap_or_else(|| gid.to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    User(u32),
    Group(u32),
}

struct Names {
    env: Env,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    since: u64,
    asking_nanos: u64,
    asks_for_all: bool,
    names: FxHashMap<Id, Option<String>>,
}

impl Names {
    fn new(env: Env) -> Names {
        Names { env, kept: Mutex::default() }
    }

    fn of(&self, id: Id, ask: impl FnOnce() -> Option<String>) -> Option<String> {
        let now = self.env.now();
        {
            let mut kept = self.kept.lock();
            if now.saturating_sub(kept.since) >= KEPT_NANOS {
                *kept = Kept { since: now, asks_for_all: kept.asks_for_all, ..Kept::default() };
            }
            if let Some(name) = kept.names.get(&id) {
                return name.clone();
            }
            if kept.asking_nanos >= ASKING_NANOS_MAX && !kept.asks_for_all {
                return None;
            }
        }
        let name = ask();
        let mut kept = self.kept.lock();
        kept.asking_nanos += self.env.now().saturating_sub(now);
        kept.names.insert(id, name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_slow_database_delays_nobody_for_long() {
        let env = Env::sim(1);
        let names = Names::new(env.clone());
        let asked = std::cell::Cell::new(0);
        let name_of = |uid| {
            let ask = || {
                asked.set(asked.get() + 1);
                env.advance(Duration::from_nanos(ASKING_NANOS_MAX / 100));
                (uid % 2 == 0).then(|| format!("user-{uid}"))
            };
            names.of(Id::User(uid), ask)
        };
        for uid in 0..1000 {
            name_of(uid);
        }
        assert_eq!(asked.get(), 100, "no more is asked");
        assert_eq!([0, 1, 98, 998].map(name_of), [Some("user-0".into()), None, Some("user-98".into()), None]);
        assert_eq!(asked.get(), 100, "what is known is not asked again");
        env.advance(Duration::from_nanos(KEPT_NANOS));
        assert_eq!((name_of(998), asked.get()), (Some("user-998".into()), 101));
        names.kept.lock().asks_for_all = true;
        for uid in 0..1000 {
            name_of(uid);
        }
        assert_eq!(asked.get(), 1100, "a program gets all");
        // a group is not the user of that number
        assert_eq!(names.of(Id::Group(998), || Some("group".into())), Some("group".into()));
    }
}
