//! A cell on another machine, for the doors here: what they have to know of users and buckets, as
//! the server says, and whether that is still so.
//!
//! The thread `gateway-watch` asks the server four times a second. What was told counts for 5 s
//! from when it was asked for; then no request is answered.

use super::access::{Access, DoorSettings};
use crate::control::{Call, last_answer};
use crate::doors::DoorCell;
use crate::fail::Fail;
use leeward_auth::{Authority, UserDatabase};
use leeward_door::listen::{Guard, Readiness};
use leeward_env::{Env, Nanos};
use leeward_fs::Error;
use leeward_fs::accounts::Accounts;
use leeward_remote::{Client, CommandLost, User};
use leeward_volume::admin::{AnyRequest, Failure, TransferNote};
use leeward_volume::format::buckets::Buckets;
use parking_lot::Mutex;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How often the server is asked what has changed.
const ASK_STEP: Duration = Duration::from_millis(250);
/// How long what it has said counts.
const COUNTS: Nanos = 5_000_000_000;

/// See the module's head.
pub struct CellThere {
    env: Env,
    client: Client,
    server: String,
    known: Mutex<Known>,
    /// Held from a question until its answer is known: an older answer never follows a newer one.
    asking: Mutex<()>,
    /// Is told of changes.
    authority: OnceLock<Arc<Authority>>,
    /// Until when what is known counts.
    until: AtomicU64,
    /// The server does not let this machine be a gateway.
    closed: AtomicBool,
}

struct Known {
    version: u64,
    accounts: Arc<Accounts>,
    buckets: Arc<Buckets>,
    settings: DoorSettings,
}

/// Root, in whose name a gateway asks for what users do not.
const ROOT: User = User { uid: 0, gid: 0, gids: Vec::new() };

impl CellThere {
    /// Asks the server for the first time.
    ///
    /// # Errors
    /// It does not let this machine be a gateway, or does not answer.
    pub fn new(env: &Env, client: &Client, server: &str) -> Result<Arc<CellThere>, Fail> {
        let asked = env.now();
        let told = client.access(0).map_err(|e| match e {
            Error::NotPermitted => Fail::new(format!(
                "{server} does not let this machine be a gateway: run `lee host set {} --gateway` there",
                client.host()
            )),
            e => Fail::new(format!("{server}: {e}")),
        })?;
        let (version, bytes) = told.ok_or_else(|| Fail::new(format!("{server} tells nothing of users")))?;
        let known = Mutex::new(Known::of(version, &bytes)?);
        let (env, client, server) = (env.clone(), client.clone(), server.to_owned());
        let (until, closed) = (AtomicU64::new(asked + COUNTS), AtomicBool::new(false));
        let (asking, authority) = (Mutex::new(()), OnceLock::new());
        Ok(Arc::new(CellThere { env, client, server, known, asking, authority, until, closed }))
    }

    /// The settings of doors, and the accounts.
    pub fn known(&self) -> (DoorSettings, Arc<Accounts>) {
        let known = self.known.lock();
        (known.settings.clone(), known.accounts.clone())
    }

    /// Goes on asking from now on, on a thread of its own, and tells `authority` of changes.
    pub fn watch(self: &Arc<Self>, authority: &Arc<Authority>) {
        let _ = self.authority.set(authority.clone());
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        env.clone().spawn("gateway-watch", move || {
            while let Some(cell) = Weak::upgrade(&weak) {
                cell.ask_again();
                drop(cell);
                env.sleep(ASK_STEP);
            }
        });
    }

    /// Asks what has changed.
    fn ask_again(&self) {
        let _alone = self.asking.lock();
        let asked = self.env.now();
        let version = self.known.lock().version;
        let told = self.client.access(version).map_err(|e| (e == Error::NotPermitted, e.to_string()));
        let learnt = told.and_then(|told| match told {
            None => Ok(()),
            Some((version, bytes)) => self.learn(version, &bytes).map_err(|e| (false, e.to_string())),
        });
        match learnt {
            Ok(()) => {
                self.until.store(asked + COUNTS, Ordering::Release);
                if self.closed.swap(false, Ordering::AcqRel) {
                    tracing::info!("{}: this machine is a gateway again", self.server);
                }
            }
            Err((is_forbidden, why)) => {
                let is_closed = is_forbidden || self.client.is_refused();
                if is_closed && !self.closed.swap(true, Ordering::AcqRel) {
                    tracing::warn!("{}: this machine may not be a gateway any more: {why}", self.server);
                }
            }
        }
    }

    fn learn(&self, version: u64, bytes: &[u8]) -> Result<(), Fail> {
        let new = Known::of(version, bytes)?;
        if let Some(authority) = self.authority.get() {
            authority.set_accounts(new.accounts.clone());
        }
        let mut known = self.known.lock();
        if new.settings != known.settings {
            tracing::warn!(
                "{}: the settings of doors were changed: start this gateway again to use them",
                self.server
            );
        }
        *known = new;
        Ok(())
    }

    /// Has the server do something that only a gateway may ask for.
    fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Failure> {
        let failed = |message: String| Failure { message, errno: libc::EIO };
        let call = serde_json::to_vec(call).map_err(|e| failed(e.to_string()))?;
        let mut answer = Vec::new();
        let told = self.client.command(&ROOT, &call, &mut |piece| {
            answer.extend_from_slice(piece);
            true
        });
        told.map_err(|lost| match lost {
            CommandLost::Busy => Failure { message: "the server is busy".into(), errno: libc::EBUSY },
            CommandLost::NotPermitted | CommandLost::NotLoggedIn => {
                failed("this machine may not be a gateway any more".into())
            }
            CommandLost::Restarted => failed("the server was started anew meanwhile: try again".into()),
            CommandLost::Silent(why) => failed(why),
        })?;
        last_answer(&answer).unwrap_or_else(|| Err(failed("the server's answer is not understood".into())))
    }
}

impl Known {
    fn of(version: u64, bytes: &[u8]) -> Result<Known, Fail> {
        let access = Access::parse(bytes)?;
        let (accounts, settings) = (Arc::new(access.accounts()?), access.settings.clone());
        Ok(Known { version, accounts, buckets: Arc::new(access.buckets()), settings })
    }
}

impl DoorCell for CellThere {
    fn buckets(&self) -> Arc<Buckets> {
        self.known.lock().buckets.clone()
    }

    fn change_buckets(&self, request: &AnyRequest) -> Result<(), Failure> {
        self.ask::<IgnoredAny>(&Call::Admin { request: request.clone() })?;
        // who made it uses it next, here
        self.ask_again();
        Ok(())
    }

    fn note_transfers(&self, note: &TransferNote) -> Result<(), Failure> {
        self.ask::<IgnoredAny>(&Call::Admin { request: note.clone().into() }).map(drop)
    }

    fn report(&self, paths: Option<Vec<String>>) -> Result<String, String> {
        self.ask(&Call::DoorReport { paths }).map_err(|failure| failure.message)
    }
}

/// Users are those that the server's user database has: on this machine a name may have another
/// number.
impl UserDatabase for CellThere {
    fn find(&self, name: &str) -> Result<Option<(u32, Vec<u32>)>, String> {
        self.ask(&Call::FindUser { name: name.into() }).map_err(|failure| failure.message)
    }

    fn groups(&self, name: &str) -> Result<Vec<u32>, String> {
        self.ask(&Call::FindGroups { name: name.into() }).map_err(|failure| failure.message)
    }

    fn has_groups(&self) -> bool {
        true
    }
}

impl Guard for CellThere {
    fn readiness(&self) -> Readiness {
        if self.closed.load(Ordering::Acquire) {
            return Readiness::Closed;
        }
        let counts = self.env.now() < self.until.load(Ordering::Acquire);
        if counts { Readiness::Ready } else { Readiness::NotNow }
    }
}
