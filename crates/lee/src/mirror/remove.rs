//! A mirror is removed: the other cell is told that nothing more comes for its copy, and does not
//! wait for it from then on.
//!
//! It is told first: a mirror that is there still when the process is killed takes its copy up
//! again with the next pass. So nothing of the mirror may be at work meanwhile that does so.

use super::other::IS_PROMOTED;
use super::{END_WAIT, LOOK, MirrorStatus, Shared, Which, id_of};
use leeward_volume::admin::{CopyDetach, Failure, MirrorInfo, MirrorUnset};

impl Shared {
    /// Removes a mirror. That the other cell cannot be told is no error.
    pub(super) fn remove(&self, which: &Which) -> Result<Vec<MirrorStatus>, Failure> {
        let mirror = self.one(which)?;
        let mut status = self.status(which)?;
        let is_alone = self.stop(&mirror);
        let not_detached = self.detach(&mirror).err().map(|why| why.message);
        let MirrorInfo { volume, to, copy, .. } = mirror.clone();
        let removed = self.cell.admin(&MirrorUnset { volume, to, copy }, &mut |_| ());
        self.note(&mirror, |state| {
            state.running &= !is_alone;
            state.is_removed &= removed.is_ok();
        });
        self.changed.notify_all();
        removed?;
        status.iter_mut().for_each(|status| status.not_detached.clone_from(&not_detached));
        Ok(status)
    }

    /// Whether a mirror is being removed, or was a moment ago.
    pub(super) fn is_removed(&self, mirror: &MirrorInfo) -> bool {
        self.states.lock().get(&id_of(mirror)).is_some_and(|state| state.is_removed)
    }

    /// Has what is at work for a mirror end, and takes its place. False: it takes long, such as a
    /// full comparison. It begins no stream any more, and only a stream takes a copy up.
    fn stop(&self, mirror: &MirrorInfo) -> bool {
        let until = self.env.now() + END_WAIT.as_nanos() as u64;
        let mut states = self.states.lock();
        loop {
            let state = states.entry(id_of(mirror)).or_default();
            state.is_removed = true;
            if !state.running {
                self.begins(state);
                return true;
            }
            if self.env.now() >= until {
                return false;
            }
            self.changed.wait_for(&mut states, LOOK);
        }
    }

    /// Tells the other cell that nothing more comes for the copy.
    fn detach(&self, mirror: &MirrorInfo) -> Result<(), Failure> {
        let request = CopyDetach { name: mirror.copy.clone(), from: Some(self.name.clone()) };
        match self.other(mirror)?.ask(&request, &mut |_| ()) {
            // there is no copy that would be waited for
            Err(why) if [libc::ENOENT, IS_PROMOTED].contains(&why.errno) => Ok(()),
            Err(why) if why.errno == libc::EINVAL => {
                let message = format!("{} is served by a version that cannot be told", mirror.to);
                Err(Failure { message, ..why })
            }
            told => told.map(drop),
        }
    }
}
