//! The engine on a directory: killed, damaged, large, busy.
#![allow(clippy::disallowed_methods)]

use leeward_env::Env;
use leeward_env::disk::real::RealDisk;
use leeward_meta::contract::{Model, Random, puts, settle};
use leeward_meta::lsm::{LsmKv, Options};
use leeward_meta::{Batch, EngineOptions, Error, Kv, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn small() -> Options {
    let mut engine =
        EngineOptions { memtable_bytes: 200 << 10, journal_bytes: 600 << 10, ..Default::default() };
    engine.journal.file_bytes = 256 << 10;
    Options { engine, ..Options::default() }
}

fn open(dir: &Path, options: Options) -> Result<LsmKv> {
    LsmKv::open(
        Env::real(),
        Arc::new(RealDisk::open(dir).expect("a directory")),
        &dir.join("tables"),
        options,
    )
}

/// Copies a directory while it is written to, as far as files are still there: the journal first. A
/// table that the copied manifest names may then be gone already, so the copy is only good while no
/// maintenance runs.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("mkdir");
    for entry in fs::read_dir(from).expect("read_dir").flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().expect("file type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copy");
        }
    }
}

#[test]
fn killed_and_opened_again() {
    let root = tempfile::tempdir().expect("tempdir");
    let dir = root.path().join("0");
    fs::create_dir(&dir).expect("mkdir");
    let mut kv = open(&dir, small()).expect("open");
    let (mut model, mut random) = (Model::default(), Random::new(3));
    for round in 1..15 {
        for _ in 0..random.below(150) {
            let batch = random.batch();
            kv.commit(&batch).expect("commit");
            model.apply(&batch);
            if random.below(5) == 0 {
                kv.maintain().expect("maintain");
            }
        }
        // what a kill leaves: the engine was not told
        let next = root.path().join(round.to_string());
        copy(dir.parent().expect("parent").join((round - 1).to_string()).as_path(), &next);
        kv = open(&next, small()).expect("open after a kill");
        model.check(&kv, &mut random);
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).expect("read_dir").flatten() {
        if entry.path().is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all.sort();
    all
}

/// Every answer is right or an error.
fn right_or_error(dir: &Path, model: &Model) -> std::result::Result<(), Error> {
    let kv = open(dir, Options::default())?;
    compared(&kv, model).map_err(|e| match e {
        Error::Corrupt(what) => Error::Corrupt(kv.damaged_file().unwrap_or(what)),
        other => other,
    })
}

fn compared(kv: &LsmKv, model: &Model) -> std::result::Result<(), Error> {
    for i in 0..64u16 {
        for prefix in [&b"k"[..], b"kk", b"kkk"] {
            let key = [prefix, &i.to_be_bytes()].concat();
            let value = kv.get(&key)?;
            assert_eq!(value.as_deref(), model.get(&key), "a wrong value of {key:?}");
        }
    }
    let pairs = kv.scan(&[0], &[0xff; 8], usize::MAX, false)?;
    assert_eq!(pairs.len(), model.len(), "a wrong scan");
    pairs.iter().for_each(|(k, v)| assert_eq!(model.get(k), Some(&v[..]), "a wrong pair"));
    while kv.maintain()? {}
    Ok(())
}

#[test]
fn a_flipped_bit_in_any_file_of_the_tables() {
    let root = tempfile::tempdir().expect("tempdir");
    let whole = root.path().join("whole");
    fs::create_dir(&whole).expect("mkdir");
    let kv = open(&whole, Options::default()).expect("open");
    let (mut model, mut random) = (Model::default(), Random::new(5));
    for _ in 0..3 {
        for _ in 0..40 {
            let batch = random.batch();
            kv.commit(&batch).expect("commit");
            model.apply(&batch);
        }
        kv.seal();
        kv.maintain().expect("maintain");
    }
    settle(&kv);
    drop(kv);
    fs::remove_dir_all(whole.join("meta")).expect("the journal would hide damage");
    right_or_error(&whole, &model).expect("whole");
    std::panic::set_hook(Box::new(|_| ())); // those of the tree are caught
    let (mut errors, mut flips) = (0, 0);
    for file in files(&whole.join("tables")) {
        let bytes = fs::read(&file).expect("read");
        let name = file.strip_prefix(whole.join("tables")).expect("prefix").display().to_string();
        let step = (bytes.len() / 40).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << random.below(8);
            let dir = root.path().join("damaged");
            copy(&whole, &dir);
            let path = dir.join(file.strip_prefix(&whole).expect("prefix"));
            fs::write(&path, damaged).expect("write");
            match std::panic::catch_unwind(|| right_or_error(&dir, &model)) {
                Ok(Ok(())) => {}
                Ok(Err(Error::Corrupt(what))) if what.contains(&format!("`{name}`")) => errors += 1,
                Ok(Err(e)) => panic_after_all(&file, at, &e.to_string()),
                Err(e) => panic_after_all(&file, at, e.downcast_ref::<String>().map_or("?", |s| s)),
            }
            flips += 1;
            fs::remove_dir_all(dir).expect("remove");
        }
    }
    let _ = std::panic::take_hook();
    println!("{errors} of {flips} flipped bits were found");
    assert!(errors > flips / 2);
}

fn panic_after_all(file: &Path, at: usize, what: &str) {
    let _ = std::panic::take_hook();
    panic!("{file:?}, byte {at}: {what}");
}

#[test]
fn a_missing_manifest_or_table_is_corrupt() {
    let root = tempfile::tempdir().expect("tempdir");
    let whole = root.path().join("whole");
    fs::create_dir(&whole).expect("mkdir");
    let kv = open(&whole, Options::default()).expect("open");
    kv.commit(&puts(&[(b"a", b"1")])).expect("commit");
    kv.seal();
    settle(&kv);
    drop(kv);
    for file in files(&whole.join("tables")) {
        if file.ends_with("v0") || file.ends_with("v1") {
            continue; // manifests of the past
        }
        let dir = root.path().join("damaged");
        copy(&whole, &dir);
        let name = file.strip_prefix(&whole).expect("prefix");
        fs::remove_file(dir.join(name)).expect("remove");
        assert!(refusal(&dir).contains("missing"), "{file:?}");
        fs::write(dir.join(name), "").expect("empty");
        let said = refusal(&dir);
        assert!(
            said.contains(name.strip_prefix("tables").expect("prefix").to_str().expect("UTF-8")),
            "{said}"
        );
        fs::remove_dir_all(dir).expect("remove");
    }
}

#[test]
fn tables_that_were_exchanged_are_refused() {
    let root = tempfile::tempdir().expect("tempdir");
    let kv = open(root.path(), Options::default()).expect("open");
    for value in [b"1", b"2"] {
        kv.commit(&puts(&[(b"a", value)])).expect("commit");
        kv.seal();
        settle(&kv);
    }
    drop(kv);
    let tables = root.path().join("tables/tables");
    let names = files(&tables);
    assert_eq!(names.len(), 2, "{names:?}");
    fs::rename(&names[0], tables.join("beside")).expect("rename");
    fs::rename(&names[1], &names[0]).expect("rename");
    fs::rename(tables.join("beside"), &names[1]).expect("rename");
    assert!(refusal(root.path()).contains("is table"));
}

/// What opening says, which must be that something is damaged.
fn refusal(dir: &Path) -> String {
    match open(dir, Options::default()) {
        Err(Error::Corrupt(what)) => what,
        other => panic!("{:?}", other.map(drop)),
    }
}

fn numbered(first: u64, count: u64) -> Batch {
    let pair = |i: u64| {
        let key: Arc<[u8]> = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().into();
        (key, Some(Arc::from([i.to_be_bytes(); 12].concat())))
    };
    Batch { writes: (first..first + count).map(pair).collect(), inline_data: Vec::new() }
}

/// What this thread has had of processors: however busy the machine is.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the structure that is given.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(done, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_million_records_open_fast_and_stay_within_bounds() {
    let root = tempfile::tempdir().expect("tempdir");
    let kv = open(root.path(), Options::default()).expect("open");
    let longest = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if !kv.maintain().expect("maintain") {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        });
        for first in (0..1_000_000).step_by(2000) {
            let start = Instant::now();
            kv.commit(&numbered(first, 2000)).expect("commit");
            longest.fetch_max(start.elapsed().as_millis() as u64, Ordering::Relaxed);
            let pressure = leeward_meta::Tables::pressure(kv.tables());
            assert!(pressure.sealed <= 4, "{pressure:?}");
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("longest commit {} ms, {:?}", longest.into_inner(), kv.stats());
    drop(kv);
    let start = processor_time();
    let kv = open(root.path(), Options::default()).expect("open");
    let took = processor_time() - start;
    println!("opening took {took:?} of a processor");
    assert!(took < Duration::from_secs(3), "{took:?} of a processor");
    assert_eq!(kv.scan(&[0], &[0xff; 9], usize::MAX, false).expect("scan").len(), 1_000_000);
}

/// Nobody calls `maintain`: commits keep memory, journal and runs within bounds by themselves, also
/// after a kill has left a long journal behind.
#[test]
fn without_maintenance() {
    let root = tempfile::tempdir().expect("tempdir");
    let dir = root.path().join("0");
    fs::create_dir(&dir).expect("mkdir");
    let mut kv = open(&dir, small()).expect("open");
    for round in 0..3u64 {
        for i in 0..150 {
            kv.commit(&numbered(round * 75_000 + i * 500, 500)).expect("commit");
            let pressure = leeward_meta::Tables::pressure(kv.tables());
            assert!(pressure.sealed <= 4 && pressure.runs <= 49, "{pressure:?}");
        }
        let next = root.path().join((round + 1).to_string());
        copy(&root.path().join(round.to_string()), &next);
        kv = open(&next, small()).expect("open after a kill");
    }
    settle(&kv);
    assert!(kv.stats().journal_bytes < 16 << 20, "{:?}", kv.stats());
    assert_eq!(count(&kv), 225_000);
}

fn count(kv: &LsmKv) -> usize {
    kv.scan(&[0], &[0xff; 8], usize::MAX, false).expect("scan").len()
}

/// Small parts, kills and upkeep in any order: what was committed is there, each time.
#[test]
fn nothing_is_lost_between_kills() {
    for seed in 0..12 {
        let root = tempfile::tempdir().expect("tempdir");
        let mut random = Random::new(seed);
        let mut options = small();
        options.engine.memtable_bytes = 20 << 10;
        let mut committed = 0;
        for life in 0..8 {
            let kv = open(root.path(), options.clone()).expect("open after a kill");
            assert_eq!(count(&kv) as u64, committed, "seed {seed}, life {life}");
            for _ in 0..random.below(40) {
                if random.below(3) > 0 {
                    kv.commit(&numbered(committed, 50)).expect("commit");
                    committed += 50;
                } else {
                    kv.maintain().expect("maintain");
                }
            }
            for _ in 0..random.below(4) {
                kv.maintain().expect("maintain");
            }
        }
    }
}

/// On a file system of about 100 MB that is named by LEEWARD_SMALL_DIR (a tmpfs does): want of
/// space refuses commits and maintenance, loses nothing, leaves no garbage, and passes.
#[test]
fn a_full_disk() {
    let Some(dir) = std::env::var_os("LEEWARD_SMALL_DIR").map(PathBuf::from) else { return };
    let mut options = small();
    options.engine.memtable_bytes = 2 << 20;
    options.engine.journal_bytes = 4 << 20;
    options.engine.journal.file_bytes = 4 << 20;
    let kv = open(&dir, options.clone()).expect("open");
    kv.reserve(true).expect("reserve");
    fs::write(dir.join("filler"), vec![0; 55 << 20]).expect("filler");
    let mut count = 0;
    let (mut full_commits, mut full_steps) = (0, 0);
    while full_commits < 20 {
        match kv.commit(&numbered(count, 1000)) {
            Ok(()) => count += 1000,
            Err(Error::Full) => full_commits += 1,
            Err(e) => panic!("commit: {e}"),
        }
        match kv.maintain() {
            Ok(_) => {}
            Err(Error::Full) => full_steps += 1,
            Err(e) => panic!("maintain: {e}"),
        }
    }
    println!("full after {count} records, {full_steps} steps of maintenance refused");
    assert!(full_steps > 0);
    let all = |kv: &LsmKv| kv.scan(&[0], &[0xff; 9], usize::MAX, false).expect("scan").len() as u64;
    assert_eq!(all(&kv), count);
    drop(kv);
    let kv = open(&dir, options).expect("open when full");
    assert_eq!(all(&kv), count);
    fs::remove_file(dir.join("filler")).expect("remove");
    kv.reserve(false).expect("give the reserve back");
    settle(&kv);
    kv.commit(&numbered(count, 1000)).expect("space again");
    settle(&kv);
    assert_eq!(all(&kv), count + 1000);
    let tables: usize = kv.tables().shape().iter().sum();
    assert_eq!(files(&dir.join("tables/tables")).len(), tables, "unfinished tables were left");
}

/// A flush beside it has made a new version of the tables, which readers see with later numbers
/// only.
#[test]
fn what_is_appended_before_a_seal_is_seen_when_it_is_inserted() {
    let root = tempfile::tempdir().expect("tempdir");
    let kv = open(root.path(), small()).expect("open");
    kv.commit(&puts(&[(b"before", b"0")])).expect("commit");
    assert!(kv.seal());
    let batches = [puts(&[(b"one", b"1")]), puts(&[(b"two", b"2")])];
    let [one, two] = [0, 1].map(|n| kv.append(&batches[n]).expect("append"));
    kv.insert(one, &batches[0]);
    while kv.maintain().expect("maintain") {}
    assert!(!kv.seal(), "what is not inserted yet would go where nobody looks");
    assert_eq!(kv.get(b"one").expect("get").as_deref(), Some(&b"1"[..]));
    kv.insert(two, &batches[1]);
    assert_eq!(kv.get(b"two").expect("get").as_deref(), Some(&b"2"[..]));
    assert!(kv.seal());
    while kv.maintain().expect("maintain") {}
    for (key, value) in [("before", b"0"), ("one", b"1"), ("two", b"2")] {
        assert_eq!(kv.get(key.as_bytes()).expect("get").as_deref(), Some(&value[..]), "{key}");
    }
}
