//! The injected environment: everything that a deterministic test must be able to replace.
//!
//! * [`Env`]: monotonic and wall clock, randomness, threads.
//! * [`Ctx`]: who asks, and whether the call may wait; built only at the front ends, immutable,
//!   first argument everywhere.
//! * [`activity`]: whether users make requests now, so that background work holds back.
//! * [`dates`]: UTC, in names and messages.
//! * [`disk`]: the few file operations that journals and directory stores are built on, real and
//!   simulated.
//! * [`hex`]: bytes in text.
//! * [`histogram`]: histograms of durations.
//! * [`limits`]: every limit in one place.
//! * [`Term`]: until when this process may answer for a cell that several servers share.
//! * [`waits`]: what an operation waited for, to explain why it was slow.
//!
//! Invariant: nothing outside this crate calls the clock, a random source or `std::thread::spawn`
//! (`clippy.toml` enforces it).

pub mod activity;
pub mod ctx;
pub mod dates;
mod descriptor;
pub mod disk;
mod file_lock;
pub mod hex;
pub mod histogram;
pub mod limits;
mod machine;
mod memory;
mod real;
mod term;
pub mod waits;

pub use activity::Activity;
pub use ctx::{CallNumber, Class, Ctx, Door, Flow, Foretold, Groups, Told, Wait, Work};
pub use descriptor::{open_descriptor, wait_readable};
pub use file_lock::FileLock;
pub use machine::Machine;
pub use memory::{give_memory_back, keep_memory, limit_arenas};
pub use real::{Env, Nanos, processor_time};
pub use term::Term;

/// The text of a panic, for messages.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}
