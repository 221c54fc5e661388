//! Tells systemd that the server is ready, or ending: `sd_notify`, for units with `Type=notify`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the socket.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// Whether a service manager waits to hear of this process, and so starts it again.
pub fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|name| !name.is_empty())
}

/// The cell is mounted.
pub fn ready() {
    tell(b"READY=1");
}

/// The server ends. Send this after the unmount: systemd kills the process `TimeoutStopSec` later.
pub fn stopping() {
    tell(b"STOPPING=1");
}

/// Nobody may be listening, which is no error.
fn tell(state: &[u8]) {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let socket = UnixDatagram::unbound();
    let _ = socket.and_then(|socket| socket.send_to_addr(state, &address?));
}
