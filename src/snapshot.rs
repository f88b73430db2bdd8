//! A published value function: plain data, and how anybody evaluates it.

use crate::math::dense::{Matrix, Op, View, dot, multiply};
use crate::math::kernel::{Hyperparameters, Points};
use crate::transition::{Invalid, InvalidCode, MAGNITUDE_MAX};
use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};

/// z = (x - shift) / scale, coordinate by coordinate: from the environment's states to those of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// (D,), unit of the state.
    #[serde(with = "crate::math::raw")]
    pub shift: Vec<f64>,
    /// (D,), unit of the state, positive.
    #[serde(with = "crate::math::raw")]
    pub scale: Vec<f64>,
    /// What the state variables are called, if anybody said.
    pub names: Option<Vec<String>>,
}

impl Inputs {
    /// z = x.
    pub fn identity(dim: usize) -> Self {
        Self { shift: vec![0.0; dim], scale: vec![1.0; dim], names: None }
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.shift.len()
    }

    /// Normalise states (n, D), row-major, appending to `out`.
    pub fn normalise_into(&self, states: &[f64], out: &mut Vec<f64>) {
        for x in states.chunks_exact(self.dim()) {
            out.extend(x.iter().zip(&self.shift).zip(&self.scale).map(|((x, shift), scale)| (x - shift) / scale));
        }
    }

    /// Normalise states (n, D), row-major.
    pub fn normalise(&self, states: &[f64]) -> Vec<f64> {
        let mut out = Vec::with_capacity(states.len());
        self.normalise_into(states, &mut out);
        out
    }
}

/// A value function at one moment: V(x) = sum_j k(dictionary_j, z) weights_j, z = (x - shift) / scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Name of the critic it comes from.
    pub critic: String,
    /// Rises with every adopted model.
    pub generation: u64,
    /// Rises with every publication.
    pub revision: u64,
    /// Rows of the stream learned, those before a restart and duplicates excluded.
    pub offset: u64,
    /// Rows that the statistics hold.
    pub transitions: u64,
    /// Unix seconds when it was made; 0 where no clock was at hand.
    pub time: f64,
    /// The critic's discount.
    pub discount: f64,
    /// Kernel, noise model and noise variance, in normalised coordinates.
    pub hyperparameters: Hyperparameters,
    /// Normalisation of states.
    pub inputs: Inputs,
    /// (m, D), normalised coordinates.
    pub dictionary: DMatrix<f64>,
    /// (m, H).
    pub weights: DMatrix<f64>,
    /// C (m, m), symmetric: Var V(x) = k(z, z) - k_m(z)' C k_m(z); left out where nobody asked for it.
    pub variance: Option<DMatrix<f64>>,
    /// Log evidence of the model on the rows that its statistics hold, nats.
    pub log_evidence: f64,
    /// Prequential log score, nats per transition since adoption; none before the first scored row.
    pub score: Option<f64>,
}

/// What a snapshot says about some states.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// (n, H), value.
    pub mean: DMatrix<f64>,
    /// (n,), value^2, of V (not of the reward); none if it was not asked for.
    pub variance: Option<Vec<f64>>,
}

impl Snapshot {
    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.inputs.dim()
    }

    /// Mean and, if asked for and carried by the snapshot, variance of V at states (n, D), row-major.
    ///
    /// # Errors
    /// If `states` is not whole rows of D numbers or holds a number that is not finite or too large.
    pub fn evaluate(&self, states: &[f64], variance: bool) -> Result<Evaluation, Invalid> {
        let dim = self.dim();
        if !states.len().is_multiple_of(dim) {
            let message = format!("states must have rows of {dim} numbers");
            return Err(Invalid::new(InvalidCode::WrongDimension, "states", message));
        }
        if let Some(k) = states.iter().position(|v| !v.is_finite()) {
            let message = format!("{} is not a finite number", states[k]);
            return Err(Invalid::at(InvalidCode::NotFinite, "states", k / dim, message));
        }
        if let Some(k) = states.iter().position(|v| v.abs() > MAGNITUDE_MAX) {
            let message = format!("{:e} is beyond {MAGNITUDE_MAX:e} in magnitude", states[k]);
            return Err(Invalid::at(InvalidCode::OutOfRange, "states", k / dim, message));
        }
        let (kernel, m, count) = (&self.hyperparameters.kernel, self.dictionary.nrows(), states.len() / dim);
        let width = kernel.projected_dim(dim);
        let basis = Points::new(width, &kernel.project(dim, self.dictionary.transpose().as_slice()));
        let points = kernel.project(dim, &self.inputs.normalise(states));
        let mut mean = DMatrix::zeros(count, self.weights.ncols());
        let mut spread = self.variance.as_ref().filter(|_| variance).map(|_| Vec::with_capacity(count));
        let most = BLOCK.min(count);
        let (mut rows, mut products) = (Matrix::zeros(m, most), Matrix::default());
        for start in (0..count).step_by(BLOCK) {
            let len = BLOCK.min(count - start);
            kernel.block(&basis, &points[start * width..(start + len) * width], &mut rows.block_mut(0, 0, m, len));
            for j in 0..len {
                for (h, weights) in self.weights.column_iter().enumerate() {
                    mean[(start + j, h)] = dot(rows.col(j), weights.as_slice());
                }
            }
            let (Some(c), Some(spread)) = (&self.variance, &mut spread) else { continue };
            let diagonal = kernel.diagonal();
            // Rounding may leave a variance a hair below zero next to a dictionary element.
            if len < FEW {
                spread.extend((0..len).map(|j| (diagonal - quadratic_form(c, rows.col(j))).max(0.0)));
            } else {
                products.resize(m, len);
                let (c, k) = (View::from_columns(m, m, c.as_slice()), rows.block(0, 0, m, len));
                multiply(products.view_mut(), false, 1.0, c, Op::Plain, k, Op::Plain);
                spread.extend((0..len).map(|j| (diagonal - dot(rows.col(j), products.col(j))).max(0.0)));
            }
        }
        Ok(Evaluation { mean, variance: spread })
    }
}

/// States that are evaluated at once.
const BLOCK: usize = 256;
/// Fewer states than this are not worth a product of matrices.
const FEW: usize = 8;

/// k' C k for a symmetric C (m, m), of which the lower triangle is read.
fn quadratic_form(c: &DMatrix<f64>, k: &[f64]) -> f64 {
    let column = |(j, column): (usize, &[f64])| k[j] * (2.0 * dot(&column[j..], &k[j..]) - column[j] * k[j]);
    c.as_slice().chunks_exact(k.len().max(1)).enumerate().map(column).sum()
}
