//! Snapshots as streams: [`send`] writes what leads from one snapshot to the next, [`receive`]
//! makes a *copy* of it in another cell (docs/decisions/0040).
//!
//! A copy is a volume that shows one of its snapshots, the newest that is whole and proven, and
//! lets nobody change anything. Its inodes have the numbers of the volume that it is a copy of.
//!
//! A stream is a line that says what it is, a header in JSON with its length before it, records in
//! portions, and at the end the SHA-256 of all records. Both sides compute that from what they
//! have.

mod changes;
mod hashing;
pub(crate) mod receive;
pub(crate) mod record;
mod roles;
mod send;

use crate::admin::{PathText, Progress};
use crate::cell::turns::Paced;
use crate::format::inode::{CopyState, SnapshotRecord, VolumeRecord};
use crate::ops::check_name;
use crate::shard::Shard;
use crate::snapshots::diff::Differing;
use crate::snapshots::tree::Tree;
use crate::state::Effect;
use crate::state::receiving::{Ending, Task};
use crate::state::snapshots::View;
use changes::{Changes, Reached};
use hashing::Hashing;
use leeward_env::limits::SNAPSHOT_NAME_BYTES_MAX;
use leeward_env::{Ctx, Nanos, Work, hex};
use leeward_fs::{Error, INHERITED, NodeId, Result, Time};
use receive::Receiving;
pub(crate) use receive::is_number;
use record::{Attributes, Record, damaged, each_record};
use ring::digest;
use roles::Come;
pub use roles::{OF_MIRRORS, SET_ASIDE};
use send::{Sending, Sink, attributes};
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// After so many records it is looked whether the stream is to end.
const LOOK_RECORDS: u32 = 64;
/// The first line of each stream.
const FIRST_LINE: &[u8; 26] = b"leeward snapshot stream 1\n";
/// Longest header, and longest portion of records.
const HEADER_BYTES_MAX: usize = 64 << 10;
const PORTION_BYTES_MAX: usize = 4 << 20;
/// The snapshot that a copy shows before it has received anything.
pub(crate) const EMPTY: &[u8] = b"nothing received yet";
/// The name of a snapshot of what a stream has left that ended early, while that is taken back.
const TORN: &[u8] = b"received in part";
const DIGEST_BYTES: usize = 32;
/// What is noted of a stream that is not to go on.
const NOT_APPLIED: &[u8] = b"what could not be applied";
/// What is noted while the live volume is taken back to a snapshot.
const TAKEN_BACK: &[u8] = b"what is taken back";
/// So often what has come of a stream is made durable, so that it can go on from there,
/// nanoseconds.
const NOTE_STEP: Nanos = 30_000_000_000;

/// A tree to go from, or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// No tree at all.
    Nothing,
    /// A snapshot, by its epoch.
    Snapshot(u32),
    /// What is there now.
    Now,
}

/// What a stream is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the volume that was sent.
    pub volume: String,
    /// The snapshot that the receiver must have; `None`: it has none.
    pub from: Option<Sent>,
    /// The snapshot that it has afterwards.
    pub to: Sent,
}

/// A snapshot that is sent. Name and time identify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Name.
    pub name: PathText,
    /// When it was taken, seconds since 1970.
    pub time_secs: i64,
    /// And nanoseconds.
    pub time_nanos: u32,
    /// Who took it.
    pub uid: u32,
}

/// What is before the records of a stream.
#[derive(Serialize, Deserialize)]
struct Begin {
    #[serde(flatten)]
    header: Header,
    /// Bytes of its records that the receiver has already, and that are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    after: u64,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// A stream that a copy has received in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPart {
    /// Which: the SHA-256 of its header, in hexadecimal.
    pub stream: String,
    /// Bytes of its records that have come and are durable.
    pub bytes: u64,
}

impl Header {
    /// The SHA-256 by which it is known.
    fn id(&self) -> Outcome<Vec<u8>> {
        let text = serde_json::to_vec(self).map_err(|e| Broken::Refused(e.to_string()))?;
        Ok(digest::digest(&digest::SHA256, &text).as_ref().to_vec())
    }
}

/// Who sends a stream, as far as the receiver is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// The other cell, as this one knows it; empty: not known.
    pub cell: String,
    /// Seconds from one snapshot to the next; 0: not known.
    pub every_secs: u32,
}

/// How a stream was sent or received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streamed {
    /// What it is.
    pub header: Header,
    /// Bytes of all of it.
    pub bytes: u64,
    /// SHA-256 of its records, in hexadecimal.
    pub digest: String,
}

impl Sent {
    /// Whether a snapshot can have this name and time.
    fn is_possible(&self) -> bool {
        let name = self.name.as_bytes();
        let fits = check_name(name).is_ok() && name.len() <= SNAPSHOT_NAME_BYTES_MAX && name[0] != INHERITED;
        fits && *name != *EMPTY && *name != *TORN && self.time_nanos < 1_000_000_000
    }

    fn of(record: &SnapshotRecord) -> Sent {
        Sent {
            name: PathText::new(record.name.to_vec()),
            time_secs: record.time.secs,
            time_nanos: record.time.nanos,
            uid: record.uid,
        }
    }
}

/// Why a stream is not sent or received.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The file system's error.
    Fs(Error),
    /// The pipe that it comes from or goes to.
    Pipe(std::io::Error),
    /// It does not fit, in words for a person.
    Refused(String),
    /// What has come is not what was sent.
    Differs,
}

impl Broken {
    /// Whether the stream does not fit what is here. If not it may come to its end when it goes on:
    /// records can be applied again, and what comes of all is proven.
    fn is_of_stream(&self) -> bool {
        match self {
            Broken::Fs(e) => !matches!(
                e,
                Error::Interrupted
                    | Error::Io(_)
                    | Error::NoSpace
                    | Error::Quota
                    | Error::Busy
                    | Error::WouldBlock
                    | Error::Unavailable
            ),
            Broken::Differs => true,
            Broken::Pipe(_) | Broken::Refused(_) => false,
        }
    }
}

impl From<Error> for Broken {
    fn from(e: Error) -> Broken {
        Broken::Fs(e)
    }
}

impl From<Task> for Broken {
    fn from(in_the_way: Task) -> Broken {
        let what = match in_the_way {
            Task::Stream => "it receives a stream already",
            Task::Promotion => "it is being promoted",
            Task::Demotion => "it is becoming a copy",
        };
        Broken::Refused(format!("{what}: wait until that is over"))
    }
}

impl From<std::io::Error> for Broken {
    fn from(e: std::io::Error) -> Broken {
        Broken::Pipe(e)
    }
}

type Outcome<T> = std::result::Result<T, Broken>;

impl Shard {
    /// Writes records that lead from one tree of a volume to another.
    fn write_changes(
        &self,
        (ctx, volume): (&Ctx, u32),
        (old, new): (At, At),
        sink: &mut Sink<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let trees = (self.tree(volume, old)?, self.tree(volume, new)?);
        for at in [old, new] {
            match at {
                At::Nothing => (),
                At::Snapshot(epoch) => self.settle_epoch(ctx, volume, epoch)?,
                At::Now => self.settle_epoch(ctx, volume, u32::MAX)?,
            }
        }
        let paced = Paced { shard: self, ctx, volume };
        let between = match (old, new) {
            (At::Snapshot(a), At::Snapshot(b)) => Some((a.min(b), Some(a.max(b)))),
            (At::Now, At::Snapshot(epoch)) | (At::Snapshot(epoch), At::Now) => Some((epoch, None)),
            _ => None,
        };
        let differing = match between {
            Some(between) => self.differing(Some(paced), volume, between, progress)?,
            None => Differing::default(),
        };
        let (mut from, mut to) = (Reached::new(trees.0), Reached::new(trees.1));
        let changes = Changes::find(paced, (&mut from, &mut to), &differing)?;
        let mut told = |done, total| progress(Progress { phase: "inodes".into(), done, total });
        let progress = &mut told;
        Sending { paced, old: from, new: to, sink, portions: Vec::new(), progress }.run(&changes)?;
        // what differs between snapshots is known while both are there
        self.tree(volume, old).and_then(|_| self.tree(volume, new)).map(drop)
    }

    /// `None`: there is nothing.
    fn tree(&self, volume: u32, at: At) -> Result<Option<Tree<'_>>> {
        let volume = match at {
            At::Nothing => return Ok(None),
            At::Now => volume,
            At::Snapshot(epoch) => {
                let st = &mut *self.lock();
                st.snapshots.get(volume, epoch).ok_or(Error::Stale)?;
                st.snapshots.number(View::Snapshot { volume, epoch })
            }
        };
        Ok(Some(Tree { shard: self, volume }))
    }

    /// The snapshot of a volume's root directory with this name.
    pub(crate) fn root_snapshot(&self, volume: u32, name: &[u8]) -> Option<(u32, SnapshotRecord)> {
        self.snapshot_record(NodeId::new(volume, 1), name)
    }

    /// Writes a stream from one snapshot of a volume's root directory, or from nothing, to another.
    /// `part`: what the receiver has of it already, which is computed and left out.
    pub(crate) fn send_stream(
        &self,
        volume: u32,
        (from, to, part): (Option<&[u8]>, &[u8], Option<&StreamPart>),
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Outcome<Streamed> {
        let ctx = self.work_ctx(Work::Transfer, Some(volume));
        let (header, trees) = self.header_of(volume, (from, to))?;
        let id = hex::encode(&header.id()?);
        let after = part.filter(|part| part.stream == id).map_or(0, |part| part.bytes);
        let begin = Begin { header, after };
        let text = serde_json::to_vec(&begin).map_err(|e| Broken::Refused(e.to_string()))?;
        out.write_all(FIRST_LINE)?;
        out.write_all(&(text.len() as u32).to_le_bytes())?;
        out.write_all(&text)?;
        let mut bytes = (FIRST_LINE.len() + 4 + text.len() + 4 + DIGEST_BYTES) as u64;
        let mut sum = Hashing::new(&self.env);
        let (mut broken, mut of_records) = (None, 0);
        let mut sink = |portion: Vec<u8>| {
            let portion = Arc::new(portion);
            sum.add(portion.clone());
            let before = of_records;
            of_records += portion.len() as u64;
            if of_records <= after {
                return Ok(());
            }
            let portion = &portion[after.saturating_sub(before) as usize..];
            bytes += 4 + portion.len() as u64;
            let written =
                out.write_all(&(portion.len() as u32).to_le_bytes()).and_then(|()| out.write_all(portion));
            written.map_err(|e| {
                broken = Some(e);
                Error::Io("the stream".into())
            })
        };
        let done = self.write_changes((&ctx, volume), trees, &mut sink, progress);
        if let Some(e) = broken {
            return Err(Broken::Pipe(e));
        }
        done?;
        if of_records < after {
            let text = "more has come of the stream than there is: send it from its beginning";
            return Err(Broken::Refused(text.into()));
        }
        let Begin { header, .. } = begin;
        let digest = sum.finish();
        out.write_all(&0u32.to_le_bytes())?;
        out.write_all(&digest)?;
        out.flush()?;
        Ok(Streamed { header, bytes, digest: hex::encode(&digest) })
    }

    /// What a stream between these snapshots of a volume's root directory is.
    fn header_of(&self, volume: u32, (from, to): (Option<&[u8]>, &[u8])) -> Outcome<(Header, (At, At))> {
        let (name, is_copy) = {
            let st = self.lock();
            let v = st.volumes.get(&volume).ok_or(Error::Stale)?;
            (v.name.clone(), v.properties.copy.is_some())
        };
        let find = |wanted: &[u8]| {
            let text = String::from_utf8_lossy(wanted);
            self.root_snapshot(volume, wanted).filter(|_| !(is_copy && wanted == EMPTY)).ok_or_else(|| {
                Broken::Refused(format!(
                    "volume {name} has no snapshot {text} of its root: see lee snap list"
                ))
            })
        };
        let (to_epoch, to) = find(to)?;
        let from = from.map(find).transpose()?;
        if from.as_ref().is_some_and(|(epoch, _)| *epoch >= to_epoch) {
            return Err(Broken::Refused("the snapshot to go from must be older than the one to send".into()));
        }
        let old = from.as_ref().map_or(At::Nothing, |(epoch, _)| At::Snapshot(*epoch));
        let header =
            Header { volume: name.clone(), from: from.as_ref().map(|(_, s)| Sent::of(s)), to: Sent::of(&to) };
        Ok((header, (old, At::Snapshot(to_epoch))))
    }

    /// The digest of a stream from one tree to another.
    ///
    /// # Errors
    /// `Interrupted`: it is to end.
    pub(crate) fn digest_of(
        &self,
        volume: u32,
        trees: (At, At),
        is_to_end: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<u8>> {
        let ctx = self.work_ctx(Work::Transfer, Some(volume));
        let mut sum = Hashing::new(&self.env);
        let mut sink = |portion: Vec<u8>| {
            sum.add(Arc::new(portion));
            if is_to_end() { Err(Error::Interrupted) } else { Ok(()) }
        };
        self.write_changes((&ctx, volume), trees, &mut sink, progress)?;
        Ok(sum.finish())
    }

    /// Applies a stream to a copy, and shows what has come when it is whole and proven.
    pub(crate) fn receive_stream(
        &self,
        volume: u32,
        (sender, from): (&Sender, &mut dyn Read),
        progress: &mut dyn FnMut(Progress),
    ) -> Outcome<Streamed> {
        let _alone = ReceivingAlone::begin(self, volume, Task::Stream)?;
        if self.copy_state(volume)?.shown == 0 {
            self.prepare_copy(volume)?;
        }
        let (Begin { header, after }, before) = read_begin(from)?;
        self.drop_unproven(volume, self.copy_state(volume)?.shown)?;
        let base = self.base_of(volume, &header)?;
        self.note_origin(volume, sender, &header.volume)?;
        let id = header.id()?;
        let mut come = self.return_to(volume, (&id, after), base, progress)?;
        let received = self.receive_records(volume, (&header, base), (from, before), &mut come, progress);
        match &received {
            // what has come may be wrong: nothing is built on it, also not by the same stream
            Err(broken) if broken.is_of_stream() => self.note_receiving(volume, NOT_APPLIED)?,
            // it can go on from here, or else from what was noted before; who ends it waits for
            // nothing
            Err(_) if come.bytes > 0 && self.stream_ending(volume) != Ending::AtOnce => {
                drop(self.note_come(volume, &id, &come));
            }
            _ => (),
        }
        let (bytes, digest) = received?;
        Ok(Streamed { header, bytes, digest: hex::encode(&digest) })
    }

    /// Returns the bytes of all of the stream, and its digest.
    fn receive_records(
        &self,
        volume: u32,
        (header, base): (&Header, u32),
        (from, mut bytes): (&mut dyn Read, u64),
        come: &mut Come,
        progress: &mut dyn FnMut(Progress),
    ) -> Outcome<(u64, [u8; DIGEST_BYTES])> {
        let ctx = self.work_ctx(Work::Transfer, Some(volume));
        let mut receiving = Receiving::begin(self, &ctx, volume)?;
        let (id, mut noted) = (header.id()?, self.env.now());
        let mut portion = Vec::new();
        loop {
            let len = read_len(from, PORTION_BYTES_MAX)?;
            bytes += 4 + len as u64;
            if len == 0 {
                break;
            }
            portion.resize(len, 0);
            read_exactly(from, &mut portion)?;
            self.apply_portion((&ctx, volume), &mut receiving, &portion)?;
            come.bytes += len as u64;
            come.root = root_among(&portion)?.or(come.root);
            if self.env.now().saturating_sub(noted) > NOTE_STEP {
                self.note_come(volume, &id, come)?;
                noted = self.env.now();
            }
            progress(Progress { phase: "bytes".into(), done: bytes, total: 0 });
        }
        let mut told = [0; DIGEST_BYTES];
        read_exactly(from, &mut told)?;
        bytes += told.len() as u64;
        // what was changed on its way is found by the proof
        let root = match come.root {
            Some(root) => root,
            None => self.root_at(volume, base)?,
        };
        receiving.end(&root).map_err(kept_directory)?;
        self.finish_copy(volume, header, (base, &told), progress)?;
        Ok((bytes, told))
    }

    /// Applies records when it is this work's turn.
    fn apply_portion(
        &self,
        (ctx, volume): (&Ctx, u32),
        receiving: &mut Receiving<'_>,
        portion: &[u8],
    ) -> Result<()> {
        loop {
            if self.lock().volumes.get(&volume).is_none_or(|v| v.removing) {
                return Err(Error::Stale);
            }
            let mut records = 0;
            let mut apply = |record: Record<'_>| {
                records += 1;
                if records % LOOK_RECORDS == 0 && self.stream_ending(volume) != Ending::No {
                    return Err(Error::Interrupted);
                }
                receiving.apply(record)
            };
            let applied = self.in_turn(ctx, volume, || each_record(portion, &mut apply));
            if applied != Err(Error::Busy) {
                return applied;
            }
            // an inode has lost its last name and is not free yet: what was applied can be applied
            // again
            if !self.free_next()? {
                return Err(Error::Busy);
            }
        }
    }

    /// Frees some of what has lost its last name; false: there is none.
    fn free_next(&self) -> Result<bool> {
        let _alone = self.alone();
        self.reclaim_step()
    }

    fn copy_state(&self, volume: u32) -> Outcome<CopyState> {
        let st = self.lock();
        let v = st.volumes.get(&volume).ok_or(Error::Stale)?;
        v.properties.copy.clone().ok_or_else(|| {
            Broken::Refused(format!(
                "volume {} is no copy: only what lee volume create --copy has made receives streams",
                v.name
            ))
        })
    }

    /// The epoch of the snapshot that a stream goes on from.
    fn base_of(&self, volume: u32, header: &Header) -> Outcome<u32> {
        let state = self.copy_state(volume)?;
        if self.root_snapshot(volume, header.to.name.as_bytes()).is_some() {
            let name = String::from_utf8_lossy(header.to.name.as_bytes()).into_owned();
            return Err(Broken::Refused(format!("the copy has a snapshot {name} already")));
        }
        let (wanted, text) = match &header.from {
            None => (EMPTY.to_vec(), "nothing".into()),
            Some(sent) => {
                (sent.name.as_bytes().to_vec(), String::from_utf8_lossy(sent.name.as_bytes()).into_owned())
            }
        };
        let found = self.root_snapshot(volume, &wanted);
        let fits = |(epoch, record): &(u32, SnapshotRecord)| {
            let same = header.from.as_ref().is_none_or(|sent| *sent == Sent::of(record));
            let older = *epoch < state.shown && state.is_made_here() && header.from.is_some();
            same && (*epoch == state.shown || older)
        };
        match found.filter(fits) {
            Some((epoch, _)) => Ok(epoch),
            None => {
                let shown = self.lock().snapshots.get(volume, state.shown).cloned();
                let shown = shown.map_or_else(String::new, |s| String::from_utf8_lossy(&s.name).into_owned());
                Err(Broken::Refused(format!(
                    "the stream goes on from {text}, and the copy has {shown}: send it with --from \"{shown}\""
                )))
            }
        }
    }

    /// Notes which stream comes, and returns how much of it is there. What another one has left
    /// that ended early is taken back first, and so is what was changed here.
    fn return_to(
        &self,
        volume: u32,
        (id, after): (&[u8], u64),
        base: u32,
        progress: &mut dyn FnMut(Progress),
    ) -> Outcome<Come> {
        let state = self.copy_state(volume)?;
        let is_same = *state.coming() == *id;
        let come = if is_same { state.come() } else { Come::default() };
        if after > 0 && after != come.bytes {
            return Err(Broken::Refused(format!(
                "the stream goes on after {after} bytes, of which {} have come: send it from its beginning",
                come.bytes
            )));
        }
        if !state.receiving.is_empty() && !is_same {
            if base != state.shown {
                self.set_aside(volume, state.shown)?;
            }
            self.take_back(volume, base, progress)?;
        }
        if after == 0 {
            self.note_receiving(volume, id)?;
            return Ok(Come::default());
        }
        Ok(come)
    }

    fn note_receiving(&self, volume: u32, id: &[u8]) -> Result<()> {
        self.note_durably(volume, id, &Come::default())
    }

    /// Notes how much of a stream has come, when that is durable.
    fn note_come(&self, volume: u32, id: &[u8], come: &Come) -> Result<()> {
        self.sync_all(&Ctx::system())?;
        self.note_durably(volume, id, come)
    }

    fn note_durably(&self, volume: u32, id: &[u8], come: &Come) -> Result<()> {
        {
            let st = &mut *self.lock();
            let v = st.volumes.get_mut(&volume).ok_or(Error::Stale)?;
            if let Some(copy) = &mut v.properties.copy {
                copy.note_coming(id, come);
            }
            st.volumes_dirty.insert(volume);
        }
        self.commit_now(&Ctx::system()).map(drop)
    }

    /// Takes the live volume back to what a snapshot of it shows.
    fn take_back(&self, volume: u32, epoch: u32, progress: &mut dyn FnMut(Progress)) -> Outcome<()> {
        // until that is done it is neither what it was nor what is shown: no stream goes on there
        self.note_receiving(volume, TAKEN_BACK)?;
        self.roll_back(volume, epoch, progress)
    }

    fn roll_back(&self, volume: u32, epoch: u32, progress: &mut dyn FnMut(Progress)) -> Outcome<()> {
        let ctx = self.work_ctx(Work::Transfer, Some(volume));
        let root = self.root_at(volume, epoch)?;
        // what is on its way has no name in the snapshot, and goes
        Receiving::begin(self, &ctx, volume)?.end(&root).map_err(kept_directory)?;
        // trees that are being freed have inodes that come back
        while self.free_next()? {}
        let torn = self.take_of_copy(volume, TORN.into(), self.now(), 0)?;
        let mut receiving = Receiving::begin(self, &ctx, volume)?;
        let mut sink = |portion: Vec<u8>| self.apply_portion((&ctx, volume), &mut receiving, &portion);
        // from a snapshot: what is there now changes under the reader
        let trees = (At::Snapshot(torn), At::Snapshot(epoch));
        self.write_changes((&ctx, volume), trees, &mut sink, progress)?;
        receiving.end(&root).map_err(kept_directory)?;
        self.drop_of_copy(volume, torn)?;
        let mut rest = 0;
        let mut sink = |portion: Vec<u8>| {
            rest += portion.len();
            Ok(())
        };
        self.write_changes((&ctx, volume), (At::Now, At::Snapshot(epoch)), &mut sink, progress)?;
        match rest {
            0 => Ok(()),
            _ => {
                let text = "the copy could not be taken back to what it shows: run lee fsck";
                Err(Broken::Fs(Error::Corrupt(text.into())))
            }
        }
    }

    /// Takes a snapshot of the live volume behind a copy.
    fn take_of_copy(&self, volume: u32, name: Box<[u8]>, time: Time, uid: u32) -> Result<u32> {
        let record = SnapshotRecord { dir: 1, name, uid, time, locked_until_secs: 0 };
        self.transact(&Ctx::system(), |tx| {
            tx.then(Effect::Snapshot { volume, record: record.clone() });
            tx.epoch(volume)
        })
    }

    fn drop_of_copy(&self, volume: u32, epoch: u32) -> Result<()> {
        self.transact(&Ctx::system(), |tx| {
            tx.then(Effect::RemoveSnapshot { volume, epoch });
            Ok(())
        })
    }

    /// Removes snapshots that are newer than what is shown: they were not proven before something
    /// ended.
    fn drop_unproven(&self, volume: u32, shown: u32) -> Result<()> {
        let newer: Vec<u32> = {
            let st = self.lock();
            st.snapshots.of_volume(volume).map(|(epoch, _)| epoch).filter(|epoch| *epoch > shown).collect()
        };
        newer.into_iter().try_for_each(|epoch| self.drop_of_copy(volume, epoch))
    }

    fn root_at(&self, volume: u32, epoch: u32) -> Result<Attributes> {
        let tree = self.tree(volume, At::Snapshot(epoch))?.ok_or(Error::Stale)?;
        Ok(attributes(&tree.inode(1)?.ok_or(Error::Stale)?))
    }

    /// Takes the snapshot, proves it, and shows it.
    fn finish_copy(
        &self,
        volume: u32,
        header: &Header,
        (base, told): (u32, &[u8]),
        progress: &mut dyn FnMut(Progress),
    ) -> Outcome<()> {
        let Sent { name, time_secs, time_nanos, uid } = &header.to;
        let time = Time { secs: *time_secs, nanos: *time_nanos };
        let epoch = self.take_of_copy(volume, name.as_bytes().into(), time, *uid)?;
        self.sync_all(&Ctx::system())?;
        let old = if header.from.is_some() { At::Snapshot(base) } else { At::Nothing };
        let is_to_end = || self.stream_ending(volume) != Ending::No;
        let proof = self.digest_of(volume, (old, At::Snapshot(epoch)), &is_to_end, progress)?;
        if proof != told {
            self.drop_of_copy(volume, epoch)?;
            return Err(Broken::Differs);
        }
        self.show_copy(volume, epoch)?;
        if header.from.is_none() {
            self.drop_of_copy(volume, base)?;
        }
        self.maintenance.wake();
        Ok(())
    }

    /// A copy shows this snapshot from now on.
    fn show_copy(&self, volume: u32, epoch: u32) -> Result<()> {
        self.show_other(volume, |v| {
            v.properties.copy = Some(CopyState { shown: epoch, receiving: Box::default() });
        })
    }

    /// Changes what the name of a volume leads to.
    fn show_other(&self, volume: u32, change: impl FnOnce(&mut VolumeRecord)) -> Result<()> {
        let (dir, name) = {
            let st = &mut *self.lock();
            let v = st.volumes.get_mut(&volume).filter(|v| !v.removing).ok_or(Error::Stale)?;
            change(v);
            let at = (v.attached_dir, v.attached_name.clone());
            st.volumes_dirty.insert(volume);
            st.number_copies();
            at
        };
        // other machines let go what they know of the name
        self.beside(dir, |shard| {
            shard.transact(&Ctx::system(), |tx| {
                let inode = tx.inode(dir)?;
                tx.put_inode(dir, &inode)
            })
        })?;
        self.commit_now(&Ctx::system())?;
        self.invalidate_entry(dir, &name);
        self.invalidate_inode(dir);
        Ok(())
    }
}

/// While it lives nobody else changes the copy.
struct ReceivingAlone<'a>(&'a Shard, u32);

impl<'a> ReceivingAlone<'a> {
    /// Or else what is in the way.
    fn begin(shard: &'a Shard, volume: u32, task: Task) -> std::result::Result<ReceivingAlone<'a>, Task> {
        match shard.lock().receiving.entry(volume) {
            Entry::Vacant(entry) => {
                entry.insert((task, Ending::No));
                Ok(ReceivingAlone(shard, volume))
            }
            Entry::Occupied(entry) => Err(entry.get().0),
        }
    }
}

/// So often it is looked whether a stream has ended.
const END_STEP: Duration = Duration::from_millis(5);

impl Shard {
    /// Whether the stream that comes to a volume is to end; there may be none.
    pub(crate) fn stream_ending(&self, volume: u32) -> Ending {
        self.lock().receiving.get(&volume).map_or(Ending::No, |(_, ending)| *ending)
    }

    /// Ends the stream that comes to one copy, or all and changes of roles, too, and waits for
    /// that, until `is_lost`.
    pub(crate) fn end_streams(&self, volume: Option<u32>, how: Ending, is_lost: impl Fn() -> bool) {
        while self.tell_streams_to_end(volume, how) && !is_lost() {
            self.env.sleep(END_STEP);
        }
    }

    /// Whether there are any.
    fn tell_streams_to_end(&self, volume: Option<u32>, how: Ending) -> bool {
        let mut st = self.lock();
        let is_meant = |of: u32, task: Task| volume.is_none_or(|volume| volume == of && task == Task::Stream);
        let coming = st.receiving.iter_mut().filter(|(of, (task, _))| is_meant(**of, *task));
        coming.map(|(_, (_, ending))| *ending = (*ending).max(how)).count() > 0
    }
}

impl Drop for ReceivingAlone<'_> {
    fn drop(&mut self) {
        self.0.lock().receiving.remove(&self.1);
    }
}

/// Why what has no name any more does not go.
fn kept_directory(e: Error) -> Broken {
    match e {
        Error::Busy => Broken::Refused(
            "a directory that is gone where this comes from has a locked snapshot here, or is the place of a project: \
             see lee snap list and lee project list; it goes on when that is over"
                .into(),
        ),
        e => Broken::Fs(e),
    }
}

/// What the records say of the root directory.
fn root_among(portion: &[u8]) -> Result<Option<Attributes>> {
    let mut root = None;
    each_record(portion, |record| {
        if let Record::Attr { inode: 1, attributes } = record {
            root = Some(attributes);
        }
        Ok(())
    })?;
    Ok(root)
}

fn read_exactly(from: &mut dyn Read, into: &mut [u8]) -> Outcome<()> {
    match from.read_exact(into) {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(Broken::Refused(
            "the stream ends early: send it again, the copy shows what it did before".into(),
        )),
        other => Ok(other?),
    }
}

fn read_len(from: &mut dyn Read, most: usize) -> Outcome<usize> {
    let mut len = [0; 4];
    read_exactly(from, &mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > most { Err(Broken::Fs(damaged("a part of it is too long"))) } else { Ok(len) }
}

fn read_begin(from: &mut dyn Read) -> Outcome<(Begin, u64)> {
    let mut first = [0; FIRST_LINE.len()];
    read_exactly(from, &mut first)?;
    if first != *FIRST_LINE {
        return Err(Broken::Refused(
            "this is no stream of a snapshot, or one of another version of lee".into(),
        ));
    }
    let len = read_len(from, HEADER_BYTES_MAX)?;
    let mut text = vec![0; len];
    read_exactly(from, &mut text)?;
    let begin: Begin =
        serde_json::from_slice(&text).map_err(|e| Broken::Fs(damaged(format_args!("its header: {e}"))))?;
    let header = &begin.header;
    if [Some(&header.to), header.from.as_ref()].into_iter().flatten().any(|sent| !sent.is_possible()) {
        return Err(Broken::Fs(damaged("a snapshot has a name or a time that cannot be")));
    }
    Ok((begin, (FIRST_LINE.len() + 4 + len) as u64))
}
