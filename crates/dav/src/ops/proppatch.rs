//! PROPPATCH: all changes of a request, or none.

use super::dead::{self, Dead};
use crate::body::{self, Answer};
use crate::error::{HttpError, Result};
use crate::locks::Change;
use crate::request::Request;
use crate::xml::answer::{self, Property};
use crate::xml::request::Patch;
use crate::xml::{DAV, Name};
use bytes::Bytes;
use http::StatusCode;
use leeward_auth::Activity;
use leeward_fs::{Error, Kind};

/// PROPPATCH.
pub(crate) async fn proppatch(request: &Request, content: Bytes) -> Result<Answer> {
    let patches = Patch::parse(&content)?;
    let place = request.place(Activity::UpdateMetadata)?;
    let found = place.must(&[]).await?;
    request.check_locks(&[(&request.path, Change::Content)]).await?;
    let is_protected = |patch: &Patch| patch.name().space == DAV;
    let propstats = if patches.iter().any(is_protected) {
        let (wrong, others): (Vec<&Patch>, Vec<&Patch>) =
            patches.iter().partition(|patch| is_protected(patch));
        vec![(StatusCode::FORBIDDEN, names(&wrong)), (StatusCode::FAILED_DEPENDENCY, names(&others))]
    } else {
        let changes = patches.clone();
        let change = move |old: Option<&[u8]>| {
            let mut dead = Dead::of(old);
            changes.iter().for_each(|patch| dead.apply(patch));
            let new = dead.to_attribute();
            match &new {
                Some(value) if value.len() > dead::BYTES_MAX => Err(Error::AttrTooBig),
                _ => Ok(new),
            }
        };
        place.tree.change_xattr(&place.path, dead::ATTRIBUTE, change).await.map_err(|e| match e {
            Error::AttrTooBig => {
                let (at, most) = (place.dav.shown(), dead::BYTES_MAX);
                let why = format!("properties of {at} would take more than {most} bytes");
                HttpError::new(StatusCode::INSUFFICIENT_STORAGE, why)
            }
            e => place.error(&e),
        })?;
        vec![(StatusCode::OK, names(&patches.iter().collect::<Vec<_>>()))]
    };
    let href = place.dav.clone().with_slash(found.attr.kind == Kind::Dir).encoded();
    let mut text = answer::BEGIN.to_string();
    answer::response(&mut text, &href, &propstats);
    Ok(body::xml(StatusCode::MULTI_STATUS, text + answer::END))
}

/// The properties of some changes, each once, without values.
fn names(patches: &[&Patch]) -> Vec<Property> {
    let mut names: Vec<&Name> = Vec::new();
    for patch in patches {
        if !names.contains(&patch.name()) {
            names.push(patch.name());
        }
    }
    names.into_iter().map(|name| Property { name: name.clone(), value: None }).collect()
}
