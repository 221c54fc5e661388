//! Archives, unpacked by GNU tar, bsdtar and Python, and their manifests by `sha256sum`.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Place, assert_same, export, is_root, run, walk};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

fn command(words: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(dir);
    command
}

/// Whether a program is installed; says so when not.
fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        eprintln!("skipped: {program} is not installed");
    }
    has
}

const GNU_TAR: [&str; 8] =
    ["tar", "--acls", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf", "../archive.tar", "."];

#[test]
fn gnu_tar_restores_everything() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let source = place.tree(30);
    let summary = export(&source, source.parent().expect("a place"), false, None).expect("all is readable");
    assert_eq!((summary.sockets_left_out, summary.hard_links, summary.nodes), (1, 4, 3), "{summary:?}");
    let to = place.dir("restored");
    run(&mut command(&GNU_TAR, &to));
    assert_same(&source, &to, &["sockets"]);
    // each regular file is in the manifest, and as it was
    run(&mut command(&["sha256sum", "--strict", "--quiet", "-c", "../manifest"], &to));
    let listed = fs::read(place.at("manifest")).expect("a manifest").iter().filter(|b| **b == b'\n').count();
    let count = run(&mut command(&["find", ".", "-type", "f", "-printf", "x"], &to)).len();
    assert_eq!(listed, count);
    // the manifest notices
    fs::write(to.join("small"), "smaLl\n").expect("a change");
    let check = command(&["sha256sum", "--quiet", "-c", "../manifest"], &to).output().expect("it runs");
    assert!(!check.status.success());
}

#[test]
fn bsdtar_and_python_restore_it() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let source = place.tree(30);
    export(&source, source.parent().expect("a place"), false, Some("MANIFEST")).expect("all is readable");
    if has("bsdtar") {
        let to = place.dir("bsd");
        run(&mut command(&["bsdtar", "--numeric-owner", "-xpf", "../archive.tar"], &to));
        run(&mut command(&["sha256sum", "--strict", "--quiet", "-c", "MANIFEST"], &to));
        fs::remove_file(to.join("MANIFEST")).expect("the manifest is inside");
        // Removing the manifest changed the time of the root. libarchive reads fractions of seconds
        // before 1970 from the wrong side, and does not know how GNU tar writes `=` in the name of
        // an attribute.
        let known = |line: &&str| {
            ["[b'.', ", "[b'./times/t3', ", "[b'./attributes/user', "]
                .iter()
                .any(|name| line.starts_with(name))
        };
        let (ours, theirs) = (walk(&source, &["sockets", "holes"]), walk(&to, &["sockets", "holes"]));
        let (ours, theirs): (Vec<&str>, Vec<&str>) =
            (ours.lines().filter(|l| !known(l)).collect(), theirs.lines().filter(|l| !known(l)).collect());
        assert_eq!(ours.len(), theirs.len());
        let differ: Vec<_> = ours.iter().zip(&theirs).filter(|(a, b)| a != b).collect();
        assert!(differ.is_empty(), "{differ:?}");
    }
    let to = place.dir("python");
    let script = "import tarfile; tarfile.open('../archive.tar').extractall('.', numeric_owner=True)";
    run(&mut command(&["python3", "-c", script], &to));
    run(&mut command(&["sha256sum", "--strict", "--quiet", "-c", "MANIFEST"], &to));
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let source = place.tree(30);
    let (one, two) = (place.dir("one"), place.dir("two"));
    export(&source, &one, false, Some("MANIFEST")).expect("all is readable");
    export(&source, &two, false, Some("MANIFEST")).expect("all is readable");
    let bytes = fs::read(one.join("archive.tar")).expect("an archive");
    assert!(bytes == fs::read(two.join("archive.tar")).expect("an archive"));
    assert_eq!(bytes.len() % 10240, 0);
}

/// Files of sysfs say that they have 4096 bytes, and have less: they become shorter when they are
/// read.
#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_written() {
    let odd = Path::new("/sys/kernel/mm/ksm");
    if !odd.join("run").exists() {
        eprintln!("skipped: no {}", odd.display());
        return;
    }
    let place = Place::new();
    let refused = export(odd, &place.at("."), false, None).expect_err("its files are shorter than they say");
    let text = refused.to_string();
    assert!(
        text.starts_with("./") && text.ends_with("cannot be read: became shorter while it was read"),
        "{text}"
    );
    let summary = export(odd, &place.at("."), true, None).expect("it goes on");
    assert!(summary.files > 0 && summary.unreadable == summary.files, "{summary:?}");
    assert_eq!(fs::metadata(place.at("manifest")).expect("a manifest").len(), 0);
    let listed = run(&mut command(&["tar", "-tvf", "archive.tar"], &place.at(".")));
    assert_eq!(listed.lines().count() as u64, summary.files + summary.directories);
}

/// No further name leads to a first one that is not in the archive.
#[test]
fn names_of_what_cannot_be_read_lead_nowhere() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let source = place.dir("source");
    fs::write(source.join("a"), "text").expect("a file");
    fs::hard_link(source.join("a"), source.join("b")).expect("a link");
    let as_other = || {
        fs::set_permissions(source.join("a"), fs::Permissions::from_mode(0o000)).expect("a mode");
        // SAFETY: numbers; this thread alone becomes another user.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, 1000, -1) };
        assert_eq!(changed, 0);
        let root = leeward_transfer::sys::Dir::open(&source).expect("the root");
        let archive = fs::File::create("/dev/null").expect("a place");
        let env = leeward_env::Env::real();
        let output =
            leeward_transfer::output::Output::start(&env, Box::new(archive), "null".into(), &|| false);
        let counters = leeward_transfer::Counters::default();
        let options = leeward_transfer::export::Options {
            keep_going: true,
            manifest_inside: None,
            user: &|_| None,
            group: &|_| None,
            counters: &counters,
        };
        let mut manifest = fs::File::options().write(true).open("/dev/null").expect("a place");
        leeward_transfer::export::run(&root, output, &mut manifest, &options)
    };
    fs::set_permissions(place.at("."), fs::Permissions::from_mode(0o755)).expect("a mode");
    let summary = std::thread::scope(|scope| scope.spawn(as_other).join().expect("it ends"));
    let summary = summary.expect("it goes on");
    assert_eq!((summary.unreadable, summary.hard_links), (2, 0), "{summary:?}");
}

/// A user exchanges a directory for a link to somebody else's while the tree is read.
#[test]
fn nobody_is_led_out_of_the_tree() {
    let place = Place::new();
    let (source, secret) = (place.dir("source"), place.dir("secret"));
    fs::write(secret.join("file"), "secret").expect("a file");
    fs::create_dir(source.join("d")).expect("a directory");
    fs::write(source.join("d/file"), "public").expect("a file");
    for _ in 0..200 {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = fs::rename(source.join("d"), source.join("kept"));
                    let _ = symlink(&secret, source.join("d"));
                    let _ = fs::remove_file(source.join("d"));
                    let _ = fs::rename(source.join("kept"), source.join("d"));
                }
            });
            let exported = export(&source, &place.at("."), true, None);
            done.store(true, Ordering::Relaxed);
            exported.expect("what goes away is noted");
        });
        let bytes = fs::read(place.at("archive.tar")).expect("an archive");
        assert!(!has_content(&bytes));
    }
}

/// Whether an archive has the secret as content: at the beginning of a block.
fn has_content(archive: &[u8]) -> bool {
    archive.chunks(512).any(|block| block.starts_with(b"secret\0"))
}

#[test]
fn large_sparse_files_take_no_time() {
    let place = Place::new();
    let source = place.dir("source");
    let file = fs::File::create(source.join("sparse")).expect("a file");
    file.set_len(300 << 20).expect("a length");
    fs::set_permissions(source.join("sparse"), fs::Permissions::from_mode(0o600)).expect("a mode");
    let summary = export(&source, &place.at("."), false, None).expect("all is readable");
    assert_eq!((summary.archive_bytes, summary.content_bytes), (10240, 300 << 20));
}
