//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod bounds;
mod methods;
mod rig;
mod rights;
mod third_party_copy;
mod trees;
