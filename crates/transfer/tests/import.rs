//! Passes of an import, between directories of a local file system.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Place, assert_same, import, import_until, is_root, options, run, try_import, walk};
use leeward_transfer::import::{self, Control, Options, Outcome};
use leeward_transfer::sys::Dir;
use leeward_transfer::{Counters, Error};
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

fn deleting() -> Options {
    Options { delete: true, ..options() }
}

/// Ends the threads of a test, also when it fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sets the time of a file to long ago, plus some seconds.
fn age(file: &Path, secs: u64) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + secs);
    File::options().write(true).open(file).expect("a file").set_modified(then).expect("a time");
}

#[test]
fn the_first_pass_brings_everything_and_the_second_nothing() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.tree(60), place.dir("target"));
    let first = import(&source, &target, options());
    assert_same(&source, &target, &[]);
    assert_eq!((first.hard_links, first.only_in_target), (4, 0), "{first:?}");
    let inodes = |dir: &Path| run(Command::new("find").arg(dir).args(["-printf", "%i %C@ %p\n"]));
    let before = inodes(&target);
    let second = import(&source, &target, deleting());
    assert_eq!(
        (second.files_copied, second.hard_links, second.specials_made, second.directories_made),
        (0, 0, 0, 0),
        "{second:?}"
    );
    assert_eq!((second.removed, second.directories), (0, first.directories));
    // nothing but the root, which remembers the pass, was touched
    assert_eq!(
        before.lines().skip(1).collect::<Vec<_>>(),
        inodes(&target).lines().skip(1).collect::<Vec<_>>()
    );
    assert_same(&source, &target, &[]);
}

#[test]
fn later_passes_bring_what_changed() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.tree(30), place.dir("target"));
    import(&source, &target, options());
    let at = |name: &str| source.join(name);
    fs::write(at("small"), "other").expect("a change");
    fs::write(at("new"), "new").expect("a new file");
    fs::remove_file(at("empty")).expect("a removal");
    fs::remove_dir_all(at("times")).expect("a removal");
    // a file becomes a directory, a directory a file, a link another one
    fs::remove_file(at("plain-file")).ok();
    fs::remove_file(at("blocks")).expect("a removal");
    fs::create_dir(at("blocks")).expect("a directory");
    fs::write(at("blocks/in"), "in").expect("a file");
    fs::remove_dir_all(at("attributes/dir555")).expect("a removal");
    fs::write(at("attributes/dir555"), "a file now").expect("a file");
    fs::remove_file(at("links/dangling")).expect("a removal");
    symlink("elsewhere", at("links/dangling")).expect("a link");
    // attributes alone
    fs::set_permissions(at("attributes/mode444"), fs::Permissions::from_mode(0o600)).expect("a mode");
    run(Command::new("setfattr").args(["-x", "user.text"]).arg(at("attributes/user")));
    run(Command::new("setfattr").args(["-n", "user.new", "-v", "v"]).arg(at("attributes/user")));
    run(Command::new("setfacl").arg("-b").arg(at("attributes/acl")));
    run(Command::new("setfacl").args(["-k"]).arg(at("attributes/inherits")));
    // a file without an ACL in a directory with a default one
    fs::write(at("attributes/dir1777/no-acl"), "x").expect("a file");
    // holes are moved
    let holes = File::options().write(true).open(at("hole-inside")).expect("a file");
    holes.set_len(0).and_then(|()| holes.set_len(9 << 20)).expect("a hole");
    holes.write_all_at(&[7; 4096], 5 << 20).expect("data");
    let second = import(&source, &target, deleting());
    assert_same(&source, &target, &[]);
    assert_eq!((second.files_copied, second.removed), (6, 3), "{second:?}");
}

#[test]
fn hard_links_are_kept_over_passes() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let at = |name: &str| source.join(name);
    for name in ["a", "b", "c"] {
        fs::write(at(name), name).expect("a file");
    }
    fs::hard_link(at("a"), at("a2")).expect("a link");
    fs::hard_link(at("b"), at("b2")).expect("a link");
    import(&source, &target, options());
    let check = || {
        import(&source, &target, deleting());
        assert_same(&source, &target, &[]);
    };
    // names change hands: each would carry content to the wrong file
    fs::remove_file(at("a2")).expect("a removal");
    fs::hard_link(at("b"), at("a2")).expect("a link");
    check();
    fs::write(at("b2"), "changed").expect("a change");
    check();
    // one name gets a file of its own, with the other's content unchanged
    fs::remove_file(at("a2")).expect("a removal");
    fs::write(at("a2"), "alone").expect("a file");
    check();
    fs::remove_file(at("b")).expect("a removal");
    fs::hard_link(at("a2"), at("b")).expect("a link");
    fs::hard_link(at("c"), at("0")).expect("a link");
    check();
    fs::remove_file(at("0")).expect("a removal");
    check();
}

/// Without `--delete` the target has names that the source lost, and links among them.
#[test]
fn what_the_target_has_beside_stays() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("a"), "a").expect("a file");
    fs::hard_link(source.join("a"), source.join("b")).expect("a link");
    import(&source, &target, options());
    fs::remove_file(source.join("b")).expect("a removal");
    fs::write(source.join("a"), "other").expect("a change");
    fs::create_dir(target.join("beside")).expect("a directory");
    let summary = import(&source, &target, options());
    assert_eq!((summary.only_in_target, summary.removed), (2, 0));
    assert_eq!(fs::read_to_string(target.join("a")).expect("a"), "other");
    assert_eq!(fs::read_to_string(target.join("b")).expect("b"), "a", "b was not written to through a");
}

/// ramfs has no ACLs, and takes no attribute in the space of users.
#[test]
fn without_its_acl_the_group_gets_no_more_than_before() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let Some(_small) = Small::mount_as("ramfs", &target, "mode=755") else { return };
    fs::write(source.join("file"), "x").expect("a file");
    run(Command::new("setfacl").args(["-m", "u:1000:rw-,g::---,o::---"]).arg(source.join("file")));
    for _ in 0..2 {
        let outcome = try_import(&source, &target, options()).expect("it begins");
        let mode = fs::metadata(target.join("file")).expect("a file").permissions().mode();
        assert_eq!((mode & 0o777, outcome.summary.groups_narrowed), (0o600, 1), "{:?}", outcome.summary);
    }
}

/// An attribute larger than ext4 takes, from a file system that takes it.
#[test]
fn an_attribute_that_the_target_refuses_is_told_by_each_pass() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let Some(_small) = Small::mount(&source, "size=2m") else { return };
    fs::write(source.join("file"), "x").expect("a file");
    age(&source.join("file"), 0);
    let long = "x".repeat(60_000);
    let set =
        Command::new("setfattr").args(["-n", "user.long", "-v", &long]).arg(source.join("file")).status();
    if !set.is_ok_and(|status| status.success()) {
        eprintln!("skipped: tmpfs takes no long attribute");
        return;
    }
    for _ in 0..2 {
        let outcome = try_import(&source, &target, options()).expect("it begins");
        let summary = outcome.summary;
        if summary.failed == 0 && summary.attributes_left_out.is_empty() && target.join("file").exists() {
            eprintln!("skipped: the target takes a long attribute");
            return;
        }
        assert_eq!(summary.failed, 1, "{summary:?}");
        let looks = |path: &Path| fs::metadata(path.join("file")).expect("a file").mtime();
        assert_ne!(looks(&source), looks(&target));
    }
}

/// Somebody has the old file open, or may open it: he must not get the new content.
#[test]
fn new_content_is_not_written_into_what_others_may_read() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let names = ["mode", "owner", "acl", "set-id", "same"];
    for name in names {
        fs::write(source.join(name), "old").expect("a file");
    }
    let set = |name: &str, mode| {
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    for name in names {
        set(name, if name == "set-id" { 0o4755 } else { 0o644 });
    }
    import(&source, &target, options());
    let open = names.map(|name| File::open(target.join(name)).expect("a file"));
    for name in names {
        fs::write(source.join(name), "secret").expect("a change");
    }
    set("mode", 0o600);
    set("set-id", 0o4755);
    chown(source.join("owner"), Some(1000), None).expect("an owner");
    run(Command::new("setfacl").args(["-m", "u:1000:rw-"]).arg(source.join("acl")));
    import(&source, &target, options());
    assert_same(&source, &target, &[]);
    let seen = open.map(|file| std::io::read_to_string(file).expect("text"));
    assert_eq!(seen, ["old", "old", "old", "old", "secret"], "{names:?}");
}

/// A file of the target has another name, which the source does not have.
#[test]
fn what_has_other_names_is_not_changed_through_one_of_them() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("a"), "text").expect("a file");
    fs::hard_link(source.join("a"), source.join("b")).expect("a link");
    import(&source, &target, options());
    fs::hard_link(target.join("a"), place.at("beside")).expect("a link");
    let owner = || fs::metadata(place.at("beside")).map(|m| m.uid()).expect("it is there");
    let before = owner();
    chown(source.join("a"), Some(1000), None).expect("an owner");
    import(&source, &target, options());
    assert_eq!(owner(), before);
    fs::write(source.join("a"), "other").expect("a change");
    import(&source, &target, options());
    assert_eq!(fs::read_to_string(place.at("beside")).expect("text"), "text");
    assert_same(&source, &target, &[]);
}

#[test]
fn a_file_with_its_old_time_and_length_is_found() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let file = source.join("file");
    fs::write(&file, "one").expect("a file");
    age(&file, 0);
    import(&source, &target, options());
    fs::write(&file, "two").expect("a change");
    age(&file, 0);
    let summary = import(&source, &target, options());
    assert_eq!(fs::read_to_string(target.join("file")).expect("a file"), "two");
    assert_eq!((summary.files_compared, summary.files_copied), (1, 1));
}

#[test]
fn holes_are_not_read_to_compare() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let make = |dir: &Path, bytes: &[u8]| {
        let file = File::create(dir.join("file")).expect("a file");
        file.set_len(256 << 20).and_then(|()| file.write_all_at(bytes, 128 << 20)).expect("content");
        age(&dir.join("file"), 0);
    };
    make(&source, b"text");
    make(&target, b"text");
    let read = Cell::new(0);
    let progress = |counters: &Counters| read.set(counters.bytes());
    let control = Control { stopped: &|| false, sync: &import::sync_by_system, progress: &progress };
    let (from, to) = (Dir::open(&source).expect("the source"), Dir::open(&target).expect("the target"));
    let env = leeward_env::Env::real();
    let outcome = import::run(&env, (from, "source"), to, options(), &control).expect("it begins");
    let summary = outcome.summary;
    assert_eq!((summary.files_compared, summary.unchanged, summary.files_copied), (1, 1, 0));
    assert!(read.get() < 2 << 20, "{}", read.get());
    // data where the source has a hole
    make(&target, b"other text");
    assert_eq!(import(&source, &target, Options { compare: true, ..options() }).files_copied, 1);
    assert_same(&source, &target, &[]);
}

/// Files of sysfs say that they have 4096 bytes, and have less.
#[test]
fn a_file_that_ends_early_is_not_settled() {
    let odd = Path::new("/sys/kernel/mm/ksm");
    if !odd.join("run").exists() {
        eprintln!("skipped: no {}", odd.display());
        return;
    }
    let place = Place::new();
    let outcome = try_import(odd, &place.dir("target"), options()).expect("it begins");
    let summary = outcome.summary;
    assert!(summary.unsettled > 0 && summary.unsettled == summary.files_copied, "{summary:?}");
}

/// What some other program brought before is compared once.
#[test]
fn a_target_that_is_not_known_is_compared() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    for (name, here, there) in [("same", "text", "text"), ("other", "text", "tEXt")] {
        fs::write(source.join(name), here).expect("a file");
        fs::write(target.join(name), there).expect("a file");
        age(&source.join(name), 0);
        age(&target.join(name), 0);
    }
    let refused = try_import(&source, &target, deleting()).expect_err("nothing is known of the target");
    assert!(refused.to_string().contains("without --delete first"), "{refused}");
    let summary = import(&source, &target, options());
    assert_eq!((summary.files_compared, summary.files_copied, summary.unchanged), (2, 1, 1));
    assert_same(&source, &target, &[]);
}

#[test]
fn nothing_is_removed_for_the_wrong_source() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("file"), "x").expect("a file");
    import(&source, &target, options());
    fs::rename(&source, place.at("away")).expect("the source goes away");
    fs::create_dir(&source).expect("an empty mount point");
    let refused = try_import(&source, &target, deleting()).expect_err("it is another directory");
    assert!(refused.to_string().contains("is the source mounted?"), "{refused}");
    fs::remove_dir(&source).and_then(|()| fs::rename(place.at("away"), &source)).expect("it is back");
    fs::remove_file(source.join("file")).expect("a removal");
    let refused = try_import(&source, &target, deleting()).expect_err("it is empty");
    assert!(refused.to_string().contains("is empty"), "{refused}");
    assert!(target.join("file").exists());
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_it_would_do() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.tree(5), place.dir("target"));
    let dry = import(&source, &target, Options { dry_run: true, ..options() });
    assert_eq!(fs::read_dir(&target).expect("a directory").count(), 0);
    let real = import(&source, &target, options());
    assert_eq!(dry, real);
    fs::write(source.join("small"), "other").expect("a change");
    fs::remove_file(source.join("a-third")).expect("a removal");
    fs::remove_file(source.join("links/raw")).expect("a removal");
    fs::create_dir(source.join("links/raw")).expect("a directory");
    let before = walk(&target, &[]);
    let dry = import(&source, &target, Options { dry_run: true, ..deleting() });
    assert!(walk(&target, &[]) == before);
    let real = import(&source, &target, deleting());
    assert_eq!((dry.files_copied, dry.removed, dry.directories_made), (1, 1, 1), "{dry:?}");
    assert_eq!((real.files_copied, real.removed, real.directories_made), (1, 1, 1), "{real:?}");
}

#[test]
fn a_tree_in_use_settles() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    for n in 0..20 {
        fs::create_dir(source.join(format!("d{n}"))).expect("a directory");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let (source, done) = (&source, &done);
            scope.spawn(move || {
                let mut n = thread;
                while !done.load(Ordering::Relaxed) {
                    n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let dir = source.join(format!("d{}", n % 20));
                    let name = dir.join(format!("f{}", (n >> 8) % 10));
                    let _ = match (n >> 16) % 6 {
                        0 => fs::remove_file(&name),
                        1 => fs::rename(&name, dir.join("moved")),
                        2 => fs::rename(&dir, source.join("away"))
                            .and_then(|()| fs::rename(source.join("away"), &dir)),
                        3 => fs::hard_link(&name, dir.join(format!("l{}", n % 7))),
                        _ => fs::write(&name, vec![n as u8; (n >> 12) as usize % 300_000]),
                    };
                }
            });
        }
        let _ends = Ends(&done);
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            let mut wanted = options();
            wanted.delete = fs::read_dir(&target).is_ok_and(|mut names| names.next().is_some());
            let outcome = try_import(&source, &target, wanted).expect("it begins");
            assert_eq!((outcome.error, outcome.summary.failed), (None, 0), "{:?}", outcome.summary);
        }
    });
    import(&source, &target, deleting());
    assert_same(&source, &target, &[]);
    let quiet = import(&source, &target, deleting());
    assert_eq!((quiet.files_copied, quiet.hard_links, quiet.removed), (0, 0, 0), "{quiet:?}");
}

/// A file that is never quiet is told, and the next pass brings it.
#[test]
fn a_file_that_changes_all_the_time_is_told() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let file = File::create(source.join("busy")).expect("a file");
    file.write_all_at(&vec![1; 64 << 20], 0).expect("content");
    let (done, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let outcome = std::thread::scope(|scope| {
        let _ends = Ends(&done);
        scope.spawn(|| {
            let mut n = 0u8;
            while !done.load(Ordering::Relaxed) {
                n = n.wrapping_add(1);
                file.write_all_at(&[n; 64], u64::from(n) << 14).expect("a change");
                begun.store(true, Ordering::Relaxed);
            }
        });
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        try_import(&source, &target, options()).expect("it begins")
    });
    let summary = outcome.summary;
    assert_eq!(
        (summary.unsettled, &summary.unsettled_paths[..]),
        (1, &["busy".to_string()][..]),
        "{summary:?}"
    );
    import(&source, &target, options());
    assert_same(&source, &target, &[]);
}

/// A user exchanges directories for links to somebody else's, on both sides, while a pass runs.
#[test]
fn nobody_is_led_out_of_the_trees() {
    let place = Place::new();
    let (source, target, secret) = (place.dir("source"), place.dir("target"), place.dir("secret"));
    fs::write(secret.join("file"), "secret").expect("a file");
    fs::set_permissions(secret.join("file"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::create_dir(source.join("d")).expect("a directory");
    fs::write(source.join("d/file"), "public").expect("a file");
    let before = fs::metadata(secret.join("file")).expect("it is there");
    for _ in 0..100 {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&done);
            for side in [&source, &target] {
                let (secret, done) = (&secret, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let _ = fs::rename(side.join("d"), side.join("kept"));
                        let _ = symlink(secret, side.join("d"));
                        let _ = fs::remove_file(side.join("d"));
                        let _ = fs::rename(side.join("kept"), side.join("d"));
                    }
                });
            }
            let _ = try_import(&source, &target, Options { compare: true, ..options() });
        });
        let grep = "grep -rs secret \"$1\" || true";
        assert_eq!(run(Command::new("sh").args(["-c", grep, "sh"]).arg(&target)), "");
    }
    let after = fs::metadata(secret.join("file")).expect("it is there");
    assert_eq!(fs::read_to_string(secret.join("file")).expect("text"), "secret");
    assert_eq!(
        (before.ino(), before.mode(), before.mtime_nsec(), before.ctime_nsec(), before.nlink()),
        (after.ino(), after.mode(), after.mtime_nsec(), after.ctime_nsec(), after.nlink())
    );
    assert_eq!(fs::read_dir(&secret).expect("a directory").count(), 1);
}

/// Takes a lease of a file: who opens it waits until this is closed.
fn lease(path: &Path) -> Option<File> {
    let file = File::options().write(true).open(path).expect("a file");
    // SAFETY: a signal that says that somebody waits is left out; a valid descriptor and numbers.
    let taken = unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
    };
    if !taken {
        eprintln!("skipped: no leases here");
    }
    taken.then_some(file)
}

/// The thread of the pass waits at one file until the stop was seen. Without that a stop may be
/// seen only after the thread has brought the last file.
#[test]
fn a_stopped_pass_is_gone_on_with() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    for n in 0..200 {
        fs::write(source.join(format!("f{n:03}")), vec![n as u8; 50_000]).expect("a file");
        age(&source.join(format!("f{n:03}")), n);
    }
    let Some(held) = lease(&source.join("f100")) else { return };
    let (held, names) = (RefCell::new(Some(held)), Cell::new(0));
    let asked = Cell::new(0);
    let stopped = || {
        if names.get() > 100 {
            asked.set(asked.get() + 1);
        }
        // the answer to the first question is known now
        if asked.get() == 2 {
            held.take();
        }
        asked.get() > 0
    };
    let progress = |counters: &Counters| names.set(counters.names());
    let control = Control { stopped: &stopped, sync: &import::sync_by_system, progress: &progress };
    let (from, to) = (Dir::open(&source).expect("the source"), Dir::open(&target).expect("the target"));
    let (env, one) = (leeward_env::Env::real(), Options { threads: 1, ..options() });
    let name = source.display().to_string();
    let Outcome { summary, error } = import::run(&env, (from, &name), to, one, &control).expect("it begins");
    held.take();
    assert_eq!(error, Some(Error::Stopped));
    assert_eq!(summary.files_copied, 100, "{summary:?}");
    let rest = import(&source, &target, options());
    assert_eq!((rest.files_copied, rest.unchanged), (100, 100), "{rest:?}");
    assert_same(&source, &target, &[]);
}

/// A small file system in memory; gone with the test.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: &Path, options: &str) -> Option<Small> {
        Small::mount_as("tmpfs", at, options)
    }

    fn mount_as(kind: &str, at: &Path, options: &str) -> Option<Small> {
        let mounted = Command::new("mount").args(["-t", kind, "-o", options, "lee-test"]).arg(at).status();
        let good = mounted.is_ok_and(|status| status.success());
        if !good {
            eprintln!("skipped: cannot mount a {kind}");
        }
        good.then(|| Small(at.to_path_buf()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_target_ends_the_pass_and_the_next_goes_on() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let Some(_small) = Small::mount(&target, "size=2m") else { return };
    for n in 0..6 {
        fs::write(source.join(format!("f{n}")), vec![n; 500_000]).expect("a file");
    }
    let outcome = try_import(&source, &target, options()).expect("it begins");
    let error = outcome.error.expect("the target is full").to_string();
    assert!(error.contains("the target is full: make room, and import again"), "{error}");
    run(Command::new("mount").args(["-o", "remount,size=8m"]).arg(&target));
    import(&source, &target, options());
    assert_same(&source, &target, &["holes", "attributes"]);
}

#[test]
fn other_file_systems_are_left_out_unless_told() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::create_dir(source.join("mounted")).expect("a directory");
    let Some(_small) = Small::mount(&source.join("mounted"), "size=1m") else { return };
    fs::write(source.join("mounted/file"), "x").expect("a file");
    let summary = import(&source, &target, options());
    assert_eq!(summary.mounts_left_out, 1);
    assert!(!target.join("mounted").exists());
    import(&source, &target, Options { cross_file_systems: true, ..options() });
    assert_eq!(fs::read_to_string(target.join("mounted/file")).expect("a file"), "x");
}

/// The mount point in the source is empty when its file system is away.
#[test]
fn what_was_mounted_in_the_source_is_not_removed_when_it_is_away() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::create_dir(source.join("mounted")).expect("a directory");
    let Some(small) = Small::mount(&source.join("mounted"), "size=1m") else { return };
    fs::write(source.join("mounted/file"), "x").expect("a file");
    import(&source, &target, Options { cross_file_systems: true, ..options() });
    drop(small);
    let crossing = Options { cross_file_systems: true, ..deleting() };
    let outcome = try_import(&source, &target, crossing).expect("it begins");
    assert_eq!((outcome.error, outcome.summary.failed), (None, 1), "{:?}", outcome.summary.troubles);
    assert!(target.join("mounted/file").exists());
}

/// Roots of many file systems have the same inode number.
#[test]
fn another_file_system_at_the_source_is_another_source() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let mount = || {
        let small = Small::mount(&source, "size=1m")?;
        fs::write(source.join("file"), "x").expect("a file");
        Some(small)
    };
    let Some(first) = mount() else { return };
    if fs::metadata(&source).is_ok_and(|root| root.created().is_err()) {
        eprintln!("skipped: tmpfs does not tell when its root was made");
        return;
    }
    import(&source, &target, options());
    drop(first);
    let _second = mount();
    let refused = try_import(&source, &target, deleting()).expect_err("it is another file system");
    assert!(refused.to_string().contains("is the source mounted?"), "{refused}");
}

/// A name that could not be brought may be a file that was never compared.
#[test]
fn nothing_is_known_while_names_fail_or_others_are_left_out() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::create_dir(target.join("blocked")).expect("a directory");
    fs::write(source.join("blocked"), "x").expect("a file");
    for (dir, text) in [(&source, "text"), (&target, "tEXt")] {
        fs::create_dir(dir.join("out")).expect("a directory");
        fs::write(dir.join("out/file"), text).expect("a file");
        age(&dir.join("out/file"), 0);
    }
    let outcome = try_import(&source, &target, options()).expect("it begins");
    assert_eq!((outcome.summary.failed, remembered(&target, "since")), (1, "null".into()));
    fs::remove_dir(target.join("blocked")).expect("a removal");
    fs::write(target.join("out/file"), "tEXt").expect("a change");
    age(&target.join("out/file"), 0);
    // an ended pass permits --delete, whatever failed
    let excluding = Options { exclude: vec![c"out".into()], ..deleting() };
    import(&source, &target, excluding);
    assert_ne!(remembered(&target, "since"), "null");
    let dry = Options { dry_run: true, ..options() };
    let asked = import(&source, &target, dry);
    assert_eq!((asked.files_compared, asked.files_copied), (2, 1), "{asked:?}");
}

/// What a target remembers of the passes.
fn remembered(target: &Path, what: &str) -> String {
    let space = if is_root() { "trusted" } else { "user" };
    let name = format!("{space}.lee-import");
    let all = run(Command::new("getfattr").args(["--only-values", "-n", &name]).arg(target));
    let value = all.split(&format!("\"{what}\":")).nth(1).expect("it is there");
    value.split([',', '}']).next().expect("a value").to_string()
}

#[test]
fn without_proc_no_pass_begins() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("file"), "x").expect("a file");
    let without = || {
        // SAFETY: this thread alone gets mounts of its own.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return None;
        }
        run(Command::new("sh").args(["-c", "mount --make-rprivate / && mount -t tmpfs lee-test /proc"]));
        Some(try_import(&source, &target, options()))
    };
    let ended = std::thread::scope(|scope| scope.spawn(without).join().expect("it ends"));
    let Some(ended) = ended else {
        eprintln!("skipped: no mounts of its own for a thread");
        return;
    };
    let refused = ended.expect_err("nothing can be reached");
    assert!(refused.to_string().contains("mount -t proc"), "{refused}");
}

/// Root believes only what root wrote.
#[test]
fn what_users_write_about_passes_is_not_believed() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("file"), "x").expect("a file");
    import(&source, &target, options());
    let move_it = "v=$(getfattr --only-values -n trusted.lee-import .) && setfattr -x trusted.lee-import . && \
                   setfattr -n user.lee-import -v \"$v\" .";
    run(Command::new("sh").args(["-c", move_it]).current_dir(&target));
    let refused = try_import(&source, &target, deleting()).expect_err("nothing is known of the target");
    assert!(refused.to_string().contains("without --delete first"), "{refused}");
}

#[test]
fn hard_links_wait_for_no_stop() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("f0"), "x").expect("a file");
    for n in 1..100 {
        fs::hard_link(source.join("f0"), source.join(format!("f{n}"))).expect("a link");
    }
    // the first link is the first thing that a stop is seen at
    let stopped = || target.join("f0").exists() && fs::read(target.join("f0")).is_ok_and(|x| x == b"x");
    let Outcome { summary, error } = import_until(&source, &target, options(), &stopped).expect("it begins");
    assert_eq!((error, summary.hard_links), (Some(Error::Stopped), 0), "{summary:?}");
}

/// What is mounted in the target is not emptied because the source has no such directory.
#[test]
fn removing_stops_at_mounts() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("file"), "x").expect("a file");
    import(&source, &target, options());
    fs::create_dir_all(target.join("beside/mounted")).expect("a directory");
    let Some(_small) = Small::mount(&target.join("beside/mounted"), "size=1m") else { return };
    fs::write(target.join("beside/mounted/file"), "kept").expect("a file");
    let outcome = try_import(&source, &target, deleting()).expect("it begins");
    assert_eq!(outcome.summary.failed, 1, "{:?}", outcome.summary);
    assert_eq!(fs::read_to_string(target.join("beside/mounted/file")).expect("it stays"), "kept");
    assert_eq!(fs::read_dir(&target).expect("a directory").count(), 2);
}

#[test]
fn what_cannot_be_brought_is_named_and_the_rest_comes() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("good"), "good").expect("a file");
    fs::create_dir(target.join("good2")).expect("a directory");
    fs::write(source.join("good2"), "blocked").expect("a file");
    let outcome = try_import(&source, &target, options()).expect("it begins");
    assert_eq!((outcome.error, outcome.summary.failed), (None, 1));
    let trouble = &outcome.summary.troubles[0];
    assert_eq!(trouble.path, "good2");
    assert!(trouble.cause.contains("--delete"), "{trouble:?}");
    assert_eq!(fs::read_to_string(target.join("good")).expect("a file"), "good");
}

#[test]
fn excluded_names_are_left_alone_on_both_sides() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::create_dir(source.join("lost+found")).expect("a directory");
    fs::write(source.join("file"), "x").expect("a file");
    let without = || Options { exclude: vec![c"lost+found".into(), c"kept".into()], ..options() };
    import(&source, &target, without());
    assert!(!target.join("lost+found").exists());
    fs::write(target.join("kept"), "x").expect("a file");
    import(&source, &target, Options { delete: true, ..without() });
    assert!(target.join("kept").exists());
    // also below directories that the source does not have
    fs::create_dir_all(target.join("gone/deeper")).expect("a directory");
    for name in ["gone/file", "gone/deeper/kept", "gone/deeper/file"] {
        fs::write(target.join(name), "x").expect("a file");
    }
    let summary = import(&source, &target, Options { delete: true, ..without() });
    assert_eq!((summary.removed, summary.only_in_target), (0, 1));
    assert_eq!(
        run(Command::new("find").args([".", "-path", "./gone*"]).current_dir(&target)).lines().count(),
        3
    );
    // nor where something else comes
    fs::write(source.join("gone"), "x").expect("a file");
    let outcome = try_import(&source, &target, Options { delete: true, ..without() }).expect("it begins");
    assert_eq!(outcome.summary.failed, 1);
    assert!(target.join("gone/deeper/kept").exists());
}

#[test]
fn one_import_into_a_target_at_a_time() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    let other = Dir::open(&target).expect("the target");
    assert!(other.lock());
    let refused = try_import(&source, &target, options()).expect_err("it is locked");
    assert!(refused.to_string().contains("another import"), "{refused}");
    drop(other);
    import(&source, &target, options());
}

#[test]
fn the_lock_is_held_to_the_end_of_a_pass() {
    let place = Place::new();
    let (source, target) = (place.dir("source"), place.dir("target"));
    fs::write(source.join("file"), "x").expect("a file");
    let open = |path: &Path| Dir::open(path).expect("a directory");
    let sync = |_: &Dir| if open(&target).lock() { Err("nobody has the lock".into()) } else { Ok(()) };
    let control = Control { stopped: &|| false, sync: &sync, progress: &|_| {} };
    let env = leeward_env::Env::real();
    let ended = import::run(&env, (open(&source), "source"), open(&target), options(), &control);
    assert_eq!(ended.expect("it begins").error, None);
}
