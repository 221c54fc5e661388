//! A page that somebody asks for, while it is made: who asks, what was sent, and the way to the
//! cell.

use super::form::{Form, link};
use super::history::{History, Look};
use super::html::Page;
use super::request::Known;
use super::sealed::OnItsWay;
use super::sessions::{Session, Sessions, Told, Who};
use super::{Problem, Reply, Seat, Shared};
use crate::control::{Call, Flows, MachineSession, NewToken, Running, last_answer};
use crate::system;
use hyper::StatusCode;
use leeward_auth::{Authority, Gone, Refusal, SignOn};
use leeward_door::{FairPermit, Files, Path, Principal, Tree};
use leeward_env::{Door, Env};
use leeward_fs::Error;
use leeward_volume::admin::{Failure, Request, TokenMake};
use maud::Markup;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long a login waits for others that wait for the provider.
const SIGN_ON_WAIT: Duration = Duration::from_secs(5);
/// How long a copy waits for others.
const COPYING_WAIT: Duration = Duration::from_millis(100);

/// See the module's head.
pub struct Visit<'a> {
    shared: &'a Shared,
    known: &'a Known,
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let status = match failure.errno {
            libc::ENOENT => StatusCode::NOT_FOUND,
            libc::EPERM | libc::EACCES => StatusCode::FORBIDDEN,
            libc::EAGAIN | libc::EBUSY => StatusCode::SERVICE_UNAVAILABLE,
            libc::EIO => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Problem::Failed(status, failure.message)
    }
}

impl<'a> Visit<'a> {
    /// A request that is known.
    pub fn new(shared: &'a Shared, known: &'a Known) -> Visit<'a> {
        Visit { shared, known }
    }

    /// What was sent.
    pub fn form(&self) -> &Form {
        &self.known.form
    }

    /// The session.
    ///
    /// # Errors
    /// There is none.
    pub fn session(&self) -> Result<&Session, Problem> {
        let session = self.known.session.as_ref().map(|(session, _)| session);
        session.ok_or_else(|| Problem::LogIn("/console".into(), None))
    }

    /// As whom the cell is asked.
    ///
    /// # Errors
    /// Nobody is logged in.
    pub fn seat(&self) -> Result<&Seat, Problem> {
        let seat = self.known.session.as_ref().map(|(_, seat)| seat);
        seat.ok_or_else(|| Problem::LogIn("/console".into(), None))
    }

    /// Whether an operator asks.
    pub fn is_operator(&self) -> bool {
        matches!(self.seat(), Ok(Seat::Operator))
    }

    /// The name of the user; `None`: an operator.
    pub fn user(&self) -> Option<&str> {
        match &self.known.session.as_ref()?.0.who {
            Who::User(name) => Some(name),
            Who::Operator(_) => None,
        }
    }

    /// Where the browser is.
    pub fn address(&self) -> &str {
        &self.known.address
    }

    /// All sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.shared.parts.sessions
    }

    /// Knows users and keys.
    pub fn authority(&self) -> &Authority {
        &self.shared.parts.authority
    }

    /// The provider where people log in besides, if there is one.
    pub fn sign_on(&self) -> Option<&SignOn> {
        self.shared.parts.sign_on.as_ref()
    }

    /// Where browsers come back to from the provider.
    pub fn sign_on_back(&self) -> String {
        format!("{}/console/sign-on/back", self.shared.parts.url.trim_end_matches('/'))
    }

    /// What a browser keeps while it is at the provider.
    pub fn sealed(&self, gone: Gone, next: &str) -> String {
        self.shared.sealer.seal(gone, next)
    }

    /// What this browser has kept, if it comes back with the same state.
    pub fn unsealed(&self, state: &str) -> Option<OnItsWay> {
        self.shared.sealer.open(&self.known.sign_on, state)
    }

    /// Waits for the provider, fairly between browsers.
    ///
    /// # Errors
    /// Others wait for it already, and that takes long.
    pub fn at_provider<T>(&self, ask: impl FnOnce(&Env) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let others = || Refusal::Unavailable("others are logging in at the moment: try again".into());
        let place = self.shared.sign_ons.take_within(self.address_number(), 1, SIGN_ON_WAIT);
        let _place = self.wait(place).ok_or_else(others)?;
        ask(&self.shared.parts.env)
    }

    /// A number for the browser's address.
    fn address_number(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.known.address.hash(&mut hasher);
        hasher.finish() as u32
    }

    /// A place among those that copy trees: one of a user, few in all.
    ///
    /// # Errors
    /// The user, or others, copy already.
    pub fn copying_place(&self) -> Result<FairPermit, Failure> {
        let busy = || Failure {
            message: "others, or you, are just restoring by copying: try again when that is done".into(),
            errno: libc::EAGAIN,
        };
        let Ok(Seat::User { ctx, .. }) = self.seat() else { return Err(busy()) };
        self.wait(self.shared.copying.take_within(ctx.uid, 1, COPYING_WAIT)).ok_or_else(busy)
    }

    /// What was counted before.
    pub fn history(&self) -> &History {
        &self.shared.history
    }

    /// What is counted now, and what was before; `None`: the cell is ending.
    pub fn looks(&self) -> Option<(Arc<Look>, Arc<Look>)> {
        self.history().now_and_before(&*self.shared.parts.cell)
    }

    /// Seconds since 1970.
    pub fn now_secs(&self) -> i64 {
        (self.shared.parts.env.wall() / 1_000_000_000) as i64
    }

    fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Failure> {
        let seat = self.seat().map_err(|_| Failure { message: "log in first".into(), errno: libc::EPERM })?;
        let lines = self.shared.parts.cell.run(seat, call);
        let none = || Failure { message: "the cell is just starting or ending".into(), errno: libc::EAGAIN };
        last_answer(&lines).unwrap_or_else(|| Err(none()))
    }

    /// Asks the cell, as this user.
    ///
    /// # Errors
    /// What the cell says.
    pub fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, Failure> {
        self.call(&Call::Admin { request: request.clone().into() })
    }

    /// Makes a token, which nothing keeps.
    ///
    /// # Errors
    /// What the cell says.
    pub fn make_token(&self, wanted: TokenMake) -> Result<NewToken, Failure> {
        self.call(&Call::MakeToken { wanted })
    }

    /// How the process does.
    ///
    /// # Errors
    /// What the process says.
    pub fn running(&self) -> Result<Running, Failure> {
        self.call(&Call::Status)
    }

    /// What users did and waited for, as far as this one may see.
    ///
    /// # Errors
    /// What the process says.
    pub fn flows(&self) -> Result<Flows, Failure> {
        self.call(&Call::Flows)
    }

    /// Which machines are connected.
    ///
    /// # Errors
    /// What the process says.
    pub fn machines(&self) -> Result<Vec<MachineSession>, Failure> {
        self.call(&Call::Sessions)
    }

    /// Ends the session of a machine.
    ///
    /// # Errors
    /// What the process says.
    pub fn end_machine(&self, number: u64) -> Result<bool, Failure> {
        self.call(&Call::EndSession { number })
    }

    /// Answers about mirrors and backups.
    ///
    /// # Errors
    /// What the process says.
    pub fn list<T: DeserializeOwned>(&self, call: &Call) -> Result<Vec<T>, Failure> {
        self.call(call)
    }

    /// The files, as this user.
    ///
    /// # Errors
    /// Nobody is logged in.
    pub fn tree(&self) -> Result<Tree, Problem> {
        let who = match self.seat()? {
            Seat::Operator => Principal::new("operator", system::uid(), system::gid(), &[]),
            Seat::User { ctx, .. } => {
                let name = self.user().unwrap_or_default();
                Principal { name: name.into(), uid: ctx.uid, gid: ctx.gid, groups: ctx.gids }
            }
        };
        Ok(self.files().tree(&who, Door::Http, &Path::default()))
    }

    fn files(&self) -> &Files {
        &self.shared.parts.files
    }

    /// Waits for work on files.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        Handle::current().block_on(work)
    }

    /// Says what was done, or why not, on the page to go on with.
    ///
    /// # Errors
    /// Nobody is logged in.
    pub fn after(&self, done: Result<String, Failure>, page: &str, fields: &[(&str, &str)]) -> Made {
        let told = match done {
            Ok(text) => Told::Done(text),
            Err(failure) => Told::Failed(failure.message),
        };
        self.after_telling(told, page, fields)
    }

    /// Says this on the page to go on with.
    ///
    /// # Errors
    /// Nobody is logged in.
    pub fn after_telling(&self, told: Told, page: &str, fields: &[(&str, &str)]) -> Made {
        let told = self.sessions().tell(self.session()?.number, told).to_string();
        let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("told", told.as_str())]).collect();
        Ok(Reply::See(link(page, &fields)))
    }
}

/// What making a page comes to.
pub type Made = Result<Reply, Problem>;

/// A page that stays as it is.
pub fn page(title: impl Into<String>, at: &'static str, body: Markup) -> Made {
    Ok(Reply::Page(Page::new(title, at, body)))
}

/// What went wrong with a file.
pub fn about(path: &[u8], e: &Error) -> Problem {
    let path = String::from_utf8_lossy(path);
    Failure { message: format!("{path}: {e}"), errno: e.errno() }.into()
}
