//! The format of a cell: kept when a newer program opens it, raised when an operator says so.

use leeward_env::Env;
use leeward_volume::admin::{Compared, FormatRaise, MirrorInfo, MirrorList, MirrorNote, MirrorSet, Request};
use leeward_volume::{Cell, Config, FORMAT, FORMAT_KEPT};
use std::path::Path;
use std::sync::Arc;

/// The first format in which it is kept what comparing a mirror has found.
const COMPARED: u32 = 19;

/// A new cell in a directory, with the format that is noted there.
fn new_cell(format: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    Cell::create(&Env::sim(1), dir.path(), &Config::default()).expect("a cell");
    note(dir.path(), format);
    dir
}

fn note(dir: &Path, format: u32) {
    let text = std::fs::read_to_string(dir.join("cell")).expect("readable");
    let (was, is) = (format!("\"format\": {},", noted(dir)), format!("\"format\": {format},"));
    std::fs::write(dir.join("cell"), text.replace(&was, &is)).expect("written");
}

/// The format that is noted in the directory.
fn noted(dir: &Path) -> u32 {
    let text = std::fs::read_to_string(dir.join("cell")).expect("readable");
    let found = text.lines().find_map(|line| line.trim().strip_prefix("\"format\": "));
    found.and_then(|number| number.trim_end_matches(',').parse().ok()).expect("a format")
}

fn open(dir: &Path) -> Arc<Cell> {
    Cell::open(&Env::sim(1), dir, &Config::default()).expect("opened")
}

fn ask<R: Request>(cell: &Cell, request: &R) -> R::Reply {
    cell.admin(request, &mut |_| ()).expect("done")
}

/// Opens the cell and closes it.
fn pass(dir: &Path) {
    open(dir).close().expect("closed");
}

#[test]
fn an_older_format_is_raised_to_the_one_that_the_release_before_writes() {
    let dir = new_cell(1);
    pass(dir.path());
    assert_eq!(noted(dir.path()), FORMAT_KEPT);
}

#[test]
fn the_format_of_the_release_before_stays_until_it_is_raised() {
    let dir = new_cell(FORMAT_KEPT);
    pass(dir.path());
    assert_eq!(noted(dir.path()), FORMAT_KEPT, "kept");

    let cell = open(dir.path());
    assert_eq!(cell.format(), FORMAT_KEPT);
    let raised = ask(&cell, &FormatRaise {});
    assert_eq!((raised.before, raised.format), (FORMAT_KEPT, FORMAT));
    assert_eq!((noted(dir.path()), cell.format()), (FORMAT, FORMAT), "at once");
    let again = ask(&cell, &FormatRaise {});
    assert_eq!((again.before, again.format), (FORMAT, FORMAT));
    cell.close().expect("closed");

    pass(dir.path());
    assert_eq!(noted(dir.path()), FORMAT);
}

#[test]
fn a_newer_format_is_refused() {
    let dir = new_cell(FORMAT + 1);
    assert!(Cell::open(&Env::sim(1), dir.path(), &Config::default()).is_err());
    assert_eq!(noted(dir.path()), FORMAT + 1);
}

/// A format that cannot be noted is not written either.
#[test]
fn a_format_that_cannot_be_noted_is_not_used() {
    let dir = new_cell(FORMAT_KEPT);
    let cell = open(dir.path());
    std::fs::create_dir(dir.path().join("cell.new")).expect("in the way");
    cell.admin(&FormatRaise {}, &mut |_| ()).expect_err("cannot be noted");
    assert_eq!((noted(dir.path()), cell.format()), (FORMAT_KEPT, FORMAT_KEPT));
    std::fs::remove_dir(dir.path().join("cell.new")).expect("away");
    assert_eq!(ask(&cell, &FormatRaise {}).format, FORMAT, "later");
    cell.close().expect("closed");
    assert_eq!(noted(dir.path()), FORMAT);
}

#[test]
fn what_an_older_format_does_not_have_is_known_and_not_written() {
    let dir = new_cell(COMPARED - 1);
    let mirror = MirrorInfo {
        volume: "root".into(),
        to: "/srv/other".into(),
        copy: "copy".into(),
        every_secs: 300,
        keep: "24h".into(),
        ..MirrorInfo::default()
    };
    let differs = Some(Compared { at_secs: 1, differs: "by a name".into() });
    let compared = |cell: &Cell| ask(cell, &MirrorList).mirrors[0].compared.clone();

    let cell = open(dir.path());
    ask(&cell, &MirrorSet { mirror: mirror.clone() });
    let found = MirrorNote {
        volume: mirror.volume.clone(),
        to: mirror.to.clone(),
        copy: mirror.copy.clone(),
        compared: differs.clone(),
    };
    ask(&cell, &found);
    assert_eq!(compared(&cell), differs, "known as long as the cell is open");
    cell.close().expect("closed");

    let cell = open(dir.path());
    assert_eq!(compared(&cell), None, "a program that knows this format only would have refused the record");
    ask(&cell, &found);
    ask(&cell, &FormatRaise {});
    cell.close().expect("closed");
    let cell = open(dir.path());
    assert_eq!(compared(&cell), differs, "written anew when the format was raised");
    cell.close().expect("closed");
}
