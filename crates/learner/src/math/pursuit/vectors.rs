//! Vector-valued matching pursuit: one column explains all targets of a row at once.
//!
//! \[L16\] G. Lever, J. Shawe-Taylor, R. Stafford, Cs. Szepesvari, *Compressed Conditional Mean Embeddings for Model-Based
//! Reinforcement Learning*, AAAI 2016, supplement, eq. 2 and 3.

use crate::math::dense::{Matrix, Op, View, ViewMut, axpy, dot, multiply, product, solve_lower_transposed};
use crate::math::evidence::KeepGoing;

/// Squared length relative to that of its column below which what is left of it is rounding.
const SPANNED: f64 = 1e-12;

named! {
    /// What happens to the weights of columns as more of them are chosen.
    pub enum Pursuit {
        /// Each keeps the weight that it was chosen with.
        Matching = "mp",
        /// All are found anew by least squares after each choice, which goes by the column as it is.
        Backfitting = "backfit",
        /// The same, and the choice goes by what of a column the chosen ones do not span: its gain is what the error loses.
        Orthogonal = "ols",
    }
}

/// Columns in the order of choice, and what they explain.
#[derive(Clone, Debug)]
pub struct Pursued {
    /// Their numbers (k,).
    pub chosen: Vec<usize>,
    /// Gain of each when it was chosen (k,).
    pub gains: Vec<f64>,
    /// Sum of squares that is left after each choice (k,).
    pub residuals: Vec<f64>,
    /// Weights after the last choice (k, p).
    pub weights: Matrix,
}

/// Choose up to `max` of the columns g_j of `columns` (n, c), each time the one with the largest gain on the targets V (n, p), the first
/// of equals, until no gain exceeds `enough` times sum |v|^2:
/// ```text
/// gain_j = |sum_i g_j(i) q_i|^2 / |g_j|^2       q_i = v_i - sum_k w_k g_k(i)                                   [L16, eq. 2, 3]
/// ```
/// [`Pursuit`] says what of g_j stands in the denominator. No column is chosen that the chosen ones span. None if `keep_going`, asked before every choice,
/// says so. 2 n (c + p) multiply-adds a choice, after n c p before the first.
pub fn by_targets(
    columns: &Matrix,
    targets: &Matrix,
    pursuit: Pursuit,
    (max, enough): (usize, f64),
    keep_going: KeepGoing<'_>,
) -> Option<Pursued> {
    let mut state = PursuitState::new(columns, targets, pursuit);
    let all = state.left;
    while state.out.chosen.len() < max {
        if !keep_going() {
            return None;
        }
        let Some((best, gain)) = state.best().filter(|&(_, gain)| gain > enough * all) else { break };
        state.choose(best, gain);
    }
    Some(state.finish())
}

struct PursuitState<'a> {
    pursuit: Pursuit,
    columns: &'a Matrix,
    /// What of the columns the chosen ones do not span (n, c).
    rest: Matrix,
    /// Squared length of each column, and of what is left of it (c,).
    energy: Vec<f64>,
    rest_energy: Vec<f64>,
    /// Q' g_j: residuals along columns, one column for each (p, c).
    along: Matrix,
    /// Directions of unit length that the chosen columns add, (n, k), and what of the residuals each choice took away, (p, k).
    directions: Matrix,
    images: Matrix,
    /// |q|^2.
    left: f64,
    out: Pursued,
}

fn energies(of: &Matrix) -> Vec<f64> {
    (0..of.cols()).map(|j| dot(of.col(j), of.col(j))).collect()
}

impl<'a> PursuitState<'a> {
    fn new(columns: &'a Matrix, targets: &Matrix, pursuit: Pursuit) -> Self {
        let energy = energies(columns);
        let weights = Matrix::zeros(0, targets.cols());
        Self {
            pursuit,
            columns,
            rest: columns.clone(),
            rest_energy: energy.clone(),
            energy,
            along: product(targets.view(), Op::Transposed, columns.view(), Op::Plain),
            directions: Matrix::zeros(columns.rows(), 0),
            images: Matrix::zeros(targets.cols(), 0),
            left: energies(targets).iter().sum(),
            out: Pursued { chosen: Vec::new(), gains: Vec::new(), residuals: Vec::new(), weights },
        }
    }

    /// The column with the largest gain; none if all are chosen or spanned.
    fn best(&self) -> Option<(usize, f64)> {
        let mut best: Option<(usize, f64)> = None;
        for j in 0..self.columns.cols() {
            let (energy, rest) = (self.energy[j], self.rest_energy[j]);
            // Not a spanned one, which would make no element either.
            if energy == 0.0 || rest <= SPANNED * energy || self.out.chosen.contains(&j) {
                continue;
            }
            let divisor = if self.pursuit == Pursuit::Orthogonal { rest } else { energy };
            let gain = dot(self.along.col(j), self.along.col(j)) / divisor;
            if best.is_none_or(|(_, most)| gain > most) {
                best = Some((j, gain));
            }
        }
        best
    }

    fn choose(&mut self, best: usize, gain: f64) {
        let size = self.out.chosen.len();
        let mut new = self.rest.col(best).to_vec();
        if size > 0 {
            // Orthogonal to working precision only the second time.
            let spanned = product(self.directions.view(), Op::Transposed, View::column(&new), Op::Plain);
            let (to, all) = (ViewMut::column(&mut new), self.directions.view());
            multiply(to, true, -1.0, all, Op::Plain, spanned.view(), Op::Plain);
        }
        let length = dot(&new, &new).sqrt();
        new.iter_mut().for_each(|value| *value /= length);
        let shares = product(self.rest.view(), Op::Transposed, View::column(&new), Op::Plain);
        // What residuals lose lies along the new direction, or along the column as it is.
        let (length, losses) = if self.pursuit == Pursuit::Matching {
            let own = View::column(self.columns.col(best));
            let length = self.energy[best].sqrt();
            let mut losses = product(self.columns.view(), Op::Transposed, own, Op::Plain);
            losses.col_mut(0).iter_mut().for_each(|loss| *loss /= length);
            (length, losses)
        } else {
            (length, shares.clone())
        };
        let image: Vec<f64> = self.along.col(best).iter().map(|value| value / length).collect();
        for j in 0..self.columns.cols() {
            axpy(self.along.col_mut(j), -losses.at(j, 0), &image);
            axpy(self.rest.col_mut(j), -shares.at(j, 0), &new);
        }
        self.rest_energy = energies(&self.rest);
        self.left = (self.left - dot(&image, &image)).max(0.0);
        self.directions.resize(new.len(), size + 1);
        self.directions.col_mut(size).copy_from_slice(&new);
        self.images.resize(image.len(), size + 1);
        self.images.col_mut(size).copy_from_slice(&image);
        self.out.chosen.push(best);
        self.out.gains.push(gain);
        self.out.residuals.push(self.left);
    }

    /// The weights: w_k = q_k's image over |g_k|, or R w = images where the chosen columns are Q R.
    fn finish(mut self) -> Pursued {
        let size = self.out.chosen.len();
        let mut weights = self.images.transpose();
        if self.pursuit == Pursuit::Matching {
            for (k, &j) in self.out.chosen.iter().enumerate() {
                let length = self.energy[j].sqrt();
                (0..weights.cols()).for_each(|h| *weights.at_mut(k, h) /= length);
            }
        } else if size > 0 {
            let mut own = Matrix::zeros(self.columns.rows(), size);
            self.out.chosen.iter().enumerate().for_each(|(k, &j)| own.col_mut(k).copy_from_slice(self.columns.col(j)));
            // The transpose of R is lower triangular.
            let turned = product(own.view(), Op::Transposed, self.directions.view(), Op::Plain);
            solve_lower_transposed(turned.view(), weights.view_mut());
        }
        self.out.weights = weights;
        self.out
    }
}
