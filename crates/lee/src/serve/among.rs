//! A process that is one of several servers of a cell in a bucket: it stands by, serves when it is its turn, and leaves
//! the cell to another one when an operator wants that (docs/decisions/0038).
//!
//! A process that may not answer any more ends at once, without a word to its clients: what it has not made durable they
//! do again at the server that has the cell then. Its keeper starts another one.

use super::{Bound, Event, Ground, Lifecycle, ServeOptions, ServedCell, Stage, Startup};
use crate::control::server::{Server, Service};
use crate::control::{Flows, MachineSession, Running};
use crate::fail::Fail;
use crate::lock::Holder;
use crate::notify;
use crate::servers::{self, Member, News, Own};
use leeward_env::{Ctx, Env, Nanos};
use leeward_remote::Elsewhere;
use leeward_servers::Turn;
use leeward_volume::admin::{AnyReply, AnyRequest, Failure, Progress};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How often a server that stands by looks whether it can answer clients.
const STEP: Duration = Duration::from_millis(250);
/// A start has come to nothing that is neither this server's turn nor another's by then.
const START_TIME: Nanos = 30_000_000_000;

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
    let tell = lifecycle.clone();
    let member = Member::join(env, &ground.dir, addresses, move |news| tell.post(news.into()))?;
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
            match self.stand_by(&mut startup, bound.take())? {
                Next::End => {
                    self.lifecycle.ended(Ok(()));
                    return Ok(());
                }
                Next::Serve(turn) => {
                    if !self.take_turn(turn, &mut startup, created)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits for a turn. Tells clients meanwhile who has the cell, as soon as the key is there by which they know servers.
    fn stand_by(
        &self,
        startup: &mut Option<&mut dyn Startup>,
        mut bound: Option<Bound>,
    ) -> Result<Next, Fail> {
        let _control = Server::start(self.env, &self.ground.dir, self.service())?;
        let mut elsewhere: Option<Elsewhere> = None;
        let begun = self.env.now();
        loop {
            match self.inbox.recv_timeout(STEP) {
                Ok(Event::Turn(turn)) => return Ok(Next::Serve(turn)),
                Ok(Event::Signal(_) | Event::Down) => return Ok(Next::End),
                Ok(Event::Over(why) | Event::Lost(why)) => self.exit(&why),
                Ok(Event::Drain | Event::Unmounted) | Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => return Ok(Next::End),
            }
            let Some(owner) = self.member.other_owner().filter(|_| elsewhere.is_none()) else {
                if startup.is_some() && self.env.now().saturating_sub(begun) > START_TIME {
                    return Err(self.nobody_has_it());
                }
                continue;
            };
            elsewhere = self.tell_clients(&mut bound)?;
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

    /// Serves the cell. True: another server has it now, and this one stands by.
    fn take_turn(
        &self,
        turn: Turn,
        startup: &mut Option<&mut dyn Startup>,
        created: bool,
    ) -> Result<bool, Fail> {
        let own = Own { member: self.member.clone(), turn };
        let bound = self.ground.bind(self.options)?;
        let begun = self.env.now();
        let mut up =
            ServedCell::start(self.env, self.options, (self.ground, bound), Some(&own), self.lifecycle)?;
        tracing::info!("serves turn {} after {} ms", turn.number, (self.env.now() - begun) / 1_000_000);
        up.started.created = created && startup.is_some();
        if let Some(startup) = startup.take()
            && let Err(fail) = startup.started(&up.started)
        {
            up.close()?;
            return Err(fail);
        }
        let mut is_alone_told = false;
        loop {
            match self.inbox.recv() {
                Ok(Event::Signal(_) | Event::Down | Event::Unmounted) | Err(_) => {
                    up.close()?;
                    return Ok(false);
                }
                Ok(Event::Lost(why) | Event::Over(why)) => self.exit(&why),
                Ok(Event::Turn(later)) => {
                    self.exit(&format!("turn {} has come during another one", later.number))
                }
                Ok(Event::Drain) if self.member.has_successor() => {
                    self.lifecycle.say("another server is to have the cell: closing it here");
                    up.shut()?;
                    drop(up);
                    if !self.member.leave() {
                        self.exit("the store does not say whose the cell is");
                    }
                    self.lifecycle.say("the cell is closed here, and free for another server");
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

    /// Ends the process, which may not answer any more: nothing that it still has in memory counts.
    fn exit(&self, why: &str) -> ! {
        self.lifecycle.say(&format!("{}: {why}: this process ends", self.ground.dir));
        self.member.end();
        std::process::exit(1)
    }
}

impl From<News> for Event {
    fn from(news: News) -> Event {
        match news {
            News::Turn(turn) => Event::Turn(turn),
            News::Drain => Event::Drain,
            News::Over(why) => Event::Over(why),
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

impl Service for StandBy {
    fn admin(&self, _: &Ctx, _: &AnyRequest, _: &mut dyn FnMut(Progress)) -> Result<AnyReply, Failure> {
        let has = match self.member.other_owner() {
            Some(owner) => format!("the cell is served on {}: run this there", owner.host),
            None => "nobody has the cell at the moment: try again".to_owned(),
        };
        Err(Failure { message: format!("{}: this server stands by; {has}", self.name), errno: libc::EAGAIN })
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
