//! A path of the cell as credentials and requests name it: absolute, in bytes, with nothing left to
//! resolve.

use leeward_env::hex;
use std::fmt;

/// Why a text is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// It does not begin with a slash.
    #[error("a path begins with a slash")]
    Relative,
    /// A component is `..`.
    #[error("a path has no `..` in it")]
    Traversal,
    /// A NUL.
    #[error("a path has no NUL in it")]
    Nul,
    /// A percent sign without two hex digits, where it is percent-encoded.
    #[error("the percent-encoding of the path is broken")]
    Encoding,
}

/// An absolute path of the cell: components without `.`, `..`, empty ones and NUL. `/` has none.
///
/// Paths compare component by component: `/foo` contains `/foo/bar`, not `/foobar`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellPath {
    /// `/a/b`; empty for `/`.
    bytes: Vec<u8>,
    /// Whether it certainly names a directory: it had a slash at its end.
    dir: bool,
}

impl CellPath {
    /// The root of the cell.
    pub fn root() -> CellPath {
        CellPath { bytes: Vec::new(), dir: true }
    }

    /// Parses a path without percent-encoding. Empty components and `.` are left out; a slash at
    /// the end says that it is a directory.
    ///
    /// # Errors
    /// What is wrong with it. `..` is refused, not resolved: nobody needs it, and a mistake there
    /// would let people in.
    pub fn parse(path: impl AsRef<[u8]>) -> Result<CellPath, BadPath> {
        let path = path.as_ref();
        if path.first() != Some(&b'/') {
            return Err(BadPath::Relative);
        }
        if path.contains(&0) {
            return Err(BadPath::Nul);
        }
        let mut bytes = Vec::with_capacity(path.len());
        for component in path.split(|b| *b == b'/') {
            match component {
                b"" | b"." => continue,
                b".." => return Err(BadPath::Traversal),
                name => {
                    bytes.push(b'/');
                    bytes.extend_from_slice(name);
                }
            }
        }
        let dir = bytes.is_empty() || path.ends_with(b"/") || path.ends_with(b"/.");
        Ok(CellPath { bytes, dir })
    }

    /// Parses a percent-encoded path of a URL or a scope: decodes it once, then as
    /// [`CellPath::parse`].
    ///
    /// # Errors
    /// As of [`CellPath::parse`], or [`BadPath::Encoding`].
    pub fn from_encoded(path: &str) -> Result<CellPath, BadPath> {
        CellPath::parse(hex::unescape(path).ok_or(BadPath::Encoding)?)
    }

    /// Its components.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        // the first part is before the first slash: empty
        self.bytes.split(|b| *b == b'/').skip(1)
    }

    /// As bytes, without a slash at the end; `/` for the root.
    pub fn as_bytes(&self) -> &[u8] {
        if self.bytes.is_empty() { b"/" } else { &self.bytes }
    }

    /// Whether it is the root of the cell.
    pub fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether it certainly names a directory.
    pub fn is_dir(&self) -> bool {
        self.dir
    }

    /// The same path, marked as a directory, or not.
    #[must_use]
    pub fn with_dir(self, dir: bool) -> CellPath {
        CellPath { dir: dir || self.bytes.is_empty(), ..self }
    }

    /// This path with another one below it: `/a` and `/b/c` give `/a/b/c`.
    #[must_use]
    pub fn join(&self, below: &CellPath) -> CellPath {
        CellPath { bytes: [&self.bytes[..], &below.bytes[..]].concat(), dir: below.dir }
    }

    /// Whether `other` is this path or below it.
    pub fn contains(&self, other: &CellPath) -> bool {
        other
            .bytes
            .strip_prefix(&self.bytes[..])
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    }
}

impl fmt::Display for CellPath {
    /// For messages and caveats: with a slash at the end where it names a directory. Bytes that are
    /// no UTF-8 are shown lossily.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.dir { "/" } else { "" };
        write!(f, "{}{slash}", String::from_utf8_lossy(&self.bytes))
    }
}

impl fmt::Debug for CellPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> CellPath {
        CellPath::parse(text).expect(text)
    }

    #[test]
    fn paths_are_normal() {
        for (text, normal) in [
            ("/", "/"),
            ("//", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("//a//./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/...", "/..."),
            ("/a b/%41", "/a b/%41"),
        ] {
            assert_eq!(path(text).to_string(), normal);
            assert_eq!(path(normal), path(text), "once normal, it stays so");
        }
        assert_eq!(path("/a/b/").components().collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(path("/").components().count(), 0);
        for (text, wrong) in [
            ("", BadPath::Relative),
            ("a", BadPath::Relative),
            ("/..", BadPath::Traversal),
            ("/a/../b", BadPath::Traversal),
            ("/a\0", BadPath::Nul),
        ] {
            assert_eq!(CellPath::parse(text), Err(wrong));
        }
    }

    #[test]
    fn encoded_paths_are_decoded_once_and_then_judged() {
        let encoded = |text| CellPath::from_encoded(text);
        assert_eq!(encoded("/a%20b"), Ok(path("/a b")));
        assert_eq!(encoded("/%2541"), Ok(path("/%41")));
        assert_eq!(encoded("/a%2Fb"), Ok(path("/a/b")));
        assert_eq!(encoded("/%ff").map(|p| p.as_bytes().to_vec()), Ok(b"/\xff".to_vec()));
        for (text, wrong) in [
            ("/a/%2e%2e/b", BadPath::Traversal),
            ("/a/.%2E", BadPath::Traversal),
            ("/a%00", BadPath::Nul),
            ("/a%", BadPath::Encoding),
            ("/a%4", BadPath::Encoding),
            ("/a%zz", BadPath::Encoding),
            ("%2fa%%", BadPath::Encoding),
        ] {
            assert_eq!(encoded(text), Err(wrong), "{text}");
        }
    }

    #[test]
    fn containing_goes_by_components() {
        assert!(path("/foo").contains(&path("/foo")) && path("/foo").contains(&path("/foo/bar")));
        assert!(!path("/foo").contains(&path("/foobar")) && !path("/foo/bar").contains(&path("/foo")));
        assert!(path("/").contains(&path("/x")) && path("/").contains(&path("/")));
        assert_eq!(path("/a").join(&path("/b/")).to_string(), "/a/b/");
        assert_eq!(path("/a/").join(&path("/")).to_string(), "/a/");
        assert_eq!(path("/").join(&path("/b")).to_string(), "/b");
    }
}
