//! What the simulated disk keeps, loses and refuses.

use leeward_env::disk::sim::{Fault, SimDisk, is_power_off};
use leeward_env::disk::{Caching, Disk, DiskFile, Space};
use std::io;

const SEEDS: u64 = 200;

fn create(disk: &SimDisk, path: &str) -> Box<dyn DiskFile> {
    disk.create(path, Caching::Buffered).unwrap()
}

fn content(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(path, Caching::Buffered).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    Some(bytes)
}

/// Creates a durable file.
fn durable(disk: &SimDisk, path: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let file = create(disk, path);
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir)).unwrap();
    file
}

/// How often each outcome was seen, over many power cuts.
fn outcomes<T: Ord>(disk: &SimDisk, look: impl Fn(&SimDisk) -> T) -> std::collections::BTreeMap<T, usize> {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..SEEDS {
        *seen.entry(look(&disk.power_cut(seed))).or_default() += 1;
    }
    seen
}

#[test]
fn synced_survives_every_cut() {
    let disk = SimDisk::new(1);
    durable(&disk, "a/b/c", &[7; 5000]);
    let seen = outcomes(&disk, |cut| content(cut, "a/b/c"));
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), [Some(vec![7; 5000])]);
}

#[test]
fn unsynced_sectors_survive_one_by_one() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "f", &[1; 2048]);
    file.write_at(256, &[2; 1024]).unwrap();
    let seen = outcomes(&disk, |cut| content(cut, "f").unwrap());
    assert_eq!(seen.len(), 8, "three sectors, each old or new");
    for bytes in seen.keys() {
        assert_eq!(bytes.len(), 2048);
        assert!(bytes[..256].iter().chain(&bytes[1280..]).all(|b| *b == 1));
        for range in [256..512, 512..1024, 1024..1280] {
            assert!(bytes[range.clone()].iter().all(|b| *b == bytes[range.start]));
        }
    }
}

#[test]
fn appended_bytes_may_leave_a_hole() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "f", &[]);
    file.write_at(0, &[1; 512]).unwrap();
    file.write_at(512, &[2; 512]).unwrap();
    let seen = outcomes(&disk, |cut| content(cut, "f").unwrap());
    let hole = [vec![0; 512], vec![2; 512]].concat();
    assert!(seen.contains_key(&hole) && seen.contains_key(&vec![]) && seen.len() == 4);
}

#[test]
fn a_name_needs_its_directory_synced() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "d/f");
    file.write_at(0, b"x").unwrap();
    file.sync().unwrap();
    let seen = outcomes(&disk, |cut| content(cut, "d/f"));
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), [None, Some(b"x".to_vec())]);
    disk.sync_dir("d").unwrap();
    let seen = outcomes(&disk, |cut| content(cut, "d/f"));
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), [Some(b"x".to_vec())]);
}

#[test]
fn syncing_one_directory_leaves_the_others() {
    let disk = SimDisk::new(1);
    create(&disk, "d/f");
    create(&disk, "e/f");
    disk.sync_dir("d").unwrap();
    let seen = outcomes(&disk, |cut| (content(cut, "d/f").is_some(), content(cut, "e/f").is_some()));
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), [(true, false), (true, true)]);
}

#[test]
fn rename_is_old_or_new() {
    let disk = SimDisk::new(1);
    durable(&disk, "f", b"old");
    durable(&disk, "f.new", b"new");
    disk.rename("f.new", "f").unwrap();
    let seen = outcomes(&disk, |cut| (content(cut, "f").unwrap(), content(cut, "f.new")));
    let old = (b"old".to_vec(), Some(b"new".to_vec()));
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), [(b"new".to_vec(), None), old]);
}

#[test]
fn rename_between_directories_is_one_change() {
    let disk = SimDisk::new(1);
    create(&disk, "y/other");
    disk.sync_dir("y").unwrap();
    create(&disk, "x/f");
    disk.rename("x/f", "y/f").unwrap();
    let names = |cut: &SimDisk| (content(cut, "x/f").is_some(), content(cut, "y/f").is_some());
    assert!(!outcomes(&disk, names).contains_key(&(true, true)));
    disk.sync_dir("y").unwrap();
    assert_eq!(outcomes(&disk, names).into_keys().collect::<Vec<_>>(), [(false, true)]);
}

#[test]
fn a_removed_file_may_come_back_until_synced() {
    let disk = SimDisk::new(1);
    durable(&disk, "f", b"x");
    disk.remove("f").unwrap();
    assert_eq!(outcomes(&disk, |cut| content(cut, "f")).len(), 2);
    disk.sync_dir("").unwrap();
    assert_eq!(outcomes(&disk, |cut| content(cut, "f")).into_keys().collect::<Vec<_>>(), [None]);
}

#[test]
fn a_kill_keeps_what_was_written_and_what_was_not_synced() {
    let disk = SimDisk::new(1);
    create(&disk, "d/f").write_at(0, b"x").unwrap();
    let next = disk.kill();
    assert_eq!(content(&next, "d/f").unwrap(), b"x");
    assert_eq!(outcomes(&next, |cut| content(cut, "d/f")).len(), 3, "no name, empty, whole");
    next.remove("d/f").unwrap();
    assert_eq!(content(&disk, "d/f").unwrap(), b"x", "the old disk is another one");
}

#[test]
fn truncation_is_durable_after_sync() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "f", &[1; 9000]);
    file.truncate(100).unwrap();
    file.truncate(600).unwrap();
    assert!(outcomes(&disk, |cut| content(cut, "f").unwrap().len()).contains_key(&9000));
    file.sync().unwrap();
    let cut = [vec![1; 100], vec![0; 500]].concat();
    assert_eq!(outcomes(&disk, |cut| content(cut, "f").unwrap()).into_keys().collect::<Vec<_>>(), [cut]);
}

/// One file replaced, call by call.
fn script(disk: &SimDisk) -> io::Result<()> {
    let file = disk.create("d/new", Caching::Buffered)?;
    file.allocate(8192)?;
    file.write_at(0, &[3; 3000])?;
    file.truncate(3000)?;
    file.sync()?;
    disk.rename("d/new", "d/f")?;
    disk.sync_dir("d")?;
    disk.remove("d/f")?;
    disk.sync_dir("d")
}

#[test]
fn every_mutation_can_crash() {
    let whole = SimDisk::new(1);
    script(&whole).unwrap();
    assert_eq!(whole.mutations(), 9);
    for n in 0..whole.mutations() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let disk = SimDisk::new(1);
            disk.fail_at(n, fault);
            assert!(is_power_off(&script(&disk).unwrap_err()));
            assert_eq!(disk.mutations(), n + 1);
            assert!(is_power_off(&disk.list("d").unwrap_err()));
            assert!(is_power_off(&disk.sync_dir("").unwrap_err()));
            for seed in 0..20 {
                let left = content(&disk.power_cut(seed), "d/f");
                assert!(left.is_none_or(|bytes| bytes == [3; 3000]), "{:?}", disk.recent());
            }
        }
        for (fault, code) in [(Fault::Eio, libc::EIO), (Fault::Enospc, libc::ENOSPC)] {
            let disk = SimDisk::new(1);
            disk.fail_at(n, fault);
            assert_eq!(script(&disk).unwrap_err().raw_os_error(), Some(code));
            script(&disk).unwrap();
        }
    }
}

#[test]
fn crash_after_takes_effect() {
    let disk = SimDisk::new(1);
    disk.fail_at(0, Fault::CrashAfter);
    assert!(disk.create("f", Caching::Buffered).is_err());
    assert!(content(&disk.kill(), "f").is_some());
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let lost = (0..50).any(|seed| {
        let disk = SimDisk::new(seed);
        let file = durable(&disk, "f", &[1; 4096]);
        file.write_at(0, &[2; 512]).unwrap();
        disk.fail_at(disk.mutations(), Fault::Eio);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(content(&disk, "f").unwrap()[0], 2, "the running process sees it");
        content(&disk.power_cut(0), "f").unwrap()[0] == 1
    });
    assert!(lost);
}

#[test]
fn capacity_is_enforced_and_given_back() {
    let disk = SimDisk::new(1);
    disk.set_capacity(4 * 4096);
    let file = create(&disk, "f");
    let full = |r: io::Result<()>| r.unwrap_err().raw_os_error() == Some(libc::ENOSPC);
    assert!(full(file.allocate(5 * 4096)));
    file.allocate(2 * 4096).unwrap();
    assert_eq!(disk.space().unwrap().available_bytes, 2 * 4096);
    let other = create(&disk, "g");
    assert!(full(other.write_at(0, &[1; 3 * 4096])));
    assert_eq!(other.len().unwrap(), 2 * 4096, "what fitted");
    file.write_at(0, &[1; 2 * 4096]).unwrap(); // reserved
    disk.remove("g").unwrap();
    assert_eq!(disk.space().unwrap().available_bytes, 2 * 4096);
    file.truncate(1).unwrap();
    assert_eq!(disk.space().unwrap().available_bytes, 3 * 4096);
    assert_eq!(disk.kill().space().unwrap(), disk.space().unwrap());
}

#[test]
fn overwriting_needs_space_where_writes_are_copied() {
    let disk = SimDisk::new(1);
    disk.set_capacity(3 * 4096);
    let file = create(&disk, "f");
    file.write_at(0, &[1; 2 * 4096]).unwrap();
    disk.copy_on_write();
    file.write_at(100, &[2; 4000 - 100]).unwrap();
    assert_eq!(disk.space().unwrap().available_bytes, 4096, "for as long as it takes");
    let full = file.write_at(4000, &[3; 200]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC), "it touches two pages");
    assert_eq!(content(&disk, "f").unwrap()[3998..4002], [2, 2, 1, 1], "and leaves nothing");
}

#[test]
fn a_disk_without_inodes_is_full() {
    let usable = |total_files, available_files| {
        Space { total_bytes: 100, available_bytes: 50, total_files, available_files }.usable_bytes()
    };
    assert_eq!((usable(1 << 20, 5000), usable(1 << 20, 4000)), (50, 0));
    assert_eq!((usable(1600, 100), usable(1600, 99)), (50, 0), "a small one");
    assert_eq!(usable(0, 0), 50, "one that does not say");
}

#[test]
fn bits_flip_and_reads_fail() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "d/f", &[4; 10]);
    disk.flip_bit("d/f", 9).unwrap();
    assert_eq!(content(&disk.power_cut(0), "d/f").unwrap()[8..], [4, 5]);
    assert!(disk.flip_bit("d/f", 10).is_err());
    disk.fail_reads("d/");
    assert_eq!(file.read_at(0, &mut [0]).unwrap_err().raw_os_error(), Some(libc::EIO));
    disk.heal();
    assert_eq!(file.read_at(0, &mut [0]).unwrap(), 1);
}

#[test]
fn same_seed_same_disk() {
    let make = || {
        let disk = SimDisk::new(5);
        for i in 0..10 {
            create(&disk, &format!("d/{i}")).write_at(0, &[i; 4096]).unwrap();
        }
        let cut = disk.power_cut(3);
        (0..10).map(|i| content(&cut, &format!("d/{i}"))).collect::<Vec<_>>()
    };
    assert_eq!(make(), make());
}
