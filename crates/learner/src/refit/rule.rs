//! The rule that chooses the dictionary of a refit: as the settings say, or that which predicts later returns better.

use super::elements::{GAP, some_heads};
use super::error::RefitError;
use super::report::{Compared, DictionaryReport};
use crate::batch::{Given, Selection};
use crate::math::dictionary::{Dictionary, StoppingRule};
use crate::math::evidence::KeepGoing;
use crate::settings::{DictionaryBy, Settings};

/// Rules that are compared where the settings leave the choice open. Each costs a pass over the rows.
const RULES: [DictionaryBy; 2] = [DictionaryBy::Icd, DictionaryBy::Returns];
/// Heads that take part in the trace gap: of more it is a lower bound.
const HEADS: usize = 64;

/// The rule of one refit. All its rounds keep to what the first comparison has found.
pub(super) struct Rule<'a> {
    time_left: KeepGoing<'a>,
    found: Option<DictionaryReport>,
}

impl<'a> Rule<'a> {
    /// That of the settings. Where they leave it open, rules are compared while there is time.
    pub(super) fn of(settings: &Settings, time_left: KeepGoing<'a>) -> Self {
        match settings.dictionary_by {
            _ if !settings.takes_rules() => Self::icd(),
            None => Self { time_left, found: None },
            Some(by) => Self { time_left, found: Some(DictionaryReport { by, compared: Vec::new() }) },
        }
    }

    /// ICD, whatever the rows say.
    pub(super) fn icd() -> Self {
        let found = DictionaryReport { by: DictionaryBy::Icd, compared: Vec::new() };
        Self { time_left: &|| false, found: Some(found) }
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
    /// without time to find out.
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
        let going = || keep_going() && (self.time_left)();
        let heads = some_heads(&given.settings.heads, HEADS);
        let some = Given { settings: &Settings { heads, ..given.settings.clone() }, ..*given };
        let compared = some
            .gap(&icd.dictionary, &going)
            .and_then(|gap| if gap > GAP { given.compare(&RULES, enough, most, &going) } else { Ok(Vec::new()) });
        let compared = match compared {
            Ok(compared) => compared,
            Err(_) if !keep_going() => return Err(RefitError::Stopped),
            // Out of time, or one of the models has no posterior.
            Err(_) => Vec::new(),
        };
        let by = Compared::best(&compared);
        Ok(by.map(|by| DictionaryReport { by, compared }))
    }
}
