//! The HTTP and WebDAV door: the files of a cell for browsers, WebDAV clients and the grid.
//!
//! A request comes from `leeward-door`'s listeners to [`Dav`]; `leeward-auth` says who asks and what the credential covers; `leeward-door`'s
//! trees do the work, as that user. What is here is the protocol between:
//!
//! * pure: [`path`], [`head`] (headers), [`xml`], [`marker`], [`listing`], [`date`], [`kind`], [`sums`];
//! * [`locks`]: WebDAV's locks, in memory;
//! * `server`: who asks, and which method; `asked`: the request from then on; `ops`: the methods;
//! * [`third`]: copies between this server and another one;
//! * [`oops`]: every error on its way to a status.
//!
//! Invariants: a right is checked for the path as it was sent, name by name, and a symbolic link leads nowhere that the right does not
//! cover; nothing of a PUT or a copy is seen before all of it is durable; credentials are in no log and no answer.

// what instruments every program that `tests/fuzz` builds is in it
#[cfg(test)]
use bolero as _;

mod asked;
mod body;
pub mod date;
pub mod head;
pub mod kind;
pub mod listing;
pub mod locks;
pub mod marker;
pub mod oops;
mod ops;
pub mod path;
mod server;
mod shared;
pub mod sums;
pub mod third;
pub mod xml;

pub use server::Dav;
pub use shared::{Report, Settings};
pub use third::reach::Reach;
pub use third::remote::Remote;
pub use third::transfers::Transfers;
