//! The process of `lee gateway`: the S3 door and the HTTP door of a cell that another machine
//! serves.
//!
//! The doors are those of a served cell. Their requests go over the connection of a mount, each in
//! the name of its user. Nothing of files is kept here, so gateways, mounts and the server's own
//! doors see the same.

pub mod access;
mod cell;

use crate::control::SocketPath;
use crate::control::client::Client as Control;
use crate::control::relay::Relay;
use crate::control::server::Server;
use crate::doors::{self, Doors, Inside, Wanted};
use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::metrics::{self, http::Listeners};
use crate::serve::Started;
use crate::system;
use cell::CellThere;
use leeward_auth::{Authority, HttpFetch};
use leeward_door::Files;
use leeward_env::Env;
use leeward_remote::Client;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The mode of the control socket: for who started the gateway, and root.
const PRIVATE: u32 = 0o600;

/// What is wanted of a gateway.
pub struct Options {
    /// The server.
    pub server: String,
    /// How long requests wait for a server that does not answer.
    pub timeout: Duration,
    /// Addresses of the doors, and their certificates.
    pub doors: Wanted,
    /// CA certificates that third-party copies trust besides those of the machine.
    pub trusted: Option<PathBuf>,
    /// Addresses that answer Prometheus.
    pub metrics: Vec<SocketAddr>,
}

/// Addresses that are bound, before the server is asked: one that is in use is reported at once.
pub struct Bound {
    doors: doors::Bound,
    metrics: Listeners,
}

impl Bound {
    /// Binds them.
    ///
    /// # Errors
    /// When one cannot be bound.
    pub fn bind(options: &Options) -> Result<Bound, Fail> {
        Ok(Bound { doors: doors::bind(&options.doors)?, metrics: Listeners::bind(&options.metrics)? })
    }
}

/// A gateway that runs. Its fields are dropped in this order.
pub struct Gateway {
    /// Hears commands.
    _control: Server,
    doors: Doors,
    client: Client,
    server: String,
    metrics: Vec<String>,
    ended: Receiver<()>,
}

/// Refuses when a gateway to the same server runs on this machine.
///
/// # Errors
/// One does.
pub fn refuse_if_running(state: &CellDir, server: &str) -> Result<(), Fail> {
    match Control::connect(state).ok().and_then(|control| control.mount().ok()) {
        None => Ok(()),
        Some(running) => Err(Fail::new(format!(
            "this machine is a gateway of {server} already (process {}): `lee gateway {server} --stop` ends it",
            running.pid
        ))),
    }
}

impl Gateway {
    /// Opens the doors, to a cell that `client` is connected to.
    ///
    /// # Errors
    /// The server does not let this machine be a gateway, or the doors cannot be opened.
    pub fn start(
        env: &Env,
        (options, state): (&Options, &CellDir),
        bound: Bound,
        client: Client,
    ) -> Result<Gateway, Fail> {
        system::make_private_files();
        let cell = CellThere::new(env, &client, &options.server)?;
        let (settings, accounts) = cell.known();
        let mut config = settings.to_config();
        if let Some(trusted) = &options.trusted {
            config.tls_trusted = trusted.to_string_lossy().into_owned();
        }
        let fetch = Arc::new(HttpFetch::new());
        let authority = Authority::new(env, &config.issuer, accounts, cell.clone(), fetch);
        let wrong = |why| Fail::new(format!("the settings of {}: {why}", options.server));
        let authority = Arc::new(authority.map_err(wrong)?.with_certificates(&config.tls_users));
        cell.watch(&authority);
        let doors = bound.doors.open(Inside {
            env,
            cell: cell.clone(),
            files: Files::new(&client.for_doors(), env),
            authority: &authority,
            config: &config,
            log: state.log(),
            guard: Some((cell, options.timeout)),
            host: client.host(),
            // it asks what only the server knows
            console: None,
        })?;
        let (since, figures) = ((env.wall() / 1_000_000_000) as i64, doors.figures());
        let metrics = bound.metrics.urls();
        bound.metrics.serve(env, metrics::CONTENT_TYPE, None, move || metrics::of_doors(&figures, since));
        let (end, ended) = channel();
        // before anybody is told that it runs
        let signalled = end.clone();
        system::on_signals(env, move |_| _ = signalled.send(()))?;
        let control = listen(env, state, (&client, &options.server), &end)?;
        let server = options.server.clone();
        Ok(Gateway { _control: control, doors, client, server, metrics, ended })
    }

    /// What is told when it runs.
    pub fn started(&self) -> Started {
        Started {
            cell: self.server.clone().into(),
            mount: None,
            listen: Vec::new(),
            metrics: self.metrics.clone(),
            doors: self.doors.urls(),
            pid: std::process::id(),
            created: false,
            stale: Vec::new(),
            took_over: None,
            served_by: None,
        }
    }

    /// The name of this machine at the server.
    pub fn host(&self) -> String {
        self.client.host()
    }

    /// Serves until a signal or a command ends it: requests at work end first.
    pub fn wait(self) {
        // who hears signals has a sender as long as there is the process
        let _ = self.ended.recv();
        drop(self.doors);
        self.client.close();
    }
}

/// Listens for commands.
fn listen(
    env: &Env,
    state: &CellDir,
    (client, server): (&Client, &str),
    end: &Sender<()>,
) -> Result<Server, Fail> {
    let end = end.clone();
    let relay = Relay {
        env: env.clone(),
        client: client.clone(),
        server: server.to_owned(),
        for_all: false,
        end: Box::new(move || _ = end.send(())),
    };
    let failed = |e: io::Error| Fail::new(format!("{state}: cannot make the control socket: {}", text(&e)));
    let socket = SocketPath::of(state).map_err(failed)?;
    Server::listen(env, socket, PRIVATE, Arc::new(relay)).map_err(failed)
}
