//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), and sums of products
//! over long slices in it.
//!
//! All of erasure coding is [`Rows::apply`]: each output byte is a sum of input bytes, each times a
//! constant. The product with a constant is linear over bits, so there are two fast ways. One uses
//! an instruction that multiplies bytes by an 8x8 matrix of bits (GFNI). The other looks up half a
//! byte at a time in a register (AVX2). The processor's features decide at run time. Elsewhere a
//! table is used. All three give the same bytes; tests compare them.

use std::sync::LazyLock;

const POLYNOMIAL: u16 = 0x11d;

/// Powers of 2, twice over, so that sums of two logarithms need no reduction.
const POWERS: [u8; 510] = {
    let mut powers = [0; 510];
    let (mut n, mut x) = (0, 1u16);
    while n < 255 {
        powers[n] = x as u8;
        powers[n + 255] = x as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= POLYNOMIAL;
        }
        n += 1;
    }
    powers
};

const LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut n = 0;
    while n < 255 {
        logarithms[POWERS[n] as usize] = n as u8;
        n += 1;
    }
    logarithms
};

/// The product.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// One divided by `a`, which is not 0.
pub(crate) const fn inverse(a: u8) -> u8 {
    POWERS[255 - LOGARITHMS[a as usize] as usize]
}

/// `a` to the power of `n`; 0 to the power of 0 is 1.
pub(crate) const fn power(a: u8, n: usize) -> u8 {
    match (a, n) {
        (_, 0) => 1,
        (0, _) => 0,
        _ => POWERS[LOGARITHMS[a as usize] as usize * n % 255],
    }
}

/// The implementation that works on slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Table,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Gfni,
}

static BEST: LazyLock<Way> = LazyLock::new(|| ways().pop().unwrap_or(Way::Table));

/// The implementations that this processor can run, the fastest last.
pub(crate) fn ways() -> Vec<Way> {
    let mut ways = vec![Way::Table];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            ways.push(Way::Avx2);
        }
        if is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512bw") {
            ways.push(Way::Gfni);
        }
    }
    ways
}

/// Outputs that one pass over the inputs computes.
const LANES: usize = 4;

/// Coefficients of sums of products: one row for each output, one column for each input.
pub(crate) struct Rows {
    inputs: usize,
    coefficients: Vec<Vec<u8>>,
}

impl Rows {
    /// All rows have `inputs` columns.
    pub(crate) fn new(inputs: usize, coefficients: Vec<Vec<u8>>) -> Rows {
        assert!(coefficients.iter().all(|row| row.len() == inputs));
        Rows { inputs, coefficients }
    }

    /// Fills the outputs, which have the same length. An input may be shorter and counts as
    /// followed by zeros. No input may be longer.
    pub(crate) fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.apply_by(*BEST, inputs, outputs);
    }

    pub(crate) fn apply_by(&self, way: Way, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_eq!((inputs.len(), outputs.len()), (self.inputs, self.coefficients.len()));
        let Some(len) = outputs.first().map(|out| out.len()) else { return };
        assert!(outputs.iter().all(|out| out.len() == len) && inputs.iter().all(|input| input.len() <= len));
        let mut ends: Vec<usize> = inputs.iter().map(|input| input.len()).chain([len]).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut from = 0;
        for to in ends {
            // as long as the same inputs go on
            let (columns, parts): (Vec<usize>, Vec<&[u8]>) = inputs
                .iter()
                .enumerate()
                .filter(|(_, i)| i.len() >= to)
                .map(|(n, i)| (n, &i[from..to]))
                .unzip();
            for (rows, outs) in self.coefficients.chunks(LANES).zip(outputs.chunks_mut(LANES)) {
                let rows: Vec<Vec<u8>> =
                    rows.iter().map(|row| columns.iter().map(|n| row[*n]).collect()).collect();
                let mut outs: Vec<&mut [u8]> = outs.iter_mut().map(|out| &mut out[from..to]).collect();
                some_rows(way, &rows, &parts, &mut outs);
            }
            from = to;
        }
    }
}

/// At most [`LANES`] rows of equally long slices.
fn some_rows(way: Way, rows: &[Vec<u8>], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let done = match way {
        Way::Table => 0,
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a way is only taken on a processor that has it.
        Way::Avx2 => unsafe { x86::avx2(rows, inputs, outputs) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Way::Gfni => unsafe { x86::gfni(rows, inputs, outputs) },
    };
    for (row, out) in rows.iter().zip(outputs) {
        let out = &mut out[done..];
        out.fill(0);
        for (factor, input) in row.iter().zip(inputs) {
            let products: [u8; 256] = std::array::from_fn(|b| multiply(*factor, b as u8));
            out.iter_mut().zip(&input[done..]).for_each(|(o, i)| *o ^= products[usize::from(*i)]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Each function processes whole vectors from the start of the slices and returns how many
    //! bytes it did. The caller does the rest.
    //!
    //! A group of outputs stays in registers while all inputs are read: every input is read once,
    //! every output written once.

    use super::{LANES, multiply};
    use std::arch::x86_64::*;

    /// Products of a constant with all values of the lower and of the upper half of a byte.
    type Halves = (__m256i, __m256i);

    #[target_feature(enable = "avx2")]
    fn halves(factor: u8) -> Halves {
        let low: [u8; 16] = std::array::from_fn(|n| multiply(factor, n as u8));
        let high: [u8; 16] = std::array::from_fn(|n| multiply(factor, (n as u8) << 4));
        // SAFETY: both arrays have 16 bytes.
        let load = |table: &[u8; 16]| unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        (_mm256_broadcastsi128_si256(load(&low)), _mm256_broadcastsi128_si256(load(&high)))
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(rows: &[Vec<u8>], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> usize {
        const BYTES: usize = 32;
        let end = outputs.first().map_or(0, |out| out.len() / BYTES * BYTES);
        let tables: Vec<[Halves; LANES]> = (0..inputs.len())
            .map(|n| std::array::from_fn(|lane| halves(rows.get(lane).map_or(0, |row| row[n]))))
            .collect();
        let mask = _mm256_set1_epi8(0x0f);
        for at in (0..end).step_by(BYTES) {
            let mut sums = [_mm256_setzero_si256(); LANES];
            for (input, table) in inputs.iter().zip(&tables) {
                debug_assert!(at + BYTES <= input.len());
                // SAFETY: all slices are as long as the outputs, of which `end` is within.
                let bytes = unsafe { _mm256_loadu_si256(input.as_ptr().add(at).cast()) };
                let low = _mm256_and_si256(bytes, mask);
                let high = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), mask);
                for (sum, (of_low, of_high)) in sums.iter_mut().zip(table).take(rows.len()) {
                    let product = _mm256_xor_si256(
                        _mm256_shuffle_epi8(*of_low, low),
                        _mm256_shuffle_epi8(*of_high, high),
                    );
                    *sum = _mm256_xor_si256(*sum, product);
                }
            }
            for (out, sum) in outputs.iter_mut().zip(sums) {
                // SAFETY: as above.
                unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), sum) };
            }
        }
        end
    }

    /// The product with a constant as a matrix of bits, in the order that the instruction wants:
    /// row for bit 7 last.
    fn bits(factor: u8) -> u64 {
        let mut rows = [0u8; 8];
        for bit in 0..8 {
            let product = multiply(factor, 1 << bit);
            for (to, row) in rows.iter_mut().enumerate() {
                *row |= (product >> to & 1) << bit;
            }
        }
        rows.reverse();
        u64::from_le_bytes(rows)
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) fn gfni(rows: &[Vec<u8>], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> usize {
        match rows.len() {
            0 => 0,
            1 => gfni_rows::<1>(rows, inputs, outputs),
            2 => gfni_rows::<2>(rows, inputs, outputs),
            3 => gfni_rows::<3>(rows, inputs, outputs),
            _ => gfni_rows::<4>(rows, inputs, outputs),
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn gfni_rows<const N: usize>(rows: &[Vec<u8>], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> usize {
        const BYTES: usize = 64;
        let end = outputs.first().map_or(0, |out| out.len() / BYTES * BYTES);
        let matrices: Vec<[__m512i; N]> = (0..inputs.len())
            .map(|n| std::array::from_fn(|lane| _mm512_set1_epi64(bits(rows[lane][n]) as i64)))
            .collect();
        for at in (0..end).step_by(BYTES) {
            let mut sums = [_mm512_setzero_si512(); N];
            for (input, of_lane) in inputs.iter().zip(&matrices) {
                debug_assert!(at + BYTES <= input.len());
                // SAFETY: all slices are as long as the outputs, of which `end` is within.
                let bytes = unsafe { _mm512_loadu_si512(input.as_ptr().add(at).cast()) };
                for (sum, matrix) in sums.iter_mut().zip(of_lane) {
                    *sum = _mm512_xor_si512(*sum, _mm512_gf2p8affine_epi64_epi8::<0>(bytes, *matrix));
                }
            }
            for (out, sum) in outputs.iter_mut().zip(sums) {
                // SAFETY: as above.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), sum) };
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        let slow = |a: u8, b: u8| {
            let mut product = (0..8).filter(|n| b >> n & 1 == 1).fold(0u16, |sum, n| sum ^ u16::from(a) << n);
            for n in (8..16).rev() {
                if product >> n & 1 == 1 {
                    product ^= POLYNOMIAL << (n - 8);
                }
            }
            product as u8
        };
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), slow(a, b));
            }
            assert!(a == 0 || multiply(a, inverse(a)) == 1);
            assert_eq!(power(a, 3), multiply(a, multiply(a, a)));
            assert_eq!(power(a, 0), 1);
        }
    }

    #[test]
    fn all_ways_are_one() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for (inputs, outputs) in [(1, 1), (1, 3), (2, 2), (3, 4), (11, 3), (5, 9)] {
            for len in [0usize, 1, 31, 64, 100, 1000, 4096] {
                let rows = (0..outputs).map(|_| (0..inputs).map(|_| random()).collect()).collect();
                let rows = Rows::new(inputs, rows);
                let data: Vec<Vec<u8>> = (0..inputs)
                    .map(|n| {
                        (0..[len, len, len / 2, len.saturating_sub(33)][n % 4]).map(|_| random()).collect()
                    })
                    .collect();
                let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let by = |way| {
                    let mut out = vec![vec![0xee; len]; outputs];
                    rows.apply_by(
                        way,
                        &slices,
                        &mut out.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
                    );
                    out
                };
                let expected: Vec<Vec<u8>> = rows
                    .coefficients
                    .iter()
                    .map(|row| {
                        let sum = |at: usize| {
                            let products =
                                row.iter().zip(&data).map(|(c, d)| multiply(*c, *d.get(at).unwrap_or(&0)));
                            products.fold(0, |a, b| a ^ b)
                        };
                        (0..len).map(sum).collect()
                    })
                    .collect();
                for way in ways() {
                    assert!(by(way) == expected, "{way:?} {inputs} {outputs} {len}");
                }
            }
        }
    }
}
