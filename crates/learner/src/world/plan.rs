//! Acting as well as the model allows for a reward, which need never have been observed.

use super::error::WorldError;
use super::evaluation::check_discount;
use super::table::Table;
use crate::action::first_largest;
use crate::math::dense::{Matrix, Op, View, ViewMut, axpy, dot, multiply, solve_general};

/// Sweeps at most.
const SWEEPS: usize = 600;
/// Change of V, in parts of the range of values, below which a sweep is the last.
const SETTLED: f64 = 1e-10;
/// Sweeps in which neither a preferred action nor a clipped value changes, before the equations of these are tried.
const STEADY: usize = 16;
/// v over the signal variance above which the rows tell next to nothing of an action in a state.
pub const UNSUPPORTED_ABOVE: f64 = 0.5;

/// What is planned for.
#[derive(Clone, Copy, Debug)]
pub struct Planning<'a> {
    /// r(c, a) (m A,) at the entries of the table of C.
    pub rewards: &'a [f64],
    /// In \[0, 1).
    pub discount: f64,
    /// Least and largest value that V may have, around 0; none for what the rewards allow: the least and the largest of them, and 0,
    /// over 1 - discount.
    pub bounds: Option<(f64, f64)>,
    /// Value actions at the least where v over the signal variance exceeds this (in general [`UNSUPPORTED_ABOVE`]): where rows are missing
    /// zero-mean regression promises 0, which is much where rewards are negative. None to believe all.
    pub unsupported_above: Option<f64>,
}

/// V at C as the sweeps have left it (Y3).
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// (m,).
    pub values: Vec<f64>,
    /// Number of the preferred action at each element (m,), the first of equals.
    pub greedy: Vec<usize>,
    /// Least and largest value.
    pub bounds: (f64, f64),
    /// Sweeps made.
    pub sweeps: usize,
    /// Change of V in the last sweep, in parts of the range of values.
    pub change: f64,
    /// Elements whose value is at a bound.
    pub clipped: usize,
    discount: f64,
    unsupported_above: Option<f64>,
}

impl Table {
    /// Value iteration at the elements of C, whose table this must be, from V = 0:
    /// ```text
    /// V <- clip(max_a [r(c, a) + gamma alpha(c, a)' V], low, high)                                                      (Y3)
    /// ```
    /// Once preferred actions and clipped values have stayed what they are for a while, the linear equations of these are solved, and a
    /// sweep confirms the solution or is made as if nothing had been tried. O(sweeps A m^2).
    ///
    /// # Errors
    /// The table is not that of C, lengths do not fit, the discount is none, or bounds do not contain 0.
    pub fn plan(&self, of: &Planning<'_>) -> Result<Plan, WorldError> {
        self.of_successors()?;
        self.sized("rewards", of.rewards.len())?;
        check_discount(of.discount)?;
        let (least, most) = of.rewards.iter().fold((0.0f64, 0.0f64), |(a, b), r| (a.min(*r), b.max(*r)));
        let (low, high) = of.bounds.unwrap_or((least / (1.0 - of.discount), most / (1.0 - of.discount)));
        if !(low <= 0.0 && high >= 0.0) {
            return Err(WorldError::Bounds { low, high });
        }
        let far = of.unsupported_above.map(|above| self.unsupported(above).collect()).unwrap_or_default();
        let mut sweeps = Sweeps::new(self, of, (low, high), far);
        sweeps.run();
        let Sweeps { values, greedy, count, change, .. } = sweeps;
        let clipped = values.iter().filter(|value| **value <= low || **value >= high).count();
        Ok(Plan {
            values,
            greedy,
            bounds: (low, high),
            sweeps: count,
            change,
            clipped,
            discount: of.discount,
            unsupported_above: of.unsupported_above,
        })
    }
}

impl Plan {
    /// Q (n A,) = r + gamma alpha'V at the entries of a table, where rewards are `rewards` (n A,); the least value where rows do not
    /// support it, if the plan went by that.
    ///
    /// # Errors
    /// Not as many rewards as entries.
    pub fn action_values(&self, at: &Table, rewards: &[f64]) -> Result<Vec<f64>, WorldError> {
        at.sized("rewards", rewards.len())?;
        let q = |(j, reward): (usize, &f64)| reward + self.discount * dot(at.mass.col(j), &self.values);
        let mut out: Vec<f64> = rewards.iter().enumerate().map(q).collect();
        if let Some(above) = self.unsupported_above {
            out.iter_mut().zip(at.unsupported(above)).filter(|(_, far)| *far).for_each(|(q, _)| *q = self.bounds.0);
        }
        Ok(out)
    }

    /// Probabilities (n, A), row-major, of the policy that prefers these action values (n A,), the first of equals.
    pub fn policy(actions: usize, action_values: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; action_values.len()];
        for (of, q) in out.chunks_exact_mut(actions).zip(action_values.chunks_exact(actions)) {
            of[first_largest(q)] = 1.0;
        }
        out
    }

    /// Whether the last sweep hardly changed any value.
    pub fn settled(&self) -> bool {
        self.change <= SETTLED
    }
}

/// Value iteration under way.
struct Sweeps<'a> {
    table: &'a Table,
    of: &'a Planning<'a>,
    low: f64,
    high: f64,
    /// Whether rows tell next to nothing of each entry; empty if none is asked about.
    far: Vec<bool>,
    values: Vec<f64>,
    greedy: Vec<usize>,
    /// Values of the entries (m A,), and of the elements after a sweep (m,).
    entries: Vec<f64>,
    next: Vec<f64>,
    preferred: Vec<usize>,
    count: usize,
    change: f64,
}

impl<'a> Sweeps<'a> {
    fn new(table: &'a Table, of: &'a Planning<'a>, (low, high): (f64, f64), far: Vec<bool>) -> Self {
        let m = table.states();
        Self {
            table,
            of,
            low,
            high,
            far,
            values: vec![0.0; m],
            greedy: vec![0; m],
            entries: vec![0.0; m * table.actions],
            next: vec![0.0; m],
            preferred: vec![0; m],
            count: 0,
            change: f64::INFINITY,
        }
    }

    /// `next` and `preferred` of a sweep from `values`; the largest change in parts of the range.
    fn look(&mut self) -> f64 {
        self.entries.copy_from_slice(self.of.rewards);
        let (mass, values) = (self.table.mass.view(), View::column(&self.values));
        let to = ViewMut::column(&mut self.entries);
        multiply(to, true, self.of.discount, mass, Op::Transposed, values, Op::Plain);
        self.entries.iter_mut().zip(&self.far).filter(|(_, far)| **far).for_each(|(entry, _)| *entry = self.low);
        for (c, of) in self.entries.chunks_exact(self.table.actions).enumerate() {
            self.preferred[c] = first_largest(of);
            self.next[c] = of[self.preferred[c]].clamp(self.low, self.high);
        }
        let largest = self.next.iter().zip(&self.values).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        if largest == 0.0 { 0.0 } else { largest / (self.high - self.low) }
    }

    /// Where a value is clipped, -1 or 1; else 0.
    fn side(&self, value: f64) -> i8 {
        i8::from(value >= self.high) - i8::from(value <= self.low)
    }

    fn run(&mut self) {
        let (mut steady, mut before) = (0, f64::INFINITY);
        while self.count < SWEEPS && self.change > SETTLED {
            self.change = self.look();
            let same = |c: usize| self.side(self.next[c]) == self.side(self.values[c]);
            let stayed = self.preferred == self.greedy && (0..self.next.len()).all(same);
            steady = if stayed { steady + 1 } else { 0 };
            std::mem::swap(&mut self.values, &mut self.next);
            std::mem::swap(&mut self.greedy, &mut self.preferred);
            self.count += 1;
            if steady % STEADY == STEADY - 1 || self.change <= SETTLED {
                // Where sweeps move apart, the solution is none that they lead to.
                if self.change < before {
                    self.solve();
                }
                before = self.change;
            }
        }
    }

    /// Go to the solution of the equations of the preferred actions and clipped values, if a sweep confirms it.
    fn solve(&mut self) {
        let m = self.values.len();
        let (mut turned, mut right) = (Matrix::identity(m), Matrix::zeros(m, 1));
        for c in 0..m {
            let entry = c * self.table.actions + self.greedy[c];
            let fixed = self.side(self.values[c]) != 0 || self.far.get(entry).is_some_and(|far| *far);
            if !fixed {
                axpy(turned.col_mut(c), -self.of.discount, self.table.mass.col(entry));
            }
            *right.at_mut(c, 0) = if fixed { self.values[c] } else { self.of.rewards[entry] };
        }
        let Ok(found) = solve_general(&turned.transpose(), &right) else { return };
        let kept = std::mem::replace(&mut self.values, found.col(0).to_vec());
        let change = self.look();
        if change <= SETTLED && self.preferred == self.greedy {
            self.change = change;
            self.values.copy_from_slice(&self.next);
        } else {
            self.values = kept;
        }
    }
}
