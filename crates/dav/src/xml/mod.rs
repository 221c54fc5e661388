//! XML of WebDAV: requests read ([`tree`], [`request`]), answers written ([`answer`]).

pub mod answer;
pub mod request;
pub mod tree;

/// The namespace of WebDAV.
pub const DAV: &str = "DAV:";

/// The name of an element or a property: namespace (may be none) and local name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// Namespace; empty: none.
    pub space: String,
    /// Local name.
    pub local: String,
}

impl Name {
    /// A name of WebDAV's own.
    pub fn dav(local: &str) -> Name {
        Name { space: DAV.into(), local: local.into() }
    }

    /// Whether it is this name of WebDAV's own.
    pub fn is(&self, local: &str) -> bool {
        self.space == DAV && self.local == local
    }
}
