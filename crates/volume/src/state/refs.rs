//! How many references a front end's cache (the kernel's) holds on each inode.
//!
//! A kernel may know ten million inodes: two bytes each, in pages by inode number, the rare large
//! counts in a map.

use leeward_fs::NodeId;
use rustc_hash::FxHashMap;

const PAGE: u64 = 1024;
const FULL: u16 = u16::MAX;

/// Counts by inode.
#[derive(Default)]
pub struct Refs {
    pages: FxHashMap<u64, Page>,
    large: FxHashMap<NodeId, u64>,
}

struct Page {
    counts: Box<[u16; PAGE as usize]>,
    used: u16,
}

impl Refs {
    /// The count of `node`.
    pub fn get(&self, node: NodeId) -> u64 {
        match self.pages.get(&(node.0 / PAGE)).map(|p| p.counts[(node.0 % PAGE) as usize]) {
            None => 0,
            Some(FULL) => self.large.get(&node).copied().unwrap_or(0),
            Some(n) => u64::from(n),
        }
    }

    /// Adds one reference.
    pub fn add(&mut self, node: NodeId) {
        self.set(node, self.get(node) + 1);
    }

    /// Removes `count` references; returns what is left.
    pub fn sub(&mut self, node: NodeId, count: u64) -> u64 {
        let left = self.get(node).saturating_sub(count);
        self.set(node, left);
        left
    }

    /// All inodes of a volume that are referred to, in no order.
    pub fn of_volume(&self, volume: u32) -> Vec<NodeId> {
        let range = NodeId::new(volume, 0).0..NodeId::new(volume + 1, 0).0;
        let pages = self.pages.iter().filter(|(number, _)| range.contains(&(*number * PAGE)));
        let nodes = pages.flat_map(|(number, page)| {
            let used = page.counts.iter().enumerate().filter(|(_, count)| **count > 0);
            used.map(|(at, _)| NodeId(*number * PAGE + at as u64))
        });
        nodes.collect()
    }

    /// Whether there are any.
    pub fn has_of_volume(&self, volume: u32) -> bool {
        let pages = NodeId::new(volume, 0).0 / PAGE..NodeId::new(volume + 1, 0).0 / PAGE;
        self.pages.keys().any(|number| pages.contains(number))
    }

    fn set(&mut self, node: NodeId, count: u64) {
        let number = node.0 / PAGE;
        let page = self
            .pages
            .entry(number)
            .or_insert_with(|| Page { counts: Box::new([0; PAGE as usize]), used: 0 });
        let slot = &mut page.counts[(node.0 % PAGE) as usize];
        let small = u16::try_from(count).unwrap_or(FULL);
        page.used = page.used + u16::from(*slot == 0 && small != 0) - u16::from(*slot != 0 && small == 0);
        if *slot == FULL && small != FULL {
            self.large.remove(&node);
        }
        *slot = small;
        if small == FULL {
            self.large.insert(node, count);
        } else if page.used == 0 {
            self.pages.remove(&number);
        }
    }
}
