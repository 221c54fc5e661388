//! What an operation changes for those who follow a volume: the events of its log.
//!
//! They follow from the records that it writes and from its effects, whatever the operation is, as
//! what owners count does. Only the content of files is said where it changes
//! ([`Tx::content_changes`]), for it enters the records later, and not in the name of the one who
//! wrote it.

use crate::format::events::{Actor, Event, Named, Rights, What};
use crate::format::inode::{Dentry, Inode, SnapshotRecord, time};
use crate::format::keys::{self, tag};
use crate::state::Effect;
use crate::tx::{Tx, TxResult, nanos};
use leeward_env::Ctx;
use leeward_fs::{Kind, NodeId, Time};
use leeward_meta::Value;
use rustc_hash::FxHashMap;

/// A name that comes or goes, and what it leads to.
struct Name {
    dir: NodeId,
    name: Box<[u8]>,
    to: Dentry,
}

impl Name {
    fn named(&self) -> Named {
        Named { dir: self.dir.inode(), name: self.name.clone() }
    }
}

/// What the records say that a transaction writes.
#[derive(Default)]
struct Written {
    gone: Vec<Name>,
    come: Vec<Name>,
    /// Inodes with the records before and after.
    inodes: Vec<(NodeId, Option<Value>, Option<Value>)>,
    /// Extended attributes, and whether they are there now.
    xattrs: Vec<(NodeId, Box<[u8]>, bool)>,
}

/// An event is told to have happened at most so long before the server heard of it.
const TOLD_LATE_SECS_MAX: i64 = 3600;

/// What happened to an inode of this type, for the log of a volume.
type Found = (u32, NodeId, Kind, What);

/// Who does what a context asks for.
pub(crate) fn actor_of(ctx: &Ctx) -> Actor {
    let uid = if ctx.flow.work().is_some() { ctx.flow.uid } else { ctx.uid };
    Actor { uid, door: ctx.door, work: ctx.flow.work(), machine: ctx.machine }
}

/// A name of an inode, as far as its record says.
fn name_of(inode: &Inode) -> Named {
    Named { dir: inode.parent, name: inode.name.clone().unwrap_or_default() }
}

impl Tx<'_> {
    /// Whether it is kept what changes in a volume.
    pub(crate) fn is_audited(&self, volume: u32) -> bool {
        self.st.volumes.get(&volume).is_some_and(|v| v.properties.audit_days > 0 && !v.removing)
    }

    /// The content of a file changes for those who look at it.
    pub(crate) fn content_changes(&mut self, node: NodeId, inode: &Inode) {
        let has_name = inode.nlink > 0;
        if has_name && !self.is_quiet() && self.is_audited(node.volume()) {
            self.written_to.push((node, name_of(inode)));
        }
    }

    /// Finds the events that this operation adds, by volume. All that it writes is written.
    pub(crate) fn find_events(&mut self, clock: Time) -> TxResult<()> {
        if !self.is_quiet() {
            // a client says when its change was made, but age removes events by the clock here
            let earliest = Time { secs: clock.secs - TOLD_LATE_SECS_MAX, ..clock };
            self.events = self.events_of_records(self.now.clamp(earliest, clock))?;
        }
        Ok(())
    }

    fn events_of_records(&self, at: Time) -> TxResult<Vec<(u32, Event)>> {
        let written = self.written_for_events()?;
        let mut found: Vec<Found> = Vec::new();
        written.names_changed(&mut found);
        let content = self.written_to.iter();
        found.extend(
            content.map(|(node, at)| (node.volume(), *node, Kind::File, What::Written { at: at.clone() })),
        );
        self.inodes_changed(&written, &mut found);
        self.snapshots_changed(&mut found);
        let (by, at) = (actor_of(self.ctx), nanos(at));
        let event = |(volume, node, kind, what)| (volume, Event { at, by, node, kind, what });
        Ok(found.into_iter().map(event).collect())
    }

    fn written_for_events(&self) -> TxResult<Written> {
        let mut written = Written::default();
        let mut audited = (0, false);
        for (key, value, is_new) in self.writes() {
            let volume = keys::volume_of(key);
            if volume >= leeward_fs::VIEW_FIRST {
                continue;
            }
            if audited.0 != volume || !audited.1 {
                audited = (volume, self.is_audited(volume));
            }
            let Some(parsed) = keys::parse(key).filter(|_| audited.1) else { continue };
            let before = || if is_new { Ok(None) } else { self.before(key) };
            match parsed.tag {
                tag::INODE => written.inodes.push((parsed.node, before()?, value.clone())),
                tag::DENTRY => written.name(parsed.node, parsed.rest, before()?.as_ref(), value.as_ref()),
                tag::XATTR | tag::XATTR_PLAIN => {
                    let is_there = value.is_some();
                    // one of before there were snapshots is replaced by one with a birth
                    written.xattrs.retain(|(node, name, _)| {
                        !(*node == parsed.node && **name == *parsed.rest && is_there)
                    });
                    let is_known = written
                        .xattrs
                        .iter()
                        .any(|(node, name, _)| *node == parsed.node && **name == *parsed.rest);
                    if !is_known {
                        written.xattrs.push((parsed.node, parsed.rest.into(), is_there));
                    }
                }
                _ => {}
            }
        }
        Ok(written)
    }

    fn inodes_changed(&self, written: &Written, found: &mut Vec<Found>) {
        for (node, was, is) in &written.inodes {
            let (Some(was), Some(is)) = (was, is) else { continue };
            if !Inode::differs_visibly(was, is) && !written.xattrs.iter().any(|(of, _, _)| of == node) {
                continue;
            }
            let (Ok(was), Ok(is)) = (Inode::decode(was), Inode::decode(is)) else { continue };
            if was.nlink == 0 || is.nlink == 0 {
                continue; // it gets its first name now, or has lost its last one
            }
            let (node, kind, at) = (*node, is.kind, || name_of(&is));
            let rights = |inode: &Inode| Rights { mode: inode.mode, uid: inode.uid, gid: inode.gid };
            if rights(&was) != rights(&is) {
                found.push((
                    node.volume(),
                    node,
                    kind,
                    What::Rights { at: at(), was: rights(&was), is: rights(&is) },
                ));
            }
            for (_, name, is_there) in written.xattrs.iter().filter(|(of, _, _)| *of == node) {
                let what = What::Xattr { at: at(), xattr: name.clone(), removed: !is_there };
                found.push((node.volume(), node, kind, what));
            }
            let times = |inode: &Inode| [inode.times[time::A], inode.times[time::M]];
            // of a directory that gets or loses a name, and of a file that is written to, they say
            // nothing new
            let follow = written.come.iter().chain(&written.gone).any(|name| name.dir == node)
                || is.content_lsn != was.content_lsn
                || self.written_to.iter().any(|(of, _)| *of == node);
            if times(&was) != times(&is) && !follow || was.flags != is.flags {
                found.push((node.volume(), node, kind, What::Attributes { at: at() }));
            }
        }
    }

    fn snapshots_changed(&self, found: &mut Vec<Found>) {
        let at = |record: &SnapshotRecord| Named { dir: record.dir, name: record.name.clone() };
        for effect in self.effects() {
            let (volume, dir, what) = match effect {
                Effect::Snapshot { volume, record } => {
                    (*volume, record.dir, What::SnapshotTaken { at: at(record) })
                }
                Effect::RemoveSnapshot { volume, epoch } => {
                    let Some(record) = self.st.snapshots.get(*volume, *epoch) else { continue };
                    (*volume, record.dir, What::SnapshotRemoved { at: at(record) })
                }
                Effect::ChangeSnapshot { volume, epoch, record } => {
                    let Some(was) = self.st.snapshots.get(*volume, *epoch) else { continue };
                    let what = match was.name == record.name {
                        true => What::SnapshotLocked { at: at(record), until_secs: record.locked_until_secs },
                        false => What::SnapshotRenamed { from: at(was), to: at(record) },
                    };
                    (*volume, record.dir, what)
                }
                _ => continue,
            };
            if self.is_audited(volume) {
                found.push((volume, NodeId::new(volume, dir), Kind::Dir, what));
            }
        }
    }
}

impl Written {
    fn name(&mut self, dir: NodeId, name: &[u8], was: Option<&Value>, is: Option<&Value>) {
        let leads = |value: Option<&Value>| value.and_then(|value| Dentry::decode(value).ok());
        let (was, is) = (leads(was), leads(is));
        if was.map(|to| to.node) == is.map(|to| to.node) {
            return;
        }
        let entry = |to| Name { dir, name: name.into(), to };
        self.gone.extend(was.map(entry));
        self.come.extend(is.map(entry));
    }

    fn names_changed(&self, found: &mut Vec<Found>) {
        // where inodes with new names had others, if they lose those now
        let mut sources: FxHashMap<NodeId, Vec<usize>> = FxHashMap::default();
        if !self.come.is_empty() {
            for (n, gone) in self.gone.iter().enumerate().rev() {
                sources.entry(gone.to.node).or_default().push(n);
            }
        }
        let mut is_source = vec![false; self.gone.len()];
        let mut added: Vec<Found> = Vec::with_capacity(self.come.len());
        for name in &self.come {
            let at = name.named();
            let what = match sources.get_mut(&name.to.node).and_then(Vec::pop) {
                Some(n) => {
                    is_source[n] = true;
                    let from = self.gone[n].named();
                    let is_back = |(.., what): &&mut Found| matches!(what, What::Renamed { from: f, to: t } if *f == at && *t == from);
                    if let Some((.., what)) = added.iter_mut().find(is_back) {
                        // one event: between two there would be two inodes of one name
                        let (other, other_kind) = (name.to.node, name.to.kind);
                        *what = What::Exchanged { from: at, to: from, other, other_kind };
                        continue;
                    }
                    What::Renamed { from, to: at }
                }
                None if self.had_names(name.to.node) => What::Linked { at },
                None => What::Created { at },
            };
            added.push((name.dir.volume(), name.to.node, name.to.kind, what));
        }
        let removed = self.gone.iter().zip(is_source).filter(|(_, is_source)| !is_source);
        found.extend(removed.map(|(gone, _)| {
            (gone.dir.volume(), gone.to.node, gone.to.kind, What::Removed { at: gone.named() })
        }));
        found.extend(added);
    }

    /// Whether an inode that gets a name had others before.
    fn had_names(&self, node: NodeId) -> bool {
        let record = self.inodes.iter().find(|(of, _, _)| *of == node).and_then(|(_, was, _)| was.as_ref());
        record
            .and_then(|record| Inode::decode(record).ok())
            .is_some_and(|inode| inode.nlink > 0 && !inode.is_dir())
    }
}
