//! The door through a real mount, over the file system in memory. Each test of behaviour runs four
//! times: over io_uring and over `/dev/fuse`, answered at once and with every operation carried to
//! the threads that may wait. Skipped where mounting is not possible, unless `LEEWARD_NEEDS_FUSE`
//! is set.
#![allow(missing_docs, clippy::disallowed_methods)]

mod rig;

use leeward_env::{Ctx, limits};
use leeward_fs::{Fs, Make, NodeId, Op, Reply};
use leeward_fuse::IoUring;
use leeward_vfs::Gate;
use rig::{
    Fleeting, Fragile, Gated, Latch, Noting, Overtaken, PATIENCE, Reluctant, Remote, Rig, eventually,
    has_io_uring,
};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a test on both channels and both ways of answering.
fn every_way(test: impl Fn(&Rig)) {
    for io_uring in [IoUring::Auto, IoUring::Never] {
        let rigs = [Rig::over(io_uring, |m| m), Rig::over(io_uring, |m| Arc::new(Reluctant(m)))];
        rigs.iter().flatten().for_each(&test);
    }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no NUL")
}

fn ok(n: libc::c_int) -> io::Result<libc::c_int> {
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n) }
}

fn errno<T>(r: io::Result<T>) -> i32 {
    r.err().and_then(|e| e.raw_os_error()).unwrap_or(0)
}

#[test]
fn contents() {
    every_way(|rig| {
        let path = rig.at("f");
        let mut f =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let data: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        f.write_all(&data).unwrap();
        f.sync_all().unwrap();
        f.seek(SeekFrom::Start(0)).unwrap();
        let mut back = Vec::new();
        f.read_to_end(&mut back).unwrap();
        assert_eq!(back, data);
        f.set_len(10).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data[..10]);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"tail").unwrap();
        assert_eq!(fs::read(&path).unwrap()[10..], b"tail"[..]);
        File::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        let again = OpenOptions::new().write(true).create_new(true).open(&path);
        assert_eq!(errno(again), libc::EEXIST);
    });
}

#[test]
fn kinds_and_modes() {
    every_way(|rig| {
        symlink("some/where", rig.at("s")).unwrap();
        assert_eq!(fs::read_link(rig.at("s")).unwrap(), Path::new("some/where"));
        // SAFETY: strings that end in NUL.
        unsafe {
            ok(libc::mkfifo(c(&rig.at("p")).as_ptr(), 0o640)).unwrap();
            ok(libc::mknod(c(&rig.at("c")).as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 3))).unwrap();
            ok(libc::mknod(c(&rig.at("k")).as_ptr(), libc::S_IFSOCK | 0o600, 0)).unwrap();
        }
        assert!(fs::metadata(rig.at("p")).unwrap().file_type().is_fifo());
        assert!(fs::metadata(rig.at("k")).unwrap().file_type().is_socket());
        assert_eq!(fs::metadata(rig.at("c")).unwrap().rdev(), libc::makedev(1, 3));
        OpenOptions::new().write(true).open(rig.at("c")).unwrap().write_all(b"gone").unwrap();
        let f = rig.at("f");
        fs::write(&f, b"x").unwrap();
        fs::set_permissions(&f, fs::Permissions::from_mode(0o4751)).unwrap();
        assert_eq!(fs::metadata(&f).unwrap().mode() & 0o7777, 0o4751);
        chown(&f, Some(12), Some(34)).unwrap();
        let m = fs::metadata(&f).unwrap();
        assert_eq!((m.uid(), m.gid(), m.mode() & 0o7777), (12, 34, 0o751));
    });
}

/// Somebody else's write takes the setuid bit, and the kernel must not go on honouring it from its
/// cache.
#[test]
fn a_write_takes_setuid_away() {
    every_way(|rig| {
        let tool = rig.at("id");
        fs::set_permissions(rig.mount.at().parent().unwrap(), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::copy("/usr/bin/id", &tool).unwrap();
        chown(&tool, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).unwrap();
        let run = |mut command: Command, uid| {
            let out = command.uid(uid).gid(uid).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap().trim().to_string()
        };
        let id = || {
            let mut id = Command::new(&tool);
            id.arg("-u");
            id
        };
        assert_eq!(run(id(), 1001), "1000");
        let mut write = Command::new("sh");
        write.arg("-c").arg(r#"printf '\177' | dd of="$0" bs=1 count=1 conv=notrunc status=none"#).arg(&tool);
        run(write, 1000);
        assert_eq!(run(id(), 1001), "1001");
        assert_eq!(fs::metadata(&tool).unwrap().mode() & 0o7777, 0o755);
    });
}

#[test]
fn times_before_and_after_1970() {
    every_way(|rig| {
        fs::write(rig.at("f"), b"x").unwrap();
        for (secs, nanos) in [(-2i64, 800_000_000i64), (-1, 1), (0, 5), (1_700_000_000, 123_456_789)] {
            let t = libc::timespec { tv_sec: secs, tv_nsec: nanos };
            // SAFETY: a string that ends in NUL and two times.
            let n = unsafe { libc::utimensat(libc::AT_FDCWD, c(&rig.at("f")).as_ptr(), [t, t].as_ptr(), 0) };
            ok(n).unwrap();
            let m = fs::metadata(rig.at("f")).unwrap();
            assert_eq!((m.mtime(), m.mtime_nsec()), (secs, nanos));
        }
    });
}

#[test]
fn attributes_of_others_stay_right() {
    every_way(|rig| {
        let nlink = |name: &str| fs::metadata(rig.at(name)).unwrap().nlink();
        let ctime = |name: &str| fs::metadata(rig.at(name)).map(|m| (m.ctime(), m.ctime_nsec())).unwrap();
        fs::write(rig.at("a"), b"x").unwrap();
        fs::hard_link(rig.at("a"), rig.at("b")).unwrap();
        assert_eq!((nlink("a"), nlink("b")), (2, 2));
        let before = ctime("b");
        fs::remove_file(rig.at("a")).unwrap();
        assert_eq!(nlink("b"), 1);
        assert!(ctime("b") > before);
        fs::hard_link(rig.at("b"), rig.at("c")).unwrap();
        fs::write(rig.at("d"), b"y").unwrap();
        let before = ctime("c");
        fs::rename(rig.at("d"), rig.at("b")).unwrap();
        assert_eq!(nlink("c"), 1);
        assert!(ctime("c") > before);
        assert_eq!(fs::read(rig.at("b")).unwrap(), b"y");
        assert_eq!(errno(fs::metadata(rig.at("d"))), libc::ENOENT);
    });
}

#[test]
fn attributes_of_directories_stay_right() {
    every_way(|rig| {
        let nlink = |name: &str| fs::metadata(rig.at(name)).unwrap().nlink();
        let mtime = |name: &str| fs::metadata(rig.at(name)).map(|m| (m.mtime(), m.mtime_nsec())).unwrap();
        for d in ["x", "y", "x/sub", "x/sub/deep"] {
            fs::create_dir(rig.at(d)).unwrap();
        }
        assert_eq!((nlink(""), nlink("x"), nlink("y")), (4, 3, 2));
        let before = (mtime("x"), mtime("y"));
        fs::rename(rig.at("x/sub"), rig.at("y/moved")).unwrap();
        assert_eq!((nlink("x"), nlink("y"), nlink("y/moved")), (2, 3, 3));
        assert!(mtime("x") > before.0 && mtime("y") > before.1);
        assert_eq!(fs::read_dir(rig.at("y/moved/deep/..")).unwrap().count(), 1);
        let before = mtime("y/moved");
        fs::remove_dir(rig.at("y/moved/deep")).unwrap();
        assert!(mtime("y/moved") > before);
        assert_eq!(nlink("y/moved"), 2);
        assert_eq!(errno(fs::remove_dir(rig.at("y"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::rename(rig.at("y"), rig.at("y/moved/in"))), libc::EINVAL);
    });
}

fn rename2(rig: &Rig, a: &str, b: &str, flags: libc::c_uint) -> io::Result<libc::c_int> {
    let (a, b) = (c(&rig.at(a)), c(&rig.at(b)));
    // SAFETY: strings that end in NUL.
    ok(unsafe { libc::renameat2(libc::AT_FDCWD, a.as_ptr(), libc::AT_FDCWD, b.as_ptr(), flags) })
}

#[test]
fn rename_modes() {
    every_way(|rig| {
        fs::write(rig.at("a"), b"a").unwrap();
        fs::create_dir(rig.at("d")).unwrap();
        fs::write(rig.at("d/b"), b"b").unwrap();
        assert_eq!(errno(rename2(rig, "a", "d/b", libc::RENAME_NOREPLACE)), libc::EEXIST);
        rename2(rig, "a", "d/b", libc::RENAME_EXCHANGE).unwrap();
        assert_eq!(
            (fs::read(rig.at("a")).unwrap(), fs::read(rig.at("d/b")).unwrap()),
            (b"b".into(), b"a".into())
        );
        rename2(rig, "a", "d", libc::RENAME_EXCHANGE).unwrap();
        assert_eq!(fs::read(rig.at("a/b")).unwrap(), b"a");
        assert_eq!(fs::read(rig.at("d")).unwrap(), b"b");
        assert_eq!(errno(rename2(rig, "a", "new", libc::RENAME_WHITEOUT)), libc::EINVAL);
    });
}

#[test]
fn extended_attributes() {
    every_way(|rig| {
        fs::write(rig.at("f"), b"").unwrap();
        let path = c(&rig.at("f"));
        let (name, value) = (c"user.colour", b"green");
        let mut buf = [0u8; 64];
        // SAFETY: strings that end in NUL, buffers with their lengths.
        unsafe {
            let set =
                |flags| ok(libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), 5, flags));
            let get =
                |b: &mut [u8]| libc::getxattr(path.as_ptr(), name.as_ptr(), b.as_mut_ptr().cast(), b.len());
            assert_eq!(get(&mut buf), -1);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENODATA));
            assert_eq!(errno(set(libc::XATTR_REPLACE)), libc::ENODATA);
            set(libc::XATTR_CREATE).unwrap();
            assert_eq!(errno(set(libc::XATTR_CREATE)), libc::EEXIST);
            assert_eq!(get(&mut []), 5);
            assert_eq!(get(&mut buf[..4]), -1);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ERANGE));
            assert_eq!((get(&mut buf), &buf[..5]), (5, &value[..]));
            let n = libc::listxattr(path.as_ptr(), buf.as_mut_ptr().cast(), buf.len());
            assert_eq!(&buf[..n as usize], b"user.colour\0");
            ok(libc::removexattr(path.as_ptr(), name.as_ptr())).unwrap();
            assert_eq!(libc::listxattr(path.as_ptr(), buf.as_mut_ptr().cast(), buf.len()), 0);
        }
    });
}

#[test]
fn space() {
    every_way(|rig| {
        let f = File::options().read(true).write(true).create_new(true).open(rig.at("f")).unwrap();
        f.write_all_at(&[7; 10_000], 0).unwrap();
        let fallocate = |mode, at, len| {
            // SAFETY: an open descriptor.
            ok(unsafe { libc::fallocate(f.as_raw_fd(), mode, at, len) })
        };
        fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 1000, 100).unwrap();
        let mut b = [1; 102];
        f.read_exact_at(&mut b, 999).unwrap();
        assert_eq!((b[0], &b[1..101], b[101]), (7, &[0; 100][..], 7));
        fallocate(0, 0, 20_000).unwrap();
        assert_eq!(f.metadata().unwrap().len(), 20_000);
        fallocate(libc::FALLOC_FL_KEEP_SIZE, 0, 2 << 20).unwrap();
        assert_eq!(f.metadata().unwrap().len(), 20_000);
        assert_eq!(errno(fallocate(libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);
        // SAFETY: an open descriptor.
        let seek = |to, whence| unsafe { libc::lseek(f.as_raw_fd(), to, whence) };
        assert_eq!((seek(5, libc::SEEK_DATA), seek(5, libc::SEEK_HOLE)), (5, 20_000));
        assert_eq!(seek(30_000, libc::SEEK_DATA), -1);
        let to = File::options().read(true).write(true).create_new(true).open(rig.at("g")).unwrap();
        let (mut from_at, mut to_at) = (0, 5);
        // SAFETY: open descriptors and two offsets.
        let n = unsafe {
            libc::copy_file_range(f.as_raw_fd(), &raw mut from_at, to.as_raw_fd(), &raw mut to_at, 10_000, 0)
        };
        assert_eq!((n, to.metadata().unwrap().len()), (10_000, 10_005));
        assert_eq!(fs::read(rig.at("g")).unwrap()[5..], fs::read(rig.at("f")).unwrap()[..10_000]);
    });
}

#[test]
fn statfs_and_ioctl() {
    every_way(|rig| {
        // SAFETY: a string that ends in NUL and a structure to fill; a descriptor and a number.
        unsafe {
            let mut s: libc::statvfs = std::mem::zeroed();
            ok(libc::statvfs(c(&rig.at("")).as_ptr(), &raw mut s)).unwrap();
            assert_eq!((s.f_blocks * s.f_frsize, s.f_namemax), (64 << 30, 255));
            let f = File::create(rig.at("f")).unwrap();
            let mut n = 0;
            assert_eq!(
                errno(ok(libc::ioctl(f.as_raw_fd(), libc::FS_IOC_GETVERSION, &raw mut n))),
                libc::ENOTTY
            );
        }
    });
}

/// Pages of a mapping, writes by descriptor and truncation see each other: pages are kept across
/// opens.
#[test]
fn mappings_are_coherent() {
    every_way(|rig| {
        let len = 64 << 10;
        fs::write(rig.at("f"), vec![1; len]).unwrap();
        let f = File::options().read(true).write(true).open(rig.at("f")).unwrap();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping of an open file, used within its length and within the file's.
        unsafe {
            let map = libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, f.as_raw_fd(), 0);
            assert_ne!(map, libc::MAP_FAILED);
            let bytes = map.cast::<u8>();
            assert_eq!(bytes.add(5000).read_volatile(), 1);
            f.write_all_at(&[2; 100], 4990).unwrap();
            assert_eq!(bytes.add(5000).read_volatile(), 2);
            bytes.add(6000).write_volatile(3);
            let mut b = [0];
            f.read_exact_at(&mut b, 6000).unwrap();
            assert_eq!(b, [3]);
            ok(libc::msync(map, len, libc::MS_SYNC)).unwrap();
            f.set_len(4995).unwrap();
            f.set_len(len as u64).unwrap();
            assert_eq!((bytes.add(4994).read_volatile(), bytes.add(5000).read_volatile()), (2, 0));
            bytes.add(60_000).write_volatile(4);
            libc::munmap(map, len);
        }
        drop(f);
        let back = fs::read(rig.at("f")).unwrap();
        assert_eq!((back.len(), back[4994], back[5000], back[6000], back[60_000]), (len, 2, 0, 0, 4));
    });
}

const GET_FLAGS: libc::c_ulong = 0x8008_6601;
const SET_FLAGS: libc::c_ulong = 0x4008_6602;
const GET_FSXATTR: libc::c_ulong = 0x801c_581f;
const SET_FSXATTR: libc::c_ulong = 0x401c_5820;

/// `struct fsxattr`: flags, size of extents, their number, number of a project, one more size.
type FsXattr = [u32; 7];

#[test]
fn flags_in_both_forms() {
    every_way(|rig| {
        fs::create_dir(rig.at("d")).unwrap();
        fs::write(rig.at("f"), b"x").unwrap();
        for name in ["d", "f"] {
            let file = File::open(rig.at(name)).unwrap();
            let ask = |request, data: *mut libc::c_void| {
                // SAFETY: an open descriptor, and room for what each request passes.
                ok(unsafe { libc::ioctl(file.as_raw_fd(), request as _, data) })
            };
            let word = |request, mut flags: u64| ask(request, (&raw mut flags).cast()).map(|_| flags as u32);
            let structure = |request, mut set: FsXattr| ask(request, (&raw mut set).cast()).map(|_| set);
            assert_eq!(word(GET_FLAGS, 0).unwrap(), 0);
            word(SET_FLAGS, 0x50).unwrap();
            assert_eq!(word(GET_FLAGS, 0).unwrap(), 0x50);
            assert_eq!(structure(GET_FSXATTR, [9; 7]).unwrap()[..5], [0x88, 0, 0, 0, 0]);
            structure(SET_FSXATTR, [0x10, 0, 0, 0, 0, 0, 0]).unwrap();
            assert_eq!(word(GET_FLAGS, 0).unwrap(), 0x20);
            let project = structure(SET_FSXATTR, [0x10, 0, 0, 7, 0, 0, 0]);
            assert_eq!(errno(project), libc::EOPNOTSUPP);
            assert_eq!(errno(structure(SET_FSXATTR, [0x200, 0, 0, 0, 0, 0, 0])), libc::EOPNOTSUPP);
            assert_eq!(errno(ask(0x5401, std::ptr::null_mut())), libc::ENOTTY);
            assert_eq!(word(GET_FLAGS, 0).unwrap(), 0x20);
        }
    });
}

#[test]
fn listing_while_removing() {
    every_way(|rig| {
        fs::create_dir(rig.at("d")).unwrap();
        let names: BTreeSet<String> = (0..3000).map(|n| format!("file-{n:05}")).collect();
        for n in &names {
            File::create(rig.at("d").join(n)).unwrap();
        }
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(rig.at("d")).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().is_file());
            assert!(seen.insert(entry.file_name().into_string().unwrap()));
            fs::remove_file(entry.path()).unwrap();
            let _ = File::create(rig.at("d").join("a-new-one"));
        }
        seen.remove("a-new-one");
        assert_eq!(seen, names);
        fs::remove_file(rig.at("d/a-new-one")).unwrap();
        fs::remove_dir(rig.at("d")).unwrap();
    });
}

/// # Safety
/// `e` is what readdir just returned, and not null.
unsafe fn entry_name(e: *const libc::dirent) -> CString {
    // SAFETY: the name is within the entry and ends in NUL.
    unsafe { CStr::from_ptr((&raw const (*e).d_name).cast()) }.to_owned()
}

#[test]
fn telldir_and_seekdir() {
    every_way(|rig| {
        fs::create_dir(rig.at("d")).unwrap();
        for n in 0..1000 {
            File::create(rig.at("d").join(format!("{n:04}"))).unwrap();
        }
        // SAFETY: one stream, used by one thread, closed at the end.
        unsafe {
            let d = libc::opendir(c(&rig.at("d")).as_ptr());
            let mut all = Vec::new();
            loop {
                let at = libc::telldir(d);
                let e = libc::readdir(d);
                if e.is_null() {
                    break;
                }
                all.push((at, entry_name(e)));
            }
            assert_eq!(all.len(), 1002);
            for i in [1001, 0, 500, 499, 2, 1, 999, 3] {
                libc::seekdir(d, all[i].0);
                assert_eq!(entry_name(libc::readdir(d)), all[i].1, "{i}");
            }
            libc::rewinddir(d);
            assert_eq!(entry_name(libc::readdir(d)), all[0].1);
            libc::closedir(d);
        }
    });
}

#[test]
fn an_unlinked_file_lives_while_open_and_references_come_back() {
    every_way(|rig| {
        fs::create_dir(rig.at("d")).unwrap();
        for n in 0..500 {
            fs::write(rig.at("d").join(format!("{n}")), b"x").unwrap();
        }
        for e in fs::read_dir(rig.at("d")).unwrap() {
            e.unwrap().metadata().unwrap();
        }
        let mut f = File::options().read(true).write(true).create_new(true).open(rig.at("d/open")).unwrap();
        fs::remove_dir_all(rig.at("d")).unwrap();
        f.write_all(b"still here").unwrap();
        assert_eq!(f.metadata().unwrap().nlink(), 0);
        let mut b = [0; 10];
        f.read_exact_at(&mut b, 0).unwrap();
        assert_eq!(&b, b"still here");
        drop(f);
        // The kernel gives references back in its own time.
        assert!(eventually(|| rig.mem.inodes() == 1));
    });
}

#[test]
fn a_panic_answers_eio_and_the_mount_goes_on() {
    let Some(rig) = Rig::new(|m| Arc::new(Fragile(m))) else { return };
    for name in ["panic", "panic-later"] {
        for _ in 0..5 {
            assert_eq!(errno(File::create(rig.at(name))), libc::EIO);
        }
    }
    assert_eq!(
        errno(fs::read_dir(rig.at("")).unwrap().next().unwrap_or_else(|| panic!("an error"))),
        libc::EIO
    );
    fs::write(rig.at("f"), b"fine").unwrap();
    assert_eq!(fs::read(rig.at("f")).unwrap(), b"fine");
}

/// A change behind the kernel's back shows once it is announced.
#[test]
fn announced_changes_show() {
    let Some(rig) = Rig::new(|m| m) else { return };
    let watcher = rig.mem.watcher().expect("the door's");
    assert_eq!(errno(fs::metadata(rig.at("new"))), libc::ENOENT);
    let make = Op::Make { dir: NodeId::ROOT, name: b"new", make: Make::File, mode: 0o644, umask: 0 };
    let Ok(Reply::Attr(a)) = rig.mem.call(&Ctx::user(0, 0), make) else { panic!("made") };
    watcher.entry_changed(NodeId::ROOT, b"new");
    watcher.wait_applied();
    assert!(fs::metadata(rig.at("new")).is_ok());
    assert_eq!(fs::read(rig.at("new")).unwrap(), b"");
    rig.mem.call(&Ctx::user(0, 0), Op::Write { node: a.node, offset: 0, data: b"text" }).unwrap();
    watcher.inode_changed(a.node);
    watcher.wait_applied();
    assert_eq!(fs::read(rig.at("new")).unwrap(), b"text");
    rig.mount.unmount().unwrap();
    watcher.wait_applied(); // nobody is left to be told
}

/// An answer that is on its way when a change is announced brings the kernel nothing that lasts.
#[test]
fn what_an_overtaken_answer_says_is_dropped() {
    let Some(rig) = Rig::new(|m| Arc::new(Overtaken(m))) else { return };
    let make = Op::Make { dir: NodeId::ROOT, name: b"f", make: Make::File, mode: 0o600, umask: 0 };
    rig.mem.call(&Ctx::user(0, 0), make).expect("made");
    let mode = || fs::metadata(rig.at("f")).unwrap().mode() & 0o777;
    mode();
    assert!(eventually(|| mode() == 0o777), "{:o}", mode());
}

#[test]
fn locks_are_the_kernels() {
    every_way(|rig| {
        let (a, b) = (File::create(rig.at("f")).unwrap(), File::open(rig.at("f")).unwrap());
        a.lock().unwrap();
        assert!(b.try_lock().is_err());
        a.unlock().unwrap();
        b.try_lock().unwrap();
    });
}

/// The kernel takes one ESTALE of an `open` for a reason to look again, and hands out the second.
#[test]
fn a_name_that_comes_and_goes_is_opened() {
    for io_uring in [IoUring::Auto, IoUring::Never] {
        let Some(rig) = Rig::over(io_uring, |m| Arc::new(Fleeting(m, 3.into()))) else { return };
        File::create(rig.at("f")).unwrap();
        assert_eq!(errno(File::create_new(rig.at("f"))), libc::EEXIST);
    }
}

/// Takes a lock of `fcntl` on a whole file, or gives it up.
fn posix_lock(file: &File, kind: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: numbers only, all zeros are valid
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: the lock outlives the call
    ok(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) })
}

/// A thread of a process closes a file while another one waits for a lock on it: what that one gets
/// goes with the next close all the same.
#[test]
fn a_lock_that_is_given_after_a_close_goes_with_the_next() {
    let script = "import fcntl, os, sys, threading, time\n\
                  fd = os.open(sys.argv[1], os.O_RDWR)\n\
                  waits = threading.Thread(target=fcntl.lockf, args=(fd, fcntl.LOCK_EX))\n\
                  waits.start()\n\
                  time.sleep(0.3)\n\
                  os.close(os.open(sys.argv[1], os.O_RDWR))\n\
                  print('closed', flush=True)\n\
                  waits.join()\n\
                  print('locked', flush=True)\n\
                  sys.stdin.readline()\n\
                  os.close(fd)\n\
                  print('over', flush=True)\n\
                  sys.stdin.readline()";
    for io_uring in [IoUring::Auto, IoUring::Never] {
        let with_locks = |gate: Gate| {
            gate.share_locks(|| false);
            gate
        };
        let Some(rig) = Rig::with(io_uring, |m| m, with_locks) else { return };
        let ours = File::create(rig.at("f")).unwrap();
        posix_lock(&ours, libc::F_WRLCK).unwrap();
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(rig.at("f")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = python.spawn().unwrap();
        let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
        let mut told = || lines.next().expect("it goes on").unwrap();
        assert_eq!(told(), "closed");
        posix_lock(&ours, libc::F_UNLCK).unwrap();
        assert_eq!(told(), "locked");
        assert!(posix_lock(&ours, libc::F_WRLCK).is_err());
        let mut stdin = python.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        assert_eq!(told(), "over");
        posix_lock(&ours, libc::F_WRLCK).expect("nobody has it");
        drop(stdin);
        assert!(python.wait().unwrap().success());
    }
}

/// One user's hundred fsyncs that hang take threads, but not all of them.
#[test]
fn one_users_waiting_leaves_threads_to_others() {
    for io_uring in [IoUring::Auto, IoUring::Never] {
        one_users_waiting(io_uring);
    }
}

fn one_users_waiting(io_uring: IoUring) {
    // What one user may hold of the threads that wait.
    let share = limits::BLOCKING_THREADS_MAX * 3 / 4;
    let gate = Arc::new(Latch::default());
    let shared = gate.clone();
    let Some(rig) = Rig::over(io_uring, |m| Arc::new(Gated { mem: Reluctant(m), gate: shared })) else {
        return;
    };
    std::thread::scope(|s| {
        for n in 0..100 {
            let f = File::create(rig.at(&format!("{n}"))).unwrap();
            s.spawn(move || {
                // SAFETY: changes this thread's rights only.
                unsafe { libc::setfsuid(1000) };
                f.sync_all().unwrap();
            });
        }
        let hang = eventually(|| gate.waiting() == share);
        let (done, told) = std::sync::mpsc::channel();
        let path = rig.at("other");
        s.spawn(move || done.send(fs::write(&path, b"x").and_then(|()| File::open(&path)?.sync_all())));
        let result = told.recv_timeout(PATIENCE);
        let hung = gate.waiting();
        gate.open();
        assert!(hang && hung == share, "{hung} hung");
        result.expect("an answer while the others hang").unwrap();
    });
}

#[test]
fn rings_are_used_where_the_kernel_has_them() {
    let Some(rig) = Rig::new(|m| m) else { return };
    // SAFETY: no arguments, cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert_eq!(rig.mount.has_rings(), has_io_uring() && is_root, "{}", rig.mount.channel());
    let Some(rig) = Rig::over(IoUring::Never, |m| m) else { return };
    assert!(!rig.mount.has_rings() && rig.mount.channel().contains("no_io_uring"));
}

/// Many at once, from every processor: each answer reaches who asked.
#[test]
fn answers_reach_who_asked() {
    every_way(|rig| {
        std::thread::scope(|s| {
            for n in 0..24u8 {
                let path = rig.at(&format!("own {n}"));
                s.spawn(move || {
                    let own = vec![n; 5000 + usize::from(n)];
                    for _ in 0..40 {
                        fs::write(&path, &own).unwrap();
                        assert_eq!(fs::read(&path).unwrap(), own);
                        assert_eq!(fs::metadata(&path).unwrap().len(), own.len() as u64);
                        fs::remove_file(&path).unwrap();
                        assert!(!path.exists());
                    }
                });
            }
        });
        assert!(eventually(|| rig.mem.inodes() == 1), "references came back");
    });
}

/// Larger than a buffer of any channel.
#[test]
fn large_reads_and_writes() {
    every_way(|rig| {
        let data: Vec<u8> = (0..5_000_003u32).map(|n| (n % 251) as u8).collect();
        fs::write(rig.at("large"), &data).unwrap();
        let f = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(rig.at("large")).unwrap();
        let mut read = Vec::new();
        let mut part = vec![0; 3 << 20];
        loop {
            match (&f).read(&mut part).unwrap() {
                0 => break,
                n => read.extend_from_slice(&part[..n]),
            }
        }
        assert!(read == data && fs::read(rig.at("large")).unwrap() == data);
        assert!(rig.at("large").join("x").metadata().is_err());
    });
}

#[test]
fn a_file_without_a_name() {
    every_way(|rig| {
        let unnamed = |flags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).mode(0o640).custom_flags(libc::O_TMPFILE | flags).open(rig.at(""))
        };
        let link = |file: &File, name: &str| {
            let from = c(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
            let to = c(&rig.at(name));
            // SAFETY: strings that end in NUL.
            ok(unsafe {
                let (at, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
                libc::linkat(at, from.as_ptr(), at, to.as_ptr(), follow)
            })
        };
        let mut file = unnamed(0).unwrap();
        file.write_all(b"whole").unwrap();
        assert_eq!((file.metadata().unwrap().nlink(), fs::read_dir(rig.at("")).unwrap().count()), (0, 0));
        fs::write(rig.at("taken"), b"").unwrap();
        assert_eq!(errno(link(&file, "taken")), libc::EEXIST);
        link(&file, "named").unwrap();
        link(&file, "twice").unwrap();
        assert_eq!(fs::read(rig.at("named")).unwrap(), b"whole");
        let named = fs::metadata(rig.at("twice")).unwrap();
        assert_eq!((named.nlink(), named.mode() & 0o777), (2, 0o640));
        assert_eq!(errno(link(&unnamed(libc::O_EXCL).unwrap(), "never")), libc::ENOENT);
        drop(file);
        for name in ["named", "twice", "taken"] {
            fs::remove_file(rig.at(name)).unwrap();
        }
        assert!(eventually(|| rig.mem.inodes() == 1), "{} inodes are left", rig.mem.inodes());
    });
}

#[test]
fn times_of_birth() {
    every_way(|rig| {
        fs::write(rig.at("born"), b"").unwrap();
        let born = fs::metadata(rig.at("born")).unwrap().created().expect("a time of birth");
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(rig.at("born"), b"changed").unwrap();
        let now = fs::metadata(rig.at("born")).unwrap();
        assert_eq!(now.created().unwrap(), born);
        assert!(now.modified().unwrap() > born);
    });
}

/// A process whose thread waits for its own mount cannot even be killed.
struct OpenAtEnd(Arc<Latch>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A program that waits for the file system can be killed; a signal that it handles changes
/// nothing.
#[test]
fn who_waits_can_be_killed() {
    for io_uring in [IoUring::Auto, IoUring::Never] {
        let gate = Arc::new(Latch::default());
        let shared = gate.clone();
        let rig = Rig::over(io_uring, |m| Arc::new(Gated { mem: Reluctant(m), gate: shared }));
        let Some(rig) = rig else { return };
        let opens = OpenAtEnd(gate.clone());
        let path = rig.at("held");
        File::create(&path).unwrap();
        chown(&path, Some(1000), None).unwrap();
        fs::set_permissions(rig.at(""), fs::Permissions::from_mode(0o777)).unwrap();
        let noted = Arc::new(AtomicBool::new(false));
        let handler = signal_hook::flag::register(libc::SIGUSR1, noted.clone()).unwrap();
        let script = "import os, signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n\
                      os.fsync(os.open(sys.argv[1], os.O_RDONLY))";
        let mut python = Command::new("python3");
        let mut killed = python.args(["-c", script]).arg(&path).uid(1000).gid(1000).spawn().unwrap();
        // another file: the kernel lets one fsync of a file through at a time
        let file = File::create(rig.at("other")).unwrap();
        let (to_main, thread) = std::sync::mpsc::channel();
        let stays = std::thread::spawn(move || {
            // SAFETY: changes this thread's rights only; its own number cannot fail.
            to_main
                .send(unsafe {
                    libc::setfsuid(1000);
                    libc::pthread_self()
                })
                .unwrap();
            file.sync_all()
        });
        assert!(eventually(|| gate.waiting() == 2));
        // SAFETY: the thread waits until the latch is opened.
        unsafe { libc::pthread_kill(thread.recv().unwrap(), libc::SIGUSR1) };
        // the kernel tells of the first signal only, which here kills nobody
        // SAFETY: our own child.
        unsafe { libc::kill(killed.id() as i32, libc::SIGUSR1) };
        std::thread::sleep(std::time::Duration::from_millis(50));
        killed.kill().unwrap();
        let began = std::time::Instant::now();
        killed.wait().unwrap();
        let took = began.elapsed();
        drop(opens);
        assert!(took < PATIENCE / 3, "{took:?}");
        stays.join().unwrap().expect("a signal that is handled fails nothing");
        assert!(noted.load(Ordering::Relaxed));
        signal_hook::low_level::unregister(handler);
        assert!(eventually(|| gate.waiting() == 0));
    }
}

/// Becomes a user in this thread only, writes 4 bytes through a mapping and 4 by a call.
fn write_as(path: &Path, (uid, gid): (u32, u32)) {
    // SAFETY: numbers only; the calls themselves, as those of the C library are for all threads
    let became = unsafe {
        [libc::syscall(libc::SYS_setresgid, gid, gid, gid), libc::syscall(libc::SYS_setresuid, uid, uid, uid)]
    };
    assert_eq!(became, [0; 2], "{}", io::Error::last_os_error());
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (both, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a mapping of a file of that length, which nobody else has
    unsafe {
        let map = libc::mmap(std::ptr::null_mut(), 4096, both, shared, file.as_raw_fd(), 0);
        assert_ne!(map, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        std::ptr::copy_nonoverlapping(b"page".as_ptr(), map.cast(), 4);
        ok(libc::msync(map, 4096, libc::MS_SYNC)).unwrap();
        libc::munmap(map, 4096);
    }
    file.write_all_at(b"call", 8).unwrap();
}

#[test]
fn a_remote_server_is_told_who_writes() {
    // SAFETY: no arguments
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root becomes another user");
    }
    let noted = std::cell::OnceCell::new();
    let note =
        |mem: Arc<_>| noted.get_or_init(|| Arc::new(Noting(mem, Default::default()))).clone() as Arc<_>;
    let Some(rig) = Rig::with(IoUring::Never, note, Remote) else { return };
    let path = rig.at("f");
    fs::write(&path, [0; 4096]).unwrap();
    fs::set_permissions(rig.mount.at(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).unwrap();
    let noted = noted.get().expect("mounted");
    noted.1.lock().clear();
    std::thread::scope(|s| s.spawn(|| write_as(&path, (1001, 1002))).join()).unwrap();
    let all = noted.1.lock().clone();
    assert_eq!(all.iter().filter(|(what, ..)| *what == "write").count(), 2, "{all:?}");
    assert!(all.iter().all(|(_, uid, gid)| (*uid, *gid) == (1001, 1002)), "{all:?}");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    let content = fs::read(&path).unwrap();
    assert_eq!((&content[..4], &content[8..12]), (&b"page"[..], &b"call"[..]));
}
