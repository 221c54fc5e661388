//! The `lee` command: everything an operator does with a cell.
//!
//! One file per subcommand in `cmd/`; what they share is in the modules here. The command line
//! decides nothing about the file system: it finds the cell (`locate`), reaches it (`session`:
//! through the control socket of the process that serves it, or by opening it under the lock), asks
//! one `leeward_volume::admin::Request`, and shows the reply (`output`). `lee up` is the exception:
//! it is the process that serves (`serve`, `metrics`), in the background with a keeper that starts
//! it again after a crash (`background`, `keeper`). `place` knows what differs for a cell in a
//! bucket.
//!
//! Errors are values (`fail::Fail`) that name the thing, the cause and the next step; they are
//! printed once, here.

mod args;
mod background;
mod backup;
mod cmd;
mod console;
mod control;
mod doctor;
#[cfg(test)]
mod documents;
mod doors;
mod enrol;
mod fail;
mod gateway;
mod group_names;
mod groups;
mod host_commands;
mod host_keys;
mod keeper;
mod locate;
mod lock;
mod logging;
mod machines;
mod memory;
mod metrics;
mod mirror;
mod mount_helper;
mod mount_options;
mod mounts;
mod names;
mod notify;
mod output;
mod people;
mod place;
mod progress;
#[cfg(test)]
mod rights_document;
mod serve;
mod servers;
mod session;
mod settings;
mod size;
mod srr;
mod summary;
mod system;
mod tokens;
mod when;

use leeward_env::limit_arenas;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    limit_arenas();
    if let Some(code) = keeper::if_keeper() {
        return code;
    }
    if let Some(code) = mount_helper::if_helper() {
        return code;
    }
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    system::raise_open_files_limit();
    match cmd::run(cli) {
        Ok(code) => code,
        Err(fail) => {
            // Nobody may be listening; there is nothing left to do about it then.
            let _ = writeln!(std::io::stderr(), "lee: {fail}");
            fail.exit_code()
        }
    }
}
