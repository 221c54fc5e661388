//! Certificates that clients show: their subject, in the forms in which operators write it. The
//! handshake has checked already that a certificate is valid. Pure.

use leeward_env::dates::{DAY_SECS, day_of};
use std::fmt::Write as _;
use yasna::tags::{
    TAG_GENERALIZEDTIME, TAG_IA5STRING, TAG_NUMERICSTRING, TAG_PRINTABLESTRING, TAG_UTCTIME, TAG_UTF8STRING,
};
use yasna::{ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, BERReaderSeq, Tag};

/// A certificate of a client, signed by an authority that the settings name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its subject as RFC 4514 writes it, the last part first: `CN=Alice Adams,O=Example,C=DE`.
    pub subject: String,
    /// As the grid writes it: `/C=DE/O=Example/CN=Alice Adams`. `None` where that could be read in
    /// two ways.
    pub grid: Option<String>,
    /// End of validity, seconds since 1970: a connection may last longer than that.
    pub until_secs: i64,
}

/// Types of attributes that have names; others are written as numbers.
const NAMES: [(&str, &str); 12] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

impl Certificate {
    /// Reads a certificate; `None`: it has no subject, or one that is no text.
    pub fn read(der: &[u8]) -> Option<Certificate> {
        let (parts, until_secs) = yasna::parse_der(der, |reader| {
            reader.read_sequence(|signed| {
                let read = signed.next().read_sequence(content)?;
                rest(signed)?;
                Ok(read)
            })
        })
        .ok()
        .filter(|(parts, _)| !parts.is_empty())?;
        let one = |(name, value): &(String, String)| format!("{name}={}", escaped(value));
        let joined = |part: &Part| part.iter().map(one).collect::<Vec<_>>().join("+");
        let subject = parts.iter().rev().map(joined).collect::<Vec<_>>().join(",");
        let plain = parts.iter().all(|part| part.len() == 1 && !part[0].1.contains('/'));
        let grid = plain.then(|| parts.iter().map(|part| format!("/{}={}", part[0].0, part[0].1)).collect());
        Some(Certificate { subject, grid, until_secs })
    }

    /// All forms of its subject.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [Some(&self.subject), self.grid.as_ref()].into_iter().flatten().map(String::as_str)
    }
}

/// A part of a subject: mostly one type with its value.
type Part = Vec<(String, String)>;

/// The signed content (RFC 5280, 4.1): subject, and end of validity.
fn content(reader: &mut BERReaderSeq<'_, '_>) -> ASN1Result<(Vec<Part>, i64)> {
    reader.read_optional(|version| version.read_tagged(Tag::context(0), |version| version.read_der()))?;
    for _ in ["serial number", "algorithm", "issuer"] {
        reader.next().read_der()?;
    }
    let until_secs = reader.next().read_sequence(|validity| {
        validity.next().read_der()?;
        time(validity.next())
    })?;
    let mut parts = Vec::new();
    reader.next().read_sequence_of(|part| {
        let mut one = Vec::new();
        part.read_set_of(|attribute| {
            one.push(attribute.read_sequence(|of| Ok((kind(of.next())?, text(of.next())?)))?);
            Ok(())
        })?;
        parts.push(one);
        Ok(())
    })?;
    rest(reader)?;
    Ok((parts, until_secs))
}

/// Skips the rest.
fn rest(reader: &mut BERReaderSeq<'_, '_>) -> ASN1Result<()> {
    while reader.read_optional(|more| more.read_der())?.is_some() {}
    Ok(())
}

fn kind(reader: BERReader<'_, '_>) -> ASN1Result<String> {
    let number = reader.read_oid()?.to_string();
    let known = NAMES.iter().find(|(of, _)| *of == number);
    Ok(known.map_or(number, |(_, name)| (*name).to_owned()))
}

fn text(reader: BERReader<'_, '_>) -> ASN1Result<String> {
    let value = reader.read_tagged_der()?;
    let is_text =
        [TAG_UTF8STRING, TAG_PRINTABLESTRING, TAG_IA5STRING, TAG_NUMERICSTRING].contains(&value.tag());
    let text = String::from_utf8(value.value().to_vec()).ok().filter(|_| is_text);
    text.ok_or_else(|| ASN1Error::new(ASN1ErrorKind::Invalid))
}

/// `261122130000Z`, `20261122130000Z`: seconds since 1970.
fn time(reader: BERReader<'_, '_>) -> ASN1Result<i64> {
    let value = reader.read_tagged_der()?;
    let text = std::str::from_utf8(value.value()).unwrap_or_default();
    let full = match value.tag() {
        TAG_UTCTIME if text < "5" => format!("20{text}"),
        TAG_UTCTIME => format!("19{text}"),
        TAG_GENERALIZEDTIME => text.to_owned(),
        _ => String::new(),
    };
    let number = |range: std::ops::Range<usize>| full.get(range)?.parse::<i64>().ok();
    let secs = || {
        let day = day_of(number(0..4)?, number(4..6)?, number(6..8)?)?;
        Some(day * DAY_SECS + number(8..10)? * 3600 + number(10..12)? * 60 + number(12..14)?)
    };
    secs().ok_or_else(|| ASN1Error::new(ASN1ErrorKind::Invalid))
}

/// A value as RFC 4514 writes it.
fn escaped(value: &str) -> String {
    let mut out = String::new();
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let special = matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';');
        let at_end = (at == 0 && matches!(c, ' ' | '#')) || (at == last && c == ' ');
        let _ = match c {
            c if special || at_end => write!(out, "\\{c}"),
            c if c.is_control() => write!(out, "\\{:02X}", c as u32),
            c => write!(out, "{c}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};

    fn of(subject: &[(DnType, &str)]) -> Option<Certificate> {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(2026, 11, 22);
        params.distinguished_name = DistinguishedName::new();
        subject.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), *value));
        let key = KeyPair::generate().expect("a key");
        Certificate::read(params.self_signed(&key).expect("signed").der())
    }

    #[test]
    fn a_subject_is_written_as_operators_write_it() {
        let dc = || DnType::CustomDnType(vec![0, 9, 2342, 19200300, 100, 1, 25]);
        let alice = of(&[
            (DnType::CountryName, "DE"),
            (dc(), "grid"),
            (DnType::OrganizationName, "Example, Inc."),
            (DnType::CommonName, "Alice Ådams"),
        ]);
        let alice = alice.expect("a subject");
        assert_eq!(alice.subject, "CN=Alice Ådams,O=Example\\, Inc.,DC=grid,C=DE");
        assert_eq!(alice.grid.as_deref(), Some("/C=DE/DC=grid/O=Example, Inc./CN=Alice Ådams"));
        assert_eq!((alice.names().count(), alice.until_secs), (2, 1_795_305_600));
    }

    #[test]
    fn no_two_subjects_are_written_alike() {
        let one = of(&[(DnType::CommonName, "a/CN=b")]).expect("a subject");
        let two = of(&[(DnType::CommonName, "a"), (DnType::OrganizationName, "b")]).expect("a subject");
        assert_eq!((one.grid.as_deref(), two.grid.as_deref()), (None, Some("/CN=a/O=b")));
        let comma = of(&[(DnType::CommonName, "a,CN=b")]).expect("a subject");
        assert_eq!(comma.subject, "CN=a\\,CN=b");
        assert_eq!(of(&[(DnType::CommonName, " #\"")]).expect("a subject").subject, "CN=\\ #\\\"");
    }

    #[test]
    fn what_names_nobody_is_none() {
        assert_eq!(of(&[]), None);
        assert_eq!(Certificate::read(b"\x30\x03\x02\x01\x00"), None);
    }
}
