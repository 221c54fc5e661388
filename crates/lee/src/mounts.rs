//! Mounted cells, from `/proc/self/mountinfo` (reading it calls no file system, so it cannot hang
//! on a dead one), and the translation of paths of this machine to paths in the cell.

use crate::fail::{Fail, text};
use leeward_env::Env;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A mount that nobody serves answers within this time.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
const KIND: &[u8] = b"fuse.leeward";

/// One mount of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellMount {
    /// The directory of the cell; of a cell that another machine serves, where that is.
    pub cell: PathBuf,
    /// The mount point.
    pub at: PathBuf,
    /// The directory of the cell that is mounted there: `/`, or another one for a bind mount.
    root: PathBuf,
    /// The number of the file system, the same for all its mounts: `0:58`.
    pub device: String,
    /// The user who mounted it.
    pub owner: u32,
    /// Whether all users may use it.
    pub for_all: bool,
}

impl CellMount {
    /// The machine that serves the cell, if it is not this one.
    pub fn server(&self) -> Option<std::borrow::Cow<'_, str>> {
        (!self.cell.is_absolute()).then(|| self.cell.to_string_lossy())
    }

    /// A path below this mount as a path in the cell.
    fn path_in_cell(&self, path: &Path) -> Option<PathBuf> {
        path.strip_prefix(&self.at).ok().map(|rest| self.root.join(rest))
    }
}

/// All mounts of cells, in the order they were made.
pub fn all() -> Vec<CellMount> {
    std::fs::read("/proc/self/mountinfo").map(|text| parse(&text)).unwrap_or_default()
}

/// Whether all users may use the mount that is exactly there.
pub fn is_for_all(at: &Path) -> bool {
    all().into_iter().rev().find(|m| m.at == at).is_some_and(|m| m.for_all)
}

/// The mount that a path is in; the path must be absolute and without symbolic links.
pub fn containing(path: &Path) -> Option<CellMount> {
    all().into_iter().filter(|m| path.starts_with(&m.at)).max_by_key(|m| m.at.as_os_str().len())
}

/// Whether a path of the cell is `dir` or below it.
pub fn is_below(path: &str, dir: &str) -> bool {
    let dir = dir.trim_end_matches('/');
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Unmounts a dead mount, even where processes still have files open in it.
///
/// # Errors
/// The cause, when neither the kernel nor fusermount3 does it.
pub fn detach(at: &Path) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    // SAFETY: a string that ends in NUL.
    if unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) } == 0 {
        return Ok(());
    }
    let refused = io::Error::last_os_error();
    let helped = Command::new("fusermount3").args(["-uz", "--"]).arg(at).output();
    if helped.is_ok_and(|o| o.status.success()) { Ok(()) } else { Err(refused) }
}

/// `path` as a path in the cell. A path below a mount of the cell is translated. Any other absolute
/// path is taken for one in the cell already. A relative path must be below a mount.
///
/// # Errors
/// The text says what the path would have to be; also where it contains `..` or is not UTF-8.
pub fn path_in_cell(cell: &Path, path: &Path) -> Result<String, Fail> {
    let below_mount = resolve(path).and_then(|resolved| {
        all()
            .into_iter()
            .filter(|m| m.cell == cell && resolved.starts_with(&m.at))
            .max_by_key(|m| m.at.as_os_str().len())
            .and_then(|m| m.path_in_cell(&resolved))
    });
    let found = match below_mount {
        Some(found) => found,
        None if path.is_absolute() => path.to_path_buf(),
        None => {
            return Err(Fail::new(format!(
                "{}: not below a mount of the cell {}: go there, or give the path in the cell, from / on",
                path.display(),
                cell.display()
            )));
        }
    };
    clean(&found)
        .ok_or_else(|| Fail::new(format!("{}: a path in the cell is UTF-8 and without `..`", path.display())))
}

/// The path, absolute and without symbolic links, except for the last name. That need not exist
/// yet, and directories above it may be gone.
pub fn resolve(path: &Path) -> Option<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let above = match parent.canonicalize() {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => resolve(parent)?,
                found => found.ok()?,
            };
            Some(above.join(name))
        }
        _ => path.canonicalize().ok(),
    }
}

/// One `/` between names, none at the end.
fn clean(path: &Path) -> Option<String> {
    let mut out = String::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => (),
            Component::Normal(name) => {
                out.push('/');
                out.push_str(name.to_str()?);
            }
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(if out.is_empty() { "/".into() } else { out })
}

/// Unmounts what killed processes left mounted of this cell. Only for the holder of the cell's
/// lock: then none of its mounts can be alive. One that is alive belongs to a cell that was in this
/// directory before that was renamed, and stays. `dead` is known to be dead and not asked: with
/// io_uring the kernel closes the connection some time after the process is gone, and until then
/// every call on the mount hangs.
pub fn detach_all_of(env: &Env, cell: &Path, dead: Option<&Path>) -> Vec<Result<PathBuf, Fail>> {
    let is_stale = |m: &CellMount| m.cell == cell && (dead == Some(&*m.at) || !is_alive(env, &m.at));
    let stale: Vec<CellMount> = all().into_iter().filter(is_stale).collect();
    // The last one made lies on top.
    stale.into_iter().rev().map(|m| detach_stale(&m.at)).collect()
}

/// The mount point of a cell of this directory that a process still serves.
pub fn alive_of(env: &Env, cell: &Path) -> Option<PathBuf> {
    all().into_iter().find(|m| m.cell == cell && is_alive(env, &m.at)).map(|m| m.at)
}

/// The message for a served cell whose directory was moved.
pub fn moved(cell: &str, at: &Path) -> String {
    let at = at.display();
    format!(
        "{cell} cannot be reached by this path: its directory was renamed, or its disk unmounted, while it is served at {at}: name its new \
         path, or end it with `umount {at}`"
    )
}

/// Whether a mount answers, or has not failed within a moment.
pub fn is_alive(env: &Env, at: &Path) -> bool {
    let (tell, told) = channel();
    let path = at.to_path_buf();
    // the call may hang for as long as a stopped server is stopped
    env.spawn("mount-look", move || {
        let _ = tell.send(std::fs::File::open(path).err());
    });
    told.recv_timeout(ANSWER_WAIT).map_or(true, |failed| failed.is_none())
}

fn detach_stale(at: &Path) -> Result<PathBuf, Fail> {
    match detach(at) {
        Ok(()) => Ok(at.to_path_buf()),
        Err(e) => Err(Fail::new(format!(
            "{}: a killed process left its mount here, and it cannot be taken away ({}): run umount -l {0} as root",
            at.display(),
            text(&e)
        ))),
    }
}

fn parse(text: &[u8]) -> Vec<CellMount> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

/// `36 35 0:58 /root /at rw,noatime optional... - kind source options`
fn parse_line(line: &[u8]) -> Option<CellMount> {
    let mut fields = line.split(|b| *b == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let root = fields.next()?;
    let at = fields.next()?;
    let mut rest = fields.skip_while(|f| *f != b"-").skip(1);
    if rest.next()? != KIND {
        return None;
    }
    let (cell, at, root) = (unescape(rest.next()?), unescape(at), unescape(root));
    let mut options = rest.next().unwrap_or_default().split(|b| *b == b',');
    let owner = options.clone().find_map(|option| option.strip_prefix(b"user_id="));
    let owner = owner.and_then(|uid| std::str::from_utf8(uid).ok()?.parse().ok()).unwrap_or(0);
    let for_all = options.any(|option| option == b"allow_other");
    Some(CellMount { cell, at, root, device, owner, for_all })
}

/// Decodes spaces, tabs, newlines and backslashes, which come as `\ooo`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|o| first == b'\\' && o.iter().all(|b| (b'0'..=b'7').contains(b)));
        match octal {
            Some(o) => {
                out.push(o.iter().fold(0u8, |n, b| n.wrapping_mul(8).wrapping_add(b - b'0')));
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

/// A path of this machine, made absolute and without symbolic links, although its last name may be
/// a dead mount.
///
/// # Errors
/// When the directory above it cannot be resolved.
pub fn without_links(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)) => {
            resolve(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        }
        resolved => resolved,
    }
}

/// Whether a name is an ordinary path component.
pub fn is_plain_name(name: &OsStr) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_and_paths_translated() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/vda rw\n\
            2 1 0:58 / /mnt/a\\040b rw shared:1 - fuse.leeward /cells/one rw\n\
            3 1 0:58 /home/x /home/x rw - fuse.leeward /cells/one rw,user_id=7,allow_other\n\
            4 1 0:59";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!((&mounts[0].device[..], mounts[0].owner, mounts[0].for_all), ("0:58", 0, false));
        assert_eq!((mounts[1].owner, mounts[1].for_all), (7, true));
        assert_eq!(mounts[0].at, Path::new("/mnt/a b"));
        assert_eq!(mounts[0].path_in_cell(Path::new("/mnt/a b/c/d")), Some("/c/d".into()));
        assert_eq!(mounts[1].path_in_cell(Path::new("/home/x/y")), Some("/home/x/y".into()));
        assert_eq!(mounts[1].path_in_cell(Path::new("/mnt")), None);
    }

    #[test]
    fn paths_are_cleaned() {
        assert_eq!(clean(Path::new("//a/./b//")), Some("/a/b".into()));
        assert_eq!(clean(Path::new("/")), Some("/".into()));
        assert_eq!(clean(Path::new("/a/../b")), None);
        assert!(is_plain_name(OsStr::new("home")));
        assert!(!is_plain_name(OsStr::new("..")) && !is_plain_name(OsStr::new("a/b")));
    }
}
