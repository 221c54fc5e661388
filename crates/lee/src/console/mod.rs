//! The console: pages for people with a browser, below `/console` of the HTTP door.
//!
//! A page asks the cell what a command would ask, as the user who is logged in ([`visit`]): who may
//! see and do what is decided where it is decided for commands, and nowhere here. [`pages`] has the
//! table of pages, `request` leads to them, `answers` back. They are whole without scripts; the one
//! script brings a page that is watched up to date.
//!
//! Invariants: reading a page changes nothing. What changes something is a POST that carries the
//! token of the session and comes from a page of this server. All text is escaped ([`html`]), and
//! the policy of all pages lets a browser run nothing but our script.

mod answers;
mod copying;
mod form;
mod help;
pub mod here;
mod history;
mod html;
mod pages;
mod request;
mod sealed;
pub mod sessions;
#[cfg(test)]
mod tests;
mod visit;

use crate::control::Call;
use answers::{Cookie, Reply};
use history::History;
pub use history::{Look, Timed};
use hyper::{Request, Response, StatusCode};
use leeward_auth::{Authority, SignOn};
use leeward_door::listen::{Answer, Body, Client, RequestLabels, Site, Turns, Unfinished};
use leeward_door::{FairSemaphore, Files};
use leeward_env::{Ctx, Door, Env};
use sealed::Sealer;
use sessions::Sessions;
use std::sync::Arc;

/// Pages that are made at a time for users, and for operators: each has a thread.
const OF_USERS_MAX: usize = 8;
const OF_OPERATORS_MAX: usize = 2;
/// Threads for pages.
pub const PAGES_MAX: usize = OF_USERS_MAX + OF_OPERATORS_MAX;
/// Logins at a provider that wait for it at a time, and trees that are copied: of the pages' places
/// they take no more.
const SIGN_ONS_MAX: usize = 2;
const COPYING_MAX: usize = 2;

/// As whom a page asks the cell.
#[derive(Clone, Debug)]
pub enum Seat {
    /// An operator.
    Operator,
    /// A user.
    User {
        /// With the groups of now.
        ctx: Ctx,
        /// The machine where the session began, if that is another one.
        host: Option<Arc<str>>,
    },
}

/// The cell, for the console. Calls may wait.
pub trait ConsoleCell: Send + Sync + 'static {
    /// Runs a call; the lines of its answer.
    fn run(&self, seat: &Seat, call: &Call) -> Vec<u8>;

    /// What was counted so far; `None`: the cell is ending.
    fn look(&self) -> Option<Look>;

    /// Whether users of another machine may have sessions that began there.
    fn lets_in(&self, host: &str) -> bool;
}

/// The console, in front of the HTTP door.
pub struct Console {
    site: Arc<dyn Site>,
    shared: Arc<Shared>,
}

/// What the console needs.
pub struct Parts {
    /// The clock.
    pub env: Env,
    /// Who is logged in.
    pub sessions: Arc<Sessions>,
    /// The cell.
    pub cell: Arc<dyn ConsoleCell>,
    /// Its files.
    pub files: Files,
    /// Knows users and keys.
    pub authority: Arc<Authority>,
    /// Where people log in besides.
    pub sign_on: Option<SignOn>,
    /// The URL of the HTTP door as browsers reach it, where that is not by its addresses.
    pub url: String,
    /// Name of the cell.
    pub name: String,
}

struct Shared {
    parts: Parts,
    history: Arc<History>,
    turns: Turns,
    of_users: FairSemaphore,
    of_operators: FairSemaphore,
    sign_ons: FairSemaphore,
    copying: FairSemaphore,
    sealer: Sealer,
}

/// Why there is no page.
#[derive(Debug)]
enum Problem {
    /// Log in first; then go on there. Why, if somebody was logged in.
    LogIn(String, Option<String>),
    /// In words, with the status.
    Failed(StatusCode, String),
}

impl Problem {
    fn of(status: StatusCode, why: impl Into<String>) -> Problem {
        Problem::Failed(status, why.into())
    }

    fn busy() -> Problem {
        Problem::of(StatusCode::SERVICE_UNAVAILABLE, "too many ask for pages: try again in a moment")
    }

    /// In words.
    fn text(&self) -> &str {
        match self {
            Problem::LogIn(..) => "log in first",
            Problem::Failed(_, why) => why,
        }
    }
}

impl Console {
    /// The console, in front of this site.
    pub fn new(site: Arc<dyn Site>, parts: Parts) -> Console {
        let shared = Shared {
            history: History::begin(&parts.env, &parts.cell),
            turns: Turns::new(&parts.env),
            of_users: FairSemaphore::new(OF_USERS_MAX),
            of_operators: FairSemaphore::new(OF_OPERATORS_MAX),
            sign_ons: FairSemaphore::new(SIGN_ONS_MAX),
            copying: FairSemaphore::new(COPYING_MAX),
            sealer: Sealer::new(&parts.env),
            parts,
        };
        Console { site, shared: Arc::new(shared) }
    }
}

/// The path below `/console`, if it is of the console.
fn below(path: &str) -> Option<&str> {
    path.strip_prefix("/console").filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Site for Console {
    fn door(&self) -> Door {
        Door::Http
    }

    fn answer(self: Arc<Self>, request: Request<Body>, client: Client) -> Answer {
        if below(request.uri().path()).is_none() {
            return self.site.clone().answer(request, client);
        }
        let shared = self.shared.clone();
        Box::pin(async move {
            let mut told = RequestLabels { operation: Some("Console"), ..RequestLabels::default() };
            let mut answer: Response<Body> = shared.answer(request, &client, &mut told).await;
            answer.extensions_mut().insert(told);
            answer
        })
    }

    fn unfinished(&self) -> Unfinished {
        self.site.unfinished()
    }
}
