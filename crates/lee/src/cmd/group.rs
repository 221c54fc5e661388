//! `lee group`.

use super::{Invocation, group_copy};
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::{size, system, when};
use leeward_volume::admin::{self, GroupDetails, GroupInfo, GroupRanges};
use std::path::PathBuf;

/// Members in one request: their names fit into it.
pub(super) const MEMBERS_AT_ONCE: usize = 500;

/// Groups that users own: create, list, show, change and remove them
///
/// A group is called USER:NAME, such as alice:lab. Its members are users and groups. It has a
/// number of its own, so files can have it as their group, and ACLs can name it; programs of Linux
/// call it alice+lab, as a colon separates fields there (`chgrp alice+lab FILE`, `setfacl -m
/// g:alice+lab:rwx FILE`). These commands take either.
///
/// You need not be root, and may be on any machine that mounts the cell: everybody may make groups
/// in the own name, and change those that he owns, or that a group owns in which he is.
///
/// Members have their rights at the doors (S3, HTTP) at once, within two seconds at a gateway, and
/// in the mount from their next login on: the kernel knows a user's groups from then. Machines show
/// names of groups, and give them to users at login, if `libnss-systemd` is installed there.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a group
    Create {
        /// Name: USER:NAME
        name: String,
        /// The user or the group whose it is [default: the user that it is named after]
        #[arg(long, value_name = "WHO")]
        owner: Option<String>,
    },
    /// List groups: of a user those that are the user's own, or have the user as a member
    List {
        /// Those of this user
        #[arg(long)]
        user: Option<String>,
    },
    /// Show a group, its members, and in which groups it is
    Show {
        /// Name
        name: String,
    },
    /// Make users and groups members
    Add {
        /// Name of the group
        name: String,
        /// Users and groups
        #[arg(required = true)]
        member: Vec<String>,
    },
    /// End memberships; everybody may leave a group
    Drop {
        /// Name of the group
        name: String,
        /// Users and groups
        #[arg(required = true)]
        member: Vec<String>,
    },
    /// Give a group another owner
    Set {
        /// Name
        name: String,
        /// A user or a group; the group itself, so that all its members may change it
        #[arg(long, value_name = "WHO")]
        owner: String,
    },
    /// Remove a group; files keep its number, which no other group gets
    Remove {
        /// Name
        name: String,
    },
    /// Show or set how many groups a user may have
    Limit {
        /// User
        user: String,
        /// Most groups; with each come 1,000 members, in all of the user's groups together
        groups: Option<u32>,
    },
    /// Write all groups, with their numbers, owners, members and limits, for `lee group import`
    Export,
    /// Make the groups of another cell in this one, with their numbers, and their members and
    /// owners the same; groups of this cell only stay as they are
    ///
    /// For a cell that has mirrors or restored backups of the other: files there have numbers of
    /// groups. `lee group export --cell A | ssh HOST lee group import - --cell B`, again and again.
    Import {
        /// What `lee group export` wrote; -: standard input
        file: PathBuf,
    },
    /// Show or set which numbers groups get; those of a cell must be free on all machines that
    /// mount it
    Range {
        /// FIRST-LAST
        #[arg(value_parser = range)]
        numbers: Option<(u32, u32)>,
    },
}

fn range(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once('-').ok_or("write it as FIRST-LAST")?;
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| format!("{text} is no number"));
    Ok((number(first)?, number(last)?))
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { name, owner } => {
            let group =
                invocation.ask("group create", &admin::GroupCreate { name, owner, gid: None, by: None })?;
            show(invocation, &group, || {
                format!("created group {}, number {}, owned by {}", group.name, group.gid, group.owner)
            })
        }
        Action::List { user } => list(invocation, user),
        Action::Show { name } => {
            let group = invocation.ask("group show", &admin::GroupShow { name })?;
            output::reply(invocation.format, &group, || details(&group))
        }
        Action::Add { name, member } => add(invocation, &name, &member),
        Action::Drop { name, member } => drop_members(invocation, &name, &member),
        Action::Set { name, owner } => {
            let group = invocation.ask("group set", &admin::GroupSet { name, owner, by: None })?;
            show(invocation, &group, || format!("{} belongs to {} now", group.name, group.owner))
        }
        Action::Remove { name } => {
            let group = invocation.ask("group remove", &admin::GroupRemove { name, by: None })?;
            show(invocation, &group, || {
                format!(
                    "removed group {}; files that have it as their group keep the number {}",
                    group.name, group.gid
                )
            })
        }
        Action::Export => group_copy::export(invocation),
        Action::Import { file } => group_copy::import(invocation, &file),
        Action::Limit { user, groups } => limit(invocation, user, groups),
        Action::Range { numbers } => {
            let ranges = invocation.ask("group range", &admin::GroupRange { numbers })?;
            output::reply(invocation.format, &ranges, || ranges_text(&ranges))
        }
    }
}

fn show(invocation: &Invocation, group: &GroupInfo, text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::reply(invocation.format, group, text)
}

fn add(invocation: &Invocation, name: &str, members: &[String]) -> Result<(), Fail> {
    let group = in_parts(members, |members| {
        invocation.ask("group add", &admin::GroupAdd { name: name.into(), members, by: None })
    })?;
    show(invocation, &group, || {
        format!("{} {} in {} now", members.join(", "), is_or_are(members), group.name)
    })
}

fn drop_members(invocation: &Invocation, name: &str, members: &[String]) -> Result<(), Fail> {
    let group = in_parts(members, |members| {
        invocation.ask("group drop", &admin::GroupDrop { name: name.into(), members, by: None })
    })?;
    show(invocation, &group, || {
        format!("{} {} not in {} any more", members.join(", "), is_or_are(members), group.name)
    })
}

fn is_or_are(members: &[String]) -> &'static str {
    if members.len() == 1 { "is" } else { "are" }
}

/// Asks about some members at a time; the last answer.
fn in_parts(
    members: &[String],
    ask: impl Fn(Vec<String>) -> Result<GroupInfo, Fail>,
) -> Result<GroupInfo, Fail> {
    let mut last = Err(Fail::new("name a user or a group"));
    for part in members.chunks(MEMBERS_AT_ONCE) {
        last = Ok(ask(part.to_vec())?);
    }
    last
}

fn list(invocation: &Invocation, user: Option<String>) -> Result<(), Fail> {
    let reply = invocation.ask("group list", &admin::GroupList { of: user })?;
    output::reply(invocation.format, &reply, || {
        if reply.groups.is_empty() {
            return "no groups: make one with `lee group create USER:NAME`".into();
        }
        Table::new(&[
            ("GROUP", Side::Left),
            ("OWNER", Side::Left),
            ("MEMBERS", Side::Right),
            ("NUMBER", Side::Right),
        ])
        .rows(&reply.groups, |group| {
            [group.name.clone(), group.owner.clone(), size::count(group.members), group.gid.to_string()]
        })
        .to_string()
    })
}

fn details(group: &GroupDetails) -> String {
    let names = |names: &[String]| if names.is_empty() { "none".into() } else { names.join(", ") };
    let info = &group.group;
    [
        ("group", info.name.clone()),
        ("owner", info.owner.clone()),
        ("members", names(&group.member_names)),
        ("is in", names(&group.is_in)),
        ("number", format!("{}, {} for programs of Linux{}", info.gid, info.system_name, known_here(info))),
        ("created", when::utc(info.created_secs)),
    ]
    .map(|(name, value)| format!("{name:<8} {value}\n"))
    .concat()
}

/// Whether this machine shows the name.
fn known_here(info: &GroupInfo) -> &'static str {
    match system::known_group_name(info.gid).as_ref() == Some(&info.system_name) {
        true => "",
        false => " (this machine does not show it: `lee doctor` says why)",
    }
}

fn limit(invocation: &Invocation, user: String, groups: Option<u32>) -> Result<(), Fail> {
    let allowance = invocation.ask("group limit", &admin::GroupLimit { user, groups })?;
    output::reply(invocation.format, &allowance, || {
        format!(
            "{}: {} of {} groups, {} of {} members",
            allowance.user,
            allowance.groups,
            allowance.groups_max,
            size::count(allowance.members),
            size::count(allowance.members_max)
        )
    })
}

fn ranges_text(ranges: &GroupRanges) -> String {
    let last = ranges.ranges.len().saturating_sub(1);
    let line = |(n, range): (usize, &leeward_fs::groups::GidRange)| {
        let (first, end, given) = (range.first, range.last, range.next - range.first);
        let state = if n == last { "new groups get these" } else { "before" };
        format!("{first}-{end}: {state}, {} given\n", size::count(given.into()))
    };
    ranges.ranges.iter().enumerate().map(line).collect()
}
