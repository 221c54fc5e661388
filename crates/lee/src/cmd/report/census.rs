//! `lee report census`: what files there are in a tree.

use super::Form;
use crate::cmd::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table, printable};
use crate::progress::Bar;
use crate::summary::paper::comma_separated;
use crate::{mounts, names, size};
use leeward_lab::page::Page;
use leeward_volume::admin::{Counted, CountedUpTo, FileCensus, FilesCounted};
use std::path::PathBuf;

/// Rows of endings and owners for a person.
const TOP: usize = 20;

/// What files there are in a tree: by size, by age, by the ending of their names, by owner
///
/// Of a whole volume the records of its files are read in their order, a million a second or so; of
/// a part of it the directories are walked. Either is background work, and nobody waits for it.
/// Volumes below are left out, and so are snapshots and the recycle bin.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory: its path in the cell or below the mount
    #[arg(default_value = ".")]
    path: PathBuf,
    #[command(flatten)]
    form: Form,
}

/// A table: its name for programs, its title, the head of its first column, and the rows.
struct Part {
    part: &'static str,
    title: &'static str,
    head: &'static str,
    rows: Vec<(String, Counted)>,
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    args.form.begin(invocation);
    let bar = Bar::new(invocation.format);
    let counted = invocation.session("report census", |cell, session| {
        let path = mounts::path_in_cell(cell.path(), &args.path)?;
        let counted = session.ask_with_progress(&FileCensus { path: path.clone() }, &mut |p| bar.show(&p))?;
        Ok((path, counted))
    });
    bar.clear();
    let (path, counted) = counted?;
    let parts = parts(&counted);
    match args.form {
        Form { csv: true, .. } => output::print(&csv(&parts)),
        Form { html: true, .. } => output::print(&html(&path, &counted, &parts)),
        _ => output::reply(invocation.format, &counted, || text(&path, &counted, &parts)),
    }
}

fn parts(counted: &FilesCounted) -> Vec<Part> {
    let up_to = |all: &[CountedUpTo], name: fn(Option<u64>) -> String| {
        all.iter().map(|of| (name(of.up_to), of.counted)).collect()
    };
    let ending = |ending: &Option<String>| match ending.as_deref() {
        None => "(others)".into(),
        Some("") => "(none)".into(),
        Some(ending) => format!(".{ending}"),
    };
    let endings = counted.by_ending.iter().map(|of| (ending(&of.ending), of.counted));
    let owners = counted.by_owner.iter().map(|of| (names::user_name(of.uid), of.counted));
    vec![
        Part { part: "size", title: "By size", head: "SIZE", rows: up_to(&counted.by_size, size_text) },
        Part {
            part: "age",
            title: "By age of the content",
            head: "AGE",
            rows: up_to(&counted.by_age, age_text),
        },
        Part { part: "ending", title: "By ending", head: "ENDING", rows: endings.collect() },
        Part { part: "owner", title: "By owner", head: "OWNER", rows: owners.collect() },
    ]
}

fn size_text(up_to: Option<u64>) -> String {
    match up_to {
        Some(0) => "empty".into(),
        Some(bytes) => format!("up to {}", size::bytes(bytes)),
        None => "larger".into(),
    }
}

fn age_text(days: Option<u64>) -> String {
    match days {
        Some(1) => "less than a day".into(),
        Some(365) => "less than a year".into(),
        Some(days) if days % 365 == 0 => format!("less than {} years", days / 365),
        Some(days) => format!("less than {days} days"),
        None => "older".into(),
    }
}

fn summary(counted: &FilesCounted) -> String {
    let mut said = format!(
        "{} with {} ({} allocated), {}, {}",
        size::counted(counted.files.files, "file", "files"),
        size::bytes(counted.files.bytes),
        size::bytes(counted.files.allocated),
        size::counted(counted.dirs, "directory", "directories"),
        size::counted(counted.symlinks, "symbolic link", "symbolic links"),
    );
    let others = [
        (counted.special, "pipe, socket or device", "pipes, sockets and devices"),
        (counted.linked, "of the files has several names", "of the files have several names"),
        (counted.volumes, "volume below is left out", "volumes below are left out"),
    ];
    for (count, one, many) in others.into_iter().filter(|(count, ..)| *count > 0) {
        said += &format!(", {}", size::counted(count, one, many));
    }
    said
}

/// The rows that a person wants to see: those that have files, of long lists the first.
fn shown(part: &Part) -> Vec<(String, Counted)> {
    part.rows.iter().filter(|(_, counted)| counted.files > 0).take(TOP).cloned().collect()
}

fn cells((name, counted): &(String, Counted)) -> [String; 4] {
    [name.clone(), size::count(counted.files), size::bytes(counted.bytes), size::bytes(counted.allocated)]
}

fn text(path: &str, counted: &FilesCounted, parts: &[Part]) -> String {
    let mut text = format!("{}: {}\n", printable(path), summary(counted));
    for part in parts.iter().filter(|_| counted.files.files > 0) {
        let columns = [
            (part.head, Side::Left),
            ("FILES", Side::Right),
            ("BYTES", Side::Right),
            ("ALLOCATED", Side::Right),
        ];
        text += &format!("\n{}", Table::new(&columns).rows(&shown(part), cells));
        if part.rows.len() > TOP {
            text += &format!("and {} more: --json or --csv\n", part.rows.len() - TOP);
        }
    }
    text
}

fn csv(parts: &[Part]) -> String {
    let mut text = "part,name,files,bytes,allocated_bytes\n".to_string();
    for part in parts {
        for (name, Counted { files, bytes, allocated }) in &part.rows {
            let cells =
                [part.part.into(), name.clone(), files.to_string(), bytes.to_string(), allocated.to_string()];
            text += &(comma_separated(&cells) + "\n");
        }
    }
    text
}

fn html(path: &str, counted: &FilesCounted, parts: &[Part]) -> String {
    let mut page = Page::new(&format!("Files in {path}"));
    page.paragraph(&format!("{}.", summary(counted)));
    for part in parts {
        page.heading(part.title);
        let rows: Vec<Vec<String>> = shown(part).iter().map(|row| cells(row).into()).collect();
        page.table(1, &[part.head, "FILES", "BYTES", "ALLOCATED"], &rows);
    }
    page.html()
}
