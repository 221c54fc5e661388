//! Syncs the output of a compaction while it is written.
//!
//! `lsm-tree` syncs the last table of a compaction with its version lock held: readers and commits
//! wait for as many bytes as the page cache collected. A compaction filter sees every record before
//! that, and the end of the merge just before the lock is taken. This filter keeps all records and
//! syncs the newest table file now and then. So there is little left to wait for, and the disk gets
//! an even stream instead of a flood.

use lsm_tree::compaction::filter::Context;
use lsm_tree::compaction::{CompactionFilter, Factory, ItemAccessor, Verdict};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Bytes of keys between two syncs; a record is about three times its key.
const KEY_BYTES: usize = 1 << 20;

/// Makes the filters of a tree.
pub(super) struct Presync {
    tables: PathBuf,
}

impl Presync {
    /// Filters for the tree in this directory.
    pub fn new(dir: &Path) -> Presync {
        Presync { tables: dir.join("tables") }
    }
}

impl Factory for Presync {
    fn name(&self) -> &str {
        "presync"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Syncing { tables: self.tables.clone(), key_bytes: 0 })
    }
}

struct Syncing {
    tables: PathBuf,
    key_bytes: usize,
}

impl Syncing {
    /// Syncs the newest file, which is being written. If it is a flush's and not ours, that does no
    /// harm. Errors are left to the sync that counts.
    fn sync_newest(&self) {
        let names = std::fs::read_dir(&self.tables).into_iter().flatten().flatten();
        let newest = names.filter_map(|e| e.file_name().to_str()?.parse::<u64>().ok()).max();
        if let Some(file) = newest.and_then(|id| File::open(self.tables.join(id.to_string())).ok()) {
            let _ = file.sync_data();
        }
    }
}

impl CompactionFilter for Syncing {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        self.key_bytes += item.key().len();
        if self.key_bytes >= KEY_BYTES {
            self.key_bytes = 0;
            self.sync_newest();
        }
        Ok(Verdict::Keep)
    }

    fn finish(self: Box<Self>) {
        self.sync_newest();
    }
}
