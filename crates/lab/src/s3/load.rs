//! The connections of one process and their requests. They share everything without locks, because
//! the process has one thread.

use super::content::{Body, Content};
use super::exchange::{Answer, Exchange, Failed, Job};
use super::sign::{EMPTY, Request, Signer};
use super::stream::{Connector, Stream};
use super::target::source;
use super::worker::{Order, Outcome, pick};
use super::{Class, Failure, Op};
use crate::Refused;
use leeward_env::{Env, Nanos};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Most connections that are being opened at a time. A flood of new connections is not what is
/// tested.
const OPENING: usize = 128;
/// Pause of a client after a failure, and the longest pause that a server may ask for.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time in which all connections of a step have to open, in multiples of the time that one request
/// may take.
const OPEN_TIMES: u32 = 3;
/// Bytes read at a time.
const SCRATCH: usize = 256 << 10;
/// Number of names that a list request asks for.
const LIST_KEYS: u32 = 1000;
/// Longest latency that is counted, in microseconds. The histogram keeps three digits.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// A histogram of latencies, in microseconds.
pub type Latencies = hdrhistogram::Histogram<u64>;

/// Creates an empty histogram.
///
/// # Panics
/// Never: the bounds are right.
pub fn latencies() -> Latencies {
    Latencies::new_with_bounds(1, LATENCY_MAX_US, 3).expect("right bounds")
}

/// One client and its connection, if it has one at the moment.
pub struct Client {
    stream: Option<Stream>,
    from: Option<IpAddr>,
}

/// Number and source of a client whose connection is missing.
type ToOpen = (usize, Option<IpAddr>);

/// The requests of a step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Operations with their weights.
    pub mix: Vec<(Op, u32)>,
    /// Time in which requests may begin.
    pub lasts: Duration,
    /// Most requests that may begin.
    pub requests: u64,
}

/// The state that all clients share.
pub struct Load {
    env: Env,
    order: Order,
    address: SocketAddr,
    connector: Connector,
    signer: RefCell<Signer>,
    content: Content,
    scratch: RefCell<Box<[u8]>>,
    random: Cell<u64>,
    objects: Objects,
    tally: RefCell<Tally>,
    stopped: Cell<bool>,
}

/// The objects that this process has put.
struct Objects {
    /// Most objects that there may be.
    most: u64,
    next: Cell<u64>,
    there: RefCell<Vec<u32>>,
    known: RefCell<Vec<bool>>,
}

/// The results of a step so far.
#[derive(Default)]
struct Tally {
    until: Nanos,
    left: u64,
    done: u64,
    failed: u64,
    in_time: BTreeMap<Op, (u64, u64)>,
    by_op: BTreeMap<Op, Latencies>,
    errors: BTreeMap<Class, (u64, String)>,
    unserved: u64,
    opened: u64,
}

impl Load {
    /// Prepares the load of an order.
    ///
    /// # Errors
    /// A host without an address, or certificates that cannot be read.
    pub fn new(env: &Env, order: Order) -> Result<Load, Refused> {
        let address = order.target.address()?;
        let target = &order.target;
        let objects = Objects {
            most: order.objects.clamp(1, u64::from(u32::MAX)),
            next: Cell::new(0),
            there: RefCell::default(),
            known: RefCell::default(),
        };
        Ok(Load {
            env: env.clone(),
            address,
            connector: Connector::new(target, address)?,
            signer: RefCell::new(Signer::new(target.keys.clone(), &target.region, &target.authority())),
            content: Content::new(),
            scratch: RefCell::new(vec![0; SCRATCH].into_boxed_slice()),
            random: Cell::new(env.random() | 1),
            objects,
            tally: RefCell::default(),
            stopped: Cell::new(false),
            order,
        })
    }

    /// From now on no request begins.
    pub fn stop(&self) {
        self.stopped.set(true);
    }

    /// Requests may begin again.
    pub fn resume(&self) {
        self.stopped.set(false);
    }

    /// Requests that succeeded and that failed since the last outcome.
    pub fn so_far(&self) -> (u64, u64) {
        let tally = self.tally.borrow();
        (tally.done, tally.failed)
    }

    /// Number of objects that were put.
    pub fn put(&self) -> u64 {
        self.objects.there.borrow().len() as u64
    }

    /// Returns the results since the last call and starts to count again from zero.
    pub fn outcome(&self, began: Nanos, seconds_max: f64) -> Outcome {
        let tally = self.tally.take();
        let mut outcome = Outcome {
            seconds: ((self.env.now() - began) as f64 / 1e9).min(seconds_max),
            unserved: tally.unserved,
            opened: tally.opened,
            ..Outcome::default()
        };
        for (op, all) in &tally.by_op {
            let counted = outcome.ops.entry(*op).or_default();
            (counted.in_time, counted.bytes) = tally.in_time.get(op).copied().unwrap_or_default();
            counted.latencies =
                all.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
        }
        for (class, (count, text)) in tally.errors {
            outcome.errors.insert(class.to_string(), (count, text));
        }
        outcome
    }

    /// Makes the number of clients `count`, with an open connection each where that is possible.
    pub async fn open(self: &Rc<Self>, clients: &mut Vec<Client>, count: usize) {
        clients.truncate(count);
        for n in clients.len()..count {
            let from = source(self.address, &self.order.sources, self.order.number, n as u64);
            clients.push(Client { stream: None, from });
        }
        let mut missing = VecDeque::new();
        for (n, client) in clients.iter_mut().enumerate() {
            client.stream = client.stream.take().filter(Stream::is_quiet);
            if client.stream.is_none() {
                missing.push_back((n, client.from));
            }
        }
        let mut openers = JoinSet::new();
        let missing = Rc::new(RefCell::new(missing));
        let until = self.env.now() + (OPEN_TIMES * self.order.patience()).as_nanos() as u64;
        for _ in 0..OPENING.min(missing.borrow().len()) {
            let (load, missing) = (self.clone(), missing.clone());
            openers.spawn_local(async move {
                let mut opened = Vec::new();
                while let Some((n, from)) = load.next_to_open(&missing, until) {
                    match tokio::time::timeout(load.order.patience(), load.connector.connect(from)).await {
                        Ok(Ok(stream)) => {
                            load.tally.borrow_mut().opened += 1;
                            opened.push((n, stream));
                        }
                        Ok(Err(failure)) => load.failed(&failure),
                        Err(_) => load.failed(&Failure::new(Class::TimeOut, "no connection in time")),
                    }
                }
                opened
            });
        }
        while let Some(opened) = openers.join_next().await {
            for (n, stream) in opened.into_iter().flatten() {
                clients[n].stream = Some(stream);
            }
        }
    }

    /// The next connection to open. A client whose connection was not opened in time opens it
    /// itself.
    fn next_to_open(&self, missing: &RefCell<VecDeque<ToOpen>>, until: Nanos) -> Option<ToOpen> {
        let over = self.stopped.get() || self.env.now() > until;
        if over { None } else { missing.borrow_mut().pop_front() }
    }

    /// Lets all clients work for a step. All requests have ended when this returns.
    pub async fn step(self: &Rc<Self>, clients: Vec<Client>, step: Step) -> Vec<Client> {
        {
            let mut tally = self.tally.borrow_mut();
            tally.until = self.env.now().saturating_add(step.lasts.as_nanos() as u64);
            tally.left = step.requests;
        }
        let (step, mut working) = (Rc::new(step), JoinSet::new());
        for client in clients {
            let (load, step) = (self.clone(), step.clone());
            working.spawn_local(async move { load.work(client, &step).await });
        }
        let mut back = Vec::with_capacity(working.len());
        while let Some(client) = working.join_next().await {
            back.extend(client);
        }
        back
    }

    async fn work(&self, mut client: Client, step: &Step) -> Client {
        let (mut asked, mut served) = (false, false);
        while self.begin() {
            asked = true;
            let job = self.job(self.choose(&step.mix));
            let began = self.env.now();
            let pause = match self.one(&mut client, &job).await {
                Ok(_) => {
                    served = true;
                    self.succeeded(&job, began);
                    self.order.pause()
                }
                Err(failure) => {
                    self.failed(&failure);
                    failure.wait.unwrap_or(PAUSE).clamp(PAUSE, PAUSE_MAX)
                }
            };
            self.rest(pause).await;
        }
        self.tally.borrow_mut().unserved += u64::from(asked && !served);
        client
    }

    /// Whether another request may begin. If so, it counts.
    fn begin(&self) -> bool {
        let mut tally = self.tally.borrow_mut();
        let may = !self.stopped.get() && tally.left > 0 && self.env.now() < tally.until;
        tally.left -= u64::from(may);
        may
    }

    async fn rest(&self, pause: Duration) {
        let left = self.tally.borrow().until.saturating_sub(self.env.now());
        let pause = pause.min(Duration::from_nanos(left));
        if !pause.is_zero() && !self.stopped.get() {
            tokio::time::sleep(pause).await;
        }
    }

    fn succeeded(&self, job: &Job, began: Nanos) {
        let now = self.env.now();
        if job.op == Op::Put {
            self.objects.put(job.object);
        }
        let mut tally = self.tally.borrow_mut();
        tally.done += 1;
        if now <= tally.until {
            let (count, bytes) = tally.in_time.entry(job.op).or_default();
            (*count, *bytes) = (*count + 1, *bytes + job.bytes());
        }
        tally.by_op.entry(job.op).or_insert_with(latencies).saturating_record(((now - began) / 1000).max(1));
    }

    fn failed(&self, failure: &Failure) {
        let mut tally = self.tally.borrow_mut();
        tally.failed += 1;
        let (count, _) = tally.errors.entry(failure.class).or_insert_with(|| (0, failure.text.clone()));
        *count += 1;
    }

    /// Sends one request, on a new connection if the client has none.
    ///
    /// # Errors
    /// A failure of any class.
    pub async fn one(&self, client: &mut Client, job: &Job) -> Result<Answer, Failure> {
        let patience = self.order.patience();
        match tokio::time::timeout(patience, self.attempt(client, job)).await {
            Ok(Ok(answer)) => {
                if !answer.keep {
                    client.stream = None;
                }
                Ok(answer)
            }
            Ok(Err((failure, keep))) => {
                if !keep {
                    client.stream = None;
                }
                Err(failure)
            }
            Err(_) => {
                let what = if client.stream.take().is_some() { "answer" } else { "connection" };
                Err(Failure::new(Class::TimeOut, format!("no {what} within {} ms", patience.as_millis())))
            }
        }
    }

    async fn attempt(&self, client: &mut Client, job: &Job) -> Result<Answer, Failed> {
        let stream = match &mut client.stream {
            Some(stream) => stream,
            none => {
                let stream = self.connector.connect(client.from).await.map_err(|failure| (failure, false))?;
                none.insert(stream)
            }
        };
        let mut exchange = Exchange::new(job, &self.content);
        poll_fn(|context| exchange.poll(stream, &mut self.scratch.borrow_mut(), context)).await
    }

    fn choose(&self, mix: &[(Op, u32)]) -> Op {
        pick(mix, self.random()).unwrap_or(Op::Put)
    }

    fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x >> 8
    }

    fn job(&self, op: Op) -> Job {
        match op {
            Op::Put => self.on(op, self.objects.next()),
            Op::List => self.list(self.random() % self.objects.most, false),
            _ => self.on(op, self.objects.any(self.random())),
        }
    }

    /// A request for one object of this process.
    pub fn on(&self, op: Op, object: u64) -> Job {
        let body =
            matches!(op, Op::Put | Op::Get | Op::Head).then(|| Body::of(object, self.order.size_of(object)));
        let name = self.order.name(object);
        let mut job = Job { op, object, head: Vec::new(), body, keep: false };
        match body.filter(|_| op == Op::Put) {
            Some(body) => self
                .content
                .with_digest(body, |digest| self.sign(&mut job, &name, "", digest, Some(body.size))),
            None => self.sign(&mut job, &name, "", EMPTY, None),
        }
        job
    }

    /// A request for a page of names: those after the name of `object`, or with `keep` the first
    /// ones, and then the answer keeps the body.
    fn list(&self, object: u64, keep: bool) -> Job {
        let name = self.order.name(object);
        let after = (!keep).then(|| format!("&start-after={}", encoded(&name)));
        let prefix = encoded(&format!("{}/", self.order.run));
        let query = format!("list-type=2&max-keys={LIST_KEYS}&prefix={prefix}{}", after.unwrap_or_default());
        let mut job = Job { op: Op::List, object, head: Vec::new(), body: None, keep };
        self.sign(&mut job, "", &query, EMPTY, None);
        job
    }

    /// The request that makes the bucket (PUT) or removes it (DELETE).
    pub fn bucket(&self, op: Op) -> Job {
        let mut job = Job { op, object: 0, head: Vec::new(), body: None, keep: false };
        self.sign(&mut job, "", "", EMPTY, (op == Op::Put).then_some(0));
        job
    }

    fn sign(&self, job: &mut Job, name: &str, query: &str, payload: &str, length: Option<u64>) {
        let slash = if name.is_empty() { "" } else { "/" };
        let path = format!("/{}{slash}{name}", self.order.target.bucket);
        let request = Request { method: job.op.method(), path: &path, query, payload, length };
        job.head.reserve(640 + query.len());
        self.signer.borrow_mut().head(&mut job.head, self.env.wall() / 1_000_000_000, &request);
    }

    /// A new client, without a connection yet.
    pub fn client(&self) -> Client {
        Client { stream: None, from: source(self.address, &self.order.sources, self.order.number, 0) }
    }

    /// Sends one request on each connection, so that the server knows whose connection it is.
    /// Returns the clients that got an answer and whose connection is still open.
    pub async fn warm_up(self: &Rc<Self>, clients: Vec<Client>) -> Vec<Client> {
        let waiting = Rc::new(RefCell::new(clients));
        let mut greeting = JoinSet::new();
        for _ in 0..OPENING {
            let (load, waiting) = (self.clone(), waiting.clone());
            greeting.spawn_local(async move {
                let mut greeted = Vec::new();
                while !load.stopped.get() {
                    let Some(mut client) = waiting.borrow_mut().pop() else { break };
                    match load.one(&mut client, &load.on(Op::Head, 0)).await {
                        Ok(_) => greeted.push(client),
                        Err(failure) => load.failed(&failure),
                    }
                }
                greeted
            });
        }
        let mut greeted = Vec::new();
        while let Some(some) = greeting.join_next().await {
            greeted.extend(some.into_iter().flatten());
        }
        greeted.retain(|client| client.stream.is_some());
        greeted
    }

    /// Number of these connections that are still open.
    pub fn quiet(clients: &[Client]) -> u64 {
        clients.iter().filter(|client| client.stream.as_ref().is_some_and(Stream::is_quiet)).count() as u64
    }

    /// Removes up to a page of the run's objects. Returns how many it found and how many of them it
    /// could not remove.
    ///
    /// # Errors
    /// The objects cannot be listed.
    pub async fn sweep_page(self: &Rc<Self>, clients: &mut Vec<Client>) -> Result<(u64, u64), Failure> {
        let Some(first) = clients.first_mut() else { return Ok((0, 0)) };
        let list = self.one(first, &self.list(0, true)).await?.list;
        let text = String::from_utf8_lossy(&list);
        let below = format!("{}/", self.order.run);
        let names: Vec<String> = text
            .split("<Key>")
            .skip(1)
            .filter_map(|rest| rest.split('<').next())
            .map(str::to_string)
            .collect();
        // An endpoint that lists other names than those asked for: they are not ours to remove.
        if let Some(strange) = names.iter().find(|name| !name.starts_with(&below)) {
            return Err(Failure::new(Class::BadAnswer, format!("a list below {below} has {strange}")));
        }
        let found = names.len() as u64;
        let names = Rc::new(RefCell::new(names));
        let mut sweeping = JoinSet::new();
        for mut client in clients.drain(..) {
            let (load, names) = (self.clone(), names.clone());
            sweeping.spawn_local(async move {
                let mut kept = 0;
                loop {
                    let Some(name) = names.borrow_mut().pop() else { break };
                    let mut job =
                        Job { op: Op::Delete, object: 0, head: Vec::new(), body: None, keep: false };
                    load.sign(&mut job, &name, "", EMPTY, None);
                    match load.one(&mut client, &job).await {
                        Ok(_) => load.tally.borrow_mut().done += 1,
                        Err(failure) => {
                            kept += 1;
                            load.failed(&failure);
                            tokio::time::sleep(failure.wait.unwrap_or(PAUSE).clamp(PAUSE, PAUSE_MAX)).await;
                        }
                    }
                }
                (client, kept)
            });
        }
        let mut kept = 0;
        while let Some(done) = sweeping.join_next().await {
            if let Ok((client, of_client)) = done {
                clients.push(client);
                kept += of_client;
            }
        }
        Ok((found, kept))
    }
}

impl Objects {
    /// The next object to put. After the most that there may be, it begins with the first again.
    fn next(&self) -> u64 {
        let next = self.next.get();
        self.next.set((next + 1) % self.most);
        next
    }

    fn put(&self, object: u64) {
        let mut known = self.known.borrow_mut();
        let at = object as usize;
        if known.len() <= at {
            known.resize(at + 1, false);
        }
        if !std::mem::replace(&mut known[at], true) {
            self.there.borrow_mut().push(object as u32);
        }
    }

    fn any(&self, random: u64) -> u64 {
        let there = self.there.borrow();
        there.get((random % there.len().max(1) as u64) as usize).copied().map_or(0, u64::from)
    }
}

/// Percent-encodes a name for a query. Our names have no other character that needs it.
fn encoded(name: &str) -> String {
    name.replace('/', "%2F")
}
