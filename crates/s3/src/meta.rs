//! Attributes beside an object's content: headers that its answers repeat, metadata and tags of its
//! user. Kept as extended attributes.

use leeward_door::notes::{self, HEADERS, HEADERS_BYTES_MAX, Headers, SUMS, Sums};
use leeward_fs::Attr;
use s3s::dto::{Metadata, Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result};
use serde::{Deserialize, Serialize};

/// Attribute with tags, as in a query: `a=b&c=d`.
pub(crate) const TAGS: &[u8] = b"user.leeward.tags";
/// Attributes that are read with an object.
pub(crate) const NOTED: &[&[u8]] = &[SUMS, HEADERS, TAGS];

/// Prefix of headers with metadata of the user.
const OWN: &str = "x-amz-meta-";

/// Most bytes of metadata of the user, names and values: as S3.
const OWN_BYTES_MAX: usize = 2048;

/// The attributes of an object.
pub(crate) struct Noted {
    pub(crate) sums: Sums,
    pub(crate) headers: Headers,
    pub(crate) tags: String,
}

impl Noted {
    /// Reads the values of [`NOTED`].
    pub(crate) fn of(xattrs: &[Option<Vec<u8>>], attr: &Attr) -> Noted {
        let value = |n: usize| xattrs.get(n).and_then(|v| v.as_deref());
        Noted {
            sums: Sums::of(value(0), attr),
            headers: notes::headers_of(value(1)),
            tags: String::from_utf8_lossy(value(2).unwrap_or_default()).into_owned(),
        }
    }

    /// One of the kept headers.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).cloned()
    }

    /// Metadata of the user.
    pub(crate) fn metadata(&self) -> Option<Metadata> {
        let own = self
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(OWN)?.to_owned(), value.clone())));
        let own: Metadata = own.collect();
        (!own.is_empty()).then_some(own)
    }

    /// Number of tags.
    pub(crate) fn tag_count(&self) -> Option<i32> {
        let count = self.tags.split('&').filter(|t| !t.is_empty()).count();
        (count > 0).then_some(count as i32)
    }

    pub(crate) fn expires(&self) -> Option<Timestamp> {
        Timestamp::parse(TimestampFormat::HttpDate, self.headers.get("expires")?).ok()
    }
}

/// [`Kept`] of a request that makes an object: all such requests have these fields.
macro_rules! kept {
    ($input:expr) => {
        $crate::meta::Kept::default()
            .header("content-type", $input.content_type.as_deref())
            .header("content-encoding", $input.content_encoding.as_deref())
            .header("content-language", $input.content_language.as_deref())
            .header("content-disposition", $input.content_disposition.as_deref())
            .header("cache-control", $input.cache_control.as_deref())
            .expires($input.expires.as_ref())
            .metadata($input.metadata.take())
    };
}
pub(crate) use kept;

/// Headers of a request that are kept with the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept(Headers);

impl Kept {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a header, if given.
    pub(crate) fn header(mut self, name: &str, value: Option<&str>) -> Kept {
        if let Some(value) = value {
            self.0.insert(name.into(), value.into());
        }
        self
    }

    /// Adds metadata of the user.
    pub(crate) fn metadata(mut self, metadata: Option<Metadata>) -> Kept {
        self.0.extend(
            metadata
                .into_iter()
                .flatten()
                .map(|(name, value)| (format!("{OWN}{}", name.to_ascii_lowercase()), value)),
        );
        self
    }

    /// Checks that metadata of the user is not more than S3 takes.
    ///
    /// # Errors
    /// `MetadataTooLarge`.
    pub(crate) fn checked(self) -> S3Result<Kept> {
        let own = self.0.iter().filter_map(|(name, value)| Some(name.strip_prefix(OWN)?.len() + value.len()));
        if own.sum::<usize>() > OWN_BYTES_MAX {
            return Err(S3Error::with_message(
                S3ErrorCode::MetadataTooLarge,
                "Metadata have at most 2 KB, names and values.",
            ));
        }
        Ok(self)
    }

    /// Adds the time of expiry.
    pub(crate) fn expires(self, expires: Option<&Timestamp>) -> Kept {
        let mut text = Vec::new();
        let formatted = expires.and_then(|t| t.format(TimestampFormat::HttpDate, &mut text).ok());
        match formatted.and_then(|()| String::from_utf8(text).ok()) {
            Some(text) => self.header("expires", Some(&text)),
            None => self,
        }
    }

    /// The attribute, if there are any headers.
    pub(crate) fn attribute(&self) -> S3Result<Option<(Vec<u8>, Vec<u8>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let value = notes::headers_to_attribute(&self.0);
        if value.len() > HEADERS_BYTES_MAX {
            return Err(S3Error::with_message(
                S3ErrorCode::MetadataTooLarge,
                "Headers and metadata have more than 16 KiB.",
            ));
        }
        Ok(Some((HEADERS.to_vec(), value)))
    }
}
