//! The setting `heads` of a critic: predictions that it learns besides its values, as files and messages write them.

use crate::learner::Settings;
use crate::learner::heads::{self, Columns};
use crate::math::kernel::NoiseModel;
use crate::transition::ACTION_NUMBERS_MAX;
use crate::wire::{HeadForm, heads_from_list};
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// Most heads of one critic.
pub(crate) const HEADS_MAX: usize = 65_536;
/// Columns that a row may have at most, where the settings do not say how many it has.
const COLUMNS_MAX: usize = 4096;

/// The list as the file writes it.
pub(super) fn written(settings: &Settings) -> Option<toml::Value> {
    let forms: Vec<HeadForm> = settings.heads.iter().map(HeadForm::from).collect();
    toml::Value::try_from(forms).ok()
}

/// The heads of a list in the file.
pub(super) fn read(value: Spanned<DeValue<'_>>) -> Result<Vec<heads::Head>, String> {
    use serde::Deserialize;
    let list = toml::Value::deserialize(ValueDeserializer::from(value));
    let list = list.map_err(|e| format!("cannot be read: {}", e.message()))?;
    let list = serde_json::to_value(list).map_err(|e| format!("cannot be read: {e}"))?;
    for (i, head) in list.as_array().into_iter().flatten().enumerate() {
        if head.get("discount").is_none() && head.get("timescale").is_none() {
            return Err(format!("has a head without discount or timescale: heads[{i}]"));
        }
    }
    // Every head has one of them, so no head takes this discount.
    heads_from_list(list, 1.0)
}

/// Whether a critic with states (`dim`,), where that is known, can learn the heads of its settings.
pub(super) fn check(settings: &Settings, dim: Option<usize>) -> Result<(), String> {
    let heads = &settings.heads;
    if heads.is_empty() {
        return Ok(());
    }
    if heads.len() > HEADS_MAX {
        return Err(format!("lists at most {HEADS_MAX} heads, this one has {}", heads.len()));
    }
    if settings.action_value.is_some() {
        return Err("is for inputs = \"state\": give the heads to a critic of their own".to_owned());
    }
    if settings.noise == NoiseModel::White {
        return Err("is for noise = \"correlated\": white noise has no returns".to_owned());
    }
    heads::check(
        heads,
        Columns { states: dim.unwrap_or(COLUMNS_MAX), rewards: COLUMNS_MAX, actions: ACTION_NUMBERS_MAX },
    )
}
