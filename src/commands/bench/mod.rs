//! `criticd bench`.

mod many_heads;
mod measure;
mod workload;

use super::Failure;
use super::output::{columns, print, print_json};
use crate::journal::retention::SyncMode;
use crate::telemetry::Stage;
use clap::builder::ArgPredicate;
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Latency, OneThread, QueryLatencies, Whole};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use workload::{Case, ScratchDirectory};

/// How often the bar moves.
const PROGRESS: Duration = Duration::from_millis(100);

/// Measure how fast this machine learns and answers
///
/// The benchmark measures the code of the daemon in three parts. First the stages of its core on one thread: decode messages,
/// write them to the journal on the daemon's disk, learn, and make snapshots (publish). Then a whole daemon over tcp, with a
/// sender at full speed on the same machine: rows per second, and the processor time of each thread per row. Last queries for
/// mean and variance, in the library and over the socket of a daemon that is idle, that runs a refit, and that learns at full
/// speed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reading the result:\n  The slowest thread sets the pace of the daemon, unless all processors are busy; the sender needs one, too. If learning\n  takes most of the time, use a smaller dictionary (critic.dictionary_max); if the journal does, sync = \"interval:10ms\";\n  if decoding does, send several rows in a message.\n\nExamples:\n  criticd bench\n  criticd bench --sizes 500 --dims 12 --sync os\n  criticd bench --heads 6000\n  criticd bench --directory /mnt/ssd --seconds 5 --json > bench.json"
)]
pub(crate) struct Bench {
    /// Dictionary sizes m
    #[arg(long, value_name = "M", value_delimiter = ',', default_value = "100,300", default_value_if("heads", ArgPredicate::IsPresent, "400"), value_parser = clap::value_parser!(u64).range(1..=4000))]
    sizes: Vec<u64>,
    /// State dimensions D
    #[arg(long, value_name = "D", value_delimiter = ',', default_value = "4,16", default_value_if("heads", ArgPredicate::IsPresent, "32"), value_parser = clap::value_parser!(u64).range(1..=256))]
    dims: Vec<u64>,
    /// Rows of one message in batches
    #[arg(long, value_name = "ROWS", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1024))]
    batch: u64,
    /// Measure this many heads instead, in the library on one thread: with a critic of lambda 1, and with one of the default
    /// settings; --sizes is then 400 and --dims 32 unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    heads: Option<u64>,
    /// Timescales of these heads: 0.1 s and its doubles
    #[arg(long, value_name = "T", default_value_t = 8, requires = "heads", value_parser = clap::value_parser!(u64).range(1..=16))]
    timescales: u64,
    /// Half of these heads have a kernel and a dictionary of their own
    #[arg(long, requires = "heads")]
    two_kernels: bool,
    /// When rows become durable, as the setting `sync`: always, os, interval:10ms
    #[arg(long, value_name = "WHEN", default_value = "always")]
    sync: SyncMode,
    /// Seconds of each measurement; there are ten for each pair of m and D
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Directory for the journal, which is removed afterwards [default: beside the daemon's data directory]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What was measured for one dictionary size and state dimension.
struct BenchRun {
    case: Case,
    dictionary: usize,
    batched: (OneThread, Whole),
    single: (OneThread, Whole),
    /// Seconds: one state alone, one of many.
    library: (f64, f64),
    socket: QueryLatencies,
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(Failure::usage("--seconds must be positive, at most 3600"));
        }
        if let Some(heads) = self.heads {
            return self.heads(heads as usize);
        }
        let scratch = ScratchDirectory::create(self.directory.as_deref())?;
        let cases: Vec<Case> = self.cases();
        let bar = ProgressBar::new(cases.len() as u64 * STEPS.len() as u64);
        let style = ProgressStyle::with_template("{bar:40.cyan/dim} {msg} · {eta} left").expect("a template of ours");
        bar.set_style(style.progress_chars("━━╌"));
        bar.enable_steady_tick(PROGRESS);
        let runs = cases.into_iter().map(|case| self.measure(case, &scratch, &bar)).collect::<Result<Vec<_>, _>>();
        bar.finish_and_clear();
        let runs = runs?;
        if self.json { print_json(&self.document(&runs, &scratch)) } else { print(&self.text(&runs, &scratch)) }
    }

    /// Measure heads alone.
    fn heads(&self, count: usize) -> Result<(), Failure> {
        let timescales = self.timescales as usize;
        let (mut text, mut documents) = (String::new(), Vec::new());
        for case in self.cases() {
            let runs = many_heads::measure(&case, count, timescales, self.two_kernels, self.seconds)?;
            text += &many_heads::text(&case, count, timescales, &runs);
            documents.push(many_heads::document(&case, count, timescales, &runs));
        }
        if self.json { print_json(&Value::Array(documents)) } else { print(&text) }
    }

    fn cases(&self) -> Vec<Case> {
        let case = |dim: u64, size: u64| Case { dim: dim as usize, size: size as usize, sync: self.sync };
        self.dims.iter().flat_map(|&dim| self.sizes.iter().map(move |&size| case(dim, size))).collect()
    }

    fn measure(&self, case: Case, scratch: &ScratchDirectory, bar: &ProgressBar) -> Result<BenchRun, Failure> {
        let mut steps = STEPS.iter();
        let mut next = || {
            bar.inc(1);
            let what = steps.next().copied().unwrap_or_default();
            bar.set_message(format!("D = {}, m = {}: {what}", case.dim, case.size));
        };
        bar.set_position(bar.position().saturating_sub(1));
        let (batches, steps) = (case.messages(Some(self.batch as usize)), case.messages(None));
        next();
        let batched = measure::one_thread(&case, &batches, self.seconds, scratch)?;
        next();
        let batched = (batched, measure::whole(&case, &batches, self.seconds, scratch)?);
        next();
        let single = measure::one_thread(&case, &steps, self.seconds, scratch)?;
        next();
        let single = (single, measure::whole(&case, &steps, self.seconds, scratch)?);
        next();
        let library = measure::library_queries(&case, &batched.0.model, self.seconds / 2.0)?;
        next();
        let socket = measure::socket_queries(&case, &batches, self.seconds, scratch)?;
        bar.inc(1);
        Ok(BenchRun { dictionary: batched.0.dictionary, case, batched, single, library, socket })
    }

    fn text(&self, runs: &[BenchRun], scratch: &ScratchDirectory) -> String {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut text = format!(
            "criticd {} on {cores} cores, journal in {} with sync = \"{}\"\n",
            env!("CARGO_PKG_VERSION"),
            scratch.path().parent().unwrap_or(scratch.path()).display(),
            self.sync
        );
        for run in runs {
            let Case { dim, size, .. } = run.case;
            text += &format!("\nD = {dim}, m = {size}");
            if run.dictionary < size {
                text += &format!(" (the stream fills {})", run.dictionary);
            }
            text += "\n";
            let heads = ["", "batches: rows/s", "µs/row", "single steps: rows/s", "µs/row"];
            let cells = |seconds: [f64; 2]| seconds.into_iter().flat_map(|s| [count(1.0 / s), micros(s)]);
            let line = |name: &str, seconds: [f64; 2]| std::iter::once(name.to_owned()).chain(cells(seconds)).collect();
            let mut rows: Vec<Vec<String>> = Vec::new();
            for (k, stage) in Stage::ALL.iter().enumerate() {
                rows.push(line(stage.name(), [run.batched.0.stages[k].1, run.single.0.stages[k].1]));
            }
            let sum = |one: &OneThread| one.stages.iter().map(|(_, seconds)| seconds).sum::<f64>();
            rows.push(line("all on one thread", [sum(&run.batched.0), sum(&run.single.0)]));
            let of = |whole: &Whole| 1.0 / whole.rows_per_second;
            rows.push(line("daemon over tcp", [of(&run.batched.1), of(&run.single.1)]));
            text += &columns(&heads, &rows);
            for (what, whole) in [("batches", &run.batched.1), ("single steps", &run.single.1)] {
                text += &format!("  µs/row on a processor, {what}: {}\n", threads(whole));
            }
            let (single, batch) = run.library;
            text += &format!(
                "  query, mean and variance: {} µs for one state, {} states/s in batches\n",
                micros(single),
                count(1.0 / batch)
            );
            let quantiles = |of: Latency| [of.median, of.p99, of.p999].map(micros).join(" / ");
            let QueryLatencies { idle, selecting, learning } = run.socket;
            text += &format!(
                "  query over tcp, p50 / p99 / p99.9 in µs: idle {}, while a model is selected {}, while it learns {}\n",
                quantiles(idle),
                quantiles(selecting),
                quantiles(learning)
            );
        }
        text
    }

    fn document(&self, runs: &[BenchRun], scratch: &ScratchDirectory) -> Value {
        let side = |(one, whole): &(OneThread, Whole)| {
            let stages: serde_json::Map<String, Value> = one
                .stages
                .iter()
                .map(|(stage, seconds)| {
                    let figures = json!({"seconds_per_row": seconds, "rows_per_second": 1.0 / seconds});
                    (stage.name().to_owned(), figures)
                })
                .collect();
            json!({
                "stages": stages,
                "daemon": {"rows_per_second": whole.rows_per_second, "thread_seconds_per_row": whole.threads},
            })
        };
        let quantiles = |of: Latency| json!({"p50_s": of.median, "p99_s": of.p99, "p999_s": of.p999});
        let runs: Vec<Value> = runs
            .iter()
            .map(|run| {
                json!({
                    "state_dim": run.case.dim,
                    "dictionary_max": run.case.size,
                    "dictionary_size": run.dictionary,
                    "batches": side(&run.batched),
                    "single_steps": side(&run.single),
                    "query": {
                        "single_s": run.library.0,
                        "batch_s_per_state": run.library.1,
                        "tcp": {
                            "idle": quantiles(run.socket.idle),
                            "selecting": quantiles(run.socket.selecting),
                            "learning": quantiles(run.socket.learning),
                        },
                    },
                })
            })
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "directory": scratch.path().parent(),
            "sync": self.sync.to_string(),
            "rows_per_batch": self.batch,
            "seconds": self.seconds,
            "runs": runs,
        })
    }
}

/// What is measured for each case, in this order.
const STEPS: [&str; 6] = [
    "stages, batches",
    "daemon over tcp, batches",
    "stages, single steps",
    "daemon over tcp, single steps",
    "queries in the library",
    "queries over tcp",
];

/// Threads that matter, the busiest first.
fn threads(whole: &Whole) -> String {
    let mut threads: Vec<(&str, f64)> = whole.threads.iter().map(|(name, seconds)| (name.as_str(), *seconds)).collect();
    threads.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = threads.iter().map(|(_, seconds)| seconds).sum();
    let shown = threads.iter().take_while(|(_, seconds)| *seconds > 0.01 * all);
    shown.map(|(name, seconds)| format!("{name} {}", micros(*seconds))).collect::<Vec<_>>().join(", ")
}

/// Microseconds, three digits.
fn micros(seconds: f64) -> String {
    let value = seconds * 1e6;
    let decimals = (2 - value.abs().max(1e-3).log10().floor() as i32).clamp(0, 3) as usize;
    format!("{value:.decimals$}")
}

/// A whole number of three digits, in groups.
fn count(value: f64) -> String {
    let unit = 10f64.powf((value.abs().max(1.0).log10().floor() - 2.0).max(0.0));
    indicatif::HumanCount(((value / unit).round() * unit) as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.000_001_234, 0.000_123_4, 1.2e-9].map(micros), ["1.23", "123", "0.001"]);
        assert_eq!([1_234_567.0, 999.6, 12.0].map(count), ["1,230,000", "1,000", "12"]);
    }
}
