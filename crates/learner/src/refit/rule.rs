//! The rule that chooses the dictionary of a refit: as the settings say, or ICD unless another predicts later returns better.

use super::elements::{GAP, pursuit, some_heads};
use super::error::RefitError;
use super::report::{Compared, DictionaryReport};
use crate::allowance::{self, Allowance};
use crate::batch::{self, Given, Selection};
use crate::math::dictionary::{Dictionary, StoppingRule};
use crate::math::evidence::KeepGoing;
use crate::settings::{DictionaryBy, Settings};

/// Rules that are compared where the settings leave the choice open. Each costs a pass over the rows.
const RULES: [DictionaryBy; 2] = [DictionaryBy::Icd, DictionaryBy::Returns];
/// Heads that take part in the trace gap: of more it is a lower bound.
const HEADS: usize = 64;

/// The rule of one refit. All its rounds keep to what the first comparison has found.
pub(super) struct RefitRule<'a> {
    pub(super) allowance: &'a Allowance,
    found: Option<DictionaryReport>,
}

impl<'a> RefitRule<'a> {
    /// That of the settings. Where they leave it open, rules are compared if the budget suffices.
    pub(super) fn of(settings: &Settings, allowance: &'a Allowance) -> Self {
        match settings.dictionary_by {
            _ if !settings.takes_rules() => Self::icd(allowance),
            None => Self { allowance, found: None },
            Some(by) => Self { allowance, found: Some(DictionaryReport { by, compared: Vec::new() }) },
        }
    }

    /// ICD, whatever the rows say.
    pub(super) fn icd(allowance: &'a Allowance) -> Self {
        let found = DictionaryReport { by: DictionaryBy::Icd, compared: Vec::new() };
        Self { allowance, found: Some(found) }
    }

    /// What is to be said of it; none where ICD had no rival.
    pub(super) fn report(self) -> Option<DictionaryReport> {
        self.found.filter(|found| found.by != DictionaryBy::Icd || !found.compared.is_empty())
    }

    /// The dictionary that takes the place of `icd`, which chose at most `most` elements until there was `enough`; none where ICD
    /// stays.
    pub(super) fn dictionary(
        &mut self,
        given: &Given<'_>,
        icd: &Selection,
        (enough, most): (StoppingRule, usize),
        keep_going: KeepGoing<'_>,
    ) -> Result<Option<Dictionary>, RefitError> {
        if self.found.is_none() {
            self.found = self.compare(given, icd, (enough, most), keep_going)?;
        }
        let Some(found) = self.found.as_mut().filter(|found| found.by != DictionaryBy::Icd) else { return Ok(None) };
        match given.select_by(found.by, icd, keep_going) {
            Ok(dictionary) => Ok(Some(dictionary)),
            Err(_) if !keep_going() => Err(RefitError::Stopped),
            // A pursuit without a fixed point chooses nothing.
            Err(_) => {
                found.by = DictionaryBy::Icd;
                Ok(None)
            }
        }
    }

    /// How the rules do where ICD is full and leaves much unexplained; none where it does not, where rows do not count alike, and
    /// where the budget does not suffice to find out.
    fn compare(
        &self,
        given: &Given<'_>,
        icd: &Selection,
        (enough, most): (StoppingRule, usize),
        keep_going: KeepGoing<'_>,
    ) -> Result<Option<DictionaryReport>, RefitError> {
        if !icd.capped || given.rows.ratios.iter().any(|&ratio| ratio != 1.0) {
            return Ok(None);
        }
        let heads = some_heads(&given.settings.heads, HEADS);
        let some = Given { settings: &Settings { heads, ..given.settings.clone() }, ..*given };
        let (rows, elements, dim) = (given.rows.len(), icd.dictionary.len(), given.inputs.dim());
        let pass = allowance::pass(rows, elements, dim, some.settings);
        // Another choice by ICD, a pursuit, which learns a model of its own, and a model by each rule.
        let comparison = allowance::pivots(rows.min(batch::CANDIDATES), elements, dim)
            + pursuit(rows, elements)
            + (RULES.len() + 1) as f64 * pass;
        if !self.allowance.affords(pass + comparison) {
            return Ok(None);
        }
        self.allowance.spend(pass);
        let compared = some.gap(&icd.dictionary, keep_going).and_then(|gap| {
            if gap <= GAP {
                return Ok(Vec::new());
            }
            self.allowance.spend(comparison);
            given.compare(&RULES, enough, most, keep_going)
        });
        let compared = match compared {
            Ok(compared) => compared,
            Err(_) if !keep_going() => return Err(RefitError::Stopped),
            // One of the models has no posterior.
            Err(_) => Vec::new(),
        };
        let by = Compared::best(&compared);
        Ok(by.map(|by| DictionaryReport { by, compared }))
    }
}
