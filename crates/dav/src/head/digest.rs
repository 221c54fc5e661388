//! Checksums in headers: `Want-Digest` and `Digest` as the grid's clients use them (RFC 3230,
//! Adler-32 in hexadecimal), and `Want-Repr-Digest` and `Repr-Digest` (RFC 9530). An upload may
//! have either, to be compared with its content.

use super::list;
use crate::sums::{self, Algorithm};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderMap;
use leeward_door::notes::Sums;
use leeward_env::hex;

/// The checksums that a client wants of a file, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// `Digest`.
    Digest(Vec<Algorithm>),
    /// `Repr-Digest`.
    Repr(Vec<Algorithm>),
}

impl Wanted {
    /// The checksums that a request wants; the older form counts when both are there.
    pub fn of(headers: &HeaderMap) -> Option<Wanted> {
        let digest = wants(&list(headers, "want-digest"), ';', |part| part.trim().strip_prefix("q="));
        if !digest.is_empty() {
            return Some(Wanted::Digest(digest));
        }
        let repr = wants(&list(headers, "want-repr-digest"), '=', |part| Some(part));
        (!repr.is_empty()).then_some(Wanted::Repr(repr))
    }

    /// The wanted checksums.
    pub fn algorithms(&self) -> &[Algorithm] {
        match self {
            Wanted::Digest(algorithms) | Wanted::Repr(algorithms) => algorithms,
        }
    }

    /// Name and value of the header that answers with those of them that are known.
    pub fn answer(&self, sums: &Sums) -> Option<(&'static str, String)> {
        let (name, form): (_, fn(Algorithm, &[u8]) -> String) = match self {
            Wanted::Digest(_) => ("digest", digest),
            Wanted::Repr(_) => ("repr-digest", repr),
        };
        let known = self.algorithms().iter().filter_map(|a| Some(form(*a, &sums::value(sums, *a)?)));
        let known: Vec<_> = known.collect();
        (!known.is_empty()).then(|| (name, known.join(",")))
    }
}

/// The algorithms of a list that are known and that are not refused by a weight of zero, each once.
fn wants(text: &str, mark: char, weight: fn(&str) -> Option<&str>) -> Vec<Algorithm> {
    let mut known = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (name, rest) = part.split_once(mark).unwrap_or((part, ""));
        let refused = weight(rest).and_then(|w| w.trim().parse::<f32>().ok()).is_some_and(|w| w <= 0.0);
        if let Some(algorithm) = Algorithm::named(name.trim()).filter(|a| !refused && !known.contains(a)) {
            known.push(algorithm);
        }
    }
    known
}

/// `adler32=11e60398`, `md5=BASE64`.
fn digest(algorithm: Algorithm, value: &[u8]) -> String {
    match algorithm {
        Algorithm::Adler32 => format!("adler32={}", hex::encode(value)),
        Algorithm::Md5 => format!("md5={}", BASE64.encode(value)),
        Algorithm::Sha256 => format!("sha-256={}", BASE64.encode(value)),
    }
}

/// `sha-256=:BASE64:`.
fn repr(algorithm: Algorithm, value: &[u8]) -> String {
    let name = match algorithm {
        Algorithm::Adler32 => "adler",
        Algorithm::Md5 => "md5",
        Algorithm::Sha256 => "sha-256",
    };
    format!("{name}=:{}:", BASE64.encode(value))
}

/// A checksum that a client or server claims for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The claimed value; an unreadable value never matches.
    pub value: Vec<u8>,
}

impl Claim {
    /// Whether the claim matches; a checksum that is not known does not.
    pub fn holds(&self, sums: &Sums) -> bool {
        sums::value(sums, self.algorithm).is_some_and(|value| value == self.value)
    }
}

/// The checksums that come with an upload, or with another server's answer: `Digest`,
/// `Repr-Digest`, `Content-Digest` (the content is sent as it is, so both are of the same bytes),
/// `Content-MD5` and `OC-Checksum`. Unknown algorithms are left out.
pub fn claims(headers: &HeaderMap) -> Vec<Claim> {
    let mut claims = Vec::new();
    for name in ["digest", "repr-digest", "content-digest"] {
        let text = list(headers, name);
        let parts = text.split(',').filter_map(|part| part.trim().split_once('='));
        claims.extend(parts.filter_map(|(name, value)| claim(name, value)));
    }
    let md5 = list(headers, "content-md5");
    claims.extend((!md5.is_empty()).then(|| claim("md5", &md5)).flatten());
    let owncloud = list(headers, "oc-checksum");
    claims.extend(owncloud.split_once(':').and_then(|(name, value)| claim(name, value)));
    claims
}

/// Reads a claim. The value is in hexadecimal or base64, in colons or not: only one of them makes
/// sense.
fn claim(name: &str, value: &str) -> Option<Claim> {
    let algorithm = Algorithm::named(name.trim())?;
    let value = value.trim().trim_matches(':');
    // some servers leave out the leading zeros
    let padded = match algorithm {
        Algorithm::Adler32 if value.len() < 8 && !value.ends_with('=') => format!("{value:0>8}"),
        _ => value.to_string(),
    };
    let bytes = hex::decode(&padded).filter(|value| value.len() == algorithm.bytes());
    let value = bytes.or_else(|| BASE64.decode(value).ok()).unwrap_or_default();
    Some(Claim { algorithm, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::Running;
    use Algorithm::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn sums() -> Sums {
        let mut running = Running::default();
        running.add(b"Wikipedia");
        running.end()
    }

    #[test]
    fn what_clients_ask_for() {
        let of = |list: &[(&'static str, &str)]| Wanted::of(&headers(list));
        assert_eq!(of(&[("want-digest", "adler32")]), Some(Wanted::Digest(vec![Adler32])));
        assert_eq!(
            of(&[("want-digest", "sha, MD5;q=0.3,adler32;q=1")]),
            Some(Wanted::Digest(vec![Md5, Adler32]))
        );
        assert_eq!(of(&[("want-digest", "md5;q=0, adler32,adler32")]), Some(Wanted::Digest(vec![Adler32])));
        let repr = of(&[("want-repr-digest", "sha-256=10, adler=1, md5=0")]);
        assert_eq!(repr, Some(Wanted::Repr(vec![Sha256, Adler32])));
        assert_eq!(
            of(&[("want-digest", "md5"), ("want-repr-digest", "md5=1")]),
            Some(Wanted::Digest(vec![Md5]))
        );
        assert_eq!(of(&[("want-digest", "crc32c")]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn answers_are_in_the_form_that_clients_parse() {
        let answer = |wanted: Wanted| wanted.answer(&sums()).unwrap();
        assert_eq!(
            answer(Wanted::Digest(vec![Adler32, Md5])),
            ("digest", "adler32=11e60398,md5=nGdyhoZqrTj46bZg9UEYFA==".into())
        );
        assert_eq!(answer(Wanted::Repr(vec![Adler32])), ("repr-digest", "adler=:EeYDmA==:".into()));
    }

    #[test]
    fn claims_hold_or_not() {
        for (name, value) in [
            ("digest", "adler32=11e60398"),
            ("digest", "ADLER32=11E60398"),
            ("digest", "md5=nGdyhoZqrTj46bZg9UEYFA=="),
            ("digest", "md5=9c677286866aad38f8e9b660f5411814"),
            ("repr-digest", "adler=:EeYDmA==:"),
            ("content-digest", "md5=:nGdyhoZqrTj46bZg9UEYFA==:"),
            ("content-md5", "nGdyhoZqrTj46bZg9UEYFA=="),
            ("oc-checksum", "ADLER32:11e60398"),
        ] {
            let claims = claims(&headers(&[(name, value)]));
            assert!(claims.len() == 1 && claims[0].holds(&sums()), "{name}: {value}");
        }
        for value in
            ["adler32=11e60399", "md5=", "adler32=", "sha-256=zz", "md5=9c677286866aad38f8e9b660f541181"]
        {
            let claims = claims(&headers(&[("digest", value)]));
            assert!(claims.len() == 1 && !claims[0].holds(&sums()), "{value}");
        }
        assert_eq!(claims(&headers(&[("digest", "crc32c=abcd, x")])), []);
        let short = claim("adler32", "398").expect("known");
        assert_eq!(short.value, [0, 0, 3, 0x98]);
    }
}
