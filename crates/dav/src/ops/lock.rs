//! LOCK and UNLOCK.

use super::propfind::locks_as_xml;
use super::put::Target;
use crate::body::{self, Answer};
use crate::error::{HttpError, Result};
use crate::head::ifs::IfHeader;
use crate::head::{self, Depth};
use crate::locks::{Change, LONGEST, Lock, LockRefusal, LockRequest};
use crate::request::{Request, Resource};
use crate::xml::request::LockInfo;
use bytes::Bytes;
use http::{HeaderName, StatusCode};
use leeward_auth::Activity;
use leeward_door::{W, X};
use leeward_fs::{Attr, Kind};
use std::time::Duration;

/// LOCK: takes a lock, or (without a body) extends one.
pub(crate) async fn lock(request: &Request, content: Bytes) -> Result<Answer> {
    let info = LockInfo::parse(&content)?;
    let time = head::timeout(&request.headers, LONGEST);
    let Some(info) = info else { return refresh(request, time) };
    let deep = match head::depth(&request.headers, Depth::Infinity)? {
        Depth::Zero => false,
        Depth::Infinity => true,
        Depth::One => return Err(HttpError::bad("a lock has Depth 0 or infinity")),
    };
    let place = request.place(Activity::Stat)?;
    let found = place.found(&[]).await?;
    let is_there = found.is_some();
    request.allow(if is_there { Activity::Modify } else { Activity::Create }, &request.path)?;
    if let Some(found) = &found {
        check_lockable(request, &place, &found.attr, deep).await?;
    }
    let owner = info.owner;
    let wish = LockRequest {
        path: request.path.clone(),
        deep,
        shared: info.shared,
        user: request.verdict.who.name.clone(),
        owner,
        is_new: !is_there,
        time,
    };
    if is_there {
        return Ok(answer(request, StatusCode::OK, &taken(request, wish)?));
    }
    // a lock on a free name makes an empty file there
    request.check_locks(&[(&request.path, Change::NewName)]).await?;
    let target = Target::of(request).await?.only_new()?;
    let lock = taken(request, wish)?;
    let made = async { target.begin(Some(0)).await?.finish(&[], None).await };
    if let Err(error) = made.await {
        request.dav.locks.give_up(&lock.path, &lock.token, &lock.user);
        return Err(error);
    }
    Ok(answer(request, StatusCode::CREATED, &lock))
}

/// Only a user who may change a resource may lock it; only the owner of a directory may lock
/// everything below it.
async fn check_lockable(request: &Request, place: &Resource, attr: &Attr, deep: bool) -> Result<()> {
    let is_dir = attr.kind == Kind::Dir;
    if deep && is_dir && attr.uid != request.verdict.who.uid {
        let at = place.dav.shown();
        let why =
            format!("{at} is somebody else's directory: lock it with Depth 0, or what you change in it");
        return Err(HttpError::new(StatusCode::FORBIDDEN, why));
    }
    let want = if is_dir { W | X } else { W };
    place.tree.access(&place.path, want).await.map(drop).map_err(|e| place.error(&e))
}

fn taken(request: &Request, wish: LockRequest) -> Result<Lock> {
    request.dav.locks.take(wish).map_err(|no| match no {
        LockRefusal::Taken(at) => {
            let at = at.encoded();
            let why = format!("{at} is locked by somebody else: wait until that lock ends");
            HttpError::new(StatusCode::LOCKED, why).with("no-conflicting-lock", Some(at))
        }
        LockRefusal::Full => {
            HttpError::new(StatusCode::INSUFFICIENT_STORAGE, "there are too many locks: give some up")
        }
    })
}

fn answer(request: &Request, status: StatusCode, lock: &Lock) -> Answer {
    let locks = locks_as_xml(&request.dav.locks, std::slice::from_ref(lock));
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>{locks}</D:lockdiscovery></D:prop>\n"
    );
    let token = format!("<{}>", lock.token);
    body::headers(body::xml(status, text), [(HeaderName::from_static("lock-token"), token.as_str())])
}

/// Extends a lock.
fn refresh(request: &Request, time: Duration) -> Result<Answer> {
    let ifs = IfHeader::of(&request.headers)?;
    for token in ifs.tokens() {
        check_may_lock(request, token)?;
        let refreshed = request.dav.locks.refresh(&request.path, token, &request.verdict.who.name, time);
        if let Some(lock) = refreshed {
            return Ok(answer(request, StatusCode::OK, &lock));
        }
    }
    Err(HttpError::precondition().with("lock-token-matches-request-uri", None))
}

/// A lock is kept and given up by who may take it, wherever it is: its token is told to all who may
/// look.
fn check_may_lock(request: &Request, token: &str) -> Result<()> {
    let Some(lock) = request.dav.locks.named(&request.path, token) else { return Ok(()) };
    let may = request.allow(Activity::Modify, &lock.path);
    if lock.is_new { may.or_else(|_| request.allow(Activity::Create, &lock.path)) } else { may }
}

/// UNLOCK.
pub(crate) async fn unlock(request: &Request) -> Result<Answer> {
    let token = head::lock_token(&request.headers)?
        .ok_or_else(|| HttpError::bad("Lock-Token is missing: it says which lock to give up"))?;
    check_may_lock(request, token)?;
    let (locks, user) = (&request.dav.locks, &request.verdict.who.name);
    if locks.give_up(&request.path, token, user) {
        return Ok(body::empty(StatusCode::NO_CONTENT));
    }
    if locks.named(&request.path, token).is_some() {
        return Err(HttpError::new(StatusCode::FORBIDDEN, "the lock is somebody else's"));
    }
    let why = format!("{} has no such lock", request.path.shown());
    Err(HttpError::conflict(why).with("lock-token-matches-request-uri", None))
}
