//! The search for hyperparameters: structures of the covariance, starts, and the evidence that they are compared by.
//!
//! Starts are screened by the exact evidence of few rows, and the best climb on [`Settings::evidence_rows`] of them. Where
//! there are more rows than that, what they chose climbs on by the variational bound of all rows, through dictionaries
//! that are chosen anew between ascents.

use super::refit::{RefitError, moments, stopped_or_no_ascent};
use super::report::{EvidenceKind, StructureReport};
use super::{KernelKind, SelectBy, Settings};
use crate::math::dense::Matrix;
use crate::math::dictionary::{StoppingRule, pivoted_cholesky};
use crate::math::embedding::{StateKind, distance};
use crate::math::evidence::{
    Difference, Evaluator, Evidence, EvidenceError, KeepGoing, Problem, Sparse, exact_value, from_parameters, sparse,
    sparse_value,
};
use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
use crate::math::optimise::{Ascent, Bounds, Budget, Outcome, Prior, maximise, starts};
use crate::math::returns::differences;
use crate::model::TOLERANCE_MIN;
use crate::snapshot::Inputs;
use crate::transition::Rows;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Rows of the first, cheap stage of the search, in which every start takes part.
const SCREEN_ROWS: usize = 256;
/// Starts that go on to the second stage.
const FINALISTS: usize = 2;
/// Evaluations of one ascent.
const EVALUATIONS: usize = 80;
/// Evaluations of one ascent on the bound: between them the dictionary stays.
const BOUND_EVALUATIONS: usize = 40;
/// Most ascents on the bound. Each uses a dictionary selected at the result of the previous one.
const BOUND_ASCENTS: usize = 4;
/// The ascents on the bound stop when one gains less than this, nats.
const BOUND_GAIN: f64 = 0.5;
/// Added to the dictionary's Gram matrix while it is held fixed, relative to v0: lengthscales that grow would make it
/// singular (docs/mathematics.md (E11)).
const JITTER: f64 = 1e-6;
/// States that the dictionaries of the bound are chosen from: of more, evenly spaced ones.
const CANDIDATES: usize = 20_000;
/// Trace gap that a dictionary aims at, nats: what it leaves out then hardly moves evidence or mean
/// (docs/mathematics.md (D6), (E9)).
const TRACE_GAP: f64 = 2.0;
/// Evidence that a free hyperparameter must gain, nats: an irrelevant one gains half of that by chance, and more where returns
/// share their noise.
const PARAMETER_WORTH: f64 = 1.0;
/// Directions of a factor model that are tried while evidence rises.
const DIRECTIONS_MAX: usize = 4;
/// Largest relevance of a category: two of them then have nothing in common, exp(-25) at most.
const APART: f64 = 25.0;
/// Largest entry of a direction, in normalised coordinates: a lengthscale of a thirtieth of a standard deviation.
const FACTOR_MAX: f64 = 30.0;

/// How far ascents on the exact evidence go.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Starts that go on to the second stage.
    pub(super) finalists: usize,
    /// Evaluations of one ascent.
    pub(super) evaluations: usize,
}

/// The full data set and the candidate inducing points.
struct FullData {
    problem: Problem,
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
    /// Least noise variance relative to that of the targets, where each column of them has its best noise and scale.
    pub(super) profiled: Option<f64>,
}

/// The search of one round of targets, inside a box that the data give.
pub(super) struct Search {
    noise: NoiseModel,
    problem: Problem,
    screen: Problem,
    /// Where the bound is wanted: there are more rows than the exact evidence is computed on, or it was asked for.
    whole: Option<FullData>,
    left_out: Vec<usize>,
    targets: Matrix,
    /// v0, b and sigma0^2 that the data suggest.
    suggested: [f64; 3],
    lower: [f64; 3],
    upper: [f64; 3],
    /// Median step of each normalised coordinate (D,); infinite for categories.
    steps: Vec<f64>,
    profile: Profile,
    kinds: Vec<StateKind>,
    starts: usize,
    pub(super) effort: Effort,
    seed: u64,
}

/// One structure of the covariance, and the box that its parameters are searched in.
#[derive(Clone, Debug)]
pub(super) struct Structure {
    pub(super) name: String,
    pub(super) like: Hyperparameters,
    pub(super) bounds: Bounds,
    priors: Vec<Option<Prior>>,
}

impl Structure {
    /// Places of the relevances among the parameters.
    pub(super) fn relevances(&self) -> std::ops::Range<usize> {
        let metric = &self.like.kernel.metric;
        3..3 + if let Metric::Isotropic(_) = metric { 1 } else { metric.relevance(1).len() }
    }

    /// Parameters that are not held fixed.
    fn free(&self) -> usize {
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
    fn worth(&self) -> f64 {
        self.ascent.log_evidence - PARAMETER_WORTH * self.structure.free() as f64
    }

    pub(super) fn hyperparameters(&self) -> Hyperparameters {
        from_parameters(&self.structure.like, &self.ascent.parameters)
    }
}

impl Search {
    pub(super) fn new(settings: &Settings, data: &Data<'_>) -> Result<Self, RefitError> {
        let Data { rows, inputs, targets, seed, .. } = *data;
        let (square_of_mean, variance) = moments(targets);
        if !(square_of_mean.is_finite() && variance.is_finite()) {
            return Err(RefitError::NotEnough("the returns are not finite".into()));
        }
        if variance <= 1e-20 * square_of_mean {
            return Err(RefitError::NotEnough("all returns are the same: every state is worth the same".into()));
        }
        let noise_scale = if settings.noise == NoiseModel::White {
            let columns: Vec<f64> =
                (0..rows.len()).flat_map(|i| settings.rewards.iter().map(move |&h| rows.reward(i)[h])).collect();
            let (square, spread) = moments(&Matrix::from_rows(rows.len(), settings.rewards.len(), &columns));
            // Deterministic rewards may be all the same; their size is then the only scale there is.
            if spread > 0.0 { spread } else { square.max(f64::MIN_POSITIVE) }
        } else {
            variance
        };
        let total = square_of_mean + variance;
        let (problem, chosen) = subset(settings, rows, inputs, targets, settings.evidence_rows, seed);
        let (screen, _) = subset(settings, rows, inputs, targets, SCREEN_ROWS, seed ^ 0x5eed);
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
            let (problem, _) = subset(settings, rows, inputs, targets, rows.len(), seed);
            let (nodes, dim) = (problem.nodes(), rows.dim);
            let stride = (nodes.len() / dim).div_ceil(CANDIDATES).max(1);
            let candidates = nodes.chunks_exact(dim).step_by(stride).flatten().copied().collect();
            FullData { problem, candidates, stride, room: data.room.max(1) }
        });
        Ok(Self {
            noise: settings.noise,
            problem,
            screen,
            whole,
            left_out: data.left_out.to_vec(),
            targets: chosen,
            suggested: [variance, total, 0.1 * noise_scale],
            lower: [1e-4 * variance, 1e-6 * total, settings.noise_floor * noise_scale],
            upper: [1e3 * total, 1e3 * total, 10.0 * noise_scale],
            steps: median_steps(rows, inputs, settings.kinds(rows.dim)),
            profile: settings.profile,
            kinds: settings.kinds(rows.dim).to_vec(),
            starts: settings.search_starts,
            effort: Effort { finalists: FINALISTS, evaluations: EVALUATIONS },
            seed,
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
    fn structure(&self, metric: Metric, removed: &[usize]) -> Structure {
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
            let most = if removed.contains(&d) || !self.is_real(d) { 0.0 } else { FACTOR_MAX };
            bounds.lower.push(-most);
            bounds.upper.push(most);
            priors.push(Some(Prior { mean: 0.0, sd: 5.0 }));
        }
        let [signal_variance, bias_variance, noise_variance] = self.suggested;
        let kernel =
            Kernel::gaussian(signal_variance, bias_variance, metric).with_profile(self.profile).with_kinds(&self.kinds);
        Structure { name, like: Hyperparameters { kernel, noise: self.noise, noise_variance }, bounds, priors }
    }

    /// Whether directions may go along state variable `d`.
    fn is_real(&self, d: usize) -> bool {
        self.kinds.get(d).is_none_or(|kind| *kind == StateKind::Real)
    }

    /// Evidence at a point, without its gradient; through a dictionary chosen there if it is the bound.
    pub(super) fn value(
        &self,
        by: EvidenceKind,
        hyper: &Hyperparameters,
        keep_going: KeepGoing<'_>,
    ) -> Result<Evidence, EvidenceError> {
        match (by, &self.whole) {
            (EvidenceKind::Sparse, Some(whole)) => {
                let basis = whole.dictionary(hyper, keep_going).ok_or(EvidenceError::Stopped)?;
                sparse_value(&whole.problem, hyper, &basis, Sparse::Vfe, JITTER, keep_going)
            }
            _ => exact_value(&self.problem, hyper, keep_going),
        }
    }

    /// Evidence lost if a state variable were left out, all else as it is (D,), nats, and which evidence. `alike` gives a
    /// variable with its copies: they go together, since any of them stands for the others. If the time is used up, it is the
    /// exact one, which takes little. None if stopped, or if it cannot be computed.
    pub(super) fn support(
        &self,
        by: EvidenceKind,
        hyper: &Hyperparameters,
        alike: &dyn Fn(usize) -> Vec<usize>,
        keep_going: KeepGoing<'_>,
        time_left: KeepGoing<'_>,
    ) -> Option<(Vec<f64>, EvidenceKind)> {
        let dim = self.problem.dim();
        let loss = |by: EvidenceKind, more: KeepGoing<'_>| -> Option<Vec<f64>> {
            let all = self.value(by, hyper, more).ok()?.value;
            let relevance = hyper.kernel.metric.matrix(dim);
            (0..dim)
                .map(|d| match relevance.at(d, d) {
                    0.0 => Some(0.0),
                    _ => Some(all - self.value(by, &without(hyper, &alike(d), dim), more).ok()?.value),
                })
                .collect()
        };
        if by == EvidenceKind::Sparse
            && let Some(support) = loss(by, &|| keep_going() && time_left())
        {
            return Some((support, by));
        }
        Some((loss(EvidenceKind::Exact, keep_going)?, EvidenceKind::Exact))
    }
}

/// When a dictionary for these hyperparameters and so many rewards has enough elements.
pub(super) fn enough(hyper: &Hyperparameters, rewards: usize) -> StoppingRule {
    StoppingRule {
        tolerance: TOLERANCE_MIN * hyper.kernel.signal_variance,
        trace: TRACE_GAP * 2.0 * hyper.noise_variance / rewards as f64,
    }
}

impl FullData {
    /// Elements (m, D) of a dictionary for these hyperparameters; none if stopped.
    fn dictionary(&self, hyper: &Hyperparameters, keep_going: KeepGoing<'_>) -> Option<Vec<f64>> {
        let enough = enough(hyper, self.problem.observed().cols());
        // The candidates stand for all nodes.
        let enough = StoppingRule { trace: enough.trace / self.stride as f64, ..enough };
        let dim = self.problem.dim();
        let (dictionary, _) = pivoted_cholesky(&hyper.kernel, dim, &self.candidates, enough, self.room, keep_going)?;
        Some(dictionary.elements().to_vec())
    }
}

/// The same hyperparameters, blind to the state variables `gone`.
fn without(hyper: &Hyperparameters, gone: &[usize], dim: usize) -> Hyperparameters {
    let mut out = hyper.clone();
    let mut relevance = hyper.kernel.metric.relevance(dim);
    gone.iter().for_each(|&d| relevance[d] = 0.0);
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

/// Parameters of an isotropic model as those of an ARD one with the same covariance.
fn one_for_each(isotropic: &[f64], dim: usize) -> Vec<f64> {
    let (scales, relevance) = isotropic.split_at(3);
    scales.iter().copied().chain(std::iter::repeat_n(relevance[0], dim)).collect()
}

/// A search under way.
pub(super) struct Climb<'a> {
    pub(super) search: &'a Search,
    pub(super) present: &'a Hyperparameters,
    /// What it climbs by at the moment.
    pub(super) by: EvidenceKind,
    /// Told of every ascent and of how many rows it was made on.
    pub(super) note: &'a mut dyn FnMut(&Structure, usize, &[Ascent]),
    pub(super) keep_going: KeepGoing<'a>,
    pub(super) time_left: KeepGoing<'a>,
}

impl Climb<'_> {
    /// The best structure of `kind` by evidence \[JS09, footnote 6 and section 6.2\]. A free parameter has to be worth
    /// [`PARAMETER_WORTH`].
    pub(super) fn select(&mut self, kind: KernelKind, tried: &mut Vec<StructureReport>) -> Result<Found, RefitError> {
        let (mut best, mut evaluations) = (None, 0);
        match self.explore(kind, &mut best, &mut evaluations, tried) {
            // What has been found stands, though a structure beyond it cannot be climbed.
            Err(RefitError::NoAscent(_)) if best.is_some() => {}
            explored => explored?,
        }
        let mut best = best.expect("at least one structure has been tried");
        best.ascent.evaluations = evaluations;
        Ok(best)
    }

    /// One structure after the other; the best so far in `best`.
    fn explore(
        &mut self,
        kind: KernelKind,
        best: &mut Option<Found>,
        evaluations: &mut usize,
        tried: &mut Vec<StructureReport>,
    ) -> Result<(), RefitError> {
        let dim = self.search.problem.dim();
        let left_out = self.search.left_out.clone();
        let mut keep = |found: Found, best: &mut Option<Found>| -> bool {
            tried.push(StructureReport {
                name: found.structure.name.clone(),
                log_evidence: found.ascent.log_evidence,
                parameters: found.structure.free(),
            });
            *evaluations += found.ascent.evaluations;
            let better = best.as_ref().is_none_or(|best| found.worth() > best.worth());
            if better {
                *best = Some(found);
            }
            better
        };
        if matches!(kind, KernelKind::Isotropic | KernelKind::Auto) {
            let isotropic = self.search.structure(Metric::Isotropic(1.0), &[]);
            keep(self.climb(isotropic, Vec::new())?, best);
        }
        let more = |climb: &Self| (climb.time_left)();
        if kind != KernelKind::Isotropic && (best.is_none() || more(self)) && (kind != KernelKind::Auto || dim > 1) {
            let from = best.iter().map(|isotropic| one_for_each(&isotropic.ascent.parameters, dim)).collect();
            let ard = self.climb(self.search.structure(Metric::Ard(vec![1.0; dim]), &left_out), from)?;
            let (mut last, mut gone) = (ard.clone(), left_out.clone());
            keep(ard.clone(), best);
            if kind == KernelKind::Auto && more(self) {
                let removed = self.irrelevant(&ard)?;
                if removed.len() > left_out.len() && removed.len() < dim {
                    let structure = self.search.structure(Metric::Ard(vec![1.0; dim]), &removed);
                    let from = ard.ascent.parameters.clone();
                    let fewer = self.refine(structure, vec![from])?;
                    // Directions among what matters: the rest would only cost time.
                    if keep(fewer.clone(), best) {
                        (last, gone) = (fewer, removed);
                    }
                }
            }
            let along = (0..dim).filter(|&d| self.search.is_real(d)).count();
            let left = (0..dim).filter(|&d| self.search.is_real(d) && !gone.contains(&d)).count();
            let directions = match kind {
                KernelKind::Factor(Some(k)) if along > 0 => k,
                KernelKind::Factor(None) | KernelKind::Auto => left.saturating_sub(1).min(DIRECTIONS_MAX),
                _ => 0,
            };
            for k in 1..=directions {
                if !more(self) {
                    break;
                }
                let metric = Metric::Factor { relevance: vec![1.0; dim], factors: vec![vec![0.0; dim]; k] };
                let structure = self.search.structure(metric, &gone);
                let from = self.with_direction(&last, k);
                let found = self.climb(structure, from)?;
                last = found.clone();
                // A number of directions that was asked for is what is given.
                let asked = matches!(kind, KernelKind::Factor(Some(_)));
                if asked || kind == KernelKind::Factor(None) && k == 1 {
                    *best = None;
                }
                if !keep(found, best) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// If the exact evidence used a subset, continue the ascent on the variational bound of all rows. If variables may be
    /// `removed`, remove those that matter to the subset but not to all rows.
    pub(super) fn refine_on_all_rows(&mut self, found: Found, removable: bool) -> Result<Found, RefitError> {
        if !self.search.has_bound() || found.by == EvidenceKind::Sparse || !(self.time_left)() {
            return Ok(found);
        }
        self.by = EvidenceKind::Sparse;
        let (before, exact) = (found.ascent.evaluations, found.ascent.log_evidence);
        let mut wide = match self.reach(&found.structure, std::slice::from_ref(&found.ascent.parameters)) {
            Ok(Some(wide)) => wide,
            // No time for a single point, or no point that the bound can be computed at: what the exact evidence has found stands.
            Ok(None) | Err(RefitError::NoAscent(_)) => {
                self.by = EvidenceKind::Exact;
                return Ok(found);
            }
            Err(e) => return Err(e),
        };
        let dim = self.search.problem.dim();
        if removable && matches!(wide.structure.like.kernel.metric, Metric::Ard(_)) && (self.time_left)() {
            let removed = self.irrelevant(&wide)?;
            let relevance = wide.hyperparameters().kernel.metric.relevance(dim);
            if removed.len() < dim && removed.iter().any(|&d| relevance[d] > 0.0) {
                let structure = self.search.structure(Metric::Ard(vec![1.0; dim]), &removed);
                let fewer = self.refine(structure, vec![wide.ascent.parameters.clone()])?;
                if fewer.worth() > wide.worth() {
                    wide = Found { ascent: Ascent { evaluations: wide.ascent.evaluations, ..fewer.ascent }, ..fewer };
                }
            }
        }
        wide.ascent.evaluations += before;
        let kept = self.search.value(EvidenceKind::Exact, &wide.hyperparameters(), self.keep_going);
        wide.evidence_loss = kept.ok().map(|kept| exact - kept.value);
        Ok(wide)
    }

    /// State variables that are not worth their parameter, the least relevant first, each with those before it removed; those left
    /// out from the beginning among them. If the time is used up, those found by then.
    fn irrelevant(&self, ard: &Found) -> Result<Vec<usize>, RefitError> {
        let mut hyper = ard.hyperparameters();
        let dim = self.search.problem.dim();
        let relevance = hyper.kernel.metric.relevance(dim);
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|&a, &b| relevance[a].total_cmp(&relevance[b]));
        let mut evidence = ard.ascent.log_evidence;
        let mut removed = Vec::new();
        for d in order {
            if relevance[d] == 0.0 {
                removed.push(d);
                continue;
            }
            if !(self.time_left)() {
                break;
            }
            let fewer = without(&hyper, &[d], dim);
            match self.search.value(self.by, &fewer, self.keep_going) {
                Ok(Evidence { value, .. }) if value >= evidence - PARAMETER_WORTH => {
                    evidence = value;
                    hyper = fewer;
                    removed.push(d);
                }
                Err(EvidenceError::Stopped) => return Err(RefitError::Stopped),
                _ => break,
            }
        }
        removed.sort_unstable();
        Ok(removed)
    }

    /// Starts for k directions from a model with one less: a new direction along the most relevant coordinates, of either
    /// orientation, that takes over part of their relevance.
    fn with_direction(&self, before: &Found, k: usize) -> Vec<Vec<f64>> {
        let dim = self.search.problem.dim();
        let hyper = before.hyperparameters();
        let relevance = hyper.kernel.metric.relevance(dim);
        let mut order: Vec<usize> = (0..dim).filter(|&d| self.search.is_real(d)).collect();
        order.sort_by(|&a, &b| relevance[b].total_cmp(&relevance[a]));
        // What is left out cannot be part of a direction.
        let live = order.iter().filter(|&&d| relevance[d] > 0.0).count().max(1);
        let (first, second) = (order[0], order[k.min(live - 1)]);
        [1.0, -1.0]
            .iter()
            .map(|sign| {
                let mut x = before.ascent.parameters.clone();
                let mut direction = vec![0.0; dim];
                direction[first] = (0.5 * relevance[first]).sqrt().max(0.1);
                direction[second] = sign * (0.5 * relevance[second].max(0.1 * relevance[first])).sqrt().max(0.1);
                x[3 + first] -= std::f64::consts::LN_2;
                x[3 + second] -= std::f64::consts::LN_2;
                x.extend(direction);
                x
            })
            .collect()
    }

    /// Climb again in the same structure, from where the last climb ended.
    pub(super) fn again(&mut self, found: Found) -> Result<Found, RefitError> {
        Ok(Found { evidence_loss: found.evidence_loss, ..self.refine(found.structure, vec![found.ascent.parameters])? })
    }

    /// All starts and `more` ones on few rows, then the best of them on many.
    fn climb(&mut self, structure: Structure, more: Vec<Vec<f64>>) -> Result<Found, RefitError> {
        // A present model of another structure is no start for this one.
        let (present, metric) = (&self.present.kernel.metric, &structure.like.kernel.metric);
        let same = present.kind() == metric.kind() && present.factors().len() == metric.factors().len();
        let random = self.search.starts.saturating_sub(2 + usize::from(same) + more.len());
        // What is known to be good goes first, in case the time does not suffice for all.
        let mut from = more;
        from.extend(starts(
            metric,
            self.search.problem.dim(),
            &self.search.targets,
            same.then_some(self.present),
            &structure.bounds,
            random,
            self.search.seed,
        ));
        let screened = self.ascend(&structure, &self.search.screen, &from);
        (self.note)(&structure, self.search.screen.rows(), &screened);
        let evaluations = screened.iter().map(|a| a.evaluations).sum::<usize>();
        let mut kept: Vec<Vec<f64>> = Vec::new();
        for ascent in screened.into_iter().filter(|a| a.objective.is_finite()) {
            let near = |x: &Vec<f64>| x.iter().zip(&ascent.parameters).all(|(a, b)| a == b || (a - b).abs() < 0.1);
            if kept.len() < self.search.effort.finalists && !kept.iter().any(near) {
                kept.push(ascent.parameters);
            }
        }
        if !(self.keep_going)() {
            return Err(RefitError::Stopped);
        }
        if kept.is_empty() {
            if (self.time_left)() {
                return Err(RefitError::NoAscent("the evidence fails at every start".into()));
            }
            kept.push(from.swap_remove(0));
        }
        let mut found = self.refine(structure, kept)?;
        found.ascent.evaluations += evaluations;
        Ok(found)
    }

    /// Climb on many rows from each of `from`, by the evidence that counts at the moment. If the time is used up before that,
    /// the first of them stands, with its evidence on the same rows as all others.
    fn refine(&mut self, structure: Structure, from: Vec<Vec<f64>>) -> Result<Found, RefitError> {
        match self.reach(&structure, &from)? {
            Some(found) => Ok(found),
            None => {
                let ascent = self.unclimbed(&structure, &from[0])?;
                Ok(Found { structure, ascent, by: self.by, evidence_loss: None })
            }
        }
    }

    /// The best that can be climbed to from `from`; none if there was no time for a single point.
    fn reach(&mut self, structure: &Structure, from: &[Vec<f64>]) -> Result<Option<Found>, RefitError> {
        let by = self.by;
        let mut ascents = match by {
            EvidenceKind::Exact => self.ascend(structure, &self.search.problem, from),
            EvidenceKind::Sparse => self.ascend_bound(structure, from)?,
        };
        (self.note)(structure, self.search.rows(by), &ascents);
        if !(self.keep_going)() {
            return Err(RefitError::Stopped);
        }
        let evaluations = ascents.iter().map(|a| a.evaluations).sum::<usize>();
        ascents.sort_by(|a, b| b.objective.total_cmp(&a.objective));
        if ascents.first().is_some_and(|a| a.objective.is_finite()) {
            let ascent = Ascent { evaluations, ..ascents.swap_remove(0) };
            Ok(Some(Found { structure: structure.clone(), ascent, by, evidence_loss: None }))
        } else if (self.time_left)() {
            Err(RefitError::NoAscent("the evidence fails at every start".into()))
        } else {
            Ok(None)
        }
    }

    fn ascend(&self, structure: &Structure, problem: &Problem, from: &[Vec<f64>]) -> Vec<Ascent> {
        let both = || (self.keep_going)() && (self.time_left)();
        // Ascents may run beside each other: as many evaluators as do.
        let idle: Mutex<Vec<Evaluator>> = Mutex::default();
        maximise(
            |x| {
                let hyper = from_parameters(&structure.like, x);
                let mut evaluator = idle.lock().pop().unwrap_or_default();
                let found = evaluator.exact(problem, &hyper, &both);
                idle.lock().push(evaluator);
                found.map(|e| (e.value, e.gradient))
            },
            from,
            &structure.bounds,
            &structure.priors,
            Budget::new(self.search.effort.evaluations, &both),
        )
    }

    /// From each start ascents on the bound, each through a dictionary chosen where the one before it ended: a dictionary
    /// is good only for lengthscales about those it was chosen for.
    fn ascend_bound(&self, structure: &Structure, from: &[Vec<f64>]) -> Result<Vec<Ascent>, RefitError> {
        let whole = self.search.whole.as_ref().expect("the bound is climbed only where there are more rows");
        let both = || (self.keep_going)() && (self.time_left)();
        let mut ascents: Vec<Ascent> = Vec::new();
        for start in from {
            let (mut at, mut best) = (start.clone(), f64::NEG_INFINITY);
            for _ in 0..BOUND_ASCENTS {
                let hyper = from_parameters(&structure.like, &at);
                let basis = whole.dictionary(&hyper, self.keep_going).ok_or(RefitError::Stopped)?;
                let value = |x: &[f64]| {
                    let hyper = from_parameters(&structure.like, x);
                    let found = sparse(&whole.problem, &hyper, &basis, Sparse::Vfe, JITTER, &both)?;
                    Ok((found.value, found.gradient))
                };
                // A dictionary is not worth more care: the next one moves the bound by more.
                let budget =
                    Budget { gradient_tolerance: 0.05, gain_tolerance: 0.02, ..Budget::new(BOUND_EVALUATIONS, &both) };
                let found = maximise(value, &[at], &structure.bounds, &structure.priors, budget);
                // None if the time was up before it began.
                let Some(found) = found.into_iter().next() else { break };
                let gain = found.objective - best;
                at = found.parameters.clone();
                best = best.max(found.objective);
                ascents.push(found);
                if gain.is_nan() || gain < BOUND_GAIN {
                    break;
                }
            }
        }
        Ok(ascents)
    }

    /// A point as it is, with its evidence; if it is outside the structure's box, the nearest one inside.
    fn unclimbed(&self, structure: &Structure, parameters: &[f64]) -> Result<Ascent, RefitError> {
        let Bounds { lower, upper } = &structure.bounds;
        let inside = |((x, lower), upper): ((&f64, &f64), &f64)| x.max(*lower).min(*upper);
        let parameters: Vec<f64> = parameters.iter().zip(lower).zip(upper).map(inside).collect();
        let hyper = from_parameters(&structure.like, &parameters);
        let found = self.search.value(self.by, &hyper, self.keep_going).map_err(stopped_or_no_ascent)?;
        Ok(Ascent {
            start: 0,
            parameters,
            objective: found.value,
            log_evidence: found.value,
            gradient_norm: f64::INFINITY,
            evaluations: 1,
            active: Vec::new(),
            outcome: Outcome::OutOfBudget,
        })
    }
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

/// About `count` rows as a problem of their own. Under correlated noise pairs of state and return are exchangeable, so rows are
/// spread evenly with a random offset in each stretch; under white noise the return is only in whole runs, so stretches are kept.
fn subset(
    settings: &Settings,
    rows: &Rows,
    inputs: &Inputs,
    targets: &Matrix,
    count: usize,
    seed: u64,
) -> (Problem, Matrix) {
    let (n, mut rng) = (rows.len(), ChaCha8Rng::seed_from_u64(seed));
    let run = if settings.noise == NoiseModel::White { 100 } else { 1 };
    let chosen: Vec<usize> = if n <= count {
        (0..n).collect()
    } else {
        let pieces = (count / run).max(1);
        (0..pieces)
            .flat_map(|k| {
                let (from, to) = (k * n / pieces, (k + 1) * n / pieces);
                let first = from + rng.random_range(0..(to - from + 1).saturating_sub(run).max(1));
                first..(first + run).min(to)
            })
            .collect()
    };
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
        (Problem::correlated(rows.dim, inputs.normalise(&states), y.clone()), y)
    }
}
