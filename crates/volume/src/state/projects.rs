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
use std::collections::BTreeMap;
use std::sync::Arc;

/// All projects of the shard.
#[derive(Default)]
pub struct Projects {
    by_id: BTreeMap<u32, Arc<ProjectRecord>>,
    of_volume: BTreeMap<u32, u32>,
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
        self.iter().find(|(_, record)| record.name == name).map(|(id, _)| id)
    }

    /// The one whose place this directory is.
    pub fn at_place(&self, dir: NodeId) -> Option<u32> {
        self.iter().find(|(_, record)| record.place == dir).map(|(id, _)| id)
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

    /// The volumes of a project and of those in it.
    pub fn volumes_in(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let is_in = move |of: &u32| self.chain(Some(*of)).any(|above| above == id);
        self.of_volume.iter().filter(move |(_, of)| is_in(of)).map(|(volume, _)| *volume)
    }

    /// The number of the next one.
    pub fn next(&self) -> u32 {
        self.last + 1
    }

    /// Whether the caller is of the group that looks after a project, or one that it is in.
    pub fn is_owner(&self, ctx: &Ctx, id: Option<u32>) -> bool {
        self.chain(id).any(|id| self.by_id.get(&id).is_some_and(|record| ctx.gids.contains(record.owner)))
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
        let held = |volume: u32| self.snapshots.held(volume).held.bytes;
        let found = |id: u32| self.projects.volumes_in(id).map(held).sum::<i64>();
        let all = self
            .projects
            .iter()
            .map(|(id, _)| (id, self.projects.held_in.get(&id).copied().unwrap_or(0), found(id)));
        all.filter(|(_, counted, found)| counted != found).collect()
    }

    /// A project was made, changed (but for what it is in) or removed.
    pub(crate) fn set_project(&mut self, id: u32, record: Option<ProjectRecord>) {
        match record {
            Some(record) => {
                let used = self.quotas.of(QuotaOf::Project(id)).map_or(Stats::default(), |quota| quota.used);
                self.quotas.set(QuotaOf::Project(id), Quota { limit: record.limit, used });
                self.projects.last = self.projects.last.max(id);
                self.projects.by_id.insert(id, Arc::new(record));
            }
            None => {
                self.quotas.remove(QuotaOf::Project(id));
                self.projects.held_in.remove(&id);
                self.projects.by_id.remove(&id);
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
        }
        if let Some(project) = project {
            self.projects.of_volume.insert(volume, project);
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
