//! Requests and replies as bytes, for a file system on another machine.
//!
//! Numbers are little-endian and of fixed width; byte strings have a length of 32 bits before them;
//! lists have a count of 32 bits; a kind is one byte. A kind is the position in the list that it
//! comes from (operations, errors, variants), so lists only grow at their ends; `tests/wire.rs` of
//! the crate `remote` pins all of them.
//!
//! Reading trusts nothing: it takes no more memory than the bytes that are there account for, and
//! bytes that are left over are an error.

use crate::locks::OwnedLock;
use crate::uploads::{Part, PartRecord, UploadRecord, UploadTotals};
use crate::{
    Allocate, Attr, Entry, InodeFlags, Kind, Make, NodeId, Precondition, RenameMode, Reply, Seek, SetAttr,
    SetTime, StatFs, Time, XattrMode,
};
use leeward_env::Class;
use std::sync::Arc;

/// Why bytes cannot be read as what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end too early.
    #[error("the message is cut short")]
    Short,
    /// There are more than there should be.
    #[error("the message has bytes left over")]
    Long,
    /// A kind that this version does not know, or a value out of its range.
    #[error("the message has an unknown value")]
    Unknown,
}

/// Result of reading.
pub type Taken<T> = std::result::Result<T, Malformed>;

/// Bytes that are read from their beginning.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Reads these.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// The next bytes, so many.
    ///
    /// # Errors
    /// [`Malformed::Short`].
    pub fn bytes(&mut self, len: usize) -> Taken<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(first)
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// [`Malformed::Long`].
    pub fn end(self) -> Taken<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }
}

/// A value that is sent.
pub trait Wire<'a>: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads it.
    ///
    /// # Errors
    /// [`Malformed`].
    fn take(from: &mut Input<'a>) -> Taken<Self>;
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Wire<'_> for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Input<'_>) -> Taken<$kind> {
                let bytes = from.bytes(size_of::<$kind>())?;
                Ok(<$kind>::from_le_bytes(bytes.try_into().map_err(|_| Malformed::Short)?))
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i64);

/// Limits of lists, at most 32 bits.
impl Wire<'_> for usize {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(*self).unwrap_or(u32::MAX).put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<usize> {
        Ok(u32::take(from)? as usize)
    }
}

impl Wire<'_> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut Input<'_>) -> Taken<bool> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl<'a> Wire<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend_from_slice(self);
    }

    fn take(from: &mut Input<'a>) -> Taken<&'a [u8]> {
        let len = usize::take(from)?;
        from.bytes(len)
    }
}

impl Wire<'_> for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        (&self[..]).put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<Vec<u8>> {
        <&[u8]>::take(from).map(<[u8]>::to_vec)
    }
}

impl Wire<'_> for Box<[u8]> {
    fn put(&self, out: &mut Vec<u8>) {
        (&self[..]).put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<Box<[u8]>> {
        <&[u8]>::take(from).map(Box::from)
    }
}

impl Wire<'_> for Arc<[u8]> {
    fn put(&self, out: &mut Vec<u8>) {
        (&self[..]).put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<Arc<[u8]>> {
        <&[u8]>::take(from).map(Arc::from)
    }
}

impl Wire<'_> for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<String> {
        let bytes = <&[u8]>::take(from)?;
        std::str::from_utf8(bytes).map(String::from).map_err(|_| Malformed::Unknown)
    }
}

impl Wire<'_> for Arc<str> {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<Arc<str>> {
        String::take(from).map(Arc::from)
    }
}

impl<const N: usize> Wire<'_> for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(from: &mut Input<'_>) -> Taken<[u8; N]> {
        from.bytes(N)?.try_into().map_err(|_| Malformed::Short)
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Input<'a>) -> Taken<Option<T>> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

impl<'a, A: Wire<'a>, B: Wire<'a>> Wire<'a> for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Input<'a>) -> Taken<(A, B)> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

/// Types of which there are lists.
trait Listed {}

macro_rules! listed {
    ($($kind:ty),*) => { $(impl Listed for $kind {})* };
}

listed!(u32, NodeId, Entry, Box<[u8]>, String, (NodeId, UploadRecord), (NodeId, u64), Part, OwnedLock);

impl<'a, T: Wire<'a> + Listed> Wire<'a> for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|one| one.put(out));
    }

    fn take(from: &mut Input<'a>) -> Taken<Vec<T>> {
        let count = usize::take(from)?;
        // no element is shorter than a byte, so a lie about the count ends soon
        let mut all = Vec::with_capacity(count.min(from.0.len() / size_of::<T>().max(1) + 1));
        for _ in 0..count {
            all.push(T::take(from)?);
        }
        Ok(all)
    }
}

/// [`Wire`] for structures that are sent field by field: `NAME { FIELD, ... }`.
#[macro_export]
macro_rules! wire_structures {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::codec::Wire<'_> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::Wire::put(&self.$field, out);)*
            }

            fn take(from: &mut $crate::codec::Input<'_>) -> $crate::codec::Taken<$name> {
                Ok($name { $($field: $crate::codec::Wire::take(from)?),* })
            }
        }
    )*};
}

wire_structures! {
    Time { secs, nanos }
    Attr { node, kind, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime, btime, flags }
    SetAttr { mode, uid, gid, size, atime, mtime, flags }
    Entry { name, node, kind, attr }
    StatFs { total_bytes, free_bytes, total_files, free_files }
    UploadRecord { uid, at, complete, key, note }
    PartRecord { upload, number, at, size, note }
    Part { node, record }
    UploadTotals { uploads, bytes }
}

/// [`Wire`] for variants without fields, by one byte: `NAME { NUMBER => VARIANT, ... }`.
#[macro_export]
macro_rules! wire_kinds {
    ($($name:ident { $($number:literal => $variant:ident),* $(,)? })*) => {$(
        impl $crate::codec::Wire<'_> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $($name::$variant => $number,)* });
            }

            fn take(from: &mut $crate::codec::Input<'_>) -> $crate::codec::Taken<$name> {
                match <u8 as $crate::codec::Wire>::take(from)? {
                    $($number => Ok($name::$variant),)*
                    _ => Err($crate::codec::Malformed::Unknown),
                }
            }
        }
    )*};
}

wire_kinds! {
    Class { 0 => Interactive, 1 => Batch, 2 => Background }
    Kind { 1 => File, 2 => Dir, 3 => Symlink, 4 => Fifo, 5 => CharDev, 6 => BlockDev, 7 => Socket }
    RenameMode { 0 => Replace, 1 => NoReplace, 2 => Exchange }
    XattrMode { 0 => Set, 1 => Create, 2 => Replace }
    Seek { 0 => Data, 1 => Hole }
}

impl Wire<'_> for NodeId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<NodeId> {
        u64::take(from).map(NodeId)
    }
}

impl Wire<'_> for InodeFlags {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<InodeFlags> {
        u32::take(from).map(InodeFlags::from_bits)
    }
}

impl Wire<'_> for SetTime {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SetTime::Now => out.push(0),
            SetTime::To(time) => {
                out.push(1);
                time.put(out);
            }
        }
    }

    fn take(from: &mut Input<'_>) -> Taken<SetTime> {
        match u8::take(from)? {
            0 => Ok(SetTime::Now),
            1 => Time::take(from).map(SetTime::To),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl Wire<'_> for Precondition {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Precondition::Any => out.push(0),
            Precondition::Nothing => out.push(1),
            Precondition::This(node, changed) => {
                out.push(2);
                node.put(out);
                changed.put(out);
            }
        }
    }

    fn take(from: &mut Input<'_>) -> Taken<Precondition> {
        match u8::take(from)? {
            0 => Ok(Precondition::Any),
            1 => Ok(Precondition::Nothing),
            2 => Ok(Precondition::This(NodeId::take(from)?, Time::take(from)?)),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl Wire<'_> for Allocate {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Allocate::Reserve { keep_size: false } => 0,
            Allocate::Reserve { keep_size: true } => 1,
            Allocate::PunchHole => 2,
            Allocate::ZeroRange { keep_size: false } => 3,
            Allocate::ZeroRange { keep_size: true } => 4,
        });
    }

    fn take(from: &mut Input<'_>) -> Taken<Allocate> {
        match u8::take(from)? {
            0 => Ok(Allocate::Reserve { keep_size: false }),
            1 => Ok(Allocate::Reserve { keep_size: true }),
            2 => Ok(Allocate::PunchHole),
            3 => Ok(Allocate::ZeroRange { keep_size: false }),
            4 => Ok(Allocate::ZeroRange { keep_size: true }),
            _ => Err(Malformed::Unknown),
        }
    }
}

impl<'a> Wire<'a> for Make<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Make::File => out.push(0),
            Make::Dir => out.push(1),
            Make::Fifo => out.push(2),
            Make::Socket => out.push(3),
            Make::Symlink(target) => {
                out.push(4);
                target.put(out);
            }
            Make::CharDev(number) => {
                out.push(5);
                number.put(out);
            }
            Make::BlockDev(number) => {
                out.push(6);
                number.put(out);
            }
        }
    }

    fn take(from: &mut Input<'a>) -> Taken<Make<'a>> {
        match u8::take(from)? {
            0 => Ok(Make::File),
            1 => Ok(Make::Dir),
            2 => Ok(Make::Fifo),
            3 => Ok(Make::Socket),
            4 => Wire::take(from).map(Make::Symlink),
            5 => u32::take(from).map(Make::CharDev),
            6 => u32::take(from).map(Make::BlockDev),
            _ => Err(Malformed::Unknown),
        }
    }
}

/// `NUMBER => VARIANT(CONTENT)` for replies that have one value.
macro_rules! replies {
    ($($number:literal => $variant:ident),* $(,)?) => {
        impl Wire<'_> for Reply {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    Reply::Done => out.push(0),
                    Reply::Removed { node, nlink } => {
                        out.push(1);
                        node.put(out);
                        nlink.put(out);
                    }
                    $(Reply::$variant(value) => {
                        out.push($number);
                        value.put(out);
                    })*
                }
            }

            fn take(from: &mut Input<'_>) -> Taken<Reply> {
                match u8::take(from)? {
                    0 => Ok(Reply::Done),
                    1 => Ok(Reply::Removed { node: Wire::take(from)?, nlink: Wire::take(from)? }),
                    $($number => Wire::take(from).map(Reply::$variant),)*
                    _ => Err(Malformed::Unknown),
                }
            }
        }
    };
}

replies! {
    2 => Attr,
    3 => Data,
    4 => Written,
    5 => Offset,
    6 => Entries,
    7 => Names,
    8 => Begun,
    9 => Upload,
    10 => Uploads,
    11 => Parts,
    12 => UploadTotals,
    13 => StatFs,
    14 => Lock,
}
