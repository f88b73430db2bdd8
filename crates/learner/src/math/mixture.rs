//! Features of inputs whose last coordinates are a distribution over discrete actions.
//! ```text
//! psi = sum_a pi(a) phi(x, a)                                                     docs/mathematics.md (A2)
//! ```
//! Features are linear in kernel values, so that such an input needs no kernel of its own. It is a functional of the value
//! function and no point of it: no dictionary may hold it.

use super::dense::{Matrix, ViewMut, axpy};
use super::dictionary::Dictionary;

/// Whether the last `choices` coordinates of `input` are anything else than the unit vector of one action.
pub fn is_mixture(input: &[f64], choices: usize) -> bool {
    let (mut ones, mut others) = (0, 0);
    for &p in &input[input.len() - choices..] {
        if p == 1.0 {
            ones += 1;
        } else if p != 0.0 {
            others += 1;
        }
    }
    choices > 0 && (ones, others) != (1, 0)
}

/// `input` (D,) with action `choice` of `choices` in place of its distribution, appended to `out`.
pub fn with_choice(input: &[f64], choices: usize, choice: usize, out: &mut Vec<f64>) {
    let state = &input[..input.len() - choices];
    out.extend_from_slice(state);
    out.extend((0..choices).map(|a| if a == choice { 1.0 } else { 0.0 }));
}

/// Memory that features of mixtures are worked out in, kept from one use to the next.
#[derive(Clone, Debug, Default)]
pub struct Mixtures {
    inputs: Vec<f64>,
    points: Vec<f64>,
    features: Matrix,
    covariances: Matrix,
}

impl Mixtures {
    /// out (m, n) <- features of `inputs` (n, D), row-major, in the coordinates of the kernel, whose last `choices` are a
    /// distribution. A mixture costs as much as one input for each of its actions above 0.
    ///
    /// # Panics
    /// If `out` is not (m, n).
    pub fn features_into(&mut self, dictionary: &Dictionary, choices: usize, inputs: &[f64], mut out: ViewMut<'_>) {
        let dim = dictionary.dim();
        self.inputs.clear();
        for input in inputs.chunks_exact(dim) {
            for (a, _) in shares(input, choices) {
                with_choice(input, choices, a, &mut self.inputs);
            }
        }
        self.points.clear();
        dictionary.kernel().project_into(dim, &self.inputs, &mut self.points);
        self.features.renew(dictionary.len(), self.inputs.len() / dim);
        dictionary.features_into(&self.points, &mut self.covariances, self.features.view_mut());
        let mut from = 0;
        for (k, input) in inputs.chunks_exact(dim).enumerate() {
            let column = out.col_mut(k);
            column.fill(0.0);
            for (_, share) in shares(input, choices) {
                axpy(column, share, self.features.col(from));
                from += 1;
            }
        }
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.features.bytes() + self.covariances.bytes() + size_of_val(&self.inputs[..]) + size_of_val(&self.points[..])
    }
}

/// Actions with a probability other than 0, with it.
fn shares(input: &[f64], choices: usize) -> impl Iterator<Item = (usize, f64)> {
    input[input.len() - choices..].iter().copied().enumerate().filter(|(_, share)| *share != 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::kernel::{Kernel, Metric};

    #[test]
    fn one_action_alone_is_no_mixture() {
        assert!(!is_mixture(&[0.3, 0.0, 1.0], 2));
        assert!(is_mixture(&[0.3, 0.5, 0.5], 2) && is_mixture(&[0.3, 0.0, 0.0], 2) && is_mixture(&[0.3, 1.0, 1.0], 2));
        assert!(!is_mixture(&[0.3, 0.5], 0), "without discrete actions there are none");
    }

    #[test]
    fn features_are_averaged_over_actions() {
        let kernel = Kernel::gaussian(2.0, 0.3, Metric::Ard(vec![1.5, 0.4, 0.9]));
        let elements = [0.1, 1.0, 0.0, 0.7, 0.0, 1.0, -0.4, 1.0, 0.0];
        let dictionary = Dictionary::from_elements(kernel.clone(), 3, &elements).unwrap();
        let inputs = [0.5, 0.25, 0.75, -0.3, 0.0, 1.0];
        let mut found = Matrix::zeros(3, 2);
        Mixtures::default().features_into(&dictionary, 2, &inputs, found.view_mut());
        let pure = dictionary.features(&kernel.project(3, &[0.5, 1.0, 0.0, 0.5, 0.0, 1.0, -0.3, 0.0, 1.0]));
        for i in 0..3 {
            assert!((found.at(i, 0) - (0.25 * pure.at(i, 0) + 0.75 * pure.at(i, 1))).abs() < 1e-15);
            assert!((found.at(i, 1) - pure.at(i, 2)).abs() < 1e-15);
        }
    }
}
