//! A process that is one of several servers of a cell in a bucket: it stands by, serves when it is
//! its turn, and leaves the cell to another one when an operator wants that (docs/decisions/0038).
//!
//! A process that may not answer any more ends at once ([`Member::quit`]); its keeper starts
//! another one.

use super::{Bound, Event, Ground, Lifecycle, ServeOptions, ServedCell, Stage, Startup};
use crate::backup::{BackupCall, BackupStatus};
use crate::console::sessions::Who;
use crate::control::server::{Server, Service};
use crate::control::{ConsoleLink, Flows, MachineSession, NewToken, Running};
use crate::fail::Fail;
use crate::lock::Holder;
use crate::mirror::{MirrorCall, MirrorStatus};
use crate::notify;
use crate::servers::{self, Member, News, Own};
use leeward_env::{Ctx, Env, Nanos};
use leeward_remote::Elsewhere;
use leeward_servers::Turn;
use leeward_volume::admin::{AnyReply, AnyRequest, Failure, Progress, TokenMake};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How often a server that stands by looks whether it can answer clients.
const STEP: Duration = Duration::from_millis(250);
/// A start has come to nothing that is neither this server's turn nor another's by then.
const START_TIME: Nanos = 30_000_000_000;

/// A server that nobody took the cell from, though it was to be drained, is not asked again sooner.
const AGAIN_TIME: Nanos = 60_000_000_000;

/// What comes after standing by.
enum Next {
    Serve(Turn),
    End,
}

/// Serves a cell with others until something ends the process.
///
/// # Errors
/// Why it could not, or why the cell was not closed in order.
pub(super) fn serve(
    env: &Env,
    options: &ServeOptions,
    startup: &mut dyn Startup,
    (ground, lifecycle, inbox): (&Ground, &Arc<Lifecycle>, &Receiver<Event>),
) -> Result<(), Fail> {
    let bound = ground.bind(options)?;
    // at these addresses again, in each turn
    let listen = bound.machines.addresses();
    let mut options = options.clone();
    options.doors.listen = listen.iter().map(ToString::to_string).collect();
    let created = ground.make(env, &options)?;
    startup.locked(&ground.dir)?;
    let addresses = servers::reached_at(&listen, options.advertise.as_deref().unwrap_or_default());
    let (tell, speaker, name) = (lifecycle.clone(), lifecycle.clone(), ground.dir.to_string());
    let say = move |what: &str| speaker.say(&format!("{name}: {what}"));
    let member = Member::join(env, &ground.dir, addresses, move |news| tell.post(news.into()), say)?;
    let among = Among { env, options: &options, ground, lifecycle, inbox, member };
    let served = among.run(startup, created, bound);
    among.member.end();
    served
}

struct Among<'a> {
    env: &'a Env,
    options: &'a ServeOptions,
    ground: &'a Ground,
    lifecycle: &'a Arc<Lifecycle>,
    inbox: &'a Receiver<Event>,
    member: Arc<Member>,
}

impl Among<'_> {
    fn run(&self, startup: &mut dyn Startup, created: bool, bound: Bound) -> Result<(), Fail> {
        let mut startup = Some(startup);
        let mut bound = Some(bound);
        loop {
            // answers until the one that comes with a turn takes its place
            let control = match Server::start(self.env, &self.ground.dir, self.service(), None) {
                Err(fail) if startup.is_none() => self.member.quit(&fail.to_string()),
                control => control?,
            };
            let Next::Serve(turn) = self.stand_by(&mut startup, bound.take())? else {
                self.lifecycle.ended(Ok(()));
                return Ok(());
            };
            // it has the cell all the same because nobody else took it
            let was_draining = self.member.is_draining();
            let up = self.begin_turn(turn, startup.is_some() && created);
            drop(control);
            if !self.take_turn((up, was_draining), &mut startup)? {
                return Ok(());
            }
        }
    }

    /// Waits for a turn. Tells clients meanwhile who has the cell, as soon as the key is there by
    /// which they know servers.
    fn stand_by(
        &self,
        startup: &mut Option<&mut dyn Startup>,
        mut bound: Option<Bound>,
    ) -> Result<Next, Fail> {
        let mut elsewhere: Option<Elsewhere> = None;
        let begun = self.env.now();
        loop {
            match self.inbox.recv_timeout(STEP) {
                Ok(Event::Turn(turn)) => return Ok(Next::Serve(turn)),
                Ok(Event::Signal(_) | Event::Down) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Next::End);
                }
                Ok(Event::Drain | Event::Unmounted | Event::Lost(_)) | Err(RecvTimeoutError::Timeout) => (),
            }
            let Some(owner) = self.member.other_owner().filter(|_| elsewhere.is_none()) else {
                if startup.is_some() && self.env.now().saturating_sub(begun) > START_TIME {
                    return Err(self.nobody_has_it());
                }
                continue;
            };
            elsewhere = self.tell_clients(&mut bound).unwrap_or_else(|fail| {
                tracing::warn!("{fail}");
                None
            });
            if let Some(startup) = startup.take() {
                let (listen, served_by) = (self.options.doors.listen.clone(), Some(owner.host));
                startup.started(&super::Started { listen, served_by, ..self.ground.started() })?;
            }
        }
    }

    /// `None`: the key of the cell is not there yet.
    fn tell_clients(&self, bound: &mut Option<Bound>) -> Result<Option<Elsewhere>, Fail> {
        let keys = self.member.keys().unwrap_or_else(|fail| {
            tracing::warn!("{fail}");
            None
        });
        let Some(keys) = keys else { return Ok(None) };
        let bound = bound.take().map_or_else(|| self.ground.bind(self.options), Ok)?;
        let member = self.member.clone();
        bound.machines.stand_by(self.env, &keys, move || member.list(None)).map(Some)
    }

    fn nobody_has_it(&self) -> Fail {
        Fail::new(format!(
            "{}: neither this server nor another one has the cell: see `lee server list`, and the log",
            self.ground.dir
        ))
    }

    /// Opens the cell, and serves it. One that cannot ends, so that another server may try.
    fn begin_turn(&self, turn: Turn, created: bool) -> ServedCell {
        let own = Own { member: self.member.clone(), turn };
        let begun = self.env.now();
        let start = |bound| {
            ServedCell::start(self.env, self.options, (self.ground, bound), Some(&own), self.lifecycle)
        };
        match self.ground.bind(self.options).and_then(start) {
            Ok(mut up) => {
                tracing::info!(
                    "serves turn {} after {} ms",
                    turn.number,
                    (self.env.now() - begun) / 1_000_000
                );
                up.started.created = created;
                up
            }
            Err(fail) => self.member.quit(&fail.to_string()),
        }
    }

    /// Serves the cell. True: it is there for another server now, and this one stands by.
    fn take_turn(
        &self,
        (mut up, was_draining): (ServedCell, bool),
        startup: &mut Option<&mut dyn Startup>,
    ) -> Result<bool, Fail> {
        if let Some(startup) = startup.take()
            && let Err(fail) = startup.started(&up.started)
        {
            up.close()?;
            return Err(fail);
        }
        let not_before = if was_draining { self.env.now() + AGAIN_TIME } else { 0 };
        let mut is_alone_told = false;
        loop {
            match self.inbox.recv() {
                Ok(Event::Signal(_) | Event::Down) | Err(_) => {
                    up.close()?;
                    // so that another server need not find out, and this one does not take it again
                    self.member.term().end();
                    self.member.leave();
                    return Ok(false);
                }
                Ok(Event::Lost(_) | Event::Unmounted) => (), // not of a server of several
                Ok(Event::Turn(later)) => {
                    self.member.quit(&format!("turn {} has come during another one", later.number))
                }
                Ok(Event::Drain) if !self.member.is_draining() || self.env.now() < not_before => (),
                Ok(Event::Drain) if self.member.has_successor() => {
                    self.drain(up);
                    return Ok(true);
                }
                Ok(Event::Drain) if is_alone_told => (),
                Ok(Event::Drain) => {
                    is_alone_told = true;
                    self.lifecycle.say("no other server is there to take the cell: still serving");
                }
            }
        }
    }

    /// Closes the cell in order, and leaves it to the others.
    fn drain(&self, mut up: ServedCell) {
        self.lifecycle.say("another server is to have the cell: closing it here");
        if let Err(failure) = up.shut() {
            self.member.quit(&failure.message);
        }
        drop(up);
        if !self.member.leave() {
            self.member.quit("the store does not say whose the cell is");
        }
        self.lifecycle.say("the cell is closed here, and there for another server");
    }

    fn service(&self) -> Arc<dyn Service> {
        Arc::new(StandBy {
            member: self.member.clone(),
            name: self.ground.dir.to_string(),
            listen: self.options.doors.listen.clone(),
            metrics: self.ground.metrics.clone(),
            holder: self.ground.lock.holder.clone(),
            lifecycle: self.lifecycle.clone(),
        })
    }
}

impl From<News> for Event {
    fn from(news: News) -> Event {
        match news {
            News::Turn(turn) => Event::Turn(turn),
            News::Drain => Event::Drain,
        }
    }
}

/// Answers the calls of the control socket while another server has the cell.
struct StandBy {
    member: Arc<Member>,
    name: String,
    listen: Vec<String>,
    metrics: Vec<String>,
    holder: Holder,
    lifecycle: Arc<Lifecycle>,
}

impl StandBy {
    fn stands_by(&self) -> Failure {
        let has = match self.member.other_owner() {
            Some(owner) => format!("the cell is served on {}: run this there", owner.host),
            None => "nobody has the cell at the moment: try again".to_owned(),
        };
        Failure { message: format!("{}: this server stands by; {has}", self.name), errno: libc::EAGAIN }
    }
}

impl Service for StandBy {
    fn admin(&self, _: &Ctx, _: &AnyRequest, _: &mut dyn FnMut(Progress)) -> Result<AnyReply, Failure> {
        Err(self.stands_by())
    }

    fn running(&self) -> Result<Running, Failure> {
        Ok(Running {
            pid: self.holder.pid,
            host: self.holder.host.clone(),
            since: self.holder.since,
            metrics: self.metrics.clone(),
            listen: self.listen.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            service: notify::is_wanted(),
            server: Some(self.member.shown()),
            ..Running::default()
        })
    }

    fn flows(&self) -> Flows {
        Flows::default()
    }

    fn sessions(&self) -> Vec<MachineSession> {
        Vec::new()
    }

    fn end_session(&self, _: u64) -> bool {
        false
    }

    fn console_link(&self, _: Who, _: Option<&str>) -> Result<ConsoleLink, Failure> {
        Err(self.stands_by())
    }

    fn make_token(&self, _: &Ctx, _: &TokenMake) -> Result<NewToken, Failure> {
        Err(self.stands_by())
    }

    fn backups(&self, _: &BackupCall, _: &mut dyn FnMut(Progress)) -> Result<Vec<BackupStatus>, Failure> {
        Err(self.stands_by())
    }

    fn mirrors(&self, _: &MirrorCall, _: &mut dyn FnMut(Progress)) -> Result<Vec<MirrorStatus>, Failure> {
        Err(self.stands_by())
    }

    fn down(&self) {
        self.lifecycle.set(Stage::Ending(format!("ending {}", self.name)));
        self.lifecycle.post(Event::Down);
    }

    fn hears_of_end(&self, hears: bool) {
        self.lifecycle.hears_of_end(hears);
    }

    fn next_stage(&self, last: &str) -> Result<Option<String>, Failure> {
        self.lifecycle.next_stage(last)
    }
}
