//! `lee acl`.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::{mounts, names, size, system};
use leeward_fs::flows::UserOrGroup;
use leeward_volume::admin::{self, AclChangedInfo, AclEntryInfo, AclGrant, AclInfo, GroupShow, Right};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Say in words who may do what with files and directories
///
/// Rights are `list` (see names in directories), `read` (read files; and list) and `write` (change
/// files, make, rename and remove what is in directories; and read). They are POSIX ACLs, which
/// `getfacl` shows. What is made later in a directory has the rights that were given on it, but for
/// `list`. Only the owner of a file, and root, may change its rights: of a tree those files are
/// passed over that are somebody else's.
///
/// WHO is a user, a group USER:NAME (lee group), or @GROUP, a group of this machine; also as a
/// number.
///
/// POSIX knows no right to append only, or to change rights. `chattr +a FILE` lets everybody only
/// append who may write, and a group may own groups (lee group set), so that all its members say
/// who is in.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show who may do what
    Show {
        /// In the cell, or below its mount
        path: PathBuf,
    },
    /// Give rights, in place of those that they had there
    Set {
        /// In the cell, or below its mount
        path: PathBuf,
        /// Whom which: alice:lab=write, bob=read, @staff=list
        #[arg(value_name = "WHO=RIGHTS", required = true)]
        grant: Vec<String>,
        /// Also to all below it
        #[arg(long, short = 'r')]
        recursive: bool,
    },
    /// Take rights away that were given
    Remove {
        /// In the cell, or below its mount
        path: PathBuf,
        /// Of whom
        #[arg(required = true)]
        who: Vec<String>,
        /// Also from all below it
        #[arg(long, short = 'r')]
        recursive: bool,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Show { path } => {
            let path = mounts::path_in_cell(invocation.cell_anywhere()?.path(), &path)?;
            let info = invocation.ask("acl show", &admin::AclShow { path })?;
            output::reply(invocation.format, &info, || shown(&info))
        }
        Action::Set { path, grant, recursive } => {
            let grants = grant.iter().map(|text| parse(invocation, text)).collect::<Result<_, _>>()?;
            change(invocation, &path, grants, recursive)
        }
        Action::Remove { path, who, recursive } => {
            let none = |text: &String| Ok(AclGrant { who: whom(invocation, text)?, rights: BTreeSet::new() });
            let grants = who.iter().map(none).collect::<Result<_, Fail>>()?;
            change(invocation, &path, grants, recursive)
        }
    }
}

fn change(invocation: &Invocation, path: &Path, grants: Vec<AclGrant>, recursive: bool) -> Result<(), Fail> {
    let path = mounts::path_in_cell(invocation.cell_anywhere()?.path(), path)?;
    let request = admin::AclSet { path: path.clone(), grants, recursive };
    let done = invocation.ask_with_bar("acl set", &request)?;
    output::reply(invocation.format, &done, || said(&path, &done))
}

fn said(path: &str, done: &AclChangedInfo) -> String {
    let mut text = format!("{path}: {} changed", size::count(done.changed));
    for (count, what) in [
        (done.same, "were so already"),
        (done.refused, "belong to others or are protected (chattr), and are as they were"),
        (done.closed, "directories may not be looked into, and what is in them is as it was"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {} {what}", size::count(count)));
        }
    }
    text
}

fn parse(invocation: &Invocation, text: &str) -> Result<AclGrant, Fail> {
    let wrong = |why: String| Fail::new(format!("{text}: {why}"));
    let (who, rights) = text
        .rsplit_once('=')
        .ok_or_else(|| wrong("write it as WHO=RIGHTS, such as alice:lab=write".into()))?;
    let right = |word: &str| match word.trim() {
        "list" => Ok(Right::List),
        "read" => Ok(Right::Read),
        "write" => Ok(Right::Write),
        "append" => Err(wrong(
            "POSIX knows no right to append only: `chattr +a FILE` lets all who may write only append".into(),
        )),
        "manage" => Err(wrong(
            "only the owner of a file may change its rights: give it to whom should (chown)".into(),
        )),
        word => Err(wrong(format!("`{word}` is no right: list, read or write"))),
    };
    let rights: BTreeSet<Right> = rights.split(',').map(right).collect::<Result<_, _>>()?;
    Ok(AclGrant { who: whom(invocation, who)?, rights })
}

/// The user or the group of this name: groups that users own are the cell's, others the machine's.
fn whom(invocation: &Invocation, text: &str) -> Result<UserOrGroup, Fail> {
    if let Some(group) = text.strip_prefix('@') {
        return system::group(group).map(UserOrGroup::Group);
    }
    if text.contains(':') || text.contains('+') {
        let group = invocation.ask("acl", &GroupShow { name: text.into() })?.group;
        return Ok(UserOrGroup::Group(group.gid));
    }
    system::owner(text).map(|owner| UserOrGroup::User(owner.uid))
}

fn shown(info: &AclInfo) -> String {
    Table::new(&[("WHO", Side::Left), ("MAY", Side::Left), ("MODE", Side::Left)])
        .rows(&info.entries, |entry| [name(entry), words(entry, info), mode(entry)])
        .to_string()
}

fn name(entry: &AclEntryInfo) -> String {
    match entry.who {
        Some(UserOrGroup::User(uid)) => names::user_name(uid),
        Some(UserOrGroup::Group(gid)) => {
            let name = names::group_name(gid);
            let of_cell = leeward_fs::groups::cell_name(&name);
            if of_cell == name { format!("@{name}") } else { of_cell }
        }
        None => "everybody else".into(),
    }
}

fn words(entry: &AclEntryInfo, info: &AclInfo) -> String {
    let all = [(Right::List, "list"), (Right::Read, "read"), (Right::Write, "write")];
    let mut words: Vec<&str> =
        all.into_iter().filter(|(right, _)| entry.rights.contains(right)).map(|(_, word)| word).collect();
    if entry.who == Some(UserOrGroup::User(info.owner)) {
        words.push("change rights");
    }
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

fn mode(entry: &AclEntryInfo) -> String {
    match entry.masked.as_str() {
        "" => entry.permissions.clone(),
        masked => format!("{}, without {masked} by the mask", entry.permissions),
    }
}
