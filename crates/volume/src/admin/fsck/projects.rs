//! Checks of projects: what they are in and their places are there, none is in itself, volumes are
//! there, and quotas count what is in them.

use super::Census;
use crate::format::each;
use crate::format::inode::Stats;
use crate::format::keys::{self, Table};
use crate::format::projects::{DEPTH_MAX, ProjectNumber, ProjectRecord};
use crate::format::stored::Stored;
use leeward_fs::{Kind, NodeId, Result};
use leeward_meta::Moment;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Projects as they are stored.
#[derive(Default)]
pub(super) struct ProjectsFound {
    /// What each is in; 0: none.
    parents: BTreeMap<u32, u32>,
    /// The project of each volume.
    of_volume: BTreeMap<u32, u32>,
    places: BTreeMap<NodeId, String>,
}

impl ProjectsFound {
    /// A project and those that it is in.
    fn chain(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let above = |id: &u32| self.parents.get(id).copied().filter(|parent| *parent > 0);
        std::iter::successors(Some(id), above).take(DEPTH_MAX + 1)
    }
}

impl Census {
    /// `volumes`: those that are there and not being removed, in order.
    pub(super) fn projects(&mut self, moment: &dyn Moment, volumes: &[u32]) -> Result<()> {
        let (mut found, mut names) = (ProjectsFound::default(), BTreeMap::new());
        each(moment, keys::table_range(Table::Project), |key, value| {
            let id = keys::table_id(key) as u32;
            let record = match ProjectRecord::decode(value) {
                Ok(record) => record,
                Err(e) => {
                    self.say("damaged-record", None, format!("project {id}: {e}"));
                    return Ok(());
                }
            };
            if let Some(other) = found.places.insert(record.place, record.name.clone()) {
                self.say("project", None, format!("projects {other} and {} have one place", record.name));
            }
            found.parents.insert(id, record.parent);
            if let Some(other) = names.insert(record.name.clone(), id) {
                self.say("project", None, format!("projects {other} and {id} are called {}", record.name));
            }
            Ok(())
        })?;
        each(moment, keys::table_range(Table::ProjectVolume), |key, value| {
            let volume = keys::table_id(key) as u32;
            match ProjectNumber::decode(value) {
                Ok(of) => _ = found.of_volume.insert(volume, of.0),
                Err(e) => self.say("damaged-record", None, format!("project of volume {volume}: {e}")),
            }
            Ok(())
        })?;
        self.check_project_numbers(moment, &found, volumes)?;
        self.projects = found;
        Ok(())
    }

    fn check_project_numbers(
        &mut self,
        moment: &dyn Moment,
        found: &ProjectsFound,
        volumes: &[u32],
    ) -> Result<()> {
        let next_key = keys::next_project();
        let next = match moment.scan(&next_key, &keys::after(&next_key), 1)?.pop() {
            Some((_, value)) => ProjectNumber::decode(&value)?.0,
            None => 1,
        };
        for (id, parent) in &found.parents {
            if *parent > 0 && !found.parents.contains_key(parent) {
                self.say("project", None, format!("project {id} is in project {parent}, which is not there"));
            }
            if found.chain(*id).count() > DEPTH_MAX {
                self.say("project", None, format!("project {id} is in itself, or in too many others"));
            }
            if *id >= next {
                self.say("project", None, format!("project {id} has a number that was not given"));
            }
        }
        for (volume, project) in &found.of_volume {
            if !found.parents.contains_key(project) {
                let detail = format!("volume {volume} is in project {project}, which is not there");
                self.say("project", None, detail);
            }
            if volumes.binary_search(volume).is_err() {
                let detail = format!("volume {volume} is in project {project}, and is not there itself");
                self.say("project", None, detail);
            }
        }
        Ok(())
    }

    /// Once all inodes are known.
    pub(super) fn check_places(&mut self) {
        for (place, name) in std::mem::take(&mut self.projects.places) {
            let is_dir = self.inodes.get(&place).is_some_and(|found| found.kind == Some(Kind::Dir));
            if !is_dir {
                self.say("project", Some(place), format!("the place of project {name} is no directory"));
            }
        }
    }

    /// What all volumes of each project use.
    pub(super) fn used_in_projects(&self) -> FxHashMap<u32, Stats> {
        let mut used: FxHashMap<u32, Stats> = FxHashMap::default();
        for (volume, project) in &self.projects.of_volume {
            let sum = self.inodes.get(&NodeId::new(*volume, 1)).map_or(Stats::default(), |found| found.sum);
            for id in self.projects.chain(*project) {
                let all = used.entry(id).or_default();
                *all = all.plus(sum);
            }
        }
        used
    }
}
