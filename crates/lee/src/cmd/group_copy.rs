//! `lee group export` and `lee group import`: the groups of a cell in another one, with the numbers
//! that files have there.

use super::Invocation;
use super::group::MEMBERS_AT_ONCE;
use crate::fail::{Fail, text};
use crate::output;
use crate::session::Session;
use crate::size;
use leeward_fs::groups::prefix;
use leeward_volume::admin::{GroupAdd, GroupCreate, GroupDrop, GroupLimit, GroupList, GroupSet, GroupShow};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Conflicts that are told.
const CONFLICTS_TOLD: usize = 5;

/// All groups of a cell.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Groups {
    groups: Vec<Group>,
    /// Most groups of users who have any.
    limits: BTreeMap<String, u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Group {
    name: String,
    gid: u32,
    owner: String,
    members: BTreeSet<String>,
}

/// `lee group export`.
///
/// # Errors
/// What the cell says.
pub fn export(invocation: &Invocation) -> Result<(), Fail> {
    let all = invocation.session("group export", |_, session| {
        let mut all = Groups::default();
        for info in session.ask(&GroupList { of: None })?.groups {
            if let Entry::Vacant(entry) = all.limits.entry(prefix(&info.name).to_owned()) {
                let limit = session.ask(&GroupLimit { user: entry.key().clone(), groups: None })?;
                entry.insert(limit.groups_max);
            }
            all.groups.push(as_it_is(session, info.name)?);
        }
        Ok(all)
    })?;
    let text = serde_json::to_string_pretty(&all).map_err(|e| Fail::new(e.to_string()))?;
    output::print(&(text + "\n"))
}

fn as_it_is(session: &mut Session, name: String) -> Result<Group, Fail> {
    let shown = session.ask(&GroupShow { name })?;
    let members = shown.member_names.into_iter().collect();
    Ok(Group { name: shown.group.name, gid: shown.group.gid, owner: shown.group.owner, members })
}

/// `lee group import`: `-` stands for standard input.
///
/// # Errors
/// The file's, or what the cell says: groups of both that have other names or numbers here.
pub fn import(invocation: &Invocation, file: &Path) -> Result<(), Fail> {
    let mut wanted = read(file)?;
    // lower numbers come first, as they were given
    wanted.groups.sort_by_key(|group| group.gid);
    let done = invocation.session("group import", |_, session| take_in(session, &wanted))?;
    let value = json!({"created": done.created, "changed": done.changed, "only_here": done.only_here});
    output::show(invocation.format, &value, || {
        format!(
            "{}: {} created, {} changed; {} are of this cell only, and stay as they are",
            size::counted(wanted.groups.len() as u64, "group", "groups"),
            size::count(done.created),
            size::count(done.changed),
            size::count(done.only_here)
        )
    })
}

fn read(file: &Path) -> Result<Groups, Fail> {
    let failed = |why: String| Fail::new(format!("{}: {why}", file.display()));
    let mut content = String::new();
    let read = match file.as_os_str() == "-" {
        true => io::stdin().lock().take(FILE_BYTES_MAX).read_to_string(&mut content),
        false => {
            std::fs::File::open(file).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut content))
        }
    };
    read.map_err(|e| failed(text(&e)))?;
    serde_json::from_str(&content).map_err(|e| failed(format!("is not what lee group export wrote: {e}")))
}

#[derive(Default)]
struct Done {
    created: u64,
    changed: u64,
    only_here: u64,
}

fn take_in(session: &mut Session, wanted: &Groups) -> Result<Done, Fail> {
    let here: BTreeMap<String, u32> =
        session.ask(&GroupList { of: None })?.groups.into_iter().map(|info| (info.name, info.gid)).collect();
    refuse_conflicts(&here, wanted)?;
    for (user, groups) in &wanted.limits {
        if session.ask(&GroupLimit { user: user.clone(), groups: None })?.groups_max != *groups {
            session.ask(&GroupLimit { user: user.clone(), groups: Some(*groups) })?;
        }
    }
    let is_new = |group: &&Group| !here.contains_key(&group.name);
    let mut groups: Vec<(Group, &Group)> = Vec::new();
    for group in &wanted.groups {
        if is_new(&group) {
            let (name, gid) = (group.name.clone(), Some(group.gid));
            session.ask(&GroupCreate { name, owner: None, gid, by: None })?;
        }
        groups.push((as_it_is(session, group.name.clone())?, group));
    }
    let mut changed = BTreeSet::new();
    // who leaves goes first: a group that is to be in another one may have it as a member here
    for is_added in [false, true] {
        for (was, group) in &groups {
            if change_members(session, was, group, is_added)? {
                changed.insert(&group.name);
            }
        }
    }
    for (_, group) in groups.iter().filter(|(was, group)| was.owner != group.owner) {
        session.ask(&GroupSet { name: group.name.clone(), owner: group.owner.clone(), by: None })?;
        changed.insert(&group.name);
    }
    let created = wanted.groups.iter().filter(is_new).count() as u64;
    let of_both = wanted.groups.len() as u64 - created;
    Ok(Done {
        created,
        changed: changed.into_iter().filter(|name| here.contains_key(*name)).count() as u64,
        only_here: here.len() as u64 - of_both,
    })
}

/// Nothing is changed when a group has another number here, or a number another group.
fn refuse_conflicts(here: &BTreeMap<String, u32>, wanted: &Groups) -> Result<(), Fail> {
    let by_number: BTreeMap<u32, &String> = here.iter().map(|(name, gid)| (*gid, name)).collect();
    let conflict = |group: &Group| match (here.get(&group.name), by_number.get(&group.gid)) {
        (Some(gid), _) if *gid != group.gid => {
            Some(format!("{} has the number {} there, {gid} here", group.name, group.gid))
        }
        (None, Some(other)) => {
            Some(format!("{} is the number of {} there, of {other} here", group.gid, group.name))
        }
        _ => None,
    };
    let conflicts: Vec<String> = wanted.groups.iter().filter_map(conflict).collect();
    if conflicts.is_empty() {
        return Ok(());
    }
    let told = conflicts.iter().take(CONFLICTS_TOLD).cloned().collect::<Vec<_>>().join("; ");
    let more = match conflicts.len().saturating_sub(CONFLICTS_TOLD) {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    Err(Fail::new(format!(
        "nothing was changed, as files with these numbers would get the rights of others: {told}{more}"
    )))
}

/// Whether members of a group were added, or dropped.
fn change_members(session: &mut Session, was: &Group, wanted: &Group, is_added: bool) -> Result<bool, Fail> {
    let members: Vec<String> = match is_added {
        true => wanted.members.difference(&was.members).cloned().collect(),
        false => was.members.difference(&wanted.members).cloned().collect(),
    };
    for part in members.chunks(MEMBERS_AT_ONCE) {
        let (name, members) = (wanted.name.clone(), part.to_vec());
        match is_added {
            true => session.ask(&GroupAdd { name, members, by: None })?,
            false => session.ask(&GroupDrop { name, members, by: None })?,
        };
    }
    Ok(!members.is_empty())
}
