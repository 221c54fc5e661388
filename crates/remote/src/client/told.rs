//! Changes that the client was told of and does not know to be durable. After a crash of the server
//! it asks for them again, in the order of their numbers.

use super::slots::{Holds, Outstanding};
use crate::message::again_frame;
use leeward_env::Told;
use leeward_fs::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of such changes above which the server is asked to make all durable; above which further
/// content waits; and above which all further changes do.
const BYTES_MANY: usize = 64 << 20;
const BYTES_MAX: usize = 192 << 20;
const BYTES_OF_ALL_MAX: usize = 256 << 20;
/// What a change takes besides its message.
const CHANGE_BYTES: usize = 200;

/// See the module's head.
#[derive(Default)]
pub(super) struct ToldChanges {
    all: BTreeMap<u64, Change>,
    bytes: usize,
    /// The server has been asked to make them durable.
    asked: bool,
}

struct Change {
    told: Told,
    /// The message by which it was asked for.
    call: Arc<Vec<u8>>,
    /// Whose next fsync fails, if it is lost.
    of: Vec<NodeId>,
}

impl Change {
    fn bytes(&self) -> usize {
        self.call.len() + CHANGE_BYTES
    }
}

impl ToldChanges {
    /// The client was told of a change.
    pub(super) fn add(&mut self, told: Told, call: &mut Outstanding) {
        let (call, of) = call.take_change(told);
        let change = Change { told, call, of };
        self.bytes += change.bytes();
        if let Some(before) = self.all.insert(told.lsn, change) {
            self.bytes -= before.bytes();
        }
    }

    /// Whether the server is to be asked now to make all durable.
    pub(super) fn are_many(&mut self) -> bool {
        let are_many = self.bytes > BYTES_MANY && !self.asked;
        self.asked |= are_many;
        are_many
    }

    /// Which further changes must wait.
    pub(super) fn holds(&self) -> Holds {
        if self.bytes > BYTES_OF_ALL_MAX {
            Holds::All
        } else if self.bytes > BYTES_MAX {
            Holds::Content
        } else {
            Holds::Nothing
        }
    }

    /// Changes with numbers up to this one are durable.
    pub(super) fn durable(&mut self, lsn: u64) {
        let left = self.all.split_off(&(lsn + 1));
        let gone = std::mem::replace(&mut self.all, left);
        self.bytes -= gone.values().map(Change::bytes).sum::<usize>();
        self.asked = false;
    }

    /// All that there are, as messages.
    pub(super) fn again(&self) -> impl Iterator<Item = Vec<u8>> {
        self.all.values().map(|change| again_frame(&change.told, &change.call))
    }

    /// A change is lost. The inodes that it was about.
    pub(super) fn lost(&mut self, lsn: u64) -> Vec<NodeId> {
        let Some(change) = self.all.remove(&lsn) else { return Vec::new() };
        self.bytes -= change.bytes();
        change.of
    }

    /// All are lost, or durable. The inodes that they were about.
    pub(super) fn take_all(&mut self) -> Vec<NodeId> {
        std::mem::take(self).all.into_values().flat_map(|change| change.of).collect()
    }
}
