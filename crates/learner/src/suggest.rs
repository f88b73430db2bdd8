//! Decisions for a context, learned from their costs: cost-regularised kernel regression (CrKR).
//!
//! One number of a decision is a head with discount 0 whose rows are weighted: a decision that cost c counts 1 / c, docs/mathematics.md
//! (H11). The prediction at a context is the policy's mean. The deviation of the prediction is the width of the exploration, so
//! exploration narrows where decisions of low cost are known, (H12).
//! \[KWOP12\]: J. Kober, A. Wilhelm, E. Oztop, J. Peters, *Reinforcement Learning to Adjust Parametrized Motor Primitives to New
//! Situations*, Autonomous Robots 33, 2012.

use crate::heads::{Cumulant, Head, Rate};
use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use crate::math::posterior::SolveError;
use crate::model::Model;
use crate::random::{mix, normal};
use crate::settings::Settings;
use crate::snapshot::{Inputs, Snapshot};
use crate::transition::Rows;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One number of a decision as the untrained policy draws it, whatever the context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Its mean, in the unit of the decision.
    pub mean: f64,
    /// Its standard deviation, the same unit, positive: the scale in which decisions are learned.
    pub deviation: f64,
}

/// Settings of an [`Advisor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdvisorSettings {
    /// Numbers of a decision, at least one.
    pub outputs: Vec<Output>,
    /// Distance in each variable of a context over which decisions change, in its unit, positive (D,).
    pub lengthscales: Vec<f64>,
    /// lambda: weight of the untrained policy beside a decision of cost 1, positive.
    pub ridge: f64,
    /// Cost at or below which all decisions count alike, positive.
    pub cost_floor: f64,
    /// Largest dictionary.
    pub dictionary_max: usize,
    /// Decisions that may wait for their cost; the oldest is given up for a further one.
    pub waiting_max: usize,
    /// Seed of exploration.
    pub seed: u64,
}

impl Default for AdvisorSettings {
    fn default() -> Self {
        Self {
            outputs: Vec::new(),
            lengthscales: Vec::new(),
            ridge: 2.0,
            cost_floor: 0.02,
            dictionary_max: 300,
            waiting_max: 1024,
            seed: 0,
        }
    }
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// Number of the decision, for [`Advisor::report`].
    pub id: u64,
    /// Decision to take (H,): the mean with exploration.
    pub decision: Vec<f64>,
    /// Mean of the prediction, without exploration (H,).
    pub mean: Vec<f64>,
    /// Standard deviation of the exploration (H,).
    pub deviation: Vec<f64>,
}

/// Why there is no suggestion, or a report was refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SuggestError {
    /// A setting out of range: its name and the reason.
    Setting(&'static str, String),
    /// A context is not as many finite numbers as there are lengthscales.
    Context {
        /// Numbers given.
        given: usize,
        /// Numbers wanted.
        wanted: usize,
    },
    /// No decision of this number waits for its cost.
    Unknown(u64),
    /// A cost is not a finite number from 0 on.
    Cost(f64),
    /// The system could not be solved.
    Solve(SolveError),
}

impl fmt::Display for SuggestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(name, why) => write!(f, "{name}: {why}"),
            Self::Context { given, wanted } => {
                write!(f, "context: needs {wanted} finite numbers, this one has {given}")
            }
            Self::Unknown(id) => write!(f, "decision_id: no decision {id} waits for its cost"),
            Self::Cost(cost) => write!(f, "cost: must be a finite number, at least 0, is {cost}"),
            Self::Solve(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SuggestError {}

impl From<SolveError> for SuggestError {
    fn from(e: SolveError) -> Self {
        Self::Solve(e)
    }
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
        check(&settings)?;
        let (dim, outputs) = (settings.lengthscales.len(), settings.outputs.len());
        let relevance = settings.lengthscales.iter().map(|length| length.powi(-2)).collect();
        let hyperparameters = Hyperparameters {
            kernel: Kernel::gaussian(1.0, 0.0, Metric::Ard(relevance)),
            noise: NoiseModel::Correlated,
            noise_variance: settings.ridge,
        };
        let head = |number: usize| Head {
            weight: Some(0),
            noise_variance: Some(settings.ridge),
            signal: Some(1.0),
            ..Head::new(number.to_string(), Cumulant::Action(number), Rate::Discount(0.0))
        };
        let of_model = Settings {
            discount: 0.0,
            heads: (0..outputs).map(head).collect(),
            estimate_scale: false,
            tolerance: 1e-5,
            dictionary_max: settings.dictionary_max,
            backfill_rows: 65_536,
            refresh_rows: 65_536,
            ..Settings::paper()
        };
        let model = Model::new(of_model, Inputs::identity(dim), &hyperparameters);
        Ok(Self { settings, model, learned: 0, next_id: 0, waiting: BTreeMap::new(), snapshot: None })
    }

    /// Its settings.
    pub fn settings(&self) -> &AdvisorSettings {
        &self.settings
    }

    /// Costs learned from.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// Decide for a context (D,): the mean, and exploration drawn from N(0, Var V), docs/mathematics.md (H12). The decision waits for
    /// its cost.
    ///
    /// # Errors
    /// A context of another length or with numbers that are not finite.
    pub fn suggest(&mut self, context: &[f64]) -> Result<Suggestion, SuggestError> {
        let (means, variances) = self.standardised(context)?;
        let id = self.next_id;
        self.next_id += 1;
        let draw = |(k, (mean, variance)): (usize, (&f64, &f64))| {
            mean + variance.sqrt() * normal(mix(&[self.settings.seed, id, k as u64]))
        };
        let chosen: Vec<f64> = means.iter().zip(&variances).enumerate().map(draw).collect();
        let outputs = &self.settings.outputs;
        let decision = in_units(outputs, &chosen);
        self.waiting.insert(id, (context.to_vec(), chosen));
        if self.waiting.len() > self.settings.waiting_max {
            self.waiting.pop_first();
        }
        let deviation = variances.iter().zip(outputs).map(|(v, output)| v.sqrt() * output.deviation).collect();
        Ok(Suggestion { id, decision, mean: in_units(outputs, &means), deviation })
    }

    /// Learn the cost of a decision.
    ///
    /// # Errors
    /// A decision that does not wait, or a cost that is negative or not finite; the decision then goes on waiting.
    pub fn report(&mut self, id: u64, cost: f64) -> Result<(), SuggestError> {
        if !(cost.is_finite() && cost >= 0.0) {
            return Err(SuggestError::Cost(cost));
        }
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
    }

    /// Mean and standard deviation of the prediction at a context (H,), in units of the untrained deviation, the ridge counted
    /// as noise, docs/mathematics.md (H11).
    ///
    /// # Errors
    /// As [`Advisor::suggest`].
    pub fn predict(&mut self, context: &[f64]) -> Result<(Vec<f64>, Vec<f64>), SuggestError> {
        let (means, variances) = self.standardised(context)?;
        Ok((means, variances.iter().map(|variance| (variance + self.settings.ridge).sqrt()).collect()))
    }

    /// Mean and variance of V (H,), in units of the untrained deviation.
    fn standardised(&mut self, context: &[f64]) -> Result<(Vec<f64>, Vec<f64>), SuggestError> {
        let (wanted, outputs) = (self.settings.lengthscales.len(), self.settings.outputs.len());
        if context.len() != wanted || !context.iter().all(|v| v.is_finite()) {
            return Err(SuggestError::Context { given: context.len(), wanted });
        }
        if self.learned == 0 {
            return Ok((vec![0.0; outputs], vec![1.0; outputs]));
        }
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => self.model.snapshot(true)?,
        };
        let all: Vec<usize> = (0..outputs).collect();
        let found = snapshot.evaluate_heads(context, &all, true);
        self.snapshot = Some(snapshot);
        let found = found.map_err(|_| SuggestError::Context { given: context.len(), wanted })?;
        let variance = found.variance.expect("made with variances");
        Ok((found.mean.as_slice().to_vec(), variance.as_slice().to_vec()))
    }
}

/// A decision in the unit of each output.
fn in_units(outputs: &[Output], decision: &[f64]) -> Vec<f64> {
    decision.iter().zip(outputs).map(|(value, output)| output.mean + value * output.deviation).collect()
}

fn check(settings: &AdvisorSettings) -> Result<(), SuggestError> {
    let fault = |name, why: &str| Err(SuggestError::Setting(name, why.to_owned()));
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if settings.outputs.is_empty() {
        return fault("outputs", "needs at least one");
    }
    if !settings.outputs.iter().all(|output| output.mean.is_finite() && positive(output.deviation)) {
        return fault("outputs", "each needs a finite mean and a positive deviation");
    }
    if settings.lengthscales.is_empty() || !settings.lengthscales.iter().all(|&length| positive(length)) {
        return fault("lengthscales", "needs a positive number for each variable of a context");
    }
    for (name, value) in [("ridge", settings.ridge), ("cost_floor", settings.cost_floor)] {
        if !positive(value) {
            return fault(name, "must be positive");
        }
    }
    if settings.dictionary_max == 0 || settings.waiting_max == 0 {
        return fault("dictionary_max, waiting_max", "must be at least 1");
    }
    Ok(())
}
