//! What a `value` request is answered with.

use super::ArrayForm;
use super::bodies::{is_false, is_one};
use super::tensor::{Flags, WrittenTensor};
use criticd_learner::snapshot::{Evaluation, Snapshot};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
pub(super) struct ValuesBody<'a> {
    critics: BTreeMap<&'a str, ValueBody<'a>>,
}

impl<'a> ValuesBody<'a> {
    pub(super) fn new(answers: &[(&'a Evaluation, &'a Snapshot)], form: ArrayForm) -> Self {
        let of = |(evaluation, snapshot): &(&'a Evaluation, &'a Snapshot)| {
            (snapshot.critic.as_str(), ValueBody::new(evaluation, snapshot, form))
        };
        Self { critics: answers.iter().map(of).collect() }
    }
}

#[derive(Serialize)]
pub(super) struct ValueBody<'a> {
    mean: WrittenTensor<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variance: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_variance: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extrapolates: Option<Flags>,
    generation: u64,
    offset: u64,
    #[serde(skip_serializing_if = "is_one")]
    lambda: f64,
    #[serde(skip_serializing_if = "is_false")]
    provisional: bool,
}

impl<'a> ValueBody<'a> {
    pub(super) fn new(evaluation: &'a Evaluation, snapshot: &Snapshot, form: ArrayForm) -> Self {
        Self {
            mean: WrittenTensor::columns(&evaluation.mean, form),
            variance: evaluation.variance.as_deref().map(|v| WrittenTensor::vector(v, form)),
            return_variance: evaluation.return_variance.as_ref().map(|v| WrittenTensor::columns(v, form)),
            known: evaluation.known.as_deref().map(|v| WrittenTensor::vector(v, form)),
            extrapolates: evaluation.extrapolates.clone().map(|values| Flags { values, form }),
            generation: snapshot.generation,
            offset: snapshot.offset,
            lambda: snapshot.lambda,
            provisional: snapshot.provisional,
        }
    }
}
