//! Heat maps and curves: a snapshot evaluated on a grid over one or two state variables, where the others stand at one place
//! (a slice) or averaged over where they have been (a marginal).

mod best;

use super::truth::Truth;
use super::what_if_query::PlanQuery;
use crate::learner::marginal::{marginal, spread_out};
use crate::snapshot::{Ask, Evaluation, Evaluator};
use crate::transition::Invalid;
use nalgebra::DMatrix;
use serde::Deserialize;
use serde_json::{Value, json};

/// Cells of a map; fewer where a large dictionary makes each of them dear.
const COLUMNS: usize = 96;
const CELLS_DOWN: usize = 72;
/// Cells of the coarsest map of the standard deviation.
const COARSE: (usize, usize) = (12, 9);
/// Points of a curve.
const CURVE: usize = 240;
/// Products for the variance of a whole map, about: some ten milliseconds.
const PRODUCTS: usize = 600_000_000;
/// Points of the dictionary that are shown, and visited states.
const DICTIONARY: usize = 1000;
const VISITED: usize = 300;
/// Visited states that an average goes over, of means and of variances.
const AVERAGED: usize = 48;
const AVERAGED_VARIANCES: usize = 12;
/// Products for the mean of an average at most: dictionary elements times states times cells.
const AVERAGE_PRODUCTS: usize = 10_000_000;

/// What is to be seen, as the page asks for it. Numbers of a list are separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct View {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// Which of its value functions, counted from 0.
    #[serde(default)]
    pub(super) head: usize,
    /// State variable to the right.
    pub(super) x: usize,
    /// State variable upwards; a curve over `x` if left out.
    pub(super) y: Option<usize>,
    /// From and to, of `x` and then of `y`.
    pub(super) range: String,
    /// (D,): where the other variables stand.
    #[serde(default)]
    pub(super) at: String,
    /// Whether the others are averaged over visited states, in place of standing somewhere.
    #[serde(default)]
    pub(super) average: bool,
    /// An earlier generation that is kept, `then:` and a number of rows for the model as it was when they had been stored, `truth` for the true value in a simulator,
    /// `plan:DISCOUNT:REWARD` for the plan for a reward, or `head:NAME` for a head; the value of the present model if left out.
    pub(super) of: Option<Of>,
}

/// The subject of a picture other than the value of the present model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Of {
    /// An earlier model.
    Generation(u64),
    /// The true value, from a simulator in this process.
    Truth,
    /// The head of this name.
    Head(String),
    /// The model as it was when this number of rows had been stored.
    Then(u64),
    /// The best actions for a reward.
    Plan(PlanQuery),
}

impl TryFrom<String> for Of {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("head:") {
            return Ok(Self::Head(name.to_owned()));
        }
        let wrong = || "of must be a generation, truth, then:ROWS, plan:DISCOUNT:REWARD, or head:NAME".to_owned();
        if let Some(plan) = text.strip_prefix("plan:") {
            return PlanQuery::named(plan).map(Self::Plan).ok_or_else(wrong);
        }
        if let Some(offset) = text.strip_prefix("then:") {
            return offset.parse().map(Self::Then).map_err(|_| wrong());
        }
        match text.as_str() {
            "truth" => Ok(Self::Truth),
            number => number.parse().map(Self::Generation).map_err(|_| wrong()),
        }
    }
}

/// A view that makes sense for some state dimension.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    x: usize,
    y: Option<usize>,
    range: Vec<[f64; 2]>,
    at: Vec<f64>,
    head: usize,
    average: bool,
}

impl View {
    /// The grid that is meant, where states are (D,) and there are `heads` value functions.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub(super) fn grid(&self, dim: usize, heads: usize) -> Result<Grid, String> {
        let list = |name: &str, text: &str| -> Result<Vec<f64>, String> {
            let number = |part: &str| part.trim().parse().ok().filter(|v: &f64| v.is_finite());
            text.split(',')
                .filter(|part| !part.is_empty())
                .map(number)
                .collect::<Option<_>>()
                .ok_or_else(|| format!("{name} must be numbers separated by commas"))
        };
        let axes: Vec<usize> = std::iter::once(self.x).chain(self.y).collect();
        if axes.iter().any(|&axis| axis >= dim) || self.y == Some(self.x) {
            return Err(format!("x and y must be two of the {dim} state variables, counted from 0"));
        }
        if self.head >= heads {
            return Err(format!("head must be below {heads}"));
        }
        let numbers = list("range", &self.range)?;
        let range: Vec<[f64; 2]> = numbers.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        if numbers.len() != 2 * axes.len() || range.iter().any(|[low, high]| low >= high) {
            return Err("range must be from,to for each axis, from below to".into());
        }
        let at = list("at", &self.at)?;
        if at.len() != dim && !at.is_empty() {
            return Err(format!("at must be {dim} numbers"));
        }
        let at = if at.is_empty() { vec![0.0; dim] } else { at };
        Ok(Grid { x: self.x, y: self.y, range, at, head: self.head, average: self.average })
    }
}

/// Numbers of a picture, each list from the lowest y up.
struct Surface {
    mean: Vec<f32>,
    size: (usize, usize),
    deviation: Vec<f32>,
    returns: Vec<f32>,
    /// A 0 or 1 for each cell of `coarse`.
    far: String,
    coarse: (usize, usize),
    /// Of values of actions: the action whose Q `mean` is, by its number or, of a box, by its first coordinate.
    chosen: Vec<f32>,
}

impl Grid {
    /// The variables of the axes.
    fn axes(&self) -> Vec<usize> {
        std::iter::once(self.x).chain(self.y).collect()
    }

    /// Places (n, A) at the centres of the cells, from the lowest y up; of a curve, from end to end.
    fn places(&self, (columns, rows): (usize, usize)) -> Vec<f64> {
        let place =
            |[low, high]: [f64; 2], k: usize, count: usize| low + (high - low) * (k as f64 + 0.5) / count as f64;
        let mut places = Vec::with_capacity(2 * columns * rows);
        for k in 0..columns * rows {
            places.push(place(self.range[0], k % columns, columns));
            if self.y.is_some() {
                places.push(place(self.range[1], k / columns, rows));
            }
        }
        places
    }

    /// The places of states on the axes, those within them.
    fn project<'a>(&self, states: impl Iterator<Item = &'a [f64]>) -> Vec<Vec<f32>> {
        let inside = |place: &Vec<f64>| place.iter().zip(&self.range).all(|(v, [low, high])| (low..=high).contains(&v));
        let place = |state: &[f64]| self.axes().into_iter().map(|axis| state[axis]).collect::<Vec<f64>>();
        states.map(place).filter(inside).map(|p| p.into_iter().map(|v| v as f32).collect()).collect()
    }

    /// The cell of a state, of `columns` times `rows` from the lowest y up; none outside the axes.
    pub(super) fn cell(&self, state: &[f64], columns: usize, rows: usize) -> Option<usize> {
        let place = |axis: usize, [low, high]: [f64; 2], count: usize| {
            let share = (state[axis] - low) / (high - low);
            (0.0..=1.0).contains(&share).then(|| ((share * count as f64) as usize).min(count - 1))
        };
        let across = place(self.x, self.range[0], columns)?;
        let up = self.y.map_or(Some(0), |y| place(y, self.range[1], rows))?;
        Some(up * columns + across)
    }

    /// The picture: the length of a JSON head as 4 bytes, little endian, the head, then the number of `f32`, little endian,
    /// that it says: value, standard deviation, and the standard deviation of returns where the model knows it, each from the
    /// lowest y up; of the latter two the head tells the size, 0 without a variance. Of a value of actions the value is the
    /// largest Q, and the actions that have it come last (`chosen`). `extrapolates` in the head has a 0 or 1 for each of its
    /// `known_columns` times `known_rows` cells, also of a model without a variance.
    /// `visited` are states (n, D), newest first: the first of them are shown, and averages go over all.
    ///
    /// # Errors
    /// If the ranges hold numbers that no state may have.
    pub(super) fn draw(&self, model: &Evaluator, visited: &[&[f64]]) -> Result<Vec<u8>, Invalid> {
        let snapshot = model.snapshot();
        let averages = self.average && !visited.is_empty() && snapshot.actions.is_none();
        let surface = match &snapshot.actions {
            Some(of) => self.best(model, &of.space)?,
            None if averages => self.averaged(model, visited)?,
            None => self.slice(model)?,
        };
        let inputs = &snapshot.inputs;
        let raw = |i: usize| -> Vec<f64> {
            let z = snapshot.dictionary.row(i);
            z.iter().zip(&inputs.shift).zip(&inputs.scale).map(|((z, shift), scale)| shift + scale * z).collect()
        };
        let step = snapshot.dictionary.nrows().div_ceil(DICTIONARY).max(1);
        let dictionary: Vec<Vec<f64>> = (0..snapshot.dictionary.nrows()).step_by(step).map(raw).collect();
        let known = !surface.deviation.is_empty();
        let head = json!({
            "critic": snapshot.critic,
            "generation": snapshot.generation,
            "revision": snapshot.revision,
            "offset": snapshot.offset,
            "heads": snapshot.weights.ncols(),
            "averaged": if averages { visited.len().min(AVERAGED) } else { 0 },
            "columns": surface.size.0,
            "rows": surface.size.1,
            "deviation_columns": if known { surface.coarse.0 } else { 0 },
            "deviation_rows": if known { surface.coarse.1 } else { 0 },
            "return_deviation": !surface.returns.is_empty(),
            "chosen": !surface.chosen.is_empty(),
            "known_columns": surface.coarse.0,
            "known_rows": surface.coarse.1,
            "extrapolates": surface.far,
            "prior_deviation": snapshot.hyperparameters.kernel.signal_variance.sqrt(),
            "provisional": snapshot.provisional,
            "range": self.range,
            "dictionary": self.project(dictionary.iter().map(Vec::as_slice)),
            "recent": self.project(visited.iter().take(VISITED).copied()),
        });
        Ok(packed(&head, &[&surface.mean, &surface.deviation, &surface.returns, &surface.chosen]))
    }

    /// The true value on these axes, packed as by [`Grid::draw`].
    ///
    /// # Errors
    /// If the truth is known of states of another dimension.
    pub(super) fn draw_truth(&self, truth: &Truth, visited: &[&[f64]]) -> Result<Vec<u8>, String> {
        if self.at.len() != truth.dim() {
            return Err(format!("the truth is known of states of {} numbers", truth.dim()));
        }
        let (columns, rows) = if self.y.is_some() { (COLUMNS, CELLS_DOWN) } else { (CURVE, 1) };
        let places = self.places((columns, rows));
        let chosen = if self.average { evenly(visited, AVERAGED) } else { Vec::new() };
        let others = if chosen.is_empty() { self.at.clone() } else { chosen.concat() };
        let each = others.len() / self.at.len();
        let states = spread_out(self.at.len(), &self.axes(), &places, &others);
        let values: Vec<f64> = states.chunks_exact(self.at.len()).map(|state| truth.value(state)).collect();
        let mean = |own: &[f64]| (own.iter().sum::<f64>() / each as f64) as f32;
        let head = json!({
            "columns": columns,
            "rows": rows,
            "averaged": if self.average { each } else { 0 },
            "deviation_columns": 0,
            "deviation_rows": 0,
            "range": self.range,
        });
        Ok(packed(&head, &[&values.chunks_exact(each).map(mean).collect()]))
    }

    /// Cells of a map at this share of all of them, at least as many as the coarsest map has.
    fn coarse(&self, (columns, rows): (usize, usize), share: f64) -> (usize, usize) {
        let share = share.min(1.0);
        if self.y.is_none() {
            return (((columns as f64 * share) as usize).max(COARSE.0), 1);
        }
        let side = |count: usize, least: usize| ((count as f64 * share.sqrt()) as usize).max(least);
        (side(columns, COARSE.0), side(rows, COARSE.1))
    }

    fn size(&self) -> (usize, usize) {
        if self.y.is_some() { (COLUMNS, CELLS_DOWN) } else { (CURVE, 1) }
    }

    /// The model where the other variables stand.
    fn slice(&self, model: &Evaluator) -> Result<Surface, Invalid> {
        let size = self.size();
        let m = model.snapshot().dictionary.nrows().max(1);
        let coarse = self.coarse(size, PRODUCTS as f64 / (m * m * size.0 * size.1) as f64);
        let states = |size| spread_out(self.at.len(), &self.axes(), &self.places(size), &self.at);
        let found = model.evaluate(&states(coarse), Ask::ALL)?;
        let mean = if coarse == size {
            self.head(&found.mean)
        } else {
            self.head(&model.evaluate(&states(size), Ask::MEAN)?.mean)
        };
        Ok(self.surface((mean, size), &found, coarse))
    }

    /// The model averaged over visited states.
    fn averaged(&self, model: &Evaluator, visited: &[&[f64]]) -> Result<Surface, Invalid> {
        let m = model.snapshot().dictionary.nrows().max(1);
        let (means, variances) = (evenly(visited, AVERAGED), evenly(visited, AVERAGED_VARIANCES));
        let all = self.size();
        let cells = (all.0 * all.1) as f64;
        let size = self.coarse(all, AVERAGE_PRODUCTS as f64 / (m * means.len()) as f64 / cells);
        let coarse = self.coarse(all, PRODUCTS as f64 / (m * m * variances.len()) as f64 / cells);
        // Returns scatter about the value of one state, not about an average.
        let ask = Ask { returns: false, ..Ask::ALL };
        let (axes, of) = (self.axes(), |states: &[&[f64]]| states.concat());
        let mean = marginal(model, &axes, &self.places(size), &of(&means), Ask::MEAN)?.mean;
        let found = marginal(model, &axes, &self.places(coarse), &of(&variances), ask)?;
        Ok(self.surface((self.head(&mean), size), &found, coarse))
    }

    /// Values with their deviations.
    fn surface(&self, (mean, size): (Vec<f32>, (usize, usize)), found: &Evaluation, coarse: (usize, usize)) -> Surface {
        let root = |v: &f64| v.sqrt() as f32;
        let deviation: Vec<f32> = found.variance.iter().flatten().map(root).collect();
        let returns = found.return_variance.as_ref().map(|variance| variance.column(self.head));
        let returns = returns.iter().flat_map(|variance| variance.iter().map(root)).collect();
        let flags = found.extrapolates.iter().flatten();
        let far = flags.map(|&far| if far { '1' } else { '0' }).collect();
        Surface { mean, size, deviation, returns, far, coarse, chosen: Vec::new() }
    }

    /// The head that is shown.
    fn head(&self, values: &DMatrix<f64>) -> Vec<f32> {
        values.column(self.head).iter().map(|v| *v as f32).collect()
    }
}

/// At most `most` of the states, evenly spread over them.
fn evenly<'a>(states: &[&'a [f64]], most: usize) -> Vec<&'a [f64]> {
    let count = states.len().min(most);
    (0..count).map(|k| states[k * states.len() / count]).collect()
}

/// A JSON head behind its length, and numbers.
fn packed(head: &Value, numbers: &[&Vec<f32>]) -> Vec<u8> {
    let mut head = head.to_string();
    // So that the numbers behind it lie at multiples of four.
    head.extend(std::iter::repeat_n(' ', head.len().next_multiple_of(4) - head.len()));
    let mut out = (head.len() as u32).to_le_bytes().to_vec();
    out.extend(head.as_bytes());
    out.extend(numbers.iter().copied().flatten().flat_map(|v| v.to_le_bytes()));
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use crate::snapshot::{Inputs, ReturnSpread, Snapshot};

    pub(in crate::http) fn model(m: usize) -> Snapshot {
        let place = |i: usize| (i as f64 / m as f64) * 4.0 - 2.0;
        let hyperparameters = Hyperparameters {
            kernel: Kernel::gaussian(4.0, 0.0, Metric::Ard(vec![1.0, 0.5, 0.1])),
            noise: NoiseModel::Correlated,
            noise_variance: 1.0,
        };
        let weights = DMatrix::from_fn(m, 2, |i, j| (i + j) as f64 / m as f64);
        Snapshot {
            critic: "c".into(),
            generation: 3,
            revision: 7,
            offset: 9,
            transitions: 9,
            inputs: Inputs { shift: vec![1.0, 0.0, 0.0], scale: vec![2.0, 1.0, 1.0], names: None },
            variance: Some(DMatrix::from_diagonal_element(m, m, 0.01 / m as f64)),
            ..Snapshot::of(0.5, hyperparameters, DMatrix::from_fn(m, 3, |i, _| place(i)), weights)
        }
    }

    fn view(x: usize, y: Option<usize>, range: &str) -> View {
        View { x, y, range: range.into(), at: "0.5,0.25,-1".into(), ..View::default() }
    }

    pub(super) fn parts(bytes: &[u8]) -> (Value, Vec<f32>) {
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert!(length.is_multiple_of(4));
        let numbers = bytes[4 + length..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        (serde_json::from_slice(&bytes[4..4 + length]).unwrap(), numbers)
    }

    #[test]
    fn cells_hold_what_the_model_says_there() {
        let model = model(10);
        let grid = View { head: 1, ..view(2, Some(0), "-1,1,0,3") }.grid(3, 2).unwrap();
        let recent = [[1.0, 0.0, 0.5], [9.0, 0.0, 0.5]];
        let (head, numbers) = parts(&grid.draw(&Evaluator::new(model.clone()), &[&recent[0], &recent[1]]).unwrap());
        assert_eq!((head["columns"].as_u64(), head["rows"].as_u64()), (Some(96), Some(72)));
        assert_eq!(head["recent"], json!([[0.5, 1.0]]), "those outside the axes are left out");
        assert_eq!((&head["generation"], &head["prior_deviation"]), (&json!(3), &json!(2.0)));
        let cells = 96 * 72;
        assert_eq!(numbers.len(), 2 * cells);
        let (i, j) = (95, 3);
        let state = [3.0 * (j as f64 + 0.5) / 72.0, 0.25, 2.0 * (i as f64 + 0.5) / 96.0 - 1.0];
        let expected = model.evaluate(&state, Ask::VARIANCE).unwrap();
        assert!((f64::from(numbers[j * 96 + i]) - expected.mean[(0, 1)]).abs() < 1e-5);
        assert!((f64::from(numbers[cells + j * 96 + i]) - expected.variance.unwrap()[0].sqrt()).abs() < 1e-5);
    }

    #[test]
    fn one_axis_gives_a_curve_and_large_dictionaries_a_coarser_deviation() {
        let (head, numbers) =
            parts(&view(1, None, "0,1").grid(3, 2).unwrap().draw(&Evaluator::new(model(5)), &[]).unwrap());
        assert_eq!((&head["columns"], &head["rows"], numbers.len()), (&json!(CURVE), &json!(1), 2 * CURVE));

        let large = Evaluator::new(model(1500));
        let (head, numbers) = parts(&view(0, Some(1), "0,1,0,1").grid(3, 2).unwrap().draw(&large, &[]).unwrap());
        let side = |name: &str| head[name].as_u64().unwrap() as usize;
        let coarse = side("deviation_columns") * side("deviation_rows");
        assert!((108..300).contains(&coarse), "{coarse}");
        assert_eq!(numbers.len(), COLUMNS * CELLS_DOWN + coarse);

        let without = Evaluator::new(Snapshot { variance: None, ..model(5) });
        let (head, numbers) = parts(&view(0, Some(1), "0,1,0,1").grid(3, 2).unwrap().draw(&without, &[]).unwrap());
        assert_eq!((&head["deviation_columns"], numbers.len()), (&json!(0), COLUMNS * CELLS_DOWN));
    }

    #[test]
    fn a_picture_tells_of_returns_and_of_what_is_far() {
        let returns = Some(ReturnSpread {
            level: vec![0.5, 1.0],
            weights: DMatrix::from_element(5, 2, 0.125),
            floor: vec![0.25; 2],
            factor: 1.5,
            pairs: 64,
            coverage: None,
        });
        let model = Snapshot { returns, ..model(5) };
        let grid = View { head: 1, ..view(0, None, "0,40") }.grid(3, 2).unwrap();
        let (head, numbers) = parts(&grid.draw(&Evaluator::new(model.clone()), &[]).unwrap());
        assert_eq!((&head["return_deviation"], &head["provisional"]), (&json!(true), &json!(false)));
        assert_eq!(numbers.len(), 3 * CURVE);
        let far = head["extrapolates"].as_str().unwrap().to_owned();
        assert!(far.len() == CURVE && far.starts_with('0') && far.ends_with('1'), "{far}");
        let state = [40.0 * 7.5 / CURVE as f64, 0.25, -1.0];
        let expected = model.evaluate(&state, Ask::ALL).unwrap().return_variance.unwrap()[(0, 1)].sqrt();
        assert!((f64::from(numbers[2 * CURVE + 7]) - expected).abs() < 1e-5);

        let without = Evaluator::new(Snapshot { variance: None, ..model });
        let (head, numbers) = parts(&grid.draw(&without, &[]).unwrap());
        // A model whose variance is not kept still says where nothing is near.
        assert_eq!((&head["return_deviation"], &head["deviation_columns"]), (&json!(false), &json!(0)));
        assert_eq!((head["extrapolates"].as_str(), &head["known_columns"]), (Some(far.as_str()), &json!(CURVE)));
        assert_eq!(numbers.len(), CURVE);
    }

    #[test]
    fn views_that_make_no_sense_are_refused_by_name() {
        let error = |view: View| view.grid(3, 2).unwrap_err();
        assert!(error(view(3, None, "0,1")).starts_with("x and y"));
        assert!(error(view(1, Some(1), "0,1,0,1")).starts_with("x and y"));
        assert!(error(view(1, Some(0), "0,1")).starts_with("range"));
        assert!(error(view(1, None, "1,0")).starts_with("range"));
        assert!(error(view(1, None, "0,inf")).starts_with("range"));
        assert!(error(View { at: "1,2".into(), ..view(1, None, "0,1") }).starts_with("at"));
        assert!(error(View { head: 2, ..view(1, None, "0,1") }).starts_with("head"));
        // Numbers beyond what a state may hold are refused by the model itself.
        assert!(view(1, None, "0,1e30").grid(3, 2).unwrap().draw(&Evaluator::new(model(2)), &[]).is_err());
    }

    #[test]
    fn an_average_goes_over_visited_states_and_what_is_true_is_drawn_on_the_same_axes() {
        let visited = [[1.0, 0.5, 0.0], [1.0, -0.5, 0.5], [0.0, 0.0, 1.0]];
        let visited: Vec<&[f64]> = visited.iter().map(|state| &state[..]).collect();
        let model = Evaluator::new(model(10));
        let view = View { average: true, ..view(0, Some(2), "-1,3,-1,1") };
        let (head, numbers) = parts(&view.grid(3, 2).unwrap().draw(&model, &visited).unwrap());
        let side = |name: &str| head[name].as_u64().unwrap() as usize;
        let (columns, rows) = (side("columns"), side("rows"));
        assert_eq!((side("averaged"), &head["return_deviation"]), (3, &json!(false)));
        let cells = side("deviation_columns") * side("deviation_rows");
        assert_eq!(numbers.len(), columns * rows + cells);
        let (i, j) = (columns / 3, rows / 4);
        let place =
            |k: usize, count: usize, [low, high]: [f64; 2]| low + (high - low) * (k as f64 + 0.5) / count as f64;
        let (x, z) = (place(i, columns, [-1.0, 3.0]), place(j, rows, [-1.0, 1.0]));
        let mean = [0.5, -0.5, 0.0].map(|y| model.evaluate(&[x, y, z], Ask::MEAN).unwrap().mean[(0, 0)]);
        assert!((f64::from(numbers[j * columns + i]) - mean.iter().sum::<f64>() / 3.0).abs() < 1e-5);
        // Where no state has been visited there is nothing to average: the slice is drawn.
        let (head, _) = parts(&view.grid(3, 2).unwrap().draw(&model, &[]).unwrap());
        assert_eq!(head["averaged"], 0);

        let truth = Truth::new(2, [[0.0, 2.0], [0.0, 2.0]], vec![0.0, 1.0, 10.0, 11.0]);
        let flat = View { x: 1, y: Some(0), range: "0,2,0,2".into(), ..View::default() };
        let (head, numbers) = parts(&flat.grid(2, 1).unwrap().draw_truth(&truth, &[]).unwrap());
        assert_eq!((&head["columns"], numbers.len(), numbers[0]), (&json!(96), 96 * 72, 0.0));
        // The second variable is to the right.
        assert_eq!((numbers[95], numbers[71 * 96]), (10.0, 1.0));
        let curve = View { y: None, range: "0,2".into(), average: true, ..flat };
        let (head, numbers) =
            parts(&curve.grid(2, 1).unwrap().draw_truth(&truth, &[&[0.0, 9.0], &[2.0, 9.0]]).unwrap());
        assert_eq!((&head["averaged"], numbers[0], numbers[CURVE - 1]), (&json!(2), 0.5, 10.5));
        assert!(view.grid(3, 2).unwrap().draw_truth(&truth, &[]).unwrap_err().contains("2 numbers"));
    }

    #[test]
    fn a_picture_is_of_a_generation_or_of_the_truth() {
        let of = |text: &str| Of::try_from(text.to_owned());
        assert_eq!((of("12"), of("truth")), (Ok(Of::Generation(12)), Ok(Of::Truth)));
        assert_eq!((of("then:40"), of("then:x").is_err()), (Ok(Of::Then(40)), true));
        assert!(of("-1").unwrap_err().starts_with("of must be"));
        assert_eq!((of("plan:0.5:x"), of("plan:x").is_err()), (Ok(Of::Plan(PlanQuery::named("0.5:x").unwrap())), true));
    }
}
