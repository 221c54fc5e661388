//! GET and HEAD: files, whole and in pieces, with checksums; directories as a page for people.

use super::pages::{Page, pages};
use crate::body::{self, Answer, BoxError};
use crate::error::too_busy;
use crate::error::{HttpError, Result};
use crate::head::condition::{self, Current, Verdict};
use crate::head::range::{self, Piece, Wanted};
use crate::head::{digest, once};
use crate::request::{Request, Resource, etag};
use crate::{date, kind, listing, sums};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use leeward_auth::Activity;
use leeward_door::{File, limits, notes};
use leeward_env::Env;
use leeward_fs::{Attr, Entry, Error, Kind};
use std::time::Duration;

const KEPT: &[&[u8]] = &[notes::SUMS, notes::HEADERS];
/// The policy for files of users in browsers: show them, and nothing else.
const SANDBOX: &str =
    "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'";

/// HEAD.
pub(crate) async fn head(request: &Request) -> Result<Answer> {
    let place = request.place(Activity::Stat)?;
    let found = place.must(KEPT).await?;
    if found.attr.kind == Kind::Dir {
        return Ok(body::headers(
            body::empty(StatusCode::OK),
            [(header::CONTENT_TYPE, listing::CONTENT_TYPE)],
        ));
    }
    let mut headers = headers_of(&place, &found.attr, &found.xattrs);
    if condition_of(request, &found.attr)? == Verdict::NotModified {
        return Ok(with_headers(body::empty(StatusCode::NOT_MODIFIED), headers));
    }
    if digest::Wanted::of(&request.headers).is_some() {
        // a client that may not read gets the kept checksums
        let place = request.place(Activity::Read).ok();
        let kept = notes::Sums::of(found.xattrs[0].as_deref(), &found.attr);
        add_digest(request, place.as_ref(), kept, &mut headers).await?;
    }
    headers.insert(header::CONTENT_LENGTH, found.attr.size.into());
    Ok(with_headers(body::empty(StatusCode::OK), headers))
}

/// GET.
pub(crate) async fn get(request: &Request) -> Result<Answer> {
    let place = request.place(Activity::Read).or_else(|error| match request.place(Activity::List) {
        // it may be a directory
        Ok(place) => Ok(place),
        Err(_) => Err(error),
    })?;
    let file = match place.tree.open(&place.path, KEPT).await {
        Ok(file) => file,
        Err(Error::IsDir) => return list(request).await,
        Err(Error::NotDir) => return Err(place.error(&Error::NotFound)),
        Err(e) => return Err(place.error(&e)),
    };
    request.allow(Activity::Read, &request.path)?;
    let mut headers = headers_of(&place, &file.attr, &file.xattrs);
    if condition_of(request, &file.attr)? == Verdict::NotModified {
        return Ok(with_headers(body::empty(StatusCode::NOT_MODIFIED), headers));
    }
    let kept = notes::Sums::of(file.xattrs[0].as_deref(), &file.attr);
    add_digest(request, Some(&place), kept, &mut headers).await?;
    let wanted = match once(&request.headers, "range")? {
        Some(text) if condition::range_counts(&request.headers, current(&file.attr, &etag(&file.attr)))? => {
            range::wanted(text, file.attr.size)
        }
        _ => Wanted::Whole,
    };
    Ok(match wanted {
        Wanted::Whole => whole(file, headers),
        Wanted::Pieces(pieces) => match &pieces[..] {
            [piece] => part(file, piece.clone(), headers),
            _ => parts(file, pieces, headers, &boundary(&request.dav.env)),
        },
        Wanted::Nothing => {
            let size = format!("bytes */{}", file.attr.size);
            let answer = body::empty(StatusCode::RANGE_NOT_SATISFIABLE);
            body::headers(answer, [(header::CONTENT_RANGE, size.as_str())])
        }
    })
}

fn whole(file: File, mut headers: HeaderMap) -> Answer {
    let size = file.attr.size;
    headers.insert(header::CONTENT_LENGTH, size.into());
    let mut answer = with_headers(body::empty(StatusCode::OK), headers);
    *answer.body_mut() = body::stream(file.stream(0..size));
    answer
}

fn part(file: File, piece: Piece, mut headers: HeaderMap) -> Answer {
    let range = range::content_range(&piece, file.attr.size);
    headers.insert(header::CONTENT_LENGTH, (piece.end - piece.start).into());
    headers.extend(HeaderValue::from_str(&range).map(|range| (header::CONTENT_RANGE, range)));
    let mut answer = with_headers(body::empty(StatusCode::PARTIAL_CONTENT), headers);
    *answer.body_mut() = body::stream(file.stream(piece));
    answer
}

/// The separator between the parts of an answer: random, so that no file can contain it.
fn boundary(env: &Env) -> String {
    format!("{:016x}{:016x}", env.random(), env.random())
}

/// `multipart/byteranges`.
fn parts(file: File, pieces: Vec<Piece>, mut headers: HeaderMap, boundary: &str) -> Answer {
    let kind = headers.remove(header::CONTENT_TYPE);
    let kind = kind.as_ref().and_then(|kind| kind.to_str().ok()).unwrap_or("application/octet-stream");
    let size = file.attr.size;
    let titled: Vec<(Bytes, Piece)> = pieces
        .into_iter()
        .map(|piece| {
            let range = range::content_range(&piece, size);
            let title = format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n");
            (Bytes::from(title), piece)
        })
        .collect();
    let end = Bytes::from(format!("\r\n--{boundary}--\r\n"));
    let length =
        titled.iter().map(|(title, piece)| title.len() as u64 + piece.end - piece.start).sum::<u64>();
    headers.insert(header::CONTENT_LENGTH, (length + end.len() as u64).into());
    let kind = format!("multipart/byteranges; boundary={boundary}");
    headers.extend(HeaderValue::from_str(&kind).map(|kind| (header::CONTENT_TYPE, kind)));
    let content = stream::iter(titled).flat_map(move |(title, piece)| {
        let data = file.clone().stream(piece).map(|bytes| bytes.map_err(BoxError::from));
        stream::once(async { Ok(title) }).chain(data)
    });
    let mut answer = with_headers(body::empty(StatusCode::PARTIAL_CONTENT), headers);
    *answer.body_mut() = body::stream(content.chain(stream::once(async { Ok(end) })));
    answer
}

/// The headers for a file, except its length.
fn headers_of(place: &Resource, attr: &Attr, kept: &[Option<Vec<u8>>]) -> HeaderMap {
    let said = notes::headers_of(kept.get(1).and_then(|value| value.as_deref()));
    let kind = said
        .get("content-type")
        .map_or_else(|| kind::of(place.dav.name().unwrap_or_default()), String::as_str);
    let list: [(HeaderName, &str); 6] = [
        (header::CONTENT_TYPE, kind),
        (header::ETAG, &etag(attr)),
        (header::LAST_MODIFIED, &date::http(attr.mtime.secs)),
        (header::ACCEPT_RANGES, "bytes"),
        (header::CONTENT_SECURITY_POLICY, SANDBOX),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let list = list.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(value).ok()?)));
    list.collect()
}

fn with_headers(mut answer: Answer, headers: HeaderMap) -> Answer {
    *answer.headers_mut() = headers;
    answer
}

fn current<'e>(attr: &Attr, etag: &'e str) -> Current<'e> {
    Current { etag, modified: attr.mtime.secs }
}

fn condition_of(request: &Request, attr: &Attr) -> Result<Verdict> {
    match condition::check(&request.headers, true, Some(current(attr, &etag(attr))))? {
        Verdict::Failed => Err(HttpError::precondition()),
        verdict => Ok(verdict),
    }
}

/// Adds the wanted checksums; one that is not kept is computed, and kept from then on.
async fn add_digest(
    request: &Request,
    place: Option<&Resource>,
    kept: notes::Sums,
    headers: &mut HeaderMap,
) -> Result<()> {
    let Some(wanted) = digest::Wanted::of(&request.headers) else { return Ok(()) };
    let sums = match place {
        Some(place) if !is_all(&wanted, &kept) => compute(place, &wanted).await?,
        _ => kept,
    };
    if let Some((name, value)) = wanted.answer(&sums)
        && let Ok(value) = HeaderValue::from_str(&value)
    {
        headers.insert(name, value);
    }
    Ok(())
}

fn is_all(wanted: &digest::Wanted, kept: &notes::Sums) -> bool {
    wanted.algorithms().iter().all(|a| sums::value(kept, *a).is_some())
}

/// Reads a file to compute the wanted checksums, unless another request has just done so.
///
/// # Errors
/// As for reading; 503 while too many files are read for that.
async fn compute(place: &Resource, wanted: &digest::Wanted) -> Result<notes::Sums> {
    let patience = Duration::from_secs(limits::TURN_SECS_MAX);
    let hashing = place.tree.files().hashing();
    let turn = hashing.take_within(place.tree.ctx().flow.uid, 1, patience).await;
    let _turn = turn.ok_or_else(|| too_busy(limits::TURN_SECS_MAX))?;
    let file = place.tree.open(&place.path, &[notes::SUMS]).await.map_err(|e| place.error(&e))?;
    let attr = file.attr;
    let kept = notes::Sums::of(file.xattrs[0].as_deref(), &attr);
    if is_all(wanted, &kept) {
        return Ok(kept);
    }
    let mut running = sums::Running::default();
    let mut chunks = std::pin::pin!(file.clone().stream(0..attr.size));
    while let Some(chunk) = chunks.next().await {
        running.add(&chunk.map_err(|e| place.error(&e))?);
    }
    let mut sums = running.end();
    kept.iter().filter(|(name, _)| *name == "etag").for_each(|(name, value)| sums.set(name, value));
    // if it cannot be kept it is computed again
    let _ = file.keep(notes::SUMS, sums.to_attribute(attr.size, attr.mtime)).await;
    Ok(sums)
}

/// A directory for people.
async fn list(request: &Request) -> Result<Answer> {
    let place = request.place(Activity::List)?;
    if !request.path.has_slash() && !request.path.names().is_empty() {
        // names on the page are relative to this
        let there = request.path.clone().with_slash(true).encoded();
        let answer = body::empty(StatusCode::MOVED_PERMANENTLY);
        return Ok(body::headers(answer, [(header::LOCATION, there.as_str())]));
    }
    let page = pages(place.clone(), listing::begin(&place.dav), Rows, listing::END).await?;
    let mut answer = body::empty(StatusCode::OK);
    *answer.body_mut() = page;
    let list = [(header::CONTENT_TYPE, listing::CONTENT_TYPE), (header::CONTENT_SECURITY_POLICY, SANDBOX)];
    Ok(body::headers(answer, list))
}

struct Rows;

impl Page for Rows {
    async fn write(&mut self, dir: &Resource, entries: &[Entry], out: &mut String) {
        for entry in entries {
            let (size, modified) = entry.attr.map_or((0, 0), |attr| (attr.size, attr.mtime.secs));
            listing::entry(out, &dir.dav, &entry.name, entry.kind == Kind::Dir, size, modified);
        }
    }
}
