//! LOCK and UNLOCK.

use super::propfind::locks_as_xml;
use super::put::Target;
use crate::asked::{Asked, Place};
use crate::body::{self, Answer};
use crate::head::ifs::Ifs;
use crate::head::{self, Depth};
use crate::locks::{Change, LONGEST, Lock, NoLock, Wish};
use crate::oops::{Oops, Result};
use crate::xml::request::LockInfo;
use bytes::Bytes;
use http::{HeaderName, StatusCode};
use leeward_auth::Activity;
use leeward_door::{W, X};
use leeward_fs::{Attr, Kind};

/// LOCK: takes one, or (without a body) prolongs one.
pub(crate) async fn lock(asked: &Asked, content: Bytes) -> Result<Answer> {
    let info = LockInfo::parse(&content)?;
    let time = head::timeout(&asked.headers, LONGEST);
    let Some(info) = info else {
        let ifs = Ifs::of(&asked.headers)?;
        let user = &asked.verdict.who.name;
        let mut refreshed =
            ifs.tokens().filter_map(|token| asked.dav.locks.refresh(&asked.path, token, user, time));
        return match refreshed.next() {
            Some(lock) => Ok(answer(asked, StatusCode::OK, &lock)),
            None => Err(Oops::precondition().with("lock-token-matches-request-uri", None)),
        };
    };
    let deep = match head::depth(&asked.headers, Depth::Infinity)? {
        Depth::Zero => false,
        Depth::Infinity => true,
        Depth::One => return Err(Oops::bad("a lock has Depth 0 or infinity")),
    };
    let place = asked.place(Activity::Stat)?;
    let found = place.found(&[]).await?;
    let is_there = found.is_some();
    asked.allow(if is_there { Activity::Modify } else { Activity::Create }, &asked.path)?;
    if let Some(found) = &found {
        check_lockable(asked, &place, &found.attr, deep).await?;
    }
    let owner = info.owner;
    let wish = Wish {
        path: asked.path.clone(),
        deep,
        shared: info.shared,
        user: asked.verdict.who.name.clone(),
        owner,
        time,
    };
    if is_there {
        return Ok(answer(asked, StatusCode::OK, &taken(asked, wish)?));
    }
    // a lock on a name makes an empty file of it
    asked.check_locks(&[(&asked.path, Change::NewName)]).await?;
    let target = Target::of(asked).await?.only_new()?;
    let lock = taken(asked, wish)?;
    let made = async { target.begin(Some(0)).await?.finish(&[], None).await };
    if let Err(oops) = made.await {
        asked.dav.locks.give_up(&lock.path, &lock.token, &lock.user);
        return Err(oops);
    }
    Ok(answer(asked, StatusCode::CREATED, &lock))
}

/// Who may not change a thing may not keep others from it; everything below a directory is its owner's alone to lock.
async fn check_lockable(asked: &Asked, place: &Place, attr: &Attr, deep: bool) -> Result<()> {
    let is_dir = attr.kind == Kind::Dir;
    if deep && is_dir && attr.uid != asked.verdict.who.uid {
        let at = place.dav.shown();
        let why =
            format!("{at} is somebody else's directory: lock it with Depth 0, or what you change in it");
        return Err(Oops::new(StatusCode::FORBIDDEN, why));
    }
    let want = if is_dir { W | X } else { W };
    place.tree.access(&place.path, want).await.map(drop).map_err(|e| place.oops(&e))
}

fn taken(asked: &Asked, wish: Wish) -> Result<Lock> {
    asked.dav.locks.take(wish).map_err(|no| match no {
        NoLock::Taken(at) => {
            let at = at.encoded();
            let why = format!("{at} is locked by somebody else: wait until that lock ends");
            Oops::new(StatusCode::LOCKED, why).with("no-conflicting-lock", Some(at))
        }
        NoLock::Full => Oops::new(StatusCode::INSUFFICIENT_STORAGE, "there are too many locks: give some up"),
    })
}

fn answer(asked: &Asked, status: StatusCode, lock: &Lock) -> Answer {
    let locks = locks_as_xml(&asked.dav.locks, std::slice::from_ref(lock));
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>{locks}</D:lockdiscovery></D:prop>\n"
    );
    let token = format!("<{}>", lock.token);
    body::headers(body::xml(status, text), [(HeaderName::from_static("lock-token"), token.as_str())])
}

/// UNLOCK.
pub(crate) async fn unlock(asked: &Asked) -> Result<Answer> {
    let token = head::lock_token(&asked.headers)?
        .ok_or_else(|| Oops::bad("Lock-Token is missing: it says which lock to give up"))?;
    let (locks, user) = (&asked.dav.locks, &asked.verdict.who.name);
    if locks.give_up(&asked.path, token, user) {
        return Ok(body::empty(StatusCode::NO_CONTENT));
    }
    if locks.has(&asked.path, token) {
        return Err(Oops::new(StatusCode::FORBIDDEN, "the lock is somebody else's"));
    }
    let why = format!("{} has no such lock", asked.path.shown());
    Err(Oops::conflict(why).with("lock-token-matches-request-uri", None))
}
