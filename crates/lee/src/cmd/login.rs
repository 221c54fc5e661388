//! `lee login` and `lee logout`: a user of this machine proves to the server of a mount who that
//! is.

use super::Invocation;
use crate::control::client::{Client, Unreached};
use crate::fail::{Fail, text};
use crate::locate::{self, CellDir};
use crate::{output, session, system, when};
use leeward_auth::bound_to_host;
use serde_json::json;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;

/// The variable that may have the token.
const TOKEN: &str = "LEE_TOKEN";
/// Longest token, bytes.
const TOKEN_BYTES_MAX: u64 = 16 << 10;

/// Prove to the server of a mount who you are, where it does not believe this machine
///
/// For machines that were added by `lee host add NAME --trust user`, such as laptops: nobody there
/// may do anything before. The token is read from standard input, or from the environment variable
/// LEE_TOKEN: one that `lee token create USER --read --write` has printed on the server, or one of
/// an issuer that the cell trusts. It counts for your user id on this machine, until it ends, you
/// log out or it is unmounted.
#[derive(Debug, clap::Args)]
pub struct LoginArgs {
    /// The mount, or a path in it
    #[arg(value_name = "PATH")]
    at: PathBuf,
}

/// End what `lee login` has begun
///
/// What you have open there can no longer be used.
#[derive(Debug, clap::Args)]
pub struct LogoutArgs {
    /// The mount, or a path in it
    #[arg(value_name = "PATH")]
    at: PathBuf,
}

/// Logs in.
///
/// # Errors
/// Why not.
pub fn log_in(invocation: &Invocation, args: &LoginArgs) -> Result<(), Fail> {
    let mount = mount_of(args.at.clone())?;
    let host = connect(&mount)?.mount()?.host;
    let token = bound_to_host(&token()?, &host);
    let user = connect(&mount)?.log_in(&token)?;
    output::show(invocation.format, &json!({"user": user, "host": host}), || {
        let until = user.until_secs.map_or_else(|| "the token is revoked".into(), when::utc);
        let name = output::printable(&user.name);
        format!("logged in as {name} ({}), until {until}; lee logout ends it", user.uid)
    })
}

/// Logs out.
///
/// # Errors
/// When the process of the mount or the server does not answer.
pub fn log_out(invocation: &Invocation, args: &LogoutArgs) -> Result<(), Fail> {
    let user = connect(&mount_of(args.at.clone())?)?.log_out()?;
    output::show(invocation.format, &json!({"user": user}), || match &user {
        Some(user) => format!("logged out; you were {} ({})", output::printable(&user.name), user.uid),
        None => "you were not logged in".into(),
    })
}

fn mount_of(at: PathBuf) -> Result<CellDir, Fail> {
    let cell = locate::called(at.as_os_str(), "")?;
    match cell.remote() {
        Some(mount) if [0, system::uid()].contains(&mount.owner) => Ok(cell),
        Some(mount) => {
            let text = "is a mount of the user";
            let (at, owner) = (mount.at.display(), mount.owner);
            Err(Fail::new(format!("{at} {text} {owner}, who could read your token: mount it yourself")))
        }
        None => Err(Fail::new(format!("{}: users log in at mounts of other machines only", at.display()))),
    }
}

fn connect(mount: &CellDir) -> Result<Client, Fail> {
    Client::connect(mount).map_err(|e| match e {
        Unreached::Failed(fail) => fail,
        Unreached::Silent => session::unserved_mount(mount),
    })
}

fn token() -> Result<String, Fail> {
    if let Ok(token) = std::env::var(TOKEN) {
        return Ok(token.trim().into());
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        output::note("lee: paste the token, then press Enter and Ctrl-D");
    }
    let mut token = String::new();
    let read = input.lock().take(TOKEN_BYTES_MAX).read_to_string(&mut token);
    read.map_err(|e| Fail::new(format!("standard input: {}", text(&e))))?;
    match token.trim() {
        "" => Err(Fail::usage(format!("give the token on standard input, or in the variable {TOKEN}"))),
        token => Ok(token.into()),
    }
}
