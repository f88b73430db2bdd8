//! A published value function: plain data, and how it is evaluated.

use crate::action::ActionSpace;
use crate::heads::{Head, HeadBasis, HeadEvaluation, HeadsSnapshot, Rate};
use crate::math::dense::dot;
use crate::math::form::{QuadraticForm, stride};
use crate::math::kernel::{Hyperparameters, Points};
use crate::transition::{Invalid, InvalidCode, MAGNITUDE_MAX};
use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// z = (x - shift) / scale, coordinate by coordinate: from the environment's states to the kernel's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// (D,), unit of the state.
    #[serde(with = "crate::math::raw")]
    pub shift: Vec<f64>,
    /// (D,), unit of the state, positive.
    #[serde(with = "crate::math::raw")]
    pub scale: Vec<f64>,
    /// What the state variables are called, if they have names.
    pub names: Option<Vec<String>>,
}

impl Inputs {
    /// z = x.
    pub fn identity(dim: usize) -> Self {
        Self { shift: vec![0.0; dim], scale: vec![1.0; dim], names: None }
    }

    /// To mean 0 and deviation 1 of the first `dim` columns of `rows` (n, `width`), row-major. A column without a deviation keeps its unit.
    pub fn standard(rows: &[f64], width: usize, dim: usize) -> Self {
        let n = (rows.len() / width).max(1) as f64;
        let column = |d: usize| rows.iter().skip(d).step_by(width);
        let of = |d: usize| {
            let mean = column(d).sum::<f64>() / n;
            let deviation = (column(d).map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
            (mean, if deviation > 0.0 && deviation.is_finite() { deviation } else { 1.0 })
        };
        let (shift, scale) = (0..dim).map(of).unzip();
        Self { shift, scale, names: None }
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.shift.len()
    }

    /// Normalise states (n, D), row-major, appending to `out`.
    pub fn normalise_into(&self, states: &[f64], out: &mut Vec<f64>) {
        for x in states.chunks_exact(self.dim()) {
            out.extend(x.iter().zip(&self.shift).zip(&self.scale).map(|((x, shift), scale)| (x - shift) / scale));
        }
    }

    /// The state (D,) that a normalised one is of.
    pub(crate) fn restored(&self, normalised: &[f64]) -> Vec<f64> {
        let of = |((z, shift), scale): ((&f64, &f64), &f64)| z * scale + shift;
        normalised.iter().zip(&self.shift).zip(&self.scale).map(of).collect()
    }

    /// Normalise states (n, D), row-major.
    pub fn normalise(&self, states: &[f64]) -> Vec<f64> {
        let mut out = Vec::with_capacity(states.len());
        self.normalise_into(states, &mut out);
        out
    }
}

/// A value function at one moment: V(x) = level + m(x) + k_m(z)' weights, z = (x - shift) / scale. k_m(z) (m,) begins with s_j f_j(z) for each of
/// the q columns of the kernel ([`crate::math::columns`]); k(dictionary_i, z), without them, follows for each element.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Name of the critic it comes from.
    pub critic: String,
    /// Rises with every adopted model.
    pub generation: u64,
    /// Rises with every publication.
    pub revision: u64,
    /// Rows of the stream learned, those before a restart and duplicates excluded.
    pub offset: u64,
    /// Rows that the statistics hold.
    pub transitions: u64,
    /// Unix seconds when it was made; 0 where no clock was at hand.
    pub time: f64,
    /// The critic's discount.
    pub discount: f64,
    /// Kernel, noise model and noise variance, in normalised coordinates.
    pub hyperparameters: Hyperparameters,
    /// Normalisation of states.
    pub inputs: Inputs,
    /// (m - q, D), normalised coordinates.
    pub dictionary: DMatrix<f64>,
    /// (m, H).
    pub weights: DMatrix<f64>,
    /// C (m, m), symmetric: Var V(x) = k(z, z) - k_m(z)' C k_m(z), the columns in k(z, z) too; none unless requested.
    pub variance: Option<DMatrix<f64>>,
    /// Log evidence of the model on the rows that its statistics hold, nats.
    pub log_evidence: Option<f64>,
    /// Prequential log score, nats per transition since adoption; none before the first scored row.
    pub score: Option<f64>,
    /// lambda in [0, 1] that the weights were learned with; 1 in files that do not say.
    pub lambda: f64,
    /// How returns scatter about V; none where it is not known (yet).
    pub returns: Option<ReturnSpread>,
    /// Whether model selection has not chosen this model yet: its deviations are the prior's.
    pub provisional: bool,
    /// What the last coordinates of its states are, where it is the value of actions.
    pub actions: Option<Actions>,
    /// The critic's heads; none where it has none.
    pub heads: Option<HeadsSnapshot>,
    /// Further heads of the critic, which have another kernel and dictionary: a value function of no rewards (weights are (m, 0)) with
    /// these heads. None where all heads share the kernel.
    pub branch: Option<Box<Snapshot>>,
    /// What tracks the stream beside the base; none where `weights` are the base's.
    pub tracked: Option<Tracked>,
    /// (H,), reward unit: what is added to k_m(z)' weights; empty for 0.
    pub level: Vec<f64>,
    /// m, the function that was learned about, of which only the values count: H of them; none for 0 everywhere.
    pub mean: Option<Arc<Snapshot>>,
    /// (H,), what the rewards are called, a unit in brackets behind the name; empty if they have no names.
    pub reward_names: Vec<String>,
    /// How the table was read that it was made of, as those who read tables write it; none of live rows.
    pub table: Option<String>,
}

/// Actions whose coordinates follow the state's in what a snapshot is asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct Actions {
    /// The actions there are.
    pub space: ActionSpace,
    /// Prior mean of Q, reward unit: Q = prior mean + k_m(z)' weights.
    pub prior_mean: f64,
    /// Weights (m, K) of K randomised copies of Q, by which Thompson sampling acts; K = 0 where there are none.
    pub copies: DMatrix<f64>,
}

impl Actions {
    /// Without copies.
    pub fn of(space: ActionSpace) -> Self {
        Self { space, prior_mean: 0.0, copies: DMatrix::zeros(0, 0) }
    }
}

/// A mixture of the base and of trackers, and what is to be known of it beside its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracked {
    /// (m, H), weights of the base.
    pub base: DMatrix<f64>,
    /// (H,), in [0, 1]: how far the mixture of each reward is let in, V = base + gate (mixture - base).
    pub gate: Vec<f64>,
    /// (H,), rows, positive: the half-life that half of the trackers' weight does not exceed; 0 where the gate is shut.
    pub half_life: Vec<f64>,
}

/// M_h(x) = max(floor_h, level_h + k_m(x)' weights_h): variance of the return to come about V_h(x), reward^2.
#[derive(Clone, Debug, PartialEq)]
pub struct ReturnSpread {
    /// (H,), reward^2.
    pub level: Vec<f64>,
    /// (m, H).
    pub weights: DMatrix<f64>,
    /// (H,), reward^2, positive.
    pub floor: Vec<f64>,
    /// Factor on deviations of returns, positive: what rows held out of the last refit ask for, and from 16 verified pairs on what
    /// these do; 1 where there are too few of both.
    pub factor: f64,
    /// Verified pairs behind `factor`.
    pub pairs: u64,
    /// Share of their returns that lay in the 90 % interval before `factor`, from 0 to 1; none without pairs, and in files that do
    /// not say.
    pub coverage: Option<f64>,
}

/// What is wanted beside the mean of V. Mean and variance are as cheap as if the others did not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Var V(x).
    pub variance: bool,
    /// Variance of the return to come.
    pub returns: bool,
    /// How much of V(x) is known, and whether the state is far from all that was learned from.
    pub known: bool,
    /// The base's mean, and not what tracks the stream: of states far from where the stream is, which no return has verified.
    pub base: bool,
}

impl Ask {
    /// The mean alone.
    pub const MEAN: Self = Self { variance: false, returns: false, known: false, base: false };
    /// Mean and variance of V.
    pub const VARIANCE: Self = Self { variance: true, returns: false, known: false, base: false };
    /// All that a snapshot can say.
    pub const ALL: Self = Self { variance: true, returns: true, known: true, base: false };

    /// Whether it takes Var V(x), given or not.
    pub fn needs_variance(self) -> bool {
        self.variance || self.returns || self.known
    }
}

/// Correlation with the nearest element of the dictionary below which a state counts as extrapolated: two lengthscales
/// off are 0.14, one is 0.61.
pub const EXTRAPOLATES_BELOW: f64 = 0.3;

/// What a snapshot says about some states.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// (n, H), value.
    pub mean: DMatrix<f64>,
    /// (n,), value^2, of V (not of the reward); none if it was not asked for or is not carried.
    pub variance: Option<Vec<f64>>,
    /// (n, H), value^2, of the return to come: factor^2 (Var V(x) + M_h(x)), what is not known of V and its spread
    /// together; none if it was not asked for, or the snapshot lacks its spread or its variance.
    pub return_variance: Option<DMatrix<f64>>,
    /// (n,), in [0, 1]: 1 - Var V(x) / v0, 0 at least: the share of the signal's variance that data have taken away, 0 far from
    /// them; none if it was not asked for, or the snapshot lacks its variance.
    pub known: Option<Vec<f64>>,
    /// (n,), whether no element of the dictionary is near: the largest correlation (k(x, d_j) - b) / v0 is below
    /// [`EXTRAPOLATES_BELOW`]; given with `known`, and without a variance as well.
    pub extrapolates: Option<Vec<bool>>,
}

impl Snapshot {
    /// A value function of these parts: V(x) = sum_j k(`dictionary`_j, x) `weights`_j, `dictionary` (m, D), `weights` (m, H).
    ///
    /// States are not normalised, nothing is known of variances, returns and rows, and there are no actions and no heads; who knows
    /// more sets it: `Snapshot { variance, ..Snapshot::of(..) }`.
    pub fn of(
        discount: f64,
        hyperparameters: Hyperparameters,
        dictionary: DMatrix<f64>,
        weights: DMatrix<f64>,
    ) -> Self {
        Self {
            critic: "main".into(),
            generation: 1,
            revision: 1,
            offset: 0,
            transitions: 0,
            time: 0.0,
            discount,
            hyperparameters,
            inputs: Inputs::identity(dictionary.ncols()),
            dictionary,
            weights,
            variance: None,
            log_evidence: None,
            score: None,
            lambda: 1.0,
            returns: None,
            provisional: false,
            actions: None,
            heads: None,
            branch: None,
            tracked: None,
            level: Vec::new(),
            mean: None,
            reward_names: Vec::new(),
            table: None,
        }
    }

    /// Numbers of an input: state dimension D, and the coordinates of an action where it is the value of actions.
    pub fn dim(&self) -> usize {
        self.inputs.dim()
    }

    /// Number of features m: columns of the kernel, and elements of the dictionary.
    pub fn features(&self) -> usize {
        self.hyperparameters.kernel.columns() + self.dictionary.nrows()
    }

    /// State dimension D.
    pub fn state_dim(&self) -> usize {
        self.dim() - self.actions.as_ref().map_or(0, |of| of.space.width())
    }

    /// Mean of V and what else is asked for and carried, at states (n, D), row-major. The model is laid out anew on
    /// each call, which takes as long as some ten states: keep an [`Evaluator`] for repeated calls.
    ///
    /// # Errors
    /// If `states` is not whole rows of D numbers or holds a number that is not finite or too large.
    pub fn evaluate(&self, states: &[f64], ask: Ask) -> Result<Evaluation, Invalid> {
        let mut out = Evaluation::default();
        Layout::new(self, ask.needs_variance()).evaluate(
            self,
            states,
            ask,
            &mut EvaluationScratch::default(),
            &mut out,
        )?;
        Ok(out)
    }

    /// Weights (m, H) of the base, which no tracker has corrected: right for a state far from where the stream is.
    pub fn base_weights(&self) -> &DMatrix<f64> {
        self.tracked.as_ref().map_or(&self.weights, |tracked| &tracked.base)
    }

    /// A copy that gives means alone: without variance, spread of returns and heads, m (D + H) numbers in place of m².
    pub fn without_variance(&self) -> Self {
        // Field by field: a whole copy would first copy what it leaves out.
        let Self {
            critic,
            hyperparameters,
            inputs,
            dictionary,
            weights,
            actions,
            tracked,
            level,
            mean,
            reward_names,
            table,
            ..
        } = self;
        Self {
            critic: critic.clone(),
            hyperparameters: hyperparameters.clone(),
            inputs: inputs.clone(),
            dictionary: dictionary.clone(),
            weights: weights.clone(),
            actions: actions.clone(),
            tracked: tracked.clone(),
            level: level.clone(),
            mean: mean.clone(),
            reward_names: reward_names.clone(),
            table: table.clone(),
            variance: None,
            returns: None,
            heads: None,
            branch: None,
            ..*self
        }
    }

    /// All heads, in the order of their numbers: those that share the kernel of the values first.
    pub fn all_heads(&self) -> impl Iterator<Item = &Head> {
        let both = [Some(self), self.branch.as_deref()].into_iter().flatten();
        both.filter_map(|snapshot| snapshot.heads.as_ref()).flat_map(|of| &of.heads)
    }

    /// Number of the head called `name`.
    pub fn position_of_head(&self, name: &str) -> Option<usize> {
        self.all_heads().position(|head| head.name == name)
    }

    /// Number of each of these heads, none where it is not there.
    pub(crate) fn places_of_heads(&self, heads: &[Head]) -> Vec<Option<usize>> {
        let known: HashMap<&str, usize> = self.all_heads().map(|head| head.name.as_str()).zip(0..).collect();
        heads.iter().map(|head| known.get(head.name.as_str()).copied()).collect()
    }

    /// Of head number `h` the snapshot whose kernel and dictionary it has, and its number among the heads there.
    ///
    /// # Panics
    /// If there is no such head.
    pub fn place_of_head(&self, h: usize) -> (&Self, &HeadsSnapshot, usize) {
        match &self.heads {
            Some(heads) if h < heads.heads.len() => (self, heads, h),
            heads => {
                let own = heads.as_ref().map_or(0, |of| of.heads.len());
                self.branch.as_ref().expect("a snapshot with this head").place_of_head(h - own)
            }
        }
    }

    /// Whether its heads have variances.
    pub fn has_head_variances(&self) -> bool {
        let of = |snapshot: &Self| snapshot.heads.as_ref().is_none_or(|of| !of.bases.is_empty());
        self.all_heads().next().is_some() && of(self) && self.branch.as_deref().is_none_or(of)
    }

    /// Head number `h` as a value function of its own: kernel, noise, variance (where it is asked for and carried, O(m^3)) and
    /// spread of returns are the head's, a timescale counts as discount 1, and `critic` stays.
    ///
    /// # Panics
    /// If the snapshot has no such head.
    pub fn head_alone(&self, h: usize, variance: bool) -> Self {
        let (place, of, h) = self.place_of_head(h);
        if !std::ptr::eq(place, self) {
            let Self { generation, revision, offset, time, .. } = *self;
            return Self { generation, revision, offset, time, ..place.head_alone(h, variance) };
        }
        let (signal, noise, ratio) = (of.signals[h], of.noise_variance(h), of.ratios[h]);
        let covariance = |HeadBasis { vectors, values }: &HeadBasis| {
            let mut scaled = vectors.clone();
            for (mut column, value) in scaled.column_iter_mut().zip(values) {
                column *= value / (value + ratio) / signal;
            }
            scaled * vectors.transpose()
        };
        let mut alone = self.without_variance();
        // A head has a unit and a level of its own, is not tracked, and knows no mean.
        alone.reward_names.clear();
        alone.level = Some(of.heads[h].level).filter(|level| *level != 0.0).into_iter().collect();
        (alone.tracked, alone.mean) = (None, None);
        alone.hyperparameters.kernel = alone.hyperparameters.kernel.scaled(signal);
        alone.hyperparameters.noise_variance = noise;
        Self {
            discount: if let Rate::Discount(discount) = of.heads[h].rate { discount } else { 1.0 },
            weights: of.weights.columns(h, 1) / signal,
            variance: of.bases.get(of.weightings[h]).filter(|_| variance).map(covariance),
            returns: Some(ReturnSpread {
                level: vec![noise],
                weights: DMatrix::zeros(of.weights.nrows(), 1),
                floor: vec![noise],
                factor: of.verified[h].factor,
                pairs: of.verified[h].pairs,
                coverage: of.verified[h].coverage,
            }),
            log_evidence: None,
            score: None,
            lambda: 1.0,
            ..alone
        }
    }

    /// Means (n, H) of the heads of these numbers at `states` (n, D); NaN where there is no number.
    ///
    /// # Errors
    /// As [`Snapshot::evaluate_heads`].
    pub(crate) fn means_of_heads(&self, states: &[f64], places: &[Option<usize>]) -> Result<DMatrix<f64>, Invalid> {
        let known: Vec<usize> = places.iter().flatten().copied().collect();
        let mut out = DMatrix::from_element(states.len() / self.dim(), places.len(), f64::NAN);
        if known.is_empty() {
            return Ok(out);
        }
        let found = self.evaluate_heads(states, &known, false)?.mean;
        let there = (0..places.len()).filter(|&c| places[c].is_some());
        there.zip(found.column_iter()).for_each(|(c, column)| out.set_column(c, &column));
        Ok(out)
    }

    /// Mean, and variance where it is asked for and carried, of the heads numbered `which` at states (n, D), row-major.
    ///
    /// # Errors
    /// If `states` is not whole rows of D numbers or holds a number that is not finite or too large.
    ///
    /// # Panics
    /// If the snapshot has no such heads.
    pub fn evaluate_heads(&self, states: &[f64], which: &[usize], variance: bool) -> Result<HeadEvaluation, Invalid> {
        let dim = self.dim();
        check(states, dim)?;
        let own = self.heads.as_ref().map_or(0, |of| of.heads.len());
        let Some(branch) = self.branch.as_ref().filter(|_| which.iter().any(|&h| h >= own)) else {
            return Ok(self.evaluate_own_heads(states, which, variance));
        };
        let zeros = || DMatrix::zeros(states.len() / dim, which.len());
        let carried = variance && self.has_head_variances();
        let mut out = HeadEvaluation { mean: zeros(), variance: carried.then(zeros) };
        for (snapshot, first, of) in [(self, 0, 0..own), (&**branch, own, own..usize::MAX)] {
            let columns: Vec<usize> = (0..which.len()).filter(|&c| of.contains(&which[c])).collect();
            let numbers: Vec<usize> = columns.iter().map(|&c| which[c] - first).collect();
            if numbers.is_empty() {
                continue;
            }
            let found = snapshot.evaluate_own_heads(states, &numbers, carried);
            for (k, &c) in columns.iter().enumerate() {
                out.mean.set_column(c, &found.mean.column(k));
                if let Some((to, from)) = out.variance.as_mut().zip(found.variance.as_ref()) {
                    to.set_column(c, &from.column(k));
                }
            }
        }
        Ok(out)
    }

    /// As [`Snapshot::evaluate_heads`], of heads that have the kernel of the snapshot, at states that have been checked.
    fn evaluate_own_heads(&self, states: &[f64], which: &[usize], variance: bool) -> HeadEvaluation {
        let dim = self.dim();
        let heads = self.heads.as_ref().expect("a snapshot with heads");
        let kernel = &self.hyperparameters.kernel;
        let (count, m, width) = (states.len() / dim, heads.weights.nrows(), kernel.projected_dim(dim));
        let basis = kernel.project(dim, self.dictionary.transpose().as_slice());
        let basis = Points::new(width, &basis);
        let mut out = heads.unanswered(count, which.len(), variance);
        let mut rows = Vec::new();
        for (block, states) in states.chunks(BLOCK * dim).enumerate() {
            let (first, len) = (block * BLOCK, states.len() / dim);
            let points = kernel.project(dim, &self.inputs.normalise(states));
            rows.clear();
            rows.resize(len * stride(m), 0.0);
            kernel.rows_apart(&basis, &points, stride(m), &mut rows);
            let prior = |j: usize| kernel.prior(&points[j * width..(j + 1) * width]);
            heads.answer(which, first..first + len, &rows, prior, &mut out);
        }
        out
    }
}

/// A snapshot laid out for those who ask it again and again: made once, and shared by them all.
#[derive(Clone, Debug)]
pub struct Evaluator {
    snapshot: Arc<Snapshot>,
    layout: Layout,
}

/// Memory that evaluations work in, kept from one to the next.
#[derive(Clone, Debug, Default)]
pub struct EvaluationScratch {
    /// States of a block: normalised, then projected.
    normalised: Vec<f64>,
    points: Vec<f64>,
    /// k_m of each of them.
    rows: Vec<f64>,
    /// Var V at each of them, and k(x, x).
    variance: Vec<f64>,
    priors: Vec<f64>,
    /// What the mean is evaluated in, and what it says.
    of_mean: Option<Box<(EvaluationScratch, Evaluation)>>,
}

impl Evaluator {
    /// Lay a snapshot out, its variance as well if it carries one. O(m (m + D)), some hundredths of what it takes to make
    /// the snapshot.
    pub fn new(snapshot: impl Into<Arc<Snapshot>>) -> Self {
        let snapshot = snapshot.into();
        Self { layout: Layout::new(&snapshot, true), snapshot }
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Mean of V and what else is asked for and carried, at states (n, D), row-major. What is said of a state depends on
    /// that state alone, to the last bit, not on the others; last bits may differ between machines.
    ///
    /// # Errors
    /// If `states` is not whole rows of D numbers or holds a number that is not finite or too large.
    pub fn evaluate(&self, states: &[f64], ask: Ask) -> Result<Evaluation, Invalid> {
        let mut out = Evaluation::default();
        self.evaluate_into(states, ask, &mut EvaluationScratch::default(), &mut out)?;
        Ok(out)
    }

    /// [`Evaluator::evaluate`] in memory that is there: after some calls nothing is allocated.
    ///
    /// # Errors
    /// As [`Evaluator::evaluate`]; `out` is left as it was.
    pub fn evaluate_into(
        &self,
        states: &[f64],
        ask: Ask,
        scratch: &mut EvaluationScratch,
        out: &mut Evaluation,
    ) -> Result<(), Invalid> {
        self.layout.evaluate(&self.snapshot, states, ask, scratch, out)
    }
}

/// States that are evaluated at once: few enough for their kernel rows to stay near the processor, and a multiple of
/// all numbers of vectors that the quadratic form takes together.
const BLOCK: usize = 48;

/// What a snapshot holds, as evaluating reads it.
#[derive(Clone, Debug)]
struct Layout {
    /// The dictionary, projected.
    basis: Points,
    /// Of C.
    form: Option<QuadraticForm>,
    /// Of the mean.
    mean: Option<Box<Layout>>,
}

impl Layout {
    fn new(snapshot: &Snapshot, variance: bool) -> Self {
        let (kernel, dim, m) = (&snapshot.hyperparameters.kernel, snapshot.dim(), snapshot.features());
        let basis = kernel.project(dim, snapshot.dictionary.transpose().as_slice());
        let basis = Points::new(kernel.projected_dim(dim), &basis);
        let carried = snapshot.variance.as_ref().filter(|_| variance);
        let mean = snapshot.mean.as_ref().map(|mean| Box::new(Self::new(mean, false)));
        Self { basis, form: carried.map(|c| QuadraticForm::new(m, c.as_slice())), mean }
    }

    fn evaluate(
        &self,
        snapshot: &Snapshot,
        states: &[f64],
        ask: Ask,
        scratch: &mut EvaluationScratch,
        out: &mut Evaluation,
    ) -> Result<(), Invalid> {
        let dim = snapshot.dim();
        check(states, dim)?;
        let (count, heads, m) = (states.len() / dim, snapshot.weights.ncols(), snapshot.features());
        let kernel = &snapshot.hyperparameters.kernel;
        let (columns, width) = (kernel.columns(), kernel.projected_dim(dim));
        let returns = snapshot.returns.as_ref().filter(|_| ask.returns);
        let weights = if ask.base { snapshot.base_weights() } else { &snapshot.weights };
        let prior_mean = snapshot.actions.as_ref().map_or(0.0, |actions| actions.prior_mean);
        out.reset(count, heads, ask, self.form.is_some(), returns.is_some());
        let EvaluationScratch { normalised, points, rows, variance, priors, of_mean } = scratch;
        for (block, states) in states.chunks(BLOCK * dim).enumerate() {
            let (first, len) = (block * BLOCK, states.len() / dim);
            normalised.clear();
            snapshot.inputs.normalise_into(states, normalised);
            points.clear();
            kernel.project_into(dim, normalised, points);
            rows.resize(len * stride(m), 0.0);
            kernel.rows_apart(&self.basis, points, stride(m), rows);
            for (h, weights) in weights.column_iter().enumerate() {
                let about = prior_mean + snapshot.level.get(h).copied().unwrap_or(0.0);
                let mean = &mut out.mean.as_mut_slice()[h * count + first..][..len];
                for (j, mean) in mean.iter_mut().enumerate() {
                    *mean = dot(&rows[j * stride(m)..][..m], weights.as_slice()) + about;
                }
            }
            if let Some(form) = self.form.as_ref().filter(|_| ask.needs_variance()) {
                variance.resize(len, 0.0);
                form.evaluate(rows, variance);
                // Rounding may leave a variance a hair below zero next to a dictionary element.
                priors.clear();
                priors.extend(points.chunks_exact(width).map(|point| kernel.prior(point)));
                variance.iter_mut().zip(&*priors).for_each(|(v, prior)| *v = (prior - *v).max(0.0));
                out.take_variance(first, variance, kernel.signal_variance);
                if let (Some(spread), Some(found)) = (returns, &mut out.return_variance) {
                    for h in 0..heads {
                        let found = &mut found.as_mut_slice()[h * count + first..][..len];
                        spread.evaluate(h, rows, stride(m), variance, found);
                    }
                }
            }
            if let Some(extrapolates) = &mut out.extrapolates {
                let least = kernel.bias_variance + EXTRAPOLATES_BELOW * kernel.signal_variance;
                for (j, far) in extrapolates[first..first + len].iter_mut().enumerate() {
                    *far = rows[j * stride(m)..][columns..m].iter().all(|&k| k < least);
                }
            }
        }
        if let (Some(layout), Some(mean)) = (&self.mean, &snapshot.mean) {
            let (scratch, found) = &mut **of_mean.get_or_insert_default();
            layout.evaluate(mean, states, Ask::MEAN, scratch, found)?;
            out.mean += &found.mean;
        }
        Ok(())
    }
}

impl ReturnSpread {
    /// Variance of the return to come of head `h` at states with these kernel rows and Var V, into `out`.
    fn evaluate(&self, h: usize, rows: &[f64], stride: usize, variance: &[f64], out: &mut [f64]) {
        let (weights, m) = (self.weights.column(h), self.weights.nrows());
        for (j, (out, variance)) in out.iter_mut().zip(variance).enumerate() {
            let spread = self.level[h] + dot(&rows[j * stride..][..m], weights.as_slice());
            *out = self.factor * self.factor * (variance + spread.max(self.floor[h]));
        }
    }
}

impl Evaluation {
    /// Zeros of these sizes where something is asked for and can be given, in the memory that is there.
    fn reset(&mut self, count: usize, heads: usize, ask: Ask, variance: bool, returns: bool) {
        fn zeros(mut memory: Vec<f64>, len: usize) -> Vec<f64> {
            memory.clear();
            memory.resize(len, 0.0);
            memory
        }
        let matrix = |memory: DMatrix<f64>| DMatrix::from_vec(count, heads, zeros(memory.data.into(), count * heads));
        let empty = || DMatrix::zeros(0, 0);
        self.mean = matrix(std::mem::replace(&mut self.mean, empty()));
        let spare = self.variance.take();
        self.variance = (variance && ask.variance).then(|| zeros(spare.unwrap_or_default(), count));
        let spare = self.return_variance.take();
        self.return_variance = (variance && returns).then(|| matrix(spare.unwrap_or_else(empty)));
        let spare = self.known.take();
        self.known = (variance && ask.known).then(|| zeros(spare.unwrap_or_default(), count));
        let spare = self.extrapolates.take();
        self.extrapolates = ask.known.then(|| {
            let mut memory = spare.unwrap_or_default();
            memory.clear();
            memory.resize(count, false);
            memory
        });
    }

    /// What Var V at some states from `first` on says, where it is wanted; `signal` is v0.
    fn take_variance(&mut self, first: usize, variance: &[f64], signal: f64) {
        if let Some(all) = &mut self.variance {
            all[first..first + variance.len()].copy_from_slice(variance);
        }
        if let Some(all) = &mut self.known {
            let known = all[first..first + variance.len()].iter_mut();
            // No number, where a kernel overflows, counts as nothing known.
            known.zip(variance).for_each(|(known, v)| *known = (1.0 - v / signal).max(0.0));
        }
    }

    /// Take over what was found out about some states, which are those from `first` on. What one of the two lacks is left.
    ///
    /// # Panics
    /// If there are fewer states or other heads.
    pub fn place(&mut self, first: usize, found: &Self) {
        fn copy<T: Copy>(all: &mut Option<Vec<T>>, first: usize, found: Option<&Vec<T>>) {
            if let (Some(all), Some(found)) = (all, found) {
                all[first..first + found.len()].copy_from_slice(found);
            }
        }
        self.mean.rows_mut(first, found.mean.nrows()).copy_from(&found.mean);
        if let (Some(all), Some(found)) = (&mut self.return_variance, &found.return_variance) {
            all.rows_mut(first, found.nrows()).copy_from(found);
        }
        copy(&mut self.variance, first, found.variance.as_ref());
        copy(&mut self.known, first, found.known.as_ref());
        copy(&mut self.extrapolates, first, found.extrapolates.as_ref());
    }

    /// Of `count` states that `snapshot` will be asked about, all zero.
    pub fn zeros(snapshot: &Snapshot, count: usize, ask: Ask) -> Self {
        let mut out = Self::default();
        let returns = ask.returns && snapshot.returns.is_some();
        out.reset(count, snapshot.weights.ncols(), ask, snapshot.variance.is_some(), returns);
        out
    }
}

impl Default for Evaluation {
    /// Of no state.
    fn default() -> Self {
        Self { mean: DMatrix::zeros(0, 0), variance: None, return_variance: None, known: None, extrapolates: None }
    }
}

fn check(states: &[f64], dim: usize) -> Result<(), Invalid> {
    if !states.len().is_multiple_of(dim) {
        let message = format!("states must have rows of {dim} numbers");
        return Err(Invalid::new(InvalidCode::WrongDimension, "states", message));
    }
    // Neither what is too large nor what is no number passes this.
    if states.iter().all(|v| v.abs() <= MAGNITUDE_MAX) {
        return Ok(());
    }
    if let Some(k) = states.iter().position(|v| !v.is_finite()) {
        let message = format!("{} is not a finite number", states[k]);
        return Err(Invalid::at(InvalidCode::NotFinite, "states", k / dim, message));
    }
    let k = states.iter().position(|v| v.abs() > MAGNITUDE_MAX).expect("it did not pass");
    let message = format!("{:e} is beyond {MAGNITUDE_MAX:e} in magnitude", states[k]);
    Err(Invalid::at(InvalidCode::OutOfRange, "states", k / dim, message))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::math::kernel::{Kernel, Metric, NoiseModel};

    fn sample(n: usize, salt: f64) -> Vec<f64> {
        (0..n).map(|k| ((k as f64 + salt) * 0.618_033_988_749_895).fract() - 0.5).collect()
    }

    fn metrics(dim: usize) -> [Metric; 3] {
        let relevance: Vec<f64> = (0..dim).map(|d| 0.5 * d as f64 + 0.25).collect();
        let factors = vec![sample(dim, 2.0), sample(dim, 9.0)];
        [Metric::Isotropic(0.7), Metric::Ard(relevance.clone()), Metric::Factor { relevance, factors }]
    }

    /// A model of size m with H = 2 whose C is `sign` times a random positive definite matrix, within 1 of V's prior.
    pub(crate) fn model(dim: usize, m: usize, metric: Metric, sign: f64) -> Snapshot {
        let root = DMatrix::from_vec(m, m, sample(m * m, 4.0));
        let c = (&root * root.transpose()) * (sign / (m * m).max(1) as f64);
        let hyperparameters = Hyperparameters {
            kernel: Kernel::gaussian(2.5, 0.25, metric),
            noise: NoiseModel::Correlated,
            noise_variance: 1.0,
        };
        let dictionary = DMatrix::from_vec(m, dim, sample(m * dim, 1.0).iter().map(|v| 4.0 * v).collect());
        Snapshot {
            inputs: Inputs { shift: vec![0.3; dim], scale: vec![1.5; dim], names: None },
            variance: Some(c),
            returns: Some(ReturnSpread {
                level: vec![0.3, 0.1],
                weights: DMatrix::from_vec(m, 2, sample(2 * m, 6.0)),
                floor: vec![0.05, 0.2],
                factor: 1.25,
                pairs: 400,
                coverage: Some(0.8),
            }),
            ..Snapshot::of(0.9, hyperparameters, dictionary, DMatrix::from_vec(m, 2, sample(2 * m, 3.0)))
        }
    }

    /// Kernel rows (m,) of one state, by the formula and nothing else.
    fn kernel_row(model: &Snapshot, x: &[f64]) -> Vec<f64> {
        let (m, dim, kernel) = (model.dictionary.nrows(), model.dim(), &model.hyperparameters.kernel);
        let omega = kernel.metric.matrix(dim);
        let z: Vec<f64> = (0..dim).map(|d| (x[d] - model.inputs.shift[d]) / model.inputs.scale[d]).collect();
        let k = |i: usize| {
            let apart: Vec<f64> = (0..dim).map(|d| model.dictionary[(i, d)] - z[d]).collect();
            let squared: f64 =
                (0..dim * dim).map(|at| apart[at % dim] * omega.at(at % dim, at / dim) * apart[at / dim]).sum();
            kernel.signal_variance * (-0.5 * squared).exp() + kernel.bias_variance
        };
        (0..m).map(k).collect()
    }

    /// Mean and variance at one state, by the formula and nothing else.
    fn plain(model: &Snapshot, x: &[f64]) -> (Vec<f64>, f64) {
        let (m, kernel) = (model.dictionary.nrows(), &model.hyperparameters.kernel);
        let k = kernel_row(model, x);
        let mean = (0..2).map(|h| (0..m).map(|i| k[i] * model.weights[(i, h)]).sum()).collect();
        let c = model.variance.as_ref().unwrap();
        let explained: f64 = (0..m * m).map(|at| k[at % m] * c[(at % m, at / m)] * k[at / m]).sum();
        (mean, (kernel.signal_variance + kernel.bias_variance - explained).max(0.0))
    }

    #[test]
    fn what_is_said_of_states_is_the_formula() {
        let mut scratch = EvaluationScratch::default();
        let mut found = Evaluation::default();
        for (dim, m) in [(1, 0), (1, 1), (1, 40), (2, 16), (3, 33), (5, 100)] {
            for metric in metrics(dim) {
                // A C that is not positive definite, as rounding or a clustered variance may give, is taken as it is.
                for sign in [1.0, -1.0] {
                    let model = model(dim, m, metric.clone(), sign);
                    let evaluator = Evaluator::new(model.clone());
                    for count in [1, 2, 7, 12, 61, 100] {
                        let states: Vec<f64> = sample(count * dim, 7.0).iter().map(|v| 5.0 * v).collect();
                        evaluator.evaluate_into(&states, Ask::VARIANCE, &mut scratch, &mut found).unwrap();
                        assert_eq!(found, model.evaluate(&states, Ask::VARIANCE).unwrap(), "one door or the other");
                        let variance = found.variance.as_ref().unwrap();
                        assert_eq!((found.mean.shape(), variance.len()), ((count, 2), count));
                        for (j, x) in states.chunks_exact(dim).enumerate() {
                            let (mean, expected) = plain(&model, x);
                            let scale = 1.0 + m as f64;
                            assert!((variance[j] - expected).abs() < 1e-12 * scale, "{dim} {m} {j}: {variance:?}");
                            let close = |(found, mean): (&f64, &f64)| (found - mean).abs() < 1e-14 * scale;
                            assert!(found.mean.row(j).iter().zip(&mean).all(close), "{dim} {m} {j}: {mean:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn returns_and_what_is_known_are_their_formulas() {
        for (dim, m) in [(1, 0), (2, 16), (3, 33), (5, 100)] {
            for metric in metrics(dim) {
                let model = model(dim, m, metric, 1.0);
                let spread = model.returns.as_ref().unwrap();
                let kernel = &model.hyperparameters.kernel;
                let states: Vec<f64> = sample(61 * dim, 7.0).iter().map(|v| 12.0 * v).collect();
                let found = model.evaluate(&states, Ask::ALL).unwrap();
                let [returns, known] =
                    [found.return_variance.unwrap().as_slice(), &found.known.unwrap()[..]].map(<[f64]>::to_vec);
                for (j, x) in states.chunks_exact(dim).enumerate() {
                    let (k, (_, variance)) = (kernel_row(&model, x), plain(&model, x));
                    let close = |a: f64, b: f64| (a - b).abs() < 1e-12 * (1.0 + m as f64);
                    for h in 0..2 {
                        let about: f64 = spread.level[h] + (0..m).map(|i| k[i] * spread.weights[(i, h)]).sum::<f64>();
                        let expected = 1.25 * 1.25 * (variance + about.max(spread.floor[h]));
                        assert!(close(returns[h * 61 + j], expected), "{dim} {m} {j}");
                    }
                    assert!(
                        close(known[j], (1.0 - variance / kernel.signal_variance).clamp(0.0, 1.0)),
                        "{dim} {m} {j}"
                    );
                    let nearest =
                        k.iter().map(|k| (k - kernel.bias_variance) / kernel.signal_variance).fold(0.0, f64::max);
                    let far = found.extrapolates.as_ref().unwrap()[j];
                    assert!(far == (nearest < EXTRAPOLATES_BELOW) || close(nearest, EXTRAPOLATES_BELOW), "{nearest}");
                }
            }
        }
    }

    #[test]
    fn each_answer_is_given_where_it_is_asked_for_and_carried() {
        let whole = model(2, 9, Metric::Isotropic(1.0), 1.0);
        let (states, given) = ([0.1, 0.2, 0.3, 0.4], |found: &Evaluation| {
            let Evaluation { variance, return_variance, known, extrapolates, .. } = found;
            (variance.is_some(), return_variance.is_some(), known.is_some(), extrapolates.is_some())
        });
        let all = whole.evaluate(&states, Ask::ALL).unwrap();
        let mut out = all.clone();
        let (evaluator, mut scratch) = (Evaluator::new(whole.clone()), EvaluationScratch::default());
        for at in 0..8 {
            let ask = Ask { variance: at & 1 > 0, returns: at & 2 > 0, known: at & 4 > 0, base: at % 3 > 0 };
            evaluator.evaluate_into(&states, ask, &mut scratch, &mut out).unwrap();
            assert_eq!(given(&out), (ask.variance, ask.returns, ask.known, ask.known));
            assert_eq!(out.mean, all.mean);
            assert!(out.variance.is_none() || out.variance == all.variance);
            assert!(out.return_variance.is_none() || out.return_variance == all.return_variance);
            assert!(out.known.is_none() || (&out.known, &out.extrapolates) == (&all.known, &all.extrapolates));
            // Slice by slice as well.
            let mut pieces = Evaluation::zeros(&whole, 2, ask);
            for (j, state) in states.chunks_exact(2).enumerate() {
                pieces.place(j, &whole.evaluate(state, ask).unwrap());
            }
            assert_eq!(pieces, out);
        }
        let without = Snapshot { variance: None, ..whole.clone() };
        assert_eq!(given(&without.evaluate(&states, Ask::ALL).unwrap()), (false, false, false, true));
        let without = Snapshot { returns: None, ..whole };
        assert_eq!(given(&without.evaluate(&states, Ask::ALL).unwrap()), (true, false, true, true));
    }

    #[test]
    fn a_state_is_judged_by_itself_to_the_last_bit() {
        for metric in metrics(4) {
            let evaluator = Evaluator::new(model(4, 77, metric, 1.0));
            let states = sample(131 * 4, 1.0);
            let all = evaluator.evaluate(&states, Ask::VARIANCE).unwrap();
            for (j, x) in states.chunks_exact(4).enumerate() {
                let alone = evaluator.evaluate(x, Ask::VARIANCE).unwrap();
                assert_eq!(alone.mean.row(0), all.mean.row(j));
                assert_eq!(alone.variance.unwrap()[0], all.variance.as_ref().unwrap()[j]);
            }
        }
    }

    #[test]
    fn a_variance_is_given_where_it_is_carried_and_asked_for() {
        let whole = model(2, 9, Metric::Isotropic(1.0), 1.0);
        let without = Evaluator::new(Snapshot { variance: None, ..whole.clone() });
        let (whole, states) = (Evaluator::new(whole), [0.1, 0.2, 0.3, 0.4]);
        let (mut scratch, mut out) = (EvaluationScratch::default(), Evaluation::default());
        let asks = [(&whole, Ask::VARIANCE, true), (&whole, Ask::MEAN, false), (&without, Ask::VARIANCE, false)];
        for (evaluator, ask, given) in asks {
            evaluator.evaluate_into(&states, ask, &mut scratch, &mut out).unwrap();
            assert_eq!(out.variance.is_some(), given);
            assert_eq!(out.mean, whole.evaluate(&states, Ask::VARIANCE).unwrap().mean);
        }
        assert_eq!(whole.evaluate(&[], Ask::VARIANCE).unwrap().variance, Some(Vec::new()));
    }

    #[test]
    fn states_that_are_none_leave_the_last_answer() {
        let evaluator = Evaluator::new(model(2, 9, Metric::Isotropic(1.0), 1.0));
        let (mut scratch, mut out) =
            (EvaluationScratch::default(), evaluator.evaluate(&[0.5, 1.0], Ask::VARIANCE).unwrap());
        let before = out.clone();
        for (states, code, index) in [
            (&[1.0][..], InvalidCode::WrongDimension, None),
            (&[1.0, 2.0, 1e10, f64::NAN], InvalidCode::NotFinite, Some(1)),
            (&[1.0, 2.0, -1e10, 3.0], InvalidCode::OutOfRange, Some(1)),
            (&[1e300, 2.0, f64::INFINITY, 3.0], InvalidCode::NotFinite, Some(1)),
        ] {
            let refused = evaluator.evaluate_into(states, Ask::VARIANCE, &mut scratch, &mut out).unwrap_err();
            assert_eq!((refused.code, refused.index), (code, index));
            assert_eq!(out, before);
        }
    }
}
