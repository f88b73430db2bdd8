//! State variables that are not numbers on a straight line: angles, categories, and lines that are bent, as points between which distances
//! are Euclidean.
//!
//! ```text
//! real       x itself                                                  (x - x')^2
//! asinh      W asinh((x - C) / S), a line about C and a logarithm far from it
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

/// A bent line: the coordinate of a variable is W asinh((x - C) / S).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bend {
    /// C, in the unit of the coordinate that the kernel is given.
    pub centre: f64,
    /// S, positive, in the same unit: how far from C the line bends.
    pub scale: f64,
    /// W, positive.
    pub width: f64,
}

impl Bend {
    /// The bent coordinate of `x`.
    pub fn at(self, x: f64) -> f64 {
        self.width * ((x - self.centre) / self.scale).asinh()
    }

    /// Its derivative by x, positive.
    pub fn slope(self, x: f64) -> f64 {
        self.width / (self.scale * ((x - self.centre) / self.scale).hypot(1.0))
    }
}

/// What a state variable is.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum StateKind {
    /// A number on a line.
    #[default]
    Real,
    /// A number on a line that the kernel sees bent: one that is far from normal.
    Bent(Bend),
    /// It comes back to the same after this much, positive, in the unit of the coordinate that the kernel is given.
    Periodic(f64),
    /// One of several things that are all equally unlike.
    Category,
}

impl StateKind {
    /// Its coordinate at `x`, where it has one: not on a circle, nor of a category.
    pub fn on_line(self, x: f64) -> Option<f64> {
        match self {
            Self::Real => Some(x),
            Self::Bent(bend) => Some(bend.at(x)),
            Self::Periodic(_) | Self::Category => None,
        }
    }

    /// Whether it is a number on a line, bent or not: directions and linear columns go along such variables alone.
    pub fn is_line(self) -> bool {
        matches!(self, Self::Real | Self::Bent(_))
    }

    /// Whether it is bent.
    pub fn is_bent(&self) -> bool {
        matches!(self, Self::Bent(_))
    }

    /// Whether its numbers are what they have to be.
    pub(crate) fn is_sound(self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        match self {
            Self::Periodic(period) => positive(period),
            Self::Bent(Bend { centre, scale, width }) => centre.is_finite() && positive(scale) && positive(width),
            Self::Real | Self::Category => true,
        }
    }

    /// How far x goes about 0 for its coordinate on a line to go 1: 1 but where it is bent.
    pub fn unit(&self) -> f64 {
        match self {
            Self::Bent(bend) => 1.0 / bend.slope(0.0),
            _ => 1.0,
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real => write!(f, "real"),
            Self::Bent(Bend { centre, scale, width }) => write!(f, "asinh:{centre}:{scale}:{width}"),
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
        let (word, numbers) = text.split_once(':').unwrap_or((text, ""));
        let numbers: Result<Vec<f64>, _> = numbers.split(':').map(str::parse).collect();
        let found = match (word, numbers.as_deref()) {
            ("periodic", Ok(&[period])) => Some(Self::Periodic(period)),
            ("asinh", Ok(&[centre, scale, width])) => Some(Self::Bent(Bend { centre, scale, width })),
            _ => None,
        };
        found.filter(|kind| kind.is_sound()).ok_or_else(|| {
            format!(
                "a kind of state variable is \"real\", \"periodic:P\" with a positive period P, \"asinh:C:S:W\" with positive S and W, or \
                 \"category\", not {:?}",
                text.chars().take(40).collect::<String>()
            )
        })
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
        StateKind::Bent(bend) => (bend.at(x) - bend.at(y)).abs(),
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
    /// To this coordinate, bent or not.
    Line(usize, StateKind),
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
    /// Whether coordinates are the states themselves.
    straight: bool,
}

impl Embedding {
    /// Of states (`dim`,) of these kinds; none for all real.
    pub(super) fn new(kinds: &[StateKind], dim: usize) -> Self {
        let (mut width, mut categories) = (0, 0);
        let place = |d: usize| match kinds.get(d).copied().unwrap_or_default() {
            kind @ (StateKind::Real | StateKind::Bent(_)) => {
                width += 1;
                Place::Line(width - 1, kind)
            }
            StateKind::Periodic(period) => {
                width += 2;
                Place::Circle(width - 2, period)
            }
            StateKind::Category => {
                categories += 1;
                Place::Category(categories - 1)
            }
        };
        let straight = kinds.iter().all(|kind| *kind == StateKind::Real);
        Self { places: (0..dim).map(place).collect(), width, categories, straight }
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
        if self.straight {
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
                    Place::Line(_, kind) => out.extend(kind.on_line(x)),
                    Place::Circle(_, period) => out.extend(on_circle(x, period)),
                    Place::Category(_) => {}
                }
            }
        }
    }

    /// Coordinates (n, E) of `states` (n, D), row-major.
    pub(super) fn all_coordinates<'a>(&self, states: &'a [f64]) -> Cow<'a, [f64]> {
        if self.straight {
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
    use StateKind::{Bent, Category, Periodic, Real};

    const BEND: Bend = Bend { centre: -0.5, scale: 0.25, width: 0.75 };

    #[test]
    fn kinds_read_as_they_are_written() {
        for kind in [Real, Category, Periodic(std::f64::consts::TAU), Periodic(360.0), Bent(BEND)] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let stored = rmp_serde::to_vec_named(&kind).unwrap();
            assert_eq!(rmp_serde::from_slice::<StateKind>(&stored).unwrap(), kind);
        }
        let periods =
            ["periodic", "periodic:", "periodic:0", "periodic:-1", "periodic:inf", "periodic:NaN", "periodic:1:2"];
        let bends = ["asinh", "asinh:0", "asinh:0:1", "asinh:0:0:1", "asinh:0:1:-1", "asinh:inf:1:1", "asinh:0:1:1:1"];
        for bad in periods.into_iter().chain(bends).chain(["", "angle", "real:1"]) {
            assert!(bad.parse::<StateKind>().unwrap_err().contains("periodic:P"), "{bad}");
        }
    }

    #[test]
    fn a_bent_line_is_steep_about_its_centre_and_flat_far_from_it() {
        for x in [-40.0, -0.6, -0.5, 0.0, 2.0, 1e6] {
            let z: f64 = (x + 0.5) / 0.25;
            assert!((BEND.at(x) - 0.75 * (z + (z * z + 1.0).sqrt()).ln()).abs() < 1e-4 * BEND.at(x).abs().max(1e-9));
            let step = 1e-5 * f64::max(1.0, x.abs());
            let slope = (BEND.at(x + step) - BEND.at(x - step)) / (2.0 * step);
            assert!((BEND.slope(x) / slope - 1.0).abs() < 1e-6, "{x}");
        }
        assert_eq!((BEND.at(-0.5), BEND.slope(-0.5)), (0.0, 3.0));
        let embedding = Embedding::new(&[Real, Bent(BEND)], 2);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let (a, b) = (embedding.coordinates(&[3.0, 1.0], &mut left), embedding.coordinates(&[3.0, -2.0], &mut right));
        assert_eq!((a[0], a[1] - b[1]), (3.0, distance(Bent(BEND), 1.0, -2.0)));
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
