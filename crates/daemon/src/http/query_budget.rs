//! Questions about the model, their answers, and the share of the time that those may take.

use super::head_list::HeadsQuery;
use super::map::{Of, View};
use super::path::PathQuery;
use super::relevance::RelevanceQuery;
use super::stream_positions::NewestQuery;
use super::what_if_query::{CourseQuery, PlanQuery};
use crate::snapshot::Snapshot;
use crate::telemetry;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Answers kept, for the open pages.
const ANSWERS: usize = 24;
/// For how long answers about errors (and heads) and about relevances are reused under one model.
const ERRORS_AGE: Duration = Duration::from_secs(5);
const RELEVANCE_AGE: Duration = Duration::from_secs(30);
/// Share of the time that may go into answers, how much of it may be saved up, and how much may be owed for a view
/// that has not been seen yet; seconds.
const SHARE: f64 = 0.02;
const SAVED: f64 = 0.25;
const OWED: f64 = 1.0;

/// A question of a page about the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelQuestion {
    /// A heat map or a curve.
    Map(View),
    /// The value along a trajectory.
    Path(PathQuery),
    /// Errors over the axes of a view, and the worst states.
    Errors(View),
    /// How much of the value depends on each variable.
    Relevance(RelevanceQuery),
    /// The heads of a critic.
    Heads(HeadsQuery),
    /// Where each stream is now.
    Newest(NewestQuery),
    /// What the robot would do for a reward.
    Plan(PlanQuery),
    /// Where it will be.
    Course(CourseQuery),
}

impl ModelQuestion {
    /// The subject of a picture, if it is not the present model.
    pub(super) fn of(&self) -> Option<Of> {
        match self {
            Self::Map(view) => view.of.clone(),
            _ => None,
        }
    }

    /// The critic that is named.
    pub(super) fn critic(&self) -> Option<&str> {
        match self {
            Self::Map(view) | Self::Errors(view) => view.critic.as_deref(),
            Self::Path(query) => query.critic.as_deref(),
            Self::Relevance(query) => query.critic.as_deref(),
            Self::Heads(query) => query.critic.as_deref(),
            Self::Newest(query) => query.critic.as_deref(),
            Self::Plan(query) => query.critic.as_deref(),
            Self::Course(query) => query.critic.as_deref(),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Refusal {
    /// There is no model yet.
    NotReady,
    /// The question makes no sense.
    Invalid(String),
    /// Answers have taken enough time until the next second.
    Busy,
    /// It is being worked out, as this says: ask again.
    Later(String),
}

/// An answer that has been given.
struct Answer {
    question: ModelQuestion,
    /// The model, which this does not keep alive: its variance is large.
    snapshot: Weak<Snapshot>,
    generation: u64,
    /// Rows that it had learned.
    learned: u64,
    /// Offset behind the last row that was known.
    end: u64,
    given: Instant,
    bytes: Bytes,
}

impl Answer {
    /// Whether a new answer would be the same, or nearly.
    fn is_fresh(&self, snapshot: &Arc<Snapshot>, end: u64) -> bool {
        let same = std::ptr::eq(self.snapshot.as_ptr(), Arc::as_ptr(snapshot));
        let young = |most| self.generation == snapshot.generation && self.given.elapsed() < most;
        match &self.question {
            ModelQuestion::Map(_) | ModelQuestion::Plan(_) | ModelQuestion::Course(_) => same,
            ModelQuestion::Path(_) => same && self.end == end,
            ModelQuestion::Newest(_) => self.end == end,
            ModelQuestion::Errors(_) | ModelQuestion::Heads(_) => young(ERRORS_AGE),
            // A young model learns much with every row.
            ModelQuestion::Relevance(_) => young(RELEVANCE_AGE) && 4 * snapshot.offset <= 5 * self.learned,
        }
    }
}

/// The last answers, oldest first.
pub(super) struct LastAnswers {
    given: VecDeque<Answer>,
    /// Seconds that answers may take, and when they were last counted.
    budget: f64,
    counted: Instant,
}

impl Default for LastAnswers {
    fn default() -> Self {
        Self { given: VecDeque::new(), budget: SAVED, counted: Instant::now() }
    }
}

impl LastAnswers {
    /// The answer to a question about `snapshot` and rows up to offset `end`: a new one if time allows, else one that was given
    /// before.
    ///
    /// # Errors
    /// [`Refusal::Busy`] if there is neither, and whatever `compute` refuses.
    pub(super) fn give(
        &mut self,
        question: ModelQuestion,
        snapshot: &Arc<Snapshot>,
        end: u64,
        compute: impl FnOnce(&ModelQuestion) -> Result<Bytes, String>,
    ) -> Result<Bytes, Refusal> {
        let now = Instant::now();
        let passed = now.duration_since(std::mem::replace(&mut self.counted, now)).as_secs_f64();
        self.budget = (self.budget + SHARE * passed).min(SAVED);
        let known = self.given.iter().position(|answer| answer.question == question);
        if let Some(known) = known {
            let answer = &self.given[known];
            if answer.is_fresh(snapshot, end) || self.budget <= 0.0 {
                return Ok(answer.bytes.clone());
            }
        } else if self.budget <= -OWED {
            return Err(Refusal::Busy);
        }
        let before = telemetry::used();
        let computed = compute(&question);
        // Processor time: on a busy machine an answer takes longer, but no more of the others' time.
        self.budget -= telemetry::used().saturating_sub(before).as_secs_f64();
        let bytes = computed.map_err(Refusal::Invalid)?;
        if let Some(known) = known {
            self.given.remove(known);
        } else if self.given.len() == ANSWERS {
            self.given.pop_front();
        }
        self.given.push_back(Answer {
            question,
            snapshot: Arc::downgrade(snapshot),
            generation: snapshot.generation,
            learned: snapshot.offset,
            end,
            given: Instant::now(),
            bytes: bytes.clone(),
        });
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::map::tests::model;
    use super::*;

    #[test]
    fn an_answer_is_given_again_and_keeps_no_model_alive() {
        let mut answers = LastAnswers::default();
        let mut ask = |snapshot: &Arc<Snapshot>, answer: &'static str| {
            answers.give(ModelQuestion::Map(View::default()), snapshot, 0, |_| Ok(Bytes::from(answer))).unwrap()
        };
        let (first, second) = (Arc::new(model(3)), Arc::new(model(3)));
        assert_eq!((ask(&first, "a"), ask(&first, "b")), ("a".into(), "a".into()));
        let gone = Arc::downgrade(&first);
        drop(first);
        assert_eq!(gone.strong_count(), 0);
        assert_eq!(ask(&second, "c"), "c");
    }

    #[test]
    fn shares_are_computed_anew_once_a_model_has_learned_a_quarter_more() {
        let mut answers = LastAnswers::default();
        let of = |offset| Arc::new(Snapshot { offset, ..model(3) });
        let mut ask = |snapshot: &Arc<Snapshot>, answer: &'static str| {
            answers
                .give(ModelQuestion::Relevance(RelevanceQuery::default()), snapshot, 0, |_| Ok(Bytes::from(answer)))
                .unwrap()
        };
        assert_eq!((ask(&of(100), "a"), ask(&of(125), "b"), ask(&of(126), "c")), ("a".into(), "a".into(), "c".into()));
    }

    #[test]
    fn a_question_that_makes_no_sense_is_charged_as_well() {
        let (mut answers, snapshot) = (LastAnswers::default(), Arc::new(model(3)));
        let saved = answers.budget;
        let refused = answers.give(ModelQuestion::Map(View::default()), &snapshot, 0, |_| {
            let before = telemetry::used();
            while telemetry::used() == before {
                std::hint::black_box(0);
            }
            Err("no".to_owned())
        });
        assert_eq!(refused, Err(Refusal::Invalid("no".to_owned())));
        assert!(answers.budget < saved);
    }
}
