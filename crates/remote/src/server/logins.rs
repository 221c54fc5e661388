//! Users of a host that is not believed who its users are: each proves it by a token, for one
//! session.
//!
//! A **login** binds a user id of the host to a user of the cell. The server keeps the token and
//! judges it again when accounts change, and now and then. What a user asks for while the token is
//! judged waits for that: what the client sends behind it finds it done.

use super::Shared;
use super::admit::{self, NOBODY};
use super::session::{Answer, Host, Session};
use crate::message::{Caller, CellUser, LoginAnswer, Token};
use leeward_env::{Ctx, Machine, Nanos, Wait, panic_text};
use leeward_fs::accounts::Secret;
use leeward_fs::codec::Wire;
use leeward_fs::{Error, NodeId, Op, Reply, Result};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Logins of a session at most, and bytes of a token.
const LOGINS_MAX: usize = 64;
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Tokens that are judged at once, of all sessions.
const JUDGED_AT_ONCE_MAX: usize = 64;
/// Logins of a user of a session, and of all, that may be refused in a time.
const REFUSED_MAX: u32 = 8;
const REFUSED_OF_ALL_MAX: u32 = 64;
const REFUSED_TIME: Nanos = 1_000_000_000;
/// How often tokens are judged again when no account changes.
const JUDGED_FOR: Nanos = 60_000_000_000;

/// The logins of a session.
#[derive(Default)]
pub(super) struct Logins {
    /// By the user's number on the host.
    all: Mutex<FxHashMap<u32, Login>>,
    /// Those that are judged now, and how many there were.
    judging: Mutex<FxHashMap<u32, Judged>>,
    begun: AtomicU64,
    refused: Mutex<Refused>,
}

/// Tokens of a user that are judged now.
#[derive(Default)]
struct Judged {
    /// With a number for each.
    answers: Vec<(u64, Answer)>,
    /// The user waits for them.
    holds: bool,
    /// What the user has asked for meanwhile.
    parked: Vec<Parked>,
}

/// Goes on with what was asked for; `true`: the server has ended.
pub(super) type Parked = Box<dyn FnOnce(bool) + Send>;

/// How many were refused, since when: of all, and by user id.
#[derive(Default)]
struct Refused {
    since: Nanos,
    all: u32,
    of: FxHashMap<u32, u32>,
}

#[derive(Clone)]
struct Login {
    user: CellUser,
    token: Secret,
    judged_at: Option<Nanos>,
}

impl Logins {
    /// A token is judged from now on; its number. Who is in by it goes on meanwhile.
    fn begin(&self, uid: u32, token: &Secret, answer: Answer) -> u64 {
        let is_in = self.all.lock().get(&uid).is_some_and(|login| login.token == *token);
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let mut judging = self.judging.lock();
        let judged = judging.entry(uid).or_default();
        judged.holds |= !is_in;
        judged.answers.push((number, answer));
        number
    }

    /// It was judged: whom to answer, and with the last one of a user what was parked.
    fn end(&self, uid: u32, number: u64) -> (Option<Answer>, Vec<Parked>) {
        let mut judging = self.judging.lock();
        let Some(judged) = judging.get_mut(&uid) else { return (None, Vec::new()) };
        let at = judged.answers.iter().position(|(of, _)| *of == number);
        let answer = at.map(|at| judged.answers.swap_remove(at).1);
        let is_last = judged.answers.is_empty();
        let parked = if is_last { judging.remove(&uid).map(|judged| judged.parked) } else { None };
        (answer, parked.unwrap_or_default())
    }

    /// Keeps what a user asks for until the token that he has shown is judged. It is returned if
    /// none is.
    pub(super) fn park(&self, uid: u32, ask: Parked) -> Option<Parked> {
        match self.judging.lock().get_mut(&uid) {
            Some(judged) if judged.holds => {
                judged.parked.push(ask);
                None
            }
            _ => Some(ask),
        }
    }

    /// Whether a token is judged now for which the user has to wait.
    pub(super) fn is_judged(&self, uid: u32) -> bool {
        self.judging.lock().get(&uid).is_some_and(|judged| judged.holds)
    }

    /// Names of the users who have logged in.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.all.lock().values().map(|login| login.user.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Ends those whose time is over. `wall`: the time, nanoseconds since 1970. To be called twice
    /// a second.
    pub(super) fn end_old(&self, wall: Nanos) {
        self.all.lock().retain(|_, login| !login.user.is_over(wall));
    }

    fn those(&self, which: impl Fn(&Login) -> bool) -> Vec<(u32, Login)> {
        let all = self.all.lock();
        all.iter().filter(|(_, login)| which(login)).map(|(uid, login)| (*uid, login.clone())).collect()
    }

    fn may_try(&self, uid: u32, now: Nanos) -> bool {
        let refused = self.refused.lock();
        let of = refused.of.get(&uid).copied().unwrap_or_default();
        let are_few = of < REFUSED_MAX && refused.all < REFUSED_OF_ALL_MAX;
        are_few || now.saturating_sub(refused.since) > REFUSED_TIME
    }

    fn note_refused(&self, uid: u32, now: Nanos) {
        let mut refused = self.refused.lock();
        if now.saturating_sub(refused.since) > REFUSED_TIME {
            *refused = Refused { since: now, ..Refused::default() };
        }
        refused.all += 1;
        *refused.of.entry(uid).or_default() += 1;
    }

    /// False: there are too many.
    fn add(&self, uid: u32, login: Login) -> bool {
        let mut all = self.all.lock();
        let has_room = all.len() < LOGINS_MAX || all.contains_key(&uid);
        if has_room {
            all.insert(uid, login);
        }
        has_room
    }
}

/// The user of a call, as the context of an operation.
///
/// # Errors
/// [`Error::Access`]: who it is was not proved.
pub(super) fn user(logins: &Logins, (machine, caller): (Machine, &Caller)) -> Result<Ctx> {
    let all = logins.all.lock();
    let CellUser { uid, gid, gids, .. } = &all.get(&caller.uid).ok_or(Error::Access)?.user;
    admit::context((machine, caller), (*uid, *gid), gids)
}

/// The user of an operation: without a login everybody may see the attributes of the root and
/// figures of the file system, as who mounts and unmounts does.
///
/// # Errors
/// As of [`user`].
pub(super) fn user_of(logins: &Logins, (machine, caller): (Machine, &Caller), op: &Op<'_>) -> Result<Ctx> {
    match (user(logins, (machine, caller)), op) {
        (Err(Error::Access), Op::GetAttr { node: NodeId::ROOT } | Op::StatFs { node: NodeId::ROOT }) => {
            admit::context((machine, caller), (NOBODY, NOBODY), &[])
        }
        (user, _) => user,
    }
}

/// Hears that a user logs in or out.
pub(super) fn hear(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    (uid, token): (u32, Option<Token<'_>>),
    answer: Answer,
) {
    let Some(Token(token)) = token else {
        session.logins.all.lock().remove(&uid);
        return give(answer, LoginAnswer::Out);
    };
    if !session.host().grant.by_tokens {
        let why = "the server believes this machine who its users are: nobody needs to log in";
        return give(answer, LoginAnswer::Refused(why.into()));
    }
    if !session.logins.may_try(uid, shared.env.awake()) {
        let why = "too many tokens were refused here: try again in a second";
        return give(answer, LoginAnswer::Later(why.into()));
    }
    let text = std::str::from_utf8(token).ok().filter(|text| text.len() <= TOKEN_BYTES_MAX);
    let Some(token) = text.map(Secret::new) else {
        session.logins.note_refused(uid, shared.env.awake());
        return give(answer, LoginAnswer::Refused("this is no token".into()));
    };
    begin(shared, session, (uid, token), answer);
}

/// Judges a token on a thread of its own: it may have to ask the user database, or an issuer for
/// its keys.
fn begin(shared: &Arc<Shared>, session: &Arc<Session>, (uid, token): (u32, Secret), answer: Answer) {
    let number = session.logins.begin(uid, &token, answer);
    let (of, to) = (shared.clone(), session.clone());
    let is_one_more = shared.logging_in.fetch_add(1, Ordering::AcqRel) < JUDGED_AT_ONCE_MAX;
    let judge = move || {
        let judged = catch_unwind(AssertUnwindSafe(|| log_in(&of, &to, uid, token)));
        let said = judged.unwrap_or_else(|panic| {
            tracing::error!("a token could not be judged: panic: {}", panic_text(&*panic));
            LoginAnswer::Later("the server could not judge the token: its log says why".into())
        });
        of.logging_in.fetch_sub(1, Ordering::AcqRel);
        end(&of, &to, (uid, number), said);
    };
    if !is_one_more || shared.env.try_spawn("serve-login", judge).is_err() {
        shared.logging_in.fetch_sub(1, Ordering::AcqRel);
        let why = "too many users log in now: try again in a moment";
        end(shared, session, (uid, number), LoginAnswer::Later(why.into()));
    }
}

/// A token was judged: whoever asked is answered, and what the user has asked for meanwhile runs.
fn end(shared: &Shared, session: &Session, (uid, number): (u32, u64), said: LoginAnswer) {
    let (answer, parked) = session.logins.end(uid, number);
    answer.into_iter().for_each(|answer| give(answer, said.clone()));
    parked.into_iter().for_each(|parked| parked(shared.has_ended()));
}

fn give(answer: Answer, said: LoginAnswer) {
    let mut bytes = Vec::new();
    said.put(&mut bytes);
    answer.give(None, Ok(Reply::Data(bytes)));
}

fn log_in(shared: &Shared, session: &Session, uid: u32, token: Secret) -> LoginAnswer {
    let host = session.host();
    let judged = match shared.judge(&host, token.reveal(), Wait::Allowed) {
        LoginAnswer::In(user) => {
            let login =
                Login { user: user.clone(), token: token.clone(), judged_at: Some(shared.env.awake()) };
            if !session.logins.add(uid, login) {
                let why = format!("{LOGINS_MAX} users of this machine have logged in: no more may");
                return LoginAnswer::Refused(why);
            }
            // accounts may have changed meanwhile
            match shared.judge_again(session, uid, &token) {
                LoginAnswer::Later(_) => LoginAnswer::In(user),
                judged => judged,
            }
        }
        other => other,
    };
    if let LoginAnswer::Refused(why) = &judged {
        session.logins.note_refused(uid, shared.env.awake());
        tracing::info!("a user of the host {} was not let in: {why:?}", host.name);
    }
    judged
}

impl Shared {
    /// Accounts were changed: who may not be in any more is out when this returns. Does not wait;
    /// who would have to be waited for is judged soon.
    pub(super) fn judge_logins(&self) {
        for session in self.all_sessions() {
            let all = session.logins.those(|_| true);
            for (uid, login) in all {
                if let LoginAnswer::Later(_) = self.judge_again(&session, uid, &login.token) {
                    session.logins.all.lock().entry(uid).and_modify(|login| login.judged_at = None);
                }
            }
        }
    }

    /// All tokens are judged again soon, once for all changes until then.
    pub(super) fn judge_logins_soon(&self) {
        for session in self.all_sessions() {
            session.logins.all.lock().values_mut().for_each(|login| login.judged_at = None);
        }
    }

    /// Judges the tokens again for which it is time; false: the server has ended. May wait.
    pub(super) fn judge_old_logins(&self) -> bool {
        let is_old = |at: Nanos| self.env.awake().saturating_sub(at) > JUDGED_FOR;
        let is_due = |login: &Login| login.judged_at.is_none_or(is_old);
        for session in self.all_sessions() {
            for (uid, Login { token, .. }) in session.logins.those(is_due) {
                // before: what changes from now on is judged again
                let now = self.env.awake();
                session.logins.all.lock().entry(uid).and_modify(|login| login.judged_at = Some(now));
                // the user database, or an issuer, says what it knows now; then as after any change
                // of accounts
                let _ = self.judge(&session.host(), token.reveal(), Wait::Allowed);
                self.judge_again(&session, uid, &token);
            }
        }
        !self.has_ended()
    }

    fn judge(&self, host: &Host, token: &str, wait: Wait) -> LoginAnswer {
        match self.hosts.login(&host.name, token, wait) {
            LoginAnswer::In(user) if !host.grant.speaks_for(user.uid) => {
                let why = format!("the host {} may not be used by {} (--uids)", host.name, user.name);
                LoginAnswer::Refused(why)
            }
            judged => judged,
        }
    }

    /// Judges the token of a login by what is known now, and heeds it. Under the lock: of two that
    /// do so the later one has the later accounts.
    fn judge_again(&self, session: &Session, uid: u32, token: &Secret) -> LoginAnswer {
        let host = session.host();
        let mut all = session.logins.all.lock();
        let judged = match host.grant.by_tokens {
            true => self.judge(&host, token.reveal(), Wait::Never),
            false => LoginAnswer::Refused("the server believes this machine now".into()),
        };
        // the user may have shown another one meanwhile
        let Some(login) = all.get_mut(&uid).filter(|login| login.token == *token) else {
            return LoginAnswer::Refused("another token was shown meanwhile".into());
        };
        match &judged {
            LoginAnswer::In(user) => login.user = user.clone(),
            // what cannot be said now was said before
            LoginAnswer::Later(_) => (),
            LoginAnswer::Refused(_) | LoginAnswer::Out => {
                tracing::info!("{} is logged out of the host {}", login.user.name, host.name);
                all.remove(&uid);
            }
        }
        judged
    }

    /// The server ends: who is just logging in shows the token to the next one.
    pub(super) fn end_logins(&self) {
        for session in self.all_sessions() {
            let judging = std::mem::take(&mut *session.logins.judging.lock());
            for judged in judging.into_values() {
                let later = || LoginAnswer::Later("the server ends".into());
                judged.answers.into_iter().for_each(|(_, answer)| give(answer, later()));
                judged.parked.into_iter().for_each(|parked| parked(true));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(name: &str, uid: u32, until_secs: Option<i64>) -> Login {
        let user = CellUser { name: name.into(), uid, gid: uid, gids: vec![7], until_secs };
        Login { user, token: Secret::new("token"), judged_at: None }
    }

    fn caller(uid: u32) -> Caller {
        Caller { uid, gid: 5, gids: vec![0], class: leeward_env::Class::Interactive, refs: true }
    }

    fn said(caller: &Caller) -> (Machine, &Caller) {
        (Machine::named("host"), caller)
    }

    #[test]
    fn who_has_logged_in_is_the_user_of_the_token() {
        let logins = Logins::default();
        assert!(logins.add(1000, login("alice", 70_001, Some(100))));
        logins.end_old(99_999_999_999);
        let ctx = user(&logins, said(&caller(1000))).expect("alice");
        assert_eq!(
            (ctx.uid, ctx.gid, &*ctx.gids.all()),
            (70_001, 70_001, &[7][..]),
            "not what the host says"
        );
        assert_eq!(
            user(&logins, said(&caller(0))).err(),
            Some(Error::Access),
            "root of the host is nobody special"
        );
        assert_eq!(logins.names(), ["alice"]);
        logins.end_old(100_000_000_000);
        assert_eq!(user(&logins, said(&caller(1000))).err(), Some(Error::Access), "its time is over");
    }

    #[test]
    fn without_a_login_only_the_root_is_to_be_seen() {
        let logins = Logins::default();
        let of = |op: Op<'_>| user_of(&logins, said(&caller(0)), &op).map(|ctx| ctx.uid);
        assert_eq!(of(Op::GetAttr { node: NodeId::ROOT }), Ok(NOBODY));
        assert_eq!(of(Op::StatFs { node: NodeId::ROOT }), Ok(NOBODY));
        assert_eq!(of(Op::GetAttr { node: NodeId(70) }), Err(Error::Access));
        assert_eq!(of(Op::Lookup { dir: NodeId::ROOT, name: b"x" }), Err(Error::Access));
        assert_eq!(
            of(Op::List { dir: NodeId::ROOT, after: b"", limit: 1, attrs: false }),
            Err(Error::Access)
        );
    }

    #[test]
    fn there_are_bounds() {
        let logins = Logins::default();
        for uid in 0..LOGINS_MAX as u32 {
            assert!(logins.add(uid, login("a", 1, None)));
        }
        assert!(!logins.add(5000, login("a", 1, None)) && logins.add(3, login("b", 2, None)));
        for n in 0..u64::from(REFUSED_MAX) {
            assert!(logins.may_try(7, n));
            logins.note_refused(7, n);
        }
        assert!(!logins.may_try(7, 10) && logins.may_try(8, 10), "one does not lock others out");
        (0..REFUSED_OF_ALL_MAX).for_each(|uid| logins.note_refused(100 + uid, 10));
        assert!(!logins.may_try(8, 10) && logins.may_try(7, REFUSED_TIME + 10));
    }
}
