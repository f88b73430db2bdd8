//! What the program can be asked to do, one file per command or family of commands.

mod act;
mod actions;
mod answers;
mod as_of;
mod backup;
mod bench;
mod check_config;
mod check_targets;
mod client;
mod compact;
mod demo;
mod dictionary;
mod erase;
mod evaluate;
mod export;
mod features;
mod fit;
mod given;
mod heads;
mod held_out;
mod help;
mod init;
mod inspect;
mod keys;
mod label;
mod label_file;
mod log_lines;
mod manual;
mod merge;
mod onnx;
mod output;
mod plan;
mod plot;
mod policy;
mod quarantine;
mod remove;
mod repair;
mod replay;
mod reset;
mod rollout;
mod score;
mod serve;
mod snapshot;
mod status;
mod stop;
mod value;
mod world;

use self::output::print;
use crate::clock;
use crate::config::LogFormat;
use crate::journal::thresholds;
use clap::{FromArgMatches as _, Parser, Subcommand};
use env_logger::TimestampPrecision;
use env_logger::fmt::ConfigurableFormat;
use indicatif::MultiProgress;
use signal_hook::consts::SIGXFSZ;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

/// Learn a value function, with its uncertainty, from a live stream of transitions.
#[derive(Debug, Parser)]
#[command(
    name = "criticd",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "First steps:\n  criticd demo pendulum        watch a value function being learned\n  criticd fit runs.csv         learn one from a log\n  criticd serve                start the daemon, then send it transitions (proto/README.md)\n\nOne way to name things: -d names a daemon, by its data directory or by its control endpoint. MODEL is a model file, or such a\nname: then the daemon's value function is taken. TABLE is a table of transitions.\n\nFiles: settings in $XDG_CONFIG_HOME/criticd/criticd.toml (~/.config), data in $XDG_STATE_HOME/criticd\n(~/.local/state). Environment: `criticd serve --help`.\n\nExit status: 0 done; 1 failed, with a message that says what to do; 2 wrong usage; 130 interrupted."
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// For tests: let a few rows do for what takes megabytes
    #[arg(long, hide = true)]
    small_thresholds: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Serve(serve::Serve),
    Stop(stop::Stop),
    Status(status::Status),
    Snapshot(snapshot::Snapshot),
    #[command(alias = "optimise")]
    Refit(client::Refit),
    Rebuild(client::Rebuild),
    Remove(remove::Remove),
    Erase(erase::Erase),
    NewPolicy(client::NewPolicy),
    Heads(heads::Heads),
    Checkpoint(client::Checkpoint),
    Replay(replay::Replay),
    Fit(Box<fit::Fit>),
    Label(Box<label::Label>),
    Evaluate(Box<evaluate::Evaluate>),
    Plan(Box<plan::PlanCommand>),
    Rollout(Box<rollout::Rollout>),
    Init(init::Init),
    Features(Box<features::Features>),
    Score(score::Score),
    CheckTargets(check_targets::CheckTargets),
    Value(value::Value),
    Act(act::Act),
    Inspect(inspect::Inspect),
    Plot(plot::Plot),
    Bench(bench::Bench),
    Export(export::Export),
    Merge(merge::Merge),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Compact(compact::Compact),
    Repair(repair::Repair),
    Reset(reset::Reset),
    Quarantine(quarantine::Quarantine),
    CheckConfig(check_config::CheckConfig),
    Completions(manual::Completions),
    #[command(name = "man")]
    Manual(manual::Manual),
    Keys(keys::Keys),
}

/// The arguments of the program. Ends it where they are wrong, or where help was asked for.
pub fn arguments() -> Arguments {
    Arguments::from_arg_matches(&help::program().get_matches()).unwrap_or_else(|e| e.exit())
}

/// Run a command. Exit status: 0 done, 1 failed, 2 wrong usage (clap's own).
pub fn run(arguments: Arguments) -> ExitCode {
    if arguments.small_thresholds {
        thresholds::make_small();
    }
    // A write beyond the limit on file sizes then fails as on a full disk, and does not end the process.
    drop(signal_hook::flag::register(SIGXFSZ, Arc::default()));
    let result = match arguments.command {
        Command::Demo(demo) => demo.run(),
        Command::Serve(serve) => serve.run(),
        Command::Stop(stop) => stop.run(),
        Command::Status(status) => status.run(),
        Command::Snapshot(snapshot) => snapshot.run(),
        Command::Refit(refit) => refit.run(),
        Command::Rebuild(rebuild) => rebuild.run(),
        Command::Remove(remove) => remove.run(),
        Command::Erase(erase) => erase.run(),
        Command::NewPolicy(policy) => policy.run(),
        Command::Heads(heads) => heads.run(),
        Command::Checkpoint(checkpoint) => checkpoint.run(),
        Command::Replay(replay) => replay.run(),
        Command::Fit(fit) => fit.run(),
        Command::Label(label) => label.run(),
        Command::Evaluate(evaluate) => evaluate.run(),
        Command::Plan(plan) => plan.run(),
        Command::Rollout(rollout) => rollout.run(),
        Command::Init(init) => init.run(),
        Command::Features(features) => features.run(),
        Command::Score(score) => score.run(),
        Command::CheckTargets(check) => check.run(),
        Command::Value(value) => value.run(),
        Command::Act(act) => act.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Plot(plot) => plot.run(),
        Command::Bench(bench) => bench.run(),
        Command::Export(export) => export.run(),
        Command::Merge(merge) => merge.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::Compact(compact) => compact.run(),
        Command::Repair(repair) => repair.run(),
        Command::Reset(reset) => reset.run(),
        Command::Quarantine(quarantine) => quarantine.run(),
        Command::CheckConfig(check) => check.run(),
        Command::Completions(completions) => completions.run(),
        Command::Manual(manual) => manual.run(),
        Command::Keys(keys) => keys.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, usage }) => {
            output::note(&message);
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}

/// Why a command did not do what was asked, in a sentence that says what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    /// Whether the arguments or the configuration were wrong (exit status 2).
    usage: bool,
}

impl Failure {
    /// What was asked cannot be done.
    pub(crate) fn new(message: impl ToString) -> Self {
        Self { message: message.to_string(), usage: false }
    }

    /// The arguments or the configuration are wrong.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self { message: message.to_string(), usage: true }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), usage: false }
    }
}

/// Log to standard error at `level`, above `bars` if those are drawn there; the variable `RUST_LOG` counts more.
pub(crate) fn start_log(level: &str, format: LogFormat, bars: Option<&MultiProgress>) {
    let environment = env_logger::Env::default().default_filter_or(level);
    // The transport library tells of every peer that leaves; our own gate does that at a bounded rate.
    let mut builder = env_logger::Builder::from_env(environment);
    if let Some(bars) = bars.filter(|bars| !bars.is_hidden()) {
        builder.target(env_logger::Target::Pipe(Box::new(AboveBars(bars.clone()))));
    }
    match format {
        LogFormat::Json => builder.format(|out, record| {
            use std::io::Write as _;
            let (time, level) = (clock::date_and_time(SystemTime::now()), record.level().as_str().to_lowercase());
            writeln!(out, "{}", log_lines::json(&time.unwrap_or_default(), &level, &record.args().to_string()))
        }),
        LogFormat::Text => {
            // No calendar has the time of a clock that is far out.
            let [dated, undated] = [Some(TimestampPrecision::Millis), None].map(|precision| {
                let mut lines = ConfigurableFormat::default();
                lines.target(false).timestamp(precision);
                lines
            });
            builder.format(move |out, record| {
                if clock::date_and_time(SystemTime::now()).is_some() { &dated } else { &undated }.format(out, record)
            })
        }
    };
    builder.filter_module("zeromq", log::LevelFilter::Warn).init();
}

/// Writes lines where progress bars are drawn.
struct AboveBars(MultiProgress);

impl std::io::Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.suspend(|| std::io::stderr().write_all(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}
