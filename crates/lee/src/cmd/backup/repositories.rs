//! What `lee backup` does with repositories by itself: it needs no cell, which may be lost.

use super::{FromArgs, RepositoryArgs, absolute, ask};
use crate::backup::repositories::{holder, open};
use crate::backup::{BackupCall, VOLUME_TAG, Which};
use crate::cmd::Invocation;
use crate::fail::{Fail, text};
use crate::output::{self, Side, Table, printable};
use crate::progress::Bar;
use crate::{locate, size, system, when};
use leeward_lab::stop::Stop;
use leeward_restic::check::Checked;
use leeward_restic::lock::Lock;
use leeward_restic::repository::Repository;
use leeward_restic::restore::Restored;
use leeward_restic::sftp::SftpPlace;
use leeward_restic::snapshot::Snapshot;
use leeward_restic::tree::{Node, NodeKind};
use leeward_restic::{Error, ErrorKind, Id, Watch};
use leeward_volume::admin::Progress;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Shortest beginning of an id that is taken for one.
const ID_DIGITS_MIN: usize = 8;

/// A repository and the file of its password.
type Place = (String, String);

/// Shows how far it is, and hears of signals.
struct Watched<'a> {
    bar: Bar,
    stop: &'a Stop,
}

impl Watch for Watched<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.asked()
    }

    fn report(&self, phase: &str, done: u64, total: u64) {
        self.bar.show(&Progress { phase: phase.into(), done, total });
    }
}

fn failed(e: Error) -> Fail {
    Fail::new(e.text)
}

/// The repositories that are meant: the one that is named, or those that the cell knows.
fn places(invocation: &Invocation, volume: Option<&str>, from: &FromArgs) -> Result<Vec<Place>, Fail> {
    let to = match &from.from {
        Some(from) if locate::is_bucket(from.as_ref()) || SftpPlace::is_meant(from) => Some(from.clone()),
        Some(from) => Some(absolute(from)?),
        None => None,
    };
    if let (Some(to), Some(file)) = (&to, &from.password_file) {
        return Ok(vec![(to.clone(), file.clone())]);
    }
    let all = ask(invocation, BackupCall::List { which: Which { volume: volume.map(String::from), to } })?;
    let mut places: Vec<Place> = all.into_iter().map(|b| (b.backup.to, b.backup.password_file)).collect();
    places.sort();
    places.dedup();
    if places.is_empty() {
        let text = "the cell knows no such backup: name the repository with --from, and the file of its password with \
                    --password-file";
        return Err(Fail::new(text));
    }
    Ok(places)
}

fn opened(invocation: &Invocation, (to, password_file): &Place) -> Result<Arc<Repository>, Fail> {
    Ok(open(&invocation.env, to, password_file)?)
}

/// Locks a repository against those who remove. One that cannot be written to is read without.
fn locked(repository: &Arc<Repository>) -> Result<Option<Lock>, Fail> {
    match Lock::take(repository, &holder("lee-backup".into()), false) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if matches!(e.kind, ErrorKind::Place | ErrorKind::Full) => {
            output::note(&format!("lee: reads without a lock: {e}"));
            Ok(None)
        }
        Err(e) => Err(failed(e)),
    }
}

/// The backups that can be read; others are told.
fn readable(repository: &Repository) -> Result<Vec<(Id, Snapshot)>, Fail> {
    let (all, damaged) = repository.readable_snapshots().map_err(failed)?;
    damaged.iter().for_each(|e| output::note(&format!("lee: a backup cannot be read: {e}")));
    Ok(all)
}

fn shows(snapshot: &Snapshot, volume: &str) -> bool {
    snapshot.paths.iter().any(|path| path.strip_prefix('/') == Some(volume))
}

/// `lee backup show`.
pub fn show(invocation: &Invocation, args: RepositoryArgs) -> Result<(), Fail> {
    let mut all = Vec::new();
    for place in places(invocation, args.volume.as_deref(), &args.from)? {
        let repository = opened(invocation, &place)?;
        let snapshots = readable(&repository)?;
        let wanted = |s: &Snapshot| args.volume.as_ref().is_none_or(|volume| shows(s, volume));
        let wanted = snapshots.into_iter().filter(|(_, s)| wanted(s));
        all.extend(wanted.map(|(id, s)| (place.0.clone(), id, s)));
    }
    let value = |(place, id, s): &(String, Id, Snapshot)| json!({ "repository": place, "id": id, "time_secs": s.time.secs, "paths": s.paths, "host": s.hostname });
    let values: Vec<Value> = all.iter().map(value).collect();
    output::show(invocation.format, &json!({ "snapshots": values }), || {
        let columns = ["ID", "TAKEN", "OF", "ON", "IN"].map(|title| (title, Side::Left));
        let row = |(place, id, s): &(String, Id, Snapshot)| {
            let paths = printable(&s.paths.join(" "));
            [id.short(), when::utc(s.time.secs), paths, printable(&s.hostname), printable(place)]
        };
        Table::new(&columns).rows(&all, row).to_string()
    })
}

/// `lee backup check`.
pub fn check(invocation: &Invocation, args: RepositoryArgs, read_data: bool) -> Result<ExitCode, Fail> {
    let stop = system::stop_on_signals()?;
    let mut all = Vec::new();
    for place in places(invocation, args.volume.as_deref(), &args.from)? {
        let repository = opened(invocation, &place)?;
        let _lock = locked(&repository)?;
        let watched = Watched { bar: Bar::new(invocation.format), stop: &stop };
        let found = leeward_restic::check::check(&repository, read_data, &watched);
        watched.bar.clear();
        all.push((place.0, found.map_err(failed)?));
    }
    let value = |(place, found): &(String, Checked)| {
        json!({
            "repository": place, "snapshots": found.snapshots, "directories": found.trees, "packs": found.packs,
            "unnamed_packs": found.unnamed_packs, "bytes_read": found.bytes_read,
            "problem_count": found.problem_count, "problems": found.problems,
        })
    };
    let values: Vec<Value> = all.iter().map(value).collect();
    output::show(invocation.format, &json!({ "repositories": values }), || {
        all.iter().flat_map(|(place, found)| lines(place, found, read_data)).collect::<Vec<_>>().join("\n")
    })?;
    let is_whole = all.iter().all(|(_, found)| found.problem_count == 0);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was found in a repository.
fn lines(place: &str, found: &Checked, read_data: bool) -> Vec<String> {
    let read = if read_data { format!(", {} read", size::bytes(found.bytes_read)) } else { String::new() };
    let what = format!(
        "{}: {}, {}, {}{read}",
        printable(place),
        size::counted(found.snapshots, "backup", "backups"),
        size::counted(found.trees, "directory", "directories"),
        size::counted(found.packs, "pack", "packs"),
    );
    if found.problem_count == 0 {
        return vec![format!("{what}: whole")];
    }
    let mut lines = vec![format!("{what}: {}", size::counted(found.problem_count, "problem", "problems"))];
    lines.extend(found.problems.iter().map(|problem| format!("  {}", printable(problem))));
    lines.push("what to do: docs/OPERATE.md, A cold store".into());
    lines
}

/// `lee backup restore`.
pub fn restore(invocation: &Invocation, what: &str, to: &Path, from: FromArgs) -> Result<ExitCode, Fail> {
    let stop = system::stop_on_signals()?;
    let (repository, id, snapshot) = find(invocation, what, &from)?;
    if system::uid() != 0 {
        output::note("lee: not run by root: what belonged to others will belong to you");
    }
    if let Err(e) = std::fs::create_dir(to)
        && e.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(Fail::new(format!("{}: cannot be made: {}", to.display(), text(&e))));
    }
    let _lock = locked(&repository)?;
    for e in repository.load_index_of_what_is_there().map_err(failed)?.damaged {
        output::note(&format!("lee: some of the index cannot be read: {e}"));
    }
    let root = root(&repository, &snapshot).map_err(failed)?;
    let watched = Watched { bar: Bar::new(invocation.format), stop: &stop };
    let restored = leeward_restic::restore::restore(&repository, (&root.0, root.1), to, &watched);
    watched.bar.clear();
    tell(invocation, (&id, &snapshot, to), &restored.map_err(failed)?)
}

/// The backup with this id, or the newest of this volume.
fn find(
    invocation: &Invocation,
    what: &str,
    from: &FromArgs,
) -> Result<(Arc<Repository>, Id, Snapshot), Fail> {
    let is_id = what.len() >= ID_DIGITS_MIN && what.bytes().all(|b| b.is_ascii_hexdigit());
    let places = match places(invocation, Some(what), from) {
        // it may be an id in any repository that the cell knows
        Err(_) if is_id => places(invocation, None, from)?,
        places => places?,
    };
    let mut found: Option<(Arc<Repository>, Id, Snapshot)> = None;
    for place in &places {
        let repository = opened(invocation, place)?;
        let snapshots = readable(&repository)?;
        let wanted = |(id, s): &(Id, Snapshot)| shows(s, what) || is_id && id.to_string().starts_with(what);
        if let Some((id, snapshot)) = snapshots.into_iter().rfind(wanted)
            && found.as_ref().is_none_or(|(_, _, known)| known.time.secs < snapshot.time.secs)
        {
            found = Some((repository, id, snapshot));
        }
    }
    found.ok_or_else(|| {
        let places: Vec<&str> = places.iter().map(|(to, _)| to.as_str()).collect();
        Fail::new(format!("{} has no backup {what}: see lee backup show", places.join(", ")))
    })
}

/// The tree to restore, and what the directory becomes: of a volume, its root.
fn root(repository: &Repository, snapshot: &Snapshot) -> leeward_restic::Result<(Id, Option<Node>)> {
    let mut root = None;
    if snapshot.tag(VOLUME_TAG).is_some() {
        repository.tree(&snapshot.tree, &mut |node| {
            root = Some(node).filter(|node| node.kind == NodeKind::Dir);
            Ok(())
        })?;
    }
    let subtree = root.as_ref().and_then(|node| node.subtree);
    Ok(subtree.map_or((snapshot.tree, None), |subtree| (subtree, root)))
}

fn tell(
    invocation: &Invocation,
    (id, snapshot, to): (&Id, &Snapshot, &Path),
    done: &Restored,
) -> Result<ExitCode, Fail> {
    let value = json!({
        "id": id, "time_secs": snapshot.time.secs, "to": to, "directories": done.dirs, "files": done.files,
        "bytes": done.bytes, "trouble_count": done.trouble_count, "troubles": done.troubles,
    });
    output::show(invocation.format, &value, || {
        let mut text = format!(
            "restored {}, taken {}, to {}: {}, {}, {}",
            id.short(),
            when::utc(snapshot.time.secs),
            to.display(),
            size::counted(done.dirs, "directory", "directories"),
            size::counted(done.files, "other name", "other names"),
            size::bytes(done.bytes),
        );
        if done.trouble_count > 0 {
            text.push_str(&format!("\nnot as it was: {}", size::count(done.trouble_count)));
        }
        for trouble in &done.troubles {
            text.push_str(&format!("\n  {}: {}", printable(&trouble.path), printable(&trouble.cause)));
        }
        text
    })?;
    Ok(if done.trouble_count > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
