//! Linear processes whose true values are sums of closed forms, in any number of variables and of many kinds.
//!
//! ```text
//! x' = a x + sqrt(1 - a^2) e,  e ~ N(0, I), begun at N(0, I);   r = sum of terms of x + noise
//! x_t given x_0 = x is N(a^t x, (1 - a^2t) I), so that the mean of each term t steps ahead is known; V = sum of gamma^t of these
//! wave   c sin(w'x + p)                     c exp(-w'w s^2 / 2) sin(a^t w'x + p)                          s^2 = 1 - a^2t
//! step   c if u'x > h, |u| = 1              c Phi((a^t u'x - h) / s)
//! bump   c exp(-|x - m|^2 / 2 w^2)          c (w^2 / (w^2 + s^2))^(D/2) exp(-|a^t x - m|^2 / 2 (w^2 + s^2))
//! ```
//! What is observed is x, or a distortion of each variable that can be undone.

use super::Step;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Streams by name: what each is there to try stands at [`Linear::named`].
pub const NAMES: [&str; 12] = [
    "waves",
    "noisy",
    "wall",
    "spot",
    "irrelevant",
    "oblique",
    "directions",
    "lognormal",
    "units",
    "heavy",
    "slow",
    "exact",
];
/// Steps ahead after which what is left of a value is less than this share of it.
const LEFT: f64 = 1e-7;

/// A part of the reward.
#[derive(Clone, Debug)]
enum Term {
    Wave { size: f64, along: Vec<f64>, phase: f64 },
    Step { size: f64, along: Vec<f64>, at: f64 },
    Bump { size: f64, centre: Vec<f64>, width: f64 },
}

/// How a variable is observed.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// Times a unit.
    In(f64),
    /// exp(x).
    Exp,
    /// x^3.
    Cubed,
}

impl Seen {
    fn of(self, x: f64) -> f64 {
        match self {
            Self::In(unit) => unit * x,
            Self::Exp => x.exp(),
            Self::Cubed => x.powi(3),
        }
    }
}

/// A stream.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Discount of the values that are sought.
    pub discount: f64,
    carry: f64,
    terms: Vec<Term>,
    seen: Vec<Seen>,
    noise: f64,
    heavy: bool,
    limit: u64,
    rng: ChaCha8Rng,
    x: Vec<f64>,
    seq: u64,
}

impl Linear {
    /// The stream of this name; none if there is none of it.
    ///
    /// `waves`: three waves over two variables. `noisy`: the same, with three times the noise. `wall`: a step. `spot`: a narrow bump.
    /// `irrelevant`: two of eight variables matter. `oblique`: a wave along one direction through six variables. `directions`: two of
    /// them. `lognormal`: variables that are far from normal. `units`: of many units. `heavy`: noise of Student's t with three
    /// degrees of freedom. `slow`: one endless chain, discount 0.99. `exact`: no noise of rewards.
    pub fn named(name: &str, seed: u64) -> Option<Self> {
        let wave = |size: f64, along: &[f64], phase: f64| Term::Wave { size, along: along.to_vec(), phase };
        let waves = vec![wave(1.0, &[1.5, 0.7], 0.3), wave(0.7, &[-0.8, 2.0], 1.1), wave(0.5, &[2.5, 2.2], 2.0)];
        let plain = |dim: usize, terms: Vec<Term>| Self {
            discount: 0.95,
            carry: 0.9,
            terms,
            seen: vec![Seen::In(1.0); dim],
            noise: 0.5,
            heavy: false,
            limit: 100,
            rng: ChaCha8Rng::seed_from_u64(seed),
            x: Vec::new(),
            seq: 0,
        };
        let mut two = plain(2, waves.clone());
        let out = match name {
            "waves" => two,
            "noisy" => Self { noise: 1.5, ..two },
            "wall" => {
                two.terms = vec![Term::Step { size: 2.0, along: vec![0.6, 0.8], at: 0.3 }, wave(0.5, &[1.0, 0.5], 0.0)];
                two
            }
            "spot" => {
                let bump = Term::Bump { size: 3.0, centre: vec![0.7, -0.5], width: 0.25 };
                Self { carry: 0.97, terms: vec![bump, wave(0.5, &[0.8, 0.4], 0.5)], ..two }
            }
            "irrelevant" => {
                let along = |a: f64, b: f64| [&[a, b][..], &[0.0; 6]].concat();
                plain(8, vec![wave(1.0, &along(1.5, 0.7), 0.3), wave(0.7, &along(-0.8, 2.0), 1.1)])
            }
            "oblique" => plain(6, vec![wave(1.0, &[0.9, -0.8, 0.7, 0.9, -0.6, 0.8], 0.4)]),
            "directions" => {
                let first = wave(1.0, &[1.2, -1.0, 0.8, 0.0, 0.5, 0.0, 0.3, 0.0], 0.4);
                plain(8, vec![first, wave(0.7, &[0.0, 0.5, 1.0, 1.2, -0.7, 0.9, 0.0, 0.4], 1.4)])
            }
            "lognormal" => {
                let terms = vec![wave(1.0, &[1.2, 0.0, 0.9, 0.0], 0.3), wave(0.7, &[0.0, 1.5, 0.0, 1.0], 1.1)];
                Self { seen: vec![Seen::Exp, Seen::Exp, Seen::Cubed, Seen::In(1.0)], ..plain(4, terms) }
            }
            "units" => {
                let terms = vec![wave(1.0, &[1.2, 0.0, 0.9], 0.3), wave(0.7, &[0.0, 1.5, 1.0], 1.1)];
                Self { seen: vec![Seen::In(1e-3), Seen::In(1.0), Seen::In(1e3)], ..plain(3, terms) }
            }
            "heavy" => Self { heavy: true, noise: 0.7, ..two },
            "slow" => Self { discount: 0.99, carry: 0.97, limit: u64::MAX, ..two },
            "exact" => Self { noise: 0.0, ..two },
            _ => return None,
        };
        Some(out)
    }

    /// Number of state variables.
    pub fn dim(&self) -> usize {
        self.seen.len()
    }

    /// The next transition.
    pub fn step(&mut self) -> Step {
        let dim = self.dim();
        if self.x.is_empty() {
            self.x = (0..dim).map(|_| normal(&mut self.rng)).collect();
        }
        let state = self.observed(&self.x);
        let mut noise = self.noise * normal(&mut self.rng);
        if self.heavy {
            let squares: f64 = (0..3).map(|_| normal(&mut self.rng).powi(2)).sum();
            noise /= (squares / 3.0).sqrt();
        }
        let reward = self.terms.iter().map(|term| term.ahead(&self.x, 1.0)).sum::<f64>() + noise;
        let (carry, left) = (self.carry, (1.0 - self.carry * self.carry).sqrt());
        for x in &mut self.x {
            *x = carry * *x + left * normal(&mut self.rng);
        }
        let next_state = self.observed(&self.x);
        self.seq += 1;
        let truncated = self.limit != u64::MAX && self.seq.is_multiple_of(self.limit);
        if truncated {
            self.x.clear();
        }
        Step { seq: self.seq - 1, state, action: 0.0, reward, next_state, terminated: false, truncated }
    }

    fn observed(&self, x: &[f64]) -> Vec<f64> {
        x.iter().zip(&self.seen).map(|(x, seen)| seen.of(*x)).collect()
    }

    /// `count` states as they are visited, row-major, with their values.
    pub fn truth(&self, count: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let (mut rng, mut states, mut values) = (ChaCha8Rng::seed_from_u64(seed ^ 0x7247), Vec::new(), Vec::new());
        for _ in 0..count {
            let x: Vec<f64> = (0..self.dim()).map(|_| normal(&mut rng)).collect();
            states.extend(self.observed(&x));
            let (mut weight, mut carried, mut value) = (1.0, 1.0, 0.0);
            while weight > LEFT {
                value += weight * self.terms.iter().map(|term| term.ahead(&x, carried)).sum::<f64>();
                (weight, carried) = (weight * self.discount, carried * self.carry);
            }
            values.push(value);
        }
        (states, values)
    }
}

impl Term {
    /// Its mean where the state is N(c x, (1 - c^2) I).
    fn ahead(&self, x: &[f64], c: f64) -> f64 {
        let spread = 1.0 - c * c;
        let dot = |along: &[f64]| along.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        match self {
            Self::Wave { size, along, phase } => {
                let square = along.iter().map(|w| w * w).sum::<f64>();
                size * (-0.5 * square * spread).exp() * (c * dot(along) + phase).sin()
            }
            Self::Step { size, along, at } => size * below((c * dot(along) - at) / spread.sqrt()),
            Self::Bump { size, centre, width } => {
                let (wide, dim) = (width * width + spread, x.len() as f64);
                let apart: f64 = x.iter().zip(centre).map(|(x, m)| (c * x - m).powi(2)).sum();
                size * (width * width / wide).powf(0.5 * dim) * (-0.5 * apart / wide).exp()
            }
        }
    }
}

/// A standard normal number.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Share of a standard normal variable below z, to 1e-7 (Abramowitz and Stegun, 26.2.17).
fn below(z: f64) -> f64 {
    if z.is_nan() {
        return 0.5;
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let tail = series.iter().fold(0.0, |sum, c| (sum + c) * t);
    let tail = tail * (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    if z >= 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_mean_of_returns() {
        for name in NAMES {
            let stream = Linear::named(name, 1).unwrap();
            let (_, values) = stream.truth(3, 5);
            let mut rng = ChaCha8Rng::seed_from_u64(5 ^ 0x7247);
            for value in values {
                let x: Vec<f64> = (0..stream.dim()).map(|_| normal(&mut rng)).collect();
                let runs = 400;
                let returns: Vec<f64> = (0..runs).map(|run| one_return(&stream, &x, run)).collect();
                let mean = returns.iter().sum::<f64>() / runs as f64;
                let variance = returns.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / runs as f64;
                let error = (mean - value) / (variance / runs as f64).sqrt();
                assert!(error.abs() < 4.5, "{name}: {mean} for {value}, {error} standard errors");
            }
        }
        assert!(Linear::named("unknown", 1).is_none());
    }

    /// A return from x, noise of rewards left out.
    fn one_return(stream: &Linear, x: &[f64], run: u64) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(run);
        let (mut x, mut weight, mut total) = (x.to_vec(), 1.0, 0.0);
        let left = (1.0 - stream.carry * stream.carry).sqrt();
        while weight > 1e-4 {
            total += weight * stream.terms.iter().map(|term| term.ahead(&x, 1.0)).sum::<f64>();
            weight *= stream.discount;
            x.iter_mut().for_each(|x| *x = stream.carry * *x + left * normal(&mut rng));
        }
        total
    }
}
