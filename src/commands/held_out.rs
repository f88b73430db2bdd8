//! How well values predict returns of episodes that they were not learned from.

use super::Failure;
use super::dictionary::DictionaryOptions;
use super::given::{plain_unit, plural, unit_of, without_unit};
use super::output::number;
use crate::learner::Settings;
use crate::learner::batch::Given;
use crate::learner::model::Model;
use crate::learner::off_policy::shuffled;
pub(super) use crate::learner::off_policy::{count, folds, part};
use crate::learner::verification::factor_of;
use crate::math::kernel::Hyperparameters;
use crate::math::returns::{chains, regression_weights};
use crate::snapshot::{Ask, Evaluation, Inputs, Snapshot};
use crate::transition::{Invalid, Rows};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Where this much of a return is the model's own value, behind the end of a cut episode, it says little about the model.
pub(super) const CLOSED: f64 = 0.2;
/// Error without a variable over the error with it up to which it is as good: errors of few episodes scatter by more.
const SPARED: f64 = 1.01;
/// Fewer returns than this say nothing.
const ROWS_MIN: usize = 10;
/// Standard deviations within which nine of ten of a normal distribution lie.
const NINE_TENTHS: f64 = 1.644_853_626_951_472_2;

/// How well the returns of held-out episodes were predicted.
pub(super) struct HeldOut {
    /// Episodes held out, of how many.
    pub(super) episodes: usize,
    pub(super) of: usize,
    /// Returns compared.
    pub(super) rows: usize,
    /// Whether these returns end, at least four fifths of them, within their episodes.
    pub(super) ended: bool,
    /// One for each reward.
    pub(super) heads: Vec<Figures>,
    /// What the deviations of returns are to be multiplied by for their intervals to hold: 1 unless these returns demand another.
    pub(super) factor: f64,
}

/// How well the returns of one reward were predicted.
pub(super) struct Figures {
    /// Between value and return, in [-1, 1]; 0 where either does not vary.
    pub(super) correlation: f64,
    /// Root mean square of return - value.
    pub(super) error: f64,
    /// Standard deviation of the returns.
    pub(super) spread: f64,
    /// Share of the returns within the 90 % interval of the return; none where the model has none.
    pub(super) coverage: Option<f64>,
    /// How values are ordered along the episodes.
    pub(super) order: Option<ValueOrder>,
}

/// How values go with time along episodes of three rows or more.
pub(super) struct ValueOrder {
    /// Rank correlation of value and time within an episode, in [-1, 1], and 0 where values are all the same: the mean of the episodes.
    mean: f64,
    /// Its standard error; none of one episode.
    error: Option<f64>,
    episodes: usize,
    /// Whether rewards let values rise towards the ends of the episodes, so that this says something of the model.
    tells: bool,
}

/// What is known of rows that a model has not seen.
pub(super) struct UnseenRows {
    /// At their states.
    pub(super) found: Evaluation,
    /// (H, n) returns to come: up to the end of the episode, and where that is cut, with the model's value behind it.
    pub(super) returns: Vec<Vec<f64>>,
    /// (H, n) temporal-difference errors.
    pub(super) errors: Vec<Vec<f64>>,
    /// (n,) factor on the model's value in each return; 0 where the episode terminates.
    pub(super) closed: Vec<f64>,
}

/// What a model is learned by.
pub(super) struct Like {
    pub(super) settings: Settings,
    pub(super) inputs: Inputs,
    pub(super) hyperparameters: Hyperparameters,
    pub(super) lambda: f64,
}

impl Like {
    pub(super) fn of(model: &Model) -> Self {
        // What is held out is for values of rewards.
        let (settings, inputs) = (Settings { heads: Vec::new(), ..model.settings().clone() }, model.inputs().clone());
        Self { settings, inputs, hyperparameters: model.hyperparameters(), lambda: model.lambda() }
    }

    /// The same, but for these state variables.
    fn without(&self, variables: &[usize]) -> Self {
        let mut hyperparameters = self.hyperparameters.clone();
        let kernel = &mut hyperparameters.kernel;
        kernel.metric = kernel.metric.without(variables, self.inputs.dim());
        kernel.columns.retain(|column| column.function.variable().is_none_or(|d| !variables.contains(&d)));
        Self { settings: self.settings.clone(), inputs: self.inputs.clone(), hyperparameters, lambda: self.lambda }
    }
}

/// Whether a model without these state variables predicts the returns of held-out episodes as well as one with them. Both have kernel,
/// noise and lambda of `like`, and hold out the same episodes.
pub(super) fn can_spare(
    like: &Like,
    variables: &[usize],
    rows: &Rows,
    episodes: &[u32],
    (share, seed): (f64, u64),
    dictionary: &DictionaryOptions,
) -> Result<bool, Failure> {
    let found = |like: &Like| {
        hold_out(rows, episodes, (share, seed, like.settings.weighted), |learned| relearn(like, learned, dictionary))
    };
    let (Some(with), Some(without)) = (found(like)?, found(&like.without(variables))?) else { return Ok(false) };
    Ok(with.heads.iter().zip(&without.heads).all(|(with, without)| without.error <= SPARED * with.error))
}

/// A model of these rows with kernel, noise and lambda of `like`, and a dictionary of its own.
pub(super) fn relearn(like: &Like, rows: &Rows, dictionary: &DictionaryOptions) -> Result<Snapshot, Failure> {
    let Like { settings, inputs, hyperparameters, lambda } = like;
    let given = Given { settings, rows, first: 0, inputs, hyperparameters, lambda: *lambda };
    let chosen = dictionary.choose(&given)?;
    let mut model = given.model(chosen.dictionary, &|| true)?;
    model.revisit(std::iter::once((rows, 0..rows.len(), 0)));
    model.look_at_pieces(rows, 0)?;
    model.reset_score();
    Ok(model.snapshot(true)?)
}

/// What a model says of rows, and what came.
pub(super) fn see(model: &Snapshot, rows: &Rows) -> Result<UnseenRows, Invalid> {
    let found = model.evaluate(&rows.states, Ask::ALL)?;
    let next = model.evaluate(&rows.next_states, Ask::MEAN)?.mean;
    let (mut returns, mut errors, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    for h in 0..found.mean.ncols() {
        let (value, after) = (|i: usize| found.mean[(i, h)], |i: usize| next[(i, h)]);
        let outcomes = outcomes(rows, model.discount, &value, &after, h);
        returns.push(outcomes.0);
        errors.push(outcomes.1);
        closed = outcomes.2;
    }
    Ok(UnseenRows { found, returns, errors, closed })
}

/// Returns, temporal-difference errors, and what factor the value at the end has in each return, of reward `h`. `value` and
/// `after` are the values at a row's state and successor.
fn outcomes(
    rows: &Rows,
    discount: f64,
    value: &dyn Fn(usize) -> f64,
    after: &dyn Fn(usize) -> f64,
    h: usize,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (n, successor) = (rows.len(), chains(rows));
    let (mut returns, mut errors, mut closed) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    for i in (0..n).rev() {
        let discount = rows.follows(i, discount);
        let reward = rows.reward(i)[h];
        closed[i] = discount * successor[i].map_or(1.0, |j| closed[j]);
        returns[i] = reward + discount * successor[i].map_or_else(|| after(i), |j| returns[j]);
        errors[i] = reward + discount * after(i) - value(i);
    }
    (returns, errors, closed)
}

impl UnseenRows {
    /// How far return i of reward `h` is from its prediction, in stated deviations, with the variances `noise` (n,) where rows differ
    /// in theirs; none where the model has no deviations.
    fn in_deviations(&self, i: usize, h: usize, noise: Option<&[f64]>) -> Option<f64> {
        let variance = match noise {
            Some(noise) => self.found.variance.as_ref()?[i] + noise[i],
            None => self.found.return_variance.as_ref()?[(i, h)],
        };
        Some((self.returns[h][i] - self.found.mean[(i, h)]).abs() / variance.sqrt())
    }
}

/// How well a share of the episodes is predicted by a model of the others, which `learn` makes of their rows. None where there
/// are too few.
pub(super) fn hold_out(
    rows: &Rows,
    episodes: &[u32],
    (share, seed, weighted): (f64, u64, bool),
    learn: impl FnOnce(&Rows) -> Result<Snapshot, Failure>,
) -> Result<Option<HeldOut>, Failure> {
    let of = count(episodes);
    if of < 2 {
        return Ok(None);
    }
    let episodes_held = ((share * of as f64).round() as usize).clamp(1, of - 1);
    let mut out = vec![false; of];
    shuffled(of, seed).iter().take(episodes_held).for_each(|&episode| out[episode] = true);
    let learned = part(rows, |i| !out[episodes[i] as usize]);
    let held = part(rows, |i| out[episodes[i] as usize]);
    let model = learn(&learned)?;
    let seen = see(&model, &held)?;
    // In a weighted regression a row counts here as often as there, and its noise is that much less.
    let weights = regression_weights(&held, weighted);
    let ended: Vec<usize> = (0..held.len()).filter(|&i| seen.closed[i] <= CLOSED).collect();
    let enough = ended.len() >= ROWS_MIN;
    let compared = if enough { ended } else { (0..held.len()).collect() };
    if compared.len() < ROWS_MIN {
        return Ok(None);
    }
    let of_held: Vec<u32> = episodes.iter().copied().filter(|&episode| out[episode as usize]).collect();
    let head = |h: usize| {
        let values: Vec<f64> = seen.found.mean.column(h).iter().copied().collect();
        Figures { order: ValueOrder::of(&values, &held, &of_held, h), ..figures(&seen, h, &compared, weights, &model) }
    };
    let heads = (0..seen.returns.len()).map(head).collect();
    // Returns that are mostly the model's own values verify nothing, and returns of one episode count as one.
    let factor = if enough && weights.is_none() { factor(&seen, &compared, episodes_held as f64) } else { 1.0 };
    Ok(Some(HeldOut { episodes: episodes_held, of, rows: compared.len(), ended: enough, heads, factor }))
}

impl HeldOut {
    /// One line for each reward, named where there are several; `names` may be empty.
    pub(super) fn text(&self, names: &[String]) -> String {
        let three = |value: f64| format!("{value:.2e}").parse().map_or_else(|_| value.to_string(), number);
        let mut text = String::new();
        for (h, head) in self.heads.iter().enumerate() {
            let unit = names.get(h).map(|name| plain_unit(unit_of(name))).unwrap_or_default();
            let which = match names.get(h) {
                _ if self.heads.len() == 1 => String::new(),
                Some(name) => format!("{}: ", without_unit(name)),
                None => format!("reward {h}: "),
            };
            let closed = if self.ended {
                ""
            } else {
                " (mostly the model's own values: episodes are cut long before rewards fade)"
            };
            let coverage = head.coverage.map(|share| format!(", 90 % interval holds {:.0} %", 100.0 * share));
            text += &format!(
                "{which}predicts the returns of {}{closed}: correlation {:.2}, error {}{unit} of a spread of {}{unit}{}\n",
                plural(self.episodes, "held-out episode"),
                head.correlation,
                three(head.error),
                three(head.spread),
                coverage.unwrap_or_default()
            );
            text += &head.order.as_ref().map_or_else(String::new, |order| order.text(&which, "held-out episode"));
        }
        if self.factor != 1.0 {
            let what = if self.factor > 1.0 { "narrow" } else { "wide" };
            text += &format!(
                "these intervals were too {what}: those that are written are {:.2} times as wide\n",
                self.factor
            );
        }
        text
    }

    /// For programs; arrays where there are several rewards.
    pub(super) fn document(&self) -> Value {
        let each = |figure: &dyn Fn(&Figures) -> Value| match &self.heads[..] {
            [head] => figure(head),
            heads => heads.iter().map(figure).collect(),
        };
        json!({
            "episodes": self.episodes,
            "of_episodes": self.of,
            "returns": self.rows,
            "returns_end": self.ended,
            "correlation": each(&|head| json!(head.correlation)),
            "error": each(&|head| json!(head.error)),
            "spread": each(&|head| json!(head.spread)),
            "coverage_90": each(&|head| json!(head.coverage)),
            "value_order": each(&|head| ValueOrder::document(head.order.as_ref())),
            "factor": self.factor,
        })
    }
}

impl ValueOrder {
    /// Of these values of reward `h` at the states of rows, which stand in the order of time in each of their episodes.
    pub(super) fn of(values: &[f64], rows: &Rows, episodes: &[u32], h: usize) -> Option<Self> {
        let mut along: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        episodes.iter().zip(values).for_each(|(&episode, &value)| along.entry(episode).or_default().push(value));
        let all = along.len();
        let found: Vec<f64> =
            along.values().filter(|values| values.len() > 2).map(|values| with_time(values)).collect();
        let n = found.len() as f64;
        if found.is_empty() {
            return None;
        }
        let mean = found.iter().sum::<f64>() / n;
        let square = found.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
        let rewards = || (0..rows.len()).map(|i| (rows.reward(i)[h], rows.terminated[i]));
        let costs = rewards().all(|(reward, _)| reward <= 0.0);
        let paid_at_end = rewards().all(|(reward, ends)| reward == 0.0 || (reward > 0.0 && ends));
        let ends = rows.terminated.iter().filter(|&&ends| ends).count();
        let tells = rewards().any(|(reward, _)| reward != 0.0) && (costs || paid_at_end) && 2 * ends >= all;
        let error = (n > 1.0).then(|| (square / (n - 1.0) / n).sqrt());
        Some(Self { mean, error, episodes: found.len(), tells })
    }

    /// A line about episodes of the kind `what`, nothing where it tells nothing; `which` reward stands before it.
    pub(super) fn text(&self, which: &str, what: &str) -> String {
        if !self.tells {
            return String::new();
        }
        let error = self.error.map(|error| format!(" +- {error:.2}")).unwrap_or_default();
        format!(
            "{which}value-order correlation (VOC), of value and time within an episode: {:.2}{error} in {}\n",
            self.mean,
            plural(self.episodes, what)
        )
    }

    /// For programs.
    pub(super) fn document(found: Option<&Self>) -> Value {
        json!(found.map(|Self { mean, error, episodes, tells }| {
            json!({"mean": mean, "standard_error": error, "episodes": episodes, "tells": tells})
        }))
    }
}

/// Rank correlation of values and their places; equal ones share their ranks.
fn with_time(values: &[f64]) -> f64 {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let middle = (values.len() - 1) as f64 / 2.0;
    let (mut first, mut both, mut ranks, mut times) = (0, 0.0, 0.0, 0.0);
    for alike in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = first as f64 + (alike.len() - 1) as f64 / 2.0 - middle;
        first += alike.len();
        for &place in alike {
            let time = place as f64 - middle;
            (both, ranks, times) = (both + rank * time, ranks + rank * rank, times + time * time);
        }
    }
    if ranks > 0.0 { both / (ranks * times).sqrt() } else { 0.0 }
}

/// What the errors of these returns, in stated deviations, demand of the interval of returns.
fn factor(seen: &UnseenRows, compared: &[usize], independent: f64) -> f64 {
    if seen.found.return_variance.is_none() {
        return 1.0;
    }
    let scaled = |h: usize| compared.iter().filter_map(move |&i| seen.in_deviations(i, h, None));
    factor_of((0..seen.returns.len()).flat_map(scaled).collect(), independent)
}

fn figures(seen: &UnseenRows, h: usize, compared: &[usize], weights: Option<&[f64]>, model: &Snapshot) -> Figures {
    let weight = |i: usize| weights.map_or(1.0, |weights| weights[i]);
    let noise: Option<Vec<f64>> =
        weights.map(|weights| weights.iter().map(|w| model.hyperparameters.noise_variance / w).collect());
    let counts: Vec<f64> = compared.iter().map(|&i| weight(i)).collect();
    let n: f64 = counts.iter().sum();
    let of = |values: &dyn Fn(usize) -> f64| -> Vec<f64> { compared.iter().map(|&i| values(i)).collect() };
    let (values, returns) = (of(&|i| seen.found.mean[(i, h)]), of(&|i| seen.returns[h][i]));
    let mean = |values: &[f64]| values.iter().zip(&counts).map(|(value, w)| w * value).sum::<f64>() / n;
    let (value, outcome) = (mean(&values), mean(&returns));
    let product = |a: &[f64], x: f64, b: &[f64], y: f64| {
        a.iter().zip(b).zip(&counts).map(|((a, b), w)| w * (a - x) * (b - y)).sum::<f64>() / n
    };
    let spread = product(&returns, outcome, &returns, outcome).sqrt();
    let both = product(&values, value, &returns, outcome);
    let correlation = both / (spread * product(&values, value, &values, value).sqrt());
    let errors: Vec<f64> = values.iter().zip(&returns).map(|(v, y)| y - v).collect();
    let square = product(&errors, 0.0, &errors, 0.0);
    let inside = |i: usize| {
        let inside = seen.in_deviations(i, h, noise.as_deref())? <= NINE_TENTHS;
        Some(if inside { weight(i) } else { 0.0 })
    };
    let within: Option<f64> = compared.iter().map(|&i| inside(i)).sum();
    Figures {
        correlation: if correlation.is_finite() { correlation } else { 0.0 },
        error: square.sqrt(),
        spread,
        coverage: within.map(|within| within / n),
        order: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row from `x` to x + 1 with reward 2.
    fn push(rows: &mut Rows, x: f64, ends: bool, starts: bool) {
        rows.states.push(x);
        rows.next_states.push(x + 1.0);
        rows.rewards.push(2.0);
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.terminated.push(ends);
        rows.truncated.push(false);
        rows.starts_chain.push(starts);
    }

    #[test]
    fn folds_are_of_whole_episodes_and_the_same_each_time() {
        let episodes: Vec<u32> = (0..200).map(|i| i / 8).collect();
        let group = folds(&episodes, 10, 3);
        assert_eq!((count(&episodes), &group), (25, &folds(&episodes, 10, 3)));
        assert_ne!(group, folds(&episodes, 10, 4));
        for fold in 0..10 {
            let mut found: Vec<u32> = (0..200).filter(|&i| group[i] == fold).map(|i| episodes[i]).collect();
            assert_eq!(found.len() % 8, 0);
            found.dedup();
            assert!((2..=3).contains(&found.len()), "{found:?}");
        }
        assert!(folds(&[], 2, 0).is_empty());
    }

    #[test]
    fn a_held_out_episode_is_not_among_the_rows_that_are_learned() {
        // Fifty episodes of four rows, whose states are their numbers.
        let mut rows = Rows::new(1, 1);
        for i in 0..200 {
            push(&mut rows, f64::from(i / 4), i % 4 == 3, i % 4 == 0);
        }
        let episodes: Vec<u32> = (0..200).map(|i| i / 4).collect();
        let mut learned = Vec::new();
        let stop = |part: &Rows| {
            learned = part.states.clone();
            Err(Failure::new("seen enough"))
        };
        assert!(hold_out(&rows, &episodes, (0.2, 3, false), stop).is_err());
        learned.dedup();
        assert_eq!(learned.len(), 40, "whole episodes, four fifths of them");
    }

    #[test]
    fn returns_end_where_episodes_do() {
        // 0 -> 1 -> 2 terminated, then 3 -> 4, cut there; V is 1 everywhere at discount 0.5 here.
        let mut rows = Rows::new(1, 1);
        for (x, ends, starts) in [(0.0, false, true), (1.0, true, false), (3.0, false, true)] {
            push(&mut rows, x, ends, starts);
        }
        let (returns, errors, closed) = outcomes(&rows, 0.5, &|_| 1.0, &|_| 1.0, 0);
        assert_eq!((&returns[..], &errors[..]), (&[3.0, 2.0, 2.5][..], &[1.5, 1.0, 1.5][..]));
        assert_eq!(closed, [0.0, 0.0, 0.5]);
    }
    #[test]
    fn values_are_ordered_along_episodes() {
        assert_eq!(with_time(&[-3.0, -2.0, -1.5, 0.0]), 1.0);
        assert_eq!(with_time(&[5.0, 4.0, 1.0]), -1.0);
        assert_eq!(with_time(&[1.0, 1.0, 1.0]), 0.0);
        // Ranks 1.5, 1.5, 3 beside 1, 2, 3, and 1, 3, 2, 4 beside 1, 2, 3, 4: as the definition has them.
        assert!((with_time(&[0.0, 0.0, 7.0]) - 0.75_f64.sqrt()).abs() < 1e-15);
        assert!((with_time(&[1.0, 3.0, 2.0, 4.0]) - 0.8).abs() < 1e-15);
        // Two episodes one within the other, a third that is too short.
        let mut rows = Rows::new(1, 1);
        let episodes = [0, 1, 0, 1, 0, 1, 2];
        (0..7).for_each(|i| push(&mut rows, f64::from(i), i >= 4, i < 2));
        let values = [1.0, 3.0, 2.0, 2.0, 3.0, 1.0, 9.0];
        let found = ValueOrder::of(&values, &rows, &episodes, 0).unwrap();
        assert_eq!((found.mean, found.error, found.episodes, found.tells), (0.0, Some(1.0), 2, false));
        // Rewards are costs, or paid where an episode ends; and episodes end.
        rows.rewards = vec![-1.0; 7];
        let tells = |rows: &Rows| ValueOrder::of(&values, rows, &episodes, 0).unwrap().tells;
        assert!(tells(&rows));
        rows.rewards = vec![0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        assert!(tells(&rows));
        rows.terminated = vec![false, false, false, false, true, false, false];
        assert!(!tells(&rows), "two of three episodes are cut");
        assert!(ValueOrder::of(&values, &rows, &[0, 0, 1, 1, 2, 2, 3], 0).is_none());
    }
}
