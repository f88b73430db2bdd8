//! Policy iteration online, by compressed embeddings of the transition, by uncompressed ones, and by fitted Q.
//!
//! The protocol of \[L16\] as far as it is known: rows come in iterations, half of their chains by the policy so far; ten bandwidths of
//! the kernel over states and actions are compared by five folds; return and time of planning are of ten runs.
//!
//! \[L16\] G. Lever, J. Shawe-Taylor, R. Stafford, Cs. Szepesvari, *Compressed Conditional Mean Embeddings for Model-Based
//! Reinforcement Learning*, AAAI 2016.

use super::planning::{Fitted, Seen, Setting, asked, by_pivots, preferred, successors_by_pivots};
use criticd::learner::action::ActionSpace;
use criticd::math::dense::{Matrix, dot};
use criticd::math::kernel::{Kernel, Points};
use criticd::math::pursuit::Pursuit;
use criticd::snapshot::Inputs;
use criticd::world::{Basis, Dynamics, Part, Planning, Pursuing, Transitions, World, WorldError};
use std::error::Error;
use std::time::Instant;

/// Rows after each iteration.
pub(crate) const ITERATIONS: [usize; 4] = [250, 500, 1000, 2000];
/// Times that bandwidths are of the lengthscales by hand: so many, evenly in their logarithms.
const BANDWIDTHS: (usize, f64, f64) = (10, 0.25, 4.0);
const FOLDS: u64 = 5;
/// Elements of D and of C while bandwidths are compared, at most.
const COMPARED: (usize, usize) = (150, 100);
/// Numbers that stand for a successor while elements of D are pursued \[L16, p\].
const TARGETS: usize = 200;

/// What the experimenter chooses.
#[derive(Clone, Copy)]
pub(crate) struct Chosen {
    /// Rows in the last iteration, at most.
    pub(crate) rows: usize,
    /// Elements of D in a compressed model and for fitted Q, at most; pursuit chooses among twice the number.
    pub(crate) elements: usize,
    /// Distance from the hull of C up to which a successor does not join it.
    pub(crate) radius: f64,
    /// Noise variance, over the signal variance.
    pub(crate) noise: f64,
}

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// C by the lossy set, D by pursuit.
    Compressed,
    /// C of all successors and D of all inputs, as far as the kernels tell them apart.
    Uncompressed,
    /// Q by sweeps over the rows.
    Fitted,
}

impl Method {
    pub(crate) const ALL: [Self; 3] = [Self::Compressed, Self::Uncompressed, Self::Fitted];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Compressed => "compressed",
            Self::Uncompressed => "uncompressed",
            Self::Fitted => "fitted Q",
        }
    }
}

/// What an iteration came to.
pub(crate) struct Iteration {
    /// Mean from the starts.
    pub(crate) earned: f64,
    /// Of D and C; of C none for fitted Q.
    pub(crate) elements: (usize, usize),
    /// Milliseconds of the table of C and of the sweeps over it, or of fitted Q.
    pub(crate) planning: f64,
    /// Milliseconds of dictionaries, sums and solution.
    pub(crate) learning: f64,
    /// Times the lengthscales by hand.
    pub(crate) bandwidth: f64,
}

/// Q of a plan: the known reward, and a sum over D.
struct Planned<'a> {
    of: &'a Setting,
    space: ActionSpace,
    kernel: Kernel,
    elements: Points,
    weights: Vec<f64>,
}

enum Acting<'a> {
    Planned(Box<Planned<'a>>),
    Fitted(Box<Fitted>),
}

impl Acting<'_> {
    /// Q (k A,) in states (k, D).
    fn values(&self, states: &[f64]) -> Vec<f64> {
        let Planned { of, space, kernel, elements, weights } = match self {
            Self::Planned(of) => &**of,
            Self::Fitted(of) => return of.values(states),
        };
        let dim = of.lengths.len();
        let mut out = of.known(space, states);
        let mut rows = Matrix::zeros(elements.len(), out.len());
        let places = kernel.project(dim + space.width(), &asked(space, states, dim));
        kernel.rows(elements, &places, &mut rows.view_mut());
        out.iter_mut().enumerate().for_each(|(j, q)| *q += dot(rows.col(j), weights));
        out
    }
}

/// One run: an iteration for each of [`ITERATIONS`].
pub(crate) fn run(of: &Setting, method: Method, by: Chosen, seed: u64) -> Result<Vec<Iteration>, Box<dyn Error>> {
    let space = of.space();
    let (mut seen, mut acting, mut out) = (Seen::default(), None::<Acting<'_>>, Vec::new());
    for &rows in ITERATIONS.iter().filter(|&&each| each <= by.rows) {
        let mut act =
            |states: &[f64]| preferred(&space, &acting.as_ref().map_or_else(Vec::new, |of| of.values(states)));
        seen.gather(of, rows, seed, if acting.is_some() { Some(&mut act) } else { None });
        let bandwidth = choose(of, &seen, &space, by.noise)?;
        let (_, over_inputs) = of.kernels(space.width(), bandwidth);
        let mut found = Iteration { earned: 0.0, elements: (0, 0), planning: 0.0, learning: 0.0, bandwidth };
        let next = if method == Method::Fitted {
            let before = by_pivots(&seen, &over_inputs, by.elements);
            let fitted = Fitted::of(of, &seen, &before, by.noise)?;
            (found.planning, found.elements) = (fitted.took, (before.len(), 0));
            Acting::Fitted(Box::new(fitted))
        } else {
            let began = Instant::now();
            let dynamics = learn(of, &seen, &space, (method, bandwidth, by), seed)?;
            found.learning = began.elapsed().as_secs_f64() * 1e3;
            found.elements = (dynamics.before().len(), dynamics.after().len());
            let began = Instant::now();
            let planned = plan(of, &space, &dynamics)?;
            found.planning = began.elapsed().as_secs_f64() * 1e3;
            Acting::Planned(Box::new(planned))
        };
        found.earned = of.returns(&mut |states| preferred(&space, &next.values(states)));
        acting = Some(next);
        out.push(found);
    }
    Ok(out)
}

/// The bandwidth with the least squared error of the features of successors in held-out chains:
/// ```text
/// sum over folds and their rows of |phi_C(x') - U'psi|^2,    U of the other folds
/// ```
/// C and the kernel over it are the same for all, since features of another kernel cannot be compared.
fn choose(of: &Setting, seen: &Seen, space: &ActionSpace, noise: f64) -> Result<f64, WorldError> {
    let (over_states, _) = of.kernels(space.width(), 1.0);
    let after = successors_by_pivots(&seen.followed(), of.lengths.len(), &over_states, COMPARED.1);
    let fold = |k: u64| -> Vec<usize> { (0..seen.chains.len()).filter(|&i| seen.chains[i] % FOLDS == k).collect() };
    let parts: Vec<Part> = (0..FOLDS).map(|k| Part::of(&seen.rows(), &fold(k))).collect();
    let (mut least, mut best) = (f64::INFINITY, 1.0);
    for k in 0..BANDWIDTHS.0 {
        let share = k as f64 / (BANDWIDTHS.0 - 1) as f64;
        let bandwidth = BANDWIDTHS.1 * (BANDWIDTHS.2 / BANDWIDTHS.1).powf(share);
        let (_, over_inputs) = of.kernels(space.width(), bandwidth);
        let empty = World::new(by_pivots(seen, &over_inputs, COMPARED.0), after.clone(), 1)?;
        let mut worlds = vec![empty.clone(); parts.len()];
        for (world, part) in worlds.iter_mut().zip(&parts) {
            world.learn(&part.rows())?;
        }
        let mut loss = 0.0;
        for (held, part) in parts.iter().enumerate() {
            let mut rest = empty.clone();
            worlds.iter().enumerate().filter(|(k, _)| *k != held).try_for_each(|(_, world)| rest.merge(world))?;
            loss += error(&rest.solve(noise, f64::INFINITY)?, &part.rows())?;
        }
        if loss < least {
            (least, best) = (loss, bandwidth);
        }
    }
    Ok(best)
}

/// Sum over rows of |phi_C(x') - U'psi|^2, phi_C = 0 where a row terminated.
fn error(dynamics: &Dynamics, rows: &Transitions<'_>) -> Result<f64, WorldError> {
    let (came, table) = (dynamics.after().features(rows.successors), dynamics.entries(rows.inputs, 1)?);
    let factor = dynamics.after().dictionary().factor();
    let mut sum = 0.0;
    for (i, &ends) in rows.terminated.iter().enumerate() {
        let alpha = table.mass().col(i);
        for j in 0..alpha.len() {
            // U'psi = L_C' alpha.
            let predicted = dot(&factor.col(j)[j..], &alpha[j..]);
            sum += (if ends { 0.0 } else { came.at(j, i) } - predicted).powi(2);
        }
    }
    Ok(sum)
}

/// The model of all rows.
fn learn(
    of: &Setting,
    seen: &Seen,
    space: &ActionSpace,
    (method, bandwidth, by): (Method, f64, Chosen),
    seed: u64,
) -> Result<Dynamics, WorldError> {
    let (over_states, over_inputs) = of.kernels(space.width(), bandwidth);
    let (dim, n, followed) = (of.lengths.len(), seen.terminated.len(), seen.followed());
    let (before, after) = if method == Method::Compressed {
        let distance = by.radius * by.radius / over_states.signal_variance;
        let after = Basis::lossy(&Inputs::identity(dim), &over_states, &followed, (distance, n))?.0;
        // D by matching pursuit of the successors, all weights fitted anew after each choice [L16, eq. 2, 3].
        let targets = successors_by_pivots(&followed, dim, &over_states, TARGETS);
        let pursuing = Pursuing { by: Pursuit::Backfitting, candidates: 2 * by.elements, enough: 0.0, seed };
        let of_inputs = Inputs::identity(dim + space.width());
        (Basis::pursued(&of_inputs, &over_inputs, (&seen.rows(), &targets), &pursuing, by.elements)?, after)
    } else {
        (by_pivots(seen, &over_inputs, n), successors_by_pivots(&followed, dim, &over_states, n))
    };
    let mut world = World::new(before, after, 1)?;
    world.learn(&seen.rows())?;
    world.solve(by.noise, f64::INFINITY)
}

/// The plan for the known reward, in the weights of D.
fn plan<'a>(of: &'a Setting, space: &ActionSpace, dynamics: &Dynamics) -> Result<Planned<'a>, WorldError> {
    let states = dynamics.after().states();
    let at_c = dynamics.table(&states, &space.candidates())?;
    let rewards = of.known(space, &states);
    let planning = Planning { rewards: &rewards, discount: of.discount, bounds: None, unsupported_above: None };
    let values = at_c.plan(&planning)?.values;
    let dictionary = dynamics.before().dictionary();
    let features = dynamics.weights(&values, of.discount, None);
    let weights = dictionary.kernel_weights(&Matrix::from_columns(features.len(), 1, features));
    let (kernel, all) = (dictionary.kernel().clone(), dynamics.before().dim());
    let elements = Points::new(kernel.projected_dim(all), &kernel.project(all, dictionary.elements()));
    Ok(Planned { of, space: space.clone(), kernel, elements, weights: weights.col(0).to_vec() })
}
