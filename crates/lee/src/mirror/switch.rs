//! Roles change in order: the copy in the other cell becomes the volume, the volume here the copy,
//! and nothing is lost.
//!
//! The copy is brought up to date while programs still write; then the volume here becomes a copy,
//! its last snapshot is sent, and the copy there is promoted. In between nobody can write to
//! either. What fails before the promotion was asked for is taken back. After that it is not, as
//! long as the other cell has not refused: its answer may be lost, and two volumes that are written
//! to must not come about. Then the volume here stays a copy, and asking again goes on.

use super::names::new_name;
use super::other::{IS_PROMOTED, Other};
use super::{SECOND, Shared};
use crate::control::server::failure;
use leeward_volume::admin::{
    Failure, MirrorInfo, Progress, SnapInfo, VolumeDemote, VolumeInfo, VolumePromote, VolumeShow,
};
use std::sync::Arc;

impl Shared {
    /// Hands a volume over to the cell that has a copy of it.
    pub(super) fn switch(
        self: &Arc<Shared>,
        mirror: &MirrorInfo,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        self.wait_until_idle(mirror, progress)?;
        let result = self.volume(mirror).and_then(|volume| match volume.copy {
            None => self.hand_over(mirror, &volume.at),
            Some(_) => self.go_on(mirror, &volume),
        });
        self.ends(mirror, result.clone());
        result
    }

    fn volume(&self, mirror: &MirrorInfo) -> Result<VolumeInfo, Failure> {
        self.cell.admin(&VolumeShow { name: mirror.volume.clone() }, &mut |_| ())
    }

    fn hand_over(self: &Arc<Shared>, mirror: &MirrorInfo, at: &str) -> Result<(), Failure> {
        self.pass(mirror)?;
        let begun = self.env.now();
        let other = self.other(mirror)?;
        let name = new_name(mirror, self.env.wall());
        let demoted = self.demote(mirror, at, &name);
        let sent = demoted.and_then(|last| self.send_last(&other, mirror, at, &last).map(|()| last));
        let last = sent.map_err(|why| self.taken_back(mirror, &name, why))?;
        self.promote_there(&other, mirror, &last).map_err(|why| match why {
            NotPromoted::Refused(why) => self.taken_back(mirror, &name, why),
            NotPromoted::Unknown(why) => why,
        })?;
        let pause_ms = (self.env.now() - begun) * 1000 / SECOND;
        self.note(mirror, |state| state.pause_ms = Some(pause_ms));
        Ok(())
    }

    /// Ends what was cut short. Whether the other cell was asked is not known: nothing is taken
    /// back.
    fn go_on(self: &Arc<Shared>, mirror: &MirrorInfo, volume: &VolumeInfo) -> Result<(), Failure> {
        let shown = volume.copy.as_ref().filter(|copy| copy.made_here && !copy.receiving);
        let shown = shown.and_then(|copy| copy.snapshot.as_ref());
        let own = self.own(mirror, &volume.at)?;
        let last = own.into_iter().find(|snap| Some(&snap.name) == shown).ok_or_else(|| {
            let message = format!(
                "volume {} is a copy, and no lee mirror switch has made it one: see lee volume show {0}, and ask in the cell \
                 where it can be changed",
                mirror.volume
            );
            failure(libc::EROFS, &message)
        })?;
        let stays = |why: Failure| stays_a_copy(mirror, &last, &why);
        let other = self.other(mirror).map_err(stays)?;
        self.send_last(&other, mirror, &volume.at, &last).map_err(|why| match why.errno {
            IS_PROMOTED => failure(
                IS_PROMOTED,
                &format!(
                    "{0} in {1} is a volume of its own: promoted by an earlier lee mirror switch, or by somebody. Volume {2} \
                     here stays a copy, as snapshot {3} shows it: see there whether that is all in it",
                    mirror.copy, mirror.to, mirror.volume, last.name
                ),
            ),
            _ => stays(why),
        })?;
        self.promote_there(&other, mirror, &last).map_err(|why| match why {
            NotPromoted::Refused(why) => stays(why),
            NotPromoted::Unknown(why) => why,
        })
    }

    fn demote(&self, mirror: &MirrorInfo, at: &str, name: &str) -> Result<SnapInfo, Failure> {
        let request = VolumeDemote { name: mirror.volume.clone(), snapshot: name.into() };
        self.cell.admin(&request, &mut |_| ())?;
        let found = self.own(mirror, at)?.into_iter().find(|snap| snap.name == name);
        found.ok_or_else(|| failure(libc::ENOENT, &format!("snapshot {name} was removed by somebody")))
    }

    /// The copy shows the last snapshot.
    fn send_last(
        self: &Arc<Shared>,
        other: &Other,
        mirror: &MirrorInfo,
        at: &str,
        last: &SnapInfo,
    ) -> Result<(), Failure> {
        if self.find_copy(other, mirror)?.copy.is_some_and(|copy| copy.made_here) {
            let message = format!(
                "{} in {} was changed, and has become a copy again: to lose what was changed there, promote the volume here, \
                 and run the mirror",
                mirror.copy, mirror.to
            );
            return Err(failure(libc::EBUSY, &message));
        }
        let shown = self.shown(other, mirror, at)?.here();
        if shown.as_ref().map(|snap| snap.epoch) != Some(last.epoch) {
            self.send(other, mirror, shown.as_ref(), last)?;
        }
        self.note_proven(mirror, Some(last))?;
        self.send_limits(other, mirror)
    }

    fn promote_there(&self, other: &Other, mirror: &MirrorInfo, last: &SnapInfo) -> Result<(), NotPromoted> {
        let request = VolumePromote { name: mirror.copy.clone(), handed_over: Some(last.name.clone()) };
        let Err(why) = other.ask(&request, &mut |_| ()) else { return Ok(()) };
        match self.find_copy(other, mirror) {
            Err(e) if e.errno == IS_PROMOTED => Ok(()),
            // the answer is lost, or there was none
            _ if why.errno == libc::EIO => Err(NotPromoted::Unknown(stays_a_copy(mirror, last, &why))),
            _ => Err(NotPromoted::Refused(why)),
        }
    }

    /// The volume here can be changed as before, if it has become the copy that shows the snapshot
    /// of this name: the other cell can make nothing of that.
    fn taken_back(&self, mirror: &MirrorInfo, name: &str, why: Failure) -> Failure {
        let volume = &mirror.volume;
        let state = match self.volume(mirror).map(|volume| volume.copy) {
            Ok(None) => format!("Volume {volume} can be changed here, as before"),
            Ok(Some(copy)) if copy.snapshot.as_deref() != Some(name) => format!("Volume {volume} is a copy"),
            _ => {
                let request = VolumePromote { name: volume.clone(), handed_over: Some(name.into()) };
                match self.cell.admin(&request, &mut |_| ()) {
                    Ok(_) => {
                        format!("Volume {volume} can be changed here, as before; its recycle bin is empty")
                    }
                    Err(e) => {
                        format!(
                            "Volume {volume} may be a copy now ({}): lee volume promote {volume}",
                            e.message
                        )
                    }
                }
            }
        };
        failure(why.errno, &format!("{}. {state}", why.message))
    }
}

/// Why the copy there was not promoted.
enum NotPromoted {
    /// It is none: the other cell says so.
    Refused(Failure),
    /// It may be, or become one yet.
    Unknown(Failure),
}

fn stays_a_copy(mirror: &MirrorInfo, last: &SnapInfo, why: &Failure) -> Failure {
    let message = format!(
        "{}. Volume {2} here stays a copy, as snapshot {1} shows it, for {3} in {4} may be promoted: lee mirror switch {2} again \
         goes on. If {3} is a copy and the other cell is to do without: lee volume promote {2}",
        why.message, last.name, mirror.volume, mirror.copy, mirror.to
    );
    failure(why.errno, &message)
}
