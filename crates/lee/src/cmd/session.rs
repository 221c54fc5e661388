//! `lee session`: machines that have mounted the cell.

use super::Invocation;
use crate::control::MachineSession;
use crate::control::client::{Client, Unreached};
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::{size, when};
use leeward_remote::UnflushedFigures;
use serde_json::json;

/// List, show and end sessions of machines that have mounted the cell
///
/// A session is what the server holds of one mount on another machine. It outlives a lost
/// connection by two minutes.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List all sessions
    List,
    /// Show one session
    Show {
        /// Its number, as in the list
        session: u64,
    },
    /// End a session: the machine's open files and locks are gone; its mount begins another one
    ///
    /// To keep a machine out, remove its host: lee host remove.
    End {
        /// Its number, as in the list
        session: u64,
    },
}

/// Runs it.
///
/// # Errors
/// When the cell is not served, or has no such session.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    match args.action {
        Action::List => list(invocation),
        Action::Show { session } => show(invocation, session),
        Action::End { session } => end(invocation, session),
    }
}

fn client(invocation: &Invocation) -> Result<Client, Fail> {
    let cell = invocation.cell()?;
    Client::connect(&cell).map_err(|e| match e {
        Unreached::Failed(fail) => fail,
        Unreached::Silent => Fail::new(format!(
            "{cell} is not served, so no machine is connected: start it with `lee serve {cell}`"
        )),
    })
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let sessions = client(invocation)?.sessions()?;
    output::show(invocation.format, &json!({ "sessions": sessions }), || {
        if sessions.is_empty() {
            return "no machine has mounted the cell: see lee host --help, and lee mount --help".into();
        }
        let columns = [
            ("SESSION", Side::Right),
            ("HOST", Side::Left),
            ("ADDRESS", Side::Left),
            ("SINCE", Side::Right),
            ("HEARD", Side::Right),
            ("INODES", Side::Right),
            ("LEASES", Side::Right),
            ("REQUESTS", Side::Right),
            ("LOCKS", Side::Right),
            ("UNFLUSHED", Side::Right),
        ];
        Table::new(&columns).rows(&sessions, row).to_string()
    })
}

fn row(session: &MachineSession) -> [String; 10] {
    [
        session.session.to_string(),
        output::printable(&session.host),
        address(session),
        when::ago(session.age_secs as i64),
        format!("{} ms ago", size::count(session.silent_ms)),
        size::count(session.inodes),
        size::count(session.leases),
        size::count(session.requests),
        size::count(session.locks),
        session.unflushed_in_short(),
    ]
}

fn address(session: &MachineSession) -> String {
    session.address.clone().unwrap_or_else(|| "not connected".into())
}

fn show(invocation: &Invocation, number: u64) -> Result<(), Fail> {
    let sessions = client(invocation)?.sessions()?;
    let session = sessions.into_iter().find(|s| s.session == number).ok_or_else(|| no_such(number))?;
    output::show(invocation.format, &session, || {
        [
            ("session", session.session.to_string()),
            ("host", output::printable(&session.host)),
            ("address", address(&session)),
            ("since", when::ago(session.age_secs as i64)),
            ("heard", format!("{} ms ago", size::count(session.silent_ms))),
            ("inodes", format!("{} referred to", size::count(session.inodes))),
            ("leases", format!("on {} inodes", size::count(session.leases))),
            ("requests", format!("{} at work", size::count(session.requests))),
            ("locks", format!("{} of files, or parts of files", size::count(session.locks))),
            ("unflushed", unflushed(&session)),
            ("users", users(&session)),
        ]
        .map(|(name, value)| format!("{name:<9} {value}\n"))
        .concat()
    })
}

fn unflushed(session: &MachineSession) -> String {
    match session.unflushed {
        None => "not counted: a crash of the server ends the session".into(),
        Some(UnflushedFigures { changes: 0, .. }) => "nothing: all is durable".into(),
        Some(all) => format!(
            "{} changes, {}, the oldest since {} ms",
            size::count(all.changes),
            size::bytes(all.bytes),
            size::count(all.oldest_ms)
        ),
    }
}

/// Who has logged in.
fn users(session: &MachineSession) -> String {
    match &session.users[..] {
        [] => "nobody has logged in".into(),
        users => output::printable(&users.join(", ")),
    }
}

fn end(invocation: &Invocation, number: u64) -> Result<(), Fail> {
    if !client(invocation)?.end_session(number)? {
        return Err(no_such(number));
    }
    output::show(invocation.format, &json!({"session": number, "ended": true}), || {
        format!("ended session {number}")
    })
}

fn no_such(number: u64) -> Fail {
    Fail::new(format!("there is no session {number}: see lee session list"))
}
