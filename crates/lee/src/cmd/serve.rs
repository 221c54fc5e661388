//! `lee serve`: serve a cell to other machines, without mounting it here.

use super::Invocation;
use super::service::{Service, absolute};
use super::up::{self, Terminal};
use crate::background::{self, ParentPipe};
use crate::fail::Fail;
use crate::serve::{self, KeptBy, ServeOptions};
use crate::{enrol, locate, logging, machines};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Serve a cell to other machines, without mounting it here; make it where there is none
///
/// Other machines mount it with `lee mount`, after `lee host add`. It listens on port 7433 of all
/// addresses, if neither --listen nor the settings say otherwise. All else is as with `lee up`.
///
/// Of a cell in a bucket there may be several servers: start each in the same way, on machines of
/// their own. One has the cell, the others stand by; see lee server.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    service: Service,

    /// Where clients reach this server of several, such as node1:7433; may be given several times
    /// [else: where it listens, with the name of this machine]
    #[arg(long, value_name = "HOST:PORT", value_parser = enrol::parse_server)]
    advertise: Vec<String>,
}

impl Args {
    fn command_line(&self, dir: &Path) -> Vec<OsString> {
        let mut line = vec!["serve".into(), absolute(dir).into_os_string()];
        self.advertise.iter().for_each(|address| line.extend(["--advertise".into(), address.into()]));
        line.extend(self.service.command_line());
        line
    }

    fn options(self, dir: PathBuf, kept: Option<KeptBy>) -> ServeOptions {
        let mut options = self.service.options(dir, kept);
        options.advertise = Some(self.advertise);
        options.listen_usually = Some(format!("*:{}", machines::PORT));
        options
    }
}

/// Runs it.
///
/// # Errors
/// Why the cell could not be served, or not be ended cleanly.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    let dir = invocation.directory(args.service.dir.clone())?;
    if let Some(mut parent) = ParentPipe::if_child()? {
        let options = args.options(dir, background::kept_by());
        return serve::serve(&invocation.env, &options, &mut parent).inspect_err(|fail| parent.failed(fail));
    }
    // a keeper that waits stands aside
    up::meet_keeper(&invocation.env, &dir)?;
    if !args.service.background {
        logging::start();
        let options = args.options(dir, None);
        return serve::serve(&invocation.env, &options, &mut Terminal { format: invocation.format });
    }
    locate::make_state_absolute();
    let started = background::start(&dir, &args.command_line(&dir), args.service.role())?;
    up::announce(invocation.format, &started, &format!("ends it: lee down {}", started.cell.display()))
}
