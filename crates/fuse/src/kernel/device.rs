//! `/dev/fuse`: the channel that every kernel has.

use super::abi::{self, InHeader, notify};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An open `/dev/fuse`, mounted.
pub(crate) struct Device(File);

/// A buffer for one request, whole pages of its own: what a request does not touch takes no memory.
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// For requests with up to so many bytes of data.
    pub(crate) fn new(payload_max: usize) -> Buffer {
        const HEADERS: usize = 4096;
        Buffer(vec![0; (HEADERS + payload_max).max(abi::READ_BUFFER_MIN)])
    }
}

impl Device {
    pub(crate) fn new(file: File) -> Device {
        Device(file)
    }

    /// Waits for the next request; `None`: there will be none, the file system is unmounted.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn read<'b>(&self, buffer: &'b mut Buffer) -> io::Result<Option<&'b [u8]>> {
        loop {
            match (&self.0).read(&mut buffer.0) {
                Ok(len) => return Ok(Some(&buffer.0[..len])),
                Err(e) => match e.raw_os_error() {
                    // ENOENT: the request was interrupted before it could be read
                    Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => (),
                    Some(libc::ENODEV) => return Ok(None),
                    _ => return Err(e),
                },
            }
        }
    }

    /// Writes a reply or a notification in one call.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn write(&self, header: &abi::OutHeader, payload: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
        let parts = if payload.is_empty() { &parts[..1] } else { &parts[..] };
        (&self.0).write_vectored(parts).map(drop)
    }

    /// Makes the kernel forget a name.
    ///
    /// # Errors
    /// What the kernel says; ENOENT: it knew nothing of it.
    pub(crate) fn forget_name(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        let out = abi::NotifyInvalEntry { parent, name_len: name.len() as u32, flags: 0 };
        let payload = [out.as_bytes(), name, &[0]].concat();
        self.notify(notify::INVAL_ENTRY, &payload)
    }

    /// Makes the kernel forget the attributes and every page of an inode.
    ///
    /// # Errors
    /// What the kernel says; ENOENT: it knew nothing of it.
    pub(crate) fn forget_inode(&self, ino: u64) -> io::Result<()> {
        self.notify(notify::INVAL_INODE, abi::NotifyInvalInode { ino, offset: 0, len: 0 }.as_bytes())
    }

    /// Makes the kernel forget some pages of an inode, and its attributes.
    ///
    /// # Errors
    /// What the kernel says; ENOENT: it knew nothing of it.
    pub(crate) fn forget_pages(&self, ino: u64, range: &Range<u64>) -> io::Result<()> {
        let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
        // 0: up to the end
        let len = i64::try_from(range.end - range.start).unwrap_or(0);
        self.notify(notify::INVAL_INODE, abi::NotifyInvalInode { ino, offset, len }.as_bytes())
    }

    /// Makes the kernel forget the attributes of an inode, and ask for them before it uses its
    /// pages. Takes no lock that a request may hold.
    ///
    /// # Errors
    /// What the kernel says; ENOENT: it knew nothing of it.
    pub(crate) fn forget_attributes(&self, ino: u64) -> io::Result<()> {
        self.notify(notify::INVAL_INODE, abi::NotifyInvalInode { ino, offset: -1, len: 0 }.as_bytes())
    }

    fn notify(&self, code: i32, payload: &[u8]) -> io::Result<()> {
        let len = (size_of::<abi::OutHeader>() + payload.len()) as u32;
        self.write(&abi::OutHeader { len, error: code, unique: 0 }, payload)
    }

    /// Answers one request by number, for the handshake.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn answer<T: IntoBytes + Immutable>(&self, unique: u64, value: &T) -> io::Result<()> {
        let len = (size_of::<abi::OutHeader>() + size_of::<T>()) as u32;
        self.write(&abi::OutHeader { len, error: 0, unique }, value.as_bytes())
    }
}

/// The header of a request that could not be read further.
pub(crate) fn head_of(bytes: &[u8]) -> Option<InHeader> {
    InHeader::read_from_prefix(bytes).ok().map(|(head, _)| head)
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Device {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
