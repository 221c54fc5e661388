//! DELETE, and MKCOL.

use super::moved::Moved;
use super::put::is_conditional;
use super::walk::{Step, Walk, path_of};
use crate::asked::{Asked, Place};
use crate::body::{self, Answer};
use crate::head::condition::{self, Current, Verdict};
use crate::head::{self, Depth};
use crate::locks::Change;
use crate::oops::{Oops, Result};
use crate::path::DavPath;
use crate::xml::answer;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{StatusCode, header};
use leeward_auth::Activity;
use leeward_door::Tree;
use leeward_fs::{Attr, Error, Kind, NodeId, Over};

/// What is removed at a time: commits are shared by all who wait for one.
const AT_ONCE: usize = 64;
/// Most failures that are listed.
const FAILURES_MAX: usize = 100;
/// Most bytes of their paths.
const FAILURE_BYTES_MAX: usize = 256 << 10;

/// How often it is looked at again what was changed just before it was to be removed.
const LINKS_TRIES: usize = 8;

/// DELETE: a directory with everything below it.
pub(crate) async fn delete(asked: &Asked) -> Result<Answer> {
    let place = asked.place(Activity::Delete)?;
    if asked.path.names().is_empty() {
        return Err(Oops::new(StatusCode::FORBIDDEN, "the root cannot be removed"));
    }
    if head::depth(&asked.headers, Depth::Infinity)? != Depth::Infinity {
        return Err(Oops::bad("DELETE removes everything below: Depth is infinity"));
    }
    let (entry, shown) = place.must_be_named().await?;
    let etag = crate::asked::etag(&shown);
    let current = Current { etag: &etag, modified: shown.mtime.secs };
    if condition::check(&asked.headers, false, Some(current))? != Verdict::Go {
        return Err(Oops::precondition());
    }
    asked.check_locks(&[(&asked.path, Change::Tree)]).await?;
    let spot = place.spot().await?.ok_or_else(|| place.oops(&Error::NotFound))?;
    let over = if is_conditional(asked) { Over::This(entry.node, entry.ctime) } else { Over::Any };
    let failures = remove_if(&place.by(&spot), over).await?;
    if let Some(answer) = failures.answer() {
        return Ok(answer);
    }
    asked.dav.locks.forget_tree(&asked.path);
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// MKCOL.
pub(crate) async fn mkcol(asked: &Asked, content: Bytes) -> Result<Answer> {
    if !content.is_empty() {
        return Err(Oops::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MKCOL with a body means nothing here"));
    }
    let path = asked.path.clone().with_slash(true);
    let place = asked.place_at(Activity::MakeDir, &path)?;
    let taken = || {
        let why = format!("{} is there already", path.shown());
        Oops::new(StatusCode::METHOD_NOT_ALLOWED, why).header(header::ALLOW, crate::shared::METHODS)
    };
    if place.found(&[]).await.is_ok_and(|found| found.is_some()) || path.names().is_empty() {
        return Err(taken());
    }
    asked.check_locks(&[(&path, Change::NewName)]).await?;
    place.check_parent().await?;
    match place.tree.make_dir(&place.path, false).await {
        Ok(_) => Ok(body::empty(StatusCode::CREATED)),
        Err(Error::Exists) => Err(taken()),
        Err(Error::NotFound) => Err(Oops::conflict(format!("what is above {} is not there", path.shown()))),
        Err(e) => Err(place.oops(&e)),
    }
}

/// What could not be done, by path.
#[derive(Default)]
pub(crate) struct Failures {
    list: Vec<(String, Oops)>,
    bytes: usize,
    count: usize,
}

impl Failures {
    /// One more; where there are many already they say enough.
    pub(crate) fn add(&mut self, at: &DavPath, e: &Error) {
        self.count += 1;
        let href = at.encoded();
        if self.list.is_empty() || self.list.len() < FAILURES_MAX && self.bytes < FAILURE_BYTES_MAX {
            self.bytes += href.len();
            self.list.push((href, Oops::at(&at.shown(), e)));
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// 207 with them, if there are any.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let mut text = answer::BEGIN.to_string();
        self.list.iter().for_each(|(href, oops)| answer::failed(&mut text, href, oops.status, &oops.why));
        (self.count > 0).then(|| body::xml(StatusCode::MULTI_STATUS, text + answer::END))
    }
}

/// Removes what is there, by its name in the directory that it is in, with everything below it. What cannot be removed stays, with what is
/// above it, and is told.
///
/// # Errors
/// It could not be removed itself, and nothing below it is why.
pub(crate) async fn remove_tree(place: &Place) -> Result<Failures> {
    remove_if(place, Over::Any).await
}

/// The same; of what is no directory only if it is as `over` says.
async fn remove_if(place: &Place, over: Over) -> Result<Failures> {
    let (tree, name) = (&place.tree, &place.path);
    match tree.remove_if(name, over, false).await {
        Ok(()) => return Ok(Failures::default()),
        Err(Error::IsDir) => {}
        Err(Error::Changed) => return Err(Oops::precondition()),
        Err(e) => return Err(place.oops(&e)),
    }
    let spot = tree.spot(name, false).await.map_err(|e| place.oops(&e))?;
    let dir = spot.attr.ok_or_else(|| place.oops(&Error::NotFound))?;
    let failures = clear(tree, dir.node, &place.dav, None).await;
    if failures.count() == 0 {
        tree.remove_dir(name).await.map_err(|e| place.oops(&e))?;
    }
    Ok(failures)
}

/// Removes what was copied from a place in this directory, where this was. What came there or was changed since then stays, with what is above
/// it, and is told.
///
/// # Errors
/// As of [`remove_tree`].
pub(crate) async fn remove_moved(
    place: &Place,
    dir: NodeId,
    was: &Attr,
    moved: &Moved,
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

/// Removes all that is in a directory; of a MOVE, only what it has copied.
async fn clear(tree: &Tree, dir: NodeId, at: &DavPath, moved: Option<&Moved>) -> Failures {
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
            // of a directory with something in it that could not be removed nothing needs to be said
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
        // somebody else has removed it
        Ok(()) | Err(Error::NotFound) => {}
        Err(e) => failures.add(&walk.at(name), &e),
    }
}

async fn remove_entry(
    tree: Tree,
    (dir, name): (NodeId, Box<[u8]>),
    moved: Option<&Moved>,
) -> (Box<[u8]>, leeward_fs::Result<()>) {
    let removed = match moved {
        None => tree.remove(&path_of(&name), false).await,
        Some(moved) => remove_if_moved(&tree, dir, &name, moved).await,
    };
    (name, removed)
}

/// Removes an entry of the directory that is the root of this tree if it was copied and is what it was then.
async fn remove_if_moved(tree: &Tree, dir: NodeId, name: &[u8], moved: &Moved) -> leeward_fs::Result<()> {
    let path = path_of(name);
    // of a file with several names each that goes changes the others
    for _ in 0..LINKS_TRIES {
        let there = tree.spot(&path, false).await?.attr.ok_or(Error::NotFound)?;
        if !moved.has(dir, name, &there) {
            return Err(Error::Changed);
        }
        match tree.remove_if(&path, Over::This(there.node, there.ctime), false).await {
            Err(Error::Changed) => {}
            removed => return removed,
        }
    }
    Err(Error::Changed)
}
