//! A daemon in the process of the test, with real sockets and threads.

use super::{PATIENCE, PATIENCE_MS};
use bytes::Bytes;
use criticd::client::{Requester, Sender, Subscriber};
use criticd::config::{Config, ConfigParts, Limits};
use criticd::daemon::Daemon;
use std::path::Path;
use tempfile::TempDir;

/// Settings of a daemon on free ports that keeps its data in `directory`, without a dashboard. It gives up no peer because the machine
/// stands still.
pub(crate) fn parts(directory: &Path) -> ConfigParts {
    let any_port = || "tcp://127.0.0.1:0".to_owned();
    let [handshake_timeout_ms, stall_timeout_ms, saturated_timeout_ms] = [PATIENCE_MS; 3];
    ConfigParts {
        data_dir: directory.join("data"),
        ingest: any_port(),
        control: any_port(),
        publish: any_port(),
        http: "off".into(),
        limits: Limits { handshake_timeout_ms, stall_timeout_ms, saturated_timeout_ms, ..Limits::default() },
        ..ConfigParts::default()
    }
}

/// Where a dashboard gets a free port.
pub(crate) const ANY_HTTP: &str = "127.0.0.1:0";

/// A daemon, and the directory that it has for itself.
pub(crate) struct Running {
    pub(crate) daemon: Daemon,
    pub(crate) directory: TempDir,
}

impl Running {
    /// A daemon with the settings of [`parts`], as `change` leaves them.
    pub(crate) fn start(change: impl FnOnce(&mut ConfigParts)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut parts = parts(directory.path());
        change(&mut parts);
        Self { daemon: start(parts), directory }
    }

    pub(crate) fn requester(&self) -> Requester {
        requester(&self.daemon)
    }

    pub(crate) fn sender(&self) -> Sender {
        sender(&self.daemon)
    }

    /// A subscriber that certainly hears what happens from now on: it has heard a status.
    pub(crate) fn subscriber(&self) -> Subscriber {
        let subscriber = Subscriber::connect(&self.daemon.endpoints.publish.to_string(), &[""], PATIENCE).unwrap();
        while next(&subscriber).0 != "status" {}
        subscriber
    }
}

/// A daemon with these settings, which are sound.
pub(crate) fn start(parts: ConfigParts) -> Daemon {
    Daemon::start(Config::new(parts).unwrap()).unwrap()
}

pub(crate) fn requester(daemon: &Daemon) -> Requester {
    Requester::connect(&daemon.endpoints.control.to_string(), PATIENCE).unwrap()
}

pub(crate) fn sender(daemon: &Daemon) -> Sender {
    Sender::connect(&daemon.endpoints.ingest.to_string(), PATIENCE).unwrap()
}

/// The next publication, which comes.
pub(crate) fn next(subscriber: &Subscriber) -> (String, Bytes) {
    subscriber.receive(PATIENCE).unwrap().expect("a publication")
}
