//! Headers `x-amz-*` of requests: each header that S3 knows is used, means nothing here, or is
//! refused. Pure.
//!
//! A header that changes the meaning of a request is never accepted and ignored: a client that asks
//! for an object to be locked, encrypted or granted to somebody must be told that it was not.

use crate::error::not_implemented;
use hyper::HeaderMap;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// How a header is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// The operations that have it in S3 use it.
    Used,
    /// The request means the same without it; the reason.
    Harmless(&'static str),
    /// Refused, unless it has this value, which describes the actual behaviour.
    Unless(&'static str, Refusal),
    /// Refused.
    Refused(Refusal),
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Objects cannot be locked.
    Lock,
    /// Rights are in modes and ACLs of files.
    Grant,
    /// Encryption by the server, or with keys of clients.
    Encryption,
    /// There is nothing like it here.
    Unknown,
}

use Handling::{Harmless, Refused, Unless, Used};

const ANSWER: Handling = Harmless("it is one of answers");
const NO_LOCKS: Handling = Harmless("there are no locks that it would be for");

/// All headers that S3 knows, except those with metadata of users. A name that ends in `*` stands
/// for all that begin so.
pub(crate) const KNOWN: &[(&str, Handling)] = &[
    ("x-amz-abort-date", ANSWER),
    ("x-amz-abort-rule-id", ANSWER),
    ("x-amz-access-point-alias", ANSWER),
    ("x-amz-acl", Used),
    ("x-amz-archive-status", ANSWER),
    ("x-amz-bucket-location-name", ANSWER),
    ("x-amz-bucket-location-type", ANSWER),
    ("x-amz-bucket-object-lock-enabled", Unless("false", Refusal::Lock)),
    ("x-amz-bucket-object-lock-token", Refused(Refusal::Lock)),
    ("x-amz-bucket-region", ANSWER),
    ("x-amz-bypass-governance-retention", NO_LOCKS),
    ("x-amz-checksum-*", Used),
    ("x-amz-confirm-remove-self-bucket-access", Harmless("a policy here takes rights from nobody")),
    ("x-amz-content-sha256", Used),
    ("x-amz-copy-source-server-side-encryption-*", Refused(Refusal::Encryption)),
    ("x-amz-copy-source", Used),
    ("x-amz-copy-source-if-*", Used),
    ("x-amz-copy-source-range", Used),
    ("x-amz-copy-source-version-id", ANSWER),
    ("x-amz-create-session-mode", Refused(Refusal::Unknown)),
    ("x-amz-date", Used),
    ("x-amz-decoded-content-length", Used),
    ("x-amz-delete-marker", ANSWER),
    ("x-amz-expected-bucket-owner", Used),
    ("x-amz-expiration", ANSWER),
    ("x-amz-fwd-*", Refused(Refusal::Unknown)),
    ("x-amz-grant-*", Refused(Refusal::Grant)),
    ("x-amz-id-2", ANSWER),
    ("x-amz-if-match-initiated-time", Used),
    ("x-amz-if-match-last-modified-time", Used),
    ("x-amz-if-match-size", Used),
    ("x-amz-max-parts", Harmless("parts of objects are counted, and never listed")),
    ("x-amz-metadata-directive", Used),
    ("x-amz-mfa", Harmless("S3 goes by it where a bucket asks for it, which none does")),
    ("x-amz-missing-meta", ANSWER),
    ("x-amz-mp-object-size", Used),
    ("x-amz-mp-parts-count", ANSWER),
    ("x-amz-object-attributes", Used),
    ("x-amz-object-lock-*", Refused(Refusal::Lock)),
    ("x-amz-object-ownership", Unless("BucketOwnerEnforced", Refusal::Grant)),
    ("x-amz-object-size", ANSWER),
    (
        "x-amz-optional-object-attributes",
        Harmless("what may be asked for is how far restoring is: nothing is archived"),
    ),
    ("x-amz-part-number-marker", Harmless("parts of objects are counted, and never listed")),
    ("x-amz-rename-source*", Refused(Refusal::Unknown)),
    ("x-amz-replication-status", ANSWER),
    ("x-amz-request-charged", ANSWER),
    ("x-amz-request-id", ANSWER),
    ("x-amz-request-payer", Harmless("nobody pays")),
    ("x-amz-request-route", Refused(Refusal::Unknown)),
    ("x-amz-request-token", Refused(Refusal::Unknown)),
    ("x-amz-restore", ANSWER),
    ("x-amz-restore-output-path", ANSWER),
    ("x-amz-sdk-checksum-algorithm", Used),
    ("x-amz-security-token", Harmless("keys are whole without one")),
    ("x-amz-server-side-encryption*", Refused(Refusal::Encryption)),
    ("x-amz-skip-destination-validation", Refused(Refusal::Unknown)),
    ("x-amz-source-expected-bucket-owner", Used),
    ("x-amz-storage-class", Used),
    ("x-amz-tagging", Used),
    ("x-amz-tagging-count", ANSWER),
    ("x-amz-tagging-directive", Used),
    ("x-amz-trailer", Used),
    ("x-amz-transition-default-minimum-object-size", Refused(Refusal::Unknown)),
    ("x-amz-version-id", ANSWER),
    ("x-amz-website-redirect-location", Refused(Refusal::Unknown)),
    ("x-amz-write-offset-bytes", Refused(Refusal::Unknown)),
];

/// Accepted storage classes: the cell keeps objects at least as safely.
const CLASSES: [&str; 2] = ["STANDARD", "REDUCED_REDUNDANCY"];

/// How a header is handled; `None`: S3 does not know it either, and ignores it.
pub(crate) fn handling(name: &str) -> Option<Handling> {
    let is = |known: &str| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == known,
    };
    KNOWN.iter().find(|(known, _)| is(known)).map(|(_, handling)| *handling)
}

/// Refuses a request that asks for something unsupported. `query`: its parameters, where signed
/// URLs may have what is otherwise in headers.
///
/// # Errors
/// `NotImplemented`, `InvalidRequest`, `InvalidStorageClass`, `InvalidArgument`.
pub(crate) fn check(headers: &HeaderMap, query: &[(String, String)]) -> S3Result<()> {
    for (name, value) in headers {
        check_one(name.as_str(), &String::from_utf8_lossy(value.as_bytes()))?;
    }
    for (name, value) in query {
        let name = name.to_ascii_lowercase();
        // used headers are used only as headers
        if handling(&name).is_some_and(|handling| handling != Used) {
            check_one(&name, value)?;
        }
    }
    Ok(())
}

/// Checks one header, or field of a form.
pub(crate) fn check_one(name: &str, value: &str) -> S3Result<()> {
    match handling(name) {
        Some(Refused(why)) => Err(refused(name, why)),
        Some(Unless(harmless, why)) if !value.trim().eq_ignore_ascii_case(harmless) => {
            Err(refused(name, why))
        }
        Some(Used) if name.ends_with("-directive") && !["COPY", "REPLACE"].contains(&value) => {
            Err(S3Error::with_message(S3ErrorCode::InvalidArgument, format!("{name} is COPY or REPLACE.")))
        }
        Some(Used) if name == "x-amz-storage-class" && !CLASSES.contains(&value) => {
            Err(S3Error::with_message(
                S3ErrorCode::InvalidStorageClass,
                "There is one storage class, STANDARD: which pool data is in is a setting of its volume.",
            ))
        }
        _ => Ok(()),
    }
}

fn refused(name: &str, why: Refusal) -> S3Error {
    match why {
        Refusal::Lock if name.starts_with("x-amz-object-lock-") => S3Error::with_message(
            S3ErrorCode::InvalidRequest,
            "Bucket is missing Object Lock Configuration: objects cannot be locked here.",
        ),
        Refusal::Lock => not_implemented("Locks of objects"),
        Refusal::Grant => not_implemented(
            "Grants: the modes and ACLs of the files say who may read, and whose they are; others",
        ),
        Refusal::Encryption => not_implemented("Encryption by the server, and with keys of clients"),
        Refusal::Unknown => not_implemented(&format!("Requests with {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    /// The headers in the API reference of S3, for requests and for answers.
    const REFERENCE: &str = "
        x-amz-abort-date x-amz-abort-rule-id x-amz-access-point-alias x-amz-acl x-amz-archive-status x-amz-bucket-location-name
        x-amz-bucket-location-type x-amz-bucket-object-lock-enabled x-amz-bucket-object-lock-token x-amz-bucket-region
        x-amz-bypass-governance-retention x-amz-checksum-algorithm x-amz-checksum-crc32 x-amz-checksum-crc32c x-amz-checksum-crc64nvme
        x-amz-checksum-mode x-amz-checksum-sha1 x-amz-checksum-sha256 x-amz-checksum-type x-amz-confirm-remove-self-bucket-access
        x-amz-content-sha256 x-amz-copy-source x-amz-copy-source-if-match x-amz-copy-source-if-modified-since
        x-amz-copy-source-if-none-match x-amz-copy-source-if-unmodified-since x-amz-copy-source-range
        x-amz-copy-source-server-side-encryption-customer-algorithm x-amz-copy-source-server-side-encryption-customer-key
        x-amz-copy-source-server-side-encryption-customer-key-md5 x-amz-copy-source-version-id x-amz-create-session-mode x-amz-date
        x-amz-decoded-content-length x-amz-delete-marker x-amz-expected-bucket-owner x-amz-expiration x-amz-fwd-error-code
        x-amz-fwd-error-message x-amz-fwd-header-x-amz-version-id x-amz-fwd-status x-amz-grant-full-control x-amz-grant-read
        x-amz-grant-read-acp x-amz-grant-write x-amz-grant-write-acp x-amz-id-2 x-amz-if-match-initiated-time
        x-amz-if-match-last-modified-time x-amz-if-match-size x-amz-max-parts x-amz-metadata-directive x-amz-mfa x-amz-missing-meta
        x-amz-mp-object-size x-amz-mp-parts-count x-amz-object-attributes x-amz-object-lock-legal-hold x-amz-object-lock-mode
        x-amz-object-lock-retain-until-date x-amz-object-ownership x-amz-object-size x-amz-optional-object-attributes
        x-amz-part-number-marker x-amz-rename-source x-amz-rename-source-if-match x-amz-replication-status x-amz-request-charged
        x-amz-request-id x-amz-request-payer x-amz-request-route x-amz-request-token x-amz-restore x-amz-restore-output-path
        x-amz-sdk-checksum-algorithm x-amz-security-token x-amz-server-side-encryption x-amz-server-side-encryption-aws-kms-key-id
        x-amz-server-side-encryption-bucket-key-enabled x-amz-server-side-encryption-context
        x-amz-server-side-encryption-customer-algorithm x-amz-server-side-encryption-customer-key
        x-amz-server-side-encryption-customer-key-md5 x-amz-skip-destination-validation x-amz-source-expected-bucket-owner
        x-amz-storage-class x-amz-tagging x-amz-tagging-count x-amz-tagging-directive x-amz-trailer
        x-amz-transition-default-minimum-object-size x-amz-version-id x-amz-website-redirect-location x-amz-write-offset-bytes";

    #[test]
    fn each_header_of_s3_is_used_or_harmless_or_refused() {
        let all: Vec<&str> = REFERENCE.split_whitespace().collect();
        for name in &all {
            let handling =
                handling(name).unwrap_or_else(|| panic!("{name} is taken, and nothing is done about it"));
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("COPY"));
            let refuses = matches!(handling, Refused(_) | Unless(..)) || *name == "x-amz-storage-class";
            assert_eq!(check(&headers, &[]).is_err(), refuses, "{name}");
            let signed = [(name.to_uppercase(), "x".to_owned())];
            let in_url = matches!(handling, Refused(_) | Unless(..));
            assert_eq!(check(&HeaderMap::new(), &signed).is_err(), in_url, "{name} in a signed URL");
        }
        for (known, _) in KNOWN {
            let start = known.trim_end_matches('*');
            assert!(all.iter().any(|name| name.starts_with(start)), "{known} is not of S3");
        }
        assert_eq!((handling("x-amz-meta-a"), handling("x-amz-new")), (None, None));
    }

    #[test]
    fn what_a_header_says_counts() {
        let code = |name: &'static str, value: &'static str| {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
            check(&headers, &[]).map_err(|e| e.code().as_str().to_owned())
        };
        let wrong = |code: &str| Err(code.to_owned());
        for (name, value) in [
            ("x-amz-bucket-object-lock-enabled", "false"),
            ("x-amz-object-ownership", "BucketOwnerEnforced"),
            ("x-amz-storage-class", "STANDARD"),
            ("x-amz-metadata-directive", "REPLACE"),
        ] {
            assert_eq!(code(name, value), Ok(()), "{name}");
        }
        assert_eq!(code("x-amz-object-lock-mode", "GOVERNANCE"), wrong("InvalidRequest"));
        assert_eq!(code("x-amz-bucket-object-lock-enabled", "True"), wrong("NotImplemented"));
        assert_eq!(code("x-amz-object-ownership", "ObjectWriter"), wrong("NotImplemented"));
        assert_eq!(code("x-amz-grant-read", "uri=everybody"), wrong("NotImplemented"));
        assert_eq!(code("x-amz-storage-class", "GLACIER"), wrong("InvalidStorageClass"));
        assert_eq!(code("x-amz-tagging-directive", "MERGE"), wrong("InvalidArgument"));
    }
}
