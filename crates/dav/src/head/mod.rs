//! Headers of requests, read strictly and without effect.
//!
//! Each header is one function or type from text to meaning. Nothing here knows files. All of it is
//! bounded by the listener's limit on headers, and no input makes it panic.

pub mod condition;
pub mod digest;
pub mod ifs;
pub mod range;

use crate::path::{BadPath, DavPath};
use http::{HeaderMap, Uri};
use std::time::Duration;

/// How far below a directory a request reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only the directory itself.
    Zero,
    /// The directory and its entries.
    One,
    /// Everything below.
    Infinity,
}

/// A header that cannot be understood; the text says which and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadHeader(pub String);

impl From<BadPath> for BadHeader {
    fn from(bad: BadPath) -> BadHeader {
        BadHeader(bad.to_string())
    }
}

/// The text of a header that may occur once. Two different values are refused: which one counts
/// would be a guess. The same value twice is accepted, as gfal2 sends it.
///
/// # Errors
/// There are two, or it is not text.
pub fn once<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, BadHeader> {
    let mut all = headers.get_all(name).iter();
    let Some(value) = all.next() else { return Ok(None) };
    if all.any(|other| other != value) {
        return Err(BadHeader(format!("{name} is there more than once")));
    }
    value.to_str().map(|text| Some(text.trim())).map_err(|_| BadHeader(format!("{name} is not plain text")))
}

/// All values of a list header, joined.
pub fn list(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

/// `Depth`; `usual` where it is missing.
///
/// # Errors
/// Anything but `0`, `1` and `infinity`.
pub fn depth(headers: &HeaderMap, usual: Depth) -> Result<Depth, BadHeader> {
    match once(headers, "depth")? {
        None => Ok(usual),
        Some("0") => Ok(Depth::Zero),
        Some("1") => Ok(Depth::One),
        Some(text) if text.eq_ignore_ascii_case("infinity") => Ok(Depth::Infinity),
        Some(_) => Err(BadHeader("Depth is 0, 1 or infinity".into())),
    }
}

/// `Overwrite`: whether an existing file may be replaced.
///
/// # Errors
/// Anything but `T` and `F`.
pub fn overwrite(headers: &HeaderMap) -> Result<bool, BadHeader> {
    match once(headers, "overwrite")? {
        None | Some("T" | "t") => Ok(true),
        Some("F" | "f") => Ok(false),
        Some(_) => Err(BadHeader("Overwrite is T or F".into())),
    }
}

/// Where a `Destination` leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A path of this server.
    Here(DavPath),
    /// The URL of another server.
    There(Uri),
}

/// `Destination` of COPY and MOVE. It is on this server when it names no host, or the one that the
/// request was sent to.
///
/// # Errors
/// It is no URL, or its path is refused.
pub fn destination(headers: &HeaderMap, host: Option<&str>) -> Result<Option<Destination>, BadHeader> {
    let Some(text) = once(headers, "destination")? else { return Ok(None) };
    let uri: Uri = text.parse().map_err(|_| BadHeader("Destination is no URL".into()))?;
    let Some(authority) = uri.authority() else {
        return Ok(Some(Destination::Here(DavPath::parse(uri.path())?)));
    };
    if authority.as_str().contains('@') {
        return Err(BadHeader("Destination has a user name in it: send credentials in headers".into()));
    }
    let same = host.is_some_and(|host| same_host(host, authority.as_str(), uri.scheme_str()));
    Ok(Some(if same { Destination::Here(DavPath::parse(uri.path())?) } else { Destination::There(uri) }))
}

/// The path of a URL, or of a path alone, whatever host it names.
fn destination_path(text: &str) -> Result<DavPath, BadHeader> {
    let uri: Uri = text.parse().map_err(|_| BadHeader(format!("{text} is no URL")))?;
    Ok(DavPath::parse(uri.path())?)
}

/// Whether two authorities are the same; a port that the scheme implies may be missing.
fn same_host(host: &str, other: &str, scheme: Option<&str>) -> bool {
    let port = match scheme {
        Some("http" | "dav") => ":80",
        _ => ":443",
    };
    let plain = |text: &str| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    plain(host) == plain(other)
}

/// `Timeout` of LOCK: the first value that is understood, at most `most`.
pub fn timeout(headers: &HeaderMap, most: Duration) -> Duration {
    let text = list(headers, "timeout");
    let seconds = |part: &str| part.trim().strip_prefix("Second-")?.parse().ok();
    text.split(',').find_map(seconds).map_or(most, |s: u64| Duration::from_secs(s.max(1)).min(most))
}

/// The token of `Lock-Token: <token>`. Some clients leave the brackets out.
///
/// # Errors
/// It occurs twice, or has one bracket.
pub fn lock_token(headers: &HeaderMap) -> Result<Option<&str>, BadHeader> {
    let Some(text) = once(headers, "lock-token")? else { return Ok(None) };
    let token = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text);
    if token.contains(['<', '>']) {
        return Err(BadHeader("Lock-Token is a token in angle brackets".into()));
    }
    Ok(Some(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn depth_and_overwrite() {
        assert_eq!(depth(&headers(&[]), Depth::One), Ok(Depth::One));
        assert_eq!(depth(&headers(&[("depth", "Infinity")]), Depth::One), Ok(Depth::Infinity));
        assert!(depth(&headers(&[("depth", "2")]), Depth::One).is_err());
        assert!(depth(&headers(&[("depth", "0"), ("depth", "infinity")]), Depth::One).is_err());
        assert_eq!(overwrite(&headers(&[])), Ok(true));
        assert_eq!(overwrite(&headers(&[("overwrite", "F")])), Ok(false));
        assert!(overwrite(&headers(&[("overwrite", "no")])).is_err());
    }

    #[test]
    fn a_destination_is_here_or_there() {
        let here = |text: &str, host| match destination(&headers(&[("destination", text)]), host) {
            Ok(Some(Destination::Here(path))) => Some(path.encoded()),
            _ => None,
        };
        assert_eq!(here("/a%20b/", None), Some("/a%20b/".into()));
        assert_eq!(here("http://Host:8080/x", Some("host:8080")), Some("/x".into()));
        assert_eq!(here("https://host/x", Some("host:443")), Some("/x".into()));
        assert_eq!(here("http://other/x", Some("host")), None);
        assert_eq!(here("http://host/a/../b", Some("host")), None);
        assert_eq!(here("http://host:81/x", Some("host")), None);
        let bad = ["http://user:pw@host/x", "http://host/%zz", "http://host/a%2f..", "ht tp:"];
        for text in bad {
            assert!(destination(&headers(&[("destination", text)]), Some("host")).is_err(), "{text}");
        }
        let there = destination(&headers(&[("destination", "https://other:1094/y")]), Some("host"));
        assert!(matches!(there, Ok(Some(Destination::There(uri))) if uri.path() == "/y"));
    }

    #[test]
    fn timeouts_are_cut() {
        let most = Duration::from_secs(600);
        let of = |text| timeout(&headers(&[("timeout", text)]), most).as_secs();
        assert_eq!(
            (of("Infinite, Second-41"), of("Second-4100000000"), of("Infinite"), of("x")),
            (41, 600, 600, 600)
        );
        assert_eq!(of("Second-0"), 1);
    }

    #[test]
    fn lock_tokens_stand_in_brackets() {
        let of = |text| lock_token(&headers(&[("lock-token", text)])).map(|t| t.map(str::to_string));
        assert_eq!(of("<urn:uuid:1>"), Ok(Some("urn:uuid:1".into())));
        assert_eq!(of("urn:uuid:1"), Ok(Some("urn:uuid:1".into())), "as npm's webdav has it");
        assert!(of("<urn:uuid:1").is_err() && of("urn:uuid:1>").is_err());
    }
}
