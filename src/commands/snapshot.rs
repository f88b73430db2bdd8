//! `criticd snapshot`.

use super::client::Connection;
use super::output::{note, write_file};
use super::{Failure, as_of, print};
use crate::daemon::as_of::Moment;
use crate::wire::{self, ArrayForm};
use std::path::PathBuf;

/// Save the model that a running daemon uses
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd snapshot --out value.model\n  criticd snapshot --json | jq .kernel\n  criticd snapshot --as-of 120000 --out then.model      what answered when 120000 rows had been stored\n  criticd value then.model states.csv",
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
    /// The model as it was when this number of rows had been stored, or at a time: @ and Unix seconds. It is learned again from
    /// the data directory, by the daemon itself where -d is an endpoint
    #[arg(long, value_name = "OFFSET|@TIME", value_parser = as_of::moment)]
    as_of: Option<Moment>,
}

impl Snapshot {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let snapshot = match self.as_of {
            Some(moment) => as_of::snapshot(
                &self.connection.place(),
                self.critic.as_deref(),
                moment,
                self.connection.given_timeout(),
            )?,
            None => self.connection.connect()?.snapshot(self.critic.as_deref(), self.connection.timeout())?,
        };
        let bytes = wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true);
        if let Some(path) = &self.out {
            write_file(path, &[], &bytes)?;
            note(&format!(
                "{}: generation {} of critic {}, {} states, {} bytes",
                path.display(),
                snapshot.generation,
                snapshot.critic,
                snapshot.dictionary.nrows(),
                bytes.len()
            ));
        }
        if self.json {
            print(&format!("{:#}\n", wire::to_json(&bytes)?))?;
        }
        Ok(())
    }
}
