//! The times of the protocol. Clocks may differ by one part in six: [`ANSWERS`] x 7/6 is less than
//! [`OVER`].

use leeward_env::Nanos;
use std::time::Duration;

const MILLI: Nanos = 1_000_000;

/// L: so long after it has sent a renewal a server may answer.
pub const ANSWERS: Nanos = 2500 * MILLI;
/// M: who has seen no renewal for so long marks the server as dead.
pub const SILENT: Nanos = 2000 * MILLI;
/// D: so long after its last renewal was seen a server that is marked answers nobody any more.
pub const OVER: Nanos = 3000 * MILLI;
/// Who has not looked for so long may have missed renewals, and begins to count anew: the store may
/// have been away.
pub const LOOKED: Nanos = 1500 * MILLI;
/// How often a server renews its record.
pub const RENEW: Duration = Duration::from_millis(500);
/// How often it looks at the map, and at the record of the owner.
pub const LOOK: Duration = Duration::from_millis(250);
/// Each so many looks are at all servers.
pub const LOOK_AT_ALL: u64 = 2;
/// A cell that is nobody's for so long is also taken by a server that was to be drained.
pub const UNWANTED: Nanos = 5000 * MILLI;
/// Who was silent for so long is not thought to live because nobody could look.
pub const GONE: Nanos = 10_000 * MILLI;
/// Records of servers that have ended, or are dead, are removed after this time.
pub const KEPT: Nanos = 600_000 * MILLI;
