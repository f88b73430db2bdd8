//! State variables that are no numbers on a line: angles and categories, as points between which distances are Euclidean.
//!
//! ```text
//! real       x itself                                                  (x - x')^2
//! periodic   (cos, sin) of 2 pi x / P, a point on the unit circle      4 sin^2(pi (x - x') / P)
//! category   a unit vector for each value that occurs                  2 where x and x' differ, 0 where they are equal
//! ```
//! A variable has one relevance, whatever it is embedded in, so that a kernel stays a kernel (its profile is positive definite
//! in any dimension): with a Gaussian profile and relevance 1 / l^2 a periodic variable enters as
//! exp(-2 sin^2(pi (x - x') / P) / l^2). Unit vectors of categories are never written down: what values there are need not be
//! known. Two values are the same category if they are equal as numbers, exactly.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;

/// What a state variable is.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum StateKind {
    /// A number on a line.
    #[default]
    Real,
    /// It comes back to the same after this much, positive, in the unit of the coordinate that the kernel is given.
    Periodic(f64),
    /// One of several things that are all equally unlike.
    Category,
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real => write!(f, "real"),
            Self::Periodic(period) => write!(f, "periodic:{period}"),
            Self::Category => write!(f, "category"),
        }
    }
}

impl FromStr for StateKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "real" => return Ok(Self::Real),
            "category" => return Ok(Self::Category),
            _ => {}
        }
        let period = text.strip_prefix("periodic:").and_then(|period| period.parse::<f64>().ok());
        match period.filter(|period| period.is_finite() && *period > 0.0) {
            Some(period) => Ok(Self::Periodic(period)),
            None => Err(format!(
                "a kind of state variable is \"real\", \"periodic:P\" with a positive period P, or \"category\", not {:?}",
                text.chars().take(40).collect::<String>()
            )),
        }
    }
}

stored_as_text!(StateKind);

/// The point of the unit circle where a variable of this period stands.
pub(super) fn on_circle(x: f64, period: f64) -> [f64; 2] {
    let turns = x / period;
    // Whole turns off first: their rounding would be the angle's.
    let (sin, cos) = (TAU * (turns - turns.round())).sin_cos();
    [cos, sin]
}

/// Distance of two values of one variable, in embedded coordinates.
pub(crate) fn distance(kind: StateKind, x: f64, y: f64) -> f64 {
    match kind {
        StateKind::Real => (x - y).abs(),
        StateKind::Periodic(period) => {
            let turns = (x - y) / period;
            2.0 * (0.5 * TAU * (turns - turns.round())).sin().abs()
        }
        StateKind::Category if x == y => 0.0,
        StateKind::Category => std::f64::consts::SQRT_2,
    }
}

/// Where a state variable goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// To this coordinate.
    Line(usize),
    /// To this coordinate and the next, with this period.
    Circle(usize, f64),
    /// Among the categories, to this one.
    Category(usize),
}

/// States (D,) as embedded coordinates (E,), without relevances, and categories (C,).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Embedding {
    places: Vec<Place>,
    width: usize,
    categories: usize,
}

impl Embedding {
    /// Of states (`dim`,) of these kinds; none for all real.
    pub(super) fn new(kinds: &[StateKind], dim: usize) -> Self {
        let (mut width, mut categories) = (0, 0);
        let place = |d: usize| match kinds.get(d) {
            None | Some(StateKind::Real) => {
                width += 1;
                Place::Line(width - 1)
            }
            Some(&StateKind::Periodic(period)) => {
                width += 2;
                Place::Circle(width - 2, period)
            }
            Some(StateKind::Category) => {
                categories += 1;
                Place::Category(categories - 1)
            }
        };
        Self { places: (0..dim).map(place).collect(), width, categories }
    }

    /// Where each state variable goes (D,).
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// E.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// C.
    pub(super) fn categories(&self) -> usize {
        self.categories
    }

    /// Coordinates (E,) of `state` (D,).
    pub(super) fn coordinates<'a>(&self, state: &'a [f64], memory: &'a mut Vec<f64>) -> &'a [f64] {
        if self.width == state.len() && self.categories == 0 {
            return state;
        }
        memory.clear();
        self.coordinates_into(state, memory);
        memory
    }

    fn coordinates_into(&self, states: &[f64], out: &mut Vec<f64>) {
        for state in states.chunks_exact(self.places.len()) {
            for (place, &x) in self.places.iter().zip(state) {
                match *place {
                    Place::Line(_) => out.push(x),
                    Place::Circle(_, period) => out.extend(on_circle(x, period)),
                    Place::Category(_) => {}
                }
            }
        }
    }

    /// Coordinates (n, E) of `states` (n, D), row-major.
    pub(super) fn all_coordinates<'a>(&self, states: &'a [f64]) -> Cow<'a, [f64]> {
        if self.width == self.places.len() && self.categories == 0 {
            return Cow::Borrowed(states);
        }
        let mut out = Vec::with_capacity(states.len() / self.places.len() * self.width);
        self.coordinates_into(states, &mut out);
        Cow::Owned(out)
    }

    /// The values of each category (C, n), one category after the other.
    pub(super) fn all_categories(&self, states: &[f64]) -> Vec<Vec<f64>> {
        let dim = self.places.len();
        self.category_variables().map(|d| states.iter().skip(d).step_by(dim).copied().collect()).collect()
    }

    /// Numbers of the state variables that are categories.
    pub(super) fn category_variables(&self) -> impl Iterator<Item = usize> {
        let place = |(d, place): (usize, &Place)| matches!(place, Place::Category(_)).then_some(d);
        self.places.iter().enumerate().filter_map(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StateKind::{Category, Periodic, Real};

    #[test]
    fn kinds_read_as_they_are_written() {
        for kind in [Real, Category, Periodic(std::f64::consts::TAU), Periodic(360.0)] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let stored = rmp_serde::to_vec_named(&kind).unwrap();
            assert_eq!(rmp_serde::from_slice::<StateKind>(&stored).unwrap(), kind);
        }
        for bad in ["", "periodic", "periodic:", "periodic:0", "periodic:-1", "periodic:inf", "periodic:NaN", "angle"] {
            assert!(bad.parse::<StateKind>().unwrap_err().contains("periodic:P"), "{bad}");
        }
    }

    #[test]
    fn distances_are_those_of_the_embedding() {
        let embedding = Embedding::new(&[Real, Periodic(4.0), Category], 3);
        assert_eq!((embedding.width(), embedding.categories()), (3, 1));
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for k in 0..200 {
            let x = [f64::from(k) * 0.3, f64::from(k) * 1.7 - 100.0, f64::from(k % 3)];
            let y = [2.0, f64::from(k) * 0.9, 1.0];
            let (a, b) = (embedding.coordinates(&x, &mut left), embedding.coordinates(&y, &mut right));
            let circle = (a[1] - b[1]).hypot(a[2] - b[2]);
            assert!((circle - distance(Periodic(4.0), x[1], y[1])).abs() < 1e-14);
            let sine = 2.0 * (std::f64::consts::PI * (x[1] - y[1]) / 4.0).sin().abs();
            assert!((circle - sine).abs() < 1e-12);
            assert_eq!((a[0] - b[0]).abs(), distance(Real, x[0], y[0]));
            let apart = if k % 3 == 1 { 0.0 } else { 2f64.sqrt() };
            assert_eq!(distance(Category, x[2], y[2]), apart);
        }
    }
}
