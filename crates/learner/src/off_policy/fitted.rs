//! Rows of the policy that acted as episodes, and Q of the policy that is judged, learned from them (fitted Q evaluation).

use super::learned::LearnedQ;
use super::policy::{Fault, Policy};
use super::{Episode, Estimate, FAR_MAX, FREEDOM_MAX, Judgement, NoInterval, TRACE_GAP_MAX, judge};
use crate::action::{ActionColumns, ActionSpace, ActionValue, StateActionRows, Successor, Trace};
use crate::math::kernel::Kernel;
use crate::snapshot::{Ask, Snapshot};
use crate::transition::Rows;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Variance, as a share of the signal's, above which next to nothing is known: one row that tells its value without noise leaves
/// so much where the correlation with it is 0.3.
const FAR_VARIANCE: f64 = 0.91;
/// Rows at most in whose states it is looked how far off the policy is.
const FAR_ROWS: usize = 2000;
/// Inputs of starts at most that the deviation of their mean value is worked out from.
const STARTS_MAX: usize = 400;

/// Numbers from 0 to `count` in an order that `seed` decides.
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for i in (1..count).rev() {
        order.swap(i, rng.random_range(0..=i));
    }
    order
}

/// How many episodes there are.
pub fn count(episodes: &[u32]) -> usize {
    episodes.iter().max().map_or(0, |&last| last as usize + 1)
}

/// First row of each episode.
pub fn first_rows(episodes: &[u32]) -> Vec<usize> {
    let mut seen = vec![false; count(episodes)];
    let first = |&i: &usize| !std::mem::replace(&mut seen[episodes[i] as usize], true);
    (0..episodes.len()).filter(first).collect()
}

/// Put episodes into `folds` groups of about the same number, at random by `seed`: the group of each row.
///
/// # Panics
/// If `folds` is 0.
pub fn folds(episodes: &[u32], folds: usize, seed: u64) -> Vec<usize> {
    let mut group = vec![0; count(episodes)];
    for (k, &episode) in shuffled(group.len(), seed).iter().enumerate() {
        group[episode] = k % folds;
    }
    episodes.iter().map(|&episode| group[episode as usize]).collect()
}

/// The rows for which `keep` is set, in their order.
pub fn part(rows: &Rows, keep: impl Fn(usize) -> bool) -> Rows {
    let mut part = rows.without_rows();
    (0..rows.len()).filter(|&i| keep(i)).for_each(|i| part.extend(rows, i..i + 1));
    part
}

/// Rows whose states are evaluated at once, each with every action.
const ROWS_AT_ONCE: usize = 1 << 10;

/// Rows, their episodes and the two policies.
#[derive(Clone, Debug)]
pub struct Judged {
    /// With one reward each.
    pub rows: Rows,
    /// (n,) number of the episode of each row, from 0.
    pub episodes: Vec<u32>,
    /// Actions and probabilities, with the probabilities of the policy that is judged filled in ([`Policy::fill`]).
    pub columns: ActionColumns,
    /// The policy, where a Q is fitted.
    pub policy: Option<Policy>,
    /// Discount of rows that carry none.
    pub discount: f64,
    /// Largest importance ratio of a row; none for no limit.
    pub rho_max: Option<f64>,
}

/// What a fitted Q says.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Of the states where episodes began, with the error that the rows which it was fitted to show.
    pub estimate: Estimate,
    /// Part of the square of that error that comes from the rows, and not from the states where episodes begin.
    open: f64,
    /// Mean square of the TD errors of episodes that were left out over the mean square of the episodes fitted to, at least 1.
    unseen_ratio: f64,
    /// What the dictionary leaves open, nats.
    pub trace_gap: f64,
    /// Elements of the dictionary.
    pub elements: usize,
    /// Rows that were learned.
    pub rows: usize,
    /// Weights that they decide.
    pub freedom: f64,
    /// Share of what the policy does in the states of the rows that is far from everything that was done.
    pub far: f64,
    /// (n,) V at the states and Q at the states and actions, by models that have not seen the episode; none with one episode.
    unseen: Option<(Vec<f64>, Vec<f64>)>,
}

/// Findings about a policy.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Rows that they come from.
    pub transitions: usize,
    /// Their episodes.
    pub episodes: usize,
    /// Discount of rows that carry none.
    pub discount: f64,
    /// Largest importance ratio of a row; none for no limit.
    pub rho_max: Option<f64>,
    /// By the weights of episodes; none where a row lacks a probability.
    pub judgement: Option<Judgement>,
    /// By a fitted Q, if there is one.
    pub fitted: Option<Fitted>,
}

/// What a Q is fitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taught {
    /// All episodes: its interval is asked for.
    All,
    /// The episodes of other groups: it corrects, and its own errors do not count.
    Others,
}

impl Judged {
    /// Q of the policy is fitted to all episodes and to all but each of `groups` groups of them, at random by `seed`. `learn` makes
    /// a model of rows between inputs of Q; `done` hears after each what share of them there is.
    ///
    /// # Errors
    /// Without a policy; a row without an action of `space`; or as `learn` does.
    pub fn fitted<E: From<Fault>>(
        &self,
        space: ActionSpace,
        (groups, seed): (usize, u64),
        learn: &mut dyn FnMut(&ActionValue, &Rows, Taught) -> Result<LearnedQ, E>,
        done: &mut dyn FnMut(f64),
    ) -> Result<Fitted, E> {
        let policy = self.policy.as_ref().ok_or_else(|| {
            Fault::of("a fitted Q needs the answers of the policy in the first state of each episode")
        })?;
        let of = value_of(policy, space);
        let learned = of.rows(&self.rows, &self.columns, self.rho_max).map_err(Fault::from)?;
        let count = count(&self.episodes);
        let groups = if count < 2 { 0 } else { groups.clamp(2, count) };
        let share = |fits: usize| fits as f64 / (groups + 1) as f64;
        let LearnedQ { snapshot: mut whole, trace_gap, freedom, told } = learn(&of, &learned.rows, Taught::All)?;
        done(share(1));
        let (estimate, open) = self.start_value(&whole, &of.space, policy)?;
        whole.variance = Some(told);
        let far = self.far(&whole, &of.space, policy)?;
        let unseen = match groups {
            0 => None,
            _ => Some(self.unseen(&of, policy, &learned, (groups, seed), learn, &mut |fits| done(share(fits + 1)))?),
        };
        let unseen_ratio = match &unseen {
            Some((v, q)) => {
                let places: Vec<usize> = (0..self.rows.len()).collect();
                let (seen_v, seen_q) = self.values(&whole, &of.space, policy, &places)?;
                let ratio = self.td_square(v, q) / self.td_square(&seen_v, &seen_q);
                if ratio.is_finite() { ratio.max(1.0) } else { 1.0 }
            }
            None => 1.0,
        };
        let (elements, rows) = (whole.dictionary.nrows(), learned.rows.len());
        Ok(Fitted { estimate, open, unseen_ratio, trace_gap, elements, rows, freedom, far, unseen })
    }

    /// By importance sampling, and doubly robust where there is a fitted Q. None where a row lacks a probability.
    pub fn judgement(&self, fitted: Option<&Fitted>, ess_min: f64) -> Option<Judgement> {
        let (rows, columns) = (&self.rows, &self.columns);
        let both = |i: usize| columns.behavior_probs.number(i).zip(columns.target_probs.number(i));
        if (0..rows.len()).any(|i| both(i).is_none()) {
            return None;
        }
        let most = self.rho_max.unwrap_or(f64::INFINITY);
        let ratio = |i: usize| both(i).map_or(1.0, |(behavior, target)| (target / behavior).min(most));
        let unseen = fitted.and_then(|fitted| fitted.unseen.as_ref());
        let mut of_episode: Vec<Vec<usize>> = vec![Vec::new(); count(&self.episodes)];
        self.episodes.iter().enumerate().for_each(|(i, &episode)| of_episode[episode as usize].push(i));
        of_episode.retain(|places| !places.is_empty());
        let take = |of: &dyn Fn(usize) -> f64| -> Vec<Vec<f64>> {
            of_episode.iter().map(|places| places.iter().map(|&i| of(i)).collect()).collect()
        };
        let (rewards, ratios) = (take(&|i| rows.rewards[i]), take(&ratio));
        let discounts = take(&|i| rows.discount(i, self.discount));
        let models = unseen.map(|(v, q)| (take(&|i| v[i]), take(&|i| q[i])));
        let episodes: Vec<Episode<'_>> = (0..of_episode.len())
            .map(|k| Episode {
                rewards: &rewards[k],
                discounts: &discounts[k],
                ratios: &ratios[k],
                model: models.as_ref().map(|(v, q)| (&v[k][..], &q[k][..])),
            })
            .collect();
        (!episodes.is_empty()).then(|| judge(&episodes, ess_min))
    }

    /// All findings, where there is a fitted Q with it.
    pub fn findings(&self, fitted: Option<Fitted>, ess_min: f64) -> Findings {
        Findings {
            transitions: self.rows.len(),
            episodes: count(&self.episodes),
            discount: self.discount,
            rho_max: self.rho_max,
            judgement: self.judgement(fitted.as_ref(), ess_min),
            fitted,
        }
    }

    /// V and Q (n,) at each row by a model that has learned other episodes.
    fn unseen<E: From<Fault>>(
        &self,
        of: &ActionValue,
        policy: &Policy,
        learned: &StateActionRows,
        (groups, seed): (usize, u64),
        learn: &mut dyn FnMut(&ActionValue, &Rows, Taught) -> Result<LearnedQ, E>,
        done: &mut dyn FnMut(usize),
    ) -> Result<(Vec<f64>, Vec<f64>), E> {
        let n = self.rows.len();
        let group = folds(&self.episodes, groups, seed);
        let (mut v, mut q) = (vec![0.0; n], vec![0.0; n]);
        for fold in 0..groups {
            let others = part(&learned.rows, |k| group[learned.kept[k]] != fold);
            let model = learn(of, &others, Taught::Others)?.snapshot;
            let places: Vec<usize> = (0..n).filter(|&i| group[i] == fold).collect();
            let (values, acted) = self.values(&model, &of.space, policy, &places)?;
            for (k, &i) in places.iter().enumerate() {
                (v[i], q[i]) = (values[k], acted[k]);
            }
            done(fold + 1);
        }
        Ok((v, q))
    }

    /// Sum of the squared TD errors of values V and Q (n,) at each row. The last row of an episode counts where it terminates.
    fn td_square(&self, v: &[f64], q: &[f64]) -> f64 {
        let mut behind = vec![None; count(&self.episodes)];
        let square = |i: usize| {
            let next = behind[self.episodes[i] as usize].replace(i);
            let rest = match next {
                Some(next) => self.rows.discount(i, self.discount) * v[next],
                None if self.rows.terminated[i] => 0.0,
                None => return 0.0,
            };
            (self.rows.rewards[i] + rest - q[i]).powi(2)
        };
        (0..self.rows.len()).rev().map(square).sum()
    }

    /// V of the policy at the states of rows `places`, and Q at their states and actions.
    fn values(
        &self,
        model: &Snapshot,
        space: &ActionSpace,
        policy: &Policy,
        places: &[usize],
    ) -> Result<(Vec<f64>, Vec<f64>), Fault> {
        let (mut v, mut q) = (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
        for some in places.chunks(ROWS_AT_ONCE) {
            let (mut inputs, mut shares, mut acted) = (Vec::new(), Vec::new(), Vec::new());
            for &i in some {
                policy.inputs(i, self.rows.state(i), space, &mut |input, share| {
                    inputs.extend_from_slice(input);
                    shares.push((v.len(), share));
                })?;
                v.push(0.0);
                acted.extend_from_slice(self.rows.state(i));
                let action = self.columns.actions.row(i).unwrap_or_default();
                space.append(action, &mut acted).map_err(|message| Fault { row: Some(i), message })?;
            }
            let found = model.evaluate(&inputs, Ask::MEAN)?.mean;
            shares.iter().zip(found.column(0).iter()).for_each(|(&(k, share), value)| v[k] += share * value);
            q.extend(model.evaluate(&acted, Ask::MEAN)?.mean.column(0).iter());
        }
        Ok((v, q))
    }

    /// Share of the policy's inputs, in the states of some rows, of whose Q the rows would tell next to nothing, if each told its own
    /// value: their variance is above [`FAR_VARIANCE`], or their action has another coordinate where all rows have the same, which no
    /// kernel learned from them can tell apart.
    fn far(&self, model: &Snapshot, space: &ActionSpace, policy: &Policy) -> Result<f64, Fault> {
        let n = self.rows.len();
        let (mut inputs, mut shares) = (Vec::new(), Vec::new());
        for i in (0..n).step_by(n.div_ceil(FAR_ROWS).max(1)) {
            policy.inputs(i, self.rows.state(i), space, &mut |input, share| {
                inputs.extend_from_slice(input);
                shares.push(share);
            })?;
        }
        let (most, same) = (FAR_VARIANCE * model.hyperparameters.kernel.signal_variance, self.same_in_all(space)?);
        let untried = |action: &[f64]| action.iter().zip(&same).any(|(v, same)| same.is_some_and(|same| same != *v));
        let found = model.evaluate(&inputs, Ask::VARIANCE)?.variance.unwrap_or_default();
        let inputs = inputs.chunks_exact(self.rows.dim + space.width()).map(|input| &input[self.rows.dim..]);
        let of_each = found.iter().zip(inputs).zip(&shares);
        let far: f64 = of_each.filter(|((left, z), _)| **left > most || untried(z)).map(|(_, share)| share).sum();
        Ok(far / shares.iter().sum::<f64>())
    }

    /// (A,) coordinates of actions that are the same in all rows.
    fn same_in_all(&self, space: &ActionSpace) -> Result<Vec<Option<f64>>, Fault> {
        let mut acted = Vec::new();
        for (i, action) in (0..self.rows.len()).filter_map(|i| Some((i, self.columns.actions.row(i)?))) {
            space.append(action, &mut acted).map_err(|message| Fault { row: Some(i), message })?;
        }
        let column = |d: usize| acted.iter().skip(d).step_by(space.width());
        Ok((0..space.width())
            .map(|d| column(d).next().copied().filter(|v| column(d).all(|other| other == v)))
            .collect())
    }

    /// The mean of V over the rows where episodes begin, and the second of the two parts of its error: how V varies between starts,
    /// and what the rows leave open of the mean itself:
    /// ```text
    /// Var = s^2 / n + sum w_i w_j k(z_i, z_j) - k' C k        k = sum w_i k_m(z_i), over inputs z_i of weight w_i
    /// ```
    fn start_value(&self, model: &Snapshot, space: &ActionSpace, policy: &Policy) -> Result<(Estimate, f64), Fault> {
        let starts = first_rows(&self.episodes);
        let (v, _) = self.values(model, space, policy, &starts)?;
        let n = v.len() as f64;
        let value = v.iter().sum::<f64>() / n;
        let between = v.iter().map(|v| (v - value) * (v - value)).sum::<f64>() / (n - 1.0).max(1.0) / n;
        let some: Vec<usize> = starts.iter().copied().step_by(starts.len().div_ceil(STARTS_MAX / 4).max(1)).collect();
        let (mut inputs, mut shares) = (Vec::new(), Vec::new());
        for &i in &some {
            policy.inputs(i, self.rows.state(i), space, &mut |input, share| {
                inputs.extend_from_slice(input);
                shares.push(share / some.len() as f64);
            })?;
        }
        let open = variance_of_mean(model, &inputs, &shares);
        Ok((Estimate { value, error: (between + open).sqrt() }, open))
    }
}

/// The value of the policy that is judged.
fn value_of(policy: &Policy, space: ActionSpace) -> ActionValue {
    let successor = if policy.is_stochastic() { Successor::Expected } else { Successor::NextAction };
    ActionValue { space, successor, trace: Trace::Retrace }
}

impl Fitted {
    /// The estimate with the error that the report states. The kernel was chosen for another policy, and the rows that the estimate was
    /// fitted to do not show the bias of that. `robust`, the doubly robust estimate where it has an interval, shows it; without one the
    /// rows left out show a part of it.
    /// ```text
    /// error^2 + (fqe - dr)^2         or    between starts + open * TD errors left out / fitted               docs/mathematics.md (A10)
    /// ```
    fn told(&self, robust: Option<Estimate>) -> Estimate {
        let Estimate { value, error } = self.estimate;
        let square = match robust {
            Some(robust) => error * error + (value - robust.value).powi(2),
            None => error * error + (self.unseen_ratio - 1.0) * self.open,
        };
        Estimate { value, error: square.sqrt() }
    }

    /// Why its estimate has no interval, where that is so.
    fn refusals(&self) -> Vec<NoInterval> {
        let Self { trace_gap: gap, elements, rows, freedom, far, .. } = *self;
        [
            (gap > TRACE_GAP_MAX).then_some(NoInterval::TraceGap { gap, elements }),
            (freedom > FREEDOM_MAX * rows as f64).then_some(NoInterval::FewRows { rows, freedom }),
            // With too few elements all is far.
            (gap <= TRACE_GAP_MAX && far > FAR_MAX).then_some(NoInterval::Far { share: far }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Findings {
    /// Estimates by name, each with the reasons for which it has no interval.
    pub fn estimates(&self) -> Vec<(&'static str, Estimate, Vec<NoInterval>)> {
        let mut out = Vec::new();
        if let Some(found) = &self.judgement {
            let each = [("is", Some(found.is)), ("wis", Some(found.wis)), ("pdis", Some(found.pdis)), ("dr", found.dr)];
            out.extend(each.into_iter().filter_map(|(name, e)| Some((name, e?, found.refusals.clone()))));
        }
        if let Some(fitted) = &self.fitted {
            let robust = self.judgement.as_ref().filter(|found| found.refusals.is_empty()).and_then(|found| found.dr);
            out.push(("fqe", fitted.told(robust), fitted.refusals()));
        }
        out
    }

    /// Sentences that say why estimates have no interval, each once.
    pub fn refused(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (_, _, refusals) in self.estimates() {
            for sentence in refusals.iter().map(ToString::to_string) {
                if !said.contains(&sentence) {
                    said.push(sentence);
                }
            }
        }
        said
    }

    /// Further sentences.
    pub fn warnings(&self) -> &[String] {
        self.judgement.as_ref().map_or(&[], |found| &found.warnings)
    }
}

/// Variance of sum shares_i V(z_i) for inputs z (k, D).
fn variance_of_mean(model: &Snapshot, inputs: &[f64], shares: &[f64]) -> f64 {
    let kernel: &Kernel = &model.hyperparameters.kernel;
    let dim = model.dim();
    let width = kernel.projected_dim(dim);
    let points = kernel.project(dim, &model.inputs.normalise(inputs));
    let basis = kernel.project(dim, model.dictionary.transpose().as_slice());
    let weighted = |at: &[f64]| -> f64 {
        points.chunks_exact(width).zip(shares).map(|(z, share)| share * kernel.eval(z, at)).sum()
    };
    // Of the columns, what the mean has in common with each coefficient.
    let values = |j: usize| points.chunks_exact(width).map(move |z| z[width - kernel.columns() + j]);
    let mean = |j: usize| values(j).zip(shares).map(|(value, share)| share * value).sum::<f64>();
    let given: Vec<f64> = (0..kernel.columns()).map(mean).collect();
    let of_columns = kernel.columns.iter().zip(&given).map(|(column, value)| column.variance * value * value);
    let spanned: f64 = points.chunks_exact(width).zip(shares).map(|(z, share)| share * weighted(z)).sum();
    let prior = of_columns.fold(spanned, |sum, variance| sum + variance);
    let given = kernel.columns.iter().zip(&given).map(|(column, value)| column.variance * value);
    let k: Vec<f64> = given.chain(basis.chunks_exact(width).map(weighted)).collect();
    let k = nalgebra::DVector::from_vec(k);
    let learned = model.variance.as_ref().map_or(0.0, |c| k.dot(&(c * &k)));
    (prior - learned).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(value: f64, error: f64, open: f64, unseen_ratio: f64) -> Fitted {
        let estimate = Estimate { value, error };
        Fitted {
            estimate,
            open,
            unseen_ratio,
            trace_gap: 0.0,
            elements: 10,
            rows: 1000,
            freedom: 5.0,
            far: 0.0,
            unseen: None,
        }
    }

    #[test]
    fn a_fitted_estimate_is_no_surer_than_the_robust_one_beside_it() {
        let found = fitted(1.0, 0.3, 0.05, 4.0);
        let robust = Estimate { value: 1.4, error: 0.1 };
        assert!((found.told(Some(robust)).error - 0.5).abs() < 1e-12 && found.told(Some(robust)).value == 1.0);
        // Without one the part of the error that the rows decide is as much larger as TD errors of episodes left out are.
        assert!((found.told(None).error - (0.09f64 + 3.0 * 0.05).sqrt()).abs() < 1e-12);
        assert_eq!(fitted(1.0, 0.3, 0.05, 1.0).told(None).error, 0.3);
    }

    #[test]
    fn td_errors_run_along_episodes_and_end_where_these_do() {
        let mut rows = Rows::new(1, 1);
        rows.states = vec![0.0; 5];
        rows.rewards = vec![1.0, 2.0, 3.0, 4.0, 5.0];
        rows.terminated = vec![false, true, false, false, false];
        rows.discounts = vec![f64::NAN; 5];
        (rows.next_states, rows.ratios, rows.streams) = (vec![0.0; 5], vec![1.0; 5], vec![0; 5]);
        (rows.truncated, rows.starts_chain) = (vec![false; 5], vec![false; 5]);
        let columns = ActionColumns::default();
        let judged =
            Judged { rows, episodes: vec![0, 0, 1, 0, 1], columns, policy: None, discount: 0.5, rho_max: None };
        // Episode 0 has the rows 0, 1, 3, of which the last does not terminate; episode 1 the rows 2 and 4, likewise.
        let (v, q) = ([10.0, 20.0, 30.0, 40.0, 50.0], [0.0; 5]);
        let expected = [1.0 + 0.5 * 20.0, 2.0 + 0.5 * 40.0, 3.0 + 0.5 * 50.0];
        assert_eq!(judged.td_square(&v, &q), expected.iter().map(|e| e * e).sum::<f64>());
    }
}
