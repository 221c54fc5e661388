//! COPY and MOVE between paths of this server. A copy shares the data of what it copies, where both are in one volume.

use super::dead;
use super::put::Target;
use super::remove::{Failures, remove_tree};
use crate::asked::{Asked, Place};
use crate::body::{self, Answer};
use crate::head::condition::{self, Current, Verdict};
use crate::head::{self, Depth, Destination};
use crate::locks::Change;
use crate::oops::{Oops, Result};
use crate::path::DavPath;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use http::{StatusCode, header};
use leeward_auth::Activity;
use leeward_door::limits::LIST_STEP;
use leeward_door::{Finish, notes};
use leeward_volume::Error;
use leeward_volume::op::{Attr, Entry, Kind, Over, RenameMode};

/// Files that are copied at a time.
const AT_ONCE: usize = 16;
/// What goes with a copy.
const KEPT: &[&[u8]] = &[notes::SUMS, notes::HEADERS, dead::ATTRIBUTE];

/// What both have in common.
struct Errand {
    from: Place,
    to: Place,
    attr: Attr,
    /// Whether something is replaced.
    replaces: bool,
}

/// COPY.
pub(crate) async fn copy(asked: &Asked) -> Result<Answer> {
    let depth = head::depth(&asked.headers, Depth::Infinity)?;
    if depth == Depth::One {
        return Err(Oops::bad("COPY has Depth 0 or infinity"));
    }
    let to = destination(asked)?;
    let errand = errand(asked, Activity::Read, &to).await?;
    let (from, to) = (&errand.from, &errand.to);
    let failures = copy_tree(from, to, &errand.attr, depth == Depth::Infinity).await?;
    Ok(failures.answer().unwrap_or_else(|| done(&errand)))
}

/// MOVE.
pub(crate) async fn rename(asked: &Asked) -> Result<Answer> {
    if head::depth(&asked.headers, Depth::Infinity)? != Depth::Infinity {
        return Err(Oops::bad("MOVE moves everything below: Depth is infinity"));
    }
    let to = destination(asked)?;
    let errand = errand(asked, Activity::Rename, &to).await?;
    let (from, to) = (&errand.from, &errand.to);
    let plain = |place: &Place| place.dav.clone().with_slash(false);
    let mode = if errand.replaces { RenameMode::Replace } else { RenameMode::NoReplace };
    match from.tree.rename(&from.path, &to.path, mode).await {
        Ok(()) => {}
        Err(Error::CrossVolume) => {
            let failures = copy_tree(from, to, &errand.attr, true).await?;
            if let Some(answer) = failures.answer() {
                return Ok(answer);
            }
            if let Some(answer) = remove_tree(from).await?.answer() {
                return Ok(answer);
            }
        }
        Err(Error::Exists) => return Err(Oops::precondition()),
        Err(e) => return Err(from.oops(&e)),
    }
    asked.dav.locks.forget_tree(&plain(from));
    Ok(done(&errand))
}

fn done(errand: &Errand) -> Answer {
    if errand.replaces {
        return body::empty(StatusCode::NO_CONTENT);
    }
    let there = errand.to.dav.encoded();
    body::headers(body::empty(StatusCode::CREATED), [(header::LOCATION, there.as_str())])
}

fn destination(asked: &Asked) -> Result<DavPath> {
    match head::destination(&asked.headers, asked.host.as_deref())? {
        Some(Destination::Here(path)) => Ok(path),
        Some(Destination::There(_)) => Err(Oops::new(
            StatusCode::BAD_GATEWAY,
            "the Destination is on another server, where nothing can be moved",
        )),
        None => Err(Oops::bad("a Destination is missing")),
    }
}

/// Checks everything that can be checked, and makes room at the destination.
async fn errand(asked: &Asked, activity: Activity, to: &DavPath) -> Result<Errand> {
    let from = asked.place_at(Activity::Stat, &asked.path)?;
    let attr = from.must(&[]).await?.attr;
    let is_dir = attr.kind == Kind::Dir;
    let make = if is_dir { Activity::MakeDir } else { Activity::Create };
    let (at, to) = (asked.path.clone().with_slash(is_dir), to.clone().with_slash(is_dir));
    if at.is_within(&to) || to.is_within(&at) {
        let why = format!("{} and {} are one within the other", at.shown(), to.shown());
        return Err(Oops::new(StatusCode::FORBIDDEN, why));
    }
    let etag = crate::asked::etag(&attr);
    let current = Current { etag: &etag, modified: attr.mtime.secs };
    if condition::check(&asked.headers, false, Some(current))? != Verdict::Go {
        return Err(Oops::precondition());
    }
    let old = asked.place_at(Activity::Stat, &to.clone().with_slash(false))?.found(&[]).await;
    let old = match old {
        Err(oops) if oops.status == StatusCode::CONFLICT => None,
        other => other?.map(|found| found.attr),
    };
    if old.is_some() && !head::overwrite(&asked.headers)? {
        let why = format!("{} is there already, and Overwrite is F", to.shown());
        return Err(Oops::new(StatusCode::PRECONDITION_FAILED, why));
    }
    let make = if old.is_some() { Activity::Modify } else { make };
    let (from, to) = asked.places((activity, &at), (make, &to))?;
    let change = if old.is_some() { Change::Tree } else { Change::NewName };
    let plain = to.dav.clone().with_slash(false);
    let mut changes = vec![(&plain, change)];
    changes.extend((activity == Activity::Rename).then_some((&asked.path, Change::Tree)));
    asked.check_locks(&changes).await?;
    to.check_parent().await?;
    let errand = Errand { from: from.plain(), to: to.plain(), attr, replaces: old.is_some() };
    make_room(asked, &errand, old).await?;
    Ok(errand)
}

/// A file is replaced in one step; a directory, or a file by one, is removed first.
async fn make_room(asked: &Asked, errand: &Errand, old: Option<Attr>) -> Result<()> {
    let Some(old) = old else { return Ok(()) };
    if old.kind != Kind::Dir && errand.attr.kind != Kind::Dir {
        return Ok(());
    }
    asked.allow(Activity::Delete, &errand.to.dav)?;
    let failures = remove_tree(&errand.to).await?;
    asked.dav.locks.forget_tree(&errand.to.dav);
    if failures.is_empty() {
        return Ok(());
    }
    Err(Oops::conflict(format!("what is at {} could not be removed", errand.to.dav.shown())))
}

/// Copies a file, or a directory with (`deep`) all that is below it.
async fn copy_tree(from: &Place, to: &Place, attr: &Attr, deep: bool) -> Result<Failures> {
    if attr.kind != Kind::Dir {
        copy_file(from, to).await.map_err(|e| to.oops(&e))?;
        return Ok(Failures::default());
    }
    let mut failures = Failures::default();
    make_dir(from, to).await.map_err(|e| to.oops(&e))?;
    if deep {
        fill(from, to, &mut failures).await;
    }
    Ok(failures)
}

async fn make_dir(from: &Place, to: &Place) -> leeward_volume::Result<()> {
    let kept = from.tree.stat(&from.path, &[dead::ATTRIBUTE]).await?.xattrs;
    to.tree.make_dir(&to.path, false).await?;
    match kept.into_iter().next().flatten() {
        None => Ok(()),
        value => to.tree.set_xattrs(&to.path, vec![(dead::ATTRIBUTE.to_vec(), value)]).await,
    }
}

/// Content, checksums and properties; it keeps its time of modification.
async fn copy_file(from: &Place, to: &Place) -> leeward_volume::Result<()> {
    let file = from.tree.open(&from.path, KEPT).await?;
    let mut upload = to.tree.create(&to.path, Some(file.attr.size)).await?;
    upload.copy(&file, 0..file.attr.size).await?;
    let kept = KEPT.iter().zip(file.xattrs.iter().cloned());
    let xattrs = kept.filter_map(|(name, value)| Some((name.to_vec(), value?))).collect();
    let finish = Finish { over: Over::Any, xattrs, modified: Some(file.attr.mtime), parents: false };
    upload.finish(finish).await.map(drop)
}

async fn copy_one((from, to): (Place, Place)) -> (Place, leeward_volume::Result<()>) {
    let copied = copy_file(&from, &to).await;
    (to, copied)
}

fn fill<'a>(from: &'a Place, to: &'a Place, failures: &'a mut Failures) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let mut after = Vec::new();
        loop {
            let (entries, at_end) = match from.tree.list(&from.path, &after, LIST_STEP).await {
                Ok(page) => page,
                Err(e) => return failures.add(from, &e),
            };
            let Some(last) = entries.last() else { return };
            after = last.name.to_vec();
            let (dirs, files): (Vec<Entry>, Vec<Entry>) =
                entries.into_iter().partition(|e| e.kind == Kind::Dir);
            let files = files.iter().filter(|entry| entry.kind == Kind::File);
            let files: Vec<_> = files.map(|entry| (from.join(&entry.name), to.join(&entry.name))).collect();
            let copies = stream::iter(files.into_iter().map(copy_one));
            let copied: Vec<_> = copies.buffer_unordered(AT_ONCE).collect().await;
            for (to, copied) in copied {
                if let Err(e) = copied {
                    failures.add(&to, &e);
                }
            }
            for entry in dirs {
                let (from, to) = (from.join(&entry.name), to.join(&entry.name));
                match make_dir(&from, &to).await {
                    Ok(()) => fill(&from, &to, failures).await,
                    Err(e) => failures.add(&to, &e),
                }
            }
            if at_end {
                return;
            }
        }
    })
}

/// Where a third-party copy, or a copy of a single file, may write: as PUT, and `Overwrite` counts.
///
/// # Errors
/// As [`Target::of`]; 412.
pub(crate) async fn target(asked: &Asked) -> Result<Target> {
    let target = Target::of(asked).await?;
    if head::overwrite(&asked.headers)? { Ok(target) } else { target.only_new() }
}
