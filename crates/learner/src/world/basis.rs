//! A dictionary and the units that it is asked in.

use crate::math::dense::Matrix;
use crate::math::dictionary::{Dictionary, Pivots, select};
use crate::math::kernel::Kernel;
use crate::snapshot::Inputs;
use serde::{Deserialize, Serialize};

/// A dictionary over normalised states, or states with actions, that is asked in the units of the environment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Basis {
    inputs: Inputs,
    dictionary: Dictionary,
}

/// Memory for features while they are worked out.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    normal: Vec<f64>,
    places: Vec<f64>,
    covariances: Matrix,
}

impl Basis {
    /// A dictionary of states that `inputs` normalises.
    ///
    /// # Panics
    /// If they have different dimensions.
    pub fn new(inputs: Inputs, dictionary: Dictionary) -> Self {
        assert_eq!(inputs.dim(), dictionary.dim(), "as many coordinates");
        Self { inputs, dictionary }
    }

    /// Of `states` (n, D), row-major, those that pivoted incomplete Cholesky chooses: until nothing of any state is left above
    /// `tolerance`, in parts of the signal variance, or there are `max`.
    pub fn pivots(inputs: Inputs, kernel: &Kernel, states: &[f64], tolerance: f64, max: usize) -> (Self, Pivots) {
        let smallest = tolerance * kernel.signal_variance;
        let (dictionary, pivots) = select(kernel, inputs.dim(), &inputs.normalise(states), smallest, max);
        (Self { inputs, dictionary }, pivots)
    }

    /// Exactly these `states` (m, D), row-major.
    ///
    /// # Errors
    /// The number of the first that those before it span to working precision.
    pub fn of_states(inputs: Inputs, kernel: &Kernel, states: &[f64]) -> Result<Self, usize> {
        let dictionary = Dictionary::from_elements(kernel.clone(), inputs.dim(), &inputs.normalise(states))?;
        Ok(Self { inputs, dictionary })
    }

    /// Its features (m, n) of `states` (n, D), row-major.
    pub fn features(&self, states: &[f64]) -> Matrix {
        let mut out = Matrix::default();
        self.features_into(states, &mut Room::default(), &mut out);
        out
    }

    /// [`Basis::features`] in memory that is kept.
    pub(super) fn features_into(&self, states: &[f64], room: &mut Room, out: &mut Matrix) {
        let Room { normal, places, covariances } = room;
        normal.clear();
        self.inputs.normalise_into(states, normal);
        places.clear();
        self.dictionary.kernel().project_into(self.dim(), normal, places);
        out.renew(self.len(), states.len() / self.dim());
        self.dictionary.features_into(places, covariances, out.view_mut());
    }

    /// What the elements cannot express of a state with features (m,), over the signal variance.
    pub(super) fn lost(&self, features: &[f64]) -> f64 {
        self.dictionary.residual(features) / self.signal()
    }

    /// The elements (m, D), row-major, in the units of the environment.
    pub fn states(&self) -> Vec<f64> {
        let Inputs { shift, scale, .. } = &self.inputs;
        let of = |z: &[f64]| -> Vec<f64> { z.iter().zip(scale).zip(shift).map(|((z, s), x)| z * s + x).collect() };
        self.dictionary.elements().chunks_exact(self.dim()).flat_map(of).collect()
    }

    /// Coordinates D.
    pub fn dim(&self) -> usize {
        self.inputs.dim()
    }

    /// Number of features m.
    pub fn len(&self) -> usize {
        self.dictionary.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// v0 of the kernel.
    pub fn signal(&self) -> f64 {
        self.dictionary.kernel().signal_variance
    }

    /// Normalisation of states.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The elements and their kernel.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Whether the parts agree, for states of `dim` numbers, which a file may contradict.
    pub(super) fn is_consistent(&self, dim: usize) -> bool {
        self.inputs.dim() == dim && self.inputs.scale.len() == dim && self.dictionary.is_consistent(dim)
    }

    /// Whether it gives the features that another one gives.
    pub fn is(&self, other: &Self) -> bool {
        let same = |of: &Self| (of.inputs.shift.clone(), of.inputs.scale.clone());
        same(self) == same(other)
            && self.dictionary.kernel() == other.dictionary.kernel()
            && self.dictionary.elements() == other.dictionary.elements()
    }
}
