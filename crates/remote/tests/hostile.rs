//! Fuzz targets: messages as strangers make them up. Reading one takes memory in proportion to its
//! bytes, and what is read is written again as it was. `docs/TESTING.md` says how they are run for
//! longer.
#![allow(missing_docs)]

use bolero::{ValueGenerator, check, produce};
use leeward_fs::codec::Wire;
use leeward_fs::{Error, Op, Reply};
use leeward_remote::message::{ToClient, ToServer, frame, message};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Debug;

/// Bytes of memory for each byte of a message, at most: a list grows by doubling, and its shortest
/// element (an entry of a directory without a name) is 14 bytes of a message.
const BYTES_FOR_A_BYTE: usize = 40;
/// And for the message as a whole: an element of a list, a text in an error.
const BYTES_MORE: usize = 1024;

/// Counts what the thread has allocated.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

fn count(more: usize, less: usize) {
    // a thread that ends may have no counters any more
    let _ = HELD.try_with(|held| {
        held.set((held.get() + more).saturating_sub(less));
        MOST.with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: the system's allocator does the work
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as our caller has promised
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as our caller has promised
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static MEMORY: Counting = Counting;

/// The most memory that was held at once while this ran.
fn memory_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    HELD.set(0);
    MOST.set(0);
    let value = run();
    (value, MOST.get())
}

/// Reads a message, and writes it again.
fn read_and_write<'a, M: Wire<'a> + PartialEq + Debug>(bytes: &'a [u8]) {
    let (read, memory) = memory_of(|| message::<M>(bytes));
    let most = bytes.len() * BYTES_FOR_A_BYTE + BYTES_MORE;
    assert!(memory <= most, "{} bytes took {memory} bytes of memory", bytes.len());
    if let Ok(read) = read {
        assert_eq!(&frame(&read)[4..], bytes, "{read:?}");
    }
}

/// Numbers of all sizes and byte strings, in the order that a message could have.
fn soup() -> impl ValueGenerator<Output = Vec<u8>> {
    let pieces = produce::<Vec<(u8, u8)>>().with().len(0usize..40);
    pieces.map_gen(|pieces| pieces.into_iter().flat_map(|(kind, value)| piece(kind, value)).collect())
}

fn piece(kind: u8, value: u8) -> Vec<u8> {
    let small = u64::from(value % 8);
    match kind % 12 {
        0..3 => vec![value],
        3..6 => vec![value % 8],
        6 => u64::from(value).to_le_bytes()[..2].to_vec(),
        7 => small.to_le_bytes()[..4].to_vec(),
        8 => small.to_le_bytes().to_vec(),
        9 => [&small.to_le_bytes()[..4], &vec![b'a'; small as usize]].concat(),
        10 => [0xff; 8][..usize::from(value % 8)].to_vec(),
        _ => vec![0; usize::from(value)],
    }
}

#[test]
fn what_a_client_sends_takes_no_memory_and_is_what_it_says() {
    check!().with_iterations(40_000).with_generator((0u8..7, soup())).for_each(|(kind, soup)| {
        read_and_write::<ToServer<'_>>(&[&[*kind][..], soup].concat());
    });
}

#[test]
fn operations_take_no_memory_and_are_what_they_say() {
    check!().with_iterations(60_000).with_generator((0u8..40, soup())).for_each(|(kind, soup)| {
        read_and_write::<Op<'_>>(&[&[*kind][..], soup].concat());
    });
}

#[test]
fn what_a_server_sends_takes_no_memory_and_is_what_it_says() {
    check!().with_iterations(40_000).with_generator((0u8..8, soup())).for_each(|(kind, soup)| {
        read_and_write::<ToClient>(&[&[*kind][..], soup].concat());
    });
}

#[test]
fn replies_and_errors_take_no_memory_and_are_what_they_say() {
    check!().with_iterations(60_000).with_generator((0u8..40, soup())).for_each(|(kind, soup)| {
        read_and_write::<Reply>(&[&[*kind][..], soup].concat());
        read_and_write::<Error>(&[&[*kind][..], soup].concat());
    });
}

#[test]
fn arbitrary_bytes_take_no_memory() {
    check!().with_iterations(20_000).with_type::<Vec<u8>>().for_each(|bytes| {
        read_and_write::<ToServer<'_>>(bytes);
        read_and_write::<ToClient>(bytes);
    });
}

/// Lists whose count says more than there is, and lists of what is shortest.
#[test]
fn long_lists_take_memory_in_proportion() {
    for kind in [6u8, 7, 10, 11] {
        for (count, element) in [(u32::MAX, 0), (1, 0), (1000, 4), (1000, 14), (40_000, 29)] {
            let elements = vec![0; count.min(50_000) as usize * element];
            read_and_write::<Reply>(&[&[kind][..], &count.to_le_bytes(), &elements].concat());
        }
    }
    let entry = [&[0; 12][..], &[1, 0]].concat();
    let bytes = [&[6][..], &50_000u32.to_le_bytes(), &entry.repeat(50_000)].concat();
    assert!(message::<Reply>(&bytes).is_ok());
    read_and_write::<Reply>(&bytes);
    let bytes = [&[7][..], &50_000u32.to_le_bytes(), &[0; 200_000]].concat();
    assert!(message::<Reply>(&bytes).is_ok());
    read_and_write::<Reply>(&bytes);
}
