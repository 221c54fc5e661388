//! Conditions of requests: what the existing object must be, for the request to proceed.

use crate::call::Shared;
use crate::error;
use crate::list::whole_seconds;
use crate::objects::{Object, look};
use hyper::header::{ETAG, HeaderMap, HeaderName};
use leeward_door::{Path, Tree};
use leeward_fs::{Attr, Error, Kind, Precondition};
use s3s::dto::{ETag, ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// What a request demands of the existing object.
#[derive(Default)]
pub(crate) struct Conditions {
    pub(crate) matches: Option<ETagCondition>,
    pub(crate) none_match: Option<ETagCondition>,
    pub(crate) modified_since: Option<Timestamp>,
    pub(crate) unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Takes the conditions from a request's fields.
    pub(crate) fn of(
        matches: &Option<ETagCondition>,
        none_match: &Option<ETagCondition>,
        modified_since: &Option<Timestamp>,
        unmodified_since: &Option<Timestamp>,
    ) -> Conditions {
        Conditions {
            matches: matches.clone(),
            none_match: none_match.clone(),
            modified_since: modified_since.clone(),
            unmodified_since: unmodified_since.clone(),
        }
    }

    /// Whether there are no conditions.
    pub(crate) fn is_empty(&self) -> bool {
        self.matches.is_none()
            && self.none_match.is_none()
            && self.modified_since.is_none()
            && self.unmodified_since.is_none()
    }

    /// Checks the existing object. `read`: a condition which says that the client has it already is
    /// answered with `304`.
    pub(crate) fn check(&self, etag: &ETag, attr: &Attr, read: bool) -> S3Result<()> {
        let modified = whole_seconds(attr.mtime);
        match (&self.matches, &self.unmodified_since) {
            (Some(ETagCondition::ETag(wanted)), _) if !etag.strong_cmp(wanted) => {
                return Err(error::of(Error::Changed));
            }
            (None, Some(since)) if modified > *since => return Err(error::of(Error::Changed)),
            _ => {}
        }
        let has_it = match (&self.none_match, &self.modified_since) {
            (Some(ETagCondition::Any), _) => true,
            (Some(ETagCondition::ETag(known)), _) => etag.weak_cmp(known),
            (None, Some(since)) => modified <= *since,
            (None, None) => false,
        };
        match (has_it, read) {
            (true, true) => Err(not_modified(etag)),
            (true, false) => Err(error::of(Error::Changed)),
            _ => Ok(()),
        }
    }
}

/// The answer that the client has the object already, with its entity tag.
fn not_modified(etag: &ETag) -> S3Error {
    let e = S3Error::new(S3ErrorCode::NotModified);
    match etag.to_http_header() {
        Ok(etag) => error::with_header(e, ETAG, etag),
        Err(_) => e,
    }
}

/// A condition in a header that the library has no field for.
pub(crate) fn in_header(headers: &HeaderMap, name: HeaderName) -> S3Result<Option<ETagCondition>> {
    let parsed = headers.get(&name).map(|value| ETagCondition::parse_http_header(value.as_bytes()));
    let wrong = |_| S3Error::with_message(S3ErrorCode::InvalidArgument, format!("{name} is no ETag."));
    parsed.transpose().map_err(wrong)
}

impl Shared {
    /// What a new object may replace, by the conditions of its request.
    pub(crate) async fn over(
        &self,
        tree: &Tree,
        path: &Path,
        matches: Option<&ETagCondition>,
        none_match: Option<&ETagCondition>,
    ) -> S3Result<Precondition> {
        match (matches, none_match) {
            (None, None) => Ok(Precondition::Any),
            (None, Some(ETagCondition::Any)) => Ok(Precondition::Nothing),
            (matches, none_match) => {
                let (there, over) = match look_and_over(tree, path).await {
                    Err(e) if *e.code() == S3ErrorCode::NoSuchKey && matches.is_none() => {
                        return Ok(Precondition::Nothing);
                    }
                    other => other?,
                };
                let conditions = Conditions {
                    matches: matches.cloned(),
                    none_match: none_match.cloned(),
                    ..Conditions::default()
                };
                conditions.check(&there.etag, &there.attr, false)?;
                Ok(over)
            }
        }
    }
}

/// The object of a key, and the condition for replacing or removing it: where the key is a symbolic
/// link, that is about the link, not its target.
pub(crate) async fn look_and_over(tree: &Tree, path: &Path) -> S3Result<(Object, Precondition)> {
    // first the link: a change of it after this is noticed
    let named = tree.spot(path, false).await.ok().and_then(|spot| spot.attr);
    let there = look(tree, path).await?;
    let this = named.filter(|named| named.kind == Kind::Symlink).unwrap_or(there.attr);
    Ok((there, Precondition::This(this.node, this.ctime)))
}
