//! Where files are cut into chunks: by their content, as restic does, so that bytes that move in a
//! file, or are in two files, are stored once.
//!
//! A chunk ends where 20 bits of the Rabin fingerprint of the last 64 bytes are zero, by a
//! polynomial that each repository has of its own. It has 512 KiB at least and 8 MiB at most.

use leeward_env::Env;

/// Shortest chunk but the last.
pub const MIN_BYTES: usize = 512 << 10;
/// Longest chunk.
pub const MAX_BYTES: usize = 8 << 20;
const WINDOW: usize = 64;
const MASK: u64 = (1 << 20) - 1;
/// Degree of the polynomial.
const DEGREE: u32 = 53;

/// A polynomial over GF(2): bit `n` is the coefficient of `x^n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polynomial(pub u64);

impl Polynomial {
    /// An irreducible one, at random.
    pub fn random(env: &Env) -> Polynomial {
        loop {
            let bits = u64::from_le_bytes(env.secret()) & ((1 << DEGREE) - 1);
            let found = Polynomial(bits | 1 << DEGREE | 1);
            if found.is_irreducible() {
                return found;
            }
        }
    }

    fn degree(self) -> i32 {
        63 - self.0.leading_zeros() as i32
    }

    fn modulo(self, by: Polynomial) -> Polynomial {
        let (mut rest, degree) = (self, by.degree());
        while rest.0 != 0 && rest.degree() >= degree {
            rest.0 ^= by.0 << (rest.degree() - degree);
        }
        rest
    }

    /// `self * other mod by`, where both are of a lower degree than `by`.
    fn times(self, other: Polynomial, by: Polynomial) -> Polynomial {
        let (mut product, mut factor) = (0, self.0);
        for bit in 0..=other.degree().max(0) {
            if other.0 >> bit & 1 == 1 {
                product ^= factor;
            }
            factor = Polynomial(factor << 1).modulo(by).0;
        }
        Polynomial(product)
    }

    fn gcd(self, other: Polynomial) -> Polynomial {
        let (mut a, mut b) = (self, other);
        while b.0 != 0 {
            (a, b) = (b, a.modulo(b));
        }
        a
    }

    /// By the test of Ben-Or: no factor of a degree up to half its own.
    pub fn is_irreducible(self) -> bool {
        if self.degree() < 2 || self.degree() > DEGREE as i32 {
            return false;
        }
        let x = Polynomial(2);
        let mut power = x;
        (0..self.degree() / 2).all(|_| {
            power = power.times(power, self);
            self.gcd(Polynomial(power.0 ^ x.0)) == Polynomial(1)
        })
    }
}

/// What a fingerprint changes by, for each byte that comes and goes.
pub struct Tables {
    out: [u64; 256],
    modulo: [u64; 256],
    shift: u32,
}

impl Tables {
    /// Those of a polynomial of a degree of at least 9.
    pub fn new(polynomial: Polynomial) -> Tables {
        let degree = polynomial.degree();
        let (mut out, mut modulo) = ([0; 256], [0; 256]);
        for byte in 0..256u64 {
            let top = byte << degree;
            modulo[byte as usize] = Polynomial(top).modulo(polynomial).0 | top;
        }
        let mut tables = Tables { out, modulo, shift: degree as u32 - 8 };
        for byte in 0..=255u8 {
            let first = tables.append(0, byte);
            out[usize::from(byte)] = (1..WINDOW).fold(first, |digest, _| tables.append(digest, 0));
        }
        tables.out = out;
        tables
    }

    fn append(&self, digest: u64, byte: u8) -> u64 {
        let top = (digest >> self.shift) as usize & 255;
        (digest << 8 | u64::from(byte)) ^ self.modulo[top]
    }

    /// The length of the first chunk of these bytes, at most [`MAX_BYTES`]; `None`: no chunk ends
    /// in them.
    pub fn first_end(&self, bytes: &[u8]) -> Option<usize> {
        let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
        if bytes.len() < MIN_BYTES {
            return None;
        }
        // the window begins empty there, but for a one that is not of the file
        let from = MIN_BYTES - WINDOW;
        let mut digest = self.append(0, 1);
        for byte in &bytes[from..from + WINDOW - 1] {
            digest = self.append(digest, *byte);
        }
        // the one leaves with the first byte that fills the window
        digest = self.append(digest ^ self.out[1], bytes[MIN_BYTES - 1]);
        let mut end = MIN_BYTES;
        while digest & MASK != 0 {
            if end == bytes.len() {
                return (end == MAX_BYTES).then_some(end);
            }
            digest = self.append(digest ^ self.out[usize::from(bytes[end - WINDOW])], bytes[end]);
            end += 1;
        }
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_are_judged() {
        // those of restic's own tests
        assert!(Polynomial(0x003d_a335_8b4d_c173).is_irreducible());
        for reducible in [0x0038_f1e5_65e2_88df, 0x0030_a829_5b9d_5c91, 0x0025_5f43_50b9_62cb, 0, 1] {
            assert!(!Polynomial(reducible).is_irreducible());
        }
        let (a, b) = (Polynomial::random(&Env::real()), Polynomial::random(&Env::real()));
        assert_ne!(a, b);
        assert_eq!(a.degree(), 53);
    }

    #[test]
    fn chunks_end_where_the_content_says() {
        let tables = Tables::new(Polynomial(0x003d_a335_8b4d_c173));
        let mut state = 1u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(20 << 20)
        .collect();
        let mut ends = Vec::new();
        let mut at = 0;
        while let Some(len) = tables.first_end(&bytes[at..]) {
            assert!((MIN_BYTES..=MAX_BYTES).contains(&len));
            at += len;
            ends.push(at);
        }
        assert!(ends.len() > 5, "{ends:?}");
        // after some bytes more at the beginning the ends are the same again
        let mut moved = bytes[..1000].to_vec();
        moved.extend_from_slice(&bytes);
        let (mut at, mut again) = (0, Vec::new());
        while let Some(len) = tables.first_end(&moved[at..]) {
            at += len;
            again.push(at - 1000);
        }
        assert_eq!(ends.last(), again.last());
        // zeros end at once
        assert_eq!(tables.first_end(&vec![0; 1 << 20]), Some(MIN_BYTES));
        assert_eq!(tables.first_end(&vec![0; MIN_BYTES - 1]), None);
    }
}
