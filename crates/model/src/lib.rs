//! The reference that the file system is compared with.
//!
//! * [`Model`]: a file system in memory, small and without cleverness;
//! * [`snapshots`]: its snapshots, which are clones;
//! * [`Step`](step::Step), [`text`], [`generate`]: random operations with paths, printable and
//!   replayable;
//! * [`harness`]: runs steps on the model and on a [`Target`], compares each answer and, now and
//!   then, the whole tree with all snapshots;
//! * [`crash`]: stops a [`CrashTarget`](crash::CrashTarget) at every mutation of its disk and
//!   judges what comes back;
//! * [`faults`]: makes one call below a [`FaultTarget`](faults::FaultTarget) fail, and judges what
//!   comes of it.
//!
//! Only tests depend on this crate. A failure panics with the seed, the first difference and a
//! shrunk list of steps that can be kept as a regression: `harness::replay(make, text)`.

pub mod compare;
pub mod content;
pub mod crash;
pub mod faults;
mod flags;
pub mod generate;
pub mod harness;
pub mod model;
pub mod node;
mod ranges;
pub mod side;
pub mod snapshots;
pub mod step;
pub mod text;
pub mod tree;
pub mod usage;

pub use generate::Profile;
pub use harness::{Target, run};
pub use model::Model;
