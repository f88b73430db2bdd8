//! Settings: a TOML file and the command line in, one checked [`Config`] out.
//!
//! The tables in `tables` say all there is to say about each setting: its key, what it means, what it may be, and
//! whether it may change while the daemon runs. Reading, checking, printing and reloading all go by these tables, so
//! that they cannot disagree.

mod actions;
mod advisors;
mod alarms;
mod curve;
mod document;
mod endpoints;
mod error;
mod head_setting;
mod mean;
mod order;
mod setting;
mod tables;

pub use error::ConfigError;
use error::critic_prefix;
pub(crate) use head_setting::HEADS_MAX;
pub(crate) use mean::in_words as mean_in_words;
pub use mean::mean_of_option;

use crate::access::{Access, Allow, KnownClient};
use crate::journal::retention::{LedgerSettings, SyncMode};
use crate::learner::Settings;
use crate::learner::suggest::AdvisorSettings;
use crate::wire;
use advisors::ADVISOR;
use document::{Lines, read_document};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Deref;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use tables::{CRITIC, FORMER, GENERAL, LIMITS, Setting, When};
use toml::Spanned;
use toml::de::DeValue;

/// Settings before any check, all with defaults. What each may be stands in the file that [`Config::print`] makes.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigParts {
    /// Where the daemon keeps its files.
    pub data_dir: PathBuf,
    /// Endpoint of the PULL socket.
    pub ingest: String,
    /// Endpoint of the ROUTER socket.
    pub control: String,
    /// Endpoint of the PUB socket.
    pub publish: String,
    /// Address of the dashboard and of metrics, HOST:PORT; "off" for none.
    pub http: String,
    /// Names, besides loopback and the address itself, under which browsers may ask for the dashboard.
    pub http_hosts: Vec<String>,
    /// Whether plain TCP endpoints may be reachable from other machines; `allow` then says from which.
    pub insecure: bool,
    /// What peers without keys may do, by address.
    pub allow: Vec<Allow>,
    /// Endpoint of a further PULL socket that speaks CURVE, where there is one.
    pub curve_ingest: Option<String>,
    /// Endpoint of a further ROUTER socket that speaks CURVE.
    pub curve_control: Option<String>,
    /// Endpoint of a further PUB socket that speaks CURVE.
    pub curve_publish: Option<String>,
    /// File with the daemon's secret key.
    pub curve_secret_key: Option<PathBuf>,
    /// Who may come through CURVE, and what they may do.
    pub clients: Vec<KnownClient>,
    /// Least severe level that is logged.
    pub log: String,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// State dimension D; none takes the first row's.
    pub state_dim: Option<usize>,
    /// Names of the D state variables, for people; a unit stands in brackets at the end: `speed [rad/s]`.
    pub state_names: Option<Vec<String>>,
    /// Names of the rewards of a row, for people, like the variables' names; rewards beyond the list have none.
    pub reward_names: Vec<String>,
    /// Time between two whole snapshots while rows arrive.
    pub snapshot_interval_ms: u64,
    /// Larger snapshots are announced instead of published.
    pub publish_bytes_max: usize,
    /// Whether published snapshots carry the variance matrix.
    pub publish_variance: bool,
    /// Least time between two publications of `plot.<critic>`; none publishes none.
    pub plot_interval_ms: Option<u64>,
    /// Most rows that are stored and learned together; fewer where learning them takes longer than some milliseconds.
    pub batch_rows_max: usize,
    /// Messages that may wait to be learned.
    pub inbox_messages: usize,
    /// Recent rows kept for refits.
    pub window_rows: usize,
    /// Threads that models are selected on; none for all cores but one.
    pub refit_threads: Option<usize>,
    /// Maximum number of streams.
    pub streams_max: usize,
    /// Rows of other streams after which a silent one may make room for a new one.
    pub streams_idle_rows: u64,
    /// Whether what is taken in is kept.
    pub journal: bool,
    /// When it is made durable.
    pub sync: SyncMode,
    /// Rows that the journal keeps.
    pub journal_rows_max: u64,
    /// Bytes that the journal keeps.
    pub journal_bytes_max: u64,
    /// Rows between two checkpoints.
    pub checkpoint_rows: u64,
    /// Messages that the quarantine keeps.
    pub quarantine_max: u64,
    /// What one peer may ask for.
    pub limits: Limits,
    /// What is learned; at least one, names distinct. Requests that name none mean the first.
    pub critics: Vec<Settings>,
    /// Advisors, names distinct. Requests that name none mean the first.
    pub advisors: Vec<AdvisorSettings>,
}

impl ConfigParts {
    /// State dimension that the settings imply, and the setting that does: state_dim, the number of state_kinds, or a mean function.
    pub fn expected_dim(&self) -> Option<(usize, &'static str)> {
        let kinds = || self.critics.iter().map(|critic| critic.state_kinds.len()).find(|&kinds| kinds > 0);
        let stated = self.state_dim.map(|dim| (dim, "state_dim"));
        let of_mean = || self.critics.iter().find_map(|critic| critic.mean.as_ref()?.dim());
        stated.or_else(|| Some((kinds()?, "state_kinds"))).or_else(|| Some((of_mean()?, "mean")))
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// `event=... key=value ...` behind time and level.
    Text,
    /// A JSON object with `time`, `level`, `event` and the other fields.
    Json,
}

/// What messages and peers may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message.
    pub message_bytes_max: usize,
    /// Bytes of one frame; none takes the limit of a message.
    pub frame_bytes_max: Option<usize>,
    /// Rows of one batch.
    pub rows_per_batch_max: usize,
    /// States of one `value` request.
    pub query_rows_max: usize,
    /// Frames of one message.
    pub parts_max: usize,
    /// Connections at a time.
    pub connections_max: usize,
    /// Connections at a time from one address.
    pub connections_per_address_max: usize,
    /// Subscriptions of one subscriber.
    pub subscriptions_max: usize,
    /// Time for a peer's handshake.
    pub handshake_timeout_ms: u64,
    /// A peer that accepts no byte for so long is cut off.
    pub stall_timeout_ms: u64,
    /// A peer that stays behind for so long is cut off.
    pub saturated_timeout_ms: u64,
    /// A connection that carries nothing for so long is closed.
    pub idle_timeout_ms: u64,
}

impl Limits {
    /// The limits that decoding needs.
    pub fn wire(&self) -> wire::Limits {
        let Self { message_bytes_max, rows_per_batch_max, query_rows_max, .. } = *self;
        wire::Limits { message_bytes_max, rows_per_batch_max, query_rows_max }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let wire::Limits { message_bytes_max, rows_per_batch_max, query_rows_max } = wire::Limits::default();
        Self {
            message_bytes_max,
            frame_bytes_max: None,
            rows_per_batch_max,
            query_rows_max,
            parts_max: 8,
            connections_max: 1024,
            connections_per_address_max: 512,
            subscriptions_max: 64,
            handshake_timeout_ms: 5_000,
            stall_timeout_ms: 10_000,
            saturated_timeout_ms: 30_000,
            idle_timeout_ms: 3_600_000,
        }
    }
}

impl Default for ConfigParts {
    fn default() -> Self {
        Self {
            data_dir: data_dir(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME")),
            ingest: "tcp://127.0.0.1:5750".into(),
            control: "tcp://127.0.0.1:5751".into(),
            publish: "tcp://127.0.0.1:5752".into(),
            http: "127.0.0.1:5753".into(),
            http_hosts: Vec::new(),
            insecure: false,
            allow: Vec::new(),
            curve_ingest: None,
            curve_control: None,
            curve_publish: None,
            curve_secret_key: None,
            clients: Vec::new(),
            log: "info".into(),
            log_format: LogFormat::Text,
            state_dim: None,
            state_names: None,
            reward_names: Vec::new(),
            snapshot_interval_ms: 1000,
            publish_bytes_max: 1 << 20,
            publish_variance: true,
            plot_interval_ms: None,
            batch_rows_max: 4096,
            inbox_messages: 1024,
            window_rows: 200_000,
            refit_threads: None,
            streams_max: 8192,
            streams_idle_rows: 1_000_000,
            journal: true,
            sync: SyncMode::default(),
            journal_rows_max: 20_000_000,
            journal_bytes_max: 8 << 30,
            checkpoint_rows: 100_000,
            quarantine_max: 1000,
            limits: Limits::default(),
            critics: vec![Settings::default()],
            advisors: Vec::new(),
        }
    }
}

/// The XDG state directory of the program; relative paths in `XDG_STATE_HOME` do not count.
fn data_dir(state_home: Option<OsString>, home: Option<OsString>) -> PathBuf {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state_home = state_home.and_then(absolute);
    state_home
        .or_else(|| home.and_then(absolute).map(|home| home.join(".local/state")))
        .unwrap_or_default()
        .join("criticd")
}

/// The configuration file that is read if none is named: `criticd/criticd.toml` in the first of the XDG configuration
/// directories that has one. Relative paths in these variables do not count.
pub fn config_file(environment: Environment<'_>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let home = environment("XDG_CONFIG_HOME").and_then(absolute);
    let home = home.or_else(|| environment("HOME").and_then(absolute).map(|home| home.join(".config")));
    let shared = environment("XDG_CONFIG_DIRS").filter(|paths| !paths.is_empty()).unwrap_or_else(|| "/etc/xdg".into());
    let shared: Vec<PathBuf> = std::env::split_paths(&shared).filter(|path| path.is_absolute()).collect();
    let files = home.into_iter().chain(shared).map(|directory| directory.join("criticd/criticd.toml"));
    files.into_iter().find(|file| file.is_file())
}

/// Largest file of settings that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How the text of a file of settings is read.
type TextOf = fn(&Path) -> io::Result<String>;

fn settings_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it has more than 1 MiB, which no file of settings has"));
    }
    Ok(text)
}

/// The same of a file that has been read before: a pipe would have nothing, or wait for somebody who writes.
fn settings_text_again(path: &Path) -> io::Result<String> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_fifo() || kind.is_socket() {
        return Err(io::Error::other("a pipe, which cannot be read again"));
    }
    settings_text(path)
}

/// What a variable of the environment holds, if it is there.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Settings given on the command line; they count more than the environment and the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Read settings from this TOML file [default: criticd/criticd.toml in $XDG_CONFIG_HOME (~/.config) or
    /// $XDG_CONFIG_DIRS (/etc/xdg), if it is there]
    #[arg(long, value_name = "FILE", env = "CRITICD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Keep the daemon's files in this directory
    #[arg(long, short = 'd', value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Take transitions in here: tcp://HOST:PORT or ipc://PATH
    #[arg(long, value_name = "ENDPOINT")]
    pub ingest: Option<String>,
    /// Answer requests here
    #[arg(long, value_name = "ENDPOINT")]
    pub control: Option<String>,
    /// Publish snapshots and events here
    #[arg(long, value_name = "ENDPOINT")]
    pub publish: Option<String>,
    /// Show the dashboard and metrics here: HOST:PORT, or off
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,
    /// Let endpoints be reachable from other machines without encryption, for the addresses under `allow`
    #[arg(long)]
    pub insecure: bool,
    /// Log this and what is more severe: error, warn, info, debug or trace; or off
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    /// Write log lines so: text, or json (an object per line)
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Change any setting, as the file has it: `state_dim=4`, `limits.parts_max=8`, `critic.tolerance=1e-4` (of every
    /// critic), `critic.NAME.tolerance=1e-4` (of one), `advisor.NAME.seed=7`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Settings that hold everything their documentation promises. Read through [`ConfigParts`].
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    parts: ConfigParts,
}

impl Deref for Config {
    type Target = ConfigParts;

    fn deref(&self) -> &ConfigParts {
        &self.parts
    }
}

impl Config {
    /// Who may do what without a key.
    pub fn access(&self) -> Access {
        Access { allow: self.parts.allow.clone() }
    }

    /// Endpoints that speak CURVE, as the settings that name them.
    pub fn curve_endpoints(&self) -> impl Iterator<Item = (&'static str, &str)> {
        curve::endpoints(&self.parts)
    }

    /// What the rewards of a row are called: as the settings say, or else as rows have said.
    pub fn names_of_rewards<'a>(&'a self, said: Option<&'a [String]>) -> &'a [String] {
        if self.parts.reward_names.is_empty() { said.unwrap_or_default() } else { &self.parts.reward_names }
    }

    /// (H,), names of a critic's rewards, out of the names of a row's rewards, a unit in brackets behind the name; empty if
    /// none of them has one.
    pub fn reward_names(names: &[String], critic: &Settings) -> Vec<String> {
        if !critic.rewards.iter().any(|&column| column < names.len()) {
            return Vec::new();
        }
        let name = |&column: &usize| names.get(column).cloned().unwrap_or_else(|| format!("reward {column}"));
        critic.rewards.iter().map(name).collect()
    }

    /// How the journal is kept.
    pub fn ledger(&self) -> LedgerSettings {
        let ConfigParts { sync, journal_rows_max, journal_bytes_max, checkpoint_rows, .. } = self.parts;
        LedgerSettings { sync, rows_max: journal_rows_max, bytes_max: journal_bytes_max, checkpoint_rows }
    }

    /// Check settings, each alone and together.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn new(parts: ConfigParts) -> Result<Self, ConfigError> {
        let lines = Lines::default();
        ConfigError::of_all(check_each(&parts, &lines))?;
        ConfigError::of_all(check_together(&parts, &lines))?;
        Ok(Self { parts })
    }

    /// Read settings from TOML; what the text does not mention has its default.
    ///
    /// # Errors
    /// If it is not TOML, has unknown keys, or a value is not allowed: with the line.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::from_toml_of(text, &[])
    }

    /// The same with the mean functions of `known` critics where their files are not there.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn from_toml_of(text: &str, known: &[Settings]) -> Result<Self, ConfigError> {
        Self::from_toml_and(text, &Options::default(), &|_| None)?.with_means_of(known)
    }

    /// Read the file that `options` name, if they name one, and let the other options count more.
    ///
    /// # Errors
    /// As [`Config::from_toml`], or if the file cannot be read.
    pub fn load(options: &Options) -> Result<Self, ConfigError> {
        Self::read(options.config.clone(), options, &|_| None, settings_text)?.with_means_of(&[])
    }

    /// Read settings as a daemon does that is started in this environment: the file that `options` name, or else the one
    /// that is found; over it variables, `CRITICD_` and the key in capitals; over these the other options. Says which
    /// file it was, too. Mean functions whose files are not there may be known to the journal ([`Config::with_means_of`]).
    ///
    /// # Errors
    /// As [`Config::load`], or if a variable is not UTF-8.
    pub fn load_in(environment: Environment<'_>, options: &Options) -> Result<(Self, Option<PathBuf>), ConfigError> {
        Self::load_by(environment, options, settings_text)
    }

    /// The same while the daemon runs. Settings that came through a pipe cannot be read again.
    ///
    /// # Errors
    /// As [`Config::load_in`], or if the file is a pipe.
    pub fn load_again(environment: Environment<'_>, options: &Options) -> Result<Self, ConfigError> {
        Self::load_by(environment, options, settings_text_again).map(|(config, _)| config)
    }

    fn load_by(
        environment: Environment<'_>,
        options: &Options,
        text_of: TextOf,
    ) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let file = options.config.clone().or_else(|| config_file(environment));
        match Self::read(file.clone(), options, environment, text_of) {
            Ok(config) => Ok((config, file)),
            Err(fault) => Err(match file.filter(|_| fault.line().is_some()) {
                Some(path) => ConfigError::InFile { path, fault: Box::new(fault) },
                None => fault,
            }),
        }
    }

    fn read(
        file: Option<PathBuf>,
        options: &Options,
        environment: Environment<'_>,
        text_of: TextOf,
    ) -> Result<Self, ConfigError> {
        let text = match file {
            Some(path) => text_of(&path).map_err(|source| ConfigError::Read { path, source })?,
            None => String::new(),
        };
        Self::from_toml_and(&text, options, environment)
    }

    fn from_toml_and(text: &str, options: &Options, environment: Environment<'_>) -> Result<Self, ConfigError> {
        let mut parts = ConfigParts::default();
        let mut lines = read_document(text, &mut parts)?;
        let mut faults = std::mem::take(&mut lines.faults);
        let over = apply_environment(environment, &mut parts, &mut lines)
            .and_then(|()| apply(options, &mut parts, &mut lines));
        parts.critics.iter_mut().for_each(head_setting::settle);
        match over {
            Ok(()) => faults.extend(check_each(&parts, &lines)),
            Err(fault) => faults.push(fault),
        }
        if faults.is_empty() {
            // What is wrong by itself is compared with nothing.
            faults = check_together(&parts, &lines);
        }
        ConfigError::of_all(faults)?;
        Ok(Self { parts })
    }

    /// All settings as a commented TOML file; [`Config::from_toml`] reads an equal `Config` from it.
    pub fn print(&self) -> String {
        let mut out =
            String::from("# Settings of criticd. Lines with # are comments; what is left out has its default.\n");
        out.push_str(
            "# Settings marked (SIGHUP) may change while the daemon runs. Environment variables count more than this\n",
        );
        out.push_str("# file: CRITICD_STATE_DIM, CRITICD_LIMITS_PARTS_MAX, CRITICD_CRITIC_DISCOUNT (of every critic) and so on;\n");
        out.push_str("# options of `criticd serve` count more than these.\n\n");
        print_table(&mut out, &GENERAL, order::GENERAL, &self.parts);
        out.push_str("# What one message or peer may ask for.\n[limits]\n\n");
        print_table(&mut out, &LIMITS, order::LIMITS, &self.parts.limits);
        out.push_str(
            "# What is learned: one table like this for each critic. Requests that name none mean the first.\n",
        );
        for critic in &self.parts.critics {
            out.push_str("[[critic]]\n\n");
            print_table(&mut out, &CRITIC, order::CRITIC, critic);
        }
        advisors::print(&mut out, &self.parts.advisors);
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }

    /// Which settings differ in `new`, if a running daemon can take them all over; keys of critics as
    /// `critic.NAME.key`.
    ///
    /// # Errors
    /// The settings that differ and need a restart; `critic` stands for other critics or another order of them.
    pub fn reloadable_from(&self, new: &Self) -> Result<Vec<String>, Vec<String>> {
        let mut changes = Changes::default();
        changes.compare("", &GENERAL, &self.parts, &new.parts);
        changes.compare("limits.", &LIMITS, &self.parts.limits, &new.parts.limits);
        let names = |config: &Self| config.critics.iter().map(|critic| critic.name.clone()).collect::<Vec<_>>();
        if names(self) == names(new) {
            for (old, new) in self.critics.iter().zip(&new.critics) {
                changes.compare(&format!("critic.{}.", old.name), &CRITIC, old, new);
            }
        } else {
            changes.restart.push("critic".into());
        }
        if self.advisors != new.advisors {
            changes.restart.push("advisor".into());
        }
        if changes.restart.is_empty() { Ok(changes.running) } else { Err(changes.restart) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(ConfigParts::default()).expect("the defaults are allowed")
    }
}

#[derive(Default)]
struct Changes {
    running: Vec<String>,
    restart: Vec<String>,
}

impl Changes {
    fn compare<T>(&mut self, prefix: &str, table: &[Setting<T>], old: &T, new: &T) {
        for setting in table.iter().filter(|setting| (setting.get)(old) != (setting.get)(new)) {
            let changed = match setting.when {
                When::Running => &mut self.running,
                When::Restart => &mut self.restart,
            };
            changed.push(format!("{prefix}{}", setting.key));
        }
    }
}

/// The settings of a table, by who needs them.
fn print_table<T>(out: &mut String, table: &[Setting<T>], order: &order::Order, parts: &T) {
    for (who, settings) in order::grouped(table, order) {
        out.push_str(&format!("# ---- {who}\n\n"));
        print_settings(out, settings.into_iter(), parts);
    }
}

fn print_settings<'a, T: 'a>(out: &mut String, settings: impl Iterator<Item = &'a Setting<T>>, parts: &T) {
    for Setting { key, when, help, get, .. } in settings {
        let mark = if *when == When::Running { " (SIGHUP)" } else { "" };
        let mut line = String::from("#");
        for word in format!("{help}{mark}").split_whitespace() {
            if line.len() + 1 + word.len() > 100 {
                out.push_str(&line);
                out.push('\n');
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        let value = match get(parts) {
            // A line for each table.
            Some(toml::Value::Array(tables)) if tables.iter().any(toml::Value::is_table) => {
                let lines: String = tables.iter().map(|table| format!("    {table},\n")).collect();
                format!("{key} = [\n{lines}]")
            }
            Some(value) => format!("{key} = {value}"),
            None => format!("# {key} ="),
        };
        out.push_str(&format!("{line}\n{value}\n\n"));
    }
}

/// The present name of a setting.
fn today(key: &str) -> &str {
    FORMER.iter().find(|(former, _)| *former == key).map_or(key, |(_, today)| today)
}

/// The nearest of the table's keys, or the same key in another table.
fn suggestion<'a>(key: &str, keys: impl Iterator<Item = &'a str>, prefix: &str) -> Option<String> {
    let sections = ["limits", "critic", "advisor"].into_iter().filter(|_| prefix.is_empty());
    let nearest = keys.chain(sections).map(|known| (strsim::levenshtein(key, known), known)).min()?;
    if nearest.0 <= 1.max(key.len() / 3) {
        return Some(format!("`{}`", nearest.1));
    }
    let elsewhere = [
        ("at the top", GENERAL.iter().any(|setting| setting.key == key)),
        ("under [limits]", LIMITS.iter().any(|setting| setting.key == key)),
        ("under [[critic]]", CRITIC.iter().any(|setting| setting.key == key)),
        ("under [[advisor]]", ADVISOR.iter().any(|setting| setting.key == key)),
    ];
    elsewhere.into_iter().find(|(_, there)| *there).map(|(place, _)| format!("`{key}` {place}"))
}

/// Settings from the environment, which override the file. An empty variable counts as none.
fn apply_environment(
    environment: Environment<'_>,
    parts: &mut ConfigParts,
    lines: &mut Lines,
) -> Result<(), ConfigError> {
    let general = GENERAL.iter().map(|setting| (setting.key, String::new()));
    let limits = LIMITS.iter().map(|setting| (setting.key, "limits.".to_owned()));
    let former = FORMER.iter().map(|(former, _)| (*former, "critic.".to_owned()));
    let critic = former.chain(CRITIC.iter().map(|setting| (setting.key, "critic.".to_owned())));
    for (key, prefix) in general.chain(limits).chain(critic) {
        let key = format!("{prefix}{key}");
        let variable = format!("CRITICD_{}", key.replace('.', "_").to_ascii_uppercase());
        let Some(value) = environment(&variable).filter(|value| !value.is_empty()) else { continue };
        let value = value.into_string().map_err(|_| ConfigError::Environment { variable: variable.clone() })?;
        assign(&key, value.trim(), parts, lines).map_err(|error| match error {
            ConfigError::Invalid { line, message, .. } => ConfigError::Invalid { key: variable.clone(), line, message },
            other => other,
        })?;
        // Checked at once, so that the error names the variable.
        check_one(&key, parts).map_err(|message| ConfigError::invalid(variable, None, message))?;
    }
    Ok(())
}

/// Check one setting by itself.
fn check_one(key: &str, parts: &ConfigParts) -> Result<(), String> {
    fn check<T>(table: &[Setting<T>], key: &str, parts: &T) -> Result<(), String> {
        table.iter().filter(|setting| setting.key == today(key)).try_for_each(|setting| (setting.check)(parts))
    }
    match key.split_once('.') {
        Some(("limits", key)) => check(&LIMITS, key, &parts.limits),
        Some((_, key)) => parts.critics.iter().try_for_each(|critic| check(&CRITIC, key, critic)),
        None => check(&GENERAL, key, parts),
    }
}

/// Settings from the command line, which override the file.
fn apply(options: &Options, parts: &mut ConfigParts, lines: &mut Lines) -> Result<(), ConfigError> {
    for assignment in &options.set {
        let (key, value) = assignment
            .split_once('=')
            .ok_or_else(|| ConfigError::invalid(assignment, None, "must have the form KEY=VALUE"))?;
        assign(key.trim(), value.trim(), parts, lines)?;
    }
    if let Some(format) = &options.log_format {
        assign("log_format", &format!("{format:?}"), parts, lines)?;
    }
    let Options { data_dir, ingest, control, publish, http, log, insecure, .. } = options.clone();
    let mut over = |key: &str, given: bool| given.then(|| lines.forget(key)).is_some();
    if over("data_dir", data_dir.is_some()) {
        parts.data_dir = data_dir.unwrap_or_default();
    }
    let texts = [
        ("ingest", ingest, &mut parts.ingest),
        ("control", control, &mut parts.control),
        ("publish", publish, &mut parts.publish),
        ("http", http, &mut parts.http),
        ("log", log, &mut parts.log),
    ];
    for (key, given, setting) in texts {
        if over(key, given.is_some()) {
            *setting = given.unwrap_or_default();
        }
    }
    if over("insecure", insecure) {
        parts.insecure = true;
    }
    Ok(())
}

/// `KEY=VALUE` of `--set`.
fn assign(key: &str, text: &str, parts: &mut ConfigParts, lines: &mut Lines) -> Result<(), ConfigError> {
    let path: Vec<&str> = key.split('.').collect();
    match path[..] {
        ["limits", field] => assign_one(key, field, text, &LIMITS, &mut parts.limits, lines),
        ["critic", field] => (0..parts.critics.len()).try_for_each(|i| assign_critic(i, field, text, parts, lines)),
        ["critic", name, field] => {
            let i = parts.critics.iter().position(|critic| critic.name == name);
            let i = i.ok_or_else(|| ConfigError::invalid(key, None, format!("names no critic: {name}")))?;
            assign_critic(i, field, text, parts, lines)
        }
        ["advisor", name, field] => {
            let i = parts.advisors.iter().position(|advisor| advisor.name == name);
            let i = i.ok_or_else(|| ConfigError::invalid(key, None, format!("names no advisor: {name}")))?;
            let full = format!("{}{field}", advisors::prefix(i));
            assign_one(&full, field, text, &ADVISOR, &mut parts.advisors[i], lines)
        }
        _ => assign_one(key, key, text, &GENERAL, parts, lines),
    }
}

fn assign_critic(
    index: usize,
    field: &str,
    text: &str,
    parts: &mut ConfigParts,
    lines: &mut Lines,
) -> Result<(), ConfigError> {
    let name = format!("{}{field}", critic_prefix(index, parts.critics.len()));
    assign_one(&name, field, text, &CRITIC, &mut parts.critics[index], lines)
}

fn assign_one<T>(
    name: &str,
    field: &str,
    text: &str,
    table: &[Setting<T>],
    parts: &mut T,
    lines: &mut Lines,
) -> Result<(), ConfigError> {
    let prefix = &name[..name.len() - field.len()];
    let Some(setting) = table.iter().find(|setting| setting.key == today(field)) else {
        let suggestion = suggestion(field, table.iter().map(|setting| setting.key), prefix);
        return Err(ConfigError::UnknownKey { key: name.into(), line: None, suggestion });
    };
    // A shell takes quotes away: what is no TOML value by itself is a string.
    let value = DeValue::parse(text).unwrap_or_else(|_| Spanned::new(0..text.len(), DeValue::String(text.into())));
    (setting.set)(parts, value).map_err(|message| ConfigError::invalid(name, None, message))?;
    lines.forget(name);
    Ok(())
}

fn check_table<T>(table: &[Setting<T>], prefix: &str, parts: &T, lines: &Lines) -> Vec<ConfigError> {
    let fault = |setting: &Setting<T>| {
        let key = format!("{prefix}{}", setting.key);
        (setting.check)(parts).err().map(|message| ConfigError::invalid(&key, lines.of(&key), message))
    };
    table.iter().filter_map(fault).collect()
}

/// All that is wrong with single settings.
fn check_each(parts: &ConfigParts, lines: &Lines) -> Vec<ConfigError> {
    let mut faults = check_table(&GENERAL, "", parts, lines);
    faults.extend(check_table(&LIMITS, "limits.", &parts.limits, lines));
    for (i, critic) in parts.critics.iter().enumerate() {
        faults.extend(check_table(&CRITIC, &critic_prefix(i, parts.critics.len()), critic, lines));
    }
    faults
}

/// All that is wrong with settings beside each other.
fn check_together(parts: &ConfigParts, lines: &Lines) -> Vec<ConfigError> {
    let mut faults = Vec::new();
    check_critics(parts, lines, &mut faults);
    faults.extend(advisors::check(parts, lines).err());
    endpoints::check(parts, lines, &mut faults);
    faults.extend(curve::check(parts, lines).err());
    let mut fault = |key: &str, message: &str| faults.push(ConfigError::invalid(key, lines.of(key), message));
    if parts.limits.frame_bytes_max.is_some_and(|frame| frame > parts.limits.message_bytes_max) {
        fault("limits.frame_bytes_max", "must not exceed limits.message_bytes_max");
    }
    if parts.state_names.as_ref().is_some_and(|names| parts.state_dim != Some(names.len())) {
        fault("state_names", "must be as many as state_dim, which must be set too");
    }
    faults
}

fn check_critics(parts: &ConfigParts, lines: &Lines, faults: &mut Vec<ConfigError>) {
    if parts.critics.is_empty() {
        faults.push(ConfigError::invalid("critic", lines.of("critic"), "must list at least one critic"));
    }
    let mut names = HashSet::new();
    // The first of those that say how many state variables there are: the others agree with it.
    let counted = parts.critics.iter().find(|critic| !critic.state_kinds.is_empty());
    for (i, critic) in parts.critics.iter().enumerate() {
        let prefix = critic_prefix(i, parts.critics.len());
        let mut fault = |key: &str, message: &str| {
            let key = format!("{prefix}{key}");
            faults.push(ConfigError::invalid(&key, lines.of(&key), message));
        };
        if !names.insert(&critic.name) {
            fault("name", "must differ from the other critics' names");
        }
        if let Err(what) = parts.state_dim.map_or(Ok(()), |dim| critic.check_dim(dim)) {
            fault("state_kinds", &format!("must be as many as state_dim: {}", wire::kinds_mismatch(what)));
        } else if !critic.state_kinds.is_empty()
            && let Some(other) = counted.filter(|other| other.check_dim(critic.state_kinds.len()).is_err())
        {
            let message = format!("must be as many as critic {} has: all see the same states", other.name);
            fault("state_kinds", &message);
        } else if let Err(message) = head_setting::check(critic, parts.expected_dim().map(|(dim, _)| dim)) {
            fault("heads", &message);
        }
        if let Some(message) = parts.expected_dim().and_then(|expected| mean::other_dimension(critic, expected)) {
            fault("mean", &message);
        }
        let held = parts.window_rows.max(Settings::default().backfill_rows);
        if critic.backfill_rows > held {
            let message =
                format!("must not exceed {held}, the rows of the window: memory for all of them is taken at once");
            fault("backfill_rows", &message);
        }
        if critic.warmup_rows > parts.window_rows {
            fault("warmup_rows", "must not exceed window_rows");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Right, Rights};
    use crate::learner::KernelKind;
    use crate::learner::KindSetting;
    use crate::math::embedding::StateKind;
    use crate::math::kernel::Profile;
    use std::path::Path;

    fn error(text: &str) -> String {
        Config::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn no_text_gives_the_defaults() {
        let config = Config::from_toml("").unwrap();
        assert_eq!(config, Config::default());
        assert_eq!((config.critics.len(), config.critics[0].name.as_str()), (1, "default"));
        assert_eq!(config.limits.wire(), wire::Limits::default());
    }

    #[test]
    fn options_count_more_than_the_environment_and_that_more_than_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("robot.toml");
        std::fs::write(
            &file,
            "state_dim = 1\nwindow_rows = 100\n[limits]\nparts_max = 4\n[[critic]]\nname = \"a\"\n\
                               warmup_rows = 20\n[[critic]]\nname = \"b\"\ndiscount = 0.5\n",
        )
        .unwrap();
        let variables = [
            ("CRITICD_STATE_DIM", "2"),
            ("CRITICD_WINDOW_ROWS", "200"),
            ("CRITICD_LIMITS_PARTS_MAX", "5"),
            ("CRITICD_CRITIC_DISCOUNT", "0.75"),
            ("CRITICD_INGEST", "ipc:///ingest"),
            ("CRITICD_LOG", ""),
            ("CRITICD_BIN", "somebody else's"),
        ];
        let environment =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        let options = |config: Option<&Path>| Options {
            config: config.map(Path::to_owned),
            control: Some("ipc:///control".into()),
            set: vec!["window_rows=300".into()],
            ..Options::default()
        };
        let (config, read) = Config::load_in(&environment, &options(Some(&file))).unwrap();
        assert_eq!(read.as_deref(), Some(&*file));
        assert_eq!((config.state_dim, config.window_rows, config.limits.parts_max), (Some(2), 300, 5));
        assert_eq!((&*config.ingest, &*config.control, &*config.log), ("ipc:///ingest", "ipc:///control", "info"));
        let discounts: Vec<f64> = config.critics.iter().map(|critic| critic.discount).collect();
        assert_eq!((discounts, config.critics[0].warmup_rows), (vec![0.75, 0.75], 20));
        let loaded = Config::load(&options(Some(&file))).unwrap();
        assert_eq!(
            (loaded.state_dim, &*loaded.ingest),
            (Some(1), "tcp://127.0.0.1:5750"),
            "who asks for a file gets it"
        );

        for (name, value, words) in [
            ("CRITICD_STATE_DIM", "0", "`CRITICD_STATE_DIM` must be from 1 to 4096, is 0"),
            ("CRITICD_STATE_DIM", "many", "`CRITICD_STATE_DIM` cannot be read"),
            ("CRITICD_LIMITS_PARTS_MAX", "1", "`CRITICD_LIMITS_PARTS_MAX` must be from 3 to 64"),
            ("CRITICD_CRITIC_KERNEL", "round", "`CRITICD_CRITIC_KERNEL` must be one of"),
        ] {
            let wrong = |asked: &str| (asked == name).then(|| value.into());
            let error = Config::load_in(&wrong, &Options::default()).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn the_configuration_file_is_found_where_xdg_says() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.join("criticd")).unwrap();
            path
        };
        let (home, shared) = (place("home/.config"), place("shared"));
        let own = place("own");
        let written = |at: &Path, dim: usize| {
            std::fs::write(at.join("criticd/criticd.toml"), format!("state_dim = {dim}\n")).unwrap();
        };
        let environment = |own: &Path| {
            let values = [
                ("XDG_CONFIG_HOME", own.to_owned()),
                ("XDG_CONFIG_DIRS", format!("relative:{}", shared.display()).into()),
                ("HOME", directory.path().join("home")),
            ];
            move |name: &str| values.iter().find(|(n, _)| *n == name).map(|(_, path)| path.clone().into_os_string())
        };
        let found = |own: &Path| {
            let (config, file) = Config::load_in(&environment(own), &Options::default()).unwrap();
            (config.state_dim, file)
        };
        assert_eq!(found(&own), (None, None));
        written(&shared, 3);
        assert_eq!(found(&own), (Some(3), Some(shared.join("criticd/criticd.toml"))));
        written(&home, 2);
        // Relative paths do not count, and what is not set has its default.
        assert_eq!(found(Path::new("relative")).0, Some(2));
        written(&own, 1);
        assert_eq!(found(&own).0, Some(1));
    }

    #[test]
    fn what_is_printed_reads_as_the_same() {
        let text = r#"
            data_dir = "/var/lib/some \"odd\" place"
            allow = [{ addresses = "10.0.0.0/8", rights = [] }, { addresses = "::1/128" }]
            ingest = "ipc:///run/criticd/ingest"
            state_dim = 2
            state_names = ["angle", "speed"]
            reward_names = ["energy [J]", "comfort"]
            [limits]
            parts_max = 5
            frame_bytes_max = 1024
            [[critic]]
            name = "slow"
            discount = 1
            noise = "white"
            tolerance = 1e-12
            seed = 9223372036854775807
            [[critic]]
            name = "fast"
            rewards = [1, 0]
            kernel = "isotropic"
            variance = "clustered"
            refit_growth = 1.0000000000000002
        "#;
        for config in [Config::default(), Config::from_toml(text).unwrap()] {
            let printed = config.print();
            assert_eq!(Config::from_toml(&printed).unwrap(), config, "{printed}");
            for key in
                GENERAL.iter().map(|s| s.key).chain(LIMITS.iter().map(|s| s.key)).chain(CRITIC.iter().map(|s| s.key))
            {
                assert!(
                    printed.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} ="))),
                    "{key}"
                );
            }
            assert!(printed.lines().all(|line| line.len() <= 120), "{printed}");
        }
    }

    #[test]
    fn unknown_keys_are_refused_with_line_and_suggestion() {
        let cases = [
            (
                "\nsnapshot_interval = 5",
                "line 2: there is no setting `snapshot_interval`, did you mean `snapshot_interval_ms`?",
            ),
            ("ingets = \"x\"", "line 1: there is no setting `ingets`, did you mean `ingest`?"),
            ("[limit]\nx = 1", "line 1: there is no setting `limit`, did you mean `limits`?"),
            ("[limits]\nparts_maxx = 1", "line 2: there is no setting `limits.parts_maxx`, did you mean `parts_max`?"),
            (
                "[[critic]]\nname = \"a\"\n\n[[critic]]\nname = \"b\"\ntolerence = 0.1",
                "line 6: there is no setting `critic[1].tolerence`, did you mean `tolerance`?",
            ),
            ("tolerance = 0.1", "line 1: there is no setting `tolerance`, did you mean `tolerance` under [[critic]]?"),
            ("wibble = 0.1", "line 1: there is no setting `wibble`"),
        ];
        for (text, expected) in cases {
            assert_eq!(error(text), expected);
        }
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let text = "state_dim = 0\nwindow_row = 5\n[[critic]]\ndiscount = 1.5\nkernel = \"rbf\"\n";
        let said = error(text);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((lines.len(), lines[0]), (5, "4 settings are wrong"), "{said}");
        for (line, begin) in lines[1..].iter().zip([
            "line 1: `state_dim`",
            "line 2: there is no",
            "line 4: `critic.discount`",
            "line 5: `critic.kernel`",
        ]) {
            assert!(line.starts_with(&format!("  {begin}")), "{said}");
        }
    }

    #[test]
    fn kinds_of_state_variables_say_how_many_there_are() {
        let text = "[[critic]]\nname = \"a\"\n[[critic]]\nname = \"b\"\nkernel_profile = \"matern52\"\n\
                    state_kinds = [\"real\", \"periodic:6.25\", \"periodic\", \"category\"]";
        let config = Config::from_toml(text).unwrap();
        assert_eq!((config.state_dim, config.expected_dim()), (None, Some((4, "state_kinds"))));
        let mut kinds = KindSetting::known(&[StateKind::Real, StateKind::Periodic(6.25), StateKind::Category]);
        kinds.insert(2, KindSetting::Periodic);
        assert_eq!((&config.critics[1].state_kinds[..], config.critics[1].profile), (&kinds[..], Profile::Matern52));
        assert_eq!(Config::from_toml(&config.print()).unwrap(), config);
        let config = Config::from_toml(&format!("state_dim = 4\n{text}")).unwrap();
        assert_eq!(config.expected_dim(), Some((4, "state_dim")));
        assert_eq!(Config::from_toml("").unwrap().expected_dim(), None);
    }

    #[test]
    fn wrong_values_are_refused_with_line_and_range() {
        let cases = [
            ("\n\nstate_dim = 0", "line 3: `state_dim` must be from 1 to 4096, is 0"),
            ("state_dim = \"x\"", "line 1: `state_dim` cannot be read: invalid type: string \"x\", expected usize"),
            ("ingest = \"tcp://127.0.0.1\"", "line 1: `ingest` must be tcp://HOST:PORT or ipc://PATH"),
            ("ingest = \"udp://127.0.0.1:1\"", "line 1: `ingest` must be tcp://HOST:PORT or ipc://PATH"),
            ("publish = \"ipc://\"", "line 1: `publish` must be tcp://HOST:PORT or ipc://PATH"),
            ("control = \"tcp://127.0.0.1:99999\"", "line 1: `control` has a port that is no number"),
            ("control = \"tcp://127.0.0.1:5750\"", "line 1: `control` must differ from the other endpoints"),
            ("ingest = \"tcp://0.0.0.0:5750\"", "line 1: `ingest` can be reached from other machines"),
            ("http = \"tcp://127.0.0.1:1\"", "line 1: `http` must be HOST:PORT or off"),
            ("http = \"127.0.0.1\"", "line 1: `http` must be HOST:PORT or off"),
            ("http = \"127.0.0.1:5750\"", "line 1: `http` must differ from the other endpoints"),
            ("http = \"0.0.0.0:80\"", "line 1: `http` can be reached from other machines"),
            ("http_hosts = [\"a:80\"]", "line 1: `http_hosts` must be a list of names alone"),
            ("log = \"loud\"", "line 1: `log` must be one of off, error"),
            ("state_names = [\"a\"]", "line 1: `state_names` must be as many as state_dim"),
            ("reward_names = [\"a\", \"\"]", "line 1: `reward_names` must be a list of names of 1 to 64 characters"),
            ("limits = 3", "line 1: `limits` must be a table"),
            ("critic = []", "line 1: `critic` must list at least one critic"),
            ("[critic]\nname = \"a\"", "line 1: `critic` must be a list of tables"),
            ("[[critic]]\n[[critic]]\nname = \"default\"", "line 3: `critic[1].name` must differ"),
            ("[[critic]]\nname = \"a b\"", "line 2: `critic.name` must be 1 to 64 of"),
            ("[[critic]]\ndiscount = 1.5", "line 2: `critic.discount` must be from 0 to 1, is 1.5"),
            ("[[critic]]\ndiscount = nan", "line 2: `critic.discount` must be from 0 to 1, is NaN"),
            ("[[critic]]\ntolerance = 1", "line 2: `critic.tolerance` must be between 0 and 1"),
            ("[[critic]]\nrewards = [0, 0]", "line 2: `critic.rewards` must be distinct"),
            ("[[critic]]\nrewards = []", "line 2: `critic.rewards` must be distinct"),
            ("[[critic]]\nkernel = \"rbf\"", "line 2: `critic.kernel` must be one of ard, isotropic"),
            (
                "[[critic]]\nkernel_profile = \"rbf\"",
                "line 2: `critic.kernel_profile` must be one of gaussian, matern52",
            ),
            (
                "[[critic]]\nstate_kinds = [\"angle\"]",
                "line 2: `critic.state_kinds` cannot be read: a kind of state variable is \"real\", \"periodic:P\"",
            ),
            (
                "state_dim = 3\n[[critic]]\nstate_kinds = [\"real\", \"category\"]",
                "line 3: `critic.state_kinds` must be as many as state_dim: state_kinds is for 2 state variables",
            ),
            (
                "[[critic]]\nname = \"a\"\nstate_kinds = [\"category\"]\n[[critic]]\nname = \"b\"\nstate_kinds = [\"real\", \
                 \"real\"]",
                "line 6: `critic[1].state_kinds` must be as many as critic a has",
            ),
            ("[[critic]]\nsearch_starts = -1", "line 2: `critic.search_starts` cannot be read"),
            (
                "window_rows = 9000\n[[critic]]\nbackfill_rows = 1000000",
                "line 3: `critic.backfill_rows` must not exceed 9000, the rows of the window",
            ),
            ("a = \n", "line 1: "),
            ("log = \"info\"\nlog = \"warn\"", "line 2: duplicate key"),
        ];
        for (text, expected) in cases {
            let found = error(text);
            assert!(found.starts_with(expected), "{text:?}: {found}");
        }
    }

    #[test]
    fn many_critics_are_read_and_the_one_that_is_wrong_is_named() {
        let count = 2_000;
        let mut text: String = (0..count).map(|i| format!("[[critic]]\nname = \"c{i}\"\n")).collect();
        assert_eq!(Config::from_toml(&text).unwrap().critics.len(), count);
        text += "[[critic]]\nname = \"c7\"\n";
        let line = 2 * count + 2;
        assert_eq!(
            Config::from_toml(&text).unwrap_err().to_string(),
            format!("line {line}: `critic[{count}].name` must differ from the other critics' names")
        );
    }

    #[test]
    fn remote_endpoints_need_consent_and_somebody_to_let_in() {
        for local in ["tcp://127.0.0.1:1", "tcp://127.8.8.8:1", "tcp://localhost:0", "tcp://[::1]:1", "ipc:///x"] {
            assert!(Config::from_toml(&format!("ingest = \"{local}\"")).is_ok(), "{local}");
        }
        let allow = "allow = [{ addresses = \"10.0.0.0/8\", rights = [\"append\"] }]";
        for remote in ["tcp://*:1", "tcp://0.0.0.0:1", "tcp://robot.local:1", "tcp://[::]:1", "tcp://10.0.0.1:1"] {
            let bind = format!("ingest = \"{remote}\"");
            assert!(error(&bind).starts_with("line 1: `ingest` can be reached from other machines, where"), "{remote}");
            assert!(error(&format!("{bind}\n{allow}")).contains("insecure = true"), "{remote}");
            let nobody = error(&format!("{bind}\ninsecure = true"));
            assert!(nobody.contains("but allow grants no right to any of them"), "{nobody}");
            let config = Config::from_toml(&format!("{bind}\ninsecure = true\n{allow}")).unwrap();
            let rights = |address: &str| Vec::from(config.access().rights(Some(address.parse().unwrap())));
            assert_eq!((rights("10.0.0.1"), rights("11.0.0.1")), (vec![Right::Append], vec![]));
        }
    }

    #[test]
    fn ranges_are_checked() {
        for (range, expected) in [
            ("\"10.0.0.1/8\"", "line 1: `allow` cannot be read: \"10.0.0.1/8\" names one address of a range"),
            ("\"ten\"", "line 1: `allow` cannot be read: \"ten\" is neither an address nor ADDRESS/PREFIX"),
            ("\"10.0.0.0/33\"", "line 1: `allow` cannot be read: \"10.0.0.0/33\" is neither"),
            ("\"::1\", right = []", "line 1: `allow` cannot be read: unknown field `right`"),
            ("\"::1\", rights = [\"all\"]", "line 1: `allow` cannot be read: unknown variant `all`"),
            ("\"::1\" }, { addresses = \"::1/128\"", "line 1: `allow` must be at most 1024 ranges, each once"),
        ] {
            let found = error(&format!("allow = [{{ addresses = {range} }}]"));
            assert!(found.starts_with(expected), "{range}: {found}");
        }
        let config = Config::from_toml("[[allow]]\naddresses = \"10.1.2.3\"").unwrap();
        assert_eq!(
            (config.allow[0].addresses.to_string().as_str(), config.allow[0].rights),
            ("10.1.2.3/32", Rights::ALL)
        );
        assert_eq!(Config::from_toml(&config.print()).unwrap(), config);
    }

    /// The key pair of the protocol's documentation, known to everybody.
    const PUBLIC: &str = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
    const SECRET: &str = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";

    #[test]
    fn curve_needs_keys_and_keys_need_curve() {
        let client = format!("clients = [{{ name = \"arm\", key = \"{PUBLIC}\" }}]");
        let unused = error(&client);
        assert!(unused.starts_with("line 1: `clients` names keys without an encrypted endpoint"), "{unused}");
        let bind = "curve_control = \"tcp://0.0.0.0:1\"\n";
        let whole = format!("{bind}curve_secret_key = \"/etc/criticd/daemon.key_secret\"\n{client}");
        if !cfg!(feature = "curve") {
            assert!(error(&whole).starts_with("line 1: `curve_control` needs a criticd that was built with"));
            return;
        }
        assert!(error(bind).starts_with("line 1: `curve_control` needs curve_secret_key"));
        let keyed = format!("{bind}curve_secret_key = \"x\"\n");
        assert!(error(&keyed).starts_with("line 1: `curve_control` needs clients"));
        let config = Config::from_toml(&whole).unwrap();
        assert_eq!(config.curve_endpoints().collect::<Vec<_>>(), [("curve_control", "tcp://0.0.0.0:1")]);
        assert_eq!(config.clients[0].rights, Rights::ALL);
        assert_eq!(Config::from_toml(&config.print()).unwrap(), config);
        let twice = whole.replace("0.0.0.0:1", "127.0.0.1:5751");
        assert!(error(&twice).starts_with("line 1: `curve_control` must differ from the other endpoints"));
        let ipc = whole.replace("tcp://0.0.0.0:1", "ipc:///x");
        assert!(error(&ipc).starts_with("line 1: `curve_control` must be tcp://HOST:PORT"));
    }

    #[test]
    fn errors_never_repeat_what_may_be_a_key() {
        let client = |key: &str| format!("clients = [{{ name = \"arm\", key = {key} }}]");
        for text in [
            format!("curve_secret_key = \"{SECRET}\""),
            format!("curve_secret_key = [\"{SECRET}\"]"),
            format!("clients = \"{SECRET}\""),
            format!("clients = [\"{SECRET}\"]"),
            client(&format!("[\"{SECRET}\"]")),
            client(&format!("\"{SECRET}x\"")),
            client(&format!("\"{}|\"", &SECRET[1..])),
            format!("clients = [{{ name = \"{SECRET}\", key = \"{PUBLIC}\" }}]"),
            format!("clients = [{{ name = \"arm\", key = \"{PUBLIC}\", rights = [\"{SECRET}\"] }}]"),
            format!("clients = [{{ name = \"arm\", key = \"{PUBLIC}\", secret = \"{SECRET}\" }}]"),
        ] {
            let found = error(&text);
            assert!(!found.contains(&SECRET[1..20]), "{found}");
            assert!(found.starts_with("line 1: `c"), "{found}");
            let (key, value) = text.split_once(" = ").unwrap();
            let options = Options { set: vec![format!("{key}={value}")], ..Options::default() };
            let found = Config::load(&options).unwrap_err().to_string();
            assert!(!found.contains(&SECRET[1..20]), "{found}");
        }
    }

    #[test]
    fn the_command_line_counts_more_than_the_file() {
        let text = "ingest = \"tcp://0.0.0.0:1\"\nlog = \"warn\"\n[[critic]]\nname = \"a\"\n[[critic]]\nname = \"b\"";
        let mut options = Options {
            ingest: Some("tcp://127.0.0.1:0".into()),
            data_dir: Some("/d".into()),
            log: Some("debug".into()),
            set: ["state_dim=3", "limits.parts_max = 9", "critic.search_starts=7", "critic.b.kernel=isotropic"]
                .map(String::from)
                .into(),
            ..Options::default()
        };
        let config = Config::from_toml_and(text, &options, &|_| None).unwrap();
        assert_eq!((config.ingest.as_str(), config.log.as_str()), ("tcp://127.0.0.1:0", "debug"));
        assert_eq!((config.data_dir.as_path(), config.state_dim), (Path::new("/d"), Some(3)));
        assert_eq!(
            (config.limits.parts_max, config.critics[0].search_starts, config.critics[1].search_starts),
            (9, 7, 7)
        );
        assert_eq!((config.critics[0].kernel, config.critics[1].kernel), (KernelKind::Ard, KernelKind::Isotropic));

        for (set, expected) in [
            ("state_dimm=3", "there is no setting `state_dimm`, did you mean `state_dim`?"),
            ("state_dim=0", "`state_dim` must be from 1 to 4096, is 0"),
            ("critic.c.search_starts=1", "`critic.c.search_starts` names no critic: c"),
            ("critic.b.search_start=1", "there is no setting `critic[1].search_start`, did you mean `search_starts`?"),
            ("state_dim", "`state_dim` must have the form KEY=VALUE"),
        ] {
            options.set = vec![set.into()];
            assert_eq!(Config::from_toml_and(text, &options, &|_| None).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn former_names_of_settings_are_still_read() {
        let config = Config::from_toml("[[critic]]\nsearch_starts = 9\ntune_noise = false").unwrap();
        assert_eq!((config.critics[0].search_starts, config.critics[0].estimate_scale), (9, false));
        let error = Config::from_toml("[[critic]]\nstarts = 0").unwrap_err().to_string();
        assert!(error.starts_with("line 2: `critic.search_starts` must be"), "{error}");
        assert!(!config.print().contains("tune_noise"));
    }

    #[test]
    fn some_settings_change_while_running() {
        let old = Config::default();
        assert_eq!(old.reloadable_from(&old), Ok(vec![]));
        let text = "snapshot_interval_ms = 50\npublish_variance = false\nlog = \"debug\"\n\
                    [[critic]]\nsearch_starts = 9\nrefit_growth = 3.0\nrefit_budget_s = 1\nevidence_rows = 50\n\
                    estimate_scale = false";
        let changed = old.reloadable_from(&Config::from_toml(text).unwrap()).unwrap();
        let mut expected = ["log", "snapshot_interval_ms", "publish_variance"].map(String::from).to_vec();
        let keys = ["estimate_scale", "refit_growth", "evidence_rows", "search_starts", "refit_budget_s"];
        expected.extend(keys.map(|key| format!("critic.default.{key}")));
        assert_eq!(changed, expected);

        let text = "log = \"debug\"\nwindow_rows = 1000\n[limits]\nparts_max = 9\n[[critic]]\ndiscount = 0.5";
        let refused = old.reloadable_from(&Config::from_toml(text).unwrap()).unwrap_err();
        assert_eq!(refused, ["window_rows", "limits.parts_max", "critic.default.discount"]);
        let other = Config::from_toml("[[critic]]\nname = \"other\"").unwrap();
        assert_eq!(old.reloadable_from(&other).unwrap_err(), ["critic"]);
    }

    #[test]
    fn files_live_in_the_state_directory() {
        let text = |s: &str| Some(OsString::from(s));
        assert_eq!(data_dir(text("/s"), text("/h")), Path::new("/s/criticd"));
        assert_eq!(data_dir(text("s"), text("/h")), Path::new("/h/.local/state/criticd"));
        assert_eq!(data_dir(None, None), Path::new("criticd"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let options = Options { config: Some("/no/such/file.toml".into()), ..Options::default() };
        let message = Config::load(&options).unwrap_err().to_string();
        assert!(message.starts_with("cannot read /no/such/file.toml: "), "{message}");
    }
}
