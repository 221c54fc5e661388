//! Addresses of doors.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;

/// Why an address cannot be used.
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

/// Reads an address: a port is one of this machine only, on IPv4 and IPv6; `*:PORT` is all
/// addresses of both.
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

/// Listens on all of these, without waiting at accept; an unspecified IPv6 address takes IPv4, too.
/// A machine without IPv6 has no `::1`: there 127.0.0.1 is enough.
///
/// # Errors
/// [`AddressError::Refused`].
pub fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, AddressError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let refused = |e: io::Error| AddressError::Refused(*address, why(&e));
        let bound = match TcpListener::bind(address) {
            Err(e) if has_none(address, &e) && has_twin(address, addresses) => continue,
            bound => bound.map_err(refused)?,
        };
        bound.set_nonblocking(true).map_err(refused)?;
        lengthen(&bound).map_err(refused)?;
        listeners.push(bound);
    }
    Ok(listeners)
}

/// Lets as many connections wait to be accepted as the system allows. The standard library sets
/// 128: of many that come at once all others would be dropped, and try again a second later.
fn lengthen(listener: &TcpListener) -> io::Result<()> {
    // SAFETY: the descriptor is open, and listening again only changes the length.
    match unsafe { libc::listen(listener.as_raw_fd(), i32::MAX) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether it is IPv6's loopback, and the machine has none.
fn has_none(address: &SocketAddr, e: &io::Error) -> bool {
    let is_missing =
        e.kind() == io::ErrorKind::AddrNotAvailable || e.raw_os_error() == Some(libc::EAFNOSUPPORT);
    address.ip() == Ipv6Addr::LOCALHOST && is_missing
}

/// Whether IPv4's loopback is listened on, too.
fn has_twin(address: &SocketAddr, addresses: &[SocketAddr]) -> bool {
    addresses.contains(&(Ipv4Addr::LOCALHOST, address.port()).into())
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
    use std::net::TcpStream;
    use std::time::Duration;

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
    fn a_machine_without_ipv6_needs_no_ipv6() {
        let (none, other) = (io::ErrorKind::AddrNotAvailable.into(), io::ErrorKind::AddrInUse.into());
        let [v4, v6] = parse("9000").unwrap()[..] else { panic!("two") };
        assert!(has_none(&v6, &none) && !has_none(&v4, &none) && !has_none(&v6, &other));
        assert!(has_none(&v6, &io::Error::from_raw_os_error(libc::EAFNOSUPPORT)));
        assert!(has_twin(&v6, &[v4, v6]) && !has_twin(&v6, &[v6]));
    }

    #[test]
    fn a_crowd_may_wait_to_be_accepted() {
        let listeners = listen(&parse("127.0.0.1:0").unwrap()).unwrap();
        let at = listeners[0].local_addr().unwrap();
        let crowd = (0..400).map(|_| TcpStream::connect_timeout(&at, Duration::from_millis(900)));
        assert_eq!(crowd.collect::<Vec<_>>().iter().filter(|one| one.is_err()).count(), 0);
    }

    #[test]
    fn only_loopback_without_tls() {
        let open = parse("*:0").unwrap();
        assert!(matches!(super::super::Bound::take(&open, None), Err(AddressError::NotEncrypted(_))));
    }
}
