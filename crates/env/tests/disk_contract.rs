//! What both disks promise, run on both.
#![allow(clippy::disallowed_methods)] // threads of a test

use leeward_env::disk::real::{ALIGN, AlignedBuf, RealDisk};
use leeward_env::disk::sim::SimDisk;
use leeward_env::disk::{Caching, Disk};
use std::io::ErrorKind;
use std::process::Command;

fn everywhere(test: impl Fn(&dyn Disk)) {
    test(&SimDisk::new(1));
    let dir = tempfile::tempdir().unwrap();
    test(&RealDisk::open(dir.path()).expect("a directory"));
    // no O_DIRECT on some kernels
    if let Ok(dir) = tempfile::tempdir_in("/dev/shm") {
        test(&RealDisk::open(dir.path()).expect("a directory"));
    }
}

#[test]
fn names() {
    everywhere(|disk| {
        assert_eq!(disk.list("nowhere").unwrap(), []);
        assert_eq!(disk.list_dirs("").unwrap(), Vec::<String>::new());
        disk.create("b/c/one", Caching::Buffered).unwrap().write_at(0, b"123").unwrap();
        disk.create("b/two", Caching::Buffered).unwrap();
        disk.create("b.c", Caching::Buffered).unwrap();
        assert_eq!(disk.list("").unwrap(), [("b.c".to_string(), 0)]);
        assert_eq!(disk.list("b").unwrap(), [("two".to_string(), 0)]);
        assert_eq!(disk.list("b/c").unwrap(), [("one".to_string(), 3)]);
        assert_eq!(disk.list_dirs("").unwrap(), ["b"]);
        assert_eq!(disk.list_dirs("b").unwrap(), ["c"]);
        disk.sync_dir("b/c").unwrap();
        disk.sync_dir("").unwrap();
        disk.rename("b/c/one", "b/two").unwrap();
        assert_eq!(disk.list("b").unwrap(), [("two".to_string(), 3)]);
        disk.remove("b/two").unwrap();
        assert_eq!(disk.list("b").unwrap(), []);
    });
}

#[test]
fn errors_have_kinds() {
    everywhere(|disk| {
        let kind = |r: std::io::Result<()>| r.unwrap_err().kind();
        disk.create("d/f", Caching::Buffered).unwrap();
        assert_eq!(kind(disk.open("none", Caching::Direct).map(drop)), ErrorKind::NotFound);
        assert_eq!(kind(disk.remove("none")), ErrorKind::NotFound);
        assert_eq!(kind(disk.rename("none", "f")), ErrorKind::NotFound);
        assert_eq!(kind(disk.rename("d/f", "none/f")), ErrorKind::NotFound);
        assert_eq!(kind(disk.sync_dir("none")), ErrorKind::NotFound);
        assert_eq!(kind(disk.create("d", Caching::Buffered).map(drop)), ErrorKind::IsADirectory);
        assert_eq!(kind(disk.create("d/f/g", Caching::Buffered).map(drop)), ErrorKind::NotADirectory);
        for outside in ["/etc/passwd", "../f", "d/../../f"] {
            assert_eq!(kind(disk.open(outside, Caching::Buffered).map(drop)), ErrorKind::InvalidInput);
            assert_eq!(kind(disk.create(outside, Caching::Buffered).map(drop)), ErrorKind::InvalidInput);
            assert_eq!(kind(disk.remove(outside)), ErrorKind::InvalidInput);
            assert_eq!(kind(disk.rename("d/f", outside)), ErrorKind::InvalidInput);
            assert_eq!(kind(disk.list(outside).map(drop)), ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn transfers_of_all_alignments_agree() {
    everywhere(|disk| {
        for caching in [Caching::Buffered, Caching::Direct] {
            let file = disk.create("f", caching).unwrap();
            let mut model = vec![0u8; 5 * ALIGN];
            let mut page = AlignedBuf::zeroed(2 * ALIGN);
            let writes = [(0, 2 * ALIGN), (100, 50), (ALIGN, ALIGN), (3 * ALIGN, 777), (ALIGN - 1, 4098)];
            for (i, (offset, len)) in writes.into_iter().enumerate() {
                page.fill(i as u8 + 1);
                file.write_at(offset as u64, &page[..len]).unwrap();
                model[offset..offset + len].fill(i as u8 + 1);
            }
            file.sync().unwrap();
            let len = 3 * ALIGN + 777;
            assert_eq!(file.len().unwrap(), len as u64);
            let mut whole = AlignedBuf::zeroed(8 * ALIGN);
            assert_eq!(file.read_at(0, &mut whole).unwrap(), len, "short at the end");
            assert_eq!(whole[..len], model[..len]);
            let mut odd = vec![0; 1001];
            assert_eq!(file.read_at(ALIGN as u64 - 7, &mut odd).unwrap(), 1001);
            assert_eq!(odd, model[ALIGN - 7..ALIGN - 7 + 1001]);
            assert_eq!(file.read_at(len as u64 + 5, &mut odd).unwrap(), 0, "after the end");
            assert_eq!(file.read_at(10 * ALIGN as u64, &mut whole).unwrap(), 0, "after the end");
            let other = disk.open("f", Caching::Buffered).unwrap();
            assert_eq!(other.read_at(5, &mut odd).unwrap(), 1001);
            assert_eq!(odd, model[5..5 + 1001]);
        }
    });
}

#[test]
fn sizes() {
    everywhere(|disk| {
        let file = disk.create("f", Caching::Buffered).unwrap();
        assert!(file.is_empty().unwrap());
        file.allocate(10_000).unwrap();
        assert_eq!(file.len().unwrap(), 10_000);
        file.allocate(5_000).unwrap();
        assert_eq!(file.len().unwrap(), 10_000);
        file.write_at(0, &[1; 3000]).unwrap();
        file.truncate(1000).unwrap();
        file.truncate(2000).unwrap();
        let mut bytes = vec![9; 3000];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), 2000);
        assert!(bytes[..1000].iter().all(|b| *b == 1) && bytes[1000..2000].iter().all(|b| *b == 0));
        assert!(disk.create("f", Caching::Direct).unwrap().is_empty().unwrap(), "create empties");
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    everywhere(|disk| {
        let file = disk.create("f", Caching::Direct).unwrap();
        file.write_at(0, b"still here").unwrap();
        disk.remove("f").unwrap();
        let mut bytes = [0; 10];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), 10);
        assert_eq!(&bytes, b"still here");
    });
}

#[test]
fn threads_share_a_file() {
    everywhere(|disk| {
        let file = disk.create("f", Caching::Direct).unwrap();
        std::thread::scope(|scope| {
            for i in 0..4u8 {
                let file = &file;
                scope.spawn(move || {
                    let at = u64::from(i) * ALIGN as u64;
                    file.write_at(at, &[i; ALIGN]).unwrap();
                    file.sync().unwrap();
                });
            }
        });
        let mut bytes = vec![0; 4 * ALIGN];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        assert!(bytes.chunks(ALIGN).enumerate().all(|(i, page)| page.iter().all(|b| *b == i as u8)));
    });
}

#[test]
fn a_full_file_system_says_so() {
    everywhere(|disk| {
        let file = disk.create("f", Caching::Buffered).unwrap();
        let space = disk.space().unwrap();
        assert!(space.total_bytes >= space.available_bytes && space.available_bytes > 0);
        file.allocate(4096).unwrap();
        let error = file.allocate(space.total_bytes + (1 << 30)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(file.len().unwrap(), 4096);
    });
}

/// ext4 keeps what it gave before it found no more. That would be the last space of everybody on
/// the disk, if only for a moment.
#[test]
fn what_cannot_be_allocated_takes_nothing() {
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        return; // mounts a disk image
    }
    // a thread that has its own mounts, which end with it
    let checked = std::thread::spawn(|| {
        // SAFETY: concerns this thread alone.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) }, 0);
        let dir = tempfile::tempdir().unwrap();
        let (image, root) = (dir.path().join("image"), dir.path().join("root"));
        std::fs::File::create(&image).and_then(|file| file.set_len(32 << 20)).unwrap();
        std::fs::create_dir(&root).unwrap();
        let script = "mount --make-rprivate / && mkfs.ext4 -q -m 0 \"$1\" && mount -o loop \"$1\" \"$2\"";
        let made = Command::new("sh").args(["-ec", script, "sh"]).args([&image, &root]).status();
        assert!(made.unwrap().success());
        let disk = RealDisk::open(&root).unwrap();
        let (file, other) =
            (disk.create("f", Caching::Buffered).unwrap(), disk.create("g", Caching::Buffered).unwrap());
        file.allocate(1 << 20).unwrap();
        let before = disk.space().unwrap().available_bytes;
        // all that statvfs says, which leaves nothing for the map of the file's blocks
        let mut refused = 0;
        for less in (0..64).map(|n| n * 4096) {
            let wanted = before - less;
            match other.allocate(wanted) {
                Ok(()) => break,
                Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOSPC)),
            }
            refused += 1;
            assert_eq!((other.len().unwrap(), disk.space().unwrap().available_bytes), (0, before), "{less}");
        }
        assert!(refused > 0, "the map of the blocks took no space: nothing was given back");
        let error = file.allocate(before + (2 << 20)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(file.len().unwrap(), 1 << 20);
    });
    if let Err(panic) = checked.join() {
        std::panic::resume_unwind(panic);
    }
}
