//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod contract;
mod crash;
mod journal;
mod lsm;
mod slate;
