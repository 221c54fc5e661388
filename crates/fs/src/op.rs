//! The list of operations, for all callers and all implementations.
//!
//! Each entry gives an operation its variant of [`Op`], its number and form in messages to other
//! machines (new entries go to the end of the list), its name in reports, the inode that it is
//! about, its effect, what it announces to caches, and how many bytes it moves. Code that
//! implements operations matches on [`Op`] without a wildcard, so that the compiler finds what a
//! new entry is missing.

#[cfg(doc)]
use crate::Reply;
use crate::codec::{Input, Malformed, Taken, Wire};
use crate::{Allocate, Make, NodeId, Precondition, RenameMode, Seek, SetAttr, XattrMode};

/// What an operation does to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing that another caller sees.
    Reads,
    /// It changes something.
    Changes,
    /// It changes something and adds records, which need space.
    Grows,
    /// It makes earlier changes durable.
    Settles,
}

/// Reservations above this size may take a while.
const ALLOCATE_QUICK_BYTES: u64 = 1 << 20;

/// A change that front ends may have to drop from their caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A name in a directory.
    Entry(NodeId, &'a [u8]),
    /// Attributes or content of an inode.
    Inode(NodeId),
}

/// `NAME "name in reports" EFFECT { FIELDS } about INODE, tells [CHANGES], moves BYTES;`
macro_rules! operations {
    ($(#[$op_doc:meta])* $lt:lifetime; $(
        $(#[$doc:meta])*
        $name:ident $label:literal $effect:ident
        $({ $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })?
        about $about:expr
        $(, tells [$($change:ident($($of:expr),*)),*])?
        $(, moves $bytes:expr)?;
    )*) => {
        $(#[$op_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op<$lt> {
            $($(#[$doc])* $name $({ $($(#[$field_doc])* $field: $kind),* })?,)*
        }

        enum Number {
            $($name,)*
        }

        impl<$lt> Wire<$lt> for Op<$lt> {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(self.number() as u8);
                match self {
                    $(Op::$name { $($($field),*)? } => { $($($field.put(out);)*)? })*
                }
            }

            fn take(from: &mut Input<$lt>) -> Taken<Op<$lt>> {
                match u8::take(from)? {
                    $(n if n == Number::$name as u8 => Ok(Op::$name { $($($field: Wire::take(from)?),*)? }),)*
                    _ => Err(Malformed::Unknown),
                }
            }
        }

        #[allow(unused_variables)] // of the fields of an operation each line takes some
        impl<$lt> Op<$lt> {
            /// Names of the kinds of operations, for reports; [`Op::number`] is the index.
            pub const NAMES: &'static [&'static str] = &[$($label),*];

            /// Number of its kind.
            pub fn number(&self) -> usize {
                match self {
                    $(Op::$name { .. } => Number::$name as usize,)*
                }
            }

            /// What it does to the file system.
            pub fn effect(&self) -> Effect {
                match self {
                    $(Op::$name { .. } => Effect::$effect,)*
                }
            }

            /// The inode that it is about; of two, the directory that gets the name or the file
            /// that gets the data. `None`: it is about no inode, or about one that the caller
            /// releases.
            pub fn node(&self) -> Option<NodeId> {
                match *self {
                    $(Op::$name { $($($field),*)? } => $about,)*
                }
            }

            /// Calls `tell` for each name and inode that it changes when it succeeds.
            pub fn announce(&self, tell: &mut dyn FnMut(Change<'_>)) {
                match *self {
                    $(Op::$name { $($($field),*)? } => { $($(tell(Change::$change($($of),*));)*)? })*
                }
            }

            /// Bytes that it asks to move between its caller and a file. They count against the
            /// user's ceiling.
            pub fn moved_bytes(&self) -> u64 {
                match *self {
                    $(Op::$name { $($($field),*)? } => 0 $(+ $bytes)?,)*
                }
            }

            /// The same operation with other byte strings: `with` gives one for each that it has,
            /// in the order of the fields.
            pub fn with_bytes<'b>(self, with: &mut dyn FnMut(&[u8]) -> &'b [u8]) -> Op<'b> {
                match self {
                    $(Op::$name { $($($field),*)? } => Op::$name { $($($field: Field::with_bytes($field, with)),*)? },)*
                }
            }
        }
    };
}

operations! {
    /// One operation. Names are single path components as bytes: at most 255, no `/`, not `.` or
    /// `..`.
    ///
    /// The front end checks permissions on the way to an inode (the kernel does, with
    /// `default_permissions`). `docs/SEMANTICS.md` says what the file system itself checks.
    'a;

    /// Finds a name in a directory. → [`Reply::Attr`]. The name `..` finds the directory above;
    /// above a volume's root is the directory that the volume is attached in. The name `.` finds
    /// the inode itself, of any kind.
    Lookup "lookup" Reads {
        /// The directory.
        dir: NodeId,
        /// The name.
        name: &'a [u8],
    } about Some(dir);
    /// Reads attributes. → [`Reply::Attr`].
    GetAttr "getattr" Reads {
        /// The inode.
        node: NodeId,
    } about Some(node);
    /// Changes attributes. → [`Reply::Attr`], with the new values.
    SetAttr "setattr" Changes {
        /// The inode.
        node: NodeId,
        /// The new values.
        set: SetAttr,
    } about Some(node), tells [Inode(node)];
    /// Reads the target of a symbolic link. → [`Reply::Data`].
    ReadLink "readlink" Reads {
        /// The symbolic link.
        node: NodeId,
    } about Some(node);
    /// Makes an inode under a new name. → [`Reply::Attr`]. EEXIST when the name is taken. The new
    /// inode inherits default ACLs and setgid of `dir`; `umask` clears bits of `mode` unless a
    /// default ACL applies.
    Make "make" Grows {
        /// The directory.
        dir: NodeId,
        /// The new name.
        name: &'a [u8],
        /// The kind of inode.
        make: Make<'a>,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
    } about Some(dir), tells [Entry(dir, name)];
    /// Gives an inode another name. → [`Reply::Attr`] of `node`.
    Link "link" Grows {
        /// An existing inode, no directory.
        node: NodeId,
        /// The directory.
        dir: NodeId,
        /// The new name.
        name: &'a [u8],
    } about Some(dir), tells [Entry(dir, name), Inode(node)];
    /// Removes a name that is not a directory's (EISDIR). → [`Reply::Removed`].
    Unlink "unlink" Changes {
        /// The directory.
        dir: NodeId,
        /// The name.
        name: &'a [u8],
        /// The inode that it may remove.
        over: Precondition,
    } about Some(dir), tells [Entry(dir, name)];
    /// Removes an empty directory. → [`Reply::Removed`]. ENOTEMPTY when it has entries; EBUSY where
    /// a volume is attached.
    RmDir "rmdir" Changes {
        /// The directory.
        dir: NodeId,
        /// The name.
        name: &'a [u8],
    } about Some(dir), tells [Entry(dir, name)];
    /// Moves a name. → [`Reply::Done`].
    Rename "rename" Changes {
        /// The old directory.
        from_dir: NodeId,
        /// The old name.
        from_name: &'a [u8],
        /// The new directory.
        to_dir: NodeId,
        /// The new name.
        to_name: &'a [u8],
        /// What to do about an existing target.
        mode: RenameMode,
    } about Some(to_dir), tells [Entry(from_dir, from_name), Entry(to_dir, to_name)];
    /// Reads from a file. → [`Reply::Data`], which is shorter than `len` at the end of the file.
    Read "read" Reads {
        /// The file.
        node: NodeId,
        /// Offset of the first byte.
        offset: u64,
        /// Length, at most 1 MiB.
        len: u32,
    } about Some(node), moves u64::from(len);
    /// Writes to a file. → [`Reply::Written`]. Clears setuid and setgid unless root writes.
    Write "write" Changes {
        /// The file.
        node: NodeId,
        /// Offset of the first byte.
        offset: u64,
        /// The bytes, at most 1 MiB.
        data: &'a [u8],
    } about Some(node), tells [Inode(node)], moves data.len() as u64;
    /// Makes data, inode and name durable, of a directory too. → [`Reply::Done`] once they are.
    Fsync "fsync" Settles {
        /// The inode.
        node: NodeId,
    } about Some(node);
    /// Makes all earlier changes durable (syncfs). → [`Reply::Done`] once they are.
    SyncAll "syncfs" Settles about None;
    /// Reserves, zeroes or frees a range of a file. → [`Reply::Done`].
    Allocate "allocate" Changes {
        /// The file.
        node: NodeId,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether to reserve, zero or free.
        mode: Allocate,
    } about Some(node), tells [Inode(node)];
    /// Finds the next data or the next hole. → [`Reply::Offset`]; ENXIO past the end.
    SeekTo "seek" Reads {
        /// The file.
        node: NodeId,
        /// Offset to start at.
        offset: u64,
        /// Data or hole.
        what: Seek,
    } about Some(node);
    /// Copies from one file to another, or within one. → [`Reply::Written`]. Within a volume the
    /// two share extents where ranges are whole; elsewhere bytes are copied.
    CopyRange "copy" Changes {
        /// The source file.
        from: NodeId,
        /// Offset in the source file.
        from_offset: u64,
        /// The target file.
        to: NodeId,
        /// Offset in the target file.
        to_offset: u64,
        /// Length in bytes.
        len: u64,
    } about Some(to), tells [Inode(to)];
    /// Reads a page of a directory, in the order of names, without `.` and `..`. →
    /// [`Reply::Entries`], fewer than `limit` only at the end.
    List "list" Reads {
        /// The directory.
        dir: NodeId,
        /// Name to start after.
        after: &'a [u8],
        /// Most entries to return.
        limit: usize,
        /// Whether each entry carries its attributes.
        attrs: bool,
    } about Some(dir);
    /// Reads an extended attribute. → [`Reply::Data`]; ENODATA when there is none of that name.
    GetXattr "getxattr" Reads {
        /// The inode.
        node: NodeId,
        /// Full name, such as `user.x`.
        name: &'a [u8],
    } about Some(node);
    /// Reads the names of extended attributes. → [`Reply::Names`].
    ListXattr "listxattr" Reads {
        /// The inode.
        node: NodeId,
    } about Some(node);
    /// Sets an extended attribute. → [`Reply::Done`].
    SetXattr "setxattr" Grows {
        /// The inode.
        node: NodeId,
        /// Full name.
        name: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// What to do about an existing value.
        mode: XattrMode,
    } about Some(node), tells [Inode(node)];
    /// Removes an extended attribute. → [`Reply::Done`]; ENODATA when there is none of that name.
    RemoveXattr "removexattr" Changes {
        /// The inode.
        node: NodeId,
        /// Full name.
        name: &'a [u8],
    } about Some(node), tells [Inode(node)];
    /// Reads figures of the file system. → [`Reply::StatFs`].
    StatFs "statfs" Reads {
        /// Any inode of the volume.
        node: NodeId,
    } about Some(node);
    /// Returns references: the front end holds `count` fewer on `node`. → [`Reply::Done`]. An
    /// unlinked inode is freed with the last reference.
    ///
    /// Where [`Ctx::refs`](leeward_env::Ctx) is set, a front end takes a reference with every
    /// [`Reply::Attr`] of a Lookup, Make, MakeUnnamed, Place or Link, and with each entry of a List
    /// with `attrs`.
    Forget "forget" Reads {
        /// The inode.
        node: NodeId,
        /// Number of references.
        count: u64,
    } about None;
    /// Makes a regular file without a name, in the volume of `dir`, with the attributes that it
    /// would get there. → [`Reply::Attr`]. [`Op::Place`] gives it a name. Until then it counts in
    /// no quota, though a quota without room for `bytes` more refuses it now. It is freed with its
    /// last reference, or after a crash.
    MakeUnnamed "makeunnamed" Grows {
        /// The directory where it will be.
        dir: NodeId,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
        /// The size that it will have, as far as that is known.
        bytes: u64,
    } about Some(dir);
    /// Gives a file without a name its first one, replacing the file that has that name. →
    /// [`Reply::Attr`] of `node`. Everybody finds the old file whole or the new one whole, also
    /// after a crash. The operation waits for the store where that is necessary.
    Place "place" Changes {
        /// The file, from [`Op::MakeUnnamed`].
        node: NodeId,
        /// The directory, in the same volume.
        dir: NodeId,
        /// The name. A directory is not replaced (EISDIR).
        name: &'a [u8],
        /// The inode that it may replace.
        over: Precondition,
    } about Some(dir), tells [Entry(dir, name)];
    /// Begins an upload in parts, in the volume of `dir`. → [`Reply::Begun`]. The upload survives a
    /// crash. It stays until it is ended, or nothing was added to it for too long.
    BeginUpload "beginupload" Grows {
        /// The directory where the file will be, as far as there is one.
        dir: NodeId,
        /// Bucket, slash, key: text.
        key: &'a [u8],
        /// Data that the door wants to keep with it.
        note: &'a [u8],
    } about Some(dir);
    /// Makes a file without a name a part of an upload, replacing the part that had this number. →
    /// [`Reply::Done`]. The file stays as long as the upload does. ESTALE when there is no such
    /// upload.
    KeepPart "keeppart" Changes {
        /// The file, from [`Op::MakeUnnamed`].
        node: NodeId,
        /// The upload, from [`Op::BeginUpload`].
        upload: NodeId,
        /// Number of the part.
        number: u32,
        /// Data that the door wants to keep with it.
        note: &'a [u8],
    } about Some(node);
    /// Does [`Op::Place`] with the file that was made from the parts, and completes the upload: its
    /// parts are freed, and its note is kept for a while. ESTALE when the upload was ended or
    /// completed before.
    CompleteUpload "completeupload" Changes {
        /// The upload, from [`Op::BeginUpload`].
        upload: NodeId,
        /// The file, from [`Op::MakeUnnamed`].
        node: NodeId,
        /// The directory, in the same volume.
        dir: NodeId,
        /// The name. A directory is not replaced (EISDIR).
        name: &'a [u8],
        /// The inode that it may replace.
        over: Precondition,
        /// The result of the upload, as the door wants to keep it.
        note: &'a [u8],
    } about Some(dir), tells [Entry(dir, name)];
    /// Ends an upload, and frees its parts. → [`Reply::Done`]. ESTALE when there is no such upload,
    /// or it is complete.
    EndUpload "endupload" Changes {
        /// The upload, from [`Op::BeginUpload`].
        upload: NodeId,
    } about Some(upload);
    /// Reads an upload, complete or not. → [`Reply::Upload`]. ESTALE when there is no such upload.
    GetUpload "getupload" Reads {
        /// The upload, from [`Op::BeginUpload`].
        upload: NodeId,
    } about Some(upload);
    /// Reads a page of the parts of an upload, in the order of their numbers. → [`Reply::Parts`],
    /// empty where there is no such upload.
    ListParts "listparts" Reads {
        /// The upload, from [`Op::BeginUpload`].
        upload: NodeId,
        /// Only parts with higher numbers than this. The lowest number of a part is 1.
        after: u32,
        /// Most parts to return.
        limit: usize,
    } about Some(upload);
    /// Reads a page of the caller's uploads that are not complete, in the order of their keys. →
    /// [`Reply::Uploads`].
    ListUploads "listuploads" Reads {
        /// Prefix of bucket, slash, key: text.
        prefix: &'a [u8],
        /// Only uploads after this bucket, slash, key,
        after: &'a [u8],
        /// and of that key only those after this upload.
        after_upload: NodeId,
        /// Most uploads to return.
        limit: usize,
    } about None;
    /// Counts uploads that are not complete. → [`Reply::UploadTotals`].
    StatUploads "statuploads" Reads {
        /// The caller's uploads in this bucket; `None`: those of all users in all buckets.
        bucket: Option<&'a [u8]>,
    } about None;
    /// Writes at the end of a file, wherever that is by then. → [`Reply::Written`]. Otherwise as
    /// [`Op::Write`]. What several callers append is there whole, in some order.
    Append "append" Changes {
        /// The file.
        node: NodeId,
        /// The bytes, at most 1 MiB.
        data: &'a [u8],
    } about Some(node), tells [Inode(node)], moves data.len() as u64;
    /// Reads versions of a file's content: a number for each block of
    /// [`VERSION_BLOCK_BYTES`](leeward_env::limits::VERSION_BLOCK_BYTES), up to the end of the file
    /// and at most [`VERSION_BLOCKS_MAX`](leeward_env::limits::VERSION_BLOCKS_MAX). →
    /// [`Reply::Data`], 8 bytes for each, little-endian. As long as a block of one file has the
    /// same number, it has the same content; so it does when it has the same number again. 0 says
    /// nothing.
    ContentVersions "contentversions" Reads {
        /// The file.
        node: NodeId,
        /// Number of the first block.
        block: u64,
    } about Some(node);
}

impl Op<'_> {
    /// Whether it changes anything, or makes a change durable.
    pub fn changes(&self) -> bool {
        self.effect() != Effect::Reads
    }

    /// Whether it usually waits for a store or a commit, or takes long.
    pub fn usually_waits(&self) -> bool {
        match self {
            Op::Fsync { .. } | Op::SyncAll | Op::CopyRange { .. } => true,
            Op::Allocate { len, .. } => *len > ALLOCATE_QUICK_BYTES,
            _ => false,
        }
    }

    /// Whether a front end that counts references gets some with the reply, see [`Op::Forget`].
    pub fn gives_references(&self) -> bool {
        match self {
            Op::Lookup { .. }
            | Op::Make { .. }
            | Op::MakeUnnamed { .. }
            | Op::Place { .. }
            | Op::Link { .. } => true,
            Op::List { attrs, .. } => *attrs,
            _ => false,
        }
    }

    /// Whether it is about a snapshot or a directory of snapshots.
    pub fn is_on_view(&self) -> bool {
        match self {
            Op::Rename { from_dir, to_dir, .. } => from_dir.is_view() || to_dir.is_view(),
            op => op.node().is_some_and(NodeId::is_view),
        }
    }
}

/// The type of an operation's field, which may borrow byte strings.
trait Field {
    /// The same type with another lifetime.
    type Borrowing<'b>;

    /// The same value with the byte strings that `with` gives.
    fn with_bytes<'b>(self, with: &mut dyn FnMut(&[u8]) -> &'b [u8]) -> Self::Borrowing<'b>;
}

impl Field for &[u8] {
    type Borrowing<'b> = &'b [u8];

    fn with_bytes<'b>(self, with: &mut dyn FnMut(&[u8]) -> &'b [u8]) -> &'b [u8] {
        with(self)
    }
}

impl Field for Option<&[u8]> {
    type Borrowing<'b> = Option<&'b [u8]>;

    fn with_bytes<'b>(self, with: &mut dyn FnMut(&[u8]) -> &'b [u8]) -> Option<&'b [u8]> {
        self.map(with)
    }
}

impl Field for Make<'_> {
    type Borrowing<'b> = Make<'b>;

    fn with_bytes<'b>(self, with: &mut dyn FnMut(&[u8]) -> &'b [u8]) -> Make<'b> {
        match self {
            Make::Symlink(target) => Make::Symlink(with(target)),
            Make::File => Make::File,
            Make::Dir => Make::Dir,
            Make::Fifo => Make::Fifo,
            Make::Socket => Make::Socket,
            Make::CharDev(number) => Make::CharDev(number),
            Make::BlockDev(number) => Make::BlockDev(number),
        }
    }
}

macro_rules! borrow_nothing {
    ($($kind:ty),*) => {$(
        impl Field for $kind {
            type Borrowing<'b> = $kind;

            fn with_bytes<'b>(self, _: &mut dyn FnMut(&[u8]) -> &'b [u8]) -> $kind {
                self
            }
        }
    )*};
}

borrow_nothing!(bool, u32, u64, usize, NodeId, SetAttr, Precondition, RenameMode, XattrMode, Allocate, Seek);

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(op: &Op<'_>) -> Vec<(NodeId, Vec<u8>)> {
        let mut all = Vec::new();
        op.announce(&mut |change| match change {
            Change::Entry(dir, name) => all.push((dir, name.to_vec())),
            Change::Inode(node) => all.push((node, Vec::new())),
        });
        all
    }

    #[test]
    fn what_follows_from_an_entry_is_what_it_says() {
        let (a, b) = (NodeId(1), NodeId(2));
        let link = Op::Link { node: a, dir: b, name: b"n" };
        assert_eq!((link.node(), link.effect(), link.moved_bytes()), (Some(b), Effect::Grows, 0));
        assert_eq!(announced(&link), [(b, b"n".to_vec()), (a, Vec::new())]);
        let read = Op::Read { node: a, offset: 0, len: 7 };
        assert_eq!((read.node(), read.effect(), read.moved_bytes()), (Some(a), Effect::Reads, 7));
        assert_eq!((read.changes(), announced(&read)), (false, Vec::new()));
        assert_eq!((Op::SyncAll.node(), Op::SyncAll.effect()), (None, Effect::Settles));
        assert_eq!(Op::NAMES[Op::SyncAll.number()], "syncfs");
        assert_eq!(Op::NAMES[link.number()], "link");
    }

    #[test]
    fn names_are_all_different() {
        let mut names = Op::NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Op::NAMES.len());
    }
}
