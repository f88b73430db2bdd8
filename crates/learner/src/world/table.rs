//! The model at some states, with each of the actions there are.

use super::error::WorldError;
use crate::math::dense::{Matrix, axpy, dot};
use crate::math::hull::nearest;
use std::sync::Arc;

/// Where the model goes from n states with A actions each; entry i A + a is that of state i with action a.
#[derive(Clone, Debug)]
pub struct Table {
    pub(super) actions: usize,
    /// psi (d, n A), which copies share.
    pub(super) features: Arc<Matrix>,
    /// alpha (m, n A), which copies share.
    pub(super) mass: Arc<Matrix>,
    /// (n A, H).
    pub(super) rewards: Matrix,
    pub(super) termination: Vec<f64>,
    pub(super) variance: Vec<f64>,
    pub(super) signal: f64,
}

impl Table {
    /// Actions A of each state.
    pub fn actions(&self) -> usize {
        self.actions
    }

    /// States n.
    pub fn states(&self) -> usize {
        self.mass.cols() / self.actions
    }

    /// alpha (m, n A): E\[V(x')\] is alpha'V(C).
    pub fn mass(&self) -> &Matrix {
        &self.mass
    }

    /// E\[r\] (n A, H) of the rewards that were observed.
    pub fn rewards(&self) -> &Matrix {
        &self.rewards
    }

    /// Share of the rows that ended there (n A,), which is not bound to lie between 0 and 1.
    pub fn termination(&self) -> &[f64] {
        &self.termination
    }

    /// v (n A,), in the unit of the kernel of D: variance of a discount-0 head of signal 1.
    pub fn variance(&self) -> &[f64] {
        &self.variance
    }

    /// Whether the rows tell next to nothing of an entry: v is more than `above` times the signal variance.
    pub fn unsupported(&self, above: f64) -> impl Iterator<Item = bool> + '_ {
        self.variance.iter().map(move |v| *v > above * self.signal)
    }

    /// Share of the entries that are [unsupported](Self::unsupported), each with its weight (n A,) where there are weights.
    pub fn unsupported_share(&self, above: f64, weights: Option<&[f64]>) -> f64 {
        let weight = |i: usize| weights.map_or(1.0, |weights| weights[i]);
        let all: f64 = (0..self.variance.len()).map(weight).sum();
        let of = self.unsupported(above).enumerate().filter(|(_, far)| *far).map(|(i, _)| weight(i)).sum::<f64>();
        if all > 0.0 { of / all } else { 0.0 }
    }

    /// The same entries as so many actions of one state: what is asked of it is asked of a mixture of states, in shares that are
    /// its probabilities.
    pub fn pooled(&self) -> Self {
        Self { actions: self.mass.cols(), ..self.clone() }
    }

    /// The same entries with the embedding moved to the nearest point of s times the hull of C, s = 1 - termination within 0 and 1: the
    /// Bellman operator of such a table contracts under every policy. `hull` is [`Dynamics::hull`](super::Dynamics::hull).
    ///
    /// # Panics
    /// If `hull` is of other elements.
    pub fn projected(&self, hull: &Matrix) -> Self {
        let mut out = self.clone();
        let mass = Arc::make_mut(&mut out.mass);
        let mut with_target = vec![0.0; hull.rows()];
        for (j, &termination) in self.termination.iter().enumerate() {
            let share = (1.0 - termination).clamp(0.0, 1.0);
            let alpha = mass.col_mut(j);
            if share < 1e-12 {
                alpha.fill(0.0);
                continue;
            }
            with_target.fill(0.0);
            alpha.iter().enumerate().for_each(|(i, a)| axpy(&mut with_target, a / share, hull.col(i)));
            let square = dot(&with_target, alpha) / share;
            let found = nearest(&|i, j| hull.at(i, j), &with_target, square);
            alpha.iter_mut().zip(&found.weights).for_each(|(to, weight)| *to = share * weight);
        }
        out
    }

    /// Averages of columns (k, n A) over the actions, as a policy with these probabilities (n, A), row-major, takes them: (k, n).
    pub(super) fn under(&self, columns: &Matrix, probabilities: &[f64]) -> Matrix {
        let mut out = Matrix::zeros(columns.rows(), self.states());
        for (entry, probability) in probabilities.iter().enumerate() {
            axpy(out.col_mut(entry / self.actions), *probability, columns.col(entry));
        }
        out
    }

    /// # Errors
    /// Probabilities (n, A) of another number, or of a state that are none.
    pub(super) fn check(&self, probabilities: &[f64]) -> Result<(), WorldError> {
        self.sized("probabilities", probabilities.len())?;
        for (state, of) in probabilities.chunks_exact(self.actions).enumerate() {
            let sum: f64 = of.iter().sum();
            if !((sum - 1.0).abs() < 1e-6 && of.iter().all(|p| *p >= 0.0)) {
                return Err(WorldError::Probabilities { state, sum });
            }
        }
        Ok(())
    }

    /// # Errors
    /// Not as many numbers as entries.
    pub(super) fn sized(&self, what: &'static str, found: usize) -> Result<(), WorldError> {
        let expected = self.mass.cols();
        if found == expected { Ok(()) } else { Err(WorldError::Size { what, found, expected }) }
    }

    /// That the table is one of the states of C, which is what sweeps and systems of equations need.
    ///
    /// # Errors
    /// It has another number of states.
    pub(super) fn of_successors(&self) -> Result<(), WorldError> {
        let (found, expected) = (self.states(), self.mass.rows());
        if found == expected { Ok(()) } else { Err(WorldError::Size { what: "states of C", found, expected }) }
    }
}
