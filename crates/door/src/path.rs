//! Paths as doors get them: names with `/` between, relative to a tree. Pure.
//!
//! A text that cannot be a path is refused here, with the reason, so that nothing is ever "cleaned
//! up" to mean something else: empty names (`//`), `.`, `..`, NUL, names over 255 bytes. A trailing
//! `/` says that a directory is meant.

use leeward_env::limits::NAME_BYTES_MAX;
use std::fmt;

/// Longest path, bytes: as long as `PATH_MAX` allows, too.
pub const PATH_BYTES_MAX: usize = 4095;

/// A path of a tree; the empty one is its root.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Path {
    /// Names with `/` between, none at the ends.
    names: Box<[u8]>,
    wants_dir: bool,
}

/// Why a text is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// `//`, or `/` at the beginning.
    #[error("a name in it is empty (`//`, or `/` at the beginning)")]
    Empty,
    /// `.` or `..`.
    #[error("`.` and `..` cannot be names")]
    Dots,
    /// A NUL byte.
    #[error("a name cannot contain a NUL byte")]
    Nul,
    /// A name is too long.
    #[error("a name in it is longer than 255 bytes")]
    NameTooLong,
    /// The whole is too long.
    #[error("it is longer than 4095 bytes")]
    TooLong,
}

impl Path {
    /// Reads `a/b/c` or `a/b/c/`; empty: the root.
    pub fn parse(text: &[u8]) -> Result<Path, BadPath> {
        if text.len() > PATH_BYTES_MAX {
            return Err(BadPath::TooLong);
        }
        if text.is_empty() {
            return Ok(Path { names: Box::default(), wants_dir: true });
        }
        let (names, wants_dir) = match text.strip_suffix(b"/") {
            Some(names) => (names, true),
            None => (text, false),
        };
        names.split(|b| *b == b'/').try_for_each(check_name)?;
        Ok(Path { names: names.into(), wants_dir })
    }

    /// Reads an absolute path, `/a/b`, as operators write them.
    pub fn parse_absolute(text: &[u8]) -> Result<Path, BadPath> {
        Path::parse(text.strip_prefix(b"/").unwrap_or(text))
    }

    /// Names of the path, from the top.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.names.split(|b| *b == b'/').filter(|name| !name.is_empty())
    }

    /// Whether it is the tree's root.
    pub fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether it ended in `/` or is the root.
    pub fn wants_dir(&self) -> bool {
        self.wants_dir
    }

    /// As text, without `/` at the ends.
    pub fn as_bytes(&self) -> &[u8] {
        &self.names
    }

    /// The directory it is in, and its name there; `None` for the root.
    pub fn split(&self) -> Option<(Path, &[u8])> {
        if self.is_root() {
            return None;
        }
        let at = self.names.iter().rposition(|b| *b == b'/');
        let (dir, name) = match at {
            Some(at) => (&self.names[..at], &self.names[at + 1..]),
            None => (&self.names[..0], &self.names[..]),
        };
        Some((Path { names: dir.into(), wants_dir: true }, name))
    }

    /// The path `below`, relative to this directory.
    pub fn join(&self, below: &Path) -> Path {
        let names = match (self.is_root(), below.is_root()) {
            (true, _) => below.names.clone(),
            (_, true) => self.names.clone(),
            _ => [&self.names[..], b"/", &below.names].concat().into(),
        };
        Path { names, wants_dir: below.wants_dir }
    }

    /// Whether it is `top` or below it, name by name.
    pub fn is_below(&self, top: &Path) -> bool {
        let mut mine = self.names();
        top.names().all(|name| mine.next() == Some(name))
    }
}

fn check_name(name: &[u8]) -> Result<(), BadPath> {
    match name {
        b"" => Err(BadPath::Empty),
        b"." | b".." => Err(BadPath::Dots),
        name if name.len() > NAME_BYTES_MAX => Err(BadPath::NameTooLong),
        name if name.contains(&0) => Err(BadPath::Nul),
        _ => Ok(()),
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", String::from_utf8_lossy(&self.names))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}{}", if self.wants_dir && !self.is_root() { "/" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let long = "x".repeat(256);
        let deep = "x/".repeat(2048);
        for (text, why) in [
            ("/a", BadPath::Empty),
            ("a//b", BadPath::Empty),
            ("/", BadPath::Empty),
            ("a//", BadPath::Empty),
            ("a/./b", BadPath::Dots),
            ("..", BadPath::Dots),
            ("a/../../etc", BadPath::Dots),
            ("a\0b", BadPath::Nul),
            (&long, BadPath::NameTooLong),
            (&deep, BadPath::TooLong),
        ] {
            assert_eq!(Path::parse(text.as_bytes()), Err(why), "{text:?}");
        }
    }

    #[test]
    fn parts() {
        assert!(path("").is_root() && path("").wants_dir());
        assert_eq!(path("a/b/").names().collect::<Vec<_>>(), [b"a", b"b"]);
        assert!(path("a/b/").wants_dir() && !path("a/b").wants_dir());
        assert_eq!(
            path("a/b").split().map(|(d, n)| (d.to_string(), n.to_vec())),
            Some(("/a".into(), b"b".to_vec()))
        );
        assert_eq!(
            path("a").split().map(|(d, n)| (d.to_string(), n.to_vec())),
            Some(("/".into(), b"a".to_vec()))
        );
        assert_eq!(path("").split(), None);
        assert_eq!(path("a").join(&path("b/c/")), path("a/b/c/"));
        assert_eq!(path("").join(&path("b")), path("b"));
        assert!(path("a/b").is_below(&path("a")) && path("a").is_below(&path("")));
        assert!(!path("ab").is_below(&path("a")) && !path("a").is_below(&path("a/b")));
    }
}
