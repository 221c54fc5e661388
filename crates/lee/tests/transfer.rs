//! `lee import` and `lee export` on a mounted cell, compared by programs that know nothing of it.
#![allow(clippy::disallowed_methods)]

use crate::common::{Place, as_user, can_mount, lee, run, say, until};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const USER: u32 = 65534;

/// A script of the crate that does the work.
fn script(name: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../transfer/tests").join(name));
    command
}

/// A tree with everything that there can be.
fn tree(place: &Place) -> PathBuf {
    let source = place.beside("source");
    run(script("make_tree.py").arg(&source).arg("30")).good();
    source
}

/// All that can be seen of a tree.
fn walk(dir: &Path, left_out: &[&str]) -> String {
    run(script("walk_tree.py").arg(dir).args(left_out)).good()
}

#[track_caller]
fn assert_same(one: &str, two: &str) {
    for (a, b) in one.lines().zip(two.lines()) {
        assert_eq!(a, b);
    }
    assert_eq!((one.lines().count(), one.is_empty()), (two.lines().count(), false));
}

/// A served cell with the volume `vol`, and the path of that.
fn served() -> (Place, PathBuf) {
    let place = Place::new();
    place.up();
    place.ask(&["volume", "create", "vol"]).good();
    let at = place.mnt().join("vol");
    (place, at)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn snapshots(dir: &Path) -> usize {
    fs::read_dir(dir.join(".snap")).expect("snapshots").count()
}

/// A process that is gone with its test.
struct Running(Child);

impl Running {
    fn terminate(&self) {
        // SAFETY: a plain system call on our own child.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
    }

    #[track_caller]
    fn ends(&mut self) -> i32 {
        until("the command to end", || self.0.try_wait().expect("our child").is_some());
        self.0.wait().expect("our child").code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn wrong_usage_is_explained() {
    say(&["import", "nas:/home", "/tmp"]).bad(2, &["another machine", "mount -o ro nas:/home", "sshfs"]);
    // NFS takes neither a user nor a path from a home
    for by_ssh in ["bob@nas:/home", "nas:data"] {
        let said = say(&["import", by_ssh, "/tmp"]);
        assert!(!said.err.contains("NFS"), "{}", said.err);
        said.bad(2, &["another machine", &format!("`sshfs -o ro {by_ssh} /mnt`")]);
    }
    say(&["import", "s3://bucket/prefix", "/tmp"]).bad(2, &["is a URL", "mounted here", "rclone mount"]);
    say(&["import", "/etc", "/no/such/place"]).bad(1, &["/no/such/place", "lee volume create"]);
    say(&["import", "/no/such/place", "/tmp"]).bad(1, &["/no/such/place", "no such file"]);
    say(&["import", "/etc/passwd", "/tmp"]).bad(1, &["it is no directory"]);
    say(&["import", "/", "/tmp"]).bad(2, &["one is within the other"]);
    say(&["import", "/etc", "/tmp", "--exclude", "a/b"]).bad(2, &["a/b", "without `/`"]);
    say(&["import", "/etc", "/tmp", "--threads", "0"]).bad(2, &["--threads"]);
    say(&["export", "/tmp", "--to", "/tmp/x.tar"]).bad(1, &["no mount of a cell"]);
    say(&["export", "/tmp", "--json"]).bad(2, &["--to FILE"]);
    say(&["export", "/tmp", "--to", "x", "--manifest", "m", "--manifest-inside"]).bad(2, &["--manifest"]);
}

#[test]
fn a_tree_comes_and_leaves_as_it_was() {
    if !can_mount() {
        return;
    }
    let (place, at) = served();
    let source = tree(&place);
    let first = place.ask(&["import", text(&source), "vol", "--json"]).json();
    assert_eq!((first["reply"].as_str(), first["failed"].as_u64()), (Some("imported"), Some(0)), "{first}");
    let wanted = walk(&source, &[]);
    assert_same(&wanted, &walk(&at, &[]));
    let second = say(&["import", text(&source), text(&at), "--delete", "--json"]).json();
    let done = ["files_copied", "removed", "hard_links", "specials_made", "directories_made"];
    assert!(done.iter().all(|done| second[done] == 0), "{second}");

    // all of it is durable
    place.kill();
    place.up();
    assert_same(&wanted, &walk(&at, &[]));

    let archive = place.beside("out.tar");
    let said = say(&["export", text(&at), "--to", text(&archive), "--json"]).json();
    assert_eq!((said["reply"].as_str(), said["unreadable"].as_u64()), (Some("exported"), Some(0)), "{said}");
    assert_eq!(snapshots(&at), 0, "the snapshot was for the time of the export");
    assert_eq!(fs::metadata(&archive).expect("an archive").mode() & 0o777, 0o600);
    let restored = place.beside("restored");
    fs::create_dir(&restored).expect("a directory");
    let unpack = ["--acls", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf", "../out.tar"];
    run(Command::new("tar").args(unpack).current_dir(&restored)).good();
    let check = ["--strict", "--quiet", "-c", "../out.tar.sha256sums"];
    run(Command::new("sha256sum").args(check).current_dir(&restored)).good();
    assert_same(&walk(&source, &["sockets"]), &walk(&restored, &["sockets"]));

    // and a cell is a source like any other
    let back = place.beside("back");
    fs::create_dir(&back).expect("a directory");
    say(&["import", text(&at), text(&back)]).good();
    assert_same(&wanted, &walk(&back, &[]));
    place.ask(&["fsck"]).good();
}

#[test]
fn a_snapshot_is_exported_as_it_was() {
    if !can_mount() {
        return;
    }
    let (place, at) = served();
    fs::create_dir(at.join("sub")).expect("a directory");
    fs::write(at.join("sub/file"), "old").expect("a file");
    fs::create_dir(at.join(".snap/before")).expect("a snapshot");
    fs::write(at.join("sub/file"), "new").expect("a change");
    place.ask(&["volume", "create", "below", "--at", "/vol/below"]).good();
    let mut export = lee(&["export", text(&at.join(".snap/before"))]);
    let output = export.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("export each: /vol/below"), "{said}");
    assert_eq!(snapshots(&at), 1);
    let out = place.beside("out");
    fs::create_dir(&out).expect("a directory");
    fs::write(place.beside("out.tar"), &output.stdout).expect("an archive");
    run(Command::new("tar").args(["-xpf", "../out.tar"]).current_dir(&out)).good();
    assert_eq!(fs::read_to_string(out.join("sub/file")).expect("a file"), "old");
    // of an archive on standard output the manifest is the last entry
    run(Command::new("sha256sum").args(["--strict", "-c", "MANIFEST.sha256"]).current_dir(&out)).good();
    say(&["export", text(&at.join(".snap")), "--to", "/dev/null"]).bad(1, &["name one of the snapshots"]);
    // a tree with such a name of its own is not overwritten when it is unpacked
    fs::write(at.join("MANIFEST.sha256"), "x").expect("a file");
    let to = place.beside("two.tar");
    say(&["export", text(&at), "--to", text(&to), "--manifest-inside"])
        .bad(1, &["of its own", "--manifest FILE"]);
    assert!(!to.exists() && snapshots(&at) == 1);
}

/// A reader that takes nothing keeps neither the process nor the snapshot.
#[test]
fn a_signal_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let (place, at) = served();
    let file = fs::File::create(at.join("large")).expect("a file");
    file.set_len(40 << 40 >> 2).expect("a length");
    fs::write(at.join("content"), vec![7; 40 << 20]).expect("content");
    let mut export = lee(&["export", text(&at)]);
    let mut running =
        Running(export.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts"));
    until("the snapshot", || snapshots(&at) == 1);
    let mut some = vec![0; 1 << 20];
    running.0.stdout.as_mut().expect("a pipe").read_exact(&mut some).expect("the archive begins");
    running.terminate();
    assert_eq!(running.ends(), 1);
    assert_eq!(snapshots(&at), 0);

    // to a file, while the checksum of a hole of 10 TiB is made
    let out = place.beside("out");
    fs::create_dir(&out).expect("a directory");
    fs::remove_file(at.join("content")).expect("a removal");
    fs::write(out.join("a.tar"), "the one before").expect("a file");
    let mut export = lee(&["export", text(&at), "--to", text(&out.join("a.tar"))]);
    let mut running = Running(export.stderr(Stdio::null()).spawn().expect("it starts"));
    let names = || fs::read_dir(&out).expect("a directory").count();
    until("both new files", || names() == 3);
    running.terminate();
    assert_eq!(running.ends(), 1);
    assert_eq!((snapshots(&at), names()), (0, 1));
    assert_eq!(fs::read_to_string(out.join("a.tar")).expect("a file"), "the one before");
}

#[test]
fn a_full_disk_leaves_nothing_of_an_export() {
    if !can_mount() {
        return;
    }
    let (place, at) = served();
    fs::write(at.join("content"), vec![7; 5 << 20]).expect("content");
    // Place unmounts what is below it
    let small = place.beside("small");
    fs::create_dir(&small).expect("a directory");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "lee-test"]).arg(&small)).good();
    let said = say(&["export", text(&at), "--to", text(&small.join("a.tar"))]);
    said.bad(1, &["a.tar: cannot write: no space left"]);
    assert_eq!((snapshots(&at), fs::read_dir(&small).expect("a directory").count()), (0, 0));
}

#[test]
fn users_export_what_they_may_read() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.beside(""), fs::Permissions::from_mode(0o755)).expect("chmod");
    place.up();
    place.ask(&["volume", "create", "vol"]).good();
    let at = place.mnt().join("vol");
    fs::write(at.join("mine"), "mine").expect("a file");
    fs::write(at.join("not-theirs"), "secret").expect("a file");
    fs::set_permissions(at.join("not-theirs"), fs::Permissions::from_mode(0o600)).expect("chmod");
    let out = place.beside("out");
    fs::create_dir(&out).expect("a directory");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o777)).expect("chmod");
    let to = out.join("a.tar");
    let export = |path: &Path, more: &[&str]| {
        run(as_user(lee(&["export", text(path), "--to", text(&to)]).args(more), USER))
    };
    export(&at, &[]).bad(1, &["you may not take a snapshot"]);
    fs::create_dir(at.join(".snap/s")).expect("a snapshot");
    export(&at.join(".snap/s"), &[])
        .bad(1, &["./not-theirs: cannot be read: permission denied", "--keep-going"]);
    assert_eq!(fs::read_dir(&out).expect("a directory").count(), 0);
    let said = export(&at.join(".snap/s"), &["--keep-going"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err.contains("./not-theirs: cannot be read") && said.out.contains("1  names that could not")
    );
    let listed = run(Command::new("tar").arg("-tf").arg(&to)).good();
    assert_eq!(listed, "./\n./mine\n");
}

#[test]
fn a_quota_ends_a_pass_and_the_next_goes_on() {
    if !can_mount() {
        return;
    }
    let (place, at) = served();
    let source = place.beside("source");
    fs::create_dir(&source).expect("a directory");
    for n in 0..8 {
        fs::write(source.join(format!("f{n}")), vec![n; 1 << 20]).expect("a file");
    }
    place.ask(&["quota", "set", "vol", "--bytes", "4M"]).good();
    let said = say(&["import", text(&source), text(&at)]);
    assert!(said.err.contains("import again, which goes on from here"), "{said:?}");
    assert_eq!(said.code, 1);
    place.ask(&["quota", "set", "vol", "--bytes", "20M"]).good();
    let rest = say(&["import", text(&source), text(&at), "--json"]).json();
    let (copied, unchanged) = (rest["files_copied"].as_u64(), rest["unchanged"].as_u64());
    assert_eq!(copied.zip(unchanged).map(|(a, b)| a + b), Some(8), "{rest}");
    assert_same(&walk(&source, &[]), &walk(&at, &[]));
}

/// What is in a volume that is attached in the target does not go because the source has no such
/// directory.
#[test]
fn removing_stops_at_volumes() {
    if !can_mount() {
        return;
    }
    let (place, at) = served();
    let source = place.beside("source");
    fs::create_dir(&source).expect("a directory");
    fs::write(source.join("file"), "x").expect("a file");
    say(&["import", text(&source), text(&at)]).good();
    fs::create_dir_all(at.join("beside/empty")).expect("a directory");
    place.ask(&["volume", "create", "one", "--at", "/vol/one"]).good();
    place.ask(&["volume", "create", "two", "--at", "/vol/beside/two"]).good();
    fs::write(at.join("one/kept"), "kept").expect("a file");
    fs::write(at.join("beside/two/kept"), "kept").expect("a file");
    let said = say(&["import", text(&source), text(&at), "--delete"]);
    assert_eq!(said.code, 1, "{said:?}");
    let kept = run(Command::new("find").arg(&at).args(["-name", "kept"])).good();
    let paths: Vec<&str> = kept.lines().map(|path| &path[text(&at).len()..]).collect();
    assert!(paths.contains(&"/one/kept") && paths.contains(&"/beside/two/kept"), "{kept} {said:?}");
}

#[test]
fn a_pass_that_is_ended_is_gone_on_with() {
    if !can_mount() {
        return;
    }
    let (place, at) = served();
    let source = place.beside("source");
    for dir in 0..40 {
        let dir = source.join(format!("d{dir}"));
        fs::create_dir_all(&dir).expect("a directory");
        for n in 0..100 {
            fs::write(dir.join(format!("f{n}")), vec![n; 3000]).expect("a file");
        }
    }
    let import = || lee(&["import", text(&source), text(&at), "--threads", "1"]);
    let mut running =
        Running(import().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
    until("the first files", || at.join("d0").exists());
    running.terminate();
    let code = running.ends();
    // killed, too, at no moment of our choice
    let mut running =
        Running(import().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
    std::thread::sleep(std::time::Duration::from_millis(150));
    running.0.kill().expect("our child");
    running.0.wait().expect("our child");
    say(&["import", text(&source), text(&at), "--delete", "--compare"]).good();
    assert_same(&walk(&source, &[]), &walk(&at, &[]));
    assert!(code == 1 || code == 0, "{code}");
}

/// The server dies under a pass and comes back: what the cell has lost is brought by the next pass.
#[test]
fn a_server_that_dies_costs_another_pass() {
    if !can_mount() {
        return;
    }
    let (place, at) = served();
    let source = place.beside("source");
    for dir in 0..60 {
        let dir = source.join(format!("d{dir}"));
        fs::create_dir_all(&dir).expect("a directory");
        for n in 0..100 {
            fs::write(dir.join(format!("f{n}")), vec![n; 5000]).expect("a file");
        }
    }
    let mut import = lee(&["import", text(&source), text(&at), "--threads", "2"]);
    let mut running =
        Running(import.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts"));
    until("some directories", || fs::read_dir(&at).is_ok_and(|names| names.count() > 10));
    place.kill();
    let code = running.ends();
    let mut said = String::new();
    running.0.stderr.take().expect("a pipe").read_to_string(&mut said).expect("UTF-8");
    assert!(code == 0 || said.contains("the target does not answer any more"), "{code}: {said}");
    until("the path to be back", || fs::read_dir(&at).is_ok());
    // a server that was started again says once that something may be lost
    say(&["import", text(&source), text(&at)]).bad(1, &["cannot be made durable", "crashed", "import again"]);
    say(&["import", text(&source), text(&at)]).good();
    assert_same(&walk(&source, &[]), &walk(&at, &[]));
    let rest = say(&["import", text(&source), text(&at), "--json"]).json();
    assert_eq!(rest["files_copied"], 0, "{rest}");
}
