//! `criticd value`.

use super::Failure;
use super::actions::{read_inputs, shown, shown_names};
use super::given::{read_columns, read_states_as, without_unit};
use super::inspect::{names, read_model};
use super::output::{columns, in_file, number, print, print_json};
use criticd::snapshot::{Ask, Evaluation};
use criticd::table::Columns;
use nalgebra::DMatrix;
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// The value at the states of a file, and how well it is known
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd value model.msgpack states.csv\n  criticd value model.msgpack states.csv --json    {\"mean\": [...], \"variance\": [...], ...}\n\nStates are a table (.csv, .jsonl, .npz, .parquet) with the columns state_0, state_1, ... or the array states alone, or with\ncolumns called as the variables of the model, among others; or the observations of a file that another program has\nwritten. They are in the unit of the table that was fitted.\n\nsd is that of the value, return sd that of the return to come: 90 % of returns should lie within 1.645 of them. known\nis the share of the uncertainty there was before any row that data have taken away. A state is marked as extrapolated\nwhere no state that the model keeps is near. --json has mean, variance (of the value), return_variance, known and\nextrapolates, without those that the model cannot tell."
)]
pub(crate) struct Value {
    /// A value function, as `fit` writes it
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Where to evaluate it: a table of states, see below
    #[arg(value_name = "STATES")]
    states: PathBuf,
    /// Columns of the states, in the order of the model's variables [default: those called as the variables, if all are
    /// there, and then other columns are left alone]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    state: Vec<String>,
    /// TOML file that says which columns they are, as for `fit`
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Value {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let snapshot = read_model(&self.model)?;
        let dim = snapshot.dim();
        let named: Vec<String> =
            snapshot.inputs.names.iter().flatten().map(|name| without_unit(name).to_owned()).collect();
        let said = Columns { state: self.state.clone(), ..Columns::default() };
        let said = match &self.columns {
            Some(path) => said.or(Columns { state: read_columns(path)?.state, ..Columns::default() }),
            None => said,
        };
        let states = match &snapshot.actions {
            None => read_states_as(&self.states, &Columns { names: named, ..said }, dim, "model")?,
            Some(actions) => read_inputs(&self.states, &said.state, &named, dim, &actions.space)?,
        };
        let found = snapshot.evaluate(&states, Ask::ALL).map_err(|e| in_file(&self.states, e))?;
        if found.variance.is_none() {
            eprintln!("criticd: {} carries no variance; models that `fit` writes do", self.model.display());
        }
        if snapshot.provisional {
            eprintln!("criticd: model selection has not chosen this model yet; deviations are those before any row");
        }
        if self.json {
            let mut document = document(&found);
            if let Some(names) = &snapshot.inputs.names {
                document["names"] = json!(names);
            }
            return print_json(&document);
        }
        let (names, shown) = match &snapshot.actions {
            None => (names(&snapshot), states),
            Some(actions) => (shown_names(&names(&snapshot), &actions.space), shown(&states, dim, &actions.space)),
        };
        let (heads, rows) = table(&names, &shown, &found);
        print(&columns(&heads.iter().map(String::as_str).collect::<Vec<_>>(), &rows))
    }
}

/// One array for each answer that there is.
fn document(found: &Evaluation) -> Json {
    let per_head = |values: &DMatrix<f64>| -> Json {
        if values.ncols() == 1 {
            json!(values.as_slice())
        } else {
            values.row_iter().map(|row| row.iter().copied().collect::<Vec<f64>>()).collect()
        }
    };
    let answers = [
        ("mean", Some(per_head(&found.mean))),
        ("variance", found.variance.as_ref().map(|v| json!(v))),
        ("return_variance", found.return_variance.as_ref().map(per_head)),
        ("known", found.known.as_ref().map(|v| json!(v))),
        ("extrapolates", found.extrapolates.as_ref().map(|v| json!(v))),
    ];
    let given = answers.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Json::Object(given.collect())
}

/// Heads and rows: each state (D numbers, called `names`) with what is said of it.
fn table(names: &[String], states: &[f64], found: &Evaluation) -> (Vec<String>, Vec<Vec<String>>) {
    let rewards = found.mean.ncols();
    let each = |what: &str| -> Vec<String> {
        (0..rewards).map(|h| if rewards == 1 { what.into() } else { format!("{what}_{h}") }).collect()
    };
    let far = found.extrapolates.as_deref().unwrap_or_default();
    let mut heads = [names, &each("value")].concat();
    heads.extend(found.variance.is_some().then(|| "sd".to_owned()));
    heads.extend(found.return_variance.is_some().then(|| each("return sd")).into_iter().flatten());
    heads.extend(found.known.is_some().then(|| "known".to_owned()));
    heads.extend(far.contains(&true).then(String::new));
    let row = |(i, state): (usize, &[f64])| -> Vec<String> {
        let mut row: Vec<String> = state.iter().chain(found.mean.row(i).iter()).copied().map(number).collect();
        row.extend(found.variance.iter().map(|variance| number(variance[i].sqrt())));
        row.extend(
            found.return_variance.iter().flat_map(|v| v.row(i).iter().map(|v| number(v.sqrt())).collect::<Vec<_>>()),
        );
        row.extend(found.known.iter().map(|known| format!("{:.1} %", 100.0 * known[i])));
        row.extend(far.contains(&true).then(|| if far[i] { "extrapolated".to_owned() } else { String::new() }));
        row
    };
    (heads, states.chunks_exact(names.len()).enumerate().map(row).collect())
}
