//! Decisions for a context, learned from their costs: cost-regularised kernel regression (CrKR).
//!
//! One number of a decision is a head with discount 0 whose rows are weighted: a decision that cost c counts 1 / c, docs/mathematics.md
//! (H11). The prediction at a context is the policy's mean. The deviation of the prediction is the width of the exploration, so
//! exploration narrows where decisions of low cost are known, (H12).
//! \[KWOP12\]: J. Kober, A. Wilhelm, E. Oztop, J. Peters, *Reinforcement Learning to Adjust Parametrized Motor Primitives to New
//! Situations*, Autonomous Robots 33, 2012.

use crate::heads::{Cumulant, Head, Rate};
use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use crate::math::posterior::{Scale, SolveError};
use crate::model::Model;
use crate::random::{mix, normal};
use crate::settings::Settings;
use crate::snapshot::{Inputs, Snapshot};
use crate::transition::{MAGNITUDE_MAX, Rows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Recent reports that are kept with their features, from which a new dictionary element gets its part of the statistics.
const RECENT: usize = 1024;
/// Multiplications of a solution for each m^3, and of a row for each m^2, about: some thousand million of them take a second.
const SOLVE: u64 = 1;
const LEARN: u64 = 4;
/// Ridge before the evidence has chosen one.
pub const RIDGE: f64 = 2.0;
/// Most variables of a context, and most numbers of a decision.
pub const NUMBERS_MAX: usize = 256;
/// Longest name of a variable or of a number of a decision, bytes.
pub const NAME_MAX: usize = 256;

/// One number of a decision as the untrained policy draws it, whatever the context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// For people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its mean, in the unit of the decision.
    pub mean: f64,
    /// Its standard deviation, the same unit, positive: the scale in which decisions are learned.
    pub deviation: f64,
    /// Least value that is suggested, at most the mean; none for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Greatest value that is suggested, at least the mean; none for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

impl Output {
    /// Without a name and without limits.
    pub fn new(mean: f64, deviation: f64) -> Self {
        Self { mean, deviation, ..Self::default() }
    }

    /// The number that is `standard` deviations from the mean, or the nearest one within the limits.
    fn in_units(&self, standard: f64) -> f64 {
        let value = self.mean + standard * self.deviation;
        value.max(self.low.unwrap_or(f64::NEG_INFINITY)).min(self.high.unwrap_or(f64::INFINITY))
    }

    /// `standard`, or, where a limit lies before it, the distance of that limit from the mean.
    fn within_limits(&self, standard: f64) -> f64 {
        let distance = |limit: f64| (limit - self.mean) / self.deviation;
        standard.max(self.low.map_or(f64::NEG_INFINITY, distance)).min(self.high.map_or(f64::INFINITY, distance))
    }

    fn check(&self) -> Result<(), String> {
        let bounded = |value: f64| value.is_finite() && value.abs() <= MAGNITUDE_MAX;
        if self.name.len() > NAME_MAX {
            return Err(format!("name: has at most {NAME_MAX} bytes, this one has {}", self.name.len()));
        }
        if !bounded(self.mean) {
            return Err(format!("mean: lies within {MAGNITUDE_MAX:e} of 0, this one is {}", self.mean));
        }
        if !(bounded(self.deviation) && self.deviation > 0.0) {
            return Err(format!("deviation: must be positive and at most {MAGNITUDE_MAX:e}, is {}", self.deviation));
        }
        if let Some(low) = self.low.filter(|low| !(bounded(*low) && *low <= self.mean)) {
            return Err(format!("low: must be at most the mean, {}, is {low}", self.mean));
        }
        if let Some(high) = self.high.filter(|high| !(bounded(*high) && *high >= self.mean)) {
            return Err(format!("high: must be at least the mean, {}, is {high}", self.mean));
        }
        Ok(())
    }
}

/// Settings of an [`Advisor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdvisorSettings {
    /// Name of the advisor.
    pub name: String,
    /// Numbers of a decision, 1 to [`NUMBERS_MAX`].
    pub outputs: Vec<Output>,
    /// Distance in each variable of a context over which decisions change, in its unit, positive (D,); D is 1 to [`NUMBERS_MAX`].
    pub lengthscales: Vec<f64>,
    /// Names of the variables of a context, for people: one for each, or none.
    pub context_names: Vec<String>,
    /// lambda: weight of the untrained policy beside a decision of cost 1, 1e-9 to 1e9; none to let the evidence of the decisions choose it,
    /// of each number of a decision, from [`RIDGE`] on.
    pub ridge: Option<f64>,
    /// Cost at or below which all decisions count alike, 1e-9 to 1e9.
    pub cost_floor: f64,
    /// Largest dictionary, 1 to 2000.
    pub dictionary_max: usize,
    /// Decisions that may wait for their cost, 1 to 1 000 000; the oldest is given up for a further one.
    pub waiting_max: usize,
    /// Seed of exploration.
    pub seed: u64,
}

impl Default for AdvisorSettings {
    fn default() -> Self {
        Self {
            name: "default".into(),
            outputs: Vec::new(),
            lengthscales: Vec::new(),
            context_names: Vec::new(),
            ridge: None,
            cost_floor: 0.02,
            dictionary_max: 300,
            waiting_max: 1024,
            seed: 0,
        }
    }
}

impl AdvisorSettings {
    /// Whether an advisor can work with them.
    ///
    /// # Errors
    /// The first setting out of range.
    pub fn check(&self) -> Result<(), SuggestError> {
        let fault = |name, why: String| Err(SuggestError::Setting(name, why));
        let within = |value: f64, low: f64, high: f64| (low..=high).contains(&value);
        let count = |values: usize| (1..=NUMBERS_MAX).contains(&values);
        if !count(self.outputs.len()) {
            return fault("outputs", format!("must be 1 to {NUMBERS_MAX} numbers, are {}", self.outputs.len()));
        }
        for (i, output) in self.outputs.iter().enumerate() {
            if let Err(why) = output.check() {
                return fault("outputs", format!("must each be right, but [{i}].{why}"));
            }
        }
        if !count(self.lengthscales.len()) || !self.lengthscales.iter().all(|&length| within(length, 1e-9, 1e9)) {
            let why =
                format!("must be 1 to {NUMBERS_MAX} numbers from 1e-9 to 1e9, one for each variable of a context");
            return fault("lengthscales", why);
        }
        if !self.context_names.is_empty() && self.context_names.len() != self.lengthscales.len() {
            return fault("context_names", format!("must be as many as lengthscales, {}", self.lengthscales.len()));
        }
        if self.context_names.iter().any(|name| name.len() > NAME_MAX) {
            return fault("context_names", format!("must have at most {NAME_MAX} bytes each"));
        }
        for (name, value) in [("ridge", self.first_ridge()), ("cost_floor", self.cost_floor)] {
            if !within(value, 1e-9, 1e9) {
                return fault(name, format!("must be from 1e-9 to 1e9, is {value}"));
            }
        }
        for (name, value, most) in
            [("dictionary_max", self.dictionary_max, 2_000), ("waiting_max", self.waiting_max, 1_000_000)]
        {
            if !(1..=most).contains(&value) {
                return fault(name, format!("must be from 1 to {most}, is {value}"));
            }
        }
        Ok(())
    }

    /// The ridge with which an advisor begins.
    fn first_ridge(&self) -> f64 {
        self.ridge.unwrap_or(RIDGE)
    }

    /// Whether an advisor with these settings can go on with what one with `other` has learned: names, seed and the number of
    /// decisions that may wait do not matter. One that has begun with a ridge keeps it where these settings have none.
    pub fn goes_on_from(&self, other: &Self) -> bool {
        let without_names = |outputs: &[Output]| -> Vec<Output> {
            outputs.iter().map(|output| Output { name: String::new(), ..output.clone() }).collect()
        };
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        without_names(&self.outputs) == without_names(&other.outputs)
            && bits(&self.lengthscales) == bits(&other.lengthscales)
            && (self.ridge.is_none() || self.ridge == other.ridge)
            && (self.cost_floor, self.dictionary_max) == (other.cost_floor, other.dictionary_max)
    }

    /// Settings of the model that learns decisions: each of their numbers is a head with discount 0.
    pub fn of_model(&self) -> Settings {
        let head = |number: usize| Head {
            weight: Some(0),
            noise_variance: self.ridge,
            signal: Some(1.0),
            ..Head::new(number.to_string(), Cumulant::Action(number), Rate::Discount(0.0))
        };
        Settings {
            discount: 0.0,
            heads: (0..self.outputs.len()).map(head).collect(),
            estimate_scale: false,
            tolerance: 1e-5,
            dictionary_max: self.dictionary_max,
            backfill_rows: RECENT,
            refresh_rows: RECENT,
            ..Settings::paper()
        }
    }

    /// Bytes of the decisions that wait, at the most.
    pub fn waiting_bytes_max(&self) -> usize {
        self.waiting_max * waiting_bytes(self.lengthscales.len(), self.outputs.len())
    }
}

/// Bytes of a decision that waits.
fn waiting_bytes(context: usize, outputs: usize) -> usize {
    // Number, two vectors, and its share of a tree whose nodes are at least half full.
    2 * (size_of::<u64>() + 2 * size_of::<Vec<f64>>()) + size_of::<f64>() * (context + outputs) + 32
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// Number of the decision, for [`Advisor::report`].
    pub id: u64,
    /// Decision to take (H,): the mean with exploration.
    pub decision: Vec<f64>,
    /// Mean of the prediction, without exploration (H,), within the limits.
    pub mean: Vec<f64>,
    /// Standard deviation of the exploration (H,), of a normal distribution that the limits cut.
    pub deviation: Vec<f64>,
}

/// Why there is no suggestion, or a report was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SuggestError {
    /// A setting out of range: its name and the reason.
    #[error("{0}: {1}")]
    Setting(&'static str, String),
    /// A context has another number of entries than there are lengthscales, or one of them is not finite or beyond
    /// [`MAGNITUDE_MAX`].
    #[error("context: needs {wanted} finite numbers within {MAGNITUDE_MAX:e} of 0, this one has {given} numbers")]
    Context {
        /// Numbers given.
        given: usize,
        /// Numbers wanted.
        wanted: usize,
    },
    /// No decision of this number waits for its cost.
    #[error("decision_id: no decision {0} waits for its cost")]
    Unknown(u64),
    /// A cost is not a finite number from 0 on.
    #[error("cost: must be a finite number, at least 0, is {0}")]
    Cost(f64),
    /// The system could not be solved.
    #[error("{0}")]
    Solve(SolveError),
}

/// Suggests decisions and learns from their costs. Written and read back it goes on bit for bit as it would have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Advisor {
    settings: AdvisorSettings,
    /// Contexts as states, decisions as actions, in units of their deviation, weights as rewards.
    model: Model,
    learned: u64,
    next_id: u64,
    /// Contexts and decisions, in units of their deviation, that wait for their cost.
    waiting: BTreeMap<u64, (Vec<f64>, Vec<f64>)>,
    /// Solution of the present model; none until it is computed.
    #[serde(skip)]
    snapshot: Option<Snapshot>,
}

impl Advisor {
    /// An advisor that has learned nothing.
    ///
    /// # Errors
    /// The first setting out of range.
    pub fn new(settings: AdvisorSettings) -> Result<Self, SuggestError> {
        settings.check()?;
        let relevance = settings.lengthscales.iter().map(|length| length.powi(-2)).collect();
        let hyperparameters = Hyperparameters {
            kernel: Kernel::gaussian(1.0, 0.0, Metric::Ard(relevance)),
            noise: NoiseModel::Correlated,
            noise_variance: settings.first_ridge(),
        };
        let inputs = Inputs::identity(settings.lengthscales.len());
        let model = Model::new(settings.of_model(), inputs, &hyperparameters);
        Ok(Self { settings, model, learned: 0, next_id: 0, waiting: BTreeMap::new(), snapshot: None })
    }

    /// Its settings.
    pub fn settings(&self) -> &AdvisorSettings {
        &self.settings
    }

    /// Take over settings with which it can go on: [`AdvisorSettings::goes_on_from`].
    ///
    /// # Panics
    /// If it cannot.
    pub fn set_settings(&mut self, settings: AdvisorSettings) {
        assert!(settings.goes_on_from(&self.settings), "an advisor goes on with what it has learned");
        self.settings = AdvisorSettings { ridge: self.settings.ridge, ..settings };
        self.give_up_oldest();
    }

    /// Costs learned from.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// Decisions so far, the number of the next one.
    pub fn decisions(&self) -> u64 {
        self.next_id
    }

    /// Decisions that wait for their cost.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether decision `id` waits for its cost.
    pub fn waits_for(&self, id: u64) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Contexts in the dictionary.
    pub fn elements(&self) -> usize {
        self.model.dictionary().elements_len()
    }

    /// Multiplications that a decision takes, about. `solved`: whether no cost has been learned since the decision before.
    pub fn work_of_suggest(&self, solved: bool) -> u64 {
        let (m, outputs) = (self.elements() as u64, self.settings.outputs.len() as u64);
        m * m * (outputs + if solved { 0 } else { SOLVE * m })
    }

    /// Multiplications that learning a cost takes, about.
    pub fn work_of_report(&self) -> u64 {
        let (m, outputs) = (self.elements() as u64, self.settings.outputs.len() as u64);
        m * (LEARN * m + outputs)
    }

    /// Whether the next decision finds the system solved.
    pub fn is_solved(&self) -> bool {
        self.learned == 0 || self.snapshot.is_some()
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let decision = waiting_bytes(self.settings.lengthscales.len(), self.settings.outputs.len());
        self.model.bytes() + self.waiting.len() * decision
    }

    /// Whether its parts fit each other. An advisor that was read from a file is asked this: with parts that do not fit it would
    /// panic at some later report.
    pub fn is_consistent(&self) -> bool {
        let (dim, outputs) = (self.settings.lengthscales.len(), self.settings.outputs.len());
        let fits = |(context, decision): &(Vec<f64>, Vec<f64>)| (context.len(), decision.len()) == (dim, outputs);
        self.settings.check().is_ok()
            && self.model.is_consistent()
            && self.model.inputs().dim() == dim
            && self.model.settings().heads.len() == outputs
            && self.waiting.values().all(fits)
            && self.waiting.keys().all(|&id| id < self.next_id)
    }

    /// Decide for a context (D,): the mean, and exploration drawn from N(0, Var V), docs/mathematics.md (H12); beyond a limit, the limit.
    /// The decision waits for its cost. The draw is a function of seed, number of the decision and number of the output.
    ///
    /// # Errors
    /// A context of another length or with numbers that are not finite, or a system that could not be solved.
    pub fn suggest(&mut self, context: &[f64]) -> Result<Suggestion, SuggestError> {
        let (means, variances) = self.standardised(context)?;
        let id = self.next_id;
        self.next_id += 1;
        let outputs = &self.settings.outputs;
        let draw = |(k, (mean, variance)): (usize, (&f64, &f64))| {
            mean + variance.sqrt() * normal(mix(&[self.settings.seed, id, k as u64]))
        };
        let drawn: Vec<f64> = means.iter().zip(&variances).enumerate().map(draw).collect();
        let in_units =
            |values: &[f64]| values.iter().zip(outputs).map(|(&value, output)| output.in_units(value)).collect();
        let deviation = variances.iter().zip(outputs).map(|(v, output)| v.sqrt() * output.deviation).collect();
        let suggestion = Suggestion { id, decision: in_units(&drawn), mean: in_units(&means), deviation };
        let chosen = drawn.iter().zip(outputs).map(|(&value, output)| output.within_limits(value)).collect();
        self.waiting.insert(id, (context.to_vec(), chosen));
        self.give_up_oldest();
        Ok(suggestion)
    }

    /// No more decisions wait than may.
    fn give_up_oldest(&mut self) {
        while self.waiting.len() > self.settings.waiting_max {
            self.waiting.pop_first();
        }
    }

    /// Learn the cost of a decision.
    ///
    /// # Errors
    /// A decision that does not wait, or a cost that is negative or not finite; the decision then goes on waiting.
    pub fn report(&mut self, id: u64, cost: f64) -> Result<(), SuggestError> {
        check_cost(cost)?;
        let (context, decision) = self.waiting.remove(&id).ok_or(SuggestError::Unknown(id))?;
        self.learn(&context, &decision, 1.0 / cost.max(self.settings.cost_floor));
        Ok(())
    }

    /// Learn a decision (H,) that was taken elsewhere, in units of the deviation from the untrained mean, with this weight.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn learn(&mut self, context: &[f64], decision: &[f64], weight: f64) {
        assert_eq!((context.len(), decision.len()), (self.settings.lengthscales.len(), self.settings.outputs.len()));
        let rows = Rows {
            states: context.to_vec(),
            next_states: context.to_vec(),
            rewards: vec![weight],
            discounts: vec![f64::NAN],
            ratios: vec![1.0],
            streams: vec![0],
            terminated: vec![true],
            truncated: vec![false],
            starts_chain: vec![true],
            actions_per_row: decision.len(),
            actions: decision.to_vec(),
            ..Rows::new(context.len(), 1)
        };
        self.model.learn(&rows, 0..1, self.learned);
        self.learned += 1;
        self.snapshot = None;
        let chooses = self.settings.ridge.is_none();
        if chooses && self.model.heads().is_some_and(|heads| heads.tuning_is_due(self.learned)) {
            // Without a solution it stays.
            let _ = self.model.tune_heads();
        }
    }

    /// lambda (H,) of each number of a decision: as set, or the one that the evidence has chosen last. It is chosen again
    /// with twice as many costs, docs/mathematics.md (H11).
    pub fn ridges(&self) -> Vec<f64> {
        let scales = self.model.heads().map(|heads| heads.scales()).unwrap_or_default();
        scales.iter().map(Scale::noise_variance).collect()
    }

    /// Mean and standard deviation of the prediction at a context (H,), in units of the untrained deviation, the ridge counted
    /// as noise, docs/mathematics.md (H11).
    ///
    /// # Errors
    /// As [`Advisor::suggest`].
    pub fn predict(&mut self, context: &[f64]) -> Result<(Vec<f64>, Vec<f64>), SuggestError> {
        let (means, variances) = self.standardised(context)?;
        let ridges = self.ridges();
        Ok((means, variances.iter().zip(ridges).map(|(variance, ridge)| (variance + ridge).sqrt()).collect()))
    }

    /// Whether it can decide for a context.
    ///
    /// # Errors
    /// A context of another length, or with numbers that are not finite or beyond [`MAGNITUDE_MAX`].
    pub fn check_context(&self, context: &[f64]) -> Result<(), SuggestError> {
        let wanted = self.settings.lengthscales.len();
        if context.len() == wanted && context.iter().all(|v| v.abs() <= MAGNITUDE_MAX) {
            return Ok(());
        }
        Err(SuggestError::Context { given: context.len(), wanted })
    }

    /// Mean and variance of V (H,), in units of the untrained deviation.
    fn standardised(&mut self, context: &[f64]) -> Result<(Vec<f64>, Vec<f64>), SuggestError> {
        self.check_context(context)?;
        let (wanted, outputs) = (self.settings.lengthscales.len(), self.settings.outputs.len());
        if self.learned == 0 {
            return Ok((vec![0.0; outputs], vec![1.0; outputs]));
        }
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => self.model.snapshot(true).map_err(SuggestError::Solve)?,
        };
        let all: Vec<usize> = (0..outputs).collect();
        let found = snapshot.evaluate_heads(context, &all, true);
        self.snapshot = Some(snapshot);
        let found = found.map_err(|_| SuggestError::Context { given: context.len(), wanted })?;
        let variance = found.variance.expect("made with variances");
        Ok((found.mean.as_slice().to_vec(), variance.as_slice().to_vec()))
    }
}

/// Whether a cost can be learned.
///
/// # Errors
/// A cost that is negative or not finite.
pub fn check_cost(cost: f64) -> Result<(), SuggestError> {
    if cost.is_finite() && cost >= 0.0 { Ok(()) } else { Err(SuggestError::Cost(cost)) }
}
