//! The place of a cell: its file system, how that is mounted, what is free, and whether its disk
//! stores what it says it has.

use super::{Finding, Grade, calls};
use crate::size;
use leeward_env::Env;
use leeward_env::disk::Space;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Writes that are timed.
const FLUSHES: usize = 40;
const PIECE_BYTES: usize = 4096;
/// No disk stores a block in less time, microseconds: even those whose cache outlives a power cut
/// take longer.
const FLUSH_US_MIN: u64 = 8;
/// Nor one that turns, in the mean.
const TURNING_FLUSH_US_MIN: u64 = 1000;
/// Longer ones are felt in each `fsync`.
const FLUSH_US_MAX: u64 = 50_000;
const FREE_MIN: u64 = 10 << 30;
const FREE_PERCENT_MIN: u64 = 5;

pub fn look(env: &Env, dir: &Path) -> io::Result<Vec<Finding>> {
    let dir = existing(dir)?;
    let (place, device) = (calls::file_system(&dir)?, fs::metadata(&dir)?.dev());
    let mut all = vec![kind(place.magic, &dir), how_mounted(place.read_only, &calls::mount_options(device))];
    if all.iter().all(|finding| finding.grade != Grade::Bad) {
        all.push(flushes(timed(env, &dir)?, is_turning(device)));
    }
    all.push(space(place.free, place.total));
    all.extend(inodes(place.free_files, place.total_files));
    Ok(all)
}

/// The directory, or the nearest above it that there is.
fn existing(dir: &Path) -> io::Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    let found = dir.ancestors().find(|above| above.is_dir());
    found.map(Path::to_path_buf).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// `magic`: what statfs(2) says.
fn kind(magic: u64, dir: &Path) -> Finding {
    let what = "file system";
    let at = dir.display();
    match magic {
        0x0102_1994 | 0x8584_58F6 => {
            Finding::bad(what, format!("{at} is memory: nothing outlives a restart"), "a directory on a disk")
        }
        0x794C_7630 => Finding::bad(
            what,
            format!("{at} is the writable layer of a container, which goes with it"),
            "a volume of the host",
        ),
        0x6969 | 0xFF53_4D42 | 0xFE53_4D42 | 0x517B => Finding::look(
            what,
            format!(
                "{at} is on a network file system: locks and durability are what its server makes of them"
            ),
            "a disk of this machine, or a bucket",
        ),
        0x6573_5546 => Finding::look(
            what,
            format!(
                "{at} is on a file system of another program (FUSE): durability is what that makes of it"
            ),
            "a disk of this machine, or a bucket",
        ),
        _ => {
            let known = [
                (0xEF53, "ext4"),
                (0x5846_5342, "XFS"),
                (0x9123_683E, "Btrfs"),
                (0x2FC1_2FC1, "ZFS"),
                (0xCA45_1A4E, "bcachefs"),
                (0xF2F5_2010, "F2FS"),
            ];
            let name = known.into_iter().find(|(known, _)| *known == magic).map(|(_, name)| name);
            let name = name.map_or_else(|| format!("of type {magic:#x}"), str::to_owned);
            Finding::good(what, format!("{at} is on {name}"))
        }
    }
}

fn how_mounted(is_read_only: bool, options: &str) -> Finding {
    let has = |option: &str| options.split(',').any(|one| one == option);
    if is_read_only {
        return Finding::bad(
            "mounted",
            "read-only",
            "mount it read-write; look at dmesg, whether an error made it so",
        );
    }
    if has("nobarrier") || has("barrier=0") {
        return Finding::bad(
            "mounted",
            "without barriers: what was flushed is lost at a power cut",
            "mount it without nobarrier and barrier=0",
        );
    }
    Finding::good("mounted", "read-write, with barriers")
}

/// Microseconds that a block takes which is written over in place and flushed; the median.
fn timed(env: &Env, dir: &Path) -> io::Result<u64> {
    let path = dir.join(format!(".lee-doctor-{}", std::process::id()));
    let file = fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    let timed = time_flushes(env, &file);
    drop(file);
    fs::remove_file(&path)?;
    timed
}

fn time_flushes(env: &Env, file: &fs::File) -> io::Result<u64> {
    file.write_all_at(&[1; PIECE_BYTES], 0)?;
    file.sync_all()?;
    let mut took = Vec::with_capacity(FLUSHES);
    for n in 0..FLUSHES {
        let begun = env.now();
        file.write_all_at(&[n as u8; PIECE_BYTES], 0)?;
        file.sync_data()?;
        took.push((env.now() - begun) / 1000);
    }
    took.sort_unstable();
    Ok(took[FLUSHES / 2])
}

/// Whether the disk of a device says that it turns.
fn is_turning(device: u64) -> bool {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let at = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // virtual ones say so, too
    let is_virtual = fs::canonicalize(&at)
        .is_ok_and(|path| ["virtio", "vbd", "vmbus"].iter().any(|bus| path.to_string_lossy().contains(bus)));
    // a partition has none of its own
    let read = |path: &str| fs::read_to_string(at.join(path)).ok();
    read("queue/rotational")
        .or_else(|| read("../queue/rotational"))
        .is_some_and(|text| text.trim() == "1" && !is_virtual)
}

fn flushes(median_us: u64, is_turning: bool) -> Finding {
    let what = "flush";
    let found = format!("4 KiB are durable after {}", took(median_us));
    let is_too_fast = median_us < FLUSH_US_MIN || (is_turning && median_us < TURNING_FLUSH_US_MIN);
    if is_too_fast {
        return Finding::look(
            what,
            format!(
                "{found}: sooner than a disk can store them. If its cache does not outlive a power cut, acknowledged data is lost"
            ),
            "look whether a controller or a virtual machine answers flushes itself (cache=unsafe, a cache without battery)",
        );
    }
    if median_us > FLUSH_US_MAX {
        return Finding::look(
            what,
            format!("{found}: each fsync of users takes as long at least"),
            "a disk with a write cache that outlives a power cut, or look at what else uses it",
        );
    }
    Finding::good(what, found)
}

fn took(us: u64) -> String {
    if us < 1000 { format!("{us} us") } else { format!("{}.{} ms", us / 1000, us % 1000 / 100) }
}

fn space(free: u64, total: u64) -> Finding {
    let percent = free.saturating_mul(100) / total.max(1);
    let found = format!("{} of {} are free", size::bytes(free), size::bytes(total));
    if free >= FREE_MIN && percent >= FREE_PERCENT_MIN {
        return Finding::good("space", found);
    }
    let todo = "more room: a cell wants some to clean up in, and refuses writes before the disk is full";
    Finding::look("space", found, todo)
}

/// Each segment takes one. `None`: the file system makes them as they are needed.
fn inodes(free: u64, total: u64) -> Option<Finding> {
    let space = Space { total_files: total, available_files: free, ..Space::default() };
    let found = format!("{free} of {total} are free");
    let todo = "a file system with more of them, or remove files of other programs there";
    match total {
        0 => None,
        _ if space.lacks_files() => {
            Some(Finding::look("inodes", format!("{found}: the cell refuses writes as on a full disk"), todo))
        }
        _ if free.saturating_mul(100) / total < FREE_PERCENT_MIN => {
            Some(Finding::look("inodes", found, todo))
        }
        _ => Some(Finding::good("inodes", found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Grade::{Bad, Good, Look};

    #[test]
    fn places_are_graded() {
        let kind = |magic| super::kind(magic, Path::new("/srv")).grade;
        assert_eq!(
            (kind(0xEF53), kind(0x0102_1994), kind(0x794C_7630), kind(0x6969)),
            (Good, Bad, Bad, Look)
        );
        assert_eq!(kind(0x1234), Good);
        let mounted = |read_only, options| how_mounted(read_only, options).grade;
        assert_eq!(
            (mounted(false, "rw"), mounted(true, "rw"), mounted(false, "rw,barrier=0")),
            (Good, Bad, Bad)
        );
        assert_eq!(
            (space(1 << 40, 2 << 40).grade, space(1 << 40, 1 << 50).grade, space(1, 10).grade),
            (Good, Look, Look)
        );
        assert_eq!(space(0, 0).grade, Look);
        let inodes = |free, total| inodes(free, total).map(|finding| finding.grade);
        assert_eq!((inodes(0, 0), inodes(9000, 10_000)), (None, Some(Good)));
        assert_eq!((inodes(40_000, 1 << 20), inodes(10, 10_000)), (Some(Look), Some(Look)));
    }

    #[test]
    fn a_disk_that_is_too_quick_is_said() {
        assert_eq!(
            (flushes(3, false).grade, flushes(90, false).grade, flushes(90, true).grade),
            (Look, Good, Look)
        );
        assert_eq!((flushes(9000, true).grade, flushes(90_000, true).grade), (Good, Look));
        assert_eq!((took(90), took(12_345)), ("90 us".into(), "12.3 ms".into()));
    }

    #[test]
    fn looking_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let all = look(&Env::real(), &dir.path().join("not/there/yet")).expect("looked");
        assert_eq!(
            all.iter().map(|finding| finding.what).collect::<Vec<_>>(),
            ["file system", "mounted", "flush", "space", "inodes"]
        );
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
