//! The interface for front ends: the [`Gate`] before a file system, and helpers that every front
//! end needs.
//!
//! * [`Gate`]: runs operations in an order that is fair between flows, at once or on a thread that
//!   may wait.
//! * [`Backend`]: what a front end sends requests to, here or on another machine.
//! * [`DoorBackend`]: the same for doors on a network.
//! * [`People`]: tells the gate about groups of users and jobs of processes.
//! * [`locks`]: locks of programs on files, for all machines.
//! * [`ledger`]: what each flow used, what it waited for, behind whom.
//! * [`OwnedOp`]: an operation with its bytes, for carrying it to another thread.
//! * [`Cursor`]: the position of a directory stream, so that a listing can go on while the
//!   directory changes.
//!
//! Nothing here does I/O or knows a protocol.

mod backend;
mod background;
mod cursor;
mod door_backend;
mod gate;
mod held;
mod jobs;
pub mod ledger;
pub mod locks;
mod owned;
mod owners;
mod people;
pub mod processors;
mod user_shares;
mod waiting;

pub use backend::Backend;
pub use cursor::{Cursor, ListingPosition};
pub use door_backend::{Answer, DoorBackend, Steps};
pub use gate::{Attempt, Gate, Options as GateOptions};
pub use ledger::Outcome;
pub use owned::OwnedOp;
pub use people::{People, Subordinates};
