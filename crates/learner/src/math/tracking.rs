//! Trackers: small models beside the base that forget at several half-lives at once, the weights that mix them, and the gate that
//! lets the mixture in.
//!
//! The base weighs all its rows alike, so it is right about a world that stays and late about one that drifts. A tracker corrects
//! the base, or stands in for it, on the explicit columns of phi alone, the first q: the constant, and a line along each variable.
//! There are several for each half-life, and a few that step along temporal differences ([`swift`]) where the stream goes on without
//! ends. What each predicted is compared with the return that came ([`losses`]), the weights over them follow from that, and where
//! the mixture has not predicted better than the base for long enough the gate is shut ([`gate`]): then the answer is the base's, to
//! the last bit. docs/mathematics.md (L1) to (L10) derives all of it.
//!
//! A result depends on the order of rows, on discounts and on flags alone.

pub mod gate;
pub mod losses;
pub mod sums;
pub mod swift;

pub use gate::Gate;
pub use losses::Losses;
pub use sums::Sums;
pub use swift::{Swift, Units};

use super::dense::{Matrix, axpy, solve_few};
use super::inflation::horizon;

/// Half-lives that there may be, rows.
pub const HALF_LIVES: [f64; 8] = [1.0, 2.0, 8.0, 32.0, 128.0, 512.0, 2048.0, 8192.0];
/// Ridges of the corrections, in units of the base kernel: what a hundred rows or fewer say is shrunk by the second.
const RIDGES: [f64; 2] = [1.0, 30.0];
/// Trackers of one half-life on one number of columns: a correction with each ridge, and one that stands alone.
const KINDS: usize = RIDGES.len() + 1;
/// Horizon of a critic whose discount is 1, rows.
pub const HORIZON_UNKNOWN: f64 = 100.0;
/// Chains that must have ended before their length says anything, and half-lives in a chain at least.
const ENDS_MIN: u64 = 4;
const CHAINS_MIN: f64 = 2.0;
/// Horizons in a chain with an end, of a stream that goes on nonetheless.
const LONG: f64 = 20.0;

/// Bytes of trackers at most, of H rewards and m features over `explicit` columns and what goes before them, of the start rows that
/// are followed; and of each stream.
pub fn bytes_max(features: usize, explicit: usize, rewards: usize, trials: usize) -> (usize, usize) {
    let (halves, number) = (HALF_LIVES.len(), size_of::<f64>());
    // J q is at most this, whichever half-lives stay, and so is q.
    let most = features.max(halves);
    let columns = explicit.clamp(1, most);
    let sums = features * (most + sums::WAITING_MAX);
    let each = trackers(halves, columns.max(2)) + swift::LAMBDAS.len() + 2;
    let of_steps = swift::LAMBDAS.len() * (columns * (7 + 6 * swift::CHAINS_MAX) + 24 * swift::CHAINS_MAX);
    let of_rewards = rewards * (each * (3 * each + columns + 24) + trials * (each + 4) + of_steps);
    (number * (2 * sums + of_rewards), number * (features + columns + 2 * rewards + 16))
}

/// Which trackers there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Half-lives, rows, ascending; none where nothing can be tracked.
    pub half_lives: Vec<f64>,
    /// Columns q that they use, the first of phi.
    pub columns: usize,
    /// Whether the stream goes on: its chains have no ends to speak of, so that its next rows are the world, and not a trajectory.
    pub goes_on: bool,
    /// Units of the trackers that step along temporal differences; none where there are none.
    pub units: Option<Units>,
}

impl Plan {
    /// Of a critic with this `discount` whose refit saw `rows` rows with `ends` ends of chains, and whose m `features` begin with
    /// `explicit` explicit ones.
    ///
    /// ```text
    /// h >= horizon   unless discount = 0         h <= rows         h >= 2 rows / ends   from 4 ends on, unless discount = 0
    /// ```
    /// A tracker of shorter half-life would follow the trajectory, and not the world. Where they would take more than the base's m^2
    /// a row, every second half-life goes, then all columns but the constant.
    pub fn new(discount: f64, rows: u64, ends: u64, explicit: usize, features: usize) -> Self {
        let count = rows as f64;
        let chain = if ends >= ENDS_MIN { CHAINS_MIN * count / ends as f64 } else { 0.0 };
        let least = if discount == 0.0 { 0.0 } else { horizon(discount, HORIZON_UNKNOWN).max(chain) };
        let fits = |h: &f64| *h >= least && *h <= count;
        let all: Vec<f64> = HALF_LIVES.into_iter().filter(fits).collect();
        let every_second = || HALF_LIVES.into_iter().skip(1).step_by(2).filter(fits).collect::<Vec<f64>>();
        let is_cheap =
            |half_lives: &[f64], columns: usize| half_lives.len() * columns <= features.max(HALF_LIVES.len());
        let some = every_second();
        let (half_lives, columns) = if is_cheap(&all, explicit) {
            (all, explicit)
        } else if is_cheap(&some, explicit) {
            (some, explicit)
        } else {
            (all, 1)
        };
        let long = ends == 0 || ends < ENDS_MIN && count >= ends as f64 * LONG * horizon(discount, HORIZON_UNKNOWN);
        Self { half_lives, columns, goes_on: discount > 0.0 && discount < 1.0 && long, units: None }
    }

    /// With trackers that step along temporal differences in these units, where the stream goes on.
    pub fn stepping(self, units: Units) -> Self {
        let columns = units.columns.get(..self.columns).map(<[f64]>::to_vec);
        let units = columns.filter(|_| self.goes_on).map(|columns| Units { columns, ..units });
        Self { units, ..self }
    }

    /// Whether there is nothing to track with.
    pub fn is_empty(&self) -> bool {
        self.half_lives.is_empty() || self.columns == 0
    }

    /// Trackers in all.
    pub fn trackers(&self) -> usize {
        trackers(self.half_lives.len(), self.columns) + self.steps()
    }

    /// Those that step along temporal differences: the last ones.
    pub fn steps(&self) -> usize {
        self.units.as_ref().map_or(0, |_| swift::LAMBDAS.len())
    }
}

/// Trackers of `half_lives` half-lives on q columns: on the constant alone, and on all q where those are more.
fn trackers(half_lives: usize, columns: usize) -> usize {
    half_lives * KINDS * if columns > 1 { 2 } else { 1 }
}

/// Scratch of a solution.
#[derive(Clone, Debug, Default)]
pub struct Work {
    system: Matrix,
    normal: Matrix,
}

/// The weights c of all trackers of one reward, and what they make of a state.
///
/// Column k belongs to tracker k: half-life by half-life, the constant before all columns, corrections before the one alone; behind
/// them those that step.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Trackers {
    /// (q, K); zero beyond the columns that a tracker uses.
    #[serde(serialize_with = "super::dense::tight")]
    coefficients: Matrix,
    /// What the mixture adds to the base: weights on the explicit columns (q,), and the share of those trackers that stand alone.
    #[serde(with = "super::raw")]
    blend: Vec<f64>,
    alone: f64,
    /// Number of the trackers that step.
    #[serde(default)]
    steps: u64,
}

impl Trackers {
    /// That say nothing yet: corrections of 0, and of the trackers alone a value of 0.
    pub fn new(plan: &Plan) -> Self {
        let coefficients = Matrix::zeros(plan.columns, plan.trackers());
        Self { coefficients, blend: vec![0.0; plan.columns], alone: 0.0, steps: plan.steps() as u64 }
    }

    /// Their number K.
    pub fn len(&self) -> usize {
        self.coefficients.cols()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether tracker `k` stands alone, and does not correct the base.
    fn stands_alone(&self, k: usize) -> bool {
        k % KINDS == KINDS - 1 || k >= self.len() - self.steps as usize
    }

    /// Those that step are here now; `weights` (K + 1,) are the mixture's, the base's first.
    pub fn follow(&mut self, steps: &[Swift], weights: &[f64]) {
        let first = self.len() - self.steps as usize;
        for (k, swift) in (first..).zip(steps) {
            let (column, weight) = (self.coefficients.col_mut(k), weights[1 + k]);
            axpy(&mut self.blend, -weight, column);
            swift.coefficients_into(column);
            axpy(&mut self.blend, weight, column);
        }
    }

    /// Solve for the trackers of half-life number `j` and reward number `h`, (L3) and (L4):
    /// ```text
    /// B = A + kappa I        c = (B'B + kappa^2 I)^-1 B' v        A = M[:, :k]
    /// v = p - M u, kappa = 1 and 30        corrections             v = p, kappa = ridge (k = 1), max(1, ridge)        alone
    /// ```
    /// `ridge` is the base's, positive. A is indefinite where lambda is below 1, so that (A + kappa I)^-1 v is not safe. A system
    /// that is not finite leaves zeros.
    pub fn solve(&mut self, sums: &Sums, j: usize, h: usize, ridge: f64, work: &mut Work) {
        let q = self.coefficients.rows();
        let mut first = j * trackers(1, q);
        for k in [Some(1), (q > 1).then_some(q)].into_iter().flatten() {
            let alone = if k == 1 { ridge } else { ridge.max(1.0) };
            for (kind, kappa) in RIDGES.into_iter().chain([alone]).enumerate() {
                let response = if kind < RIDGES.len() { sums.residual(j, h) } else { sums.response(j, h) };
                let column = self.coefficients.col_mut(first + kind);
                work.solve(sums, j, kappa, &response[..k], &mut column[..k]);
            }
            first += KINDS;
        }
    }

    /// out (K,) <- what each of them predicts at a state whose features begin with phi (q,) and whose base value this is.
    pub fn predict(&self, features: &[f64], base: f64, out: &mut [f64]) {
        let explicit = &features[..self.coefficients.rows()];
        for (k, value) in out.iter_mut().enumerate() {
            let correction = inner(self.coefficients.col(k), explicit);
            *value = if self.stands_alone(k) { correction } else { base + correction };
        }
    }

    /// Mix them by these weights (K + 1,), the base's first, from here on.
    pub fn blend(&mut self, weights: &[f64]) {
        self.alone = 0.0;
        self.blend.fill(0.0);
        for (k, &weight) in weights[1..].iter().enumerate() {
            self.blend.iter_mut().zip(self.coefficients.col(k)).for_each(|(to, c)| *to += weight * c);
            if self.stands_alone(k) {
                self.alone += weight;
            }
        }
    }

    /// What the mixture adds to the base value at a state whose features begin with phi (q,).
    pub fn addition(&self, features: &[f64], base: f64) -> f64 {
        inner(&self.blend, &features[..self.blend.len()]) - self.alone * base
    }

    /// u (m,) <- the weights of base + `opening` (mixture - base), where u are the base's; `opening` is above 0.
    pub fn admit(&self, opening: f64, u: &mut [f64]) {
        u.iter_mut().for_each(|u| *u *= 1.0 - opening * self.alone);
        axpy(&mut u[..self.blend.len()], opening, &self.blend);
    }

    /// How far apart base and trackers are at a state whose features begin with phi (q,) and whose base value this is, value^2: the
    /// variance of their values under these weights (K + 1,), the base's first.
    pub fn scatter(&self, weights: &[f64], features: &[f64], base: f64) -> f64 {
        let (explicit, mean) = (&features[..self.blend.len()], self.addition(features, base));
        let square = |(k, weight): (usize, &f64)| {
            let apart = inner(self.coefficients.col(k), explicit) - if self.stands_alone(k) { base } else { 0.0 };
            weight * (apart - mean).powi(2)
        };
        weights[0] * mean * mean + weights[1..].iter().enumerate().map(square).sum::<f64>()
    }

    /// out (m, m) <- out + `share` times the same as a form of phi (m,), where the base's weights are u (m,):
    /// ```text
    /// sum of w_k d_k d_k' - d d'        d_k = (c_k, 0) - u where the tracker stands alone        d = sum of w_k d_k
    /// ```
    pub fn add_scatter(&self, weights: &[f64], u: &[f64], share: f64, out: &mut Matrix) {
        let q = self.blend.len();
        let mut lone = vec![0.0; q];
        for (k, weight) in weights[1..].iter().enumerate() {
            let c = self.coefficients.col(k);
            (0..q).for_each(|j| axpy(&mut out.col_mut(j)[..q], share * weight * c[j], c));
            if self.stands_alone(k) {
                axpy(&mut lone, *weight, c);
            }
        }
        // With t of weight alone, (c_k, 0) (-u)' of those is -lone u', and the mean's share of it blend (t u)'.
        let mut mixed = vec![0.0; u.len()];
        mixed[..q].iter_mut().zip(&self.blend).zip(&lone).for_each(|((mixed, b), l)| *mixed = self.alone * b - l);
        let squared = self.alone * (1.0 - self.alone);
        for (j, &u_j) in u.iter().enumerate() {
            let column = out.col_mut(j);
            axpy(column, share * u_j, &mixed);
            axpy(column, share * (mixed[j] + squared * u_j), u);
            if let Some(&b) = self.blend.get(j) {
                axpy(&mut column[..q], -share * b, &self.blend);
            }
        }
    }

    /// Whether its parts fit q columns and K trackers, of which `steps` step.
    pub(crate) fn is_consistent(&self, columns: usize, count: usize, steps: usize) -> bool {
        (self.coefficients.rows(), self.coefficients.cols(), self.blend.len()) == (columns, count, columns)
            && self.steps == steps as u64
            && steps <= count
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.coefficients.bytes() + size_of_val(&self.blend[..])
    }
}

impl Work {
    /// out (k,) <- (B'B + kappa^2 I)^-1 B' v of half-life number `j`, v (k,).
    fn solve(&mut self, sums: &Sums, j: usize, kappa: f64, v: &[f64], out: &mut [f64]) {
        let k = v.len();
        self.system.renew(k, k);
        for (l, out) in out.iter_mut().enumerate() {
            self.system.col_mut(l).copy_from_slice(&sums.corner(j, l)[..k]);
            *self.system.at_mut(l, l) += kappa;
            *out = inner(self.system.col(l), v);
        }
        self.normal.renew(k, k);
        for l in 0..k {
            for i in l..k {
                *self.normal.at_mut(i, l) = inner(self.system.col(i), self.system.col(l));
            }
            *self.normal.at_mut(l, l) += kappa * kappa;
        }
        let found = solve_few(&mut self.normal, out);
        if found.is_err() || !out.iter().all(|c| c.is_finite()) {
            out.fill(0.0);
        }
    }
}

/// a'b of a few numbers: to choose the registers for many would take longer.
fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_lives_suit_horizon_rows_and_chains() {
        let half_lives = |discount, rows, ends| Plan::new(discount, rows, ends, 5, 100).half_lives;
        assert_eq!(half_lives(0.0, 600, 600), [1.0, 2.0, 8.0, 32.0, 128.0, 512.0]);
        assert_eq!(half_lives(0.99, 100_000, 0), [128.0, 512.0, 2048.0, 8192.0]);
        assert_eq!(half_lives(1.0, 1000, 3), [128.0, 512.0]);
        // Two chains of 500 rows.
        assert_eq!(half_lives(0.9, 10_000, 20), [2048.0, 8192.0]);
        assert!(Plan::new(0.999, 700, 0, 5, 100).is_empty());
    }

    #[test]
    fn parts_of_a_mixture_differ_by_the_variance_of_what_they_predict() {
        let units = Units { columns: vec![1.0; 2], rewards: vec![1.0] };
        let plan = Plan { half_lives: vec![8.0], columns: 2, goes_on: true, units: None };
        let mut trackers = Trackers::new(&plan.stepping(units));
        let weights = [0.3, 0.1, 0.05, 0.1, 0.15, 0.05, 0.05, 0.05, 0.05, 0.1];
        for k in 0..trackers.len() {
            trackers.coefficients.col_mut(k).copy_from_slice(&[0.3 * k as f64 - 1.0, 0.5 - 0.2 * k as f64]);
        }
        trackers.blend(&weights);
        let (u, features) = ([0.7, -0.4, 1.3], [1.1, 0.6, -0.9]);
        let base = inner(&u, &features);
        let mut predicted = vec![base];
        predicted.resize(weights.len(), 0.0);
        trackers.predict(&features, base, &mut predicted[1..]);
        let mean = inner(&weights, &predicted);
        assert!((base + trackers.addition(&features, base) - mean).abs() < 1e-12);
        let variance = weights.iter().zip(&predicted).map(|(w, v)| w * (v - mean).powi(2)).sum::<f64>();
        assert!((trackers.scatter(&weights, &features, base) - variance).abs() < 1e-12);
        let mut form = Matrix::zeros(3, 3);
        trackers.add_scatter(&weights, &u, 0.25, &mut form);
        let of: f64 = (0..3).map(|j| features[j] * inner(form.col(j), &features)).sum();
        assert!(
            (of - 0.25 * variance).abs() < 1e-12 && (form.at(0, 2) - form.at(2, 0)).abs() < 1e-15,
            "{of}, {variance}"
        );
    }

    #[test]
    fn trackers_take_no_more_than_the_base() {
        let wide = Plan::new(0.0, 100_000, 0, 33, 100);
        assert_eq!((wide.columns, wide.half_lives.len()), (1, 8));
        let some = Plan::new(0.0, 100_000, 0, 15, 100);
        assert_eq!((some.columns, &some.half_lives[..]), (15, &[2.0, 32.0, 512.0, 8192.0][..]));
        let all = Plan::new(0.99, 100_000, 0, 15, 100);
        assert_eq!((all.columns, all.half_lives.len(), all.trackers()), (15, 4, 24));
        // With a few elements alone as well.
        assert_eq!(Plan::new(0.0, 100_000, 0, 5, 3).columns, 1);
    }
}
