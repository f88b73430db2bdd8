//! Model selection: a [`RefitJob`] in, a [`Candidate`] or a reason why not out; one pure function with a stop flag.

use super::batch::Given;
use super::model::{Model, Score, TOLERANCE_MIN, effective_tolerance};
use super::window::Window;
use super::{KernelKind, Settings};
use crate::math::dense::Matrix;
use crate::math::dictionary::Enough;
use crate::math::evidence::{Difference, EvidenceError, Problem, exact, exact_value, from_parameters, parameter_names};
use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use crate::math::optimise::{Ascent, Bounds, Budget, Outcome, Prior, maximise, starts};
use crate::math::posterior::SolveError;
use crate::math::returns::{Returns, differences};
use crate::snapshot::{Inputs, Snapshot};
use crate::transition::Rows;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Fewer rows than this say nothing about five hyperparameters.
const ROWS_MIN: usize = 16;
/// Rows of the first, cheap stage of the search, in which every start takes part.
const SCREEN_ROWS: usize = 256;
/// Starts that go on to the second stage.
const FINALISTS: usize = 2;
/// Evaluations of one ascent.
const EVALUATIONS: usize = 80;
/// Evidence that a structure with more parameters has to gain, nats.
const STRUCTURE_GAIN: f64 = 1.0;
/// Evidence that removing a state variable may cost before it is polished again, nats.
const REMOVAL_COST: f64 = 0.1;
/// Directions of a factor model that are tried while evidence rises.
const DIRECTIONS_MAX: usize = 4;
/// Largest entry of a direction, in normalised coordinates: a lengthscale of a thirtieth of a standard deviation.
const FACTOR_MAX: f64 = 30.0;
/// Share of the cap that batch selection may fill in a running learner: the rest is for what is new before the next refit.
pub(super) const DICTIONARY_SHARE: f64 = 0.9;
/// Trace gap that a rebuilt dictionary aims at, nats: what it leaves out then hardly moves evidence or mean (MATHS.md 2).
const TRACE_GAP: f64 = 2.0;
/// Rounds of targets, ascent, rebuild: bootstrapped targets move with the model.
const ROUNDS: usize = 3;
/// Targets that move by less, in their standard deviations, do not ask for another round ...
const TARGETS_MOVED: f64 = 0.05;
/// ... if it is also less than this in standard deviations of correlated noise: errors in the targets are noise to the
/// evidence, and where there is little other noise they decide what is selected.
const TARGETS_MOVED_NOISE: f64 = 0.1;

/// Why a refit was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefitReason {
    /// Enough rows since the last one.
    Rows,
    /// Incoming rewards are predicted worse than they were.
    ScoreDrop,
    /// Novel states find the dictionary full.
    DictionaryFull,
    /// Somebody asked.
    Requested,
}

impl RefitReason {
    /// The word used on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::ScoreDrop => "score_drop",
            Self::DictionaryFull => "dictionary_full",
            Self::Requested => "requested",
        }
    }
}

/// Everything a refit reads: it owns what it needs, the learner goes on meanwhile.
#[derive(Clone, Debug)]
pub struct RefitJob {
    /// The critic's settings.
    pub settings: Settings,
    /// The retained rows.
    pub window: Window,
    /// The present value function: closes cut chains and is the one to beat.
    pub current: Snapshot,
    /// Names of the state variables, if anybody said.
    pub names: Option<Vec<String>>,
    /// Why now.
    pub reason: RefitReason,
    /// Share of the largest dictionary that may be filled: 1 where nothing more will be learned.
    pub dictionary_share: f64,
    /// Seed of the subset and of the random starts.
    pub seed: u64,
}

/// What a refit found, for people and for judging.
#[derive(Clone, Debug, PartialEq)]
pub struct RefitReport {
    /// Why it was started.
    pub reason: RefitReason,
    /// Rows in the window.
    pub rows: u64,
    /// Rows that the exact evidence was computed on.
    pub evidence_rows: usize,
    /// Log evidence of the present hyperparameters on those rows, nats; none if they fail there.
    pub evidence_before: Option<f64>,
    /// Log evidence of the hyperparameters found, on the same rows and targets, nats.
    pub evidence_after: f64,
    /// Evaluations of the evidence with gradient.
    pub evaluations: usize,
    /// Bounds that hold the optimum, in words; empty if none.
    pub active_bounds: Vec<String>,
    /// Whether the time budget ended the search.
    pub out_of_time: bool,
    /// Dictionary size of the rebuilt model.
    pub dictionary_size: usize,
    /// Variational trace gap of the rebuilt model, nats (above 5: the dictionary is too small to select with).
    pub trace_gap: f64,
    /// ICD tolerance of the rebuilt model relative to v0 + b.
    pub tolerance: f64,
    /// Rows that it never learned, because the stream was faster than it could be caught up.
    pub rows_left_out: u64,
    /// The structures that were compared, in the order in which they were tried.
    pub structures: Vec<StructureReport>,
    /// Evidence lost if a state variable were left out and all else stayed (D,), nats; empty if the time ran out before.
    pub support: Vec<f64>,
    /// Every ascent, those on few rows first, later rounds last; within a stage the best first.
    pub ascents: Vec<AscentReport>,
}

/// A structure of the covariance that model selection has tried.
#[derive(Clone, Debug, PartialEq)]
pub struct StructureReport {
    /// In words: "isotropic", "ard", "ard without 1, 4" (state variables removed), "factor with 2 directions".
    pub name: String,
    /// Best log evidence found, nats, on the rows that all structures were compared on.
    pub log_evidence: f64,
    /// Free hyperparameters.
    pub parameters: usize,
}

/// One ascent of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct AscentReport {
    /// Round of targets, from 1.
    pub round: usize,
    /// Name of its structure.
    pub structure: String,
    /// Names of its parameters.
    pub names: Vec<String>,
    /// Rows that its evidence was computed on.
    pub rows: usize,
    /// Where it went.
    pub ascent: Ascent,
}

/// A model ready to be caught up, judged and adopted.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The rebuilt model; its score counts from [`Candidate::through`] on.
    pub model: Box<Model>,
    /// It has learned the rows before this offset.
    pub through: u64,
    /// Times it has been caught up so far.
    pub rounds: u32,
    /// How it was found.
    pub report: RefitReport,
}

impl Candidate {
    /// Learn all rows of `window` from [`Candidate::through`] on, and refresh: this may take its time. Rows that the window has
    /// forgotten by now are left out.
    pub fn catch_up(&mut self, window: &Window) {
        self.skip_to(window.start());
        self.take_tail(window);
        // The next refresh is then a whole interval away, and not in the pause of the adoption.
        self.model.refresh();
        self.rounds += 1;
    }

    /// Leave out the rows up to `offset`, if it is not that far yet: chains end before them.
    pub fn skip_to(&mut self, offset: u64) {
        if offset > self.through {
            self.model.cut_running_chains();
            self.report.rows_left_out += offset - self.through;
            self.through = offset;
        }
    }

    /// Learn the last few rows, between two batches.
    ///
    /// # Panics
    /// If the window has forgotten those rows.
    pub fn take_tail(&mut self, window: &Window) {
        for (rows, range, offset) in window.since(self.through) {
            self.model.learn(rows, range, offset);
        }
        self.through = window.end();
    }

    /// Score of rows that it has seen only after it was fitted.
    pub fn score(&self) -> Score {
        self.model.score()
    }
}

/// Why there is no candidate: the present model stays.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RefitError {
    /// The stop flag went up.
    Stopped,
    /// There is not enough information in the rows, and this is what is missing.
    NotEnough(String),
    /// No ascent got anywhere.
    NoAscent(String),
    /// The rebuilt model has no posterior.
    Solve(SolveError),
    /// The rebuilt model predicts values that the rewards cannot add up to.
    Wild {
        /// Largest magnitude predicted at a dictionary element.
        value: f64,
        /// Largest that rewards and discount allow.
        bound: f64,
    },
}

impl fmt::Display for RefitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => write!(f, "stopped"),
            Self::NotEnough(what) => write!(f, "not enough information, keeping the current model: {what}"),
            Self::NoAscent(what) => write!(f, "no hyperparameters found: {what}"),
            Self::Solve(e) => write!(f, "the rebuilt model fails: {e}"),
            Self::Wild { value, bound } => {
                write!(f, "the rebuilt model predicts {value:.3e} where rewards allow {bound:.3e}")
            }
        }
    }
}

impl std::error::Error for RefitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Solve(e) => Some(e),
            _ => None,
        }
    }
}

impl From<SolveError> for RefitError {
    fn from(e: SolveError) -> Self {
        Self::Solve(e)
    }
}

/// Select a model on the window and rebuild everything under it.
///
/// `keep_going` is the stop flag: once false, the answer is [`RefitError::Stopped`]. `time_left` is the time budget: once
/// false, ascents end where they are and the best point so far is used.
///
/// # Errors
/// Any reason for which the present model should stay.
pub fn run(
    job: &RefitJob,
    keep_going: &dyn Fn() -> bool,
    time_left: &dyn Fn() -> bool,
) -> Result<Candidate, RefitError> {
    let settings = &job.settings;
    let rows = job.window.flatten();
    if rows.len() < ROWS_MIN {
        return Err(RefitError::NotEnough(format!("{} rows, at least {ROWS_MIN} are needed", rows.len())));
    }
    let inputs = normalisation(&rows, job.names.clone());
    let returns = Returns::new(&rows, &settings.rewards, settings.discount);
    let cut_states = returns.cut_states(&rows);
    let mut targets = returns.targets(&values_at(&job.current, &cut_states));
    let present = rescaled(&job.current.hyperparameters, &job.current.inputs, &inputs);
    let mut best: Option<Found> = None;
    let mut structures = Vec::new();
    let mut evaluations = 0;
    let mut ascents = Vec::new();
    let mut round = 1;
    loop {
        let search = Search::new(settings, &rows, &inputs, &targets, job.seed)?;
        let mut note = |structure: &Structure, rows, found: &[Ascent]| {
            let names = parameter_names(&structure.like.kernel.metric, inputs.dim());
            ascents.extend(found.iter().map(|ascent| AscentReport {
                round,
                structure: structure.name.clone(),
                names: names.clone(),
                rows,
                ascent: ascent.clone(),
            }));
        };
        let mut climb = Climb { search: &search, present: &present, note: &mut note, keep_going, time_left };
        let found = match best.take() {
            // Targets that have moved a little do not ask for another structure.
            Some(found) => climb.again(found)?,
            None => climb.select(settings.kernel, &mut structures)?,
        };
        evaluations += found.ascent.evaluations;
        let hyperparameters = found.hyperparameters();
        let mut model = rebuild(job, &inputs, &hyperparameters, &rows, keep_going)?;
        let snapshot = model.snapshot(false)?;
        let moved = returns.targets(&values_at(&snapshot, &cut_states));
        let shift = distance_in_deviations(&targets, &moved);
        if shift > targets_settled(&hyperparameters, &moved) && round < ROUNDS && time_left() {
            targets = moved;
            best = Some(found);
            round += 1;
            continue;
        }
        sane(&snapshot, &rows, settings)?;
        model.rescatter(std::iter::once((&rows, 0..rows.len())));
        model.reset_score();
        let posterior = model.solve()?;
        let names = parameter_names(&hyperparameters.kernel.metric, inputs.dim());
        let bounds = found
            .ascent
            .active
            .iter()
            .map(|b| format!("{} at its {} bound", names[b.parameter], if b.upper { "upper" } else { "lower" }));
        let diagonal = model.dictionary().kernel().diagonal();
        let report = RefitReport {
            reason: job.reason,
            rows: rows.len() as u64,
            evidence_rows: search.problem.rows(),
            evidence_before: search.value(&present, keep_going).ok(),
            evidence_after: found.ascent.log_evidence,
            evaluations,
            support: search.support(&hyperparameters, found.ascent.log_evidence, keep_going, time_left),
            structures,
            active_bounds: bounds.collect(),
            out_of_time: !time_left(),
            dictionary_size: model.dictionary().len(),
            trace_gap: posterior.trace_gap(model.statistics()),
            tolerance: model.dictionary().tolerance() / diagonal,
            rows_left_out: 0,
            ascents,
        };
        return Ok(Candidate { model: Box::new(model), through: job.window.end(), rounds: 0, report });
    }
}

/// A data-driven model for the time before the first refit: scales from the rows, relevances of one lengthscale per
/// square root of D.
pub fn first_guess(rows: &Rows, settings: &Settings, names: Option<Vec<String>>) -> (Inputs, Hyperparameters) {
    let inputs = normalisation(rows, names);
    let returns = Returns::new(rows, &settings.rewards, settings.discount);
    let rewards = settings.rewards.len();
    // Cut chains are closed by what an average row collects: a first pass to learn it, a second to use it.
    let open = returns.targets(&Matrix::zeros(returns.cuts.len(), rewards));
    let mut closed = Matrix::zeros(returns.cuts.len(), rewards);
    for h in 0..rewards {
        let mean = open.col(h).iter().sum::<f64>() / rows.len().max(1) as f64;
        closed.col_mut(h).fill(mean);
    }
    let (mean_square, variance) = moments(&returns.targets(&closed));
    let floor = (1e-6 * mean_square).max(1e-12);
    let variance = variance.max(floor);
    let dim = inputs.dim();
    let metric = match settings.kernel {
        KernelKind::Isotropic => Metric::Isotropic(1.0 / dim as f64),
        _ => Metric::Ard(vec![1.0 / dim as f64; dim]),
    };
    let kernel = Kernel { signal_variance: variance, bias_variance: mean_square + variance, metric };
    (inputs, Hyperparameters { kernel, noise: settings.noise, noise_variance: 0.1 * variance })
}

/// Shift and scale of each state variable: mean and standard deviation over the rows; a constant one keeps its unit.
fn normalisation(rows: &Rows, names: Option<Vec<String>>) -> Inputs {
    let (dim, n) = (rows.dim, rows.len().max(1) as f64);
    let mut inputs = Inputs { names, ..Inputs::identity(dim) };
    for d in 0..dim {
        let column = || rows.states.iter().skip(d).step_by(dim);
        let mean = column().sum::<f64>() / n;
        let deviation = (column().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n).sqrt();
        inputs.shift[d] = mean;
        // What is left of a constant after subtracting its mean is rounding, not a scale.
        inputs.scale[d] = if deviation > 1e-12 * mean.abs().max(1e-300) { deviation } else { 1.0 };
    }
    inputs
}

/// Mean square and variance about the mean of all targets, averaged over rewards.
fn moments(targets: &Matrix) -> (f64, f64) {
    let (n, columns) = (targets.rows().max(1) as f64, targets.cols().max(1) as f64);
    let (mut square_of_mean, mut variance) = (0.0, 0.0);
    for h in 0..targets.cols() {
        let mean = targets.col(h).iter().sum::<f64>() / n;
        square_of_mean += mean * mean / columns;
        variance += targets.col(h).iter().map(|y| (y - mean) * (y - mean)).sum::<f64>() / n / columns;
    }
    (square_of_mean, variance)
}

/// Values (k, H) of `snapshot` at states (k, D), row-major.
fn values_at(snapshot: &Snapshot, states: &[f64]) -> Matrix {
    match snapshot.evaluate(states, false) {
        Ok(evaluation) => Matrix::from(&evaluation.mean),
        // States of the window have been checked when they came in.
        Err(e) => unreachable!("a retained state cannot be evaluated: {e}"),
    }
}

/// Root mean square change of the targets in units of their standard deviation.
fn distance_in_deviations(before: &Matrix, after: &Matrix) -> f64 {
    let count = (before.rows() * before.cols()).max(1) as f64;
    let mut square = 0.0;
    for h in 0..before.cols() {
        square += before.col(h).iter().zip(after.col(h)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    }
    let (_, variance) = moments(after);
    if square == 0.0 { 0.0 } else { (square / count / variance.max(f64::MIN_POSITIVE)).sqrt() }
}

/// How far targets may move, in their standard deviations, without asking for another round.
fn targets_settled(hyperparameters: &Hyperparameters, targets: &Matrix) -> f64 {
    match hyperparameters.noise {
        NoiseModel::White => TARGETS_MOVED,
        NoiseModel::Correlated => {
            let (_, variance) = moments(targets);
            let noise = (hyperparameters.noise_variance / variance.max(f64::MIN_POSITIVE)).sqrt();
            TARGETS_MOVED.min(TARGETS_MOVED_NOISE * noise)
        }
    }
}

/// The same metric in other normalised coordinates.
fn rescaled(hyperparameters: &Hyperparameters, from: &Inputs, to: &Inputs) -> Hyperparameters {
    let ratio: Vec<f64> = to.scale.iter().zip(&from.scale).map(|(to, from)| to / from).collect();
    let mut out = hyperparameters.clone();
    match &mut out.kernel.metric {
        Metric::Isotropic(h) => {
            let log = ratio.iter().map(|r| r.ln()).sum::<f64>() / ratio.len() as f64;
            *h *= (2.0 * log).exp();
        }
        Metric::Ard(a) => a.iter_mut().zip(&ratio).for_each(|(a, r)| *a *= r * r),
        Metric::Factor { relevance, factors } => {
            relevance.iter_mut().zip(&ratio).for_each(|(a, r)| *a *= r * r);
            factors.iter_mut().flat_map(|f| f.iter_mut().zip(&ratio)).for_each(|(f, r)| *f *= r);
        }
    }
    out
}

/// The search of one round: exact evidence on a subset of the rows, inside a box that the data give.
struct Search {
    noise: NoiseModel,
    problem: Problem,
    screen: Problem,
    targets: Matrix,
    /// v0, b and sigma0^2 that the data suggest.
    suggested: [f64; 3],
    lower: [f64; 3],
    upper: [f64; 3],
    /// Median step of each normalised coordinate (D,).
    steps: Vec<f64>,
    starts: usize,
    seed: u64,
}

/// One structure of the covariance, and the box that its parameters are searched in.
#[derive(Clone, Debug)]
struct Structure {
    name: String,
    like: Hyperparameters,
    bounds: Bounds,
    priors: Vec<Option<Prior>>,
}

impl Structure {
    /// Parameters that are not held fixed.
    fn free(&self) -> usize {
        self.bounds.lower.iter().zip(&self.bounds.upper).filter(|(l, u)| l != u).count()
    }
}

/// A structure with the best point found in it.
#[derive(Clone, Debug)]
struct Found {
    structure: Structure,
    ascent: Ascent,
}

impl Found {
    fn hyperparameters(&self) -> Hyperparameters {
        from_parameters(&self.structure.like, &self.ascent.parameters)
    }
}

impl Search {
    fn new(settings: &Settings, rows: &Rows, inputs: &Inputs, targets: &Matrix, seed: u64) -> Result<Self, RefitError> {
        let (mean_square, variance) = moments(targets);
        if !(mean_square.is_finite() && variance.is_finite()) {
            return Err(RefitError::NotEnough("the returns are not finite".into()));
        }
        if variance <= 1e-20 * mean_square || (variance == 0.0 && mean_square == 0.0) {
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
        let total = mean_square + variance;
        let (problem, chosen) = subset(settings, rows, inputs, targets, settings.evidence_rows, seed);
        let (screen, _) = subset(settings, rows, inputs, targets, SCREEN_ROWS, seed ^ 0x5eed);
        Ok(Self {
            noise: settings.noise,
            problem,
            screen,
            targets: chosen,
            suggested: [variance, total, 0.1 * noise_scale],
            lower: [1e-4 * variance, 1e-6 * total, settings.noise_floor * noise_scale],
            upper: [1e3 * total, 1e3 * total, 10.0 * noise_scale],
            steps: median_steps(rows, inputs),
            starts: settings.starts,
            seed,
        })
    }

    /// Box and weak priors of a structure: `metric` says how many parameters there are, `removed` which relevances are held at
    /// zero.
    fn structure(&self, metric: Metric, removed: &[usize]) -> Structure {
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
        // A hundredfold either way costs half a nat or two.
        let weak = |mean: f64| Some(Prior { mean, sd: 4.0 });
        let mut priors: Vec<Option<Prior>> = self.suggested.iter().map(|v| weak(v.ln())).collect();
        let smallest = [self.steps.iter().copied().fold(f64::INFINITY, f64::min)];
        let steps = if matches!(metric, Metric::Isotropic(_)) { &smallest[..] } else { &self.steps };
        for (d, step) in steps.iter().enumerate() {
            let gone = removed.contains(&d);
            bounds.lower.push(if gone { f64::NEG_INFINITY } else { 1e-6f64.ln() });
            // Lengthscales below one step interpolate each episode's return (MATHS.md 2, trap b).
            let finest = (1.0 / (step * step)).clamp(1.0, 1e4).ln();
            bounds.upper.push(if gone { f64::NEG_INFINITY } else { finest });
            priors.push(if gone { None } else { weak((1.0 / dim as f64).ln()) });
        }
        for _ in 0..directions * dim {
            // A direction's length squared is a relevance along it.
            bounds.lower.push(-FACTOR_MAX);
            bounds.upper.push(FACTOR_MAX);
            priors.push(Some(Prior { mean: 0.0, sd: 5.0 }));
        }
        let [signal_variance, bias_variance, noise_variance] = self.suggested;
        let kernel = Kernel { signal_variance, bias_variance, metric };
        Structure { name, like: Hyperparameters { kernel, noise: self.noise, noise_variance }, bounds, priors }
    }

    fn value(&self, hyper: &Hyperparameters, keep_going: &dyn Fn() -> bool) -> Result<f64, EvidenceError> {
        Ok(exact_value(&self.problem, hyper, keep_going)?.value)
    }

    /// Evidence lost if a state variable were left out, all else as it is (D,), nats.
    fn support(
        &self,
        hyper: &Hyperparameters,
        evidence: f64,
        keep_going: &dyn Fn() -> bool,
        time_left: &dyn Fn() -> bool,
    ) -> Vec<f64> {
        let dim = self.problem.dim();
        let mut support = Vec::with_capacity(dim);
        for d in 0..dim {
            if !time_left() {
                return Vec::new();
            }
            let Ok(value) = self.value(&without(hyper, d, dim), keep_going) else { return Vec::new() };
            support.push(evidence - value);
        }
        support
    }
}

/// The same hyperparameters, blind to state variable `d`.
fn without(hyper: &Hyperparameters, d: usize, dim: usize) -> Hyperparameters {
    let mut out = hyper.clone();
    let mut relevance = hyper.kernel.metric.relevance(dim);
    relevance[d] = 0.0;
    out.kernel.metric = match &hyper.kernel.metric {
        Metric::Factor { factors, .. } => {
            let mut factors = factors.clone();
            factors.iter_mut().for_each(|f| f[d] = 0.0);
            Metric::Factor { relevance, factors }
        }
        _ => Metric::Ard(relevance),
    };
    out
}

/// A search under way.
struct Climb<'a> {
    search: &'a Search,
    present: &'a Hyperparameters,
    /// Told of every ascent and of how many rows it was made on.
    note: &'a mut dyn FnMut(&Structure, usize, &[Ascent]),
    keep_going: &'a dyn Fn() -> bool,
    time_left: &'a dyn Fn() -> bool,
}

impl Climb<'_> {
    /// The best structure of `kind` by evidence \[JS09, footnote 6 and section 6.2\]. One with more parameters has to gain
    /// [`STRUCTURE_GAIN`] over those before it.
    fn select(&mut self, kind: KernelKind, tried: &mut Vec<StructureReport>) -> Result<Found, RefitError> {
        let dim = self.search.problem.dim();
        let mut best: Option<Found> = None;
        let mut evaluations = 0;
        let mut keep = |found: Found, best: &mut Option<Found>, simpler: bool| -> bool {
            tried.push(StructureReport {
                name: found.structure.name.clone(),
                log_evidence: found.ascent.log_evidence,
                parameters: found.structure.free(),
            });
            evaluations += found.ascent.evaluations;
            let needed = if simpler { -STRUCTURE_GAIN } else { STRUCTURE_GAIN };
            let better = best.as_ref().is_none_or(|best| found.ascent.log_evidence > best.ascent.log_evidence + needed);
            if better {
                *best = Some(found);
            }
            better
        };
        if matches!(kind, KernelKind::Isotropic | KernelKind::Auto) {
            let isotropic = self.search.structure(Metric::Isotropic(1.0), &[]);
            keep(self.climb(isotropic, Vec::new())?, &mut best, false);
        }
        let more = |climb: &Self| (climb.time_left)();
        if kind != KernelKind::Isotropic && (best.is_none() || more(self)) && (kind != KernelKind::Auto || dim > 1) {
            let ard = self.climb(self.search.structure(Metric::Ard(vec![1.0; dim]), &[]), Vec::new())?;
            let mut last = ard.clone();
            keep(ard.clone(), &mut best, false);
            if kind == KernelKind::Auto && more(self) {
                let removed = self.irrelevant(&ard)?;
                if !removed.is_empty() && removed.len() < dim {
                    let structure = self.search.structure(Metric::Ard(vec![1.0; dim]), &removed);
                    let from = ard.ascent.parameters.clone();
                    keep(self.polish(structure, vec![from])?, &mut best, true);
                }
            }
            let directions = match kind {
                KernelKind::Factor(Some(k)) => k,
                KernelKind::Factor(None) | KernelKind::Auto => dim.saturating_sub(1).min(DIRECTIONS_MAX),
                _ => 0,
            };
            for k in 1..=directions {
                if !more(self) {
                    break;
                }
                let metric = Metric::Factor { relevance: vec![1.0; dim], factors: vec![vec![0.0; dim]; k] };
                let structure = self.search.structure(metric, &[]);
                let from = self.with_direction(&last, k);
                let found = self.climb(structure, from)?;
                last = found.clone();
                // A number of directions that was asked for is what is given.
                let asked = matches!(kind, KernelKind::Factor(Some(_)));
                if asked || kind == KernelKind::Factor(None) && k == 1 {
                    best = None;
                }
                if !keep(found, &mut best, false) {
                    break;
                }
            }
        }
        let mut best = best.expect("at least one structure has been tried");
        best.ascent.evaluations = evaluations;
        Ok(best)
    }

    /// State variables whose removal costs no evidence, the least relevant first, each with those before it removed.
    fn irrelevant(&self, ard: &Found) -> Result<Vec<usize>, RefitError> {
        let mut hyper = ard.hyperparameters();
        let dim = self.search.problem.dim();
        let relevance = hyper.kernel.metric.relevance(dim);
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|&a, &b| relevance[a].total_cmp(&relevance[b]));
        let mut evidence = ard.ascent.log_evidence;
        let mut removed = Vec::new();
        for d in order {
            let fewer = without(&hyper, d, dim);
            match self.search.value(&fewer, self.keep_going) {
                Ok(value) if value >= evidence - REMOVAL_COST => {
                    evidence = evidence.max(value);
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
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|&a, &b| relevance[b].total_cmp(&relevance[a]));
        let (first, second) = (order[0], order[(k.min(dim - 1)).max(1) % dim]);
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
    fn again(&mut self, found: Found) -> Result<Found, RefitError> {
        self.polish(found.structure, vec![found.ascent.parameters])
    }

    /// All starts and `more` ones on few rows, then the best of them on many.
    fn climb(&mut self, structure: Structure, more: Vec<Vec<f64>>) -> Result<Found, RefitError> {
        // A present model of another structure is no start for this one.
        let (present, metric) = (&self.present.kernel.metric, &structure.like.kernel.metric);
        let same = present.kind() == metric.kind() && present.factors().len() == metric.factors().len();
        let random = self.search.starts.saturating_sub(2 + usize::from(same) + more.len());
        let mut from = starts(
            metric,
            self.search.problem.dim(),
            &self.search.targets,
            same.then_some(self.present),
            &structure.bounds,
            random,
            self.search.seed,
        );
        from.extend(more);
        let screened = self.ascend(&structure, &self.search.screen, &from);
        (self.note)(&structure, self.search.screen.rows(), &screened);
        let evaluations = screened.iter().map(|a| a.evaluations).sum::<usize>();
        let mut kept: Vec<Vec<f64>> = Vec::new();
        for ascent in screened.into_iter().filter(|a| a.objective.is_finite()) {
            let near = |x: &Vec<f64>| x.iter().zip(&ascent.parameters).all(|(a, b)| a == b || (a - b).abs() < 0.1);
            if kept.len() < FINALISTS && !kept.iter().any(near) {
                kept.push(ascent.parameters);
            }
        }
        if !(self.keep_going)() {
            return Err(RefitError::Stopped);
        }
        if kept.is_empty() {
            return Err(RefitError::NoAscent("the evidence fails at every start".into()));
        }
        let mut found = self.polish(structure, kept)?;
        found.ascent.evaluations += evaluations;
        Ok(found)
    }

    /// Climb on many rows from each of `from`.
    fn polish(&mut self, structure: Structure, from: Vec<Vec<f64>>) -> Result<Found, RefitError> {
        let mut ascents = self.ascend(&structure, &self.search.problem, &from);
        (self.note)(&structure, self.search.problem.rows(), &ascents);
        if !(self.keep_going)() {
            return Err(RefitError::Stopped);
        }
        let evaluations = ascents.iter().map(|a| a.evaluations).sum::<usize>();
        let mut ascent = if ascents.first().is_some_and(|a| a.objective.is_finite()) {
            ascents.swap_remove(0)
        } else if (self.time_left)() {
            return Err(RefitError::NoAscent("the evidence fails at every start".into()));
        } else {
            // The time is used up: the best point so far stands, with its evidence on the same rows as all others.
            self.unclimbed(&structure, &from[0])?
        };
        ascent.evaluations = evaluations;
        Ok(Found { structure, ascent })
    }

    fn ascend(&self, structure: &Structure, problem: &Problem, from: &[Vec<f64>]) -> Vec<Ascent> {
        let both = || (self.keep_going)() && (self.time_left)();
        maximise(
            |x| exact(problem, &from_parameters(&structure.like, x), &both).map(|e| (e.value, e.gradient)),
            from,
            &structure.bounds,
            &structure.priors,
            Budget::new(EVALUATIONS, &both),
        )
    }

    /// A point as it is, with its evidence.
    fn unclimbed(&self, structure: &Structure, parameters: &[f64]) -> Result<Ascent, RefitError> {
        let hyper = from_parameters(&structure.like, parameters);
        let found = exact(&self.search.problem, &hyper, self.keep_going).map_err(|e| match e {
            EvidenceError::Stopped => RefitError::Stopped,
            other => RefitError::NoAscent(other.to_string()),
        })?;
        Ok(Ascent {
            start: 0,
            parameters: parameters.to_vec(),
            objective: found.value,
            log_evidence: found.value,
            gradient_norm: found.gradient.iter().fold(0.0, |a, g| g.abs().max(a)),
            evaluations: 1,
            active: Vec::new(),
            outcome: Outcome::OutOfBudget,
        })
    }
}

/// Median length of a step of each normalised state variable, over rows in which it moves.
fn median_steps(rows: &Rows, inputs: &Inputs) -> Vec<f64> {
    let stride = (rows.len() / 4000).max(1);
    (0..inputs.dim())
        .map(|d| {
            let step = |i: usize| ((rows.next_state(i)[d] - rows.state(i)[d]) / inputs.scale[d]).abs();
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
                let first = from + rng.random_range(0..(to - from).saturating_sub(run).max(1));
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

/// Dictionary by pivoted ICD, then one pass over all rows, then noise and scale from the statistics.
fn rebuild(
    job: &RefitJob,
    inputs: &Inputs,
    hyperparameters: &Hyperparameters,
    rows: &Rows,
    keep_going: &dyn Fn() -> bool,
) -> Result<Model, RefitError> {
    let settings = &job.settings;
    let given = Given { settings, rows, inputs, hyperparameters };
    let room = (settings.dictionary_max as f64 * job.dictionary_share) as usize;
    // What the dictionary leaves out of all rows together must stay small against the noise, so with more rows it has to
    // be finer: the tolerance of the settings is an upper bound.
    let tolerance = effective_tolerance(settings, hyperparameters);
    let enough = Enough {
        tolerance: TOLERANCE_MIN * hyperparameters.kernel.diagonal(),
        trace: TRACE_GAP * 2.0 * hyperparameters.noise_variance,
    };
    let selection = given.select(enough, room);
    let mut dictionary = selection.dictionary;
    let finest = selection.residuals.last().copied().unwrap_or(tolerance);
    dictionary.set_tolerance(tolerance.min(finest.max(enough.tolerance)));
    dictionary.set_max(settings.dictionary_max);
    given.model(dictionary, keep_going).map_err(|_| RefitError::Stopped)
}

/// Values cannot exceed what rewards and discounts add up to. A fixed point of bootstrapped targets that does is an artefact of
/// too little data.
fn sane(snapshot: &Snapshot, rows: &Rows, settings: &Settings) -> Result<(), RefitError> {
    let largest = (0..rows.len())
        .flat_map(|i| settings.rewards.iter().map(move |&h| rows.reward(i)[h].abs()))
        .fold(0.0, f64::max);
    // Rows may carry discounts of their own, above the critic's.
    let discount = (0..rows.len()).map(|i| rows.discount(i, settings.discount)).fold(0.0, f64::max);
    let horizon = if discount < 1.0 { 1.0 / (1.0 - discount) } else { rows.len() as f64 };
    // Twice: a Gaussian process overshoots at the rim of its data.
    let bound = 2.0 * largest * horizon.min(1e9);
    let kernel = &snapshot.hyperparameters.kernel;
    let (m, dim) = (snapshot.dictionary.nrows(), snapshot.dim());
    let points = kernel.project(dim, snapshot.dictionary.transpose().as_slice());
    let mut gram = Matrix::zeros(m, m);
    kernel.block(kernel.projected_dim(dim), &points, &points, &mut gram.view_mut());
    let values = gram.to_nalgebra() * &snapshot.weights;
    let value = values.amax();
    if value.is_finite() && value <= bound { Ok(()) } else { Err(RefitError::Wild { value, bound }) }
}
