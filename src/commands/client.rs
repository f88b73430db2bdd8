//! Commands that ask a running daemon: `refit`, `new-policy`, `checkpoint`; `snapshot` and `status` have files of their own.

use super::{Failure, print};
use crate::client::{ClientError, Requester};
use crate::config::ConfigParts;
use crate::daemon;
use crate::wire;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for the end of a refit.
const REFIT: Duration = Duration::from_secs(3600);
/// Longest wait for the end of a rebuild.
const REBUILD: Duration = Duration::from_secs(86_400);

/// Where the daemon is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// The daemon: its data directory, where endpoints.json has its endpoints, or its control endpoint [default: the usual data
    /// directory, else tcp://127.0.0.1:5751]
    #[arg(long, short = 'd', value_name = "DIR|ENDPOINT", env = "CRITICD_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The daemon's control endpoint, as -d takes it too
    #[arg(long, value_name = "ENDPOINT", hide_short_help = true)]
    control: Option<String>,
    /// Seconds to wait for the daemon [default: 5]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: Option<u64>,
}

impl Connection {
    pub(super) fn timeout(&self) -> Duration {
        self.given_timeout().unwrap_or(Duration::from_secs(5))
    }

    /// What the command line says of it, if anything.
    pub(super) fn given_timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }

    /// The control endpoint, if the daemon is named by it.
    fn named(&self) -> Option<String> {
        self.control.clone().or_else(|| endpoint(self.data_dir.as_deref()?))
    }

    /// The control endpoint.
    pub(super) fn control(&self) -> String {
        self.named().unwrap_or_else(|| self.endpoint("control", ConfigParts::default().control))
    }

    /// The daemon with this control endpoint.
    pub(super) fn to(control: &str) -> Self {
        Self { control: Some(control.to_owned()), data_dir: None, timeout: None }
    }

    /// The daemon of a data directory, by default of the usual one.
    pub(super) fn of_data_dir(data_dir: Option<PathBuf>) -> Self {
        Self { control: None, data_dir, timeout: None }
    }

    /// The daemon's data directory.
    pub(super) fn directory(&self) -> PathBuf {
        let named = self.data_dir.clone().filter(|place| endpoint(place).is_none());
        named.unwrap_or_else(|| ConfigParts::default().data_dir)
    }

    /// The control endpoint if the daemon is named by it, else its data directory.
    pub(super) fn place(&self) -> PathBuf {
        self.named().map_or_else(|| self.directory(), PathBuf::from)
    }

    /// The endpoint of `socket` as the daemon has written it down in its data directory.
    pub(super) fn written(&self, socket: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.directory().join("endpoints.json")).ok()?;
        let known: Value = serde_json::from_str(&text).ok()?;
        known[socket].as_str().map(str::to_owned)
    }

    /// The endpoint of `socket` as the daemon has written it down, else `default`.
    pub(super) fn endpoint(&self, socket: &str, default: String) -> String {
        self.written(socket).unwrap_or(default)
    }

    /// The control endpoint of the daemon whose ingest endpoint is `ingest`, by default the endpoint of the daemon meant; none
    /// if it is not known whose that is.
    pub(super) fn control_beside(&self, ingest: Option<&str>) -> Option<String> {
        let written = self.written("ingest").unwrap_or_else(|| ConfigParts::default().ingest);
        match (self.named(), ingest) {
            (Some(control), _) => Some(control),
            (None, Some(ingest)) if ingest != written => None,
            (None, _) => Some(self.control()),
        }
    }

    /// Why the daemon of the data directory does not answer, if it has started and cannot yet.
    pub(super) fn starting(&self) -> Option<Failure> {
        let directory = self.directory();
        if self.named().is_some() || self.written("control").is_some() {
            return None;
        }
        let process = daemon::owner(&directory)?.map_or_else(String::new, |id| format!(" (process {id})"));
        let far = match daemon::starting(&directory) {
            Some((rows, of)) => format!("recovers: {rows} of {of} rows of the journal learned again"),
            None => "starts".to_owned(),
        };
        Some(Failure::new(format!(
            "the daemon of {}{process} {far}; it answers when that is done",
            directory.display()
        )))
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

/// A daemon that may or may not run: by its data directory, or by its control endpoint if it runs on this machine.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DaemonPlace {
    /// Its data directory, or the control endpoint of a running daemon on this machine [default: the usual data directory]
    #[arg(value_name = "DIR|ENDPOINT")]
    place: Option<String>,
    /// The same, as for every command
    #[arg(long, short = 'd', value_name = "DIR|ENDPOINT", env = "CRITICD_DATA_DIR")]
    data_dir: Option<String>,
}

/// The endpoint that an argument is which may be a file.
pub(super) fn endpoint(place: &Path) -> Option<String> {
    place.to_str().filter(|text| text.starts_with("tcp://") || text.starts_with("ipc://")).map(str::to_owned)
}

/// The control endpoint of the daemon that an argument names which may be a model file: an endpoint, or the data directory of a running
/// daemon.
pub(super) fn daemon_named(model: &Path) -> Option<String> {
    let written = || Connection::of_data_dir(Some(model.to_owned())).written("control");
    endpoint(model).or_else(|| model.is_dir().then(written).flatten())
}

/// The value function of the daemon at `control`.
pub(super) fn model_of(control: &str) -> Result<crate::snapshot::Snapshot, Failure> {
    let connection = Connection::to(control);
    Ok(connection.connect()?.snapshot(None, connection.timeout())?)
}

impl DaemonPlace {
    /// Seconds that a daemon may take to say where its data is.
    const PATIENCE: u64 = 5;

    /// What the command line or the environment says, if anything.
    pub(super) fn given(&self) -> Option<&str> {
        self.place.as_deref().or(self.data_dir.as_deref())
    }

    /// The data directory. A daemon is asked for its own.
    pub(super) fn directory(&self) -> Result<PathBuf, Failure> {
        let Some(place) = self.given() else { return Ok(ConfigParts::default().data_dir) };
        if !place.contains("://") {
            return Ok(PathBuf::from(place));
        }
        let connection = Connection { control: Some(place.to_owned()), data_dir: None, timeout: Some(Self::PATIENCE) };
        let status = wire::Status::from_json(&connection.ask("status", json!({}))?)?;
        let directory = status.data_dir.map(PathBuf::from).ok_or_else(|| {
            Failure::new(format!("the daemon at {place} does not say where its data is; name the directory"))
        })?;
        match daemon::owner(&directory) {
            Some(_) => Ok(directory),
            None => Err(Failure::new(format!(
                "the daemon at {place} has its data in {}, on another machine or in a container; run the command there",
                directory.display()
            ))),
        }
    }
}

/// Which critic is meant, as a request's field.
pub(super) fn with_critic(mut fields: Value, critic: Option<&str>) -> Value {
    if let Some(critic) = critic {
        fields["critic"] = critic.into();
    }
    fields
}

/// Work on a critic that a running daemon is to begin.
#[derive(Debug, clap::Args)]
struct WorkOptions {
    #[command(flatten)]
    connection: Connection,
    /// Which critic [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// Wait for its end and print the outcome
    #[arg(long)]
    wait: bool,
}

impl WorkOptions {
    /// Ask for it: the answer, which says the outcome after at most `longest`.
    fn begin(&self, op: &str, longest: Duration) -> Result<Value, ClientError> {
        let Self { connection, critic, wait } = self;
        let patience = if *wait { longest } else { connection.timeout() };
        connection.connect()?.ask(op, with_critic(json!({"wait": wait}), critic.as_deref()), patience)
    }
}

/// Start a refit (model selection) in a running daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd refit --wait\n  criticd refit --critic energy")]
pub(crate) struct Refit {
    #[command(flatten)]
    work: WorkOptions,
}

impl Refit {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let reply = self.work.begin("refit", REFIT)?;
        let generation = &reply["generation"];
        let why = || reply["reason"].as_str().unwrap_or("no reason given");
        match reply["outcome"].as_str() {
            Some("adopted") => print(&format!("adopted: generation {generation} is in use\n")),
            Some("rejected") => print(&format!("rejected, generation {generation} stays: {}\n", why())),
            other => print(&format!("{}\n", other.unwrap_or("done"))),
        }
    }
}

/// Learn a critic again, from all rows that the daemon's journal retains
///
/// Model selection chooses from the window; then a new model learns every retained row, while the daemon goes on. It takes over
/// when it has learned all of them. The daemon does this by itself for a critic that is added, and where a setting changes with
/// which the old model cannot go on. A critic that has failed learns again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd rebuild --wait\n  criticd rebuild --critic energy")]
pub(crate) struct Rebuild {
    #[command(flatten)]
    work: WorkOptions,
}

impl Rebuild {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let reply = self.work.begin("rebuild", REBUILD)?;
        match reply["outcome"].as_str() {
            Some("adopted") => print(&format!("rebuilt: generation {} is in use\n", reply["generation"])),
            Some("rejected") => Err(Failure::new(reply["reason"].as_str().unwrap_or("the rebuild failed"))),
            other => print(&format!("{}\n", other.unwrap_or("done"))),
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
            timeout: Some(1),
        };
        assert_eq!(at(None).control(), "tcp://127.0.0.1:5751");
        std::fs::write(directory.path().join("endpoints.json"), r#"{"control": "ipc:///x"}"#).unwrap();
        assert_eq!(at(None).control(), "ipc:///x");
        assert_eq!(at(Some("tcp://h:1")).control(), "tcp://h:1");
    }
}
