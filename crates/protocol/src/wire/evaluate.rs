//! Requests for the rows that the daemon retains and for the evaluation of another policy by them, and their answers.

use super::ArrayForm;
use super::act::Given;
use super::tensor::WrittenTensor;
use criticd_learner::off_policy::{Estimate, Findings};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Rows that one evaluation takes at most.
pub const EVALUATED_MAX: usize = 1 << 16;
/// Rows that one takes where nothing says how many.
pub(super) const EVALUATED: u64 = 10_000;

/// Which of the retained rows are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Those from this offset on.
    From(u64),
    /// This number of rows, the last ones.
    Last(u64),
}

/// Answers of a policy in the states of rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Answers {
    /// Probabilities of C discrete actions (n, C).
    Probabilities(Given),
    /// Actions (n, A).
    Actions(Given),
}

impl Answers {
    /// The numbers.
    pub fn given(&self) -> &Given {
        match self {
            Self::Probabilities(given) | Self::Actions(given) => given,
        }
    }
}

/// A request to evaluate another policy.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluateRequest {
    /// Which critic; the first one if none is named.
    pub critic: Option<String>,
    /// By which rows; with answers, from the first row that they are of.
    pub span: Span,
    /// The policy's answers in the states of these rows; none: the rows have its probabilities.
    pub answers: Option<Answers>,
    /// Largest importance ratio of a row; none for no limit.
    pub rho_max: Option<f64>,
    /// Effective episodes below which there is no interval; a default if left out.
    pub ess_min: Option<f64>,
    /// Groups of episodes of the doubly robust estimate; a default if left out.
    pub folds: Option<usize>,
    /// Seed of everything random.
    pub seed: u64,
}

/// Retained rows, as a policy and those who judge it need them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetainedRows {
    /// Offset of the first one.
    pub from: u64,
    /// Offset behind the last one that there is: behind those here there may be further ones.
    pub end: u64,
    /// Numbers of a state.
    pub dim: usize,
    /// (n, dim).
    pub states: Vec<f64>,
    /// Numbers of an action; 0 where rows have none.
    pub action_width: usize,
    /// (n, `action_width`), NaN where a row has none.
    pub actions: Vec<f64>,
    /// Rewards of a row.
    pub rewards_per_row: usize,
    /// (n, `rewards_per_row`).
    pub rewards: Vec<f64>,
    /// (n,) NaN where a row has none.
    pub behavior_probs: Vec<f64>,
    /// (n,) number of the stream.
    pub streams: Vec<u32>,
    /// Names of streams.
    pub names: Vec<String>,
    /// (n,) place of the stream's name among them.
    pub named: Vec<u32>,
    /// (n,) sequence number; none where the row came without one.
    pub seqs: Vec<Option<u64>>,
    /// (n,) whether the row does not continue its stream's last one.
    pub starts: Vec<bool>,
    /// (n,)
    pub terminated: Vec<bool>,
    /// (n,)
    pub truncated: Vec<bool>,
}

impl RetainedRows {
    /// Number of rows n.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

/// The reply to `rows`.
#[derive(Serialize)]
pub(super) struct RowsBody<'a> {
    from: u64,
    next: u64,
    end: u64,
    states: WrittenTensor<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<WrittenTensor<'a>>,
    rewards: WrittenTensor<'a>,
    behavior_probs: WrittenTensor<'a>,
    stream_numbers: &'a [u32],
    stream_names: &'a [String],
    streams: &'a [u32],
    seqs: &'a [Option<u64>],
    starts: &'a [bool],
    terminated: &'a [bool],
    truncated: &'a [bool],
}

impl<'a> RowsBody<'a> {
    pub(super) fn new(rows: &'a RetainedRows, form: ArrayForm) -> Self {
        let n = rows.len();
        let matrix =
            |values: &'a [f64], width: usize| WrittenTensor::of(n, width, move |i, d| values[i * width + d], form);
        Self {
            from: rows.from,
            next: rows.from + n as u64,
            end: rows.end,
            states: matrix(&rows.states, rows.dim),
            actions: (rows.action_width > 0).then(|| matrix(&rows.actions, rows.action_width)),
            rewards: matrix(&rows.rewards, rows.rewards_per_row),
            behavior_probs: WrittenTensor::vector(&rows.behavior_probs, form),
            stream_numbers: &rows.streams,
            stream_names: &rows.names,
            streams: &rows.named,
            seqs: &rows.seqs,
            starts: &rows.starts,
            terminated: &rows.terminated,
            truncated: &rows.truncated,
        }
    }
}

/// Findings about a policy, as `criticd evaluate --json` prints them and `evaluate` is answered.
pub fn findings_to_json(found: &Findings) -> Value {
    let mut estimates = Map::new();
    for (name, Estimate { value, error }, refusals) in found.estimates() {
        let interval = refusals.is_empty().then(|| Estimate { value, error }.interval());
        estimates.insert(name.to_owned(), json!({"value": value, "error": error, "interval": interval}));
    }
    let mut out = json!({
        "transitions": found.transitions,
        "episodes": found.episodes,
        "discount": found.discount,
        "estimates": estimates,
        "refused": found.refused(),
        "warnings": found.warnings(),
    });
    if let Some(judgement) = &found.judgement {
        let support = &judgement.support;
        out["weights"] = json!({
            "ess": support.ess,
            "ess_earned": support.ess_earned,
            "largest": support.largest,
            "mean": support.mean.value,
            "mean_error": support.mean.error,
            "zero_share": support.zero_share,
            "rho_max": found.rho_max,
        });
    }
    if let Some(fitted) = &found.fitted {
        out["trace_gap"] = json!(fitted.trace_gap);
        out["elements"] = json!(fitted.elements);
    }
    out
}
