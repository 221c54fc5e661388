//! Every bound of doors in one place. Units are in the names.

/// Largest part of a file that one operation reads for a client.
pub const READ_BYTES: u64 = 256 << 10;
/// The same while a user's clients are slow to take what was read for them.
pub const READ_BYTES_TIGHT: u64 = 16 << 10;
/// A file up to this size is read with the operation that opens it.
pub const READ_WHOLE_BYTES: u64 = 64 << 10;
/// What comes in is written in pieces of this size.
pub const WRITE_BYTES: usize = 256 << 10;
/// The same while much of a user's is on its way.
pub const WRITE_BYTES_TIGHT: usize = 16 << 10;
/// Memory for content that was read and not yet taken by clients, which users share; who wants to read more waits.
pub const CONTENT_BYTES_MAX: usize = 96 << 20;
/// Memory for content that came in and is not written yet, which users share; who has no part of it writes what comes as it comes.
pub const INCOMING_BYTES_MAX: usize = 48 << 20;
/// How long who is being read for waits for a part of that memory, seconds: longer than clients that take nothing may hold theirs.
pub const CONTENT_SECS_MAX: u64 = 3 * STALL_SECS_MAX;
/// Files that are read for their checksums at a time, which users share.
pub const HASHING_MAX: usize = 8;
/// Names in one step of a listing.
pub const LIST_STEP: usize = 1000;
/// Symbolic links in the resolution of one path.
pub const SYMLINKS_MAX: usize = 40;
/// Longest request line with the headers.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long a client may take for the head of a request, seconds, from its first byte.
pub const HEAD_SECS_MAX: u64 = 20;
/// How long a connection may be idle between requests, seconds.
pub const IDLE_SECS_MAX: u64 = 300;
/// A connection that has been idle for so long takes next to no memory, seconds.
pub const REST_SECS: u64 = 2;
/// How often it is looked whether memory that connections had is to be given back to the system, seconds.
pub const GIVE_BACK_SECS: u64 = 5;
/// It is if so many fewer are open or used than were.
pub const GIVE_BACK_LEAST: u64 = 256;
/// How long a client may take none of an answer, or send none of a body, seconds.
pub const STALL_SECS_MAX: u64 = 60;
/// A client that was waited for for longer than that must have moved so many bytes a second meanwhile.
pub const SLOW_BYTES_PER_SEC: u64 = 1024;
/// How long, and how much, is read on and thrown away after an answer that ends its connection, seconds.
pub const LINGER_SECS_MAX: u64 = 1;
/// See [`LINGER_SECS_MAX`].
pub const LINGER_BYTES_MAX: usize = 1 << 20;
/// Who comes when there are too many connections is told so, but at most so many at a time; others see theirs closed.
pub const TURNED_AWAY_MAX: usize = 64;
/// How long a TLS handshake may take, seconds.
pub const HANDSHAKE_SECS_MAX: u64 = 10;
/// Requests that a door works on at a time, of one user at most four fifths; others wait for their turn.
pub const AT_WORK_MAX: usize = 640;
/// How long a request waits for its turn, seconds; who would wait for longer is told to come back later.
pub const TURN_SECS_MAX: u64 = 20;
/// File descriptors that are kept for everything but connections.
pub const DESCRIPTORS_KEPT: u64 = 256;
