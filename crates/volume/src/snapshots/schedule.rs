//! Schedules of snapshots: at multiples of an interval in UTC a snapshot is taken of a directory
//! and named by that time. Snapshots with names of that form that should not be kept any more are
//! removed. Snapshots with other names, and locked ones, are left alone.
//!
//! A schedule also covers the roots of volumes attached below its directory, where no other
//! schedule is nearer. What is due follows from the time and from the existing snapshots: nothing
//! is written when a schedule runs. Of missed runs the last is made up.

use crate::format::keys;
use crate::format::schedule::{Keep, expired};
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::schedules::scheduled;
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_env::dates::{self};
use leeward_fs::{Error, NodeId, Result};

impl Tx<'_> {
    /// Removes the schedule of a directory that is going away.
    pub(crate) fn drop_schedule(&mut self, dir: NodeId) {
        if self.st.schedules.get(dir).is_some() {
            self.remove(keys::schedule(dir));
            self.then(Effect::Schedule(dir, None));
        }
    }

    /// The directory at or above one whose schedule is nearest to it; or the first on the way up
    /// that is in another shard.
    fn governing(&self, mut at: NodeId) -> TxResult<Governing> {
        while at.inode() != 0 {
            if !self.st.which.has(at) {
                return Ok(Governing::Beside(at));
            }
            if self.st.schedules.get(at).is_some() {
                return Ok(Governing::By(at));
            }
            at = match (at.inode(), self.st.volumes.get(&at.volume())) {
                (_, None) => return Ok(Governing::None),
                (1, Some(v)) => v.attached_dir,
                (_, Some(_)) => NodeId::new(at.volume(), self.inode(at)?.parent),
            };
        }
        Ok(Governing::None)
    }
}

/// Which schedule is nearest.
enum Governing {
    None,
    By(NodeId),
    Beside(NodeId),
}

impl Shard {
    /// The directory whose schedule is nearest to the root of a volume, from there up.
    fn governing(&self, volume: u32) -> Result<Option<NodeId>> {
        let mut at = NodeId::new(volume, 1);
        loop {
            let looked = self.beside(at, |shard| shard.transact(&Ctx::system(), |tx| tx.governing(at)));
            match looked? {
                Governing::None => return Ok(None),
                Governing::By(dir) => return Ok(Some(dir)),
                Governing::Beside(dir) => at = dir,
            }
        }
    }

    /// Roots of the volumes that a schedule covers because they are attached below its directory.
    pub(crate) fn inheriting(&self, dir: NodeId) -> Result<Vec<NodeId>> {
        let mut volumes: Vec<u32> = Vec::new();
        for shard in 0..self.which.count {
            volumes.extend(self.ask(shard, |shard| Ok(shard.live_volumes()))?);
        }
        let mut roots = Vec::new();
        let is_in_project = |volume: u32| {
            let st = self.lock();
            let project = st.projects.of_volume(dir.volume());
            project.is_none_or(|id| st.projects.chain(st.projects.of_volume(volume)).any(|of| of == id))
        };
        for volume in volumes {
            let root = NodeId::new(volume, 1);
            // who looks after a project makes schedules in it, and for nothing else
            if is_in_project(volume) && root != dir && self.governing(volume)? == Some(dir) {
                roots.push(root);
            }
        }
        Ok(roots)
    }

    fn live_volumes(&self) -> Vec<u32> {
        self.lock().volumes.iter().filter(|(_, v)| !v.removing).map(|(id, _)| *id).collect()
    }

    /// Runs one schedule that is due; `true` when there was one.
    pub(crate) fn schedule_step(&self) -> Result<bool> {
        let now = self.now().secs;
        let due = {
            let st = &mut *self.lock();
            if st.sessions.are_awaited() {
                return Ok(false);
            }
            st.schedules.due(now, &st.snapshots)
        };
        let Some((dir, record, slot)) = due else { return Ok(false) };
        let mut failed = None;
        // its own comes last: a run that a crash interrupts is repeated as a whole
        let mut targets = self.inheriting(dir)?;
        targets.push(dir);
        for target in targets {
            let run = |shard: &Shard| shard.run_schedule(target, slot, now, record.keep);
            if let Err(e) = self.beside(target, run) {
                let path = self.describe(target);
                tracing::warn!("the scheduled snapshot of {path} cannot be taken: {e}");
                failed = Some(format!("{path}: {e}"));
            }
        }
        self.lock().schedules.ran(dir, slot, now, failed);
        Ok(true)
    }

    fn run_schedule(&self, dir: NodeId, slot: i64, now: i64, keep: Keep) -> Result<()> {
        let (ctx, name) = (Ctx::system(), dates::minute(slot));
        let mut taken = self.take(&ctx, dir, name.as_bytes());
        if taken == Err(Error::TooManyLinks) {
            // removed snapshots make room
            self.prune(&ctx, dir, Some(slot), now, keep)?;
            taken = self.take(&ctx, dir, name.as_bytes());
        }
        match taken {
            // of a copy those are removed that are not kept; its snapshots come from elsewhere
            Ok(_) | Err(Error::Exists | Error::ReadOnly) => self.prune(&ctx, dir, None, now, keep),
            Err(e) => Err(e),
        }
    }

    /// Removes the snapshots that are not kept once there is one of `slot`, too.
    fn prune(&self, ctx: &Ctx, dir: NodeId, slot: Option<i64>, now: i64, keep: Keep) -> Result<()> {
        let taken: Vec<i64> = scheduled(&self.lock().snapshots, dir).chain(slot).collect();
        for old in expired(&taken, now, keep) {
            match self.remove(ctx, dir, dates::minute(old).as_bytes()) {
                // locked, shown by a copy, or another request removed it
                Ok(()) | Err(Error::NotPermitted | Error::NotFound | Error::Busy) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
