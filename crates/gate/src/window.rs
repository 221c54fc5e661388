//! How much may be in flight to a store at once: as much as keeps it busy, and little more. No I/O,
//! no clock, no lock of its own.
//!
//! Nobody can overtake in a store's own queue, so requests should wait in ours. How much a store
//! takes at once is not configured. It is found from the time that transfers take, relative to
//! their **floor**: the time of a transfer of that kind and size when it is alone. Where transfers
//! take `r` times their floors, only one part in `r` of what is in flight is being served; the rest
//! waits. The window is set to the part that is served, plus one slice and a half to wait (more
//! where many are served at once). So a store that serves one at a time gets two, and one that
//! serves fifty at a time, at no loss of speed, gets some sixty.
//!
//! * **Floors stay true**: a kind and size that is not known yet goes alone the first time, and now
//!   and then some transfers go alone again, as stores change. That costs less than one part in a
//!   hundred.
//! * **Never shut**: when nothing is in flight, there is room.
//! * **Never open without need**: the window grows only while a transfer waits for it.

/// What a transfer takes of the window in addition to its bytes: a small one is not free.
const REQUEST_BYTES: u64 = 16 << 10;
/// Transfers from which on a round counts.
const ROUND_TRANSFERS: u32 = 8;
/// Rounds after which floors are measured again, and with how many transfers.
const FLOOR_ROUNDS: u32 = 256;
const FLOOR_TRANSFERS: u32 = 4;
/// Classes of sizes: up to 4 KiB, and so on in powers of two.
const SIZES: usize = 16;

/// Kinds of calls of a store, as far as their times differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// An object is removed.
    Delete,
}

const KINDS: usize = 3;

/// A transfer in flight, from [`Window::begin`] to [`Window::end`] or [`Window::failed`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a transfer ends with `end` or `failed`"]
pub struct Transfer {
    kind: Kind,
    bytes: u64,
    /// The number of transfers that had begun, with this one.
    number: u64,
    /// Whether nothing else was in flight.
    alone: bool,
}

/// The window of a store. Nanoseconds and bytes; each transfer counts [`REQUEST_BYTES`] more.
#[derive(Debug)]
pub struct Window {
    /// What a whole slice takes of the window: the smallest window.
    slice: u64,
    limit: u64,
    on_way: u64,
    count: usize,
    begun: u64,
    /// By kind and size; 0: not known.
    floors: [[u64; SIZES]; KINDS],
    round: Round,
    rounds: u32,
    /// Transfers that still have to go alone.
    alone: u32,
}

/// Figures since the window was last set.
#[derive(Debug, Default)]
struct Round {
    transfers: u32,
    done: u64,
    took: u64,
    floors: u64,
    /// Sum of the bytes in flight at each begin of a transfer.
    on_way: u64,
    begun: u64,
    /// Whether a transfer waited for the window.
    short: bool,
}

impl Window {
    /// A window for transfers of at most `slice_bytes`; it begins with one.
    pub fn new(slice_bytes: usize) -> Window {
        let slice = slice_bytes as u64 + REQUEST_BYTES;
        Window {
            slice,
            limit: slice,
            on_way: 0,
            count: 0,
            begun: 0,
            floors: [[0; SIZES]; KINDS],
            round: Round::default(),
            rounds: 0,
            alone: FLOOR_TRANSFERS,
        }
    }

    /// Whether one more may begin now.
    pub fn has_room(&self, kind: Kind, bytes: usize) -> bool {
        let known = self.floors[kind as usize][size(bytes as u64)] > 0 && self.alone == 0;
        self.count == 0 || known && self.on_way + bytes as u64 + REQUEST_BYTES <= self.limit
    }

    /// The largest size of one transfer now, for data that may be cut anywhere, in bytes: at least
    /// a slice.
    pub fn piece(&self) -> u64 {
        self.limit.saturating_sub(self.on_way).max(self.slice) - REQUEST_BYTES
    }

    /// Begins a transfer.
    pub fn begin(&mut self, kind: Kind, bytes: usize) -> Transfer {
        let alone = self.count == 0;
        self.begun += 1;
        self.count += 1;
        self.on_way += bytes as u64 + REQUEST_BYTES;
        self.round.begun += 1;
        self.round.on_way += self.on_way;
        Transfer { kind, bytes: bytes as u64, number: self.begun, alone }
    }

    /// Ends a transfer that succeeded and took `nanos`. `waiting`: whether others wait for the
    /// window.
    pub fn end(&mut self, transfer: Transfer, nanos: u64, waiting: bool) {
        let nanos = nanos.max(1);
        let alone = transfer.alone && transfer.number == self.begun;
        let floor = &mut self.floors[transfer.kind as usize][size(transfer.bytes)];
        match *floor {
            0 => *floor = nanos,
            // about the mean, rather below: one slow transfer soon counts no more
            was if alone && nanos < was => *floor = was - (was - nanos) / 4,
            was if alone => *floor = was + (nanos - was) / 8,
            _ => {}
        }
        self.round.floors += *floor;
        self.round.took += nanos;
        self.round.transfers += 1;
        self.round.done += transfer.bytes + REQUEST_BYTES;
        self.round.short |= waiting;
        self.alone = self.alone.saturating_sub(1);
        self.left(&transfer);
        if self.round.transfers >= ROUND_TRANSFERS && self.round.done >= self.limit {
            self.end_round();
        }
    }

    /// Ends a transfer that failed: its time says nothing.
    pub fn failed(&mut self, transfer: Transfer) {
        self.left(&transfer);
    }

    /// Halves the window: the store says that it is overloaded.
    pub fn back_off(&mut self) {
        self.limit = (self.limit / 2).max(self.slice);
        self.round = Round::default();
    }

    /// Bytes that may be in flight at once.
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// Bytes in flight.
    pub fn bytes(&self) -> u64 {
        self.on_way
    }

    fn left(&mut self, transfer: &Transfer) {
        self.on_way -= transfer.bytes + REQUEST_BYTES;
        self.count -= 1;
    }

    /// Sets the window by the figures of the round.
    fn end_round(&mut self) {
        let round = std::mem::take(&mut self.round);
        let on_way = round.on_way / round.begun.max(1);
        let served =
            (u128::from(on_way) * u128::from(round.floors) / u128::from(round.took.max(round.floors))) as u64;
        let allowed = (self.slice + self.slice / 2).max(on_way / 4);
        if round.short || on_way - served > allowed {
            let aim = (served + allowed).max(self.limit / 2);
            self.limit = ((self.limit + aim) / 2).max(self.slice);
        }
        self.rounds += 1;
        if self.rounds >= FLOOR_ROUNDS {
            (self.rounds, self.alone) = (0, FLOOR_TRANSFERS);
        }
    }
}

fn size(bytes: u64) -> usize {
    let pages = bytes.div_ceil(4096).max(1);
    (pages.next_power_of_two().trailing_zeros() as usize).min(SIZES - 1)
}
