//! What users may ask who look after projects: for the volumes in these they are operators, but for
//! what reaches beyond them.
//!
//! Who looks after a project follows from the groups that the cell knows of the user, never from
//! what a machine says. The cell checks what it makes itself ([`Ctx::delegate`]): names, places,
//! budgets.

use super::{Checked, Eyes, above, for_operators, refused};
use crate::groups::name_of;
use leeward_env::{Ctx, Groups};
use leeward_fs::NodeId;
use leeward_remote::Asker;
use leeward_volume::Cell;
use leeward_volume::admin::{self, AnyRequest, BucketCreate, BucketInfo, Failure, PropertyChanges};
use std::sync::Arc;

/// Most snapshots of a volume, and days that its log and its bin keep, that users choose.
const SNAPSHOTS_MAX: u32 = 20_000;
const DAYS_MAX: u16 = 400;

/// The context of somebody's request to the cell.
pub(super) fn context(cell: &Arc<Cell>, asker: &Asker) -> Ctx {
    Ctx { delegate: Some(groups(cell, asker)), ..asker.ctx }
}

/// The groups of the cell that it knows the user to be in; none where the machine may not use all
/// volumes: projects are in all.
fn groups(cell: &Arc<Cell>, asker: &Asker) -> Groups {
    let uid = asker.ctx.uid;
    if uid == 0 || !asker.grant.volumes.is_empty() || !cell.has_projects() {
        return Groups::default();
    }
    let accounts = cell.accounts();
    let of_user = |name: String| Groups::of_user(&name, &accounts.groups().of_user(&name));
    name_of(&accounts, uid).map(of_user).unwrap_or_default()
}

impl Eyes<'_> {
    /// Whether the user looks after the project of a volume, which the host may use.
    pub(super) fn looks_after(&self, volume: u32) -> bool {
        let root = NodeId::new(volume, NodeId::ROOT.inode());
        self.ctx.uid != 0 && self.asker.grant.has(root) && self.cell.looks_after(&self.ctx, volume)
    }

    /// The same of the volume in which something is, whatever its modes say. What is not there is
    /// nobody's.
    pub(super) fn looks_after_path(&self, path: &str) -> bool {
        self.cell.has_projects() && self.place(path).is_some_and(|node| self.looks_after(node.volume()))
    }

    /// The same of the volume in which something was that need not be there any more.
    fn looks_after_what_was(&self, path: &str) -> Checked<()> {
        let place = || self.cell.nearest(path).unwrap_or_else(|last| last);
        match self.cell.has_projects() && self.looks_after(place().volume()) {
            true => Ok(()),
            false => Err(not_his(path)),
        }
    }

    fn place(&self, path: &str) -> Option<NodeId> {
        self.cell.nearest(path).ok()
    }

    fn looks_after_name(&self, volume: &str) -> Checked<()> {
        let found = self.cell.volume_named(volume).filter(|id| self.looks_after(*id));
        found.map(drop).ok_or_else(|| not_his(volume))
    }

    /// A new volume is in no list of volumes that a host may use.
    fn may_use_all(&self) -> Checked<()> {
        self.may_change()?;
        match self.asker.grant.volumes.is_empty() {
            true => Ok(()),
            false => {
                let text =
                    format!("the host {} may not use all volumes: ask on another machine", self.asker.host);
                Err(refused(libc::EPERM, text))
            }
        }
    }

    /// What who looks after projects may ask, whatever the modes of files say.
    pub(super) fn may_as_delegate(&self, request: &AnyRequest) -> Checked<()> {
        use AnyRequest as A;
        if self.ctx.uid == 0 {
            return Err(for_operators());
        }
        match request {
            A::UsageShow(r) => self.may_look_at(&r.path),
            A::QuotaShow(r) => self.may_look_at(&r.path),
            A::FileCensus(r) => self.may_look_at(&r.path),
            A::SnapList(r) => match (&r.path, &r.volume) {
                (Some(path), None) => self.may_look_at(path),
                (None, Some(name)) => self.looks_after_name(name),
                _ => Err(for_operators()),
            },
            A::SnapCreate(r) => self.may_change_in(&r.path),
            A::SnapRemove(r) => self.may_change_in(&r.path),
            A::SnapRename(r) => self.may_change_in(&r.path),
            // restores bring back files of all owners, so they stay within what he looks after
            A::SnapRestore(r) => {
                self.may_change_in(&r.path)?;
                r.to.as_ref().map_or(Ok(()), |to| self.may_change_in(above(to)))
            }
            A::BinRestore(r) => {
                self.may_change()?;
                self.looks_after_what_was(&r.path)?;
                r.to.as_ref().map_or(Ok(()), |to| self.may_change_in(above(to)))
            }
            A::ProjectList(_) | A::ProjectShow(_) => Ok(()),
            // the cell knows who looks after which
            A::ProjectCreate(_) | A::ProjectSet(_) | A::ProjectMove(_) | A::ProjectRemove(_) => {
                self.may_use_all()
            }
            A::VolumeCreate(r) => self.may_use_all().and_then(|()| self.may_own(r.uid, r.gid)),
            A::VolumeRename(r) => self.may_use_all().and_then(|()| self.looks_after_name(&r.name)),
            A::VolumeRemove(r) => self.may_use_all().and_then(|()| self.looks_after_name(&r.name)),
            A::VolumeAllow(r) => self.may_change().and_then(|()| self.looks_after_name(&r.name)),
            A::VolumeSet(r) => {
                self.may_change()?;
                self.looks_after_name(&r.name)?;
                check_properties(&r.set)
            }
            A::VolumeList(_) => Ok(()),
            A::VolumeShow(r) => match self.cell.volume_named(&r.name).filter(|id| self.is_his(*id)) {
                Some(_) => Ok(()),
                None => Err(not_his(&r.name)),
            },
            A::QuotaSet(r) => self.may_change_in(&r.path),
            A::ScheduleSet(r) => self.may_change_in(&r.path),
            A::ScheduleRemove(r) => self.may_change_in(&r.path),
            A::ScheduleList(_) | A::BucketList(_) => Ok(()),
            A::OwnerLimit(r) => {
                self.may_change()?;
                r.volume.as_deref().map_or_else(|| Err(for_operators()), |name| self.looks_after_name(name))
            }
            A::SnapUsageList(r) => {
                r.volume.as_deref().map_or_else(|| Err(for_operators()), |name| self.looks_after_name(name))
            }
            A::BucketCreate(r) => self.check_bucket(r),
            A::BucketRemove(r) => {
                self.may_change()?;
                let bucket = self.bucket(&r.name)?;
                self.may_change_in(&bucket.path)
            }
            _ => Err(for_operators()),
        }
    }

    /// Whose volume: the user's own, or in a project that he looks after.
    pub(super) fn is_his(&self, volume: u32) -> bool {
        let root = NodeId::new(volume, NodeId::ROOT.inode());
        let owns = self.asker.grant.has(root) && self.cell.volume_owner(volume) == Some(self.ctx.uid);
        owns || self.looks_after(volume)
    }

    /// Nobody makes something that is root's.
    fn may_own(&self, uid: u32, gid: u32) -> Checked<()> {
        match uid == 0 || gid == 0 {
            true => Err(refused(libc::EPERM, "name an owner (--owner): volumes of root are for operators")),
            false => Ok(()),
        }
    }

    fn may_change_in(&self, path: &str) -> Checked<()> {
        self.may_change()?;
        self.may_look_at(path)
    }

    fn may_look_at(&self, path: &str) -> Checked<()> {
        match self.looks_after_path(path) {
            true => Ok(()),
            false => Err(not_his(path)),
        }
    }

    fn bucket(&self, name: &str) -> Checked<BucketInfo> {
        let all = self.cell.admin(&admin::BucketList, &mut |_| ())?.buckets;
        let found = all.into_iter().find(|bucket| bucket.name == name);
        found.ok_or_else(|| refused(libc::ENOENT, format!("there is no bucket {name}: see lee bucket list")))
    }

    /// Names of buckets are the cell's, as those of volumes are.
    fn check_bucket(&self, request: &BucketCreate) -> Checked<()> {
        self.may_change_in(&request.path)?;
        if request.public {
            return Err(refused(libc::EPERM, "an operator says what anybody may read (--public)"));
        }
        let volume = self.place(&request.path).map(NodeId::volume);
        let project = volume.and_then(|volume| self.cell.project_of(volume)).unwrap_or_default();
        let begin = format!("{}.", project.to_lowercase().replace('_', "-"));
        match request.name.strip_prefix(&begin) {
            Some(_) => Ok(()),
            None => {
                let text = format!("{}: buckets of project {project} are called {begin}NAME", request.name);
                Err(refused(libc::EPERM, text))
            }
        }
    }
}

fn not_his(what: &str) -> Failure {
    let text = format!(
        "{what}: only operators may, and who looks after its project (lee project list shows those that you do)"
    );
    refused(libc::EPERM, text)
}

fn check_properties(set: &PropertyChanges) -> Checked<()> {
    if set.public.is_some() {
        return Err(refused(libc::EPERM, "public: an operator says what anybody may read"));
    }
    let many = [
        ("snapshots-max", set.snapshots_max.is_some_and(|n| n > SNAPSHOTS_MAX), u64::from(SNAPSHOTS_MAX)),
        ("bin-days", set.bin_days.is_some_and(|n| n > DAYS_MAX), u64::from(DAYS_MAX)),
        ("audit-days", set.audit_days.is_some_and(|n| n > DAYS_MAX), u64::from(DAYS_MAX)),
    ];
    match many.iter().find(|(_, is_more, _)| *is_more) {
        Some((name, _, most)) => {
            Err(refused(libc::EPERM, format!("{name}: more than {most} are for an operator to set")))
        }
        None => Ok(()),
    }
}
