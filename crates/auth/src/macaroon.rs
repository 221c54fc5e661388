//! Macaroons as bytes: the formats 1 and 2 of libmacaroons, and the chain of signatures. The
//! meaning of caveats is not known here.
//!
//! Relies on HMAC-SHA256 of `ring`. Any holder of a macaroon can narrow it: each caveat's signature
//! is keyed with the one before, which is then discarded. Caveats for third parties are not
//! supported: such a macaroon is refused.

use base64::Engine;
use base64::engine::general_purpose::{
    STANDARD_PAD_INDIFFERENT as BASE64, URL_SAFE_NO_PAD_INDIFFERENT as BASE64_URL,
};
use ring::hmac;

/// Most caveats of a macaroon that is read.
const CAVEATS_MAX: usize = 256;
/// Libraries of macaroons derive the first key from the secret with this key.
const KEY_GENERATOR: &[u8] = b"macaroons-key-generator";
const SIGNATURE_BYTES: usize = 32;

/// Formats of a macaroon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Packets with their length in hex: what every library reads.
    V1,
    /// Fields with varints: shorter.
    V2,
}

/// A macaroon, verified or not.
#[derive(Clone, PartialEq, Eq)]
pub struct Macaroon {
    /// A hint at the service that it is for.
    pub location: Vec<u8>,
    /// The issuer's identifier of it.
    pub identifier: Vec<u8>,
    /// Conditions, all of which must hold.
    pub caveats: Vec<Vec<u8>>,
    signature: [u8; SIGNATURE_BYTES],
}

impl std::fmt::Debug for Macaroon {
    /// Without the signature: whoever has that has the macaroon.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let caveats: Vec<String> = self.caveats.iter().map(|c| text(c)).collect();
        f.debug_struct("Macaroon")
            .field("identifier", &text(&self.identifier))
            .field("caveats", &caveats)
            .finish()
    }
}

fn sign(key: &[u8], message: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    let mut out = [0; SIGNATURE_BYTES];
    out.copy_from_slice(tag.as_ref());
    out
}

impl Macaroon {
    /// A new one without caveats.
    pub fn new(location: &str, identifier: &str, secret: &[u8]) -> Macaroon {
        let signature = sign(&sign(KEY_GENERATOR, secret), identifier.as_bytes());
        Macaroon { location: location.into(), identifier: identifier.into(), caveats: Vec::new(), signature }
    }

    /// The macaroon with one more caveat.
    #[must_use]
    pub fn with(mut self, caveat: impl Into<Vec<u8>>) -> Macaroon {
        let caveat = caveat.into();
        self.signature = sign(&self.signature, &caveat);
        self.caveats.push(caveat);
        self
    }

    /// Whether it was made with this secret and narrowed by exactly these caveats.
    pub fn is_signed_by(&self, secret: &[u8]) -> bool {
        let (mut key, mut message) = (sign(KEY_GENERATOR, secret), &self.identifier);
        for caveat in &self.caveats {
            key = sign(&key, message);
            message = caveat;
        }
        // `ring` compares in constant time
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), message, &self.signature).is_ok()
    }

    /// As text for a header: base64 of a URL's alphabet, without padding.
    pub fn to_text(&self, version: Version) -> String {
        BASE64_URL.encode(match version {
            Version::V1 => self.to_v1(),
            Version::V2 => self.to_v2(),
        })
    }

    /// Reads either format, in either alphabet of base64, padded or not.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_text(text: &str) -> Result<Macaroon, &'static str> {
        let bytes = BASE64_URL.decode(text).or_else(|_| BASE64.decode(text)).map_err(|_| "no base64")?;
        match bytes.first() {
            Some(2) => read_v2(&bytes[1..]),
            Some(b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => read_v1(&bytes),
            _ => Err("no macaroon"),
        }
    }

    fn to_v1(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut packet = |key: &str, value: &[u8]| {
            out.extend_from_slice(format!("{:04x}{key} ", 4 + key.len() + 1 + value.len() + 1).as_bytes());
            out.extend_from_slice(value);
            out.push(b'\n');
        };
        packet("location", &self.location);
        packet("identifier", &self.identifier);
        self.caveats.iter().for_each(|caveat| packet("cid", caveat));
        packet("signature", &self.signature);
        out
    }

    fn to_v2(&self) -> Vec<u8> {
        let mut out = vec![2];
        put_field(&mut out, LOCATION, &self.location);
        put_field(&mut out, IDENTIFIER, &self.identifier);
        out.push(END);
        for caveat in &self.caveats {
            put_field(&mut out, IDENTIFIER, caveat);
            out.push(END);
        }
        out.push(END);
        put_field(&mut out, SIGNATURE, &self.signature);
        out
    }
}

const END: u8 = 0;
const LOCATION: u8 = 1;
const IDENTIFIER: u8 = 2;
const VERIFICATION: u8 = 4;
const SIGNATURE: u8 = 6;

const THIRD_PARTY: &str = "a caveat for a third party";
const CUT_OFF: &str = "it is cut off";
const UNORDERED: &str = "its parts are not in order";

fn put_field(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.push(kind);
    let mut len = value.len();
    while len > 0x7f {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(value);
}

fn signature_of(value: &[u8]) -> Result<[u8; SIGNATURE_BYTES], &'static str> {
    value.try_into().map_err(|_| "a signature of another length")
}

/// The parts of a macaroon that were read so far.
#[derive(Default)]
struct Parts {
    location: Vec<u8>,
    identifier: Option<Vec<u8>>,
    caveats: Vec<Vec<u8>>,
}

impl Parts {
    fn caveat(&mut self, value: &[u8]) -> Result<(), &'static str> {
        if self.caveats.len() == CAVEATS_MAX {
            return Err("too many caveats");
        }
        self.caveats.push(value.into());
        Ok(())
    }

    fn signed(self, signature: &[u8]) -> Result<Macaroon, &'static str> {
        let identifier = self.identifier.ok_or(UNORDERED)?;
        let signature = signature_of(signature)?;
        Ok(Macaroon { location: self.location, identifier, caveats: self.caveats, signature })
    }
}

fn read_v1(mut bytes: &[u8]) -> Result<Macaroon, &'static str> {
    let mut parts = Parts::default();
    for number in 0.. {
        let (key, value, rest) = packet(bytes)?;
        match key {
            b"location" if number == 0 => parts.location = value.into(),
            b"identifier" if parts.identifier.is_none() => parts.identifier = Some(value.into()),
            b"cid" if parts.identifier.is_some() => parts.caveat(value)?,
            b"vid" | b"cl" => return Err(THIRD_PARTY),
            b"signature" if rest.is_empty() => return parts.signed(value),
            _ => return Err(UNORDERED),
        }
        bytes = rest;
    }
    Err(CUT_OFF)
}

/// Key, value and the rest.
type Packet<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// The first packet: four hex digits of its whole length, key, blank, value, line feed.
fn packet(bytes: &[u8]) -> Result<Packet<'_>, &'static str> {
    let digits = bytes.get(..4).ok_or(CUT_OFF)?;
    let hex = digits.iter().try_fold(0usize, |n, digit| {
        (*digit as char).to_digit(16).map(|d| n << 4 | d as usize).ok_or("a length that is no number")
    })?;
    if hex < 4 || hex > bytes.len() {
        return Err(CUT_OFF);
    }
    let (packet, rest) = bytes.split_at(hex);
    let content = packet[4..].strip_suffix(b"\n").ok_or("a packet without an end")?;
    let blank = content.iter().position(|b| *b == b' ').ok_or("a packet without a key")?;
    Ok((&content[..blank], &content[blank + 1..], rest))
}

fn read_v2(bytes: &[u8]) -> Result<Macaroon, &'static str> {
    let mut reader = Fields(bytes);
    let mut parts = Parts::default();
    let mut next = reader.next()?;
    if let Some((LOCATION, value)) = next {
        parts.location = value.into();
        next = reader.next()?;
    }
    let Some((IDENTIFIER, value)) = next else { return Err(UNORDERED) };
    parts.identifier = Some(value.into());
    reader.end()?;
    while let Some((kind, value)) = reader.next()? {
        match kind {
            IDENTIFIER => parts.caveat(value)?,
            LOCATION | VERIFICATION => return Err(THIRD_PARTY),
            _ => return Err(UNORDERED),
        }
        match reader.next()? {
            None => (),
            Some((VERIFICATION, _)) => return Err(THIRD_PARTY),
            Some(_) => return Err(UNORDERED),
        }
    }
    match reader.next()? {
        Some((SIGNATURE, value)) if reader.0.is_empty() => parts.signed(value),
        _ => Err(UNORDERED),
    }
}

/// Fields of format 2.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (first, rest) = self.0.split_first().ok_or(CUT_OFF)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next field; `None`: the end of a section.
    fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, &'static str> {
        let kind = self.byte()?;
        if kind == END {
            return Ok(None);
        }
        let mut len = 0usize;
        // four bytes of varint are more than any token has
        for shift in [0, 7, 14, 21, 28] {
            if shift == 28 {
                return Err("a length that is no number");
            }
            let byte = self.byte()?;
            len |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if len > self.0.len() {
            return Err(CUT_OFF);
        }
        let (value, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(Some((kind, value)))
    }

    fn end(&mut self) -> Result<(), &'static str> {
        match self.next()? {
            None => Ok(()),
            Some(_) => Err(UNORDERED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_env::hex;

    const SECRET: &[u8] = b"this is our super secret key; only we should know it";

    fn example() -> Macaroon {
        Macaroon::new("http://mybank/", "we used our secret key", SECRET)
    }

    #[test]
    fn signatures_are_those_of_the_libraries() {
        let plain = example();
        assert_eq!(
            hex::encode(&plain.signature),
            "e3d9e02908526c4c0039ae15114115d97fdd68bf2ba379b342aaf0f617d0552f"
        );
        let text = "MDAxY2xvY2F0aW9uIGh0dHA6Ly9teWJhbmsvCjAwMjZpZGVudGlmaWVyIHdlIHVzZWQgb3VyIHNlY3JldCBrZXkKMDAyZnNpZ25hdHVyZSDj2eApCFJsTAA5rhURQRXZf91ovyujebNCqvD2F9BVLwo";
        assert_eq!(plain.to_text(Version::V1), text);
        assert_eq!(Macaroon::from_text(&format!("{text}=")), Ok(plain.clone()));
        let narrowed = plain.with("test = caveat");
        assert_eq!(
            hex::encode(&narrowed.signature),
            "197bac7a044af33332865b9266e26d493bdd668a660e44d88ce1a998c23dbd67"
        );
        assert!(narrowed.is_signed_by(SECRET) && example().is_signed_by(SECRET));
        assert!(!narrowed.is_signed_by(b"another") && !example().is_signed_by(b""));
    }

    /// Made by pymacaroons 0.13 with a key of 32 letters k.
    const BY_PYMACAROONS: [(Version, &str); 2] = [
        (
            Version::V1,
            "MDAyNmxvY2F0aW9uIGh0dHBzOi8vZG9vci5leGFtcGxlLm9yZwowMDMyaWRlbnRpZmllciBsZWV3YXJkOjE6MTowOjAwMDAwMDAwMDAwMDAwYWI6Ym9iCjAwMWZjaWQgYWN0aXZpdHk6RE9XTkxPQUQsTElTVAowMDhiY2lkIHBhdGg6L2EgYi94eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHgKMDAyZnNpZ25hdHVyZSB2hZr-J90dpQONAR7z8ccPJJTvZxEb8p8yzzg8pKsqyAo",
        ),
        (
            Version::V2,
            "AgEYaHR0cHM6Ly9kb29yLmV4YW1wbGUub3JnAiJsZWV3YXJkOjE6MTowOjAwMDAwMDAwMDAwMDAwYWI6Ym9iAAIWYWN0aXZpdHk6RE9XTkxPQUQsTElTVAACggFwYXRoOi9hIGIveHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4AAAGIHaFmv4n3R2lA40BHvPxxw8klO9nERvynzLPODykqyrI",
        ),
    ];

    #[test]
    fn both_formats_are_those_of_the_libraries() {
        for (version, text) in BY_PYMACAROONS {
            let ours =
                Macaroon::new("https://door.example.org", "leeward:1:1:0:00000000000000ab:bob", &[b'k'; 32])
                    .with("activity:DOWNLOAD,LIST")
                    .with(format!("path:/a b/{}", "x".repeat(120)));
            assert_eq!(ours.to_text(version), text);
            assert_eq!(Macaroon::from_text(text), Ok(ours));
        }
    }

    #[test]
    fn both_formats_are_read_and_nothing_cut_off() {
        let long = "x".repeat(300);
        for macaroon in [example(), example().with("a").with(long), Macaroon::new("", "i", b"k").with("")] {
            for version in [Version::V1, Version::V2] {
                let text = macaroon.to_text(version);
                assert_eq!(Macaroon::from_text(&text), Ok(macaroon.clone()));
                let bytes = BASE64_URL.decode(&text).expect("base64");
                for len in 0..bytes.len() {
                    assert!(Macaroon::from_text(&BASE64_URL.encode(&bytes[..len])).is_err(), "{len}");
                }
                let longer = [&bytes[..], b"x"].concat();
                assert!(Macaroon::from_text(&BASE64_URL.encode(longer)).is_err());
            }
        }
        assert!(!format!("{:?}", example()).contains("signature"));
    }

    #[test]
    fn what_was_left_out_or_changed_shows() {
        let whole = example().with("path:/a").with("activity:LIST");
        let mut less = whole.clone();
        less.caveats.pop();
        let mut other = whole.clone();
        other.caveats[0] = b"path:/".to_vec();
        let mut swapped = whole.clone();
        swapped.caveats.swap(0, 1);
        let mut renamed = whole.clone();
        renamed.identifier = b"we used another key".to_vec();
        for forged in [less, other, swapped, renamed] {
            assert!(!forged.is_signed_by(SECRET), "{forged:?}");
        }
        assert!(whole.is_signed_by(SECRET));
    }

    #[test]
    fn caveats_for_others_and_disorder_are_refused() {
        let v1 = |packets: &[(&str, &str)]| {
            let text: String =
                packets.iter().map(|(k, v)| format!("{:04x}{k} {v}\n", k.len() + v.len() + 6)).collect();
            Macaroon::from_text(&BASE64_URL.encode(text))
        };
        let (location, identifier, signature) =
            (("location", "l"), ("identifier", "i"), ("signature", &*"s".repeat(32)));
        assert!(v1(&[location, identifier, ("cid", "c"), signature]).is_ok());
        assert!(v1(&[identifier, signature]).is_ok());
        for packets in [
            &[location, identifier, ("cid", "c"), ("vid", "v"), ("cl", "l"), signature][..],
            &[location, signature],
            &[identifier, location, signature],
            &[location, identifier, identifier, signature],
            &[location, ("cid", "c"), identifier, signature],
            &[location, identifier, ("signature", "short")],
            &[location, identifier, signature, ("cid", "c")],
        ] {
            assert!(v1(packets).is_err(), "{packets:?}");
        }
        let many = (0..CAVEATS_MAX + 1).fold(example(), |m, _| m.with("c"));
        assert_eq!(Macaroon::from_text(&many.to_text(Version::V2)), Err("too many caveats"));
    }
}
