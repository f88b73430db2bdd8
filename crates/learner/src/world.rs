//! A model of the transition, learned from the rows that Q is learned from: what would the robot do for another reward?
//!
//! It is a compressed conditional mean embedding. The features phi_C(x') of the successor are regressed on the features psi(x, a) of
//! state and action, and the expected value of any function of the successor is a sum over m states, the elements of C:
//! ```text
//! E[V(x') | x, a] = alpha(x, a)' V(C)       alpha = L_C^-T U' psi,   U = A^-1 X,   A = S + ridge I                  (Y1)
//! S = sum psi psi'      X = sum psi phi_C(x')'      P = sum psi [r, 1 if terminated]                               (Y2)
//! psi(x, a) = L_D^-1 k_D(x, a)      phi_C(x') = L_C^-1 l_C(x'), 0 where the row terminated
//! ```
//! D and C are dictionaries: of a kernel over states and actions, and of one over states. [`World`] holds the sums, to which rows
//! are added in any order; two worlds of the same dictionaries add up. [`World::solve`] gives a [`Dynamics`], and that a [`Table`] of
//! states and actions. What is asked of a model is asked of the table at C:
//! ```text
//! plan       V <- clip(max_a [r(c, a) + gamma alpha(c, a)' V], low, high)        Q = r + gamma alpha' V             (Y3)
//! evaluate   (I - gamma M) V = sum_a pi r,   M = sum_a pi(a | c) alpha(c, a)'                                      (Y4)
//! rollout    g_t = M g_{t-1};   after t steps from (x, a): alpha(x, a)' g_{t-1}                                    (Y5)
//! project    alpha <- s w,   w = argmin |sum_c w_c l(c, .) - mu / s|,  w >= 0,  sum w = 1,   s = 1 - termination   (Y6)
//! ```
//!
//! The numbers are those of docs/mathematics.md, section Y.
//!
//! # What to beware of
//! - alpha are coefficients and no probabilities: some are negative, their magnitudes sum to 3 to 5. Dividing them or cutting them
//!   off destroys the model. [`Table::projected`] constrains the embedding instead.
//! - A projected model moves mass by the spacing of C at every step. Its plan is nearly as good; its values are not to be stated.
//! - Both kernels need a large constant (10 times the signal variance), or mass leaks where rows are few.
//! - An action that no row tried in a region is extrapolated from others: [`Table::unsupported`] tells which.
//!
//! # Sources
//! - \[L16\] G. Lever, J. Shawe-Taylor, R. Stafford, Cs. Szepesvari, *Compressed Conditional Mean Embeddings for Model-Based
//!   Reinforcement Learning*, AAAI 2016.
//! - \[G12\] S. Grunewalder, G. Lever, L. Baldassarre, M. Pontil, A. Gretton, *Modelling Transition Dynamics in MDPs with RKHS
//!   Embeddings*, ICML 2012.

mod ahead;
mod basis;
mod choice;
mod dynamics;
mod elements;
mod error;
mod evaluation;
mod known;
mod live;
mod part;
mod plan;
mod published;
mod reward;
mod table;

pub use ahead::{Ahead, Chained, Course, Error};
pub use basis::Basis;
pub use choice::{Choice, Choosing, Normal, Widths};
pub use dynamics::Dynamics;
pub use elements::{ChosenElements, ElementRule, Pursuing};
pub use error::WorldError;
pub use evaluation::{Deviation, Evaluation, Motion, course};
pub use known::{Acting, Decided, Known, Led, Planned, Reach, Valued, Wanted};
pub(crate) use live::Live;
pub use live::{Learned, LiveFacts, Numbers, SUCCESSORS_MAX, world_bytes};
pub use part::Part;
pub use plan::{Plan, Planning, UNSUPPORTED_ABOVE};
pub use reward::{Expression, Names, Rewarded, split};
pub use table::Table;

use self::basis::Room;
use crate::math::dense::{Cholesky, Matrix, Op, Scratch, ViewMut, add_outer, axpy, multiply, rank_k};
use serde::{Deserialize, Serialize};

/// Rows whose features are worked out at once.
const BLOCK: usize = 256;
/// Root mean square of what C cannot express of a successor, over the signal: above it everything fails.
pub const LOST_MAX: f64 = 0.5;
/// Spectral radius of M above which values are to be doubted: mass that grows from nothing.
pub const RADIUS_DOUBTED: f64 = 1.001;
/// Share of a plan's or a policy's mass beyond the rows above which there is no answer.
pub const UNSUPPORTED_MAX: f64 = 0.2;

/// Rows (n), in the units of the environment. They may come from any policy and in any order.
#[derive(Clone, Copy, Debug)]
pub struct Transitions<'a> {
    /// (x, a) (n, D + A), row-major: the coordinates of the action follow those of the state ([`crate::action::ActionSpace::append`]).
    pub inputs: &'a [f64],
    /// x' (n, D), row-major: the true successor, also where the row was truncated.
    pub successors: &'a [f64],
    /// (n, H), row-major.
    pub rewards: &'a [f64],
    /// (n,): whether nothing follows.
    pub terminated: &'a [bool],
}

/// The sums (Y2) over rows, and the dictionaries that they refer to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct World {
    /// D, over states with actions.
    before: Basis,
    /// C, over states.
    after: Basis,
    /// S (d, d), lower triangle.
    gram: Matrix,
    /// X (d, m).
    coupling: Matrix,
    /// P (d, H + 1): rewards, then terminations.
    outcomes: Matrix,
    /// Rows, as far as they count.
    rows: f64,
    /// Those of them that did not terminate, and the sum of what C cannot express of their successors, over the signal variance.
    followed: f64,
    lost: f64,
    #[serde(skip)]
    work: WorldScratch,
}

/// Memory for rows while they are learned; a copy has none.
#[derive(Debug, Default)]
struct WorldScratch {
    room: Room,
    psi: Matrix,
    phi: Matrix,
}

impl Clone for WorldScratch {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl World {
    /// No rows yet, of `rewards` numbers each (H).
    ///
    /// # Errors
    /// The kernel of `after` has columns, or `before` has no more coordinates than `after`.
    pub fn new(before: Basis, after: Basis, rewards: usize) -> Result<Self, WorldError> {
        if after.dictionary().columns() > 0 {
            return Err(WorldError::Columns);
        }
        if before.dim() <= after.dim() {
            return Err(WorldError::Size { what: "inputs", found: before.dim(), expected: after.dim() + 1 });
        }
        let (d, m) = (before.len(), after.len());
        Ok(Self {
            before,
            after,
            gram: Matrix::zeros(d, d),
            coupling: Matrix::zeros(d, m),
            outcomes: Matrix::zeros(d, rewards + 1),
            rows: 0.0,
            followed: 0.0,
            lost: 0.0,
            work: WorldScratch::default(),
        })
    }

    /// Learn rows: S, X and P gain a term of each. Rows in other pieces or another order give the same sums to rounding. Nothing is
    /// allocated once as many rows have been learned at a time.
    ///
    /// # Errors
    /// Columns of lengths that do not fit; nothing is learned then.
    pub fn learn(&mut self, rows: &Transitions<'_>) -> Result<(), WorldError> {
        self.learn_weighted(rows, None)
    }

    /// [`World::learn`] of rows that count as often as `weights` (n,) say, each above 0.
    ///
    /// # Errors
    /// As [`World::learn`].
    pub fn learn_weighted(&mut self, rows: &Transitions<'_>, weights: Option<&[f64]>) -> Result<(), WorldError> {
        self.check(rows)?;
        let (inputs, states, rewards) = (self.before.dim(), self.after.dim(), self.rewards());
        let mut work = std::mem::take(&mut self.work);
        let WorldScratch { room, psi, phi } = &mut work;
        for from in (0..rows.terminated.len()).step_by(BLOCK) {
            let to = rows.terminated.len().min(from + BLOCK);
            self.before.features_into(&rows.inputs[from * inputs..to * inputs], room, psi);
            self.after.features_into(&rows.successors[from * states..to * states], room, phi);
            let rewards = &rows.rewards[from * rewards..to * rewards];
            let weights = weights.map(|weights| &weights[from..to]);
            self.absorb(psi.view_mut(), phi.view_mut(), (rewards, &rows.terminated[from..to]), weights);
        }
        self.work = work;
        Ok(())
    }

    /// Learn rows whose features are `psi` (d, n) and `phi` (m, n). The columns of both become what the row adds: times the root of its
    /// weight, and of `phi` 0 where it terminated. 2 n d (d / 2 + m) operations.
    fn absorb(
        &mut self,
        mut psi: ViewMut<'_>,
        mut phi: ViewMut<'_>,
        (rewards, terminated): (&[f64], &[bool]),
        weights: Option<&[f64]>,
    ) {
        let (n, width) = (terminated.len(), self.rewards());
        for (i, &ends) in terminated.iter().enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[i]);
            let features = psi.as_view().col(i);
            (0..width).for_each(|h| axpy(self.outcomes.col_mut(h), weight * rewards[i * width + h], features));
            self.rows += weight;
            if ends {
                axpy(self.outcomes.col_mut(width), weight, features);
                phi.col_mut(i).fill(0.0);
            } else {
                self.followed += weight;
                self.lost += weight * self.after.lost(phi.as_view().col(i));
            }
            if weight != 1.0 {
                psi.col_mut(i).iter_mut().chain(phi.col_mut(i)).for_each(|value| *value *= weight.sqrt());
            }
        }
        let (psi, phi) = (psi.as_view(), phi.as_view());
        rank_k(self.gram.view_mut(), 1.0, psi, Op::Plain);
        let coupling = self.coupling.view_mut();
        if n == 1 {
            add_outer(coupling, 1.0, psi.col(0), phi.col(0));
        } else {
            multiply(coupling, true, 1.0, psi, Op::Plain, phi, Op::Transposed);
        }
    }

    /// Add what another world of the same dictionaries has learned.
    ///
    /// # Errors
    /// The dictionaries differ.
    pub fn merge(&mut self, other: &Self) -> Result<(), WorldError> {
        if !(self.before.is(&other.before) && self.after.is(&other.after)) || self.rewards() != other.rewards() {
            return Err(WorldError::Different);
        }
        let pairs = [
            (&mut self.gram, &other.gram),
            (&mut self.coupling, &other.coupling),
            (&mut self.outcomes, &other.outcomes),
        ];
        for (to, from) in pairs {
            (0..to.cols()).for_each(|j| axpy(to.col_mut(j), 1.0, from.col(j)));
        }
        self.rows += other.rows;
        self.followed += other.followed;
        self.lost += other.lost;
        Ok(())
    }

    /// Let all rows so far count `factor` times as much, from 0 to 1.
    pub fn forget(&mut self, factor: f64) {
        for matrix in [&mut self.gram, &mut self.coupling, &mut self.outcomes] {
            (0..matrix.cols()).for_each(|j| matrix.col_mut(j).iter_mut().for_each(|value| *value *= factor));
        }
        self.rows *= factor;
        self.followed *= factor;
        self.lost *= factor;
    }

    /// The model of these sums. `ridge` is the noise variance in the unit of the kernel of D, positive.
    ///
    /// # Errors
    /// `ridge` is not positive, there are no rows that anything followed, A is not positive definite, or C expresses too little of the
    /// successors: [`World::lost`] above `lost_max` (in general [`LOST_MAX`]).
    pub fn solve(&self, ridge: f64, lost_max: f64) -> Result<Dynamics, WorldError> {
        if !(ridge > 0.0 && ridge.is_finite()) {
            return Err(WorldError::Ridge(ridge));
        }
        let lost = self.lost().ok_or(WorldError::Empty)?;
        if lost > lost_max {
            return Err(WorldError::Lost { lost, max: lost_max, elements: self.after.len() });
        }
        let mut system = Cholesky::default();
        system.renew(&self.gram, ridge, &mut Scratch::default())?;
        let outcomes = system.solve(self.outcomes.clone());
        let embeddings = system.solve(self.coupling.clone());
        Ok(Dynamics::new(self.before.clone(), self.after.clone(), ridge, system, embeddings, outcomes))
    }

    /// sqrt(mean over successors of (l(x', x') - |phi_C(x')|^2) / v0), from 0: what C cannot express of them. v0 is the signal variance
    /// of the kernel of C; its constant is not counted, or it would hide what is lost. None before a row that anything followed.
    pub fn lost(&self) -> Option<f64> {
        (self.followed > 0.0).then(|| (self.lost / self.followed).sqrt())
    }

    /// Rows learned, as far as they count.
    pub fn rows(&self) -> f64 {
        self.rows
    }

    /// Rewards of a row H.
    pub fn rewards(&self) -> usize {
        self.outcomes.cols() - 1
    }

    /// D.
    pub fn before(&self) -> &Basis {
        &self.before
    }

    /// C.
    pub fn after(&self) -> &Basis {
        &self.after
    }

    /// S (d, d), both triangles.
    pub fn gram(&self) -> Matrix {
        let mut out = self.gram.clone();
        out.mirror_lower();
        out
    }

    /// X (d, m).
    pub fn coupling(&self) -> &Matrix {
        &self.coupling
    }

    /// P (d, H + 1): rewards, then terminations.
    pub fn outcomes(&self) -> &Matrix {
        &self.outcomes
    }

    /// Whether the parts agree, for `inputs` numbers of a state with an action and `states` of a state, which a file may contradict.
    pub(crate) fn is_consistent(&self, (inputs, states): (usize, usize)) -> bool {
        let (d, m) = (self.before.len(), self.after.len());
        let sizes = |of: &Matrix| (of.rows(), of.cols());
        self.before.is_consistent(inputs)
            && self.after.is_consistent(states)
            && sizes(&self.gram) == (d, d)
            && sizes(&self.coupling) == (d, m)
            && self.outcomes.rows() == d
            && self.outcomes.cols() > 0
    }

    /// The same dictionaries without rows.
    pub(crate) fn emptied(&self) -> Self {
        let sums = |of: &Matrix| Matrix::zeros(of.rows(), of.cols());
        Self {
            before: self.before.clone(),
            after: self.after.clone(),
            gram: sums(&self.gram),
            coupling: sums(&self.coupling),
            outcomes: sums(&self.outcomes),
            rows: 0.0,
            followed: 0.0,
            lost: 0.0,
            work: WorldScratch::default(),
        }
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let sums = self.gram.bytes() + self.coupling.bytes() + self.outcomes.bytes();
        self.before.dictionary().bytes() + self.after.dictionary().bytes() + sums
    }

    fn check(&self, rows: &Transitions<'_>) -> Result<(), WorldError> {
        let n = rows.terminated.len();
        let each = [
            ("inputs", rows.inputs.len(), n * self.before.dim()),
            ("successors", rows.successors.len(), n * self.after.dim()),
            ("rewards", rows.rewards.len(), n * self.rewards()),
        ];
        match each.into_iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => Err(WorldError::Size { what, found, expected }),
            None => Ok(()),
        }
    }
}
