//! The dictionary on the command line: from a file, or selected.

use super::Failure;
use super::actions::read_inputs;
use super::given::{at_least_one, read_states_of, within};
use super::output::in_file;
use criticd::learner::batch::{Given, Selection};
use criticd::learner::effective_tolerance;
use criticd::math::dictionary::{Dictionary, StoppingRule};
use std::path::{Path, PathBuf};

/// Where the dictionary comes from.
#[derive(Debug, clap::Args)]
pub(super) struct DictionaryOptions {
    /// Take these states as the dictionary: a table with the columns state_0, state_1, ... alone
    #[arg(long, value_name = "STATES")]
    pub(super) dictionary: Option<PathBuf>,
    /// Largest residual variance of a state that stays out of the dictionary, relative to v0 + b of the given
    /// hyperparameters; if `fit` selects a model, relative to v0 [default: 1e-3 of v0, or a tenth of the noise variance if
    /// that is smaller]
    #[arg(long, value_name = "T", value_parser = tolerance)]
    pub(super) tolerance: Option<f64>,
    /// Largest dictionary
    #[arg(long, value_name = "M", default_value_t = 300, value_parser = at_least_one)]
    pub(super) dictionary_max: usize,
}

/// A dictionary, and how it was selected if it was.
pub(super) struct Chosen {
    pub(super) dictionary: Dictionary,
    pub(super) selected: Option<(Selection, f64)>,
}

impl DictionaryOptions {
    /// The dictionary of the file, or one by pivoted ICD over the nodes of the table.
    pub(super) fn choose(&self, given: &Given<'_>) -> Result<Chosen, Failure> {
        if let Some(path) = &self.dictionary {
            return Ok(Chosen { dictionary: read_dictionary(path, given)?, selected: None });
        }
        let diagonal = given.hyperparameters.kernel.diagonal();
        let tolerance = match self.tolerance {
            Some(relative) => relative * diagonal,
            None => effective_tolerance(given.settings, given.hyperparameters),
        };
        let selection = given.select(StoppingRule { tolerance, trace: 0.0 }, self.dictionary_max, &|| true)?;
        Ok(Chosen { dictionary: selection.dictionary.clone(), selected: Some((selection, tolerance / diagonal)) })
    }
}

/// The states of a file as a dictionary.
fn read_dictionary(path: &Path, given: &Given<'_>) -> Result<Dictionary, Failure> {
    let dim = given.inputs.dim();
    let states = match &given.settings.action_value {
        Some(of) => read_inputs(path, &[], given.inputs.names.as_deref().unwrap_or_default(), dim, &of.space)?,
        None => read_states_of(path, dim, "table")?,
    };
    let states = given.inputs.normalise(&states);
    Dictionary::from_elements(given.hyperparameters.kernel.clone(), dim, &states).map_err(|i| {
        let message = format!("state {} is a copy of, or spanned by, those before it; omit it", i + 1);
        in_file(path, message)
    })
}

fn tolerance(text: &str) -> Result<f64, String> {
    within(text, |v| (1e-13..1.0).contains(&v), "a tolerance lies in [1e-13, 1): below that rounding decides")
}
