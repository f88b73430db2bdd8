//! Explicit columns: features that are given functions of the state and stand before a dictionary's.
//!
//! ```text
//! V(x) = sum_j beta_j f_j(x) + what the dictionary spans,      beta_j ~ N(0, s_j) a priori              docs/mathematics.md (K6)
//! k_m(x) = (s_1 f_1(x), ..., s_q f_q(x), k(d_1, x), ..., k(d_m, x)),      L = diag(sqrt(s)) and the factor of the elements
//! ```
//! A coefficient beta_j is to them what the value V(d_i) is to an element: its covariance with V(x) is s_j f_j(x), its variance s_j,
//! and it is independent of all that the dictionary spans. So features phi = L^-1 k_m begin with sqrt(s_j) f_j(x), and weights,
//! variances and snapshots need no second form. Columns are exact, are there from the first row on and admit nothing.

use super::embedding::{StateKind, on_circle};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a bounded variable stops, in its coordinate: deviations from the mean of the rows that the inputs are normalised by. Rows of a
/// world that stays are hardly ever farther, and what a sensor that fails shows says nothing of how a line goes on.
pub const BOUND: f64 = 4.0;

/// A given function of a state, in the coordinates that the kernel is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum GivenFunction {
    /// 1.
    Constant,
    /// The variable of this number, which is real, or bent: then as it is before it is bent.
    Linear(usize),
    /// The same, no farther from 0 than [`BOUND`].
    Bounded(usize),
    /// The cosine of a periodic variable.
    Cosine(usize),
    /// Its sine.
    Sine(usize),
}

impl fmt::Display for GivenFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => write!(f, "constant"),
            Self::Linear(d) => write!(f, "linear:{d}"),
            Self::Bounded(d) => write!(f, "bounded:{d}"),
            Self::Cosine(d) => write!(f, "cosine:{d}"),
            Self::Sine(d) => write!(f, "sine:{d}"),
        }
    }
}

impl FromStr for GivenFunction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, number) = text.split_once(':').unwrap_or((text, ""));
        let found = match (kind, number.parse()) {
            ("constant", Err(_)) if text == kind => Some(Self::Constant),
            ("linear", Ok(d)) => Some(Self::Linear(d)),
            ("bounded", Ok(d)) => Some(Self::Bounded(d)),
            ("cosine", Ok(d)) => Some(Self::Cosine(d)),
            ("sine", Ok(d)) => Some(Self::Sine(d)),
            _ => None,
        };
        found.ok_or_else(|| {
            format!(
                "a column is \"constant\", or \"linear:D\", \"bounded:D\", \"cosine:D\" or \"sine:D\" of state variable D, not {:?}",
                text.chars().take(40).collect::<String>()
            )
        })
    }
}

stored_as_text!(GivenFunction);

impl GivenFunction {
    /// Whether it is the same for all states.
    pub fn is_constant(self) -> bool {
        self == Self::Constant
    }

    /// Whether it goes with one variable.
    pub fn is_linear(self) -> bool {
        !self.is_constant()
    }

    /// The variable that it is a function of; none for the constant.
    pub fn variable(self) -> Option<usize> {
        match self {
            Self::Constant => None,
            Self::Linear(d) | Self::Bounded(d) | Self::Cosine(d) | Self::Sine(d) => Some(d),
        }
    }
}

/// A given function and the prior variance of its coefficient.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GivenColumn {
    /// f.
    pub function: GivenFunction,
    /// s, positive, value^2.
    pub variance: f64,
}

/// As epochs of fleets have been hashed from it ([`Model::epoch`](crate::model::Model::epoch)), whatever the type is called.
impl fmt::Debug for GivenColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column").field("function", &self.function).field("variance", &self.variance).finish()
    }
}

impl GivenColumn {
    /// The constant with prior variance `constant` (none for 0), and with `linear` each coordinate of states (`dim`,) of these kinds (none for
    /// all real): a real or bent variable itself, as `line` has it, of a periodic one cosine and sine, of a category nothing, since its values
    /// have no order.
    pub fn constant_and_linear(
        constant: f64,
        linear: f64,
        line: fn(usize) -> GivenFunction,
        kinds: &[StateKind],
        dim: usize,
    ) -> Vec<Self> {
        let mut out = Vec::with_capacity(1 + dim);
        if constant > 0.0 {
            out.push(Self { function: GivenFunction::Constant, variance: constant });
        }
        for d in 0..dim {
            let functions: &[GivenFunction] = match kinds.get(d).copied().unwrap_or_default() {
                StateKind::Real | StateKind::Bent(_) => &[line(d)],
                StateKind::Periodic(_) => &[GivenFunction::Cosine(d), GivenFunction::Sine(d)],
                StateKind::Category => &[],
            };
            out.extend(functions.iter().map(|&function| Self { function, variance: linear }));
        }
        out
    }

    /// f at a state (D,) whose variables are of these kinds; none for all real.
    pub fn value(&self, state: &[f64], kinds: &[StateKind]) -> f64 {
        let circle = |d: usize| match kinds.get(d) {
            Some(&StateKind::Periodic(period)) => on_circle(state[d], period),
            _ => unreachable!("a period is asked of columns where they are read"),
        };
        match self.function {
            GivenFunction::Constant => 1.0,
            GivenFunction::Linear(d) => state[d],
            GivenFunction::Bounded(d) => state[d].clamp(-BOUND, BOUND),
            GivenFunction::Cosine(d) => circle(d)[0],
            GivenFunction::Sine(d) => circle(d)[1],
        }
    }

    /// Derivative of f by variable `d` at a state (D,).
    pub fn slope(&self, d: usize, state: &[f64], kinds: &[StateKind]) -> f64 {
        let turn = |period: f64| std::f64::consts::TAU / period;
        match (self.function, kinds.get(d)) {
            (GivenFunction::Linear(of), _) if of == d => 1.0,
            (GivenFunction::Bounded(of), _) if of == d && state[d].abs() < BOUND => 1.0,
            (GivenFunction::Cosine(of), Some(&StateKind::Periodic(period))) if of == d => {
                -turn(period) * on_circle(state[d], period)[1]
            }
            (GivenFunction::Sine(of), Some(&StateKind::Periodic(period))) if of == d => {
                turn(period) * on_circle(state[d], period)[0]
            }
            _ => 0.0,
        }
    }

    /// Whether it is a function of states (`dim`,) of these kinds with a variance that can be one.
    pub fn is_of(&self, dim: usize, kinds: &[StateKind]) -> bool {
        let kind = |d: usize| kinds.get(d).copied().unwrap_or_default();
        let is_there = match self.function {
            GivenFunction::Constant => true,
            GivenFunction::Linear(d) | GivenFunction::Bounded(d) => d < dim && kind(d).is_line(),
            GivenFunction::Cosine(d) | GivenFunction::Sine(d) => d < dim && matches!(kind(d), StateKind::Periodic(_)),
        };
        is_there && self.variance.is_finite() && self.variance > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers and coordinators of several builds know each other's epochs.
    #[test]
    fn a_column_is_hashed_as_it_always_was() {
        let column = GivenColumn { function: GivenFunction::Bounded(1), variance: 2.5 };
        assert_eq!(format!("{column:?}"), "Column { function: Bounded(1), variance: 2.5 }");
    }

    #[test]
    fn names_of_columns_are_read_back() {
        for function in [
            GivenFunction::Constant,
            GivenFunction::Linear(3),
            GivenFunction::Bounded(2),
            GivenFunction::Cosine(0),
            GivenFunction::Sine(12),
        ] {
            assert_eq!(function.to_string().parse(), Ok(function));
        }
        for wrong in ["", "constant:1", "linear", "linear:", "linear:-1", "linear:x", "square:1"] {
            assert!(wrong.parse::<GivenFunction>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn columns_are_the_coordinates_of_states() {
        let kinds = [StateKind::Real, StateKind::Periodic(4.0), StateKind::Category];
        let columns = GivenColumn::constant_and_linear(10.0, 2.0, GivenFunction::Linear, &kinds, 3);
        let state = [0.5, 1.0, 7.0];
        let values: Vec<f64> = columns.iter().map(|column| column.value(&state, &kinds)).collect();
        let expected = [1.0, 0.5, 0.0, 1.0];
        assert!(values.len() == 4 && values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15), "{values:?}");
        assert_eq!(columns.iter().map(|column| column.variance).collect::<Vec<f64>>(), [10.0, 2.0, 2.0, 2.0]);
        assert!(columns.iter().all(|column| column.is_of(3, &kinds)));
        assert!(!columns[1].is_of(0, &[]) && !columns[2].is_of(3, &[]), "no such variable, no such kind");
        for (column, d) in columns.iter().flat_map(|column| (0..3).map(move |d| (column, d))) {
            let at = |by: f64| {
                let mut moved = state;
                moved[d] += by;
                column.value(&moved, &kinds)
            };
            let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!((column.slope(d, &state, &kinds) - slope).abs() < 1e-8, "{column:?} {d}");
        }
    }

    #[test]
    fn a_bounded_variable_is_a_line_among_the_rows_and_level_beyond() {
        let columns = GivenColumn::constant_and_linear(0.0, 2.0, GivenFunction::Bounded, &[], 2);
        assert_eq!(columns[1].function, GivenFunction::Bounded(1));
        let values = [-7.0, -4.0, 3.5, 40.0].map(|z| columns[1].value(&[0.0, z], &[]));
        assert_eq!(values, [-4.0, -4.0, 3.5, 4.0]);
        let slopes = [-7.0, -3.9, 3.5, 40.0].map(|z| columns[1].slope(1, &[0.0, z], &[]));
        assert_eq!(slopes, [0.0, 1.0, 1.0, 0.0]);
        assert!(columns[1].is_of(2, &[]) && columns[1].slope(0, &[0.0, 0.0], &[]) == 0.0);
        assert!(!columns[1].is_of(2, &[StateKind::Real, StateKind::Category]), "a category has no line");
    }
}
