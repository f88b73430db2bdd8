//! Which states become elements of a dictionary, by several rules, and how these compare: by the squared error of later returns.
//!
//! Incomplete Cholesky (ICD) covers the states; the other rules also use returns or rewards ([`crate::math::pursuit`]).
//! Errors of returns decide between them: a dictionary that covers nothing makes V flat and TD errors small, docs/mathematics.md (D12).

use super::head_kernel::targets;
use super::report::Compared;
use crate::batch::{BatchError, Given, Selection, nodes};
use crate::heads::{Bank, Counted, Cumulant, Head, Rate, counting_all, counting_most};
use crate::math::dense::Matrix;
use crate::math::dictionary::{Dictionary, StoppingRule};
use crate::math::evidence::KeepGoing;
use crate::math::kernel::Points;
use crate::math::parts::sum_with_error;
use crate::math::posterior::SolveError;
use crate::math::pursuit::{Candidates, Regression, by_fixed_point, by_residual, by_returns, to_unit_norm};
use crate::math::returns::chains;
use crate::settings::{DictionaryBy, Settings};
use crate::transition::Rows;

/// States that elements are chosen from, besides twice as many as there are to be.
const CANDIDATES: usize = 600;
/// Rows that elements are chosen by.
const ROWS: usize = 5000;
/// Heads that elements are chosen by, those of the critic's rewards among them.
const HEADS: usize = 64;
/// Share of the rows, the first ones, that teaches where rules are compared.
const TAUGHT: f64 = 0.8;
/// Largest weight that may be missing of a return that counts as complete.
const MISSING: f64 = 0.01;
/// Stretches of the later rows that the differences between rules scatter over, at most, and at least for a comparison.
const STRETCHES_MAX: usize = 20;
const STRETCHES_MIN: usize = 8;
/// Rows of a stretch at least, over what the mean return looks ahead: neighbouring stretches then have little in common.
const STRETCH: f64 = 2.0;
/// Trace gap of a full dictionary above which another rule may be worth it, nats.
pub const GAP: f64 = 5.0;

impl Given<'_> {
    /// Evidence that the sparse model loses by this dictionary, nats over all rewards and heads.
    ///
    /// # Errors
    /// Stopped; no posterior.
    pub fn gap(&self, dictionary: &Dictionary, keep_going: KeepGoing<'_>) -> Result<f64, BatchError> {
        let model = self.model(dictionary.clone(), keep_going)?;
        let posterior = model.solve()?;
        // What the features miss is the same for all, and each loses as much more as its noise is smaller.
        let ratio = posterior.scale().ratio;
        let scales = model.heads().map_or(&[][..], Bank::scales).iter();
        let times = self.settings.rewards.len() as f64 + scales.map(|scale| ratio / scale.ratio).sum::<f64>();
        Ok(times * posterior.trace_gap(model.statistics()))
    }

    /// A dictionary by this rule, of at most as many elements as `icd` has, which chose from the same rows.
    ///
    /// # Errors
    /// Stopped, or no fixed point of OMP.
    pub fn select_by(
        &self,
        by: DictionaryBy,
        icd: &Selection,
        keep_going: KeepGoing<'_>,
    ) -> Result<Dictionary, BatchError> {
        if by == DictionaryBy::Icd {
            return Ok(icd.dictionary.clone());
        }
        self.about(&self.settings.level_of(self.rows), |given| given.select_about(by, icd, keep_going))
    }

    fn select_about(
        &self,
        by: DictionaryBy,
        icd: &Selection,
        keep_going: KeepGoing<'_>,
    ) -> Result<Dictionary, BatchError> {
        let (dim, most) = (self.inputs.dim(), icd.dictionary.elements_len());
        let mut candidates = icd.dictionary.elements().to_vec();
        let all = nodes(self.rows, self.settings.choices());
        let stride = (all.len() / dim).div_ceil(CANDIDATES.max(2 * most) - most).max(1);
        for state in all.chunks_exact(dim).step_by(stride) {
            candidates.extend(self.inputs.normalise(state));
        }
        let chosen = match by {
            DictionaryBy::Icd | DictionaryBy::Returns => {
                let half: Vec<usize> = (0..most.div_ceil(2)).collect();
                self.by_returns(icd, &candidates, &half, keep_going)?
            }
            DictionaryBy::OmpTd | DictionaryBy::OmpBrm => self.by_rewards(by, &candidates, most, keep_going)?,
        };
        let mut dictionary =
            Dictionary::new(self.hyperparameters.kernel.clone(), dim, icd.dictionary.tolerance(), most);
        dictionary.admit_chosen(&candidates, &chosen);
        dictionary.close();
        Ok(dictionary)
    }

    /// Numbers of the candidates that returns choose after those numbered `first`: the returns of the heads for which every row counts once,
    /// or where none of these has any, of those for which most rows count, in these rows.
    fn by_returns(
        &self,
        icd: &Selection,
        candidates: &[f64],
        first: &[usize],
        keep_going: KeepGoing<'_>,
    ) -> Result<Vec<usize>, BatchError> {
        let heads = asked(self.settings, self.hyperparameters.noise_variance);
        let settings = Settings { heads: heads.clone(), ..self.settings.clone() };
        let model = Given { settings: &settings, ..*self }.model(icd.dictionary.clone(), keep_going)?;
        let returns = targets(&heads, self.rows, &model.sound_snapshot(false)?);
        let of = |counted: Counted| {
            let sampled = evenly(&counted.rows);
            let column = |&h: &usize| in_own_unit(sampled.iter().map(|&i| returns.at(i, h)).collect());
            let columns: Vec<f64> = counted.heads.iter().filter_map(column).flatten().collect();
            (!columns.is_empty()).then_some((sampled, columns))
        };
        let all = of(counting_all(&heads, self.rows));
        let found = all.or_else(|| counting_most(&heads, self.rows).and_then(of));
        let (sampled, columns) =
            found.unwrap_or_else(|| (evenly(&(0..self.rows.len()).collect::<Vec<_>>()), Vec::new()));
        let targets = Matrix::from_columns(sampled.len(), columns.len() / sampled.len().max(1), columns);
        let (dim, states) = (self.inputs.dim(), self.states(&self.rows.states, &sampled));
        let (kernel, ratio) = (&self.hyperparameters.kernel, self.hyperparameters.noise_variance);
        let of = Regression { kernel, dim, states: &states, targets: &targets, ratio };
        by_returns(&of, candidates, first, icd.dictionary.elements_len(), keep_going).ok_or(BatchError::Stopped)
    }

    /// Numbers of the candidates that the critic's own rewards choose, one row ahead.
    fn by_rewards(
        &self,
        by: DictionaryBy,
        candidates: &[f64],
        most: usize,
        keep_going: KeepGoing<'_>,
    ) -> Result<Vec<usize>, BatchError> {
        let sampled = &evenly(&(0..self.rows.len()).collect::<Vec<_>>());
        let (rows, kernel, dim) = (self.rows, &self.hyperparameters.kernel, self.inputs.dim());
        let elements = kernel.project(dim, candidates);
        let features = |states: &[f64]| {
            let states = self.states(states, sampled);
            let mut out = Matrix::zeros(sampled.len(), candidates.len() / dim);
            let points = Points::new(kernel.projected_dim(dim), &kernel.project(dim, &states));
            kernel.block(&points, &elements, &mut out.view_mut());
            out
        };
        let (mut now, mut next) = (features(&rows.states), features(&rows.next_states));
        let discount = |&i: &usize| rows.follows(i, self.settings.discount);
        let discounts: Vec<f64> = sampled.iter().map(discount).collect();
        for j in 0..next.cols() {
            next.col_mut(j).iter_mut().zip(&discounts).for_each(|(value, discount)| *value *= discount);
        }
        if self.settings.dictionary_unit_norm {
            to_unit_norm(&mut now, &mut next);
        }
        let paid = |&column: &usize| sampled.iter().map(move |&i| rows.reward(i)[column]);
        let rewards: Vec<f64> = self.settings.rewards.iter().flat_map(paid).collect();
        let rewards = Matrix::from_columns(sampled.len(), self.settings.rewards.len(), rewards);
        let ridge = self.hyperparameters.noise_variance;
        let of = Candidates { now: &now, next: &next, rewards: &rewards, ridge, enough: self.settings.dictionary_beta };
        let chosen = match by {
            DictionaryBy::OmpBrm => by_residual(&of, most, keep_going),
            _ => by_fixed_point(&of, most, keep_going),
        };
        chosen.map_err(|e| BatchError::Solve(SolveError::from(e)))?.ok_or(BatchError::Stopped)
    }

    /// Normalised states of the rows numbered `sampled`, of all (n, D).
    fn states(&self, all: &[f64], sampled: &[usize]) -> Vec<f64> {
        let dim = self.inputs.dim();
        let states: Vec<f64> = sampled.iter().flat_map(|&i| &all[i * dim..(i + 1) * dim]).copied().collect();
        self.inputs.normalise(&states)
    }

    /// Teach the first four fifths of the rows through a dictionary of each of these rules, and compare their predictions with
    /// the returns of the others; of none, where too few returns of these are known to their end, or none. `enough` and `max` are those of
    /// [`Given::select`].
    ///
    /// # Errors
    /// As [`Given::select_by`].
    pub fn compare(
        &self,
        rules: &[DictionaryBy],
        enough: StoppingRule,
        max: usize,
        keep_going: KeepGoing<'_>,
    ) -> Result<Vec<Compared>, BatchError> {
        self.about(&self.settings.level_of(self.rows), |of| {
            let split = (TAUGHT * of.rows.len() as f64) as usize;
            let (mut taught, mut later) = (of.rows.without_rows(), of.rows.without_rows());
            taught.extend(of.rows, 0..split);
            later.extend(of.rows, split..of.rows.len());
            let heads = asked(of.settings, of.hyperparameters.noise_variance);
            let returns = complete_returns(&heads, &later);
            let Some(stretches) = Stretches::of(&returns) else { return Ok(Vec::new()) };
            let settings = Settings { heads: heads.clone(), ..of.settings.clone() };
            let given = Given { settings: &settings, rows: &taught, ..*of };
            let icd = given.select(enough, max, keep_going)?;
            let judge = |&by: &DictionaryBy| {
                let dictionary = given.select_by(by, &icd, keep_going)?;
                let elements = dictionary.elements_len();
                let mut model = given.model(dictionary, keep_going)?;
                model.tune_heads()?;
                let snapshot = model.sound_snapshot(false)?;
                let found = snapshot.means_of_heads(&later.states, &snapshot.places_of_heads(&heads));
                let mean = found.expect("states of rows are finite");
                let of_head = |(h, of): (usize, &Complete)| stretches.errors(of, |i| mean[(i, h)] - heads[h].level);
                Ok((by, elements, returns.iter().enumerate().map(of_head).collect()))
            };
            Ok(stretches.compared(rules.iter().map(judge).collect::<Result<Vec<Judged>, BatchError>>()?))
        })
    }
}

/// Products of a choice of `elements` by the returns of `rows`, or of [`ROWS`] of them.
pub(super) fn pursuit(rows: usize, elements: usize) -> f64 {
    let candidates = CANDIDATES.max(2 * elements);
    (rows.min(ROWS) * candidates * elements) as f64
}

/// The critic's rewards as heads with its own noise, and some of its heads, evenly spaced.
fn asked(settings: &Settings, noise_variance: f64) -> Vec<Head> {
    let own = |&column: &usize| Head {
        noise_variance: Some(noise_variance),
        signal: Some(1.0),
        ..Head::new(format!("reward {column}"), Cumulant::Reward(column), Rate::Discount(settings.discount))
    };
    let mut out: Vec<Head> = settings.rewards.iter().map(own).collect();
    let heads = some_heads(&settings.heads, HEADS.saturating_sub(out.len()));
    out.extend(heads.into_iter().enumerate().map(|(k, head)| Head { name: format!("head {k}"), ..head }));
    out
}

/// At most so many of these heads, evenly spaced.
pub(crate) fn some_heads(heads: &[Head], most: usize) -> Vec<Head> {
    let count = most.min(heads.len());
    (0..count).map(|k| heads[k * heads.len() / count].clone()).collect()
}

/// At most [`ROWS`] of these rows, evenly spaced.
fn evenly(rows: &[usize]) -> Vec<usize> {
    rows.iter().copied().step_by(rows.len().div_ceil(ROWS).max(1)).collect()
}

/// Returns divided by their root mean square; none where that is none.
fn in_own_unit(mut returns: Vec<f64>) -> Option<Vec<f64>> {
    let square = returns.iter().map(|y| y * y).sum::<f64>() / returns.len() as f64;
    returns.iter_mut().for_each(|y| *y /= square.sqrt());
    square.is_normal().then_some(returns)
}

/// What is known of the returns of one head.
#[derive(Default)]
struct Complete {
    /// Rows that count, the last one first, and their returns.
    known: Vec<(usize, f64)>,
    /// Rows that these look ahead, in the mean: 1 / (1 - discount) within long chains.
    reach: f64,
}

/// Of each head the rows that count for it and whose return is known to the end, but for a weight of [`MISSING`], and these returns.
/// Nothing is known of a return that comes to a row without a label.
fn complete_returns(heads: &[Head], rows: &Rows) -> Vec<Complete> {
    let successor = chains(rows);
    let of = |head: &Head| {
        let mut out = Complete::default();
        // Return, the weight that it still misses, and the rows that it looks ahead.
        let mut returns = vec![(0.0, 1.0, 0.0); rows.len()];
        for i in (0..rows.len()).rev() {
            let kept = head.continuation.of(rows, i);
            let dt = match (successor[i], rows.times.get(i)) {
                (Some(next), Some(time)) => rows.times[next] - time,
                _ => 1.0,
            };
            let decay = kept * head.rate.discount(dt);
            let (beyond, missing, reach) = match successor[i] {
                _ if rows.terminated[i] => (0.0, 0.0, 0.0),
                Some(next) => returns[next],
                None => (0.0, 1.0, 0.0),
            };
            returns[i] = (head.paid(rows, i, kept) + decay * beyond, decay * missing, 1.0 + decay * reach);
            if head.lacks_label(rows, i) {
                returns[i] = (0.0, 1.0, 0.0);
            } else if returns[i].1 < MISSING && head.count(rows, i) > 0.0 {
                out.known.push((i, returns[i].0));
                out.reach += returns[i].2;
            }
        }
        out.reach /= out.known.len() as f64;
        out
    };
    heads.iter().map(of).collect()
}

/// Stretches of rows, all of one length but for a row.
struct Stretches {
    count: usize,
    /// Rows of all of them.
    rows: usize,
}

/// A rule, the elements that it chose, and its errors of each head by stretches, none where these are not known.
type Judged = (DictionaryBy, usize, Vec<Option<Vec<f64>>>);

impl Stretches {
    /// Those of the rows with known returns; none where they are too few for [`STRETCHES_MIN`].
    fn of(returns: &[Complete]) -> Option<Self> {
        let varying: Vec<&Complete> = returns.iter().filter(|of| variance(&of.known).is_some()).collect();
        // The last row of each stands first.
        let rows = varying.iter().filter_map(|of| of.known.first()).map(|(i, _)| i + 1).max()?;
        let reach = varying.iter().map(|of| of.reach).sum::<f64>() / varying.len() as f64;
        let count = ((rows as f64 / (STRETCH * reach)) as usize).min(STRETCHES_MAX);
        (count >= STRETCHES_MIN).then_some(Self { count, rows })
    }

    /// Mean squared error over the variance of these returns, as the shares that the stretches have in it; none where returns do not vary.
    fn errors(&self, of: &Complete, value: impl Fn(usize) -> f64) -> Option<Vec<f64>> {
        let scale = variance(&of.known)? * of.known.len() as f64;
        let mut errors = vec![0.0; self.count];
        of.known.iter().for_each(|&(i, y)| errors[i * self.count / self.rows] += (y - value(i)).powi(2) / scale);
        // A head that could not be solved for tells nothing of a dictionary.
        errors.iter().all(|error| error.is_finite()).then_some(errors)
    }

    /// How the rules compare, over the heads that are known under each of them.
    fn compared(&self, judged: Vec<Judged>) -> Vec<Compared> {
        let heads = judged.first().map_or(0, |(.., errors)| errors.len());
        let solved = |(.., errors): &&Judged| errors.iter().any(Option::is_some);
        let in_all = |h: &usize| judged.iter().filter(solved).all(|(.., errors)| errors[*h].is_some());
        let shared: Vec<usize> = (0..heads).filter(in_all).collect();
        let mean = |errors: &[Option<Vec<f64>>]| -> Option<Vec<f64>> {
            let of_shared: Option<Vec<&Vec<f64>>> = shared.iter().map(|&h| errors[h].as_ref()).collect();
            let of_shared = of_shared.filter(|of| !of.is_empty())?;
            let at = |k: usize| of_shared.iter().map(|of| of[k]).sum::<f64>() / of_shared.len() as f64;
            Some((0..self.count).map(at).collect())
        };
        let of_icd = judged.iter().find(|(by, ..)| *by == DictionaryBy::Icd).and_then(|(.., errors)| mean(errors));
        let of = |(by, elements, errors): &Judged| {
            let errors = mean(errors);
            let apart = errors.as_ref().zip(of_icd.as_ref()).map(|(of, icd)| {
                let differences: Vec<f64> = icd.iter().zip(of).map(|(icd, of)| icd - of).collect();
                sum_with_error(&differences).1
            });
            Compared { by: *by, elements: *elements, error: errors.map(|of| of.iter().sum()), standard_error: apart }
        };
        judged.iter().map(of).collect()
    }
}

/// Variance of known returns; none where they do not vary.
fn variance(known: &[(usize, f64)]) -> Option<f64> {
    let n = known.len() as f64;
    let mean = known.iter().map(|(_, y)| y).sum::<f64>() / n;
    let variance = known.iter().map(|(_, y)| (y - mean).powi(2)).sum::<f64>() / n;
    (variance > 1e-12 * mean * mean && variance.is_normal()).then_some(variance)
}
