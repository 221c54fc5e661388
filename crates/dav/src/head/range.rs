//! `Range` (RFC 9110, 14): which bytes of a file are wanted.

/// Most ranges of one request: clients of physics data ask for hundreds of small ones at once.
const RANGES_MAX: usize = 1024;

/// A piece of a file: `start..end`, never empty.
pub type Piece = std::ops::Range<u64>;

/// The part of a file that a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: there is no range, or none that means anything.
    Whole,
    /// These pieces, in the order of the request.
    Pieces(Vec<Piece>),
    /// No byte that exists, or more than makes sense.
    Nothing,
}

/// The part of a file of `size` bytes that the text of a `Range` means.
pub fn wanted(text: &str, size: u64) -> Wanted {
    let Some((unit, set)) = text.split_once('=') else { return Wanted::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let mut pieces = Vec::new();
    let mut specs = 0;
    for spec in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        specs += 1;
        if specs > RANGES_MAX {
            return Wanted::Nothing;
        }
        match piece(spec, size) {
            Ok(Some(piece)) => pieces.push(piece),
            Ok(None) => {}
            Err(()) => return Wanted::Whole,
        }
    }
    let total = pieces.iter().map(|p| u128::from(p.end - p.start)).sum::<u128>();
    match pieces.len() {
        0 if specs == 0 => Wanted::Whole,
        0 => Wanted::Nothing,
        // pieces that overlap more than twice only multiply what is sent
        _ if total > 2 * u128::from(size) => Wanted::Nothing,
        _ => Wanted::Pieces(pieces),
    }
}

/// `a-b`, `a-` or `-n`; `None` when the file has none of it.
fn piece(spec: &str, size: u64) -> Result<Option<Piece>, ()> {
    let (first, last) = spec.split_once('-').ok_or(())?;
    if first.is_empty() {
        let count = number(last)?;
        return Ok((count > 0 && size > 0).then(|| size.saturating_sub(count)..size));
    }
    let start = number(first)?;
    let end = match last {
        "" => size,
        last => {
            let last = number(last)?;
            if last < start {
                return Err(());
            }
            last.saturating_add(1).min(size)
        }
    };
    Ok((start < end).then_some(start..end))
}

/// Only digits; a number beyond 64 bits becomes the largest one.
fn number(text: &str) -> Result<u64, ()> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(());
    }
    Ok(text.parse().unwrap_or(u64::MAX))
}

/// `Content-Range` of a piece.
pub fn content_range(piece: &Piece, size: u64) -> String {
    format!("bytes {}-{}/{size}", piece.start, piece.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, size: u64) -> Option<Piece> {
        match wanted(text, size) {
            Wanted::Pieces(pieces) if pieces.len() == 1 => Some(pieces[0].clone()),
            _ => None,
        }
    }

    #[test]
    fn single_pieces() {
        assert_eq!(one("bytes=0-0", 10), Some(0..1));
        assert_eq!(one("bytes=3-", 10), Some(3..10));
        assert_eq!(one("bytes=-3", 10), Some(7..10));
        assert_eq!(one("bytes=-30", 10), Some(0..10));
        assert_eq!(one("BYTES = 2-99999999999999999999999", 10), Some(2..10));
        assert_eq!(content_range(&(2..10), 10), "bytes 2-9/10");
    }

    #[test]
    fn several_pieces_keep_their_order() {
        assert_eq!(wanted("bytes=5-6, 0-1,20-", 10), Wanted::Pieces(vec![5..7, 0..2]));
    }

    #[test]
    fn what_is_not_there_and_what_means_nothing() {
        for text in ["bytes=10-", "bytes=-0", "bytes=20-30,40-"] {
            assert_eq!(wanted(text, 10), Wanted::Nothing, "{text}");
        }
        assert_eq!(wanted("bytes=-5", 0), Wanted::Nothing);
        for text in ["bytes=5-4", "bytes=a-b", "bytes", "lines=1-2", "bytes=", "bytes=--1", "bytes=+1-2"] {
            assert_eq!(wanted(text, 10), Wanted::Whole, "{text}");
        }
    }

    #[test]
    fn pieces_that_multiply_a_file_are_refused() {
        let many = |n| format!("bytes={}", vec!["0-"; n].join(","));
        assert_eq!(wanted(&many(3), 10), Wanted::Nothing);
        assert!(matches!(wanted(&many(2), 10), Wanted::Pieces(_)));
        let spread: Vec<String> = (0..RANGES_MAX + 1).map(|n| format!("{n}-{n}")).collect();
        assert_eq!(wanted(&format!("bytes={}", spread.join(",")), 1 << 20), Wanted::Nothing);
    }
}
