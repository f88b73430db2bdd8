//! The solved model: where it goes from any state with any action.

use super::BLOCK;
use super::basis::Basis;
use super::error::WorldError;
use super::table::Table;
use crate::math::dense::{
    Cholesky, Matrix, Op, PanelInverses, Scratch, View, axpy, dot, multiply, product, rank_k, solve_lower,
    solve_lower_transposed,
};
use crate::math::hull::unbiased;
use crate::math::kernel::Points;
use std::sync::Arc;

/// The model of the transition: A, its factor, and what follows of it.
#[derive(Clone, Debug)]
pub struct Dynamics {
    before: Basis,
    after: Basis,
    pub(super) ridge: f64,
    /// A = L L', and what helps to solve with L for many columns.
    pub(super) system: Cholesky,
    inverses: PanelInverses,
    /// (U L_C^-1)' (m, d): alpha = turned psi.
    turned: Matrix,
    /// A^-1 P (d, H + 1).
    outcomes: Matrix,
}

impl Dynamics {
    /// Of `embeddings`, U (d, m), and `outcomes`, A^-1 P (d, H + 1).
    pub(super) fn new(
        before: Basis,
        after: Basis,
        ridge: f64,
        system: Cholesky,
        embeddings: Matrix,
        outcomes: Matrix,
    ) -> Self {
        let mut turned = embeddings.transpose();
        solve_lower_transposed(after.dictionary().factor().view(), turned.view_mut());
        let inverses = PanelInverses::of(system.factor());
        Self { before, after, ridge, system, inverses, turned, outcomes }
    }

    /// D.
    pub fn before(&self) -> &Basis {
        &self.before
    }

    /// C.
    pub fn after(&self) -> &Basis {
        &self.after
    }

    /// The model at each of `states` (n, D) with each of `actions` (A, width), both row-major; the coordinates of the actions are those
    /// that [`crate::action::ActionSpace::append`] gives. O(n A d (d + m)).
    ///
    /// # Errors
    /// Lengths that do not fit.
    pub fn table(&self, states: &[f64], actions: &[f64]) -> Result<Table, WorldError> {
        let dim = self.after.dim();
        let width = self.before.dim() - dim;
        if !states.len().is_multiple_of(dim) {
            return Err(WorldError::Size { what: "states", found: states.len(), expected: states.len() / dim * dim });
        }
        if actions.is_empty() || !actions.len().is_multiple_of(width) {
            let expected = (actions.len() / width).max(1) * width;
            return Err(WorldError::Size { what: "actions", found: actions.len(), expected });
        }
        let mut inputs = Vec::with_capacity(states.len() / dim * (actions.len() / width) * self.before.dim());
        for state in states.chunks_exact(dim) {
            for action in actions.chunks_exact(width) {
                inputs.extend_from_slice(state);
                inputs.extend_from_slice(action);
            }
        }
        self.entries(&inputs, actions.len() / width)
    }

    /// The model at these `inputs` (n A, D + width), row-major, of n states with A actions each. The actions of one state may be
    /// others than those of the next one: where a policy takes one for certain, A is 1. O(n A d (d + m)).
    ///
    /// # Errors
    /// Lengths that do not fit.
    pub fn entries(&self, inputs: &[f64], actions: usize) -> Result<Table, WorldError> {
        let each = self.before.dim() * actions;
        if each == 0 || !inputs.len().is_multiple_of(each) {
            let expected = inputs.len() / each.max(1) * each;
            return Err(WorldError::Size { what: "inputs", found: inputs.len(), expected });
        }
        let features = self.before.features(inputs);
        let outcomes = product(features.view(), Op::Transposed, self.outcomes.view(), Op::Plain);
        let heads = outcomes.cols() - 1;
        Ok(Table {
            actions,
            mass: Arc::new(product(self.turned.view(), Op::Plain, features.view(), Op::Plain)),
            rewards: Matrix::from_columns(
                outcomes.rows(),
                heads,
                (0..heads).flat_map(|h| outcomes.col(h).to_vec()).collect(),
            ),
            termination: outcomes.col(heads).to_vec(),
            variance: self.variance(&features),
            signal: self.before.signal(),
            features: Arc::new(features),
        })
    }

    /// v of inputs with features psi (d, n): k(z, z) - psi'psi + ridge psi'A^-1 psi, in the unit of the kernel.
    fn variance(&self, features: &Matrix) -> Vec<f64> {
        let (mut given, factor) = (features.clone(), self.system.factor().view());
        let halves = if self.inverses.are_worth_it(given.cols()) {
            let mut out = Matrix::zeros(given.rows(), given.cols());
            self.inverses.solve_lower(factor, given.view_mut(), out.view_mut());
            out
        } else {
            solve_lower(factor, given.view_mut());
            given
        };
        let learned = |j: usize| self.ridge * dot(halves.col(j), halves.col(j));
        (0..features.cols()).map(|j| self.before.dictionary().residual(features.col(j)) + learned(j)).collect()
    }

    /// Weights (d,) of the features of D of which Q is the sum where V at C is `values` (m,): with them a plan is a value function of
    /// states and actions like any other ([`crate::math::dictionary::Dictionary::kernel_weights`]).
    /// ```text
    /// w = u_r + gamma U L_C^-1 V
    /// ```
    /// `observed` is the number of the reward, as rows have it; with none the known reward of state and action is to be added to Q.
    ///
    /// # Panics
    /// If there is another number of values than elements of C, or no such reward.
    pub fn weights(&self, values: &[f64], discount: f64, observed: Option<usize>) -> Vec<f64> {
        let mut out = product(self.turned.view(), Op::Transposed, View::column(values), Op::Plain).col(0).to_vec();
        out.iter_mut().for_each(|weight| *weight *= discount);
        if let Some(h) = observed {
            assert!(h + 1 < self.outcomes.cols(), "a reward that rows have");
            axpy(&mut out, 1.0, self.outcomes.col(h));
        }
        out
    }

    /// Weights (d,) of the features of D that come nearest to `values` (n,) at `inputs` (n, D + width), by least squares with `ridge`:
    /// what a known reward of state and action adds to those of [`Dynamics::weights`]. O(n d^2).
    ///
    /// # Errors
    /// Lengths that do not fit, a ridge that is not positive, or features that are not finite.
    pub fn nearest(&self, inputs: &[f64], values: &[f64], ridge: f64) -> Result<Vec<f64>, WorldError> {
        let (dim, n, d) = (self.before.dim(), values.len(), self.before.len());
        if inputs.len() != n * dim {
            return Err(WorldError::Size { what: "inputs", found: inputs.len(), expected: n * dim });
        }
        if !(ridge > 0.0 && ridge.is_finite()) {
            return Err(WorldError::Ridge(ridge));
        }
        let (mut gram, mut response) = (Matrix::zeros(d, d), Matrix::zeros(d, 1));
        for from in (0..n).step_by(BLOCK) {
            let to = n.min(from + BLOCK);
            let psi = self.before.features(&inputs[from * dim..to * dim]);
            rank_k(gram.view_mut(), 1.0, psi.view(), Op::Plain);
            multiply(response.view_mut(), true, 1.0, psi.view(), Op::Plain, View::column(&values[from..to]), Op::Plain);
        }
        let mut system = Cholesky::default();
        system.renew(&gram, ridge, &mut Scratch::default())?;
        Ok(system.solve(response).col(0).to_vec())
    }

    /// Know one more reward, behind those that rows have, as these weights (d,) of the features of D.
    pub(super) fn add_reward(&mut self, weights: &[f64]) {
        let last = self.outcomes.cols() - 1;
        let columns = (0..last).map(|h| self.outcomes.col(h)).chain([weights, self.outcomes.col(last)]);
        self.outcomes = Matrix::from_columns(self.before.len(), last + 2, columns.flatten().copied().collect());
    }

    /// (U L_C^-1)' (m, d).
    pub(super) fn turned(&self) -> &Matrix {
        &self.turned
    }

    /// l(c, c') between the elements of C (m, m), without the constant of the kernel: what [`Table::projected`] measures by.
    pub fn hull(&self) -> Matrix {
        let dictionary = self.after.dictionary();
        let kernel = unbiased(dictionary.kernel());
        let places = kernel.project(self.after.dim(), dictionary.elements());
        let mut out = Matrix::zeros(dictionary.len(), dictionary.len());
        kernel.block(&Points::new(kernel.projected_dim(self.after.dim()), &places), &places, &mut out.view_mut());
        out
    }
}
