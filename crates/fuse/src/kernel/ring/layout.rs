//! How many rings, entries and bytes: as much memory at most on a large machine as on a small one.

use std::path::Path;

/// Buffers of all rings together.
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// A payload where there is room: larger ones gain nothing.
const PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// The largest request that is no write, an extended attribute with its name, must fit: the kernel
/// does not check.
const PAYLOAD_BYTES_MIN: usize = 128 << 10;
/// Entries of a processor. The gate decides what is next among the requests that it has seen; one
/// that finds no entry waits in the kernel, first come, first served.
const ENTRIES_MAX: usize = 128;
/// Below this payloads are made smaller.
const ENTRIES_WANTED: usize = 32;

/// What each ring has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Largest write and read.
    pub(crate) payload_bytes: usize,
    /// By ring, that is by thread.
    pub(crate) rings: Vec<RingLayout>,
}

/// What one ring has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingLayout {
    /// Which processor its thread is bound to.
    pub(crate) cpu: usize,
    /// Number of the kernel's queue for each entry.
    pub(crate) queue_of_entry: Vec<u16>,
}

impl Layout {
    /// For this machine; `None`: its processors cannot be counted, or are too many for the memory.
    pub(crate) fn of_machine() -> Option<Layout> {
        Layout::new(cpus("possible")?.len(), &cpus("online")?)
    }

    /// `possible`: how many processors there may ever be, each of which has a queue; `online`:
    /// those that are there. A queue of one that is not gets an entry all the same, as the kernel
    /// uses none before all are served.
    fn new(possible: usize, online: &[usize]) -> Option<Layout> {
        let spare = possible.saturating_sub(online.len());
        let entries =
            |payload: usize| (MEMORY_BYTES_MAX / payload).saturating_sub(spare) / online.len().max(1);
        let payload_bytes = match entries(PAYLOAD_BYTES_MAX) {
            ENTRIES_WANTED.. => PAYLOAD_BYTES_MAX,
            _ => PAYLOAD_BYTES_MIN,
        };
        let each = entries(payload_bytes).min(ENTRIES_MAX);
        if each == 0 {
            return None;
        }
        let ring = |cpu: &usize| RingLayout { cpu: *cpu, queue_of_entry: Vec::new() };
        let mut rings: Vec<RingLayout> = online.iter().map(ring).collect();
        for queue in 0..possible {
            let own = online.iter().position(|cpu| *cpu == queue);
            let count = if own.is_some() { each } else { 1 };
            let ring = own.unwrap_or(queue % online.len());
            rings[ring].queue_of_entry.extend(std::iter::repeat_n(queue as u16, count));
        }
        rings.retain(|ring| !ring.queue_of_entry.is_empty());
        Some(Layout { payload_bytes, rings })
    }
}

/// Numbers of processors in a state, such as `0-3,8`.
fn cpus(state: &str) -> Option<Vec<usize>> {
    let text = std::fs::read_to_string(Path::new("/sys/devices/system/cpu").join(state)).ok()?;
    parse(text.trim()).filter(|all| !all.is_empty())
}

fn parse(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        all.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(layout: &Layout) -> usize {
        layout.rings.iter().map(|r| r.queue_of_entry.len()).sum::<usize>() * layout.payload_bytes
    }

    #[test]
    fn every_queue_has_an_entry_and_memory_is_bounded() {
        for (possible, online) in [(1, 1), (2, 2), (8, 8), (64, 64), (128, 2), (192, 192), (512, 512)] {
            let online: Vec<usize> = (0..online).collect();
            let layout = Layout::new(possible, &online).expect("a layout");
            let mut queues: Vec<u16> =
                layout.rings.iter().flat_map(|r| r.queue_of_entry.iter().copied()).collect();
            queues.sort_unstable();
            queues.dedup();
            assert_eq!(queues.len(), possible, "{possible} possible");
            assert!(bytes(&layout) <= MEMORY_BYTES_MAX, "{possible}: {} bytes", bytes(&layout));
            assert!(layout.rings.len() <= online.len());
            assert!(layout.payload_bytes >= PAYLOAD_BYTES_MIN);
        }
        assert_eq!(Layout::new(1000, &(0..1000).collect::<Vec<_>>()), None, "too many for the memory");
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse("0-1"), Some(vec![0, 1]));
        assert_eq!(parse("0-1,4,6-7"), Some(vec![0, 1, 4, 6, 7]));
        assert_eq!(parse("x"), None);
    }
}
