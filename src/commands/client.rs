//! Commands that ask a running daemon: `status`, `snapshot`, `optimise`, `checkpoint`.

use super::{Failure, print};
use criticd::client::{ClientError, Requester};
use criticd::config::ConfigParts;
use criticd::wire::{self, ArrayForm};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// How long a refit that somebody waits for may take.
const REFIT: Duration = Duration::from_secs(3600);

/// Where the daemon is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// The daemon's control endpoint [default: as endpoints.json in the data directory says, else tcp://127.0.0.1:5751]
    #[arg(long, value_name = "ENDPOINT")]
    control: Option<String>,
    /// The daemon's data directory, where a running one says its endpoints
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Seconds to wait for the daemon
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

impl Connection {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// The control endpoint.
    pub(super) fn control(&self) -> String {
        self.control.clone().unwrap_or_else(|| self.endpoint("control", ConfigParts::default().control))
    }

    /// The endpoint of `socket` as the daemon has written it down, else `default`.
    pub(super) fn endpoint(&self, socket: &str, default: String) -> String {
        let directory = self.data_dir.clone().unwrap_or_else(|| ConfigParts::default().data_dir);
        let text = std::fs::read_to_string(directory.join("endpoints.json")).ok();
        let known = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        known.and_then(|known| known[socket].as_str().map(str::to_owned)).unwrap_or(default)
    }

    pub(super) fn connect(&self) -> Result<Requester, ClientError> {
        Requester::connect(&self.control(), self.timeout())
    }

    fn ask(&self, op: &str, fields: Value) -> Result<Value, ClientError> {
        let mut reply = self.connect()?.ask(op, fields, self.timeout())?;
        if let Value::Object(reply) = &mut reply {
            for key in ["v", "id", "ok"] {
                reply.remove(key);
            }
        }
        Ok(reply)
    }
}

/// Which critic is meant, as a request's field.
fn with_critic(mut fields: Value, critic: Option<&str>) -> Value {
    if let Some(critic) = critic {
        fields["critic"] = critic.into();
    }
    fields
}

/// Show what a running daemon knows about itself
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd status\n  criticd status --json | jq '.critics[0].dictionary_size'")]
pub(crate) struct Status {
    #[command(flatten)]
    connection: Connection,
    /// Print all of it as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let status = self.connection.ask("status", json!({}))?;
        if self.json { print(&format!("{status:#}\n")) } else { print(&summary(&status, &self.connection.control())) }
    }
}

/// A status, for people.
fn summary(status: &Value, endpoint: &str) -> String {
    let uint = |v: &Value| v.as_u64().unwrap_or(0);
    let number = |v: &Value| v.as_f64().map_or("-".to_owned(), |v| format!("{v:.4}"));
    let whole = |v: &Value| v.as_f64().map_or("-".to_owned(), |v| format!("{v:.1}"));
    let rejected: u64 = status["rejected"].as_object().map_or(0, |codes| codes.values().map(uint).sum());
    let mut lines = vec![
        format!("criticd {} at {endpoint}", status["version"].as_str().unwrap_or("?")),
        format!("  up           {}", duration(status["uptime_s"].as_f64().unwrap_or(0.0))),
        format!(
            "  rows         {} taken in, {:.0} per second, {} streams, {rejected} messages refused",
            uint(&status["offset"]),
            status["rows_per_second"].as_f64().unwrap_or(0.0),
            uint(&status["streams"]),
        ),
        format!(
            "  window       {} of {} rows, {:.1} MiB",
            uint(&status["window"]["rows"]),
            uint(&status["window"]["rows_max"]),
            uint(&status["window"]["bytes"]) as f64 / f64::from(1 << 20),
        ),
    ];
    for critic in status["critics"].as_array().into_iter().flatten() {
        lines.push(format!("\ncritic {}", critic["name"].as_str().unwrap_or("?")));
        if let Some(why) = critic["failed"].as_str() {
            lines.push(format!("  failed       {why}"));
        }
        let refit = &critic["refit"];
        let next = match (refit["running"].as_bool(), refit["next_at"].as_u64()) {
            (Some(true), _) => "one is running".to_owned(),
            (_, Some(at)) => format!("next at row {at}"),
            _ => "none planned".to_owned(),
        };
        lines.push(format!(
            "  refits       {} adopted, {} rejected, {} failed; {next}",
            uint(&refit["adopted"]),
            uint(&refit["rejected"]),
            uint(&refit["failed"]),
        ));
        if critic["kernel"].is_null() {
            lines.push("  model        none yet: too few rows have arrived".to_owned());
            continue;
        }
        lines.push(format!(
            "  model        generation {}, {} of at most {} states, {} rows",
            uint(&critic["generation"]),
            uint(&critic["dictionary_size"]),
            uint(&critic["dictionary_max"]),
            uint(&critic["transitions"]),
        ));
        lines.push(format!(
            "  evidence     {} nats, score {} nats per row",
            whole(&critic["log_evidence"]),
            number(&critic["score"])
        ));
        let pause = &critic["adoption_pause_ms"];
        lines.push(format!(
            "  pauses       {} ms (p50), {} ms (p99) at an adoption",
            number(&pause["p50"]),
            number(&pause["p99"])
        ));
        lines.push(format!("  discount     {}", critic["discount"]));
        lines.push(format!(
            "  noise        {} ({})",
            number(&critic["noise"]["variance"]),
            critic["noise"]["model"].as_str().unwrap_or("?")
        ));
        let kernel = &critic["kernel"];
        lines.push(format!(
            "  kernel       {}, signal variance {}, bias variance {}",
            kernel["kind"].as_str().unwrap_or("?"),
            number(&kernel["signal_variance"]),
            number(&kernel["bias_variance"]),
        ));
        let inputs = &critic["inputs"];
        for (i, scale) in inputs["scale"].as_array().into_iter().flatten().enumerate() {
            let relevance = kernel["relevance"].as_f64().or_else(|| kernel["relevance"][i].as_f64()).unwrap_or(0.0);
            let name = inputs["names"][i].as_str().map_or_else(|| format!("state_{i}"), str::to_owned);
            let lengthscale = scale.as_f64().unwrap_or(1.0) / relevance.sqrt();
            lines.push(format!("    {name:<11}relevance {relevance:.3e}, lengthscale {lengthscale:.4}"));
        }
    }
    lines.join("\n") + "\n"
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match (whole / 86_400, whole / 3600 % 24, whole / 60 % 60) {
        (0, 0, 0) => format!("{seconds:.1} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", whole % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Save the model that a running daemon uses
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd snapshot --out value.model\n  criticd snapshot --json | jq .kernel",
    group = clap::ArgGroup::new("where").required(true).args(["out", "json"])
)]
pub(crate) struct Snapshot {
    #[command(flatten)]
    connection: Connection,
    /// Which critic [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// Write it to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl Snapshot {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let snapshot = self.connection.connect()?.snapshot(self.critic.as_deref(), self.connection.timeout())?;
        let bytes = wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true);
        if let Some(path) = &self.out {
            std::fs::write(path, &bytes)
                .map_err(|e| Failure::usage(format!("cannot write {}: {e}", path.display())))?;
            eprintln!(
                "{}: generation {} of critic {}, {} states, {} bytes",
                path.display(),
                snapshot.generation,
                snapshot.critic,
                snapshot.dictionary.nrows(),
                bytes.len()
            );
        }
        if self.json {
            print(&format!("{:#}\n", wire::to_json(&bytes)?))?;
        }
        Ok(())
    }
}

/// Let a running daemon select a model now
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd optimise --wait\n  criticd optimise --critic energy")]
pub(crate) struct Optimise {
    #[command(flatten)]
    connection: Connection,
    /// Which critic [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// Wait until the search is over, and say how it ended
    #[arg(long)]
    wait: bool,
}

impl Optimise {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let patience = if self.wait { REFIT } else { self.connection.timeout() };
        let fields = with_critic(json!({"wait": self.wait}), self.critic.as_deref());
        let reply = self.connection.connect()?.ask("optimise", fields, patience)?;
        let generation = &reply["generation"];
        let why = || reply["reason"].as_str().unwrap_or("no reason given");
        match reply["outcome"].as_str() {
            Some("adopted") => print(&format!(
                "adopted: generation {generation} is in use
"
            )),
            Some("rejected") => print(&format!(
                "rejected, generation {generation} stays: {}
",
                why()
            )),
            other => print(&format!(
                "{}
",
                other.unwrap_or("done")
            )),
        }
    }
}

/// Let a running daemon write a checkpoint now
#[derive(Debug, clap::Args)]
pub(crate) struct Checkpoint {
    #[command(flatten)]
    connection: Connection,
}

impl Checkpoint {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let reply = self.connection.ask("checkpoint", json!({}))?;
        print(&format!("written, covers {} rows\n", reply["offset"]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_parts() {
        assert_eq!([3.21, 75.0, 7260.0, 90_061.0].map(duration), ["3.2 s", "1 min 15 s", "2 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn endpoints_come_from_the_daemons_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |control: Option<&str>| Connection {
            control: control.map(str::to_owned),
            data_dir: Some(directory.path().to_owned()),
            timeout: 1,
        };
        assert_eq!(at(None).control(), "tcp://127.0.0.1:5751");
        std::fs::write(directory.path().join("endpoints.json"), r#"{"control": "ipc:///x"}"#).unwrap();
        assert_eq!(at(None).control(), "ipc:///x");
        assert_eq!(at(Some("tcp://h:1")).control(), "tcp://h:1");
    }

    #[test]
    fn a_summary_shows_what_is_there() {
        let text = summary(
            &json!({"version": "1", "offset": 5, "critics": [
                {"name": "a", "kernel": {"kind": "ard", "relevance": [4.0], "signal_variance": 1.0, "bias_variance": 0.0},
                 "inputs": {"scale": [2.0], "names": ["angle"]}, "generation": 3},
                {"name": "b"},
            ]}),
            "tcp://h:1",
        );
        assert!(text.contains("angle      relevance 4.000e0, lengthscale 1.0000"), "{text}");
        assert!(text.contains("critic b\n") && text.contains("none yet"), "{text}");
    }
}
