//! Snapshots of a directory: to look into, take and remove.

use super::files::{below, text_path};
use crate::console::Problem;
use crate::console::form::{link, path_text};
use crate::console::html::{Side, button, table, text, token, turning};
use crate::console::visit::{Made, Visit, page};
use crate::{names, size, when};
use leeward_volume::admin::{SnapCreate, SnapInfo, SnapList, SnapRemove};
use maud::{Markup, html};

/// Rows of a part of the list.
const ROWS: usize = 100;

/// A path within a snapshot: `DIR/.snap/NAME/...`.
pub struct InSnapshot {
    /// The directory that shows the snapshot: `DIR/.snap/NAME`.
    top: Vec<u8>,
}

impl InSnapshot {
    /// A path that is in the snapshot that `top` shows. `None`: it is not.
    pub fn of(path: &[u8], top: &[u8]) -> Option<InSnapshot> {
        let has_three = top.split(|b| *b == b'/').filter(|name| !name.is_empty()).count() >= 2;
        let rest = path.strip_prefix(top)?;
        let is_below = has_three && (rest.is_empty() || rest.starts_with(b"/"));
        is_below.then(|| InSnapshot { top: top.to_vec() })
    }

    /// The directory that shows it.
    pub fn top(&self) -> &[u8] {
        &self.top
    }

    /// Its name there.
    pub fn name(&self) -> &[u8] {
        self.top.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }

    /// The directory of which it is.
    pub fn dir(&self) -> &[u8] {
        let mut cuts = self.top.iter().enumerate().rev().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let cut = cuts.nth(1).unwrap_or(0);
        if cut == 0 { b"/" } else { &self.top[..cut] }
    }

    /// A path in it, from its top.
    pub fn below_top<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let rest = path.strip_prefix(self.top.as_slice()).unwrap_or_default();
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// What has the path now.
    pub fn live(&self, path: &[u8]) -> Vec<u8> {
        match self.below_top(path) {
            b"" => self.dir().to_vec(),
            rest => below(self.dir(), rest),
        }
    }
}

/// The page of a directory.
pub fn list(visit: &Visit<'_>) -> Made {
    let path = visit.form().path("path");
    let dir = text_path(&path)?;
    let dir = if dir.is_empty() { "/".to_owned() } else { dir };
    let body = html! {
        p { a href=(link("/files", &[("path", &path_text(dir.as_bytes()))])) { "The files of now" } }
        (of(visit, &dir, visit.form().number("page").unwrap_or(0))?)
    };
    page(format!("Snapshots of {dir}"), "/files", body)
}

/// The snapshots that show a directory, and a form that takes one.
pub fn of(visit: &Visit<'_>, dir: &str, part: usize) -> Result<Markup, Problem> {
    let session = visit.session()?;
    let mut snapshots = visit.ask(&SnapList { path: Some(dir.to_owned()), volume: None })?.snapshots;
    snapshots.sort_by_key(|snap| std::cmp::Reverse(snap.time_secs));
    let parts = snapshots.len().div_ceil(ROWS);
    let part = part.min(parts.saturating_sub(1));
    let columns = [
        ("Snapshot", Side::Left),
        ("Of", Side::Left),
        ("Taken", Side::Left),
        ("By", Side::Left),
        ("Alone holds", Side::Right),
        ("Locked until", Side::Left),
        ("Action", Side::Left),
    ];
    let row = |snap: &SnapInfo| {
        let top = below(&below(snap.path.as_bytes(), snap.snapshot_dir.as_bytes()), snap.name.as_bytes());
        let rest = dir.strip_prefix(snap.path.trim_end_matches('/')).unwrap_or_default();
        let shown = [&top[..], rest.trim_end_matches('/').as_bytes()].concat();
        let fields = [("path", path_text(&shown)), ("in", path_text(&top))];
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let removed = [("path", snap.path.as_str()), ("name", &snap.name), ("back", dir)];
        vec![
            html! { a href=(link("/files", &fields)) { (snap.name) } },
            text(&snap.path),
            text(when::utc(snap.time_secs)),
            text(names::user_name(snap.uid)),
            text(size::bytes(snap.alone_bytes)),
            text(if snap.locked_until_secs > 0 { when::utc(snap.locked_until_secs) } else { "-".into() }),
            button(session, "/snapshots/remove", &removed, "Remove", &format!("snapshot {}", snap.name)),
        ]
    };
    let rows: Vec<Vec<Markup>> = snapshots.iter().skip(part * ROWS).take(ROWS).map(row).collect();
    Ok(html! {
        (table(&size::counted(snapshots.len() as u64, "snapshot", "snapshots"), &columns, &rows, "No snapshot shows it."))
        (turning("/snapshots", &[("path", &path_text(dir.as_bytes()))], part, parts))
        form .search method="post" action="/console/snapshots/create" {
            (token(session))
            input type="hidden" name="path" value=(dir);
            label { "Name " input name="name" required maxlength="200"; }
            button { "Take a snapshot" }
        }
    })
}

/// Takes one.
pub fn create(visit: &Visit<'_>) -> Made {
    let (path, name) = (visit.form().get("path").to_owned(), visit.form().get("name").to_owned());
    let done = visit.ask(&SnapCreate { path: path.clone(), name });
    let done = done.map(|snap| format!("Took snapshot {} of {path}.", snap.name));
    visit.after(done, "/snapshots", &[("path", &path_text(path.as_bytes()))])
}

/// Removes one.
pub fn remove(visit: &Visit<'_>) -> Made {
    let form = visit.form();
    let (path, name) = (form.get("path").to_owned(), form.get("name").to_owned());
    let back = path_text(form.get("back").as_bytes());
    let done = visit.ask(&SnapRemove { path: path.clone(), name: name.clone() });
    visit.after(done.map(|_| format!("Removed snapshot {name} of {path}.")), "/snapshots", &[("path", &back)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_snapshot_tells_where_it_was() {
        let inside = InSnapshot::of(b"/home/.snap/daily/a/b", b"/home/.snap/daily").expect("in it");
        assert_eq!((inside.name(), inside.dir()), (&b"daily"[..], &b"/home"[..]));
        assert_eq!(inside.below_top(b"/home/.snap/daily/a/b"), b"a/b");
        assert_eq!(inside.live(b"/home/.snap/daily/a/b"), b"/home/a/b");
        assert_eq!(inside.live(b"/home/.snap/daily"), b"/home");
        let of_root = InSnapshot::of(b"/.snap/daily/a", b"/.snap/daily").expect("in it");
        assert_eq!((of_root.dir(), &of_root.live(b"/.snap/daily/a")[..]), (&b"/"[..], &b"/a"[..]));
        assert!(InSnapshot::of(b"/home/x", b"/home/.snap/daily").is_none());
        assert!(InSnapshot::of(b"/home/.snap/daily2", b"/home/.snap/daily").is_none());
        assert!(InSnapshot::of(b"/home", b"").is_none() && InSnapshot::of(b"/home", b"/home").is_none());
    }
}
