//! Paths of requests: from the percent-encoded text of a URL to names, and back.
//!
//! A path is a list of names as the file system takes them (bytes, at most 255, neither `/` nor
//! NUL). Text that could lead elsewhere than it seems to is refused, not repaired: `.` and `..` in
//! any encoding, an encoded `/`, bad escapes. Empty components count as nothing: `//a///b` is
//! `/a/b`, as grid clients write it.

use leeward_auth::CellPath;
use leeward_door::Path;
use leeward_env::{hex, limits};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Longest path of a URL, bytes as sent.
pub const URL_PATH_BYTES_MAX: usize = 16 << 10;
/// Most names in a path.
pub const DEPTH_MAX: usize = 1024;
/// Characters of a name that are not escaped: RFC 3986's unreserved characters and those that are
/// safe in a segment.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// A `%` without two hexadecimal digits after it.
    #[error("the path has a % that begins no escape: encode a percent sign as %25")]
    Escape,
    /// `.` or `..`.
    #[error("the path has a component . or ..: send the path that they lead to")]
    Dots,
    /// An encoded slash or NUL.
    #[error("the path has an encoded slash or a NUL, which no name of a file can have")]
    Byte,
    /// A name over 255 bytes.
    #[error("a name in the path has more than 255 bytes")]
    NameTooLong,
    /// Too many bytes or names.
    #[error("the path is too long")]
    TooLong,
    /// It does not begin with a slash.
    #[error("the path does not begin with a slash")]
    Relative,
}

/// A path in the cell. Without names it is the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DavPath {
    names: Vec<Box<[u8]>>,
    slash: bool,
}

impl DavPath {
    /// Parses the path of a URL, as it was sent: without query, percent-encoded.
    pub fn parse(raw: &str) -> Result<DavPath, BadPath> {
        if raw.len() > URL_PATH_BYTES_MAX {
            return Err(BadPath::TooLong);
        }
        let rest = raw.strip_prefix('/').ok_or(BadPath::Relative)?;
        let names =
            rest.split('/').filter(|part| !part.is_empty()).map(name).collect::<Result<Vec<_>, _>>()?;
        if names.len() > DEPTH_MAX {
            return Err(BadPath::TooLong);
        }
        Ok(DavPath { slash: raw.ends_with('/'), names })
    }

    /// The path with these names.
    pub fn of(names: &[Box<[u8]>]) -> DavPath {
        DavPath { names: names.to_vec(), slash: false }
    }

    /// Its names, from the root on.
    pub fn names(&self) -> &[Box<[u8]>] {
        &self.names
    }

    /// The last name; the root has none.
    pub fn name(&self) -> Option<&[u8]> {
        self.names.last().map(AsRef::as_ref)
    }

    /// Whether it was written with a slash at its end, which only directories have.
    pub fn has_slash(&self) -> bool {
        self.slash
    }

    /// The directory that it is in; the root has none.
    pub fn parent(&self) -> Option<DavPath> {
        let (_, above) = self.names.split_last()?;
        Some(DavPath { names: above.to_vec(), slash: true })
    }

    /// The path of the entry with this name.
    pub fn join(&self, name: &[u8]) -> DavPath {
        let mut names = self.names.clone();
        names.push(name.into());
        DavPath { names, slash: false }
    }

    /// The same path as that of a directory, or of anything else.
    pub fn with_slash(mut self, slash: bool) -> DavPath {
        self.slash = slash;
        self
    }

    /// Whether it is `above` or below it, by whole names.
    pub fn is_within(&self, above: &DavPath) -> bool {
        self.names.starts_with(&above.names)
    }

    /// Whether both are the same path, however they are written.
    pub fn is_same(&self, other: &DavPath) -> bool {
        self.names == other.names
    }

    /// The path in the form for credentials.
    pub fn cell(&self) -> CellPath {
        let bytes: Vec<u8> = self.names.iter().flat_map(|name| [&b"/"[..], &name[..]].concat()).collect();
        let path = CellPath::parse(if bytes.is_empty() { b"/" } else { &bytes[..] });
        path.expect("checked when it was parsed").with_dir(self.slash)
    }

    /// The path relative to a tree that begins this many names down.
    ///
    /// # Errors
    /// It is too long for the file system.
    pub fn below(&self, names: usize) -> Result<Path, BadPath> {
        let names = self.names.get(names..).unwrap_or_default();
        let text = names.join(&b'/');
        let slash: &[u8] = if self.slash && !names.is_empty() { b"/" } else { b"" };
        Path::parse(&[&text[..], slash].concat()).map_err(|_| BadPath::TooLong)
    }

    /// The path as in a URL.
    pub fn encoded(&self) -> String {
        let mut out = String::from("/");
        for (n, name) in self.names.iter().enumerate() {
            if n > 0 {
                out.push('/');
            }
            out.extend(percent_encode(name, ESCAPED));
        }
        if self.slash && !self.names.is_empty() {
            out.push('/');
        }
        out
    }

    /// The path for people, in messages.
    pub fn shown(&self) -> String {
        let names = self.names.iter().map(|name| String::from_utf8_lossy(name));
        names.fold(String::new(), |path, name| path + "/" + &name)
            + if self.names.is_empty() { "/" } else { "" }
    }
}

/// Decodes one name of a path.
fn name(part: &str) -> Result<Box<[u8]>, BadPath> {
    let name = hex::unescape(part).ok_or(BadPath::Escape)?;
    match &name[..] {
        b"." | b".." => Err(BadPath::Dots),
        name if name.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(BadPath::Byte),
        name if name.len() > limits::NAME_BYTES_MAX => Err(BadPath::NameTooLong),
        _ => Ok(name.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(raw: &str) -> Result<Vec<String>, BadPath> {
        let path = DavPath::parse(raw)?;
        Ok(path.names().iter().map(|name| String::from_utf8_lossy(name).into()).collect())
    }

    #[test]
    fn escapes_become_bytes_and_empty_components_nothing() {
        assert_eq!(names("/"), Ok(vec![]));
        assert_eq!(names("//a///b%20c/"), Ok(vec!["a".into(), "b c".into()]));
        assert_eq!(names("/%C3%A9%2520"), Ok(vec!["é%20".into()]));
        assert_eq!(DavPath::parse("/%ff").unwrap().name(), Some(&b"\xff"[..]));
        assert!(DavPath::parse("/a/").unwrap().has_slash() && !DavPath::parse("/a").unwrap().has_slash());
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        for raw in ["/..", "/a/../b", "/%2e%2E/a", "/.%2e", "/a/.", "/%2e"] {
            assert_eq!(names(raw), Err(BadPath::Dots), "{raw}");
        }
        for raw in ["/a%2fb", "/a%2F..%2Fb", "/a%00", "/%2F"] {
            assert_eq!(names(raw), Err(BadPath::Byte), "{raw}");
        }
        for raw in ["/%", "/%4", "/%zz", "/a%+1"] {
            assert_eq!(names(raw), Err(BadPath::Escape), "{raw}");
        }
        assert_eq!(names("a"), Err(BadPath::Relative));
        assert_eq!(names(&format!("/{}", "a".repeat(256))), Err(BadPath::NameTooLong));
        assert!(names(&format!("/{}", "%61".repeat(255))).is_ok());
        assert_eq!(names(&"/a".repeat(DEPTH_MAX + 1)), Err(BadPath::TooLong));
        assert_eq!(names("/...").unwrap(), ["..."], "only one and two dots lead elsewhere");
    }

    #[test]
    fn within_goes_by_whole_names() {
        let path = |raw| DavPath::parse(raw).unwrap();
        assert!(path("/foo/bar").is_within(&path("/foo/")) && path("/foo").is_within(&path("/foo")));
        assert!(!path("/foobar").is_within(&path("/foo")) && path("/x").is_within(&path("/")));
        assert_eq!(path("/foo/bar").parent().unwrap().encoded(), "/foo/");
        assert_eq!(path("/").parent(), None);
    }
}
