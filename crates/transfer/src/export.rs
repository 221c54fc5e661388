//! Writes a tree as one archive, and a manifest of the checksums of its files.
//!
//! Entries come in the order of their names, each directory before what is in it, so the same tree
//! gives the same bytes. The tree should not change meanwhile: a snapshot. A file that does change
//! is noticed, and is an error.

use crate::output::Output;
use crate::sys::{Dir, FileId, Inode, Kind, Stat, Time, data_ranges, device_numbers, inode_flags, stat_file};
use crate::tar::{self, Header, Type};
use crate::{Counters, Error, Trouble, acl, cause, manifest};
use ring::digest::{Context, Digest, SHA256};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// What is left out, and why, is listed up to here, and only counted beyond.
const TROUBLES_MAX: usize = 1000;

/// The name of a user or group by its number, if it has one.
pub type NameOf<'a> = dyn Fn(u32) -> Option<String> + 'a;

/// What is wanted.
pub struct Options<'a> {
    /// Goes on after a file that cannot be read, and lists it.
    pub keep_going: bool,
    /// Puts the manifest into the archive, as the last entry, under this name.
    pub manifest_inside: Option<&'a str>,
    /// Names of users.
    pub user: &'a NameOf<'a>,
    /// Names of groups.
    pub group: &'a NameOf<'a>,
    /// How far it is.
    pub counters: &'a Counters,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices and FIFOs.
    pub nodes: u64,
    /// Bytes of all files, with holes.
    pub content_bytes: u64,
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Sockets, which archives cannot have.
    pub sockets_left_out: u64,
    /// Other file systems that are mounted in the tree.
    pub mounts_left_out: u64,
    /// What could not be read: left out, or in the archive with zeros for what is missing.
    pub unreadable: u64,
    /// The first of those.
    pub troubles: Vec<Trouble>,
}

/// Writes the tree below `root`, and the manifest.
///
/// # Errors
/// When something cannot be read, unless the options go on then; when the archive or the manifest
/// cannot be written; on a stop.
pub fn run(
    root: &Dir,
    output: Output<'_>,
    manifest: &mut File,
    options: &Options<'_>,
) -> Result<Summary, Error> {
    let stat = root.stat().map_err(|e| Error::at(".".as_ref(), "cannot be read", &e))?;
    let mut export = Export {
        options,
        output,
        manifest: BufWriter::new(manifest),
        device: stat.id.dev,
        links: FxHashMap::default(),
        owners: Owners::default(),
        buffer: vec![0; READ_BYTES],
        summary: Summary::default(),
    };
    export.tree(root)?;
    export.finish()
}

struct Export<'a, 'o> {
    options: &'a Options<'a>,
    output: Output<'o>,
    manifest: BufWriter<&'a mut File>,
    /// The file system of the tree.
    device: u64,
    /// Files with further names: the first one, the checksum, and the names still to come.
    links: FxHashMap<FileId, Linked>,
    owners: Owners,
    buffer: Vec<u8>,
    summary: Summary,
}

#[derive(Clone)]
struct Linked {
    path: Vec<u8>,
    digest: Option<Digest>,
    names_left: u64,
}

#[derive(Default)]
struct Owners {
    users: FxHashMap<u32, String>,
    groups: FxHashMap<u32, String>,
}

/// A directory whose names are being written.
struct Level {
    dir: Dir,
    /// With `/` at the end.
    path: Vec<u8>,
    names: std::vec::IntoIter<CString>,
}

/// Why the content of an entry is not right.
enum Bad {
    /// The archive ends.
    Error(Error),
    /// The file cannot be read.
    Read(io::Error),
}

impl From<Error> for Bad {
    fn from(error: Error) -> Bad {
        Bad::Error(error)
    }
}

impl Export<'_, '_> {
    fn tree(&mut self, root: &Dir) -> Result<(), Error> {
        let top = root.as_inode();
        let first = top.map_err(|e| Error::at(".".as_ref(), "cannot be read", &e))?;
        let mut levels: Vec<Level> = self.directory(&first, b"./".to_vec())?.into_iter().collect();
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            let path = [&level.path[..], name.to_bytes()].concat();
            self.options.counters.add_name();
            match level.dir.inode(&name).and_then(|inode| Ok((inode.stat()?, inode))) {
                Ok((stat, inode)) => levels.extend(self.entry(&inode, &stat, path)?),
                Err(e) => self.trouble(&path, &e)?,
            }
        }
        Ok(())
    }

    /// One name; returns what is to be walked, if it is a directory.
    fn entry(&mut self, inode: &Inode, stat: &Stat, path: Vec<u8>) -> Result<Option<Level>, Error> {
        if stat.kind == Kind::Directory {
            if stat.id.dev != self.device {
                self.summary.mounts_left_out += 1;
                return Ok(None);
            }
            return self.directory(inode, [&path[..], b"/"].concat());
        }
        if stat.kind == Kind::Socket {
            self.summary.sockets_left_out += 1;
        } else if !self.further_name(stat, &path)? {
            let before = self.output.written();
            let digest = match stat.kind {
                Kind::File => self.file(inode, &path)?,
                _ => {
                    self.node(inode, stat, &path)?;
                    None
                }
            };
            // a further name can only be one of what is in the archive
            if stat.nlink > 1 && self.output.written() > before {
                self.links.insert(stat.id, Linked { path, digest, names_left: stat.nlink - 1 });
            }
        }
        Ok(None)
    }

    fn directory(&mut self, inode: &Inode, path: Vec<u8>) -> Result<Option<Level>, Error> {
        let opened = inode.stat().and_then(|stat| {
            let dir = Dir::from_file(inode.open()?)?;
            let names = dir.names()?;
            Ok((stat, dir, names))
        });
        let (stat, dir, names) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                self.trouble(&path, &e)?;
                return Ok(None);
            }
        };
        let mut header = self.header(inode, &stat, Type::Directory, &path)?;
        header.records.extend(flag_record(inode_flags(&dir)));
        self.output.write(&header.encode())?;
        self.summary.directories += 1;
        Ok(Some(Level { dir, path, names: names.into_iter() }))
    }

    /// Writes a further name of what is in the archive already. Returns whether it was one.
    fn further_name(&mut self, stat: &Stat, path: &[u8]) -> Result<bool, Error> {
        let Some(first) = self.links.get_mut(&stat.id) else { return Ok(false) };
        first.names_left -= 1;
        let (last, first) = (first.names_left == 0, first.clone());
        if last {
            self.links.remove(&stat.id);
        }
        let mut header = self.plain_header(stat, Type::HardLink, path);
        header.link = first.path;
        self.output.write(&header.encode())?;
        if let Some(digest) = &first.digest {
            self.list(digest, path)?;
        }
        self.summary.hard_links += 1;
        Ok(true)
    }

    /// A symbolic link, a device or a FIFO.
    fn node(&mut self, inode: &Inode, stat: &Stat, path: &[u8]) -> Result<(), Error> {
        let kind = match stat.kind {
            Kind::Symlink => Type::Symlink,
            Kind::CharDevice => Type::CharDevice,
            Kind::BlockDevice => Type::BlockDevice,
            _ => Type::Fifo,
        };
        let mut header = self.header(inode, stat, kind, path)?;
        if kind == Type::Symlink {
            match inode.link_target() {
                Ok(target) => header.link = target.into_bytes(),
                Err(e) => return self.trouble(path, &e),
            }
            self.summary.symlinks += 1;
        } else {
            header.device = if kind == Type::Fifo { (0, 0) } else { device_numbers(stat.rdev) };
            self.summary.nodes += 1;
        }
        self.output.write(&header.encode())
    }

    /// A file with its content; returns the checksum of what can be read.
    fn file(&mut self, inode: &Inode, path: &[u8]) -> Result<Option<Digest>, Error> {
        let opened = inode.open().and_then(|file| {
            let stat = stat_file(&file)?;
            let ranges = if stat.is_sparse() { data_ranges(&file, stat.size)? } else { vec![(0, stat.size)] };
            Ok((file, stat, ranges))
        });
        let (file, stat, ranges) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                self.trouble(path, &e)?;
                return Ok(None);
            }
        };
        let mut header = self.header(inode, &stat, Type::File, path)?;
        header.records.extend(flag_record(inode_flags(&file)));
        let map = if ranges == [(0, stat.size)] { Vec::new() } else { tar::map(&ranges, stat.size) };
        header.sparse_size = (!map.is_empty()).then_some(stat.size);
        let data: u64 = ranges.iter().map(|(_, length)| length).sum();
        header.size = map.len() as u64 + data;
        self.output.write(&header.encode())?;
        self.output.write(&map)?;
        self.summary.files += 1;
        self.summary.content_bytes += stat.size;
        match self.content(&file, &stat, &ranges) {
            Ok(digest) => {
                self.output.write(tar::padding(header.size))?;
                self.list(&digest, path)?;
                Ok(Some(digest))
            }
            Err(Bad::Read(e)) => {
                self.trouble(path, &e)?;
                self.output.write(tar::padding(header.size))?;
                Ok(None)
            }
            Err(Bad::Error(e)) => Err(e),
        }
    }

    /// Writes the ranges with data and sums up all of the file. When it cannot be read to the end,
    /// zeros stand for the rest.
    fn content(&mut self, file: &File, stat: &Stat, ranges: &[(u64, u64)]) -> Result<Digest, Bad> {
        let mut sum = Context::new(&SHA256);
        let mut failed = None;
        let mut at = 0;
        for &(start, length) in ranges {
            self.sum_hole(&mut sum, start - at)?;
            at = start;
            while at < start + length {
                let wanted = (start + length - at).min(READ_BYTES as u64) as usize;
                if failed.is_none() {
                    failed = read_whole(file, &mut self.buffer[..wanted], at).err();
                }
                if failed.is_some() {
                    self.buffer[..wanted].fill(0);
                }
                sum.update(&self.buffer[..wanted]);
                self.output.write(&self.buffer[..wanted])?;
                self.options.counters.add_bytes(wanted);
                at += wanted as u64;
            }
        }
        self.sum_hole(&mut sum, stat.size - at)?;
        match (failed, stat_file(file)) {
            (Some(e), _) | (None, Err(e)) => Err(Bad::Read(e)),
            (None, Ok(after)) if !after.is_unchanged_since(stat) => {
                Err(Bad::Read(io::Error::other("changed while it was read")))
            }
            _ => Ok(sum.finish()),
        }
    }

    fn sum_hole(&self, sum: &mut Context, mut length: u64) -> Result<(), Error> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        while length > 0 {
            self.output.check_stop()?;
            let now = length.min(ZEROS.len() as u64);
            sum.update(&ZEROS[..now as usize]);
            length -= now;
        }
        Ok(())
    }

    fn list(&mut self, digest: &Digest, path: &[u8]) -> Result<(), Error> {
        self.manifest.write_all(&manifest::line(digest, path)).map_err(|e| no_manifest(&e))
    }

    /// The header with extended attributes and ACLs.
    fn header(&mut self, inode: &Inode, stat: &Stat, kind: Type, path: &[u8]) -> Result<Header, Error> {
        let mut header = self.plain_header(stat, kind, path);
        match attribute_records(inode) {
            Ok(records) => header.records = records,
            Err(e) => self.trouble(path, &e)?,
        }
        Ok(header)
    }

    fn plain_header(&mut self, stat: &Stat, kind: Type, path: &[u8]) -> Header {
        let options = self.options;
        let user = self.owners.users.entry(stat.uid);
        let group = self.owners.groups.entry(stat.gid);
        Header {
            path: path.to_vec(),
            link: Vec::new(),
            kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            user: user.or_insert_with(|| (options.user)(stat.uid).unwrap_or_default()).clone(),
            group: group.or_insert_with(|| (options.group)(stat.gid).unwrap_or_default()).clone(),
            size: 0,
            sparse_size: None,
            mtime: stat.mtime,
            device: (0, 0),
            records: Vec::new(),
        }
    }

    /// Something cannot be read: ends the export, or notes it.
    fn trouble(&mut self, path: &[u8], e: &io::Error) -> Result<(), Error> {
        if !self.options.keep_going {
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
            return Err(Error::at(&path, "cannot be read", e));
        }
        self.summary.unreadable += 1;
        if self.summary.troubles.len() < TROUBLES_MAX {
            let path = String::from_utf8_lossy(path).into_owned();
            self.summary.troubles.push(Trouble { path, cause: cause(e) });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Summary, Error> {
        let manifest = self.manifest.into_inner().map_err(|e| no_manifest(e.error()))?;
        if let Some(name) = self.options.manifest_inside {
            let length = manifest.stream_position().map_err(|e| no_manifest(&e))?;
            self.output.write(&own_header(name, length).encode())?;
            let mut at = 0;
            while at < length {
                let wanted = (length - at).min(READ_BYTES as u64) as usize;
                read_whole(manifest, &mut self.buffer[..wanted], at).map_err(|e| no_manifest(&e))?;
                self.output.write(&self.buffer[..wanted])?;
                at += wanted as u64;
            }
            self.output.write(tar::padding(length))?;
        }
        let end = tar::end(self.output.written());
        self.output.write(&end)?;
        self.summary.archive_bytes = self.output.finish()?;
        Ok(self.summary)
    }
}

fn no_manifest(e: &io::Error) -> Error {
    Error::Failed(format!("the manifest cannot be written: {}", cause(e)))
}

/// The header of a file that the export makes.
fn own_header(name: &str, size: u64) -> Header {
    Header {
        path: [b"./", name.as_bytes()].concat(),
        link: Vec::new(),
        kind: Type::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        user: String::new(),
        group: String::new(),
        size,
        sparse_size: None,
        mtime: Time { secs: 0, nanos: 0 },
        device: (0, 0),
        records: Vec::new(),
    }
}

/// Reads all that is asked for.
fn read_whole(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(buffer, at).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("became shorter while it was read"),
        _ => e,
    })
}

/// Extended attributes and ACLs as records.
fn attribute_records(inode: &Inode) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut records = Vec::new();
    for name in inode.attribute_names()? {
        let Some(value) = inode.attribute(&name)? else { continue };
        match name.to_bytes() {
            acl::ACCESS => records.extend(acl_record(b"SCHILY.acl.access", &value)),
            acl::DEFAULT => records.extend(acl_record(b"SCHILY.acl.default", &value)),
            // ACLs of other kinds and what else only its file system understands
            name if name.starts_with(b"system.") => {}
            name => records.push(([&b"SCHILY.xattr."[..], &key(name)].concat(), value)),
        }
    }
    Ok(records)
}

fn acl_record(key: &[u8], value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    acl::text(value).map(|text| (key.to_vec(), text.into_bytes()))
}

/// A name as part of a record's key, which ends at `=`: escaped as GNU tar does.
fn key(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'=' => key.extend_from_slice(b"%3D"),
            b'%' => key.extend_from_slice(b"%25"),
            byte => key.push(*byte),
        }
    }
    key
}

/// The flags of `chattr` that archives have words for.
fn flag_record(flags: u32) -> Option<(Vec<u8>, Vec<u8>)> {
    const WORDS: [(u32, &str); 3] = [(0x10, "schg"), (0x20, "sappnd"), (0x40, "nodump")];
    let words: Vec<&str> = WORDS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word).collect();
    (!words.is_empty()).then(|| (b"SCHILY.fflags".to_vec(), words.join(",").into_bytes()))
}
