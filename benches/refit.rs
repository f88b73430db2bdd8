//! A refit on a full window while rows keep coming: how long it takes, how soon it could be stopped, and what it costs the
//! stream.
//!
//! `cargo bench --bench refit` (some minutes); `-- --test` runs it once on few rows.

use criticd::learner::refit::{self, Candidate};
use criticd::learner::window::Window;
use criticd::learner::{KernelKind, Learner, Settings, Verdict};
use criticd::sim::{self, Step, pendulum::Pendulum};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rows learned between two looks at what else there is to do, as in the daemon.
const GROUP: usize = 256;

/// Rows of a noisy pendulum, over and over.
struct Source {
    batches: Vec<criticd::transition::Batch>,
    at: (usize, usize),
}

impl Source {
    fn new(rows: usize) -> Self {
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..rows).map(|_| pendulum.step()).collect();
        Self { batches: sim::batches("pendulum", "", &steps), at: (0, 0) }
    }

    fn push(&mut self, window: &mut Window, rows: usize) {
        for _ in 0..rows {
            let (b, i) = self.at;
            let batch = &self.batches[b];
            let follows = i > 0 && !batch.terminated(i - 1) && !batch.truncated(i - 1);
            window.push(0, !follows, batch, i);
            self.at = if i + 1 < batch.len() { (b, i + 1) } else { ((b + 1) % self.batches.len(), 0) };
        }
    }
}

/// Rows per second of a learner that does nothing else, until `until` says so.
fn stream(learner: &mut Learner, window: &mut Window, source: &mut Source, until: impl Fn() -> bool) -> f64 {
    let (started, mut rows) = (Instant::now(), 0);
    while !until() {
        source.push(window, GROUP);
        learner.step(window);
        rows += GROUP;
    }
    rows as f64 / started.elapsed().as_secs_f64()
}

fn measure(rows: usize, kernel: KernelKind, seconds: f64) {
    let settings = Settings { kernel, refit_first_rows: 0, ..Settings::default() };
    let mut learner = Learner::new(settings.clone(), Some(vec!["angle".into(), "speed".into()]));
    let (mut window, mut source) = (Window::new(2, 1, rows), Source::new(rows));
    while window.len() < rows {
        source.push(&mut window, GROUP);
        learner.step(&window);
    }
    // The first refit replaces the data-driven model: what is measured is a later one, as it happens again and again.
    for last in [false, true] {
        learner.request_refit();
        let job = learner.refit_job(&window, learner.refit_due().expect("asked for")).expect("a model");
        let pause = Duration::from_secs_f64(seconds);
        let alone = {
            let started = Instant::now();
            stream(&mut learner, &mut window, &mut source, || started.elapsed() > pause)
        };
        let done = AtomicBool::new(false);
        let (found, beside) = std::thread::scope(|scope| {
            let refit = scope.spawn(|| {
                // As in the daemon: whoever answers goes first.
                let polite = rustix::process::nice(5);
                assert!(polite.is_ok(), "{polite:?}");
                let found = timed(&job);
                done.store(true, Ordering::Relaxed);
                found
            });
            let beside = stream(&mut learner, &mut window, &mut source, || done.load(Ordering::Relaxed));
            (refit.join().expect("the refit panicked"), beside)
        });
        let (candidate, total, longest) = found;
        let report = candidate.report.clone();
        if last {
            println!(
                "{kernel:?}, {} rows: {total:.1} s of {:.0} s, {} evaluations, m = {}, \
                 longest time between two looks at the stop flag {:.0} ms",
                report.rows,
                settings.refit_budget_s,
                report.evaluations,
                report.dictionary_size,
                longest * 1e3
            );
            println!(
                "    the stream meanwhile: {beside:.0} rows/s, alone {alone:.0} rows/s: {:.2} of it",
                beside / alone
            );
            report.findings.iter().for_each(|finding| println!("    {}", criticd::wire::diagnostic(finding)));
        }
        adopt(&mut learner, candidate, &window);
    }
}

fn adopt(learner: &mut Learner, candidate: Candidate, window: &Window) {
    let mut candidate = candidate;
    loop {
        match learner.try_adopt(candidate, window) {
            Verdict::Behind(behind) => {
                candidate = behind;
                candidate.catch_up(window, &|| true).expect("it never asks to stop");
            }
            Verdict::Adopted { .. } | Verdict::Rejected { .. } => return,
        }
    }
}

/// The candidate, seconds in all, and the longest time between two looks at the stop flag.
fn timed(job: &refit::RefitJob) -> (Candidate, f64, f64) {
    let started = Instant::now();
    // The last look, and the longest time between two.
    let looks = Mutex::new((Instant::now(), 0.0f64));
    let keep_going = || {
        let (last, longest) = &mut *looks.lock();
        *longest = longest.max(last.elapsed().as_secs_f64());
        *last = Instant::now();
        true
    };
    let candidate = refit::run(job, &keep_going).expect("a candidate");
    (candidate, started.elapsed().as_secs_f64(), looks.into_inner().1)
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let (rows, seconds) = if test { (1_000, 0.05) } else { (200_000, 5.0) };
    for kernel in [KernelKind::Ard, KernelKind::Auto] {
        measure(rows, kernel, seconds);
    }
}
