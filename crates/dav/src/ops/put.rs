//! PUT: streamed to a file without a name, which takes its place when all of it is there, durable and verified.

use super::dead;
use crate::asked::{Asked, Place, etag};
use crate::body::{self, Answer, Body};
use crate::head::condition::{self, Current, Verdict};
use crate::head::digest::{self, Claim};
use crate::locks::Change;
use crate::oops::{Oops, Result};
use crate::sums;
use http::{StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use leeward_auth::Activity;
use leeward_door::listen::Turn;
use leeward_door::{Finish, Upload, notes};
use leeward_fs::{Attr, Error, Kind, Over, Time};

/// PUT.
pub(crate) async fn put(asked: &Asked, mut body: Body, turn: Turn) -> Result<Answer> {
    if asked.headers.contains_key(header::CONTENT_RANGE) {
        return Err(Oops::bad("a part of a file cannot be put: send all of it"));
    }
    let target = Target::of(asked).await?;
    let mut writing = target.begin(body.size_hint().exact()).await?;
    drop(turn);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Oops::bad("the body ended early: nothing was stored"))?;
        if let Ok(bytes) = frame.into_data() {
            writing.write(bytes).await?;
        }
    }
    let replaced = target.replaces();
    let modified = modified_of(asked);
    let attr = writing.finish(&digest::claims(&asked.headers), modified).await?;
    let status = if replaced { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
    let answer = body::headers(body::empty(status), [(header::ETAG, etag(&attr).as_str())]);
    Ok(if modified.is_some() {
        body::headers(answer, [(http::HeaderName::from_static("x-oc-mtime"), "accepted")])
    } else {
        answer
    })
}

/// The time of modification that a client wants its file to have, seconds since 1970.
fn modified_of(asked: &Asked) -> Option<Time> {
    let text = asked.headers.get("x-oc-mtime")?.to_str().ok()?;
    let secs = text.split('.').next()?.parse().ok()?;
    Some(Time { secs, nanos: 0 })
}

/// Where a file is to be put: all that can be checked before its content is there has been.
pub(crate) struct Target {
    place: Place,
    over: Over,
    /// What is replaced; a symbolic link itself.
    old: Option<Attr>,
    /// Whether directories above are made.
    parents: bool,
}

impl Target {
    /// For the path of this request.
    ///
    /// # Errors
    /// Conditions, locks, rights; there is a directory, or none above.
    pub(crate) async fn of(asked: &Asked) -> Result<Target> {
        let refused = |why: &str| {
            let why = format!("{}: {why}", asked.path.shown());
            Oops::new(StatusCode::METHOD_NOT_ALLOWED, why).header(header::ALLOW, crate::shared::METHODS)
        };
        if asked.path.has_slash() || asked.path.names().is_empty() {
            return Err(refused("is a directory: a file's name does not end in a slash"));
        }
        let (old, shown) = asked.place(Activity::Stat)?.named().await?;
        let place = asked.place(if old.is_some() { Activity::Modify } else { Activity::Create })?;
        if shown.is_some_and(|shown| shown.kind == Kind::Dir) {
            return Err(refused("is a directory"));
        }
        let tag = shown.map(|shown| (etag(&shown), shown.mtime.secs));
        let current = tag.as_ref().map(|(etag, modified)| Current { etag, modified: *modified });
        if condition::check(&asked.headers, false, current)? != Verdict::Go {
            return Err(Oops::precondition());
        }
        let change = if old.is_some() { Change::Content } else { Change::NewName };
        asked.check_locks(&[(&asked.path, change)]).await?;
        let parents = match place.check_parent().await {
            Err(oops) if oops.status == StatusCode::CONFLICT && asked.is_bearer() => {
                check_parents(asked).await?;
                true
            }
            checked => checked.map(|()| false)?,
        };
        let may_replace = asked.allow(Activity::Modify, &asked.path).is_ok();
        let over = over(old, may_replace, is_conditional(asked));
        Ok(Target { place, over, old, parents })
    }

    /// Whether something is there.
    pub(crate) fn replaces(&self) -> bool {
        self.old.is_some()
    }

    /// Refuses to replace: `Overwrite: F`.
    ///
    /// # Errors
    /// 412: something is there.
    pub(crate) fn only_new(mut self) -> Result<Target> {
        if self.replaces() {
            let why = format!("{} is there already, and Overwrite is F", self.place.dav.shown());
            return Err(Oops::new(StatusCode::PRECONDITION_FAILED, why));
        }
        self.over = Over::Nothing;
        Ok(self)
    }

    /// Begins to write. `bytes`: how many will come, if that is known.
    ///
    /// # Errors
    /// As `open` gives them; a quota without room.
    pub(crate) async fn begin(&self, bytes: Option<u64>) -> Result<Writing> {
        let mut upload =
            self.place.tree.create(&self.place.path, bytes).await.map_err(|e| self.place.oops(&e))?;
        upload.keep(&[dead::ATTRIBUTE]);
        let (place, over, parents) = (self.place.clone(), self.over, self.parents);
        Ok(Writing { place, over, parents, upload: upload.with_digest(sums::Running::default()) })
    }
}

/// Who comes with a token is of the grid, where servers make the directories that are missing above a file: it must cover each of them.
async fn check_parents(asked: &Asked) -> Result<()> {
    let mut at = asked.path.parent();
    while let Some(dir) = at {
        if asked.place_at(Activity::Stat, &dir)?.found(&[]).await?.is_some() {
            return Ok(());
        }
        asked.allow(Activity::MakeDir, &dir)?;
        at = dir.parent();
    }
    Ok(())
}

/// What it may take the place of: what was judged, where that matters.
fn over(old: Option<Attr>, may_replace: bool, conditional: bool) -> Over {
    match old {
        Some(old) if conditional => Over::This(old.node, old.ctime),
        None if conditional || !may_replace => Over::Nothing,
        _ => Over::Any,
    }
}

pub(crate) fn is_conditional(asked: &Asked) -> bool {
    ["if-match", "if-none-match", "if-unmodified-since", "if"]
        .iter()
        .any(|name| asked.headers.contains_key(*name))
}

/// A file on its way. Dropped, nothing is left of it.
pub(crate) struct Writing {
    place: Place,
    over: Over,
    parents: bool,
    upload: Upload<sums::Running>,
}

impl Writing {
    /// More content.
    ///
    /// # Errors
    /// As `write` gives them.
    pub(crate) async fn write(&mut self, bytes: bytes::Bytes) -> Result<()> {
        self.upload.write(bytes).await.map_err(|e| self.place.oops(&e))
    }

    /// Bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.upload.size()
    }

    /// That was all: it gets its name, if it is what is claimed.
    ///
    /// # Errors
    /// 400: a checksum is another. 412: something else is there now.
    pub(crate) async fn finish(self, claims: &[Claim], modified: Option<Time>) -> Result<Attr> {
        let (sums, upload) = self.upload.digested().await.map_err(|e| self.place.oops(&e))?;
        let sums = sums.end();
        if let Some(claim) = claims.iter().find(|claim| !claim.holds(&sums)) {
            let name = claim.algorithm.key();
            let is = sums.get(name).unwrap_or_default();
            return Err(Oops::bad(format!(
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
            Error::Exists | Error::Changed => Oops::precondition(),
            e => self.place.oops(&e),
        })
    }
}
