//! One kernel for many heads: the sum of their evidences, each at its best noise and scale.

use super::climb::Climb;
use super::error::{Lack, RefitError};
use super::first_guess::initial_hyperparameters;
use super::report::AscentReport;
use super::search::{Data, EvidenceKind, Found, Search, Structure, StructureReport};
use crate::allowance::{self, Allowance};
use crate::batch::{self, BatchError, Given};
use crate::heads::{Counted, Cumulant, Head, Rate, counting_all, counting_most};
use crate::level::about_level_of_heads;
use crate::math::dense::Matrix;
use crate::math::dictionary::StoppingRule;
use crate::math::evidence::{Best, KeepGoing, profiled_bests};
use crate::math::kernel::{Hyperparameters, Kernel, NoiseModel};
use crate::math::optimise::Ascent;
use crate::math::returns::chains;
use crate::model::Model;
use crate::settings::{Lambda, SelectBy, SelectionKind, Settings, VarianceKind, effective_tolerance};
use crate::snapshot::{Inputs, Snapshot};
use crate::transition::Rows;
use nalgebra::DMatrix;

/// Heads that choose the kernel, the critic's rewards among them.
const SAMPLE: usize = 16;
/// Rows that the evidence is computed on.
const EVIDENCE_ROWS: usize = 600;
/// Rounds of targets and ascent: the values that close chains move with the kernel.
const TARGET_ROUNDS: usize = 2;
/// Largest dictionary that targets are made with.
const DICTIONARY_MAX: usize = 200;

/// A kernel that heads have chosen.
#[derive(Clone, Debug)]
pub struct HeadSelection {
    /// Normalisation that the kernel refers to.
    pub inputs: Inputs,
    /// Kernel and noise; the noise is the lower median of those at which the heads that chose are best, since each head has its own.
    pub hyperparameters: Hyperparameters,
    /// Sum of the log evidences of `heads` heads on `rows` rows, nats, each divided by its root mean square.
    pub log_evidence: f64,
    /// Heads that chose.
    pub heads: usize,
    /// Rows that they were judged by.
    pub rows: usize,
    /// Evaluations of the evidence.
    pub evaluations: usize,
    /// The structure of the covariance.
    pub structure: String,
}

impl HeadSelection {
    /// The best point that a search has found by `heads` heads, each of which is at its best there.
    pub(super) fn of(found: &Found, search: &Search, inputs: &Inputs, heads: usize, bests: &[Best]) -> Self {
        let noise_variance = median(bests.iter().map(|best| best.ratio).collect());
        Self {
            inputs: inputs.clone(),
            hyperparameters: Hyperparameters { noise_variance, ..found.hyperparameters() },
            log_evidence: found.ascent.log_evidence,
            heads,
            rows: search.rows(EvidenceKind::Exact),
            evaluations: found.ascent.evaluations,
            structure: found.structure.name.clone(),
        }
    }
}

/// What a kernel is to be chosen for.
pub(super) struct HeadsAsked<'a> {
    /// The heads, and the rewards of the critic.
    pub(super) settings: &'a Settings,
    pub(super) rows: &'a Rows,
    pub(super) inputs: &'a Inputs,
    /// Where the search begins, in the coordinates of `inputs`. Its values close the chains of the first round.
    pub(super) present: &'a Hyperparameters,
    /// Further starts, in the same coordinates.
    pub(super) also: &'a [Hyperparameters],
    /// State variables that cannot matter beside the others.
    pub(super) left_out: &'a [usize],
    /// Whether rewards choose alone where no head varies.
    pub(super) rewards_suffice: bool,
    pub(super) seed: u64,
}

/// A kernel that heads have chosen, and how.
pub(super) struct Chosen {
    /// The search of the last round: its columns are the heads, rewards first, in units of their root mean square.
    pub(super) search: Search,
    pub(super) found: Found,
    /// Heads that chose, rewards among them.
    pub(super) heads: usize,
    /// Rewards among them: those whose returns vary.
    pub(super) rewards: usize,
    pub(super) structures: Vec<StructureReport>,
    pub(super) ascents: Vec<AscentReport>,
}

/// Select a kernel by what it makes of the rewards that `settings` name and of a sample of its heads, evenly spaced.
///
/// `keep_going` is the stop flag, `allowance` the budget of the search: once it is used up, the best found by then counts.
///
/// # Errors
/// If the rows do not suffice, or a system cannot be solved.
pub fn select(
    settings: &Settings,
    rows: &Rows,
    names: Option<Vec<String>>,
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<HeadSelection, RefitError> {
    if let Some((settings, rows)) = about_level_of_heads(settings, rows) {
        return select(&settings, &rows, names, keep_going, allowance);
    }
    let (inputs, present) = initial_hyperparameters(rows, settings, names);
    let (inputs, present, left_out) = (&inputs, &present, &[]);
    let asked =
        HeadsAsked { settings, rows, inputs, present, also: &[], left_out, rewards_suffice: true, seed: settings.seed };
    let Chosen { search, found, heads, .. } = asked.choose(keep_going, allowance)?;
    let bests = profiled_bests(&search.problem, &found.hyperparameters().kernel, keep_going)?;
    Ok(HeadSelection::of(&found, &search, inputs, heads, &bests))
}

/// Heads that choose a kernel together, by the rows that count for all of them.
struct HeadSample {
    /// The critic's rewards first, if they have a say.
    heads: Vec<Head>,
    /// Rewards among them.
    own: usize,
    /// Numbers of the rows, rising.
    rows: Vec<usize>,
}

impl HeadsAsked<'_> {
    /// Choose the kernel with the largest sum of evidences: the evidence of the rewards and of heads for which every row counts
    /// once. Where none of these varies, the heads choose for which most rows count, by these rows.
    ///
    /// # Errors
    /// As [`select`].
    pub(super) fn choose(&self, keep_going: KeepGoing<'_>, allowance: &Allowance) -> Result<Chosen, RefitError> {
        let Self { settings, rows, .. } = *self;
        if let Some(chosen) = self.choose_by(&HeadSample::of_all_rows(settings, rows), keep_going, allowance)? {
            return Ok(chosen);
        }
        let lack = RefitError::NotEnough(Lack::DifferentHeads);
        let Some(others) = HeadSample::of_most_rows(settings, rows) else { return Err(lack) };
        self.choose_by(&others, keep_going, allowance)?.ok_or(lack)
    }

    /// The same by this sample alone; none where nothing in it varies.
    fn choose_by(
        &self,
        sample: &HeadSample,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<Option<Chosen>, RefitError> {
        let Self { rows, inputs, .. } = *self;
        let settings = &Settings {
            heads: sample.heads.clone(),
            evidence: SelectBy::Exact,
            evidence_rows: EVIDENCE_ROWS.min(self.settings.evidence_rows),
            noise: NoiseModel::Correlated,
            estimate_scale: true,
            // Only heads are read from the models of the search.
            lambda: Lambda::Fixed(1.0),
            selection: SelectionKind::Evidence,
            variance: VarianceKind::Model,
            ..self.settings.clone()
        };
        let counted = &if sample.rows.len() == rows.len() { rows.clone() } else { rows.only(&sample.rows) };
        let mut hyperparameters = self.present.clone();
        let (mut structures, mut ascents) = (Vec::new(), Vec::new());
        let mut round = 1;
        loop {
            let model = learned(settings, rows, inputs, &hyperparameters, keep_going, allowance)?;
            let Some((targets, rewards)) = self.targets(sample, &model.sound_snapshot(false)?)? else {
                return Ok(None);
            };
            let data = Data {
                rows: counted,
                inputs,
                targets: &targets,
                left_out: self.left_out,
                room: settings.dictionary_max,
                seed: self.seed,
                profiled: Some(settings.noise_floor),
                linear: 0.0,
            };
            let search = Search::new(settings, &data)?;
            let mut note = |structure: &Structure, rows, found: &[Ascent]| {
                ascents.extend(AscentReport::of(round, structure, inputs.dim(), rows, found));
            };
            let mut climb = Climb {
                search: &search,
                present: &hyperparameters,
                also: self.also,
                by: EvidenceKind::Exact,
                note: &mut note,
                keep_going,
                allowance,
            };
            structures.clear();
            let found = climb.select(settings.kernel, &mut structures)?;
            if round == TARGET_ROUNDS || !allowance.left() {
                return Ok(Some(Chosen { search, found, heads: targets.cols(), rewards, structures, ascents }));
            }
            hyperparameters = found.hyperparameters();
            round += 1;
        }
    }

    /// Returns (n, H) of the heads of the sample that vary in its n rows, in units of their root mean square, and how many rewards are among
    /// them. None where no head varies.
    fn targets(&self, sample: &HeadSample, snapshot: &Snapshot) -> Result<Option<(Matrix, usize)>, RefitError> {
        let found = targets(&sample.heads, self.rows, snapshot);
        let of_rows = |h: usize| sample.rows.iter().map(|&i| found.at(i, h)).collect::<Vec<_>>();
        let scaled: Vec<Option<Vec<f64>>> = (0..found.cols()).map(|h| standardised(&of_rows(h))).collect();
        let rewards = scaled[..sample.own].iter().flatten().count();
        let count = scaled.iter().flatten().count();
        if count == 0 {
            return Ok(None);
        }
        if count == rewards && !self.rewards_suffice {
            return Err(RefitError::NotEnough(Lack::DifferentHeads));
        }
        let kept = scaled.into_iter().flatten().flatten().collect();
        Ok(Some((Matrix::from_columns(sample.rows.len(), count, kept), rewards)))
    }
}

impl HeadSample {
    /// The critic's rewards, and some of the heads for which every row counts once.
    fn of_all_rows(settings: &Settings, rows: &Rows) -> Self {
        let of = |&column: &usize| {
            Head::new(format!("reward {column}"), Cumulant::Reward(column), Rate::Discount(settings.discount))
        };
        let heads: Vec<Head> = settings.rewards.iter().take(SAMPLE / 2).map(of).collect();
        let own = heads.len();
        let Counted { heads: numbers, rows } = counting_all(&settings.heads, rows);
        Self { heads, own, rows }.with(settings, &numbers, |head| Head { weight: None, ..head })
    }

    /// Some of the heads for which most rows count, if there are such heads.
    fn of_most_rows(settings: &Settings, rows: &Rows) -> Option<Self> {
        let Counted { heads: numbers, rows } = counting_most(&settings.heads, rows)?;
        Some(Self { heads: Vec::new(), own: 0, rows }.with(settings, &numbers, |head| head))
    }

    /// Beside the heads of these numbers, evenly spaced ones where there is no room for all, their noise and scale left open.
    fn with(mut self, settings: &Settings, numbers: &[usize], of: impl Fn(Head) -> Head) -> Self {
        let room = (SAMPLE - self.heads.len()).min(numbers.len());
        self.heads.extend((0..room).map(|k| {
            let head = of(settings.heads[numbers[k * numbers.len() / room]].clone());
            Head { name: format!("head {k}"), noise_variance: None, signal: None, ..head }
        }));
        self
    }
}

/// A model that has learned the rows, its heads at the noise and scale that suit them.
pub(super) fn learned(
    settings: &Settings,
    rows: &Rows,
    inputs: &Inputs,
    hyperparameters: &Hyperparameters,
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<Model, RefitError> {
    let given = Given { settings, rows, inputs, hyperparameters, lambda: settings.first_lambda(), first: 0 };
    let enough = StoppingRule { tolerance: effective_tolerance(settings, hyperparameters), trace: 0.0 };
    let of = |e: BatchError| match e {
        BatchError::Solve(e) => RefitError::Solve(e),
        _ => RefitError::Stopped,
    };
    let most = settings.dictionary_max.min(DICTIONARY_MAX);
    let selection = given.select(enough, most, keep_going).map_err(of)?;
    let mut model = given.model(selection.dictionary, keep_going).map_err(of)?;
    model.tune_heads()?;
    let (elements, dim) = (model.dictionary().len(), inputs.dim());
    allowance.spend(allowance::pivots(rows.len().min(batch::CANDIDATES), elements, dim));
    allowance.spend(allowance::pass(rows.len(), elements, dim, settings));
    Ok(model)
}

/// Returns of each head (n, H), about its level, along the chains of `rows`, cut chains closed by what `snapshot`, whose heads they are, says of their
/// last successors: NaN where the snapshot lacks the head. A chain ends at a row without a label, for the heads that learn from labels, and
/// such a row has the value there instead of a return.
///
/// # Panics
/// If rows lack what heads ask for.
pub fn targets(heads: &[Head], rows: &Rows, snapshot: &Snapshot) -> Matrix {
    returns(heads, &(0..heads.len()).collect::<Vec<_>>(), rows, snapshot, &snapshot.places_of_heads(heads))
}

/// [`targets`] of the heads of these numbers alone, column by column. `places` are the places of all `heads` in the snapshot.
pub(super) fn returns(
    heads: &[Head],
    numbers: &[usize],
    rows: &Rows,
    snapshot: &Snapshot,
    places: &[Option<usize>],
) -> Matrix {
    let successor = chains(rows);
    let mut before = vec![None; rows.len()];
    for (i, next) in successor.iter().enumerate() {
        if let Some(next) = next {
            before[*next] = Some(i);
        }
    }
    let cuts: Vec<usize> = (0..rows.len()).filter(|&i| successor[i].is_none() && !rows.terminated[i]).collect();
    let states: Vec<f64> = cuts.iter().flat_map(|&i| rows.next_state(i).iter().copied()).collect();
    let values = if cuts.is_empty() {
        DMatrix::zeros(0, numbers.len())
    } else {
        let wanted: Vec<Option<usize>> = numbers.iter().map(|&number| places[number]).collect();
        snapshot.means_of_heads(&states, &wanted).expect("states of rows are finite")
    };
    let mut cut_of = vec![0; rows.len()];
    cuts.iter().enumerate().for_each(|(c, &i)| cut_of[i] = c);
    let step = |i: usize, j: usize| rows.times.get(j).zip(rows.times.get(i)).map_or(1.0, |(later, now)| later - now);
    let mut out = Matrix::zeros(rows.len(), numbers.len());
    for (h, &number) in numbers.iter().enumerate() {
        let head = &heads[number];
        let unlabelled: Vec<usize> = (0..rows.len()).filter(|&i| head.lacks_label(rows, i)).collect();
        value_at(&unlabelled, rows, snapshot, places[number], out.col_mut(h));
        out.col_mut(h).iter_mut().for_each(|value| *value -= head.level);
        for i in (0..rows.len()).rev().filter(|&i| !head.lacks_label(rows, i)) {
            let kept = head.continuation.of(rows, i);
            let dt = match (successor[i], before[i]) {
                (Some(next), _) => step(i, next),
                (None, Some(last)) => step(last, i),
                (None, None) => 1.0,
            };
            let beyond = match successor[i] {
                _ if rows.terminated[i] => 0.0,
                Some(next) => out.at(next, h),
                None => values[(cut_of[i], h)] - head.level,
            };
            *out.at_mut(i, h) = head.paid(rows, i, kept) + kept * head.rate.discount(dt) * beyond;
        }
    }
    out
}

/// What `snapshot` says of the head at this place in the states of some rows, into `out` (n,).
fn value_at(chosen: &[usize], rows: &Rows, snapshot: &Snapshot, place: Option<usize>, out: &mut [f64]) {
    if chosen.is_empty() {
        return;
    }
    let states: Vec<f64> = chosen.iter().flat_map(|&i| rows.state(i).iter().copied()).collect();
    let values = snapshot.means_of_heads(&states, &[place]).expect("states of rows are finite");
    chosen.iter().enumerate().for_each(|(k, &i)| out[i] = values[(k, 0)]);
}

/// Returns divided by their root mean square; none if they do not vary.
pub(super) fn standardised(returns: &[f64]) -> Option<Vec<f64>> {
    let n = returns.len() as f64;
    let square = returns.iter().map(|y| y * y).sum::<f64>() / n;
    let mean = returns.iter().sum::<f64>() / n;
    let varies = square.is_finite() && square - mean * mean > 1e-12 * square;
    varies.then(|| returns.iter().map(|y| y / square.sqrt()).collect())
}

/// The same model of values whose kernel has the signal variance 1.
pub(super) fn at_unit_scale(of: &Hyperparameters) -> Hyperparameters {
    let unit = of.kernel.signal_variance;
    let kernel = Kernel { signal_variance: 1.0, ..of.kernel.scaled(1.0 / unit) };
    Hyperparameters { kernel, noise: of.noise, noise_variance: of.noise_variance / unit }
}

/// The lower median of some numbers, one at least.
pub(super) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[(of.len() - 1) / 2]
}
