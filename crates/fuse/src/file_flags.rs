//! Flags of inodes as `chattr` and `lsattr` ask for them: the requests `FS_IOC_GETFLAGS`,
//! `FS_IOC_SETFLAGS`, `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`. Pure.
//!
//! The kernel sends them for files and directories. Before it sets flags it reads them by
//! `FS_IOC_FSGETXATTR`, whichever of the two was asked for.

use crate::kernel::abi;
use leeward_fs::InodeFlags;
use zerocopy::{FromBytes, IntoBytes};

/// A request for flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagsRequest {
    /// Read them; the answer is in this form.
    Get(Form),
    /// Set them.
    Set(InodeFlags),
    /// Set something that no inode here has.
    SetUnsupported,
}

/// How flags are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 32 bits.
    Word,
    /// The kernel's `struct fsxattr`.
    Structure,
}

/// Numbers of the requests. The kernel passes 32 bits, whatever size the first two name. Those of
/// programs of 32 bits are not taken: since Linux 5.13 the kernel translates them, and one that
/// comes as it is has passed none of the kernel's checks (`CAP_LINUX_IMMUTABLE`, a read-only
/// mount).
const GET_WORD: u32 = 0x8008_6601;
const SET_WORD: u32 = 0x4008_6602;
const GET_STRUCTURE: u32 = 0x801c_581f;
const SET_STRUCTURE: u32 = 0x401c_5820;

/// Bits of [`abi::FsXattr::flags`], and the flags that they stand for.
const STRUCTURE_BITS: [(u32, InodeFlags); 3] =
    [(0x08, InodeFlags::IMMUTABLE), (0x10, InodeFlags::APPEND_ONLY), (0x80, InodeFlags::NO_DUMP)];

impl FlagsRequest {
    /// Reads a request; `None`: it is for something else, or malformed.
    pub(crate) fn parse(args: &abi::IoctlIn, data: &[u8]) -> Option<FlagsRequest> {
        match args.cmd {
            GET_WORD => Some(FlagsRequest::Get(Form::Word)),
            GET_STRUCTURE => Some(FlagsRequest::Get(Form::Structure)),
            SET_WORD => {
                let (bits, _) = u32::read_from_prefix(data).ok()?;
                Some(FlagsRequest::Set(InodeFlags::from_bits(bits)))
            }
            SET_STRUCTURE => {
                let (set, _) = abi::FsXattr::read_from_prefix(data).ok()?;
                Some(flags_in(&set).map_or(FlagsRequest::SetUnsupported, FlagsRequest::Set))
            }
            _ => None,
        }
    }
}

/// The flags of a structure; `None` when it has anything else, such as a project's number.
fn flags_in(set: &abi::FsXattr) -> Option<InodeFlags> {
    let mut left = set.flags;
    let mut flags = InodeFlags::default();
    for (bit, flag) in STRUCTURE_BITS {
        if left & bit != 0 {
            left &= !bit;
            flags = flags.or(flag);
        }
    }
    let others = [left, set.extent_bytes, set.project, set.copied_extent_bytes];
    (others == [0; 4]).then_some(flags)
}

/// The answer to a request that reads flags.
pub(crate) fn answer(flags: InodeFlags, form: Form) -> Vec<u8> {
    let head = abi::IoctlOut::default();
    match form {
        Form::Word => [head.as_bytes(), flags.bits().as_bytes()].concat(),
        Form::Structure => {
            let bits = STRUCTURE_BITS.iter().filter(|(_, flag)| flags.has(*flag));
            let bits = bits.map(|(bit, _)| bit).sum();
            [head.as_bytes(), abi::FsXattr { flags: bits, ..abi::FsXattr::default() }.as_bytes()].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cmd: u32, data: &[u8]) -> Option<FlagsRequest> {
        FlagsRequest::parse(&abi::IoctlIn { cmd, ..abi::IoctlIn::default() }, data)
    }

    /// The numbers as `linux/fs.h` makes them of direction, size, letter and number.
    #[test]
    fn numbers_are_the_kernels() {
        let number = |direction: u32, size: usize, letter: u8, number: u32| {
            direction << 30 | (size as u32) << 16 | u32::from(letter) << 8 | number
        };
        let (set, get, long) = (1, 2, 8);
        assert_eq!(number(get, long, b'f', 1), GET_WORD);
        assert_eq!(number(set, long, b'f', 2), SET_WORD);
        assert_eq!(number(get, size_of::<abi::FsXattr>(), b'X', 31), GET_STRUCTURE);
        assert_eq!(number(set, size_of::<abi::FsXattr>(), b'X', 32), SET_STRUCTURE);
    }

    #[test]
    fn both_forms_carry_the_same_flags() {
        for bits in [0, 0x10, 0x20, 0x40, 0x50, 0x70] {
            let flags = InodeFlags::from_bits(bits);
            let head = size_of::<abi::IoctlOut>();
            let set = |cmd, form| ask(cmd, &answer(flags, form)[head..]);
            assert_eq!(set(SET_WORD, Form::Word), Some(FlagsRequest::Set(flags)));
            assert_eq!(set(SET_STRUCTURE, Form::Structure), Some(FlagsRequest::Set(flags)));
        }
    }

    #[test]
    fn what_inodes_do_not_have_is_refused() {
        let set = |set: abi::FsXattr| ask(SET_STRUCTURE, set.as_bytes());
        let none = abi::FsXattr::default();
        assert_eq!(set(abi::FsXattr { project: 7, ..none }), Some(FlagsRequest::SetUnsupported));
        assert_eq!(set(abi::FsXattr { flags: 0x200, ..none }), Some(FlagsRequest::SetUnsupported));
        assert_eq!(set(abi::FsXattr { extents: 3, ..none }), Some(FlagsRequest::Set(InodeFlags::default())));
        // the file system decides about unknown flags in a word
        let noatime = InodeFlags::from_bits(0x80);
        assert_eq!(ask(SET_WORD, &0x80u32.to_ne_bytes()), Some(FlagsRequest::Set(noatime)));
        assert_eq!(ask(SET_WORD, &[1, 2]), None);
        assert_eq!(ask(0x5401, &[]), None);
        // the numbers of 32-bit programs
        assert_eq!(ask(0x8004_6601, &[0; 4]), None);
        assert_eq!(ask(0x4004_6602, &[0; 4]), None);
    }
}
