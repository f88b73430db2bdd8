//! Requests for actions, and the decisions that answer them.

use super::ArrayForm;
use super::tensor::WrittenTensor;
use criticd_learner::act::{Decision, Exploration, Question};
use criticd_learner::snapshot::Snapshot;
use nalgebra::DMatrix;
use serde::Serialize;

/// Actions as a message gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Numbers of each.
    pub width: usize,
    /// (n, width), row-major; not yet compared with the actions there are.
    pub values: Vec<f64>,
}

/// A request for decisions in some states.
#[derive(Clone, Debug, PartialEq)]
pub struct ActRequest {
    /// Which critic; the first one if none is named.
    pub critic: Option<String>,
    /// (rows, dim), row-major, without actions; not yet checked for finiteness.
    pub states: Vec<f64>,
    /// Number of states, at least 1.
    pub rows: usize,
    /// Numbers per state, at least 1.
    pub dim: usize,
    /// How to choose.
    pub exploration: Exploration,
    /// Seed of the run.
    pub seed: u64,
    /// (rows,) number of the episode of each state; 0 if left out.
    pub episodes: Vec<u64>,
    /// (rows,) number of the step in it; 0 if left out.
    pub steps: Vec<u64>,
    /// The actions to choose among, the same for all states; all there are if left out.
    pub candidates: Option<Given>,
    /// Deviation of Q above which a state counts as unknown.
    pub unknown_above: Option<f64>,
    /// (A,) action to take where a state is unknown.
    pub fallback: Option<Vec<f64>>,
}

impl ActRequest {
    /// The question about state i.
    pub fn question(&self, i: usize) -> Question<'_> {
        Question {
            state: &self.states[i * self.dim..(i + 1) * self.dim],
            exploration: self.exploration,
            seed: self.seed,
            episode: self.episodes[i],
            step: self.steps[i],
            candidates: self.candidates.as_ref().map(|given| &given.values[..]),
            unknown_above: self.unknown_above,
        }
    }
}

/// The reply to `act`.
#[derive(Serialize)]
pub(super) struct ActBody<'a> {
    actions: WrittenTensor<'a>,
    mean: WrittenTensor<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    std: Option<WrittenTensor<'a>>,
    /// Nil where there is a density in place of a probability, and where the caller's fallback acts.
    probability: Vec<Option<f64>>,
    unknown: Vec<bool>,
    decision_id: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    copy: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<u64>,
    critic: &'a str,
    generation: u64,
    revision: u64,
    offset: u64,
}

/// Numbers of decisions, laid out as their reply has them.
pub(super) struct DecisionColumns {
    actions: DMatrix<f64>,
    mean: Vec<f64>,
    std: Option<Vec<f64>>,
}

impl DecisionColumns {
    pub(super) fn of(decisions: &[Decision]) -> Self {
        let width = decisions.first().map_or(0, |decision| decision.action.len());
        Self {
            actions: DMatrix::from_fn(decisions.len(), width, |i, d| decisions[i].action[d]),
            mean: decisions.iter().map(|decision| decision.mean).collect(),
            std: decisions.iter().map(|decision| decision.deviation).collect(),
        }
    }
}

impl<'a> ActBody<'a> {
    pub(super) fn new(
        columns: &'a DecisionColumns,
        decisions: &[Decision],
        snapshot: &'a Snapshot,
        form: ArrayForm,
    ) -> Self {
        let copies = decisions.iter().filter_map(|decision| decision.copy);
        Self {
            actions: WrittenTensor::columns(&columns.actions, form),
            mean: WrittenTensor::vector(&columns.mean, form),
            std: columns.std.as_ref().map(|std| WrittenTensor::vector(std, form)),
            probability: decisions.iter().map(|decision| decision.probability).collect(),
            unknown: decisions.iter().map(|decision| decision.unknown).collect(),
            decision_id: decisions.iter().map(|decision| decision.id).collect(),
            copy: copies.clone().map(|(copy, _)| copy as u64).collect(),
            copies: copies.map(|(_, copies)| copies as u64).next(),
            critic: &snapshot.critic,
            generation: snapshot.generation,
            revision: snapshot.revision,
            offset: snapshot.offset,
        }
    }
}
