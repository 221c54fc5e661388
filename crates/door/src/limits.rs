//! Every limit of doors in one place. Units are in the names.

/// Largest part of a file that one operation reads for a client.
pub const READ_BYTES: u64 = 256 << 10;
/// The same while a user's clients are slow to take what was read for them.
pub const READ_BYTES_TIGHT: u64 = 16 << 10;
/// A file up to this size is read with the operation that opens it.
pub const READ_WHOLE_BYTES: u64 = 64 << 10;
/// Incoming content is written in pieces of this size.
pub const WRITE_BYTES: usize = 256 << 10;
/// The same while much of a user's content waits to be written.
pub const WRITE_BYTES_TIGHT: usize = 16 << 10;
/// Memory for content that was read and not yet taken by clients, which users share; further reads
/// wait.
pub const CONTENT_BYTES_MAX: usize = 96 << 20;
/// Memory for content that arrived and is not written yet, which users share. A client without a
/// part of it has its content written as it arrives.
pub const INCOMING_BYTES_MAX: usize = 48 << 20;
/// Longest wait of a reading client for a part of that memory, seconds: longer than clients that
/// take nothing may hold theirs.
pub const CONTENT_SECS_MAX: u64 = 3 * STALL_SECS_MAX;
/// Files that are read for their checksums at a time, which users share.
pub const HASHING_MAX: usize = 8;
/// Names in one step of a listing.
pub const LIST_STEP: usize = 1000;
/// Symbolic links in the resolution of one path.
pub const SYMLINKS_MAX: usize = 40;
/// Longest request line with the headers.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Time for a client to send the head of a request, seconds, from its first byte.
pub const HEAD_SECS_MAX: u64 = 20;
/// Time that a connection may be idle between requests, seconds.
pub const IDLE_SECS_MAX: u64 = 300;
/// A connection that was idle for this time takes next to no memory, seconds.
pub const REST_SECS: u64 = 2;
/// How often it is checked whether freed memory of connections should go back to the system,
/// seconds.
pub const GIVE_BACK_SECS: u64 = 5;
/// It does if this many fewer connections are open or in use than before.
pub const GIVE_BACK_LEAST: u64 = 256;
/// Time that a client may take none of an answer, or send none of a body, seconds.
pub const STALL_SECS_MAX: u64 = 60;
/// A client that was waited for longer than that must have moved this many bytes a second
/// meanwhile.
pub const SLOW_BYTES_PER_SEC: u64 = 1024;
/// After an answer that ends its connection, input is read and dropped for this time, seconds,
pub const LINGER_SECS_MAX: u64 = 1;
/// and up to this many bytes.
pub const LINGER_BYTES_MAX: usize = 1 << 20;
/// Clients that are told at a time that there are too many connections; the connections of others
/// are just closed.
pub const TURNED_AWAY_MAX: usize = 64;
/// Time for a TLS handshake, seconds.
pub const HANDSHAKE_SECS_MAX: u64 = 10;
/// Requests that a door works on at a time, of one user at most four fifths; others wait for their
/// turn.
pub const AT_WORK_MAX: usize = 640;
/// Longest wait of a request for its turn, seconds; a client that would wait for longer is told to
/// come back later.
pub const TURN_SECS_MAX: u64 = 20;
/// File descriptors that are kept for everything but connections.
pub const DESCRIPTORS_KEPT: u64 = 256;
