//! Which files have changes that a server which crashes may lose, and which have lost some.

use leeward_fs::{Error, NodeId, Op, Reply, Result};
use rustc_hash::{FxHashMap, FxHashSet};

/// Files that are remembered. When more were changed, any file may have lost changes.
const FILES_MAX: usize = 65_536;

/// Files with changes that are not known to be durable.
///
/// Answered changes are counted. An fsync makes those durable that were answered before it was
/// asked for: one that was answered later may have come after it, however early its own answer is.
#[derive(Default)]
pub(super) struct ChangedFiles {
    /// With the number of the file's last change.
    changed: FxHashMap<NodeId, u64>,
    changes: u64,
    /// More were changed than are remembered; the number of the last change that was forgotten.
    overflowed: Option<u64>,
    /// Those that a crash of the server came over.
    lost: FxHashSet<NodeId>,
    any_lost: bool,
}

/// The file whose content an operation changes.
pub(super) fn changed(op: &Op<'_>) -> Option<NodeId> {
    match *op {
        Op::Write { node, .. }
        | Op::Append { node, .. }
        | Op::Allocate { node, .. }
        | Op::CopyRange { to: node, .. } => Some(node),
        Op::SetAttr { node, set } if set.size.is_some() => Some(node),
        _ => None,
    }
}

impl ChangedFiles {
    /// A change was answered.
    pub(super) fn changed(&mut self, node: NodeId) {
        if self.changed.len() >= FILES_MAX && !self.changed.contains_key(&node) {
            self.changed.clear();
            self.overflowed = Some(self.changes);
        }
        self.changes += 1;
        self.changed.insert(node, self.changes);
    }

    /// The number of the last change, for an fsync that is asked for now.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// An fsync was answered that was asked for after so many changes. What it says of a file that
    /// has lost some.
    pub(super) fn synced(&mut self, node: NodeId, asked: u64, result: Result<Reply>) -> Result<Reply> {
        let reply = result?;
        if self.changed.get(&node).is_some_and(|last| *last <= asked) {
            self.changed.remove(&node);
        }
        let is_lost = self.lost.remove(&node) || std::mem::take(&mut self.any_lost);
        if is_lost { Err(Error::Io(lost_text())) } else { Ok(reply) }
    }

    /// All is durable that was answered before that was asked for, after so many changes.
    pub(super) fn all_synced(&mut self, asked: u64, result: Result<Reply>) -> Result<Reply> {
        let reply = result?;
        self.changed.retain(|_, last| *last > asked);
        self.overflowed = self.overflowed.filter(|last| *last > asked);
        let any_lost = std::mem::take(&mut self.any_lost) || !self.lost.is_empty();
        self.lost.clear();
        if any_lost { Err(Error::Io(lost_text())) } else { Ok(reply) }
    }

    /// The server has ended in order: everything is durable.
    pub(super) fn closed(&mut self) {
        self.changed.clear();
        self.overflowed = None;
    }

    /// What was changed of these is lost.
    pub(super) fn lose(&mut self, nodes: Vec<NodeId>) {
        self.lost.extend(nodes);
        self.bound_lost();
    }

    /// Where more are lost than are remembered, any file may have lost changes.
    fn bound_lost(&mut self) {
        if self.lost.len() > FILES_MAX {
            self.lost.clear();
            self.any_lost = true;
        }
    }

    /// Files whose next fsync says that changes are lost; `None`: more than are remembered.
    pub(super) fn lost(&self) -> Option<usize> {
        (!self.any_lost).then_some(self.lost.len())
    }

    /// The server has crashed.
    pub(super) fn crashed(&mut self) {
        self.any_lost |= self.overflowed.take().is_some();
        let changed = std::mem::take(&mut self.changed);
        self.lost.extend(changed.into_keys());
        self.bound_lost();
    }
}

fn lost_text() -> String {
    "the server was started anew after a crash: changes before may be lost".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(5);
    const B: NodeId = NodeId(6);

    fn is_told(files: &mut ChangedFiles, node: NodeId) -> bool {
        let asked = files.changes();
        files.synced(node, asked, Ok(Reply::Done)).is_err()
    }

    #[test]
    fn a_crash_is_told_once_and_only_to_files_with_changes() {
        let mut files = ChangedFiles::default();
        files.changed(A);
        assert!(!is_told(&mut files, A));
        files.changed(A);
        files.crashed();
        assert_eq!(files.lost(), Some(1));
        assert!(!is_told(&mut files, B) && is_told(&mut files, A) && !is_told(&mut files, A));
        files.changed(A);
        files.closed();
        files.crashed();
        assert!(!is_told(&mut files, A), "the server ended in order before");
        files.changed(A);
        files.crashed();
        assert!(files.synced(A, files.changes(), Err(Error::Stale)).is_err() && is_told(&mut files, A));
        files.changed(B);
        files.crashed();
        assert!(files.all_synced(files.changes(), Ok(Reply::Done)).is_err() && !is_told(&mut files, B));
    }

    #[test]
    fn a_change_that_was_answered_after_the_fsync_was_asked_for_is_not_durable() {
        let mut files = ChangedFiles::default();
        files.changed(A);
        let asked = files.changes();
        files.changed(A);
        assert!(files.synced(A, asked, Ok(Reply::Done)).is_ok());
        files.crashed();
        assert!(is_told(&mut files, A));
        let asked = files.changes();
        files.changed(B);
        assert!(files.all_synced(asked, Ok(Reply::Done)).is_ok());
        files.crashed();
        assert!(is_told(&mut files, B) && !is_told(&mut files, A));
    }

    #[test]
    fn too_many_to_remember_are_not_forgotten() {
        let mut files = ChangedFiles::default();
        (0..=FILES_MAX as u64).for_each(|n| files.changed(NodeId(n)));
        files.crashed();
        assert_eq!(files.lost(), None);
        assert!(is_told(&mut files, A) && !is_told(&mut files, B));
    }
}
