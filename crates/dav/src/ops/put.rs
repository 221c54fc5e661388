//! PUT: streamed to a file without a name, which gets its name when its content is complete,
//! durable and verified.

use super::dead;
use crate::body::{self, Answer, Body};
use crate::error::{HttpError, Result};
use crate::head::condition::{self, Current, Verdict};
use crate::head::digest::{self, Claim};
use crate::locks::Change;
use crate::request::{Request, Resource, etag};
use crate::sums;
use http::{StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use leeward_auth::Activity;
use leeward_door::listen::Turn;
use leeward_door::{Finish, Upload, notes};
use leeward_fs::{Attr, Error, Kind, Precondition, Time};

/// PUT.
pub(crate) async fn put(request: &Request, mut body: Body, turn: Turn) -> Result<Answer> {
    if request.headers.contains_key(header::CONTENT_RANGE) {
        return Err(HttpError::bad("a part of a file cannot be put: send all of it"));
    }
    let target = Target::of(request).await?;
    let mut writing = target.begin(body.size_hint().exact()).await?;
    drop(turn);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| HttpError::bad("the body ended early: nothing was stored"))?;
        if let Ok(bytes) = frame.into_data() {
            writing.write(bytes).await?;
        }
    }
    let replaced = target.replaces();
    let modified = modified_of(request);
    let attr = writing.finish(&digest::claims(&request.headers), modified).await?;
    let status = if replaced { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
    let answer = body::headers(body::empty(status), [(header::ETAG, etag(&attr).as_str())]);
    Ok(if modified.is_some() {
        body::headers(answer, [(http::HeaderName::from_static("x-oc-mtime"), "accepted")])
    } else {
        answer
    })
}

/// The time of modification that the client wants the file to have, seconds since 1970.
fn modified_of(request: &Request) -> Option<Time> {
    let text = request.headers.get("x-oc-mtime")?.to_str().ok()?;
    let secs = text.split('.').next()?.parse().ok()?;
    Some(Time { secs, nanos: 0 })
}

/// The target of a PUT: everything is checked that can be checked before the content.
pub(crate) struct Target {
    place: Resource,
    over: Precondition,
    /// Attributes of what is replaced; of a symbolic link itself.
    old: Option<Attr>,
    /// Whether missing directories above are made.
    parents: bool,
}

impl Target {
    /// The target at the path of this request.
    ///
    /// # Errors
    /// Conditions, locks, rights; there is a directory, or none above.
    pub(crate) async fn of(request: &Request) -> Result<Target> {
        let refused = |why: &str| {
            let why = format!("{}: {why}", request.path.shown());
            HttpError::new(StatusCode::METHOD_NOT_ALLOWED, why).header(header::ALLOW, crate::shared::METHODS)
        };
        if request.path.has_slash() || request.path.names().is_empty() {
            return Err(refused("is a directory: a file's name does not end in a slash"));
        }
        let (old, shown) = request.place(Activity::Stat)?.named().await?;
        let place = request.place(if old.is_some() { Activity::Modify } else { Activity::Create })?;
        if shown.is_some_and(|shown| shown.kind == Kind::Dir) {
            return Err(refused("is a directory"));
        }
        let tag = shown.map(|shown| (etag(&shown), shown.mtime.secs));
        let current = tag.as_ref().map(|(etag, modified)| Current { etag, modified: *modified });
        if condition::check(&request.headers, false, current)? != Verdict::Go {
            return Err(HttpError::precondition());
        }
        let change = if old.is_some() { Change::Content } else { Change::NewName };
        request.check_locks(&[(&request.path, change)]).await?;
        let parents = match place.check_parent().await {
            Err(error) if error.status == StatusCode::CONFLICT && request.is_bearer() => {
                check_parents(request).await?;
                true
            }
            checked => checked.map(|()| false)?,
        };
        let may_replace = request.allow(Activity::Modify, &request.path).is_ok();
        let over = over(old, may_replace, is_conditional(request));
        Ok(Target { place, over, old, parents })
    }

    /// Whether something exists there.
    pub(crate) fn replaces(&self) -> bool {
        self.old.is_some()
    }

    /// Refuses to replace: `Overwrite: F`.
    ///
    /// # Errors
    /// Status 412: something exists there.
    pub(crate) fn only_new(mut self) -> Result<Target> {
        if self.replaces() {
            let why = format!("{} is there already, and Overwrite is F", self.place.dav.shown());
            return Err(HttpError::new(StatusCode::PRECONDITION_FAILED, why));
        }
        self.over = Precondition::Nothing;
        Ok(self)
    }

    /// Begins to write. `bytes`: the size, if it is known.
    ///
    /// # Errors
    /// As for `open`; a quota without room.
    pub(crate) async fn begin(&self, bytes: Option<u64>) -> Result<Writing> {
        let mut upload =
            self.place.tree.create(&self.place.path, bytes).await.map_err(|e| self.place.error(&e))?;
        upload.keep(&[dead::ATTRIBUTE]);
        let (place, over, parents) = (self.place.clone(), self.over, self.parents);
        Ok(Writing { place, over, parents, upload: upload.with_digest(sums::Running::default()) })
    }
}

/// Clients with tokens are of the grid, where servers make the missing directories above a file:
/// the token must cover each of them.
async fn check_parents(request: &Request) -> Result<()> {
    let mut at = request.path.parent();
    while let Some(dir) = at {
        if request.place_at(Activity::Stat, &dir)?.found(&[]).await?.is_some() {
            return Ok(());
        }
        request.allow(Activity::MakeDir, &dir)?;
        at = dir.parent();
    }
    Ok(())
}

/// The inode that it may replace: where it matters, only the one that was checked.
fn over(old: Option<Attr>, may_replace: bool, conditional: bool) -> Precondition {
    match old {
        Some(old) if conditional => Precondition::This(old.node, old.ctime),
        None if conditional || !may_replace => Precondition::Nothing,
        _ => Precondition::Any,
    }
}

pub(crate) fn is_conditional(request: &Request) -> bool {
    ["if-match", "if-none-match", "if-unmodified-since", "if"]
        .iter()
        .any(|name| request.headers.contains_key(*name))
}

/// A file that is being written. Dropped, nothing is left of it.
pub(crate) struct Writing {
    place: Resource,
    over: Precondition,
    parents: bool,
    upload: Upload<sums::Running>,
}

impl Writing {
    /// Adds content.
    ///
    /// # Errors
    /// As for `write`.
    pub(crate) async fn write(&mut self, bytes: bytes::Bytes) -> Result<()> {
        self.upload.write(bytes).await.map_err(|e| self.place.error(&e))
    }

    /// Bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.upload.size()
    }

    /// Ends the file: it gets its name, if its checksums are the claimed ones.
    ///
    /// # Errors
    /// Status 400: a checksum differs. 412: something else is there now.
    pub(crate) async fn finish(self, claims: &[Claim], modified: Option<Time>) -> Result<Attr> {
        let (sums, upload) = self.upload.digested().await.map_err(|e| self.place.error(&e))?;
        let sums = sums.end();
        if let Some(claim) = claims.iter().find(|claim| !claim.holds(&sums)) {
            let name = claim.algorithm.key();
            let is = sums.get(name).unwrap_or_default();
            return Err(HttpError::bad(format!(
                "the content has {name} {is}, not what was said of it: nothing was stored"
            )));
        }
        let wall = self.place.tree.files().env().wall();
        let now = Time { secs: (wall / 1_000_000_000) as i64, nanos: (wall % 1_000_000_000) as u32 };
        let modified = modified.unwrap_or(now);
        let attribute = sums.to_attribute(upload.size(), modified);
        let finish = Finish {
            over: self.over,
            xattrs: vec![(notes::SUMS.to_vec(), attribute)],
            modified: Some(modified),
            parents: self.parents,
            completes: None,
        };
        upload.finish(finish).await.map_err(|e| match e {
            Error::Exists | Error::Changed => HttpError::precondition(),
            e => self.place.error(&e),
        })
    }
}
