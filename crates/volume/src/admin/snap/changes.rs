//! How two states of a tree differ. The search for differences uses these words, too.

use serde::{Deserialize, Serialize};

/// One difference between two states of a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Change {
    /// The path, from the directory on; of a removed file, as it was. If the path of the directory
    /// that it is in has more than 4096 bytes, `…` stands for the names behind those.
    pub path: PathText,
    /// What happened to it.
    pub kind: ChangeKind,
    /// Of a renamed file: its path before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_path: Option<PathText>,
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It exists no more.
    Removed,
    /// It has another name, or is in another directory.
    Renamed,
    /// It did not exist before.
    Added,
    /// Its content, owner, mode, times or attributes differ; of a directory: owner, mode or
    /// attributes.
    Changed,
}

/// A path as it is: text, or bytes where it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathText {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl PathText {
    /// From the bytes of a path.
    pub fn new(bytes: Vec<u8>) -> PathText {
        String::from_utf8(bytes).map_or_else(|e| PathText::Bytes(e.into_bytes()), PathText::Text)
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            PathText::Text(text) => text.as_bytes(),
            PathText::Bytes(bytes) => bytes,
        }
    }
}
