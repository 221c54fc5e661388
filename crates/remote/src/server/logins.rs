//! Users of a host that is not believed who its users are: each proves it by a token, for one session.
//!
//! A **login** binds a user id of the host to a user of the cell. The server keeps the token and judges it again
//! when accounts change, and now and then. While one is judged nothing else of its connection is read: what the
//! client sends behind it finds it done.

use super::Shared;
use super::session::{Answer, Session};
use crate::message::{Caller, CellUser, LoginAnswer, Token};
use leeward_env::{Ctx, Door, Flow, Groups, Nanos, Wait};
use leeward_fs::accounts::Secret;
use leeward_fs::codec::Wire;
use leeward_fs::{Error, NodeId, Op, Reply, Result};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Logins of a session at most, and bytes of a token.
const LOGINS_MAX: usize = 64;
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Logins of a session that may be refused in a time.
const REFUSED_MAX: u32 = 8;
const REFUSED_TIME: Nanos = 1_000_000_000;
/// How often tokens are judged again when no account changes.
const JUDGED_FOR: Nanos = 60_000_000_000;
/// Who has not logged in, and asks for what all may see.
const NOBODY: u32 = 65_534;

/// The logins of a session.
#[derive(Default)]
pub(super) struct Logins {
    /// By the user's number on the host.
    all: Mutex<FxHashMap<u32, Login>>,
    /// Those that are judged now.
    judging: AtomicUsize,
    /// Since when how many were refused.
    refused: Mutex<(Nanos, u32)>,
}

#[derive(Clone)]
struct Login {
    user: CellUser,
    token: Secret,
    judged_at: Nanos,
}

impl Logins {
    /// Whether one is judged now.
    pub(super) fn are_judged(&self) -> bool {
        self.judging.load(Ordering::Acquire) > 0
    }

    /// Names of the users who have logged in.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.all.lock().values().map(|login| login.user.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The user of the cell that a user of the host is.
    fn user(&self, uid: u32) -> Option<CellUser> {
        self.all.lock().get(&uid).map(|login| login.user.clone())
    }

    /// Ends those whose time is over. `wall`: the time, nanoseconds since 1970. To be called twice a second.
    pub(super) fn end_old(&self, wall: Nanos) {
        let is_over = |until: i64| until <= (wall / 1_000_000_000) as i64;
        self.all.lock().retain(|_, login| !login.user.until_secs.is_some_and(is_over));
    }

    fn those(&self, which: impl Fn(&Login) -> bool) -> Vec<(u32, Login)> {
        let all = self.all.lock();
        all.iter().filter(|(_, login)| which(login)).map(|(uid, login)| (*uid, login.clone())).collect()
    }

    fn may_try(&self, now: Nanos) -> bool {
        let (since, count) = *self.refused.lock();
        count < REFUSED_MAX || now.saturating_sub(since) > REFUSED_TIME
    }

    fn note_refused(&self, now: Nanos) {
        let mut refused = self.refused.lock();
        if now.saturating_sub(refused.0) > REFUSED_TIME {
            *refused = (now, 0);
        }
        refused.1 += 1;
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
pub(super) fn user(logins: &Logins, caller: &Caller) -> Result<Ctx> {
    let CellUser { uid, gid, gids, .. } = logins.user(caller.uid).ok_or(Error::Access)?;
    context(caller, (uid, gid, &gids))
}

/// The user of an operation: without a login everybody may see the attributes of the root and figures of the file
/// system, as who mounts and unmounts does.
///
/// # Errors
/// As of [`user`].
pub(super) fn user_of(logins: &Logins, caller: &Caller, op: &Op<'_>) -> Result<Ctx> {
    match (user(logins, caller), op) {
        (Err(Error::Access), Op::GetAttr { node: NodeId::ROOT } | Op::StatFs { node: NodeId::ROOT }) => {
            context(caller, (NOBODY, NOBODY, &[]))
        }
        (user, _) => user,
    }
}

fn context(caller: &Caller, (uid, gid, gids): (u32, u32, &[u32])) -> Result<Ctx> {
    let gids = Groups::of_stranger(gids).ok_or_else(|| Error::Io("too many lists of groups".into()))?;
    Ok(Ctx {
        uid,
        gid,
        gids,
        door: Door::Remote,
        client: 0,
        machine: None,
        call: None,
        again: None,
        foretold: None,
        pid: 0,
        flow: Flow { uid, job: 0 },
        class: caller.class,
        wait: Wait::Never,
        refs: caller.refs,
    })
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
    let refused = |answer, why: &str| give(answer, LoginAnswer::Refused(why.into()));
    if !session.host().grant.by_tokens {
        let why = "the server believes this machine who its users are: nobody needs to log in";
        return refused(answer, why);
    }
    if !session.logins.may_try(shared.env.awake()) {
        return refused(answer, "too many tokens of this machine were refused: try again in a second");
    }
    let text = std::str::from_utf8(token).ok().filter(|text| text.len() <= TOKEN_BYTES_MAX);
    let Some(token) = text.map(Secret::new) else {
        session.logins.note_refused(shared.env.awake());
        return refused(answer, "this is no token");
    };
    session.logins.judging.fetch_add(1, Ordering::AcqRel);
    let judging = Judging(session.clone());
    let of = shared.clone();
    // it may have to ask the user database, or an issuer for its keys
    let spawned = shared.env.try_spawn("serve-login", move || {
        let said = log_in(&of, &judging.0, uid, token);
        drop(judging);
        give(answer, said);
    });
    if spawned.is_err() {
        tracing::warn!("no thread for a login of the host {}", session.host().name);
    }
}

/// A login is judged as long as this lives.
struct Judging(Arc<Session>);

impl Drop for Judging {
    fn drop(&mut self) {
        self.0.logins.judging.fetch_sub(1, Ordering::AcqRel);
    }
}

fn give(answer: Answer, said: LoginAnswer) {
    let mut bytes = Vec::new();
    said.put(&mut bytes);
    answer.give(None, Ok(Reply::Data(bytes)));
}

fn log_in(shared: &Shared, session: &Session, uid: u32, token: Secret) -> LoginAnswer {
    let host = session.host();
    let judged = shared.hosts.login(&host.name, token.reveal()).and_then(|user| {
        match host.grant.speaks_for(user.uid) {
            true => Ok(user),
            false => Err(format!("the host {} may not be used by {} (--uids)", host.name, user.name)),
        }
    });
    let user = match judged {
        Ok(user) => user,
        Err(why) => {
            session.logins.note_refused(shared.env.awake());
            tracing::info!("a user of the host {} was not let in: {why}", host.name);
            return LoginAnswer::Refused(why);
        }
    };
    let login = Login { user: user.clone(), token, judged_at: shared.env.awake() };
    match session.logins.add(uid, login) {
        true => LoginAnswer::In(user),
        false => {
            LoginAnswer::Refused(format!("{LOGINS_MAX} users of this machine have logged in: no more may"))
        }
    }
}

impl Shared {
    /// Judges the tokens again of all who have logged in, or of those for whom it is time. May wait.
    pub(super) fn judge_logins(&self, is_time: bool) {
        let now = self.env.awake();
        let is_due = |login: &Login| !is_time || now.saturating_sub(login.judged_at) > JUDGED_FOR;
        for session in self.all_sessions() {
            let due = session.logins.those(is_due);
            due.into_iter().for_each(|(uid, login)| self.judge_again(&session, uid, login));
        }
    }

    /// The same for those for whom it is time; false: the server has ended.
    pub(super) fn judge_old_logins(&self) -> bool {
        self.judge_logins(true);
        !self.has_ended()
    }

    fn judge_again(&self, session: &Session, uid: u32, before: Login) {
        let host = session.host();
        let judged = self.hosts.login(&host.name, before.token.reveal());
        let user = judged.ok().filter(|user| host.grant.by_tokens && host.grant.speaks_for(user.uid));
        let mut all = session.logins.all.lock();
        // the user may have shown another one meanwhile
        if all.get(&uid).is_none_or(|login| login.token != before.token) {
            return;
        }
        match user {
            Some(user) => {
                _ = all.insert(uid, Login { user, token: before.token, judged_at: self.env.awake() })
            }
            None => {
                all.remove(&uid);
                tracing::info!("{} is logged out of the host {}", before.user.name, host.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(name: &str, uid: u32, until_secs: Option<i64>) -> Login {
        let user = CellUser { name: name.into(), uid, gid: uid, gids: vec![7], until_secs };
        Login { user, token: Secret::new("token"), judged_at: 0 }
    }

    fn caller(uid: u32) -> Caller {
        Caller { uid, gid: 5, gids: vec![0], class: leeward_env::Class::Interactive, refs: true }
    }

    #[test]
    fn who_has_logged_in_is_the_user_of_the_token() {
        let logins = Logins::default();
        assert!(logins.add(1000, login("alice", 70_001, Some(100))));
        logins.end_old(99_999_999_999);
        let ctx = user(&logins, &caller(1000)).expect("alice");
        assert_eq!((ctx.uid, ctx.gid, ctx.gids.all()), (70_001, 70_001, &[7][..]), "not what the host says");
        assert_eq!(
            user(&logins, &caller(0)).err(),
            Some(Error::Access),
            "root of the host is nobody special"
        );
        assert_eq!(logins.names(), ["alice"]);
        logins.end_old(100_000_000_000);
        assert_eq!(user(&logins, &caller(1000)).err(), Some(Error::Access), "its time is over");
    }

    #[test]
    fn without_a_login_only_the_root_is_to_be_seen() {
        let logins = Logins::default();
        let of = |op: Op<'_>| user_of(&logins, &caller(0), &op).map(|ctx| ctx.uid);
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
            assert!(logins.may_try(n));
            logins.note_refused(n);
        }
        assert!(!logins.may_try(10) && logins.may_try(REFUSED_TIME + 10));
    }
}
