//! `lee token`: tokens of the cell, macaroons that let somebody do something somewhere for a while.

use super::{Invocation, user};
use crate::fail::Fail;
use crate::{mounts, output, when};
use leeward_auth::activities;
use leeward_volume::admin;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Create and revoke tokens
///
/// A token gives its holder rights of one user: at and below one path, for reading or writing or
/// both, until a time. It is a macaroon: its holder can narrow it further without asking anybody.
/// Clients of the grid send it as a bearer token (`Authorization: Bearer TOKEN`; curl
/// --oauth2-bearer; rclone --webdav-bearer-token). It is printed once and stored nowhere. It ends
/// at its time, by `lee token revoke`, or when its user is disabled. Everybody may make tokens for
/// himself, for a week at most, also on another machine that mounts the cell, if the cell believes
/// that machine and lets it use all volumes. For others, operators do.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print a new token
    Create {
        /// The user it acts as, of this machine or of the cell [default: you]
        user: Option<String>,
        /// The path it is good for, with all below: in the cell, or below its mount
        #[arg(long, default_value = "/")]
        path: PathBuf,
        /// Allow to list and read
        #[arg(long, required_unless_present = "write")]
        read: bool,
        /// Allow to create, replace, change, rename and remove, not to read
        #[arg(long)]
        write: bool,
        /// For how long it is good, such as 30m, 12h or 7d
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = when::parse_duration)]
        span: Duration,
    },
    /// Make all tokens of a user void, or all tokens of the cell
    Revoke {
        /// The user
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        user: Option<String>,
        /// Of all users: the cell signs with another key from now on
        #[arg(long)]
        all: bool,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that there is no such user.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { user, path, read, write, span } => {
            let user = user.map_or_else(user::own_name, Ok)?;
            create(invocation, &user, &path, (read, write), span)
        }
        Action::Revoke { user, .. } => revoke(invocation, user),
    }
}

fn create(
    invocation: &Invocation,
    name: &str,
    path: &Path,
    (read, write): (bool, bool),
    span: Duration,
) -> Result<(), Fail> {
    let until_secs = (invocation.env.wall() / 1_000_000_000) as i64 + span.as_secs().max(1) as i64;
    let new = invocation.session("token create", |cell, session| {
        let path = mounts::path_in_cell(cell.path(), path)?;
        user::ensure(session, name)?;
        let activities = activities(read, write);
        session.make_token(&admin::TokenMake { user: name.into(), path, activities, until_secs, host: None })
    })?;
    output::note(&format!("lee: a token for {name} at {}, good until {}", new.path, when::utc(until_secs)));
    output::show(invocation.format, &json!(new), || new.token.clone())
}

fn revoke(invocation: &Invocation, name: Option<String>) -> Result<(), Fail> {
    invocation.session("token revoke", |_, session| {
        if let Some(name) = &name {
            user::ensure(session, name)?;
        }
        session.ask(&admin::TokenRevoke { user: name.clone() })
    })?;
    output::show(invocation.format, &json!({"reply": "done", "user": name}), || match &name {
        Some(name) => format!("all tokens that the cell made for {name} until now are void"),
        None => "all tokens that the cell made until now are void".into(),
    })
}
