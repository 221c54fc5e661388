//! An operation that owns its bytes: what is left of an [`Op`] when its request buffer goes back to the kernel.
//!
//! Every `Op` borrows at most two byte strings; taking them out and putting them back are the two functions below, and
//! the compiler's exhaustive match is what keeps them complete.

use leeward_fs::{Make, Op};

/// An [`Op`] with its own copy of names and data.
#[derive(Clone, Debug)]
pub struct OwnedOp {
    /// The operation with empty byte strings.
    shape: Op<'static>,
    bytes: (Box<[u8]>, Box<[u8]>),
}

impl OwnedOp {
    /// The operation again, borrowing from here.
    pub fn as_op(&self) -> Op<'_> {
        with_bytes(self.shape, &self.bytes.0, &self.bytes.1)
    }

    /// The operation with empty byte strings.
    pub fn shape(&self) -> Op<'static> {
        self.shape
    }

    /// Bytes that it owns.
    pub fn byte_count(&self) -> usize {
        self.bytes.0.len() + self.bytes.1.len()
    }
}

impl From<Op<'_>> for OwnedOp {
    fn from(op: Op<'_>) -> OwnedOp {
        let (a, b) = bytes(op);
        OwnedOp { shape: with_bytes(op, b"", b""), bytes: (a.into(), b.into()) }
    }
}

/// The byte strings of an operation, in the order in which [`with_bytes`] takes them.
fn bytes(op: Op<'_>) -> (&[u8], &[u8]) {
    match op {
        Op::Make { name, make: Make::Symlink(target), .. } => (name, target),
        Op::Rename { from_name, to_name, .. } => (from_name, to_name),
        Op::SetXattr { name, value, .. } => (name, value),
        Op::BeginUpload { key, note, .. } => (key, note),
        Op::CompleteUpload { name, note, .. } => (name, note),
        Op::KeepPart { note, .. } => (note, b""),
        Op::ListUploads { prefix, after, .. } => (prefix, after),
        Op::StatUploads { bucket } => (bucket.unwrap_or_default(), b""),
        Op::Write { data, .. } => (data, b""),
        Op::List { after, .. } => (after, b""),
        Op::Lookup { name, .. }
        | Op::Make { name, .. }
        | Op::Place { name, .. }
        | Op::Link { name, .. }
        | Op::Unlink { name, .. }
        | Op::RmDir { name, .. }
        | Op::GetXattr { name, .. }
        | Op::RemoveXattr { name, .. } => (name, b""),
        Op::MakeUnnamed { .. }
        | Op::EndUpload { .. }
        | Op::GetUpload { .. }
        | Op::ListParts { .. }
        | Op::GetAttr { .. }
        | Op::SetAttr { .. }
        | Op::ReadLink { .. }
        | Op::Read { .. }
        | Op::Fsync { .. }
        | Op::SyncAll
        | Op::Allocate { .. }
        | Op::SeekTo { .. }
        | Op::CopyRange { .. }
        | Op::ListXattr { .. }
        | Op::StatFs { .. }
        | Op::Forget { .. } => (b"", b""),
    }
}

/// The same operation with other byte strings.
fn with_bytes<'b>(op: Op<'_>, a: &'b [u8], b: &'b [u8]) -> Op<'b> {
    match op {
        Op::Lookup { dir, .. } => Op::Lookup { dir, name: a },
        Op::Make { dir, make, mode, umask, .. } => {
            Op::Make { dir, name: a, make: make_with_bytes(make, b), mode, umask }
        }
        Op::MakeUnnamed { dir, mode, umask, bytes } => Op::MakeUnnamed { dir, mode, umask, bytes },
        Op::Place { node, dir, over, .. } => Op::Place { node, dir, name: a, over },
        Op::BeginUpload { dir, .. } => Op::BeginUpload { dir, key: a, note: b },
        Op::KeepPart { node, upload, number, .. } => Op::KeepPart { node, upload, number, note: a },
        Op::CompleteUpload { upload, node, dir, over, .. } => {
            Op::CompleteUpload { upload, node, dir, name: a, over, note: b }
        }
        Op::EndUpload { upload } => Op::EndUpload { upload },
        Op::GetUpload { upload } => Op::GetUpload { upload },
        Op::ListParts { upload, after, limit } => Op::ListParts { upload, after, limit },
        Op::ListUploads { after_upload, limit, .. } => {
            Op::ListUploads { prefix: a, after: b, after_upload, limit }
        }
        Op::StatUploads { bucket } => Op::StatUploads { bucket: bucket.map(|_| a) },
        Op::Link { node, dir, .. } => Op::Link { node, dir, name: a },
        Op::Unlink { dir, over, .. } => Op::Unlink { dir, name: a, over },
        Op::RmDir { dir, .. } => Op::RmDir { dir, name: a },
        Op::Rename { from_dir, to_dir, mode, .. } => {
            Op::Rename { from_dir, from_name: a, to_dir, to_name: b, mode }
        }
        Op::Write { node, offset, .. } => Op::Write { node, offset, data: a },
        Op::List { dir, limit, attrs, .. } => Op::List { dir, after: a, limit, attrs },
        Op::GetXattr { node, .. } => Op::GetXattr { node, name: a },
        Op::SetXattr { node, mode, .. } => Op::SetXattr { node, name: a, value: b, mode },
        Op::RemoveXattr { node, .. } => Op::RemoveXattr { node, name: a },
        Op::GetAttr { node } => Op::GetAttr { node },
        Op::SetAttr { node, set } => Op::SetAttr { node, set },
        Op::ReadLink { node } => Op::ReadLink { node },
        Op::Read { node, offset, len } => Op::Read { node, offset, len },
        Op::Fsync { node } => Op::Fsync { node },
        Op::SyncAll => Op::SyncAll,
        Op::Allocate { node, offset, len, mode } => Op::Allocate { node, offset, len, mode },
        Op::SeekTo { node, offset, what } => Op::SeekTo { node, offset, what },
        Op::CopyRange { from, from_offset, to, to_offset, len } => {
            Op::CopyRange { from, from_offset, to, to_offset, len }
        }
        Op::ListXattr { node } => Op::ListXattr { node },
        Op::StatFs { node } => Op::StatFs { node },
        Op::Forget { node, count } => Op::Forget { node, count },
    }
}

fn make_with_bytes<'b>(make: Make<'_>, target: &'b [u8]) -> Make<'b> {
    match make {
        Make::Symlink(_) => Make::Symlink(target),
        Make::File => Make::File,
        Make::Dir => Make::Dir,
        Make::Fifo => Make::Fifo,
        Make::Socket => Make::Socket,
        Make::CharDev(n) => Make::CharDev(n),
        Make::BlockDev(n) => Make::BlockDev(n),
    }
}
