//! `criticd score`.

use super::Failure;
use super::dictionary::DictionaryOptions;
use super::given::{self, TableOptions};
use super::output::{Spinner, columns, facts, in_file, note, number, print, print_json};
use crate::learner::Settings;
use crate::learner::batch::Given;
use crate::math::evidence::{Evidence, parameter_names, to_parameters};
use serde_json::{Value, json};
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
        let texts = given::texts(&table);
        let variables = table.names_with_units();
        let rows = table.into_rows();
        if rows.ratios.iter().any(|&ratio| ratio != 1.0) {
            let message = "behavior_prob and target_prob weight the rows, and this evidence is of rows that count once; put \
                           an underscore before the name of one of the two to have it skipped";
            return Err(in_file(&self.table.table, message));
        }
        let (hyperparameters, inputs, lambda, centred) =
            given::read_hyperparameters(&self.hyperparameters, rows.dim, &texts)?;
        if let Some(lambda) = lambda.filter(|&lambda| lambda < 1.0) {
            let path = self.hyperparameters.display();
            note(&format!("{path} names lambda {lambda}; the evidence is of whole returns (lambda 1)"));
        }
        let settings = Settings { centred, ..given::settings(&rows, self.discount) };
        let given = Given {
            settings: &settings,
            rows: &rows,
            inputs: &inputs,
            hyperparameters: &hyperparameters,
            lambda: 1.0,
            first: 0,
        };
        let progress = Spinner::start("computing the evidence");
        let found = self.evidence_of(&given, sparse)?;
        drop(progress);
        if self.json {
            return print_json(&self.document(&given, &found, variables.as_deref()));
        }
        print(&text(&given, &found, variables.as_deref()))
    }

    fn evidence_of(&self, given: &Given<'_>, sparse: bool) -> Result<FoundScores, Failure> {
        let wrong = |e| in_file(&self.table.table, e);
        if !sparse {
            given::check_exact(given.rows)?;
            return Ok(FoundScores { evidence: given.exact_evidence(&|| true).map_err(wrong)?, dictionary: None });
        }
        let chosen = self.dictionary.choose(given)?;
        let model = given.model(chosen.dictionary, &|| true)?;
        let evidence = given.sparse_evidence(&model, &|| true).map_err(wrong)?;
        let selected = chosen.selected.map(|(selection, tolerance)| (tolerance, selection.capped));
        Ok(FoundScores { evidence, dictionary: Some((model.dictionary().len(), selected)) })
    }

    fn document(&self, given: &Given<'_>, found: &FoundScores, variables: Option<&[String]>) -> Value {
        let FoundScores { evidence, dictionary } = found;
        let mut document = json!({
            "log_evidence": evidence.value,
            "parameters": parameter_names(&given.hyperparameters.kernel.metric, given.rows.dim),
            "gradient": evidence.gradient,
            "evidence": name(dictionary.is_none()),
            "complexity": evidence.complexity,
            "fit": evidence.fit,
            "trace_gap": evidence.trace_gap,
            "transitions": given.rows.len(),
            "discount": self.discount,
        });
        if let Some(variables) = variables {
            document["names"] = json!(variables);
        }
        if let Some((size, selected)) = dictionary {
            document["dictionary_size"] = json!(size);
            if let Some((tolerance, capped)) = selected {
                document["tolerance"] = json!(tolerance);
                document["capped"] = json!(capped);
            }
        }
        document
    }
}

/// What was computed.
struct FoundScores {
    evidence: Evidence,
    /// Of a bound: elements of the dictionary and, where they were selected, the tolerance and whether more would be needed.
    dictionary: Option<(usize, Option<(f64, bool)>)>,
}

impl FoundScores {
    /// How it was computed, in words.
    fn how(&self) -> String {
        let Some((size, selected)) = self.dictionary else { return "exact".to_owned() };
        let states = given::plural(size, "state");
        match selected {
            None => format!("variational bound, {states} given as dictionary"),
            Some((tolerance, capped)) => {
                let capped = if capped { ", more would be needed: --dictionary-max" } else { "" };
                format!("variational bound, {states} selected at tolerance {}{capped}", number(tolerance))
            }
        }
    }
}

/// The evidence, for people.
fn text(given: &Given<'_>, found: &FoundScores, variables: Option<&[String]>) -> String {
    let evidence = &found.evidence;
    let nats = |value: f64| format!("{} nats", number(value));
    let mut lines = vec![
        ("table".to_owned(), given::extent(given.rows)),
        ("log evidence".to_owned(), format!("{} ({})", nats(evidence.value), found.how())),
        ("complexity".to_owned(), nats(evidence.complexity)),
        ("fit".to_owned(), format!("{}, {} of n / 2", nats(evidence.fit), number(evidence.fit_ratio()))),
    ];
    if found.dictionary.is_some() {
        lines.push(("trace gap".to_owned(), format!("{} (above 5: a larger dictionary)", nats(evidence.trace_gap))));
    }
    let names = parameter_names(&given.hyperparameters.kernel.metric, given.rows.dim);
    let parameters = to_parameters(given.hyperparameters);
    let table: Vec<Vec<String>> = (0..names.len())
        .map(|i| vec![called(&names[i], variables), number(parameters[i]), number(evidence.gradient[i])])
        .collect();
    let next = "\nNext: criticd fit TABLE --out MODEL selects better ones, or uses these with --no-optimise.\n";
    format!("{}\n{}{next}", facts(&lines), columns(&["parameter", "value", "gradient, nats"], &table))
}

/// A parameter's name, with its state variable's name where it has one: `log_relevance[2]` is `log_relevance[battery]`.
fn called(parameter: &str, variables: Option<&[String]>) -> String {
    let split = parameter.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    let name = |(_, d): (&str, &str)| variables?.get(d.parse::<usize>().ok()?);
    match (split, split.and_then(name)) {
        (Some((what, _)), Some(name)) => format!("{what}[{}]", given::without_unit(name)),
        _ => parameter.to_owned(),
    }
}

/// The word for an evidence.
pub(super) fn name(exact: bool) -> &'static str {
    if exact { "exact" } else { "sparse" }
}
