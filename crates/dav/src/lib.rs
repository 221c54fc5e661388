//! The HTTP and WebDAV door: the files of a cell for browsers, WebDAV clients and the grid.
//!
//! A request comes from `leeward-door`'s listeners to [`Dav`]. `leeward-auth` says who asks and
//! what the credential covers. `leeward-door`'s trees do the work, as that user. This crate has the
//! protocol in between:
//!
//! * pure: [`path`], [`head`] (headers), [`xml`], [`marker`], [`listing`], [`date`], [`kind`],
//!   [`sums`];
//! * [`locks`]: WebDAV's locks, in memory;
//! * `server`: who asks, and which method; `request`: a request whose sender is known; `ops`: the
//!   methods;
//! * [`third_party_copy`]: copies between this server and another one;
//! * [`error`]: every error as a status.
//!
//! Invariants: a right is checked for the path as it was sent, name by name, and a symbolic link
//! leads nowhere that the right does not cover; nobody sees anything of a PUT or a copy before all
//! of it is durable; credentials are in no log and no answer.

// the library that instruments every program built by `tests/fuzz`
#[cfg(test)]
use bolero as _;

mod body;
pub mod date;
pub mod error;
pub mod head;
pub mod kind;
pub mod listing;
pub mod locks;
pub mod marker;
mod ops;
pub mod path;
mod request;
mod server;
mod shared;
pub mod sums;
pub mod third_party_copy;
pub mod xml;

pub use server::Dav;
pub use shared::{METHODS, Report, Settings};
pub use third_party_copy::reach::AllowedServers;
pub use third_party_copy::remote::Remote;
pub use third_party_copy::transfers::Transfers;
