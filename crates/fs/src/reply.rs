//! What operations answer.

use crate::uploads::{Part, UploadRecord, UploadTotals};
use crate::{Attr, Kind, NodeId};
use serde::{Deserialize, Serialize};

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: Box<[u8]>,
    /// Which inode.
    pub node: NodeId,
    /// Type.
    pub kind: Kind,
    /// Attributes, where asked for.
    pub attr: Option<Attr>,
}

/// Figures of a file system, for statfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in total (the quota, where a volume has one).
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Inodes in total.
    pub total_files: u64,
    /// Inodes free.
    pub free_files: u64,
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, nothing to say.
    Done,
    /// Attributes.
    Attr(Attr),
    /// Bytes.
    Data(Vec<u8>),
    /// How many bytes were taken.
    Written(u64),
    /// A file position.
    Offset(u64),
    /// Directory entries.
    Entries(Vec<Entry>),
    /// Names.
    Names(Vec<Box<[u8]>>),
    /// The number of an upload, which is that of no inode.
    Begun(NodeId),
    /// An upload in parts, complete or not.
    Upload(UploadRecord),
    /// Uploads in parts, with their numbers.
    Uploads(Vec<(NodeId, UploadRecord)>),
    /// Parts of an upload.
    Parts(Vec<Part>),
    /// How much there is of uploads in parts.
    UploadTotals(UploadTotals),
    /// File system figures.
    StatFs(StatFs),
    /// What was removed: the inode and its remaining links.
    Removed {
        /// Which inode lost its name.
        node: NodeId,
        /// Links left.
        nlink: u32,
    },
}

/// What is below a directory (or a file itself).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Allocated bytes of files, before compression, holes not counted.
    pub bytes: u64,
    /// Inodes other than directories.
    pub files: u64,
    /// Directories, without the one asked about.
    pub dirs: u64,
}
