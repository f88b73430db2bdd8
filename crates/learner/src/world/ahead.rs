//! What the model predicts along chains of rows, beside what came: how far ahead it can be believed.

use super::dynamics::Dynamics;
use super::error::WorldError;
use super::evaluation::course;
use super::table::Table;
use super::{BLOCK, Transitions};
use crate::math::dense::{Matrix, Op, dot, multiply, product, solve_lower_transposed};
use crate::math::kernel::{Kernel, Metric, Points, Profile};

/// Share of the mass that must still be alive for a mean over it to be stated.
const ALIVE_MIN: f64 = 0.05;

/// Mass at the elements of C that actions lead on, whether or not a table has them: of many chains at a time.
///
/// The kernel of D is a product of one over states and one over actions, so that a step of a chain costs O(d m):
/// ```text
/// mass <- alpha' = (L_C^-T U' L_D^-1) (v0 e(a) * (E mass) + b sum mass)      E: of D's states with C, e: of D's actions with a
/// ```
#[derive(Debug)]
struct Leader<'a> {
    dynamics: &'a Dynamics,
    /// E (d, m).
    between: Matrix,
    /// L_C^-T U' L_D^-1 (m, d).
    onward: Matrix,
    /// The kernel over the coordinates of actions alone, and D in it.
    actions: Kernel,
    elements: Points,
    /// (d, k) for k chains.
    covariances: Matrix,
    near: Matrix,
}

impl<'a> Leader<'a> {
    /// # Panics
    /// If the kernel of D is none that splits: Gaussian, with a relevance for each coordinate.
    fn new(dynamics: &'a Dynamics) -> Self {
        let (before, after) = (dynamics.before(), dynamics.after());
        let (dim, states) = (before.dim(), after.dim());
        let kernel = before.dictionary().kernel();
        assert!(kernel.profile == Profile::Gaussian, "a kernel that splits");
        let relevance = kernel.metric.relevance(dim);
        let alone = |keep: &dyn Fn(usize) -> bool| {
            let of = relevance.iter().enumerate().map(|(d, r)| if keep(d) { *r } else { 0.0 }).collect();
            Kernel::gaussian(1.0, 0.0, Metric::Ard(of)).with_kinds(&kernel.kinds)
        };
        let (of_states, actions) = (alone(&|d| d < states), alone(&|d| d >= states));
        let elements = |kernel: &Kernel| {
            Points::new(kernel.projected_dim(dim), &kernel.project(dim, before.dictionary().elements()))
        };
        let padded: Vec<f64> = after
            .states()
            .chunks_exact(states)
            .flat_map(|c| c.iter().copied().chain(std::iter::repeat_n(0.0, dim - states)).collect::<Vec<f64>>())
            .collect();
        let mut between = Matrix::zeros(before.len(), after.len());
        let places = of_states.project(dim, &before.inputs().normalise(&padded));
        of_states.block(&elements(&of_states), &places, &mut between.view_mut());
        let mut turned = dynamics.turned().transpose();
        solve_lower_transposed(before.dictionary().factor().view(), turned.view_mut());
        Self {
            elements: elements(&actions),
            actions,
            between,
            onward: turned.transpose(),
            covariances: Matrix::default(),
            near: Matrix::default(),
            dynamics,
        }
    }

    /// Lead each column of `mass` (m, k) on by the action at its place in `inputs` (k, D + width), whose states do not count.
    fn step(&mut self, mass: &mut Matrix, inputs: &[f64]) {
        let before = self.dynamics.before();
        let places = self.actions.project(before.dim(), &before.inputs().normalise(inputs));
        self.near.renew(before.len(), mass.cols());
        self.covariances.renew(before.len(), mass.cols());
        self.actions.block(&self.elements, &places, &mut self.near.view_mut());
        let between = self.between.view();
        multiply(self.covariances.view_mut(), false, 1.0, between, Op::Plain, mass.view(), Op::Plain);
        let kernel = before.dictionary().kernel();
        for j in 0..mass.cols() {
            let all = kernel.bias_variance * mass.col(j).iter().sum::<f64>();
            for (k, near) in self.covariances.col_mut(j).iter_mut().zip(self.near.col(j)) {
                *k = kernel.signal_variance * near * *k + all;
            }
        }
        let covariances = self.covariances.view();
        multiply(mass.view_mut(), false, 1.0, self.onward.view(), Op::Plain, covariances, Op::Plain);
    }
}

/// Rows in their chains.
#[derive(Clone, Copy, Debug)]
pub struct Chained<'a> {
    /// The rows.
    pub rows: Transitions<'a>,
    /// (n,) the row that continues each, if one does ([`crate::math::returns::chains`]).
    pub follows: &'a [Option<usize>],
}

/// What was predicted so many steps ahead, and what came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ahead {
    /// (p, k) for p pairs and k functions of the state, row-major.
    pub predicted: Vec<f64>,
    /// (p, k).
    pub came: Vec<f64>,
}

/// How far predictions were from what came, of one function and one number of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Error {
    /// Pairs compared.
    pub pairs: usize,
    /// Root mean square of predicted - came.
    pub error: f64,
    /// Standard deviation of what came.
    pub spread: f64,
    /// What 90 % of the errors do not exceed in magnitude.
    pub quantile: f64,
}

impl Ahead {
    /// Of function number `k` of `of`; none without two pairs.
    pub fn error(&self, k: usize, of: usize) -> Option<Error> {
        let column = |from: &[f64]| from.iter().skip(k).step_by(of).copied().collect::<Vec<f64>>();
        let (predicted, came) = (column(&self.predicted), column(&self.came));
        let n = came.len() as f64;
        if came.len() < 2 {
            return None;
        }
        let mean = came.iter().sum::<f64>() / n;
        let square = |values: &mut dyn Iterator<Item = f64>| (values.map(|v| v * v).sum::<f64>() / n).sqrt();
        let mut errors: Vec<f64> = predicted.iter().zip(&came).map(|(a, b)| (a - b).abs()).collect();
        errors.sort_by(f64::total_cmp);
        Some(Error {
            pairs: came.len(),
            error: square(&mut errors.iter().copied()),
            spread: square(&mut came.iter().map(|v| v - mean)),
            quantile: errors[(errors.len() * 9 / 10).min(errors.len() - 1)],
        })
    }
}

impl Dynamics {
    /// Predictions of `functions` of the state (D,), k numbers, 1, 2, .. `steps` steps after each of the rows `starts`, by the actions
    /// that the rows have, as far as their chains go; beside them what came. Where rows terminate, it is the mean of what is alive.
    ///
    /// # Panics
    /// If columns do not fit, or the kernel of D does not split into one over states and one over actions.
    pub fn ahead(
        &self,
        of: &Chained<'_>,
        starts: &[usize],
        functions: &dyn Fn(&[f64]) -> Vec<f64>,
        steps: usize,
    ) -> Vec<Ahead> {
        let (dim, states) = (self.before().dim(), self.after().dim());
        let rows = of.rows;
        let ends = rows.terminated.contains(&true);
        let elements = Elements::of(&self.after().states(), states, functions);
        let input = |row: usize| &rows.inputs[row * dim..(row + 1) * dim];
        let mut leader = Leader::new(self);
        let mut out = vec![Ahead::default(); steps];
        for some in starts.chunks(BLOCK) {
            let mut inputs = Vec::new();
            some.iter().for_each(|&row| inputs.extend_from_slice(input(row)));
            let features = self.before().features(&inputs);
            let mut mass = product(self.turned().view(), Op::Plain, features.view(), Op::Plain);
            let mut at = some.to_vec();
            for (step, ahead) in out.iter_mut().enumerate() {
                let mut going = Vec::new();
                for (j, &row) in at.iter().enumerate().filter(|(_, row)| !rows.terminated[**row]) {
                    ahead.predicted.extend(elements.mean(mass.col(j), ends));
                    ahead.came.extend(functions(&rows.successors[row * states..(row + 1) * states]));
                    going.extend(of.follows[row].map(|next| (j, next)));
                }
                if going.is_empty() || step + 1 == steps {
                    break;
                }
                if going.len() < at.len() {
                    let columns = going.iter().flat_map(|&(j, _)| mass.col(j).to_vec()).collect();
                    mass = Matrix::from_columns(mass.rows(), going.len(), columns);
                }
                at = going.into_iter().map(|(_, next)| next).collect();
                inputs.clear();
                at.iter().for_each(|&row| inputs.extend_from_slice(input(row)));
                leader.step(&mut mass, &inputs);
            }
        }
        out
    }
}

/// Where a policy leads from n states: the mean of k functions of the state so many steps later, over what has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// (n, k), row-major.
    pub means: Vec<f64>,
    /// (n,) share that has not ended; 1 where no row ends.
    pub alive: Vec<f64>,
}

impl Dynamics {
    /// [`course`] of `functions` of the state (D,) after 1, 2, .. `steps` steps. `ends` says whether any row has terminated.
    ///
    /// # Errors
    /// As [`course`].
    pub fn course(
        &self,
        model: (&Table, &[f64]),
        at: (&Table, &[f64]),
        functions: &dyn Fn(&[f64]) -> Vec<f64>,
        (steps, ends): (usize, bool),
    ) -> Result<Vec<Course>, WorldError> {
        let elements = Elements::of(&self.after().states(), self.after().dim(), functions);
        let (m, k) = (elements.centred.rows(), elements.centred.cols());
        let columns =
            (0..k).flat_map(|h| elements.centred.col(h).to_vec()).chain(std::iter::repeat_n(1.0, m)).collect();
        let found = course(model, at, &Matrix::from_columns(m, k + 1, columns), steps)?;
        let told = |of: Matrix| {
            let alive: Vec<f64> =
                of.col(k).iter().map(|share| if ends { share.clamp(0.0, 1.0) } else { 1.0 }).collect();
            let row = |i: usize| {
                let sums: Vec<f64> = (0..k).map(|h| of.at(i, h)).collect();
                elements.told(&sums, ends.then(|| of.at(i, k)))
            };
            Course { means: (0..of.rows()).flat_map(row).collect(), alive }
        };
        Ok(found.into_iter().map(told).collect())
    }
}

/// Functions at the elements of C, less their means there: what has leaked from the mass then counts as the mean.
#[derive(Debug)]
struct Elements {
    means: Vec<f64>,
    /// (m, k).
    centred: Matrix,
}

impl Elements {
    /// Of C (m, `dim`).
    fn of(elements: &[f64], dim: usize, functions: &dyn Fn(&[f64]) -> Vec<f64>) -> Self {
        let values: Vec<Vec<f64>> = elements.chunks_exact(dim).map(functions).collect();
        let (m, k) = (values.len(), values.first().map_or(0, Vec::len));
        let means: Vec<f64> = (0..k).map(|h| values.iter().map(|of| of[h]).sum::<f64>() / m as f64).collect();
        let centred = (0..k).flat_map(|h| values.iter().map(|of| of[h] - means[h]).collect::<Vec<f64>>()).collect();
        Self { centred: Matrix::from_columns(m, k, centred), means }
    }

    /// The mean of each function over what is alive of `mass` (m,); of all of it unless rows terminate (`ends`).
    fn mean(&self, mass: &[f64], ends: bool) -> Vec<f64> {
        let sums: Vec<f64> = (0..self.means.len()).map(|h| dot(self.centred.col(h), mass)).collect();
        self.told(&sums, ends.then(|| mass.iter().sum()))
    }

    /// The same of `sums` (k,) of the centred functions over mass of which `alive` is left, if any ends.
    fn told(&self, sums: &[f64], alive: Option<f64>) -> Vec<f64> {
        let alive = alive.map_or(1.0, |alive| alive.max(ALIVE_MIN));
        self.means.iter().zip(sums).map(|(mean, sum)| mean + sum / alive).collect()
    }
}
