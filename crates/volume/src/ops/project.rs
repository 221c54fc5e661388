//! Which project a directory is in, and which a volume.

use crate::format::inode::Stats;
use crate::format::keys;
use crate::format::projects::ProjectNumber;
use crate::format::stored::Stored;
use crate::state::Effect;
use crate::tx::{Tx, TxResult};
use leeward_fs::NodeId;

impl Tx<'_> {
    /// The innermost project whose place is `dir` or above it, over the borders of volumes.
    pub(crate) fn project_over(&self, dir: NodeId) -> TxResult<Option<u32>> {
        if self.st.projects.count() == 0 {
            return Ok(None);
        }
        let mut at = dir;
        while at.inode() != 0 {
            if let Some(id) = self.st.projects.at_place(at) {
                return Ok(Some(id));
            }
            at = self.above_in_cell(at)?;
        }
        Ok(None)
    }

    /// The directory above one; of the root of the cell number 0.
    pub(crate) fn above_in_cell(&self, dir: NodeId) -> TxResult<NodeId> {
        match dir.inode() {
            1 => Ok(self.st.volumes.get(&dir.volume()).map_or(NodeId(0), |v| v.attached_dir)),
            _ => self.above(dir),
        }
    }

    /// A volume that uses so much is in this project from now on, and in no other.
    pub(crate) fn put_project_of(&mut self, volume: u32, project: Option<u32>, used: Stats) {
        match project {
            Some(id) => self.put(keys::project_of(volume), ProjectNumber(id).encode()),
            None if self.st.projects.of_volume(volume).is_none() => return,
            None => self.remove(keys::project_of(volume)),
        }
        self.then(Effect::ProjectOf(volume, project, used));
    }
}
