//! The commands, one file each. A command translates its arguments to a request and the reply to text; it decides
//! nothing about the file system.

mod bin;
mod bucket;
mod completions;
mod config;
mod df;
mod down;
mod du;
mod flow;
mod fsck;
mod key;
mod lab;
mod lab_s3;
mod man;
mod pool;
mod probe;
mod quota;
mod report;
mod scrub;
mod snap;
mod status;
mod sync;
mod token;
mod top;
mod up;
mod user;
mod volume;
mod why;

use crate::args::Cli;
use crate::control::Flows;
use crate::control::client::{Client, Unreached};
use crate::fail::Fail;
use crate::locate::{self, CellDir};
use crate::logging;
use crate::output::Format;
use crate::progress::Bar;
use crate::session::{self, Session};
use clap::Subcommand;
use leeward_env::Env;
use leeward_volume::admin::Request;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to do. A command with arguments has no line here: it would replace the help that the arguments have.
#[derive(Debug, Subcommand)]
pub enum Command {
    Up(up::Args),
    Down(down::Args),
    Status(status::Args),
    Volume(volume::Args),
    Pool(pool::Args),
    Snap(snap::Args),
    Bin(bin::Args),
    Quota(quota::Args),
    /// Show the space of the cell
    Df,
    Du(du::Args),
    Top(top::Args),
    Why(why::Args),
    Flow(flow::Args),
    Bucket(bucket::Args),
    User(user::Args),
    Key(key::Args),
    Token(token::Args),
    Report(report::Args),
    /// Check everything that is stored, in use or not
    Fsck,
    Scrub(scrub::Args),
    /// Make everything durable that was written until now
    Sync,
    Config(config::Args),
    Probe(probe::Args),
    Lab(lab::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// What every command gets.
pub struct Asked {
    /// Clock and threads.
    pub env: Env,
    /// `--cell`.
    pub cell: Option<OsString>,
    /// `--json`.
    pub format: Format,
}

impl Asked {
    /// The cell that is meant.
    ///
    /// # Errors
    /// When none is found.
    pub fn cell(&self) -> Result<CellDir, Fail> {
        locate::cell(self.cell.as_deref())
    }

    /// The cell that is meant by a command that takes it as an argument, too.
    ///
    /// # Errors
    /// When none is found, or two are named.
    pub fn cell_or(&self, dir: Option<&Path>) -> Result<CellDir, Fail> {
        match (dir, &self.cell) {
            (Some(_), Some(_)) => Err(Fail::usage("name the cell once: as DIR, or with --cell")),
            (Some(dir), None) => locate::called(dir.as_os_str(), ""),
            (None, _) => self.cell(),
        }
    }

    /// The directory that a cell is, or will be, in.
    ///
    /// # Errors
    /// When none is named and none is around, or two are named.
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

    /// Runs `work` with a way to the cell that is meant.
    ///
    /// # Errors
    /// Those of `work`, or that the cell cannot be found, reached or closed.
    pub fn session<T>(
        &self,
        command: &'static str,
        work: impl FnOnce(&CellDir, &mut Session) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let cell = self.cell()?;
        logging::start();
        session::with(&self.env, &cell, command, |session| work(&cell, session))
    }

    /// Asks the cell that is meant for one thing.
    ///
    /// # Errors
    /// As of [`Asked::session`].
    pub fn ask<R: Request>(&self, command: &'static str, request: &R) -> Result<R::Reply, Fail> {
        self.session(command, |_, session| session.ask(request))
    }

    /// Asks for something that takes long, and shows how far it is.
    ///
    /// # Errors
    /// As of [`Asked::session`].
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
    let asked = Asked { env: Env::real(), cell: cli.cell, format };
    let done = match cli.command {
        Command::Up(args) => up::run(&asked, args),
        Command::Down(args) => down::run(&asked, &args),
        Command::Status(args) => return status::run(&asked, &args),
        Command::Volume(args) => volume::run(&asked, args),
        Command::Pool(args) => pool::run(&asked, args),
        Command::Snap(args) => snap::run(&asked, args),
        Command::Bin(args) => bin::run(&asked, args),
        Command::Quota(args) => quota::run(&asked, args),
        Command::Df => df::run(&asked),
        Command::Du(args) => du::run(&asked, &args),
        Command::Flow(args) => flow::run(&asked, args),
        Command::Bucket(args) => bucket::run(&asked, args),
        Command::User(args) => user::run(&asked, args),
        Command::Key(args) => key::run(&asked, args),
        Command::Token(args) => token::run(&asked, args),
        Command::Top(args) => top::run(&asked, &args),
        Command::Why(args) => why::run(&asked, &args),
        Command::Report(args) => report::run(&asked, &args),
        Command::Fsck => return fsck::run(&asked),
        Command::Scrub(args) => return scrub::run(&asked, args),
        Command::Sync => sync::run(&asked),
        Command::Config(args) => config::run(&asked, &args),
        Command::Probe(args) => probe::run(&asked, args),
        Command::Lab(args) => lab::run(&asked, args),
        Command::Completions(args) => completions::run(&asked, &args),
        Command::Man(args) => man::run(&asked, &args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// What flows did and waited, from the process that serves the cell.
fn flows(cell: &CellDir) -> Result<Flows, Fail> {
    match Client::connect(cell) {
        Ok(client) => client.flows(),
        Err(Unreached::Failed(fail)) => Err(fail),
        Err(Unreached::Silent) => {
            Err(Fail::new(format!("{cell} is not served, so nobody waits: start it with `lee up {cell}`")))
        }
    }
}

/// What a command without a JSON form says to `--json`.
fn only_text(asked: &Asked, command: &str) -> Result<(), Fail> {
    match asked.format {
        Format::Text => Ok(()),
        Format::Json => Err(Fail::usage(format!("`lee {command}` has no JSON form: leave --json out"))),
    }
}
