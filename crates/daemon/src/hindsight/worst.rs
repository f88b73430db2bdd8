//! Where a model errs most: returns minus predictions over the states that were visited.
//!
//! A single return scatters. So an error is a mean over a state and those nearest to it, and the worst states are those whose means
//! exceed two of their standard errors by most; a neighbourhood counts once. Distances are between standardised states. Returns of one chain
//! that have more than a tenth in common count as one.

use super::along::{Along, Single, Stretch};
use super::following::has_returns;
use super::returns::{REST, Rewards};
use super::scattered::scattered;
use crate::learner::action::Successor;
use crate::snapshot::{Ask, Evaluator};
use crate::transition::Rows;
use std::collections::HashMap;

/// States that are looked at, and products for their values and distances, about.
pub const SAMPLES: usize = 1500;
const SAMPLES_MIN: usize = 150;
const PRODUCTS: usize = 20_000_000;
/// States that an error is a mean over.
const NEIGHBOURS: usize = 12;
/// States that a scatter is taken over at least: of twelve errors it may be small by chance.
const SCATTER: usize = 48;
/// Standard errors that are taken from a mean where states are ranked, and those above which it is no chance.
const REACH: f64 = 2.0;
const NO_CHANCE: f64 = 4.0;
/// Worst states that are named.
pub const WORST: usize = 10;
/// Half the width of a slab about a state, in standard deviations of a variable, and states in it below which it says nothing.
const SLAB: f64 = 0.3;
const SLAB_MIN: usize = 8;

/// A visited state whose return is known, with the errors there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Which row it is of.
    pub row: usize,
    /// Number of its chain.
    pub chain: usize,
    /// Number of its row there.
    pub step: usize,
    /// Return minus prediction.
    pub error: f64,
    /// TD error: reward plus discounted value of the next state, minus prediction.
    pub difference: f64,
}

/// Which error of a sample.
pub type Kind = fn(&Sample) -> f64;

/// The number of each row's chain, and of the row there.
fn chains(rows: &Rows) -> Vec<(usize, usize)> {
    let mut now: HashMap<u32, (usize, usize)> = HashMap::new();
    let mut begun = 0;
    let number = |i: usize| {
        let stream = rows.streams[i];
        let (chain, step) = match now.get(&stream) {
            Some(&(chain, step)) if !rows.starts_chain[i] => (chain, step + 1),
            _ => {
                begun += 1;
                (begun, 0)
            }
        };
        if rows.terminated[i] || rows.truncated[i] {
            now.remove(&stream);
        } else {
            now.insert(stream, (chain, step));
        }
        (chain, step)
    };
    (0..rows.len()).map(number).collect()
}

/// States of `dim` numbers that can be looked at without taking long.
pub fn affordable(model: &Evaluator, dim: usize, successor: Option<Successor>) -> usize {
    let m = model.snapshot().dictionary.nrows().max(1);
    let choices = match (&model.snapshot().actions, successor) {
        (Some(of), Some(Successor::Improve)) => of.space.candidates().len() / of.space.width(),
        _ => 1,
    };
    // Three evaluations of a state, and its distance to each of the others.
    let most = (PRODUCTS / ((2 + choices) * m * dim)).min(((PRODUCTS / dim) as f64).sqrt() as usize);
    most.clamp(SAMPLES_MIN, SAMPLES)
}

/// At most `most` states with known returns of value function `head`, whose reward is in column `column`, evenly spread over the rows. Values of
/// another policy than the one that acts have no returns: there the TD error stands for both.
///
/// # Errors
/// A sentence that names what is wrong.
pub fn samples(
    rows: &Rows,
    model: &Evaluator,
    rewards: &Rewards,
    (head, column): (usize, usize),
    most: usize,
) -> Result<Vec<Sample>, String> {
    let single = Single::of(rows, model.snapshot(), rewards, column);
    let returns = has_returns(rewards.successor);
    let is_known = |&i: &usize| single.is_known(i) && (!returns || single.has_return(i));
    let known: Vec<usize> = (0..rows.len()).filter(is_known).collect();
    let chosen: Vec<usize> = scattered(0..known.len() as u64, most).map(|k| known[k as usize]).collect();
    let stretches: Vec<Stretch> = chosen.iter().map(|&i| single.row(i)).collect();
    let found = Along::of(&stretches.iter().collect::<Vec<_>>(), (model, Ask::MEAN), rewards, head)?;
    let chains = chains(rows);
    let one = |(k, &row): (usize, &usize)| {
        let (chain, step) = chains[row];
        let difference = found.difference[k];
        let error = if returns { found.realised[k] - found.value[k] } else { difference };
        Sample { row, chain, step, error, difference }
    };
    Ok(chosen.iter().enumerate().map(one).filter(|s| s.error.is_finite()).collect())
}

/// A state about which the model errs much.
#[derive(Clone, Debug, Default)]
pub struct Worst {
    /// Its row.
    pub row: usize,
    /// Mean of return minus prediction in the neighbourhood.
    pub error: f64,
    /// Mean TD error there.
    pub difference: f64,
    /// Standard deviation in the neighbourhood of the error by which it is among the worst.
    pub spread: f64,
    /// The mean of that error in its standard errors.
    pub sure: f64,
    /// States in the neighbourhood.
    pub count: usize,
    /// The one or two variables along which the error is most local.
    pub axes: Vec<usize>,
}

impl Worst {
    /// Whether it is more than chance.
    pub fn is_no_chance(&self) -> bool {
        self.sure > NO_CHANCE
    }
}

/// Samples, and those nearest to each.
#[derive(Debug)]
pub struct Neighbours {
    /// (n, D), standardised.
    places: Vec<f64>,
    /// Of each sample those whose scatter counts, the nearest first, itself among them.
    near: Vec<Vec<usize>>,
}

/// Rows of a chain whose returns count as one, about: what two returns this far apart have in common weighs a tenth.
pub fn spacing(discount: f64) -> f64 {
    0.5 * (REST.ln() / discount.ln()).abs()
}

/// What the neighbourhood of a sample says.
#[derive(Clone, Copy)]
struct Neighbourhood {
    mean: f64,
    spread: f64,
    standard_error: f64,
}

impl Neighbours {
    /// Of samples of these rows.
    pub fn of(rows: &Rows, samples: &[Sample]) -> Self {
        Self::new(standardised(rows, samples), rows.dim)
    }

    /// Of places (n, D).
    fn new(places: Vec<f64>, dim: usize) -> Self {
        let n = places.len() / dim;
        let k = SCATTER.min(n);
        let nearest = |a: usize| {
            let away =
                |b: usize| -> f64 { (0..dim).map(|d| (places[a * dim + d] - places[b * dim + d]).powi(2)).sum() };
            let mut others: Vec<(f64, usize)> = (0..n).map(|b| (away(b), b)).collect();
            others.select_nth_unstable_by(k - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            others.truncate(k);
            others.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            others.into_iter().map(|(_, b)| b).collect()
        };
        let near = (0..n).map(nearest).collect();
        Self { places, near }
    }

    /// The worst states by one kind of error, the worst first. Errors of a chain less than `spacing` rows apart count as one.
    pub fn worst(&self, samples: &[Sample], of: Kind, spacing: f64) -> Vec<Worst> {
        let n = samples.len();
        let found: Vec<Neighbourhood> = (0..n).map(|a| self.found(samples, a, of, spacing)).collect();
        let score = |a: usize| (found[a].mean.abs() - REACH * found[a].standard_error).max(0.0);
        let mut order: Vec<usize> = (0..n).collect();
        let larger = |a: &usize, b: &usize| found[*b].mean.abs().total_cmp(&found[*a].mean.abs());
        order.sort_by(|a, b| score(*b).total_cmp(&score(*a)).then(larger(a, b)).then(a.cmp(b)));
        let mut taken = vec![false; n];
        let mut out = Vec::new();
        for a in order {
            let near = self.nearest(a);
            if near.iter().any(|&b| taken[b]) {
                continue;
            }
            near.iter().for_each(|&b| taken[b] = true);
            let mean = |f: Kind| near.iter().map(|&b| f(&samples[b])).sum::<f64>() / near.len() as f64;
            let Neighbourhood { mean: error, spread, standard_error } = found[a];
            out.push(Worst {
                row: samples[a].row,
                error: mean(|s| s.error),
                difference: mean(|s| s.difference),
                spread,
                sure: error.abs() / standard_error,
                count: near.len(),
                axes: local(&self.places, samples, (a, of), error.signum()),
            });
            if out.len() == WORST {
                break;
            }
        }
        out
    }

    fn found(&self, samples: &[Sample], a: usize, of: Kind, spacing: f64) -> Neighbourhood {
        let near = self.nearest(a);
        let mean_of = |some: &[usize]| some.iter().map(|&b| of(&samples[b])).sum::<f64>() / some.len() as f64;
        let variance = |some: &[usize]| {
            let mean = mean_of(some);
            let squares = some.iter().map(|&b| (of(&samples[b]) - mean).powi(2)).sum::<f64>();
            squares / (some.len() as f64 - 1.0).max(1.0)
        };
        let (mean, spread) = (mean_of(near), variance(near));
        let mut separate: Vec<&Sample> = Vec::with_capacity(near.len());
        for sample in near.iter().map(|&b| &samples[b]) {
            let close = |one: &&Sample| one.chain == sample.chain && (one.step.abs_diff(sample.step) as f64) < spacing;
            if !separate.iter().any(close) {
                separate.push(sample);
            }
        }
        // A single one has no known error.
        let standard_error = match separate.len() {
            0 | 1 => f64::INFINITY,
            count => (spread.max(variance(&self.near[a])) / count as f64).sqrt().max(f64::MIN_POSITIVE),
        };
        Neighbourhood { mean, spread: spread.sqrt(), standard_error }
    }

    /// The neighbourhood of a sample.
    fn nearest(&self, a: usize) -> &[usize] {
        &self.near[a][..NEIGHBOURS.min(self.near[a].len())]
    }
}

/// The one or two variables along which an error of this sign about sample `a` is most local: where states near `a` in that variable alone
/// have the largest mean error. `places` (n, D) are standardised.
fn local(places: &[f64], samples: &[Sample], (a, of): (usize, Kind), sign: f64) -> Vec<usize> {
    let dim = places.len() / samples.len();
    let strength = |d: usize| {
        let near = |b: &usize| (places[b * dim + d] - places[a * dim + d]).abs() < SLAB;
        let errors: Vec<f64> = (0..samples.len()).filter(near).map(|b| sign * of(&samples[b])).collect();
        if errors.len() < SLAB_MIN { f64::NEG_INFINITY } else { errors.iter().sum::<f64>() / errors.len() as f64 }
    };
    let strengths: Vec<f64> = (0..dim).map(strength).collect();
    let mut order: Vec<usize> = (0..dim).collect();
    order.sort_by(|&d, &e| strengths[e].total_cmp(&strengths[d]).then(d.cmp(&e)));
    order.truncate(2);
    order.sort_unstable();
    order
}

/// States (n, D) with a variance of one in each variable.
fn standardised(rows: &Rows, samples: &[Sample]) -> Vec<f64> {
    let (n, dim) = (samples.len(), rows.dim);
    let mut places: Vec<f64> = samples.iter().flat_map(|s| rows.state(s.row).iter().copied()).collect();
    for d in 0..dim {
        let column = || (0..n).map(|a| places[a * dim + d]);
        let mean = column().sum::<f64>() / n as f64;
        let deviation = (column().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        for a in 0..n {
            places[a * dim + d] = if deviation > 0.0 { (places[a * dim + d] - mean) / deviation } else { 0.0 };
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn the_axes_of_an_error_are_those_along_which_it_is_local() {
        // Four variables; the error is where the second and the fourth are both high.
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64 * 3.4 - 1.7
        };
        let places: Vec<f64> = (0..4 * 800).map(|_| random()).collect();
        let inside = |place: &[f64]| place[1] > 1.0 && place[3] > 1.0;
        let error = |place: &[f64]| if inside(place) { -5.0 } else { 0.1 };
        let sample =
            |(row, place): (usize, &[f64])| Sample { row, chain: row, step: 0, error: error(place), difference: 0.0 };
        let samples: Vec<Sample> = places.chunks_exact(4).enumerate().map(sample).collect();
        let a = places.chunks_exact(4).position(inside).unwrap();
        assert_eq!(local(&places, &samples, (a, |s| s.error), -1.0), [1, 3]);
    }
    /// Of places of two variables: errors that scatter by 2 where the first is negative and by 0.2 elsewhere, with `bias` added in a corner
    /// where they scatter little; the TD error is the opposite.
    fn uneven(seed: u64, bias: f64) -> (Vec<f64>, Vec<Sample>) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut places, mut samples) = (Vec::new(), Vec::new());
        for row in 0..1500 {
            let state: [f64; 2] = [rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0)];
            let normal = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            let planted = if is_corner(&state) { bias } else { 0.0 };
            let error = planted + normal * if state[0] < 0.0 { 2.0 } else { 0.2 };
            samples.push(Sample { row, chain: row, step: 0, error, difference: 2.0 * error });
            places.extend(state);
        }
        (places, samples)
    }

    fn is_corner(state: &[f64]) -> bool {
        state[0] > 0.5 && state[1] > 0.5
    }

    #[test]
    fn an_error_where_returns_scatter_little_comes_before_noise_elsewhere() {
        for seed in 0..20 {
            let (places, samples) = uneven(seed, 1.2);
            let neighbours = Neighbours::new(places.clone(), 2);
            for kind in [(|s| s.error) as Kind, |s| s.difference] {
                let worst = neighbours.worst(&samples, kind, 0.0);
                let inside = worst.iter().take(3).filter(|w| is_corner(&places[2 * w.row..2 * w.row + 2])).count();
                assert!(inside >= 2 && worst.iter().any(Worst::is_no_chance), "seed {seed}: {inside}");
            }
        }
    }

    #[test]
    fn noise_is_no_more_than_chance() {
        let chance = |seed| {
            let (places, samples) = uneven(seed, 0.0);
            !Neighbours::new(places, 2).worst(&samples, |s| s.error, 0.0).iter().any(Worst::is_no_chance)
        };
        let share = (0..50).filter(|&seed| chance(seed)).count();
        assert!(share >= 43, "{share} of 50");
        // One return that many rows of a chain have in common counts once.
        let (places, samples) = uneven(1, 1.2);
        let one = |(row, sample): (usize, Sample)| Sample { chain: 0, step: row, ..sample };
        let samples: Vec<Sample> = samples.into_iter().enumerate().map(one).collect();
        let neighbours = Neighbours::new(places, 2);
        assert!(!neighbours.worst(&samples, |s| s.error, 1e4).iter().any(Worst::is_no_chance));
        assert!(neighbours.worst(&samples, |s| s.error, 1.0).iter().any(Worst::is_no_chance));
    }
}
