//! The past: `snapshot` and `value` as of a moment.
//!
//! The thread of such requests (`evaluations`) reads checkpoints and journal beside the core and applies the groups again, up to that
//! moment. It keeps what the critics were then, for further questions about it; there is one such past at a time.

use super::super::as_of::{AsOfError, group_then, model_then, state_behind, turn};
use super::super::bounds::PAGED_MAX;
use super::super::core::Caller;
use super::super::core::caller::{stopped, unreadable};
use super::super::core::head_changes::names_beside;
use super::super::recovery::RecoverError;
use super::large::LargeQuery;
use super::{model_of_head, piece, prepared};
use crate::board::LearningHeads;
use crate::config::Config;
use crate::journal::checkpoint::Directory;
use crate::journal::store::SqliteStorage;
use crate::snapshot::{Evaluation, EvaluationScratch, Evaluator};
use crate::state::State;
use crate::transport::Reply;
use crate::wire::{self, Answering, ArrayForm, ErrorCode, Op, WireError};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is kept from one question to the next.
#[derive(Default)]
pub(in crate::daemon) struct KeptPast {
    /// The past that was asked for last.
    past: Option<Past>,
    /// Encoded models that are fetched page by page. They outlive their past, so that clients with several do not make each other
    /// wait for every page.
    paged: VecDeque<(Page, Vec<u8>)>,
}

/// Whose pages: the number of the last group, the critic that was asked for, whether with its variance, and the form.
type Page = (u64, Option<String>, bool, ArrayForm);

/// The critics as they were.
struct Past {
    /// Number of the last group that was stored by then.
    group: u64,
    critics: Vec<Critic>,
}

/// A critic as it was.
struct Critic {
    name: String,
    /// Its model, or why there is none.
    model: Result<Arc<Evaluator>, WireError>,
    /// Heads that its model lacked.
    learning: Arc<LearningHeads>,
}

/// What a moment that cannot be told is answered with.
fn refusal(error: AsOfError) -> WireError {
    match error {
        AsOfError::Recover(RecoverError::Stopped) => stopped(),
        AsOfError::Recover(e) => unreadable(e),
        e => WireError::of(ErrorCode::OutOfRange, "as_of", e.to_string()),
    }
}

impl KeptPast {
    /// The answer to the request in a message.
    pub(in crate::daemon) fn answer(
        &mut self,
        caller: &Caller,
        payload: &[u8],
        config: &Config,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Reply, WireError> {
        let limits = config.limits.wire();
        let op = wire::decode_request(payload, &limits).map_err(|refused| refused.error)?.op;
        let (Op::Value { as_of: Some(moment), .. } | Op::Snapshot { as_of: Some(moment), .. }) = op else {
            return Err(WireError::new(ErrorCode::Internal, "another request waited among questions about the past"));
        };
        let mut storage = SqliteStorage::open_beside(&config.data_dir).map_err(unreadable)?;
        let group = group_then(&mut storage, moment).map_err(refusal)?;
        let mut source = PastSource { storage, config, keep_going };
        match op {
            Op::Snapshot { critic, variance, page: Some(page), revision, head: None, .. } => {
                // A time that is still to come is another moment with every group.
                let group = revision.unwrap_or(group).min(group);
                let which = (group, critic, variance, caller.form);
                if !self.paged.iter().any(|(kept, _)| *kept == which) {
                    let past = source.past(&mut self.past, group)?;
                    let model = past.model(past.critic(which.1.as_deref())?)?;
                    let bytes = wire::encode_values(model.snapshot(), caller.form, variance);
                    self.paged.truncate(PAGED_MAX - 1);
                    self.paged.push_front((which.clone(), bytes));
                }
                let bytes = self.paged.iter().find(|(kept, _)| *kept == which).map_or(&[][..], |(_, bytes)| bytes);
                piece(caller, bytes, group, page)
            }
            Op::Snapshot { critic, variance, head, .. } => {
                let past = source.past(&mut self.past, group)?;
                let index = past.critic(critic.as_deref())?;
                let model = past.model(index)?;
                let snapshot = model.snapshot();
                match head {
                    Some(head) => model_of_head(caller, snapshot, &past.critics[index].learning, &head, variance),
                    None => Ok(caller.reply(&wire::Reply::Snapshot { snapshot, variance })),
                }
            }
            op => source.past(&mut self.past, group)?.value(caller, op, &limits, keep_going),
        }
    }
}

/// What a past is made from.
struct PastSource<'a> {
    storage: SqliteStorage,
    config: &'a Config,
    keep_going: &'a dyn Fn() -> bool,
}

impl PastSource<'_> {
    /// The past behind this group: the one that is kept, or one that takes its place.
    fn past<'k>(&mut self, kept: &'k mut Option<Past>, group: u64) -> Result<&'k Past, WireError> {
        if kept.as_ref().is_none_or(|past| past.group != group) {
            let checkpoints = Directory::new(&self.config.data_dir);
            let mut learn = |kept: &mut Option<Past>| {
                state_behind(&mut self.storage, &checkpoints, self.config.window_rows, group, &mut |_, _| {
                    // There is one at a time: the other goes as soon as this one can be told.
                    *kept = None;
                    (self.keep_going)()
                })
            };
            let _turn = turn(&mut || (self.keep_going)()).map_err(AsOfError::from).map_err(refusal)?;
            let state = learn(kept).map_err(refusal)?;
            *kept = Some(Past { group, critics: Critic::all(&state) });
        }
        Ok(kept.as_ref().expect("it is there now"))
    }
}

impl Past {
    /// Index of the critic called `name`; the first one if no name is given.
    fn critic(&self, name: Option<&str>) -> Result<usize, WireError> {
        let found = match name {
            None => (!self.critics.is_empty()).then_some(0),
            Some(name) => self.critics.iter().position(|critic| critic.name == name),
        };
        found.ok_or_else(|| {
            let known: Vec<&str> = self.critics.iter().map(|critic| critic.name.as_str()).collect();
            let message = format!("there was no such critic then; there was {}", known.join(", "));
            WireError::of(ErrorCode::UnknownCritic, "critic", message)
        })
    }

    fn model(&self, critic: usize) -> Result<Arc<Evaluator>, WireError> {
        self.critics[critic].model.clone()
    }

    /// The answer to a `value` request.
    fn value(
        &self,
        caller: &Caller,
        op: Op,
        limits: &wire::Limits,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Reply, WireError> {
        let Op::Value { critics, .. } = &op else { unreachable!("a value request was decoded") };
        let (critics, by_name) = match critics {
            Answering::One(name) => (vec![self.critic(name.as_deref())?], false),
            Answering::Each(names) => {
                let found = |(i, name): (usize, &String)| {
                    let found = self.critic(Some(name));
                    found.map_err(|fault| WireError { field: Some("critics"), ..fault }.at(i))
                };
                (names.iter().enumerate().map(found).collect::<Result<Vec<_>, _>>()?, true)
            }
        };
        let models = critics.iter().map(|&critic| self.model(critic)).collect::<Result<Vec<_>, _>>()?;
        let learning = Arc::clone(&self.critics[critics[0]].learning);
        let (query, heads) = prepared(caller, op, (models, by_name), learning, limits)?;
        let (mut query, mut scratch, mut found) =
            (LargeQuery::new(query, heads), EvaluationScratch::default(), Evaluation::default());
        while !query.advance(&mut scratch, &mut found)? {
            if !keep_going() {
                return Err(stopped());
            }
        }
        Ok(query.reply())
    }
}

impl Critic {
    /// Those of a state.
    fn all(state: &State) -> Vec<Self> {
        (0..state.critics().len()).map(|index| Self::of(state, index)).collect()
    }

    fn of(state: &State, index: usize) -> Self {
        let learner = &state.critics()[index];
        let name = learner.settings().name.clone();
        let found = model_then(state, index).map_err(|why| WireError::of(ErrorCode::OutOfRange, "as_of", why));
        let shown = found.as_ref().ok();
        let learning = LearningHeads { names: names_beside(&learner.settings().heads, shown), share: 0.0 };
        Self { name, model: found.map(|snapshot| Arc::new(Evaluator::new(snapshot))), learning: Arc::new(learning) }
    }
}
