//! `lee volume`: the units of administration, each with an owner, a quota and a place in the tree.

use super::{Invocation, yes_or_no};
use crate::fail::Fail;
use crate::output::{self, Side, Table, printable};
use crate::{mounts, names, size, system, when};
use leeward_env::dates;
use leeward_volume::admin::{self, Origin, Promotion, PropertyChanges, VolumeInfo};
use serde_json::json;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Create, list, show, change and remove volumes
///
/// A volume is a home directory or a project with its own owner and quota. It is visible in the
/// tree where it is attached. Hard links and renames do not cross its border.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a volume and attach it in the tree
    Create {
        /// Name, unique in the cell
        name: String,
        /// Where to attach it: a new path in the cell or below its mount [default: /NAME]
        #[arg(long, value_name = "PATH")]
        at: Option<PathBuf>,
        /// Its owner, by name or number [default: you]
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// The pool that keeps its data [default: default]
        #[arg(long)]
        pool: Option<String>,
        /// The shard that it comes in [default: that of its project or of the volume that it is
        /// attached in, else the one with the fewest volumes]
        #[arg(long, value_name = "N", conflicts_with = "copy")]
        shard: Option<usize>,
        /// Make a copy of a volume of another cell: it shows what `lee snap receive` brings, and
        /// nobody changes it
        #[arg(long)]
        copy: bool,
    },
    /// Make a copy a volume like others, which programs can change, as the snapshot that it shows
    ///
    /// For when the volume that it is a copy of is lost. Streams are refused from then on.
    Promote {
        /// Its name
        name: String,
    },
    /// Make a volume a copy, which nobody changes, as it is now
    ///
    /// For when it is to be what a volume in another cell is that was its copy before: a mirror
    /// there goes on from a snapshot that both have. What was changed here since stays in a
    /// snapshot. The recycle bin is emptied.
    Demote {
        /// Its name
        name: String,
        /// The name of the snapshot of what it is now [default: set-aside- and the time]
        #[arg(long, value_name = "NAME")]
        snapshot: Option<String>,
    },
    /// Keep a volume's data in another pool
    ///
    /// New data goes there from now on. Old data is moved in the background, while the volume is in
    /// use. The command shows how far that is, and ends when all is moved. Moving goes on when the
    /// command is ended early.
    MoveData {
        /// Its name
        name: String,
        /// The pool
        #[arg(long, value_name = "POOL")]
        to: String,
        /// Do not wait until all is moved
        #[arg(long)]
        no_wait: bool,
    },
    /// List all volumes
    List,
    /// Show one volume
    Show {
        /// Its name
        name: String,
    },
    /// Give a volume another name; it stays where it is attached
    Rename {
        /// Its name
        name: String,
        /// The new name
        new_name: String,
    },
    /// Give users or groups a right in a volume that root and its owner have
    Allow {
        /// Its name
        name: String,
        /// The right
        right: Right,
        /// Users, and groups with @ before them, by name or number
        #[arg(required = true, value_name = "USER|@GROUP")]
        who: Vec<String>,
    },
    /// Take back what `allow` gave
    Deny {
        /// Its name
        name: String,
        /// The right
        right: Right,
        /// Users, and groups with @ before them, by name or number
        #[arg(required = true, value_name = "USER|@GROUP")]
        who: Vec<String>,
    },
    /// Change properties of a volume
    ///
    /// snapshot-dir=NAME: name of the directory of snapshots in each directory (.snap). It hides
    /// files of that name. snapshot-dir-visible=yes|no: whether listings show it (no).
    /// snapshots-max=N: most snapshots of the volume (20000). quota-counts-snapshots=yes|no:
    /// whether the quota counts data that only snapshots hold (no). bin-days=N: how many days the
    /// recycle bin keeps removed files (0: there is none). audit-days=N: how many days it is kept
    /// who changed what: lee audit, lee watch (30; 0: it is not). public=yes|no: whether anybody
    /// may read by the HTTP door, without a credential, what modes let others read (no).
    #[command(verbatim_doc_comment)]
    Set {
        /// Its name
        name: String,
        /// Properties and their new values
        #[arg(required = true, value_name = "PROPERTY=VALUE", value_parser = parse_property)]
        properties: Vec<Property>,
    },
    /// Remove a volume with all its files; it is gone at once, and its space comes back later
    Remove {
        /// Its name
        name: String,
    },
}

/// What can be allowed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Right {
    /// Take, rename, lock and remove snapshots
    Snapshot,
}

/// One `PROPERTY=VALUE`.
#[derive(Clone, Debug)]
enum Property {
    SnapshotDir(String),
    SnapshotDirVisible(bool),
    SnapshotsMax(u32),
    QuotaCountsSnapshots(bool),
    BinDays(u16),
    AuditDays(u16),
    Public(bool),
}

fn parse_property(text: &str) -> Result<Property, String> {
    let (name, value) = text.split_once('=').ok_or("write PROPERTY=VALUE")?;
    let yes_or_no = || yes_or_no(value).map_err(|why| format!("`{value}`: {why}"));
    let days = || value.parse().map_err(|_| format!("`{value}`: write a number of days up to {}", u16::MAX));
    match name {
        "snapshot-dir" => Ok(Property::SnapshotDir(value.into())),
        "snapshot-dir-visible" => yes_or_no().map(Property::SnapshotDirVisible),
        "snapshots-max" => {
            let count = value.parse().map_err(|_| format!("`{value}`: write a number"))?;
            Ok(Property::SnapshotsMax(count))
        }
        "quota-counts-snapshots" => yes_or_no().map(Property::QuotaCountsSnapshots),
        "bin-days" => days().map(Property::BinDays),
        "audit-days" => days().map(Property::AuditDays),
        "public" => yes_or_no().map(Property::Public),
        _ => Err("there are snapshot-dir, snapshot-dir-visible, snapshots-max, quota-counts-snapshots, bin-days, audit-days and public"
            .into()),
    }
}

fn changes(properties: Vec<Property>) -> PropertyChanges {
    let mut set = PropertyChanges::default();
    for property in properties {
        match property {
            Property::SnapshotDir(name) => set.snapshot_dir = Some(name),
            Property::SnapshotDirVisible(yes) => set.snapshot_dir_visible = Some(yes),
            Property::SnapshotsMax(count) => set.snapshots_max = Some(count),
            Property::QuotaCountsSnapshots(yes) => set.quota_counts_snapshots = Some(yes),
            Property::BinDays(days) => set.bin_days = Some(days),
            Property::AuditDays(days) => set.audit_days = Some(days),
            Property::Public(yes) => set.public = Some(yes),
        }
    }
    set
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { name, at, owner, pool, shard, copy } => {
            create(invocation, name, at, owner, (pool, shard, copy))
        }
        Action::Promote { name } => promote(invocation, name),
        Action::Demote { name, snapshot } => demote(invocation, name, snapshot),
        Action::MoveData { name, to, no_wait } => move_data(invocation, name, to, !no_wait),
        Action::List => list(invocation),
        Action::Show { name } => {
            let volume = invocation.ask("volume show", &admin::VolumeShow { name })?;
            show(invocation, &volume, || details(&volume))
        }
        Action::Rename { name, new_name } => {
            let request = admin::VolumeRename { name: name.clone(), to: new_name };
            let volume = invocation.ask("volume rename", &request)?;
            show(invocation, &volume, || {
                format!(
                    "volume {name} is now {}; it stays attached at {}",
                    volume.name,
                    printable(&volume.at)
                )
            })
        }
        Action::Allow { name, right, who } => allow(invocation, name, right, &who, true),
        Action::Deny { name, right, who } => allow(invocation, name, right, &who, false),
        Action::Set { name, properties } => {
            let set = changes(properties);
            let volume = invocation.ask("volume set", &admin::VolumeSet { name, set })?;
            show(invocation, &volume, || details(&volume))
        }
        Action::Remove { name } => remove(invocation, &name),
    }
}

fn allow(
    invocation: &Invocation,
    name: String,
    right: Right,
    who: &[String],
    allow: bool,
) -> Result<(), Fail> {
    let Right::Snapshot = right;
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for who in who {
        match who.strip_prefix('@') {
            Some(group) => groups.push(system::group(group)?),
            None => users.push(system::owner(who)?.uid),
        }
    }
    let request = admin::VolumeAllow { name, users, groups, allow };
    let command = if allow { "volume allow" } else { "volume deny" };
    let volume = invocation.ask(command, &request)?;
    show(invocation, &volume, || {
        format!("snapshots of volume {} may be taken and removed by {}", volume.name, allowed(&volume))
    })
}

fn allowed(volume: &VolumeInfo) -> String {
    let owner = Some(volume.uid).filter(|uid| *uid != 0);
    let users = [0].iter().chain(&owner).chain(&volume.snapshot_users).map(|uid| names::user_name(*uid));
    let groups = volume.snapshot_groups.iter().map(|gid| format!("@{}", names::group_name(*gid)));
    users.chain(groups).collect::<Vec<_>>().join(", ")
}

fn move_data(invocation: &Invocation, name: String, to: String, wait: bool) -> Result<(), Fail> {
    let request = admin::VolumeMoveData { name, to, wait };
    let volume = invocation.ask_with_bar("volume move-data", &request)?;
    show(invocation, &volume, || match (volume.misplaced_bytes, volume.stuck_segments) {
        (0, _) => format!("all data of volume {} is in pool {}", volume.name, volume.pool),
        (bytes, 0) => format!(
            "volume {} writes to pool {}; {} are being moved there in the background",
            volume.name,
            volume.pool,
            size::bytes(bytes)
        ),
        (_, stuck) => format!(
            "volume {} writes to pool {}; {} damaged and stay where they are: see lee fsck",
            volume.name,
            volume.pool,
            size::counted(stuck, "segment is", "segments are")
        ),
    })
}

fn create(
    invocation: &Invocation,
    name: String,
    at: Option<PathBuf>,
    owner: Option<String>,
    (pool, shard, copy): (Option<String>, Option<usize>, bool),
) -> Result<(), Fail> {
    if at.is_none() && !mounts::is_plain_name(OsStr::new(&name)) {
        return Err(Fail::new(format!(
            "`{}` cannot be the name of a volume: use letters, digits, `-`, `_` and `.`",
            printable(&name)
        )));
    }
    let owner = match owner {
        Some(text) => system::owner(&text)?,
        None => system::Owner { uid: system::uid(), gid: system::gid() },
    };
    let volume = invocation.session("volume create", |cell, session| {
        let at = match &at {
            Some(path) => mounts::path_in_cell(cell.path(), path)?,
            None => format!("/{name}"),
        };
        let (uid, gid) = (owner.uid, owner.gid);
        let volume = admin::VolumeCreate { name, at, uid, gid, pool };
        match shard {
            _ if copy => session.ask(&admin::CopyCreate { volume }),
            Some(shard) => session.ask(&admin::VolumeCreateIn { volume, shard }),
            None => session.ask(&volume),
        }
    })?;
    show(invocation, &volume, || {
        format!(
            "created volume {} at {}, owned by {}",
            volume.name,
            printable(&volume.at),
            names::user_name(volume.uid)
        )
    })
}

/// Makes a copy a volume that can be changed.
///
/// # Errors
/// What the cell says.
pub fn promote(invocation: &Invocation, name: String) -> Result<(), Fail> {
    let before = invocation.ask("volume promote", &admin::VolumeShow { name: name.clone() })?;
    let volume =
        invocation.ask_with_bar("volume promote", &admin::VolumePromote { name, handed_over: None })?;
    let now = (invocation.env.wall() / 1_000_000_000) as i64;
    show(invocation, &volume, || {
        let shown = before.copy.and_then(|copy| Some((copy.snapshot?, when::ago(now - copy.time_secs))));
        let state = match shown {
            Some((snapshot, ago)) => format!("as it was at snapshot {}, {ago}", printable(&snapshot)),
            None => "empty: nothing had been received".into(),
        };
        format!("volume {} can be changed now: {state}", volume.name)
    })
}

fn demote(invocation: &Invocation, name: String, snapshot: Option<String>) -> Result<(), Fail> {
    let snapshot = snapshot.unwrap_or_else(|| {
        // to the millisecond: the name is to be another one in each cell
        let millis = invocation.env.wall() / 1_000_000;
        let second = dates::second((millis / 1000) as i64);
        format!("{}{}.{:03}Z", admin::SET_ASIDE, second.trim_end_matches('Z'), millis % 1000)
    });
    let request = admin::VolumeDemote { name, snapshot: snapshot.clone() };
    let volume = invocation.ask_with_bar("volume demote", &request)?;
    show(invocation, &volume, || {
        format!(
            "volume {0} is a copy now, which nobody changes. It shows snapshot {1}, of all that it was; lee volume promote {0} \
             takes that back",
            volume.name,
            printable(&snapshot)
        )
    })
}

fn copy_of(volume: &VolumeInfo) -> String {
    let Some(copy) = &volume.copy else {
        let promoted = volume.origin.as_ref().and_then(|origin| Some((origin, origin.promoted.as_ref()?)));
        return promoted.map_or_else(|| "-".into(), |(origin, how)| promoted_from(origin, how));
    };
    let shown = match &copy.snapshot {
        Some(name) => format!("shows snapshot {name}, of {}", when::utc(copy.time_secs)),
        None => "has received nothing yet".into(),
    };
    let from = volume.origin.as_ref().map_or_else(String::new, |origin| format!("; {}", came_from(origin)));
    let detached = volume.origin.as_ref().and_then(|origin| origin.detached_secs);
    let detached =
        detached.map_or_else(String::new, |secs| format!("; its mirror was removed {}", when::utc(secs)));
    let part = if copy.receiving { "; a part of a newer one has come" } else { "" };
    format!("{shown}{from}{detached}{part}")
}

/// Where a copy comes from.
fn came_from(origin: &Origin) -> String {
    match (origin.volume.is_empty(), origin.cell.is_empty()) {
        (true, _) => "made here".into(),
        (false, true) => format!("of volume {}", printable(&origin.volume)),
        (false, false) => format!("of volume {} of {}", printable(&origin.volume), printable(&origin.cell)),
    }
}

fn promoted_from(origin: &Origin, how: &Promotion) -> String {
    let shown = match how.snapshot.is_empty() {
        true => "empty".into(),
        false => format!("as snapshot {}, of {}", printable(&how.snapshot), when::utc(how.time_secs)),
    };
    let order = if how.handed_over { "in order, that one became a copy" } else { "by hand" };
    format!("was one {}; promoted {} ({order}) {shown}", came_from(origin), when::utc(how.at_secs))
}

/// That a volume was a copy, and what may come of it.
pub fn promoted(volume: &str, origin: &Origin, how: &Promotion) -> String {
    let warning = if how.handed_over {
        ""
    } else {
        ". If users can write to the other one, too, there are two: make one of them a copy, see OPERATE, A copy in another cell"
    };
    format!("volume {}, a volume like others, {}{warning}", printable(volume), promoted_from(origin, how))
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("volume list", &admin::VolumeList)?;
    output::reply(invocation.format, &reply, || table(&reply.volumes).to_string())
}

fn table(volumes: &[VolumeInfo]) -> Table {
    Table::new(&[
        ("VOLUME", Side::Left),
        ("AT", Side::Left),
        ("OWNER", Side::Left),
        ("BYTES", Side::Right),
        ("LIMIT", Side::Right),
        ("FILES", Side::Right),
        ("LIMIT", Side::Right),
    ])
    .rows(volumes, |volume| {
        let removing = match (volume.removing, &volume.copy) {
            (true, _) => " (being removed)",
            (_, Some(_)) => " (copy)",
            _ => "",
        };
        [
            format!("{}{removing}", volume.name),
            volume.at.clone(),
            names::user_name(volume.uid),
            size::bytes(volume.usage.bytes),
            size::bytes_limit(volume.quota_bytes),
            size::count(volume.usage.files + volume.usage.dirs),
            size::count_limit(volume.quota_files),
        ]
    })
}

fn details(volume: &VolumeInfo) -> String {
    let usage = &volume.usage;
    [
        ("volume", volume.name.clone()),
        ("number", volume.id.to_string()),
        ("attached at", printable(&volume.at)),
        ("project", volume.project.clone().unwrap_or_else(|| "-".into())),
        ("owner", format!("{} ({})", names::user_name(volume.uid), volume.uid)),
        ("created", when::utc(volume.created_secs)),
        ("holds", holds(usage.bytes, usage.files, usage.dirs)),
        ("limit", limits(volume.quota_bytes, volume.quota_files)),
        (
            "snapshots",
            format!(
                "{} of at most {}",
                size::count(volume.snapshots),
                size::count(volume.snapshots_max.into())
            ),
        ),
        ("seen in", snapshot_dir(volume)),
        ("taken by", allowed(volume)),
        (
            "quota counts",
            if volume.quota_counts_snapshots { "files and snapshots" } else { "files" }.to_string(),
        ),
        ("recycle bin", recycle_bin(volume.bin_days)),
        ("audit", audit(volume.audit_days)),
        ("read by", if volume.public { "anybody who reaches the HTTP door" } else { "users" }.to_string()),
        ("copy", copy_of(volume)),
        ("pool", in_pool(volume)),
        ("shard", volume.shard.to_string()),
        ("state", if volume.removing { "being removed" } else { "in use" }.to_string()),
    ]
    .map(|(name, value)| format!("{name:<12} {value}\n"))
    .concat()
}

fn in_pool(volume: &VolumeInfo) -> String {
    match volume.misplaced_bytes {
        0 => volume.pool.clone(),
        bytes => format!("{}, where {} are still being moved to", volume.pool, size::bytes(bytes)),
    }
}

fn recycle_bin(days: u16) -> String {
    match days {
        0 => "none".into(),
        days => format!("keeps what was removed for {}", size::counted(days.into(), "day", "days")),
    }
}

fn audit(days: u16) -> String {
    match days {
        0 => "what changes is not kept".into(),
        days => format!("keeps what changed for {}", size::counted(days.into(), "day", "days")),
    }
}

fn snapshot_dir(volume: &VolumeInfo) -> String {
    let listed = if volume.snapshot_dir_visible { "listed" } else { "not listed" };
    format!("{} of each directory ({listed})", printable(&volume.snapshot_dir))
}

fn holds(bytes: u64, files: u64, dirs: u64) -> String {
    let files = size::counted(files, "file", "files");
    format!("{} in {files} and {}", size::bytes(bytes), size::counted(dirs, "directory", "directories"))
}

fn limits(bytes: u64, files: u64) -> String {
    match (bytes, files) {
        (0, 0) => "none".into(),
        (bytes, 0) => size::bytes(bytes),
        (0, files) => size::counted(files, "file", "files"),
        (bytes, files) => format!("{}, {}", size::bytes(bytes), size::counted(files, "file", "files")),
    }
}

fn remove(invocation: &Invocation, name: &str) -> Result<(), Fail> {
    let request = admin::VolumeRemove { name: name.into() };
    invocation.ask("volume remove", &request)?;
    output::show(invocation.format, &json!({"reply": "done", "name": name}), || {
        format!("removed volume {name}; its space comes back in the background")
    })
}

fn show(invocation: &Invocation, volume: &VolumeInfo, text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::reply(invocation.format, volume, text)
}
