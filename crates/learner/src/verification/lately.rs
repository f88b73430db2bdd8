//! How much more V errs lately than it states, from the errors of returns that came: (Q6) of docs/mathematics.md.
//!
//! ```text
//! eps = y - V of a start row, s^2 the variance of its return about V as stated, w = (1, x) its state, of the last 50, 100, 200 and
//! 400 horizons each:
//! B   = (sum w w' + I)^-1 sum w eps           a bias that leans along the variables
//! T   = B' S_w B                              counts if above 8 tr(Cov B S_w)
//! X   = mean(eps^2 - k s^2)                   counts if above two standard errors
//! Var V <- Var V + the largest of all T and X
//! ```
//! Cov B is the sandwich of w (eps - w'B) over blocks of two horizons, times blocks / (blocks - size of w); S_w the mean of w w'; k
//! what a refit found that errors of rows it had not seen are. All is averaged over heads. A world that drifts away from a model that
//! goes on with it shows in T first, whose level and slopes average out what single returns scatter.

use crate::math::dense::{
    Cholesky, Matrix, Op, Scratch, axpy, dot, multiply, rank_k, solve_lower, solve_lower_transposed,
};
use crate::math::raw;
use serde::{Deserialize, Serialize};

/// Pairs that are remembered.
const PAIRS_MAX: usize = 1280;
/// Horizons of the windows.
const WINDOWS: [f64; 4] = [50.0, 100.0, 200.0, 400.0];
/// Horizons of a block: beyond it errors of returns share little.
const BLOCK: f64 = 2.0;
/// Blocks from which on a window says something, and the most that the longest one has.
const BLOCKS_MIN: usize = 12;
const BLOCKS_MAX: usize = 202;
/// How many times its own uncertainty a bias has to be.
const CERTAIN: f64 = 8.0;
/// Pairs from one look to the next.
const LOOK_EVERY: u64 = 16;
/// Variables from which on the bias is a constant: a regression on many would take longer than learning.
const VARIABLES_MAX: usize = 40;
/// A state beyond this, in deviations, leans no further: one far off would carry the slope alone.
const STATE_MAX: f64 = 3.0;

/// Numbers that are remembered and worked with, for H `rewards` and D variables.
pub fn lately_numbers(rewards: usize, dim: usize) -> usize {
    let kept = if dim > VARIABLES_MAX { 0 } else { dim };
    let p = kept + 1;
    PAIRS_MAX * (2 + 2 * rewards + kept + p) + 2 * BLOCKS_MAX * p + 4 * p * p
}

/// The errors of the last returns, and what they have said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Lately {
    /// Numbers of the start rows, a ring.
    starts: Vec<u64>,
    /// For each: eps (H,), s^2 (H,) and x (D,), a ring.
    #[serde(with = "raw")]
    pairs: Vec<f64>,
    /// Pair that the next one replaces, where there are [`PAIRS_MAX`].
    oldest: u64,
    /// H, and the variables that are kept of a state.
    heads: u64,
    dim: u64,
    /// Pairs since the last look.
    unseen: u64,
    /// What they have said, value^2.
    excess: f64,
    #[serde(skip)]
    work: LookScratch,
}

/// A pair as the ring has it.
struct RingPair<'a> {
    start: u64,
    errors: &'a [f64],
    spread: &'a [f64],
    state: &'a [f64],
}

impl Lately {
    /// A return is known: of the start row of this number and normalised state (D,) it missed V by `errors` (H,), and its variance
    /// about V was stated as `spread` (H,).
    pub(super) fn push(&mut self, start: u64, errors: &[f64], spread: &[f64], state: &[f64]) {
        let dim = if state.len() > VARIABLES_MAX { 0 } else { state.len() };
        (self.heads, self.dim) = (errors.len() as u64, dim as u64);
        let width = 2 * errors.len() + dim;
        if self.starts.capacity() == 0 {
            self.starts.reserve_exact(PAIRS_MAX);
            self.pairs.reserve_exact(PAIRS_MAX * width);
        }
        let place = self.oldest as usize;
        if self.starts.len() < PAIRS_MAX {
            self.starts.push(start);
            self.pairs.resize(self.starts.len() * width, 0.0);
        } else {
            self.starts[place] = start;
        }
        let to = &mut self.pairs[place * width..(place + 1) * width];
        let leaning = state[..dim].iter().map(|x| x.clamp(-STATE_MAX, STATE_MAX));
        let numbers = errors.iter().chain(spread).copied().chain(leaning);
        to.iter_mut().zip(numbers).for_each(|(to, number)| *to = number);
        self.oldest = (self.oldest + 1) % PAIRS_MAX as u64;
        self.unseen += 1;
    }

    /// Look at the last pairs again, where enough have come: `normal` is k, `horizon` the rows of one.
    pub(super) fn renew(&mut self, normal: f64, horizon: f64) {
        if self.unseen < LOOK_EVERY {
            return;
        }
        self.unseen = 0;
        let mut work = std::mem::take(&mut self.work);
        work.reserve(1 + self.dim as usize);
        let look = |horizons: &f64| self.look(horizons * horizon, normal, horizon, &mut work);
        self.excess = WINDOWS.iter().map(look).fold(0.0, f64::max);
        self.work = work;
    }

    /// Value^2.
    pub(super) fn excess(&self) -> f64 {
        self.excess
    }

    /// The larger of T and X over the pairs of the last `rows` rows that count; 0 if none does.
    fn look(&self, rows: f64, normal: f64, horizon: f64, work: &mut LookScratch) -> f64 {
        let Some(newest) = self.backwards().next().map(|pair| pair.start) else { return 0.0 };
        let recent = |pair: &RingPair<'_>| newest.saturating_sub(pair.start) as f64 <= rows;
        work.places.clear();
        let (mut least, mut place) = (u64::MAX, 0);
        for pair in self.backwards().take_while(recent) {
            let number = (pair.start as f64 / (BLOCK * horizon)) as u64;
            // Returns end in another order than they began: one of an earlier block makes no new one.
            place += usize::from(number < least && least < u64::MAX);
            least = least.min(number);
            work.places.push(place);
        }
        let blocks = place + 1;
        if blocks < BLOCKS_MIN {
            return 0.0;
        }
        self.bias(blocks, work).max(self.scatter(work.places.len(), blocks, normal))
    }

    /// X of the last `count` pairs, or 0.
    fn scatter(&self, count: usize, blocks: usize, normal: f64) -> f64 {
        let (share, heads) = (1.0 / count as f64, self.heads.max(1) as f64);
        let of = |pair: RingPair<'_>| {
            pair.errors.iter().zip(pair.spread).map(|(e, s)| e * e - normal * s).sum::<f64>() / heads
        };
        let mean = share * self.backwards().take(count).map(of).sum::<f64>();
        let variance = share * self.backwards().take(count).map(|pair| (of(pair) - mean).powi(2)).sum::<f64>();
        let error = (variance / blocks as f64).sqrt();
        if mean.is_finite() && mean > 2.0 * error { mean } else { 0.0 }
    }

    /// T of the pairs that have a place in `work`, or 0.
    fn bias(&self, blocks: usize, work: &mut LookScratch) -> f64 {
        let (heads, p) = (self.heads as usize, 1 + self.dim as usize);
        let LookScratch { places, regressors, moment, factor, scratch, leaning, scores, images } = work;
        regressors.renew(p, places.len());
        for (k, pair) in self.backwards().take(places.len()).enumerate() {
            let w = regressors.col_mut(k);
            w[0] = 1.0;
            w[1..].copy_from_slice(pair.state);
        }
        moment.renew(p, p);
        moment.fill(0.0);
        rank_k(moment.view_mut(), 1.0, regressors.view(), Op::Plain);
        moment.mirror_lower();
        if factor.renew(moment, 1.0, scratch).is_err() {
            return 0.0;
        }
        let share = 1.0 / places.len() as f64;
        let (mut size, mut chance) = (0.0, 0.0);
        for h in 0..heads {
            leaning.renew(p, 1);
            leaning.fill(0.0);
            for (k, pair) in self.backwards().take(places.len()).enumerate() {
                axpy(leaning.col_mut(0), pair.errors[h], regressors.col(k));
            }
            solve_both(factor, leaning);
            scores.renew(p, blocks);
            scores.fill(0.0);
            for (k, pair) in self.backwards().take(places.len()).enumerate() {
                let w = regressors.col(k);
                axpy(scores.col_mut(places[k]), pair.errors[h] - dot(w, leaning.col(0)), w);
            }
            // tr(Cov S_w) = sum over blocks of b' A^-1 S_w A^-1 b.
            solve_both(factor, scores);
            let freedom = blocks as f64 / blocks.saturating_sub(p).max(1) as f64;
            size += share * forms(moment, leaning, images);
            chance += freedom * share * forms(moment, scores, images);
        }
        if size.is_finite() && size > CERTAIN * chance { size / heads as f64 } else { 0.0 }
    }

    /// The pairs, newest first.
    fn backwards(&self) -> impl Iterator<Item = RingPair<'_>> {
        let (count, heads) = (self.starts.len(), self.heads as usize);
        let width = 2 * heads + self.dim as usize;
        (1..=count).map(move |back| {
            let place = (self.oldest as usize + PAIRS_MAX - back) % PAIRS_MAX;
            let (errors, rest) = self.pairs[place * width..(place + 1) * width].split_at(heads);
            let (spread, state) = rest.split_at(heads);
            RingPair { start: self.starts[place], errors, spread, state }
        })
    }

    pub(super) fn bytes(&self) -> usize {
        (self.starts.capacity() + self.pairs.capacity()) * size_of::<f64>() + self.work.bytes()
    }

    /// Whether its parts fit H `rewards` and D variables.
    pub(super) fn is_consistent(&self, rewards: usize, dim: usize) -> bool {
        let (count, heads, kept) = (self.starts.len(), self.heads as usize, self.dim as usize);
        let shapes = (heads, kept) == (rewards, if dim > VARIABLES_MAX { 0 } else { dim });
        let next = if count < PAIRS_MAX { count } else { self.oldest as usize };
        (count == 0 || shapes)
            && count <= PAIRS_MAX
            && self.oldest < PAIRS_MAX as u64
            && self.oldest as usize == next % PAIRS_MAX
            && self.pairs.len() == count * (2 * heads + kept)
            && self.excess >= 0.0
            && self.excess.is_finite()
    }
}

/// What a look works in, kept from one to the next.
#[derive(Clone, Debug, Default)]
struct LookScratch {
    /// Number of the block of each pair (n,), newest first.
    places: Vec<usize>,
    /// w of each pair (p, n), and the sum of w w' (p, p).
    regressors: Matrix,
    moment: Matrix,
    /// Of that sum + I.
    factor: Cholesky,
    scratch: Scratch,
    /// B (p, 1); what blocks add to it (p, blocks), and scratch of the same size.
    leaning: Matrix,
    scores: Matrix,
    images: Matrix,
}

impl PartialEq for LookScratch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl LookScratch {
    /// Room for all that a look at p regressors may need.
    fn reserve(&mut self, p: usize) {
        if self.places.capacity() == 0 {
            self.places.reserve_exact(PAIRS_MAX);
        }
        self.regressors.renew(p, PAIRS_MAX);
        self.scores.renew(p, BLOCKS_MAX);
        self.images.renew(p, BLOCKS_MAX);
    }

    fn bytes(&self) -> usize {
        let Self { places, regressors, moment, leaning, scores, images, .. } = self;
        let matrices = [regressors, moment, leaning, scores, images].map(Matrix::bytes);
        places.capacity() * size_of::<usize>() + matrices.iter().sum::<usize>() + self.factor.factor().bytes()
    }
}

/// right <- (L L')^-1 right.
fn solve_both(factor: &Cholesky, right: &mut Matrix) {
    solve_lower(factor.factor().view(), right.view_mut());
    solve_lower_transposed(factor.factor().view(), right.view_mut());
}

/// Sum of x' M x over the columns x of `of`; `images` is scratch.
fn forms(moment: &Matrix, of: &Matrix, images: &mut Matrix) -> f64 {
    images.renew(of.rows(), of.cols());
    multiply(images.view_mut(), false, 1.0, moment.view(), Op::Plain, of.view(), Op::Plain);
    (0..of.cols()).map(|k| dot(of.col(k), images.col(k))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn drifts() -> Vec<Value> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/intervals.json");
        let whole: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        whole["drifts"].as_array().unwrap().clone()
    }

    /// The pairs of a case, and what each look at them found.
    fn looks(case: &Value, mut between: impl FnMut(Lately) -> Lately) -> Vec<f64> {
        let (mut lately, mut out) = (Lately::default(), Vec::new());
        for pair in case["pairs"].as_array().unwrap() {
            let number = |k: usize| pair[k].as_f64().unwrap();
            lately.push(number(0) as u64, &[number(1)], &[number(2)], &[number(3)]);
            lately.renew(1.0, 10.0);
            if lately.unseen == 0 {
                out.push(lately.excess());
            }
            lately = between(lately);
        }
        assert!(lately.is_consistent(1, 1) && !lately.is_consistent(2, 1));
        out
    }

    #[test]
    fn what_errors_say_is_the_formula() {
        for case in drifts() {
            let (name, found) = (&case["name"], looks(&case, |lately| lately));
            let expected: Vec<f64> = case["excess"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-9 * (1.0 + expected), "{name}: {found} and not {expected}");
            }
        }
    }

    #[test]
    fn written_and_read_back_it_goes_on() {
        let case = &drifts()[1];
        let again = |lately: Lately| rmp_serde::from_slice(&rmp_serde::to_vec_named(&lately).unwrap()).unwrap();
        assert_eq!(looks(case, |lately| lately), looks(case, again));
    }

    #[test]
    fn the_oldest_pairs_are_forgotten_and_many_variables_left_out() {
        let mut lately = Lately::default();
        for k in 0..3 * PAIRS_MAX as u64 {
            let error = if k < 2 * PAIRS_MAX as u64 { 100.0 } else { 0.1 };
            lately.push(10 * k, &[error, -error], &[1.0, 1.0], &[f64::from(k as u32 % 2); VARIABLES_MAX + 1]);
            lately.renew(1.0, 10.0);
        }
        assert!(lately.excess() < 0.1 && lately.starts.len() == PAIRS_MAX, "{}", lately.excess());
        assert!(lately.is_consistent(2, VARIABLES_MAX + 1) && !lately.is_consistent(2, 1));
        assert_eq!(lately.backwards().next().unwrap().start, 10 * (3 * PAIRS_MAX as u64 - 1));
    }
}
