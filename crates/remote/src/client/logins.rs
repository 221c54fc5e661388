//! Users of this machine who prove to the server who they are: where it does not believe the machine.
//!
//! A login is for one session. The tokens are kept in memory, and shown again to each new session before anything
//! else is asked of it.
//!
//! The kernel of such a machine cannot check rights: it does not know the users' numbers in the cell. What it
//! would check when a file is opened is checked here, with the numbers that the server has answered; all else
//! the server checks with each operation.

use super::slots::{Answer, Outstanding};
use super::{Client, Shared};
use crate::message::{Call, CellUser, LoginAnswer, Token};
use leeward_env::{Ctx, Groups};
use leeward_fs::accounts::Secret;
use leeward_fs::codec::{Input, Wire};
use leeward_fs::rights;
use leeward_fs::{Attr, Error, NodeId, Op, Reply, Result};
use leeward_vfs::Backend;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

/// Who has logged in, by user id of this machine.
#[derive(Default)]
pub(super) struct Logins {
    all: Mutex<BTreeMap<u32, Login>>,
    /// Whether the server wants users to log in.
    wanted: AtomicBool,
    /// Whether the front end leaves it to this to check rights.
    relied_on: AtomicBool,
}

#[derive(Clone)]
struct Login {
    user: CellUser,
    token: Secret,
}

impl Logins {
    /// What the server says of this host. False: the front end relies on checks that are not made.
    pub(super) fn are_wanted(&self, wanted: bool) -> bool {
        let fits = wanted || !self.relied_on.load(Ordering::Acquire);
        self.wanted.store(wanted, Ordering::Release);
        fits
    }

    /// From now on the front end relies on them, if the server wants users to log in.
    pub(super) fn rely(&self) -> bool {
        let wanted = self.wanted.load(Ordering::Acquire);
        self.relied_on.fetch_or(wanted, Ordering::AcqRel);
        wanted
    }
}

impl Client {
    /// A user of this machine shows a token: the user of the cell that this is from now on.
    ///
    /// # Errors
    /// For a person: why not.
    pub fn log_in(&self, uid: u32, token: &str) -> std::result::Result<CellUser, String> {
        match self.ask_login(uid, Some(token))? {
            LoginAnswer::In(user) => {
                let login = Login { user: user.clone(), token: Secret::new(token) };
                self.0.logins.all.lock().insert(uid, login);
                Ok(user)
            }
            LoginAnswer::Refused(why) => Err(why),
            LoginAnswer::Out => Err("the server answers nonsense".into()),
        }
    }

    /// Ends the login of a user of this machine; who it was.
    ///
    /// # Errors
    /// The server did not answer: it may take the user for logged in until the session ends.
    pub fn log_out(&self, uid: u32) -> std::result::Result<Option<CellUser>, String> {
        let before = self.0.logins.all.lock().remove(&uid);
        self.ask_login(uid, None)?;
        Ok(before.map(|login| login.user))
    }

    /// Users who have logged in, by their user ids on this machine.
    pub fn logged_in(&self) -> BTreeMap<u32, CellUser> {
        self.0.logins.all.lock().iter().map(|(uid, login)| (*uid, login.user.clone())).collect()
    }

    /// Whether users of this machine are to log in.
    pub fn wants_logins(&self) -> bool {
        self.0.logins.wanted.load(Ordering::Acquire)
    }

    fn ask_login(&self, uid: u32, token: Option<&str>) -> std::result::Result<LoginAnswer, String> {
        let (send, receive) = sync_channel(1);
        let token = token.map(|token| Token(token.as_bytes()));
        self.ask(Call::Login { uid, token }, None, Box::new(move |result| drop(send.send(result))));
        let result = receive.recv().unwrap_or_else(|_| Err(Error::Io("the request was lost".into())));
        answer_of(result).map_err(|e| format!("no answer from {}: {e}", self.0.server))
    }

    /// Calls that show the tokens to a new session.
    pub(super) fn tell_logins(&self) -> Vec<Outstanding> {
        let all = self.0.logins.all.lock();
        let calls = all.iter().map(|(uid, login)| {
            let (client, of, before) = (self.clone(), *uid, login.clone());
            let answer: Answer = Box::new(move |result| client.0.login_answered(of, &before, result));
            let call = Call::Login { uid: *uid, token: Some(Token(login.token.reveal().as_bytes())) };
            Outstanding::new(call, self.0.env.now(), None, answer)
        });
        calls.collect()
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
        let Some(gids) = Groups::of_stranger(&user.gids) else {
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

impl Shared {
    /// A new session was shown a token.
    fn login_answered(self: &Arc<Self>, uid: u32, before: &Login, result: Result<Reply>) {
        let mut all = self.logins.all.lock();
        // another one may have been shown meanwhile
        let Some(login) = all.get_mut(&uid).filter(|login| login.token == before.token) else { return };
        match answer_of(result) {
            Ok(LoginAnswer::In(user)) => login.user = user,
            Ok(LoginAnswer::Refused(why)) => {
                tracing::warn!("{}: user {uid} of this machine is logged out: {why}", self.server);
                all.remove(&uid);
            }
            // the next session is shown it again
            Ok(LoginAnswer::Out) | Err(_) => (),
        }
    }
}

fn answer_of(result: Result<Reply>) -> Result<LoginAnswer> {
    let bytes = result?.data()?;
    LoginAnswer::take(&mut Input::new(&bytes))
        .map_err(|e| Error::Io(format!("the server answers nonsense: {e}")))
}
