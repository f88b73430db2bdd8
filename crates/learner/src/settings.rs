//! What one critic learns and how: plain data that is fixed while it runs.

use crate::action::{ActionValue, Successor};
use crate::heads::Head;
use crate::math::columns::GivenFunction;
use crate::math::embedding::StateKind;
use crate::math::kernel::{Hyperparameters, Kernel, NoiseModel, Profile};
use crate::mean::Mean;
use crate::transition::{Rows, state_name};
use crate::warning::WarningSettings;
use crate::watch::DriftSensitivity;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Which covariance a critic's model selection uses \[JS09, section 5.2\].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum KernelKind {
    /// One lengthscale for all state variables.
    Isotropic,
    /// One relevance per state variable; with selection by held-out returns also a few directions, where they predict better.
    #[default]
    Ard,
    /// Relevances and this many directions, or the number that the evidence asks for.
    Factor(Option<usize>),
    /// Whichever of these has the most evidence, state variables that do not matter removed.
    Auto,
}

named! {
    /// Which evidence model selection goes by.
    #[derive(Default, Serialize, Deserialize)]
    pub enum SelectBy {
        /// The exact one on [`Settings::evidence_rows`] rows; where there are more, the bound of all rows has the last word.
        #[default]
        Auto = "auto",
        /// The exact one alone.
        Exact = "exact",
        /// The variational bound of all rows, already where structures are compared.
        Sparse = "sparse",
    }
}

/// How far returns are followed before the value of a successor takes over.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub enum Lambda {
    /// [`LAMBDA_START`] until the first refit, then what model selection chooses.
    #[default]
    Auto,
    /// This one, in \[0, 1\]: 0 looks one transition ahead, 1 to the end of the chain.
    Fixed(f64),
}

impl Lambda {
    /// The one that is asked for; none if model selection is to choose.
    pub(super) fn fixed(self) -> Option<f64> {
        match self {
            Self::Auto => None,
            Self::Fixed(lambda) => Some(lambda),
        }
    }
}

/// Rows, and rows for each feature, that a model may replace another with.
const OWN_ROWS: u64 = 1000;
const OWN_ROWS_PER_FEATURE: u64 = 4;

/// Rows that all rows of former policies together count as, at most, when another policy begins to act.
pub const POLICY_ROWS: f64 = 512.0;

/// lambda of a model that nothing has been selected for yet.
pub const LAMBDA_START: f64 = 0.8;

/// What model selection goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SelectionKind {
    /// Held-out lambda-returns: kernel, lambda and ridge together.
    #[default]
    Returns,
    /// The evidence alone, with lambda = 1 unless one is given: the method of \[JS09\].
    Evidence,
}

named! {
    /// Whose variance of V is published: docs/mathematics.md (V2), (V4), (V5).
    #[derive(Default, Serialize, Deserialize)]
    pub enum VarianceKind {
        /// From the TD errors of single rows: right for any noise, however chains are cut, as long as the state is all that matters.
        #[default]
        Rows = "rows",
        /// As the model states it: the noise of the returns within one chain is independent.
        Model = "model",
        /// Chain-clustered sandwich: returns of one chain share their noise.
        Clustered = "clustered",
    }
}

/// What a critic does when another policy begins to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnNewPolicy {
    /// Keeps kernel, dictionary and noise, and forgets all rows.
    Restart,
    /// Lets the rows so far count less, by [`Settings::policy_discount`].
    #[default]
    Discount,
    /// Keeps the model under its policy's name, and goes on with the new policy's if it has one; else as `Restart`.
    Keep,
}

named! {
    /// Whether values have explicit linear columns beside the kernel ([`crate::math::columns`]).
    #[derive(Default, Serialize, Deserialize)]
    pub enum LinearColumns {
        /// Held-out returns compare kernels with them and without; action values that improve a policy have none, since the largest of
        /// several extrapolated lines is no estimate, and values about a mean function, which is what they are where no row has been.
        #[default]
        Auto = "auto",
        /// No model that a selection makes has any.
        Never = "never",
        /// Every model that a selection by held-out returns makes has them.
        Always = "always",
    }
}

impl LinearColumns {
    /// Which are compared: without, with. Beside what `suffices` there are none unless asked for.
    pub fn compared(self, suffices: bool) -> &'static [bool] {
        match self {
            Self::Always => &[true],
            Self::Auto if !suffices => &[false, true],
            Self::Auto | Self::Never => &[false],
        }
    }
}

named! {
    /// A rule that chooses the elements of a dictionary.
    #[derive(Serialize, Deserialize)]
    pub enum DictionaryBy {
        /// Pivoted incomplete Cholesky: the state that is explained least.
        Icd = "icd",
        /// Half by ICD, half by orthogonal least squares on the returns of all heads.
        Returns = "returns",
        /// OMP-TD.
        OmpTd = "omp-td",
        /// OMP-BRM.
        OmpBrm = "omp-brm",
    }
}

/// What settings say of a state variable: "real", "periodic:P", "category", or "periodic" alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum KindSetting {
    /// What it is.
    Known(StateKind),
    /// That it comes back to the same after a period, which the rows are to tell.
    Periodic,
}

impl KindSetting {
    /// What it is as long as no row has told its period.
    pub fn kind(self) -> StateKind {
        match self {
            Self::Known(kind) => kind,
            Self::Periodic => StateKind::Real,
        }
    }

    /// Of variables whose kinds are known.
    pub fn known(kinds: &[StateKind]) -> Vec<Self> {
        kinds.iter().copied().map(Self::Known).collect()
    }
}

impl fmt::Display for KindSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(kind) => write!(f, "{kind}"),
            Self::Periodic => write!(f, "periodic"),
        }
    }
}

impl FromStr for KindSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "periodic" {
            return Ok(Self::Periodic);
        }
        text.parse()
            .map(Self::Known)
            .map_err(|what: String| format!("{what}; \"periodic\" alone has the period learned"))
    }
}

stored_as_text!(KindSetting);

/// [`Settings::state_kinds`] are for states of another dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindsMismatch {
    /// State variables that have a kind.
    pub kinds: usize,
    /// State dimension D.
    pub dim: usize,
}

/// What one critic learns and how. Plain data; `config` fills it in and checks it. What a file from before a setting does not
/// say was as the paper has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default = "Settings::paper")]
pub struct Settings {
    /// Name of the critic, 1..=64 bytes of `[A-Za-z0-9_-]`.
    pub name: String,
    /// Discount in [0, 1] of rows that carry none.
    pub discount: f64,
    /// Reward columns that it learns (one value function each, one kernel for all), distinct, at least one.
    pub rewards: Vec<usize>,
    /// Covariance.
    pub kernel: KernelKind,
    /// How covariance falls with distance; with selection by held-out returns Matern may give way to the Gaussian.
    pub profile: Profile,
    /// Whether values have linear columns beside the kernel.
    pub linear_columns: LinearColumns,
    /// What is learned of actions, whose coordinates are then the last ones of each state; none for values of states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_value: Option<ActionValue>,
    /// Whether rows are observations of V that count as often as their ratios say: regression alone, in which nothing follows a row.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// Whether a critic of action values learns where actions lead, too ([`crate::world`]).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub world: bool,
    /// Names of the discrete actions, or of the numbers of an action, one for each; empty where they have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub action_names: Vec<String>,
    /// Rows between two improvements, at least 1, with [`Successor::Improve`].
    pub improve_rows: u64,
    /// Prior mean of Q, reward unit: Q of inputs without rows nearby. Above what rewards allow it is optimism, which explores.
    #[serde(skip_serializing_if = "is_zero")]
    pub prior_mean: f64,
    /// What values are of states without rows nearby, and are learned about; none for 0. Of values of states, of one reward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Mean>,
    /// Whether the rewards are about a mean already. Never in the settings of a critic.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub about_mean: bool,
    /// Whether values are learned about a level of their own (`level.rs`), and have no deviation while rewards say nothing of
    /// a scale. No option: a file from before says no, everything since yes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub centred: bool,
    /// What each state variable is (D,); empty if all are real. Of another length than states are, they cannot be used: the
    /// first model then takes all for real, and refits fail and say why ([`Settings::check_dim`]). A refit learns the periods that are
    /// left open, and the kernel that it selects has them.
    pub state_kinds: Vec<KindSetting>,
    /// Noise model.
    pub noise: NoiseModel,
    /// Published variance.
    pub variance: VarianceKind,
    /// How far returns are followed. White noise has no use for it.
    pub lambda: Lambda,
    /// Largest importance ratio, positive: what `target_prob / behavior_prob` of a row is clipped at; none for no limit.
    #[serde(with = "limit")]
    pub rho_max: Option<f64>,
    /// Half-life in rows, positive: a row of that age, in rows of all streams, counts half. None where nothing is
    /// forgotten.
    #[serde(with = "limit")]
    pub forgetting: Option<f64>,
    /// What becomes of what was learned when another policy begins to act.
    pub on_new_policy: OnNewPolicy,
    /// With [`OnNewPolicy::Discount`]: how often a row counts that counted once before, above 0 and at most 1; none lets all of them
    /// together count as [`POLICY_ROWS`] at most, so that it does not matter how often policies change.
    pub policy_discount: Option<f64>,
    /// With [`OnNewPolicy::Keep`]: most models that are kept beside the acting policy's.
    pub policies_kept: usize,
    /// What model selection goes by. White noise is always selected by evidence.
    pub selection: SelectionKind,
    /// ICD tolerance on the squared residual, relative to v0, in (0, 1).
    pub tolerance: f64,
    /// Largest dictionary, at least 1.
    pub dictionary_max: usize,
    /// Rule that chooses the dictionary of a refit; none for ICD, unless another one predicts later returns better by more
    /// than the standard error where ICD fills the dictionary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dictionary_by: Option<DictionaryBy>,
    /// Correlation with the TD errors, or the Bellman residuals, at or below which OMP chooses no further element, not negative.
    #[serde(default)]
    pub dictionary_beta: f64,
    /// Whether OMP compares features of unit norm: each divided by its root mean square over the rows.
    #[serde(default)]
    pub dictionary_unit_norm: bool,
    /// Recent rows kept with their features, from which a new dictionary element is backfilled.
    pub backfill_rows: usize,
    /// Rows between two refreshes of the weights that score incoming rows; also the largest block learned at once.
    pub refresh_rows: usize,
    /// Re-estimate the scale of values at refreshes from the statistics; with selection by evidence also the noise.
    #[serde(alias = "tune_noise")] // its name in journals and checkpoints before the rename
    pub estimate_scale: bool,
    /// Smallest noise variance relative to the variance of the targets; lower only for deterministic streams.
    pub noise_floor: f64,
    /// Rows before there is a first, data-driven model.
    pub warmup_rows: usize,
    /// Rows at which the first refit is due; 0 leaves refits to those who ask for one.
    pub refit_first_rows: u64,
    /// Factor by which the rows grow from one refit to the next, at least 1.
    pub refit_growth: f64,
    /// Most rows between two refits.
    pub refit_rows_max: u64,
    /// Drop of the prequential score, nats per transition, against its best since adoption, that asks for a refit;
    /// 0 switches this off.
    pub refit_score_drop: f64,
    /// How readily a change of the world is called one.
    pub drift_sensitivity: DriftSensitivity,
    /// Returns that alarms foretell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<WarningSettings>,
    /// Which evidence decides.
    pub evidence: SelectBy,
    /// Rows that the exact evidence is computed on.
    pub evidence_rows: usize,
    /// Starts of the optimiser in a search by evidence.
    #[serde(alias = "starts")]
    pub search_starts: usize,
    /// Budget of one refit, in seconds of one core, but counted in products ([`crate::allowance`]). Its search may use
    /// [`crate::refit::SEARCH_SHARE`] of it, and less with few rows ([`crate::refit::RefitJob::allowance`]).
    pub refit_budget_s: f64,
    /// Seed of everything random in refits.
    pub seed: u64,
    /// What is predicted besides values of rewards, under the same kernel and dictionary.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<Head>,
    /// Whether a refit may give some of the heads a kernel and a dictionary of their own.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub heads_split: bool,
    /// Whether nothing but the heads is learned: no weights, no errors and no sums of rewards. Never in the settings of a critic.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub heads_alone: bool,
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// A limit that may be missing. Files from before it could be have infinity there.
mod limit {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(limit: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        limit.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.filter(|&limit| limit != f64::INFINITY))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "default".into(),
            discount: 0.99,
            rewards: vec![0],
            kernel: KernelKind::default(),
            profile: Profile::Matern52,
            linear_columns: LinearColumns::default(),
            action_value: None,
            world: false,
            weighted: false,
            action_names: Vec::new(),
            improve_rows: 200,
            prior_mean: 0.0,
            mean: None,
            about_mean: false,
            centred: true,
            state_kinds: Vec::new(),
            noise: NoiseModel::default(),
            variance: VarianceKind::default(),
            lambda: Lambda::default(),
            rho_max: None,
            forgetting: None,
            on_new_policy: OnNewPolicy::default(),
            policy_discount: None,
            policies_kept: 4,
            selection: SelectionKind::default(),
            tolerance: 1e-3,
            dictionary_max: 300,
            dictionary_by: None,
            dictionary_beta: 0.0,
            dictionary_unit_norm: false,
            backfill_rows: 1024,
            refresh_rows: 256,
            estimate_scale: true,
            noise_floor: 1e-3,
            warmup_rows: 32,
            refit_first_rows: 512,
            refit_growth: 2.0,
            refit_rows_max: 50_000,
            refit_score_drop: 1.0,
            drift_sensitivity: DriftSensitivity::default(),
            alarms: Vec::new(),
            evidence: SelectBy::Auto,
            evidence_rows: 1000,
            search_starts: 4,
            refit_budget_s: 20.0,
            seed: 0,
            heads: Vec::new(),
            heads_split: true,
            heads_alone: false,
        }
    }
}

impl Settings {
    /// The method of \[JS09\]: lambda = 1, the evidence alone, the variance as the model states it, a world that does not change.
    pub fn paper() -> Self {
        Self {
            variance: VarianceKind::Model,
            lambda: Lambda::Fixed(1.0),
            selection: SelectionKind::Evidence,
            profile: Profile::Gaussian,
            linear_columns: LinearColumns::Never,
            centred: false,
            dictionary_by: Some(DictionaryBy::Icd),
            drift_sensitivity: DriftSensitivity::Off,
            on_new_policy: OnNewPolicy::Restart,
            policy_discount: Some(0.1),
            ..Self::default()
        }
    }

    /// Whether a new policy begins with what was learned of those before it, however often policies change.
    pub fn carries_policies(&self) -> bool {
        self.on_new_policy == OnNewPolicy::Discount && self.policy_discount.is_none()
    }

    /// lambda before anything has been selected.
    pub fn first_lambda(&self) -> f64 {
        match self.lambda {
            _ if self.noise == NoiseModel::White => 1.0,
            _ if self.improves() => 0.0,
            Lambda::Auto if self.leaves_chain() => 0.0,
            Lambda::Fixed(lambda) => lambda,
            Lambda::Auto if self.selection == SelectionKind::Evidence => 1.0,
            Lambda::Auto => LAMBDA_START,
        }
    }

    /// Whether refits select by held-out returns.
    pub fn selects_by_returns(&self) -> bool {
        self.selection == SelectionKind::Returns && self.noise == NoiseModel::Correlated
    }

    /// Whether a rule other than ICD may choose the dictionary: they are for values of states and correlated noise.
    pub fn takes_rules(&self) -> bool {
        self.noise == NoiseModel::Correlated && self.action_value.is_none()
    }

    /// Whether it has heads to learn: white noise and action values know none.
    pub fn learns_heads(&self) -> bool {
        !self.heads.is_empty() && self.noise == NoiseModel::Correlated && self.action_value.is_none()
    }

    /// The same of a model that learns nothing but `heads`.
    pub(crate) fn of_heads_alone(&self, heads: Vec<Head>) -> Self {
        Self {
            lambda: Lambda::Fixed(1.0),
            selection: SelectionKind::Evidence,
            variance: VarianceKind::Model,
            drift_sensitivity: DriftSensitivity::Off,
            alarms: Vec::new(),
            mean: None,
            heads,
            heads_alone: true,
            ..self.clone()
        }
    }

    /// Kernels that the model may have at the most: a second one for some of its heads.
    pub fn kernels_max(&self) -> usize {
        if self.learns_heads() && self.heads_split { 2 } else { 1 }
    }

    /// Whether a learner can work with them. What the configuration says has been checked more closely; this is for what a
    /// file says.
    pub fn are_valid(&self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        (0.0..=1.0).contains(&self.discount)
            && !self.rewards.is_empty()
            && self.action_value.as_ref().is_none_or(|of| of.space.is_sound())
            && self.mean.as_ref().is_none_or(|mean| self.may_have_mean() && mean.missing().is_none())
            && self.state_kinds.iter().all(|kind| kind.kind().is_sound())
            && positive(self.tolerance)
            && !matches!(self.lambda, Lambda::Fixed(lambda) if !(0.0..=1.0).contains(&lambda))
            && self.rho_max.is_none_or(|most| most > 0.0)
            && self.forgetting.is_none_or(positive)
            && WarningSettings::check_all(&self.alarms).is_ok()
            && self.policy_discount.is_none_or(|factor| factor > 0.0 && factor <= 1.0)
            && (1..=20_000).contains(&self.dictionary_max)
            && self.backfill_rows <= 1_000_000
            && (1..=65_536).contains(&self.refresh_rows)
            && positive(self.noise_floor)
            && self.dictionary_beta.is_finite()
            && self.dictionary_beta >= 0.0
            && (2..=1_000_000).contains(&self.warmup_rows)
            && self.refit_growth.is_finite()
            && self.refit_growth >= 1.0
            && self.refit_score_drop.is_finite()
            && self.evidence_rows >= 2
            && self.search_starts >= 1
            && positive(self.refit_budget_s)
    }

    /// Whether they fit states (`dim`,).
    ///
    /// # Errors
    /// If `state_kinds` is for states of another dimension; the coordinates of actions need no kind.
    pub fn check_dim(&self, dim: usize) -> Result<(), KindsMismatch> {
        match self.state_kinds.len() {
            0 => Ok(()),
            kinds if kinds == dim || kinds + self.action_width() == dim => Ok(()),
            kinds => Err(KindsMismatch { kinds, dim }),
        }
    }

    /// Whether refits may bend variables that are far from normal: where no kinds are named, and values of states alone are learned.
    pub fn may_bend(&self) -> bool {
        self.state_kinds.is_empty() && self.action_value.is_none() && !self.learns_heads() && self.selects_by_returns()
    }

    /// Discrete actions whose unit vectors are the last coordinates of each state; 0 where there are none.
    pub fn choices(&self) -> usize {
        self.action_value.as_ref().map_or(0, |of| of.space.choices())
    }

    /// Whether the successor of a row may be a distribution over actions.
    pub fn mixes_successors(&self) -> bool {
        self.action_value.as_ref().is_some_and(|of| of.successor == Successor::Expected) && self.choices() > 0
    }

    /// Kind of each variable of inputs (`dim`,); empty for all real. Coordinates of actions are real, and so is what has a period that is
    /// left open.
    pub fn kinds(&self, dim: usize) -> Vec<StateKind> {
        if self.check_dim(dim).is_err() {
            return Vec::new();
        }
        let mut kinds: Vec<StateKind> = self.state_kinds.iter().map(|kind| kind.kind()).collect();
        if !kinds.is_empty() {
            kinds.resize(dim, StateKind::Real);
        }
        kinds
    }

    /// Coordinates that actions add to a state's; 0 for values of states.
    pub fn action_width(&self) -> usize {
        self.action_value.as_ref().map_or(0, |of| of.space.width())
    }

    /// How a real variable stands in a linear column. That of a value is bounded, since what is far beyond the rows is most often a sensor
    /// that fails; rewards alone may have a trend, actions are sought uphill, and who always asks for lines has them.
    pub fn line(&self) -> fn(usize) -> GivenFunction {
        let bounded = self.discount > 0.0 && self.action_value.is_none() && self.linear_columns == LinearColumns::Auto;
        if bounded { GivenFunction::Bounded } else { GivenFunction::Linear }
    }

    /// Whether a row may be followed by another input than the next row of its chain has.
    pub fn leaves_chain(&self) -> bool {
        self.action_value.as_ref().is_some_and(ActionValue::leaves_chain)
    }

    /// Where importance ratios of rows are clipped, none if nowhere. Rows of action values all count once: their traces are clipped as
    /// they are made.
    pub fn ratio_max(&self) -> Option<f64> {
        if self.action_value.is_some() { None } else { self.rho_max }
    }

    /// A reward less the part of a return that the prior mean has promised, where values are learned about it: (A8).
    pub fn about_prior_mean(&self, reward: f64, discount: f64, terminated: bool) -> f64 {
        let follows = if terminated { 0.0 } else { discount };
        reward - self.prior_mean * (1.0 - follows)
    }

    /// Let the rewards of rows of action values be those about the prior mean.
    pub fn take_prior_mean(&self, rows: &mut Rows) {
        if self.prior_mean == 0.0 {
            return;
        }
        for i in 0..rows.len() {
            let (discount, terminated) = (rows.discount(i, self.discount), rows.terminated[i]);
            for &column in &self.rewards {
                let reward = &mut rows.rewards[i * rows.rewards_per_row + column];
                *reward = self.about_prior_mean(*reward, discount, terminated);
            }
        }
    }

    /// Whether values may be learned about a mean function: it is of states, and of one reward.
    pub fn may_have_mean(&self) -> bool {
        self.action_value.is_none() && self.rewards.len() == 1
    }

    /// Whether a mean function is the constant of values, so that the kernel has none. Heads share the kernel, and need one.
    pub(crate) fn leaves_constant_to_mean(&self) -> bool {
        (self.mean.is_some() || self.about_mean) && self.heads.is_empty()
    }

    /// Where there is a prior mean, take the variance of the kernel's constant for its signal: with a constant the first rows would
    /// unlearn the mean everywhere.
    pub fn leave_constant_to_prior_mean(&self, kernel: &mut Kernel) {
        if self.prior_mean != 0.0 || self.leaves_constant_to_mean() {
            let whole = kernel.signal_variance + kernel.constant_variance();
            kernel.signal_variance = whole;
            if kernel.bias_variance > 0.0 {
                kernel.bias_variance = CONSTANT_SHARE * whole;
            }
            for column in kernel.columns.iter_mut().filter(|column| column.function.is_constant()) {
                column.variance = CONSTANT_SHARE * whole;
            }
        }
    }

    /// Whether actions are improved.
    pub fn improves(&self) -> bool {
        self.action_value.as_ref().is_some_and(|of| of.successor == Successor::Improve)
    }

    /// Call the actions so, unless they have names or differ in number.
    pub fn call_actions(&mut self, names: &[String]) {
        if self.action_names.is_empty() && self.action_width() == names.len() {
            self.action_names = names.to_vec();
        }
    }

    /// Names of the discrete actions: from the settings, or their numbers. Empty for a box and for values of states.
    pub fn action_names(&self) -> Vec<String> {
        (0..self.choices()).map(|a| self.action_names.get(a).cloned().unwrap_or_else(|| a.to_string())).collect()
    }

    /// Names of the numbers of an input of Q, from the names of the state variables (`dim`,), if they have any.
    pub fn input_names(&self, names: Option<Vec<String>>, dim: usize) -> Vec<String> {
        let mut names = names.unwrap_or_else(|| (0..dim).map(state_name).collect::<Vec<_>>());
        match &self.action_value {
            Some(of) if of.space.choices() > 0 => {
                names.extend(self.action_names().iter().map(|name| format!("action={name}")));
            }
            // Two inputs of one name cannot be told apart.
            Some(_) if !self.action_names.is_empty() && !self.action_names.iter().any(|name| names.contains(name)) => {
                names.extend_from_slice(&self.action_names);
            }
            Some(of) => names.extend(of.space.names()),
            None => {}
        }
        names
    }

    /// Give the names of an input's numbers to the ones in `own` that are called by their numbers alone; both are of one length.
    pub(crate) fn name_numbered(&self, own: &mut [String], names: &[String]) {
        if own == names {
            return;
        }
        let of_actions = self.action_value.iter().flat_map(|of| of.space.names());
        let numbered = (0..own.len() - self.action_width()).map(state_name).chain(of_actions);
        let unnamed = own.iter_mut().zip(numbered).zip(names).filter(|((own, numbered), _)| *own == numbered);
        unnamed.for_each(|((own, _), name)| own.clone_from(name));
    }
}

/// Variance of the kernel's constant that a prior mean leaves, as a share: small enough to have no say, and above 0 for a search that
/// takes its logarithm.
pub(crate) const CONSTANT_SHARE: f64 = 1e-6;

/// Rows that a model of m features needs for itself.
pub(crate) fn rows_of_its_own(m: usize) -> u64 {
    OWN_ROWS.max(OWN_ROWS_PER_FEATURE * m as u64)
}

/// Finest tolerance relative to v0 that is chosen without being asked for. Kernel weights and the matrix C have entries of
/// up to one over it, so that a finer one would cost the readers of a snapshot the digits that two implementations agree on.
pub const TOLERANCE_MIN: f64 = 1e-6;

/// ICD tolerance, value^2: the setting's share of v0, or a tenth of the noise if that is smaller, but not below
/// [`TOLERANCE_MIN`] unless the setting is. The constant b is one direction, which one element explains: it has no say.
pub fn effective_tolerance(settings: &Settings, hyperparameters: &Hyperparameters) -> f64 {
    let signal = hyperparameters.kernel.signal_variance;
    let asked = settings.tolerance * signal;
    asked.min(0.1 * hyperparameters.noise_variance).max(asked.min(TOLERANCE_MIN * signal))
}
