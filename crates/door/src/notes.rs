//! What doors keep beside a file's content, as extended attributes that the mount shows:
//!
//! * `user.leeward.sums`: checksums of the content and the ETag that was computed with them, in one
//!   line: `SIZE MTIME NAME:VALUE ...`, such as `5 1763769600.000000001
//!   md5:5d41402abc4b2a76b9719d911017c592 adler32:062c0215`. They belong to that content only: a
//!   file with another size or time of modification has none.
//! * `user.leeward.headers`: headers that answers repeat, a line for each: `content-type:
//!   text/plain`. Values as they came, without line breaks.
//!
//! All doors read and write the same attributes, so a file that came by one door has its checksum
//! at the other.

use hyper::header::{HeaderName, HeaderValue};
use leeward_fs::{Attr, Time};
use std::collections::BTreeMap;

/// Attribute with checksums.
pub const SUMS: &[u8] = b"user.leeward.sums";
/// Attribute with headers.
pub const HEADERS: &[u8] = b"user.leeward.headers";
/// Most bytes of headers kept with a file.
pub const HEADERS_BYTES_MAX: usize = 16 << 10;

/// Checksums of a file's content by name: `md5`, `adler32`, `crc32`, `crc32c`, `crc64nvme`, `sha1`,
/// `sha256` in hex digits, and `etag`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<String, String>);

impl Sums {
    /// One checksum, by name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Adds a checksum. Names and values have neither spaces nor colons.
    pub fn set(&mut self, name: &str, value: &str) {
        debug_assert!(!name.contains([' ', ':']) && !value.contains(' '));
        self.0.insert(name.into(), value.into());
    }

    /// All checksums.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The attribute for content of this size, last changed at this time.
    pub fn to_attribute(&self, size: u64, modified: Time) -> Vec<u8> {
        let words = self.to_text();
        let gap = if words.is_empty() { "" } else { " " };
        format!("{size} {}.{:09}{gap}{words}", modified.secs, modified.nanos).into_bytes()
    }

    /// `NAME:VALUE ...`, without size and time.
    pub fn to_text(&self) -> String {
        let words: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        words.join(" ")
    }

    /// Reads [`Sums::to_text`].
    pub fn of_text(text: &str) -> Sums {
        let sums = text.split(' ').filter_map(|word| word.split_once(':')).filter(|(_, v)| is_plain(v));
        Sums(sums.map(|(n, v)| (n.into(), v.into())).collect())
    }

    /// The checksums in an attribute, if they belong to the content that the file has.
    pub fn of(attribute: Option<&[u8]>, attr: &Attr) -> Sums {
        let parsed = || {
            let mut words = std::str::from_utf8(attribute?).ok()?.splitn(3, ' ');
            let size: u64 = words.next()?.parse().ok()?;
            let (secs, nanos) = words.next()?.split_once('.')?;
            let modified = Time { secs: secs.parse().ok()?, nanos: nanos.parse().ok()? };
            let is_of_it = size == attr.size && modified == attr.mtime;
            is_of_it.then(|| Sums::of_text(words.next().unwrap_or_default()))
        };
        parsed().unwrap_or_default()
    }
}

/// Whether a value may go into headers and XML: the owner of a file may write anything into the
/// attribute.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=-_.".contains(&b))
}

/// Headers by lower-case name.
pub type Headers = BTreeMap<String, String>;

/// The attribute for headers.
pub fn headers_to_attribute(headers: &Headers) -> Vec<u8> {
    let line = |(name, value): (&String, &String)| format!("{name}: {}\n", value.replace(['\r', '\n'], " "));
    headers.iter().map(line).collect::<String>().into_bytes()
}

/// The headers in an attribute, without invalid ones.
pub fn headers_of(attribute: Option<&[u8]>) -> Headers {
    let text = attribute.and_then(|a| std::str::from_utf8(a).ok()).unwrap_or_default();
    let is_one = |(name, value): &(&str, &str)| {
        HeaderName::try_from(*name).is_ok() && HeaderValue::try_from(*value).is_ok()
    };
    let lines = text.lines().filter_map(|line| line.split_once(": ")).filter(is_one);
    lines.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect()
}

/// The ETag of a file: the one kept from its upload, else a word that changes with its content.
pub fn etag_of(sums: &Sums, attr: &Attr) -> String {
    let plain = || format!("{:x}-{:x}.{:x}-{:x}", attr.node.0, attr.mtime.secs, attr.mtime.nanos, attr.size);
    sums.get("etag").or(sums.get("md5")).map_or_else(plain, str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_place_in_an_answer_is_left_out() {
        let headers = headers_of(Some(
            b"Content-Type: a/b\nx\x01: c\nx-amz-meta-y: \x01\nno\nx-amz-meta-z: \xc3\xbc\n",
        ));
        let expected =
            [("content-type", "a/b"), ("x-amz-meta-z", "ü")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(headers, Headers::from(expected));
        for (value, plain) in
            [("d41d8cd98f-2", true), ("AAA+/_.=", true), ("a\x01", false), ("\"<&>", false), ("ü", false)]
        {
            assert_eq!(is_plain(value), plain, "{value}");
        }
    }
}
