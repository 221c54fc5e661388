//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod disk_cache;
mod faults;
mod flow;
mod format;
mod model;
mod scattered;
mod support;
