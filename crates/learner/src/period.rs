//! The period of a state variable that comes back to the same after an unknown way, by evidence.
//!
//! Returns are a Gaussian process over the states, with a kernel that is periodic in the variable. Of each period on a grid of
//! frequencies, whose neighbours are a tenth of a turn apart over all the data, and of a few lengthscales and noises, the marginal
//! likelihood is worked out with the best scale:
//! ```text
//! log p = -n/2 log(y'K^-1 y / n) - 1/2 log|K|        K = k(X, X) + noise I
//! ```
//! Multiples of the period fit as well, and share less between turns: their evidence is lower. The best must be likelier than a line on
//! which the variable goes on, whose kernel may be short.

use crate::allowance::{self, Allowance};
use crate::math::dense::{Cholesky, Matrix, Scratch, dot};
use crate::math::embedding::StateKind;
use crate::math::evidence::KeepGoing;
use crate::math::golden::golden_section;
use crate::math::kernel::{Kernel, Metric, Points};
use crate::math::returns::chains;
use crate::settings::Settings;
use crate::transition::Rows;

/// States that the evidence is of, at most, and near the best frequency.
const STATES_MAX: usize = 200;
const REFINED_STATES: usize = 600;
/// Returns of which more than this part is behind the end of a chain are left out, unless fewer others are there than this number, or than a tenth.
const OPEN_MAX: f64 = 0.1;
const WHOLE_MIN: usize = 50;
/// Frequencies of the grid: up to a tenth of this number of turns over all the data.
const FREQUENCIES: usize = 400;
/// Turns between neighbours, over all the data.
const STEP: f64 = 0.1;
/// Fewest turns over all the data that show a period.
const TURNS_MIN: f64 = 1.5;
const RELEVANCES: [f64; 2] = [0.5, 2.0];
const NOISES: [f64; 3] = [0.03, 0.3, 3.0];
/// Relevances of a variable that goes on along a line, besides.
const SHORTER: [f64; 3] = [8.0, 32.0, 128.0];
/// How many times narrower than the next each range about the median is that is asked, if it has enough rows; and how much wider the rows
/// go that make a period more exact.
const NARROWER: f64 = 8.0;
const RANGES: i32 = 5;
const WIDER: f64 = 4.0;
const NEAR_MIN: usize = 100;
/// Steps of the search between the second neighbours of the best.
const REFINED: usize = 16;
/// Nats by which a period must be likelier than none: noise alone gains up to 7.8 on this grid (of 16 tables).
const GAIN_MIN: f64 = 8.0;

/// The period of state variable `d` of `rows`, in its unit, where returns of the first reward of `settings` show one: they must go
/// through it one and a half times or more. Of a variable that goes through it hundreds of times the rows in the middle of its range show
/// it, and then more and more of them make it exact. Where another is `known`, it stays unless the one found is clearly likelier. None as
/// well where `keep_going` says stop.
pub fn period(
    rows: &Rows,
    d: usize,
    settings: &Settings,
    known: Option<f64>,
    (keep_going, allowance): (KeepGoing<'_>, &Allowance),
) -> Option<f64> {
    let (returns, open) = returns(rows, settings);
    let kinds = &settings.kinds(rows.dim);
    let whole: Vec<usize> = (0..rows.len()).filter(|&i| open[i] <= OPEN_MAX).collect();
    let places = if whole.len() < WHOLE_MIN.max(rows.len() / 10) { (0..rows.len()).collect() } else { whole };
    let mut values: Vec<f64> = places.iter().map(|&i| rows.state(i)[d]).collect();
    values.sort_by(f64::total_cmp);
    let middle = *values.get(values.len() / 2)?;
    let all = (values[values.len() - 1] - middle).max(middle - values[0]);
    // None where there are too few rows in a range that is not the whole.
    let sample = |reach: f64, most: usize| {
        let near: Vec<usize> = places.iter().copied().filter(|&i| (rows.state(i)[d] - middle).abs() <= reach).collect();
        if reach < all && near.len() < NEAR_MIN {
            return None;
        }
        let some = near.iter().copied().step_by(near.len().div_ceil(most).max(1)).collect();
        Sample::of(rows, (d, kinds), some, &returns).filter(|sample| sample.range().is_finite())
    };
    // The fewest first: of all of them a multiple of the period may be the likeliest on the grid.
    let mut found = None;
    for reach in (0..RANGES).rev().map(|k| all / NARROWER.powi(k)) {
        // And where many rows are at one place there is nothing to see.
        let Some(few) = sample(reach, STATES_MAX) else { continue };
        if !allowance.affords(FREQUENCIES as f64 * few.products()) {
            break;
        }
        allowance.spend(FREQUENCIES as f64 * few.products());
        found = few.period(keep_going).map(|period| (period, reach));
        if found.is_some() || !keep_going() {
            break;
        }
    }
    let (mut found, mut reach) = found.filter(|_| keep_going())?;
    loop {
        let many = sample(reach, REFINED_STATES)?;
        if !(keep_going() && allowance.affords(REFINED as f64 * many.products())) {
            return None;
        }
        allowance.spend(REFINED as f64 * many.products());
        found = many.refined(found);
        if reach < all {
            reach = all.min(WIDER * reach);
            continue;
        }
        // What the rows in the middle show may be theirs alone.
        let best = many.of_period(found);
        if best <= many.evidence(StateKind::Real) + GAIN_MIN {
            return None;
        }
        let stays = |known: &f64| many.of_period(*known) + GAIN_MIN >= best;
        return known.filter(stays).or(Some(found));
    }
}

/// Some rows.
struct Sample {
    d: usize,
    kinds: Vec<StateKind>,
    /// (D, n): the variables, in parts of their deviations where they are real; variable `d` as it is.
    columns: Vec<Vec<f64>>,
    /// Variable `d` in parts of its deviation, and the returns.
    straight: Vec<f64>,
    targets: Vec<f64>,
}

impl Sample {
    /// Of the rows `places`; none where their returns, or variable `d`, are all the same.
    fn of(rows: &Rows, (d, kinds): (usize, &[StateKind]), places: Vec<usize>, returns: &[f64]) -> Option<Self> {
        let mut all = kinds.to_vec();
        all.resize(rows.dim, StateKind::Real);
        let column = |of: usize| places.iter().map(|&i| rows.state(i)[of]).collect::<Vec<f64>>();
        let scaled = |of: usize| {
            if of == d || all[of] != StateKind::Real {
                column(of)
            } else {
                standard(&column(of)).unwrap_or_else(|| vec![0.0; places.len()])
            }
        };
        Some(Self {
            columns: (0..rows.dim).map(scaled).collect(),
            straight: standard(&column(d))?,
            targets: standard(&places.iter().map(|&i| returns[i]).collect::<Vec<f64>>())?,
            kinds: all,
            d,
        })
    }

    /// Over which variable `d` goes.
    fn range(&self) -> f64 {
        let (low, high) = self.columns[self.d]
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)));
        high - low
    }

    /// The likeliest on the grid; none where the variable is no less likely to go on along a line.
    fn period(&self, keep_going: KeepGoing<'_>) -> Option<f64> {
        let (range, first) = (self.range(), (TURNS_MIN / STEP) as usize);
        let grid = (first..first + FREQUENCIES).map(|k| range / (k as f64 * STEP)).take_while(|_| keep_going());
        let (found, best) = grid
            .map(|period| (period, self.of_period(period)))
            .fold((0.0, f64::NEG_INFINITY), |a, b| if b.1 > a.1 { b } else { a });
        (best > self.evidence(StateKind::Real) + GAIN_MIN).then_some(found)
    }

    /// The likeliest near one on the grid.
    fn refined(&self, period: f64) -> f64 {
        let (range, turns) = (self.range(), self.range() / period);
        let (low, high) = ((turns - 2.0 * STEP).max(TURNS_MIN), turns + 2.0 * STEP);
        range / golden_section(low, high, REFINED, |turns| self.of_period(range / turns))
    }

    fn of_period(&self, period: f64) -> f64 {
        self.evidence(StateKind::Periodic(period))
    }

    /// Products of the evidence of a period.
    fn products(&self) -> f64 {
        let n = self.targets.len() as f64;
        let each = allowance::covariances(n * n, self.kinds.len()) + n.powi(3) / 6.0;
        (RELEVANCES.len() * NOISES.len()) as f64 * each
    }

    /// The largest where variable `d` is of this kind.
    fn evidence(&self, kind: StateKind) -> f64 {
        let mut kinds = self.kinds.clone();
        kinds[self.d] = kind;
        let column = |of: usize| {
            if of == self.d && kind == StateKind::Real { &self.straight } else { &self.columns[of] }
        };
        let states: Vec<f64> =
            (0..self.targets.len()).flat_map(|i| (0..kinds.len()).map(move |of| column(of)[i])).collect();
        let shorter: &[f64] = if kind == StateKind::Real { &SHORTER } else { &[] };
        let relevances = RELEVANCES.iter().chain(shorter);
        let each = relevances.flat_map(|relevance| NOISES.iter().map(move |noise| (*relevance, *noise)));
        each.filter_map(|(relevance, noise)| {
            let mut relevances = vec![1.0; kinds.len()];
            relevances[self.d] = relevance;
            let kernel = Kernel::gaussian(1.0, 0.0, Metric::Ard(relevances)).with_kinds(&kinds);
            log_evidence(&kernel, &states, &self.targets, noise)
        })
        .fold(f64::NEG_INFINITY, f64::max)
    }
}

/// About their mean, in parts of their deviation; none where they are all the same.
fn standard(values: &[f64]) -> Option<Vec<f64>> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    (deviation > 0.0 && deviation.is_finite()).then(|| values.iter().map(|v| (v - mean) / deviation).collect())
}

/// (n,) discounted rewards up to the end of each chain, and what is left of a reward behind it, by how much it is discounted.
fn returns(rows: &Rows, settings: &Settings) -> (Vec<f64>, Vec<f64>) {
    let follows = chains(rows);
    let (column, discount) = (settings.rewards[0], settings.discount);
    let mut out: Vec<f64> = (0..rows.len()).map(|i| rows.reward(i)[column]).collect();
    let mut open = vec![0.0; rows.len()];
    for i in (0..rows.len()).rev() {
        let own = rows.discount(i, discount);
        out[i] += follows[i].map_or(0.0, |next| own * out[next]);
        open[i] = own * follows[i].map_or(f64::from(u8::from(!rows.terminated[i])), |next| open[next]);
    }
    (out, open)
}

/// Up to a constant, with the best scale. None where the matrix has no factor.
fn log_evidence(kernel: &Kernel, states: &[f64], targets: &[f64], noise: f64) -> Option<f64> {
    let (n, dim) = (targets.len(), states.len() / targets.len());
    let points = kernel.project(dim, states);
    let mut covariance = Matrix::zeros(n, n);
    kernel.block(&Points::new(kernel.projected_dim(dim), &points), &points, &mut covariance.view_mut());
    let mut factor = Cholesky::default();
    factor.renew(&covariance, noise, &mut Scratch::default()).ok()?;
    let solved = factor.solve(Matrix::from_columns(n, 1, targets.to_vec()));
    let scale = dot(solved.col(0), targets) / n as f64;
    let logs: f64 = (0..n).map(|i| factor.factor().at(i, i).ln()).sum();
    Some(-0.5 * n as f64 * scale.ln() - logs).filter(|found| found.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{mix, normal, uniform};

    /// A wheel that turns by random steps; what it earns depends on where it stands, with this period.
    fn wheel(period: f64, turns: f64, seed: u64) -> Rows {
        let mut rows = Rows::new(2, 1);
        for i in 0..if turns > 50.0 { 4000 } else { 600_u64 } {
            let x = turns * period * uniform(mix(&[seed, i, 0]));
            rows.states.extend([x, normal(mix(&[seed, i, 1]))]);
            rows.next_states.extend([x, 0.0]);
            let phase = std::f64::consts::TAU * x / period;
            rows.rewards.push(phase.cos() + 0.5 * (2.0 * phase).sin() + 0.3 * normal(mix(&[seed, i, 2])));
            rows.discounts.push(f64::NAN);
            rows.ratios.push(1.0);
            rows.streams.push(0);
            rows.terminated.push(false);
            rows.truncated.push(false);
            rows.starts_chain.push(true);
        }
        rows
    }

    fn found(rows: &Rows, known: Option<f64>) -> Option<f64> {
        period(rows, 0, &Settings { discount: 0.9, ..Settings::default() }, known, (&|| true, &Allowance::unlimited()))
    }

    #[test]
    fn the_period_of_a_wheel_is_found_within_two_percent() {
        for (seed, (truth, turns)) in
            [(6.2, 3.0), (0.8, 12.0), (360.0, 5.5), (2.5, 30.0), (6.2, 200.0)].into_iter().enumerate()
        {
            let rows = wheel(truth, turns, seed as u64);
            let first = found(&rows, None).expect("a period");
            assert!((first / truth - 1.0).abs() < 0.02, "{first} for {truth} over {turns} turns");
            let near = first * (1.0 + 1e-5);
            assert_eq!(found(&rows, Some(near)), Some(near), "what is as likely stays");
            assert_eq!(found(&rows, Some(0.7 * truth)), Some(first));
        }
    }

    #[test]
    fn what_a_chain_cuts_is_left_open_and_what_terminates_is_not() {
        let mut rows = wheel(1.0, 3.0, 4);
        for (i, (starts, ends)) in [(true, false), (false, false), (true, false), (false, true)].into_iter().enumerate()
        {
            (rows.starts_chain[i], rows.terminated[i]) = (starts, ends);
        }
        let (_, open) = returns(&rows, &Settings { discount: 0.5, ..Settings::default() });
        assert_eq!(open[..5], [0.25, 0.5, 0.0, 0.0, 0.5]);
    }

    #[test]
    fn noise_and_what_bends_without_coming_back_have_no_period() {
        for seed in 0..4u64 {
            let (mut noise, mut bent) = (wheel(1.0, 6.0, 20 + seed), wheel(1.0, 6.0, 30 + seed));
            for i in 0..noise.rewards.len() {
                let draw = 0.3 * normal(mix(&[seed, i as u64]));
                noise.rewards[i] = draw;
                // Waves that become shorter.
                bent.rewards[i] = (0.35 * bent.states[2 * i].powi(2)).sin() + draw;
            }
            assert_eq!((found(&noise, None), found(&bent, None)), (None, None), "seed {seed}");
        }
    }

    #[test]
    fn noise_that_is_asked_over_many_ranges_has_no_period() {
        for seed in 0..4u64 {
            let mut rows = wheel(1.0, 200.0, 40 + seed);
            (0..rows.rewards.len()).for_each(|i| rows.rewards[i] = normal(mix(&[seed, i as u64])));
            assert_eq!(found(&rows, None), None, "seed {seed}");
        }
    }

    #[test]
    fn what_does_not_come_back_has_no_period() {
        let mut rows = wheel(1.0, 6.0, 9);
        // It earns the more the further it is.
        for i in 0..rows.rewards.len() {
            rows.rewards[i] = rows.states[2 * i] + 0.3 * normal(mix(&[i as u64]));
        }
        assert_eq!(found(&rows, None), None);
        rows.states.iter_mut().step_by(2).for_each(|x| *x = 1.0);
        assert_eq!(found(&rows, None), None, "it never moves");
    }
}
