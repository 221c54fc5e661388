//! Checksums of whole files: the three that the grid and its clients use, computed as bytes pass.
//! `leeward_door::notes` keeps them with a file, for all doors. They count only while the file has
//! the content that they belong to.

use fast_md5::Md5;
use leeward_door::Digest;
use leeward_door::notes::Sums;
use leeward_env::hex;
use simd_adler32::Adler32;

/// An algorithm for checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Adler-32.
    Adler32,
    /// MD5.
    Md5,
    /// SHA-256.
    Sha256,
}

impl Algorithm {
    /// All algorithms, in the order of answers.
    pub const ALL: [Algorithm; 3] = [Algorithm::Adler32, Algorithm::Md5, Algorithm::Sha256];

    /// The algorithm with any of the names that clients use, in any case.
    pub fn named(name: &str) -> Option<Algorithm> {
        match name.to_ascii_lowercase().as_str() {
            "adler32" | "adler" => Some(Algorithm::Adler32),
            "md5" => Some(Algorithm::Md5),
            "sha-256" | "sha256" => Some(Algorithm::Sha256),
            _ => None,
        }
    }

    /// Its name where checksums are kept.
    pub fn key(self) -> &'static str {
        match self {
            Algorithm::Adler32 => "adler32",
            Algorithm::Md5 => "md5",
            Algorithm::Sha256 => "sha256",
        }
    }

    /// Length of its values, bytes.
    pub fn bytes(self) -> usize {
        match self {
            Algorithm::Adler32 => 4,
            Algorithm::Md5 => 16,
            Algorithm::Sha256 => 32,
        }
    }
}

/// The value of one checksum, where it is known.
pub fn value(sums: &Sums, algorithm: Algorithm) -> Option<Vec<u8>> {
    hex::decode(sums.get(algorithm.key())?).filter(|value| value.len() == algorithm.bytes())
}

/// Checksums of bytes that arrive one after the other.
pub struct Running {
    adler32: Adler32,
    md5: Md5,
    sha256: ring::digest::Context,
}

impl Default for Running {
    fn default() -> Running {
        let sha256 = ring::digest::Context::new(&ring::digest::SHA256);
        Running { adler32: Adler32::new(), md5: Md5::new(), sha256 }
    }
}

impl Digest for Running {
    fn add(&mut self, bytes: &[u8]) {
        Running::add(self, bytes);
    }
}

impl Running {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.adler32.write(bytes);
        self.md5.update(bytes);
        self.sha256.update(bytes);
    }

    /// The checksums of all bytes.
    pub fn end(self) -> Sums {
        let mut sums = Sums::default();
        sums.set(Algorithm::Adler32.key(), &hex::encode(&self.adler32.finish().to_be_bytes()));
        sums.set(Algorithm::Md5.key(), &hex::encode(&self.md5.finalize()));
        sums.set(Algorithm::Sha256.key(), &hex::encode(self.sha256.finish().as_ref()));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> Sums {
        let mut running = Running::default();
        parts.iter().for_each(|part| running.add(part));
        running.end()
    }

    #[test]
    fn known_values() {
        let sums = of(&[b"Wiki", b"", b"pedia"]);
        assert_eq!(sums.get("adler32"), Some("11e60398"));
        assert_eq!(sums.get("md5"), Some("9c677286866aad38f8e9b660f5411814"));
        assert_eq!(of(&[]).get("adler32"), Some("00000001"));
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(&[b"abc"]).get("sha256"), Some(abc));
        assert_eq!(value(&sums, Algorithm::Adler32), Some(vec![0x11, 0xe6, 0x03, 0x98]));
        assert_eq!(value(&Sums::default(), Algorithm::Md5), None);
    }
}
