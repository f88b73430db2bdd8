//! `criticd value`.

pub(super) mod live;

use super::Failure;
use super::actions::{read_inputs, shown, shown_names};
use super::answers::{document, table};
use super::client::daemon_named;
use super::given::{at_least_one, categories, mapping, read_columns, read_states_as, without_unit, write_texts};
use super::inspect::{PROVISIONAL, Then, head_called, names};
use super::output::{columns, in_file, note, number, print, print_json};
use crate::learner::heads::Head;
use crate::math::dense::Matrix;
use crate::snapshot::{Ask, Snapshot};
use crate::table::{Categories, Columns, Mapping};
use nalgebra::DMatrix;
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Evaluate a model at the states of a file: value, deviations, and how well it is known
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd value walk.model states.csv\n  criticd value walk.model plans.csv --samples 1000 --seed 1 --json    how often is one plan better than another?\n  criticd value walk.model states.csv --json    {\"mean\": [...], \"variance\": [...], ...}\n  criticd value tcp://127.0.0.1:5751 states.csv --critic far,near    the critics of a running daemon\n  criticd value /var/lib/criticd states.csv --as-of 120000    what was answered when 120000 rows had been stored\n  criticd value tcp://127.0.0.1:5751 states.csv --head contact    a head of a running daemon\n\nStates are a table (.csv, .jsonl, .npz, .parquet) with the columns state_0, state_1, ... or the array states alone; or with\ncolumns named like the variables of the model, and any others; or the observations of another program's file. Their units\nare as in the fitted table.\n\nstd is the standard deviation of the value, return std of a single return: 90 % of returns should lie within 1.645 of\nthem. known is the share of the signal's prior variance that the data removed. A state is marked as extrapolated if no dictionary\nstate is near. --json has mean, variance (of the value), return_variance, known and extrapolates, except those that the\nmodel does not have; and heads, if the model has any: {name: {mean, variance, return_variance}}.\n--covariance adds covariance (n, n), --samples adds samples (K, n)."
)]
pub(crate) struct Value {
    /// A value function, as `fit` writes it; or a running daemon: its data directory or its control endpoint
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// A table of states, see below
    #[arg(value_name = "STATES")]
    states: PathBuf,
    /// Columns of the states, in the order of the model's variables [default: those named like the variables, if all are
    /// there; other columns are then ignored]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    state: Vec<String>,
    /// TOML file with the columns, as for `fit`
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// The head called this alone, of a model or a critic that has heads
    #[arg(long, value_name = "NAME")]
    head: Option<String>,
    /// Critics of the daemon that answer, all in one request [default: the first]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    critic: Vec<String>,
    #[command(flatten)]
    then: Then,
    /// Also print the covariance of the values of the states: V(a) - V(b) has the variance Cov_aa + Cov_bb - 2 Cov_ab
    #[arg(long, conflicts_with = "head")]
    covariance: bool,
    /// Also print K joint samples of the values of the states: how often is plan A better than plan B?
    #[arg(long, value_name = "K", value_parser = at_least_one, conflicts_with = "head")]
    samples: Option<usize>,
    /// Seed of the samples
    #[arg(long, value_name = "S", default_value_t = 0, requires = "samples")]
    seed: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What a model says of states together.
#[derive(Default)]
struct Together {
    /// (n, n).
    covariance: Option<Matrix>,
    /// (n, K) of each reward.
    samples: Option<Vec<Matrix>>,
}

impl Together {
    /// One list of K lists of n numbers for each reward; without a list around it where there is one reward.
    fn add_to(&self, document: &mut Json) {
        let lists = |of: &Matrix| (0..of.cols()).map(|k| of.col(k).to_vec()).collect::<Vec<_>>();
        if let Some(covariance) = &self.covariance {
            document["covariance"] = json!(lists(covariance));
        }
        match self.samples.as_deref() {
            Some([one]) => document["samples"] = json!(lists(one)),
            Some(several) => document["samples"] = several.iter().map(lists).collect(),
            None => {}
        }
    }

    /// Below the table of values, a column for each state and for each sample.
    fn text(&self) -> String {
        let of = |title: &str, matrix: &Matrix| {
            let titles: Vec<String> = (1..=matrix.cols()).map(|k| format!("{title} {k}")).collect();
            let row = |i: usize| (0..matrix.cols()).map(|k| number(matrix.at(i, k))).collect();
            let rows: Vec<Vec<String>> = (0..matrix.rows()).map(row).collect();
            columns(&titles.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
        };
        let covariance = self.covariance.iter().map(|found| format!("\ncovariance\n{}", of("state", found)));
        let samples = self.samples.iter().flatten().map(|found| format!("\nsamples\n{}", of("sample", found)));
        covariance.chain(samples).collect()
    }
}

impl Value {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let said = Columns { state: self.state.clone(), ..Columns::default() };
        let said = match &self.columns {
            Some(path) => said.or(Columns { state: read_columns(path)?.state, ..Columns::default() }),
            None => said,
        };
        let live = if self.then.is_asked() { None } else { daemon_named(&self.model) };
        if let Some(endpoint) = live {
            if self.covariance || self.samples.is_some() {
                return Err(Failure::usage(
                    "--covariance and --samples are for a MODEL that is a file: `criticd snapshot` writes a daemon's",
                ));
            }
            if let Some(head) = &self.head {
                return live::run_head(&endpoint, &self.states, said, &self.critic, head, self.json);
            }
            return live::run(&endpoint, &self.states, said, &self.critic, self.json);
        }
        let snapshot = match &self.critic[..] {
            [] => self.then.read(&self.model, None)?,
            [critic] if self.then.is_asked() => self.then.read(&self.model, Some(critic))?,
            _ if self.then.is_asked() => return Err(Failure::usage("--critic: with --as-of one critic answers")),
            _ => return Err(Failure::usage("--critic is for a MODEL that is a daemon")),
        };
        let dim = snapshot.dim();
        let known = categories(&snapshot, &self.model)?;
        let states = self.inputs(&snapshot, &said, &known)?;
        let heads = self.heads(&snapshot, &states)?;
        if let (Some(_), [head]) = (&self.head, &heads[..]) {
            return head.print(&names(&snapshot), &states, &known, self.json);
        }
        let found = snapshot.evaluate(&states, Ask::ALL).map_err(|e| in_file(&self.states, e))?;
        if found.variance.is_none() {
            note(&format!(
                "{} carries no variance: models that `fit` writes do, a daemon's once a reward other than 0 has come",
                self.model.display()
            ));
        }
        let together = self.together(&snapshot, &states)?;
        if snapshot.provisional {
            note(PROVISIONAL);
        }
        if self.json {
            let mut document = document(&found);
            together.add_to(&mut document);
            if let Some(names) = &snapshot.inputs.names {
                document["names"] = json!(names);
            }
            if snapshot.all_heads().next().is_some() {
                document["heads"] = heads.iter().map(|head| (head.name.clone(), head.document())).collect();
            }
            return print_json(&document);
        }
        let (names, shown) = match &snapshot.actions {
            None => (names(&snapshot), states),
            Some(actions) => (shown_names(&names(&snapshot), &actions.space), shown(&states, dim, &actions.space)),
        };
        let (titles, mut rows) = table(&names, &shown, &found);
        write_texts(&mut rows, &shown, names.len(), &known);
        print(&columns(&titles.iter().map(String::as_str).collect::<Vec<_>>(), &rows))?;
        print(&together.text())?;
        if !heads.is_empty() {
            let more = if heads.len() == 1 { "1 head".to_owned() } else { format!("{} heads", heads.len()) };
            note(&format!("{more} besides: --json has them all, --head NAME prints one"));
        }
        Ok(())
    }

    /// The inputs of the model (n, D) that the file has.
    fn inputs(&self, snapshot: &Snapshot, said: &Columns, known: &Categories) -> Result<Vec<f64>, Failure> {
        let dim = snapshot.dim();
        let named: Vec<String> =
            snapshot.inputs.names.iter().flatten().map(|name| without_unit(name).to_owned()).collect();
        match &snapshot.actions {
            None => {
                let by_name = Columns { names: named, categories: known.clone(), ..said.clone() };
                let by_name = read_states_as(&self.states, &by_name, dim, "model");
                let mapping =
                    mapping(snapshot, &self.model)?.filter(|of| said.is_empty() && !of.columns.state.is_empty());
                // The columns as in the table that the model was fitted to, whose variables may be called otherwise.
                let as_fitted = |of: Mapping| {
                    let Columns { state, categories, .. } = of.columns;
                    let columns = Columns { state, categories, ..Columns::default() };
                    read_states_as(&self.states, &columns, dim, "model").ok()
                };
                by_name.or_else(|failure| mapping.and_then(as_fitted).ok_or(failure))
            }
            Some(actions) => read_inputs(&self.states, &said.state, &named, (dim, known), &actions.space),
        }
    }

    /// What is asked for of the states together.
    fn together(&self, snapshot: &Snapshot, states: &[f64]) -> Result<Together, Failure> {
        if !self.covariance && self.samples.is_none() {
            return Ok(Together::default());
        }
        if snapshot.variance.is_none() {
            let message =
                "the model carries no variance, which --covariance and --samples need; models that `fit` writes do";
            return Err(in_file(&self.model, message));
        }
        let fault = |e| in_file(&self.states, e);
        let covariance = if self.covariance { snapshot.covariance(states).map_err(fault)? } else { None };
        let samples = match self.samples {
            Some(count) => snapshot.samples(states, count, self.seed).map_err(fault)?,
            None => None,
        };
        Ok(Together { covariance, samples })
    }

    /// What the heads that are asked for say: one, or all there are.
    fn heads(&self, snapshot: &Snapshot, states: &[f64]) -> Result<Vec<HeadValues>, Failure> {
        let all: Vec<&Head> = snapshot.all_heads().collect();
        let which = match &self.head {
            None if all.is_empty() => return Ok(Vec::new()),
            None => (0..all.len()).collect(),
            Some(name) => vec![head_called(snapshot, name, &self.model)?],
        };
        let found = snapshot.evaluate_heads(states, &which, true).map_err(|e| in_file(&self.states, e))?;
        let column = |values: &DMatrix<f64>, c: usize| values.column(c).iter().copied().collect::<Vec<f64>>();
        let of = |(c, &h): (usize, &usize)| HeadValues {
            name: all[h].name.clone(),
            mean: column(&found.mean, c),
            variance: found.variance.as_ref().map(|variance| column(variance, c)),
            return_variance: found.variance.as_ref().map(|variance| {
                let (_, heads, h) = snapshot.place_of_head(h);
                variance.column(c).iter().map(|&variance| heads.return_variance(h, variance)).collect()
            }),
        };
        Ok(which.iter().enumerate().map(of).collect())
    }
}

/// The answers of one head for the states.
struct HeadValues {
    name: String,
    mean: Vec<f64>,
    variance: Option<Vec<f64>>,
    /// Of a single return.
    return_variance: Option<Vec<f64>>,
}

impl HeadValues {
    /// The values of no states yet.
    fn of(name: &str) -> Self {
        Self { name: name.to_owned(), mean: Vec::new(), variance: None, return_variance: None }
    }

    /// Add the answers for further states.
    fn extend(&mut self, mean: Vec<f64>, variance: Option<Vec<f64>>, return_variance: Option<Vec<f64>>) {
        self.mean.extend(mean);
        for (whole, part) in [(&mut self.variance, variance), (&mut self.return_variance, return_variance)] {
            if let Some(part) = part {
                whole.get_or_insert_default().extend(part);
            }
        }
    }

    /// Print it, beside the states or as JSON.
    fn print(&self, names: &[String], states: &[f64], known: &Categories, json: bool) -> Result<(), Failure> {
        let name = self.name.as_str();
        if json {
            let mut document = self.document();
            document["head"] = json!(name);
            document["heads"] = json!({name: self.document()});
            return print_json(&document);
        }
        let mut titles: Vec<&str> = names.iter().map(String::as_str).collect();
        titles.push(name);
        titles.extend(self.variance.is_some().then_some("std"));
        titles.extend(self.return_variance.is_some().then_some("return std"));
        let row = |(i, state): (usize, &[f64])| -> Vec<String> {
            let std = self.variance.iter().chain(&self.return_variance).map(|variance| variance[i].sqrt());
            state.iter().copied().chain([self.mean[i]]).chain(std).map(number).collect()
        };
        let mut rows: Vec<Vec<String>> = states.chunks_exact(names.len()).enumerate().map(row).collect();
        write_texts(&mut rows, states, names.len(), known);
        print(&columns(&titles, &rows))
    }

    fn document(&self) -> Json {
        let mut out = json!({"mean": self.mean});
        if let Some(variance) = &self.variance {
            out["variance"] = json!(variance);
        }
        if let Some(variance) = &self.return_variance {
            out["return_variance"] = json!(variance);
        }
        out
    }
}
