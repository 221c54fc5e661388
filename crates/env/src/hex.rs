//! Bytes in hexadecimal digits.

/// Two digits for each byte, in lower case.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The bytes of such digits, in any case; `None` where there is anything else, or half a byte.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().map(|c| c.to_digit(16)).collect::<Option<Vec<_>>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
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
}
