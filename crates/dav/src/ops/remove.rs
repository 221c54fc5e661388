//! DELETE, and MKCOL.

use super::copied_entries::CopiedEntries;
use super::put::is_conditional;
use super::walk::{Step, Walk, path_of};
use crate::body::{self, Answer};
use crate::error::{HttpError, Result};
use crate::head::condition::{self, Current, Verdict};
use crate::head::{self, Depth};
use crate::locks::Change;
use crate::path::DavPath;
use crate::request::{Request, Resource};
use crate::xml::answer;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{StatusCode, header};
use leeward_auth::Activity;
use leeward_door::Tree;
use leeward_fs::{Attr, Error, Kind, NodeId, Precondition};

/// Entries that are removed at a time: requests that wait share a commit.
const AT_ONCE: usize = 64;
/// Most failures that are listed.
const FAILURES_MAX: usize = 100;
/// Most bytes of their paths.
const FAILURE_BYTES_MAX: usize = 256 << 10;

/// How often an entry is checked again that was changed just before its removal.
const LINKS_TRIES: usize = 8;

/// DELETE: a directory is removed with everything below it.
pub(crate) async fn delete(request: &Request) -> Result<Answer> {
    let place = request.place(Activity::Delete)?;
    if request.path.names().is_empty() {
        return Err(HttpError::new(StatusCode::FORBIDDEN, "the root cannot be removed"));
    }
    if head::depth(&request.headers, Depth::Infinity)? != Depth::Infinity {
        return Err(HttpError::bad("DELETE removes everything below: Depth is infinity"));
    }
    let (entry, shown) = place.must_be_named().await?;
    let etag = crate::request::etag(&shown);
    let current = Current { etag: &etag, modified: shown.mtime.secs };
    if condition::check(&request.headers, false, Some(current))? != Verdict::Go {
        return Err(HttpError::precondition());
    }
    request.check_locks(&[(&request.path, Change::Tree)]).await?;
    let spot = place.spot().await?.ok_or_else(|| place.error(&Error::NotFound))?;
    let over =
        if is_conditional(request) { Precondition::This(entry.node, entry.ctime) } else { Precondition::Any };
    let failures = remove_if(&place.by(&spot), over).await?;
    if let Some(answer) = failures.answer() {
        return Ok(answer);
    }
    request.dav.locks.forget_tree(&request.path);
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// MKCOL.
pub(crate) async fn mkcol(request: &Request, content: Bytes) -> Result<Answer> {
    if !content.is_empty() {
        return Err(HttpError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "MKCOL with a body means nothing here",
        ));
    }
    let path = request.path.clone().with_slash(true);
    let place = request.place_at(Activity::MakeDir, &path)?;
    let taken = || {
        let why = format!("{} is there already", path.shown());
        HttpError::new(StatusCode::METHOD_NOT_ALLOWED, why).header(header::ALLOW, crate::shared::METHODS)
    };
    if place.found(&[]).await.is_ok_and(|found| found.is_some()) || path.names().is_empty() {
        return Err(taken());
    }
    request.check_locks(&[(&path, Change::NewName)]).await?;
    place.check_parent().await?;
    match place.tree.make_dir(&place.path, false).await {
        Ok(_) => Ok(body::empty(StatusCode::CREATED)),
        Err(Error::Exists) => Err(taken()),
        Err(Error::NotFound) => {
            Err(HttpError::conflict(format!("what is above {} is not there", path.shown())))
        }
        Err(e) => Err(place.error(&e)),
    }
}

/// Paths that could not be handled, with the errors.
#[derive(Default)]
pub(crate) struct Failures {
    list: Vec<(String, HttpError)>,
    bytes: usize,
    count: usize,
}

impl Failures {
    /// Adds one; beyond a limit they are only counted.
    pub(crate) fn add(&mut self, at: &DavPath, e: &Error) {
        self.count += 1;
        let href = at.encoded();
        if self.list.is_empty() || self.list.len() < FAILURES_MAX && self.bytes < FAILURE_BYTES_MAX {
            self.bytes += href.len();
            self.list.push((href, HttpError::at(&at.shown(), e)));
        }
    }

    /// Number of failures.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// 207 with the failures, if there are any.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let mut text = answer::BEGIN.to_string();
        self.list.iter().for_each(|(href, error)| answer::failed(&mut text, href, error.status, &error.why));
        (self.count > 0).then(|| body::xml(StatusCode::MULTI_STATUS, text + answer::END))
    }
}

/// Removes an entry, by its name in its directory, with everything below it. What cannot be removed
/// stays, with the directories above it, and is reported.
///
/// # Errors
/// It could not be removed itself, for another reason than something below it.
pub(crate) async fn remove_tree(place: &Resource) -> Result<Failures> {
    remove_if(place, Precondition::Any).await
}

/// Removes an entry; anything but a directory only if it meets the condition `over`.
async fn remove_if(place: &Resource, over: Precondition) -> Result<Failures> {
    let (tree, name) = (&place.tree, &place.path);
    match tree.remove_if(name, over, false).await {
        Ok(()) => return Ok(Failures::default()),
        Err(Error::IsDir) => {}
        Err(Error::Changed) => return Err(HttpError::precondition()),
        Err(e) => return Err(place.error(&e)),
    }
    let spot = tree.spot(name, false).await.map_err(|e| place.error(&e))?;
    let dir = spot.attr.ok_or_else(|| place.error(&Error::NotFound))?;
    let failures = clear(tree, dir.node, &place.dav, None).await;
    if failures.count() == 0 {
        tree.remove_dir(name).await.map_err(|e| place.error(&e))?;
    }
    Ok(failures)
}

/// Removes the copied entries in this directory, where they were. Entries that were added or
/// changed since then stay, with the directories above them, and are reported.
///
/// # Errors
/// As of [`remove_tree`].
pub(crate) async fn remove_moved(
    place: &Resource,
    dir: NodeId,
    was: &Attr,
    moved: &CopiedEntries,
) -> leeward_fs::Result<Failures> {
    let (tree, name) = (&place.tree, &place.path);
    let mut failures = Failures::default();
    let removed = match was.kind {
        Kind::Dir => {
            failures = clear(tree, was.node, &place.dav, Some(moved)).await;
            let there = tree.spot(name, false).await?.attr;
            match there.is_some_and(|there| there.node == was.node) && failures.count() == 0 {
                true => tree.remove_dir(name).await,
                // another one by now, or not empty
                false => Ok(()),
            }
        }
        _ => remove_if_moved(tree, dir, place.dav.name().unwrap_or_default(), moved).await,
    };
    match removed {
        Ok(()) | Err(Error::NotFound) => {}
        Err(e) => failures.add(&place.dav, &e),
    }
    Ok(failures)
}

/// Removes everything in a directory; of a MOVE, only what it has copied.
async fn clear(tree: &Tree, dir: NodeId, at: &DavPath, moved: Option<&CopiedEntries>) -> Failures {
    let mut failures = Failures::default();
    let mut walk = Walk::new(tree, dir, at, 0);
    while let Some(step) = walk.next().await {
        match step {
            Step::Entries(entries) => {
                let removals = entries
                    .into_iter()
                    .map(|entry| remove_entry(walk.tree().clone(), (walk.node(), entry.name), moved));
                let mut removals = stream::iter(removals).buffer_unordered(AT_ONCE);
                while let Some((name, removed)) = removals.next().await {
                    tell(&mut failures, &walk, &name, removed);
                }
            }
            Step::Dir(dir) => {
                let known = |above: NodeId, there: &Attr| match moved {
                    Some(moved) if !moved.has(above, &dir.name, there) => Err(Error::Changed),
                    _ => Ok(()),
                };
                let entered = walk.enter(&dir, failures.count(), known).await;
                tell(&mut failures, &walk, &dir.name, entered);
            }
            Step::Failed(e) => tell(&mut failures, &walk, b"", Err(e)),
            // a directory with something in it that could not be removed needs no report of its own
            Step::Done(name, _, before) if !name.is_empty() && before == failures.count() => {
                let removed = walk.tree().remove_dir(&path_of(&name)).await;
                tell(&mut failures, &walk, &name, removed);
            }
            Step::Done(..) => {}
        }
    }
    failures
}

fn tell(failures: &mut Failures, walk: &Walk<usize>, name: &[u8], done: leeward_fs::Result<()>) {
    match done {
        // another request has removed it
        Ok(()) | Err(Error::NotFound) => {}
        Err(e) => failures.add(&walk.at(name), &e),
    }
}

async fn remove_entry(
    tree: Tree,
    (dir, name): (NodeId, Box<[u8]>),
    moved: Option<&CopiedEntries>,
) -> (Box<[u8]>, leeward_fs::Result<()>) {
    let removed = match moved {
        None => tree.remove(&path_of(&name), false).await,
        Some(moved) => remove_if_moved(&tree, dir, &name, moved).await,
    };
    (name, removed)
}

/// Removes an entry of the directory that is the root of this tree if it was copied and is
/// unchanged since then.
async fn remove_if_moved(
    tree: &Tree,
    dir: NodeId,
    name: &[u8],
    moved: &CopiedEntries,
) -> leeward_fs::Result<()> {
    let path = path_of(name);
    // removing one name of a file changes the file under its other names
    for _ in 0..LINKS_TRIES {
        let there = tree.spot(&path, false).await?.attr.ok_or(Error::NotFound)?;
        if !moved.has(dir, name, &there) {
            return Err(Error::Changed);
        }
        match tree.remove_if(&path, Precondition::This(there.node, there.ctime), false).await {
            Err(Error::Changed) => {}
            removed => return removed,
        }
    }
    Err(Error::Changed)
}
