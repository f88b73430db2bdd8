//! Another policy judged on the rows of the one that acted: what it would earn from the states where episodes began.
//!
//! ```text
//! w_t = prod_(k <= t) rho_k over an episode, w at its last row, G = sum_t gamma^t r_t           docs/mathematics.md (A6)
//! IS    mean of w G                              WIS   sum w G / sum w
//! PDIS  mean of sum_t gamma^t w_t r_t            DR    mean of sum_t gamma^t [w_(t-1) V(x_t) + w_t (r_t - Q(x_t, a_t))]
//! ```
//! Two rows may carry such an answer. So it comes with the effective number of episodes, and with no interval where the rows do
//! not support one.

mod fitted;
mod learned;
mod policy;

pub use fitted::{Findings, Fitted, Judged, Taught, count, first_rows, folds, part, shuffled};
pub use learned::{ELEMENTS_MAX, LearnedQ, learn};
pub use policy::{Entries, Fault, Policy};

/// Effective episodes below which there is no interval, unless another number is asked for.
pub const ESS_MIN: f64 = 30.0;
/// Standard errors by which the mean weight may miss 1.
const WEIGHT_ERRORS: f64 = 3.0;
/// Trace gap, nats, above which the dictionary may not represent the values that it is asked for.
pub const TRACE_GAP_MAX: f64 = 5.0;
/// Share of the rows that may be taken up by weights: what is left of them tells how large errors are.
pub const FREEDOM_MAX: f64 = 0.5;
/// Share of what the policy does that may be far from everything that was done.
pub const FAR_MAX: f64 = 0.05;

/// One episode, from its first row on.
#[derive(Clone, Copy, Debug)]
pub struct Episode<'a> {
    /// (T,), reward unit.
    pub rewards: &'a [f64],
    /// (T,) discount behind each row, in \[0, 1\].
    pub discounts: &'a [f64],
    /// (T,) target_prob / behavior_prob, at least 0.
    pub ratios: &'a [f64],
    /// (T,) V at the states and Q at the states and actions, by a model that has not seen the episode, if there is one.
    pub model: Option<(&'a [f64], &'a [f64])>,
}

/// A number and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In the unit of a return.
    pub value: f64,
    /// Standard deviation of `value`; NaN of a single episode.
    pub error: f64,
}

impl Estimate {
    /// Of a mean: the sample deviation over the root of n.
    fn mean(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let value = values.iter().sum::<f64>() / n;
        let square = values.iter().map(|v| (v - value) * (v - value)).sum::<f64>();
        Self { value, error: (square / (n - 1.0) / n).sqrt() }
    }

    /// Nine in ten such intervals contain what is estimated, where the error is right.
    pub fn interval(self) -> [f64; 2] {
        let reach = 1.644_853_626_951_472_2 * self.error;
        [self.value - reach, self.value + reach]
    }
}

/// How much the episodes say about the other policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Support {
    /// Weight of each episode (n,).
    pub weights: Vec<f64>,
    /// Effective number of episodes, (sum w)^2 / sum w^2; 0 where all weights are 0.
    pub ess: f64,
    /// The same of |w G| over the episodes that earned anything.
    pub ess_earned: f64,
    /// Largest weight.
    pub largest: f64,
    /// Mean weight, with its error: 1 is expected, whatever the policies.
    pub mean: Estimate,
    /// Share of the episodes that the other policy would never take, from 0 to 1.
    pub zero_share: f64,
}

/// Why there is no interval.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoInterval {
    /// Too few episodes carry the answer.
    #[error(
        "no interval: the episodes are worth {ess:.1} for this policy, fewer than {least}; the deviations of so few \
         are not to be trusted"
    )]
    FewEffective {
        /// How many.
        ess: f64,
        /// How many are needed.
        least: f64,
    },
    /// The mean weight is not 1: the probabilities are not those under which the actions were taken.
    #[error(
        "no interval: weights have the mean {:.3} +- {:.3} where 1 is expected; the probabilities are not those under \
         which the actions were taken, or the other policy takes actions that these rows never or hardly ever did",
        .mean.value,
        .mean.error
    )]
    WeightsOff {
        /// The mean weight.
        mean: Estimate,
    },
    /// The dictionary may not represent Q.
    #[error(
        "no interval of the fitted Q: its dictionary of {elements} elements leaves {gap:.1} nats open, more than \
         {TRACE_GAP_MAX}, so that its error may be more than the sample's; a larger dictionary (dictionary_max) closes \
         the gap, and the interval of dr does not depend on it"
    )]
    TraceGap {
        /// Nats.
        gap: f64,
        /// Elements of the dictionary.
        elements: usize,
    },
    /// The fitted Q fits the rows too closely to show its errors.
    #[error(
        "no interval of the fitted Q: {rows} rows decide {freedom:.0} weights, more than half as many, so that they do \
         not show how large its errors are; more rows are needed"
    )]
    FewRows {
        /// How many there are.
        rows: usize,
        /// Weights that they decide.
        freedom: f64,
    },
    /// The policy does what was not done.
    #[error(
        "no interval of the fitted Q: {:.0} % of what the policy does in the states of the rows is far from everything \
         that was done there, more than {:.0} %, so that nothing is known of it",
        100.0 * .share,
        100.0 * FAR_MAX
    )]
    Far {
        /// Share of what it does.
        share: f64,
    },
}

/// What the episodes say about the other policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Importance sampling.
    pub is: Estimate,
    /// Weighted importance sampling.
    pub wis: Estimate,
    /// Per-decision importance sampling.
    pub pdis: Estimate,
    /// Doubly robust; none without values.
    pub dr: Option<Estimate>,
    /// How much the episodes say.
    pub support: Support,
    /// Why none of these has an interval, where that is so.
    pub refusals: Vec<NoInterval>,
    /// What is to be minded, in words.
    pub warnings: Vec<String>,
}

/// Judge by `episodes`, of which there is at least one; below `ess_min` effective ones there is no interval.
///
/// # Panics
/// If there is no episode, one has no row, or columns of one have different lengths.
pub fn judge(episodes: &[Episode<'_>], ess_min: f64) -> Judgement {
    assert!(!episodes.is_empty(), "a policy is judged by episodes");
    let mut weights = Vec::with_capacity(episodes.len());
    let (mut returns, mut per_decision, mut robust) = (weights.clone(), weights.clone(), weights.clone());
    for episode in episodes {
        let sums = EpisodeSums::of(episode);
        weights.push(sums.weight);
        returns.push(sums.earned);
        per_decision.push(sums.per_decision);
        robust.extend(sums.robust);
    }
    let weighted: Vec<f64> = weights.iter().zip(&returns).map(|(w, g)| w * g).collect();
    let support = Support::of(weights, &weighted);
    let total: f64 = support.weights.iter().sum();
    let wis = weighted.iter().sum::<f64>() / total;
    let squares = support.weights.iter().zip(&returns).map(|(w, g)| (w * (g - wis)).powi(2)).sum::<f64>();
    let refusals = support.refusals(ess_min);
    let warnings = support.warnings(ess_min);
    Judgement {
        is: Estimate::mean(&weighted),
        wis: Estimate { value: wis, error: squares.sqrt() / total },
        pdis: Estimate::mean(&per_decision),
        dr: (robust.len() == episodes.len()).then(|| Estimate::mean(&robust)),
        support,
        refusals,
        warnings,
    }
}

/// What one episode adds.
struct EpisodeSums {
    weight: f64,
    earned: f64,
    per_decision: f64,
    robust: Option<f64>,
}

impl EpisodeSums {
    fn of(episode: &Episode<'_>) -> Self {
        let Episode { rewards, discounts, ratios, model } = *episode;
        let rows = rewards.len();
        assert!(rows > 0 && (discounts.len(), ratios.len()) == (rows, rows), "columns of one episode");
        let (mut weight, mut discount) = (1.0, 1.0);
        let (mut earned, mut per_decision, mut robust) = (0.0, 0.0, 0.0);
        for t in 0..rows {
            let before = weight;
            weight *= ratios[t];
            earned += discount * rewards[t];
            per_decision += discount * weight * rewards[t];
            if let Some((v, q)) = model {
                robust += discount * (before * v[t] + weight * (rewards[t] - q[t]));
            }
            discount *= discounts[t];
        }
        Self { weight, earned, per_decision, robust: model.map(|_| robust) }
    }
}

impl Support {
    fn of(weights: Vec<f64>, weighted: &[f64]) -> Self {
        let zero = weights.iter().filter(|&&w| w == 0.0).count();
        Self {
            ess: effective(&weights),
            ess_earned: effective(weighted),
            largest: weights.iter().copied().fold(0.0, f64::max),
            mean: Estimate::mean(&weights),
            zero_share: zero as f64 / weights.len() as f64,
            weights,
        }
    }

    fn refusals(&self, ess_min: f64) -> Vec<NoInterval> {
        let few = self.ess < ess_min;
        // A comparison that fails for NaN, the error of a single episode.
        let near = (self.mean.value - 1.0).abs() <= WEIGHT_ERRORS * self.mean.error;
        let exact = self.weights.iter().all(|&w| w == 1.0);
        [
            few.then_some(NoInterval::FewEffective { ess: self.ess, least: ess_min }),
            (!near && !exact).then_some(NoInterval::WeightsOff { mean: self.mean }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn warnings(&self, ess_min: f64) -> Vec<String> {
        let few = (self.ess_earned < ess_min).then(|| {
            format!(
                "what was earned is worth {:.1} episodes for this policy: few of them carry the answer",
                self.ess_earned
            )
        });
        few.into_iter().collect()
    }
}

/// (sum |w|)^2 / sum w^2; 0 where all are 0.
fn effective(weights: &[f64]) -> f64 {
    // In parts of the largest: squares of large weights would overflow.
    let largest = weights.iter().fold(0.0, |most: f64, w| most.max(w.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let parts = || weights.iter().map(|w| w.abs() / largest);
    parts().sum::<f64>().powi(2) / parts().map(|w| w * w).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(reward: f64, ratio: f64) -> ([f64; 1], [f64; 1], [f64; 1]) {
        ([reward], [0.9], [ratio])
    }

    fn judged(rows: &[([f64; 1], [f64; 1], [f64; 1])]) -> Judgement {
        let episodes: Vec<Episode<'_>> = rows
            .iter()
            .map(|(rewards, discounts, ratios)| Episode { rewards, discounts, ratios, model: None })
            .collect();
        judge(&episodes, ESS_MIN)
    }

    #[test]
    fn the_policy_that_acted_is_judged_by_the_mean_return() {
        let rows: Vec<_> = (0..40).map(|k| one(f64::from(k % 4), 1.0)).collect();
        let found = judged(&rows);
        assert_eq!((found.is.value, found.wis.value, found.pdis.value), (1.5, 1.5, 1.5));
        assert_eq!((found.support.ess, found.support.mean.value, found.support.zero_share), (40.0, 1.0, 0.0));
        assert!(found.refusals.is_empty() && found.dr.is_none());
    }

    #[test]
    fn one_episode_of_weight_is_no_ground_for_an_interval() {
        let mut rows: Vec<_> = (0..99).map(|_| one(0.0, 0.01)).collect();
        rows.push(one(1.0, 100.0));
        let found = judged(&rows);
        assert!(found.support.ess < 1.1, "{}", found.support.ess);
        assert!(matches!(found.refusals[..], [NoInterval::FewEffective { .. }]), "{:?}", found.refusals);
        assert!(found.refusals[0].to_string().starts_with("no interval: the episodes are worth 1.0"));
    }

    #[test]
    fn weights_whose_mean_is_not_one_are_refused() {
        let rows: Vec<_> = (0..200).map(|k| one(1.0, 1.5 + 0.1 * f64::from(k % 2))).collect();
        let found = judged(&rows);
        assert!(matches!(found.refusals[..], [NoInterval::WeightsOff { .. }]), "{:?}", found.refusals);
    }

    #[test]
    fn what_was_earned_may_be_worth_less_than_the_episodes() {
        let rows: Vec<_> = (0..1000).map(|k| one(if k < 5 { 1.0 } else { 0.0 }, 1.0)).collect();
        let found = judged(&rows);
        assert_eq!((found.support.ess, found.support.ess_earned), (1000.0, 5.0));
        assert!(found.refusals.is_empty() && found.warnings.len() == 1);
    }

    #[test]
    fn no_support_at_all_is_said() {
        let found = judged(&[one(1.0, 0.0), one(2.0, 0.0)]);
        assert_eq!((found.support.ess, found.support.zero_share), (0.0, 1.0));
        assert!(!found.refusals.is_empty());
    }
}
