//! Archives, unpacked by GNU tar, bsdtar and Python, and their manifests by `sha256sum`.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Place, assert_same, export, is_root, run, walk};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

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
        // Removing the manifest changed the time of the root. libarchive reads fractions of seconds before 1970
        // from the wrong side, and does not know how GNU tar writes `=` in the name of an attribute.
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

#[test]
fn what_cannot_be_read_is_named() {
    let place = Place::new();
    let source = place.dir("source");
    fs::write(source.join("good"), "good").expect("a file");
    fs::write(source.join("later"), "later").expect("a file");
    // sysfs has files that say they have 4096 bytes and have none
    let odd = Path::new("/sys/kernel/uevent_seqnum");
    if !odd.exists() {
        return;
    }
    let out = place.dir("out");
    let refused = export(Path::new("/sys/kernel/slab/../debug/.."), &out, false, None);
    let text = refused.expect_err("files of sysfs are shorter than they say").to_string();
    assert!(text.starts_with("./") && text.contains("cannot be read"), "{text}");
}

#[test]
fn going_on_leaves_a_right_archive() {
    let place = Place::new();
    let out = place.dir("out");
    let summary = export(Path::new("/sys/kernel/mm/ksm"), &out, true, None);
    let Ok(summary) = summary else { return };
    if summary.files == 0 {
        return;
    }
    assert_eq!(summary.unreadable, summary.files, "{summary:?}");
    assert!(summary.troubles[0].cause.contains("became shorter"), "{summary:?}");
    assert_eq!(fs::metadata(out.join("manifest")).expect("a manifest").len(), 0);
    let listed = run(&mut command(&["tar", "-tvf", "archive.tar"], &out));
    assert_eq!(listed.lines().count() as u64, summary.files + summary.directories);
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
