//! Kernels and ridge of a model of the transition, by how well held-out chains are predicted.
//!
//! What is compared is the same for all kernels: functions of the state 1, 2, .. [`STEPS`] steps ahead, by the actions that were taken.
//! A loss in the features of C would compare no two kernels of C. Steps are several, since mass that a kernel makes of nothing shows
//! only when it is led on.

use super::ahead::Chained;
use super::dynamics::Dynamics;
use super::elements::{ChosenElements, ElementRule};
use super::error::WorldError;
use super::part::Part;
use super::{LOST_MAX, RADIUS_DOUBTED, Transitions, World};
use crate::action::ActionSpace;
use crate::allowance::{self, Allowance};
use crate::math::embedding::StateKind;
use crate::math::evidence::KeepGoing;
use crate::math::kernel::{Kernel, Metric};
use crate::random::{self, mix, uniform};
use crate::snapshot::Inputs;

/// Steps that predictions look ahead.
const STEPS: usize = 8;
/// Rows that kernels are compared on, and starts of the chains that are predicted, at most.
const ROWS_MAX: usize = 2500;
const STARTS_MAX: usize = 120;
/// Actions among which policies are looked for that make mass of nothing, at most.
const CHOICES_MAX: usize = 32;
/// Random waves among the functions of the state that are predicted.
const WAVES: usize = 16;
/// The constant of both kernels, over their signal variance.
const BIAS: f64 = 10.0;
/// What a spectral radius of 1 more adds to the loss, in parts of it: narrow kernels predict a few steps best and make mass of nothing in
/// many.
const GROWTH: f64 = 100.0;

/// Policies whose spectral radius is looked at, and the products of one, over the cube of its elements.
const POLICIES: f64 = 4.0;
const SPECTRUM: f64 = 25.0;

const RIDGES: [f64; 4] = [1e-3, 1e-2, 1e-1, 1.0];
const SCALES: [f64; 6] = [1.0, 0.5, 0.7, 1.4, 2.0, 3.0];
const RATIOS: [f64; 3] = [0.7, 1.4, 2.0];
const ACTIONS: [f64; 3] = [1.0, 4.0, 8.0];

/// Lengthscales in normalised coordinates, and the ridge.
#[derive(Clone, Debug, PartialEq)]
pub struct Widths {
    /// Of each state variable (D,), in the kernel over successors.
    pub states: Vec<f64>,
    /// How much longer they are in the kernel over states with actions.
    pub ratio: f64,
    /// Of the coordinates of actions.
    pub action: f64,
    /// Noise variance, in the unit of the kernel.
    pub ridge: f64,
}

/// What is chosen among, and by which rows.
#[derive(Clone, Copy)]
pub struct Choosing<'a> {
    /// All rows.
    pub of: Chained<'a>,
    /// (n,) whether a row is held out: whole chains, or pieces of them.
    pub held: &'a [bool],
    /// The actions there are.
    pub space: &'a ActionSpace,
    /// How elements are chosen.
    pub elements: &'a ElementRule,
    /// Decides which functions are predicted.
    pub seed: u64,
    /// Asked before each kernel and each ridge: whether to go on. Without, there is no choice.
    pub keep_going: KeepGoing<'a>,
    /// The budget, asked as often after the first ridge of the first kernel. Once it is used up, the best so far is the choice.
    pub allowance: &'a Allowance,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The lengthscales and the ridge.
    pub widths: Widths,
    /// Mean squared error of the predictions over the variance of what was predicted.
    pub loss: f64,
    /// Largest spectral radius of M, under the policies that were looked at.
    pub radius: f64,
    /// Kernels that were compared.
    pub tried: usize,
    /// Whether the budget ended before all were.
    pub out_of_time: bool,
}

/// Normalisation of states, and of states with actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Normal {
    /// (D,).
    pub states: Inputs,
    /// (D + A,).
    pub inputs: Inputs,
    /// What each state variable is (D,); empty if all are real.
    pub kinds: Vec<StateKind>,
}

impl Normal {
    /// Of inputs (n, `dim` + A), row-major: states by mean and deviation, the numbers of a box by its middle and half its width. A
    /// state variable that is not real, by its `kinds` (D,), stays in its unit.
    pub fn of(inputs: &[f64], dim: usize, space: &ActionSpace, kinds: &[StateKind]) -> Self {
        let width = space.width();
        let usable = |scale: f64| if scale > 0.0 && scale.is_finite() { scale } else { 1.0 };
        let mut states = Inputs::standard(inputs, dim + width, dim);
        for d in (0..dim).filter(|&d| kinds.get(d).is_some_and(|kind| *kind != StateKind::Real)) {
            (states.shift[d], states.scale[d]) = (0.0, 1.0);
        }
        let (mut shift, mut scale) = (states.shift.clone(), states.scale.clone());
        match space {
            ActionSpace::Box { low, high } => {
                shift.extend(low.iter().zip(high).map(|(low, high)| 0.5 * (low + high)));
                scale.extend(low.iter().zip(high).map(|(low, high)| usable(0.5 * (high - low))));
            }
            ActionSpace::Discrete(_) => {
                shift.extend(std::iter::repeat_n(0.0, width));
                scale.extend(std::iter::repeat_n(1.0, width));
            }
        }
        Self { states, inputs: Inputs { shift, scale, names: None }, kinds: kinds.to_vec() }
    }
}

impl Widths {
    /// Kernels over states of these `kinds` (D,) with `width` coordinates of an action, and over states.
    pub fn kernels(&self, kinds: &[StateKind], width: usize) -> (Kernel, Kernel) {
        let inverse = |length: f64| 1.0 / (length * length);
        let of_states = self.states.iter().map(|length| inverse(*length)).collect();
        let inputs = self.states.iter().map(|length| inverse(self.ratio * length));
        let inputs = inputs.chain(std::iter::repeat_n(inverse(self.action), width)).collect();
        let of_inputs = Kernel::gaussian(1.0, BIAS, Metric::Ard(inputs));
        let of_states = Kernel::gaussian(1.0, BIAS, Metric::Ard(of_states)).with_kinds(kinds);
        let mut kinds = of_states.kinds.clone();
        if !kinds.is_empty() {
            kinds.resize(kinds.len() + width, StateKind::Real);
        }
        (of_inputs.with_kinds(&kinds), of_states)
    }

    /// The sums over `rows`, with dictionaries whose `elements` are chosen so, and these. Of rows that `usable` does not hold of no
    /// successor is one.
    ///
    /// # Errors
    /// No such row that anything followed, columns that do not fit, or a rule that chooses none or too many.
    pub fn learn(
        &self,
        normal: &Normal,
        rows: &Transitions<'_>,
        elements: &ElementRule,
        usable: &dyn Fn(usize) -> bool,
    ) -> Result<(World, ChosenElements), WorldError> {
        let (mut world, chosen) = self.begin(normal, rows, elements, usable)?;
        world.learn(rows)?;
        Ok((world, chosen))
    }

    /// [`Widths::learn`] with no row learned yet.
    pub(super) fn begin(
        &self,
        normal: &Normal,
        rows: &Transitions<'_>,
        elements: &ElementRule,
        usable: &dyn Fn(usize) -> bool,
    ) -> Result<(World, ChosenElements), WorldError> {
        let (inputs, states) = self.kernels(&normal.kinds, normal.inputs.dim() - normal.states.dim());
        let (before, after, chosen) =
            elements.choose((&normal.inputs, &inputs), (&normal.states, &states), rows, usable)?;
        let rewards = rows.rewards.len().checked_div(rows.terminated.len()).unwrap_or(0);
        Ok((World::new(before, after, rewards)?, chosen))
    }
}

/// A search under way.
struct Search<'a> {
    of: &'a Choosing<'a>,
    normal: &'a Normal,
    learned: Part,
    starts: Vec<usize>,
    /// Directions of the waves (WAVES, D), and their phases.
    waves: Vec<(Vec<f64>, f64)>,
    best: Choice,
    why: Option<WorldError>,
}

impl Choosing<'_> {
    /// Lengthscales and ridge, one coordinate after the other: the scale of all, how much longer they are before than after, the
    /// actions' own, then twice and four times the length of each variable alone.
    ///
    /// # Errors
    /// Why the last model was refused, where all of them were; or stopped.
    pub fn choose(&self, normal: &Normal) -> Result<Choice, WorldError> {
        let mut search = Search::new(self, normal);
        for scale in SCALES {
            let states = vec![scale; normal.states.dim()];
            search.attempt(&|w| Widths { states: states.clone(), ..w });
        }
        if !search.best.loss.is_finite() {
            let tried = search.best.tried;
            let why = search.why.unwrap_or(WorldError::Unpredicted);
            let in_vain = search.best.out_of_time && why != WorldError::Stopped;
            return Err(if in_vain { WorldError::OutOfTime { tried } } else { why });
        }
        for ratio in RATIOS {
            search.attempt(&|w| Widths { ratio, ..w });
        }
        if self.is_acted() {
            for action in ACTIONS {
                search.attempt(&|w| Widths { action, ..w });
            }
        }
        for d in (0..normal.states.dim()).filter(|_| normal.states.dim() > 1) {
            for _ in 0..2 {
                let longer = |mut w: Widths| {
                    w.states[d] *= 2.0;
                    w
                };
                if !search.attempt(&longer) {
                    break;
                }
            }
        }
        for by in [0.8, 1.25] {
            search.attempt(&|w| Widths { states: w.states.iter().map(|l| l * by).collect(), ..w });
        }
        if search.why == Some(WorldError::Stopped) { Err(WorldError::Stopped) } else { Ok(search.best) }
    }

    /// Whether there is more than one action.
    fn is_acted(&self) -> bool {
        match self.space {
            ActionSpace::Discrete(count) => *count > 1,
            ActionSpace::Box { low, high } => low.iter().zip(high).any(|(low, high)| low < high),
        }
    }
}

impl<'a> Search<'a> {
    fn new(of: &'a Choosing<'a>, normal: &'a Normal) -> Self {
        let spread = |numbers: Vec<usize>, most: usize| -> Vec<usize> {
            let step = numbers.len().div_ceil(most).max(1);
            numbers.into_iter().step_by(step).collect()
        };
        let n = of.held.len();
        let learned = spread((0..n).filter(|&i| !of.held[i]).collect(), ROWS_MAX);
        let starts = spread((0..n).filter(|&i| of.held[i]).collect(), STARTS_MAX);
        let dim = normal.states.dim();
        let wave = |k: usize| {
            let draw = |what: usize| mix(&[of.seed, k as u64, what as u64]);
            // Of two variables: one that cannot be predicted must not hide all others.
            let mut direction = vec![0.0; dim];
            for d in [k % dim, (k + 1 + k / dim) % dim] {
                direction[d] += random::normal(draw(d));
            }
            (direction, std::f64::consts::TAU * uniform(draw(dim)))
        };
        let widths = Widths { states: vec![1.0; dim], ratio: 1.0, action: 2.0, ridge: RIDGES[1] };
        Self {
            learned: Part::of(&of.of.rows, &learned),
            starts,
            waves: (0..WAVES).map(wave).collect(),
            best: Choice { widths, loss: f64::INFINITY, radius: 0.0, tried: 0, out_of_time: false },
            why: None,
            of,
            normal,
        }
    }

    /// Take what `change` makes of the best so far if its loss is below that one's, whatever the ridge. Whether it was.
    fn attempt(&mut self, change: &dyn Fn(Widths) -> Widths) -> bool {
        if !self.goes_on() {
            return false;
        }
        let widths = change(self.best.widths.clone());
        self.best.tried += 1;
        let allowance = self.of.allowance;
        let world = match widths.learn(self.normal, &self.learned.rows(), self.of.elements, &|_| true) {
            Ok((world, _)) => {
                allowance.spend(learning(&world, self.learned.terminated.len()));
                world
            }
            Err(why) => {
                self.why = Some(why);
                return false;
            }
        };
        let (mut least, mut ridge, mut largest) = (f64::INFINITY, widths.ridge, 0.0);
        for (k, each) in RIDGES.into_iter().enumerate() {
            if k > 0 && !self.goes_on() {
                break;
            }
            allowance.spend(self.judging(&world));
            match world.solve(each, LOST_MAX) {
                Ok(dynamics) => {
                    let radius = self.radius(&dynamics);
                    let loss = self.loss(&dynamics) * (1.0 + GROWTH * (radius - RADIUS_DOUBTED).max(0.0));
                    if loss < least {
                        (least, ridge, largest) = (loss, each, radius);
                    }
                }
                Err(why) => self.why = Some(why),
            }
        }
        let better = least < self.best.loss;
        if better {
            let widths = Widths { ridge, ..widths };
            self.best = Choice { widths, loss: least, radius: largest, ..self.best };
        }
        better
    }

    /// Whether another kernel or ridge is to be tried. The first is, whatever the budget.
    fn goes_on(&mut self) -> bool {
        if !(self.of.keep_going)() {
            self.why = Some(WorldError::Stopped);
            return false;
        }
        self.best.out_of_time |= self.best.tried > 0 && !self.of.allowance.left();
        !self.best.out_of_time
    }

    /// Products of a solution, its radius and its loss.
    fn judging(&self, world: &World) -> f64 {
        let (elements, successors) = (world.before().len(), world.after().len());
        let choices = if self.of.is_acted() { self.of.space.candidate_count().min(CHOICES_MAX) } else { 1 };
        let (d, m, asked) = (elements as f64, successors as f64, (successors * choices) as f64);
        let solved = allowance::solution(elements) + d * d * m;
        let table = allowance::covariances(asked * d, self.normal.inputs.dim()) + asked * d * (d + m);
        let led = (self.starts.len() * STEPS) as f64 * d * (d + 2.0 * m);
        solved + table + POLICIES * SPECTRUM * allowance::solution(successors) + led
    }

    /// Spectral radius of M, above 1 where policies make mass of nothing: the largest of the policy that takes all actions alike and of
    /// some that take one.
    fn radius(&self, dynamics: &Dynamics) -> f64 {
        let (mut candidates, width) = (self.of.space.candidates(), self.of.space.width());
        if !self.of.is_acted() {
            candidates.truncate(width);
        }
        let step = (candidates.len() / width).div_ceil(CHOICES_MAX);
        let candidates: Vec<f64> = candidates.chunks_exact(width).step_by(step).flatten().copied().collect();
        let choices = candidates.len() / width;
        let Ok(table) = dynamics.table(&dynamics.after().states(), &candidates) else { return f64::INFINITY };
        let (m, n) = (table.states(), table.states() * choices);
        let even = vec![1.0 / choices as f64; n];
        let one = |action: usize| (0..m).flat_map(move |_| (0..choices).map(move |a| f64::from(u8::from(a == action))));
        let some = [0, choices / 2, choices - 1].map(|action| one(action).collect());
        let radius = |shares: &Vec<f64>| table.motion(shares).map_or(f64::INFINITY, |of| of.radius());
        std::iter::once(&even).chain(&some).map(radius).fold(0.0, f64::max)
    }

    /// Mean over steps and functions of the squared error over the variance of what came.
    fn loss(&self, dynamics: &Dynamics) -> f64 {
        let normal = &self.normal.states;
        let functions = |state: &[f64]| {
            let z = normal.normalise(state);
            let waves = self
                .waves
                .iter()
                .map(|(direction, phase)| (direction.iter().zip(&z).map(|(w, z)| w * z).sum::<f64>() + phase).cos());
            z.iter().copied().chain(waves).collect::<Vec<f64>>()
        };
        let (mut sum, mut count) = (0.0, 0.0);
        let of = normal.dim() + WAVES;
        for ahead in dynamics.ahead(&self.of.of, &self.starts, &functions, STEPS) {
            for found in (0..of).filter_map(|k| ahead.error(k, of)).filter(|found| found.spread > 0.0) {
                sum += (found.error / found.spread).powi(2);
                count += 1.0;
            }
        }
        let loss = sum / count;
        if loss.is_nan() { f64::INFINITY } else { loss }
    }
}

/// Products of the choice of both dictionaries of a world, and of its sums over `rows`.
fn learning(world: &World, rows: usize) -> f64 {
    let (before, after, n) = (world.before(), world.after(), rows as f64);
    let (d, m) = (before.len() as f64, after.len() as f64);
    let features = allowance::covariances(n * d, before.dim()) + allowance::covariances(n * m, after.dim());
    let chosen =
        allowance::pivots(rows, before.len(), before.dim()) + allowance::pivots(rows, after.len(), after.dim());
    chosen + features + n * (d * d + d * m + m * m)
}
