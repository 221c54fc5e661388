//! What was done and found out between the attempts of one operation, see [`crate::attempt`].

use crate::format::keys::Key;
use leeward_fs::leases::Recalling;
use leeward_fs::{Error, NodeId, Result};
use leeward_meta::Value;

/// How often something is found out anew for one operation, when others change it meanwhile.
const TRIES: usize = 64;
/// Directories that are found for one operation, by the chains that it needs.
const ABOVE_MAX: usize = 4 << 20;

/// The directories above one, itself the first.
pub(crate) struct Chain {
    /// At least one.
    pub(crate) all: Vec<NodeId>,
    /// [`State::dir_moves`](crate::state::State::dir_moves) of the volume.
    pub(crate) moves: u64,
}

/// A range of records of a snapshot, under its view's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewScan {
    pub(crate) view: u32,
    pub(crate) from: Key,
    pub(crate) to: Key,
    pub(crate) limit: usize,
    pub(crate) reverse: bool,
}

/// What there is in such a range.
struct Scanned {
    scan: ViewScan,
    /// [`State::views_changed`](crate::state::State::views_changed) before.
    changed: u64,
    found: Vec<(Key, Value)>,
}

/// See the head of the module.
#[derive(Default)]
pub(crate) struct Before {
    /// Leases that were taken back: nobody gets them before the operation has ended.
    recalled: Vec<Recalling>,
    /// Clients have sent what they had told their programs.
    pub(crate) have_sent: bool,
    chains: Vec<Chain>,
    scans: Vec<Scanned>,
    /// How often anything was found out that others may have changed since.
    tries: usize,
}

impl Before {
    /// # Errors
    /// `Busy`: others change it all the time.
    pub(crate) fn is_tried_again(&mut self) -> Result<()> {
        self.tries += 1;
        if self.tries > TRIES { Err(Error::Busy) } else { Ok(()) }
    }

    /// These leases have come back.
    pub(crate) fn has_recalled(&mut self, leases: impl IntoIterator<Item = Recalling>) {
        self.recalled.extend(leases);
    }

    /// These directories are above one.
    ///
    /// # Errors
    /// `Busy`: others move them all the time, or there are very many.
    pub(crate) fn knows_above(&mut self, chain: Chain) -> Result<()> {
        if self.chains.extract_if(.., |old| old.all[0] == chain.all[0]).next().is_some() {
            self.is_tried_again()?;
        }
        self.chains.push(chain);
        let all: usize = self.chains.iter().map(|chain| chain.all.len()).sum();
        if all > ABOVE_MAX && self.chains.len() > 1 { Err(Error::Busy) } else { Ok(()) }
    }

    /// The directories above one, if none of the volume has moved since.
    pub(crate) fn above(&self, dir: NodeId, moves: u64) -> Option<&[NodeId]> {
        let known = self.chains.iter().find(|chain| chain.all[0] == dir && chain.moves == moves);
        known.map(|chain| &chain.all[..])
    }

    /// This is what there is in a snapshot.
    ///
    /// # Errors
    /// `Busy`: it changes all the time.
    pub(crate) fn knows_of_snapshot(
        &mut self,
        scan: ViewScan,
        changed: u64,
        found: Vec<(Key, Value)>,
    ) -> Result<()> {
        if self.scans.extract_if(.., |old| old.scan == scan).next().is_some() {
            self.is_tried_again()?;
        }
        self.scans.push(Scanned { scan, changed, found });
        Ok(())
    }

    /// What there is in a snapshot, if nothing has changed there since.
    pub(crate) fn of_snapshot(&self, scan: &ViewScan, changed: u64) -> Option<&[(Key, Value)]> {
        let known = self.scans.iter().find(|known| known.scan == *scan && known.changed == changed);
        known.map(|known| &known.found[..])
    }
}
