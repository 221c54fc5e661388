//! Listings: pages of keys in order, by directory or by any other delimiter.

use crate::call::{Call, Shared};
use crate::error;
use crate::names::{KEY_BYTES_MAX, encoded};
use leeward_door::keys::{Key, Keys, Wanted};
use leeward_door::notes::{SUMS, Sums, etag_of};
use leeward_env::hex;
use leeward_fs::{Attr, Kind, Time};
use s3s::dto::{
    CommonPrefix, ETag, EncodingType, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, ObjectStorageClass, Owner, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::time::{Duration, SystemTime};

/// Most keys on a page.
const PAGE_MAX: i32 = 1000;

/// The request of both forms of a listing.
struct Page {
    prefix: String,
    delimiter: String,
    after: String,
    limit: usize,
    url: bool,
    owner: Option<String>,
}

/// The result of both forms.
struct Listed {
    contents: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
    /// The last key or prefix of the page, where there is more.
    next: Option<String>,
}

/// The last second of the year 9999: answers cannot express later times, and files may have any
/// time.
const LAST_SECS: i64 = 253_402_300_799;

/// A time for an answer.
pub(crate) fn timestamp(time: Time) -> Timestamp {
    let whole = Duration::from_secs(time.secs.clamp(0, LAST_SECS) as u64);
    Timestamp::from(SystemTime::UNIX_EPOCH + whole + Duration::from_nanos(time.nanos.into()))
}

/// A time for an answer, in whole seconds.
pub(crate) fn whole_seconds(time: Time) -> Timestamp {
    timestamp(Time { nanos: 0, ..time })
}

fn object(key: String, attr: &Attr, sums: &Sums, page: &Page) -> Object {
    Object {
        key: Some(if page.url { encoded(&key) } else { key }),
        last_modified: Some(timestamp(attr.mtime)),
        e_tag: Some(ETag::Strong(etag_of(sums, attr))),
        size: Some(if attr.kind == Kind::Dir { 0 } else { attr.size as i64 }),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        owner: page.owner.clone().map(|id| Owner { display_name: Some(id.clone()), id: Some(id) }),
        ..Object::default()
    }
}

impl Shared {
    pub(crate) async fn list_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let token = input.continuation_token.clone();
        let after = match &token {
            Some(token) => {
                hex::decode(token).and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
                    S3Error::with_message(
                        S3ErrorCode::InvalidArgument,
                        "The continuation token is not one of ours.",
                    )
                })?
            }
            None => input.start_after.clone().unwrap_or_default(),
        };
        let page = Page {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after,
            limit: limit_of(input.max_keys)?,
            url: is_url(input.encoding_type.as_ref()),
            owner: input.fetch_owner.unwrap_or(false).then(|| call.who.name.to_string()),
        };
        let listed = self.page(&call, &page).await?;
        let text = |text: Option<String>| if page.url { text.map(|t| encoded(&t)) } else { text };
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(text(Some(page.prefix.clone())).unwrap_or_default()),
            delimiter: text(input.delimiter.filter(|delimiter| !delimiter.is_empty())),
            max_keys: Some(page.limit as i32),
            key_count: Some((listed.contents.len() + listed.prefixes.len()) as i32),
            continuation_token: token,
            start_after: text(input.start_after),
            is_truncated: Some(listed.next.is_some()),
            next_continuation_token: listed.next.map(|next| hex::encode(next.as_bytes())),
            contents: Some(listed.contents),
            common_prefixes: Some(listed.prefixes),
            encoding_type: input.encoding_type,
            ..ListObjectsV2Output::default()
        }))
    }

    pub(crate) async fn list_v1(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let page = Page {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after: input.marker.clone().unwrap_or_default(),
            limit: limit_of(input.max_keys)?,
            url: is_url(input.encoding_type.as_ref()),
            owner: Some(call.who.name.to_string()),
        };
        let listed = self.page(&call, &page).await?;
        let text = |text: Option<String>| if page.url { text.map(|t| encoded(&t)) } else { text };
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(text(Some(page.prefix.clone())).unwrap_or_default()),
            delimiter: text(input.delimiter.filter(|delimiter| !delimiter.is_empty())),
            marker: Some(text(input.marker).unwrap_or_default()),
            max_keys: Some(page.limit as i32),
            is_truncated: Some(listed.next.is_some()),
            next_marker: text(listed.next),
            contents: Some(listed.contents),
            common_prefixes: Some(listed.prefixes),
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        }))
    }

    async fn page(&self, call: &Call, page: &Page) -> S3Result<Listed> {
        let _turn = self.turn(call).await?;
        let mut listed = Listed { contents: Vec::new(), prefixes: Vec::new(), next: None };
        if page.limit == 0 {
            return Ok(listed);
        }
        let mut wanted = Wanted {
            prefix: page.prefix.clone().into_bytes(),
            after: page.after.clone().into_bytes(),
            by_directory: page.delimiter == "/",
            note: Some(SUMS),
        };
        let mut keys = Keys::new(&call.tree, wanted.clone());
        let mut last = String::new();
        loop {
            let found = listed.contents.len() + listed.prefixes.len();
            let more = keys.next(page.limit + 1 - found).await.map_err(of_listing)?;
            if more.is_empty() {
                if found == 0 {
                    // the bucket may not exist, which is not the same as empty
                    call.tree.access(&Call::root(), 0).await.map_err(error::of_root)?;
                }
                return Ok(listed);
            }
            for key in more {
                // a name that is no UTF-8, or too long, is no key
                let Ok(name) = String::from_utf8(key.name().to_vec()) else { continue };
                if name.len() > KEY_BYTES_MAX {
                    continue;
                }
                if listed.contents.len() + listed.prefixes.len() == page.limit {
                    listed.next = Some(last);
                    return Ok(listed);
                }
                if let Some(prefix) = other_prefix(&name, page) {
                    let prefix = prefix.to_owned();
                    // this stands for everything below it
                    wanted.after = [prefix.as_bytes(), &[0xff]].concat();
                    keys = Keys::new(&call.tree, wanted.clone());
                    last = prefix.clone() + "\u{10ffff}";
                    listed.prefixes.push(common(prefix, page));
                    break;
                }
                last.clone_from(&name);
                match key {
                    Key::Prefix(_) => listed.prefixes.push(common(name, page)),
                    Key::Empty(_, attr) => listed.contents.push(object(name, &attr, &Sums::default(), page)),
                    Key::File(_, attr, note) => {
                        let sums = Sums::of(note.as_deref(), &attr);
                        listed.contents.push(object(name, &attr, &sums, page));
                    }
                }
            }
        }
    }
}

/// The common prefix of a key by a delimiter other than `/`.
fn other_prefix<'a>(name: &'a str, page: &Page) -> Option<&'a str> {
    if page.delimiter.is_empty() || page.delimiter == "/" {
        return None;
    }
    let rest = name.strip_prefix(&page.prefix)?;
    let at = rest.find(&page.delimiter)?;
    Some(&name[..page.prefix.len() + at + page.delimiter.len()])
}

fn common(prefix: String, page: &Page) -> CommonPrefix {
    CommonPrefix { prefix: Some(if page.url { encoded(&prefix) } else { prefix }) }
}

fn of_listing(e: leeward_fs::Error) -> S3Error {
    match e {
        leeward_fs::Error::Access => S3Error::with_message(
            S3ErrorCode::AccessDenied,
            "The modes and ACLs of a directory do not permit this user to list it.",
        ),
        e => error::of(e),
    }
}

fn limit_of(max_keys: Option<i32>) -> S3Result<usize> {
    match max_keys {
        Some(n) if n < 0 => {
            Err(S3Error::with_message(S3ErrorCode::InvalidArgument, "max-keys cannot be negative."))
        }
        n => Ok(n.unwrap_or(PAGE_MAX).min(PAGE_MAX) as usize),
    }
}

fn is_url(encoding: Option<&EncodingType>) -> bool {
    encoding.is_some_and(|e| e.as_str() == EncodingType::URL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::dto::TimestampFormat;

    #[test]
    fn any_time_of_a_file_can_be_told() {
        let year = |secs| {
            let mut text = Vec::new();
            timestamp(Time { secs, nanos: 0 }).format(TimestampFormat::DateTime, &mut text).expect("a time");
            String::from_utf8_lossy(&text[..4]).into_owned()
        };
        assert_eq!([i64::MIN, 0, 1_763_769_600, i64::MAX].map(year), ["1970", "1970", "2025", "9999"]);
    }
}
