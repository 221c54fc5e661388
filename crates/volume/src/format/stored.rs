//! How a cell stores records of the file system's vocabulary. The bytes are part of the format
//! (docs/FORMAT.md).

use leeward_fs::Result;
use leeward_meta::Value;

/// A record that a cell stores: [`Stored::decode`] reads what [`Stored::encode`] gives.
pub trait Stored: Sized {
    /// The bytes that are stored.
    fn encode(&self) -> Value;

    /// Reads them.
    ///
    /// # Errors
    /// [`leeward_fs::Error::Corrupt`] for what no version of the program wrote.
    fn decode(bytes: &[u8]) -> Result<Self>;
}
