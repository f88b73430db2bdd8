//! Two kernels for heads that one kernel does not suit, docs/mathematics.md (H14).

use super::climb::Climb;
use super::error::RefitError;
use super::heads::{HeadSelection, learned, returns, standardised};
use super::search::{Data, EvidenceKind, Search, chosen_rows};
use crate::heads::{Cumulant, Head, Rate};
use crate::math::dense::{Matrix, Op, product, symmetric_eigen};
use crate::math::evidence::{KeepGoing, Problem, profiled_gradients, profiled_values};
use crate::math::kernel::{Kernel, NoiseModel};
use crate::settings::{SelectBy, Settings};
use crate::transition::Rows;

/// What two kernels have to gain, nats for each row and head.
pub const WORTH: f64 = 0.02;
/// Heads that divide themselves, those of the critic's rewards among them.
const SAMPLE: usize = 32;
/// Rows that evidences are computed on.
const ROWS: usize = 600;
/// Rounds of two kernels and heads that choose between them.
const ROUNDS: usize = 2;
/// Heads whose returns are computed at a time.
const AT_ONCE: usize = 64;
/// Parameters of a kernel before its relevances: its two variances, and that of the noise.
const VARIANCES: usize = 3;

/// Two groups of heads, each with a kernel of its own.
#[derive(Clone, Debug)]
pub struct Split {
    /// The kernel of each group. The critic's rewards are in the first.
    pub kernels: [HeadSelection; 2],
    /// Numbers of the heads of the second group among the heads of the settings, rising, at least one.
    pub second: Vec<usize>,
    /// What two kernels gain over the one for all, nats for each row and head of the sample.
    pub gain: f64,
}

/// The outcome of an attempt to split.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// Two kernels gain at least [`WORTH`].
    Split(Box<Split>),
    /// One kernel is as good; two would gain so much, nats for each row and head.
    Together(f64),
}

/// The rewards of a critic and then its heads, whose weights do not count here, and the kernel that all share.
struct Asked<'a> {
    settings: Settings,
    rows: &'a Rows,
    shared: &'a HeadSelection,
    rewards: usize,
}

/// Returns in units of their root mean square.
struct Returns {
    /// Of a sample of the heads that vary (n, S).
    sample: Matrix,
    /// Of all heads on the rows of the evidence (r, H); 0 for a head that does not vary.
    all: Matrix,
    /// Whether each head varies (H,).
    varies: Vec<bool>,
}

/// Whether the heads of `settings` are better learned under two kernels than under the one that `shared` has for all, and which head
/// under which. The gradients of the heads' evidences at the shared kernel divide a sample of them; then kernels follow heads and
/// heads kernels, twice.
///
/// # Errors
/// If a system cannot be solved, or `keep_going` says stop.
pub fn split(
    settings: &Settings,
    rows: &Rows,
    shared: &HeadSelection,
    keep_going: KeepGoing<'_>,
    time_left: KeepGoing<'_>,
) -> Result<Attempt, RefitError> {
    let asked = Asked::new(settings, rows, shared);
    let returns = asked.returns(keep_going)?;
    if returns.sample.cols() < 2 {
        return Ok(Attempt::Together(0.0));
    }
    let problem = asked.search(&returns.sample)?.problem;
    let kernel = &shared.hyperparameters.kernel;
    let before: f64 = profiled_values(&problem, kernel, keep_going)?.iter().sum();
    let mut sides = sides(&problem, kernel, keep_going)?;
    let mut round = 0;
    let (fitted, gain) = loop {
        if sides.iter().all(|&side| side == sides[0]) {
            return Ok(Attempt::Together(0.0));
        }
        let fit = |side| asked.fit(&columns(&returns.sample, |h| sides[h] == side), keep_going, time_left);
        let fitted = [fit(false)?, fit(true)?];
        let after = evidences(&problem, &fitted, keep_going)?;
        let chosen: Vec<bool> = after.iter().map(|[first, second]| second > first).collect();
        if chosen == sides || round == ROUNDS || !time_left() {
            let sum: f64 = after.iter().zip(&sides).map(|(of, &side)| of[usize::from(side)]).sum();
            break (fitted, (sum - before) / (problem.rows() * problem.observed().cols()) as f64);
        }
        (sides, round) = (chosen, round + 1);
    };
    let split = if gain < WORTH { None } else { asked.divide(fitted, gain, returns, keep_going)? };
    Ok(split.map_or(Attempt::Together(gain), |split| Attempt::Split(Box::new(split))))
}

impl<'a> Asked<'a> {
    fn new(settings: &Settings, rows: &'a Rows, shared: &'a HeadSelection) -> Self {
        let reward = |&column: &usize| {
            Head::new(format!("reward {column}"), Cumulant::Reward(column), Rate::Discount(settings.discount))
        };
        let even = |(k, head): (usize, &Head)| Head {
            name: format!("head {k}"),
            weight: None,
            noise_variance: None,
            signal: None,
            ..head.clone()
        };
        let heads = settings.rewards.iter().map(reward).chain(settings.heads.iter().enumerate().map(even)).collect();
        let settings = Settings {
            heads,
            evidence: SelectBy::Exact,
            evidence_rows: ROWS.min(settings.evidence_rows),
            noise: NoiseModel::Correlated,
            estimate_scale: true,
            ..settings.clone()
        };
        Self { rewards: settings.rewards.len(), settings, rows, shared }
    }

    fn returns(&self, keep_going: KeepGoing<'_>) -> Result<Returns, RefitError> {
        let Self { settings, rows, shared, .. } = self;
        let heads = &settings.heads;
        let model = learned(settings, rows, &shared.inputs, &shared.hyperparameters, keep_going)?;
        let snapshot = model.snapshot(true)?;
        let chosen = self.chosen();
        let mut all = Matrix::zeros(chosen.len(), heads.len());
        let (mut varies, mut sample) = (Vec::new(), Vec::new());
        for first in (0..heads.len()).step_by(AT_ONCE) {
            if !keep_going() {
                return Err(RefitError::Stopped);
            }
            let numbers: Vec<usize> = (first..heads.len().min(first + AT_ONCE)).collect();
            let found = returns(heads, &numbers, rows, &snapshot);
            for (column, &h) in numbers.iter().enumerate() {
                let own = standardised(found.col(column));
                varies.push(own.is_some());
                let Some(own) = own else { continue };
                chosen.iter().enumerate().for_each(|(k, &i)| *all.at_mut(k, h) = own[i]);
                if is_sampled(h, heads.len(), self.rewards) {
                    sample.extend(own);
                }
            }
        }
        let n = rows.len();
        Ok(Returns { sample: Matrix::from_columns(n, sample.len() / n.max(1), sample), all, varies })
    }

    /// Rows of the evidence.
    fn chosen(&self) -> Vec<usize> {
        chosen_rows(self.rows.len(), self.settings.evidence_rows, 1, self.settings.seed)
    }

    fn search(&self, targets: &Matrix) -> Result<Search, RefitError> {
        let data = Data {
            rows: self.rows,
            inputs: &self.shared.inputs,
            targets,
            left_out: &[],
            room: self.settings.dictionary_max,
            seed: self.settings.seed,
            profiled: Some(self.settings.noise_floor),
        };
        Search::new(&self.settings, &data)
    }

    /// The kernel of these heads alone.
    fn fit(
        &self,
        targets: &Matrix,
        keep_going: KeepGoing<'_>,
        time_left: KeepGoing<'_>,
    ) -> Result<HeadSelection, RefitError> {
        let search = self.search(targets)?;
        let mut climb = Climb {
            search: &search,
            present: &self.shared.hyperparameters,
            by: EvidenceKind::Exact,
            note: &mut |_, _, _| {},
            keep_going,
            time_left,
        };
        let found = climb.select(self.settings.kernel, &mut Vec::new())?;
        Ok(HeadSelection::of(&found, &search, &self.shared.inputs, targets.cols()))
    }

    /// All heads between two kernels by the evidence of each; none where one group has no head. The rewards stay together.
    fn divide(
        &self,
        fitted: [HeadSelection; 2],
        gain: f64,
        returns: Returns,
        keep_going: KeepGoing<'_>,
    ) -> Result<Option<Split>, RefitError> {
        let Returns { all, varies, .. } = returns;
        let states: Vec<f64> = self.chosen().iter().flat_map(|&i| self.rows.state(i).iter().copied()).collect();
        let nodes = self.shared.inputs.normalise(&states);
        let problem = Problem::correlated(self.rows.dim, nodes, all).profiled(self.settings.noise_floor);
        let after = evidences(&problem, &fitted, keep_going)?;
        let more = |side: usize| (0..self.rewards).filter(|&h| varies[h]).map(|h| after[h][side]).sum::<f64>();
        let own = usize::from(more(1) > more(0));
        // A head that does not vary is as good under either kernel.
        let leaves = |&h: &usize| varies[h] && after[h][1 - own] > after[h][own];
        let second: Vec<usize> = (self.rewards..after.len()).filter(leaves).map(|h| h - self.rewards).collect();
        let [first, other] = fitted;
        let kernels = if own == 0 { [first, other] } else { [other, first] };
        Ok((!second.is_empty()).then_some(Split { kernels, second, gain }))
    }
}

/// Whether head `h` is of the sample: up to half of it are rewards, the others are evenly spaced.
fn is_sampled(h: usize, heads: usize, rewards: usize) -> bool {
    let taken = rewards.min(SAMPLE / 2);
    if h < rewards {
        return h < taken;
    }
    let (k, others) = (h - rewards, heads - rewards);
    let room = (SAMPLE - taken).min(others);
    // k is the first of the heads whose share of the room begins a new place.
    (k * room) % others < room
}

/// The columns of a matrix that `is_wanted` names.
fn columns(of: &Matrix, is_wanted: impl Fn(usize) -> bool) -> Matrix {
    let wanted: Vec<usize> = (0..of.cols()).filter(|&h| is_wanted(h)).collect();
    let values = wanted.iter().flat_map(|&h| of.col(h).iter().copied()).collect();
    Matrix::from_columns(of.rows(), wanted.len(), values)
}

/// Of each column of `problem` its evidence under either kernel, nats.
fn evidences(
    problem: &Problem,
    kernels: &[HeadSelection; 2],
    keep_going: KeepGoing<'_>,
) -> Result<Vec<[f64; 2]>, RefitError> {
    let of = |selection: &HeadSelection| profiled_values(problem, &selection.hyperparameters.kernel, keep_going);
    let [first, second] = [of(&kernels[0])?, of(&kernels[1])?];
    Ok(first.into_iter().zip(second).map(|(a, b)| [a, b]).collect())
}

/// On which side of the shared kernel each column of `problem` pulls: the sign of its gradient along the first principal direction
/// of all gradients, those of the variances left out.
fn sides(problem: &Problem, kernel: &Kernel, keep_going: KeepGoing<'_>) -> Result<Vec<bool>, RefitError> {
    let gradients = profiled_gradients(problem, kernel, keep_going)?;
    let shapes: Vec<f64> = gradients.iter().flat_map(|gradient| gradient[VARIANCES..].iter().copied()).collect();
    let width = shapes.len() / gradients.len();
    let pulls = Matrix::from_columns(width, gradients.len(), shapes);
    let (_, directions) = symmetric_eigen(&product(pulls.view(), Op::Plain, pulls.view(), Op::Transposed))
        .map_err(|e| RefitError::Solve(e.into()))?;
    let along = |h: usize| pulls.col(h).iter().zip(directions.col(width - 1)).map(|(a, b)| a * b).sum::<f64>();
    Ok((0..gradients.len()).map(|h| along(h) > 0.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_as_many_heads_as_it_may() {
        for (heads, rewards) in [(2, 1), (33, 1), (1000, 3), (70, 40), (32, 0)] {
            let sampled = (0..heads).filter(|&h| is_sampled(h, heads, rewards)).count();
            let expected = rewards.min(SAMPLE / 2) + (SAMPLE - rewards.min(SAMPLE / 2)).min(heads - rewards);
            assert_eq!(sampled, expected, "{heads} {rewards}");
        }
    }
}
