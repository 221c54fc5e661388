//! Where the load goes: an endpoint, a bucket and a prefix in it.

use super::sign::Keys;
use crate::Refused;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// An endpoint with one bucket, addressed in path style.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Whether connections use TLS.
    pub tls: bool,
    /// Name or address of the host, without brackets.
    pub host: String,
    /// Port of the endpoint.
    pub port: u16,
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix in the bucket, without slashes at its ends; may be empty.
    pub prefix: String,
    /// Region that requests are signed for.
    pub region: String,
    /// Keys that requests are signed with.
    pub keys: Keys,
    /// Authorities' certificates (PEM), instead of those of the system.
    pub authorities: Option<PathBuf>,
}

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Whether the scheme is https.
    pub tls: bool,
    /// Name or address of the host, without brackets.
    pub host: String,
    /// Port of the endpoint.
    pub port: u16,
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix in the bucket.
    pub prefix: String,
}

impl Parts {
    /// Parses `http://HOST:PORT/BUCKET/PREFIX`. Without a port it is 80 or 443.
    ///
    /// # Errors
    /// A sentence that says what to write.
    pub fn parse(url: &str) -> Result<Parts, Refused> {
        let wrong = |what: &str| Refused(format!("{url}: {what}: write http://HOST:PORT/BUCKET/PREFIX"));
        let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(wrong("not the URL of an S3 endpoint")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| wrong("an address without its end"))?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(digits) => digits.parse().map_err(|_| wrong("no such port"))?,
            None if port.is_empty() => {
                if tls {
                    443
                } else {
                    80
                }
            }
            None => return Err(wrong("no such host")),
        };
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let prefix = prefix.trim_matches('/');
        // Only characters that need no encoding: signatures have our names as they are.
        let plain = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                && part != "."
                && part != ".."
        };
        if host.is_empty()
            || host.contains(|c: char| c.is_whitespace() || c.is_control() || "@?#".contains(c))
        {
            return Err(wrong("no such host"));
        }
        if !plain(bucket) {
            return Err(wrong("no bucket is named so"));
        }
        if !prefix.is_empty() && !prefix.split('/').all(plain) {
            return Err(wrong("a prefix is made of letters, digits, `-`, `_`, `.` and single slashes"));
        }
        Ok(Parts { tls, host: host.into(), port, bucket: bucket.into(), prefix: prefix.into() })
    }
}

impl Target {
    /// The `Host` header, without a port that is the scheme's own.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// The URL, without keys.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        format!("{scheme}://{}/{}{slash}{}", self.authority(), self.bucket, self.prefix)
    }

    /// The first address of the host.
    ///
    /// # Errors
    /// A sentence with the next step.
    pub fn address(&self) -> Result<SocketAddr, Refused> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let first =
            found.map_err(|e| e.to_string()).and_then(|mut all| all.next().ok_or("no address".into()));
        first.map_err(|cause| Refused(format!("{}: {cause}: correct the host", self.url())))
    }
}

/// The source address of connection number `n` of a process. The loopback network has many
/// addresses, and each has its own ports. `None`: the system chooses.
pub fn source(to: SocketAddr, of: &[IpAddr], worker: u64, connection: u64) -> Option<IpAddr> {
    if !of.is_empty() {
        return Some(of[connection as usize % of.len()]);
    }
    let IpAddr::V4(host) = to.ip() else { return None };
    let (high, low) = (64 + worker / 250 % 128, worker % 250);
    host.is_loopback().then(|| [127, high as u8, low as u8, 1 + (connection % 200) as u8].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let parts = |tls, host: &str, port, bucket: &str, prefix: &str| Parts {
            tls,
            host: host.into(),
            port,
            bucket: bucket.into(),
            prefix: prefix.into(),
        };
        for (url, found) in [
            ("http://h:7480/b", parts(false, "h", 7480, "b", "")),
            ("https://h/b/x/y/", parts(true, "h", 443, "b", "x/y")),
            ("http://[::1]:8/b", parts(false, "::1", 8, "b", "")),
        ] {
            assert_eq!(Parts::parse(url), Ok(found), "{url}");
        }
        for url in [
            "",
            "h/b",
            "s3://b",
            "http://h",
            "http://h:x/b",
            "http://:1/b",
            "http://[::1/b",
            "http://h/b/../c",
            "http://h/b?x",
        ] {
            assert!(Parts::parse(url).is_err_and(|why| why.0.contains("write http://HOST:PORT")), "{url}");
        }
    }

    #[test]
    fn many_connections_have_many_addresses() {
        let to: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        let all: std::collections::BTreeSet<_> = (0..5)
            .flat_map(|worker| (0..1000).map(move |n| (worker, n)))
            .map(|(w, n)| source(to, &[], w, n))
            .collect();
        assert_eq!(all.len(), 1000, "5 processes with 200 each");
        assert!(all.iter().all(|ip| ip.is_some_and(|ip| ip.is_loopback())));
        let far: SocketAddr = "192.0.2.1:80".parse().expect("an address");
        assert_eq!(source(far, &[], 0, 0), None);
        let mine: IpAddr = "192.0.2.7".parse().expect("an address");
        assert_eq!(source(far, &[mine], 0, 5), Some(mine));
    }
}
