//! The paper's section 6.2: an 11 x 11 gridworld of which only x matters.
//!
//! The paper does not say in which coordinates, at which discount and inside which box it searched. Standardised
//! coordinates, discount 1, and noise and relevances that may not fall below 1e-5 explain its table; other choices miss it.

use super::{Data, Scaling, Search, Selected, mean_square_error};
use criticd::math::dense::{Matrix, Op, product};
use criticd::math::kernel::{Hyperparameters, Metric};
use criticd::math::optimise::Bounds;
use criticd::sim::gridworld::{Gridworld, SIZE, true_value};
use criticd::transition::Rows;

/// Transitions of the sample.
const TRANSITIONS: usize = 500;
/// Least noise variance and least relevance.
const FLOOR: f64 = 1e-5;

/// One seed.
pub(crate) struct Run {
    pub(crate) data: Data,
    pub(crate) scaling: Scaling,
    /// (I), (II), (II) without y.
    pub(crate) models: [Model; 3],
}

/// One covariance.
pub(crate) struct Model {
    pub(crate) selected: Selected,
    /// Mean squared error of the value over the 121 states.
    pub(crate) on_states: f64,
    /// And over the states that the sample has visited.
    pub(crate) on_visited: f64,
    /// And over a grid ten times finer.
    pub(crate) between: f64,
}

/// Model selection climbs from two starts that follow from the data and from `random` ones.
pub(crate) fn run(seed: u64, random: usize) -> Run {
    let (data, scaling) = sample(seed);
    let box_of = |relevances: usize| {
        let (mut lower, mut upper) = (vec![1e-3, 1e-6, FLOOR], vec![1e5, 1e4, 1e2]);
        lower.extend(vec![FLOOR; relevances]);
        upper.extend(vec![1e3; relevances]);
        let ln = |v: Vec<f64>| v.into_iter().map(f64::ln).collect();
        Bounds { lower: ln(lower), upper: ln(upper) }
    };
    let search = |relevances: usize| Search { bounds: box_of(relevances), starts: Vec::new(), random, stride: 1, seed };
    let isotropic = data.select(&Metric::Isotropic(1.0), &search(1));
    let ard = data.select(&Metric::Ard(vec![1.0; 2]), &search(2));
    let reduced = data.evaluate(without_y(&ard.hyper));
    let models = [isotropic, ard, reduced].map(|selected| judge(selected, &data, &scaling));
    Run { data, scaling, models }
}

/// (a_1, a_2); (h, h) for the isotropic covariance.
pub(crate) fn relevance(model: &Model) -> [f64; 2] {
    let a = model.selected.hyper.kernel.metric.relevance(2);
    [a[0], a[1]]
}

/// Mean of the value at `places`, in the coordinates of the world.
pub(crate) fn value(selected: &Selected, scaling: &Scaling, places: &[[f64; 2]]) -> Vec<f64> {
    selected.posterior().mean(&scaling.of(places.as_flattened())).col(0).to_vec()
}

/// -|x - 6|: the true value in the states, and what lies linearly between them.
pub(crate) fn truth(places: &[[f64; 2]]) -> Vec<f64> {
    let between = |x: f64| {
        let (left, share) = (x.floor() as i32, x.fract());
        (1.0 - share) * true_value(left, 1.0) + share * true_value(left + 1, 1.0)
    };
    places.iter().map(|[x, _]| between(*x)).collect()
}

/// Q = H (K + sigma0^2 I) H' of the rewards, as the paper writes it, and its K (n, n).
pub(crate) fn covariances(data: &Data, hyper: &Hyperparameters) -> [Matrix; 2] {
    let (rows, n) = (&data.rows, data.rows.len());
    // The state behind the last row is a state of the trajectory too.
    let states = [&rows.states[..], rows.next_state(n - 1)].concat();
    let mut observed = super::gram(&hyper.kernel, 2, &states);
    let gram = Matrix::from_columns(n, n, (0..n).flat_map(|j| observed.col(j)[..n].to_vec()).collect());
    let mut h = Matrix::zeros(n, n + 1);
    for i in 0..n {
        *h.at_mut(i, i) = 1.0;
        *h.at_mut(i, i + 1) = if rows.terminated[i] { 0.0 } else { -data.discount };
    }
    (0..=n).for_each(|i| *observed.at_mut(i, i) += hyper.noise_variance);
    let half = product(h.view(), Op::Plain, observed.view(), Op::Plain);
    [gram, product(half.view(), Op::Plain, h.view(), Op::Transposed)]
}

fn sample(seed: u64) -> (Data, Scaling) {
    let mut world = Gridworld::new(seed);
    let steps: Vec<_> = (0..TRANSITIONS).map(|_| world.step()).collect();
    let states: Vec<f64> = steps.iter().flat_map(|s| s.state.clone()).collect();
    let next_states: Vec<f64> = steps.iter().flat_map(|s| s.next_state.clone()).collect();
    let scaling = Scaling::standard(&states);
    let rows = Rows {
        states: scaling.of(&states),
        next_states: scaling.of(&next_states),
        rewards: steps.iter().map(|s| s.reward).collect(),
        discounts: vec![f64::NAN; TRANSITIONS],
        ratios: vec![1.0; TRANSITIONS],
        streams: vec![0; TRANSITIONS],
        terminated: steps.iter().map(|s| s.terminated).collect(),
        truncated: vec![false; TRANSITIONS],
        starts_chain: (0..TRANSITIONS).map(|i| i == 0 || steps[i - 1].terminated).collect(),
        ..Rows::new(2, 1)
    };
    (Data::new(rows, 1.0), scaling)
}

/// The same model with a_2 := 0, as in the paper: nothing else is chosen anew.
fn without_y(hyper: &Hyperparameters) -> Hyperparameters {
    let mut out = hyper.clone();
    out.kernel.metric = Metric::Ard(vec![hyper.kernel.metric.relevance(2)[0], 0.0]);
    out
}

fn judge(selected: Selected, data: &Data, scaling: &Scaling) -> Model {
    let error = |places: Vec<[f64; 2]>| mean_square_error(&value(&selected, scaling, &places), &truth(&places));
    // `fine` steps from one state to the next.
    let grid = |fine: i32| -> Vec<[f64; 2]> {
        let count = (SIZE - 1) * fine + 1;
        (0..count * count).map(|k| [k % count, k / count].map(|i| 1.0 + f64::from(i) / f64::from(fine))).collect()
    };
    let seen: Vec<[f64; 2]> = scaling.back(&data.rows.states).as_chunks().0.iter().map(|x| x.map(f64::round)).collect();
    let visited = grid(1).into_iter().filter(|x| seen.contains(x)).collect();
    let (on_states, on_visited, between) = (error(grid(1)), error(visited), error(grid(10)));
    Model { selected, on_states, on_visited, between }
}
