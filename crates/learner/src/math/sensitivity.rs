//! How much of a function's variation hangs on each of its variables: total Sobol indices over states that were visited.
//!
//! ```text
//! T_d = E (f(x) - f(x'))^2 / (2 Var f(x))      x' is x but for x_d, which another state gives      [Jan99]
//! ```
//! T_d is the share of the variance of f that would be left if all variables but the d-th were known. Variables count as
//! independent, each with the distribution that it had: what two of them do only together is in the share of both, so that
//! shares may add up to more than one.
//!
//! Pairs (x_d, x'_d) are not drawn: the k-th smallest x_d of S meets the one of rank k + S frac(k g), g the golden section. Such a
//! lattice covers the square of pairs evenly, and the error of a share is about half of what random pairs give (measured on the
//! functions of `tests/python/test_relevance.py`). Var f is over all x and x' for the same reason.
//!
//! \[Jan99\] M. J. W. Jansen, Analysis of variance designs for model output, Computer Physics Communications 117, 1999.

/// (sqrt(5) - 1) / 2.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Values of a smaller variance than this share of the noise's are the same in every state, whatever rounding makes of them.
pub const UNNOTICED: f64 = 1e-9;

/// Total Sobol indices (D,), in \[0, 1\], of `f` over states (n, D), row-major. `f` gets some states and gives its value at
/// each; it is asked D + 1 times for `samples` of them. All indices are 0 where the variance of `f` is at most `least`, or there is no
/// state.
///
/// # Panics
/// If `dim` is 0, `states` are not whole rows of it, or `f` gives another number of values.
pub fn total_indices(
    states: &[f64],
    dim: usize,
    (samples, least): (usize, f64),
    f: &mut dyn FnMut(&[f64]) -> Vec<f64>,
) -> Vec<f64> {
    assert!(dim > 0 && states.len().is_multiple_of(dim), "states are rows of {dim} numbers");
    let n = states.len() / dim;
    if n == 0 || samples == 0 {
        return vec![0.0; dim];
    }
    // Evenly through the table where there are more states than samples, else each of them again and again.
    let row = |s: usize| if n >= samples { s * n / samples } else { s % n };
    let base: Vec<f64> = (0..samples).flat_map(|s| states[row(s) * dim..][..dim].iter().copied()).collect();
    let values = f(&base);
    assert_eq!(values.len(), samples, "one value for each state");
    let partner = |k: usize| (k + (((k + 1) as f64 * GOLDEN).fract() * samples as f64) as usize) % samples;
    let mut order: Vec<usize> = (0..samples).collect();
    let mut indices = Vec::with_capacity(dim);
    for d in 0..dim {
        order.sort_by(|&a, &b| base[a * dim + d].total_cmp(&base[b * dim + d]).then(a.cmp(&b)));
        let mut moved = base.clone();
        for (k, &s) in order.iter().enumerate() {
            moved[s * dim + d] = base[order[partner(k)] * dim + d];
        }
        let moved = f(&moved);
        assert_eq!(moved.len(), samples, "one value for each state");
        let squares = values.iter().zip(&moved).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / samples as f64;
        let all = variance(&values, &moved);
        indices.push(if all > least && all.is_finite() { (squares / (2.0 * all)).min(1.0) } else { 0.0 });
    }
    indices
}

/// Variance of the numbers of both lists together.
fn variance(one: &[f64], other: &[f64]) -> f64 {
    let (both, n) = (|| one.iter().chain(other), (one.len() + other.len()) as f64);
    let mean = both().sum::<f64>() / n;
    both().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;
    use std::f64::consts::PI;

    /// Points (n, D), each coordinate uniform between `low` and `high`.
    fn uniform(n: usize, dim: usize, [low, high]: [f64; 2]) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        (0..n * dim).map(|_| low + (high - low) * rng.random::<f64>()).collect()
    }

    fn indices(states: &[f64], dim: usize, f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        total_indices(states, dim, (4000, 1e-9), &mut |states| states.chunks_exact(dim).map(&f).collect())
    }

    fn close(found: &[f64], expected: &[f64]) {
        let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.04);
        assert!(near && found.len() == expected.len(), "{found:?}, should be {expected:?}");
    }

    #[test]
    fn indices_are_those_that_are_known() {
        // Ishigami and Homma 1990, with their a = 7 and b = 0.1: total indices in closed form.
        let ishigami = |x: &[f64]| x[0].sin() + 7.0 * x[1].sin().powi(2) + 0.1 * x[2].powi(4) * x[0].sin();
        close(&indices(&uniform(5000, 3, [-PI, PI]), 3, ishigami), &[0.5576, 0.4424, 0.2437]);
        // A sum of independent terms: their shares of the variance.
        let linear = |x: &[f64]| 3.0 * x[0] + 2.0 * x[1] + 0.0 * x[2] - 4.0;
        close(&indices(&uniform(5000, 3, [0.0, 1.0]), 3, linear), &[9.0 / 13.0, 4.0 / 13.0, 0.0]);
        // What two variables do only together is in the share of both.
        close(&indices(&uniform(5000, 2, [-1.0, 1.0]), 2, |x| x[0] * x[1]), &[1.0, 1.0]);
        // Sobol's g function with a = (0, 1, 9): D_i = 1 / (3 (1 + a_i)^2), T_i = D_i prod_{j != i} (1 + D_j) / D.
        let a = [0.0, 1.0, 9.0];
        let g = |x: &[f64]| (0..3).map(|i| ((4.0 * x[i] - 2.0).abs() + a[i]) / (1.0 + a[i])).product();
        let partial = a.map(|a: f64| 1.0 / (3.0 * (1.0 + a) * (1.0 + a)));
        let all: f64 = partial.iter().map(|d| 1.0 + d).product();
        let expected = partial.map(|d| d / (1.0 + d) * all / (all - 1.0));
        close(&indices(&uniform(5000, 3, [0.0, 1.0]), 3, g), &expected);
    }

    #[test]
    fn a_copy_that_the_function_does_not_read_has_no_share() {
        let states: Vec<f64> = uniform(3000, 1, [0.0, 1.0]).into_iter().flat_map(|x| [x, x]).collect();
        close(&indices(&states, 2, |x| x[0].exp()), &[1.0, 0.0]);
    }

    #[test]
    fn few_states_and_functions_that_do_not_vary_have_indices_too() {
        assert_eq!(indices(&[], 2, |x| x[0]), [0.0, 0.0]);
        assert_eq!(indices(&[1.0, 2.0], 2, |x| x[0]), [0.0, 0.0]);
        assert_eq!(indices(&uniform(50, 2, [0.0, 1.0]), 2, |_| 3.0), [0.0, 0.0]);
        assert_eq!(indices(&uniform(50, 2, [0.0, 1.0]), 2, |x| 3.0 + 1e-5 * x[0]), [0.0, 0.0], "so little is nothing");
        let four = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
        close(&indices(&four, 2, |x| x[0]), &[1.0, 0.0]);
    }
}
