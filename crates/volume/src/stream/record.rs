//! The records of a stream: a step each on the way from one snapshot to the next. Inodes go by
//! their numbers, which are those of the volume that was sent.

use leeward_fs::codec::{Input, Malformed, Taken, Wire};
use leeward_fs::{Error, InodeFlags, Kind, Result, Time};

/// `NUMBER NAME { FIELDS }`
macro_rules! records {
    ($($(#[$doc:meta])* $number:literal $name:ident { $($field:ident: $kind:ty),* })*) => {
        /// A step. In this order: all `Gone`, all `Made`, all `Named`; then, for each inode in the
        /// order of their numbers, its attributes and content, and `Attr` last.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Record<'a> {
            $($(#[$doc])* $name { $($field: $kind),* },)*
        }

        impl<'a> Wire<'a> for Record<'a> {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Record::$name { $($field),* } => {
                        out.push($number);
                        $($field.put(out);)*
                    })*
                }
            }

            fn take(from: &mut Input<'a>) -> Taken<Record<'a>> {
                match u8::take(from)? {
                    $($number => Ok(Record::$name { $($field: Wire::take(from)?),* }),)*
                    _ => Err(Malformed::Unknown),
                }
            }
        }
    };
}

records! {
    /// A directory loses a name of this inode. `stays`: the inode is there afterwards.
    1 Gone { dir: u64, name: &'a [u8], inode: u64, stays: bool }
    /// There is a new inode. `target`: of a symbolic link.
    2 Made { inode: u64, kind: Kind, device: u32, target: &'a [u8] }
    /// A directory gets a name of this inode.
    3 Named { dir: u64, name: &'a [u8], inode: u64 }
    /// An extended attribute has this value; `None`: it is gone.
    4 Xattr { inode: u64, name: &'a [u8], value: Option<&'a [u8]> }
    /// A file is shorter for now, and nothing is left beyond.
    5 Cut { inode: u64, size: u64 }
    /// A part of a file has this content.
    6 Data { inode: u64, offset: u64, bytes: &'a [u8] }
    /// A part of a file is reserved, and reads as zeros.
    7 Unwritten { inode: u64, offset: u64, len: u64 }
    /// A part of a file is a hole.
    8 Hole { inode: u64, offset: u64, len: u64 }
    /// All that is left of an inode.
    9 Attr { inode: u64, attributes: Attributes }
}

/// Attributes of an inode that a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// 07777 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a file; else 0.
    pub size: u64,
    /// Access, modification, change, birth.
    pub times: [Time; 4],
    /// As `chattr` sets them.
    pub flags: InodeFlags,
}

impl Wire<'_> for Attributes {
    fn put(&self, out: &mut Vec<u8>) {
        ((self.mode, self.uid), (self.gid, self.size)).put(out);
        self.times.iter().for_each(|time| time.put(out));
        self.flags.put(out);
    }

    fn take(from: &mut Input<'_>) -> Taken<Attributes> {
        let ((mode, uid), (gid, size)) = Wire::take(from)?;
        let mut times = [Time::default(); 4];
        for time in &mut times {
            *time = Wire::take(from)?;
        }
        let flags: InodeFlags = Wire::take(from)?;
        match mode <= 0o7777 && flags.without(InodeFlags::KNOWN).is_empty() {
            true => Ok(Attributes { mode, uid, gid, size, times, flags }),
            false => Err(Malformed::Unknown),
        }
    }
}

/// The error for a stream that cannot be read, or does not fit.
pub(crate) fn damaged(why: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("the stream: {why}"))
}

/// Calls `each` for all records in these bytes.
///
/// # Errors
/// Corrupt, and those of `each`.
pub(crate) fn each_record(bytes: &[u8], mut each: impl FnMut(Record<'_>) -> Result<()>) -> Result<()> {
    let mut from = Input::new(bytes);
    while from.end().is_err() {
        each(Record::take(&mut from).map_err(damaged)?)?;
    }
    Ok(())
}
