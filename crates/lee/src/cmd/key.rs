//! `lee key`: S3 keys of users.

use super::{Invocation, user};
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::{size, when};
use leeward_volume::admin::{self, KeyInfo};

/// Create, list and revoke S3 keys
///
/// A key opens the S3 door, and as name and password the WebDAV door, with all rights of its user.
/// Its secret is shown only once, when the key is made. If it is lost, make another key. `--json`
/// prints access_key_id and secret_access_key. Everybody may do this for himself, also on another
/// machine that mounts the cell, if the cell believes that machine and lets it use all volumes. For
/// others, operators do.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a key, and show its secret this once
    Create {
        /// A user of this machine or of the cell [default: you]
        user: Option<String>,
        /// A label, to tell the key from others
        #[arg(long, default_value = "", hide_default_value = true)]
        label: String,
    },
    /// List keys, without their secrets
    List {
        /// Of this user [default: you; as root, all]
        user: Option<String>,
    },
    /// Revoke keys: they open no door from now on
    Revoke {
        /// The user
        user: String,
        /// The key, by access key id
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        access_key_id: Option<String>,
        /// All keys of the user
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
        Action::Create { user, label } => create(invocation, user.map_or_else(user::own_name, Ok)?, label),
        Action::List { user } => list(invocation, user.or_else(|| user::own_name().ok())),
        Action::Revoke { user, access_key_id, .. } => revoke(invocation, user, access_key_id),
    }
}

fn create(invocation: &Invocation, name: String, label: String) -> Result<(), Fail> {
    let new = invocation.session("key create", |_, session| {
        user::ensure(session, &name)?;
        session.ask(&admin::KeyCreate { user: name, label, host: None })
    })?;
    output::reply(invocation.format, &new, || {
        format!(
            "created a key for {}; the secret is not shown again:\naccess_key_id      {}\nsecret_access_key  {}\n",
            new.key.user, new.key.access_key_id, new.secret_access_key
        )
    })
}

fn list(invocation: &Invocation, user: Option<String>) -> Result<(), Fail> {
    let reply = invocation.ask("key list", &admin::KeyList { user })?;
    output::reply(invocation.format, &reply, || {
        if reply.keys.is_empty() {
            return "no keys".into();
        }
        let columns = [
            ("USER", Side::Left),
            ("ACCESS KEY ID", Side::Left),
            ("CREATED", Side::Left),
            ("ON", Side::Left),
            ("LABEL", Side::Left),
        ];
        let row = |key: &KeyInfo| {
            let on = key.host.as_deref().unwrap_or("-").to_owned();
            [key.user.clone(), key.access_key_id.clone(), when::utc(key.created_secs), on, key.label.clone()]
        };
        Table::new(&columns).rows(&reply.keys, row).to_string()
    })
}

fn revoke(invocation: &Invocation, user: String, access_key_id: Option<String>) -> Result<(), Fail> {
    let reply = invocation.ask("key revoke", &admin::KeyRevoke { user: user.clone(), access_key_id })?;
    output::reply(invocation.format, &reply, || match &reply.keys[..] {
        [] => format!("{user} had no keys"),
        keys => format!("revoked {} of {user}", size::counted(keys.len() as u64, "key", "keys")),
    })
}
