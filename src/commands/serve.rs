//! `criticd serve`.

use super::{Failure, start_log};
use criticd::config::{Config, Options};
use criticd::daemon::Daemon;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::time::{Duration, Instant};

/// A start that takes less shows no progress.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the daemon's threads are looked at.
const WATCH: Duration = Duration::from_millis(200);

/// Run the daemon until SIGTERM or SIGINT (Ctrl-C)
///
/// Transitions come in over ZeroMQ on the ingest and control sockets, queries are answered on the control socket,
/// snapshots and events go out on the publish socket. A dashboard shows it all at http://127.0.0.1:5753/, beside metrics
/// for Prometheus. The bound addresses are logged and written to endpoints.json in the data directory.
/// SIGHUP reads the configuration again and takes over what may change at run time.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd serve\n  criticd serve --config robot.toml --ingest tcp://127.0.0.1:6000\n  criticd serve --set critic.discount=0.95 --set critic.dictionary_max=500\n  criticd serve --print-config > robot.toml     every setting, documented, ready to edit"
)]
pub(crate) struct Serve {
    #[command(flatten)]
    options: Options,
    /// Print the settings that would be used, as a commented TOML file, and exit
    #[arg(long)]
    print_config: bool,
}

/// Start the daemon; where the journal takes a while to be learned again a bar on the terminal shows how far it has got.
fn start(config: Config) -> Result<Daemon, Failure> {
    let mut bar: Option<ProgressBar> = None;
    let started = Instant::now();
    let daemon = Daemon::start_with(config, &mut |done, all| {
        if started.elapsed() < PATIENCE {
            return;
        }
        let bar = bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("recovering {bar:40} {pos} of {len} rows, {eta} left");
            // Hidden by itself where standard error is no terminal.
            ProgressBar::new(all).with_style(style.expect("a template of ours"))
        });
        bar.set_position(done);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(daemon?)
}

/// Until a signal asks to stop (`None`), or a thread has ended that nobody asked to: then what to say.
fn watch(signals: &Receiver<i32>, reload: impl Fn(), dead_thread: impl Fn() -> Option<String>) -> Option<String> {
    let ended = |thread: &str| format!("the {thread} thread ended unexpectedly; please report this with the log");
    loop {
        match signals.recv_timeout(WATCH) {
            Ok(SIGHUP) => reload(),
            Ok(_) => return None,
            Err(RecvTimeoutError::Disconnected) => return Some(ended("signals")),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(thread) = dead_thread() {
                    return Some(ended(&thread));
                }
            }
        }
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let config = Config::load(&self.options).map_err(Failure::usage)?;
        if self.print_config {
            print!("{}", config.print());
            return Ok(());
        }
        start_log(&config.log);
        // Caught before anything starts, so that no signal falls between.
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let daemon = start(config)?;
        let (sender, received) = bounded(4);
        let handle = signals.handle();
        let watcher = std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                if sender.send(signal).is_err() {
                    break;
                }
            }
        })?;
        let failure = watch(&received, || self.reload(&daemon), || daemon.dead_thread());
        log::info!("event=stopping");
        daemon.stop();
        handle.close();
        drop(received);
        // It only waits for signals; one that panicked has said so.
        drop(watcher.join());
        failure.map_or(Ok(()), |message| Err(std::io::Error::other(message).into()))
    }

    fn reload(&self, daemon: &Daemon) {
        match Config::load(&self.options) {
            Err(e) => log::error!("event=reload_refused why={:?}", e.to_string()),
            Ok(config) => {
                let level = config.log.parse().unwrap_or(log::LevelFilter::Info);
                match daemon.reload(config) {
                    Ok(changed) => {
                        if changed.iter().any(|key| key == "log") {
                            log::set_max_level(level);
                        }
                        log::info!("event=reloaded changed={changed:?}");
                    }
                    Err(fixed) => {
                        log::error!("event=reload_refused why=\"these need a restart: {}\"", fixed.join(", "))
                    }
                }
            }
        }
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
        let watch = || watch(&received, || reloads.set(reloads.get() + 1), || dead.take());
        dead.set(Some("core".to_owned()));
        assert!(watch().unwrap().contains("the core thread ended"));
        signals.send(SIGHUP).unwrap();
        signals.send(SIGTERM).unwrap();
        assert_eq!((watch(), reloads.get()), (None, 1));
        // The thread that waits for signals has panicked.
        drop(signals);
        assert!(watch().unwrap().contains("the signals thread ended"));
    }
}
