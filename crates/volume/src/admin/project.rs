//! Requests about projects: parts of the cell that groups look after. Operators may ask all of it;
//! who looks after a project by [`Ctx::delegate`], as much as that lets him.

use crate::admin::failure::about;
use crate::admin::volume::{is_copy, no_volume};
use crate::admin::{Caller, Done, Failure, Reply, Request};
use crate::format::inode::{Pair, Stats};
use crate::format::keys;
use crate::format::projects::{DEPTH_MAX, PROJECTS_MAX, ProjectNumber, ProjectRecord};
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::quota::QuotaOf;
use crate::state::{Effect, State};
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::groups::cell_name;
use leeward_fs::leases::Recalling;
use leeward_fs::{Error, NodeId};
use serde::{Deserialize, Serialize};

/// Most projects in one another that those make who look after the outermost.
const DELEGATED_PROJECTS_MAX: usize = 1000;
/// Longest name of a project.
const PROJECT_NAME_BYTES_MAX: usize = 100;

/// What may be in a project. `None`: as it was, and in a new one no limit; 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Most bytes of all its volumes.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Most inodes of all its volumes.
    #[serde(default)]
    pub files: Option<u64>,
    /// Most volumes.
    #[serde(default)]
    pub volumes: Option<u32>,
}

/// A project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectInfo {
    /// Number, never reused.
    pub id: u32,
    /// Name.
    pub name: String,
    /// The group that looks after it; its number, if it is gone.
    pub owner: String,
    /// The directory below which its volumes are attached.
    pub at: String,
    /// The project that it is in.
    pub parent: Option<String>,
    /// Most bytes; 0: no limit.
    pub bytes: u64,
    /// Most inodes; 0: no limit.
    pub files: u64,
    /// Most volumes; 0: no limit.
    pub volumes_max: u32,
    /// Bytes used, exact; with what only snapshots hold, if it counts that.
    pub used_bytes: u64,
    /// Inodes used, exact.
    pub used_files: u64,
    /// Its volumes, with those of projects in it.
    pub volumes: u64,
    /// The pool for new volumes.
    pub pool: String,
    /// Whether its bytes count what only snapshots hold.
    pub counts_snapshots: bool,
    /// Seconds since 1970.
    pub created_secs: i64,
}

impl Reply for ProjectInfo {
    const KIND: &'static str = "project";
}

/// Makes a project. It is in the project whose place its own place is below.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProjectCreate {
    /// Unique name; of a project in another one that somebody makes who looks after that, it
    /// begins with the other's and a dot.
    pub name: String,
    /// A directory. One that is not there is made, for the group that looks after the project.
    pub at: String,
    /// The group that looks after it, `USER:NAME`.
    pub owner: String,
    /// What may be in it.
    pub budget: Budget,
    /// The pool for new volumes; `None`: that of the project that it is in, else `default`.
    #[serde(default)]
    pub pool: Option<String>,
    /// Whether its bytes count what only snapshots hold; `None`: like the project that it is in,
    /// else yes.
    #[serde(default)]
    pub counts_snapshots: Option<bool>,
}

impl Request for ProjectCreate {
    type Reply = ProjectInfo;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<ProjectInfo, Failure> {
        shard.may_make_at(caller.ctx, &self.at)?;
        if caller.ctx.delegate.is_some() && (self.pool.is_some() || self.counts_snapshots.is_some()) {
            return Err(Failure::new(
                libc::EPERM,
                "an operator chooses the pool, and whether snapshots count",
            ));
        }
        check_project_name(&self.name)?;
        let (owner, pool) = (shard.group_named(&self.owner)?, shard.pool_asked(self.pool.as_deref())?);
        let (dir, new_name) = shard.place_or_above(&self.at)?;
        let _recalling = shard.recall_place(dir).map_err(about(&self.at))?;
        let by = Ctx { uid: caller.ctx.uid, ..Ctx::system() };
        let id = shard.change_projects(&by, |tx| {
            tx.live_dir(dir)?;
            tx.need_changeable(dir.volume())?;
            let parent = tx.project_over(dir)?;
            let refused = match new_name {
                None => self.is_place_of_none(tx.st, dir),
                Some(_) => Ok(()),
            };
            if let Err(refused) = refused.and_then(|()| self.check(tx.st, caller.ctx, dir, parent)) {
                return Ok(Err(refused));
            }
            let place = match new_name {
                None => dir,
                Some(name) => tx.make_dir_of_group(dir, name, owner)?,
            };
            let above = parent.and_then(|id| tx.st.projects.get(id)).cloned();
            let record = ProjectRecord {
                name: self.name.clone(),
                owner,
                place,
                parent: parent.unwrap_or(0),
                limit: Pair(self.budget.bytes.unwrap_or(0), self.budget.files.unwrap_or(0)),
                volumes_max: self.budget.volumes.unwrap_or(0),
                pool: pool.or(above.as_ref().map(|above| above.pool)).unwrap_or(0),
                counts_snapshots: self
                    .counts_snapshots
                    .or(above.as_ref().map(|above| above.counts_snapshots))
                    .unwrap_or(true),
                created_secs: tx.now.secs,
            };
            let id = tx.st.projects.next();
            tx.put(keys::next_project(), ProjectNumber(id + 1).encode());
            tx.put_project(id, record);
            Ok(Ok(id))
        })?;
        if let Some(name) = new_name {
            shard.invalidate_entry(dir, name.as_bytes());
            shard.invalidate_inode(dir);
        }
        shard.project_info(id)
    }
}

impl ProjectCreate {
    fn is_place_of_none(&self, st: &State, place: NodeId) -> Result<(), Failure> {
        let Some(other) = st.projects.at_place(place).and_then(|id| st.projects.get(id)) else {
            return Ok(());
        };
        let message =
            format!("{} is the place of project {} already: name a directory in it", self.at, other.name);
        Err(Failure::new(libc::EEXIST, message))
    }

    /// `dir`: its place, or the directory above it.
    fn check(&self, st: &State, ctx: &Ctx, dir: NodeId, parent: Option<u32>) -> Result<(), Failure> {
        is_free(st, &self.name)?;
        if st.projects.count() >= PROJECTS_MAX || st.projects.chain(parent).count() >= DEPTH_MAX {
            let message = format!(
                "there are {PROJECTS_MAX} projects, or {DEPTH_MAX} in one another, which is the most"
            );
            return Err(Failure::new(libc::ENOSPC, message));
        }
        if ctx.delegate.is_none() {
            return Ok(());
        }
        if !st.projects.is_owner(ctx, parent) {
            return Err(in_none_of_his(&self.at));
        }
        in_volume_of(st, ctx, dir, parent, &self.at)?;
        let outermost = st.projects.chain(parent).last().unwrap_or(0);
        let has = st.projects.with_inner(outermost).len();
        if has >= DELEGATED_PROJECTS_MAX {
            let message = format!("there are {has} projects in one another: an operator may make more");
            return Err(Failure::new(libc::EDQUOT, message));
        }
        begins_with_project(st, parent, &self.name)
    }
}

/// Changes a project. `None`: as it was.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProjectSet {
    /// Its name.
    pub name: String,
    /// The new name.
    #[serde(default)]
    pub to: Option<String>,
    /// The group that looks after it.
    #[serde(default)]
    pub owner: Option<String>,
    /// The directory for new volumes, in the same project as the old one.
    #[serde(default)]
    pub at: Option<String>,
    /// What may be in it.
    #[serde(default)]
    pub budget: Budget,
    /// The pool for new volumes.
    #[serde(default)]
    pub pool: Option<String>,
    /// Whether its bytes count what only snapshots hold.
    #[serde(default)]
    pub counts_snapshots: Option<bool>,
}

impl Request for ProjectSet {
    type Reply = ProjectInfo;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<ProjectInfo, Failure> {
        self.to.as_deref().map_or(Ok(()), check_project_name)?;
        let owner = self.owner.as_deref().map(|owner| shard.group_named(owner)).transpose()?;
        let pool = shard.pool_asked(self.pool.as_deref())?;
        let place = self.at.as_deref().map(|at| shard.place_at(at)).transpose()?;
        {
            // nobody else has leases taken back
            let st = shard.lock();
            let (_, old) = asked_about(&st, caller.ctx, &self.name)?;
            self.check(&st, caller.ctx, &old)?;
        }
        // what clients change by themselves then they change with this budget far from its limit
        let _recalling = shard.recall_volumes_of(&self.name)?;
        let _of_place =
            place.map(|place| shard.recall_place(place)).transpose().map_err(about(&self.name))?;
        let id = shard.change_projects(&Ctx::system(), |tx| {
            let found = asked_about(tx.st, caller.ctx, &self.name).and_then(|(id, old)| {
                self.check(tx.st, caller.ctx, &old)?;
                Ok((id, old))
            });
            let (id, old) = match found {
                Ok(found) => found,
                Err(refused) => return Ok(Err(refused)),
            };
            if let Some(place) = place
                && place != old.place
                && let Err(refused) = tx.may_be_place(place, id, &old)?
            {
                return Ok(Err(refused));
            }
            let record = ProjectRecord {
                name: self.to.clone().unwrap_or(old.name),
                owner: owner.unwrap_or(old.owner),
                place: place.unwrap_or(old.place),
                limit: Pair(
                    self.budget.bytes.unwrap_or(old.limit.0),
                    self.budget.files.unwrap_or(old.limit.1),
                ),
                volumes_max: self.budget.volumes.unwrap_or(old.volumes_max),
                pool: pool.unwrap_or(old.pool),
                counts_snapshots: self.counts_snapshots.unwrap_or(old.counts_snapshots),
                ..old
            };
            tx.put_project(id, record);
            Ok(Ok(id))
        })?;
        shard.project_info(id)
    }
}

impl ProjectSet {
    fn check(&self, st: &State, ctx: &Ctx, old: &ProjectRecord) -> Result<(), Failure> {
        if let Some(to) = self.to.as_ref().filter(|to| **to != old.name) {
            is_free(st, to)?;
        }
        if ctx.delegate.is_some() {
            may_change(st, ctx, old)?;
            if self.at.is_some() || self.pool.is_some() || self.counts_snapshots.is_some() {
                let message = "an operator chooses the place, the pool, and whether snapshots count";
                return Err(Failure::new(libc::EPERM, message));
            }
            if let Some(to) = &self.to {
                begins_with_project(st, Some(old.parent), to)?;
            }
        }
        Ok(())
    }
}

/// Removes a project that has no volumes, and no projects in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProjectRemove {
    /// Its name.
    pub name: String,
}

impl Request for ProjectRemove {
    type Reply = Done;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Done, Failure> {
        shard.change_projects(&Ctx::system(), |tx| {
            let removed = asked_about(tx.st, caller.ctx, &self.name).and_then(|(id, old)| {
                if caller.ctx.delegate.is_some() {
                    may_change(tx.st, caller.ctx, &old)?;
                }
                let projects = &tx.st.projects;
                let inner = projects.inner(id).find_map(|inner| projects.get(inner));
                let inner = inner.map(|other| format!("project {}", other.name));
                let volume = projects.volumes_in(id).next().and_then(|volume| tx.st.volumes.get(&volume));
                let Some(inside) = inner.or_else(|| volume.map(|v| format!("volume {}", v.name))) else {
                    return Ok(id);
                };
                let message = format!(
                    "{inside} is in project {}: remove it, or move it out (lee project drop), first",
                    self.name
                );
                Err(Failure::new(libc::EBUSY, message))
            });
            Ok(removed.map(|id| {
                tx.remove(keys::project(id));
                tx.then(Effect::Project(id, None));
            }))
        })?;
        Ok(Done {})
    }
}

/// Puts a volume that is there into a project, with all that it uses; or takes it out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProjectMove {
    /// The volume.
    pub volume: String,
    /// The project; `None`: none.
    pub to: Option<String>,
}

impl Request for ProjectMove {
    type Reply = Done;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Done, Failure> {
        let other = shard.named_in_cell(&self.volume).map(|id| NodeId::new(id, 1));
        if let Some(root) = other.filter(|root| caller.ctx.delegate.is_none() && !shard.which.has(*root)) {
            let (name, shard) = (&self.volume, root.shard());
            let why = format!("volume {name} is in shard {shard}: projects and their volumes are in shard 0");
            return Err(Failure::new(libc::EINVAL, why));
        }
        let (volume, _) = self.checked(&shard.lock(), caller.ctx)?;
        // what clients change by themselves then they change with the new budget far from its limit
        let _of_volume = shard.recall_exclusive(&Ctx::system(), Some(volume)).map_err(about(&self.volume))?;
        let _of_project = self.to.as_deref().map(|to| shard.recall_volumes_of(to)).transpose()?;
        shard.change_projects(&Ctx::system(), |tx| {
            let (volume, to) = match self.checked(tx.st, caller.ctx) {
                Ok(checked) => checked,
                Err(refused) => return Ok(Err(refused)),
            };
            let used = tx.exact_stats(NodeId::new(volume, 1))?;
            if caller.ctx.delegate.is_some() {
                tx.check_room_in_project(volume, to, used)?;
            }
            tx.put_project_of(volume, to, used);
            Ok(Ok(()))
        })?;
        Ok(Done {})
    }
}

impl ProjectMove {
    /// The volume, and the project that it is to be in.
    fn checked(&self, st: &State, ctx: &Ctx) -> Result<(u32, Option<u32>), Failure> {
        let volume = st.volume_named(&self.volume);
        let to = self.to.as_deref().map(|to| asked_about(st, ctx, to)).transpose()?.map(|(id, _)| id);
        let from = volume.and_then(|volume| st.projects.of_volume(volume));
        if ctx.delegate.is_some() && ![from, to].iter().all(|of| st.projects.is_owner(ctx, *of)) {
            let message = format!(
                "{}: you may move volumes only between projects that you look after (lee project list)",
                self.volume
            );
            return Err(Failure::new(libc::EPERM, message));
        }
        let volume = volume.ok_or_else(|| no_volume(&self.volume))?;
        to.map_or(Ok(()), |to| volumes_left(st, to, from))?;
        Ok((volume, to))
    }
}

/// Lists projects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProjectList;

/// Projects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectInfos {
    /// By name.
    pub projects: Vec<ProjectInfo>,
}

impl Reply for ProjectInfos {
    const KIND: &'static str = "projects";
}

impl Request for ProjectList {
    type Reply = ProjectInfos;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<ProjectInfos, Failure> {
        let ids: Vec<u32> = {
            let st = shard.lock();
            let is_listed =
                |id: &u32| caller.ctx.delegate.is_none() || st.projects.is_owner(caller.ctx, Some(*id));
            st.projects.iter().map(|(id, _)| id).filter(is_listed).collect()
        };
        // one that is removed meanwhile is not listed
        let mut projects: Vec<ProjectInfo> =
            ids.into_iter().filter_map(|id| shard.project_info(id).ok()).collect();
        projects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(ProjectInfos { projects })
    }
}

/// Shows a project.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProjectShow {
    /// Its name.
    pub name: String,
}

/// A volume of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectVolume {
    /// Its name.
    pub name: String,
    /// Bytes that it uses, exact.
    pub used_bytes: u64,
    /// Inodes.
    pub used_files: u64,
}

/// A project with what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectDetails {
    /// The project.
    #[serde(flatten)]
    pub project: ProjectInfo,
    /// Its own volumes, by name.
    pub volume_list: Vec<ProjectVolume>,
    /// Names of the projects directly in it.
    pub projects: Vec<String>,
}

impl Reply for ProjectDetails {
    const KIND: &'static str = "project-details";
}

impl Request for ProjectShow {
    type Reply = ProjectDetails;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<ProjectDetails, Failure> {
        let (id, mut volume_list, mut projects) = {
            let st = shard.lock();
            let (id, _) = asked_about(&st, caller.ctx, &self.name)?;
            let own = st.projects.own_volumes(id);
            let volume = |volume: u32| {
                let used = st.quotas.used(QuotaOf::Volume(volume));
                Some(ProjectVolume {
                    name: st.volumes.get(&volume)?.name.clone(),
                    used_bytes: used.bytes.max(0) as u64,
                    used_files: used.inodes().max(0) as u64,
                })
            };
            let inner = st.projects.inner(id).filter_map(|inner| st.projects.get(inner));
            let volumes: Vec<ProjectVolume> = own.filter_map(volume).collect();
            (id, volumes, inner.map(|other| other.name.clone()).collect::<Vec<String>>())
        };
        volume_list.sort_by(|a, b| a.name.cmp(&b.name));
        projects.sort();
        Ok(ProjectDetails { project: shard.project_info(id)?, volume_list, projects })
    }
}

/// The project of this name, as far as the caller may ask about it: whoever looks after no such
/// project does not learn whether there is one.
fn asked_about(st: &State, ctx: &Ctx, name: &str) -> Result<(u32, ProjectRecord), Failure> {
    let found = project_named(st, name);
    match &found {
        Ok((id, _)) if ctx.delegate.is_none() || st.projects.is_owner(ctx, Some(*id)) => found,
        _ if ctx.delegate.is_none() => found,
        _ => {
            let message = format!("you look after no project {name}: see lee project list");
            Err(Failure::new(libc::EPERM, message))
        }
    }
}

/// Why something is not made at a place.
pub(super) fn in_none_of_his(at: &str) -> Failure {
    let message = format!("{at}: it is in no project that you look after: see lee project list");
    Failure::new(libc::EPERM, message)
}

/// Volumes and projects are made in the volume that has the place of the project, or in volumes of
/// a project that the caller looks after: not in those of others that are attached there.
pub(super) fn in_volume_of(
    st: &State,
    ctx: &Ctx,
    dir: NodeId,
    project: Option<u32>,
    at: &str,
) -> Result<(), Failure> {
    let place = project.and_then(|id| st.projects.get(id)).map(|record| record.place.volume());
    let is_his = || st.projects.is_owner(ctx, st.projects.of_volume(dir.volume()));
    match place == Some(dir.volume()) || is_his() {
        true => Ok(()),
        false => Err(in_none_of_his(at)),
    }
}

fn project_named(st: &State, name: &str) -> Result<(u32, ProjectRecord), Failure> {
    let found = st.projects.named(name).and_then(|id| Some((id, st.projects.get(id)?)));
    found.map(|(id, record)| (id, (**record).clone())).ok_or_else(|| {
        Failure::new(libc::ENOENT, format!("there is no project {name}: see lee project list"))
    })
}

fn is_free(st: &State, name: &str) -> Result<(), Failure> {
    match st.projects.named(name) {
        Some(_) => {
            let message = format!("there is a project {name} already: choose another name");
            Err(Failure::new(libc::EEXIST, message))
        }
        None => Ok(()),
    }
}

/// Who looks after a project uses its budget; who looks after the one that it is in changes it.
fn may_change(st: &State, ctx: &Ctx, record: &ProjectRecord) -> Result<(), Failure> {
    if record.parent > 0 && st.projects.is_owner(ctx, Some(record.parent)) {
        return Ok(());
    }
    let who = match st.projects.get(record.parent) {
        Some(parent) => format!("those who look after {}", parent.name),
        None => "an operator".into(),
    };
    Err(Failure::new(libc::EPERM, format!("project {} itself is changed by {who}", record.name)))
}

/// What somebody makes who looks after a project begins with its name: so nobody takes names that
/// others will want.
pub(super) fn begins_with_project(st: &State, project: Option<u32>, name: &str) -> Result<(), Failure> {
    let Some(record) = project.and_then(|id| st.projects.get(id)) else { return Ok(()) };
    let rest = name.strip_prefix(record.name.as_str()).and_then(|rest| rest.strip_prefix('.'));
    match rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_plain)) {
        true => Ok(()),
        false => {
            let message = format!(
                "{name}: in project {0} names are {0}.NAME, of letters of ASCII, digits, dots, hyphens and underscores",
                record.name
            );
            Err(Failure::new(libc::EPERM, message))
        }
    }
}

/// Somebody who looks after a project may make so many of something in a volume.
pub(super) fn few(what: &str, has: usize, most: usize) -> Result<(), Failure> {
    match has < most {
        true => Ok(()),
        false => {
            let message =
                format!("the volume has {has} {what}, and may have {most}: an operator may set more");
            Err(Failure::new(libc::EDQUOT, message))
        }
    }
}

/// Whether one more volume fits, which comes from another project or is new.
pub(super) fn volumes_left(st: &State, to: u32, from: Option<u32>) -> Result<(), Failure> {
    let had: Vec<u32> = st.projects.chain(from).collect();
    for id in st.projects.chain(Some(to)).filter(|id| !had.contains(id)) {
        let Some(record) = st.projects.get(id) else { continue };
        let (has, most) = (st.projects.count_volumes_in(id), record.volumes_max as usize);
        if most > 0 && has >= most {
            let message = format!("project {} has {has} volumes, and may have {most}", record.name);
            return Err(Failure::new(libc::EDQUOT, message));
        }
    }
    Ok(())
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-".contains(letter)
}

fn check_project_name(name: &str) -> Result<(), Failure> {
    if !(1..=PROJECT_NAME_BYTES_MAX).contains(&name.len())
        || !name.chars().all(is_plain)
        || name.starts_with(['.', '-'])
    {
        let rule = format!(
            "1 to {PROJECT_NAME_BYTES_MAX} letters of ASCII, digits, dots, hyphens and underscores, and no dot \
             or hyphen first"
        );
        return Err(Failure::new(libc::EINVAL, format!("{name:?} is no name for a project: {rule}")));
    }
    Ok(())
}

impl Tx<'_> {
    fn put_project(&mut self, id: u32, record: ProjectRecord) {
        self.put(keys::project(id), record.encode());
        self.then(Effect::Project(id, Some(Box::new(record))));
    }

    /// What a volume uses and holds fits the projects that it comes into.
    fn check_room_in_project(&self, volume: u32, to: Option<u32>, used: Stats) -> TxResult<()> {
        let projects = &self.st.projects;
        let had: Vec<u32> = projects.chain(projects.of_volume(volume)).collect();
        let held = self.st.snapshots.held(volume).held.bytes;
        for id in projects.chain(to).filter(|id| !had.contains(id)) {
            let counts = projects.get(id).is_some_and(|record| record.counts_snapshots);
            let more = Stats { bytes: if counts { held } else { 0 }, ..Stats::default() };
            self.check_quota(QuotaOf::Project(id), used.plus(more))?;
        }
        Ok(())
    }

    /// Whether a directory can be the place of this project: it is in the same project, and no
    /// other's place.
    fn may_be_place(&self, place: NodeId, id: u32, old: &ProjectRecord) -> TxResult<Result<(), Failure>> {
        self.live_dir(place)?;
        let over = self.project_over(place)?;
        let is_in_itself = over == Some(id);
        let is_beside = over.unwrap_or(0) == old.parent && self.st.projects.at_place(place).is_none();
        // those in it must stay below its place
        let has_inner = self.st.projects.inner(id).next().is_some();
        if (is_in_itself || is_beside) && !has_inner {
            return Ok(Ok(()));
        }
        let message = match has_inner {
            true => format!("projects are in {}, and would not be below its place", old.name),
            false => format!("this place is in another project than {}", old.name),
        };
        Ok(Err(Failure::new(libc::EINVAL, message)))
    }
}

impl Shard {
    /// A client that has told its programs that a directory is gone tells that the server before
    /// the directory becomes a place.
    fn recall_place(&self, place: NodeId) -> leeward_fs::Result<Option<Recalling>> {
        self.recall_exclusive(&Ctx::system(), Some(place.volume()))
    }

    fn recall_volumes_of(&self, project: &str) -> Result<Vec<Recalling>, Failure> {
        let volumes = {
            let st = self.lock();
            let id = st.projects.named(project);
            id.map(|id| st.volumes_of_quota(Some(QuotaOf::Project(id)))).unwrap_or_default()
        };
        self.recall_exclusive_in(&Ctx::system(), volumes).map_err(about(project))
    }

    fn change_projects<T>(
        &self,
        by: &Ctx,
        change: impl FnMut(&mut Tx<'_>) -> TxResult<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let changed = self.transact(by, change).map_err(about("cannot be changed"))??;
        self.settle()?;
        Ok(changed)
    }

    /// Who is no operator learns nothing about a path where he may make nothing.
    pub(super) fn may_make_at(&self, ctx: &Ctx, path: &str) -> Result<(), Failure> {
        if ctx.delegate.is_none() {
            return Ok(());
        }
        let nearest = self.nearest(path).unwrap_or_else(|last| last);
        let project = self.transact(&Ctx::system(), |tx| tx.project_over(nearest)).map_err(about(path))?;
        let st = self.lock();
        match st.projects.is_owner(ctx, project) {
            true => in_volume_of(&st, ctx, nearest, project, path),
            false => Err(in_none_of_his(path)),
        }
    }

    /// The name of the project whose place this is.
    pub(super) fn project_at(&self, place: NodeId) -> Option<String> {
        let st = self.lock();
        st.projects.name(st.projects.at_place(place)?)
    }

    fn place_at(&self, path: &str) -> Result<NodeId, Failure> {
        let place = self.node_at(path)?;
        if !self.which.has(place) {
            let why =
                format!("{path} is in shard {}: projects and their volumes are in shard 0", place.shard());
            return Err(Failure::new(libc::EINVAL, why));
        }
        if self.is_copy(place.volume()) {
            return Err(is_copy(self, place.volume()));
        }
        self.transact(&Ctx::system(), |tx| match tx.inode(place)?.is_dir() {
            true => Ok(place),
            false => Err(Error::NotDir.into()),
        })
        .map_err(about(path))
    }

    /// The directory of this path; or, where nothing is, the one above it, and the name.
    fn place_or_above<'a>(&self, path: &'a str) -> Result<(NodeId, Option<&'a str>), Failure> {
        match self.place_at(path) {
            Err(e) if e.errno == libc::ENOENT => {
                let (above, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
                let above = self.place_at(if above.is_empty() { "/" } else { above });
                above.map(|above| (above, Some(name))).map_err(|_| e)
            }
            place => place.map(|place| (place, None)),
        }
    }

    fn group_named(&self, name: &str) -> Result<u32, Failure> {
        self.accounts().groups().number(&cell_name(name)).ok_or_else(|| {
            let message = format!(
                "there is no group {name}: projects belong to groups that users own, USER:NAME (lee group create)"
            );
            Failure::new(libc::ENOENT, message)
        })
    }

    fn pool_asked(&self, pool: Option<&str>) -> Result<Option<leeward_data::PoolId>, Failure> {
        pool.map(|pool| self.data_pool_named(pool)).transpose()
    }

    /// The name of a volume's project.
    pub(crate) fn project_name_of(&self, volume: u32) -> Option<String> {
        let st = self.lock();
        st.projects.name(st.projects.of_volume(volume)?)
    }

    fn project_info(&self, id: u32) -> Result<ProjectInfo, Failure> {
        let (record, used, held, volumes, parent) = {
            let st = self.lock();
            let gone = || Failure::new(libc::ENOENT, "the project is gone");
            let record = st.projects.get(id).cloned().ok_or_else(gone)?;
            let used = st.quotas.used(QuotaOf::Project(id));
            let parent = st.projects.name(record.parent);
            let held = st.held_in_quota(QuotaOf::Project(id));
            (record, used, held, st.projects.count_volumes_in(id) as u64, parent)
        };
        let accounts = self.accounts();
        let owner = accounts.groups().get(record.owner).map(|group| group.name.to_string());
        Ok(ProjectInfo {
            id,
            name: record.name.clone(),
            owner: owner.unwrap_or_else(|| record.owner.to_string()),
            at: self.path_of(record.place).unwrap_or_default(),
            parent,
            bytes: record.limit.0,
            files: record.limit.1,
            volumes_max: record.volumes_max,
            used_bytes: (used.bytes + held).max(0) as u64,
            used_files: used.inodes().max(0) as u64,
            volumes,
            pool: self.pool_name(record.pool),
            counts_snapshots: record.counts_snapshots,
            created_secs: record.created_secs,
        })
    }
}
