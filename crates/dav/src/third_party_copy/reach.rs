//! Which other servers a third-party copy may reach: any user who may upload can name one. Pure.

use std::net::IpAddr;

/// Allowed networks and ports.
#[derive(Clone, Debug, Default)]
pub struct AllowedServers {
    networks: Vec<Network>,
    ports: Vec<u16>,
    local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    first: IpAddr,
    bits: u8,
}

/// Networks of IPv4 that are not of the public internet (RFC 6890, RFC 5771).
const NOT_PUBLIC_4: [&str; 15] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
];
/// Public networks of IPv6, and those within them that are not public: among these are addresses
/// that stand for some of IPv4.
const PUBLIC_6: &str = "2000::/3";
const NOT_PUBLIC_6: [&str; 4] = ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"];

impl Network {
    /// Reads a network: `10.1.0.0/16`, or an address.
    fn parse(text: &str) -> Option<Network> {
        let (first, bits) = match text.split_once('/') {
            Some((first, bits)) => (first.parse().ok()?, Some(bits.parse::<u8>().ok()?)),
            None => (text.parse().ok()?, None),
        };
        let most = if matches!(first, IpAddr::V4(_)) { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Network { first, bits })
    }

    fn has(self, ip: IpAddr) -> bool {
        let same =
            |a: u128, b: u128, of: u32| (a ^ b).checked_shr(of - u32::from(self.bits)).unwrap_or(0) == 0;
        match (self.first, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl AllowedServers {
    /// Public addresses and these networks, at these ports (none: at any). `local`: everything, for
    /// trials.
    ///
    /// # Errors
    /// A network that is none.
    pub fn new(networks: &[String], ports: &[u16], local: bool) -> Result<AllowedServers, String> {
        let read = |text: &String| {
            Network::parse(text).ok_or_else(|| format!("{text} is no network: write one such as 10.1.0.0/16"))
        };
        let networks = networks.iter().map(read).collect::<Result<_, _>>()?;
        Ok(AllowedServers { networks, ports: ports.to_vec(), local })
    }

    /// Everything, also this machine, and without TLS: for trials.
    pub fn everything() -> AllowedServers {
        AllowedServers { local: true, ..AllowedServers::default() }
    }

    /// Whether everything is allowed.
    pub(super) fn is_everything(&self) -> bool {
        self.local
    }

    /// Whether this address and port may be reached; `own`: addresses of this machine.
    pub(super) fn may(&self, ip: IpAddr, port: u16, own: &[IpAddr]) -> bool {
        let ip = ip.to_canonical();
        let is_listed = || self.networks.iter().any(|network| network.has(ip));
        self.local
            || (self.ports.is_empty() || self.ports.contains(&port))
                && !own.contains(&ip)
                && !is_of_this_link(ip)
                && (is_public(ip) || is_listed())
    }
}

/// Addresses of this machine's links: only the setting for trials allows them.
fn is_of_this_link(ip: IpAddr) -> bool {
    let link = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    link || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast()
}

fn is_public(ip: IpAddr) -> bool {
    let in_one = |networks: &[&str]| networks.iter().filter_map(|n| Network::parse(n)).any(|n| n.has(ip));
    match ip {
        IpAddr::V4(_) => !in_one(&NOT_PUBLIC_4),
        IpAddr::V6(_) => in_one(&[PUBLIC_6]) && !in_one(&NOT_PUBLIC_6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(networks: &[&str], ports: &[u16]) -> AllowedServers {
        let networks: Vec<String> = networks.iter().map(|&n| n.to_owned()).collect();
        AllowedServers::new(&networks, ports, false).expect("networks")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn all_networks_of_the_tables_are_read() {
        for text in NOT_PUBLIC_4.iter().chain(&NOT_PUBLIC_6).chain([&PUBLIC_6]) {
            assert!(Network::parse(text).is_some_and(|n| n.has(n.first)), "{text}");
        }
    }

    #[test]
    fn only_public_addresses_are_reached() {
        let usual = reach(&[], &[]);
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "198.19.0.1",
            "192.0.2.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "2001:0:a00:1::",
            "2001:db8::1",
        ] {
            assert!(!usual.may(ip(text), 443, &[]), "{text}");
        }
        for text in ["192.1.2.3", "172.32.0.1", "8.8.8.8", "2001:1458::1", "2a00::1", "::ffff:8.8.8.8"] {
            assert!(usual.may(ip(text), 443, &[]), "{text}");
            assert!(!usual.may(ip(text), 443, &[ip(text).to_canonical()]), "{text} is of this machine");
        }
    }

    #[test]
    fn settings_say_what_else() {
        let site = reach(&["10.1.0.0/16", "fd00::/8", "127.0.0.0/8", "0.0.0.0/0"], &[443, 1094]);
        for (text, port, may) in [
            ("10.1.255.1", 443, true),
            ("fd12::1", 1094, true),
            ("10.1.255.1", 22, false),
            ("127.0.0.1", 443, false),
            ("169.254.169.254", 443, false),
            ("192.168.7.7", 443, true),
            ("8.8.8.8", 80, false),
        ] {
            assert_eq!(site.may(ip(text), port, &[]), may, "{text}:{port}");
        }
        assert!(!reach(&["10.1.0.0/16"], &[]).may(ip("10.2.0.1"), 443, &[]));
        assert!(AllowedServers::everything().may(ip("127.0.0.1"), 1, &[ip("127.0.0.1")]));
        for wrong in ["10.0.0.0/33", "10.0.0", "", "x/8", "::/129"] {
            assert!(AllowedServers::new(&[wrong.to_owned()], &[], false).is_err(), "{wrong}");
        }
    }
}
