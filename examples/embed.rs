//! The learner inside a program of your own, without the daemon: rows in, a value function with its uncertainty out.
//!
//! Run with: `cargo run --release --example embed`

use criticd::learner::window::Window;
use criticd::learner::{Learner, Settings, Verdict, refit};
use criticd::sim::pendulum::Pendulum;
use criticd::sim::{self, Step};
use criticd::snapshot::Ask;
use std::time::Instant;

fn main() {
    let discount = 0.95;
    let settings = Settings { discount, refit_first_rows: 500, refit_growth: 3.0, ..Settings::default() };
    let mut learner = Learner::new(settings, Some(vec!["angle".into(), "velocity".into()]));
    let mut window = Window::new(2, 1, 200_000);
    let mut pendulum = Pendulum::new(1, 0.5);
    // States to look at, and what fresh rollouts of the same policy collect from each.
    let places: Vec<[f64; 2]> = (0..60).map(|_| pendulum.step()).map(|s| [s.state[0], s.state[1]]).collect();
    let rollouts = |at: &[f64; 2]| (0..20).map(|seed| pendulum.rollout_return(*at, discount, seed)).sum::<f64>() / 20.0;
    let truth: Vec<f64> = places.iter().map(rollouts).collect();

    let mut starts_chain = true;
    while window.end() < 20_000 {
        let steps: Vec<Step> = (0..100).map(|_| pendulum.step()).collect();
        for batch in sim::batches("pendulum", "", &steps) {
            for i in 0..batch.len() {
                window.push(0, starts_chain, &batch, i);
                starts_chain = batch.terminated(i) || batch.truncated(i);
            }
        }
        learner.step(&window);
        let Some(reason) = learner.refit_due() else { continue };
        let started = Instant::now();
        let job = learner.refit_job(&window, reason).expect("there is a model to start from");
        match refit::run(&job, &|| true) {
            Ok(candidate) => match learner.try_adopt(candidate, &window) {
                Verdict::Adopted { report, .. } => {
                    let value = learner.snapshot(true).expect("a posterior");
                    let states: Vec<f64> = places.iter().flatten().copied().collect();
                    let found = value.evaluate(&states, Ask::VARIANCE).expect("states of the right dimension");
                    let square: f64 = found.mean.iter().zip(&truth).map(|(a, b)| (a - b) * (a - b)).sum();
                    println!(
                        "{:6} rows: lambda {}, score {:.4} on {} rows in {:.1} s, dictionary {}, error {:.3}",
                        window.end(),
                        value.lambda,
                        report.selection.as_ref().map_or(f64::NAN, |selection| selection.score),
                        report.selection.as_ref().map_or(0, |selection| selection.rows),
                        started.elapsed().as_secs_f64(),
                        report.dictionary_size,
                        (square / truth.len() as f64).sqrt()
                    );
                    println!("              {:?}", value.hyperparameters);
                    if !report.active_bounds.is_empty() {
                        println!(
                            "              {}",
                            report
                                .active_bounds
                                .iter()
                                .map(|bound| bound.parameter.as_str())
                                .collect::<Vec<_>>()
                                .join(", ")
                        );
                    }
                }
                Verdict::Rejected { why, .. } => println!("{:6} rows: the model stays: {why}", window.end()),
                Verdict::Behind(_) => unreachable!("no rows arrived meanwhile"),
            },
            Err(why) => println!("{:6} rows: the model stays: {why}", window.end()),
        }
    }
    let (mean, count) = (rollout_mean(&truth), truth.len());
    println!("values of the {count} states looked at average {mean:.2}");
}

fn rollout_mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
