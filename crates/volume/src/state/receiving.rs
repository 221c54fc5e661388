//! What has a copy for itself: a stream that comes for it, or a change of roles.

/// Work during which nobody else changes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A stream comes.
    Stream,
    /// It becomes a volume like others.
    Promotion,
    /// A volume becomes a copy.
    Demotion,
}

/// Whether it is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// It goes on.
    #[default]
    No,
    /// Another stream comes, or the same again: what has come is made durable before.
    Instead,
    /// Somebody waits for the end.
    AtOnce,
}
