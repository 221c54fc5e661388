//! Roles: a copy becomes a volume like others, and a volume becomes a copy.
//!
//! A volume that becomes a copy shows a snapshot of all that it was then, which no other cell has.
//! So it is noted with the copy that what it shows was *made here*: a stream may go on from an
//! older snapshot, to which the live volume is taken back first. The snapshot of what it was stays.

use super::receive::NUMBERS_END;
use super::record::Attributes;
use super::{DIGEST_BYTES, EMPTY, Outcome, ReceivingAlone, Sender};
use crate::admin::Progress;
use crate::format::inode::{CopyState, SnapshotRecord, VolumeRecord};
use crate::format::keys;
use crate::format::mirrors::{MirrorsRecord, OriginRecord, PromotionRecord};
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::receiving::{Ending, Task};
use crate::state::{Effect, State};
use crate::stream::Broken;
use crate::tx::{Tx, TxResult};
use leeward_env::{Ctx, dates};
use leeward_fs::codec::{Input, Wire};
use leeward_fs::{Error, NodeId, Result};
use std::convert::Infallible;

/// Names of snapshots that mirrors have taken begin with this.
pub const OF_MIRRORS: &str = "mirror-";
/// Names of snapshots of what was written to a volume, and did not come to the other cell, begin
/// with this.
pub const SET_ASIDE: &str = "set-aside-";
/// Each time a copy is promoted its new inodes begin at a multiple.
const NUMBERS_STEP: u64 = 1 << 26;
/// Longest name of a cell or a volume that is kept of where a copy comes from.
const ORIGIN_BYTES_MAX: usize = 1024;
/// How often it is looked whether operations at work have ended; a millisecond is in between.
const CALLS_LOOKS: u32 = 10_000;
/// What is noted of streams that come begins with this when what is shown was made here.
const MADE_HERE: &[u8] = b"made here";

impl CopyState {
    /// Whether the snapshot that it shows was taken here, of a volume that became a copy.
    pub(crate) fn is_made_here(&self) -> bool {
        self.receiving.starts_with(MADE_HERE)
    }

    /// Which stream has come in part; empty: none.
    pub(crate) fn coming(&self) -> &[u8] {
        let noted = self.noted();
        &noted[..noted.len().min(DIGEST_BYTES)]
    }

    /// How much of it.
    pub(crate) fn come(&self) -> Come {
        self.noted().get(DIGEST_BYTES..).and_then(Come::decode).unwrap_or_default()
    }

    fn noted(&self) -> &[u8] {
        self.receiving.strip_prefix(MADE_HERE).unwrap_or(&self.receiving)
    }

    pub(super) fn note_coming(&mut self, id: &[u8], come: &Come) {
        let before = if self.is_made_here() { MADE_HERE } else { b"" };
        self.receiving = [before, id, &come.encode()].concat().into();
    }
}

/// How much of a stream has come, and is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Come {
    /// Bytes of its records.
    pub bytes: u64,
    /// What they say of the root directory.
    pub root: Option<Attributes>,
}

impl Come {
    /// Bytes u64 and, where they are known, attributes; nothing where nothing has come.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.bytes > 0 {
            self.bytes.put(&mut out);
            self.root.iter().for_each(|root| root.put(&mut out));
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Come> {
        let mut from = Input::new(bytes);
        let bytes = u64::take(&mut from).ok()?;
        let root = from.end().is_err().then(|| Attributes::take(&mut from)).transpose().ok()?;
        Some(Come { bytes, root })
    }
}

impl State {
    /// Whether a volume is a copy.
    pub(crate) fn is_copy(&self, volume: u32) -> bool {
        self.volumes.get(&volume).is_some_and(|v| v.properties.copy.is_some())
    }

    /// Whether users change nothing in a volume: it is a copy, or becomes one.
    pub(crate) fn is_unchangeable(&self, volume: u32) -> bool {
        self.is_copy(volume) || self.becoming_copies.contains(&volume)
    }
}

impl Tx<'_> {
    /// Refuses what would change a copy, or a volume that becomes one.
    pub(crate) fn need_changeable(&self, volume: u32) -> TxResult<()> {
        if self.st.is_unchangeable(volume) { Err(Error::ReadOnly.into()) } else { Ok(()) }
    }
}

impl Shard {
    /// Whether a volume is a copy.
    pub(crate) fn is_copy(&self, volume: u32) -> bool {
        self.lock().is_copy(volume)
    }

    /// A new copy shows that it is empty.
    pub(crate) fn prepare_copy(&self, volume: u32) -> Result<()> {
        // one that did not come to its end has left it
        let epoch = match self.root_snapshot(volume, EMPTY) {
            Some((epoch, _)) => epoch,
            None => self.take_of_copy(volume, EMPTY.into(), self.now(), 0)?,
        };
        self.show_copy(volume, epoch)
    }

    /// A copy becomes a volume like others, as the snapshot that it shows. `handed_over`: where it
    /// came from nothing was changed since this snapshot, and nothing is: that volume has become a
    /// copy itself.
    pub(crate) fn promote(
        &self,
        volume: u32,
        handed_over: Option<&str>,
        progress: &mut dyn FnMut(Progress),
    ) -> Outcome<SnapshotRecord> {
        let _alone = loop {
            match ReceivingAlone::begin(self, volume, Task::Promotion) {
                // it waits for a sender that may be lost
                Err(Task::Stream) => self.end_streams(Some(volume), Ending::AtOnce, || false),
                begun => break begun?,
            }
        };
        let state = self.copy_state(volume)?;
        let shown = self.lock().snapshots.get(volume, state.shown).cloned().ok_or(Error::Stale)?;
        if let Some(name) = handed_over.filter(|name| name.as_bytes() != &*shown.name) {
            return Err(Broken::Refused(format!(
                "snapshot {name} was handed over, and is not what this copy shows"
            )));
        }
        self.drop_unproven(volume, state.shown)?;
        if !state.coming().is_empty() {
            self.take_back(volume, state.shown, progress)?;
        }
        // what was never given away has numbers that nobody else gives out
        let is_taken_back = handed_over.is_some() && state.is_made_here();
        if !is_taken_back {
            self.note_promotion(volume, &shown, handed_over.is_some())?;
        }
        self.show_other(volume, |v| {
            v.properties.copy = None;
            if !is_taken_back {
                v.next_inode = numbers_apart(v.next_inode);
            }
        })?;
        Ok(shown)
    }

    /// Changes what is kept of a volume's mirrors; whether that is another now. The next commit
    /// makes it durable.
    pub(crate) fn keep_of_mirrors(&self, volume: u32, change: impl Fn(&mut MirrorsRecord)) -> Result<bool> {
        let changed = self.keep_of_mirrors_if(volume, |_, record| {
            change(record);
            Ok::<(), Infallible>(())
        })?;
        let Ok(is_other) = changed;
        Ok(is_other)
    }

    /// [`Shard::keep_of_mirrors`], if `change` does not refuse it, which sees the volume as it is
    /// at that moment.
    pub(crate) fn keep_of_mirrors_if<E>(
        &self,
        volume: u32,
        change: impl Fn(&VolumeRecord, &mut MirrorsRecord) -> std::result::Result<(), E>,
    ) -> Result<std::result::Result<bool, E>> {
        self.transact(&Ctx::system(), |tx| {
            let v = tx.st.volumes.get(&volume).filter(|v| !v.removing).ok_or(Error::Stale)?;
            let before = tx.st.mirrors.get(&volume).cloned().unwrap_or_default();
            let mut record = before.clone();
            if let Err(refused) = change(v, &mut record) {
                return Ok(Err(refused));
            }
            let is_other = record != before;
            if is_other {
                tx.put(keys::mirrors(volume), record.encode());
                tx.then(Effect::Mirrors(volume, record));
            }
            Ok(Ok(is_other))
        })
    }

    /// Keeps where a copy comes from. A mirror, which says its interval, takes up a copy again
    /// whose mirror was removed.
    pub(super) fn note_origin(&self, volume: u32, sender: &Sender, of: &str) -> Result<()> {
        let short = |text: &str| text[..text.floor_char_boundary(ORIGIN_BYTES_MAX)].to_owned();
        let Sender { cell, every_secs } = sender;
        let origin = OriginRecord {
            cell: short(cell),
            volume: short(of),
            every_secs: *every_secs,
            ..OriginRecord::default()
        };
        self.keep_of_mirrors(volume, |kept| {
            let mut origin = origin.clone();
            let before = kept.origin.take().filter(|before| before.promoted.is_none());
            // an older version, and a pipe, say no interval
            if let Some(before) = before.filter(|_| origin.every_secs == 0) {
                (origin.every_secs, origin.detached_secs) = (before.every_secs, before.detached_secs);
            }
            kept.origin = Some(origin);
        })
        .map(drop)
    }

    /// Keeps as what a copy became a volume like others: there may be another one that users can
    /// write to.
    fn note_promotion(&self, volume: u32, shown: &SnapshotRecord, handed_over: bool) -> Result<()> {
        let has_received = *shown.name != *EMPTY;
        let promoted = PromotionRecord {
            snapshot: if has_received { String::from_utf8_lossy(&shown.name).into() } else { String::new() },
            time_secs: if has_received { shown.time.secs } else { 0 },
            at_secs: self.now().secs,
            handed_over,
        };
        self.keep_of_mirrors(volume, |kept| {
            if has_received || kept.origin.is_some() {
                let origin = kept.origin.get_or_insert_default();
                (origin.promoted, origin.detached_secs) = (Some(promoted.clone()), None);
            }
        })
        .map(drop)
    }

    /// What a copy shows that was made here stays when it is taken back behind that. A mirror of
    /// this cell has given it its name, and would remove it as one that it has sent.
    pub(super) fn set_aside(&self, volume: u32, epoch: u32) -> Result<()> {
        let record = self.lock().snapshots.get(volume, epoch).cloned().ok_or(Error::Stale)?;
        if !record.name.starts_with(OF_MIRRORS.as_bytes()) {
            return Ok(());
        }
        let (dir, before) = (NodeId::new(volume, 1), record.name.clone());
        let name: Box<[u8]> = [SET_ASIDE.as_bytes(), &before].concat().into();
        self.transact(&Ctx::system(), |tx| {
            tx.check_snapshot_name(dir, &name)?;
            let record = SnapshotRecord { name: name.clone(), ..record.clone() };
            tx.then(Effect::ChangeSnapshot { volume, epoch, record });
            Ok(())
        })?;
        self.invalidate_snapshot(dir, &before);
        self.invalidate_snapshot(dir, &name);
        Ok(())
    }

    /// A volume becomes a copy, which shows a snapshot with this name of all that users were told
    /// is done. Its recycle bin is emptied: what is in it has no place in a copy.
    pub(crate) fn demote(&self, volume: u32, name: &[u8]) -> Outcome<SnapshotRecord> {
        let _alone = ReceivingAlone::begin(self, volume, Task::Demotion)?;
        self.may_become_copy(volume, name)?;
        self.check_every_operation();
        // what machines have told their programs is in it
        let _recalling = self.recall_volume(volume);
        let _becoming = BecomingCopy::begin(self, volume);
        if !self.calls.pass(&self.env, CALLS_LOOKS) {
            return Err(Broken::Refused("operations at work do not end: try again".into()));
        }
        self.empty_bin_below(NodeId::new(volume, 1))?;
        self.sync_all(&Ctx::system())?;
        let epoch = self.take_of_copy(volume, name.into(), self.now(), 0)?;
        self.sync_all(&Ctx::system())?;
        self.show_other(volume, |v| {
            v.properties.copy = Some(CopyState { shown: epoch, receiving: MADE_HERE.into() });
        })?;
        let known = self.lock().refs.of_volume(volume);
        known.into_iter().for_each(|node| self.invalidate_inode(node));
        Ok(self.lock().snapshots.get(volume, epoch).cloned().ok_or(Error::Stale)?)
    }

    fn may_become_copy(&self, volume: u32, name: &[u8]) -> Outcome<()> {
        self.transact(&Ctx::system(), |tx| tx.check_snapshot_name(NodeId::new(volume, 1), name))?;
        let (clock, attached) = (self.lock_clock(), self.attached_in(volume));
        let st = self.lock();
        let v = st.volumes.get(&volume).filter(|v| !v.removing).ok_or(Error::Stale)?;
        let refused = |why: String| Err(Broken::Refused(why));
        if v.properties.copy.is_some() {
            return refused("it is a copy already".into());
        }
        if v.attached_dir.inode() == 0 {
            return refused("the root of the cell cannot be a copy".into());
        }
        // directories go from a copy as they go where it comes from
        let is_locked = |s: &&SnapshotRecord| s.dir != 1 && s.locked_until_secs > clock;
        if let Some(locked) = st.snapshots.of_volume(volume).map(|(_, s)| s).find(is_locked) {
            return refused(format!(
                "its snapshot {} of a directory below its root is locked until {}: only snapshots of the root may be",
                String::from_utf8_lossy(&locked.name),
                dates::minute(locked.locked_until_secs)
            ));
        }
        if let Some(project) = st.projects.places_in(volume).find_map(|place| st.projects.at_place(place)) {
            return refused(format!(
                "project {} has its place in it: see lee project list",
                st.projects.get(project).map_or_else(|| project.to_string(), |p| p.name.clone())
            ));
        }
        if let Some(other) = attached {
            return refused(format!(
                "volume {other} is attached below it, and would be lost from sight: remove it first"
            ));
        }
        Ok(())
    }
}

/// Inode numbers that no other side gives out, as long as there are any. The other side may have
/// reserved some for its clients that are not in what has come, and clients keep those: at least a
/// step is left out.
fn numbers_apart(next: u64) -> u64 {
    let apart = (next / NUMBERS_STEP + 2) * NUMBERS_STEP;
    if apart < NUMBERS_END {
        return apart;
    }
    tracing::warn!(
        "a volume was promoted too often to have inode numbers of its own: copy it into a new one"
    );
    next
}

/// While it lives users change nothing in the volume.
struct BecomingCopy<'a>(&'a Shard, u32);

impl<'a> BecomingCopy<'a> {
    fn begin(shard: &'a Shard, volume: u32) -> BecomingCopy<'a> {
        shard.lock().becoming_copies.insert(volume);
        BecomingCopy(shard, volume)
    }
}

impl Drop for BecomingCopy<'_> {
    fn drop(&mut self) {
        self.0.lock().becoming_copies.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_fs::{InodeFlags, Time};

    #[test]
    fn what_comes_is_noted_beside_where_the_shown_was_made() {
        let (mut state, id) = (CopyState { shown: 7, receiving: Box::default() }, [7; DIGEST_BYTES]);
        let none = Come::default();
        assert!(!state.is_made_here() && state.coming().is_empty());
        state.note_coming(&id, &none);
        assert_eq!((state.is_made_here(), state.coming(), state.come()), (false, &id[..], none));
        state.receiving = MADE_HERE.into();
        assert!(state.is_made_here() && state.coming().is_empty() && state.come() == none);
        let root = Attributes {
            mode: 0o755,
            uid: 1,
            gid: 2,
            size: 0,
            times: [Time::default(); 4],
            flags: InodeFlags::default(),
        };
        for come in [Come { bytes: 9, root: None }, Come { bytes: 1 << 40, root: Some(root) }] {
            state.note_coming(&id, &come);
            assert_eq!((state.is_made_here(), state.coming(), state.come()), (true, &id[..], come));
        }
        state.note_coming(b"another", &none);
        assert_eq!((state.is_made_here(), state.coming(), state.come()), (true, &b"another"[..], none));
    }

    #[test]
    fn numbers_are_apart_as_long_as_there_are_any() {
        assert_eq!(numbers_apart(2), 2 * NUMBERS_STEP);
        assert_eq!(numbers_apart(NUMBERS_STEP - 1), 2 * NUMBERS_STEP);
        assert_eq!(numbers_apart(NUMBERS_STEP), 3 * NUMBERS_STEP);
        let last = NUMBERS_END - NUMBERS_STEP;
        assert_eq!((numbers_apart(last - NUMBERS_STEP - 1), numbers_apart(last)), (last, last));
    }
}
