//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod certificates;
mod loopback;
mod macaroons;
mod rig;
mod sign_on;
mod wlcg;
