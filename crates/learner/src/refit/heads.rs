//! One kernel for many heads: the sum of their evidences, each at its best noise and scale.

use super::climb::Climb;
use super::error::{Lack, RefitError};
use super::first_guess::initial_hyperparameters;
use super::search::{Data, EvidenceKind, Found, Search};
use crate::batch::{BatchError, Given};
use crate::heads::{Cumulant, Head, Rate};
use crate::math::dense::Matrix;
use crate::math::dictionary::StoppingRule;
use crate::math::evidence::KeepGoing;
use crate::math::kernel::{Hyperparameters, NoiseModel};
use crate::math::returns::chains;
use crate::model::Model;
use crate::settings::{SelectBy, Settings, effective_tolerance};
use crate::snapshot::{Inputs, Snapshot};
use crate::transition::Rows;
use nalgebra::DMatrix;

/// Heads that choose the kernel, those of the critic's rewards among them.
const SAMPLE: usize = 16;
/// Rows that the evidence is computed on.
const ROWS: usize = 600;
/// Rounds of targets and ascent: the values that close chains move with the kernel.
const ROUNDS: usize = 2;
/// Largest dictionary that targets are made with.
const DICTIONARY_MAX: usize = 200;

/// A kernel that heads have chosen.
#[derive(Clone, Debug)]
pub struct HeadSelection {
    /// Normalisation that the kernel refers to.
    pub inputs: Inputs,
    /// Kernel and noise; the noise is where the search began, since each head has its own.
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
    /// The best point that a search has found by so many heads.
    pub(super) fn of(found: &Found, search: &Search, inputs: &Inputs, heads: usize) -> Self {
        Self {
            inputs: inputs.clone(),
            hyperparameters: found.hyperparameters(),
            log_evidence: found.ascent.log_evidence,
            heads,
            rows: search.rows(EvidenceKind::Exact),
            evaluations: found.ascent.evaluations,
            structure: found.structure.name.clone(),
        }
    }
}

/// Select a kernel by what it makes of the rewards that `settings` name and of a sample of its heads, evenly spaced.
///
/// `keep_going` is the stop flag, `time_left` the budget of the search: once false, the best found by then counts.
///
/// # Errors
/// If the rows do not suffice, or a system cannot be solved.
pub fn select(
    settings: &Settings,
    rows: &Rows,
    names: Option<Vec<String>>,
    keep_going: KeepGoing<'_>,
    time_left: KeepGoing<'_>,
) -> Result<HeadSelection, RefitError> {
    let heads = sample(settings);
    let settings = Settings {
        heads: heads.clone(),
        evidence: SelectBy::Exact,
        evidence_rows: ROWS.min(settings.evidence_rows),
        noise: NoiseModel::Correlated,
        estimate_scale: true,
        ..settings.clone()
    };
    let (inputs, mut hyperparameters) = initial_hyperparameters(rows, &settings, names);
    let mut chosen = None;
    for _ in 0..ROUNDS {
        let model = learned(&settings, rows, &inputs, &hyperparameters, keep_going)?;
        let found = targets(&heads, rows, &model.snapshot(true)?);
        let kept: Vec<f64> = (0..found.cols()).filter_map(|h| standardised(found.col(h))).flatten().collect();
        let targets = Matrix::from_columns(rows.len(), kept.len() / rows.len().max(1), kept);
        if targets.cols() == 0 {
            return Err(RefitError::NotEnough(Lack::DifferentHeads));
        }
        let data = Data {
            rows,
            inputs: &inputs,
            targets: &targets,
            left_out: &[],
            room: settings.dictionary_max,
            seed: settings.seed,
            profiled: Some(settings.noise_floor),
        };
        let search = Search::new(&settings, &data)?;
        let mut climb = Climb {
            search: &search,
            present: &hyperparameters,
            by: EvidenceKind::Exact,
            note: &mut |_, _, _| {},
            keep_going,
            time_left,
        };
        let found = climb.select(settings.kernel, &mut Vec::new())?;
        hyperparameters = found.hyperparameters();
        chosen = Some(HeadSelection::of(&found, &search, &inputs, targets.cols()));
        if !time_left() {
            break;
        }
    }
    Ok(chosen.expect("at least one round"))
}

/// The critic's rewards and some heads. Rows count alike here: heads that weight them are only asked where there are no others.
fn sample(settings: &Settings) -> Vec<Head> {
    let of = |&column: &usize| {
        Head::new(format!("reward {column}"), Cumulant::Reward(column), Rate::Discount(settings.discount))
    };
    let mut out: Vec<Head> = settings.rewards.iter().take(SAMPLE / 2).map(of).collect();
    let even: Vec<&Head> = settings.heads.iter().filter(|head| head.weight.is_none()).collect();
    let all = if even.is_empty() { settings.heads.iter().collect() } else { even };
    let room = (SAMPLE - out.len()).min(all.len());
    out.extend((0..room).map(|k| Head {
        name: format!("head {k}"),
        weight: None,
        noise_variance: None,
        signal: None,
        ..all[k * all.len() / room].clone()
    }));
    out
}

/// A model that has learned the rows, its heads at the noise and scale that suit them.
pub(super) fn learned(
    settings: &Settings,
    rows: &Rows,
    inputs: &Inputs,
    hyperparameters: &Hyperparameters,
    keep_going: KeepGoing<'_>,
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
    Ok(model)
}

/// Returns of each head (n, H) along the chains of `rows`, cut chains closed by what `snapshot`, whose heads they are, says of their
/// last successors.
///
/// # Panics
/// If the snapshot has other heads, or rows lack what these ask for.
pub fn targets(heads: &[Head], rows: &Rows, snapshot: &Snapshot) -> Matrix {
    returns(heads, &(0..heads.len()).collect::<Vec<_>>(), rows, snapshot)
}

/// [`targets`] of the heads of these numbers alone, column by column.
pub(super) fn returns(heads: &[Head], numbers: &[usize], rows: &Rows, snapshot: &Snapshot) -> Matrix {
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
        snapshot.evaluate_heads(&states, numbers, false).expect("states of rows are finite").mean
    };
    let mut cut_of = vec![0; rows.len()];
    cuts.iter().enumerate().for_each(|(c, &i)| cut_of[i] = c);
    let step = |i: usize, j: usize| rows.times.get(j).zip(rows.times.get(i)).map_or(1.0, |(later, now)| later - now);
    let mut out = Matrix::zeros(rows.len(), numbers.len());
    for (h, head) in numbers.iter().map(|&number| &heads[number]).enumerate() {
        for i in (0..rows.len()).rev() {
            let kept = head.continuation.of(rows, i);
            let dt = match (successor[i], before[i]) {
                (Some(next), _) => step(i, next),
                (None, Some(last)) => step(last, i),
                (None, None) => 1.0,
            };
            let beyond = match successor[i] {
                _ if rows.terminated[i] => 0.0,
                Some(next) => out.at(next, h),
                None => values[(cut_of[i], h)],
            };
            let paid = head.cumulant.of(rows, i) + (1.0 - kept) * head.terminal_reward;
            *out.at_mut(i, h) = paid + kept * head.rate.discount(dt) * beyond;
        }
    }
    out
}

/// Returns divided by their root mean square; none if they do not vary.
pub(super) fn standardised(returns: &[f64]) -> Option<Vec<f64>> {
    let n = returns.len() as f64;
    let square = returns.iter().map(|y| y * y).sum::<f64>() / n;
    let mean = returns.iter().sum::<f64>() / n;
    let varies = square.is_finite() && square - mean * mean > 1e-12 * square;
    varies.then(|| returns.iter().map(|y| y / square.sqrt()).collect())
}
