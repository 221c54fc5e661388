//! Content of objects: noise that cannot be compressed, made once, so that objects of any size need
//! no memory.
//!
//! Several bodies of each size begin at different offsets of the noise; an answer with another
//! object's body counts as wrong bytes.

use super::sign;
use crate::probe::noise;
use leeward_env::hex;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Bytes of the noise; a prime, so that no block size of a store goes into it.
const NOISE: usize = 1_048_573;
/// From the start of one body to that of the next.
const STRIDE: usize = 16_411;
/// Larger bodies are not signed: clients send those as they come.
pub const SIGNED_MAX: u64 = 16 << 20;

/// The body of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Body {
    number: u32,
    /// Bytes.
    pub size: u64,
}

impl Body {
    /// That of an object with this number.
    pub fn of(object: u64, size: u64) -> Body {
        let bodies = match size {
            0..=65_536 => 61,
            65_537..=SIGNED_MAX => 3,
            _ => 1,
        };
        Body { number: (object % bodies) as u32, size }
    }
}

/// The noise, and digests of bodies.
pub struct Content {
    noise: Vec<u8>,
    digests: RefCell<BTreeMap<Body, String>>,
}

impl Content {
    /// The same in every process.
    pub fn new() -> Content {
        Content { noise: noise(NOISE, 6), digests: RefCell::default() }
    }

    /// Bytes of a body from `at` on: some at least, not past its end.
    pub fn piece(&self, body: Body, at: u64) -> &[u8] {
        let start = (u64::from(body.number) * STRIDE as u64 + at) % NOISE as u64;
        let left = usize::try_from(body.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let piece = &self.noise[start as usize..];
        &piece[..left.min(piece.len())]
    }

    /// Whether these bytes are those of a body from `at` on.
    pub fn is(&self, body: Body, mut at: u64, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let piece = self.piece(body, at);
            let len = piece.len().min(bytes.len());
            if len == 0 || piece[..len] != bytes[..len] {
                return false;
            }
            (at, bytes) = (at + len as u64, &bytes[len..]);
        }
        true
    }

    /// Calls `with` with what a request has as the digest of this body.
    pub fn with_digest<T>(&self, body: Body, with: impl FnOnce(&str) -> T) -> T {
        if body.size > SIGNED_MAX {
            return with(sign::UNSIGNED);
        }
        let mut digests = self.digests.borrow_mut();
        with(digests.entry(body).or_insert_with(|| self.digest(body)))
    }

    fn digest(&self, body: Body) -> String {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        let mut at = 0;
        while at < body.size {
            let piece = self.piece(body, at);
            context.update(piece);
            at += piece.len() as u64;
        }
        hex::encode(context.finish().as_ref())
    }
}

impl Default for Content {
    fn default() -> Content {
        Content::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(content: &Content, body: Body) -> Vec<u8> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < body.size {
            bytes.extend_from_slice(content.piece(body, bytes.len() as u64));
        }
        bytes
    }

    #[test]
    fn bodies_are_whole_and_told_apart() {
        let content = Content::new();
        for size in [0, 1, 4096, 3 << 20] {
            let body = Body::of(60, size);
            let bytes = whole(&content, body);
            assert_eq!(bytes.len() as u64, size);
            assert!(content.is(body, 0, &bytes));
            content.with_digest(body, |digest| assert_eq!(digest, sign::sha256(&bytes)));
        }
        let (one, other) = (Body::of(1, 4096), Body::of(2, 4096));
        assert!(!content.is(other, 0, &whole(&content, one)));
        assert!(content.is(one, 4000, &whole(&content, one)[4000..]));
        assert!(!content.is(one, 0, &[whole(&content, one), vec![0]].concat()), "too long");
        content.with_digest(Body::of(1, SIGNED_MAX + 1), |digest| assert_eq!(digest, sign::UNSIGNED));
    }
}
