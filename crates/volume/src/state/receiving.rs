//! Streams that come for copies.

/// Whether a stream that comes is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// It goes on.
    #[default]
    No,
    /// Another one comes, or the same again: what has come is made durable before.
    Instead,
    /// Somebody waits for the end.
    AtOnce,
}
