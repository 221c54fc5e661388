//! The file of a key. Pure.

use leeward_door::Path;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Longest key, bytes: as S3. A path in the mount may be longer.
pub(crate) const KEY_BYTES_MAX: usize = 1024;

/// Objects have only their current version.
///
/// # Errors
/// `NoSuchVersion` for any other.
pub(crate) fn only_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(S3Error::with_message(
            S3ErrorCode::NoSuchVersion,
            "Objects have no versions here; older files are in snapshots, below .snap.",
        )),
    }
}

/// The path of an object: its key.
///
/// # Errors
/// `XMinioInvalidObjectName` for a key that cannot be a path, with the reason: the code of other
/// servers that keep objects in files.
pub(crate) fn path_of(key: &str) -> S3Result<Path> {
    let refused = |why: String| {
        let mut e = S3Error::with_message(
            S3ErrorCode::Custom("XMinioInvalidObjectName".into()),
            format!("The key cannot be the path of a file: {why}."),
        );
        e.set_status_code(hyper::StatusCode::BAD_REQUEST);
        e
    };
    if key.is_empty() {
        return Err(refused("it is empty".into()));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(S3Error::with_message(S3ErrorCode::KeyTooLongError, "A key has at most 1024 bytes."));
    }
    Path::parse(key.as_bytes()).map_err(|why| refused(why.to_string()))
}

/// A key in a listing for which the client asks for `url` encoding.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b'*' => {
                out.push(b as char)
            }
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// Names and values of a query, still escaped.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|w| !w.is_empty()).map(|w| w.split_once('=').unwrap_or((w, "")))
}

/// A name or value of a query.
pub(crate) fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3).and_then(|h| u8::from_str_radix(h, 16).ok()));
        match (bytes[at], code.flatten()) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_cannot_be_paths_are_refused() {
        for key in ["", "/a", "a//b", "..", "a/../b", "./a", "a/.", &"x".repeat(256), "a\0"] {
            let e = path_of(key).expect_err(key);
            assert_eq!(e.code().as_str(), "XMinioInvalidObjectName");
        }
        assert!(path_of("a/b c/ü.txt").is_ok() && path_of("dir/").is_ok_and(|p| p.wants_dir()));
    }

    #[test]
    fn keys_are_encoded_for_xml() {
        assert_eq!(encoded("a b/ü\u{1}+"), "a%20b/%C3%BC%01%2B");
    }
}
