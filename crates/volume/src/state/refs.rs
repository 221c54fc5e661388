//! How many references a front end's cache (the kernel's) holds on each inode.
//!
//! A kernel may know ten million inodes: two bytes each, in pages by inode number, the rare large
//! counts in a map. Of a page with few of them there is a list: numbers far apart, as those of
//! snapshots are, and as somebody may choose them, take no page each.

use leeward_fs::NodeId;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

const PAGE: u64 = 1024;
const FULL: u16 = u16::MAX;
/// Inodes of a page up to which it is a list, and those at which a page becomes a list again.
const FEW_MAX: usize = 128;
const FEW_AGAIN: u16 = 64;

/// Counts by inode.
#[derive(Default)]
pub struct Refs {
    pages: FxHashMap<u64, Page>,
    large: FxHashMap<NodeId, u64>,
    /// Pages of each volume.
    of_volume: FxHashMap<u32, usize>,
}

enum Page {
    /// Places in the page, in order, with their counts.
    Few(Vec<(u16, u16)>),
    Dense {
        counts: Box<[u16; PAGE as usize]>,
        used: u16,
    },
}

impl Page {
    fn get(&self, at: u16) -> u16 {
        match self {
            Page::Few(few) => few.binary_search_by_key(&at, |(at, _)| *at).map_or(0, |found| few[found].1),
            Page::Dense { counts, .. } => counts[usize::from(at)],
        }
    }

    fn set(&mut self, at: u16, count: u16) {
        match self {
            Page::Few(few) => match (few.binary_search_by_key(&at, |(at, _)| *at), count) {
                (Ok(found), 0) => {
                    few.remove(found);
                    if few.len() * 4 <= few.capacity() {
                        few.shrink_to(few.len() * 2);
                    }
                }
                (Ok(found), _) => few[found].1 = count,
                (Err(_), 0) => (),
                (Err(_), _) if few.len() >= FEW_MAX => {
                    *self = Page::dense(few);
                    self.set(at, count);
                }
                (Err(before), _) => few.insert(before, (at, count)),
            },
            Page::Dense { counts, used } => {
                let slot = &mut counts[usize::from(at)];
                *used = *used + u16::from(*slot == 0 && count != 0) - u16::from(*slot != 0 && count == 0);
                *slot = count;
                if *used <= FEW_AGAIN {
                    *self = Page::Few(self.all().collect());
                }
            }
        }
    }

    fn dense(few: &[(u16, u16)]) -> Page {
        let mut counts = Box::new([0; PAGE as usize]);
        few.iter().for_each(|(at, count)| counts[usize::from(*at)] = *count);
        Page::Dense { counts, used: few.len() as u16 }
    }

    /// The places with a count, and it.
    fn all(&self) -> impl Iterator<Item = (u16, u16)> {
        let (few, counts) = match self {
            Page::Few(few) => (few.as_slice(), &[][..]),
            Page::Dense { counts, .. } => (&[][..], &counts[..]),
        };
        let used = (0..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0);
        few.iter().copied().chain(used)
    }

    fn is_empty(&self) -> bool {
        matches!(self, Page::Few(few) if few.is_empty())
    }
}

impl Refs {
    /// The count of `node`.
    pub fn get(&self, node: NodeId) -> u64 {
        match self.pages.get(&(node.0 / PAGE)).map(|page| page.get(place(node))) {
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
        let nodes =
            pages.flat_map(|(number, page)| page.all().map(|(at, _)| NodeId(*number * PAGE + u64::from(at))));
        nodes.collect()
    }

    /// Whether there are any.
    pub fn has_of_volume(&self, volume: u32) -> bool {
        self.of_volume.contains_key(&volume)
    }

    fn set(&mut self, node: NodeId, count: u64) {
        let number = node.0 / PAGE;
        let page = self.pages.entry(number).or_insert_with(|| {
            *self.of_volume.entry(node.volume()).or_default() += 1;
            Page::Few(Vec::with_capacity(1))
        });
        let small = u16::try_from(count).unwrap_or(FULL);
        if page.get(place(node)) == FULL && small != FULL {
            self.large.remove(&node);
        }
        page.set(place(node), small);
        if small == FULL {
            self.large.insert(node, count);
        } else if page.is_empty() {
            self.pages.remove(&number);
            if let Entry::Occupied(mut pages) = self.of_volume.entry(node.volume()) {
                *pages.get_mut() -= 1;
                if *pages.get() == 0 {
                    pages.remove();
                }
            }
        }
    }
}

/// The place of an inode in its page.
fn place(node: NodeId) -> u16 {
    (node.0 % PAGE) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    impl Refs {
        /// Bytes of memory, without what the allocator adds.
        fn bytes(&self) -> usize {
            let of_page = |page: &Page| match page {
                Page::Few(few) => few.capacity() * size_of::<(u16, u16)>(),
                Page::Dense { .. } => PAGE as usize * size_of::<u16>(),
            };
            // the map has a byte beside each place
            let of_map = self.pages.capacity() * 8 / 7 * (size_of::<(u64, Page)>() + 1);
            of_map + self.pages.values().map(of_page).sum::<usize>()
        }
    }

    #[test]
    fn numbers_far_apart_take_no_page_each() {
        const NODES: u64 = 50_000;
        for stride in [PAGE, 3 * PAGE + 7, 1 << 40] {
            let mut refs = Refs::default();
            (0..NODES).for_each(|n| refs.add(NodeId(n * stride)));
            let each = refs.bytes() / NODES as usize;
            assert!(each <= 100, "{each} bytes for each of numbers {stride} apart");
        }
        // what is left of pages that were full
        let mut refs = Refs::default();
        (0..100 * PAGE).for_each(|n| refs.add(NodeId(n)));
        (0..100 * PAGE).filter(|n| n % PAGE > 0).for_each(|n| _ = refs.sub(NodeId(n), 1));
        assert!(refs.bytes() <= 100 * 200, "{} bytes for 100", refs.bytes());
    }

    #[test]
    fn numbers_beside_each_other_take_two_bytes_each() {
        const NODES: u64 = 1_000_000;
        let mut refs = Refs::default();
        (0..NODES).for_each(|n| refs.add(NodeId(n)));
        assert!(refs.bytes() as u64 <= NODES * 5 / 2, "{} bytes for {NODES}", refs.bytes());
        (0..NODES).for_each(|n| assert_eq!(refs.sub(NodeId(n), 1), 0));
        assert!(refs.pages.is_empty() && refs.large.is_empty() && refs.of_volume.is_empty());
    }

    #[test]
    fn counts_are_those_of_a_map() {
        let (mut refs, mut model) = (Refs::default(), BTreeMap::<u64, u64>::new());
        let mut number: u64 = 1;
        for step in 0..200_000u64 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // first pages fill, then they empty
            let (node, adds) = ((number >> 33) % (3 * PAGE), (number >> 20) % 10 < 9 - step / 25_000);
            let count = model.entry(node).or_default();
            if adds {
                refs.add(NodeId(node));
                *count += 1;
            } else {
                let gone = 1 + step % 3;
                *count = count.saturating_sub(gone);
                assert_eq!(refs.sub(NodeId(node), gone), *count);
            }
            assert_eq!(refs.get(NodeId(node)), *count, "step {step}");
        }
        model.retain(|_, count| *count > 0);
        let mut left: Vec<u64> = refs.of_volume(0).into_iter().map(|node| node.0).collect();
        left.sort_unstable();
        assert_eq!(left, model.into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn large_counts_are_kept_beside() {
        for node in [NodeId(5), NodeId(PAGE + 1)] {
            let mut refs = Refs::default();
            (0..if node.0 > PAGE { PAGE } else { 0 }).for_each(|n| refs.add(NodeId(PAGE + n)));
            let before = refs.get(node);
            (0..70_000).for_each(|_| refs.add(node));
            assert_eq!(refs.get(node), before + 70_000);
            assert_eq!(refs.sub(node, 60_000), before + 10_000);
            assert!(refs.large.is_empty());
            assert_eq!(refs.sub(node, u64::MAX), 0);
            assert_eq!(refs.get(node), 0);
        }
    }
}
