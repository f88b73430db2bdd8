//! From states to features: normalisation, kernel and dictionary.

use super::learned::Learned;
use crate::math::dense::{Matrix, ViewMut};
use crate::math::dictionary::Dictionary;
use crate::math::kernel::Kernel;
use crate::math::mixture::Mixtures;
use crate::math::statistics::CLOSED_TOGETHER;
use crate::settings::Settings;
use crate::snapshot::Inputs;

/// What makes features phi(x) (m,) of states (D,).
#[derive(Clone, Debug)]
pub(super) struct Basis {
    pub(super) inputs: Inputs,
    pub(super) dictionary: Dictionary,
    /// Number of discrete actions, where a successor may be a distribution over them.
    mixed: Option<usize>,
    /// Features that count: the first ones. Others are 0, while rows from before they were admitted are learned again.
    counted: usize,
    /// Which rows were learned with which features; none where that is not known.
    pub(super) learned: Option<Learned>,
}

impl Basis {
    pub(super) fn new(inputs: Inputs, dictionary: Dictionary, settings: &Settings) -> Self {
        let mixed = settings.mixes_successors().then(|| settings.choices());
        let learned = Some(Learned::new(dictionary.len()));
        Self { inputs, dictionary, mixed, counted: usize::MAX, learned }
    }

    /// The same that knows this of the rows learned.
    pub(super) fn knowing(self, learned: Option<Learned>) -> Self {
        Self { learned, ..self }
    }

    /// The first `features` count, and no others.
    pub(super) fn count(&mut self, features: usize) {
        self.counted = features;
    }

    /// Features m.
    pub(super) fn len(&self) -> usize {
        self.dictionary.len()
    }

    /// Number of the first features that trackers use: the columns, or one. Where the constant is no feature of its own, the first is
    /// nearly constant, since the kernel's own is large beside its other variance.
    pub(super) fn explicit(&self) -> usize {
        self.dictionary.columns().max(1)
    }

    /// State dimension D.
    pub(super) fn dim(&self) -> usize {
        self.inputs.dim()
    }

    /// Coordinates of a projected state.
    pub(super) fn width(&self) -> usize {
        self.kernel().projected_dim(self.dim())
    }

    /// The base kernel.
    pub(super) fn kernel(&self) -> &Kernel {
        self.dictionary.kernel()
    }

    /// Whether a successor may be a distribution over actions.
    pub(super) fn mixes(&self) -> bool {
        self.mixed.is_some()
    }

    /// out (m, n) <- features of normalised `states` (n, D), whose `points` are projected already.
    pub(super) fn features_into(
        &self,
        states: &[f64],
        points: &[f64],
        covariances: &mut Matrix,
        mixtures: &mut Mixtures,
        mut out: ViewMut<'_>,
    ) {
        match self.mixed {
            Some(choices) => mixtures.features_into(&self.dictionary, choices, states, out.reborrow()),
            None => self.dictionary.features_into(points, covariances, out.reborrow()),
        }
        if self.counted < out.rows() {
            (0..out.cols()).for_each(|k| out.col_mut(k)[self.counted..].fill(0.0));
        }
    }

    /// The same of any number of states, in memory for [`CLOSED_TOGETHER`] of them.
    pub(super) fn many_features_into(
        &self,
        states: &[f64],
        points: &[f64],
        covariances: &mut Matrix,
        mixtures: &mut Mixtures,
        out: &mut Matrix,
    ) {
        let (m, dim, width) = (self.len(), self.dim(), self.width());
        for from in (0..out.cols()).step_by(CLOSED_TOGETHER) {
            let count = CLOSED_TOGETHER.min(out.cols() - from);
            let states = &states[from * dim..(from + count) * dim];
            let points = &points[from * width..(from + count) * width];
            self.features_into(states, points, covariances, mixtures, out.block_mut(0, from, m, count));
        }
    }

    /// Features (m, n) of normalised `states` (n, D).
    pub(super) fn features(&self, states: &[f64]) -> Matrix {
        let points = self.kernel().project(self.dim(), states);
        let mut out = Matrix::zeros(self.len(), states.len() / self.dim());
        self.features_into(states, &points, &mut Matrix::default(), &mut Mixtures::default(), out.view_mut());
        out
    }
}
