//! Brings a file or a tree back from a snapshot.
//!
//! Operators, and who looks after a project, have the cell do it, as `lee snap restore`. Other
//! users copy, as they could with `cp`: what they may read in the snapshot, to where they may
//! write. Nothing is replaced: what is in the way stays, and what is restored gets another name.

use super::files::{below, door_path, text_path};
use super::snapshots::InSnapshot;
use crate::console::form::path_text;
use crate::console::visit::{Made, Visit, about};
use crate::console::{Problem, copying};
use crate::size;
use hyper::StatusCode;
use leeward_fs::Error;
use leeward_volume::admin::{Failure, SnapRestore};

/// Names that are tried for what is restored beside what is there.
const NAMES_MAX: u32 = 100;

/// What is restored, from where and to where.
struct Wanted<'a> {
    inside: &'a InSnapshot,
    /// Its path in the snapshot.
    what: &'a [u8],
    source: &'a [u8],
    target: &'a [u8],
}

/// Restores.
pub fn restore(visit: &Visit<'_>) -> Made {
    let (top, what) = (visit.form().path("in"), visit.form().path("what"));
    let no_snapshot = || Problem::of(StatusCode::BAD_REQUEST, "that is in no snapshot");
    let inside = InSnapshot::of(&top, &top).ok_or_else(no_snapshot)?;
    if what.is_empty() {
        return Err(Problem::of(StatusCode::BAD_REQUEST, "name what is to be restored"));
    }
    let shown = visit.wait(visit.tree()?.stat(&door_path(&top)?, &[])).map_err(|e| about(&top, &e))?;
    if !shown.attr.node.is_view() {
        return Err(no_snapshot());
    }
    let source = below(&top, &what);
    let target = free_name(visit, &inside, &source)?;
    let done =
        by_cell_or_copy(visit, &Wanted { inside: &inside, what: &what, source: &source, target: &target });
    let above = source.iter().rposition(|b| *b == b'/').map_or(&source[..], |at| &source[..at]);
    visit.after(done, "/files", &[("path", &path_text(above)), ("in", &path_text(&top))])
}

fn by_cell_or_copy(visit: &Visit<'_>, wanted: &Wanted<'_>) -> Result<String, Failure> {
    let shown = String::from_utf8_lossy(wanted.target);
    let by_cell = by_cell(visit, wanted);
    // of another user: what may be read may be copied; an operator's copy would be the operator's
    let may_copy =
        !visit.is_operator() && by_cell.as_ref().map_or_else(|e| e.errno == libc::EPERM, |_| false);
    match by_cell {
        Err(_) if may_copy => copy(visit, wanted),
        Err(failure) => Err(failure),
        Ok(usage) => {
            let files = size::counted(usage.files, "file", "files");
            Ok(format!("Restored {shown}: {files}, {}.", size::bytes(usage.bytes)))
        }
    }
}

/// Has the cell do it. Of names that it cannot be told the failure is `EPERM`.
fn by_cell(visit: &Visit<'_>, wanted: &Wanted<'_>) -> Result<leeward_fs::Usage, Failure> {
    let text = |path: &[u8]| {
        let text = text_path(path);
        text.map_err(|why| Failure { message: why.text().to_owned(), errno: libc::EPERM })
    };
    let was = below(wanted.inside.dir(), wanted.what);
    let to = if was == wanted.target { None } else { Some(text(wanted.target)?) };
    let (path, name) = (text(wanted.inside.dir())?, text(wanted.inside.name())?);
    let request = SnapRestore { path, name, what: text(wanted.what)?, to, in_place: false };
    visit.ask(&request).map(|restored| restored.0)
}

/// Where it was, or a name beside what is there now.
fn free_name(visit: &Visit<'_>, inside: &InSnapshot, source: &[u8]) -> Result<Vec<u8>, Problem> {
    let was = inside.live(source);
    let tree = visit.tree()?;
    for number in 0..NAMES_MAX {
        let suffix = match number {
            0 => Vec::new(),
            1 => [b".restored-", inside.name()].concat(),
            _ => [b".restored-", inside.name(), format!("-{number}").as_bytes()].concat(),
        };
        let name = [&was[..], &suffix[..]].concat();
        match visit.wait(tree.spot(&door_path(&name)?, false)) {
            Ok(spot) if spot.attr.is_none() => return Ok(name),
            Ok(_) => (),
            Err(Error::NotFound | Error::NotDir) => {
                let above = String::from_utf8_lossy(&was).into_owned();
                let above = above.rsplit_once('/').map_or("/", |(above, _)| above);
                let text = format!("the directory {above} is not there any more: restore that first");
                return Err(Problem::of(StatusCode::NOT_FOUND, text));
            }
            Err(e) => return Err(about(&was, &e)),
        }
    }
    let text =
        format!("{}: too many of it were restored already: remove some", String::from_utf8_lossy(&was));
    Err(Problem::of(StatusCode::CONFLICT, text))
}

/// Copies a file or a tree; says how that went.
fn copy(visit: &Visit<'_>, wanted: &Wanted<'_>) -> Result<String, Failure> {
    let bad = |why: Problem| Failure { message: why.text().to_owned(), errno: libc::EINVAL };
    let _alone = visit.copying_place()?;
    let shown = String::from_utf8_lossy(wanted.target);
    let (from, to) = (door_path(wanted.source).map_err(bad)?, door_path(wanted.target).map_err(bad)?);
    let tree = visit.tree().map_err(bad)?;
    let copied = visit.wait(copying::copy(&tree, &from, &to));
    let copied = copied.map_err(|e| Failure { message: format!("{shown}: {e}"), errno: e.errno() })?;
    let all = size::counted(copied.done, "file or directory", "files and directories");
    match copied.first_failure {
        None => Ok(format!("Restored {shown}: {all} copied.")),
        Some((name, e)) => {
            let left = size::counted(copied.failed, "is missing", "are missing");
            let message = format!(
                "{shown} is not whole: {all} were copied, {left}; the first is {name}: {e}. Copy the rest with \
                 cp -a in the mount, or remove it and try again."
            );
            Err(Failure { message, errno: e.errno() })
        }
    }
}
