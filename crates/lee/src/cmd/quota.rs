//! `lee quota`: exact limits on what a volume or a directory may hold, and on what a user or a
//! group may own.

use super::Invocation;
use crate::fail::Fail;
use crate::locate::CellDir;
use crate::mounts;
use crate::output::{self, Side, Table, printable};
use crate::session::Session;
use crate::size::{self, Limit};
use crate::{names, system};
use leeward_fs::flows::UserOrGroup;
use leeward_volume::admin::{self, OwnerInfo, QuotaInfo};
use serde_json::json;
use std::path::Path;

/// Limit what a volume or a directory may hold, and what users and groups may own
///
/// Limits are exact: a write or create that would cross one fails (EDQUOT). A limit of a directory
/// covers everything below it. A limit of a user or a group covers what they own in a volume, or in
/// all volumes of the cell together.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set limits; a limit that is not named stays
    Set {
        /// A volume's name, or a directory: its path in the cell or below the mount
        #[arg(value_name = "PATH|VOLUME", required_unless_present = "everywhere")]
        target: Option<String>,
        /// Limit only what this user owns in the volume, by name or number
        #[arg(long, group = "owner")]
        user: Option<String>,
        /// Limit only what this group owns in the volume, by name or number
        #[arg(long, group = "owner")]
        group: Option<String>,
        /// Limit the user or group in all volumes together
        #[arg(long, conflicts_with = "target", requires = "owner")]
        everywhere: bool,
        /// Most bytes, such as 10G (powers of 1024), or `none`
        #[arg(long, value_parser = size::parse_bytes, required_unless_present = "files")]
        bytes: Option<Limit>,
        /// Most files and directories, such as 1M (a million), or `none`
        #[arg(long, value_parser = size::parse_count)]
        files: Option<Limit>,
    },
    /// Show limits and usage of a volume or a directory
    Show {
        /// A volume's name, or a directory: its path in the cell or below the mount
        #[arg(value_name = "PATH|VOLUME")]
        target: String,
    },
    /// List all limits of the cell
    List,
    /// Show what users and groups own, and their limits; of another machine, what you own
    Usage {
        /// Only in this volume
        volume: Option<String>,
        /// Only this user, by name or number
        #[arg(long)]
        user: Option<String>,
        /// Only this group, by name or number
        #[arg(long)]
        group: Option<String>,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Set { target, user, group, bytes, files, .. } if user.is_some() || group.is_some() => {
            let who = who(user.as_deref(), group.as_deref())?;
            let [who] = who[..] else { return Err(Fail::new("name a user or a group")) };
            let (bytes, files) = (bytes.map(|l| l.0), files.map(|l| l.0));
            let request = admin::OwnerLimit { volume: target, who, bytes, files };
            let owner = invocation.ask("quota set", &request)?;
            output::reply(invocation.format, &owner, || owner_line(&owner))
        }
        Action::Set { target, bytes, files, .. } => {
            let target = target.unwrap_or_default();
            let quota = invocation.session("quota set", |cell, session| {
                let path = path_of(cell, session, &target)?;
                let request = admin::QuotaSet { path, bytes: bytes.map(|l| l.0), files: files.map(|l| l.0) };
                session.ask(&request)
            })?;
            show(invocation, &quota)
        }
        Action::Show { target } => {
            let quota = invocation.session("quota show", |cell, session| {
                let path = path_of(cell, session, &target)?;
                session.ask(&admin::QuotaShow { path })
            })?;
            show(invocation, &quota)
        }
        Action::List => list(invocation),
        Action::Usage { volume, user, group } => {
            let who = who(user.as_deref(), group.as_deref())?;
            usage(invocation, volume, who)
        }
    }
}

/// A user, a group, both or neither.
fn who(user: Option<&str>, group: Option<&str>) -> Result<Vec<UserOrGroup>, Fail> {
    let user = user.map(|user| system::owner(user).map(|owner| UserOrGroup::User(owner.uid)));
    let group = group.map(|group| system::group(group).map(UserOrGroup::Group));
    [user, group].into_iter().flatten().collect()
}

fn name(who: UserOrGroup) -> String {
    match who {
        UserOrGroup::User(uid) => names::user_name(uid),
        UserOrGroup::Group(gid) => format!("@{}", names::group_name(gid)),
    }
}

fn owner_line(owner: &OwnerInfo) -> String {
    let bytes = used(size::bytes(owner.used_bytes), size::bytes_limit(owner.bytes));
    let files = used(size::count(owner.used_files), size::count_limit(owner.files));
    let volume = owner.volume.as_deref().map_or_else(|| "everywhere".into(), |v| format!("in {v}"));
    format!("{} {}: bytes: {bytes}; files: {files}", name(owner.who), printable(&volume))
}

fn usage(invocation: &Invocation, volume: Option<String>, who: Vec<UserOrGroup>) -> Result<(), Fail> {
    let request = admin::OwnerUsage { volume, who, limited: false };
    let mut reply = invocation.ask("quota usage", &request)?;
    let by_size = |owner: &OwnerInfo| (owner.volume.clone(), std::cmp::Reverse(owner.used_bytes), owner.who);
    reply.owners.sort_by_key(by_size);
    output::reply(invocation.format, &reply, || {
        let counting = match reply.counting.is_empty() {
            true => String::new(),
            false => format!(
                "files from before this version are still being counted in {}: there it is more\n",
                printable(&reply.counting.join(", "))
            ),
        };
        counting + &owners_table(&reply.owners)
    })
}

fn owners_table(owners: &[OwnerInfo]) -> String {
    Table::new(&[
        ("USER|@GROUP", Side::Left),
        ("VOLUME", Side::Left),
        ("BYTES", Side::Right),
        ("LIMIT", Side::Right),
        ("FILES", Side::Right),
        ("LIMIT", Side::Right),
    ])
    .rows(owners, |owner| {
        [
            name(owner.who),
            owner.volume.clone().unwrap_or_else(|| "(everywhere)".into()),
            size::bytes(owner.used_bytes),
            size::bytes_limit(owner.bytes),
            size::count(owner.used_files),
            size::count_limit(owner.files),
        ]
    })
    .to_string()
}

/// A name without `/` is a volume's; everything else is a path.
fn path_of(cell: &CellDir, session: &mut Session, target: &str) -> Result<String, Fail> {
    if target.contains('/') || !mounts::is_plain_name(target.as_ref()) {
        return mounts::path_in_cell(cell.path(), Path::new(target));
    }
    match session.ask(&admin::VolumeShow { name: target.into() }) {
        Ok(volume) => Ok(volume.at),
        Err(fail) => Err(Fail::new(format!("{fail} (for a directory write ./{target} or its whole path)"))),
    }
}

fn show(invocation: &Invocation, quota: &QuotaInfo) -> Result<(), Fail> {
    output::reply(invocation.format, quota, || {
        let bytes = used(size::bytes(quota.used_bytes), size::bytes_limit(quota.bytes));
        let files = used(size::count(quota.used_files), size::count_limit(quota.files));
        format!("{}: bytes: {bytes}; files: {files}", printable(&quota.path))
    })
}

fn used(value: String, limit: String) -> String {
    match limit.as_str() {
        "none" => format!("{value} used, no limit"),
        limit => format!("{value} of {limit} used"),
    }
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let (quotas, owners) = invocation.session("quota list", |_, session| {
        let limited = admin::OwnerUsage { volume: None, who: Vec::new(), limited: true };
        Ok((session.ask(&admin::QuotaList)?.quotas, session.ask(&limited)?.owners))
    })?;
    let json = json!({"reply": "quotas", "quotas": quotas, "owners": owners});
    output::show(invocation.format, &json, || {
        let dirs = Table::new(&[
            ("DIRECTORY", Side::Left),
            ("BYTES", Side::Right),
            ("LIMIT", Side::Right),
            ("FILES", Side::Right),
            ("LIMIT", Side::Right),
        ])
        .rows(&quotas, |quota| {
            [
                quota.path.clone(),
                size::bytes(quota.used_bytes),
                size::bytes_limit(quota.bytes),
                size::count(quota.used_files),
                size::count_limit(quota.files),
            ]
        })
        .to_string();
        match owners.is_empty() {
            true => dirs,
            false => format!("{dirs}\n{}", owners_table(&owners)),
        }
    })
}
