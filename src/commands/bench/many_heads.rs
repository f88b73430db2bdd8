//! The cost of many heads: a row, a snapshot, an answer, all on this thread.

use super::Failure;
use super::workload::{Case, STEP_S};
use super::{count, micros};
use crate::commands::output::columns;
use crate::daemon::core::REFRESH_SHARE;
use crate::learner::batch::Given;
use crate::learner::heads::{Cumulant, Head, Rate};
use crate::learner::model::Model;
use crate::learner::off_policy::part;
use crate::learner::{Lambda, SelectionKind, Settings, VarianceKind};
use crate::math::dictionary::{Dictionary, StoppingRule};
use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use crate::snapshot::{Inputs, Snapshot};
use crate::telemetry::{resident_bytes, used};
use crate::transition::Rows;
use serde_json::{Value, json};

/// Answers per second that are part of the rate: every head's value and deviation at the state of each step.
const ANSWERS_HZ: f64 = 1.0 / STEP_S;
/// Seconds from one snapshot to the next where rows come ten in a second.
const SNAPSHOT_S: f64 = 10.0;
/// Rows learned at once.
const BLOCK: usize = 256;
/// Rows of the stream that are learned again and again, once a dictionary has been chosen from all of it. Further ones would be memory of the
/// benchmark and of no model.
const STREAM_ROWS: usize = 4096;
/// Rows learned before anything is measured.
const WARMUP_ROWS: usize = 4096;
/// Rows that are learned one by one, and states that are asked for: twice the number that enters the sums together.
const SINGLES: usize = 128;
/// Snapshots that are made.
const SNAPSHOTS: usize = 3;

/// Measurements at one lambda of the critic that shares its rows with the heads.
#[derive(Debug)]
pub(super) struct HeadRun {
    lambda: &'static str,
    /// Processor seconds: a row in a block, a row that comes alone, a snapshot, all heads at one state.
    learn: f64,
    single: f64,
    snapshot: f64,
    answer: f64,
    dictionary: usize,
    /// Memory of the process once a snapshot is made and before it replaces the previous one, the most that was seen, bytes.
    resident: Option<u64>,
    model_bytes: usize,
}

impl HeadRun {
    /// Rows that one core learns in a second beside the snapshots, which the daemon gives that share of learning's time, and the
    /// answers to ten requests in the second for all heads.
    fn rows_per_second(&self) -> f64 {
        (1.0 - ANSWERS_HZ * self.answer).max(0.0) / (self.learn * (1.0 + REFRESH_SHARE))
    }

    /// Seconds from one snapshot to the next at this rate.
    fn snapshot_interval(&self) -> f64 {
        self.snapshot / REFRESH_SHARE * (1.0 + REFRESH_SHARE)
    }

    /// Share of a core that ten rows a second take, each learned and answered as it comes, with a snapshot every ten seconds.
    fn share_at_ten_hertz(&self) -> f64 {
        (self.single + self.answer) / STEP_S + self.snapshot / SNAPSHOT_S
    }
}

/// Heads of `timescales` timescales, 0.1 s times powers of two, and enough cumulants to make `count`: each state variable,
/// each of the next state, and the crossings of thresholds.
fn heads(count: usize, timescales: usize, dim: usize) -> Vec<Head> {
    let cumulant = |k: usize| match k {
        _ if k < dim => Cumulant::State(k),
        _ if k < 2 * dim => Cumulant::NextState(k - dim),
        _ => Cumulant::Event { index: k % dim, above: 0.01 * (k / dim) as f64 - 1.0 },
    };
    let head = |number: usize| {
        let (k, scale) = (number / timescales, number % timescales);
        let seconds = STEP_S * f64::from(1u32 << scale.min(20));
        Head::new(format!("{k}/{scale}"), cumulant(k), Rate::Timescale(seconds))
    };
    (0..count).map(head).collect()
}

/// Measure `count` heads for a critic with lambda 1, and for one with the default settings. With two kernels every second cumulant has the
/// second one.
pub(super) fn measure(
    case: &Case,
    count: usize,
    timescales: usize,
    two_kernels: bool,
    seconds: f64,
) -> Result<Vec<HeadRun>, Failure> {
    let of_kernel = |second: bool| -> Vec<Head> {
        let is_wanted = |number: usize| second == (two_kernels && number / timescales % 2 == 1);
        let all = heads(count, timescales, case.dim).into_iter().enumerate();
        all.filter(|(number, _)| is_wanted(*number)).map(|(_, head)| head).collect()
    };
    // What a run takes goes with it: its memory is what one model and its snapshots take.
    let measured = |lambda: &'static str, of: Settings| -> Result<HeadRun, Failure> {
        let (dictionary_max, heads) = (case.size, of_kernel(false));
        let settings = Settings { discount: 0.95, dictionary_max, tolerance: 1e-6, heads, ..of };
        let rows = case.rows();
        let model = model(settings, of_kernel(true), &rows)?;
        let kept = part(&rows, |i| i < STREAM_ROWS);
        drop(rows);
        run(lambda, model, &kept, seconds)
    };
    let whole = Settings {
        lambda: Lambda::Fixed(1.0),
        selection: SelectionKind::Evidence,
        variance: VarianceKind::Model,
        ..Settings::default()
    };
    Ok(vec![measured("1", whole)?, measured("default", Settings::default())?])
}

/// A model with full dictionaries, whose heads `apart` have a kernel with half the lengthscale.
fn model(settings: Settings, apart: Vec<Head>, rows: &Rows) -> Result<Model, Failure> {
    let inputs = Inputs::identity(rows.dim);
    let lambda = settings.first_lambda();
    let chosen = |relevance: f64| -> Result<(Hyperparameters, Dictionary), Failure> {
        let metric = Metric::Isotropic(relevance / rows.dim as f64);
        let kernel = Kernel::gaussian(1.0, 1.0, metric).with_profile(settings.profile);
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.1 };
        let (settings, inputs) = (&settings, &inputs);
        let given = Given { settings, rows, inputs, hyperparameters: &hyperparameters, lambda, first: 0 };
        let enough = StoppingRule { tolerance: 1e-6, trace: 0.0 };
        let chosen = given.select(enough, settings.dictionary_max, &|| true)?;
        Ok((hyperparameters, chosen.dictionary))
    };
    let (hyperparameters, dictionary) = chosen(1.0)?;
    let second = if apart.is_empty() { None } else { Some(chosen(4.0)?) };
    let mut model = Model::with_dictionary(settings, inputs, &hyperparameters, dictionary);
    model.set_lambda(lambda);
    Ok(match second {
        None => model,
        Some((hyperparameters, dictionary)) => model.with_branch(apart, &hyperparameters, dictionary),
    })
}

fn run(lambda: &'static str, mut model: Model, rows: &Rows, seconds: f64) -> Result<HeadRun, Failure> {
    let mut offset = 0;
    let mut learn = |model: &mut Model, count: usize| {
        // No block runs over the end of the stream.
        let start = offset % rows.len();
        let end = rows.len().min(start + count);
        model.learn(rows, start..end, offset as u64);
        offset += end - start;
        end - start
    };
    let mut learned = 0;
    while learned < WARMUP_ROWS {
        learned += learn(&mut model, BLOCK);
    }
    let (since, mut learned) = (used(), 0);
    let elapsed = |since: std::time::Duration| (used() - since).as_secs_f64();
    while elapsed(since) < seconds || learned == 0 {
        learned += learn(&mut model, BLOCK);
    }
    let per_row = elapsed(since) / learned as f64;
    let since = used();
    (0..SINGLES).for_each(|_| _ = learn(&mut model, 1));
    let single = elapsed(since) / SINGLES as f64;
    model.tune_heads()?;
    let (mut snapshot, mut resident): (Option<Snapshot>, Option<u64>) = (None, None);
    let since = used();
    for _ in 0..SNAPSHOTS {
        // As in the daemon, the previous snapshot lives until the new one replaces it.
        let made = model.snapshot(true)?;
        resident = resident.max(resident_bytes());
        snapshot = Some(made);
    }
    let each = elapsed(since) / SNAPSHOTS as f64;
    let snapshot = snapshot.ok_or_else(|| Failure::new("no snapshot was made"))?;
    let all: Vec<usize> = (0..model.all_heads().count()).collect();
    let since = used();
    for i in 0..SINGLES {
        std::hint::black_box(snapshot.evaluate_heads(rows.state(i), &all, true)?);
    }
    let answer = elapsed(since) / SINGLES as f64;
    Ok(HeadRun {
        lambda,
        learn: per_row,
        single,
        snapshot: each,
        answer,
        dictionary: model.dictionary().len(),
        resident,
        model_bytes: model.bytes(),
    })
}

/// The result as text.
pub(super) fn text(case: &Case, heads: usize, timescales: usize, runs: &[HeadRun]) -> String {
    let mut text = format!("{heads} heads of {timescales} timescales, D = {}", case.dim);
    if let Some(run) = runs.first() {
        text += &format!(", m = {}, on one core\n", run.dictionary);
    }
    let names = [
        "lambda",
        "rows/s",
        "µs/row",
        "µs/row alone",
        "ms/snapshot",
        "every, s",
        "ms/answer",
        "10 Hz",
        "memory, MB",
        "of it model",
    ];
    let line = |run: &HeadRun| {
        vec![
            run.lambda.to_owned(),
            count(run.rows_per_second()),
            micros(run.learn),
            micros(run.single),
            micros(run.snapshot * 1e-3),
            format!("{:.1}", run.snapshot_interval()),
            micros(run.answer * 1e-3),
            format!("{:.1} %", 100.0 * run.share_at_ten_hertz()),
            run.resident.map_or_else(|| "-".into(), |bytes| format!("{:.0}", bytes as f64 / 1e6)),
            format!("{:.0}", run.model_bytes as f64 / 1e6),
        ]
    };
    text += &columns(&names, &runs.iter().map(line).collect::<Vec<_>>());
    text + "rows/s counts snapshots and ten answers a second, each with the values and deviations of all heads.\n\
            10 Hz: share of a core where ten rows a second are learned and answered one by one, with a snapshot every 10 s.\n"
}

/// The result as JSON.
pub(super) fn document(case: &Case, heads: usize, timescales: usize, runs: &[HeadRun]) -> Value {
    let runs: Vec<Value> = runs
        .iter()
        .map(|run| {
            json!({
                "lambda": run.lambda,
                "rows_per_second": run.rows_per_second(),
                "learn_s_per_row": run.learn,
                "learn_s_per_single_row": run.single,
                "snapshot_s": run.snapshot,
                "snapshot_interval_s": run.snapshot_interval(),
                "answer_s": run.answer,
                "share_at_10_hz": run.share_at_ten_hertz(),
                "dictionary_size": run.dictionary,
                "resident_bytes": run.resident,
                "model_bytes": run.model_bytes,
            })
        })
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "heads": heads,
        "timescales": timescales,
        "state_dim": case.dim,
        "dictionary_max": case.size,
        "runs": runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::heads::{Columns, check};
    use std::collections::HashSet;

    #[test]
    fn heads_differ_and_can_be_answered() {
        let made = heads(600, 8, 5);
        assert_eq!(made.len(), 600);
        check(&made, Columns { states: 5, rewards: 1, actions: 0 }).unwrap();
        let questions: HashSet<String> =
            made.iter().map(|head| format!("{:?} {:?}", head.cumulant, head.rate)).collect();
        assert_eq!(questions.len(), 600);
    }

    #[test]
    fn a_small_bank_is_measured_whole() {
        let case = Case { dim: 3, size: 12, sync: crate::journal::retention::SyncMode::Os };
        for two_kernels in [true, false] {
            let runs = measure(&case, 20, 4, two_kernels, 1e-3).unwrap();
            assert_eq!(runs.iter().map(|run| run.lambda).collect::<Vec<_>>(), ["1", "default"]);
            for run in &runs {
                assert_eq!(run.dictionary, 12);
                let seconds = [run.learn, run.single, run.snapshot, run.answer];
                assert!(seconds.iter().all(|seconds| *seconds > 0.0), "{run:?}");
            }
        }
        let runs = measure(&case, 20, 4, false, 1e-3).unwrap();
        let document = document(&case, 20, 4, &runs);
        assert_eq!(document["runs"][1]["lambda"], "default");
        assert!(text(&case, 20, 4, &runs).contains("20 heads of 4 timescales"));
    }
}
