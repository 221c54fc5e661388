//! Projects in memory: parts of the cell that groups look after, the volumes in them, and what only
//! snapshots of these hold.
//!
//! What volumes of a project use is in [`Quotas`](super::quota::Quotas), like what directories do:
//! a project is above the roots of its volumes.

use crate::format::each;
use crate::format::inode::Stats;
use crate::format::keys::{self, Table};
use crate::format::projects::{DEPTH_MAX, ProjectNumber, ProjectRecord};
use crate::format::stored::Stored;
use crate::state::State;
use crate::state::quota::{Quota, QuotaOf};
use leeward_env::Ctx;
use leeward_fs::{NodeId, Result};
use leeward_meta::{Kv, Moment};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Of more volumes than these leases are taken back in all.
const RECALLED_MAX: usize = 64;

/// All projects of the shard.
#[derive(Default)]
pub struct Projects {
    by_id: BTreeMap<u32, Arc<ProjectRecord>>,
    by_name: BTreeMap<String, u32>,
    by_place: BTreeMap<NodeId, u32>,
    /// By what they are in; 0: in no other.
    inner: BTreeMap<u32, BTreeSet<u32>>,
    of_volume: BTreeMap<u32, u32>,
    /// Their own volumes.
    volumes: BTreeMap<u32, BTreeSet<u32>>,
    /// The number of the last one that was made.
    last: u32,
    /// What only snapshots of a volume hold, as far as its projects count it.
    held: FxHashMap<u32, i64>,
    /// The same of a project, with those in it.
    held_in: FxHashMap<u32, i64>,
}

impl Projects {
    /// One of them.
    pub fn get(&self, id: u32) -> Option<&Arc<ProjectRecord>> {
        self.by_id.get(&id)
    }

    /// The name of one.
    pub fn name(&self, id: u32) -> Option<String> {
        self.get(id).map(|record| record.name.clone())
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<ProjectRecord>)> {
        self.by_id.iter().map(|(id, record)| (*id, record))
    }

    /// The first of them with this number or a higher one.
    pub fn next_from(&self, id: u32) -> Option<u32> {
        self.by_id.range(id..).next().map(|(id, _)| *id)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The one of this name.
    pub fn named(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The one whose place this directory is.
    pub fn at_place(&self, dir: NodeId) -> Option<u32> {
        self.by_place.get(&dir).copied()
    }

    /// The project of a volume.
    pub fn of_volume(&self, volume: u32) -> Option<u32> {
        self.of_volume.get(&volume).copied()
    }

    /// A project, then the one that it is in, and so on.
    pub fn chain(&self, id: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        let above = |id: &u32| self.by_id.get(id).map(|record| record.parent).filter(|parent| *parent > 0);
        // fsck tells of rings
        std::iter::successors(id, above).take(DEPTH_MAX)
    }

    /// Those directly in one.
    pub fn inner(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        self.inner.get(&id).into_iter().flatten().copied()
    }

    /// A project and all in it.
    pub fn with_inner(&self, id: u32) -> Vec<u32> {
        let (mut all, mut next) = (vec![id], 0);
        while let Some(id) = all.get(next).copied() {
            all.extend(self.inner(id));
            next += 1;
        }
        all
    }

    /// The volumes of a project itself.
    pub fn own_volumes(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        self.volumes.get(&id).into_iter().flatten().copied()
    }

    /// The volumes of a project and of those in it.
    pub fn volumes_in(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        self.with_inner(id).into_iter().flat_map(|id| self.own_volumes(id))
    }

    /// How many these are.
    pub fn count_volumes_in(&self, id: u32) -> usize {
        self.with_inner(id).into_iter().filter_map(|id| self.volumes.get(&id)).map(BTreeSet::len).sum()
    }

    /// The directories in a volume that are places of projects.
    pub fn places_in(&self, volume: u32) -> impl Iterator<Item = NodeId> + '_ {
        let all = NodeId::new(volume, 0)..NodeId::new(volume + 1, 0);
        self.by_place.range(all).map(|(place, _)| *place)
    }

    /// The number of the next one.
    pub fn next(&self) -> u32 {
        self.last + 1
    }

    /// Whether the caller is of the group that looks after a project, or one that it is in.
    pub fn is_owner(&self, ctx: &Ctx, id: Option<u32>) -> bool {
        let is_in = |gid: u32| ctx.delegate.is_some_and(|groups| groups.contains(gid));
        self.chain(id).any(|id| self.by_id.get(&id).is_some_and(|record| is_in(record.owner)))
    }

    /// The volumes in projects that the caller looks after.
    pub fn volumes_of(&self, ctx: &Ctx) -> impl Iterator<Item = u32> {
        let his = self.by_id.keys().copied().filter(move |id| self.is_owner(ctx, Some(*id)));
        his.flat_map(move |id| self.own_volumes(id))
    }

    fn note(&mut self, id: u32, record: ProjectRecord) {
        self.by_name.insert(record.name.clone(), id);
        self.by_place.insert(record.place, id);
        self.inner.entry(record.parent).or_default().insert(id);
        self.by_id.insert(id, Arc::new(record));
    }

    fn forget(&mut self, id: u32) {
        let Some(old) = self.by_id.remove(&id) else { return };
        self.by_name.remove(&old.name);
        self.by_place.remove(&old.place);
        if let Some(inner) = self.inner.get_mut(&old.parent) {
            inner.remove(&id);
        }
    }

    fn held(&self, id: u32) -> i64 {
        let counts = self.by_id.get(&id).is_some_and(|record| record.counts_snapshots);
        if counts { self.held_in.get(&id).copied().unwrap_or(0) } else { 0 }
    }
}

impl State {
    /// What a volume counts for, from the inside out, besides quotas of its directories.
    pub(crate) fn project_quotas(&self, volume: u32) -> impl Iterator<Item = QuotaOf> + '_ {
        let project = self.projects.of_volume(volume);
        let first = project.map(|_| QuotaOf::Volume(volume));
        first.into_iter().chain(self.projects.chain(project).map(QuotaOf::Project))
    }

    /// The volumes in which something counts for a quota; `None` among them: all.
    pub(crate) fn volumes_of_quota(&self, of: Option<QuotaOf>) -> Vec<Option<u32>> {
        match of {
            None => vec![None],
            Some(QuotaOf::Dir(dir)) => vec![Some(dir.volume())],
            Some(QuotaOf::Volume(volume)) => vec![Some(volume)],
            Some(QuotaOf::Project(id)) if self.projects.count_volumes_in(id) > RECALLED_MAX => vec![None],
            Some(QuotaOf::Project(id)) => self.projects.volumes_in(id).map(Some).collect(),
        }
    }

    /// Bytes that only snapshots hold, where this quota counts them: that of a volume's root does
    /// with the volume's setting, that of a project with its own.
    pub(crate) fn held_in_quota(&self, of: QuotaOf) -> i64 {
        match of {
            QuotaOf::Dir(dir) if dir.inode() == 1 => {
                let volume = self.volumes.get(&dir.volume());
                match volume.is_some_and(|v| v.properties.quota_counts_snapshots) {
                    true => self.snapshots.held(dir.volume()).held.bytes,
                    false => 0,
                }
            }
            QuotaOf::Dir(_) | QuotaOf::Volume(_) => 0,
            QuotaOf::Project(id) => self.projects.held(id),
        }
    }

    /// What snapshots of a volume hold has changed.
    pub(crate) fn count_held(&mut self, volume: u32) {
        let Some(project) = self.projects.of_volume(volume) else { return };
        let now = self.snapshots.held(volume).held.bytes;
        let before = self.projects.held.insert(volume, now).unwrap_or(0);
        self.add_held(project, now - before);
    }

    fn add_held(&mut self, project: u32, by: i64) {
        let chain: Vec<u32> = self.projects.chain(Some(project)).collect();
        chain.into_iter().for_each(|id| *self.projects.held_in.entry(id).or_default() += by);
    }

    /// Projects that count something else than snapshots of their volumes hold: number, counted,
    /// found.
    pub(crate) fn projects_held_wrongly(&self) -> Vec<(u32, i64, i64)> {
        let mut found: FxHashMap<u32, i64> = FxHashMap::default();
        for (volume, project) in &self.projects.of_volume {
            let held = self.snapshots.held(*volume).held.bytes;
            self.projects.chain(Some(*project)).for_each(|id| *found.entry(id).or_default() += held);
        }
        let of = |counts: &FxHashMap<u32, i64>, id: u32| counts.get(&id).copied().unwrap_or(0);
        let all = self.projects.iter().map(|(id, _)| (id, of(&self.projects.held_in, id), of(&found, id)));
        all.filter(|(_, counted, found)| counted != found).collect()
    }

    /// A project was made, changed (but for what it is in) or removed.
    pub(crate) fn set_project(&mut self, id: u32, record: Option<ProjectRecord>) {
        self.projects.forget(id);
        match record {
            Some(record) => {
                let used = self.quotas.used(QuotaOf::Project(id));
                self.quotas.set(QuotaOf::Project(id), Quota { limit: record.limit, used });
                self.projects.last = self.projects.last.max(id);
                self.projects.note(id, record);
            }
            None => {
                self.quotas.remove(QuotaOf::Project(id));
                self.projects.held_in.remove(&id);
            }
        }
    }

    /// A volume that uses so much is in this project from now on, and in no other.
    pub(crate) fn set_project_of(&mut self, volume: u32, project: Option<u32>, used: Stats) {
        if let Some(old) = self.projects.of_volume(volume) {
            let held = self.projects.held.remove(&volume).unwrap_or(0);
            self.add_held(old, -held);
            let used = self.quotas.remove(QuotaOf::Volume(volume));
            self.add_used(old, used.negated());
            self.projects.of_volume.remove(&volume);
            if let Some(own) = self.projects.volumes.get_mut(&old) {
                own.remove(&volume);
            }
        }
        if let Some(project) = project {
            self.projects.of_volume.insert(volume, project);
            self.projects.volumes.entry(project).or_default().insert(volume);
            self.quotas.set(QuotaOf::Volume(volume), Quota { used, ..Quota::default() });
            self.add_used(project, used);
            self.count_held(volume);
        }
    }

    fn add_used(&mut self, project: u32, by: Stats) {
        let chain: Vec<u32> = self.projects.chain(Some(project)).collect();
        chain.into_iter().for_each(|id| self.quotas.add(QuotaOf::Project(id), by));
    }

    /// At opening, when volumes and snapshots are there. What is not folded yet is counted later.
    pub(crate) fn load_projects(&mut self, kv: &dyn Kv, moment: &dyn Moment) -> Result<()> {
        each(moment, keys::table_range(Table::Project), |key, v| {
            self.set_project(keys::table_id(key) as u32, Some(ProjectRecord::decode(v)?));
            Ok(())
        })?;
        if let Some(next) = kv.get(&keys::next_project())? {
            self.projects.last = self.projects.last.max(ProjectNumber::decode(&next)?.0.saturating_sub(1));
        }
        each(moment, keys::table_range(Table::ProjectVolume), |key, v| {
            let volume = keys::table_id(key) as u32;
            let used =
                kv.get(&keys::stats(NodeId::new(volume, 1)))?.map(|v| Stats::decode(&v)).transpose()?;
            let project = ProjectNumber::decode(v)?.0;
            self.set_project_of(volume, Some(project), used.unwrap_or_default());
            Ok(())
        })
    }
}
