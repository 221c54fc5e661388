//! One process of a load. It reads commands from standard input, a line of JSON each, and writes
//! the outcome of each. It ends when standard input ends. That also happens when the process that
//! started it dies.

use super::load::{Client, Load, Step};
use super::target::Target;
use super::{Class, Failure, Op};
use crate::Refused;
use leeward_env::{Env, processor_time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::LocalSet;

/// Interval at which it reports its progress.
const TICK: Duration = Duration::from_millis(250);
/// Time that requests in flight may take after a stop.
const STOP_MAX: Duration = Duration::from_secs(3);
/// Clients that put objects before the steps and remove them afterwards.
const HELPERS: usize = 64;
/// Number of tries that putting and removing have.
const TRIES: u32 = 5;
/// A limit of time that is never reached: a command takes less than an hour.
const FOREVER: Duration = Duration::from_secs(86_400);

/// The first line that a process reads: its part of the load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Where the load goes.
    pub target: Target,
    /// Number of this process, from 0.
    pub number: u64,
    /// The beginning of all names of the run, without a slash at the end.
    pub run: String,
    /// Most objects that this process may have at a time.
    pub objects: u64,
    /// Sizes in bytes with their weights.
    pub sizes: Vec<(u64, u32)>,
    /// Pause of a client after each answer, in milliseconds.
    pub pause_ms: u64,
    /// Time that a request may take, with opening its connection, in milliseconds.
    pub patience_ms: u64,
    /// Addresses that connections come from. If there is none, the system chooses.
    pub sources: Vec<IpAddr>,
}

impl Order {
    /// Name of an object, with the run's prefix.
    pub fn name(&self, object: u64) -> String {
        format!("{}/w{}/{object:08}", self.run, self.number)
    }

    /// Size of an object. It never changes, so a reader knows what to expect.
    pub fn size_of(&self, object: u64) -> u64 {
        pick(&self.sizes, object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).unwrap_or(0)
    }

    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(self.pause_ms)
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms)
    }
}

/// Picks one of the elements, each as often as its weight says, with a number that is evenly
/// distributed. Returns `None` if no element has a weight.
pub(super) fn pick<T: Copy>(of: &[(T, u32)], number: u64) -> Option<T> {
    let all: u64 = of.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut at = number.checked_rem(all)?;
    for (one, weight) in of {
        match at.checked_sub(u64::from(*weight)) {
            Some(rest) => at = rest,
            None => return Some(*one),
        }
    }
    None
}

/// A command to a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Command {
    /// Make the bucket if so asked. Then put an object, get it and ask for its attributes.
    Try {
        /// Whether to make the bucket.
        make_bucket: bool,
    },
    /// Hold this many idle connections.
    Idle {
        /// Number of connections.
        connections: u64,
    },
    /// Put objects, to be read later.
    Fill {
        /// Number of objects that there must be.
        objects: u64,
    },
    /// Have exactly this many connections.
    Open {
        /// Number of connections.
        connections: u64,
    },
    /// Let the connections send requests.
    Step {
        /// Operations with their weights.
        mix: Vec<(Op, u32)>,
        /// Time in which requests may begin, in milliseconds.
        lasts_ms: u64,
        /// Most requests that may begin.
        requests: Option<u64>,
    },
    /// Remove all objects of the run, whichever process has put them.
    Sweep {
        /// Whether to remove the bucket afterwards.
        remove_bucket: bool,
    },
    /// Begin no more requests. The outcome of the current command follows soon.
    Stop,
}

/// The outcome of a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Time to which `in_time` refers, in seconds.
    pub seconds: f64,
    /// Processor time that the process used, in seconds.
    pub cpu_s: f64,
    /// Requests that succeeded, by operation.
    pub ops: BTreeMap<Op, Counted>,
    /// Requests and connections that failed, by class, with the text of the first one.
    pub errors: BTreeMap<String, (u64, String)>,
    /// Clients that sent requests and never got a right answer.
    pub unserved: u64,
    /// Connections that were opened before the step.
    pub opened: u64,
    /// Idle connections that are still open.
    pub quiet: u64,
    /// Objects that this process has put.
    pub objects: u64,
    /// Why the command could not be carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot: Option<String>,
}

/// Successes of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Successes that ended while the step lasted.
    pub in_time: u64,
    /// Bytes that these moved.
    pub bytes: u64,
    /// All successes: pairs of a latency in microseconds and its count.
    pub latencies: Vec<(u64, u64)>,
}

/// A line that a process writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// Progress of the current command: numbers of successes and failures.
    Tick(u64, u64),
    /// The command is done.
    Done(Box<Outcome>),
}

/// Serves until the input ends. The first line is an [`Order`], each further line a [`Command`].
///
/// # Errors
/// The order cannot be read, or the output is closed.
pub fn serve(env: &Env, input: impl Read + Send + 'static, output: impl Write) -> io::Result<()> {
    let mut lines = BufReader::new(input).lines();
    let Some(first) = lines.next().transpose()? else { return Ok(()) };
    let order: Order = serde_json::from_str(&first)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (tell, commands) = unbounded_channel();
    env.spawn("lab-commands", move || {
        for line in lines.map_while(Result::ok) {
            let Ok(command) = serde_json::from_str(&line) else { return };
            if tell.send(command).is_err() {
                return;
            }
        }
    });
    let served = LocalSet::new().block_on(&runtime, Worker::serve(env, order, commands, output));
    // A name lookup that still runs must not delay the end.
    runtime.shutdown_background();
    served
}

struct Worker<W> {
    env: Env,
    load: Rc<Load>,
    clients: Vec<Client>,
    idle: Vec<Client>,
    commands: UnboundedReceiver<Command>,
    /// Whether a stop came, or the end of the input.
    over: bool,
    output: W,
}

impl<W: Write> Worker<W> {
    async fn serve(
        env: &Env,
        order: Order,
        mut commands: UnboundedReceiver<Command>,
        output: W,
    ) -> io::Result<()> {
        let load = match Load::new(env, order) {
            Ok(load) => Rc::new(load),
            Err(Refused(why)) => {
                let mut output = output;
                // This is the answer to the first command, whichever it is.
                let _ = commands.recv().await;
                return say(
                    &mut output,
                    &Line::Done(Box::new(Outcome { cannot: Some(why), ..Outcome::default() })),
                );
            }
        };
        let mut worker = Worker {
            env: env.clone(),
            load,
            clients: Vec::new(),
            idle: Vec::new(),
            commands,
            over: false,
            output,
        };
        while let Some(command) = worker.commands.recv().await {
            if command == Command::Stop {
                continue;
            }
            let (began, cpu) = (worker.env.now(), processor_time());
            let done = worker.obey(command).await?;
            let mut outcome = worker.load.outcome(began, done.seconds);
            outcome = Outcome {
                cpu_s: (processor_time() - cpu).as_secs_f64(),
                objects: worker.load.put(),
                ..outcome
            };
            outcome.quiet = Load::quiet(&worker.idle);
            outcome.cannot = done.cannot;
            say(&mut worker.output, &Line::Done(Box::new(outcome)))?;
        }
        Ok(())
    }

    /// Runs a command and reports its progress. A stop ends it soon.
    async fn obey(&mut self, command: Command) -> io::Result<Done> {
        let load = self.load.clone();
        load.resume();
        let (mut clients, mut idle) = (std::mem::take(&mut self.clients), std::mem::take(&mut self.idle));
        let mut done = Done { seconds: f64::INFINITY, cannot: None };
        {
            let work = perform(&load, command, &mut clients, &mut idle, &mut done);
            tokio::pin!(work);
            let mut tick = tokio::time::interval(TICK);
            let end = tokio::time::sleep(FOREVER);
            tokio::pin!(end);
            loop {
                tokio::select! {
                    () = &mut work => break,
                    () = &mut end => break,
                    _ = tick.tick() => {
                        let (successes, failures) = load.so_far();
                        say(&mut self.output, &Line::Tick(successes, failures))?;
                    }
                    told = self.commands.recv(), if !self.over => if matches!(told, None | Some(Command::Stop)) {
                        self.over = true;
                        load.stop();
                        end.as_mut().reset(tokio::time::Instant::now() + STOP_MAX);
                    }
                }
            }
        }
        self.over = false;
        (self.clients, self.idle) = (clients, idle);
        Ok(done)
    }
}

struct Done {
    /// The command's time counts at most this long, in seconds.
    seconds: f64,
    cannot: Option<String>,
}

async fn perform(
    load: &Rc<Load>,
    command: Command,
    clients: &mut Vec<Client>,
    idle: &mut Vec<Client>,
    done: &mut Done,
) {
    match command {
        Command::Try { make_bucket } => {
            done.cannot =
                attempt(load, make_bucket).await.err().map(|(what, failure)| error_text(&what, &failure));
        }
        Command::Idle { connections } => {
            load.open(idle, connections as usize).await;
            *idle = load.warm_up(std::mem::take(idle)).await;
        }
        Command::Fill { objects } => {
            let mut helpers = Vec::new();
            load.open(&mut helpers, HELPERS.min(objects as usize)).await;
            for _ in 0..TRIES {
                let missing = objects.saturating_sub(load.put());
                if missing == 0 {
                    return;
                }
                let step = Step { mix: vec![(Op::Put, 1)], lasts: FOREVER, requests: missing };
                helpers = load.step(helpers, step).await;
            }
        }
        Command::Open { connections } => load.open(clients, connections as usize).await,
        Command::Step { mix, lasts_ms, requests } => {
            let lasts = Duration::from_millis(lasts_ms);
            done.seconds = lasts.as_secs_f64();
            let step = Step { mix, lasts, requests: requests.unwrap_or(u64::MAX) };
            *clients = load.step(std::mem::take(clients), step).await;
        }
        Command::Sweep { remove_bucket } => done.cannot = sweep(load, remove_bucket).await,
        Command::Stop => {}
    }
}

/// Sends a request of each kind, so that mistakes are reported before there is any load.
async fn attempt(load: &Rc<Load>, make_bucket: bool) -> Result<(), (String, Failure)> {
    let mut client = load.client();
    if make_bucket {
        match load.one(&mut client, &load.bucket(Op::Put)).await {
            Ok(_) | Err(Failure { class: Class::Status(409), .. }) => {}
            Err(failure) => return Err(("the bucket cannot be made".into(), failure)),
        }
    }
    for op in [Op::Put, Op::Get, Op::Head] {
        if let Err(failure) = load.one(&mut client, &load.on(op, 0)).await {
            // A run that does not begin leaves nothing behind, as far as that is possible.
            if op != Op::Put {
                let _ = load.one(&mut client, &load.on(Op::Delete, 0)).await;
            }
            return Err((format!("the first {} failed", op.name()), failure));
        }
    }
    Ok(())
}

fn error_text(what: &str, failure: &Failure) -> String {
    let text = if failure.text.is_empty() { String::new() } else { format!(" ({})", failure.text) };
    let next = match failure.class {
        Class::Refused | Class::Unreachable | Class::TimeOut => "is the endpoint there?",
        Class::Status(403 | 401) => "check the keys, the region and the clock",
        Class::Status(404) => "make the bucket, or use --make-bucket",
        Class::Tls => "is it https there, with a certificate that is trusted? --ca names another authority",
        _ => "check the endpoint",
    };
    format!("{what}: {}{text}: {next}", failure.class)
}

/// Removes the run's objects page by page, until there is none or none can be removed any more.
async fn sweep(load: &Rc<Load>, remove_bucket: bool) -> Option<String> {
    let mut clients: Vec<Client> = (0..HELPERS).map(|_| load.client()).collect();
    let mut tries = TRIES;
    loop {
        let stuck = match load.sweep_page(&mut clients).await {
            Ok((0, _)) => break,
            Ok((found, kept)) if kept < found => {
                tries = TRIES;
                continue;
            }
            Ok((found, _)) => format!("{found} objects or more cannot be removed"),
            Err(failure) => error_text("what is left cannot be listed", &failure),
        };
        tries -= 1;
        if tries == 0 {
            return Some(stuck);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    if remove_bucket && let Err(failure) = load.one(&mut clients[0], &load.bucket(Op::Delete)).await {
        return Some(error_text("the bucket cannot be removed", &failure));
    }
    None
}

fn say(output: &mut impl Write, line: &Line) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    output.write_all(&bytes).and_then(|()| output.flush())
}
