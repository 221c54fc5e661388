//! The FUSE door: carries the kernel's requests to a [`Gate`](leeward_vfs::Gate) and the answers
//! back. No policy.
//!
//! * [`mount`] checks the mount point, mounts and starts the threads; [`Mount`] ends it.
//! * `kernel`: the FUSE protocol, its channels (`/dev/fuse`, io_uring) and the threads.
//! * `door`: one method per request: build the context and the [`Op`](leeward_fs::Op), hand over
//!   the reply.
//! * `listing`: readdir and readdirplus over a [`Cursor`](leeward_vfs::Cursor).
//! * `notify`: tells the kernel what to forget when something changed behind its back.
//! * `convert`: attributes, times, flags of calls. `file_flags`: flags of inodes.
//!
//! What the kernel may cache: everything, for an hour, since every change comes through it or is
//! announced by the `notify` thread. Files have no handles (OPEN and FLUSH are answered ENOSYS
//! once, then never sent again), directories do. `syncfs(2)` does not reach a FUSE server of this
//! kind: it returns at once; fsync of any file or directory does reach it.
//!
//! Invariants: a thread that reads requests never waits for a store; a panic below answers EIO and
//! the mount goes on.

mod convert;
mod door;
mod file_flags;
mod kernel;
mod listing;
mod locks;
mod mount;
mod mountinfo;
mod notify;
mod seek;
mod subdir;

pub use mount::{Access, IoUring, Mount, MountError, Options, Restrictions, Unmounted, mount, remount};
