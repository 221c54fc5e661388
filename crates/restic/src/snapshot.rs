//! Snapshots of a repository: a tree, of what, and when.

use crate::Id;
use crate::tree::Moment;
use serde::{Deserialize, Serialize};

/// A file below `snapshots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What it shows was so then.
    pub time: Moment,
    /// The one that it was made after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Id>,
    /// Its tree.
    pub tree: Id,
    /// What was backed up.
    #[serde(default)]
    pub paths: Vec<String>,
    /// The machine.
    #[serde(default)]
    pub hostname: String,
    /// Who made it.
    #[serde(default)]
    pub username: String,
    /// Words that tell snapshots apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The one that it was before a program changed what it shows, or its tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Id>,
    /// The program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program_version: String,
}

impl Snapshot {
    /// What stands behind this word in a tag `WORD=TEXT`.
    pub fn tag(&self, word: &str) -> Option<&str> {
        self.tags.iter().find_map(|tag| tag.strip_prefix(word)?.strip_prefix('='))
    }
}
