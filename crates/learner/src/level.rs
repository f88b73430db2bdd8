//! The level of values: the constant that they are learned about, so that rewards far from zero are as good as any others.
//!
//! ```text
//! V(x) = mu + V'(x),     r' = r - mu (1 - gamma),   r - mu where a row terminates         docs/mathematics.md (B1), (B2)
//! mu = sum z r / sum z (1 - gamma),     gamma 0 where a row terminates,   z <- gamma z + 1 along a chain
//! ```
//! V' obeys the equations of V with r' for r, whatever mu is. With c more in every reward mu is c / (1 - gamma) more where nothing
//! terminates, so that r', and all that is learned of it, is what it was but for rounding: no prior pulls at c, and no difference of
//! large numbers is left to be taken. Where rows terminate V is no constant more, and mu is about its mean.

use crate::heads::{Continuation, Cumulant, Head, Rate};
use crate::math::level::about;
use crate::math::returns::regression_weights;
use crate::mean::Mean;
use crate::settings::Settings;
use crate::transition::Rows;

/// Share of the rows' weight that must be lost to discounts and ends: a constant has no value where nothing is lost.
const LOST_MIN: f64 = 1e-9;

/// mu (H,) of the values of the reward columns `columns`; none where it is 0, or not determined. `discount` is the critic's own.
pub(crate) fn level(rows: &Rows, columns: &[usize], discount: f64, weighted: bool) -> Vec<f64> {
    let weights = weights(rows, discount, weighted);
    let lost: f64 = weights.iter().enumerate().map(|(i, z)| z * (1.0 - rows.follows(i, discount))).sum();
    let total: f64 = weights.iter().sum();
    if lost.is_nan() || lost <= LOST_MIN * total {
        return Vec::new();
    }
    let mut out = vec![0.0; columns.len()];
    // Twice: the first leaves the rounding of long sums of large numbers, the second the rounding of small ones.
    for _ in 0..2 {
        for (mu, &column) in out.iter_mut().zip(columns) {
            let left = |i: usize| rows.reward(i)[column] - *mu * (1.0 - rows.follows(i, discount));
            *mu += weights.iter().enumerate().map(|(i, z)| z * left(i)).sum::<f64>() / lost;
        }
    }
    let is_there = out.iter().all(|mu| mu.is_finite()) && out.iter().any(|mu| *mu != 0.0);
    if is_there { out } else { Vec::new() }
}

/// z of each row (n,), or how often it counts in a weighted regression.
fn weights(rows: &Rows, discount: f64, weighted: bool) -> Vec<f64> {
    if let Some(weights) = regression_weights(rows, weighted) {
        return weights.to_vec();
    }
    let streams = rows.streams.iter().max().map_or(0, |&last| last as usize + 1);
    // What flows into the next row of each stream.
    let mut flowing = vec![0.0; streams];
    (0..rows.len())
        .map(|i| {
            let flowing = &mut flowing[rows.streams[i] as usize];
            let z = if rows.starts_chain[i] { 1.0 } else { *flowing + 1.0 };
            *flowing = if rows.truncated[i] { 0.0 } else { z * rows.follows(i, discount) };
            z
        })
        .collect()
}

/// What the rewards behind the rows' own are about.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The reward columns that they stand for (H,).
    pub(crate) columns: Vec<usize>,
    /// (H,); none for 0. Where there is a mean, of heads alone.
    pub(crate) level: Vec<f64>,
    /// The mean function.
    pub(crate) mean: Option<Mean>,
    /// Discount of rows that carry none.
    pub(crate) discount: f64,
}

impl About {
    /// About the mean of the settings, or this level (H,); none where both are 0.
    pub(crate) fn of(settings: &Settings, level: &[f64]) -> Option<Self> {
        let Settings { rewards, mean, discount, .. } = settings;
        let about =
            || Self { columns: rewards.clone(), level: level.to_vec(), mean: mean.clone(), discount: *discount };
        (mean.is_some() || !level.is_empty()).then(about)
    }

    /// What is learned then, of rows that have these rewards behind `first` of their own.
    pub(crate) fn settings(&self, settings: &Settings, first: usize) -> Settings {
        Settings {
            rewards: (first..first + self.columns.len()).collect(),
            centred: false,
            mean: None,
            about_mean: self.mean.is_some(),
            heads: self.heads(&settings.heads),
            ..settings.clone()
        }
    }

    /// The rows with one reward more for each column, behind the others.
    pub(crate) fn rows(&self, rows: Rows) -> Rows {
        let (width, more) = (rows.rewards_per_row, self.columns.len());
        let mut rewards = Vec::with_capacity(rows.len() * (width + more));
        let of_mean = |mean: &Mean| mean.rewards(&rows, 0..rows.len(), self.columns[0], self.discount);
        let of_mean = self.mean.as_ref().map(of_mean);
        for i in 0..rows.len() {
            rewards.extend_from_slice(rows.reward(i));
            if let Some(of_mean) = &of_mean {
                rewards.push(of_mean[i]);
                continue;
            }
            let follows = rows.follows(i, self.discount);
            let of = self.columns.iter().zip(&self.level);
            rewards.extend(of.map(|(&column, mu)| about(rows.reward(i)[column], *mu, follows)));
        }
        Rows { rewards, rewards_per_row: width + more, ..rows }
    }

    /// The same heads, each with its level.
    pub(crate) fn heads(&self, heads: &[Head]) -> Vec<Head> {
        heads.iter().map(|head| Head { level: self.level_of(head), ..head.clone() }).collect()
    }

    /// mu min(1, (1 - gamma) / (1 - gamma_h)) of a head that sums a reward of the critic under the discount gamma_h, (B6); else 0. Where
    /// rows terminate mu says nothing of longer returns: times more than 1 it would be far from all values.
    fn level_of(&self, head: &Head) -> f64 {
        let (Cumulant::Reward(column), Rate::Discount(discount), Continuation::Constant(share)) =
            (&head.cumulant, head.rate, &head.continuation)
        else {
            return 0.0;
        };
        let lost = 1.0 - discount * share;
        let mu = self.columns.iter().position(|of| of == column).and_then(|h| self.level.get(h)).unwrap_or(&0.0);
        if lost > LOST_MIN { mu * ((1.0 - self.discount) / lost).min(1.0) } else { 0.0 }
    }
}

/// `settings` and `rows` of values about the mean of the settings, or this level (H,); none where both are 0.
pub(crate) fn about_level(settings: &Settings, rows: &Rows, level: &[f64]) -> Option<(Settings, Rows)> {
    let about = About::of(settings, level)?;
    Some((about.settings(settings, rows.rewards_per_row), about.rows(rows.clone())))
}

/// The same about their own level where heads stand for rewards: those know the critic's discount, and none that rows carry.
pub(crate) fn about_level_of_heads(settings: &Settings, rows: &Rows) -> Option<(Settings, Rows)> {
    if !settings.centred && settings.mean.is_none() {
        return None;
    }
    let rows = Rows { discounts: vec![f64::NAN; rows.len()], ..rows.clone() };
    about_level(settings, &rows, &settings.level_of(&rows))
}

impl Settings {
    /// The level (H,) of what `rows` are worth; none where values are learned as they are. A prior mean that is given is the level. Where
    /// actions are improved and rows terminate it is 0: there a level would be a guess of what actions without rows are worth. So it is while
    /// their rewards are all the same, since an end may be what they pay for.
    pub(crate) fn level_of(&self, rows: &Rows) -> Vec<f64> {
        let same = || (1..rows.len()).all(|i| rows.reward(i) == rows.reward(0));
        let guesses = self.improves() && (rows.terminated.contains(&true) || same());
        if !self.centred || self.prior_mean != 0.0 || guesses || self.heads_alone {
            return Vec::new();
        }
        level(rows, &self.rewards, self.discount, self.weighted)
    }

    /// Whether `rows` say nothing of how large values may be: no reward is other than 0. Action values have their deviations all the
    /// same, by which they are explored.
    pub(crate) fn lacks_scale(&self, rows: &Rows) -> bool {
        self.centred && self.action_value.is_none() && self.mean.is_none() && self.earns_nothing(rows)
    }

    /// Whether all rewards of `rows` are 0.
    pub(crate) fn earns_nothing(&self, rows: &Rows) -> bool {
        (0..rows.len()).all(|i| self.rewards.iter().all(|&column| rows.reward(i)[column] == 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two streams whose rows come in turn, in chains of five; every third chain terminates where `ends`.
    fn rows(shift: f64, ends: bool) -> Rows {
        let mut rows = Rows::new(1, 2);
        for i in 0..200 {
            let (k, last) = (i / 2, (i / 2) % 5 == 4);
            let noise = |salt: usize| ((i * 7 + salt) as f64 * 0.618_033_988_749_895).fract() - 0.5;
            rows.states.push(noise(1));
            rows.next_states.push(noise(2));
            rows.rewards.extend([noise(3), 2.0 * noise(4) + shift]);
            rows.discounts.push(f64::NAN);
            rows.ratios.push(1.0);
            rows.streams.push(i as u32 % 2);
            rows.starts_chain.push(k % 5 == 0);
            rows.terminated.push(ends && last && (k / 5) % 3 == 0);
            rows.truncated.push(last && !(ends && (k / 5) % 3 == 0));
        }
        rows
    }

    #[test]
    fn a_constant_in_all_rewards_moves_the_level_alone() {
        let discount = 0.95;
        let plain = level(&rows(0.0, false), &[1], discount, false)[0];
        for c in [1.0, 1e3, 1e5, 1e7, -1e7] {
            let (moved, from) = (rows(c, false), rows(0.0, false));
            let mu = level(&moved, &[1], discount, false)[0];
            assert!((mu - plain - c / (1.0 - discount)).abs() < 1e-14 * mu.abs(), "{c}: {mu}");
            for i in 0..moved.len() {
                let of = |rows: &Rows, mu: f64| about(rows.reward(i)[1], mu, rows.follows(i, discount));
                assert!((of(&moved, mu) - of(&from, plain)).abs() < 1e-14 * c.abs() + 1e-13, "{c}: row {i}");
            }
        }
    }

    #[test]
    fn rewards_about_a_level_have_the_mean_value_zero() {
        for ends in [false, true] {
            let rows = rows(5.0, ends);
            let mu = level(&rows, &[0, 1], 0.9, false);
            let about = About { columns: vec![0, 1], level: mu, mean: None, discount: 0.9 }.rows(rows.clone());
            assert_eq!((about.rewards_per_row, about.reward(7)[..2] == *rows.reward(7)), (4, true));
            let left = level(&about, &[2, 3], 0.9, false);
            assert!(left.iter().all(|mu| mu.abs() < 1e-12), "{left:?}");
        }
    }

    #[test]
    fn where_nothing_is_lost_or_earned_there_is_no_level() {
        assert!(level(&rows(1.0, false), &[1], 1.0, false).is_empty());
        let mut nothing = rows(0.0, true);
        nothing.rewards.fill(0.0);
        assert!(level(&nothing, &[0, 1], 0.9, false).is_empty());
        let mut same = rows(0.0, false);
        same.rewards.fill(1e5);
        let mu = level(&same, &[0], 0.9, false);
        assert!((0..same.len()).all(|i| about(same.reward(i)[0], mu[0], same.follows(i, 0.9)) == 0.0));
        assert!(level(&Rows::new(1, 1), &[0], 0.9, false).is_empty());
    }
}
