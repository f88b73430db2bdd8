//! What would be: plans and courses by models of the transition.
//!
//! The core hands out a copy of a critic's sums with the last rows, which takes no longer than copying them. What is here solves them, plans
//! and answers, in a thread of its own.

use crate::learner::Settings;
use crate::learner::act::{Actor, Exploration, Question};
use crate::learner::action::ActionSpace;
use crate::learner::heads::{Columns, Cumulant, Head};
use crate::math::embedding::StateKind;
use crate::snapshot::Snapshot;
use crate::transition::without_unit;
use crate::wire::{
    Answers, ErrorCode, Given, PlanRequest, PolicyAsked, RolloutRequest, WireError, course_to_json, plan_to_json,
};
use crate::world::{Acting, Expression, Known, Learned, Names, Planned, Rewarded, UNSUPPORTED_MAX, Wanted, WorldError};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Variables that a course shows unless some are named.
const SHOWN: usize = 6;
/// Letters of the name of a reward in a model.
const REWARD_LETTERS: usize = 64;
/// Bytes of a table of the states to begin in.
const STARTS_BYTES: usize = 64 << 20;

/// The connections whose question waits or is worked on, and whether they are still there.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<Mutex<HashMap<u64, bool>>>);

impl UnderWay {
    /// Whether a question of this connection may be put beside the questions of others, at most `most`.
    pub(super) fn has_room(&self, connection: u64, most: usize) -> bool {
        let of = self.0.lock();
        of.len() < most && !of.contains_key(&connection)
    }

    /// Its question has been put.
    pub(super) fn begin(&self, connection: u64) {
        self.0.lock().insert(connection, true);
    }

    /// It has left. Its question keeps its place until its turn comes.
    pub(super) fn leave(&self, connection: u64) {
        self.0.lock().get_mut(&connection).iter_mut().for_each(|there| **there = false);
    }

    /// Whether it waits for an answer.
    pub(super) fn is_waiting(&self, connection: u64) -> bool {
        self.0.lock().get(&connection) == Some(&true)
    }

    /// Its question is over.
    pub(super) fn end(&self, connection: u64) {
        self.0.lock().remove(&connection);
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A plan for a reward.
    Plan(PlanRequest),
    /// The course under a policy.
    Rollout(RolloutRequest),
}

impl Asked {
    /// The critic that it names.
    pub(super) fn critic(&self) -> Option<&str> {
        match self {
            Self::Plan(PlanRequest { critic, .. }) | Self::Rollout(RolloutRequest { critic, .. }) => critic.as_deref(),
        }
    }

    /// The reward that it names.
    pub(super) fn reward(&self) -> Option<&str> {
        match self {
            Self::Plan(PlanRequest { reward, .. })
            | Self::Rollout(RolloutRequest { policy: PolicyAsked::Plan(reward), .. }) => reward.as_deref(),
            Self::Rollout(_) => None,
        }
    }
}

/// What is answered.
#[derive(Debug)]
pub enum Answer {
    /// A plan: what is to be known of it, and the values of actions.
    Plan(Value, Box<Snapshot>),
    /// A course.
    Rollout(Value),
}

/// A question, and all that answers it.
#[derive(Debug)]
pub struct WhatIfJob {
    /// What is asked.
    pub asked: Asked,
    /// The critic's model of the transition.
    pub learned: Box<Learned>,
    /// The critic's settings.
    pub settings: Settings,
    /// What decides by the critic's values.
    pub actor: Option<Arc<Actor>>,
    /// What the state variables are called, with their units; empty if they have no names.
    pub state_names: Vec<String>,
    /// What the rewards of a row are called.
    pub reward_names: Vec<String>,
    /// The head of a critic that has the name of the reward that is asked for, if one has, and what it sums.
    pub head: Option<Head>,
    /// The critic's generation, the offset behind the last row that it has learned, and Unix seconds.
    pub at: (u64, u64, f64),
}

/// A reward, as it was asked for.
struct Reward {
    text: String,
    of: Rewarded,
    /// Kept rows that it is learned from, where that is not all rows.
    learned: Option<usize>,
}

impl Reward {
    fn new(text: &str, of: Rewarded) -> Self {
        Self { text: text.to_owned(), of, learned: None }
    }
}

impl WhatIfJob {
    /// The answer.
    ///
    /// # Errors
    /// What is wrong with the question, or that the model cannot answer it.
    pub fn answer(&mut self) -> Result<Answer, WireError> {
        let reward = self.reward()?;
        let dynamics = self.learned.solve().map_err(refused)?;
        let known = self.learned.known(&dynamics);
        match &self.asked {
            Asked::Plan(request) => self.plan(request, &reward, &known),
            Asked::Rollout(request) => self.rollout(request, &reward, &known),
        }
    }

    fn plan(&self, request: &PlanRequest, reward: &Reward, known: &Known<'_>) -> Result<Answer, WireError> {
        let discount = self.discount(request.discount)?;
        let starts = self.starts(request.starts.as_ref(), known)?;
        let value = |numbers: &[f64]| reward.of.value(numbers);
        let mut planned = known.plan(reward.of.wanted(&value), discount, &starts).map_err(refused)?;
        self.call(&mut planned, reward, known);
        let mut found = plan_to_json(&planned, (&reward.text, reward.of.is_known()), discount);
        if let Some(rows) = reward.learned {
            found["reward_rows"] = rows.into();
        }
        self.describe(&mut found, known);
        Ok(Answer::Plan(found, Box::new(planned.snapshot)))
    }

    /// Let the model that is handed out say what its numbers are.
    fn call(&self, planned: &mut Planned, reward: &Reward, known: &Known<'_>) {
        let snapshot: &mut Snapshot = &mut planned.snapshot;
        let dim = known.dynamics.after().dim();
        snapshot.inputs.names = Some(self.settings.input_names(Some(self.state_names()), dim));
        snapshot.reward_names = vec![reward.text.chars().take(REWARD_LETTERS).collect()];
        snapshot.critic.clone_from(&self.settings.name);
        (snapshot.generation, snapshot.offset, snapshot.time) = self.at;
        snapshot.transitions = self.learned.count() as u64;
    }

    fn rollout(&self, request: &RolloutRequest, reward: &Reward, known: &Known<'_>) -> Result<Answer, WireError> {
        let elements = known.dynamics.after().states();
        let dim = known.dynamics.after().dim();
        if request.states {
            let starts = self.starts(request.starts.as_ref(), known)?;
            let rows = |states: &[f64]| states.chunks_exact(dim).map(<[f64]>::to_vec).collect::<Vec<_>>();
            return Ok(Answer::Rollout(json!({"elements": rows(&elements), "begins": rows(&starts)})));
        }
        let shown = self.shown(request.show.as_deref(), known)?;
        let discount = self.discount(request.discount)?;
        let starts = self.starts(request.starts.as_ref(), known)?;
        let value = |numbers: &[f64]| reward.of.value(numbers);
        let wanted = reward.of.wanted(&value);
        let (model, from) = self.acting(&request.policy, known, (wanted, discount), (&elements, &starts))?;
        let motion = model.motion().map_err(refused)?;
        let functions = |state: &[f64]| shown.iter().map(|show| show.value(state)).collect::<Vec<f64>>();
        let steps = (request.steps, self.learned.ends());
        let led = known.dynamics.led(&motion, &from, &functions, steps).map_err(refused)?;
        let reach = self.learned.reach(&functions, shown.len(), request.steps).map_err(refused)?;
        let names: Vec<String> = shown.iter().map(|show| show.text.clone()).collect();
        let mut found = course_to_json(&led, reach.as_ref(), &names, starts.len() / dim);
        // Rows show what the other policies do. They do not show what a plan does.
        let max = if matches!(request.policy, PolicyAsked::Plan(_)) { UNSUPPORTED_MAX } else { 1.0 };
        found["value"] = match known.value(wanted, (discount, max), &motion, &from) {
            Ok(valued) => json!({
                "reward": reward.text,
                "discount": discount,
                "mean": valued.value,
                "error": valued.refused.is_empty().then_some(valued.error),
                "radius": valued.radius,
                "refused": valued.refused,
            }),
            Err(why @ WorldError::Unstable { .. }) => {
                json!({"reward": reward.text, "discount": discount, "mean": null, "refused": [why.to_string()]})
            }
            Err(why) => return Err(refused(why)),
        };
        self.describe(&mut found, known);
        Ok(Answer::Rollout(found))
    }

    /// What a policy does at the elements of C and in the states to begin in.
    fn acting(
        &self,
        asked: &PolicyAsked,
        known: &Known<'_>,
        (wanted, discount): (Wanted<'_>, f64),
        (elements, starts): (&[f64], &[f64]),
    ) -> Result<(Acting, Acting), WireError> {
        let both = |policy: &dyn Fn(&[f64]) -> Result<Acting, WorldError>| -> Result<_, WireError> {
            Ok((policy(elements).map_err(refused)?, policy(starts).map_err(refused)?))
        };
        match asked {
            PolicyAsked::Acted => both(&|states| known.acted(states)),
            PolicyAsked::Best => {
                let actor = self
                    .actor
                    .as_deref()
                    .ok_or_else(|| WireError::new(ErrorCode::NotReady, "the critic has no values of actions yet"))?;
                both(&|states| known.choosing(&|state| best(actor, state), states))
            }
            PolicyAsked::Plan(_) => {
                let decided = known.decided(wanted, discount, starts).map_err(refused)?;
                Ok((decided.model, decided.from))
            }
            PolicyAsked::Answered(asked, answers) => {
                self.check_answers(asked, answers, known)?;
                let space = self.learned.space();
                both(&|states| known.answered(&asked.values, &|i| answer(space, answers, i), states))
            }
        }
    }

    /// # Errors
    /// States of another dimension, or answers that are none of the critic's actions.
    fn check_answers(&self, asked: &Given, answers: &Answers, known: &Known<'_>) -> Result<(), WireError> {
        check_width("answered", asked, known)?;
        let space = self.learned.space();
        match answers {
            Answers::Probabilities(given) => {
                if given.width != space.choices() {
                    let message =
                        format!("there are {} actions, these are probabilities of {}", space.choices(), given.width);
                    return Err(WireError::of(ErrorCode::WrongShape, "probs", message));
                }
                let is_none =
                    |of: &[f64]| !((of.iter().sum::<f64>() - 1.0).abs() < 1e-6 && of.iter().all(|p| *p >= 0.0));
                match given.values.chunks_exact(given.width).position(is_none) {
                    Some(i) => {
                        let message = "must not be negative and sum to 1";
                        Err(WireError::of(ErrorCode::OutOfRange, "probs", message).at(i))
                    }
                    None => Ok(()),
                }
            }
            Answers::Actions(given) => {
                let faults = given.values.chunks_exact(given.width).map(|action| space.check(action)).enumerate();
                match faults.into_iter().find_map(|(i, fault)| fault.err().map(|why| (i, why))) {
                    Some((i, why)) => Err(WireError::of(ErrorCode::OutOfRange, "actions", why).at(i)),
                    None => Ok(()),
                }
            }
        }
    }

    /// The states to begin in.
    fn starts(&self, given: Option<&Given>, known: &Known<'_>) -> Result<Vec<f64>, WireError> {
        let dim = known.dynamics.after().dim();
        let (d, m) = (known.dynamics.before().len(), known.dynamics.after().len());
        let choices = self.learned.space().candidate_count();
        let most = (STARTS_BYTES / (size_of::<f64>() * choices * (d + m))).max(1);
        match given {
            Some(given) => {
                check_width("states", given, known)?;
                let states = given.values.len() / dim;
                if states > most {
                    let message =
                        format!("with {choices} actions a request has at most {most} states, this one has {states}");
                    return Err(WireError::of(ErrorCode::TooLarge, "states", message));
                }
                Ok(given.values.clone())
            }
            None => {
                let mut states = self.learned.starts();
                states.truncate(most * dim);
                Ok(states)
            }
        }
    }

    fn discount(&self, given: Option<f64>) -> Result<f64, WireError> {
        if self.learned.has_own_discounts() {
            let message = "rows have discounts of their own, and a model of the transition knows one: send rows without, or with the critic's";
            return Err(WireError::of(ErrorCode::OutOfRange, "discount", message));
        }
        match given.unwrap_or(self.settings.discount) {
            discount if discount < 1.0 => Ok(discount),
            discount => {
                let message =
                    format!("the critic's is {discount}, and a model of the transition needs one below 1: name one");
                Err(WireError::of(ErrorCode::OutOfRange, "discount", message))
            }
        }
    }

    /// The reward that is asked for: a name of one that rows have, an expression, or the name of a head, whose cumulant it is then. One that
    /// the model has not learned becomes one more of the kept rows.
    fn reward(&mut self) -> Result<Reward, WireError> {
        let own = self.settings.rewards[0];
        let Some(text) = self.asked.reward() else {
            let name = self.reward_names.get(own).map_or_else(|| format!("reward_{own}"), Clone::clone);
            return Ok(Reward::new(&name, Rewarded::Observed(own)));
        };
        let text = &text.to_owned();
        let count = self.learned.world().rewards();
        let named = self.reward_names.iter().position(|name| without_unit(name) == *text || name == text);
        let numbered = text.strip_prefix("reward_").and_then(|number| number.parse().ok());
        if let Some(number) = named.or(numbered).filter(|number| *number < count) {
            return Ok(Reward::new(text, Rewarded::Observed(number)));
        }
        if text == "reward" && count == 1 {
            return Ok(Reward::new(text, Rewarded::Observed(0)));
        }
        let names = self.state_names();
        let actions = match self.learned.space() {
            ActionSpace::Box { .. } => &self.settings.action_names[..],
            ActionSpace::Discrete(_) => &[],
        };
        let known = Names { states: &names, space: Some(self.learned.space()), actions };
        match Expression::parse(text, &known) {
            Ok(Some(expression)) => Ok(Reward::new(text, Rewarded::Known(expression))),
            Ok(None) | Err(_) if self.head.is_some() => self.summed(text),
            Ok(None) => {
                let message = format!(
                    "{text} names something that is neither a reward of the rows, nor of state and action, nor a head; state variables are {}",
                    names.join(", ")
                );
                Err(WireError::of(ErrorCode::OutOfRange, "reward", message))
            }
            Err(why) => Err(WireError::of(ErrorCode::OutOfRange, "reward", why)),
        }
    }

    /// What the head sums.
    fn summed(&mut self, text: &str) -> Result<Reward, WireError> {
        let wrong = |why: String| WireError::of(ErrorCode::OutOfRange, "reward", format!("head {text}: {why}"));
        let Some(Head { cumulant, .. }) = self.head.take() else { return Err(wrong("there is none".to_owned())) };
        let (states, rewards) = (self.learned.world().after().dim(), self.learned.world().rewards());
        cumulant.check(Columns { states, rewards, actions: self.learned.space().numbers() }).map_err(wrong)?;
        if let Cumulant::Reward(column) = cumulant {
            return Ok(Reward::new(text, Rewarded::Observed(column)));
        }
        if let Cumulant::Label { .. } = cumulant {
            return Err(wrong("its rows were labelled later, and labels are not kept beside actions".to_owned()));
        }
        if cumulant.is_of_state_and_action() {
            return Ok(Reward::new(text, Rewarded::Summed(cumulant, states)));
        }
        let number = self.learned.add_reward(&|of| cumulant.by(&of).unwrap_or(f64::NAN));
        Ok(Reward { learned: Some(self.learned.kept()), ..Reward::new(text, Rewarded::Observed(number)) })
    }

    /// What the state variables are called.
    fn state_names(&self) -> Vec<String> {
        let dim = self.learned.world().after().dim();
        let said = Some(self.state_names.clone()).filter(|names| names.len() == dim);
        let mut names = self.settings.input_names(said, dim);
        names.truncate(dim);
        names
    }

    /// The functions of the state that a course shows.
    fn shown(&self, texts: Option<&[String]>, known: &Known<'_>) -> Result<Vec<Expression>, WireError> {
        let names = self.state_names();
        let kinds = self.settings.kinds(known.dynamics.after().dim());
        let of = Names { states: &names, space: None, actions: &[] };
        let parse = |text: &str, called: &str| match Expression::parse(text, &of) {
            Ok(Some(found)) => Ok(found.called(called)),
            Ok(None) => {
                let message = format!("{text} names no state variable; there are {}", names.join(", "));
                Err(WireError::of(ErrorCode::OutOfRange, "show", message))
            }
            Err(why) => Err(WireError::of(ErrorCode::OutOfRange, "show", why)),
        };
        match texts {
            Some(texts) => {
                texts.iter().enumerate().map(|(i, text)| parse(text, text).map_err(|error| error.at(i))).collect()
            }
            None => {
                // Codes of categories have no mean.
                let is_number = |d: &usize| kinds.get(*d) != Some(&StateKind::Category);
                let numbers = (0..names.len()).filter(is_number).take(SHOWN);
                numbers.map(|d| parse(&format!("state[{d}]"), without_unit(&names[d]))).collect()
            }
        }
    }

    /// Say what an answer is made of.
    fn describe(&self, found: &mut Value, known: &Known<'_>) {
        let world = self.learned.world();
        let (generation, offset, _) = self.at;
        (found["generation"], found["offset"]) = (generation.into(), offset.into());
        found["model"] = json!({
            "transitions": self.learned.count(),
            "elements": known.dynamics.before().len(),
            "successors": known.dynamics.after().len(),
            "lost": world.lost(),
            "loss": self.learned.loss(),
        });
    }
}

/// Coordinates of the best action in a state.
fn best(actor: &Actor, state: &[f64]) -> Vec<f64> {
    let exploration = Exploration::Greedy;
    let question = Question { state, exploration, seed: 0, episode: 0, step: 0, candidates: None, unknown_above: None };
    let mut out = Vec::new();
    if let Ok(decided) = actor.act(&question) {
        // Its own actions are of its space.
        drop(actor.space().append(&decided.action, &mut out));
    }
    out
}

/// Coordinates and shares of what a policy has answered in the state of number `i`.
fn answer(space: &ActionSpace, answers: &Answers, i: usize) -> (Vec<f64>, Vec<f64>) {
    let given = answers.given();
    let of = &given.values[i * given.width..(i + 1) * given.width];
    match answers {
        Answers::Probabilities(_) => {
            let sum: f64 = of.iter().sum();
            (space.candidates(), of.iter().map(|p| p / sum).collect())
        }
        Answers::Actions(_) => {
            let mut out = Vec::new();
            // They have been checked.
            drop(space.append(of, &mut out));
            (out, vec![1.0])
        }
    }
}

fn check_width(field: &'static str, given: &Given, known: &Known<'_>) -> Result<(), WireError> {
    let dim = known.dynamics.after().dim();
    if given.width == dim { Ok(()) } else { Err(WireError::other_dimension(field, (dim, ""), given.width)) }
}

/// What a request is refused with.
fn refused(why: WorldError) -> WireError {
    match why {
        WorldError::Reward(_) => WireError::of(ErrorCode::OutOfRange, "reward", why.to_string()),
        WorldError::Unsupported { .. } | WorldError::Lost { .. } | WorldError::Empty | WorldError::Unstable { .. } => {
            WireError::new(ErrorCode::NotReady, why.to_string())
        }
        why => WireError::new(ErrorCode::Internal, why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_has_left_keeps_its_place_and_waits_no_more() {
        let of = UnderWay::default();
        [1, 2].iter().for_each(|&connection| of.begin(connection));
        of.leave(1);
        of.leave(7);
        assert_eq!([1, 2, 7].map(|connection| of.is_waiting(connection)), [false, true, false]);
        assert!(
            !of.has_room(1, 3) && of.has_room(3, 3) && !of.has_room(3, 2),
            "a question has its place until its turn"
        );
        of.end(1);
        assert!(of.has_room(3, 2) && of.has_room(1, 2) && !of.has_room(2, 3));
    }
}
