//! Replies to operations, and their parts.

#[cfg(doc)]
use crate::Op;
use crate::locks::LockReply;
use crate::uploads::{Part, UploadRecord, UploadTotals};
use crate::{Attr, Error, Kind, NodeId, Result};
use serde::{Deserialize, Serialize};

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: Box<[u8]>,
    /// The inode.
    pub node: NodeId,
    /// Type.
    pub kind: Kind,
    /// Attributes, if asked for.
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

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, nothing to say.
    Done,
    /// Attributes.
    Attr(Attr),
    /// Bytes.
    Data(Vec<u8>),
    /// How many bytes were written.
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
    /// Figures of uploads in parts.
    UploadTotals(UploadTotals),
    /// File system figures.
    StatFs(StatFs),
    /// What a call about locks found.
    Lock(LockReply),
    /// What was removed: the inode and its remaining links.
    Removed {
        /// The inode that lost its name.
        node: NodeId,
        /// Links left.
        nlink: u32,
    },
}

impl Reply {
    /// The inodes that it tells of with their attributes: where [`Op::gives_references`] says so, a
    /// front end has a reference to each now.
    pub fn references(&self) -> impl Iterator<Item = NodeId> {
        let (one, many) = match self {
            Reply::Attr(attr) => (Some(attr.node), &[][..]),
            Reply::Entries(entries) => (None, &entries[..]),
            _ => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().filter_map(|entry| entry.attr.as_ref().map(|attr| attr.node)))
    }
}

macro_rules! contents {
    ($($take:ident: $kind:ident($content:ty), $what:literal;)*) => {
        impl Reply {
            $(
                #[doc = $what]
                ///
                /// # Errors
                /// [`Error::Io`] for a reply of another kind, which is a bug of whoever answered.
                pub fn $take(self) -> Result<$content> {
                    match self {
                        Reply::$kind(content) => Ok(content),
                        other => Err(Error::Io(format!("a reply of the wrong kind: {other:?}"))),
                    }
                }
            )*
        }
    };
}

contents! {
    attr: Attr(Attr), "The attributes that it must be.";
    data: Data(Vec<u8>), "The bytes that it must be.";
    written: Written(u64), "How many bytes were taken, which it must say.";
    entries: Entries(Vec<Entry>), "The directory entries that it must be.";
    names: Names(Vec<Box<[u8]>>), "The names that it must be.";
    begun: Begun(NodeId), "The number of an upload that it must be.";
    upload: Upload(UploadRecord), "The upload that it must be.";
    uploads: Uploads(Vec<(NodeId, UploadRecord)>), "The uploads that it must be.";
    parts: Parts(Vec<Part>), "The parts of an upload that it must be.";
    upload_totals: UploadTotals(UploadTotals), "The figures of uploads that it must be.";
    stat_fs: StatFs(StatFs), "The figures of the file system that it must be.";
}

/// Figures of what is below a directory (or of a file itself).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Allocated bytes of files, before compression, holes not counted.
    pub bytes: u64,
    /// Inodes other than directories.
    pub files: u64,
    /// Directories, without the given one.
    pub dirs: u64,
}
