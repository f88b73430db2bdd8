//! Memory for large matrices that come and go: it goes back to the system as soon as they do.

use super::dense::{Matrix, Op, View, product_in};

/// Numbers from which on it is worth it: 1 MiB.
const LARGE: usize = 1 << 17;
/// Numbers that the allocator of glibc maps on their own, more than 32 MiB: given back as soon as they are freed, and without
/// raising the size up to which it keeps what is freed. Room that is not written to takes no memory.
const APART: usize = (32 << 20) / size_of::<f64>() + 1;

/// `count` zeros, from `large` numbers on in memory of their own.
pub(crate) fn numbers(count: usize, large: usize) -> Vec<f64> {
    let mut numbers = vec![0.0; if count < large { count } else { APART.max(count) }];
    numbers.truncate(count);
    numbers
}

/// A matrix of zeros.
pub(crate) fn zeros(rows: usize, cols: usize) -> Matrix {
    Matrix::from_columns(rows, cols, numbers(rows * cols, LARGE))
}

/// A new matrix op(a) op(b).
pub(crate) fn product(a: View<'_>, op_a: Op, b: View<'_>, op_b: Op) -> Matrix {
    product_in(zeros, a, op_a, b, op_b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::dense;

    #[test]
    fn large_ones_have_memory_of_their_own() {
        assert!(numbers(LARGE, LARGE).capacity() * size_of::<f64>() > 32 << 20);
        assert_eq!(numbers(LARGE - 1, LARGE).capacity(), LARGE - 1);
        let many = APART + 7;
        assert_eq!((numbers(many, LARGE).len(), numbers(many, LARGE).capacity()), (many, many));
        assert_eq!(zeros(512, 256), Matrix::zeros(512, 256));
    }

    #[test]
    fn products_are_those_of_other_memory() {
        let sample = |rows: usize, cols: usize| {
            let entry = |k: usize| ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 0.5;
            Matrix::from_columns(rows, cols, (0..rows * cols).map(entry).collect())
        };
        let (a, b) = (sample(400, 60), sample(60, 400));
        for (op_a, op_b, left, right) in [(Op::Plain, Op::Plain, &a, &b), (Op::Transposed, Op::Transposed, &b, &a)] {
            let found = product(left.view(), op_a, right.view(), op_b);
            assert_eq!(found, dense::product(left.view(), op_a, right.view(), op_b));
        }
    }
}
