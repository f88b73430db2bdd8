//! Requests that are answered a slice at a time, each from the models that it began with.

use super::super::act::Decisions;
use super::super::core::Caller;
use super::head_query::HeadQuery;
use crate::snapshot::{Ask, Evaluation, EvaluationScratch, Evaluator, Snapshot};
use crate::transport::Reply;
use crate::wire::{self, WireError};
use std::sync::Arc;
use std::time::Instant;

/// Multiplications of one slice of a `value` request: a fraction of a millisecond.
const SLICE_WORK: usize = 20_000_000;
/// Of one slice of an `act` request, at least one decision. Decisions are made one by one, which takes longer than a block of states.
pub(super) const ACT_SLICE_WORK: usize = 2_000_000;

/// A request under way.
pub(super) struct Large {
    pub(super) started: Instant,
    pub(super) asked: Slices,
}

/// What is answered.
pub(super) enum Slices {
    /// A `value` request.
    Value(LargeQuery),
    /// An `act` request.
    Act(Caller, Decisions),
}

impl Large {
    /// Who asked.
    pub(super) fn caller(&self) -> &Caller {
        match &self.asked {
            Slices::Value(large) => &large.query.caller,
            Slices::Act(caller, _) => caller,
        }
    }

    /// Work off the next slice; whether that was the last.
    pub(super) fn advance(
        &mut self,
        scratch: &mut EvaluationScratch,
        found: &mut Evaluation,
    ) -> Result<bool, WireError> {
        match &mut self.asked {
            Slices::Value(large) => large.advance(scratch, found),
            Slices::Act(_, decisions) => decisions.advance(ACT_SLICE_WORK),
        }
    }

    /// The reply, behind the last slice.
    pub(super) fn reply(&self) -> Reply {
        match &self.asked {
            Slices::Value(large) => large.reply(),
            Slices::Act(caller, decisions) => caller.reply(&decisions.reply()),
        }
    }
}

/// A `value` request.
pub(super) struct ValueQuery {
    pub(super) caller: Caller,
    /// (rows, dim), row-major.
    pub(super) states: Vec<f64>,
    pub(super) rows: usize,
    pub(super) dim: usize,
    pub(super) ask: Ask,
    /// What answers: one model, or one of each critic that the request names.
    pub(super) models: Vec<Arc<Evaluator>>,
    /// Whether the reply is a map of critics.
    pub(super) by_name: bool,
}

impl ValueQuery {
    /// The reply; `evaluations` begin with the values of the models.
    pub(super) fn reply(&self, heads: Option<&HeadQuery>, evaluations: &[Evaluation]) -> Reply {
        let answers = || evaluations.iter().zip(self.models.iter().map(|model| &**model.snapshot()));
        if self.by_name {
            return self.caller.reply(&wire::Reply::Values(&answers().collect::<Vec<_>>()));
        }
        let (evaluation, snapshot) = answers().next().expect("a query has a model");
        let heads = heads.map(|heads| heads.answers(snapshot));
        self.caller.reply(&match &heads {
            None => wire::Reply::Value { evaluation, snapshot },
            Some(heads) => wire::Reply::ValueOfHeads { evaluation, snapshot, heads },
        })
    }
}

/// A `value` request that is being answered slice by slice, from one snapshot of each critic.
pub(super) struct LargeQuery {
    query: ValueQuery,
    /// Evaluations that are done, and rows of the next one.
    done: (usize, usize),
    /// One of each model.
    evaluations: Vec<Evaluation>,
    /// Heads of the model, where there is one alone.
    heads: Option<HeadQuery>,
}

impl LargeQuery {
    pub(super) fn new(query: ValueQuery, heads: Option<HeadQuery>) -> Self {
        let zeros = |model: &Arc<Evaluator>| Evaluation::zeros(model.snapshot(), query.rows, query.ask);
        let evaluations = query.models.iter().map(zeros).collect();
        Self { query, done: (0, 0), evaluations, heads }
    }

    /// The reply, behind the last slice.
    pub(super) fn reply(&self) -> Reply {
        self.query.reply(self.heads.as_ref(), &self.evaluations)
    }

    /// Work off the next slice; whether that was the last.
    pub(super) fn advance(
        &mut self,
        scratch: &mut EvaluationScratch,
        found: &mut Evaluation,
    ) -> Result<bool, WireError> {
        let ValueQuery { states, rows, dim, ask, models, .. } = &self.query;
        let (at, from) = self.done;
        let model = &models[at];
        let of_heads = self.heads.as_ref().map_or(0, |heads| heads.work(model.snapshot()));
        let count = slice_rows(state_work(model.snapshot(), *ask) + of_heads).min(rows - from);
        let slice = &states[from * dim..(from + count) * dim];
        model.evaluate_into(slice, *ask, scratch, found).map_err(|fault| {
            let index = fault.index.map(|index| index + from);
            WireError { index, ..fault.into() }
        })?;
        self.evaluations[at].place(from, found);
        if let Some(heads) = &mut self.heads {
            heads.advance(model.snapshot(), slice, from..from + count)?;
        }
        self.done = if from + count == *rows { (at + 1, 0) } else { (at, from + count) };
        Ok(self.done.0 == models.len())
    }
}

/// States that are evaluated without a look at other requests, if each takes `work` multiplications.
pub(super) fn slice_rows(work: usize) -> usize {
    /// At least: blocks are faster than single states.
    const LEAST: usize = 16;
    (SLICE_WORK / work).max(LEAST)
}

/// Multiplications that a state takes, about; at least 1.
pub(super) fn state_work(snapshot: &Snapshot, ask: Ask) -> usize {
    // A kernel takes a few dozen, and they are worked off 32 at a time.
    let (size, kernel) = (snapshot.dictionary.nrows().max(1).next_multiple_of(32), 32 + snapshot.dim());
    let of_mean = snapshot.mean.as_ref().map_or(0, |mean| state_work(mean, Ask::MEAN));
    of_mean + size * if ask.needs_variance() { kernel + size } else { kernel }
}
