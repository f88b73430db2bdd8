//! What refits do to the error of V, on streams whose true values are known: one line for each.
//!
//! `cargo run --release -p criticd-learner --example refits -- [--streams waves,wall] [--seeds 0,1] [--rows 100000] [--late 0]
//! [--untried] [--once] [--kernel auto]`
//!
//! A learner with all its defaults but the discount is refitted whenever that is due, and twice more at the end. `--late N` rows come
//! while each refit runs. `--untried` adopts every candidate, whatever its trial says. Columns: rows; error of V over its deviation before
//! the verdict and after it, and in brackets the error of the model and of the candidate without what tracks the stream; what
//! the trial and the choice said, gain / standard error; processor seconds; what was chosen. `--once` selects a single model of
//! all rows, as `fit` does.

use criticd_learner::model::Model;
use criticd_learner::refit::{self, RefitReport};
use criticd_learner::snapshot::{Ask, Snapshot};
use criticd_learner::window::Window;
use criticd_learner::{Learner, Settings, Verdict};
use criticd_sim::linear::{Linear, NAMES};
use criticd_sim::{self as sim, Step};

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
    /// Rows that come while a refit runs, and whether its candidate is adopted untried.
    late: u64,
    untried: bool,
}

impl Run {
    fn new(name: &str, seed: u64, settings: &Settings, (late, untried): (u64, bool)) -> Self {
        let stream = Linear::named(name, seed).unwrap_or_else(|| panic!("streams are {}", NAMES.join(", ")));
        let settings = Settings { discount: stream.discount, seed, ..settings.clone() };
        let window = Window::new(stream.dim(), 1, 200_000);
        let truth = stream.truth(STATES, seed);
        Self { truth, stream, learner: Learner::new(settings, None), window, follows: false, late, untried }
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
        learner.snapshot(false).map_or(1.0, |snapshot| self.error_of(&snapshot))
    }

    fn error_of(&self, snapshot: &Snapshot) -> f64 {
        let found = snapshot.evaluate(&self.truth.0, Ask::MEAN).expect("states");
        let (values, truth) = (found.mean.as_slice(), &self.truth.1);
        let mean = truth.iter().sum::<f64>() / truth.len() as f64;
        let square: f64 = values.iter().zip(truth).map(|(v, t)| (v - t).powi(2)).sum();
        (square / truth.iter().map(|t| (t - mean).powi(2)).sum::<f64>()).sqrt()
    }

    /// The same of a model without what tracks the stream.
    fn error_alone(&self, model: &Model) -> f64 {
        model.snapshot(false).map_or(f64::NAN, |snapshot| self.error_of(&snapshot))
    }

    /// One refit, if it is due: the line of it, and the error after it over that before, with what tracks the stream and without.
    fn refit(&mut self) -> Option<(String, [f64; 2])> {
        let reason = self.learner.refit_due()?;
        let job = self.learner.refit_job(&self.window, reason).expect("a model");
        let before = processor_seconds();
        let found = refit::run(&job, &|| true);
        let seconds = processor_seconds() - before;
        self.take(self.late);
        let mut candidate = match found {
            Ok(candidate) => candidate,
            Err(why) => {
                self.learner.refit_failed();
                return Some((format!("{:>7}  {why}", self.learner.learned()), [1.0; 2]));
            }
        };
        let trial = judged(&candidate.report);
        if self.untried {
            candidate.report.trial = None;
        }
        let before = self.error(&self.learner);
        let alone = self.learner.model().map_or(1.0, |model| self.error_alone(model));
        let (verdict, theirs) = loop {
            candidate.catch_up(&self.window, &|| true).expect("nothing stops it");
            let theirs = self.error_alone(&candidate.model);
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
            "{:>7} {before:.4} {after:.4} ({alone:.4} {theirs:.4}) {adopted:7} {} {seconds:5.1} s  {}",
            self.learner.learned(),
            trial,
            chosen(&self.learner, report)
        );
        let model = self.learner.model().map_or(1.0, |model| self.error_alone(model));
        Some((line, [after / before, model / alone]))
    }
}

/// Seconds of a processor that this program has used, as Linux counts them; 0 elsewhere.
fn processor_seconds() -> f64 {
    let read = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    read.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}

/// What the trial and the choice said, each in standard errors.
fn judged(report: &RefitReport) -> String {
    let trial = report.trial.map_or("-".into(), |t| format!("{:+.1e} / {:.0e}", t.gain, t.standard_error));
    let chosen = report.selection.as_ref().and_then(|s| s.gain.zip(s.standard_error));
    format!("trial {trial} choice {}", chosen.map_or("-".into(), |(gain, error)| format!("{gain:+.1e} / {error:.0e}")))
}

fn chosen(learner: &Learner, report: &RefitReport) -> String {
    let lambda = learner.model().map_or(1.0, |model| model.lambda());
    let Some(selection) = &report.selection else { return String::new() };
    let best = selection.candidates.first().map_or("", |best| &best.name);
    let stays = if selection.present_stays { "present stays; " } else { "" };
    format!("{stays}{best}, lambda {lambda}, score {:.5}, m = {}", selection.score, report.dictionary_size)
}

fn main() {
    let (mut names, mut seeds, mut rows) = (NAMES.join(","), "0".to_owned(), 100_000);
    let (mut late, mut untried, mut once) = (0, false, false);
    let mut settings = Settings::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("an option has a value");
        match argument.as_str() {
            "--streams" => names = value(),
            "--seeds" => seeds = value(),
            "--rows" => rows = value().parse().expect("a number of rows"),
            "--late" => late = value().parse().expect("a number of rows"),
            "--untried" => untried = true,
            "--once" => once = true,
            "--kernel" => settings.kernel = kernel(&value()),
            other => panic!("no option {other}"),
        }
    }
    let mut ratios = Vec::new();
    for name in names.split(',') {
        for seed in seeds.split(',') {
            println!("{name}, seed {seed}");
            let mut run = Run::new(name, seed.parse().expect("a seed"), &settings, (late, untried));
            while run.learner.learned() < rows {
                run.take(GROUP);
                if let Some((line, ratio)) = (!once).then(|| run.refit()).flatten() {
                    println!("{line}");
                    ratios.push(ratio);
                }
            }
            for _ in 0..if once { 1 } else { 2 } {
                run.learner.request_refit();
                let (line, ratio) = run.refit().expect("it has been asked for");
                println!("{line}");
                ratios.push(ratio);
            }
        }
    }
    for (k, of) in ["V", "V without what tracks the stream"].into_iter().enumerate() {
        let ratios: Vec<f64> = ratios.iter().map(|of: &[f64; 2]| of[k]).collect();
        let count = ratios.len();
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count as f64).exp();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        let worse = ratios.iter().filter(|ratio| **ratio > WORSE).count();
        println!(
            "{of}: {count} refits; error after over before: {mean:.3} in the geometric mean, {worst:.3} at worst, {worse} above 1.03"
        );
    }
}

fn kernel(name: &str) -> criticd_learner::KernelKind {
    match name {
        "ard" => criticd_learner::KernelKind::Ard,
        "auto" => criticd_learner::KernelKind::Auto,
        "isotropic" => criticd_learner::KernelKind::Isotropic,
        other => panic!("no kernel {other}"),
    }
}
