//! Content of files on a disk of this machine, which stays over restarts of the mount.
//!
//! It holds blocks of files under inode and number. Each is kept with the **version** that the
//! server gave it (`Op::ContentVersions`): as long as a block of a file has one version it has one
//! content. Nothing on the disk is believed: before a block is used the client has the version that
//! the file's block has now, under a lease, and the block's checksum, over its bytes and that
//! version, must hold. So what is old, torn, damaged, or of another cell is not found, and the
//! server is asked.
//!
//! The slots, and what becomes of a disk that fails, are those of `leeward_cache`.

use leeward_cache::{BLOCK_BYTES, DISK_CACHE_BYTES_MIN, DiskCache, DiskCacheFigures, Form, Key};
use leeward_env::disk::real::RealDisk;
use leeward_env::limits::VERSION_BLOCK_BYTES;
use leeward_env::{Env, FileLock};
use leeward_fs::NodeId;
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Before the bytes of a block: their number u32 and their checksum u64, little-endian.
const HEAD_BYTES: usize = BLOCK_BYTES;
const FORM: Form = Form { magic: *b"lee-cont", part_bytes: HEAD_BYTES + VERSION_BLOCK_BYTES as usize };
/// The file that the process which uses the cache locks.
const LOCK: &str = "leeward.lock";
/// What may be in the directory: files of the cache, and what `mkfs` makes.
const OWN_NAMES: [&str; 4] = ["leeward.blocks", "leeward.index", LOCK, "lost+found"];

/// Where a cache is to be, and how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The directory, for one mount.
    pub dir: PathBuf,
    /// Most bytes; less than 16 MiB count as that.
    pub bytes: u64,
}

/// See the module's head.
pub(super) struct DiskContent {
    cache: DiskCache<BlockKey>,
    /// Held as long as the cache is used.
    _lock: FileLock,
}

/// A block of a file, and the version of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) number: u64,
    pub(super) version: u64,
    /// Bytes: fewer than those of a block at the end of the file.
    pub(super) bytes: usize,
}

/// Inode and number are the key.
#[derive(Clone, Copy)]
struct BlockKey {
    node: NodeId,
    number: u32,
    version: u64,
}

impl PartialEq for BlockKey {
    fn eq(&self, other: &BlockKey) -> bool {
        (self.node, self.number) == (other.node, other.number)
    }
}

impl Eq for BlockKey {}

impl Hash for BlockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.node, self.number).hash(state);
    }
}

impl Key for BlockKey {
    /// Inode u64, version u64, number u32, little-endian.
    fn encode(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.node.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; 20]) -> BlockKey {
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let number = bytes[16..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        BlockKey { node: NodeId(long(0)), version: long(8), number }
    }
}

impl BlockKey {
    /// The checksum of the block's bytes.
    fn sum(&self, bytes: &[u8]) -> u64 {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        digest.update(&self.encode());
        digest.update(bytes);
        digest.finalize()
    }
}

fn key(node: NodeId, number: u64, version: u64) -> Option<BlockKey> {
    Some(BlockKey { node, number: u32::try_from(number).ok()?, version })
}

/// Bytes of a block on disk.
fn stored_bytes(bytes: usize) -> usize {
    HEAD_BYTES + bytes.next_multiple_of(BLOCK_BYTES)
}

impl DiskContent {
    /// Opens or makes the cache.
    ///
    /// # Errors
    /// The disk's, that another mount uses the directory, or that it has other files.
    pub(super) fn open(env: &Env, options: &CacheOptions) -> io::Result<DiskContent> {
        let dir = &options.dir;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        refuse_used(dir)?;
        // content of files that not everybody may read
        std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        let lock = lock(dir)?;
        let disk = RealDisk::open(dir)?;
        let (name, bytes) = (dir.to_string_lossy(), options.bytes.max(DISK_CACHE_BYTES_MIN));
        let cache = DiskCache::open(env, &disk, (&name, "content"), FORM, bytes)?;
        Ok(DiskContent { cache, _lock: lock })
    }

    /// Whether there is one of these blocks, of whatever version.
    pub(super) fn has_any(&self, node: NodeId, mut blocks: std::ops::Range<u64>) -> bool {
        blocks.any(|number| key(node, number, 0).is_some_and(|key| self.cache.len_of(key).is_some()))
    }

    /// Whether all of these are there.
    pub(super) fn has(&self, node: NodeId, blocks: &[Block]) -> bool {
        blocks.iter().all(|block| {
            let kept = key(node, block.number, 0).and_then(|key| self.cache.kept_as(key));
            kept.is_some_and(|kept| kept.version == block.version)
        })
    }

    /// The bytes of these blocks, one after the other, if all are there and undamaged. It may wait
    /// for the disk for half a second.
    pub(super) fn read(&self, node: NodeId, blocks: &[Block]) -> Option<Vec<u8>> {
        let keyed =
            |block: &Block| Some((key(node, block.number, block.version)?, stored_bytes(block.bytes)));
        let parts: Vec<(BlockKey, usize)> = blocks.iter().map(keyed).collect::<Option<_>>()?;
        let stored = self.cache.read(&parts)?;
        let (mut rest, mut all, mut damaged) = (&stored[..], Vec::new(), Vec::new());
        for ((key, len), block) in parts.iter().zip(blocks) {
            let (part, after) = rest.split_at(*len);
            rest = after;
            let bytes = &part[HEAD_BYTES..HEAD_BYTES + block.bytes];
            let head = (block.bytes as u32).to_le_bytes();
            if part[..4] != head || part[4..12] != key.sum(bytes).to_le_bytes() {
                damaged.push((*key, *len));
            }
            all.extend_from_slice(bytes);
        }
        self.cache.forget(&damaged);
        damaged.is_empty().then_some(all)
    }

    /// Keeps a block, if there is time for it.
    pub(super) fn keep(&self, node: NodeId, block: Block, bytes: &[u8]) {
        let Some(key) = key(node, block.number, block.version) else { return };
        let is_there = self.cache.kept_as(key).is_some_and(|kept| kept.version == key.version);
        if is_there || bytes.is_empty() || bytes.len() > VERSION_BLOCK_BYTES as usize {
            return;
        }
        let mut stored = vec![0; stored_bytes(bytes.len())];
        stored[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        stored[4..12].copy_from_slice(&key.sum(bytes).to_le_bytes());
        stored[HEAD_BYTES..HEAD_BYTES + bytes.len()].copy_from_slice(bytes);
        self.cache.keep(key, &stored);
    }

    pub(super) fn figures(&self) -> DiskCacheFigures {
        self.cache.figures()
    }

    /// Waits until all is written. For tests.
    pub(super) fn settle(&self) {
        self.cache.settle();
    }
}

/// Refuses a directory that has files of somebody else: it would be closed to them.
fn refuse_used(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        if !OWN_NAMES.iter().any(|own| name == *own) {
            let text =
                format!("it has other files ({}): name a directory for the cache alone", name.display());
            return Err(io::Error::other(text));
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> io::Result<FileLock> {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(dir.join(LOCK))?;
    FileLock::try_take(file).map_err(|e| match e {
        TryLockError::WouldBlock => io::Error::other("another mount or cell uses it"),
        TryLockError::Error(e) => e,
    })
}
