//! Hashes of an object's content: the ETag, and the checksums that clients send or ask for.

use crate::error;
use base64::Engine;
use fast_md5::Md5;
use hyper::HeaderMap;
use leeward_door::Digest;
use leeward_door::notes::Sums;
use leeward_env::hex;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumAlgorithm, ChecksumType};
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};

/// Names of the checksums in notes.
pub(crate) const NAMES: [&str; 5] = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];
/// Prefix of headers and trailers with checksums.
const HEADER: &str = "x-amz-checksum-";
/// Other headers with this prefix.
const NO_VALUES: [&str; 3] = ["algorithm", "mode", "type"];

const MD5_BYTES: usize = 16;

/// Hashes content as it arrives.
pub(crate) struct Hasher {
    md5: Md5,
    one: Option<One>,
}

/// The checksum that the client wants; one at a time, as in the protocol.
enum One {
    Crc32(Crc32),
    Crc32c(Crc32c),
    Crc64(Crc64Nvme),
    Sha1(Sha1),
    Sha256(Sha256),
}

/// The checksums that a client claims for content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    /// Base64.
    pub(crate) md5: Option<String>,
    /// The wanted checksum, by name.
    pub(crate) algorithm: Option<&'static str>,
    /// Its value, base64.
    pub(crate) value: Option<String>,
    /// Whether the value comes in a trailer.
    pub(crate) promised: bool,
}

/// The name of an algorithm in notes.
pub(crate) fn name_of(algorithm: &str) -> Option<&'static str> {
    NAMES.into_iter().find(|name| name.eq_ignore_ascii_case(algorithm))
}

/// The name of an algorithm that a client relies on.
///
/// # Errors
/// `InvalidRequest` where it is not known.
pub(crate) fn known(algorithm: &str) -> S3Result<&'static str> {
    name_of(algorithm).ok_or_else(|| {
        let why = "The checksums that are known are CRC32, CRC32C, CRC64NVME, SHA1 and SHA256.";
        S3Error::with_message(S3ErrorCode::InvalidRequest, why)
    })
}

/// The algorithm of a name.
pub(crate) fn algorithm_of(name: &str) -> ChecksumAlgorithm {
    ChecksumAlgorithm::from(name.to_ascii_uppercase())
}

impl Claims {
    /// Takes the claims from a request's fields: an existing value decides, else the announced
    /// algorithm.
    ///
    /// # Errors
    /// `InvalidRequest` for more than one, and for an unknown one: it would be accepted unchecked.
    pub(crate) fn of(
        md5: Option<String>,
        values: &Checksum,
        algorithm: Option<&ChecksumAlgorithm>,
        headers: &HeaderMap,
    ) -> S3Result<Claims> {
        if md5.as_ref().is_some_and(|md5| decode(md5).is_none_or(|bytes| bytes.len() != MD5_BYTES)) {
            let why = "Content-MD5 is 128 bits in base64.";
            return Err(S3Error::with_message(S3ErrorCode::InvalidDigest, why));
        }
        let asked = algorithm.map(|algorithm| known(algorithm.as_str())).transpose()?;
        for name in headers.keys().filter_map(|name| name.as_str().strip_prefix(HEADER)) {
            if !NO_VALUES.contains(&name) {
                known(name)?;
            }
        }
        let mut trailing = Vec::new();
        let trailers = headers.get("x-amz-trailer").and_then(|trailers| trailers.to_str().ok());
        for trailer in trailers.unwrap_or_default().split(',') {
            if let Some(name) = trailer.trim().to_ascii_lowercase().strip_prefix(HEADER) {
                trailing.push((known(name)?, None));
            }
        }
        let given = fields(values).into_iter().filter_map(|(name, value)| Some((name, Some(value.clone()?))));
        let mut claimed = given.chain(trailing);
        match (claimed.next(), claimed.next()) {
            (Some(_), Some(_)) => {
                let why = "At most one checksum besides Content-MD5 is taken.";
                Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why))
            }
            (Some((name, value)), _) => {
                let promised = value.is_none();
                Ok(Claims { md5, algorithm: Some(name), value, promised })
            }
            (None, _) => Ok(Claims { md5, algorithm: asked, ..Claims::default() }),
        }
    }
}

/// The values of a set of checksums, by name.
pub(crate) fn fields(values: &Checksum) -> [(&'static str, &Option<String>); 5] {
    [
        ("crc32", &values.checksum_crc32),
        ("crc32c", &values.checksum_crc32c),
        ("crc64nvme", &values.checksum_crc64nvme),
        ("sha1", &values.checksum_sha1),
        ("sha256", &values.checksum_sha256),
    ]
}

impl Hasher {
    pub(crate) fn new(algorithm: Option<&str>) -> Hasher {
        let one = algorithm.and_then(|name| {
            Some(match name {
                "crc32" => One::Crc32(Crc32::new()),
                "crc32c" => One::Crc32c(Crc32c::new()),
                "crc64nvme" => One::Crc64(Crc64Nvme::new()),
                "sha1" => One::Sha1(Sha1::new()),
                "sha256" => One::Sha256(Sha256::new()),
                _ => return None,
            })
        });
        Hasher { md5: Md5::new(), one }
    }

    /// The sums of the content, if they match the client's claims.
    ///
    /// # Errors
    /// `BadDigest`, `MalformedTrailerError`.
    pub(crate) fn finish(self, claims: &Claims, trailers: Option<&TrailingHeaders>) -> S3Result<Sums> {
        let mut sums = Sums::default();
        let md5 = self.md5.finalize();
        if claims.md5.as_ref().is_some_and(|claimed| *claimed != encode(&md5)) {
            return Err(bad_digest("Content-MD5"));
        }
        sums.set("md5", &hex::encode(&md5));
        let (name, value) = match self.one {
            None => return Ok(sums),
            Some(One::Crc32(h)) => ("crc32", h.finalize().to_vec()),
            Some(One::Crc32c(h)) => ("crc32c", h.finalize().to_vec()),
            Some(One::Crc64(h)) => ("crc64nvme", h.finalize().to_vec()),
            Some(One::Sha1(h)) => ("sha1", h.finalize().as_ref().to_vec()),
            Some(One::Sha256(h)) => ("sha256", h.finalize().as_ref().to_vec()),
        };
        let header = format!("x-amz-checksum-{name}");
        let trailing = || trailers?.read(|t| t.get(&header)?.to_str().ok().map(str::to_owned))?;
        let claimed = claims.value.clone().or_else(trailing);
        if claims.promised && claimed.is_none() {
            return Err(error::own(
                "MalformedTrailerError",
                400,
                "The checksum that x-amz-trailer promises did not come.",
            ));
        }
        if claimed.is_some_and(|claimed| claimed.trim() != encode(&value)) {
            return Err(bad_digest(&header));
        }
        sums.set(name, &hex::encode(&value));
        Ok(sums)
    }
}

impl Digest for Hasher {
    fn add(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        match &mut self.one {
            None => {}
            Some(One::Crc32(h)) => h.update(bytes),
            Some(One::Crc32c(h)) => h.update(bytes),
            Some(One::Crc64(h)) => h.update(bytes),
            Some(One::Sha1(h)) => h.update(bytes),
            Some(One::Sha256(h)) => h.update(bytes),
        }
    }
}

fn bad_digest(what: &str) -> S3Error {
    S3Error::with_message(
        S3ErrorCode::BadDigest,
        format!("The content that arrived is not what {what} says."),
    )
}

/// Checksums for an answer.
pub(crate) fn checksum_of(sums: &Sums) -> Checksum {
    let value = |name: &str| {
        let composite = || Some(sums.get(&format!("{name}-of-parts"))?.to_owned());
        sums.get(name).and_then(hex::decode).map(|bytes| encode(&bytes)).or_else(composite)
    };
    Checksum {
        checksum_crc32: value("crc32"),
        checksum_crc32c: value("crc32c"),
        checksum_crc64nvme: value("crc64nvme"),
        checksum_sha1: value("sha1"),
        checksum_sha256: value("sha256"),
        checksum_type: type_of(sums),
    }
}

/// Whether a checksum is of the whole or of parts' checksums; `None`: there is none.
pub(crate) fn type_of(sums: &Sums) -> Option<ChecksumType> {
    if NAMES.iter().any(|name| sums.get(name).is_some()) {
        return Some(ChecksumType::from_static(ChecksumType::FULL_OBJECT));
    }
    let of_parts = sums.iter().any(|(name, _)| name.ends_with("-of-parts"));
    of_parts.then(|| ChecksumType::from_static(ChecksumType::COMPOSITE))
}

/// The checksum of two contents one after the other, from their checksums and the second length:
/// for checksums that can be combined.
pub(crate) fn combine(name: &str, first: &[u8], second: &[u8], second_bytes: u64) -> Option<Vec<u8>> {
    use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc32IsoHdlc, Crc64Nvme};
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let (algorithm, width) = match name {
        "crc32" => (Crc32IsoHdlc, 4),
        "crc32c" => (Crc32Iscsi, 4),
        "crc64nvme" => (Crc64Nvme, 8),
        _ => return None,
    };
    let sum = crc_fast::checksum_combine(algorithm, number(first), number(second), second_bytes);
    Some(sum.to_be_bytes()[8 - width..].to_vec())
}

/// A checksum over bytes, by name.
pub(crate) fn sum_of(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut hasher = Hasher::new(Some(name));
    hasher.add(bytes);
    hasher.finish(&Claims::default(), None).ok().and_then(|sums| hex::decode(sums.get(name)?))
}

/// The MD5 of bytes.
pub(crate) fn md5_of(bytes: &[u8]) -> Vec<u8> {
    fast_md5::digest(bytes).to_vec()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The checksum fields of a request.
macro_rules! checksums {
    ($input:expr) => {
        s3s::dto::Checksum {
            checksum_crc32: $input.checksum_crc32.take(),
            checksum_crc32c: $input.checksum_crc32c.take(),
            checksum_crc64nvme: $input.checksum_crc64nvme.take(),
            checksum_sha1: $input.checksum_sha1.take(),
            checksum_sha256: $input.checksum_sha256.take(),
            ..s3s::dto::Checksum::default()
        }
    };
}
pub(crate) use checksums;

/// An answer with the known checksums: all answers with checksums have these fields.
macro_rules! with_sums {
    ($output:ident, $checksum:expr, $rest:expr) => {{
        let checksum: s3s::dto::Checksum = $checksum;
        $output {
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..$rest
        }
    }};
}
pub(crate) use with_sums;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_what_they_are() {
        let claims = Claims {
            md5: Some("XUFAKrxLKna5cZ2REBfFkg==".into()),
            algorithm: Some("crc32c"),
            ..Claims::default()
        };
        let hash = |claims: &Claims| {
            let mut hasher = Hasher::new(claims.algorithm);
            hasher.add(b"hel");
            hasher.add(b"lo");
            hasher.finish(claims, None)
        };
        let sums = hash(&claims).expect("right");
        assert_eq!(sums.get("md5"), Some("5d41402abc4b2a76b9719d911017c592"));
        assert_eq!(sums.get("crc32c"), Some("9a71bb4c"));
        let wrong = [
            Claims { md5: Some("AAAAKrxLKna5cZ2REBfFkg==".into()), ..claims.clone() },
            Claims { value: Some("AAAAAA==".into()), ..claims },
        ];
        for claims in &wrong {
            assert_eq!(hash(claims).expect_err("wrong").code().as_str(), "BadDigest");
        }
        let absent = Claims { promised: true, value: None, ..wrong[1].clone() };
        assert_eq!(hash(&absent).expect_err("it did not come").code().as_str(), "MalformedTrailerError");
    }

    #[test]
    fn md5_is_what_others_have() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * n / 8) as u8).collect();
        for len in (0..300).chain([511, 512, 513, 1000]) {
            let mut md5 = Md5::new();
            bytes[..len].chunks(len / 3 + 1).for_each(|piece| md5.update(piece));
            assert_eq!(md5.finalize(), s3s::crypto::Md5::checksum(&bytes[..len]), "{len}");
        }
    }

    #[test]
    fn one_checksum_is_claimed_at_a_time() {
        let value = || Some("AAAAAA==".to_owned());
        let one = Checksum { checksum_crc32: value(), ..Checksum::default() };
        let two = Checksum { checksum_crc32: value(), checksum_sha1: value(), ..Checksum::default() };
        for wrong in ["", "x", "AAAA", "XUFAKrxLKna5cZ2REBfFkg"] {
            let refused = Claims::of(Some(wrong.into()), &Checksum::default(), None, &HeaderMap::new());
            assert_eq!(refused.expect_err(wrong).code(), &S3ErrorCode::InvalidDigest);
        }
        let of = |values: &Checksum, trailers: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-checksum-type", "FULL_OBJECT".parse().expect("a value"));
            if let Some(trailers) = trailers {
                headers.insert("x-amz-trailer", trailers.parse().expect("a value"));
            }
            Claims::of(None, values, None, &headers)
        };
        assert_eq!(of(&one, None).expect("one").value, value());
        let promised = of(&Checksum::default(), Some("X-Amz-Checksum-CRC64NVME, other")).expect("one");
        assert_eq!((promised.algorithm, promised.promised), (Some("crc64nvme"), true));
        for wrong in [of(&two, None), of(&one, Some("x-amz-checksum-crc32"))] {
            assert_eq!(wrong.expect_err("two").code(), &S3ErrorCode::InvalidRequest);
        }
        let unknown = HeaderMap::from_iter([(
            "x-amz-checksum-md5".parse().expect("a name"),
            "A".parse().expect("a value"),
        )]);
        let md5 = ChecksumAlgorithm::from("MD5".to_owned());
        let none = Checksum::default();
        for wrong in [
            of(&none, Some("x-amz-checksum-sha512")),
            Claims::of(None, &none, None, &unknown),
            Claims::of(None, &none, Some(&md5), &HeaderMap::new()),
        ] {
            assert_eq!(wrong.expect_err("not known").code(), &S3ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn checksums_of_parts_combine_to_that_of_the_whole() {
        for name in ["crc32", "crc32c", "crc64nvme"] {
            let whole = sum_of(name, b"hello, world").expect(name);
            let (first, second) =
                (sum_of(name, b"hello").expect(name), sum_of(name, b", world").expect(name));
            assert_eq!(combine(name, &first, &second, 7), Some(whole), "{name}");
        }
        assert_eq!(combine("sha1", b"", b"", 0), None);
    }
}
