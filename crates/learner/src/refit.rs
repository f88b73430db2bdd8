//! Model selection: a [`RefitJob`] in, a [`Candidate`] or a reason why not out; one pure function with a stop flag.

use super::batch::{BatchError, Given};
use super::model::{Model, Score, effective_tolerance};
use super::referee::{self, Choice, Question};
pub use super::referee::{CandidateReport, LambdaReport, SelectionReport};
pub use super::report::{AscentReport, EvidenceKind, RefitReport, StructureReport, VariableReport, Verdict};
use super::report::{Circumstances, Dependence, evidence_diagnostics, scale_of, selection_diagnostics, variables};
use super::search::{Climb, Data, Found, Search, Structure, enough};
use super::window::Window;
use super::{Alarm, KernelKind, Lambda, SelectBy, Settings};
use crate::math::dense::Matrix;
use crate::math::embedding::StateKind;
use crate::math::evidence::{EvidenceError, KeepGoing, parameter_names};
use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Points};
use crate::math::optimise::{ActiveBound, Ascent, Outcome};
use crate::math::posterior::SolveError;
use crate::math::returns::Returns;
use crate::snapshot::{Ask, Inputs, Snapshot};
use crate::transition::Rows;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Fewer rows than this say nothing about five hyperparameters.
const ROWS_MIN: usize = 16;
/// Rows that are learned or evaluated between two looks at the stop flag.
const CATCH_UP_ROWS: usize = 512;
/// Share of the cap that batch selection may fill in a running learner: the rest is for what is new before the next refit.
pub(super) const DICTIONARY_SHARE: f64 = 0.9;
/// Share of a refit's budget of processor time that its search may use: the rest is for rebuilding dictionary and posterior.
pub const SEARCH_SHARE: f64 = 0.7;
/// Relevance of each discrete action before the first selection: two of them correlate by 0.9.
const CHOICE_RELEVANCE: f64 = 0.1;
/// Place of the noise among the parameters.
const NOISE: usize = 2;
/// Rounds of targets, ascent, rebuild: bootstrapped targets move with the model.
const ROUNDS: usize = 3;
/// Stop iterating when the targets move by less than this many standard deviations of the targets.
const TARGETS_MOVED: f64 = 0.05;
/// Also require that the targets move by less than this many standard deviations of the noise: errors in the targets are noise
/// to the evidence, and decide the selection where there is little other noise.
const TARGETS_MOVED_NOISE: f64 = 0.1;
/// A candidate is outdated where more than this times the rows that chose it have arrived since: what few rows can tell apart is not
/// what so many more would choose.
const OUTDATED: u64 = 4;
/// Times that an outdated candidate is selected again: rows may go on arriving faster than any selection ends.
const AGAIN_MAX: u32 = 2;
/// Half-lives of rows that a refit looks at where rows are forgotten: those before them have 0.4 % of the weight.
const HALF_LIVES: f64 = 8.0;

/// Why a refit was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefitTrigger {
    /// Enough rows since the last one.
    Rows,
    /// Incoming rewards are predicted worse than they were.
    ScoreDrop,
    /// Novel states find the dictionary full.
    DictionaryFull,
    /// A request.
    Requested,
}

impl RefitTrigger {
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
    /// Rows before this offset are of a world that is no more, or of a policy that acts no more: they are left out.
    pub from: u64,
    /// The present value function: closes cut chains and is the one to beat.
    pub current: Snapshot,
    /// Names of the state variables, if anybody said.
    pub names: Option<Vec<String>>,
    /// Why now.
    pub trigger: RefitTrigger,
    /// Share of the largest dictionary that may be filled: 1 where nothing more will be learned.
    pub dictionary_share: f64,
    /// Seed of the subset and of the random starts.
    pub seed: u64,
}

impl RefitJob {
    /// Most elements of the rebuilt dictionary.
    fn room(&self) -> usize {
        ((self.settings.dictionary_max as f64 * self.dictionary_share) as usize).max(1)
    }

    /// The same question of other rows.
    fn asked_of(&self, window: Window) -> Self {
        Self {
            settings: self.settings.clone(),
            window,
            current: self.current.clone(),
            names: self.names.clone(),
            trigger: self.trigger,
            dictionary_share: self.dictionary_share,
            from: self.from,
            seed: self.seed,
        }
    }

    /// What was found in the window.
    fn candidate(&self, model: Model, report: RefitReport) -> Candidate {
        let through = self.window.end();
        // Without the rows: a candidate must not keep alive what the window forgets.
        let asked = self.asked_of(Window::starting_at(self.window.dim(), self.window.rewards_per_row(), 1, through));
        Candidate {
            model: Box::new(model),
            through,
            from: self.first(),
            alarm: None,
            rounds: 0,
            report,
            asked: Box::new(asked),
            again: 0,
        }
    }

    /// Offset of the first row that it looks at: none before [`RefitJob::from`]. Where rows are forgotten it is that of
    /// the last [`HALF_LIVES`] half-lives: all of those count alike while hyperparameters are selected, and by their age when
    /// the model is rebuilt.
    fn first(&self) -> u64 {
        let (start, end) = (self.window.start(), self.window.end());
        let least = self.settings.warmup_rows.max(ROWS_MIN) as u64;
        // A whole window if the half-life is infinite.
        let rows = ((HALF_LIVES * self.settings.forgetting) as u64).max(least);
        start.max(end.saturating_sub(rows)).max(self.from.min(end))
    }
}

/// A model ready to be caught up, judged and adopted.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The rebuilt model; its score counts from [`Candidate::through`] on.
    pub model: Box<Model>,
    /// It has learned the rows before this offset.
    pub through: u64,
    /// Offset of the first row that it was made of.
    pub from: u64,
    /// The change that the rows before that offset were left out for, where it was found among the rows of this refit.
    pub alarm: Option<Alarm>,
    /// Times it has been caught up so far.
    pub rounds: u32,
    /// How it was found.
    pub report: RefitReport,
    /// What was asked, without the rows.
    asked: Box<RefitJob>,
    /// Times it has been selected again.
    again: u32,
}

impl Candidate {
    /// Take in what has arrived since: learn it, or, where held-out returns of far fewer rows have chosen the model, select again
    /// from all of `window`. `keep_going` and `time_left` are those of [`run`].
    ///
    /// # Errors
    /// Stopped; or any reason for which a selection leaves the present model where it is.
    pub fn follow(
        mut self,
        window: &Window,
        keep_going: KeepGoing<'_>,
        time_left: KeepGoing<'_>,
    ) -> Result<Self, RefitError> {
        let arrived = window.end() - self.through;
        if self.report.selection.is_some() && self.again < AGAIN_MAX && arrived > OUTDATED * self.report.rows {
            let again = run(&self.asked.asked_of(window.clone()), keep_going, time_left)?;
            return Ok(Self { again: self.again + 1, ..again });
        }
        self.catch_up(window, keep_going)?;
        Ok(self)
    }

    /// Learn all rows of `window` from [`Candidate::through`] on, and refresh: this may take its time. Rows that the window has
    /// forgotten by now are left out.
    ///
    /// # Errors
    /// Stopped: `keep_going`, asked every 512 rows, says so.
    pub fn catch_up(&mut self, window: &Window, keep_going: KeepGoing<'_>) -> Result<(), RefitError> {
        self.skip_to(window.start());
        for (rows, range, offset) in window.since(self.through) {
            for start in range.clone().step_by(CATCH_UP_ROWS) {
                if !keep_going() {
                    return Err(RefitError::Stopped);
                }
                let part = start..range.end.min(start + CATCH_UP_ROWS);
                self.through = offset + (part.end - range.start) as u64;
                self.model.learn(rows, part, offset + (start - range.start) as u64);
            }
        }
        // The next refresh is then a whole interval away, and not in the pause of the adoption.
        self.model.refresh();
        self.rounds += 1;
        Ok(())
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
    /// The settings are not for such rows.
    Settings(String),
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
            Self::Settings(what) => write!(f, "the settings do not fit the rows: {what}"),
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
/// `keep_going` is the stop flag: once false, the answer is [`RefitError::Stopped`]. `time_left` is the budget: once
/// false, ascents end where they are and the best point so far is used. Called in a pool of threads, it uses them, and gives
/// the same bits with any number of them as long as the time suffices.
///
/// # Errors
/// Any reason for which the present model should stay.
pub fn run(job: &RefitJob, keep_going: KeepGoing<'_>, time_left: KeepGoing<'_>) -> Result<Candidate, RefitError> {
    let settings = &job.settings;
    let rows = job.window.flatten_since(job.first());
    if rows.len() < ROWS_MIN {
        return Err(RefitError::NotEnough(format!("{} rows, at least {ROWS_MIN} are needed", rows.len())));
    }
    if (1..rows.len()).all(|i| rows.state(i) == rows.state(0)) {
        return Err(RefitError::NotEnough("all rows start in the same state".into()));
    }
    let weighty = rows.ratios.iter().filter(|&&ratio| ratio > 0.0).count();
    if weighty < ROWS_MIN {
        let what =
            format!("{weighty} of {} rows have a target_prob above 0, at least {ROWS_MIN} are needed", rows.len());
        return Err(RefitError::NotEnough(what));
    }
    settings.check_dim(rows.dim).map_err(RefitError::Settings)?;
    let kinds = settings.kinds(rows.dim);
    let look = || if keep_going() { Ok(()) } else { Err(RefitError::Stopped) };
    look()?;
    let inputs = normalisation(&rows, settings, job.names.clone());
    look()?;
    let dependence = Dependence::new(&rows, &inputs, kinds);
    look()?;
    let left_out = dependence.left_out();
    if settings.selects_by_returns() {
        return by_returns(job, &rows, &inputs, &dependence, keep_going, time_left);
    }
    let returns = Returns::new(&rows, &settings.rewards, settings.discount);
    look()?;
    let cut_states = returns.cut_states(&rows);
    let mut targets = returns.targets(&values_at(&job.current, &cut_states, keep_going)?);
    let present = rescaled(&job.current.hyperparameters, &job.current.inputs, &inputs);
    let mut best: Option<Found> = None;
    let mut structures = Vec::new();
    let mut evaluations = 0;
    let mut ascents = Vec::new();
    let mut round = 1;
    let ended = AtomicBool::new(false);
    let time_left = &|| {
        let left = time_left();
        ended.fetch_or(!left, Ordering::Relaxed);
        left
    };
    loop {
        let data = Data {
            rows: &rows,
            inputs: &inputs,
            targets: &targets,
            left_out: &left_out,
            room: job.room(),
            seed: job.seed,
            profiled: None,
        };
        let search = Search::new(settings, &data)?;
        let mut note = |structure: &Structure, rows, found: &[Ascent]| {
            ascents.extend(AscentReport::of(round, structure, inputs.dim(), rows, found));
        };
        let by = match settings.evidence {
            SelectBy::Sparse if search.has_bound() => EvidenceKind::Sparse,
            _ => best.as_ref().map_or(EvidenceKind::Exact, |found| found.by),
        };
        let mut climb = Climb { search: &search, present: &present, by, note: &mut note, keep_going, time_left };
        let found = match best.take() {
            // Targets that have moved a little do not ask for another structure.
            Some(found) => climb.again(found)?,
            None => climb.select(settings.kernel, &mut structures)?,
        };
        let found = climb.refine_on_all_rows(found, settings.kernel == KernelKind::Auto)?;
        evaluations += found.ascent.evaluations;
        let hyperparameters = found.hyperparameters();
        let chosen = Given {
            settings,
            rows: &rows,
            inputs: &inputs,
            hyperparameters: &hyperparameters,
            lambda: settings.first_lambda(),
            first: job.first(),
        };
        let mut model = rebuild(job, &chosen, keep_going)?;
        let snapshot = model.snapshot(false)?;
        let moved = returns.targets(&values_at(&snapshot, &cut_states, keep_going)?);
        let shift = distance_in_deviations(&targets, &moved);
        if shift > targets_settled(&hyperparameters, &moved) && round < ROUNDS && time_left() {
            targets = moved;
            best = Some(found);
            round += 1;
            continue;
        }
        plausible(&snapshot, &rows, settings)?;
        look_again(&mut model, &rows, job.first(), keep_going);
        let names = parameter_names(&hyperparameters.kernel.metric, inputs.dim());
        let active = &found.ascent.active;
        let bounds = active
            .iter()
            .map(|b| format!("{} at its {} bound", names[b.parameter], if b.upper { "upper" } else { "lower" }));
        let relevances = found.structure.relevances();
        let held = |test: &dyn Fn(&ActiveBound) -> bool| active.iter().any(test);
        // Asked only by the search so far: what the rebuild has used up since has not ended it.
        let out_of_time = ended.load(Ordering::Relaxed);
        let reached = search.value(found.by, &hyperparameters, keep_going).map_err(stopped_or_no_ascent)?;
        let alike = |d: usize| dependence.duplicates_of(d);
        let support = search.support(found.by, &hyperparameters, &alike, keep_going, time_left);
        let mut report = RefitReport {
            evidence: found.by,
            evidence_rows: search.rows(found.by),
            structure: found.structure.name.clone(),
            evidence_before: search.value(found.by, &present, keep_going).ok().map(|e| e.value),
            evidence_after: Some(reached.value),
            evidence_loss: found.evidence_loss,
            fit_ratio: Some(reached.fit_ratio()),
            evaluations,
            structures,
            active_bounds: bounds.collect(),
            out_of_time,
            ascents,
            ..report_of_rebuilt(job, &rows, &model, &hyperparameters, &dependence, support)?
        };
        let singular = |a: &AscentReport| {
            matches!(a.ascent.outcome, Outcome::Stalled | Outcome::Failed(EvidenceError::NotPositiveDefinite(_)))
        };
        report.findings = evidence_diagnostics(
            &report,
            &Circumstances {
                hyperparameters: &hyperparameters,
                inputs: &inputs,
                dependence: &dependence,
                targets: &targets,
                noise_at_floor: held(&|b| b.parameter == NOISE && !b.upper),
                finest: held(&|b| relevances.contains(&b.parameter) && b.upper),
                directions_asked: match settings.kernel {
                    KernelKind::Factor(directions) => directions.unwrap_or(1),
                    _ => 0,
                },
                bound_wanted: search.has_bound(),
                singular: report.ascents.iter().any(singular),
                dictionary_max: job.room(),
            },
        );
        // Evidence that is only reported ends without an error.
        look()?;
        return Ok(job.candidate(model, report));
    }
}

/// Select by held-out returns, then rebuild under what was chosen.
fn by_returns(
    job: &RefitJob,
    rows: &Rows,
    inputs: &Inputs,
    dependence: &Dependence,
    keep_going: KeepGoing<'_>,
    time_left: KeepGoing<'_>,
) -> Result<Candidate, RefitError> {
    let settings = &job.settings;
    let left_out = dependence.left_out();
    let present = rescaled(&job.current.hyperparameters, &job.current.inputs, inputs);
    let question = Question {
        settings,
        rows,
        inputs,
        left_out: &left_out,
        // The data-driven first model is a stopgap: nothing has been selected for it.
        present: (job.current.generation > 1).then_some((&present, job.current.lambda)),
        lambda: match settings.lambda {
            Lambda::Auto => None,
            Lambda::Fixed(lambda) => Some(lambda),
        },
        room: job.room(),
        seed: job.seed,
    };
    let mut ascents = Vec::new();
    let mut note = |round: usize, structure: &Structure, rows: usize, found: &[Ascent]| {
        ascents.extend(AscentReport::of(round, structure, inputs.dim(), rows, found));
    };
    let Choice { hyperparameters, lambda, report: selection, found, structures } =
        referee::choose(&question, &mut note, keep_going, time_left)?;
    let chosen = Given { settings, rows, inputs, hyperparameters: &hyperparameters, lambda, first: job.first() };
    let mut model = selected_model(job, &chosen, keep_going)?;
    // The world may have changed among these rows: the model is then made of those since.
    let alarm = model.last_change(job.window.end());
    let from = alarm.as_ref().map_or(chosen.first, |alarm| alarm.finding.since);
    if from > chosen.first {
        let mut since = Rows::new(rows.dim, rows.rewards_per_row);
        since.extend(rows, (from - chosen.first) as usize..rows.len());
        model = selected_model(job, &Given { rows: &since, first: from, ..chosen }, keep_going)?;
    }
    let alike = |d: usize| dependence.duplicates_of(d);
    let support = found.as_ref().and_then(|(search, found)| {
        search.support(EvidenceKind::Exact, &found.hyperparameters(), &alike, keep_going, time_left)
    });
    let hyperparameters = model.hyperparameters();
    let evaluations = ascents.iter().map(|a| a.ascent.evaluations).sum();
    let out_of_time = selection.out_of_time;
    let rebuilt = report_of_rebuilt(job, rows, &model, &hyperparameters, dependence, support)?;
    let mut report =
        RefitReport { evaluations, structures, out_of_time, ascents, selection: Some(selection), ..rebuilt };
    if let Some((search, found)) = &found {
        report.evidence_rows = search.rows(EvidenceKind::Exact);
        report.structure.clone_from(&found.structure.name);
    }
    report.findings = selection_diagnostics(&report, &hyperparameters, inputs, dependence, job.room());
    if !keep_going() {
        return Err(RefitError::Stopped);
    }
    Ok(Candidate { from, alarm, ..job.candidate(model, report) })
}

/// What a report says of the rebuilt model and its `hyperparameters`; how they were found is left out. `support` is the evidence
/// lost without each state variable, and which evidence that is of.
fn report_of_rebuilt(
    job: &RefitJob,
    rows: &Rows,
    model: &Model,
    hyperparameters: &Hyperparameters,
    dependence: &Dependence,
    support: Option<(Vec<f64>, EvidenceKind)>,
) -> Result<RefitReport, RefitError> {
    let (dictionary, inputs, metric) = (model.dictionary(), model.inputs(), &hyperparameters.kernel.metric);
    let rewards = job.settings.rewards.len() as f64;
    let factor = matches!(metric, Metric::Factor { .. });
    Ok(RefitReport {
        trigger: job.trigger,
        rows: rows.len() as u64,
        rows_effective: effective_rows(model),
        evidence: EvidenceKind::Exact,
        evidence_rows: 0,
        structure: metric.kind().to_owned(),
        evidence_before: None,
        evidence_after: None,
        evidence_loss: None,
        fit_ratio: None,
        evaluations: 0,
        structures: Vec::new(),
        active_bounds: Vec::new(),
        out_of_time: false,
        dictionary_size: dictionary.len(),
        trace_gap: model.solve()?.trace_gap(model.statistics()) * rewards,
        tolerance: dictionary.tolerance() / dictionary.kernel().diagonal(),
        rows_left_out: 0,
        variables: variables(hyperparameters, inputs, dependence, support.as_ref().map(|(s, _)| &s[..])),
        directions: if factor { metric.directions(inputs.dim()) } else { Vec::new() },
        evidence_drop_by: support.map(|(_, by)| by),
        findings: Vec::new(),
        ascents: Vec::new(),
        selection: None,
    })
}

/// Effective number of rows, where rows are forgotten.
fn effective_rows(model: &Model) -> Option<f64> {
    model.statistics().forgets().then(|| model.statistics().effective_rows())
}

/// TD errors under the final weights: scatter and spread are made of them. No score, since no row was predicted before it was
/// learned.
fn look_again(model: &mut Model, rows: &Rows, first: u64, keep_going: KeepGoing<'_>) {
    let parts = (0..rows.len()).step_by(CATCH_UP_ROWS).map(|from| from..rows.len().min(from + CATCH_UP_ROWS));
    model.revisit(parts.take_while(|_| keep_going()).map(|part| {
        let offset = first + part.start as u64;
        (rows, part, offset)
    }));
    model.reset_score();
}

pub(super) fn stopped_or_no_ascent(e: EvidenceError) -> RefitError {
    match e {
        EvidenceError::Stopped => RefitError::Stopped,
        other => RefitError::NoAscent(other.to_string()),
    }
}

/// A data-driven model for the time before the first refit: scales from the rows, relevances of one lengthscale per
/// square root of D.
pub fn initial_hyperparameters(
    rows: &Rows,
    settings: &Settings,
    names: Option<Vec<String>>,
) -> (Inputs, Hyperparameters) {
    let kinds = settings.kinds(rows.dim);
    let inputs = normalisation(rows, settings, names);
    let returns = Returns::new(rows, &settings.rewards, settings.discount);
    let rewards = settings.rewards.len();
    // Cut chains are closed by what an average row collects: a first pass to learn it, a second to use it.
    let open = returns.targets(&Matrix::zeros(returns.cuts.len(), rewards));
    let mut closed = Matrix::zeros(returns.cuts.len(), rewards);
    for h in 0..rewards {
        let mean = open.col(h).iter().sum::<f64>() / rows.len().max(1) as f64;
        closed.col_mut(h).fill(mean);
    }
    let (square_of_mean, variance) = moments(&returns.targets(&closed));
    let floor = (1e-6 * square_of_mean).max(1e-12);
    let variance = variance.max(floor);
    let dim = inputs.dim();
    let metric = match settings.kernel {
        KernelKind::Isotropic => Metric::Isotropic(1.0 / dim as f64),
        _ => {
            let mut relevance = vec![1.0 / dim as f64; dim];
            // What one action earns says much about another, until the rows say otherwise.
            relevance[dim - settings.choices()..].fill(CHOICE_RELEVANCE);
            Metric::Ard(relevance)
        }
    };
    let kernel =
        Kernel::gaussian(variance, square_of_mean + variance, metric).with_profile(settings.profile).with_kinds(kinds);
    (inputs, Hyperparameters { kernel, noise: settings.noise, noise_variance: 0.1 * variance })
}

/// Shift and scale of each state variable. What is not real stays in its unit: a period is one of the state, a category has
/// no scale, and neither has the unit vector of an action.
fn normalisation(rows: &Rows, settings: &Settings, names: Option<Vec<String>>) -> Inputs {
    let (kinds, choices) = (settings.kinds(rows.dim), settings.choices());
    let mut inputs = Inputs { names, ..Inputs::identity(rows.dim) };
    let real = |d: &usize| *d < rows.dim - choices && kinds.get(*d).is_none_or(|kind| *kind == StateKind::Real);
    for d in (0..rows.dim).filter(real) {
        (inputs.shift[d], inputs.scale[d], _) = scale_of(rows, d);
    }
    inputs
}

/// Square of the mean, and variance about it, of all targets, averaged over rewards.
pub(super) fn moments(targets: &Matrix) -> (f64, f64) {
    let (n, columns) = (targets.rows().max(1) as f64, targets.cols().max(1) as f64);
    let (mut square_of_mean, mut variance) = (0.0, 0.0);
    for h in 0..targets.cols() {
        let mean = targets.col(h).iter().sum::<f64>() / n;
        square_of_mean += mean * mean / columns;
        variance += targets.col(h).iter().map(|y| (y - mean) * (y - mean)).sum::<f64>() / n / columns;
    }
    (square_of_mean, variance)
}

/// Values (k, H) of `snapshot` at states (k, D), row-major, 512 at a time: every row may end in a cut.
fn values_at(snapshot: &Snapshot, states: &[f64], keep_going: KeepGoing<'_>) -> Result<Matrix, RefitError> {
    let dim = snapshot.dim();
    let mut out = Matrix::zeros(states.len() / dim, snapshot.weights.ncols());
    for (block, states) in states.chunks(CATCH_UP_ROWS * dim).enumerate() {
        if !keep_going() {
            return Err(RefitError::Stopped);
        }
        match snapshot.evaluate(states, Ask::MEAN) {
            Ok(found) => {
                for (h, column) in found.mean.column_iter().enumerate() {
                    let from = block * CATCH_UP_ROWS;
                    out.col_mut(h)[from..from + column.len()].copy_from_slice(column.as_slice());
                }
            }
            // States of the window have been checked when they came in.
            Err(e) => unreachable!("a retained state cannot be evaluated: {e}"),
        }
    }
    Ok(out)
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
    // A period is a length, the relevance of what is not real has no unit.
    for (kind, r) in out.kernel.kinds.iter_mut().zip(&ratio) {
        if let StateKind::Periodic(period) = kind {
            *period /= r;
        }
    }
    let unit = |(d, r): (usize, &f64)| if hyperparameters.kernel.kind_of(d) == StateKind::Real { *r } else { 1.0 };
    let ratio: Vec<f64> = ratio.iter().enumerate().map(unit).collect();
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

/// Passes of a rebuild: a dictionary that has grown in one of them is passed over again with what it has become.
const PASSES: usize = 3;

/// The model of hyperparameters that held-out returns have selected.
fn selected_model(job: &RefitJob, chosen: &Given<'_>, keep_going: KeepGoing<'_>) -> Result<Model, RefitError> {
    let mut model = rebuild(job, chosen, keep_going)?;
    model.match_scale()?;
    plausible(&model.snapshot(false)?, chosen.rows, &job.settings)?;
    look_again(&mut model, chosen.rows, chosen.first, keep_going);
    Ok(model)
}

/// Dictionary by pivoted ICD, then a pass over all rows, then noise and scale from the statistics.
fn rebuild(job: &RefitJob, given: &Given<'_>, keep_going: KeepGoing<'_>) -> Result<Model, RefitError> {
    // Where nothing is forgotten offsets decide only which rows are scored, and no score is made of these.
    let first = if given.settings.forgetting.is_finite() { given.first } else { 0 };
    let given = Given { first, ..*given };
    let Given { settings, hyperparameters, .. } = given;
    // What the dictionary leaves out of all rows together must stay small against the noise, so with more rows it has to
    // be finer: the tolerance of the settings is an upper bound.
    let tolerance = effective_tolerance(settings, hyperparameters);
    let enough = enough(hyperparameters, settings.rewards.len());
    let stopped = |_: BatchError| RefitError::Stopped;
    let selection = given.select(enough, job.room(), keep_going).map_err(stopped)?;
    let mut dictionary = selection.dictionary;
    let mut size = dictionary.len();
    let finest = selection.residuals.last().copied().unwrap_or(tolerance);
    dictionary.set_tolerance(tolerance.min(finest.max(enough.tolerance)));
    dictionary.set_max(settings.dictionary_max);
    let mut model = given.model(dictionary, keep_going).map_err(stopped)?;
    for pass in 1..PASSES {
        // An element that a pass admits knows only the rows of the ring before it.
        let (grown, last) = (model.dictionary().len() > size, pass + 1 == PASSES);
        if !grown {
            break;
        }
        let mut dictionary = model.dictionary().clone();
        size = dictionary.len();
        // The last pass admits no state, so that its model is its own fixed point. A cap would do that too, but would
        // let go of the rows that backfill needs, and elements are admitted again afterwards.
        let tolerance = dictionary.tolerance();
        if last {
            dictionary.set_tolerance(f64::INFINITY);
        }
        model = given.model(dictionary, keep_going).map_err(stopped)?;
        model.set_tolerance(tolerance);
    }
    Ok(model)
}

/// Values cannot exceed what rewards and discounts add up to. A fixed point of bootstrapped targets that does is an artefact of
/// too little data.
fn plausible(snapshot: &Snapshot, rows: &Rows, settings: &Settings) -> Result<(), RefitError> {
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
    kernel.block(&Points::new(kernel.projected_dim(dim), &points), &points, &mut gram.view_mut());
    let values = gram.to_nalgebra() * &snapshot.weights;
    let value = values.amax();
    if value.is_finite() && value <= bound { Ok(()) } else { Err(RefitError::Wild { value, bound }) }
}
