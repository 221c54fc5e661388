//! `lee gateway`: the doors of a cell that another machine serves.

use super::Invocation;
use super::service::{absolute, door_address};
use crate::background::{self, ParentPipe, Role};
use crate::control::client::{Client as Control, Unreached};
use crate::doors::Wanted;
use crate::enrol::{self, Enrol};
use crate::fail::Fail;
use crate::gateway::{self, Bound, Gateway, Options};
use crate::keeper::Kept;
use crate::locate::{self, CellDir};
use crate::metrics::http;
use crate::output::{self, Format};
use crate::serve::{Started, Startup};
use crate::system::Process;
use crate::{logging, memory, notify, when};
use leeward_env::Env;
use serde_json::json;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Open the S3 door and the HTTP door of a cell that another machine serves
///
/// The server must let this machine be a gateway: `lee host add NAME --gateway` there prints a
/// token, which is needed once. Several gateways, the server's own doors and all mounts show the
/// same files at once; keys, tokens, users and buckets are those of the server, and so are the
/// settings of doors, as they were when the gateway started. It stays in the foreground until
/// Ctrl-C or SIGTERM.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The server: its name or address, and its port if that is not 7433
    #[arg(value_name = "HOST[:PORT]", value_parser = enrol::parse_servers)]
    server: String,

    /// Answer S3 there: a port of this machine only (9000), an address with a port, or *:PORT; may
    /// be given several times
    ///
    /// Without a certificate only on addresses of this machine.
    #[arg(long, value_name = "ADDRESS", value_parser = door_address, required_unless_present_any = ["http", "stop", "status"])]
    s3: Vec<String>,

    /// Answer HTTP and WebDAV there: written as for --s3; may be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = door_address)]
    http: Vec<String>,

    /// The token that `lee host add` has printed; needed the first time only
    ///
    /// Other users of this machine may see it here until it is used, which it can be once. The
    /// environment variable LEE_GATEWAY_TOKEN hides it.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// How long requests wait for a server that does not answer, before they are told to come back
    /// (503), such as 30s
    #[arg(long, value_name = "TIME", value_parser = when::parse_duration, default_value = "20s")]
    timeout: Duration,

    /// The certificate that doors show, in PEM format, with those that sign it; read again when it
    /// changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// Its key, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Authorities that sign certificates of clients: a file with certificates in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_clients: Option<PathBuf>,

    /// CA certificates that third-party copies trust besides those of the machine: a file with
    /// certificates in PEM, or a directory of such
    #[arg(long, value_name = "PATH")]
    tls_trusted: Option<PathBuf>,

    /// Answer Prometheus there: a port of this machine only (9547), or an address with a port; may
    /// be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = http::parse)]
    metrics: Vec<SocketAddr>,

    /// Return as soon as the doors are open; --stop ends it
    ///
    /// When its process is killed, it is started again. Its log and the access log are in a
    /// directory below /run/leeward/gateways, or of LEE_STATE_DIR.
    #[arg(long)]
    background: bool,

    /// With --background: when its process is killed, it stays down
    #[arg(long, requires = "background")]
    no_keeper: bool,

    /// End the gateway to this server that runs on this machine
    #[arg(long, conflicts_with_all = ["s3", "http", "background", "status", "token"])]
    stop: bool,

    /// Show whether a gateway to this server runs on this machine, and whether the server answers
    #[arg(long, conflicts_with_all = ["s3", "http", "background", "token"])]
    status: bool,
}

const EXAMPLES: &str = "\
Examples:
  lee gateway node1 --token TOKEN --s3 9000 --http 8080
  lee gateway node1 --s3 '*:443' --tls-certificate cert.pem --tls-key key.pem --background
  lee gateway node1 --status
  lee gateway node1 --stop
";

/// The variable by which a process in the background gets the token.
const TOKEN: &str = "LEE_GATEWAY_TOKEN";
/// A process that was asked to end lets requests at work end.
const END_WAIT: Duration = Duration::from_secs(30);
/// A keeper whose server has ended has only to exit.
const KEEPER_WAIT: Duration = Duration::from_secs(2);

impl Args {
    /// The command line of the process in the background, without the token: the environment has
    /// that.
    fn command_line(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["gateway".into(), (&self.server).into()];
        let mut add = |name: &str, value: OsString| line.extend([name.into(), value]);
        self.s3.iter().for_each(|address| add("--s3", address.into()));
        self.http.iter().for_each(|address| add("--http", address.into()));
        self.metrics.iter().for_each(|address| add("--metrics", address.to_string().into()));
        for (name, file) in [
            ("--tls-certificate", &self.tls_certificate),
            ("--tls-key", &self.tls_key),
            ("--tls-clients", &self.tls_clients),
            ("--tls-trusted", &self.tls_trusted),
        ] {
            file.iter().for_each(|file| add(name, absolute(file).into_os_string()));
        }
        add("--timeout", format!("{}ms", self.timeout.as_millis()).into());
        line.push("--background".into());
        line
    }

    fn options(&self) -> Options {
        // a process in the background has another directory later on
        let absolute = |file: &Option<PathBuf>| file.as_ref().map(|file| absolute(file));
        Options {
            server: self.server.clone(),
            timeout: self.timeout,
            doors: Wanted {
                s3: self.s3.clone(),
                http: self.http.clone(),
                listen: Vec::new(),
                certificate: absolute(&self.tls_certificate),
                key: absolute(&self.tls_key),
                clients: absolute(&self.tls_clients),
            },
            trusted: absolute(&self.tls_trusted),
            metrics: self.metrics.clone(),
        }
    }
}

/// Runs it.
///
/// # Errors
/// Why it is no gateway.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let env = &invocation.env;
    if let Some(mut parent) = ParentPipe::if_child()? {
        return in_background(env, args, &mut parent).inspect_err(|fail| parent.failed(fail));
    }
    locate::make_state_absolute();
    if args.stop {
        return stop(invocation, args, &running(args)?);
    }
    if args.status {
        return status(invocation.format, args, &running(args)?);
    }
    let state = locate::gateway_state(&args.server)?;
    gateway::refuse_if_running(&state, &args.server)?;
    // one that tries in vain stands aside
    if let Some(kept) = Kept::find(env, &state).filter(|kept| kept.record.waiting.is_some()) {
        kept.end(&state)?;
    }
    if !args.background {
        logging::start();
        let gateway = start(env, args, &state)?;
        notify::ready();
        let told = announce(invocation.format, args, &gateway.started(), &gateway.host(), "Ctrl-C ends it");
        told.unwrap_or_else(|fail| output::note(&format!("lee: {fail}")));
        gateway.wait();
        return Ok(());
    }
    if let Some(token) = &args.token {
        // SAFETY: this process has one thread yet.
        unsafe { std::env::set_var(TOKEN, token) };
    }
    let role = if args.no_keeper { Role::Server } else { Role::Keeper };
    let started = background::start_with_log(&state.log(), &args.command_line(), role)?;
    let end = format!("lee gateway {} --stop ends it", args.server);
    announce(invocation.format, args, &started, &started.cell.to_string_lossy(), &end)
}

fn start(env: &Env, args: &Args, state: &CellDir) -> Result<Gateway, Fail> {
    let options = args.options();
    let bound = Bound::bind(&options)?;
    let (token, timeout) = (args.token.as_deref(), Some(args.timeout));
    let enrol =
        Enrol { server: &args.server, token, variable: TOKEN, timeout, cache: None, follows_at: None };
    let client = enrol::connect(env, &enrol)?;
    memory::of_process(env);
    let started = Gateway::start(env, (&options, state), bound, client.clone());
    started.inspect_err(|_| client.close())
}

fn in_background(env: &Env, args: &Args, parent: &mut ParentPipe) -> Result<(), Fail> {
    let state = locate::gateway_state(&args.server)?;
    gateway::refuse_if_running(&state, &args.server)?;
    let gateway = start(env, args, &state)?;
    parent.log_to(&state.log())?;
    parent.started(&Started { cell: gateway.host().into(), ..gateway.started() })?;
    gateway.wait();
    Ok(())
}

fn announce(format: Format, args: &Args, started: &Started, host: &str, end: &str) -> Result<(), Fail> {
    let Started { doors, metrics, pid, .. } = started;
    let value = json!({"server": args.server, "host": host, "doors": doors, "metrics": metrics, "pid": pid});
    output::show(format, &value, || {
        let mut text = format!("a gateway of {}, as the host {host}\n", args.server);
        doors.iter().for_each(|(door, url)| text.push_str(&format!("the {door} door is at {url}\n")));
        metrics.iter().for_each(|url| text.push_str(&format!("metrics are at {url}\n")));
        text + end + "\n"
    })
}

/// What is kept of the gateway that runs: of this user's own, else of a service.
fn running(args: &Args) -> Result<CellDir, Fail> {
    let own = locate::gateway_state(&args.server)?;
    let of_service = locate::gateway_of_service(&args.server);
    Ok(of_service.filter(|_| matches!(Control::connect(&own), Err(Unreached::Silent))).unwrap_or(own))
}

fn reach(args: &Args, state: &CellDir) -> Result<Control, Fail> {
    Control::connect(state).map_err(|e| match e {
        Unreached::Failed(fail) => fail,
        Unreached::Silent => Fail::new(format!("no gateway of {} runs on this machine", args.server)),
    })
}

fn status(format: Format, args: &Args, state: &CellDir) -> Result<(), Fail> {
    let running = reach(args, state)?.mount()?;
    output::show(format, &running, || {
        let server = match &running.away {
            None => "the server answers".to_owned(),
            Some((secs, why)) => format!("the server has not answered for {secs} s ({why})"),
        };
        let log = state.log();
        let (pid, host) = (running.pid, &running.host);
        format!(
            "a gateway of {}, as the host {host}, process {pid}; {server}\nlog {}",
            args.server,
            log.display()
        )
    })
}

fn stop(invocation: &Invocation, args: &Args, state: &CellDir) -> Result<(), Fail> {
    let kept = Kept::find(&invocation.env, state);
    let pid = match (reach(args, state), &kept) {
        (Ok(asked), _) => {
            let pid = asked.mount()?.pid;
            let process = Process::open(pid);
            reach(args, state)?.end_mount()?;
            if process.is_some_and(|process| !process.ended_within(END_WAIT)) {
                return Err(Fail::new(format!("its process, {pid}, was asked to end and is still there")));
            }
            Some(pid)
        }
        (Err(_), Some(_)) => None,
        (Err(fail), None) => return Err(fail),
    };
    if let Some(kept) = kept
        && !kept.ended_within(if pid.is_some() { KEEPER_WAIT } else { Duration::ZERO })
    {
        kept.end(state)?;
    }
    let value = json!({"server": args.server, "ended": true, "pid": pid});
    output::show(invocation.format, &value, || format!("the gateway of {} has ended", args.server))
}
