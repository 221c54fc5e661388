//! Users: those that the cell has records of, and those of the machine's user database, whose
//! answers are kept for a while.

use crate::refusal::Refusal;
use crate::verdict::Identity;
use leeward_env::{Env, Nanos, Wait};
use leeward_fs::accounts::{Accounts, UserRecord};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The user database of this machine. Calls may take a while.
pub trait UserDatabase: Send + Sync + 'static {
    /// User id and groups (the primary one first) of a user; `None` where it knows no such user.
    ///
    /// # Errors
    /// Why it does not answer.
    fn find(&self, name: &str) -> Result<Option<(u32, Vec<u32>)>, String>;
}

/// An answer of the user database is used for this time, nanoseconds.
const GOOD: Nanos = 300_000_000_000;
/// An answer that a user is unknown is used for this time, nanoseconds.
const UNKNOWN_GOOD: Nanos = 30_000_000_000;
/// Most answers that are kept.
const ANSWERS_MAX: usize = 10_000;

type Answer = Option<(u32, Arc<[u32]>)>;

/// Looks users up, and keeps the answers of the user database.
pub(crate) struct UserCache {
    database: Arc<dyn UserDatabase>,
    answers: Mutex<FxHashMap<Box<str>, (Nanos, Answer)>>,
}

impl UserCache {
    pub(crate) fn new(database: Arc<dyn UserDatabase>) -> UserCache {
        UserCache { database, answers: Mutex::default() }
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
        let gids: Arc<[u32]> = if gids.is_empty() { Arc::new([uid]) } else { gids };
        Ok(Identity { name: name.into(), uid, gids })
    }

    fn of_machine(&self, env: &Env, name: &str, wait: Wait) -> Result<Answer, Refusal> {
        let now = env.now();
        if let Some((until, answer)) = self.answers.lock().get(name)
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
            Err(why) => (self.said_before(name).ok_or(Refusal::Unavailable(why))?, UNKNOWN_GOOD),
        };
        let until = now + good;
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(name.into(), (until, answer.clone()));
        Ok(answer)
    }

    /// The last answer of the user database, while it does not answer: users who were known stay
    /// known.
    fn said_before(&self, name: &str) -> Option<Answer> {
        self.answers.lock().get(name).map(|(_, answer)| answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
