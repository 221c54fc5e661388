//! Against OpenSSH's own server, without a network; and against programs that are none.

use super::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where Debian has it, and others.
const SERVERS: [&str; 3] =
    ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"];

fn server() -> Option<&'static str> {
    let found = SERVERS.into_iter().find(|path| Path::new(path).exists());
    if found.is_none() {
        eprintln!("skipped: no sftp-server (package openssh-sftp-server)");
    }
    found
}

fn open(program: &'static str, path: &Path, may_make: bool) -> Result<Sftp> {
    Sftp::by("sftp:test", path.to_str().expect("UTF-8"), Box::new(move || Command::new(program)), may_make)
}

#[test]
fn files_are_stored_read_listed_and_removed() {
    let Some(server) = server() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let at = place.path().join("repository");
    let absent = open(server, &at, false).err().expect("it is missing");
    assert_eq!(absent.kind, ErrorKind::Place);
    assert!(absent.text.contains("is missing"), "{absent}");
    let below = open(server, &at.join("deeper"), true).err().expect("what is above it is missing");
    assert!(below.text.contains("directory above it"), "{below}");
    let sftp = open(server, &at, true).expect("made");
    sftp.prepare().expect("prepared");
    sftp.prepare().expect("prepared again");
    // shorter and longer than all pieces that are under way at a time
    for len in [0, 1, 100_000, 3 << 20] {
        let bytes: Vec<u8> = (0..len).map(|n: u32| (n % 251) as u8).collect();
        sftp.put("data/ab/abc", bytes.clone()).expect("stored");
        assert!(sftp.get("data/ab/abc").expect("read") == Some(bytes.clone()), "{len} bytes");
        let (from, part) = (u64::from(len) / 3, u64::from(len) / 2);
        let range = sftp.get_range("data/ab/abc", from, part).expect("read");
        assert!(range == bytes[from as usize..(from + part) as usize], "a part of {len} bytes");
    }
    let early = sftp.get_range("data/ab/abc", 3 << 20, 1).expect_err("behind its end");
    assert_eq!((early.kind, early.text.contains("ends early")), (ErrorKind::Damaged, true), "{early}");
    let none = sftp.get_range("data/ab/none", 0, 1).expect_err("no such file");
    assert_eq!(none.kind, ErrorKind::Damaged, "{none}");
    assert_eq!(sftp.get("data/ab/none").expect("answered"), None);
    sftp.put("config", b"c".to_vec()).expect("stored at the top");
    sftp.put("new/file", b"n".to_vec()).expect("its directory is made");
    assert_eq!(sftp.list("data").expect("listed"), [("abc".to_string(), 3 << 20)]);
    assert_eq!(sftp.list("nothing").expect("listed"), []);
    for _ in 0..2 {
        sftp.remove("data/ab/abc").expect("removed, or not there");
    }
    assert_eq!(sftp.list("data").expect("listed"), []);
    // who can write there may claim any length: that takes no memory
    let sparse = std::fs::File::create(at.join("locks/large")).expect("made");
    sparse.set_len(1 << 43).expect("sparse");
    for files in
        [&sftp as &dyn Files, &*crate::files::open(at.to_str().expect("UTF-8"), false).expect("opened")]
    {
        let refused = files.get("locks/large").expect_err("too long");
        assert_eq!(refused.kind, ErrorKind::Place, "{refused}");
    }
    // nothing unfinished is left
    assert_eq!(std::fs::read_dir(at.join("data/ab")).expect("read").count(), 0);
}

#[test]
fn a_connection_that_breaks_is_made_anew() {
    let Some(server) = server() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().to_str().expect("UTF-8").to_owned();
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let command = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Command::new(server)
    };
    let sftp = Sftp::by("sftp:test", &path, Box::new(command), false).expect("opened");
    sftp.put("a", vec![1; 1000]).expect("stored");
    for n in 2..5 {
        sftp.link.lock().as_mut().expect("a connection").break_off();
        assert_eq!(sftp.get("a").expect("read"), Some(vec![1; 1000]));
        assert_eq!(made.load(Ordering::Relaxed), n);
    }
}

#[test]
fn what_ssh_says_is_told() {
    let place = tempfile::tempdir().expect("a directory");
    let says = |script: &str| {
        let script = script.to_owned();
        let command = move || {
            let mut command = Command::new("sh");
            command.args(["-c", &script]);
            command
        };
        let path = place.path().to_str().expect("UTF-8");
        let failed = Sftp::by("sftp:vault:/b", path, Box::new(command), true).err().expect("no server");
        assert_eq!(failed.kind, ErrorKind::Place);
        failed.text
    };
    let refused = says("echo 'joe@vault: Permission denied (publickey).' >&2; exit 255");
    assert_eq!(refused, "sftp:vault:/b: joe@vault: Permission denied (publickey).");
    assert!(says("exit 0").contains("the connection was closed"));
    assert!(says("echo Welcome to vault; cat").contains("no sftp server"));
    // an answer of a length that makes no sense takes no memory
    assert!(says(r"printf '\377\377\377\377\002'; cat").contains("no sftp server"));
    let none = Sftp::by("p", "/x", Box::new(|| Command::new("/nonexistent/ssh")), true).err().expect("none");
    assert!(none.text.contains("install the package openssh-client"), "{none}");
}

#[test]
fn a_place_that_takes_nothing_says_so() {
    let Some(server) = server() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let sftp = open(server, place.path(), true).expect("opened");
    // a directory has the file's name
    std::fs::create_dir(place.path().join("config")).expect("made");
    std::fs::write(place.path().join("config/x"), "x").expect("written");
    let refused = sftp.put("config", b"c".to_vec()).expect_err("a directory is there");
    assert_eq!(refused.kind, ErrorKind::Place);
    assert!(refused.text.contains("sftp:test/config: the server says"), "{refused}");
    let left: Vec<_> =
        std::fs::read_dir(place.path()).expect("read").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["config"], "nothing unfinished is left");
    sftp.put("other", b"o".to_vec()).expect("the connection goes on");
}
