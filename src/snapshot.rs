//! A published value function: plain data, and how anybody evaluates it.

use crate::math::kernel::{Hyperparameters, Kernel, Points};
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
        let kernel = &self.hyperparameters.kernel;
        let rows = kernel_rows(kernel, &self.dictionary, &self.inputs.normalise(states), dim);
        let mean = rows.transpose() * &self.weights;
        let variance = self.variance.as_ref().filter(|_| variance).map(|c| {
            let product = c * &rows;
            // Rounding may leave a variance a hair below zero next to a dictionary element.
            (0..rows.ncols()).map(|j| (kernel.diagonal() - rows.column(j).dot(&product.column(j))).max(0.0)).collect()
        });
        Ok(Evaluation { mean, variance })
    }
}

/// k_m(z) for each of n normalised states: (m, n).
fn kernel_rows(kernel: &Kernel, dictionary: &DMatrix<f64>, states: &[f64], dim: usize) -> DMatrix<f64> {
    let basis = Points::new(kernel.projected_dim(dim), &kernel.project(dim, dictionary.transpose().as_slice()));
    let points = kernel.project(dim, states);
    let (m, n) = (dictionary.nrows(), states.len() / dim);
    let mut out = DMatrix::zeros(m, n);
    kernel.block(&basis, &points, &mut crate::math::dense::ViewMut::from_columns(m, n, out.as_mut_slice()));
    out
}
