//! Two kernels for heads that one kernel does not suit, docs/mathematics.md (H14).

use super::climb::Climb;
use super::error::RefitError;
use super::head_kernel::{HeadSelection, at_unit_scale, learned, median, returns, standardised};
use super::search::{Data, EvidenceKind, Search, chosen_rows};
use crate::allowance::{self, Allowance};
use crate::heads::{Counted, Cumulant, Head, Rate, counting_all};
use crate::level::about_level_of_heads;
use crate::math::dense::{Matrix, Op, product, symmetric_eigen};
use crate::math::evidence::{KeepGoing, Problem, profiled_bests, profiled_gradients};
use crate::math::kernel::{Hyperparameters, Kernel, NoiseModel};
use crate::settings::{Lambda, SelectBy, SelectionKind, Settings, VarianceKind};
use crate::transition::Rows;

/// What two kernels have to gain, nats for each row and head.
pub const WORTH: f64 = 0.02;
/// What two kernels that are in force have to gain over one in order to stay, nats for each row and head: heads must not change
/// between one kernel and two with every refit.
pub const STAYS: f64 = 0.01;
/// Heads that divide themselves, the critic's rewards among them.
const SAMPLE: usize = 32;
/// Rows that evidences are computed on.
const EVIDENCE_ROWS: usize = 600;
/// Rounds of two kernels and heads that choose between them.
const SPLIT_ROUNDS: usize = 2;
/// Heads whose returns are computed at a time.
const HEADS_AT_ONCE: usize = 64;
/// Parameters of a kernel before its relevances: its two variances, and the noise variance.
const VARIANCES: usize = 3;

/// Two groups of heads, each with a kernel of its own.
#[derive(Clone, Debug)]
pub struct Split {
    /// The kernel of each group. The critic's rewards are in the first.
    pub kernels: [HeadSelection; 2],
    /// Numbers of the heads of the second group among the heads of the settings, rising, at least one.
    pub second: Vec<usize>,
    /// Median ratio of noise to scale of the heads of each group that vary, the rewards among them.
    pub ratios: [f64; 2],
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

/// The rewards of a critic and then its heads for which every row counts once, and the kernel that all share. The other heads stay
/// in the first group: their evidence is of other rows.
pub(super) struct SplitAsked<'a> {
    settings: Settings,
    /// Numbers of these heads among the critic's heads, rising.
    numbers: Vec<usize>,
    rows: &'a Rows,
    shared: &'a HeadSelection,
    /// State variables that cannot matter beside the others.
    left_out: &'a [usize],
    /// The kernels in force, first the values' kernel, if there are two. They are in the coordinates of `shared`, at unit scale.
    in_force: Option<[Hyperparameters; 2]>,
    rewards: usize,
}

/// Two kernels, and what they are worth to the heads of the sample.
struct Pair {
    kernels: [HeadSelection; 2],
    /// Sum of the log evidences of these heads, each under its own kernel, nats.
    evidence: f64,
}

/// Log evidence of the heads of the sample, nats, where two kernels were in force. Two kernels count for less by [`STAYS`] for each
/// row and head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    /// Under the kernels in force.
    pub(super) before: f64,
    /// Under the kernels that the attempt ends with.
    pub(super) after: f64,
}

/// A head under one of two kernels.
#[derive(Clone, Copy)]
struct Fit {
    /// Its log evidence at the best noise and scale, nats.
    evidence: f64,
    /// Noise over scale there.
    ratio: f64,
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
    allowance: &Allowance,
) -> Result<Attempt, RefitError> {
    if let Some((settings, rows)) = about_level_of_heads(settings, rows) {
        return split(&settings, &rows, shared, keep_going, allowance);
    }
    Ok(SplitAsked::new(settings, rows, shared, &[]).attempt(keep_going, allowance)?.0)
}

impl<'a> SplitAsked<'a> {
    pub(super) fn new(settings: &Settings, rows: &'a Rows, shared: &'a HeadSelection, left_out: &'a [usize]) -> Self {
        let reward = |&column: &usize| {
            Head::new(format!("reward {column}"), Cumulant::Reward(column), Rate::Discount(settings.discount))
        };
        let Counted { heads: numbers, .. } = counting_all(&settings.heads, rows);
        let even = |&k: &usize| Head {
            name: format!("head {k}"),
            weight: None,
            noise_variance: None,
            signal: None,
            ..settings.heads[k].clone()
        };
        let heads = settings.rewards.iter().map(reward).chain(numbers.iter().map(even)).collect();
        let settings = Settings {
            heads,
            evidence: SelectBy::Exact,
            evidence_rows: EVIDENCE_ROWS.min(settings.evidence_rows),
            noise: NoiseModel::Correlated,
            estimate_scale: true,
            // Only heads are read from the models of the search.
            lambda: Lambda::Fixed(1.0),
            selection: SelectionKind::Evidence,
            variance: VarianceKind::Model,
            ..settings.clone()
        };
        Self { rewards: settings.rewards.len(), numbers, settings, rows, shared, left_out, in_force: None }
    }

    /// The same where two kernels are in force.
    pub(super) fn beside(self, in_force: Option<[Hyperparameters; 2]>) -> Self {
        Self { in_force, ..self }
    }

    /// As [`split`]. Two kernels that are in force count as well, as they are: they stay while they, or what a search finds from them,
    /// gain [`STAYS`]; without a budget for the search, while one kernel is no better.
    ///
    /// # Errors
    /// The same.
    pub(super) fn attempt(
        &self,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<(Attempt, Option<Beside>), RefitError> {
        let count = self.settings.heads.len();
        let sampled: Vec<usize> = (0..count).filter(|&h| is_sampled(h, count, self.rewards)).collect();
        let every_row: Vec<usize> = (0..self.rows.len()).collect();
        let (sample, varies) = self.returns(&sampled, &every_row, keep_going, allowance)?;
        let sample = columns(&sample, |h| varies[h]);
        if sample.cols() < 2 {
            return Ok((Attempt::Together(0.0), None));
        }
        let problem = self.search(&sample)?.problem;
        allowance.spend(allowance::exact(&problem, false));
        let shared: f64 =
            profiled_bests(&problem, &self.shared.hyperparameters.kernel, keep_going)?.iter().map(|of| of.value).sum();
        let (kept, sides) = match self.kept(&problem, keep_going, allowance)? {
            Some((kept, sides)) => (Some(kept), sides),
            None => (None, Vec::new()),
        };
        let searched = if kept.is_none() || allowance.left() {
            self.pair(&problem, &sample, sides, keep_going, allowance)?
        } else {
            None
        };
        let each = (problem.rows() * problem.observed().cols()) as f64;
        let before = kept.as_ref().map(|kept| kept.evidence - STAYS * each);
        let least = match kept {
            None => WORTH,
            Some(_) if allowance.left() => STAYS,
            // One kernel may still lack what the search had no budget for; so may two.
            Some(_) => 0.0,
        };
        let better = |a: &Pair, b: &Pair| a.evidence.total_cmp(&b.evidence);
        let Some(best) = [kept, searched].into_iter().flatten().max_by(better) else {
            return Ok((Attempt::Together(0.0), None));
        };
        let gain = (best.evidence - shared) / each;
        let two = best.evidence - STAYS * each;
        let split = if gain < least { None } else { self.divide(best.kernels, gain, keep_going, allowance)? };
        let beside = before.map(|before| Beside { before, after: if split.is_some() { two } else { shared } });
        Ok((split.map_or(Attempt::Together(gain), |split| Attempt::Split(Box::new(split))), beside))
    }

    /// The kernels in force as they are, and under which of them the columns of `problem` are better.
    fn kept(
        &self,
        problem: &Problem,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<Option<(Pair, Vec<bool>)>, RefitError> {
        let Some(in_force) = &self.in_force else { return Ok(None) };
        let of = |hyperparameters: &Hyperparameters| HeadSelection {
            inputs: self.shared.inputs.clone(),
            hyperparameters: hyperparameters.clone(),
            log_evidence: 0.0,
            heads: 0,
            rows: problem.rows(),
            evaluations: 0,
            structure: hyperparameters.kernel.metric.kind().to_owned(),
        };
        let mut kernels = [of(&in_force[0]), of(&in_force[1])];
        let found = match fits(problem, &kernels, keep_going, allowance) {
            Err(RefitError::Stopped) => return Err(RefitError::Stopped),
            // Kernels that fail on these rows are no longer in question.
            Err(_) => return Ok(None),
            Ok(found) => found,
        };
        let sides: Vec<bool> = found.iter().map(|[first, second]| second.evidence > first.evidence).collect();
        for (fit, &side) in found.iter().zip(&sides) {
            let kernel = &mut kernels[usize::from(side)];
            kernel.log_evidence += fit[usize::from(side)].evidence;
            kernel.heads += 1;
        }
        let evidence = kernels.iter().map(|kernel| kernel.log_evidence).sum();
        Ok(Some((Pair { kernels, evidence }, sides)))
    }

    /// Two kernels that follow the heads of the `sample`, and heads that follow these. The search begins with these `sides`, or with
    /// the gradients' sides where they are all the same. None where no two kernels come about.
    fn pair(
        &self,
        problem: &Problem,
        sample: &Matrix,
        begin: Vec<bool>,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<Option<Pair>, RefitError> {
        let all_alike = |sides: &[bool]| sides.iter().all(|side| *side == sides[0]);
        let mut sides = if all_alike(&begin) {
            allowance.spend(allowance::exact_of_each(problem));
            sides(problem, &self.shared.hyperparameters.kernel, keep_going)?
        } else {
            begin
        };
        let mut round = 0;
        loop {
            if all_alike(&sides) {
                return Ok(None);
            }
            let fit = |side| self.fit(&columns(sample, |h| sides[h] == side), keep_going, allowance);
            let kernels = [fit(false)?, fit(true)?];
            let after = fits(problem, &kernels, keep_going, allowance)?;
            let chosen: Vec<bool> = after.iter().map(|[first, second]| second.evidence > first.evidence).collect();
            if chosen == sides || round == SPLIT_ROUNDS || !allowance.left() {
                let evidence = after.iter().zip(&sides).map(|(of, &side)| of[usize::from(side)].evidence).sum();
                return Ok(Some(Pair { kernels, evidence }));
            }
            (sides, round) = (chosen, round + 1);
        }
    }

    /// Returns (r, H) of the heads of these numbers in the rows of these numbers, in units of their root mean square over all rows,
    /// and which heads vary (H,). Returns of a head that does not vary are 0.
    fn returns(
        &self,
        heads: &[usize],
        rows: &[usize],
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<(Matrix, Vec<bool>), RefitError> {
        let Self { settings, shared, .. } = self;
        let list: Vec<Head> = heads.iter().map(|&h| settings.heads[h].clone()).collect();
        let settings = Settings { heads: list, ..settings.clone() };
        let model = learned(&settings, self.rows, &shared.inputs, &shared.hyperparameters, keep_going, allowance)?;
        let snapshot = model.sound_snapshot(false)?;
        let places = snapshot.places_of_heads(&settings.heads);
        let mut out = Matrix::zeros(rows.len(), heads.len());
        let mut varies = Vec::with_capacity(heads.len());
        for first in (0..heads.len()).step_by(HEADS_AT_ONCE) {
            if !keep_going() {
                return Err(RefitError::Stopped);
            }
            let numbers: Vec<usize> = (first..heads.len().min(first + HEADS_AT_ONCE)).collect();
            let found = returns(&settings.heads, &numbers, self.rows, &snapshot, &places);
            for (column, &h) in numbers.iter().enumerate() {
                let own = standardised(found.col(column));
                varies.push(own.is_some());
                let Some(own) = own else { continue };
                rows.iter().enumerate().for_each(|(k, &i)| *out.at_mut(k, h) = own[i]);
            }
        }
        Ok((out, varies))
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
            left_out: self.left_out,
            room: self.settings.dictionary_max,
            seed: self.settings.seed,
            profiled: Some(self.settings.noise_floor),
            linear: 0.0,
        };
        Search::new(&self.settings, &data)
    }

    /// The kernel of these heads alone.
    fn fit(
        &self,
        targets: &Matrix,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<HeadSelection, RefitError> {
        let search = self.search(targets)?;
        let mut climb = Climb {
            search: &search,
            present: &self.shared.hyperparameters,
            also: self.in_force.as_ref().map_or(&[], |kernels| &kernels[..]),
            by: EvidenceKind::Exact,
            note: &mut |_, _, _| {},
            keep_going,
            allowance,
        };
        let found = climb.select(self.settings.kernel, &mut Vec::new())?;
        allowance.spend(allowance::exact(&search.problem, false));
        let bests = profiled_bests(&search.problem, &found.hyperparameters().kernel, keep_going)?;
        Ok(HeadSelection::of(&found, &search, &self.shared.inputs, targets.cols(), &bests))
    }

    /// All these heads between two kernels by the evidence of each; none where one group has nothing that varies. The rewards stay together.
    fn divide(
        &self,
        fitted: [HeadSelection; 2],
        gain: f64,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<Option<Split>, RefitError> {
        let everything: Vec<usize> = (0..self.settings.heads.len()).collect();
        let chosen = self.chosen();
        let (all, varies) = self.returns(&everything, &chosen, keep_going, allowance)?;
        let states: Vec<f64> = chosen.iter().flat_map(|&i| self.rows.state(i).iter().copied()).collect();
        let nodes = self.shared.inputs.normalise(&states);
        let problem = Problem::correlated(self.rows.dim, nodes, all).profiled(self.settings.noise_floor);
        let after = fits(&problem, &fitted, keep_going, allowance)?;
        let more = |side: usize| (0..self.rewards).filter(|&h| varies[h]).map(|h| after[h][side].evidence).sum::<f64>();
        let own = usize::from(more(1) > more(0));
        // A head that does not vary is as good under either kernel.
        let leaves = |&h: &usize| h >= self.rewards && after[h][1 - own].evidence > after[h][own].evidence;
        let (second, first): (Vec<usize>, Vec<usize>) =
            everything.iter().filter(|&&h| varies[h]).partition(|&h| leaves(h));
        if first.is_empty() || second.is_empty() {
            return Ok(None);
        }
        let ratio = |group: &[usize], side: usize| median(group.iter().map(|&h| after[h][side].ratio).collect());
        let ratios = [ratio(&first, own), ratio(&second, 1 - own)];
        let [one, other] = fitted;
        let kernels = if own == 0 { [one, other] } else { [other, one] };
        let second = second.into_iter().map(|h| self.numbers[h - self.rewards]).collect();
        Ok(Some(Split { kernels, second, ratios, gain }))
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

/// Each column of `problem` under either kernel, whose ratios are those to a signal variance of 1.
fn fits(
    problem: &Problem,
    kernels: &[HeadSelection; 2],
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<Vec<[Fit; 2]>, RefitError> {
    let of = |selection: &HeadSelection| -> Result<Vec<Fit>, RefitError> {
        let kernel = at_unit_scale(&selection.hyperparameters).kernel;
        allowance.spend(allowance::exact(problem, false));
        let bests = profiled_bests(problem, &kernel, keep_going)?;
        Ok(bests.iter().map(|best| Fit { evidence: best.value, ratio: best.ratio }).collect())
    };
    let [first, second] = [of(&kernels[0])?, of(&kernels[1])?];
    Ok(first.into_iter().zip(second).map(|(a, b)| [a, b]).collect())
}

/// On which side of the shared kernel each column of `problem` pulls: the sign of its gradient along the first principal direction
/// of all gradients, without the variances.
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
