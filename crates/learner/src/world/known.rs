//! What is asked of a model of the transition: plans, courses, and how far these can be believed.

use super::{Ahead, Course, Dynamics, Error, Evaluation, Motion, Plan, Planning, Table, Transitions, WorldError};
use super::{RADIUS_DOUBTED, UNSUPPORTED_ABOVE, UNSUPPORTED_MAX};
use crate::action::{ActionSpace, first_largest};
use crate::math::dense::{Matrix, Op, View, dot, product};
use crate::math::kernel::Points;
use crate::snapshot::{Ask, Snapshot};
use std::borrow::Cow;

/// States of rows, at most, at which a known reward is put into a published plan, and this is compared with the plan.
const STATES_MAX: usize = 120;
/// Ridge of the least squares by which a known reward is put into it.
const RIDGE: f64 = 1e-3;
/// Share of the states in which the published plan may prefer another action than the plan before it is doubted.
const ALIKE_MIN: f64 = 0.9;
/// Values as near as this part of their range are equal.
const EQUAL: f64 = 0.01;
/// Rows whose actions stand for those of the policy that acted: of few states more of them, in all about `NEIGHBOURS`.
const NEIGHBOURS_EACH: (usize, usize) = (8, 64);
const NEIGHBOURS: usize = 1200;
/// Pairs of a prediction and what came that an error takes.
const PAIRS_MIN: usize = 10;
/// Error over spread up to which predictions are of use.
const OF_USE: f64 = 0.5;
/// What counts as beyond the rows, and how much of an answer may.
const LIMITS: (f64, f64) = (UNSUPPORTED_ABOVE, UNSUPPORTED_MAX);

/// The reward that is planned for.
#[derive(Clone, Copy)]
pub enum Wanted<'a> {
    /// A function of the numbers of a state and of an action behind them, known everywhere.
    Known(&'a dyn Fn(&[f64]) -> f64),
    /// The reward of this number, as rows have it.
    Observed(usize),
}

impl Wanted<'_> {
    fn observed(&self) -> Option<usize> {
        if let Self::Observed(h) = self { Some(*h) } else { None }
    }
}

/// A solved model, and rows that it has learned.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The model.
    pub dynamics: &'a Dynamics,
    /// The actions there are.
    pub space: &'a ActionSpace,
    /// All rows that it has learned, or some of them.
    pub rows: Transitions<'a>,
    /// Those of them whose errors tell how sure an answer is, and how many learned rows each of these stands for.
    pub errors: (Transitions<'a>, f64),
}

/// A policy in some states (n, D).
#[derive(Clone, Debug)]
pub struct Acting {
    /// (n A, D + width) the states with each of the policy's actions there.
    pub inputs: Vec<f64>,
    /// The model at these.
    pub table: Table,
    /// (n, A) the probabilities of the actions.
    pub shares: Vec<f64>,
}

impl Dynamics {
    /// A policy that takes, in each of some states, each of A actions with these probabilities (n, A): `inputs` (n A, D + width) are the
    /// states with the actions.
    ///
    /// # Errors
    /// As [`Dynamics::entries`].
    pub fn acting(&self, inputs: Vec<f64>, actions: usize, shares: Vec<f64>) -> Result<Acting, WorldError> {
        Ok(Acting { table: self.entries(&inputs, actions)?, inputs, shares })
    }
}

impl Acting {
    /// Features of D (d, 1) in the mean over its states.
    fn mean_features(&self) -> Matrix {
        let states = self.table.states() as f64;
        let shares: Vec<f64> = self.shares.iter().map(|share| share / states).collect();
        product(self.table.features.view(), Op::Plain, View::column(&shares), Op::Plain)
    }

    /// Where it leads from C, in whose states it acts.
    ///
    /// # Errors
    /// As [`Table::motion`].
    pub fn motion(&self) -> Result<Motion<'_>, WorldError> {
        let mut motion = self.table.motion(&self.shares)?;
        motion.inputs = &self.inputs;
        Ok(motion)
    }
}

/// A plan, and what it does.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The plan at C.
    pub plan: Plan,
    /// What it does there.
    pub model: Acting,
    /// What it does in the states that it starts in.
    pub from: Acting,
    /// Mean over these of the best action's value.
    pub value: f64,
}

/// A plan, and the values of actions that are published of it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan at C.
    pub plan: Plan,
    /// Values of actions like any other.
    pub snapshot: Snapshot,
    /// Mean over the starts of the best action's value, and its deviation, where it has one. A plan on the hull has neither where the
    /// tables as they are have no values.
    pub value: Option<f64>,
    /// See there.
    pub error: Option<f64>,
    /// Spectral radius of M under the preferred actions; none where their system has no values.
    pub radius: Option<f64>,
    /// Share of the mass from the starts that no row supports.
    pub unsupported: Option<f64>,
    /// Share of states in which the published values prefer the plan's action, or one as good.
    pub alike: f64,
    /// Warnings, as sentences.
    pub doubts: Vec<String>,
}

/// What a policy is worth by the model.
#[derive(Clone, Debug)]
pub struct Valued {
    /// Mean over the starts, and its deviation.
    pub value: f64,
    /// See there.
    pub error: f64,
    /// Spectral radius of M under the policy.
    pub radius: f64,
    /// Share of the mass from the starts that no row supports.
    pub unsupported: f64,
    /// Why the deviation is not to be stated; empty where it is.
    pub refused: Vec<String>,
}

/// A table, projected where there is a hull to project on.
fn on<'a>(hull: Option<&Matrix>, table: &'a Table) -> Cow<'a, Table> {
    hull.map_or(Cow::Borrowed(table), |hull| Cow::Owned(table.projected(hull)))
}

impl Known<'_> {
    /// Plan for a reward, valued in the states `starts` (k, D).
    ///
    /// # Errors
    /// As [`Known::decided`] and [`Motion::support`]: more than [`UNSUPPORTED_MAX`] of what follows from the starts is supported by no row.
    pub fn plan(&self, wanted: Wanted<'_>, discount: f64, starts: &[f64]) -> Result<Planned, WorldError> {
        self.planned((wanted, discount), starts, None)
    }

    /// [`Known::plan`] by tables that are projected on the hull of C (Y6): its sweeps settle even where the model makes mass of nothing. It
    /// prefers actions, and its values are none: stated and published are the values of what it prefers by the tables as they are, or
    /// where these have none, no value and what the actions were preferred by. 0.2 ms for each action of each state.
    ///
    /// # Errors
    /// As [`Known::plan`].
    pub fn plan_on_hull(&self, wanted: Wanted<'_>, discount: f64, starts: &[f64]) -> Result<Planned, WorldError> {
        self.planned((wanted, discount), starts, Some(&self.dynamics.hull()))
    }

    fn planned(
        &self,
        (wanted, discount): (Wanted<'_>, f64),
        starts: &[f64],
        hull: Option<&Matrix>,
    ) -> Result<Planned, WorldError> {
        let Decided { plan, model, from, value } = self.deciding((wanted, discount), starts, hull)?;
        let motion = model.motion()?;
        let (mut doubts, mut unsupported) = (Vec::new(), None);
        let evaluation = match motion.evaluate(&self.column(wanted, &model.inputs, &model.table), discount) {
            Ok(evaluation) => {
                doubts.extend(evaluation.doubt());
                unsupported = Some(motion.support((&from.table, &from.shares), discount, LIMITS)?);
                Some(evaluation)
            }
            Err(why @ WorldError::Unstable { .. }) => {
                doubts.push(match hull {
                    None => format!("{why}; the plan stands within its bounds, and the model has no deviations"),
                    Some(_) => {
                        format!("{why}; the written model ranks actions, and what the plan is worth is not known")
                    }
                });
                None
            }
            Err(why) => return Err(why),
        };
        if !plan.settled() {
            doubts.push(format!("the sweeps did not come to rest (change {:.1e}): doubt the values", plan.change));
        }
        let (value, values) = match (hull, &evaluation) {
            (None, _) => (Some(value), &plan.values[..]),
            (Some(_), None) => (None, &plan.values[..]),
            (Some(_), Some(evaluation)) => {
                let q = evaluation.action_values(&from.table, &self.column(wanted, &from.inputs, &from.table))?;
                let value = dot(q.col(0), &from.shares) / from.table.states() as f64;
                (Some(value), evaluation.values().col(0))
            }
        };
        let some = self.some();
        let at_some = (&some[..], &self.dynamics.entries(&some, model.table.actions())?);
        let range = plan.bounds.1 - plan.bounds.0;
        let (snapshot, error) =
            self.published((wanted, discount), (values, range), (evaluation.as_ref(), &from), at_some)?;
        let alike = self.alike(wanted, &plan, &snapshot, (at_some.0, &*on(hull, at_some.1)))?;
        if alike < ALIKE_MIN {
            doubts.push(format!(
                "the written model prefers the plan's action in {:.0} % of the states: the reward jumps, or actions hardly differ; more \
                 elements mend the first",
                100.0 * alike
            ));
        }
        let radius = evaluation.map(|evaluation| evaluation.radius());
        Ok(Planned { plan, snapshot, value, error, radius, unsupported, alike, doubts })
    }

    /// What a plan does at C and in the states `starts` (k, D).
    ///
    /// # Errors
    /// As [`Table::plan`], or a known reward is not finite there.
    pub fn decided(&self, wanted: Wanted<'_>, discount: f64, starts: &[f64]) -> Result<Decided, WorldError> {
        self.deciding((wanted, discount), starts, None)
    }

    /// The same, by projected tables with a `hull`; the tables of the answer are those as they are.
    fn deciding(
        &self,
        (wanted, discount): (Wanted<'_>, f64),
        starts: &[f64],
        hull: Option<&Matrix>,
    ) -> Result<Decided, WorldError> {
        let choices = self.space.candidate_count();
        let at = |states: &[f64]| {
            let inputs = self.pairs(states);
            let table = self.dynamics.entries(&inputs, choices)?;
            let rewards = self.rewards(wanted, &inputs, &table);
            match rewards.iter().find(|reward| !reward.is_finite()) {
                Some(wrong) => Err(WorldError::Reward(*wrong)),
                None => Ok((inputs, table, rewards)),
            }
        };
        let (inputs, table, rewards) = at(&self.dynamics.after().states())?;
        let unsupported_above = Some(UNSUPPORTED_ABOVE);
        let planned = on(hull, &table);
        let plan = planned.plan(&Planning { rewards: &rewards, discount, bounds: None, unsupported_above })?;
        let shares = Plan::policy(choices, &plan.action_values(&planned, &rewards)?);
        let model = Acting { inputs, table, shares };
        let (inputs, table, rewards) = at(starts)?;
        let q = plan.action_values(&on(hull, &table), &rewards)?;
        let shares = Plan::policy(choices, &q);
        let value = dot(&q, &shares) / table.states() as f64;
        Ok(Decided { plan, model, from: Acting { inputs, table, shares }, value })
    }

    /// The policy that takes, in each of some states (n, D), the action with the coordinates that `choose` gives for it (width,).
    ///
    /// # Errors
    /// Lengths that do not fit.
    pub fn choosing(&self, choose: &dyn Fn(&[f64]) -> Vec<f64>, states: &[f64]) -> Result<Acting, WorldError> {
        let each = states.chunks_exact(self.dynamics.after().dim());
        let shares = vec![1.0; each.len()];
        let inputs: Vec<f64> = each.flat_map(|state| [state, &choose(state)].concat()).collect();
        self.dynamics.acting(inputs, 1, shares)
    }

    /// The policy that acted, in some states (n, D): the actions of the rows nearest to each, in shares of the kernel.
    ///
    /// # Errors
    /// Lengths that do not fit, or no rows.
    pub fn acted(&self, states: &[f64]) -> Result<Acting, WorldError> {
        let (all, dim, n) = (self.dynamics.before().dim(), self.dynamics.after().dim(), self.rows.terminated.len());
        if n == 0 {
            return Err(WorldError::Empty);
        }
        let near = self.near(&mut self.rows.inputs.chunks_exact(all).map(|input| &input[..dim]), states);
        let (least, most) = NEIGHBOURS_EACH;
        let each = (NEIGHBOURS / (states.len() / dim).max(1)).clamp(least, most);
        let (count, bias) = (each.min(n), self.dynamics.before().dictionary().kernel().bias_variance);
        // Where there are fewer actions than rows that stand for them, each is asked about once.
        let choices = self.space.choices();
        let is_few = (1..count).contains(&choices);
        let (mut inputs, mut shares, mut order) = (Vec::new(), Vec::new(), (0..n).collect::<Vec<usize>>());
        for (j, state) in states.chunks_exact(dim).enumerate() {
            let of = near.col(j);
            order.iter_mut().enumerate().for_each(|(i, place)| *place = i);
            // Of equals the newest.
            order.select_nth_unstable_by(count - 1, |&a, &b| of[b].total_cmp(&of[a]).then(b.cmp(&a)));
            let each: Vec<f64> = order[..count].iter().map(|&i| (of[i] - bias).max(0.0)).collect();
            let sum: f64 = each.iter().sum();
            let first = shares.len();
            if is_few {
                inputs.extend(self.pairs(state));
                shares.resize(first + choices, 0.0);
            }
            for (&i, weight) in order[..count].iter().zip(&each) {
                let action = &self.rows.inputs[i * all + dim..(i + 1) * all];
                let share = if sum > 0.0 { weight / sum } else { 1.0 / count as f64 };
                if is_few {
                    shares[first + first_largest(action)] += share;
                } else {
                    inputs.extend_from_slice(state);
                    inputs.extend_from_slice(action);
                    shares.push(share);
                }
            }
        }
        self.dynamics.acting(inputs, if is_few { choices } else { count }, shares)
    }

    /// A policy that takes, in each of some states (n, D), the actions with these coordinates (A, width) in these shares (A,): those that
    /// `answers` has for the nearest of the states (k, D) in which it was asked.
    ///
    /// # Errors
    /// Lengths that do not fit, or no state in which it was asked.
    pub fn answered(
        &self,
        asked: &[f64],
        answers: &dyn Fn(usize) -> (Vec<f64>, Vec<f64>),
        states: &[f64],
    ) -> Result<Acting, WorldError> {
        let (dim, width) = (self.dynamics.after().dim(), self.space.width());
        if asked.is_empty() {
            return Err(WorldError::Empty);
        }
        let near = self.near(&mut asked.chunks_exact(dim), states);
        let (mut inputs, mut shares, mut actions) = (Vec::new(), Vec::new(), 1);
        for (j, state) in states.chunks_exact(dim).enumerate() {
            let (coordinates, of) = answers(first_largest(near.col(j)));
            actions = of.len();
            coordinates.chunks_exact(width).for_each(|action| {
                inputs.extend_from_slice(state);
                inputs.extend_from_slice(action);
            });
            shares.extend(of);
        }
        self.dynamics.acting(inputs, actions, shares)
    }

    /// The kernel between `places` and `states` (n, D), one column for each of these, whatever is done there.
    fn near(&self, places: &mut dyn Iterator<Item = &[f64]>, states: &[f64]) -> Matrix {
        let before = self.dynamics.before();
        let (kernel, all, dim) = (before.dictionary().kernel(), before.dim(), self.dynamics.after().dim());
        let alone = |states: &mut dyn Iterator<Item = &[f64]>| {
            let mut inputs = Vec::new();
            states.for_each(|state| {
                inputs.extend_from_slice(state);
                inputs.resize(inputs.len() + all - dim, 0.0);
            });
            kernel.project(all, &before.inputs().normalise(&inputs))
        };
        let (places, here) = (alone(places), alone(&mut states.chunks_exact(dim)));
        let points = Points::new(kernel.projected_dim(all), &places);
        let mut near = Matrix::zeros(points.len(), states.len() / dim);
        kernel.block(&points, &here, &mut near.view_mut());
        near
    }

    /// What a policy with this `motion` is worth, which acts so in some states (`starts`), over which the mean is taken: a second opinion
    /// beside a critic's values. The deviation contains what the rows leave open, and the states. With more than [`UNSUPPORTED_MAX`] of the
    /// mass beyond the rows it is refused, and with more than `max` there is no value.
    ///
    /// # Errors
    /// As [`Motion::evaluate`] and [`Motion::support`]; a known reward needs the motion that [`Acting::motion`] gives.
    pub fn value(
        &self,
        wanted: Wanted<'_>,
        (discount, max): (f64, f64),
        motion: &Motion<'_>,
        starts: &Acting,
    ) -> Result<Valued, WorldError> {
        let (dynamics, observed) = (self.dynamics, wanted.observed());
        let Acting { inputs, table: at, shares: starting } = starts;
        let found = motion.evaluate(&self.column(wanted, motion.inputs, motion.of().0), discount)?;
        let q = found.action_values(at, &self.column(wanted, inputs, at))?;
        let n = at.states() as f64;
        let each = q.col(0).chunks_exact(at.actions()).zip(starting.chunks_exact(at.actions()));
        let values: Vec<f64> = each.map(|(q, shares)| dot(q, shares)).collect();
        let value = values.iter().sum::<f64>() / n;
        let between = values.iter().map(|v| (v - value).powi(2)).sum::<f64>() / (n - 1.0).max(1.0) / n;
        let pooled: Vec<f64> = starting.iter().map(|share| share / n).collect();
        let mut deviation = found.deviation(dynamics, (&at.pooled(), &pooled), 0, observed)?;
        deviation.add(&self.errors.0, self.errors.1);
        // The prior variance of a weight is what makes the noise over it the ridge.
        let open = deviation.variance(deviation.open() / dynamics.ridge)[0];
        let (unsupported, why) = match motion.support((at, starting), discount, LIMITS) {
            Ok(share) => (share, None),
            Err(why @ WorldError::Unsupported { share, .. }) if share <= max => (share, Some(why.to_string())),
            Err(why) => return Err(why),
        };
        let refused = why.into_iter().chain(found.doubt()).collect();
        Ok(Valued { value, error: (between + open).sqrt(), radius: found.radius(), unsupported, refused })
    }

    /// Inputs of Q: each of some states (n, D) with each candidate.
    fn pairs(&self, states: &[f64]) -> Vec<f64> {
        let (candidates, width) = (self.space.candidates(), self.space.width());
        let mut out = Vec::with_capacity(states.len() * candidates.len());
        for state in states.chunks_exact(self.dynamics.after().dim()) {
            candidates.chunks_exact(width).for_each(|action| {
                out.extend_from_slice(state);
                out.extend_from_slice(action);
            });
        }
        out
    }

    /// A reward at the entries of a table of `inputs`.
    fn rewards(&self, wanted: Wanted<'_>, inputs: &[f64], table: &Table) -> Vec<f64> {
        match wanted {
            Wanted::Known(reward) => self.known_rewards(reward, inputs),
            Wanted::Observed(h) => table.rewards().col(h).to_vec(),
        }
    }

    /// The same as a column.
    fn column(&self, wanted: Wanted<'_>, inputs: &[f64], table: &Table) -> Matrix {
        let rewards = self.rewards(wanted, inputs, table);
        Matrix::from_columns(rewards.len(), 1, rewards)
    }

    fn known_rewards(&self, reward: &dyn Fn(&[f64]) -> f64, inputs: &[f64]) -> Vec<f64> {
        let dim = self.dynamics.after().dim();
        let value = |input: &[f64]| {
            let (state, action) = input.split_at(dim);
            reward(&[state, &self.space.action_of(action)].concat())
        };
        inputs.chunks_exact(self.dynamics.before().dim()).map(value).collect()
    }

    /// Each candidate in states of rows that are spread over all of them.
    fn some(&self) -> Vec<f64> {
        let (all, dim, n) = (self.dynamics.before().dim(), self.dynamics.after().dim(), self.rows.terminated.len());
        let places = (0..n).step_by(n.div_ceil(STATES_MAX).max(1));
        let states: Vec<f64> = places.flat_map(|i| self.rows.inputs[i * all..i * all + dim].to_vec()).collect();
        self.pairs(&states)
    }

    /// The values of actions as they are published, of `values` at C within a `range`, and the deviation of the value at the starts, by the
    /// evaluation of the plan. A known reward is put in at some inputs with their table, those that rows support.
    fn published(
        &self,
        (wanted, discount): (Wanted<'_>, f64),
        (values, range): (&[f64], f64),
        (evaluation, from): (Option<&Evaluation>, &Acting),
        (some, at_some): (&[f64], &Table),
    ) -> Result<(Snapshot, Option<f64>), WorldError> {
        let (dynamics, observed) = (self.dynamics, wanted.observed());
        let mut weights = dynamics.weights(values, discount, observed);
        if let Wanted::Known(reward) = wanted {
            let near = some.chunks_exact(dynamics.before().dim()).zip(at_some.unsupported(UNSUPPORTED_ABOVE));
            let near: Vec<f64> = near.filter(|(_, far)| !far).flat_map(|(input, _)| input.to_vec()).collect();
            let inputs = if near.is_empty() { some } else { &near };
            let added = dynamics.nearest(inputs, &self.known_rewards(reward, inputs), RIDGE)?;
            weights.iter_mut().zip(added).for_each(|(weight, more)| *weight += more);
        }
        let mut error = None;
        let spread = match evaluation {
            Some(evaluation) => {
                // Noise over signal is the ridge; without noise something is left open all the same.
                let prior = |square: f64| (square / dynamics.ridge).max((1e-6 * range).powi(2)).max(f64::MIN_POSITIVE);
                let (signal, covariance) = evaluation.covariance(dynamics, self.errors, (0, observed), prior)?;
                let mean = from.mean_features();
                let turned = product(covariance.view(), Op::Plain, mean.view(), Op::Plain);
                // Without noise rounding may leave less than nothing of it.
                error = Some(dot(mean.col(0), turned.col(0)).max(0.0).sqrt());
                Some((signal, covariance))
            }
            None => None,
        };
        let spread = spread.as_ref().map(|(signal, covariance)| (*signal, covariance));
        Ok((dynamics.snapshot(self.space, &weights, spread, discount), error))
    }

    /// Share of some states in which the published values prefer an action that is as good by the plan, at their inputs and table.
    fn alike(
        &self,
        wanted: Wanted<'_>,
        plan: &Plan,
        snapshot: &Snapshot,
        (inputs, table): (&[f64], &Table),
    ) -> Result<f64, WorldError> {
        let (planned, choices) = (plan.action_values(table, &self.rewards(wanted, inputs, table))?, table.actions());
        let Ok(written) = snapshot.evaluate(inputs, Ask::MEAN) else { return Ok(0.0) };
        let (mut same, mut all) = (0.0, 0.0);
        for (planned, written) in planned.chunks_exact(choices).zip(written.mean.as_slice().chunks_exact(choices)) {
            let best = planned[first_largest(planned)];
            let least = planned.iter().copied().fold(best, f64::min);
            same += f64::from(u8::from(best - planned[first_largest(written)] <= EQUAL * (best - least)));
            all += 1.0;
        }
        Ok(same / all)
    }
}

impl Evaluation {
    /// A sentence about the mass of the policy, where there is too much of it. Too little there cannot be: the constant of the kernels
    /// holds it.
    pub fn doubt(&self) -> Option<String> {
        self.is_doubtful().then(|| {
            format!(
                "the model makes mass of nothing (spectral radius {:.4}, above {RADIUS_DOUBTED}): doubt the values; more rows or \
                 elements mend it",
                self.radius()
            )
        })
    }
}

/// Where a policy leads from some states, over which all is a mean.
#[derive(Clone, Debug)]
pub struct Led {
    /// After 1, 2, .. steps.
    pub course: Vec<Course>,
    /// Share of the mass that no row supports; none where the system has no values.
    pub unsupported: Option<f64>,
    /// Warnings, as sentences.
    pub doubts: Vec<String>,
}

impl Dynamics {
    /// The course of `functions` of the state (D,) under a policy with this `motion`, which acts so in some states (`at`), over which the
    /// mean is taken. `ends` says whether any row has terminated.
    ///
    /// # Errors
    /// As [`Dynamics::course`] and [`Motion::support`].
    pub fn led(
        &self,
        motion: &Motion<'_>,
        Acting { table: at, shares: starting, .. }: &Acting,
        functions: &dyn Fn(&[f64]) -> Vec<f64>,
        (steps, ends): (usize, bool),
    ) -> Result<Led, WorldError> {
        let starts = at.states() as f64;
        let pooled: Vec<f64> = starting.iter().map(|share| share / starts).collect();
        let course = self.course(motion.of(), (&at.pooled(), &pooled), functions, (steps, ends))?;
        // A discount whose horizon is the course's.
        let discount = 1.0 - 1.0 / (steps as f64 + 1.0);
        let mut doubts = Vec::new();
        let unsupported = match motion.support((at, starting), discount, LIMITS) {
            Ok(share) => Some(share),
            Err(why @ WorldError::Unstable { .. }) => {
                doubts.push(format!("{why}; believe the course no further than its reach"));
                None
            }
            Err(why) => return Err(why),
        };
        Ok(Led { course, unsupported, doubts })
    }
}

/// How predictions did, so many steps ahead, beside what came.
#[derive(Clone, Debug)]
pub struct Reach {
    ahead: Vec<Ahead>,
    of: usize,
}

impl Reach {
    /// Of `of` functions.
    pub fn new(ahead: Vec<Ahead>, of: usize) -> Self {
        Self { ahead, of }
    }

    /// How predictions of function k did, `step` + 1 steps ahead, where enough chains are so long.
    pub fn error(&self, k: usize, step: usize) -> Option<Error> {
        self.ahead.get(step)?.error(k, self.of).filter(|error| error.pairs >= PAIRS_MIN)
    }

    /// Steps up to which predictions of function k are of use: their error is at most half of the spread of what came. And whether chains
    /// are long enough to tell what follows.
    pub fn steps(&self, k: usize) -> (usize, bool) {
        let known: Vec<Error> = (0..self.ahead.len()).map_while(|step| self.error(k, step)).collect();
        let within = known.iter().take_while(|found| found.error <= OF_USE * found.spread).count();
        (within, within < known.len() || known.len() == self.ahead.len())
    }
}
