//! AWS signatures (version 4), for a generator that makes tens of thousands per second on a part of
//! one processor.
//!
//! Client libraries derive the key of the day for each request and build maps of headers. This
//! signer keeps the key, and its headers are always the same. Its tests are the examples that AWS
//! publishes.

use leeward_env::dates::civil;
use leeward_env::hex;
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;

/// Stands for the digest of a body that is not signed.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// The digest of an empty body.
pub const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The keys that sign.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Access key id.
    pub id: String,
    /// Secret access key.
    pub secret: String,
    /// Session token of temporary keys.
    pub token: Option<String>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.id)
    }
}

/// The signed parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// HTTP method, such as `PUT`.
    pub method: &'a str,
    /// Path from the first slash, percent-encoded.
    pub path: &'a str,
    /// `name=value` pairs joined by `&`, sorted by name, percent-encoded.
    pub query: &'a str,
    /// Digest of the body in hex, or [`UNSIGNED`].
    pub payload: &'a str,
    /// Bytes of the body, if the request has one.
    pub length: Option<u64>,
}

/// Signs with one key for one host.
pub struct Signer {
    keys: Keys,
    region: String,
    host: String,
    /// Day to which `key` and `scope` belong, counted from 1970.
    day: u64,
    key: hmac::Key,
    scope: String,
    /// Second to which `date` belongs, counted from 1970.
    second: u64,
    date: String,
    canonical: Vec<u8>,
}

impl Signer {
    /// A signer of requests with this `Host` header.
    pub fn new(keys: Keys, region: &str, host: &str) -> Signer {
        Signer {
            keys,
            region: region.into(),
            host: host.into(),
            day: u64::MAX,
            key: hmac::Key::new(hmac::HMAC_SHA256, b""),
            scope: String::new(),
            second: u64::MAX,
            date: String::new(),
            canonical: Vec::with_capacity(1024),
        }
    }

    /// Appends the head of a request with its empty line. `now` is in seconds since 1970.
    pub fn head(&mut self, out: &mut Vec<u8>, now: u64, request: &Request<'_>) {
        self.set_time(now);
        let Request { method, path, query, payload, length } = *request;
        let separator = if query.is_empty() { "" } else { "?" };
        let signed = match self.keys.token {
            Some(_) => "host;x-amz-content-sha256;x-amz-date;x-amz-security-token",
            None => "host;x-amz-content-sha256;x-amz-date",
        };
        let signature = self.signature(request, signed);
        let (host, date, scope, id) = (&self.host, &self.date, &self.scope, &self.keys.id);
        // Writing to memory does not fail.
        let _ = write!(
            out,
            "{method} {path}{separator}{query} HTTP/1.1\r\nHost: {host}\r\nx-amz-content-sha256: {payload}\r\n\
             x-amz-date: {date}\r\nAuthorization: AWS4-HMAC-SHA256 Credential={id}/{scope}, \
             SignedHeaders={signed}, Signature={signature}\r\n"
        );
        if let Some(token) = &self.keys.token {
            let _ = write!(out, "x-amz-security-token: {token}\r\n");
        }
        if let Some(length) = length {
            let _ = write!(out, "Content-Length: {length}\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    fn signature(&mut self, request: &Request<'_>, signed: &str) -> String {
        let Request { method, path, query, payload, .. } = request;
        self.canonical.clear();
        let _ = write!(
            self.canonical,
            "{method}\n{path}\n{query}\nhost:{}\nx-amz-content-sha256:{payload}\nx-amz-date:{}\n",
            self.host, self.date
        );
        if let Some(token) = &self.keys.token {
            let _ = writeln!(self.canonical, "x-amz-security-token:{token}");
        }
        let _ = write!(self.canonical, "\n{signed}\n{payload}");
        let digest = sha256(&self.canonical);
        self.canonical.clear();
        let _ = write!(self.canonical, "AWS4-HMAC-SHA256\n{}\n{}\n{digest}", self.date, self.scope);
        hex::encode(hmac::sign(&self.key, &self.canonical).as_ref())
    }

    fn set_time(&mut self, now: u64) {
        if now == self.second {
            return;
        }
        let day = now / 86_400;
        let (year, month, of_month) = civil(day as i64);
        let date = format!("{year:04}{month:02}{of_month:02}");
        if day != self.day {
            let mut key = format!("AWS4{}", self.keys.secret).into_bytes();
            for part in [date.as_str(), &self.region, "s3", "aws4_request"] {
                let with = hmac::Key::new(hmac::HMAC_SHA256, &key);
                key = hmac::sign(&with, part.as_bytes()).as_ref().to_vec();
            }
            self.key = hmac::Key::new(hmac::HMAC_SHA256, &key);
            self.scope = format!("{date}/{}/s3/aws4_request", self.region);
            self.day = day;
        }
        let of_day = now % 86_400;
        self.date = format!("{date}T{:02}{:02}{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60);
        self.second = now;
    }
}

/// The SHA-256 of some bytes in hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2013-05-24, the date of the examples of AWS.
    const THEN: u64 = 1_369_353_600;

    fn example(query: &str) -> String {
        let keys = Keys {
            id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        };
        let mut signer = Signer::new(keys, "us-east-1", "examplebucket.s3.amazonaws.com");
        let mut head = Vec::new();
        let request = Request { method: "GET", path: "/", query, payload: EMPTY, length: None };
        signer.head(&mut head, THEN, &request);
        String::from_utf8(head).expect("text")
    }

    #[test]
    fn the_examples_of_aws_come_out() {
        for (query, signature) in [
            ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ] {
            let head = example(query);
            assert!(head.contains(&format!("Signature={signature}\r\n")), "{head}");
            assert!(head.starts_with(&format!("GET /?{query} HTTP/1.1\r\n")) && head.ends_with("\r\n\r\n"));
            assert!(head.contains("x-amz-date: 20130524T000000Z\r\n"), "{head}");
        }
        assert_eq!(sha256(b""), EMPTY);
    }

    #[test]
    fn dates_are_right() {
        for (secs, date) in [(951_782_400, (2000, 2, 29)), (1_795_257_838, (2026, 11, 21)), (0, (1970, 1, 1))]
        {
            assert_eq!(civil(secs / 86_400), date);
        }
    }

    #[test]
    fn the_day_changes_the_key() {
        let keys = Keys { id: "a".into(), secret: "b".into(), token: Some("t".into()) };
        let mut signer = Signer::new(keys.clone(), "r", "h");
        let request = Request { method: "PUT", path: "/b/k", query: "", payload: UNSIGNED, length: Some(7) };
        let head = |signer: &mut Signer, at| {
            let mut out = Vec::new();
            signer.head(&mut out, at, &request);
            String::from_utf8(out).expect("text")
        };
        let first = head(&mut signer, THEN);
        assert!(first.contains("x-amz-security-token: t\r\n") && first.contains("Content-Length: 7\r\n"));
        assert_ne!(head(&mut signer, THEN + 86_400), first);
        assert_eq!(head(&mut signer, THEN), first);
        assert!(!format!("{keys:?}").contains('b'), "no secrets in logs");
    }
}
