//! COPY and MOVE between paths of this server. A copy shares the data of its source, where both are
//! in one volume.
//!
//! Both ends are looked up once; everything then happens in the directories that were found. A file
//! or directory that is replaced stays as it is until its replacement is whole.

use super::copied_entries::CopiedEntries;
use super::put::Target;
use super::remove::{Failures, remove_moved};
use super::staging::StagedTree;
use super::walk::{Step, Walk, path_of};
use crate::body::{self, Answer};
use crate::error::{HttpError, Result};
use crate::head::condition::{self, Current, Verdict};
use crate::head::{self, Depth, Destination};
use crate::locks::Change;
use crate::path::DavPath;
use crate::request::{Request, Resource};
use futures_util::stream::{self, StreamExt};
use http::{StatusCode, header};
use leeward_auth::Activity;
use leeward_door::{Finish, Path, Tree, notes};
use leeward_fs::{Attr, Entry, Error, Kind, NodeId, Precondition, RenameMode};

/// Files that are copied at a time.
const AT_ONCE: usize = 16;

/// The common part of COPY and MOVE.
struct CopyTask {
    /// The source, in its directory, and that directory.
    from: Resource,
    from_dir: NodeId,
    /// The destination, in its directory, and that directory.
    to: Resource,
    dir: NodeId,
    /// Attributes of the source: for COPY, of the target of a symbolic link.
    attr: Attr,
    /// Attributes of what is replaced.
    old: Option<Attr>,
    how: CopyMode,
}

#[derive(Clone, Copy)]
struct CopyMode {
    /// Whether everything below is copied.
    deep: bool,
    /// Whether the original is removed. Then all of it must have been copied, and the group is kept
    /// where possible.
    moves: bool,
}

impl CopyTask {
    /// Whether both are one file, under two names.
    fn is_link(&self) -> bool {
        self.how.moves && self.old.is_some_and(|old| old.node == self.attr.node)
    }

    /// Whether the copy must be made beside what it replaces, and then exchanged with it: always,
    /// unless a file replaces a file.
    fn exchanges(&self) -> bool {
        self.old.is_some_and(|old| old.kind == Kind::Dir || self.attr.kind != Kind::File)
    }
}

/// COPY.
pub(crate) async fn copy(request: &Request) -> Result<Answer> {
    let depth = head::depth(&request.headers, Depth::Infinity)?;
    if depth == Depth::One {
        return Err(HttpError::bad("COPY has Depth 0 or infinity"));
    }
    let to = destination(request)?;
    let how = CopyMode { deep: depth == Depth::Infinity, moves: false };
    let task = task(request, Activity::Read, &to, how).await?;
    let failures = copy_all(request, &task, None).await?;
    Ok(failures.answer().unwrap_or_else(|| done(&task)))
}

/// MOVE.
pub(crate) async fn rename(request: &Request) -> Result<Answer> {
    if head::depth(&request.headers, Depth::Infinity)? != Depth::Infinity {
        return Err(HttpError::bad("MOVE moves everything below: Depth is infinity"));
    }
    let to = destination(request)?;
    let task = task(request, Activity::Rename, &to, CopyMode { deep: true, moves: true }).await?;
    let (from, to) = (&task.from, &task.to);
    let mode = match &task.old {
        None => RenameMode::NoReplace,
        Some(_) if task.exchanges() => RenameMode::Exchange,
        Some(_) => RenameMode::Replace,
    };
    // noted before anything is done
    let replaced = match mode {
        RenameMode::Exchange => Some(StagedTree::beside(request, from, task.from_dir).await?),
        _ => None,
    };
    let done_by = match task.is_link() {
        // one name fewer: a rename would leave both
        true => {
            from.tree.remove_if(&from.path, Precondition::This(task.attr.node, task.attr.ctime), false).await
        }
        false => from.tree.rename(&from.path, &to.tree, &to.path, mode).await,
    };
    let failures = match done_by {
        Ok(()) => match replaced {
            Some(staging) => remove_replaced(&task, staging).await?,
            None => Failures::default(),
        },
        Err(Error::CrossVolume) => {
            if let Some(staging) = replaced {
                staging.remove().await?;
            }
            match move_tree(request, &task).await? {
                (failures, false) => return Ok(failures.answer().expect("there are some")),
                (failures, true) => failures,
            }
        }
        Err(Error::Exists | Error::Changed) => return Err(HttpError::precondition()),
        Err(e) => return Err(from.error(&e)),
    };
    request.dav.locks.forget_tree(&from.dav);
    if task.exchanges() {
        request.dav.locks.forget_tree(&to.dav);
    }
    Ok(failures.answer().unwrap_or_else(|| done(&task)))
}

/// Removes what was replaced, which has the old name now. It is removed under a name that nobody
/// can guess, so that files which others make under the old name stay.
async fn remove_replaced(task: &CopyTask, staging: StagedTree) -> Result<Failures> {
    let (from, at) = (&task.from, &staging.place().path);
    let old = task.old.as_ref().map(|old| old.node);
    match from.tree.rename(&from.path, &from.tree, at, RenameMode::NoReplace).await {
        Ok(()) => {}
        // another request has taken it
        Err(Error::NotFound) => return staging.remove().await,
        Err(e) => {
            staging.remove().await?;
            return Err(from.error(&e));
        }
    }
    let there = from.tree.spot(at, false).await.map_err(|e| from.error(&e))?.attr;
    if there.is_some_and(|there| Some(there.node) != old) {
        // another file has got the old name already
        let back = from.tree.rename(at, &from.tree, &from.path, RenameMode::NoReplace).await;
        back.map_err(|e| from.error(&e))?;
    }
    staging.remove().await
}

/// MOVE to another volume: copies everything, then removes what was copied, to the end even if the
/// client goes away. Files that were added or changed meanwhile stay, and are reported. `false`:
/// not everything could be copied, and nothing was removed.
async fn move_tree(request: &Request, task: &CopyTask) -> Result<(Failures, bool)> {
    let dav = &request.dav;
    let mut moved = CopiedEntries::new(&dav.env, &dav.moved, request.verdict.who.uid);
    let copied = copy_all(request, task, Some(&mut moved)).await?;
    if copied.count() > 0 {
        return Ok((copied, false));
    }
    let (from, dir, was) = (task.from.clone(), task.from_dir, task.attr);
    let removed = tokio::spawn(async move { remove_moved(&from, dir, &was, &moved).await }).await;
    let removed = removed.unwrap_or_else(|e| Err(Error::Io(e.to_string())));
    removed.map(|failures| (failures, true)).map_err(|e| task.from.error(&e))
}

fn done(task: &CopyTask) -> Answer {
    if task.old.is_some() {
        return body::empty(StatusCode::NO_CONTENT);
    }
    let there = task.to.dav.encoded();
    body::headers(body::empty(StatusCode::CREATED), [(header::LOCATION, there.as_str())])
}

fn destination(request: &Request) -> Result<DavPath> {
    match head::destination(&request.headers, request.host.as_deref())? {
        Some(Destination::Here(path)) => Ok(path),
        Some(Destination::There(_)) => Err(HttpError::new(
            StatusCode::BAD_GATEWAY,
            "the Destination is on another server, where nothing can be moved",
        )),
        None => Err(HttpError::bad("a Destination is missing")),
    }
}

/// Checks everything that can be checked, and finds both ends.
async fn task(request: &Request, activity: Activity, to: &DavPath, how: CopyMode) -> Result<CopyTask> {
    let place = request.place_at(Activity::Stat, &request.path)?;
    let (entry, shown) = place.must_be_named().await?;
    let is_dir = (if how.moves { entry } else { shown }).kind == Kind::Dir;
    let (at, to) = (request.path.clone().with_slash(is_dir), to.clone().with_slash(is_dir));
    if at.is_within(&to) || to.is_within(&at) {
        return Err(within(&at, &to));
    }
    let etag = crate::request::etag(&shown);
    let current = Current { etag: &etag, modified: shown.mtime.secs };
    if condition::check(&request.headers, false, Some(current))? != Verdict::Go {
        return Err(HttpError::precondition());
    }
    let (old, _) = request.place_at(Activity::Stat, &to)?.named().await?;
    if old.is_some() && !head::overwrite(&request.headers)? {
        let why = format!("{} is there already, and Overwrite is F", to.shown());
        return Err(HttpError::new(StatusCode::PRECONDITION_FAILED, why));
    }
    let from = request.place_at(activity, &at)?;
    let place = request.place_at(allowed(request, (&at, is_dir), (&to, old), how)?, &to)?;
    let change = if old.is_some() { Change::Tree } else { Change::NewName };
    let plain = to.clone().with_slash(false);
    let mut changes = vec![(&plain, change)];
    changes.extend(how.moves.then_some((&request.path, Change::Tree)));
    request.check_locks(&changes).await?;
    place.check_parent().await?;
    let source = from.tree.spot(&from.path, !how.moves).await.map_err(|e| from.missing(&e))?;
    let spot = place.spot().await?.ok_or_else(|| place.error(&Error::NotFound))?;
    let attr = source.attr.ok_or_else(|| from.error(&Error::NotFound))?;
    if (attr.kind == Kind::Dir) != is_dir || spot.attr.is_some() != old.is_some() {
        return Err(HttpError::precondition());
    }
    let is_above = spot.attr.is_some_and(|old| source.above.contains(&old.node));
    // two names of one file are two things
    let is_one = spot.above.last() == source.above.last() && spot.name == source.name;
    if is_one || is_above || spot.above.contains(&attr.node) {
        return Err(within(&at, &to));
    }
    let dir = *spot.above.last().ok_or_else(|| place.error(&Error::NotFound))?;
    let from_dir = *source.above.last().ok_or_else(|| from.error(&Error::NotFound))?;
    Ok(CopyTask { from: from.by(&source), from_dir, to: place.by(&spot), dir, attr, old: spot.attr, how })
}

fn within(at: &DavPath, to: &DavPath) -> HttpError {
    let why = format!("{} and {} are one within the other, or the same", at.shown(), to.shown());
    HttpError::new(StatusCode::FORBIDDEN, why)
}

/// Checks the right that the destination needs, when the credential has all others.
fn allowed(
    request: &Request,
    (at, is_dir): (&DavPath, bool),
    (to, old): (&DavPath, Option<Attr>),
    how: CopyMode,
) -> Result<Activity> {
    if is_dir && how.deep && !how.moves {
        request.allow(Activity::List, at)?;
        request.allow(Activity::Create, to)?;
    }
    Ok(match old {
        None if is_dir => Activity::MakeDir,
        None => Activity::Create,
        Some(old) => {
            if is_dir || old.kind == Kind::Dir {
                request.allow(Activity::Delete, to)?;
            }
            Activity::Modify
        }
    })
}

/// Copies to the destination, in one step where something is replaced.
async fn copy_all(request: &Request, task: &CopyTask, moved: Option<&mut CopiedEntries>) -> Result<Failures> {
    let to = &task.to;
    if !task.exchanges() {
        let over = if task.old.is_some() { Precondition::Any } else { Precondition::Nothing };
        return copy_tree(task, to, over, moved).await;
    }
    let beside = StagedTree::beside(request, to, task.dir).await?;
    let copied = copy_tree(task, beside.place(), Precondition::Nothing, moved).await;
    if copied.as_ref().map_or(true, |failures| failures.count() > 0) {
        let _ = beside.remove().await;
        return copied;
    }
    let (name, exchange) = (&beside.place().path, RenameMode::Exchange);
    if let Err(e) = to.tree.rename(name, &to.tree, &to.path, exchange).await {
        let _ = beside.remove().await;
        return Err(to.error(&e));
    }
    request.dav.locks.forget_tree(&to.dav);
    beside.remove().await
}

/// Copies to a name that is free, or (`over`) has a file that may be replaced.
async fn copy_tree(
    task: &CopyTask,
    to: &Resource,
    over: Precondition,
    moved: Option<&mut CopiedEntries>,
) -> Result<Failures> {
    let (from, how) = (&task.from, task.how);
    if task.attr.kind != Kind::Dir {
        let copied = copy_entry(task.attr.kind, (&from.tree, &from.path), (&to.tree, &to.path), over, how);
        let was = copied.await.map_err(|e| task.to.error(&e))?;
        if let (Some(moved), Some(name)) = (moved, task.from.dav.name()) {
            moved.add(task.from_dir, name, &was).map_err(|e| task.from.error(&e))?;
        }
        return Ok(Failures::default());
    }
    let made = to.tree.make_private_dir(&to.path).await.map_err(|e| match e {
        Error::Exists => HttpError::precondition(),
        e => task.to.error(&e),
    })?;
    let into = to.tree.within(made.node);
    if how.deep {
        return Ok(fill(&from.tree, into, made.node, task, moved).await);
    }
    into.make_like(&from.tree.within(task.attr.node), how.moves).await.map_err(|e| task.to.error(&e))?;
    Ok(Failures::default())
}

/// Copies everything in a directory to an empty one, which then gets its attributes.
async fn fill(
    from: &Tree,
    into: Tree,
    top: NodeId,
    task: &CopyTask,
    mut moved: Option<&mut CopiedEntries>,
) -> Failures {
    let (how, mut failures) = (task.how, Failures::default());
    let mut walk = Walk::new(from, task.attr.node, &task.to.dav, into);
    while let Some(step) = walk.next().await {
        let failed = match step {
            Step::Entries(entries) => {
                let copies =
                    entries.into_iter().map(|e| copy_one(walk.tree().clone(), walk.with().clone(), e, how));
                let mut copies = stream::iter(copies).buffer_unordered(AT_ONCE);
                while let Some((name, copied)) = copies.next().await {
                    let noted = copied.and_then(|was| match moved.as_deref_mut() {
                        Some(moved) => moved.add(walk.node(), &name, &was),
                        None => Ok(()),
                    });
                    if let Err(e) = noted {
                        failures.add(&walk.at(&name), &e);
                    }
                }
                continue;
            }
            // another request has just moved the copy to where it is copied from
            Step::Dir(dir) if dir.node == top => Some((dir.name, Error::Invalid)),
            Step::Dir(dir) => {
                let made = walk.with().make_private_dir(&path_of(&dir.name)).await;
                let entered = match made {
                    Ok(made) => {
                        let into = walk.with().within(made.node);
                        let note = |above: NodeId, there: &Attr| match moved.as_deref_mut() {
                            Some(moved) => moved.add(above, &dir.name, there),
                            None => Ok(()),
                        };
                        walk.enter(&dir, into, note).await
                    }
                    Err(e) => Err(e),
                };
                entered.err().map(|e| (dir.name, e))
            }
            Step::Failed(e) => Some((Box::default(), e)),
            Step::Done(name, from, into) => {
                let alike = into.make_like(&from, how.moves).await;
                if let Err(e) = alike {
                    let at = if name.is_empty() { task.to.dav.clone() } else { walk.at(&name) };
                    failures.add(&at, &e);
                }
                continue;
            }
        };
        if let Some((name, e)) = failed {
            failures.add(&walk.at(&name), &e);
        }
    }
    failures
}

async fn copy_one(
    from: Tree,
    into: Tree,
    entry: Entry,
    how: CopyMode,
) -> (Box<[u8]>, leeward_fs::Result<Attr>) {
    let name = path_of(&entry.name);
    let copied = copy_entry(entry.kind, (&from, &name), (&into, &name), Precondition::Nothing, how).await;
    (entry.name, copied)
}

/// Returns the attributes of the source before it was read.
async fn copy_entry(
    kind: Kind,
    from: (&Tree, &Path),
    to: (&Tree, &Path),
    over: Precondition,
    how: CopyMode,
) -> leeward_fs::Result<Attr> {
    match kind {
        Kind::File => copy_file(from, to, over, how).await,
        Kind::Symlink => copy_link(from, to).await,
        // directories are walked through; sockets, pipes and devices are not copied
        _ => Err(Error::NotSupported),
    }
}

/// Copies content and attributes: checksums, properties, permissions. The copy keeps the time of
/// modification.
async fn copy_file(
    (from, name): (&Tree, &Path),
    (to, new): (&Tree, &Path),
    over: Precondition,
    how: CopyMode,
) -> leeward_fs::Result<Attr> {
    let file = from.open(name, &[]).await?;
    let mut upload = to.create(new, Some(file.attr.size)).await?;
    upload.copy(&file, 0..file.attr.size).await?;
    upload.like(&file, how.moves);
    let mut xattrs = file.notes().await?;
    let is_same = file.is_same().await?;
    if how.moves && !is_same {
        return Err(Error::Changed);
    }
    // the checksums of a file that was changed meanwhile are unknown
    xattrs.retain(|(name, _)| is_same || name != notes::SUMS);
    let modified = is_same.then_some(file.attr.mtime);
    upload.finish(Finish { over, xattrs, modified, ..Finish::default() }).await?;
    Ok(file.attr)
}

/// Copies a symbolic link.
async fn copy_link((from, name): (&Tree, &Path), (to, new): (&Tree, &Path)) -> leeward_fs::Result<Attr> {
    let was = from.spot(name, false).await?.attr.ok_or(Error::NotFound)?;
    to.make_link(new, &from.read_link(name).await?).await?;
    Ok(was)
}

/// The target of a third-party copy, or of a copy of a single file: as for PUT, and `Overwrite`
/// counts.
///
/// # Errors
/// As [`Target::of`]; 412.
pub(crate) async fn target(request: &Request) -> Result<Target> {
    let target = Target::of(request).await?;
    if head::overwrite(&request.headers)? { Ok(target) } else { target.only_new() }
}
