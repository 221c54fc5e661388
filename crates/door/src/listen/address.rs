//! Addresses of doors.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Why an address cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is no address.
    #[error(
        "`{0}` is no address: write a port of this machine only, such as 9000, or an address with a port: 127.0.0.1:9000, [::1]:9000, *:443"
    )]
    NotOne(String),
    /// Others could listen.
    #[error(
        "{0} is reached by others, and what they say could be read by all: give a certificate and key, or name a port of this machine only"
    )]
    NotEncrypted(SocketAddr),
    /// The system's refusal.
    #[error("{0} {1}")]
    Refused(SocketAddr, String),
    /// Certificate and key.
    #[error("{0}")]
    Tls(String),
}

/// Reads an address: a port is one of this machine only, on IPv4 and IPv6; `*:PORT` is all addresses of both.
///
/// # Errors
/// [`AddressError::NotOne`].
pub fn parse(text: &str) -> Result<Vec<SocketAddr>, AddressError> {
    let wrong = || AddressError::NotOne(text.into());
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
    }
    if let Some(port) = text.strip_prefix("*:") {
        return Ok(vec![(Ipv6Addr::UNSPECIFIED, port.parse().map_err(|_| wrong())?).into()]);
    }
    Ok(vec![text.parse().map_err(|_| wrong())?])
}

/// Listens; an unspecified IPv6 address takes IPv4, too.
pub(super) fn listen(address: &SocketAddr) -> Result<TcpListener, AddressError> {
    let refused = |e: io::Error| AddressError::Refused(*address, why(&e));
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
}

fn why(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::AddrInUse => "is in use by another program: choose another port".into(),
        io::ErrorKind::AddrNotAvailable => {
            "is no address of this machine: name one that it has, or only a port".into()
        }
        io::ErrorKind::PermissionDenied => "is not permitted: choose a port from 1024 on".into(),
        _ => format!("cannot be had: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read =
            |text: &str| parse(text).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(read("9000").unwrap(), ["127.0.0.1:9000", "[::1]:9000"]);
        assert_eq!(read(":9000").unwrap(), ["127.0.0.1:9000", "[::1]:9000"]);
        assert_eq!(read("*:443").unwrap(), ["[::]:443"]);
        assert_eq!(read("10.0.0.1:80").unwrap(), ["10.0.0.1:80"]);
        for text in ["", "localhost", "70000", "1.2.3.4", "*:x"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_loopback_without_tls() {
        let open = parse("*:0").unwrap();
        assert!(matches!(super::super::Bound::take(&open, None), Err(AddressError::NotEncrypted(_))));
    }
}
