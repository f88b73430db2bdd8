//! Requests to the model of the transition, and what is found, as JSON.

use super::act::Given;
use super::evaluate::Answers;
use criticd_learner::world::{Error, Led, Planned, Reach};
use serde_json::{Value, json};

/// Steps that a course has at most.
pub const STEPS_MAX: usize = 1000;
/// Functions of the state that a course shows at most.
pub(super) const SHOWN_MAX: usize = 16;
/// States that a course or a plan begins in at most.
pub(super) const STARTS_MAX: usize = 1024;
/// States that a policy has answered in at most: those that a model is made of, and those to begin in.
pub(super) const ANSWERED_MAX: usize = STARTS_MAX + criticd_learner::world::SUCCESSORS_MAX;
/// Bytes of an expression.
pub(super) const EXPRESSION_MAX: usize = 1024;

/// A request to plan for a reward.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanRequest {
    /// Which critic; the first one if none is named.
    pub critic: Option<String>,
    /// An expression of state and action, or the name of a reward; the critic's own if left out.
    pub reward: Option<String>,
    /// From 0, below 1; the critic's own if left out.
    pub discount: Option<f64>,
    /// States in which the plan is valued; those in which episodes began if left out.
    pub starts: Option<Given>,
}

/// Who acts in a course.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PolicyAsked {
    /// The policy that acted.
    #[default]
    Acted,
    /// The best action by the critic's values.
    Best,
    /// The best action by a plan for this reward; for the critic's own if left out.
    Plan(Option<String>),
    /// One that has answered in some states (n, D): in any other it does as in the nearest.
    Answered(Given, Answers),
}

/// A request for the course of functions of the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutRequest {
    /// Which critic; the first one if none is named.
    pub critic: Option<String>,
    /// Who acts.
    pub policy: PolicyAsked,
    /// From 0, below 1, of the policy's value and of a plan; the critic's own if left out.
    pub discount: Option<f64>,
    /// States to begin in; those in which episodes began if left out.
    pub starts: Option<Given>,
    /// Steps, at least 1.
    pub steps: usize,
    /// State variables or expressions of them; the first ones if left out.
    pub show: Option<Vec<String>>,
    /// Whether only the states in which a policy is to answer are asked for.
    pub states: bool,
}

/// A plan, as `criticd plan --json` prints it and `plan` is answered, but for what it was made of.
pub fn plan_to_json(planned: &Planned, (reward, known): (&str, bool), discount: f64) -> Value {
    let Planned { plan, value, error, radius, unsupported, alike, doubts, .. } = planned;
    json!({
        "reward": reward,
        "known": known,
        "discount": discount,
        "value": value,
        "error": error,
        "bounds": [plan.bounds.0, plan.bounds.1],
        "sweeps": plan.sweeps,
        "settled": plan.settled(),
        "clipped": plan.clipped,
        "radius": radius,
        "unsupported": unsupported,
        "alike": alike,
        "warnings": doubts,
    })
}

/// A course of functions that are called so from the mean of `starts` states, as `criticd rollout --json` prints it and `rollout` is
/// answered, but for what it was made of.
pub fn course_to_json(led: &Led, reach: Option<&Reach>, names: &[String], starts: usize) -> Value {
    let steps = 0..led.course.len();
    let one = |(k, name): (usize, &String)| {
        let errors: Vec<Option<Error>> = steps.clone().map(|step| reach?.error(k, step)).collect();
        let of = |take: &dyn Fn(Error) -> f64| errors.iter().map(|error| error.map(take)).collect::<Vec<_>>();
        let (within, is_known) = reach.map_or((0, false), |reach| reach.steps(k));
        json!({
            "name": name,
            "mean": steps.clone().map(|step| led.course[step].means[k]).collect::<Vec<f64>>(),
            "within": of(&|error| error.quantile),
            "error": of(&|error| error.error),
            "spread": of(&|error| error.spread),
            "pairs": errors.iter().map(|error| error.map_or(0, |error| error.pairs)).collect::<Vec<usize>>(),
            "reach": within,
            "reach_known": is_known,
        })
    };
    json!({
        "steps": led.course.len(),
        "starts": starts,
        "variables": names.iter().enumerate().map(one).collect::<Vec<Value>>(),
        "alive": led.course.iter().map(|course| course.alive[0]).collect::<Vec<f64>>(),
        "unsupported": led.unsupported,
        "warnings": led.doubts,
    })
}
