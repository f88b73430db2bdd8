//! `criticd check-config`.

use super::Failure;
use super::output::{facts, in_file, print, print_json};
use criticd::config::{Config, Options, config_file};
use criticd::learner::{KernelKind, Settings};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Read a configuration file, say what is wrong with it or what it comes to
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd check-config robot.toml && criticd serve --config robot.toml\n  criticd check-config                          the file that criticd serve would find\n  criticd serve --print-config > robot.toml     every setting, documented, ready to edit\n\nThe environment is left out: this is about the file."
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
        if self.json {
            return print_json(&json!({
                "data_dir": config.data_dir,
                "ingest": config.ingest,
                "control": config.control,
                "publish": config.publish,
                "http": config.http,
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
