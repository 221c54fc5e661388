//! DELETE, and MKCOL.

use crate::asked::{Asked, Place, read_all};
use crate::body::{self, Answer, Body};
use crate::head::condition::{self, Current, Verdict};
use crate::head::{self, Depth};
use crate::locks::Change;
use crate::oops::{Oops, Result};
use crate::xml::answer;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use http::{StatusCode, header};
use leeward_auth::Activity;
use leeward_door::limits::LIST_STEP;
use leeward_volume::Error;
use leeward_volume::op::{Entry, Kind};

/// What is removed at a time: commits are shared by all who wait for one.
const AT_ONCE: usize = 64;
/// Most failures that are listed.
const FAILURES_MAX: usize = 100;

/// DELETE: a directory with everything below it.
pub(crate) async fn delete(asked: &Asked) -> Result<Answer> {
    let place = asked.place(Activity::Delete)?;
    if asked.path.names().is_empty() {
        return Err(Oops::new(StatusCode::FORBIDDEN, "the root cannot be removed"));
    }
    if head::depth(&asked.headers, Depth::Infinity)? != Depth::Infinity {
        return Err(Oops::bad("DELETE removes everything below: Depth is infinity"));
    }
    let found = place.must(&[]).await?;
    let etag = crate::asked::etag(&found.attr);
    let current = Current { etag: &etag, modified: found.attr.mtime.secs };
    if condition::check(&asked.headers, false, Some(current))? != Verdict::Go {
        return Err(Oops::precondition());
    }
    asked.check_locks(&[(&asked.path, Change::Tree)]).await?;
    let failures = remove_tree(&place).await?;
    asked.dav.locks.forget_tree(&asked.path);
    Ok(failures.answer().unwrap_or_else(|| body::empty(StatusCode::NO_CONTENT)))
}

/// MKCOL.
pub(crate) async fn mkcol(asked: &Asked, body: Body) -> Result<Answer> {
    if !read_all(body, 4096).await?.is_empty() {
        return Err(Oops::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MKCOL with a body means nothing here"));
    }
    let path = asked.path.clone().with_slash(true);
    let place = asked.place_at(Activity::MakeDir, &path)?;
    if place.found(&[]).await.is_ok_and(|found| found.is_some()) || path.names().is_empty() {
        let why = format!("{} is there already", path.shown());
        return Err(
            Oops::new(StatusCode::METHOD_NOT_ALLOWED, why).header(header::ALLOW, crate::server::METHODS)
        );
    }
    asked.check_locks(&[(&path, Change::NewName)]).await?;
    place.check_parent().await?;
    let made = place.tree.make_dir(&place.path, false).await;
    match made {
        Ok(_) => Ok(body::empty(StatusCode::CREATED)),
        Err(Error::Exists) => {
            let why = format!("{} is there already", path.shown());
            Err(Oops::new(StatusCode::METHOD_NOT_ALLOWED, why).header(header::ALLOW, crate::server::METHODS))
        }
        Err(Error::NotFound) => Err(Oops::conflict(format!("what is above {} is not there", path.shown()))),
        Err(e) => Err(place.oops(&e)),
    }
}

/// What could not be done, by path.
#[derive(Default)]
pub(crate) struct Failures(Vec<(String, Oops)>);

impl Failures {
    /// One more; where there are many already they say enough.
    pub(crate) fn add(&mut self, place: &Place, e: &Error) {
        if self.0.len() < FAILURES_MAX {
            self.0.push((place.dav.encoded(), place.oops(e)));
        }
    }

    /// Those of another.
    pub(crate) fn append(&mut self, other: Failures) {
        self.0.extend(other.0);
        self.0.truncate(FAILURES_MAX);
    }

    /// Whether all went well.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// 207 with all of them, if there are any.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let mut text = answer::BEGIN.to_string();
        self.0.iter().for_each(|(href, oops)| answer::failed(&mut text, href, oops.status, &oops.why));
        (!self.0.is_empty()).then(|| body::xml(StatusCode::MULTI_STATUS, text + answer::END))
    }
}

/// Removes what is there, with everything below it. What cannot be removed stays, with what is above it, and is told.
///
/// # Errors
/// It could not be removed itself, and nothing below it is why.
pub(crate) async fn remove_tree(place: &Place) -> Result<Failures> {
    match place.tree.remove(&place.path, false).await {
        Ok(()) => return Ok(Failures::default()),
        Err(Error::IsDir) => {}
        Err(e) => return Err(place.oops(&e)),
    }
    let mut failures = Failures::default();
    clear(place, &mut failures).await;
    if failures.is_empty() {
        place.tree.remove_dir(&place.path).await.map_err(|e| place.oops(&e))?;
    }
    Ok(failures)
}

/// Removes all that is in a directory.
fn clear<'a>(dir: &'a Place, failures: &'a mut Failures) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let mut after = Vec::new();
        loop {
            let (entries, at_end) = match dir.tree.list(&dir.path, &after, LIST_STEP).await {
                Ok(page) => page,
                Err(e) => return failures.add(dir, &e),
            };
            let Some(last) = entries.last() else { return };
            after = last.name.to_vec();
            let (dirs, files): (Vec<Entry>, Vec<Entry>) =
                entries.into_iter().partition(|e| e.kind == Kind::Dir);
            let files: Vec<Place> = files.iter().map(|entry| dir.join(&entry.name)).collect();
            let removals = stream::iter(files.into_iter().map(remove_file));
            let removed: Vec<_> = removals.buffer_unordered(AT_ONCE).collect().await;
            for (file, removed) in removed {
                // somebody else has removed it
                if let Err(e) = removed
                    && e != Error::NotFound
                {
                    failures.add(&file, &e);
                }
            }
            for entry in dirs {
                remove_dir(&dir.join(&entry.name), failures).await;
            }
            if at_end {
                return;
            }
        }
    })
}

async fn remove_file(file: Place) -> (Place, leeward_volume::Result<()>) {
    let removed = file.tree.remove(&file.path, false).await;
    (file, removed)
}

async fn remove_dir(dir: &Place, failures: &mut Failures) {
    let mut below = Failures::default();
    clear(dir, &mut below).await;
    if below.is_empty()
        && let Err(e) = dir.tree.remove_dir(&dir.path).await
        && e != Error::NotFound
    {
        below.add(dir, &e);
    }
    failures.append(below);
}
