//! All processes of a load, from the view of the process that runs it.

use super::worker::{Command, Line, Order, Outcome};
use crate::stop::Stop;
use leeward_env::Env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// A process that runs [`super::worker::serve`], or a thread that stands for one.
pub struct Hand {
    /// Its standard input.
    pub input: Box<dyn Write + Send>,
    /// Its standard output.
    pub output: Box<dyn Read + Send>,
    /// To be collected in the end.
    pub child: Option<Child>,
}

/// All of them. Dropped, they end.
pub struct Crew {
    env: Env,
    inputs: Vec<Box<dyn Write + Send>>,
    children: Vec<Child>,
    /// Output of each process; `None` when it has ended.
    said: Receiver<(usize, Option<Line>)>,
}

/// Progress of all with a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoFar {
    /// Requests that succeeded.
    pub done: u64,
    /// Requests and connections that failed.
    pub failed: u64,
    /// Since the command was given.
    pub elapsed: Duration,
}

impl Crew {
    /// Starts one for each order.
    ///
    /// # Errors
    /// The system's.
    pub fn start(env: &Env, orders: &[Order], launch: &dyn Fn() -> io::Result<Hand>) -> io::Result<Crew> {
        let (tell, said) = channel();
        let mut crew = Crew { env: env.clone(), inputs: Vec::new(), children: Vec::new(), said };
        for (n, order) in orders.iter().enumerate() {
            let mut hand = launch()?;
            crew.children.extend(hand.child);
            send(&mut hand.input, order)?;
            crew.inputs.push(hand.input);
            let tell = tell.clone();
            env.spawn("lab-crew", move || {
                let lines = BufReader::new(hand.output).lines().map_while(Result::ok);
                for line in lines.map_while(|line| serde_json::from_str(&line).ok()) {
                    // Nobody hears it when the run is over.
                    let _ = tell.send((n, Some(line)));
                }
                let _ = tell.send((n, None));
            });
        }
        Ok(crew)
    }

    /// Gives the first processes a command each, and waits until all are done; after a stop they
    /// are soon.
    ///
    /// # Errors
    /// A process ended.
    pub fn ask(
        &mut self,
        commands: &[Command],
        stop: Option<&Stop>,
        watch: &mut dyn FnMut(SoFar),
    ) -> io::Result<Vec<Outcome>> {
        for (input, command) in self.inputs.iter_mut().zip(commands) {
            send(input, command)?;
        }
        let (began, mut stopping) = (self.env.now(), false);
        let mut outcomes: Vec<Option<Outcome>> = vec![None; commands.len().min(self.inputs.len())];
        let mut ticks = vec![(0, 0); outcomes.len()];
        while outcomes.iter().any(Option::is_none) {
            if !stopping && stop.is_some_and(Stop::asked) {
                stopping = true;
                self.inputs.iter_mut().try_for_each(|input| send(input, &Command::Stop))?;
            }
            match self.said.recv_timeout(LOOK) {
                Ok((n, Some(Line::Tick(done, failed)))) if n < ticks.len() => ticks[n] = (done, failed),
                Ok((n, Some(Line::Done(outcome)))) if n < outcomes.len() => outcomes[n] = Some(*outcome),
                Ok((_, Some(_))) | Err(RecvTimeoutError::Timeout) => {}
                Ok((_, None)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("one of its processes ended before its time"));
                }
            }
            let (done, failed) = ticks.iter().fold((0, 0), |sum, tick| (sum.0 + tick.0, sum.1 + tick.1));
            watch(SoFar { done, failed, elapsed: Duration::from_nanos(self.env.now() - began) });
        }
        Ok(outcomes.into_iter().flatten().collect())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.inputs.clear();
        for child in &mut self.children {
            // It ends with its input, within seconds; it has removed what it should remove, or
            // reported it as left.
            let _ = child.wait();
        }
    }
}

fn send<T: serde::Serialize>(input: &mut impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    input.write_all(&line).and_then(|()| input.flush())
}
