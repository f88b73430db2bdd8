//! What several of the tests use, besides the reference cases of `criticd_reference`.

use criticd_learner::Learner;
use criticd_learner::math::evidence::KeepGoing;

/// Never stops a search.
pub(crate) const GO: KeepGoing<'static> = &|| true;

/// Largest difference relative to the largest magnitude expected.
pub(crate) fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-300f64, |s, v| s.max(v.abs()));
    found.iter().zip(expected).fold(0.0f64, |worst, (a, b)| worst.max((a - b).abs())) / scale
}

/// A learner as a checkpoint keeps it.
pub(crate) fn bytes(learner: &Learner) -> Vec<u8> {
    rmp_serde::to_vec_named(learner).unwrap()
}
