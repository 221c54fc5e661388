//! Several servers of one cell in a bucket: which of them owns it, and until when it may answer.
//!
//! The protocol is docs/decisions/0038, checked as a model in `protocol-model/src/owners.rs`; O1 to
//! O26 are its rules.
//!
//! * [`Record`]: what the bucket says of a server, an object each; [`Map`]: whose the cell is, one
//!   object. Both are changed by conditional puts only, and no version of one has the bytes of
//!   another (O1, O2).
//! * [`Renewing`]: a server renews its record twice a second. Its [`leeward_env::Term`] lasts
//!   [`times::ANSWERS`] from when the last renewal was *sent* (O8). Once it is marked as dead it
//!   ends for ever.
//! * [`Watching`]: what a server sees of the others. It marks an owner that does not renew, and
//!   takes what is nobody's. Who takes over from a marked server waits until that one's term is
//!   over by all clocks ([`Turn::not_before`]).
//!
//! Nothing here keeps data safe by itself: the metadata engine fences who had the cell before, and
//! the number of the [`Turn`] is in its log before anybody is answered (`volume/remote.rs`).

mod overview;
mod record;
mod renewing;
mod store;
pub mod times;
mod watching;

pub use overview::{Overview, overview};
pub use record::{Damaged, MAP, Map, Record, State, is_record, record_name};
pub use renewing::{Renewing, Standing};
pub use store::{Failed, Found, Store, order, predecessors_ended};
pub use watching::{Turn, Watching};
