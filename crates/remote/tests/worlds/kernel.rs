//! A directory of this machine. Each action has a thread of its own, which becomes the user.

use super::{Do, Kind, READ_ACL, THINGS, User, World, XATTRS, value};
use leeward_env::Env;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub struct Kernel {
    env: Env,
    dir: TempDir,
}

impl Kernel {
    /// `None`: this process may not become other users, or the file system knows no ACLs.
    pub fn new(env: &Env) -> Option<Kernel> {
        let dir = tempfile::tempdir().expect("a directory");
        let hard_links = fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
        // SAFETY: no arguments
        let is_root = unsafe { libc::geteuid() } == 0;
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("open for all");
        let device = dir.path().join("device");
        let makes_devices = make_device(&device, 1 << 8 | 3).is_ok();
        let knows_acls = makes_devices && set_xattr(&device, READ_ACL).is_ok();
        let is_fit = is_root && knows_acls && hard_links.trim() == "1";
        is_fit.then(|| Kernel { env: env.clone(), dir })
    }
}

impl World for Kernel {
    fn prepare(&self, row: &str) {
        let base = self.dir.path().join(row);
        fs::create_dir(&base).expect("a directory");
        fs::set_permissions(&base, Permissions::from_mode(0o755)).expect("open for all");
        for thing in &THINGS {
            let path = base.join(thing.path);
            match thing.kind {
                Kind::Dir => fs::create_dir(&path),
                Kind::File => File::create(&path).map(drop),
                Kind::Link => symlink("target", &path),
            }
            .expect("made");
            std::os::unix::fs::lchown(&path, Some(thing.uid), Some(thing.gid)).expect("given away");
            if !matches!(thing.kind, Kind::Link) {
                fs::set_permissions(&path, Permissions::from_mode(thing.mode)).expect("its mode");
            }
            if thing.has_acl {
                set_xattr(&path, READ_ACL).expect("an ACL");
            }
            if ["file", "rw"].contains(&thing.path) {
                XATTRS.iter().for_each(|name| set_xattr(&path, name).expect("an attribute"));
            }
        }
    }

    fn act(&self, row: &str, user: User, what: Do) -> i32 {
        let base = self.dir.path().join(row);
        let thread = self.env.spawn("user", move || {
            become_user(user);
            act(&base, what).map_or_else(|e| e.raw_os_error().unwrap_or(-1), |()| 0)
        });
        thread.join().expect("no panic")
    }

    fn mode(&self, row: &str, path: &str) -> u32 {
        fs::symlink_metadata(self.dir.path().join(row).join(path)).expect("there").mode() & 0o7777
    }
}

/// The calls themselves, for this thread only: those of the C library are for all threads.
fn become_user(user: User) {
    let User { uid, groups } = user;
    // SAFETY: numbers, and a list that outlives the call
    let all = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
            libc::syscall(libc::SYS_setresgid, uid, uid, uid),
            libc::syscall(libc::SYS_setresuid, uid, uid, uid),
        ]
    };
    assert_eq!(all, [0; 3], "{}", io::Error::last_os_error());
}

fn act(base: &Path, what: Do) -> io::Result<()> {
    let at = |path: &str| -> PathBuf { base.join(path) };
    match what {
        Do::Stat(path) => fs::symlink_metadata(at(path)).map(drop),
        Do::Read(path) => File::open(at(path)).map(drop),
        Do::Write(path) => OpenOptions::new().write(true).open(at(path))?.write_all(b"data"),
        // SAFETY: a string
        Do::Truncate(path) => done(unsafe { libc::truncate(c(&at(path)).as_ptr(), 7) }),
        Do::List(path) => fs::read_dir(at(path)).map(drop),
        Do::ReadLink(path) => fs::read_link(at(path)).map(drop),
        Do::Make(path, mode) => {
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
            // SAFETY: a string
            let fd = unsafe { libc::open(c(&at(path)).as_ptr(), flags, mode) };
            done(fd.min(0))
        }
        Do::MakeDir(path) => fs::create_dir(at(path)),
        Do::Symlink(path) => symlink("target", at(path)),
        Do::Device(path, number) => make_device(&at(path), number),
        Do::Unlink(path) => fs::remove_file(at(path)),
        Do::RemoveDir(path) => fs::remove_dir(at(path)),
        Do::Rename(from, to) => fs::rename(at(from), at(to)),
        Do::Exchange(from, to) => {
            let (from, to) = (c(&at(from)), c(&at(to)));
            let (here, how) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
            // SAFETY: strings
            done(unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), how) })
        }
        Do::Link(path, to) => fs::hard_link(at(path), at(to)),
        Do::Chmod(path, mode) => fs::set_permissions(at(path), Permissions::from_mode(mode)),
        Do::Chown(path, uid) => chown(at(path), Some(uid), None),
        Do::Chgrp(path, gid) => chown(at(path), None, Some(gid)),
        // SAFETY: a string, and no times
        Do::TouchNow(path) => {
            done(unsafe { libc::utimensat(libc::AT_FDCWD, c(&at(path)).as_ptr(), std::ptr::null(), 0) })
        }
        Do::SetTimes(path) => {
            let time = libc::timespec { tv_sec: 7, tv_nsec: 7 };
            // SAFETY: a string and two times
            done(unsafe { libc::utimensat(libc::AT_FDCWD, c(&at(path)).as_ptr(), [time; 2].as_ptr(), 0) })
        }
        Do::GetXattr(path, name) => {
            let (path, name, mut to) = (c(&at(path)), text(name), [0u8; 256]);
            // SAFETY: strings, and a buffer of that length
            let n = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), to.as_mut_ptr().cast(), to.len()) };
            done(n.min(0) as i32)
        }
        Do::SetXattr(path, name) => set_xattr(&at(path), name),
        Do::RemoveXattr(path, name) => {
            // SAFETY: strings
            done(unsafe { libc::removexattr(c(&at(path)).as_ptr(), text(name).as_ptr()) })
        }
        Do::ListXattr(path) => {
            // SAFETY: a string, and no buffer
            let n = unsafe { libc::listxattr(c(&at(path)).as_ptr(), std::ptr::null_mut(), 0) };
            done(n.min(0) as i32)
        }
    }
}

fn make_device(path: &Path, number: u64) -> io::Result<()> {
    // SAFETY: a string
    done(unsafe { libc::mknod(c(path).as_ptr(), libc::S_IFCHR | 0o644, number) })
}

fn set_xattr(path: &Path, name: &str) -> io::Result<()> {
    let (path, value, name) = (c(path), value(name), text(name));
    // SAFETY: strings, and a value of that length
    done(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

fn c(path: &Path) -> CString {
    text(path.to_str().expect("a path of ours"))
}

fn text(text: &str) -> CString {
    CString::new(text).expect("no zero byte")
}

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
