//! Bad input: each has an error that names the thing, the cause and the next step. No cell runs
//! here.
#![allow(clippy::disallowed_methods)]

use crate::common;
use crate::common::{Place, as_user, is_root, lee, run, say};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A user who owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn help_and_version_are_for_people() {
    let help = say(&["--help"]).good();
    for word in ["Serve:", "Examples:", "lee up /srv/cell", "--cell <DIR>", "Exit codes:"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(help.lines().all(|l| l.chars().count() <= 100), "{help}");
    assert!(say(&["--version"]).good().starts_with("lee 0."));
    assert!(say(&["volume", "create", "--help"]).good().contains("--owner <USER>"));
}

#[test]
fn wrong_usage_is_code_2() {
    say(&["bogus"]).bad(2, &["bogus", "--help"]);
    say(&["volume", "create"]).bad(2, &["<NAME>"]);
    say(&["quota", "set", "x"]).bad(2, &["--bytes"]);
    say(&["up", "/tmp/x", "--cell", "/tmp/y"]).bad(2, &["name the cell once"]);
    say(&["man", "--json"]).bad(2, &["no JSON form"]);
    run(lee(&["up", "/tmp/x"]).env("LEE_READY_FD", "999")).bad(2, &["--background"]);
    assert_eq!(run(&mut lee::<&str>(&[])).code, 2);
}

#[test]
fn sizes_are_checked() {
    for (value, why) in
        [("10X", "is no size"), ("0", "would allow nothing"), ("-1", ""), ("99999999P", "is no size")]
    {
        say(&["quota", "set", "x", &format!("--bytes={value}")]).bad(2, &[why, value]);
    }
    say(&["quota", "set", "x", "--files", "1MiB"]).bad(2, &["is no count", "1M"]);
}

#[test]
fn owners_and_names_are_checked() {
    say(&["volume", "create", "x", "--owner", "no-such-user"])
        .bad(1, &["no user named `no-such-user`", "getent"]);
    say(&["volume", "create", "x", "--owner", "4294967295"]).bad(1, &["reserved"]);
    for name in ["a/b", "..", ""] {
        say(&["volume", "create", name]).bad(1, &["cannot be the name of a volume"]);
    }
}

#[test]
fn a_cell_must_be_found() {
    let place = Place::new();
    let above = place.beside("");
    run(lee(&["df"]).current_dir(&above)).bad(1, &["no cell found", "--cell DIR", "LEE_CELL"]);
    run(lee(&["df"]).env("LEE_CELL", "").current_dir(&above)).bad(1, &["no cell found"]);
    run(lee(&["df"]).env("LEE_CELL", &place.dir)).bad(1, &[place.arg(), "no such directory", "LEE_CELL"]);
    fs::create_dir(&place.dir).expect("mkdir");
    say(&["df", "--cell", place.arg()]).bad(1, &[place.arg(), "no cell in this directory", "lee up"]);
    let file = place.beside("file");
    fs::write(&file, "").expect("write");
    say(&["status", file.to_str().expect("UTF-8")]).bad(1, &["not a directory"]);
    let told = say(&["status", file.to_str().expect("UTF-8")]);
    assert!(!told.err.contains("--cell"), "nobody named it with that: {}", told.err);
    say(&["bucket", "set", "x", "--public", "yes", "--cell", place.arg()])
        .bad(1, &["no cell in this directory"]);
    say(&["bucket", "set", "x", "--public", "so"]).bad(2, &["write yes or no"]);
    run(lee(&["fsck"]).current_dir(&above)).bad(2, &["no cell found"]);
    for command in ["down", "status", "config show", "sync", "volume list", "quota list", "snap list", "du /"]
    {
        let args: Vec<&str> = command.split(' ').collect();
        run(lee(&args).current_dir(&above)).bad(1, &["no cell found"]);
    }
}

#[test]
fn other_urls_are_refused() {
    say(&["status", "https://x/y"]).bad(1, &["s3://BUCKET/PREFIX", "AWS_ENDPOINT_URL"]);
    for url in ["s3://", "s3://a b/c", "s3://b/../c"] {
        say(&["up", url]).bad(1, &[url, "write s3://BUCKET/PREFIX"]);
    }
}

#[test]
fn up_wants_a_directory_of_its_own() {
    let place = Place::new();
    let file = place.beside("file");
    fs::write(&file, "").expect("write");
    say(&["up", file.to_str().expect("UTF-8")]).bad(1, &["is not a directory", "name another"]);
    let deep = place.beside("missing/cell");
    say(&["up", deep.to_str().expect("UTF-8")]).bad(1, &["the directory above it does not exist"]);

    fs::create_dir(&place.dir).expect("mkdir");
    fs::write(place.dir.join("thesis.tex"), "x").expect("write");
    let before = fs::read_dir(&place.dir).expect("readdir").count();
    for background in [&[][..], &["--background"]] {
        let args = [&["up", place.arg()], background].concat();
        say(&args).bad(1, &[place.arg(), "not empty", "thesis.tex", "new directory"]);
    }
    assert_eq!(fs::read_dir(&place.dir).expect("readdir").count(), before, "nothing is left there");
}

#[test]
fn up_needs_the_right_to_write() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.beside(""), fs::Permissions::from_mode(0o755)).expect("chmod");
    // The binary may be in a directory that nobody can enter.
    let copy = place.beside("lee");
    // By another process: a test that starts a command meanwhile would hold our descriptor open for
    // writing (ETXTBSY).
    let copied = std::process::Command::new("cp").arg(common::LEE).arg(&copy).status().expect("cp");
    assert!(copied.success(), "cp");
    let up = |dir: &str| {
        let mut command = std::process::Command::new(&copy);
        run(as_user(command.args(["up", dir]), NOBODY))
    };
    up(place.arg()).bad(1, &["no permission to make it"]);
    fs::create_dir(&place.dir).expect("mkdir");
    up(place.arg()).bad(1, &["no permission to write in it", "chown"]);
    fs::set_permissions(&place.dir, fs::Permissions::from_mode(0o700)).expect("chmod");
    up(place.arg()).bad(1, &["permission denied", "name a directory"]);
    let mut df = std::process::Command::new(&copy);
    run(as_user(df.args(["df", "--cell", place.arg()]), NOBODY)).bad(1, &["permission denied", "may enter"]);
}

#[test]
fn a_broken_config_file_is_explained() {
    let place = Place::new();
    fs::create_dir(&place.dir).expect("mkdir");
    let file = place.dir.join("leeward.toml");
    for (content, words) in [
        ("# mine\ndirty-mb = 10\n", &["line 2", "unknown key `dirty-mb`", "dirty-mib"][..]),
        ("cache-mib = \"big\"", &["line 1", "cache-mib", "1 to 65536"]),
        ("\n\ndirty-mib = 1", &["line 3", "dirty-mib = 1 is out of range: 16 to 65536"]),
        ("compression = \"zip\"", &["line 1", "compression", "lz4", "none"]),
        ("dirty-mib 10", &["line 1"]),
    ] {
        fs::write(&file, content).expect("write");
        let said = say(&["up", place.arg()]);
        assert!(said.err.contains("leeward.toml"), "{said:?}");
        said.bad(1, words);
    }
    fs::write(&file, b"\xff\xfe").expect("write");
    say(&["up", place.arg()]).bad(1, &["leeward.toml", "not UTF-8"]);
    fs::remove_file(&file).expect("rm");
    fs::create_dir(&file).expect("mkdir");
    say(&["up", place.arg()]).bad(1, &["leeward.toml", "not a file"]);
}

#[test]
fn completions_and_manual_come_from_the_same_descriptions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(say(&["completions", shell]).good().contains("volume"), "{shell}");
    }
    say(&["completions", "tcsh"]).bad(2, &["tcsh", "bash"]);
    assert!(say(&["man"]).good().starts_with(".ie"));
    let place = Place::new();
    fs::create_dir(&place.dir).expect("mkdir");
    say(&["man", place.arg()]).good();
    for page in ["lee.1", "lee-up.1", "lee-volume-create.1"] {
        assert!(place.dir.join(page).is_file(), "{page}");
    }
    say(&["man", place.beside("missing").to_str().expect("UTF-8")]).bad(1, &["cannot write the manual"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let shell = format!("{} completions bash | head -1", common::LEE);
    let said = run(std::process::Command::new("sh").args(["-c", &shell]));
    assert!(!said.err.contains("panicked") && said.err.is_empty(), "{said:?}");
    let said =
        run(std::process::Command::new("sh").args(["-c", &format!("{} man > /dev/full", common::LEE)]));
    said.bad(1, &["cannot write to standard output", "no space left"]);
}
