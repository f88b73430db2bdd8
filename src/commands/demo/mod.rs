//! `criticd demo`: the whole program in one command, seen from outside.
//!
//! The daemon runs in this process, or ran before, and everybody here talks to it over real sockets: producers push what
//! simulators do, a subscriber follows the published models and compares them with the truth.

mod acting;
mod audience;
mod chart;
mod place;
mod producers;
mod report;
mod show;
mod throw;
mod world;

use super::output::{say, write_file};
use super::{Failure, print, start_log};
use crate::client::Requester;
use crate::config::LogFormat;
use crate::config::{Config, ConfigParts, Options};
use crate::learner::Settings;
use crate::picture::Figure;
use crate::whole_file::OwnDirectory;
use acting::Acted;
use audience::Audience;
use place::DemoDaemon;
use producers::Producers;
use report::DemoReport;
use serde_json::json;
use show::Show;
use signal_hook::consts::SIGINT;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use world::World;

/// How long connecting may take; the daemon is in this process.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the daemon may take to learn what is under way when the producers have stopped.
const CATCH_UP: Duration = Duration::from_secs(60);

/// How long to stream, seconds, where nobody says.
const SECONDS: u64 = 30;
/// How much longer, at most, until a first selection has ended.
const FIRST_SELECTION: Duration = Duration::from_secs(60);
/// How often a demo that stays looks for Ctrl-C.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Rows that the daemon retains for refits.
const WINDOW_MIN: usize = 20_000;
const WINDOW_MAX: usize = 200_000;

/// Watch a value function being learned, without anything else
///
/// The demo runs the daemon on free ports, simulators that stream to it over ZeroMQ, and a subscriber that compares every
/// model with the true values. Then it prints a table and draws a picture. On a terminal the dashboard stays until Ctrl-C.
/// With --into the simulators stream to a daemon that runs already. `swingup` and `cartpole` learn to act: they print the
/// return of each episode until the task is solved.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd demo\n  criticd demo gridworld --seconds 10\n  criticd demo pendulum --copies 16 --rate 20000\n  criticd demo swingup                   learns to act, from nothing\n  criticd demo cartpole\n  criticd demo --open                    and show the dashboard in a browser\n  criticd demo --into                    into the daemon that `criticd serve` has started\n  criticd demo --json | jq .rms_error"
)]
pub(crate) struct Demo {
    /// Which simulator
    #[arg(value_enum, value_name = "WORLD", default_value_t = DemoSubject::Pendulum)]
    shown: DemoSubject,
    /// Copies of the simulator, each with its own stream
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    copies: u64,
    /// Rows per second of all copies together, slow enough to watch; 0 for the most that the daemon learns, which leaves little
    /// time for refits
    #[arg(long, value_name = "HZ", default_value_t = 400)]
    rate: u64,
    /// How long to stream [default: 30, and until a first model selection has ended; on a terminal the dashboard then stays until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Let the dashboard stay until Ctrl-C, whatever --seconds says and without a terminal, too
    #[arg(long, conflicts_with = "json")]
    stay: bool,
    /// Show the dashboard in a browser
    #[arg(long)]
    open: bool,
    /// Stream to the daemon with this data directory [default: the usual one] instead of an own one
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, conflicts_with_all = ["set", "stay"])]
    into: Option<Option<PathBuf>>,
    /// File of the picture [default: criticd-demo-<WORLD>.png]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Change any setting of the daemon, as in `criticd serve`: `critic.dictionary_max=100`, say
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the table at the end as JSON
    #[arg(long)]
    json: bool,
}

/// The subject of a demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DemoSubject {
    /// Swing-up of a pendulum whose motor is too weak to lift it at once: the value of a policy
    Pendulum,
    /// An 11 x 11 gridworld in which only one of two coordinates matters: the value of a policy
    Gridworld,
    /// A pendulum (Pendulum-v1) whose policy is learned from nothing, until it is swung up
    Swingup,
    /// A pole on a cart (CartPole-v1) whose balance is learned from nothing
    Cartpole,
    /// Throws at targets, learned from their costs, in a few seconds and without a daemon; it ignores all
    /// options but --json
    Throw,
}

impl Demo {
    pub(crate) fn run(self) -> Result<(), Failure> {
        start_log("off", LogFormat::Text, None);
        match self.shown {
            DemoSubject::Pendulum => self.stream(World::Pendulum),
            DemoSubject::Gridworld => self.stream(World::Gridworld),
            DemoSubject::Swingup => self.act(Acted::Swingup),
            DemoSubject::Cartpole => self.act(Acted::Cartpole),
            DemoSubject::Throw => throw::run(self.json),
        }
    }

    /// Stream a world to a daemon.
    fn stream(&self, world: World) -> Result<(), Failure> {
        let interrupted = interruption()?;
        let place = match &self.into {
            Some(directory) => DemoDaemon::existing(directory.as_deref(), world.variables().len())?,
            None => {
                let directory = OwnDirectory::within(&std::env::temp_dir())?;
                let config = config(world, self.rate, directory.path(), self.set.clone())?;
                DemoDaemon::start(config, directory)?
            }
        };
        let (report, out) = self.watch(world, &place, &interrupted)?;
        if self.json {
            return print(&format!("{:#}\n", report.json()));
        }
        place.show_end(&report.sentence());
        print(&format!("{}\n{}\nThe picture is in {}\n", report.text(), report.sentence(), out.display()))?;
        self.stay_with(&place, &interrupted)
    }

    /// Learn to act, and report the result.
    fn act(&self, task: Acted) -> Result<(), Failure> {
        if self.into.is_some() {
            return Err(Failure::usage("--into is for pendulum and gridworld: an agent needs a daemon of its own"));
        }
        let interrupted = interruption()?;
        let place = acting::place(task, self.set.clone())?;
        if let Some(page) = &place.page {
            say(&format!("Watch it learn at {page}"));
            if self.open {
                say(&open(page));
            }
        }
        let learned = acting::run(task, &place, self.seconds, &interrupted, &say)?;
        if self.json {
            return print(&format!("{:#}\n", learned.json()));
        }
        let out = self.out.clone().unwrap_or_else(|| task.picture());
        write_picture(&out, &learned.figure()?)?;
        place.show_end(&learned.sentence());
        print(&format!("{}The picture is in {}\n", learned.text(), out.display()))?;
        self.stay_with(&place, &interrupted)
    }

    /// Keep the dashboard running, on a terminal or with --stay.
    fn stay_with(&self, place: &DemoDaemon, interrupted: &AtomicBool) -> Result<(), Failure> {
        let Some(page) = &place.page else { return Ok(()) };
        if !place.is_own() {
            return print(&format!("The daemon goes on; its dashboard is at {page}\n"));
        }
        if self.stays(std::io::stderr().is_terminal()) && !interrupted.load(Ordering::Relaxed) {
            print(&format!("The dashboard stays at {page} until Ctrl-C\n"))?;
            while !interrupted.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        Ok(())
    }

    /// Whether the dashboard stays when all has been streamed.
    fn stays(&self, terminal: bool) -> bool {
        self.stay || (terminal && self.seconds.is_none() && !self.json)
    }

    /// Stream, watch, and say what came of it.
    fn watch(
        &self,
        world: World,
        place: &DemoDaemon,
        interrupted: &AtomicBool,
    ) -> Result<(DemoReport, PathBuf), Failure> {
        let endpoints = &place.endpoints;
        let truth = Arc::new(world.truth(place.discount));
        place.show_truth(world);
        let audience = Audience::join(endpoints, &place.critic, world, Arc::clone(&truth), CONNECT)?;
        let duration = Duration::from_secs(self.seconds.unwrap_or(SECONDS));
        let producers = Producers::start(world, self.copies, self.rate, &endpoints.ingest, CONNECT)?;
        let mut show = Show::new(world, duration, place.page.as_deref());
        if let Some(page) = place.page.as_deref().filter(|_| self.open) {
            show.say(&open(page));
        }
        let started = Instant::now();
        let watched = |audience: &Audience| {
            let elapsed = started.elapsed();
            let longest = if self.seconds.is_none() { duration + FIRST_SELECTION } else { duration };
            elapsed >= longest || elapsed >= duration && audience.view().after_first_refit.is_some()
        };
        while !watched(&audience) && !interrupted.load(Ordering::Relaxed) && producers.running() {
            std::thread::sleep(show.interval());
            show.update(&audience, producers.sent(), started.elapsed());
        }
        let seconds = started.elapsed().as_secs_f64();
        show.message("learning the remaining rows");
        let (sent, recent) = producers.finish(CATCH_UP)?;
        if place.offset + sent < place.warmup_rows {
            let message = format!(
                "{sent} rows are too few for a first model, which needs {}; stream for longer, or faster",
                place.warmup_rows
            );
            return Err(Failure::usage(message));
        }
        let mut requester = Requester::connect(&endpoints.control.to_string(), CONNECT)?;
        // Answered once every row has been learned.
        let all = json!({"states": [truth.states[..2]], "min_offset": place.offset + sent});
        requester.ask("value", all, CATCH_UP)?;
        let snapshot = requester.snapshot(Some(&place.critic), CONNECT)?;
        let status = requester.status(CONNECT)?;
        show.message("drawing");
        let out = self.out.clone().unwrap_or_else(|| format!("criticd-demo-{}.png", world.name()).into());
        let figure = world.figure(&snapshot, recent);
        write_picture(&out, &figure)?;
        show.finish(&audience);
        let scene = report::Scene { world, copies: self.copies, seconds, sent };
        Ok((DemoReport::new(&scene, &snapshot, &status, &truth, &audience.finish()), out))
    }
}

fn write_picture(path: &Path, figure: &Figure) -> Result<(), Failure> {
    write_file(path, &[], &figure.png_in_rows(figure.panels.len()))
}

/// The flag that Ctrl-C sets once; a second Ctrl-C ends the process.
fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&interrupted))?;
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))?;
    Ok(interrupted)
}

/// Show a page in the user's browser; what to say of it.
fn open(page: &str) -> String {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started =
        Command::new(program).arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match started {
        Ok(_) => format!("opening {page}"),
        Err(e) => format!("cannot open a browser ({program}: {e}): open {page} in one"),
    }
}

/// Settings suited to half a minute of watching. Nothing here says what the value function looks like.
fn config(world: World, rate: u64, directory: &Path, set: Vec<String>) -> Result<Config, Failure> {
    let names: Vec<String> = world.variables().iter().map(|v| format!("{} [{}]", v.name, v.unit)).collect();
    // A refit goes through all of the window, which bounds how long one takes; and its candidate must have learned what
    // came meanwhile before the window has moved past.
    let window_rows = if rate == 0 { WINDOW_MAX } else { (6 * rate as usize).clamp(WINDOW_MIN, WINDOW_MAX) };
    let critic = Settings {
        discount: world.discount(),
        dictionary_max: 250,
        refit_first_rows: 1000,
        refit_growth: 1.5,
        refit_rows_max: 12_000,
        evidence_rows: 600,
        refit_budget_s: 0.7,
        ..Settings::default()
    };
    let parts = ConfigParts { window_rows, publish_bytes_max: 4 << 20, ..parts(directory, names, critic) };
    with_options(parts, directory, set)
}

/// Settings of a daemon with one critic, on free ports, whose rows go with it. States have variables of these names.
fn parts(directory: &Path, names: Vec<String>, critic: Settings) -> ConfigParts {
    let any_port = || "tcp://127.0.0.1:0".to_owned();
    ConfigParts {
        data_dir: directory.to_owned(),
        journal: false,
        ingest: any_port(),
        control: any_port(),
        publish: any_port(),
        http: "127.0.0.1:0".into(),
        state_dim: Some(names.len()),
        state_names: Some(names),
        critics: vec![critic],
        ..ConfigParts::default()
    }
}

/// These settings with the command line's, which count more.
fn with_options(parts: ConfigParts, directory: &Path, set: Vec<String>) -> Result<Config, Failure> {
    let config = Config::new(parts)?;
    if set.is_empty() {
        return Ok(config);
    }
    // Through a file, which is how settings count less than the command line's.
    let file = directory.join("demo.toml");
    std::fs::write(&file, config.print())?;
    Config::load(&Options { config: Some(file), set, ..Options::default() }).map_err(Failure::usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        demo: Demo,
    }

    fn stays(words: &[&str], terminal: bool) -> bool {
        Line::parse_from([&["demo"], words].concat()).demo.stays(terminal)
    }

    #[test]
    fn the_dashboard_stays_for_somebody_who_watches() {
        assert!(stays(&[], true));
        assert!(!stays(&[], false));
        assert!(!stays(&["--seconds", "3"], true));
        assert!(!stays(&["--json"], true));
        assert!(stays(&["--seconds", "3", "--stay"], false));
    }
}
