//! The FUSE door: carries the kernel's requests to an [`Fs`](leeward_vfs::Fs) and its answers back. No policy.
//!
//! * [`mount`] checks the mount point, mounts and starts the threads; [`Mount`] ends it.
//! * `door`: one method per request: build the context and the [`Op`](leeward_volume::Op), hand over the reply.
//! * `carry`: runs an operation at once on the kernel's thread, or, where it would wait, on the pool.
//! * `pool`: the threads that may wait, shared fairly between users.
//! * `listing`: readdir and readdirplus over a [`Cursor`](leeward_vfs::Cursor).
//! * `notify`: tells the kernel what to forget when something changed behind its back.
//! * `convert`: attributes, times, flags.
//!
//! What the kernel may cache: everything, for an hour, since every change comes through it or is announced by the
//! `notify` thread. Files have no handles (OPEN and FLUSH are answered ENOSYS once, then never sent again), directories do.
//! `syncfs(2)` does not reach a FUSE server of this kind: it returns at once; fsync of any file or directory does reach it.
//!
//! Invariants: a thread that reads requests never waits for a store; a panic below answers EIO and the mount goes on.

mod carry;
mod convert;
mod door;
mod listing;
mod mount;
mod mountinfo;
mod notify;
mod pool;

pub use mount::{Access, Mount, MountError, Options, Unmounted, mount};
