//! Where a model is wrong: returns of a table's rows minus the values of their states.

use super::View;
use crate::commands::Failure;
use crate::commands::given::plural;
use crate::commands::held_out::{CLOSED, see};
use crate::commands::output::in_file;
use criticd::picture::{Colours, Curves, Fade, Heatmap, Line, Marker, Panel, Points, Scale};
use criticd::snapshot::Snapshot;
use criticd::table::Table;
use std::path::Path;

/// Cells along each axis.
const CELLS: usize = 20;

/// Errors (n,) at places (n, A) on the axes of a picture.
pub(super) struct Errors {
    places: Vec<Vec<f64>>,
    values: Vec<f64>,
}

impl Errors {
    /// Those of the rows whose returns come to an end within their episodes, as far as the picture reaches.
    pub(super) fn of(path: &Path, table: Table, snapshot: &Snapshot, view: &View) -> Result<Self, Failure> {
        let rows = table.into_rows();
        if rows.dim != snapshot.state_dim() || snapshot.actions.is_some() {
            let words =
                format!("--errors takes states of {} numbers, this table has {}", snapshot.state_dim(), rows.dim);
            return Err(in_file(path, words));
        }
        if rows.rewards_per_row != snapshot.weights.ncols() {
            let (has, needs) = (rows.rewards_per_row, snapshot.weights.ncols());
            return Err(in_file(path, format!("the model has values of {needs} rewards, the table's rows have {has}")));
        }
        let seen = see(snapshot, &rows).map_err(|e| in_file(path, e))?;
        let axes: Vec<usize> = std::iter::once(view.x).chain(view.y).collect();
        let (mut places, mut values) = (Vec::new(), Vec::new());
        for i in (0..rows.len()).filter(|&i| seen.closed[i] < CLOSED) {
            let place: Vec<f64> = axes.iter().map(|&axis| rows.state(i)[axis]).collect();
            let within = |(v, &axis): (&f64, &usize)| (view.ranges[axis][0]..=view.ranges[axis][1]).contains(v);
            if place.iter().zip(&axes).all(within) {
                places.push(place);
                values.push(seen.returns[view.reward][i] - seen.found.mean[(i, view.reward)]);
            }
        }
        if values.is_empty() {
            let words = "no row within the picture has a return that ends within its episode: name terminated rows, or a wider --range";
            return Err(in_file(path, words));
        }
        Ok(Self { places, values })
    }

    /// "1200 returns".
    pub(super) fn count(&self) -> String {
        plural(self.values.len(), "return")
    }

    /// Means in cells over the axes of the picture; along one variable each error as well.
    pub(super) fn panel(&self, view: &View) -> Panel {
        let means = self.means(view);
        let label = format!("return minus value{}", view.unit());
        let title = format!("Error: {}", self.count());
        let Some(y) = view.y else { return self.curve(view, means, title, label) };
        let reach = means.iter().filter(|mean| mean.is_finite()).fold(0.0, |most: f64, mean| most.max(mean.abs()));
        let absent = absent(&means);
        let shown = means.iter().map(|mean| if mean.is_finite() { *mean } else { 0.0 }).collect();
        let mut map = Heatmap::new(title, view.axis(view.x), view.axis(y), CELLS, shown, label);
        map.fade = Some(absent);
        map.colours = Colours::Difference;
        map.value_range = Some([-reach, reach]).filter(|_| reach > 0.0);
        map.smooth = false;
        Panel::Heatmap(map)
    }

    fn curve(&self, view: &View, mean: Vec<f64>, title: String, y_label: String) -> Panel {
        let absent = absent(&mean);
        let [low, high] = view.ranges[view.x];
        let centre = |k: usize| low + (high - low) * (k as f64 + 0.5) / CELLS as f64;
        let at = self.places.iter().zip(&self.values).map(|(place, error)| [place[0], *error]).collect();
        Panel::Curves(Curves {
            title,
            x: view.axis(view.x),
            y_label,
            y_scale: Scale::Linear,
            y_range: None,
            at: (0..CELLS).map(centre).collect(),
            lines: vec![Line { label: "mean of a cell".into(), mean, deviation: None }],
            fade: Some(absent),
            points: vec![Points { label: "a return".into(), at, marker: Marker::Dot }],
        })
    }

    /// The mean error of each cell, row by row from the lowest y up; not a number where there is none.
    fn means(&self, view: &View) -> Vec<f64> {
        let axes: Vec<usize> = std::iter::once(view.x).chain(view.y).collect();
        let cell = |place: &[f64]| {
            axes.iter().enumerate().fold(0, |cell, (j, &axis)| {
                let [low, high] = view.ranges[axis];
                let along = ((place[j] - low) / (high - low) * CELLS as f64) as usize;
                cell + along.min(CELLS - 1) * CELLS.pow(j as u32)
            })
        };
        let mut sums = vec![(0.0, 0.0); CELLS.pow(axes.len() as u32)];
        for (place, error) in self.places.iter().zip(&self.values) {
            let (sum, count) = &mut sums[cell(place)];
            (*sum, *count) = (*sum + error, *count + 1.0);
        }
        sums.into_iter().map(|(sum, count)| sum / count).collect()
    }
}

/// Cells without a mean.
fn absent(means: &[f64]) -> Fade {
    let amount = means.iter().map(|mean| f64::from(u8::from(!mean.is_finite()))).collect();
    Fade { label: "hatched: no return known".into(), amount }
}

#[cfg(test)]
mod tests {
    use super::super::states::States;
    use super::*;

    #[test]
    fn a_cell_has_the_mean_of_its_errors_in_the_place_that_it_is_drawn_at() {
        let view = View {
            names: vec!["x".into(), "y".into(), "z".into()],
            dictionary: Vec::new(),
            states: States::of_dictionary(&[]),
            ranges: vec![[0.0, 1.0], [-1.0, 1.0], [10.0, 20.0]],
            at: vec![0.0; 3],
            shares: vec![0.0; 3],
            x: 2,
            y: Some(0),
            reward: 0,
            reward_name: Some("energy [J]".into()),
            marginal: false,
        };
        // Of z and x: two returns in the cell at the lower right, one at the upper left.
        let errors =
            Errors { places: vec![vec![19.9, 0.01], vec![20.0, 0.04], vec![10.1, 1.0]], values: vec![1.0, 3.0, -0.5] };
        let Panel::Heatmap(map) = errors.panel(&view) else { panic!("a map") };
        assert_eq!((map.values[CELLS - 1], map.values[CELLS * (CELLS - 1)]), (2.0, -0.5));
        assert_eq!((map.value_range, map.value_label.as_str()), (Some([-2.0, 2.0]), "return minus value [J]"));
        assert_eq!(map.fade.unwrap().amount.iter().sum::<f64>(), (CELLS * CELLS - 2) as f64, "the others have none");
        let Panel::Curves(curve) = errors.panel(&View { y: None, ..view }) else { panic!("a curve") };
        assert_eq!((curve.lines[0].mean[CELLS - 1], curve.lines[0].mean[0]), (2.0, -0.5));
        assert!(curve.points[0].at.len() == 3 && curve.lines[0].mean[5].is_nan());
        let absent = curve.fade.unwrap().amount;
        assert_eq!((absent[5], absent[0], absent[CELLS - 1]), (1.0, 0.0, 0.0));
    }
}
