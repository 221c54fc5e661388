//! Every limit in one place. Units are in the names.

/// Longest name of a directory entry.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest name of a snapshot: with the number of its directory it is the name of an entry further
/// down.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 234;
/// Longest target of a symbolic link.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Largest file: 16 TiB.
pub const FILE_BYTES_MAX: u64 = 16 << 40;
/// Longest value of one extended attribute.
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;
/// Longest name of an extended attribute.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Names plus values of all extended attributes of one inode.
pub const XATTR_TOTAL_BYTES_MAX: usize = 1 << 20;
/// Most hard links of an inode.
pub const LINKS_MAX: u32 = 1 << 20;
/// Largest single write that reaches the data log.
pub const WRITE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a file that have a version of their own, for caches of other machines.
pub const VERSION_BLOCK_BYTES: u64 = 64 << 10;
/// Versions in one answer.
pub const VERSION_BLOCKS_MAX: u64 = 256;
/// Changes that a client on another machine has told its programs and the server has not answered,
/// and bytes that they bring, at most.
pub const BEHIND_CHANGES_MAX: usize = 512;
/// Bytes of a file that such a change moves to another directory, at most.
pub const BEHIND_MOVED_BYTES_MAX: u64 = 64 << 10;
/// See [`BEHIND_CHANGES_MAX`].
pub const BEHIND_BYTES_MAX: u64 = 32 << 20;
/// Logical bytes in one segment.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;
/// On fsync, pending data up to this many bytes goes into the metadata journal (inline data)
/// instead of waiting for its segment.
pub const INLINE_BYTES_MAX: usize = 256 << 10;
/// Memory for data that is not yet in a store, over all flows.
pub const DIRTY_BYTES_MAX: usize = 96 << 20;
/// Longest time between a write and its commit without fsync.
pub const COMMIT_INTERVAL_MS: u64 = 500;
/// A running transaction with this many records is committed early.
pub const COMMIT_RECORDS_MAX: usize = 2_048;
/// With this many, an operation that makes a change waits for a commit.
pub const RUNNING_RECORDS_MAX: usize = 131_072;
/// The same for the bytes in its records: it is committed early.
pub const RUNNING_BYTES_LARGE: usize = 16 << 20;
/// Changes wait for a commit.
pub const RUNNING_BYTES_MAX: usize = 64 << 20;
/// One transfer to a store. Larger ones make others wait.
pub const STORE_SLICE_BYTES: usize = 256 << 10;
/// Transfers to or from one store at a time, unless the settings say otherwise. Enough for an
/// object store: at 30 ms a request 32 reads of 128 KiB are 130 MB/s, 32 of a MiB 1 GB/s. More
/// would wait in the store's queues, where nobody can overtake.
pub const STORE_TRANSFERS_MAX: usize = 32;
/// Threads that run calls which wait (cold reads, fsync, budgets).
pub const BLOCKING_THREADS_MAX: usize = 64;
/// Additional threads, for users who have few while other users hold all of those.
pub const BLOCKING_THREADS_RESERVE: usize = 192;
