//! `lee watch`: what changes at or below a path, as it becomes durable.

use super::Invocation;
use crate::fail::Fail;
use crate::locate::CellDir;
use crate::{logging, mounts, output, system};
use leeward_volume::admin::{EventFilter, EventList, EventPage};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks when nothing happens.
const LOOK: Duration = Duration::from_millis(200);
/// Before the cell is reached for again, when it does not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// Events in a page.
const PAGE: usize = 1000;

/// Follow what changes at or below a path: one JSON object a line
///
/// A line is printed when its change is durable, in the order of the changes. Each line has a
/// `cursor`: who goes on with `--after CURSOR`, also after crashes of either side, misses nothing
/// and hears nothing twice. A line {"lost": N} says that N changes are not kept any more, because
/// they are older than the property audit-days of the volume, or took too much space: look at
/// everything then. A directory is followed wherever it is moved. Other volumes below it have logs
/// of their own. Ends with Ctrl-C; while the cell is restarted it waits.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory or a file: its path in the cell or below the mount
    path: PathBuf,
    /// Go on after this cursor [else: with what changes from now on]
    #[arg(long, value_name = "CURSOR", conflicts_with = "all")]
    after: Option<String>,
    /// Begin with the oldest change that is kept
    #[arg(long)]
    all: bool,
    /// Keep the cursor in this file: go on after it, and write it there when lines were printed.
    /// Who is killed between the two hears those lines again
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// End with what has happened until now
    #[arg(long)]
    once: bool,
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that it is not served at the beginning.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let cell = invocation.cell_anywhere()?;
    logging::start();
    let path = mounts::path_in_cell(cell.path(), &args.path)?;
    let kept = args.cursor_file.as_deref().map(kept).transpose()?.flatten();
    let begin = if args.all { None } else { Some("end".to_string()) };
    let mut cursor = args.after.clone().or(kept).or(begin);
    let mut has_begun = false;
    while system::output_has_reader() {
        let page = match ask(&cell, &path, cursor.clone(), args.once) {
            Ok(page) => page,
            Err(Unheard::Away(_)) if has_begun && !args.once => {
                // it may be restarted, or be taken over by another server
                invocation.env.sleep(AGAIN);
                continue;
            }
            Err(Unheard::Away(fail) | Unheard::Refused(fail)) => return Err(fail),
        };
        has_begun = true;
        print(&page)?;
        let is_new = cursor.as_deref() != Some(&page.cursor);
        if let (true, Some(file)) = (is_new, &args.cursor_file) {
            keep(file, &page.cursor)?;
        }
        let more = page.more;
        cursor = Some(page.cursor);
        match (more, args.once) {
            (true, _) => (),
            (false, true) => return Ok(()),
            (false, false) => invocation.env.sleep(LOOK),
        }
    }
    Ok(())
}

/// Why there is no page.
enum Unheard {
    /// The process that serves the cell does not answer.
    Away(Fail),
    /// It says no.
    Refused(Fail),
}

fn ask(cell: &CellDir, path: &str, cursor: Option<String>, until_now: bool) -> Result<EventPage, Unheard> {
    let request = EventList {
        path: Some(path.into()),
        cursor,
        newest_first: false,
        until_now,
        filter: EventFilter::default(),
        limit: PAGE,
    };
    let client = super::reach(cell).map_err(Unheard::Away)?;
    client.admin_said(&request, &mut |_| ()).map_err(|failure| match failure.errno {
        libc::EIO => Unheard::Away(failure.into()),
        _ => Unheard::Refused(failure.into()),
    })
}

fn print(page: &EventPage) -> Result<(), Fail> {
    let mut lines = String::new();
    if page.lost > 0 {
        lines.push_str(&format!("{}\n", json!({"lost": page.lost})));
    }
    for event in &page.events {
        let line = serde_json::to_string(event);
        lines.push_str(&line.map_err(|e| Fail::new(format!("cannot be shown as JSON: {e}")))?);
        lines.push('\n');
    }
    output::print(&lines)
}

/// The cursor in a file; `None`: there is no such file yet.
fn kept(file: &Path) -> Result<Option<String>, Fail> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_string()).filter(|text| !text.is_empty())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Fail::new(format!("{}: {e}", file.display()))),
    }
}

/// Writes a cursor to a file, which has the old one or the new one at every moment.
fn keep(file: &Path, cursor: &str) -> Result<(), Fail> {
    let mut new = file.as_os_str().to_os_string();
    new.push(".new");
    let write = || {
        let mut out = fs::File::create(&new)?;
        out.write_all(format!("{cursor}\n").as_bytes())?;
        out.sync_all()?;
        fs::rename(&new, file)
    };
    let written = write();
    written.map_err(|e| Fail::new(format!("{}: the cursor cannot be kept there: {e}", file.display())))
}
