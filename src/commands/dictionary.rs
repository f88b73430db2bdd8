//! The dictionary on the command line: from a file, or selected.

use super::Failure;
use super::actions::read_inputs;
use super::given::{at_least_one, read_states_of, within};
use super::output::{digits, in_file};
use crate::learner::DictionaryBy;
use crate::learner::batch::{Given, Selection};
use crate::learner::effective_tolerance;
use crate::learner::refit::{Compared, elements};
use crate::math::dictionary::{Dictionary, StoppingRule};
use crate::math::kernel::{Hyperparameters, NoiseModel};
use crate::math::returns::greatest_weight;
use crate::table::Categories;
use serde_json::{Value, json};
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
    /// Rule that selects the dictionary: icd (pivoted incomplete Cholesky: covers the states), returns (half of it by the returns of
    /// value and heads), omp-td or omp-brm (orthogonal matching pursuit of the reward); auto is icd unless that is full with a
    /// trace gap above 5 nats, where all four are compared by the squared error of later returns; another has to err less than icd by
    /// more than the standard error [default: icd; where `fit` selects a
    /// model and budget is left auto, but not with actions, white noise, or importance ratios]
    #[arg(long, value_name = "RULE", conflicts_with = "dictionary")]
    pub(super) dictionary_by: Option<RuleChoice>,
    /// With --dictionary-by omp-td and omp-brm: choose no further state where none correlates more than this with what is left of the
    /// reward
    #[arg(long, value_name = "B", default_value_t = 0.0, value_parser = beta)]
    pub(super) dictionary_beta: f64,
    /// With --dictionary-by omp-td and omp-brm: compare candidates of unit norm, each divided by its root mean square over the
    /// transitions; --dictionary-beta is then in the unit of the reward
    #[arg(long)]
    pub(super) dictionary_unit_norm: bool,
    /// Largest dictionary
    #[arg(long, value_name = "M", default_value_t = 300, value_parser = at_least_one)]
    pub(super) dictionary_max: usize,
}

/// Values of --dictionary-by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum RuleChoice {
    Auto,
    Icd,
    Returns,
    OmpTd,
    OmpBrm,
}

/// A dictionary, and how it was selected if it was.
pub(super) struct Chosen {
    pub(super) dictionary: Dictionary,
    /// By ICD.
    pub(super) selected: Option<(Selection, f64)>,
    /// The comparison of the tried rules.
    pub(super) compared: Vec<Compared>,
}

impl DictionaryOptions {
    /// The dictionary of the file, or one over the nodes of the table by the rule that is asked for, else by pivoted ICD.
    pub(super) fn choose(&self, given: &Given<'_>) -> Result<Chosen, Failure> {
        self.choose_by(self.dictionary_by.unwrap_or(RuleChoice::Icd), given)
    }

    /// The same, where it is `auto` unless another rule is asked for or the rows rule that out.
    pub(super) fn choose_best(&self, given: &Given<'_>) -> Result<Chosen, Failure> {
        let only_icd = only_icd(given) || given.rows.ratios.iter().any(|&ratio| ratio != 1.0);
        let unasked = if only_icd { RuleChoice::Icd } else { RuleChoice::Auto };
        self.choose_by(self.dictionary_by.unwrap_or(unasked), given)
    }

    fn choose_by(&self, rule: RuleChoice, given: &Given<'_>) -> Result<Chosen, Failure> {
        if let Some(path) = &self.dictionary {
            return Ok(Chosen { dictionary: read_dictionary(path, given)?, selected: None, compared: Vec::new() });
        }
        let (enough, diagonal) = (self.enough(given), given.hyperparameters.kernel.diagonal());
        let icd = given.select(enough, self.dictionary_max, &|| true)?;
        let (by, compared) = self.rule(rule, given, enough, &icd)?;
        let dictionary = given.select_by(by, &icd, &|| true)?;
        let selected = (by == DictionaryBy::Icd).then_some((icd, enough.tolerance / diagonal));
        Ok(Chosen { dictionary, selected, compared })
    }

    /// When a dictionary under the hyperparameters of `given` suffices.
    pub(super) fn enough(&self, given: &Given<'_>) -> StoppingRule {
        let tolerance = match self.tolerance {
            Some(relative) => relative * given.hyperparameters.kernel.diagonal(),
            None => {
                let noise_variance =
                    given.hyperparameters.noise_variance / greatest_weight(given.rows, given.settings.weighted);
                let hyperparameters = Hyperparameters { noise_variance, ..given.hyperparameters.clone() };
                effective_tolerance(given.settings, &hyperparameters)
            }
        };
        StoppingRule { tolerance, trace: 0.0 }
    }

    /// Whether another dictionary than model selection's is asked for, whatever the rows say.
    pub(super) fn is_asked_for(&self) -> bool {
        self.dictionary.is_some() || !matches!(self.dictionary_by, None | Some(RuleChoice::Icd | RuleChoice::Auto))
    }

    /// Whether another dictionary may take the place of model selection's, which has `elements` elements.
    pub(super) fn is_open(&self, elements: usize) -> bool {
        let full = elements >= self.dictionary_max;
        self.dictionary.is_none()
            && match self.dictionary_by {
                None => full,
                Some(rule) => rule == RuleChoice::Auto,
            }
    }

    /// The rule, and the comparison if there was a choice.
    fn rule(
        &self,
        rule: RuleChoice,
        given: &Given<'_>,
        enough: StoppingRule,
        icd: &Selection,
    ) -> Result<(DictionaryBy, Vec<Compared>), Failure> {
        let by = match rule {
            RuleChoice::Icd => return Ok((DictionaryBy::Icd, Vec::new())),
            _ if only_icd(given) => {
                let message = "--dictionary-by: rules other than icd are for values of states and correlated noise";
                return Err(Failure::usage(message));
            }
            RuleChoice::Auto => None,
            RuleChoice::Returns => Some(DictionaryBy::Returns),
            RuleChoice::OmpTd => Some(DictionaryBy::OmpTd),
            RuleChoice::OmpBrm => Some(DictionaryBy::OmpBrm),
        };
        let rules: &[DictionaryBy] = match &by {
            None if !icd.capped || given.gap(&icd.dictionary, &|| true)? <= elements::GAP => {
                return Ok((DictionaryBy::Icd, Vec::new()));
            }
            None => &DictionaryBy::ALL,
            Some(by) => &[DictionaryBy::Icd, *by],
        };
        let compared = given.compare(rules, enough, self.dictionary_max, &|| true)?;
        let best = Compared::best(&compared);
        Ok((by.or(best).unwrap_or(DictionaryBy::Icd), compared))
    }
}

/// Whether rules other than ICD do not apply.
fn only_icd(given: &Given<'_>) -> bool {
    given.hyperparameters.noise == NoiseModel::White || given.settings.action_value.is_some()
}

/// How rules compare, for programs.
pub(super) fn compared_to_json(compared: &[Compared]) -> Value {
    let one = |of: &Compared| {
        json!({"rule": of.by.name(), "elements": of.elements, "relative_squared_error": of.error,
               "standard_error": of.standard_error})
    };
    compared.iter().map(one).collect()
}

/// The same for people, in one line.
pub(super) fn compared_to_text(compared: &[Compared]) -> String {
    let error = |of: &Compared| {
        let chance =
            of.standard_error.filter(|_| of.by != DictionaryBy::Icd).map(|chance| format!(" ± {}", digits(chance)));
        of.error.map_or_else(|| "unknown".into(), digits) + &chance.unwrap_or_default()
    };
    let one = |of: &Compared| format!("{} {} ({} elements)", of.by.name(), error(of), of.elements);
    compared.iter().map(one).collect::<Vec<_>>().join(", ") + "; a constant has 1"
}

/// The states of a file as a dictionary.
fn read_dictionary(path: &Path, given: &Given<'_>) -> Result<Dictionary, Failure> {
    let dim = given.inputs.dim();
    let states = match &given.settings.action_value {
        Some(of) => read_inputs(
            path,
            &[],
            given.inputs.names.as_deref().unwrap_or_default(),
            (dim, &Categories::default()),
            &of.space,
        )?,
        None => read_states_of(path, dim, "table")?,
    };
    let states = given.inputs.normalise(&states);
    Dictionary::from_elements(given.hyperparameters.kernel.clone(), dim, &states).map_err(|i| {
        let message = format!("state {} is a copy of, or spanned by, those before it; omit it", i + 1);
        in_file(path, message)
    })
}

/// A threshold of OMP.
pub(super) fn beta(text: &str) -> Result<f64, String> {
    within(text, |v| v.is_finite() && v >= 0.0, "a correlation of 0 or more")
}

/// What may be left of a state that is not chosen, in parts of a variance.
pub(super) fn tolerance(text: &str) -> Result<f64, String> {
    within(text, |v| (1e-13..1.0).contains(&v), "a tolerance lies in [1e-13, 1): below that rounding decides")
}
