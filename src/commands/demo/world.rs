//! The worlds of the demo: a simulator, its true values, and how to draw it.

use crate::picture::{Axis, Colours, Curves, Fade, Figure, Heatmap, Line, Marker, Panel, Points, Scale};
use crate::sim::Step;
use crate::sim::gridworld::{self, Gridworld};
use crate::sim::pendulum::{Pendulum, SPEED_MAX};
use crate::snapshot::{Ask, Snapshot};
use std::f64::consts::PI;

/// Disturbance of the pendulum's torque, N m.
const TORQUE_NOISE: f64 = 0.5;
/// States at which the pendulum's value is compared with rollouts, and rollouts from each.
const STATES: usize = 300;
const ROLLOUTS: u64 = 16;
/// Cells of a picture.
const COLUMNS: usize = 175;
const CELLS_DOWN: usize = 150;
/// Cells of the picture of rollouts, and rollouts in each.
const COARSE_COLUMNS: usize = 70;
const COARSE_ROWS: usize = 60;
const COARSE_ROLLOUTS: u64 = 4;
/// Points of a curve.
const CURVE: usize = 201;

/// Which simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum World {
    /// Swing-up of a pendulum whose motor is too weak to lift it at once
    Pendulum,
    /// An 11 x 11 gridworld in which only one of two coordinates matters
    Gridworld,
}

/// A state variable.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// From where to where it goes.
    pub(super) range: [f64; 2],
}

/// What really follows from some states.
pub(super) struct Truth {
    /// (n, 2), row-major.
    pub(super) states: Vec<f64>,
    /// (n,), the value at each of them.
    pub(super) values: Vec<f64>,
    /// (n, k), row-major: returns of single runs from them.
    pub(super) returns: Vec<f64>,
}

/// How far a model is from the truth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accuracy {
    /// Root mean square error of the value.
    pub(super) rms: f64,
    /// Correlation of the value with the truth; 0 if either is constant.
    pub(super) correlation: f64,
    /// Share of single returns within the model's 90 % interval of a return, if it has one.
    pub(super) coverage: Option<f64>,
}

impl Truth {
    /// Compare a model with it.
    pub(super) fn compare(&self, snapshot: &Snapshot) -> Accuracy {
        let evaluation = snapshot.evaluate(&self.states, Ask::ALL).expect("the demo's states are sound");
        let (n, k) = (self.values.len() as f64, self.returns.len() / self.values.len());
        let mean: Vec<f64> = evaluation.mean.column(0).iter().copied().collect();
        let average = |v: &[f64]| v.iter().sum::<f64>() / n;
        let covariance = |a: &[f64], b: &[f64]| {
            let (a_mean, b_mean) = (average(a), average(b));
            a.iter().zip(b).map(|(a, b)| (a - a_mean) * (b - b_mean)).sum::<f64>() / n
        };
        let scale = (covariance(&mean, &mean) * covariance(&self.values, &self.values)).sqrt();
        let square: f64 = mean.iter().zip(&self.values).map(|(a, b)| (a - b) * (a - b)).sum();
        let coverage = evaluation.return_variance.map(|variance| {
            let inside = |i: usize| {
                // Nine tenths of a normal distribution.
                let half_width = 1.644_854 * variance[(i, 0)].sqrt();
                self.returns[i * k..(i + 1) * k].iter().filter(|g| (*g - mean[i]).abs() <= half_width).count()
            };
            (0..mean.len()).map(inside).sum::<usize>() as f64 / self.returns.len() as f64
        });
        Accuracy {
            rms: (square / n).sqrt(),
            correlation: if scale > 0.0 { covariance(&mean, &self.values) / scale } else { 0.0 },
            coverage,
        }
    }
}

impl World {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pendulum => "pendulum",
            Self::Gridworld => "gridworld",
        }
    }

    pub(super) fn discount(self) -> f64 {
        match self {
            Self::Pendulum => 0.9,
            Self::Gridworld => 1.0,
        }
    }

    /// What the errors are measured against.
    pub(super) fn reference(self) -> &'static str {
        match self {
            Self::Pendulum => "rollouts of the same policy",
            Self::Gridworld => "the true value",
        }
    }

    pub(super) fn variables(self) -> [Variable; 2] {
        let cells = [0.5, f64::from(gridworld::SIZE) + 0.5];
        match self {
            Self::Pendulum => [
                Variable { name: "angle", unit: "rad", range: [-PI, PI] },
                Variable { name: "speed", unit: "rad/s", range: [-SPEED_MAX, SPEED_MAX] },
            ],
            Self::Gridworld => [
                Variable { name: "x", unit: "cells", range: cells },
                Variable { name: "y", unit: "cells", range: cells },
            ],
        }
    }

    /// A run of the simulator, another for each copy.
    pub(super) fn simulator(self, copy: u64) -> Box<dyn FnMut() -> Step> {
        match self {
            Self::Pendulum => {
                let mut pendulum = Pendulum::new(copy, TORQUE_NOISE);
                Box::new(move || pendulum.step())
            }
            Self::Gridworld => {
                let mut grid = Gridworld::new(copy);
                Box::new(move || grid.step())
            }
        }
    }

    /// States all over the state space, and what follows from them.
    pub(super) fn truth(self, discount: f64) -> Truth {
        let mut truth = Truth { states: Vec::new(), values: Vec::new(), returns: Vec::new() };
        match self {
            Self::Pendulum => {
                let pendulum = Pendulum::new(0, TORQUE_NOISE);
                for i in 0..STATES {
                    let state = spread(i).map(|u| 2.0 * u - 1.0);
                    let state = [PI * state[0], SPEED_MAX * state[1]];
                    let seed = |j| i as u64 * ROLLOUTS + j;
                    let run = |j| pendulum.rollout_return(state, discount, seed(j));
                    let returns: Vec<f64> = (0..ROLLOUTS).map(run).collect();
                    truth.states.extend(state);
                    truth.values.push(returns.iter().sum::<f64>() / returns.len() as f64);
                    truth.returns.extend(returns);
                }
            }
            Self::Gridworld => {
                for (x, y) in (1..=gridworld::SIZE).flat_map(|x| (1..=gridworld::SIZE).map(move |y| (x, y))) {
                    truth.states.extend([f64::from(x), f64::from(y)]);
                    truth.values.push(gridworld::true_value(x, discount));
                }
                truth.returns = truth.values.clone();
            }
        }
        truth
    }

    /// The true value on a grid over the state space, for the dashboard.
    pub(super) fn map(self, discount: f64) -> crate::http::Truth {
        let ranges = self.variables().map(|variable| variable.range);
        let (columns, rows) = match self {
            Self::Pendulum => (COARSE_COLUMNS, COARSE_ROWS),
            Self::Gridworld => (gridworld::SIZE as usize, gridworld::SIZE as usize),
        };
        let [x, y] = ranges.map(|[low, high]| Axis::new("", low, high));
        let value = |state: &[f64; 2]| match self {
            Self::Pendulum => average_return(*state, discount, COARSE_ROLLOUTS),
            Self::Gridworld => gridworld::true_value(state[0].round() as i32, discount),
        };
        crate::http::Truth::new(columns, ranges, Heatmap::centres(&x, &y, columns, rows).iter().map(value).collect())
    }

    /// What the model says, with the states it stands on and those that came last.
    pub(super) fn figure(self, snapshot: &Snapshot, recent: Vec<[f64; 2]>) -> Figure {
        match self {
            Self::Pendulum => pendulum_figure(snapshot, recent),
            Self::Gridworld => gridworld_figure(snapshot),
        }
    }
}

/// Point `i` of a sequence that fills the unit square evenly (Roberts' generalised golden ratio).
fn spread(i: usize) -> [f64; 2] {
    const GOLDEN: f64 = 1.324_717_957_244_746;
    [1.0 / GOLDEN, 1.0 / (GOLDEN * GOLDEN)].map(|step| (0.5 + step * (i + 1) as f64).fract())
}

/// Mean and standard deviation of V at points.
fn evaluate(snapshot: &Snapshot, at: &[[f64; 2]]) -> (Vec<f64>, Vec<f64>) {
    let evaluation = snapshot.evaluate(at.as_flattened(), Ask::VARIANCE).expect("a picture's points are sound");
    let deviation = evaluation.variance.expect("the snapshot was asked for with its variance");
    (evaluation.mean.column(0).iter().copied().collect(), deviation.into_iter().map(f64::sqrt).collect())
}

/// The dictionary in the environment's coordinates.
fn dictionary(snapshot: &Snapshot) -> Points {
    let inputs = &snapshot.inputs;
    let raw = |i: usize, d: usize| inputs.shift[d] + inputs.scale[d] * snapshot.dictionary[(i, d)];
    let at = (0..snapshot.dictionary.nrows()).map(|i| [raw(i, 0), raw(i, 1)]).collect();
    Points { label: "dictionary".into(), at, marker: Marker::Ring }
}

/// What a model stands on: "20000 rows, discount 0.9".
fn learned_from(snapshot: &Snapshot) -> String {
    format!("{} rows, discount {}", snapshot.offset, snapshot.discount)
}

fn pendulum_figure(snapshot: &Snapshot, recent: Vec<[f64; 2]>) -> Figure {
    let axes =
        || (Axis::angle("angle φ [rad], 0 is upright", -PI, PI), Axis::new("speed φ' [rad/s]", -SPEED_MAX, SPEED_MAX));
    let (x, y) = axes();
    let (mean, deviation) = evaluate(snapshot, &Heatmap::centres(&x, &y, COLUMNS, CELLS_DOWN));
    let title = format!("Value learned\n{}", learned_from(snapshot));
    let mut value = Heatmap::new(title, x, y, COLUMNS, mean, "discounted sum of rewards");
    // Before a refit has selected the model, its deviations are the prior's and say nothing about places.
    value.fade = (!snapshot.provisional).then(|| {
        let prior = snapshot.hyperparameters.kernel.signal_variance.sqrt();
        Fade { label: "hatched: not known".into(), amount: deviation.iter().map(|s| (s / prior).min(1.0)).collect() }
    });
    value.points = vec![Points { label: "latest states".into(), at: recent, marker: Marker::Dot }];
    let (x, y) = axes();
    let coarse = Heatmap::centres(&x, &y, COARSE_COLUMNS, COARSE_ROWS);
    let rollouts: Vec<f64> =
        coarse.iter().map(|&state| average_return(state, snapshot.discount, COARSE_ROLLOUTS)).collect();
    let (learned, _) = evaluate(snapshot, &coarse);
    let errors: Vec<f64> = learned.iter().zip(&rollouts).map(|(learned, truth)| learned - truth).collect();
    // One scale for both, set by the true value, and one bar.
    let bound = |f: fn(f64, f64) -> f64, start| rollouts.iter().copied().fold(start, f);
    let range = [bound(f64::min, f64::INFINITY), bound(f64::max, f64::NEG_INFINITY)];
    (value.value_range, value.bar) = (Some(range), false);
    let title = format!("Truth: average of {COARSE_ROLLOUTS} rollouts");
    let mut truth = Heatmap::new(title, x, y, COARSE_COLUMNS, rollouts, "discounted sum of rewards");
    truth.value_range = Some(range);
    let (x, y) = axes();
    let most = errors.iter().fold(0.0f64, |most, error| most.max(error.abs()));
    let mut error = Heatmap::new("Error", x, y, COARSE_COLUMNS, errors, "learned − true value");
    (error.colours, error.value_range) = (Colours::Difference, Some([-most, most]));
    error.points = vec![dictionary(snapshot)];
    Figure { panels: vec![Panel::Heatmap(value), Panel::Heatmap(truth), Panel::Heatmap(error)] }
}

fn average_return(state: [f64; 2], discount: f64, rollouts: u64) -> f64 {
    let pendulum = Pendulum::new(0, TORQUE_NOISE);
    (0..rollouts).map(|seed| pendulum.rollout_return(state, discount, seed)).sum::<f64>() / rollouts as f64
}

fn gridworld_figure(snapshot: &Snapshot) -> Figure {
    let size = gridworld::SIZE;
    let [low, high] = World::Gridworld.variables()[0].range;
    let (x, y) = (Axis::new("x", low, high), Axis::new("y", low, high));
    let (mean, _) = evaluate(snapshot, &Heatmap::centres(&x, &y, size as usize, size as usize));
    let title = format!("Value: y does not matter\n{}", learned_from(snapshot));
    let mut value = Heatmap::new(title, x, y, size as usize, mean, "value");
    value.smooth = false;
    value.points = vec![dictionary(snapshot)];

    let at: Vec<f64> = (0..CURVE).map(|k| 1.0 + f64::from(size - 1) * k as f64 / (CURVE - 1) as f64).collect();
    let middle = f64::from(1 + size) / 2.0;
    let (mean, deviation) = evaluate(snapshot, &at.iter().map(|&x| [x, middle]).collect::<Vec<_>>());
    let line = Line { label: format!("y = {middle}"), mean, deviation: Some(deviation), dashed: false };
    let true_value = |x| [f64::from(x), gridworld::true_value(x, snapshot.discount)];
    let true_values = (1..=size).map(true_value).collect();
    let curves = Curves {
        title: "Value along x, with two standard deviations".into(),
        x: Axis::new("x", low, high),
        y_label: "value".into(),
        y_scale: Scale::Linear,
        y_range: None,
        lines: vec![line],
        fade: None,
        at,
        points: vec![Points { label: "true value".into(), at: true_values, marker: Marker::Ring }],
    };
    Figure { panels: vec![Panel::Heatmap(value), Panel::Curves(curves)] }
}
