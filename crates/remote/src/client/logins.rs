//! Users of this machine who prove to the server who they are: where it does not believe the
//! machine.
//!
//! A login is for one session. The tokens are kept in memory, and shown again to each new session
//! before anything else is asked of it.
//!
//! The kernel of such a machine cannot check rights: it does not know the users' numbers in the
//! cell. What it would check when a file is opened is checked here, with the numbers that the
//! server has answered; all else the server checks with each operation.

use super::Client;
use super::slots::{Answer, Outstanding};
use crate::message::{Call, CellUser, LoginAnswer, Token};
use leeward_env::{Ctx, Groups, Nanos};
use leeward_fs::accounts::Secret;
use leeward_fs::codec::{Input, Wire};
use leeward_fs::rights;
use leeward_fs::{Attr, Error, NodeId, Op, Reply, Result};
use leeward_vfs::Backend;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;

/// How soon a token is shown again of which nothing could be said, or that was not answered.
const AGAIN_AFTER: Nanos = 2_000_000_000;
/// How often one is shown again that is good: the groups of its user may have changed.
const SHOWN_EACH: Nanos = 5_000_000_000;

/// Who has logged in.
#[derive(Default)]
pub(super) struct Logins {
    /// By user id of this machine.
    all: Mutex<BTreeMap<u32, Login>>,
    trust: Mutex<Trust>,
}

struct Login {
    user: CellUser,
    token: Secret,
    /// When it is to be shown next; `None`: it is being shown.
    next: Option<Nanos>,
}

#[derive(Default)]
struct Trust {
    /// The server wants users to log in.
    wanted: bool,
    /// The front end leaves it to this to check rights.
    relied_on: bool,
}

impl Logins {
    /// What the server says of this host. False: the front end relies on checks that are not made.
    pub(super) fn are_wanted(&self, wanted: bool) -> bool {
        let mut trust = self.trust.lock();
        trust.wanted = wanted;
        wanted || !trust.relied_on
    }

    /// From now on the front end relies on them, if the server wants users to log in.
    pub(super) fn rely(&self) -> bool {
        let mut trust = self.trust.lock();
        trust.relied_on |= trust.wanted;
        trust.wanted
    }

    /// What was answered to a token that was shown again.
    fn heard(&self, uid: u32, token: &Secret, answer: Result<LoginAnswer>, now: Nanos) {
        let mut all = self.all.lock();
        // another one may have been shown meanwhile
        let Some(login) = all.get_mut(&uid).filter(|login| login.token == *token) else { return };
        match answer {
            Ok(LoginAnswer::In(user)) => (login.user, login.next) = (user, Some(now + SHOWN_EACH)),
            Ok(LoginAnswer::Refused(why)) => {
                tracing::warn!("user {uid} of this machine is logged out: {why}");
                all.remove(&uid);
            }
            Ok(LoginAnswer::Later(_) | LoginAnswer::Out) | Err(_) => login.next = Some(now + AGAIN_AFTER),
        }
    }

    /// Those that are to be shown now, with their tokens. Whose time is over is not.
    fn take_due(&self, now: Nanos, wall: Nanos, are_all: bool) -> Vec<(u32, Secret)> {
        let mut all = self.all.lock();
        all.retain(|_, login| !login.user.is_over(wall));
        let due = all.iter_mut().filter(|(_, login)| are_all || login.next.is_some_and(|next| next <= now));
        due.map(|(uid, login)| {
            login.next = None;
            (*uid, login.token.clone())
        })
        .collect()
    }
}

impl Client {
    /// A user of this machine shows a token: the user of the cell that this is from now on.
    ///
    /// # Errors
    /// For a person: why not.
    pub fn log_in(&self, uid: u32, token: &str) -> std::result::Result<CellUser, String> {
        let (client, kept) = (self.clone(), Secret::new(token));
        // where answers are heard, so that of two the later one counts here, too
        let said = self.ask_login(uid, Some(token), move |said| {
            if let LoginAnswer::In(user) = said {
                let next = Some(client.0.env.now() + SHOWN_EACH);
                let login = Login { user: user.clone(), token: kept, next };
                client.0.logins.all.lock().insert(uid, login);
            }
        })?;
        match said {
            LoginAnswer::In(user) => Ok(user),
            LoginAnswer::Refused(why) | LoginAnswer::Later(why) => Err(why),
            LoginAnswer::Out => Err("the server answers nonsense".into()),
        }
    }

    /// Ends the login of a user of this machine; who it was.
    ///
    /// # Errors
    /// The server did not answer: it may take the user for logged in until the session ends.
    pub fn log_out(&self, uid: u32) -> std::result::Result<Option<CellUser>, String> {
        let before = self.0.logins.all.lock().remove(&uid);
        let client = self.clone();
        self.ask_login(uid, None, move |_| _ = client.0.logins.all.lock().remove(&uid))?;
        Ok(before.map(|login| login.user))
    }

    /// Users who have logged in, by their user ids on this machine.
    pub fn logged_in(&self) -> BTreeMap<u32, CellUser> {
        self.0.logins.all.lock().iter().map(|(uid, login)| (*uid, login.user.clone())).collect()
    }

    /// Whether users of this machine are to log in.
    pub fn wants_logins(&self) -> bool {
        self.0.logins.trust.lock().wanted
    }

    fn ask_login(
        &self,
        uid: u32,
        token: Option<&str>,
        heard: impl FnOnce(&LoginAnswer) + Send + 'static,
    ) -> std::result::Result<LoginAnswer, String> {
        let (send, receive) = sync_channel(1);
        let token = token.map(|token| Token(token.as_bytes()));
        let answer: Answer = Box::new(move |result| {
            let said = answer_of(result);
            if let Ok(said) = &said {
                heard(said);
            }
            drop(send.send(said));
        });
        self.ask(Call::Login { uid, token }, None, answer);
        let said = receive.recv().unwrap_or_else(|_| Err(Error::Io("the request was lost".into())));
        said.map_err(|e| format!("no answer from {}: {e}", self.0.server))
    }

    /// Calls that show all tokens to a new session.
    pub(super) fn tell_logins(&self) -> Vec<Outstanding> {
        let due = self.0.logins.take_due(self.0.env.now(), self.0.env.wall(), true);
        let showing = |(uid, token): (u32, Secret)| {
            let call = Call::Login { uid, token: Some(Token(token.reveal().as_bytes())) };
            Outstanding::new(call, self.0.env.now(), None, self.hears_of(uid, &token))
        };
        due.into_iter().map(showing).collect()
    }

    /// Shows tokens again for which it is time. To be called each second while the server answers.
    pub(super) fn show_due_logins(&self) {
        for (uid, token) in self.0.logins.take_due(self.0.env.now(), self.0.env.wall(), false) {
            let call = Call::Login { uid, token: Some(Token(token.reveal().as_bytes())) };
            self.ask(call, None, self.hears_of(uid, &token));
        }
    }

    /// Takes the answer to a token that was shown again.
    fn hears_of(&self, uid: u32, token: &Secret) -> Answer {
        let (client, token) = (self.clone(), token.clone());
        Box::new(move |result| {
            client.0.logins.heard(uid, &token, answer_of(result), client.0.env.now());
        })
    }

    /// Finds out whether a user may open a file or directory for this, bits of [`rights`].
    pub(super) fn permit_login(
        &self,
        ctx: Ctx,
        node: NodeId,
        want: u32,
        answer: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let Some(user) = self.0.logins.all.lock().get(&ctx.uid).map(|login| login.user.clone()) else {
            return answer(Err(Error::Access));
        };
        let Some(gids) = Groups::of_stranger(None, user.uid, &user.gids) else {
            return answer(Err(Error::Io("too many lists of groups".into())));
        };
        let cell = Ctx { gids, ..Ctx::user(user.uid, user.gid) };
        let client = self.clone();
        let asking = Ctx { refs: false, ..ctx };
        self.run(asking, Op::GetAttr { node }, move |result| match result.and_then(Reply::attr) {
            Ok(attr) if rights::asks_acl(&cell, &attr) => {
                client.permit_by_acl((asking, cell), attr, want, answer)
            }
            Ok(attr) => answer(rights::permit(&cell, &attr, None, want)),
            Err(e) => answer(Err(e)),
        });
    }

    fn permit_by_acl(
        &self,
        (asking, cell): (Ctx, Ctx),
        attr: Attr,
        want: u32,
        answer: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let op = Op::GetXattr { node: attr.node, name: rights::ACL };
        self.run(asking, op, move |result| {
            let acl = match result.and_then(Reply::data) {
                Ok(acl) => Some(acl),
                Err(Error::NoData) => None,
                Err(e) => return answer(Err(e)),
            };
            answer(rights::permit(&cell, &attr, acl.as_deref(), want));
        });
    }
}

fn answer_of(result: Result<Reply>) -> Result<LoginAnswer> {
    let bytes = result?.data()?;
    LoginAnswer::take(&mut Input::new(&bytes))
        .map_err(|e| Error::Io(format!("the server answers nonsense: {e}")))
}
