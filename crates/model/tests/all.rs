//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod cell;
mod crash;
mod faults;
mod harness;
mod limits;
mod sim;
mod snapshots;
mod snapshots_edge;
mod streams;
mod told;
mod uploads;
mod whole;
