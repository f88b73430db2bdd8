//! `criticd check-config`.

use super::Failure;
use super::output::{facts, in_file, print, print_json};
use crate::config::{Config, Options, config_file};
use crate::daemon::outlook::{Fate, Outlook};
use crate::daemon::recovery::RecoverError;
use crate::daemon::survey::holds_journal;
use crate::journal::checkpoint::Directory;
use crate::journal::store::SqliteStorage;
use crate::keys::KeyPair;
use crate::learner::{KernelKind, Settings};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Check a configuration file and print its errors, or the resulting settings
///
/// Where the data directory holds a journal, the command also says what a start with these settings would do to its critics: whose
/// model would be set aside and learned again from the journal, and why. It fails if the start would be refused. It changes nothing.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd check-config robot.toml && criticd serve --config robot.toml\n  criticd check-config                          the file that criticd serve would find\n  criticd serve --print-config > robot.toml     every setting, documented, ready to edit\n\nThis command ignores environment variables."
)]
pub(crate) struct CheckConfig {
    /// Settings, TOML [default: criticd/criticd.toml in $XDG_CONFIG_HOME or $XDG_CONFIG_DIRS]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Compare with this data directory, in place of the file's
    #[arg(long, short = 'd', value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl CheckConfig {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Some(path) = self.file.or_else(|| config_file(&|name| std::env::var_os(name))) else {
            let message = "there is no file criticd/criticd.toml in $XDG_CONFIG_HOME (~/.config) or $XDG_CONFIG_DIRS \
                           (/etc/xdg); name one, or make it: criticd serve --print-config > robot.toml";
            return Err(Failure::new(message));
        };
        let options = Options { config: Some(path.clone()), data_dir: self.data_dir, ..Options::default() };
        let (config, _) = Config::load_in(&|_| None, &options).map_err(|e| in_file(&path, e))?;
        // What only shows when the daemon starts should show here: the file of the secret key.
        let secret = config.curve_secret_key.as_deref().filter(|_| config.curve_endpoints().next().is_some());
        let keys =
            secret.map(KeyPair::load).transpose().map_err(|e| in_file(&path, format!("`curve_secret_key`: {e}")))?;
        let public_key = keys.as_ref().map(|keys| keys.public.as_str());
        let outlook = outlook(&config)?;
        // A journal knows what files of mean functions said that are gone.
        let config = match outlook {
            Some(_) => config,
            None => config.with_means_of(&[]).map_err(|e| in_file(&path, e))?,
        };
        if let Some(why) = outlook.as_ref().and_then(|outlook| outlook.refusal.as_ref()) {
            return Err(in_file(&path, format!("in {}: {why}", config.data_dir.display())));
        }
        if self.json {
            return print_json(&json!({
                "at_start": outlook.as_ref().map(at_start),
                "data_dir": config.data_dir,
                "ingest": config.ingest,
                "control": config.control,
                "publish": config.publish,
                "http": config.http,
                "insecure": config.insecure,
                "allow": config.allow,
                "curve": config.curve_endpoints().collect::<std::collections::BTreeMap<_, _>>(),
                "curve_public_key": public_key,
                "clients": config.clients.iter().map(|c| json!({"name": c.name, "rights": c.rights})).collect::<Vec<_>>(),
                "limits": limits(&config),
                "state_dim": config.state_dim,
                "state_names": config.state_names,
                "reward_names": config.reward_names,
                "critics": config.critics.iter().map(summary).collect::<Vec<Value>>(),
            }));
        }
        let mut lines: Vec<(String, String)> = [
            ("data", config.data_dir.display().to_string()),
            ("ingest", config.ingest.clone()),
            ("control", config.control.clone()),
            ("publish", config.publish.clone()),
            ("http", config.http.clone()),
        ]
        .map(|(label, text)| (label.to_owned(), text))
        .to_vec();
        lines.extend(config.curve_endpoints().map(|(key, endpoint)| (key.to_owned(), endpoint.to_owned())));
        lines.extend(public_key.map(|key| ("its public key".to_owned(), key.to_owned())));
        lines.extend(config.allow.iter().map(|a| ("allow".to_owned(), format!("{}: {}", a.addresses, a.rights))));
        lines.extend(config.clients.iter().map(|c| ("client".to_owned(), format!("{}: {}", c.name, c.rights))));
        for critic in &config.critics {
            let Settings { name, discount, noise, dictionary_max, .. } = critic;
            let kernel = kernel_name(critic.kernel);
            let text = format!(
                "{name}: discount {discount}, {kernel} kernel, {} noise, at most {dictionary_max} states",
                noise.name()
            );
            lines.push(("critic".to_owned(), text));
        }
        let changes = outlook.map_or_else(String::new, |outlook| changes(&outlook));
        let path = path.display();
        print(&format!("{path} is sound.\n\n{}{changes}\nNext: criticd serve --config {path}\n", facts(&lines)))
    }
}

/// What a start does to the critics in the data directory; none if that holds no journal, or the settings have none.
fn outlook(config: &Config) -> Result<Option<Outlook>, Failure> {
    let directory = &config.data_dir;
    if !config.journal || !holds_journal(directory) {
        return Ok(None);
    }
    let of = || {
        let mut storage = SqliteStorage::open_beside(directory).map_err(RecoverError::Store)?;
        Outlook::of(&mut storage, &Directory::new(directory), config)
    };
    of().map(Some).map_err(|e| in_file(directory, e))
}

/// A line for each critic that does not simply go on, and what to do if that is not meant.
fn changes(outlook: &Outlook) -> String {
    if outlook.critics.is_empty() {
        return String::new();
    }
    let rows = outlook.rows;
    let lines = outlook.critics.iter().map(|(critic, fate)| match fate {
        Fate::LearnedAgain(change) => {
            format!("  {critic}: the model is set aside, and learned again from {rows} rows of the journal: {change}\n")
        }
        Fate::New => format!("  {critic}: is new, and is learned from {rows} rows of the journal\n"),
        Fate::Dropped => format!("  {critic}: the model is set aside: the critic is no longer in the settings\n"),
    });
    format!(
        "\nA start with these settings changes critics:\n{}The daemon keeps models that it sets aside in set-aside/. To keep a model \
         in use, take the change back.\n",
        lines.collect::<String>()
    )
}

fn at_start(outlook: &Outlook) -> Value {
    let critics = outlook.critics.iter().map(|(critic, fate)| {
        let (what, change) = match fate {
            Fate::LearnedAgain(change) => ("learned_again", Some(change)),
            Fate::New => ("new", None),
            Fate::Dropped => ("dropped", None),
        };
        json!({"critic": critic, "what": what, "change": change})
    });
    json!({"rows": outlook.rows, "critics": critics.collect::<Vec<_>>()})
}

fn kernel_name(kernel: KernelKind) -> &'static str {
    match kernel {
        KernelKind::Isotropic => "isotropic",
        KernelKind::Ard => "ard",
        KernelKind::Factor(_) => "factor",
        KernelKind::Auto => "auto",
    }
}

fn limits(config: &Config) -> Value {
    let limits = &config.limits;
    json!({
        "message_bytes_max": limits.message_bytes_max,
        "frame_bytes_max": limits.frame_bytes_max.unwrap_or(limits.message_bytes_max),
        "parts_max": limits.parts_max,
        "rows_per_batch_max": limits.rows_per_batch_max,
        "query_rows_max": limits.query_rows_max,
        "connections_max": limits.connections_max,
        "connections_per_address_max": limits.connections_per_address_max,
        "subscriptions_max": limits.subscriptions_max,
        "handshake_timeout_ms": limits.handshake_timeout_ms,
        "idle_timeout_ms": limits.idle_timeout_ms,
        "stall_timeout_ms": limits.stall_timeout_ms,
        "saturated_timeout_ms": limits.saturated_timeout_ms,
    })
}

fn summary(critic: &Settings) -> Value {
    json!({
        "name": critic.name,
        "discount": critic.discount,
        "rewards": critic.rewards,
        "kernel": kernel_name(critic.kernel),
        "noise": critic.noise.name(),
        "dictionary_max": critic.dictionary_max,
    })
}
