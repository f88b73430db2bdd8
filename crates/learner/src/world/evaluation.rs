//! What a policy is worth under the model, how sure that is, and where it leads.

use super::dynamics::Dynamics;
use super::error::WorldError;
use super::table::Table;
use super::{BLOCK, RADIUS_DOUBTED, Transitions};
use crate::math::dense::{
    Matrix, Op, View, ViewMut, dot, multiply, product, rank_k, solve_general, solve_lower, spectral_radius,
};

/// Values of a policy at the elements of C (Y4).
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// (m, k), one column for each cumulant.
    values: Matrix,
    radius: f64,
    discount: f64,
    /// I - gamma M' (m, m).
    system: Matrix,
    /// F' (d, m): features of D at the elements of C, averaged over the policy's actions.
    features: Matrix,
}

impl Table {
    /// Where the policy with these `probabilities` (m, A), row-major, of its actions leads from the elements of C, whose table this must
    /// be. O(m^3), once for all that is asked of the policy.
    ///
    /// # Errors
    /// The table is not that of C, or probabilities are none.
    pub fn motion<'a>(&'a self, probabilities: &'a [f64]) -> Result<Motion<'a>, WorldError> {
        self.of_successors()?;
        self.check(probabilities)?;
        let turned = self.under(&self.mass, probabilities);
        let radius = spectral_radius(&turned)?;
        Ok(Motion { table: self, probabilities, inputs: &[], turned, radius })
    }

    /// [`Motion::evaluate`] of the policy with these `probabilities` (m, A).
    ///
    /// # Errors
    /// As [`Table::motion`] and [`Motion::evaluate`].
    pub fn evaluate(&self, probabilities: &[f64], rewards: &Matrix, discount: f64) -> Result<Evaluation, WorldError> {
        self.motion(probabilities)?.evaluate(rewards, discount)
    }
}

/// Where a policy leads from the elements of C, whatever is asked of it.
#[derive(Clone, Debug)]
pub struct Motion<'a> {
    /// Of C.
    table: &'a Table,
    /// (m, A).
    probabilities: &'a [f64],
    /// (m A, D + width) C with the policy's actions; empty where they are not known.
    pub(super) inputs: &'a [f64],
    /// M' (m, m).
    turned: Matrix,
    radius: f64,
}

impl Motion<'_> {
    /// Spectral radius of M.
    pub fn radius(&self) -> f64 {
        self.radius
    }

    /// The table and the probabilities.
    pub(super) fn of(&self) -> (&Table, &[f64]) {
        (self.table, self.probabilities)
    }

    /// Values of the policy at the elements of C:
    /// ```text
    /// (I - gamma M) V = sum_a pi r           M = sum_a pi(a | c) alpha(c, a)'                                         (Y4)
    /// ```
    /// for each column of `rewards` (m A, k), which may be learned ([`Table::rewards`]) or known. O(m^3).
    ///
    /// # Errors
    /// Lengths that do not fit, a discount that is none, or gamma times the spectral radius of M is not below 1.
    pub fn evaluate(&self, rewards: &Matrix, discount: f64) -> Result<Evaluation, WorldError> {
        let (table, radius) = (self.table, self.radius);
        table.sized("rewards", rewards.rows())?;
        check_discount(discount)?;
        if radius.is_nan() || discount * radius >= 1.0 {
            return Err(WorldError::Unstable { radius, discount });
        }
        let mut system = self.turned.clone();
        for j in 0..system.cols() {
            system.col_mut(j).iter_mut().for_each(|value| *value *= -discount);
            *system.at_mut(j, j) += 1.0;
        }
        let mean = table.under(&rewards.transpose(), self.probabilities).transpose();
        let values = solve_general(&system.transpose(), &mean)?;
        let features = table.under(&table.features, self.probabilities);
        Ok(Evaluation { values, radius, discount, system, features })
    }

    /// Share, from 0 to 1, of the discounted mass of the policy that starts in the states of `from`, where it has the probabilities
    /// `starting`, and that rows do not [support](Table::unsupported): the indicator of that as a cumulant.
    ///
    /// # Errors
    /// As [`Motion::evaluate`], or the share is above `max` (in general [`super::UNSUPPORTED_MAX`]).
    pub fn support(
        &self,
        (from, starting): (&Table, &[f64]),
        discount: f64,
        (above, max): (f64, f64),
    ) -> Result<f64, WorldError> {
        from.check(starting)?;
        let cumulants = |of: &Table| {
            let far = of.unsupported(above).map(|far| f64::from(u8::from(far)));
            Matrix::from_columns(of.mass.cols(), 2, far.chain(std::iter::repeat_n(1.0, of.mass.cols())).collect())
        };
        let found = self.evaluate(&cumulants(self.table), discount)?;
        let values = found.action_values(from, &cumulants(from))?;
        let sum = |k: usize| dot(values.col(k), starting);
        let share = (sum(0) / sum(1)).clamp(0.0, 1.0);
        if share <= max { Ok(share) } else { Err(WorldError::Unsupported { share, max }) }
    }
}

impl Evaluation {
    /// V (m, k) at the elements of C.
    pub fn values(&self) -> &Matrix {
        &self.values
    }

    /// Spectral radius of M, without the discount. Below 1 where nothing terminates it is mass that leaked.
    pub fn radius(&self) -> f64 {
        self.radius
    }

    /// Whether the model makes more mass than rounding explains, so that values are to be doubted.
    pub fn is_doubtful(&self) -> bool {
        self.radius > RADIUS_DOUBTED
    }

    /// Q = r + gamma alpha'V (n A, k) at the entries of a table, where rewards are `rewards` (n A, k).
    ///
    /// # Errors
    /// Not as many rewards as entries and columns.
    pub fn action_values(&self, at: &Table, rewards: &Matrix) -> Result<Matrix, WorldError> {
        at.sized("rewards", rewards.rows())?;
        if rewards.cols() != self.values.cols() {
            let (found, expected) = (rewards.cols(), self.values.cols());
            return Err(WorldError::Size { what: "columns of rewards", found, expected });
        }
        let mut out = rewards.clone();
        let (mass, values) = (at.mass.view(), self.values.view());
        multiply(out.view_mut(), true, self.discount, mass, Op::Transposed, values, Op::Plain);
        Ok(out)
    }

    /// What the deviation of V in the states of `at` is summed up in, for the policy with these `probabilities` (n, A) there, and column
    /// `of` of the cumulants. `observed` is the number of the reward that this column is, as rows have it; none where it is known exactly.
    /// The tables must not be projected.
    ///
    /// # Errors
    /// Lengths that do not fit, or a system without a solution.
    pub fn deviation<'a>(
        &self,
        dynamics: &'a Dynamics,
        (at, probabilities): (&Table, &[f64]),
        of: usize,
        observed: Option<usize>,
    ) -> Result<Deviation<'a>, WorldError> {
        at.check(probabilities)?;
        let directions = at.under(&at.features, probabilities);
        let led = at.under(&at.mass, probabilities);
        self.deviating(dynamics, directions, &led, of, observed)
    }

    /// Covariance (d, d) of the weights of Q, the `rows` form (Y7), over `rows`, those that the model has learned or some of them, each
    /// for `weight` of them; the rest as for [`Evaluation::deviation`]. `prior` makes v0 of the mean square of delta; v0 is returned beside the covariance. O(n d^2).
    ///
    /// # Errors
    /// As [`Evaluation::deviation`].
    pub fn covariance(
        &self,
        dynamics: &Dynamics,
        (rows, weight): (Transitions<'_>, f64),
        (of, observed): (usize, Option<usize>),
        prior: impl FnOnce(f64) -> f64,
    ) -> Result<(f64, Matrix), WorldError> {
        let d = dynamics.before().len();
        let all = self.deviating(dynamics, Matrix::identity(d), dynamics.turned(), of, observed)?;
        let mut out = Matrix::zeros(d, d);
        let mut squares = 0.0;
        all.visit(&rows, &mut |deltas, along| {
            squares += dot(deltas, deltas);
            for (j, delta) in deltas.iter().enumerate() {
                along.col_mut(j).iter_mut().for_each(|share| *share *= delta);
            }
            rank_k(out.view_mut(), weight, along.view(), Op::Plain);
        });
        let signal = prior(squares / rows.terminated.len().max(1) as f64);
        let ridge = signal * dynamics.ridge.powi(2);
        rank_k(out.view_mut(), ridge, all.directions.view(), Op::Transposed);
        out.mirror_lower();
        Ok((signal, out))
    }

    /// [`Evaluation::deviation`] along `directions` f (d, n) whose embedding W'f (m, n) is `led`.
    fn deviating<'a>(
        &self,
        dynamics: &'a Dynamics,
        mut directions: Matrix,
        led: &Matrix,
        of: usize,
        observed: Option<usize>,
    ) -> Result<Deviation<'a>, WorldError> {
        // (I - gamma W F)^-T f = f + gamma F' (I - gamma M')^-1 W'f, so that only m equations are solved.
        let solved = solve_general(&self.system, led)?;
        let to = directions.view_mut();
        multiply(to, true, self.discount, self.features.view(), Op::Plain, solved.view(), Op::Plain);
        let directions = dynamics.system.solve(directions);
        let values = self.values.col(of);
        let weights = dynamics.weights(values, self.discount, observed);
        let mut next = values.to_vec();
        let factor = dynamics.after().dictionary().factor();
        solve_lower(factor.view(), ViewMut::column(&mut next));
        next.iter_mut().for_each(|value| *value *= self.discount);
        let sums = vec![0.0; directions.cols()];
        Ok(Deviation { dynamics, directions, weights, next, observed, sums, squares: 0.0, rows: 0 })
    }
}

/// Sum over rows of what they leave open of V, the `rows` form:
/// ```text
/// Var V = f' M_w^-1 (sum delta^2 psi psi' + v0 ridge^2 I) M_w^-T f        M_w = A - gamma X L_C^-1 F,  f = sum_a pi psi
/// delta = r + gamma phi_C(x')' L_C^-1 V - psi'w                           w: weights of Q                           (Y7)
/// ```
/// Rows may come in pieces.
#[derive(Clone, Debug)]
pub struct Deviation<'a> {
    dynamics: &'a Dynamics,
    /// M_w^-T f (d, n).
    directions: Matrix,
    /// w (d,).
    weights: Vec<f64>,
    /// gamma L_C^-1 V (m,).
    next: Vec<f64>,
    observed: Option<usize>,
    sums: Vec<f64>,
    /// Sum of delta^2, and of how many rows.
    squares: f64,
    rows: usize,
}

impl Deviation<'_> {
    /// Add rows of H `rewards` each: those that the model has learned, or some of them, each for `weight` of them. O(n d (d + q)) for q
    /// states asked about.
    ///
    /// # Panics
    /// If columns do not fit.
    pub fn add(&mut self, rows: &Transitions<'_>, weight: f64) {
        let (mut sums, mut squares) = (std::mem::take(&mut self.sums), self.squares);
        self.visit(rows, &mut |deltas, along| {
            squares += dot(deltas, deltas);
            for (j, delta) in deltas.iter().enumerate() {
                let shares = sums.iter_mut().zip(along.col(j));
                shares.for_each(|(sum, share)| *sum += weight * (delta * share).powi(2));
            }
        });
        (self.sums, self.squares) = (sums, squares);
        self.rows += rows.terminated.len();
    }

    /// Mean square of delta over the rows so far: noise, and what the model cannot express.
    pub fn open(&self) -> f64 {
        self.squares / self.rows.max(1) as f64
    }

    /// Block by block: delta of each row (k,), and what its features are along the directions (q, k).
    fn visit(&self, rows: &Transitions<'_>, seen: &mut dyn FnMut(&[f64], &mut Matrix)) {
        let (before, after) = (self.dynamics.before(), self.dynamics.after());
        let count = rows.terminated.len();
        let width = rows.rewards.len().checked_div(count).unwrap_or(0);
        for from in (0..count).step_by(BLOCK) {
            let to = count.min(from + BLOCK);
            let psi = before.features(&rows.inputs[from * before.dim()..to * before.dim()]);
            let phi = after.features(&rows.successors[from * after.dim()..to * after.dim()]);
            let mut along = product(self.directions.view(), Op::Transposed, psi.view(), Op::Plain);
            let delta = |i: usize| {
                let reward = self.observed.map_or(0.0, |h| rows.rewards[i * width + h]);
                let next = if rows.terminated[i] { 0.0 } else { dot(phi.col(i - from), &self.next) };
                reward + next - dot(psi.col(i - from), &self.weights)
            };
            let deltas: Vec<f64> = (from..to).map(delta).collect();
            seen(&deltas, &mut along);
        }
    }

    /// Var V (n,) by the rows so far. `prior` is v0, the prior variance of a weight of D's features: 1 where the kernel has it.
    pub fn variance(&self, prior: f64) -> Vec<f64> {
        let ridge = prior * self.dynamics.ridge.powi(2);
        let own = |j: usize| dot(self.directions.col(j), self.directions.col(j));
        self.sums.iter().enumerate().map(|(j, sum)| sum + ridge * own(j)).collect()
    }
}

/// Where a policy leads (Y5): the mean of `cumulants` (m, k), which are given at the elements of C, after 1, 2, .. `steps` steps from each
/// state of `at`; (n, k) each. What terminated counts 0, so that a cumulant of 1 gives the share that has not. Probabilities (m, A) are
/// those of the policy at C, of which `model` is the table, and `starting` (n, A) those in `at`.
///
/// # Errors
/// Lengths that do not fit, or probabilities that are none.
pub fn course(
    (model, probabilities): (&Table, &[f64]),
    (at, starting): (&Table, &[f64]),
    cumulants: &Matrix,
    steps: usize,
) -> Result<Vec<Matrix>, WorldError> {
    model.of_successors()?;
    model.check(probabilities)?;
    at.check(starting)?;
    if cumulants.rows() != model.mass.rows() {
        let (found, expected) = (cumulants.rows(), model.mass.rows());
        return Err(WorldError::Size { what: "cumulants", found, expected });
    }
    let turned = model.under(&model.mass, probabilities);
    let first = at.under(&at.mass, starting);
    let mut there = cumulants.clone();
    let mut out = Vec::with_capacity(steps);
    let led = |mass: View<'_>, there: &Matrix| product(mass, Op::Transposed, there.view(), Op::Plain);
    for step in 0..steps {
        if step > 0 {
            there = led(turned.view(), &there);
        }
        out.push(led(first.view(), &there));
    }
    Ok(out)
}

/// # Errors
/// A discount that no value of an endless future has.
pub(super) fn check_discount(discount: f64) -> Result<(), WorldError> {
    if (0.0..1.0).contains(&discount) { Ok(()) } else { Err(WorldError::Discount(discount)) }
}
