//! Where a model is wrong: returns, and rewards with the next value, minus the values of the states of rows.

use super::ModelView;
use super::came::Came;
use crate::commands::Failure;
use crate::commands::given::plural;
use crate::commands::output::{columns, in_file, number};
use crate::hindsight::{Kind, Neighbours, SAMPLES, Sample, Worst, samples, scattered, spacing};
use crate::picture::{Colours, Curves, Fade, Heatmap, Line, Marker, Panel, Points, Scale};
use crate::snapshot::Evaluator;
use std::path::Path;

/// Cells along each axis.
const CELLS: usize = 20;
/// Variables of a worst state that are printed.
const VARIABLES: usize = 4;

/// Errors at places (n, A) on the axes of a picture.
pub(super) struct PlotErrors {
    places: Vec<Vec<f64>>,
    /// (n,).
    samples: Vec<Sample>,
    /// States where the mean of return minus value is most wrong, the worst first, wherever they are.
    worst: Vec<Bad>,
}

/// A state where the model is most wrong.
struct Bad {
    /// (D,).
    state: Vec<f64>,
    found: Worst,
    stream: String,
    number: u64,
}

impl PlotErrors {
    /// The errors of the rows whose returns are known, as far as the picture reaches.
    pub(super) fn of(path: &Path, came: &Came, model: &Evaluator, view: &ModelView) -> Result<Self, Failure> {
        let (rows, rewards) = (&came.rows, &came.rewards);
        let column = rewards.column(view.reward).map_err(Failure::usage)?;
        let all = samples(rows, model, rewards, (view.reward, column), rows.len()).map_err(Failure::usage)?;
        // Neighbours cost the square of their number.
        let some: Vec<Sample> = scattered(0..all.len() as u64, SAMPLES).map(|k| all[k as usize]).collect();
        let bad = |found: Worst| Bad {
            state: rows.state(found.row).to_vec(),
            stream: came.stream(found.row).to_owned(),
            number: came.number(found.row),
            found,
        };
        let neighbours = (!some.is_empty()).then(|| Neighbours::of(rows, &some));
        let worst = neighbours.map_or_else(Vec::new, |of| of.worst(&some, |s| s.error, spacing(rewards.discount)));
        let axes: Vec<usize> = std::iter::once(view.x).chain(view.y).collect();
        let place = |sample: &Sample| axes.iter().map(|&axis| rows.state(sample.row)[axis]).collect::<Vec<f64>>();
        let within = |(v, &axis): (&f64, &usize)| (view.ranges[axis][0]..=view.ranges[axis][1]).contains(v);
        let shown = all.into_iter().map(|sample| (place(&sample), sample));
        let shown = shown.filter(|(place, _)| place.iter().zip(&axes).all(within));
        let (places, samples): (Vec<Vec<f64>>, Vec<Sample>) = shown.unzip();
        if samples.is_empty() {
            let words =
                "no row within the picture has a return that is known: name terminated rows, or a wider --range";
            return Err(in_file(path, words));
        }
        Ok(Self { places, samples, worst: worst.into_iter().map(bad).collect() })
    }

    /// "1200 returns".
    pub(super) fn count(&self) -> String {
        plural(self.samples.len(), "return")
    }

    /// Return minus value, and the TD error.
    pub(super) fn panels(&self, view: &ModelView) -> [Panel; 2] {
        let unit = view.unit();
        let came = format!("Error: {}", self.count());
        let next = "TD error: reward and next value minus value".to_owned();
        [
            self.panel(view, came, format!("return minus value{unit}"), ("a return", |s| s.error, |w| w.error)),
            self.panel(view, next, format!("TD error{unit}"), ("a row", |s| s.difference, |w| w.difference)),
        ]
    }

    /// Where the worst states are on the axes of a map.
    pub(super) fn marks(&self, view: &ModelView, y: usize) -> Points {
        let at = self.worst.iter().map(|bad| [bad.state[view.x], bad.state[y]]).collect();
        Points { label: "worst states".into(), at, marker: Marker::Cross }
    }

    /// Means in cells over the axes of the picture; along one variable each error as well.
    fn panel(&self, view: &ModelView, title: String, label: String, of: (&str, Kind, fn(&Worst) -> f64)) -> Panel {
        let means = self.means(view, of.1);
        let Some(y) = view.y else { return self.curve(view, means, (title, label), of) };
        let reach = means.iter().filter(|mean| mean.is_finite()).fold(0.0, |most: f64, mean| most.max(mean.abs()));
        let absent = absent(&means);
        let shown = means.iter().map(|mean| if mean.is_finite() { *mean } else { 0.0 }).collect();
        let mut map = Heatmap::new(title, view.axis(view.x), view.axis(y), CELLS, shown, label);
        map.fade = Some(absent);
        map.colours = Colours::Difference;
        map.value_range = Some([-reach, reach]).filter(|_| reach > 0.0);
        map.smooth = false;
        map.points = vec![self.marks(view, y)];
        Panel::Heatmap(map)
    }

    fn curve(
        &self,
        view: &ModelView,
        mean: Vec<f64>,
        (title, y_label): (String, String),
        (each, of, of_worst): (&str, Kind, fn(&Worst) -> f64),
    ) -> Panel {
        let absent = absent(&mean);
        let [low, high] = view.ranges[view.x];
        let centre = |k: usize| low + (high - low) * (k as f64 + 0.5) / CELLS as f64;
        let at = self.places.iter().zip(&self.samples).map(|(place, sample)| [place[0], of(sample)]).collect();
        let worst = self.worst.iter().map(|bad| [bad.state[view.x], of_worst(&bad.found)]).collect();
        Panel::Curves(Curves {
            title,
            x: view.axis(view.x),
            y_label,
            y_scale: Scale::Linear,
            y_range: None,
            at: (0..CELLS).map(centre).collect(),
            lines: vec![Line { label: "mean of a cell".into(), mean, deviation: None, dashed: false }],
            fade: Some(absent),
            points: vec![
                Points { label: each.into(), at, marker: Marker::Dot },
                Points { label: "worst states".into(), at: worst, marker: Marker::Cross },
            ],
        })
    }

    /// The worst states for people, the worst first.
    pub(super) fn table(&self, view: &ModelView, number_label: &str) -> String {
        let chance = !self.worst.iter().any(|bad| bad.found.is_no_chance());
        let what = if chance { ", no more than chance" } else { "" };
        let three = |value: f64| number(super::round(value));
        let row = |(k, bad): (usize, &Bad)| {
            let Worst { error, difference, spread, count, .. } = bad.found;
            let numbers = [error, spread, difference].map(three);
            let [error, spread, difference] = numbers;
            let place = place_in_words(&bad.state, &bad.found.axes, view);
            let cells = [(k + 1).to_string(), error, spread, difference, count.to_string(), bad.number.to_string()];
            [&cells[..], &[bad.stream.clone(), place]].concat()
        };
        let heads = ["", "error", "std", "TD error", "states", number_label, "stream", "where"];
        let rows: Vec<Vec<String>> = self.worst.iter().enumerate().map(row).collect();
        format!(
            "Where the model is most wrong{what}: means over a state and its neighbours{}\n{}",
            view.unit(),
            columns(&heads, &rows)
        )
    }

    /// The mean error of each cell, row by row from the lowest y up; not a number where there is none.
    fn means(&self, view: &ModelView, of: Kind) -> Vec<f64> {
        let axes: Vec<usize> = std::iter::once(view.x).chain(view.y).collect();
        let cell = |place: &[f64]| {
            axes.iter().enumerate().fold(0, |cell, (j, &axis)| {
                let [low, high] = view.ranges[axis];
                let along = ((place[j] - low) / (high - low) * CELLS as f64) as usize;
                cell + along.min(CELLS - 1) * CELLS.pow(j as u32)
            })
        };
        let mut sums = vec![(0.0, 0.0); CELLS.pow(axes.len() as u32)];
        for (place, sample) in self.places.iter().zip(&self.samples) {
            let (sum, count) = &mut sums[cell(place)];
            (*sum, *count) = (*sum + of(sample), *count + 1.0);
        }
        sums.into_iter().map(|(sum, count)| sum / count).collect()
    }
}

/// "angle = 0.3 rad, speed = 2 and 5 more": the variables along which the error is most local and those with the largest shares, in
/// the order of the state.
fn place_in_words(state: &[f64], axes: &[usize], view: &ModelView) -> String {
    let mut others: Vec<usize> = (0..state.len()).filter(|d| !axes.contains(d)).collect();
    others.sort_by(|&a, &b| view.shares[b].total_cmp(&view.shares[a]));
    let mut named: Vec<usize> = axes.iter().chain(&others).take(VARIABLES).copied().collect();
    named.sort_unstable();
    let words: Vec<String> = named.into_iter().map(|d| view.place(d, state[d])).collect();
    let more = state.len() - words.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    words.join(", ") + &rest
}

/// Cells without a mean.
fn absent(means: &[f64]) -> Fade {
    let amount = means.iter().map(|mean| f64::from(u8::from(!mean.is_finite()))).collect();
    Fade { label: "hatched: no return known".into(), amount }
}

#[cfg(test)]
mod tests {
    use super::super::PictureLabels;
    use super::super::states::States;
    use super::*;

    #[test]
    fn a_cell_has_the_mean_of_its_errors_in_the_place_that_it_is_drawn_at() {
        let view = ModelView {
            names: vec!["x".into(), "y [m]".into(), "z".into()],
            dictionary: Vec::new(),
            states: States::of_dictionary(&[]),
            ranges: vec![[0.0, 1.0], [-1.0, 1.0], [10.0, 20.0]],
            at: vec![0.0; 3],
            shares: vec![0.0; 3],
            x: 2,
            y: Some(0),
            reward: 0,
            labels: PictureLabels { title: "Value".into(), value: "sum".into(), reward: "energy [J]".into() },
            marginal: false,
            kernel: false,
            categories: Default::default(),
        };
        // Of z and x: two returns in the cell at the lower right, one at the upper left.
        let sample = |row: usize, error: f64| Sample { row, error, difference: -error, ..Sample::default() };
        let samples = vec![sample(0, 1.0), sample(1, 3.0), sample(2, -0.5)];
        let found =
            Worst { row: 1, error: 2.0, difference: -2.0, spread: 0.5, count: 12, axes: vec![1], ..Worst::default() };
        let worst = vec![Bad { state: vec![0.02, 0.5, 19.5], found, stream: "arm".into(), number: 7 }];
        let errors = PlotErrors { places: vec![vec![19.9, 0.01], vec![20.0, 0.04], vec![10.1, 1.0]], samples, worst };
        let [Panel::Heatmap(map), Panel::Heatmap(next)] = errors.panels(&view) else { panic!("two maps") };
        assert_eq!((map.values[CELLS - 1], map.values[CELLS * (CELLS - 1)]), (2.0, -0.5));
        assert_eq!((next.values[CELLS - 1], next.value_label.as_str()), (-2.0, "TD error [J]"));
        assert_eq!((map.value_range, map.value_label.as_str()), (Some([-2.0, 2.0]), "return minus value [J]"));
        assert_eq!((map.points[0].marker, &map.points[0].at[..]), (Marker::Cross, &[[19.5, 0.02]][..]));
        assert_eq!(map.fade.unwrap().amount.iter().sum::<f64>(), (CELLS * CELLS - 2) as f64, "the others have none");
        let table = errors.table(&view, "offset");
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "Where the model is most wrong, no more than chance: means over a state and its neighbours [J]"
        );
        assert!(lines[1].contains("TD error") && lines[1].contains("offset"), "{table}");
        assert!(lines[2].contains("arm") && lines[2].contains("x = 0.02, y = 0.5 m, z = 19.5"), "{table}");
        let [Panel::Curves(curve), _] = errors.panels(&ModelView { y: None, ..view }) else { panic!("a curve") };
        assert_eq!((curve.lines[0].mean[CELLS - 1], curve.lines[0].mean[0]), (2.0, -0.5));
        assert!(curve.points[0].at.len() == 3 && curve.lines[0].mean[5].is_nan());
        assert_eq!(curve.points[1].at, [[19.5, 2.0]]);
        let absent = curve.fade.unwrap().amount;
        assert_eq!((absent[5], absent[0], absent[CELLS - 1]), (1.0, 0.0, 0.0));
    }
}
