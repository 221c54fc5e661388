//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod behind;
mod clocks;
mod copies;
mod names;
mod owners;
mod recalls;
mod replay;
mod sessions;
