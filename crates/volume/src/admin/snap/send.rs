//! Sends a snapshot as a stream.

use super::super::failure::about;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::shard::Shard;
use crate::stream::{At, Broken, StreamPart, Streamed};
use leeward_env::{hex, open_descriptor};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

/// Sends a snapshot of a volume's root directory, or what differs from an older one, with progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapSend {
    /// The volume.
    pub volume: String,
    /// The snapshot's name.
    pub name: String,
    /// The name of an older snapshot that the receiver has.
    pub from: Option<String>,
    /// What the receiver has of the stream already, if it has any.
    #[serde(default)]
    pub part: Option<StreamPart>,
    /// Where to.
    pub pipe: Pipe,
}

/// The end of a pipe that another process of this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// The process.
    pub pid: u32,
    /// Its descriptor.
    pub descriptor: i32,
    /// The inode of the pipe; 0 from an older version. The process may have closed the pipe, and
    /// opened another file at the same number.
    #[serde(default)]
    pub inode: u64,
}

impl Pipe {
    /// The end of a pipe that this process has, for as long as it has it.
    pub fn of(end: &impl AsFd) -> Pipe {
        let end = end.as_fd();
        let own = end.try_clone_to_owned().map(File::from);
        let inode = own.and_then(|file| file.metadata()).map_or(0, |attr| attr.ino());
        Pipe { pid: std::process::id(), descriptor: end.as_raw_fd(), inode }
    }

    /// Opens it. Requests come from root or the user who serves the cell, who may open it anyway.
    pub(super) fn open(self, write: bool) -> io::Result<File> {
        let file = open_descriptor(self.pid, self.descriptor, write)?;
        match self.inode == 0 || file.metadata()?.ino() == self.inode {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "who named the pipe has closed it")),
        }
    }
}

impl Reply for Streamed {
    const KIND: &'static str = "stream";
}

impl Request for SnapSend {
    type Reply = Streamed;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Streamed, Failure> {
        let volume = shard.volume_named(&self.volume)?;
        let failed = |broken| failure(broken, &format!("snapshot {} of volume {}", self.name, self.volume));
        let pipe = self.pipe.open(true).map_err(|e| failed(Broken::Pipe(e)))?;
        // what a copy shows must not be lost here by a crash
        shard.settle_all()?;
        let names = (self.from.as_deref().map(str::as_bytes), self.name.as_bytes(), self.part.as_ref());
        shard.send_stream(volume, names, &mut BufWriter::new(pipe), caller.progress).map_err(failed)
    }
}

/// The number of the error that the digests of both sides differ.
pub const DIFFERS: i32 = libc::EBADMSG;

/// For a person: why a stream is not sent or received.
pub(super) fn failure(broken: Broken, what: &str) -> Failure {
    match broken {
        Broken::Fs(e) => about(what)(e),
        Broken::Pipe(e) if e.kind() == io::ErrorKind::BrokenPipe => {
            Failure::new(libc::EPIPE, format!("{what}: the reader of the stream has gone away"))
        }
        Broken::Pipe(e) if e.kind() == io::ErrorKind::PermissionDenied => Failure::new(
            libc::EACCES,
            format!(
                "{what}: the process that serves the cell may not use the pipe of this command: run it as the \
                 user who serves the cell"
            ),
        ),
        Broken::Pipe(e) => {
            Failure::new(e.raw_os_error().unwrap_or(libc::EIO), format!("{what}: the pipe: {e}"))
        }
        Broken::Refused(why) => Failure::new(libc::EINVAL, format!("{what}: {why}")),
        Broken::Differs => {
            let why = "what has come is not what was sent (the digests differ): the copy shows what it did before; \
                       send it again, and run lee fsck on both cells if that happens again";
            Failure::new(DIFFERS, format!("{what}: {why}"))
        }
    }
}

/// Computes the digest of a snapshot of a volume's root directory, or of what leads to it from an
/// older one, with progress. All content is read, of which that is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapDigest {
    /// The volume.
    pub volume: String,
    /// The snapshot's name.
    pub name: String,
    /// The name of an older snapshot.
    pub from: Option<String>,
}

/// The digest of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapDigested {
    /// SHA-256, in hexadecimal: the same in all cells in which the snapshots show the same.
    pub digest: String,
}

impl Reply for SnapDigested {
    const KIND: &'static str = "digest";
}

impl Request for SnapDigest {
    type Reply = SnapDigested;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<SnapDigested, Failure> {
        let volume = shard.volume_named(&self.volume)?;
        let find = |name: &String| {
            let found = shard.root_snapshot(volume, name.as_bytes()).map(|(epoch, _)| At::Snapshot(epoch));
            found.ok_or_else(|| {
                let message = format!("volume {} has no snapshot {name} of its root", self.volume);
                Failure::new(libc::ENOENT, message)
            })
        };
        let old = self.from.as_ref().map_or(Ok(At::Nothing), find)?;
        let digest = shard.digest_of(volume, (old, find(&self.name)?), &|| false, caller.progress);
        let digest =
            digest.map_err(about(format_args!("snapshot {} of volume {}", self.name, self.volume)))?;
        Ok(SnapDigested { digest: hex::encode(&digest) })
    }
}
