//! Decisions of an advisor as they are written.

use super::ArrayForm;
use super::tensor::WrittenTensor;
use criticd_learner::suggest::Suggestion;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct SuggestBody<'a> {
    decision_id: u64,
    decision: WrittenTensor<'a>,
    mean: WrittenTensor<'a>,
    deviation: WrittenTensor<'a>,
    learned: u64,
}

impl<'a> SuggestBody<'a> {
    pub(super) fn new(suggestion: &'a Suggestion, learned: u64, form: ArrayForm) -> Self {
        let Suggestion { id, decision, mean, deviation } = suggestion;
        let vector = |values: &'a [f64]| WrittenTensor::vector(values, form);
        Self { decision_id: *id, decision: vector(decision), mean: vector(mean), deviation: vector(deviation), learned }
    }
}
