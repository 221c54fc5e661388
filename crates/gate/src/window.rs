//! How much may be on its way to a store at once: as much as keeps it busy, and little more. No I/O, no clock, no lock of its own.
//!
//! What is in a store's own queue nobody can overtake, so the rest had better wait in ours. How much a store takes at once nobody is asked: it is
//! found from how long transfers take, against their **floor**, what one of that kind and size takes alone. Where transfers take `r` times
//! their floors, only one part in `r` of what is on its way is being served; the rest waits. The window is set to the part that is served, and
//! one slice and a half to wait (more where many are served at once): so a store that serves one at a time gets two, and one that serves
//! fifty at a time, at no loss of speed, gets some sixty.
//!
//! * **Floors stay true**: a kind and size that is not known yet goes alone the first time, and every now and then some go alone
//!   again, as stores change. That costs less than one part in a hundred.
//! * **Never shut**: when nothing is on its way, there is room.
//! * **Never open without need**: the window grows only while something waits for it.

/// What a transfer takes of the window beside its bytes: a small one is not for nothing.
const REQUEST_BYTES: u64 = 16 << 10;
/// Transfers from which on a round says something.
const ROUND_TRANSFERS: u32 = 8;
/// Rounds after which floors are measured again, and with how many transfers.
const FLOOR_ROUNDS: u32 = 256;
const FLOOR_TRANSFERS: u32 = 4;
/// Classes of sizes: up to 4 KiB, and so on in powers of two.
const SIZES: usize = 16;

/// What is done to a store, as far as it differs in how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes come.
    Read,
    /// Bytes go.
    Write,
    /// Something is removed.
    Delete,
}

const KINDS: usize = 3;

/// A transfer on its way, from [`Window::begin`] to [`Window::end`] or [`Window::failed`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a transfer ends with `end` or `failed`"]
pub struct Transfer {
    kind: Kind,
    bytes: u64,
    /// How many had begun with it.
    number: u64,
    /// Nothing else was on its way.
    alone: bool,
}

/// See the module's head. Nanoseconds and bytes; [`REQUEST_BYTES`] count with those of each transfer.
#[derive(Debug)]
pub struct Window {
    /// What a whole slice takes of the window: its least.
    slice: u64,
    limit: u64,
    on_way: u64,
    count: usize,
    begun: u64,
    /// By kind and size; 0: not known.
    floors: [[u64; SIZES]; KINDS],
    round: Round,
    rounds: u32,
    /// So many more go alone.
    alone: u32,
}

/// What was seen since the window was last set.
#[derive(Debug, Default)]
struct Round {
    transfers: u32,
    done: u64,
    took: u64,
    floors: u64,
    /// Sum of what was on its way whenever something began.
    on_way: u64,
    begun: u64,
    /// Something waited for the window.
    short: bool,
}

impl Window {
    /// A window for transfers of at most so many bytes; it begins with one.
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

    /// How large one transfer may be now, of what may be cut anywhere, in bytes: at least a slice.
    pub fn piece(&self) -> u64 {
        self.limit.saturating_sub(self.on_way).max(self.slice) - REQUEST_BYTES
    }

    /// Something begins.
    pub fn begin(&mut self, kind: Kind, bytes: usize) -> Transfer {
        let alone = self.count == 0;
        self.begun += 1;
        self.count += 1;
        self.on_way += bytes as u64 + REQUEST_BYTES;
        self.round.begun += 1;
        self.round.on_way += self.on_way;
        Transfer { kind, bytes: bytes as u64, number: self.begun, alone }
    }

    /// A transfer has ended well and took so long. `waiting`: whether others wait for the window.
    pub fn end(&mut self, transfer: Transfer, nanos: u64, waiting: bool) {
        let nanos = nanos.max(1);
        let alone = transfer.alone && transfer.number == self.begun;
        let floor = &mut self.floors[transfer.kind as usize][size(transfer.bytes)];
        match *floor {
            0 => *floor = nanos,
            // about the mean, rather below: one that was slow is soon forgotten
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
            self.turn_round();
        }
    }

    /// A transfer has failed: how long it took says nothing.
    pub fn failed(&mut self, transfer: Transfer) {
        self.left(&transfer);
    }

    /// The store says that it has too much to do: half as much from now on.
    pub fn back_off(&mut self) {
        self.limit = (self.limit / 2).max(self.slice);
        self.round = Round::default();
    }

    /// What may be on its way at once.
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// What is on its way.
    pub fn bytes(&self) -> u64 {
        self.on_way
    }

    fn left(&mut self, transfer: &Transfer) {
        self.on_way -= transfer.bytes + REQUEST_BYTES;
        self.count -= 1;
    }

    /// Sets the window by what was seen in the round.
    fn turn_round(&mut self) {
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
