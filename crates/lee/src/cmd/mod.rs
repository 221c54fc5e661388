//! The commands, one file each. A command translates its arguments to a request and the reply to
//! text; it decides nothing about the file system.

mod acl;
mod audit;
mod backup;
mod bin;
mod bucket;
mod completions;
mod config;
mod console;
mod df;
mod doctor;
mod down;
mod du;
mod export;
mod flow;
mod fsck;
mod gateway;
mod group;
mod group_copy;
mod host;
mod import;
mod key;
mod lab;
mod lab_s3;
mod login;
mod man;
mod mirror;
pub mod mount;
mod pool;
mod probe;
mod project;
mod quota;
mod report;
mod restart;
mod scrub;
mod serve;
mod server;
mod service;
mod session;
mod shard;
mod snap;
mod snap_stream;
mod status;
mod sync;
mod token;
mod top;
pub mod up;
mod upgrade;
mod user;
mod volume;
mod watch;
mod why;

use crate::args::Cli;
use crate::control::Flows;
use crate::control::client::{Client, Unreached};
use crate::fail::Fail;
use crate::locate::{self, CellDir};
use crate::logging;
use crate::output::Format;
use crate::progress::Bar;
use crate::session::{self as sessions, Session};
use clap::Subcommand;
use leeward_env::Env;
use leeward_volume::admin::Request;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The commands. One with arguments has no doc comment here, which would replace the help that its
/// `Args` have.
#[derive(Debug, Subcommand)]
pub enum Command {
    Up(up::Args),
    Serve(serve::Args),
    Mount(mount::Args),
    Gateway(gateway::Args),
    Down(down::Args),
    Restart(restart::Args),
    Status(status::Args),
    Console(console::Args),
    Volume(volume::Args),
    Pool(pool::Args),
    Snap(snap::Args),
    Mirror(mirror::Args),
    Backup(backup::Args),
    Bin(bin::Args),
    Import(import::Args),
    Export(export::Args),
    Quota(quota::Args),
    /// Show the space of the cell
    Df,
    Du(du::Args),
    Top(top::Args),
    Why(why::Args),
    Audit(audit::Args),
    Watch(watch::Args),
    Flow(flow::Args),
    Bucket(bucket::Args),
    User(user::Args),
    Key(key::Args),
    Token(token::Args),
    Group(group::Args),
    Project(project::Args),
    Acl(acl::Args),
    Host(host::Args),
    Session(session::Args),
    Server(server::Args),
    Shard(shard::Args),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    Report(report::Args),
    /// Check everything that is stored, in use or not
    Fsck,
    Scrub(scrub::Args),
    /// Make everything durable that was written until now
    Sync,
    Config(config::Args),
    Upgrade(upgrade::Args),
    Doctor(doctor::Args),
    Probe(probe::Args),
    Lab(lab::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// What every command gets: the global options, and the environment to run in.
pub struct Invocation {
    /// Clock and threads.
    pub env: Env,
    /// `--cell`.
    pub cell: Option<OsString>,
    /// `--json`.
    pub format: Format,
}

impl Invocation {
    /// The cell of the command line, the environment or the current directory, which is served on
    /// this machine, if at all.
    ///
    /// # Errors
    /// When none is found.
    pub fn cell(&self) -> Result<CellDir, Fail> {
        self.cell_anywhere()?.here()
    }

    /// The cell, or the mount of one that another machine serves.
    ///
    /// # Errors
    /// When none is found.
    pub fn cell_anywhere(&self) -> Result<CellDir, Fail> {
        locate::cell(self.cell.as_deref())
    }

    /// The cell, or the mount of one, for a command that also takes it as an argument.
    ///
    /// # Errors
    /// When none is found, or two are named.
    pub fn cell_or(&self, dir: Option<&Path>) -> Result<CellDir, Fail> {
        match (dir, &self.cell) {
            (Some(_), Some(_)) => Err(Fail::usage("name the cell once: as DIR, or with --cell")),
            (Some(dir), None) => locate::called(dir.as_os_str(), ""),
            (None, _) => self.cell_anywhere(),
        }
    }

    /// The directory of a cell that may not exist yet.
    ///
    /// # Errors
    /// When none is found, or two are named.
    pub fn directory(&self, dir: Option<PathBuf>) -> Result<PathBuf, Fail> {
        match (dir, &self.cell) {
            (Some(_), Some(_)) => Err(Fail::usage("name the cell once: as DIR, or with --cell")),
            (Some(dir), None) => Ok(dir),
            (None, _) => match locate::told(self.cell.as_deref()) {
                Some((dir, _)) => Ok(dir.into()),
                None => self.cell().map(|cell| cell.path().to_path_buf()),
            },
        }
    }

    /// Runs `work` with a session of the cell.
    ///
    /// # Errors
    /// Those of `work`, or that the cell cannot be found, reached or closed.
    pub fn session<T>(
        &self,
        command: &'static str,
        work: impl FnOnce(&CellDir, &mut Session) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let cell = self.cell_anywhere()?;
        logging::start();
        sessions::with(&self.env, &cell, command, |session| work(&cell, session))
    }

    /// Sends one request to the cell.
    ///
    /// # Errors
    /// As of [`Invocation::session`].
    pub fn ask<R: Request>(&self, command: &'static str, request: &R) -> Result<R::Reply, Fail> {
        self.session(command, |_, session| session.ask(request))
    }

    /// Sends a long request, and shows how far it is.
    ///
    /// # Errors
    /// As of [`Invocation::session`].
    pub fn ask_with_bar<R: Request>(&self, command: &'static str, request: &R) -> Result<R::Reply, Fail> {
        let bar = Bar::new(self.format);
        let ask = |session: &mut Session| session.ask_with_progress(request, &mut |p| bar.show(&p));
        let reply = self.session(command, |_, session| ask(session));
        bar.clear();
        reply
    }
}

/// Runs the command.
///
/// # Errors
/// The command's.
pub fn run(cli: Cli) -> Result<ExitCode, Fail> {
    let format = if cli.json { Format::Json } else { Format::Text };
    let invocation = Invocation { env: Env::real(), cell: cli.cell, format };
    let done = match cli.command {
        Command::Up(args) => up::run(&invocation, args),
        Command::Serve(args) => serve::run(&invocation, args),
        Command::Mount(args) => mount::run(&invocation, args),
        Command::Gateway(args) => gateway::run(&invocation, &args),
        Command::Session(args) => session::run(&invocation, &args),
        Command::Server(args) => server::run(&invocation, &args),
        Command::Shard(args) => shard::run(&invocation, args),
        Command::Login(args) => login::log_in(&invocation, &args),
        Command::Logout(args) => login::log_out(&invocation, &args),
        Command::Down(args) => down::run(&invocation, &args),
        Command::Upgrade(args) => upgrade::run(&invocation, &args),
        Command::Status(args) => return status::run(&invocation, &args),
        Command::Console(args) => console::run(&invocation, &args),
        Command::Restart(args) => restart::run(&invocation, &args),
        Command::Volume(args) => volume::run(&invocation, args),
        Command::Pool(args) => pool::run(&invocation, args),
        Command::Snap(args) => snap::run(&invocation, args),
        Command::Mirror(args) => mirror::run(&invocation, args),
        Command::Bin(args) => bin::run(&invocation, args),
        Command::Quota(args) => quota::run(&invocation, args),
        Command::Df => df::run(&invocation),
        Command::Du(args) => du::run(&invocation, &args),
        Command::Flow(args) => flow::run(&invocation, args),
        Command::Bucket(args) => bucket::run(&invocation, args),
        Command::User(args) => user::run(&invocation, args),
        Command::Key(args) => key::run(&invocation, args),
        Command::Token(args) => token::run(&invocation, args),
        Command::Group(args) => group::run(&invocation, args),
        Command::Project(args) => project::run(&invocation, args),
        Command::Acl(args) => acl::run(&invocation, args),
        Command::Host(args) => host::run(&invocation, args),
        Command::Top(args) => top::run(&invocation, &args),
        Command::Why(args) => why::run(&invocation, &args),
        Command::Audit(args) => audit::run(&invocation, &args),
        Command::Watch(args) => watch::run(&invocation, &args),
        Command::Report(args) => report::run(&invocation, &args),
        Command::Backup(args) => return backup::run(&invocation, args),
        Command::Import(args) => return import::run(&invocation, args),
        Command::Export(args) => return export::run(&invocation, &args),
        Command::Doctor(args) => return doctor::run(&invocation, args),
        Command::Fsck => return fsck::run(&invocation),
        Command::Scrub(args) => return scrub::run(&invocation, args),
        Command::Sync => sync::run(&invocation),
        Command::Config(args) => config::run(&invocation, &args),
        Command::Probe(args) => probe::run(&invocation, args),
        Command::Lab(args) => lab::run(&invocation, args),
        Command::Completions(args) => completions::run(&invocation, &args),
        Command::Man(args) => man::run(&invocation, &args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// What users did and waited for, from the process that serves the cell.
fn flows(cell: &CellDir) -> Result<Flows, Fail> {
    reach(cell)?.flows()
}

/// The process that serves a cell, or has mounted it.
fn reach(cell: &CellDir) -> Result<Client, Fail> {
    match Client::connect(cell) {
        Ok(client) => Ok(client),
        Err(Unreached::Failed(fail)) => Err(fail),
        Err(Unreached::Silent) if cell.remote().is_some() => Err(sessions::unserved_mount(cell)),
        Err(Unreached::Silent) => {
            Err(Fail::new(format!("{cell} is not served: start it with `lee up {cell}`")))
        }
    }
}

/// What a command without a JSON form says to `--json`.
fn only_text(invocation: &Invocation, command: &str) -> Result<(), Fail> {
    match invocation.format {
        Format::Text => Ok(()),
        Format::Json => Err(Fail::usage(format!("`lee {command}` has no JSON form: leave --json out"))),
    }
}

/// A setting that is on or off.
fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no".into()),
    }
}
