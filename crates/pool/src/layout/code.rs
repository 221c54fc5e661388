//! Reed-Solomon over [`field`](super::field): computes parity from data, and any piece from enough
//! others.
//!
//! The code is what most libraries call Reed-Solomon. Row r, column c of the matrix is r to the
//! power of c, with as many rows as pieces. It is multiplied by the inverse of its upper square, so
//! that the first pieces are the data unchanged. Any `data` rows of it can be inverted. With one
//! data piece all rows are 1: copies.

use super::field::{Rows, inverse, multiply, power};

type Matrix = Vec<Vec<u8>>;

pub(crate) struct Code {
    data: usize,
    /// A row for each piece.
    matrix: Matrix,
    parity: Rows,
}

impl Code {
    /// For at most 256 pieces together.
    pub(crate) fn new(data: usize, parity: usize) -> Code {
        let all: Matrix =
            (0..data + parity).map(|r| (0..data).map(|c| power(r as u8, c)).collect()).collect();
        let top = invert(all[..data].to_vec()).expect("distinct rows of powers are independent");
        let matrix = product(&all, &top);
        let parity = Rows::new(data, matrix[data..].to_vec());
        Code { data, matrix, parity }
    }

    /// The sums that compute the parity pieces from the data pieces.
    pub(crate) fn parity(&self) -> &Rows {
        &self.parity
    }

    /// The sums that compute the pieces `want` from the pieces `have`. `have` has as many pieces as
    /// there are data pieces, all different.
    pub(crate) fn rebuild(&self, have: &[usize], want: &[usize]) -> Rows {
        assert_eq!(have.len(), self.data);
        let square = have.iter().map(|n| self.matrix[*n].clone()).collect();
        let data_of_have = invert(square).expect("any rows of the code are independent");
        let wanted: Matrix = want.iter().map(|n| self.matrix[*n].clone()).collect();
        Rows::new(self.data, product(&wanted, &data_of_have))
    }
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let columns = b.first().map_or(0, Vec::len);
    let sum = |row: &[u8], c: usize| row.iter().zip(b).fold(0, |sum, (x, row)| sum ^ multiply(*x, row[c]));
    a.iter().map(|row| (0..columns).map(|c| sum(row, c)).collect()).collect()
}

/// The inverse, by elimination; `None` when there is none.
fn invert(mut square: Matrix) -> Option<Matrix> {
    let size = square.len();
    for (n, row) in square.iter_mut().enumerate() {
        row.extend((0..size).map(|c| u8::from(c == n)));
    }
    for n in 0..size {
        let pivot = (n..size).find(|r| square[*r][n] != 0)?;
        square.swap(n, pivot);
        let factor = inverse(square[n][n]);
        square[n].iter_mut().for_each(|x| *x = multiply(*x, factor));
        let pivot = square[n].clone();
        for (r, row) in square.iter_mut().enumerate() {
            let factor = row[n];
            if r != n && factor != 0 {
                row.iter_mut().zip(&pivot).for_each(|(x, p)| *x ^= multiply(factor, *p));
            }
        }
    }
    Some(square.into_iter().map(|row| row[size..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use reed_solomon_erasure::galois_8::ReedSolomon;

    fn pieces(data: usize, parity: usize, len: usize, seed: u8) -> Vec<Vec<u8>> {
        let byte = |n: usize, at: usize| (n * 31 + at * 7 + at / 256) as u8 ^ seed;
        let mut all: Vec<Vec<u8>> = (0..data).map(|n| (0..len).map(|at| byte(n, at)).collect()).collect();
        let mut sums = vec![vec![0; len]; parity];
        let inputs: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        Code::new(data, parity)
            .parity()
            .apply(&inputs, &mut sums.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        all.append(&mut sums);
        all
    }

    #[test]
    fn copies_are_copies() {
        let all = pieces(1, 3, 100, 7);
        assert!(all.iter().all(|piece| *piece == all[0]));
    }

    proptest! {
        #[test]
        fn parity_is_that_of_another_library(data in 1usize..40, parity in 1usize..10, seed: u8) {
            let all = pieces(data, parity, 77, seed);
            let mut theirs = all.clone();
            theirs[data..].iter_mut().for_each(|piece| piece.fill(0));
            ReedSolomon::new(data, parity).unwrap().encode(&mut theirs).unwrap();
            prop_assert_eq!(all, theirs);
        }

        #[test]
        fn any_pieces_make_all_others(data in 1usize..30, parity in 1usize..8, order: u64, seed: u8) {
            let all = pieces(data, parity, 65, seed);
            let mut shuffled: Vec<usize> = (0..data + parity).collect();
            shuffled.sort_by_key(|n| (*n as u64 + 1).wrapping_mul(order | 1).rotate_left(17));
            let (have, want) = shuffled.split_at(data);
            let mut out = vec![vec![0; 65]; want.len()];
            let inputs: Vec<&[u8]> = have.iter().map(|n| all[*n].as_slice()).collect();
            Code::new(data, parity)
                .rebuild(have, want)
                .apply(&inputs, &mut out.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            for (n, piece) in want.iter().zip(out) {
                prop_assert_eq!(&all[*n], &piece);
            }
        }
    }
}
