//! What an evidence is of: points, linear functionals of V at them, and the numbers observed.

use crate::math::dense::Matrix;

/// What one row observes: factor V(node) - discount V(successor), or factor V(node) where nothing follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Index of the state among the nodes.
    pub node: usize,
    /// 1, or the root of the weight of an observation, which is then that many times as large as what was seen.
    pub factor: f64,
    /// Index of the successor among the nodes, and the discount in \[0, 1\].
    pub successor: Option<(usize, f64)>,
}

/// What the evidence is of: points, linear functionals of V at them, and the numbers observed.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(super) dim: usize,
    pub(super) nodes: Vec<f64>,
    pub(super) differences: Option<Vec<Difference>>,
    pub(super) observed: Matrix,
    /// Least noise variance of each column relative to its variance, where each has its best noise and scale.
    pub(super) profiled: Option<f64>,
}

impl Problem {
    /// Correlated noise with closed chains: `targets` (n, H) are the returns of `states` (n, D), row-major, in the
    /// coordinates of the kernel.
    ///
    /// # Panics
    /// If the lengths disagree or D is 0.
    pub fn correlated(dim: usize, states: Vec<f64>, targets: Matrix) -> Self {
        assert!(dim > 0 && states.len() == targets.rows() * dim, "one target for each state");
        Self { dim, nodes: states, differences: None, observed: targets, profiled: None }
    }

    /// White noise: `rewards` (n, H) observe `differences` (n,) between `nodes` (N, D), row-major, in the coordinates
    /// of the kernel. [`differences`](crate::math::returns::differences) makes the latter two from rows.
    ///
    /// # Panics
    /// If the lengths disagree, D is 0, or a difference names a node that is not there.
    pub fn white(dim: usize, nodes: Vec<f64>, differences: Vec<Difference>, rewards: Matrix) -> Self {
        assert!(dim > 0 && nodes.len().is_multiple_of(dim), "nodes are not whole rows");
        assert_eq!(differences.len(), rewards.rows(), "one reward for each difference");
        let len = nodes.len() / dim;
        let inside = |d: &Difference| d.node < len && d.successor.is_none_or(|(s, _)| s < len);
        assert!(differences.iter().all(inside), "a difference names a node that is not there");
        Self { dim, nodes, differences: Some(differences), observed: rewards, profiled: None }
    }

    /// Row i of a regression counts `weights[i]` times, from 0 on: the variance of its noise is sigma0^2 / weight. Multiplied by the root
    /// of its weight its noise is as in all others, and the evidence differs by a constant, docs/mathematics.md (E15).
    ///
    /// # Panics
    /// If there is another number of weights, or the problem is none of correlated noise.
    #[must_use]
    pub fn weighted(mut self, weights: &[f64]) -> Self {
        assert!(self.differences.is_none() && weights.len() == self.rows(), "a weight for each row of a regression");
        for h in 0..self.observed.cols() {
            self.observed.col_mut(h).iter_mut().zip(weights).for_each(|(y, weight)| *y *= weight.sqrt());
        }
        let of = |(node, weight): (usize, &f64)| Difference { node, factor: weight.sqrt(), successor: None };
        self.differences = Some(weights.iter().enumerate().map(of).collect());
        self
    }

    /// The same, with the exact evidence of each column at the noise and scale that suit it best: the kernel is then judged by its
    /// shape alone. The noise variance of a column stays at or above `floor` times its variance. For correlated noise.
    pub fn profiled(self, floor: f64) -> Self {
        Self { profiled: Some(floor), ..self }
    }

    /// Whether each column has its best noise and scale.
    pub(crate) fn is_profiled(&self) -> bool {
        self.profiled.is_some()
    }

    /// Number of observed rows n.
    pub fn rows(&self) -> usize {
        self.observed.rows()
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The observed numbers (n, H).
    pub fn observed(&self) -> &Matrix {
        &self.observed
    }

    /// The nodes (N, D), row-major.
    pub fn nodes(&self) -> &[f64] {
        &self.nodes
    }

    /// Replace the observed numbers (n, H): the targets moved.
    ///
    /// # Panics
    /// If the number of rows changes.
    pub fn set_observed(&mut self, observed: Matrix) {
        assert_eq!(observed.rows(), self.observed.rows(), "as many targets as before");
        self.observed = observed;
    }

    pub(super) fn node(&self, row: usize) -> &[f64] {
        let node = self.differences.as_ref().map_or(row, |d| d[row].node);
        &self.nodes[node * self.dim..(node + 1) * self.dim]
    }

    /// What V(node) is multiplied by in row i.
    pub(super) fn factor(&self, row: usize) -> f64 {
        self.differences.as_ref().map_or(1.0, |d| d[row].factor)
    }

    /// Logarithm of what the observed numbers of each column have been multiplied by.
    pub(super) fn log_factors(&self) -> f64 {
        let factors = self.differences.iter().flatten().map(|d| d.factor);
        factors.filter(|&factor| factor > 0.0).map(f64::ln).sum()
    }

    /// The greatest weight of a row.
    pub(crate) fn greatest_weight(&self) -> f64 {
        (0..self.rows()).map(|row| self.factor(row).powi(2)).fold(0.0, f64::max)
    }

    /// The successor's state and the discount, where row i observes a difference.
    pub(super) fn successor(&self, row: usize) -> Option<(&[f64], f64)> {
        let (node, discount) = self.differences.as_ref()?[row].successor?;
        Some((&self.nodes[node * self.dim..(node + 1) * self.dim], discount))
    }

    /// out (N, q) -> J out (n, q).
    pub(in crate::math) fn observe(&self, values: Matrix) -> Matrix {
        let Some(differences) = &self.differences else { return values };
        let mut out = Matrix::zeros(self.rows(), values.cols());
        for j in 0..values.cols() {
            let column = values.col(j);
            for (value, d) in out.col_mut(j).iter_mut().zip(differences) {
                *value = d.factor * column[d.node] - d.successor.map_or(0.0, |(s, g)| g * column[s]);
            }
        }
        out
    }
}
