//! Model selection finds what is known to be best on a recorded gridworld, and says which bounds hold it.

use crate::support::GO;
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::evidence::{self, Problem, parameter_names};
use criticd_learner::math::exact::exact_fixed_point;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::math::optimise::{Ascent, Bounds, Budget, Outcome, maximise, starts};
use criticd_learner::math::returns::Returns;
use criticd_learner::transition::Rows;
use criticd_reference::{TESTS, numbers};
use serde_json::Value;

fn path(name: &str) -> String {
    format!("{TESTS}/data/{name}")
}

fn gridworld() -> Rows {
    let mut rows = Rows::new(2, 1);
    let mut running = false;
    for record in csv::Reader::from_path(path("gridworld_seed0.csv")).unwrap().records() {
        let record = record.unwrap();
        let number = |i: usize| record[i].parse::<f64>().unwrap();
        rows.states.extend([number(1), number(2)]);
        rows.next_states.extend([number(3), number(4)]);
        rows.rewards.push(number(5));
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.terminated.push(&record[6] == "true");
        rows.truncated.push(&record[7] == "true");
        rows.starts_chain.push(!running);
        running = &record[6] != "true" && &record[7] != "true";
    }
    rows
}

struct Case {
    rows: Rows,
    returns: Returns,
    cut_states: Vec<f64>,
    known: Value,
    like: Hyperparameters,
    bounds: Bounds,
}

impl Case {
    fn new(kernel: &str, metric: Metric) -> Self {
        let json: Value =
            serde_json::from_str(&std::fs::read_to_string(path("model_selection.json")).unwrap()).unwrap();
        let case = &json["gridworld_seed0"];
        let rows = gridworld();
        let returns = Returns::new(&rows, &[0], case["discount"].as_f64().unwrap());
        let bound = |side: &str| {
            let log = |key: &str| case[side][key].as_f64().unwrap().ln();
            let mut out = vec![log("v0"), log("b"), log("s2")];
            out.extend(if kernel == "iso" { vec![log("h")] } else { vec![log("a"); 2] });
            out
        };
        let bounds = Bounds { lower: bound("lower_bounds"), upper: bound("upper_bounds") };
        let kernel_like = Kernel::gaussian(1.0, 1.0, metric);
        let like = Hyperparameters { kernel: kernel_like, noise: NoiseModel::Correlated, noise_variance: 1.0 };
        let cut_states = returns.cut_states(&rows);
        Self { known: case["best"][kernel].clone(), cut_states, rows, returns, like, bounds }
    }

    fn problem(&self, targets: Matrix) -> Problem {
        Problem::correlated(2, self.rows.states.clone(), targets)
    }

    fn at_fixed_point(&self, parameters: &[f64]) -> Problem {
        let hyper = evidence::from_parameters(&self.like, parameters);
        let states = self.rows.states.clone();
        self.problem(exact_fixed_point(2, states, &self.cut_states, &self.returns, &hyper, GO).unwrap().targets)
    }

    fn search(&self, problem: &Problem, starts: &[Vec<f64>]) -> Vec<Ascent> {
        let objective = |x: &[f64]| {
            evidence::exact(problem, &evidence::from_parameters(&self.like, x), GO).map(|e| (e.value, e.gradient))
        };
        maximise(objective, starts, &self.bounds, &[], Budget::new(150, GO))
    }
}

/// Evaluate where the best is known to be; search from nothing, targets and parameters in turn.
fn check(kernel: &str, metric: Metric, active: &[&str]) {
    let case = Case::new(kernel, metric.clone());
    let number = |key: &str| case.known[key].as_f64().unwrap();
    let theta = numbers(&case.known["theta"]);
    let known = evidence::exact_value(&case.at_fixed_point(&theta), &evidence::from_parameters(&case.like, &theta), GO)
        .unwrap();
    for (found, expected) in
        [(known.value, number("log_evidence")), (known.complexity, number("complexity")), (known.fit, number("fit"))]
    {
        // The parts are those of the paper's form, which differs in the last, cut chain.
        let tolerance = if expected == number("log_evidence") { 1e-8 } else { 5e-3 };
        assert!((found - expected).abs() < tolerance * expected.abs(), "{found} against {expected}");
    }
    // The noise stands on its floor, and the fit says so.
    assert!(known.fit_ratio() < 0.25);

    let closed_by_zero = case.problem(case.returns.targets(&Matrix::zeros(case.returns.cuts.len(), 1)));
    let from = starts(&metric, 2, closed_by_zero.observed(), None, &case.bounds, 3, 1);
    let first = case.search(&closed_by_zero, &from);
    assert_eq!(first.len(), 5);
    assert!(first.windows(2).all(|pair| pair[0].objective >= pair[1].objective));
    let problem = case.at_fixed_point(&first[0].parameters);
    let second = case.search(&problem, &[first[0].parameters.clone()]);
    let best = &second[0];
    let names = parameter_names(&metric, 2);
    assert_eq!(best.outcome, Outcome::Converged, "{}", best.report(&names));
    let last = case.at_fixed_point(&best.parameters);
    let found = evidence::exact_value(&last, &evidence::from_parameters(&case.like, &best.parameters), GO).unwrap();
    assert!(found.value > number("log_evidence") - 0.5, "{} nats; {}", found.value, best.report(&names));
    let held: Vec<&str> = best.active.iter().map(|b| names[b.parameter].as_str()).collect();
    assert_eq!(held, active);
    for b in &best.active {
        assert_eq!(best.parameters[b.parameter], case.bounds.lower[b.parameter], "exactly on the face");
    }
}

#[test]
fn isotropic() {
    check("iso", Metric::Isotropic(1.0), &["log_noise_variance"]);
}

/// The irrelevant coordinate is found to be irrelevant: its relevance ends on its floor, like the noise.
#[test]
fn ard() {
    check("ard", Metric::Ard(vec![1.0; 2]), &["log_noise_variance", "log_relevance[1]"]);
}
