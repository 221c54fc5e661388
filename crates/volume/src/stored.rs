//! How a record of the file system's vocabulary becomes bytes and is read back: part of the format (docs/FORMAT.md).

use leeward_fs::Result;
use leeward_meta::Value;

/// A record that is stored. What [`Stored::encode`] gives, [`Stored::decode`] reads.
pub trait Stored: Sized {
    /// The bytes that are stored.
    fn encode(&self) -> Value;

    /// Reads them.
    ///
    /// # Errors
    /// [`leeward_fs::Error::Corrupt`] for what no version of the program wrote.
    fn decode(bytes: &[u8]) -> Result<Self>;
}
