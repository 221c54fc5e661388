//! The cache of a mount on disk: what was read stays over restarts, and whatever is on the disk,
//! what is read is what the file has.
#![allow(clippy::disallowed_methods)]

use crate::rig::proxy::{Proxy, WHOLE};
use crate::rig::{INVITATION, Rig, caching_client, lookup, make, seed, user};
use leeward_env::{Env, FileLock};
use leeward_fs::{NodeId, Op, Reply, SetAttr};
use leeward_remote::{CacheOptions, Client, Grant};
use leeward_vfs::Backend;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const ROOT: NodeId = NodeId::ROOT;
const SIZE: u64 = 5 * (1 << 20) + 777;
const FILES: [&[u8]; 3] = [b"large", b"small", b"tiny"];
const SIZES: [u64; 3] = [SIZE, 150_000, 3_000];
const CACHE_BYTES: u64 = 64 << 20;

fn bytes_of(file: usize, salt: u64) -> Vec<u8> {
    (0..SIZES[file]).map(|at| (at / 512 * 31 + at % 253 + salt * 7 + file as u64) as u8).collect()
}

fn write_all(client: &Client, node: NodeId, bytes: &[u8]) {
    for (n, data) in bytes.chunks(1 << 20).enumerate() {
        client.call(&user(0), Op::Write { node, offset: (n as u64) << 20, data }).expect("written");
    }
}

/// Makes the files, or writes them anew.
fn fill(rig: &Rig, salt: u64) {
    let maker = rig.host("maker", Grant::default());
    for (file, name) in FILES.into_iter().enumerate() {
        let node = lookup(&maker, ROOT, name).or_else(|_| make(&maker, ROOT, name)).expect("there").node;
        write_all(&maker, node, &bytes_of(file, salt));
    }
    maker.close();
}

/// A client with a cache in this directory, over a network that counts.
fn client(rig: &Rig, dir: &Path) -> (Client, Proxy) {
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    rig.table.invites.lock().expect("invites").push(("cached".into(), Grant::default()));
    let cache = Some(CacheOptions { dir: dir.into(), bytes: CACHE_BYTES });
    let by = (seed("cached"), Some(INVITATION));
    let client = caching_client(&rig.env, proxy.at, by, cache).expect("connected");
    rig.keeps(&client);
    (client, proxy)
}

/// Reads all files in order, and checks them.
fn read_all(client: &Client, salt: u64) {
    for (file, name) in FILES.into_iter().enumerate() {
        let node = lookup(client, ROOT, name).expect("found").node;
        let (mut read, len) = (Vec::new(), 128 << 10);
        while (read.len() as u64) < SIZES[file] {
            let op = Op::Read { node, offset: read.len() as u64, len };
            let data = client.call(&user(0), op).and_then(Reply::data).expect("read");
            assert!(!data.is_empty());
            read.extend(data);
        }
        assert!(read == bytes_of(file, salt), "{} is wrong", String::from_utf8_lossy(name));
    }
}

/// Reads all with a client of its own; how many bytes came from the server.
fn read_anew(rig: &Rig, dir: &Path, salt: u64) -> (usize, leeward_cache::DiskCacheFigures) {
    let (client, proxy) = client(rig, dir);
    let before = proxy.passed()[1];
    read_all(&client, salt);
    client.settle_cache();
    let (passed, figures) = (proxy.passed()[1] - before, client.cache_figures().unwrap_or_default());
    client.close();
    (passed, figures)
}

/// Waits until the client before has let go of the directory.
fn let_go(dir: &Path) {
    for _ in 0..500 {
        let lock = OpenOptions::new().write(true).open(dir.join("leeward.lock")).expect("a lock");
        // dropped, it is unlocked, also if another thread is just starting a process
        if FileLock::try_take(lock).is_ok() {
            return;
        }
        Env::real().sleep(Duration::from_millis(10));
    }
    panic!("the directory stays locked");
}

fn cached() -> (Rig, TempDir) {
    let (rig, dir) = (Rig::new(), tempfile::tempdir().expect("a directory"));
    fill(&rig, 1);
    let (passed, _) = read_anew(&rig, dir.path(), 1);
    assert!(passed as u64 > SIZE);
    let_go(dir.path());
    (rig, dir)
}

#[test]
fn content_stays_over_restarts_of_mount_and_server() {
    let (mut rig, dir) = cached();
    let (passed, figures) = read_anew(&rig, dir.path(), 1);
    assert!(passed < 100_000, "{passed} bytes came from the server");
    assert!(figures.hits > 80 && figures.bad == 0, "{figures:?}");
    for in_order in [true, false] {
        let_go(dir.path());
        rig.restart(in_order);
        let (passed, _) = read_anew(&rig, dir.path(), 1);
        assert!(passed < 100_000, "{passed} bytes came from the server after it was restarted");
    }
    let mode = |name: &str| fs::metadata(dir.path().join(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!(
        ["", "leeward.blocks", "leeward.index", "leeward.lock"].map(mode),
        [0o700, 0o600, 0o600, 0o600]
    );
}

#[test]
fn what_was_changed_is_not_taken_from_it() {
    let (rig, dir) = cached();
    for salt in 2..6 {
        fill(&rig, salt);
        read_anew(&rig, dir.path(), salt);
        let_go(dir.path());
    }
    // a part of a file, with its times set back; and a file that is shorter for a while
    let maker = rig.host("maker", Grant::default());
    let node = lookup(&maker, ROOT, b"large").expect("found").node;
    let (client, _proxy) = client(&rig, dir.path());
    for round in 0..20u8 {
        let offset = u64::from(round) * 200_001;
        maker.call(&user(0), Op::Write { node, offset, data: &[round; 100] }).expect("written");
        let cut = SetAttr { size: Some(SIZE - u64::from(round)), ..SetAttr::default() };
        maker.call(&user(0), Op::SetAttr { node, set: cut }).expect("cut");
        for offset in [offset - offset % 4096, SIZE - 70_000] {
            let op = Op::Read { node, offset, len: 128 << 10 };
            let _ = client.call(&user(0), Op::GetAttr { node });
            let (seen, is) = (client.call(&user(0), op), maker.call(&user(0), op));
            assert!(seen == is, "round {round} at {offset}");
        }
    }
}

/// Changes of attributes are recalled, and the content is what it was.
#[test]
fn content_is_found_again_after_attributes_have_changed() {
    let (rig, dir) = cached();
    let (client, proxy) = client(&rig, dir.path());
    read_all(&client, 1);
    let maker = rig.host("maker", Grant::default());
    let node = lookup(&maker, ROOT, b"large").expect("found").node;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    maker.call(&user(0), Op::SetAttr { node, set }).expect("set");
    let before = proxy.passed()[1];
    read_all(&client, 1);
    assert!(proxy.passed()[1] - before < 100_000);
}

#[test]
fn damage_is_found_and_the_server_asked() {
    let (rig, dir) = cached();
    let blocks = OpenOptions::new().write(true).open(dir.path().join("leeward.blocks")).expect("blocks");
    let len = blocks.metadata().expect("its length").len();
    for at in (0..len).step_by(30_011) {
        blocks.write_all_at(&[at as u8 ^ 0x55; 3], at).expect("damaged");
    }
    let (passed, figures) = read_anew(&rig, dir.path(), 1);
    assert!(passed as u64 > SIZE / 2 && figures.bad > 0, "{passed} bytes, {figures:?}");
    let_go(dir.path());
    let (passed, _) = read_anew(&rig, dir.path(), 1);
    assert!(passed < 100_000, "{passed} bytes: it was not written anew");
    // cut off, and an index that is not one
    blocks.set_len(len / 3).expect("cut");
    let index = OpenOptions::new().write(true).open(dir.path().join("leeward.index")).expect("index");
    index.write_all_at(&[0xff; 1000], 4096 + 320).expect("damaged");
    let_go(dir.path());
    read_anew(&rig, dir.path(), 1);
}

/// Slots that changed places are whole, but not what the index says.
#[test]
fn a_block_of_another_place_is_not_shown() {
    let (rig, dir) = cached();
    let path = dir.path().join("leeward.blocks");
    let slot = 17 * 4096;
    let mut all = fs::read(&path).expect("blocks");
    let count = all.len() / slot;
    for n in (0..count - 1).step_by(2) {
        let (before, after) = all.split_at_mut((n + 1) * slot);
        before[n * slot..].swap_with_slice(&mut after[..slot]);
    }
    fs::write(&path, all).expect("written");
    let (_, figures) = read_anew(&rig, dir.path(), 1);
    assert!(figures.bad > 0, "{figures:?}");
}

#[test]
fn blocks_of_another_cell_are_not_shown() {
    let (one, dir) = cached();
    // the same inodes in segments of the same numbers
    let other = Rig::new();
    fill(&other, 2);
    read_anew(&other, dir.path(), 2);
    let_go(dir.path());
    read_anew(&one, dir.path(), 1);
}

/// Where a cell is put back as it was once, numbers of segments come again, with other content.
#[test]
fn a_cell_from_a_backup_does_not_get_what_came_after_it() {
    let (mut rig, dir) = (Rig::new(), tempfile::tempdir().expect("a directory"));
    let backup = tempfile::tempdir().expect("a directory");
    let copy = |from: &Path, to: &Path| {
        let status = std::process::Command::new("cp").arg("-aT").arg(from).arg(to).status().expect("cp");
        assert!(status.success());
    };
    fill(&rig, 1);
    rig.restart_after(|cell| copy(cell, backup.path()));
    for salt in 2..6 {
        fill(&rig, salt);
        read_anew(&rig, dir.path(), salt);
        let_go(dir.path());
        rig.restart_after(|cell| {
            fs::remove_dir_all(cell).expect("removed");
            copy(backup.path(), cell);
        });
    }
    read_anew(&rig, dir.path(), 1);
}

#[test]
fn a_directory_that_another_mount_uses_is_left_alone() {
    let (rig, dir) = cached();
    let (first, _proxy) = client(&rig, dir.path());
    let (second, _other) = client(&rig, dir.path());
    assert!(first.cache_figures().is_some() && second.cache_figures().is_none());
    read_all(&first, 1);
    read_all(&second, 1);
    let (nowhere, _other) = client(&rig, Path::new("/proc/nothing"));
    assert!(nowhere.cache_figures().is_none());
    read_all(&nowhere, 1);
}

/// A disk that hangs is a fifo here: it cannot be opened before somebody reads it.
#[test]
fn a_disk_that_hangs_does_not_keep_a_mount_from_starting() {
    let (rig, dir) = (Rig::new(), tempfile::tempdir().expect("a directory"));
    fill(&rig, 1);
    let lock = dir.path().join("leeward.lock");
    let name = std::ffi::CString::new(lock.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: the name is a string that ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let (ended, waits) = std::sync::mpsc::channel::<()>();
    let fifo = lock.clone();
    // so that this ends where the mount waits for it
    let end = Env::real().spawn("end", move || {
        let waited = waits.recv_timeout(Duration::from_secs(60));
        (waited.is_ok(), OpenOptions::new().read(true).write(true).open(fifo).expect("opened"))
    });
    let (client, _proxy) = client(&rig, dir.path());
    read_all(&client, 1);
    assert!(client.cache_figures().is_none(), "it hangs");
    ended.send(()).expect("it waits for that");
    let (in_time, fifo) = end.join().expect("no panic");
    assert!(in_time, "the mount waits");
    let is_used = (0..3000).any(|_| {
        Env::real().sleep(Duration::from_millis(10));
        client.cache_figures().is_some()
    });
    assert!(is_used, "it answers again");
    drop(fifo);
    read_all(&client, 1);
}

#[test]
fn a_directory_with_files_of_others_is_left_as_it_is() {
    let (rig, dir) = (Rig::new(), tempfile::tempdir().expect("a directory"));
    fill(&rig, 1);
    fs::write(dir.path().join("of somebody else"), b"").expect("written");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).expect("open to all");
    let (client, _proxy) = client(&rig, dir.path());
    assert!(client.cache_figures().is_none());
    read_all(&client, 1);
    let mode = fs::metadata(dir.path()).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o1777);
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1);
}

/// What a process that is killed leaves: copies of the files, taken while they are written.
#[test]
fn files_as_a_killed_process_leaves_them_are_no_harm() {
    let (rig, dir) = (Rig::new(), tempfile::tempdir().expect("a directory"));
    fill(&rig, 1);
    let left: Vec<TempDir> = (0..6).map(|_| tempfile::tempdir().expect("a directory")).collect();
    let names = ["leeward.index", "leeward.blocks", "leeward.lock"];
    std::thread::scope(|scope| {
        let (client, _proxy) = client(&rig, dir.path());
        let reader = scope.spawn(move || {
            for _ in 0..4 {
                read_all(&client, 1);
            }
            client.close();
        });
        for (n, to) in left.iter().enumerate() {
            rig.env.sleep(Duration::from_millis(10));
            let mut names = names;
            if n % 2 == 0 {
                names.reverse();
            }
            for name in names {
                fs::copy(dir.path().join(name), to.path().join(name)).expect("copied");
            }
        }
        reader.join().expect("all was right");
    });
    for from in &left {
        read_anew(&rig, from.path(), 1);
        let_go(from.path());
        fill(&rig, 2);
        read_anew(&rig, from.path(), 2);
        fill(&rig, 1);
    }
}

/// A file system of its own, unmounted in the end.
struct Small<'a>(&'a Path);

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_gone_around() {
    let (rig, dir) = (Rig::new(), tempfile::tempdir().expect("a directory"));
    let mount = ["-t", "tmpfs", "-o", "size=3M", "leeward-test"];
    let mounted = std::process::Command::new("mount").args(mount).arg(dir.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("not run: it may not mount");
        return;
    }
    let _small = Small(dir.path());
    fill(&rig, 1);
    let (_, figures) = read_anew(&rig, dir.path(), 1);
    assert!(figures.errors > 0, "{figures:?}");
    let_go(dir.path());
    read_anew(&rig, dir.path(), 1);
}
