//! One cell on many machines: the protocol between the process that serves a cell and the machines
//! that mount it.
//!
//! * [`Server`] lets hosts in and hands their calls to the gate. [`Client`] is a
//!   [`Backend`](leeward_vfs::Backend) for front ends on another machine.
//! * [`message`]: what the two say. [`Keys`]: how they know each other. `pipe`: one connection.
//!
//! What the server holds of a client is in its session: the references to inodes, and the answers
//! that may have to be sent again. Nothing that a client sends is believed: what its host may do is
//! in the host's entry, names are names, references are those that it was given.
//!
//! A client keeps copies of what it is told under leases, which the server takes back before others
//! change it, and the changes that it was told of until they are durable.

// the library that instruments every program built by `tests/fuzz`
#[cfg(test)]
use bolero as _;

mod client;
mod keys;
pub mod message;
mod on_drop;
mod pipe;
mod server;

pub use client::{
    Begun, CacheOptions, Client, CommandLost, ForDoors, LostFiles, Options as ClientOptions, PIECE_BYTES_MAX,
    Unreachable, User,
};
pub use keys::{Keys, PublicKey};
pub use message::{CellUser, ServerList};
pub use server::{
    Asker, Elsewhere, Given, Grant, HostFigures, Hosts, Loss, Server, SessionInfo, Transfers,
    UnflushedFigures,
};

/// For tests: what a client that somebody else has written would use.
#[doc(hidden)]
pub mod testing {
    use crate::{Keys, PublicKey};
    use std::sync::Arc;

    /// TLS of a client with these keys.
    ///
    /// # Errors
    /// What the library of TLS says.
    pub fn tls(keys: &Keys, server: PublicKey) -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
        keys.client(server)
    }

    /// TLS of a server with these keys.
    ///
    /// # Errors
    /// What the library of TLS says.
    pub fn server_tls(keys: &Keys) -> Result<Arc<rustls::ServerConfig>, rustls::Error> {
        keys.server()
    }
}
