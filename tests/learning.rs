//! What is learned is right: streams whose true values are known.

mod support;

use criticd::learner::refit;
use criticd::learner::window::Window;
use criticd::learner::{Learner, Settings, Verdict};
use criticd::sim::{self, Step, walk};
use criticd::transition::Batch;

/// Streams a batch into the window the way the daemon does: a chain goes on while nothing is missing.
struct Feed {
    window: Window,
    next_seq: Option<u64>,
    last: Option<Vec<f64>>,
}

impl Feed {
    fn new(dim: usize) -> Self {
        Self { window: Window::new(dim, 1, 200_000), next_seq: None, last: None }
    }

    fn push(&mut self, batch: &Batch) {
        for i in 0..batch.len() {
            let seq = batch.seq().map(|seq| seq + i as u64);
            let follows = seq == self.next_seq && self.last.as_deref() == Some(batch.state(i));
            self.window.push(0, !follows, batch, i);
            self.last = (!batch.terminated(i) && !batch.truncated(i)).then(|| batch.next_state(i).to_vec());
            self.next_seq = seq.map(|seq| seq + 1);
        }
    }
}

/// Run a refit to its end and let the learner decide.
fn refit(learner: &mut Learner, window: &Window) {
    let Some(reason) = learner.refit_due() else { return };
    let job = learner.refit_job(window, reason).expect("there is a model");
    let candidate = refit::run(&job, &|| true, &|| true).expect("a candidate");
    match learner.consider(candidate, window) {
        Verdict::Adopted { report, .. } => eprintln!("adopted {report:?}"),
        Verdict::Rejected { report, why } => eprintln!("rejected {why}: {report:?}"),
        Verdict::Behind(_) => panic!("nothing arrived meanwhile"),
    }
}

fn normalised_rmse(found: &[f64], truth: &[f64]) -> f64 {
    let mean = truth.iter().sum::<f64>() / truth.len() as f64;
    let square: f64 = found.iter().zip(truth).map(|(a, b)| (a - b) * (a - b)).sum();
    let spread: f64 = truth.iter().map(|v| (v - mean) * (v - mean)).sum();
    (square / spread).sqrt()
}

fn walk_error(time_limit: u32, lost: f64, seed: u64) -> f64 {
    let settings =
        Settings { discount: 0.95, evidence_rows: 400, refit_first_rows: 2000, refit_growth: 4.0, ..Settings::default() };
    let (mut learner, mut feed) = (Learner::new(settings, None), Feed::new(1));
    let mut walk = walk::Walk::new(seed, Some(time_limit), lost);
    let mut count = 0;
    while count < 32_000 {
        let steps: Vec<Step> = (0..256).map(|_| walk.step()).collect();
        count += steps.len();
        sim::batches("walk", "", &steps).iter().for_each(|batch| feed.push(batch));
        learner.step(&feed.window);
        refit(&mut learner, &feed.window);
    }
    let snapshot = learner.snapshot(false).unwrap();
    let found = snapshot.evaluate(&walk::states(), false).unwrap();
    normalised_rmse(found.mean.as_slice(), walk::true_values(0.95).as_slice())
}

#[test]
fn cut_chains_do_not_bias_the_walk() {
    for (time_limit, lost) in [(40, 0.0), (10, 0.0), (40, 0.05), (40, 0.2)] {
        let error = walk_error(time_limit, lost, 7);
        eprintln!("limit {time_limit} lost {lost}: {error:.4}");
        assert!(error < 0.05, "time limit {time_limit}, {lost} of the frames lost: normalised RMSE {error}");
    }
}
