//! The search for hyperparameters: structures of the covariance, starts, and the evidence that they are compared by.
//!
//! Starts are screened by the exact evidence of few rows, and the best climb on [`Settings::evidence_rows`] of them. Where
//! there are more rows than that, what they chose climbs on by the variational bound of all rows, through dictionaries
//! that are chosen anew between ascents.

use super::apart::APART;
use super::error::{Lack, RefitError};
use super::first_guess::{moments, weighted_moments};
use crate::allowance::{self, Allowance, PRODUCTS_PER_SECOND};
use crate::math::columns::{GivenColumn, GivenFunction};
use crate::math::dense::Matrix;
use crate::math::dictionary::{StoppingRule, pivoted_cholesky};
use crate::math::embedding::{StateKind, distance};
use crate::math::evidence::{
    Difference, Evidence, EvidenceError, KeepGoing, Problem, Sparse, Through, exact_value, from_parameters,
    sparse_value,
};
use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
use crate::math::optimise::{Ascent, Bounds, Prior};
use crate::math::returns::{differences, regression_weights};
use crate::settings::{CONSTANT_SHARE, SelectBy, Settings, TOLERANCE_MIN};
use crate::snapshot::Inputs;
use crate::transition::Rows;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Rows of the first, cheap stage of the search, in which every start takes part.
const SCREEN_ROWS: usize = 256;
/// Starts that go on to the second stage.
const FINALISTS: usize = 2;
/// Evaluations of one ascent.
const EVALUATIONS: usize = 80;
/// Added to the dictionary's Gram matrix while it is held fixed, relative to v0: lengthscales that grow would make it
/// singular (docs/mathematics.md (E11)).
pub(super) const JITTER: f64 = 1e-6;
/// States that the dictionaries of the bound are chosen from: of more, evenly spaced ones.
const CANDIDATES: usize = 20_000;
/// Trace gap that a dictionary aims at, nats: what it leaves out then hardly moves evidence or mean
/// (docs/mathematics.md (D6), (E9)).
const TRACE_GAP: f64 = 2.0;
/// Evidence that a free hyperparameter must gain, nats: an irrelevant one gains half of that by chance, and more where returns
/// share their noise.
pub(super) const PARAMETER_WORTH: f64 = 1.0;
/// Share of the refit's budget that telling the variables apart may take after the search has used up its own.
const TOLD_SHARE: f64 = 0.1;
/// Largest entry of a direction, in normalised coordinates: a lengthscale of a thirtieth of a standard deviation.
const FACTOR_MAX: f64 = 30.0;

named! {
    /// Which evidence a model was selected by.
    pub enum EvidenceKind {
        /// The exact one, on at most `evidence_rows` rows.
        Exact = "exact",
        /// The variational bound through a dictionary, on all rows.
        Sparse = "sparse",
    }
}

/// A structure of the covariance that model selection has tried.
#[derive(Clone, Debug, PartialEq)]
pub struct StructureReport {
    /// In words: "isotropic", "ard", "ard without 1, 4" (state variables left out), "factor with 2 directions".
    pub name: String,
    /// Best log evidence found, nats, on the rows that all structures were compared on.
    pub log_evidence: f64,
    /// Free hyperparameters.
    pub parameters: usize,
}

impl StructureReport {
    pub(super) fn of(found: &Found) -> Self {
        Self {
            name: found.structure.name.clone(),
            log_evidence: found.ascent.log_evidence,
            parameters: found.structure.free(),
        }
    }
}

/// How far ascents on the exact evidence go.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Starts that go on to the second stage.
    pub(super) finalists: usize,
    /// Evaluations of one ascent.
    pub(super) evaluations: usize,
}

/// The full data set and the candidate inducing points.
pub(super) struct FullData {
    pub(super) problem: Problem,
    /// Normalised states (c, D), row-major: every `stride`-th node.
    candidates: Vec<f64>,
    stride: usize,
    /// Most elements.
    room: usize,
}

/// What a search needs to know of the data besides the rows.
pub(super) struct Data<'a> {
    pub(super) rows: &'a Rows,
    pub(super) inputs: &'a Inputs,
    /// (n, H).
    pub(super) targets: &'a Matrix,
    /// State variables that cannot matter beside the others: their relevance is held at zero.
    pub(super) left_out: &'a [usize],
    /// Most elements of a dictionary.
    pub(super) room: usize,
    pub(super) seed: u64,
    /// Least noise variance relative to the targets' variance, where each column of them has its best noise and scale.
    pub(super) profiled: Option<f64>,
    /// Variance of linear columns over v0, 0 for none: for the exact evidence alone.
    pub(super) linear: f64,
}

/// The search of one round of targets, inside a box that the data give.
pub(super) struct Search {
    noise: NoiseModel,
    pub(super) problem: Problem,
    pub(super) screen: Problem,
    /// Where the bound is wanted: there are more rows than the exact evidence is computed on, or it was asked for.
    pub(super) whole: Option<FullData>,
    pub(super) left_out: Vec<usize>,
    pub(super) targets: Matrix,
    /// v0, b and sigma0^2 that the data suggest.
    suggested: [f64; 3],
    lower: [f64; 3],
    upper: [f64; 3],
    /// Median step of each normalised coordinate (D,); infinite for categories.
    steps: Vec<f64>,
    profile: Profile,
    linear: f64,
    line: fn(usize) -> GivenFunction,
    kinds: Vec<StateKind>,
    pub(super) starts: usize,
    pub(super) effort: Effort,
    pub(super) seed: u64,
    /// Products that [`Search::support`] may take whatever is left.
    told: f64,
}

/// One structure of the covariance, and the box that its parameters are searched in.
#[derive(Clone, Debug)]
pub(super) struct Structure {
    pub(super) name: String,
    pub(super) like: Hyperparameters,
    pub(super) bounds: Bounds,
    pub(super) priors: Vec<Option<Prior>>,
}

impl Structure {
    /// Places of the relevances among the parameters.
    pub(super) fn relevances(&self) -> std::ops::Range<usize> {
        let metric = &self.like.kernel.metric;
        3..3 + if let Metric::Isotropic(_) = metric { 1 } else { metric.relevance(1).len() }
    }

    /// Parameters that are not held fixed.
    pub(super) fn free(&self) -> usize {
        self.bounds.lower.iter().zip(&self.bounds.upper).filter(|(l, u)| l != u).count()
    }
}

/// A structure with the best point found in it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) structure: Structure,
    pub(super) ascent: Ascent,
    /// Which evidence the ascent was on.
    pub(super) by: EvidenceKind,
    /// Exact evidence that going over to the bound has cost, on the rows of the exact one, nats.
    pub(super) evidence_loss: Option<f64>,
}

impl Found {
    /// Log evidence less what its parameters have to be worth, nats.
    pub(super) fn worth(&self) -> f64 {
        self.ascent.log_evidence - PARAMETER_WORTH * self.structure.free() as f64
    }

    pub(super) fn hyperparameters(&self) -> Hyperparameters {
        from_parameters(&self.structure.like, &self.ascent.parameters)
    }
}

impl Search {
    pub(super) fn new(settings: &Settings, data: &Data<'_>) -> Result<Self, RefitError> {
        let Data { rows, inputs, targets, seed, .. } = *data;
        // Where each column has its own best noise rows count once.
        let counts = settings.noise == NoiseModel::Correlated && data.profiled.is_none();
        let weights = regression_weights(rows, settings.weighted).filter(|_| counts);
        let (square_of_mean, variance) = weighted_moments(targets, weights);
        if !(square_of_mean.is_finite() && variance.is_finite()) {
            return Err(RefitError::NotEnough(Lack::FiniteReturns));
        }
        if variance <= 1e-20 * square_of_mean {
            return Err(RefitError::NotEnough(Lack::DifferentReturns));
        }
        let noise_scale = if settings.noise == NoiseModel::White {
            let columns: Vec<f64> =
                (0..rows.len()).flat_map(|i| settings.rewards.iter().map(move |&h| rows.reward(i)[h])).collect();
            let (square, spread) = moments(&Matrix::from_rows(rows.len(), settings.rewards.len(), &columns));
            // Deterministic rewards may be all the same; their size is then the only scale there is.
            if spread > 0.0 { spread } else { square.max(f64::MIN_POSITIVE) }
        } else {
            // The noise is of a row of weight 1.
            variance * weights.map_or(1.0, |weights| weights.iter().sum::<f64>() / weights.len() as f64)
        };
        let total = square_of_mean + variance;
        let (problem, chosen) = subset(settings, data, weights, settings.evidence_rows, seed);
        let (screen, _) = subset(settings, data, weights, SCREEN_ROWS, seed ^ 0x5eed);
        let [problem, screen] = [problem, screen].map(|problem| match data.profiled {
            Some(floor) => problem.profiled(floor),
            None => problem,
        });
        let wanted = match settings.evidence {
            SelectBy::Auto => rows.len() > settings.evidence_rows,
            SelectBy::Exact => false,
            SelectBy::Sparse => true,
        };
        let whole = wanted.then(|| {
            let (problem, _) = subset(settings, data, weights, rows.len(), seed);
            let (nodes, dim) = (problem.nodes(), rows.dim);
            let stride = (nodes.len() / dim).div_ceil(CANDIDATES).max(1);
            let candidates = nodes.chunks_exact(dim).step_by(stride).flatten().copied().collect();
            FullData { problem, candidates, stride, room: data.room.max(1) }
        });
        let constant = if settings.leaves_constant_to_mean() {
            [CONSTANT_SHARE * total; 3]
        } else {
            [total, 1e-6 * total, 1e3 * total]
        };
        Ok(Self {
            noise: settings.noise,
            problem,
            screen,
            whole,
            left_out: data.left_out.to_vec(),
            targets: chosen,
            suggested: [variance, constant[0], 0.1 * noise_scale],
            lower: [1e-4 * variance, constant[1], settings.noise_floor * noise_scale],
            upper: [1e3 * total, constant[2], 10.0 * noise_scale],
            steps: median_steps(rows, inputs, &settings.kinds(rows.dim)),
            profile: settings.profile,
            linear: data.linear,
            line: settings.line(),
            kinds: settings.kinds(rows.dim),
            starts: settings.search_starts,
            effort: Effort { finalists: FINALISTS, evaluations: EVALUATIONS },
            seed,
            told: TOLD_SHARE * PRODUCTS_PER_SECOND * settings.refit_budget_s,
        })
    }

    /// Rows that an evidence of this kind is computed on.
    pub(super) fn rows(&self, by: EvidenceKind) -> usize {
        self.problem(by).rows()
    }

    /// Whether the bound of all rows is wanted.
    pub(super) fn has_bound(&self) -> bool {
        self.whole.is_some()
    }

    fn problem(&self, by: EvidenceKind) -> &Problem {
        match (by, &self.whole) {
            (EvidenceKind::Sparse, Some(whole)) => &whole.problem,
            _ => &self.problem,
        }
    }

    /// Box and weak priors of a structure: `metric` says how many parameters there are, `removed` which relevances are held at
    /// zero.
    pub(super) fn structure(&self, metric: Metric, removed: &[usize]) -> Structure {
        let removed: &[usize] = if matches!(metric, Metric::Isotropic(_)) { &[] } else { removed };
        let dim = self.problem.dim();
        let directions = metric.factors().len();
        let mut name = match directions {
            0 => metric.kind().to_owned(),
            1 => "factor with 1 direction".into(),
            k => format!("factor with {k} directions"),
        };
        if !removed.is_empty() {
            let which: Vec<String> = removed.iter().map(|d| d.to_string()).collect();
            name = format!("{name} without {}", which.join(", "));
        }
        let mut bounds = Bounds {
            lower: self.lower.iter().map(|v| v.ln()).collect(),
            upper: self.upper.iter().map(|v| v.ln()).collect(),
        };
        // A factor of 50 either way costs half a nat.
        let weak = |mean: f64| Some(Prior { mean, sd: 4.0 });
        let mut priors: Vec<Option<Prior>> = self.suggested.iter().map(|v| weak(v.ln())).collect();
        let smallest = [self.steps.iter().copied().fold(f64::INFINITY, f64::min)];
        let steps = if matches!(metric, Metric::Isotropic(_)) { &smallest[..] } else { &self.steps };
        for (d, step) in steps.iter().enumerate() {
            let gone = removed.contains(&d);
            bounds.lower.push(if gone { f64::NEG_INFINITY } else { 1e-6f64.ln() });
            // Lengthscales below one step interpolate each episode's return (docs/mathematics.md (E12)).
            let finest = if step.is_finite() { (1.0 / (step * step)).clamp(1.0, 1e4).ln() } else { APART.ln() };
            bounds.upper.push(if gone { f64::NEG_INFINITY } else { finest });
            priors.push(if gone { None } else { weak((1.0 / dim as f64).ln()) });
        }
        for d in (0..directions).flat_map(|_| 0..dim) {
            // A direction's length squared is a relevance along it.
            let most = if removed.contains(&d) || !self.is_line(d) { 0.0 } else { FACTOR_MAX };
            bounds.lower.push(-most);
            bounds.upper.push(most);
            priors.push(Some(Prior { mean: 0.0, sd: 5.0 }));
        }
        let [signal_variance, bias_variance, noise_variance] = self.suggested;
        let kernel =
            Kernel::gaussian(signal_variance, bias_variance, metric).with_profile(self.profile).with_kinds(&self.kinds);
        // The constant stays where it is: its variance is a parameter of its own.
        let columns = match self.linear {
            0.0 => Vec::new(),
            share => GivenColumn::constant_and_linear(0.0, share * signal_variance, self.line, &self.kinds, dim),
        };
        let kernel = Kernel { columns, ..kernel };
        Structure { name, like: Hyperparameters { kernel, noise: self.noise, noise_variance }, bounds, priors }
    }

    /// Whether directions may go along state variable `d`.
    pub(super) fn is_line(&self, d: usize) -> bool {
        self.kinds.get(d).is_none_or(|kind| kind.is_line())
    }

    /// Evidence at a point, without its gradient; through a dictionary chosen there if it is the bound.
    pub(super) fn value(
        &self,
        by: EvidenceKind,
        hyper: &Hyperparameters,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<Evidence, EvidenceError> {
        match (by, &self.whole) {
            (EvidenceKind::Sparse, Some(whole)) => {
                let basis = whole.dictionary(hyper, keep_going, allowance).ok_or(EvidenceError::Stopped)?;
                allowance.spend(allowance::bound(&whole.problem, basis.len() / whole.problem.dim(), false));
                sparse_value(
                    &whole.problem,
                    hyper,
                    Through { dictionary: &basis, kind: Sparse::Vfe, jitter: JITTER },
                    keep_going,
                )
            }
            _ => {
                allowance.spend(allowance::exact(&self.problem, false));
                exact_value(&self.problem, hyper, keep_going)
            }
        }
    }

    /// Evidence lost if a state variable were left out, all else as it is (D,), nats, and which evidence. `alike` gives a
    /// variable with its copies: they go together, since any of them stands for the others. If the budget is used up, it is the
    /// exact one, which takes less, and of the most relevant variables alone, within [`TOLD_SHARE`] of the budget: one
    /// for each variable would take most of a refit's time where there are hundreds. None if stopped, or if it cannot be computed.
    pub(super) fn support(
        &self,
        by: EvidenceKind,
        hyper: &Hyperparameters,
        alike: &dyn Fn(usize) -> Vec<usize>,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Option<(Vec<Option<f64>>, EvidenceKind)> {
        let dim = self.problem.dim();
        let matrix = hyper.kernel.metric.matrix(dim);
        let relevance: Vec<f64> = (0..dim).map(|d| matrix.at(d, d)).collect();
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|&a, &b| relevance[b].total_cmp(&relevance[a]));
        let value = |by, hyper: &_| Some(self.value(by, hyper, keep_going, allowance).ok()?.value);
        let loss = |by: EvidenceKind, enough: &dyn Fn(usize) -> bool| {
            let all = value(by, hyper)?;
            let mut out = vec![None; dim];
            for (count, &d) in order.iter().enumerate() {
                out[d] = match relevance[d] {
                    0.0 if hyper.kernel.columns.is_empty() => Some(0.0),
                    _ if enough(count) => break,
                    _ => Some(all - value(by, &without(hyper, &alike(d), dim))?),
                };
            }
            Some(out)
        };
        if by == EvidenceKind::Sparse
            && allowance.left()
            && let Some(support) = loss(by, &|_| !allowance.left())
            && support.iter().all(Option::is_some)
        {
            return Some((support, by));
        }
        let each = allowance::exact(&self.problem, false);
        let enough = |count: usize| count as f64 * each >= self.told && !allowance.left();
        Some((loss(EvidenceKind::Exact, &enough)?, EvidenceKind::Exact))
    }
}

/// When a dictionary for these hyperparameters and `rewards` rewards has enough elements.
pub(super) fn enough(hyper: &Hyperparameters, rewards: usize) -> StoppingRule {
    StoppingRule {
        tolerance: TOLERANCE_MIN * hyper.kernel.signal_variance,
        trace: TRACE_GAP * 2.0 * hyper.noise_variance / rewards as f64,
    }
}

impl FullData {
    /// Elements (m, D) of a dictionary for these hyperparameters; none if stopped.
    pub(super) fn dictionary(
        &self,
        hyper: &Hyperparameters,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Option<Vec<f64>> {
        let noise_variance = hyper.noise_variance / self.problem.greatest_weight();
        let enough = enough(&Hyperparameters { noise_variance, ..hyper.clone() }, self.problem.observed().cols());
        // The candidates stand for all nodes.
        let enough = StoppingRule { trace: enough.trace / self.stride as f64, ..enough };
        let dim = self.problem.dim();
        let (dictionary, _) = pivoted_cholesky(&hyper.kernel, dim, &self.candidates, enough, self.room, keep_going)?;
        allowance.spend(allowance::pivots(self.candidates.len() / dim, dictionary.len(), dim));
        Some(dictionary.elements().to_vec())
    }
}

/// The same hyperparameters, blind to the state variables `gone`.
pub(super) fn without(hyper: &Hyperparameters, gone: &[usize], dim: usize) -> Hyperparameters {
    let mut out = hyper.clone();
    let mut relevance = hyper.kernel.metric.relevance(dim);
    gone.iter().for_each(|&d| relevance[d] = 0.0);
    out.kernel.columns.retain(|column| column.function.variable().is_none_or(|d| !gone.contains(&d)));
    out.kernel.metric = match &hyper.kernel.metric {
        Metric::Factor { factors, .. } => {
            let mut factors = factors.clone();
            factors.iter_mut().for_each(|f| gone.iter().for_each(|&d| f[d] = 0.0));
            Metric::Factor { relevance, factors }
        }
        _ => Metric::Ard(relevance),
    };
    out
}

/// Median length of a step of each normalised state variable, over rows in which it moves: the chord of the unit circle for
/// what is periodic, infinite for categories, which have no lengths to be told apart by.
pub(super) fn median_steps(rows: &Rows, inputs: &Inputs, kinds: &[StateKind]) -> Vec<f64> {
    let stride = (rows.len() / 4000).max(1);
    (0..inputs.dim())
        .map(|d| {
            let kind = kinds.get(d).copied().unwrap_or_default();
            if kind == StateKind::Category {
                return f64::INFINITY;
            }
            let step = |i: usize| {
                let [x, y] = [rows.state(i)[d], rows.next_state(i)[d]].map(|x| (x - inputs.shift[d]) / inputs.scale[d]);
                distance(kind, x, y)
            };
            let live = |&i: &usize| !rows.terminated[i];
            let mut steps: Vec<f64> =
                (0..rows.len()).step_by(stride).filter(live).map(step).filter(|s| *s > 1e-9).collect();
            if steps.is_empty() {
                return 1e-2;
            }
            let middle = steps.len() / 2;
            *steps.select_nth_unstable_by(middle, f64::total_cmp).1
        })
        .collect()
}

/// About `count` of n rows, in runs of `run`, one of them in each of equally many stretches.
pub(super) fn chosen_rows(n: usize, count: usize, run: usize, seed: u64) -> Vec<usize> {
    if n <= count {
        return (0..n).collect();
    }
    let (pieces, mut rng) = ((count / run).max(1), ChaCha8Rng::seed_from_u64(seed));
    let stretch = |k: usize| {
        let (from, to) = (k * n / pieces, (k + 1) * n / pieces);
        let first = from + rng.random_range(0..(to - from + 1).saturating_sub(run).max(1));
        first..(first + run).min(to)
    };
    (0..pieces).flat_map(stretch).collect()
}

/// About `count` rows as a problem of their own. Under correlated noise pairs of state and return are exchangeable, so rows are
/// spread evenly with a random offset in each stretch; under white noise the return is only in whole runs, so stretches are kept.
fn subset(settings: &Settings, data: &Data<'_>, weights: Option<&[f64]>, count: usize, seed: u64) -> (Problem, Matrix) {
    let Data { rows, inputs, targets, .. } = *data;
    let run = if settings.noise == NoiseModel::White { 100 } else { 1 };
    let chosen = chosen_rows(rows.len(), count, run, seed);
    let pick = |source: &dyn Fn(usize, usize) -> f64, columns: usize| {
        let mut out = Matrix::zeros(chosen.len(), columns);
        for h in 0..columns {
            for (k, &i) in chosen.iter().enumerate() {
                *out.at_mut(k, h) = source(i, h);
            }
        }
        out
    };
    let y = pick(&|i, h| targets.at(i, h), targets.cols());
    if settings.noise == NoiseModel::White {
        let mut some = Rows::new(rows.dim, rows.rewards_per_row);
        chosen.iter().for_each(|&i| some.extend(rows, i..i + 1));
        let (nodes, pairs): (Vec<f64>, Vec<Difference>) = differences(&some, settings.discount);
        let rewards = pick(&|i, h| rows.reward(i)[settings.rewards[h]], settings.rewards.len());
        (Problem::white(rows.dim, inputs.normalise(&nodes), pairs, rewards), y)
    } else {
        let states: Vec<f64> = chosen.iter().flat_map(|&i| rows.state(i).iter().copied()).collect();
        let problem = Problem::correlated(rows.dim, inputs.normalise(&states), y.clone());
        let problem = match weights {
            Some(weights) => problem.weighted(&chosen.iter().map(|&i| weights[i]).collect::<Vec<_>>()),
            None => problem,
        };
        (problem, y)
    }
}
