//! `criticd check-config`.

use super::Failure;
use super::output::{facts, in_file, print, print_json};
use criticd::config::{Config, Options, config_file};
use criticd::keys::KeyPair;
use criticd::learner::{KernelKind, Settings};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Check a configuration file and print its errors, or the resulting settings
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd check-config robot.toml && criticd serve --config robot.toml\n  criticd check-config                          the file that criticd serve would find\n  criticd serve --print-config > robot.toml     every setting, documented, ready to edit\n\nThis command ignores environment variables."
)]
pub(crate) struct CheckConfig {
    /// Settings, TOML [default: criticd/criticd.toml in $XDG_CONFIG_HOME or $XDG_CONFIG_DIRS]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
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
        let options = Options { config: Some(path.clone()), ..Options::default() };
        let config = Config::load(&options).map_err(|e| in_file(&path, e))?;
        // What only shows when the daemon starts should show here: the file of the secret key.
        let secret = config.curve_secret_key.as_deref().filter(|_| config.curve_endpoints().next().is_some());
        let keys =
            secret.map(KeyPair::load).transpose().map_err(|e| in_file(&path, format!("`curve_secret_key`: {e}")))?;
        let public_key = keys.as_ref().map(|keys| keys.public.as_str());
        if self.json {
            return print_json(&json!({
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
        let path = path.display();
        print(&format!("{path} is sound.\n\n{}\nNext: criticd serve --config {path}\n", facts(&lines)))
    }
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
