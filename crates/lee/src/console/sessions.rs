//! Who is logged in to the console: one-time codes of login links, and the sessions of browsers.
//!
//! Only in memory: a restart of the server logs everybody out. Codes and cookies are 256 random
//! bits of which only hashes are kept, so neither the memory nor the time to look one up tells
//! them. A session has a name of a user, not rights: what the user may is looked up for each
//! request, so that a user who is disabled, or leaves a group, notices at once.

use leeward_env::{Env, Nanos, hex};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// How long the code of a link can be used, nanoseconds.
pub const CODE_GOOD: Nanos = 300_000_000_000;
/// A session that is not used ends, nanoseconds.
const IDLE_MAX: Nanos = 3_600_000_000_000;
/// A session ends, however much it is used, nanoseconds.
const AGE_MAX: Nanos = 12 * 3_600_000_000_000;
/// Codes and sessions that one has at a time; then the oldest goes.
const CODES_EACH_MAX: usize = 4;
const SESSIONS_EACH_MAX: usize = 16;
/// Codes and sessions in all.
const CODES_MAX: usize = 1_000;
const SESSIONS_MAX: usize = 10_000;
/// What is told in a session and not asked for yet: so many things, each with a text of so many
/// bytes. Then the oldest is forgotten.
const TOLD_EACH_MAX: usize = 16;
const TOLD_BYTES_MAX: usize = 4096;

/// As whom somebody is logged in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// An operator: root or the user who serves the cell, or who the provider says is one.
    Operator(Arc<str>),
    /// A user of this name.
    User(Arc<str>),
}

impl Who {
    /// Whether it is an operator.
    pub fn is_operator(&self) -> bool {
        matches!(self, Who::Operator(_))
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Operator(name) => write!(f, "operator {name}"),
            Who::User(name) => f.write_str(name),
        }
    }
}

/// What is said once at the top of the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done.
    Done(String),
    /// It is not done.
    Failed(String),
    /// It is done, and this is shown never again.
    Secret {
        /// What was made.
        text: String,
        /// Its parts by name.
        parts: Vec<(&'static str, String)>,
    },
}

impl Told {
    /// The same with a text that is not too long: what was sent may be in it.
    fn cut(mut self) -> Told {
        let (Told::Done(text) | Told::Failed(text) | Told::Secret { text, .. }) = &mut self;
        text.truncate(text.floor_char_boundary(TOLD_BYTES_MAX));
        self
    }
}

/// A session, as a request sees it.
#[derive(Clone, Debug)]
pub struct Session {
    /// As whom.
    pub who: Who,
    /// What forms must carry: a page of another site cannot know it.
    pub token: String,
    /// How it began.
    pub by: By,
    /// Its number, to end it by.
    pub number: u64,
}

/// How somebody has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// By a link of `lee console`, asked for on this machine: without it, if that is another one
    /// than the server, the session ends.
    Link(Option<Arc<str>>),
    /// By this S3 key: without it the session ends.
    Key(String),
    /// By this provider, which calls him so.
    Provider(String, String),
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Link(None) => f.write_str("link"),
            By::Link(Some(host)) => write!(f, "link from {host}"),
            By::Key(id) => write!(f, "key {id}"),
            By::Provider(name, user) => write!(f, "{name} ({user})"),
        }
    }
}

/// A session, in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub number: u64,
    /// As whom.
    pub who: Who,
    /// How it began.
    pub by: By,
    /// Where from.
    pub address: String,
    /// How long ago it began, seconds.
    pub age_secs: i64,
    /// How long ago it was used, seconds.
    pub idle_secs: i64,
}

/// All codes and sessions of a process.
pub struct Sessions {
    env: Env,
    inner: Mutex<Inner>,
}

type Hash = [u8; 32];

#[derive(Default)]
struct Inner {
    codes: HashMap<Hash, Code>,
    sessions: HashMap<Hash, Record>,
    last: u64,
}

struct Code {
    who: Who,
    /// The machine on which it was asked for, if that is another one.
    host: Option<Arc<str>>,
    made: Nanos,
}

struct Record {
    session: Session,
    address: String,
    began: Nanos,
    used: Nanos,
    told: Vec<(u64, Told)>,
}

fn hash(secret: &str) -> Hash {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    out
}

/// Whether two secrets are the same, in a time that tells nothing of either.
pub fn is_same(a: &str, b: &str) -> bool {
    hash(a) == hash(b)
}

impl Sessions {
    /// None yet.
    pub fn new(env: &Env) -> Arc<Sessions> {
        Arc::new(Sessions { env: env.clone(), inner: Mutex::default() })
    }

    fn secret(&self) -> String {
        hex::encode(&self.env.secret::<32>())
    }

    /// A code that logs in once, within [`CODE_GOOD`]. `host`: the machine on which it was asked
    /// for, if that is another one.
    pub fn code(&self, who: Who, host: Option<&str>) -> String {
        let (code, now) = (self.secret(), self.env.now());
        let mut inner = self.inner.lock();
        inner.forget_old(now);
        while inner.codes.values().filter(|code| code.who == who).count() >= CODES_EACH_MAX {
            inner.forget_oldest_code(Some(&who));
        }
        if inner.codes.len() >= CODES_MAX {
            inner.forget_oldest_code(None);
        }
        inner.codes.insert(hash(&code), Code { who, host: host.map(Arc::from), made: now });
        code
    }

    /// Whose code it is. It can still be used.
    pub fn whose(&self, code: &str) -> Option<Who> {
        let now = self.env.now();
        let mut inner = self.inner.lock();
        inner.forget_old(now);
        inner.codes.get(&hash(code)).map(|code| code.who.clone())
    }

    /// Whose code it was. It cannot be used again.
    pub fn redeem(&self, code: &str) -> Option<(Who, By)> {
        let now = self.env.now();
        let mut inner = self.inner.lock();
        inner.forget_old(now);
        inner.codes.remove(&hash(code)).map(|code| (code.who, By::Link(code.host)))
    }

    /// Begins a session; returns the secret for the cookie.
    pub fn begin(&self, who: Who, by: By, address: String) -> String {
        let (secret, token, now) = (self.secret(), self.secret(), self.env.now());
        let mut inner = self.inner.lock();
        inner.forget_old(now);
        while inner.sessions.values().filter(|record| record.session.who == who).count() >= SESSIONS_EACH_MAX
        {
            inner.forget_idlest(Some(&who));
        }
        if inner.sessions.len() >= SESSIONS_MAX {
            inner.forget_idlest(None);
        }
        inner.last += 1;
        let session = Session { who, token, by, number: inner.last };
        let record = Record { session, address, began: now, used: now, told: Vec::new() };
        inner.sessions.insert(hash(&secret), record);
        secret
    }

    /// The session of a cookie. `is_used`: not only a page that brings itself up to date.
    pub fn find(&self, secret: &str, is_used: bool) -> Option<Session> {
        let now = self.env.now();
        let mut inner = self.inner.lock();
        let record = inner.sessions.get_mut(&hash(secret)).filter(|record| record.is_good(now))?;
        if is_used {
            record.used = now;
        }
        Some(record.session.clone())
    }

    /// Says something once in a session; returns the number by which a page asks for it.
    pub fn tell(&self, session: u64, told: Told) -> u64 {
        let mut inner = self.inner.lock();
        inner.last += 1;
        let number = inner.last;
        if let Some(record) = inner.sessions.values_mut().find(|record| record.session.number == session) {
            if record.told.len() == TOLD_EACH_MAX {
                record.told.remove(0);
            }
            record.told.push((number, told.cut()));
        }
        number
    }

    /// What is said under this number.
    pub fn told(&self, session: u64, number: u64) -> Option<Told> {
        let mut inner = self.inner.lock();
        let record = inner.sessions.values_mut().find(|record| record.session.number == session)?;
        let at = record.told.iter().position(|(of, _)| *of == number)?;
        Some(record.told.remove(at).1)
    }

    /// The sessions that somebody may see and end, the newest first: the own ones; operators all.
    pub fn of(&self, who: &Who) -> Vec<Listed> {
        let now = self.env.now();
        let mut inner = self.inner.lock();
        inner.forget_old(now);
        let secs = |since: Nanos| (now.saturating_sub(since) / 1_000_000_000) as i64;
        let listed = |record: &Record| Listed {
            number: record.session.number,
            who: record.session.who.clone(),
            by: record.session.by.clone(),
            address: record.address.clone(),
            age_secs: secs(record.began),
            idle_secs: secs(record.used),
        };
        let own = inner.sessions.values().filter(|record| who.is_operator() || record.session.who == *who);
        let mut all: Vec<Listed> = own.map(listed).collect();
        all.sort_by_key(|listed| std::cmp::Reverse(listed.number));
        all
    }

    /// Ends a session that somebody may end; false: there is none of this number.
    pub fn end(&self, who: &Who, number: u64) -> bool {
        let mut inner = self.inner.lock();
        let before = inner.sessions.len();
        inner.sessions.retain(|_, record| {
            let may = who.is_operator() || record.session.who == *who;
            !may || record.session.number != number
        });
        inner.sessions.len() < before
    }

    /// Ends the sessions, and forgets the codes, of whoever is not let in any more.
    pub fn keep(&self, is_let_in: impl Fn(&Who, &By) -> bool) {
        let mut inner = self.inner.lock();
        inner.sessions.retain(|_, record| is_let_in(&record.session.who, &record.session.by));
        inner.codes.retain(|_, code| is_let_in(&code.who, &By::Link(code.host.clone())));
    }
}

impl Record {
    fn is_good(&self, now: Nanos) -> bool {
        now.saturating_sub(self.used) < IDLE_MAX && now.saturating_sub(self.began) < AGE_MAX
    }
}

impl Inner {
    fn forget_old(&mut self, now: Nanos) {
        self.codes.retain(|_, code| now.saturating_sub(code.made) < CODE_GOOD);
        self.sessions.retain(|_, record| record.is_good(now));
    }

    fn forget_oldest_code(&mut self, of: Option<&Who>) {
        let own = self.codes.iter().filter(|(_, code)| of.is_none_or(|who| code.who == *who));
        if let Some(oldest) = own.min_by_key(|(_, code)| code.made).map(|(hash, _)| *hash) {
            self.codes.remove(&oldest);
        }
    }

    fn forget_idlest(&mut self, of: Option<&Who>) {
        let own = self.sessions.iter().filter(|(_, record)| of.is_none_or(|who| record.session.who == *who));
        if let Some(idlest) = own.min_by_key(|(_, record)| record.used).map(|(hash, _)| *hash) {
            self.sessions.remove(&idlest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn user(name: &str) -> Who {
        Who::User(name.into())
    }

    #[test]
    fn a_code_logs_in_once_and_not_late() {
        let env = Env::sim(1);
        let sessions = Sessions::new(&env);
        let (first, second) =
            (sessions.code(user("alice"), None), sessions.code(Who::Operator("root".into()), Some("node1")));
        assert_eq!(sessions.whose(&first), Some(user("alice")));
        assert_eq!(sessions.redeem(&first), Some((user("alice"), By::Link(None))));
        assert_eq!((sessions.redeem(&first), sessions.whose(&first)), (None, None));
        env.sleep(Duration::from_nanos(CODE_GOOD));
        assert_eq!(sessions.redeem(&second), None);
        assert_eq!(sessions.redeem(""), None);
    }

    #[test]
    fn a_session_ends_when_it_is_not_used_and_when_it_is_old() {
        let env = Env::sim(1);
        let sessions = Sessions::new(&env);
        let hour = Duration::from_nanos(IDLE_MAX);
        let idle = sessions.begin(user("alice"), By::Link(None), "::1".into());
        env.sleep(hour);
        assert!(sessions.find(&idle, true).is_none());
        let used = sessions.begin(user("alice"), By::Link(None), "::1".into());
        for _ in 0..AGE_MAX / (IDLE_MAX / 2) - 1 {
            env.sleep(hour / 2);
            assert!(sessions.find(&used, true).is_some());
        }
        env.sleep(hour / 2);
        assert!(sessions.find(&used, true).is_none());
    }

    #[test]
    fn who_makes_many_loses_the_own_oldest() {
        let env = Env::sim(1);
        let sessions = Sessions::new(&env);
        let other = sessions.begin(user("bea"), By::Link(None), String::new());
        let code = sessions.code(user("bea"), None);
        let mut secrets = Vec::new();
        for _ in 0..SESSIONS_EACH_MAX + 1 {
            env.sleep(Duration::from_secs(1));
            secrets.push(sessions.begin(user("alice"), By::Link(None), String::new()));
            sessions.code(user("alice"), None);
        }
        assert!(sessions.find(&secrets[0], true).is_none() && sessions.find(&secrets[1], true).is_some());
        assert!(sessions.find(&other, true).is_some() && sessions.whose(&code).is_some());
        assert_eq!(sessions.of(&user("alice")).len(), SESSIONS_EACH_MAX);
        assert!(sessions.inner.lock().codes.len() <= CODES_EACH_MAX + 1);
    }

    #[test]
    fn a_page_that_is_only_open_is_no_use() {
        let env = Env::sim(1);
        let sessions = Sessions::new(&env);
        let open = sessions.begin(user("alice"), By::Link(None), String::new());
        for _ in 0..3 {
            assert!(sessions.find(&open, false).is_some());
            env.sleep(Duration::from_nanos(IDLE_MAX / 3));
        }
        assert!(sessions.find(&open, false).is_none());
    }

    #[test]
    fn operators_end_sessions_of_all_and_users_their_own() {
        let env = Env::sim(1);
        let sessions = Sessions::new(&env);
        let secret = sessions.begin(user("alice"), By::Link(None), String::new());
        let number = sessions.find(&secret, true).expect("there").number;
        let (bea, root) = (user("bea"), Who::Operator("root".into()));
        assert!(!sessions.end(&bea, number) && sessions.of(&bea).is_empty());
        let first = sessions.tell(number, Told::Done("made".into()));
        let second = sessions.tell(number, Told::Failed("not made".into()));
        assert_eq!(sessions.told(number, second), Some(Told::Failed("not made".into())));
        assert_eq!(
            sessions.told(number, first),
            Some(Told::Done("made".into())),
            "one does not hide another"
        );
        assert_eq!(sessions.told(number, first), None);
        assert_eq!(sessions.of(&root).len(), 1);
        assert!(sessions.end(&root, number) && sessions.find(&secret, true).is_none());
    }

    #[test]
    fn who_is_not_let_in_any_more_loses_sessions_and_codes() {
        let env = Env::sim(1);
        let sessions = Sessions::new(&env);
        let own = sessions.begin(user("alice"), By::Link(None), String::new());
        let elsewhere = sessions.begin(user("alice"), By::Link(Some("node".into())), String::new());
        let (code, there) = (sessions.code(user("alice"), None), sessions.code(user("alice"), Some("node")));
        sessions.keep(|_, by| *by != By::Link(Some("node".into())));
        assert!(sessions.find(&own, true).is_some() && sessions.find(&elsewhere, true).is_none());
        assert!(sessions.whose(&code).is_some() && sessions.whose(&there).is_none());
    }
}
