//! Users: those that the cell has records of, and those of the machine's user database, whose
//! answers are kept for a while.

use crate::refusal::Refusal;
use crate::verdict::Identity;
use leeward_env::{Env, Nanos, Wait};
use leeward_fs::accounts::{Accounts, UserRecord};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The user database of this machine. Calls may take a while.
pub trait UserDatabase: Send + Sync + 'static {
    /// User id and groups (the primary one first) of a user; `None` where it knows no such user.
    ///
    /// # Errors
    /// Why it does not answer.
    fn find(&self, name: &str) -> Result<Option<(u32, Vec<u32>)>, String>;

    /// The numbers of the groups of the cell in which a user is, where somebody else knows than
    /// [`Accounts`].
    ///
    /// # Errors
    /// Why it does not answer.
    fn groups(&self, _name: &str) -> Result<Vec<u32>, String> {
        Ok(Vec::new())
    }

    /// Whether [`UserDatabase::groups`] knows anything.
    fn has_groups(&self) -> bool {
        false
    }
}

/// An answer of the user database is used for this time, nanoseconds.
const GOOD: Nanos = 300_000_000_000;
/// Groups of the cell that somebody else knows are used for this time, nanoseconds; and for that
/// much longer, while he does not answer.
const GROUPS_GOOD: Nanos = 2_000_000_000;
const GROUPS_KEPT: Nanos = 3_000_000_000;
/// How long a request waits for another one's question.
const ASKING_MAX: Duration = Duration::from_secs(2);
/// An answer that a user is unknown is used for this time, nanoseconds.
const UNKNOWN_GOOD: Nanos = 30_000_000_000;
/// Most answers that are kept.
const ANSWERS_MAX: usize = 10_000;

type Answer = Option<(u32, Arc<[u32]>)>;
/// Answers, and until when they are good.
type Answers<T> = Mutex<FxHashMap<Box<str>, (Nanos, T)>>;

/// Looks users up, and keeps the answers of the user database.
pub(crate) struct UserCache {
    database: Arc<dyn UserDatabase>,
    answers: Answers<Answer>,
    groups: Answers<Arc<[u32]>>,
    /// Held while groups are asked for: of many requests of a user one asks.
    asking: Mutex<()>,
}

impl UserCache {
    pub(crate) fn new(database: Arc<dyn UserDatabase>) -> UserCache {
        UserCache { database, answers: Mutex::default(), groups: Mutex::default(), asking: Mutex::default() }
    }

    /// The user of this name, who must be allowed in.
    ///
    /// # Errors
    /// [`Refusal::User`], [`Refusal::WouldBlock`], [`Refusal::Unavailable`].
    pub(crate) fn identify(
        &self,
        env: &Env,
        accounts: &Accounts,
        name: &str,
        wait: Wait,
    ) -> Result<Identity, Refusal> {
        let record = accounts.user(name);
        if record.is_some_and(|user| user.disabled) {
            return Err(Refusal::User(format!(
                "user {name} is disabled: who runs the cell opens the doors again"
            )));
        }
        let (uid, gids) = match record {
            Some(UserRecord { numbers: Some(numbers), .. }) => (numbers.uid, numbers.gids.as_slice().into()),
            _ => self
                .of_machine(env, name, wait)?
                .ok_or_else(|| Refusal::User(format!("there is no user {name}")))?,
        };
        if uid == 0 {
            return Err(Refusal::User("nobody acts as root through a door".into()));
        }
        let gid = gids.first().copied().unwrap_or(uid);
        let of_cell = match self.database.has_groups() {
            true => self.groups_elsewhere(env, name, wait)?,
            false => accounts.groups().of_user(name),
        };
        let of_machine = gids.iter().skip(1).filter(|gid| !accounts.groups().is_number(**gid));
        let others: BTreeSet<u32> = of_machine.chain(of_cell.iter()).copied().collect();
        Ok(Identity { name: name.into(), uid, gids: std::iter::once(gid).chain(others).collect() })
    }

    /// While the user database does not answer, what it said last goes on: users who were known
    /// stay known.
    fn of_machine(&self, env: &Env, name: &str, wait: Wait) -> Result<Answer, Refusal> {
        let now = env.now();
        let said_before = self.answers.lock().get(name).cloned();
        if let Some((until, answer)) = &said_before
            && now < *until
        {
            return Ok(answer.clone());
        }
        if wait == Wait::Never {
            return Err(Refusal::WouldBlock);
        }
        let (answer, good): (Answer, Nanos) = match self.database.find(name) {
            Ok(Some((uid, gids))) => (Some((uid, gids.into())), GOOD),
            Ok(None) => (None, UNKNOWN_GOOD),
            Err(why) => (said_before.ok_or(Refusal::Unavailable(why))?.1, UNKNOWN_GOOD),
        };
        put(&self.answers, name, (now + good, answer.clone()));
        Ok(answer)
    }

    fn groups_elsewhere(&self, env: &Env, name: &str, wait: Wait) -> Result<Arc<[u32]>, Refusal> {
        let kept = |good: Nanos| {
            let groups = self.groups.lock();
            groups.get(name).filter(|(until, _)| env.now() < *until + good).map(|(_, gids)| gids.clone())
        };
        if let Some(gids) = kept(0) {
            return Ok(gids);
        }
        if wait == Wait::Never {
            return Err(Refusal::WouldBlock);
        }
        let asking = self.asking.try_lock_for(ASKING_MAX);
        if let Some(gids) = kept(0) {
            return Ok(gids);
        }
        let asked = env.now();
        let told = match asking {
            Some(_) => self.database.groups(name),
            None => Err("who knows the groups of users does not answer".into()),
        };
        match told {
            Ok(gids) => {
                let gids: Arc<[u32]> = gids.into();
                put(&self.groups, name, (asked + GROUPS_GOOD, gids.clone()));
                Ok(gids)
            }
            Err(why) => kept(GROUPS_KEPT).ok_or(Refusal::Unavailable(why)),
        }
    }
}

fn put<T>(answers: &Answers<T>, name: &str, answer: (Nanos, T)) {
    let mut answers = answers.lock();
    if answers.len() >= ANSWERS_MAX {
        answers.clear();
    }
    answers.insert(name.into(), answer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_fs::accounts::AccountChange;
    use leeward_fs::groups::{GidRange, GroupChange, GroupRecord, Member, USUAL_RANGE};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A database that knows alice, while it answers.
    #[derive(Default)]
    struct Shaky {
        dead: AtomicBool,
    }

    impl UserDatabase for Shaky {
        fn find(&self, name: &str) -> Result<Option<(u32, Vec<u32>)>, String> {
            match self.dead.load(Ordering::Relaxed) {
                true => Err("no route to the directory server".into()),
                false => Ok((name == "alice").then(|| (1000, vec![1000]))),
            }
        }
    }

    #[test]
    fn a_dead_user_database_turns_away_only_who_was_not_known() {
        let env = Env::sim(1);
        let (database, accounts) = (Arc::<Shaky>::default(), Accounts::default());
        let people = UserCache::new(database.clone());
        let ask = |name: &str| people.identify(&env, &accounts, name, Wait::Allowed).map(|who| who.uid);
        assert_eq!(ask("alice"), Ok(1000));
        database.dead.store(true, Ordering::Relaxed);
        env.sleep(std::time::Duration::from_nanos(GOOD));
        assert_eq!(ask("alice"), Ok(1000));
        let refused = ask("bob").expect_err("nobody knows him");
        assert_eq!(
            (refused.status(), refused.to_string()),
            (503, "try again later: no route to the directory server".into())
        );
        database.dead.store(false, Ordering::Relaxed);
        assert_eq!(ask("bob").expect_err("now it is known that there is none").status(), 403);
    }

    /// Knows alice, also by a number of a group of the cell; and, as a gateway, such groups.
    struct Elsewhere {
        knows_groups: bool,
        groups: Mutex<Result<Vec<u32>, String>>,
    }

    impl UserDatabase for Elsewhere {
        fn find(&self, _: &str) -> Result<Option<(u32, Vec<u32>)>, String> {
            Ok(Some((1000, vec![1000, 60, 50, FIRST])))
        }

        fn groups(&self, _: &str) -> Result<Vec<u32>, String> {
            self.groups.lock().clone()
        }

        fn has_groups(&self) -> bool {
            self.knows_groups
        }
    }

    const FIRST: u32 = USUAL_RANGE.first;

    #[test]
    fn groups_of_the_cell_are_those_of_now() {
        let (env, mut accounts) = (Env::sim(1), Accounts::default());
        let database = Elsewhere { knows_groups: false, groups: Mutex::new(Ok(Vec::new())) };
        let people = UserCache::new(Arc::new(database));
        let gids = |accounts: &Accounts| {
            people.identify(&env, accounts, "alice", Wait::Allowed).expect("known").gids.to_vec()
        };
        assert_eq!(gids(&accounts), [1000, 50, 60, FIRST], "the machine's own");
        let record = GroupRecord { name: "a:b".into(), owner: Member::User("a".into()), created_secs: 1 };
        let ranges = vec![GidRange { next: FIRST + 1, ..USUAL_RANGE }];
        for change in [GroupChange::Ranges(ranges), GroupChange::Group(FIRST, Some(record))] {
            accounts.apply(AccountChange::Group(change));
        }
        assert_eq!(gids(&accounts), [1000, 50, 60], "what the machine says of the cell's is old");
        let alice = Member::User("alice".into());
        accounts.apply(AccountChange::Group(GroupChange::Member(FIRST, alice, true)));
        assert_eq!(gids(&accounts), [1000, 50, 60, FIRST]);
    }

    #[test]
    fn a_gateway_asks_for_groups_again_soon() {
        let (env, accounts) = (Env::sim(1), Accounts::default());
        let database = Arc::new(Elsewhere { knows_groups: true, groups: Mutex::new(Ok(vec![FIRST + 7])) });
        let people = UserCache::new(database.clone());
        let ask = |wait| people.identify(&env, &accounts, "alice", wait).map(|who| who.gids.to_vec());
        assert_eq!(ask(Wait::Never), Err(Refusal::WouldBlock));
        assert_eq!(ask(Wait::Allowed), Ok(vec![1000, 50, 60, FIRST, FIRST + 7]));
        *database.groups.lock() = Ok(Vec::new());
        assert!(ask(Wait::Never).is_ok_and(|gids| gids.contains(&(FIRST + 7))), "two seconds");
        env.sleep(std::time::Duration::from_nanos(GROUPS_GOOD));
        assert_eq!(ask(Wait::Allowed), Ok(vec![1000, 50, 60, FIRST]));
        // while the server does not answer
        *database.groups.lock() = Err("no route".into());
        env.sleep(std::time::Duration::from_nanos(GROUPS_GOOD));
        assert!(ask(Wait::Allowed).is_ok());
        env.sleep(std::time::Duration::from_nanos(GROUPS_KEPT));
        assert_eq!(ask(Wait::Allowed).expect_err("too old").status(), 503);
    }
}
