//! `criticd score`.

use super::Failure;
use super::given::{self, DictionaryOptions, TableOptions};
use super::output::{Progress, columns, facts, in_file, number, print, print_json};
use criticd::learner::Settings;
use criticd::learner::batch::Given;
use criticd::math::evidence::{parameter_names, to_parameters};
use serde_json::json;
use std::path::PathBuf;

/// Score given hyperparameters on a table (log evidence and gradient), without fitting
///
/// The evidence is the log density of the rewards, constants included: higher is better. A chain that is cut, or still runs at
/// the end of the table, ends in the value of its last next state, at the fixed point for these hyperparameters; the gradient
/// holds these targets fixed. `sparse` is the variational lower bound with a dictionary. The targets are whole returns: the
/// command ignores a lambda in the hyperparameter file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd score walk.csv --hyperparameters h.json\n  criticd score walk.csv --hyperparameters h.json --discount 0.95 --json\n  criticd score long.csv --hyperparameters h.json --evidence sparse --dictionary-max 500\n\nA hyperparameter file, JSON or TOML; without `inputs` it is in the coordinates of the table:\n  {\"kernel\": {\"kind\": \"ard\", \"signal_variance\": 2.0, \"bias_variance\": 1.0, \"relevance\": [1.0, 0.25]},\n   \"noise\": {\"model\": \"correlated\", \"variance\": 0.05}}"
)]
pub(crate) struct Score {
    #[command(flatten)]
    table: TableOptions,
    /// Kernel and noise: the output of `fit --json`, or a file of your own
    #[arg(long, value_name = "FILE")]
    hyperparameters: PathBuf,
    /// Discount of transitions without one of their own
    #[arg(long, value_name = "G", default_value_t = Settings::default().discount, value_parser = given::discount)]
    discount: f64,
    /// Which evidence [default: exact, or sparse with a given dictionary]
    #[arg(long, value_name = "WHICH")]
    evidence: Option<Which>,
    #[command(flatten)]
    dictionary: DictionaryOptions,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// One n x n Cholesky: up to 5000 transitions
    Exact,
    /// Through a dictionary
    Sparse,
}

impl Score {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let asked = self.dictionary.dictionary.is_some() || self.dictionary.tolerance.is_some();
        let sparse = match self.evidence {
            Some(Which::Exact) if asked => {
                return Err(Failure::usage("--dictionary and --tolerance go with --evidence sparse"));
            }
            Some(which) => which == Which::Sparse,
            None => asked,
        };
        if self.table.dry(self.json)? {
            return Ok(());
        }
        let table = self.table.read()?;
        let variables = given::names(&table);
        let rows = table.into_rows();
        if rows.ratios.iter().any(|&ratio| ratio != 1.0) {
            let message = "behavior_prob and target_prob weight the rows, and this evidence is of rows that count once; put \
                           an underscore before the name of one of the two to have it skipped";
            return Err(in_file(&self.table.table, message));
        }
        let (hyperparameters, inputs, lambda) = given::read_hyperparameters(&self.hyperparameters, rows.dim)?;
        if let Some(lambda) = lambda.filter(|&lambda| lambda < 1.0) {
            let path = self.hyperparameters.display();
            eprintln!("criticd: {path} names lambda {lambda}; the evidence is that of whole returns (lambda 1)");
        }
        let settings = given::settings(&rows, self.discount);
        let given = Given {
            settings: &settings,
            rows: &rows,
            inputs: &inputs,
            hyperparameters: &hyperparameters,
            lambda: 1.0,
            first: 0,
        };
        let progress = Progress::start("computing the evidence");
        let mut extra = json!({});
        let (evidence, how) = if sparse {
            let chosen = self.dictionary.choose(&given)?;
            let model = given.model(chosen.dictionary, &|| true)?;
            let evidence = given.sparse_evidence(&model, &|| true).map_err(|e| in_file(&self.table.table, e))?;
            let size = model.dictionary().len();
            extra["dictionary_size"] = json!(size);
            let how = match &chosen.selected {
                None => format!("variational bound, {} given as dictionary", given::plural(size, "state")),
                Some((selection, tolerance)) => {
                    extra["tolerance"] = json!(tolerance);
                    extra["capped"] = json!(selection.capped);
                    let capped = if selection.capped { ", more would be needed: --dictionary-max" } else { "" };
                    format!(
                        "variational bound, {} selected at tolerance {}{capped}",
                        given::plural(size, "state"),
                        number(*tolerance)
                    )
                }
            };
            (evidence, how)
        } else {
            given::check_exact(&rows)?;
            (given.exact_evidence(&|| true).map_err(|e| in_file(&self.table.table, e))?, "exact".to_owned())
        };
        drop(progress);
        let names = parameter_names(&hyperparameters.kernel.metric, rows.dim);
        if self.json {
            let mut document = json!({
                "log_evidence": evidence.value,
                "parameters": names,
                "gradient": evidence.gradient,
                "evidence": name(!sparse),
                "complexity": evidence.complexity,
                "fit": evidence.fit,
                "trace_gap": evidence.trace_gap,
                "transitions": rows.len(),
                "discount": self.discount,
            });
            if let Some(variables) = &variables {
                document["names"] = json!(variables);
            }
            if let (Some(document), Some(extra)) = (document.as_object_mut(), extra.as_object()) {
                document.extend(extra.clone());
            }
            return print_json(&document);
        }
        let nats = |value: f64| format!("{} nats", number(value));
        let mut lines = vec![
            ("table".to_owned(), given::extent(&rows)),
            ("log evidence".to_owned(), format!("{} ({how})", nats(evidence.value))),
            ("complexity".to_owned(), nats(evidence.complexity)),
            ("fit".to_owned(), format!("{}, {} of n / 2", nats(evidence.fit), number(evidence.fit_ratio()))),
        ];
        if sparse {
            lines
                .push(("trace gap".to_owned(), format!("{} (above 5: a larger dictionary)", nats(evidence.trace_gap))));
        }
        let parameters = to_parameters(&hyperparameters);
        let table: Vec<Vec<String>> = (0..names.len())
            .map(|i| vec![called(&names[i], &variables), number(parameters[i]), number(evidence.gradient[i])])
            .collect();
        let next = "\nNext: criticd fit TABLE --out MODEL selects better ones, or uses these with --no-optimise.\n";
        print(&format!("{}\n{}{next}", facts(&lines), columns(&["parameter", "value", "gradient, nats"], &table)))
    }
}

/// A parameter's name, with that of its state variable where it has one: `log_relevance[2]` is `log_relevance[battery]`.
fn called(parameter: &str, variables: &Option<Vec<String>>) -> String {
    let split = parameter.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    let name = |(_, d): (&str, &str)| variables.as_ref()?.get(d.parse::<usize>().ok()?);
    match (split, split.and_then(name)) {
        (Some((what, _)), Some(name)) => format!("{what}[{}]", given::without_unit(name)),
        _ => parameter.to_owned(),
    }
}

/// The word for an evidence.
pub(super) fn name(exact: bool) -> &'static str {
    if exact { "exact" } else { "sparse" }
}
