//! Commands that ask a running daemon: `snapshot`, `refit`, `new-policy`, `checkpoint`; `status` has a file of its own.

use super::{Failure, print};
use criticd::client::{ClientError, Requester};
use criticd::config::ConfigParts;
use criticd::wire::{self, ArrayForm};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for the end of a refit.
const REFIT: Duration = Duration::from_secs(3600);

/// Where the daemon is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// The daemon's control endpoint [default: as endpoints.json in the data directory says, else tcp://127.0.0.1:5751]
    #[arg(long, value_name = "ENDPOINT")]
    control: Option<String>,
    /// The daemon's data directory; endpoints.json there has the endpoints of a running daemon
    #[arg(long, value_name = "DIR", env = "CRITICD_DATA_DIR")]
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

    /// The reply to a request, without what every reply has.
    pub(super) fn ask(&self, op: &str, fields: Value) -> Result<Value, ClientError> {
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

/// Start a refit (model selection) in a running daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd refit --wait\n  criticd refit --critic energy")]
pub(crate) struct Refit {
    #[command(flatten)]
    connection: Connection,
    /// Which critic [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// Wait for the end of the refit and print its outcome
    #[arg(long)]
    wait: bool,
}

impl Refit {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let patience = if self.wait { REFIT } else { self.connection.timeout() };
        let fields = with_critic(json!({"wait": self.wait}), self.critic.as_deref());
        let reply = self.connection.connect()?.ask("refit", fields, patience)?;
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

/// Announce to a running daemon that another policy acts from the next row on
///
/// The setting on_new_policy decides what each critic does. Rows can announce the change themselves, with the key `policy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd new-policy\n  criticd new-policy step-40000 --critic energy")]
pub(crate) struct NewPolicy {
    #[command(flatten)]
    connection: Connection,
    /// Name of the policy, 1 to 256 bytes; nothing changes if it acts already
    #[arg(value_name = "POLICY")]
    policy: Option<String>,
    /// Which critic [default: all]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
}

impl NewPolicy {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut fields = with_critic(json!({}), self.critic.as_deref());
        if let Some(policy) = self.policy {
            fields["policy"] = policy.into();
        }
        let reply = self.connection.ask("new_policy", fields)?;
        print(&format!("announced, from row {} on\n", reply["offset"]))
    }
}

/// Make a running daemon write a checkpoint
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd checkpoint\n  criticd checkpoint --data-dir /var/lib/criticd")]
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
}
