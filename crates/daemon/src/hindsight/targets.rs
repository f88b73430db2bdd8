//! Somebody's targets, looked at: whether returns or advantages follow from the rewards, and what stands behind the ends of episodes.
//!
//! With the values V of the states (0 where none are given, and lambda is 1 then) targets are the recursion
//! ```text
//! G_t = r_t + gamma [(1 - lambda) V(x_t+1) + lambda G_t+1]        inside episodes,        G_t = r_t + gamma b        at their ends
//! ```
//! b is 0 where the episode terminates, and the value of the successor where it is cut. Advantages are G - V.

use crate::transition::Rows;

/// An error of this share of the deviation of the targets is one of single precision.
const ROUNDING: f64 = 1e-3;
/// A b is the number it is compared with if they differ by no more than this share of the deviation of the targets.
const ALIKE: f64 = 0.02;
/// Share of the ends of a kind that do the same for it to be what somebody meant.
const MOST: f64 = 0.8;
/// Rewards at cuts hold gamma V if they exceed the others by it within these factors.
const HELD: std::ops::Range<f64> = 0.7..1.3;
/// An error that has shrunk to this share of the deviation does no more harm.
const HARMLESS: f64 = 0.05;

/// What stands behind the ends of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing: b = 0.
    Nothing,
    /// The target of the first row of the next episode: nothing ends.
    NextTarget,
    /// The value of the first state of the next episode.
    NextValue,
    /// The value of the row's own state, in the place of the value of its successor.
    OwnValue,
    /// Nothing; but the reward of the row holds the value already.
    InReward,
    /// Something else: where the episode is cut it may be the value of the successor.
    Other,
}

/// The ends of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct KindEnds {
    /// How many there are.
    pub count: usize,
    /// What stands behind most of them.
    pub behind: Behind,
    /// How many do that.
    pub alike: usize,
    /// Mean of b.
    pub mean: f64,
    /// How far the targets of their rows are off, in the mean of the absolute values; none where they are right as far as can be seen.
    pub off: Option<f64>,
    /// Rows before each of them whose targets are off by more than a twentieth of their deviation.
    pub reach: usize,
}

/// What was found of targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Rows inside episodes, and how many of these rows have a target that does not follow.
    pub inside: usize,
    /// Of these.
    pub broken: usize,
    /// Number of the row of the largest error there, and that error.
    pub worst: Option<(usize, f64)>,
    /// lambda, as the rows inside have it; 1 where no values are given.
    pub lambda: f64,
    /// Deviation of the targets.
    pub spread: f64,
    /// Ends that terminate; none if none do.
    pub terminated: Option<KindEnds>,
    /// Ends that are cut: truncated, or without a flag before the table goes on elsewhere.
    pub cut: Option<KindEnds>,
}

/// Look at `targets` (n,), which are returns, of rows (n) in the order of their table, with the reward of column 0 and this discount.
/// `values` (n,) are the values of the rows' states, where they are known. None where fewer than two rows have targets that differ.
///
/// # Panics
/// If the lengths differ.
pub fn check(rows: &Rows, targets: &[f64], values: Option<&[f64]>, discount: f64) -> Option<Checked> {
    let n = rows.len();
    assert!(targets.len() == n && values.is_none_or(|values| values.len() == n), "a target and a value for each row");
    let mean = targets.iter().sum::<f64>() / n.max(1) as f64;
    let spread = (targets.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n.max(1) as f64).sqrt();
    if n < 2 || spread <= f64::EPSILON * mean.abs() {
        return None;
    }
    let Follow { next, after } = Follow::of(rows);
    let gamma = |i: usize| rows.discount(i, discount);
    let value = |i: usize| values.map_or(0.0, |values| values[i]);
    let lambda = if values.is_some() { lambda(rows, targets, &value, &next, &gamma) } else { 1.0 };
    let (mut inside, mut broken, mut worst) = (0, 0, None);
    for i in 0..n {
        let Some(j) = next[i] else { continue };
        let led = rows.reward(i)[0] + gamma(i) * ((1.0 - lambda) * value(j) + lambda * targets[j]);
        let error = (targets[i] - led).abs();
        inside += 1;
        broken += usize::from(error > ROUNDING * spread);
        if worst.is_none_or(|(_, most)| error > most) {
            worst = Some((i, error));
        }
    }
    let look = TargetLook { rows, targets, values, spread, mean, discount, lambda, next: &next, after: &after };
    let of = |terminated: bool| -> Vec<usize> {
        // The table's own end is no end of an episode.
        let is_cut = |i: usize| rows.truncated[i] || after[i].is_some();
        (0..n)
            .filter(|&i| rows.terminated[i] == terminated && (terminated || (next[i].is_none() && is_cut(i))))
            .collect()
    };
    let (terminated, cut) = (look.ends(&of(true), true), look.ends(&of(false), false));
    Some(Checked { inside, broken, worst, lambda, spread, terminated, cut })
}

/// Of each row the next one of its chain, and of the last row of a chain the first one of the next chain of its stream.
struct Follow {
    next: Vec<Option<usize>>,
    after: Vec<Option<usize>>,
}

impl Follow {
    fn of(rows: &Rows) -> Self {
        let n = rows.len();
        let (mut next, mut after) = (vec![None; n], vec![None; n]);
        let streams = rows.streams.iter().max().map_or(0, |&last| last as usize + 1);
        let mut before: Vec<Option<usize>> = vec![None; streams];
        for i in 0..n {
            if let Some(before) = before[rows.streams[i] as usize].replace(i) {
                let goes_on = !rows.starts_chain[i] && !rows.terminated[before] && !rows.truncated[before];
                if goes_on { next[before] = Some(i) } else { after[before] = Some(i) }
            }
        }
        Self { next, after }
    }
}

/// The lambda of targets, by least squares of A_t - delta_t on gamma A_t+1, A = G - V.
fn lambda(
    rows: &Rows,
    targets: &[f64],
    value: &dyn Fn(usize) -> f64,
    next: &[Option<usize>],
    gamma: &dyn Fn(usize) -> f64,
) -> f64 {
    let (mut products, mut squares) = (0.0, 0.0);
    for (i, j) in next.iter().enumerate().filter_map(|(i, next)| Some((i, (*next)?))) {
        let delta = rows.reward(i)[0] + gamma(i) * value(j) - value(i);
        let (left, led) = (targets[i] - value(i) - delta, gamma(i) * (targets[j] - value(j)));
        (products, squares) = (products + left * led, squares + led * led);
    }
    if squares > 0.0 { (products / squares).clamp(0.0, 1.0) } else { 1.0 }
}

struct TargetLook<'a> {
    rows: &'a Rows,
    targets: &'a [f64],
    values: Option<&'a [f64]>,
    spread: f64,
    mean: f64,
    discount: f64,
    lambda: f64,
    next: &'a [Option<usize>],
    after: &'a [Option<usize>],
}

impl TargetLook<'_> {
    fn ends(&self, ends: &[usize], terminated: bool) -> Option<KindEnds> {
        let gamma = |i: usize| self.rows.discount(i, self.discount);
        let ends: Vec<usize> = ends.iter().copied().filter(|&i| gamma(i) > 0.0).collect();
        if ends.is_empty() {
            return None;
        }
        let b = |i: usize| (self.targets[i] - self.rows.reward(i)[0]) / gamma(i);
        let near = |x: f64, y: f64| (x - y).abs() <= ALIKE * self.spread;
        let own = |i: usize| self.values.map(|values| values[i]);
        let is = |behind: Behind, i: usize| match behind {
            Behind::Nothing => near(b(i), 0.0),
            // Where nobody looks at the flag, the recursion runs on into the next episode.
            Behind::NextTarget => self.after[i].is_some_and(|j| {
                let led = (1.0 - self.lambda) * own(j).unwrap_or(0.0) + self.lambda * self.targets[j];
                near(b(i), led) || near(b(i), self.targets[j])
            }),
            Behind::NextValue => self.after[i].is_some_and(|j| own(j).is_some_and(|value| near(b(i), value))),
            Behind::OwnValue => own(i).is_some_and(|value| near(b(i), value)),
            Behind::InReward | Behind::Other => false,
        };
        let count = |behind: Behind| ends.iter().filter(|&&i| is(behind, i)).count();
        let known =
            [Behind::Nothing, Behind::NextTarget, Behind::NextValue, Behind::OwnValue].map(|of| (count(of), of));
        // The first of those that fit equally many.
        let (alike, mut behind) = known.into_iter().rev().max_by_key(|(count, _)| *count).expect("four of them");
        if (alike as f64) < MOST * ends.len() as f64 {
            behind = Behind::Other;
        }
        if behind == Behind::Nothing && !terminated && self.in_rewards(&ends) {
            behind = Behind::InReward;
        }
        let alike = if behind == Behind::Other { ends.len() } else { alike };
        let right = match terminated {
            true => behind == Behind::Nothing,
            false => matches!(behind, Behind::InReward | Behind::Other),
        };
        let mean_of = |of: &dyn Fn(usize) -> f64| ends.iter().map(|&i| of(i)).sum::<f64>() / ends.len() as f64;
        // In place of a successor's value the nearest that is known: the value of the row's own state, or what is usual.
        let due = |i: usize| if terminated { 0.0 } else { own(i).unwrap_or(self.mean) };
        let off = (!right).then(|| match self.step() {
            Some(step) if behind == Behind::OwnValue && !terminated => step,
            _ => mean_of(&|i| gamma(i) * (due(i) - b(i)).abs()),
        });
        let reach = off.map_or(0, |off| self.reach(off));
        Some(KindEnds { count: ends.len(), behind, alike, mean: mean_of(&b), off, reach })
    }

    /// By how much a step changes the discounted value inside episodes, in the mean of the absolute values.
    fn step(&self) -> Option<f64> {
        let values = self.values?;
        let steps =
            self.next.iter().enumerate().filter_map(|(i, next)| {
                Some(self.rows.discount(i, self.discount) * (values[(*next)?] - values[i]).abs())
            });
        let (count, sum) = steps.fold((0u32, 0.0), |(count, sum), step| (count + 1, sum + step));
        (count > 0).then(|| sum / f64::from(count))
    }

    /// Whether the rewards at cuts exceed the others by the discounted value.
    fn in_rewards(&self, ends: &[usize]) -> bool {
        let Some(values) = self.values else { return false };
        let reward = |i: usize| self.rows.reward(i)[0];
        let usual = median((0..self.rows.len()).map(reward));
        let share = |&i: &usize| (reward(i) - usual) / (self.rows.discount(i, self.discount) * values[i]);
        HELD.contains(&median(ends.iter().map(share)))
    }

    /// Rows after which an error of this size is harmless.
    fn reach(&self, off: f64) -> usize {
        let left = off / (HARMLESS * self.spread);
        if left <= 1.0 {
            return 0;
        }
        // At discount 1 it never shrinks.
        ((left.ln() / -self.discount.ln()).ceil() as usize).min(self.rows.len())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() { f64::NAN } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::random::{mix, normal};

    const DISCOUNT: f64 = 0.9;

    /// Twenty episodes of fifteen rows, of which every second terminates and the others are truncated, with values of their states.
    fn episodes() -> (Rows, Vec<f64>) {
        let mut rows = Rows::new(1, 1);
        let mut values = Vec::new();
        for episode in 0..20u64 {
            for t in 0..15 {
                let (x, last) = (normal(mix(&[episode, t])), t == 14);
                rows.states.push(x);
                rows.next_states.push(normal(mix(&[episode, t + 1])));
                rows.rewards.push(-1.0 + 0.3 * normal(mix(&[7, episode, t])));
                rows.discounts.push(f64::NAN);
                rows.ratios.push(1.0);
                rows.streams.push(0);
                rows.terminated.push(last && episode % 2 == 0);
                rows.truncated.push(last && episode % 2 == 1);
                rows.starts_chain.push(t == 0);
                values.push(-8.0 + 0.5 * x);
            }
        }
        (rows, values)
    }

    /// Targets whose b at ends `behind` says; `successor` is the value of the state that a cut row leads to.
    fn targets(rows: &Rows, values: &[f64], lambda: f64, behind: impl Fn(usize, &[f64]) -> f64) -> Vec<f64> {
        let n = rows.len();
        let mut out = vec![0.0; n];
        for i in (0..n).rev() {
            let ends = rows.terminated[i] || rows.truncated[i];
            let led = if ends { behind(i, &out) } else { (1.0 - lambda) * values[i + 1] + lambda * out[i + 1] };
            out[i] = rows.reward(i)[0] + DISCOUNT * led;
        }
        out
    }

    #[test]
    fn what_stands_behind_ends_is_told() {
        let (rows, values) = episodes();
        let successor = |i: usize| -8.0 + 0.5 * rows.next_state(i)[0];
        let right = |i: usize| if rows.terminated[i] { 0.0 } else { successor(i) };
        let cut = |i: usize, of: f64| if rows.terminated[i] { 0.0 } else { of };
        let follows = |i: usize| (i + 1).min(rows.len() - 1);
        type B<'a> = Box<dyn Fn(usize, &[f64]) -> f64 + 'a>;
        let cases: [(B<'_>, Behind, Behind); 6] = [
            (Box::new(|i, _: &[f64]| right(i)), Behind::Nothing, Behind::Other),
            (Box::new(|_, _: &[f64]| 0.0), Behind::Nothing, Behind::Nothing),
            (Box::new(|i, _: &[f64]| cut(i, values[i])), Behind::Nothing, Behind::OwnValue),
            (Box::new(|i, _: &[f64]| cut(i, values[follows(i)])), Behind::Nothing, Behind::NextValue),
            (Box::new(|i, g: &[f64]| g[follows(i)]), Behind::NextTarget, Behind::NextTarget),
            (Box::new(|i, _: &[f64]| successor(i)), Behind::Other, Behind::Other),
        ];
        for lambda in [1.0, 0.9] {
            for (k, (behind, terminated, cut)) in cases.iter().enumerate() {
                let targets = targets(&rows, &values, lambda, behind);
                let found = check(&rows, &targets, Some(&values), DISCOUNT).unwrap();
                assert_eq!((found.inside, found.broken), (280, 0), "{k}: {found:?}");
                assert!((found.lambda - lambda).abs() < 1e-6, "{k}: {found:?}");
                let (ends, cuts) = (found.terminated.unwrap(), found.cut.unwrap());
                assert_eq!((ends.behind, cuts.behind), (*terminated, *cut), "{k}: {ends:?} {cuts:?}");
                assert_eq!(
                    (ends.off.is_none(), cuts.off.is_none()),
                    (*terminated == Behind::Nothing, *cut == Behind::Other)
                );
                if *cut == Behind::OwnValue {
                    // 0.9 times half of what two normal numbers differ by.
                    assert!((cuts.off.unwrap() - 0.51).abs() < 0.1, "{cuts:?}");
                }
            }
        }
        // By 0.9 times eight, which takes rows to fall to a twentieth of the deviation.
        let wrong = check(&rows, &targets(&rows, &values, 1.0, |_, _| 0.0), Some(&values), DISCOUNT).unwrap();
        let cuts = wrong.cut.unwrap();
        assert!((cuts.off.unwrap() - 7.2).abs() < 0.3 && (10..60).contains(&cuts.reach), "{cuts:?}");
    }

    #[test]
    fn a_recursion_that_runs_on_into_the_next_episode_is_told() {
        let (rows, values) = episodes();
        let runs_on = |i: usize, g: &[f64]| match i + 1 {
            j if rows.truncated[i] && j < rows.len() => 0.5 * (values[j] + g[j]),
            _ => 0.0,
        };
        let found = check(&rows, &targets(&rows, &values, 0.5, runs_on), Some(&values), DISCOUNT).unwrap();
        let cuts = found.cut.unwrap();
        assert_eq!((cuts.behind, cuts.off.is_some()), (Behind::NextTarget, true), "{cuts:?}");
    }

    #[test]
    fn rewards_that_hold_the_value_are_right() {
        let (mut rows, values) = episodes();
        let raw = targets(&rows, &values, 1.0, |i, _| if rows.terminated[i] { 0.0 } else { values[i] });
        let held = values.iter().zip(&rows.truncated).map(|(value, cut)| if *cut { DISCOUNT * value } else { 0.0 });
        rows.rewards.iter_mut().zip(held).for_each(|(reward, held)| *reward += held);
        let found = check(&rows, &raw, Some(&values), DISCOUNT).unwrap();
        let cuts = found.cut.unwrap();
        assert_eq!((cuts.behind, cuts.off), (Behind::InReward, None));
    }

    #[test]
    fn targets_that_do_not_follow_are_counted() {
        let (rows, values) = episodes();
        let mut returns = targets(&rows, &values, 1.0, |_, _| 0.0);
        returns[40] += 1.0;
        let found = check(&rows, &returns, None, DISCOUNT).unwrap();
        assert_eq!((found.broken, found.worst.unwrap().0, found.lambda), (2, 40, 1.0));
        assert_eq!(check(&rows, &vec![3.0; rows.len()], None, DISCOUNT), None);
    }
}
