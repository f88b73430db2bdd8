//! A Q that has learned rows, through a dictionary that grows where it leaves too much open.

use super::TRACE_GAP_MAX;
use crate::batch::{BatchError, Given};
use crate::math::dictionary::{Dictionary, StoppingRule};
use crate::math::evidence::KeepGoing;
use crate::settings::TOLERANCE_MIN;
use crate::snapshot::Snapshot;
use nalgebra::DMatrix;

/// Elements that a dictionary grows to at most, unless another number is asked for.
pub const ELEMENTS_MAX: usize = 2000;
/// Rows times squared elements that it grows to at most: what learning costs is in proportion to them.
const WORK_MAX: usize = 40_000_000_000;
/// Share of [`TRACE_GAP_MAX`] that growth aims at: of many states only some are looked at.
const AIM: f64 = 0.9;

/// A Q that has learned some rows.
#[derive(Clone, Debug)]
pub struct LearnedQ {
    /// The Q.
    pub snapshot: Snapshot,
    /// What its dictionary leaves open, nats.
    pub trace_gap: f64,
    /// Weights that the rows decide and not the prior, tr S (S + ratio I)^-1.
    pub freedom: f64,
    /// (m, m), a matrix for [`Snapshot::variance`] by which Q has the variance that it would have if each row had told its own value.
    pub told: DMatrix<f64>,
}

/// A Q with this dictionary that has learned the rows of `given`. If the dictionary leaves more than [`TRACE_GAP_MAX`] open, a larger
/// one takes its place: of `most` elements at most, and no more than rows times squared elements allow. The rows alone decide it.
///
/// # Errors
/// Stopped; or its system cannot be solved.
pub fn learn(
    given: &Given<'_>,
    dictionary: Dictionary,
    most: usize,
    keep_going: KeepGoing<'_>,
) -> Result<LearnedQ, BatchError> {
    let mut model = given.model(dictionary, keep_going)?;
    let most = most.min((WORK_MAX / given.rows.len().max(1)).isqrt());
    if most > model.dictionary().len() && model.solve()?.trace_gap(model.statistics()) > TRACE_GAP_MAX {
        let h = given.hyperparameters;
        let tolerance = TOLERANCE_MIN * h.kernel.signal_variance;
        let enough = StoppingRule { tolerance, trace: AIM * TRACE_GAP_MAX * 2.0 * h.noise_variance };
        model = given.model(given.select(enough, most, keep_going)?.dictionary, keep_going)?;
    }
    model.revisit(std::iter::once((given.rows, 0..given.rows.len(), 0)));
    let (posterior, statistics) = (model.solve()?, model.statistics());
    // Of each weight the share that the prior holds: ratio (S + ratio I)^-1.
    let held = posterior.covariance(statistics)?;
    let freedom = (0..held.rows()).map(|i| 1.0 - held.at(i, i)).sum();
    let told = posterior.variance_matrix(model.dictionary(), &held).to_nalgebra();
    Ok(LearnedQ { snapshot: model.snapshot(true)?, trace_gap: posterior.trace_gap(statistics), freedom, told })
}
