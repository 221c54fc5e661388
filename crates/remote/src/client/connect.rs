//! The thread that connects, receives and gives answers.

use super::drops::TheAnswer;
use super::slots::Outstanding;
use super::{Away, Client, LOST_FILES_MAX, LostFiles, Phase, Shared, Unreachable, locks};
use crate::message::{
    Call, FRAME_BYTES_MAX, Hello, Leased, OLDEST, Refusal, Slot, Standing, TAKES_LOCKS, ToClient, ToServer,
    VERSION, frame, message,
};
use crate::on_drop::guarded;
use crate::pipe::{Inbox, Pipe, Received};
use leeward_env::{Ctx, Nanos, panic_text};
use leeward_fs::{Error, NodeId, Op, Reply};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long to wait for a connection, and for the welcome.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long to wait for a connection to one of several servers: another may have the cell.
const ONE_OF_SEVERAL_TIME: Duration = Duration::from_secs(1);
/// How often the server is asked whether it is there.
const PING_STEP: Nanos = 1_000_000_000;
/// How long changes gather that programs were told of, while others are under way and nobody waits
/// for them.
const GATHER_TIME: Nanos = 1_000_000;
/// How long it may be silent.
const SILENT_TIME: Nanos = 4_000_000_000;
/// Pauses between attempts: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The longest while another server may take over at any moment.
const PAUSE_OF_SEVERAL_MAX: Duration = Duration::from_millis(250);
/// How long a pause is when the server does not let this host in.
const PAUSE_REFUSED: Duration = Duration::from_secs(5);

/// What wakes the thread: the socket, and large frames that it is to send.
const SOCKET: Token = Token(0);
const CARRY: Token = Token(1);

/// Inodes of one call that names those with references.
const REFER_MAX: usize = 4096;

/// A connection that was welcomed.
struct Link {
    /// Host and port, by which it was found.
    server: String,
    pipe: Arc<Pipe>,
    poll: Poll,
    inbox: Inbox,
    standing: Standing,
    /// It is the process that the session before was with.
    is_same_server: bool,
    /// It had the cell before another that is known.
    is_old: bool,
}

/// Connects, and starts the thread.
pub(super) fn start(shared: &Arc<Shared>) -> Result<(), Unreachable> {
    let link = shared.connect()?;
    let weak = Arc::downgrade(shared);
    let spawned = shared.env.try_spawn("remote", move || run(&weak, link));
    spawned.map(drop).map_err(|e| Unreachable::Silent(format!("no thread can be started: {e}")))
}

fn run(shared: &Weak<Shared>, first: Link) {
    let mut link = Some(first);
    let mut pause = PAUSE_FIRST;
    while let Some(shared) = shared.upgrade() {
        match link.take().map_or_else(|| shared.connect(), Ok) {
            Ok(link) => {
                pause = PAUSE_FIRST;
                let pipe = link.pipe.clone();
                let served = catch_unwind(AssertUnwindSafe(|| shared.serve(link)));
                let why = served.unwrap_or_else(|panic| {
                    pipe.close();
                    format!("an answer ended in a panic: {}", panic_text(&*panic))
                });
                guarded(|| shared.lost(&why));
                shared.pause(pause);
            }
            Err(unreachable) => {
                if let Unreachable::Refused(_) = unreachable {
                    pause = PAUSE_REFUSED;
                }
                guarded(|| shared.still_away(&unreachable));
                shared.pause(pause);
                let most = if shared.servers.all().len() > 1 { PAUSE_OF_SEVERAL_MAX } else { PAUSE_MAX };
                pause = (pause * 2).min(most.max(pause));
            }
        }
        if matches!(shared.state.lock().phase, Phase::Ended) {
            return;
        }
    }
}

impl Shared {
    /// Tries all servers that may have the cell. One that stands by says which one has it: that is
    /// tried next.
    fn connect(&self) -> Result<Link, Unreachable> {
        self.servers.begin_round();
        let (mut tried, mut why) = (Vec::new(), None);
        while let Some(server) = self.servers.all().into_iter().find(|server| !tried.contains(server)) {
            match self.connect_to_any(&server) {
                Ok(link) => return Ok(link),
                // that it lets nobody in counts more than that another is silent
                Err(refused @ Unreachable::Refused(_)) => why = Some(refused),
                Err(silent) => why = why.or(Some(silent)),
            }
            tried.push(server);
        }
        Err(why.unwrap_or_else(|| Unreachable::Silent("no server is known".into())))
    }

    /// Tries all addresses of a server.
    fn connect_to_any(&self, server: &str) -> Result<Link, Unreachable> {
        let silent = |e: io::Error| Unreachable::Silent(format!("{server}: {}", plain(&e)));
        let addresses: Vec<SocketAddr> = server.to_socket_addrs().map_err(silent)?.collect();
        let mut why = Unreachable::Silent(format!("{server}: the name has no address"));
        for address in addresses {
            match self.connect_to(server, address) {
                Ok(link) => return Ok(link),
                Err(e) => why = e,
            }
        }
        Err(why)
    }

    fn connect_to(&self, server: &str, address: SocketAddr) -> Result<Link, Unreachable> {
        let silent = |e: io::Error| Unreachable::Silent(format!("{address}: {}", plain(&e)));
        let poll = Poll::new().map_err(silent)?;
        let socket = TcpStream::connect(address).map_err(silent)?;
        // the key says who the server is; the protocol wants a name
        let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into());
        let tls = rustls::ClientConnection::new(self.tls.clone(), name);
        let tls = tls.map_err(|e| silent(io::Error::other(e)))?;
        let carrier = Waker::new(poll.registry(), CARRY).map_err(silent)?;
        let mut pipe = Pipe::new(socket, address, tls.into()).with_carrier(carrier);
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(pipe.socket_mut(), SOCKET, both).map_err(silent)?;
        let (session, invitation) = {
            let state = self.state.lock();
            (state.session, state.invitation)
        };
        pipe.send(&frame(&ToServer::Hello(Hello { oldest: OLDEST, newest: VERSION, invitation, session })));
        let mut link = Link {
            server: server.to_owned(),
            pipe: Arc::new(pipe),
            poll,
            inbox: Inbox::default(),
            standing: Standing::New,
            is_same_server: false,
            is_old: false,
        };
        self.await_welcome(&mut link).map_err(|e| match e {
            Unreachable::Silent(why) => Unreachable::Silent(format!("{address}: {why}")),
            refused => refused,
        })?;
        let _ = link.pipe.nodelay();
        Ok(link)
    }

    fn await_welcome(&self, link: &mut Link) -> Result<(), Unreachable> {
        let begun = self.env.now();
        let is_one_of_several = self.servers.all().len() > 1;
        let silent = |e: &io::Error| Unreachable::Silent(plain(e));
        let mut events = Events::with_capacity(4);
        loop {
            match link.pipe.receive(&mut link.inbox) {
                Ok(Received::Some) => {
                    while let Some(said) = link.next().map_err(|e| silent(&e))? {
                        match said {
                            ToClient::Servers(list) => link.is_old |= !self.servers.heard(list),
                            welcome => return self.welcomed(link, welcome),
                        }
                    }
                }
                Ok(Received::Nothing) => {
                    // the system answers also for a process that was stopped, and the process
                    // though it may not
                    let time = match (is_one_of_several, link.pipe.is_handshaking()) {
                        (true, true) => ONE_OF_SEVERAL_TIME,
                        (true, false) => 2 * ONE_OF_SEVERAL_TIME,
                        (false, _) => CONNECT_TIME,
                    };
                    let left = (begun + time.as_nanos() as u64).saturating_sub(self.env.now());
                    if left == 0 {
                        return Err(silent(&io::ErrorKind::TimedOut.into()));
                    }
                    let waited = link.poll.poll(&mut events, Some(Duration::from_nanos(left)));
                    waited.or_else(interrupted).map_err(|e| silent(&e))?;
                    link.pipe.writable();
                }
                Err(e) => return Err(silent(&e)),
            }
        }
    }

    fn welcomed(&self, link: &mut Link, welcome: ToClient) -> Result<(), Unreachable> {
        match welcome {
            ToClient::Welcome { .. } if link.is_old => {
                Err(Unreachable::Silent("it does not know yet that another server has the cell now".into()))
            }
            ToClient::Welcome { session, standing, instance, host, wants_groups, by_tokens, version } => {
                if !self.logins.are_wanted(by_tokens) {
                    let why = "it believes this machine now who its users are: mount anew";
                    return Err(Unreachable::Refused(why.into()));
                }
                let mut state = self.state.lock();
                (state.session, state.host, state.wants_groups) = (Some(session), host, wants_groups);
                state.version = version;
                let before = state.instance.replace(instance);
                state.invitation = None;
                // the one that the client has not caught up with yet is not the one it was told
                // things by
                let has_caught_up = state.standing != Some(Standing::Known);
                // that a session is from a process before may have been said by a connection that
                // was lost
                let standing = match standing {
                    Standing::Resumed if before.is_some_and(|before| before != instance) => Standing::Known,
                    standing => standing,
                };
                // what is left to do before the server takes calls stays to be done
                state.standing = match (state.standing, standing) {
                    (Some(Standing::Known), Standing::Resumed) => Some(Standing::Known),
                    _ => Some(standing),
                };
                link.standing = standing;
                link.is_same_server = before == Some(instance) && has_caught_up;
                Ok(())
            }
            ToClient::Refused(Refusal::Busy, why) => Err(Unreachable::Silent(why)),
            ToClient::Refused(_, why) => Err(Unreachable::Refused(why)),
            other => Err(Unreachable::Silent(format!("it answers nonsense: {other:?}"))),
        }
    }

    /// Sends what is not answered, and then gives answers until the connection is over. Says why it
    /// is.
    fn serve(self: &Arc<Self>, mut link: Link) -> String {
        self.state.lock().link = Some(link.pipe.clone());
        Client(self.clone()).begin_era();
        self.drop_lost(&self.copies.connected(link.standing == Standing::Resumed));
        if link.standing != Standing::Resumed {
            self.behind.lock().forget_numbers();
        }
        match link.standing {
            Standing::Resumed => (),
            Standing::New => self.begin_again(link.is_same_server),
            Standing::Known => self.ask_again(&link.pipe),
        }
        let mut events = Events::with_capacity(4);
        let (mut heard, mut ping_at) = (self.env.now(), 0);
        loop {
            match self.receive(&mut link) {
                Ok(true) => {
                    heard = self.env.now();
                    self.heard.store(heard, Ordering::Relaxed);
                    self.heed(&link.pipe);
                }
                Ok(false) => (),
                Err(e) => return plain(&e),
            }
            let now = self.env.now();
            if now.saturating_sub(heard) > SILENT_TIME {
                link.pipe.close();
                self.servers.is_silent(&link.server);
                return "it does not answer".into();
            }
            if now >= ping_at {
                ping_at = now + PING_STEP;
                self.copies.tidy();
                self.share_idle(&link.pipe);
                Client(self.clone()).show_due_logins();
                self.ping(&link.pipe);
            }
            let now = self.env.now();
            let gathers_until = link.pipe.gathered_at().map_or(Nanos::MAX, |at| at + GATHER_TIME);
            if now >= gathers_until {
                link.pipe.flush();
                continue;
            }
            let left = ping_at.min(gathers_until).saturating_sub(now).max(1);
            if let Err(e) = link.poll.poll(&mut events, Some(Duration::from_nanos(left))).or_else(interrupted)
            {
                return plain(&e);
            }
            if link.pipe.wants_write() {
                link.pipe.writable();
            }
        }
    }

    /// Gives all answers that have come; whether anything came. Some may have come with the
    /// welcome.
    fn receive(self: &Arc<Self>, link: &mut Link) -> io::Result<bool> {
        let mut any = false;
        loop {
            while let Some(said) = link.next()? {
                self.hear(&link.pipe, said)?;
            }
            if link.pipe.receive(&mut link.inbox)? == Received::Nothing {
                return Ok(any);
            }
            any = true;
        }
    }

    /// Says that this client is there, and which term it knows.
    fn ping(&self, pipe: &Pipe) {
        pipe.send(&frame(&ToServer::Ping { number: self.env.now(), term: self.copies.term() }));
    }

    fn hear(self: &Arc<Self>, pipe: &Arc<Pipe>, said: ToClient) -> io::Result<()> {
        match said {
            ToClient::Ready => self.ready(pipe),
            ToClient::Durable(lsn) => {
                let mut state = self.state.lock();
                state.told.durable(lsn);
                state.hold_changes();
                // where changes are held none is answered, which would ask for it
                if state.told.are_many() {
                    self.make_durable();
                }
                Ok(())
            }
            ToClient::Again { result: Ok(()), .. } => Ok(()),
            ToClient::Again { lsn, result: Err(e) } => {
                let mut state = self.state.lock();
                let of = state.told.lost(lsn);
                state.hold_changes();
                drop(state);
                tracing::error!(
                    "{}: a change was lost with the server ({e}); the next fsync of its file fails",
                    self.server
                );
                self.files.lock().lose(of);
                Ok(())
            }
            ToClient::Answer(slot, result, leased, told) => {
                if let Some(answer) = self.defer((pipe, slot), (result, leased, told)) {
                    self.answered(pipe, slot, answer);
                }
                Ok(())
            }
            ToClient::Pong { number, taken, wall } => {
                self.behind.lock().heard_time(wall, self.env.now());
                match taken {
                    None => self.copies.renewed(number),
                    Some(term) => self.lost_leases(pipe, term),
                }
                Ok(())
            }
            ToClient::Recall { number, nodes } => {
                self.recalled(pipe, number, &nodes);
                Ok(())
            }
            ToClient::Granted { ticket, result } => {
                Client(self.clone()).decided(ticket, result);
                Ok(())
            }
            ToClient::LocksTaken(all) => {
                Client(self.clone()).were_taken(&all);
                Ok(())
            }
            ToClient::Closing { durable } => {
                // what has an answer that waits was done: the next server must not be asked for it
                let durable = durable && self.wait_deferred();
                let mut state = self.state.lock();
                // what a process before was told and not asked for again yet, it knows nothing of
                state.closed_in_order = durable && state.standing != Some(Standing::Known);
                Err(io::Error::other("the server has ended"))
            }
            ToClient::Refused(_, why) => Err(io::Error::other(why)),
            ToClient::Servers(list) => match self.servers.heard(list) {
                true => Ok(()),
                false => Err(io::Error::other("another server has the cell now")),
            },
            ToClient::Welcome { .. } => Err(io::Error::other("it answers nonsense")),
        }
    }

    /// The server has taken all leases, and this term has begun.
    fn lost_leases(self: &Arc<Self>, pipe: &Pipe, term: u32) {
        self.drop_lost(&self.copies.taken(term));
        self.state.lock().slots.doubt();
        // it gets no leases until the server has heard that
        self.ping(pipe);
    }

    /// Leases are recalled. That is answered when the server has all that was told of these inodes,
    /// and the front end keeps nothing of them.
    fn recalled(self: &Arc<Self>, pipe: &Arc<Pipe>, number: u64, nodes: &[NodeId]) {
        let read = self.copies.void(nodes);
        if !self.copies.count() {
            // it comes too late: whoever wanted this does not wait any more
            self.drop_lost(&read);
        }
        self.drop_attributes(nodes);
        let until = self.behind.lock().ends(nodes);
        let (pipe, said, shared) = (pipe.clone(), frame(&ToServer::Recalled(number)), self.clone());
        self.when_dropped(read, move || shared.when_answered(until, move || pipe.send(&said)));
    }

    /// Gives the answer to a call, if it is one: none counts by a connection that is lost.
    pub(super) fn answered(
        self: &Arc<Self>,
        pipe: &Arc<Pipe>,
        slot: Slot,
        (result, leased, told): TheAnswer,
    ) {
        let mut at = 0;
        let mut state = self.state.lock();
        if !state.hears(pipe) {
            return;
        }
        let mut answered = state.slots.answered(slot);
        if let (Some(told), Some((call, _))) = (told, &mut answered)
            && !call.is_given_up()
        {
            state.told.add(told, call);
            at = told.at;
            state.hold_changes();
            if state.told.are_many() {
                self.make_durable();
            }
        }
        if let Some((_, next)) = answered {
            state.send(next);
        }
        let unclaimed = answered.as_ref().map(|(call, _)| call.unclaimed(&result)).unwrap_or_default();
        if !unclaimed.is_empty() {
            let asked = self.copies.unclaimed(&unclaimed);
            let call = Outstanding::new(Call::Forget(unclaimed), self.env.now(), Some(asked), Box::new(drop));
            let place = state.slots.enter(call);
            state.send(place);
        }
        drop(state);
        if at > 0 {
            self.behind.lock().heard_change(at);
        }
        let not_kept =
            answered.and_then(|(call, _)| call.answer(result, &leased, |nodes| self.drop_attributes(nodes)));
        self.drop_pages(not_kept.into_iter().collect());
    }

    /// The server is asked to make all durable, so that changes need not be kept. Under the state's
    /// lock.
    fn make_durable(self: &Arc<Self>) {
        let client = Client(self.clone());
        self.workers.run(move || client.ask_op(&Ctx::user(0, 0), Op::SyncAll, Box::new(drop)));
    }

    /// The server knows the session from a process before: what the client was told of and does not
    /// know to be durable is done again.
    fn ask_again(&self, pipe: &Arc<Pipe>) {
        let mut state = self.state.lock();
        for call in state.slots.changing_content() {
            pipe.send(&call);
        }
        for again in state.told.again() {
            pipe.send(&again);
        }
        for place in state.slots.foretold() {
            pipe.send_large(&state.slots.sending(place));
        }
        pipe.send(&frame(&ToServer::CaughtUp));
    }

    /// The server takes calls.
    fn ready(self: &Arc<Self>, pipe: &Arc<Pipe>) -> io::Result<()> {
        let Some(standing) = self.state.lock().standing else { return Ok(()) };
        if standing == Standing::Known {
            self.go_on();
        }
        if !self.up(pipe) {
            pipe.send(&frame(&ToServer::Bye));
            pipe.close();
            return Err(io::Error::other("the mount has ended"));
        }
        self.state.lock().standing = None;
        Client(self.clone()).take_up_locks();
        if standing == Standing::Known {
            self.refer();
        }
        Ok(())
    }

    /// The session goes on with another process of the server.
    fn go_on(self: &Arc<Self>) {
        let heard = self.heard.load(Ordering::Relaxed);
        let tell = Client(self.clone()).tell_locks(locks::may_be_kept(heard, self.env.now()));
        let mut state = self.state.lock();
        let in_order = std::mem::take(&mut state.closed_in_order);
        let (lost, returned) = state.slots.come_back(in_order, tell);
        drop(state);
        if in_order {
            self.files.lock().closed();
        }
        returned.into_iter().for_each(|call| _ = call.answer(Ok(Reply::Done), &Leased::Nothing, |_| ()));
        let why = "the server was started anew, and whether this was done is not known";
        lost.into_iter().for_each(|call| call.fail(Error::Io(why.into())));
    }

    /// Names the inodes that the front end has references to, so that the server counts them.
    fn refer(self: &Arc<Self>) {
        let client = Client(self.clone());
        self.workers.run(move || {
            let nodes = client.0.copies.refer();
            let mut left = nodes.chunks(REFER_MAX).peekable();
            loop {
                let nodes = left.next().unwrap_or_default().to_vec();
                let last = left.peek().is_none();
                client.ask(Call::Refer { nodes, last }, None, Box::new(drop));
                if last {
                    return;
                }
            }
        });
    }

    /// The server knows nothing of the session before.
    fn begin_again(self: &Arc<Self>, is_same_server: bool) {
        let heard = self.heard.load(Ordering::Relaxed);
        let are_kept = !is_same_server && locks::may_be_kept(heard, self.env.now());
        let client = Client(self.clone());
        let mut tell = client.tell_logins();
        tell.extend(client.tell_locks(are_kept));
        let mut state = self.state.lock();
        let in_order = std::mem::take(&mut state.closed_in_order);
        // the process that has done them is there: another one after it is asked for them
        let told = if is_same_server { Vec::new() } else { state.told.take_all() };
        let (lost, returned) = state.slots.restart((in_order, !is_same_server), tell);
        drop(state);
        let mut files = self.files.lock();
        match (in_order, is_same_server) {
            (true, _) => files.closed(),
            (false, true) => (),
            (false, false) => {
                let before = files.lost();
                files.crashed();
                files.lose(told);
                self.note_lost(before, files.lost());
            }
        }
        drop(files);
        // the server has taken back what the session held
        returned.into_iter().for_each(|call| _ = call.answer(Ok(Reply::Done), &Leased::Nothing, |_| ()));
        let why = "the server knows the session no more, and whether this was done is not known";
        lost.into_iter().for_each(|call| call.fail(Error::Io(why.into())));
    }

    /// The server knows nothing of what is lost with a session of a process before.
    fn note_lost(&self, before: Option<usize>, now: Option<usize>) {
        if before == now {
            return;
        }
        let at_secs = (self.env.wall() / 1_000_000_000) as i64;
        let mut lost = self.lost_files.lock();
        lost.push(LostFiles { at_secs, files: now.map(|now| now.saturating_sub(before.unwrap_or(0))) });
        let too_many = lost.len().saturating_sub(LOST_FILES_MAX);
        lost.drain(..too_many);
    }

    /// From now on requests are sent. False: the mount has ended.
    fn up(&self, pipe: &Arc<Pipe>) -> bool {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Ended) {
            return false;
        }
        if let Phase::Away(away) = &state.phase
            && self.env.now().saturating_sub(away.since) > PING_STEP
        {
            tracing::info!("{}: the server answers again", self.server);
        }
        // first: that leases were taken is heard before any answer. The kernel may not heed
        // attributes that it asked for before the connection was lost, and would go on with old
        // pages
        self.ping(pipe);
        for place in state.slots.unanswered() {
            pipe.send_large(&state.slots.sending(place));
        }
        state.phase = Phase::Up(pipe.clone());
        true
    }

    /// Tells the server when all is answered that was asked for before locks were lost. What is
    /// asked for since fails here where its lock is lost.
    fn heed(&self, pipe: &Pipe) {
        let mut state = self.state.lock();
        let is_up = matches!(state.phase, Phase::Up(_));
        if !is_up || state.unheeded.is_empty() || state.unheeded.iter().any(|under| under.strong_count() > 0)
        {
            return;
        }
        state.unheeded.clear();
        if state.version >= TAKES_LOCKS {
            pipe.send(&frame(&ToServer::HeedsLocks));
        }
    }

    fn lost(self: &Arc<Self>, why: &str) {
        self.forget_deferred();
        self.drop_attributes(&self.copies.lost());
        let mut state = self.state.lock();
        state.link = None;
        if let Phase::Up(pipe) = &state.phase {
            pipe.close();
            tracing::warn!("{}: the server does not answer: {why}", self.server);
            state.phase = Phase::Away(Away { since: self.env.now(), why: why.into(), refused: false });
            state.times_lost += 1;
        }
        drop(state);
        Client(self.clone()).end_closing();
    }

    /// An attempt came to nothing.
    fn still_away(self: &Arc<Self>, unreachable: &Unreachable) {
        let mut state = self.state.lock();
        let Phase::Away(away) = &mut state.phase else { return };
        let why = unreachable.to_string();
        if away.why != why {
            tracing::warn!("{}: {why}", self.server);
        }
        *away = Away { why, refused: matches!(unreachable, Unreachable::Refused(_)), ..*away };
        drop(state);
        self.expire();
    }

    /// While the server takes no calls requests that have waited for too long fail; all do, when it
    /// does not let this host in.
    fn expire(self: &Arc<Self>) {
        let now = self.env.now();
        let mut state = self.state.lock();
        let Phase::Away(away) = &state.phase else { return };
        let (text, since) = (away.text(), away.since);
        let time = if away.refused { Some(Duration::ZERO) } else { self.timeout };
        let Some(time) = time else { return };
        let waited = (now.saturating_sub(time.as_nanos() as u64), since);
        let expired = state.slots.expired(waited);
        drop(state);
        Client(self.clone()).expire_locks(waited, &text);
        expired.into_iter().for_each(|answer| answer(Err(Error::Io(text.clone()))));
    }

    /// Waits, or until the mount ends.
    fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Ended) {
            self.changed.wait_for(&mut state, time);
        }
    }
}

impl Link {
    fn next(&mut self) -> io::Result<Option<ToClient>> {
        let nonsense = |e: &dyn std::fmt::Display| io::Error::other(format!("it answers nonsense: {e}"));
        match self.inbox.next(FRAME_BYTES_MAX) {
            Ok(None) => Ok(None),
            Ok(Some(frame)) => message(frame).map(Some).map_err(|e| nonsense(&e)),
            Err(_) => Err(nonsense(&"a message is too long")),
        }
    }
}

fn interrupted(e: io::Error) -> io::Result<()> {
    if e.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(e) }
}

/// An error in words for people.
fn plain(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::WriteZero => "it hung up".into(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no way to it".into(),
        io::ErrorKind::ConnectionRefused => "nobody listens there".into(),
        io::ErrorKind::TimedOut => "no answer".into(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => {
            "it hung up".into()
        }
        io::ErrorKind::InvalidData => format!("it is not the server that the token names ({e})"),
        _ => e.to_string(),
    }
}
