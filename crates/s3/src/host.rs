//! Names of hosts: which bucket is in one. Pure.

use s3s::S3Result;
use s3s::host::{DomainError, S3Host, SingleDomain, VirtualHost};

/// Names of the host; a name before one of them is a bucket. Ports and case do not matter. Any
/// other name also means the host: buckets are in paths then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Domains(Vec<String>);

impl Domains {
    /// Checks and keeps the names.
    ///
    /// # Errors
    /// One of them is no name.
    pub(crate) fn new(domains: &[String]) -> Result<Domains, DomainError> {
        let mut all = Vec::new();
        for domain in domains {
            SingleDomain::new(domain)?;
            all.push(without_port(domain).to_ascii_lowercase());
        }
        // of two that overlap the longer one first
        all.sort_by_key(|domain| std::cmp::Reverse(domain.len()));
        Ok(Domains(all))
    }

    /// The bucket in the name of a host.
    pub(crate) fn bucket(&self, host: &str) -> Option<String> {
        let host = without_port(host).to_ascii_lowercase();
        for domain in &self.0 {
            match host.strip_suffix(domain.as_str()) {
                Some("") => return None,
                Some(before) if before.ends_with('.') => return Some(before[..before.len() - 1].to_owned()),
                _ => {}
            }
        }
        None
    }
}

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let at = VirtualHost::new(host);
        Ok(match self.bucket(host) {
            Some(bucket) => at.with_bucket(bucket),
            None => at,
        })
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_before_a_domain() {
        let domains = ["example.org:9000".to_owned(), "S3.example.org".into()];
        let domains = Domains::new(&domains).expect("names");
        let bucket = |host: &str| domains.bucket(host);
        for host in
            ["s3.example.org", "S3.Example.org:9000", "localhost:9000", "[::1]:9000", "tables3.example.com"]
        {
            assert_eq!(bucket(host), None, "{host}");
        }
        for host in
            ["raw.s3.example.org", "raw.s3.example.org:9000", "Raw.S3.example.org:443", "raw.example.org"]
        {
            assert_eq!(bucket(host), Some("raw".into()), "{host}");
        }
        assert_eq!(bucket("my.raw.s3.example.org"), Some("my.raw".into()));
        assert!(Domains::new(&["no name".into()]).is_err());
    }
}
