//! `criticd value`.

use super::Failure;
use super::given::read_states_of;
use super::inspect::read_model;
use super::output::{columns, in_file, number, print, print_json};
use criticd::snapshot::Ask;
use serde_json::json;
use std::path::PathBuf;

/// Mean and variance of the value at the states of a file
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd value model.msgpack states.csv\n  criticd value model.msgpack states.csv --json    {\"mean\": [...], \"variance\": [...]}\n\nStates are a table (.csv, .jsonl, .npz, .parquet) with the columns state_0, state_1, ... or the array states alone, or\nthe observations of a Minari or D4RL file (.hdf5), in the unit of the table that was fitted.\nThe variance is that of the value, not of the rewards to come."
)]
pub(crate) struct Value {
    /// A value function, as `fit` writes it
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Where to evaluate it: a table with the columns state_0, state_1, ... alone
    #[arg(value_name = "STATES")]
    states: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Value {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let snapshot = read_model(&self.model)?;
        let dim = snapshot.dim();
        let states = read_states_of(&self.states, dim, "model")?;
        let found = snapshot.evaluate(&states, Ask::VARIANCE).map_err(|e| in_file(&self.states, e))?;
        let rewards = found.mean.ncols();
        if found.variance.is_none() {
            eprintln!("criticd: {} carries no variance; models that `fit` writes do", self.model.display());
        }
        if self.json {
            let mean = if rewards == 1 {
                json!(found.mean.as_slice())
            } else {
                found.mean.row_iter().map(|row| row.iter().copied().collect::<Vec<f64>>()).collect()
            };
            let mut document = json!({"mean": mean});
            if let Some(variance) = &found.variance {
                document["variance"] = json!(variance);
            }
            return print_json(&document);
        }
        let mut heads: Vec<String> = match &snapshot.inputs.names {
            Some(names) => names.clone(),
            None => (0..dim).map(|d| format!("state_{d}")).collect(),
        };
        heads.extend((0..rewards).map(|h| if rewards == 1 { "value".into() } else { format!("value_{h}") }));
        heads.extend(found.variance.is_some().then(|| "sd".to_owned()));
        let rows: Vec<Vec<String>> = states
            .chunks_exact(dim)
            .enumerate()
            .map(|(i, state)| {
                let sd = found.variance.as_ref().map(|variance| variance[i].sqrt());
                state.iter().chain(found.mean.row(i).iter()).copied().chain(sd).map(number).collect()
            })
            .collect();
        print(&columns(&heads.iter().map(String::as_str).collect::<Vec<_>>(), &rows))
    }
}
