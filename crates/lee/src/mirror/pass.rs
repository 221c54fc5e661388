//! One pass of a mirror: a snapshot is taken and sent, and older ones are removed.
//!
//! The snapshot that the copy shows stays on both sides: the next stream goes on from it. One that
//! was not sent to its end is sent again first: the copy may have most of it.

use super::names::{PREFIX, new_name};
use super::other::{Other, STREAM_PIECE_BYTES};
use super::{SECOND, Shared, State, id_of, missing};
use crate::control::server::failure;
use crate::system;
use leeward_volume::admin::{
    Compared, CopyLimits, DIFFERS, Failure, LimitList, LimitOf, MirrorInfo, MirrorNote, MirrorProven, Pipe,
    Progress, Proven, SET_ASIDE, Sender, SnapCreate, SnapDigest, SnapInfo, SnapList, SnapSend, StreamPart,
    Streamed, VolumeShow,
};
use std::io::{self, PipeReader, Read};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Limits in one request, which is to fit into 64 KiB.
const LIMITS_AT_ONCE: usize = 500;
/// Pieces of a stream that are read ahead.
const PIECES_AHEAD: usize = 32;

/// What a copy shows.
pub(super) enum Shown {
    /// It has received nothing yet.
    Nothing,
    /// A snapshot that is here, too.
    Here(SnapInfo),
    /// The snapshot of this name of what it was when it became a copy, which is not here.
    Own(String),
}

impl Shown {
    /// The snapshot here.
    pub(super) fn here(self) -> Option<SnapInfo> {
        match self {
            Shown::Here(snap) => Some(snap),
            Shown::Nothing | Shown::Own(_) => None,
        }
    }
}

impl Shared {
    /// Brings a copy up to date.
    pub(super) fn pass(self: &Arc<Shared>, mirror: &MirrorInfo) -> Result<(), Failure> {
        // it may have been removed since it was looked which are due
        if !self.all()?.iter().any(|known| id_of(known) == id_of(mirror)) {
            return Err(missing(&mirror.volume));
        }
        let other = self.other(mirror)?;
        let at = self.cell.admin(&VolumeShow { name: mirror.volume.clone() }, &mut |_| ())?.at;
        // twice: after what an earlier pass has left, what was changed since
        for _ in 0..2 {
            let base = self.base(&other, mirror, &at)?;
            let since = base.as_ref().map_or(0, |snap| snap.epoch);
            let left = self.own(mirror, &at)?.into_iter().rfind(|snap| snap.epoch > since);
            let is_left = left.is_some();
            let next = left.map_or_else(|| self.take(mirror, &at), Ok)?;
            let sent = self.send(&other, mirror, base.as_ref(), &next);
            if sent.as_ref().is_err_and(|why| why.errno == DIFFERS) {
                // it would differ each time; that it is kept, or locked, is not the news
                let _ = self.remove_here(next);
                return sent.map(drop);
            }
            sent?;
            self.note_proven(mirror, Some(&next))?;
            let limited = self.send_limits(&other, mirror);
            self.prune(&other, mirror, (&at, &next))?;
            limited?;
            if !is_left {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn note(&self, mirror: &MirrorInfo, change: impl FnOnce(&mut State)) {
        change(self.states.lock().entry(id_of(mirror)).or_default());
    }

    /// Keeps which snapshot the copy has shown and proven, for whoever serves the cell later, too.
    pub(super) fn note_proven(&self, mirror: &MirrorInfo, snap: Option<&SnapInfo>) -> Result<(), Failure> {
        let proven = snap.map(|snap| Proven { snapshot: snap.name.clone(), time_secs: snap.time_secs });
        let MirrorInfo { volume, to, copy, .. } = mirror.clone();
        self.cell.admin(&MirrorProven { volume, to, copy, proven }, &mut |_| ()).map(drop)
    }

    /// What the copy shows.
    pub(super) fn shown(&self, other: &Other, mirror: &MirrorInfo, at: &str) -> Result<Shown, Failure> {
        let info = self.find_copy(other, mirror)?;
        let Some(copy) = info.copy.filter(|copy| copy.snapshot.is_some()) else {
            self.note_proven(mirror, None)?;
            return Ok(Shown::Nothing);
        };
        let name = copy.snapshot.unwrap_or_default();
        let here = self.snapshots(at)?;
        match here.into_iter().find(|snap| snap.name == name && snap.time_secs == copy.time_secs) {
            Some(snap) => {
                self.note_proven(mirror, Some(&snap))?;
                Ok(Shown::Here(snap))
            }
            None if copy.made_here => {
                self.note_proven(mirror, None)?;
                Ok(Shown::Own(name))
            }
            None => {
                // it was taken back behind what it has proven, or is another one
                self.note_proven(mirror, None)?;
                Err(nothing_common(mirror, &name))
            }
        }
    }

    /// The snapshot here that a stream to the copy goes on from; `None`: from nothing.
    fn base(&self, other: &Other, mirror: &MirrorInfo, at: &str) -> Result<Option<SnapInfo>, Failure> {
        match self.shown(other, mirror, at)? {
            Shown::Nothing => Ok(None),
            Shown::Here(snap) => Ok(Some(snap)),
            Shown::Own(name) => {
                let common = self.newest_common(other, mirror, at)?;
                let common = common.ok_or_else(|| nothing_common(mirror, &name))?;
                // the name of a mirror gets that before it when the copy is taken back
                let kept = match name.starts_with(PREFIX) {
                    true => format!("{SET_ASIDE}{name}"),
                    false => name,
                };
                tracing::warn!(
                    "mirror of {}: the copy {} in {} was a volume of its own: what was written there and never came here stays \
                     there in snapshot {kept}",
                    mirror.volume,
                    mirror.copy,
                    mirror.to
                );
                Ok(Some(common))
            }
        }
    }

    /// The newest snapshot that the copy has, too.
    fn newest_common(
        &self,
        other: &Other,
        mirror: &MirrorInfo,
        at: &str,
    ) -> Result<Option<SnapInfo>, Failure> {
        let here = self.snapshots(at)?;
        let volume = Some(mirror.copy.clone());
        let there = other.ask(&SnapList { path: None, volume }, &mut |_| ())?.snapshots;
        let is_there = |snap: &&SnapInfo| {
            let same = |of: &SnapInfo| (of.name.clone(), of.time_secs, of.time_nanos, of.uid);
            there.iter().any(|other| same(other) == same(snap))
        };
        Ok(here.iter().rfind(is_there).cloned())
    }

    pub(super) fn snapshots(&self, at: &str) -> Result<Vec<SnapInfo>, Failure> {
        let list = self.cell.admin(&SnapList { path: Some(at.into()), volume: None }, &mut |_| ())?;
        let mut of_root: Vec<SnapInfo> = list.snapshots.into_iter().filter(|snap| snap.path == at).collect();
        of_root.sort_by_key(|snap| snap.epoch);
        Ok(of_root)
    }

    /// The mirror's own snapshots here, oldest first.
    pub(super) fn own(&self, mirror: &MirrorInfo, at: &str) -> Result<Vec<SnapInfo>, Failure> {
        let prefix = mirror.snapshot_prefix();
        Ok(self.snapshots(at)?.into_iter().filter(|snap| snap.name.starts_with(&prefix)).collect())
    }

    fn take(&self, mirror: &MirrorInfo, at: &str) -> Result<SnapInfo, Failure> {
        self.cell.admin(&SnapCreate { path: at.into(), name: new_name(mirror, self.env.wall()) }, &mut |_| ())
    }

    /// Sends a snapshot; goes on where an earlier try has ended.
    pub(super) fn send(
        self: &Arc<Shared>,
        other: &Other,
        mirror: &MirrorInfo,
        from: Option<&SnapInfo>,
        to: &SnapInfo,
    ) -> Result<Streamed, Failure> {
        let part = self.part(other, mirror)?;
        let is_part = part.is_some();
        match self.send_after(other, mirror, (from, to), part) {
            // it does not fit after all
            Err(failure) if is_part && failure.errno == libc::EINVAL => {
                tracing::warn!(
                    "mirror of {}: {}: it is sent from its beginning",
                    mirror.volume,
                    failure.message
                );
                self.send_after(other, mirror, (from, to), None)
            }
            sent => sent,
        }
    }

    /// How much of a stream has come that was not sent to its end.
    fn part(&self, other: &Other, mirror: &MirrorInfo) -> Result<Option<StreamPart>, Failure> {
        let copy = || other.ask(&VolumeShow { name: mirror.copy.clone() }, &mut |_| ());
        if !copy()?.copy.is_some_and(|copy| copy.receiving) {
            return Ok(None);
        }
        // an earlier connection may not be known to be lost there: it is at its end now, and what
        // has come by it is durable. That nothing comes after it is an error, and right
        let _ = other.receive((&mirror.copy, self.sender(mirror)), Box::new(|| None), &mut |_| ());
        Ok(copy()?.copy.and_then(|copy| copy.part))
    }

    /// What the other cell is told of who sends. Over the network it knows this cell by the name
    /// that it has given it.
    fn sender(&self, mirror: &MirrorInfo) -> Sender {
        Sender { cell: self.name.clone(), every_secs: mirror.every_secs }
    }

    fn send_after(
        self: &Arc<Shared>,
        other: &Other,
        mirror: &MirrorInfo,
        (from, to): (Option<&SnapInfo>, &SnapInfo),
        part: Option<StreamPart>,
    ) -> Result<Streamed, Failure> {
        let no_pipe = |e: io::Error| failure(libc::EMFILE, &format!("cannot make a pipe: {e}"));
        let (reader, writer) = io::pipe().map_err(no_pipe)?;
        system::widen_pipe(&writer);
        let request = SnapSend {
            volume: mirror.volume.clone(),
            name: to.name.clone(),
            from: from.map(|from| from.name.clone()),
            part,
            pipe: Pipe::of(&writer),
        };
        let (cell, of, env) = (self.cell.clone(), self.clone(), self.env.clone());
        let id = id_of(mirror);
        let sending = self.env.spawn("mirror-send", move || {
            let mut told = |at: Progress| {
                if let Some(state) = of.states.lock().get_mut(&id) {
                    if state.progress.as_ref().is_none_or(|before| before.phase != at.phase) {
                        state.phase_begun = env.now();
                    }
                    state.progress = Some(at);
                }
            };
            let sent = cell.admin(&request, &mut told);
            drop(writer);
            sent
        });
        let pieces = Pump::new(self, mirror, reader);
        let received = other.receive((&mirror.copy, self.sender(mirror)), pieces.into_pieces(), &mut |_| ());
        let sent = sending.join().unwrap_or_else(|_| Err(failure(libc::EIO, "the sender has ended")));
        match (received, sent) {
            // why the sender stopped is behind what the receiver says
            (Err(_), Err(why)) if why.errno != libc::EPIPE => Err(why),
            (received, _) => received,
        }
    }

    /// Gives the copy the quotas of the volume: they are in no snapshot.
    pub(super) fn send_limits(&self, other: &Other, mirror: &MirrorInfo) -> Result<(), Failure> {
        let all = self.cell.admin(&LimitList { volume: mirror.volume.clone() }, &mut |_| ())?.limits;
        let (mut from, mut left) = (LimitOf::Dir(0), &all[..]);
        loop {
            let (some, rest) = left.split_at(left.len().min(LIMITS_AT_ONCE));
            let to = rest.first().map(|limit| limit.of);
            let request = CopyLimits { name: mirror.copy.clone(), from, to, limits: some.to_vec() };
            match other.ask(&request, &mut |_| ()) {
                Err(why) if why.errno == libc::EINVAL => {
                    self.tell_of_older(mirror, &why);
                    return Ok(());
                }
                done => drop(done?),
            }
            match to {
                Some(to) => (from, left) = (to, rest),
                None => return Ok(()),
            }
        }
    }

    /// The other cell is served by a version that knows nothing of quotas of copies.
    fn tell_of_older(&self, mirror: &MirrorInfo, why: &Failure) {
        let mut was_told = false;
        self.note(mirror, |state| was_told = std::mem::replace(&mut state.has_told_of_older, true));
        if !was_told {
            let MirrorInfo { volume, to, .. } = mirror;
            tracing::warn!("the mirror of {volume} to {to} sends no quotas: {}", why.message);
        }
    }

    /// Compares the copy with the volume in full.
    pub(super) fn verify(
        &self,
        mirror: &MirrorInfo,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        let other = self.other(mirror)?;
        self.wait_until_idle(mirror, progress)?;
        let same = self.is_same(&other, mirror, progress);
        let noted = match &same {
            Ok(()) => self.note_compared(mirror, Some("")),
            Err(failure) if failure.errno == DIFFERS => self.note_compared(mirror, Some(&failure.message)),
            Err(_) => Ok(()),
        };
        // no pass: what is known of those stays
        self.note(mirror, |state| {
            (state.running, state.progress) = (false, None);
            if let Err(failure) = &same
                && failure.errno != DIFFERS
            {
                state.error = Some(failure.message.clone());
            }
        });
        self.changed.notify_all();
        same.and(noted)
    }

    /// Keeps what came of a comparison, for whoever serves the cell later, too. Empty: they are the
    /// same; `None`: what was compared is not there any more.
    pub(super) fn note_compared(&self, mirror: &MirrorInfo, differs: Option<&str>) -> Result<(), Failure> {
        let at_secs = (self.env.wall() / SECOND) as i64;
        let compared = differs.map(|differs| Compared { at_secs, differs: differs.into() });
        let MirrorInfo { volume, to, copy, .. } = mirror.clone();
        self.cell.admin(&MirrorNote { volume, to, copy, compared }, &mut |_| ()).map(drop)
    }

    fn is_same(
        &self,
        other: &Other,
        mirror: &MirrorInfo,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        let at = self.cell.admin(&VolumeShow { name: mirror.volume.clone() }, &mut |_| ())?.at;
        let refused = |why: String| {
            let message = format!("the copy {} in {} {why}", mirror.copy, mirror.to);
            Err(failure(libc::ENOENT, &message))
        };
        let shown = match self.shown(other, mirror, &at)? {
            Shown::Here(snap) => snap,
            Shown::Nothing => return refused("has received nothing yet".into()),
            Shown::Own(name) => {
                return refused(format!(
                    "shows something else, what it was itself (snapshot {name}): lee mirror run {} brings it up to date",
                    mirror.volume
                ));
            }
        };
        let request =
            |volume: &String| SnapDigest { volume: volume.clone(), name: shown.name.clone(), from: None };
        let (cell, here) = (self.cell.clone(), request(&mirror.volume));
        let here = self.env.spawn("mirror-verify", move || cell.admin(&here, &mut |_| ()));
        let there = other.ask(&request(&mirror.copy), progress);
        let here = here.join().unwrap_or_else(|_| Err(failure(libc::EIO, "the comparison has ended")))?;
        if here == there? {
            return Ok(());
        }
        let message = format!(
            "snapshot {} of volume {} and the copy {} in {} differ: run lee fsck and lee scrub on both cells; then, where the \
             volume is right: lee volume remove {2} in the other cell, and it is made anew",
            shown.name, mirror.volume, mirror.copy, mirror.to
        );
        Err(failure(DIFFERS, &message))
    }
}

/// The copy shows a snapshot that is not here, and nothing else that is.
fn nothing_common(mirror: &MirrorInfo, name: &str) -> Failure {
    let message = format!(
        "the copy {0} in {1} shows {name}, which volume {2} does not have (any more): remove the copy there, \
         and it is made anew: lee volume remove {0}",
        mirror.copy, mirror.to, mirror.volume
    );
    failure(libc::ENOENT, &message)
}

/// Takes a stream out of a pipe, and hands it on no faster than it may be.
struct Pump {
    pieces: Receiver<Vec<u8>>,
    of: Arc<Shared>,
    mirror: MirrorInfo,
    /// When the next piece may go.
    due: u64,
}

impl Pump {
    /// Some pieces are read ahead: who writes to the pipe works while they are on their way.
    fn new(of: &Arc<Shared>, mirror: &MirrorInfo, mut reader: PipeReader) -> Pump {
        let (read, pieces) = mpsc::sync_channel(PIECES_AHEAD);
        of.env.spawn("mirror-read", move || {
            while let Some(piece) = next_piece(&mut reader) {
                if read.send(piece).is_err() {
                    break;
                }
            }
        });
        Pump { pieces, of: of.clone(), mirror: mirror.clone(), due: of.env.now() }
    }

    fn into_pieces(mut self) -> Box<super::other::Pieces> {
        Box::new(move || self.next())
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let piece = self.pieces.recv().ok()?;
        let len = piece.len() as u64;
        if !self.may_go(len) {
            return None;
        }
        self.of.note(&self.mirror, |state| {
            state.sent_bytes += len;
            state.total_bytes += len;
        });
        Some(piece)
    }

    /// Waits until so many bytes may go; false: the process ends, or the mirror is removed.
    fn may_go(&mut self, bytes: u64) -> bool {
        let (env, limit) = (self.of.env.clone(), self.mirror.bytes_per_sec);
        while self.goes_on() && env.now() < self.due {
            env.sleep(Duration::from_millis(20));
        }
        if limit > 0 {
            self.due = env.now() + (u128::from(bytes) * u128::from(SECOND) / u128::from(limit)) as u64;
        }
        self.goes_on()
    }

    fn goes_on(&self) -> bool {
        !self.of.has_ended() && !self.of.is_removed(&self.mirror)
    }
}

/// A full piece, or what is left; `None`: nothing is.
fn next_piece(reader: &mut PipeReader) -> Option<Vec<u8>> {
    let mut piece = Vec::with_capacity(STREAM_PIECE_BYTES);
    // a pipe gives little at a time
    reader.take(STREAM_PIECE_BYTES as u64).read_to_end(&mut piece).ok()?;
    Some(piece).filter(|piece| !piece.is_empty())
}
