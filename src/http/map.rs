//! Heat maps and curves: a snapshot evaluated on a grid over one or two state variables.

use crate::snapshot::{Ask, Evaluation, Evaluator};
use crate::transition::Invalid;
use nalgebra::DMatrix;
use serde::Deserialize;
use serde_json::json;

/// Cells of a map; fewer where a large dictionary makes each of them dear.
const COLUMNS: usize = 96;
const ROWS: usize = 72;
/// Cells of the coarsest map of the standard deviation.
const COARSE: (usize, usize) = (12, 9);
/// Points of a curve.
const CURVE: usize = 240;
/// Products for the variance of a whole map, about: some ten milliseconds.
const PRODUCTS: usize = 600_000_000;
/// Points of the dictionary that are shown.
const DICTIONARY: usize = 1000;

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
}

/// A view that makes sense for some state dimension.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    x: usize,
    y: Option<usize>,
    range: Vec<[f64; 2]>,
    at: Vec<f64>,
    head: usize,
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
        Ok(Grid { x: self.x, y: self.y, range, at, head: self.head })
    }
}

impl Grid {
    /// States (n, D) at the centres of the cells, from the lowest y up; of a curve, from end to end.
    fn states(&self, columns: usize, rows: usize) -> Vec<f64> {
        let mut states = Vec::with_capacity(columns * rows * self.at.len());
        let place =
            |[low, high]: [f64; 2], k: usize, count: usize| low + (high - low) * (k as f64 + 0.5) / count as f64;
        for k in 0..columns * rows {
            let start = states.len();
            states.extend_from_slice(&self.at);
            states[start + self.x] = place(self.range[0], k % columns, columns);
            if let Some(y) = self.y {
                states[start + y] = place(self.range[1], k / columns, rows);
            }
        }
        states
    }

    /// The places of states on the axes, those within them.
    fn project<'a>(&self, states: impl Iterator<Item = &'a [f64]>) -> Vec<Vec<f32>> {
        let inside = |place: &Vec<f64>| place.iter().zip(&self.range).all(|(v, [low, high])| (low..=high).contains(&v));
        let place = |state: &[f64]| std::iter::once(self.x).chain(self.y).map(|axis| state[axis]).collect::<Vec<f64>>();
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

    /// The picture: the length of a JSON head as 4 bytes, little endian, the head, then as many `f32`, little endian,
    /// as it says: value, standard deviation, and that of returns where the model knows it, each from the lowest y up; of
    /// the latter two the head tells the size, 0 without a variance. `extrapolates` in the head has a 0 or 1 for each cell of
    /// that size. `recent` are states (n, D) to show.
    ///
    /// # Errors
    /// If the ranges hold numbers that no state may have.
    pub(super) fn draw<'a>(
        &self,
        model: &Evaluator,
        recent: impl Iterator<Item = &'a [f64]>,
    ) -> Result<Vec<u8>, Invalid> {
        let snapshot = model.snapshot();
        let m = snapshot.dictionary.nrows().max(1);
        let (columns, rows) = if self.y.is_some() { (COLUMNS, ROWS) } else { (CURVE, 1) };
        let share = (PRODUCTS as f64 / (m * m * columns * rows) as f64).min(1.0);
        let (coarse_columns, coarse_rows) = match self.y {
            Some(_) => {
                let side = share.sqrt();
                ((columns as f64 * side) as usize, (rows as f64 * side) as usize)
            }
            None => ((columns as f64 * share) as usize, 1),
        };
        let (coarse_columns, coarse_rows) = (coarse_columns.max(COARSE.0), coarse_rows.max(COARSE.1.min(rows)));
        let (coarse, mean);
        if (coarse_columns, coarse_rows) == (columns, rows) {
            coarse = self.evaluate(model, columns, rows, Ask::ALL)?;
            mean = self.head(&coarse.mean);
        } else {
            coarse = self.evaluate(model, coarse_columns, coarse_rows, Ask::ALL)?;
            mean = self.head(&self.evaluate(model, columns, rows, Ask::MEAN)?.mean);
        }
        let root = |v: &f64| v.sqrt() as f32;
        let deviation: Vec<f32> = coarse.variance.iter().flatten().map(root).collect();
        let returns = coarse.return_variance.as_ref().map(|variance| variance.column(self.head));
        let returns: Vec<f32> = returns.iter().flat_map(|variance| variance.iter().map(root)).collect();
        let far: String = coarse
            .extrapolates
            .iter()
            .flatten()
            .filter(|_| !deviation.is_empty())
            .map(|&far| if far { '1' } else { '0' })
            .collect();
        let inputs = &snapshot.inputs;
        let raw = |i: usize| -> Vec<f64> {
            let z = snapshot.dictionary.row(i);
            z.iter().zip(&inputs.shift).zip(&inputs.scale).map(|((z, shift), scale)| shift + scale * z).collect()
        };
        let step = snapshot.dictionary.nrows().div_ceil(DICTIONARY).max(1);
        let dictionary: Vec<Vec<f64>> = (0..snapshot.dictionary.nrows()).step_by(step).map(raw).collect();
        let head = json!({
            "critic": snapshot.critic,
            "generation": snapshot.generation,
            "revision": snapshot.revision,
            "offset": snapshot.offset,
            "heads": snapshot.weights.ncols(),
            "columns": columns,
            "rows": rows,
            "deviation_columns": if deviation.is_empty() { 0 } else { coarse_columns },
            "deviation_rows": if deviation.is_empty() { 0 } else { coarse_rows },
            "return_deviation": !returns.is_empty(),
            "extrapolates": far,
            "prior_deviation": snapshot.hyperparameters.kernel.signal_variance.sqrt(),
            "prior_variance": snapshot.hyperparameters.kernel.diagonal(),
            "range": self.range,
            "dictionary": self.project(dictionary.iter().map(Vec::as_slice)),
            "recent": self.project(recent),
        });
        let mut head = head.to_string();
        // So that the numbers behind it lie at multiples of four.
        head.extend(std::iter::repeat_n(' ', head.len().next_multiple_of(4) - head.len()));
        let mut out = (head.len() as u32).to_le_bytes().to_vec();
        out.extend(head.as_bytes());
        out.extend(mean.iter().chain(&deviation).chain(&returns).flat_map(|v| v.to_le_bytes()));
        Ok(out)
    }

    /// What the model says of the cells.
    fn evaluate(&self, model: &Evaluator, columns: usize, rows: usize, ask: Ask) -> Result<Evaluation, Invalid> {
        model.evaluate(&self.states(columns, rows), ask)
    }

    /// The head that is shown.
    fn head(&self, values: &DMatrix<f64>) -> Vec<f32> {
        values.column(self.head).iter().map(|v| *v as f32).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use crate::snapshot::{Inputs, ReturnSpread, Snapshot};
    use serde_json::Value;

    pub(in crate::http) fn model(m: usize) -> Snapshot {
        let place = |i: usize| (i as f64 / m as f64) * 4.0 - 2.0;
        Snapshot {
            critic: "c".into(),
            generation: 3,
            revision: 7,
            offset: 9,
            transitions: 9,
            time: 0.0,
            discount: 0.5,
            hyperparameters: Hyperparameters {
                kernel: Kernel::gaussian(4.0, 0.0, Metric::Ard(vec![1.0, 0.5, 0.1])),
                noise: NoiseModel::Correlated,
                noise_variance: 1.0,
            },
            inputs: Inputs { shift: vec![1.0, 0.0, 0.0], scale: vec![2.0, 1.0, 1.0], names: None },
            dictionary: DMatrix::from_fn(m, 3, |i, _| place(i)),
            weights: DMatrix::from_fn(m, 2, |i, j| (i + j) as f64 / m as f64),
            variance: Some(DMatrix::from_diagonal_element(m, m, 0.01 / m as f64)),
            log_evidence: None,
            score: None,
            lambda: 1.0,
            returns: None,
            provisional: false,
            actions: None,
            heads: None,
        }
    }

    fn view(x: usize, y: Option<usize>, range: &str) -> View {
        View { x, y, range: range.into(), at: "0.5,0.25,-1".into(), ..View::default() }
    }

    fn parts(bytes: &[u8]) -> (Value, Vec<f32>) {
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
        let (head, numbers) = parts(&grid.draw(&Evaluator::new(model.clone()), recent.iter().map(|s| &s[..])).unwrap());
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
            parts(&view(1, None, "0,1").grid(3, 2).unwrap().draw(&Evaluator::new(model(5)), [].into_iter()).unwrap());
        assert_eq!((&head["columns"], &head["rows"], numbers.len()), (&json!(CURVE), &json!(1), 2 * CURVE));

        let large = Evaluator::new(model(1500));
        let (head, numbers) =
            parts(&view(0, Some(1), "0,1,0,1").grid(3, 2).unwrap().draw(&large, [].into_iter()).unwrap());
        let side = |name: &str| head[name].as_u64().unwrap() as usize;
        let coarse = side("deviation_columns") * side("deviation_rows");
        assert!((108..300).contains(&coarse), "{coarse}");
        assert_eq!(numbers.len(), COLUMNS * ROWS + coarse);

        let without = Evaluator::new(Snapshot { variance: None, ..model(5) });
        let (head, numbers) =
            parts(&view(0, Some(1), "0,1,0,1").grid(3, 2).unwrap().draw(&without, [].into_iter()).unwrap());
        assert_eq!((&head["deviation_columns"], numbers.len()), (&json!(0), COLUMNS * ROWS));
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
        let (head, numbers) = parts(&grid.draw(&Evaluator::new(model.clone()), [].into_iter()).unwrap());
        assert_eq!((&head["return_deviation"], &head["prior_variance"]), (&json!(true), &json!(4.0)));
        assert_eq!(numbers.len(), 3 * CURVE);
        let far = head["extrapolates"].as_str().unwrap();
        assert!(far.len() == CURVE && far.starts_with('0') && far.ends_with('1'), "{far}");
        let state = [40.0 * 7.5 / CURVE as f64, 0.25, -1.0];
        let expected = model.evaluate(&state, Ask::ALL).unwrap().return_variance.unwrap()[(0, 1)].sqrt();
        assert!((f64::from(numbers[2 * CURVE + 7]) - expected).abs() < 1e-5);

        let without = Evaluator::new(Snapshot { variance: None, ..model });
        let (head, numbers) = parts(&grid.draw(&without, [].into_iter()).unwrap());
        assert_eq!((&head["return_deviation"], &head["extrapolates"]), (&json!(false), &json!("")));
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
        assert!(view(1, None, "0,1e30").grid(3, 2).unwrap().draw(&Evaluator::new(model(2)), [].into_iter()).is_err());
    }
}
