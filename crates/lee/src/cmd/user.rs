//! `lee user`: who may use a door, as which user of the file system.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::session::Session;
use crate::{names, size, system, when};
use leeward_volume::admin::{self, UserInfo};

/// Create, list, show, disable and enable users of the doors
///
/// A door (S3, WebDAV) acts for a user, with the same permissions, quota and share as in the mount.
/// A user of this machine needs no record: you can make a key or a token at once, and the machine's
/// user database has user id and groups. A user who is not in that database needs a record with a
/// user id.
///
/// A disabled user can use no door, with no key and no token. The mount stays open. Nobody acts as
/// root through a door.
///
/// Only root and the user who serves the cell may use this command, `lee key` and `lee token`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a user
    Create {
        /// Name of a user of this machine; with --uid another name
        name: String,
        /// User id, for a user who is not in this machine's user database
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..u32::MAX as i64))]
        uid: Option<u32>,
        /// Groups by name or number, the primary one first [default: the number of the user]
        #[arg(long, value_name = "GROUP", value_delimiter = ',', requires = "uid")]
        gid: Vec<String>,
    },
    /// List all users that the cell has a record of
    List,
    /// Show one user
    Show {
        /// Name
        name: String,
    },
    /// Change the groups of a user whose record has a user id
    Set {
        /// Name
        name: String,
        /// Groups by name or number, the primary one first
        #[arg(long, value_name = "GROUP", value_delimiter = ',', required = true)]
        gid: Vec<String>,
    },
    /// Close all doors to a user
    Disable {
        /// Name
        name: String,
    },
    /// Open the doors to a user again
    Enable {
        /// Name
        name: String,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that there is no such user.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { name, uid, gid } => create(invocation, name, uid, &gid),
        Action::List => list(invocation),
        Action::Show { name } => {
            let user = invocation.ask("user show", &admin::UserShow { name })?;
            show(invocation, &user, || details(&user))
        }
        Action::Set { name, gid } => {
            let gids = Some(groups(&gid)?);
            let user = invocation.ask("user set", &admin::UserSet { name, disabled: None, gids })?;
            show(invocation, &user, || details(&user))
        }
        Action::Disable { name } => disable(invocation, name, true),
        Action::Enable { name } => disable(invocation, name, false),
    }
}

fn groups(names: &[String]) -> Result<Vec<u32>, Fail> {
    names.iter().map(|name| system::group(name)).collect()
}

fn create(invocation: &Invocation, name: String, uid: Option<u32>, gid: &[String]) -> Result<(), Fail> {
    match (uid, system::user(&name)?) {
        (Some(_), Some(there)) => {
            return Err(Fail::new(format!(
                "this machine has a user {name} with the number {}: leave --uid out to mean that one, or give another name",
                there.uid
            )));
        }
        (None, there) => refuse_root(&name, there)?,
        (Some(_), None) => (),
    }
    let gids = groups(gid)?;
    let user = invocation.ask("user create", &admin::UserCreate { name, uid, gids })?;
    show(invocation, &user, || format!("created user {}: {}; {}", user.name, numbers(&user), NEXT))
}

const NEXT: &str = "make a key or a token with `lee key create` or `lee token create`";

/// A user of this machine may use a door, unless it is root.
pub(super) fn refuse_root(name: &str, there: Option<system::Owner>) -> Result<(), Fail> {
    match there {
        Some(system::Owner { uid: 0, .. }) => Err(Fail::new(format!(
            "{name} is root here: nobody acts as root through a door, name another user"
        ))),
        Some(_) => Ok(()),
        None => Err(Fail::new(format!(
            "neither the cell nor this machine has a user {name}: create one with `lee user create {name} --uid N`"
        ))),
    }
}

/// The name of the user who gives the command.
pub(super) fn own_name() -> Result<String, Fail> {
    match system::uid() {
        0 => Err(Fail::new("name a user: nobody acts as root through a door")),
        uid => Ok(system::known_user_name(uid).unwrap_or_else(|| uid.to_string())),
    }
}

/// Makes a record of a user of this machine where the cell has none.
pub(super) fn ensure(session: &mut Session, name: &str) -> Result<(), Fail> {
    if is_known(session, name)? {
        return Ok(());
    }
    refuse_root(name, system::user(name)?)?;
    session.ask(&admin::UserCreate { name: name.into(), uid: None, gids: Vec::new() }).map(drop)
}

/// Whether the cell has a record of this user.
pub(super) fn is_known(session: &mut Session, name: &str) -> Result<bool, Fail> {
    Ok(session.ask(&admin::UserList)?.users.iter().any(|user| user.name == name))
}

fn disable(invocation: &Invocation, name: String, disabled: bool) -> Result<(), Fail> {
    let command = if disabled { "user disable" } else { "user enable" };
    let user = invocation.session(command, |_, session| {
        if disabled {
            ensure(session, &name)?;
        }
        session.ask(&admin::UserSet { name, disabled: Some(disabled), gids: None })
    })?;
    show(invocation, &user, || {
        let doors = if disabled { "closed" } else { "open" };
        format!("all doors are {doors} to user {}", user.name)
    })
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("user list", &admin::UserList)?;
    output::reply(invocation.format, &reply, || {
        if reply.users.is_empty() {
            return format!("the cell has no records of users; those of this machine need none: {NEXT}");
        }
        Table::new(&[
            ("USER", Side::Left),
            ("NUMBER", Side::Left),
            ("KEYS", Side::Right),
            ("STATE", Side::Left),
        ])
        .rows(&reply.users, |user| {
            let number = user.uid.map_or_else(|| "of this machine".into(), |uid| uid.to_string());
            [user.name.clone(), number, size::count(user.keys), state(user).into()]
        })
        .to_string()
    })
}

fn state(user: &UserInfo) -> &'static str {
    if user.disabled { "disabled" } else { "enabled" }
}

/// User id and groups.
fn numbers(user: &UserInfo) -> String {
    let (uid, gids) = match user.uid {
        Some(uid) => (uid, user.gids.clone()),
        None => match system::user_with_groups(&user.name) {
            Ok(Some(found)) => found,
            Ok(None) => return "not in this machine's user database".into(),
            Err(fail) => return fail.to_string(),
        },
    };
    let groups: Vec<String> = gids.iter().map(|gid| names::group_name(*gid)).collect();
    let from = if user.uid.is_none() { " (of this machine)" } else { "" };
    format!("number {uid}{from}, groups {}", groups.join(", "))
}

fn details(user: &UserInfo) -> String {
    [
        ("user", user.name.clone()),
        ("acts as", numbers(user)),
        ("keys", size::count(user.keys)),
        ("created", when::utc(user.created_secs)),
        ("state", state(user).into()),
    ]
    .map(|(name, value)| format!("{name:<8} {value}\n"))
    .concat()
}

fn show(invocation: &Invocation, user: &UserInfo, text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::reply(invocation.format, user, text)
}
