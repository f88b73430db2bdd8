//! Where the demo streams to: a daemon of its own, or one that runs already.

use super::world::World;
use super::{CONNECT, Failure};
use crate::client::Requester;
use crate::commands::client::Connection;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::transport::Endpoints;
use crate::whole_file::OwnDirectory;
use crate::wire::Status;
use serde_json::json;
use std::path::Path;

/// A daemon, and what the demo has to know of it. Dropping it stops the demo's own one.
pub(super) struct DemoDaemon {
    pub(super) endpoints: Endpoints,
    /// Address of its dashboard, if that is on.
    pub(super) page: Option<String>,
    /// The critic that the demo watches, its discount, and rows until its first model.
    pub(super) critic: String,
    pub(super) discount: f64,
    pub(super) warmup_rows: u64,
    /// Rows that it had taken in before.
    pub(super) offset: u64,
    daemon: Option<Daemon>,
    // Removed after the daemon has stopped: fields are dropped in this order.
    _directory: Option<OwnDirectory>,
}

impl DemoDaemon {
    /// Start a daemon with these settings, whose data are in `directory`.
    pub(super) fn start(config: Config, directory: OwnDirectory) -> Result<Self, Failure> {
        let daemon = Daemon::start(config)?;
        let page = daemon.http_address().map(|address| address.to_string());
        let endpoints = daemon.endpoints.clone();
        let status = Requester::connect(&endpoints.control.to_string(), CONNECT)?.status(CONNECT)?;
        Self::of(endpoints, page, &status, Some(daemon), Some(directory))
    }

    /// The daemon that has written its endpoints into the data directory, by default the usual one. Its states must have
    /// `dim` numbers.
    pub(super) fn existing(directory: Option<&Path>, dim: usize) -> Result<Self, Failure> {
        let connection = Connection::of_data_dir(directory.map(Path::to_owned));
        let find = |socket: &str| {
            connection.written(socket).ok_or_else(|| {
                let place = connection.directory().display().to_string();
                Failure::new(format!("no daemon has written its endpoints into {place}: is `criticd serve` running?"))
            })
        };
        let endpoints = Endpoints {
            ingest: find("ingest")?.parse().map_err(Failure::new)?,
            control: find("control")?.parse().map_err(Failure::new)?,
            publish: find("publish")?.parse().map_err(Failure::new)?,
        };
        let mut requester = Requester::connect(&endpoints.control.to_string(), CONNECT)?;
        let hello = requester.ask("hello", json!({}), CONNECT)?;
        if let Some(known) = hello["state_dim"].as_u64().filter(|known| *known != dim as u64) {
            return Err(Failure::new(format!(
                "the states of this daemon have {known} numbers, the simulator's {dim}: start another one, with \
                 another --data-dir"
            )));
        }
        Self::of(endpoints, connection.written("http"), &requester.status(CONNECT)?, None, None)
    }

    fn of(
        endpoints: Endpoints,
        http: Option<String>,
        status: &Status,
        daemon: Option<Daemon>,
        directory: Option<OwnDirectory>,
    ) -> Result<Self, Failure> {
        let critic = status.critics.first().ok_or_else(|| Failure::new("the daemon has no critic"))?;
        Ok(Self {
            endpoints,
            page: http.map(|address| format!("http://{address}/")),
            critic: critic.name.clone(),
            discount: critic.discount,
            warmup_rows: critic.warmup_rows,
            offset: status.offset,
            daemon,
            _directory: directory,
        })
    }

    /// Let the dashboard of the demo's own daemon compare the model with the true value.
    pub(super) fn show_truth(&self, world: World) {
        if let Some(daemon) = self.daemon.as_ref().filter(|_| self.page.is_some()) {
            daemon.show_truth(world.map(self.discount));
        }
    }

    /// Let the dashboard of the demo's own daemon say what was shown.
    pub(super) fn show_end(&self, sentence: &str) {
        if let Some(daemon) = &self.daemon {
            daemon.show_end(&format!("The demo has ended. {sentence}"));
        }
    }

    /// Whether the daemon ends with the demo.
    pub(super) fn is_own(&self) -> bool {
        self.daemon.is_some()
    }
}

impl Drop for DemoDaemon {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
        }
    }
}
