//! What refits do to the error of V, on streams whose true values are known: one line for each.
//!
//! `cargo run --release -p criticd-learner --example refits -- [--streams waves,wall] [--seeds 0,1] [--rows 100000] [--late 0]
//! [--once] [--kernel auto]`
//!
//! A learner with all its defaults but the discount is refitted whenever that is due, and twice more at the end. `--late N` rows come
//! while each refit runs. Columns: rows; error of V over its deviation before the verdict and after it, and that of the candidate;
//! what the trial and the choice said; processor seconds; what was chosen. `--once` selects a single model of all rows, as `fit` does.

use criticd_learner::refit::{self, Candidate, RefitReport};
use criticd_learner::sim::linear::{Linear, NAMES};
use criticd_learner::sim::{self, Step};
use criticd_learner::snapshot::Ask;
use criticd_learner::window::Window;
use criticd_learner::{Learner, Settings, Verdict};

/// Rows learned at a time.
const GROUP: u64 = 100;
/// States that errors are taken at.
const STATES: usize = 1000;
/// Largest ratio of errors, of the model after a refit and before it.
const WORSE: f64 = 1.03;

struct Run {
    stream: Linear,
    truth: (Vec<f64>, Vec<f64>),
    learner: Learner,
    window: Window,
    follows: bool,
}

impl Run {
    fn new(name: &str, seed: u64, settings: &Settings) -> Self {
        let stream = Linear::named(name, seed).unwrap_or_else(|| panic!("streams are {}", NAMES.join(", ")));
        let settings = Settings { discount: stream.discount, seed, ..settings.clone() };
        let window = Window::new(stream.dim(), 1, 200_000);
        let truth = stream.truth(STATES, seed);
        Self { truth, stream, learner: Learner::new(settings, None), window, follows: false }
    }

    fn take(&mut self, rows: u64) {
        let steps: Vec<Step> = (0..rows).map(|_| self.stream.step()).collect();
        for batch in sim::batches("s", "", &steps) {
            for i in 0..batch.len() {
                self.window.push(0, !self.follows, &batch, i);
                self.follows = !batch.truncated(i);
            }
        }
        self.learner.step(&self.window);
    }

    /// Error of V over its deviation; 1 where there is no model.
    fn error(&self, learner: &Learner) -> f64 {
        let Ok(snapshot) = learner.snapshot(false) else { return 1.0 };
        self.error_of(snapshot.evaluate(&self.truth.0, Ask::MEAN).expect("states").mean.as_slice())
    }

    fn error_of(&self, values: &[f64]) -> f64 {
        let truth = &self.truth.1;
        let mean = truth.iter().sum::<f64>() / truth.len() as f64;
        let square: f64 = values.iter().zip(truth).map(|(v, t)| (v - t).powi(2)).sum();
        (square / truth.iter().map(|t| (t - mean).powi(2)).sum::<f64>()).sqrt()
    }

    fn candidate_error(&self, candidate: &Candidate) -> f64 {
        let Ok(snapshot) = candidate.model.snapshot(false) else { return f64::NAN };
        self.error_of(snapshot.evaluate(&self.truth.0, Ask::MEAN).expect("states").mean.as_slice())
    }

    /// One refit, if it is due: the line of it, and the error after it over that before.
    fn refit(&mut self, late: u64) -> Option<(String, f64)> {
        let reason = self.learner.refit_due()?;
        let job = self.learner.refit_job(&self.window, reason).expect("a model");
        let before = processor_seconds();
        let found = refit::run(&job, &|| true, &|| true);
        let seconds = processor_seconds() - before;
        self.take(late);
        let mut candidate = match found {
            Ok(candidate) => candidate,
            Err(why) => {
                self.learner.refit_failed();
                return Some((format!("{:>7}  {why}", self.learner.learned()), 1.0));
            }
        };
        let before = self.error(&self.learner);
        let (verdict, theirs) = loop {
            candidate.catch_up(&self.window, &|| true).expect("nothing stops it");
            let theirs = self.candidate_error(&candidate);
            match self.learner.try_adopt(candidate, &self.window) {
                Verdict::Behind(behind) => candidate = behind,
                verdict => break (verdict, theirs),
            }
        };
        let after = self.error(&self.learner);
        let (adopted, report) = match &verdict {
            Verdict::Adopted { report, .. } => ("adopted", report),
            Verdict::Rejected { report, .. } => ("stays", report),
            Verdict::Behind(_) => unreachable!("it has been caught up"),
        };
        let line = format!(
            "{:>7} {before:.4} {after:.4} ({theirs:.4}, {:.2}) {adopted:7} {} {seconds:5.1} s  {}",
            self.learner.learned(),
            theirs / before,
            judged(report),
            chosen(&self.learner, report)
        );
        Some((line, after / before))
    }
}

/// Seconds of a processor that this program has used, as Linux counts them; 0 elsewhere.
fn processor_seconds() -> f64 {
    let read = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    read.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}

/// What the trial and the choice said, each in standard errors.
fn judged(report: &RefitReport) -> String {
    let trial = report.trial.map_or("-".into(), |t| format!("{:+.1}", t.gain / t.standard_error));
    let selection = report.selection.as_ref();
    let gain = selection.and_then(|s| s.gain.zip(s.standard_error)).map(|(gain, error)| gain / error.max(1e-300));
    format!("trial {trial} choice {}", gain.map_or("-".into(), |gain| format!("{gain:+.1}")))
}

fn chosen(learner: &Learner, report: &RefitReport) -> String {
    let lambda = learner.model().map_or(1.0, |model| model.lambda());
    let Some(selection) = &report.selection else { return String::new() };
    let best = selection.candidates.first().map_or("", |best| &best.name);
    let stays = if selection.present_stays { "present stays; " } else { "" };
    format!("{stays}{best}, lambda {lambda}, score {:.5}, m = {}", selection.score, report.dictionary_size)
}

fn main() {
    let (mut names, mut seeds, mut rows, mut late, mut once) = (NAMES.join(","), "0".to_owned(), 100_000, 0, false);
    let mut settings = Settings::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("an option has a value");
        match argument.as_str() {
            "--streams" => names = value(),
            "--seeds" => seeds = value(),
            "--rows" => rows = value().parse().expect("a number of rows"),
            "--late" => late = value().parse().expect("a number of rows"),
            "--once" => once = true,
            "--kernel" => settings.kernel = kernel(&value()),
            other => panic!("no option {other}"),
        }
    }
    let mut ratios = Vec::new();
    for name in names.split(',') {
        for seed in seeds.split(',') {
            println!("{name}, seed {seed}");
            let mut run = Run::new(name, seed.parse().expect("a seed"), &settings);
            while run.learner.learned() < rows {
                run.take(GROUP);
                if let Some((line, ratio)) = (!once).then(|| run.refit(late)).flatten() {
                    println!("{line}");
                    ratios.push(ratio);
                }
            }
            for _ in 0..if once { 1 } else { 2 } {
                run.learner.request_refit();
                let (line, ratio) = run.refit(late).expect("it has been asked for");
                println!("{line}");
                ratios.push(ratio);
            }
        }
    }
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    let worse = ratios.iter().filter(|ratio| **ratio > WORSE).count();
    println!(
        "{} refits, {worse} of them raised the error by more than 3 %; the worst to {worst:.3} of it",
        ratios.len()
    );
}

fn kernel(name: &str) -> criticd_learner::KernelKind {
    match name {
        "ard" => criticd_learner::KernelKind::Ard,
        "auto" => criticd_learner::KernelKind::Auto,
        "isotropic" => criticd_learner::KernelKind::Isotropic,
        other => panic!("no kernel {other}"),
    }
}
