//! Files: a directory, also as a snapshot has it, and the content of a file.
//!
//! In a snapshot the address also has `in`, the directory that shows it, so that what is looked at
//! can be restored.

use super::snapshots::InSnapshot;
use crate::console::form::{link, path_text};
use crate::console::html::{Side, button, table, text};
use crate::console::sessions::Session;
use crate::console::visit::{Made, Visit, about, page};
use crate::console::{Problem, Reply};
use crate::{names, size, when};
use leeward_door::Path;
use leeward_fs::{Entry, Kind};
use maud::{Markup, html};

/// Entries of a part of the list.
const ROWS: usize = 200;

/// The path that doors read, of one in the cell.
///
/// # Errors
/// It is none.
pub fn door_path(path: &[u8]) -> Result<Path, Problem> {
    let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|b| *b != b'/').map_or(start, |at| at + 1);
    let names = &path[start..end.max(start)];
    Path::parse(names).map_err(|why| {
        let text = format!("{}: {why}", String::from_utf8_lossy(path));
        Problem::of(hyper::StatusCode::BAD_REQUEST, text)
    })
}

/// A path in the cell as text, for those who ask for one.
///
/// # Errors
/// It is none.
pub fn text_path(path: &[u8]) -> Result<String, Problem> {
    let text = String::from_utf8(path.to_vec());
    text.map_err(|e| {
        let text =
            format!("{}: a name that is no UTF-8: use the mount", String::from_utf8_lossy(e.as_bytes()));
        Problem::of(hyper::StatusCode::BAD_REQUEST, text)
    })
}

/// A directory.
pub fn list(visit: &Visit<'_>) -> Made {
    let session = visit.session()?;
    let at = normal(&visit.form().path("path"));
    let after = visit.form().path("after");
    let inside = InSnapshot::of(&at, &visit.form().path("in"));
    let listed = visit.wait(visit.tree()?.list(&door_path(&at)?, &after, ROWS));
    let (entries, is_end) = listed.map_err(|e| about(&at, &e))?;
    let columns = [
        ("Name", Side::Left),
        ("Bytes", Side::Right),
        ("Changed", Side::Left),
        ("Owner", Side::Left),
        ("Mode", Side::Left),
        ("Action", Side::Left),
    ];
    let rows: Vec<Vec<Markup>> =
        entries.iter().map(|entry| row(session, (&at, inside.as_ref()), entry)).collect();
    let last = entries.last().filter(|_| !is_end).map(|entry| path_text(&entry.name));
    let body = html! {
        (way(&at, inside.as_ref()))
        @match &inside {
            Some(inside) => p .told role="status" {
                "As snapshot " strong { (String::from_utf8_lossy(inside.name())) } " has it. "
                a href=(link("/files", &[("path", &path_text(&inside.live(&at)))])) { "To the files of now" }
            },
            None => p { a href=(link("/snapshots", &[("path", &path_text(&at))])) { "Snapshots of this directory" } },
        }
        (table(&format!("{} in {}", size::counted(entries.len() as u64, "name", "names"), shown(&at)), &columns, &rows,
            "The directory is empty."))
        @if let Some(last) = last {
            nav .turning aria-label="Parts of the list" {
                a rel="next" href=(link("/files", &fields(&path_text(&at), &inside_text(inside.as_ref()), Some(&last)))) { "Next" }
            }
        }
    };
    page(format!("Files: {}", shown(&at)), "/files", body)
}

fn fields<'a>(path: &'a str, inside: &'a str, after: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let mut all = vec![("path", path)];
    all.extend(Some(("in", inside)).filter(|_| !inside.is_empty()));
    all.extend(after.map(|after| ("after", after)));
    all
}

fn inside_text(inside: Option<&InSnapshot>) -> String {
    inside.map_or_else(String::new, |inside| path_text(inside.top()))
}

/// `/a/b`, without a slash at its end.
fn normal(path: &[u8]) -> Vec<u8> {
    let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
    let joined: Vec<u8> = names.flat_map(|name| [&b"/"[..], name].concat()).collect();
    if joined.is_empty() { b"/".to_vec() } else { joined }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// A name in a directory.
pub fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir.strip_suffix(b"/").unwrap_or(dir), b"/", name].concat()
}

/// The directories above, as links.
fn way(at: &[u8], inside: Option<&InSnapshot>) -> Markup {
    let inside_path = inside_text(inside);
    let mut steps: Vec<(String, Vec<u8>)> = vec![("/".into(), b"/".to_vec())];
    for name in at.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        let path = below(&steps[steps.len() - 1].1, name);
        steps.push((shown(name), path));
    }
    // above the snapshot there is none
    let fields_of = |path: &[u8]| match inside {
        Some(inside) if path.starts_with(inside.top()) => {
            link("/files", &fields(&path_text(path), &inside_path, None))
        }
        _ => link("/files", &[("path", &path_text(path))]),
    };
    html! {
        nav aria-label="Directories above" {
            ol .way { @for (name, path) in &steps { li { a href=(fields_of(path)) { (name) } } } }
        }
    }
}

fn row(session: &Session, (dir, inside): (&[u8], Option<&InSnapshot>), entry: &Entry) -> Vec<Markup> {
    let path = below(dir, &entry.name);
    let (name, path_field, inside_field) = (shown(&entry.name), path_text(&path), inside_text(inside));
    let to = match entry.kind {
        Kind::Dir => {
            html! { a href=(link("/files", &fields(&path_field, &inside_field, None))) { (name) "/" } }
        }
        Kind::File => html! { a download href=(link("/file", &[("path", &path_field)])) { (name) } },
        _ => text(&name),
    };
    let attr = entry.attr;
    let restore = match inside {
        Some(inside) => {
            let what = path_text(inside.below_top(&path));
            button(session, "/restore", &[("in", &inside_field), ("what", &what)], "Restore", &name)
        }
        None => html! {},
    };
    vec![
        to,
        text(
            attr.filter(|_| entry.kind == Kind::File)
                .map_or_else(|| "-".into(), |attr| size::bytes(attr.size)),
        ),
        text(attr.map_or_else(|| "-".into(), |attr| when::utc(attr.mtime.secs))),
        text(attr.map_or_else(|| "-".into(), |attr| names::user_name(attr.uid))),
        text(attr.map_or_else(|| "-".into(), |attr| format!("{:04o}", attr.mode))),
        restore,
    ]
}

/// The content of a file.
pub fn content(visit: &Visit<'_>) -> Made {
    Ok(Reply::File(visit.form().path("path")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_people_write_them() {
        for (text, path) in [("", "/"), ("/", "/"), ("//a//b/", "/a/b"), ("a", "/a")] {
            assert_eq!(normal(text.as_bytes()), path.as_bytes());
            assert!(door_path(text.trim_matches('/').as_bytes()).is_ok() || text.contains("//"));
        }
        assert_eq!(below(b"/", b"a"), b"/a");
        assert_eq!(below(b"/a", b"b"), b"/a/b");
        assert!(door_path(b"/").is_ok() && door_path(b"/a/../b").is_err() && door_path(b"/a/b/").is_ok());
    }
}
