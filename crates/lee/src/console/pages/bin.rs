//! The recycle bin.

use crate::console::html::{Side, button, table, text, turning};
use crate::console::visit::{Made, Visit, page};
use crate::{names, size, when};
use leeward_volume::admin::{BinEntry, BinList, BinRestore};
use maud::{Markup, html};

/// Rows of a part of the list.
const ROWS: usize = 100;
/// What is asked for: of bins with more, what was removed last.
const NEWEST: usize = 1_000;

/// The list.
pub fn list(visit: &Visit<'_>) -> Made {
    let session = visit.session()?;
    let wanted = visit.form().get("q");
    let path = Some(wanted).filter(|wanted| wanted.starts_with('/')).map(str::to_owned);
    let bin = visit.ask(&BinList { path: path.clone(), newest: Some(NEWEST) })?;
    let listed = bin.entries.len() as u64;
    let mut entries = bin.entries;
    if path.is_none() {
        entries.retain(|entry| entry.path.to_lowercase().contains(&wanted.to_lowercase()));
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.removed_secs));
    let parts = entries.len().div_ceil(ROWS);
    let at = visit.form().number::<usize>("page").unwrap_or(0).min(parts.saturating_sub(1));
    let columns = [
        ("What", Side::Left),
        ("Volume", Side::Left),
        ("Bytes", Side::Right),
        ("Removed", Side::Left),
        ("By", Side::Left),
        ("Owner", Side::Left),
        ("Action", Side::Left),
    ];
    let row = |entry: &BinEntry| {
        let slash = if entry.is_dir { "/" } else { "" };
        let secs = entry.removed_secs.to_string();
        vec![
            text(format!("{}{slash}", entry.path)),
            text(&entry.volume),
            text(if entry.is_dir { "-".into() } else { size::bytes(entry.bytes) }),
            text(when::utc(entry.removed_secs)),
            text(names::user_name(entry.removed_by)),
            text(names::user_name(entry.uid)),
            button(session, "/bin/restore", &[("path", &entry.path), ("at", &secs)], "Restore", &entry.path),
        ]
    };
    let rows: Vec<Vec<Markup>> = entries.iter().skip(at * ROWS).take(ROWS).map(row).collect();
    let body = html! {
        form .search role="search" action="/console/bin" {
            label { "Path, or a part of one " input name="q" type="search" value=(wanted); }
            button { "Search" }
        }
        @if bin.all > listed {
            p .none { "Of " (size::count(bin.all)) " things the " (listed) " that were removed last: search for the path of a directory to see others." }
        }
        (table(&size::counted(entries.len() as u64, "thing", "things"), &columns, &rows,
            "Nothing is in the bin. Volumes keep what is removed where `lee volume set NAME bin-days=N` says so."))
        (turning("/bin", &[("q", wanted)], at, parts))
    };
    page("Recycle bin", "/bin", body)
}

/// Restores something.
pub fn restore(visit: &Visit<'_>) -> Made {
    let path = visit.form().get("path").to_owned();
    let request = BinRestore { path: path.clone(), at_secs: visit.form().number("at"), to: None };
    let done = visit.ask(&request).map(|done| {
        let files = size::counted(done.restored.files, "file", "files");
        let dirs = size::counted(done.restored.dirs, "directory", "directories");
        let left = match done.left {
            0 => String::new(),
            left => format!("; {} stay in the bin, because their names are taken", size::count(left)),
        };
        format!("Restored {path}: {files} and {dirs}{left}.")
    });
    visit.after(done, "/bin", &[])
}
