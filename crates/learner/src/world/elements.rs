//! How the elements of both dictionaries are chosen from rows.

use super::Transitions;
use super::basis::Basis;
use super::error::WorldError;
use super::part::Part;
use crate::math::dense::Matrix;
use crate::math::dictionary::Dictionary;
use crate::math::hull::{Reach, cover};
use crate::math::kernel::{Kernel, Points};
use crate::math::pursuit::{Pursuit, by_targets};
use crate::random::mix;
use crate::snapshot::Inputs;

/// Share of the signal variance below which nothing is left of a state.
const TOLERANCE: f64 = 1e-6;
/// Rows that a pursuit goes by, at most, unless it has more candidates.
const PURSUED_ROWS: usize = 4000;

/// How many elements D and C have at most, and how they are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementRule {
    /// Elements of D and of C, at most.
    pub most: (usize, usize),
    /// What may be left of a state that is no pivot, over the signal variance; below 1.
    pub tolerance: f64,
    /// What chooses D where pivots are at their cap; none to keep these.
    pub pursuit: Option<Pursuing>,
    /// C is the lossy set (Y10) of this squared distance over the signal variance; none for pivots.
    pub lossy: Option<f64>,
}

/// A pursuit of the elements of D (Y8).
#[derive(Clone, Debug, PartialEq)]
pub struct Pursuing {
    /// What happens to weights.
    pub by: Pursuit,
    /// Rows that are candidates.
    pub candidates: usize,
    /// Share of where rows lead that a candidate must explain to join, from 0.
    pub enough: f64,
    /// Decides which rows are candidates.
    pub seed: u64,
}

/// What the elements are.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenElements {
    /// (m,) the row whose successor each element of C is.
    pub places: Vec<usize>,
    /// Whether a pursuit has chosen D.
    pub pursued: bool,
}

impl ElementRule {
    /// Pivots for both.
    pub fn pivots(most: (usize, usize)) -> Self {
        Self { most, tolerance: TOLERANCE, pursuit: None, lossy: None }
    }

    /// D and C of `rows`: by normalisation and kernel of states with actions, and of states. Of rows that `usable` does not hold of no
    /// successor is an element.
    ///
    /// # Errors
    /// No such row that anything followed; a lossy set of more elements than are allowed; or no candidate of a pursuit explains enough.
    pub(super) fn choose(
        &self,
        (of_inputs, over_inputs): (&Inputs, &Kernel),
        (of_states, over_states): (&Inputs, &Kernel),
        rows: &Transitions<'_>,
        usable: &dyn Fn(usize) -> bool,
    ) -> Result<(Basis, Basis, ChosenElements), WorldError> {
        let (dim, n) = (of_states.dim(), rows.terminated.len());
        let followed: Vec<usize> = (0..n).filter(|&i| !rows.terminated[i] && usable(i)).collect();
        if followed.is_empty() {
            return Err(WorldError::Empty);
        }
        let states: Vec<f64> =
            followed.iter().flat_map(|&i| rows.successors[i * dim..(i + 1) * dim].to_vec()).collect();
        let (after, chosen) = match self.lossy {
            None => {
                let (after, pivots) =
                    Basis::pivots(of_states.clone(), over_states, &states, self.tolerance, self.most.1);
                (after, pivots.indices)
            }
            Some(distance) => Basis::lossy(of_states, over_states, &states, (distance, self.most.1))?,
        };
        let (mut before, pivots) =
            Basis::pivots(of_inputs.clone(), over_inputs, rows.inputs, self.tolerance, self.most.0);
        let pursuing = self.pursuit.as_ref().filter(|_| pivots.capped);
        if let Some(pursuing) = pursuing {
            before = Basis::pursued(of_inputs, over_inputs, (rows, &after), pursuing, self.most.0)?;
        }
        let places = chosen.iter().map(|&k| followed[k]).collect();
        Ok((before, after, ChosenElements { places, pursued: pursuing.is_some() }))
    }
}

impl Basis {
    /// The lossy set (Y10) of `states` (n, D), row-major: in order, each that is further than the root of `distance`, in parts of the signal
    /// variance, from the hull of those before; and their numbers.
    ///
    /// # Errors
    /// More than `max` are.
    pub fn lossy(
        inputs: &Inputs,
        kernel: &Kernel,
        states: &[f64],
        (distance, max): (f64, usize),
    ) -> Result<(Self, Vec<usize>), WorldError> {
        let radius = (distance * kernel.signal_variance).sqrt();
        let states = inputs.normalise(states);
        let found = cover(kernel, inputs.dim(), &states, radius, max, Reach::Convex);
        if found.distances.iter().filter(|of| **of > radius).count() > found.chosen.len() {
            return Err(WorldError::Uncovered { elements: max, distance });
        }
        Ok(Self::unspanned(inputs, kernel, &states, &found.chosen))
    }

    /// Of the inputs of `rows` at most `max` that vector-valued matching pursuit (Y8) chooses, with the features of `after` of their
    /// successors as targets. Of more than 4000 rows, and more than there are candidates, it goes by some drawn at random.
    ///
    /// # Errors
    /// No candidate explains enough.
    pub fn pursued(
        inputs: &Inputs,
        kernel: &Kernel,
        (rows, after): (&Transitions<'_>, &Self),
        pursuing: &Pursuing,
        max: usize,
    ) -> Result<Self, WorldError> {
        let (dim, width) = (inputs.dim(), kernel.projected_dim(inputs.dim()));
        let mut drawn: Vec<usize> = (0..rows.terminated.len()).collect();
        drawn.sort_by_cached_key(|&i| mix(&[pursuing.seed, i as u64]));
        drawn.truncate(PURSUED_ROWS.max(pursuing.candidates));
        let part = Part::of(rows, &drawn);
        let states = inputs.normalise(&part.inputs);
        let places = kernel.project(dim, &states);
        let candidates = &places[..pursuing.candidates.min(drawn.len()) * width];
        let mut columns = Matrix::zeros(drawn.len(), candidates.len() / width);
        kernel.block(&Points::new(width, &places), candidates, &mut columns.view_mut());
        let mut targets = after.features(&part.successors);
        let ended = part.terminated.iter().enumerate().filter(|(_, ends)| **ends);
        ended.for_each(|(i, _)| targets.col_mut(i).fill(0.0));
        let found = by_targets(&columns, &targets.transpose(), pursuing.by, (max, pursuing.enough), &|| true);
        let chosen = found.expect("nobody has stopped it").chosen;
        if chosen.is_empty() {
            return Err(WorldError::Unexplained(pursuing.enough));
        }
        Ok(Self::unspanned(inputs, kernel, &states, &chosen).0)
    }

    /// The states numbered `chosen` of `states` (n, D), normalised, row-major, in that order; without any that the ones before express. And
    /// their numbers.
    fn unspanned(inputs: &Inputs, kernel: &Kernel, states: &[f64], chosen: &[usize]) -> (Self, Vec<usize>) {
        let smallest = TOLERANCE * kernel.signal_variance;
        let mut dictionary = Dictionary::new(kernel.clone(), inputs.dim(), smallest, chosen.len());
        let numbers = dictionary.admit_chosen(states, chosen);
        (Self::new(inputs.clone(), dictionary), numbers)
    }
}
