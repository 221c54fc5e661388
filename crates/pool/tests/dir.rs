//! What is particular to a directory as a store.

use leeward_env::Ctx;
use leeward_env::disk::pinned::PinnedDisk;
use leeward_env::disk::real::{ALIGN, RealDisk};
use leeward_env::disk::sim::SimDisk;
use leeward_env::disk::{Caching, Disk};
use leeward_env::limits::STORE_SLICE_BYTES;
use leeward_pool::contract::{body, holds, id};
use leeward_pool::{DirStore, Error, Store};
use std::cell::Cell;
use std::sync::Arc;

#[test]
fn paths_are_for_ever() {
    let store = DirStore::new(Arc::new(SimDisk::new(1)), "pool");
    assert_eq!(store.path(id(0, 0)), "pool/00/0000000000000000.0");
    assert_eq!(store.path(id(1, 2)), "pool/9e/0000000000000001.2");
    assert_eq!(store.path(id(0x1234_5678_9abc_def0, 17)), "pool/c9/123456789abcdef0.17");
    let store = DirStore::new(Arc::new(SimDisk::new(1)), "");
    assert_eq!(store.path(id(u64::MAX, u32::MAX)), "61/ffffffffffffffff.4294967295");
}

#[test]
fn directories_fill_evenly() {
    let store = DirStore::new(Arc::new(SimDisk::new(1)), "");
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for segment in 0..25_600 {
        *counts.entry(store.path(id(segment, 0))[..2].to_string()).or_default() += 1;
    }
    assert_eq!(counts.len(), 256);
    assert!(counts.values().all(|n| (90..=110).contains(n)), "{counts:?}");
}

#[test]
fn foreign_files_are_not_objects() {
    let disk = SimDisk::new(1);
    let store = DirStore::new(Arc::new(disk.clone()), "pool");
    store.put(&Ctx::system(), id(1, 0), &body(1, ALIGN)).unwrap();
    for foreign in [
        "pool/README",
        "pool/9e/README",
        "pool/9e/0000000000000001",
        "pool/9e/0000000000000001.00",
        "pool/9e/0000000000000001.+1",
        "pool/9e/0000000000000001.4294967296",
        "pool/9e/000000000000000A.0",
        "pool/9e/1.0",
        "pool/9e/.0000000000000001.0",
        "pool/9d/0000000000000001.0", // an object, but not here
        "pool/9e/sub/0000000000000001.1",
        "pool/lost+found/0000000000000001.1",
    ] {
        disk.create(foreign, Caching::Buffered).unwrap();
    }
    assert_eq!(store.list(&Ctx::system()).unwrap(), [(id(1, 0), ALIGN as u64)]);
}

#[test]
fn another_store_object_reads_what_one_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let open = || DirStore::new(Arc::new(RealDisk::open(dir.path()).expect("a directory")), "pool");
    let whole = body(1, STORE_SLICE_BYTES + ALIGN);
    open().put(&Ctx::system(), id(1, 0), &whole).unwrap();
    assert!(holds(&open(), id(1, 0), &whole));
    assert_eq!(open().list(&Ctx::system()).unwrap(), [(id(1, 0), whole.len() as u64)]);
}

#[test]
fn a_put_makes_no_needless_calls() {
    let disk = SimDisk::new(1);
    let store = DirStore::new(Arc::new(disk.clone()), "pool");
    store.put(&Ctx::system(), id(1, 0), &body(1, 3 * STORE_SLICE_BYTES)).unwrap();
    assert_eq!(disk.mutations(), 6, "{:?}", disk.recent());
}

#[test]
fn open_files_are_bounded_and_given_back() {
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let dir = tempfile::tempdir().unwrap();
    let store = DirStore::new(Arc::new(RealDisk::open(dir.path()).expect("a directory")), "");
    let before = open_files();
    for segment in 0..200 {
        store.put(&Ctx::system(), id(segment, 0), &body(segment, ALIGN)).unwrap();
        assert!(holds(&store, id(segment, 0), &body(segment, ALIGN)));
    }
    // other tests of this process have files open, too
    assert!(open_files() - before < 2 * 128 + 50);
    for segment in 0..200 {
        store.delete(&Ctx::system(), id(segment, 0)).unwrap();
    }
    assert!(open_files() < before + 50);
}

#[test]
fn damage_is_told_by_kind() {
    let ctx = Ctx::system();
    let disk = SimDisk::new(1);
    let store = DirStore::new(Arc::new(disk.clone()), "pool");
    store.put(&ctx, id(1, 0), &body(1, 2 * ALIGN)).unwrap();
    let mut buf = [0; ALIGN];
    disk.open(&store.path(id(1, 0)), Caching::Buffered).unwrap().truncate(ALIGN as u64 + 1).unwrap();
    assert!(matches!(store.get(&ctx, id(1, 0), ALIGN as u64, &mut buf), Err(Error::Short(_))));
    assert_eq!(store.len(&ctx, id(1, 0)).unwrap(), ALIGN as u64 + 1);
    disk.fail_reads("pool/9e");
    assert!(matches!(store.get(&ctx, id(1, 0), 0, &mut buf), Err(Error::Io(_))));
}

/// The directory comes back as another one, as a disk does that was mounted anew; the files that
/// were open before are of no use.
#[test]
fn a_directory_that_went_and_came_back_is_read_anew() {
    let (above, ctx, whole) = (tempfile::tempdir().unwrap(), Ctx::system(), body(1, ALIGN));
    let (root, old) = (above.path().join("root"), above.path().join("old"));
    std::fs::create_dir(&root).unwrap();
    RealDisk::open(&root).unwrap().create("mark", Caching::Buffered).unwrap();
    let store = DirStore::new(Arc::new(PinnedDisk::open(&root, "mark").unwrap()), "");
    store.put(&ctx, id(1, 0), &whole).unwrap();
    assert!(holds(&store, id(1, 0), &whole) && store.len(&ctx, id(1, 0)).is_ok());
    let object = store.path(id(1, 0));
    std::fs::rename(&root, &old).unwrap();
    std::fs::create_dir_all(root.join(&object).parent().unwrap()).unwrap();
    for file in ["mark", &object] {
        std::fs::copy(old.join(file), root.join(file)).unwrap();
    }
    std::fs::File::options().write(true).open(old.join(&object)).unwrap().set_len(0).unwrap();
    assert!(holds(&store, id(1, 0), &whole));
    // a disk that is gone can be unmounted: nothing on it is open
    std::fs::rename(&root, above.path().join("gone")).unwrap();
    assert!(store.space().is_err());
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let paths: Vec<_> = open.filter_map(|file| std::fs::read_link(file.path()).ok()).collect();
    assert!(!paths.iter().any(|path| path.starts_with(above.path())), "{paths:?}");
}

/// Of two at once the one that fails would remove what the other has written.
#[test]
fn an_object_that_is_being_put_is_not_put_again() {
    let (disk, ctx, whole) = (SimDisk::new(1), Ctx::system(), body(1, 2 * STORE_SLICE_BYTES));
    let store = DirStore::new(Arc::new(disk), "pool");
    let (seconds, other) = (Cell::new(0), Cell::new(false));
    let put = store.put_paced(&ctx, id(1, 0), &whole, &|_, write| {
        let second = store.put(&ctx, id(1, 0), &whole);
        assert!(matches!(second, Err(Error::Away(_))), "{second:?}");
        seconds.set(seconds.get() + 1);
        if !other.replace(true) {
            store.put(&ctx, id(2, 0), &whole).unwrap();
        }
        write()
    });
    assert!(put.is_ok() && seconds.get() == 2, "{put:?} after {} slices", seconds.get());
    assert!(holds(&store, id(1, 0), &whole) && holds(&store, id(2, 0), &whole));
    let failed = store.put_paced(&ctx, id(3, 0), &whole, &|_, _| Err(Error::Full));
    assert!(matches!(failed, Err(Error::Full)), "{failed:?}");
    store.put(&ctx, id(3, 0), &whole).expect("the first has ended");
}
