//! Bytes in hexadecimal digits, also as escapes of URLs.

/// Two digits for each byte, in lower case.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Decodes such digits, in any case; `None` where there is anything else, or half a byte.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().map(|c| c.to_digit(16)).collect::<Option<Vec<_>>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// Decodes a text in which `%` and two digits stand for a byte; `None` where a `%` is followed by
/// anything else.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.extend(decode(digits)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        assert_eq!(encode(&[0, 255, 16]), "00ff10");
        assert_eq!(decode(&encode(&[0, 255, 16])), Some(vec![0, 255, 16]));
        assert_eq!(decode("FF"), Some(vec![255]));
        assert_eq!((decode("abc"), decode("zz"), decode("+1"), decode("é")), (None, None, None, None));
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape("a%20%fFé%2520"), Some(b"a \xff\xc3\xa9%20".to_vec()));
        assert_eq!(unescape(""), Some(vec![]));
        for text in ["%", "%4", "a%zz", "%+1", "%é", "%%20", "100%"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }
}
