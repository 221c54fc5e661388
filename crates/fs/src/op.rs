//! The list of operations. From each entry follow the variant of [`Op`], its name in reports, the inode that it is about, what it does to the
//! file system, what it announces and how much data it moves; whoever answers operations is asked by the compiler for every one of them.

use crate::{Allocate, Make, NodeId, Over, RenameMode, Seek, SetAttr, XattrMode};

/// What an operation does to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that anybody else sees.
    Reads,
    /// It changes something.
    Changes,
    /// It changes something and adds records, for which there must be room.
    Grows,
    /// It makes durable what was changed before.
    Settles,
}

/// What an operation has changed that front ends may have in their caches.
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

            /// The inode that it is about; of two, the directory that gets the name or the file that gets the data. `None`: it is
            /// about all, or about what the kernel forgets.
            pub fn node(&self) -> Option<NodeId> {
                match *self {
                    $(Op::$name { $($($field),*)? } => $about,)*
                }
            }

            /// What it changes, when it succeeds, that front ends may have in their caches.
            pub fn announce(&self, tell: &mut dyn FnMut(Change<'_>)) {
                match *self {
                    $(Op::$name { $($($field),*)? } => { $($(tell(Change::$change($($of),*));)*)? })*
                }
            }

            /// Bytes of content that it asks to be moved between its caller and a file: what counts against a ceiling.
            pub fn moved_bytes(&self) -> u64 {
                match *self {
                    $(Op::$name { $($($field),*)? } => 0 $(+ $bytes)?,)*
                }
            }

            /// The same operation with other byte strings: what `with` gives for each, in the order of the fields.
            pub fn with_bytes<'b>(self, with: &mut dyn FnMut(&[u8]) -> &'b [u8]) -> Op<'b> {
                match self {
                    $(Op::$name { $($($field),*)? } => Op::$name { $($($field: Field::with_bytes($field, with)),*)? },)*
                }
            }
        }
    };
}

operations! {
    /// One operation. Names are single path components (no `/`, not `.` or `..`, at most 255 bytes) as bytes.
    ///
    /// Permission checks on path walks are the front end's (the kernel's, with `default_permissions`); what the file system
    /// itself checks is said in `docs/SEMANTICS.md`.
    'a;

    /// → [`Reply::Attr`]. Name `..` gives the parent (of a volume's root: the directory it is attached in).
    Lookup "lookup" Reads {
        /// In which directory.
        dir: NodeId,
        /// Which name.
        name: &'a [u8],
    } about Some(dir);
    /// → [`Reply::Attr`].
    GetAttr "getattr" Reads {
        /// Of which inode.
        node: NodeId,
    } about Some(node);
    /// → [`Reply::Attr`].
    SetAttr "setattr" Changes {
        /// Of which inode.
        node: NodeId,
        /// What to set.
        set: SetAttr,
    } about Some(node), tells [Inode(node)];
    /// → [`Reply::Data`].
    ReadLink "readlink" Reads {
        /// Of which symbolic link.
        node: NodeId,
    } about Some(node);
    /// → [`Reply::Attr`]. EEXIST when the name is there. Default ACLs and setgid of `dir` are inherited;
    /// `mode` is masked by `umask` unless a default ACL applies.
    Make "make" Grows {
        /// In which directory.
        dir: NodeId,
        /// Under which name.
        name: &'a [u8],
        /// What.
        make: Make<'a>,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
    } about Some(dir), tells [Entry(dir, name)];
    /// → [`Reply::Attr`] of `node`.
    Link "link" Grows {
        /// An existing inode, no directory.
        node: NodeId,
        /// In which directory.
        dir: NodeId,
        /// Under which name.
        name: &'a [u8],
    } about Some(dir), tells [Entry(dir, name), Inode(node)];
    /// → [`Reply::Removed`]. Not for directories (EISDIR).
    Unlink "unlink" Changes {
        /// In which directory.
        dir: NodeId,
        /// Which name.
        name: &'a [u8],
        /// What it may remove.
        over: Over,
    } about Some(dir), tells [Entry(dir, name)];
    /// → [`Reply::Removed`]. ENOTEMPTY when not empty; EBUSY where a volume is attached.
    RmDir "rmdir" Changes {
        /// In which directory.
        dir: NodeId,
        /// Which name.
        name: &'a [u8],
    } about Some(dir), tells [Entry(dir, name)];
    /// → [`Reply::Done`].
    Rename "rename" Changes {
        /// From directory.
        from_dir: NodeId,
        /// From name.
        from_name: &'a [u8],
        /// To directory.
        to_dir: NodeId,
        /// To name.
        to_name: &'a [u8],
        /// About an existing target.
        mode: RenameMode,
    } about Some(to_dir), tells [Entry(from_dir, from_name), Entry(to_dir, to_name)];
    /// → [`Reply::Data`], short at the end of the file.
    Read "read" Reads {
        /// From which file.
        node: NodeId,
        /// At which byte.
        offset: u64,
        /// How many bytes, at most 1 MiB.
        len: u32,
    } about Some(node), moves u64::from(len);
    /// → [`Reply::Written`]. Clears setuid and setgid unless root writes.
    Write "write" Changes {
        /// To which file.
        node: NodeId,
        /// At which byte.
        offset: u64,
        /// What, at most 1 MiB.
        data: &'a [u8],
    } about Some(node), tells [Inode(node)], moves data.len() as u64;
    /// → [`Reply::Done`], when data, inode and name are durable. For directories too.
    Fsync "fsync" Settles {
        /// What.
        node: NodeId,
    } about Some(node);
    /// → [`Reply::Done`], when everything that had returned is durable (syncfs).
    SyncAll "syncfs" Settles about None;
    /// → [`Reply::Done`].
    Allocate "allocate" Changes {
        /// In which file.
        node: NodeId,
        /// From which byte.
        offset: u64,
        /// How many.
        len: u64,
        /// How.
        mode: Allocate,
    } about Some(node), tells [Inode(node)];
    /// → [`Reply::Offset`]; ENXIO past the end.
    SeekTo "seek" Reads {
        /// In which file.
        node: NodeId,
        /// From which byte.
        offset: u64,
        /// For what.
        what: Seek,
    } about Some(node);
    /// → [`Reply::Written`]. Shares extents within a volume where ranges are whole; copies elsewhere.
    CopyRange "copy" Changes {
        /// From file.
        from: NodeId,
        /// From byte.
        from_offset: u64,
        /// To file.
        to: NodeId,
        /// To byte.
        to_offset: u64,
        /// How many.
        len: u64,
    } about Some(to), tells [Inode(to)];
    /// → [`Reply::Entries`]: entries after `after` in name order (empty: from the start), at most `limit`. `.` and `..` are
    /// not included. Fewer than `limit` only at the end.
    List "list" Reads {
        /// Which directory.
        dir: NodeId,
        /// Name to start after.
        after: &'a [u8],
        /// How many at most.
        limit: usize,
        /// Whether each entry carries its attributes.
        attrs: bool,
    } about Some(dir);
    /// → [`Reply::Data`]; ENODATA.
    GetXattr "getxattr" Reads {
        /// Of which inode.
        node: NodeId,
        /// Full name, such as `user.x`.
        name: &'a [u8],
    } about Some(node);
    /// → [`Reply::Names`].
    ListXattr "listxattr" Reads {
        /// Of which inode.
        node: NodeId,
    } about Some(node);
    /// → [`Reply::Done`].
    SetXattr "setxattr" Grows {
        /// Of which inode.
        node: NodeId,
        /// Full name.
        name: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// About an existing one.
        mode: XattrMode,
    } about Some(node), tells [Inode(node)];
    /// → [`Reply::Done`]; ENODATA.
    RemoveXattr "removexattr" Changes {
        /// Of which inode.
        node: NodeId,
        /// Full name.
        name: &'a [u8],
    } about Some(node), tells [Inode(node)];
    /// → [`Reply::StatFs`].
    StatFs "statfs" Reads {
        /// In which volume.
        node: NodeId,
    } about Some(node);
    /// → [`Reply::Done`]. The front end holds `count` references fewer on `node`; an unlinked inode is freed when none is left.
    /// References are taken by every [`Reply::Attr`] of Lookup, Make and Link and each entry of a List with `attrs`,
    /// when [`Ctx::refs`](leeward_env::Ctx) is set.
    Forget "forget" Reads {
        /// Which inode.
        node: NodeId,
        /// How many references.
        count: u64,
    } about None;
    /// → [`Reply::Attr`]. A regular file without a name, in the volume of `dir` and as if it were made there. It is kept while
    /// references are out and freed with the last one, or after a crash: [`Op::Place`] gives it a name. It counts in no quota
    /// until then; one that has no room for `bytes` more now refuses it.
    MakeUnnamed "makeunnamed" Grows {
        /// In which directory it will be.
        dir: NodeId,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
        /// How large it will be, as far as that is known.
        bytes: u64,
    } about Some(dir);
    /// → [`Reply::Attr`] of `node`. Gives a file without a name its first one, in place of what has it: who looks finds the old file
    /// whole or the new one whole, also after a crash (and waits for the store, where that takes it).
    Place "place" Changes {
        /// From [`Op::MakeUnnamed`].
        node: NodeId,
        /// In which directory, of the same volume.
        dir: NodeId,
        /// Under which name. A directory is not replaced (EISDIR).
        name: &'a [u8],
        /// What it may replace.
        over: Over,
    } about Some(dir), tells [Entry(dir, name)];
    /// → [`Reply::Begun`]. An upload in parts, in the volume of `dir`: it is there until it is ended, or rests for too long, also
    /// after a crash.
    BeginUpload "beginupload" Grows {
        /// In which directory the file will be, as far as there is one.
        dir: NodeId,
        /// For which bucket, slash, key: text.
        key: &'a [u8],
        /// What the door wants to know of it.
        note: &'a [u8],
    } about Some(dir);
    /// → [`Reply::Done`]. A file without a name is a part of an upload from now on, in place of the one that had this number, and kept as long
    /// as the upload is there. ESTALE when it is not.
    KeepPart "keeppart" Changes {
        /// From [`Op::MakeUnnamed`].
        node: NodeId,
        /// From [`Op::BeginUpload`].
        upload: NodeId,
        /// Which part.
        number: u32,
        /// What the door wants to know of it.
        note: &'a [u8],
    } about Some(node);
    /// [`Op::Place`] of the file that was made of the parts. The upload is complete with it, and its parts are let go; what the note says is
    /// known for a while. ESTALE when it was ended or completed before.
    CompleteUpload "completeupload" Changes {
        /// From [`Op::BeginUpload`].
        upload: NodeId,
        /// From [`Op::MakeUnnamed`].
        node: NodeId,
        /// In which directory, of the same volume.
        dir: NodeId,
        /// Under which name. A directory is not replaced (EISDIR).
        name: &'a [u8],
        /// What it may replace.
        over: Over,
        /// What became of the upload.
        note: &'a [u8],
    } about Some(dir), tells [Entry(dir, name)];
    /// → [`Reply::Done`]. The upload is gone, its parts are let go.
    EndUpload "endupload" Changes {
        /// From [`Op::BeginUpload`].
        upload: NodeId,
    } about Some(upload);
    /// → [`Reply::Upload`], also of one that is complete, as long as it is known. ESTALE when there is none.
    GetUpload "getupload" Reads {
        /// From [`Op::BeginUpload`].
        upload: NodeId,
    } about Some(upload);
    /// → [`Reply::Parts`] of an upload, in the order of their numbers; none where there is no such upload.
    ListParts "listparts" Reads {
        /// From [`Op::BeginUpload`].
        upload: NodeId,
        /// Those with higher numbers than this. The lowest number of a part is 1.
        after: u32,
        /// How many at most.
        limit: usize,
    } about Some(upload);
    /// → [`Reply::Uploads`] of the user who asks that are not complete, in the order of keys.
    ListUploads "listuploads" Reads {
        /// How bucket, slash, key begin: text.
        prefix: &'a [u8],
        /// Those after this one: bucket, slash, key.
        after: &'a [u8],
        /// And after this upload of it.
        after_upload: NodeId,
        /// How many at most.
        limit: usize,
    } about None;
    /// → [`Reply::UploadTotals`] of uploads that are not complete.
    StatUploads "statuploads" Reads {
        /// Of the user who asks in this bucket; `None`: of everybody in all.
        bucket: Option<&'a [u8]>,
    } about None;
}

impl Op<'_> {
    /// Whether it changes anything, or makes it durable.
    pub fn changes(&self) -> bool {
        self.effect() != Effect::Reads
    }

    /// Whether it is about a snapshot or a directory of snapshots.
    pub fn is_on_view(&self) -> bool {
        match self {
            Op::Rename { from_dir, to_dir, .. } => from_dir.is_view() || to_dir.is_view(),
            op => op.node().is_some_and(NodeId::is_view),
        }
    }
}

/// A field of an operation, which may borrow bytes.
trait Field {
    /// The same that borrows from somewhere else.
    type Borrowing<'b>;

    /// What it is with other bytes.
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

borrow_nothing!(bool, u32, u64, usize, NodeId, SetAttr, Over, RenameMode, XattrMode, Allocate, Seek);

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
