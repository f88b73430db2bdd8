//! `criticd serve`.

use super::given::ReadingOptions;
use super::{Failure, print, start_log};
use crate::config::{Config, ConfigError, Options};
use crate::daemon::warm_start::WarmStart;
use crate::daemon::{Daemon, StartupProgress};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A start that takes less shows no progress.
const PATIENCE: Duration = Duration::from_millis(500);
/// What goes on before there are live rows.
const RECOVERING: &str = "recovering";
const CHECKING: &str = "checking the table";
const LEARNING: &str = "learning the table";
/// A terminal is closed this long after its SIGHUP, at the latest.
const HANGUP: Duration = Duration::from_millis(200);
/// Reading the settings takes less, unless the disk hangs.
const SOON: Duration = Duration::from_millis(20);
/// How often the daemon's threads are looked at.
const WATCH: Duration = Duration::from_millis(200);

/// Run the daemon until SIGTERM or SIGINT (Ctrl-C), or until its terminal is closed
///
/// The daemon receives transitions over ZeroMQ on the ingest and control sockets, answers queries on the control socket, and
/// publishes snapshots and events on the publish socket. The dashboard is at http://127.0.0.1:5753/, with metrics for
/// Prometheus. The daemon logs the bound addresses and writes them to endpoints.json in the data directory.
/// With --warm-start it learns a table first; meanwhile it answers queries, and producers wait.
/// On SIGHUP it reads the configuration again and applies the settings that may change at run time. A daemon that was started
/// from a terminal, without nohup, ends when that is closed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd serve\n  criticd serve --config robot.toml --ingest tcp://127.0.0.1:6000\n  criticd serve --set critic.discount=0.95 --set critic.dictionary_max=500\n  criticd serve --print-config > robot.toml     every setting, documented, ready to edit\n  criticd serve --warm-start runs.csv           learn a table first, then live rows\n  CRITICD_CRITIC_DISCOUNT=0.95 criticd serve\n\nEnvironment: every setting has a variable, CRITICD_ and its key in capitals: CRITICD_DATA_DIR, CRITICD_INGEST,\nCRITICD_LIMITS_PARTS_MAX, CRITICD_CRITIC_DISCOUNT (of every critic); `criticd serve --print-config` lists the keys.\nOptions override variables, variables override the file, the file overrides the defaults. RUST_LOG overrides --log.\n\nExit status: 0 ended by SIGTERM or SIGINT; 1 could not start or continue, with the reason; 2 wrong options or settings."
)]
pub(crate) struct Serve {
    #[command(flatten)]
    options: Options,
    /// Learn this table of transitions before live rows: .csv, .jsonl, .npz, .hdf5, .parquet or a Minari dataset. A table
    /// that was learned before is not learned again, so the option may stay
    #[arg(long, value_name = "TABLE", env = "CRITICD_WARM_START")]
    warm_start: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Print the resulting settings as a commented TOML file, and exit
    #[arg(long)]
    print_config: bool,
}

/// What the daemon is about before it takes live rows, on the terminal; hidden by itself where standard error is none.
struct Bars {
    bars: MultiProgress,
    bar: Option<(&'static str, ProgressBar)>,
    started: Instant,
}

impl Bars {
    fn new() -> Self {
        Self { bars: MultiProgress::new(), bar: None, started: Instant::now() }
    }

    /// So much is done, of `of`; a start that is over soon shows nothing.
    fn show(&mut self, what: &'static str, done: u64, of: u64) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        if self.bar.as_ref().is_none_or(|(before, _)| *before != what) {
            self.clear();
            let style = ProgressStyle::with_template("{msg} {bar:40.cyan/dim} {human_pos} of {human_len} {prefix}");
            let style = style.expect("a template of ours").progress_chars("━━╌");
            let bar = self.bars.add(ProgressBar::new(of)).with_style(style).with_message(what);
            self.bar = Some((what, bar));
        }
        let Some((_, bar)) = &self.bar else { return };
        bar.set_position(done);
        // By what was done since the bar was there, and only once there is something to go by.
        let (rate, left) = (bar.per_sec(), bar.eta().as_secs());
        let unit = if what == CHECKING { "%" } else { "rows" };
        let pace = if rate > 0.0 && unit == "rows" {
            format!(" · {} rows/s", HumanCount(rate as u64))
        } else {
            String::new()
        };
        bar.set_prefix(format!("{unit}{pace} · {left} s left"));
    }

    fn clear(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// The terminal that the daemon was started from.
struct Terminal {
    /// Whether there is one, and its end is the daemon's.
    watched: bool,
}

impl Terminal {
    /// Look before SIGHUP is caught: `nohup` has it ignored, so that the daemon outlives the terminal.
    fn at_start() -> Self {
        let ignored = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| {
            let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        });
        let hangup_ignored = ignored.is_some_and(|mask| mask & 1 != 0);
        Self { watched: !hangup_ignored && Self::is_there() }
    }

    /// Whether the process has a terminal: one that was closed cannot be opened.
    fn is_there() -> bool {
        std::fs::File::open("/dev/tty").is_ok()
    }

    /// Whether a SIGHUP that has just come says that the terminal was closed. The system takes it from one process after the
    /// other, so that it may take a moment.
    fn was_closed(&self) -> bool {
        self.watched && {
            let deadline = Instant::now() + HANGUP;
            while Self::is_there() && Instant::now() < deadline {
                std::thread::sleep(HANGUP / 10);
            }
            !Self::is_there()
        }
    }
}

/// Reads the settings again, in a thread of its own: their file may be on a disk that hangs.
#[derive(Default)]
struct Reloads {
    reading: Option<Receiver<Result<Config, ConfigError>>>,
    /// Whether it was asked for once more meanwhile.
    again: bool,
}

impl Reloads {
    fn ask(&mut self, options: &Options) {
        if self.reading.is_some() {
            self.again = true;
            return;
        }
        let (sender, receiver) = bounded(1);
        let options = options.clone();
        // A daemon that has ended has no use for it.
        let read = move || drop(sender.send(Config::load_again(&|name| std::env::var_os(name), &options)));
        match std::thread::Builder::new().name("settings".into()).spawn(read) {
            Ok(_) => self.reading = Some(receiver),
            Err(e) => log::error!("event=reload_refused why={:?}", e.to_string()),
        }
    }

    /// What has been read, if it has been.
    fn take(&mut self, options: &Options) -> Option<Result<Config, ConfigError>> {
        let read = match self.reading.as_ref()?.recv_timeout(SOON) {
            Err(RecvTimeoutError::Timeout) => return None,
            read => read.ok(),
        };
        self.reading = None;
        if std::mem::take(&mut self.again) {
            self.ask(options);
        }
        read
    }
}

/// Wait for a signal (`None`), for a thread that ends without a request, or for `learning` to report that a table cannot be
/// learned; the latter two return the message. SIGHUP ends the wait if `hangup` says so.
fn watch(
    signals: &Receiver<i32>,
    hangup: impl Fn() -> bool,
    dead_thread: impl Fn() -> Option<String>,
    learning: &mut dyn FnMut() -> Option<String>,
) -> Option<String> {
    let ended = |thread: &str| format!("the {thread} thread ended unexpectedly; please report this with the log");
    loop {
        match signals.recv_timeout(WATCH) {
            Ok(SIGHUP) if !hangup() => {}
            Ok(_) => return None,
            Err(RecvTimeoutError::Disconnected) => return Some(ended("signals")),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(why) = learning() {
                    return Some(why);
                }
                if let Some(thread) = dead_thread() {
                    return Some(ended(&thread));
                }
            }
        }
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (config, file) = self.load().map_err(Failure::usage)?;
        if self.print_config {
            return print(&config.print());
        }
        let (reading, columns) = (self.reading.reading(), self.reading.columns()?);
        let warm_start = self.warm_start.clone().map(|table| WarmStart { table, reading, columns });
        if warm_start.is_none() && self.reading.given() {
            let message = "--assume-terminated, --done and columns are about the table of --warm-start; name it";
            return Err(Failure::usage(message));
        }
        let mut bars = Bars::new();
        start_log(&config.log, config.log_format, Some(&bars.bars));
        if let Some(file) = file {
            log::info!("event=configured file={:?}", file.display());
        }
        // Caught before anything starts, so that no signal falls between.
        let terminal = Terminal::at_start();
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let (sender, received) = bounded(4);
        let handle = signals.handle();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watcher = std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                stopped.fetch_or(signal != SIGHUP, Ordering::Relaxed);
                if sender.send(signal).is_err() {
                    break;
                }
            }
        })?;
        let daemon = Daemon::start_unless(&stop, config, warm_start.as_ref(), &mut |stage| match stage {
            StartupProgress::Recovering { rows, of } => bars.show(RECOVERING, rows, of),
            StartupProgress::Checking(progress) => bars.show(CHECKING, (100.0 * progress.fraction) as u64, 100),
        });
        bars.clear();
        let daemon = match daemon {
            Err(e) if e.is_stopped() => {
                log::info!("event=stopped why=\"{e}\" hint=\"the next start goes on from the last checkpoint\"");
                return Ok(());
            }
            daemon => daemon?,
        };
        let reloads = RefCell::new(Reloads::default());
        let reload = || reloads.borrow_mut().take(&self.options).into_iter().for_each(|read| apply(read, &daemon));
        let mut learning = || {
            daemon.keep_endpoints();
            reload();
            let progress = daemon.warm_start()?;
            if progress.done {
                bars.clear()
            } else {
                bars.show(LEARNING, progress.rows, progress.of)
            }
            progress.failure
        };
        let hangup = || {
            if terminal.was_closed() {
                log::info!("event=terminal_closed");
                return true;
            }
            reloads.borrow_mut().ask(&self.options);
            reload();
            false
        };
        let failure = watch(&received, hangup, || daemon.dead_thread(), &mut learning);
        bars.clear();
        if let Some(progress) = daemon.warm_start().filter(|progress| !progress.done) {
            let (rows, of) = (progress.rows, progress.of);
            log::warn!("event=warm_start_interrupted rows={rows} of={of} hint=\"the same command resumes it\"");
        }
        log::info!("event=stopping");
        daemon.stop();
        handle.close();
        drop(received);
        // It only waits for signals; one that panicked has said so.
        drop(watcher.join());
        failure.map_or(Ok(()), |message| Err(std::io::Error::other(message).into()))
    }

    /// The settings, and the file they are from.
    fn load(&self) -> Result<(Config, Option<PathBuf>), ConfigError> {
        Config::load_in(&|name| std::env::var_os(name), &self.options)
    }
}

/// Take over settings that have been read again.
fn apply(read: Result<Config, ConfigError>, daemon: &Daemon) {
    let config = match read {
        Ok(config) => config,
        Err(e) => return log::error!("event=reload_refused why={:?}", e.to_string()),
    };
    let level = config.log.parse().unwrap_or(log::LevelFilter::Info);
    match daemon.reload(config) {
        Ok(changed) => {
            if changed.iter().any(|key| key == "log") {
                log::set_max_level(level);
            }
            log::info!("event=reloaded changed={changed:?}");
        }
        Err(fixed) => log::error!("event=reload_refused why=\"these need a restart: {}\"", fixed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_thread_that_ends_by_itself_is_a_failure_and_a_signal_is_none() {
        let (signals, received) = bounded(4);
        let dead = Cell::new(None);
        let reloads = Cell::new(0);
        let closed = Cell::new(false);
        let hangup = || {
            reloads.set(reloads.get() + u32::from(!closed.get()));
            closed.get()
        };
        let watch = || watch(&received, hangup, || dead.take(), &mut || None);
        dead.set(Some("core".to_owned()));
        assert!(watch().unwrap().contains("the core thread ended"));
        signals.send(SIGHUP).unwrap();
        signals.send(SIGTERM).unwrap();
        assert_eq!((watch(), reloads.get()), (None, 1));
        closed.set(true);
        signals.send(SIGHUP).unwrap();
        assert_eq!((watch(), reloads.get()), (None, 1), "a closed terminal ends it");
        // The thread that waits for signals has panicked.
        drop(signals);
        assert!(watch().unwrap().contains("the signals thread ended"));
        let (_sender, received) = bounded(1);
        let mut refused = || Some("--warm-start: no".to_owned());
        assert_eq!(super::watch(&received, || false, || None, &mut refused).as_deref(), Some("--warm-start: no"));
    }
}
