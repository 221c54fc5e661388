//! The life of a cell through the real binary and a real mount: up, commands while it runs and
//! while not, every way to end, and what a killed process leaves. Needs root and /dev/fuse; says so
//! and skips elsewhere.
#![allow(clippy::disallowed_methods)]

use crate::common;
use crate::common::{Foreground, Place, as_user, can_mount, is_mounted, lee, run, say, until};
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

#[test]
fn background_serves_until_down() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let said = place.up();
    let mnt = place.mnt();
    for word in ["made the cell", "lee volume create", "lee down", mnt.to_str().expect("UTF-8")] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(is_mounted(&mnt));
    fs::write(mnt.join("a"), "hello").expect("write");

    let status = say(&["status", place.arg(), "--json"]).json();
    assert_eq!(status["running"], true);
    assert_eq!(status["mount"], mnt.to_str().expect("UTF-8"));
    assert_eq!(status["pid"], place.pid().expect("a pid"));
    assert_eq!(status["volumes"], 1);
    for key in ["host", "since", "version", "dirty_bytes", "cell", "state"] {
        assert!(!status[key].is_null(), "{key}");
    }
    assert!(say(&["status", place.arg()]).good().contains("mounted at"));

    let holder = format!("process {}", place.pid().expect("a pid"));
    for background in [&[][..], &["--background"]] {
        let again = [&["up", place.arg()], background].concat();
        say(&again).bad(1, &["is in use by `lee up`", &holder, "since 2", "lee down"]);
    }

    assert!(say(&["down", place.arg()]).good().contains("everything is durable"));
    assert!(!is_mounted(&mnt));
    assert!(!place.dir.join("control.sock").exists());
    let down = say(&["status", place.arg()]);
    assert_eq!((down.code, down.out.contains("is down")), (3, true), "{down:?}");
    say(&["down", place.arg()]).bad(1, &["no process serves it", "lee up"]);

    assert!(place.up().contains("opened the cell"));
    assert_eq!(fs::read(mnt.join("a")).expect("read"), b"hello");
    // Where it is mounted stands for the cell.
    say(&["down", mnt.to_str().expect("UTF-8")]).good();
}

/// What `name_to_handle_at(2)` tells of a file.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

impl FileHandle {
    fn of(path: &Path) -> FileHandle {
        let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        let mut handle = FileHandle { bytes: 128, kind: 0, data: [0; 128] };
        let (to, mut mount) = ((&raw mut handle).cast(), 0);
        // SAFETY: a string that ends in NUL, and room for as many bytes as the handle says.
        let done = unsafe { libc::name_to_handle_at(libc::AT_FDCWD, name.as_ptr(), to, &raw mut mount, 0) };
        assert_eq!(done, 0, "{}: {}", path.display(), std::io::Error::last_os_error());
        handle
    }

    /// Opens the file in the file system that is mounted there.
    fn open(&mut self, mount: &Path) -> std::io::Result<fs::File> {
        let root = fs::File::open(mount)?;
        // SAFETY: a handle as the kernel wrote it, and a descriptor that is open.
        let fd = unsafe {
            libc::open_by_handle_at(root.as_raw_fd(), std::ptr::from_mut(self).cast(), libc::O_RDONLY)
        };
        // SAFETY: the kernel gave it to us just now.
        if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok(unsafe { fs::File::from_raw_fd(fd) }) }
    }
}

#[test]
fn handles_of_files_outlive_the_server() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let mnt = place.mnt();
    fs::create_dir_all(mnt.join("d/e")).expect("made");
    for name in ["file", "d/e/deep", "removed"] {
        fs::write(mnt.join(name), name).expect("written");
    }
    fs::create_dir(mnt.join(".snap/s")).expect("a snapshot");
    let of = |name: &str| FileHandle::of(&mnt.join(name));
    let (mut file, mut deep, mut dir) = (of("file"), of("d/e/deep"), of("d/e"));
    let (mut removed, mut old) = (of("removed"), of(".snap/s/file"));
    assert!(old.open(&mnt).is_ok(), "the kernel knows it");
    say(&["down", place.arg()]).good();
    place.up();
    let content = |handle: &mut FileHandle| {
        let mut text = String::new();
        handle.open(&mnt).and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
    };
    assert_eq!(content(&mut deep).expect("by its handle"), "d/e/deep");
    assert_eq!(content(&mut file).expect("by its handle"), "file");
    // a directory by its handle has its place in the tree, too
    let dir = dir.open(&mnt).expect("by its handle");
    let path = fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).expect("a path");
    assert_eq!(path, mnt.join("d/e"));
    assert_eq!(old.open(&mnt).expect_err("of the process before").raw_os_error(), Some(libc::ESTALE));
    // open once more, it is there by its handle; when nobody has it open, it is gone
    let held = removed.open(&mnt).expect("by its handle");
    fs::remove_file(mnt.join("removed")).expect("removed");
    assert_eq!(content(&mut removed).expect("still open"), "removed");
    drop(held);
    until("it is gone", || removed.open(&mnt).is_err_and(|e| e.raw_os_error() == Some(libc::ESTALE)));
    drop(dir);
    say(&["down", place.arg()]).good();
}

#[test]
fn ways_to_end() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let up = Foreground::up(&place);
        fs::write(place.mnt().join(format!("by-{signal}")), "x").expect("write");
        up.signal(signal);
        let said = up.ended();
        assert!(said.err.contains("unmounting") && said.err.contains("everything is durable"), "{said:?}");
        said.good();
        assert!(!is_mounted(&place.mnt()));
    }
    let up = Foreground::up(&place);
    assert_eq!(fs::read_dir(place.mnt()).expect("readdir").count(), 3);
    // A process that another test is just starting may have our directory open until its exec.
    until("umount", || run(Command::new("umount").arg(place.mnt())).code == 0);
    let said = up.ended();
    assert!(said.err.contains("was unmounted"), "{said:?}");
    said.good();
    let up = Foreground::up(&place);
    say(&["down", place.arg()]).good();
    up.ended().good();
}

#[test]
fn open_files_do_not_hinder_the_end() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let up = Foreground::up(&place);
    let open = fs::File::create(place.mnt().join("open")).expect("create");
    (&open).write_all(b"kept").expect("write");
    up.signal(libc::SIGTERM);
    // It waits a moment for the file to be closed; who is impatient hears for what.
    until("the unmount", || up.errors().contains("unmounting"));
    until("what it waits for", || {
        up.signal(libc::SIGINT);
        up.errors().contains("still unmounting")
    });
    let said = up.ended();
    assert!(said.err.contains("was still in use"), "{said:?}");
    said.good();
    assert!(!is_mounted(&place.mnt()));
    drop(open);
    place.up();
    assert_eq!(fs::read(place.mnt().join("open")).expect("read"), b"kept");
}

#[test]
fn what_a_killed_process_leaves_is_no_trouble() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let elsewhere = place.beside("elsewhere");
    fs::create_dir(&elsewhere).expect("mkdir");
    for _ in 0..2 {
        place.up_without_keeper();
        place.kill();
        assert!(is_mounted(&place.mnt()), "it is there, and dead");
        assert_eq!(say(&["status", place.arg()]).code, 3);
        // A command that opens the cell itself does not mind; but nothing can make durable what
        // died with the process.
        place.ask(&["df"]).good();
        place.ask(&["sync"]).bad(1, &["did not end in order", "may be lost"]);
    }
    // Wherever it was mounted.
    let at = elsewhere.to_str().expect("UTF-8");
    let said = say(&["up", place.arg(), "--background", "--no-keeper", "--mount", at]).good();
    assert!(said.contains("took away the dead mount"), "{said}");
    assert!(is_mounted(&elsewhere) && !is_mounted(&place.mnt()));
    assert_eq!(fs::read_dir(&elsewhere).expect("it lives").count(), 0);
    place.kill();
    place.up();
    assert!(!is_mounted(&elsewhere) && is_mounted(&place.mnt()));
}

#[test]
fn volumes_and_quotas() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    for serving in [true, false] {
        if !serving {
            say(&["down", place.arg()]).good();
        }
        let name = |n: &str| format!("{n}{}", u8::from(serving));
        let said = place.ask(&["volume", "create", &name("home"), "--owner", "nobody"]).good();
        assert_eq!(said, format!("created volume {0} at /{0}, owned by nobody\n", name("home")));
        let proj = place.ask(&["volume", "create", &name("proj"), "--owner", "4242", "--json"]).json();
        assert_eq!(
            (proj["uid"].as_u64(), proj["at"].as_str()),
            (Some(4242), Some(&*format!("/{}", name("proj"))))
        );
        place.ask(&["volume", "create", &name("proj")]).bad(1, &[&name("proj")]);
        place.ask(&["volume", "create", "x", "--at", "/no/such/dir/x"]).bad(1, &["/no/such/dir"]);
        let long = "n".repeat(300);
        place.ask(&["volume", "create", &long]).bad(1, &[]);
        let list = place.ask(&["volume", "list"]).good();
        assert!(list.starts_with("VOLUME") && list.contains(&name("proj")), "{list}");
        assert!(!list.lines().any(|l| l.ends_with(' ')), "{list}");
        let renamed = place.ask(&["volume", "rename", &name("proj"), &name("work")]).good();
        assert!(renamed.contains(&format!("stays attached at /{}", name("proj"))), "{renamed}");
        let shown = place.ask(&["volume", "show", &name("work"), "--json"]).json();
        assert_eq!(shown["reply"], "volume");
        place.ask(&["volume", "show", "nothing"]).bad(1, &["nothing"]);

        let quota =
            place.ask(&["quota", "set", &name("work"), "--bytes", "10G", "--files", "1M", "--json"]).json();
        assert_eq!(quota["bytes"], 10u64 << 30);
        assert_eq!(quota["files"], 1_000_000);
        let quota = place.ask(&["quota", "set", &name("work"), "--files", "none", "--json"]).json();
        assert_eq!((quota["bytes"].as_u64(), quota["files"].as_u64()), (Some(10 << 30), Some(0)));
        let said = place.ask(&["quota", "show", &format!("/{}", name("proj"))]).good();
        assert!(said.contains("of 10 GiB used") && said.contains("no limit"), "{said}");
        let quotas = place.ask(&["quota", "list", "--json"]).json();
        assert!(quotas["quotas"].as_array().is_some_and(|q| !q.is_empty()), "{quotas}");
        place.ask(&["quota", "show", "nothing"]).bad(1, &["nothing", "./nothing"]);

        place.ask(&["volume", "remove", &name("work")]).good();
        place.ask(&["volume", "show", &name("work")]).bad(1, &[&name("work")]);
    }
}

#[test]
fn space_and_checks() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let tree = place.mnt().join("tree/deep");
    fs::create_dir_all(&tree).expect("mkdir");
    fs::write(tree.join("file"), vec![7; 100_000]).expect("write");
    place.ask(&["sync"]).good();

    let du = |args: &[&str], dir: &Path| run(lee(args).current_dir(dir)).json();
    let by_cell_path = place.ask(&["du", "/tree", "--json"]).json();
    assert_eq!(by_cell_path["paths"][0]["files"], 1);
    assert_eq!(by_cell_path["paths"][0]["dirs"], 1);
    // In the mount the cell is found, and its paths are those of this machine.
    let by_relative_path = du(&["du", "deep/..", "--json", "deep"], &place.mnt().join("tree"));
    assert_eq!(by_relative_path["paths"][1]["path"], "/tree/deep");
    let by_machine_path =
        du(&["du", "--json", place.mnt().join("tree").to_str().expect("UTF-8")], &place.dir);
    assert_eq!(by_machine_path, by_cell_path);
    assert_eq!(du(&["du", "--json"], &tree)["paths"][0]["path"], "/tree/deep");
    assert_eq!(du(&["du", "--json"], &place.dir)["paths"][0]["path"], "/");
    place.ask(&["du", "/nothing"]).bad(1, &["/nothing"]);
    place.ask(&["du", "tree"]).bad(1, &["not below a mount"]);

    assert!(place.ask(&["df"]).good().contains("available"));
    let df = place.ask(&["df", "--json"]).json();
    assert!(df["total_bytes"].as_u64() > df["available_bytes"].as_u64(), "{df}");
    for serving in [true, false] {
        if !serving {
            say(&["down", place.arg()]).good();
        }
        assert!(place.ask(&["fsck"]).good().starts_with("clean: "));
        assert_eq!(place.ask(&["fsck", "--json"]).json()["findings"], serde_json::json!([]));
        assert_eq!(place.ask(&["sync", "--json"]).json()["reply"], "done");
    }
}

#[test]
fn settings_are_shown_and_checked() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    assert!(place.ask(&["config", "show"]).good().contains("dirty-mib = 96"));
    say(&["down", place.arg()]).good();
    fs::write(place.dir.join("leeward.toml"), "dirty-mib = 32\n").expect("write");
    assert_eq!(place.ask(&["config", "show", "--json"]).json()["settings"]["dirty-mib"], 32);
    fs::write(place.dir.join("leeward.toml"), "\ndirty-mib = 3\n").expect("write");
    for command in [&["config", "show"][..], &["df"], &["up"], &["up", "--background"]] {
        place.ask(command).bad(1, &["leeward.toml", "line 2", "dirty-mib", "16 to 65536"]);
    }
}

#[test]
fn mount_points_are_checked() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let up_at = |at: &Path| say(&["up", place.arg(), "--mount", at.to_str().expect("UTF-8")]);
    let at = place.beside("at");
    up_at(&at).bad(1, &["at", "does not exist", "mkdir"]);
    fs::write(&at, "").expect("write");
    up_at(&at).bad(1, &["not a directory"]);
    fs::remove_file(&at).expect("rm");
    fs::create_dir(&at).expect("mkdir");
    fs::write(at.join("x"), "").expect("write");
    up_at(&at).bad(1, &["not empty"]);
    up_at(&place.dir).bad(1, &["would hide the cell"]);
    up_at(&place.beside("")).bad(1, &["would hide the cell"]);
    let other = Place::new();
    other.up();
    up_at(&other.mnt()).bad(1, &["already mounted", "umount"]);
    say(&["up", other.mnt().to_str().expect("UTF-8")]).bad(1, &["is where the cell", other.arg()]);
}

#[test]
fn without_a_fuse_device_it_says_what_to_do() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let script = format!("mount -t tmpfs none /dev && exec {} up {}", common::LEE, place.arg());
    run(Command::new("unshare").args(["-m", "sh", "-c", &script])).bad(1, &["/dev/fuse", "modprobe fuse"]);
}

#[test]
fn the_background_process_keeps_nothing_of_its_parent() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let script = format!("exec 7</etc/passwd 8</etc/passwd; {} up {} --background", common::LEE, place.arg());
    // That this returns shows that standard output and error are not kept, either.
    run(Command::new("sh").args(["-c", &script])).good();
    let pid = place.pid().expect("a pid");
    let open: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("its descriptors")
        .filter_map(|e| fs::read_link(e.expect("an entry").path()).ok())
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    assert!(!open.iter().any(|p| p == "/etc/passwd"), "{open:?}");
    assert!(open.iter().any(|p| p.ends_with("/cell/log")), "{open:?}");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).expect("its directory"), Path::new("/"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    assert_eq!(fields[3], pid.to_string(), "a session of its own");
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("its limits");
    let files: Vec<&str> = limits
        .lines()
        .find(|l| l.starts_with("Max open files"))
        .expect("a line")
        .split_whitespace()
        .collect();
    assert_eq!(files[3], files[4], "{limits}");
}

#[test]
fn the_control_socket_is_for_who_has_the_mount_and_patient() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let socket = place.dir.join("control.sock");
    // as root mounts for all
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o666);
    for private in ["cell", "log"] {
        let mode = fs::metadata(place.dir.join(private)).map(|m| m.permissions().mode() & 0o077);
        assert_eq!(mode.expect(private), 0, "{private}");
    }

    for wrong in ["nonsense\n", "{\"call\":\"bogus\"}\n", &format!("{}\n", "x".repeat(100_000))] {
        let mut stream = UnixStream::connect(&socket).expect("connect");
        let _ = stream.write_all(wrong.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("does not understand"), "{answer}");
    }
    // Somebody who connects and says nothing holds nobody up.
    let silent: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&socket).expect("connect")).collect();
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| place.ask(&["df", "--json"]).good());
        }
    });
    say(&["status", place.arg()]).good();
    drop(silent);
    // Too many at once are told so, and it goes on. One more at each try: those that just went may
    // still count.
    let mut many: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&socket).expect("connect")).collect();
    until("a refusal", || {
        many.push(UnixStream::connect(&socket).expect("connect"));
        say(&["status", place.arg()]).err.contains("try again in a moment")
    });
    drop(many);
    until("an answer", || say(&["status", place.arg()]).code == 0);
}

#[test]
fn long_and_odd_paths_work() {
    if !can_mount() {
        return;
    }
    let mut place = Place::new();
    place.dir = place.beside(&format!("{} with, a \\ and {}", "long".repeat(30), "x".repeat(40)));
    place.up();
    assert!(is_mounted_like(&place), "the mount table names it");
    assert_eq!(place.ask(&["du", "/", "--json"]).json()["paths"][0]["path"], "/");
    assert_eq!(run(lee(&["status", "--json"]).current_dir(place.mnt())).json()["running"], true);
    assert_eq!(run(lee(&["status", "--json"]).current_dir(&place.dir)).json()["running"], true);
    let name = place.dir.file_name().expect("a name");
    run(lee(&["down"]).arg(name).current_dir(place.beside(""))).good();
    // Relative, from there.
    run(lee(&["up", "--background"]).arg(name).current_dir(place.beside(""))).good();
    say(&["down", place.arg()]).good();
}

fn is_mounted_like(place: &Place) -> bool {
    fs::read_dir(place.mnt()).is_ok_and(|mut d| d.next().is_none())
        && fs::read_to_string("/proc/self/mountinfo").is_ok_and(|t| t.contains("\\040with,"))
}

#[test]
fn commands_wait_for_each_other() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    say(&["down", place.arg()]).good();
    // Each opens the cell itself.
    std::thread::scope(|s| {
        for i in 0..4 {
            let place = &place;
            s.spawn(move || place.ask(&["volume", "create", &format!("v{i}")]).good());
        }
    });
    let list = place.ask(&["volume", "list", "--json"]).json();
    assert_eq!(list["volumes"].as_array().map(Vec::len), Some(5), "{list}");
    // A command that meets a cell that starts is answered by it.
    std::thread::scope(|s| {
        s.spawn(|| place.up());
        for _ in 0..4 {
            s.spawn(|| place.ask(&["df"]).good());
        }
    });
}

#[test]
fn ordinary_users_serve_cells_too() {
    if !can_mount() {
        return;
    }
    const USER: u32 = 65534;
    let place = Place::new();
    fs::set_permissions(place.beside(""), fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::create_dir(&place.dir).expect("mkdir");
    std::os::unix::fs::chown(&place.dir, Some(USER), Some(USER)).expect("chown");
    let copy = place.beside("lee");
    // Not by this process: whoever another test is just starting would have the copy open for
    // writing until its exec.
    run(Command::new("cp").arg(common::LEE).arg(&copy)).good();
    let user = |args: &[&str]| run(as_user(Command::new(&copy).args(args), USER));
    let up = user(&["up", place.arg(), "--background"]);
    let helper = ["/bin", "/usr/bin", "/sbin"].iter().any(|d| Path::new(d).join("fusermount3").exists());
    let open_device = fs::OpenOptions::new().read(true).open("/dev/fuse").is_ok()
        && fs::metadata("/dev/fuse").is_ok_and(|m| m.permissions().mode() & 0o006 == 0o006);
    if helper && open_device {
        up.good();
        assert_eq!(user(&["status", place.arg(), "--json"]).json()["running"], true);
        user(&["down", place.arg()]).good();
    } else {
        assert!(up.err.contains("fuse"), "{up:?}");
        up.bad(1, &[if open_device { "fuse3" } else { "/dev/fuse" }]);
    }
    // What root does offline leaves nothing that the user cannot open.
    place.ask(&["volume", "create", "by-root", "--owner", "nobody"]).good();
    user(&["volume", "list", "--cell", place.arg()]).good();
    user(&["volume", "remove", "by-root", "--cell", place.arg()]).good();
}

#[test]
fn top_and_why_tell_who_did_what() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.ask(&["top", "--once"]).code, 1, "there is no cell yet");
    place.up();
    let file = place.mnt().join("file");
    let top = std::thread::scope(|s| {
        let top = s.spawn(|| place.ask(&["top", "--once", "--every", "2", "--json"]).json());
        // until it has looked twice
        while !top.is_finished() {
            fs::write(&file, b"some bytes").expect("written");
            fs::File::open(&file).expect("open").sync_all().expect("durable");
        }
        top.join().expect("it ends")
    });
    let flow = &top["flows"][0];
    assert_eq!((flow["user"].as_str(), flow["volume"].as_str()), (Some("root"), Some("root")));
    assert!(flow["operations_per_second"].as_f64() > Some(0.0), "{top}");
    assert!(flow["written_bytes_per_second"].as_f64() > Some(0.0), "{top}");
    assert!(place.ask(&["top", "--once"]).good().contains("operations/s; 0 waiting for their turn"));

    // An fsync that has much to store is slow enough to be told.
    fs::write(&file, vec![7; 32 << 20]).expect("written");
    fs::File::open(&file).expect("open").sync_all().expect("durable");
    let why = place.ask(&["why", "root", "--json"]).json();
    let told = why["operations"].as_array().expect("a list");
    let slow = told.iter().find(|o| o["operation"] == "fsync" && o["path"] == "/file").expect("the fsync");
    assert!(slow["milliseconds"].as_f64() >= Some(1.0), "{slow}");
    let waited = |w: &serde_json::Value| w["for_what"] == "put" || w["for_what"] == "commit";
    assert!(slow["waited"].as_array().is_some_and(|all| all.iter().any(waited)), "{slow}");
    assert!(place.ask(&["why", "/file"]).good().contains("fsync"));
    place.ask(&["why", "/elsewhere/"]).bad(1, &["/elsewhere", "no such file", "name a path that is there"]);
    let missing = place.mnt().join("missing/below").display().to_string();
    place.ask(&["why", &missing]).bad(1, &["/missing/below", "no such file"]);
    fs::create_dir(place.mnt().join("calm")).expect("made");
    assert!(place.ask(&["why", "/calm/"]).good().contains("nothing took longer"));
    assert!(place.ask(&["why", "nobody-of-this-name"]).err.contains("no user named"));
    assert_eq!(place.ask(&["top", "--every", "0"]).code, 2, "out of range");
    say(&["down", place.arg()]).good();
    assert!(place.ask(&["top", "--once"]).err.contains("is not served"));
}

#[test]
fn weights_and_ceilings_last_and_take_effect_at_once() {
    let place = Place::new();
    place.ask(&["flow", "list"]).bad(1, &["cell"]);
    fs::create_dir(&place.dir).expect("made");
    if !can_mount() {
        return;
    }
    place.up();
    assert!(place.ask(&["flow", "list"]).good().contains("nothing is set"));
    let set = place.ask(&["flow", "weight", "4000001", "300", "--json"]).json();
    assert_eq!(
        (&set["who"]["user"], &set["weight"], &set["ops_per_sec"]),
        (&4_000_001.into(), &300.into(), &().into())
    );
    // a ceiling of five operations a second counts from now on, and its absence, too
    let as_user = |script: &str| {
        let mut command = std::process::Command::new("sh");
        let begun = std::time::Instant::now();
        common::run(common::as_user(command.args(["-c", script]).current_dir(place.mnt()), 4_000_001)).good();
        begun.elapsed()
    };
    place.ask(&["flow", "limit", "4000001", "--ops", "5/s", "--bytes", "100M"]).good();
    let twenty = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -e absent$i ] || :; done";
    assert!(as_user(twenty).as_secs_f64() >= 2.5, "20 names, 5 at once and 5 a second");
    let why = place.ask(&["why", "4000001"]).good();
    assert!(why.contains("ceiling"), "{why}");
    say(&["down", place.arg()]).good();

    // offline
    let list = place.ask(&["flow", "list"]).good();
    let row: Vec<&str> = list.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row, ["4000001", "300", "5", "100", "MiB"]);
    let shown = place.ask(&["flow", "show", "4000001", "--json"]).json();
    assert_eq!((&shown["weight"], &shown["bytes_per_sec"]), (&300.into(), &(100 << 20).into()));
    // what is said about a group is said about its members, but what is said about one of them
    // counts before
    place.ask(&["flow", "weight", "@0", "200"]).good();
    assert!(place.ask(&["flow", "show", "root"]).good().contains("200\n"));
    place.ask(&["flow", "weight", "root", "50"]).good();
    assert!(place.ask(&["flow", "show", "root"]).good().contains("50\n"));
    for who in ["root", "@root", "4000001"] {
        place.ask(&["flow", "reset", who]).good();
    }
    assert!(place.ask(&["flow", "list"]).good().contains("nothing is set"));
    assert!(place.ask(&["flow", "show", "root"]).good().contains("100 (the usual one)"));
    for wrong in [
        &["flow", "weight", "root", "0"][..],
        &["flow", "limit", "root"],
        &["flow", "limit", "root", "--ops", "x"],
    ] {
        assert_eq!(place.ask(wrong).code, 2, "{wrong:?}");
    }
    place.ask(&["flow", "weight", "@no-such-group", "5"]).bad(1, &["no group named"]);
}
