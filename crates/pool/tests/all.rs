//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod buckets;
mod contract;
mod crash;
mod dir;
mod faulty;
mod gated;
mod label;
mod s3;
