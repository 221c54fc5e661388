//! One request of the kernel, taken apart.
//!
//! A request is a header, a structure of fixed size and what varies: names that end in NUL, data.
//! `/dev/fuse` gives the last two in one piece; a ring has a buffer for each.

use super::abi::{self, InHeader, opcode};
use zerocopy::FromBytes;

/// A request, whose names and data are where the kernel put them.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) head: InHeader,
    pub(crate) call: Call<'a>,
}

/// What is asked for. `head.node` says of which inode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookups: u64,
    },
    /// [`abi::ForgetOne`] one after the other.
    BatchForget {
        all: &'a [u8],
    },
    GetAttr,
    SetAttr(abi::SetAttrIn),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MkNod {
        args: abi::MkNodIn,
        name: &'a [u8],
    },
    MkDir {
        args: abi::MkDirIn,
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    RmDir {
        name: &'a [u8],
    },
    Rename {
        new_dir: u64,
        flags: u32,
        name: &'a [u8],
        new_name: &'a [u8],
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Create {
        args: abi::CreateIn,
        name: &'a [u8],
    },
    TmpFile {
        args: abi::CreateIn,
    },
    Read(abi::ReadIn),
    Write {
        args: abi::WriteIn,
        data: &'a [u8],
    },
    StatFs,
    Release(abi::ReleaseIn),
    Flush(abi::FlushIn),
    Fsync {
        handle: u64,
    },
    FsyncDir,
    GetLock(abi::LkIn),
    SetLock {
        args: abi::LkIn,
        wait: bool,
    },
    SetXattr {
        flags: u32,
        name: &'a [u8],
        value: &'a [u8],
    },
    GetXattr {
        size: u32,
        name: &'a [u8],
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Init {
        args: abi::InitIn,
        flags2: u32,
    },
    Open {
        flags: u32,
    },
    OpenDir,
    /// Asked where the kernel checks no rights itself.
    Access {
        mask: u32,
    },
    /// `plus`: with attributes.
    ReadDir {
        args: abi::ReadIn,
        plus: bool,
    },
    ReleaseDir {
        handle: u64,
    },
    Fallocate(abi::FallocateIn),
    Lseek(abi::LseekIn),
    /// `wide`: the reply has 64 bits.
    CopyFileRange {
        args: abi::CopyFileRangeIn,
        wide: bool,
    },
    Statx,
    Ioctl {
        args: abi::IoctlIn,
        data: &'a [u8],
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// The kernel remembers that there is no such thing here.
    Unknown,
}

/// Why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'a> Request<'a> {
    /// From one piece, as `/dev/fuse` gives it.
    pub(crate) fn from_device(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let (head, body) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed)?;
        let len = fixed_len(head.opcode).min(body.len());
        let (fixed, rest) = body.split_at(len);
        Request::from_parts(head, fixed, rest)
    }

    /// From its parts, as a ring gives them. `fixed` may be longer than needed.
    pub(crate) fn from_parts(
        head: InHeader,
        fixed: &'a [u8],
        rest: &'a [u8],
    ) -> Result<Request<'a>, Malformed> {
        let extensions = usize::from(head.extensions_len) * 8;
        let rest = rest.get(..rest.len().saturating_sub(extensions)).ok_or(Malformed)?;
        let call = call(head.opcode, fixed, Rest(rest))?;
        Ok(Request { head, call })
    }
}

/// Bytes of the structure of fixed size.
fn fixed_len(opcode: u32) -> usize {
    match opcode {
        opcode::FORGET => size_of::<abi::ForgetIn>(),
        opcode::BATCH_FORGET => size_of::<abi::BatchForgetIn>(),
        opcode::GETATTR => size_of::<abi::GetAttrIn>(),
        opcode::SETATTR => size_of::<abi::SetAttrIn>(),
        opcode::MKNOD => size_of::<abi::MkNodIn>(),
        opcode::MKDIR => size_of::<abi::MkDirIn>(),
        opcode::RENAME => size_of::<abi::RenameIn>(),
        opcode::RENAME2 => size_of::<abi::Rename2In>(),
        opcode::LINK => size_of::<abi::LinkIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<abi::CreateIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<abi::ReadIn>(),
        opcode::WRITE => size_of::<abi::WriteIn>(),
        opcode::SETXATTR => size_of::<abi::SetXattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<abi::GetXattrIn>(),
        opcode::INIT => size_of::<abi::InitIn>(),
        opcode::OPEN => size_of::<abi::OpenIn>(),
        opcode::ACCESS => size_of::<abi::AccessIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<abi::ReleaseIn>(),
        opcode::FLUSH => size_of::<abi::FlushIn>(),
        opcode::FSYNC => size_of::<abi::FsyncIn>(),
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => size_of::<abi::LkIn>(),
        opcode::INTERRUPT => size_of::<abi::InterruptIn>(),
        opcode::IOCTL => size_of::<abi::IoctlIn>(),
        opcode::FALLOCATE => size_of::<abi::FallocateIn>(),
        opcode::LSEEK => size_of::<abi::LseekIn>(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => size_of::<abi::CopyFileRangeIn>(),
        _ => 0,
    }
}

/// The part that varies.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// A name up to its NUL.
    fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(Malformed)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    fn data(self, len: u32) -> Result<&'a [u8], Malformed> {
        self.0.get(..len as usize).ok_or(Malformed)
    }
}

fn fixed<T: FromBytes>(bytes: &[u8]) -> Result<T, Malformed> {
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| Malformed)
}

fn call<'a>(opcode: u32, args: &'a [u8], mut rest: Rest<'a>) -> Result<Call<'a>, Malformed> {
    Ok(match opcode {
        opcode::LOOKUP => Call::Lookup { name: rest.name()? },
        opcode::FORGET => Call::Forget { lookups: fixed::<abi::ForgetIn>(args)?.lookups },
        opcode::BATCH_FORGET => {
            let count = fixed::<abi::BatchForgetIn>(args)?.count as usize;
            let len = count.checked_mul(size_of::<abi::ForgetOne>()).ok_or(Malformed)?;
            Call::BatchForget { all: rest.0.get(..len).ok_or(Malformed)? }
        }
        opcode::GETATTR => Call::GetAttr,
        opcode::SETATTR => Call::SetAttr(fixed(args)?),
        opcode::READLINK => Call::ReadLink,
        opcode::SYMLINK => Call::Symlink { name: rest.name()?, target: rest.name()? },
        opcode::MKNOD => Call::MkNod { args: fixed(args)?, name: rest.name()? },
        opcode::MKDIR => Call::MkDir { args: fixed(args)?, name: rest.name()? },
        opcode::UNLINK => Call::Unlink { name: rest.name()? },
        opcode::RMDIR => Call::RmDir { name: rest.name()? },
        opcode::RENAME => {
            let new_dir = fixed::<abi::RenameIn>(args)?.new_dir;
            Call::Rename { new_dir, flags: 0, name: rest.name()?, new_name: rest.name()? }
        }
        opcode::RENAME2 => {
            let abi::Rename2In { new_dir, flags, .. } = fixed(args)?;
            Call::Rename { new_dir, flags, name: rest.name()?, new_name: rest.name()? }
        }
        opcode::LINK => Call::Link { node: fixed::<abi::LinkIn>(args)?.node, name: rest.name()? },
        opcode::CREATE => Call::Create { args: fixed(args)?, name: rest.name()? },
        opcode::TMPFILE => Call::TmpFile { args: fixed(args)? },
        opcode::READ => Call::Read(fixed(args)?),
        opcode::READDIR => Call::ReadDir { args: fixed(args)?, plus: false },
        opcode::READDIRPLUS => Call::ReadDir { args: fixed(args)?, plus: true },
        opcode::STATFS => Call::StatFs,
        opcode::RELEASE => Call::Release(fixed(args)?),
        opcode::FLUSH => Call::Flush(fixed(args)?),
        opcode::FSYNC => Call::Fsync { handle: fixed::<abi::FsyncIn>(args)?.handle },
        opcode::FSYNCDIR => Call::FsyncDir,
        opcode::GETLK => Call::GetLock(fixed(args)?),
        opcode::SETLK => Call::SetLock { args: fixed(args)?, wait: false },
        opcode::SETLKW => Call::SetLock { args: fixed(args)?, wait: true },
        opcode::LISTXATTR => Call::ListXattr { size: fixed::<abi::GetXattrIn>(args)?.size },
        opcode::REMOVEXATTR => Call::RemoveXattr { name: rest.name()? },
        opcode::OPEN => Call::Open { flags: fixed::<abi::OpenIn>(args)?.flags },
        opcode::OPENDIR => Call::OpenDir,
        opcode::ACCESS => Call::Access { mask: fixed::<abi::AccessIn>(args)?.mask },
        opcode::RELEASEDIR => Call::ReleaseDir { handle: fixed::<abi::ReleaseIn>(args)?.handle },
        opcode::FALLOCATE => Call::Fallocate(fixed(args)?),
        opcode::LSEEK => Call::Lseek(fixed(args)?),
        opcode::COPY_FILE_RANGE => Call::CopyFileRange { args: fixed(args)?, wide: false },
        opcode::COPY_FILE_RANGE_64 => Call::CopyFileRange { args: fixed(args)?, wide: true },
        opcode::STATX => Call::Statx,
        opcode::INTERRUPT => Call::Interrupt { unique: fixed::<abi::InterruptIn>(args)?.unique },
        opcode::DESTROY => Call::Destroy,
        opcode::WRITE | opcode::SETXATTR | opcode::GETXATTR | opcode::IOCTL | opcode::INIT => {
            with_data(opcode, args, rest)?
        }
        _ => Call::Unknown,
    })
}

/// Those whose data has a length in the structure, or whose structure has grown.
fn with_data<'a>(opcode: u32, args: &'a [u8], mut rest: Rest<'a>) -> Result<Call<'a>, Malformed> {
    Ok(match opcode {
        opcode::WRITE => {
            let args: abi::WriteIn = fixed(args)?;
            Call::Write { args, data: rest.data(args.size)? }
        }
        opcode::SETXATTR => {
            let abi::SetXattrIn { size, flags } = fixed(args)?;
            Call::SetXattr { flags, name: rest.name()?, value: rest.data(size)? }
        }
        opcode::IOCTL => {
            let args: abi::IoctlIn = fixed(args)?;
            Call::Ioctl { args, data: rest.data(args.in_size)? }
        }
        opcode::GETXATTR => Call::GetXattr { size: fixed::<abi::GetXattrIn>(args)?.size, name: rest.name()? },
        _ => {
            let args: abi::InitIn = fixed(args)?;
            let more = abi::InitInMore::read_from_prefix(rest.0);
            Call::Init { args, flags2: more.map_or(0, |(more, _)| more.flags2) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    /// A request as `/dev/fuse` gives it.
    fn bytes(opcode: u32, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let len = (size_of::<InHeader>() + body.len()) as u32;
        let head =
            InHeader { len, opcode, unique: 7, node: 9, uid: 1000, gid: 100, pid: 1, ..InHeader::default() };
        [head.as_bytes(), &body].concat()
    }

    /// The same as a ring gives it: the structure in an area that is longer.
    fn by_ring(bytes: &[u8], check: impl FnOnce(Result<Request<'_>, Malformed>)) {
        let (head, body) = InHeader::read_from_prefix(bytes).expect("a header");
        let (fixed, rest) = body.split_at(fixed_len(head.opcode).min(body.len()));
        let mut area = [0; abi::RING_HEADER_BYTES];
        area[..fixed.len()].copy_from_slice(fixed);
        check(Request::from_parts(head, &area, rest));
    }

    fn both(bytes: &[u8], expected: &Call<'_>) {
        let request = Request::from_device(bytes).expect("a request");
        assert_eq!((&request.call, request.head.node, request.head.uid), (expected, 9, 1000));
        by_ring(bytes, |request| assert_eq!(&request.expect("a request").call, expected));
    }

    #[test]
    fn names_follow_structures() {
        both(&bytes(opcode::LOOKUP, &[b"a name\0"]), &Call::Lookup { name: b"a name" });
        both(&bytes(opcode::SYMLINK, &[b"n\0to/x\0"]), &Call::Symlink { name: b"n", target: b"to/x" });
        let args = abi::MkDirIn { mode: 0o755, umask: 0o22 };
        both(&bytes(opcode::MKDIR, &[args.as_bytes(), b"d\0"]), &Call::MkDir { args, name: b"d" });
        let args = abi::Rename2In { new_dir: 3, flags: 1, padding: 0 };
        let rename = Call::Rename { new_dir: 3, flags: 1, name: b"a", new_name: b"b" };
        both(&bytes(opcode::RENAME2, &[args.as_bytes(), b"a\0b\0"]), &rename);
        let rename = Call::Rename { new_dir: 3, flags: 0, name: b"a", new_name: b"b" };
        both(&bytes(opcode::RENAME, &[abi::RenameIn { new_dir: 3 }.as_bytes(), b"a\0b\0"]), &rename);
    }

    #[test]
    fn data_has_the_length_that_is_said() {
        let args = abi::WriteIn { offset: 4096, size: 5, ..abi::WriteIn::default() };
        let written = bytes(opcode::WRITE, &[args.as_bytes(), b"bytes"]);
        both(&written, &Call::Write { args, data: b"bytes" });
        assert!(Request::from_device(&written[..written.len() - 1]).is_err());
        let args = abi::IoctlIn { cmd: 9, in_size: 4, ..abi::IoctlIn::default() };
        both(&bytes(opcode::IOCTL, &[args.as_bytes(), b"data"]), &Call::Ioctl { args, data: b"data" });
        let args = abi::SetXattrIn { size: 3, flags: 1 };
        let set = bytes(opcode::SETXATTR, &[args.as_bytes(), b"user.x\0", b"a\0b"]);
        both(&set, &Call::SetXattr { flags: 1, name: b"user.x", value: b"a\0b" });
    }

    #[test]
    fn locks_name_their_owner() {
        let lock = abi::FileLock { start: 1, end: 9, kind: libc::F_WRLCK as u32, pid: 5 };
        let args = abi::LkIn { handle: 3, owner: 4, lock, flags: abi::LK_FLOCK, padding: 0 };
        both(&bytes(opcode::SETLK, &[args.as_bytes()]), &Call::SetLock { args, wait: false });
        both(&bytes(opcode::SETLKW, &[args.as_bytes()]), &Call::SetLock { args, wait: true });
        both(&bytes(opcode::GETLK, &[args.as_bytes()]), &Call::GetLock(args));
        let args = abi::FlushIn { handle: 3, lock_owner: 4, ..abi::FlushIn::default() };
        both(&bytes(opcode::FLUSH, &[args.as_bytes()]), &Call::Flush(args));
        let args = abi::ReleaseIn { handle: 3, ..abi::ReleaseIn::default() };
        both(&bytes(opcode::RELEASE, &[args.as_bytes()]), &Call::Release(args));
    }

    #[test]
    fn extensions_are_no_part_of_a_name() {
        let args = abi::MkDirIn::default();
        let mut made = bytes(opcode::MKDIR, &[args.as_bytes(), b"d\0", &[1; 16]]);
        made[36..38].copy_from_slice(&2u16.to_ne_bytes());
        both(&made, &Call::MkDir { args, name: b"d" });
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let all: Vec<u8> = (0..64).chain([0]).collect();
        for opcode in (0..60).chain([4096]) {
            let whole = bytes(opcode, &[&all, &all, &all]);
            for len in 0..whole.len() {
                // whatever comes of it, it comes without a panic
                let _ = Request::from_device(&whole[..len]);
                if len >= size_of::<InHeader>() {
                    by_ring(&whole[..len], |_| ());
                }
            }
            // of GETATTR nothing is needed
            let needed = fixed_len(opcode) > 0 && opcode != opcode::GETATTR;
            let bare = bytes(opcode, &[]);
            assert!(
                !needed || Request::from_device(&bare).is_err(),
                "request {opcode} without its structure"
            );
        }
    }
}
