//! Recursive statistics of the model, as bounds.
//!
//! An inode with names inside and outside a directory may be counted there or not: the least counts
//! only inodes all of whose names are inside, the most every inode with a name inside, each once.

use crate::content::Allocation;
use crate::model::Model;
use crate::node::Ino;
use leeward_fs::Usage;
use std::collections::BTreeMap;

/// The least and the most that may be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageBounds {
    /// Least.
    pub least: Usage,
    /// Most.
    pub most: Usage,
}

impl UsageBounds {
    /// Whether a figure is legal.
    pub fn allow(&self, got: &Usage) -> bool {
        (self.least.bytes..=self.most.bytes).contains(&got.bytes)
            && (self.least.files..=self.most.files).contains(&got.files)
            && got.dirs == self.most.dirs
    }
}

/// What is below an inode (a file: itself).
pub fn usage_bounds(model: &Model, top: Ino, by: Allocation) -> UsageBounds {
    let mut names_inside: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut bounds = UsageBounds::default();
    let mut pending = vec![top];
    while let Some(ino) = pending.pop() {
        match model.node(ino).and_then(|n| n.entries()) {
            Ok(entries) => {
                bounds.most.dirs += u64::from(ino != top);
                pending.extend(entries.values());
            }
            Err(_) => *names_inside.entry(ino).or_default() += 1,
        }
    }
    bounds.least.dirs = bounds.most.dirs;
    for (ino, inside) in names_inside {
        let Ok(node) = model.node(ino) else { continue };
        let (least, most) = node.file().map_or((0, 0), |c| c.allocated(by));
        bounds.most.files += 1;
        bounds.most.bytes = bounds.most.bytes.saturating_add(most);
        if inside == node.names || ino == top {
            bounds.least.files += 1;
            bounds.least.bytes += least;
        }
    }
    bounds
}
