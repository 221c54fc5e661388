//! Snapshots by command, on a cell that is served and on one that is not, and what the mount shows
//! of it.
#![allow(clippy::disallowed_methods)]

use crate::common::{Place, as_user, can_mount, run, say};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn wrong_usage_is_explained() {
    say(&["snap", "create", "x"]).bad(2, &["<NAME>"]);
    say(&["snap", "lock", "x", "y"]).bad(2, &["--until"]);
    for date in ["tomorrow", "2026-02-30", "+5"] {
        say(&["snap", "lock", "x", "y", "--until", date]).bad(2, &[date, "2027-01-01T12:00Z", "+30d"]);
    }
    say(&["snap", "schedule", "x"]).bad(2, &["<INTERVAL>"]);
    say(&["snap", "schedule", "x", "1s"]).bad(2, &["1s", "15m, 1h"]);
    say(&["snap", "restore", "x", "s", "../y"]).bad(2, &["../y", "without `..`"]);
    say(&["snap", "restore", "x", "s", "y", "--to", "z", "--in-place"]).bad(2, &["--in-place"]);
    say(&["snap", "diff", "x", "s", "-0", "--json"]).bad(2, &["two forms"]);
    say(&["volume", "allow", "x", "everything", "root"]).bad(2, &["everything", "snapshot"]);
    say(&["volume", "allow", "x", "snapshot"]).bad(2, &["USER"]);
    say(&["volume", "allow", "x", "snapshot", "@no-such-group"]).bad(1, &["no group named", "getent group"]);
    say(&["volume", "set", "x", "snapshots-max=many"]).bad(2, &["many", "a number"]);
    say(&["volume", "set", "x", "color=red"]).bad(2, &["snapshot-dir-visible"]);
}

#[test]
fn the_mount_and_the_commands_agree() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let dir = place.mnt().join("dir");
    let snap = dir.join(".snap");
    fs::create_dir(&dir).expect("mkdir");
    fs::write(dir.join("file"), "old").expect("write");
    let here = dir.to_str().expect("UTF-8");
    // the kernel looks before and remembers that there is nothing
    assert!(!snap.join("one").exists());
    let one = place.ask(&["snap", "create", here, "one", "--json"]).json();
    assert_eq!(
        (one["path"].as_str(), one["name"].as_str(), one["uid"].as_u64()),
        (Some("/dir"), Some("one"), Some(0))
    );
    assert!(snap.join("one").exists(), "what a command does is seen when it returns");
    fs::write(dir.join("file"), "newer").expect("write");
    assert_eq!(fs::read_to_string(snap.join("one/file")).expect("read"), "old");
    let below = dir.join("sub/.snap");
    fs::create_dir(dir.join("sub")).expect("mkdir");
    fs::create_dir(snap.join("two")).expect("mkdir takes one");
    let inherited = below.join(names(&below).concat());
    assert!(inherited.exists());
    place.ask(&["snap", "rename", here, "two", "second"]).good();
    assert!(snap.join("second").exists() && !snap.join("two").exists());
    assert!(!inherited.exists(), "nobody tells the kernel of these names: it must ask");
    let list = place.ask(&["snap", "list", here]).good();
    assert!(
        list.contains("one") && list.contains("second") && list.contains("volume root: 2 snapshots"),
        "{list}"
    );
    place.ask(&["snap", "remove", "/dir", "second"]).good();
    assert!(!snap.join("second").exists());
    place.ask(&["snap", "remove", "/dir", "second"]).bad(1, &["/dir has no snapshot second"]);

    let lock = place.ask(&["snap", "lock", "/dir", "one", "--until", "+30d", "--json"]).json();
    assert!(lock["locked_until_secs"].as_i64() > lock["time_secs"].as_i64().map(|t| t + 29 * 86_400));
    assert_eq!(fs::remove_dir(snap.join("one")).expect_err("locked").raw_os_error(), Some(libc::EPERM));
    place.ask(&["snap", "unlock", "/dir", "one"]).bad(1, &["locked until"]);
    say(&["down", place.arg()]).good();

    // the same without a server
    place.ask(&["snap", "create", "/dir", "offline"]).good();
    place.ask(&["snap", "remove", "/dir", "one"]).bad(1, &["locked until", "nobody"]);
    let usage = place.ask(&["snap", "usage", "--json"]).json();
    assert_eq!(usage["usage"][0]["snapshots"], 2, "{usage}");
    place.up();
    assert_eq!(names(&snap), ["offline", "one"]);
    assert_eq!(fs::read_to_string(snap.join("one/file")).expect("read"), "old");
    let status = say(&["status", place.arg(), "--json"]).json();
    assert_eq!((status["snapshots"].as_u64(), status["late_schedules"].as_u64()), (Some(2), Some(0)));
    place.ask(&["fsck"]).good();
}

#[test]
fn differences_and_restore() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let dir = place.mnt().join("dir");
    fs::create_dir_all(dir.join("sub")).expect("mkdir");
    for (name, text) in [("kept", "1"), ("changed", "2"), ("gone", "3"), ("before", "4"), ("sub/deep", "5")] {
        fs::write(dir.join(name), text).expect("write");
    }
    place.ask(&["snap", "create", "/dir", "a"]).good();
    fs::write(dir.join("changed"), "two").expect("write");
    fs::remove_file(dir.join("gone")).expect("rm");
    fs::rename(dir.join("before"), dir.join("after")).expect("mv");
    fs::write(dir.join("new"), "").expect("write");
    let diff = place.ask(&["snap", "diff", "/dir", "a"]).good();
    let mut lines: Vec<&str> = diff.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["+ new", "- gone", "M changed", "R before -> after"]);
    let zero = place.ask(&["snap", "diff", "/dir", "a", "-0"]).good();
    assert!(zero.contains("R before\0after\0") && zero.ends_with('\0') && !zero.contains('\n'), "{zero:?}");
    let json = place.ask(&["snap", "diff", "/dir", "a", "--json"]).json();
    assert_eq!(json["changes"].as_array().map(Vec::len), Some(4), "{json}");
    place.ask(&["snap", "create", "/dir", "b"]).good();
    assert_eq!(place.ask(&["snap", "diff", "/dir", "b"]).good(), "");
    place.ask(&["snap", "diff", "/dir", "b", "a"]).bad(1, &["newer"]);
    place.ask(&["snap", "diff", "/dir", "c"]).bad(1, &["no snapshot c"]);

    place.ask(&["snap", "restore", "/dir", "a", "gone"]).good();
    assert_eq!(fs::read_to_string(dir.join("gone")).expect("read"), "3");
    place.ask(&["snap", "restore", "/dir", "a", "changed"]).bad(1, &["is there", "--in-place", "--to"]);
    place.ask(&["snap", "restore", "/dir", "a", "changed", "--in-place"]).good();
    assert_eq!(fs::read_to_string(dir.join("changed")).expect("read"), "2");
    let said = place.ask(&["snap", "restore", "/dir", "a", "sub", "--to", "/copy", "--json"]).json();
    assert_eq!((said["files"].as_u64(), said["reply"].as_str()), (Some(1), Some("restored")));
    assert_eq!(fs::read_to_string(place.mnt().join("copy/deep")).expect("read"), "5");
    place.ask(&["fsck"]).good();
}

#[test]
fn rights_and_properties_of_volumes() {
    if !can_mount() {
        return;
    }
    const USER: u32 = 65534;
    let place = Place::new();
    fs::set_permissions(place.beside(""), fs::Permissions::from_mode(0o755)).expect("chmod");
    place.up();
    place.ask(&["volume", "create", "project"]).good();
    let snap = place.mnt().join("project/.snap");
    let take = |name: &str| {
        let mut mkdir = Command::new("mkdir");
        run(as_user(mkdir.arg(snap.join(name)), USER)).code == 0
    };
    assert!(!take("no"));
    place.ask(&["volume", "allow", "project", "snapshot", &USER.to_string()]).good();
    assert!(take("yes"));
    let list = place.ask(&["snap", "list", "--volume", "project", "--json"]).json();
    assert_eq!(list["snapshots"][0]["uid"], USER, "{list}");
    place.ask(&["volume", "deny", "project", "snapshot", &USER.to_string()]).good();
    assert!(!take("no"));

    assert_eq!(names(&place.mnt().join("project")), [] as [&str; 0]);
    let set =
        ["volume", "set", "project", "snapshot-dir=.snapshot", "snapshot-dir-visible=yes", "snapshots-max=1"];
    let shown = place.ask(&set).good();
    assert!(
        shown.contains(".snapshot of each directory (listed)") && shown.contains("1 of at most 1"),
        "{shown}"
    );
    let renamed = place.mnt().join("project/.snapshot");
    assert!(renamed.join("yes").exists() && !snap.exists());
    assert_eq!(names(&place.mnt().join("project")), [".snapshot"]);
    place.ask(&["snap", "create", "/project", "more"]).bad(1, &["volume project", "snapshots-max"]);
    place.ask(&["snap", "lock", "/project", "yes", "--until", "2099-01-01"]).good();
    place.ask(&["volume", "remove", "project"]).bad(1, &["project", "yes", "2099-01-01T00:00Z"]);
    assert!(renamed.join("yes").metadata().expect("still there").nlink() >= 2);
}

#[test]
fn schedules_run_by_themselves() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    place.ask(&["snap", "schedule", "/", "1h", "--keep", "24x"]).bad(1, &["24x", "24h7d4w12m"]);
    let made = place.ask(&["snap", "schedule", "/", "1h", "--keep", "24h7d"]).good();
    assert!(made.contains("every 1h, keeps 24h7d"), "{made}");
    place.ask(&["snap", "schedule", "/", "1m"]).good();
    let list = place.ask(&["snap", "schedule", "list"]).good();
    assert!(list.contains("24h7d4w12m") && list.contains("good") && list.lines().count() == 2, "{list}");
    let json = place.ask(&["snap", "schedule", "list", "--json"]).json();
    assert_eq!(
        (json["schedules"][0]["interval_secs"].as_u64(), json["schedules"][0]["late"].as_bool()),
        (Some(60), Some(false))
    );
    // at most one minute
    let snap = place.mnt().join(".snap");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while names(&snap).is_empty() {
        assert!(std::time::Instant::now() < end, "no snapshot in 90 s");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(names(&snap)[0].ends_with('Z'), "{:?}", names(&snap));
    place.ask(&["snap", "schedule", "remove", "/"]).good();
    place.ask(&["snap", "schedule", "remove", "/"]).bad(1, &["no schedule"]);
    assert_eq!(place.ask(&["snap", "schedule", "list"]).good(), "no schedules\n");
}
