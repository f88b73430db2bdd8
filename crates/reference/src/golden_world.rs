//! Reference cases of tests/golden-world, and what a model of the transition says of each.

use crate::{TESTS, numbers};
use criticd_learner::action::{ActionSpace, first_largest};
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::hull::{Reach, cover};
use criticd_learner::math::kernel::{Kernel, Metric, Points};
use criticd_learner::math::pursuit::{Pursued, Pursuit, by_targets};
use criticd_learner::snapshot::Inputs;
use criticd_learner::world::{Basis, Dynamics, Plan, Planning, Table, Transitions, World, course};
use serde_json::{Map, Value, json};

/// Largest pursuit, successor set and horizon of a case that does not state them.
const DEFAULT_MAX: usize = 100;

pub fn read(name: &str) -> Value {
    let path = format!("{TESTS}/golden-world/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The given part of a case.
pub struct GivenCase {
    json: Value,
    /// Coordinates (A, width) of the actions that tables have.
    actions: Vec<f64>,
    width: usize,
    dim: usize,
    before: Kernel,
    after: Kernel,
    inputs: Vec<f64>,
    states: Vec<f64>,
    successors: Vec<f64>,
    rewards: Vec<f64>,
    terminated: Vec<bool>,
}

fn kernel(of: &Value) -> Kernel {
    let number = |key: &str, or: f64| of[key].as_f64().unwrap_or(or);
    Kernel::gaussian(number("v0", 1.0), number("b", 0.0), Metric::Ard(numbers(&of["relevance"])))
}

/// `rows` of lists of `width` numbers.
fn listed(values: &[f64], width: usize) -> Value {
    values.chunks_exact(width).map(<[f64]>::to_vec).collect::<Vec<_>>().into()
}

/// A matrix as a list of rows.
fn lists(of: &Matrix) -> Value {
    listed(&(0..of.rows()).flat_map(|i| (0..of.cols()).map(move |j| of.at(i, j))).collect::<Vec<_>>(), of.cols().max(1))
}

impl GivenCase {
    /// # Panics
    /// If the case is not of the format.
    pub fn new(case: &Value) -> Self {
        let action = &case["action"];
        let count = action["n"].as_u64().unwrap_or(1) as usize;
        let boxed = action["kind"] == "box";
        let space = if boxed {
            ActionSpace::Box { low: vec![f64::MIN; count], high: vec![f64::MAX; count] }
        } else {
            ActionSpace::Discrete(count)
        };
        let actions = if boxed { numbers(&action["candidates"]) } else { space.candidates() };
        let rows = case["rows"].as_array().unwrap();
        let dim = numbers(&rows[0]["x"]).len();
        let (mut inputs, mut states, mut successors) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            states.extend(numbers(&row["x"]));
            inputs.extend(numbers(&row["x"]));
            space.append(&numbers(&row["action"]), &mut inputs).unwrap();
            successors.extend(numbers(&row["x_next"]));
        }
        Self {
            actions,
            width: space.width(),
            dim,
            before: kernel(&case["kernel_input"]),
            after: kernel(&case["kernel_output"]),
            inputs,
            states,
            successors,
            rewards: rows.iter().map(|row| row["r"].as_f64().unwrap()).collect(),
            terminated: rows.iter().map(|row| row["terminated"].as_bool().unwrap_or(false)).collect(),
            json: case.clone(),
        }
    }

    fn number(&self, key: &str, or: f64) -> f64 {
        self.json[key].as_f64().unwrap_or(or)
    }

    fn whole(&self, key: &str) -> usize {
        self.json[key].as_u64().map_or(DEFAULT_MAX, |n| n as usize)
    }

    pub fn rows(&self) -> Transitions<'_> {
        let Self { inputs, successors, rewards, terminated, .. } = self;
        Transitions { inputs, successors, rewards, terminated }
    }

    /// Kernels over states with actions, and over states.
    pub fn kernels(&self) -> (&Kernel, &Kernel) {
        (&self.before, &self.after)
    }

    pub fn discount(&self) -> f64 {
        self.number("discount", 0.9)
    }

    pub fn ridge(&self) -> f64 {
        self.number("noise_variance", 1.0)
    }

    pub fn query(&self) -> Vec<f64> {
        numbers(&self.json["query"])
    }

    /// Coordinates (A, width) of the actions.
    pub fn actions(&self) -> &[f64] {
        &self.actions
    }

    /// Number of actions A.
    pub fn choices(&self) -> usize {
        self.actions.len() / self.width
    }

    /// Rows that did not terminate.
    fn followed(&self) -> Vec<usize> {
        (0..self.terminated.len()).filter(|&i| !self.terminated[i]).collect()
    }

    fn successor(&self, i: usize) -> &[f64] {
        &self.successors[i * self.dim..(i + 1) * self.dim]
    }

    /// C, the rows that its elements come from, and residuals before each.
    pub fn after(&self) -> (Basis, Vec<usize>, Vec<f64>) {
        let rows = self.followed();
        let states: Vec<f64> = rows.iter().flat_map(|&i| self.successor(i).to_vec()).collect();
        let (tolerance, max) = (self.number("successor_tolerance", 1e-3), self.whole("successor_max"));
        let (basis, pivots) = Basis::pivots(Inputs::identity(self.dim), &self.after, &states, tolerance, max);
        (basis, pivots.indices.iter().map(|&k| rows[k]).collect(), pivots.residuals)
    }

    /// The rows that elements of D come from.
    pub fn pursue(&self, after: &Basis) -> (Vec<usize>, Pursued) {
        let n = self.terminated.len();
        let all = || (0..n).collect();
        let candidates: Vec<usize> = match &self.json["candidates"] {
            Value::Null => all(),
            some => numbers(some).into_iter().map(|i| i as usize).collect(),
        };
        let width = self.before.projected_dim(self.dim + self.width);
        let places = self.before.project(self.dim + self.width, &self.inputs);
        let points = Points::new(width, &places);
        let mut columns = Matrix::zeros(n, candidates.len());
        let of: Vec<f64> = candidates.iter().flat_map(|&i| places[i * width..(i + 1) * width].to_vec()).collect();
        self.before.block(&points, &of, &mut columns.view_mut());
        let mut targets = after.features(&self.successors);
        (0..n).filter(|&i| self.terminated[i]).for_each(|i| targets.col_mut(i).fill(0.0));
        let pursuit = Pursuit::from_name(self.json["pursuit"].as_str().unwrap_or("ols")).unwrap();
        let limits = (self.whole("pursuit_max"), self.number("pursuit_tolerance", 0.0));
        let found = by_targets(&columns, &targets.transpose(), pursuit, limits, &|| true).unwrap();
        (found.chosen.iter().map(|&j| candidates[j]).collect(), found)
    }

    /// A world of these dictionaries that has learned nothing.
    pub fn empty(&self, after: Basis, elements: &[usize]) -> World {
        let dim = self.dim + self.width;
        let states: Vec<f64> = elements.iter().flat_map(|&i| self.inputs[i * dim..(i + 1) * dim].to_vec()).collect();
        let before = Basis::of_states(Inputs::identity(dim), &self.before, &states).unwrap();
        World::new(before, after, 1).unwrap()
    }

    /// Probabilities (n, A) of the case's policy in states (n, D).
    pub fn policy(&self, states: &[f64]) -> Vec<f64> {
        let weights = numbers(&self.json["policy"]);
        let mut out = Vec::new();
        for x in states.chunks_exact(self.dim) {
            let score = |w: &[f64]| w[self.dim] + w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
            let scores: Vec<f64> = weights.chunks_exact(self.dim + 1).map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            out.extend(scores.iter().map(|score| (score - most).exp() / sum));
        }
        out
    }

    /// The reward that is planned for at each of states (n, D) with each action (n A,).
    pub fn planned(&self, states: &[f64]) -> Vec<f64> {
        let of = &self.json["plan"]["reward"];
        let (center, width) = (numbers(&of["center"]), numbers(&of["width"]));
        let (scale, offset) = (of["scale"].as_f64().unwrap_or(1.0), of["offset"].as_f64().unwrap_or(0.0));
        let reward = |x: &[f64]| {
            let square: f64 = x.iter().zip(&center).zip(&width).map(|((x, c), w)| ((x - c) / w).powi(2)).sum();
            scale * (-0.5 * square).exp() + offset
        };
        states.chunks_exact(self.dim).flat_map(|x| std::iter::repeat_n(reward(x), self.choices())).collect()
    }

    /// Transitions counted, by state, action and successor, states in ascending order; none unless every successor is an element of C.
    fn counts(&self, after: &Basis) -> Option<Value> {
        if self.json["action"]["kind"] == "box" || self.dim != 1 {
            return None;
        }
        let elements = after.states();
        if !self.followed().iter().all(|&i| elements.contains(&self.successors[i])) {
            return None;
        }
        let mut all = [self.states.clone(), self.successors.clone()].concat();
        all.sort_by(f64::total_cmp);
        all.dedup();
        let place = |x: f64| all.iter().position(|other| *other == x).unwrap();
        let mut counts = vec![vec![vec![0.0; all.len()]; self.choices()]; all.len()];
        for i in self.followed() {
            let action = first_largest(&self.inputs[i * (1 + self.width) + 1..(i + 1) * (1 + self.width)]);
            counts[place(self.states[i])][action][place(self.successors[i])] += 1.0;
        }
        Some(counts.into())
    }
}

/// `expected` of a case, from its given part by the public functions of the learner. What the model refuses to say stands under `error`.
///
/// # Panics
/// If the case is not of the format.
pub fn answers(case: &Value) -> Value {
    let given = GivenCase::new(case);
    let (after, rows, residuals) = given.after();
    let (elements, pursued) = given.pursue(&after);
    let mut world = given.empty(after.clone(), &elements);
    world.learn(&given.rows()).unwrap();
    let mut out = Map::new();
    out.insert("successor_rows".into(), rows.into());
    out.insert("successor_residuals".into(), residuals.into());
    let chosen = json!({
        "rows": elements, "gains": pursued.gains, "residual": pursued.residuals, "weights": lists(&pursued.weights),
    });
    out.insert("pursuit".into(), chosen);
    out.insert("S".into(), lists(&world.gram()));
    out.insert("X".into(), lists(world.coupling()));
    out.insert("P".into(), lists(world.outcomes()));
    // A case says what is expected of a model, however little its elements express.
    let dynamics = world.solve(given.ridge(), f64::INFINITY).unwrap();
    let at_c = dynamics.table(&after.states(), given.actions()).unwrap();
    let at = dynamics.table(&given.query(), given.actions()).unwrap();
    let (states, actions) = (at.states(), given.choices());
    let alpha = |table: &Table| -> Value {
        let entry = |i: usize, a: usize| table.mass().col(i * actions + a).to_vec();
        (0..states).map(|i| (0..actions).map(|a| entry(i, a)).collect::<Vec<_>>()).collect::<Vec<_>>().into()
    };
    out.insert("alpha".into(), alpha(&at));
    out.insert("reward".into(), listed(at.rewards().col(0), actions));
    out.insert("termination".into(), listed(at.termination(), actions));
    out.insert("variance".into(), listed(at.variance(), actions));
    let model = Model { given: &given, dynamics: &dynamics, after: &after, at_c: &at_c, at: &at };
    for (key, found) in [("evaluate", model.evaluate()), ("rollout", model.rollout()), ("plan", model.plan(&at_c, &at))]
    {
        put(&mut out, key, found);
    }
    let hull = dynamics.hull();
    let projected = at.projected(&hull);
    let planned = model.plan(&at_c.projected(&hull), &projected).map(|plan| {
        let mut kept = Map::new();
        kept.insert("alpha".into(), alpha(&projected));
        let keys = ["V_successors", "Q", "greedy"].into_iter().filter(|key| !plan[key].is_null());
        kept.extend(keys.map(|key| (key.to_owned(), plan[key].clone())));
        Value::Object(kept)
    });
    put(&mut out, "projected", planned);
    put(&mut out, "lossy", model.lossy());
    given.counts(&after).map(|counts| out.insert("counts".into(), counts));
    Value::Object(out)
}

/// An answer, or the sentence that says why there is none; nothing of what the case does not ask.
fn put(out: &mut Map<String, Value>, key: &str, found: Result<Value, String>) {
    match found {
        Ok(Value::Null) => {}
        Ok(found) => _ = out.insert(key.into(), found),
        Err(message) => _ = out.insert("error".into(), format!("{key}: {message}").into()),
    }
}

struct Model<'a> {
    given: &'a GivenCase,
    dynamics: &'a Dynamics,
    after: &'a Basis,
    at_c: &'a Table,
    at: &'a Table,
}

impl Model<'_> {
    /// Probabilities of the case's policy at C and at the queries; none without one.
    fn policies(&self) -> Option<(Vec<f64>, Vec<f64>)> {
        let policy = |states: &[f64]| self.given.policy(states);
        (!self.given.json["policy"].is_null()).then(|| (policy(&self.after.states()), policy(&self.given.query())))
    }

    fn evaluate(&self) -> Result<Value, String> {
        let Some((at_c, at)) = self.policies() else { return Ok(Value::Null) };
        let told = |e: criticd_learner::world::WorldError| e.to_string();
        let found = self.at_c.evaluate(&at_c, self.at_c.rewards(), self.given.discount()).map_err(told)?;
        let q = found.action_values(self.at, self.at.rewards()).map_err(told)?;
        let mut deviation = found.deviation(self.dynamics, (self.at, &at), 0, Some(0)).map_err(told)?;
        deviation.add(&self.given.rows(), 1.0);
        Ok(json!({
            "V_successors": found.values().col(0),
            "Q": listed(q.col(0), self.given.choices()),
            "variance": deviation.variance(1.0),
            "spectral_radius": found.radius(),
        }))
    }

    fn rollout(&self) -> Result<Value, String> {
        let Some((at_c, at)) = self.policies() else { return Ok(Value::Null) };
        let steps = self.given.json["rollout_steps"].as_u64().unwrap_or(5) as usize;
        let (m, dim) = (self.after.len(), self.given.dim);
        let states = self.after.states();
        // The coordinates of the state, and 1.
        let numbers: Vec<f64> = states.chunks_exact(dim).flat_map(|x| x.iter().copied().chain([1.0])).collect();
        let cumulants = Matrix::from_rows(m, dim + 1, &numbers);
        let found = course((self.at_c, &at_c), (self.at, &at), &cumulants, steps).map_err(|e| e.to_string())?;
        let state = |of: &Matrix| -> Value {
            let point = |i: usize| (0..dim).map(|d| of.at(i, d)).collect::<Vec<_>>();
            (0..of.rows()).map(point).collect::<Vec<_>>().into()
        };
        Ok(json!({
            "state": found.iter().map(state).collect::<Vec<_>>(),
            "alive": found.iter().map(|of| of.col(dim).to_vec()).collect::<Vec<_>>(),
        }))
    }

    fn plan(&self, at_c: &Table, at: &Table) -> Result<Value, String> {
        if self.given.json["plan"].is_null() {
            return Ok(Value::Null);
        }
        let rewards = self.given.planned(&self.after.states());
        let planning =
            Planning { rewards: &rewards, discount: self.given.discount(), bounds: None, unsupported_above: None };
        let plan = at_c.plan(&planning).map_err(|e| e.to_string())?;
        let q = plan.action_values(at, &self.given.planned(&self.given.query())).map_err(|e| e.to_string())?;
        let actions = self.given.choices();
        let preferred = Plan::policy(actions, &q);
        Ok(json!({
            "bounds": [plan.bounds.0, plan.bounds.1],
            "V_successors": plan.values,
            "Q": listed(&q, actions),
            "greedy": preferred.chunks_exact(actions).map(first_largest).collect::<Vec<_>>(),
            "clipped": plan.clipped,
        }))
    }

    fn lossy(&self) -> Result<Value, String> {
        let Some(radius) = self.given.json["lossy_delta"].as_f64() else { return Ok(Value::Null) };
        let rows = self.given.followed();
        let states: Vec<f64> = rows.iter().flat_map(|&i| self.given.successor(i).to_vec()).collect();
        let found = cover(&self.given.after, self.given.dim, &states, radius, usize::MAX, Reach::Convex);
        let chosen: Vec<usize> = found.chosen.iter().map(|&k| rows[k]).collect();
        Ok(json!({ "rows": chosen, "distances": found.distances }))
    }
}
