//! Trees for the tests, and programs that know nothing of this crate to look at them.
#![allow(dead_code, clippy::disallowed_methods)]

use leeward_env::Env;
use leeward_transfer::export::{self, Summary};
use leeward_transfer::import::{self, Control, Options, Outcome};
use leeward_transfer::output::Output;
use leeward_transfer::sys::Dir;
use leeward_transfer::{Counters, Error};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is gone with its test, with a tree `source` in it and places beside it.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::Builder::new().prefix("lee-transfer-").tempdir().expect("a directory"))
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new empty directory.
    pub fn dir(&self, name: &str) -> PathBuf {
        std::fs::create_dir(self.at(name)).expect("a new directory");
        self.at(name)
    }

    /// A tree with everything. Its paths are longer than a system call takes if `levels` are more
    /// than 38; no program that unpacks archives bears that.
    pub fn tree(&self, levels: u32) -> PathBuf {
        run(python("make_tree.py").arg(self.at("source")).arg(levels.to_string()));
        self.at("source")
    }
}

/// Whether this is root, who may make all that a tree can have; says so when not.
pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc_geteuid() } == 0;
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

unsafe extern "C" {
    #[link_name = "geteuid"]
    fn libc_geteuid() -> u32;
}

pub fn python(script: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script));
    command
}

/// Runs a command; gives its output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {} {err}", &out[..out.len().min(2000)]);
    out.into_owned()
}

/// All that can be seen of a tree, without what is left out.
#[track_caller]
pub fn walk(dir: &Path, left_out: &[&str]) -> String {
    run(python("walk_tree.py").arg(dir).args(left_out))
}

/// Asserts that two trees look the same.
#[track_caller]
pub fn assert_same(one: &Path, two: &Path, left_out: &[&str]) {
    let (one, two) = (walk(one, left_out), walk(two, left_out));
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (one.lines().collect(), two.lines().collect());
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a, b);
    }
    assert_eq!(ours.len(), theirs.len());
    assert!(!ours.is_empty());
}

pub fn options() -> Options {
    Options {
        delete: false,
        dry_run: false,
        cross_file_systems: false,
        compare: false,
        exclude: Vec::new(),
        threads: 4,
    }
}

/// One pass that may fail.
pub fn try_import(source: &Path, target: &Path, options: Options) -> Result<Outcome, Error> {
    import_until(source, target, options, &|| false)
}

/// One pass until a stop.
pub fn import_until(
    source: &Path,
    target: &Path,
    options: Options,
    stopped: &dyn Fn() -> bool,
) -> Result<Outcome, Error> {
    let control = Control { stopped, sync: &import::sync_by_system, progress: &|_| {} };
    let (from, to) = (Dir::open(source).expect("the source"), Dir::open(target).expect("the target"));
    import::run(&Env::real(), (from, &source.display().to_string()), to, options, &control)
}

/// One pass that brings everything.
#[track_caller]
pub fn import(source: &Path, target: &Path, options: Options) -> import::Summary {
    let Outcome { summary, error } = try_import(source, target, options).expect("it begins");
    assert_eq!((error, summary.failed, &summary.troubles[..]), (None, 0, &[][..]));
    assert_eq!(summary.unsettled, 0, "{summary:?}");
    summary
}

/// An export to `archive.tar` and `manifest` in `to`.
pub fn export(root: &Path, to: &Path, keep_going: bool, inside: Option<&str>) -> Result<Summary, Error> {
    let archive = File::create(to.join("archive.tar")).expect("a file");
    let create = File::options().read(true).write(true).create(true).truncate(true).clone();
    let mut manifest = create.open(to.join("manifest")).expect("a file");
    let (env, counters) = (Env::real(), Counters::default());
    let output = Output::start(&env, Box::new(archive), "archive".into(), &|| false);
    let options = export::Options {
        keep_going,
        manifest_inside: inside,
        user: &|uid| (uid == 0).then(|| "root".into()),
        group: &|_| None,
        counters: &counters,
    };
    export::run(&Dir::open(root).expect("the root"), output, &mut manifest, &options)
}
