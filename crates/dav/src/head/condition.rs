//! Conditional requests (RFC 9110, 13): `If-Match`, `If-None-Match`, `If-Modified-Since`,
//! `If-Unmodified-Since`, `If-Range`.

use super::{BadHeader, list, once};
use crate::date;
use http::HeaderMap;

/// The current state of a file, to compare conditions with.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    /// Its entity tag, with quotes; a strong one.
    pub etag: &'a str,
    /// Time of its modification, seconds since 1970.
    pub modified: i64,
}

/// The result of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request may proceed.
    Go,
    /// The client has it already: 304.
    NotModified,
    /// 412.
    Failed,
}

/// Checks the conditions of a request for the file, `None` where there is none. `reads`: GET and
/// HEAD.
///
/// # Errors
/// A header that occurs twice.
pub fn check(headers: &HeaderMap, reads: bool, current: Option<Current<'_>>) -> Result<Verdict, BadHeader> {
    let since = |name| Ok::<_, BadHeader>(once(headers, name)?.and_then(date::parse));
    if headers.contains_key("if-match") {
        let tags = list(headers, "if-match");
        if !current.is_some_and(|current| matches(&tags, current.etag, false)) {
            return Ok(Verdict::Failed);
        }
    } else if let Some(since) = since("if-unmodified-since")?
        && current.is_none_or(|current| current.modified > since)
    {
        return Ok(Verdict::Failed);
    }
    if headers.contains_key("if-none-match") {
        let tags = list(headers, "if-none-match");
        if current.is_some_and(|current| matches(&tags, current.etag, true)) {
            return Ok(if reads { Verdict::NotModified } else { Verdict::Failed });
        }
    } else if let Some(since) = since("if-modified-since")?
        && reads
        && current.is_some_and(|current| current.modified <= since)
    {
        return Ok(Verdict::NotModified);
    }
    Ok(Verdict::Go)
}

/// Whether `Range` counts: `If-Range` is missing, or matches the file.
///
/// # Errors
/// The header occurs twice.
pub fn range_counts(headers: &HeaderMap, current: Current<'_>) -> Result<bool, BadHeader> {
    Ok(match once(headers, "if-range")? {
        None => true,
        Some(tag) if tag.starts_with('"') => tag == current.etag,
        Some(text) => date::parse(text) == Some(current.modified),
    })
}

/// Whether a list of entity tags contains this one, or is `*`. `weakly`: a weak tag of the same
/// text counts, too.
fn matches(tags: &str, etag: &str, weakly: bool) -> bool {
    let mut tags = tags.split(',').map(str::trim);
    tags.any(|tag| tag == "*" || tag == etag || weakly && tag.strip_prefix("W/") == Some(etag))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const CURRENT: Option<Current<'_>> = Some(Current { etag: "\"a-1\"", modified: 784_111_777 });

    fn verdict(list: &[(&'static str, &str)], reads: bool, current: Option<Current<'_>>) -> Verdict {
        check(&headers(list), reads, current).unwrap()
    }

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn entity_tags() {
        use Verdict::*;
        for (header, value, reads, there, not_there) in [
            ("if-match", "\"a-1\"", false, Go, Failed),
            ("if-match", "\"x\", \"a-1\"", false, Go, Failed),
            ("if-match", "W/\"a-1\"", false, Failed, Failed),
            ("if-match", "*", false, Go, Failed),
            ("if-match", "\"x\"", true, Failed, Failed),
            ("if-none-match", "*", false, Failed, Go),
            ("if-none-match", "\"a-1\"", true, NotModified, Go),
            ("if-none-match", "W/\"a-1\"", true, NotModified, Go),
            ("if-none-match", "\"x\"", true, Go, Go),
        ] {
            let of = |current| verdict(&[(header, value)], reads, current);
            assert_eq!((of(CURRENT), of(None)), (there, not_there), "{header}: {value}");
        }
    }

    #[test]
    fn dates() {
        use Verdict::*;
        for (header, value, reads, expected) in [
            ("if-modified-since", NOW, true, NotModified),
            ("if-modified-since", BEFORE, true, Go),
            ("if-modified-since", NOW, false, Go),
            ("if-modified-since", "yesterday", true, Go),
            ("if-unmodified-since", NOW, false, Go),
            ("if-unmodified-since", BEFORE, false, Failed),
        ] {
            assert_eq!(verdict(&[(header, value)], reads, CURRENT), expected, "{header}: {value}");
        }
    }

    #[test]
    fn tags_count_before_dates() {
        let list = [("if-none-match", "\"x\""), ("if-modified-since", NOW)];
        assert_eq!(verdict(&list, true, CURRENT), Verdict::Go);
        let list = [("if-match", "\"a-1\""), ("if-unmodified-since", BEFORE)];
        assert_eq!(verdict(&list, false, CURRENT), Verdict::Go);
    }

    #[test]
    fn if_range_wants_the_very_same() {
        let counts = |value| range_counts(&headers(&[("if-range", value)]), CURRENT.unwrap()).unwrap();
        assert!(counts("\"a-1\"") && counts(NOW));
        assert!(!counts("W/\"a-1\"") && !counts("\"b\"") && !counts(BEFORE));
        assert!(range_counts(&HeaderMap::new(), CURRENT.unwrap()).unwrap());
    }
}
