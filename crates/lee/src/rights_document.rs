//! `docs/RIGHTS.md`, whose parts are the outcomes of tests that try who may ask what.

use parking_lot::Mutex;
use std::path::PathBuf;

/// Set to anything, makes the tests write their parts instead of comparing them.
pub const WRITE: &str = "LEE_WRITE_DOCS";

/// Parts are written by tests that run at the same time.
static WRITTEN: Mutex<()> = Mutex::new(());

/// Compares a part of the document, from its heading up to the next part, with what was tried.
pub fn compare(part: &str) {
    let _one = WRITTEN.lock();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/RIGHTS.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let head = part.split_inclusive('\n').next().expect("a heading");
    let begin = written.find(head).unwrap_or(written.len());
    let (before, from) = written.split_at(begin);
    let (old, after) = from.find("\n## ").map_or((from, ""), |end| from.split_at(end));
    if std::env::var_os(WRITE).is_some() {
        let all = [before.trim_end(), part.trim_end(), after.trim()];
        let all: Vec<&str> = all.into_iter().filter(|part| !part.is_empty()).collect();
        std::fs::write(&path, all.join("\n\n") + "\n").expect("docs/RIGHTS.md");
        return;
    }
    let (old, new) = (old.trim_end().lines(), part.trim_end().lines());
    let is_other = |(old, new): &(Option<&str>, Option<&str>)| old != new;
    let ends = std::iter::repeat(None);
    let lines = old.map(Some).chain(ends.clone()).zip(new.map(Some).chain(ends));
    let other = lines.take_while(|(old, new)| old.is_some() || new.is_some()).find(is_other);
    assert_eq!(other, None, "the document, and what was tried; {WRITE}=1 writes it");
}
