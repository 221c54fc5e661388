//! Manifests: a line for each file, in the form that `sha256sum` writes and `sha256sum -c` reads.

use leeward_env::hex;
use ring::digest::Digest;

/// The line for a file. A name with a backslash or an end of line is escaped, and the line then
/// begins with a backslash.
pub fn line(digest: &Digest, path: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(path.len() + 68);
    if path.iter().any(|b| matches!(b, b'\\' | b'\n' | b'\r')) {
        line.push(b'\\');
    }
    line.extend_from_slice(hex::encode(digest.as_ref()).as_bytes());
    line.extend_from_slice(b"  ");
    for byte in path {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::digest::{SHA256, digest};

    #[test]
    fn odd_names_are_escaped() {
        let empty = digest(&SHA256, b"");
        let sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(line(&empty, b"./a b"), format!("{sum}  ./a b\n").into_bytes());
        assert_eq!(line(&empty, b"./a\nb\\"), format!("\\{sum}  ./a\\nb\\\\\n").into_bytes());
        assert_eq!(line(&empty, b"./\xff\r"), [b"\\", sum.as_bytes(), b"  ./\xff\\r\n"].concat());
    }
}
