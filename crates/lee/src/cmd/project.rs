//! `lee project`.

use super::{Invocation, yes_or_no};
use crate::fail::Fail;
use crate::output::{self, Side, Table, printable};
use crate::size::{self, Limit};
use crate::{mounts, when};
use leeward_volume::admin::{self, Budget, ProjectDetails, ProjectInfo, ProjectVolume};
use std::path::PathBuf;

/// Parts of the cell that groups look after: a budget, and a place for volumes
///
/// An operator gives a group (lee group) a project: so many bytes, files and volumes, and a
/// directory. Who is in the group then creates, renames and removes volumes below that directory,
/// and sets their quotas, snapshots, schedules and buckets, from any machine that mounts the cell
/// and without root. What all volumes of a project use together never exceeds its budget.
///
/// Projects nest: one is in another if its directory is below the other's. It counts for both
/// budgets, and who looks after the outer one makes, changes and removes it. Names that are given
/// in a project begin with its name and a dot, such as atlas.raw.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a project
    Create {
        /// Name: letters, digits, `.`, `-` and `_`
        name: String,
        /// The directory below which its volumes are attached; made, for the owners to write in it,
        /// if it is not there
        #[arg(long, value_name = "DIR")]
        at: PathBuf,
        /// The group that looks after it
        #[arg(long, value_name = "USER:NAME")]
        owner: String,
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// List projects; those that you look after, if you are no operator
    List,
    /// Show a project, its volumes, and the projects in it
    Show {
        /// Name
        name: String,
    },
    /// Change a project; what is not named stays
    Set {
        /// Name
        name: String,
        /// The new name
        #[arg(long, value_name = "NAME")]
        rename: Option<String>,
        /// The group that looks after it
        #[arg(long, value_name = "USER:NAME")]
        owner: Option<String>,
        /// The directory for volumes from now on, in the same outer project
        #[arg(long, value_name = "DIR")]
        at: Option<PathBuf>,
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Put volumes that exist into a project; they stay where they are attached
    Add {
        /// Name of the project
        name: String,
        /// Volumes
        #[arg(required = true)]
        volume: Vec<String>,
    },
    /// Take volumes out of their project; they stay, and are operators' again
    Drop {
        /// Volumes
        #[arg(required = true)]
        volume: Vec<String>,
    },
    /// Remove a project that has no volumes, and no projects in it
    Remove {
        /// Name
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct BudgetArgs {
    /// Most bytes of all its volumes, such as 10T (powers of 1024), or `none`
    #[arg(long, value_parser = size::parse_bytes)]
    bytes: Option<Limit>,
    /// Most files and directories, such as 1M (a million), or `none`
    #[arg(long, value_parser = size::parse_count)]
    files: Option<Limit>,
    /// Most volumes, or `none`
    #[arg(long, value_parser = size::parse_count)]
    volumes: Option<Limit>,
}

impl BudgetArgs {
    fn budget(&self) -> Budget {
        Budget {
            bytes: self.bytes.map(|limit| limit.0),
            files: self.files.map(|limit| limit.0),
            volumes: self.volumes.map(|limit| u32::try_from(limit.0).unwrap_or(u32::MAX)),
        }
    }
}

#[derive(Debug, clap::Args)]
struct SettingsArgs {
    /// The pool for new volumes
    #[arg(long)]
    pool: Option<String>,
    /// Whether its bytes count what only snapshots hold [default: yes]
    #[arg(long, value_name = "yes|no", action = clap::ArgAction::Set, value_parser = yes_or_no)]
    count_snapshots: Option<bool>,
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { name, at, owner, budget, settings } => {
            let (at, budget) = (path(invocation, &at)?, budget.budget());
            let SettingsArgs { pool, count_snapshots: counts_snapshots } = settings;
            let request = admin::ProjectCreate { name, at, owner, budget, pool, counts_snapshots };
            let project = invocation.ask("project create", &request)?;
            show(invocation, &project, || {
                format!(
                    "created project {} at {}, looked after by {}: {}",
                    project.name,
                    printable(&project.at),
                    project.owner,
                    limits(&project)
                )
            })
        }
        Action::List => list(invocation),
        Action::Show { name } => {
            let project = invocation.ask("project show", &admin::ProjectShow { name })?;
            output::reply(invocation.format, &project, || details(&project))
        }
        Action::Set { name, rename, owner, at, budget, settings } => {
            let at = at.map(|at| path(invocation, &at)).transpose()?;
            let SettingsArgs { pool, count_snapshots: counts_snapshots } = settings;
            let budget = budget.budget();
            let request = admin::ProjectSet { name, to: rename, owner, at, budget, pool, counts_snapshots };
            let project = invocation.ask("project set", &request)?;
            show(invocation, &project, || line(&project))
        }
        Action::Add { name, volume } => move_volumes(invocation, &volume, Some(name)),
        Action::Drop { volume } => move_volumes(invocation, &volume, None),
        Action::Remove { name } => {
            let request = admin::ProjectRemove { name: name.clone() };
            let done = invocation.ask("project remove", &request)?;
            output::reply(invocation.format, &done, || format!("removed project {name}"))
        }
    }
}

fn path(invocation: &Invocation, path: &std::path::Path) -> Result<String, Fail> {
    mounts::path_in_cell(invocation.cell_anywhere()?.path(), path)
}

fn show(invocation: &Invocation, project: &ProjectInfo, text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::reply(invocation.format, project, text)
}

fn move_volumes(invocation: &Invocation, volumes: &[String], to: Option<String>) -> Result<(), Fail> {
    let command = if to.is_some() { "project add" } else { "project drop" };
    let mut done = admin::Done {};
    for volume in volumes {
        done = invocation.ask(command, &admin::ProjectMove { volume: volume.clone(), to: to.clone() })?;
    }
    output::reply(invocation.format, &done, || match &to {
        Some(name) => format!(
            "{} in project {name} now",
            size::counted(volumes.len() as u64, "volume is", "volumes are")
        ),
        None => {
            format!("{} in no project now", size::counted(volumes.len() as u64, "volume is", "volumes are"))
        }
    })
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("project list", &admin::ProjectList)?;
    output::reply(invocation.format, &reply, || {
        if reply.projects.is_empty() {
            return "no projects: an operator makes one with `lee project create`".into();
        }
        Table::new(&[
            ("PROJECT", Side::Left),
            ("AT", Side::Left),
            ("OWNER", Side::Left),
            ("BYTES", Side::Right),
            ("LIMIT", Side::Right),
            ("FILES", Side::Right),
            ("LIMIT", Side::Right),
            ("VOLUMES", Side::Right),
            ("LIMIT", Side::Right),
        ])
        .rows(&reply.projects, |project| {
            [
                project.name.clone(),
                printable(&project.at),
                project.owner.clone(),
                size::bytes(project.used_bytes),
                size::bytes_limit(project.bytes),
                size::count(project.used_files),
                size::count_limit(project.files),
                size::count(project.volumes),
                size::count_limit(project.volumes_max.into()),
            ]
        })
        .to_string()
    })
}

fn limits(project: &ProjectInfo) -> String {
    let volumes = match project.volumes_max {
        0 => "any number of volumes".into(),
        most => size::counted(most.into(), "volume", "volumes"),
    };
    let bytes = if project.bytes > 0 { size::bytes(project.bytes) } else { "any number of bytes".into() };
    let files = match project.files {
        0 => "any number of files".into(),
        most => size::counted(most, "file", "files"),
    };
    format!("{bytes}, {files}, {volumes}")
}

fn line(project: &ProjectInfo) -> String {
    let [bytes, files, volumes] = used(project);
    format!(
        "project {} at {}, looked after by {}: {bytes}; {files} files; {volumes} volumes",
        project.name,
        printable(&project.at),
        project.owner,
    )
}

/// What is used of each limit.
fn used(project: &ProjectInfo) -> [String; 3] {
    let of = |used: String, limit: u64, limit_text: String| match limit {
        0 => used,
        _ => format!("{used} of {limit_text}"),
    };
    let most = u64::from(project.volumes_max);
    [
        of(size::bytes(project.used_bytes), project.bytes, size::bytes_limit(project.bytes)),
        of(size::count(project.used_files), project.files, size::count_limit(project.files)),
        of(size::count(project.volumes), most, size::count_limit(most)),
    ]
}

fn details(project: &ProjectDetails) -> String {
    let info = &project.project;
    let [bytes, files, volumes] = used(info);
    let counts = if info.counts_snapshots { ", snapshots counted" } else { ", snapshots not counted" };
    let list = |names: &[String]| if names.is_empty() { "none".into() } else { names.join(", ") };
    let lines = [
        ("project", info.name.clone()),
        ("at", printable(&info.at)),
        ("owner", info.owner.clone()),
        ("is in", info.parent.clone().unwrap_or_else(|| "no other".into())),
        ("bytes", format!("{bytes}{counts}")),
        ("files", files),
        ("volumes", volumes),
        ("pool", info.pool.clone()),
        ("projects", list(&project.projects)),
        ("created", when::utc(info.created_secs)),
    ]
    .map(|(name, value)| format!("{name:<8} {value}\n"))
    .concat();
    if project.volume_list.is_empty() {
        return lines;
    }
    let table = Table::new(&[("VOLUME", Side::Left), ("BYTES", Side::Right), ("FILES", Side::Right)]);
    let row = |volume: &ProjectVolume| {
        [volume.name.clone(), size::bytes(volume.used_bytes), size::count(volume.used_files)]
    };
    format!("{lines}\n{}", table.rows(&project.volume_list, row))
}
